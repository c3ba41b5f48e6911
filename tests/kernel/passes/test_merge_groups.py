"""Merged groups: the same convolution with block-diagonal filters and wide accesses; and what is left unchanged."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from gpucomp import compiler
from gpucomp.ir import Graph
from gpucomp.ir.types import BF16, F16
from gpucomp.kernel import format_kernel
from gpucomp.kernel.interpreter import UNWRITTEN, expected
from gpucomp.kernel.passes import merge_groups as groups
from gpucomp.kernel.passes.pack_weights import pack, packed_constant
from gpucomp.kernel.step import KernelStep
from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.kernels_templates.render import render
from gpucomp.targets import cuda
from testing.cuda_on_cpu.harness import ORDERS, compile_many
from testing.kernels import conv, grouped_conv, matmul, random_inputs
from testing.tolerance import assert_matches
from tests.builders import setting
from tests.onnx_builders import model, node, value

MMA, TARGET = FAMILIES["contraction/mma"], cuda.manifest("sm_80")
SMALL = {"warp_m": 16, "warp_n": 16, "warps_m": 2, "warps_n": 1, "warps_k": 1, "k_steps": 2, "stages": 3, "splits": 1,
         "raster": 1}  # fmt: skip


def constant(kernel):
    return replace(kernel, constants=frozenset({1}))


MERGED = {  # kernel, groups of the merged one, how many are one
    "four channels": (grouped_conv((1, 7, 5, 32), 8, 4, (3, 3), pad=1, dtype=F16), 2, 4),
    "two channels, other columns": (grouped_conv((2, 5, 6, 16), 8, 3, (3, 2), dtype=F16), 1, 8),
    "as many groups as there are": (grouped_conv((1, 5, 4, 8), 2, 6, (1, 3), dtype=F16), 1, 2),
    "groups by two": (grouped_conv((1, 4, 5, 24), 6, 4, (3, 3), pad=1, dtype=BF16), 3, 2),
}
LEFT = {
    "f32": constant(grouped_conv((1, 7, 5, 32), 8, 4, (3, 3), pad=1)),
    "eight channels": constant(grouped_conv((1, 7, 5, 32), 4, 8, (3, 3), dtype=F16)),
    "one channel": constant(grouped_conv((1, 7, 5, 8), 8, 4, (3, 3), dtype=F16)),
    "an odd number of groups": constant(grouped_conv((1, 7, 5, 12), 3, 4, (3, 3), dtype=F16)),
    "filters that are computed": grouped_conv((1, 7, 5, 32), 8, 4, (3, 3), dtype=F16),
    "no groups": constant(conv((1, 7, 5, 4), 8, (3, 3), dtype=F16)),
    "a batch of matrices": constant(matmul(9, 8, 4, batch=(4,), dtype=F16)),
}


@pytest.mark.parametrize("name", MERGED)
def test_a_merged_kernel_computes_the_same(name):
    kernel, left, together = MERGED[name]
    kernel = constant(kernel)
    inputs = random_inputs(kernel)

    found = groups.merged(kernel)

    assert [v.extent for v in found.body.batch] == [left]
    assert (found.body.n[0].extent, found.body.k[-2].extent) == (together, together)
    for one, other in zip(expected(found, inputs), expected(kernel, inputs), strict=True):
        assert_matches(one, other, terms=math.prod(v.extent for v in kernel.body.k))


@pytest.mark.parametrize("name", LEFT)
def test_what_is_wide_enough_or_no_narrow_group_is_left_alone(name):
    assert groups.merged(LEFT[name]) is LEFT[name]


def test_groups_are_merged_for_matrix_units_alone():
    kernel, sm_75 = constant(MERGED["four channels"][0]), cuda.manifest("sm_75")
    step, graph = KernelStep("k", kernel, (), (), ()), Graph((), ())

    (merged,) = groups.merge([step], setting(graph, sm_75))
    (left,) = groups.merge([step], setting(graph, replace(sm_75, features=sm_75.features - {"mma"})))

    assert merged.kernel.digest != kernel.digest
    assert left is step


def grouped_model():
    """1x1, then 3x3 in eight groups of four channels, then 1x1."""
    weights = {"w": (32, 32, 1, 1), "g": (32, 4, 3, 3)}
    nodes = [node("Conv", ["x", "w"], ["a"]), node("Relu", ["a"], ["b"]), node("Conv", ["b", "g"], ["c"], group=8, pads=[1] * 4),
             node("Relu", ["c"], ["d"]), node("Conv", ["d", "w"], ["y"])]  # fmt: skip
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in weights.items()}
    return model(nodes, [value("x", (1, 32, 7, 7))], weights=arrays)


@pytest.mark.parametrize(
    ("arch", "precision", "left"),
    [("sm_80", "fp16", 2), ("sm_80", "bf16", 2), ("sm_75", "fp16", 2), ("sm_75", "bf16", 8), ("sm_80", "fp32", 8)],
)
def test_a_model_s_groups_are_merged_where_units_multiply_what_the_user_lets_be_rounded(arch, precision, left):
    lowered = compiler.lower(grouped_model(), cuda.manifest(arch), precision=precision)

    bodies = [step.kernel.body for step in lowered.unpacked]
    assert [v.extent for body in bodies for v in body.batch] == [left]


def test_merged_groups_are_read_by_whole_chunks_and_give_numpy_s_answer():
    kernels = {name: constant(MERGED[name][0]) for name in ("two channels, other columns", "groups by two")}
    cases, sources = {}, []
    for number, (name, kernel) in enumerate(kernels.items()):
        merged = groups.merged(kernel)
        packed = pack(merged, MMA.packing(merged, MMA.schedule(SMALL), MMA.problem(merged)))
        cases[name] = packed
        sources.append(render(packed.kernel, SMALL, TARGET, f"k{number}", MMA))
    built = compile_many([(s.text, s.name) for s in sources])

    for (name, kernel), source, compiled in zip(kernels.items(), sources, built, strict=True):
        packed, inputs = cases[name], random_inputs(kernel)
        problem = MMA.problem(packed.kernel)
        filters = packed_constant(packed, [x if i == 1 else None for i, x in enumerate(inputs)])
        assert (problem.b_by_depth, problem.b_wide, problem.b_copied) == (1, 8, 1)
        right = expected(kernel, inputs)
        for order in ORDERS:
            outputs = [np.full(t.shape, UNWRITTEN).astype(t.dtype.numpy) for t in kernel.params[kernel.inputs :]]
            g = source.geometry
            args = [np.ascontiguousarray(x) for x in (*(inputs[k] for k in packed.kept), filters)]
            compiled.run(
                g.groups, g.items, [*args, *outputs], order=order, seed=3, dynamic_shared=g.dynamic_shared_bytes
            )
            for actual, wanted in zip(outputs, right, strict=True):
                assert_matches(actual, wanted, terms=math.prod(v.extent for v in kernel.body.k))


def test_a_merged_kernel_is_named_as_any_other():
    text = format_kernel(groups.merged(constant(MERGED["four channels"][0])))

    assert "b0<2" in text
    assert "k2<4, k3<4" in text
    assert "n0<4, n1<4" in text
