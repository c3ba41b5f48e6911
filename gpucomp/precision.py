"""Narrower numbers where the user allows them: 16-bit storage between kernels, tensor-core arithmetic within them.

Each kernel goes on computing in f32. What changes is what it reads and writes:

    fp32     nothing: every operation in IEEE f32 (the default)
    tf32     contractions may round their operands to tf32 (10 bits of fraction)
    3xtf32   contractions may split their operands into two tf32 numbers each: f32's accuracy on tensor cores
    fp16     values between kernels, and the weights of contractions, are stored as f16; sums are f32
    bf16     the same with bf16: f32's range, 7 bits of fraction
    mixed    f16 where contractions read, f32 everywhere else: norms, softmax and residual sums keep f32

The model's own inputs and outputs keep their types. A constant that f16 cannot hold stays f32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

import numpy as np

from gpucomp.errors import UsageError, quote
from gpucomp.expr.core import Cast, Const, Expr, Load, Select, cast, load, loads, transform
from gpucomp.ir.graph import Graph, Value, constant, constant_value
from gpucomp.ir.types import BF16, F16, F32, DType, TensorType
from gpucomp.kernel import Attention, Contraction, Kernel, Scatter, Step, Store, mapped

PRECISIONS = ("fp32", "tf32", "3xtf32", "fp16", "bf16", "mixed")
NARROW: Mapping[str, DType] = {"fp16": F16, "bf16": BF16, "mixed": F16}
MATH = ("tf32", "3xtf32")
LARGE = 1 << 16  # elements of a constant worth narrowing though no contraction reads it: an embedding


def require(precision: str, features: frozenset[str], target: str) -> None:
    """Raise ``UsageError`` for a precision that is not known or that the target lacks."""
    if precision not in PRECISIONS:
        raise UsageError(f"precision {quote(precision)}: {', '.join(PRECISIONS)} expected", code="GPC2011")
    if precision in MATH and "mma_sm80" not in features:
        raise UsageError(
            f"precision {precision} needs the tensor cores of sm_80 or newer, {target} has none; "
            "fp32 gives at least its accuracy on every target",
            code="GPC2011",
        )


def apply(steps: Sequence[Step], graph: Graph, precision: str, keep_fp32: Sequence[str] = ()) -> list[Step]:
    """``steps`` at ``precision``; those with a node whose name or operator matches ``keep_fp32`` stay f32 throughout.

    Raises ``UsageError`` for a pattern that matches nothing.
    """
    kept = _kept(steps, keep_fp32)
    if precision in MATH:
        return [step if step in kept else _with_math(step, precision) for step in steps]
    if precision not in NARROW:
        return list(steps)
    dtype = NARROW[precision]
    values = _narrowed_values(steps, graph, kept, contractions_only=precision == "mixed")
    made: dict[Value, Value] = {}
    return [
        step if step in kept else _narrow(step, dtype, values, made, all_constants=precision != "mixed")
        for step in steps
    ]


def _kept(steps: Sequence[Step], patterns: Sequence[str]) -> set[Step]:
    kept: set[Step] = {step for step in steps if step.kernel is None}
    for pattern in patterns:
        found = {
            step
            for step in steps
            for node in (*step.prologue, *step.nodes)
            if fnmatchcase(node.name, pattern) or fnmatchcase(node.op.name, pattern)
        }
        if not found:
            raise UsageError(
                f"--keep-fp32 {quote(pattern)}: no node and no operator of the model is called so", code="GPC2011"
            )
        kept |= found
    return kept


def _with_math(step: Step, math: str) -> Step:
    kernel = step.kernel
    if kernel is None or not isinstance(body := kernel.body, (Contraction, Attention)) or body.acc.dtype is not F32:
        return step
    return replace(step, kernel=replace(kernel, body=replace(body, math=math)))


def _narrowed_values(
    steps: Sequence[Step], graph: Graph, kept: set[Step], *, contractions_only: bool
) -> frozenset[Value]:
    """f32 values that kernels alone write and read, none of them kept."""
    written = {v for step in steps for v in step.outputs}
    excluded = set(graph.outputs)
    for step in steps:
        if step.kernel is not None and isinstance(step.kernel.body, Scatter):
            excluded |= set(step.outputs)  # updates add up where the result is stored
        if step in kept:
            excluded |= {*step.inputs, *step.outputs}
        elif contractions_only:
            operands = _operand_sources(step.kernel)
            excluded |= {v for k, v in enumerate(step.inputs) if k not in operands}
    return frozenset(v for v in written - excluded if v.type.dtype is F32)


def _operand_sources(kernel: Kernel | None) -> frozenset[int]:
    """Inputs that only operands of a contraction or of an attention read."""
    if kernel is None or not isinstance(body := kernel.body, (Contraction, Attention)) or body.acc.dtype is not F32:
        return frozenset()
    operands = (body.a, body.b) if isinstance(body, Contraction) else (body.q, body.k, body.v)
    inside = {ld.source for e in operands for ld in loads(e)}
    outside = {ld.source for s in kernel.stores for e in (*s.index, s.value) for ld in loads(e)}
    if isinstance(body, Attention):
        outside |= {ld.source for ld in loads(body.score)}
    return frozenset(inside - outside)


def _narrow(
    step: Step, dtype: DType, values: frozenset[Value], made: dict[Value, Value], *, all_constants: bool
) -> Step:
    kernel = step.kernel
    assert kernel is not None
    operands = _operand_sources(kernel)
    inputs, params = list(step.inputs), list(kernel.params)
    for k, value in enumerate(step.inputs):
        if value.type.dtype is not F32:
            continue
        wanted = k in operands or (all_constants and value.type.size >= LARGE)
        if (array := constant_value(value)) is not None:
            if not wanted or (narrow := _constant(value, array, dtype, made)) is None:
                continue
            inputs[k] = narrow
        elif value not in values:
            continue
        params[k] = TensorType(dtype, params[k].shape)
    for k, value in enumerate(step.outputs):
        if value in values:
            params[kernel.inputs + k] = TensorType(dtype, params[kernel.inputs + k].shape)
    return replace(step, kernel=retyped(kernel, params, dtype), inputs=tuple(inputs))


def _constant(value: Value, array: np.ndarray, dtype: DType, made: dict[Value, Value]) -> Value | None:
    """The constant in ``dtype``, or ``None`` where that would make a finite number infinite."""
    if value not in made:
        with np.errstate(over="ignore"):
            narrow = array.astype(dtype.numpy)
        if not np.isfinite(narrow[np.isfinite(array)]).all():
            return None
        made[value] = constant(narrow)
    return made[value]


def retyped(kernel: Kernel, params: Sequence[TensorType], dtype: DType) -> Kernel:
    """``kernel`` with parameters of new types; it computes in the old ones.

    Operands of an f32 contraction or attention are rounded to ``dtype`` where they are not narrow already.
    """
    old = kernel.params

    def element(expr: Expr) -> Expr:
        def change(node: Expr) -> Expr | None:
            if not isinstance(node, Load) or params[node.source].dtype is old[node.source].dtype:
                return None
            return cast(load(node.source, node.index, params[node.source].dtype), node.dtype)

        return transform(expr, change)

    body = mapped(kernel.body, element)
    match body:
        case Contraction() if body.acc.dtype is F32:
            body = replace(body, a=_rounded(body.a, dtype), b=_rounded(body.b, dtype))
        case Attention():
            body = replace(body, q=_rounded(body.q, dtype), k=_rounded(body.k, dtype), v=_rounded(body.v, dtype))
    stores = tuple(Store(s.target, s.index, cast(element(s.value), params[s.target].dtype)) for s in kernel.stores)
    return replace(kernel, params=tuple(params), body=body, stores=stores)


def _rounded(operand: Expr, dtype: DType) -> Expr:
    if operand.dtype is not F32 or _is_narrow(operand, dtype):
        return operand
    return cast(cast(operand, dtype), F32)


def _is_narrow(expr: Expr, dtype: DType) -> bool:
    """Whether every value that ``expr`` can have is one of ``dtype``."""
    match expr:
        case Cast(value=value):
            return value.dtype is dtype
        case Select(then=then, otherwise=otherwise):
            return _is_narrow(then, dtype) and _is_narrow(otherwise, dtype)
        case Const(value=value):
            return float(np.asarray(value).astype(dtype.numpy)) == float(value)
    return False
