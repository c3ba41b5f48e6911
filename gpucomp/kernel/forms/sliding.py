"""Recognises kernels with a sliding window over an image: depthwise convolutions and pools."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpucomp.expr.core import (
    Call,
    Expr,
    Load,
    Reduce,
    Var,
    hole,
    loads,
    reduces,
    substitute,
    transform,
    var,
    walk,
)
from gpucomp.expr.simplify import coefficient, flatten, from_linear, linear, simplify
from gpucomp.ir.size import Size, is_one, is_zero, same
from gpucomp.ir.types import F32, F64, I64, DType
from gpucomp.kernel import Kernel, Loops, Store, Window
from gpucomp.kernel.forms.access import Rewriter, is_aligned, vector_loads
from gpucomp.kernel.forms.lanes import LANE, lanes_of
from gpucomp.kernel.forms.operand import ACCESS_BYTES, WIDTHS
from gpucomp.refusal import Refusal


@dataclass(frozen=True)
class Slide:
    """One axis of the window: ``place = out * stride + tap * dilation``. An axis of extent 1 is None."""

    out: Var | None
    tap: Var | None
    stride: int = 1
    dilation: int = 1

    @property
    def outputs(self) -> Any:
        """Their number; it can be a size that each run decides, unlike ``taps``."""
        return self.out.extent if self.out else 1

    @property
    def taps(self) -> int:
        return self.tap.extent if self.tap else 1

    def reach(self, outputs: Any) -> Any:
        """The extent, in places, that ``outputs`` adjacent outputs read."""
        return (outputs - 1) * self.stride + (self.taps - 1) * self.dilation + 1

    def uses(self, outputs: int) -> dict[int, list[tuple[int, int]]]:
        """For each place that ``outputs`` adjacent outputs read, from the first: its (output, tap) pairs."""
        found: dict[int, list[tuple[int, int]]] = {}
        for i in range(outputs):
            for tap in range(self.taps):
                found.setdefault(i * self.stride + tap * self.dilation, []).append((i, tap))
        return found


@dataclass(frozen=True)
class Sliding:
    """``op over taps of image(lead, place of y, place of x, channel) * weight(taps, channel)``; a pool has no weight.

    ``total`` is the expression in the stores that computes it.
    """

    lead: tuple[Var, ...]
    y: Slide
    x: Slide
    channel: Var
    total: Expr
    op: str
    image: Expr
    weight: Expr | None = None


def depthwise_of(kernel: Kernel, dtypes: tuple[DType, ...] = (F32, F64)) -> Sliding | Refusal:
    """The parts of a depthwise convolution with channels last and sums in ``dtypes``, or why ``kernel`` is not one."""
    body = kernel.body
    if not isinstance(body, Loops) or not body.domain:
        return Refusal("it has no loop over channels")
    totals = list(dict.fromkeys(r for s in kernel.stores for r in reduces(s.value)))
    if len(totals) != 1 or totals[0].op != "sum" or totals[0].dtype not in dtypes:
        return Refusal(f"it is not one sum in {' or '.join(map(str, dtypes))}")
    (total,) = totals
    channel, outputs = body.domain[-1], frozenset(body.domain[:-1])
    match total.body:
        case Call(fn="mul", args=(a, b)) if loads(a) and loads(b):
            pass
        case _:
            return Refusal("it is not a sum of products of two arrays")
    if a.free & outputs and b.free & outputs:
        return Refusal("both factors depend on the output's position")
    image, weight = (a, b) if a.free & outputs else (b, a)
    if channel not in weight.free:
        return Refusal("the innermost axis is not a channel of both factors")
    if any(_steps(kernel, weight, channel)):
        return Refusal("channels are not contiguous in memory, or several outputs share a channel")
    return _sliding(kernel, body.domain, total.axes, image, total, "sum", weight)


def pooling_of(kernel: Kernel) -> Sliding | Refusal:
    """The parts of a pooling window with channels last, or why ``kernel`` has none."""
    body = kernel.body
    if not isinstance(body, Window) or not body.domain:
        return Refusal("it has no window over channels")
    return _sliding(kernel, body.domain, body.window, body.value, body.acc, body.op, None)


def _sliding(
    kernel: Kernel,
    domain: tuple[Var, ...],
    taps: tuple[Var, ...],
    image: Expr,
    total: Expr,
    op: str,
    weight: Expr | None,
) -> Sliding | Refusal:
    channel = domain[-1]
    if any(isinstance(n, Reduce) for e in (image, weight) if e for n in walk(e)) or not 1 <= len(taps) <= 2:
        return Refusal("a window of one or two axes is expected")
    if any(is_zero(r.extent) for r in (*taps, *domain)):
        return Refusal("there is nothing to compute")
    if any(isinstance(r.extent, Size) for r in (*taps, channel)):
        return Refusal("the window or the number of channels differs from run to run")
    if channel not in image.free:
        return Refusal("the innermost axis is not a channel of the image")
    if any(_steps(kernel, image, channel)):
        return Refusal("channels are not contiguous in memory, or several outputs share a channel")
    slides = [slide_of(image, tap, domain) for tap in taps]
    if any(s is None or s.out is channel for s in slides):
        return Refusal("the window does not slide over one axis of the image")
    y, x = slides if len(slides) == 2 else (Slide(None, None), slides[0])
    assert y is not None
    assert x is not None
    used = [s.out for s in (y, x) if s.out]
    if len(set(used)) != len(used):
        return Refusal("two window axes slide along one output axis")
    for slide, name in ((y, "place_y"), (x, "place_x")):
        place = var(name, slide.reach(slide.outputs))
        image = moved_to(image, slide, place)
        if {v for v in (slide.out, slide.tap) if v} & image.free:
            return Refusal("the image is not read at the sum of an output's place and a tap's place")
    lead = tuple(v for v in domain[:-1] if v not in used)
    return Sliding(lead, y, x, channel, total, op, image, weight)


def _steps(kernel: Kernel, value: Expr, channel: Var) -> list[Load]:
    """The loads that depend on the channel and are not contiguous along it."""
    moving = [ld for ld in loads(value) if channel in ld.free]
    steps = [coefficient(flatten(ld.index, kernel.params[ld.source].shape), channel) for ld in moving]
    return [ld for ld, step in zip(moving, steps, strict=True) if not is_one(step)]


def slide_of(image: Expr, tap: Var, domain: Sequence[Var]) -> Slide | None:
    """How the window moves along the axis of the image that ``tap`` moves along; ``None`` if no output moves along it alone."""
    for ld in loads(image):
        for position in ld.index:
            if tap not in position.free:
                continue
            _, terms = linear(position)
            along = [v for v in domain if v in terms]
            if tap not in terms or len(along) > 1:
                return None
            stride, dilation = (terms[along[0]] if along else 0), terms[tap]
            if isinstance(stride, Size) or isinstance(dilation, Size) or stride < 0 or dilation < 1:
                return None
            common = math.gcd(stride, dilation)
            return Slide(along[0] if along else None, tap, stride // common or 1, dilation // common)
    return None


def moved_to(image: Expr, slide: Slide, place: Var) -> Expr:
    """``image`` with every ``k * (out * stride + tap * dilation)`` replaced by ``k * place``."""
    known: dict[Expr, Expr] = {}
    for node in walk(image):
        if node.dtype is not I64 or slide.tap is None or isinstance(node, Load):
            continue
        constant, terms = linear(node)
        by_out, by_tap = (terms.pop(slide.out, 0) if slide.out else 0), terms.pop(slide.tap, 0)
        factor, rest = divmod(by_tap, slide.dilation)
        apart = any({slide.out, slide.tap} & t.free for t in terms)
        if is_zero(factor) or not is_zero(rest) or apart:
            continue
        if slide.out is None or same(by_out, factor * slide.stride):
            known[node] = from_linear(constant, {**terms, place: factor})
    return transform(image, lambda node: None, known)


def access_width(kernel: Kernel, found: Sliding) -> int:
    """Channels per access that all loads and stores along the channels allow."""
    channels = found.channel.extent
    for width in WIDTHS:
        if channels % width:
            continue
        quotient, lane = var("quotient", channels // width), var(LANE, width)
        rewriter = Rewriter(kernel.params, lanes_of(found.channel, quotient, lane, width))
        stores = stores_of(kernel, found)
        values = [simplify(rewriter(e)) for e in (*_factors(found), *(s.value for s in stores))]
        moving = {n for e in values for n in walk(e) if isinstance(n, Load) and lane in n.free}
        wide = {f.load for f in vector_loads(values, lane, width)}
        aligned = all(is_aligned(rewriter.offset(s.target, s.index), lane, width) for s in stores)
        if moving <= wide and aligned and all(width * n.dtype.nbytes <= ACCESS_BYTES for n in moving):
            return width
    return 1


def _factors(found: Sliding) -> list[Expr]:
    return [found.image] if found.weight is None else [found.image, found.weight]


def stores_of(kernel: Kernel, found: Sliding) -> list[Store]:
    acc = hole("acc", found.total.dtype)
    return [Store(s.target, s.index, substitute(s.value, {found.total: acc})) for s in kernel.stores]
