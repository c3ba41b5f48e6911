"""Which states kernels update in place. ``gpucomp.rewrite.states`` finds those that the graph allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpucomp.ir.graph import Graph, Value
from gpucomp.kernel import Scatter
from gpucomp.kernel.forms.scatter import copied_in_place
from gpucomp.kernel.step import Step, is_step_of


def settled(graph: Graph, steps: Sequence[Step]) -> Graph:
    """``graph`` whose states are in place only if the kernels of ``steps`` allow it.

    The one that stores an update must find it in its own place in the state, and no other may read the state.
    """
    inputs = dict(zip(graph.input_names, graph.inputs, strict=True))
    outputs = dict(zip(graph.output_names, graph.outputs, strict=True))
    states = []
    for state in graph.states:
        memory, result = inputs[state.input], outputs[state.output]
        if state.in_place and not state.grows:
            readers = [step for step in steps if memory in step.inputs]
            if len(readers) != 1 or not _updates_in_place(readers[0], memory, result):
                state = replace(state, why="its kernel does not only store elements where they are")
        states.append(state)
    return replace(graph, states=tuple(states)) if tuple(states) != graph.states else graph


def _updates_in_place(step: Step, memory: Value, result: Value) -> bool:
    if not is_step_of(step, Scatter) or step.outputs != (result,) or step.inputs.count(memory) != 1:
        return False
    return copied_in_place(step.kernel) == step.inputs.index(memory)
