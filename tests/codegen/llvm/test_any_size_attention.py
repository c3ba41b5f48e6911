"""Attention of any batch and sequence lengths: one compilation, run at many sizes and compared with numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from gpucomp.codegen.llvm.attention.space import AttentionProblem, AttentionSchedule, fitted, scratch_bytes, widths_of
from gpucomp.codegen.llvm.core_space import STACK_BYTES
from gpucomp.codegen.llvm.engines import ATTENTION, DECODE, engines_of
from gpucomp.ir.conditions import Assumed, assuming
from gpucomp.ir.dim import Dim
from gpucomp.ir.size import size_of, value_at
from gpucomp.ir.types import BF16
from gpucomp.kernel import Attention, Kernel
from gpucomp.kernel.example import at
from gpucomp.kernel.interpreter import expected
from gpucomp.kernel.passes.split_attention import pieces
from gpucomp.schedule.space import Schedule
from gpucomp.targets import cpu
from testing.any_size import AnySize, Unconditional
from testing.kernels import attention, random_inputs
from testing.tolerance import assert_matches

HEADS, ROWS, COLS = Dim("b", 1, 9), Dim("n", 1, 200), Dim("c", 1, 300)
BOTH = ((1, 1), (1, 300), (3, 131), (8, 65), (9, 17), (13, 17), (16, 16), (48, 96), (67, 131), (200, 1), (200, 300))


@dataclass(frozen=True)
class Case:
    build: Callable[..., Kernel]
    dims: Mapping[str, Dim]
    sizes: Sequence[tuple[int, ...]]
    example: Mapping[str, int] = field(default_factory=dict)


def of_rows_and_cols(**options: object) -> Case:
    depth, values = 23, 19
    return Case(lambda n, c: attention(n, c, depth, values, **options), {"n": ROWS, "c": COLS}, BOTH)  # type: ignore[arg-type]


CASES = {
    "self": Case(
        lambda b, n: attention(n, n, 32, 24, heads=b), {"b": HEADS, "n": ROWS}, ((1, 1), (9, 13), (3, 64), (2, 199))
    ),
    "cross": of_rows_and_cols(),
    "fixed keys": Case(lambda n: attention(n, 77, 16, 20), {"n": ROWS}, ((1,), (17,), (64,), (200,))),
    "fixed rows": Case(lambda c: attention(19, c, 16, 20), {"c": COLS}, ((1,), (17,), (64,), (300,))),
    "a mask": of_rows_and_cols(mask="add"),
    "masks of keys": of_rows_and_cols(mask="bool", group=3),
    "keys by columns": of_rows_and_cols(transposed=True),
    "bf16": of_rows_and_cols(dtype=BF16, residual=True),
    "causal": Case(
        lambda n: attention(n, n, 16, 20, causal=0), {"n": ROWS}, ((1,), (2,), (5,), (7,), (16,), (131,), (200,))
    ),
    "causal rows of shared keys": Case(
        lambda n: attention(n, n, 8, 12, causal=0, group=3), {"n": ROWS}, ((1,), (5,), (16,), (131,))
    ),
    "causal behind a cache": Case(
        lambda r, past: attention(r, r + past, 16, 24, causal=past),
        {"r": Dim("r", 1, 64), "past": Dim("past", 0, 200)},
        ((1, 0), (1, 200), (3, 77), (8, 130), (13, 5), (64, 0), (64, 64), (61, 131)),
    ),
    "one matrix of heads": Case(
        lambda n: attention(n, n, 24, 24, heads=3, merged=True, residual=True),
        {"n": ROWS},
        ((1,), (6,), (29,), (64,), (200,)),
    ),
}
SCHEDULES: list[Schedule | None] = [
    None,
    {"lanes": 4, "vectors": 3, "keys": 3, "tile_n": 16},
    {"lanes": 4, "vectors": 2, "keys": 6, "tile_n": 64},
    {"lanes": 4, "vectors": 1, "keys": 1, "tile_n": 32},
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_attention_at_any_size(name: str, schedule: Schedule | None) -> None:
    case = CASES[name]
    kernel = AnySize(case.build, case.dims, schedule=schedule, family=ATTENTION)

    for sizes in case.sizes:
        kernel.check(**dict(zip(case.dims, sizes, strict=True)))


FEW = {
    "keys": lambda b, c: attention(1, c, 40, 24, heads=b),
    "shared keys, masked": lambda b, c: attention(2, c, 16, 20, heads=b, group=3, mask="bool"),
    "the last rows of causal": lambda b, c: attention(3, c + 2, 16, 20, heads=b, causal=c - 1),
}


@pytest.mark.parametrize("tile_n", [16, 128])
@pytest.mark.parametrize("name", FEW)
def test_decoding_at_any_number_of_keys(name: str, tile_n: int) -> None:
    schedule = {"lanes": 4, "tile_n": tile_n, "wide": 2, "splits": 1}
    kernel = AnySize(FEW[name], {"b": HEADS, "c": COLS}, schedule=schedule, family=DECODE)

    for b, n in ((1, 1), (9, 2), (3, 4), (2, 131), (1, 300)):
        kernel.check(b=b, c=n)


MANY = Dim("c", 1, 4000)


@pytest.mark.parametrize("name", FEW)
def test_any_number_of_keys_is_divided_among_tasks(name: str) -> None:
    schedule = {"lanes": 4, "tile_n": 32, "wide": 2, "splits": 4}
    kernel = AnySize(FEW[name], {"b": HEADS, "c": MANY}, schedule=schedule, family=DECODE)

    assert kernel.compiled.source.geometry.counter_bytes == 9 * 8
    for b, n in ((1, 1), (9, 256), (3, 257), (2, 700), (1, 1025), (2, 1999)):
        kernel.check(b=b, c=n)


FEW_OR_MANY = {
    "keys": lambda r, c: attention(r, c, 40, 24),
    "shared keys, masked": lambda r, c: attention(r, c, 16, 20, group=3, mask="bool"),
    "the last rows of causal": lambda r, c: attention(r, c + r, 16, 20, causal=c),
}


@pytest.mark.parametrize("name", FEW_OR_MANY)
def test_runs_of_few_rows_divide_the_keys_and_others_the_rows(name: str) -> None:
    kernel = AnySize(FEW_OR_MANY[name], {"r": Dim("r", 1, 40), "c": MANY}, target=cpu.host(), family=ATTENTION)

    assert kernel.compiled.source.geometry.counter_bytes == 2 * 8
    for r, n in ((1, 1), (1, 256), (1, 257), (1, 1900), (2, 700), (2, 513), (5, 300), (13, 700), (33, 40), (40, 1)):
        kernel.check(r=r, c=n)


def test_a_batch_of_many_heads_keeps_its_keys_together() -> None:
    kernel = AnySize(
        lambda r, c: attention(r, c, 16, 16, heads=128), {"r": Dim("r", 1, 40), "c": Dim("c", 1, 900)}, family=ATTENTION
    )

    assert kernel.compiled.source.geometry.counter_bytes == 0


def any_rows(rows: Dim) -> Kernel[Attention]:
    with assuming(Assumed()):
        return attention(size_of(rows, 2), 50, 16, 16)


def test_decoding_is_for_a_known_number_of_rows() -> None:
    few, host = any_rows(Dim("rows", 1, 4)), cpu.host()

    assert engines_of(few, host.features) == (ATTENTION,)
    assert DECODE.accepts(few, host.features) == "the number of rows differs from run to run"


def test_the_size_of_a_head_is_a_number() -> None:
    with assuming(Assumed()):
        kernel = attention(5, 50, 16, size_of(Dim("d", 8, 64), 16))

    assert ATTENTION.accepts(kernel, frozenset()) == "the size of a head differs from run to run"


def test_tiles_have_the_widths_that_some_run_needs() -> None:
    schedule = AttentionSchedule(lanes=4, vectors=3, keys=4, tile_n=64)

    def widths(low: int, high: int) -> list[int]:
        with assuming(Assumed()):
            return widths_of(schedule, ATTENTION.sizes(any_rows(Dim("rows", low, high))))

    assert widths(1, 1000) == [3, 2, 1]
    assert widths(1, 8) == [2, 1]
    assert widths(9, 12) == [3]
    assert widths(13, 1000) == [3, 2]


def test_tiles_fit_the_stack_at_the_greatest_sizes() -> None:
    schedule = AttentionSchedule(lanes=16, vectors=6, keys=1, tile_n=512)
    with assuming(Assumed()):
        n = size_of(Dim("n", 1, 4096), 8)
        problem = ATTENTION.sizes(attention(n, n, 2048, 2048))
    greatest = AttentionProblem(**{**problem.numbers, "m": 4096, "n": 4096})

    found = fitted(schedule, problem)

    assert scratch_bytes(schedule, greatest) > STACK_BYTES >= scratch_bytes(found, greatest)


@pytest.mark.parametrize("mask", ["", "add", "bool"])
def test_attention_of_any_size_is_split_into_three_kernels_without_a_condition(mask: str) -> None:
    with assuming(Unconditional()) as notes:
        b, n, c = (size_of(dim, 7) for dim in (HEADS, ROWS, COLS))
        whole = attention(n, c, 16, 20, heads=b, mask=mask)
        parts = pieces(whole)
    assert not notes.conditions

    for sizes in ({"b": 1, "n": 1, "c": 1}, {"b": 3, "n": 13, "c": 40}):
        here = at(whole, lambda size, sizes=sizes: value_at(size, sizes))
        inputs = random_inputs(here)
        arrays = dict(enumerate(inputs))
        for part in parts:
            kernel = at(part.kernel, lambda size, sizes=sizes: value_at(size, sizes))
            found = expected(kernel, [arrays[k] for k in part.params[: kernel.inputs]])
            arrays |= dict(zip(part.params[kernel.inputs :], found, strict=True))
        assert_matches(arrays[len(inputs)], expected(here, inputs)[0], terms=60)
