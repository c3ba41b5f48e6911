"""Recognises contractions that are convolutions, and those that Winograd's algorithms can compute."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gpucomp.errors import ScheduleError
from gpucomp.expr.core import Call, Cast, Const, Expr, Load, Select, Var, call, index, loads
from gpucomp.expr.simplify import linear, simplify
from gpucomp.ir.size import Size, is_one, is_zero, same
from gpucomp.ir.types import F32, DType
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.passes.pack_weights import packable
from gpucomp.refusal import Refusal

COMPUTED = "operand a is computed while it is loaded"
NO_IMAGE = "operand a does not read the pixels of an NHWC image"


@dataclass(frozen=True)
class Pixels:
    """``operand[(n, oh, ow), (r, s, c)] = image[n, oh * step + first + r * dilation, ..., c]``, zero outside the image.

    Pairs are (height, width).
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


def pixels_of(kernel: Kernel[Contraction]) -> Pixels | Refusal:
    """``a`` as the pixels of a convolution over an NHWC image, or why it is not."""
    body = kernel.body
    value, guards = uncast(body.a), []
    if isinstance(value, Select) and isinstance(value.otherwise, Const) and value.otherwise.value == 0:
        guards, value = conjuncts(value.condition), uncast(value.then)
    return pixels_read(kernel, value, guards)


def pixels_read(
    kernel: Kernel[Contraction], value: Expr, guards: Sequence[Expr], order: tuple[int, ...] = (0, 1, 2, 3)
) -> Pixels | Refusal:
    """``value``, read under ``guards``, as the pixels of a convolution, or why it is not.

    ``order``: the dimensions of the parameter that are images, rows, columns and channels. ``Pixels.image`` has this
    order.
    """
    body = kernel.body
    if not isinstance(value, Load) or len(kernel.params[value.source].shape) != 4:
        return Refusal(COMPUTED)
    n, h, w, c = (kernel.params[value.source].shape[d] for d in order)
    places = [value.index[d] for d in order]
    m, k = long_axes(body.m), long_axes(body.k)
    number, row, column, channel = (_position(linear(simplify(i)), m, k) for i in places)
    if body.batch or number is None or row is None or column is None or channel is None:
        return Refusal(NO_IMAGE)
    walk = [v for v in (number.axis, row.axis, column.axis) if v is not None]
    depth = [v for v in (row.tap, column.tap, channel.tap) if v is not None]
    if walk != list(m) or depth != list(k) or channel.axis or number.tap:
        return Refusal(f"{NO_IMAGE} in the order of its axes")
    if any(isinstance(number, Size) for p in (number, row, column, channel) for number in p.numbers):
        return Refusal("each run decides the window, the stride, the dilation or the padding")
    if number != _Position(number.axis, 1, None, 1, 0) or channel != _Position(None, 1, channel.tap, 1, 0):
        return Refusal("operand a reads only a part of the image")
    if not same(number.out, n) or not same(channel.taps, c):
        return Refusal("operand a reads only a part of the image")
    edges = [e for place, extent in ((places[1], h), (places[2], w)) for e in _edges(place, extent)]
    if any(_not_negative(g) not in edges for g in guards):
        return Refusal("operand a has a condition other than the edges of the image")
    return Pixels(
        value.source,
        value.dtype,
        (n, h, w, c),
        (row.out, column.out),
        (row.taps, column.taps),
        (row.step, column.step),
        (row.first, column.first),
        (row.dilation, column.dilation),
    )


def winograd_pixels(
    kernel: Kernel[Contraction],
    dtypes: Sequence[DType] = (F32,),
    steps: Sequence[int] = (1,),
    *,
    wide_filters: bool = False,
    empty: bool = False,
) -> Pixels | Refusal:
    """The pixels of a convolution that Winograd's algorithms can compute, or why ``kernel`` is not one.

    It is 3 x 3, with one of ``steps`` in both directions, constant filters and strict f32 sums. Pixels and filters have
    the same type, one of ``dtypes``. With ``wide_filters``, the filters may also be f32. With ``empty``, there may be none.
    """
    body = kernel.body
    if body.acc.dtype is not F32 or body.math != "strict":
        return Refusal("Winograd's algorithm is only for f32 that is not rounded: otherwise matrix units are faster")
    found = pixels_of(kernel)
    if isinstance(found, Refusal):
        return found
    filters = uncast(body.b).dtype
    if found.dtype not in dtypes or not (filters is found.dtype or (wide_filters and filters is F32)):
        known = " or ".join(map(str, dtypes))
        return Refusal(f"pixels and filters of {known} expected, found {found.dtype} and {filters}")
    even = found.steps[0] == found.steps[1]
    if found.window != (3, 3) or not even or found.steps[0] not in steps or found.dilations != (1, 1):
        known = " or ".join(map(str, steps))
        return Refusal(
            f"a window of 3 x 3, strides of {known} and no dilation expected, found a window of {_sides(found.window)}, "
            f"strides of {_sides(found.steps)}, dilations of {_sides(found.dilations)}"
        )
    if not packable(kernel, "b"):
        return Refusal("the filters are not constants, so they cannot be transformed when the model is compiled")
    if not empty and any(is_zero(v.extent) for v in (*body.m, *body.n, *body.k)):
        return Refusal("there is nothing to multiply")
    return found


def _sides(pair: tuple[int, int]) -> str:
    return f"{pair[0]} x {pair[1]}"


def winograd_sizes(kernel: Kernel[Contraction], form: Pixels) -> dict[str, int]:
    """The problem of a Winograd engine. ``first_y`` and ``first_x`` are the pixel of the first output's first tap."""
    body = kernel.body
    images, height, width, depth = form.image
    return {
        "images": images,
        "height": height,
        "width": width,
        "depth": depth,
        "out_y": form.out[0],
        "out_x": form.out[1],
        "first_y": form.first[0],
        "first_x": form.first[1],
        "n": math.prod(v.extent for v in body.n),
    }


def packed_filters(kernel: Kernel[Contraction], shape: tuple[int, ...], engine: str) -> int:
    """The parameter that holds ``b`` packed to ``shape``. Raises ``ScheduleError`` if the kernel is not packed."""
    body = kernel.body
    sources = {ld.source for ld in loads(body.b)}
    found = [k for k in sources if kernel.params[k].shape == shape]
    if len(sources) != 1 or not found:
        raise ScheduleError(
            f"{engine} reads constant filters of shape {shape}: pack the kernel for this engine first", code="GPC8001"
        )
    return found[0]


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
    def numbers(self) -> tuple[int, ...]:
        return self.step, self.dilation, self.first, self.taps

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


def long_axes(axes: Sequence[Var]) -> tuple[Var, ...]:
    return tuple(v for v in axes if not is_one(v.extent))


def uncast(value: Expr) -> Expr:
    return value.value if isinstance(value, Cast) else value


def conjuncts(condition: Expr) -> list[Expr]:
    """The conditions whose conjunction is ``condition``."""
    if isinstance(condition, Call) and condition.fn == "and":
        return [c for part in condition.args for c in conjuncts(part)]
    return [condition]


def _edges(place: Expr, extent: int) -> list[object]:
    """``0 <= place`` and ``place < extent``, in the form of ``_not_negative``."""
    return [_not_negative(call("le", index(0), place)), _not_negative(call("lt", place, extent))]


def _not_negative(condition: Expr) -> object:
    """A comparison as a linear form that is not negative if it holds; any other condition unchanged."""
    if not isinstance(condition, Call) or condition.fn not in {"lt", "le"}:
        return condition
    constant, terms = linear(call("sub", condition.args[1], condition.args[0]))
    constant -= int(condition.fn == "lt")
    return _formula(constant), frozenset((term, _formula(c)) for term, c in terms.items())


def _formula(size: object) -> object:
    """A size as what is equal if the formulas are; a number as it is."""
    return frozenset(size.terms.items()) if isinstance(size, Size) else size
