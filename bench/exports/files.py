"""Models in files, with the inputs stored beside them, or generated inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

COLOURS = 3
PUBLISHED = "test_data_set_0"  # a folder in ONNX's model zoo: input_0.pb and so on


def opened(path: Path) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The model in ``path`` and its inputs: published ones, those of an .npz with its name, or generated ones.

    Generated images have values from 0 to 255, like photos. With noise around 0 trained networks amplify differences: the
    results of onnxruntime with and without optimisation differed by 3 %. All other inputs are normal numbers.
    """
    model = onnx.load(path)
    weights = {tensor.name for tensor in model.graph.initializer}
    wanted = [info for info in model.graph.input if info.name not in weights]
    published = [path.parent / PUBLISHED / f"input_{k}.pb" for k in range(len(wanted))]
    if all(file.exists() for file in published):
        tensors = [onnx.TensorProto.FromString(file.read_bytes()) for file in published]
        return model, {info.name: numpy_helper.to_array(t) for info, t in zip(wanted, tensors, strict=True)}
    archive = path.with_suffix(".npz")
    if archive.exists():
        with np.load(archive, allow_pickle=False) as arrays:
            if all(info.name in arrays for info in wanted):
                return model, {info.name: arrays[info.name] for info in wanted}
    rng = np.random.default_rng(0)
    return model, {info.name: _made(rng, _shape(info)).astype(_dtype(info)) for info in wanted}


def _made(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    image = len(shape) == 4 and COLOURS in (shape[1], shape[3])
    return rng.integers(0, 256, shape) if image else rng.standard_normal(shape)


def _shape(info: onnx.ValueInfoProto) -> tuple[int, ...]:
    """The shape, with 1 for unknown dimensions."""
    return tuple(d.dim_value or 1 for d in info.type.tensor_type.shape.dim)


def _dtype(info: onnx.ValueInfoProto) -> np.dtype:
    return onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
