"""The routes of the server: the Open Inference Protocol, and Triton's extensions of repository, statistics, configuration."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import re
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

import numpy as np
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from gpucomp.errors import GpucompError, RunStoppedError, ServingError, internal_error, quote
from gpucomp.serving import limits
from gpucomp.serving.body import Bodies, body_of
from gpucomp.serving.ending import Ending
from gpucomp.serving.model import is_wrong_input
from gpucomp.serving.model_config import PLATFORM, model_config
from gpucomp.serving.protocol import Ask, answer, ask_of, effort, parsed
from gpucomp.serving.registry import Registry
from gpucomp.serving.scheduler import Job, Scheduler, ends, offloaded

EXTENSIONS = ("binary_tensor_data", "model_repository", "statistics", "model_configuration")
NEVER = re.compile(r"q=0(\.0*)?")  # of an encoding that a client does not take
OWN_FAULTS = ("GPC2019", "GPC2050")  # the server's: a plug-in that fails, a folder that cannot be read
LOST = 499  # status of a request whose client went away, in the figures; nobody receives it


class Tensors(Response):
    """An answer of JSON and of buffers behind it, which are sent as they are.

    ``hold`` comes before it is sent: it counts in ``bodies`` until then.
    """

    def __init__(self, head: bytes, buffers: list[memoryview | bytes], bodies: Bodies) -> None:
        self.parts, self._bodies = [head, *buffers], bodies
        binary = {"inference-header-content-length": str(len(head))} if buffers else {}
        kind = "application/octet-stream" if buffers else "application/json"
        super().__init__(None, headers={"content-length": str(sum(map(len, self.parts))), **binary}, media_type=kind)

    def hold(self) -> None:
        """Raises ``ServingError`` (GPC1205) if there is no room."""
        self._bodies.take(sum(map(len, self.parts)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        size = sum(map(len, self.parts))
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            for piece in self._pieces(size):  # each waits until the client has read most of those before
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._bodies.give(size)

    def _pieces(self, size: int) -> Iterator[memoryview | bytes]:
        if size <= limits.INLINE:  # one write costs less than several
            yield b"".join(self.parts)
            return
        for part in self.parts:
            view = memoryview(part)
            yield from (view[begin : begin + limits.INLINE] for begin in range(0, len(view), limits.INLINE))

    async def compressed(self, accepted: str) -> Tensors:
        """This answer as the client wants it: ``gzip`` or ``deflate``, or as it is."""
        encoding = _encoding(accepted)
        if encoding is None:
            return self
        size = sum(map(len, self.parts))
        self.parts = [await offloaded(size, _deflated, self.parts, encoding)]
        self.headers["content-length"] = str(len(self.parts[0]))
        self.headers["content-encoding"] = encoding
        return self


def _encoding(accepted: str) -> str | None:
    """The first of ``gzip`` and ``deflate`` that an ``Accept-Encoding`` names, and not with ``q=0``."""
    named = (part.lower().replace(" ", "").partition(";") for part in accepted.split(","))
    allowed = {name for name, _, more in named if not NEVER.fullmatch(more)}
    return next((one for one in ("gzip", "deflate") if one in allowed), None)


def _deflated(parts: list[memoryview | bytes], encoding: str) -> bytes:
    whole = b"".join(parts)
    return gzip.compress(whole, 1) if encoding == "gzip" else zlib.compress(whole, 1)


class Service:
    """The application. ``control`` lets clients load and unload models. ``draining``: it takes no new requests."""

    def __init__(self, registry: Registry, *, control: bool, version: str) -> None:
        self.registry, self.limits, self.control = registry, registry.limits, control
        self.version = version
        self.metrics = registry.metrics
        self.bodies = Bodies(self.limits.bodies)
        self.draining = False
        self.connections: Callable[[], int] = lambda: 0
        self.app = Ending(
            Starlette(
                routes=list(self._routes()),
                exception_handlers={GpucompError: _refused, HTTPException: _no_route, Exception: _bug},
                lifespan=self._lifespan,
            )
        )

    def _routes(self) -> Iterator[Route]:
        model = "/v2/models/{model}"
        both = (model, f"{model}/versions/{{version}}")
        for at in both:  # first, because the first that fits is taken
            yield Route(f"{at}/infer", self.infer, methods=["POST"])
        yield Route("/v2", self.server)
        yield Route("/v2/health/live", self.live)
        yield Route("/v2/health/ready", self.ready)
        yield Route("/v2/models/stats", self.statistics)
        for at in both:
            yield Route(at, self.metadata)
            yield Route(f"{at}/ready", self.model_ready)
            yield Route(f"{at}/config", self.config)
            yield Route(f"{at}/stats", self.statistics)
        yield Route("/v2/repository/index", self.index, methods=["POST"])
        yield Route("/v2/repository/models/{model}/load", self.load, methods=["POST"])
        yield Route("/v2/repository/models/{model}/unload", self.unload, methods=["POST"])
        yield Route("/metrics", self.figures)

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        loading = asyncio.get_running_loop().create_task(self.registry.start())
        try:
            yield
        finally:
            loading.cancel()
            await self.registry.close()

    def _find(self, request: Request) -> Scheduler:
        return self.registry.find(request.path_params["model"], request.path_params.get("version"))

    async def server(self, request: Request) -> Response:
        return JSONResponse({"name": PLATFORM, "version": self.version, "extensions": EXTENSIONS})

    async def live(self, request: Request) -> Response:
        return JSONResponse({"live": True})

    async def ready(self, request: Request) -> Response:
        if self.draining:
            raise ends()
        if not self.registry.started:
            raise ServingError("the models are being loaded", code="GPC1203", status=503)
        for one in self.registry.all():
            if one.lost is not None:
                raise ServingError(f"model {quote(one.model.name)}: {one.lost.message}", code="GPC1203", status=503)
        return JSONResponse({"ready": True})

    async def model_ready(self, request: Request) -> Response:
        found = self._find(request)
        if found.lost is not None:
            raise ServingError(found.lost.message, code="GPC1203", status=503)
        return JSONResponse({"name": found.model.name, "ready": True})

    async def metadata(self, request: Request) -> Response:
        model = self._find(request).model
        return JSONResponse(
            {
                "name": model.name,
                "versions": self.registry.versions(model.name),
                "platform": PLATFORM,
                "inputs": [one.as_json() for one in model.inputs],
                "outputs": [one.as_json() for one in model.outputs],
            }
        )

    async def config(self, request: Request) -> Response:
        model = self._find(request).model
        return JSONResponse(model_config(model, [int(one) for one in self.registry.versions(model.name)]))

    async def statistics(self, request: Request) -> Response:
        found = [self._find(request)] if "model" in request.path_params else self.registry.all()
        rows = [one.statistics.as_json(one.model.name, str(one.model.version)) for one in found]
        return JSONResponse({"model_stats": rows})

    async def figures(self, request: Request) -> Response:
        self.metrics.bodies.set(self.bodies.held)
        self.metrics.connections.set(self.connections())
        return Response(generate_latest(self.metrics.registry), headers={"content-type": CONTENT_TYPE_LATEST})

    async def index(self, request: Request) -> Response:
        given = await self._small(request)
        ready = given.get("ready", False)
        return JSONResponse(await self.registry.index(ready=ready is True))

    async def load(self, request: Request) -> Response:
        given = await self._controlled(request)
        if given.get("parameters"):
            raise ServingError(
                "parameters: none expected; a model and its configuration come from the server's folder",
                code="GPC1212",
                status=403,
            )
        await self.registry.load(request.path_params["model"])
        return JSONResponse({})

    async def unload(self, request: Request) -> Response:
        await self._controlled(request)
        await self.registry.unload(request.path_params["model"])
        return JSONResponse({})

    async def _small(self, request: Request) -> dict[str, Any]:
        async with body_of(request, self.limits, self.bodies) as body:
            return parsed(body.data) if body.size else {}

    async def _controlled(self, request: Request) -> dict[str, Any]:
        """The body of a request that changes what is served. A page in a browser, which says its origin, may not."""
        if not self.control or "origin" in request.headers:
            raise ServingError("clients may not load or unload models here", code="GPC1212", status=403)
        if self.draining:
            raise ends()
        return await self._small(request)

    async def infer(self, request: Request) -> Response:
        begun = time.perf_counter_ns()
        if self.draining:
            raise ends()
        found = self._find(request)
        labels = (found.model.name, str(found.model.version))
        status = 500
        try:
            with found.used():
                response = await self._inferred(request, found, begun)
            status = 200
            return response
        except GpucompError as error:
            status = status_of(error)
            raise
        except asyncio.CancelledError:  # at the end of the server
            status = HTTPStatus.SERVICE_UNAVAILABLE
            raise
        finally:
            spent = time.perf_counter_ns() - begun
            found.statistics.sums["success" if status == 200 else "fail"].add(spent)
            self.metrics.requests.labels(*labels, str(int(status))).inc()
            self.metrics.seconds.labels(*labels).observe(spent / 1e9)

    async def _inferred(self, request: Request, found: Scheduler, begun: int) -> Response:
        model = found.model
        async with body_of(request, self.limits, self.bodies) as body:
            ask = await offloaded(body.size, ask_of, body.data, body.header, model.inputs, model.outputs)
            job = found.submit(ask.feed)
            body.read_until(job.over)
            try:
                results = await self._result(
                    request, job, self._seconds(ask, found) - (time.perf_counter_ns() - begun) / 1e9
                )
            finally:
                found.abandon(job)
        ended = time.perf_counter_ns()
        head, buffers = await offloaded(effort(ask, results), answer, ask, results, model.name, str(model.version))
        response = await Tensors(head, buffers, self.bodies).compressed(request.headers.get("accept-encoding", ""))
        response.hold()
        found.statistics.sums["compute_output"].add(time.perf_counter_ns() - ended)
        return response

    def _seconds(self, ask: Ask, found: Scheduler) -> float:
        most = found.model.timeout_s or self.limits.timeout
        return most if ask.timeout is None else min(ask.timeout, most)

    async def _result(self, request: Request, job: Job, seconds: float) -> Mapping[str, np.ndarray]:
        """Raises what the run raises, ``RunStoppedError`` (GPC1102) when its time is over, ``ServingError`` (GPC1207)
        when its client is gone.
        """
        gone = asyncio.get_running_loop().create_task(_disconnected(request))
        try:
            waited: set[asyncio.Future[Any]] = {job.result, gone}
            await asyncio.wait(waited, timeout=max(seconds, 0), return_when=asyncio.FIRST_COMPLETED)
            if job.result.done():
                return job.result.result()
            if gone.done():
                raise ServingError("the client went away", code="GPC1207", status=LOST)
            raise RunStoppedError("the run was given up after its timeout", code="GPC1102")
        finally:
            gone.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def status_of(error: GpucompError) -> int:
    """The HTTP status of an error."""
    if isinstance(error, ServingError):
        return error.status
    if isinstance(error, RunStoppedError):
        return HTTPStatus.GATEWAY_TIMEOUT
    if error.code in OWN_FAULTS:
        return HTTPStatus.INTERNAL_SERVER_ERROR
    return HTTPStatus.BAD_REQUEST if is_wrong_input(error) else HTTPStatus.INTERNAL_SERVER_ERROR


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, GpucompError)
    status = status_of(error)
    later = {"retry-after": "1"} if status == HTTPStatus.SERVICE_UNAVAILABLE else {}
    return JSONResponse({"error": str(error)}, HTTPStatus.REQUEST_TIMEOUT if status == LOST else status, headers=later)


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    known = ServingError(f"nothing is served at {request.method} {quote(request.scope['path'])}", code="GPC1209")
    return JSONResponse({"error": str(known)}, error.status_code, headers=error.headers)


async def _bug(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(internal_error(error))}, HTTPStatus.INTERNAL_SERVER_ERROR)
