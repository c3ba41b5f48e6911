"""Messages between the coordinator and its processes: JSON with arrays, and the candidates in them.

A frame is two lengths, the JSON, then the arrays' bytes one after the other. It names no Python object, so it can come from
another machine. Arrays that the other side already has are only named by their digest.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from gpucomp.artifact.plan import CompiledKernel
from gpucomp.artifact.tensor_map import TensorMap
from gpucomp.errors import ArtifactError
from gpucomp.ir.types import DTYPES, TensorType, dtype_of
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.source import KernelSource
from gpucomp.tuning.setups import Subject

HEAD = struct.Struct("<QQ")
MOST = 1 << 34  # bytes of a frame
Message = dict[str, Any]
Arrays = Mapping[str, np.ndarray]


def digest(array: np.ndarray) -> str:
    """A name for an array, from its contents."""
    found = hashlib.blake2b(f"{array.dtype}{array.shape}".encode(), digest_size=16)
    found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def packed(message: Message, arrays: Arrays) -> list[bytes | memoryview]:
    """The parts of a frame, to be written one after the other."""
    listed, parts = [], []
    for name, array in arrays.items():
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        listed.append([name, dtype_of(array.dtype).name, list(array.shape), raw.nbytes])
        parts.append(raw)
    text = json.dumps({**message, "arrays": listed}).encode()
    return [HEAD.pack(len(text), sum(p.nbytes for p in parts)), text, *parts]


def unpacked(read: Callable[[int], bytes]) -> tuple[Message, dict[str, np.ndarray]]:
    """Read a frame by ``read(count)``. Raises ``EOFError`` at the end, ``ArtifactError`` for anything that is not a frame."""
    text_bytes, array_bytes = HEAD.unpack(read(HEAD.size))
    if text_bytes + array_bytes > MOST:
        raise ArtifactError("a message is too long", code="GPC7110")
    try:
        message = json.loads(read(text_bytes))
        types = {name: TensorType(DTYPES[dtype], tuple(shape)) for name, dtype, shape, _ in message["arrays"]}
        listed = [nbytes for *_, nbytes in message.pop("arrays")]
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise ArtifactError("a message cannot be understood", code="GPC7110") from None
    whole = all(type(d) is int and 0 <= d < MOST for t in types.values() for d in t.shape)
    if not whole or [t.nbytes for t in types.values()] != listed or sum(listed) != array_bytes:
        raise ArtifactError("a message's arrays do not have the sizes that it states", code="GPC7110")
    arrays = {}
    for name, type_ in types.items():
        raw = np.frombuffer(bytearray(read(type_.nbytes)), np.uint8)
        arrays[name] = raw.view(type_.dtype.numpy).reshape(type_.shape)
    return message, arrays


def framed(message: Message, arrays: Arrays) -> bytes:
    """A frame in one piece."""
    return b"".join(bytes(part) for part in packed(message, arrays))


def unframed(frame: bytes) -> tuple[Message, dict[str, np.ndarray]]:
    """The inverse of ``framed``. Raises the same errors as ``unpacked``."""
    view, at = memoryview(frame), 0

    def read(count: int) -> bytes:
        nonlocal at
        part = bytes(view[at : at + count])
        if len(part) < count:
            raise EOFError
        at += count
        return part

    return unpacked(read)


def source_message(source: KernelSource) -> Message:
    """The fields of a source that a builder needs."""
    return {
        "name": source.name,
        "language": source.language,
        "text": source.text,
        "geometry": asdict(source.geometry),
        "schedule": dict(source.schedule),
        "engine": source.engine,
        "programmatic": source.programmatic,
    }


def source_of(message: Message) -> KernelSource:
    g = message["geometry"]
    geometry = Geometry(**{**g, "groups": tuple(g["groups"]), "items": tuple(g["items"])})
    return KernelSource(
        message["name"],
        message["language"],
        message["text"],
        geometry,
        message["schedule"],
        message["engine"],
        (),
        message["programmatic"],
    )


def subject_message(subject: Subject) -> tuple[Message, dict[str, np.ndarray]]:
    """A candidate as a message, and its arrays by digest."""
    named = {digest(array): array for array in subject.arrays}
    message = {
        "compiled": asdict(subject.compiled),
        "text": subject.text,
        "types": [[t.dtype.name, list(t.shape)] for t in subject.types],
        "operands": [digest(array) for array in subject.arrays],
        "constants": sorted(subject.constants),
        "workspace": subject.workspace_bytes,
        "counters": subject.counter_bytes,
    }
    return message, named


def _with_tuples(message: Message) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in message.items()}


def subject_of(message: Message, arrays: Arrays) -> Subject:
    """The inverse of ``subject_message``. Raises ``KeyError`` for an array that was not sent."""
    c = message["compiled"]
    maps = tuple(TensorMap(**_with_tuples(m)) for m in c["tensor_maps"])
    compiled = CompiledKernel(**{**c, "groups": tuple(c["groups"]), "items": tuple(c["items"]), "tensor_maps": maps})
    types = tuple(TensorType(DTYPES[dtype], tuple(shape)) for dtype, shape in message["types"])
    operands = tuple(arrays[name] for name in message["operands"])
    return Subject(
        compiled,
        message["text"],
        types,
        operands,
        frozenset(message["constants"]),
        message["workspace"],
        message["counters"],
    )
