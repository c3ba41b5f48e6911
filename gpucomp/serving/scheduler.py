"""The queue of a model, and its instances: which request runs when, and with which others.

Everything here happens in the event loop. Only joining large arrays and the runs themselves are done by threads.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any, TypeVar

import numpy as np

from gpucomp.errors import (
    DeviceLostError,
    GpucompError,
    RunStoppedError,
    ServingError,
    internal_error,
    quote,
    several,
)
from gpucomp.ir.dim import Dim
from gpucomp.lazy_dataclass import dataclass
from gpucomp.runtime.context import Context
from gpucomp.runtime.pending import Pending
from gpucomp.serving import limits
from gpucomp.serving.bugs import Bugs
from gpucomp.serving.model import Loaded
from gpucomp.serving.statistics import Metrics, Statistics

Feed = Mapping[str, np.ndarray]
Result = TypeVar("Result")


async def offloaded(nbytes: int, work: Callable[..., Result], *arguments: Any) -> Result:
    """``work``, by a thread if it is about many bytes, so that others are served meanwhile."""
    if nbytes <= limits.INLINE:
        return work(*arguments)
    return await asyncio.to_thread(work, *arguments)


@dataclass(eq=False)
class Job:
    """A request that waits or runs. Jobs of equal ``key`` can be joined. Nothing reads ``feed`` once it is ``over``."""

    feed: Feed
    rows: int
    key: object
    result: asyncio.Future[dict[str, np.ndarray]]
    over: asyncio.Future[None]
    arrived: int = field(default_factory=time.perf_counter_ns)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.feed.values())


@dataclass(eq=False)
class _Run:
    """``jobs`` are those that an instance was given, ``now`` those of them that it runs together now."""

    jobs: list[Job]
    now: list[Job]
    pending: Pending | None = None


class Scheduler:
    """Serves one version of a model. ``lost`` is why it can serve no more, once its device is gone."""

    def __init__(self, model: Loaded, queue: int, metrics: Metrics) -> None:
        self.model, self.metrics = model, metrics
        self.statistics = Statistics(model.max_batch)
        self.lost: GpucompError | None = None
        self._most = model.queue or queue
        self._queue: deque[Job] = deque()
        self._contexts = [model.exe.context() for _ in range(model.instances)]
        self._idle = list(self._contexts)
        self._runs: dict[asyncio.Task[None], _Run] = {}
        self._users = 0
        self._shown = (0, 0)  # in the figures: how many wait, and how many runs there are
        self._closing = self._given_up = False
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._wakes: asyncio.TimerHandle | None = None
        labels = (model.name, str(model.version))
        self.queued, self.running = metrics.queued.labels(*labels), metrics.running.labels(*labels)
        self._waited, self._ran = metrics.waited.labels(*labels), metrics.ran.labels(*labels)
        self._rows = metrics.rows.labels(*labels)

    @contextmanager
    def used(self) -> Iterator[None]:
        """A request that has found this version: it may ``submit`` within the block, also after the version was replaced."""
        self._users += 1
        self._quiet.clear()
        try:
            yield
        finally:
            self._users -= 1
            self._settle()

    def submit(self, feed: Feed) -> Job:
        """Queue a request. Raises ``InputError`` for sizes that the model does not take, ``ServingError`` for a full queue."""
        self.model.check({name: array.shape for name, array in feed.items()})
        if self._given_up or self.lost is not None:
            why = self.lost.message if self.lost is not None else "the server ends"
            raise ServingError(f"model {quote(self.model.name)} is not ready: {why}", code="GPC1203", status=503)
        if len(self._queue) >= self._most:
            told = f"model {quote(self.model.name)}: {several(self._most, 'request')} wait already: try again later"
            raise ServingError(told, code="GPC1205", status=503)
        joins = isinstance(self.model.batch, Dim) and self.model.max_batch > 1
        rows = next(iter(feed.values())).shape[0] if joins else 1
        key = tuple((name, array.shape[1:]) for name, array in feed.items()) if joins else None
        loop = asyncio.get_running_loop()
        job = Job(feed, rows, key, loop.create_future(), loop.create_future())
        self._queue.append(job)
        self._quiet.clear()
        self._dispatch()
        return job

    def abandon(self, job: Job) -> None:
        """Nobody waits for a request any more: it does not begin, or ends between two kernels if it runs alone."""
        job.result.cancel()
        if job in self._queue:
            self._queue.remove(job)
            _end([job])
            self._settle()
        for run in self._runs.values():
            if job in run.now and all(_is_given_up(one) for one in run.now) and run.pending is not None:
                run.pending.cancel()

    async def close(self) -> None:
        """Serve those that use this version, then free the memory."""
        self._closing = True
        self._dispatch()  # nobody waits for more to join
        await self._quiet.wait()
        for context in self._contexts:
            await asyncio.to_thread(context.close)

    def cancel(self) -> None:
        """Give up everything that waits or runs, and what still comes. The requests have it as an error (GPC1206)."""
        self._given_up = True
        for job in [*self._queue, *(job for run in self._runs.values() for job in run.jobs)]:
            _fail([job], ends())
            self.abandon(job)

    def _settle(self) -> None:
        queued, running = self._shown
        self._shown = len(self._queue), len(self._runs)
        self.queued.inc(self._shown[0] - queued)  # one that was replaced has the same figures, until it ends
        self.running.inc(self._shown[1] - running)
        if not self._queue and not self._runs and (self._given_up or not self._users):
            self._quiet.set()

    def _dispatch(self) -> None:
        while self._idle and self._queue:
            jobs = self._next()
            if not jobs:
                break
            run = _Run(jobs, jobs)
            task = asyncio.get_running_loop().create_task(self._serve(self._idle.pop(), run))
            self._runs[task] = run
            task.add_done_callback(self._ended)
        self._settle()

    def _next(self) -> list[Job]:
        """The jobs of the next run, taken from the queue: the first, and others that can be joined with it.

        None if it is worth waiting for more of them.
        """
        first = self._queue[0]
        if first.key is None:
            return [self._queue.popleft()]
        jobs, rows = [first], first.rows
        for job in list(self._queue)[1:]:
            if job.key == first.key and rows + job.rows <= self.model.max_batch:
                jobs.append(job)
                rows += job.rows
        late = (time.perf_counter_ns() - first.arrived) / 1000 - self.model.delay_us
        if late < 0 and rows < self.model.max_batch and not self._closing:
            if self._wakes is not None:
                self._wakes.cancel()
            self._wakes = asyncio.get_running_loop().call_later(-late / 1e6, self._dispatch)
            return []
        taken = set(map(id, jobs))
        self._queue = deque(job for job in self._queue if id(job) not in taken)
        return jobs

    async def _serve(self, context: Context, run: _Run) -> None:
        try:
            await self._attempt(context, run)
        finally:
            self._idle.append(context)

    async def _attempt(self, context: Context, run: _Run) -> None:
        """Run the jobs together; if that fails, each alone, so that a wrong one does no harm to others."""
        error = await self._error(context, run)
        if error is None:
            return
        if len(run.jobs) > 1:
            for job in run.jobs:
                if self.lost is None and not job.result.done():
                    run.now = [job]
                    if (own := await self._error(context, run)) is not None:
                        _fail([job], own)
        _fail(run.jobs, self.lost or error)

    async def _error(self, context: Context, run: _Run) -> GpucompError | None:
        """Run what is to run now. The error if that fails."""
        try:
            with Bugs():
                await self._together(context, run)
        except GpucompError as error:
            if isinstance(error, DeviceLostError):
                self.lost = error
            return error
        return None

    async def _together(self, context: Context, run: _Run) -> None:
        jobs = run.now
        begun = time.perf_counter_ns()
        feed = await offloaded(sum(job.nbytes for job in jobs), joined, jobs) if len(jobs) > 1 else jobs[0].feed
        if all(map(_is_given_up, jobs)):  # while a thread joined them
            raise RunStoppedError("the run was given up before it began", code="GPC1101")
        ready = time.perf_counter_ns()
        run.pending = pending = context.run_async(feed)
        try:
            results = await pending
        except asyncio.CancelledError:
            if not pending.cancelled():
                raise  # it is this task that ends
            raise RunStoppedError("the run was cancelled before it began", code="GPC1101") from None
        finally:
            run.pending = None
        ended = time.perf_counter_ns()
        rows = [job.rows for job in jobs]
        nbytes = sum(array.nbytes for array in results.values())
        parts = await offloaded(nbytes, split, results, rows) if len(jobs) > 1 else [results]
        self.statistics.ran(sum(rows), len(jobs), ready - begun, ended - ready)
        self._ran.observe((ended - ready) / 1e9)
        self._rows.observe(sum(rows))
        for job, part in zip(jobs, parts, strict=True):
            self.statistics.sums["queue"].add(begun - job.arrived)
            self._waited.observe((begun - job.arrived) / 1e9)
            if not job.result.done():
                job.result.set_result(part)

    def _ended(self, task: asyncio.Task[None]) -> None:
        run = self._runs.pop(task)
        if task.cancelled():
            _fail(run.jobs, ends())
        elif (error := task.exception()) is not None:
            _fail(run.jobs, internal_error(error))
        _end(run.jobs)
        self._dispatch()


def _fail(jobs: Sequence[Job], error: GpucompError) -> None:
    for job in jobs:
        if not job.result.done():
            job.result.set_exception(error)


def _end(jobs: Sequence[Job]) -> None:
    for job in jobs:
        if not job.over.done():
            job.over.set_result(None)


def _is_given_up(job: Job) -> bool:
    return job.result.done() and (job.result.cancelled() or job.result.exception() is not None)


def ends() -> ServingError:
    return ServingError("the server ends, and takes no new requests", code="GPC1206", status=503)


def joined(jobs: Sequence[Job]) -> dict[str, np.ndarray]:
    """The inputs of several jobs, one behind the other along the first dimension."""
    return {name: np.concatenate([job.feed[name] for job in jobs]) for name in jobs[0].feed}


def split(results: Mapping[str, np.ndarray], rows: Sequence[int]) -> list[dict[str, np.ndarray]]:
    """The results of each job. Raises ``ServingError`` (GPC1211) if an output has other rows than the inputs.

    They are copies: of a view, a client that reads slowly would hold the results of all.
    """
    for name, array in results.items():
        if len(array) != sum(rows):
            told = f"output {quote(name)}: {sum(rows)} rows expected of a batch, found {len(array)}"
            raise ServingError(told, code="GPC1211", status=500)
    ends = np.cumsum(rows).tolist()
    return [
        {name: array[end - n : end].copy() for name, array in results.items()}
        for n, end in zip(rows, ends, strict=True)
    ]
