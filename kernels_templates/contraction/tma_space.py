"""What the spaces of engines share whose tiles TMA loads: the problem, what is not loaded, and sizes of tiles.

Tiles are 128 bytes deep, the span of the swizzle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Protocol, Self, TypeVar

from gpucomp.device.limits import Limits
from gpucomp.expr.core import Load, walk
from gpucomp.ir.size import Size, at_most, is_zero
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.forms.convolution import Pixels
from gpucomp.kernel.forms.matrix import DEPTH_BYTES, Matrix, SideBySide, form_of_a, matrix_of, result_matrix
from gpucomp.kernel.forms.operand import count
from gpucomp.kernel.forms.row_statistics import TailProblem, has_tail, tail_problem
from gpucomp.kernel.forms.stores import store_width
from gpucomp.kernel.packing import Digit, Packing
from gpucomp.kernel.passes.pack_weights import packable
from gpucomp.kernel.sizes import Sizes, Tunables
from gpucomp.kernels_templates.contraction.row_statistics import FLAG_BYTES
from gpucomp.refusal import Refusal
from gpucomp.schedule.space import MAX_GROUPS, too_many_groups

GROUP = 128  # threads of a warpgroup
EARLY_TRIPS = 8  # most runs of a consumer's thread whose residuals are fetched together
MOST_STAGES = 8
PAD = 8  # floats after a staged row, so that the rows of a fragment start in different banks
BARRIER_BYTES = 16  # barriers of a stage: full and empty
MOST_BESIDE = 2 * 256  # rows or columns of tiles past the end
SWIZZLE_BYTES, SWIZZLE_ROWS = 128, 8  # the longest row that is swizzled; rows after which the pattern repeats
SHARE_B, SHARE_A, PAIR = 1, 2, 3  # what ``multicast`` can be, besides 0


class TileSchedule(Protocol):
    """The parameters that the engines share; their schedules say what each means."""

    @property
    def tile_m(self) -> int: ...
    @property
    def tile_n(self) -> int: ...
    @property
    def stages(self) -> int: ...
    @property
    def splits(self) -> int: ...
    @property
    def overlap(self) -> int: ...
    @property
    def multicast(self) -> int: ...
    @property
    def tma_store(self) -> int: ...

    @classmethod
    def choices(cls, name: str) -> tuple[int, ...]: ...
    def replace(self, **values: int) -> Self: ...


class TileProblem(TailProblem):
    """Sizes of the contraction, and what TMA loads and stores."""

    batch: int
    m: int
    k: int
    taps: int  # parts of the depth that im2col loads bring one at a time; 0 for a matrix
    element_bytes: int  # bytes of an operand's element
    out_wide: int  # most columns of one store
    b_known: int  # 1: b is a constant of the model
    out_bytes: int  # bytes of a result's element if TMA can store it, otherwise 0
    out_reads: int  # values that the epilogue loads


class TileSizes(Sizes):
    threads: int
    tile_k: int  # elements of the depth in 128 bytes
    steps: int  # tiles along the depth, of all taps
    steps_per_tap: int  # tiles along a tap's channels
    steps_per_split: int
    load_m: int  # rows of a that one load brings
    load_n: int  # columns of b that one load brings
    piece: int  # columns of the result per TMA store
    piece_bytes: int  # bytes of a row of these
    stage_bytes: int
    staging: int  # the byte of shared memory from which on a result is staged for TMA
    ring: int  # bytes of all stages, and of what is staged
    shared: int  # bytes of shared memory
    pitch: int  # floats from row to row of staged sums
    early_runs: int  # most runs of sums whose residuals are fetched together
    tiles_m: int
    tiles_n: int
    tiles: int
    out_vector: int  # columns per store


def not_by_tiles(kernel: Kernel[Contraction]) -> str:
    """Why TMA does not load tiles of the kernel's operands; empty if it does."""
    body = kernel.body
    axes = (*body.batch, *body.m, *body.n, *body.k)
    if any(is_zero(v.extent) for v in axes):
        return "there is nothing to multiply"
    if any(isinstance(v.extent, Size) for v in body.k):
        return "each run decides the depth"
    if not all(at_most(1, v.extent) for v in axes):
        return "in some runs there is nothing to multiply"
    if not all(at_most(count(group) + MOST_BESIDE, MAX_GROUPS) for group in (body.batch, body.m, body.n)):
        return "rows and columns are counted with 32 bits"
    a_form = form_of_a(kernel)
    if isinstance(a_form, Refusal):
        return a_form.reason
    b_form = matrix_of(kernel, "b")
    if isinstance(b_form, Refusal) and not packable(kernel, "b"):
        return b_form.reason
    if count(body.k) * a_form.dtype.nbytes % 16:
        return f"a depth of {count(body.k)} {a_form.dtype} is not a multiple of 16 bytes"
    return ""


def problem(kernel: Kernel[Contraction]) -> TileProblem:
    body = kernel.body
    form, result = form_of_a(kernel), result_matrix(kernel)
    reads = {node for store in kernel.stores for node in walk(store.value) if isinstance(node, Load)}
    return TileProblem(
        batch=count(body.batch),
        m=count(body.m),
        n=count(body.n),
        k=count(body.k),
        taps=form.taps if isinstance(form, Pixels) else 0,
        element_bytes=form.dtype.nbytes if isinstance(form, (Matrix, Pixels, SideBySide)) else 4,
        out_wide=store_width(kernel),
        b_known=int(packable(kernel, "b")),
        out_bytes=result.dtype.nbytes if isinstance(result, Matrix) else 0,
        out_reads=len(reads),
        **tail_problem(kernel),
    )


def packing(kernel: Kernel[Contraction], s: Tunables, p: TileProblem) -> Packing | None:
    """Columns outermost, depth innermost, as both operands are read; ``None`` if ``b`` has this layout already."""
    if isinstance(matrix_of(kernel, "b"), Matrix) or not packable(kernel, "b"):
        return None
    batch = (Digit("batch", 1, p.batch),) if p.batch > 1 else ()
    return Packing("b", (*batch, Digit("span", 1, p.n), Digit("k", 1, p.k)))


def same_columns(s: TileSchedule) -> bool:
    """Whether the two work-groups of a cluster have tiles of the same columns, of which each loads half."""
    return s.multicast in (SHARE_B, PAIR)


def tile_sizes(
    s: TileSchedule, p: TileProblem, consumers: int, beside: int = 0, *, apart: bool = False
) -> dict[str, int]:
    """The numbers of ``TileSizes`` but ``threads``.

    ``consumers`` warpgroups store the sums. ``beside`` bytes of shared memory follow the barriers of the stages. What
    is staged reuses the memory of the ring; or it lies ``apart``, and the ring goes on being loaded.
    """
    tile_k = DEPTH_BYTES // p.element_bytes
    per_tap = -(-(p.k // max(1, p.taps)) // tile_k)
    steps = per_tap * max(1, p.taps)
    load_m = s.tile_m // 2 if s.multicast == SHARE_A else s.tile_m
    load_n = s.tile_n // 2 if same_columns(s) else s.tile_n
    stage = DEPTH_BYTES * (s.tile_m + (load_n if s.multicast == PAIR else s.tile_n))
    result = s.tile_m * s.tile_n * p.out_bytes if s.tma_store else 4 * s.tile_m * (s.tile_n + PAD)
    staging = s.stages * stage if apart else 0
    ring = max(s.stages * stage, staging + result)
    pair_m, pair_n = 1 + same_columns(s), 1 + (s.multicast == SHARE_A)
    tiles_m, tiles_n = -(-p.m // (s.tile_m * pair_m)) * pair_m, -(-p.n // (s.tile_n * pair_n)) * pair_n
    piece = math.gcd(s.tile_n, SWIZZLE_BYTES // max(1, p.out_bytes))
    return {
        "tile_k": tile_k,
        "steps": steps,
        "steps_per_tap": per_tap,
        "steps_per_split": -(-steps // s.splits),
        "load_m": load_m,
        "load_n": load_n,
        "piece": piece,
        "piece_bytes": piece * p.out_bytes,
        "stage_bytes": stage,
        "staging": staging,
        "ring": ring,
        "shared": ring + BARRIER_BYTES * s.stages + beside + FLAG_BYTES * has_tail(p),
        "pitch": s.tile_n + PAD,
        "early_runs": GROUP * consumers * (EARLY_TRIPS if consumers == 1 else EARLY_TRIPS // 2),
        "tiles_m": tiles_m,
        "tiles_n": tiles_n,
        "tiles": tiles_m * tiles_n * p.batch,
        "out_vector": math.gcd(p.out_wide, s.tile_n),
    }


def tile_objections(s: TileSchedule, p: TileProblem, d: TileSizes, limits: Limits) -> Iterator[str]:
    """Why tiles of these sizes are not loaded or stored."""
    if d.threads > limits.threads:
        yield f"{d.threads} work-items per work-group, the device allows {limits.threads}"
    if d.shared > limits.shared_bytes:
        yield f"{d.shared} B of shared memory, the device has {limits.shared_bytes} B"
    yield from too_many_groups(d.tiles)
    if max(p.m + s.tile_m * (1 + same_columns(s)), p.n + s.tile_n * (1 + (s.multicast == SHARE_A))) > MAX_GROUPS:
        yield f"rows and columns are counted with 32 bits, there are {p.m} and {p.n}"
    if s.overlap == 2 and not p.b_known:
        yield "b is the result of another kernel: its tiles cannot be loaded before that kernel ends"
    if s.multicast and s.splits > 1:
        yield "a cluster shares the depth or the loads, not both"
    if same_columns(s) and d.load_n % SWIZZLE_ROWS:
        yield f"half of {s.tile_n} columns of b is not a multiple of {SWIZZLE_ROWS}, after which the swizzle repeats"
    if s.tma_store:
        if not p.out_bytes or p.out_wide * p.out_bytes != 16:
            yield "TMA cannot store the result: not a matrix of f16, bf16 or f32 with rows of whole 16 bytes"
        if s.splits > 1:
            yield "the parts of a split sum are added in the order of the rows, not in the registers of a fragment"
        if p.out_bytes == 2 and s.tile_n % 16:
            yield f"stmatrix takes 16 columns at a time, the tile has {s.tile_n}"


def early(p: TileProblem) -> int:
    """The ``overlap`` with the earliest start."""
    return 2 if p.b_known else 1


Staged = TypeVar("Staged", bound=TileSchedule)


def most_stages(s: Staged, steps: int, can_run: Callable[[Staged], bool]) -> Staged | None:
    """``s`` with the most stages that can run and are useful; ``None`` if none can run.

    ``steps`` are those of the depth that each of its splits takes.
    """
    if s.splits > 1 and steps < 2:
        return None
    useful = [n for n in s.choices("stages") if n <= max(2, min(MOST_STAGES, steps))]
    return next((one for n in reversed(useful) if can_run(one := s.replace(stages=n))), None)
