"""Every CPU family at awkward sizes, with several schedules each: compared with its expressions, evaluated by numpy."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np
import pytest

from gpucomp.codegen.llvm import emit
from gpucomp.codegen.llvm.contraction.space import contraction_form
from gpucomp.codegen.llvm.core_space import STACK_BYTES
from gpucomp.codegen.llvm.engines import ENGINES, family_of
from gpucomp.device.limits import Limits
from gpucomp.errors import ScheduleError
from gpucomp.expr.core import Expr, axes_of, both, call, cast, hole, index, load, reduce, select, var
from gpucomp.ir.types import BF16, BOOL, F16, F32, F64, I8, I32, I64, DType, TensorType
from gpucomp.kernel import Contraction, Kernel, Loops, Rowwise, Statistic, Store, Window
from gpucomp.kernel.interpreter import expected
from gpucomp.kernel.sizes import Sizes, Tunables
from gpucomp.kernel.source import statements
from gpucomp.schedule.space import Family, Schedule
from gpucomp.targets import cpu
from testing.tolerance import assert_matches
from tests.native import Library, default_schedule

SPREAD = 5  # schedules besides the default


def accumulated(dtype: DType) -> DType:
    return {F16: F32, BF16: F32, I8: I32}.get(dtype, dtype)


def random_inputs(kernel: Kernel) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = []
    for type in kernel.params[: kernel.inputs]:
        values = rng.standard_normal(type.shape) * (9 if type.dtype.is_integer else 1) + 0.5
        arrays.append((values > 0) if type.dtype is BOOL else values.astype(type.dtype.numpy))
    return arrays


def spread(kernel: Kernel) -> list[Schedule]:
    """The default, scalar code, and some random legal schedules."""
    family, limits = family_of(kernel), cpu.host().limits
    problem = family.problem(kernel)
    default = default_schedule(kernel)
    found: list[Schedule] = [default, {**default, "lanes": 0}]
    chooser = random.Random(kernel.digest)
    while len(found) < SPREAD + 2:
        trial = {p.name: chooser.choice(p.choices) for p in family.params}
        if not family.reasons(trial, problem, limits):
            found.append(trial)
    return found


def check(kernel: Kernel, terms: int = 1) -> None:
    inputs = random_inputs(kernel)
    schedules = spread(kernel)
    library = Library({f"k{i}": kernel for i in range(len(schedules))}, {f"k{i}": s for i, s in enumerate(schedules)})

    wanted = expected(kernel, inputs)

    for i, schedule in enumerate(schedules):
        for actual, want in zip(library.run(f"k{i}", inputs), wanted, strict=True):
            try:
                assert_matches(actual, want, terms=terms)
            except AssertionError as error:
                raise AssertionError(f"{schedule}: {error}") from error


# loops


def elementwise(shape: tuple[int, ...], function: Callable[..., Expr], *types: DType, out: Sequence[int] | None = None
                ) -> Kernel:  # fmt: skip
    axes = axes_of(shape)
    body = function(*(load(i, axes, t) for i, t in enumerate(types)))
    order = list(out or range(len(shape)))
    index = tuple(axes[o] for o in order)
    params = (*(TensorType(t, shape) for t in types), TensorType(body.dtype, tuple(shape[o] for o in order)))
    return Kernel("loops", params, 1, Loops(axes), (Store(len(types), index, body),))


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5, 37), (2, 1, 131), (4, 16, 16)])
def test_elementwise_kernels_of_any_shape(shape: tuple[int, ...]) -> None:
    check(elementwise(shape, lambda a, b: call("max", a * b + 1.5, 0.0), F32, F32))


@pytest.mark.parametrize("dtype", [F64, F16, BF16, I8, I32, I64])
def test_elementwise_kernels_of_any_type(dtype: DType) -> None:
    check(elementwise((5, 33), lambda a, b: call("min", a + b, a), dtype, dtype))


@pytest.mark.parametrize("order", [(1, 0, 2), (2, 1, 0), (0, 2, 1)])
def test_transposes(order: tuple[int, ...]) -> None:
    check(elementwise((6, 17, 35), lambda a: a * 2.0, F32, out=order))


@pytest.mark.parametrize(
    ("rows", "cols", "tiled"),
    [(48, 80, True), (72, 40, True), (36, 44, True), (37, 80, False), (16, 80, False)],
)
def test_a_transposed_operand_is_read_in_tiles(rows: int, cols: int, tiled: bool) -> None:
    """A tile is a loop more. There is none for an axis that no part of a cache line divides, or that is one part."""
    i, j = axes_of((rows, cols))
    shapes = ((rows, cols), (cols, rows), (rows, cols))
    params = tuple(TensorType(F32, shape) for shape in shapes)
    kernels = [
        Kernel("loops", params, 1, Loops((i, j)), (Store(2, (i, j), load(0, (i, j), F32) + load(1, where, F32)),))
        for where in ((j, i), (index(0), i))
    ]

    check(kernels[0])

    loops = [emit(kernel, default_schedule(kernel), cpu.host(), "k").text.count("phi i64") for kernel in kernels]
    assert (loops[0] > loops[1]) == tiled


def test_mixed_element_types_in_one_kernel() -> None:
    check(elementwise((3, 41), lambda a, b, c: select(a, cast(b, F32), c), BOOL, F16, F32))


def test_broadcasts_and_two_results() -> None:
    axes = axes_of((4, 9, 21))
    total = load(0, (axes[1],), F32) + load(1, (axes[0], axes[2]), F32)
    params = (TensorType(F32, (9,)), TensorType(F32, (4, 21)), TensorType(F32, (4, 9, 21)), TensorType(F32, (21, 36)))
    both_stores = (Store(2, axes, total), Store(3, (axes[2], axes[0] * 9 + axes[1]), total * 3.0))
    check(Kernel("loops", params, 2, Loops(axes), both_stores))


def test_an_axis_used_as_a_number() -> None:
    axes = axes_of((3, 29))
    body = cast(axes[1] * 7 + axes[0], F32) * load(0, axes, F32)
    check(Kernel("loops", (TensorType(F32, (3, 29)),) * 2, 1, Loops(axes), (Store(1, axes, body),)))


def test_a_reduction_inside_with_guards_that_lanes_disagree_on() -> None:
    axes, taps = axes_of((5, 43)), axes_of((3,), "r")
    at = axes[1] + taps[0] - 1
    body = reduce("sum", taps, select(both([at >= 0, at < 43]), load(0, (axes[0], at), F32), 0.0))
    check(Kernel("loops", (TensorType(F32, (5, 43)),) * 2, 1, Loops(axes), (Store(1, axes, body),)), terms=3)


@pytest.mark.parametrize(("channels", "stride"), [(5, 1), (33, 2), (64, 1)])
def test_depthwise_convolution(channels: int, stride: int) -> None:
    out = (11 + 2 - 3) // stride + 1
    axes, taps = axes_of((2, out, out, channels)), axes_of((3, 3), "r")
    y, x = axes[1] * stride + taps[0] - 1, axes[2] * stride + taps[1] - 1
    value = select(both([y >= 0, y < 11, x >= 0, x < 11]), load(0, (axes[0], y, x, axes[3]), F32), 0.0)
    body = reduce("sum", taps, value * load(1, (*taps, axes[3]), F32))
    params = (TensorType(F32, (2, 11, 11, channels)), TensorType(F32, (3, 3, channels)),
              TensorType(F32, (2, out, out, channels)))  # fmt: skip
    check(Kernel("loops", params, 1, Loops(axes), (Store(2, axes, body),)), terms=9)


# windows and rows


@pytest.mark.parametrize(("op", "dtype"), [("max", F32), ("sum", F32), ("min", I32), ("max", F64)])
def test_pooling(op: str, dtype: DType) -> None:
    domain, window = axes_of((1, 6, 6, 19)), axes_of((3, 2), "r")
    acc = hole("acc", dtype)
    y, x = domain[1] * 2 + window[0] - 1, domain[2] + window[1]
    outside = 0 if op == "sum" else (-1000 if op == "max" else 1000)
    value = select(both([y >= 0, y < 11]), load(0, (domain[0], y, x, domain[3]), dtype), outside)
    params = (TensorType(dtype, (1, 11, 7, 19)), TensorType(dtype, (1, 6, 6, 19)))
    kernel = Kernel("pool", params, 1, Window(domain, window, op, value, acc), (Store(1, domain, acc + 1),))
    check(kernel, terms=6)


def softmax(rows: tuple[int, ...], cols: tuple[int, ...], *, columns_first: bool = False) -> Kernel:
    r, c = axes_of(rows, "i"), axes_of(cols, "j")
    index = (*c, *r) if columns_first else (*r, *c)
    shape = (*cols, *rows) if columns_first else (*rows, *cols)
    x = load(0, index, F32)
    top, total = hole("s0", F32), hole("s1", F32)
    body = Rowwise(r, c, (Statistic(top, "max", x), Statistic(total, "sum", call("exp", x - top))))
    params = (TensorType(F32, shape),) * 2
    return Kernel("norm", params, 1, body, (Store(1, index, call("exp", x - top) / total),))


@pytest.mark.parametrize(
    ("rows", "cols"), [((1,), (1,)), ((3, 5), (37,)), ((7,), (128,)), ((2,), (3, 131)), ((), (50,))]
)
def test_softmax_over_contiguous_columns(rows: tuple[int, ...], cols: tuple[int, ...]) -> None:
    check(softmax(rows, cols))


@pytest.mark.parametrize(("rows", "cols"), [((2, 19), (7,)), ((64,), (5, 3))])
def test_softmax_over_contiguous_rows(rows: tuple[int, ...], cols: tuple[int, ...]) -> None:
    check(softmax(rows, cols, columns_first=True))


@pytest.mark.parametrize(("op", "dtype"), [("sum", F32), ("max", F32), ("min", F64), ("prod", I64), ("sum", I32)])
@pytest.mark.parametrize("shape", [(5, 1), (3, 77), (1, 513)])
def test_row_reductions(op: str, dtype: DType, shape: tuple[int, int]) -> None:
    r, c = axes_of(shape[:1], "i"), axes_of(shape[1:], "j")
    result = hole("s0", dtype)
    body = Rowwise(r, c, (Statistic(result, op, load(0, (*r, *c), dtype)),), frozenset({0}))
    params = (TensorType(dtype, shape), TensorType(dtype, shape[:1]))
    check(Kernel("reduce", params, 1, body, (Store(1, r, result * 2),)), terms=shape[1])


def test_nan_wins_every_extremum_over_lanes() -> None:
    r, c = axes_of((2,), "i"), axes_of((53,), "j")
    result = hole("s0", F32)
    body = Rowwise(r, c, (Statistic(result, "max", load(0, (*r, *c), F32)),), frozenset({0}))
    kernel = Kernel("reduce", (TensorType(F32, (2, 53)), TensorType(F32, (2,))), 1, body, (Store(1, r, result),))
    x = np.arange(106, dtype=np.float32).reshape(2, 53)
    x[1, 20] = np.nan

    (actual,) = Library({"k": kernel}).run("k", [x])

    np.testing.assert_array_equal(actual, [52, np.nan])


# contractions


def convolution(n: int, size: tuple[int, int], c: int, oc: int, taps: int, stride: int, pad: int, dtype: DType = F32,
                groups: int = 1) -> Kernel[Contraction]:  # fmt: skip
    out = [(s + 2 * pad - taps) // stride + 1 for s in size]
    group = (var("g", groups),) if groups > 1 else ()
    m, nn = (var("i", n), var("y", out[0]), var("x", out[1])), (var("o", oc),)
    k = (var("r", taps), var("s", taps), var("c", c))
    y, x = m[1] * stride - pad + k[0], m[2] * stride - pad + k[1]
    channel = group[0] * c + k[2] if group else k[2]
    a: Expr = load(0, (m[0], y, x, channel), dtype)
    if pad:
        a = select(both([y >= 0, y < size[0], x >= 0, x < size[1]]), a, 0)
    result = group[0] * oc + nn[0] if group else nn[0]
    acc_type = accumulated(dtype)
    acc = hole("acc", acc_type)
    b = load(1, (*k, result), dtype)
    value = call("max", acc + load(2, (result,), acc_type), 0)
    shape = (n, *out, oc * groups)
    params = (TensorType(dtype, (n, *size, c * groups)), TensorType(dtype, (taps, taps, c, oc * groups)),
              TensorType(acc_type, (oc * groups,)), TensorType(acc_type, shape))  # fmt: skip
    body = Contraction(group, m, nn, k, cast(a, acc_type), cast(b, acc_type), acc)
    return Kernel("contraction", params, 1, body, (Store(3, (*m, result), value),))


def matmul(
    batch: int, m: int, n: int, k: int, *, ta: bool = False, tb: bool = False, dtype: DType = F32
) -> Kernel[Contraction]:
    b, i, j, r = var("b", batch), var("i", m), var("j", n), var("r", k)
    left, right = ((b, r, i) if ta else (b, i, r)), ((b, j, r) if tb else (b, r, j))
    acc_type = accumulated(dtype)
    acc = hole("acc", acc_type)
    body = Contraction((b,), (i,), (j,), (r,), cast(load(0, left, dtype), acc_type),
                       cast(load(1, right, dtype), acc_type), acc)  # fmt: skip
    params = tuple(
        TensorType(t, tuple(v.extent for v in index))
        for t, index in ((dtype, left), (dtype, right), (acc_type, (b, i, j)))
    )
    return Kernel("contraction", params, 1, body, (Store(2, (b, i, j), acc),))


def depth(kernel: Kernel) -> int:
    assert isinstance(kernel.body, Contraction)
    return int(np.prod([v.extent for v in kernel.body.k]))


@pytest.mark.parametrize(
    "kernel",
    [
        convolution(1, (7, 9), 5, 11, 3, 1, 1),
        convolution(2, (8, 6), 3, 19, 7, 2, 3),
        convolution(1, (6, 6), 33, 33, 3, 2, 1),
        convolution(1, (5, 5), 17, 64, 1, 1, 0),
        convolution(1, (4, 5), 200, 50, 3, 1, 1),
        convolution(1, (5, 7), 6, 9, 3, 1, 1, groups=3),
        convolution(1, (6, 5), 8, 21, 3, 1, 1, dtype=F16),
        convolution(1, (6, 5), 8, 21, 3, 1, 1, dtype=I8),
    ],
    ids=lambda k: str(k.params[0]),
)
def test_convolutions(kernel: Kernel) -> None:
    check(kernel, terms=depth(kernel))


@pytest.mark.parametrize("tb", [False, True])
@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("sizes", [(2, 13, 37, 29), (1, 1, 50, 70), (3, 17, 1, 23), (1, 31, 97, 515), (1, 1, 1, 1)])
def test_matrix_products(sizes: tuple[int, int, int, int], ta: bool, tb: bool) -> None:
    check(matmul(*sizes, ta=ta, tb=tb), terms=sizes[3])


@pytest.mark.parametrize("dtype", [F64, BF16, I32, I64, I8])
def test_matrix_products_of_any_type(dtype: DType) -> None:
    check(matmul(2, 9, 21, 35, tb=True, dtype=dtype), terms=35)


def test_a_heavy_epilogue_with_residual_and_a_transposing_store() -> None:
    i, j, k = var("i", 23), var("j", 45), var("k", 19)
    acc = hole("acc", F32)
    x = acc + load(2, (i, j), F32)
    gelu = x * 0.5 * (call("erf", x * 0.70710678) + 1.0)
    body = Contraction((), (i,), (j,), (k,), load(0, (i, k), F32), load(1, (k, j), F32), acc)
    params = (TensorType(F32, (23, 19)), TensorType(F32, (19, 45)), TensorType(F32, (23, 45)),
              TensorType(F32, (45, 23)), TensorType(F32, (23, 45)))  # fmt: skip
    check(Kernel("contraction", params, 2, body, (Store(3, (j, i), gelu), Store(4, (i, j), x))), terms=19)


def test_prologues_are_computed_while_packing() -> None:
    i, j, k = var("i", 13), var("j", 18), var("k", 40)
    acc = hole("acc", F32)
    a = call("max", load(0, (i, k), F32) * load(2, (k,), F32), 0.0)
    body = Contraction((), (i,), (j,), (k,), a, load(1, (k, j), F32) + 1.0, acc)
    params = (TensorType(F32, (13, 40)), TensorType(F32, (40, 18)), TensorType(F32, (40,)), TensorType(F32, (13, 18)))
    check(Kernel("contraction", params, 1, body, (Store(3, (i, j), acc),)), terms=40)


def test_products_of_vectors_along_k_are_dot_products() -> None:
    assert contraction_form(matmul(1, 1, 50, 70, tb=True)) == "rows"
    assert contraction_form(matmul(1, 1, 50, 70)) == "gemm"
    assert contraction_form(matmul(1, 0, 5, 7)) == "loops"


def test_an_empty_sum_is_zero() -> None:
    kernel = matmul(1, 3, 5, 0)

    (actual,) = Library({"k": kernel}).run("k", [np.zeros((1, 3, 0), np.float32), np.zeros((1, 0, 5), np.float32)])

    np.testing.assert_array_equal(actual, np.zeros((1, 3, 5), np.float32))


# spaces


def test_empty_results_have_no_tasks() -> None:
    kernel = elementwise((4, 0, 3), lambda a: a + 1.0, F32)

    source = emit(kernel, default_schedule(kernel), cpu.host(), "k")

    assert source.geometry.groups[0] == 0


def test_large_kernels_have_tasks_for_many_threads_and_small_ones_have_one() -> None:
    large, small = matmul(1, 512, 512, 512), elementwise((50,), lambda a: a + 1.0, F32)

    tasks = [emit(k, default_schedule(k), cpu.host(), "k").geometry.groups[0] for k in (large, small)]

    assert tasks[0] >= 16
    assert tasks[1] == 1


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
@pytest.mark.parametrize("kernel", [matmul(1, 3136, 64, 576), matmul(1, 1, 1000, 2048), softmax((3,), (9,))],
                         ids=["large", "thin", "softmax"])  # fmt: skip
def test_defaults_are_legal_at_every_vector_width(kernel: Kernel, vector_bytes: int) -> None:
    limits = Limits(vector_bytes=vector_bytes, registers=32 if vector_bytes == 64 else 16)
    family = family_of(kernel)
    problem = family.problem(kernel)

    assert family.reasons(family.default(problem, limits).numbers, problem, limits) == []


@pytest.mark.parametrize(
    "family", dict.fromkeys(chain.from_iterable(ENGINES.values())), ids=lambda family: family.title
)
def test_an_engine_names_its_numbers_by_types(family: Family) -> None:
    assert issubclass(family.space, Tunables)
    with pytest.raises(TypeError, match="unknown \\['colums'\\]"):
        family.schedule({"colums": 1})


@pytest.mark.parametrize("kernel", [matmul(1, 31, 64, 57), matmul(1, 1, 100, 204), softmax((3,), (9,))],
                         ids=["large", "thin", "softmax"])  # fmt: skip
def test_problems_and_defaults_are_of_these_types(kernel: Kernel) -> None:
    family = family_of(kernel)
    problem = family.problem(kernel)

    assert isinstance(problem, Sizes)
    assert isinstance(family.default(problem, Limits(vector_bytes=32)), family.space)


def test_vectors_wider_than_the_processors_are_refused() -> None:
    kernel = elementwise((50,), lambda a: a + 1.0, F32)

    with pytest.raises(ScheduleError, match="16 lanes of 4 bytes, 2 vectors of the processor have 32"):
        emit(kernel, {**default_schedule(kernel), "lanes": 16}, cpu.named("cpu:x86-64-v2"), "k")


def test_scratch_that_the_stack_may_not_hold_is_refused() -> None:
    kernel = matmul(1, 4096, 4096, 4096)
    schedule = {**default_schedule(kernel), "tile_m": 512, "kc": 2048, "pack_a": 1}

    with pytest.raises(ScheduleError, match=f"{STACK_BYTES} are allowed"):
        emit(kernel, schedule, cpu.host(), "k")


@pytest.mark.parametrize("label", ["Add f32[3,5]", "a\nret void", "@k0(", "b\u2028\r;", ""])
def test_a_comment_gives_the_problem_and_the_schedule_and_changes_no_statement(label: str) -> None:
    kernel = elementwise((3, 5), lambda a, b: a + b, F32, F32)
    named, schedule = dataclasses.replace(kernel, label=label), default_schedule(kernel)

    text, plain = (emit(one, schedule, cpu.host(), "k0").text for one in (named, kernel))

    header, rest = text.split("\n\n", 1)
    assert [line.split()[:2][-1] for line in header.split("\n")[1:]] == ["problem", "schedule", "engine"]
    assert all(line.startswith("; ") for line in header.split("\n"))
    assert rest.startswith("define void @k0(")
    assert statements(text) == statements(plain)
