"""Schedules of contractions by dot products: ``vdpbf16ps`` on two bf16, ``vpdpbusd`` on four bytes.

Operands are read and tasks are divided as for AMX. The rows of a register block take the place of a tile's rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from gpucomp.codegen.llvm.amx import space as amx
from gpucomp.codegen.llvm.amx.operands import WORD, narrow_of
from gpucomp.codegen.llvm.amx.space import (
    COLUMNS,
    COPIED,
    IN_PLACE,
    LINE,
    LINES,
    NarrowProblem,
    VnniSchedule,
    derive,
    line_counts,
)
from gpucomp.codegen.llvm.core_space import FEW_THREADS, crowding, microseconds
from gpucomp.device.limits import Limits
from gpucomp.ir.types import BF16, I8, U8
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.packing import Packing
from gpucomp.schedule.space import can_run

FEW_PRODUCTS = 4  # instructions for a line of columns; with so few, hardware prefetchers alone read columns fastest
SPARE = 2  # registers besides those of the sums, of a word of the columns and of a word of the rows


class VnniProblem(NarrowProblem):
    signed: int  # 1: rows and columns are both signed, which also requires the sums of the columns


class PairsProblem(VnniProblem):
    """Rows are copied as 16-bit integers. Columns are bytes, which become 16-bit integers when they are loaded."""

    pairs: int  # always 1: products of pairs of 16-bit integers take the place of dot products

    @property
    def column_bytes(self) -> int:
        return 1


def _registers(rows: int, vectors: int, p: VnniProblem) -> int:
    """Registers of sums, columns and rows; those of ``PairsProblem`` include one for a product."""
    if isinstance(p, PairsProblem):
        return rows * vectors + (vectors if rows > 1 else 1) + 2
    return rows * vectors + vectors * (1 + p.signed) + 1


def accepts(kernel: Kernel[Contraction], features: frozenset[str]) -> str:
    """Why the processor's dot products cannot compute ``kernel``; empty if they can."""
    narrow = narrow_of(kernel)
    if narrow is None:
        return "an operand is wider than bf16, or than a byte for sums in i32"
    if reason := amx.unreadable_columns(kernel, narrow):
        return reason
    if narrow.dtype is BF16:
        return "" if "avx512bf16" in features else "the processor has no avx512bf16"
    if narrow.ops.a.dtype is U8 and narrow.ops.b.dtype is U8:
        return "neither factor of the products of bytes is signed"
    return "" if features & {"avx512vnni", "avxvnni"} else "the processor has neither avx512vnni nor avxvnni"


def problem(kernel: Kernel[Contraction]) -> VnniProblem:
    narrow = narrow_of(kernel)
    assert narrow is not None
    both = narrow.ops.a.dtype is I8 and narrow.ops.b.dtype is I8
    return VnniProblem(**amx.problem(kernel).numbers, signed=int(both))


def parts_of_tile(limits: Limits) -> int:
    """Vectors of a tile of 16 columns."""
    return COLUMNS * WORD // min(limits.vector_bytes, LINE)


def objections(s: VnniSchedule, p: VnniProblem, limits: Limits) -> Iterator[str]:
    if limits.vector_bytes < 32:
        yield f"{limits.vector_bytes}-byte vectors have no dot products"
        return
    vectors = s.tiles_n * parts_of_tile(limits)
    if _registers(s.rows, vectors, p) > limits.registers:
        yield f"{s.rows} x {vectors} vectors of sums leave too few of {limits.registers} registers"
    yield from amx.unreadable(s, p)


def packing(kernel: Kernel[Contraction], s: VnniSchedule, p: VnniProblem) -> Packing | None:
    """As for AMX, but lines come in the order in which the words of k are read: hardware prefetchers follow one stream."""
    return amx.packing(kernel, s, p, words_first=True)


def _cycles(s: VnniSchedule, p: VnniProblem, limits: Limits, threads: int) -> float:
    """About how many cycles the busiest of ``threads`` takes. Everything except dot products is counted as for AMX."""
    if not p.batch * p.m:
        return amx.TASK
    d = derive(s, p)
    parts = parts_of_tile(limits)
    dot = (limits.core.pairs if p.nbytes == 2 else limits.core.quads) / parts
    tiles = min(d.n_tiles, d.panels * d.tiles_n)

    def block(columns: int) -> float:
        if not columns:
            return 0.0
        vectors = columns * parts
        work = max((d.rows + p.signed) * vectors * dot, (d.rows + vectors) * limits.core.load, 4.0)
        if isinstance(p, PairsProblem):  # for each product a multiplication and an addition
            loads = (d.rows + vectors) * limits.core.load
            work = max((2 * d.rows * vectors + vectors) * limits.core.multiply, loads, 2.0) + 0.05 * loads
        words = d.steps * d.depth // d.group
        if s.pack_a == IN_PLACE:
            work += crowding(d.rows, p.k * p.nbytes, WORD, limits)
        return work * words + d.rows * columns * amx.VECTOR + amx.BLOCK

    whole, last = divmod(tiles, d.tiles_n)
    one = amx.TASK + d.task_tiles * (whole * block(d.tiles_n) + block(last))
    if s.pack_a == LINES:
        pixels = sum(line_counts(d, p)) * d.pitch
        one += pixels * (amx.PIXEL + d.channels * p.nbytes * amx.COPY_BYTE)
    elif s.pack_a == COPIED:
        one += d.task_tiles * d.rows * (d.row_bytes * amx.COPY_BYTE + amx.PIXEL * (p.k // p.run))
    if s.pack_b == 1:
        one += tiles * d.steps * (amx.TURN if p.b_along_k else amx.PAIRS)
    else:
        far = d.panel_bytes * d.panels * amx.FAR_BYTE
        one += far * min(threads, d.m_tasks) / d.m_tasks if d.panel_bytes * d.panel_count <= limits.cache_bytes else far
    each = -(-p.batch * d.m_tasks * -(-d.panel_count // d.panels) // threads)
    return one * each * (1 + (amx.TAIL / each if threads > 1 else 0.0))


def estimate(s: VnniSchedule, p: VnniProblem, limits: Limits) -> float:
    """About how many microseconds two threads take."""
    return microseconds(_cycles(s, p, limits, 2))


def default(p: VnniProblem, limits: Limits) -> VnniSchedule:
    """The candidate that the cost model finds fastest; the smallest schedule if no candidate is legal."""
    smallest = VnniSchedule(
        rows=1, tiles_n=1, tile_m=16, panels=1, pack_a=COPIED, pack_b=2 if p.b_constant else 1, across=0, ahead=0
    )

    def cost(s: VnniSchedule) -> float:
        return sum(_cycles(s, p, limits, threads) * threads for threads in FEW_THREADS)

    legal = (s for s in _candidates(smallest, p, limits) if can_run(s, objections, p, limits))
    best = min(legal, key=cost, default=smallest)
    products = best.rows * (4 if isinstance(p, PairsProblem) else 1)
    streamed = derive(best, p).task_tiles == 1 and products <= FEW_PRODUCTS
    return best.replace(ahead=int(bool(p.b_constant) and not streamed))


def _candidates(smallest: VnniSchedule, p: VnniProblem, limits: Limits) -> Iterator[VnniSchedule]:
    """The largest register blocks, with a few tasks and every way to read the rows."""
    ways = ((IN_PLACE, 0),) if p.straight else ((COPIED, 0), (LINES, 0), (LINES, 1))
    budget = limits.registers - (0 if isinstance(p, PairsProblem) else SPARE)
    for (pack_a, across), tiles_n in itertools.product((*ways, (COPIED, 0)), (4, 3, 2, 1)):
        vectors = tiles_n * parts_of_tile(limits)
        needed = [r for r in VnniSchedule.choices("rows") if r <= max(p.m, 1)]
        fits = [r for r in needed if _registers(r, vectors, p) <= budget]
        block = smallest.replace(tiles_n=tiles_n, pack_a=pack_a, across=across)
        for rows, tile_m, panels in itertools.product(fits[-3:], (16, 64, 192, 512), (1, 4, 16)):
            yield block.replace(rows=rows, tile_m=tile_m, panels=panels)
