"""The store of measurements: an append-only file of JSON lines that survives kills, full disks and other writers.

Every line is written by one ``write`` at the file's end, under an advisory lock that is released when its holder dies. A
writer that cannot get the lock in time writes without it. A truncated line stays where it is: the next one starts on a
line of its own, and readers ignore lines that are not records (``gpucomp.schedule.records`` describes a line).

    task      a kernel and the device it is tuned on; its share of the model
    launch    a candidate is about to run: if nothing follows, it has killed its process
    release   the candidate did not run after all, or the failure was not its fault
    trial     a candidate's samples beside the default's, or why there are none
    pick      the candidate that the final chose for a kernel on a device
    drop      there is no pick: the default stays
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpucomp.errors import RecordError, quote
from gpucomp.lazy_dataclass import dataclass
from gpucomp.refusal import Refusal
from gpucomp.schedule import records
from gpucomp.schedule.engine_hash import engine_hash
from gpucomp.schedule.records import Record
from gpucomp.tuning import checks

LOCK_S = 2.0  # time limit for the lock: a stopped process could hold it for ever
SYNC_S = 1.0  # between two syncs to the disk
NAME = "tuning.jsonl"
TRIALS = "trials"  # folder with the trials of the shipped records: a compilation reads only the picks
SHORT = (
    "schema",
    "kind",
    "timestamp",
    "kernel",
    "device",
    "engine",
    "configuration",
    "label",
    "problem",
    "template",
    "source",
    "rendered",
    "invalidity",
    "samples",
    "ratio",
    "check",
    "default",
)
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
MOST_FAULTS = 10_000  # bad lines of a file that are reported by number

Key = tuple[str, str, tuple[tuple[str, int], ...]]  # kernel, engine, schedule


def key_of(record: Record) -> Key:
    """A name for a candidate of a kernel."""
    return record["kernel"], record["engine"], tuple(sorted(record["configuration"].items()))


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Store:
    """One file of records, open for appending. Raises ``RecordError`` if it cannot be read or written.

    ``damage`` lists the lines that are not records, with their numbers.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage: list[str] = []
        self._synced = time.monotonic()
        try:
            self._file = self._opened()
        except OSError as error:
            raise self._failed("cannot be opened", error) from None

    def _opened(self) -> int:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _failed(self, what: str, error: OSError) -> RecordError:
        told = f"records {quote(self.path)} {what}: {error.strerror or error}"
        if error.errno not in FULL:
            return RecordError(told, code="GPC7101")
        advice = f"{told}; make room and continue with"
        return RecordError(f"{advice} gpucomp.TuneOptions(resume=True)", code="GPC7101", in_shell=f"{advice} --resume")

    def read(self) -> list[Record]:
        """All records of the file, in order."""
        self.damage, found = [], []
        for number, record in records.read(self.path):
            if isinstance(record, Refusal):
                note(self.damage, f"line {number}: {record}")
            else:
                found.append(record)
        return found

    def append(self, kind: str, fields: Mapping[str, Any]) -> Record:
        """Add a record with the current time. When this returns, the record survives the end of the process."""
        record = {"kind": kind, "timestamp": now(), **fields}
        if fault := records.fault(record):
            raise ValueError(f"a record of kind {kind!r}: {fault}")
        line = records.sealed(record).encode() + b"\n"
        try:
            with self.locked() as mine:
                end = os.lseek(self._file, 0, os.SEEK_END)
                if end and os.pread(self._file, 1, end - 1) != b"\n":
                    line = b"\n" + line  # the last line is truncated
                self._write(line, mine)
            if kind == "launch" or time.monotonic() - self._synced > SYNC_S:  # a launch may take down the machine
                self._sync()
        except OSError as error:
            raise self._failed("cannot be written", error) from None
        return record

    def _write(self, line: bytes, mine: bool) -> None:
        """Write the whole line. If the disk is full, remove a written part again if it is still at the file's end."""
        start, written = -1, 0
        try:
            while written < len(line):
                count = os.write(self._file, line[written:])
                end = os.lseek(self._file, 0, os.SEEK_CUR)
                start = end - count if start < 0 else start
                written += count
        except OSError:
            # a writer that gave up waiting for the lock may have written behind it, or between its parts
            if mine and written and os.fstat(self._file).st_size == end == start + written:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file, start)
            raise

    @contextlib.contextmanager
    def locked(self, *, strict: bool = False) -> Iterator[bool]:
        """Yield whether the lock of the file could be taken; with ``strict``, raise ``BlockingIOError`` if it could not.

        The previous holder may have replaced the file at ``path``: then the new file is opened.
        """
        deadline = time.monotonic() + LOCK_S
        mine = self._lock(deadline, strict)
        while not self._is_current():
            replaced, self._file = self._file, self._opened()
            os.close(replaced)  # this releases its lock
            mine = self._lock(deadline, strict)
        try:
            yield mine
        finally:
            if mine:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def _lock(self, deadline: float, strict: bool) -> bool:
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if time.monotonic() > deadline:
                    if strict:
                        raise
                    return False
                time.sleep(0.005)
            except OSError as error:
                if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL):
                    raise
                return False  # the file system has no locks

    def _is_current(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._file), self.path.stat())
        except FileNotFoundError:
            return False

    def sync(self) -> None:
        """Write everything that was appended to the disk. Raises ``RecordError``."""
        try:
            self._sync()
        except OSError as error:
            raise self._failed("cannot be written", error) from None

    def _sync(self) -> None:
        try:
            os.fdatasync(self._file)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EROFS):  # pipes and /dev/full cannot be synced
                raise
        self._synced = time.monotonic()

    def close(self) -> None:
        if self._file >= 0:
            try:
                self.sync()
            finally:
                os.close(self._file)
                self._file = -1


def in_folder(place: Path) -> Path:
    """The file to append to: ``place`` itself, or a file in it if it is a folder."""
    return place if place.suffix == records.SUFFIX else place / NAME


@dataclass
class Known:
    """What a file says about one kernel on one device, with unchanged templates.

    ``killers`` counts launches without an end, by candidate.
    """

    trials: dict[Key, Record] = field(default_factory=dict)
    killers: dict[Key, int] = field(default_factory=dict)
    pick: Record | None = None
    dropped: bool = False


def known(found: Iterable[Record], device: Mapping[str, str], hashes: Mapping[str, str]) -> dict[str, Known]:
    """The records of ``device``, by kernel. ``hashes`` are the engines' current template hashes: trials with others are stale
    and ignored, and so are trials that another version of the check found correct.

    A device without a name has no records, because it could be any device of its kind.
    A killer stays a killer with any template: a candidate that took down a machine is not tried again.
    """
    result: dict[str, Known] = {}
    for record in found:
        if not device["name"] or records.device_key(record["device"]) != records.device_key(device):
            continue
        here = result.setdefault(record["kernel"], Known())
        match record["kind"]:
            case "launch":
                here.killers[key_of(record)] = here.killers.get(key_of(record), 0) + 1
            case "release":
                if (before := here.killers.pop(key_of(record), 0) - 1) > 0:  # a default is launched again
                    here.killers[key_of(record)] = before
            case "trial":
                if record["invalidity"] not in ("killed", "timeout"):
                    here.killers.pop(key_of(record), None)
                checked = record["invalidity"] != "correct" or record.get("check") == checks.VERSION
                if checked and hashes.get(record["engine"]) == record["template"] and _lasts(record, here.trials):
                    here.trials[key_of(record)] = record
            case "pick" | "drop":
                here.pick = record if record["kind"] == "pick" else None
                here.dropped = record["kind"] == "drop"
    return result


def _lasts(record: Record, trials: Mapping[Key, Record]) -> bool:
    """Whether to keep a trial: a transient failure does not replace what is already known."""
    return not record.get("transient") or key_of(record) not in trials


def note(damage: list[str], fault: str) -> None:
    """Append ``fault``, up to a limit, so that a file of bad lines cannot fill the memory."""
    if len(damage) < MOST_FAULTS:
        damage.append(fault)


def everything(places: Iterable[Path]) -> tuple[list[Record], list[str]]:
    """The records in files and folders, and their bad lines. Raises ``RecordError`` if there is no file."""
    found: list[Record] = []
    damage: list[str] = []
    for place in places:
        if not (paths := records.files(place)):
            raise RecordError(
                f"records {quote(place)}: no such file, or no {records.SUFFIX} file in it", code="GPC7102"
            )
        for path in paths:
            for number, record in records.read(path):
                if isinstance(record, Refusal):
                    note(damage, f"{path}:{number}: {record}")
                else:
                    found.append(record)
    return found, damage


def beside(path: Path) -> list[Record]:
    """The trials of other files that a search can start from: those in the same folder, and the shipped ones.

    Lines that are not records are ignored. A file that cannot be read is skipped with a warning, because nobody asked for it.
    """
    found: list[Record] = []
    for place in records.files(path.parent) + records.files(records.shipped() / TRIALS):
        if place == path:
            continue
        try:
            read = [record for _, record in records.read(place) if record]
        except RecordError as error:
            warnings.warn(f"the search does not use these records: {error.message}", RuntimeWarning, stacklevel=2)
            continue
        found += [record for record in read if record["kind"] == "trial"]
    return found


def portfolio(found: Iterable[Record], most: int) -> list[Record]:
    """The ``most`` fastest trials of each kernel, device and engine, without the fields that only a resumed search needs.

    A search of the same kernel on another device chooses its first batch from these.
    """
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in found:
        if record["kind"] == "trial" and record["invalidity"] == "correct":
            key = record["kernel"], record["engine"], *records.device_key(record["device"])
            groups.setdefault(key, []).append(record)
    fastest = [record for group in groups.values() for record in sorted(group, key=records.ratio_of)[:most]]
    return [{name: record[name] for name in SHORT if name in record} for record in fastest]


def merged(found: Iterable[Record]) -> list[Record]:
    """Each record once, sorted by time."""
    lines = {records.sealed(record): record for record in found}
    return sorted(lines.values(), key=records.time_of)


def pruned(found: Iterable[Record], hashes: Mapping[str, Mapping[str, str]]) -> list[Record]:
    """Remove what is superseded: releases and the launches they release, trials of other templates, all but the last pick or
    drop.

    The last pick or drop stays whatever its template is: a compilation compares the rendered source. Every launch without
    an end stays too, as often as it occurred.

    ``hashes`` are the engines' current template hashes, by kind of device; an engine that is missing no longer exists.
    """
    kept: dict[tuple[Any, ...], list[Record]] = {}
    for record in found:
        place: tuple[Any, ...] = (records.device_key(record["device"]), record["kernel"])
        current = hashes.get(record["device"]["kind"], {})
        match record["kind"]:
            case "task":
                kept[*place, "task"] = [record]
            case "launch":
                kept.setdefault((*place, "launch", key_of(record)), []).append(record)
            case "release":
                if before := kept.pop((*place, "launch", key_of(record)), [])[:-1]:
                    kept[*place, "launch", key_of(record)] = before
            case "trial":
                if record["invalidity"] not in ("killed", "timeout"):
                    kept.pop((*place, "launch", key_of(record)), None)
                name = (*place, "trial", key_of(record))
                if current.get(record["engine"]) == record["template"] and not (
                    record.get("transient") and name in kept
                ):
                    kept[name] = [record]
            case "pick" | "drop":
                last = kept.get((*place, "pick"))
                if last is None or records.time_of(last[0]) <= records.time_of(record):
                    kept.pop((*place, "pick"), None)
                    kept[*place, "pick"] = [record]
    return [record for group in kept.values() for record in group]


def write(path: Path, found: Iterable[Record], seen: Iterable[Record] = ()) -> None:
    """Write a file of these records, completely or not at all. Raises ``RecordError``.

    ``seen`` are the records of the file at ``path`` that ``found`` was made from; records added to the file since then are
    kept. Other writers that have the file open continue in the new one.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    before = {records.sealed(record) for record in seen}
    try:
        with Store(path) as store, temporary.open("w", encoding="utf-8") as file:
            for record in found:
                file.write(records.sealed(record) + "\n")
            with store.locked(strict=True):  # only briefly: others wait at most LOCK_S
                if before:
                    lines = (records.sealed(record) for record in store.read())
                    file.writelines(f"{line}\n" for line in lines if line not in before)
                file.flush()
                os.fsync(file.fileno())
                os.replace(temporary, path)
    except OSError as error:
        raise RecordError(
            f"records {quote(path)} cannot be written: {error.strerror or error}", code="GPC7101"
        ) from None
    finally:
        with contextlib.suppress(OSError):  # where its folder is a file, nothing has been written
            temporary.unlink(missing_ok=True)


def current_hashes(engines: Iterable[Any]) -> dict[str, str]:
    """The hash of each engine, by its title."""
    return {family.title: engine_hash(family) for family in engines}
