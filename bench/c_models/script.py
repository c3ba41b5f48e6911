"""Runs of a model in a file that programs of C and of Python read (script.h), and the results that they write."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

Arrays = Mapping[str, np.ndarray]
LINE, WORD = 64, 8  # bytes that the content of an input, and every number, are aligned to


@dataclass(frozen=True)
class Step:
    """One run. ``outputs`` are those that are expected; ``anew``: the states begin anew before it."""

    sizes: Mapping[str, int]
    anew: bool
    inputs: Arrays
    outputs: Arrays


@dataclass(frozen=True)
class Order:
    """Names in the order in which the compiled model has them."""

    sizes: Sequence[str]
    inputs: Sequence[str]
    outputs: Sequence[str]


def write(path: Path, steps: Sequence[Step], order: Order) -> None:
    """Write the sizes and inputs of ``steps``, and the shapes of their outputs."""
    content = bytearray()

    def words(*numbers: int) -> None:
        content.extend(np.array(numbers, np.int64).tobytes())

    words(len(steps))
    for step in steps:
        words(step.anew, len(order.sizes), *(step.sizes[name] for name in order.sizes))
        words(len(order.inputs), len(order.outputs))
        for name in order.inputs:
            array = step.inputs[name]
            words(array.ndim, *array.shape, array.nbytes)
            content.extend(bytes(-len(content) % LINE))
            content.extend(array.tobytes())
            content.extend(bytes(-len(content) % WORD))
        for name in order.outputs:
            array = step.outputs[name]
            words(array.ndim, *array.shape, array.nbytes)
    path.write_bytes(content)


def read(path: Path, dtypes: Sequence[np.dtype]) -> Iterator[tuple[bool, list[np.ndarray], list[tuple[int, ...]]]]:
    """For each run whether the states begin anew, the inputs, and the shapes of the outputs."""
    content = path.read_bytes()
    numbers = np.frombuffer(content, np.int64, len(content) // WORD)
    at = 0

    def words(count: int) -> tuple[int, ...]:
        nonlocal at
        at += count
        return tuple(numbers[at - count : at].tolist())

    (count,) = words(1)
    for _ in range(count):
        anew, sizes = words(2)
        words(sizes)
        inputs, outputs = words(2)
        arrays = []
        for k in range(inputs):
            shape, (nbytes,) = words(*words(1)), words(1)
            start = -(-at * WORD // LINE) * LINE
            arrays.append(np.frombuffer(content, dtypes[k], math.prod(shape), start).reshape(shape))
            at = (start + nbytes + WORD - 1) // WORD
        shapes = []
        for _ in range(outputs):
            shapes.append(words(*words(1)))
            words(1)
        yield bool(anew), arrays, shapes


def results(path: Path, steps: Sequence[Step], order: Order) -> list[dict[str, np.ndarray]]:
    """The outputs that a program wrote, one after the other: of the shapes and types that are expected."""
    content = path.read_bytes()
    found: list[dict[str, np.ndarray]] = []
    at = 0
    for step in steps:
        found.append({})
        for name in order.outputs:
            like = step.outputs[name]
            found[-1][name] = np.frombuffer(content, like.dtype, math.prod(like.shape), at).reshape(like.shape)
            at += like.nbytes
    assert at == len(content), f"{path}: {at} bytes expected, found {len(content)}"
    return found
