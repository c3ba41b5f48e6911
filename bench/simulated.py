"""Runs random cases of ``bench.kernel_sweep`` in a GPU simulator: the part that is the same for all simulators.

A simulator only has to launch one case. Here cases are drawn, kept in a journal, compared with float64 and reported.
"""

from __future__ import annotations

import argparse
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from bench.kernel_sweep.__main__ import Journal, Row, Wanted, add_summary, by_engine, drawn, rows, told
from bench.kernel_sweep.cases import Cell
from bench.kernel_sweep.play import Ready, difference, prepared
from bench.options import add_shared, parser_of
from gpucomp import config
from gpucomp.errors import GpucompError
from gpucomp.kernel.interpreter import UNWRITTEN

ROOT = Path(__file__).parent
Launch = Callable[[Ready], Sequence[np.ndarray]]
Except = Callable[[Ready], str]


class SimulatorError(Exception):
    """The simulator did not finish a case, or a case wrote outside of its buffers."""


def arguments_of(ready: Ready) -> tuple[list[np.ndarray], int, int]:
    """The arguments of a launch in the order of its parameters; the position of the first output; the number of outputs."""
    geometry, outputs = ready.source.geometry, ready.kernel.params[ready.kernel.inputs :]
    given = [np.ascontiguousarray(x) for x in ready.inputs[: ready.kernel.inputs]]
    given += [np.full(t.shape, UNWRITTEN).astype(t.dtype.numpy) for t in outputs]
    if geometry.workspace_bytes:
        given.append(np.full(geometry.workspace_bytes, 255, np.uint8))  # NaN, so that reading an unwritten sum shows
    if geometry.counter_bytes:
        given.append(np.zeros(geometry.counter_bytes, np.uint8))
    return given, ready.kernel.inputs, len(outputs)


def sweep(wanted: Iterable[Wanted], journal: Journal, deadline: float, launch: Launch, without: Except) -> None:
    """Run the cases that are not in the journal yet, until ``deadline`` (monotonic seconds). ``without`` returns why a case
    is left out, or ""."""
    for name, cell, case in wanted:
        if time.monotonic() > deadline:
            break
        if not journal.wants(name):
            continue
        try:
            ready = prepared(case(), on_pocl=False)
        except (GpucompError, LookupError, ValueError) as error:
            journal.end(name, cell, f"not rendered: {error}")
            continue
        reason = "its text is too long" if ready is None else without(ready)
        if ready is None or reason:
            journal.end(name, cell, "", left_out=reason)
            continue
        journal.begin(name, cell)
        try:
            found = [] if 0 in ready.source.geometry.groups else launch(ready)
            fault = difference(ready, found) if found else ""
        except (SimulatorError, GpucompError) as error:
            fault = str(error)
        told(journal, name, fault, ready)


def commit_of(checkout: Path) -> str:
    """The commit of a checkout, if it has its git history."""
    command = ["git", "-C", str(checkout), "log", "-1", "--format=%h of %cs"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    inside = (checkout / ".git").exists() and not done.returncode
    return done.stdout.strip() if inside else "a checkout without its history"


def simulator_parser(module: str, description: str | None, names: Sequence[str], cases: int) -> argparse.ArgumentParser:
    """The options that all simulators have."""
    parser = parser_of(module, description)
    parser.add_argument("path", type=Path, metavar="PATH", help="folder of the simulator")
    parser.add_argument("--cases", type=int, default=cases, metavar="N", help="number of cases of each cell")
    parser.add_argument(
        "--minutes", type=float, default=60.0, metavar="MIN", help="start no more cases after this time"
    )
    parser.add_argument(
        "--cell", action="append", choices=names, metavar="NAME", help="only this cell; may repeat (default: all)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the random numbers")
    parser.add_argument("--limit", type=float, default=300.0, metavar="S", help="time limit of a case, in seconds")
    add_shared(parser, "--journal", "--again", "--markdown", "--summary")
    return parser


def run(
    options: argparse.Namespace, chosen: Sequence[Cell], launch: Launch, without: Except, title: str, lead: str
) -> int:
    """Run the cells' cases and report them; return the exit status."""
    name = Path(title.replace(" ", "_").lower())
    path = options.journal or (config.current().cache or Path.cwd()) / name.with_suffix(".jsonl")
    journal, how = Journal(path, options.again), f"--seed {options.seed}"
    named = ((f"{n} by {how}", cell, case) for n, cell, case in drawn(chosen, options.cases, options.seed))
    sweep(named, journal, time.monotonic() + 60 * options.minutes, launch, without)
    found = rows(chosen, f" by {how}", journal)
    print(by_engine(found))
    if options.summary:
        add_summary(options.summary, f"{title} {how}", found)
    if options.markdown:
        options.markdown.write_text(report(found, journal, title, f"{lead} `{how} --cases {options.cases}`."), "utf-8")
    return 1 if any(row.faults for row in found) else 0


def report(found: Sequence[Row], journal: Journal, title: str, lead: str) -> str:
    """Markdown: the number of cases for each engine, what was left out and why, and all disagreements."""
    cells = {row.cell for row in found}
    left = Counter(e["left_out"] for e in journal.ended.values() if "left_out" in e and e["cell"] in cells)
    faults = [f"- {fault}" for row in found for fault in row.faults]
    return "\n".join(
        [
            f"# {title}",
            "",
            f"{lead} {sum(row.tried for row in found)} cases. The oracle is numpy in float64.",
            "",
            by_engine(found).replace("| too long |", "| left out |"),
            "",
            *(["Left out:", *(f"- {count}: {reason}" for reason, count in left.most_common()), ""] if left else []),
            *(["Disagreements:", *faults] if faults else ["Disagreements: none."]),
            "",
        ]
    )
