"""A repository for Triton's Python backend: its configuration is Triton's, and its model runs as Triton would call it."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import gpucomp
from gpucomp import cli
from gpucomp.errors import ServingError, UnsupportedError, UsageError
from gpucomp.refusal import Refusal
from gpucomp.serving.export import export_triton
from gpucomp.serving.model import Loaded
from gpucomp.serving.model_config import model_config, pbtxt
from tests.onnx_builders import model, node, value
from tests.serving import models


class Tensor:
    """As ``pb_utils.Tensor``: numpy arrays of texts hold bytes, and their other types are numpy's own."""

    def __init__(self, name, array):
        assert isinstance(array, np.ndarray)
        assert array.dtype.kind in "biufO"
        self._name, self._array = name, array

    def name(self):
        return self._name

    def as_numpy(self):
        return self._array


class TritonError:
    def __init__(self, message, code=None):
        self._message = message

    def message(self):
        return self._message


class InferenceResponse:
    def __init__(self, output_tensors, error=None):
        self._tensors, self._error = output_tensors, error

    def output_tensors(self):
        return self._tensors

    def has_error(self):
        return self._error is not None

    def error(self):
        return self._error


class InferenceRequest:
    def __init__(self, inputs, outputs):
        self._inputs, self._outputs = inputs, outputs

    def inputs(self):
        return self._inputs

    def requested_output_names(self):
        return self._outputs


def get_input_tensor_by_name(request, name):
    return next((one for one in request.inputs() if one.name() == name), None)


@pytest.fixture
def backend(monkeypatch):
    """Triton's module, which only its own processes have."""
    made = ModuleType("triton_python_backend_utils")
    for one in (Tensor, TritonError, InferenceResponse, InferenceRequest, get_input_tensor_by_name):
        setattr(made, one.__name__, one)
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", made)


def parsed(place):
    """The configuration as Triton reads it."""
    spec = importlib.util.find_spec("tritonclient")
    if spec is None:
        pytest.skip("pip install tritonclient[http]")
    text_format = pytest.importorskip("google.protobuf.text_format", reason="could not import 'protobuf'")
    # its package needs grpc, the module itself does not
    path = Path(spec.submodule_search_locations[0]) / "grpc" / "model_config_pb2.py"
    own = importlib.util.spec_from_file_location("model_config_pb2", path)
    module = sys.modules.get("model_config_pb2") or importlib.util.module_from_spec(own)
    if "model_config_pb2" not in sys.modules:
        own.loader.exec_module(module)
        sys.modules["model_config_pb2"] = module
    return text_format.Parse((place / "config.pbtxt").read_text(encoding="utf-8"), module.ModelConfig()), module


def started(place):
    """An instance of the model in a repository, as Triton makes one."""
    from google.protobuf.json_format import MessageToDict

    config = MessageToDict(parsed(place)[0], preserving_proto_field_name=True)
    spec = importlib.util.spec_from_file_location("model_in_triton", place / "1" / "model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = module.TritonPythonModel()
    made.initialize(
        {
            "model_config": json.dumps(config),
            "model_instance_kind": "CPU",
            "model_instance_device_id": "0",
            "model_name": place.name,
            "model_repository": str(place),
            "model_version": "1",
        }
    )
    return made


def request(*arrays, name="x", outputs=("y",)):
    return InferenceRequest([Tensor(name, array) for array in arrays], list(outputs))


def exported(tmp_path, proto, name="m", **how):
    return export_triton(models.save(proto, tmp_path / f"{name}.onnx"), tmp_path / "repository", target="cpu", **how)


def test_the_configuration(tmp_path):
    config, module = parsed(exported(tmp_path, models.mlp(), max_batch=8))

    assert (config.name, config.backend, config.max_batch_size) == ("m", "python", 8)
    assert [(one.name, one.data_type, list(one.dims)) for one in config.input] == [("x", module.TYPE_FP32, [5])]
    assert [(one.name, one.data_type, list(one.dims)) for one in config.output] == [("y", module.TYPE_FP32, [3])]
    assert [(one.kind, one.count) for one in config.instance_group] == [(module.ModelInstanceGroup.KIND_CPU, 1)]
    assert config.HasField("dynamic_batching")


def test_without_batches_dims_are_whole_shapes(tmp_path):
    config, _ = parsed(exported(tmp_path, models.mlp()))

    assert config.max_batch_size == 0
    assert list(config.input[0].dims) == [-1, 5]
    assert not config.HasField("dynamic_batching")


def test_a_tensor_of_the_batch_alone_has_a_dimension_for_triton(tmp_path, backend):
    """Triton refuses ``dims: []``."""
    proto = model([node("Relu", ["x"], ["y"])], [value("x", ["n"])], [value("y", ["n"])])
    place = exported(tmp_path, proto, max_batch=8)
    config, _ = parsed(place)

    for one in (*config.input, *config.output):
        assert list(one.dims) == [1]
        assert one.HasField("reshape")
        assert list(one.reshape.shape) == []
    (response,) = started(place).execute([request(np.array([-1, 2], np.float32))])
    assert response.output_tensors()[0].as_numpy().tolist() == [0, 2]


def test_scalars_are_refused(tmp_path):
    proto = model([node("Relu", ["x"], ["y"])], [value("x", [])], [value("y", [])])

    with pytest.raises(UnsupportedError, match="GPC4020 'x' is a scalar"):
        exported(tmp_path, proto)


def test_names_are_quoted(tmp_path):
    name = 'a"b\\c\nä'
    proto = model([node("Relu", [name], ["y"])], [value(name, [2, 3])])

    config, _ = parsed(exported(tmp_path, proto))

    assert config.input[0].name == name


@pytest.mark.parametrize("max_batch", [1, 8])
def test_the_model_answers_as_triton_asks(tmp_path, backend, max_batch):
    made = started(exported(tmp_path, models.mlp(), max_batch=max_batch))
    arrays = [np.random.default_rng(n).standard_normal((n, 5)).astype(np.float32) for n in (1, 3, 2)]

    responses = made.execute([request(x) for x in arrays])
    made.finalize()

    for x, response in zip(arrays, responses, strict=True):
        (tensor,) = response.output_tensors()
        assert tensor.name() == "y"
        np.testing.assert_allclose(tensor.as_numpy(), models.mlp_of(x), rtol=1e-5, atol=1e-6)


def test_one_request_that_fails_is_one_error(tmp_path, backend):
    made = started(exported(tmp_path, models.mlp(), max_batch=8))
    x = np.ones((2, 5), np.float32)

    right, wrong = made.execute([request(x), request(np.ones((2, 4), np.float32))])

    np.testing.assert_allclose(right.output_tensors()[0].as_numpy(), models.mlp_of(x), rtol=1e-5, atol=1e-6)
    assert wrong.has_error()
    assert wrong.error().message().startswith("GPC2103")


def test_only_what_is_asked_for_is_given(tmp_path, backend):
    proto = model([node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["z"])], [value("x", [2, 3])], ["y", "z"])
    made = started(exported(tmp_path, proto))

    (response,) = made.execute([request(np.ones((2, 3), np.float32), outputs=["z"])])

    assert [one.name() for one in response.output_tensors()] == ["z"]


def test_texts_are_bytes_in_triton(tmp_path, backend):
    made = started(exported(tmp_path, models.texts()))
    words = np.array(["", "ä", "b", "word"], object)

    (response,) = made.execute([request(np.array([w.encode() for w in words], object), name="t", outputs=["u"])])

    assert response.output_tensors()[0].as_numpy().tolist() == words.tolist()


def test_texts_that_are_not_utf8_are_refused(tmp_path, backend):
    """As by the server: a text that is changed silently is another one."""
    made = started(exported(tmp_path, models.texts()))
    asked = [request(np.array(4 * [word], object), name="t", outputs=["u"]) for word in (b"a", b"\xff", b"b")]

    first, wrong, last = made.execute(asked)

    assert [one.output_tensors()[0].as_numpy().tolist() for one in (first, last)] == [4 * ["a"], 4 * ["b"]]
    assert wrong.error().message().startswith("GPC1201 input 't': a text that is not UTF-8")


def test_an_instance_is_on_the_first_gpu_only():
    """That is the one that gpucomp opens; Triton starts one on each without it."""
    loaded = Loaded("m", 1, SimpleNamespace(target="cuda:sm_90a"), (), (), 2, Refusal("not asked for"))

    config = model_config(loaded, [1])

    assert config["instance_group"] == [{"kind": "KIND_GPU", "gpus": [0], "count": 2}]
    assert "gpus: [0]" in pbtxt(config)


def test_a_compiled_model_is_exported_too(tmp_path, backend):
    exe = gpucomp.compile(models.mlp(), target="cpu", shapes={"x": ("n", 5)})
    exe.save(tmp_path / "c.gpuc")
    place = export_triton(tmp_path / "c.gpuc", tmp_path / "r", max_batch=4, independent=True)

    (response,) = started(place).execute([request(np.ones((1, 5), np.float32))])

    assert response.output_tensors()[0].as_numpy().shape == (1, 3)


def test_batches_that_are_not_proven_are_refused(tmp_path):
    with pytest.raises(ServingError, match=r"GPC1211 .*it is not proven"):
        exported(tmp_path, models.centred(), max_batch=4)


def test_types_that_the_backend_has_not(tmp_path):
    with pytest.raises(UnsupportedError, match="GPC4020 'in_BFLOAT16' is BF16"):
        exported(tmp_path, models.every_type())


def test_a_name_that_triton_cannot_have(tmp_path):
    with pytest.raises(UsageError, match="GPC2052 'a b': letters"):
        exported(tmp_path, models.mlp(), name="a b")


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "repository").write_text("a file")

    with pytest.raises(UsageError, match="GPC2005 cannot write"):
        exported(tmp_path, models.mlp())


def test_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.excepthook", sys.excepthook)
    monkeypatch.setattr("warnings.showwarning", __import__("warnings").showwarning)
    path = models.save(models.mlp(), tmp_path / "m.onnx")

    code = cli.main(["export", "--triton", str(tmp_path / "r"), str(path), "--target", "cpu", "--max-batch", "4"])

    assert code == 0
    lines = capsys.readouterr().out.splitlines()
    assert [Path(line.split()[-1]).name for line in lines] == ["model.gpuc", "model.py", "config.pbtxt"]
