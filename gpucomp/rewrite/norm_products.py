"""Folds RMS norms of rows into the matrix products that read them. One factor per row remains, which scales the sums.

    (rms_norm(x) * g + d) w  =  rrms * x w' + d w,   w'[k, n] = t g[k] w[k, n],   rrms = 1 / (t sqrt(mean square + epsilon))

t is a power of two that moves w' towards the middle of f16's range (``LARGEST``). In wider formats it is 1.

The product's epilogue multiplies by rrms at no cost, and the normalised rows are never stored. The kernel that computes
x has whole rows at hand and can store rrms too; the norm then needs no launch of its own.

Nothing is rounded more than before. A norm is folded only if x and the product's operand are rounded alike, and if the
scaled weights are no less exact than the weights were. Operands are rounded in memory (fp16, bf16) or by the product
(tf32; scaled weights stay f32, because not every product rounds them). Other precisions fold no norms: ``mixed`` keeps
x in f32, perhaps because x exceeds f16's range, and the rest do not round products. Sums of x w' are larger than sums
of normalised rows by the magnitude of x; past f32's range they are infinite, as any sum is.

Norms that subtract a mean are not folded. The mean would have to be removed from the product as the difference of two
sums. If it is many standard deviations large (the extreme is a row of equal numbers), the rounding errors of the sums
hide the rest of the row. Removing means from the weights, or from the kernel that computes x, would instead spread the
rounding errors of the largest channel over all others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from gpucomp import ops
from gpucomp.ir.graph import Graph, Node, Value, constant
from gpucomp.ir.size import Size, below, same, same_shape
from gpucomp.ir.types import F32
from gpucomp.lazy_dataclass import dataclass
from gpucomp.rewrite.match import along_axis, is_constant
from gpucomp.rewrite.rounding import HALF_STEP, ROUNDED, Rounding, Storage, Stored
from gpucomp.rewrite.rule import substitute
from gpucomp.rewrite.scale import BLOCK, may_copy

LARGEST = {"fp16": 14}  # exponent of the largest scaled weight: f16 overflows at 2^16 and has all bits down to 2^-14
MOST = 100  # largest exponent of t: f32 holds 2^100 and 2^-100
MADE = (ops.InverseRMS, ops.Reshape, ops.Mul, ops.Add)  # operators that replace a norm, besides products


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """A matrix product that reads ``norm * factor + shift``, whose rows may have been reshaped."""

    node: Node
    factor: np.ndarray  # f64, one number per column
    shift: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """The weights of a product times ``factor`` and t, rounded, and ``shift`` times the weights. Both are f32."""

    scaled: np.ndarray
    bias: np.ndarray


def fold_norms(graph: Graph, rounding: Rounding, storage: Storage) -> Graph:
    """``graph`` without the RMS norms that can be folded.

    Their operand is the result of a contraction, they normalise its last axis, and only products by constants read
    them.
    """
    if rounding.precision not in ROUNDED or any(map(rounding.keeps, MADE)):
        return graph
    readers, outputs = graph.consumers(), set(graph.outputs)
    foldable: dict[Node, list[Product]] = {}
    for norm in graph.nodes():
        if norm.op is ops.RMSNorm and _is_of_rows(norm) and (products := _products(norm, readers, outputs)):
            foldable[norm] = products
    stored = storage.stored(graph, rounding) if foldable else {}
    replaced: dict[Value, Value] = {}
    for norm, products in foldable.items():
        if not _has_rows_at_hand(norm, stored) or not all(_is_rounded(p.node.inputs[0], stored) for p in products):
            continue
        times = _times(products, rounding.precision)
        weights = [_folded(product, times, rounding.precision) for product in products]
        known = [w for w in weights if w is not None]
        if len(known) == len(products):
            replaced |= _without(norm, products, known, times)
    return substitute(graph, replaced) if replaced else graph


# whether -----------------------------------------------------------------------------------------------------


def _is_of_rows(norm: Node) -> bool:
    x = norm.inputs[0].type
    return norm.attrs["axis"] == x.rank - 1 and x.dtype is F32 and below(0, x.size)


def _products(norm: Node, readers: Mapping[Value, list[Node]], outputs: set[Value]) -> list[Product]:
    """The products that read ``norm``, perhaps with its columns scaled and shifted; none if anything else reads it."""
    width = norm.types[0].shape[-1]
    if isinstance(width, Size):
        return []
    products: list[Product] = []
    stack = [(norm[0], np.ones(width), np.zeros(width))]
    while stack:
        value, factor, shift = stack.pop()
        if value in outputs:
            return []
        for node in readers.get(value, []):
            constants = [v.attrs["value"] for v in node.inputs[1:] if is_constant(v)]
            if node.op is ops.Reshape and same_shape(node.types[0].shape[-1:], (width,)):
                stack.append((node[0], factor, shift))
                continue
            if len(constants) != 1:
                return []
            if node.op is ops.MatMul and constants[0].ndim == 2:
                if not may_copy(node.inputs[1], lambda weight: len(readers[weight])):
                    return []
                products.append(Product(node, factor, shift))
                continue
            vector = along_axis(constants[0].astype(np.float64), value.shape, value.type.rank - 1)
            if vector is None or node.op not in (ops.Mul, ops.Add):
                return []
            scaled = (factor * vector, shift * vector) if node.op is ops.Mul else (factor, shift + vector)
            stack.append((node[0], *scaled))
    return products


def _has_rows_at_hand(norm: Node, stored: Mapping[Value, Stored]) -> bool:
    """Whether a contraction stores the norm's operand, rounded, and the rows of the two are the same."""
    x = norm.inputs[0]
    while x not in stored and x.op is ops.Reshape:
        (x,) = x.inputs
    if x not in stored or not stored[x].rounded:
        return False
    made = stored[x].by
    columns_last = made.op is ops.MatMul or (made.op is ops.Conv and made.attrs.get("layout", "NCHW") == "NHWC")
    rows_are_whole = same(made.types[0].shape[-1], norm.types[0].shape[-1])
    return columns_last and made.attrs.get("group", 1) == 1 and rows_are_whole


def _is_rounded(operand: Value, stored: Mapping[Value, Stored]) -> bool:
    """Whether a product's operand, or the value that it scales, shifts or reshapes, is rounded in memory."""
    while operand not in stored and operand.op in (ops.Reshape, ops.Mul, ops.Add):
        others = [v for v in operand.inputs if not is_constant(v)]
        if len(others) != 1:
            return False
        (operand,) = others
    return operand in stored and stored[operand].rounded


def _times(products: list[Product], precision: str) -> float:
    """The power of two that gives the largest scaled weight of any product the exponent ``LARGEST``."""
    if precision not in LARGEST:
        return 1.0
    with np.errstate(all="ignore"):
        largest = max(
            float(np.max(np.abs(p.node.inputs[1].attrs["value"]).max(axis=1, initial=0) * np.abs(p.factor)))
            for p in products
        )
    if not 0 < largest < math.inf:
        return 1.0
    return math.ldexp(1.0, min(MOST, max(-MOST, LARGEST[precision] - math.frexp(largest)[1])))


def _folded(product: Product, times: float, precision: str) -> Weights | None:
    """The scaled weights; ``None`` if a number is infinite, or if scaled weights lose more precision than weights would.

    The squared errors of each row (a channel) and of each column are summed. Their limit is the largest rounding error
    of normal numbers and twice the rounding error of the weights without their scale: f16 has few bits for small
    numbers.
    """
    w = product.node.inputs[1].attrs["value"]
    scaled = np.empty_like(w)  # keeps the order of axes in memory
    bias, lost, allowed = np.zeros((3, w.shape[1]))
    rounded = ROUNDED[precision]
    with np.errstate(all="ignore"):
        for first in range(0, len(w), BLOCK):
            rows = slice(first, first + BLOCK)
            wide, factor = w[rows].astype(np.float64), times * product.factor[rows, None]
            scaled[rows] = rounded(wide * factor)
            bias += product.shift[rows] @ wide
            errors = np.square(scaled[rows] - wide * factor)
            allowances = np.square(HALF_STEP[precision] * wide * factor) + np.square(
                2 * factor * (rounded(wide) - wide)
            )
            if not (errors.sum(axis=1) <= allowances.sum(axis=1)).all():
                return None
            lost += errors.sum(axis=0)
            allowed += allowances.sum(axis=0)
        folded = Weights(scaled, bias.astype(np.float32))
    is_number = np.isfinite(folded.scaled).all() and np.isfinite(folded.bias).all()
    return folded if is_number and (lost <= allowed).all() else None


# how ---------------------------------------------------------------------------------------------------------


def _without(norm: Node, products: list[Product], weights: list[Weights], times: float) -> dict[Value, Value]:
    """The replacements of the results of the products that read ``norm``."""
    x = norm.inputs[0]
    scale = ops.InverseRMS(x, name=norm.name, times=1 / times, **norm.attrs)
    replaced: dict[Value, Value] = {}
    for product, known in zip(products, weights, strict=True):
        operand, name = product.node.inputs[0], product.node.name
        result = ops.MatMul(_as_shape(x, operand.shape, name), constant(known.scaled), name=name)
        result = ops.Mul(_as_shape(scale, (*operand.shape[:-1], 1), name), result, name=name)
        if product.shift.any():
            result = ops.Add(result, constant(known.bias), name=name)
        replaced[product.node[0]] = result
    return replaced


def _as_shape(value: Value, shape: tuple[int, ...], name: str) -> Value:
    return value if same_shape(value.shape, shape) else ops.Reshape(value, shape=shape, name=name)
