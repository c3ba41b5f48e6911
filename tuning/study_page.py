"""Writes one page about a file of records, kernel by kernel: the search's progress, what mattered, how certain the pick is.

Shares and medians are of the points that the search chose to measure, so they are biased towards fast ones. Records have no
sources; given the model, the default's and the winner's sources are rendered again and compared.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np

from gpucomp import files
from gpucomp.errors import ScheduleError, UsageError, several
from gpucomp.report import chart, page
from gpucomp.report.chart import Axis, Series
from gpucomp.schedule import records
from gpucomp.schedule.records import Record, ratio_of
from gpucomp.tuning.analysis import source_difference
from gpucomp.tuning.page import FEW, GREY, space
from gpucomp.tuning.recorded import Row, space_of
from gpucomp.tuning.tasks import Candidate, Task

MOST_LINES = 400  # of a diff of two sources


def write(path: Path, found: Sequence[Record], tasks: Mapping[str, Task], title: str = "What tuning found") -> int:
    """Write a page about the trials in ``found``; return how many kernels have a section there. ``tasks`` are the tasks of a
    model by kernel, for the sources. Kernels without a successful trial are in the first table only, and those that were not
    tried are in a folded table.

    Raises ``UsageError`` if no trial succeeded, or if the file cannot be written.
    """
    groups: dict[tuple[str, tuple[str, str, str]], list[Record]] = {}
    for record in found:
        groups.setdefault((record["kernel"], records.device_key(record["device"])), []).append(record)
    told = {key: _Told(group) for key, group in groups.items()}
    if not any(one.right for one in told.values()):
        raise UsageError("no trial in these records succeeded, so there is nothing to report")
    order = sorted(told, key=lambda key: (told[key].ratio, key))
    listed = [key for key in order if told[key].trials or told[key].pick is not None]
    parts = [page.heading(title, 1), page.table(HEAD, [told[key].row for key in listed])]
    shown = [key for key in order if told[key].right]
    if failed := sum(bool(told[key].trials) for key in listed) - len(shown):
        parts.append(page.paragraph(f"{failed} of these kernels have no section below: no trial of theirs succeeded."))
    if untried := [told[key].row[:3] for key in order if key not in listed]:
        parts.append(page.folded(f"{several(len(untried), 'more kernel')} not tried", page.table(HEAD[:3], untried)))
    for key in shown:
        parts += _kernel(told[key], tasks.get(key[0]))
    files.write(path, page.page(title, parts))
    return len(shown)


HEAD = (
    "kernel",
    "label",
    "device",
    "trials",
    "failed",
    "default over best trial",
    "default over pick",
    "95 % interval",
    "pick",
)


class _Told:
    """The records of one kernel on one device."""

    def __init__(self, group: Sequence[Record]) -> None:
        self.trials = [r for r in group if r["kind"] == "trial"]
        self.right = [r for r in self.trials if r["invalidity"] == "correct"]
        decided = [r for r in group if r["kind"] in ("pick", "drop")]
        last = max(reversed(decided), key=records.time_of, default=None)
        self.pick = last if last is not None and last["kind"] == "pick" else None
        self.label = next((r["label"] for r in group if r.get("label")), "-")
        self.problem: Mapping[str, int] = next((r["problem"] for r in group if r["kind"] == "task"), {})
        self.kernel, self.device = group[0]["kernel"], group[0]["device"]
        self.default = next((r for r in self.trials if r.get("default")), None)
        self.winner: Record | None = min(self.right, key=ratio_of, default=None)

    @property
    def ratio(self) -> float:
        """The time over the default's: that of the pick, or of the search's best."""
        if self.pick is not None:
            return float(self.pick["ratio"])
        return ratio_of(self.winner) if self.winner is not None else math.inf

    @property
    def row(self) -> list[str]:
        best = f"{1 / ratio_of(self.winner):.3f}" if self.winner is not None else "-"
        gain, sure, chosen = "-", "-", "-"
        if self.pick is not None:
            low, high = _interval(self.pick)
            gain = f"{1 / self.pick['ratio']:.3f}"
            sure = f"{1 / high:.3f} to {1 / low:.3f}" if self.pick.get("rounds", 1) else "-"  # nothing was measured
            chosen = _words(self.pick)
        where = f"{self.device['kind']}:{self.device['arch']} {self.device['name']}"
        counts = str(len(self.trials)), str(len(self.trials) - len(self.right))
        return [self.kernel[:12], self.label, where, *counts, best, gain, sure, chosen]


def _interval(pick: Record) -> tuple[float, float]:
    found = pick.get("interval")
    if isinstance(found, list) and len(found) == 2 and all(type(v) in (int, float) and v > 0 for v in found):
        return float(found[0]), float(found[1])
    return pick["ratio"], pick["ratio"]


def _words(record: Record) -> str:
    return " ".join([record["engine"], *(f"{name}={value}" for name, value in record["configuration"].items())])


def _kernel(told: _Told, task: Task | None) -> list[str]:
    sizes = " ".join(f"{name}={size}" for name, size in told.problem.items())
    parts = [page.heading(f"{told.label} ({told.kernel[:12]})")]
    known = f"Records find this kernel by its sizes, here as the default engine names them: {sizes}."
    parts += [page.paragraph(known), _progress(told.trials)]
    if (start := told.default) is not None and told.winner is not None:
        parts.append(page.table(("", "schedule"), [("default", _words(start)), ("fastest", _words(told.winner))]))
    failures: dict[tuple[str, str], int] = {}
    for trial in told.trials:
        if trial["invalidity"] != "correct":
            cause = trial["invalidity"], str(trial.get("fault", ""))[:120]
            failures[cause] = failures.get(cause, 0) + 1
    if failures:
        rows = [(str(count), *cause) for cause, count in sorted(failures.items(), key=lambda f: -f[1])]
        parts.append(page.table(("trials", "failed in", "first words"), rows))
    engines = sorted({t["engine"] for t in told.right}, key=lambda e: _best(told.right, e))
    if len(engines) > 1:
        rows = [
            (e, str(sum(t["engine"] == e for t in told.trials)), f"{1 / _best(told.right, e):.3f}") for e in engines
        ]
        parts.append(page.table(("engine", "trials", "default over its best"), rows))
    for engine in engines:
        own = [t for t in told.trials if t["engine"] == engine]
        if not any(t["configuration"] for t in own):
            parts += [page.heading(engine, 3), page.paragraph("It has no parameters.")]
            continue
        measured = space_of(engine, told.device["name"], map(_row, own), tuple(told.problem.values()))
        parts += [page.heading(engine, 3), page.paragraph(caveat(int(np.isfinite(measured.seconds).sum())))]
        parts += [*space(measured.candidates, measured.seconds, np.isnan(measured.seconds), sampled=True)]
    if task is not None and told.winner is not None:
        parts.append(
            page.source("The default's source beside the winner's", difference(task, told.pick or told.winner))
        )
    return parts


def caveat(measured: int) -> str:
    """What the points of a search can tell: it chose them, and often they are few."""
    chosen = "The search chose these points out of a larger space, and chose more of those that it expected to be fast."
    if measured >= FEW:
        return chosen
    return f"{chosen} They are fewer than {FEW}: no share of the variance is drawn, and the charts below say little."


def _best(right: Sequence[Record], engine: str) -> float:
    return min(ratio_of(t) for t in right if t["engine"] == engine)


def _row(trial: Record) -> Row:
    good = trial["invalidity"] == "correct"
    return Row(trial["configuration"], ratio_of(trial) if good else None, cause=trial["invalidity"][:80])


def _progress(trials: Sequence[Record]) -> str:
    """A chart of the search: each trial's time over the default's, and the best so far."""
    ratios = [ratio_of(t) if t["invalidity"] == "correct" else math.inf for t in trials]
    numbers = range(1, len(trials) + 1)
    marks = Series("trial", numbers, ratios, colour=GREY, points=True, notes=list(map(_words, trials)))
    line = Series("best so far", numbers, list(accumulate(ratios, min)), steps=True)
    axes = Axis("trial", least=1, most=max(len(trials), 2)), Axis("time over the default's", log=True)
    return f'<div class="charts">{chart.lines("The search", [marks, line], *axes)}</div>'


def difference(task: Task, winner: Record) -> str:
    """The diff of a kernel's source from the default to ``winner``, shortened if it is long."""
    family = next((f for f in task.engines if f.title == winner["engine"]), None)
    default = task.default
    if family is None:
        return f"the engine {winner['engine']} no longer exists"
    try:
        if family is default.family:
            text = source_difference(
                lambda s: task.rendered(Candidate(family, s))[0].text, default.schedule, winner["configuration"]
            )
        else:
            old, new = (task.rendered(c)[0].text for c in (default, Candidate(family, winner["configuration"])))
            titles = default.family.title, family.title
            text = "\n".join(difflib.unified_diff(old.splitlines(), new.splitlines(), *titles, lineterm="", n=1))
    except ScheduleError as error:
        return f"the winner cannot be rendered any more: {error.message}"
    lines = text.splitlines()
    more = [f"... and {len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else []
    return "\n".join([*lines[:MOST_LINES], *more]) or "no difference"
