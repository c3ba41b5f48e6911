"""What grouping asks about images that convolutions read: how they lie in memory, and how often they are read."""

from __future__ import annotations

import math

from gpucomp import ops
from gpucomp.ir.graph import Node, Value
from gpucomp.ir.size import hint, is_one, same

MANY_ELEMENTS = 4096  # from this size, what is read repeatedly is stored if it is put together, at the cost of a launch
SOME_CHANNELS = 8  # fewer are gathered as they are, such as the three of a photo


def has_taps(reader: Node) -> bool:
    return reader.op is ops.Conv and math.prod(reader.inputs[1].shape[:-2]) > 1


def is_depthwise(reader: Node) -> bool:
    """Whether ``reader`` is a convolution, channels last, with a window of its own for each channel."""
    if reader.op is not ops.Conv or reader.attrs.get("layout", "NCHW") != "NHWC":
        return False
    return same(reader.attrs.get("group", 1), reader.inputs[0].shape[-1]) and not is_one(reader.attrs.get("group", 1))


def scattered(value: Value) -> bool:
    """Whether elements that are neighbours in an image of some channels lie apart in what ``value`` transposes."""
    if value.op is not ops.Transpose:
        return False
    channels, size = hint(value.shape[-1]), hint(value.type.size)
    return value.attrs["perm"][-1] != value.type.rank - 1 and channels >= SOME_CHANNELS and size >= MANY_ELEMENTS


def mirrored(value: Value) -> bool:
    """Whether some of ``value`` is what lies inside once more, as ``reflect``, ``edge`` and ``wrap`` continue an image."""
    while value.op in (ops.Transpose, ops.Reshape):
        value = value.inputs[0]
    return value.op is ops.Pad and value.attrs.get("mode", "constant") != "constant"
