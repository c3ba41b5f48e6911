"""Control flow: constant conditions are evaluated, and loops of known length become loops of kernels.

Loops with a body that no kernels can run, or whose state changes its type, are unrolled. Control flow that depends on values
is translated while the model runs, when the values are known (``compose.answering``).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

import numpy as np
import onnx

from gpucomp import ops
from gpucomp.errors import ModelError, ShapeError, UnsupportedError, quote
from gpucomp.frontend.onnx.compose import (
    axis_of,
    concat,
    expand,
    iota,
    is_running,
    move_axis,
    part,
    reshape,
    scalar,
    sources,
    squeeze,
    static,
    unsqueeze,
)
from gpucomp.frontend.onnx.importer import UNKNOWN
from gpucomp.frontend.onnx.repeat import MAX_COUNT, Steps, is_loop
from gpucomp.frontend.onnx.tensors import element_type
from gpucomp.frontend.onnx.translate import Site, translates
from gpucomp.ir import Value, constant, constant_value, topological

MAX_TRIPS = 4096  # steps that are written out, of loops that cannot run as such

Translated = Generator[Any, list[Any], list[Any]]


@translates("If")
def if_then_else(
    condition: Value, *, then_branch: onnx.GraphProto, else_branch: onnx.GraphProto, site: Site
) -> Translated:
    """One branch if the condition is constant. Otherwise both, and a Where between results of equal types."""
    if condition.type.size != 1:
        raise ValueError(f"a condition of one element expected, {condition.type} given")
    decided = static(condition, "condition") if is_running() else constant_value(condition)
    if decided is not None:
        branch = then_branch if decided.reshape(()) else else_branch
        results = yield site.importer.subgraph(branch, [], site)
        return results
    yes = yield _branch(then_branch, condition, site)
    no = yield _branch(else_branch, condition, site)
    if UNKNOWN in yes or UNKNOWN in no:
        return [UNKNOWN] * len(site.outputs)
    if not all(isinstance(v, Value) for v in (*yes, *no)):
        static(condition, "condition")  # there is no Where for sequences
    if len(yes) != len(no) or any(a.type != b.type for a, b in zip(yes, no, strict=True)):
        raise UnsupportedError(
            "branches whose results have different types are not supported if the condition is computed at run time",
            code="GPC4005",
        )
    choose = reshape(condition, ())
    return [a if a is b else ops.Where(choose, a, b) for a, b in zip(yes, no, strict=True)]


def _branch(branch: onnx.GraphProto, condition: Value, site: Site) -> Translated:
    """The results of a branch that may never run. If its shapes do not fit, the condition must be known."""
    try:
        results = yield site.importer.subgraph(branch, [], site)
    except ShapeError as error:
        inputs = sources(condition)
        names = ", ".join(map(quote, inputs[:4])) or "the model"
        raise UnsupportedError(
            f"its condition must be known at compile time, but depends on the value of {names}: one branch does not fit the "
            f"shapes of the inputs ({error.message})",
            inputs=inputs,
            code="GPC4005",
        ) from error
    return results


def _stacked(rows: Sequence[Value], axis: int = 0) -> Value:
    """A scan output. Raises ``ModelError`` if a row is a sequence or an optional."""
    if not all(isinstance(row, Value) for row in rows):
        raise ModelError("a scan output of the body is not a tensor", code="GPC3015")
    axis = axis_of(axis, len(rows[0].shape) + 1)
    return concat([unsqueeze(row, (axis,)) for row in rows], axis)


def _empty_scan(graph: onnx.GraphProto, position: int) -> Value:
    """A stack of zero rows, of the type that the body declares."""
    info = graph.output[position].type.tensor_type
    if not info.HasField("shape") or any(not d.HasField("dim_value") for d in info.shape.dim):
        raise UnsupportedError(
            "a loop that never runs is not supported if its results have no shape in the model", code="GPC4007"
        )
    dtype = element_type(info.elem_type, "scan output")
    return expand(constant(np.zeros((), dtype.numpy)), (0, *(d.dim_value for d in info.shape.dim)))


def _goes_on(body: onnx.GraphProto) -> bool:
    """Whether ``body`` returns its condition unchanged, through Identity nodes only, so that it never ends a loop."""
    before = {
        node.output[0]: node.input[0] for node in body.node if node.op_type == "Identity" and node.input and node.output
    }
    name = body.output[0].name if body.output and len(body.input) > 1 else ""
    for _ in body.node:
        name = before.get(name, name)
    return bool(name) and name == body.input[1].name


def _translated_once(body: onnx.GraphProto, arguments: Sequence[Any], site: Site) -> Translated:
    """The results of ``body`` for ``arguments``; empty if it cannot be translated for any step, without problems then."""
    importer = site.importer
    problems, reasons = dict(importer.problems), list(importer.reasons)
    try:
        results = yield importer.subgraph(body, arguments, site)
    except UnsupportedError as error:
        if error.code == "GPC4006":  # a limit of the whole model
            raise
        results = [UNKNOWN]
    if UNKNOWN in results:
        importer.problems, importer.reasons = problems, reasons
        return []
    return results


def _looped(limit: int | None, state: Sequence[Any], body: onnx.GraphProto, site: Site) -> Translated:
    """The results of a ``Loop`` as a loop of kernels; empty if that is not possible."""
    if limit is None or limit > MAX_COUNT or not is_loop(limit) or is_running() or not _are_values(state):
        return []
    steps = Steps(limit, state, [(expand(constant(np.int64(0)), (limit,)), False)])
    arguments = [*steps.slices, constant(np.bool_(True)), *steps.state]
    results = yield from _translated_once(body, arguments, site)
    going = constant_value(results[0]) if results and isinstance(results[0], Value) else None
    if going is None or not going.all() or not _are_values(results):
        return []
    if steps.slices[0].node in topological(v.node for v in results):
        steps.scanned = ((iota(limit), False),)  # only a loop that reads the number of the step needs them all
    split = 1 + len(state)
    return steps.closed(results[1:split], results[split:], outside=_visible(site)) or []


def _visible(site: Site) -> Iterator[Value]:
    """The values that a body of the node can read by their names."""
    scope = site.scope
    while scope is not None:
        yield from (v for v in scope.values.values() if isinstance(v, Value))
        scope = scope.parent


def _are_values(values: Sequence[Any]) -> bool:
    return all(isinstance(v, Value) for v in values)


@translates("Loop")
def loop(
    trips: Value | None = None, condition: Value | None = None, *carried: Value, body: onnx.GraphProto, site: Site
) -> Translated:
    """A loop if the trip count is a constant and no step ends it, else unrolled.

    Unrolled, the trip count, if there is one, and the condition after every step must be constants.
    """
    limit = None if trips is None else int(scalar(trips, "trip count"))
    going = True if condition is None else bool(scalar(condition, "condition"))
    state: list[Any] = list(carried)
    scans = len(body.output) - 1 - len(state)
    if scans < 0:
        raise ValueError(f"a body of at least {1 + len(state)} outputs expected, {len(body.output)} given")
    if going and (looped := (yield from _looped(limit, state, body, site))):
        return looped
    rows: list[list[Value]] = [[] for _ in range(scans)]
    step = 0
    if going and (limit is None or limit > MAX_TRIPS) and _goes_on(body):
        raise UnsupportedError(f"a loop of more than {MAX_TRIPS} steps cannot be unrolled", code="GPC4007")
    while going and (limit is None or step < limit):
        if step >= MAX_TRIPS:
            raise UnsupportedError(f"a loop of more than {MAX_TRIPS} steps cannot be unrolled", code="GPC4007")
        arguments = [constant(np.int64(step)), constant(np.bool_(True)), *state]
        results = yield site.importer.subgraph(body, arguments, site)
        if UNKNOWN in results:
            return [UNKNOWN] * len(site.outputs)
        if constant_value(results[0]) is None and not is_running():
            raise UnsupportedError("a loop condition that is computed at run time is not supported", code="GPC4005")
        going = bool(scalar(results[0], "condition"))
        state = list(results[1 : 1 + len(state)])
        for collected, row in zip(rows, results[1 + len(state) :], strict=True):
            collected.append(row)
        step += 1
    stacks = [
        _stacked(collected) if collected else _empty_scan(body, 1 + len(state) + k) for k, collected in enumerate(rows)
    ]
    return [*state, *stacks]


def _scanned(
    state: Sequence[Any],
    sequences: Sequence[Value],
    axes: Sequence[int],
    reverse: Sequence[int],
    out_axes: Sequence[int],
    out_reverse: Sequence[int],
    body: onnx.GraphProto,
    site: Site,
) -> Translated:
    """The results of a ``Scan`` as a loop of kernels; empty if that is not possible."""
    length = sequences[0].shape[axes[0]]
    if not is_loop(length) or is_running() or not _are_values(state):
        return []
    scanned = [move_axis(v, a, 0) for v, a in zip(sequences, axes, strict=True)]
    steps = Steps(length, state, [(v, bool(r)) for v, r in zip(scanned, reverse, strict=True)])
    results = yield from _translated_once(body, [*steps.state, *steps.slices], site)
    if not results or not _are_values(results):
        return []
    directions = [bool(r) for r in out_reverse]
    found = steps.closed(results[: len(state)], results[len(state) :], directions, _visible(site))
    if found is None:
        return []
    stacks = zip(found[len(state) :], out_axes, strict=True)
    return [*found[: len(state)], *(move_axis(v, 0, axis_of(a, len(v.shape))) for v, a in stacks)]


@translates("Scan", since=9)
def scan(
    *operands: Value,
    body: onnx.GraphProto,
    num_scan_inputs: int,
    scan_input_axes: tuple[int, ...] | None = None,
    scan_input_directions: tuple[int, ...] | None = None,
    scan_output_axes: tuple[int, ...] | None = None,
    scan_output_directions: tuple[int, ...] | None = None,
    site: Site,
) -> Translated:
    """A loop over the scanned axis, whose length is known from the shape; unrolled if no kernels can run its body."""
    states = len(operands) - num_scan_inputs
    scans = len(body.output) - states
    if num_scan_inputs < 1 or states < 0 or scans < 0:
        raise ValueError(f"num_scan_inputs={num_scan_inputs} of {len(operands)} inputs, {len(body.output)} outputs")
    sequences = operands[states:]
    axes = scan_input_axes or (0,) * num_scan_inputs
    reverse = scan_input_directions or (0,) * num_scan_inputs
    out_axes = scan_output_axes or (0,) * scans
    out_reverse = scan_output_directions or (0,) * scans
    if len(axes) != num_scan_inputs or len(reverse) != num_scan_inputs:
        raise ValueError(f"{num_scan_inputs} input axes and directions expected")
    if len(out_axes) != scans or len(out_reverse) != scans:
        raise ValueError(f"{scans} output axes and directions expected")
    places = [axis_of(a, len(v.shape)) for a, v in zip(axes, sequences, strict=True)]
    lengths = {v.shape[a] for a, v in zip(places, sequences, strict=True)}
    if len(lengths) != 1:
        raise ValueError(f"sequences of one length expected, got {sorted(lengths)}")
    length = lengths.pop()
    if looped := (
        yield from _scanned(operands[:states], sequences, places, reverse, out_axes, out_reverse, body, site)
    ):
        return looped
    if length > MAX_TRIPS:
        raise UnsupportedError(f"a scan of more than {MAX_TRIPS} steps cannot be unrolled", code="GPC4007")
    state: list[Any] = list(operands[:states])
    rows: list[list[Value]] = [[] for _ in range(scans)]
    for step in range(length):
        slices = []
        for value, place, backward in zip(sequences, places, reverse, strict=True):
            slices.append(squeeze(part(value, place, length - 1 - step if backward else step, 1), (place,)))
        results = yield site.importer.subgraph(body, [*state, *slices], site)
        if UNKNOWN in results:
            return [UNKNOWN] * len(site.outputs)
        state = list(results[:states])
        for collected, row in zip(rows, results[states:], strict=True):
            collected.append(row)
    stacks = []
    for k, collected in enumerate(rows):
        if not collected:
            stacks.append(_empty_scan(body, states + k))
            continue
        ordered = collected[::-1] if out_reverse[k] else collected
        stacks.append(_stacked(ordered, out_axes[k]))
    return [*state, *stacks]


@translates("Scan", since=8)
def scan_8(
    lengths: Value | None = None,
    *operands: Value,
    body: onnx.GraphProto,
    num_scan_inputs: int,
    directions: tuple[int, ...] | None = None,
    site: Site,
) -> Translated:
    """Opset 8: every operand has a leading batch axis; each batch is scanned separately."""
    if lengths is not None:
        raise UnsupportedError("sequence lengths of Scan-8 are not supported")
    batch = operands[0].shape[0]
    results: list[list[Any]] = []
    for b in range(batch):
        own = [squeeze(part(v, 0, b, 1), (0,)) for v in operands]
        batch_results = yield from scan(
            *own,
            body=body,
            num_scan_inputs=num_scan_inputs,
            scan_input_directions=directions,
            site=site,
        )
        if UNKNOWN in batch_results:
            return [UNKNOWN] * len(site.outputs)
        results.append(batch_results)
    return [_stacked(column) for column in zip(*results, strict=True)]
