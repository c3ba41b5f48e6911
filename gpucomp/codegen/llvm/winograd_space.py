"""The parameters of the CPU's `winograd` engine of contractions: F(2, 3), F(4, 3) and F(6, 3), squared, in strict f32."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import SimpleNamespace

from gpucomp.codegen.convolution import Pixels, winograd_pixels
from gpucomp.kernel import Contraction, Kernel
from gpucomp.schedule.space import Digit, Family, Geometry, Limits, Packing, Param, Problem, Schedule

PARAMS = (
    Param("lanes", (4, 8, 16), "elements of a vector"),
    Param("outputs", (2, 4, 6), "rows, and columns, of results of a tile"),
    Param("block", (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128), "tiles of a task, rounded up to whole blocks of mr"),
    Param("mr", (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14), "tiles of the register block"),
    Param("nv", (1, 2, 3, 4), "vectors of output channels of the register block, and of a panel"),
    Param("part", (32, 64, 128, 256, 512, 1024), "channels that are transformed at a time"),
    Param("panels", (1, 2, 3, 4, 6, 8, 16), "panels of a task"),
)
SCRATCH_BYTES = 5 << 18  # that one call may take of the stack
LINE = 16  # floats


def accepts(kernel: Kernel, features: frozenset[str]) -> str:
    found = winograd_pixels(kernel)
    return found if isinstance(found, str) else ""


def problem(kernel: Kernel) -> Problem:
    """Sizes of the convolution; ``first_y``, ``first_x``: the pixel that the first tap of the first output reads."""
    body, form = kernel.body, winograd_pixels(kernel)
    assert isinstance(body, Contraction)
    assert isinstance(form, Pixels), form
    images, height, width, depth = form.image
    return {
        "images": images, "height": height, "width": width, "depth": depth,
        "out_y": form.out[0], "out_x": form.out[1], "first_y": form.first[0], "first_x": form.first[1],
        "n": math.prod(v.extent for v in body.n),
    }  # fmt: skip


def derive(s: SimpleNamespace, p: SimpleNamespace) -> Mapping[str, int]:
    """Tiles, blocks of them and panels; and in floats the scratch: rows of tiles, what lies between positions.

    Positions lie a line further apart than they need, so that those of one tile do not share a set of the cache.
    """
    positions = (s.outputs + 2) ** 2
    tiles_y, tiles_x = -(-p.out_y // s.outputs), -(-p.out_x // s.outputs)
    tiles = p.images * tiles_y * tiles_x
    block = min(-(-s.block // s.mr), -(-tiles // s.mr)) * s.mr
    nr = s.nv * s.lanes
    parts = -(-p.depth // s.part)
    part = -(-(-(-p.depth // parts)) // s.lanes) * s.lanes
    parts = -(-p.depth // part)
    panels = -(-p.n // nr)
    data_position, product_position = block * part + LINE, block * nr + LINE
    kept = min(s.panels, panels) if parts > 1 else 1
    return {
        "positions": positions,
        "tiles_y": tiles_y,
        "tiles_x": tiles_x,
        "tiles": tiles,
        "block": block,
        "blocks": -(-tiles // block),
        "nr": nr,
        "panels": panels,
        "groups": -(-panels // s.panels),
        "part": part,
        "parts": parts,
        "data_row": part,
        "data_position": data_position,
        "data_floats": positions * data_position,
        "product_position": product_position,
        "product_panel": positions * product_position,
        "product_floats": kept * positions * product_position,
    }


def scratch_bytes(s: SimpleNamespace, p: SimpleNamespace) -> int:
    d = SimpleNamespace(**derive(s, p))
    return int(4 * (d.data_floats + d.product_floats + d.part + s.outputs**2 * s.lanes) + 512)


def objections(s: SimpleNamespace, p: SimpleNamespace, limits: Limits) -> Iterator[str]:
    if s.lanes * 4 > limits.vector_bytes:
        yield f"{s.lanes} lanes of 4 bytes, the processor has {limits.vector_bytes}-byte vectors"
    if (scratch := scratch_bytes(s, p)) > SCRATCH_BYTES:
        yield f"{scratch} bytes of scratch, {SCRATCH_BYTES} are allowed"


def geometry(s: SimpleNamespace, p: SimpleNamespace) -> Geometry:
    d = SimpleNamespace(**derive(s, p))
    return Geometry((d.blocks * d.groups, 1, 1))


def default(p: SimpleNamespace, limits: Limits) -> Schedule:
    lanes = limits.vector_bytes // 4
    return {"lanes": lanes, "outputs": 4, "block": 24, "mr": 6, "nv": 4, "part": 256, "panels": 1}


def packing(kernel: Kernel, s: SimpleNamespace, p: SimpleNamespace) -> Packing:
    """Transformed filters [panel, position, input channel, column of the panel]; the last panel is filled up."""
    d = SimpleNamespace(**derive(s, p))
    digits = (
        Digit("span", d.nr, d.panels), Digit("k", p.depth, d.positions), Digit("k", 1, p.depth), Digit("span", 1, d.nr),
    )  # fmt: skip
    return Packing("b", digits, f"winograd{s.outputs}3")


FAMILY = Family(
    "contraction", "codegen/llvm/winograd", PARAMS, problem, objections, derive, geometry, default, "winograd",
    accepts=accepts, packing=packing,
)  # fmt: skip
