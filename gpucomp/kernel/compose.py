"""Writes the kernels of a partition out: the expressions of each one's members, in terms of its parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol

from gpucomp.expr.core import Algorithm, Expr, Load, literal, load, transform
from gpucomp.expr.simplify import simplify
from gpucomp.ir.graph import Node, Value, constant_value
from gpucomp.kernel.body import Store
from gpucomp.kernel.recognise import Composed

Order = tuple[int, ...]  # when a kernel runs: its anchor's position, or right after another kernel: (5,) (5, 12) (6,)
AT_ONCE: Order = (-1,)


@dataclass(eq=False)
class Group:
    """One kernel to be: its anchor, its members in topological order, and where each one's elements are."""

    order: Order
    anchor: Value
    members: list[Value] = field(default_factory=list)
    weight: int = 0  # expression nodes of the members after the anchor
    choices: int = 0  # ``Select`` of all members
    parts: list[tuple[Value, int]] = field(default_factory=list)  # (Concat, operand): written, not owned


class Placed(Protocol):
    """What a partition has decided of the values of a graph.

    inlined    computed where they are read
    place      of a kernel's values: the index of an element, in the axes of the kernel's anchor
    """

    @property
    def inlined(self) -> Mapping[Value, object]: ...

    @property
    def place(self) -> Mapping[Value, tuple[Expr, ...]]: ...

    @property
    def is_output(self) -> Set[Value]: ...

    def algorithm(self, value: Value) -> Algorithm | None: ...

    def readers(self, value: Value) -> list[Value]: ...


class Composer:
    """Writes one group's expressions out: operands become loads of parameters, or the producer's own expression."""

    def __init__(self, partition: Placed, group: Group) -> None:
        self.partition, self.group = partition, group
        self.inputs: dict[Value, int] = {}
        self.prologue: dict[Node, None] = {}

    def element(self, value: Value, at: Sequence[Expr]) -> Expr:
        """``value[at]`` in terms of the kernel's parameters."""
        array = constant_value(value)
        if array is not None and is_scalar(value):
            return literal(array.reshape(-1)[0].item(), value.type.dtype)
        if value not in self.partition.inlined:
            source = self.inputs.setdefault(value, len(self.inputs))
            return load(source, at, value.type.dtype)
        self.prologue[value.node] = None
        algorithm = self.partition.algorithm(value)
        assert algorithm is not None
        return self.expand(algorithm, at, value, {})

    def expand(self, algorithm: Algorithm, at: Sequence[Expr], value: Value, known: Mapping[int, Expr]) -> Expr:
        """The element ``at`` of ``value`` with the loads of its operands replaced; ``known`` operands are at hand.

        ``at`` may load (a Gather's indices): such a load reads a parameter of the kernel and no operand of ``value``,
        so it is put in the place of the axis and not entered.
        """

        def change(node: Expr) -> Expr | None:
            if not isinstance(node, Load):
                return None
            if node.source in known:
                return known[node.source]
            return self.element(value.inputs[node.source], node.index)

        return transform(algorithm.body, change, dict(zip(algorithm.axes, at, strict=True)))

    def compose(self) -> tuple[Composed, tuple[Value, ...]]:
        partition, group = self.partition, self.group
        algorithm = partition.algorithm(group.anchor)
        assert algorithm is not None
        for value in group.anchor.inputs:  # parameters in the operator's own order, where it has one
            if value not in partition.inlined and not is_scalar(value):
                self.inputs.setdefault(value, len(self.inputs))
        elements = {group.anchor: self.expand(algorithm, algorithm.axes, group.anchor, {})}
        for member in group.members[1:]:
            elements[member] = self._member(member, elements)
        members = set(group.members)
        stored: list[tuple[Value, Expr, tuple[Expr, ...]]] = []
        for member in group.members:
            readers = partition.readers(member)
            taken = members | {concat for concat, k in group.parts if concat.inputs[k] is member}
            if member in partition.is_output or not set(readers) <= taken:
                stored.append((member, elements[member], partition.place[member]))
        for concat, k in group.parts:
            part = concat.inputs[k]
            stored.append((concat, elements[part], pushed(concat, k, partition.place[part])))
        targets = list(dict.fromkeys(v for v, _, _ in stored))
        first = len(self.inputs)
        stores = tuple(Store(first + targets.index(v), at, value) for v, value, at in stored)
        params = (*(v.type for v in self.inputs), *(v.type for v in targets))
        return Composed(params, len(targets), algorithm.axes, stores), tuple(targets)

    def _member(self, member: Value, elements: Mapping[Value, Expr]) -> Expr:
        inside = {k: elements[v] for k, v in enumerate(member.inputs) if v in elements}
        if member.op.push is not None:
            return next(iter(inside.values()))
        algorithm = self.partition.algorithm(member)
        assert algorithm is not None
        return self.expand(algorithm, self.partition.place[member], member, inside)


def pushed(movement: Value, operand: int, at: Sequence[Expr]) -> tuple[Expr, ...]:
    """Where the element that ``operand`` has ``at`` an index lands in the result of a movement."""
    assert movement.op.push is not None
    types = [v.type for v in movement.inputs]
    return tuple(map(simplify, movement.op.push(operand, at, *types, **movement.attrs)))


def is_scalar(value: Value) -> bool:
    array = constant_value(value)
    return array is not None and array.size == 1 and not value.type.dtype.storage_only
