"""Models that are there as files, with the inputs that lie beside them, or made for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

COLOURS = 3
PUBLISHED = "test_data_set_0"  # of ONNX's model zoo: input_0.pb and so on


def opened(path: Path) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The model in ``path`` and its inputs: published ones, those of an .npz of its name, or made ones.

    Made images have values as photos have them, 0 to 255: trained networks amplify what noise around 0 means to them, and
    onnxruntime's own answers to that, optimised and not, were 3 % apart. Everything else is normal numbers.
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
    """Dimensions that the model leaves open are 1."""
    return tuple(d.dim_value or 1 for d in info.type.tensor_type.shape.dim)


def _dtype(info: onnx.ValueInfoProto) -> np.dtype:
    return onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
