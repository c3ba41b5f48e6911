"""Chooses the final candidate: the fastest ones are timed against the default, then the whole model with and without each.

A search compares many candidates once, so its leader may just have been lucky. The leaders are therefore timed again, in
turn with the default, in new processes. A candidate that is not clearly faster loses to the default, and among those about
as fast as the fastest the simplest wins. A pick that does not make the whole model faster is dropped.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from gpucomp.lazy_dataclass import dataclass
from gpucomp.tuning.measure import interval, interval_of_processes
from gpucomp.tuning.study import SEED, Study
from gpucomp.tuning.tasks import Candidate

FINALISTS = 4
PROCESSES = 3
ROUNDS = 12  # in each process
PROCESS_S = 1.5
TIE = 0.02  # ratios that differ by less than this are ties
SLOWER = 1.005  # a tuned model is rejected if its time over the untuned one's could be above this
LIMIT_S = 120.0


@dataclass(frozen=True)
class Comparison:
    """Ratios of times, from rounds measured in turn, in one process or several.

    processes  the median of each process, if there were several: the interval then covers the differences between them
    """

    ratios: Sequence[float]
    processes: Sequence[float] = field(default=(), kw_only=True)

    @property
    def median(self) -> float:
        return statistics.median(self.ratios) if self.ratios else math.inf

    @property
    def interval(self) -> tuple[float, float]:
        low, high = interval(self.ratios)
        if not self.processes:
            return low, high
        least, most = interval_of_processes(self.processes)
        return min(low, least), max(high, most)

    def __add__(self, other: Comparison) -> Comparison:
        return Comparison([*self.ratios, *other.ratios], processes=[*self.processes, *other.processes])


@dataclass(frozen=True)
class Finalist(Comparison):
    """A comparison with the default; ``changes`` is the number of parameters that differ from it."""

    name: str
    changes: int


def decide(finalists: Sequence[Finalist], *, tie: float = TIE) -> Finalist | None:
    """The pick; ``None`` for the default.

    A finalist is a rival of the default if it is faster by more than a tie and its interval does not reach the default.
    The intervals are so wide that one of all finalists gets there by chance once in twenty times (Bonferroni). Among the
    rivals within a tie of the fastest, the one with the fewest changes wins, then the first by name, so that a second run
    with similar times picks the same.
    """
    sure = 1 - 0.05 / max(1, len(finalists))
    rivals = [f for f in finalists if f.median < 1 - tie and interval(f.ratios, sure)[1] < 1]
    if not rivals:
        return None
    fastest = min(f.median for f in rivals)
    return min((f for f in rivals if f.median <= fastest * (1 + tie)), key=lambda f: (f.changes, f.name))


def changes(candidate: Candidate, default: Candidate) -> int:
    """The number of parameters that differ from the default; for another engine all of them and one more."""
    if candidate.family.title != default.family.title:
        return 1 + len(candidate.schedule)
    return sum(candidate.schedule[name] != default.schedule[name] for name in candidate.schedule)


@dataclass(frozen=True)
class Verdict:
    """A study's pick and how certain it is. ``ratio`` is its time over the default's, with a 95 % interval.

    ``came`` is ``final`` if a final decided, and ``model`` if the model was as fast without the pick, whose ratio in the
    final was ``alone``. ``not reached`` and ``failed`` mean that nothing was decided; what was known before stays valid.
    """

    candidate: Candidate
    ratio: float
    interval: tuple[float, float]
    rounds: int
    finalists: int
    is_default: bool
    came: str = "final"
    alone: float = 1.0

    @property
    def decided(self) -> bool:
        return self.came in ("final", "model")

    @property
    def fields(self) -> dict[str, Any]:
        return {
            "ratio": self.ratio,
            "interval": list(self.interval),
            "rounds": self.rounds,
            "finalists": self.finalists,
            "default": self.is_default,
        }


def default_of(study: Study, finalists: int = 0, came: str = "final", alone: float = 1.0) -> Verdict:
    """The verdict for the default; with ``not reached`` or ``failed`` it decides nothing and leaves everything as it is."""
    return Verdict(study.task.default, 1.0, (1.0, 1.0), 0, finalists, True, came, alone)


def rivals(study: Study) -> list[Candidate]:
    """The leaders that a final has to time: none if the best is not clearly faster than the default."""
    return study.leaders(FINALISTS) if study.best < 1 - TIE / 2 else []


def final(study: Study, *, processes: int = PROCESSES, rounds: int = ROUNDS, seconds: float = PROCESS_S) -> Verdict:
    """The final of a study's leaders: each process is new and has other data, and the default runs between any two samples."""
    leaders = rivals(study)
    if study.fault:
        return default_of(study, came="failed")
    if not leaders:  # an earlier pick has beaten the default, but nothing was timed against it now
        return default_of(study, came="final" if study.trials and study.known.pick is None else "not reached")
    built = study.built([study.task.default, *leaders])
    if not built or built[0].candidate.key != study.task.default.key:
        return default_of(study, len(leaders), "failed")
    rows: list[list[float]] = []
    out: set[int] = set()
    for process in range(processes):
        here = [k for k in range(len(built)) if k not in out]
        answer = _compared(study, [built[k] for k in here], SEED + process, rounds, seconds)
        wrong = [here[k] for k, fault in enumerate(answer.get("faults", [])) if fault]
        if 0 in wrong or "rows" not in answer:
            return default_of(study, len(leaders), "failed")  # the default is wrong on other data, or the process died
        out.update(wrong)  # right on one set of data and wrong on another: excluded, and the others run once more
        if wrong:
            here = [k for k in range(len(built)) if k not in out]
            answer = _compared(study, [built[k] for k in here], SEED + process, rounds, seconds)
        for row in answer.get("rows", []):
            full = [math.nan] * len(built)
            for k, value in zip(here, row, strict=True):
                full[k] = value
            rows.append(full)
    if not rows:
        return default_of(study, len(leaders), "failed")
    finalists = {
        f"{b.candidate.key}": Finalist(
            [r[k] for r in rows], f"{b.candidate.key}", changes(b.candidate, study.task.default)
        )
        for k, b in enumerate(built)
        if k and k not in out
    }
    chosen = decide([f for f in finalists.values() if f.ratios])
    if chosen is None:
        return default_of(study, len(leaders))
    candidate = next(b.candidate for b in built if f"{b.candidate.key}" == chosen.name)
    return Verdict(candidate, chosen.median, chosen.interval, len(chosen.ratios), len(leaders), False)


def _compared(study: Study, built: Sequence[Any], seed: int, rounds: int, seconds: float) -> dict[str, Any]:
    """Run a new process; return its answer: the candidates' times on the data of ``seed``. The first is the anchor."""
    common, arrays = study.job(seed)
    candidates = []
    for item in built:
        _, packed, _ = study.render(item.candidate)
        message, found = study.assembled(item.candidate, item.source, packed, item.arrays[item.message["binary"]], seed)
        candidates.append(message)
        arrays |= found
    job = {**common, "do": "compare", "candidates": candidates, "rounds": rounds, "seconds": seconds}
    return study.tools.compared(job, arrays, LIMIT_S)


# the whole model


Compare = Callable[[frozenset[str], frozenset[str]], Comparison]


def kept(
    picks: Mapping[str, float], compare: Compare, *, small: float = 0.005, in_time: Callable[[], bool] = lambda: True
) -> tuple[frozenset[str], Comparison]:
    """The picks that make the whole model faster, and the comparison of the model with them to the model without any.

    picks    for each pick, the share of the model's time that its final promises to save
    compare  ``compare(anchor, others)``: the model with the picks ``others`` over the one with the picks ``anchor``
    in_time  whether there is time for another comparison besides the last one; once there is not, all picks that are not
             judged yet are judged together

    Each pick is taken out and put back, the most promising first; if the model is as fast without it, it stays out. Picks
    that promise less than ``small`` are taken out together. The rest must beat the model without any pick.
    """
    everything = frozenset(picks)
    order = sorted((name for name in picks if picks[name] >= small), key=lambda name: (-picks[name], name))
    groups = [frozenset({name}) for name in order]
    if rest := everything - frozenset(order):
        groups.append(rest)
    if len(groups) > 1:
        for number, group in enumerate(groups):
            late = not in_time()
            if late:
                group = frozenset().union(*groups[number:])
            if group == everything:
                break  # this would be the last comparison
            if compare(everything, everything - group).median <= 1:
                everything -= group
            if late:
                break
    if not everything:
        return everything, Comparison([1.0])
    found = compare(frozenset(), everything)
    if found.interval[1] >= SLOWER and in_time():
        found = found + compare(frozenset(), everything)  # measure once more: it may have been noise
    if found.median < 1 and found.interval[1] < SLOWER:
        return everything, found
    return frozenset(), Comparison([1.0])
