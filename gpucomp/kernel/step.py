"""A step of a program: a kernel with its values, an operator on the host, or the beginning of a loop over steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Generic, TypeGuard

from gpucomp.ir.graph import Node, Op, Value
from gpucomp.kernel.ir import B, K, Kernel, is_kernel_of
from gpucomp.lazy_dataclass import dataclass

BETWEEN = Op("Between", lambda *, type: type)  # a value that a pass puts between two kernels; no graph has it


@dataclass(frozen=True, eq=False)
class KernelStep(Generic[B]):
    """A kernel bound to the graph: the values it reads and writes, the nodes fused in it, and why fusion ends there."""

    name: str
    kernel: Kernel[B]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    why: str = ""
    prologue: tuple[Node, ...] = ()


@dataclass(frozen=True, eq=False)
class HostStep:
    """A node whose numpy reference runs on the host."""

    name: str
    node: Node
    why: str = ""

    @property
    def inputs(self) -> tuple[Value, ...]:
        return self.node.inputs

    @property
    def outputs(self) -> tuple[Value, ...]:
        return self.node.values

    @property
    def nodes(self) -> tuple[Node, ...]:
        return (self.node,)

    @property
    def prologue(self) -> tuple[Node, ...]:
        return ()


@dataclass(frozen=True, eq=False)
class RepeatStep(HostStep):
    """The next ``length`` steps run ``count`` times. ``node`` is the ``ops.Repeat`` that they compute.

    ``bound`` maps values of the body to values outside, whose memory they share: a part of it that advances by so many
    bytes with every step. A negative number starts at the end.

    Other loops run ``before`` steps before them, and ``after`` steps after them, on the same memory.
    """

    count: int = 0
    length: int = 0
    bound: Mapping[Value, tuple[Value, int]] = field(default_factory=dict)
    before: int = 0
    after: int = 0


Step = KernelStep | HostStep


def with_counts(steps: Iterable[Step]) -> Iterator[tuple[Step, int]]:
    """Every step, and how often it runs."""
    left, count = 0, 1
    for step in steps:
        yield step, count if left else 1
        left = max(left - 1, 0)
        if isinstance(step, RepeatStep):
            left, count = step.length, int(step.count)


def is_step_of(step: Step, kind: type[K]) -> TypeGuard[KernelStep[K]]:
    """Whether the step launches a kernel whose body is of this kind."""
    return isinstance(step, KernelStep) and is_kernel_of(step.kernel, kind)
