"""The parameters of the contraction family's `mali` engine: register tiles alone, no local memory, no barriers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from gpucomp.device.limits import Limits
from gpucomp.device.lockstep import least
from gpucomp.ir.types import F16, F32, I32
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.forms.plain_loads import depth_axes, is_dot, plain_type
from gpucomp.kernel.forms.row_statistics import no_tail
from gpucomp.kernel.forms.stores import unaligned_store_width
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.packing import Digit, Packing
from gpucomp.kernel.passes.pack_weights import packable
from gpucomp.kernel.sizes import Sizes, Tunables, tunable
from gpucomp.kernels_templates.contraction.mali.emit import emit_mali
from gpucomp.schedule.space import Family, Work, remembered

SIZES = (1, 2, 4, 8, 16, 32, 64)


class MaliSchedule(Tunables):
    m0: int = tunable((1, 2, 3, 4, 5, 6, 8), "rows of the result per work-item")
    n0: int = tunable((1, 2, 4, 8, 16), "columns of the result per work-item")
    k0: int = tunable((1, 2, 4, 8, 16), "depth of one step, whose loads and products are written out")
    image: int = tunable(
        (0, 1), "1: packed weights come through an image, four to a pixel, and so through another cache"
    )
    lws_x: int = tunable(SIZES, "work-items of a work-group along the columns")
    lws_y: int = tunable(SIZES, "work-items of a work-group along the rows")


class MaliProblem(Sizes):
    """Sizes of the contraction. The depth is ``taps`` runs of ``run`` steps along its innermost axis."""

    batch: int
    m: int
    n: int
    k: int
    taps: int
    run: int
    acc_bytes: int  # of one sum in a register: 2 where sums are halves
    b_constant: int  # 1: the right operand can be packed when the model is compiled
    b_batched: int  # 1: each matrix of the batch has a right operand of its own
    dot: int  # 1: both operands are bytes and four of them in a row share a tap
    b_pixels: int  # 1: images can hold the right operand's elements
    out_wide: int  # columns that one store may take


class MaliSizes(Sizes):
    """What follows from a schedule and a problem, for the template."""

    blocks_m: int  # blocks_m x blocks_n work-items have something to compute
    blocks_n: int
    whole_m: int  # 1: there are no other work-items along the rows
    whole_n: int
    full: int  # steps of a run, in whole steps of ``k0``
    rest: int  # steps that these leave over
    vector: int  # columns of a vector of sums
    store: int  # columns that a store takes


MAX_ITEMS = (1 << 31) - 1
PIXEL = 4  # elements
DOT = 4  # bytes along the depth that one dot product takes


def problem(kernel: Kernel[Contraction]) -> MaliProblem:
    body = kernel.body
    batch, m, n, k = (math.prod(v.extent for v in axes) for axes in (body.batch, body.m, body.n, body.k))
    outer, inner = depth_axes(body)
    run = inner.extent if inner is not None else 1
    return MaliProblem(
        batch=batch,
        m=m,
        n=n,
        k=k,
        taps=math.prod(v.extent for v in outer),
        run=run,
        acc_bytes=2 if body.acc.dtype is F16 else 4,
        b_constant=int(packable(kernel, "b")),
        b_batched=int(any(v in body.b.free for v in body.batch)),
        dot=int(is_dot(body) and run % DOT == 0),
        b_pixels=int(plain_type(body.b) in (F16, F32) and body.acc.dtype is not I32),
        out_wide=unaligned_store_width(kernel),
    )


def accepts(kernel: Kernel[Contraction], features: frozenset[str]) -> str:
    body = kernel.body
    if reason := no_tail(kernel):
        return reason
    if "mali" not in features:
        return "it is made for GPUs without local memory"
    if body.acc.dtype not in (F16, F32, I32):
        return f"its sums are f16, f32 or i32, not {body.acc.dtype}"
    if body.math != "strict":
        return f"it has no {body.math}"
    return ""


def registers(s: MaliSchedule, p: MaliProblem) -> int:
    """32-bit registers of the sums and of one step's operands: f32 5x4x4 takes 20 + 20 + 16 = 56."""
    return -(-p.acc_bytes * (s.m0 * s.n0 + s.k0 * (s.m0 + s.n0)) // 4)


def objections(s: MaliSchedule, p: MaliProblem, limits: Limits) -> Iterator[str]:
    if (items := s.lws_x * s.lws_y) > limits.threads:
        yield f"{items} work-items per work-group, the device allows {limits.threads}"
    if (used := registers(s, p)) > limits.registers:
        yield f"about {used} registers per work-item, the device has {limits.registers}"
    if s.image:
        yield from _image_objections(s, p, limits)
    if math.prod(geometry(s, p).groups) * items > MAX_ITEMS:
        yield f"more than {MAX_ITEMS} work-items, which are numbered with 32 bits"


def _image_objections(s: MaliSchedule, p: MaliProblem, limits: Limits) -> Iterator[str]:
    """An image's row is a block of columns over the whole depth: see ``packing``."""
    if not limits.image_width:
        yield "image=1: the device shows no buffer as an image"
    elif not p.b_constant or not p.b_pixels:
        yield "image=1: only constant weights of f32 or f16 are packed as an image"
    elif s.n0 % PIXEL:
        yield f"image=1: n0={s.n0} is no multiple of the {PIXEL} elements of a pixel"
    else:
        width, height = p.k * s.n0 // PIXEL, -(-p.n // s.n0) * (p.batch if p.b_batched else 1)
        if max(width, height) > limits.image_width:
            yield f"image=1: {width} x {height} pixels, the device has images of {limits.image_width}"


@remembered
def derive(s: MaliSchedule, p: MaliProblem) -> MaliSizes:
    blocks_n, blocks_m = -(-p.n // s.n0), -(-p.m // s.m0)
    return MaliSizes(
        blocks_m=blocks_m,
        blocks_n=blocks_n,
        whole_m=int(blocks_m % s.lws_y == 0),
        whole_n=int(blocks_n % s.lws_x == 0),
        full=p.run // s.k0 * s.k0,
        rest=p.run % s.k0,
        vector=math.gcd(s.n0, 16 // p.acc_bytes),
        store=math.gcd(s.n0, p.out_wide),
    )


def geometry(s: MaliSchedule, p: MaliProblem) -> Geometry:
    groups = (-(-p.n // (s.n0 * s.lws_x)), -(-p.m // (s.m0 * s.lws_y)), p.batch)
    return Geometry(groups, (s.lws_x, s.lws_y, 1))


def packing(kernel: Kernel, s: MaliSchedule, p: MaliProblem) -> Packing | None:
    """Columns by n0, one block of them after the other, depth inside: what a work-item reads is one piece of memory.

    Bytes for dot products stand four deep in a column before the next column follows.
    """
    if not p.b_constant or 0 in (p.n, p.k):
        return None
    batch = [Digit("batch", 1, p.batch)] if p.b_batched else []
    blocks, columns = Digit("span", s.n0, -(-p.n // s.n0)), Digit("span", 1, s.n0)
    deep = [Digit("k", DOT, p.k // DOT), columns, Digit("k", 1, DOT)]
    digits = [*batch, blocks, *(deep if p.dot and s.k0 % DOT == 0 else [Digit("k", 1, p.k), columns])]
    long = tuple(d for d in digits if d.extent > 1)
    return Packing("b", long) if long else None


# (m, n, k) -> (m0, n0, k0), by the bytes of a sum: the reference tables of ARM Compute Library for Valhall, each of
# their ranges as a point or two
PRIORS = {
    4: (
        ((1, 1000, 1000), (1, 4, 4)),
        ((1, 64, 4096), (1, 2, 16)),
        ((16, 16, 64), (2, 2, 4)),
        ((49, 512, 512), (2, 4, 4)),
        ((49, 64, 64), (1, 1, 16)),
        ((784, 2, 64), (1, 2, 16)),
        ((784, 4, 64), (1, 4, 8)),
        ((196, 256, 1024), (4, 4, 4)),
        ((3136, 64, 576), (4, 4, 4)),
        ((50176, 32, 32), (5, 4, 4)),
    ),
    2: (
        ((1, 1000, 1000), (1, 8, 8)),
        ((1, 64, 4096), (1, 4, 8)),
        ((784, 2, 64), (2, 2, 16)),
        ((784, 8, 64), (2, 8, 8)),
        ((16, 16, 64), (2, 4, 4)),
        ((196, 512, 512), (5, 4, 4)),
        ((369664, 32, 32), (5, 4, 4)),
        ((784, 128, 1152), (5, 8, 4)),
        ((150000, 64, 64), (6, 8, 4)),
        ((1024, 1024, 1024), (4, 8, 4)),
    ),
}
GROUP = 64  # work-items of a group, in four columns of sixteen where there are as many


def default(p: MaliProblem, limits: Limits) -> MaliSchedule:
    """The tile of the nearest problem in the tables, cut down to the result, and a work-group about as large as it."""

    def distance(point: tuple[int, int, int]) -> float:
        return sum(abs(math.log2(max(1, a) / b)) for a, b in zip((p.m, p.n, p.k), point, strict=True))

    _, (m0, n0, k0) = min(PRIORS[p.acc_bytes], key=lambda prior: distance(prior[0]))
    while n0 > 1 and (n0 >= 2 * p.n or (p.n % n0 and not p.b_constant)):
        n0 //= 2
    while m0 not in MaliSchedule.choices("m0") or m0 > max(1, p.m):
        m0 -= 1
    if p.dot:
        k0 = max(k0, DOT)
    while k0 > 1 and k0 > p.run:
        k0 //= 2
    lws_x, lws_y = _work_group(-(-p.n // n0), -(-p.m // m0), min(GROUP, limits.threads))
    schedule = MaliSchedule(m0=m0, n0=n0, k0=k0, image=0, lws_x=lws_x, lws_y=lws_y)
    while schedule.k0 > 1 and registers(schedule, p) > limits.registers:
        schedule = schedule.replace(k0=schedule.k0 // 2)
    return schedule


def _work_group(columns: int, rows: int, items: int) -> tuple[int, int]:
    """(``lws_x``, ``lws_y``) of at most so many ``items``."""
    x = y = 1
    while x < 4 and x < columns and 2 * x <= items:
        x *= 2
    while y < rows and 2 * x * y <= items:
        y *= 2
    while x < columns and 2 * x * y <= items:
        x *= 2
    return x, y


WARP, ACCESS_BYTES, LINE_BYTES = 16, 16, 64
LINE_TRAFFIC = 128  # of the model's shared memory: a unit reads one line of its first cache a cycle


def work(s: MaliSchedule, p: MaliProblem) -> Work:
    """A work-group's sums. A warp's load touches a line of memory for each row, or block of columns, that its work-items
    read at once; a line holds several steps of a row, so memory answers ahead of them."""
    items = s.lws_x * s.lws_y
    across = least(s.lws_x, WARP)
    down = least(s.lws_y, -(-WARP // across))
    steps = p.taps * -(-p.run // s.k0)
    loads_a, loads_b = s.m0 * -(-p.acc_bytes * s.k0 // ACCESS_BYTES), -(-p.acc_bytes * s.k0 * s.n0 // ACCESS_BYTES)
    warps = -(-items // WARP)
    rows, columns = s.m0 * s.lws_y, s.n0 * s.lws_x
    return Work(
        macs=warps * WARP * s.m0 * s.n0 * p.k,
        cache_bytes=(rows + columns) * p.k * p.acc_bytes,
        steps=steps,
        out_bytes=rows * columns * p.acc_bytes,
        ahead=LINE_BYTES / least(LINE_BYTES, p.acc_bytes * s.k0),
        shared_traffic=warps * steps * (loads_a * down + loads_b * across) * LINE_TRAFFIC,
        instructions=warps * steps * (s.m0 * s.n0 * s.k0 + loads_a + loads_b) * WARP / 32,
        chains=s.m0 * s.n0 / 2,  # a warp is half of the model's
    )


def focus(p: MaliProblem, limits: Limits) -> Mapping[str, Sequence[int]]:
    """Tiles near those of the tables, work-groups of 16 to 128."""
    return {
        "m0": (1,) if p.m == 1 else (2, 4, 5, 6),
        "n0": tuple(n for n in (1, 2, 4, 8) if n < 2 * p.n),
        "k0": (4, 8) if p.dot else (2, 4, 8),
        "image": (0, 1) if limits.image_width else (0,),
        "lws_x": (2, 4, 8),
        "lws_y": (1,) if p.m == 1 else (4, 8, 16),
    }


FAMILY = Family(
    "contraction",
    Contraction,
    MaliSchedule,
    problem,
    objections,
    derive,
    geometry,
    default,
    "mali",
    accepts=accepts,
    work=work,
    packing=packing,
    registers=registers,
    focus=focus,
    emit=emit_mali,
    template="contraction/mali/kernel.j2",
)
