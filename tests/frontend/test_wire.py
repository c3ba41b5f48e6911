"""The memory that the lists of a file can take is computed from its bytes, before protobuf reads them."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from gpucomp.errors import UnsupportedError
from gpucomp.frontend.onnx import wire
from tests.onnx_builders import model, node

ALLOWED = 640_000  # replaces the limit of the code: lists of some ten thousand entries


def weights(field: str, dtype: int, count: int, number: int = 1) -> onnx.ModelProto:
    w = TensorProto(name="w", data_type=dtype, dims=[count])
    getattr(w, field).extend([number] * count)
    return model([node("Identity", ["w"], ["y"])], weights=[w])


def entries(count: int, number: int) -> onnx.ModelProto:
    """The entries of an attribute, each with its own tag in the file."""
    return model([node("Constant", [], ["y"], value_ints=np.full(count, number).tolist())])


def floats(count: int) -> onnx.ModelProto:
    """The floats of an attribute, each with its own tag."""
    return model([node("Constant", [], ["y"], value_floats=[1.0] * count)])


def texts(count: int) -> onnx.ModelProto:
    return model([node("Constant", [], ["y"], value_strings=[b""] * count)])


def unpacked(count: int, element: bytes = b"\x28\x01") -> bytes:
    """A tensor with one tag per number in int32_data, or in the field of its element type."""
    body = element * count
    length = bytes([len(body) & 127 | 128, len(body) >> 7 & 127 | 128, len(body) >> 14])
    graph = b"\x2a" + length + body
    whole = len(graph)
    return b"\x3a" + bytes([whole & 127 | 128, whole >> 7 & 127 | 128, whole >> 14]) + graph


LARGE = 1 << 62  # nine bytes
SAID = "bytes of lists"


@pytest.mark.parametrize(
    ("given", "passes"),
    [
        (weights("int64_data", TensorProto.INT64, 20_011), True),  # 32 bytes each, 4/3 are allowed for that of the file
        (weights("int64_data", TensorProto.INT64, 21_001), False),
        (weights("int64_data", TensorProto.INT64, 30_011, LARGE), True),  # 12 are allowed for the 9
        (weights("int64_data", TensorProto.INT64, 33_013, LARGE), False),
        (weights("int32_data", TensorProto.FLOAT16, 38_011), True),  # 18 bytes each
        (weights("int32_data", TensorProto.FLOAT16, 39_019), False),
        (entries(29_921, 1), True),  # 24 bytes each
        (entries(30_011, 1), False),
        (entries(59_009, LARGE), True),
        (entries(61_001, LARGE), False),
        (texts(6_803), True),  # 96 bytes each
        (texts(6_907), False),
        (unpacked(41_011), True),
        (unpacked(42_013), False),
        (floats(119_027), True),  # 12 bytes each, 4/3 are allowed for the 5 of the file
        (floats(121_001), False),
        (unpacked(119_027, b"\x25" + bytes(4)), True),
        (unpacked(121_001, b"\x25" + bytes(4)), False),
        (unpacked(52_009, b"\x51" + bytes(8)), True),  # 24 and 9
        (unpacked(54_001, b"\x51" + bytes(8)), False),
    ],
)
def test_lists_are_weighed_by_what_they_take_in_memory(monkeypatch, given, passes):
    monkeypatch.setattr(wire, "MAX_LISTS", ALLOWED)
    data = given if isinstance(given, bytes) else given.SerializeToString()

    if passes:
        wire.check(data, "the model")
    else:
        with pytest.raises(UnsupportedError, match=SAID):
            wire.check(data, "the model")


@pytest.mark.parametrize("field", ["float_data", "double_data"])
def test_packed_numbers_of_fixed_size_are_what_the_file_has(monkeypatch, field):
    monkeypatch.setattr(wire, "MAX_LISTS", 1009)
    packed = weights(field, TensorProto.FLOAT if field == "float_data" else TensorProto.DOUBLE, 200_003)

    wire.check(packed.SerializeToString(), "the model")


def test_the_refusal_says_bytes_where_texts_take_them(monkeypatch):
    monkeypatch.setattr(wire, "MAX_LISTS", 1009)
    data = texts(1013).SerializeToString()

    with pytest.raises(
        UnsupportedError, match=f"or {1009 + len(data) * 4 // 3} bytes of lists, the most that are supported"
    ):
        wire.check(data, "the model")
