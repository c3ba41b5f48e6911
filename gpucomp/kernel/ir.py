"""A kernel: one launch, described by what it computes. Its schedule and its source are decided elsewhere.

A kernel does not refer to the graph: loads name parameters by position, and variables have canonical names. Two layers
of the same shape are therefore the same kernel (``digest``) and are compiled once. A ``Step`` binds a kernel to graph
values.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
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
from gpucomp.lazy_dataclass import dataclass


@dataclass(frozen=True, eq=False)
class FusedLayer:
    """One kernel of several that are fused.

    ``params`` maps each parameter of ``kernel`` to a parameter of the fused kernel. ``HANDED`` as an input is the result of
    the layer before; as an output it is the input of the next layer. ``schedule`` is set if the weights have already been
    packed for it.
    """

    kernel: Kernel
    params: tuple[int, ...]
    schedule: Mapping[str, int]


HANDED = -1


@dataclass(frozen=True, eq=False)
class FusedLayers(Described):
    """Layers that are computed depth first, in one kernel. Only the next layer reads a layer's result.

    These results are images ``[image, row, column, channel]``. They are never in memory as a whole: only the rows that
    the next layer's current rows depend on are kept.
    """

    layers: tuple[FusedLayer, ...]

    @property
    def domain(self) -> tuple[Var, ...]:
        """The domain of the last layer's stores."""
        return self.layers[-1].kernel.body.domain

    def expressions(self) -> list[Expr]:
        """Empty: each layer has its own expressions, over its own parameters."""
        return []

    def mapped(self, change: Callable[[Expr], Expr]) -> Self:
        raise TypeError("fused layers have their own params: change each layer's kernel")

    def reduced(self) -> Sequence[tuple[Var, ...]]:
        """Empty: each layer has its own reductions, which happen one after another and are not nested."""
        return ()

    def operations(self, count: Count) -> float:
        return sum(layer.kernel.operations(count) for layer in self.layers)

    def text_lines(self, stores: Sequence[str]) -> list[str]:
        lines = []
        for layer in self.layers:
            names = ", ".join("handed on" if p == HANDED else f"x{p}" for p in layer.params)
            lines.append(f"  layer of {names}: {dict(layer.schedule)}")
            lines += [f"    {line}" for line in layer.kernel.text.splitlines()]
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
    """A kernel with any body. The body of a ``Kernel[Contraction]`` is a ``Contraction``: see ``is_kernel_of``.

    ``params`` are the inputs, then ``outputs`` results; ``Load.source`` and ``Store.target`` index them.

    ``constants`` are the inputs known when the model is compiled. An engine may ask for another layout of these.
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
        """Positions of the output parameters."""
        return range(self.inputs, len(self.params))

    @cached_property
    def text(self) -> str:
        return format_kernel(self)

    @cached_property
    def digest(self) -> str:
        """A hash of what the kernel computes. Equal kernels have equal digests in every process."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def expressions(self) -> list[Expr]:
        """Every expression of the kernel, including the indices of stores. Fused layers have none: each has its own."""
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
    """A kernel as text. The digest is computed from it, and ``inspect --kernels`` prints it."""
    lines = [f"kernel {kernel.family}({', '.join(map(str, kernel.params))}) -> {kernel.outputs}"]
    if kernel.constants:
        lines.append(f"  constant {', '.join(f'x{k}' for k in sorted(kernel.constants))}")
    return "\n".join([*lines, *kernel.body.text_lines([store.line() for store in kernel.stores])])
