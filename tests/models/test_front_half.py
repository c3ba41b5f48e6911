"""Model to kernels without any back end: the answer by the numpy oracle, and what was swallowed."""

from __future__ import annotations

from collections import Counter

import pytest

from bench.models import MODELS, build, inputs
from gpucomp.cli.compare import onnxruntime_session, relative_error
from gpucomp.frontend.onnx import load
from gpucomp.ir import Graph
from gpucomp.kernel.grouping import Policy
from gpucomp.kernel.interpreter import run_steps
from gpucomp.kernel.partition import partition
from gpucomp.rewrite.pipeline import run_pipeline

MOST_KERNELS = {
    "resnet18": 23,
    "resnet50": 56,
    "mobilenet_v2": 55,
    "mobilenet_v1": 31,
    "bert_base": 111,
    "vit_b16": 112,
}


def kernels_of(model, prologues=True):
    graph: Graph = run_pipeline(load(model))
    return graph, partition(graph, Policy(prologues))


@pytest.mark.parametrize("prologues", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_the_kernels_compute_what_onnxruntime_says(name, prologues):
    model = build(name, reduced=True)
    feeds = inputs(model)
    expected = onnxruntime_session(model.SerializeToString()).run(None, feeds)

    graph, steps = kernels_of(model, prologues)

    for actual, wanted in zip(run_steps(graph, steps, feeds), expected, strict=True):
        assert relative_error(actual, wanted) <= 2e-6


@pytest.mark.parametrize("name", MOST_KERNELS)
def test_a_model_becomes_few_kernels(name):
    _, steps = kernels_of(build(name))

    assert len(steps) <= MOST_KERNELS[name]


@pytest.mark.parametrize("name", ["resnet50", "mobilenet_v2"])
def test_everything_between_the_convolutions_is_swallowed(name):
    graph, steps = kernels_of(build(name))

    anchors = Counter(s.nodes[0].op.name for s in steps)
    assert set(anchors) <= {"Conv", "MaxPool", "ReduceMean", "MatMul"}
    swallowed = Counter(n.op.name for s in steps for n in (*s.nodes[1:], *s.prologue))
    operators = Counter(n.op.name for n in graph.nodes() if n.op.name not in {"Input", "Constant"})
    assert swallowed + anchors == operators


def test_equal_layers_are_compiled_once():
    _, steps = kernels_of(build("bert_base"))

    assert len({s.kernel.digest for s in steps}) <= 14
