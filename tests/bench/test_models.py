"""The benchmark models are the published architectures, valid ONNX, deterministic, and numerically alive."""

import math

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from bench.models import MODELS, build, inputs
from bench.models.__main__ import main
from bench.models.builder import GraphBuilder, normal
from gpucomp.cli.compare import onnxruntime_session

# learned parameters and giga multiply-adds, from torchvision's model table, timm's and transformers' models;
# gpt2 is the 124,439,808 of the published model less ten blocks of 7,087,872
PUBLISHED_PARAMETERS = {
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "mobilenet_v1": 4_231_976,
    "mobilenet_v2": 3_504_872,
    "vgg16": 138_357_544,
    "squeezenet1_1": 1_235_496,
    "densenet121": 7_978_856,
    "inception_v3": 23_834_568,
    "shufflenet_v2": 2_278_604,
    "efficientnet_b0": 5_288_548,
    "bert_base": 109_482_240,
    "vit_b16": 86_567_656,
    "vit_tiny": 5_717_416,
    "gpt2": 124_439_808 - 10 * 7_087_872,
}
PUBLISHED_GMAC = {
    "resnet18": 1.814,
    "resnet50": 4.089,
    "mobilenet_v2": 0.301,
    "vgg16": 15.47,
    "squeezenet1_1": 0.349,
    "densenet121": 2.834,
    "inception_v3": 5.713,
    "shufflenet_v2": 0.145,
    "efficientnet_b0": 0.386,
    "vit_b16": 17.564,
}
NETWORKS_WITHOUT_BATCH_NORM = {"vgg16", "squeezenet1_1", "bert_base", "vit_b16", "vit_tiny", "gpt2"}
EVERY_MODEL = pytest.mark.parametrize("name", MODELS)


def outputs(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = onnxruntime_session(model.SerializeToString())
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def relative_l2(actual: np.ndarray, expected: np.ndarray) -> float:
    difference = actual.astype(np.float64) - expected
    return float(np.linalg.norm(difference) / np.linalg.norm(expected))


def declared_shape(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    return tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)


@pytest.mark.parametrize("name", PUBLISHED_PARAMETERS)
def test_a_model_has_the_published_number_of_parameters(name):
    graph = MODELS[name].graph(name)

    assert graph.parameters == PUBLISHED_PARAMETERS[name]


def test_every_model_but_the_unpublished_unet_has_its_parameters_checked():
    assert set(MODELS) - set(PUBLISHED_PARAMETERS) == {"unet_small"}


@pytest.mark.parametrize("name", PUBLISHED_GMAC)
def test_a_model_does_the_published_number_of_multiply_adds(name):
    graph = MODELS[name].graph(name)

    assert graph.flop / 2e9 == pytest.approx(PUBLISHED_GMAC[name], rel=0.01)


@EVERY_MODEL
def test_declared_parameters_are_the_initialisers_that_are_drawn(name):
    graph = MODELS[name].graph(name, reduced=True)

    model = graph.model(seed=0)

    drawn = {t.name: (tuple(t.dims), t.data_type) for t in model.graph.initializer}
    declared = {t.name: (tuple(t.dims), t.data_type) for t in graph.model(draw_weights=False).graph.initializer}
    assert drawn == declared
    learned = [weight.name for weight in graph.weights.values() if weight.learned]
    assert graph.parameters == sum(math.prod(drawn[weight][0]) for weight in learned)
    assert all(tensor.raw_data for tensor in model.graph.initializer)


@EVERY_MODEL
def test_a_reduced_model_is_valid_onnx_with_a_name_for_every_node(name):
    model = build(name, reduced=True)

    onnx.checker.check_model(model, full_check=True)

    names = [node.name for node in model.graph.node]
    assert all(names)
    assert len(set(names)) == len(names)


@EVERY_MODEL
def test_the_builder_and_onnx_agree_on_every_shape(name):
    graph = MODELS[name].graph(name, batch=3, reduced=True)

    inferred = onnx.shape_inference.infer_shapes(graph.model(), strict_mode=True, data_prop=True).graph

    shapes = {value.name: declared_shape(value) for value in [*inferred.value_info, *inferred.output]}
    assert shapes == graph.shapes


@pytest.mark.parametrize("batch", [1, 3])
@EVERY_MODEL
def test_a_reduced_model_gives_finite_and_varied_outputs_of_the_declared_shape(name, batch):
    model = build(name, batch=batch, reduced=True)

    actual = outputs(model, inputs(model))

    for value in model.graph.output:
        result = actual[value.name]
        assert result.shape == declared_shape(value)
        assert result.shape[0] == batch
        assert np.isfinite(result).all()
        assert np.abs(result).max() < 50
        assert np.unique(result).size > 0.6 * result.size, "equal or saturated values"
        assert result.std() > 0.1 * np.abs(result).mean(), "nearly constant"


@EVERY_MODEL
def test_another_input_gives_another_output(name):
    model = build(name, reduced=True)

    first, second = (outputs(model, inputs(model, seed=seed)) for seed in (0, 1))

    for output in first:
        assert relative_l2(second[output], first[output]) > 0.02


@EVERY_MODEL
def test_a_row_of_a_batch_is_the_result_of_its_input_alone(name):
    single, triple = build(name, reduced=True), build(name, batch=3, reduced=True)
    feeds = inputs(triple, seed=4)

    expected = outputs(single, {key: array[2:] for key, array in feeds.items()})

    for output, result in outputs(triple, feeds).items():
        assert relative_l2(result[2:], expected[output]) < 1e-5


@EVERY_MODEL
def test_the_same_seed_gives_the_same_bytes_and_another_seed_other_weights(name):
    first, again, other = (
        build(name, reduced=True, seed=seed).SerializeToString(deterministic=True) for seed in (5, 5, 6)
    )

    assert first == again
    assert first != other
    assert len(first) == len(other)


@EVERY_MODEL
def test_batch_norm_nodes_are_there_and_none_of_their_terms_is_trivial(name):
    model = build(name, reduced=True)
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}

    nodes = [node for node in model.graph.node if node.op_type == "BatchNormalization"]

    assert bool(nodes) == (name not in NETWORKS_WITHOUT_BATCH_NORM)
    for node in nodes:
        scale, bias, mean, variance = (weights[term] for term in node.input[1:])
        assert (variance > 0.5).all()
        for term, identity in ((scale, 1), (bias, 0), (mean, 0), (variance, 1)):
            assert np.abs(term - identity).max() > 0.01, node.name


@pytest.mark.parametrize(
    ("name", "operators"),
    [
        ("mobilenet_v1", {"Clip", "Softmax", "Dropout"}),
        ("squeezenet1_1", {"MaxPool", "Concat"}),
        ("densenet121", {"AveragePool", "Concat"}),
        ("shufflenet_v2", {"Split", "Reshape", "Transpose", "ReduceMean"}),
        ("efficientnet_b0", {"Sigmoid", "Mul", "GlobalAveragePool"}),
        ("unet_small", {"ConvTranspose", "Concat", "Sigmoid"}),
        (
            "bert_base",
            {"Gather", "Cast", "Sub", "Pow", "Sqrt", "Div", "Erf", "Softmax", "Tanh", "Shape", "Slice"},
        ),
        ("vit_b16", {"LayerNormalization", "Erf", "Split", "Squeeze", "Softmax", "Expand"}),
        ("gpt2", {"Where", "Tanh", "Split", "Gemm", "Pow", "ReduceMean", "Slice"}),
    ],
)
def test_a_model_is_written_in_the_operators_of_its_exporter(name, operators):
    used = {node.op_type for node in build(name, reduced=True).graph.node}

    assert operators <= used
    assert "Gelu" not in used
    assert ("LayerNormalization" in used) == name.startswith("vit")


def test_a_pool_of_the_reduced_squeezenet_rounds_its_size_up():
    graph = MODELS["squeezenet1_1"].graph("squeezenet1_1", reduced=True)

    pool = next(node for node in graph.nodes if node.op_type == "MaxPool")

    assert graph.shapes[graph.nodes[0].output[0]][2:] == (22, 22)
    assert graph.shapes[pool.output[0]][2:] == (11, 11)


def test_older_opsets_are_among_the_models():
    opsets = {build(name, reduced=True).opset_import[0].version for name in MODELS}

    assert opsets == {9, 10, 11, 13, 14, 17}


def test_a_size_of_the_network_can_be_overridden():
    image = build("resnet18", reduced=True, size=33, batch=2)
    text = build("bert_base", reduced=True, sequence=7)

    assert declared_shape(image.graph.input[0]) == (2, 3, 33, 33)
    assert declared_shape(text.graph.output[0]) == (1, 7, 24)


def test_an_unknown_size_is_refused():
    with pytest.raises(TypeError, match="sequence"):
        build("resnet18", reduced=True, sequence=7)


def test_token_ids_are_rows_of_the_table_they_index():
    model = build("bert_base", batch=5, reduced=True)

    drawn = inputs(model)

    assert drawn["input_ids"].dtype == np.int64
    assert drawn["input_ids"].min() >= 0
    assert 80 < drawn["input_ids"].max() < 97
    assert set(np.unique(drawn["token_type_ids"])) == {0, 1}


def test_an_attention_mask_hides_the_end_of_each_sequence():
    model = build("bert_base", batch=2, reduced=True)

    mask = inputs(model)["attention_mask"]

    assert mask.tolist() == [[1] * 9 + [0] * 2] * 2


def test_what_the_mask_hides_does_not_reach_the_visible_tokens():
    model = build("bert_base", reduced=True)
    feeds = inputs(model)
    hidden = feeds["attention_mask"] == 0
    changed = feeds | {"input_ids": np.where(hidden, 96 - feeds["input_ids"], feeds["input_ids"])}

    before, after = (outputs(model, f)["last_hidden_state"] for f in (feeds, changed))

    assert relative_l2(after[~hidden], before[~hidden]) < 1e-6
    assert relative_l2(after[hidden], before[hidden]) > 0.1


def test_a_token_of_gpt2_sees_only_those_before_it():
    model = build("gpt2", reduced=True)
    feeds = inputs(model)
    changed = {"input_ids": feeds["input_ids"].copy()}
    changed["input_ids"][0, 7:] = (changed["input_ids"][0, 7:] + 1) % 101

    before, after = (outputs(model, f)["logits"] for f in (feeds, changed))

    assert relative_l2(after[:, :7], before[:, :7]) < 1e-6
    assert relative_l2(after[:, 7:], before[:, 7:]) > 0.1


def test_images_are_standard_normal():
    image = inputs("resnet50", seed=3)["input"]

    assert image.shape == (1, 3, 224, 224)
    assert image.dtype == np.float32
    assert abs(image.mean()) < 0.1
    assert abs(image.std() - 1) < 0.1


def test_inputs_of_a_name_are_those_of_the_published_sizes():
    by_name, by_model = inputs("vit_tiny", seed=2), inputs(build("vit_tiny"), seed=2)

    assert by_name.keys() == by_model.keys() == {"input"}
    assert np.array_equal(by_name["input"], by_model["input"])


def test_adding_a_weight_leaves_the_others_as_they_are():
    def initialisers(*names):
        graph = GraphBuilder("weights", 17)
        for name in names:
            graph.weight(name, (3, 5), normal(1.0))
        return {tensor.name: tensor.raw_data for tensor in graph.model(seed=1).graph.initializer}

    alone, together = initialisers("b"), initialisers("a", "b")

    assert together["b"] == alone["b"]
    assert together["a"] != together["b"]


def test_two_weights_of_one_name_are_refused():
    graph = GraphBuilder("weights", 17)
    graph.weight("w", (2,), normal(1.0))

    with pytest.raises(AssertionError, match="two weights are named w"):
        graph.weight("w", (2,), normal(1.0))


def test_the_command_lists_every_model_with_its_parameters(capsys):
    assert main(["--list"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(MODELS)
    assert next(line.split()[2] for line in lines if line.startswith("resnet50")) == "25,557,032"


def test_the_command_writes_the_model_that_build_gives(tmp_path, capsys):
    path = tmp_path / "written.onnx"

    assert main(["resnet18", "--reduced", "--batch", "2", "--seed", "3", "-o", str(path)]) == 0

    expected = build("resnet18", batch=2, reduced=True, seed=3)
    assert path.read_bytes() == expected.SerializeToString(deterministic=True)
    assert str(path) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [([], "NAME"), (["resnet17"], "resnet17"), (["resnet18", "--batch", "0"], "batch")],
)
def test_the_command_refuses_what_it_cannot_write(arguments, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)

    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_weights_that_an_old_file_lists_as_inputs_are_not_drawn():
    model = build("squeezenet1_1", reduced=True)
    wanted = list(inputs(model))
    for tensor in model.graph.initializer[:3]:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))

    assert list(inputs(model)) == wanted
