"""The kernels that published measurements are of, as the compiler would describe them."""

from __future__ import annotations

from collections.abc import Sequence

from gpucomp.expr.core import Expr, Var, axes_of, both, call, cast, hole, literal, load, select, var
from gpucomp.ir.types import BF16, BOOL, F16, F32, I8, I32, DType, TensorType
from gpucomp.kernel import Contraction, Kernel, Loops, Rowwise, Statistic, Store
from gpucomp.kernel_bench.operations import Attend, Conv, Gemm, Operation, Rows
from testing.kernels import attention

# by the name of a data type in results: what is stored, what sums are, and how exactly f32 is multiplied
TYPES: dict[str, tuple[DType, DType, str]] = {
    "bf16": (BF16, F32, "strict"),
    "f16": (F16, F32, "strict"),
    "f32": (F32, F32, "strict"),
    "tf32": (F32, F32, "tf32"),
    "i8": (I8, I32, "strict"),
}
UNARY = ("relu", "tanh", "gelu", "scaled")
BINARY = ("add", "gated")


def kernel_of(operation: Operation) -> Kernel:
    match operation:
        case Gemm():
            return _gemm(operation)
        case Conv():
            return _conv(operation)
        case Attend():
            heads, stored = operation.batch * operation.heads, TYPES[operation.dtype][0]
            return attention(
                operation.tokens, operation.tokens, operation.depth, operation.depth, heads=heads, dtype=stored
            )
    return _rows(operation)


def _gemm(gemm: Gemm) -> Kernel:
    stored, sums, math = TYPES[gemm.dtype]
    batch = axes_of((gemm.batch,), "b") if gemm.batch > 1 else ()
    i, j, c = var("m0", gemm.m), var("n0", gemm.n), var("k0", gemm.k)
    a_at: tuple[Expr, ...] = (c, i) if gemm.a_transposed else (i, c)
    b_at: tuple[Expr, ...] = (j, c) if gemm.b_transposed else (c, j)
    total = hole("acc", sums)
    a, b = cast(load(0, (*batch, *a_at), stored), sums), cast(load(1, (*batch, *b_at), stored), sums)
    body = Contraction(batch, (i,), (j,), (c,), a, b, total, math=math)
    out = I32 if sums is I32 else stored
    shapes = (a_at, b_at, (i, j))
    types = zip(shapes, (stored, stored, out), strict=True)
    params = tuple(TensorType(of, (*_extents(batch), *_extents(shape))) for shape, of in types)
    store = Store(2, (*batch, i, j), cast(total, out))
    return Kernel("contraction", params, 1, body, (store,), constants=frozenset({1} if gemm.constant else ()))


def _conv(conv: Conv) -> Kernel:
    stored, sums, math = TYPES[conv.dtype]
    oh, ow = conv.out
    m = (var("m0", conv.n), var("m1", oh), var("m2", ow))
    (oc,) = columns = (var("n0", conv.k),)
    k = (var("k0", conv.r), var("k1", conv.s), var("k2", conv.c))
    y = m[1] * conv.stride[0] - conv.pad[0] + k[0] * conv.dilation[0]
    x = m[2] * conv.stride[1] - conv.pad[1] + k[1] * conv.dilation[1]
    inside = both([y >= 0, y < conv.h, x >= 0, x < conv.w]) if any(conv.pad) else literal(True, BOOL)
    place = (m[0], k[2], y, x) if conv.nchw else (m[0], y, x, k[2])
    image = (conv.n, conv.c, conv.h, conv.w) if conv.nchw else (conv.n, conv.h, conv.w, conv.c)
    weight: tuple[Var, ...] = (oc, k[2], k[0], k[1]) if conv.nchw else (*k, oc)
    to = (m[0], oc, m[1], m[2]) if conv.nchw else (*m, oc)
    total = hole("acc", sums)
    a = select(inside, cast(load(0, place, stored), sums), 0)
    body = Contraction((), m, columns, k, a, cast(load(1, weight, stored), sums), total, math=math)
    out = I32 if sums is I32 else stored
    params = (TensorType(stored, image), TensorType(stored, _extents(weight)), TensorType(out, _extents(to)))
    store = Store(2, to, cast(total, out))
    return Kernel("contraction", params, 1, body, (store,), constants=frozenset({1}))


def _rows(rows: Rows) -> Kernel:
    stored = TYPES[rows.dtype][0]
    if rows.operator in ("softmax", "layer_norm", "rms_norm"):
        return _statistics(rows.operator, rows.rows, rows.columns, stored)
    (i,) = axes = axes_of((rows.rows * rows.columns,))
    x = cast(load(0, axes, stored), F32)
    shape = (rows.rows * rows.columns,)
    inputs = [TensorType(stored, shape)]
    if rows.operator in BINARY:
        other = cast(load(1, axes, stored), F32)
        inputs.append(TensorType(stored, shape))
        value = x + other if rows.operator == "add" else x * other / (call("exp", x * -1.0) + 1.0)
    else:
        value = _unary(rows.operator, x)
    store = Store(len(inputs), (i,), cast(value, stored))
    return Kernel("loops", (*inputs, TensorType(stored, shape)), 1, Loops(axes), (store,))


def _extents(axes: Sequence[Expr]) -> tuple[int, ...]:
    return tuple(axis.extent for axis in axes if isinstance(axis, Var))


def _unary(operator: str, x: Expr) -> Expr:
    if operator == "relu":
        return call("max", x, 0.0)
    if operator == "tanh":
        return call("tanh", x)
    if operator == "gelu":
        return x * 0.5 * (call("erf", x * 0.70710678) + 1.0)
    return x * 3.0


def _statistics(operator: str, rows: int, columns: int, stored: DType) -> Kernel[Rowwise]:
    r, c = var("r", rows), var("c", columns)
    x = cast(load(0, (r, c), stored), F32)
    whole, line = TensorType(stored, (rows, columns)), TensorType(stored, (columns,))
    first, second = hole("first", F32), hole("second", F32)
    if operator == "softmax":
        shifted = call("exp", x - first)
        found = (Statistic(first, "max", x), Statistic(second, "sum", shifted))
        params, value = (whole, whole), shifted / second
    elif operator == "layer_norm":
        centred = x - first / float(columns)
        found = (Statistic(first, "sum", x), Statistic(second, "sum", centred * centred))
        value = centred / call("sqrt", second / float(columns) + 1e-5) * cast(load(1, (c,), stored), F32)
        params, value = (whole, line, line, whole), value + cast(load(2, (c,), stored), F32)
    else:
        found = (Statistic(first, "sum", x * x),)
        value = x / call("sqrt", first / float(columns) + 1e-5) * cast(load(1, (c,), stored), F32)
        params = (whole, line, whole)
    body = Rowwise((r,), (c,), found)
    return Kernel("norm", params, 1, body, (Store(len(params) - 1, (r, c), cast(value, stored)),))
