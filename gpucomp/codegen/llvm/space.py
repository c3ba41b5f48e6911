"""The schedules of the CPU families: parameters, what cannot run, and defaults. No IR is written here."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import SimpleNamespace

from gpucomp.codegen.llvm.contraction import in_place, k_contiguous, operands_of
from gpucomp.codegen.llvm.winograd_space import CYCLES_PER_MICROSECOND, THREADS
from gpucomp.codegen.llvm.winograd_space import FAMILY as WINOGRAD
from gpucomp.kernel import Attention, Contraction, Kernel, Loops, Rowwise, Window
from gpucomp.schedule.space import Family, Geometry, Limits, Param, Problem, Schedule

LANES = Param("lanes", (0, 4, 8, 16), "elements of a vector; 0 is scalar code")
TASKS = Param("tasks", (1, 16, 64, 256), "parts wanted for the threads to share, where the work is worth it")
UNROLL = Param("unroll", (0, 16, 64), "points of a reduction that are written out instead of looped")
COPIES = Param("copies", (1, 2, 4), "accumulators of one statistic, which hide the latency of its operation")


def _lanes(limits: Limits) -> int:
    return limits.vector_bytes // 4


def _too_wide(s: SimpleNamespace, limits: Limits) -> Iterator[str]:
    if s.lanes * 4 > limits.vector_bytes:
        yield f"{s.lanes} lanes of 4 bytes, the processor has {limits.vector_bytes}-byte vectors"


def _nothing(s: SimpleNamespace, p: SimpleNamespace) -> Mapping[str, int]:
    return {}


def _geometry(s: SimpleNamespace, p: SimpleNamespace) -> Geometry:
    """The emitter counts the tasks: their number depends on the axes that could be merged."""
    return Geometry((s.tasks, 1, 1))


def _loops_problem(kernel: Kernel) -> Problem:
    axes = kernel.body.domain
    return {"points": math.prod(a.extent for a in axes)}


def _plain_objections(s: SimpleNamespace, p: SimpleNamespace, limits: Limits) -> Iterator[str]:
    yield from _too_wide(s, limits)


def _loops_default(p: SimpleNamespace, limits: Limits) -> Schedule:
    return {"lanes": _lanes(limits), "tasks": 64, "unroll": 16}


def _rowwise_problem(kernel: Kernel) -> Problem:
    body = kernel.body
    assert isinstance(body, Rowwise)
    return {"rows": math.prod(a.extent for a in body.rows), "cols": math.prod(a.extent for a in body.cols)}


def _rowwise_default(p: SimpleNamespace, limits: Limits) -> Schedule:
    return {"lanes": _lanes(limits), "tasks": 64, "unroll": 16, "copies": 4}


# contractions

FORMS = ("gemm", "rows", "loops")  # register block; dot products, a row a result; any algorithm
STACK_BYTES = 1 << 20  # scratch that one call may take
CONTRACTION_PARAMS = (
    LANES,
    Param("mr", (1, 2, 3, 4, 6, 8, 12, 14), "rows of the register block"),
    Param("nv", (1, 2, 3, 4, 6, 8, 12), "vectors of the register block"),
    Param("kc", (128, 256, 384, 512, 1024, 4096), "points of k that are packed at a time"),
    Param("tile_m", (8, 16, 32, 48, 64, 96, 128, 192, 256, 512), "rows of a task, rounded up to whole blocks"),
    Param("panels", (1, 2, 3, 4, 6, 8, 12, 16, 32), "panels of nv vectors of a task"),
    Param("pack_a", (0, 1), "1: rows are copied together before they are read"),
    Param("pack_b", (0, 1), "1: columns are copied together before they are read"),
    Param("unroll_k", (1, 2, 4), "points of k written out in the innermost loop"),
)


# rows, vectors, unroll of k, and cycles over those of two multiply-adds a cycle, as measured
BLOCKS = ((6, 4, 4, 1.0), (8, 3, 2, 1.03), (12, 2, 1, 1.06), (14, 2, 1, 1.07))
BLOCKS_16 = ((6, 2, 2, 1.0), (4, 3, 2, 1.02), (4, 2, 1, 1.1))  # for 16 registers
THIN_BLOCKS = ((1, 8, 1, 1.0), (2, 8, 1, 1.0), (3, 6, 1, 1.0), (4, 4, 1, 1.0))
THIN_BLOCKS_16 = ((1, 8, 1, 1.0), (2, 4, 1, 1.0), (3, 4, 1, 1.0), (4, 2, 1, 1.0))


def contraction_form(kernel: Kernel) -> str:
    """Which of ``FORMS`` computes a contraction."""
    c = kernel.body
    assert isinstance(c, Contraction)
    if c.acc.dtype.storage_only or c.acc.dtype.nbytes < 4:
        return "loops"
    sizes = {name: math.prod(a.extent for a in axes) for name, axes in (("m", c.m), ("n", c.n), ("k", c.k))}
    if min(sizes.values()) == 0:
        return "loops"
    ops = operands_of(kernel, 4)
    thin = sizes["n"] < 4 or sizes["m"] == 1
    if thin and k_contiguous(ops.a, ops, ops.m) and k_contiguous(ops.b, ops, ops.n):
        return "rows"
    return "gemm"


def _contraction_problem(kernel: Kernel) -> Problem:
    c = kernel.body
    assert isinstance(c, Contraction)
    sizes = {
        name: math.prod(a.extent for a in axes)
        for name, axes in (("batch", c.batch), ("m", c.m), ("n", c.n), ("k", c.k))
    }
    form = contraction_form(kernel)
    problem = {
        **sizes,
        "nbytes": c.acc.dtype.nbytes,
        "form": FORMS.index(form),
        "a_step": 0,
        "b_step": 0,
        "b_along_k": 0,
    }
    if form != "gemm":
        return problem
    ops = operands_of(kernel, 4)
    a = in_place(ops.a, c.acc.dtype, ops, ops.m)
    b = in_place(ops.b, c.acc.dtype, ops, ops.n)
    problem["a_step"] = a[0] if a is not None and a[1] == 1 else 0
    problem["b_step"] = b[1] if b is not None and b[0] == 1 else 0
    problem["b_along_k"] = int(k_contiguous(ops.b, ops, ops.n))
    return problem


def _width(s: SimpleNamespace, p: SimpleNamespace) -> int:
    return max(2, s.lanes * 4 // p.nbytes)


def _scratch_bytes(s: SimpleNamespace, p: SimpleNamespace) -> int:
    """An upper bound of what the emitter puts on the stack."""
    width = _width(s, p)
    mr, nv = min(s.mr, p.m), min(s.nv, -(-p.n // width))
    tile_m = min(-(-s.tile_m // mr), -(-p.m // mr)) * mr
    tile_n = min(s.panels, -(-p.n // (nv * width))) * nv * width
    length = min(p.k, s.kc) + 2 * width
    a = tile_m * (length + width) + length * (tile_m + width)
    b = (length + width) * nv * width
    return p.nbytes * (a + b + (tile_m * tile_n if p.k > s.kc else 0) + mr * nv * width)


def _contraction_objections(s: SimpleNamespace, p: SimpleNamespace, limits: Limits) -> Iterator[str]:
    yield from _too_wide(s, limits)
    if p.form == FORMS.index("gemm") and s.lanes and (scratch := _scratch_bytes(s, p)) > STACK_BYTES:
        yield f"{scratch} bytes of scratch, {STACK_BYTES} are allowed"


def _cycles(s: SimpleNamespace, p: SimpleNamespace, threads: int, slowness: float) -> float:
    """About how long the slowest of ``threads`` is busy: two multiply-adds and two loads a cycle."""
    width = _width(s, p)
    nr = s.nv * width
    tile_m = -(-min(s.tile_m, p.m) // s.mr) * s.mr
    tile_n = min(s.panels * nr, -(-p.n // nr) * nr)
    m_tiles, n_tiles = -(-p.m // tile_m), -(-p.n // tile_n)
    tasks = p.batch * m_tiles * n_tiles

    def block(rows: int, vectors: int) -> float:
        work = max(rows * vectors / 2, (rows + vectors) / 2, 4.0 if rows * vectors < 8 else 0.0)
        return slowness * work * p.k + 30 + (rows * vectors if p.k > s.kc else 0) * 2 * (p.k / s.kc)

    rows = min(tile_m, p.m)
    last = p.n % nr
    panels = tile_n // nr
    columns = [s.nv] * panels
    if last and n_tiles == 1:
        columns[-1] = -(-last // width)
    total = 0.0
    for vectors in columns:
        total += (rows // s.mr) * block(s.mr, vectors) + (block(rows % s.mr, vectors) if rows % s.mr else 0)
        if s.pack_b:
            total += p.k * vectors * (4 if p.b_along_k else 1.5)
        elif p.m > 2 * s.mr:
            total += p.k * vectors * 2  # rows far apart: misses of the caches' ways and of the TLB
    if s.pack_a:
        total += rows * (p.k / width) * 3 + rows * 20
    share = -(-tasks // threads)
    return min(share * total, tasks * total) + 200


def _contraction_default(p: SimpleNamespace, limits: Limits) -> Schedule:
    lanes = _lanes(limits)
    base = {"lanes": lanes, "mr": 4, "nv": 1, "kc": 384, "tile_m": 64, "panels": 1, "pack_a": 1, "pack_b": 1,
            "unroll_k": 1}  # fmt: skip
    if p.form != FORMS.index("gemm") or not lanes:
        return base
    best, best_cost = base, math.inf
    pack_a = 0 if p.a_step else 1
    many = limits.registers >= 32
    thin = THIN_BLOCKS if many else THIN_BLOCKS_16
    blocks = (BLOCKS if many else BLOCKS_16) + tuple(b for b in thin if p.m <= b[0])
    for mr, nv, unroll, slowness in blocks:
        if mr > p.m > 4 and mr != blocks[0][0]:
            continue
        for tile_m in CONTRACTION_PARAMS[4].choices:
            if tile_m > 2 * p.m and tile_m > 8:
                continue
            for panels in CONTRACTION_PARAMS[5].choices:
                for pack_b in (0, 1) if p.b_step else (1,):
                    trial = {**base, "mr": mr, "nv": nv, "tile_m": tile_m, "panels": panels, "pack_a": pack_a,
                             "pack_b": pack_b, "unroll_k": unroll}  # fmt: skip
                    s = SimpleNamespace(**trial)
                    if any(True for _ in _contraction_objections(s, p, limits)):
                        continue
                    cost = sum(_cycles(s, p, threads, slowness) * threads for threads in (1, 2, 4, 8))
                    if cost < best_cost:
                        best, best_cost = trial, cost
    return best


def _contraction_estimate(s: SimpleNamespace, p: SimpleNamespace, limits: Limits) -> float:
    """As Winograd's engine reckons it, so that the two compare."""
    total = sum(threads * _cycles(s, p, threads, 1.0) for threads in THREADS)
    return total / len(THREADS) / CYCLES_PER_MICROSECOND


CONTRACTION = Family("contraction", "codegen/llvm/contraction", CONTRACTION_PARAMS, _contraction_problem,
                     _contraction_objections, _nothing, _geometry, _contraction_default,
                     estimate=_contraction_estimate)  # fmt: skip
LOOPS = Family("loops", "codegen/llvm/loops", (LANES, TASKS, UNROLL), _loops_problem, _plain_objections, _nothing,
               _geometry, _loops_default)  # fmt: skip
WINDOW = Family("pool", "codegen/llvm/loops", (LANES, TASKS, UNROLL), _loops_problem, _plain_objections, _nothing,
                _geometry, _loops_default)  # fmt: skip
ROWWISE = Family("rowwise", "codegen/llvm/rowwise", (LANES, TASKS, UNROLL, COPIES), _rowwise_problem,
                 _plain_objections, _nothing, _geometry, _rowwise_default)  # fmt: skip


# engines of each kind of body, the one to prefer first; the last accepts every kernel of its kind
ENGINES: dict[type, tuple[Family, ...]] = {
    Loops: (LOOPS,),
    Contraction: (WINOGRAD, CONTRACTION),
    Rowwise: (ROWWISE,),
    Window: (WINDOW,),
    Attention: (WINDOW,),
}


def engines_of(kernel: Kernel, features: frozenset[str] = frozenset()) -> tuple[Family, ...]:
    """The engines that can compute ``kernel`` on a processor with ``features``, the one to prefer first."""
    return tuple(family for family in ENGINES[type(kernel.body)] if not family.accepts(kernel, features))


def family_of(kernel: Kernel) -> Family:
    """The engine that computes ``kernel`` on every processor."""
    return ENGINES[type(kernel.body)][-1]
