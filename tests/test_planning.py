"""The plan, executed on its own arena by the numpy oracle: offsets, lifetimes and in-place results have to hold."""

from __future__ import annotations

import numpy as np
import pytest

from gpucomp import ops
from gpucomp.artifact.plan import COUNTER, OUTPUT, TEMP, WEIGHT
from gpucomp.device.limits import Limits
from gpucomp.device.target import Target
from gpucomp.ir import Graph, constant
from gpucomp.ir.types import DTYPES
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.interpreter import update
from gpucomp.kernel.partition import partition
from gpucomp.kernel.source import KernelSource
from gpucomp.kernel.step import KernelStep
from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.planning import Rendered, make_plan
from gpucomp.schedule.choose import Choice
from tests.graphs import interpret, random_graph, tensor, weight


def plan_of(graph, geometry=None, alignment=64):
    steps = partition(graph)
    rendered = {
        s: Rendered(
            KernelSource(s.name, "cuda", "", geometry or Geometry((1, 1, 1))), Choice({}, "default", FAMILIES["loops"])
        )
        for s in steps
        if isinstance(s, KernelStep)
    }
    target = Target("t", "cuda", "", "cuda", Limits(), alignment=alignment)
    plan, weights = make_plan(graph, steps, rendered, target)
    return plan, weights, steps


def execute(plan, weights, steps, inputs):
    """Run the launches on one poisoned arena, every temporary a view at its offset."""
    arena = np.full(plan.arena_bytes, 0xFF, np.uint8)
    memory = []
    for buffer in plan.buffers:
        dtype = DTYPES[buffer.dtype].numpy
        if buffer.kind == TEMP:
            memory.append(arena[buffer.offset : buffer.offset + buffer.nbytes].view(dtype).reshape(buffer.shape))
        elif buffer.kind == WEIGHT:
            memory.append(weights[buffer.name])
        elif buffer.kind == OUTPUT:
            memory.append(np.full(buffer.shape, np.nan, np.float32).astype(dtype))
        elif buffer.kind != COUNTER:
            memory.append(inputs[buffer.name])
    by_name = {s.name: s for s in steps}
    for launch in plan.launches:
        kernel = by_name[launch.name].kernel
        operands = [memory[a] for a in launch.args[: launch.inputs]]
        results = [memory[a] for a in launch.args[launch.inputs : launch.inputs + kernel.outputs]]
        update(kernel, operands, results)
    return [memory[o] for o in plan.outputs]


@pytest.mark.parametrize("seed", range(40))
def test_a_plan_computes_what_the_graph_says(seed):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng)
    inputs = {v.attrs["label"]: rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs}

    plan, weights, steps = plan_of(graph)

    for actual, expected in zip(execute(plan, weights, steps, inputs), interpret(graph, inputs), strict=True):
        assert np.abs(actual - expected).max() <= 1e-5 * np.abs(expected).max()


def test_a_result_takes_the_place_of_the_operand_it_replaces():
    rng = np.random.default_rng(0)
    x = tensor("x", 16, 16)
    a = ops.MatMul(x, weight(rng, 16, 16))
    gate = ops.MatMul(ops.Relu(ops.MatMul(x, weight(rng, 16, 16))), weight(rng, 16, 16))
    graph = Graph((x,), (ops.MatMul(ops.Mul(a, gate), weight(rng, 16, 16)),))

    plan, _, _ = plan_of(graph)

    temporaries = [b for b in plan.buffers if b.kind == TEMP]
    assert len(temporaries) == 3
    assert plan.arena_bytes == 2 * 16 * 16 * 4


def scattering(reduction, *, data_again=False):
    """relu(x) with rows added to it, its only temporary beside the result of the scatter."""
    x, updates = tensor("x", 16, 16), tensor("updates", 3, 16)
    data = ops.MatMul(x, constant(np.eye(16, dtype=np.float32)))
    made = ops.ScatterND(data, constant(np.array([[5], [1], [-11]])), updates, reduction=reduction)
    after = ops.MatMul(made, constant(np.eye(16, dtype=np.float32)))
    return Graph((x, updates), (ops.Add(after, data) if data_again else after,))


@pytest.mark.parametrize("reduction", ["none", "add"])
def test_a_scatter_changes_the_memory_of_what_dies_with_it(reduction):
    graph = scattering(reduction)
    rng = np.random.default_rng(0)
    inputs = {"x": rng.standard_normal((16, 16)).astype(np.float32), "updates": np.ones((3, 16), np.float32)}

    plan, weights, steps = plan_of(graph)

    assert [s.kernel.family for s in steps] == ["contraction", "scatter", "contraction"]
    assert plan.arena_bytes == 16 * 16 * 4
    for actual, expected in zip(execute(plan, weights, steps, inputs), interpret(graph, inputs), strict=True):
        assert np.abs(actual - expected).max() <= 1e-5 * np.abs(expected).max()


def test_a_scatter_copies_what_is_read_again():
    plan, _, _ = plan_of(scattering("add", data_again=True))

    assert plan.arena_bytes == 2 * 16 * 16 * 4


def test_an_operand_read_again_later_keeps_its_place():
    rng = np.random.default_rng(0)
    x = tensor("x", 16, 16)
    a = ops.MatMul(x, weight(rng, 16, 16))
    b = ops.Relu(ops.Add(ops.MatMul(a, weight(rng, 16, 16)), a))
    graph = Graph((x,), (ops.MatMul(ops.MatMul(b, weight(rng, 16, 16)), a),))
    inputs = {"x": rng.standard_normal((16, 16)).astype(np.float32)}

    plan, weights, steps = plan_of(graph)

    (actual,), (expected,) = execute(plan, weights, steps, inputs), interpret(graph, inputs)
    assert np.abs(actual - expected).max() <= 1e-5 * np.abs(expected).max()


def test_offsets_are_aligned_and_arena_is_close_to_its_bound():
    graph = random_graph(np.random.default_rng(7))

    plan, _, _ = plan_of(graph, alignment=128)

    assert all(b.offset % 128 == 0 for b in plan.buffers if b.kind == TEMP)
    assert plan.live_bytes <= plan.arena_bytes <= 1.1 * plan.live_bytes


def test_scratch_and_counters_follow_the_kernel_s_own_arguments():
    rng = np.random.default_rng(0)
    x = tensor("x", 5, 7)
    graph = Graph((x,), (ops.MatMul(x, weight(rng, 7, 3)),))

    plan, _, _ = plan_of(graph, Geometry((1, 1, 1), workspace_bytes=640, counter_bytes=16))

    kinds = [plan.buffers[a].kind for a in plan.launches[0].args]
    assert kinds == ["input", "weight", "output", "temp", "counter"]
    assert plan.buffers[plan.launches[0].args[3]].nbytes == 640


def test_a_launch_without_elements_is_left_out():
    x = tensor("x", 0, 7)
    graph = Graph((x,), (ops.Relu(x),))

    plan, _, _ = plan_of(graph, Geometry((0, 1, 1)))

    assert plan.launches == ()
    assert plan.buffers[plan.outputs[0]].shape == (0, 7)


def test_outputs_may_be_inputs_and_weights():
    rng = np.random.default_rng(0)
    x, w = tensor("x", 3), weight(rng, 3)
    graph = Graph((x,), (x, w, ops.Relu(x)))

    plan, weights, _ = plan_of(graph)

    assert [plan.buffers[o].kind for o in plan.outputs] == ["input", "weight", "output"]
    assert list(weights) == ["w0"]


def test_equal_layers_share_one_kernel():
    rng = np.random.default_rng(0)
    value = x = tensor("x", 6, 6)
    for _ in range(4):
        value = ops.Relu(ops.MatMul(value, weight(rng, 6, 6)))
    graph = Graph((x,), (value,))
    steps = partition(graph)

    assert len({s.kernel.digest for s in steps}) == 1
