"""Requests that want to do harm: each gets an answer with a code, or loses its connection, and others are served on."""

import gc
import gzip
import importlib
import itertools
import json
import socket
import struct
import sys
import time
import zlib

import numpy as np
import pytest

from gpucomp.errors import ServingError
from gpucomp.serving import connection
from gpucomp.serving.body import Bodies, Body
from gpucomp.serving.datatypes import DATATYPES
from gpucomp.serving.limits import HEADER, Limits
from gpucomp.serving.protocol import Tensor, ask_of
from tests.serving import models
from tests.serving.servers import eventually, process, received, serving

X = np.ones((2, 5), np.float32)
LIMITS = Limits(body=1 << 20, json=100_000, bodies=3 << 20, connections=40, head=1.0, upload=1.2, stalled=1.0, idle=1)
GOOD = {"name": "x", "datatype": "FP32", "shape": [2, 5], "data": [1.0] * 10}


PARSERS = {
    "httptools": ("gpucomp.serving.by_httptools", "ByHttptools"),
    "h11": ("uvicorn.protocols.http.h11_impl", "H11Protocol"),
}


@pytest.fixture(scope="module", params=PARSERS)
def server(tmp_path_factory, request):
    pytest.importorskip(request.param, reason=f"could not import '{request.param}'")
    module, name = PARSERS[request.param]
    base = getattr(importlib.import_module(module), name)
    place = tmp_path_factory.mktemp("models")
    models.save(models.mlp(), place / "mlp.onnx")
    models.save(models.texts(), place / "texts.onnx")
    models.save(models.every_type(), place / "types.onnx")
    with pytest.MonkeyPatch.context() as patches:
        from gpucomp.serving import server as module

        patches.setattr(module, "protocol_with", lambda limits: connection.limited(base, limits))
        with serving(place, limits=LIMITS) as running:
            yield running


@pytest.fixture(autouse=True)
def served_on(request):
    """After each of these requests a good one is answered, and no memory of bodies is held."""
    yield
    if "server" not in request.fixturenames:
        return
    server = request.getfixturevalue("server")
    assert server.infer("mlp", [GOOD]).status == 200
    eventually(lambda: server.server.service.bodies.held == 0)


def request(body, *headers, path="/v2/models/mlp/infer"):
    said = "".join(f"{one}\r\n" for one in headers)
    return f"POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{said}\r\n".encode() + body


BODIES = {
    "nothing": b"",
    "no JSON": b"{",
    "no object": b"[1]",
    "no text": b"\xff\xfe{}",
    "null": b'{"inputs": null}',
    "inputs that are a number": b'{"inputs": 3}',
    "inputs of numbers": b'{"inputs": [3]}',
    "deep arrays": b'{"inputs": ' + b"[" * 40_000 + b"]" * 40_000 + b"}",
    "deep objects": b'{"a":' * 15_000 + b"1" + b"}" * 15_000,
    "deep data": json.dumps({"inputs": [GOOD | {"data": 0}]})
    .encode()
    .replace(b'"data": 0', b'"data": ' + b"[" * 900 + b"]" * 900),
    "a number with many digits": b'{"inputs": [{"name": "x", "shape": [' + b"9" * 5000 + b"]}]}",
    "a name twice": b'{"inputs": [], "inputs": []}',
    "NaN": json.dumps({"inputs": [GOOD | {"data": [float("nan")] * 10}]}).encode(),
    "a number that is too large for a float": json.dumps({"inputs": [GOOD]}).replace("1.0", "1e999").encode(),
    "Infinity": json.dumps({"inputs": [GOOD | {"data": [float("-inf")] * 10}]}).encode(),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_bodies_that_are_no_request(server, body):
    answer = server.ask("/v2/models/mlp/infer", body)

    assert (answer.status, answer.error[:7]) == (400, "GPC1201")


INPUTS = {
    "none": [],
    "twice": [GOOD, GOOD],
    "one too many": [GOOD, GOOD | {"name": "z"}],
    "no name": [{"datatype": "FP32", "shape": [2, 5]}],
    "a name that is a list": [GOOD | {"name": ["x"]}],
    "a long name": [GOOD | {"name": "x" * 50_000}],
    "a lone surrogate": [GOOD | {"name": "\ud800"}],
    "an unknown datatype": [GOOD | {"datatype": "FP8"}],
    "a datatype that is a list": [GOOD | {"datatype": []}],
    "another datatype": [GOOD | {"datatype": "INT32"}],
    "a negative size": [GOOD | {"shape": [-2, 5]}],
    "minus one": [GOOD | {"shape": [-1, 5]}],
    "a size that is a float": [GOOD | {"shape": [2.0, 5]}],
    "a size that is true": [GOOD | {"shape": [True, 5]}],
    "a size that is huge": [GOOD | {"shape": [2**63, 5]}],
    "a product that overflows": [GOOD | {"shape": [2**31 - 1, 5], "data": [1]}],
    "a product that is 0 modulo 2**64": [GOOD | {"shape": [2**62, 4], "data": []}],
    "too many dimensions": [GOOD | {"shape": [1] * 5000}],
    "another rank": [GOOD | {"shape": [10]}],
    "another fixed size": [GOOD | {"shape": [5, 2]}],
    "too few elements": [GOOD | {"data": [1.0] * 9}],
    "too many elements": [GOOD | {"data": [1.0] * 11}],
    "no data": [{k: v for k, v in GOOD.items() if k != "data"}],
    "data that are a text": [GOOD | {"data": "1111111111"}],
    "texts as numbers": [GOOD | {"data": ["1"] * 10}],
    "nulls": [GOOD | {"data": [None] * 10}],
    "booleans as numbers": [GOOD | {"data": [True] * 10}],
    "numbers and lists": [GOOD | {"data": [1, [2]] * 5}],
    "lists of other lengths": [GOOD | {"data": [[1.0] * 4, [1.0] * 6]}],
    "a number that is no float32": [GOOD | {"data": [1e39] * 10}],
    "an integer that is no float": [GOOD | {"data": [10**400] * 10}],
    "shared memory": [GOOD | {"parameters": {"shared_memory_region": "r"}}],
    "parameters that are a list": [GOOD | {"parameters": []}],
}


@pytest.mark.parametrize("inputs", INPUTS.values(), ids=INPUTS)
def test_inputs_that_do_not_fit(server, inputs):
    answer = server.infer("mlp", inputs)

    assert (answer.status, answer.error[:7]) == (400, "GPC1201")


@pytest.mark.parametrize("data", [{"data": []}, {"parameters": {"binary_data_size": 0}}], ids=["json", "binary"])
def test_no_element_and_sizes_whose_product_overflows(data):
    tensor = Tensor("x", DATATYPES["FP32"], (-1,) * 4)
    given = {"name": "x", "datatype": "FP32", "shape": [0] + 3 * [2**31 - 1], **data}
    body = json.dumps({"inputs": [given]}).encode()

    with pytest.raises(ServingError, match=r"GPC1201 .*elements expected"):
        ask_of(memoryview(body), len(body), [tensor], [])


def test_sizes_outside_their_range(server):
    answer = server.infer("mlp", [GOOD | {"shape": [0, 5], "data": []}])

    assert (answer.status, answer.error[:7]) == (400, "GPC2111")


PARAMETERS = {
    "a sequence": {"parameters": {"sequence_id": 3}},
    "a timeout that is a text": {"parameters": {"timeout": "1"}},
    "a negative timeout": {"parameters": {"timeout": -1}},
    "an output that is not there": {"outputs": [{"name": "z"}]},
    "an output twice": {"outputs": [{"name": "y"}, {"name": "y"}]},
    "a class": {"outputs": [{"name": "y", "parameters": {"classification": 1}}]},
    "binary_data that is a number": {"outputs": [{"name": "y", "parameters": {"binary_data": 1}}]},
    "an id that is a number": {"id": 3},
    "a long id": {"id": "x" * 1000},
    "too many outputs": {"outputs": [{"name": "y"}] * 2000},
}


@pytest.mark.parametrize("more", PARAMETERS.values(), ids=PARAMETERS)
def test_parameters_that_are_not_served(server, more):
    answer = server.infer("mlp", [GOOD], **more)

    assert (answer.status, answer.error[:7]) == (400, "GPC1201")


def sent(server, given, data, length=None, name="mlp"):
    head = json.dumps({"inputs": [given]}).encode()
    return server.ask(
        f"/v2/models/{name}/infer",
        head + data,
        {"Inference-Header-Content-Length": str(len(head) if length is None else length)},
    )


@pytest.mark.parametrize("size", [-1, 0, 39, 41, 1 << 62, 40.0, True, "40"])
def test_binary_sizes_that_lie(server, size):
    given = {"name": "x", "datatype": "FP32", "shape": [2, 5], "parameters": {"binary_data_size": size}}

    answer = sent(server, given, X.tobytes())

    assert (answer.status, answer.error[:7]) == (400, "GPC1201")


@pytest.mark.parametrize("length", [0, 1, 7, 1000, "x", "-1", "1e3", "9" * 30, "", "٣"])
def test_header_lengths_that_lie(server, length):
    given = {"name": "x", "datatype": "FP32", "shape": [2, 5], "parameters": {"binary_data_size": 40}}
    text = str(length).encode("utf-8").decode("latin-1")

    answer = sent(server, given, X.tobytes(), text)

    assert (answer.status, answer.error[:7]) == (400, "GPC1201")


TEXTS = {
    "too long": struct.pack("<I", 5) + b"abcd",
    "far too long": struct.pack("<I", 2**32 - 1) + b"abcd",
    "no length": b"\x01\x00",
    "too few": struct.pack("<I", 1) + b"a",
    "too many": 5 * (struct.pack("<I", 1) + b"a"),
    "bytes behind": 4 * (struct.pack("<I", 1) + b"a") + b"x",
    "not UTF-8": 4 * (struct.pack("<I", 1) + b"\xff"),
}


@pytest.mark.parametrize("data", TEXTS.values(), ids=TEXTS)
def test_texts_with_lengths_that_lie(server, data):
    given = {"name": "t", "datatype": "BYTES", "shape": [4], "parameters": {"binary_data_size": len(data)}}

    answer = sent(server, given, data, name="texts")

    assert (answer.status, answer.error[:7]) == (400, "GPC1201")


def test_booleans_that_are_neither(server):
    given = {"name": "in_BOOL", "datatype": "BOOL", "shape": [2, 3], "parameters": {"binary_data_size": 6}}

    answer = sent(server, given, b"\x00\x01\x02\x00\x01\xff", name="types")

    assert "bytes of 0 and 1 expected" in answer.error


def test_a_body_that_is_too_large(server):
    said = server.raw(request(b"", f"content-length: {1 << 40}"))
    chunked = server.raw(request(b"", "transfer-encoding: chunked") + 40 * (b"10000\r\n" + bytes(1 << 16) + b"\r\n"))

    assert said.startswith(b"HTTP/1.1 413 ")
    assert b"GPC1204" in said
    assert chunked == b"" or chunked.startswith(b"HTTP/1.1 413 ")  # it may be cut off while it still sends


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress], ids=["gzip", "deflate"])
def test_a_body_that_is_a_bomb(server, pack):
    packed = pack(bytes(64 << 20))
    encoding = "gzip" if pack is gzip.compress else "deflate"

    answer = server.ask("/v2/models/mlp/infer", packed, {"Content-Encoding": encoding})

    assert (answer.status, answer.error[:7]) == (413, "GPC1204")


@pytest.mark.parametrize(
    "data", [b"nothing", gzip.compress(b"{}")[:-9], gzip.compress(b"{}") + b"more"], ids=["garbage", "cut", "more"]
)
def test_compressed_data_that_are_none(server, data):
    answer = server.ask("/v2/models/mlp/infer", data, {"Content-Encoding": "gzip"})

    assert (answer.status, answer.error[:7]) == (400, "GPC1201")


def test_an_encoding_that_is_not_known(server):
    answer = server.ask("/v2/models/mlp/infer", b"{}", {"Content-Encoding": "br"})

    assert (answer.status, answer.error[:7]) == (415, "GPC1201")


RAW = {
    "garbage": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    "no HTTP": b"GET\r\n\r\n",
    "two lengths": request(b"{}", "content-length: 2", "content-length: 3"),
    "a length that is negative": request(b"{}", "content-length: -2"),
    "a length that is no number": request(b"{}", "content-length: 2x"),
    "a length and chunks": request(b"0\r\n\r\n", "content-length: 5", "transfer-encoding: chunked, identity"),
    "a chunk that is no number": request(b"xyz\r\n{}\r\n", "transfer-encoding: chunked"),
    "a tunnel": b"CONNECT a:443 HTTP/1.1\r\nhost: a:443\r\n\r\n",
    "a header without a colon": b"GET /v2 HTTP/1.1\r\nhost a\r\n\r\n",
}


@pytest.mark.parametrize("data", RAW.values(), ids=RAW)
def test_what_is_no_http(server, data):
    answer = server.raw(data)

    assert answer == b"" or answer.split(b" ")[1][:1] == b"4"


@pytest.mark.parametrize("data", [b"", b"GET /v2", request(b"{", "content-length: 9")], ids=["no byte", "half", "body"])
@pytest.mark.parametrize("end", [False, True], ids=["held", "closed"])
def test_a_request_that_does_not_end(server, data, end):
    answer = server.raw(data, end=end)

    assert answer == b"" or answer.startswith(b"HTTP/1.1 408 ")


def send_slowly(sock):
    for _ in range(3000):
        sock.sendall(b"x")
        time.sleep(0.02)


def test_headers_that_come_slowly(server):
    with server.connect() as sock:
        sock.sendall(b"GET /v2 HTTP/1.1\r\nx: ")
        with pytest.raises(ConnectionError):
            send_slowly(sock)


def send_many_headers(sock):
    for number in range(100_000):
        sock.sendall(b"x-%d: " % number + b"a" * 1000 + b"\r\n")


def test_headers_without_an_end(server):
    with server.connect() as sock:
        sock.sendall(b"GET /v2 HTTP/1.1\r\n")
        with pytest.raises(ConnectionError):
            send_many_headers(sock)
        answer = received(sock)

    assert answer == b"" or answer.split(b" ")[1] in (b"431", b"400")
    assert HEADER == 64 << 10


def connection_of(running, sock):
    """The server's end of a connection."""

    def found():
        return [one for one in running.server.server_state.connections if one.client == sock.getsockname()]

    return eventually(found, "the connection")[0]


def test_headers_behind_a_body_that_was_refused_are_counted(server):
    """The rest of a body whose request was answered early is no header; what comes behind it is."""
    with server.connect() as sock:
        own = connection_of(server, sock)
        sock.sendall(b"POST /v2/none HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\n")
        assert sock.recv(1000).startswith(b"HTTP/1.1 404 ")
        eventually(own._in_refused_body, "the end of the answer")
        sock.sendall(bytes(100_000))
        eventually(lambda: not own._in_refused_body(), "the end of the body")
        assert own._seen == 0
        assert own._head is None  # an idle connection has more time than a request
        sock.sendall(b"GET /v2 HTTP/1.1\r\nx: " + b"a" * 5000)
        eventually(lambda: own._seen > 5000, "the count of header bytes")


def test_a_client_that_does_not_read_the_end_of_its_answer(server):
    """What is left of an answer in the server's memory ends the connection too, although it is small."""
    given = {"name": "x", "datatype": "FP32", "shape": [2500, 5], "parameters": {"binary_data_size": 50_000}}
    said = json.dumps({"inputs": [given], "parameters": {"binary_data_output": True}}).encode()
    lengths = f"content-length: {len(said) + 50_000}", f"inference-header-content-length: {len(said)}"
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", server.port))
        own = connection_of(server, sock)
        own.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        sock.sendall(request(said + bytes(50_000), *lengths))
        left = eventually(own.transport.get_write_buffer_size, "the answer")
        assert left < 1 << 16  # asyncio's limit
        eventually(lambda: own not in server.server.server_state.connections, "the end of the connection")


def test_pipelined_requests_are_answered_in_order(server):
    body = json.dumps({"inputs": [GOOD]}).encode()
    one = b"POST /v2/models/mlp/infer HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    bad = b"POST /v2/models/mlp/infer HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}"

    answer = server.raw(one + bad + one.replace(b"host", b"connection: close\r\nhost"))

    assert [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"200", b"400", b"200"]


def test_many_requests_at_once(server, request):
    """httptools parses all that has come: behind 16 that wait it takes no more. h11 parses one at a time."""
    one = b"GET /v2 HTTP/1.1\r\nhost: a\r\n\r\n"

    answer = server.raw(999 * one + one.replace(b"host", b"connection: close\r\nhost")).replace(b"C", b"c")

    assert answer.count(b"HTTP/1.1 200 ") == (17 if request.node.callspec.params["server"] == "httptools" else 1000)
    assert answer.count(b"connection: close") == 1
    assert b"connection: close" in answer[answer.rindex(b"HTTP/1.1 ") :]


UPGRADE = b"POST /v2/models/mlp/infer HTTP/1.1\r\nhost: a\r\nconnection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\n"


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunks"])
@pytest.mark.parametrize("at_once", [False, True], ids=["pieces", "whole"])
def test_an_upgrade_that_is_offered_is_not_taken(server, chunked, at_once, caplog):
    """As by Java's HttpClient, which offers HTTP/2 with each request."""
    body = json.dumps({"inputs": [GOOD]}).encode()
    said = b"transfer-encoding: chunked" if chunked else b"content-length: %d" % len(body)
    sent = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if chunked else body
    head = UPGRADE + said + b"\r\n\r\n"
    with server.connect() as sock:
        for pieces in ([head + sent], [head, sent]) if at_once else ([head, sent], [head[:40], head[40:], sent]):
            for piece in pieces:
                sock.sendall(piece)
                time.sleep(0.02)
            assert sock.recv(1 << 16).startswith(b"HTTP/1.1 200 ")

    assert "WebSocket" not in caplog.text


def test_upgrades_at_once_are_answered_in_order(server):
    get = b"GET /v2 HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
    last = b"GET /v2/none HTTP/1.1\r\nhost: a\r\nconnection: close, upgrade\r\nupgrade: h2c\r\n\r\n"

    answer = server.raw(get + get + last)

    assert [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"200", b"200", b"404"]


def test_memory_comes_with_the_bytes_of_a_body_not_with_its_length():
    bodies = Bodies(1 << 30)
    body = Body(3, 64 << 20, Limits(), bodies)
    assert len(body._memory) <= 1 << 20
    data = np.arange(5 << 20, dtype=np.uint32).view(np.uint8).tobytes()

    for begin in range(0, len(data), 1 << 18):
        body.add(data[begin : begin + (1 << 18)])

    assert bytes(body.data) == data
    assert len(body._memory) <= (64 << 20) + 64


def test_half_of_a_surrogate_pair_is_no_text(server):
    given = {"name": "t", "datatype": "BYTES", "shape": [4], "data": ["a", "\ud800", "b", "c"]}

    answer = server.infer("texts", [given], parameters={"binary_data_output": True})

    assert (answer.status, answer.error[:7]) == (400, "GPC1201")
    assert "half of a surrogate pair" in answer.error
    assert server.infer("texts", [given | {"data": ["a", "\ud83d\ude00", "b", "c"]}]).status == 200


def test_a_body_behind_a_refusal_is_not_the_next_request(server):
    """What a client still sends of a request that was refused is no request of its own."""
    inner = b"GET /v2/smuggled HTTP/1.1\r\nhost: a\r\n\r\n"
    outer = request(inner, f"content-length: {len(inner)}", path="/v2/models/none/infer")

    answer = server.raw(outer)

    assert answer.startswith(b"HTTP/1.1 404 ")
    assert b"smuggled" not in answer


@pytest.mark.parametrize("name", ["none", "mlp"])
def test_a_client_that_asks_before_it_sends_its_body(server, name):
    """One that is refused keeps its body or sends it: the connection ends, so that nothing is taken for it."""
    body = json.dumps({"inputs": [GOOD]}).encode()
    head = f"POST /v2/models/{name}/infer HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: {len(body)}\r\n\r\n"
    with server.connect() as sock:
        sock.sendall(head.encode())
        answer = sock.recv(1 << 16)
        if name == "mlp":
            assert answer == b"HTTP/1.1 100 Continue\r\n\r\n"  # h11 writes it so too
            sock.sendall(body)
            answer = sock.recv(1 << 16)

    assert answer.startswith(b"HTTP/1.1 404 " if name == "none" else b"HTTP/1.1 200 ")
    assert (b"connection: close" in answer.lower()) == (name == "none")


def test_more_connections_than_allowed(server):
    held = [server.connect() for _ in range(LIMITS.connections)]
    try:
        eventually(lambda: len(server.server.server_state.connections) >= LIMITS.connections)
        answer = server.raw(b"GET /v2 HTTP/1.1\r\nhost: a\r\n\r\n")
    finally:
        for sock in held:
            sock.close()

    assert answer == b"" or answer.startswith(b"HTTP/1.1 503 ")
    eventually(lambda: len(server.server.server_state.connections) < 5)


def test_bodies_of_all_requests_have_a_limit(server):
    held = []
    try:
        for _ in range(4):
            sock = server.connect()
            sock.sendall(request(bytes(900_000), "content-length: 1000000"))
            held.append(sock)
        eventually(lambda: server.server.service.bodies.held > 2 << 20 or held[-1].recv(1))
        assert server.server.service.bodies.held <= LIMITS.bodies
    finally:
        for sock in held:
            sock.close()


def test_an_answer_that_finds_no_memory_is_no_success(tmp_path):
    models.save(models.mlp(), tmp_path / "mlp.onnx")
    given = {"name": "x", "datatype": "FP32", "shape": [500, 5], "parameters": {"binary_data_size": 10_000}}
    with serving(tmp_path, limits=Limits(bodies=12_000)) as running:
        answer = sent(running, given, np.ones((500, 5), np.float32).tobytes())
        stats = running.ask("/v2/models/mlp/stats").json["model_stats"][0]["inference_stats"]
        figures = running.ask("/metrics").body.decode()

        assert (answer.status, answer.error[:7]) == (503, "GPC1205")
        assert (stats["success"]["count"], stats["fail"]["count"]) == (0, 1)
        assert 'gpucomp_requests_total{model="mlp",status="503",version="1"} 1.0' in figures
        assert running.server.service.bodies.held == 0


def test_a_client_that_does_not_read_its_answers(server):
    """Its answers fill its window, and then memory: it is cut off."""
    body = json.dumps({"inputs": [GOOD | {"shape": [1000, 5], "data": [1.0] * 5000}]}).encode()
    one = b"POST /v2/models/mlp/infer HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(60)
        sock.connect(("127.0.0.1", server.port))
        with pytest.raises(ConnectionError):
            sock.sendall(10_000 * one)


def worst(running):
    """The worst of the above."""
    for body in BODIES.values():
        running.ask("/v2/models/mlp/infer", body)
    running.raw(RAW["garbage"])
    running.ask("/v2/models/mlp/infer", gzip.compress(bytes(8 << 20)), {"Content-Encoding": "gzip"})


def test_nothing_is_kept_of_a_request(server, caplog):
    """Blocks of Python's memory, and of them in each of some steps not one for each request."""
    caplog.set_level("CRITICAL", "uvicorn.error")  # pytest keeps what is logged
    held = []
    for _ in range(6):
        for _ in range(3):
            worst(server)
        gc.collect()
        held.append(sys.getallocatedblocks())

    assert min(later - earlier for earlier, later in itertools.pairwise(held)) < 3 * len(BODIES), held


def test_memory_does_not_grow(tmp_path):
    """Also what is not Python's, again and again, of a server that is a process of its own."""
    psutil = pytest.importorskip("psutil", reason="could not import 'psutil'")
    models.save(models.mlp(), tmp_path / "mlp.onnx")
    with process(tmp_path) as running:
        own = psutil.Process(running.process.pid)
        held = [own.memory_info().rss]
        # What the first requests load comes once, and a heap for each new thread: on a busy machine they spread over many
        # steps. What is lost is lost in each.
        while len(held) < 40 and (len(held) < 3 or held[-1] - held[-2] >= 256 << 10):
            for _ in range(12):
                worst(running)
            held.append(own.memory_info().rss)

        assert held[-1] - held[-2] < 256 << 10, held


def test_answers_that_nobody_reads_are_not_all_held(tmp_path):
    """Large answers are sent in pieces as the client reads; those that wait count, and the client is cut off."""
    proto = models.model([models.node("Relu", ["x"], ["y"])], [models.value("x", ["n", 1024])])
    models.save(proto, tmp_path / "wide.onnx")
    head = {"name": "x", "datatype": "FP32", "shape": [512, 1024], "parameters": {"binary_data_size": 2 << 20}}
    said = json.dumps({"inputs": [head], "parameters": {"binary_data_output": True}}).encode()
    lengths = f"content-length: {len(said) + (2 << 20)}", f"inference-header-content-length: {len(said)}"
    limits = Limits(bodies=5 << 20, stalled=1)
    with serving(tmp_path, limits=limits) as running:
        held = []
        for _ in range(2):
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(("127.0.0.1", running.port))
            sock.sendall(request(said + bytes(2 << 20), *lengths, path="/v2/models/wide/infer"))
            held.append(sock)
        bodies = running.server.service.bodies
        eventually(lambda: bodies.held > 2 << 20, "answers that wait")
        assert bodies.held <= limits.bodies
        eventually(lambda: bodies.held == 0, "the end of those who do not read")
        for sock in held:
            sock.close()
