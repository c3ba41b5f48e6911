"""Fuses depthwise separable convolutions: a depthwise convolution and the pointwise one after it become one kernel.

If only a pointwise convolution reads the result of the depthwise one, it does not have to be in memory: a work-group,
or a thread of a CPU, computes the pixels that it multiplies. The contraction's operand becomes the expression of the
depthwise convolution.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from gpucomp.expr.core import Expr, Load, Reduce, Var, cast, index, loads, reduces, substitute, transform
from gpucomp.expr.simplify import simplify
from gpucomp.ir.graph import Value
from gpucomp.ir.size import same, same_shape
from gpucomp.kernel import Contraction, Kernel, Loops, Separable
from gpucomp.kernel.pipeline import Setting
from gpucomp.kernel.rename import canonical
from gpucomp.kernel.splice import Splice
from gpucomp.kernel.step import KernelStep, Step
from gpucomp.lazy_dataclass import dataclass
from gpucomp.refusal import Refusal


@dataclass(frozen=True)
class Pair:
    """Two steps, and the fused step, which replaces ``second``."""

    first: KernelStep
    second: KernelStep
    both: KernelStep


Fused = Callable[
    [KernelStep, KernelStep, int], KernelStep | Refusal
]  # of the first, the second, and where it reads the result


def fuse(steps: Sequence[Step], at: Setting) -> list[Step]:
    """Fuses depthwise separable convolutions where that is expected to be faster.

    Takes  a depthwise convolution and the pointwise convolution that is the only reader of its result
    Gives  one kernel, a contraction whose left operand is the sum over the window
    Leaves both if anything else reads the result between them, if it is an output of the model, or if two are faster
    """

    def pays(pair: Pair) -> bool:
        return at.expected.faster([pair.both.kernel], [pair.first.kernel, pair.second.kernel])

    found: dict[Step, Pair] = {pair.second: pair for pair in pairs(steps, at.graph.outputs) if pays(pair)}
    gone: set[Step] = {pair.first for pair in found.values()}
    return [found[step].both if step in found else step for step in steps if step not in gone]


def pairs(steps: Sequence[Step], outputs: Sequence[Value], fused: Fused | None = None) -> Iterator[Pair]:
    """The pairs of steps that ``fused`` fuses, by default ``fused_kernel``. Only the second reads the first's result."""
    readers = Counter(value for step in steps for value in set(step.inputs))
    writers = Counter(value for step in steps for value in step.outputs)
    kernels = [step for step in steps if isinstance(step, KernelStep)]
    made = {step.outputs[0]: step for step in kernels if len(step.outputs) == 1}
    for step in kernels:
        for place, value in enumerate(step.inputs):
            first = made.get(value)
            alone = readers[value] == writers[value] == 1 and value not in outputs and step.inputs.count(value) == 1
            if first is None or not alone:
                continue
            if both := (fused or fused_kernel)(first, step, place):
                yield Pair(first, step, both)


def fused_kernel(first: KernelStep, second: KernelStep, place: int) -> KernelStep | Refusal:
    """``second`` with the depthwise convolution ``first`` fused into its input ``place``, or why it cannot be fused."""
    above, below = first.kernel, second.kernel
    if reason := _is_depthwise(above):
        return Refusal(reason)
    body = _pointwise(below, place)
    if isinstance(body, Refusal):
        return body
    store = above.stores[0]
    read = next(ld for ld in loads(body.a) if ld.source == place)
    at = _places(store.index, read.index)
    if isinstance(at, Refusal):
        return at
    if above.params[store.target].dtype is not read.dtype or not same_shape(
        above.params[store.target].shape, below.params[place].shape
    ):
        return Refusal("the stored value is read with another type or shape")
    splice = Splice([first, second], handed=first.outputs, leading=second)
    mine, theirs = splice.renumberings
    value = cast(mine(substitute(store.value, at)), read.dtype)
    a = simplify(transform(body.a, lambda node: value if node is read else None))  # a loads nothing else
    new = Separable((), body.m, body.n, body.k, a, theirs(body.b), body.acc, body.math)
    # the axes of the sum over the window may have the same names as axes of the contraction
    kernel = canonical(splice.kernel("separable", new, theirs.stores(below.stores)))
    return splice.step(kernel, second.name.replace(below.family, "separable"), second.why)


def _is_depthwise(kernel: Kernel) -> str:
    """Why ``kernel`` is not a sum over a window with one result per element; empty if it may be one."""
    if not isinstance(kernel.body, Loops) or len(kernel.stores) != 1 or kernel.outputs != 1:
        return "it is not a depthwise convolution with one result"
    sums = reduces(kernel.stores[0].value)
    if (
        len(sums) != 1
        or sums[0].op != "sum"
        or any(isinstance(e, Reduce) for ld in loads(sums[0].body) for e in ld.index)
    ):
        return "it is not one sum over a window"
    if not any(
        e.free & set(sums[0].axes) and e.free - set(sums[0].axes) for ld in loads(sums[0].body) for e in ld.index
    ):
        return "its window does not slide"
    if any(isinstance(n, Load) for e in kernel.stores[0].index for n in loads(e)):
        return "the index of its store is read from memory"
    return ""


def _pointwise(kernel: Kernel, place: int) -> Contraction | Refusal:
    """The contraction over the channels of one image, the input ``place``; or why ``kernel`` is not one."""
    body = kernel.body
    if type(body) is not Contraction or body.batch or len(body.k) != 1:
        return Refusal("it is not a pointwise convolution")
    reads = [ld for e in kernel.expressions() for ld in loads(e) if ld.source == place]
    if len(set(reads)) != 1 or reads[0] not in loads(body.a) or any(ld.source == place for ld in loads(body.b)):
        return Refusal("the result is read in several places")
    if [ld for ld in loads(body.a) if ld.source != place]:
        return Refusal("its operand also reads other arrays")
    if any(ld.source == place for s in kernel.stores for e in (*s.index, s.value) for ld in loads(e)):
        return Refusal("its epilogue reads the result too")
    if [e for e in reads[0].index if isinstance(e, Var)] != [*body.m, *body.k]:
        return Refusal("pixels are not read in order, with channels last")
    return body


def _places(stored: Sequence[Expr], read: Sequence[Expr]) -> dict[Expr, Expr] | Refusal:
    """The axes of the store in terms of those of the load, if each element is read at the index where it is stored."""
    at: dict[Expr, Expr] = {}
    for here, there in zip(stored, read, strict=True):
        if isinstance(here, Var) and isinstance(there, Var) and same(here.extent, there.extent) and here not in at:
            at[here] = there
        elif here is not index(0) or there is not index(0):
            return Refusal("elements are read at other indices than they are stored")
    return at
