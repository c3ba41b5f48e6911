"""Connections with limits: a client that sends its headers slowly, or does not read its answer, is let go."""

from __future__ import annotations

import asyncio
import importlib
import json
from typing import Any, cast

import h11

from gpucomp.errors import ServingError
from gpucomp.serving.limits import HEADER, Limits


def _page(status: str, error: ServingError) -> bytes:
    body = json.dumps({"error": str(error)}).encode()
    later = b"retry-after: 1\r\n" if status.startswith("503") else b""
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n"
    )
    return head.encode() + later + b"\r\n" + body


BUSY = _page("503 Service Unavailable", ServingError("too many connections: try again later", code="GPC1205"))
LARGE = _page(
    "431 Request Header Fields Too Large", ServingError(f"headers: at most {HEADER} bytes expected", code="GPC1204")
)
BAD = _page("400 Bad Request", ServingError("a request of HTTP expected", code="GPC1201"))


def protocol_with(limits: Limits) -> type[asyncio.Protocol]:
    """uvicorn's protocol, by httptools if that is installed and else by h11, with these limits."""
    try:
        base = importlib.import_module("gpucomp.serving.by_httptools").ByHttptools
    except ImportError:
        base = importlib.import_module("uvicorn.protocols.http.h11_impl").H11Protocol
    return limited(base, limits)


def limited(base: type, limits: Limits) -> type[asyncio.Protocol]:
    """A subclass of a protocol of uvicorn's."""
    return cast("type[asyncio.Protocol]", type("Connection", (_Limited, base), {"limits": limits}))


class _Limited(asyncio.Protocol):
    """What comes before a protocol of uvicorn's, whose attributes these are.

    ``_head`` ends a connection on which a request is awaited, ``_stalled`` one whose answer is not read.
    """

    limits: Limits
    transport: Any
    connections: Any
    cycle: Any
    loop: Any
    timeout_keep_alive_task: Any
    timeout_keep_alive_handler: Any
    _head: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None
    conn: Any = None  # of h11 only
    full = False  # of httptools only
    _seen = 0  # bytes since the end of the last request

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # whatever a client does not read is noticed, the last bytes too
        if len(self.connections) > self.limits.connections:
            self._end(BUSY)
        else:
            self._await_request()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._served()
        self._drained()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing() or self.full:
            return
        refused, before = self._in_refused_body(), self.cycle
        in_body = before is not None and before.more_body
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._served()
            # behind a request that is not answered yet, the headers of the next one can come
            self._seen = 0 if in_body or self.cycle is not before else self._seen + len(data)
            if self._seen > HEADER:
                self.transport.abort()  # a refusal could be taken for the answer that is due
            return
        if refused:
            if not self._in_refused_body():  # it ends here: the connection is idle
                self._served()
                self.timeout_keep_alive_task = self.loop.call_later(self.limits.idle, self.timeout_keep_alive_handler)
                return
        elif not self._in_refused_body():
            self._seen += len(data)
        if self._seen > HEADER:
            self._end(LARGE)
        elif not self.transport.is_closing():
            self._await_request()

    def _in_refused_body(self) -> bool:
        """Whether what comes is the rest of a body, and no header: of a request that was answered already."""
        if self.cycle is None or not self.cycle.response_complete:
            return False
        if self.conn is not None:
            return self.conn.their_state is h11.SEND_BODY
        return bool(self.cycle.more_body)

    def send_400_response(self, message: str) -> None:
        self._end(BAD)

    def _unsupported_upgrade_warning(self) -> None:
        """uvicorn's is an advice to install WebSockets, which are not served."""

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(self.limits.stalled, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._drained()

    def _await_request(self) -> None:
        if self._head is None:
            self._head = self.loop.call_later(self.limits.head, self.transport.abort)

    def _served(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _drained(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _end(self, page: bytes) -> None:
        self.transport.write(page)
        self.transport.close()
