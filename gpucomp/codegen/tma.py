"""How the tensor memory accelerator can load a contraction's operand: as a matrix, or as the pixels of a convolution.

An operand has to be a plain load, contiguous in depth, with every other stride a multiple of 16 bytes: the accelerator
neither computes nor reads unaligned rows. What it cannot load is refused with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gpucomp.expr.core import Call, Cast, Const, Expr, Load, Select, Var, call, index
from gpucomp.expr.simplify import flatten, linear, simplify
from gpucomp.ir.types import DType
from gpucomp.kernel import Contraction, Kernel
from gpucomp.runtime.tensor_map import CORNERS, OFFSETS, TensorMap

ALIGNMENT = 16  # bytes
COMPUTED, NO_IMAGE = "a is computed while it is loaded", "a is not the pixels of an NHWC image"
MAX_STEP = 8  # pixels from one to the next of an im2col load


@dataclass(frozen=True)
class Matrix:
    """``operand[batch, span, k]`` lies at ``offset + batch * batch_stride + span * stride + k``, in elements."""

    source: int
    dtype: DType
    offset: int
    depth: int
    span: int
    stride: int
    batch: int  # 1 where all batches read the same
    batch_stride: int


@dataclass(frozen=True)
class Pixels:
    """``operand[(n, oh, ow), (r, s, c)] = image[n, oh * step + first + r * dilation, ..., c]``, zero outside.

    Pairs are of heights and widths.
    """

    source: int
    dtype: DType
    image: tuple[int, int, int, int]
    out: tuple[int, int]
    window: tuple[int, int]
    steps: tuple[int, int]
    first: tuple[int, int]
    dilations: tuple[int, int]

    @property
    def taps(self) -> int:
        return math.prod(self.window)


Form = Matrix | Pixels


def matrix_of(kernel: Kernel, operand: str) -> Matrix | str:
    """The operand (``a`` or ``b``) as a matrix, or why it is none."""
    body = kernel.body
    assert isinstance(body, Contraction)
    value = _uncast(body.a if operand == "a" else body.b)
    if not isinstance(value, Load):
        return f"{operand} is computed while it is loaded"
    constant, terms = linear(flatten(value.index, kernel.params[value.source].shape))
    span_axes = body.m if operand == "a" else body.n
    groups = [_joined(axes, terms) for axes in (body.batch, span_axes, body.k)]
    mine = {v for axes in (body.batch, span_axes, body.k) for v in axes}
    if any(group is None for group in groups) or any(t not in mine for t in terms):
        return f"{operand} does not lie in memory as a matrix"
    (batch, batch_stride), (span, stride), (depth, step) = (g or (1, 0) for g in groups)  # none is None here
    if depth > 1 and step != 1:
        return f"{operand} is not contiguous in depth"
    size, rounded = value.dtype.nbytes, -(-depth * value.dtype.nbytes // ALIGNMENT) * ALIGNMENT
    stride = stride if span > 1 else rounded // size
    batch_stride = batch_stride if batch > 1 else 0
    if stride <= 0 or batch_stride < 0:
        return f"{operand} is read with a stride that is not positive"
    if any(n * size % ALIGNMENT for n in (constant, stride, batch_stride)):
        return f"rows of {operand} do not start at multiples of {ALIGNMENT} bytes"
    return Matrix(value.source, value.dtype, constant, depth, span, stride, batch if batch_stride else 1, batch_stride)


def pixels_of(kernel: Kernel) -> Pixels | str:
    """``a`` as the pixels of a convolution over an NHWC image, or why it is none."""
    body = kernel.body
    assert isinstance(body, Contraction)
    value, guards = _uncast(body.a), []
    if isinstance(value, Select) and isinstance(value.otherwise, Const) and value.otherwise.value == 0:
        guards, value = _conjuncts(value.condition), _uncast(value.then)
    if not isinstance(value, Load) or len(kernel.params[value.source].shape) != 4:
        return COMPUTED
    n, h, w, c = kernel.params[value.source].shape
    m, k = _long(body.m), _long(body.k)
    number, row, column, channel = (_position(linear(simplify(i)), m, k) for i in value.index)
    if body.batch or number is None or row is None or column is None or channel is None:
        return NO_IMAGE
    walk = [v for v in (number.axis, row.axis, column.axis) if v is not None]
    depth = [v for v in (row.tap, column.tap, channel.tap) if v is not None]
    if walk != list(m) or depth != list(k) or channel.axis or number.tap:
        return f"{NO_IMAGE}, in order"
    if number != _Position(number.axis, 1, None, 1, 0) or channel != _Position(None, 1, channel.tap, 1, 0):
        return "a reads a part of an image"
    if number.out != n or channel.taps != c:
        return "a reads a part of an image"
    edges = [e for place, extent in ((value.index[1], h), (value.index[2], w)) for e in _edges(place, extent)]
    if any(_not_negative(g) not in edges for g in guards):
        return "a has a condition that is no edge of the image"
    if c * value.dtype.nbytes % ALIGNMENT:
        return f"{c} channels of {value.dtype} are no multiple of {ALIGNMENT} bytes"
    found = Pixels(
        value.source, value.dtype, (n, h, w, c), (row.out, column.out), (row.taps, column.taps),
        (row.step, column.step), (row.first, column.first), (row.dilation, column.dilation),
    )  # fmt: skip
    if any(not 1 <= s <= MAX_STEP for s in found.steps) or min(found.dilations) < 1:
        return f"steps of {found.steps} pixels, one load walks by 1 to {MAX_STEP}"
    if any((t - 1) * d not in OFFSETS for t, d in zip(found.window, found.dilations, strict=True)):
        return f"a window of {found.window} taps, {found.dilations} pixels apart, is too large for one load"
    if any(corner not in CORNERS for corner in (*found.first, *_last(found))):
        return f"the image's edges are moved by more than {CORNERS[-1]} pixels"
    return found


def form_of_a(kernel: Kernel) -> Form | str:
    """How ``a`` is loaded, or why it cannot be."""
    body = kernel.body
    assert isinstance(body, Contraction)
    matrix = matrix_of(kernel, "a")
    if isinstance(matrix, Matrix):
        return matrix
    pixels = pixels_of(kernel)
    if isinstance(pixels, Pixels) or not pixels.startswith((COMPUTED, NO_IMAGE)):
        return pixels
    return pixels if len(_long(body.k)) > 1 else matrix


def map_of_a(form: Form, dtype: str, rows: int, depth: int) -> TensorMap:
    """``rows`` rows, ``depth`` elements deep: 128 bytes, swizzled."""
    if isinstance(form, Matrix):
        return _map_of_matrix(form, dtype, rows, depth)
    n, h, w, c = form.image
    size = form.dtype.nbytes
    return TensorMap(
        form.source, dtype, (c, w, h, n), (c * size, w * c * size, h * w * c * size),
        element_strides=(1, form.steps[1], form.steps[0], 1), swizzle=128, channels=depth, pixels=rows,
        lower=form.first[::-1], upper=_last(form)[::-1],
    )  # fmt: skip


def map_of_b(form: Matrix, dtype: str, rows: int, depth: int, taps: int) -> TensorMap:
    """As ``map_of_a``; with ``taps``, depth within a tap is an axis of its own, and ends where the tap's channels do."""
    if taps == 1:
        return _map_of_matrix(form, dtype, rows, depth)
    size, channels = form.dtype.nbytes, form.depth // taps
    return TensorMap(
        form.source, dtype, (channels, taps, form.span), (channels * size, form.stride * size), (depth, 1, rows),
        swizzle=128, offset=form.offset * size,
    )  # fmt: skip


def _map_of_matrix(form: Matrix, dtype: str, rows: int, depth: int) -> TensorMap:
    size, has_batch = form.dtype.nbytes, form.batch > 1
    return TensorMap(
        form.source,
        dtype,
        (form.depth, form.span, form.batch)[: 2 + has_batch],
        (form.stride * size, form.batch_stride * size)[: 1 + has_batch],
        (depth, rows, 1)[: 2 + has_batch],
        swizzle=128,
        offset=form.offset * size,
    )


# ---- reading expressions ----


@dataclass(frozen=True)
class _Position:
    """``axis * step + first + tap * dilation`` along one side of an image."""

    axis: Var | None
    step: int
    tap: Var | None
    dilation: int
    first: int

    @property
    def out(self) -> int:
        return self.axis.extent if self.axis else 1

    @property
    def taps(self) -> int:
        return self.tap.extent if self.tap else 1


def _position(form: tuple[int, dict[Expr, int]], m: Sequence[Var], k: Sequence[Var]) -> _Position | None:
    first, terms = form
    axes, taps = [t for t in terms if t in m], [t for t in terms if t in k]
    if len(axes) > 1 or len(taps) > 1 or len(axes) + len(taps) < len(terms):
        return None
    axis, tap = (next((v for v in found if isinstance(v, Var)), None) for found in (axes, taps))
    return _Position(axis, terms[axis] if axis else 1, tap, terms[tap] if tap else 1, first)


def _last(form: Pixels) -> tuple[int, int]:
    """The last pixel that the first tap reads, as an offset from the image's last."""
    height, width = (
        first + (out - 1) * step - (extent - 1)
        for first, out, step, extent in zip(form.first, form.out, form.steps, form.image[1:3], strict=True)
    )
    return height, width


def _long(axes: Sequence[Var]) -> tuple[Var, ...]:
    return tuple(v for v in axes if v.extent > 1)


def _uncast(value: Expr) -> Expr:
    return value.value if isinstance(value, Cast) else value


def _conjuncts(condition: Expr) -> list[Expr]:
    if isinstance(condition, Call) and condition.fn == "and":
        return [c for part in condition.args for c in _conjuncts(part)]
    return [condition]


def _edges(place: Expr, extent: int) -> list[object]:
    """``0 <= place`` and ``place < extent``, as ``_not_negative`` writes them."""
    return [_not_negative(call("le", index(0), place)), _not_negative(call("lt", place, extent))]


def _not_negative(condition: Expr) -> object:
    """A comparison as the linear form that it says is not negative; the condition itself when it is none."""
    if not isinstance(condition, Call) or condition.fn not in {"lt", "le"}:
        return condition
    constant, terms = linear(call("sub", condition.args[1], condition.args[0]))
    return constant - (condition.fn == "lt"), frozenset(terms.items())


def _joined(axes: Sequence[Var], terms: dict[Expr, int]) -> tuple[int, int] | None:
    """The axes as one of (extent, stride), when each walks on where the ones inside it end."""
    extent, stride = 1, 0
    for axis in reversed(_long(axes)):
        step = terms.get(axis, 0)
        if extent > 1 and step != stride * extent:
            return None
        stride = stride if extent > 1 else step
        extent *= axis.extent
    return extent, stride
