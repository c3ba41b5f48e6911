"""The files that pages name: models, photos, records."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import gpucomp
from bench.decoder_model import Sizes, decoder
from tests.docs.pages import ROOT

PHOTO = (1, 3, 224, 224)
OPSET = [helper.make_opsetid("", 17)]
RNG = np.random.default_rng(0)


def _tensor(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def _saved(path, nodes, inputs, outputs, weights=None):
    held = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, path.stem, inputs, outputs, held)
    onnx.save(helper.make_model(graph, opset_imports=OPSET, ir_version=9), path)


def _classifier(path):
    """x -> conv1 -> relu -> mean -> y: four classes."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv1", kernel_shape=[3, 3], strides=[8, 8]),
        helper.make_node("Relu", ["c"], ["r"], name="relu1"),
        helper.make_node("ReduceMean", ["r"], ["m"], axes=[2, 3], keepdims=0),
        helper.make_node("MatMul", ["m", "v"], ["y"], name="scores"),
    ]
    weights = {"w": RNG.normal(size=(8, 3, 3, 3)), "v": RNG.normal(size=(8, 4))}
    weights = {name: array.astype(np.float32) for name, array in weights.items()}
    _saved(path, nodes, [_tensor("x", PHOTO)], [_tensor("y", (1, 4))], weights)


def _quantized(path):
    """A convolution of bytes, as QuantizeLinear and DequantizeLinear say it."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "s", "wz"], ["f"]),
        helper.make_node("Conv", ["d", "f"], ["y"], name="conv1"),
    ]
    weights = {
        "s": np.float32(0.05),
        "z": np.uint8(128),
        "w": RNG.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8),
        "wz": np.int8(0),
    }
    weights = {name: np.asarray(array) for name, array in weights.items()}
    _saved(path, nodes, [_tensor("x", (1, 3, 16, 16))], [_tensor("y", (1, 4, 14, 14))], weights)


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a page may name without having made it."""
    folder = tmp_path_factory.mktemp("files")
    _classifier(folder / "model.onnx")
    _quantized(folder / "int8.onnx")
    pooled = [helper.make_node("GlobalAveragePool", ["x"], ["y"])]
    onnx.save(decoder(Sizes(layers=1)), folder / "decoder.onnx")
    _saved(folder / "open.onnx", pooled, [_tensor("x", ["n", 3, "h", "w"])], [_tensor("y", None)])
    reshaped = [helper.make_node("Reshape", ["x", "size"], ["y"])]
    size = _tensor("size", (2,), TensorProto.INT64)
    _saved(folder / "reshaped.onnx", reshaped, [_tensor("x", (3, 4)), size], [_tensor("y", None)])
    gpucomp.compile(folder / "model.onnx", target="cpu").save(folder / "model.gpuc")
    np.save(folder / "x.npy", np.zeros(PHOTO, np.float32))
    for place in ("tuned", "results"):
        (folder / place).mkdir()
    shutil.copy(ROOT / "tuning" / "records" / "trials" / "opencl_pocl.jsonl", folder / "tuned" / "tuning.jsonl")
    (folder / "results" / "devices.json").write_text('{"sm_90a": {"ghz": 1.98}}', encoding="utf-8")
    for used in ("bench/results/spaces/matmul-61x96x200.json.gz", "bench/results/cpu_1.json"):
        (folder / used).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / used, folder / used)
    return folder


@pytest.fixture
def place(files: Path, tmp_path: Path) -> Path:
    """A folder of the test's own with these files."""
    return Path(shutil.copytree(files, tmp_path / "place"))


def save_photo(path: Path) -> None:
    """A photo, for pages that need one. Skips the test where Pillow is missing."""
    pillow = pytest.importorskip("PIL.Image", reason="could not import 'pillow'")
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3)).astype(np.uint8)
    pillow.fromarray(pixels).save(path)
