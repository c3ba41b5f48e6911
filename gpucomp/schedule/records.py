"""Reads tuning records for a compilation: picks by kernel and device. Nothing is measured or written here.

A record is a line of JSON whose last member is the CRC-32 of the text before it. Lines that are truncated, altered or
in another format are counted and otherwise ignored. ``gpucomp.tuning.records`` writes records.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import Any, BinaryIO

from gpucomp import config
from gpucomp.device.target import Target
from gpucomp.errors import RecordError, UsageError, quote
from gpucomp.kernel.source import statements
from gpucomp.lazy_dataclass import dataclass
from gpucomp.refusal import Refusal

SCHEMA = 1
SEAL = ',"crc32":"'
MAX_LINE = 1 << 20  # bytes; longer lines are ignored
SUFFIX = ".jsonl"
LARGEST = 1e300  # limit for numbers, so that results computed from them are finite
INT64 = range(-(1 << 63), 1 << 63)
Record = dict[str, Any]


def sealed(record: Mapping[str, Any]) -> str:
    """``record`` as a line, without the line break. Raises ``ValueError`` for NaN and infinities, which JSON lacks."""
    text = json.dumps({"schema": SCHEMA, **record}, allow_nan=False, separators=(",", ":"))
    return f'{text[:-1]}{SEAL}{zlib.crc32(text.encode()):08x}"}}'


def unsealed(line: str) -> Record | Refusal:
    """The record in a line, or why the line has none."""
    if len(line) > MAX_LINE:
        return Refusal("longer than any record")
    head, seal, tail = line.rpartition(SEAL)
    if not seal or len(tail) != 10 or not tail.endswith('"}'):
        return Refusal("no checksum at its end: truncated, or not a record")
    if f"{zlib.crc32((head + '}').encode()):08x}" != tail[:8]:
        return Refusal("the checksum does not match: altered, or written by two processes at once")
    try:
        found = json.loads(head + "}")
    except (ValueError, RecursionError):
        return Refusal("not JSON")
    if "\\ud" in head.lower():  # a lone surrogate can be neither hashed nor printed
        try:
            json.dumps(found, ensure_ascii=False).encode()
        except (UnicodeEncodeError, RecursionError):
            return Refusal("a string in it is not valid Unicode")
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        return Refusal("in another format")
    wrong = fault(found)
    return Refusal(wrong) if wrong else found


def _is_schedule(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(k, str) and type(v) is int and v in INT64 for k, v in value.items()
    )


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < LARGEST  # False for NaN


def _is_time(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_times(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_time, value))


def _is_timestamp(value: Any) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).timestamp() > 0
    except (ValueError, OverflowError):
        return False


def _are_phases(value: Any) -> bool:
    """Whether ``value`` has the times of a trial's phases in milliseconds: numbers, or lists of numbers for runs."""
    return isinstance(value, dict) and all(
        all(map(_is_number, v)) if isinstance(v, list) else _is_number(v) for v in value.values()
    )


def _is_device(value: Any) -> bool:
    return isinstance(value, dict) and all(_is_text(value.get(name)) for name in ("kind", "arch", "name"))


IDENTITY = {"kernel": _is_text, "device": _is_device, "engine": _is_text, "configuration": _is_schedule}
FIELDS = {
    "task": {"kernel": _is_text, "device": _is_device, "problem": _is_schedule, "label": _is_text},
    "launch": IDENTITY,
    "release": IDENTITY,
    "trial": IDENTITY
    | {"invalidity": _is_text, "samples": _are_times, "template": _is_text, "source": _is_text, "rendered": _is_text},
    "pick": IDENTITY | {"problem": _is_schedule, "ratio": _is_time, "template": _is_text, "source": _is_text},
    "drop": {"kernel": _is_text, "device": _is_device},
}


OPTIONAL = {"problem": _is_schedule, "label": _is_text, "times": _are_phases}  # fields of a trial


def fault(record: Record) -> str:
    """What is wrong with the fields of a record; empty if nothing is."""
    fields = FIELDS.get(record.get("kind", "")) if isinstance(record.get("kind"), str) else None
    if fields is None:
        return f"of unknown kind {quote(record.get('kind'))}"
    checks = {"timestamp": _is_timestamp} | fields
    if record["kind"] == "trial":
        checks |= {name: check for name, check in OPTIONAL.items() if name in record}
    wrong = [name for name, check in checks.items() if name not in record or not check(record[name])]
    if not wrong and record["kind"] == "trial" and record["invalidity"] == "correct":
        wrong = [] if record["samples"] and _is_time(record.get("ratio")) else ["ratio"]
    return f"field {wrong[0]!r} is missing or wrong" if wrong else ""


def time_of(record: Record) -> float:
    """When a record was written, in seconds since 1970."""
    return datetime.fromisoformat(record["timestamp"]).timestamp()


def read(path: Path) -> Iterator[tuple[int, Record | Refusal]]:
    """The number of each line of a file with its record, or with why it has none.

    Raises ``RecordError`` if the file cannot be read.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise RecordError(f"records {quote(path)}: not a regular file", code="GPC7102")
        with open(path, "rb", opener=_without_waiting) as file:
            for number, line in enumerate(_lines(file), start=1):
                text = line.decode("utf-8", errors="replace").strip()
                if text:
                    yield number, unsealed(text)
    except OSError as error:
        raise RecordError(f"records {quote(path)}: {error.strerror or error}", code="GPC7102") from None


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file. Of lines that are too long, only the beginning is kept."""
    while line := file.readline(MAX_LINE + 1):
        rest = b"" if len(line) <= MAX_LINE or line.endswith(b"\n") else file.readline(MAX_LINE)
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(MAX_LINE)
        yield line


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # opening a named pipe could block forever


def files(place: Path) -> list[Path]:
    """The record files of ``place``: the file itself, or all those in the folder."""
    return sorted(place.glob(f"*{SUFFIX}")) if place.is_dir() else [place] if place.exists() else []


def source_hash(text: str, name: str) -> str:
    """A hash of a kernel's statements. The kernel's name, comments and empty lines do not change it."""
    return hashlib.sha256(statements(text).replace(name, "k0").encode()).hexdigest()[:16]


def device_of(target: Target) -> dict[str, Any]:
    """The device of ``target`` as records describe it: what a compilation knows without opening the device."""
    return {"kind": target.kind, "arch": target.arch, "name": target.identity}


def ratio_of(trial: Record) -> float:
    """The time of a correct trial over the default's: 1 for the default, whose measured ratio to itself is noise."""
    return 1.0 if trial.get("default") else float(trial["ratio"])


@dataclass(frozen=True)
class Pick:
    """A schedule that the tuner chose for a kernel. ``ratio`` is its time over that of the default."""

    kernel: str
    problem: Mapping[str, int]
    device: Mapping[str, str]
    engine: str
    schedule: Mapping[str, int]
    template: str
    source: str
    ratio: float

    @classmethod
    def of(cls, record: Record) -> Pick:
        return cls(
            record["kernel"],
            record["problem"],
            record["device"],
            record["engine"],
            record["configuration"],
            record["template"],
            record["source"],
            record["ratio"],
        )

    def is_of(self, target: Target) -> bool:
        """Whether it was measured on the device that ``target`` names. False if ``target`` is only a kind of device."""
        return bool(target.identity) and device_key(self.device) == device_key(device_of(target))


@dataclass(frozen=True)
class Picks:
    """All picks of some record files, by kernel."""

    by_kernel: Mapping[str, Sequence[Pick]] = field(default_factory=dict)

    @classmethod
    def of(cls, picks: Iterable[Pick]) -> Picks:
        """Collect ``picks``. A later pick for a kernel on a device replaces an earlier one."""
        found: dict[str, dict[tuple[str, ...], Pick]] = {}
        for pick in picks:
            found.setdefault(pick.kernel, {})[device_key(pick.device)] = pick
        return cls({kernel: tuple(last.values()) for kernel, last in found.items()})

    def exact(self, kernel: str, target: Target) -> Pick | Refusal:
        """The pick for a kernel on exactly this device, or why there is none."""
        known = self.by_kernel.get(kernel, ())
        found = next((pick for pick in known if pick.is_of(target)), None)
        if found is not None:
            return found
        if not known:
            return Refusal(UNKNOWN)
        if not target.identity:
            return Refusal("the target is a kind of device, not one device")
        others = ", ".join(sorted({quote(pick.device["name"]) for pick in known}))
        return Refusal(f"this kernel was tuned on other devices only: {others}")

    def sibling(self, kernel: str, target: Target) -> Pick | Refusal:
        """The pick for a kernel on another device of the same architecture, or why there is none.

        If there are several, the one with the largest gain over its default.
        """
        known = self.by_kernel.get(kernel, ())
        same = [
            pick
            for pick in known
            if device_key(pick.device)[:2] == (target.kind, target.arch) and not pick.is_of(target)
        ]
        if not same:
            return Refusal(f"this kernel was not tuned on another device of {target.arch}" if known else UNKNOWN)
        return min(same, key=lambda p: p.ratio)

    def nearest(self, problem: Mapping[str, int], engine: str, target: Target, besides: str = "") -> Pick | Refusal:
        """The pick of an engine on this device whose problem is nearest by ``distance``, or why there is none.

        If ``target`` is only a kind of device, picks of all devices of its architecture count. If several problems are
        equally near, the pick with the largest gain over its default. Picks for the kernel ``besides`` are ignored.
        """
        rivals = [
            (far, pick.ratio, pick)
            for pick in self._by_engine.get((engine, target.kind, target.arch), ())
            if target.identity in ("", pick.device["name"])
            and pick.kernel != besides
            and (far := distance(problem, pick.problem)) <= NEAR
        ]
        if not rivals:
            return Refusal(f"no problem with sizes within {math.exp(NEAR):.3g} times of this one's was tuned")
        return min(rivals, key=lambda r: r[:2])[2]

    def agreed(self, problems: Mapping[str, Mapping[str, int]], target: Target, besides: str = "") -> Pick | Refusal:
        """A pick with the schedule that most picks for nearby problems share, or why there is none.

        ``problems`` has the kernel's problem for each engine that can run it. Picks of all these engines vote, on any
        device of the target's architecture, if their problem is within ``FAR``. A problem has one vote: if it was tuned
        on several devices or for several kernels, the pick with the largest gain votes.

        The schedule wins if it has at least ``AGREED`` votes and two thirds of all votes, and if it was a clear gain
        for each of these problems. The result is the pick of the nearest of them. Picks for the kernel ``besides`` are
        ignored, as in ``nearest``.
        """
        around = [
            (far, pick)
            for engine, problem in problems.items()
            for pick in self._by_engine.get((engine, target.kind, target.arch), ())
            if pick.kernel != besides and (far := distance(problem, pick.problem)) <= FAR
        ]
        around.sort(key=lambda one: one[1].ratio)
        of_kernels: dict[str, tuple[float, Pick]] = {}
        for one in around:
            of_kernels.setdefault(one[1].kernel, one)
        votes: dict[object, tuple[float, Pick]] = {}
        for one in of_kernels.values():
            votes.setdefault((one[1].engine, *sorted(one[1].problem.items())), one)
        groups: dict[object, list[tuple[float, Pick]]] = {}
        for one in votes.values():
            groups.setdefault((one[1].engine, one[1].template, *sorted(one[1].schedule.items())), []).append(one)
        most = max(groups.values(), key=len, default=[])
        if not votes:
            return Refusal(f"no problem with sizes within {math.exp(FAR):.3g} times of this one's was tuned")
        if len(most) < AGREED or 3 * len(most) < 2 * len(votes):
            return Refusal(
                f"of {len(votes)} tuned problems with sizes within {math.exp(FAR):.3g} times of this one's, "
                f"{len(most)} share a schedule: at least {AGREED} and two thirds of them must"
            )
        if any(pick.ratio > CLEAR for _, pick in most):
            return Refusal("the schedule that most near problems share was not a clear gain for each of them")
        return min(most, key=lambda one: (one[0], one[1].ratio))[1]

    @cached_property
    def _by_engine(self) -> Mapping[tuple[str, ...], Sequence[Pick]]:
        """The picks by engine, kind of device and architecture."""
        found: dict[tuple[str, ...], list[Pick]] = {}
        for pick in (p for picks in self.by_kernel.values() for p in picks):
            found.setdefault((pick.engine, *device_key(pick.device)[:2]), []).append(pick)
        return found


NEAR = math.log(1.5)  # for example, one size 1.5 times as large
FAR = math.log(4)  # for example, one size 4 times as large, or two sizes 2.7 times
UNKNOWN = "this kernel was not tuned on any device"
AGREED = 3  # votes that a schedule needs before it is used for other problems
CLEAR = 0.95  # a clear gain: at most this part of the default's time


def distance(a: Mapping[str, int], b: Mapping[str, int]) -> float:
    """The distance of two problems: the Euclidean norm of the logarithms of the ratios of their sizes."""
    if a.keys() != b.keys():
        return math.inf
    return math.hypot(*(math.log((1 + abs(a[k])) / (1 + abs(b[k]))) for k in a))


def device_key(device: Mapping[str, Any]) -> tuple[str, str, str]:
    """The key that records of the same device share: kind, architecture and name."""
    return device["kind"], device["arch"], device["name"]


@cache
def _load(place: Path, stamp: tuple[tuple[str, int, int], ...]) -> Picks:
    decided: list[Record] = []
    first, damaged = "", 0
    for path in files(place):
        for number, record in read(path):
            if isinstance(record, Refusal):
                first = first or f"{quote(path.name)[1:-1]}:{number}: {record}"
                damaged += 1
            elif record["kind"] in ("pick", "drop"):
                decided.append(record)
    picks: dict[tuple[str, ...], Pick] = {}
    for record in sorted(decided, key=time_of):  # by time, not by the names of the files
        key = record["kernel"], *device_key(record["device"])
        picks.pop(key, None)
        if record["kind"] == "pick":
            picks[key] = Pick.of(record)
    if damaged:
        more = f" and {damaged - 1} more" if damaged > 1 else ""
        warnings.warn(f"records: {first}{more}; such lines are ignored", RuntimeWarning, stacklevel=2)
    return Picks.of(picks.values())


def load(place: Path) -> Picks:
    """The picks of a file, or of all record files in a folder. Files are read again only if they have changed.

    Raises ``RecordError`` if ``place`` does not exist or cannot be read.
    """
    if not place.exists():
        raise RecordError(f"records {quote(place)}: no such file or folder", code="GPC7102")
    stamp = []
    for path in files(place):
        status = path.stat()
        stamp.append((path.name, status.st_mtime_ns, status.st_size))
    return _load(place.resolve(), tuple(stamp))


def shipped() -> Path:
    """The folder of the records that come with the package."""
    return Path(str(resources.files("gpucomp").joinpath("tuning", "records")))


def picks_of(given: str | Path | Picks | None) -> Picks | None:
    """The records for a compilation: those ``given``, then those of the configuration, then the shipped ones.

    ``None`` if there are none. Raises ``RecordError`` if given or configured records cannot be read.
    """
    if isinstance(given, Picks):
        return given
    if given is not None and not isinstance(given, str | os.PathLike):
        raise UsageError(
            f"records: the path of a file or a folder expected, {type(given).__name__} given", code="GPC2009"
        )
    settings = config.current()
    places = [Path(given)] if given is not None else []
    if settings.records not in (None, config.SHIPPED):
        places.append(settings.records)
    found = [load(place) for place in places]
    if settings.records is not None and shipped().exists():
        found.append(load(shipped()))
    if not any(f.by_kernel for f in found):
        return None
    return (
        found[0]
        if len(found) == 1
        else Picks.of([p for f in reversed(found) for ps in f.by_kernel.values() for p in ps])
    )
