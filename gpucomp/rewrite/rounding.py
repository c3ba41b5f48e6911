"""What rewrites may know of how far numbers will be rounded, and of what kernels will leave in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol

import numpy as np

from gpucomp.ir.graph import Graph, Node, Op, Value
from gpucomp.ir.types import BF16


@dataclass(frozen=True, slots=True)
class Stored:
    """A value that a kernel leaves in memory.

    by        the node that the kernel is built around: the contraction, norm, reduction ...
    rounded   whether what contractions read of it is rounded, because it is stored so or since they round it (tf32)
    """

    by: Node
    rounded: bool


@dataclass(frozen=True, slots=True)
class Rounding:
    """What the user lets numbers be rounded to: a precision and patterns of what stays f32."""

    precision: str = "fp32"
    keep_fp32: tuple[str, ...] = ()

    def keeps(self, op: Op) -> bool:
        """Whether a pattern may be meant for nodes of ``op``, whatever their names."""
        return any(fnmatchcase(op.name, pattern) for pattern in self.keep_fp32)


class Storage(Protocol):
    """The one answer to what kernels leave in memory. ``kernel.passes.precision`` has it, which rounds what they store."""

    def stored(self, graph: Graph, rounding: Rounding) -> Mapping[Value, Stored]:
        """Every value that a kernel of ``graph`` as it is would store."""


class NoKernels:
    """The answer where a graph is not compiled for a target."""

    def stored(self, graph: Graph, rounding: Rounding) -> Mapping[Value, Stored]:
        return {}


# constants that contractions multiply by, as they will be stored; where these may round for themselves they stay f32
ROUNDED: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "tf32": lambda array: array.astype(np.float32),
    "fp16": lambda array: array.astype(np.float16),
    "bf16": lambda array: array.astype(BF16.numpy),
}
HALF_STEP = {
    "tf32": 2.0**-24,
    "fp16": 2.0**-11,
    "bf16": 2.0**-8,
}  # by which normal numbers are rounded at most, relatively
