"""The precision setting, and the values that kernels store, as rewrites see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Protocol

import numpy as np

from gpucomp.ir.graph import Graph, Node, Op, Value
from gpucomp.ir.types import BF16
from gpucomp.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Stored:
    """A value that a kernel leaves in memory.

    by        the node that the kernel is built around: the contraction, norm, reduction ...
    rounded   whether contractions read it rounded: it is stored rounded, or they round it (tf32)
    """

    by: Node
    rounded: bool


@dataclass(frozen=True, slots=True)
class Rounding:
    """The user's precision setting: a precision, and patterns of operators and nodes that stay f32."""

    precision: str = "fp32"
    keep_fp32: tuple[str, ...] = ()

    def keeps(self, op: Op) -> bool:
        """Whether a pattern matches ``op`` itself, whatever its nodes are called."""
        return any(fnmatchcase(op.name, pattern) for pattern in self.keep_fp32)


class Storage(Protocol):
    """Tells which values kernels store. ``kernel.passes.precision``, which rounds stored values, implements it."""

    def stored(self, graph: Graph, rounding: Rounding) -> Mapping[Value, Stored]:
        """Every value that the kernels of ``graph``, as it is, would store."""


class NoKernels:
    """The ``Storage`` of graphs that are not compiled for a target: nothing is stored."""

    def stored(self, graph: Graph, rounding: Rounding) -> Mapping[Value, Stored]:
        return {}


# how constant operands of contractions will be stored; tf32 keeps f32, because a contraction may round them itself
ROUNDED: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "tf32": lambda array: array.astype(np.float32),
    "fp16": lambda array: array.astype(np.float16),
    "bf16": lambda array: array.astype(BF16.numpy),
}
HALF_STEP = {
    "tf32": 2.0**-24,
    "fp16": 2.0**-11,
    "bf16": 2.0**-8,
}  # largest relative rounding error of a normal number
