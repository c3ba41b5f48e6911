"""Loops with a first step of their own: random bodies, whose states begin as zeros, as other numbers, and as operands."""

from __future__ import annotations

import numpy as np
import pytest

from gpucomp import ops
from gpucomp.compiler import compile_graph
from gpucomp.ir import Graph, constant
from gpucomp.ops.interpreter import interpret
from gpucomp.rewrite.first_steps import with_first_steps
from gpucomp.rewrite.pipeline import BASICS
from testing.cuda_on_cpu.whole_models import ModelOnCpu
from testing.tolerance import assert_matches
from tests.graphs import tensor

ROWS, WIDTH, STEPS = 300, 64, 5  # so many numbers that repeated zeros stay repeated ones


def weight(rng, columns):
    return constant(rng.uniform(-0.1, 0.1, (WIDTH, columns)).astype(np.float32))  # steps do not blow up differences


def initial(rng, rows, number):
    kind = rng.integers(4)
    if kind == 0:
        return tensor(f"h{number}", rows, WIDTH)
    if kind == 1:
        return constant(np.full((rows, WIDTH), 0.25, np.float32))
    return ops.Expand(constant(np.float32(0)), shape=(rows, WIDTH))


def step_of(rng, states, slices):
    """New states and rows: sums of products, of old states as they are, and of what depends on none."""

    def piece():
        some = states[rng.integers(len(states))]
        return (
            ops.MatMul(some, weight(rng, WIDTH)),
            ops.Mul(some, slices[0]),
            ops.Sigmoid(slices[rng.integers(len(slices))]),
            some,
        )[rng.integers(4)]

    after = []
    for state in states:
        new = ops.Tanh(ops.Add(piece(), piece()))
        apart = ops.Tanh(slices[0])
        after.append((new, new, new, apart, state, states[0])[rng.integers(6)])
    rows = [ops.Add(piece(), after[rng.integers(len(after))]), ops.MatMul(states[-1], weight(rng, 9))]
    return after, rows


def loop(seed, rows=ROWS):
    """A graph with two loops that may begin with the same zeros, and which returns them too."""
    rng = np.random.default_rng(seed)
    outputs = []
    shared = ops.Expand(constant(np.float32(0)), shape=(rows, WIDTH))
    for part in "ab":
        starts = [
            shared if rng.integers(3) else initial(rng, rows, part),
            *(initial(rng, rows, f"{part}{k}") for k in range(rng.integers(3))),
        ]
        scans = [tensor(f"x{part}{k}", STEPS, rows, WIDTH) for k in range(1 + rng.integers(2))]
        states = [tensor(f"s{k}", rows, WIDTH) for k in range(len(starts))]
        slices = [tensor(f"x{k}", rows, WIDTH) for k in range(len(scans))]
        after, stacked = step_of(rng, states, slices)
        node = ops.Repeat.node(
            *starts,
            *scans,
            body=Graph((*states, *slices), (*after, *stacked)),
            count=STEPS,
            states=len(states),
            scans=len(scans),
            reverse=tuple(bool(rng.integers(2)) for _ in scans),
            out_reverse=tuple(bool(rng.integers(2)) for _ in stacked),
        )
        outputs += node.values
    graph = Graph((), (*outputs, shared))
    inputs = sorted((n[0] for n in graph.nodes() if n.op is ops.Input), key=lambda v: v.attrs["label"])
    feeds = {v.attrs["label"]: rng.standard_normal(v.shape).astype(np.float32) for v in inputs}
    return Graph(tuple(inputs), graph.outputs), feeds


def firsts(graph):
    return [n.attrs.get("first") for n in with_first_steps(graph, BASICS).nodes() if n.op is ops.Repeat]


def checked(found, graph, feeds, terms=1000):
    for name, wanted in zip(graph.output_names, interpret(graph, feeds), strict=True):
        assert_matches(found[name], wanted, terms=terms)


def test_many_of_these_loops_have_first_steps():
    found = [first is not None for seed in range(20) for first in firsts(loop(seed)[0])]
    assert 10 < sum(found) < len(found)


@pytest.mark.parametrize("seed", range(20))
def test_random_loops_on_the_processor(seed):
    graph, feeds = loop(seed)
    checked(compile_graph(graph, "cpu").run(feeds), graph, feeds)


@pytest.mark.parametrize("seed", range(6))
def test_random_loops_on_opencl(seed):
    graph, feeds = loop(seed, 130)
    checked(compile_graph(graph, "opencl").run(feeds), graph, feeds)


@pytest.mark.parametrize("seed", [2, 3])
def test_random_loops_in_cuda(seed):
    graph, feeds = loop(seed, 7)
    checked(ModelOnCpu(compile_graph(graph, "cuda:sm_80")).run(feeds), graph, feeds)


@pytest.mark.parametrize("precision", ["mixed", "fp16"])
@pytest.mark.parametrize("seed", range(4))
def test_random_loops_of_16_bits(seed, precision):
    graph, feeds = loop(seed)

    found = compile_graph(graph, "cpu", precision).run(feeds)

    for name, wanted in zip(graph.output_names, interpret(graph, feeds), strict=True):
        np.testing.assert_allclose(found[name], wanted, atol=0.1 * max(1.0, float(np.abs(wanted).max())))


def test_without_a_step_a_state_that_nothing_reads_is_what_it_was():
    h, x, h0 = (tensor(name, 3, 5) for name in ("h", "x", "h0"))
    after = ops.Tanh(x)
    xs = ops.Expand(constant(np.float32(0)), shape=(0, 3, 5))
    body = Graph((h, x), (after,))
    node = ops.Repeat.node(h0, xs, body=body, count=0, states=1, scans=1, reverse=(False,))
    graph, feeds = Graph((h0,), node.values), {"h0": np.full((3, 5), 7, np.float32)}

    np.testing.assert_array_equal(compile_graph(graph, "cpu").run(feeds)[graph.output_names[0]], feeds["h0"])
