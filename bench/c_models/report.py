"""The figures in files: all of them as JSON, and the page that shows them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.c_models.latency import MOST_RATIO, Latency
from bench.c_models.levels import LEVELS, Row
from bench.c_models.models import MODELS

RESULTS = Path(__file__).resolve().parents[1] / "results" / "c_models.json"


def stored(path: Path) -> tuple[list[Row], list[Latency], str]:
    """What earlier calls wrote; the latencies are those of one processor."""
    if not path.exists():
        return [], [], ""
    found: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    rows = [Row(**{**row, "off": tuple(row["off"])}) for row in found["bits"]]
    return rows, [Latency(**row) for row in found["latency"]], found["processor"]


def merged(earlier: Sequence[Any], later: Any, key: Any) -> list[Any]:
    """All, in order; of the same key the later one."""
    found = {key(row): row for row in (*earlier, later)}
    return [found[one] for one in sorted(found, key=_place)]


def _place(key: tuple[str, Any]) -> tuple[int, Any]:
    names, levels = list(MODELS), list(LEVELS)
    model = names.index(key[0]) if key[0] in names else len(names)
    return model, levels.index(key[1]) if key[1] in levels else key[1]


def write(path: Path, row: Row | Latency, processor: str) -> None:
    """Add a row to the file, and write the page beside it. Latencies of another processor are dropped."""
    bits, times, theirs = stored(path)
    if isinstance(row, Row):
        bits = merged(bits, row, lambda one: (one.model, one.level))
    else:
        times = merged(times if theirs == processor else [], row, lambda one: (one.model, one.threads))
        theirs = processor
    content = {"processor": theirs, "bits": list(map(asdict, bits)), "latency": list(map(asdict, times))}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text(page(bits, times, theirs), encoding="utf-8")


def _cell(row: Row) -> str:
    if row.told:
        return f"failed: {row.told}"
    said = {True: "the same bits", False: "**other bits**", None: "within the tolerance"}[row.bits]
    return f"{said}, {row.worst:.1e}" if not row.off else f"**off by {row.worst:.1e}**"


def page(rows: Sequence[Row], latencies: Sequence[Latency], processor: str) -> str:
    found = {(row.model, row.level): _cell(row) for row in rows}
    levels = [level for level in LEVELS if any(row.level == level for row in rows)]
    names = list(dict.fromkeys(row.model for row in rows))
    right = sum(row.right for row in rows)
    lines = [
        "# Models in C beside Python",
        "",
        "`python -m bench.c_models --write` and `python -m bench.c_models --latency --write` made this page; do not edit it.",
        f"{right} of {len(rows)} right.",
        "",
        "Each model is compiled for each level, saved, and run by the C runtime, with one thread and with several, by Python,",
        "and for processors as an exported C project, with the same inputs, at several sizes and from state to state. The number",
        "is the largest relative L2 error of an output against onnxruntime. aarch64: programs of C run in qemu-aarch64, and",
        "Python here, whose calls of kernels an emulator runs. wasm32: a C project, built by zig and run by wasmtime; Python",
        "does not run that code, so that only onnxruntime's answer is compared, as by `gpucomp compare`.",
        "",
        f"| model | {' | '.join(levels)} |",
        "| --- " * (1 + len(levels)) + "|",
        *(f"| {name} | {' | '.join(found.get((name, level), '-') for level in levels)} |" for name in names),
        "",
    ]
    if latencies:
        lines += [
            f"## Time of a run, on {processor}",
            "",
            "Processes of C and of Python take turns; both have arrays of their own for the outputs. The ratio is C's time over",
            f"Python's: the median of all rounds, and where it lies with 95 %. It may be {MOST_RATIO}.",
            "",
            "| model | threads | C, us | Python, us | ratio | 95 % | |",
            "| --- | ---: | ---: | ---: | ---: | --- | --- |",
            *(
                f"| {one.model} | {one.threads} | {one.c_us:.1f} | {one.python_us:.1f} | {one.ratio:.3f} | "
                f"{one.low:.3f} to {one.high:.3f} | {one.verdict} |"
                for one in latencies
            ),
            "",
        ]
    return "\n".join(lines)
