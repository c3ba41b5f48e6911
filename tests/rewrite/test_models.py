"""The pipeline on whole networks: which nodes disappear, which patterns are recognised, and that results stay."""

from collections import Counter
from functools import cache

import pytest

from bench import models
from gpucomp import config
from gpucomp.cli.compare import relative_error
from gpucomp.frontend.onnx import load
from gpucomp.ir import Graph
from gpucomp.ops.interpreter import interpret
from gpucomp.rewrite.pipeline import run_pipeline
from tests.builders import ops_of


@cache
def rewritten(name: str) -> tuple[Graph, Graph]:
    before = load(models.build(name, reduced=True))
    with config.using(verify=True):
        return before, run_pipeline(before)


def counts(name: str) -> Counter[str]:
    return Counter(ops_of(rewritten(name)[1]))


@pytest.mark.parametrize("name", models.MODELS)
def test_the_answer_stays(name):
    before, after = rewritten(name)
    feeds = models.inputs(models.build(name, reduced=True))

    for found, expected in zip(interpret(after, feeds), interpret(before, feeds), strict=True):
        assert relative_error(found, expected) <= 1e-6


@pytest.mark.parametrize("name", models.MODELS)
def test_a_second_run_changes_nothing(name):
    after = rewritten(name)[1]

    again = run_pipeline(after)

    assert Counter(ops_of(again)) == Counter(ops_of(after))


CONVOLUTIONAL = {  # two reduced networks end in an image of one pixel, whose mean is a Reshape
    "resnet18": {"Relu", "MaxPool", "ReduceMean", "MatMul"},
    "resnet50": {"Relu", "MaxPool", "ReduceMean", "MatMul"},
    "mobilenet_v1": {"Clip", "ReduceMean", "MatMul", "Softmax"},
    "mobilenet_v2": {"Clip", "ReduceMean", "MatMul"},
    "vgg16": {"Relu", "MaxPool", "Reshape", "MatMul"},
    "squeezenet1_1": {"Relu", "MaxPool", "Concat", "ReduceMean"},
    "densenet121": {"Relu", "MaxPool", "Mul", "Concat", "AveragePool", "MatMul", "Reshape"},
    "inception_v3": {"Relu", "MaxPool", "AveragePool", "Slice", "Concat", "MatMul", "Reshape"},
    "efficientnet_b0": {"Swish", "Sigmoid", "Mul", "ReduceMean", "MatMul"},
}


@pytest.mark.parametrize("name", CONVOLUTIONAL)
def test_a_convolutional_network_has_one_transpose_and_no_batch_norm(name):
    found = counts(name)

    assert set(found) == {"Transpose", "Conv", "Add", *CONVOLUTIONAL[name]}
    assert found["Transpose"] == 1
    assert found["Reshape"] <= 1


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "mobilenet_v2"])
def test_each_convolution_has_one_bias_and_each_block_one_residual(name):
    after = rewritten(name)[1]

    biases = [n for n in after.nodes() if n.op.name == "Add" and n.inputs[1].op.name == "Constant"]
    assert all(n.inputs[0].op.name in {"Conv", "MatMul", "Add"} for n in biases)
    contractions = counts(name)["Conv"] + counts(name)["MatMul"]
    assert len(biases) <= contractions


@pytest.mark.parametrize("name", models.MODELS)
def test_every_convolution_and_pool_is_channels_last(name):
    windows = [
        n for n in rewritten(name)[1].nodes() if n.op.name in {"Conv", "ConvTranspose", "MaxPool", "AveragePool"}
    ]

    assert {n.attrs["layout"] for n in windows} <= {"NHWC"}


def test_shufflenet_has_only_the_shuffles_own_transposes():
    after = rewritten("shufflenet_v2")[1]

    transposes = [n for n in after.nodes() if n.op.name == "Transpose"]
    assert Counter(n.attrs["perm"] for n in transposes) == {(0, 2, 3, 1): 1, (0, 1, 2, 4, 3): 5}


def test_unet_is_transposed_at_its_ends_alone():
    found = counts("unet_small")

    # its transposed convolutions, of 2 x 2 taps that never meet, are products whose taps are placed by a transpose each
    placed = found["MatMul"]
    assert placed > 0
    assert set(found) == {"Transpose", "Reshape", "Conv", "MatMul", "Add", "Relu", "MaxPool", "Concat", "Sigmoid"}
    assert found["Transpose"] == 2 + placed


LAYERS = 2


@pytest.mark.parametrize(
    ("name", "norms", "approximate"),
    [
        ("bert_base", 2 * LAYERS + 1, "none"),
        ("vit_b16", 2 * LAYERS + 1, "none"),
        ("vit_tiny", 2 * LAYERS + 1, "none"),
        ("gpt2", 2 * LAYERS + 1, "tanh"),
    ],
)
def test_a_transformers_pieces_are_recognised(name, norms, approximate):
    after = rewritten(name)[1]
    found = counts(name)

    assert (found["LayerNorm"], found["Gelu"], found["Softmax"]) == (norms, LAYERS, LAYERS)
    assert {n.attrs["approximate"] for n in after.nodes() if n.op.name == "Gelu"} == {approximate}
    assert not set(found) & {"Erf", "Tanh", "Sqrt", "Pow", "ReduceMean"} - ({"Tanh"} if name == "bert_base" else set())


@pytest.mark.parametrize(("name", "others"), [("bert_base", 1), ("vit_b16", 1), ("gpt2", 1)])
def test_query_key_and_value_are_one_product(name, others):
    """Six products per layer: QKV, scores, weighted sum, output, and two of the perceptron."""
    assert counts(name)["MatMul"] == 6 * LAYERS + others


@pytest.mark.parametrize("name", ["vit_b16", "gpt2"])
def test_scale_and_bias_of_a_norm_fold_into_the_product_behind_it(name):
    after = rewritten(name)[1]

    readers = {r.op.name for n in after.nodes() if n.op.name == "LayerNorm" for r in after.consumers()[n[0]]}
    assert "MatMul" in readers
    assert counts(name)["Mul"] <= 1
