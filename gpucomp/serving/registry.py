"""The models that a server has: loads them from the folder, swaps new ones in, and lets old ones finish."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpucomp.errors import GpucompError, ServingError, internal_error, quote
from gpucomp.lazy_dataclass import dataclass
from gpucomp.refusal import Refusal
from gpucomp.serving.bugs import Bugs
from gpucomp.serving.limits import Limits
from gpucomp.serving.model import Loaded, load
from gpucomp.serving.repository import VERSION, Entry, Found, scan
from gpucomp.serving.scheduler import Scheduler
from gpucomp.serving.statistics import Metrics

log = logging.getLogger("gpucomp.serving")
READY, LOADING, UNAVAILABLE = "READY", "LOADING", "UNAVAILABLE"


@dataclass(frozen=True)
class Status:
    """Of a version for the index. ``reason`` says why it is unavailable."""

    state: str
    reason: str = ""


class Registry:
    """What is served, by name and version. Its methods are called in the event loop."""

    def __init__(self, folder: Path, limits: Limits, target: str, max_batch: int) -> None:
        self.folder, self.limits = folder, limits
        self.metrics = Metrics()
        self._target, self._max_batch = target, max_batch
        self._served: dict[str, dict[int, Scheduler]] = {}
        self._status: dict[str, dict[int, Status]] = {}
        self._loading = asyncio.Lock()  # one model at a time: a compilation needs the whole machine
        self._waiting: dict[str, Found] = {}  # models that ``start`` has still to load
        self._retiring: dict[asyncio.Task[None], Scheduler] = {}
        self.started = False

    async def start(self) -> None:
        """Load every model of the folder. Those that cannot be loaded are unavailable."""
        try:
            with Bugs(f"folder {quote(self.folder)}"):
                self._waiting = await asyncio.to_thread(scan, self.folder)
        except GpucompError as error:
            log.error("%s", error)
        for name, one in self._waiting.items():
            self._status[name] = {entry.version: Status(LOADING) for entry in one.wanted()}
        while self._waiting:
            async with self._loading:
                if self._waiting:  # a request may have loaded or unloaded it
                    await self._load(self._waiting.pop(next(iter(self._waiting))))
        self.started = True

    def find(self, name: str, version: str | None) -> Scheduler:
        """What serves a model; the newest version unless one is named. Raises ``ServingError``.

        GPC1202 for a model or version that does not exist, GPC1203 for one that is not ready.
        """
        served = self._served.get(name, {})
        known = self._status.get(name)
        if known is None or (version is not None and not VERSION.fullmatch(version)):
            raise self._unknown(name, version)
        number = max(served or known, default=0) if version is None else int(version)
        if number in served:
            return served[number]
        status = known.get(number)
        if status is None:
            raise self._unknown(name, version)
        why = f": {status.reason}" if status.reason else f": {status.state}"
        raise ServingError(f"model {quote(name)}, version {number}, is not ready{why}", code="GPC1203", status=503)

    def _unknown(self, name: str, version: str | None) -> ServingError:
        told = f"there is no model {quote(name)}" + (f", version {quote(version)}" if version is not None else "")
        return ServingError(told, code="GPC1202", status=404)

    def versions(self, name: str) -> list[str]:
        """The versions that are ready."""
        return [str(number) for number in sorted(self._served.get(name, {}))]

    def all(self) -> Iterator[Scheduler]:
        for _, served in sorted(self._served.items()):
            for _, one in sorted(served.items()):
                yield one

    async def index(self, *, ready: bool) -> list[dict[str, Any]]:
        """The models of the folder and those that are served, as the repository extension lists them."""
        known = {name: dict(status) for name, status in self._status.items()}
        for name, found in (await asyncio.to_thread(scan, self.folder)).items():
            own = known.setdefault(name, {})
            for entry in found.entries:
                own.setdefault(entry.version, Status(UNAVAILABLE, "not loaded"))
        listed = []
        for name, status in sorted(known.items()):
            for version, one in sorted(status.items()):
                row = {"name": name, "version": str(version), "state": one.state, "reason": one.reason}
                if one.state == READY or not ready:
                    listed.append(row)
        return listed

    async def load(self, name: str) -> None:
        """Load a model of the folder, anew if it is served. What was served before is served until the new one is ready.

        Raises ``ServingError``: GPC1202 if there is none, GPC1211 with the reason if it cannot be loaded.
        """
        async with self._loading:
            found = (await asyncio.to_thread(scan, self.folder)).get(name)
            if found is None:
                raise self._unknown(name, None)
            self._waiting.pop(name, None)
            await self._load(found)
        faults = [one.reason for one in self._status[name].values() if one.reason]
        if faults:
            raise ServingError(f"model {quote(name)} cannot be loaded: {'; '.join(faults)}", code="GPC1211")

    async def _load(self, found: Found) -> None:
        wanted = found.wanted()
        served = self._served.setdefault(found.name, {})
        if found.fault is not None or not wanted:
            why = found.fault.message if found.fault else "no version that its configuration names is there"
            log.error("model %s is not loaded: %s", found.name, why)
            kept = {version: Status(READY, why) for version in served}
            self._status[found.name] = kept or {1: Status(UNAVAILABLE, why)}
            return
        before = self._status.get(found.name, {})
        status = {entry.version: Status(READY if entry.version in served else LOADING) for entry in wanted}
        self._status[found.name] = {**{v: before[v] for v in served if v in before}, **status}
        for entry in wanted:
            self._status[found.name][entry.version] = await self._load_version(entry, found)
        if any(version not in served for version in status):
            return  # the versions before stay until those that are wanted are all there
        gone = [version for version in served if version not in status]
        for version in gone:
            self._retire(served.pop(version), last=True)
        self._status[found.name] = {version: self._status[found.name][version] for version in status}

    async def _load_version(self, entry: Entry, found: Found) -> Status:
        served = self._served[found.name]
        before = served.get(entry.version)
        begun = time.monotonic()
        try:
            where = f"model {quote(entry.name)}"
            with Bugs(where):
                loaded = await _by_a_thread(lambda: load(entry, found.config, self._target, self._max_batch), where)
                served[entry.version] = Scheduler(loaded, self.limits.queue, self.metrics)
        except GpucompError as error:
            log.error("model %s, version %d, is not loaded: %s", entry.name, entry.version, error)
            return Status(READY if before is not None else UNAVAILABLE, str(error))
        if before is not None:
            self._retire(before, last=False)
        note = f"; not in batches: {loaded.batch}" if isinstance(loaded.batch, Refusal) and self._max_batch > 1 else ""
        seconds = time.monotonic() - begun
        log.info("model %s, version %d, is ready after %.2f s%s", entry.name, entry.version, seconds, note)
        return Status(READY)

    def _retire(self, scheduler: Scheduler, *, last: bool) -> None:
        """Let a version finish, and forget its figures if it is the ``last`` of its number."""

        async def finish() -> None:
            await scheduler.close()
            model, version = scheduler.model.name, scheduler.model.version
            if last and version not in self._served.get(model, {}):
                self.metrics.forget(model, str(version))

        task = asyncio.get_running_loop().create_task(finish())
        self._retiring[task] = scheduler
        task.add_done_callback(self._retiring.pop)

    async def unload(self, name: str) -> None:
        """Serve a model no more. Requests that it has are answered. Raises ``ServingError`` (GPC1202)."""
        async with self._loading:
            if name not in self._status:
                raise self._unknown(name, None)
            self._waiting.pop(name, None)
            for scheduler in self._served.pop(name, {}).values():
                self._retire(scheduler, last=True)
            self._status[name] = {version: Status(UNAVAILABLE, "unloaded") for version in self._status[name]}

    async def close(self) -> None:
        """End everything that runs or waits, and free all memory."""
        for scheduler in self._retiring.values():
            scheduler.cancel()
        for scheduler in self.all():
            scheduler.cancel()
            self._retire(scheduler, last=False)
        await asyncio.gather(*self._retiring)


def _by_a_thread(work: Callable[[], Loaded], where: str) -> asyncio.Future[Loaded]:
    """What ``work`` gives, or its error: a bug ``where``, whatever else it raises.

    The process can end while it is under way: no pool of threads waits for a long compilation.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Loaded] = loop.create_future()

    def told(tell: Callable[[Any], None], what: object) -> None:
        if not result.done():
            tell(what)

    def run() -> None:
        ended: GpucompError = internal_error(RuntimeError("the thread ended"), where)  # as by sys.exit
        done: tuple[Callable[[Any], None], object] = (result.set_exception, ended)
        try:
            with Bugs(where):
                done = (result.set_result, work())
        except GpucompError as error:
            done = (result.set_exception, error)
        finally:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(told, *done)

    threading.Thread(target=run, name="gpucomp-load", daemon=True).start()
    return result
