"""Weights as safetensors (https://huggingface.co/docs/safetensors): a JSON header, then the bytes of every tensor.

Packing is not here, but in ``gpucomp.kernel.passes.pack_weights``.

Every tensor begins at a multiple of 64 bytes, so that kernels can read mapped weights in place if copying them into
large pages does not pay. The format has no gaps, so padding is a tensor too, named ``pad.0``, ``pad.1`` and so on.
Names and types determine the header: the reader computes and compares it, and never parses one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np

from gpucomp.artifact.container import Bytes
from gpucomp.errors import ArtifactError
from gpucomp.ir.types import TensorType

TENSOR_ALIGNMENT = 64  # bytes, of a tensor in the member
_FORMAT_NAMES = {
    "f64": "F64",
    "f32": "F32",
    "f16": "F16",
    "bf16": "BF16",
    "f8e4m3fn": "F8_E4M3",
    "f8e5m2": "F8_E5M2",
    "i64": "I64",
    "i32": "I32",
    "i16": "I16",
    "i8": "I8",
    "u64": "U64",
    "u32": "U32",
    "u16": "U16",
    "u8": "U8",
    "bool": "BOOL",
}  # any other type is stored as bytes, U8, with one more axis


def _entry(type: TensorType, begin: int) -> dict[str, object]:
    known = _FORMAT_NAMES.get(type.dtype.name)
    shape = list(type.shape) if known else [*type.shape, type.dtype.nbytes]
    return {"dtype": known or "U8", "shape": shape, "data_offsets": [begin, begin + type.nbytes]}


def _header(types: Mapping[str, TensorType]) -> tuple[bytes, dict[str, int], int]:
    """The header with its length field, the offset of each tensor after it, and the number of bytes after it."""
    entries: dict[str, object] = {}
    begins, position = {}, 0
    for number, (name, type) in enumerate(types.items()):
        if gap := -position % TENSOR_ALIGNMENT:
            entries[f"pad.{number}"] = {"dtype": "U8", "shape": [gap], "data_offsets": [position, position + gap]}
            position += gap
        begins[name] = position
        entries[name] = _entry(type, position)
        position += type.nbytes
    text = json.dumps(entries, separators=(",", ":")).encode("ascii")
    text += b" " * (-(8 + len(text)) % TENSOR_ALIGNMENT)
    return len(text).to_bytes(8, "little") + text, begins, position


def pieces(weights: Mapping[str, np.ndarray], types: Mapping[str, TensorType]) -> list[Bytes]:
    """The bytes of the file, without copying contiguous arrays. Weights are in the order of ``types``."""
    header, begins, _ = _header(types)
    parts: list[Bytes] = [header]
    position = 0
    for name, begin in begins.items():
        parts.append(bytes(begin - position))
        parts.append(np.ascontiguousarray(weights[name]).reshape(-1).view(np.uint8).data)
        position = begin + types[name].nbytes
    return [part for part in parts if memoryview(part).nbytes]


def read(data: memoryview, types: Mapping[str, TensorType]) -> dict[str, np.ndarray]:
    """Read-only views of the tensors in ``data``. Raises ``ArtifactError`` unless it holds exactly ``types``."""
    header, begins, nbytes = _header(types)
    if len(data) != len(header) + nbytes or data[: len(header)] != header:
        raise ArtifactError("weights.safetensors does not hold the weights that the manifest lists", code="GPC7004")
    body = np.frombuffer(data[len(header) :], np.uint8)
    return {
        name: body[begin : begin + types[name].nbytes].view(types[name].dtype.numpy).reshape(types[name].shape)
        for name, begin in begins.items()
    }
