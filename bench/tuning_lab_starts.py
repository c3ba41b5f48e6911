"""Compares how searches start from the analytic model: on the configurations of published measurements, and on made devices.

    python -m bench.tuning_lab_starts FOLDER [--seeds 10] [--made 3] [--markdown FILE]

FOLDER is that of ``bench.measured``; of its files those are used that have many configurations of one kernel (``*_space_*``). The
analytic model predicts each configuration, and a search sees what it would see of our own engines: the encoded schedules, the
predictions, and the default if it is among them. A start differs only in what of the model it is given:

    bounds      predictions and how far they may be off: the start of ``gpucomp.tuning.samplers.opening``
    best        predictions of which only the order counts: the fastest six, and points far from each other among the next
    ends        the twelve lowest lower ends of the intervals of ``uncertainty.RATIOS``, which are those of libraries' kernels
    none        nothing: points far from each other

The cost of a search is the number of trials until one is within some per cent of the optimum, the geometric mean over
problems and seeds. The constants of the model were fitted to these spaces, so a second table has predictions that are made
worse: times a log-normal factor with deviation 1 for each configuration. The third is of whole spaces of engines here: their
times are the predictions with random effects of values, pairs and triples, --made times for each, as far off as published
ones and three times as far. That errors are such sums is an assumption.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from bench.measured.__main__ import paths_in
from bench.measured.kernels import kernel_of
from bench.measured.spaces import Space, predicted, spaces_of
from bench.options import parser_of
from bench.tuning_lab_devices import effects
from gpucomp.kernel_bench.formats import load
from gpucomp.kernel_bench.operations import Gemm
from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.schedule.analytic import demand
from gpucomp.schedule.model import predict
from gpucomp.schedule.uncertainty import SCHEDULES, interval
from gpucomp.targets.by_name import target_of
from gpucomp.tuning.engines import EXPECTED, candidates
from gpucomp.tuning.recorded import Recorded
from gpucomp.tuning.replay import search
from gpucomp.tuning.samplers.model import GUIDED
from gpucomp.tuning.space import Candidates, derived_columns

TRIALS = 40
SHOWN = (1, 4, 8, 16)  # trials
NEAR = (0.95, 0.99)  # of the optimum
NOISE = 1.0  # deviation of the factors that make predictions worse
AMOUNTS = (1.0, 3.0)  # times SCHEDULES: the deviation of made devices
STARTS = ("bounds", "best", "ends", "none")
OTHERS = ("genetic", "tpe", "random")
# kernels of networks: convolutions as products, layers of transformers
MADE = (
    ("A100-SXM4-80GB", "contraction/mma", Gemm(3136, 256, 64, dtype="f16", constant=True)),
    ("A100-SXM4-80GB", "contraction/mma", Gemm(128, 3072, 768, dtype="f16", constant=True)),
    ("A100-SXM4-80GB", "contraction/simt", Gemm(784, 512, 128, constant=True)),
    ("MI100", "contraction/amd", Gemm(196, 1024, 256, dtype="f16", constant=True)),
)


@dataclass(frozen=True)
class Case:
    """A space, what the model predicts of it in microseconds, and the lower ends of the predictions' intervals."""

    group: str
    space: Recorded
    us: np.ndarray
    ends: np.ndarray

    def started(self, start: str) -> Recorded:
        """The space as a search sees it that starts in this way. Other samplers see it as ``none`` does."""
        own = self.space.candidates
        order = np.argsort(self.us if start == "best" else self.ends, kind="stable")
        leading = {"best": order[:EXPECTED], "ends": order[:GUIDED]}.get(start, ())
        seen = Candidates(
            own.names,
            own.values,
            extents=own.extents,
            derived=own.derived,
            default=own.default,
            leading=[int(row) for row in leading],
            expected=self.us if start in ("bounds", "best") else None,
            error=SCHEDULES if start == "bounds" else None,
        )
        return replace(self.space, candidates=seen)


def published(folder: Path) -> Iterator[Case]:
    for path in paths_in(folder):
        if "_space_" in path.name:
            for space in spaces_of(load(path)):
                yield _case(path.name.split(".")[0], space)


def _case(group: str, space: Space) -> Case:
    target, family, kernel = target_of(space.device), FAMILIES[space.engine], kernel_of(space.gemm)
    assert target is not None
    assert target.device is not None
    problem, schedules = family.problem(kernel), [dict(key) for key in space.times]
    terms = predict(demand(kernel, target.device), target.device, space.facts(target.device).launch())
    found = [interval(space.engine, terms.row(k), target) for k in range(len(schedules))]
    us = predicted(space)
    table = Candidates(
        [p.name for p in family.params],
        np.array([[s[p.name] for p in family.params] for s in schedules]),
        extents=tuple(problem.numbers.values()),
        derived=derived_columns(family, schedules, problem, target.limits),
    )
    table.default = table.find(dict(family.default(problem, target.limits).numbers))
    seconds = np.array(list(space.times.values()))
    none = np.zeros(len(seconds))
    recorded = Recorded(f"{group} {space.layout} {space.gemm}", space.device, table, seconds, none, {}, {})
    return Case(group, recorded, us, np.array([us[k] if one is None else one[0] for k, one in enumerate(found)]))


def worse(case: Case, seed: int) -> Case:
    factors = np.exp(np.random.default_rng(seed).normal(0.0, NOISE, len(case.us)))
    return replace(case, us=case.us * factors, ends=case.ends * factors)


def made(times: int) -> Iterator[Case]:
    """Devices whose times are the predictions with random effects; what is not predicted is as slow as the slowest."""
    for device, engine, gemm in MADE:
        target, kernel = target_of(device), kernel_of(gemm)
        assert target is not None
        own = candidates(kernel, FAMILIES[engine], target)
        assert own.expected is not None
        logs = np.log(np.where(np.isfinite(own.expected), own.expected, np.nanmax(own.expected)))
        for seed, amount in itertools.product(range(times), AMOUNTS):
            seconds = np.exp(logs + amount * SCHEDULES * effects(own, np.random.default_rng(seed)))
            recorded = Recorded(f"{device} {gemm}", device, own, seconds, np.zeros(len(own)), {}, {})
            yield Case(f"made of {device} {engine} x{amount:g}", recorded, own.expected, own.expected)


@lru_cache(maxsize=1)
def cases(folder: Path, kind: str, times: int) -> tuple[Case, ...]:
    """The cases of a table. Each process reads them once."""
    if kind == "made":
        return tuple(made(times))
    found = tuple(published(folder))
    return found if kind == "published" else tuple(worse(case, seed) for seed, case in enumerate(found))


def searched(folder: Path, kind: str, times: int, number: int, start: str, seed: int) -> np.ndarray:
    """Fractions of the optimum [trials]."""
    case = cases(folder, kind, times)[number]
    sampler = start if start in OTHERS else "model"
    found = search(case.started(start), sampler, trials=min(TRIALS, len(case.us)), seed=seed).fractions
    return np.concatenate([found, np.ones(TRIALS - len(found))])


def compared(
    folder: Path, kind: str, times: int, starts: Sequence[str], seeds: int, jobs: int
) -> Mapping[tuple[str, str], np.ndarray]:
    """Fractions [searches, trials] by group of cases and start."""
    found = cases(folder, kind, times)
    wanted = [(start, n, seed) for start in starts for n in range(len(found)) for seed in range(seeds)]
    asked = [(folder, kind, times, n, start, seed) for start, n, seed in wanted]
    with ProcessPoolExecutor(jobs) as pool:
        curves = list(pool.map(searched, *zip(*asked, strict=True), chunksize=8))
    groups: dict[tuple[str, str], list[np.ndarray]] = defaultdict(list)
    for (start, n, _), curve in zip(wanted, curves, strict=True):
        groups[found[n].group, start].append(curve)
    return {key: np.array(own) for key, own in groups.items()}


def trials_to(curves: np.ndarray, near: float) -> float:
    """The geometric mean of the trials until a search is ``near`` the optimum; one that never is took all and half as many."""
    reached = curves >= near
    count = np.where(reached.any(1), reached.argmax(1) + 1, 1.5 * curves.shape[1])
    return float(np.exp(np.log(count).mean()))


def table(found: Mapping[tuple[str, str], np.ndarray]) -> str:
    head = [*(f"@{k}" for k in SHOWN), *(f"trials to {near:.0%}" for near in NEAR)]
    lines = [f"| space | start | searches | {' | '.join(head)} |", "|---" * (3 + len(head)) + "|"]
    for (group, start), curves in sorted(found.items(), key=lambda one: one[0][0]):
        means = [f"{np.exp(np.log(curves[:, k - 1]).mean()):.3f}" for k in SHOWN]
        costs = [f"{trials_to(curves, near):.2f}" for near in NEAR]
        lines.append(f"| {group} | {start} | {len(curves)} | {' | '.join(means + costs)} |")
    return "\n".join(lines)


def main() -> None:
    parser = parser_of("bench.tuning_lab_starts", __doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder with published measurements")
    parser.add_argument("--seeds", type=int, default=10, metavar="N", help="number of searches of each published space")
    parser.add_argument("--made", type=int, default=3, metavar="N", help="made devices of each space; 0: none")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="number of processes")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the tables to this file")
    options = parser.parse_args()
    asked = [("published", options.seeds, (*STARTS, *OTHERS)), ("worse", options.seeds, ("bounds", "best", "none"))]
    asked += [("made", 2, ("bounds", "best", "none"))] if options.made else []
    text = "\n\n".join(
        f"{kind}\n\n{table(compared(options.folder, kind, options.made, starts, seeds, options.jobs))}"
        for kind, seeds, starts in asked
    )
    print(text)
    if options.markdown:
        options.markdown.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
