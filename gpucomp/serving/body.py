"""Reads the body of a request: within its limits, inflated, and into memory that arrays can lie in."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
from starlette.requests import Request

from gpucomp.errors import ServingError, quote, several
from gpucomp.serving.datatypes import refused
from gpucomp.serving.limits import Limits
from gpucomp.serving.protocol import header_length, too_large

ALIGNED = 64  # bytes; the first binary tensor begins at a multiple of it
ZLIB_OR_GZIP = 32 + zlib.MAX_WBITS
STEP = 1 << 20  # bytes that are inflated at a time, and that memory begins with
GROWTH = 4  # times as much memory, so that little is copied again
ENCODINGS = ("identity", "gzip", "deflate")


class Bodies:
    """How many bytes of bodies are in memory, of all requests and answers."""

    def __init__(self, most: int) -> None:
        self.most, self.held = most, 0

    def take(self, nbytes: int) -> None:
        """Raises ``ServingError`` (GPC1205) if there is no room."""
        if self.held + nbytes > self.most:
            raise ServingError(
                f"the bodies of all requests and answers have more than {several(self.most, 'byte')}: try again later",
                code="GPC1205",
                status=503,
            )
        self.held += nbytes

    def give(self, nbytes: int) -> None:
        self.held -= nbytes


class Body:
    """The body of a request. ``header`` is the length of its JSON if binary tensors follow.

    Its memory grows with what comes, to what the body is ``said`` to have: what is said costs a client nothing.
    """

    def __init__(self, header: int | None, said: int | None, limits: Limits, bodies: Bodies) -> None:
        self.header = header
        self._pad, self._limits, self._bodies = -(header or 0) % ALIGNED, limits, bodies
        self._most = self._pad + (limits.body if said is None else said)
        self._memory = np.empty(min(self._most, STEP), np.uint8)
        self._over: asyncio.Future[None] | None = None
        self.size = 0

    def add(self, data: bytes) -> None:
        if self.size + len(data) > self._limits.body:
            raise too_large("the body", self._limits.body)
        self._bodies.take(len(data))
        begin = self._pad + self.size
        self.size += len(data)
        end = begin + len(data)
        if end > len(self._memory):
            grown = np.empty(max(end, min(GROWTH * len(self._memory), self._most)), np.uint8)
            grown[:begin] = self._memory[:begin]
            self._memory = grown
        self._memory[begin:end] = np.frombuffer(data, np.uint8)

    @property
    def data(self) -> memoryview:
        return self._memory[self._pad : self._pad + self.size].data

    def read_until(self, over: asyncio.Future[None]) -> None:
        """A run reads the data, also when nobody waits for it any more: they count until it is ``over``."""
        self._over = over

    def close(self) -> None:
        if self._over is None or self._over.done():
            self._bodies.give(self.size)
        else:
            self._over.add_done_callback(lambda _: self._bodies.give(self.size))


@asynccontextmanager
async def body_of(request: Request, limits: Limits, bodies: Bodies) -> AsyncIterator[Body]:
    """The body of a request. It counts in ``bodies`` within the block, and until no run reads it.

    Raises ``ServingError``: GPC1201 for a header or data that are wrong, GPC1204 for what is too large, GPC1205 if no memory
    is left for bodies, GPC1207 for a client that is too slow or gone.
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ENCODINGS:
        raise ServingError(
            f"Content-Encoding: one of {', '.join(ENCODINGS)} expected, found {quote(encoding)}",
            code="GPC1201",
            status=415,
        )
    said = request.headers.get("content-length")
    length = int(said) if said is not None and said.isascii() and said.isdigit() else None
    if length is not None and length > limits.body:
        raise too_large("the body", limits.body)
    header = header_length(request.headers.get("inference-header-content-length"))
    if header is not None and header > limits.json:
        raise too_large("the JSON of a request", limits.json)
    plain = encoding == "identity"
    body = Body(header, length if plain else None, limits, bodies)
    try:
        try:
            async with asyncio.timeout(limits.upload):
                async for piece in _pieces(request) if plain else _inflated(_pieces(request)):
                    body.add(piece)
        except TimeoutError:
            raise ServingError(
                f"the body did not arrive within {limits.upload:g} seconds", code="GPC1207", status=408
            ) from None
        if header is None and body.size > limits.json:
            raise too_large("the JSON of a request", limits.json)
        yield body
    finally:
        body.close()


async def _pieces(request: Request) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ServingError("the client went away before its request was complete", code="GPC1207", status=408)
        more = message.get("more_body", False)
        if data := message.get("body", b""):
            yield data


async def _inflated(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The pieces of gzip's or zlib's stream, inflated a step at a time, by a thread."""
    stream = zlib.decompressobj(ZLIB_OR_GZIP)
    async for data in pieces:
        while data and not stream.eof:
            try:
                yield await asyncio.to_thread(stream.decompress, data, STEP)
            except zlib.error as error:
                raise refused(f"the body cannot be inflated: {error}") from None
            data = stream.unconsumed_tail
        if stream.unused_data or (stream.eof and data):
            raise refused("the body goes on behind its compressed data")
    if not stream.eof:
        raise refused("the compressed data of the body end too early")
