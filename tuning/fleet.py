"""Machines that measure for a search elsewhere: dask.distributed carries frames between the coordinator and a worker.

The coordinator holds the scheduler, the search and the records; a worker holds a device and a killable process that
measures on it, as a local search does. Everything that travels is a frame of ``messages``: candidates, data and answers,
no model and no Python object of ours. A worker trusts its coordinator, because dask can run code there: off the loopback
interface both show certificates that one authority signed, and without them nothing is opened.

A trial is given to one worker and to no other: a candidate that takes a machine down is not sent to the next one. Who
does not answer in time, or leaves over a job, is asked no more; who comes while a search goes on takes part in it. What
a worker that had left before is given it never had, and another one may have it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gpucomp.errors import DeviceError
from gpucomp.tuning import messages
from gpucomp.tuning.crew import Answer, Runner
from gpucomp.tuning.messages import Arrays, Message
from gpucomp.tuning.network import PORT, SILENT_S, Address, Certificates, distributed, security

SLACK_S = 30.0  # beyond what its job may take, for an answer: frames travel, and another program may have the device
FIRST_S = 10.0  # that others wait for a worker to say what it is
LOOK_S = 1.0  # between two looks whether a worker is still there; twice not there is gone
LEAVE_S = 5.0  # for a worker to say good-bye
# facts that decide what a time is worth
ALIKE = ("kind", "arch", "name", "device", "driver", "compiler", "threads", "memory")
UNSEEN = "127.0.0.1:0"  # where dask's pages for people go, which nothing protects
LABEL = "device"  # the resource that a worker has one of, and that every job takes


@cache
def program() -> str:
    """A digest of the package's sources: times of programs that differ are not compared, nor are their messages."""
    found = hashlib.sha256()
    here = Path(__file__).parent
    for folder in (here.parent, here):  # the second may be a link, which the first does not follow
        for path in sorted(folder.rglob("*.py")):
            found.update(path.read_bytes())
    return found.hexdigest()[:16]


# the worker


class Relay:
    """Takes frames on a machine with a device. What was sent once stays until ``forget``, whatever its process does."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._arrays: dict[str, np.ndarray] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._one = threading.Lock()

    @property
    def facts(self) -> Message:
        """What the device says of itself. Raises ``DeviceError``."""
        return self._runner.facts() | {"program": program()}

    def answer(self, frame: bytes) -> bytes:
        """The frame that answers ``frame``."""
        with self._one:
            return messages.framed(*self._answered(*messages.unframed(frame)))

    def _answered(self, job: Message, arrays: dict[str, np.ndarray]) -> Answer:
        match job["do"]:
            case "describe":
                return self.facts, {}
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
        """A file of a model, or several, written where the measuring process can read it."""
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
    """What dask calls on a worker."""
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
    """Measure for the coordinator at ``address`` until it ends; ``runner`` stands in for one that has ``target``'s device.

    Raises ``UsageError`` for an address or certificates that will not do, ``DeviceError`` where the device cannot be
    opened or nobody answers.
    """
    global _relay
    dask = distributed()
    place = Address.parse(address, certificates is not None)
    shown = security(certificates)
    _relay = Relay(runner or Runner(target, lock=lock))
    try:
        facts = _relay.facts["facts"]

        async def serve() -> None:
            options = {} if certificates else {"host": "127.0.0.1"}
            try:
                worker = dask.Worker(
                    place.url, nthreads=1, resources={LABEL: 1}, security=shown, death_timeout=SILENT_S,
                    dashboard=False, dashboard_address=UNSEEN,
                    local_directory=tempfile.gettempdir(), **options,
                )  # fmt: skip
                await worker
            except (OSError, RuntimeError) as error:  # dask's own are of these two kinds
                raise DeviceError(f"no coordinator at {place.url}: {_why(error)}", code="GPC5301") from error
            ready(f"{facts['device']} ({facts['arch']}) measures for {place.url}")
            await worker.finished()

        asyncio.run(serve())
    finally:
        _relay.close()
        _relay = None


def _why(error: BaseException) -> str:
    """The innermost words of an error that was wrapped on its way."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, (TimeoutError, asyncio.CancelledError)):
        return "nobody answers"
    return (str(error) or type(error).__name__).splitlines()[0][:200]


# the coordinator


class Future(Protocol):
    """What dask gives for a job."""

    def done(self) -> bool: ...
    def exception(self, timeout: float) -> BaseException | None: ...
    def result(self, timeout: float) -> bytes: ...
    def cancel(self, force: bool = False) -> None: ...


class Carrier(Protocol):
    """What a fleet needs of the network: three methods."""

    def submit(self, member: str, frame: bytes) -> Future:
        """Give a frame to one worker."""
        ...

    def members(self) -> list[str]:
        """Addresses of the workers that are there."""
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
                    scheduler={"cls": dask.Scheduler, "options": options}, workers={}, security=shown,
                    silence_logs=50,
                )  # fmt: skip
            except (OSError, RuntimeError) as error:
                raise DeviceError(f"cannot listen at {place.url}: {_why(error)}", code="GPC5301") from error
            self._client = dask.Client(self._cluster, security=shown)
        self.address = str(self._cluster.scheduler_address)

    def submit(self, member: str, frame: bytes) -> Future:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of large graphs: a frame has a kernel's data, and goes to one worker
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
    """A worker elsewhere, as ``crew.Runner`` sees its process."""

    pid = 0
    started = 1  # what it was sent stays with it, so it never counts as new

    def __init__(self, carrier: Carrier, member: str) -> None:
        self._carrier, self._member = carrier, member
        self.gone = ""

    @property
    def alive(self) -> bool:
        return not self.gone

    def ask(self, job: Message, arrays: Arrays, limit: float) -> Answer:
        """As ``crew.Process.ask``; ``unsent`` in the answer where the worker was not there to be given the job."""
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
        except (TimeoutError, CancelledError, OSError) as error:  # it may go before what it answers has come
            self.gone = f"{self._member} was lost: {_why(error)}"
        if not future.done():
            future.cancel(force=True)
        return {**answer, "fault": self.gone, "seconds": time.monotonic() - begin}, {}

    def _there(self) -> bool:
        return self._member in self._carrier.members()

    def _end_of(self, future: Future, deadline: float) -> str:
        """``done``, ``timeout``, or ``left`` for a worker that is not there any more.

        dask says so of a job that its worker did not survive, but keeps one for a worker that comes back: what was on
        its way when the worker left, or was handed over as it took its leave.
        """
        absent = 0
        while absent < 2:  # what dask says of the job comes no later than that the worker is gone
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
    """A runner on another machine. Its device is locked there, so nothing is locked here."""

    def __init__(self, carrier: Carrier, member: str) -> None:
        self._process = _Process(carrier, member)
        super().__init__("", worker=self._process)
        self.member = member

    @property
    def gone(self) -> str:  # type: ignore[override]
        return self._process.gone

    def ask(self, job: Message, arrays: Arrays, *, limit: float | None = None) -> Answer:
        """As ``Runner.ask``; the files that a job names travel with it."""
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
    """The fleet that a search asks for.

    address       where the scheduler listens: ``tls://host:port``; without certificates on this machine alone
    workers       how many have to be there before it begins
    wait          seconds to wait for them, and for another one where all have left
    """

    address: str = f"tcp://127.0.0.1:{PORT}"
    workers: int = 1
    certificates: Certificates | None = None
    wait: float = 120.0


@contextlib.contextmanager
def opened(wanted: Wanted, kind: str, arch: str) -> Iterator[Fleet]:
    """The fleet for devices of one kind and architecture.

    Raises ``UsageError`` for an address or certificates that will not do, ``DeviceError`` where too few workers come.
    """
    place = Address.parse(wanted.address, wanted.certificates is not None)
    carrier = Dask(place, wanted.certificates)
    try:
        yield gather(carrier, wanted, kind, arch)
    finally:
        carrier.close()


class Fleet:
    """Who measures: workers whose devices say the same of themselves, and those that come while a search goes on.

    runners  all that took part at any time
    facts    what the first one's device says of itself
    refused  why others do not take part
    """

    def __init__(self, carrier: Carrier, kind: str, arch: str) -> None:
        self._carrier, self._kind, self._arch = carrier, kind, arch
        self._seen: set[str] = set()
        self._asked: dict[str, tuple[Future, float]] = {}
        self.runners: list[Remote] = []
        self.facts: Message = {}
        self.refused: list[str] = []

    def newcomers(self) -> list[Remote]:
        """Runners that take part from now on. Who has just come is asked what it is, and nobody waits for the answer."""
        for member in self._carrier.members():
            if member not in self._seen:
                self._seen.add(member)
                future = self._carrier.submit(member, messages.framed({"do": "describe"}, {}))
                self._asked[member] = future, time.monotonic()
        found: list[Remote] = []
        for member, (future, since) in list(self._asked.items()):
            if not future.done():
                if not self.facts and time.monotonic() < since + FIRST_S:
                    break  # who came first says what the others have to be like
                continue
            del self._asked[member]
            if why := self._admitted(future):
                self.refused.append(f"{member}: {why}")
            else:
                found.append(Remote(self._carrier, member))
        self.runners += found
        return found

    def _admitted(self, future: Future) -> str:
        """Why a worker that says of itself what ``future`` has does not take part, or empty."""
        try:
            if (error := future.exception(timeout=SLACK_S)) is not None:
                return f"it was lost: {_why(error)}"
            answer, _ = messages.unframed(future.result(timeout=SLACK_S))
        except (TimeoutError, CancelledError, OSError) as error:
            return f"it was lost: {_why(error)}"
        if "facts" not in answer:
            return str(answer.get("fault", "it does not say what it is"))
        why = mismatch(answer, self.facts, self._kind, self._arch)
        self.facts = self.facts or ({} if why else answer)
        return why

    def pending(self) -> bool:
        """Whether somebody who has just come has not said yet what it is."""
        return any(time.monotonic() < since + FIRST_S for _, since in self._asked.values())


def gather(carrier: Carrier, wanted: Wanted, kind: str, arch: str) -> Fleet:
    """The workers that ``carrier`` has, once there are enough of them. Raises ``DeviceError`` where there are too few."""
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
    """Why a worker's times are not this search's, or empty."""
    own: Message = found["facts"]
    if found.get("program") != program():
        return "another version of gpucomp is installed there"
    if own["kind"] != kind:
        return f"its device is {own['kind']}, and {kind} is tuned"
    if arch and own["arch"] != arch:
        return f"its architecture is {own['arch']}, and {arch} is tuned"
    other: Message = facts.get("facts") or own
    for name in ALIKE:
        if own.get(name) != other.get(name):
            return f"its {name} is {own.get(name)}, that of the others {other.get(name)}"
    return ""
