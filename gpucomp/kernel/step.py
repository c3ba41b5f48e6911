"""A step of a program: a kernel with its values, or an operator on the host."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpucomp.ir.graph import Node, Value
from gpucomp.kernel.ir import Kernel


@dataclass(frozen=True, eq=False)
class Step:
    """A kernel in its place: the graph values it reads and writes, the nodes it swallowed, and why it ends there.

    ``kernel`` is ``None`` for a host step, which runs its one node's numpy reference.
    """

    name: str
    kernel: Kernel | None
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    why: str = ""
    prologue: tuple[Node, ...] = field(default=())
