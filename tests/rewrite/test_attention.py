from collections import Counter

import numpy as np
import pytest
from onnx import TensorProto, helper

import gpucomp
from bench import models
from gpucomp import ops
from gpucomp.errors import ShapeError
from gpucomp.frontend.onnx import load
from gpucomp.ir import BOOL, F64, Graph, constant, format_graph
from gpucomp.ops.interpreter import interpret
from gpucomp.rewrite import attention
from gpucomp.rewrite.pipeline import BASICS, PIPELINE, run_pipeline
from gpucomp.rewrite.rule import apply_rules
from gpucomp.targets import resolve
from testing.tolerance import assert_matches
from tests.builders import graph_of, ops_of, scalar, tensor
from tests.rewrite.examples import attention_pieces, draw


def recognised(graph):
    return apply_rules(graph, (*attention.RULES, *BASICS))


@pytest.mark.parametrize("name", ["bert_base", "vit_b16", "gpt2"])
def test_every_layers_attention_is_recognised_and_taken_apart_again(name):
    model = models.build(name, reduced=True)
    pieces = run_pipeline(load(model))
    inputs = models.inputs(model)

    whole = recognised(pieces)
    apart = apply_rules(whole, attention.DECOMPOSITION)

    assert Counter(ops_of(whole))["Attention"] == 2
    assert "Softmax" not in ops_of(whole)
    assert "Attention" not in ops_of(apart)
    for graph in (whole, apart):
        for found, expected in zip(interpret(graph, inputs), interpret(pieces, inputs), strict=True):
            assert_matches(found, expected, terms=100)


@pytest.mark.parametrize("masked", [False, True])
def test_scale_and_mask_become_attributes_and_an_operand(masked):
    graph = graph_of(attention_pieces(masked=masked))
    inputs = draw(graph)

    after = recognised(graph)

    (node,) = (n for n in after.nodes() if n.op is ops.Attention)
    assert node.attrs["scale"] == pytest.approx(0.3)
    assert node.attrs["masked"] == (-1e9 if masked else 0)
    assert node.inputs[3].attrs["label"] == "mask"
    assert_matches(interpret(after, inputs)[0], interpret(graph, inputs)[0], terms=18)


@pytest.mark.parametrize("hidden", [-np.inf, float(np.finfo(np.float32).min)])
@pytest.mark.parametrize("added", [False, True])
def test_a_constant_triangle_is_no_operand_and_means_the_same_taken_apart(added, hidden):
    seen = np.tri(5, 7, 2, dtype=np.bool_)
    mask = constant(np.where(seen, 0, hidden).astype(np.float32)) if added else constant(seen)
    q, k, v = tensor("q", 2, 5, 3), tensor("k", 2, 7, 3), tensor("v", 2, 7, 4)
    graph = graph_of(ops.Attention(q, k, v, mask, masked=hidden))
    inputs = draw(graph)

    after = recognised(graph)
    apart = apply_rules(after, attention.DECOMPOSITION)

    (node,) = after.nodes()[-1:]
    assert (node.op, node.attrs["causal"], len(node.inputs)) == (ops.Attention, 2, 3)
    assert "Attention" not in ops_of(apart)
    for found in (after, apart):
        assert_matches(interpret(found, inputs)[0], interpret(graph, inputs)[0], terms=7)


@pytest.mark.parametrize(
    ("target", "kept"), [("cuda:sm_80", 1), ("opencl:pocl", 1), ("opencl:generic", 1), ("opencl:mali", 0), ("cpu", 1)]
)
def test_a_target_with_an_engine_keeps_what_the_engine_takes(target, kept):
    small = ops.Attention(tensor("q", 2, 5, 7), tensor("k", 2, 11, 7), tensor("v", 2, 11, 3), scale=0.5)
    wide = ops.Attention(tensor("a", 5, 300), tensor("b", 11, 300), tensor("c", 11, 3))

    after = run_pipeline(
        Graph((*graph_of(small).inputs, *graph_of(wide).inputs), (small, wide)), target=resolve(target)
    )

    assert Counter(ops_of(after))["Attention"] == kept


def test_a_transposed_key_is_read_as_it_was():
    q, k, v = tensor("q", 2, 5, 7), tensor("k", 2, 11, 7), tensor("v", 2, 11, 3)
    scores = ops.MatMul(q, ops.Transpose(k, perm=(0, 2, 1)))

    after = recognised(graph_of(ops.MatMul(ops.Softmax(scores, axis=2), v)))

    assert format_graph(after).splitlines()[1:3] == [
        "  %1 = Attention(%q, %k, %v, scale=1.0, masked=0.0) : f32[2,5,3]",
        "  return %1",
    ]


def test_without_an_engine_the_pipeline_leaves_no_attention():
    x = ops.Attention(tensor("q", 2, 5, 7), tensor("k", 2, 11, 7), tensor("v", 2, 11, 3), scale=0.5)

    after = run_pipeline(graph_of(ops.Add(x, scalar(1))), PIPELINE)

    assert "Attention" not in ops_of(after)


@pytest.mark.parametrize(
    ("shapes", "why"),
    [
        (((2, 5, 7), (2, 11, 8), (2, 11, 3)), "do not fit together"),
        (((2, 5, 7), (2, 11, 7), (2, 10, 3)), "do not fit together"),
        (((2, 5, 7), (3, 11, 7), (3, 11, 3)), "do not broadcast"),
        (((2, 5, 7), (2, 11, 7), (2, 11, 3), (4, 1, 1)), "do not broadcast"),
        (((5, 7), (11, 7), (11, 3), (4, 1, 1)), "a mask that broadcasts"),
    ],
)
def test_operands_that_do_not_fit_are_refused(shapes, why):
    q, k, v, *mask = (tensor(name, *shape) for name, shape in zip("qkvm", shapes, strict=False))

    with pytest.raises(ShapeError, match=why):
        ops.Attention(q, k, v, *mask)


def test_a_mask_of_another_type_is_refused():
    q, k, v = tensor("q", 5, 7), tensor("k", 11, 7), tensor("v", 11, 3)

    ops.Attention(q, k, v, tensor("m", 5, 11, dtype=BOOL))
    with pytest.raises(ShapeError, match="a mask of bool or f32 expected"):
        ops.Attention(q, k, v, tensor("m", 5, 11, dtype=F64))


def attention_of_onnx(tokens, dtype, mask=None, **attributes):
    """A model of ONNX's own Attention, four heads of 16."""
    shapes = {name: [1, 4, tokens, 16] for name in "qkv"} | ({"m": [tokens, tokens]} if mask else {})
    infos = [helper.make_tensor_value_info(n, mask if n == "m" else dtype, s) for n, s in shapes.items()]
    node = helper.make_node("Attention", [*shapes], ["y"], **attributes)
    graph = helper.make_graph([node], "attention", infos, [helper.make_tensor_value_info("y", dtype, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])


@pytest.mark.parametrize("mask", [None, TensorProto.BOOL, TensorProto.FLOAT])
@pytest.mark.parametrize("tokens", [33, 4096])
def test_onnx_s_attention_is_one_kernel_whatever_hides_its_scores(tokens, mask):
    graph = run_pipeline(load(attention_of_onnx(tokens, TensorProto.FLOAT, mask)), PIPELINE, target=resolve("cpu"))

    counted = Counter(node.op for node in graph.nodes())
    assert counted[ops.Attention] == 1
    assert not counted.keys() & {ops.Softmax, ops.MatMul, ops.Expand, ops.Mul}


def test_rows_that_see_nothing_are_zero():
    rng = np.random.default_rng(0)
    x = {name: rng.standard_normal((1, 4, 9, 16)).astype(np.float32) for name in "qkv"}
    seen = rng.random((9, 9)) < 0.7
    seen[4] = False
    model = attention_of_onnx(9, TensorProto.FLOAT, TensorProto.BOOL)

    found = gpucomp.compile(model, target="cpu").run({**x, "m": seen})["y"]

    scores = np.where(seen, x["q"] @ x["k"].swapaxes(-1, -2) / 4, -np.inf)
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        right = weights / weights.sum(-1, keepdims=True) @ x["v"]
    right[..., 4, :] = 0
    assert_matches(found, right, terms=16)
