"""The protocol over HTTP, by a plain client: routes, tensors in JSON and in bytes, errors with their codes."""

import gzip
import json
import struct
import zlib

import numpy as np
import pytest

from gpucomp.serving import app, limits, protocol
from gpucomp.serving.datatypes import DATATYPES
from tests.serving import models
from tests.serving.servers import serving

X = np.random.default_rng(0).standard_normal((2, 5)).astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("models")
    models.save(models.mlp(), place / "mlp.onnx")
    models.save(models.mlp(2 * models.W), place / "two" / "1" / "model.onnx")
    models.save(models.mlp(3 * models.W), place / "two" / "2" / "model.onnx")
    (place / "two" / "config.toml").write_text("versions = [1, 2]\n")
    models.save(models.mlp(), place / "wide" / "1" / "model.onnx")
    (place / "wide" / "config.toml").write_text('[shapes]\nx = [{name = "n", low = 1, high = 500000}, 5]')
    models.save(models.texts(), place / "texts.onnx")
    models.save(models.reciprocal(), place / "reciprocal.onnx")
    models.save(models.every_type(), place / "types.onnx")
    models.save(models.boxes(), place / "boxes.onnx")
    (place / "broken.onnx").write_bytes(b"no model")
    return place


@pytest.fixture(scope="module")
def server(folder):
    with serving(folder) as running:
        yield running


def tensor(array, name="x", datatype="FP32", **more):
    return {"name": name, "datatype": datatype, "shape": list(array.shape), "data": array.ravel().tolist(), **more}


def binary(array, name="x", datatype="FP32", **parameters):
    """A request with one binary tensor: header and body."""
    data = array if isinstance(array, bytes) else array.tobytes()
    shape = parameters.pop("shape", None) or list(array.shape)
    one = {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": len(data)}}
    head = json.dumps({"inputs": [one], **parameters}).encode()
    return head + data, {"Inference-Header-Content-Length": str(len(head))}


def array_of(answer, number=0):
    """An output of an answer, from JSON or from the bytes behind it."""
    size = answer.headers.get("inference-header-content-length")
    said = json.loads(answer.body[: int(size)] if size else answer.body)
    output = said["outputs"][number]
    if "data" in output:
        return np.array(output["data"], np.float32).reshape(output["shape"])
    begin = int(size) + sum(o["parameters"]["binary_data_size"] for o in said["outputs"][:number])
    data = answer.body[begin : begin + output["parameters"]["binary_data_size"]]
    return np.frombuffer(data, np.float32).reshape(output["shape"])


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v2/health/live", {"live": True}),
        ("/v2/health/ready", {"ready": True}),
        ("/v2/models/mlp/ready", {"name": "mlp", "ready": True}),
        ("/v2/models/two/versions/1/ready", {"name": "two", "ready": True}),
    ],
)
def test_health(server, path, expected):
    assert (server.ask(path).status, server.ask(path).json) == (200, expected)


def test_the_server_names_its_extensions(server):
    said = server.ask("/v2").json

    assert said["name"] == "gpucomp"
    assert "binary_tensor_data" in said["extensions"]


def test_metadata_has_names_types_and_shapes_with_open_sizes(server):
    assert server.ask("/v2/models/two/versions/1").json == {
        "name": "two",
        "versions": ["1", "2"],
        "platform": "gpucomp",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 5]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}],
    }


def test_metadata_knows_every_type(server):
    said = server.ask("/v2/models/types").json

    types = [
        "BOOL",
        "UINT8",
        "UINT16",
        "UINT32",
        "UINT64",
        "INT8",
        "INT16",
        "INT32",
        "INT64",
        "FP16",
        "BF16",
        "FP32",
        "FP64",
    ]
    assert [one["datatype"] for one in said["inputs"]] == types
    assert [one["datatype"] for one in server.ask("/v2/models/texts").json["inputs"]] == ["BYTES"]


@pytest.mark.parametrize("nested", [False, True])
def test_tensors_in_json(server, nested):
    given = tensor(X) | ({"data": X.tolist()} if nested else {})

    answer = server.infer("mlp", [given], id="a 1")

    assert answer.status == 200
    said = answer.json
    assert (said["model_name"], said["model_version"], said["id"]) == ("mlp", "1", "a 1")
    np.testing.assert_allclose(array_of(answer), models.mlp_of(X), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "asked",
    [{"parameters": {"binary_data_output": True}}, {"outputs": [{"name": "y", "parameters": {"binary_data": True}}]}],
)
def test_tensors_in_bytes(server, asked):
    body, headers = binary(X, **asked)

    answer = server.ask("/v2/models/mlp/infer", body, headers)

    assert answer.headers["content-type"] == "application/octet-stream"
    np.testing.assert_allclose(array_of(answer), models.mlp_of(X), rtol=1e-5, atol=1e-6)


def test_an_output_can_differ_from_the_default(server):
    body, headers = binary(
        X, parameters={"binary_data_output": True}, outputs=[{"name": "y", "parameters": {"binary_data": False}}]
    )

    answer = server.ask("/v2/models/mlp/infer", body, headers)

    assert "inference-header-content-length" not in answer.headers
    assert len(answer.json["outputs"][0]["data"]) == 6


def test_the_newest_version_answers_unless_one_is_named(server):
    newest = array_of(server.infer("two", [tensor(X)]))
    first = array_of(server.ask("/v2/models/two/versions/1/infer", {"inputs": [tensor(X)]}))

    np.testing.assert_allclose(newest, 3 * models.mlp_of(X), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(first, 2 * models.mlp_of(X), rtol=1e-5, atol=1e-6)


def test_texts_in_json_and_in_bytes(server):
    words = ["", "ä€😀", "a\x00b", "word"]
    plain = server.infer("texts", [{"name": "t", "datatype": "BYTES", "shape": [4], "data": words}])
    packed = b"".join(struct.pack("<I", len(w.encode())) + w.encode() for w in words)
    body, headers = binary(packed, "t", "BYTES", shape=[4], parameters={"binary_data_output": True})

    answer = server.ask("/v2/models/texts/infer", body, headers)

    assert plain.json["outputs"][0]["data"] == words
    assert answer.body[int(answer.headers["inference-header-content-length"]) :] == packed


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_compressed_bodies(server, encoding):
    body, headers = binary(X)
    packed = gzip.compress(body) if encoding == "gzip" else zlib.compress(body)

    answer = server.ask(
        "/v2/models/mlp/infer", packed, headers | {"Content-Encoding": encoding, "Accept-Encoding": encoding}
    )

    assert answer.headers["content-encoding"] == encoding
    answer.body = zlib.decompress(answer.body, 47)
    np.testing.assert_allclose(array_of(answer), models.mlp_of(X), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("length", range(1, 9))
def test_a_tensor_may_lie_anywhere_in_the_body(server, length):
    """The second tensor begins where the first ends, at any byte; headers of every length too."""
    body, headers = binary(X, id="x" * length)

    answer = server.ask("/v2/models/mlp/infer", body, headers)

    np.testing.assert_allclose(array_of(answer), models.mlp_of(X), rtol=1e-5, atol=1e-6)


def test_infinite_results_have_no_form_in_json(server):
    given = tensor(np.array([1, 0, 2], np.float32))

    plain = server.infer("reciprocal", [given])
    packed = server.infer("reciprocal", [given], parameters={"binary_data_output": True})

    assert (plain.status, plain.error[:7]) == (400, "GPC1208")
    np.testing.assert_array_equal(array_of(packed), [1, np.inf, 0.5])


def test_large_results_are_asked_for_in_bytes(server):
    rows = limits.JSON_ELEMENTS // 3 + 1
    body, headers = binary(np.zeros((rows, 5), np.float32), parameters={"binary_data_output": False})
    packed, _ = binary(np.zeros((rows, 5), np.float32), parameters={"binary_data_output": True})

    plain = server.ask("/v2/models/wide/infer", body, headers)

    told = f"at most {limits.JSON_ELEMENTS} elements in JSON, found {3 * rows}; ask for binary_data"
    assert (plain.status, plain.error[:7]) == (400, "GPC1208")
    assert told in plain.error
    headers = {"Inference-Header-Content-Length": str(len(packed) - rows * 20)}
    assert server.ask("/v2/models/wide/infer", packed, headers).status == 200


def test_results_in_json_of_several_steps(server):
    x = np.random.default_rng(1).standard_normal((limits.JSON_STEP, 5)).astype(np.float32)

    answer = server.ask("/v2/models/mlp/infer", *binary(x))

    np.testing.assert_allclose(array_of(answer), models.mlp_of(x), rtol=1e-4, atol=1e-5)


def test_what_it_takes_to_convert_an_answer(monkeypatch):
    """Texts are written one by one, in bytes too. Numbers in bytes are not copied."""
    monkeypatch.setattr(limits, "INLINE", 100)
    texts = protocol.Tensor("t", DATATYPES["BYTES"], (-1,))
    long = np.array(["a" * 200], object)
    ask = protocol.Ask(None, {}, (protocol.Wanted(texts, binary=True),), None)

    assert protocol.effort(ask, {"t": long}) > limits.INLINE
    assert protocol.effort(ask, {"t": np.array(["a"] * 2, object)}) > limits.INLINE
    assert protocol.effort(ask, {"t": np.array(["a"], object)}) <= limits.INLINE
    assert protocol.effort(ask, {"t": np.zeros(1000, np.float32)}) == 0
    assert protocol.effort(ask, {"t": np.zeros((100, 10), np.float32).T}) == 4000


def test_a_request_is_read_by_a_thread_if_its_body_is_large(server, monkeypatch):
    """However short its JSON is: texts are read one by one."""
    sizes = []

    async def offloaded(nbytes, work, *arguments):
        sizes.append(nbytes)
        return work(*arguments)

    monkeypatch.setattr(app, "offloaded", offloaded)
    packed = b"".join(struct.pack("<I", 100_000) + b"a" * 100_000 for _ in range(4))
    body, headers = binary(packed, "t", "BYTES", shape=[4], parameters={"binary_data_output": True})

    assert server.ask("/v2/models/texts/infer", body, headers).status == 200

    assert sizes[0] == len(body)
    assert sizes[1] > 400_000


def test_parameters_that_are_null_are_none(server):
    assert server.infer("mlp", [tensor(X, parameters=None)], parameters=None).status == 200


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        ("gzip;q=0, deflate", "deflate"),
        ("deflate;q=0.5, GZIP ; q=1", "gzip"),
        ("gzip;q=0.000", None),
        ("x-gzip", None),
        ("identity", None),
    ],
)
def test_encodings_that_a_client_takes(server, accepted, encoding):
    answer = server.ask("/v2/models/mlp/infer", {"inputs": [tensor(X)]}, {"Accept-Encoding": accepted})

    assert answer.headers.get("content-encoding") == encoding


def test_a_chunked_body_is_taken(server):
    body = json.dumps({"inputs": [tensor(X)]}).encode()
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:7], body[7:50], body[50:]))
    head = b"POST /v2/models/mlp/infer HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"

    answer = server.raw(head + chunks + b"0\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v2/models/none", 404, "GPC1202"),
        ("GET", "/v2/models/mlp/versions/9", 404, "GPC1202"),
        ("GET", "/v2/models/mlp/versions/-1", 404, "GPC1202"),
        ("GET", "/v2/models/mlp/versions/²", 404, "GPC1202"),
        ("GET", "/v2/models/mlp/versions/01", 404, "GPC1202"),
        ("GET", "/v2/models/mlp/versions/" + "0" * 19 + "12", 404, "GPC1202"),
        ("GET", "/v2/models/broken/ready", 503, "GPC1203"),
        ("GET", "/v2/models/boxes", 503, "GPC1203"),
        ("GET", "/v2/models/..%2f..%2fetc%2fpasswd", 404, "GPC1209"),
        ("GET", "/v2/models/..", 404, "GPC1202"),
        ("POST", "/v2/models/none/infer", 404, "GPC1202"),
        ("GET", "/v2/models/mlp/infer", 405, "GPC1209"),
        ("GET", "/", 404, "GPC1209"),
        ("GET", "/v2/systemsharedmemory/status", 404, "GPC1209"),
    ],
)
def test_what_is_not_there(server, method, path, status, code):
    answer = server.ask(path.replace("²", "%C2%B2"), b"{}" if method == "POST" else None, method=method)

    assert (answer.status, answer.error[:7]) == (status, code)


def test_the_index_says_why_a_model_is_not_ready(server):
    rows = {(row["name"], row["version"]): row for row in server.ask("/v2/repository/index", {}).json}
    ready = server.ask("/v2/repository/index", {"ready": True}).json

    assert rows["mlp", "1"]["state"] == "READY"
    assert rows["broken", "1"]["state"] == "UNAVAILABLE"
    assert rows["broken", "1"]["reason"].startswith("GPC3")
    assert "each new size would be compiled" in rows["boxes", "1"]["reason"]
    assert {row["name"] for row in ready} == {"mlp", "two", "texts", "reciprocal", "types", "wide"}


def test_statistics_count_requests_and_runs(server):
    before = server.ask("/v2/models/two/versions/2/stats").json["model_stats"][0]
    server.infer("two", [tensor(X)])
    server.infer("two", [tensor(X, name="z")])

    after = server.ask("/v2/models/two/versions/2/stats").json["model_stats"][0]
    everything = server.ask("/v2/models/stats").json["model_stats"]

    assert after["execution_count"] - before["execution_count"] == 1
    for phase, more in [("success", 1), ("fail", 1), ("queue", 1), ("compute_infer", 1)]:
        assert after["inference_stats"][phase]["count"] - before["inference_stats"][phase]["count"] == more
    assert after["last_inference"] > 0
    assert [(one["name"], one["version"]) for one in everything if one["name"] == "two"] == [("two", "1"), ("two", "2")]


def test_figures_for_prometheus(server):
    parser = pytest.importorskip("prometheus_client.parser")
    server.infer("mlp", [tensor(X)])
    server.infer("mlp", [])

    answer = server.ask("/metrics")

    found = {
        (one.name, tuple(sorted(one.labels.items()))): one.value
        for family in parser.text_string_to_metric_families(answer.body.decode())
        for one in family.samples
    }
    model = (("model", "mlp"), ("version", "1"))
    assert found["gpucomp_requests_total", (model[0], ("status", "200"), model[1])] >= 1
    assert found["gpucomp_requests_total", (model[0], ("status", "400"), model[1])] >= 1
    assert found["gpucomp_request_seconds_count", model] >= 2
    assert found["gpucomp_connections", ()] >= 1
    assert found["process_resident_memory_bytes", ()] > 1 << 20
