"""The LLVM IR of kernels whose sizes each run decides, one for each engine: what a change does to it is read in the golden files.

Kernels and blocks are small, so that the texts are short. Each is written for a named processor, and is the same on every one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from gpucomp.codegen.llvm.engines import (
    AMX,
    ATTENTION,
    BYTE_WINDOWS,
    DECODE,
    ELEMENTWISE,
    ENGINES,
    PAIRS,
    PLANES_OF_LOOPS,
    PLANES_OF_POOL,
    POOL,
    REGISTER_BLOCKS,
    ROWWISE,
    SCAN,
    SCATTER,
    VNNI,
    WINDOWS_OF_LOOPS,
    WINDOWS_OF_POOL,
    WINOGRAD,
)
from gpucomp.ir.dim import Dim
from gpucomp.ir.types import BF16, I8, I32
from gpucomp.kernel import Contraction, Kernel
from gpucomp.schedule.space import Family, Schedule
from gpucomp.targets import cpu
from testing.any_size import AnySize
from testing.kernels import (
    add_relu,
    attention,
    channels_first,
    conv,
    depthwise,
    matmul,
    max_pool,
    scan,
    scatter,
    softmax,
)
from tests.codegen.llvm.test_byte_windows import kernel_of

N = Dim("n", 1, 300)
PLANE = {"lanes": 8, "rows": 1, "vectors": 1, "tasks": 64}
WINDOW = {"lanes": 8, "tile_x": 1, "vectors": 1, "tasks": 64}
ROWS_OF_LOOPS = {"lanes": 8, "tasks": 64, "unroll": 0}
PANELS = {"panels": 1, "pack_a": 0}
DOTS = {**PANELS, "tiles_n": 1, "tile_m": 16, "pack_b": 2, "across": 0, "ahead": 0}


@dataclasses.dataclass(frozen=True)
class Case:
    """A kernel of ``n`` rows or images, and the schedule and processor that it is written for."""

    family: Family
    build: Callable[[int], Kernel]
    schedule: Schedule
    processor: str = "x86-64-v3"

    def text(self) -> str:
        kernel = AnySize(
            lambda n: self.build(n),
            {"n": N},
            schedule=self.schedule,
            target=cpu.named(f"cpu:{self.processor}"),
            family=self.family,
        )
        return kernel.compiled.source.text


def constant_weights(kernel: Kernel[Contraction]) -> Kernel[Contraction]:
    return dataclasses.replace(kernel, constants=frozenset({1}))


CASES = (
    Case(ELEMENTWISE, lambda n: add_relu(n, 8), ROWS_OF_LOOPS),
    Case(WINDOWS_OF_LOOPS, lambda n: depthwise((n, 3, 3, 8), (3, 1)), WINDOW),
    Case(BYTE_WINDOWS, lambda n: kernel_of((n, 3, 3, 8), (3, 1)), WINDOW),
    Case(POOL, lambda n: max_pool((n, 4, 4, 8), 2, 2, 0), ROWS_OF_LOOPS),
    Case(WINDOWS_OF_POOL, lambda n: max_pool((n, 4, 4, 8), 2, 2, 0), WINDOW),
    Case(PLANES_OF_LOOPS, lambda n: channels_first(depthwise((n, 3, 10, 1), (3, 3))), PLANE),
    Case(PLANES_OF_POOL, lambda n: channels_first(max_pool((n, 4, 16, 1), 2, 2, 0)), PLANE),
    Case(ROWWISE, lambda n: softmax(n, 8), {**ROWS_OF_LOOPS, "copies": 1}),
    Case(SCAN, lambda n: scan("sum", n, 8), ROWS_OF_LOOPS),
    Case(SCATTER, lambda n: scatter((n, 8), (4, 1), "add"), {"lanes": 8, "tasks": 64}),
    Case(
        REGISTER_BLOCKS,
        lambda n: matmul(n, 8, 8),
        {**PANELS, "lanes": 8, "mr": 1, "nv": 1, "kc": 512, "tile_m": 8, "pack_b": 0, "unroll_k": 1, "ahead": 0},
    ),
    Case(
        WINOGRAD,
        lambda n: constant_weights(conv((n, 4, 4, 8), 8, (3, 3))),
        {"lanes": 8, "outputs": 2, "block": 4, "mr": 1, "nv": 1, "part": 32, "panels": 1},
    ),
    Case(
        AMX,
        lambda n: constant_weights(matmul(n, 16, 32, dtype=BF16)),
        {**DOTS, "tiles_m": 1},
        "sapphirerapids",
    ),
    Case(VNNI, lambda n: constant_weights(matmul(n, 16, 32, dtype=BF16)), {**DOTS, "rows": 1}, "sapphirerapids"),
    Case(PAIRS, lambda n: constant_weights(matmul(n, 8, 16, dtype=I8, acc=I32)), {**DOTS, "rows": 1, "pack_a": 1}),
    Case(ATTENTION, lambda n: attention(4, n, 4, 4), {"lanes": 4, "vectors": 1, "keys": 1, "tile_n": 16}),
    Case(DECODE, lambda n: attention(1, n * 64, 4, 4), {"lanes": 4, "tile_n": 16, "wide": 1, "splits": 2}),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.family.title)
def test_the_text_for_any_size_is_the_golden_one(case, golden):
    golden(case.text(), f"any_size_{case.family.title.replace('/', '_')}.ll")


def test_every_engine_that_takes_any_size_has_one():
    assert {f.title for families in ENGINES.values() for f in families if f.any_size} == {c.family.title for c in CASES}
