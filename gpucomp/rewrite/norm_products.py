"""Norms of rows into the products that read them: two numbers a row are left, which scale and shift what was summed.

    (layer_norm(x) * g + d) w  =  rstd * (x w' - mean * u) + d w,   w'[k, n] = g[k] w[k, n],   u[n] = sum over k of w'[k, n]
    (rms_norm(x) * g + d) w    =  rrms * x w' + d w

where mean, rstd = 1 / sqrt(variance + epsilon) and rrms = 1 / sqrt(mean square + epsilon) are numbers of x's rows. What a
product's epilogue does with them costs nothing; the normalised rows are never stored; and the numbers themselves may be
left by the kernel that makes x, which has its rows at hand: then the norm is no launch any more.

x is longer than the row less its mean, by sqrt(1 + (mean / std)^2), and where x is rounded to be multiplied the product's
error grows by as much. Hence ``LEVELS``:

    fp16, bf16   where x and what the product reads are stored as narrow as that in any case, which ``Rounding.stored``
                 says: then nothing is rounded more than before, whatever its mean
    tf32         only an rms_norm, which has no mean to lose: ``centre.py`` makes that of a layer_norm where it can
    mixed        x is kept in f32, perhaps because it is past f16's range: norms stay
    the others   products do not round, and norms stay

``u`` sums the weights as they are multiplied, rounded: the mean falls out up to the errors of f32 sums.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from gpucomp import ops
from gpucomp.ir.graph import Constant, Graph, Input, Node, Op, Value, constant
from gpucomp.ir.types import BF16, F32
from gpucomp.rewrite.match import BINARY, UNARY, along_axis, is_constant
from gpucomp.rewrite.rule import substitute

NORMS = (ops.LayerNorm, ops.RMSNorm)
ELEMENTWISE = {*UNARY, *BINARY, ops.Where}
BLOCK = 256  # rows of weights that are widened to f64 at a time
SHARED = 1 << 20  # bytes above which weights that others read too are not kept in a second, scaled copy


@dataclass(frozen=True, slots=True)
class Rounding:
    """What the user lets numbers be rounded to: a precision and patterns of what stays f32, as ``gpucomp.precision`` has them.

    ``stored`` says of a graph's values that would be in memory between kernels whether the precision narrows them, or lets
    contractions round them. Of a graph that it does not know, none are.
    """

    precision: str = "fp32"
    keep_fp32: tuple[str, ...] = ()
    stored: Callable[[Graph], Mapping[Value, bool]] = lambda graph: {}


def _as_tf32(array: np.ndarray) -> np.ndarray:
    """f32 numbers of 10 bits of fraction: ties go away from zero."""
    bits = array.astype(np.float32).view(np.uint32)
    return ((bits + np.uint32(1 << 12)) & ~np.uint32((1 << 13) - 1)).view(np.float32)


ROUNDED: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "tf32": _as_tf32,
    "fp16": lambda array: array.astype(np.float16),
    "bf16": lambda array: array.astype(BF16.numpy),
}
HALF_STEP = {"tf32": 2.0**-11, "fp16": 2.0**-11, "bf16": 2.0**-8}  # by which normal numbers are rounded at most, relatively
LEVELS: Mapping[str, Collection[Op]] = {"tf32": (ops.RMSNorm,), "fp16": NORMS, "bf16": NORMS}


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """A product that reads ``norm * factor + shift``, the rows of the norm perhaps in another shape."""

    node: Node
    factor: np.ndarray  # f64, a number a column
    shift: np.ndarray


class Surroundings:
    """A graph's readers, its outputs, which nodes will share a kernel, and which of its values are rounded in any case."""

    def __init__(self, graph: Graph, rounding: Rounding) -> None:
        self.readers, self.outputs, self.kernels = graph.consumers(), set(graph.outputs), _kernels(graph)
        self._graph, self._rounding = graph, rounding
        self._stored: Mapping[Value, bool] | None = None

    def products(self, norm: Node) -> list[Product]:
        """All that reads ``norm``, where that is products by constants that its statistics can be folded into; else none."""
        x = norm.inputs[0]
        if norm.attrs["axis"] != x.type.rank - 1 or x.type.dtype is not F32 or x.type.size == 0:
            return []
        found = _products(norm[0], self.readers, self.outputs)
        if not all(self.may_copy(p.node.inputs[1]) for p in found) or not _pays(norm, self.kernels):
            return []
        return found if all(map(self._is_rounded, [x, *(p.node.inputs[0] for p in found)])) else []

    def may_copy(self, weight: Value) -> bool:
        return len(self.readers[weight]) == 1 or weight.type.nbytes <= SHARED

    def _is_rounded(self, value: Value) -> bool:
        """Whether what is in memory of ``value``, or of what it is a scale, a shift or another shape of, is rounded already."""
        if self._stored is None:  # not asked for where no norm stands in front of products
            self._stored = self._rounding.stored(self._graph)
        while value not in self._stored and value.op in (ops.Reshape, ops.Mul, ops.Add):
            others = [v for v in value.inputs if not is_constant(v)]
            if len(others) != 1:
                return False
            (value,) = others
        return self._stored.get(value, False)


def fold_norms(graph: Graph, rounding: Rounding) -> Graph:
    """``graph`` less the norms over last axes that only products by constants read, and of what a contraction makes."""
    if rounding.precision not in LEVELS:
        return graph
    around = Surroundings(graph, rounding)
    replaced: dict[Value, Value] = {}
    for norm in around.kernels:
        if norm.op in LEVELS[rounding.precision]:
            products = around.products(norm)
            found = {p.node[0]: value for p, value in _without_norm(norm, products, rounding.precision)}
            if len(found) == len(products):
                replaced |= found
    return substitute(graph, replaced) if replaced else graph


# whether -----------------------------------------------------------------------------------------------------


def _pays(norm: Node, kernels: Mapping[Node, Node]) -> bool:
    """Whether the kernel that makes the norm's operand has its rows at hand: it is a contraction, and they are its rows."""
    x = norm.inputs[0]
    anchor = kernels.get(x.node)
    if anchor is None or anchor.op not in (ops.MatMul, ops.Conv):
        return False
    columns_last = anchor.op is ops.MatMul or anchor.attrs.get("layout", "NCHW") == "NHWC"
    return columns_last and anchor.attrs.get("group", 1) == 1 and anchor.types[0].shape[-1] == x.shape[-1]


def _kernels(graph: Graph) -> dict[Node, Node]:
    """For each node that computes the one that starts its kernel, by partition's first rule: elementwise nodes join the
    kernel of the last of their operands of the same shape, and reshapes that of theirs."""
    kernels: dict[Node, Node] = {}
    position: dict[Node, int] = {}
    for node in graph.nodes():
        if node.op in (Input, Constant):
            continue
        position[node] = len(position)
        joined = [
            kernels[v.node]
            for v in node.inputs
            if v.node in kernels
            and (node.op is ops.Reshape or (node.op in ELEMENTWISE and v.shape == node.types[0].shape))
        ]
        kernels[node] = max(joined, key=position.__getitem__, default=node)
    return kernels


def is_kept(node: Node, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(node.name, p) or fnmatchcase(node.op.name, p) for p in patterns)


def _products(norm: Value, readers: Mapping[Value, list[Node]], outputs: set[Value]) -> list[Product]:
    """All that reads ``norm``, behind a scale and a shift of its columns; none where something else does as well."""
    width = norm.shape[-1]
    found: list[Product] = []
    stack = [(norm, np.ones(width), np.zeros(width))]
    while stack:
        value, factor, shift = stack.pop()
        if value in outputs:
            return []
        for node in readers.get(value, []):
            constants = [v.attrs["value"] for v in node.inputs[1:] if is_constant(v)]
            if node.op is ops.Reshape and node.types[0].shape[-1:] == (width,):
                stack.append((node[0], factor, shift))
                continue
            if len(constants) != 1:
                return []
            if node.op is ops.MatMul and constants[0].ndim == 2:
                found.append(Product(node, factor, shift))
                continue
            vector = along_axis(constants[0].astype(np.float64), value.shape, value.type.rank - 1)
            if vector is None or node.op not in (ops.Mul, ops.Add):
                return []
            scaled = (factor * vector, shift * vector) if node.op is ops.Mul else (factor, shift + vector)
            stack.append((node[0], *scaled))
    return found


# how ---------------------------------------------------------------------------------------------------------


def _without_norm(norm: Node, products: Sequence[Product], precision: str) -> Iterator[tuple[Product, Value]]:
    """Each product by what it reads before the norm; those left out whose weights the format has not."""
    x = norm.inputs[0]
    mean: Value | None = None
    if norm.op is ops.LayerNorm:
        mean, scale = ops.RowStatistics.node(x, name=norm.name, **norm.attrs).values
    else:
        scale = ops.InverseRMS(x, name=norm.name, **norm.attrs)
    for product in products:
        operand, name = product.node.inputs[0], product.node.name
        folded = _folded(product, precision)
        if folded is None:
            continue
        weights, sums, bias = folded

        def of_rows(value: Value, shape: tuple[int, ...], name: str = name) -> Value:
            return value if value.shape == shape else ops.Reshape(value, shape=shape, name=name)

        result = ops.MatMul(of_rows(x, operand.shape), constant(weights), name=name)
        rows = (*operand.shape[:-1], 1)
        if mean is not None:  # in front: the product's kernel comes after the statistics'
            result = ops.Add(ops.Mul(of_rows(mean, rows), constant(-sums), name=name), result, name=name)
        result = ops.Mul(of_rows(scale, rows), result, name=name)
        if product.shift.any():
            result = ops.Add(result, constant(bias), name=name)
        yield product, result


def _folded(product: Product, precision: str) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """The weights times ``factor``, rounded, the sums of their columns, and ``shift`` times the weights; all of them f32.

    ``None`` where one is infinite, or where a column is rounded by more than numbers of the format's normal range can be:
    its scaled weights are so small that f16 has but a few bits of them.
    """
    w = product.node.inputs[1].attrs["value"]
    weights = np.empty_like(w)  # in the same order of axes in memory
    sums, bias, squares, errors = np.zeros((4, w.shape[1]))
    with np.errstate(all="ignore"):
        for first in range(0, len(w), BLOCK):
            rows = slice(first, first + BLOCK)
            wide = w[rows].astype(np.float64)
            scaled = wide * product.factor[rows, None]
            weights[rows] = ROUNDED[precision](scaled)
            sums += weights[rows].sum(axis=0, dtype=np.float64)
            bias += product.shift[rows] @ wide
            squares += np.square(scaled).sum(axis=0)
            errors += np.square(weights[rows] - scaled).sum(axis=0)
        found = weights, sums.astype(np.float32), bias.astype(np.float32)
        fine = (errors <= HALF_STEP[precision] ** 2 * squares).all()
    return found if fine and all(np.isfinite(a).all() for a in found) else None
