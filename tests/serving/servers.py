"""Servers for tests: one in a thread, with limits of its own, and one as a process."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

for package in ("starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(package, reason=f"could not import '{package}'")

from gpucomp import config
from gpucomp.serving.server import Server, listening, make_server

PATIENCE = 60.0  # seconds that a test waits for something that comes


def eventually(check: Any, what: str = "it") -> Any:
    """What ``check`` gives once it is true."""
    end = time.monotonic() + PATIENCE
    while not (found := check()):
        assert time.monotonic() < end, f"{what} did not come"
        time.sleep(0.005)
    return found


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return str(self.json["error"])


@dataclass
class Running:
    port: int
    server: Server | None = None
    process: subprocess.Popen[str] | None = None

    def ask(self, path: str, body: object = None, headers: dict[str, str] | None = None, method: str = "") -> Answer:
        """One request. ``body`` is sent as JSON unless it is bytes."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method or ("GET" if data is None else "POST"), path, data, headers or {})
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def infer(self, name: str, inputs: list[dict[str, Any]], **more: Any) -> Answer:
        return self.ask(f"/v2/models/{name}/infer", {"inputs": inputs, **more})

    def raw(self, data: bytes = b"", *, end: bool = False) -> bytes:
        """What comes back for ``data`` until the server closes the connection, or answers."""
        with self.connect() as sock:
            with contextlib.suppress(OSError):  # it may have closed already
                sock.sendall(data)
                if end:
                    sock.shutdown(socket.SHUT_WR)
            return received(sock)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def wait_ready(self) -> None:
        eventually(self._is_ready, "a server that is ready")

    def _is_ready(self) -> bool:
        try:
            return self.ask("/v2/health/ready").status == 200
        except OSError:
            return False


def received(sock: socket.socket) -> bytes:
    """What comes until the end of the connection."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while data := sock.recv(1 << 16):
            found += data
    return found


@contextlib.contextmanager
def serving(folder: Path, *, ready: bool = True, **how: Any) -> Iterator[Running]:
    """A server for a folder, in a thread. Its models are ``ready``, or still being loaded."""
    server = make_server(folder, **how)
    sock = listening("127.0.0.1", 0)
    running = Running(sock.getsockname()[1], server)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, name="server")
    thread.start()
    try:
        if ready:
            running.wait_ready()
        yield running
    finally:
        server.stop()
        server.force_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive()


def variables() -> dict[str, str]:
    """The environment of a process, with the cache of this run."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith("GPUCOMP_")}
    return plain | {"GPUCOMP_CACHE": str(config.current().cache)}


@contextlib.contextmanager
def process(folder: Path, *options: str) -> Iterator[Running]:
    """``gpucomp serve`` as a process, at a port that the system chooses."""
    command = [sys.executable, "-m", "gpucomp", "serve", str(folder), "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables()) as child:
        try:
            assert child.stdout is not None
            match = re.search(r":(\d+)$", child.stdout.readline().strip())
            assert match, child.stderr.read() if child.stderr else ""
            running = Running(int(match[1]), process=child)
            running.wait_ready()
            yield running
        finally:
            child.kill()
            child.wait()
