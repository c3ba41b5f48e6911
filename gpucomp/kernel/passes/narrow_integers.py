"""Stores integers between kernels in as few bytes as they need, so that quantized models use u8 and i8 in memory.

The frontend writes out the arithmetic of a quantized model: codes are widened to i32, zero points are subtracted, and
products are summed. This pass computes the range of each value and stores it exactly in a narrower type: a value in
[-119, 136] is stored as u8 with 119 added, and readers subtract 119. A contraction sums the bytes without the offset
and corrects the sum once:  sum (a + o) b  =  sum a b + o sum b,  where b is a constant. It can then use instructions
for bytes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpucomp.expr.core import (
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    call,
    cast,
    literal,
    load,
    loads,
    reduces,
    select,
    transform,
)
from gpucomp.expr.simplify import Interval, bounds
from gpucomp.ir.graph import Graph, Value, constant, constant_value
from gpucomp.ir.size import Size
from gpucomp.ir.types import I8, I16, I32, I64, U8, U16, DType, TensorType
from gpucomp.kernel import Contraction, Kernel, Rowwise, Store
from gpucomp.kernel.example import is_fixed
from gpucomp.kernel.passes.pack_weights import operand_elements
from gpucomp.kernel.pipeline import Setting
from gpucomp.kernel.splice import with_constant, without_results
from gpucomp.kernel.step import HostStep, KernelStep, Step

STORED = (I8, U8, I16, U16)


@dataclass(frozen=True)
class Narrow:
    """Memory holds ``value - offset`` as ``dtype``."""

    dtype: DType
    offset: int = 0


SIGNED = frozenset({"mfma", "wmma", "sdot4", "mali"})  # features of devices that multiply only signed bytes


def narrow(steps: Sequence[Step], at: Setting) -> list[Step]:
    """Stores integers between kernels, and constants that contractions read, in narrow types.

    Takes  kernels that write i32 or i64 values with known bounds
    Gives  the same kernels, which write u8, i8, u16 or i16 minus an offset: ``u8(value - low)``. Readers add the
           offset; a contraction sums the bytes and corrects its sum. A result that copies another one is not stored
    Leaves the model's outputs, values that the host reads, and values without known bounds
    """
    values = _values(steps, at.graph, signed=bool(SIGNED & at.target.features))
    made: dict[Value, tuple[Value, Narrow] | None] = {}
    narrowed = [_narrowed(step, values, made) if isinstance(step, KernelStep) else step for step in steps]
    once = _stored_once(narrowed, frozenset(at.graph.outputs))
    return [_corrected(step) if isinstance(step, KernelStep) else step for step in once]


def fitting(interval: Interval, *, signed: bool = False, shifted: bool = True) -> Narrow | None:
    """The narrowest way to store integers of ``interval``; ``None`` if they need more than two bytes.

    ``signed``: bytes are ``i8``, never ``u8``. ``shifted``: an offset may be used to fit them in a byte.
    """
    low, high = interval
    if not (math.isfinite(low) and math.isfinite(high)):
        return None
    if signed and high - low <= 255:
        inside = low >= -128 and high <= 127
        return Narrow(I8, 0 if inside else int(low) + 128)
    for dtype in STORED:
        info = np.iinfo(dtype.numpy)
        if info.min <= low and high <= info.max:
            if shifted and dtype.nbytes > 1 and high - low <= 255:
                return Narrow(U8, int(low))
            return Narrow(dtype)
    return Narrow(U8, int(low)) if shifted and high - low <= 255 else None


def _values(steps: Sequence[Step], graph: Graph, *, signed: bool) -> dict[Value, Narrow]:
    """The integer values that only kernels write and read, each with the form that its range allows."""
    ranges: dict[Value, Interval] = {}
    excluded = set(graph.outputs) | {
        v for step in steps if isinstance(step, HostStep) for v in (*step.inputs, *step.outputs)
    }
    for step in steps:
        if isinstance(step, HostStep):
            continue
        for store in step.kernel.stores:
            value = step.outputs[store.target - step.kernel.inputs]
            if value.type.dtype in (I32, I64) and value not in excluded:
                low, high = bounds(store.value)
                before = ranges.get(value, (low, high))
                ranges[value] = min(before[0], low), max(before[1], high)
    return {
        value: found for value, interval in ranges.items() if (found := fitting(interval, signed=signed)) is not None
    }


def _narrowed(
    step: KernelStep, values: Mapping[Value, Narrow], made: dict[Value, tuple[Value, Narrow] | None]
) -> KernelStep:
    """``step`` with loads and stores of narrow integers."""
    kernel = step.kernel
    operands = _multiplied(kernel)
    inputs, forms = list(step.inputs), dict[int, Narrow]()
    for k, value in enumerate(step.inputs):
        if value in values:
            forms[k] = values[value]
        elif k in operands and (found := _constant(value, made)) is not None:
            inputs[k], forms[k] = found
    for k, value in enumerate(step.outputs):
        if value in values:
            forms[kernel.inputs + k] = values[value]
    if not forms:
        return step
    params = [TensorType(forms[k].dtype, p.shape) if k in forms else p for k, p in enumerate(kernel.params)]

    def element(expr: Expr) -> Expr:
        def change(node: Expr) -> Expr | None:
            if not isinstance(node, Load) or node.source not in forms:
                return None
            form = forms[node.source]
            wide = cast(load(node.source, node.index, form.dtype), node.dtype)
            return call("add", wide, form.offset) if form.offset else wide

        return transform(expr, change)

    stores = []
    for store in kernel.stores:
        wide, index = element(store.value), tuple(map(element, store.index))
        form = forms.get(store.target)
        stores.append(Store(store.target, index, _stored(wide, form) if form else wide))
    changed = replace(kernel, params=tuple(params), body=kernel.body.mapped(element), stores=tuple(stores))
    return replace(step, kernel=changed, inputs=tuple(inputs))


def _stored_once(steps: Sequence[Step], kept: frozenset[Value]) -> list[Step]:
    """``steps`` without results that are copies of another result of the same kernel.

    After narrowing, a code and the same code widened are stored in the same form. Results stay if they are in ``kept``,
    if a host step reads them, or if several kernels write them.
    """
    kept |= {v for step in steps if isinstance(step, HostStep) for v in step.inputs}
    kept |= {v for v, n in Counter(v for step in steps for v in step.outputs).items() if n > 1}
    same: dict[Value, Value] = {}
    result: list[Step] = []
    for step in steps:
        if isinstance(step, HostStep):
            result.append(step)
            continue
        if not same.keys().isdisjoint(step.inputs):
            step = replace(step, inputs=tuple(same.get(v, v) for v in step.inputs))
        kernel = step.kernel
        if kernel.outputs > 1 and not isinstance(kernel.body, Rowwise):
            first: dict[tuple[object, ...], Value] = {}
            for value in sorted(step.outputs, key=lambda v: v not in kept):
                target = kernel.inputs + step.outputs.index(value)
                stores = [(s.index, s.value) for s in kernel.stores if s.target == target]
                original = first.setdefault((kernel.params[target], *stores), value)
                if value not in kept and original is not value:
                    same[value] = original
            step = step if same.keys().isdisjoint(step.outputs) else without_results(step, same.keys())
        result.append(step)
    return result


def _multiplied(kernel: Kernel) -> set[int]:
    """The parameters that a contraction or a depthwise convolution of integers multiplies."""
    if isinstance(kernel.body, Contraction):
        return {ld.source for e in (kernel.body.a, kernel.body.b) for ld in loads(e)}
    sums = [r for store in kernel.stores for r in reduces(store.value) if r.op == "sum" and r.dtype is I32]
    return {ld.source for r in sums if isinstance(r.body, Call) and r.body.fn == "mul" for ld in loads(r.body)}


def _stored(value: Expr, form: Narrow) -> Expr:
    """``value`` in ``form``. If it is a narrow value widened and shifted by the same offset, it is stored unchanged."""
    if form.offset:
        match value:
            case Call(fn="add", args=(inner, Const(value=offset))) if offset == form.offset:
                value = inner
            case _:
                value = call("sub", value, form.offset)
    if isinstance(value, Cast) and value.value.dtype is form.dtype:
        return value.value
    return cast(value, form.dtype)


def _constant(value: Value, made: dict[Value, tuple[Value, Narrow] | None]) -> tuple[Value, Narrow] | None:
    """A constant in fewer bytes. It has no offset because sums can be corrected for one operand only."""
    if value not in made:
        array = constant_value(value)
        made[value] = None
        if array is not None and array.size and value.type.dtype in (I32, I64):
            form = fitting((int(array.min()), int(array.max())), shifted=False)
            if form is not None:
                made[value] = constant(array.astype(form.dtype.numpy)), form
    return made[value]


# corrected sums ---------------------------------------------------------------------------------------------


def _corrected(step: KernelStep) -> KernelStep:
    """A contraction of bytes with an offset, changed to sum the bytes without it and to correct the sum."""
    kernel = step.kernel
    body = kernel.body
    if not isinstance(body, Contraction) or body.acc.dtype is not I32:
        return step
    found = split_offset(body.a)
    if found is None:
        return step
    a, offset = found
    sources = {ld.source for ld in loads(body.b)}
    if not offset or not sources or not sources <= kernel.constants or not is_fixed(body, "b"):
        return step
    axes = [*body.batch, *body.k, *body.n]
    if any(isinstance(axis.extent, Size) for axis in axes):
        return step
    elements = operand_elements(body.b, axes, [constant_value(v) for v in step.inputs])
    depth = tuple(range(len(body.batch), len(body.batch) + len(body.k)))
    sums = elements.astype(np.int64).sum(axis=depth) * offset
    correction = constant(sums.astype(np.int32))  # modulo 2^32, like the sum itself
    total = body.acc + load(kernel.inputs, (*body.batch, *body.n), I32)
    shifted = with_constant(step, correction)
    stores = tuple(
        Store(s.target, s.index, transform(s.value, lambda node: total if node is body.acc else None))
        for s in shifted.kernel.stores
    )
    return replace(shifted, kernel=replace(shifted.kernel, body=replace(body, a=a), stores=stores))


def split_offset(expr: Expr) -> tuple[Expr, int] | None:
    """``expr`` as (narrow element widened to i32, constant offset); ``None`` if it is not of this form.

    The element is a load or a computed byte. If it is padded, the offset is subtracted from the padding.
    """
    match expr:
        case Cast(value=value) if expr.dtype is I32 and _is_narrow(value):
            return expr, 0
        case Call(fn="add", args=(Cast(value=value) as element, Const(value=offset))) if expr.dtype is I32:
            return (element, int(offset)) if _is_narrow(value) else None
        case Select(condition=condition, then=then, otherwise=Const(value=padding)):
            found = split_offset(then)
            if found is None:
                return None
            inner, offset = found
            return select(condition, inner, literal(int(padding) - offset, I32)), offset
    return None


def _is_narrow(value: Expr) -> bool:
    return isinstance(value, Load) or value.dtype in (I8, U8)


def as_byte(value: Expr) -> Expr | None:
    """``value`` as i8 or u8 if it is such a byte widened, else ``None``. Padding may be any number of the byte's type.

    ``select(inside, i32(x[i]), 119)`` of u8  ->  ``select(inside, x[i], 119)``
    """
    match value:
        case Cast(value=inner) if inner.dtype in (I8, U8):
            return inner
        case Select(condition=condition, then=then, otherwise=Const(value=other)):
            byte = as_byte(then)
            if byte is None:
                return None
            info = np.iinfo(byte.dtype.numpy)
            return select(condition, byte, literal(int(other), byte.dtype)) if info.min <= other <= info.max else None
    return None
