"""Packed weights: a kernel that reads a packed constant gives the same results by the oracle."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import gpucomp
from gpucomp import ops, replacing
from gpucomp.artifact.plan import WEIGHT
from gpucomp.expr.core import load
from gpucomp.ir import Graph
from gpucomp.ir.types import BF16, F16, F32
from gpucomp.kernel.interpreter import expected
from gpucomp.kernel.packing import Digit, Packing
from gpucomp.kernel.partition import partition
from gpucomp.kernel.passes.pack_weights import TRANSFORMS, pack, packable, packed_constant
from gpucomp.targets.back_end import back_end
from testing.kernels import conv, grouped_conv, matmul, random_inputs
from tests.graphs import tensor, weight
from tests.onnx_builders import model, node, value


def with_constants(kernel, *numbers):
    return dataclasses.replace(kernel, constants=frozenset(numbers))


def by_fours(kernel, operand="b", depth=1):
    """Columns in blocks of four and depth in blocks of ``depth``, both padded. The batch is outermost."""
    body = kernel.body
    span = body.n if operand == "b" else body.m
    size = {
        name: int(np.prod([v.extent for v in axes]))
        for name, axes in (("batch", body.batch), ("k", body.k), ("span", span))
    }
    digits = [Digit("span", 4, -(-size["span"] // 4)), Digit("k", depth, -(-size["k"] // depth))]
    digits += [Digit("span", 1, 4)] + ([Digit("k", 1, depth)] if depth > 1 else [])
    return Packing(operand, tuple([Digit("batch", 1, size["batch"])] * bool(body.batch) + digits))


KERNELS = {
    "matmul": matmul(5, 7, 11),
    "transposed": matmul(5, 7, 11, b_transposed=True),
    "batched": matmul(3, 9, 5, batch=(2, 3)),
    "f16": matmul(5, 8, 3, dtype=F16),
    "bf16": matmul(2, 3, 4, dtype=BF16),
    "conv": conv((1, 6, 5, 3), 10, (3, 2), pad=1),
    "conv_nchw": conv((2, 6, 5, 3), 5, (3, 3), nchw=True),
    "groups": grouped_conv((1, 5, 5, 6), 3, 2, (3, 3)),
    "one": matmul(1, 1, 1),
}


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("name", KERNELS)
def test_a_packed_kernel_computes_the_same(name, depth):
    kernel = with_constants(KERNELS[name], 1)
    packing = by_fours(kernel, depth=depth)
    inputs = random_inputs(kernel)

    packed = pack(kernel, packing)
    weights = packed_constant(packed, [None, inputs[1], *[None] * (len(inputs) - 2)])

    assert weights.shape == tuple(d.extent for d in packing.digits) == packed.kernel.params[len(packed.kept)].shape
    assert weights.dtype == inputs[1].dtype
    assert packed.kept == (0, *range(2, kernel.inputs))
    for a, b in zip(
        expected(packed.kernel, [*(inputs[k] for k in packed.kept), weights]), expected(kernel, inputs), strict=True
    ):
        np.testing.assert_array_equal(a, b)


def test_a_left_operand_can_be_packed_too():
    kernel = with_constants(matmul(6, 5, 7), 0)
    inputs = random_inputs(kernel)

    packed = pack(kernel, by_fours(kernel, "a"))

    weights = packed_constant(packed, [inputs[0], None, None])
    for a, b in zip(expected(packed.kernel, [*inputs[1:], weights]), expected(kernel, inputs), strict=True):
        np.testing.assert_array_equal(a, b)


def test_padding_is_zero():
    kernel = with_constants(matmul(2, 5, 3), 1)
    inputs = [np.ones((2, 3), np.float32), np.ones((3, 5), np.float32), np.ones(5, np.float32)]

    weights = packed_constant(pack(kernel, by_fours(kernel, depth=2)), inputs)

    assert weights.shape == (2, 2, 4, 2)
    assert weights.sum() == 15
    assert not weights[1, :, 1:].any()


def test_what_the_operand_computes_is_computed_when_it_is_packed():
    kernel = with_constants(matmul(4, 5, 6), 1, 2)
    body = kernel.body
    scaled = dataclasses.replace(body, b=body.b * load(2, body.n, F32))
    kernel = dataclasses.replace(kernel, body=scaled)
    inputs = random_inputs(kernel)

    packed = pack(kernel, by_fours(kernel))

    assert packed.kept == (0, 2)  # the bias reads it too
    weights = packed_constant(packed, inputs)
    for a, b in zip(expected(packed.kernel, [inputs[0], inputs[2], weights]), expected(kernel, inputs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_only_what_reads_constants_alone_is_packable():
    kernel = matmul(4, 5, 6)

    assert not packable(kernel, "b")
    assert packable(with_constants(kernel, 1), "b")
    assert not packable(with_constants(kernel, 1), "a")
    assert not packable(with_constants(kernel, 2), "b")


@pytest.mark.parametrize(
    ("digits", "reason"),
    [
        ((Digit("span", 1, 8), Digit("k", 2, 3)), "count to 1"),
        ((Digit("span", 1, 4), Digit("k", 1, 6)), "its extent is 5"),
        ((Digit("span", 1, 8),), "the digits of k count to 1"),
        ((Digit("span", 1, 8), Digit("k", 1, 6), Digit("k", 1, 6)), "is repeated"),
    ],
)
def test_digits_that_are_no_radix_of_the_axes_are_refused(digits, reason):
    with pytest.raises(ValueError, match=reason):
        pack(with_constants(matmul(4, 5, 6), 1), Packing("b", digits))


def test_partition_says_which_parameters_are_constants():
    x, y = tensor("x", 4, 6), tensor("y", 6, 5)
    graph = Graph((x, y), (ops.MatMul(x, weight(np.random.default_rng(0), 6, 3)), ops.MatMul(x, y)))

    steps = partition(graph)

    assert sorted(sorted(s.kernel.constants) for s in steps) == [[], [1]]


def wanting_fours(language):
    """A back end whose engines require their weights in blocks of four columns."""
    engines_of, render = back_end(language)

    def packing(kernel, s, p):
        return by_fours(kernel) if packable(kernel, "b") else None

    def wanting(kernel, features):
        return tuple(dataclasses.replace(family, packing=packing) for family in engines_of(kernel, features))

    return wanting, render


@pytest.mark.parametrize("target", ["cpu", "opencl"])
def test_a_model_runs_with_packed_weights_and_keeps_a_shared_one_once(target, monkeypatch):
    rng = np.random.default_rng(3)
    w = rng.standard_normal((7, 7)).astype(np.float32)
    nodes = [node("MatMul", ["x", "w"], ["y"]), node("Relu", ["y"], ["z"]), node("MatMul", ["z", "w"], ["out"])]
    made = model(nodes, [value("x", (5, 7))], [value("out", (5, 7))], {"w": w})
    x = rng.standard_normal((5, 7)).astype(np.float32)

    monkeypatch.setattr(replacing, "back_end", wanting_fours)
    executable = gpucomp.compile(made, target=target)

    weights = [b for b in executable.plan.buffers if b.kind == WEIGHT]
    assert [b.shape for b in weights] == [(2, 7, 4)]
    np.testing.assert_allclose(executable.run({"x": x})["out"], np.maximum(x @ w, 0) @ w, rtol=1e-5, atol=1e-5)


# ---- transforms of the values ----


def winograd(kernel):
    channels, columns = kernel.body.k[2].extent, kernel.body.n[0].extent
    digits = (Digit("k", channels, 16), Digit("k", 1, channels), Digit("span", 1, -(-columns // 4) * 4))
    return Packing("b", digits, "winograd23")


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_is_undone(name):
    forward, back = np.array(TRANSFORMS[name].forward), np.array(TRANSFORMS[name].back)

    np.testing.assert_allclose(back @ forward, np.eye(TRANSFORMS[name].taps), rtol=0, atol=2**-53)


@pytest.mark.parametrize("dtype", [F32, F16])
def test_transformed_filters_are_those_of_the_formula_and_compute_the_same(dtype):
    kernel = with_constants(conv((2, 5, 6, 4), 7, (3, 3), pad=1, dtype=dtype), 1)
    inputs = random_inputs(kernel)

    packed = pack(kernel, winograd(kernel))
    weights = packed_constant(packed, inputs)

    matrix = np.array(TRANSFORMS["winograd23"].forward)
    right = np.einsum("ir,js,rscn->ijcn", matrix, matrix, inputs[1].astype(np.float64)).reshape(16, 4, 7)
    assert weights.dtype == np.float32
    np.testing.assert_array_equal(weights[:, :, :7], right.astype(np.float32))
    assert not weights[:, :, 7:].any()
    (a,), (b,) = expected(packed.kernel, [*(inputs[k] for k in packed.kept), weights]), expected(kernel, inputs)
    np.testing.assert_allclose(a, b, rtol=2e-6 if dtype is F32 else 2e-3, atol=1e-5)


def test_a_depth_that_is_no_windows_is_refused():
    with pytest.raises(ValueError, match="a depth of 6 is not a multiple of 3 x 3 windows"):
        pack(with_constants(matmul(4, 5, 6), 1), Packing("b", (Digit("span", 1, 5), Digit("k", 1, 6)), "winograd23"))


def test_digits_of_a_transformed_depth_have_to_hold_it():
    kernel = with_constants(conv((1, 5, 5, 4), 7, (3, 3)), 1)

    with pytest.raises(ValueError, match="the digits of k count to 36, but its extent is 64"):
        pack(kernel, Packing("b", (Digit("span", 1, 7), Digit("k", 1, 36)), "winograd23"))


FILLED = ((2, 2), (3, 4), (5, 7))  # rows, columns, channels of a window
FILLED_DIGITS = (Digit("k", 1, 56), Digit("span", 1, 11))


def test_parts_of_the_depth_are_filled_up_with_zeros():
    kernel = with_constants(conv((1, 6, 7, 5), 11, (2, 3)), 1)
    inputs = random_inputs(kernel)

    packed = pack(kernel, Packing("b", FILLED_DIGITS, filled=FILLED))
    filters = packed_constant(packed, inputs)

    windows = filters.reshape(2, 4, 7, 11)
    np.testing.assert_array_equal(windows[:, :3, :5], inputs[1])
    assert not windows[:, 3:].any()
    assert not windows[:, :, 5:].any()
    kept = [inputs[k] for k in packed.kept]
    for found, right in zip(expected(packed.kernel, [*kept, filters]), expected(kernel, inputs), strict=True):
        np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("filled", [((2, 2), (3, 4), (4, 7)), ((2, 2), (3, 2), (5, 7))])
def test_parts_that_are_not_the_depth_s_or_too_small_are_refused(filled):
    kernel = with_constants(conv((1, 6, 7, 5), 11, (2, 3)), 1)

    with pytest.raises(ValueError, match="a depth of 30 cannot be padded by"):
        pack(kernel, Packing("b", FILLED_DIGITS, filled=filled))
