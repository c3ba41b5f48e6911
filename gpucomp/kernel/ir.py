"""A kernel: one launch, described by what it computes. How it computes it (schedule, source) is decided elsewhere.

A kernel knows nothing of the graph: its loads name parameters by position, its variables have canonical names, so
two layers of one shape are one kernel (``digest``) and are compiled once. A ``Step`` binds it to graph values.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Self, TypeGuard

from gpucomp.expr.core import Expr, Var
from gpucomp.ir.types import TensorType
from gpucomp.kernel.body import (
    Attention,
    Contraction,
    Count,
    Described,
    Loops,
    Rowwise,
    Scan,
    Scatter,
    Store,
    TileTransform,
    Window,
)


@dataclass(frozen=True, eq=False)
class FusedLayer:
    """A kernel of a chain. ``params`` are the parameters of the chain that its own are; ``HANDED`` as an input is what the
    link before it leaves, and as an output what the next one gets. ``schedule`` is how the link is computed, where its
    weights have been laid out for that already.
    """

    kernel: Kernel
    params: tuple[int, ...]
    schedule: Mapping[str, int]


HANDED = -1


@dataclass(frozen=True, eq=False)
class FusedLayers(Described):
    """Layers that are computed depth first, in one kernel. Each layer alone reads the result of the one before it.

    These results are images ``[image, row, column, channel]``. They are never in memory as a whole: only the rows are kept
    from which the next layer's current rows are computed.
    """

    links: tuple[FusedLayer, ...]

    @property
    def domain(self) -> tuple[Var, ...]:
        """What the last link stores over."""
        return self.links[-1].kernel.body.domain

    def expressions(self) -> list[Expr]:
        """None: its links have their own, of their own parameters."""
        return []

    def mapped(self, change: Callable[[Expr], Expr]) -> Self:
        raise TypeError("a chain's links have params of their own: change each link's kernel")

    def reduced(self) -> Sequence[tuple[Var, ...]]:
        """None: its links have their own, and add up as sums do, not as products."""
        return ()

    def operations(self, count: Count) -> float:
        return sum(link.kernel.operations(count) for link in self.links)

    def text_lines(self, stores: Sequence[str]) -> list[str]:
        lines = []
        for link in self.links:
            names = ", ".join("handed on" if p == HANDED else f"x{p}" for p in link.params)
            lines.append(f"  link of {names}: {dict(link.schedule)}")
            lines += [f"    {line}" for line in link.kernel.text.splitlines()]
        return [*lines, *stores]


Body = Loops | Contraction | Rowwise | Window | Attention | Scan | Scatter | FusedLayers | TileTransform

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # with a default: ``typing`` has that from Python 3.13 on

    B = TypeVar("B", bound=Body, default=Body, covariant=True)
    K = TypeVar("K", bound=Body, default=Any)
else:
    from typing import TypeVar

    B, K = TypeVar("B", covariant=True), TypeVar("K")


@dataclass(frozen=True, eq=False)
class Kernel(Generic[B]):
    """A ``Kernel`` may have any body, a ``Kernel[Contraction]`` has a ``Contraction``: see ``is_kernel_of``.

    ``params`` are the inputs, then ``outputs`` results; ``Load.source`` and ``Store.target`` index them.

    ``constants`` are the inputs known when the model is compiled: an engine may ask for them in an order of its own.
    """

    family: str
    params: tuple[TensorType, ...]
    outputs: int
    body: B
    stores: tuple[Store, ...]
    label: str = ""  # for people: "conv2d 3x3 64->128 28x28"
    constants: frozenset[int] = frozenset()

    @property
    def inputs(self) -> int:
        return len(self.params) - self.outputs

    @property
    def results(self) -> range:
        """The numbers of the parameters that are written."""
        return range(self.inputs, len(self.params))

    @cached_property
    def text(self) -> str:
        return format_kernel(self)

    @cached_property
    def digest(self) -> str:
        """Names what the kernel computes: equal for equal kernels, in every process."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def expressions(self) -> list[Expr]:
        """Every expression of the kernel, stores' indices included. A chain has none of its own: its links have."""
        return [*self.body.expressions(), *(e for store in self.stores for e in store.expressions())]

    def operations(self, count: Count) -> float:
        """Floating-point operations of one launch."""
        points = math.prod(v.extent for v in self.body.domain)
        return points * count(*(s.value for s in self.stores)) + self.body.operations(count)


def is_kernel_of(kernel: Kernel, kind: type[K]) -> TypeGuard[Kernel[K]]:
    """Whether the kernel's body is of this kind."""
    return isinstance(kernel.body, kind)


def kernel_of(kernel: Kernel, kind: type[K]) -> Kernel[K]:
    """The kernel itself. Raises ``TypeError`` if its body is of another kind."""
    if not is_kernel_of(kernel, kind):
        name, found = kernel.label or kernel.family, type(kernel.body).__name__
        raise TypeError(f"kernel {name}: {kind.__name__} expected, {found} found")
    return kernel


def format_kernel(kernel: Kernel) -> str:
    """A kernel as text: its identity, and what ``inspect --kernels`` shows."""
    lines = [f"kernel {kernel.family}({', '.join(map(str, kernel.params))}) -> {kernel.outputs}"]
    if kernel.constants:
        lines.append(f"  constant {', '.join(f'x{k}' for k in sorted(kernel.constants))}")
    return "\n".join([*lines, *kernel.body.text_lines([store.line() for store in kernel.stores])])
