"""What the two engines of depthwise separable convolutions have in common: tiles of pixels, parts of the depth."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from gpucomp.device.limits import Limits
from gpucomp.device.lockstep import least, most
from gpucomp.kernel import Kernel, Separable
from gpucomp.kernel.forms.separable import separable_of
from gpucomp.kernel.forms.stores import store_width
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernels_templates.depthwise import space as depthwise
from gpucomp.refusal import Refusal
from gpucomp.schedule.space import MOST_REGISTERS, Param

TILE_Y = Param("tile_y", (1, 2, 4, 8, 16), "rows of outputs per work-group")
TILE_X = Param("tile_x", (4, 8, 16, 32), "outputs of a row per work-group")
VECTOR = Param("vector", (2, 4, 8), "neighbouring channels of the depthwise result per work-item")
REG_Y = Param("reg_y", (1, 2), "rows of the depthwise result per work-item")
REG_X = Param("reg_x", (1, 2, 4), "columns of the depthwise result per work-item")
PARTS = Param("parts", (1, 2, 3, 4, 6, 8, 12, 16), "parts of the depth that a work-group has in shared memory in turn")
SPLITS = Param("splits", (1, 2, 3, 4, 6, 8, 12, 16), "work-groups that share the depth of a tile")
FLAG_BYTES = 128  # static: who is the last to arrive, up to where dynamic shared memory may begin
ROW_PAD = 16  # bytes behind a row of the depthwise result: eight rows that are read together meet in no bank
MAX_BYTES = (1 << 31) - 1
MOST_TAPS = 7  # of a side of the window: a row of a larger one is too much of a register file
COPY_INSTRUCTIONS = 4  # of 16 bytes of the filters on their way
PLACES = 20  # registers for where a part of the depth comes from, and where the tile's pixels go
PLENTY = 60  # more of them that ptxas takes while there are some: of 3 x 3 windows on five architectures, 54 at most
TOGETHER = 4  # splits whose sums ptxas reads together


def accepts(kernel: Kernel) -> str:
    if not isinstance(kernel.body, Separable):
        return "it is no depthwise separable convolution"
    found = separable_of(kernel)
    if isinstance(found, Refusal):
        return found.reason
    sizes = depthwise.sizes_of(*found)
    if max(sizes["taps_y"], sizes["taps_x"]) > MOST_TAPS:
        return f"a window of {sizes['taps_y']} x {sizes['taps_x']}: at most {MOST_TAPS} taps along each side"
    if sizes["widest"] < VECTOR.choices[0]:
        return f"{sizes['channels']} channels are no whole accesses"
    return ""


def problem(kernel: Kernel) -> dict[str, int]:
    """The sizes of the depthwise part, see ``depthwise.sizes_of``; ``n``: columns; ``out_wide``: of a store."""
    found = separable_of(kernel)
    assert found, found
    sizes = depthwise.sizes_of(*found)
    return {
        **sizes,
        "images": max(1, sizes["lead"]),
        "n": math.prod(v.extent for v in kernel.body_as(Separable).n),
        "out_wide": store_width(kernel),
    }


def windows(s: SimpleNamespace) -> SimpleNamespace:
    """The schedule of the depthwise family that a work-item follows."""
    return SimpleNamespace(threads=1, vector=s.vector, tile_y=s.reg_y, tile_x=s.reg_x, unroll=1)


def sizes(s: SimpleNamespace, p: SimpleNamespace, threads: Any, tile_n: Any, step: Any) -> Mapping[str, Any]:
    """
    part_k            depth that is in shared memory at a time, a multiple of ``step``
    all_parts         of the depth; ``parts_per_split`` of them are a work-group's
    padded_k          depth of the filters, filled up to whole parts
    vectors           of a pixel in a part; ``spots``: runs of outputs of a tile that one work-item computes at a time
    trips             of a work-item for a part
    spots_y, spots_x  such runs along the image's sides, whole tiles
    window            the sizes of one work-item's window, ``windows`` its schedule
    """
    share = -(-p.channels // (s.splits * s.parts))
    part_k = -(-share // step) * step
    all_parts = -(-p.channels // part_k)
    tiles_y, tiles_x, tiles_n = -(-p.out_y // s.tile_y), -(-p.out_x // s.tile_x), -(-p.n // tile_n)
    vectors, spots = part_k // s.vector, (s.tile_y // s.reg_y) * (s.tile_x // s.reg_x)
    own = windows(s)
    return {
        "threads": threads,
        "tile_m": s.tile_y * s.tile_x,
        "tile_n": tile_n,
        "part_k": part_k,
        "all_parts": all_parts,
        "parts_per_split": -(-all_parts // s.splits),
        "padded_k": all_parts * part_k,
        "vectors": vectors,
        "all_vectors": p.channels // s.vector,
        "spots": spots,
        "items": vectors * spots,
        "trips": -(-vectors * spots // threads),
        "tiles_y": tiles_y,
        "tiles_x": tiles_x,
        "tiles_n": tiles_n,
        "tiles": tiles_n * tiles_x * tiles_y * p.images,
        "spots_y": tiles_y * s.tile_y // s.reg_y,
        "spots_x": tiles_x * s.tile_x // s.reg_x,
        "padded_n": tiles_n * tile_n,
        "window": SimpleNamespace(**depthwise.window(own, p)),
        "windows": own,
    }


def objections(s: SimpleNamespace, p: SimpleNamespace) -> Iterator[str]:
    """What is wrong with how pixels and channels are dealt out; nothing else can be said of such a schedule."""
    if s.tile_y % s.reg_y or s.tile_x % s.reg_x:
        yield "reg_y, reg_x must divide tile_y, tile_x"
    elif p.widest % s.vector:
        yield f"vectors of {s.vector}: an access takes {p.widest} channels"
    elif s.reg_y * s.reg_x * p.taps_x * p.taps_y > depthwise.MAX_WRITTEN:
        yield f"more than {depthwise.MAX_WRITTEN} multiply-adds written out"


def split_objections(s: SimpleNamespace, d: SimpleNamespace) -> Iterator[str]:
    if s.splits > 1 and (s.splits - 1) * d.parts_per_split >= d.all_parts:
        yield f"{d.all_parts} parts of the depth leave some of {s.splits} work-groups with none"
    if (s.splits > 1) * d.tiles * s.splits * d.tile_m * d.tile_n * 4 > MAX_BYTES:
        yield "the partial sums of split-K need more than 2 GiB"


def geometry(s: SimpleNamespace, d: SimpleNamespace, dynamic_shared_bytes: int) -> Geometry:
    split = s.splits > 1
    return Geometry(
        (d.tiles, s.splits, 1),
        (d.threads, 1, 1),
        dynamic_shared_bytes=dynamic_shared_bytes,
        workspace_bytes=split * d.tiles * s.splits * d.tile_m * d.tile_n * 4,
        counter_bytes=split * 4 * d.tiles,
    )


def window_registers(s: SimpleNamespace, p: SimpleNamespace) -> Any:
    return depthwise.registers_ahead(windows(s), p) + PLACES


def taken(s: SimpleNamespace, p: SimpleNamespace, keeps: Any) -> Any:
    """At most what ptxas takes, while there are some, of a work-item that ``keeps`` so many registers: it reads all of a
    window ahead."""
    ahead = depthwise.registers_taken(windows(s), p) - depthwise.registers_ahead(windows(s), p)
    return least(MOST_REGISTERS, keeps + most(PLENTY, ahead))


def window_instructions(s: SimpleNamespace, p: SimpleNamespace, d: SimpleNamespace) -> Any:
    """Of all warps of a work-group: the windows and the filters of all its parts."""
    warps = -(-d.threads // 32)
    filters = d.part_k * d.tile_n * p.element_bytes / 16 / 32 * COPY_INSTRUCTIONS
    return d.parts_per_split * (warps * d.trips * depthwise.instructions(windows(s), p) + filters)


def moved_bytes(s: SimpleNamespace, p: SimpleNamespace, d: SimpleNamespace) -> Any:
    """Of the image, the window's weights and the filters, that a work-group takes from the cache: its own cache keeps what
    windows that overlap share."""
    rows = (s.tile_y - 1) * p.stride_y + (p.taps_y - 1) * p.dilation_y + 1
    columns = (s.tile_x - 1) * p.stride_x + (p.taps_x - 1) * p.dilation_x + 1
    of_channel = rows * columns * p.element_bytes + 4 * p.weighted * p.taps_y * p.taps_x
    return d.parts_per_split * d.part_k * (of_channel + d.tile_n * p.element_bytes)


def worthwhile(p: SimpleNamespace, limits: Limits) -> dict[str, tuple[int, ...]]:
    """Values that a ranking looks at: tiles no larger than the image, splits where tiles are few."""
    pixels = p.images * p.out_y * p.out_x
    few = pixels * p.n < 64 * 64 * 2 * limits.units
    return {
        "tile_y": tuple(t for t in (1, 2, 4, 8) if t < 2 * p.out_y),
        "tile_x": tuple(t for t in (4, 8, 16) if t < 2 * p.out_x) or (4,),
        "vector": tuple(v for v in VECTOR.choices if v <= p.widest)[-1:],
        "reg_y": (1,),
        "reg_x": (1, 2, 4),
        "parts": (1, 2, 4),
        "splits": tuple(n for n in (1, 2, 4, 8) if n == 1 or (few and p.channels >= 32 * n)),
    }
