"""Kernels and schedules for the tests of the wgmma engine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.targets import cuda
from testing.kernels import conv

FAMILY = FAMILIES["contraction/wgmma"]
TARGET = cuda.manifest("sm_90a")
TILE = {
    "tile_m": 64,
    "tile_n": 32,
    "consumers": 1,
    "stages": 2,
    "splits": 1,
    "overlap": 0,
    "setmaxnreg": 0,
    "multicast": 0,
    "tma_store": 0,
}


def with_math(kernel, math="tf32"):
    return replace(kernel, body=replace(kernel.body, math=math))


def constant_b(kernel):
    """``kernel`` with its second input known when the model is compiled."""
    return replace(kernel, constants=frozenset({1}))


def image(*args, **options):
    return constant_b(conv(*args, **options))


def one_result(kernel):
    """``kernel`` without its second result."""
    return replace(kernel, params=kernel.params[:-1], outputs=1, stores=kernel.stores[:1])


TWO = TILE | {"tile_m": 128, "consumers": 2}
TMA_STORE = TILE | {"tma_store": 1}


def problem_of(kernel):
    return FAMILY.problem(kernel)


def f16_model():
    """relu(x w + b) u of f16, and its weights."""
    rng = np.random.default_rng(8)
    w, b, u = (rng.standard_normal(shape).astype(np.float16) for shape in ((72, 40), (40,), (40, 24)))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Add", ["h", "b"], ["s"]),
        helper.make_node("Relu", ["s"], ["r"]),
        helper.make_node("MatMul", ["r", "u"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT16, s) for n, s in (("x", (37, 72)), ("y", (37, 24)))]
    weights = [numpy_helper.from_array(a, n) for a, n in ((w, "w"), (b, "b"), (u, "u"))]
    graph = helper.make_graph(nodes, "f16", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), w, b, u
