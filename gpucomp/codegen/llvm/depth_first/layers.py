"""Kernels as layers that are fused on the CPU: which rows a layer's rows depend on, and the kernel of one row.

A layer is *pointwise* or a *window*. A pointwise layer is a contraction in which each row of the result depends on one
row of every image that is read (a 1x1 convolution with its bias, activation and residual). A window slides over the
image (a depthwise convolution or a pool). Images are ``[image, row, column, channel]`` in f32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from gpucomp.codegen.llvm.windows.emit import Windows, windows_of
from gpucomp.expr.core import Const, Expr, Load, Var, hole, index, literal, loads, substitute, transform, walk
from gpucomp.expr.simplify import coefficient, flatten, linear, simplify
from gpucomp.ir.types import F32, TensorType
from gpucomp.kernel import HANDED, Contraction, FusedLayer, FusedLayers, Kernel, Loops, Store, Window, is_kernel_of
from gpucomp.refusal import Refusal
from gpucomp.schedule.analytic import operations

IMAGE, ROW = 0, 1  # dimensions of an image
OPERATIONS_A_CYCLE = 40  # of one core with vectors of 64 bytes, roughly; it only compares fused layers with each other


@dataclass(frozen=True)
class Slides:
    """Row ``y`` of the result depends on the rows ``y * stride - pad + tap * dilation`` of the image that is read."""

    stride: int = 1
    taps: int = 1
    dilation: int = 1
    pad: int = 0

    def reach(self, rows: int) -> int:
        """Rows of the image that this many neighbouring rows of the result depend on."""
        return (rows - 1) * self.stride + (self.taps - 1) * self.dilation + 1


@dataclass(frozen=True, eq=False)
class LayerRows:
    """A kernel whose result is computed row by row.

    slides   over the previous layer's image; ``None`` for the first layer
    row      a pointwise layer's kernel for row 0 of image 0; ``None`` for a window, whose tasks are rows
    moves    for each parameter of a pointwise layer: elements from image to image, and from row to row
    """

    kernel: Kernel
    slides: Slides | None
    row: Kernel[Contraction] | None = None
    moves: tuple[tuple[int, int], ...] = ()

    @property
    def result(self) -> TensorType:
        return self.kernel.params[-1]

    @property
    def row_cycles(self) -> float:
        """About how many cycles one core takes for a row of the result."""
        return operations(self.kernel) / (self.result.shape[IMAGE] * self.result.shape[ROW]) / OPERATIONS_A_CYCLE


def layer_rows(kernel: Kernel, source: int | None) -> LayerRows | Refusal:
    """The rows of ``kernel``, or the reason why it cannot be computed row by row.

    It reads the previous layer's image as parameter ``source``; ``None`` for the first layer.
    """
    if kernel.outputs != 1 or len(kernel.stores) != 1 or any(t.dtype is not F32 for t in kernel.params):
        return Refusal("not one result, or not f32 throughout")
    images = [kernel.params[-1], *([] if source is None else [kernel.params[source]])]
    if any(len(t.shape) != 4 or 0 in t.shape for t in images):
        return Refusal("no image of rows")
    if is_kernel_of(kernel, Contraction):
        return _pointwise(kernel, source)
    if isinstance(kernel.body, (Loops, Window)):
        return _window(kernel, source)
    return Refusal("neither a contraction nor a window")


def rows_of_layer(layer: FusedLayer) -> LayerRows:
    """The rows of a fused layer. Raises ``ValueError`` for a kernel that cannot be computed row by row."""
    inputs = layer.params[: layer.kernel.inputs]
    found = layer_rows(layer.kernel, inputs.index(HANDED) if HANDED in inputs else None)
    if isinstance(found, Refusal):
        raise ValueError(f"a fused layer cannot be computed row by row: {found}")
    return found


def _axes_of_result(store: Store, axes: Sequence[Var]) -> tuple[Var | None, Var] | Refusal:
    """(image, row): the variables of the first two dimensions of the result."""
    image, row = store.index[IMAGE], store.index[ROW]
    if not isinstance(row, Var) or row not in axes:
        return Refusal("its rows are not an axis of their own")
    if isinstance(image, Const) and image.value == 0:
        return None, row
    if not isinstance(image, Var) or image not in axes:
        return Refusal("its images are not an axis of their own")
    return image, row


def _handed_rows(value: Expr, source: int, image: Var | None) -> set[Expr] | Refusal:
    """The rows at which ``value`` reads the image ``source``; refused if that is another image than the result's."""
    found = set()
    for ld in loads(value):
        if ld.source == source:
            if ld.index[IMAGE] is not (index(0) if image is None else image):
                return Refusal("it reads another image than it writes")
            found.add(ld.index[ROW])
    return found


# pointwise layers


@lru_cache(maxsize=256)
def _pointwise(kernel: Kernel[Contraction], source: int | None) -> LayerRows | Refusal:
    c = kernel.body
    if c.batch or c.math != "strict":
        return Refusal("a batch of products")
    (store,) = kernel.stores
    axes = _axes_of_result(store, c.m)
    if isinstance(axes, Refusal):
        return axes
    image, row = axes
    outer = [v for v in (image, row) if v is not None]
    rest = tuple(v for v in c.m if v not in outer)
    if math.prod(v.extent for v in rest) < 2:
        return Refusal("no columns")
    values = (c.a, c.b, store.value, *store.index)
    if any(isinstance(n, Load) for e in values for ld in loads(e) for i in ld.index for n in walk(i)):
        return Refusal("it gathers")
    if any(v in _outside_loads(e).free for e in (c.a, c.b, store.value) for v in outer):
        return Refusal("its rows differ by more than their position")
    moves = _moves(kernel, values[:3], store, image, row)
    if isinstance(moves, Refusal):
        return moves
    slides = None
    if source is not None:
        rows = _handed_rows(c.a, source, image)
        elsewhere = any(ld.source == source for e in (c.b, store.value) for ld in loads(e))
        if isinstance(rows, Refusal):
            return rows
        if len(rows) != 1 or elsewhere:
            return Refusal("it reads the previous layer's image outside the product")
        constant, terms = linear(rows.pop())
        if constant or set(terms) != {row} or terms[row] < 1:
            return Refusal("it reads other rows than it writes")
        slides = Slides(stride=terms[row])
    return LayerRows(kernel, slides, _row_kernel(kernel, rest, outer), moves)


def _outside_loads(expr: Expr) -> Expr:
    """``expr`` with holes for its loads, so that they are not simplified."""
    return transform(expr, lambda n: hole(f"load{n.source}", n.dtype) if isinstance(n, Load) else None)


def _moves(
    kernel: Kernel, values: Sequence[Expr], store: Store, image: Var | None, row: Var
) -> tuple[tuple[int, int], ...] | Refusal:
    places = [(ld.source, ld.index) for e in values for ld in loads(e)] + [(store.target, store.index)]
    moves: dict[int, tuple[int, int]] = {}
    for param, place in places:
        offset = flatten(place, kernel.params[param].shape)
        by_image = 0 if image is None else coefficient(offset, image)
        by_row = coefficient(offset, row)
        if by_image is None or by_row is None or moves.setdefault(param, (by_image, by_row)) != (by_image, by_row):
            return Refusal("its loads do not move by a constant from row to row")
    return tuple(moves.get(p, (0, 0)) for p in range(len(kernel.params)))


def _row_kernel(kernel: Kernel[Contraction], rest: tuple[Var, ...], outer: Sequence[Var]) -> Kernel[Contraction]:
    c = kernel.body
    first: dict[Expr, Expr] = {v: index(0) for v in outer}

    def at_first(expr: Expr) -> Expr:
        return simplify(substitute(expr, first))

    stores = tuple(Store(s.target, tuple(map(at_first, s.index)), at_first(s.value)) for s in kernel.stores)
    return replace(kernel, body=replace(c, m=rest, a=at_first(c.a), b=at_first(c.b)), stores=stores)


# windows


@lru_cache(maxsize=256)
def _window(kernel: Kernel, source: int | None) -> LayerRows | Refusal:
    found = windows_of(kernel)
    if isinstance(found, Refusal):
        return found
    y = found.sliding.y
    (store,) = kernel.stores
    axes = _axes_of_result(store, kernel.body.domain)
    if isinstance(axes, Refusal):
        return axes
    image, row = axes
    lead = () if image is None else (image,)
    if y.out is not row or found.sliding.lead != lead:
        return Refusal("its rows are not an axis of the window")
    if source is None:
        return LayerRows(kernel, None)
    weight = found.sliding.weight
    if any(ld.source == source for e in (weight, store.value) if e is not None for ld in _outer_loads(e, found)):
        return Refusal("it reads the previous layer's image outside the window")
    rows = _handed_rows(found.image, source, image)
    if isinstance(rows, Refusal):
        return rows
    if len(rows) != 1:
        return Refusal("it reads several rows at once")
    constant, terms = linear(rows.pop())
    if [(v.name, n) for v, n in terms.items() if isinstance(v, Var)] != [("place_y", 1)] or len(terms) != 1:
        return Refusal("the image is not stored row by row")
    return LayerRows(kernel, Slides(y.stride, y.taps, y.dilation, -constant))


def _outer_loads(value: Expr, found: Windows) -> list[Load]:
    """The loads of ``value`` outside the window's sum."""
    return list(loads(substitute(value, {found.sliding.total: literal(0, F32)})))


# fused layers


@dataclass(frozen=True)
class Stretch:
    """The rows that a layer, other than the last, keeps of its result for ``rows`` rows of the last one.

    count     rows kept; for row ``y`` of the last layer, the first one is row ``y * stride - before`` of its image
    fresh     how many of them are computed for the next ``rows`` rows; the others are kept
    """

    count: int
    fresh: int
    stride: int
    before: int
    row_floats: int


def stretches(layers: Sequence[LayerRows], rows: int) -> list[Stretch]:
    """The rows kept of each layer but the last, in order."""
    found: list[Stretch] = []
    count, stride, before = rows, 1, 0
    for layer, after in zip(reversed(layers[:-1]), reversed(layers[1:]), strict=True):
        assert after.slides is not None
        count = after.slides.reach(count)
        stride, before = stride * after.slides.stride, before * after.slides.stride + after.slides.pad
        floats = math.prod(layer.result.shape[ROW + 1 :])
        found.append(Stretch(count, min(count, rows * stride), stride, before, floats))
    return found[::-1]


def layer_rows_of(fused: FusedLayers) -> list[LayerRows]:
    return [rows_of_layer(layer) for layer in fused.layers]
