"""Parameters of the contraction family's ``winograd`` engine: F(2x2, 3x3) and F(4x4, 3x3) in one kernel, strict f32 sums.

Four outputs take 16 products instead of 36, sixteen take 36 instead of 144. This pays if multipliers are scarce and
channels are many. It does not pay if a kernel allows the rounding of matrix units, or if a device's local memory is
ordinary memory. Pixels of f16 become f32 when they are transformed: where no matrix unit multiplies them, that is faster
than direct products, even of pairs.

A work-item does not have registers for its sums and for all pixels of a block, let alone for several channels of them,
which one access of memory brings. So pixels are transformed one line at a time, first columns and then rows, and are
exchanged through shared memory in between. A block of F(4, 3) has 36 positions. A work-item there sums a whole line of
them and computes the line's four outputs itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpucomp.device.limits import Limits
from gpucomp.device.lockstep import most
from gpucomp.ir.size import at_most
from gpucomp.ir.types import F16, F32
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.forms.convolution import winograd_pixels, winograd_sizes
from gpucomp.kernel.forms.matrix import loadable_pixels
from gpucomp.kernel.forms.operand import count
from gpucomp.kernel.forms.row_statistics import no_tail
from gpucomp.kernel.forms.stores import store_width
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.packing import Digit, Packing
from gpucomp.kernel.sizes import Sizes, Tunables, tunable
from gpucomp.kernels_templates.contraction.simt.space import (
    BARRIER_CYCLES,
    MEMORY_BYTES_PER_CYCLE,
    MEMORY_CYCLES,
    MULTIPLY_ADDS_PER_CYCLE,
    PASS_BYTES,
    SPLIT_CYCLES,
    TRIP_INSTRUCTIONS,
    passes,
)
from gpucomp.kernels_templates.contraction.winograd.emit import (
    CHANNEL_ACCESS,
    COLUMN_ACCESS,
    emit_winograd,
    transform_of,
)
from gpucomp.refusal import Refusal, required
from gpucomp.schedule.space import (
    MAX_GROUPS,
    RESERVED,
    STATIC_SHARED,
    WARP,
    Family,
    Work,
    cannot_meet,
    fastest,
    groups_for_registers,
    remembered,
    too_large,
    worthwhile_splits,
)


class WinogradSchedule(Tunables):
    outputs: int = tunable((2, 4), "rows, and columns, of outputs of a block")
    columns: int = tunable((16, 32, 64), "output channels per work-group")
    blocks: int = tunable((8, 16, 32), "blocks of output pixels per work-group")
    channels: int = tunable((2, 4, 8), "input channels of one shared-memory stage")
    positions: int = tunable((1, 2, 4, 6), "how many of a block's 16 or 36 products a work-item sums")
    reg_n: int = tunable((4, 8), "output channels per work-item")
    reg_b: int = tunable((2, 4, 8), "blocks per work-item")
    stages: int = tunable(
        (1, 2, 3),
        "buffers in shared memory; with 2, the next one is written while one is read; with 3, there are two, the next one is"
        " written between products, and the one after it is in registers",
    )
    splits: int = tunable((1, 2, 3, 4, 6, 8, 12, 16), "work-groups that share the channels of a tile")


class WinogradProblem(Sizes):
    """Sizes of the convolution, NHWC pixels."""

    images: int
    height: int
    width: int
    depth: int  # input channels
    out_y: int
    out_x: int
    first_y: int  # the row of the first output's first tap
    first_x: int
    n: int  # output channels
    out_wide: int  # most columns of one store
    pixel_bytes: int = 4  # of an element of the image


class WinogradSizes(Sizes):
    """What follows from a schedule and a problem, for the template."""

    threads: int
    rows: int  # work-items of one position along the blocks
    row_columns: int  # work-items of one position along the columns
    u_rows: int  # rows of a position in the filters' shared memory: channels, and at the end rows of products
    v_pad: int  # padding of a position in shared memory, so that adjacent columns are in adjacent banks
    side: int  # pixels of a block along each axis
    products: int  # positions per block
    in_lines: int  # 1: a work-item has a whole line of positions, and computes the line's outputs itself
    patches: int  # blocks in a stage; each channel counts
    v_wide: int  # channels of a pixel that a work-item reads at once
    halves: (
        int  # 1: a work-item reads three columns of a block and transforms them to two: half of one channel of a block
    )
    v_reads: int  # its reads of pixels for a stage
    column_tasks: int  # work-items that read a column of pixels, or three for half a block
    row_tasks: int  # work-items that transform rows
    row_step: int  # distance between rows of a block that a work-item transforms
    row_steps: int  # rows that a work-item transforms
    filter_step: int  # positions of the filters that all work-items together move at once
    filter_steps: int
    blocks_y: int  # blocks along the sides of an image
    blocks_x: int
    all_blocks: int
    padded_n: int  # columns, rounded up to whole tiles
    tiles_b: int
    tiles_n: int
    tiles: int
    tiles_k: int  # stages
    tiles_per_split: int  # stages per work-group
    out_vector: int  # columns per store
    out_tasks: int  # runs of columns of the outputs that a work-group computes at a time
    task_outputs: int  # outputs per run
    rolled: int = 0  # 1: the loop over a stage's channels is not unrolled
    groups_per_unit: int = 0  # work-groups that should be resident on a multiprocessor


BANKS = 32
HALVES = 3  # ``stages`` with which a work-item transforms half a block
ROLLED = 160
HIDING_WARPS = 8  # resident warps of a unit that keep its arithmetic busy
FLAG_BYTES = 16
MATRIX_UNITS = frozenset({"mma", "mfma", "wmma"})  # features of devices that multiply f16 faster than f32
PLENTY = 60  # registers that ptxas uses in addition, if available, to read operands early


def accepts(kernel: Kernel[Contraction], features: frozenset[str]) -> str:
    if reason := no_tail(kernel):
        return reason
    if "mali" in features:
        return "it needs local memory, and this device's is ordinary memory"
    found = winograd_pixels(kernel, (F32, F16))
    if isinstance(found, Refusal):
        return found.reason
    if found.dtype is F16 and MATRIX_UNITS & features:
        return "the device has matrix units for f16"
    loadable = loadable_pixels(kernel)  # it reads four channels at a time
    if isinstance(loadable, Refusal):
        return loadable.reason
    if not at_most(count(kernel.body.m) + max(WinogradSchedule.choices("blocks")), MAX_GROUPS):
        return "blocks are counted with 32 bits"
    return ""


def problem(kernel: Kernel[Contraction]) -> WinogradProblem:
    form = required(loadable_pixels(kernel))
    narrow = {"pixel_bytes": form.dtype.nbytes} if form.dtype is not F32 else {}
    return WinogradProblem(**winograd_sizes(kernel, form), out_wide=store_width(kernel), **narrow)


def products_of(s: WinogradSchedule) -> int:
    """Positions per block. Each is the sum, over channels, of products of transformed pixels and filters."""
    return (s.outputs + 2) * (s.outputs + 2)


def threads_of(s: WinogradSchedule) -> int:
    return (products_of(s) // s.positions) * (s.columns // s.reg_n) * (s.blocks // s.reg_b)


def wide_of(s: WinogradSchedule) -> int:
    """Channels of a pixel that a work-item reads at once, and then transforms one after the other.

    Stages of two channels are for work-items with few registers left; these read one channel at a time. So do those that
    transform half a block.
    """
    return CHANNEL_ACCESS if s.channels >= CHANNEL_ACCESS and s.stages < HALVES else 1


def rows_at_once(s: WinogradSchedule) -> int:
    """Rows of each of a stage's blocks that all work-items together transform at once; 0 if that is impossible."""
    side, most_rows = s.outputs + 2, threads_of(s) // (s.blocks * s.channels)
    return next((n for n in range(side, 0, -1) if side % n == 0 and n <= most_rows), 0)


@remembered
def derive(s: WinogradSchedule, p: WinogradProblem) -> WinogradSizes:
    threads, products, side = threads_of(s), products_of(s), s.outputs + 2
    wide, patches = wide_of(s), s.blocks * s.channels
    row_step = most(1, rows_at_once(s))
    in_lines, halves = int(s.positions == side), int(s.stages == HALVES)
    blocks_y, blocks_x = -(-p.out_y // s.outputs), -(-p.out_x // s.outputs)
    blocks = p.images * blocks_y * blocks_x
    tiles_b, tiles_n, tiles_k = -(-blocks // s.blocks), -(-p.n // s.columns), -(-p.depth // s.channels)
    out_vector = min(4, p.out_wide)
    filter_step = max(1, threads // (s.columns // COLUMN_ACCESS * s.channels))
    return WinogradSizes(
        threads=threads,
        rows=s.blocks // s.reg_b,
        row_columns=s.columns // s.reg_n,
        u_rows=max(s.channels, s.blocks // s.reg_b),
        v_pad=0 if halves else (s.blocks - patches) % BANKS,
        side=side,
        products=products,
        in_lines=in_lines,
        patches=patches,
        v_wide=wide,
        halves=halves,
        v_reads=side * (3 if halves else 1),
        column_tasks=2 * patches if halves else patches // wide * side,
        row_tasks=patches * row_step,
        row_step=row_step,
        row_steps=side // row_step,
        filter_step=filter_step,
        filter_steps=-(-products // filter_step),
        blocks_y=blocks_y,
        blocks_x=blocks_x,
        all_blocks=blocks,
        padded_n=tiles_n * s.columns,
        tiles_b=tiles_b,
        tiles_n=tiles_n,
        tiles=tiles_b * tiles_n,
        tiles_k=tiles_k,
        tiles_per_split=-(-tiles_k // s.splits),
        out_vector=out_vector,
        out_tasks=s.blocks // s.reg_b * s.outputs ** (1 if in_lines else 2) * s.columns // out_vector,
        task_outputs=s.outputs if in_lines else 1,
    )


def shared_bytes(s: WinogradSchedule, p: WinogradProblem) -> int:
    """Transformed pixels and filters of all stages. The products of the output transform reuse the filters' space."""
    d = derive(s, p)
    tiles = min(s.stages, 2) * d.products * (d.patches + d.v_pad + d.u_rows * s.columns) * 4
    return tiles + (FLAG_BYTES if s.splits > 1 else 0)


def registers(s: WinogradSchedule, p: WinogradProblem) -> int:
    """Registers for sums, the operands of a step, loads of pixels and filters in flight, and other values."""
    d = derive(s, p)
    sums = s.positions * s.reg_n * s.reg_b
    return sums + s.reg_n + s.reg_b + d.v_reads * d.v_wide + COLUMN_ACCESS * d.filter_steps + RESERVED


def registers_taken(s: WinogradSchedule, p: WinogradProblem) -> int:
    """An upper bound of the registers that ptxas uses if they are available.

    It does with fewer if it is told how many work-groups have to be resident.
    """
    return registers(s, p) + PLENTY


def groups_of_a_unit(s: WinogradSchedule, p: WinogradProblem) -> int:
    """Work-groups that fit a unit's registers, by the formula."""
    return groups_for_registers(registers(s, p), threads_of(s))


def template_sizes(s: WinogradSchedule, p: WinogradProblem) -> WinogradSizes:
    """The sizes of ``derive``, ``rolled`` and ``groups_per_unit``.

    If the loop over a stage's channels is unrolled, ptxas reads the operands of all channels ahead. If a unit has
    registers for two work-groups, one transforms while the other multiplies, and these operands would cost the second
    group or be spilled. With F(2, 3), ptxas spills some from ``ROLLED`` registers on, whatever the unit has. It does not if
    the next channels are written in between.

    Without ``groups_per_unit`` ptxas saves registers so that one more work-group fits, and spills.
    """
    groups = groups_of_a_unit(s, p)
    rolled = groups > 1 if s.outputs > 2 else registers(s, p) >= ROLLED and s.stages < HALVES
    return derive(s, p).replace(rolled=int(rolled), groups_per_unit=groups)


def objections(s: WinogradSchedule, p: WinogradProblem, limits: Limits) -> Iterator[str]:
    if limits.is_cpu:
        yield "its tiles are divided among warps, the device runs one work-item at a time"
    if s.columns % s.reg_n or s.blocks % s.reg_b:
        yield "reg_n, reg_b must divide columns, blocks"
        return
    if products_of(s) % s.positions or s.positions > s.outputs + 2:
        yield f"positions={s.positions} does not divide a line of F({s.outputs}, 3)'s positions"
        return
    d = derive(s, p)
    if s.outputs > 2 and not d.in_lines:
        yield f"the outputs of F({s.outputs}, 3) are computed from whole lines, positions={d.side}"
    if d.threads > limits.threads:
        yield f"{d.threads} work-items per work-group, the device allows {limits.threads}"
    if d.halves:
        yield from _no_halves(s, d)
    elif not rows_at_once(s) or d.column_tasks > d.threads:
        lines = f"{d.column_tasks} columns to read, {d.patches} rows to transform at a time"
        yield f"{lines}, {d.threads} work-items can take one each"
    if d.filter_step * s.columns // COLUMN_ACCESS * s.channels != d.threads or d.products % d.filter_step:
        yield f"{d.threads} work-items cannot share filters of {s.channels} x {s.columns} evenly"
    shared = shared_bytes(s, p)
    if shared > limits.shared_bytes:
        yield f"{shared} B of shared memory, the device has {limits.shared_bytes} B"
    if shared > STATIC_SHARED:
        yield f"{shared} B of shared memory in arrays of fixed size, compilers allow {STATIC_SHARED}"
    yield from too_large(limits, d.threads, registers(s, p), d.tiles)
    if s.splits > 1 and workspace_bytes(s, p) > MAX_GROUPS:
        yield "the partial sums of split channels need more than 2 GiB"
    yield from cannot_meet(s.splits, limits)


def _no_halves(s: WinogradSchedule, d: WinogradSizes) -> Iterator[str]:
    """Why work-items cannot transform half a block each, between products."""
    if s.outputs > 2:
        yield f"a block of F({s.outputs}, 3) is transformed in lines"
    if d.column_tasks != d.threads:
        yield f"{d.patches} channels of blocks have two halves each, there are {d.threads} work-items"
    if s.channels < d.side:
        yield f"{d.side} rows are written between the products of as many channels, a stage has {s.channels}"


def workspace_bytes(s: WinogradSchedule, p: WinogradProblem) -> int:
    """Bytes of partial sums: one per output and split."""
    d = derive(s, p)
    return d.tiles * s.splits * s.blocks * s.outputs**2 * s.columns * 4


def geometry(s: WinogradSchedule, p: WinogradProblem) -> Geometry:
    d = derive(s, p)
    split = s.splits > 1
    return Geometry(
        (d.tiles, s.splits, 1),
        (d.threads, 1, 1),
        workspace_bytes=workspace_bytes(s, p) if split else 0,
        counter_bytes=4 * d.tiles if split else 0,
    )


TILES = (  # from large to small
    WinogradSchedule(outputs=2, columns=64, blocks=32, channels=4, positions=2, reg_n=8, reg_b=8, stages=3, splits=1),
    WinogradSchedule(outputs=2, columns=64, blocks=32, channels=4, positions=2, reg_n=8, reg_b=8, stages=1, splits=1),
    WinogradSchedule(outputs=2, columns=64, blocks=16, channels=4, positions=2, reg_n=8, reg_b=4, stages=2, splits=1),
    WinogradSchedule(outputs=2, columns=64, blocks=16, channels=4, positions=2, reg_n=8, reg_b=4, stages=1, splits=1),
    WinogradSchedule(outputs=2, columns=32, blocks=32, channels=4, positions=2, reg_n=4, reg_b=8, stages=2, splits=1),
    WinogradSchedule(outputs=2, columns=32, blocks=32, channels=4, positions=2, reg_n=4, reg_b=8, stages=1, splits=1),
    WinogradSchedule(outputs=2, columns=32, blocks=16, channels=8, positions=1, reg_n=8, reg_b=4, stages=3, splits=1),
    WinogradSchedule(outputs=2, columns=32, blocks=16, channels=8, positions=2, reg_n=4, reg_b=4, stages=1, splits=1),
    WinogradSchedule(outputs=2, columns=32, blocks=16, channels=4, positions=2, reg_n=4, reg_b=4, stages=2, splits=1),
    WinogradSchedule(outputs=2, columns=32, blocks=16, channels=4, positions=2, reg_n=4, reg_b=4, stages=1, splits=1),
    WinogradSchedule(outputs=4, columns=32, blocks=16, channels=2, positions=6, reg_n=4, reg_b=4, stages=1, splits=1),
    WinogradSchedule(outputs=4, columns=32, blocks=16, channels=4, positions=6, reg_n=4, reg_b=4, stages=1, splits=1),
    WinogradSchedule(outputs=4, columns=64, blocks=8, channels=4, positions=6, reg_n=4, reg_b=2, stages=1, splits=1),
    WinogradSchedule(outputs=4, columns=32, blocks=8, channels=4, positions=6, reg_n=4, reg_b=2, stages=1, splits=1),
    WinogradSchedule(outputs=4, columns=32, blocks=8, channels=2, positions=6, reg_n=4, reg_b=2, stages=1, splits=1),
)
# cost of a channel of a block, in multiply-adds. For F(2, 3): a quarter of 16 guarded loads, 32 additions, and 16 values
# that are written to shared memory, read, and written again. For F(4, 3): 36 loads, 144 multiply-adds, 36 values
TRANSFORM_MACS = {2: 100, 4: 288}
HALVES_MACS = (
    112  # the same for two halves of a block of F(2, 3): 24 loads with masks, 48 sums and choices, 16 values written
)
# cost of a vector of one output: nine reads of shared memory, the sums, the epilogue; of four: six reads, four epilogues
OUT_MACS = {2: 40, 4: 120}
LINE_MACS = 80  # cost of a line of sums for a run of four columns: its outputs, and four stores
MOST_SPLIT_SUMS = 96
LOSS = {2: 1.0, 4: 1.1}  # F(4, 3) has three times the error of F(2, 3), so it has to be clearly faster


def default(p: WinogradProblem, limits: Limits) -> WinogradSchedule:
    """The tile and split that are fastest by a model of one unit's cycles."""
    candidates = [
        tile.replace(splits=splits)
        for tile in TILES
        for splits in WinogradSchedule.choices("splits")
        # the largest tile uses all registers for its sums; with splits ptxas spilled on sm_90a
        if splits == 1 or tile.positions * tile.reg_n * tile.reg_b <= MOST_SPLIT_SUMS
    ]
    return fastest(candidates, objections, lambda s, p, limits: LOSS[s.outputs] * cycles(s, p, limits), p, limits)


def cycles(s: WinogradSchedule, p: WinogradProblem, limits: Limits) -> float:
    """Cycles of the busiest unit, computed like those of ``simt`` so that the two can be compared.

    A unit's share of work-groups has so many stages each. A stage is bound by arithmetic, by the caches or by the
    latency of memory.
    """
    d = derive(s, p)
    groups = d.tiles * s.splits
    if s.splits > 1 and (d.tiles_k < 4 * s.splits or groups > 4 * limits.units):
        return float("inf")  # too little work for each, or enough work-groups without splits
    share = -(-groups // limits.units)
    warps = min(share, groups_of_a_unit(s, p)) * d.threads / 32
    rate = min(MULTIPLY_ADDS_PER_CYCLE * min(1, warps / HIDING_WARPS), share * d.threads)
    sums = d.products * s.blocks * s.columns * s.channels * (1 + 1 / s.reg_n + 1 / s.reg_b)
    arithmetic = (sums + d.patches * transform_macs(s, p, d)) / rate
    memory = loaded_bytes(s, p) / MEMORY_BYTES_PER_CYCLE
    stage = max(share * max(arithmetic, memory), MEMORY_CYCLES) + (4 - s.stages) * BARRIER_CYCLES
    vectors = s.reg_b * d.out_tasks
    lines = s.reg_b * d.threads * s.reg_n // 4 * LINE_MACS * d.in_lines
    stored = vectors * d.task_outputs * d.out_vector * 4 / MEMORY_BYTES_PER_CYCLE
    out = share * ((vectors * OUT_MACS[s.outputs] + lines) / rate + stored) + 2 * s.reg_b * BARRIER_CYCLES
    added = SPLIT_CYCLES + s.splits * s.blocks * s.outputs**2 * s.columns / 32 if s.splits > 1 else 0
    return float(MEMORY_CYCLES + d.tiles_per_split * stage + out + added)


def transform_macs(s: WinogradSchedule, p: WinogradProblem, d: WinogradSizes) -> int:
    """Cost of a channel of a block, in multiply-adds; an f16 is converted before."""
    macs = HALVES_MACS if d.halves else TRANSFORM_MACS[s.outputs]
    return macs + (products_of(s) if p.pixel_bytes < 4 else 0)


def uniform(s: WinogradSchedule, p: WinogradProblem) -> int:
    """Registers of the formula that a compiler with scalar registers does not need."""
    few, many = UNIFORM[s.outputs]
    return many if registers(s, p) > HALF_A_SIMD else few


def loaded_bytes(s: WinogradSchedule, p: WinogradProblem) -> float:
    """Bytes of pixels and filters that a stage loads.

    Of a block's pixels it counts those that no other block of the work-group reads: two columns of four, four of six.
    """
    side = s.outputs + 2
    return products_of(s) * s.channels * (p.pixel_bytes * s.blocks * s.outputs / side + 4 * s.columns)


# Registers of the formula that clang does not need for gfx906: it keeps what a wave shares in scalar registers, and saves some to
# keep to the 128 that each of two waves of a SIMD has. In its listings of F(2, 3), 144 to 156 by the formula are 121 to 128, and
# up to 128 it is 8 to 26 less; of F(4, 3), 134 to 146 are 122 to 128, others are as many as the formula says or some more
HALF_A_SIMD = 128
UNIFORM = {2: (16, 28), 4: (0, 18)}
PATCH_ADDS = {2: 32, 4: 144}  # additions, or multiply-adds, to transform a channel of a block
HALVES_ADDS = 40  # the same for two halves


def work(s: WinogradSchedule, p: WinogradProblem) -> Work:
    """A work-group's share of the channels for its tile; partial sums are written to the workspace and read back."""
    d = derive(s, p)
    warps, sums = -(-d.threads // 32), s.positions * s.reg_n * s.reg_b
    outputs = s.blocks * s.outputs**2 * s.columns * 4
    products = 32 * warps * sums * s.channels  # idle lanes of a partial warp count
    read = products * (1 / s.reg_n + 1 / s.reg_b) / 4  # accesses of four elements
    trip = (products + read + d.patches * transform_macs(s, p, d)) / 32
    trip += warps * (4 * d.filter_steps + TRIP_INSTRUCTIONS)
    tiles = d.products * s.channels * 4 * (s.blocks + s.columns)
    vectors, lines = s.reg_b * d.out_tasks, s.reg_b * d.threads * s.reg_n // 4 * d.in_lines
    loaded = loaded_bytes(s, p)
    transform_cycles = 2 * transform_macs(s, p, d)  # two per instruction
    # each half reads twelve pixels, of sixteen, and transforms eight
    read_again = d.products * s.channels * p.pixel_bytes * s.blocks / 2 if d.halves else 0
    return Work(
        macs=d.tiles_per_split * (products + d.patches * (HALVES_ADDS if d.halves else PATCH_ADDS[s.outputs])),
        cache_bytes=d.tiles_per_split * loaded,
        steps=d.tiles_per_split,
        out_bytes=outputs,
        # as in ``simt``, what is loaded comes through the unit's own cache, which is in the same memory
        shared_traffic=d.tiles_per_split * (tiles + loaded + read_again) + 2 * d.products * s.blocks * s.columns * 4,
        fragment_traffic=d.tiles_per_split * read / 32 * passes(4) * PASS_BYTES,
        shared_bytes=shared_bytes(s, p),
        instructions=d.tiles_per_split * trip + (vectors * OUT_MACS[s.outputs] + lines * LINE_MACS) / 32,
        chains=sums,
        uniform=uniform(s, p),
        # latency of a work-item's transform; only other work-groups can hide it, or products: then it is seen once
        step_cycles=(4 - s.stages) * BARRIER_CYCLES + (0 if d.halves else transform_cycles),
        # at the end, the outputs of each of its blocks, one after the other
        start_cycles=400 + (transform_cycles if d.halves else 0) + s.reg_b * (2 * BARRIER_CYCLES + OUT_MACS[s.outputs]),
        least_share=36 / 144,  # F(4, 3)'s
        splits=s.splits,
        joined_bytes=outputs,
    )


def focus(p: WinogradProblem, limits: Limits) -> Mapping[str, Sequence[int]]:
    results = p.images * p.out_y * p.out_x * p.n
    return {
        "positions": (1, 2, 6) if limits.warp > WARP else (2, 6),
        "splits": worthwhile_splits(WinogradSchedule.choices("splits"), p.depth, 4, results, limits),
    }


def packing(kernel: Kernel, s: WinogradSchedule, p: WinogradProblem) -> Packing:
    """Transformed filters [position, input channel, output channel]; output channels are padded to whole tiles."""
    d = derive(s, p)
    digits = (Digit("k", p.depth, d.products), Digit("k", 1, p.depth), Digit("span", 1, d.padded_n))
    return Packing("b", digits, transform_of(s.outputs))


FAMILY = Family(
    "contraction",
    Contraction,
    WinogradSchedule,
    problem,
    objections,
    template_sizes,
    geometry,
    default,
    "winograd",
    accepts=accepts,
    work=work,
    packing=packing,
    registers=registers,
    focus=focus,
    taken=registers_taken,
    emit=emit_winograd,
    template="contraction/winograd/kernel.j2",
    any_size=True,
)
