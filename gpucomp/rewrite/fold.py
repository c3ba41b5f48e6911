"""Constant folding: a node whose operands are all constants becomes a constant, computed by its numpy reference.

``GPUCOMP_FOLD_LIMIT`` (in bytes), ``GROWTH`` and ``WORK_LIMIT`` limit it. A node stays if its reference raises.
"""

from __future__ import annotations

import numpy as np

from gpucomp import config, ops
from gpucomp.ir.graph import Node, Value, constant
from gpucomp.ops.interpreter import work
from gpucomp.rewrite.match import row_major
from gpucomp.rewrite.rule import Uses, rule

WORK_LIMIT = 1 << 28  # as ``interpreter.work`` counts
GROWTH = 8  # a large result may have this many times the bytes of its operands: int4 weights may become f32
SMALL_RESULT = 64 << 20  # bytes: a result up to this size may be larger than its operands by any factor
SMALL = 1 << 16  # bytes: a result up to this size is never wasteful


@rule()
def fold(node: Node, uses: Uses) -> tuple[Value, ...] | None:
    """f(c1, c2, ...)  ->  a constant, unless that is large and only repeats or duplicates stored numbers"""
    if not node.inputs or any(v.op is not ops.Constant for v in node.inputs) or any(t.has_sizes for t in node.types):
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
        return None  # the reference contradicts its type rule: the tests of operators report that
    return tuple(constant(_owned(a, node)) for a in arrays)


def _is_wasteful(node: Node, size: int, uses: Uses) -> bool:
    """Whether the folded constant would repeat elements, or store shared weights in a second order.

    That costs memory. Left in the graph, the node is an index map, which is free.
    """
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
