"""The parameters of the contraction family's `separable_simt` engine: the depthwise result in shared memory, f32."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpucomp.device.limits import Limits
from gpucomp.device.lockstep import least, most
from gpucomp.ir.types import F32
from gpucomp.kernel import Kernel, Separable
from gpucomp.kernel.forms.copyable import stored
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.packing import Digit, Packing
from gpucomp.kernel.sizes import tunable
from gpucomp.kernels_templates.contraction import separable_space as separable
from gpucomp.kernels_templates.contraction.separable_simt.emit import emit_separable_simt
from gpucomp.kernels_templates.contraction.separable_space import SeparableProblem
from gpucomp.kernels_templates.contraction.simt.space import passes
from gpucomp.schedule.space import RESERVED, STATIC_SHARED, Family, Work, cannot_meet, remembered, too_large


class SeparableSimtSchedule(separable.SeparableSchedule):
    tile_y: int = separable.TILE_Y
    tile_x: int = separable.TILE_X
    tile_n: int = tunable((4, 8, 16, 32, 64, 128), "columns of the result per work-group")
    reg_m: int = tunable((1, 2, 4, 8), "outputs per work-item")
    reg_n: int = tunable((4, 8), "columns of the result per work-item")
    vector: int = separable.VECTOR
    reg_y: int = separable.REG_Y
    reg_x: int = separable.REG_X
    parts: int = separable.PARTS
    splits: int = separable.SPLITS
    asynchronous: int = tunable((0, 1), "1: filters are copied to shared memory past the registers (cp.async)")


class SeparableSimtSizes(separable.SeparableSizes):
    """What follows from a schedule and a problem, for the template."""

    rows: int  # work-items along the outputs of a tile
    columns: int  # work-items along the columns of a tile
    a_deep: int  # elements of a pixel that a work-item reads at once
    pitch: int  # elements from one pixel to the next in shared memory
    out_vector: int  # columns that a store takes
    lanes: int  # of a vector of sums, and slices of the depth: what `contraction/sums.j2` reads besides
    slices: int
    tiles_bytes: int  # of shared memory
    dynamic_shared_bytes: int


STEP = 8  # the depth of a part is a multiple of it
BARRIER_CYCLES = 60
PASS_BYTES = 128  # that shared memory's banks give in a cycle


def accepts(kernel: Kernel[Separable], features: frozenset[str]) -> str:
    if features & {"mali", "amd"}:
        return "its local memory, and its registers, are of another kind"
    if reason := separable.accepts(kernel):
        return reason
    body = kernel.body
    if body.acc.dtype is not F32 or stored(body.b).dtype is not F32:
        return "sums and filters are of f32"
    return ""


def problem(kernel: Kernel[Separable]) -> SeparableProblem:
    return separable.problem(kernel, element_bytes=4)


@remembered
def derive(s: SeparableSimtSchedule, p: SeparableProblem) -> SeparableSimtSizes:
    rows, columns = s.tile_y * s.tile_x // s.reg_m, s.tile_n // s.reg_n
    common = separable.sizes(s, p, most(1, rows * columns), s.tile_n, STEP)
    pitch = common.part_k + separable.ROW_PAD // 4
    shared = 4 * (common.tile_m * pitch + common.part_k * s.tile_n)
    return SeparableSimtSizes(
        **common.numbers,
        rows=rows,
        columns=columns,
        a_deep=4 if s.reg_m <= 4 else 2,
        pitch=pitch,
        out_vector=least(4, p.out_wide),
        lanes=1,
        slices=1,
        tiles_bytes=shared,
        dynamic_shared_bytes=shared * (s.asynchronous * (shared + separable.FLAG_BYTES) > STATIC_SHARED),
    )


def shared_bytes(s: SeparableSimtSchedule, p: SeparableProblem) -> int:
    return derive(s, p).tiles_bytes + separable.FLAG_BYTES * (s.splits > 1)


def registers(s: SeparableSimtSchedule, p: SeparableProblem) -> int:
    """Of a window, with the sums where several parts follow each other; or the sums and what is multiplied."""
    d = derive(s, p)
    sums = s.reg_m * s.reg_n
    first = separable.window_registers(s, p) + sums * (d.parts_per_split > 1)
    return most(first, sums + s.reg_m * d.a_deep + s.reg_n + RESERVED)


def registers_taken(s: SeparableSimtSchedule, p: SeparableProblem) -> int:
    """At most what ptxas takes while there are some."""
    return separable.taken(s, p, registers(s, p))


def objections(s: SeparableSimtSchedule, p: SeparableProblem, limits: Limits) -> Iterator[str]:
    if limits.is_cpu:
        yield "outputs are dealt to work-items side by side, the device runs one at a time"
    if s.tile_n % s.reg_n or s.tile_y * s.tile_x % s.reg_m:
        yield "reg_m, reg_n must divide tile_y * tile_x, tile_n"
        return
    if wrong := list(separable.objections(s, p)):
        yield from wrong
        return
    d = derive(s, p)
    if d.threads > limits.threads:
        yield f"{d.threads} work-items per work-group, the device allows {limits.threads}"
    shared = shared_bytes(s, p)
    if shared > limits.shared_bytes:
        yield f"{shared} B of shared memory, the device has {limits.shared_bytes} B"
    if shared > STATIC_SHARED and not s.asynchronous:
        yield f"{shared} B of shared memory in arrays of fixed size, compilers allow {STATIC_SHARED}"
    if s.asynchronous and not limits.async_copy:
        yield "the device has no asynchronous copies"
    yield from separable.split_objections(s, d)
    yield from cannot_meet(s.splits, limits)
    yield from too_large(limits, d.threads, registers(s, p), d.tiles)


def geometry(s: SeparableSimtSchedule, p: SeparableProblem) -> Geometry:
    d = derive(s, p)
    return separable.geometry(s, d, d.dynamic_shared_bytes)


def _tile(tile_y: int, tile_x: int, tile_n: int, reg_m: int, reg_n: int, reg_x: int) -> SeparableSimtSchedule:
    """The smallest schedule with these sizes."""
    return SeparableSimtSchedule(
        tile_y=tile_y,
        tile_x=tile_x,
        tile_n=tile_n,
        reg_m=reg_m,
        reg_n=reg_n,
        reg_x=reg_x,
        vector=separable.VECTORS[0],
        reg_y=1,
        parts=separable.PART_COUNTS[-1],
        splits=1,
        asynchronous=0,
    )


TILES = (  # from large to small
    _tile(8, 8, 64, 4, 8, 4),
    _tile(4, 8, 64, 4, 4, 4),
    _tile(4, 8, 32, 4, 4, 2),
    _tile(2, 8, 32, 2, 4, 2),
    _tile(2, 8, 16, 1, 4, 1),
    _tile(1, 4, 8, 1, 4, 1),
    _tile(1, 4, 4, 1, 4, 1),
)


def default(p: SeparableProblem, limits: Limits) -> SeparableSimtSchedule:
    """The first tile of a short list that leaves no unit idle, in as few parts as fit; the smallest where none does."""
    vector = max(v for v in separable.VECTORS if p.widest % v == 0)
    return separable.first_that_fits(
        [tile.replace(vector=vector, asynchronous=int(limits.async_copy)) for tile in TILES],
        TILES[-1],
        lambda s: not list(objections(s, p, limits)),
        lambda s: derive(s, p).tiles,
        limits,
    )


def work(s: SeparableSimtSchedule, p: SeparableProblem) -> Work:
    """A tile over a work-group's parts of the depth: windows first, then the products."""
    d = derive(s, p)
    warps, depth = -(-d.threads // 32), d.parts_per_split * d.part_k
    sums = d.tile_m * s.tile_n * 4
    accesses = s.reg_m / d.a_deep, s.reg_n / 4
    read = accesses[0] * passes(d.a_deep) + accesses[1] * passes(4)
    products = warps * depth * (s.reg_m * s.reg_n + sum(accesses))
    return Work(
        macs=32 * warps * depth * s.reg_m * s.reg_n,
        cache_bytes=separable.moved_bytes(s, p, d),
        steps=d.parts_per_split * d.trips,
        out_bytes=sums,
        shared_traffic=depth * 4 * (d.tile_m + s.tile_n),
        fragment_traffic=warps * depth * read * PASS_BYTES,
        shared_bytes=shared_bytes(s, p),
        instructions=products + separable.window_instructions(s, p, d) + 3 * warps * s.reg_m * s.reg_n,
        chains=s.reg_m * s.reg_n,
        step_cycles=2 * BARRIER_CYCLES / d.trips,
        splits=s.splits,
        joined_bytes=sums,
    )


def focus(p: SeparableProblem, limits: Limits) -> Mapping[str, Sequence[int]]:
    return {
        **separable.worthwhile(p, limits),
        "tile_n": tuple(t for t in (16, 32, 64, 128) if t < 2 * max(p.n, 16)),
        "reg_m": (2, 4, 8),
        "asynchronous": (int(limits.async_copy),),
    }


def packing(kernel: Kernel, s: SeparableSimtSchedule, p: SeparableProblem) -> Packing:
    """Filters [depth, column], filled up to whole parts and tiles."""
    d = derive(s, p)
    return Packing("b", (Digit("k", 1, d.padded_k), Digit("span", 1, d.padded_n)))


FAMILY = Family(
    "contraction",
    Separable,
    SeparableSimtSchedule,
    problem,
    objections,
    derive,
    geometry,
    default,
    "separable_simt",
    accepts=accepts,
    work=work,
    packing=packing,
    registers=registers,
    focus=focus,
    taken=registers_taken,
    emit=emit_separable_simt,
    template="contraction/separable_simt/kernel.j2",
)
