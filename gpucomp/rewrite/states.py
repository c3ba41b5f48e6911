"""States: inputs of a decoder that the next run gets from the outputs of this one. Finds them, and updates them in place.

append   output Concat(state, rows)          ->  output Append(buffer, rows, at=valid), read as Slice(buffer, 0 .. valid + rows)
update   output ScatterElements(state, ...)  ->  the same, in the memory of the state; so for ScatterND

States of f32 that are so updated can be kept in 16 bits: what is stored is rounded, and readers get f32 again.

The buffer has room for all rows that the range of the dimension allows. Both rules are right because nothing else reads the
state: what reads the result sees it as before. An append changes no valid row, so a run that stops halfway leaves the state
as it was. The memory of an update is shared only if the kernel that stores it reads no other element of the state than the one
that it stores, and is the only one that reads it: ``gpucomp.kernel.states`` looks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from gpucomp import ops
from gpucomp.errors import UnsupportedError, UsageError, quote
from gpucomp.ir.dim import Dim
from gpucomp.ir.graph import Graph, Input, Value, input_value
from gpucomp.ir.polynomial import Symbol
from gpucomp.ir.precision import STATES_PRECISIONS
from gpucomp.ir.size import Size, same, same_shape
from gpucomp.ir.state import State
from gpucomp.ir.types import BF16, F16, F32, NAMED, DType, TensorType

# how exporters name a state and what becomes of it
CONVENTIONS = (
    ("past_key_values*", "present*"),
    ("past_key_values*", "present_key_values*"),
    ("past*", "present*"),
    ("cache*", "new_cache*"),
    ("*_in", "*_out"),
    ("in_*", "out_*"),
    ("*", "*N"),  # state, stateN
    ("*", "new_*"),
    ("*", "next_*"),
    ("*0", "*n"),  # h0, hn
    ("*", "*n"),  # h, hn
)
AUTO = "auto"
UPDATES = (ops.ScatterElements, ops.ScatterND)
STORING = ("none", "max", "min")  # reductions whose results are among their operands: rounded once
Given = Mapping[str, str] | str | Sequence[State] | None
DTYPES = dict(zip(STATES_PRECISIONS, (F32, F16, BF16), strict=True))
Kept = str | Mapping[str, str]  # of STATES_PRECISIONS; or the name of each input's element type


def pairs_of(states: Given, inputs: Sequence[str], outputs: Sequence[str]) -> dict[str, str]:
    """The states among ``inputs``, with the output that each becomes. A ``*`` stands for the same text in both names.

    Raises ``UsageError`` (GPC2040) for a name that the model lacks, a pattern that fits nothing, or an output of two states.
    """
    if states is None:
        return {}
    if not isinstance(states, str | Mapping):
        return {state.input: state.output for state in states}
    if isinstance(states, str):
        if states != AUTO:
            raise UsageError(
                f"states: {AUTO!r}, or the inputs with their outputs ({{'past.*': 'present.*'}}) expected, found {quote(states)}",
                code="GPC2040",
            )
        return _conventional(inputs, outputs)
    found: dict[str, str] = {}
    for pattern, result in states.items():
        pairs = _matching(pattern, result, inputs)
        if not pairs:
            raise UsageError(
                f"states: the model has no input {quote(pattern)}; its inputs are {', '.join(map(quote, inputs))}",
                code="GPC2040",
            )
        for name, output in pairs.items():
            if output not in outputs:
                raise UsageError(
                    f"states: input {quote(name)} becomes {quote(output)}, but the model's outputs are "
                    f"{', '.join(map(quote, outputs))}",
                    code="GPC2040",
                )
            if output in found.values():
                raise UsageError(f"states: output {quote(output)} is that of two inputs", code="GPC2040")
            found[name] = output
    return found


def _conventional(inputs: Sequence[str], outputs: Sequence[str]) -> dict[str, str]:
    """The pairs that have names by convention. Raises ``UsageError`` (GPC2040) if there are none."""
    found: dict[str, str] = {}
    for pattern, result in CONVENTIONS:
        for name, output in _matching(pattern, result, inputs).items():
            if name not in found and output in outputs and output not in found.values():
                found[name] = output
    if not found:
        raise UsageError(
            "states: no input and output have names such as past.* and present.*; give them: states={'h': 'h_out'}",
            code="GPC2040",
        )
    return {name: found[name] for name in inputs if name in found}


def _matching(pattern: str, result: str, names: Sequence[str]) -> dict[str, str]:
    """The names that fit ``pattern``, and ``result`` with what its ``*`` stands for."""
    wanted = re.compile(re.escape(pattern).replace(r"\*", "(.*)", 1), re.DOTALL)
    matches = ((name, wanted.fullmatch(name)) for name in names)
    return {name: result.replace("*", "".join(match.groups()), 1) for name, match in matches if match is not None}


def with_states(
    graph: Graph,
    states: Given,
    dims: Mapping[str, Dim] = MappingProxyType({}),
    precision: Kept = "fp32",
) -> Graph:
    """``graph`` with its states, which are updated in place where that is proven.

    ``states`` are as for ``pairs_of``, or those of a program for any size of the same model, which this graph is for one size
    of. ``dims`` has the dimensions of the graph's sizes. A ``precision`` is that of all f32 states that are updated in place,
    element types are those of states of such a program. Raises ``UsageError`` (GPC2040) as ``pairs_of``, for a state that grows
    along an axis that is no dimension, and for a ``precision`` that no state can have.
    """
    of_program = () if states is None or isinstance(states, str | Mapping) else states
    known = {state.input: state for state in of_program}
    found = _found(graph, pairs_of(states, graph.input_names, graph.output_names), known, dims, states == AUTO)
    if not found:
        return graph
    graph = _rounded(graph, found, _dtypes(graph, found, precision))
    inputs = dict(zip(graph.input_names, graph.inputs, strict=True))
    memory: dict[str, Value] = {}  # by outputs' names
    for state in found:
        if state.grows:
            past = inputs[state.input]
            shape = tuple(state.capacity if axis == state.axis else n for axis, n in enumerate(past.shape))
            inputs[state.input] = memory[state.output] = input_value(state.input, TensorType(past.type.dtype, shape))
    return replace(_appended(graph, memory, found), inputs=tuple(inputs.values()), states=tuple(found))


def _found(
    graph: Graph, pairs: Mapping[str, str], known: Mapping[str, State], dims: Mapping[str, Dim], conventional: bool
) -> list[State]:
    """The states of ``pairs``. One by ``conventional`` names that can follow no run is none."""
    found: list[State] = []
    for name, output in pairs.items():
        past, result = _values(graph, name, output)
        why = _refusal(graph, past, result)
        state = _again(known[name], past, result, why) if name in known else _state(past, result, why, dims)
        other = next((one for one in found if one.dim == state.dim and not same(one.rows, state.rows)), None)
        if other is not None:
            state = State(name, output, why=f"it grows by {state.rows} rows, {quote(other.input)} by {other.rows}")
        if not state.grows and name not in known and not _can_follow(past, result):
            if conventional:
                continue
            raise UsageError(
                f"states: input {quote(name)} is {past.type}, but {quote(output)} is {result.type}, which cannot take its place",
                code="GPC2040",
            )
        found.append(replace(state, input=name, output=output))
    return found


def _values(graph: Graph, name: str, output: str) -> tuple[Value, Value]:
    return graph.inputs[graph.input_names.index(name)], graph.outputs[graph.output_names.index(output)]


def _dtypes(graph: Graph, states: Sequence[State], precision: Kept) -> dict[str, DType]:
    """In which types states are kept that are of another type in the model."""
    types = {state.input: _values(graph, state.input, state.output)[0].type.dtype for state in states}
    if not isinstance(precision, str):
        kept = {name: NAMED[precision[name]] for name in types if name in precision}
        return {name: dtype for name, dtype in kept.items() if dtype is not types[name]}
    if precision not in DTYPES:
        raise UsageError(f"states_precision {quote(precision)}: {', '.join(DTYPES)} expected", code="GPC2040")
    if DTYPES[precision] is F32:
        return {}
    why = {state.input: _stays(graph, state, types[state.input]) for state in states}
    found = {name: DTYPES[precision] for name in types if not why[name]}
    if not found:
        told = "; ".join(f"{quote(name)}: {text}" for name, text in list(why.items())[:3])
        raise UsageError(
            f"states_precision {precision}: f32 states that are updated in place expected, there are none ({told})",
            code="GPC2040",
        )
    return found


def _stays(graph: Graph, state: State, dtype: DType) -> str:
    """Why a state is kept as the model has it; empty if it can be rounded as it is stored."""
    if dtype is not F32:
        return f"it is {dtype}"
    reduction = _values(graph, state.input, state.output)[1].attrs.get("reduction", "none")
    return state.why or ("" if reduction in STORING else f"{reduction} would be computed in 16 bits")


def _rounded(graph: Graph, states: Sequence[State], dtypes: Mapping[str, DType]) -> Graph:
    """``graph`` with states in other types: what is stored in them is rounded, and readers get what was stored.

    A result that is no store of its own, as where no row is valid yet, is rounded as a whole.
    """
    if not dtypes:
        return graph
    inputs = dict(zip(graph.input_names, graph.inputs, strict=True))
    outputs = dict(zip(graph.output_names, graph.outputs, strict=True))
    made: dict[Value, Value] = {}  # what takes the place of values
    results: dict[Value, tuple[str, Value, bool]] = {}  # the output, its memory, and whether it stores there
    for state in states:
        if state.input in dtypes:
            past, result = inputs[state.input], outputs[state.output]
            memory = input_value(state.input, TensorType(dtypes[state.input], past.shape))
            results[result] = state.output, memory, not _refusal(graph, past, result)
            inputs[state.input], made[past] = memory, ops.Cast(memory, to=past.type.dtype, name=state.input)
    for node in graph.nodes():
        current = node.with_inputs(made.get(v, v) for v in node.inputs)
        if (found := results.get(node[0])) is not None:
            output, memory, stores = found
            old, to = node[0].type.dtype, memory.type.dtype
            rows = (ops.Cast(v, to=to) if v.type.dtype is old else v for v in current.inputs[1:])
            whole = node.with_inputs([memory, *rows])[0] if stores else ops.Cast(current[0], to=to, name=node.name)
            outputs[output], made[node[0]] = whole, ops.Cast(whole, to=old, name=node.name)
        elif current is not node:
            made.update(zip(node.values, current.values, strict=True))
    rounded = graph.with_outputs(made.get(value, value) for value in outputs.values())
    return replace(rounded, inputs=tuple(inputs.values()))


def _state(past: Value, result: Value, why: str, dims: Mapping[str, Dim]) -> State:
    """What becomes of a state, without its names. ``why`` it cannot be updated in place, or empty."""
    if why or result.op in UPDATES:
        return State("", "", why=why)
    axis = result.attrs["axis"]
    name = _dim(past.shape[axis])
    if name is not None:
        return State("", "", axis, name, dims[name].high, result.shape[axis] - past.shape[axis])
    if not isinstance(past.shape[axis], Size):
        raise UsageError(
            f"states: {quote(past.attrs['label'])} grows along its axis {axis}: a name or a gpucomp.Dim expected for its size "
            f"there, found {past.shape[axis]}",
            code="GPC2040",
        )
    return State("", "", why=f"its axis {axis} is {past.shape[axis]}, the name of a dimension expected")


def _again(state: State, past: Value, result: Value, why: str) -> State:
    """What ``state`` of a program for any size is at one size: the same, or ``UnsupportedError`` (GPC4015) says ``why`` not.

    Where no row is valid, all of the result is new, whatever made it.
    """
    if not state.in_place:
        return state
    if why and not (state.grows and past.shape[state.axis] == 0):
        raise UnsupportedError(
            f"state {quote(state.input)} cannot be updated in place at these sizes: {why}", code="GPC4015"
        )
    return replace(state, rows=result.shape[state.axis] - past.shape[state.axis]) if state.grows else state


def _can_follow(past: Value, result: Value) -> bool:
    """Whether ``result`` can be the state of the next run: of its type, and of its shape but for sizes that runs decide."""
    if past.type.dtype is not result.type.dtype or len(past.shape) != len(result.shape):
        return False
    return all(isinstance(n, Size) or same(n, m) for n, m in zip(past.shape, result.shape, strict=True))


def _dim(extent: Any) -> str | None:
    """The dimension whose size ``extent`` is."""
    if isinstance(extent, Size) and len(extent.terms) == 1:
        ((atoms, factor),) = extent.terms.items()
        if len(atoms) == 1 and isinstance(atoms[0], Symbol) and factor == atoms[0].step:
            return atoms[0].name
    return None


def _refusal(graph: Graph, past: Value, result: Value) -> str:
    """Why ``result`` is not ``past`` with rows appended or elements updated in its memory; empty if it is."""
    if same_shape(past.shape, result.shape):
        if result.op not in UPDATES or result.inputs[0] is not past:
            return f"it is made by {result.op}, a scatter into the state expected"
    elif result.op is not ops.Concat or result.inputs[0] is not past:
        return f"it is made by {result.op}, a Concat of the state and new rows expected"
    readers = [node for node in graph.nodes() if past in node.inputs]
    if len(readers) > 1 or result.inputs.count(past) > 1:
        return f"{next((str(node.op) for node in readers if node is not result.node), 'Concat')} reads it too"
    if past in graph.outputs or graph.outputs.count(result) > 1:
        return "it is an output as well"
    return ""


def _appended(graph: Graph, memory: Mapping[str, Value], states: Sequence[State]) -> Graph:
    """``graph`` with rows appended in ``memory``, by the outputs' names: readers get the rows that are valid then.

    A result that is no Concat of a state is all new rows.
    """
    outputs = dict(zip(graph.output_names, graph.outputs, strict=True))
    grown = {outputs[one.output]: one for one in states if one.grows and outputs[one.output].op is ops.Concat}
    grown = {value: one for value, one in grown.items() if _is_input(value.inputs[0], one.input)}
    made: dict[Value, Value] = {}
    for node in graph.nodes():
        current = node.with_inputs(made.get(v, v) for v in node.inputs)
        if (state := grown.get(node[0])) is not None:
            _, *parts = current.inputs
            rows = parts[0] if len(parts) == 1 else ops.Concat(*parts, axis=state.axis, name=node.name)
            valid, shape = node.inputs[0].shape[state.axis], node.types[0].shape
            whole = ops.Append(memory[state.output], rows, axis=state.axis, at=valid, name=node.name)
            outputs[state.output] = whole
            first = {"starts": (0,) * len(shape), "steps": (1,) * len(shape), "sizes": shape}
            made[node[0]] = ops.Slice(whole, **first, name=node.name)
        elif current is not node:
            made.update(zip(node.values, current.values, strict=True))
    for state in states:
        result = outputs[state.output]
        if state.grows and result.op is not ops.Append:
            rows = made.get(result, result)
            outputs[state.output] = ops.Append(memory[state.output], rows, axis=state.axis, at=0, name=result.node.name)
    return graph.with_outputs(made.get(value, value) for value in outputs.values())


def _is_input(value: Value, label: str) -> bool:
    return value.op is Input and value.attrs["label"] == label
