"""Files that are no models, or whose bytes want more than they are: cut, foreign, nested, repeated a million times."""

from __future__ import annotations

import gzip
import io
import json
import zipfile

import numpy as np
import onnx
from onnx import TensorProto

from tests.hostile.corpus import OK, compile_cpu, content
from tests.onnx_builders import model, node, value

GOOD = model([node("Relu", ["x"], ["y"], name="act")], [value("x")]).SerializeToString()
RNG = np.random.default_rng(0)


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def field(number: int, data: bytes) -> bytes:
    """A length-delimited field of protobuf."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def plain(graph: bytes) -> bytes:
    """A model of IR version 10 and opset 20 with this graph message."""
    return b"\x08\x0a" + field(7, graph) + field(8, b"\x10\x14")


def nested_graphs(depth: int) -> bytes:
    """A node whose attribute holds a graph with a node whose attribute holds a graph ..."""
    data = b""
    for _ in range(depth):
        attribute = field(1, b"body") + field(6, data) + varint(20 << 3) + b"\x05"
        data = field(1, field(4, b"If") + field(5, attribute))
    return plain(data + field(12, field(1, b"y")))


def zipped() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("m.onnx", GOOD)
    return file.getvalue()


Y = field(12, field(1, b"y"))  # a graph's output
RELU = field(1, field(1, b"x") + field(2, b"y") + field(4, b"Relu"))

for percent in (3, 10, 25, 50, 75, 90, 99):
    content(f"bytes/truncated_{percent}", "GPC3002", lambda p=percent: GOOD[: len(GOOD) * p // 100])

for what, data in {
    "empty": b"",
    "one_zero": b"\0",
    "zeros": bytes(4096),
    "ones": b"\xff" * 4096,
    "text": b"hello, this is text\n" * 20,
    "json": json.dumps({"graph": {"node": []}}).encode(),
    "png": b"\x89PNG\r\n\x1a\n" + bytes(range(256)),
    "pickle": b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00}\x94.",
    "elf": b"\x7fELF\x02\x01\x01" + bytes(200),
    "gzip": gzip.compress(GOOD, mtime=0),
    "random": RNG.bytes(4096),
    "length_of_2_63": b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
    "length_past_the_end": b"\x3a\xff\xff\xff\x07" + GOOD,
    "varint_without_end": b"\x08" + b"\xff" * 64,
    "groups_without_end": b"\x0b" * 5000,
    "nested_lengths": b"\x3a\x02" * 5000,
    "field_zero": b"\x02\x00" + GOOD,
    "wire_type_7": b"\x0f" + GOOD,
    "garbage_behind": GOOD + b"\xff\xfe\xfd",
}.items():
    content(f"bytes/{what}", "GPC3002", lambda d=data: d)
OTHER = TensorProto(name="t", data_type=1, dims=[1], float_data=[1]).SerializeToString()
content("bytes/another_message", "GPC3003", lambda: OTHER)
content("bytes/zip", "GPC3002", zipped)

for what, old, new in (
    ("node_name_no_utf8", b"act", b"\xff\xfe\xfd"),
    ("operator_no_utf8", b"Relu", b"\xff\xfe\xfd\xfc"),
    ("surrogate_in_a_name", b"act", b"\xed\xa0\x80"),
    ("overlong_slash", b"act", b"\xc0\xafx"),
    ("graph_name_no_utf8", b"graph", b"\xc3\x28\xa0\xa1\xff"),
):
    content(f"bytes/{what}", "GPC3003", lambda o=old, n=new: GOOD.replace(o, n))

# nothing is asked for that is not there, and what is there is counted before it is walked through
for depth, code in ((10, "GPC3013"), (200, "GPC3002"), (20_000, "GPC3002")):
    content(f"bytes/graphs_{depth}_deep", code, lambda d=depth: nested_graphs(d))
content("bytes/a_million_empty_nodes", "GPC4006", lambda: plain(b"\x0a\0" * 1_010_000 + Y))
content("bytes/a_million_empty_attributes", "GPC4006", lambda: plain(field(1, b"\x2a\0" * 1_010_000) + Y))
content(
    "bytes/two_million_empty_texts",
    "GPC4006",
    lambda: plain(
        field(1, field(2, b"y") + field(4, b"Constant") + field(5, field(1, b"a") + b"\x4a\0" * 2_010_000)) + Y
    ),
)
content(
    "bytes/a_node_of_many_inputs",
    "GPC3013",
    lambda: plain(field(11, onnx_input()) + field(1, b"\x0a\x01x" * 100_000 + field(2, b"y") + field(4, b"Relu")) + Y),
)
content(
    "bytes/a_node_of_many_outputs",
    "GPC3013",
    lambda: plain(
        field(11, onnx_input())
        + field(1, field(4, b"Relu") + field(1, b"x") + b"".join(field(2, b"%d" % k) for k in range(100_000)))
        + Y
    ),
)
content(
    "bytes/a_tensor_of_enormous_rank",
    "GPC3033",
    lambda: plain(RELU + field(5, b"\x10\x01" + field(8, b"x") + field(1, b"\x01" * 100_000)) + Y),
    "'x'",
)
content(
    "bytes/many_numbers_for_a_scalar",
    "GPC3032",
    lambda: plain(RELU + field(5, b"\x10\x07" + field(8, b"x") + field(7, b"\x01" * 100_000)) + Y),
    "'x'",
)
content(
    "bytes/eight_million_numbers_of_a_byte_each",
    "GPC3032",
    lambda: plain(RELU + field(5, b"\x10\x07" + field(8, b"x") + field(7, b"\x01" * 8 * 10**6)) + Y),
    "'x'",
)
content(
    "bytes/a_name_of_ten_million_letters",
    "GPC3012",
    lambda: plain(field(1, field(1, b"q" * 10**7) + field(2, b"y") + field(4, b"Relu")) + Y),
    "'qqqq",
)
content(
    "bytes/an_operator_of_ten_million_zeros",
    "GPC4001",
    lambda: plain(field(1, field(1, b"x") + field(2, b"y") + field(4, bytes(10**7))) + field(11, onnx_input()) + Y),
    "unknown operator",
)
content("bytes/many_inputs_of_one_name", "GPC3011", lambda: plain(field(11, field(1, b"x")) * 100_000 + RELU + Y))
content(
    "bytes/many_inputs_the_last_one_twice",
    "GPC3011",
    lambda: plain(
        b"".join(field(11, field(1, b"%d" % k)) for k in range(60_000)) + field(11, field(1, b"59999")) + RELU + Y
    ),
    "'59999'",
)
content(
    "bytes/many_outputs_the_last_one_twice",
    "GPC3011",
    lambda: plain(
        RELU + b"".join(field(12, field(1, b"%d" % k)) for k in range(60_000)) + field(12, field(1, b"59999"))
    ),
    "'59999'",
)

# protobuf merges what is there twice: a graph that was given in two halves is a graph
content(
    "bytes/unknown_fields",
    OK,
    lambda: field(777, b"?" * 100_000) + GOOD + varint(9 << 20 | 0) + b"\x01",
    act=compile_cpu,
)
content("bytes/a_graph_in_two_halves", "GPC3011", lambda: GOOD + GOOD, "declared twice")


def onnx_input() -> bytes:
    return onnx.ModelProto.FromString(GOOD).graph.input[0].SerializeToString()
