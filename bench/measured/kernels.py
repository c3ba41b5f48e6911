"""The kernels that published measurements are of, as the compiler would describe them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpucomp.expr.core import Expr, Var, axes_of, both, call, cast, hole, literal, load, select, var
from gpucomp.ir.types import BF16, BOOL, F16, F32, I8, I32, DType, TensorType
from gpucomp.kernel import Contraction, Kernel, Loops, Rowwise, Statistic, Store
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


@dataclass(frozen=True)
class Gemm:
    """c[batch, m, n] = a @ b, row-major. ``a_transposed``: a is [k, m] in memory; ``b_transposed``: b is [n, k]."""

    m: int
    n: int
    k: int
    batch: int = 1
    dtype: str = "f32"
    a_transposed: bool = False
    b_transposed: bool = False
    constant: bool = False  # whether b is known when a model is compiled

    def kernel(self) -> Kernel:
        stored, sums, math = TYPES[self.dtype]
        batch = axes_of((self.batch,), "b") if self.batch > 1 else ()
        i, j, c = var("m0", self.m), var("n0", self.n), var("k0", self.k)
        a_at: tuple[Expr, ...] = (c, i) if self.a_transposed else (i, c)
        b_at: tuple[Expr, ...] = (j, c) if self.b_transposed else (c, j)
        total = hole("acc", sums)
        a, b = cast(load(0, (*batch, *a_at), stored), sums), cast(load(1, (*batch, *b_at), stored), sums)
        body = Contraction(batch, (i,), (j,), (c,), a, b, total, math=math)
        out = I32 if sums is I32 else stored
        shapes = (a_at, b_at, (i, j))
        types = zip(shapes, (stored, stored, out), strict=True)
        params = tuple(TensorType(of, (*_extents(batch), *_extents(shape))) for shape, of in types)
        store = Store(2, (*batch, i, j), cast(total, out))
        return Kernel("contraction", params, 1, body, (store,), constants=frozenset({1} if self.constant else ()))


@dataclass(frozen=True)
class Conv:
    """A forward convolution without bias; weights are known when a model is compiled."""

    n: int
    c: int
    h: int
    w: int
    k: int  # output channels
    r: int
    s: int
    pad: tuple[int, int] = (0, 0)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    nchw: bool = True
    dtype: str = "f32"

    @property
    def out(self) -> tuple[int, int]:
        sizes = zip((self.h, self.w), (self.r, self.s), self.pad, self.stride, self.dilation, strict=True)
        oh, ow = ((size + 2 * pad - far * (window - 1) - 1) // step + 1 for size, window, pad, step, far in sizes)
        return oh, ow

    def kernel(self) -> Kernel:
        stored, sums, math = TYPES[self.dtype]
        oh, ow = self.out
        m = (var("m0", self.n), var("m1", oh), var("m2", ow))
        (oc,) = columns = (var("n0", self.k),)
        k = (var("k0", self.r), var("k1", self.s), var("k2", self.c))
        y = m[1] * self.stride[0] - self.pad[0] + k[0] * self.dilation[0]
        x = m[2] * self.stride[1] - self.pad[1] + k[1] * self.dilation[1]
        inside = both([y >= 0, y < self.h, x >= 0, x < self.w]) if any(self.pad) else literal(True, BOOL)
        place = (m[0], k[2], y, x) if self.nchw else (m[0], y, x, k[2])
        image = (self.n, self.c, self.h, self.w) if self.nchw else (self.n, self.h, self.w, self.c)
        weight: tuple[Var, ...] = (oc, k[2], k[0], k[1]) if self.nchw else (*k, oc)
        to = (m[0], oc, m[1], m[2]) if self.nchw else (*m, oc)
        total = hole("acc", sums)
        a = select(inside, cast(load(0, place, stored), sums), 0)
        body = Contraction((), m, columns, k, a, cast(load(1, weight, stored), sums), total, math=math)
        out = I32 if sums is I32 else stored
        params = (TensorType(stored, image), TensorType(stored, _extents(weight)), TensorType(out, _extents(to)))
        store = Store(2, to, cast(total, out))
        return Kernel("contraction", params, 1, body, (store,), constants=frozenset({1}))


@dataclass(frozen=True)
class Attend:
    """Attention without a mask, of equal lengths."""

    batch: int
    tokens: int
    heads: int
    depth: int
    dtype: str = "f16"

    def kernel(self) -> Kernel:
        heads, stored = self.batch * self.heads, TYPES[self.dtype][0]
        return attention(self.tokens, self.tokens, self.depth, self.depth, heads=heads, dtype=stored)


@dataclass(frozen=True)
class Rows:
    """An operator over [rows, columns] that memory bounds. ``gated``: of two halves of a row, one scales the other."""

    operator: str
    rows: int
    columns: int
    dtype: str = "f32"

    def kernel(self) -> Kernel:
        stored = TYPES[self.dtype][0]
        if self.operator in ("softmax", "layer_norm", "rms_norm"):
            return _statistics(self.operator, self.rows, self.columns, stored)
        (i,) = axes = axes_of((self.rows * self.columns,))
        x = cast(load(0, axes, stored), F32)
        shape = (self.rows * self.columns,)
        inputs = [TensorType(stored, shape)]
        if self.operator in BINARY:
            other = cast(load(1, axes, stored), F32)
            inputs.append(TensorType(stored, shape))
            value = x + other if self.operator == "add" else x * other / (call("exp", x * -1.0) + 1.0)
        else:
            value = _unary(self.operator, x)
        store = Store(len(inputs), (i,), cast(value, stored))
        return Kernel("loops", (*inputs, TensorType(stored, shape)), 1, Loops(axes), (store,))


Spec = Gemm | Conv | Attend | Rows


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
