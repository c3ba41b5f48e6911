"""Makes devices from recorded ones, and searches one with the records of the other: many pairs, not just the recorded few.

    python -m bench.tuning_lab_devices FILE.json.gz ... --output bench/results

A made device has the times of a file, with random changes to the effects of its parameters, pairs and triples of parameters on
the logarithm of a time: devices differ in what a cache or a bank costs rather than point by point. The result is
tuning_lab_devices.md. That devices differ by such sums is an assumption that favours a search which looks for sums, so a gain
here must show on the recorded pairs too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bench.options import parser_of
from gpucomp.tuning.prior import Prior
from gpucomp.tuning.recorded import Recorded, read
from gpucomp.tuning.replay import interval, search
from gpucomp.tuning.samplers import DEFAULT
from gpucomp.tuning.space import Candidates

HERE = Path(__file__).parent
ORDERS = (1, 2, 3)  # numbers of parameters in an effect
SHARES = (0.5, 0.33, 0.17)  # of the added effects: single values, pairs and triples
AMOUNTS = (0.4, 1.0)
REVERSED = 0.25  # times the amount: the probability that an effect changes its sign
BUDGETS = (16, 25, 50)

Change = Callable[[Recorded, float, np.random.Generator], Recorded]


def added(space: Recorded, amount: float, rng: np.random.Generator) -> Recorded:
    """Add random effects, ``amount`` times as large as the space's own; each parameter, pair and triple has another weight."""
    logs = np.log(space.seconds)
    changed = logs + amount * np.nanstd(logs) * effects(space.candidates, rng)
    return replace(space, seconds=np.exp(changed / np.hypot(1, amount)))


def effects(candidates: Candidates, rng: np.random.Generator) -> np.ndarray:
    """float [points]: a sum of random effects of values, pairs and triples, with mean 0 and standard deviation 1."""
    total = np.zeros(len(candidates))
    for order, share in zip(ORDERS, SHARES, strict=True):
        part = np.zeros(len(candidates))
        for cell in cells(candidates, order):
            part += rng.gamma(0.5) * unit(rng.standard_normal(int(cell.max()) + 1)[cell])
        total += np.sqrt(share) * unit(part)
    return unit(total)


def reweighted(space: Recorded, amount: float, rng: np.random.Generator) -> Recorded:
    """Multiply each of the space's own effects by a log-normal factor with deviation ``amount``; some change their sign."""
    ran = np.isfinite(space.seconds)
    logs = np.log(space.seconds)
    left = np.where(ran, logs - np.nanmean(logs), 0.0)
    total = np.zeros(len(logs))
    for order in ORDERS:
        for cell in cells(space.candidates, order):
            count = np.bincount(cell, ran)
            effect = np.bincount(cell, left)[cell] / (count[cell] + 1)
            left -= np.where(ran, effect, 0.0)
            sign = -1 if rng.random() < REVERSED * amount else 1
            total += sign * np.exp(amount * rng.standard_normal()) * effect
    total += np.exp(amount * rng.standard_normal()) * left
    return replace(space, seconds=np.where(ran, np.exp(total / total[ran].std() * np.nanstd(logs)), np.nan))


CHANGES: dict[str, Change] = {"effects added": added, "effects reweighted": reweighted}


def cells(candidates: Candidates, order: int) -> Iterator[np.ndarray]:
    """For each set of ``order`` varying parameters, int [points]: points with the same values of these have the same number."""
    varied = [j for j, levels in enumerate(candidates.levels) if len(levels) > 1]
    for chosen in itertools.combinations(varied, order):
        number = np.zeros(len(candidates), np.int64)
        for j in chosen:
            number = number * len(candidates.levels[j]) + candidates.ordinals[:, j]
        yield np.unique(number, return_inverse=True)[1].ravel()


def unit(x: np.ndarray) -> np.ndarray:
    """``x`` with mean 0 and standard deviation 1."""
    return (x - x.mean()) / (x.std() or 1.0)


@dataclass(frozen=True)
class Pair:
    """A device that is searched, and one whose records are known; ``sort`` says how they differ."""

    sort: str
    target: Recorded
    source: Recorded


def pairs(spaces: Sequence[Recorded], count: int) -> Iterator[Pair]:
    """``count`` pairs for each file, change and amount; the recorded and the made device are searched by turns."""
    for k, amount, (number, (sort, change)), space in itertools.product(
        range(count), AMOUNTS, enumerate(CHANGES.items()), spaces
    ):
        made = change(space, amount, np.random.default_rng((k, int(10 * amount), number, len(space.candidates))))
        target, source = (space, made) if k % 2 else (made, space)
        yield Pair(f"{sort}, {amount:g}", target, source)


def agreement(pair: Pair) -> float:
    """Rank correlation of the two devices' times, over the points that ran on both."""
    ran = np.isfinite(pair.target.seconds) & np.isfinite(pair.source.seconds)
    ranks = [space.seconds[ran].argsort().argsort() for space in (pair.target, pair.source)]
    return float(np.corrcoef(*ranks)[0, 1])


def searched(pair: Pair, seed: int) -> np.ndarray:
    """Fractions of the optimum [with and without records, budgets]."""
    prior = Prior.from_records(pair.target.candidates, [pair.source.results_for(pair.target)])
    found = [search(pair.target, DEFAULT, trials=BUDGETS[-1], seed=seed, prior=p).fractions for p in (prior, None)]
    return np.array(found)[:, [b - 1 for b in BUDGETS]]


def table(rows: Sequence[tuple[str, float, np.ndarray]]) -> list[str]:
    """Rows of a Markdown table from (sort, agreement, fractions [2, budgets]): the mean of each sort and of all."""
    head = [f"{b} {how}" for how in ("with", "without") for b in BUDGETS]
    lines = [f"| pairs | number | rank correlation | {' | '.join(head)} |", "|---" * (3 + len(head)) + "|"]
    for title in (*sorted({sort for sort, _, _ in rows}), "all"):
        own = [row for row in rows if title in (row[0], "all")]
        fractions = np.array([found.ravel() for _, _, found in own])
        ends = [interval(column) for column in fractions.T]
        shown = [f"{m:.3f} ({a:.2f}-{b:.2f})" for m, (a, b) in zip(fractions.mean(0), ends, strict=True)]
        lines.append(f"| {title} | {len(own)} | {np.mean([r for _, r, _ in own]):.2f} | {' | '.join(shown)} |")
    return lines


HEAD = (
    "# Searches with the records of a made device",
    "",
    f"Fraction of the optimum after {', '.join(map(str, BUDGETS))} measurements of the default search, with and without the",
    "records of another device; in brackets are 95% bootstrap intervals of the mean. `python -m bench.tuning_lab_devices` makes",
    "this page. One device of each pair is recorded, and the other is that device with random changes. `effects added` have 0.4",
    "or 1 times the spread of the file; `effects reweighted` have factors whose logarithms have the deviation 0.4 or 1.",
    "",
)


def main() -> None:
    parser = parser_of("bench.tuning_lab_devices", __doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a recorded space, as a Kernel Tuner cache")
    parser.add_argument(
        "--pairs",
        type=int,
        default=6,
        metavar="N",
        help="number of pairs for each file, kind of change and size of change",
    )
    parser.add_argument("--output", type=Path, default=HERE / "results", metavar="DIR", help="folder of the report")
    options = parser.parse_args()
    rows = []
    for number, pair in enumerate(pairs([read(file)[0] for file in options.files], options.pairs)):
        rows.append((pair.sort, agreement(pair), searched(pair, number)))
    text = [*HEAD, f"Files: {', '.join(file.name for file in options.files)}.", "", *table(rows)]
    (options.output / "tuning_lab_devices.md").write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
