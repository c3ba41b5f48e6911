"""Parameters of the contraction family's ``gemv`` engine: few rows (or columns), each a long sum, no tiles.

The operand with many rows or columns is the *matrix*. The other operand has a few *vectors*, ``few`` of them. The
matrix is read once, in the widest accesses that memory allows, directly to registers. The vectors come from the cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from gpucomp.device.limits import REGISTER_FILE, Limits
from gpucomp.device.lockstep import least
from gpucomp.ir.size import Size, hint, is_zero
from gpucomp.ir.types import F32, F64, I32, I64, U32
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.forms.copyable import stored
from gpucomp.kernel.forms.operand import fast_axis
from gpucomp.kernel.forms.packed_int8 import (
    PackedInt8,
    in_words,
    is_whole,
    packed_in_words,
    word_packing,
)
from gpucomp.kernel.forms.packed_words import per_product
from gpucomp.kernel.forms.row_statistics import no_tail
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.packing import Packing
from gpucomp.kernel.sizes import Sizes, Tunables, tunable
from gpucomp.kernels_templates.contraction.gemv.emit import emit_gemv
from gpucomp.schedule.space import (
    LATENCY,
    MOST_REGISTERS,
    SECTOR,
    Family,
    Work,
    groups_for_less_than_a_warp,
    groups_for_registers,
    remembered,
    too_many_groups,
    too_many_registers,
)


class GemvSchedule(Tunables):
    many_items: int = tunable((1, 2, 4, 8, 16, 32, 64), "adjacent work-items along the matrix's rows or columns")
    depth_items: int = tunable((1, 2, 4, 8, 16, 32, 64, 128, 256), "work-items that share a sum")
    accesses: int = tunable((1, 2, 4), "rows or columns of the matrix per work-item, or vectors of them")
    unroll: int = tunable((1, 2, 4, 8), "steps of the sum whose loads are in flight together")
    shuffle: int = tunable((0, 1), "1: a warp adds its sums by shuffles before they are added through shared memory")


class GemvProblem(Sizes):
    """Sizes of the contraction, and how its operands are stored."""

    batch: int
    m: int
    n: int
    k: int  # depth; in words of four bytes if ``dot`` is 4
    few: int  # rows and columns of the result; columns and rows if ``few_columns``
    many: int
    few_columns: int  # 1: ``b`` holds the vectors
    by_depth: int  # 1: the matrix is contiguous along the depth
    width: int  # elements per access of the matrix; of both operands if it is contiguous along the depth
    acc_bytes: int
    element_bytes: int  # bytes of an element of the matrix in memory
    shuffles: int  # 1: lanes of a warp can exchange sums of this type
    dot: int  # steps of the depth per product: 4 for bytes, whose elements are words of four


class GemvSizes(Sizes):
    """What follows from a schedule and a problem, for the template."""

    threads: int
    sums: int  # sums per work-item and vector
    tile: int  # rows or columns of the matrix per work-group
    depth_step: int
    groups_many: int  # work-groups along the matrix's rows or columns
    groups: int
    parts: int  # parts of each sum that are added through shared memory
    groups_per_unit: int = 0  # work-groups that should be resident on a multiprocessor; 0: the compiler decides


MOST_ROWS, MOST_COLUMNS = 8, 4  # more of them fill a tile of ``simt``
LEAST_DEPTH = 64  # of a sum that is worth sharing among work-items, where a tile of ``simt`` would be mostly idle
SHUFFLED = (F32, F64, I32, U32, I64)


def accepts(kernel: Kernel[Contraction], features: frozenset[str]) -> str:
    body = kernel.body
    if reason := no_tail(kernel):
        return reason
    m, n, k = (math.prod(v.extent for v in axes) for axes in (body.m, body.n, body.k))
    if is_zero(m) or is_zero(n):
        return "there is nothing to compute"
    if not _is_few(m, MOST_ROWS) and (not _is_few(n, MOST_COLUMNS) or hint(k) < LEAST_DEPTH):
        return f"{m} rows and {n} columns are too many: at most {MOST_ROWS} rows or {MOST_COLUMNS} columns are expected"
    return ""


def _is_few(extent: Any, most: int) -> bool:
    """Whether vectors of this extent fit registers. One that each run decides is never few: loops over it are written out."""
    return isinstance(extent, int) and extent <= most


def problem(kernel: Kernel[Contraction]) -> GemvProblem:
    words = packed_in_words(kernel)
    kernel = words if _pays(words) else kernel
    body = kernel.body
    batch, m, n, k = (math.prod(v.extent for v in axes) for axes in (body.batch, body.m, body.n, body.k))
    few_columns = _few_columns(body)
    matrix, vectors = ((body.a, body.m), (body.b, body.n))[:: 1 if few_columns else -1]
    by_depth, width = fast_axis(kernel, *matrix, body.k)
    if by_depth:
        along, narrow = fast_axis(kernel, *vectors, body.k)
        width = min(width, narrow if along else 1)
    return GemvProblem(
        batch=batch,
        m=m,
        n=n,
        k=k,
        few=(n if isinstance(m, Size) else min(m, n)) if few_columns else m,
        many=m if few_columns else n,
        few_columns=few_columns,
        by_depth=by_depth,
        width=width,
        acc_bytes=max(4, body.acc.dtype.nbytes),
        element_bytes=max(1, stored(matrix[0]).dtype.nbytes),
        shuffles=int(body.acc.dtype in SHUFFLED),
        dot=per_product(kernel),
    )


def _few_columns(body: Contraction) -> int:
    """1 if ``a`` is the matrix and ``b`` has few columns."""
    m, n = (math.prod(v.extent for v in axes) for axes in (body.m, body.n))
    return int(not _is_few(m, MOST_ROWS) or (_is_few(n, MOST_COLUMNS) and n < m))


def _pays(kernel: Kernel[Contraction]) -> bool:
    """Whether the matrix has whole words: assembling a word for a single product takes longer than four products."""
    body = kernel.body
    return isinstance(body, PackedInt8) and is_whole(body.a if _few_columns(body) else body.b)


def in_words_of(kernel: Kernel[Contraction]) -> Kernel[Contraction]:
    """The kernel with words, where the problem counts them; words of an unpacked constant matrix are assembled."""
    return in_words(kernel) if _pays(packed_in_words(kernel)) else kernel


def packing(kernel: Kernel[Contraction], s: GemvSchedule, p: GemvProblem) -> Packing | None:
    """Constant bytes packed in whole words."""
    return word_packing(kernel) if p.dot > 1 else None


@remembered
def derive(s: GemvSchedule, p: GemvProblem) -> GemvSizes:
    sums = s.accesses * (1 if p.by_depth else p.width)
    tile = s.many_items * sums
    groups_many = -(-p.many // tile)
    return GemvSizes(
        threads=s.many_items * s.depth_items,
        sums=sums,
        tile=tile,
        depth_step=s.depth_items * (p.width if p.by_depth else 1),
        groups_many=groups_many,
        groups=groups_many * p.batch,
        parts=s.depth_items // 32 if s.shuffle else s.depth_items,
    )


def shared_bytes(s: GemvSchedule, p: GemvProblem) -> int:
    d = derive(s, p)
    return d.parts * p.few * d.tile * p.acc_bytes


def registers(s: GemvSchedule, p: GemvProblem) -> int:
    """Registers for the sums, one step of the matrix and of a vector, addresses, and 24 others."""
    d = derive(s, p)
    words = p.acc_bytes // 4
    vectors = p.width if p.by_depth else p.few
    return words * (p.few * d.sums + vectors + s.accesses * p.width) + p.few + s.accesses + 24


def registers_ahead(s: GemvSchedule, p: GemvProblem) -> int:
    """Registers if the loads of ``unroll`` steps are in flight together; the matrix is held as it is stored."""
    matrix = s.accesses * -(-p.width * p.element_bytes // 4)
    vectors = p.few * (p.width if p.by_depth else 1) * -(-p.element_bytes // 4)
    return least(MOST_REGISTERS, registers(s, p) + (s.unroll - 1) * (matrix + vectors + s.accesses))


def objections(s: GemvSchedule, p: GemvProblem, limits: Limits) -> Iterator[str]:
    d = derive(s, p)
    if d.threads > limits.threads:
        yield f"{d.threads} work-items per work-group, the device allows {limits.threads}"
    if (shared := shared_bytes(s, p)) > min(limits.shared_bytes, 48 << 10):
        yield f"{shared} B of shared memory, the device has {min(limits.shared_bytes, 48 << 10)} B"
    if not limits.is_cpu:
        yield from too_many_registers(limits, d.threads, registers(s, p))
    yield from too_many_groups(d.groups)
    if not s.shuffle:
        return
    if not (limits.subgroups and limits.warp == 32 and p.shuffles):
        yield "shuffles need warps of 32 that support them, and sums of 4 or 8 bytes"
    if s.depth_items % 32:
        yield f"depth_items={s.depth_items} is not a number of whole warps"
    if not p.by_depth:
        yield "work-items of a warp share no sum: each has its own column of the matrix"


def geometry(s: GemvSchedule, p: GemvProblem) -> Geometry:
    d = derive(s, p)
    return Geometry((d.groups, 1, 1), (d.threads, 1, 1))


def default(p: GemvProblem, limits: Limits) -> GemvSchedule:
    """The work-group that is fastest by a model of one unit's cycles; on a CPU, a single work-item.

    It is legal wherever a work-item has 128 registers. Eight rows on a device with fewer are left to the next engine.
    """
    if limits.is_cpu:
        return GemvSchedule(many_items=1, depth_items=1, accesses=4, unroll=4, shuffle=0)
    steps = max(1, p.k // (p.width if p.by_depth else 1))
    candidates = []
    for many_items in (32, 16, 8, 4, 2, 1):
        for depth_items in (256, 128, 64, 32, 16, 8, 4, 2, 1):
            if many_items * depth_items > 256 or depth_items > max(1, steps):
                continue
            by_shuffles = GemvSchedule(many_items=many_items, depth_items=depth_items, accesses=1, unroll=4, shuffle=1)
            ways = (by_shuffles, by_shuffles.replace(shuffle=0))
            candidates += [s for s in ways if not list(objections(s, p, limits))][:1]
    least = GemvSchedule(many_items=1, depth_items=1, accesses=1, unroll=1, shuffle=0)
    return min([*candidates, least], key=lambda s: cycles(s, p, limits))


ACCESS_INSTRUCTIONS = 3  # per access: the load, its address, a conversion
ADDING_INSTRUCTIONS = 10  # five shuffles in a warp, and their sums
ADDING_CYCLES = 8  # per part of a sum, from shared memory or from another lane
UNIT_BYTES_PER_CYCLE = 32  # about one unit's share of the bandwidth


def cycles(s: GemvSchedule, p: GemvProblem, limits: Limits) -> float:
    """Cycles of the busiest unit: for its share of the matrix's bytes, or for one work-item's walk through its sum."""
    d = derive(s, p)
    shared_out = -(-d.groups // limits.units)
    rounds = -(-p.k // (d.depth_step * s.unroll))
    resident = max(1, min(shared_out, 2048 // max(32, d.threads)))
    element = 4
    waste = 1.0 if p.by_depth else max(1.0, SECTOR / (element * d.tile))
    if p.by_depth and s.depth_items * p.width * element < SECTOR:
        waste = SECTOR / (s.depth_items * p.width * element)
    moved = shared_out * d.tile * p.k * element * waste / UNIT_BYTES_PER_CYCLE
    idle = 32 / min(32, d.threads)  # idle lanes of a warp count
    added = 8 * d.parts + (40 if s.shuffle else 0)
    return max(moved * idle, -(-shared_out // resident) * rounds * LATENCY) + added


def work(s: GemvSchedule, p: GemvProblem) -> Work:
    """Its part of the matrix, in whole sectors, once; the vectors come from the unit's own cache."""
    d = derive(s, p)
    element, accesses = p.element_bytes, s.accesses * s.unroll
    run = element * (s.depth_items * p.width if p.by_depth else d.tile)  # contiguous bytes
    waste = SECTOR / run if run < SECTOR else 1.0
    rounds = -(-p.k // (d.depth_step * s.unroll))
    products = d.tile * p.k * p.few * p.dot
    warps = -(-d.threads // 32)
    issued = d.sums * s.unroll * p.few * (p.width if p.by_depth else 1) + ACCESS_INSTRUCTIONS * accesses * (1 + p.few)
    return Work(
        macs=products,
        math="dp4a" if p.dot > 1 else "fma",
        cache_bytes=d.tile * p.k * element * waste,
        steps=rounds,
        out_bytes=d.tile * p.few * element,
        shared_traffic=2 * d.parts * p.few * d.tile * p.acc_bytes,
        shared_bytes=shared_bytes(s, p),
        instructions=warps * (rounds * issued + (ADDING_INSTRUCTIONS * d.sums * p.few if s.shuffle else 0)),
        chains=d.sums * p.few,
        registers=registers_ahead(s, p),
        start_cycles=200 + ADDING_CYCLES * (d.parts + 5 * s.shuffle),
    )


def template_sizes(s: GemvSchedule, p: GemvProblem) -> GemvSizes:
    """The sizes of ``derive``, and ``groups_per_unit``.

    By default, ptxas saves registers for as many work-groups as can be resident, 32 per thread. It then has two or
    three steps in flight, although the schedule says eight; with work-groups of less than a warp it even spills. If the
    schedule needs more registers than there are, ``groups_per_unit`` is 0: told to use all registers, ptxas spills as
    well.
    """
    threads, ahead = s.many_items * s.depth_items, registers_ahead(s, p)
    if ahead < min(MOST_REGISTERS, REGISTER_FILE // threads // 8 * 8):
        return derive(s, p).replace(groups_per_unit=groups_for_registers(ahead, threads))
    return derive(s, p).replace(groups_per_unit=groups_for_less_than_a_warp(threads))


FAMILY = Family(
    "contraction",
    Contraction,
    GemvSchedule,
    problem,
    objections,
    template_sizes,
    geometry,
    default,
    "gemv",
    accepts,
    work=work,
    packing=packing,
    registers=registers,
    in_words=in_words_of,
    emit=emit_gemv,
    template="contraction/gemv/kernel.j2",
    any_size=True,
)
