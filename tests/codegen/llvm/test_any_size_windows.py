"""Depthwise convolutions and pools of any batch and image size: one compilation, run at many sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from gpucomp.codegen.llvm.engines import BYTE_WINDOWS, WINDOWS_OF_LOOPS, WINDOWS_OF_POOL, engines_of
from gpucomp.codegen.llvm.windows.bytes_emit import DOTS
from gpucomp.codegen.llvm.windows.emit import AnyTiles
from gpucomp.device.target import Target
from gpucomp.expr.core import var
from gpucomp.ir.conditions import Assumed, assuming
from gpucomp.ir.dim import Dim
from gpucomp.ir.size import size_of, value_at
from gpucomp.ir.types import BF16, I8, I16, U8
from gpucomp.kernel import Kernel
from gpucomp.kernel.forms.sliding import Slide
from gpucomp.kernel.interpreter import expected
from gpucomp.schedule.space import Schedule
from gpucomp.targets import cpu
from testing.any_size import AnySize
from testing.kernels import average_pool, depthwise, max_pool
from testing.tolerance import assert_identical
from tests.codegen.llvm.test_byte_windows import inputs_of, kernel_of
from tests.native import HERE, WIDEST

PAIRS = replace(cpu.host(), name="pairs", features=cpu.host().features - DOTS)
N, H, W = Dim("n", 1, 4), Dim("h", 1, 60), Dim("w", 1, 90)
SIZES = (
    (1, 1, 1),
    (2, 3, 2),
    (1, 2, 3),
    (1, 5, 4),
    (3, 4, 5),
    (1, 3, 7),
    (2, 7, 8),
    (1, 4, 17),
    (1, 3, 90),
    (4, 60, 13),
)
LARGER = tuple(size for size in SIZES if min(size[1:]) >= 5)

CASES: dict[str, tuple[Callable[..., Kernel], Sequence[tuple[int, int, int]], int]] = {
    "3x3": (lambda n, h, w: depthwise((n, h, w, 2 * WIDEST), (3, 3), pad=1), SIZES, 1),
    "3x3 of odd channels, stride 2": (
        lambda n, h, w: depthwise((n, h, w, 3 * WIDEST + 5), (3, 3), stride=(2, 2), pad=1),
        SIZES,
        1,
    ),
    "5x5": (lambda n, h, w: depthwise((n, h, w, WIDEST), (5, 5), pad=2), SIZES, 1),
    "7x7, far padding": (lambda n, h, w: depthwise((n, h, w, 5), (7, 7), pad=5), SIZES, 1),
    "no padding": (lambda n, h, w: depthwise((n, h, w, WIDEST + 1), (5, 3), stride=(1, 2)), LARGER, 6),
    "dilated": (lambda n, h, w: depthwise((n, h, w, 7), (3, 3), dilation=(2, 3), pad=2), LARGER, 5),
    "a row": (lambda n, h, w: depthwise((n, h, w, 2 * WIDEST), (1, 7)), ((1, 1, 8), (4, 3, 29), (1, 2, 90)), 8),
    "a column": (lambda n, h, w: depthwise((n, h, w, 9), (7, 1)), ((1, 8, 1), (3, 13, 5), (1, 60, 2)), 8),
    "wide steps": (lambda n, h, w: depthwise((n, h, w, 3), (2, 4), stride=(3, 3)), LARGER, 6),
    "bf16": (lambda n, h, w: depthwise((n, h, w, 2 * WIDEST), (3, 3), pad=1, dtype=BF16), SIZES, 1),
    "a global height": (lambda n, w: depthwise((n, 9, w, WIDEST), (3, 3), pad=1), ((1, 1), (4, 13)), 1),
    "a fixed width": (lambda n, h: depthwise((n, h, 20, WIDEST), (3, 3), pad=1), ((1, 1), (4, 13)), 1),
    "max pool": (lambda n, h, w: max_pool((n, h, w, WIDEST + 3), 5, 2, 2), SIZES, 1),
    "small max pool": (lambda n, h, w: max_pool((n, h, w, 2 * WIDEST), 3, 2, 1), SIZES, 1),
    "average pool": (lambda n, h, w: average_pool((n, h, w, WIDEST + 9), (5, 5), 1, 2), SIZES, 1),
}


def schedules() -> list[Schedule | None]:
    return [
        None,
        {"lanes": WIDEST, "tile_x": 3, "vectors": 1, "tasks": 1},
        {"lanes": 4, "tile_x": 1, "vectors": 4, "tasks": 256},
        {"lanes": 4, "tile_x": 8, "vectors": 2, "tasks": 16},
    ]


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("name", CASES)
def test_windows_over_images_of_any_size(name: str, number: int) -> None:
    build, sizes, least = CASES[name]
    names = build.__code__.co_varnames[: build.__code__.co_argcount]
    dims = {"n": N, "h": Dim("h", least if max(H.low, least) and name != "a row" else 1, 60), "w": Dim("w", least, 90)}
    if name == "a column":
        dims["w"] = W
    family = WINDOWS_OF_POOL if "pool" in name else WINDOWS_OF_LOOPS
    schedule = schedules()[number]
    if schedule is not None and "far" in name:
        schedule = {**schedule, "tile_x": max(schedule["tile_x"], 6)}  # as for one size, few edge tiles are unrolled
    kernel = AnySize(build, {name: dims[name] for name in names}, schedule=schedule, family=family)

    for some in sizes:
        kernel.check(**dict(zip(names, some, strict=True)))


def test_a_window_over_the_whole_image_is_left_to_loops() -> None:
    with assuming(Assumed()):
        size = size_of(Dim("h", 3, 20), 9)
        kernel = average_pool((1, size, size, 16), (size, size), 1, 0)

        names = [family.title for family in engines_of(kernel, cpu.host().features)]

    assert names == ["pool"]


BYTES: dict[str, Callable[..., Kernel]] = {
    "3x3": lambda n, h, w: kernel_of((n, h, w, 83), (3, 3), pad=(1, 1, 1, 1)),
    "stride 2": lambda n, h, w: kernel_of(
        (n, h, w, 64), (3, 3), stride=(2, 2), pad=(1, 0, 1, 1), zero=131, y=(U8, 119)
    ),
    "signed": lambda n, h, w: kernel_of((n, h, w, 37), (3, 3), pad=(1, 1, 1, 1), x=I8, zero=-7, y=(I8, -5)),
    "5x5": lambda n, h, w: kernel_of((n, h, w, 16), (5, 5), pad=(2, 2, 2, 2), zero=255, residual=True),
    "wide weights": lambda n, h, w: kernel_of((n, h, w, 40), (3, 3), pad=(1, 1, 1, 1), w=I16, zero=100),
}


@pytest.mark.parametrize("tile", [0, 1, 3, 8])
@pytest.mark.parametrize("target", [*HERE, PAIRS], ids=lambda target: target.name)
@pytest.mark.parametrize("name", BYTES)
def test_windows_over_bytes_of_any_size(name: str, target: Target, tile: int) -> None:
    lanes = target.limits.vector_bytes // 4
    schedule = {"lanes": lanes, "tile_x": tile, "vectors": 2, "tasks": 64} if tile else None
    if name == "5x5" and tile == 1:
        return  # too many edge tiles
    any_size = AnySize(BYTES[name], {"n": N, "h": H, "w": W}, schedule=schedule, target=target, family=BYTE_WINDOWS)

    for some in SIZES:
        sizes = dict(zip("nhw", some, strict=True))
        kernel = any_size.concrete(**sizes)
        inputs = inputs_of(kernel, [*some])
        for actual, wanted in zip(any_size.compiled.run(inputs, sizes), expected(kernel, inputs), strict=True):
            assert_identical(actual, wanted)


@pytest.mark.parametrize("tile", [1, 2, 3, 4, 8])
@pytest.mark.parametrize(("pad", "stride", "taps"), [(0, 1, 3), (1, 1, 3), (1, 2, 3), (2, 1, 5), (5, 2, 7)])
def test_every_output_is_in_one_tile_and_those_inside_read_only_the_image(
    tile: int, pad: int, stride: int, taps: int
) -> None:
    with assuming(Assumed()):
        width = size_of(Dim("w", 1, 50), 20)
        outputs = (width + 2 * pad - taps) // stride + 1
        slide, columns = Slide(var("out", outputs), var("tap", taps), stride, 1), (pad, width + pad)
        tiles = AnyTiles.of(slide, columns, tile)
        assert tiles is not None

    for w in range(max(1, taps - 2 * pad), 51):
        end, stop, count = (value_at(n, {"w": w}) for n in (tiles.end, tiles.stop, outputs))
        wide = bool(tiles.left) and count >= tiles.first and w + pad > (tiles.first - 1) * stride + taps - 1
        starts = [*tiles.left] if wide else []
        inside = [*range(tiles.first, end, tile)]
        others = [*range(tiles.first if wide else 0, stop, tile)]
        starts += inside + [at + (end - tiles.first) * (at >= tiles.first) for at in others]

        assert sorted(starts) == [*range(0, count, tile)]
        for start in inside:
            assert pad <= start * stride
            assert (start + tile - 1) * stride + taps - 1 < w + pad
            assert start + tile <= count
