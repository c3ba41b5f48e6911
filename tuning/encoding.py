"""Encodes points of a search space as features in [0, 1] for a cost model. No model is here.

A schedule's speed is smooth in the logarithm of a size, and jumps where a size does not divide the extent that it tiles,
because the last tile is then a special case. So a positive parameter that spans a factor of three becomes its logarithm,
the power of two in it, and whether it is a power of two; if the problem's sizes are known, also whether it divides them.
Other parameters are used as they are, and values that a family derives from a schedule are features too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from gpucomp.lazy_dataclass import dataclass

WIDE = 3.0  # a parameter whose largest value is at least this many times its smallest is a size, else a switch
MANY = 5  # levels from which on the power of two in a value is a feature of its own
LARGEST_POWER = 6  # higher powers are not told apart: alignment to more than 64 changes nothing
DIVIDED = 3  # the number of a problem's largest sizes that have a divisibility feature
SAME = 0.9999  # features with this correlation count as one
CHECKED = 20_000  # points on which features are compared


@dataclass(frozen=True)
class Encoding:
    """float32 [points, features] in [0, 1], and the features' names."""

    names: tuple[str, ...]
    matrix: np.ndarray


def encode(
    names: Sequence[str],
    values: np.ndarray,
    extents: Sequence[int] = (),
    derived: Mapping[str, np.ndarray] | None = None,
    categories: Collection[str] = (),
) -> Encoding:
    """Features of ``values`` int [points, parameters]. Constant and repeated features are dropped."""
    features: list[tuple[str, np.ndarray]] = []
    odd = np.zeros(len(values))
    for name, column in zip(names, values.T, strict=True):
        if name in categories:
            features += [(f"{name} is {v}", (column == v).astype(float)) for v in np.unique(column)]
            continue
        if not is_size(column):
            features.append((name, column.astype(float)))
            continue
        if not column.all():  # 0 means "none": an option that is off, or a parameter of another engine
            features.append((f"{name} is none", (column == 0).astype(float)))
            column = np.where(column > 0, column, np.median(column[column > 0]).astype(np.int64))
        power = np.log2((column & -column).astype(float))
        not_a_power = (column >> power.astype(np.int64)) > 1
        odd += not_a_power
        features.append((f"log2({name})", np.log2(column)))
        features.append((f"{name} is no power of 2", not_a_power.astype(float)))
        if len(np.unique(column)) >= MANY:
            features.append((f"power of 2 in {name}", np.minimum(power, LARGEST_POWER)))
        features += [(f"{name} divides {e}", (e % column == 0).astype(float)) for e in sorted(set(extents))[-DIVIDED:]]
    features.append(("a size is no power of 2", (odd > 0).astype(float)))
    features.append(("sizes that are no powers of 2", odd))
    for name, given in (derived or {}).items():
        features.append((name, compressed(given)))
    kept = distinct(features)
    matrix = np.stack([column for _, column in kept], 1) if kept else np.zeros((len(values), 0))
    return Encoding(tuple(name for name, _ in kept), matrix.astype(np.float32))


def is_size(column: np.ndarray) -> bool:
    """Whether ratios of the values mean more than their differences."""
    sizes = column[column != 0]
    return len(sizes) > 0 and sizes.min() > 0 and sizes.max() >= WIDE * sizes.min()


def compressed(column: np.ndarray) -> np.ndarray:
    """Logarithms if all values are positive. Unknown values become the median, infinite ones the largest."""
    column = np.asarray(column, float)
    known = np.isfinite(column)
    column = np.where(np.isposinf(column) & known.any(), column[known].max(initial=0.0), column)
    known = np.isfinite(column)
    if known.any() and column[known].min() > 0:
        column = np.log2(np.where(known, column, 1.0))
    return np.where(known, column, np.median(column[known]) if known.any() else 0.0)


def distinct(features: Sequence[tuple[str, np.ndarray]]) -> list[tuple[str, np.ndarray]]:
    """The features scaled to [0, 1], without constant ones and without linear copies of earlier ones."""
    kept: list[tuple[str, np.ndarray]] = []
    looks: list[np.ndarray] = []
    for name, column in features:
        if not len(column) or (span := np.ptp(column)) == 0:
            continue
        unit = (column - column.min()) / span
        step = max(len(unit) // CHECKED, 1)
        centred = unit[::step] - unit[::step].mean()
        norm = np.linalg.norm(centred)
        look = centred / norm if norm else centred
        if norm and any(abs(look @ other) > SAME for other in looks):
            continue
        kept.append((name, unit))
        looks.append(look)
    return kept


def farthest_first(x: np.ndarray, count: int) -> list[int]:
    """Up to ``count`` different rows of ``x`` [n, features]: the first, then always the row farthest from those chosen."""
    if not len(x):
        return []
    chosen = [0]
    distance = ((x - x[0]) ** 2).sum(1)
    while len(chosen) < count and distance.max() > 0:
        chosen.append(int(np.argmax(distance)))
        distance = np.minimum(distance, ((x - x[chosen[-1]]) ** 2).sum(1))
    return chosen
