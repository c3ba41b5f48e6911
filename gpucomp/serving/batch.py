"""Which dimension of a model is the batch, along which requests may be joined. ``rows`` proves that they may."""

from __future__ import annotations

from collections.abc import Sequence

from gpucomp.errors import quote
from gpucomp.ir.dim import Dim
from gpucomp.ir.size import Size
from gpucomp.refusal import Refusal
from gpucomp.runtime.inputs import TensorSpec


def batch_dim(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Dim | Refusal:
    """The dimension that comes first in the shapes of all inputs and outputs, and whose size each run decides."""
    first = inputs[0].shape[0] if inputs and inputs[0].shape else None
    if not isinstance(first, Dim):
        return Refusal("the first dimension of the first input has one size only")
    for spec in (*inputs, *outputs):
        place = spec.shape[0] if spec.shape else None
        if not isinstance(place, Dim | Size) or str(place) != first.name:
            return Refusal(f"the first dimension of {quote(spec.name)} is not {quote(first.name)}")
    if any(str(size) == first.name for spec in (*inputs, *outputs) for size in spec.shape[1:]):
        return Refusal(f"{quote(first.name)} is the size of other dimensions too")
    return first
