"""Lets other machines measure for a search; dask.distributed carries frames between the coordinator and the workers.

The coordinator has the scheduler, the search and the records. A worker has a device and a process that measures on it and
can be killed, as in a local search. Only frames of ``messages`` are sent: candidates, data and answers, but no model and no
Python object of gpucomp. A worker must trust its coordinator, because dask can run code on it. Therefore both ends must
show certificates signed by the same authority, except on the loopback interface.

A trial is given to one worker only: a candidate that takes a machine down is not sent to another one. A worker that does
not answer in time, or leaves during a job, gets no more jobs. Workers that come during a search take part in it. A job
given to a worker that had already left can go to another worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gpucomp.errors import DeviceError
from gpucomp.lazy_dataclass import dataclass
from gpucomp.tuning import messages
from gpucomp.tuning.messages import Arrays, Message
from gpucomp.tuning.network import PORT, SILENT_S, Address, Certificates, distributed, security
from gpucomp.tuning.worker_pool import Answer, Runner

SLACK_S = 30.0  # added to a job's time limit: frames take time, and another program may have the device
FIRST_S = 10.0  # time in which the others wait for the first worker's facts
LOOK_S = 1.0  # between two checks that a worker is still there; it is gone if it is missing twice
LEAVE_S = 5.0  # for a worker to disconnect
# facts in which workers must agree for their times to be comparable
ALIKE = ("kind", "arch", "name", "device", "driver", "compiler", "threads", "memory")
UNSEEN = "127.0.0.1:0"  # for dask's dashboard, which has no protection
LABEL = "device"  # the dask resource that each worker has one of and each job takes


@cache
def program() -> str:
    """A digest of the package's sources: times and messages of different versions are not compatible."""
    found = hashlib.sha256()
    here = Path(__file__).parent
    for folder in (here.parent, here):  # the second can be a symbolic link, which rglob does not follow
        for path in sorted(folder.rglob("*.py")):
            found.update(path.read_bytes())
    return found.hexdigest()[:16]


# the worker


class Relay:
    """Answers frames on a machine with a device. It keeps arrays until ``forget``, even if the measuring process dies."""

    def __init__(self, runner: Runner, told: Callable[[str], None] = lambda why: None) -> None:
        self._runner = runner
        self.told = told  # called if the coordinator does not want this device
        self._arrays: dict[str, np.ndarray] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._one = threading.Lock()

    @property
    def facts(self) -> Message:
        """The facts of the device. Raises ``DeviceError``."""
        return self._runner.facts() | {"program": program()}

    def answer(self, frame: bytes) -> bytes:
        """The answer to ``frame``, as a frame."""
        with self._one:
            return messages.framed(*self._answered(*messages.unframed(frame)))

    def _answered(self, job: Message, arrays: dict[str, np.ndarray]) -> Answer:
        match job["do"]:
            case "describe":
                return self.facts, {}
            case "refused":
                self.told(str(job["why"])[:300])
                return {}, {}
            case "end":
                self._runner.fresh()
                return {}, {}
            case "forget":
                self._arrays.clear()
                self._runner.forget()
                self._clean()
                return {}, {}
        self._arrays |= arrays
        limit = job.pop("limit")
        wanted = {name: self._arrays[name] for name in job.pop("needs")}
        if files := job.pop("files", None):
            job |= {field: self._paths(names, wanted) for field, names in files.items()}
        return self._runner.ask(job, wanted, limit=limit)

    def _paths(self, names: Any, wanted: dict[str, np.ndarray]) -> Any:
        """Write one or more files of a model where the measuring process can read them; return their paths."""
        if isinstance(names, list):
            return [self._paths(name, wanted) for name in names]
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="gpucomp-worker-")
        path = Path(self._folder.name) / f"{names}.gpuc"
        if not path.exists():
            path.write_bytes(wanted[names].tobytes())
        del wanted[names]
        return str(path)

    def _clean(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def close(self) -> None:
        self._runner.close()
        self._clean()


_relay: Relay | None = None  # of this process: a worker has one device


def perform(frame: bytes) -> bytes:
    """Answer a frame. dask calls this on a worker."""
    assert _relay is not None, "not a worker"
    return _relay.answer(frame)


def work(
    address: str,
    *,
    target: str,
    certificates: Certificates | None = None,
    lock: Path | None = None,
    ready: Any = lambda message: None,
    runner: Runner | None = None,
) -> None:
    """Measure for the coordinator at ``address`` until it ends. ``runner`` replaces the one for ``target``'s device.

    Raises ``UsageError`` for a bad address or bad certificates, and ``DeviceError`` if the device cannot be opened or the
    coordinator does not answer.
    """
    global _relay
    dask = distributed()
    place = Address.parse(address, certificates is not None)
    shown = security(certificates)
    _relay = Relay(
        runner or Runner(target, lock=lock), lambda why: ready(f"takes no part in the search at {place.url}: {why}")
    )
    try:
        facts = _relay.facts["facts"]

        async def serve() -> None:
            options = {} if certificates else {"host": "127.0.0.1"}
            try:
                worker = dask.Worker(
                    place.url,
                    nthreads=1,
                    resources={LABEL: 1},
                    security=shown,
                    death_timeout=SILENT_S,
                    dashboard=False,
                    dashboard_address=UNSEEN,
                    local_directory=tempfile.gettempdir(),
                    **options,
                )
                await worker
            except (OSError, RuntimeError) as error:  # dask's own errors are subclasses of these
                raise DeviceError(f"no coordinator at {place.url}: {_why(error)}", code="GPC5301") from error
            ready(f"{facts['device']} ({facts['arch']}) measures for {place.url}")
            await worker.finished()

        asyncio.run(serve())
    finally:
        _relay.close()
        _relay = None


def _why(error: BaseException) -> str:
    """The message of the innermost error in a chain of wrapped errors."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, (TimeoutError, asyncio.CancelledError)):
        return "nobody answers"
    return (str(error) or type(error).__name__).splitlines()[0][:200]


# the coordinator


class Future(Protocol):
    """The part of dask's Future that is used here."""

    def done(self) -> bool: ...
    def exception(self, timeout: float) -> BaseException | None: ...
    def result(self, timeout: float) -> bytes: ...
    def cancel(self, force: bool = False) -> None: ...


class Carrier(Protocol):
    """The network interface of a fleet."""

    def submit(self, member: str, frame: bytes) -> Future:
        """Send a frame to one worker."""
        ...

    def members(self) -> list[str]:
        """Addresses of the connected workers."""
        ...

    def close(self) -> None: ...


class Dask:
    """A scheduler in this process, and its client."""

    def __init__(self, place: Address, certificates: Certificates | None) -> None:
        dask, shown = distributed(), security(certificates)
        protocol = f"{'tls' if place.tls else 'tcp'}://"
        options = {"host": place.host, "port": place.port, "protocol": protocol, "security": shown}
        options |= {"dashboard": False, "dashboard_address": UNSEEN}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                self._cluster = dask.SpecCluster(
                    scheduler={"cls": dask.Scheduler, "options": options},
                    workers={},
                    security=shown,
                    silence_logs=50,
                )
            except (OSError, RuntimeError) as error:
                raise DeviceError(f"cannot listen at {place.url}: {_why(error)}", code="GPC5301") from error
            self._client = dask.Client(self._cluster, security=shown)
        self.address = str(self._cluster.scheduler_address)

    def submit(self, member: str, frame: bytes) -> Future:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of large graphs: a frame holds a kernel's data and goes to one worker
            found: Future = self._client.submit(
                perform, frame, workers=[member], allow_other_workers=False, pure=False, retries=0, resources={LABEL: 1}
            )
        return found

    def members(self) -> list[str]:
        return list(self._client.scheduler_info(n_workers=-1)["workers"])

    def close(self) -> None:
        with contextlib.suppress(OSError, RuntimeError):  # workers end when their scheduler is gone
            self._client.close(timeout=LEAVE_S)
        with contextlib.suppress(OSError, RuntimeError):
            self._cluster.close(timeout=LEAVE_S)


class _Process:
    """A worker on another machine, with the interface of a ``Runner``'s process."""

    pid = 0
    started = 1  # constant: the relay keeps all arrays, so they need not be sent again

    def __init__(self, carrier: Carrier, member: str) -> None:
        self._carrier, self._member = carrier, member
        self.gone = ""

    @property
    def alive(self) -> bool:
        return not self.gone

    def ask(self, job: Message, arrays: Arrays, limit: float) -> Answer:
        """See ``Process.ask``; the answer has ``unsent`` if the worker had left before it got the job."""
        begin = time.monotonic()
        if not self.gone and not self._there():
            self.gone = f"{self._member} has left"
        if self.gone:
            return {"invalidity": "killed", "fault": self.gone, "unsent": True}, {}
        future = self._carrier.submit(self._member, messages.framed(job, arrays))
        answer: Message = {"invalidity": "killed"}
        try:
            match self._end_of(future, begin + limit + SLACK_S):
                case "left":
                    self.gone = f"{self._member} has left"
                    answer["unsent"] = True
                case "timeout":
                    self.gone = f"{self._member} did not answer in {limit + SLACK_S:.0f} s"
                    answer["invalidity"] = "timeout"
                case _:
                    if (error := future.exception(timeout=SLACK_S)) is None:
                        return messages.unframed(future.result(timeout=SLACK_S))
                    self.gone = f"{self._member} was lost: {_why(error)}"
        except (TimeoutError, CancelledError, OSError) as error:  # the worker can leave before its answer has arrived
            self.gone = f"{self._member} was lost: {_why(error)}"
        if not future.done():
            future.cancel(force=True)
        return {**answer, "fault": self.gone, "seconds": time.monotonic() - begin}, {}

    def _there(self) -> bool:
        return self._member in self._carrier.members()

    def _end_of(self, future: Future, deadline: float) -> str:
        """``done``, ``timeout``, or ``left`` for a worker that has disconnected.

        dask reports a job as failed if its worker died over it. But a job that was in transit when the worker left is kept
        until the worker comes back, which may be never.
        """
        absent = 0
        while absent < 2:  # dask reports a failed job no later than the worker's departure
            left = deadline - time.monotonic()
            try:
                future.exception(timeout=max(0.0, min(LOOK_S, left)))
            except TimeoutError:
                if left <= LOOK_S:
                    return "timeout"
                absent = 0 if self._there() else absent + 1
            else:
                return "done"
        return "left"

    def end(self) -> None:
        if not self.gone:
            self.ask({"do": "end"}, {}, SLACK_S)

    def close(self) -> None:
        return


class Remote(Runner):
    """A runner on another machine. Its device is locked on that machine, so nothing is locked here."""

    def __init__(self, carrier: Carrier, member: str) -> None:
        self._process = _Process(carrier, member)
        super().__init__("", worker=self._process)
        self.member = member

    @property
    def gone(self) -> str:  # type: ignore[override]
        return self._process.gone

    def ask(self, job: Message, arrays: Arrays, *, limit: float | None = None) -> Answer:
        """See ``Runner.ask``; files named in the job are sent with it."""
        files: dict[str, Any] = {}
        sent = dict(arrays)
        for field in ("path", "paths"):
            if field in job:
                files[field] = self._packed(job[field], sent)
        patience = self.patience.limit if limit is None else limit
        whole = {**job, "limit": patience, "needs": list(sent)} | ({"files": files} if files else {})
        return super().ask(whole, sent, limit=limit)

    def _packed(self, paths: Any, sent: dict[str, np.ndarray]) -> Any:
        if isinstance(paths, list):
            return [self._packed(path, sent) for path in paths]
        data = np.fromfile(paths, np.uint8)
        name = messages.digest(data)
        sent[name] = data
        return name

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        yield


@dataclass(frozen=True)
class Wanted:
    """The fleet that a search needs.

    address       the scheduler's address: ``tls://host:port``; without certificates only a loopback address
    workers       number of workers to wait for before the search begins
    wait          seconds to wait for them, and for a worker to come back when all have left
    """

    address: str = f"tcp://127.0.0.1:{PORT}"
    workers: int = 1
    certificates: Certificates | None = None
    wait: float = 120.0


@contextlib.contextmanager
def opened(wanted: Wanted, kind: str, arch: str) -> Iterator[Fleet]:
    """The fleet for devices of one kind and architecture.

    Raises ``UsageError`` for a bad address or bad certificates, and ``DeviceError`` if too few workers come.
    """
    place = Address.parse(wanted.address, wanted.certificates is not None)
    carrier = Dask(place, wanted.certificates)
    try:
        yield gather(carrier, wanted, kind, arch)
    finally:
        carrier.close()


class Fleet:
    """The workers of a search. Their devices must have the same facts; new workers can join at any time.

    runners  all that took part at any time
    facts    the facts of the first worker's device
    refused  why other workers do not take part
    """

    def __init__(self, carrier: Carrier, kind: str, arch: str) -> None:
        self._carrier, self._kind, self._arch = carrier, kind, arch
        self._seen: set[str] = set()
        self._asked: dict[str, tuple[Future, float]] = {}
        self.runners: list[Remote] = []
        self.facts: Message = {}
        self.refused: list[str] = []

    def newcomers(self) -> list[Remote]:
        """Runners that take part from now on. New workers are asked for their facts, without waiting for the answer."""
        for member in self._carrier.members():
            if member not in self._seen:
                self._seen.add(member)
                future = self._carrier.submit(member, messages.framed({"do": "describe"}, {}))
                self._asked[member] = future, time.monotonic()
        found: list[Remote] = []
        for member, (future, since) in list(self._asked.items()):
            if not future.done():
                if not self.facts and time.monotonic() < since + FIRST_S:
                    break  # the first worker's facts decide for all others
                continue
            del self._asked[member]
            if why := self._admitted(member, future):
                self.refused.append(f"{member}: {why}")
                warnings.warn(f"not in the fleet: {member}: {why}", RuntimeWarning, stacklevel=2)
            else:
                found.append(Remote(self._carrier, member))
        self.runners += found
        return found

    def _admitted(self, member: str, future: Future) -> str:
        """Why the worker whose facts are in ``future`` cannot take part, or "". A worker that does not fit is told so."""
        try:
            if (error := future.exception(timeout=SLACK_S)) is not None:
                return f"it was lost: {_why(error)}"
            answer, _ = messages.unframed(future.result(timeout=SLACK_S))
        except (TimeoutError, CancelledError, OSError) as error:
            return f"it was lost: {_why(error)}"
        if "facts" not in answer:
            return str(answer.get("fault", "it does not say what it is"))
        if why := mismatch(answer, self.facts, self._kind, self._arch):
            self._carrier.submit(member, messages.framed({"do": "refused", "why": why}, {}))
        self.facts = self.facts or ({} if why else answer)
        return why

    def pending(self) -> bool:
        """Whether a new worker has not answered with its facts yet."""
        return any(time.monotonic() < since + FIRST_S for _, since in self._asked.values())


def gather(carrier: Carrier, wanted: Wanted, kind: str, arch: str) -> Fleet:
    """Wait until ``carrier`` has enough workers. Raises ``DeviceError`` if too few come."""
    fleet = Fleet(carrier, kind, arch)
    deadline = time.monotonic() + wanted.wait
    while True:
        fleet.newcomers()
        if len(fleet.runners) >= wanted.workers and not fleet.pending():
            return fleet
        if time.monotonic() > deadline and not fleet.pending():
            said = "".join(f"\n  {line}" for line in fleet.refused)
            raise DeviceError(
                f"{len(fleet.runners)} of {wanted.workers} workers came within {wanted.wait:g} s; each machine runs"
                f" `gpucomp worker --scheduler {wanted.address}`{said}",
                code="GPC5301",
            )
        time.sleep(0.05)


def mismatch(found: Message, facts: Message, kind: str, arch: str) -> str:
    """Why a worker's times are not comparable with this search's, or ""."""
    own: Message = found["facts"]
    if found.get("program") != program():
        return "another version of gpucomp is installed there"
    if own["kind"] != kind:
        return f"its device is {own['kind']}, this search is for {kind}: start it as `gpucomp worker --target {kind}`"
    if arch and own["arch"] != arch:
        return f"its architecture is {own['arch']}, this search is for {arch}"
    other: Message = facts.get("facts") or own
    for name in ALIKE:
        if own.get(name) != other.get(name):
            return f"its {name} is {own.get(name)}, that of the others {other.get(name)}"
    return ""
