"""Pools and depthwise convolutions, channels first, compared with their expressions, evaluated by numpy."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import numpy as np
import pytest

from gpucomp.codegen.llvm.engines import PLANES_OF_LOOPS, PLANES_OF_POOL, engines_of
from gpucomp.codegen.llvm.windows import planes_emit
from gpucomp.codegen.llvm.windows.planes_emit import BAND_BYTES, Band
from gpucomp.codegen.llvm.windows.planes_space import MOST_WRITTEN
from gpucomp.device.target import Target
from gpucomp.expr.core import Expr, both, call, literal, select, var
from gpucomp.ir.dim import Dim
from gpucomp.ir.types import F16, F32, F64, I8, I32, U8
from gpucomp.kernel import Kernel, Window
from gpucomp.kernel.forms.planes import planes_of
from gpucomp.kernel.forms.sliding import Slide
from gpucomp.kernel.interpreter import expected
from gpucomp.refusal import required
from gpucomp.schedule.space import Family, Schedule
from gpucomp.targets import cpu
from testing.any_size import AnySize
from testing.kernels import average_pool, depthwise, into_part, max_pool, random_inputs
from testing.kernels import channels_first as first
from testing.tolerance import assert_matches
from tests.native import HERE, WIDEST, Library

LONG = 3 * BAND_BYTES // 4  # outputs of a row that needs several bands


def corner(kernel: Kernel[Window]) -> Kernel[Window]:
    """``kernel`` with a corner of its image replaced by padding: that is no frame."""
    y, x = (kernel.body.domain[d] + kernel.body.window[d - 1] for d in (1, 2))
    value = kernel.body.value
    return replace(
        kernel, body=replace(kernel.body, value=replace(value, condition=both([value.condition, y + x >= 7])))
    )


POOLS: list[Kernel] = [
    first(max_pool((2, 9, 10, 3), 3, 2, 1)),
    first(max_pool((1, 23, 4 * WIDEST + 7, 2), 3, 2, 1)),
    first(max_pool((1, 8, 2 * WIDEST, 5), 2, 2, 0)),
    first(max_pool((1, 11, 37, 2), 3, 1, 1)),
    first(max_pool((1, 17, 41, 2), 5, 3, 2)),
    first(max_pool((1, 25, 61, 2), 4, 4, 0)),
    first(max_pool((1, 27, 71, 2), 7, 6, 3)),
    first(max_pool((1, 6, 20, 2), 2, 3, 0)),
    first(max_pool((1, 12, 31, 3), 3, 2, 1, dtype=I8)),
    first(max_pool((1, 12, 31, 3), 3, 2, 1, dtype=U8)),
    first(max_pool((1, 12, 31, 3), 3, 2, 1, dtype=I32)),
    first(max_pool((1, 12, 31, 3), 3, 2, 1, dtype=F64)),
    first(max_pool((1, 12, 31, 3), 3, 2, 1, dtype=F16)),
    first(average_pool((1, 8, 13, 7), (3, 3), 1, 1)),
    first(average_pool((2, 15, 2 * WIDEST + 9, 3), (5, 2), 2, 1)),
    first(average_pool((1, 1, 57, 3), (1, 5), 2, 2)),
    first(average_pool((1, 9, 19, 3), (2, 2), 2, 0, dtype=F16)),
    first(average_pool((1, 3, LONG, 1), (1, 3), 1, 1)),
    first(max_pool((1, 3, LONG, 1), 3, 2, 1)),
    first(max_pool((1, 2, 5 * LONG, 1), 2, 5, 0)),
    into_part(first(max_pool((1, 9, 11, 4), 3, 1, 1)), 1, 3, 2),
    corner(first(max_pool((1, 9, 31, 4), 3, 1, 1))),
]
PRODUCTS: list[Kernel] = [
    first(depthwise((1, 9, 11, 3), (3, 3), pad=1)),
    first(depthwise((2, 21, 2 * WIDEST + 5, 3), (3, 3), pad=1)),
    first(depthwise((2, 17, 33, 2), (3, 3), stride=(2, 2), pad=1)),
    first(depthwise((1, 28, 28, 4), (5, 5), stride=(2, 2), pad=2)),
    first(depthwise((1, 6, 23, 9), (5, 3), stride=(1, 2))),
    first(depthwise((1, 11, 17, 7), (3, 3), dilation=(2, 3), pad=2)),
    first(depthwise((1, 1, 29, 5), (1, 7))),
    first(depthwise((1, 10, 49, 3), (2, 4), stride=(3, 3))),
    first(depthwise((1, 12, 67, 3), (2, 7), stride=(1, 5), pad=3)),
    first(depthwise((1, 7, 7, 6), (7, 7), pad=3)),
    first(depthwise((1, 15, 41, 2), (3, 3), stride=(2, 2), dilation=(2, 2))),
    first(depthwise((1, 90, 90, 2), (3, 3), pad=1)),
    first(depthwise((1, 2, LONG, 1), (1, 3), stride=(1, 2), pad=1)),
    first(depthwise((1, 4, LONG // 2, 1), (3, 3), pad=1)),
    into_part(first(depthwise((1, 6, 7, 3), (3, 3), pad=1)), 1, 5, 2),
]


def family_of(kernel: Kernel) -> Family:
    return PLANES_OF_POOL if isinstance(kernel.body, Window) else PLANES_OF_LOOPS


def spread(kernel: Kernel) -> list[Schedule]:
    """The default and a few legal schedules."""
    family, limits = family_of(kernel), cpu.host().limits
    problem = family.problem(kernel)
    found: list[Schedule] = [dict(family.default(problem, limits).numbers)]
    chooser = random.Random(kernel.digest)
    while len(found) < 3:
        trial = {p.name: chooser.choice(p.choices) for p in family.params}
        if not family.reasons(trial, problem, limits):
            found.append(trial)
    return found


LIBRARIES: dict[int, Library] = {}


def terms(kernel: Kernel) -> int:
    found = required(planes_of(kernel))
    return found.y.taps * found.x.taps


@pytest.mark.parametrize("kernel", [*POOLS, *PRODUCTS], ids=lambda k: f"{k.label} {k.params[0]}")
def test_every_schedule_gives_what_the_expressions_say(kernel: Kernel) -> None:
    schedules = spread(kernel)
    names = [f"k{i}" for i in range(len(schedules))]
    library = Library(dict.fromkeys(names, kernel), dict(zip(names, schedules, strict=True)), family=family_of(kernel))
    inputs = random_inputs(kernel)
    wanted = expected(kernel, inputs)

    assert family_of(kernel) in engines_of(kernel, cpu.host().features)
    for name in names:
        for actual, result in zip(library.run(name, inputs), wanted, strict=True):
            assert_matches(actual, result, terms=terms(kernel))


@pytest.mark.parametrize("target", HERE, ids=lambda t: t.name)
@pytest.mark.parametrize(
    "kernel", [POOLS[0], POOLS[4], POOLS[14], PRODUCTS[1], PRODUCTS[3]], ids=lambda k: f"{k.params[0]}"
)
def test_every_processor_gives_the_same(kernel: Kernel, target: Target) -> None:
    family = family_of(kernel)
    schedule = family.default(family.problem(kernel), target.limits).numbers
    inputs = random_inputs(kernel)

    results = Library({"k": kernel}, {"k": schedule}, target, family).run("k", inputs)

    for actual, result in zip(results, expected(kernel, inputs), strict=True):
        assert_matches(actual, result, terms=terms(kernel))


@pytest.mark.parametrize("window", [2, 3, 4, 5])
@pytest.mark.parametrize("place", range(0, 40, 3))
def test_a_maximum_keeps_nan_wherever_it_is_in_the_window(window: int, place: int) -> None:
    kernel = first(max_pool((1, 6, 20, 1), window, 1, 1))
    (image,) = random_inputs(kernel)
    image.reshape(-1)[place] = np.nan
    image.reshape(-1)[place + 60] = -np.nan
    library = LIBRARIES.setdefault(window, Library({"k": kernel}, {"k": spread(kernel)[0]}, family=PLANES_OF_POOL))

    (actual,) = library.run("k", [image])

    np.testing.assert_array_equal(actual, expected(kernel, [image])[0])


N, H, W = Dim("n", 1, 4), Dim("h", 1, 60), Dim("w", 4, 90)
SIZES = ((1, 1, 4), (2, 3, 5), (1, 2, 8), (3, 4, 13), (1, 60, 17), (4, 7, 90))
OPEN = {
    "max pool": (lambda n, h, w: first(max_pool((n, h, w, 3), 3, 2, 1)), W, SIZES),
    "average pool": (lambda n, h, w: first(average_pool((n, h, w, 3), (3, 3), 1, 1)), W, SIZES),
    "3x3": (lambda n, h, w: first(depthwise((n, h, w, 3), (3, 3), pad=1)), W, SIZES),
    "5x5, stride 2": (lambda n, h, w: first(depthwise((n, h, w, 3), (5, 5), stride=(2, 2), pad=2)), W, SIZES),
    "3x7, stride 6": (lambda n, h, w: first(depthwise((n, h, w, 3), (3, 7), stride=(1, 6), pad=3)), W, SIZES),
    "pool, stride 5": (lambda n, h, w: first(max_pool((n, h, w, 3), 3, 5, 1)), W, SIZES),
    "rows of several bands": (
        lambda n, h, w: first(depthwise((n, h, w, 1), (3, 3), pad=1)),
        Dim("w", 4, 4 * BAND_BYTES),
        (*SIZES, (1, 2, LONG), (1, 3, 2 * BAND_BYTES + 5)),
    ),
    "pooled rows of several bands": (
        lambda n, h, w: first(max_pool((n, h, w, 1), 3, 2, 1)),
        Dim("w", 4, 4 * BAND_BYTES),
        (*SIZES, (1, 2, LONG), (1, 3, 2 * BAND_BYTES + 5)),
    ),
}


@pytest.mark.parametrize("name", OPEN)
def test_images_of_any_size(name: str) -> None:
    build, wide, sizes = OPEN[name]
    family = PLANES_OF_POOL if "pool" in name else PLANES_OF_LOOPS
    kernel = AnySize(build, {"n": N, "h": H, "w": wide}, family=family)

    for n, h, w in sizes:
        kernel.check(n=n, h=h, w=w)


def with_value(kernel: Kernel[Window], value: Expr) -> Kernel[Window]:
    return replace(kernel, body=replace(kernel.body, value=value))


POOL = first(max_pool((1, 9, 40, 3), 3, 2, 1))


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (max_pool((1, 9, 40, 3), 3, 2, 1), "does not slide along the rows of the result"),
        (depthwise((1, 9, 40, 3), (3, 3)), "not one factor moves along the rows"),
        (first(max_pool((1, 40, 6, 3), 3, 2, 1)), "too short"),
        (first(average_pool((1, 80, 80, 3), (33, 2), 1, 0)), "more than 32 taps along an axis"),
        (first(depthwise((1, 20, 40, 3), (7, 8))), "more than 49 taps"),
        (first(depthwise((1, 600, 40, 3), (3, 3), dilation=(250, 1))), "too many rows"),
        (with_value(POOL, replace(POOL.body.value, otherwise=literal(0.0, F32))), "not neutral"),
        (with_value(POOL, select(call("lt", *POOL.body.window), POOL.body.value, 0.0)), "sum of an output's place"),
        (first(average_pool((1, 9, 40, 3), (3, 1), 1, 1)), "does not slide along the rows of the result"),
    ],
)
def test_what_has_no_rows_of_windows_stays_with_other_engines(kernel: Kernel, reason: str) -> None:
    assert reason in planes_emit.accepts(kernel, cpu.host().features)
    assert family_of(kernel) not in engines_of(kernel, cpu.host().features)


@pytest.mark.parametrize("stride", [1, 2, 3, 5])
@pytest.mark.parametrize("tile", [1, 4])
@pytest.mark.parametrize("outputs", [5, 56, 10**6])
def test_a_band_fits_the_first_cache_and_holds_its_tile(outputs: int, tile: int, stride: int) -> None:
    y, x = Slide(var("y", outputs), var("r", 3), stride, 2), Slide(var("x", outputs), var("s", 5), stride, 1)

    band = Band.of(y, x, True, 4, WIDEST, tile)

    assert band.rows % tile == 0
    assert band.columns + 4 // stride + 2 * WIDEST < band.part
    assert band.several == (band.columns < outputs)
    assert band.lines * band.line * 4 <= 4 * BAND_BYTES or band.rows == tile


def test_wide_windows_of_wide_images_are_unrolled_less() -> None:
    limits = cpu.named("cpu:x86-64-v3").limits
    problem = PLANES_OF_LOOPS.problem(first(depthwise((1, 56, 56, 3), (3, 3), pad=1)))
    wide = PLANES_OF_LOOPS.problem(first(depthwise((1, 56, 56, 3), (7, 7), pad=3)))

    chosen, fewer = (PLANES_OF_LOOPS.default(p, limits) for p in (problem, wide))

    assert 4 <= chosen.rows * chosen.vectors <= 12  # enough sums to hide the latency, and no more than registers
    assert fewer.rows * fewer.vectors * 49 <= MOST_WRITTEN


@pytest.mark.parametrize("rows", [1, 4])
def test_lines_of_rows_that_lie_far_apart_fit_the_stack(rows: int) -> None:
    """They share nothing, so a tile of several of them would copy all that is between."""
    kernel = first(depthwise((1, 9003, 12, 2), (3, 3), stride=(3000, 1)))
    schedule = {"lanes": WIDEST, "rows": rows, "vectors": 1, "tasks": 1}
    inputs = random_inputs(kernel)
    library = Library({"k": kernel}, {"k": schedule}, family=PLANES_OF_LOOPS)

    text = PLANES_OF_LOOPS.emit(kernel, schedule, "k", cpu.host()).text
    lines = [int(count) for count in re.findall(r"alloca \[(\d+) x float\]", text)]

    assert lines
    assert 4 * max(lines) <= planes_emit.MOST_BYTES
    assert_matches(library.run("k", inputs)[0], expected(kernel, inputs)[0], terms=terms(kernel))
