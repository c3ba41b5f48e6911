"""Requests that were right until something in them was changed: none of them is the server's fault."""

import json
import random

import pytest

from gpucomp.serving.limits import Limits
from tests.serving import models
from tests.serving.servers import received, serving

GOOD = {"name": "x", "datatype": "FP32", "shape": [2, 5], "data": [1.0] * 10}
BINARY = {"name": "x", "datatype": "FP32", "shape": [2, 5], "parameters": {"binary_data_size": 40}}
TEXTS = {"name": "t", "datatype": "BYTES", "shape": [4], "parameters": {"binary_data_size": 20}}
REQUESTS = (
    ("mlp", {"inputs": [GOOD], "id": "a", "outputs": [{"name": "y", "parameters": {"binary_data": True}}]}, b""),
    ("mlp", {"inputs": [BINARY], "parameters": {"timeout": 1_000_000}}, bytes(40)),
    ("texts", {"inputs": [TEXTS]}, 4 * b"\x01\x00\x00\x00a"),
)
NUMBERS = (0, 1, -1, 2, 5, 0.5, 2**31, 2**63, 2**64, 10**40, -(2**63), 1e308, -1e39, 1e-320, True, None)
WORDS = ("", "x", "y", "FP32", "BYTES", "\ud800", "\x00", "a" * 300)
KEYS = ("name", "shape", "datatype", "data", "parameters", "binary_data_size", "id", "timeout", "inputs", "outputs")
COUNT = 150


def drawn(rng, depth=0):
    """Something of JSON."""
    kind = rng.randrange(4 if depth < 3 else 2)
    if kind == 0:
        return rng.choice(NUMBERS)
    if kind == 1:
        return rng.choice(WORDS)
    if kind == 2:
        return [drawn(rng, depth + 1) for _ in range(rng.randrange(5))]
    return {rng.choice(KEYS): drawn(rng, depth + 1) for _ in range(rng.randrange(4))}


def changed(rng, one):
    if rng.random() < 0.08:
        return drawn(rng)
    if isinstance(one, dict):
        found = {key: changed(rng, value) for key, value in one.items() if rng.random() > 0.04}
        return found | ({rng.choice(KEYS): drawn(rng)} if rng.random() < 0.05 else {})
    if isinstance(one, list):
        found = [changed(rng, value) if rng.random() < 0.3 else value for value in one]
        return found[: rng.choice((len(found), len(found), len(found) - 1))]
    return one


def flipped(rng, data, first):
    """Up to two of the ``first`` bytes are others."""
    found = bytearray(data)
    for _ in range(rng.randrange(3)):
        found[rng.randrange(min(first, len(found)))] = rng.randrange(256)
    return bytes(found)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    place = tmp_path_factory.mktemp("models")
    models.save(models.mlp(), place / "mlp.onnx")
    models.save(models.texts(), place / "texts.onnx")
    with serving(place, max_batch=8, limits=Limits(head=1.0, upload=1.0, idle=1)) as running:
        yield running


@pytest.mark.parametrize("raw", [False, True], ids=["json", "bytes"])
def test_changed_requests_are_answered(server, raw):
    """``raw``: bytes of the HTTP and of the body are changed too."""
    rng = random.Random(int(raw))
    answers = []
    for number in range(COUNT):
        name, document, body = rng.choice(REQUESTS)
        head = json.dumps(changed(rng, document)).encode()
        length = rng.choice((len(head),) * 9 + (0, 5, len(head) + 1, 10**9))
        said = f"POST /v2/models/{name}/infer HTTP/1.1\r\nhost: a\r\nconnection: close\r\n"
        said += f"content-length: {len(head + body)}\r\ninference-header-content-length: {length}\r\n\r\n"
        data = said.encode() + (flipped(rng, head + body, 1000) if raw else head + body)
        with server.connect() as sock:
            sock.sendall(flipped(rng, data, len(said)) if raw else data)
            answers.append(received(sock))
        assert not answers[-1].startswith((b"HTTP/1.1 500", b"HTTP/1.1 503")), (number, data, answers[-1])

    statuses = {answer[9:12] for answer in answers}
    assert {b"200", b"400"} <= statuses
    assert server.infer("mlp", [GOOD]).status == 200
