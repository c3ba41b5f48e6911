"""The results as a page: counts for each back end, failures and their reasons, a row for each operator and version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import onnx
from onnx.defs import SchemaError

from bench.conformance.cases import INEXACT, RANDOM, Case

Results = Mapping[str, Mapping[str, str]]  # target -> case -> verdict, "" for a case that passes
EXPANDED = "_expanded"


def versions(case: Case) -> set[tuple[str, str, int]]:
    """(domain, operator, version) of every node that a node test is about."""
    opsets = {o.domain: o.version for o in case.model.opset_import}
    found = set()
    for node in case.model.graph.node:
        domain = "" if node.domain == "ai.onnx" else node.domain
        try:
            since = onnx.defs.get_schema(node.op_type, opsets.get(domain, 1), domain).since_version
        except SchemaError:
            continue
        found.add((domain, node.op_type, since))
    return found


def counts(results: Mapping[str, str]) -> Counter[str]:
    """The number of cases that ``passed``, were ``unsupported``, ``coarse`` (see ``INEXACT``) or ``wrong``."""
    found: Counter[str] = Counter()
    for name, said in results.items():
        if not said:
            found["passed"] += 1
        elif name in INEXACT:
            found["coarse"] += 1
        else:
            found["unsupported" if said.startswith("unsupported") else "wrong"] += 1
    return found


def page(cases: Mapping[str, Case], results: Results) -> str:
    targets = list(results)
    lines = [
        "# Conformance",
        "",
        "ONNX's own backend tests (`onnx.backend.test`, onnx " + onnx.__version__ + "). This page is written by",
        "`python -m bench.conformance --write` (`make conformance`); do not edit it. On `cuda` the kernels are compiled by",
        "NVRTC and not run.",
        "",
        *_row(["back end", "cases", "pass", "coarse expectation", "refused", "wrong"]),
        *_row(["---", *["---:"] * 5]),
    ]
    for target in targets:
        found = counts(results[target])
        numbers = [found[k] for k in ("passed", "coarse", "unsupported", "wrong")]
        lines += _row([f"`{target}`", len(results[target]), *numbers])
    lines += ["", "By part of the suite (passed / run):", "", *_row(["part", *[f"`{t}`" for t in targets]])]
    lines += _row(["---", *["---:"] * len(targets)])
    for kind in dict.fromkeys(c.kind for c in cases.values()):
        names = [n for n, c in cases.items() if c.kind == kind]
        lines += _row([kind, *[_share(results[t], names) for t in targets]])
    lines += ["", "## Doubtful expectations", ""]
    lines += [f"- `{name}`: {why}; off by that rounding alone" for name, (_, _, why) in INEXACT.items()]
    lines += [f"- `{name}`: {why}; judged by type, shape and range" for name, why in RANDOM.items()]
    lines += ["", "## What is refused, or wrong", ""]
    refused = [
        f"- `{name}` on `{target}`: {said}"
        for target in targets
        for name, said in results[target].items()
        if said and name not in INEXACT
    ]
    lines += refused or ["Nothing."]
    lines += [
        "",
        "## Operators",
        "",
        "Node tests for each version of an operator (passed / run).",
        "",
    ]
    lines += _row(["operator", "version", *[f"`{t}`" for t in targets]])
    lines += _row(["---", "---:", *["---:"] * len(targets)])
    lines += _operators(cases, results)
    return "\n".join(lines) + "\n"


def _operators(cases: Mapping[str, Case], results: Results) -> Iterator[str]:
    rows: dict[tuple[str, str, int], list[str]] = {}
    for name, case in cases.items():
        if case.kind == "node" and EXPANDED not in name:
            for row in versions(case):
                rows.setdefault(row, []).append(name)
    for (domain, operator, since), names in sorted(rows.items()):
        shares = [_share(found, names) for found in results.values()]
        yield from _row([f"{domain}.{operator}" if domain else operator, since, *shares])


def _share(found: Mapping[str, str], names: Sequence[str]) -> str:
    run = [found[n] for n in names if n in found]
    return f"{sum(not said for said in run)} / {len(run)}" if run else ""


def _row(cells: Sequence[object]) -> list[str]:
    return ["| " + " | ".join(map(str, cells)) + " |"]
