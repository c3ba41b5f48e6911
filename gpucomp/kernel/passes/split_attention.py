"""Splits attention on a CPU into three kernels if that is faster: scores, softmax, and the product with the values.

One kernel keeps the scores in a core's caches, which is faster if there are many. But it multiplies in f32, and the
lanes of its vectors are rows. Two contractions with a softmax between them are faster for few rows, and for factors
that the processor can multiply in 16 bits.

The pass runs after partition and precision because the engines can then estimate the time of each kernel. The values
between the kernels are planned like any temporary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from gpucomp.device.target import Target
from gpucomp.expr.core import Cast, Expr, Var, call, cast, load, loads, reduce, substitute, var
from gpucomp.ir.graph import Value
from gpucomp.ir.types import BF16, F16, F32, TensorType
from gpucomp.kernel import Attention, Contraction, Kernel, Store
from gpucomp.kernel.example import example_of
from gpucomp.kernel.ir import kernel_of
from gpucomp.kernel.pipeline import Expected, Setting
from gpucomp.kernel.recognise import Composed, recognise
from gpucomp.kernel.splice import parameters
from gpucomp.kernel.step import BETWEEN, KernelStep, Step, is_step_of
from gpucomp.lazy_dataclass import dataclass

# the cost of three kernels, besides the engines' estimates for the two products. In cycles of a core, measured on
# Sapphire Rapids
GHZ = 3.0
THREADS = 2  # the number of threads that the engines' estimates are for
WEIGHT = 15.0  # per vector of scores in the softmax: two passes and an exponential
ROW = 20.0  # per row of scores, in addition
PRODUCT = 10.0  # per vector of products, for a product that is not a contraction
COPY = 3.0  # per vector of keys or values that is copied for a product, in addition to the estimate
BYTE = 0.02  # per byte of scores and weights read from or written to the second-level cache
FAR_BYTE = 0.2  # per byte of scores, weights, keys and values past the second-level cache
PASSES = 4  # over scores and weights: each is written and read
LAUNCHES_US = 2.0  # microseconds for two more launches
FEW = 4  # fewer columns than this are too few for register blocks


@dataclass(frozen=True)
class Piece:
    """One of the three kernels. ``params`` index the attention's parameters, followed by the scores and the weights."""

    kernel: Kernel
    params: tuple[int, ...]


def split(steps: Sequence[Step], at: Setting) -> list[Step]:
    """Splits attention into three kernels where that is expected to be faster.

    Takes  a kernel ``softmax(q k) v``
    Gives  three kernels: the scores ``q k``, their softmax, and its product with ``v``. The values between them are
           temporaries
    Leaves an attention that is expected to be faster as one kernel
    """
    target, expected = at.target, at.expected
    found: list[Step] = []
    chosen: dict[str, bool] = {}
    for step in steps:
        if not is_step_of(step, Attention):
            found.append(step)
            continue
        kernel = step.kernel
        if kernel.digest not in chosen:
            example = kernel_of(example_of(kernel), Attention)
            chosen[kernel.digest] = three_us(example, target, expected) < one_us(example, target, expected)
        found += in_three(step) if chosen[kernel.digest] else [step]
    return found


def one_us(kernel: Kernel, target: Target, expected: Expected) -> float:
    """The estimated time of an attention as one kernel on two threads, in microseconds."""
    return _us(kernel, target, expected)


def three_us(kernel: Kernel[Attention], target: Target, expected: Expected) -> float:
    """The estimated time of an attention as three kernels on two threads, in microseconds."""
    first, _, last = pieces(kernel)
    lanes, cache = target.limits.vector_bytes / 4, target.limits.cache_bytes
    body, scores = kernel.body, first.kernel.params[-1]
    batch, cols = _count(body.batch), _count(body.cols)
    read = [batch * cols * _count(axes) for axes in (body.depth, body.values)]
    cycles = scores.size / cols * (math.ceil(cols / lanes) * WEIGHT + ROW)
    cycles += PASSES * scores.nbytes * (BYTE if scores.nbytes <= cache else FAR_BYTE)
    cycles += sum(size / lanes * COPY + (4 * size * FAR_BYTE if 4 * size > cache else 0.0) for size in read)
    products = _us(first.kernel, target, expected) + _us(last.kernel, target, expected)
    return products + cycles / THREADS / GHZ / 1e3 + LAUNCHES_US


def _count(axes: Sequence[Var]) -> int:
    return math.prod(v.extent for v in axes)


def _us(kernel: Kernel, target: Target, expected: Expected) -> float:
    """The engine's estimate for ``kernel``; for a few rows or columns, the time to read the larger operand."""
    estimated = None if _is_thin(kernel) else expected.estimated_us(kernel)
    if estimated is not None:
        return estimated
    largest = max(t.size for t in kernel.params)
    return largest / (target.limits.vector_bytes / 4) * PRODUCT / THREADS / GHZ / 1e3


def _is_thin(kernel: Kernel) -> bool:
    """Whether a contraction has too few rows or columns for register blocks."""
    body = kernel.body
    if not isinstance(body, Contraction):
        return False
    return _count(body.m) == 1 or _count(body.n) < FEW


def pieces(kernel: Kernel[Attention]) -> tuple[Piece, Piece, Piece]:
    """The three kernels of the attention ``kernel``. Weights have the 16-bit type of the values, if there is one."""
    body = kernel.body
    at, result = (*body.batch, *body.rows, *body.cols), (*body.batch, *body.rows, *body.values)
    shape, count = tuple(v.extent for v in at), len(kernel.params)
    narrow = body.v.value.dtype if isinstance(body.v, Cast) else F32
    stored = narrow if narrow in (BF16, F16) else F32
    more = replace(kernel, params=(*kernel.params, TensorType(F32, shape), TensorType(stored, shape)))

    dot = reduce("sum", body.depth, body.q * body.k)
    score = load(count, at, F32)
    axes = tuple(var(f"{axis.name}_", axis.extent) for axis in body.cols)  # reduced over, unlike the column ``cols``
    every: dict[Expr, Expr] = dict(zip(body.cols, axes, strict=True))
    power = call("exp", score - reduce("max", axes, substitute(score, every)))
    weight = cast(power / reduce("sum", axes, substitute(power, every)), stored)
    mean = reduce("sum", body.cols, cast(load(count + 1, at, stored), F32) * body.v)
    last = tuple(Store(s.target, s.index, substitute(s.value, {body.acc: mean})) for s in kernel.stores)
    return (
        _piece(more, at, (Store(count, at, substitute(body.score, {body.dot: dot})),), "scores"),
        _piece(more, at, (Store(count + 1, at, weight),), "weights"),
        _piece(more, result, last, "means"),
    )


def _piece(kernel: Kernel, domain: tuple[Var, ...], stores: Sequence[Store], what: str) -> Piece:
    exprs = [e for s in stores for e in (*s.index, s.value)]
    read = sorted({ld.source for e in exprs for ld in loads(e)})
    written = list(dict.fromkeys(s.target for s in stores))
    new = parameters(kernel, [*read, *written])
    found = recognise(Composed(new.types, len(written), domain, new.stores(stores)), f"{what} of {kernel.label}")
    return Piece(replace(found, constants=new.constants), (*read, *written))


def in_three(step: KernelStep[Attention]) -> list[Step]:
    """The attention ``step`` as three steps."""
    scores, weights, means = pieces(step.kernel)
    between = (BETWEEN(type=scores.kernel.params[-1]), BETWEEN(type=weights.kernel.params[-1]))
    values: tuple[Value, ...] = (*step.inputs, *step.outputs, *between)

    def inputs(piece: Piece) -> tuple[Value, ...]:
        return tuple(values[k] for k in piece.params[: piece.kernel.inputs])

    return [
        KernelStep(f"{step.name}_scores", scores.kernel, inputs(scores), between[:1], (), "a softmax is next"),
        KernelStep(
            f"{step.name}_weights",
            weights.kernel,
            inputs(weights),
            between[1:],
            (),
            "a product with the values is next",
        ),
        KernelStep(step.name, means.kernel, inputs(means), step.outputs, step.nodes, step.why, step.prologue),
    ]
