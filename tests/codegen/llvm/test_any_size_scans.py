"""Scans and scatters of any size: one compilation, run at many sizes and compared with numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from gpucomp.codegen.llvm.engines import SCAN, SCATTER
from gpucomp.ir.dim import Dim
from gpucomp.ir.types import BF16, I32, I64
from gpucomp.kernel import Kernel
from gpucomp.schedule.space import Schedule
from testing.any_size import AnySize
from testing.kernels import scan, scatter

ROWS, COLS = Dim("r", 1, 3000), Dim("c", 1, 300)
SIZES = ((1, 1), (1, 300), (13, 17), (16, 64), (1024, 3), (1025, 2), (3000, 5))

SCANS: dict[str, Callable[..., Kernel]] = {
    "along rows": lambda r, c: scan("sum", r, c),
    "rows side by side": lambda r, c: scan("max", r, c, rows_inside=True),
    "backwards": lambda r, c: scan("sum", r, c, rows_inside=True, reverse=True),
    "exclusive": lambda r, c: scan("prod", r, c, dtype=I32, exclusive=True),
    "bf16": lambda r, c: scan("sum", r, c, rows_inside=True, dtype=BF16, exclusive=True, reverse=True),
}
SCAN_SCHEDULES: list[Schedule | None] = [
    None,
    {"lanes": 4, "tasks": 1, "unroll": 0},
    {"lanes": 0, "tasks": 256, "unroll": 16},
    {"lanes": 4, "tasks": 256, "unroll": 16},
]


@pytest.mark.parametrize("schedule", SCAN_SCHEDULES, ids=str)
@pytest.mark.parametrize("name", SCANS)
def test_scans_at_any_size(name: str, schedule: Schedule | None) -> None:
    kernel = AnySize(SCANS[name], {"r": ROWS, "c": COLS}, schedule=schedule, family=SCAN)

    for r, c in SIZES:
        kernel.check(r=r, c=c)


N, M, K = Dim("n", 10, 200), Dim("m", 10, 90), Dim("k", 1, 40)  # 10: what ``random_inputs`` draws is an index
SHAPES = ((10, 10, 1), (11, 17, 3), (64, 32, 16), (199, 13, 40), (200, 90, 37))

SCATTERS: dict[str, Callable[..., Kernel]] = {
    "rows": lambda n, m, k: scatter((n, m), (k, 1)),
    "points, added": lambda n, m, k: scatter((n, m), (k, 2), "add"),
    "slices of three axes": lambda n, m, k: scatter((n, 12, m), (k, 2), "max"),
    "elements along the first axis": lambda n, m, k: scatter((n, m), (k, m), "add", axis=0),
    "elements along the last axis": lambda n, m, k: scatter((n, m), (n, k), axis=1),
    "integers": lambda n, m, k: scatter((n, m), (k, 1), "mul", dtype=I64, index_dtype=I32),
}
SCATTER_SCHEDULES: list[Schedule | None] = [
    None,
    {"lanes": 4, "tasks": 1},
    {"lanes": 0, "tasks": 16},
    {"lanes": 4, "tasks": 256},
]


@pytest.mark.parametrize("example", [{}, {"n": 200, "m": 90, "k": 40}, {"n": 10, "m": 10, "k": 1}], ids=str)
@pytest.mark.parametrize("schedule", SCATTER_SCHEDULES, ids=str)
@pytest.mark.parametrize("name", SCATTERS)
def test_scatters_at_any_size(name: str, schedule: Schedule | None, example: Mapping[str, int]) -> None:
    kernel = AnySize(SCATTERS[name], {"n": N, "m": M, "k": K}, example=example, schedule=schedule, family=SCATTER)

    for n, m, k in SHAPES:
        kernel.check(n=n, m=m, k=k)


@pytest.mark.parametrize("example", [1000, 300_000])
def test_places_of_a_line_are_divided_among_tasks(example: int) -> None:
    lines = Dim("n", 10, 400_000)
    kernel = AnySize(
        lambda n: scatter((2, n), (2, 53), "add", axis=1), {"n": lines}, example={"n": example}, family=SCATTER
    )

    for n in (10, 17, 1000, 99_991, 400_000):
        kernel.check(n=n)
    assert (kernel.compiled.tasks({"n": 400_000}) > 2) == (example > 1000)
