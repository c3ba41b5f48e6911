"""States of a model in its C program: tensors in the arena that the next run gets from this one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gpucomp.artifact.plan import Buffer, Plan
from gpucomp.ir.state import State
from gpucomp.lazy_dataclass import dataclass


@dataclass(frozen=True)
class StateRow:
    """The state is input ``input`` of the plan. ``offset`` is behind the first state.

    One that each run makes as a whole is output ``output`` of the plan, and has two pieces of memory, which take turns: ``other``
    is the offset of the second. Of one that a run changes in place these are -1.
    """

    name: str
    input: int
    output: int
    offset: int
    other: int


def memory_of(plan: Plan, state: State) -> tuple[int, int]:
    """The positions of the state among the plan's inputs and outputs; -1 for an output that it has not."""
    names = [plan.buffers[position].name for position in plan.inputs]
    output = plan.output_names.index(state.output) if state.output in plan.output_names else -1
    return names.index(state.input), output


def rows_of(
    plan: Plan, nbytes: Callable[[Buffer], int], total: Callable[[int, int], int]
) -> tuple[list[StateRow], int]:
    """The states, one after the other, and their bytes. ``total`` adds the bytes of one, rounded up, to an offset."""
    found: list[StateRow] = []
    at = total(-1, 0)
    for state in plan.states:
        number, output = memory_of(plan, state)
        size = nbytes(plan.buffers[plan.inputs[number]])
        after = total(at, size)
        found.append(StateRow(state.input, number, output, at, after if output >= 0 else -1))
        at = total(after, size) if output >= 0 else after
    return found, at


def problems_of(plan: Plan, *, one_size: bool) -> Iterator[str]:
    """What states do that C code does not."""
    growing = {state.dim: state for state in plan.states if state.grows}
    for state in plan.states:
        number, output = memory_of(plan, state)
        if state.grows and one_size:
            yield f"state {state.input!r} grows: give its dimension a range with --shapes"
        elif state.grows and state.rows != growing[state.dim].rows:
            yield f"state {state.input!r} grows by other numbers of rows than {growing[state.dim].input!r}"
        elif output >= 0 and plan.buffers[plan.outputs[output]].shape != plan.buffers[plan.inputs[number]].shape:
            yield f"state {state.input!r} has another shape after each run, and is made as a whole: {state.why}"
    if len(growing) > 1:
        yield f"its states grow along {len(growing)} dimensions, and C code counts the rows of one"
