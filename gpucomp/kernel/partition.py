"""Turns a graph into kernels and host steps: each group of ``gpucomp.kernel.grouping`` becomes one kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpucomp.errors import quote
from gpucomp.expr.core import (
    Algorithm,
    Expr,
    Load,
    Select,
    coerced,
    load,
    transform,
    walk,
)
from gpucomp.expr.lower import is_short
from gpucomp.ir.graph import Graph, Node, Value, constant_value
from gpucomp.kernel import Store
from gpucomp.kernel.grouping import FEW_CHOICES, Group, Grouping, Order, Policy, appended_at, is_scalar, pushed
from gpucomp.kernel.recognise import Composed, recognise
from gpucomp.kernel.step import HostStep, KernelStep, Step

MAX_STATEMENTS = 2000  # longest body of a kernel with more than ``FEW_CHOICES`` ``Select`` nodes
ATTEMPTS = 3  # how often kernels that are longer are split


class _Composer:
    """Composes the expressions of one group: an operand becomes a load of a parameter, or its producer's expression."""

    def __init__(self, groups: Grouping, group: Group) -> None:
        self.groups, self.group = groups, group
        self.inputs: dict[Value, int] = {}
        self.prologue: dict[Node, None] = {}

    def element(self, value: Value, at: Sequence[Expr]) -> Expr:
        """``value[at]`` in terms of the kernel's parameters."""
        if is_scalar(value):
            array = constant_value(value)
            known = value.attrs["values"].reshape(-1)[0] if array is None else array.reshape(-1)[0].item()
            return coerced(known, value.type.dtype)
        if value not in self.groups.inlined:
            source = self.inputs.setdefault(value, len(self.inputs))
            return load(source, at, value.type.dtype)
        self.prologue[value.node] = None
        algorithm = self.groups.algorithm(value)
        assert algorithm is not None
        return self.expand(algorithm, at, value, {})

    def expand(self, algorithm: Algorithm, at: Sequence[Expr], value: Value, known: Mapping[int, Expr]) -> Expr:
        """The element ``at`` of ``value``, with the loads of its operands replaced.

        ``known`` has the elements of operands that are computed in the kernel, by position. ``at`` may contain loads,
        for example of a Gather's indices. These read parameters of the kernel, not operands of ``value``, so they are
        substituted for the axes unchanged.
        """

        def change(node: Expr) -> Expr | None:
            if not isinstance(node, Load):
                return None
            if node.source in known:
                return known[node.source]
            return self.element(value.inputs[node.source], node.index)

        return transform(algorithm.body, change, dict(zip(algorithm.axes, at, strict=True)))

    def compose(self) -> tuple[Composed, tuple[Value, ...]]:
        groups, group = self.groups, self.group
        algorithm = groups.algorithm(group.anchor)
        assert algorithm is not None
        appends = group.anchor in groups.appended  # it reads no state
        for value in group.anchor.inputs[appends:]:  # parameters in the order of the operator's inputs
            if value not in groups.inlined and not is_scalar(value):
                self.inputs.setdefault(value, len(self.inputs))
        elements = {group.anchor: self.expand(algorithm, algorithm.axes, group.anchor, {})}
        for member in group.members[1:]:
            elements[member] = self._member(member, elements)
        members = set(group.members)
        stored: list[tuple[Value, Expr, tuple[Expr, ...]]] = []
        for member in group.members:
            readers = groups.readers(member)
            taken = members | {concat for concat, k in group.parts if concat.inputs[k] is member}
            if member in groups.is_output or not set(readers) <= taken:
                stored.append((member, elements[member], groups.place[member]))
        for concat, k in group.parts:
            part = concat.inputs[k]
            at = groups.place[part]
            place = appended_at(concat, at) if concat in groups.appended else pushed(concat, k, at)
            stored.append((concat, elements[part], place))
        targets = list(dict.fromkeys(v for v, _, _ in stored))
        first = len(self.inputs)
        stores = tuple(Store(first + targets.index(v), at, value) for v, value, at in stored)
        params = (*(v.type for v in self.inputs), *(v.type for v in targets))
        return Composed(params, len(targets), algorithm.axes, stores), tuple(targets)

    def _member(self, member: Value, elements: Mapping[Value, Expr]) -> Expr:
        inside = {k: elements[v] for k, v in enumerate(member.inputs) if v in elements}
        if member.op.push is not None:
            return next(iter(inside.values()))
        algorithm = self.groups.algorithm(member)
        assert algorithm is not None
        return self.expand(algorithm, self.groups.place[member], member, inside)


def _composed(plan: Grouping) -> list[tuple[Group, _Composer, Composed, tuple[Value, ...]]]:
    """Every group with its composer, the composed kernel, and the values that it stores."""
    composers = [(group, _Composer(plan, group)) for group in plan.run()]
    return [(group, composer, *composer.compose()) for group, composer in composers]


def partition(graph: Graph, policy: Policy | None = None) -> list[Step]:
    """The graph's kernels and host steps, in an order in which they can run."""
    plan = Grouping(graph, policy or Policy())
    kernels = _composed(plan)
    for attempt in range(1, ATTEMPTS + 1):
        long = [(group, composer) for group, composer, composed, _ in kernels if _spells_long(composed)]
        if not long:
            break
        cut = {
            v for group, composer in long for v in (*group.members, *(v for n in composer.prologue for v in n.values))
        }
        plan = Grouping(graph, plan.policy, cut.union(plan.cut) if attempt < ATTEMPTS else plan.live)
        kernels = _composed(plan)
    ordered: list[tuple[Order, Step]] = []
    for group, composer, composed, targets in kernels:
        kernel = recognise(composed, label=_label(group.anchor))
        constants = frozenset(k for k, v in enumerate(composer.inputs) if constant_value(v) is not None)
        kernel = replace(kernel, constants=constants)
        nodes = tuple(dict.fromkeys([m.node for m in group.members] + [c.node for c, _ in group.parts]))
        step = KernelStep(
            "", kernel, tuple(composer.inputs), targets, nodes, _why(plan, group), tuple(composer.prologue)
        )
        ordered.append((group.order, step))
    for node in dict.fromkeys(v.node for v in plan.host):
        ordered.append(((plan.position[node],), HostStep("", node, f"{node.op} has no kernel: numpy runs it")))
    ordered.sort(key=lambda pair: pair[0])
    return [_named(step, number) for number, (_, step) in enumerate(ordered)]


def _spells_long(composed: Composed) -> bool:
    exprs = [store.value for store in composed.stores]
    choices = {n for e in exprs for n in walk(e) if isinstance(n, Select)}
    return len(choices) > FEW_CHOICES and not is_short(exprs, MAX_STATEMENTS)


def _named(step: Step, number: int) -> Step:
    family = step.kernel.family if isinstance(step, KernelStep) else "host"
    return replace(step, name=f"k{number:03}_{family}")


def _label(value: Value) -> str:
    """The operator, the types of its operands, and what tells it from others of the same types: ``stride 2``, ``groups 4``."""
    operands = (str(v.type) for v in value.inputs if v.type.rank)
    return " ".join([str(value.op), *operands, *_marks(value.attrs)])


def _marks(attrs: Mapping[str, Any]) -> Iterator[str]:
    """The attributes of a window that are not the usual ones, then those that say along which axes an operator works."""
    if kernel := attrs.get("kernel"):
        yield f"window {'x'.join(map(str, kernel))}"
    for name, word, usual in (("strides", "stride", 1), ("pads", "pad", 0), ("dilations", "dilation", 1)):
        numbers: Sequence[int] = attrs.get(name) or ()
        if any(n != usual for n in numbers):
            yield f"{word} {numbers[0] if len(set(numbers)) == 1 else ','.join(map(str, numbers))}"
    if attrs.get("group", 1) != 1:
        yield f"groups {attrs['group']}"
    for name in ("axis", "axes", "perm"):
        found = attrs.get(name)
        if isinstance(found, int):
            yield f"{name} {found}"
        elif isinstance(found, tuple) and found:
            yield f"{name} {','.join(map(str, found))}"


def _why(plan: Grouping, group: Group) -> str:
    """Why fusion ends at the values that the kernel stores."""
    members = set(group.members)
    reasons = []
    for member in group.members:
        if member in plan.is_output:
            reasons.append("graph output")
        for reader in plan.readers(member):
            if reader in members or any(c is reader for c, _ in group.parts):
                continue
            if reader in plan.reasons and reader not in plan.group:
                reasons.append(plan.reasons[reader])
            elif plan.reduces(reader):
                reasons.append(f"{reader.op} starts another kernel")
            elif member in plan.reasons:
                reasons.append(plan.reasons[member])
            else:
                reasons.append(f"read by {reader.op}{f' {quote(reader.node.name)}' if reader.node.name else ''}")
    kinds = {
        "appends to a state" if whole in plan.appended else "stores its part of a Concat" for whole, _ in group.parts
    }
    reasons += sorted(kinds)
    return "; ".join(dict.fromkeys(reasons))
