"""Which candidate it is in the end: a final of the fastest beside the default, then the whole model with and without.

A search compares many candidates once, and the luckiest of them leads. So the leaders are timed again, in turn with the
default, in processes of their own; what is not clearly faster loses to the default, and what is about as fast as the
fastest loses to the simplest. What then does not help the model that runs it is dropped.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpucomp.tuning.measure import interval, interval_of_processes
from gpucomp.tuning.study import SEED, Study
from gpucomp.tuning.tasks import Candidate

FINALISTS = 4
PROCESSES = 3
ROUNDS = 12  # of each process
PROCESS_S = 1.5
TIE = 0.02  # ratios as close as this are the same
SLOWER = 1.005  # a tuned model whose time over the untuned one's may be above this is not given out
LIMIT_S = 120.0


@dataclass(frozen=True)
class Comparison:
    """Times over another's, by rounds in turn, of one process or of several.

    processes  the median of each process where there were several: the interval is then at least as wide as they differ
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
    """A comparison with the default; ``changes`` is how many of its parameters are others."""

    name: str
    changes: int


def decide(finalists: Sequence[Finalist], *, tie: float = TIE) -> Finalist | None:
    """The pick; ``None`` for the default.

    A finalist is a rival of the default when it is faster by more than a tie and its interval does not reach the
    default: one that all finalists together leave by chance once in twenty times (Bonferroni). Among rivals within a tie
    of the fastest the one that changes the least wins, then the first in name: a second run with the same winner in
    sight picks the same.
    """
    sure = 1 - 0.05 / max(1, len(finalists))
    rivals = [f for f in finalists if f.median < 1 - tie and interval(f.ratios, sure)[1] < 1]
    if not rivals:
        return None
    fastest = min(f.median for f in rivals)
    return min((f for f in rivals if f.median <= fastest * (1 + tie)), key=lambda f: (f.changes, f.name))


def changes(candidate: Candidate, default: Candidate) -> int:
    """Parameters that are not as in the default; all of them for another engine."""
    if candidate.family.title != default.family.title:
        return 1 + len(candidate.schedule)
    return sum(candidate.schedule[name] != default.schedule[name] for name in candidate.schedule)


@dataclass(frozen=True)
class Verdict:
    """A study's pick and how sure it is. ``ratio`` is its time over the default's, with a 95 % interval.

    ``came`` is ``final`` when a final came to its end, ``model`` when the model was as fast without the pick, whose
    ratio in the final was ``alone``; ``not reached`` or ``failed`` say that nothing was decided, and what was known
    before stands.
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
    """The verdict for the default; with ``not reached`` or ``failed`` none, which leaves everything as it is."""
    return Verdict(study.task.default, 1.0, (1.0, 1.0), 0, finalists, True, came, alone)


def final(study: Study, *, processes: int = PROCESSES, rounds: int = ROUNDS, seconds: float = PROCESS_S) -> Verdict:
    """The final of a study's leaders: each process new, each on other data, the default between every two samples."""
    leaders = [c for c in study.leaders(FINALISTS) if study.best < 1 - TIE / 2]
    if study.fault:
        return default_of(study, came="failed")
    if not leaders:  # what was picked before has beaten the default, and nothing was timed against it
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
            return default_of(study, len(leaders), "failed")  # on other data the default is wrong, or the process died
        out.update(wrong)  # right on one set of data and wrong on another: out, and the others once more
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
    """A new process's answer: candidates on the data of ``seed``, the first of which is the anchor."""
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
    """The picks that help the whole model, and the model with them over the model without any.

    picks    for each, the part of the model's time that its final promises to save
    compare  ``compare(anchor, others)``: the model with the picks ``others`` over the one with the picks ``anchor``
    in_time  whether there is time for another comparison beside the last; once there is not, what has not been judged
             is judged as one

    Each pick is taken out and put back, the most promising first; a model that is as fast without it does not have
    it. Those that promise less than ``small`` are taken out together. What is left has to beat the model without any.
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
                break  # that is the last comparison
            if compare(everything, everything - group).median <= 1:
                everything -= group
            if late:
                break
    if not everything:
        return everything, Comparison([1.0])
    found = compare(frozenset(), everything)
    if found.interval[1] >= SLOWER and in_time():
        found = found + compare(frozenset(), everything)  # once more: noise is no reason
    if found.median < 1 and found.interval[1] < SLOWER:
        return everything, found
    return frozenset(), Comparison([1.0])
