"""Triton's own client is served: every call of its that the server has an extension for."""

import threading

import ml_dtypes
import numpy as np
import pytest

from tests.serving import models
from tests.serving.servers import serving

http = pytest.importorskip("tritonclient.http", reason="pip install tritonclient[http]")
utils = pytest.importorskip("tritonclient.utils", reason="pip install tritonclient[http]")

X = np.random.default_rng(0).standard_normal((2, 5)).astype(np.float32)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    place = tmp_path_factory.mktemp("models")
    models.save(models.mlp(), place / "mlp.onnx")
    models.save(models.texts(), place / "texts.onnx")
    models.save(models.every_type(), place / "types.onnx")
    with serving(place, max_batch=8) as running:
        yield running


@pytest.fixture
def client(server):
    with http.InferenceServerClient(f"127.0.0.1:{server.port}", concurrency=4) as made:
        yield made


def given(array, name="x", datatype=None, binary=True):
    one = http.InferInput(name, list(array.shape), datatype or utils.np_to_triton_dtype(array.dtype))
    return one.set_data_from_numpy(array, binary_data=binary)


def test_health_and_metadata(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("mlp")
    assert client.is_model_ready("mlp", "1")
    assert not client.is_model_ready("none")
    assert client.get_server_metadata()["name"] == "gpucomp"
    assert client.get_model_metadata("mlp")["inputs"][0] == {"name": "x", "datatype": "FP32", "shape": [-1, 5]}
    config = client.get_model_config("mlp")
    assert (config["max_batch_size"], config["input"][0]["dims"]) == (8, [5])


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False, None])
def test_an_inference(client, binary_in, binary_out):
    outputs = None if binary_out is None else [http.InferRequestedOutput("y", binary_data=binary_out)]

    result = client.infer("mlp", [given(X, binary=binary_in)], outputs=outputs, request_id="7")

    np.testing.assert_allclose(result.as_numpy("y"), models.mlp_of(X), rtol=1e-5, atol=1e-6)
    assert result.get_response()["id"] == "7"


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compression(client, algorithm):
    result = client.infer(
        "mlp", [given(X)], request_compression_algorithm=algorithm, response_compression_algorithm=algorithm
    )

    np.testing.assert_allclose(result.as_numpy("y"), models.mlp_of(X), rtol=1e-5, atol=1e-6)


def arrays():
    rng = np.random.default_rng(3)
    for name in ["UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"]:
        bounds = np.iinfo(name.lower())
        yield name, rng.integers(bounds.min, bounds.max, (2, 3), name.lower(), endpoint=True)
    yield "BOOL", rng.integers(0, 2, (2, 3)).astype(bool)
    for name, kind in (("FLOAT16", np.float16), ("BFLOAT16", ml_dtypes.bfloat16), ("FLOAT", np.float32)):
        yield name, rng.standard_normal((2, 3)).astype(kind)
    yield "DOUBLE", np.array([[np.pi, -0.0, 5e-324], [1e308, np.inf, np.nan]])


def test_every_type_in_bytes(client):
    held = dict(arrays())

    result = client.infer("types", [given(array, f"in_{name}") for name, array in held.items()])

    assert len(held) == 13
    for name, array in held.items():
        found = result.as_numpy(f"out_{name}")
        assert found.dtype == array.dtype
        assert found.tobytes() == array.tobytes(), name


def test_every_type_in_json_that_has_a_form_there(client):
    held = dict(arrays()) | {"DOUBLE": np.array([[np.pi, -0.0, 5e-324], [1e308, -1.5, 2.0]])}
    plain = {name: array for name, array in held.items() if name not in ("FLOAT16", "BFLOAT16")}
    inputs = [given(array, f"in_{name}", binary=name not in plain) for name, array in held.items()]

    result = client.infer(
        "types", inputs, outputs=[http.InferRequestedOutput(f"out_{name}", binary_data=False) for name in plain]
    )

    for name, array in plain.items():
        assert result.as_numpy(f"out_{name}").tobytes() == array.tobytes(), name


def test_halves_have_no_form_in_json(client):
    inputs = [given(array, f"in_{name}") for name, array in arrays()]

    with pytest.raises(utils.InferenceServerException, match=r"GPC1208 .*FP16"):
        client.infer("types", inputs, outputs=[http.InferRequestedOutput("out_FLOAT16", binary_data=False)])


@pytest.mark.parametrize("binary", [True, False])
def test_texts(client, binary):
    words = np.array(["", "ä€😀", "word", "a b"], object)

    result = client.infer(
        "texts", [given(words, "t", binary=binary)], outputs=[http.InferRequestedOutput("u", binary_data=binary)]
    )

    found = [word if isinstance(word, str) else word.decode() for word in result.as_numpy("u").ravel()]
    assert found == words.tolist()


def test_many_requests_at_once_get_their_own_answers(client, server):
    """Requests of several sizes from many threads, joined into batches: each gets the results of its rows."""
    sizes, wrong, count = (1, 2, 3, 1, 5), [], 40

    def ask(number):
        rng = np.random.default_rng(number)
        with http.InferenceServerClient(f"127.0.0.1:{server.port}") as own:
            for turn in range(count):
                x = rng.standard_normal((sizes[turn % len(sizes)], 5)).astype(np.float32)
                said = f"{number}/{turn}"
                result = own.infer("mlp", [given(x)], request_id=said)
                right = np.allclose(result.as_numpy("y"), models.mlp_of(x), rtol=1e-5, atol=1e-6)
                if not right or result.get_response()["id"] != said:
                    wrong.append(said)

    before = client.get_inference_statistics("mlp")["model_stats"][0]
    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    after = client.get_inference_statistics("mlp")["model_stats"][0]
    assert wrong == []
    success = [one["inference_stats"]["success"]["count"] for one in (before, after)]
    assert success[1] - success[0] == 6 * count
    assert after["inference_count"] - before["inference_count"] == 6 * sum(sizes) * (count // len(sizes))
    assert after["execution_count"] - before["execution_count"] <= 6 * count


def test_asynchronous_requests(client):
    waiting = [client.async_infer("mlp", [given(X)]) for _ in range(5)]

    for one in waiting:
        np.testing.assert_allclose(one.get_result().as_numpy("y"), models.mlp_of(X), rtol=1e-5, atol=1e-6)


def test_the_repository(client):
    assert {one["name"] for one in client.get_model_repository_index()} == {"mlp", "texts", "types"}
    client.unload_model("texts")
    with pytest.raises(utils.InferenceServerException, match="GPC1203"):
        client.get_model_metadata("texts")
    assert not client.is_model_ready("texts")
    client.load_model("texts")
    assert client.is_model_ready("texts")
    with pytest.raises(utils.InferenceServerException, match="GPC1202"):
        client.load_model("none")
    with pytest.raises(utils.InferenceServerException, match="GPC1212"):
        client.load_model("mlp", config="{}")


def test_errors_have_their_codes(client):
    with pytest.raises(utils.InferenceServerException, match="GPC1201 input 'x': shape") as caught:
        client.infer("mlp", [given(np.ones((2, 4), np.float32))])
    assert caught.value.status() == "400"
    with pytest.raises(utils.InferenceServerException, match="GPC1102"):
        client.infer("mlp", [given(X)], timeout=1)  # a microsecond
