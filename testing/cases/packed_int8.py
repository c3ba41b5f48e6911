"""Kernels of tests/kernels_templates/test_packed_int8.py, each with what is special about it."""

from dataclasses import replace

from gpucomp.expr.core import axes_of, both, cast, hole, literal, load, select, var
from gpucomp.ir.types import I8, I32, U8, TensorType
from gpucomp.kernel import Contraction, Kernel, Store
from gpucomp.kernels_templates.contraction.simt.space import PLAIN
from gpucomp.kernels_templates.engines import FAMILIES

SIMT, GEMV = FAMILIES["contraction/simt"], FAMILIES["contraction/gemv"]

TILE = {**PLAIN, "tile_m": 16, "tile_n": 32, "tile_k": 8, "reg_m": 4, "reg_n": 4, "stages": 2}

LATE = TILE | {"asynchronous": 1, "stages": 3}

SIGNS = {"ss": (I8, I8), "uu": (U8, U8), "su": (I8, U8), "us": (U8, I8)}


def product(
    m, n, k, types=(U8, I8), *, batch=(), a_transposed=False, b_transposed=False, constant=False, total=I32
) -> Kernel:
    """Sums of products of bytes, and a bias."""
    bs, i, j, c = axes_of(batch, "b"), var("m0", m), var("n0", n), var("k0", k)
    a_at, a_shape = ((*bs, c, i), (*batch, k, m)) if a_transposed else ((*bs, i, c), (*batch, m, k))
    b_at, b_shape = ((*bs, j, c), (*batch, n, k)) if b_transposed else ((*bs, c, j), (*batch, k, n))
    acc = hole("acc", total)
    body = Contraction(
        bs, (i,), (j,), (c,), cast(load(0, a_at, types[0]), total), cast(load(1, b_at, types[1]), total), acc
    )
    params = (TensorType(types[0], a_shape), TensorType(types[1], b_shape), TensorType(total, (n,)))
    store = Store(3, (*bs, i, j), acc + load(2, (j,), total))
    return Kernel(
        "contraction",
        (*params, TensorType(total, (*batch, m, n))),
        1,
        body,
        (store,),
        label="bytes",
        constants=frozenset({1} if constant else ()),
    )


def window(image, columns, taps, types=(U8, I8), *, pad=0, zero=0, planar=False, constant=True, total=I32) -> Kernel:
    """A convolution of bytes; outside of the image is the code ``zero``."""
    n, h, w, c = image
    m = (var("m0", n), var("m1", h + 2 * pad - taps[0] + 1), var("m2", w + 2 * pad - taps[1] + 1))
    oc, k = var("n0", columns), (var("k0", taps[0]), var("k1", taps[1]), var("k2", c))
    y, x = m[1] - pad + k[0], m[2] - pad + k[1]
    value = cast(load(0, (m[0], k[2], y, x) if planar else (m[0], y, x, k[2]), types[0]), total)
    a = select(both([y >= 0, y < h, x >= 0, x < w]), value, literal(zero, total)) if pad else value
    acc = hole("acc", total)
    body = Contraction((), m, (oc,), k, a, cast(load(1, (*k, oc), types[1]), total), acc)
    out = tuple(v.extent for v in (*m, oc))
    params = (TensorType(types[0], (n, c, h, w) if planar else image), TensorType(types[1], (*taps, c, columns)))
    return Kernel(
        "contraction",
        (*params, TensorType(total, out)),
        1,
        body,
        (Store(2, (*m, oc), acc),),
        label="window of bytes",
        constants=frozenset({1} if constant else ()),
    )


def square(m, k, *, b_transposed, of=I8, total=I32) -> Kernel:
    """x @ x.T, or x.T @ x: one parameter is both operands."""
    i, j, c = var("m0", m), var("n0", m), var("k0", k)
    acc = hole("acc", total)
    at = ((i, c), (j, c)) if b_transposed else ((c, i), (j, c))
    a, b = (cast(load(0, place, of), total) for place in at)
    shape = (m, k)
    params = (TensorType(of, shape), TensorType(total, (m, m)))
    return Kernel("contraction", params, 1, Contraction((), (i,), (j,), (c,), a, b, acc), (Store(1, (i, j), acc),))


ROW = {"many_items": 4, "depth_items": 8, "accesses": 1, "unroll": 2, "shuffle": 0}


def slices(m, n, k, stride, **options) -> Kernel:
    """Of rows that go on behind the depth."""
    kernel = product(m, n, k, b_transposed=True, **options)
    a, b, *others = kernel.params
    return replace(kernel, params=(TensorType(a.dtype, (m, stride)), TensorType(b.dtype, (n, stride)), *others))


CASES = {
    "all signed": (SIMT, product(17, 23, 44, SIGNS["ss"], b_transposed=True), TILE),
    "all unsigned": (SIMT, product(17, 23, 44, SIGNS["uu"], constant=True), LATE),
    "signed by unsigned": (SIMT, product(19, 37, 52, SIGNS["su"], constant=True), LATE | {"splits": 2}),
    "unsigned by signed": (SIMT, product(19, 37, 52, SIGNS["us"], constant=True), LATE | {"slices": 2, "fragments": 2}),
    "a depth of no whole words": (SIMT, product(13, 9, 31, constant=True), TILE | {"splits": 3}),
    "a depth of three": (SIMT, product(5, 7, 3, constant=True), TILE),
    "slices whose rows go on": (SIMT, slices(10, 7, 13, 16), TILE),
    "neither along the depth": (SIMT, product(21, 18, 30, a_transposed=True), TILE),
    "batches": (SIMT, product(7, 12, 20, batch=(3, 2), constant=True), LATE),
    "one parameter by words": (SIMT, square(11, 12, b_transposed=True), TILE),
    "one parameter by words and by bytes": (SIMT, square(12, 12, b_transposed=False), TILE),
    "a padded window": (SIMT, window((1, 6, 5, 8), 12, (3, 3), pad=1), LATE),
    "a window padded by a zero point": (SIMT, window((2, 6, 5, 12), 10, (3, 3), pad=1, zero=119), TILE),
    "a window of seven channels": (SIMT, window((1, 5, 7, 7), 6, (3, 2), pad=1, zero=201), TILE | {"slices": 4}),
    "a planar stem": (SIMT, window((1, 9, 8, 3), 6, (3, 3), SIGNS["ss"], pad=1, zero=-7, planar=True), TILE),
    "planar patches": (SIMT, window((1, 6, 8, 2), 5, (3, 8), planar=True), TILE),
    "a row": (GEMV, product(1, 101, 92, constant=True), None),
    "rows of odd sizes": (GEMV, product(3, 37, 131, SIGNS["ss"], constant=True), None),
    "a matrix along the depth": (GEMV, product(2, 53, 72, SIGNS["uu"], b_transposed=True), ROW),
    "few columns": (GEMV, product(67, 2, 80, SIGNS["su"], b_transposed=True), ROW),
    "a batch of rows": (GEMV, product(2, 12, 20, batch=(3,), constant=True), None),
}
