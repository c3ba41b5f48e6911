"""Schedules of contractions on the CPU: parameters, objections, and a default by a cost model of one core.

``forms.py`` writes the IR.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial

from gpucomp.codegen.llvm.contraction.image_lines import MOST_PLANES, most_lines, windows_of
from gpucomp.codegen.llvm.contraction.operands import (
    columns_in_place,
    is_gathered,
    k_contiguous,
    operands_of,
    rows_in_place,
)
from gpucomp.codegen.llvm.core_space import (
    BLOCK,
    FAR_BYTE,
    STACK_BYTES,
    TASK,
    THREADS,
    VectorSchedule,
    cheapest,
    crowding,
    microseconds,
    span,
    step,
)
from gpucomp.device.limits import Limits
from gpucomp.device.lockstep import either, least
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.packing import Digit, Packing
from gpucomp.kernel.passes.pack_weights import packable
from gpucomp.kernel.sizes import Sizes, tunable
from gpucomp.schedule.space import too_wide

FORMS = ("gemm", "rows", "loops")  # register blocks; a dot product per result; plain loops
# rows are copied; read in place by a stride; read by pointers (``operands.Rows``)
COPIED, STRAIGHT, POINTERS = range(3)
GATHERED = 0
WHOLE = 1 << 20  # all of k in one block
DEPTHS = (64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, WHOLE)
TILE_ROWS = (8, 16, 24, 32, 48, 64, 96, 112, 128, 192, 224, 256, 512)


class ContractionSchedule(VectorSchedule):
    mr: int = tunable((1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14), "rows of the register block")
    nv: int = tunable((1, 2, 3, 4, 6, 8, 12), "vectors of the register block")
    kc: int = tunable(DEPTHS, "points of k that are multiplied at a time")
    tile_m: int = tunable(TILE_ROWS, "rows of a task, rounded up to whole blocks")
    panels: int = tunable((1, 2, 3, 4, 6, 8, 12, 16, 32), "panels of nv vectors of a task")
    pack_a: int = tunable((0, 1, 2), "rows are 0: read in place, 1: copied together, 2: read from copied image lines")
    pack_b: int = tunable((0, 1, 2), "columns are 0: read in place, 1: copied together, 2: packed at compile time")
    unroll_k: int = tunable((1, 2, 4), "points of k that are unrolled in the innermost loop")
    ahead: int = tunable((0, 1), "1: a block of columns is prefetched while the one before it is multiplied")


class ContractionProblem(Sizes):
    """Sizes of the contraction, and how its operands may be read."""

    batch: int
    m: int
    n: int
    k: int
    nbytes: int  # bytes of one sum
    form: int  # index in ``FORMS``
    rows: int  # ``COPIED``, ``STRAIGHT`` or ``POINTERS``
    run: int  # points of k that are contiguous in memory; ``GATHERED`` where each element is read by an address of its own
    lines: int  # elements of a copied line of the image; 0 without such lines
    span: int  # rows of the result that read the same lines
    b_place: int  # 1: columns can be read in place
    b_along_k: int  # 1: columns are contiguous along k
    b_constant: int  # 1: columns can be packed when the model is compiled
    b_batched: int  # 1: each batch has its own columns


def contraction_form(kernel: Kernel[Contraction]) -> str:
    """The member of ``FORMS`` that computes a contraction."""
    c = kernel.body
    if c.acc.dtype.storage_only or c.acc.dtype.nbytes < 4:
        return "loops"
    sizes = {name: math.prod(a.extent for a in axes) for name, axes in (("m", c.m), ("n", c.n), ("k", c.k))}
    if min(sizes.values()) == 0:
        return "loops"
    ops = operands_of(kernel, 1)
    thin = sizes["n"] < 4 or sizes["m"] == 1
    if thin and k_contiguous(ops.a, ops, ops.m) and k_contiguous(ops.b, ops, ops.n):
        return "rows"
    return "gemm"


@lru_cache(maxsize=512)  # each pass over a network asks for all of its kernels again
def problem(kernel: Kernel[Contraction]) -> ContractionProblem:
    c = kernel.body
    batch, m, n, k = (math.prod(a.extent for a in axes) for axes in (c.batch, c.m, c.n, c.k))
    form = contraction_form(kernel)
    p = ContractionProblem(
        batch=batch,
        m=m,
        n=n,
        k=k,
        nbytes=c.acc.dtype.nbytes,
        form=FORMS.index(form),
        rows=COPIED,
        run=k,
        lines=0,
        span=1,
        b_place=0,
        b_along_k=0,
        b_constant=0,
        b_batched=0,
    )
    if form != "gemm":
        return p
    ops = operands_of(kernel, 1)
    rows = rows_in_place(ops, c.acc.dtype)
    if rows is not None:
        p = p.replace(rows=STRAIGHT if rows.row is not None else POINTERS, run=ops.ki.extent)
    elif (windows := windows_of(kernel)) is not None:
        p = p.replace(run=windows.ops.ki.extent, lines=windows.line_elements, span=windows.span)
    columns = columns_in_place(ops, c.acc.dtype, 1, [type.size for type in kernel.params])
    return p.replace(
        b_place=int(columns is not None),
        b_along_k=int(k_contiguous(ops.b, ops, ops.n)),
        b_constant=int(packable(kernel, "b")),
        b_batched=int(any(v in c.b.free for v in c.batch)),
    )


def in_general(kernel: Kernel[Contraction], p: ContractionProblem) -> ContractionProblem:
    """``p`` without rows that can be read in place at its sizes alone, such as where a border of the image is not reached."""
    if p.form != FORMS.index("gemm") or p.lines:
        return p
    in_place, gathered = _rows_in_general(kernel)
    return p if in_place else p.replace(rows=COPIED, run=GATHERED if gathered else p.k)


@lru_cache(maxsize=512)
def _rows_in_general(kernel: Kernel[Contraction]) -> tuple[bool, bool]:
    """Whether rows are read in place at all sizes, and whether each of their elements is gathered."""
    ops, dtype = operands_of(kernel, 1), kernel.body.acc.dtype
    return rows_in_place(ops, dtype) is not None, is_gathered(ops, dtype)


def _width(s: ContractionSchedule, p: ContractionProblem) -> int:
    return max(2, s.lanes * 4 // p.nbytes)


def scratch_bytes(s: ContractionSchedule, p: ContractionProblem) -> int:
    """An upper bound of the emitter's stack frame."""
    width = _width(s, p)
    mr, nv = least(s.mr, p.m), least(s.nv, -(-p.n // width))
    tile_m = least(-(-s.tile_m // mr), -(-p.m // mr)) * mr
    tile_n = least(s.panels, -(-p.n // (nv * width))) * nv * width
    length = min(p.k, s.kc) + 2 * width
    found = p.nbytes * mr * nv * width
    if s.pack_a == 2:
        found += p.nbytes * (most_lines(tile_m, p.span) * p.lines + MOST_PLANES * width) + 8 * (tile_m + width)
    elif s.pack_a or p.rows == COPIED:
        found += p.nbytes * (tile_m * (length + width) + length * (tile_m + width))
    if p.rows == POINTERS:
        found += 8 * (p.k // p.run) * (tile_m + width)
    if s.pack_b == 1 or not (p.b_place or (s.pack_b == 2 and p.b_constant)):
        found += p.nbytes * (length + width) * nv * width
    return found + (p.nbytes * tile_m * tile_n if p.k > s.kc else 0)


def objections(s: ContractionSchedule, p: ContractionProblem, limits: Limits) -> Iterator[str]:
    yield from too_wide(s.lanes, 4, limits)
    if p.form != FORMS.index("gemm"):
        return
    if s.pack_a == 2 and not p.lines:
        yield "pack_a=2: no windows slide along the rows"
    if s.pack_b == 2 and not p.b_constant:
        yield "pack_b=2: the columns are not constant"
    if s.lanes and (scratch := scratch_bytes(s, p)) > STACK_BYTES:
        yield f"{scratch} bytes of scratch, {STACK_BYTES} are allowed"


def packing(kernel: Kernel, s: ContractionSchedule, p: ContractionProblem) -> Packing | None:
    """Panels of ``nv`` vectors of columns, k outermost in a panel, so that a register block reads one stream."""
    if p.form != FORMS.index("gemm") or not s.lanes or s.pack_b != 2:
        return None
    width = _width(s, p)
    nr = min(s.nv, -(-p.n // width)) * width
    batch = [Digit("batch", 1, p.batch)] if p.b_batched else []
    digits = [*batch, Digit("span", nr, -(-p.n // nr)), Digit("k", 1, p.k), Digit("span", 1, nr)]
    return Packing("b", tuple(d for d in digits if d.extent > 1))


# The model of a core, in cycles. Measured on Sapphire Rapids: blocks of 9 x 3, 8 x 3 and 6 x 4 vectors of sums reach 93
# to 97% of two multiply-adds per cycle, where ``step`` says 100%. Columns from beyond the second-level cache cost
# FAR_BYTE per byte, although they are prefetched (m 49, n 512, k 4608: 82%).
EPILOGUE = 3.0  # to store a vector of sums
POINTER = 3.0  # to compute a row's pointer for one outer point of k
RUN = 12.0  # fixed cost of a loop over ki, besides loading each row's pointer
LINE_ELEMENT = 0.5  # to copy an element of a line of few channels, such as a photo's
COMPUTED_ELEMENT = 1.0  # the same for many channels: such a line is only copied where its elements are computed first
GATHERED_ELEMENT = 1.5  # the same by an address of its own, computed for many elements at a time
FEW_IN_RUN = MOST_PLANES * 7  # channels of a line times taps
SHORT_LIST = 5  # register blocks that are tried with all tiles
MOST_POINTERS = 12  # most rows with a pointer each that leave enough registers for other values
SPARE = 3  # of 32 registers; with fewer, LLVM spills sums in the innermost loop to have registers for the stores


def _blocks(p: ContractionProblem, limits: Limits) -> list[tuple[int, int]]:
    """Register blocks ``(rows, vectors)`` whose sums, columns and one factor fit the registers."""
    most = MOST_POINTERS if p.rows == POINTERS or p.lines else 14
    registers = limits.registers - SPARE
    if limits.registers < 32:
        most, registers = min(most, 6), limits.registers
    return [
        (rows, vectors)
        for rows in ContractionSchedule.choices("mr")
        for vectors in ContractionSchedule.choices("nv")
        if rows * vectors + vectors + 1 <= registers and rows <= min(most, max(p.m, 1))
    ]


def _one_block(rows: int, vectors: int, p: ContractionProblem, limits: Limits, *, copied: bool) -> float:
    """Cycles of a register block from its first point of k to its last store. ``copied`` rows are contiguous."""
    runs = p.k / p.run * (rows + RUN) if p.rows == POINTERS or p.lines else 0.0
    if p.rows == STRAIGHT and not copied:
        runs += p.k * crowding(rows, p.k * p.nbytes, p.nbytes, limits)
    found = step(rows, vectors, limits) * p.k + rows * vectors * EPILOGUE + BLOCK + runs
    return either(rows * vectors > 0, found, 0.0)


def _grid(
    rows: int,
    columns: int,
    mr: int,
    nv: int,
    width: int,
    p: ContractionProblem,
    limits: Limits,
    *,
    copied: bool = False,
) -> float:
    """Cycles of ``rows`` by ``columns`` of the result in register blocks of ``mr`` rows by ``nv`` vectors."""
    panels, rest = divmod(-(-columns // width), nv)
    whole, left = divmod(rows, mr)
    return sum(
        count
        * (
            whole * _one_block(mr, vectors, p, limits, copied=copied)
            + _one_block(left, vectors, p, limits, copied=copied)
        )
        for count, vectors in ((panels, nv), (1, rest))
    )


def cycles(s: ContractionSchedule, p: ContractionProblem, threads: int, limits: Limits) -> float:
    """About how many cycles the busiest of ``threads`` takes for a contraction in register blocks."""
    (found,) = _cycles(s, p, (threads,), limits)
    return found


def _cycles(s: ContractionSchedule, p: ContractionProblem, threads: Sequence[int], limits: Limits) -> list[float]:
    """``cycles`` for each number of threads: they have the tiles in common."""
    if not p.batch * p.m * p.n * p.k:  # in some runs of other sizes
        return [TASK] * len(threads)
    width = _width(s, p)
    nr = s.nv * width
    tile_m = least(-(-s.tile_m // s.mr) * s.mr, p.m)
    tile_n = least(s.panels * nr, p.n)
    m_tiles, n_tiles = -(-p.m // tile_m), -(-p.n // tile_n)
    tasks = p.batch * m_tiles * n_tiles
    tile = TASK + _grid(tile_m, tile_n, s.mr, s.nv, width, p, limits, copied=s.pack_a > 0)
    if p.rows == POINTERS and not s.pack_a:
        tile += p.k / p.run * tile_m * POINTER
    found = []
    for count in threads:
        one = tile
        if s.pack_b == 1:
            one += p.k * -(-tile_n // width) * (4 if p.b_along_k else 1.5)
        else:
            far = p.nbytes * p.k * tile_n * FAR_BYTE
            if p.nbytes * p.k * p.n <= limits.cache_bytes:  # each thread fetches them once
                far *= least(count, m_tiles) / m_tiles
            else:
                far *= either(p.nbytes * p.k * nr > limits.cache_bytes, tile_m // s.mr, 1)
            one += far
        if s.pack_a == 2:
            touched = tile_m / p.span if tile_m % p.span == 0 else (tile_m - 1) / p.span + 1
            one += touched * p.lines * (LINE_ELEMENT if p.run <= FEW_IN_RUN else COMPUTED_ELEMENT)
        elif s.pack_a:
            one += tile_m * (p.k * GATHERED_ELEMENT if p.run == GATHERED else p.k / width * 3 + 20)
        found.append(span(tasks, count) * one)
    return found


FEW_ROWS = 3  # register blocks; with at most so many, two of them have to prefetch the next columns
REST = 0.25  # measured: one row alone takes 1.2 to 1.4 times as long as in a block of one, with 128 x 128 columns
# measured on Zen 4: two, three and four blocks of two rows take 1.18, 1.13 and 1.35 times as long as estimated, with 256 x 768
# columns: each block reads them from the second-level cache again
AGAIN = 1.2
OTHER_ROWS = 1.1  # measured: a product with 384 x 1536 columns takes 1.07 to 1.19 times as long with the other number


def sharers(rows: int, mr: int) -> int:
    """How many row blocks prefetch the next columns if each run decides the rows, about ``rows``: a power of two."""
    return 2 if rows <= FEW_ROWS * mr else 4


def elsewhere(s: ContractionSchedule, own: ContractionProblem, p: ContractionProblem) -> float:
    """How many times as long as estimated the source that is written for ``own`` takes at ``p``."""
    ratio = OTHER_ROWS if s.ahead and sharers(own.m, s.mr) != sharers(p.m, s.mr) else 1.0
    if own.m <= s.mr < p.m:
        ratio *= AGAIN
    if own.m != p.m and p.m % s.mr:  # rows of any number: the last ones go through memory
        ratio *= 1 + REST / -(-p.m // s.mr)
    return ratio


def estimate(s: ContractionSchedule, p: ContractionProblem, limits: Limits) -> float:
    """About how many microseconds two threads take."""
    return microseconds(cycles(s, p, 2, limits))


@lru_cache(maxsize=512)  # layers of one shape come again, and fusion asks before schedules are chosen
def default(p: ContractionProblem, limits: Limits, threads: tuple[int, ...] = THREADS) -> ContractionSchedule:
    """Tries the register blocks that waste least with all tiles. The model chooses the schedule for ``threads``."""
    lanes = limits.vector_bytes // 4
    base = ContractionSchedule(
        lanes=lanes,
        mr=4,
        nv=1,
        kc=512 if p.k <= 512 else 384,  # one block if it needs little more than the first-level cache
        tile_m=64,
        panels=1,
        pack_a=int(p.rows == COPIED),
        pack_b=2 if p.b_constant else 1,
        unroll_k=4,
        ahead=int(p.b_constant and p.m > 1),
    )
    if p.form != FORMS.index("gemm") or not lanes:
        return base

    def cost(s: ContractionSchedule) -> float:
        return sum(found * n for found, n in zip(_cycles(s, p, threads, limits), threads, strict=True))

    names = ("mr", "nv", "tile_m", "panels", "pack_a", "pack_b")
    return cheapest(base, names, _candidates(base, p, limits), cost, partial(scratch_bytes, p=p), STACK_BYTES)


def _candidates(
    base: ContractionSchedule, p: ContractionProblem, limits: Limits
) -> Iterator[tuple[int, int, int, int, int, int]]:
    """Every tile and way to read the operands, for the register blocks that waste least: mr, nv, rows, panels, ways."""
    width = _width(base, p)
    ways_a = (2, 1) if p.lines else (base.pack_a,)
    ways_b = (0, 1) if p.b_place and not p.b_constant else (base.pack_b,)
    tiles = [n for n in TILE_ROWS if n <= 8 or n < 2 * p.m]
    blocks = sorted(_blocks(p, limits), key=lambda b: (_grid(p.m, p.n, b[0], b[1], width, p, limits), -b[0] * b[1]))
    for mr, nv in blocks[:SHORT_LIST]:
        panels = [n for n in ContractionSchedule.choices("panels") if n < 2 * -(-p.n // (nv * width))]
        for tile_m, count, pack_a, pack_b in itertools.product(tiles, panels, ways_a, ways_b):
            yield mr, nv, tile_m, count, pack_a, pack_b
