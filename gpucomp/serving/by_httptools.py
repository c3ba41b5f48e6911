"""uvicorn's connection by httptools, where that lets clients do harm: many requests at once, and upgrades."""

from __future__ import annotations

from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

PIPELINED = 16  # requests that wait behind one that is not answered yet


class ByHttptools(HttpToolsProtocol):
    """A client may send requests before the first is answered. All that have come are parsed at once, each to some kilobytes:
    behind ``PIPELINED`` the connection takes no more, answers those, and ends. ``full``: that has happened.

    An upgrade to another protocol, such as Java's clients offer with every request, is no upgrade: the request is parsed as
    if it did not ask for one.
    """

    full = False
    _running: Any = None  # the request that is answered now; ``cycle`` is the newest

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        while data:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as stopped:  # behind the headers
                data = self._plain_head() + data[stopped.args[0] :]
                self.parser = httptools.HttpRequestParser(self)  # the other takes nothing behind "connection: close"
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as the base class
            except httptools.HttpParserError:
                if not self.full:
                    self.logger.warning("Invalid HTTP request received.")
                    self.send_400_response("")
                return

    def _plain_head(self) -> bytes:
        """The headers that were just read, without the one that makes an upgrade of a request."""
        said = self.scope
        lines = [b"%s %s HTTP/%s" % (said["method"].encode(), self.url, said["http_version"].encode())]
        lines += [name + b": " + value for name, value in self.headers if name != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def _should_upgrade(self) -> bool:
        """Asked of requests that want an upgrade: the base class then leaves them alone."""
        return True

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= PIPELINED:
            self.full = True
            self.cycle.keep_alive = False
            raise OverflowError  # the parser stops
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        if self.parser.get_method() == b"CONNECT":  # the parser takes it for an upgrade without the header
            raise ValueError
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """As in the base class, which does not note the end of a body that nobody waits for."""
        super().on_message_complete()
        if not self.parser.should_upgrade():
            self.cycle.more_body = False

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def connection_lost(self, error: Exception | None) -> None:
        """As in the base class, which tells only the newest request that its client is gone."""
        super().connection_lost(error)
        if self._running is not None:
            self._running.disconnected = True
            self._running.message_event.set()
