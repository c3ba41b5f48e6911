"""Depthwise convolutions and pooling in register windows, compared with their expressions, evaluated by numpy."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from gpucomp.codegen.llvm.engines import WINDOWS_OF_LOOPS, WINDOWS_OF_POOL, engines_of
from gpucomp.codegen.llvm.windows import emit as windows
from gpucomp.expr.core import axes_of, call, hole, index, load, select, var
from gpucomp.ir.types import BF16, F32, F64, TensorType
from gpucomp.kernel import Kernel, Store, Window
from gpucomp.kernel.interpreter import expected
from gpucomp.schedule.space import Family, Schedule
from gpucomp.targets import cpu
from testing.kernels import average_pool, conv, depthwise, into_part, max_pool, random_inputs
from testing.tolerance import assert_matches
from tests.native import WIDEST, Library

CASES: list[Kernel] = [
    depthwise((1, 9, 11, 2 * WIDEST), (3, 3), pad=1),
    depthwise((2, 7, 13, 3 * WIDEST + 5), (3, 3), stride=(2, 2), pad=1),
    depthwise((1, 8, 9, 4 * WIDEST), (5, 5), pad=2),
    depthwise((1, 6, 23, WIDEST + 1), (5, 3), stride=(1, 2)),
    depthwise((1, 11, 17, 7), (3, 3), dilation=(2, 3), pad=2),
    depthwise((1, 1, 29, 2 * WIDEST), (1, 7)),
    depthwise((1, 13, 1, WIDEST), (7, 1)),
    depthwise((1, 5, 19, 3), (2, 4), stride=(3, 3)),
    depthwise((1, 5, 8, 2 * WIDEST), (3, 3), pad=1, dtype=BF16),
    into_part(depthwise((1, 6, 7, 2 * WIDEST), (3, 3), pad=1), 3, 5, 2),
    max_pool((2, 9, 10, 3 * WIDEST), 3, 2, 1),
    max_pool((1, 7, 15, WIDEST + 3), 2, 2, 0),
    average_pool((1, 8, 13, 2 * WIDEST + 9), (3, 3), 1, 1),
    average_pool((1, 11, 9, 5), (5, 2), 2, 1),
]


def family_of(kernel: Kernel) -> Family:
    return WINDOWS_OF_POOL if isinstance(kernel.body, Window) else WINDOWS_OF_LOOPS


def spread(kernel: Kernel) -> list[Schedule]:
    """The default and a few legal schedules."""
    family, limits = family_of(kernel), cpu.host().limits
    problem = family.problem(kernel)
    found = [dict(family.default(problem, limits).numbers)]
    chooser = random.Random(kernel.digest)
    while len(found) < 3:
        trial = {p.name: chooser.choice(p.choices) for p in family.params}
        if not family.reasons(trial, problem, limits):
            found.append(trial)
    return found


@pytest.mark.parametrize("kernel", CASES, ids=lambda k: f"{k.label} {k.params[0]}")
def test_every_schedule_gives_what_the_expressions_say(kernel: Kernel) -> None:
    schedules = spread(kernel)
    names = [f"k{i}" for i in range(len(schedules))]
    library = Library(dict.fromkeys(names, kernel), dict(zip(names, schedules, strict=True)), family=family_of(kernel))
    inputs = random_inputs(kernel)
    wanted = expected(kernel, inputs)

    for name in names:
        for actual, result in zip(library.run(name, inputs), wanted, strict=True):
            assert_matches(actual, result, terms=windows.windows_of(kernel).taps)


def test_narrow_vectors_give_the_same() -> None:
    target = cpu.named("cpu:x86-64-v3")
    kernel = depthwise((1, 7, 9, 27), (3, 3), pad=1)
    schedule = WINDOWS_OF_LOOPS.default(WINDOWS_OF_LOOPS.problem(kernel), target.limits).numbers
    inputs = random_inputs(kernel)

    results = Library({"k": kernel}, {"k": schedule}, target, WINDOWS_OF_LOOPS).run("k", inputs)

    assert schedule["lanes"] == 8
    for actual, result in zip(results, expected(kernel, inputs), strict=True):
        assert_matches(actual, result, terms=9)


def test_a_nan_spreads_to_the_outputs_that_see_it_and_no_other() -> None:
    kernel = max_pool((1, 8, 9, WIDEST + 2), 3, 1, 1)
    x = random_inputs(kernel)[0]
    x[0, 4, 8, WIDEST] = np.nan

    (found,) = Library({"k": kernel}, {"k": spread(kernel)[0]}, family=WINDOWS_OF_POOL).run("k", [x])

    wanted = np.zeros(found.shape, bool)
    wanted[0, 3:6, 7:9, WIDEST] = True
    np.testing.assert_array_equal(np.isnan(found), wanted)


def frame(value: float, taps: int = 5) -> Kernel:
    """A pool whose padding holds ``value``."""
    axes, r, s = axes_of((1, 6, 6, 5)), var("r", taps), var("s", taps)
    y, x = axes[1] + r - 1, axes[2] + s - 1
    image = select(call("and", y >= 0, x >= 0), load(0, (index(0), y, x, axes[3]), F32), value)
    acc = hole("acc", F32)
    params = (TensorType(F32, (1, 5 + taps, 5 + taps, 5)), TensorType(F32, (1, 6, 6, 5)))
    return Kernel("pool", params, 1, Window(axes, (r, s), "sum", image, acc), (Store(1, axes, acc),))


def both_ways() -> Kernel:
    """A pool whose padding depends on both places at once: a corner, not a frame."""
    kernel = frame(0.0)
    assert isinstance(kernel.body, Window)
    axes, (r, s) = kernel.body.domain, kernel.body.window
    y, x = axes[1] + r - 1, axes[2] + s - 1
    image = select(y + x >= 0, load(0, (index(0), y + 1, x + 1, axes[3]), F32), 0.0)
    return replace(kernel, body=replace(kernel.body, value=image))


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        (frame(1.0), "the padding is not neutral for the reduction"),
        (both_ways(), "the padding is not a frame around the image"),
        (max_pool((1, 9, 9, 8), 5, 1, 0, dtype=F64), "not f32"),
        (frame(0.0, 4), "plain loops unroll up to 16 taps of a pool and are as fast"),
        (depthwise((1, 19, 19, 8), (8, 8)), "more than 49 taps"),
        (depthwise((1, 90, 200, 8), (3, 3), dilation=(40, 40), pad=40), "the padding reaches too far into the image"),
        (conv((1, 6, 6, 3), 4, (3, 3), pad=1), None),
    ],
    ids=lambda v: v if isinstance(v, str) else None,
)
def test_what_it_cannot_compute_it_refuses_and_another_engine_takes(kernel: Kernel, why: str | None) -> None:
    if why is not None:
        assert windows.accepts(kernel, frozenset()) == why

    assert all(family.engine != "windows" for family in engines_of(kernel))
    assert engines_of(kernel)


def test_padding_that_leaves_the_result_as_it_is_is_accepted() -> None:
    assert windows.accepts(frame(0.0), frozenset()) == ""


def test_tiles_at_the_edges_are_told_from_those_inside() -> None:
    same = windows.slide(23, 3, 1, 1)  # 23 outputs, places 0 .. 24, of which the first and the last are padding

    assert windows.edge_tiles(same, (1, 24), 5) == ([0, 20], [5, 10, 15])
    assert windows.edge_tiles(same, (0, 25), 5) == ([20], [0, 5, 10, 15])
    assert windows.edge_tiles(same, (1, 24), 8) == ([0, 16], [8])
    assert windows.edge_tiles(windows.slide(4, 3, 2, 1), (1, 8), 4) == ([0], [])


def test_scalar_code_and_vectors_that_the_processor_lacks_are_refused() -> None:
    kernel = CASES[0]
    problem, limits = WINDOWS_OF_LOOPS.problem(kernel), replace(cpu.host().limits, vector_bytes=16)
    schedule = {"lanes": 0, "tile_x": 4, "vectors": 1, "tasks": 16}

    assert WINDOWS_OF_LOOPS.reasons(schedule, problem, limits) == ["lanes run over channels, and there are none"]
    assert "8 lanes of 4 bytes" in WINDOWS_OF_LOOPS.reasons({**schedule, "lanes": 8}, problem, limits)[0]
