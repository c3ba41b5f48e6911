"""Turns an ``ops.Repeat`` into a loop over the kernels of its body. Decides which states are updated in place.

A state has one memory for the whole loop. The kernel that computes the new state writes to it if nothing of the step reads
the old state later or at another place. Otherwise it writes to memory of its own, and a copy ends the step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, count, islice

from gpucomp import ops
from gpucomp.errors import UnsupportedError
from gpucomp.expr.core import Load, walk
from gpucomp.expr.simplify import flatten
from gpucomp.ir.graph import Constant, Graph, Input, Node, Value, input_value
from gpucomp.kernel.body import Loops
from gpucomp.kernel.grouping import MAX_STORES
from gpucomp.kernel.ir import Kernel
from gpucomp.kernel.partition import partition
from gpucomp.kernel.step import HostStep, KernelStep, RepeatStep, Step

LowerBody = Callable[[Graph], Sequence[Step]]


def expanded(steps: Sequence[Step], lower: LowerBody) -> list[Step]:
    """``steps`` with the kernels of the bodies of loops. ``lower`` gives those of a body."""
    return [part for step in steps for part in (_loop(step, lower) if _is_loop(step) else (step,))]


def apart(steps: Sequence[Step]) -> list[Step]:
    """The steps that are no part of a loop."""
    begins = {v for step in steps if isinstance(step, RepeatStep) for v in step.outputs}
    rest, found = iter(steps), []
    for step in rest:
        if isinstance(step, RepeatStep):
            deque(islice(rest, step.length), 0)
        elif begins.isdisjoint(step.outputs):
            found.append(step)
    return found


def _is_loop(step: Step) -> bool:
    return isinstance(step, HostStep) and step.node.op is ops.Repeat


def separate(body: Graph) -> Graph:
    """``body`` with outputs that kernels compute, each for itself: others are copied."""
    outputs: list[Value] = []
    for value in body.outputs:
        shared = value in outputs or value.op in (Input, Constant)
        outputs.append(ops.Copy(value) if shared else value)
    return body.with_outputs(outputs)


def _loop(step: Step, lower: LowerBody) -> Iterator[Step]:
    """The loop of an ``ops.Repeat``. A first step that differs is a loop before the others, which works on the same memory."""
    node, place = step.nodes[0], step.name.partition("_")[0]
    first, total = node.attrs.get("first"), node.attrs["count"]
    bodies = [node.attrs["body"]] if first is None else [first, node.attrs["body"]]
    loops = [_Body(node, body, lower) for body in map(separate, bodies)]
    initial: dict[Value, list[Value]] = {}
    for k in range(node.attrs["states"]):
        if first is None or loops[0].reads(k):  # a first step is always run, and writes all states
            initial.setdefault(node.inputs[k], []).append(node[k])
    for k, (value, targets) in enumerate(initial.items()):
        yield from _copies(f"{place}_begin{k}", value, targets)
    numbers = count()
    for before, loop in enumerate(loops):
        inside, bound = loop.steps(place)
        is_last = loop is loops[-1]
        steps, after = (total - before, 0) if is_last else (1, total - 1)
        name = f"{place}_rest" if before else step.name
        yield RepeatStep(name, node, step.why, steps, len(inside), bound, before, after)
        yield from (replace(s, name=f"{place}_{next(numbers):02}_{s.name.partition('_')[2]}") for s in inside)


class _Body:
    """The steps of a loop's body, bound to the memory of the operands and results of ``node``."""

    def __init__(self, node: Node, body: Graph, lower: LowerBody) -> None:
        self._node, self._body = node, body
        self._inside = list(lower(body))
        if unfit := next((s for s in self._inside if not isinstance(s, KernelStep)), None):
            raise UnsupportedError(
                f"{unfit.nodes[0].op} in a loop runs on the host, which is not supported", code="GPC4007"
            )

    def reads(self, state: int) -> bool:
        return any(self._body.inputs[state] in step.inputs for step in self._inside)

    def steps(self, place: str) -> tuple[list[Step], dict[Value, tuple[Value, int]]]:
        """The steps, with copies of states that are not updated in place, and the memory of the body's values."""
        node, body, states = self._node, self._body, self._node.attrs["states"]
        scans, inside = node.attrs["scans"], self._inside.copy()
        bound: dict[Value, tuple[Value, int]] = {}
        for k, value in enumerate(body.inputs):
            if k < states:
                bound[value] = node[k], 0
            elif k < states + scans:
                backward = node.attrs["reverse"][k - states]
                bound[value] = node.inputs[k], -value.type.nbytes if backward else value.type.nbytes
            else:
                bound[value] = node.inputs[k], 0
        for k, value in enumerate(body.outputs[states:]):
            backward = node.attrs["out_reverse"][k]
            bound[value] = node[states + k], -value.type.nbytes if backward else value.type.nbytes
        for k, (old, new) in enumerate(zip(body.inputs[:states], body.outputs[:states], strict=True)):
            if is_in_place(inside, old, new):
                bound[new] = node[k], 0
            else:
                inside += _copies(f"{place}_state{k}", new, [node[k]])
        return inside, bound


def _copies(name: str, source: Value, targets: Sequence[Value]) -> Iterator[KernelStep]:
    """Steps that copy ``source`` to the memory of each of ``targets``: one for two, as zeros are for two states."""
    x = input_value("x", source.type)
    for number in range(0, len(targets), MAX_STORES):
        some = targets[number : number + MAX_STORES]
        copies = list(accumulate(some, lambda before, _: ops.Copy(before), initial=x))[1:]
        (step,) = partition(Graph((x,), tuple(copies)))
        assert isinstance(step, KernelStep)
        written = tuple(some[copies.index(v)] for v in step.outputs)
        yield replace(step, name=f"{name}_{number}", inputs=(source,), outputs=written)


def is_in_place(steps: Sequence[Step], old: Value, new: Value) -> bool:
    """Whether ``new`` can be written over ``old``, of which no step reads anything afterwards.

    The steps that read ``old`` are over when the first one writes, or this one reads each element only to write it.
    """
    writers = [n for n, step in enumerate(steps) if new in step.outputs]
    last = max((n for n, step in enumerate(steps) if old in step.inputs), default=-1)
    if not writers or last > writers[0]:
        return False
    return last < writers[0] or (len(writers) == 1 and _pointwise(steps[last], old, new))


def _pointwise(step: Step, old: Value, new: Value) -> bool:
    """Whether the kernel of ``step`` reads the elements of ``old`` only where it writes those of ``new``.

    A kernel of loops reads everything that it needs for a point before it writes the first of its results.
    """
    if not isinstance(step, KernelStep) or not isinstance(step.kernel.body, Loops):
        return False
    kernel: Kernel = step.kernel
    sources = {k for k, value in enumerate(step.inputs) if value is old}
    target = kernel.inputs + step.outputs.index(new)
    places = [flatten(s.index, kernel.params[target].shape) for s in kernel.stores if s.target == target]
    read = {
        flatten(n.index, kernel.params[n.source].shape)
        for expr in kernel.expressions()
        for n in walk(expr)
        if isinstance(n, Load) and n.source in sources
    }
    same = kernel.params[target].size == old.type.size and kernel.params[target].dtype is old.type.dtype
    return same and len(places) == 1 and read == set(places)
