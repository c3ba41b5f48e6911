"""Contractions whose rows, columns, batch or depth each run decides: numpy's numbers, and the bits of static kernels."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise

import pytest

from gpucomp.codegen.llvm import emit
from gpucomp.codegen.llvm.contraction.rest import heights_of_rest
from gpucomp.codegen.llvm.contraction.space import contraction_form
from gpucomp.codegen.llvm.engines import REGISTER_BLOCKS as FAMILY
from gpucomp.device.target import Target
from gpucomp.expr.core import hole, load, var
from gpucomp.ir.conditions import Assumed, assuming
from gpucomp.ir.dim import Dim
from gpucomp.ir.size import size_of
from gpucomp.ir.types import BF16, F16, F32, F64, I8, I32, TensorType
from gpucomp.kernel import Contraction, Kernel, Store
from gpucomp.kernel.example import example_of
from gpucomp.kernel.passes.pack_weights import packable
from gpucomp.schedule.space import Schedule
from gpucomp.targets import cpu
from testing.any_size import AnySize
from testing.kernels import conv, grouped_conv, matmul
from testing.tolerance import assert_matches
from tests.native import HERE

Build = Callable[..., Kernel[Contraction]]
At = Mapping[str, int]
M, N, K, SEQUENCE = Dim("m", 1, 512), Dim("n", 1, 100), Dim("k", 1, 900), Dim("s", 1, 200)
IMAGE = {"n": Dim("n", 1, 3), "h": Dim("h", 9, 40), "w": Dim("w", 9, 40)}
IMAGES = ({"n": 1, "h": 9, "w": 9}, {"n": 2, "h": 17, "w": 11}, {"n": 1, "h": 40, "w": 40}, {"n": 3, "h": 12, "w": 13})


def constant_weights(kernel: Kernel[Contraction]) -> Kernel[Contraction]:
    return dataclasses.replace(kernel, constants=frozenset({1}))


def some_schedules(kernel: AnySize, count: int) -> list[Schedule]:
    """``count`` random schedules that are legal for the example."""
    problem, target = FAMILY.problem(example_of(kernel.plain)), kernel.target
    chooser, found = random.Random(example_of(kernel.plain).digest), []
    while len(found) < count:
        trial = {p.name: chooser.choice(p.choices) for p in FAMILY.params}
        trial["lanes"] = target.limits.vector_bytes // 4
        if not FAMILY.reasons(trial, problem, target.limits):
            found.append(trial)
    return found


def check(
    build: Build, dims: Mapping[str, Dim], sizes: Sequence[At], schedules: int = 2, target: Target | None = None
) -> None:
    """Right at all ``sizes`` by the default and by random schedules, and equal to static kernels at the last size."""
    kernel = AnySize(build, dims, target=target, family=FAMILY)
    others = [AnySize(build, dims, target=target, family=FAMILY, schedule=s) for s in some_schedules(kernel, schedules)]
    for one in (kernel, *others):
        for at in sizes:
            one.check(bits=at is sizes[-1], **at)


PRODUCTS: dict[str, tuple[Build, dict[str, Dim], Sequence[At]]] = {
    "rows": (
        lambda m: constant_weights(matmul(m, 96, 403)), {"m": M}, [{"m": m} for m in (1, 2, 7, 64, 512, 113)],
    ),
    "rows by eights": (
        lambda m: constant_weights(matmul(m, 131, 37)), {"m": Dim("m", 8, 512, 8)}, [{"m": m} for m in (8, 24, 504)],
    ),
    "rows of a batch": (
        lambda b, m: matmul(m, 40, 19, batch=(b,)), {"b": Dim("b", 1, 8), "m": M},
        [{"b": 1, "m": 1}, {"b": 8, "m": 100}, {"b": 3, "m": 13}],
    ),
    "columns": (lambda n: matmul(37, n, 19), {"n": Dim("n", 1, 300)}, [{"n": n} for n in (1, 16, 33, 300, 97)]),
    "depth": (lambda k: matmul(37, 41, k), {"k": K}, [{"k": k} for k in (1, 2, 64, 500, 900, 97)]),
    "all": (
        lambda m, n, k: matmul(m, n, k), {"m": Dim("m", 1, 100), "n": N, "k": K},
        [{"m": 1, "n": 1, "k": 1}, {"m": 100, "n": 100, "k": 900}, {"m": 13, "n": 17, "k": 385}],
    ),
    "all, a transposed": (
        lambda m, n, k: matmul(m, n, k, a_transposed=True), {"m": Dim("m", 1, 100), "n": N, "k": K},
        [{"m": 1, "n": 1, "k": 1}, {"m": 100, "n": 100, "k": 900}, {"m": 13, "n": 17, "k": 385}],
    ),
    "queries by keys": (
        lambda s: matmul(s, s, 64, batch=(2, 3), b_transposed=True), {"s": SEQUENCE},
        [{"s": s} for s in (1, 2, 5, 64, 200, 113)],
    ),
    "weights by values": (
        lambda s: matmul(s, 64, s, batch=(2, 3)), {"s": SEQUENCE}, [{"s": s} for s in (1, 2, 5, 64, 200, 113)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_any_size(name: str) -> None:
    check(*PRODUCTS[name])


CONVOLUTIONS: dict[str, Build] = {
    "3x3 padded": lambda n, h, w: conv((n, h, w, 19), 40, (3, 3), pad=1),
    "3x3 strided": lambda n, h, w: conv((n, h, w, 8), 24, (3, 3), stride=2, pad=1),
    "5x3 dilated": lambda n, h, w: conv((n, h, w, 7), 17, (5, 3), pad=2, dilation=2),
    "1x1": lambda n, h, w: conv((n, h, w, 21), 35, (1, 1)),
    "1x1 strided": lambda n, h, w: conv((n, h, w, 21), 35, (1, 1), stride=2),
    "3x3 deep": lambda n, h, w: conv((n, h, w, 150), 50, (3, 3), pad=1),
    "grouped": lambda n, h, w: grouped_conv((n, h, w, 27), 3, 10, (3, 3), pad=1),
    "stem of planes": lambda n, h, w: conv((n, h, w, 3), 21, (7, 7), stride=2, pad=3, nchw=True),
    "stem of one plane": lambda n, h, w: conv((n, h, w, 1), 5, (3, 5), pad=1, nchw=True),
    "stem of pixels": lambda n, h, w: conv((n, h, w, 4), 33, (3, 3), stride=2, pad=1),
    "planes": lambda n, h, w: conv((n, h, w, 23), 40, (3, 3), pad=1, nchw=True),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_of_images_of_any_size(name: str) -> None:
    check(lambda **sizes: constant_weights(CONVOLUTIONS[name](**sizes)), IMAGE, IMAGES)


@pytest.mark.parametrize("target", HERE, ids=lambda t: t.arch)
def test_any_size_on_every_level_of_processors(target: Target) -> None:
    check(*PRODUCTS["all"], schedules=1, target=target)
    check(CONVOLUTIONS["stem of planes"], IMAGE, IMAGES[:2], schedules=1, target=target)


@pytest.mark.parametrize(("dtype", "acc"), [(F16, None), (BF16, None), (I8, I32), (F64, F64)], ids=str)
def test_other_types_of_any_size(dtype, acc) -> None:
    options = {} if acc is None else {"acc": acc}
    check(lambda m: constant_weights(matmul(m, 37, 70, dtype=dtype, **options)), {"m": M}, [{"m": 1}, {"m": 43}])


def two_axes_of_depth(outer: int, m: int) -> Kernel[Contraction]:
    """The sum over two axes of a[outer, m, inner] and b[outer, inner, n]."""
    c, k, i, j = var("k0", outer), var("k1", 8), var("m0", m), var("n0", 40)
    acc = hole("acc", F32)
    body = Contraction((), (i,), (j,), (c, k), load(0, (c, i, k), F32), load(1, (c, k, j), F32), acc)
    params = tuple(TensorType(F32, shape) for shape in ((outer, m, 8), (outer, 8, 40), (m, 40)))
    return Kernel("contraction", params, 1, body, (Store(2, (i, j), acc),))


def test_a_row_has_no_pointers_if_their_number_is_open() -> None:
    dims = {"outer": Dim("outer", 1, 90), "m": Dim("m", 1, 90)}

    check(two_axes_of_depth, dims, [{"outer": 1, "m": 1}, {"outer": 90, "m": 90}, {"outer": 13, "m": 17}])


def test_empty_rows_columns_and_depths() -> None:
    dims = {name: Dim(name, 0, 900) for name in "mnk"}
    kernel = AnySize(lambda m, n, k: matmul(m, n, k), dims, family=FAMILY)

    for m, n, k in ((0, 3, 4), (3, 0, 4), (3, 4, 0), (50, 50, 0), (64, 63, 900)):
        kernel.check(m=m, n=n, k=k)


@pytest.mark.parametrize(
    ("build", "dims", "form"),
    [
        (lambda k: matmul(1, 30, k, b_transposed=True), {"k": K}, "rows"),
        (lambda m: matmul(m, 3, 70, b_transposed=True), {"m": M}, "rows"),
        (lambda m: matmul(m, 13, 70, dtype=F16, acc=F16), {"m": M}, "loops"),
    ],
    ids=["a row", "few columns", "short sums"],
)
def test_the_other_forms_take_any_size(build: Build, dims: Mapping[str, Dim], form: str) -> None:
    kernel = AnySize(build, dims, family=FAMILY)

    assert contraction_form(example_of(kernel.plain)) == form
    for size in (1, 5, 97, 512):
        kernel.check(**dict.fromkeys(dims, size), compare=partial(assert_matches, terms=900))  # sums in f16 too


def test_deep_blocks_are_shortened_to_fit_the_stack() -> None:
    build = lambda k: matmul(64, 64, k, a_transposed=True, b_transposed=True)  # noqa: E731
    kernel = AnySize(build, {"k": Dim("k", 1, 65536)}, example={"k": 64}, family=FAMILY)
    deep = AnySize(build, kernel.dims, family=FAMILY, example={"k": 64}, schedule={**kernel.schedule, "kc": 1 << 20})

    for k in (1, 1000, 20011):
        deep.check(k=k)


def test_lines_that_may_be_too_long_for_the_stack_are_not_copied() -> None:
    dims = {"w": Dim("w", 8, 65536)}
    build = lambda w: constant_weights(conv((1, 9, w, 3), 8, (7, 7), stride=2, pad=3, nchw=True))  # noqa: E731
    default = AnySize(build, dims, example={"w": 64}, family=FAMILY).schedule
    kernel = AnySize(build, dims, example={"w": 64}, family=FAMILY, schedule={**default, "pack_a": 2})

    kernel.check(w=33)
    kernel.check(w=3001)


def test_constants_of_any_size_have_no_layout() -> None:
    with assuming(Assumed()):
        some = size_of(N, 50)
        kernels = [constant_weights(k) for k in (matmul(5, some, 7), matmul(5, 7, some), matmul(some, 7, 9))]

    assert [packable(kernel, "b") for kernel in kernels] == [False, False, True]
    assert [sorted(example_of(kernel).constants) for kernel in kernels] == [[], [], [1]]


def test_a_rest_of_rows_has_a_block_that_is_not_much_larger() -> None:
    assert heights_of_rest(8, lowest=3) == [7, 6, 4, 3]
    assert heights_of_rest(1, lowest=1) == []
    for mr in (2, 4, 6, 12, 14):
        heights = heights_of_rest(mr, lowest=1)
        assert heights[0] == mr - 1
        assert heights[-1] == 1
        assert all(small < large <= 2 * small for large, small in pairwise(heights))


def test_a_multiple_of_the_block_has_no_rest() -> None:
    with assuming(Assumed()):
        many, some = (matmul(size_of(Dim("m", 8, 512, step), 64), 96, 40) for step in (8, 1))
    schedule = {**FAMILY.default(FAMILY.problem(example_of(many)), cpu.host().limits).numbers, "mr": 4}

    assert "rest" not in emit(many, schedule, cpu.host(), "k").text
    assert "rest" in emit(some, schedule, cpu.host(), "k").text
