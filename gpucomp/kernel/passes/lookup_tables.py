"""Replaces functions of a quantized byte by lookup tables of 256 entries.

A quantized activation is floating-point arithmetic between two quantizers: dequantize, exponential, divide, round,
clip. Its operand has 256 codes, so the numpy evaluator computes all results when the model is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gpucomp.expr.core import (
    Call,
    Const,
    Expr,
    Hole,
    Load,
    Reduce,
    Var,
    call,
    cast,
    load,
    substitute,
    transform,
    var,
    walk,
)
from gpucomp.expr.evaluate import evaluate
from gpucomp.ir.graph import constant
from gpucomp.ir.types import I8, I32, I64, U8
from gpucomp.kernel.pipeline import Setting
from gpucomp.kernel.splice import with_constant
from gpucomp.kernel.step import KernelStep, Step

CODES = 256
BYTES = (I8, U8)
COSTLY = frozenset({"exp", "log", "tanh", "erf", "pow", "sin", "cos", "tan", "sqrt", "div"})
ENOUGH = 2  # from this number of costly functions, 16 lookups are faster than a vector of 16 elements


def look_up(steps: Sequence[Step], at: Setting) -> list[Step]:
    """Replaces functions of one byte by tables of their 256 results.

    Takes  a kernel that computes a byte by a costly function of one other byte
    Gives  the same kernel with the table as one more constant input, and ``table[code]`` instead of the function
    Leaves functions with fewer than ``ENOUGH`` costly operations, and functions of anything other than one byte
    """
    return [_looked_up(step) if isinstance(step, KernelStep) else step for step in steps]


def _looked_up(step: KernelStep) -> KernelStep:
    while found := next((f for s in step.kernel.stores if (f := _function(s.value)) is not None), None):
        result, code = found
        place = cast(code, I64) if code.dtype is U8 else call("add", cast(code, I64), CODES // 2)
        read = cast(load(step.kernel.inputs, (place,), I32), result.dtype)
        step = with_constant(step, constant(table_of(result, code)))

        def change(node: Expr, result: Expr = result, read: Expr = read) -> Expr | None:
            return read if node is result else None

        stores = tuple(replace(s, value=transform(s.value, change)) for s in step.kernel.stores)
        step = replace(step, kernel=replace(step.kernel, stores=stores))
    return step


def table_of(result: Expr, code: Expr) -> np.ndarray:
    """``result``, a function of the byte ``code``, for each value of ``code``, the lowest first, as i32."""
    info = np.iinfo(code.dtype.numpy)
    place = var("code", CODES)
    function = substitute(result, {code: load(0, (place,), code.dtype)})
    codes = np.arange(info.min, info.max + 1).astype(code.dtype.numpy)
    return np.broadcast_to(evaluate(function, [codes], {place: np.arange(CODES)}), CODES).astype(np.int32)


def _function(value: Expr) -> tuple[Expr, Expr] | None:
    """The largest subexpression of ``value`` that is a costly function of one byte, and the innermost such byte."""
    for result in _outermost_first(value):
        if result.dtype not in BYTES or isinstance(result, (Load, Const)):
            continue
        codes = [
            node for node in walk(result) if node is not result and node.dtype in BYTES and not isinstance(node, Const)
        ]
        for code in sorted(codes, key=lambda node: sum(1 for _ in walk(node))):
            between = _between(result, code)
            if between is not None and sum(isinstance(n, Call) and n.fn in COSTLY for n in between) >= ENOUGH:
                return result, code
    return None


def _outermost_first(value: Expr) -> list[Expr]:
    """Every node, operators before their operands."""
    return list(walk(value))[::-1]


def _between(result: Expr, code: Expr) -> list[Expr] | None:
    """The nodes that compute ``result`` from ``code``; ``None`` if it depends on anything else."""
    pending, seen = [result], set[Expr]()
    while pending:
        node = pending.pop()
        if node is code or node in seen:
            continue
        if isinstance(node, (Load, Hole, Var, Reduce)):
            return None
        seen.add(node)
        pending.extend(node.operands)
    return list(seen)
