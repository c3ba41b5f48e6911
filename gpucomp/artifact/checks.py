"""How a device's driver is tested: for each kernel the inputs to run it on, by a rule, and some elements of its results.

The compiler records checks, and the file of a model has them as ``binaries/checks.bin``. A runtime in any language makes the
inputs again from their rule, so no tensor is stored. ``gpucomp.runtime.self_test`` runs them.

The file, little-endian: ``MAGIC``, the number of checks, then each of them: launch, how many inputs, how many outputs; for an
input its argument and its limit; for an output its argument, how many elements, and these as ``ELEMENT`` has them.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence

import numpy as np

from gpucomp.artifact.plan import INPUT, OUTPUT, TEMP, Plan
from gpucomp.errors import ArtifactError
from gpucomp.ir.types import NAMED
from gpucomp.lazy_dataclass import dataclass

CHECKS = "checks.bin"  # among the binaries of a model
MAGIC = b"GPCHECK1"
# where in the output, how far a right result may be away, and what it is
ELEMENT = np.dtype([("at", "<u4"), ("within", "<f4"), ("value", "<f8")])
# element types of which inputs are made and results are read
TYPES = frozenset({"f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8", "bool"})
MOST_ELEMENTS = 1 << 32  # of a tensor: places have 32 bits
PART = 1 << 20  # elements that are made at once: what that takes is small beside the tensor
_HEAD, _THREE, _TWO = struct.Struct("<8sI"), struct.Struct("<3I"), struct.Struct("<2I")


@dataclass(frozen=True)
class Given:
    """An input of a kernel: argument ``argument`` of its launch, with whole numbers below ``limit``, or any if that is 0."""

    argument: int
    limit: int


@dataclass(frozen=True, eq=False)
class Expected:
    """Some elements of a result: argument ``argument`` of the launch. ``elements`` are of type ``ELEMENT``, at least one."""

    argument: int
    elements: np.ndarray


@dataclass(frozen=True, eq=False)
class Check:
    """What launch number ``launch`` of a plan gives for its inputs. Its weights are the model's."""

    launch: int
    inputs: tuple[Given, ...]
    outputs: tuple[Expected, ...]


def generated(dtype: str, count: int, seed: int, limit: int = 0) -> np.ndarray:
    """``count`` elements of a type of ``TYPES``. Native code makes the same ones (``device_test.c``).

    Each depends on nothing but its place and ``seed``. Floats are odd multiples of 1/128 between -2 and 2, exact in each type
    and never zero. Whole numbers have the range of a byte, or are below ``limit``.
    """
    made = np.empty(count, NAMED[dtype].numpy)
    for start in range(0, count, PART):
        part = made[start : start + PART]
        part[...] = _part(dtype, start, len(part), seed, limit)
    return made


def _part(dtype: str, start: int, count: int, seed: int, limit: int) -> np.ndarray:
    x = np.arange(start, start + count, dtype=np.uint64).astype(np.uint32)
    x = x * np.uint32(0x9E3779B1) + np.uint32(seed * 0x85EBCA6B & 0xFFFFFFFF)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):  # each bit of a place changes half of the bits
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    x ^= x >> np.uint32(16)
    type = NAMED[dtype]
    if type.is_float:
        return ((2.0 * (x >> np.uint32(24)) - 255) / 128).astype(np.float32).astype(type.numpy)
    if limit:
        return ((x >> np.uint32(8)) % np.uint32(limit)).astype(type.numpy)
    byte = (x >> np.uint32(24)).astype(np.int64)
    if type.kind == "b":
        return (byte & 1).astype(type.numpy)
    return (byte - 128 if type.kind == "i" else byte).astype(type.numpy)


def packed(checks: Sequence[Check]) -> bytes:
    """The file of ``checks``, which ``checks_of`` reads."""
    parts = [_HEAD.pack(MAGIC, len(checks))]
    for check in checks:
        parts.append(_THREE.pack(check.launch, len(check.inputs), len(check.outputs)))
        parts += [_TWO.pack(given.argument, given.limit) for given in check.inputs]
        for found in check.outputs:
            parts += [_TWO.pack(found.argument, len(found.elements)), found.elements.astype(ELEMENT).tobytes()]
    return b"".join(parts)


def checks_of(data: bytes, plan: Plan) -> list[Check]:
    """The checks in a file. Raises ``ArtifactError`` (GPC7004) for what is none of ``plan``."""
    try:
        checks = list(_read(data))
    except (struct.error, ValueError):
        raise ArtifactError(
            f"{CHECKS}: damaged, or of another version: compile the model again", code="GPC7004"
        ) from None
    for check in checks:
        if not _fits(check, plan):
            raise ArtifactError(f"{CHECKS}: launch {check.launch} is none that it can check", code="GPC7004")
    return checks


def _read(data: bytes) -> Iterator[Check]:
    magic, count = _HEAD.unpack_from(data, 0)
    at = _HEAD.size
    if magic != MAGIC:
        raise ValueError(magic)
    for _ in range(count):
        launch, inputs, outputs = _THREE.unpack_from(data, at)
        at += _THREE.size
        given, found = [], []
        for _ in range(inputs):
            given.append(Given(*_TWO.unpack_from(data, at)))
            at += _TWO.size
        for _ in range(outputs):
            argument, elements = _TWO.unpack_from(data, at)
            found.append(Expected(argument, np.frombuffer(data, ELEMENT, elements, at + _TWO.size)))
            at += _TWO.size + elements * ELEMENT.itemsize
        yield Check(launch, tuple(given), tuple(found))
    if at != len(data):
        raise ValueError(at)


def _fits(check: Check, plan: Plan) -> bool:
    """Whether a check is of a kernel of the plan, and of tensors that a test may write and read."""
    if check.launch >= len(plan.launches) or plan.launches[check.launch].kernel < 0:
        return False
    launch = plan.launches[check.launch]
    if any(repeat.first <= check.launch < repeat.last for repeat in plan.repeats):
        return False
    if max(len(check.inputs), len(check.outputs)) > len(launch.args):  # an array is made for each
        return False
    for argument in (*(one.argument for one in check.inputs), *(one.argument for one in check.outputs)):
        if argument >= len(launch.args) or not may_be_tried(plan, launch.args[argument]):
            return False
    sizes = [(one, math.prod(plan.buffers[launch.args[one.argument]].shape)) for one in check.outputs]
    return all(len(one.elements) and int(one.elements["at"].max()) < size for one, size in sizes)


def may_be_tried(plan: Plan, position: int) -> bool:
    """Whether a test may write and read a buffer: not a weight, and not a state, whose memory is a context's."""
    buffer = plan.buffers[position]
    if buffer.kind not in (INPUT, OUTPUT, TEMP) or buffer.dtype not in TYPES:
        return False
    return math.prod(buffer.shape) < MOST_ELEMENTS and buffer.name not in {state.input for state in plan.states}
