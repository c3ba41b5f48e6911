"""Attention becomes one kernel per layer if the target has an engine for it. Movements around it are folded in."""

from __future__ import annotations

from collections import Counter

import pytest

from bench import models
from gpucomp import ops
from gpucomp.frontend.onnx import load
from gpucomp.ir import Graph
from gpucomp.kernel import Attention
from gpucomp.kernel.partition import partition
from gpucomp.kernel.step import KernelStep
from gpucomp.kernels_templates.attention.simt.space import problem
from gpucomp.rewrite.pipeline import run_pipeline
from gpucomp.targets import resolve
from tests.builders import tensor

LAYERS = 2  # of the reduced models


def families(model, target):
    steps = partition(run_pipeline(load(model), target=resolve(target)))
    return steps, Counter(s.kernel.family for s in steps if s.kernel)


@pytest.mark.parametrize("name", ["bert_base", "vit_tiny", "gpt2"])
@pytest.mark.parametrize("target", ["cuda:sm_80", "opencl:pocl", "cpu"])
def test_a_layer_has_one_kernel_for_attention_where_a_mali_has_three(name, target):
    model = models.build(name, reduced=True)
    apart, pieces = families(model, "opencl:mali")

    steps, found = families(model, target)

    assert pieces["attention"] == 0
    assert found["attention"] == LAYERS
    assert found["norm"] == pieces["norm"] - LAYERS
    assert len(steps) == len(apart) - 2 * LAYERS


def test_a_triangular_mask_is_not_read():
    steps, _ = families(models.build("gpt2", reduced=True), "cuda:sm_80")

    kernels = [s.kernel for s in steps if s.kernel and isinstance(s.kernel.body, Attention)]

    assert [k.inputs for k in kernels] == [1] * LAYERS  # queries, keys and values are parts of one array
    assert [problem(k).causal for k in kernels] == [0] * LAYERS


def test_heads_are_split_and_merged_on_the_way_and_a_residual_joins():
    x, residual = tensor("x", 1, 5, 36), tensor("r", 1, 5, 12)
    parts = [ops.Slice(x, starts=(0, 0, 12 * i), steps=(1, 1, 1), sizes=(1, 5, 12)) for i in range(3)]
    q, k, v = (ops.Transpose(ops.Reshape(p, shape=(1, 5, 3, 4)), perm=(0, 2, 1, 3)) for p in parts)
    merged = ops.Reshape(ops.Transpose(ops.Attention(q, k, v, scale=0.5), perm=(0, 2, 1, 3)), shape=(1, 5, 12))

    (step,) = partition(Graph((x, residual), (ops.Relu(ops.Add(merged, residual)),)))

    assert isinstance(step, KernelStep)
    assert isinstance(step.kernel.body, Attention)
    assert [v.node.attrs["label"] for v in step.inputs] == ["x", "r"]
