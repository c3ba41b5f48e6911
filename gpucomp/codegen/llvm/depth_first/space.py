"""The schedule of fused layers on the CPU: rows at a time, and parts of an image for threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpucomp.codegen.llvm.core_space import STACK_BYTES, THREADS
from gpucomp.codegen.llvm.depth_first.layers import IMAGE, ROW, LayerRows, layer_rows_of, stretches
from gpucomp.device.limits import Limits
from gpucomp.kernel import FusedLayers, Kernel
from gpucomp.kernel.sizes import Sizes, Tunables, tunable

CACHE_SHARE = 2  # kept rows may take 1/2 of the second-level cache; weights and operands need space too
WIDEST_SHARE = 4  # above 1/4 of it, more rows at a time gain nothing
ENOUGH_ROWS = 4  # with fewer rows at a time, moving rows costs more than it saves
CARRIED_BYTE = 0.06  # cycles to move a byte of a row that the next band also needs


class FusedLayersSchedule(Tunables):
    rows: int = tunable((1, 2, 4, 8, 16), "rows of the last layer's result that are computed at a time")
    parts: int = tunable((1, 2, 4, 8, 16), "parts of an image that the threads share; each computes its own halo")


class FusedLayersProblem(Sizes):
    images: int
    out_rows: int  # rows of the last layer's result
    layers: int
    row_bytes: int  # ``rows`` rows take ``halo_bytes + rows * row_bytes``
    halo_bytes: int
    work: int  # cycles of a whole image
    halo: int  # cycles of the rows that a part computes although the previous part has them
    carried_bytes: int  # bytes moved from one band of rows to the next


def sizes(layers: Sequence[LayerRows]) -> FusedLayersProblem:
    one, two = (sum(4 * s.count * s.row_floats for s in stretches(layers, rows)) for rows in (1, 2))
    kept = stretches(layers, 1)
    halo = sum((s.count - s.fresh) * layer.row_cycles for s, layer in zip(kept, layers, strict=False))
    carried = sum(4 * (s.count - s.fresh) * s.row_floats for s in kept)
    result = layers[-1].result.shape
    work = sum(layer.row_cycles * layer.result.shape[ROW] for layer in layers)
    return FusedLayersProblem(
        images=result[IMAGE],
        out_rows=result[ROW],
        layers=len(layers),
        row_bytes=two - one,
        halo_bytes=2 * one - two,
        work=round(work),
        halo=round(halo),
        carried_bytes=carried,
    )


def problem(kernel: Kernel[FusedLayers]) -> FusedLayersProblem:
    return sizes(layer_rows_of(kernel.body))


def kept_bytes(rows: int, p: FusedLayersProblem) -> int:
    return p.halo_bytes + rows * p.row_bytes


def objections(s: FusedLayersSchedule, p: FusedLayersProblem, limits: Limits) -> Iterator[str]:
    if (kept := kept_bytes(s.rows, p)) > STACK_BYTES:
        yield f"{kept} bytes of kept rows, {STACK_BYTES} are allowed"


def cycles(parts: int, p: FusedLayersProblem, threads: int) -> float:
    """About how many cycles per image the busiest of ``threads`` takes."""
    share = -(-p.images * parts // threads) / p.images
    return share * (p.work / parts + p.halo)


def carrying(rows: int, p: FusedLayersProblem) -> float:
    """Cycles per image to move rows from band to band."""
    return p.out_rows / rows * p.carried_bytes * CARRIED_BYTE


def default(p: FusedLayersProblem, limits: Limits) -> FusedLayersSchedule:
    def fits(rows: int) -> bool:
        share = CACHE_SHARE if rows <= ENOUGH_ROWS else WIDEST_SHARE
        return kept_bytes(rows, p) <= min(limits.cache_bytes // share, STACK_BYTES)

    rows = max((n for n in FusedLayersSchedule.choices("rows") if n <= 8 and fits(n)), default=1)
    parts = min(FusedLayersSchedule.choices("parts"), key=lambda n: (sum(t * cycles(n, p, t) for t in THREADS), n))
    return FusedLayersSchedule(rows=rows, parts=parts)
