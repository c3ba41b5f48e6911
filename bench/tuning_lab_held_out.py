"""Alters recorded spaces. They are not new ones: the samplers were developed on the same files.

Alterations show what a search relies on: which configurations there are, the names and order of parameters and values, how far
apart times are, how smooth they are, and where configurations fail.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from gpucomp.tuning.recorded import Recorded
from gpucomp.tuning.space import Candidates

Alteration = Callable[[Recorded, np.random.Generator], Recorded]
KEPT = 0.6  # share of the configurations in a subset
NOISE = 0.1  # standard deviation of the noise that is added to log times
FAILING = 0.2  # share of the configurations that are made to fail
LEAST = 300  # configurations that must be left when a parameter is fixed


def rows_of(space: Recorded, rows: np.ndarray) -> Recorded:
    """``space`` with only these configurations."""
    whole = space.candidates
    some = Candidates(whole.names, whole.values[rows], extents=whole.extents, categories=whole.categories)
    return replace(space, candidates=some, seconds=space.seconds[rows], overhead=space.overhead[rows])


def subset(space: Recorded, rng: np.random.Generator) -> Recorded:
    """A random subset of the configurations."""
    count = len(space.candidates)
    return rows_of(space, np.sort(rng.permutation(count)[: max(1, round(KEPT * count))]))


def renamed(space: Recorded, rng: np.random.Generator) -> Recorded:
    """Parameters in another order and without names, values numbered 0, 1, ..., and the problem's sizes unknown."""
    order = rng.permutation(len(space.candidates.names))
    names = [f"p{j}" for j in range(len(order))]
    values = space.candidates.ordinals[:, order].astype(np.int64)
    return replace(space, candidates=Candidates(names, values), labels={})


def scrambled(space: Recorded, rng: np.random.Generator) -> Recorded:
    """The values of every parameter permuted, so that neighbouring values are no longer similar."""
    whole = space.candidates
    columns = [rng.permutation(levels)[own] for levels, own in zip(whole.levels, whole.ordinals.T, strict=True)]
    return replace(space, candidates=Candidates(whole.names, np.stack(columns, 1), extents=whole.extents))


def fixed(space: Recorded, rng: np.random.Generator) -> Recorded:
    """One parameter fixed at a value that leaves enough to search. There is at least one, see ``differs``."""
    choices = _fixable(space)
    return rows_of(space, choices[int(rng.integers(len(choices)))])


def _fixable(space: Recorded) -> list[np.ndarray]:
    """The rows of each parameter value that leaves enough to search."""
    whole = space.candidates
    return [
        rows
        for own, levels in zip(whole.ordinals.T, whole.levels, strict=True)
        for level in range(len(levels))
        if LEAST <= len(rows := np.flatnonzero(own == level)) < len(whole) and np.isfinite(space.seconds[rows]).any()
    ]


def raised(power: float) -> Alteration:
    """Ratios of times raised to this power."""
    return lambda space, rng: replace(space, seconds=space.optimum * (space.seconds / space.optimum) ** power)


def rougher(space: Recorded, rng: np.random.Generator) -> Recorded:
    """Times multiplied by a random factor for each configuration, the same in every measurement."""
    return replace(space, seconds=space.seconds * np.exp(NOISE * rng.standard_normal(len(space.seconds))))


def without_failures(space: Recorded, rng: np.random.Generator) -> Recorded:
    """Only the configurations that ran."""
    return rows_of(space, np.flatnonzero(np.isfinite(space.seconds)))


def failing(space: Recorded, rng: np.random.Generator) -> Recorded:
    """More failures: half of them anywhere, half where two parameters are largest together, as with scarce memory."""
    whole = space.candidates
    spans = np.maximum([len(levels) - 1 for levels in whole.levels], 1)
    j, k = rng.permutation(np.flatnonzero(spans > 1) if (spans > 1).sum() > 1 else np.arange(len(spans)))[:2]
    large = (whole.ordinals / spans)[:, [j, k]].sum(1) + 1e-6 * rng.random(len(whole))
    fails = rng.random(len(whole)) < FAILING / 2
    fails[np.argsort(large)[len(whole) - round(FAILING / 2 * len(whole)) :]] = True
    return replace(space, seconds=np.where(fails, math.nan, space.seconds))


RECORDED = "as recorded"
ALTERATIONS: Mapping[str, Alteration] = {
    RECORDED: lambda space, rng: space,
    f"{KEPT:.0%} of the configurations": subset,
    "renamed": renamed,
    "values scrambled": scrambled,
    "a parameter fixed": fixed,
    "times squared": raised(2.0),
    "square roots of times": raised(0.5),
    f"{NOISE:.0%} rougher": rougher,
    "failures dropped": without_failures,
    f"{FAILING:.0%} more failures": failing,
}


def differs(space: Recorded, name: str) -> bool:
    """Whether the alteration ``name`` changes anything in ``space``."""
    if ALTERATIONS[name] is fixed:
        return bool(_fixable(space))
    return ALTERATIONS[name] is not without_failures or bool(np.isnan(space.seconds).any())


def altered(space: Recorded, name: str, seed: int) -> Recorded:
    """``space`` with the alteration ``name`` of ``ALTERATIONS``; each seed gives another one."""
    number = list(ALTERATIONS).index(name)
    found = ALTERATIONS[name](space, np.random.default_rng((seed, number)))
    assert np.isfinite(found.seconds).any(), f"{space.name}, {name}: nothing is left that runs"
    return replace(found, name=f"{space.name} {name}")
