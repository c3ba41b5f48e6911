"""Builds kernels from other kernels: renumbers their parameters, and replaces several steps by one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from gpucomp.expr.core import Expr, Load, load, transform
from gpucomp.ir.graph import Value
from gpucomp.ir.types import TensorType
from gpucomp.kernel.body import Contraction, RowStatistics, Store
from gpucomp.kernel.ir import Body, K, Kernel
from gpucomp.kernel.step import KernelStep
from gpucomp.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Renumbering:
    """Maps the parameter numbers of one kernel to those of another."""

    numbers: Mapping[int, int]

    def __getitem__(self, old: int) -> int:
        return self.numbers[old]

    def __call__(self, expr: Expr) -> Expr:
        """``expr`` with its loads renumbered."""

        def change(node: Expr) -> Expr | None:
            return load(self.numbers[node.source], node.index, node.dtype) if isinstance(node, Load) else None

        return transform(expr, change)

    def stores(self, stores: Iterable[Store]) -> tuple[Store, ...]:
        """``stores`` with their loads and their targets renumbered."""
        return tuple(replace(s.mapped(self), target=self.numbers[s.target]) for s in stores)

    def tail(self, tail: RowStatistics) -> RowStatistics:
        return RowStatistics(tuple(s.mapped(self) for s in tail.statistics), self.stores(tail.stores))

    def known(self, params: Iterable[int]) -> frozenset[int]:
        """The new numbers of ``params``, without those that the other kernel does not have."""
        return frozenset(self.numbers[k] for k in params if k in self.numbers)


@dataclass(frozen=True)
class Parameters(Renumbering):
    """The parameters of a new kernel, inputs first. ``constants`` are those constants that come from the old kernel."""

    types: tuple[TensorType, ...]
    constants: frozenset[int]


def parameters(kernel: Kernel, order: Sequence[int | TensorType]) -> Parameters:
    """The parameters of a new kernel. ``order`` has numbers of parameters of ``kernel``, and types of new ones."""
    new = Renumbering({old: number for number, old in enumerate(order) if isinstance(old, int)})
    types = tuple(kernel.params[p] if isinstance(p, int) else p for p in order)
    return Parameters(new.numbers, types, new.known(kernel.constants))


def with_constant(step: KernelStep, value: Value) -> KernelStep:
    """``step`` with ``value`` as one more constant input, the last, which nothing reads yet.

    The kernel must not read its own results.
    """
    kernel, last = step.kernel, step.kernel.inputs
    new = parameters(kernel, [*range(last), value.type, *kernel.results])
    stores, constants = new.stores(kernel.stores), new.constants | {last}
    wider = replace(kernel, params=new.types, stores=stores, constants=constants)
    return replace(step, kernel=wider, inputs=(*step.inputs, value))


def without_results(step: KernelStep, gone: Collection[Value]) -> KernelStep:
    """``step`` without the results in ``gone``. Its kernel must not read these."""
    kernel = step.kernel
    kept = [k for k, value in zip(kernel.results, step.outputs, strict=True) if value not in gone]
    new = parameters(kernel, [*range(kernel.inputs), *kept])
    body: Body = kernel.body
    if isinstance(body, Contraction) and body.tail is not None:
        body = replace(body, tail=new.tail(body.tail))
    stores = new.stores(s for s in kernel.stores if s.target in new.numbers)
    fewer = replace(kernel, params=new.types, outputs=len(kept), body=body, stores=stores)
    return replace(step, kernel=fewer, outputs=tuple(value for value in step.outputs if value not in gone))


class Splice:
    """Combines the kernels of ``steps``, which run in this order, into one kernel. Each value is one parameter.

    A value that one step writes and another reads is not an input. It stays a result unless it is in ``handed``: then
    the new kernel does not store it. Two steps may write parts of one result. The inputs of ``leading`` (default: the
    first step) come before those of the others.
    """

    def __init__(
        self, steps: Sequence[KernelStep], handed: Collection[Value] = (), leading: KernelStep | None = None
    ) -> None:
        self.steps = tuple(steps)
        inside = {value for step in steps for value in step.outputs}
        order = sorted(steps, key=lambda step: step is not leading)
        self.inputs = tuple(dict.fromkeys(v for step in order for v in step.inputs if v not in inside))
        self.outputs = tuple(dict.fromkeys(v for step in steps for v in step.outputs if v not in handed))
        place = {value: number for number, value in enumerate((*self.inputs, *self.outputs))}
        self.renumberings: list[Renumbering] = []  # one per step, without the parameters of handed values
        types: dict[int, TensorType] = {}
        for step in steps:
            values = enumerate((*step.inputs, *step.outputs))
            self.renumberings.append(new := Renumbering({old: place[v] for old, v in values if v in place}))
            types |= {number: step.kernel.params[old] for old, number in new.numbers.items()}
        self.params = tuple(types[number] for number in range(len(place)))

    def kernel(self, family: str, body: K, stores: Sequence[Store], label: str = "") -> Kernel[K]:
        """The combined kernel. Without a ``label``, it gets the labels of all steps."""
        pairs = zip(self.steps, self.renumberings, strict=True)
        constants = frozenset[int]().union(*(new.known(step.kernel.constants) for step, new in pairs))
        label = label or " | ".join(step.kernel.label for step in self.steps)
        return Kernel(family, self.params, len(self.outputs), body, tuple(stores), label, constants)

    def step(self, kernel: Kernel[K], name: str, why: str) -> KernelStep[K]:
        """A step with ``kernel`` that replaces ``steps``."""
        nodes = tuple(dict.fromkeys(node for step in self.steps for node in step.nodes))
        prologue = tuple(dict.fromkeys(node for step in self.steps for node in step.prologue))
        return KernelStep(name, kernel, self.inputs, self.outputs, nodes, why, prologue)
