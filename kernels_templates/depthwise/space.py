"""The parameters of the depthwise family: a register window of the image, and vectors of channels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace

from gpucomp.device.limits import REGISTER_FILE, Limits
from gpucomp.device.lockstep import least
from gpucomp.kernel import Kernel
from gpucomp.kernel.forms.sliding import Sliding, access_width, depthwise_of
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernels_templates.depthwise.emit import depthwise_hooks
from gpucomp.refusal import Refusal, required
from gpucomp.schedule.space import MOST_REGISTERS, Family, Param, Schedule, Work, groups_for_registers

PARAMS = (
    Param("threads", (32, 64, 128, 256), "work-items per work-group"),
    Param("vector", (1, 2, 4, 8), "neighbouring channels per access"),
    Param("tile_y", (1, 2, 4), "rows of the result per work-item"),
    Param("tile_x", (1, 2, 4, 7, 8), "columns of the result per work-item"),
    Param("unroll", (0, 1), "whether the rows of the window are written out"),
)
MAX_GROUPS = (1 << 31) - 1
MAX_WRITTEN = 256  # multiply-adds of a work-item that are written out, vectors counting once
PASSING = 8  # accesses on their way
OTHER_REGISTERS = 30  # addresses, halo tests, indices


def accepts(kernel: Kernel, features: frozenset[str]) -> str:
    found = depthwise_of(kernel)
    return found.reason if isinstance(found, Refusal) else ""


def problem(kernel: Kernel) -> Mapping[str, int]:
    found = required(depthwise_of(kernel))
    return sizes_of(kernel, found)


def sizes_of(kernel: Kernel, found: Sliding) -> Mapping[str, int]:
    """``lead``: images; ``out_*``, ``taps_*``, ``stride_*``, ``dilation_*``: along each axis of the window.

    ``weighted``: whether a tap has a weight; ``widest``: channels an access may take; ``image_bytes``: of the widest
    element read or written; ``acc_words``: registers of a sum.
    """
    sizes = {
        f"{what}_{axis}": number
        for axis, slide in (("y", found.y), ("x", found.x))
        for what, number in (
            ("out", slide.outputs),
            ("taps", slide.taps),
            ("stride", slide.stride),
            ("dilation", slide.dilation),
        )
    }
    return {
        "lead": math.prod(a.extent for a in found.lead),
        "channels": found.channel.extent,
        **sizes,
        "weighted": int(found.weight is not None),
        "widest": access_width(kernel, found),
        "image_bytes": max(t.dtype.nbytes for t in kernel.params),
        "acc_words": max(1, found.total.dtype.nbytes // 4),
    }


def derive(s: SimpleNamespace, p: SimpleNamespace) -> Mapping[str, int]:
    """The sizes of ``window``, and ``groups_per_unit``: how many work-groups a unit is to hold at a time.

    ptxas may take as many registers as it likes to read ahead: with as few as ``registers`` it spills. At batch 1 there
    are not so many work-items anyway. 0, its own choice, where it would like more registers than there are.
    """
    taken = registers_taken(s, p)
    groups = groups_for_registers(taken, s.threads) if taken < MOST_REGISTERS else 0
    return {**window(s, p), "groups_per_unit": groups}


def window(s: SimpleNamespace, p: SimpleNamespace) -> Mapping[str, int]:
    """``rows``, ``columns``: of the image that a work-item reads, ``step_*`` places apart; ``out_step_*`` and
    ``tap_step_*`` are the stride and the dilation in those steps.
    """
    sizes: dict[str, int] = {}
    for axis, name in (("y", "rows"), ("x", "columns")):
        tile, taps = getattr(s, f"tile_{axis}"), getattr(p, f"taps_{axis}")
        stride, dilation = getattr(p, f"stride_{axis}"), getattr(p, f"dilation_{axis}")
        step = math.gcd(stride if tile > 1 else 0, dilation)
        sizes |= {
            name: ((tile - 1) * stride + (taps - 1) * dilation) // step + 1,
            f"step_{axis}": step,
            f"out_step_{axis}": stride // step if tile > 1 else 0,
            f"tap_step_{axis}": dilation // step,
            f"tiles_{axis}": -(-getattr(p, f"out_{axis}") // tile),
        }
    return {
        **sizes,
        "groups_of_channels": p.channels // s.vector,
        "points": p.lead * sizes["tiles_y"] * sizes["tiles_x"] * (p.channels // s.vector),
        "weights_by_row": int(s.tile_y == 1),
    }


def registers(s: SimpleNamespace, p: SimpleNamespace) -> int:
    """kernels.md 2.6: sums, weights, one row of the window, and the rest.

    What is used once, the weights of a single row of outputs and the image of a single output, passes through.
    """
    d = SimpleNamespace(**window(s, p))
    weights = min(p.taps_x, PASSING) if d.weights_by_row else p.taps_y * p.taps_x
    line = min(d.columns, PASSING) if s.tile_x == 1 else d.columns
    return p.acc_words * s.vector * (s.tile_y * s.tile_x + p.weighted * weights + line) + OTHER_REGISTERS


def registers_ahead(s: SimpleNamespace, p: SimpleNamespace) -> int:
    """``registers`` with the next row of the image, which ptxas asks for early where rows are written out, come what may."""
    d = SimpleNamespace(**window(s, p))
    ahead = p.acc_words * s.vector * d.columns if s.unroll and d.rows > 1 else 0
    return registers(s, p) + ahead


def registers_taken(s: SimpleNamespace, p: SimpleNamespace) -> int:
    """At most what ptxas takes while registers are plenty: it reads all rows of the image and all weights ahead."""
    d = SimpleNamespace(**window(s, p))
    ahead = p.weighted * p.taps_x * p.taps_y + d.columns * d.rows if s.unroll else p.weighted * p.taps_x + d.columns
    return min(
        MOST_REGISTERS,
        p.acc_words * s.vector * (s.tile_y * s.tile_x + ahead) + 2 * OTHER_REGISTERS + d.rows + d.columns,
    )


def objections(s: SimpleNamespace, p: SimpleNamespace, limits: Limits) -> Iterator[str]:
    if s.threads > limits.threads:
        yield f"{s.threads} work-items per work-group, the device allows {limits.threads}"
    if p.channels % s.vector:
        yield f"vectors of {s.vector} do not divide the {p.channels} channels"
        return
    if not s.unroll and s.tile_y > 1:
        yield "a row of the image serves several rows of the result only where the rows are written out"
    written = s.tile_y * s.tile_x * p.taps_x * (p.taps_y if s.unroll else 1)
    if written > MAX_WRITTEN:
        yield f"{written} multiply-adds written out, the source would be too long for a compiler to end in seconds"
    weights = p.weighted * p.taps_y * p.taps_x * s.vector * p.acc_words
    if not limits.is_cpu and s.unroll and weights > limits.registers:  # ptxas reads them ahead all the same, and spills
        yield f"{weights} weights written out per work-item, the device has {limits.registers} registers"
    if not limits.is_cpu and (used := registers_ahead(s, p)) > limits.registers:
        yield f"about {used} registers per work-item, the device has {limits.registers}"
    if groups(s, p) > MAX_GROUPS:
        yield f"{groups(s, p)} work-groups, a launch has at most {MAX_GROUPS}"


def groups(s: SimpleNamespace, p: SimpleNamespace) -> int:
    return -(-window(s, p)["points"] // s.threads)


def geometry(s: SimpleNamespace, p: SimpleNamespace) -> Geometry:
    return Geometry((groups(s, p), 1, 1), (s.threads, 1, 1))


LATENCY = 600  # cycles from asking memory to having it
WARP = 32
ISSUED = 128  # instructions of one unit in a cycle
BYTES_PER_CYCLE = 60.0  # of one unit, from its cache and the next
RESIDENT = 2048  # work-items that a unit runs at a time, registers permitting
OVERHEAD = 60  # instructions of a work-item around its window
NARROWER = 0.95  # of whole accesses' time: a pool's halves, twice as many requests, have to gain more than that


def cycles(s: Schedule, p: SimpleNamespace, limits: Limits) -> float:
    """Of the busiest unit: what it issues, what it reads, and the latency that too few work-items leave bare."""
    z = SimpleNamespace(**s)
    d = SimpleNamespace(**window(z, p))
    loads = d.rows * d.columns + p.weighted * p.taps_y * p.taps_x
    sums = z.tile_y * z.tile_x * p.taps_y * p.taps_x * z.vector
    items = -(-groups(z, p) // limits.units) * z.threads
    issue = items * instructions(z, p) / ISSUED
    read = items * loads * z.vector * p.image_bytes / BYTES_PER_CYCLE
    at_a_time = min(RESIDENT, REGISTER_FILE // max(32, registers(z, p)))
    waves = -(-items // at_a_time)
    # rows that are not written out ask for the next only when the last is summed
    alone = LATENCY + loads * 4 + (0 if z.unroll else p.taps_y * LATENCY / 2) + sums / 2
    return max(issue, read, waves * alone) + 0.2 * min(issue, read)


def instructions(s: SimpleNamespace, p: SimpleNamespace) -> int:
    """Of a work-item: its multiply-adds, its accesses with their halo tests, its stores, and what stands around them."""
    d = SimpleNamespace(**window(s, p))
    loads = d.rows * d.columns + p.weighted * p.taps_y * p.taps_x
    sums = s.tile_y * s.tile_x * p.taps_y * p.taps_x * s.vector
    return sums + loads * 4 + s.tile_y * s.tile_x * (6 + s.vector) + OVERHEAD


def work(s: SimpleNamespace, p: SimpleNamespace) -> Work:
    """Of ``threads`` neighbouring points, channels first: what their windows share comes from the unit's own cache."""
    d = SimpleNamespace(**window(s, p))
    warps = -(-s.threads // WARP)
    outputs = s.tile_y * s.tile_x
    weighed = least(s.threads, d.groups_of_channels)  # work-items with weights of their own
    image = s.threads * d.rows * least(d.columns * d.step_x, s.tile_x * p.stride_x)
    return Work(
        macs=WARP * warps * outputs * p.taps_y * p.taps_x * s.vector * p.acc_words,
        cache_bytes=s.vector * p.image_bytes * (image + p.weighted * weighed * p.taps_y * p.taps_x),
        steps=1 if s.unroll else d.rows,
        out_bytes=s.threads * outputs * s.vector * p.image_bytes,
        instructions=warps * instructions(s, p),
        registers=(registers_ahead(s, p) + registers_taken(s, p)) // 2,
        chains=outputs * s.vector,
        start_cycles=200,
    )


def focus(p: SimpleNamespace, limits: Limits) -> Mapping[str, Sequence[int]]:
    """Whole accesses and halves of them, by work-groups of some warps: the model does not see what narrower ones cost."""
    return {
        "threads": tuple(t for t in (64, 128) if t <= max(64, limits.threads)),
        "vector": tuple(v for v in PARAMS[1].choices if v <= p.widest and 2 * v >= p.widest),
        "tile_y": tuple(t for t in PARAMS[2].choices if t < 2 * p.out_y),
        "tile_x": tuple(t for t in PARAMS[3].choices if t < 2 * p.out_x),
    }


def default(p: SimpleNamespace, limits: Limits) -> Schedule:
    """Of the legal schedules with the widest access that fits, the one that ``cycles`` finds fastest."""
    if limits.is_cpu:
        return _one_at_a_time(p, limits)
    threads = max(t for t in PARAMS[0].choices if t <= max(32, limits.threads))
    small = {"threads": min(threads, 128), "vector": 1, "tile_y": 1, "tile_x": 1, "unroll": 0}
    best: tuple[float, dict[str, int]] | None = None
    widths = [w for w in PARAMS[1].choices if w <= p.widest and 2 * w >= p.widest]
    if not p.weighted:
        widths.reverse()
    for vector, tile_y, tile_x, unroll in itertools.product(widths, (1, 2, 4), PARAMS[3].choices, (1, 0)):
        if tile_y >= 2 * p.out_y or tile_x >= 2 * p.out_x:
            continue
        s = small | {"vector": vector, "tile_y": tile_y, "tile_x": tile_x, "unroll": unroll}
        if any(True for _ in objections(SimpleNamespace(**s), p, limits)):
            continue
        cost = cycles(s, p, limits)
        if best is None or cost < best[0] * (1 if p.weighted or vector == best[1]["vector"] else NARROWER):
            best = cost, s
    if best is None:
        return small
    chosen = best[1]
    while groups(SimpleNamespace(**chosen), p) < 2 * limits.units and chosen["threads"] > 64:
        chosen["threads"] //= 2  # more work-groups than units
    while groups(SimpleNamespace(**chosen), p) > MAX_GROUPS and chosen["threads"] < threads:
        chosen["threads"] *= 2
    return chosen


def _one_at_a_time(p: SimpleNamespace, limits: Limits) -> Schedule:
    """A CPU behind OpenCL: its vectors hold the channels, its registers a small tile."""
    vector = max(w for w in PARAMS[1].choices if p.channels % w == 0)
    tile_y, tile_x = (2 if p.out_y > 1 else 1), next(t for t in (4, 2, 1) if t <= max(1, p.out_x))
    schedule = {"threads": 64, "vector": vector, "tile_y": tile_y, "tile_x": tile_x, "unroll": 1}
    for change in ({"tile_y": 1}, {"unroll": 0}, {"tile_x": 1}, {"threads": 256}):
        if any(True for _ in objections(SimpleNamespace(**schedule), p, limits)):
            schedule |= change
    return schedule


FAMILY = Family(
    "depthwise", PARAMS, problem, objections, derive, geometry, default, accepts=accepts,
    registers=registers_ahead, work=work, focus=focus,
    emit=depthwise_hooks, template="depthwise/kernel.j2",
)  # fmt: skip
