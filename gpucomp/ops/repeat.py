"""A loop: ``Repeat`` runs a body, which is a graph, a number of times. ``Copy`` stores a value a second time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpucomp.ir.graph import Graph, Value
from gpucomp.ir.size import Size, same_shape
from gpucomp.ir.types import TensorType
from gpucomp.ops.registry import elementwise, op

Copy = elementwise("Copy", lambda x: x, lambda x: x.copy(), operands=1)


@op("Repeat")
def Repeat(
    *operands: TensorType,
    body: Graph,
    count: int | Size,
    states: int,
    scans: int,
    reverse: tuple[bool, ...] = (),
    out_reverse: tuple[bool, ...] = (),
    first: Graph | None = None,
) -> tuple[TensorType, ...]:
    """Run ``body`` ``count`` times.

    The operands are, in the order of the body's inputs

        states   initial values; a step reads what the step before gave
        scans    a step reads one slice along axis 0, the last one first where ``reverse``
        others   each step reads them whole

    The body's outputs are the new states, then rows. The results are the last states, then the rows of all steps, stacked
    along a new axis 0, the last one first where ``out_reverse``.

    ``first`` computes the same as ``body`` from the initial states, with less work. There is at least one step then.
    """
    rows = len(body.outputs) - states
    if len(operands) != len(body.inputs):
        raise ValueError(f"{len(body.inputs)} operands expected, {len(operands)} given")
    if min(states, scans, rows, len(operands) - states - scans) < 0 or not body.outputs:
        raise ValueError(
            f"{states} states and {scans} scans, but {len(operands)} operands, {len(body.outputs)} results"
        )
    if len(reverse) != scans or len(out_reverse) != rows:
        raise ValueError(f"{scans} and {rows} directions expected, {len(reverse)} and {len(out_reverse)} given")
    if not isinstance(count, Size) and count < (0 if first is None else 1):
        raise ValueError(f"{count} steps")
    if first is not None and not (_alike(first.inputs, body.inputs) and _alike(first.outputs, body.outputs)):
        raise ValueError("a first step with inputs or outputs of other types")
    for k, (given, value) in enumerate(zip(operands, body.inputs, strict=True)):
        scanned = states <= k < states + scans
        expected = _stacked(value.type, count) if scanned else value.type
        if given.dtype is not expected.dtype or not same_shape(given.shape, expected.shape):
            raise ValueError(f"operand {k}: {expected} expected")
    for k, (before, after) in enumerate(zip(body.inputs[:states], body.outputs[:states], strict=True)):
        if before.type.dtype is not after.type.dtype or not same_shape(before.shape, after.shape):
            raise ValueError(f"state {k}: {before.type} becomes {after.type}")
    return (*(v.type for v in body.inputs[:states]), *(_stacked(v.type, count) for v in body.outputs[states:]))


def _alike(some: Sequence[Value], others: Sequence[Value]) -> bool:
    return len(some) == len(others) and all(
        a.type.dtype is b.type.dtype and same_shape(a.shape, b.shape) for a, b in zip(some, others, strict=True)
    )


def _stacked(row: TensorType, count: int | Size) -> TensorType:
    return TensorType(row.dtype, (count, *row.shape))  # type: ignore[arg-type]


@Repeat.define("reference")
def _repeat_reference(
    *arrays: np.ndarray,
    body: Graph,
    count: int | Size,
    states: int,
    scans: int,
    reverse: Sequence[bool] = (),
    out_reverse: Sequence[bool] = (),
    first: Graph | None = None,
) -> tuple[np.ndarray, ...]:
    from gpucomp.ops.interpreter import evaluate  # which imports all operators

    steps = len(arrays[states]) if scans else int(count)
    state: list[np.ndarray] = list(arrays[:states])
    stacks: list[np.ndarray] = [np.zeros((steps, *v.shape), v.type.dtype.numpy) for v in body.outputs[states:]]
    for step in range(steps):
        slices = [
            np.asarray(x[steps - 1 - step if backward else step])
            for x, backward in zip(arrays[states : states + scans], reverse, strict=True)
        ]
        now = body if first is None or step else first
        given: dict[Any, np.ndarray] = dict(zip(now.inputs, (*state, *slices, *arrays[states + scans :]), strict=True))
        found = evaluate(now.outputs, given)
        state = found[:states]
        for stack, row, backward in zip(stacks, found[states:], out_reverse, strict=True):
            stack[steps - 1 - step if backward else step] = row
    return (*state, *stacks)
