"""Loops of kernels: which states are updated in place, and that a plan executed by numpy gives what the operator says."""

from __future__ import annotations

import numpy as np
import pytest

from gpucomp import ops
from gpucomp.artifact.plan import INPUT, OUTPUT, TEMP, WEIGHT
from gpucomp.device.limits import Limits
from gpucomp.device.target import Target
from gpucomp.frontend.onnx.repeat import repeat
from gpucomp.ir import Graph, constant, verify
from gpucomp.ir.graph import input_value
from gpucomp.ir.types import DTYPES, F32, TensorType
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.interpreter import run_steps, update
from gpucomp.kernel.partition import partition
from gpucomp.kernel.repeat import apart, expanded
from gpucomp.kernel.source import KernelSource
from gpucomp.kernel.step import KernelStep, RepeatStep, with_counts
from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.planning import Rendered, make_plan
from gpucomp.rewrite.bodies import names_in_bodies, with_bodies
from gpucomp.rewrite.pipeline import run_pipeline
from gpucomp.runtime.repeats import in_order, moving_arguments
from gpucomp.schedule.choose import Choice
from tests.graphs import interpret

TIME, SIZE = 5, 7
RNG = np.random.default_rng(0)
WEIGHT_ARRAY = (RNG.standard_normal((SIZE, SIZE)) / 3).astype(np.float32)


def tensor(label, *shape):
    return input_value(label, TensorType(F32, shape))


def looped(step, states, *, reverse=False, out_reverse=False, rows=1):
    """The graph of a loop over x [TIME, SIZE] with so many states [1, SIZE], h0, h1 ..."""
    x = tensor("x", TIME, 1, SIZE)
    initial = [tensor(f"h{k}", 1, SIZE) for k in range(states)]
    found = repeat(TIME, initial, [(x, reverse)], step, (out_reverse,) * rows)
    return Graph((x, *initial), tuple(found))


def matmul(x):
    return ops.MatMul(x, constant(WEIGHT_ARRAY))


def recurrent(state, slices):
    """The state is read whole by a product, and written by the kernel after it."""
    total = ops.Add(slices[0], matmul(state[0]))
    h = ops.Tanh(
        ops.Add(total, ops.Slice(ops.Concat(total, total, axis=1), starts=(0, 3), steps=(1, 1), sizes=(1, SIZE)))
    )
    return (h,), (h,)


def product(state, slices):
    """The kernel that writes the state reads all of it for each element."""
    h = ops.Tanh(ops.Add(slices[0], matmul(state[0])))
    return (h,), (h,)


def running(state, slices):
    h = ops.Max(state[0], slices[0])
    return (h,), (ops.Add(h, slices[0]),)


def turned(state, slices):
    """Each element of the new state is made of another one of the old."""
    h = ops.Add(ops.Slice(state[0], starts=(0, SIZE - 1), steps=(1, -1), sizes=(1, SIZE)), slices[0])
    return (h,), (h,)


def exchanged(state, slices):
    return (state[1], state[0]), (ops.Add(state[0], slices[0]),)


def shifted(state, slices):
    return (slices[0], state[0]), (state[1],)


def doubled(state, slices):
    h = ops.Add(state[0], ops.Mul(slices[0], state[1]))
    return (h, h), (h,)


def crossed(state, slices):
    """The second state reads the first before and after its step."""
    first = ops.Add(state[0], slices[0])
    return (first, ops.Mul(ops.Add(matmul(first), state[0]), state[1])), (first,)


def settled(state, slices):
    return (ops.Add(state[0], slices[0]), constant(np.ones((1, SIZE), np.float32))), (state[1],)


CASES = {  # the loop, its states, and the copies at the end of a step
    "a product reads the state before": (recurrent, 1, 0),
    "a product reads the state it makes": (product, 1, 1),
    "the same element": (running, 1, 0),
    "other elements": (turned, 1, 1),
    "states change places": (exchanged, 2, 1),
    "a slice becomes a state": (shifted, 2, 2),
    "one value for two states": (doubled, 2, None),
    "read before and after": (crossed, 2, None),
    "a constant becomes a state": (settled, 2, None),
}


def lowered(graph):
    verify(graph)
    return expanded(partition(graph), partition)


@pytest.mark.parametrize("case", CASES)
def test_states_are_written_in_place_where_nothing_reads_them_afterwards(case):
    step, states, copies = CASES[case]
    steps = lowered(looped(step, states))

    found = [s for s in steps if "_state" in s.name]

    assert copies is None or len(found) == copies


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("out_reverse", [False, True])
def test_a_plan_of_a_loop_computes_what_the_operator_does(case, reverse, out_reverse):
    step, states, _ = CASES[case]
    graph = looped(step, states, reverse=reverse, out_reverse=out_reverse)
    inputs = {v.attrs["label"]: RNG.standard_normal(v.shape).astype(np.float32) for v in graph.inputs}
    expected = interpret(graph, inputs)

    for actual, wanted in zip(executed(graph, lowered(graph), inputs), expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5)
    for actual, wanted in zip(run_steps(graph, lowered(graph), inputs), expected, strict=True):
        np.testing.assert_array_equal(actual, wanted)


def test_what_is_read_by_every_step_keeps_its_memory():
    """An operand that dies in the loop, the only one of its size: a result of the body would like to have its memory."""
    x = tensor("x", TIME, 1, SIZE)
    outer = ops.Tanh(matmul(tensor("u", 1, SIZE)))

    def step(state, slices):
        made = matmul(ops.Add(slices[0], state[0]))
        h = ops.Tanh(ops.Add(outer, made))
        return (h,), (matmul(h),)

    found = repeat(TIME, [tensor("h0", 1, SIZE)], [(x, False)], step, (False,))
    graph = Graph((x, outer.inputs[0].inputs[0], found[0].inputs[0]), tuple(found))
    inputs = {v.attrs["label"]: RNG.standard_normal(v.shape).astype(np.float32) for v in graph.inputs}

    for actual, wanted in zip(executed(graph, lowered(graph), inputs), interpret(graph, inputs), strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5)


def test_two_states_of_one_initial_value_are_filled_by_one_kernel():
    zeros = constant(np.zeros((1, SIZE), np.float32))
    x = tensor("x", TIME, 1, SIZE)
    found = repeat(
        TIME, [zeros, zeros], [(x, False)], lambda s, v: ((ops.Add(s[0], v[0]), ops.Sub(s[1], v[0])), ()), ()
    )

    steps = lowered(Graph((x,), tuple(found)))

    assert [len(s.outputs) for s in steps if "_begin" in s.name] == [2]


def test_steps_of_a_loop_count_as_often_as_they_run():
    steps = lowered(looped(recurrent, 1))

    counts = {s.name: count for s, count in with_counts(steps)}

    (begin,) = [s for s in steps if isinstance(s, RepeatStep)]
    inside = steps[steps.index(begin) + 1 :][: begin.length]
    assert {counts[s.name] for s in inside} == {TIME}
    assert {counts[s.name] for s in steps if s not in inside} == {1}
    assert apart(steps) == [s for s in steps if s not in inside and s is not begin and "_begin" not in s.name]


def test_passes_run_on_bodies():
    graph = looped(
        lambda s, v: ((ops.Transpose(ops.Transpose(ops.Add(s[0], v[0]), perm=(1, 0)), perm=(1, 0)),), ()), 1, rows=0
    )

    after = with_bodies(graph, run_pipeline)

    assert "Transpose" in names_in_bodies(graph)
    assert "Transpose" not in names_in_bodies(after)
    assert with_bodies(after, lambda body: body) is after


def executed(graph, steps, inputs):
    """The plan of ``steps``, its launches run in order by numpy on one poisoned arena."""
    rendered = {
        s: Rendered(KernelSource(s.name, "cuda", "", Geometry((1, 1, 1))), Choice({}, "default", FAMILIES["loops"]))
        for s in steps
        if isinstance(s, KernelStep)
    }
    plan, weights = make_plan(graph, steps, rendered, Target("t", "cuda", "", "cuda", Limits(), alignment=64))
    arena, memory = np.full(plan.arena_bytes, 0xFF, np.uint8), []
    for buffer in plan.buffers:
        dtype = DTYPES[buffer.dtype].numpy
        if buffer.kind == TEMP:
            memory.append(arena[buffer.offset : buffer.offset + buffer.nbytes].view(dtype).reshape(buffer.shape))
        else:
            given = {INPUT: inputs, WEIGHT: weights}.get(buffer.kind, {}).get(buffer.name)
            memory.append(np.full(buffer.shape, np.nan, np.float32) if given is None else given)
    by_name = {s.name: s for s in steps}
    for number, step in in_order(plan):
        launch = plan.launches[number]
        kernel = by_name[launch.name].kernel
        arrays = [memory[a] for a in launch.args]
        for moved in moving_arguments(plan, number):
            at, type = moved.start + step * moved.advance, kernel.params[moved.index]
            part = arrays[moved.index].reshape(-1).view(np.uint8)[at : at + abs(moved.advance)]
            arrays[moved.index] = part.view(type.dtype.numpy).reshape(type.shape)
        operands = arrays[: launch.inputs]
        if len(kernel.stores) > 1:  # kernels read a point's operands before they write its first result, numpy does not
            operands = [a.copy() for a in operands]
        update(kernel, operands, arrays[launch.inputs :])
    assert OUTPUT in {b.kind for b in plan.buffers}
    return [memory[o] for o in plan.outputs]
