"""The search for default schedules, which tries all candidates in lockstep: it finds what trying each alone finds."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from gpucomp.codegen.llvm import core_space
from gpucomp.codegen.llvm.contraction import space as contraction
from gpucomp.codegen.llvm.core_space import FEW_THREADS, STACK_BYTES, THREADS, cheapest
from gpucomp.codegen.llvm.winograd import space as winograd
from gpucomp.device.limits import Limits
from gpucomp.targets import cpu
from testing.kernels import conv, matmul

PROCESSORS = ("cpu:skylake-avx512", "cpu:x86-64-v3", "cpu:x86-64-v2")
NAMES = ("tile_m", "panels")
BASE = contraction.ContractionSchedule(
    lanes=8, mr=4, nv=1, kc=512, tile_m=64, panels=1, pack_a=0, pack_b=2, unroll_k=4, ahead=1
)


@pytest.fixture
def one_by_one(monkeypatch):
    """``cheapest`` of both engines, with a loop over the candidates."""

    def search(base, names, rows, cost, scratch, room):
        schedules = (base.replace(**dict(zip(names, row, strict=True))) for row in rows)
        return min((s for s in schedules if scratch(s) <= room), key=cost, default=base)

    def use():
        for space in (contraction, winograd):
            monkeypatch.setattr(space, "cheapest", search)
            space.default.cache_clear()

    yield use
    contraction.default.cache_clear()
    winograd.default.cache_clear()


def limits_of(processor: str) -> Limits:
    return cpu.named(processor).limits


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize(("side", "channels", "columns"), [(56, 64, 64), (14, 256, 256), (7, 512, 512), (5, 1, 17)])
def test_a_convolution_has_the_default_that_is_cheapest_alone(one_by_one, side, channels, columns, processor):
    kernel = replace(conv((1, side, side, channels), columns, (3, 3), pad=1), constants=frozenset({1}))
    p, q, limits = winograd.problem(kernel), contraction.problem(kernel), limits_of(processor)
    together = winograd.default(p, limits), contraction.default(q, limits, THREADS)
    one_by_one()
    assert (winograd.default(p, limits), contraction.default(q, limits, THREADS)) == together


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("sizes", [(1, 128, 64), (7, 30, 33), (1000, 256, 1), (384, 384, 1536)])
def test_a_product_has_the_default_that_is_cheapest_alone(one_by_one, sizes, processor):
    p, limits = contraction.problem(matmul(*sizes)), limits_of(processor)
    together = contraction.default(p, limits, FEW_THREADS)
    one_by_one()
    assert contraction.default(p, limits, FEW_THREADS) == together


def test_of_equal_candidates_the_first_is_chosen_and_none_that_does_not_fit():
    rows = [(8, 4), (16, 2), (8, 1), (16, 1)]
    search = partial(cheapest, BASE, NAMES, rows)
    assert search(lambda s: 1.0 * s.tile_m, lambda s: s.panels, 4).panels == 4
    assert search(lambda s: 1.0 * s.tile_m, lambda s: s.panels, 3).panels == 1
    assert search(lambda s: 5.0, lambda s: 1, STACK_BYTES) == BASE.replace(tile_m=8, panels=4)


def test_the_base_stays_if_no_candidate_fits_or_there_is_none():
    assert cheapest(BASE, NAMES, [(8, 4)], lambda s: 1.0, lambda s: 2, 1) is BASE
    assert cheapest(BASE, NAMES, [], lambda s: 1.0, lambda s: 1, core_space.STACK_BYTES) is BASE
