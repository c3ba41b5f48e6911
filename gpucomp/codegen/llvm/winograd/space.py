"""Parameters of the CPU's ``winograd`` engine of contractions: F(2, 3), F(4, 3) and F(6, 3), squared, in strict f32.

Pixels in memory may be bf16 or f16. They are f32 from their transform on; filters are transformed to f32 when the model
is compiled. With steps of 2, ``gpucomp.kernel.winograd_matrices.two_phases`` gives two outputs of each phase.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial

from gpucomp.codegen.llvm.core_space import FEW_THREADS, cheapest
from gpucomp.device.limits import Limits
from gpucomp.device.lockstep import either, least, most
from gpucomp.ir.size import bounds, is_zero
from gpucomp.ir.types import BF16, F16, F32
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.forms.convolution import Pixels, winograd_pixels, winograd_sizes
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.packing import Digit, Packing
from gpucomp.kernel.sizes import Sizes, Tunables, tunable
from gpucomp.kernel.winograd_matrices import ALL, Algorithm
from gpucomp.refusal import Refusal, required
from gpucomp.schedule.space import remembered, too_wide

BLOCKS = (4, 8, 12, 16, 24, 32, 48, 64, 96)
PARTS = (32, 64, 128, 256, 512, 1024)


class WinogradSchedule(Tunables):
    lanes: int = tunable((4, 8, 16), "elements of a vector")
    outputs: int = tunable((2, 4, 6), "rows, and columns, of results of a tile")
    block: int = tunable(BLOCKS, "tiles of a task, rounded up to whole blocks of mr")
    mr: int = tunable((1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14), "tiles of the register block")
    nv: int = tunable((1, 2, 3, 4), "vectors of output channels of the register block, and of a panel")
    part: int = tunable(PARTS, "channels that are transformed at a time")
    panels: int = tunable((1, 2, 4, 8), "panels of a task")


class WinogradProblem(Sizes):
    images: int
    height: int
    width: int
    depth: int  # channels of the image
    out_y: int
    out_x: int
    first_y: int  # the row of the first output's first tap
    first_x: int
    n: int  # channels of the result
    step: int  # 1 or 2 pixels from one output to the next
    # Only problems with narrow pixels contain it. Other engines are faster for these, so records of f32 must not be used.
    pixel_bytes: int = 4


class WinogradSizes(Sizes):
    """What follows from a schedule and a problem. Offsets and lengths of scratch are in floats.

    The positions of a tile are adjacent, so that transforms touch few pages. Tiles are padded by a cache line, so that
    the rows of a register block do not share a cache set.
    """

    positions: int  # elements of a transformed tile of pixels
    factors: int  # elements of a transformed filter
    tiles_y: int
    tiles_x: int
    tiles: int
    block: int  # tiles of a task
    blocks: int
    nr: int  # columns of a panel
    panels: int
    groups: int  # groups of panels: tasks along the columns
    part: int  # channels that are transformed at a time
    parts: int
    data_tile: int  # distance between tiles of transformed pixels
    data_position: int
    data_floats: int
    product_tile: int  # distance between tiles of products
    product_position: int
    product_panel: int
    product_floats: int


SCRATCH_BYTES = 5 << 18  # most stack of one call
LINE_FLOATS = 16  # floats in a cache line
STEPS = (1, 2)


def pixels(kernel: Kernel[Contraction]) -> Pixels | Refusal:
    """The convolution that the engine computes, or the reason why it cannot."""
    return winograd_pixels(kernel, (F32, BF16, F16), STEPS, wide_filters=True, empty=True)


def accepts(kernel: Kernel[Contraction], features: frozenset[str]) -> str:
    found = pixels(kernel)
    if isinstance(found, Refusal):
        return found.reason
    body = kernel.body
    if any(is_zero(v.extent) for v in (*body.domain, *body.k)):
        return "there is nothing to multiply"
    if body.b.dtype is not F32:
        return "its filters are not f32 when they are multiplied"
    slow = found.dtype is F16 and not features & {"f16c", "neon"}
    return "the processor does not convert f16" if slow else ""


def problem(kernel: Kernel[Contraction]) -> WinogradProblem:
    form = required(pixels(kernel))
    p = WinogradProblem(**winograd_sizes(kernel, form), step=form.steps[0])
    return p if form.dtype is F32 else p.replace(pixel_bytes=form.dtype.nbytes)


def transform_of(s: WinogradSchedule, p: WinogradProblem) -> str:
    outputs = int(s.outputs)  # a single number, also in ``lockstep``
    return f"winograd{outputs}3" if p.step == 1 else f"winograd{outputs}3by{p.step}"


def algorithm_of(s: WinogradSchedule, p: WinogradProblem) -> Algorithm:
    """The algorithm of one dimension."""
    return ALL[transform_of(s, p)]


@remembered
def derive(s: WinogradSchedule, p: WinogradProblem) -> WinogradSizes:
    algorithm = algorithm_of(s, p)
    positions = algorithm.positions**2
    tiles_y, tiles_x = -(-p.out_y // s.outputs), -(-p.out_x // s.outputs)
    tiles = p.images * tiles_y * tiles_x
    block = most(1, least(-(-s.block // s.mr), -(-tiles // s.mr))) * s.mr
    nr = s.nv * s.lanes
    parts = -(-p.depth // s.part)
    even = -(-p.depth // parts)
    part = -(-even // s.lanes) * s.lanes
    parts = -(-p.depth // part)
    panels = -(-p.n // nr)
    data_tile, product_tile = positions * part + LINE_FLOATS, positions * nr + LINE_FLOATS
    kept = either(parts > 1, least(s.panels, panels), 1)
    return WinogradSizes(
        positions=positions,
        factors=algorithm.factors**2,
        tiles_y=tiles_y,
        tiles_x=tiles_x,
        tiles=tiles,
        block=block,
        blocks=-(-tiles // block),
        nr=nr,
        panels=panels,
        groups=-(-panels // s.panels),
        part=part,
        parts=parts,
        data_tile=data_tile,
        data_position=part,
        data_floats=block * data_tile,
        product_tile=product_tile,
        product_position=nr,
        product_panel=block * product_tile,
        product_floats=kept * block * product_tile,
    )


def of_any_size(s: WinogradSchedule, p: WinogradProblem, example: WinogradProblem) -> WinogradSizes:
    """As ``derive``, of a problem with sizes. The layout of the filters is that of the example.

    A block has less tiles than the schedule says if their scratch would not fit the stack.
    """
    d = derive(s, example)
    tiles_y, tiles_x = -(-p.out_y // s.outputs), -(-p.out_x // s.outputs)
    tiles = p.images * tiles_y * tiles_x
    kept = d.product_floats // d.product_panel
    tile_bytes = 4 * (d.data_tile + kept * d.product_tile)
    most = max(1, (SCRATCH_BYTES - _fixed_bytes(s, d)) // tile_bytes // s.mr)
    block = min(-(-s.block // s.mr), -(-int(bounds(tiles)[1]) // s.mr), most) * s.mr
    return d.replace(
        tiles_y=tiles_y,
        tiles_x=tiles_x,
        tiles=tiles,
        block=block,
        blocks=-(-tiles // block),
        data_floats=block * d.data_tile,
        product_panel=block * d.product_tile,
        product_floats=kept * block * d.product_tile,
    )


def _fixed_bytes(s: WinogradSchedule, d: WinogradSizes) -> int:
    return 4 * (d.part + s.outputs * s.outputs * s.lanes) + 512


def scratch_bytes(s: WinogradSchedule, p: WinogradProblem) -> int:
    d = derive(s, p)
    return 4 * (d.data_floats + d.product_floats) + _fixed_bytes(s, d)


def objections(s: WinogradSchedule, p: WinogradProblem, limits: Limits) -> Iterator[str]:
    yield from too_wide(s.lanes, 4, limits)
    if transform_of(s, p) not in ALL:
        yield f"outputs={s.outputs}: not with steps of {p.step}"
        return
    if (scratch := scratch_bytes(s, p)) > SCRATCH_BYTES:
        yield f"{scratch} bytes of scratch, {SCRATCH_BYTES} are allowed"


def geometry(s: WinogradSchedule, p: WinogradProblem) -> Geometry:
    d = derive(s, p)
    return Geometry((d.blocks * d.groups, 1, 1))


# the cost of a schedule

CYCLES_PER_MICROSECOND = 3000
# of the transforms of a tile, per vector of channels; measured with data in the second-level cache
DATA_CYCLES = {"winograd23": 75, "winograd43": 210, "winograd63": 460, "winograd23by2": 110}
RESULT_CYCLES = {"winograd23": 60, "winograd43": 180, "winograd63": 450, "winograd23by2": 80}
FEW_REGISTERS = 1.4  # factor on transforms with 16 registers
BLOCK_CYCLES = 30  # start and end of a register block
AGAIN_BYTES = 6.5  # bytes of filters per cycle, if read again from the last-level cache
CACHED_BYTES = 40.0  # bytes of filters per cycle from the second-level cache
OVERLAP = 0.3  # part of the shorter of arithmetic and fetching that does not overlap with the longer
PIXEL_BYTES = 6.0  # bytes of pixels and results per cycle
TASK_CYCLES = 400
LOSS = {2: 1.0, 4: 1.0, 6: 1.15}  # F(6, 3) has four times the error of F(4, 3), so it has to be clearly faster
# The engine is preferred below this part of the plain engine's time, because cost models err. Smaller: Winograd less
# often. ``gpucomp.schedule.choose._estimated`` compares the two.
HEADROOM = 0.9
MANY = 4  # with so many tasks per thread, the wait for the last ones does not matter


def cycles(s: WinogradSchedule, p: WinogradProblem, threads: int, limits: Limits) -> float:
    """About how many cycles the busiest of ``threads`` takes."""
    (found,) = _cycles(s, p, (threads,), limits)
    return found


def _cycles(s: WinogradSchedule, p: WinogradProblem, threads: Sequence[int], limits: Limits) -> list[float]:
    """``cycles`` for each number of threads: they have the register blocks in common."""
    d = derive(s, p)
    if not d.tiles:  # in some runs of other sizes
        return [TASK_CYCLES] * len(threads)
    whole, rest = divmod(least(d.block, d.tiles), s.mr)
    block_cycles = whole * _block(s.mr, s, p, d, limits) + either(rest > 0, _block(rest, s, p, d, limits), 0.0)
    return [_of_threads(s, p, d, count, block_cycles, limits) for count in threads]


def _of_threads(
    s: WinogradSchedule, p: WinogradProblem, d: WinogradSizes, threads: int, block_cycles: float, limits: Limits
) -> float:
    """``cycles``, if one tile's panel of products takes ``block_cycles``."""
    slow = 1.0 if limits.registers >= 32 else FEW_REGISTERS
    tasks = d.blocks * d.groups
    share = -(-tasks // threads)
    chunk = -(-tasks // (4 * threads)) if threads > 1 else tasks  # consecutive tasks of a thread
    # a block's data are transformed once per chunk, or once per task if channels are divided into parts
    again = either(d.parts > 1, 1.0, least(1.0, 1 / chunk + 1 / d.groups))
    transform = transform_of(s, p)
    filters = 4 * d.factors * p.depth * d.panels * d.nr
    rows = least(d.block, d.tiles)
    room = limits.cache_bytes - 4 * (d.data_floats + d.product_floats)
    cached = filters / least(threads, d.groups) < room
    rereads = either(share < 2, limits.core.fetched, either(cached, CACHED_BYTES, AGAIN_BYTES))
    rereads = either(d.blocks * 2 <= threads, limits.core.fetched, rereads)
    times = most(1.0, d.blocks / threads)  # how often a thread reads the same filters
    panel = filters / d.panels
    fetched = panel * ((1 / limits.core.fetched + (times - 1) / rereads) / times)
    arithmetic = d.positions * block_cycles
    multiply = most(arithmetic, fetched) + OVERLAP * least(arithmetic, fetched)
    vectors = least(d.panels * s.nv, -(-p.n // s.lanes)) / d.panels
    results = rows * vectors * RESULT_CYCLES[transform] * slow
    data = again * rows * -(-p.depth // s.lanes) * DATA_CYCLES[transform] * slow
    crowded = either(room < 0, 2, 1)
    results, data = crowded * results, crowded * data
    panels = least(s.panels, d.panels)
    one = data + panels * (multiply + results) + TASK_CYCLES
    even = one * d.panels / (d.groups * panels) * d.groups * d.tiles / rows / threads
    elements = p.images * (p.height * p.width * p.depth + p.out_y * p.out_x * p.n)
    pixels = elements * (p.pixel_bytes / PIXEL_BYTES / threads)
    return most(even, either(tasks < MANY * threads, one * share, even + one / 2)) + pixels


def _block(rows: int, s: WinogradSchedule, p: WinogradProblem, d: WinogradSizes, limits: Limits) -> float:
    """Cycles of one register block: the longest of multiply-adds, loads, and filters from the second-level cache."""
    step = most(rows * s.nv * limits.core.multiply, (rows + s.nv) * limits.core.load)
    step = most(most(step, s.nv * s.lanes * 4 / CACHED_BYTES), 4)
    step += 0.05 * (rows + s.nv) + 0.15 * s.nv  # loads that overlap with the multiply-adds, as in a plain contraction
    return step * p.depth + d.parts * (BLOCK_CYCLES + 2 * rows * s.nv)


def estimate(s: WinogradSchedule, p: WinogradProblem, limits: Limits) -> float:
    """About how many microseconds two threads take, divided by ``HEADROOM``."""
    return cycles(s, p, 2, limits) / CYCLES_PER_MICROSECOND / HEADROOM


ROWS = {4: (6, 5, 4), 3: (8, 7, 6), 2: (12, 10, 8, 4), 1: (14, 12, 4)}  # rows of a register block, by its vectors
ROWS_16 = {2: (6, 5, 4), 3: (4, 3), 1: (12, 8, 4)}  # with 16 registers


@lru_cache(maxsize=512)  # layers of one shape come again
def default(p: WinogradProblem, limits: Limits) -> WinogradSchedule:
    """The candidate that is fastest by the cost model on ``FEW_THREADS``; the smallest schedule if no candidate is legal."""
    smallest = WinogradSchedule(lanes=limits.vector_bytes // 4, outputs=2, block=4, mr=1, nv=1, part=32, panels=1)

    def cost(s: WinogradSchedule) -> float:
        found = zip(FEW_THREADS, _cycles(s, p, FEW_THREADS, limits), strict=True)
        return LOSS[s.outputs] * sum(threads * cycles for threads, cycles in found)

    names = ("outputs", "nv", "mr", "block", "part", "panels")
    return cheapest(
        smallest, names, _candidates(smallest.lanes, p, limits), cost, partial(scratch_bytes, p=p), SCRATCH_BYTES
    )


def _candidates(lanes: int, p: WinogradProblem, limits: Limits) -> Iterator[tuple[int, int, int, int, int, int]]:
    """The two widest register blocks without unused vectors, with every tile and task that the image fills: outputs, nv, mr,
    block, part, panels.
    """
    vectors = -(-p.n // lanes)
    table = ROWS if limits.registers >= 32 else ROWS_16
    fewest = min(-(-vectors // nv) * nv for nv in table)
    widths = [nv for nv in table if -(-vectors // nv) * nv == fewest][:2]
    parts = [part for part in PARTS if part == PARTS[0] or part < 2 * p.depth]
    for outputs, nv in itertools.product((2, 4, 6) if p.step == 1 else (2,), widths):
        tiles = p.images * -(-p.out_y // outputs) * -(-p.out_x // outputs)
        blocks = [block for block in BLOCKS if block == BLOCKS[0] or block <= 2 * tiles]
        groups = [group for group in WinogradSchedule.choices("panels") if group <= -(-vectors // nv)]
        for mr, block, part, panels in itertools.product(table[nv], blocks, parts, groups):
            if block >= min(mr, tiles):
                yield outputs, nv, mr, block, part, panels


def packing(kernel: Kernel, s: WinogradSchedule, p: WinogradProblem) -> Packing:
    """Transformed filters [panel, factor, input channel, column of the panel]; the last panel is padded."""
    d = derive(s, p)
    digits = (
        Digit("span", d.nr, d.panels),
        Digit("k", p.depth, d.factors),
        Digit("k", 1, p.depth),
        Digit("span", 1, d.nr),
    )
    return Packing("b", digits, transform_of(s, p))
