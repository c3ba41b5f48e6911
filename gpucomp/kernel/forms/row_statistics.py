"""Row statistics after the stores of a contraction: what they read, and how rows are assigned to work-items."""

from __future__ import annotations

from collections.abc import Sequence

from gpucomp.device.limits import REGISTER_FILE
from gpucomp.device.lockstep import gcd, least, most
from gpucomp.expr.core import Expr, Load, Select, Var, loads, substitute, var, walk
from gpucomp.ir.extremes import largest
from gpucomp.ir.size import divides
from gpucomp.kernel import Contraction, Kernel, RowStatistics
from gpucomp.kernel.forms.access import Rewriter, vector_loads
from gpucomp.kernel.forms.lanes import LANE, lanes_of
from gpucomp.kernel.forms.operand import ACCESS_BYTES, WIDTHS, count, places
from gpucomp.kernel.sizes import Sizes

LANES = 32  # work-items that share a row: a warp, if the work-group is large enough
KEPT = 96  # most registers in which a work-item keeps elements of its rows
OTHER_REGISTERS = 40  # for addresses, statistics and loop counters
AT_ONCE = 4  # most rows of a work-item whose loads are in flight together


class TailProblem(Sizes):
    """Sizes of the row statistics after a contraction. Only kernels with statistics set the last four."""

    batch: int
    n: int  # columns of the result
    tail_wide: int = 0  # columns per access
    tail_reads: int = 0  # values read per element
    tail_bytes: int = 0  # bytes of these values
    tail_statistics: int = 0  # statistics per row


class TailSizes(Sizes):
    """How the work-items of a work-group read rows back."""

    wide: int  # columns per access
    lanes: int  # work-items per row
    together: int  # rows that different work-items read at the same time
    steps: int  # accesses of a lane per row
    words: int  # registers for the results of these accesses
    keep: int  # 1: elements stay in registers from one statistic to the next
    at_once: int  # rows of a lane whose loads are in flight together
    passes: int  # iterations until all rows are read


def no_tail(kernel: Kernel) -> str:
    """Why an engine without row statistics cannot compute ``kernel``; empty if the kernel has none."""
    followed = isinstance(kernel.body, Contraction) and kernel.body.tail is not None
    return "the engine cannot compute row statistics after its stores" if followed else ""


def tail_of(kernel: Kernel) -> RowStatistics | None:
    return kernel.body.tail if isinstance(kernel.body, Contraction) else None


def read_again(kernel: Kernel) -> frozenset[int]:
    """The outputs that row statistics read back. Other work-groups may have written parts of them."""
    tail = tail_of(kernel)
    found = {ld.source for e in tail.expressions() for ld in loads(e)} if tail else set()
    return frozenset(source for source in found if source >= kernel.inputs)


def tail_reads(kernel: Kernel[Contraction]) -> list[Load]:
    """The unguarded loads of the statistics that depend on the column, without duplicates."""
    body, tail = kernel.body, tail_of(kernel)
    if tail is None:
        return []
    return reads_of([s.value for s in tail.statistics], frozenset(body.n))


def reads_of(values: Sequence[Expr], columns: frozenset[Var]) -> list[Load]:
    guarded = {ld for e in values for n in walk(e) if isinstance(n, Select) for ld in loads(n)}
    found = dict.fromkeys(ld for e in values for ld in loads(e) if ld.free & columns)
    return [ld for ld in found if ld not in guarded]


def tail_width(kernel: Kernel[Contraction]) -> int:
    """Columns per access that all loads of a row allow: contiguous, aligned, at most 16 bytes."""
    body, reads = kernel.body, tail_reads(kernel)
    columns = count(body.n)
    for width in WIDTHS:
        if not divides(width, columns) or not reads:
            continue
        lane = var(LANE, width)
        _, at = columns_of(body, width, lane)
        flat = [Rewriter(kernel.params, at)(ld) for ld in reads]
        wide = {f.load for f in vector_loads(flat, lane, width)}
        if all(ld in wide and width * ld.dtype.nbytes <= ACCESS_BYTES for ld in flat):
            return width
    return 1


def columns_of(body: Contraction, width: int, lane: Var) -> tuple[Var, dict[Expr, Expr]]:
    """The variable that counts accesses of ``width`` columns, and the contraction's columns by it and the lane."""
    columns = count(body.n)
    col, flat = var("col", largest(1, columns // width)), var("flat_column", largest(1, columns))
    return col, {v: substitute(e, lanes_of(flat, col, lane, width)) for v, e in places(body.n, flat).items()}


def tail_problem(kernel: Kernel[Contraction]) -> dict[str, int]:
    """The fields of ``TailProblem`` other than ``batch`` and ``n``; empty for a kernel without row statistics."""
    tail = tail_of(kernel)
    if tail is None:
        return {}
    reads = tail_reads(kernel)
    return {
        "tail_wide": tail_width(kernel),
        "tail_reads": len(reads),
        "tail_bytes": sum(kernel.params[ld.source].dtype.nbytes for ld in reads),
        "tail_statistics": len(tail.statistics),
    }


def has_tail(p: TailProblem) -> bool:
    return p.tail_statistics > 0


def tail_sizes(threads: int, rows: int, p: TailProblem, wide: int = 0) -> TailSizes:
    """How ``threads`` work-items read ``rows`` rows back. ``wide``: columns per access; 0 if as many as possible."""
    wide = wide or p.tail_wide
    lanes = gcd(threads, LANES)
    together = threads // lanes
    steps = -(-(p.n // wide) // lanes)
    words = steps * wide * p.tail_reads
    room = most(0, least(KEPT, REGISTER_FILE // threads - OTHER_REGISTERS - 4 * p.tail_statistics - 8))
    room = room * (threads > 1)  # a single work-item reads whole rows in a loop that is not unrolled
    keep = (words <= room) * 1
    at_once = least(most(1, room // most(1, words)), least(AT_ONCE, -(-rows // together)))
    return TailSizes(
        wide=wide,
        lanes=lanes,
        together=together,
        steps=steps,
        words=words,
        keep=keep,
        at_once=at_once,
        passes=-(-rows // (together * at_once)),
    )
