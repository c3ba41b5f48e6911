"""Kernels and schedules for the tests of the engines whose tiles TMA loads: wgmma, and tcgen05 beside it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from gpucomp.kernel.passes.pack_weights import pack, packed_constant
from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.targets import cuda
from testing.kernels import conv, random_inputs

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


def prepared(kernel, schedule, family=FAMILY):
    """The kernel and inputs for the engine: ``b`` is packed if the engine requires it, and f32 is rounded to tf32."""
    inputs = random_inputs(kernel)
    if kernel.body.math == "tf32":
        inputs = [to_tf32(x) if x.dtype == np.float32 else x for x in inputs]
    wanted = family.packing(kernel, family.schedule(schedule), family.problem(kernel))
    if wanted is None:
        return kernel, inputs, inputs
    packed = pack(kernel, wanted)
    return packed.kernel, inputs, [*(inputs[k] for k in packed.kept), packed_constant(packed, inputs)]


def to_tf32(x):
    """Rounds to 10 bits of fraction, ties to even. Products of such numbers are exact in the oracle's f64."""
    bits = x.view(np.uint32)
    return ((bits + np.uint32(0xFFF) + (bits >> 13 & 1)) & np.uint32(0xFFFFE000)).view(np.float32)


TWO = TILE | {"tile_m": 128, "consumers": 2}
TMA_STORE = TILE | {"tma_store": 1}


def problem_of(kernel):
    return FAMILY.problem(kernel)


def f16_model(rows=37):
    """relu(x w + b) u of f16, and its weights. ``rows``: a number, or the name of an open dimension."""
    rng = np.random.default_rng(8)
    w, b, u = (rng.standard_normal(shape).astype(np.float16) for shape in ((72, 40), (40,), (40, 24)))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Add", ["h", "b"], ["s"]),
        helper.make_node("Relu", ["s"], ["r"]),
        helper.make_node("MatMul", ["r", "u"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT16, s) for n, s in (("x", (rows, 72)), ("y", (rows, 24)))]
    weights = [numpy_helper.from_array(a, n) for a, n in ((w, "w"), (b, "b"), (u, "u"))]
    graph = helper.make_graph(nodes, "f16", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), w, b, u
