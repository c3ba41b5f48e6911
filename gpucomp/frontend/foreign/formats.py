"""The formats that a path can have, by its ending: who converts each, or why nobody does."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from gpucomp.errors import UsageError, quote
from gpucomp.extras import EXTRAS, install
from gpucomp.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Converter:
    """A program of ``gpucomp.frontend.foreign.programs``, and the ``modules`` that it calls.

    Their packages are those of ``extra``. If they need other versions than gpucomp, they are ``apart``, in an environment of
    their own. ``environment`` are variables that it needs, as ``NAME=VALUE``. ``folder`` says that a model is a folder.
    """

    program: str
    title: str
    extra: str
    modules: tuple[str, ...]
    environment: tuple[str, ...] = ()
    folder: bool = False
    apart: tuple[str, ...] = ()

    @property
    def packages(self) -> tuple[str, ...]:
        return self.apart or EXTRAS[self.extra].packages

    @property
    def install(self) -> str:
        """What installs the packages."""
        if not self.apart:
            return install(self.extra)
        packages = " ".join(map(shlex.quote, self.apart))
        return (
            f"python -m venv converters && converters/bin/pip install {packages}, and GPUCOMP_CONVERTERS=converters/bin/python "
            "(an environment of their own: they need other versions than gpucomp)"
        )


FAILED = "error.json"  # beside the target: the code and message of an error that a converter found
PADDLE = (
    "paddle2onnx>=2.1,<3",
    "paddlepaddle>=3",
    "packaging",
    "onnxruntime",
)  # it installs the last one itself otherwise
CONVERTERS: Mapping[str, Converter] = {
    ".pt2": Converter("torch_export", "a program of torch.export", "torch", ("torch", "onnxscript")),
    ".keras": Converter(
        "keras", "a model of Keras", "keras", ("keras", "torch", "onnxscript"), ("KERAS_BACKEND=torch",)
    ),
    ".tflite": Converter("tflite", "a model of TensorFlow Lite", "tensorflow", ("tensorflow", "tf2onnx")),
    ".pdmodel": Converter("paddle", "a model of PaddlePaddle", "", ("paddle2onnx", "paddle"), apart=PADDLE),
}
SAVED_MODEL = Converter(
    "saved_model", "a SavedModel of TensorFlow", "tensorflow", ("tensorflow", "tf2onnx"), folder=True
)

_PICKLES = (
    "is read by pickle, which runs whatever code the file has, so it is not read here; in a program of yours: "
    "skl2onnx.to_onnx(model, example_rows) gives a model that gpucomp.compile takes"
)
_WEIGHTS = (
    "has weights, or a pickle, and no graph of operators; in a program that has the model: "
    "torch.export.save(torch.export.export(model, inputs), 'model.pt2'), which gpucomp compiles, or "
    "torch.compile(model, backend='gpucomp')"
)
_APPLE = "is Core ML's, and no converter from it is kept; convert the model that it was made from to ONNX"
_MXNET = (
    "is MXNet's, which ended in 2023; its last release exports ONNX: mxnet.onnx.export_model(symbol, params, shapes)"
)
REFUSED: Mapping[str, str] = {
    ".pkl": _PICKLES,
    ".pickle": _PICKLES,
    ".joblib": _PICKLES,
    ".pt": _WEIGHTS,
    ".pth": _WEIGHTS,
    ".ckpt": _WEIGHTS,
    ".safetensors": _WEIGHTS,
    ".h5": "is Keras's old format; keras.models.load_model(path).save('model.keras') writes the one that is read here",
    ".hdf5": "is Keras's old format; keras.models.load_model(path).save('model.keras') writes the one that is read here",
    ".pb": "is a frozen graph of TensorFlow or a net of Caffe2; for the first: python -m tf2onnx.convert --graphdef; "
    "Caffe2 ended in 2018, and no converter is kept",
    ".mlmodel": _APPLE,
    ".mlpackage": _APPLE,
    ".params": _MXNET,
    ".caffemodel": "is Caffe's, and no converter from it is kept; look for the same model as ONNX",
    ".gguf": "is llama.cpp's and has weights without a graph; export the model that it was made from to ONNX",
    ".jaxexport": "is JAX's; in a program that has the function: jax2onnx.to_onnx(function, inputs) gives a model that "
    "gpucomp.compile takes",
}


def converter_of(path: Path) -> Converter | None:
    """Who converts a file; ``None`` if it is to be read as ONNX. Raises ``UsageError`` (GPC2054) for what nobody converts."""
    suffix = path.suffix.lower()
    if os.path.isfile(path / "saved_model.pb"):  # no name is an error
        return SAVED_MODEL
    if path.name.endswith("-symbol.json"):
        suffix = ".params"
    if suffix == ".json" and os.path.isfile(path.with_suffix(".pdiparams")):  # what PaddlePaddle 3 writes
        suffix = ".pdmodel"
    if suffix == ".pb" and _starts_as_onnx(path):
        return None
    if suffix in REFUSED:
        raise UsageError(f"{quote(path)} {REFUSED[suffix]}", code="GPC2054")
    return CONVERTERS.get(suffix)


def _starts_as_onnx(path: Path) -> bool:
    """Whether a file begins with the number of ONNX's version; graphs of TensorFlow and Caffe2 begin with a node or a name."""
    if not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            return file.read(1) == b"\x08"
    except OSError:
        return False
