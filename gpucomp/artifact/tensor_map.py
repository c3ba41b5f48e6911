"""Tensor maps: descriptions of arrays for the Tensor Memory Accelerator (sm_90), which the driver encodes in 128 bytes.

A description holds no address. It is encoded when a model is opened, for the buffer of its parameter. In a plan for every
size, extents, strides, ``upper`` and ``offset`` can be places of formulas (``gpucomp.artifact.open_plan``).
Source: CUDA Driver API, ``cuTensorMapEncodeTiled`` and ``cuTensorMapEncodeIm2col``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gpucomp.lazy_dataclass import dataclass

ELEMENT_BYTES = {"f16": 2, "bf16": 2, "f32": 4, "tf32": 4, "i8": 1}
MAX_BOX = 256  # elements of a box along an axis
MAX_PIXELS = 1024
MAX_STRIDE = (1 << 40) - 1  # in bytes
CORNERS = range(-128, 128)  # corners of the window of pixels, for images of two dimensions
OFFSETS = range(256)  # offsets of a filter's taps, in pixels


@dataclass(frozen=True)
class TensorMap:
    """A box of an array that one instruction loads to shared memory, with zeros outside the array. Innermost axis first.

    parameter        number of the kernel's parameter that is loaded
    dtype            element type; ``tf32`` is f32 that is rounded to tf32 by the load
    extents          extents of the array, in elements
    strides          strides of all axes but the innermost, in bytes
    box              extents of the box, for a tiled load
    element_strides  steps between the elements that are loaded, by axis
    swizzle          bytes of the pattern that exchanges 16-byte pieces of rows: 0, 32, 64 or 128
    channels, pixels elements and rows of an im2col load of an NHWC image, instead of ``box``
    lower, upper     first and last pixel (w, h) of its window, as offsets from those of the image
    offset           bytes from the start of the parameter to the start of the array
    """

    parameter: int
    dtype: str
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...] = ()
    element_strides: tuple[int, ...] = ()
    swizzle: int = 0
    channels: int = 0
    pixels: int = 0
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()
    offset: int = 0

    @property
    def is_im2col(self) -> bool:
        return self.channels > 0

    @property
    def numbers(self) -> tuple[Any, ...]:
        """The numbers that each run can decide."""
        return (*self.extents, *self.strides, *self.upper, self.offset)

    def with_numbers(self, numbers: Sequence[Any]) -> TensorMap:
        """The same map with other ``numbers``."""
        first, second = len(self.extents), len(self.extents) + len(self.strides)
        return replace(
            self,
            extents=tuple(numbers[:first]),
            strides=tuple(numbers[first:second]),
            upper=tuple(numbers[second:-1]),
            offset=numbers[-1],
        )

    @property
    def steps(self) -> tuple[int, ...]:
        """``element_strides``, or ones if it is empty."""
        return self.element_strides or (1,) * len(self.extents)

    @property
    def bytes(self) -> int:
        """Bytes that one load transfers."""
        elements = (
            self.channels * self.pixels
            if self.is_im2col
            else math.prod(-(-b // s) for b, s in zip(self.box, self.steps, strict=True))
        )
        return elements * ELEMENT_BYTES[self.dtype]

    def fault(self, nbytes: int) -> str:
        """Why it is no map of a parameter of ``nbytes`` bytes; empty if it is one."""
        if reasons := self.objections():
            return f"no tensor map: {reasons[0]}"
        size = ELEMENT_BYTES[self.dtype]
        last = sum((e - 1) * s for e, s in zip(self.extents, (size, *self.strides), strict=True))
        end = self.offset + last + size
        return f"a tensor map ends at byte {end} of a buffer of {nbytes}" if end > nbytes else ""

    def objections(self) -> list[str]:
        """Reasons why drivers refuse to encode it; empty if they accept it."""
        reasons: list[str] = []
        rank, size = len(self.extents), ELEMENT_BYTES[self.dtype]
        if not 1 <= rank <= 5 or len(self.strides) != rank - 1 or len(self.steps) != rank:
            return [f"a tensor map of rank {rank} has {len(self.strides)} strides"]
        if not all(1 <= e <= 1 << 32 for e in self.extents):
            reasons.append(f"extents {self.extents} are not from 1 to 2^32")
        if any(s % 16 or not 0 < s <= MAX_STRIDE for s in self.strides) or self.offset % 16:
            reasons.append(f"strides {self.strides} or offset {self.offset} are not multiples of 16 bytes")
        if not self.is_im2col and self.strides and self.strides[0] < self.extents[0] * size:
            # cuda.h: globalStrides[0] = globalDim[0] * elementSizeInBytes + padding[0]
            reasons.append(f"rows of {self.extents[0] * size} bytes overlap, {self.strides[0]} bytes apart")
        if not all(1 <= s <= 8 for s in self.steps):
            reasons.append(f"steps {self.steps} are not from 1 to 8")
        inner = (self.channels if self.is_im2col else (*self.box, 0)[0]) * size
        if inner % 16 or (self.swizzle and inner > self.swizzle):
            reasons.append(f"rows of {inner} bytes with a swizzle of {self.swizzle}")
        if self.is_im2col:
            if rank != 4 or len(self.lower) != 2 or len(self.upper) != 2:
                reasons.append("an im2col load of an image that is not NHWC")
            if self.channels > MAX_BOX or not 1 <= self.pixels <= MAX_PIXELS:
                reasons.append(f"{self.channels} channels of {self.pixels} pixels in one load")
            if any(c not in CORNERS for c in (*self.lower, *self.upper)):
                reasons.append(f"window corners {self.lower}, {self.upper} are not from {CORNERS[0]} to {CORNERS[-1]}")
        elif len(self.box) != rank or not all(1 <= b <= MAX_BOX for b in self.box):
            reasons.append(f"a box of {self.box} elements in rank {rank}")
        return reasons
