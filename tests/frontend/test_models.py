"""Whole trained models through the frontend and the interpreter, against onnxruntime."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from gpucomp.cli.compare import onnxruntime_session, relative_error
from gpucomp.frontend.onnx import load
from gpucomp.ir import verify
from gpucomp.ops.interpreter import interpret

MODELS = Path(__file__).resolve().parents[3] / "shared" / "data" / "models"
FLOAT = sorted(p.relative_to(MODELS).as_posix() for p in MODELS.glob("**/*.onnx") if "int8" not in p.name)
QUANTISED = sorted(p.relative_to(MODELS).as_posix() for p in MODELS.glob("**/*int8*.onnx"))

pytestmark = pytest.mark.skipif(not MODELS.is_dir(), reason="no folder of trained models beside the repository")


def matches(actual: np.ndarray, expected: np.ndarray) -> bool:
    """Relative L2 error of 1e-4: onnxruntime's sigmoid is accurate only to one unit in the last place of 1.0."""
    a, e = actual.astype(np.float64), expected.astype(np.float64)
    return np.linalg.norm(a - e) <= 1e-4 * np.linalg.norm(e) + 2.0**-23 * np.sqrt(e.size)


def run_both(path: Path) -> tuple[list[np.ndarray], list[np.ndarray]]:
    session = onnxruntime_session(path, optimised=False)
    rng = np.random.default_rng(0)
    feed = {}
    for info in session.get_inputs():
        shape = tuple(d if isinstance(d, int) else 1 for d in info.shape)
        feed[info.name] = rng.standard_normal(shape, np.float32)
    graph = load(path, shapes={name: a.shape for name, a in feed.items()})
    verify(graph)
    return interpret(graph, feed), session.run(list(graph.output_names), feed)


@pytest.mark.parametrize("name", FLOAT)
def test_model_gives_onnxruntimes_answer(name):
    actual, expected = run_both(MODELS / name)

    assert [a.shape for a in actual] == [e.shape for e in expected]
    assert all(matches(a, e) for a, e in zip(actual, expected, strict=True))


def every_value(path: Path) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The model with every value as an output, and onnxruntime's array of each for one input."""
    model = onnx.load(path)
    known = {o.name for o in model.graph.output}
    for node in model.graph.node:
        model.graph.output.extend(onnx.ValueInfoProto(name=o) for o in node.output if o not in known)
    session = onnxruntime_session(model.SerializeToString(), optimised=False)
    rng = np.random.default_rng(0)
    shapes = {i.name: tuple(d if isinstance(d, int) else 1 for d in i.shape) for i in session.get_inputs()}
    feed = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    names = [o.name for o in model.graph.output]
    return model, feed | dict(zip(names, session.run(names, feed), strict=True))


def alone(node: onnx.NodeProto, model: onnx.ModelProto, values: dict[str, np.ndarray]) -> onnx.ModelProto:
    def info(name: str) -> onnx.ValueInfoProto:
        dtype = onnx.helper.np_dtype_to_tensor_dtype(values[name].dtype)
        return onnx.helper.make_tensor_value_info(name, dtype, values[name].shape)

    weights = [t for t in model.graph.initializer if t.name in node.input]
    stored = {t.name for t in weights}
    inputs = [info(name) for name in dict.fromkeys(node.input) if name and name not in stored]
    graph = onnx.helper.make_graph([node], "alone", inputs, [info(node.output[0])], weights)
    return onnx.helper.make_model(graph, opset_imports=model.opset_import)


@pytest.mark.parametrize("name", QUANTISED)
def test_every_node_of_a_quantised_model_gives_onnxruntimes_numbers(name):
    """Node by node: a single rounding tie early in an int8 network changes everything after it."""
    model, values = every_value(MODELS / name)
    off = total = 0
    for node in model.graph.node:
        if node.op_type in ("Shape", "Gather", "Unsqueeze", "Concat", "Reshape"):
            continue  # shapes, which are not numbers of the network
        single = alone(node, model, values)
        feed = {i.name: values[i.name] for i in single.graph.input}

        actual, expected = interpret(load(single), feed)[0], values[node.output[0]]

        difference = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
        assert difference.max() <= 1, node.name
        off, total = off + np.count_nonzero(difference), total + difference.size
    assert total > 5_000_000
    assert off <= 10  # ties of x.5 that f32 products can round in both directions


@pytest.mark.parametrize(
    ("model", "data"),
    [("mnist_8/model.onnx", f"mnist_8/test_data_set_{k}") for k in range(3)]
    + [("super_resolution_10/model.onnx", "super_resolution_10/test_data_set_0")],
)
def test_model_gives_the_published_outputs(model, data):
    def tensor(path: Path) -> np.ndarray:
        return numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))

    x = tensor(MODELS / data / "input_0.pb")
    name = onnxruntime_session(MODELS / model).get_inputs()[0].name
    graph = load(MODELS / model, shapes={name: x.shape})

    y = interpret(graph, {name: x})[0]

    assert relative_error(y, tensor(MODELS / data / "output_0.pb")) < 1e-4
