"""Real applications that were written for onnxruntime, unmodified, on onnxruntime and on ``gpucomp.ort`` in its place.

    python -m bench.ort_applications                        # all eight; pip installs them into the cache folder
    python -m bench.ort_applications magika ddddocr --runs 9 --markdown applications.md

Each application runs in processes of its own, on ``--threads`` cores: its model comes from its package, its inputs are pages,
sounds, files and sentences that this benchmark makes. onnxruntime adds products of bytes exactly
(``session.x64quantprecision``), as gpucomp does. The two engines take turns (onnxruntime, gpucomp, gpucomp, onnxruntime).

``answers`` is how many numbers, texts and labels were compared, and ``differ`` how many are not the same: texts and labels are
compared exactly, boxes to a pixel, times to 20 ms, scores to 0.001. ``warm`` is the median time of all calls once. ``first`` is
the time until the first answer, with the engine's loading and compiling: gpucomp's with an empty cache, then with a warm one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.options import add_shared, parser_of
from bench.ort_applications.applications import APPLICATIONS
from bench.ort_applications.environment import Failed, answers, set_up

ALLOWED = {"box": 1.0, "time": 0.02, "score": 1e-3}  # pixels, seconds, of 1


def compared(found: Any, wanted: Any, kind: str = "") -> tuple[int, int]:
    """How many plain values ``wanted`` has, and how many of ``found`` are not the same. A missing part counts as one."""
    if isinstance(wanted, dict):
        if not isinstance(found, dict) or found.keys() != wanted.keys():
            return 1, 1
        return _sum(compared(found[key], value, key if key in ALLOWED else kind) for key, value in wanted.items())
    if isinstance(wanted, list):
        if not isinstance(found, list) or len(found) != len(wanted):
            return 1, 1
        return _sum(compared(a, b, kind) for a, b in zip(found, wanted, strict=True))
    if kind in ALLOWED and all(isinstance(one, int | float) for one in (found, wanted)):
        return 1, int(not abs(found - wanted) <= ALLOWED[kind])
    return 1, int(found != wanted)


def _sum(pairs: Any) -> tuple[int, int]:
    listed = list(pairs)
    return sum(count for count, _ in listed), sum(wrong for _, wrong in listed)


def measure(name: str, runs: int, cores: Sequence[int]) -> dict[str, Any]:
    """A row of the table. Raises ``Failed``."""
    with tempfile.TemporaryDirectory(prefix="gpucomp-") as cache:
        turns = [(engine, answers(name, engine, runs, cores, Path(cache))) for engine in TURNS]
    ours, theirs = ([found for engine, found in turns if engine == wanted] for wanted in ("gpucomp", "onnxruntime"))
    if {found["module"] for found in ours} != {"gpucomp.ort"} or {found["module"] for found in theirs} != {
        "onnxruntime"
    }:
        raise Failed("the application did not use the engine that it was given")
    pairs = [compared(found["answers"], wanted["answers"]) for found, wanted in zip(ours, theirs, strict=True)]
    count, wrong = pairs[0][0], max(wrong for _, wrong in pairs)
    if not count:
        raise Failed("no answers to compare")
    return {
        "application": name,
        "answers": count,
        "differ": wrong,
        "gpucomp_s": statistics.median([t for found in ours for t in found["run_s"]]),
        "onnxruntime_s": statistics.median([t for found in theirs for t in found["run_s"]]),
        "first_s": {"cold": ours[0]["first_s"], "warm": ours[1]["first_s"], "onnxruntime": theirs[1]["first_s"]},
        "version": theirs[0]["version"],
    }


TURNS = ("onnxruntime", "gpucomp", "gpucomp", "onnxruntime")
HEAD = (
    "| application | answers | differ | gpucomp warm, ms | onnxruntime warm, ms | ratio | first s: cold, cached, onnxruntime |",
    "|---|---|---|---|---|---|---|",
)


def line(row: dict[str, Any]) -> str:
    if "failure" in row:
        return f"| {row['application']} | {row['failure']} | | | | | |"
    first, ours, theirs = row["first_s"], row["gpucomp_s"], row["onnxruntime_s"]
    return (
        f"| {row['application']} | {row['answers']} | {row['differ']} | {1e3 * ours:.1f} | {1e3 * theirs:.1f} | "
        f"{theirs / ours:.2f} | {first['cold']:.1f}, {first['warm']:.1f}, {first['onnxruntime']:.1f} |"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("bench.ort_applications", __doc__)
    listed = ", ".join(APPLICATIONS)
    parser.add_argument("names", nargs="*", metavar="APPLICATION", help=f"of: {listed} (default: all)")
    parser.add_argument("--runs", type=int, default=7, help="warm runs of each process")
    parser.add_argument("--threads", type=int, default=2, help="cores that a process may use")
    add_shared(parser, "--markdown")
    options: argparse.Namespace = parser.parse_args(arguments)
    if unknown := sorted(set(options.names) - set(APPLICATIONS)):
        parser.error(f"no application {unknown[0]!r}: one of {listed} expected")
    names = options.names or list(APPLICATIONS)
    cores = sorted(os.sched_getaffinity(0))[: options.threads]
    failures, rows = set_up(names), []
    print("\n".join(HEAD))
    for name in names:
        row: dict[str, Any] = {"application": name}
        try:
            row |= {"failure": failures[name]} if name in failures else measure(name, options.runs, cores)
        except Failed as error:
            row["failure"] = str(error)
        rows.append(row)
        print(line(row), flush=True)
    if options.markdown:
        head = [
            "# Applications of onnxruntime on gpucomp.ort",
            "",
            f"`python -m bench.ort_applications --runs {options.runs}`:",
        ]
        told = [*head, "", *HEAD, *map(line, rows), ""]
        options.markdown.write_text("\n".join(told), encoding="utf-8")
        options.markdown.with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return int(any("failure" in row or row["differ"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
