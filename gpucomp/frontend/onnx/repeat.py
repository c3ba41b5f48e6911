"""Builds ``ops.Repeat``: a body is translated once, for values that stand for any step, and then closed over the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gpucomp import ops
from gpucomp.errors import UnsupportedError
from gpucomp.ir import Constant, Graph, Input, Node, Value, input_value, topological
from gpucomp.ir.size import Size, same_shape
from gpucomp.ir.types import STRING, TensorType
from gpucomp.ops.random import RANDOM

UNROLLED = 4  # steps that are written out: without copies of the initial state, runs took 1 to 5 % less time
MAX_COUNT = (1 << 31) - 1


def is_loop(count: int | Size) -> bool:
    """Whether so many steps become a loop."""
    return isinstance(count, Size) or count > UNROLLED


class Steps:
    """A loop under construction. ``state`` and ``slices`` are what a step reads; ``closed`` takes what it gives.

    states    the initial values
    scanned   operands of which each step reads a slice along axis 0, and whether the last slice is first
    """

    def __init__(self, count: int | Size, states: Sequence[Value], scanned: Sequence[tuple[Value, bool]]) -> None:
        if not isinstance(count, Size) and count > MAX_COUNT:
            raise UnsupportedError(f"a loop of more than {MAX_COUNT} steps is not supported", code="GPC4007")
        self.count, self.states, self.scanned = count, tuple(states), tuple(scanned)
        self.state = [input_value(f"state{k}", v.type) for k, v in enumerate(self.states)]
        self.slices = [
            input_value(f"slice{k}", TensorType(v.type.dtype, v.shape[1:])) for k, (v, _) in enumerate(self.scanned)
        ]

    def closed(
        self,
        after: Sequence[Value],
        rows: Sequence[Value],
        reverse: Sequence[bool] = (),
        outside: Iterable[Value] = (),
    ) -> list[Value] | None:
        """The last states and the stacks of ``rows``; the last row is first in those that are ``reverse``.

        ``outside`` are values that the body only reads. ``None`` if no kernels can run the body, if a state changes its type,
        or if the body draws random numbers, which differ from step to step.
        """
        if not all(isinstance(v, Value) for v in (*after, *rows)) or not all(map(_alike, self.state, after)):
            return None
        own = topological((v.node for v in (*after, *rows)), {v.node for v in outside})
        if any(node.op in RANDOM for node in own):
            return None
        same = {old: first for old, new, first in zip(self.state, after, self.states, strict=True) if old is new}
        carried = [k for k, old in enumerate(self.state) if old not in same]
        closure = _Closure({*self.state, *self.slices} - same.keys(), same)
        outputs = [closure.inner(v) for v in (*(after[k] for k in carried), *rows)]
        if not all(map(_is_taken, topological(v.node for v in outputs))):
            return None
        read = {v.node for v in closure.read}
        scanned = [k for k, v in enumerate(self.slices) if v.node in read]
        results: list[Value] = []
        if outputs:
            node = ops.Repeat.node(
                *(self.states[k] for k in carried),
                *(self.scanned[k][0] for k in scanned),
                *closure.outer,
                body=Graph(
                    (*(self.state[k] for k in carried), *(self.slices[k] for k in scanned), *closure.outer.values()),
                    tuple(outputs),
                    name="step",
                ),
                count=self.count,
                states=len(carried),
                scans=len(scanned),
                reverse=tuple(self.scanned[k][1] for k in scanned),
                out_reverse=tuple(reverse) or (False,) * len(rows),
            )
            results = list(node.values)
        last = {k: results[position] for position, k in enumerate(carried)}
        return [*(last.get(k, first) for k, first in enumerate(self.states)), *results[len(carried) :]]


def _alike(before: Value, after: Value) -> bool:
    return before.type.dtype is after.type.dtype and same_shape(before.shape, after.shape)


def _is_taken(node: Node) -> bool:
    types = (*node.types, *(v.type for v in node.inputs))
    return (
        (node.op in (Constant, Input) or node.op.algorithm is not None)
        and node.op is not ops.Repeat  # loops do not nest
        and all(t.dtype is not STRING for t in types)
    )


class _Closure:
    """Values in terms of ``given``, of constants, and of inputs for the values outside, which ``outer`` maps.

    What depends on no input of the model stays inside, as weights do. What depends on none of ``given`` is computed
    once, outside.
    """

    def __init__(self, given: set[Value], same: dict[Value, Value]) -> None:
        self.outer: dict[Value, Value] = {}
        self.read: set[Value] = set()
        self._given, self._same = given, same
        self._kind: dict[Node, str] = {}  # "constant", "outside" or "inside"
        self._new: dict[Value, Value] = {}

    def inner(self, value: Value) -> Value:
        order = topological([value.node])
        for node in order:
            self._kind.setdefault(node, self._kind_of(node))
        for node in order:
            if self._kind[node] == "inside" and node[0] not in self._new:
                made = node if node.op is Input else node.with_inputs(map(self._operand, node.inputs))
                self._new.update(zip(node.values, made.values, strict=True))
        return self._operand(value)

    def _kind_of(self, node: Node) -> str:
        if node.op is Input:
            return "inside" if node[0] in self._given else "outside"
        kinds = {self._kind[v.node] for v in node.inputs}
        return "inside" if "inside" in kinds else "outside" if "outside" in kinds or node.op in RANDOM else "constant"

    def _operand(self, value: Value) -> Value:
        kind = self._kind[value.node]
        if kind == "inside":
            self.read.add(value)
            return self._new[value]
        if kind == "constant":
            return value
        source = _outside(value, self._same)
        if source not in self.outer:
            self.outer[source] = input_value(f"outer{len(self.outer)}", source.type)
        return self.outer[source]


def _outside(value: Value, same: dict[Value, Value]) -> Value:
    """``value`` with the states that no step changes replaced by their initial values."""
    if not same:
        return value
    new: dict[Value, Value] = dict(same)
    for node in topological([value.node]):
        if node[0] not in new:
            made = node.with_inputs(new.get(v, v) for v in node.inputs)
            new.update(zip(node.values, made.values, strict=True))
    return new[value]


def repeat(
    count: int | Size,
    states: Sequence[Value],
    scanned: Sequence[tuple[Value, bool]],
    build: Callable[[Sequence[Value], Sequence[Value]], tuple[Sequence[Value], Sequence[Value]]],
    reverse: Sequence[bool],
) -> list[Value]:
    """The last states and the stacks of the rows of ``build(state, slices) -> (new state, rows)``."""
    steps = Steps(count, states, scanned)
    results: Any = steps.closed(*build(steps.state, steps.slices), reverse)
    assert results is not None, "a step that no kernels can run"
    return results  # type: ignore[no-any-return]
