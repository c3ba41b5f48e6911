"""Lowers the precision where the user allows it: 16-bit storage between kernels, tensor-core arithmetic in kernels.

Kernels still compute in f32. What changes is how their operands and results are rounded:

    fp32     nothing: every operation is IEEE f32 (the default)
    tf32     contractions may round their operands to tf32 (10 bits of fraction)
    3xtf32   contractions may split each operand into two tf32 numbers: f32's accuracy on tensor cores
    fp16     values between kernels, and the weights of contractions, are stored as f16; sums are f32
    bf16     the same with bf16: f32's range, 7 bits of fraction
    mixed    f16 where contractions read, f32 everywhere else: norms, softmax and residual sums keep f32

The bf16 instructions of CPUs (AMX, AVX512-BF16) treat denormal operands and sums as zero.

The model's inputs and outputs keep their types. A constant that does not fit in f16 stays f32, and so does every value
that it can take out of f16's range: a mask of -3.4e38 would become -inf, and a fully masked row would be NaN. A matrix
product that reads such a value multiplies in f32.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

import numpy as np

from gpucomp import ops
from gpucomp.device.target import Target
from gpucomp.errors import UsageError, quote
from gpucomp.expr.core import Call, Cast, Const, Expr, Load, Reduce, Select, cast, load, loads, transform, walk
from gpucomp.ir.graph import Graph, Value, constant, constant_value
from gpucomp.ir.precision import PRECISIONS
from gpucomp.ir.size import at_most
from gpucomp.ir.types import BF16, F16, F32, DType, TensorType
from gpucomp.kernel import Attention, Contraction, Kernel, Math, Rowwise, Scan, Scatter, Store, Window
from gpucomp.kernel.grouping import Policy
from gpucomp.kernel.partition import partition
from gpucomp.kernel.pipeline import Setting
from gpucomp.kernel.step import HostStep, KernelStep, Step
from gpucomp.lazy_dataclass import dataclass
from gpucomp.rewrite.rounding import Rounding, Stored

NARROW: Mapping[str, DType] = {"fp16": F16, "bf16": BF16, "mixed": F16}
MATH: Mapping[str, Math] = {"tf32": "tf32", "3xtf32": "3xtf32"}
LARGE = 1 << 16  # from this number of elements, constants are narrowed even if no contraction reads them: embeddings


def require(precision: str, features: frozenset[str], target: str) -> None:
    """Raise ``UsageError`` if ``precision`` is unknown, or if the target does not support it."""
    if precision not in PRECISIONS:
        raise UsageError(f"precision {quote(precision)}: {', '.join(PRECISIONS)} expected", code="GPC2011")
    if precision in MATH and "mma_sm80" not in features:
        raise UsageError(
            f"precision {precision} needs the tensor cores of sm_80 or newer, {target} has none; "
            "fp32 gives at least its accuracy on every target",
            code="GPC2011",
        )


@dataclass(frozen=True, slots=True)
class KernelStorage:
    """Which values the kernels of a graph store on ``target``: see ``rewrite.rounding.Storage``."""

    target: Target

    def stored(self, graph: Graph, rounding: Rounding) -> Mapping[Value, Stored]:
        steps = partition(graph, Policy.of(self.target))
        kept = _kept(steps, rounding.keep_fp32, None)
        rounded: Collection[Value] = ()
        if rounding.precision == "tf32":
            wide = {v for step in kept for v in (*step.inputs, *step.outputs)}
            rounded = {v for step in steps for v in step.outputs} - wide
        elif rounding.precision in NARROW:
            _, rounded = _narrowed_values(steps, graph, rounding.precision, kept)
        return {v: Stored(step.nodes[0], v in rounded) for step in steps for v in step.outputs if step.nodes}


def store_narrow(steps: Sequence[Step], at: Setting) -> list[Step]:
    """Stores values between kernels in 16 bits, or lets contractions round their operands, as the precision allows.

    Takes  the f32 steps of a partition
    Gives  the same steps. At ``fp16``, ``bf16`` and ``mixed`` parameters are narrow, and loads widen: ``f32(x0[i])``.
           At ``tf32`` and ``3xtf32`` contractions and attentions have that ``math``
    Leaves all steps at ``fp32``; steps that match ``keep_fp32``; the model's inputs and outputs; values that do not fit
           in the narrow type
    """
    return apply(steps, at.graph, at.precision, at.keep_fp32, at.elsewhere)


def apply(
    steps: Sequence[Step],
    graph: Graph,
    precision: str,
    keep_fp32: Sequence[str] = (),
    elsewhere: Collection[str] | None = (),
) -> list[Step]:
    """``steps`` at ``precision``. Steps with a node whose name or operator matches ``keep_fp32`` stay f32.

    Raises ``UsageError`` if a pattern matches no node of ``steps`` and none of the names and operators ``elsewhere``.
    Patterns are not checked if ``elsewhere`` is ``None``.
    """
    kept = _kept(steps, keep_fp32, elsewhere)
    if math := MATH.get(precision):
        return [step if step in kept else _with_math(step, math) for step in steps]
    if precision not in NARROW:
        return list(steps)
    dtype = NARROW[precision]
    past, values = _narrowed_values(steps, graph, precision, kept)
    made: dict[Value, Value] = {}
    return [
        _narrow(step, dtype, values, past, made, all_constants=precision != "mixed")
        if isinstance(step, KernelStep) and step not in kept
        else step
        for step in steps
    ]


def _kept(steps: Sequence[Step], patterns: Sequence[str], elsewhere: Collection[str] | None) -> set[Step]:
    kept: set[Step] = {step for step in steps if isinstance(step, HostStep)}
    for pattern in patterns:
        found = {
            step
            for step in steps
            for node in (*step.prologue, *step.nodes)
            if fnmatchcase(node.name, pattern) or fnmatchcase(node.op.name, pattern)
        }
        if not found and elsewhere is not None and not any(fnmatchcase(name, pattern) for name in elsewhere):
            raise UsageError(
                f"keep_fp32: {quote(pattern)}: no node and no operator of the model matches",
                code="GPC2015",
                in_shell=f"--keep-fp32 {quote(pattern)}: no node and no operator of the model matches",
            )
        kept |= found
    return kept


def _with_math(step: Step, math: Math) -> Step:
    if not isinstance(step, KernelStep) or not isinstance(body := step.kernel.body, (Contraction, Attention)):
        return step
    if body.acc.dtype is not F32:
        return step
    return replace(step, kernel=replace(step.kernel, body=replace(body, math=math)))


def _narrowed_values(
    steps: Sequence[Step], graph: Graph, precision: str, kept: set[Step]
) -> tuple[frozenset[Value], frozenset[Value]]:
    """The values that are out of the narrow type's range, and the f32 values that get the narrow type.

    The latter are written and read only by kernels, none of which is in ``kept``.
    """
    past = _out_of_range(steps, NARROW[precision])
    written = {v for step in steps for v in step.outputs}
    excluded = {*graph.outputs, *past}
    for step in steps:
        excluded |= {v for v in step.outputs if _is_statistic(v)}
        if step in kept or not isinstance(step, KernelStep):
            excluded |= {*step.inputs, *step.outputs}
            continue
        if isinstance(step.kernel.body, Scatter):
            excluded |= set(step.outputs)  # updates are accumulated in the stored result
        if precision == "mixed":  # only contractions read narrow values
            operands = _operand_sources(step.kernel)
            excluded |= {v for k, v in enumerate(step.inputs) if k not in operands}
    return past, frozenset(v for v in written - excluded if v.type.dtype is F32)


def _is_statistic(value: Value) -> bool:
    """Whether ``value`` is a row statistic. Rounding it would affect its whole row, or it may be out of range."""
    return _before_reshapes(value).op in (ops.RowStatistics, ops.InverseRMS)


def _waits_for_statistics(operand: Value, inputs: Sequence[Value]) -> bool:
    """Whether ``inputs`` have statistics of the operand's rows: then a norm of ``operand`` was folded into this kernel.

    Such an operand is not normalized yet. If it stays f32, it may be out of the range of a narrower type.
    """
    statistics = [_before_reshapes(v) for v in inputs if _is_statistic(v)]
    return any(_before_reshapes(v.inputs[0]) is _before_reshapes(operand) for v in statistics)


def _before_reshapes(value: Value) -> Value:
    while value.op is ops.Reshape:
        (value,) = value.inputs
    return value


def _operand_sources(kernel: Kernel) -> frozenset[int]:
    """The inputs that only the operands of a contraction or an attention read."""
    if not isinstance(body := kernel.body, (Contraction, Attention)) or body.acc.dtype is not F32:
        return frozenset()
    inside = _sources_of_operands(body)
    outside = {ld.source for s in kernel.stores for e in (*s.index, s.value) for ld in loads(e)}
    if isinstance(body, Attention):
        outside |= {ld.source for ld in loads(body.score)}
    return frozenset(inside - outside)


def _sources_of_operands(body: Contraction | Attention) -> set[int]:
    operands = (body.a, body.b) if isinstance(body, Contraction) else (body.q, body.k, body.v)
    return {ld.source for e in operands for ld in loads(e)}


def _narrow(
    step: KernelStep,
    dtype: DType,
    values: frozenset[Value],
    past: frozenset[Value],
    made: dict[Value, Value],
    *,
    all_constants: bool,
) -> KernelStep:
    kernel = step.kernel
    operands = _operand_sources(kernel)
    inputs, params = list(step.inputs), list(kernel.params)
    multiplied = _sources_of_operands(kernel.body) if isinstance(kernel.body, (Contraction, Attention)) else set()
    rounds = True
    for k, value in enumerate(step.inputs):
        if value.type.dtype is not F32:
            continue
        if k in multiplied and (value in past or _is_past(value, dtype, made)):
            rounds = False
        wanted = k in operands or (all_constants and at_most(LARGE, value.type.size))
        if (array := constant_value(value)) is not None:
            if not wanted or (narrow := _constant(value, array, dtype, made)) is None:
                continue
            inputs[k] = narrow
        elif value not in values:
            rounds = rounds and not (k in multiplied and _waits_for_statistics(value, step.inputs))
            continue
        params[k] = TensorType(dtype, params[k].shape)
    for k, value in enumerate(step.outputs):
        if value in values:
            params[kernel.inputs + k] = TensorType(dtype, params[kernel.inputs + k].shape)
    new = retyped(kernel, params, dtype, rounds=rounds)
    if new.params == kernel.params and new.expressions() == kernel.expressions():
        return step
    return replace(step, kernel=new, inputs=tuple(inputs))


def _is_past(value: Value, dtype: DType, made: dict[Value, Value]) -> bool:
    array = constant_value(value)
    return array is not None and _constant(value, array, dtype, made) is None


def _constant(value: Value, array: np.ndarray, dtype: DType, made: dict[Value, Value]) -> Value | None:
    """The constant in ``dtype``, or ``None`` if that would make a finite number infinite."""
    if value not in made:
        with np.errstate(over="ignore"):
            narrow = array.astype(dtype.numpy)
        if not np.isfinite(narrow[np.isfinite(array)]).all():
            return None
        made[value] = constant(narrow)
    return made[value]


def retyped(kernel: Kernel, params: Sequence[TensorType], dtype: DType, *, rounds: bool = True) -> Kernel:
    """``kernel`` with parameters of new types. It still computes in the old types.

    If ``rounds``, operands of an f32 contraction or attention that are not narrow are rounded to ``dtype``. ``rounds``
    has to be False if one of them is out of range.
    """
    old = kernel.params

    def element(expr: Expr) -> Expr:
        def change(node: Expr) -> Expr | None:
            if not isinstance(node, Load) or params[node.source].dtype is old[node.source].dtype:
                return None
            return cast(load(node.source, node.index, params[node.source].dtype), node.dtype)

        return transform(expr, change)

    body = kernel.body.mapped(element)
    match body:
        case Contraction() if rounds and body.acc.dtype is F32:
            body = replace(body, a=_rounded(body.a, dtype), b=_rounded(body.b, dtype))
        case Attention() if rounds:
            body = replace(body, q=_rounded(body.q, dtype), k=_rounded(body.k, dtype), v=_rounded(body.v, dtype))
    stores = tuple(Store(s.target, s.index, cast(element(s.value), params[s.target].dtype)) for s in kernel.stores)
    return replace(kernel, params=tuple(params), body=body, stores=stores)


def _rounded(operand: Expr, dtype: DType) -> Expr:
    if operand.dtype is not F32 or _is_narrow(operand, dtype):
        return operand
    return cast(cast(operand, dtype), F32)


def _is_narrow(expr: Expr, dtype: DType) -> bool:
    """Whether every value of ``expr`` can be represented in ``dtype``."""
    match expr:
        case Cast(value=value):
            return value.dtype is dtype
        case Select(then=then, otherwise=otherwise):
            return _is_narrow(then, dtype) and _is_narrow(otherwise, dtype)
        case Const(value=value):
            return float(np.asarray(value).astype(dtype.numpy)) == float(value)
    return False


# ---- values out of the range of a format ----

Reach = tuple[bool, bool]  # whether finite values may be below the format's lowest number, and above its highest
FITS: Reach = (False, False)
# functions whose results fit in f16, or overflow in f32 too if a constant out of range is their argument
BOUNDED = frozenset({"exp", "tanh", "erf", "sin", "cos", "sign", "log", "asin", "acos", "atan", "asinh", "acosh"})


def _out_of_range(steps: Sequence[Step], dtype: DType) -> frozenset[Value]:
    """The values that a constant can take out of the range of ``dtype``: scaled, selected or added to other values.

    All other values are assumed to fit, also the results of matrix products: the format is the user's choice.
    """
    reach: dict[Value, Reach] = {}
    for step in steps:
        if not isinstance(step, KernelStep):
            continue
        kernel = step.kernel

        def of_input(position: int, inputs: Sequence[Value] = step.inputs) -> Reach:
            value = inputs[position]
            if value not in reach and (array := constant_value(value)) is not None:
                reach[value] = _reach_of(array, dtype)
            return reach.get(value, FITS)

        known: dict[Expr, Reach] = {}
        match kernel.body:
            case Rowwise(statistics=statistics):
                for s in statistics:
                    known[s.hole] = _reach(s.value, known, of_input, dtype)
            case Window(value=value, acc=acc):
                known[acc] = _reach(value, known, of_input, dtype)
            case Scan(value=value, acc=acc):
                known[acc] = _reach(value, known, of_input, dtype)
            case Scatter(initial=initial, after=after, acc=acc):
                known[acc] = _either(*(_reach(e, known, of_input, dtype) for e in (initial, after)))
        for store in kernel.stores:
            target = step.outputs[store.target - kernel.inputs]
            found = _reach(store.value, known, of_input, dtype)
            reach[target] = _either(reach.get(target, FITS), found)  # each part of a Concat has its own store
    return frozenset(value for value, found in reach.items() if any(found))


def _reach_of(array: np.ndarray, dtype: DType) -> Reach:
    if array.dtype.kind != "f":
        return FITS
    with np.errstate(over="ignore"):
        past = array[np.isfinite(array) & ~np.isfinite(array.astype(dtype.numpy))]
    return bool((past < 0).any()), bool((past > 0).any())


def _either(*found: Reach) -> Reach:
    return any(low for low, _ in found), any(high for _, high in found)


def _reach(expr: Expr, known: Mapping[Expr, Reach], of_input: Callable[[int], Reach], dtype: DType) -> Reach:
    """The reach of ``expr``. ``known`` is the reach of holes. Loads in the indices of other loads do not count."""
    found: dict[Expr, Reach] = dict(known)
    for node in walk(expr):
        match node:
            case Const(value=value) if node.dtype.is_float:
                found[node] = _reach_of(np.asarray(value, np.float64), dtype)
            case Load(source=source) if node.dtype.is_float:
                found[node] = of_input(source)
            case Cast(value=value) if node.dtype.is_float:
                found[node] = found.get(value, FITS)
            case Select(then=then, otherwise=otherwise):
                found[node] = _either(found.get(then, FITS), found.get(otherwise, FITS))
            case Reduce(body=body):
                found[node] = found.get(body, FITS)
            case Call(fn=fn, args=args) if node.dtype.is_float and fn not in BOUNDED:
                found[node] = _reach_of_call(fn, [found.get(a, FITS) for a in args])
    return found.get(expr, FITS)


def _reach_of_call(fn: str, args: Sequence[Reach]) -> Reach:
    (low, high), *others = args
    match fn:
        case "neg":
            return high, low
        case "abs":
            return False, low or high
        case "sub":
            return low or others[0][1], high or others[0][0]
        case "max":
            return low and others[0][0], high or others[0][1]
        case "min":
            return low or others[0][0], high and others[0][1]
        case "add" | "floor" | "ceil" | "round":
            return _either(*args)
        case "div":
            return (True, True) if low or high else FITS  # a large divisor makes the quotient small
    return (True, True) if any(map(any, args)) else FITS
