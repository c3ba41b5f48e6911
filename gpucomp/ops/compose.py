"""Functions that are composed of several operators because that is faster than a single one. No operators are here."""

from __future__ import annotations

import numpy as np

from gpucomp.ir.graph import Value, constant
from gpucomp.ops.elementwise import Equal, Where
from gpucomp.ops.indexing import GatherElements
from gpucomp.ops.movement import Reshape
from gpucomp.ops.reduction import Rank, ReduceMax


def top_k(x: Value, *, k: int, axis: int, largest: bool = True) -> tuple[Value, Value]:
    """The two results of ``ops.TopK``: every element is ranked once, then the ranks below ``k`` are looked up."""
    shape = x.shape
    n = shape[axis]
    tail = (1,) * (len(shape) - 1 - axis)
    ranks = Reshape(Rank(x, axis=axis, largest=largest), shape=(*shape[:axis], 1, *shape[axis:]))
    first_ranks = constant(np.arange(k, dtype=np.int64).reshape(k, 1, *tail))
    places = constant(np.arange(n, dtype=np.int64).reshape(n, *tail))
    hits = Where(Equal(ranks, first_ranks), places, constant(np.array(0, np.int64)))
    indices = ReduceMax(hits, axes=(axis + 1,), keepdims=False)
    return GatherElements(x, indices, axis=axis), indices
