"""Tables of the schedules of a space. All schedules are checked at once, not one by one. No search lives here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from gpucomp.device.limits import Limits
from gpucomp.device.lockstep import lockstep
from gpucomp.kernel.sizes import Sizes
from gpucomp.schedule.space import Family

Choices = Mapping[str, Sequence[int]]


def grid(family: Family, choices: Choices | None = None) -> np.ndarray:
    """Every combination of a family's parameters, int64 [points, parameters], the last parameter fastest.

    ``choices`` replaces the values of the parameters that it names.
    """
    chosen = {p.name: p.choices for p in family.params} | dict(choices or {})
    axes = [np.array(chosen[p.name], np.int64) for p in family.params]
    return np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], 1).reshape(-1, len(axes))


def size(family: Family, choices: Choices | None = None) -> int:
    """The number of rows of ``grid``."""
    return math.prod(len((choices or {}).get(p.name, p.choices)) for p in family.params)


def columns(family: Family, values: np.ndarray) -> dict[str, np.ndarray]:
    """The columns of a table of schedules, by parameter name."""
    return {p.name: values[:, j] for j, p in enumerate(family.params)}


def legal(family: Family, problem: Sizes, limits: Limits, choices: Choices | None = None) -> np.ndarray:
    """Every schedule that can run, int64 [points, parameters], in the order of ``grid``. Same as ``Family.legal``."""
    table = grid(family, choices)
    good = np.zeros(len(table), bool)
    for rows, is_legal in lockstep(
        lambda point: next(iter(family.objections(family.schedule(point), problem, limits)), None) is None,
        columns(family, table),
    ):
        good[rows] = is_legal
    return table[good]
