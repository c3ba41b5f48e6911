"""``gpucomp serve`` as a process: signals, kills, and what it says."""

import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import warnings

import numpy as np
import pytest

from gpucomp import cli
from gpucomp.serving import server
from tests.serving import models
from tests.serving.servers import PATIENCE, eventually, listening, process, variables

GOOD = {"name": "x", "datatype": "FP32", "shape": [2, 5], "data": [1.0] * 10}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("models")
    models.save(models.mlp(), place / "mlp.onnx")
    (place / "broken.onnx").write_bytes(b"no model")
    return place


@pytest.mark.parametrize(("sign", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 0)])
def test_a_signal_ends_the_server(folder, sign, code):
    with process(folder, "--access-log") as running:
        assert running.infer("mlp", [GOOD]).status == 200
        running.process.send_signal(sign)
        out, err = running.process.communicate(timeout=PATIENCE)

    assert running.process.returncode == code
    assert out == ""  # the line with the address was read before
    lines = [line for line in err.splitlines() if "/v2/health/ready" not in line]
    assert lines[0].startswith("error: model broken, version 1, is not loaded: GPC3")
    assert lines[1].startswith("model mlp, version 1, is ready after ")
    assert lines[-1].endswith('"POST /v2/models/mlp/infer HTTP/1.1" 200')


def test_a_signal_while_a_model_is_loaded(folder):
    """A compilation that takes long does not hold the process."""
    code = f"""
import os, signal, sys, threading, time
from pathlib import Path
from gpucomp.serving import registry
from gpucomp.serving.server import listening, make_server, serve
def load(*how):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(1000)
registry.load = load
serve(make_server(Path({str(folder)!r})), listening("127.0.0.1", 0), print)
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=variables(), timeout=PATIENCE
    )

    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_server_that_was_killed_starts_again_and_its_clients_go_on(folder):
    with process(folder) as running:
        with running.connect() as sock:
            sock.sendall(b"POST /v2/models/mlp/infer HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{")
            running.process.kill()
            running.process.wait(PATIENCE)
        port = running.port

    with process(folder, "--port", str(port)) as again:
        assert again.port == port
        assert again.infer("mlp", [GOOD]).status == 200


def test_a_fork_of_nothing_is_left(folder):
    psutil = pytest.importorskip("psutil", reason="could not import 'psutil'")
    with process(folder) as running:
        own = psutil.Process(running.process.pid)
        assert own.children() == []
        files = own.num_fds()
        for _ in range(20):
            running.infer("mlp", [GOOD])
            running.raw(b"nothing\r\n\r\n")
        eventually(lambda: own.num_fds() <= files + 1, "the end of connections")


def test_loading_again_and_again_keeps_no_memory_and_no_threads(tmp_path):
    """What a model of 2 MB leaves behind, sixty times, would be seen."""
    psutil = pytest.importorskip("psutil", reason="could not import 'psutil'")
    big = np.random.default_rng(0).standard_normal((5, 100_000)).astype(np.float32)
    models.save(models.mlp(big), tmp_path / "m.onnx")
    given = {"name": "x", "datatype": "FP32", "shape": [1, 5], "data": [1.0] * 5}
    with process(tmp_path) as running:
        own = psutil.Process(running.process.pid)

        def again():
            assert running.ask("/v2/repository/models/m/load", b"{}").status == 200
            assert running.infer("m", [given], parameters={"binary_data_output": True}).status == 200

        for _ in range(15):
            again()
        before, threads = own.memory_info().rss, own.num_threads()
        for _ in range(60):
            again()
        eventually(lambda: own.num_threads() <= threads + 2, "the end of threads")

        assert own.memory_info().rss - before < 30 << 20


def command(*arguments, **more):
    return subprocess.run(
        [sys.executable, "-m", "gpucomp", "serve", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=variables() | more,
        timeout=PATIENCE,
    )


def test_segments_of_an_answer_do_not_wait_for_each_other():
    """Without TCP_NODELAY the second one waits for the client's acknowledgement of the first, which comes 40 ms later."""
    with listening("127.0.0.1", 0) as sock, socket.create_connection(sock.getsockname()):
        accepted, _ = sock.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_port_that_is_taken(folder):
    with listening("127.0.0.1", 0) as taken:
        ran = command(folder, "--port", taken.getsockname()[1])

    assert ran.returncode == 2
    assert ran.stderr.startswith("error GPC2051: cannot listen at '127.0.0.1', port ")
    assert "in use" in ran.stderr


@pytest.mark.parametrize(("hard", "expected"), [(5000, 1280), (600, 600)])
def test_files_for_all_connections(folder, hard, expected):
    resource = pytest.importorskip("resource", reason="could not import 'resource'")
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < hard:
        pytest.skip(f"this process may have no {hard} files open")
    code = f"""
import resource
from gpucomp.serving.server import allow_files
resource.setrlimit(resource.RLIMIT_NOFILE, (256, {hard}))
allow_files(1024)
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=variables(), timeout=PATIENCE
    )

    assert ran.stdout.split() == [str(expected), str(hard)], ran.stderr
    assert ("may have 600 files open" in ran.stderr) == (hard == 600)


def test_a_large_body_raises_the_memory_of_all(folder, monkeypatch):
    monkeypatch.setattr("sys.excepthook", sys.excepthook)
    monkeypatch.setattr("warnings.showwarning", warnings.showwarning)
    monkeypatch.setattr(importlib.import_module("gpucomp.cli.serve"), "_log", lambda access_log: None)
    made = []
    monkeypatch.setattr(server, "serve", lambda one, sock, started: (made.append(one), sock.close()))
    for size in ("64", "2048"):
        cli.main(["serve", str(folder), "--port", "0", "--max-body", size])

    limits = [one.service.limits for one in made]
    assert [(one.body >> 20, one.bodies >> 20) for one in limits] == [(64, 1024), (2048, 8192)]


def test_a_host_that_is_none(folder):
    assert command(folder, "--host", "no.such.host.invalid").stderr.startswith("warning: everybody who reaches no.such")


def test_a_folder_that_is_not_there(tmp_path):
    ran = command(tmp_path / "none")

    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("error GPC2050: cannot read the models in ")


def test_packages_that_are_missing(folder, tmp_path):
    (tmp_path / "starlette").mkdir()
    (tmp_path / "starlette" / "__init__.py").write_text("raise ModuleNotFoundError('no', name='starlette')")
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])

    ran = command(folder, PYTHONPATH=paths)

    assert ran.returncode == 5
    assert ran.stderr.startswith(
        "error GPC5003: starlette is not installed, and the server needs it: pip install 'starl"
    )


def test_a_host_that_others_reach_is_warned_of_and_takes_no_orders(folder):
    with process(folder, "--host", "0.0.0.0") as running:
        answer = running.ask("/v2/repository/models/mlp/unload", b"{}")
        running.process.terminate()
        _, err = running.process.communicate(timeout=PATIENCE)

    assert (answer.status, answer.error[:7]) == (403, "GPC1212")
    assert err.startswith("warning: everybody who reaches 0.0.0.0 can use these models; there is no password")


def test_ipv6(folder):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    code = f"""
from tests.serving.servers import listening
from gpucomp.serving.server import make_server, serve
import os, signal, threading
from pathlib import Path
def started(address):
    print(address)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
serve(make_server(Path({str(folder)!r})), listening("::1", 0), started)
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=variables(), timeout=PATIENCE
    )

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("http://[::1]:")


KSERVE = """
import asyncio, json, sys
import numpy as np
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig

async def main(url):
    client = InferenceRESTClient(RESTConfig(protocol="v2", retries=0))
    assert await client.is_server_live(url)
    assert await client.is_server_ready(url)
    assert await client.is_model_ready(url, "mlp")
    x = np.ones((2, 5), np.float32)
    found = []
    for binary in (True, False):
        one = InferInput("x", [2, 5], "FP32")
        one.set_data_from_numpy(x, binary_data=binary)
        request = InferRequest(model_name="mlp", request_id="r", infer_inputs=[one], parameters={"binary_data_output": binary})
        answer = await client.infer(url, request, model_name="mlp")
        assert answer.id == "r"
        found.append(answer.outputs[0].as_numpy().tolist())
    print(json.dumps(found))

asyncio.run(main(sys.argv[1]))
"""


def test_the_client_of_kserve(folder):
    python = os.environ.get("KSERVE_PYTHON")
    if not python:
        pytest.skip("KSERVE_PYTHON names no Python that has kserve: its packages are other versions than those here")
    with process(folder) as running:
        ran = subprocess.run(
            [python, "-c", KSERVE, f"http://127.0.0.1:{running.port}"], capture_output=True, text=True, timeout=120
        )

    assert ran.returncode == 0, ran.stderr
    packed, plain = json.loads(ran.stdout.splitlines()[-1])
    assert packed == plain
    assert packed == pytest.approx(models.mlp_of(np.ones((2, 5), np.float32)), rel=1e-5)
