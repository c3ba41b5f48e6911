"""The parameters of the depthwise family: a register window of the image, and vectors of channels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from gpucomp.device.limits import REGISTER_FILE, Limits
from gpucomp.device.lockstep import least
from gpucomp.kernel import Kernel, Loops
from gpucomp.kernel.forms.sliding import Sliding, access_width, depthwise_of
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.sizes import Sizes, Tunables, tunable
from gpucomp.kernels_templates.depthwise.emit import emit_depthwise
from gpucomp.refusal import Refusal, required
from gpucomp.schedule.space import (
    LATENCY,
    MAX_GROUPS,
    MOST_REGISTERS,
    WARP,
    Family,
    Work,
    can_run,
    groups_for_registers,
    remembered,
)


class DepthwiseSchedule(Tunables):
    threads: int = tunable((32, 64, 128, 256), "work-items per work-group")
    vector: int = tunable((1, 2, 4, 8), "neighbouring channels per access")
    tile_y: int = tunable((1, 2, 4), "rows of the result per work-item")
    tile_x: int = tunable((1, 2, 4, 7, 8), "columns of the result per work-item")
    unroll: int = tunable((0, 1), "whether the rows of the window are written out")


class DepthwiseProblem(Sizes):
    """Sizes of a window that slides over an image, along each of its axes."""

    lead: int  # images
    channels: int
    out_y: int
    taps_y: int
    stride_y: int
    dilation_y: int
    out_x: int
    taps_x: int
    stride_x: int
    dilation_x: int
    weighted: int  # 1: a tap has a weight
    widest: int  # channels that an access may take
    image_bytes: int  # of the widest element read or written
    acc_words: int  # registers of a sum


class DepthwiseSizes(Sizes):
    """The window of one work-item, in places of the image that are ``step_y`` and ``step_x`` apart."""

    rows: int  # places that a work-item reads
    columns: int
    step_y: int
    step_x: int
    out_step_y: int  # from one output to the next, in such steps; 0: there is one output
    out_step_x: int
    tap_step_y: int  # from one tap to the next, in such steps
    tap_step_x: int
    tiles_y: int
    tiles_x: int
    groups_of_channels: int
    points: int  # work-items
    weights_by_row: int  # 1: the weights of one row of taps are held at a time
    groups_per_unit: int = 0  # work-groups that a multiprocessor is to hold at a time; 0: the compiler decides


MAX_WRITTEN = 256  # multiply-adds of a work-item that are written out, vectors counting once
PASSING = 8  # accesses on their way
OTHER_REGISTERS = 30  # addresses, halo tests, indices


def accepts(kernel: Kernel, features: frozenset[str]) -> str:
    found = depthwise_of(kernel)
    return found.reason if isinstance(found, Refusal) else ""


def problem(kernel: Kernel) -> DepthwiseProblem:
    return sizes_of(kernel, required(depthwise_of(kernel)))


def sizes_of(kernel: Kernel, found: Sliding) -> DepthwiseProblem:
    y, x = found.y, found.x
    return DepthwiseProblem(
        lead=math.prod(a.extent for a in found.lead),
        channels=found.channel.extent,
        out_y=y.outputs,
        taps_y=y.taps,
        stride_y=y.stride,
        dilation_y=y.dilation,
        out_x=x.outputs,
        taps_x=x.taps,
        stride_x=x.stride,
        dilation_x=x.dilation,
        weighted=int(found.weight is not None),
        widest=access_width(kernel, found),
        image_bytes=max(t.dtype.nbytes for t in kernel.params),
        acc_words=max(1, found.total.dtype.nbytes // 4),
    )


def derive(s: DepthwiseSchedule, p: DepthwiseProblem) -> DepthwiseSizes:
    """The sizes of ``window``, and how many work-groups a multiprocessor is to hold.

    ptxas may take as many registers as it likes to read ahead: with as few as ``registers`` it spills. At batch 1 there
    are few work-items anyway. The compiler decides where it would like more registers than there are.
    """
    taken = registers_taken(s, p)
    groups = groups_for_registers(taken, s.threads) if taken < MOST_REGISTERS else 0
    return window(s, p).replace(groups_per_unit=groups)


@remembered
def window(s: DepthwiseSchedule, p: DepthwiseProblem) -> DepthwiseSizes:
    step_y, step_x = (_step(s.tile_y, p.stride_y, p.dilation_y), _step(s.tile_x, p.stride_x, p.dilation_x))
    tiles_y, tiles_x = -(-p.out_y // s.tile_y), -(-p.out_x // s.tile_x)
    groups_of_channels = p.channels // s.vector
    return DepthwiseSizes(
        rows=((s.tile_y - 1) * p.stride_y + (p.taps_y - 1) * p.dilation_y) // step_y + 1,
        columns=((s.tile_x - 1) * p.stride_x + (p.taps_x - 1) * p.dilation_x) // step_x + 1,
        step_y=step_y,
        step_x=step_x,
        out_step_y=p.stride_y // step_y if s.tile_y > 1 else 0,
        out_step_x=p.stride_x // step_x if s.tile_x > 1 else 0,
        tap_step_y=p.dilation_y // step_y,
        tap_step_x=p.dilation_x // step_x,
        tiles_y=tiles_y,
        tiles_x=tiles_x,
        groups_of_channels=groups_of_channels,
        points=p.lead * tiles_y * tiles_x * groups_of_channels,
        weights_by_row=int(s.tile_y == 1),
    )


def _step(tile: int, stride: int, dilation: int) -> int:
    """Places of the image between two that a work-item reads, along one axis."""
    return math.gcd(stride if tile > 1 else 0, dilation)


def registers(s: DepthwiseSchedule, p: DepthwiseProblem) -> int:
    """Sums, weights, one row of the window, and the rest.

    What is used once, the weights of a single row of outputs and the image of a single output, passes through.
    """
    d = window(s, p)
    weights = min(p.taps_x, PASSING) if d.weights_by_row else p.taps_y * p.taps_x
    line = min(d.columns, PASSING) if s.tile_x == 1 else d.columns
    return p.acc_words * s.vector * (s.tile_y * s.tile_x + p.weighted * weights + line) + OTHER_REGISTERS


def registers_ahead(s: DepthwiseSchedule, p: DepthwiseProblem) -> int:
    """``registers`` with the next row of the image, which ptxas asks for early where rows are written out, come what may."""
    d = window(s, p)
    ahead = p.acc_words * s.vector * d.columns if s.unroll and d.rows > 1 else 0
    return registers(s, p) + ahead


def registers_taken(s: DepthwiseSchedule, p: DepthwiseProblem) -> int:
    """At most what ptxas takes while registers are plenty: it reads all rows of the image and all weights ahead."""
    d = window(s, p)
    ahead = p.weighted * p.taps_x * p.taps_y + d.columns * d.rows if s.unroll else p.weighted * p.taps_x + d.columns
    return min(
        MOST_REGISTERS,
        p.acc_words * s.vector * (s.tile_y * s.tile_x + ahead) + 2 * OTHER_REGISTERS + d.rows + d.columns,
    )


def objections(s: DepthwiseSchedule, p: DepthwiseProblem, limits: Limits) -> Iterator[str]:
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


def groups(s: DepthwiseSchedule, p: DepthwiseProblem) -> int:
    return -(-window(s, p).points // s.threads)


def geometry(s: DepthwiseSchedule, p: DepthwiseProblem) -> Geometry:
    return Geometry((groups(s, p), 1, 1), (s.threads, 1, 1))


ISSUED = 128  # instructions of one unit in a cycle
BYTES_PER_CYCLE = 60.0  # of one unit, from its cache and the next
RESIDENT = 2048  # work-items that a unit runs at a time, registers permitting
OVERHEAD = 60  # instructions of a work-item around its window
NARROWER = 0.95  # of whole accesses' time: a pool's halves, twice as many requests, have to gain more than that


def cycles(s: DepthwiseSchedule, p: DepthwiseProblem, limits: Limits) -> float:
    """Of the busiest unit: what it issues, what it reads, and the latency that too few work-items leave bare."""
    d = window(s, p)
    loads = d.rows * d.columns + p.weighted * p.taps_y * p.taps_x
    sums = s.tile_y * s.tile_x * p.taps_y * p.taps_x * s.vector
    items = -(-groups(s, p) // limits.units) * s.threads
    issue = items * instructions(s, p) / ISSUED
    read = items * loads * s.vector * p.image_bytes / BYTES_PER_CYCLE
    at_a_time = min(RESIDENT, REGISTER_FILE // max(32, registers(s, p)))
    waves = -(-items // at_a_time)
    # rows that are not written out ask for the next only when the last is summed
    alone = LATENCY + loads * 4 + (0 if s.unroll else p.taps_y * LATENCY / 2) + sums / 2
    return max(issue, read, waves * alone) + 0.2 * min(issue, read)


def instructions(s: DepthwiseSchedule, p: DepthwiseProblem) -> int:
    """Of a work-item: its multiply-adds, its accesses with their halo tests, its stores, and what stands around them."""
    d = window(s, p)
    loads = d.rows * d.columns + p.weighted * p.taps_y * p.taps_x
    sums = s.tile_y * s.tile_x * p.taps_y * p.taps_x * s.vector
    return sums + loads * 4 + s.tile_y * s.tile_x * (6 + s.vector) + OVERHEAD


def work(s: DepthwiseSchedule, p: DepthwiseProblem) -> Work:
    """Of ``threads`` neighbouring points, channels first: what their windows share comes from the unit's own cache."""
    d = window(s, p)
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


def focus(p: DepthwiseProblem, limits: Limits) -> Mapping[str, Sequence[int]]:
    """Whole accesses and halves of them, by work-groups of some warps: the model does not see what narrower ones cost."""
    return {
        "threads": tuple(t for t in (64, 128) if t <= max(64, limits.threads)),
        "vector": tuple(v for v in DepthwiseSchedule.choices("vector") if v <= p.widest and 2 * v >= p.widest),
        "tile_y": tuple(t for t in DepthwiseSchedule.choices("tile_y") if t < 2 * p.out_y),
        "tile_x": tuple(t for t in DepthwiseSchedule.choices("tile_x") if t < 2 * p.out_x),
    }


def default(p: DepthwiseProblem, limits: Limits) -> DepthwiseSchedule:
    """Of the legal schedules with the widest access that fits, the one that ``cycles`` finds fastest."""
    if limits.is_cpu:
        return _one_at_a_time(p, limits)
    threads = max(t for t in DepthwiseSchedule.choices("threads") if t <= max(32, limits.threads))
    small = DepthwiseSchedule(threads=min(threads, 128), vector=1, tile_y=1, tile_x=1, unroll=0)
    best: tuple[float, DepthwiseSchedule] | None = None
    widths = [w for w in DepthwiseSchedule.choices("vector") if w <= p.widest and 2 * w >= p.widest]
    if not p.weighted:
        widths.reverse()
    columns = DepthwiseSchedule.choices("tile_x")
    for vector, tile_y, tile_x, unroll in itertools.product(widths, (1, 2, 4), columns, (1, 0)):
        if tile_y >= 2 * p.out_y or tile_x >= 2 * p.out_x:
            continue
        s = small.replace(vector=vector, tile_y=tile_y, tile_x=tile_x, unroll=unroll)
        if not can_run(s, objections, p, limits):
            continue
        cost = cycles(s, p, limits)
        if best is None or cost < best[0] * (1 if p.weighted or vector == best[1].vector else NARROWER):
            best = cost, s
    return small if best is None else _with_threads(best[1], p, limits, threads)


def _with_threads(s: DepthwiseSchedule, p: DepthwiseProblem, limits: Limits, most: int) -> DepthwiseSchedule:
    """``s`` with smaller work-groups while they are fewer than the units keep busy, or with larger ones, of ``most``
    work-items at most, while they are more than a launch has."""
    while groups(s, p) < 2 * limits.units and s.threads > 64:
        s = s.replace(threads=s.threads // 2)
    while groups(s, p) > MAX_GROUPS and s.threads < most:
        s = s.replace(threads=s.threads * 2)
    return s


def _one_at_a_time(p: DepthwiseProblem, limits: Limits) -> DepthwiseSchedule:
    """A CPU behind OpenCL: its vectors hold the channels, its registers a small tile."""
    vector = max(w for w in DepthwiseSchedule.choices("vector") if p.channels % w == 0)
    tile_y, tile_x = (2 if p.out_y > 1 else 1), next(t for t in (4, 2, 1) if t <= max(1, p.out_x))
    schedule = DepthwiseSchedule(threads=64, vector=vector, tile_y=tile_y, tile_x=tile_x, unroll=1)
    for change in ({"tile_y": 1}, {"unroll": 0}, {"tile_x": 1}, {"threads": 256}):
        if not can_run(schedule, objections, p, limits):
            schedule = schedule.replace(**change)
    return schedule


FAMILY = Family(
    "depthwise",
    Loops,
    DepthwiseSchedule,
    problem,
    objections,
    derive,
    geometry,
    default,
    accepts=accepts,
    registers=registers_ahead,
    work=work,
    focus=focus,
    emit=emit_depthwise,
    template="depthwise/kernel.j2",
    any_size=True,
)
