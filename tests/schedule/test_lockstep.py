"""Lockstep gives the same results for many schedules as calling the functions for each of them."""

from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest

from gpucomp.codegen.llvm import engines as space
from gpucomp.device.lockstep import array, either, gcd, least, lockstep, most
from gpucomp.ir.types import BF16, F16, I8, I32
from gpucomp.kernels_templates.engines import engines_of
from gpucomp.schedule import points
from gpucomp.targets import cpu, cuda, opencl
from gpucomp.targets.back_end import back_end
from testing.kernels import attention, channels_first, conv, depthwise, matmul, max_pool
from testing.template_cases import CASES
from tests.schedules_together import assert_agrees

TARGETS = (
    cuda.manifest("sm_75"),
    cuda.manifest("sm_90a"),
    opencl.manifest("mali"),
    cpu.named("cpu:sapphirerapids"),
    cpu.named("cpu:x86-64-v3"),
)
KERNELS = {
    **CASES,
    "f16": matmul(197, 136, 264, dtype=F16, b_transposed=True),
    "constant f32": dataclasses.replace(conv((1, 13, 11, 24), 40, (3, 3), pad=1), constants=frozenset({1})),
    "constant bf16": dataclasses.replace(
        conv((1, 13, 11, 24), 40, (3, 3), pad=1, dtype=BF16), constants=frozenset({1})
    ),
    "bytes": matmul(29, 40, 136, dtype=I8, acc=I32),
    "row": matmul(1, 1000, 512),
    "heads": attention(37, 61, 24, 40, causal=24),
    "one query": attention(1, 61, 24, 40, mask="add"),
    "depthwise": depthwise((1, 19, 23, 40), (3, 3), stride=(2, 1), pad=1),
    "planes": channels_first(depthwise((1, 19, 23, 40), (3, 3), stride=(2, 1), pad=1)),
    "pooled planes": channels_first(max_pool((1, 19, 43, 40), 3, 2, 1)),
    "constant, stride 2": dataclasses.replace(
        conv((1, 17, 15, 24), 40, (3, 3), stride=2, pad=1), constants=frozenset({1})
    ),
}


def engines():
    for name, kernel in KERNELS.items():
        for target in TARGETS:
            for family in back_end(target.language)[0](kernel, target.features):
                yield pytest.param(kernel, family, target, id=f"{name}-{family.title}-{target.name}")


def over(function, **columns):
    """The results of ``function`` by lockstep, and the number of parts that it was run in."""
    found = {name: np.array(values) for name, values in columns.items()}
    result, parts = np.full(len(next(iter(found.values()))), np.nan), 0
    for rows, value in lockstep(lambda numbers: function(SimpleNamespace(**numbers)), found):
        result[rows] = array(value, len(rows))
        parts += 1
    return result.tolist(), parts


@pytest.mark.parametrize(("kernel", "family", "target"), list(engines()))
def test_a_family_says_of_many_schedules_what_it_says_of_each(kernel, family, target):
    assert_agrees(kernel, family, target)


def test_all_engines_of_the_processor_are_among_them_or_ask_beside_their_own_kernels():
    asked = {e.values[1].title for e in engines() if e.values[2].kind == "cpu"}
    assert {f.title for found in space.ENGINES.values() for f in found} == asked | {"fused_layers", "loops/bytes"}


def test_places_part_where_they_disagree_and_only_there():
    def rounded(s):
        return s.x * 10 if s.x > 3 else -s.x

    assert over(rounded, x=[1, 5, 3, 7]) == ([-1, 50, -3, 70], 2)
    assert over(rounded, x=[1, 2, 3]) == ([-1, -2, -3], 1)
    assert over(lambda s: 7, x=[1, 2]) == ([7, 7], 1)


def test_what_was_computed_before_a_part_belongs_to_those_that_are_left():
    def late(s):
        before = s.x * s.y
        return before + (100 if s.y % 2 else 0) + min(s.x, s.y)

    x, y = [1, 2, 3, 4, 5], [5, 4, 3, 2, 1]
    assert over(late, x=x, y=y)[0] == [late(SimpleNamespace(x=a, y=b)) for a, b in zip(x, y, strict=True)]


def test_loops_keys_and_ranges_part_by_number():
    def halved(s):
        n, steps = s.x, 0
        while n % 2 == 0:
            n, steps = n // 2, steps + 1
        return {1: 10, 3: 30}[n] + steps + len(range(s.x))

    assert over(halved, x=[12, 4, 3, 6])[0] == [30 + 2 + 12, 10 + 2 + 4, 30 + 3, 30 + 1 + 6]


def test_greatest_divisors_least_and_most_part_nobody():
    for together, alone in ((gcd, math.gcd), (least, min), (most, max)):
        found, parts = over(lambda s, f=together: f(s.x, s.y) + f(12, s.y), x=[4, 6, 35], y=[6, 9, 7])
        assert found == [alone(a, b) + alone(12, b) for a, b in ((4, 6), (6, 9), (35, 7))]
        assert parts == 1
        assert together(12, 18) == alone(12, 18)


def test_either_parts_nobody_and_is_a_conditional_for_single_numbers():
    columns = {"a": np.array([1, 2, 3, 4]), "b": np.array([7, 7, 8, 8])}
    found = list(
        lockstep(lambda p: (either(p["a"] > 2, p["b"], 0), either(True, p["a"], 9), either(False, 1, 2)), columns)
    )
    assert len(found) == 1
    _, (chosen, own, single) = found[0]
    assert array(chosen, 4).tolist() == [0, 0, 8, 8]
    assert array(own, 4).tolist() == [1, 2, 3, 4]
    assert single == 2


def test_numbers_are_rounded_as_one_is():
    found, parts = over(lambda s: 100 * round(s.x / 2) + abs(-s.x) + math.ceil(s.x / 2), x=[1, 2, 3, 5, 7])
    assert found == [100 * round(x / 2) + x + math.ceil(x / 2) for x in (1, 2, 3, 5, 7)]
    assert parts == 1


def test_quotients_and_remainders_part_nobody():
    found, parts = over(lambda s: 10 * divmod(s.x, s.y)[0] + divmod(97, s.y)[1], x=[7, 9, 30], y=[2, 3, 7])
    assert found == [10 * divmod(x, y)[0] + divmod(97, y)[1] for x, y in ((7, 2), (9, 3), (30, 7))]
    assert parts == 1


def test_the_legal_points_are_those_that_the_family_lists():
    kernel = matmul(1, 1000, 512)
    family = next(f for f in engines_of(kernel) if f.engine == "gemv")
    problem, limits = family.problem(kernel), cuda.manifest("sm_80").limits

    found = points.legal(family, problem, limits)

    assert found.tolist() == [list(s.values()) for s in family.legal(problem, limits)]
    fewer = points.legal(family, problem, limits, {"unroll": (4,), "shuffle": (0,)})
    assert {tuple(r) for r in fewer.tolist()} == {tuple(r) for r in found.tolist() if r[3] == 4 and r[4] == 0}
