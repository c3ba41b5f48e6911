"""Answers of the protocol where an application has none: at the end of the server, and before a body that is not wanted."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpucomp.serving.scheduler import ends


class Ending:
    """An application of which each request is answered, also one that is cancelled when the server ends."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(scope, receive, send)
        try:
            await self._app(scope, answer.receive, answer.send)
        except asyncio.CancelledError:
            if not answer.begun:
                refusal = JSONResponse({"error": str(ends())}, HTTPStatus.SERVICE_UNAVAILABLE, {"retry-after": "1"})
                await refusal(scope, receive, send)


class _Answer:
    """What a request and its answer go through. ``begun``: its status is sent."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._is_asked = self.begun = False

    async def receive(self) -> Message:
        self._is_asked = True  # a client that waits for it may send its body now
        return await self._receive()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            if not self._is_asked and any(name == b"expect" for name, _ in self._scope["headers"]):
                # a body may come or not: what comes next could be taken for it
                message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
        await self._send(message)
