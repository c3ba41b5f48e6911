"""Machines that measure for a search elsewhere: dask.distributed carries frames between the coordinator and a worker.

The coordinator holds the scheduler, the search and the records; a worker holds a device and a killable process that
measures on it, as a local search does. Everything that travels is a frame of ``messages``: candidates, data and answers,
no model and no Python object of ours. A worker trusts its coordinator, because dask can run code there: off the loopback
interface both show certificates that one authority signed, and without them nothing is opened.

A trial is given to one worker and to no other: a candidate that takes a machine down is not sent to the next one. Who
does not answer in time, or leaves over a job, is asked no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ipaddress
import logging
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import numpy as np

from gpucomp.errors import DeviceError, UsageError, quote
from gpucomp.tuning import messages
from gpucomp.tuning.crew import Answer, Runner
from gpucomp.tuning.messages import Arrays, Message

PORT = 8786
SLACK_S = 30.0  # beyond what its job may take, for an answer: frames travel, and another program may have the device
DESCRIBE_S = 120.0
SILENT_S = 30.0  # without a heartbeat, after which a worker counts as lost
LEAVE_S = 5.0  # for a worker to say good-bye
# facts that decide what a time is worth
ALIKE = ("kind", "arch", "name", "device", "driver", "compiler", "threads", "memory")
UNSEEN = "127.0.0.1:0"  # where dask's pages for people go, which nothing protects
LABEL = "device"  # the resource that a worker has one of, and that every job takes


@dataclass(frozen=True)
class Certificates:
    """Files of one machine: the authority that signed everybody's, and its own."""

    authority: Path
    certificate: Path
    key: Path


@dataclass(frozen=True)
class Address:
    """Where the scheduler listens, or is to be found. ``tls`` is decided by ``Certificates`` being given."""

    host: str
    port: int
    tls: bool

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'tls' if self.tls else 'tcp'}://{host}:{self.port}"

    @classmethod
    def parse(cls, text: str, tls: bool) -> Address:
        """``tls://host:port``, ``tcp://host:port`` or ``host:port``.

        Raises ``UsageError`` for what is none, and without certificates for all but the loopback interface.
        """
        parts = urlsplit(text if "://" in text else f"//{text}")
        try:
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if not host or parts.scheme not in ("", "tcp", "tls") or parts.path.strip("/"):
            raise UsageError(f"{quote(text)}: an address such as tls://10.0.0.1:{PORT} expected", code="GPC2030")
        if parts.scheme == "tls" and not tls:
            raise UsageError(
                f"{quote(text)}: certificates are missing: --tls-ca, --tls-cert and --tls-key", code="GPC2031"
            )
        if parts.scheme == "tcp" and tls:
            raise UsageError(f"{quote(text)}: with certificates the address is tls://{host}", code="GPC2031")
        if not tls and not is_loopback(host):
            raise UsageError(
                f"{quote(text)}: whoever reaches a worker can run code on it, so without certificates only this"
                " machine's own addresses are served: give --tls-ca, --tls-cert and --tls-key",
                code="GPC2031",
            )
        return cls(host, PORT if port is None else port, tls)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _distributed() -> Any:
    try:
        import dask
        import distributed
    except ImportError:
        raise DeviceError("a fleet needs dask.distributed: pip install 'gpucomp[dist]'", code="GPC5003") from None
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what matters comes as errors, with words of ours
    dask.config.set(
        {
            "distributed.scheduler.http.routes": [],
            "distributed.worker.http.routes": [],
            "distributed.scheduler.allowed-failures": 0,
            "distributed.scheduler.work-stealing": False,
            "distributed.scheduler.worker-ttl": f"{SILENT_S:g}s",
            "distributed.worker.memory.target": False,
            "distributed.worker.memory.spill": False,
            "distributed.worker.memory.pause": False,
            "distributed.worker.memory.terminate": False,
        }
    )
    return distributed


@cache
def program() -> str:
    """A digest of the package's sources: times of programs that differ are not compared, nor are their messages."""
    found = hashlib.sha256()
    here = Path(__file__).parent
    for folder in (here.parent, here):  # the second may be a link, which the first does not follow
        for path in sorted(folder.rglob("*.py")):
            found.update(path.read_bytes())
    return found.hexdigest()[:16]


def _security(distributed: Any, certificates: Certificates | None) -> Any:
    """What both ends ask of each other. Raises ``UsageError`` for files that cannot be read."""
    if certificates is None:
        return distributed.Security(require_encryption=False)
    for path in (certificates.authority, certificates.certificate, certificates.key):
        try:
            path.read_bytes()
        except OSError as error:
            raise UsageError(f"certificates: cannot read {quote(path)}: {error.strerror}", code="GPC2031") from None
    own = {f"tls_{role}_{part}": str(path) for role in ("client", "scheduler", "worker")
           for part, path in (("cert", certificates.certificate), ("key", certificates.key))}  # fmt: skip
    return distributed.Security(require_encryption=True, tls_ca_file=str(certificates.authority), **own)


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

    def close(self) -> None:
        self._runner.close()
        if self._folder is not None:
            self._folder.cleanup()


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
) -> None:
    """Measure for the coordinator at ``address`` until it ends.

    Raises ``UsageError`` for an address or certificates that will not do, ``DeviceError`` where the device cannot be
    opened or nobody answers.
    """
    global _relay
    distributed = _distributed()
    place = Address.parse(address, certificates is not None)
    security = _security(distributed, certificates)
    _relay = Relay(Runner(target, lock=lock))
    try:
        facts = _relay.facts["facts"]

        async def serve() -> None:
            options = {} if certificates else {"host": "127.0.0.1"}
            worker = distributed.Worker(
                place.url, nthreads=1, resources={LABEL: 1}, security=security, death_timeout=SILENT_S,
                dashboard=False, dashboard_address=UNSEEN,
                local_directory=tempfile.gettempdir(), **options,
            )  # fmt: skip
            try:
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
        distributed = _distributed()
        security = _security(distributed, certificates)
        protocol = f"{'tls' if place.tls else 'tcp'}://"
        options = {"host": place.host, "port": place.port, "protocol": protocol, "security": security}
        options |= {"dashboard": False, "dashboard_address": UNSEEN}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                self._cluster = distributed.SpecCluster(
                    scheduler={"cls": distributed.Scheduler, "options": options}, workers={}, security=security,
                    silence_logs=50,
                )  # fmt: skip
            except (OSError, RuntimeError) as error:
                raise DeviceError(f"cannot listen at {place.url}: {_why(error)}", code="GPC5301") from error
            self._client = distributed.Client(self._cluster, security=security)
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
        begin = time.monotonic()
        if self.gone:
            return {"invalidity": "killed", "fault": self.gone}, {}
        future = self._carrier.submit(self._member, messages.framed(job, arrays))
        try:
            error = future.exception(timeout=limit + SLACK_S)
        except TimeoutError:
            future.cancel(force=True)
            kind, self.gone = "timeout", f"{self._member} did not answer in {limit + SLACK_S:.0f} s"
        except CancelledError as error:
            kind, self.gone = "killed", f"{self._member} was lost: {_why(error)}"
        else:
            if error is None:
                return messages.unframed(future.result(timeout=SLACK_S))
            kind, self.gone = "killed", f"{self._member} was lost: {_why(error)}"
        return {"invalidity": kind, "fault": self.gone, "seconds": time.monotonic() - begin}, {}

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

    def facts(self) -> Message:
        answer, _ = self._process.ask({"do": "describe"}, {}, DESCRIBE_S)
        if "facts" not in answer:
            raise DeviceError(answer.get("fault", f"{self.member} does not say what it is"), code=answer.get("code"))
        return answer

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        yield


@dataclass(frozen=True)
class Fleet:
    """Who measures: ``runners`` have devices that say the same of themselves, ``refused`` says why others do not take part."""

    runners: Sequence[Remote]
    facts: Message
    refused: Sequence[str]


@dataclass(frozen=True)
class Wanted:
    """The fleet that a search asks for.

    address       where the scheduler listens: ``tls://host:port``; without certificates on this machine alone
    workers       how many have to be there before it begins
    wait          seconds to wait for them
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


def gather(carrier: Carrier, wanted: Wanted, kind: str, arch: str) -> Fleet:
    """The workers that ``carrier`` has, once there are enough of them."""
    deadline = time.monotonic() + wanted.wait
    known: dict[str, Remote] = {}
    facts: Message = {}
    refused: dict[str, str] = {}
    while True:
        for member in carrier.members():
            if member in known or member in refused:
                continue
            runner = Remote(carrier, member)
            try:
                found = runner.facts()
            except DeviceError as error:
                refused[member] = f"{member}: {error.message}"
                continue
            if why := mismatch(found, facts, kind, arch):
                refused[member] = f"{member}: {why}"
            else:
                facts, known[member] = facts or found, runner
        if len(known) >= wanted.workers:
            return Fleet(list(known.values()), facts, list(refused.values()))
        if time.monotonic() > deadline:
            said = "".join(f"\n  {line}" for line in refused.values())
            raise DeviceError(
                f"{len(known)} of {wanted.workers} workers came within {wanted.wait:g} s; each machine runs `gpucomp worker"
                f" --scheduler {wanted.address}`{said}",
                code="GPC5301",
            )
        time.sleep(0.1)


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
