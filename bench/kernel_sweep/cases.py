"""Random kernels of awkward sizes, each for one engine in one dtype, with a random legal schedule; all depend on a seed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

from bench.gpu.checks import cost
from gpucomp.device.target import Target
from gpucomp.expr.core import axes_of, call, load
from gpucomp.ir.types import BF16, DTYPES, F16, F32, I32, DType, TensorType
from gpucomp.kernel import Attention, Contraction, Kernel, Scatter
from gpucomp.kernel.ir import K
from gpucomp.kernel.passes import split_winograd as winograd_steps
from gpucomp.kernel.passes.fuse_row_statistics import is_matrix
from gpucomp.kernel.sizes import Sizes
from gpucomp.kernels_templates.contraction.simt.space import row_chunk
from gpucomp.kernels_templates.engines import ENGINES, FAMILIES
from gpucomp.schedule.space import Family
from gpucomp.targets import cuda, hip, opencl
from testing.kernels import (
    add_relu,
    attention,
    average_pool,
    conv,
    depthwise,
    elementwise,
    grouped_conv,
    into_part,
    joined,
    layer_norm,
    matmul,
    max_pool,
    padded,
    reduction,
    scan,
    scatter,
    separable,
    softmax,
    stem,
    transposed,
    with_inverse_rms,
    with_largest,
    with_row_statistics,
)

LARGEST = 1 << 18  # points that the oracle computes for one kernel
MOST_ITEMS = 1 << 14  # work-items of a launch; each is a fiber
LEAST_ITEMS = 32  # work-items of a work-group on PoCL, which unrolls the work-items of smaller ones
SLOW = 256  # numbers that numpy computes in the time of one step of Python
LONGEST = 40_000  # characters of a source: compilers for CPUs take minutes for long unrolled code
DRAWS = 400  # random schedules for one kernel, and random kernels for one case
CHOSEN_OF = 4  # legal schedules; in three cases of four the one with the most tiles and steps is taken
STEPS = ("steps_per_split", "tiles_per_split", "tiles_k", "steps")  # names of this size in the engines
PRIMES = tuple(p for p in range(2, 256) if all(p % d for d in range(2, math.isqrt(p) + 1)))

# the dtypes of each engine on each target; ``tf32`` and ``3xtf32`` are f32 with arithmetic that may round
SIMT = ("f32", "f16", "bf16", "f64", "i8", "i32")
FLOATS = ("f32", "f16", "bf16")
IN_EVERY_LANGUAGE: dict[str, tuple[str, ...]] = {
    "rowwise": (*FLOATS, "f64", "i32", "u8"),
    "scan": (*FLOATS, "f64", "i32", "i64"),
    "scatter": ("f32", "f16", "i32", "u8"),
    "pool": (*FLOATS, "u8"),
    "pool/window": (*FLOATS, "u8"),
    "attention/simt": FLOATS,
}
CELLS: dict[str, dict[str, tuple[str, ...]]] = {
    "sm_80": {
        "loops": (*FLOATS, "f64", "u8", "i8", "i32", "i64"),
        "loops/transpose": (*FLOATS, "f64", "u8"),
        "depthwise": FLOATS,
        "contraction/simt": (*SIMT, "f32-rows", "f32-tail", "f16-tail", "bf16-tail"),
        "contraction/gemv": SIMT,
        "contraction/mma": (
            "f16",
            "bf16",
            "tf32",
            "3xtf32",
            "i8",
            "u8",
            "f16-tail",
            "bf16-tail",
            "tf32-tail",
            "3xtf32-tail",
        ),
        "contraction/winograd": ("f32",),
        "contraction/stem_simt": FLOATS,
        "contraction/stem_mma": ("f16", "bf16", "tf32", "3xtf32"),
        "contraction/separable_simt": ("f32",),
        "contraction/separable_mma": ("f16", "bf16", "3xtf32"),  # not tf32, which rounds values that are computed first
        **IN_EVERY_LANGUAGE,
        "attention/mma": ("f16", "bf16", "tf32", "3xtf32"),
    },
    "sm_75": {"contraction/simt": ("f32", "f16", "f16-tail"), "contraction/mma": ("f16", "i8", "f16-tail")},
    # launches start early here: the harness delays the stores of earlier launches as long as it can
    "sm_90a": {
        "contraction/wgmma": ("f16", "bf16", "tf32", "i8", "f16-tail", "bf16-tail", "tf32-tail"),
        "contraction/mma": ("f16", "tf32", "f16-tail"),
        "contraction/simt": ("f32", "f32-tail"),
        "pool/window": ("f16",),
        "attention/wgmma": ("f16", "bf16"),
    },
    "sm_100": {
        "contraction/tcgen05": ("f16", "bf16", "tf32", "f16-tail", "bf16-tail", "tf32-tail"),
        "attention/tcgen05": ("f16", "bf16"),
    },
    "pocl": {
        "loops": (*FLOATS, "f64", "u8", "i8", "i32", "i64"),
        "loops/transpose": (*FLOATS, "u8"),
        "depthwise": FLOATS,
        "contraction/simt": SIMT,
        "contraction/gemv": SIMT,
        "contraction/mali": (*FLOATS, "i8", "i32"),
        "contraction/winograd": ("f32", "f16"),
        "contraction/stem_simt": FLOATS,
        "contraction/separable_simt": ("f32",),
        **IN_EVERY_LANGUAGE,
        "tile_transform": ("f32", "f16"),
    },
    "gfx906": {"contraction/simt_pairs": ("f16",)},
    "gfx908": {"contraction/amd": ("bf16",)},
    "gfx90a": {"contraction/amd": ("f32", "f16", "bf16", "i8")},
    "gfx942": {"contraction/amd": ("bf16", "i8")},
    "gfx950": {"contraction/amd": ("f16", "bf16", "i8")},
    "gfx1100": {"contraction/amd": ("f16", "bf16", "i8")},
    "gfx1201": {"contraction/amd": ("f16", "bf16", "i8")},
}
HIP_PREFIX = "hip:"  # before the instruction set in the target of a cell of HIP
# HIP runs on the harness, in waves of 64 and of 32. Kernels of the second instruction set of each are those of the first, but
# for matrix instructions and for schedules, which depend on how many units there are
HIP: dict[str, tuple[str, ...]] = {
    "loops": (*FLOATS, "f64", "u8", "i8", "i32", "i64"),
    "loops/transpose": (*FLOATS, "f64", "u8"),
    "depthwise": FLOATS,
    "contraction/simt": (*SIMT, "f32-tail", "f16-tail", "bf16-tail"),
    "contraction/gemv": SIMT,
    "contraction/winograd": ("f32",),
    "contraction/stem_simt": FLOATS,
    **IN_EVERY_LANGUAGE,
}
MATRIX_CORES = {
    "gfx90a": ("f32", "f16", "bf16", "i8"),
    "gfx942": ("f32", "f16", "bf16", "i8"),
    "gfx1100": ("f16", "bf16", "i8"),
    "gfx1201": ("f16", "bf16", "i8"),
}
CELLS |= {
    HIP_PREFIX + arch: {
        "contraction/amd": dtypes,
        "attention/amd": tuple(dtype for dtype in dtypes if dtype != "i8"),
        **HIP,
    }
    for arch, dtypes in MATRIX_CORES.items()
}
# of sets without matrix cores: the dot products of f16, and Winograd's algorithms for f16
CELLS |= {
    HIP_PREFIX + arch: {"contraction/simt_pairs": ("f16", "f16-tail"), "contraction/winograd": ("f32", "f16")}
    for arch in ("gfx906", "gfx1030")
}
# the only instructions that no other set has
CELLS[HIP_PREFIX + "gfx908"] = {"contraction/amd": ("bf16",), "attention/amd": ("bf16",)}
CELLS[HIP_PREFIX + "gfx950"] = {"contraction/amd": ("f16", "bf16", "i8"), "attention/amd": ("f16", "bf16")}
BY_TMA = ("contraction/wgmma", "contraction/tcgen05")  # rows of operands are whole 16 bytes
EXPECTED = {"tf32": "tf32", "3xtf32": "3xtf32"}  # a dtype that names an arithmetic to its ``Contraction.math``
# a dtype that selects a variant of the engine which few schedules use, to the test for it. ``-tail``: with row statistics
WAYS: dict[str, Callable[[Any, Any], int]] = {"f32-rows": row_chunk}

# row statistics. Beside an epsilon of 1, a row of zeros is no scale that makes the errors of all other rows small
TAILS = (partial(with_row_statistics, epsilon=1.0), partial(with_inverse_rms, epsilon=1.0), with_largest)


@dataclass(frozen=True)
class Cell:
    """One engine in one dtype on one target."""

    target: str
    engine: str
    dtype: str

    @property
    def name(self) -> str:
        return f"{self.target} {self.engine} {self.dtype}"

    @property
    def family(self) -> Family:
        return FAMILIES[self.engine]

    @property
    def type(self) -> DType:
        return F32 if self.math != "strict" else DTYPES[self.dtype.partition("-")[0]]

    @property
    def math(self) -> str:
        return EXPECTED.get(self.dtype.partition("-")[0], "strict")

    @property
    def has_tail(self) -> bool:
        return self.dtype.endswith("-tail")


@dataclass(frozen=True, eq=False)
class Case:
    cell: Cell
    number: int
    kernel: Kernel
    schedule: dict[str, int]

    @property
    def name(self) -> str:
        return f"{self.cell.name} {self.number}"


def cells() -> list[Cell]:
    return [Cell(target, engine, dtype) for target, engines in CELLS.items()
            for engine, dtypes in engines.items() for dtype in dtypes]  # fmt: skip


def device_of(target: str) -> str:
    """What runs a target's kernels: ``"cuda"`` and ``"hip:gfx90a"`` on the harness, ``"opencl"`` on PoCL."""
    if target.startswith(HIP_PREFIX):
        return target
    return "cuda" if target in cuda.ARCHITECTURES else "opencl"


def target_of(cell: Cell) -> Target:
    """The target that the case is rendered for. PoCL gets the features of a GPU, so that it gets a GPU's schedules."""
    if cell.target in cuda.ARCHITECTURES:
        return cuda.manifest(cell.target)
    if cell.target == "pocl":
        return opencl.manifest("pocl").with_limits(threads=256, shared_bytes=49152, warp=32)
    if cell.target.startswith(HIP_PREFIX):
        return hip.manifest(cell.target.removeprefix(HIP_PREFIX))
    return opencl.manifest(cell.target)


def features_of(cell: Cell) -> frozenset[str]:
    """The features that decide which engines exist; Mali's engine runs anywhere but is made for one device."""
    found = target_of(cell).features
    return found | {"mali"} if cell.engine == "contraction/mali" else found


def work(kernel: Kernel) -> int:
    """The number of values that the oracle computes."""
    body = kernel.body
    if isinstance(body, Scatter):  # the oracle applies the updates one by one
        return cost(kernel) + SLOW * math.prod(v.extent for v in body.lines + body.updates)
    if not isinstance(body, Attention):
        return cost(kernel)
    rows_, cols = (math.prod(v.extent for v in axes) for axes in (body.batch + body.rows, body.cols))
    return rows_ * cols * sum(math.prod(v.extent for v in axes) for axes in (body.depth, body.values))


@lru_cache(maxsize=128)  # enough for a batch of cases
def problem_of(engine: str, kernel: Kernel) -> Sizes:
    """The engine's sizes of ``kernel``; they take longer to compute than a schedule."""
    return FAMILIES[engine].problem(kernel)


def draw(cell: Cell, number: int, seed: int = 0) -> Case:
    """Case ``number`` of a cell; always the same for the same ``seed``.

    Raises ``LookupError`` if no random kernel suits the engine, which is a fault in ``KERNELS``.
    """
    rng = random.Random(f"{seed} {cell.name} {number}")
    for _ in range(DRAWS):
        kernel = KERNELS[cell.engine.split("/")[0]](rng, cell)
        if any(0 in t.shape for t in kernel.params[kernel.inputs :]) or work(kernel) > LARGEST:
            continue
        if cell.family not in ENGINES[type(kernel.body)] or cell.family.accepts(kernel, features_of(cell)):
            continue
        schedule = drawn(cell, kernel, rng)
        if schedule is not None:
            return Case(cell, number, kernel, schedule)
    raise LookupError(f"{cell.name}: no kernel of {DRAWS} suits it")


def drawn(cell: Cell, kernel: Kernel, rng: random.Random) -> dict[str, int] | None:
    """A legal schedule, preferably with several tiles and steps; ``None`` if too few random ones can run on a CPU."""
    found: list[tuple[int, dict[str, int]]] = []
    problem, limits = problem_of(cell.engine, kernel), target_of(cell).limits
    for _ in range(DRAWS):
        schedule = {p.name: rng.choice(p.choices) for p in cell.family.params}
        if cell.family.reasons(schedule, problem, limits):
            continue
        if cell.dtype in WAYS and not WAYS[cell.dtype](cell.family.schedule(schedule), problem):
            continue
        geometry = cell.family.geometry(cell.family.schedule(schedule), problem)
        groups, items = math.prod(geometry.groups), math.prod(geometry.items)
        opencl_alone = target_of(cell).kind == "opencl" and cell.engine != "contraction/mali" and items < LEAST_ITEMS
        if groups * items > MOST_ITEMS or opencl_alone or written_out(schedule, items) > 512:
            continue
        tiles, steps = groups // schedule.get("splits", 1), steps_of(cell.family, schedule, problem)
        found.append((min(tiles, 4) * min(steps, 4), schedule))
        if len(found) == CHOSEN_OF:
            break
    if not found:
        return None
    return max(found, key=lambda f: f[0])[1] if rng.random() < 0.75 else found[0][1]


def steps_of(family: Family, schedule: Mapping[str, int], problem: Sizes) -> int:
    """The number of steps, in a work-group, of the loop over a contraction's depth or an attention's columns."""
    sizes = family.derive(family.schedule(schedule), problem).numbers
    return next((int(sizes[name]) for name in STEPS if name in sizes), 1)


def written_out(schedule: dict[str, int], items: int) -> float:
    """The number of multiply-adds, or four times that of loads, in the source of `simt` for a work-item."""
    depth = schedule.get("tile_k", 1)
    loaded = depth * (schedule.get("tile_m", 0) + schedule.get("tile_n", 0)) / items
    return max(depth * schedule.get("reg_m", 1) * schedule.get("reg_n", 1), 4 * loaded)


# ---- sizes ----


def awkward(rng: random.Random, most: int) -> int:
    """A size from 1 to ``most``: small, prime, next to a power of two, or a multiple of vector and tile sizes."""
    found = rng.choice(
        (
            rng.randint(1, 5),
            rng.choice(PRIMES),
            (1 << rng.randint(2, 8)) + rng.choice((-1, 0, 1)),
            4 * rng.randint(1, 16),
            8 * rng.randint(1, 24),
            rng.randint(1, most),
        )
    )
    return min(found, most)


def one_in(rng: random.Random, count: int) -> bool:
    return rng.randrange(count) == 0


def part_of(rng: random.Random, kernel: Kernel[K]) -> Kernel[K]:
    """``kernel``, or sometimes ``kernel`` with its first result as a part of a longer one."""
    rank = len(kernel.stores[0].index)
    if rank == 0 or not one_in(rng, 6):
        return kernel
    before, after = rng.choice(((0, 3), (1, 2), (4, 8), (8, 0), (5, 3)))
    return into_part(kernel, rng.randrange(rank), before, after)


# ---- kernels of each family ----


def loops(rng: random.Random, cell: Cell) -> Kernel:
    dtype = cell.type
    if cell.engine == "loops/transpose":
        return turned(rng, dtype)
    kind = rng.randrange(5)
    if kind == 0:
        return transposed(awkward(rng, 90), awkward(rng, 90), dtype)
    if kind == 1:
        return padded(awkward(rng, 200), rng.randint(1, 9), dtype)
    if kind == 2:
        return joined(awkward(rng, 40), *(awkward(rng, 20) for _ in range(rng.randint(2, 4))), dtype=dtype)
    shape = [awkward(rng, 40) for _ in range(rng.randint(1, 3))]
    return part_of(rng, add_relu(*shape, dtype=dtype))


def turned(rng: random.Random, dtype: DType) -> Kernel:
    """Permutes axes so that the innermost one is not innermost any more, and doubles the values."""
    shape = tuple(awkward(rng, 80) for _ in range(rng.choice((2, 3))))
    axes = axes_of(shape)
    order = rng.choice([(1, 0)] if len(shape) == 2 else [(0, 2, 1), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
    read = load(0, tuple(axes[k] for k in order), dtype)
    source = TensorType(dtype, tuple(shape[k] for k in order))
    return part_of(rng, elementwise([call("max", read, 1)], (source,), shape, axes))


def window(rng: random.Random) -> tuple[int, int]:
    return rng.choice([(3, 3), (3, 3), (1, 1), (2, 3), (5, 5), (1, 3), (4, 2), (7, 7)])


def image(rng: random.Random, channels: int, most: int = 16) -> tuple[int, int, int, int]:
    return rng.choice((1, 1, 2, 3)), rng.randint(1, most), rng.randint(1, most), channels


def fits(shape: tuple[int, ...], taps: tuple[int, int], pad: int, dilation: tuple[int, int] = (1, 1)) -> bool:
    return all(e + 2 * pad >= d * (f - 1) + 1 for e, f, d in zip(shape[1:3], taps, dilation, strict=True))


def depthwise_conv(rng: random.Random, cell: Cell) -> Kernel:
    while True:
        taps, shape, pad = window(rng), image(rng, awkward(rng, 40)), rng.randint(0, 3)
        dilation = rng.choice((1, 1, 2)), rng.choice((1, 1, 3))
        if fits(shape, taps, pad, dilation):
            stride = rng.choice((1, 1, 2, 3)), rng.choice((1, 1, 2, 3))
            kernel = depthwise(shape, taps, stride=stride, pad=pad, dilation=dilation, dtype=cell.type)
            return part_of(rng, kernel)


def contraction(rng: random.Random, cell: Cell) -> Kernel:
    if "stem" in cell.engine:
        return few_channels(rng, cell)
    if "separable" in cell.engine:
        return separated(rng, cell)
    kernel = followed(rng, cell) if cell.has_tail else part_of(rng, plain(rng, cell))
    if cell.engine == "contraction/winograd" or one_in(rng, 2):
        kernel = replace(kernel, constants=frozenset({1}))
    return with_math(kernel, cell)


def plain(rng: random.Random, cell: Cell) -> Kernel:
    return convolution(rng, cell) if is_conv(rng, cell) else product(rng, cell)


def followed(rng: random.Random, cell: Cell) -> Kernel:
    """A contraction with statistics of the rows of its results."""
    while True:
        kernel = plain(rng, cell)
        if stores_rows(kernel):
            return rng.choice(TAILS)(kernel)


def stores_rows(kernel: Kernel) -> bool:
    """Whether a contraction's first result is a matrix of floats, so that row statistics can follow."""
    body = kernel.body
    if type(body) is not Contraction or body.tail is not None:
        return False
    type_, index = kernel.params[kernel.stores[0].target], kernel.stores[0].index
    return type_.dtype.is_float and is_matrix(index, type_, body.batch + body.m, body.n)


def separated(rng: random.Random, cell: Cell) -> Kernel:
    """A depthwise and a pointwise convolution as one kernel."""
    while True:
        taps, pad = window(rng), rng.randint(0, 3)
        shape = image(rng, rng.choice((2, 4, 6, 8, 12, 20, 24, 36, 40)))
        dilation = rng.choice((1, 1, 2)), rng.choice((1, 1, 3))
        if taps != (1, 1) and fits(shape, taps, pad, dilation):
            options = {"stride": (rng.choice((1, 1, 2)), rng.choice((1, 1, 2, 3))), "dilation": dilation, "pad": pad}
            return separable(shape, awkward(rng, 70), taps, **options, dtype=cell.type, math=cell.math)


def with_math(kernel: Kernel, cell: Cell) -> Kernel:
    body = kernel.body
    assert isinstance(body, Contraction | Attention)
    return replace(kernel, body=replace(body, math=cell.math))


def is_conv(rng: random.Random, cell: Cell) -> bool:
    if cell.engine == "contraction/winograd":
        return True
    return cell.type.is_float and cell.type.name != "f64" and cell.engine != "contraction/gemv" and not one_in(rng, 3)


def few_channels(rng: random.Random, cell: Cell) -> Kernel:
    """A first layer: an image of few channels, planar or interleaved, of its own type."""
    while True:
        taps, shape, pad = window(rng), image(rng, rng.choice((1, 2, 3, 3, 4, 5, 8)), 24), rng.randint(0, 3)
        if fits(shape, taps, pad):
            source = rng.choice((cell.type, F32))
            options = {"planar": one_in(rng, 2), "source": source, "math": cell.math}
            options |= {"stride": rng.choice((1, 2, 2, 3)), "pad": pad, "dtype": cell.type}
            return part_of(rng, stem(shape, awkward(rng, 70), taps, **options))


def product(rng: random.Random, cell: Cell) -> Kernel:
    dtype, acc = cell.type, F32 if cell.type.is_float else I32
    if dtype.name == "f64":
        acc = dtype
    m, n, k = awkward(rng, 150), awkward(rng, 150), awkward(rng, 250)
    if cell.engine == "contraction/gemv":
        m, n = rng.sample((rng.randint(1, 8), n), 2)
    if cell.has_tail and one_in(rng, 3):  # rows that are too long to be kept
        m, n, k = rng.randint(1, 4), rng.randint(1000, 5000), rng.randint(1, 24)
    if cell.engine in ("contraction/simt", "contraction/gemv", "contraction/mali") and one_in(rng, 40):
        k = 0
    if cell.engine in BY_TMA or (cell.engine == "contraction/mma" and one_in(rng, 2)):
        k = -(-max(k, 1) // 16) * 16
    batch = rng.choice(((), (), (), (2,), (3, 2)))
    a, b = one_in(rng, 4), one_in(rng, 2)
    return matmul(m, n, k, batch=batch, dtype=dtype, acc=acc, a_transposed=a, b_transposed=b)


def convolution(rng: random.Random, cell: Cell) -> Kernel:
    by_eight = cell.engine in (*BY_TMA, "contraction/winograd") or one_in(rng, 2)
    while True:
        channels = rng.choice((8, 16, 24, 40)) if by_eight else rng.choice((1, 3, 4, 5, 6, 12, 13))
        if cell.engine == "contraction/winograd":
            channels = 4 * rng.randint(1, 9)
        taps, shape, pad = window(rng), image(rng, channels, 13), rng.randint(0, 2)
        stride, dilation = rng.choice((1, 1, 2, 3)), rng.choice((1, 1, 1, 2))
        if cell.engine == "contraction/winograd":
            taps, stride, dilation = (3, 3), 1, 1
        if not fits(shape, taps, pad, (dilation, dilation)):
            continue
        columns = awkward(rng, 70)
        if cell.type is F32 and cell.engine != "contraction/winograd" and one_in(rng, 6):
            groups = rng.choice((2, 3, 4))
            grouped = (*shape[:3], groups * rng.choice((1, 3, 4, 8)))
            return grouped_conv(grouped, groups, rng.randint(1, 20), taps, pad=pad)
        nchw = cell.engine not in (*BY_TMA, "contraction/winograd") and one_in(rng, 5)
        options = {"stride": stride, "pad": pad, "dilation": dilation}
        return conv(shape, columns, taps, **options, nchw=nchw, dtype=cell.type)


def rows(rng: random.Random, cell: Cell) -> Kernel:
    dtype = cell.type
    kind = rng.randrange(3) if dtype in (F32, F16, BF16) else 2  # softmax and norms exist for these types only
    inside = one_in(rng, 3)
    if kind == 0:
        shape = [awkward(rng, 30), awkward(rng, 300)] if one_in(rng, 2) else [rng.randint(1, 5), awkward(rng, 90), 8]
        return part_of(rng, softmax(*shape, axis=rng.randrange(len(shape)), dtype=dtype))
    if kind == 1:
        return part_of(rng, layer_norm(awkward(rng, 40), awkward(rng, 300), rows_inside=inside, dtype=dtype))
    op = rng.choice(("sum", "max", "min") if dtype.name != "u8" else ("max", "min"))
    return reduction(op, awkward(rng, 60), awkward(rng, 700), rows_inside=inside, dtype=dtype)


def running(rng: random.Random, cell: Cell) -> Kernel:
    op = rng.choice(("sum", "sum", "max", "min"))
    options = {"rows_inside": one_in(rng, 3), "exclusive": one_in(rng, 2), "reverse": one_in(rng, 2)}
    return scan(op, awkward(rng, 60), awkward(rng, 700), dtype=cell.type, **options)


def changed(rng: random.Random, cell: Cell) -> Kernel:
    """A scatter. Random indices are integers from -9 to 9 and row counts are larger, so few are out of range."""
    op = rng.choice(("none", "add", "max", "min"))
    data = tuple(awkward(rng, 20) for _ in range(rng.choice((1, 2, 3))))
    if one_in(rng, 2):
        axis = rng.randrange(len(data))
        found = tuple(awkward(rng, 9) if k == axis else rng.randint(1, e) for k, e in enumerate(data))
        return scatter(data, found, op, axis=axis, dtype=cell.type)
    return scatter(data, (awkward(rng, 20), rng.randint(1, len(data))), op, dtype=cell.type)


def pool(rng: random.Random, cell: Cell) -> Kernel:
    while True:
        taps, shape = window(rng), image(rng, awkward(rng, 40), 14)
        side, stride = max(taps), rng.choice((1, 1, 2, 3))
        if one_in(rng, 2) or not cell.type.is_float:
            pad = rng.randint(0, side // 2)
            if fits(shape, (side, side), pad):
                return part_of(rng, max_pool(shape, side, stride, pad, cell.type))
            continue
        pad = rng.randint(0, min(taps) // 2)
        if fits(shape, taps, pad):
            return average_pool(shape, taps, stride, pad, dtype=cell.type)


def attend(rng: random.Random, cell: Cell) -> Kernel:
    depth = rng.choice((8, 16, 24, 32, 40, 64, 72, 128)) if one_in(rng, 2) else awkward(rng, 80)
    rows_, cols = awkward(rng, 70), awkward(rng, 130)
    values = depth if one_in(rng, 2) else 2 * awkward(rng, 40)
    if cell.engine in ("attention/mma", "attention/amd"):
        depth, values = -(-depth // 2) * 2, -(-values // 2) * 2
    if cell.engine in ("attention/wgmma", "attention/tcgen05"):  # rows of whole 16 bytes
        depth, values = -(-depth // 8) * 8, -(-values // 8) * 8
    options = {
        "heads": rng.choice((1, 2, 3)),
        "mask": rng.choice(("", "", "add", "bool")),
        "residual": one_in(rng, 3),
        "dtype": cell.type,
    }
    if one_in(rng, 4):
        return with_math(attention(rows_, rows_, depth, depth, merged=True, **options), cell)
    if one_in(rng, 3):
        options["mask"] = ""
        kernel = attention(rows_, max(cols, rows_), depth, values, causal=rng.choice((0, 0, 3)), **options)
        return part_of(rng, with_math(kernel, cell))
    turned_ = cell.engine == "attention/simt" and one_in(rng, 4)
    kernel = attention(rows_, cols, depth, values, group=rng.choice((1, 1, 2)), transposed=turned_, **options)
    return part_of(rng, with_math(kernel, cell))


def transformed(rng: random.Random, cell: Cell) -> Kernel:
    """The pixel transform or the products of a convolution by Winograd's algorithm in three launches."""
    side = rng.choice((0, 1, 2))
    shape = (rng.randint(1, 3), awkward(rng, 12) + 2, awkward(rng, 12) + 2, awkward(rng, 24))
    kernel = part_of(rng, conv(shape, awkward(rng, 24), (3, 3), pad=side, dtype=cell.type))
    kernel = replace(kernel, constants=frozenset({1}))
    pixels, _, products = winograd_steps.kernels(kernel, rng.choice(winograd_steps.possible(kernel)))
    return rng.choice((pixels, products))


KERNELS: dict[str, Callable[[random.Random, Cell], Kernel]] = {
    "loops": loops,
    "depthwise": depthwise_conv,
    "contraction": contraction,
    "rowwise": rows,
    "scan": running,
    "scatter": changed,
    "pool": pool,
    "attention": attend,
    "tile_transform": transformed,
}
