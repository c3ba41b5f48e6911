"""Random models over many operators, against onnxruntime: what is right alone has to be right together."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from kernel_oracle import run_steps
from random_models import random_model

import gpucomp
from gpucomp.frontend.onnx import load
from gpucomp.partition import Policy, partition
from gpucomp.passes import run_pipeline

BY_NUMPY = range(60)
ON_CPU = range(100, 112)


def expected(model, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)


def assert_close(actual, wanted):
    """1e-4 of the result's norm; of a norm of 0.03 an element where results cancel to less than that."""
    assert actual.shape == wanted.shape
    norm = max(float(np.linalg.norm(wanted)), 0.03 * wanted.size**0.5)
    assert float(np.linalg.norm(actual.astype(np.float64) - wanted)) <= 1e-4 * norm


@pytest.mark.parametrize("seed", BY_NUMPY)
def test_the_kernels_of_a_random_model_compute_what_onnxruntime_says(seed):
    model, feeds = random_model(seed)

    graph = run_pipeline(load(model))
    steps = partition(graph, Policy(prologues=seed % 2 == 0))

    for actual, wanted in zip(run_steps(graph, steps, feeds), expected(model, feeds), strict=True):
        assert_close(actual, wanted)


@pytest.mark.parametrize("seed", ON_CPU)
def test_a_random_model_computes_what_onnxruntime_says(seed):
    model, feeds = random_model(seed)

    results = gpucomp.compile(model, target="cpu").run(feeds)

    for output, wanted in zip(model.graph.output, expected(model, feeds), strict=True):
        assert_close(results[output.name], wanted)
