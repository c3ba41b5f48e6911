"""A server that runs until it is told to end: SIGTERM and SIGINT let it finish what it has."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import uvicorn

from gpucomp.errors import UsageError, quote
from gpucomp.serving.app import Service
from gpucomp.serving.connection import protocol_with
from gpucomp.serving.limits import Limits
from gpucomp.serving.registry import Registry
from gpucomp.serving.repository import scan

log = logging.getLogger("gpucomp.serving")
OTHER_FILES = 256  # models, caches and what their devices open
ENDING = (signal.SIGINT, signal.SIGTERM)


class Server(uvicorn.Server):
    """Serves one ``service``. ``stop`` may be called by any thread."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service
        service.connections = lambda: len(self.server_state.connections)

    def stop(self) -> None:
        """Take no new requests, finish what runs within the time for that, and end."""
        self.service.draining = True
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """As ``stop``; a second SIGINT does not wait for what runs."""
        self.force_exit = self.force_exit or (self.should_exit and sig == signal.SIGINT)
        self.stop()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As in the base class; models are freed although nobody waits for what runs."""
        await super().shutdown(sockets)
        if self.force_exit:
            await self.lifespan.shutdown()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As in the base class, but a signal that was answered is not raised again."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {sig: signal.signal(sig, self.handle_exit) for sig in ENDING}
        try:
            yield
        finally:
            for sig, handler in before.items():
                signal.signal(sig, handler)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listening(host: str, port: int) -> socket.socket:
    """A socket that clients can connect to. Raises ``UsageError`` (GPC2051)."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        sock = socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError, UnicodeError) as error:
        told = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"cannot listen at {quote(host)}, port {port}: {told}", code="GPC2051") from None
    # Connections inherit it. asyncio sets it only where a socket names its protocol, and this one does not: the second segment
    # of an answer would wait for the client's delayed acknowledgement of the first, 40 ms.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def make_server(
    folder: Path,
    *,
    target: str = "auto",
    max_batch: int = 1,
    limits: Limits | None = None,
    control: bool = True,
    access_log: bool = False,
    version: str = "",
) -> Server:
    """A server for the models of a folder, which says that it has this ``version``.

    Raises ``UsageError`` (GPC2050) if the folder cannot be read.
    """
    scan(folder)
    limits = limits or Limits()
    service = Service(Registry(folder, limits, target, max_batch), control=control, version=version)
    config = uvicorn.Config(
        service.app,
        http=protocol_with(limits),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=access_log,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=limits.idle,
        timeout_graceful_shutdown=limits.drain,
        h11_max_incomplete_event_size=64 << 10,
    )
    return Server(config, service)


def allow_files(connections: int) -> None:
    """Let the process have as many files open as ``connections`` and the rest of it need, as far as its hard limit allows."""
    if sys.platform == "win32":
        return
    import resource

    wanted = connections + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < wanted:
        log.warning("this process may have %d files open: %d connections need %d", most, connections, wanted)


def serve(server: Server, sock: socket.socket, started: Callable[[str], None]) -> None:
    """Serve until a signal ends it. ``started`` gets the address, before the first request."""
    allow_files(server.service.limits.connections)
    host, port = sock.getsockname()[:2]
    started(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
    server.run(sockets=[sock])
