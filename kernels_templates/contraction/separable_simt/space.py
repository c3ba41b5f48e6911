"""The parameters of the contraction family's `separable_simt` engine: the depthwise result in shared memory, f32."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace

from gpucomp.device.limits import Limits
from gpucomp.device.lockstep import least, most
from gpucomp.ir.types import F32
from gpucomp.kernel import Kernel, Separable
from gpucomp.kernel.forms.copyable import stored
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.packing import Digit, Packing
from gpucomp.kernels_templates.contraction import separable
from gpucomp.kernels_templates.contraction.separable_simt.emit import separable_simt_hooks
from gpucomp.kernels_templates.contraction.simt.space import passes
from gpucomp.schedule.space import (
    RESERVED,
    STATIC_SHARED,
    Family,
    Param,
    Schedule,
    Work,
    cannot_meet,
    remembered,
    too_large,
)

PARAMS = (
    separable.TILE_Y,
    separable.TILE_X,
    Param("tile_n", (4, 8, 16, 32, 64, 128), "columns of the result per work-group"),
    Param("reg_m", (1, 2, 4, 8), "outputs per work-item"),
    Param("reg_n", (4, 8), "columns of the result per work-item"),
    separable.VECTOR,
    separable.REG_Y,
    separable.REG_X,
    separable.PARTS,
    separable.SPLITS,
    Param("asynchronous", (0, 1), "1: filters are copied to shared memory past the registers (cp.async)"),
)
STEP = 8  # the depth of a part is a multiple of it
BARRIER_CYCLES = 60
PASS_BYTES = 128  # that shared memory's banks give in a cycle


def accepts(kernel: Kernel, features: frozenset[str]) -> str:
    if features & {"mali", "amd"}:
        return "its local memory, and its registers, are of another kind"
    if reason := separable.accepts(kernel):
        return reason
    body = kernel.body_as(Separable)
    if body.acc.dtype is not F32 or stored(body.b).dtype is not F32:
        return "sums and filters are of f32"
    return ""


def problem(kernel: Kernel) -> Mapping[str, int]:
    """See ``separable.problem``; ``element_bytes`` of what is multiplied."""
    return {**separable.problem(kernel), "element_bytes": 4}


@remembered
def derive(s: SimpleNamespace, p: SimpleNamespace) -> Mapping[str, object]:
    """``rows``, ``columns``: work-items along the outputs and along the columns of a tile; ``a_deep``: elements of a pixel
    that a work-item reads at once; ``pitch``: of a pixel."""
    rows, columns = s.tile_y * s.tile_x // s.reg_m, s.tile_n // s.reg_n
    common = separable.sizes(s, p, most(1, rows * columns), s.tile_n, STEP)
    pitch = common["part_k"] + separable.ROW_PAD // 4
    shared = 4 * (common["tile_m"] * pitch + common["part_k"] * s.tile_n)
    return {
        **common,
        "rows": rows,
        "columns": columns,
        "a_deep": 4 if s.reg_m <= 4 else 2,
        "pitch": pitch,
        "out_vector": least(4, p.out_wide),
        "lanes": 1,
        "slices": 1,
        "tiles_bytes": shared,
        "dynamic_shared_bytes": shared * (s.asynchronous * (shared + separable.FLAG_BYTES) > STATIC_SHARED),
    }


def shared_bytes(s: SimpleNamespace, p: SimpleNamespace) -> int:
    return SimpleNamespace(**derive(s, p)).tiles_bytes + separable.FLAG_BYTES * (s.splits > 1)


def registers(s: SimpleNamespace, p: SimpleNamespace) -> int:
    """Of a window, with the sums where several parts follow each other; or the sums and what is multiplied."""
    d = SimpleNamespace(**derive(s, p))
    sums = s.reg_m * s.reg_n
    first = separable.window_registers(s, p) + sums * (d.parts_per_split > 1)
    return most(first, sums + s.reg_m * d.a_deep + s.reg_n + RESERVED)


def registers_taken(s: SimpleNamespace, p: SimpleNamespace) -> int:
    """At most what ptxas takes while there are some."""
    return separable.taken(s, p, registers(s, p))


def objections(s: SimpleNamespace, p: SimpleNamespace, limits: Limits) -> Iterator[str]:
    if limits.is_cpu:
        yield "outputs are dealt to work-items side by side, the device runs one at a time"
    if s.tile_n % s.reg_n or s.tile_y * s.tile_x % s.reg_m:
        yield "reg_m, reg_n must divide tile_y * tile_x, tile_n"
        return
    if wrong := list(separable.objections(s, p)):
        yield from wrong
        return
    d = SimpleNamespace(**derive(s, p))
    if d.threads > limits.threads:
        yield f"{d.threads} work-items per work-group, the device allows {limits.threads}"
    shared = shared_bytes(s, p)
    if shared > limits.shared_bytes:
        yield f"{shared} B of shared memory, the device has {limits.shared_bytes} B"
    if shared > STATIC_SHARED and not s.asynchronous:
        yield f"{shared} B of shared memory in arrays of fixed size, compilers allow {STATIC_SHARED}"
    if s.asynchronous and not limits.async_copy:
        yield "the device has no asynchronous copies"
    yield from separable.split_objections(s, d)
    yield from cannot_meet(s.splits, limits)
    yield from too_large(limits, d.threads, registers(s, p), d.tiles)


def geometry(s: SimpleNamespace, p: SimpleNamespace) -> Geometry:
    d = SimpleNamespace(**derive(s, p))
    return separable.geometry(s, d, d.dynamic_shared_bytes)


NAMES = ("tile_y", "tile_x", "tile_n", "reg_m", "reg_n", "reg_x")
TILES = (  # from large to small
    (8, 8, 64, 4, 8, 4),
    (4, 8, 64, 4, 4, 4),
    (4, 8, 32, 4, 4, 2),
    (2, 8, 32, 2, 4, 2),
    (2, 8, 16, 1, 4, 1),
    (1, 4, 8, 1, 4, 1),
    (1, 4, 4, 1, 4, 1),
)


def default(p: SimpleNamespace, limits: Limits) -> Schedule:
    """The first tile of a short list that leaves no unit idle, in as few parts as fit; the smallest where none does."""
    fallback: Schedule | None = None
    vector = max(v for v in separable.VECTOR.choices if p.widest % v == 0)
    for tile in TILES:
        for parts in separable.PARTS.choices:
            s = dict(zip(NAMES, tile, strict=True)) | {
                "vector": vector, "reg_y": 1, "parts": parts, "splits": 1, "asynchronous": int(limits.async_copy)
            }  # fmt: skip
            if list(objections(SimpleNamespace(**s), p, limits)):
                continue
            fallback = s
            if derive(SimpleNamespace(**s), p)["tiles"] >= limits.units:  # type: ignore[operator]
                return s
            break
    least_of_all = dict(zip(NAMES, TILES[-1], strict=True)) | {
        "vector": separable.VECTOR.choices[0], "reg_y": 1, "parts": separable.PARTS.choices[-1],
        "splits": 1, "asynchronous": 0,
    }  # fmt: skip
    return fallback or least_of_all


def work(s: SimpleNamespace, p: SimpleNamespace) -> Work:
    """A tile over a work-group's parts of the depth: windows first, then the products."""
    d = SimpleNamespace(**derive(s, p))
    warps, depth = -(-d.threads // 32), d.parts_per_split * d.part_k
    sums = d.tile_m * s.tile_n * 4
    accesses = s.reg_m / d.a_deep, s.reg_n / 4
    read = accesses[0] * passes(d.a_deep) + accesses[1] * passes(4)
    products = warps * depth * (s.reg_m * s.reg_n + sum(accesses))
    return Work(
        macs=32 * warps * depth * s.reg_m * s.reg_n,
        cache_bytes=separable.moved_bytes(s, p, d),
        steps=d.parts_per_split * d.trips,
        out_bytes=sums,
        shared_traffic=warps * depth * read * PASS_BYTES + depth * 4 * (d.tile_m + s.tile_n),
        shared_bytes=shared_bytes(s, p),
        instructions=products + separable.window_instructions(s, p, d) + 3 * warps * s.reg_m * s.reg_n,
        chains=s.reg_m * s.reg_n,
        step_cycles=2 * BARRIER_CYCLES / d.trips,
        splits=s.splits,
        joined_bytes=sums,
    )


def focus(p: SimpleNamespace, limits: Limits) -> Mapping[str, Sequence[int]]:
    return {
        **separable.worthwhile(p, limits),
        "tile_n": tuple(t for t in (16, 32, 64, 128) if t < 2 * max(p.n, 16)),
        "reg_m": (2, 4, 8),
        "asynchronous": (int(limits.async_copy),),
    }


def packing(kernel: Kernel, s: SimpleNamespace, p: SimpleNamespace) -> Packing:
    """Filters [depth, column], filled up to whole parts and tiles."""
    d = SimpleNamespace(**derive(s, p))
    return Packing("b", (Digit("k", 1, d.padded_k), Digit("span", 1, d.padded_n)))


FAMILY = Family(
    "contraction",
    PARAMS,
    problem,
    objections,
    derive,  # type: ignore[arg-type]
    geometry,
    default,
    "separable_simt",
    accepts=accepts,
    work=work,
    packing=packing,
    registers=registers,
    focus=focus,
    taken=registers_taken,
    emit=separable_simt_hooks,
    template="contraction/separable_simt/kernel.j2",
)
