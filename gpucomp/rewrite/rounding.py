"""What rewrites may know of how far numbers will be rounded: ``kernel.passes.precision`` makes it, and rounds what is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

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


def _nothing(graph: Graph) -> Mapping[Value, Stored]:
    return {}


@dataclass(frozen=True, slots=True)
class Rounding:
    """What the user lets numbers be rounded to: a precision and patterns of what stays f32.

    ``stored`` tells what kernels would leave in memory of a graph as it is.
    """

    precision: str = "fp32"
    keep_fp32: tuple[str, ...] = ()
    stored: Callable[[Graph], Mapping[Value, Stored]] = _nothing

    def keeps(self, op: Op) -> bool:
        """Whether a pattern may be meant for nodes of ``op``, whatever their names."""
        return any(fnmatchcase(op.name, pattern) for pattern in self.keep_fp32)


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
