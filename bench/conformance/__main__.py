"""Runs ONNX's conformance suite and reports what passes.

    python -m bench.conformance [--target cpu] [--target opencl] [--target cuda:sm_80] [--only REGEX] [--write]

Every case runs on every target; on CUDA without a GPU its kernels are compiled and not run. The results are kept in
bench/results/conformance.json; ``--write`` makes docs/conformance.md from it. An interrupted run continues if it gets the same
``--journal``. The exit status is 1 if a case is wrong, if a case of the list (bench/conformance/onnx_passing.txt) does not
pass, or if a case passes that is not on the list.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.conformance.cases import INEXACT, RANDOM, Case, backend_for, cases, compiles, light_cases, passing, verdict
from bench.conformance.table import counts, page
from bench.options import parser_of
from gpucomp.errors import GpucompError

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results" / "conformance.json"
PAGE = ROOT / "docs" / "conformance.md"


# exceptions of a broken compiler or runtime: results like any other here
CRASHES = (
    GpucompError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
)


def say(case: Case, target: str) -> str:
    """The verdict; an exception that gpucomp should not raise counts as wrong."""
    try:
        return compiles(case, target) if target.startswith("cuda") else verdict(case, backend_for(target))
    except CRASHES as error:
        return f"wrong: {type(error).__name__}: {error}"


def run(chosen: Mapping[str, Case], target: str, journal: Path | None) -> dict[str, str]:
    known: dict[str, str] = {}
    if journal is not None and journal.exists():
        lines = (json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines() if line.endswith("}"))
        known = {line["case"]: line["said"] for line in lines if line["target"] == target}
    begin, told = time.monotonic(), time.monotonic()
    found: dict[str, str] = {}
    for number, (name, case) in enumerate(chosen.items(), start=1):
        if name not in known:
            known[name] = say(case, target)
            if journal is not None:
                with journal.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"target": target, "case": name, "said": known[name]}) + "\n")
        found[name] = known[name]
        if time.monotonic() - told > 20:
            told = time.monotonic()
            print(f"{target}: {number} of {len(chosen)} cases, {told - begin:.0f} s", file=sys.stderr, flush=True)
    return found


def regressions(found: Mapping[str, str], cases: Mapping[str, Case]) -> list[str]:
    """Differences between a run and the list."""
    on_list = passing() | set(RANDOM) | {n for n, c in cases.items() if c.kind == "real"}
    lines = []
    for name, said in found.items():
        if said and name in INEXACT:
            continue
        if said.startswith("wrong") or (said and name in on_list):
            lines.append(f"{name}: {said}")
        elif not said and name not in on_list and name not in INEXACT:
            lines.append(f"{name}: passes, and is not on the list")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("bench.conformance", __doc__)
    parser.add_argument(
        "--target",
        action="append",
        metavar="TARGET",
        help="cpu, opencl[:NAME] or cuda:ARCH; may repeat (default: cpu and opencl)",
    )
    parser.add_argument("--only", default="", metavar="REGEX", help="run only cases whose names match")
    parser.add_argument("--no-light", action="store_true", help="leave out the nine real networks")
    parser.add_argument(
        "--journal", type=Path, metavar="FILE", help="journal of all results; an interrupted run continues from it"
    )
    parser.add_argument(
        "--write", action="store_true", help="write docs/conformance.md and the JSON file of the results"
    )
    options = parser.parse_args(arguments)
    every = cases() | ({} if options.no_light else light_cases())
    chosen = {name: case for name, case in every.items() if re.search(options.only, name)}
    results: dict[str, dict[str, str]] = {}
    failed = False
    for target in options.target or ["cpu", "opencl"]:
        results[target] = run(chosen, target, options.journal)
        found = counts(results[target])
        print(
            f"{target}: {len(chosen)} cases, {found['passed']} pass, {found['coarse']} with coarse expectations, "
            f"{found['unsupported']} refused, {found['wrong']} wrong"
        )
        for line in regressions(results[target], chosen):
            failed = True
            print(f"  {line}")
    if options.write:
        before = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
        merged = {target: before.get(target, {}) | results.get(target, {}) for target in {**before, **results}}
        RESULTS.write_text(json.dumps(merged, indent=0, sort_keys=True) + "\n", encoding="utf-8")
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page(cases() | light_cases(), merged), encoding="utf-8")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
