"""Models come and go while others are served: what is loaded, what is refused and why, and what becomes of requests."""

import json
import shutil
import socket
import threading

import numpy as np
import pytest

pytest.importorskip("prometheus_client", reason="could not import 'prometheus_client'")

import gpucomp
from gpucomp.errors import DeviceLostError
from gpucomp.runtime.context import Context
from gpucomp.serving import registry, rows
from gpucomp.serving.limits import Limits
from tests.serving import models
from tests.serving.servers import eventually, received, serving

X = np.random.default_rng(0).standard_normal((2, 5)).astype(np.float32)


def ask(running, name="m", **more):
    given = {"name": "x", "datatype": "FP32", "shape": list(X.shape), "data": X.ravel().tolist()}
    return running.infer(name, [given], **more)


def result(answer):
    assert answer.status == 200, answer.error
    return np.array(answer.json["outputs"][0]["data"], np.float32).reshape(2, -1)


def state(running, name, version="1"):
    listed = running.ask("/v2/repository/index", {}).json
    return next(row for row in listed if (row["name"], row["version"]) == (name, version))


def load(running, name="m", verb="load", **headers):
    return running.ask(f"/v2/repository/models/{name}/{verb}", b"{}", headers)


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "models"
    models.save(models.mlp(), place / "m" / "1" / "model.onnx")
    return place


def test_a_new_version_takes_over(folder):
    with serving(folder) as running:
        models.save(models.mlp(2 * models.W), folder / "m" / "2" / "model.onnx")
        assert running.ask("/v2/models/m").json["versions"] == ["1"]

        assert load(running).status == 200

        assert running.ask("/v2/models/m").json["versions"] == ["2"]
        np.testing.assert_allclose(result(ask(running)), 2 * models.mlp_of(X), rtol=1e-5, atol=1e-6)
        assert running.ask("/v2/models/m/versions/1").status == 404
        assert 'version="1"' not in running.ask("/metrics").body.decode()


def test_a_file_that_was_written_again(folder):
    with serving(folder) as running:
        models.save(models.mlp(3 * models.W), folder / "m" / "1" / "model.onnx")
        load(running)

        np.testing.assert_allclose(result(ask(running)), 3 * models.mlp_of(X), rtol=1e-5, atol=1e-6)


def test_a_file_that_is_written_again_while_it_is_loaded(folder, monkeypatch):
    """What is proven of rows would be of another model than the one that runs."""
    path = folder / "m" / "1" / "model.onnx"
    proven = rows.independent

    def late(*how):
        models.save(models.centred(), folder / "other.onnx").replace(path)
        return proven(*how)

    with serving(folder, max_batch=4) as running:
        monkeypatch.setattr(rows, "independent", late)
        answer = load(running)
        assert answer.status == 400
        assert "its file was written again while it was loaded" in answer.error
        assert ask(running).status == 200


def test_a_new_version_that_cannot_be_loaded_leaves_the_old_one(folder):
    with serving(folder) as running:
        (folder / "m" / "1" / "model.onnx").write_bytes(b"no model")
        answer = load(running)

        assert (answer.status, answer.error[:7]) == (400, "GPC1211")
        assert "GPC3" in answer.error
        assert state(running, "m")["state"] == "READY"
        assert state(running, "m")["reason"].startswith("GPC3")
        np.testing.assert_allclose(result(ask(running)), models.mlp_of(X), rtol=1e-5, atol=1e-6)


def test_a_new_version_that_cannot_be_loaded_does_not_take_over(folder):
    with serving(folder) as running:
        (folder / "m" / "2").mkdir()
        (folder / "m" / "2" / "model.onnx").write_bytes(b"no model")

        assert load(running).status == 400

        assert [state(running, "m", version)["state"] for version in ("1", "2")] == ["READY", "UNAVAILABLE"]
        assert ask(running).json["model_version"] == "1"
        assert running.ask("/v2/models/m/versions/2").status == 503
        models.save(models.mlp(2 * models.W), folder / "m" / "2" / "model.onnx")
        assert load(running).status == 200
        assert ask(running).json["model_version"] == "2"
        assert running.ask("/v2/models/m/versions/1").status == 404


def test_a_wrong_configuration_is_told_with_its_line(folder):
    (folder / "m" / "config.toml").write_text("\nbatch = 3\n")

    with serving(folder) as running:
        assert "line 2: unknown key 'batch'" in state(running, "m")["reason"]
        assert ask(running).status == 503
        (folder / "m" / "config.toml").write_text("max_batch = 3\n")
        assert load(running).status == 200
        assert ask(running).status == 200


def test_a_model_that_comes_later_and_goes(folder):
    with serving(folder) as running:
        assert load(running, "late").status == 404
        shutil.copytree(folder / "m", folder / "late")
        assert state(running, "late") == {
            "name": "late",
            "version": "1",
            "state": "UNAVAILABLE",
            "reason": "not loaded",
        }
        assert load(running, "late").status == 200
        assert ask(running, "late").status == 200
        assert load(running, "late", "unload").status == 200
        assert ask(running, "late").status == 503
        assert load(running, "never", "unload").status == 404


CANNOT = {
    "a sequence": (models.sequence, "", "'s' is no tensor"),
    "a size that depends on values": (models.boxes, "", "each new size would be compiled"),
    "a batch whose rows change each other": (models.centred, "max_batch = 4", "max_batch = 4: it is not proven"),
    "a batch without an open size": (models.reciprocal, "max_batch = 4", "has one size only"),
    "an input that is not there": (models.mlp, '[shapes]\nz = ["n", 5]', "GPC2101"),
    "a target that is not there": (models.mlp, 'target = "tpu"', "GPC2002"),
}


@pytest.mark.parametrize(("made", "text", "told"), CANNOT.values(), ids=CANNOT)
def test_models_that_cannot_be_served(tmp_path, made, text, told):
    models.save(made(), tmp_path / "m" / "1" / "model.onnx")
    models.save(models.mlp(), tmp_path / "good.onnx")
    (tmp_path / "m" / "config.toml").write_text(text)

    with serving(tmp_path) as running:
        assert told in state(running, "m")["reason"]
        assert ask(running, "good").status == 200


def test_a_model_with_states_is_refused(tmp_path):
    (tmp_path / "m" / "1").mkdir(parents=True)
    exe = gpucomp.compile(models.stateful(), target="cpu", states="auto")
    exe.save(tmp_path / "m" / "1" / "model.gpuc")

    with serving(tmp_path) as running:
        assert "it has states" in state(running, "m")["reason"]


def test_rows_that_are_said_to_be_independent(tmp_path):
    models.save(models.centred(), tmp_path / "m" / "1" / "model.onnx")
    (tmp_path / "m" / "config.toml").write_text('max_batch = 4\nrows = "independent"')

    with serving(tmp_path) as running:
        assert running.ask("/v2/models/m/config").json["max_batch_size"] == 4


def test_a_compiled_model_is_joined_only_if_its_configuration_says_so(tmp_path):
    (tmp_path / "m" / "1").mkdir(parents=True)
    gpucomp.compile(models.mlp(), target="cpu", shapes={"x": ("n", 5)}).save(tmp_path / "m" / "1" / "model.gpuc")

    with serving(tmp_path, max_batch=8) as running:
        np.testing.assert_allclose(result(ask(running)), models.mlp_of(X), rtol=1e-5, atol=1e-6)
        assert running.ask("/v2/models/m/config").json["max_batch_size"] == 0
        (tmp_path / "m" / "config.toml").write_text('max_batch = 4\nrows = "independent"')
        load(running)
        assert running.ask("/v2/models/m/config").json["max_batch_size"] == 4
        (tmp_path / "m" / "config.toml").write_text("max_batch = 4")
        assert "holds no graph for a proof" in load(running).error


def test_sizes_of_the_configuration(tmp_path):
    models.save(models.mlp(), tmp_path / "m" / "1" / "model.onnx")
    (tmp_path / "m" / "config.toml").write_text('[shapes]\nx = [{name = "n", low = 2, high = 3}, 5]')

    with serving(tmp_path) as running:
        assert ask(running).status == 200
        given = {"name": "x", "datatype": "FP32", "shape": [4, 5], "data": [0.0] * 20}
        assert "'n' is 4, 2 to 3 expected" in running.infer("m", [given]).error


def test_clients_may_be_forbidden_to_load(folder):
    with serving(folder, control=False) as running:
        assert (load(running).status, load(running, verb="unload").status) == (403, 403)
        assert ask(running).status == 200


def test_a_page_in_a_browser_may_not_unload(folder):
    with serving(folder) as running:
        assert load(running, verb="unload", Origin="http://evil").status == 403
        assert ask(running).status == 200


class Gate:
    """Holds runs until it is opened."""

    def __init__(self, monkeypatch):
        self.opened, self.waiting, self.stopped = threading.Event(), 0, 0
        run = Context._run

        def held(context, inputs, outputs, stop, stream):
            self.waiting += 1
            while not self.opened.wait(0.01):
                if stop is not None and stop._why:
                    self.stopped += 1
                    stop.check()
            return run(context, inputs, outputs, stop, stream)

        monkeypatch.setattr(Context, "_run", held)


@pytest.fixture
def gate(monkeypatch):
    made = Gate(monkeypatch)
    yield made
    made.opened.set()


def in_background(count, work):
    found = [None] * count
    threads = [threading.Thread(target=lambda n=n: found.__setitem__(n, work())) for n in range(count)]
    for thread in threads:
        thread.start()
    return threads, found


def test_requests_of_an_old_version_finish_while_a_new_one_takes_over(folder, gate):
    (folder / "m" / "config.toml").write_text("instances = 2\n")
    with serving(folder) as running:
        threads, answers = in_background(2, lambda: ask(running))
        eventually(lambda: gate.waiting == 2, "two runs")
        models.save(models.mlp(2 * models.W), folder / "m" / "2" / "model.onnx")
        assert load(running).status == 200
        gate.opened.set()
        assert result(ask(running)).sum() == pytest.approx(2 * models.mlp_of(X).sum(), rel=1e-5)
        for thread in threads:
            thread.join()

        assert [answer.json["model_version"] for answer in answers] == ["1", "1"]
        for answer in answers:
            np.testing.assert_allclose(result(answer), models.mlp_of(X), rtol=1e-5, atol=1e-6)


def test_a_request_that_is_still_coming_gets_the_version_that_it_found(folder):
    given = {"name": "x", "datatype": "FP32", "shape": list(X.shape), "data": X.ravel().tolist()}
    body = json.dumps({"inputs": [given]}).encode()
    with serving(folder) as running, running.connect() as sock:
        head = (
            f"POST /v2/models/m/infer HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        sock.sendall(head.encode() + body[:50])
        old = running.server.service.registry.find("m", None)
        eventually(lambda: old._users == 1, "the request")
        models.save(models.mlp(2 * models.W), folder / "m" / "2" / "model.onnx")
        assert load(running).status == 200
        sock.sendall(body[50:])
        answer = received(sock)

    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b'"model_version":"1"' in answer


def test_a_full_queue_says_when_to_come_again(folder, gate):
    (folder / "m" / "config.toml").write_text("instances = 1\nqueue = 2\n")
    with serving(folder) as running:
        threads, answers = in_background(3, lambda: ask(running))
        scheduler = running.server.service.registry.find("m", None)
        eventually(lambda: len(scheduler._queue) == 2, "a full queue")

        refused = ask(running)

        gate.opened.set()
        for thread in threads:
            thread.join()
        assert (refused.status, refused.error[:7], refused.headers["retry-after"]) == (503, "GPC1205", "1")
        assert [answer.status for answer in answers] == [200] * 3


def test_a_request_that_is_late_is_given_up(folder, gate):
    with serving(folder) as running:
        answer = ask(running, parameters={"timeout": 50_000})

        assert (answer.status, answer.error[:7]) == (504, "GPC1102")
        eventually(lambda: gate.stopped == 1, "the end of the run")
        gate.opened.set()
        assert ask(running).status == 200


def test_the_configuration_limits_the_time_of_all(folder, gate):
    (folder / "m" / "config.toml").write_text("timeout_s = 0.05\n")
    with serving(folder) as running:
        assert ask(running, parameters={"timeout": 10**12}).status == 504


def test_a_run_whose_client_went_away_ends(folder, gate):
    body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 5], "data": [1.0] * 10}]}).encode()
    with serving(folder) as running:
        with running.connect() as sock:
            head = f"POST /v2/models/m/infer HTTP/1.1\r\nhost: a\r\ncontent-length: {len(body)}\r\n\r\n"
            sock.sendall(head.encode() + body)
            eventually(lambda: gate.waiting == 1, "the run")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        eventually(lambda: gate.stopped == 1, "the end of the run")
        gate.opened.set()
        assert ask(running).status == 200


def test_a_run_ends_whose_client_sent_more_requests_and_went_away(folder, gate):
    body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 5], "data": [1.0] * 10}]}).encode()
    with serving(folder) as running:
        with running.connect() as sock:
            head = f"POST /v2/models/m/infer HTTP/1.1\r\nhost: a\r\ncontent-length: {len(body)}\r\n\r\n"
            sock.sendall(head.encode() + body + b"GET /v2 HTTP/1.1\r\nhost: a\r\n\r\n")
            eventually(lambda: gate.waiting == 1, "the run")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        eventually(lambda: gate.stopped == 1, "the end of the run")


def test_a_server_that_ends_finishes_what_it_has(folder, gate):
    with serving(folder) as running:
        threads, answers = in_background(1, lambda: ask(running))
        eventually(lambda: gate.waiting == 1, "the run")
        with running.connect() as kept:
            kept.sendall(b"GET /v2/health/ready HTTP/1.1\r\nhost: a\r\n\r\n")
            assert kept.recv(1000).startswith(b"HTTP/1.1 200")
            running.server.stop()
            eventually(lambda: kept.recv(1000) == b"", "the end of an idle connection")
        gate.opened.set()
        threads[0].join()

        assert answers[0].status == 200


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # of SystemExit
@pytest.mark.parametrize("error", [ValueError, AssertionError, StopIteration, SystemExit])
def test_a_bug_while_a_model_is_loaded_does_not_end_the_server(folder, monkeypatch, error):
    shutil.copytree(folder / "m", folder / "z")

    def load(entry, *how):
        if entry.name == "m":
            raise error("oh")
        return loaded(entry, *how)

    loaded = registry.load
    monkeypatch.setattr(registry, "load", load)

    with serving(folder) as running:
        told = "RuntimeError: the thread ended" if error is SystemExit else f"{error.__name__}: oh"
        assert f"GPC1000 model 'm': internal error, {told}" in state(running, "m")["reason"]
        assert ask(running, "z").status == 200


def test_a_bug_while_instances_are_made_does_not_end_the_server(folder, monkeypatch):
    def scheduler(*how):
        raise AttributeError("oh")

    monkeypatch.setattr(registry, "Scheduler", scheduler)

    with serving(folder) as running:
        assert "GPC1000 model 'm': internal error, AttributeError: oh" in state(running, "m")["reason"]


def test_a_model_that_is_unloaded_before_its_turn_is_not_loaded(folder, monkeypatch):
    shutil.copytree(folder / "m", folder / "z")
    began, goes_on = threading.Event(), threading.Event()

    def held(entry, *how):
        if entry.name == "m":
            began.set()
            goes_on.wait(60)
        return loaded(entry, *how)

    loaded = registry.load
    monkeypatch.setattr(registry, "load", held)

    with serving(folder, ready=False) as running:
        eventually(began.is_set, "the first model")
        threads, answers = in_background(1, lambda: load(running, "z", "unload"))
        eventually(lambda: len(running.server.service.registry._loading._waiters or ()) > 0, "the request")
        goes_on.set()
        running.wait_ready()
        threads[0].join()

        assert answers[0].status == 200
        assert state(running, "z")["reason"] == "unloaded"
        assert ask(running, "m").status == 200


def test_an_end_does_not_wait_for_runs_of_a_version_before(folder, gate):
    with serving(folder) as running:
        threads, _ = in_background(1, lambda: ask(running))
        eventually(lambda: gate.waiting == 1, "the run")
        models.save(models.mlp(2 * models.W), folder / "m" / "2" / "model.onnx")
        assert load(running).status == 200
    threads[0].join()

    assert gate.stopped == 1


def test_a_model_whose_device_is_gone_is_not_ready(folder):
    with serving(folder) as running:
        running.server.service.registry.find("m", None).lost = DeviceLostError("the device is gone")

        answers = [running.ask("/v2/health/ready"), running.ask("/v2/models/m/ready")]

    assert [(one.status, one.error[:7]) for one in answers] == [(503, "GPC1203")] * 2


def test_a_folder_that_is_gone_is_the_fault_of_the_server(folder):
    with serving(folder) as running:
        shutil.rmtree(folder)
        answer = running.ask("/v2/repository/index", {})

        assert (answer.status, answer.error[:7]) == (500, "GPC2050")
        assert ask(running).status == 200


def test_the_body_of_a_request_that_was_given_up_counts_until_its_run_ends(folder, monkeypatch):
    goes_on, run = threading.Event(), Context._run

    def held(context, *how):
        goes_on.wait(60)
        return run(context, *how)

    monkeypatch.setattr(Context, "_run", held)
    with serving(folder) as running:
        bodies = running.server.service.bodies

        assert ask(running, parameters={"timeout": 1000}).status == 504

        assert bodies.held > 0
        goes_on.set()
        eventually(lambda: bodies.held == 0, "the end of the run")


@pytest.mark.parametrize("how", ["after its time", "by force"])
def test_a_run_that_the_end_cuts_off_is_told_so(folder, gate, caplog, how):
    """Also a request whose body is still coming."""
    limits = Limits(drain=1 if how == "after its time" else 60)
    with serving(folder, limits=limits) as running, running.connect() as sock:
        threads, answers = in_background(1, lambda: ask(running))
        sock.sendall(b"POST /v2/models/m/infer HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n{")
        eventually(lambda: gate.waiting == 1 and len(running.server.server_state.tasks) == 2, "both requests")
        running.server.stop()
        running.server.force_exit = how == "by force"
        threads[0].join()
        answer = received(sock)

    assert (answers[0].status, answers[0].error[:7]) == (503, "GPC1206")
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"GPC1206" in answer
    assert "ASGI" not in caplog.text


def send_many_headers(sock):
    for number in range(100_000):
        sock.sendall(b"x-%d: " % number + b"a" * 1000 + b"\r\n")


def test_headers_behind_a_request_that_runs_are_counted(folder, gate):
    pytest.importorskip(
        "httptools", reason="could not import 'httptools'"
    )  # h11 reads no more until the answer is there
    body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 5], "data": [1.0] * 10}]}).encode()
    with serving(folder) as running, running.connect() as sock:
        head = f"POST /v2/models/m/infer HTTP/1.1\r\nhost: a\r\ncontent-length: {len(body)}\r\n\r\n"
        sock.sendall(head.encode() + body)
        eventually(lambda: gate.waiting == 1, "the run")
        sock.sendall(b"GET /v2 HTTP/1.1\r\n")
        with pytest.raises(ConnectionError):
            send_many_headers(sock)
        eventually(lambda: gate.stopped == 1, "the end of the run")
