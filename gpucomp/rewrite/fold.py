"""Constant folding: a node whose operands are all constants becomes one, computed by its numpy reference.

Bounded: by ``GPUCOMP_FOLD_LIMIT`` in bytes, by ``GROWTH`` and by ``WORK_LIMIT``. What a reference refuses stays.
"""

from __future__ import annotations

import numpy as np

from gpucomp import config, ops
from gpucomp.ir.graph import Node, Value, constant
from gpucomp.ops.interpreter import work
from gpucomp.rewrite.match import row_major
from gpucomp.rewrite.rule import Uses, rule

WORK_LIMIT = 1 << 28  # as ``interpreter.work`` counts
GROWTH = 8  # times what a node reads: int4 weights made f32 are allowed
SMALL_RESULT = 64 << 20  # bytes of a result that may be any times what it is made of
SMALL = 1 << 16  # bytes that may be repeated, or kept twice, without a thought


@rule()
def fold(node: Node, uses: Uses) -> tuple[Value, ...] | None:
    """f(c1, c2, ...)  ->  the constant it is, unless that is large and only repeats or duplicates stored numbers"""
    if not node.inputs or any(v.op is not ops.Constant for v in node.inputs):
        return None
    size = sum(t.nbytes for t in node.types)
    if size > config.current().fold_limit or work(node) > WORK_LIMIT or _is_wasteful(node, size, uses):
        return None
    try:
        with np.errstate(all="ignore"):
            result = node.op.reference(*(v.attrs["value"] for v in node.inputs), **node.attrs)
    except (ArithmeticError, ValueError, IndexError, MemoryError):
        return None
    arrays = [np.asarray(r) for r in (result if isinstance(result, tuple) else (result,))]
    expected = [(t.dtype.numpy, t.shape) for t in node.types]
    if [(a.dtype, a.shape) for a in arrays] != expected:
        return None  # a reference that breaks its type rule is for the tests of operators to report
    return tuple(constant(_owned(a, node)) for a in arrays)


def _is_wasteful(node: Node, size: int, uses: Uses) -> bool:
    """Repeating a constant costs memory and an index map is free; so does a second order of shared weights."""
    if size <= SMALL:
        return False
    if size > max(SMALL_RESULT, GROWTH * sum(v.type.nbytes for v in node.inputs)):
        return True
    if node.op in (ops.Expand, ops.Tile):
        return size > node.inputs[0].type.nbytes
    return node.op is ops.Transpose and uses(node.inputs[0]) > 1


def _owned(array: np.ndarray, node: Node) -> np.ndarray:
    """``array`` in row-major order. Only a Reshape shares the memory of its operand."""
    if array.base is not None and node.op is not ops.Reshape:
        return row_major(array)
    return np.asarray(array, order="C")


RULES = (fold,)
