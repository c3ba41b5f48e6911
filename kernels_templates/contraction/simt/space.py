"""Parameters of the contraction family's ``simt`` engine: shared-memory tiles, register tiles, split-K."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpucomp.device.limits import Limits
from gpucomp.device.lockstep import gcd, least, most
from gpucomp.expr.core import Expr, cast
from gpucomp.ir.types import F32
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.forms.access import Rewriter
from gpucomp.kernel.forms.copyable import stored
from gpucomp.kernel.forms.lanes import pure_load
from gpucomp.kernel.forms.operand import USUAL_INPUTS, along_memory, fast_axis
from gpucomp.kernel.forms.packed_int8 import in_words, packed_in_words, word_packing
from gpucomp.kernel.forms.packed_words import per_product
from gpucomp.kernel.forms.row_statistics import has_tail, tail_problem
from gpucomp.kernel.forms.stores import store_width
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.packing import Packing
from gpucomp.kernel.sizes import Sizes, Tunables, tunable
from gpucomp.kernels_templates.contraction.row_statistics import (
    tail_counter_bytes,
    tail_cycles,
    tail_registers,
    tail_shared_bytes,
    tail_work,
)
from gpucomp.kernels_templates.contraction.simt.emit import emit_contraction
from gpucomp.kernels_templates.contraction.sizes import GemmProblem, extents
from gpucomp.schedule.space import (
    MAX_GROUPS,
    MOST_REGISTERS,
    STATIC_SHARED,
    Family,
    Work,
    cannot_meet,
    groups_for_less_than_a_warp,
    remembered,
    too_many_groups,
    too_many_registers,
    too_wide,
    worthwhile_splits,
)


class SimtSchedule(Tunables):
    tile_m: int = tunable((1, 2, 4, 8, 16, 32, 64, 128, 256), "rows of the result per work-group")
    tile_n: int = tunable((4, 8, 16, 32, 64, 128, 256), "columns of the result per work-group")
    tile_k: int = tunable((4, 8, 16, 32, 64, 128), "depth of one shared-memory stage")
    reg_m: int = tunable((1, 2, 4, 8, 16), "rows of the result per work-item")
    reg_n: int = tunable((1, 2, 4, 8, 16, 32, 64), "columns of the result per work-item")
    stages: int = tunable((1, 2, 3, 4, 5, 6), "tiles in shared memory: one is multiplied while the others are loaded")
    asynchronous: int = tunable((0, 1), "1: tiles are copied to shared memory past the registers (cp.async)")
    fragments: int = tunable((1, 2), "2: a step's operands are read from shared memory one step ahead")
    slices: int = tunable((1, 2, 4), "groups of work-items that share the depth of a tile")
    splits: int = tunable((1, 2, 3, 4, 6, 8, 12, 16, 32), "work-groups that share the depth of a tile")
    lanes: int = tunable((1, 4, 8, 16), "columns per accumulator, if a work-item computes with vectors")


class SimtProblem(GemmProblem):
    """Sizes of a plain contraction, and the kind of its products.

    If ``dot`` is more than 1, ``k`` and the numbers of elements count words of four bytes, of as many elements.
    """

    acc_bytes: int
    exact_f32: int  # 1: f32 is multiplied as f32, which matrix units do not
    dot: int  # steps of the depth per product: 4 for bytes, 2 for pairs of f16


class OperandSizes(Sizes):
    """How one operand's tile is divided among work-items. Its fast axis is the one that is contiguous in memory."""

    by_depth: int  # 1: the fast axis is the depth
    vector: int  # elements per access
    fast_items: int  # work-items along the fast axis
    fast_steps: int  # accesses of each work-item along it
    slow_items: int
    slow_steps: int
    slow_guard: int  # 1: the last step goes past the end of the tile
    pad: int  # elements after a row of the tile in shared memory

    @property
    def span_steps(self) -> int:
        """Accesses of a work-item along the axis that is not summed."""
        return self.slow_steps if self.by_depth else self.fast_steps

    @property
    def depth_steps(self) -> int:
        return self.fast_steps if self.by_depth else self.slow_steps


class SimtSizes(Sizes):
    """What follows from a schedule and a problem."""

    threads: int
    rows: int  # work-items of a slice along the rows of the tile
    columns: int
    quads: int  # 1: a warp is 4 x 8 work-items, whose reads of shared memory have no bank conflicts
    a: OperandSizes
    b: OperandSizes
    a_rows: int  # 1: rows of ``a`` are along the depth in shared memory; a work-item's rows are then ``rows`` apart
    a_deep: int  # elements of such a row that a work-item reads at once; few if it has many rows
    a_outer: int  # extents of a stage of ``a`` in shared memory
    a_inner: int
    run_m: int  # neighbouring rows of a work-item
    run_n: int
    out_vector: int  # columns per store
    tiles_m: int
    tiles_n: int
    tiles_k: int
    tiles_per_split: int  # tiles along the depth per split
    tiles: int  # tiles of the whole result
    tiles_bytes: int  # bytes of the tiles in shared memory
    dynamic_shared_bytes: int
    groups_per_unit: int = 0  # work-groups that should be resident on a multiprocessor; 0: the compiler decides


DYNAMIC_ALIGNMENT = 128  # of dynamic shared memory, which comes after arrays of fixed size
ADDRESSES = 48  # registers for the addresses of an unrolled loop: pointers, offsets, halo tests
PAD = 4  # elements after a row in shared memory, if writes would otherwise hit one bank
ROW_BYTES = 16  # bytes of a row of ``a`` along the depth per copy


def problem(kernel: Kernel[Contraction]) -> SimtProblem:
    return sizes_of(packed_in_words(kernel))


def sizes_of(kernel: Kernel[Contraction]) -> SimtProblem:
    """The sizes of a kernel that is in words if its products are of words."""
    kernel = along_memory(kernel)
    body = kernel.body
    a_by_depth, a_wide = fast_axis(kernel, body.a, body.m, body.k)
    b_by_depth, b_wide = fast_axis(kernel, body.b, body.n, body.k)
    types = {stored(body.a).dtype, stored(body.b).dtype, body.acc.dtype}
    return SimtProblem(
        **extents(body),
        a_by_depth=a_by_depth,
        a_wide=a_wide,
        b_by_depth=b_by_depth,
        b_wide=b_wide,
        a_copied=is_copied(kernel, body.a),
        b_copied=is_copied(kernel, body.b),
        out_wide=store_width(kernel),
        acc_bytes=max(4, body.acc.dtype.nbytes),
        exact_f32=int(types == {F32} and body.math == "strict"),
        inputs=kernel.inputs,
        dot=per_product(kernel),
        **tail_problem(kernel),
    )


def is_copied(kernel: Kernel[Contraction], value: Expr) -> int:
    """1 if an operand's elements are used as they are stored, or are zero, so that copies of memory can fill its tile."""
    found = pure_load(Rewriter(kernel.params, {})(cast(value, kernel.body.factor)))
    return int(found is not None and kernel.params[found[0].source].dtype.bits in (32, 64))


def threads_of(s: SimtSchedule) -> int:
    return (s.tile_m // s.reg_m) * (s.tile_n // s.reg_n) * s.slices


def width_of(wide: int, *tiles: int) -> int:
    """The widest access that the tile allows, at most ``wide``."""
    while any(t % wide for t in tiles):
        wide //= 2
    return wide


def operand_sizes(tile: int, tile_k: int, by_depth: int, wide: int, threads: int) -> OperandSizes:
    """How loading a tile is divided: a row of the fast axis is ``tile / wide`` or ``tile_k / wide`` accesses."""
    fast, slow = (tile_k, tile) if by_depth else (tile, tile_k)
    chunks = fast // wide
    fast_items = gcd(chunks, threads)
    slow_items = threads // fast_items
    return OperandSizes(
        by_depth=by_depth,
        vector=wide,
        fast_items=fast_items,
        fast_steps=chunks // fast_items,
        slow_items=slow_items,
        slow_steps=-(-slow // slow_items),
        slow_guard=int(slow % slow_items != 0),
        pad=PAD if by_depth and threads > 1 else 0,
    )


def row_chunk(s: SimtSchedule, p: SimtProblem) -> int:
    """Elements of a 16-byte chunk, if the tile of ``a`` keeps the rows that asynchronous copies bring; otherwise 0.

    A copy cannot transpose. A tile with rows along the depth, as ``a`` has in memory, takes whole chunks; a tile across
    it would take one element at a time.
    """
    if not (s.asynchronous and p.a_by_depth):
        return 0
    chunk = ROW_BYTES // p.acc_bytes
    return chunk if p.a_wide == chunk and s.tile_k % chunk == 0 and s.tile_k // s.slices % chunk == 0 else 0


@remembered
def derive(s: SimtSchedule, p: SimtProblem) -> SimtSizes:
    threads = threads_of(s)
    chunk = row_chunk(s, p)
    # an asynchronous copy along the depth, into a tile across it, moves one element
    late_a, late_b = s.asynchronous and p.a_by_depth and not chunk, s.asynchronous and p.b_by_depth
    a_wide = 1 if late_a else width_of(p.a_wide, s.tile_k if p.a_by_depth else s.tile_m)
    b_wide = 1 if late_b else width_of(p.b_wide, s.tile_k if p.b_by_depth else s.tile_n)
    a = operand_sizes(s.tile_m, s.tile_k, p.a_by_depth, a_wide, threads)
    b = operand_sizes(s.tile_n, s.tile_k, p.b_by_depth, b_wide, threads)
    a_pad = chunk or a.pad  # after a row of chunks, so that eight rows that are read together have no bank conflicts
    a_outer, a_inner = (s.tile_m, s.tile_k + a_pad) if chunk else (s.tile_k, s.tile_m + a_pad)
    run_n = s.lanes if s.lanes > 1 else least(s.reg_n, 4)
    rows, columns = s.tile_m // s.reg_m, s.tile_n // s.reg_n
    tiles_bytes = s.stages * (a_outer * a_inner + s.tile_k * (s.tile_n + b.pad)) * p.acc_bytes
    tiles_m, tiles_n, tiles_k = -(-p.m // s.tile_m), -(-p.n // s.tile_n), -(-p.k // s.tile_k)
    return SimtSizes(
        threads=threads,
        rows=rows,
        columns=columns,
        quads=int(columns > 8 and columns % 8 == 0 and rows % 4 == 0),
        a=a,
        b=b,
        a_rows=int(chunk > 0),
        a_deep=(least(chunk, 4) if s.reg_m <= 4 else 2) if chunk else 1,
        a_outer=a_outer,
        a_inner=a_inner,
        run_m=1 if chunk else least(s.reg_m, 4),
        run_n=run_n,
        out_vector=width_of(p.out_wide, run_n),
        tiles_m=max(1, tiles_m),  # an empty result has no launch, but its source must compile
        tiles_n=max(1, tiles_n),
        tiles_k=tiles_k,
        tiles_per_split=-(-tiles_k // s.splits),
        tiles=tiles_m * tiles_n * p.batch,
        tiles_bytes=tiles_bytes,
        dynamic_shared_bytes=tiles_bytes * (s.asynchronous * (tiles_bytes + rest_bytes(s, p)) > STATIC_SHARED),
    )


def rest_bytes(s: SimtSchedule, p: SimtProblem) -> int:
    """Shared memory besides the tiles: the slices' sums, the flag of the last work-group to arrive, row statistics."""
    tail = tail_shared_bytes(threads_of(s), s.tile_m, p)
    return (s.slices - 1) * s.tile_m * s.tile_n * p.acc_bytes + 16 * (s.splits > 1) + tail


def shared_bytes(s: SimtSchedule, p: SimtProblem) -> int:
    """Both tiles of all stages, and the rest, which is padded to where dynamic memory may begin."""
    d, rest = derive(s, p), rest_bytes(s, p)
    return d.tiles_bytes + (-(-rest // DYNAMIC_ALIGNMENT) * DYNAMIC_ALIGNMENT if d.dynamic_shared_bytes else rest)


def registers(s: SimtSchedule, p: SimtProblem) -> int:
    """Registers that the sums need, or the row statistics after them.

    It is all registers if 128 sums are added to those of other work-groups. ptxas then reads another group's sums ahead
    while registers are left, and now and then a few too many (sm_89, CUDA 13.5: 12 of 107 schedules spill, most 8 or 16
    bytes; one of 58 without splits).
    """
    joined = (s.reg_m * s.reg_n * (p.acc_bytes // 4) >= 128) * (s.splits > 1) * MOST_REGISTERS
    return most(most(_registers_of_sums(s, p), joined), tail_registers(threads_of(s), s.tile_m, p))


def _registers_of_sums(s: SimtSchedule, p: SimtProblem) -> int:
    """Registers that the sums need: accumulators, fragments, the staged tile, row addresses, and 26 others."""
    d = derive(s, p)
    words = p.acc_bytes // 4
    staged = words * s.tile_k * (s.tile_m + s.tile_n) // d.threads if s.stages == 2 and not s.asynchronous else 0
    spans = d.a.span_steps + d.b.span_steps
    # copies need a third each, for halo tests; if there are many, their results are kept
    addresses = 2 * spans + s.asynchronous * most(0, spans - 8)
    fragments = s.fragments * (s.reg_m * d.a_deep + s.reg_n)
    return words * (s.reg_m * s.reg_n + fragments) + staged + addresses + 26


def registers_joining(s: SimtSchedule, p: SimtProblem) -> int:
    """Registers that the last of several work-groups needs for the others' sums, if its own sums came from slices.

    ptxas then reads all sums of another group before it adds any. It does not do so otherwise (measured on sm_80, CUDA
    13.3).
    """
    return (2 * (p.acc_bytes // 4) * s.reg_m * s.reg_n + 26) * (s.slices > 1) * (s.splits > 2)


def registers_taken(s: SimtSchedule, p: SimtProblem) -> int:
    """An upper bound of the registers that ptxas uses if they are plenty.

    It then reads three fragments ahead and keeps addresses. Measured over all kernels of the benchmark models
    (bench/compile_matrix.py). ptxas manages with ``registers`` if it has to, so this is no objection to a schedule. It
    bounds how many work-groups share a unit.
    """
    d = derive(s, p)
    fragments = 3 * (p.acc_bytes // 4) * (s.reg_m * d.a_deep + s.reg_n)
    # destinations of copies in each stage, or a tile that passes through registers without being kept there
    passing = p.acc_bytes // 4 * s.tile_k * (s.tile_m + s.tile_n) // threads_of(s) if s.stages == 1 else 0
    moving = 16 if s.asynchronous else passing
    partial = (p.acc_bytes // 4) * s.reg_m * s.reg_n if s.splits > 1 else 0  # another split's sums, read together
    sums = _registers_of_sums(s, p) + fragments + ADDRESSES + moving + partial + 8 * max(0, p.inputs - USUAL_INPUTS)
    return most(sums, tail_registers(threads_of(s), s.tile_m, p))


def template_sizes(s: SimtSchedule, p: SimtProblem) -> SimtSizes:
    """The sizes of ``derive``, and ``groups_per_unit``.

    ptxas decides well how many work-groups should be resident, except for many inputs or few work-items. Then it saves
    registers for more work-groups, and addresses are spilled. If it were told how many registers ``registers_taken``
    allows, it would read so far ahead that it spills.
    """
    groups = 1 if p.inputs > USUAL_INPUTS else groups_for_less_than_a_warp(threads_of(s))
    return derive(s, p).replace(groups_per_unit=groups)


def objections(s: SimtSchedule, p: SimtProblem, limits: Limits) -> Iterator[str]:
    if s.tile_m % s.reg_m or s.tile_n % s.reg_n:
        yield "reg_m, reg_n must divide tile_m, tile_n"
        return
    threads = threads_of(s)
    if threads > limits.threads:
        yield f"{threads} work-items per work-group, the device allows {limits.threads}"
    if s.reg_n % s.lanes:
        yield f"lanes={s.lanes} does not divide reg_n={s.reg_n}"
    if s.lanes > 1 and not limits.is_cpu:
        yield f"vector accumulators are for devices that run one work-item at a time, this one runs {limits.warp}"
    if s.lanes > 1:
        yield from too_wide(s.lanes, p.acc_bytes, limits)
    if s.lanes > 1 and p.dot == 2:
        yield "dot products of f16 need scalar accumulators"
    if s.lanes > 1 and s.splits > 1:
        yield "split-K needs scalar accumulators"
    if s.lanes > 1 and has_tail(p):
        yield "row statistics need scalar accumulators"  # PoCL 3.0 with LLVM 14 fails to compile them with vectors
    if (shared := shared_bytes(s, p)) > limits.shared_bytes:
        yield f"{shared} B of shared memory, the device has {limits.shared_bytes} B"
    static = rest_bytes(s, p) if s.asynchronous else shared
    if not limits.is_cpu and static > STATIC_SHARED:
        yield f"{static} B of shared memory in arrays of fixed size, compilers allow {STATIC_SHARED}"
    yield from _pipeline_objections(s, p, limits)
    if not limits.is_cpu:
        yield from too_many_registers(limits, threads, most(registers(s, p), registers_joining(s, p)))
    d = derive(s, p)
    yield from too_many_groups(d.tiles)
    if (s.splits > 1) * d.tiles * s.splits * s.tile_m * s.tile_n * p.acc_bytes > MAX_GROUPS:
        yield "the partial sums of split-K need more than 2 GiB"
    yield from cannot_meet(most(s.splits, d.tiles_n) if has_tail(p) else s.splits, limits)


def _pipeline_objections(s: SimtSchedule, p: SimtProblem, limits: Limits) -> Iterator[str]:
    if s.tile_k % s.slices:
        yield f"slices={s.slices} does not divide tile_k={s.tile_k}"
    if s.lanes > 1 and (s.slices > 1 or s.fragments > 1):
        yield "vector accumulators are for a single slice, whose operands are read as they are needed"
    if not s.asynchronous and s.stages > 2:
        yield f"{s.stages} stages need asynchronous copies, because registers hold one tile"
    if not s.asynchronous:
        return
    if not limits.async_copy:
        yield "the device has no asynchronous copies"
    if s.stages == 1:
        yield "asynchronous copies need a second stage"
    for operand, copied in (("a", p.a_copied), ("b", p.b_copied)):
        if not copied:
            yield f"operand {operand} is computed or converted when it is loaded, so it cannot be copied"


def geometry(s: SimtSchedule, p: SimtProblem) -> Geometry:
    d = derive(s, p)
    split = (s.splits > 1) * (d.tiles > 0)
    return Geometry(
        (d.tiles, s.splits if d.tiles else 1, 1),
        (d.threads, 1, 1),
        dynamic_shared_bytes=d.dynamic_shared_bytes,
        workspace_bytes=split * d.tiles * s.splits * s.tile_m * s.tile_n * p.acc_bytes,
        counter_bytes=split * 4 * d.tiles + tail_counter_bytes(d.tiles // d.tiles_n, d.tiles_n, p),
    )


PLAIN = {"stages": 1, "asynchronous": 0, "fragments": 1, "slices": 1, "splits": 1, "lanes": 1}


def _tile(sizes: tuple[int, int, int, int, int], *, stages: int = 2, lanes: int = 1) -> SimtSchedule:
    tile_m, tile_n, tile_k, reg_m, reg_n = sizes
    return SimtSchedule(
        tile_m=tile_m,
        tile_n=tile_n,
        tile_k=tile_k,
        reg_m=reg_m,
        reg_n=reg_n,
        stages=stages,
        asynchronous=0,
        fragments=1,
        slices=1,
        splits=1,
        lanes=lanes,
    )


TILES = tuple(
    _tile(sizes)
    for sizes in (  # tile_m, tile_n, tile_k, reg_m, reg_n: from large to small
        (128, 128, 8, 8, 8),
        (128, 64, 16, 8, 4),
        (64, 128, 16, 4, 8),
        (64, 64, 16, 4, 4),
        (32, 64, 16, 4, 4),
        (64, 32, 16, 4, 4),
        (32, 32, 16, 4, 2),
        (16, 64, 16, 2, 4),
        (16, 32, 16, 2, 2),
        (16, 16, 16, 2, 2),
        (4, 64, 16, 1, 4),
        (1, 64, 32, 1, 1),
        (8, 8, 8, 1, 1),
    )
)

MULTIPLY_ADDS_PER_CYCLE = 128  # of one unit, about; one work-item does one per cycle
RESIDENT = 8  # about how many work-groups share a unit
STEP_CYCLES = 300  # latency of a tile; only other work-groups, or tiles loaded ahead, hide it
BARRIER_CYCLES = 40
SPLIT_CYCLES = 1500  # to store partial sums, arrive, and add them
SLICE_CYCLES = 100  # the same through shared memory
MEMORY_CYCLES = 700  # until the first tile has arrived
MEMORY_BYTES_PER_CYCLE = 28  # per unit, from the second-level cache, if all units load
# instructions of a warp, about
TRIP_INSTRUCTIONS = 24  # per stage: waits, barrier, addresses of the next one
SCALARS = 9  # fewest that clang has below ``registers`` for gfx906, in tiles of 64 x 64 to 128 x 128: it reads less ahead
COPY_INSTRUCTIONS = 4  # per access that fills shared memory: address, halo test
OUT_INSTRUCTIONS = 3  # per sum
PASS_BYTES = 128  # bytes of shared memory per cycle
MATH = {1: "fma", 2: "dot2", 4: "dp4a"}  # by the steps of the depth per product


def default(p: SimtProblem, limits: Limits) -> SimtSchedule:
    """The tile, split and slices that are fastest by a model of one unit's cycles; on a CPU, one work-item per group.

    Tiles are copied asynchronously if the device and both operands allow it.
    """
    if limits.is_cpu:
        return _one_at_a_time(p, limits)
    late = limits.async_copy and p.a_copied and p.b_copied
    candidates = []
    for tile in TILES:
        depth = -(-p.k // tile.tile_k)  # no more stages than tiles, because ptxas would unroll them all, and spill
        ways = [tile.replace(stages=n, asynchronous=1) for n in (4, 3, 2) if late and n <= max(2, depth)]
        for slices in (1, 2, 4):
            shape = [way.replace(slices=slices) for way in (*ways, tile)]
            legal = next((s for s in shape if not list(objections(s, p, limits))), None)
            if legal is not None:
                candidates += [legal.replace(splits=splits) for splits in SimtSchedule.choices("splits")]
    candidates = [s for s in candidates if not list(objections(s, p, limits))]
    return min(candidates, key=lambda s: cycles(s, p, limits))


def cycles(s: SimtSchedule, p: SimtProblem, limits: Limits) -> float:
    """Cycles of the busiest unit: its share of work-groups, each with so many steps that sums or memory bound."""
    groups = -(-p.m // s.tile_m) * -(-p.n // s.tile_n) * p.batch * s.splits
    share = max(1, -(-groups // limits.units))
    depth = -(-p.k // s.tile_k)
    if s.splits > 1 and (depth < 4 * s.splits or groups > 4 * limits.units):
        return float("inf")  # too little work for each, or enough work-groups without splits
    steps = -(-depth // s.splits)
    fragments = 1 / s.reg_m + 1 / s.reg_n  # reads of shared memory per multiply-add
    rate = min(MULTIPLY_ADDS_PER_CYCLE, min(share, RESIDENT) * threads_of(s))
    sums = share * s.tile_k * s.tile_m * s.tile_n * (1 + fragments) / rate
    ahead = s.stages - 1 if s.asynchronous else 1
    step = max(sums, STEP_CYCLES / ahead) + (BARRIER_CYCLES if share == 1 else 0)
    added = SPLIT_CYCLES + s.splits * s.tile_m * s.tile_n / 32 if s.splits > 1 else 0
    if s.slices > 1:
        added += SLICE_CYCLES + share * s.slices * s.tile_m * s.tile_n / 32
    added += tail_cycles(threads_of(s), s.tile_m, -(-p.n // s.tile_n), p)
    return steps * step + added


def work(s: SimtSchedule, p: SimtProblem) -> Work:
    """A work-group's share of the depth for its tile. Multiply-adds are issued by warps like all other instructions."""
    d = derive(s, p)
    warps, words = -(-d.threads // 32), p.acc_bytes // 4  # idle lanes of a partial warp count
    sums, tile_bytes = s.tile_m * s.tile_n * p.acc_bytes, s.tile_k * (s.tile_m + s.tile_n) * p.acc_bytes
    depth = warps * s.tile_k / s.slices  # sum over all warps
    at_once = d.a_deep if d.a_rows else d.run_m
    accesses = s.reg_m / at_once, s.reg_n / d.run_n
    read = accesses[0] * passes(words * at_once) + accesses[1] * passes(words * d.run_n)
    copies = s.tile_k * s.tile_m / d.a.vector + s.tile_k * s.tile_n / d.b.vector
    around = COPY_INSTRUCTIONS * copies / d.threads + TRIP_INSTRUCTIONS
    trip = depth * (words * s.reg_m * s.reg_n + sum(accesses)) + warps * around
    return Work(
        macs=32 * depth * s.reg_m * s.reg_n * d.tiles_per_split * words * p.dot,
        math=MATH[p.dot],
        cache_bytes=d.tiles_per_split * tile_bytes,
        steps=d.tiles_per_split,
        out_bytes=sums,
        ahead=s.stages - 1 if s.asynchronous else 1,
        # what is not copied past the registers comes through the unit's own cache first, which is in the same memory
        shared_traffic=d.tiles_per_split * (2 - s.asynchronous) * tile_bytes + 2 * (s.slices - 1) * sums,
        fragment_traffic=d.tiles_per_split * depth * read * PASS_BYTES,
        shared_bytes=shared_bytes(s, p),
        instructions=d.tiles_per_split * trip + OUT_INSTRUCTIONS * warps * s.reg_m * s.reg_n,
        chains=s.reg_m * s.reg_n,
        registers=(registers(s, p) + registers_taken(s, p)) // 2,
        uniform=(registers_taken(s, p) - registers(s, p)) // 2 + SCALARS,
        step_cycles=BARRIER_CYCLES,
        splits=s.splits,
        joined_bytes=sums,
        **tail_work(d.threads, s.tile_m, d.tiles_n, p),
    )


def passes(words: int) -> int:
    """Cycles of shared memory for a warp's access of ``words`` words per work-item, some of which several lanes read."""
    return (words + 1) // 2


def focus(p: SimtProblem, limits: Limits) -> Mapping[str, Sequence[int]]:
    """Tiles with several sums per work-item, and as many stages as copies allow.

    The tuner's whole space has 34 million points.
    """
    late = int(limits.async_copy and p.a_copied and p.b_copied)
    small = p.m <= 8
    return {
        "tile_m": (1, 4, 8) if small else tuple(t for t in (16, 32, 64, 128) if t < 2 * max(p.m, 16)),
        "tile_n": tuple(t for t in (16, 32, 64, 128) if t < 2 * max(p.n, 16)),
        "tile_k": (8, 16, 32) if late else (8, 16),  # otherwise it is kept in registers
        "reg_m": (1, 4) if small else (2, 4, 8),
        "reg_n": (1, 2, 4) if small else (4, 8),
        "stages": (3, 4) if late else (2,),
        "asynchronous": (late,),
        "fragments": (1,),
        "lanes": (1,),
        "splits": worthwhile_splits(SimtSchedule.choices("splits"), p.k, 8, p.batch * p.m * p.n, limits),
    }


def packing(kernel: Kernel, s: SimtSchedule, p: SimtProblem) -> Packing | None:
    """Constant bytes packed in whole words."""
    return word_packing(kernel)


def _one_at_a_time(p: SimtProblem, limits: Limits) -> SimtSchedule:
    """For a CPU with OpenCL: one work-item per group, its tile in vector registers, shared memory as a packed panel."""
    lanes = max(w for w in (1, 4, 8, 16) if w * p.acc_bytes <= max(p.acc_bytes, limits.vector_bytes))
    while lanes > 4 and lanes >= 2 * p.n:
        lanes //= 2
    lanes, reg_n = (1, 4) if has_tail(p) or p.dot == 2 else (lanes, lanes * (2 if p.n > lanes else 1))
    reg_m = next((r for r in (1, 2, 4) if p.m <= r), 8)
    tile_k = 64
    schedule = _tile((reg_m, max(4, reg_n), tile_k, reg_m, reg_n), stages=1, lanes=lanes)
    while list(objections(schedule, p, limits)) and schedule.tile_k > 4:
        schedule = schedule.replace(tile_k=schedule.tile_k // 2)
    return schedule


FAMILY = Family(
    "contraction",
    Contraction,
    SimtSchedule,
    problem,
    objections,
    template_sizes,
    geometry,
    default,
    "simt",
    work=work,
    packing=packing,
    registers=registers,
    focus=focus,
    taken=registers_taken,
    in_words=in_words,
    in_memory_order=along_memory,
    emit=emit_contraction,
    template="contraction/simt/kernel.j2",
    any_size=True,
)
