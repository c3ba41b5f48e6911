"""Parameters of the contraction family's ``mma`` engine: warp tiles on matrix units, a ring of stages, split-K."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from gpucomp.device.limits import REGISTER_FILE, Limits
from gpucomp.device.lockstep import gcd, least, most
from gpucomp.expr.core import Expr, Var
from gpucomp.ir.size import Size, is_zero
from gpucomp.ir.types import BF16, F16, F32, I8, I32, U8, DType
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.forms.copyable import copyable, stored
from gpucomp.kernel.forms.matrix import SideBySide, form_of_a
from gpucomp.kernel.forms.operand import CHUNK_BYTES, along_memory, fast_axis
from gpucomp.kernel.forms.row_statistics import has_tail, tail_problem
from gpucomp.kernel.forms.stores import store_width
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.packing import Digit, Packing
from gpucomp.kernel.passes.pack_weights import packable
from gpucomp.kernel.sizes import Sizes, Tunables, tunable
from gpucomp.kernels_templates.contraction.mma.emit import emit_mma
from gpucomp.kernels_templates.contraction.row_statistics import (
    tail_counter_bytes,
    tail_cycles,
    tail_registers,
    tail_work,
)
from gpucomp.kernels_templates.contraction.sizes import GemmProblem, extents
from gpucomp.refusal import Refusal
from gpucomp.schedule.space import (
    MAX_GROUPS,
    MOST_REGISTERS,
    RESERVED_BESIDE_FRAGMENTS,
    START_CYCLES,
    WARP,
    Family,
    Work,
    remembered,
    too_many_groups,
    worthwhile_splits,
)


class MmaSchedule(Tunables):
    warp_m: int = tunable((16, 32, 64), "rows of the result per warp")
    warp_n: int = tunable((8, 16, 32, 64, 128), "columns of the result per warp")
    warps_m: int = tunable((1, 2, 4), "warps along the rows")
    warps_n: int = tunable((1, 2, 4), "warps along the columns")
    warps_k: int = tunable((1, 2, 4), "warps that share the depth of a stage and add their sums through shared memory")
    k_steps: int = tunable((1, 2, 4, 8), "depth of a stage, in steps of 32 bytes, the depth of one mma")
    stages: int = tunable((2, 3, 4, 5, 6), "tiles in shared memory: one is multiplied while the others are loaded")
    splits: int = tunable((1, 2, 3, 4, 6, 8, 12, 16, 32), "work-groups that share the depth of a tile")
    raster: int = tunable(
        (1, 2, 4, 8), "columns of tiles that work-groups walk down together, for the second-level cache"
    )


class MmaProblem(GemmProblem):
    """Sizes of a plain contraction, and the kind of its products."""

    element_bytes: int  # bytes of an element in shared memory
    products: int  # products of matrix units per product: 3 for 3xtf32


class OperandSizes(Sizes):
    """How one operand's tile is divided among work-items, and its layout in shared memory. All sizes are powers of two.

    Its fast axis is the one that is contiguous in memory.
    """

    by_depth: int  # 1: the fast axis is the depth
    vector: int  # elements of a chunk; one access loads a chunk
    fast_items: int  # work-items along the fast axis
    fast_steps: int  # chunks of each work-item along it
    slow_items: int
    slow_steps: int
    slow_guard: int  # 1: the last step goes past the end of the tile
    shared_by_depth: int  # 1: a row of the tile in shared memory is along the depth
    row_bytes: int  # bytes of such a row
    bytes: int  # bytes of the tile

    @property
    def span_steps(self) -> int:
        """Chunks of a work-item along the axis that is not summed."""
        return self.slow_steps if self.by_depth else self.fast_steps

    @property
    def depth_steps(self) -> int:
        return self.fast_steps if self.by_depth else self.slow_steps


class MmaSizes(Sizes):
    """What follows from a schedule and a problem."""

    threads: int
    tile_m: int
    tile_n: int
    tile_k: int
    warp_steps: int  # steps of a warp in a stage
    blocks_m: int  # blocks of 16 rows, and of 8 columns, per warp
    blocks_n: int
    a: OperandSizes
    b: OperandSizes
    stage_bytes: int
    out_vector: int  # columns per store
    sum_columns: int  # columns of a row of sums that are staged in shared memory for stores
    tiles_m: int
    tiles_n: int
    tiles_k: int
    tiles_per_split: int  # tiles along the depth per split
    tiles: int  # tiles of the whole result


STEP_BYTES = 32  # bytes of a row of an operand per mma
STAGE_PAD = 8  # columns after a staged row of sums, if eight rows would otherwise share four banks
FLAG_BYTES = 128  # static: the flag of the last to arrive, padded to where dynamic shared memory may begin


def operand_types(kernel: Kernel[Contraction]) -> tuple[DType, DType] | Refusal:
    """The types that matrix units multiply, as stored in memory, or the reason why they cannot."""
    body = kernel.body
    a, b, acc = stored(body.a).dtype, stored(body.b).dtype, body.acc.dtype
    if acc is I32 and {a, b} <= {I8, U8}:
        return a, b
    if acc is F32 and a is b and a in (F16, BF16):
        return a, b
    if acc is F32 and a is b is F32:
        exact = body.math == "strict"
        return Refusal("f32 is multiplied exactly unless the kernel allows tf32 or 3xtf32") if exact else (a, b)
    return Refusal(f"matrix units do not multiply {a} by {b} into {acc}")


def accepts(kernel: Kernel[Contraction], features: frozenset[str]) -> str:
    if "mma" not in features:
        return "the device has no mma.sync"
    found = operand_types(kernel)
    if isinstance(found, Refusal):
        return found.reason
    if found[0] in (BF16, F32) and "mma_sm80" not in features:
        return f"the device multiplies no {'bf16' if found[0] is BF16 else 'tf32'} on matrix units"
    body = kernel.body
    if any(is_zero(v.extent) for v in (*body.batch, *body.m, *body.n, *body.k)):
        return "there is nothing to multiply"
    if isinstance(form_of_a(kernel), SideBySide):  # it would be computed in registers, of which there are too few
        return "operand a is two operands side by side"
    return ""


def problem(kernel: Kernel[Contraction]) -> MmaProblem:
    kernel = along_memory(kernel)
    body = kernel.body
    types = operand_types(kernel)
    nbytes = types[0].nbytes if types else 4
    a_by_depth, a_wide, a_copied = _in_memory(kernel, body.a, body.m, nbytes)
    b_by_depth, b_wide, b_copied = _in_memory(kernel, body.b, body.n, nbytes)
    return MmaProblem(
        **extents(body),
        element_bytes=nbytes,
        products=3 if body.math == "3xtf32" and nbytes == 4 else 1,
        a_by_depth=a_by_depth,
        a_wide=a_wide,
        a_copied=a_copied,
        b_by_depth=b_by_depth,
        b_wide=b_wide,
        b_copied=b_copied,
        out_wide=store_width(kernel),
        inputs=kernel.inputs,
        **tail_problem(kernel),
    )


def _in_memory(kernel: Kernel[Contraction], value: Expr, span: Sequence[Var], nbytes: int) -> tuple[int, int, int]:
    """Whether an operand is contiguous along the depth, the elements of an access, and whether copies can be used."""
    depth = kernel.body.k
    found = copyable(kernel, value, span, depth)
    # fragments of bytes are read along the depth only; bytes in another order are transposed on their way
    copied = int(found.width > 0 and (nbytes > 1 or found.by_depth))
    return found.by_depth, found.width or fast_axis(kernel, stored(value), span, depth)[1], copied


def operand_sizes(tile: int, tile_k: int, by_depth: int, wide: int, threads: int, nbytes: int) -> OperandSizes:
    vector = gcd(wide, tile_k if by_depth else tile)
    fast, slow = (tile_k, tile) if by_depth else (tile, tile_k)
    chunks = fast // vector
    fast_items = least(chunks, threads)
    slow_items = threads // fast_items
    shared_by_depth = int(by_depth or nbytes == 1)
    return OperandSizes(
        by_depth=by_depth,
        vector=vector,
        fast_items=fast_items,
        fast_steps=chunks // fast_items,
        slow_items=slow_items,
        slow_steps=-(-slow // slow_items),
        slow_guard=int(slow % slow_items != 0),
        shared_by_depth=shared_by_depth,
        row_bytes=(tile_k if shared_by_depth else tile) * nbytes,
        bytes=tile * tile_k * nbytes,
    )


@remembered
def derive(s: MmaSchedule, p: MmaProblem) -> MmaSizes:
    tile_m, tile_n = s.warp_m * s.warps_m, s.warp_n * s.warps_n
    tile_k = s.k_steps * STEP_BYTES // p.element_bytes
    threads = WARP * s.warps_m * s.warps_n * s.warps_k
    tiles_m, tiles_n, tiles_k = -(-p.m // tile_m), -(-p.n // tile_n), -(-p.k // tile_k)
    a = operand_sizes(tile_m, tile_k, p.a_by_depth, p.a_wide, threads, p.element_bytes)
    b = operand_sizes(tile_n, tile_k, p.b_by_depth, p.b_wide, threads, p.element_bytes)
    return MmaSizes(
        threads=threads,
        tile_m=tile_m,
        tile_n=tile_n,
        tile_k=tile_k,
        warp_steps=s.k_steps // s.warps_k,
        blocks_m=s.warp_m // 16,
        blocks_n=s.warp_n // 8,
        a=a,
        b=b,
        stage_bytes=a.bytes + b.bytes,
        out_vector=least(p.out_wide, s.warp_n // 2),  # sixteen rows suffice for all lanes of a warp
        sum_columns=s.warp_n + STAGE_PAD,
        tiles_m=tiles_m,
        tiles_n=tiles_n,
        tiles_k=tiles_k,
        tiles_per_split=-(-tiles_k // s.splits),
        tiles=tiles_m * tiles_n * p.batch,
    )


def dynamic_shared_bytes(s: MmaSchedule, p: MmaProblem) -> int:
    """Bytes of the ring of stages.

    After the last stage its memory is reused: for the sums of other warps along the depth, then for sixteen rows of
    sums of each warp.
    """
    d = derive(s, p)
    ring = s.stages * d.stage_bytes
    shared_depth = (s.warps_k - 1) * d.tile_m * d.tile_n * 4
    staged = s.warps_m * s.warps_n * 16 * d.sum_columns * 4
    return most(most(ring, shared_depth), staged)


def shared_bytes(s: MmaSchedule, p: MmaProblem) -> int:
    return dynamic_shared_bytes(s, p) + FLAG_BYTES * (s.splits > 1 or has_tail(p))


def staged_registers(s: MmaSchedule, p: MmaProblem, *, async_copy: bool) -> int:
    """Registers that hold a tile in flight, if asynchronous copies do not bring it; parts of a word need one each."""
    d = derive(s, p)
    total = 0
    for o, copied in ((d.a, p.a_copied), (d.b, p.b_copied)):
        if not (async_copy and copied):
            total += -(-o.bytes // (min(4, o.vector * p.element_bytes) * d.threads))
    return total


def registers(s: MmaSchedule, p: MmaProblem, *, async_copy: bool = True) -> int:
    """Registers for sums, the fragments of two steps, a tile in flight, and other values.

    3xtf32 splits the fragments of ``b`` and one block of ``a`` and adds small products separately. ptxas also splits
    fragments of later steps early.
    """
    d = derive(s, p)
    fragments = 4 * d.blocks_m + 2 * d.blocks_n
    split = 4 * d.blocks_n + 12 + fragments * (min(d.warp_steps, 4) - 1) if p.products == 3 else 0
    spans = d.a.span_steps + d.b.span_steps
    staged = staged_registers(s, p, async_copy=async_copy)
    # those of the next step: a block of rows is read after the last use of the one before it, unless all are read at once
    apart = async_copy and p.a_copied and p.b_copied
    ahead = (4 + 2 * d.blocks_n if apart else fragments) * (d.warp_steps > 1)
    sums = 4 * d.blocks_m * d.blocks_n
    # sums of other work-groups are held while they are added, with their addresses; beside 128 sums only the registers
    # of the next step's fragments are free for that
    left = most(0, fragments + 8 - ahead) if s.splits > 1 and sums >= 128 else 0
    before = sums + fragments + ahead + split + staged + 2 * spans + left + RESERVED_BESIDE_FRAGMENTS
    return most(before, tail_registers(d.threads, d.tile_m, p))


def objections(s: MmaSchedule, p: MmaProblem, limits: Limits) -> Iterator[str]:
    if limits.warp != WARP:
        yield f"fragments are divided among warps of {WARP}, the device's have {limits.warp}"
    if s.k_steps % s.warps_k:
        yield f"warps_k={s.warps_k} warps cannot share k_steps={s.k_steps}"
        return
    d = derive(s, p)
    if d.threads > limits.threads:
        yield f"{d.threads} work-items per work-group, the device allows {limits.threads}"
    if (shared := shared_bytes(s, p)) > limits.shared_bytes:
        yield f"{shared} B of shared memory, the device has {limits.shared_bytes} B"
    available = least(limits.registers, REGISTER_FILE // d.threads)
    if (used := registers(s, p, async_copy=limits.async_copy)) > available:
        yield f"about {used} registers per work-item, the device has {available} for each of {d.threads}"
    yield from too_many_groups(d.tiles)
    if (s.splits > 1) * d.tiles * s.splits * d.tile_m * d.tile_n * 4 > MAX_GROUPS:
        yield "the partial sums of split-K need more than 2 GiB"


def geometry(s: MmaSchedule, p: MmaProblem) -> Geometry:
    d = derive(s, p)
    split = s.splits > 1
    return Geometry(
        (d.tiles, s.splits, 1),
        (d.threads, 1, 1),
        dynamic_shared_bytes=dynamic_shared_bytes(s, p),
        workspace_bytes=d.tiles * s.splits * d.tile_m * d.tile_n * 4 if split else 0,
        counter_bytes=(4 * d.tiles if split else 0) + tail_counter_bytes(d.tiles // d.tiles_n, d.tiles_n, p),
    )


TILES = (  # warp_m, warp_n, warps_m, warps_n, warps_k, k_steps, stages: from large to small
    (64, 64, 2, 2, 1, 2, 4),
    (64, 64, 2, 2, 1, 2, 3),
    (64, 32, 2, 2, 1, 2, 4),
    (32, 64, 2, 2, 1, 2, 4),
    # a tile of 64 x 64: warps that share the depth read a quarter less of shared memory for each product than warps of 32 x 32
    (64, 32, 1, 2, 2, 4, 4),
    (32, 32, 2, 2, 1, 4, 4),
    (32, 32, 2, 2, 1, 4, 3),
    (32, 32, 2, 2, 1, 2, 3),
    (32, 64, 1, 2, 2, 4, 3),
    (64, 32, 2, 1, 2, 4, 3),
    (32, 32, 2, 1, 2, 4, 4),
    (32, 32, 1, 2, 2, 4, 4),
    (32, 32, 1, 1, 4, 4, 4),
    (16, 32, 2, 2, 1, 4, 4),
    (16, 32, 1, 2, 2, 4, 4),
    (16, 32, 1, 1, 4, 4, 4),
    (16, 16, 1, 1, 4, 4, 4),
    (32, 32, 2, 2, 1, 2, 2),
    (16, 32, 2, 2, 1, 2, 2),
    (16, 16, 1, 1, 1, 1, 2),
)

# the same for depths of one or two stages: all loads are in flight before the first product, and there are half as many barriers
SHORT = (
    (32, 32, 2, 1, 2, 8, 3),
    (32, 32, 1, 2, 2, 8, 3),
)

# of one unit, about; those of an A100, which other devices resemble
MULTIPLY_ADDS_PER_CYCLE = {1: 2048, 2: 1024, 4: 512}  # by bytes of an element
MEMORY_BYTES_PER_CYCLE = 28  # per unit, from the second-level cache, if all units load
SHARED_BYTES_PER_CYCLE = 128
MEMORY_CYCLES = 700  # latency of a tile
BARRIER_CYCLES = 60  # per stage: its barrier and its first fragments
SPLIT_CYCLES = 1500  # to store partial sums and arrive

# instructions of a warp, about
TRIP_INSTRUCTIONS = 24  # per stage: waits, barrier, addresses of the next one
COPY_INSTRUCTIONS = 4  # per chunk: address, halo test
SPLIT_INSTRUCTIONS = 4  # per register of a fragment that 3xtf32 splits
OUT_INSTRUCTIONS = 3  # per sum


def default(p: MmaProblem, limits: Limits) -> MmaSchedule:
    """The tile and split that are fastest by a model of one unit's cycles.

    Of equals, that with the least shared traffic, and then with the fewest stages of the depth.
    """

    def key(s: MmaSchedule) -> tuple[float, ...]:
        return cycles(s, p, limits), work(s, p).shared_traffic, derive(s, p).tiles_per_split

    candidates = [_tile(tile, splits) for tile in TILES for splits in MmaSchedule.choices("splits")]
    if limits.async_copy:
        short = [_tile(tile, 1) for tile in SHORT]
        candidates += [s for s in short if derive(s, p).tiles_k < s.stages and p.k % derive(s, p).tile_k == 0]
    legal = [s for s in candidates if not list(objections(s, p, limits))]
    return settle(min(legal, key=key), p)


def _tile(sizes: tuple[int, int, int, int, int, int, int], splits: int) -> MmaSchedule:
    warp_m, warp_n, warps_m, warps_n, warps_k, k_steps, stages = sizes
    return MmaSchedule(
        warp_m=warp_m,
        warp_n=warp_n,
        warps_m=warps_m,
        warps_n=warps_n,
        warps_k=warps_k,
        k_steps=k_steps,
        stages=stages,
        splits=splits,
        raster=1,
    )


def _raster(tiles_n: int) -> int:
    """Columns of tiles that are walked together, as in CUTLASS (threadblock_swizzle.h).

    The swizzle of shared memory is in ``rows``.
    """
    return 8 if tiles_n >= 6 else 4 if tiles_n >= 3 else 2 if tiles_n >= 2 else 1


def cycles(s: MmaSchedule, p: MmaProblem, limits: Limits) -> float:
    """Cycles of the busiest unit: its share of work-groups, each with so many stages.

    A stage is bound by matrix units, by the caches, by shared memory, or by the part of memory's latency that the ring
    does not hide.
    """
    d = derive(s, p)
    if s.splits > 1 and (d.tiles_k < 2 * s.splits or d.tiles > 2 * limits.units):
        return float("inf")  # too little work for each, or enough work-groups without splits
    groups = d.tiles * s.splits
    share = -(-groups // limits.units)
    warps = s.warps_m * s.warps_n * s.warps_k
    multiply = d.tile_m * d.tile_n * d.tile_k * p.products / MULTIPLY_ADDS_PER_CYCLE[p.element_bytes]
    multiply *= max(1.0, 4 / (warps * share))  # a unit has four matrix cores, and a warp uses one
    memory = d.stage_bytes / MEMORY_BYTES_PER_CYCLE
    fragments = warps * d.warp_steps * (s.warp_m + s.warp_n) * STEP_BYTES / SHARED_BYTES_PER_CYCLE
    latency = (MEMORY_CYCLES + BARRIER_CYCLES) / (s.stages - 1) if limits.async_copy else MEMORY_CYCLES
    stage = max(share * max(multiply, memory, fragments), latency, BARRIER_CYCLES)
    out = share * d.tile_m * d.tile_n * 4 / MEMORY_BYTES_PER_CYCLE
    added = SPLIT_CYCLES + (1 + s.splits) * out if s.splits > 1 else 0
    added += tail_cycles(d.threads, d.tile_m, d.tiles_n, p)
    return float(MEMORY_CYCLES + d.tiles_per_split * stage + out + added)


def work(s: MmaSchedule, p: MmaProblem) -> Work:
    """A work-group's share of the depth for its tile; partial sums are written to the workspace and read back."""
    d = derive(s, p)
    warps, sums = s.warps_m * s.warps_n * s.warps_k, d.tile_m * d.tile_n * 4
    kinds = {1: "s8", 2: "f16", 4: "3xtf32" if p.products == 3 else "tf32"}  # bf16 is as fast as f16
    products, fragments = d.blocks_m * d.blocks_n, 4 * d.blocks_m + 2 * d.blocks_n
    step = products * p.products + fragments / 4 + (SPLIT_INSTRUCTIONS * fragments if p.products == 3 else 0)
    chunks = d.a.bytes / (d.a.vector * p.element_bytes) + d.b.bytes / (d.b.vector * p.element_bytes)
    trip = warps * (d.warp_steps * step + TRIP_INSTRUCTIONS) + COPY_INSTRUCTIONS * chunks / WARP
    read = warps * d.warp_steps * (s.warp_m + s.warp_n) * STEP_BYTES
    return Work(
        macs=d.tile_m * d.tile_n * d.tile_k * d.tiles_per_split,
        cache_bytes=d.tiles_per_split * d.stage_bytes,
        steps=d.tiles_per_split,
        math=kinds[p.element_bytes],
        out_bytes=sums,
        ahead=s.stages - 1,
        shared_traffic=d.tiles_per_split * (read + d.stage_bytes) + 2 * (s.warps_k - 1) * sums,
        shared_bytes=shared_bytes(s, p),
        instructions=d.tiles_per_split * trip + warps * products * 4 * OUT_INSTRUCTIONS,
        chains=products,
        step_cycles=BARRIER_CYCLES,
        early_cycles=START_CYCLES,
        by_warp=True,
        splits=s.splits,
        joined_bytes=sums,
        **tail_work(d.threads, d.tile_m, d.tiles_n, p),
    )


def focus(p: MmaProblem, limits: Limits) -> Mapping[str, Sequence[int]]:
    """Everything except the order of tiles, which ``settle`` chooses, and stages too thin or too deep to pay."""
    least_depth, results = STEP_BYTES // p.element_bytes, p.batch * p.m * p.n
    return {
        "warp_n": (16, 32, 64) if p.n > 8 else (8, 16),
        "k_steps": (2, 4),
        "stages": (2, 3, 4) if limits.async_copy else (2,),
        "splits": worthwhile_splits(MmaSchedule.choices("splits"), p.k, least_depth, results, limits),
        "raster": (1,),
    }


def settle(s: MmaSchedule, p: MmaProblem) -> MmaSchedule:
    return s.replace(raster=_raster(derive(s, p).tiles_n))


def packing(kernel: Kernel[Contraction], s: MmaSchedule, p: MmaProblem) -> Packing | None:
    """Packs a constant operand along the depth.

    Only if, as it is, it cannot be copied, or not in whole chunks, or its fragments would be read in pieces.
    """
    sides = (("b", p.n, p.b_by_depth, p.b_wide, p.b_copied), ("a", p.m, p.a_by_depth, p.a_wide, p.a_copied))
    body = kernel.body
    for name, extent, by_depth, wide, copied in sides:
        span = body.n if name == "b" else body.m
        if any(isinstance(v.extent, Size) for v in (*body.batch, *span, *body.k)):
            continue
        width = math.gcd(p.k, CHUNK_BYTES // p.element_bytes)
        whole = width * p.element_bytes == CHUNK_BYTES
        piecemeal = p.element_bytes != 2 and not by_depth and whole
        narrow = whole and wide < width
        if (copied and not piecemeal and not narrow) or width * p.element_bytes < 4 or not packable(kernel, name):
            continue
        after = p.replace(**{f"{name}_by_depth": 1, f"{name}_wide": width, f"{name}_copied": 1})
        available = min(MOST_REGISTERS, REGISTER_FILE // derive(s, p).threads)
        # the schedule was chosen for the operand as it is, and has to run with the packed one too
        if all(registers(s, after, async_copy=is_async) <= available for is_async in (True, False)):
            batch = (Digit("batch", 1, p.batch),) if p.batch > 1 else ()
            return Packing(name, (*batch, Digit("span", 1, extent), *_depth_digits(kernel)))
    return None


def _depth_digits(kernel: Kernel[Contraction]) -> tuple[Digit, ...]:
    """The depth in the order in which the engine walks it: one digit, or one per axis if the order differs."""
    body, ordered = kernel.body, along_memory(kernel).body
    if ordered.k == body.k:
        return (Digit("k", 1, math.prod(v.extent for v in body.k)),)
    inner = {axis: math.prod(v.extent for v in body.k[place + 1 :]) for place, axis in enumerate(body.k)}
    return tuple(Digit("k", inner[axis], axis.extent) for axis in ordered.k)


FAMILY = Family(
    "contraction",
    Contraction,
    MmaSchedule,
    problem,
    objections,
    derive,
    geometry,
    default,
    "mma",
    accepts=accepts,
    work=work,
    packing=packing,
    registers=registers,
    focus=focus,
    settle=settle,
    in_memory_order=along_memory,
    emit=emit_mma,
    template="contraction/mma/kernel.j2",
    any_size=True,
)
