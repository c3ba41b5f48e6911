"""The parameters of the contraction family's `separable_mma` engine: the depthwise result in shared memory, matrix units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpucomp.device.limits import Limits
from gpucomp.device.lockstep import least, most
from gpucomp.ir.types import I32
from gpucomp.kernel import Kernel, Separable
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.packing import Digit, Packing
from gpucomp.kernel.sizes import tunable
from gpucomp.kernels_templates.contraction import separable_space as separable
from gpucomp.kernels_templates.contraction.mma import space as mma
from gpucomp.kernels_templates.contraction.separable_mma.emit import emit_separable_mma
from gpucomp.kernels_templates.contraction.separable_space import SeparableProblem
from gpucomp.schedule.space import RESERVED_BESIDE_FRAGMENTS, WARP, Family, Work, remembered, too_large


class SeparableMmaSchedule(separable.SeparableSchedule):
    tile_y: int = separable.TILE_Y
    tile_x: int = separable.TILE_X
    warp_n: int = tunable((8, 16, 32, 64, 128), "columns of the result per warp")
    warps_m: int = tunable((1, 2, 4), "warps along the outputs; each has 16, 32 or 64")
    warps_n: int = tunable((1, 2, 4), "warps along the columns")
    warps_k: int = tunable((1, 2, 4), "warps that share the depth of a part and add up through shared memory")
    vector: int = separable.VECTOR
    reg_y: int = separable.REG_Y
    reg_x: int = separable.REG_X
    parts: int = separable.PARTS
    splits: int = separable.SPLITS


class SeparableMmaProblem(SeparableProblem):
    products: int  # of matrix units for one product: 3 for 3xtf32


class SeparableMmaSizes(separable.SeparableSizes):
    """What follows from a schedule and a problem, for the template."""

    warp_m: int  # outputs of a warp
    blocks_m: int  # of 16 outputs of a warp
    blocks_n: int  # of 8 columns of a warp
    chunk_elements: int  # in 16 bytes of depth
    chunks: int  # in a part of the depth
    steps: int  # of two chunks for each warp along the depth
    pitch: int  # bytes from one pixel to the next in shared memory
    pixel_bytes: int  # of all pixels there
    out_vector: int  # columns that a store takes
    sum_columns: int  # of a row of a warp's sums in shared memory


BARRIER_CYCLES = 60
WARP_ROWS = (16, 32, 64)  # of a warp


def accepts(kernel: Kernel[Separable], features: frozenset[str]) -> str:
    if reason := mma.accepts(kernel, features) or separable.accepts(kernel):
        return reason
    body = kernel.body
    return "bytes are left to other engines" if body.acc.dtype is I32 else ""


def problem(kernel: Kernel[Separable]) -> SeparableMmaProblem:
    body, types = kernel.body, mma.operand_types(kernel)
    nbytes = types[0].nbytes if types else 4
    products = 3 if body.math == "3xtf32" and nbytes == 4 else 1
    return SeparableMmaProblem(**separable.problem(kernel, nbytes).numbers, products=products)


@remembered
def derive(s: SeparableMmaSchedule, p: SeparableMmaProblem) -> SeparableMmaSizes:
    chunk_elements = separable.ROW_PAD // p.element_bytes
    threads = WARP * s.warps_m * s.warps_n * s.warps_k
    common = separable.sizes(s, p, threads, s.warp_n * s.warps_n, 2 * chunk_elements * s.warps_k)
    part_k, tile_m = common.part_k, common.tile_m
    pitch = part_k * p.element_bytes + separable.ROW_PAD
    warp_m = tile_m // s.warps_m
    return SeparableMmaSizes(
        **common.numbers,
        warp_m=warp_m,
        blocks_m=warp_m // 16,
        blocks_n=s.warp_n // 8,
        chunk_elements=chunk_elements,
        chunks=part_k // chunk_elements,
        steps=part_k // (2 * chunk_elements * s.warps_k),
        pitch=pitch,
        pixel_bytes=tile_m * pitch,
        out_vector=least(p.out_wide, s.warp_n // 2),
        sum_columns=s.warp_n + mma.STAGE_PAD,
    )


def dynamic_shared_bytes(s: SeparableMmaSchedule, p: SeparableMmaProblem) -> int:
    """The pixels and the filters; what warps along the depth leave, and sixteen rows of sums of each warp, lie there
    afterwards."""
    d = derive(s, p)
    tiles = d.pixel_bytes + d.part_k * d.tile_n * p.element_bytes
    others = (s.warps_k - 1) * d.tile_m * d.tile_n * 4
    return most(most(tiles, others), s.warps_m * s.warps_n * 16 * d.sum_columns * 4)


def shared_bytes(s: SeparableMmaSchedule, p: SeparableMmaProblem) -> int:
    return dynamic_shared_bytes(s, p) + separable.FLAG_BYTES * (s.splits > 1)


def registers(s: SeparableMmaSchedule, p: SeparableMmaProblem) -> int:
    """Of a window, with the sums where several parts follow each other; or the sums and the fragments of two steps.

    3xtf32 splits the fragments of ``b`` and one block of ``a`` and adds up apart from the sums.
    """
    d = derive(s, p)
    sums = 4 * d.blocks_m * d.blocks_n
    fragments = 2 * (4 * d.blocks_m + 2 * d.blocks_n)
    apart = 4 * d.blocks_n + 12 + fragments if p.products == 3 else 0
    first = separable.window_registers(s, p) + sums * (d.parts_per_split > 1)
    return most(first, sums + fragments + apart + RESERVED_BESIDE_FRAGMENTS)


def registers_taken(s: SeparableMmaSchedule, p: SeparableMmaProblem) -> int:
    """At most what ptxas takes while there are some: it reads the sums of several splits together."""
    d = derive(s, p)
    others = (s.splits > 1) * separable.TOGETHER * 4 * d.blocks_m * d.blocks_n
    return separable.taken(s, p, registers(s, p) + others)


def objections(s: SeparableMmaSchedule, p: SeparableMmaProblem, limits: Limits) -> Iterator[str]:
    if limits.warp != WARP:
        yield f"fragments are dealt to warps of {WARP}, the device's have {limits.warp}"
    if s.tile_y * s.tile_x % s.warps_m or s.tile_y * s.tile_x // s.warps_m not in WARP_ROWS:
        yield f"{s.warps_m} warps do not share {s.tile_y * s.tile_x} outputs by 16, 32 or 64"
        return
    if wrong := list(separable.objections(s, p)):
        yield from wrong
        return
    d = derive(s, p)
    if d.threads > limits.threads:
        yield f"{d.threads} work-items per work-group, the device allows {limits.threads}"
    if (shared := shared_bytes(s, p)) > limits.shared_bytes:
        yield f"{shared} B of shared memory, the device has {limits.shared_bytes} B"
    yield from separable.split_objections(s, d)
    yield from too_large(limits, d.threads, registers(s, p), d.tiles)


def geometry(s: SeparableMmaSchedule, p: SeparableMmaProblem) -> Geometry:
    return separable.geometry(s, derive(s, p), dynamic_shared_bytes(s, p))


def _tile(
    tile_y: int, tile_x: int, warp_n: int, warps_m: int, warps_n: int, warps_k: int, reg_x: int
) -> SeparableMmaSchedule:
    """The smallest schedule with these sizes."""
    return SeparableMmaSchedule(
        tile_y=tile_y,
        tile_x=tile_x,
        warp_n=warp_n,
        warps_m=warps_m,
        warps_n=warps_n,
        warps_k=warps_k,
        reg_x=reg_x,
        vector=separable.VECTORS[0],
        reg_y=1,
        parts=separable.PART_COUNTS[-1],
        splits=1,
    )


TILES = (  # from large to small
    _tile(8, 8, 32, 4, 2, 1, 4),
    _tile(4, 8, 32, 2, 2, 1, 4),
    _tile(4, 8, 32, 2, 1, 2, 2),
    _tile(2, 8, 32, 1, 2, 2, 2),
    _tile(2, 8, 16, 1, 2, 2, 2),
    _tile(4, 4, 16, 1, 1, 2, 1),
    _tile(4, 4, 8, 1, 1, 1, 1),
)


def default(p: SeparableMmaProblem, limits: Limits) -> SeparableMmaSchedule:
    """The first tile of a short list that leaves no unit idle, in as few parts as fit; the smallest where none does."""
    vector = max(v for v in separable.VECTORS if p.widest % v == 0)
    return separable.first_that_fits(
        [tile.replace(vector=vector) for tile in TILES],
        TILES[-1],
        lambda s: not list(objections(s, p, limits)),
        lambda s: derive(s, p).tiles,
        limits,
    )


def work(s: SeparableMmaSchedule, p: SeparableMmaProblem) -> Work:
    """A tile over a work-group's parts of the depth: windows first, then the products of fragments."""
    d = derive(s, p)
    kinds = {2: "f16", 4: "3xtf32" if p.products == 3 else "tf32"}  # bf16 goes as fast as f16
    warps, products, sums = s.warps_m * s.warps_n * s.warps_k, d.blocks_m * d.blocks_n, d.tile_m * d.tile_n * 4
    fragments = 4 * d.blocks_m + 2 * d.blocks_n
    step = products * p.products + fragments / 4 + (mma.SPLIT_INSTRUCTIONS * fragments if p.products == 3 else 0)
    depth = d.parts_per_split * d.part_k
    read = warps * d.parts_per_split * d.steps * (d.warp_m + s.warp_n) * mma.STEP_BYTES
    return Work(
        macs=d.tile_m * d.tile_n * depth,
        cache_bytes=separable.moved_bytes(s, p, d),
        steps=d.parts_per_split * d.trips,
        math=kinds[p.element_bytes],
        out_bytes=d.tile_m * d.tile_n * p.element_bytes,
        shared_traffic=read + depth * p.element_bytes * (d.tile_m + d.tile_n) + 2 * (s.warps_k - 1) * sums,
        shared_bytes=shared_bytes(s, p),
        instructions=warps * d.parts_per_split * d.steps * step
        + separable.window_instructions(s, p, d)
        + warps * products * 4 * mma.OUT_INSTRUCTIONS,
        chains=products,
        step_cycles=2 * BARRIER_CYCLES / d.trips,
        by_warp=True,
        splits=s.splits,
        joined_bytes=sums,
    )


def focus(p: SeparableMmaProblem, limits: Limits) -> Mapping[str, Sequence[int]]:
    return {
        **separable.worthwhile(p, limits),
        "warp_n": (16, 32, 64) if p.n > 8 else (8, 16),
        "warps_n": tuple(n for n in (1, 2, 4) if n == 1 or 16 * n < 2 * p.n),
        "warps_k": (1, 2),
    }


def packing(kernel: Kernel, s: SeparableMmaSchedule, p: SeparableMmaProblem) -> Packing:
    """Filters as [16 bytes of depth, column, elements of them], filled up to whole parts and tiles."""
    d = derive(s, p)
    digits = (
        Digit("k", d.chunk_elements, d.padded_k // d.chunk_elements),
        Digit("span", 1, d.padded_n),
        Digit("k", 1, d.chunk_elements),
    )
    return Packing("b", digits)


FAMILY = Family(
    "contraction",
    Separable,
    SeparableMmaSchedule,
    problem,
    objections,
    derive,
    geometry,
    default,
    "separable_mma",
    accepts=accepts,
    work=work,
    packing=packing,
    registers=registers,
    focus=focus,
    taken=registers_taken,
    emit=emit_separable_mma,
    template="contraction/separable_mma/kernel.j2",
)
