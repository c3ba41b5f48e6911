"""Inputs and outputs that a run on the processor uses where they lie."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpucomp.artifact.plan import Buffer
from gpucomp.ir.types import NAMED
from gpucomp.runtime.native import HOST_ALIGNMENT, address_of

ndarray = np.ndarray


class Argument:
    """An input or output that a run uses where it lies, and the places in the table of launches that get its address.

    late   how far behind the beginning each place points; ``None`` if no place does
    """

    __slots__ = ("buffer", "dtype", "late", "name", "nbytes", "places", "position", "shape")

    def __init__(self, position: int, name: str, buffer: Buffer, places: np.ndarray, late: np.ndarray | None) -> None:
        self.position, self.name, self.buffer, self.shape = position, name, buffer, buffer.shape
        self.dtype = NAMED[buffer.dtype].numpy
        self.nbytes = math.prod(buffer.shape) * self.dtype.itemsize + HOST_ALIGNMENT
        self.places: list[int] = places.tolist()
        self.late: list[int] | None = None if late is None else late.tolist()

    def fits(self, array: np.ndarray) -> bool:
        """Whether shape and element type are right."""
        dtype = array.dtype
        return (dtype is self.dtype or dtype == self.dtype) and array.shape == self.shape

    def fresh(self) -> tuple[np.ndarray, int]:
        """As ``aligned``, with the address, in half the time. Strings have no address."""
        if self.dtype == object:
            return np.full(self.shape, "", object), 0
        raw = np.empty(self.nbytes, np.uint8)
        address = address_of(raw)
        behind = -address % HOST_ALIGNMENT
        return np.ndarray(self.shape, self.dtype, raw, behind), address + behind

    def put(self, address: int, words: memoryview) -> None:
        if self.late is None:
            for place in self.places:
                words[place] = address
        else:
            for place, late in zip(self.places, self.late, strict=True):
                words[place] = address + late


# arguments with their addresses, whose arrays are kept meanwhile, and the results
Bound = tuple[list[tuple[Argument, int, np.ndarray]], dict[str, np.ndarray]]


def bound(
    read: Sequence[Argument],
    written: Sequence[Argument],
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    *,
    known: bool = False,
) -> Bound | None:
    """All arguments of a run; ``None`` if an array must be converted or refused, or a result copied.

    ``known`` says that shapes and types of the ``inputs`` are right. It takes a part of the time of checks that are told apart,
    which counts in runs of microseconds.
    """
    if type(inputs) is not dict or len(inputs) != len(read):
        return None
    arrays: list[tuple[Argument, int, np.ndarray]] = []
    results, given = {}, 0
    for one in read:
        array = inputs.get(one.name)
        if type(array) is not ndarray or not (known or one.fits(array)):
            return None
        flags = array.flags
        if not (flags.c_contiguous and flags.aligned):
            return None
        arrays.append((one, address_of(array), array))
    for one in written:
        if one.name not in outputs:
            array, address = one.fresh()
        else:
            array = outputs[one.name]
            if type(array) is not ndarray or not one.fits(array) or not array.flags.carray:
                return None
            address, given = address_of(array), given + 1
            end = address + array.nbytes
            for _, begin, other in arrays:
                if begin < end and address < begin + other.nbytes:
                    return None
        arrays.append((one, address, array))
        results[one.name] = array
    return (arrays, results) if given == len(outputs) else None
