"""``draw(seed)``: a random valid model, with inputs and the outputs that the judges give. The same for a seed always."""

from __future__ import annotations

import numpy as np

from tests.fuzz import control, elementwise, learned, lists, microsoft, motifs, movement, neural, quantized, rare  # noqa: F401
from tests.fuzz.draft import (
    ALL,
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    FLOATS,
    I8,
    I32,
    I64,
    LARGEST,
    OPSETS,
    U8,
    UNSIGNED,
    Draft,
    Drawn,
)
from tests.fuzz.kinds import KINDS

MAINS = (F32, F32, F32, F32, F32, F16, F64, BF16)
LONG = 0.004  # of the models: they take a minute's worth of others
SHAPES = ("image", "rows", "matrix", "vector", "scalar", "volume")


def _shape(d: Draft, kind: str) -> tuple[int, ...]:
    match kind:
        case "image":
            if d.largest > LARGEST:
                return d.one((1, 1, 2)), d.one((3, 16, 17, 32, 48)), d.number(9, 24), d.number(7, 20)
            return d.one((1, 1, 2)), d.one((1, 2, 3, 4, 6, 8, 16)), d.number(1, 9), d.number(2, 9)
        case "volume":
            return d.one((1, 2)), d.number(1, 4), d.number(1, 4), d.number(2, 4), d.number(2, 5)
        case "rows":
            return d.extent(), d.extent(), d.extent(0)
        case "matrix":
            return d.extent(), d.extent(0)
        case "vector":
            return (d.extent(),)
    return ()


def _input(d: Draft, dtype: np.dtype, shape: tuple[int, ...]) -> None:
    if dtype == BOOL:
        d.input(d.rng.random(shape) < 0.5)
    elif dtype in FLOATS:
        d.input(d.rng.uniform(-1, 1, shape).astype(dtype))
    else:
        d.input(d.rng.integers(0 if dtype in UNSIGNED else -9, 10, shape).astype(dtype))


def draw(seed: int, most: int = 18) -> Drawn | None:
    """A model of 1 to about ``most`` nodes; ``None`` where the judges used none of what was drawn."""
    rng = np.random.default_rng([0x6675, seed])
    d = Draft(rng, opset=OPSETS[int(rng.integers(len(OPSETS)))], main=MAINS[int(rng.integers(len(MAINS)))])
    d.ml_opset = d.one((3, 5))
    if d.chance(0.12):
        d.largest *= 20
        most = 6
    long = d.chance(LONG)
    for kind in d.some(SHAPES)[:3]:
        _input(d, d.main, _shape(d, kind))
    if d.chance(0.35):
        others = (I64, I32, U8, I8, BOOL, F32, F64, F16, *ALL)
        _input(d, d.one(others), _shape(d, d.one(SHAPES)))
    kinds = [KINDS[name] for name in sorted(KINDS)]  # whatever was imported first
    weights = np.array([kind.weight for kind in kinds])
    if d.chance(0.5):  # a model of its own taste: some kinds often, others never
        weights *= rng.choice([0, 1, 4], len(kinds))
        if not weights.any():
            weights[:] = 1
    steps, tries = min(d.number(1, most), d.number(1, most)), 0  # rather a small one: more of them, and easier to read
    if long:
        steps = d.number(150, 300)
    while len(d.nodes) < steps and tries < 4 * steps:
        tries += 1
        kinds[int(rng.choice(len(kinds), p=weights / weights.sum()))].function(d)
    return d.finish()
