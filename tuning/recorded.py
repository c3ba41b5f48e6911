"""Reads measured search spaces from files: Kernel Tuner's caches, T4, and gpucomp's own records.

Nothing in a file is executed. A file that is not a record of measurements is a ``UsageError`` that says why.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from gpucomp.errors import UsageError, quote
from gpucomp.lazy_dataclass import dataclass
from gpucomp.schedule import records
from gpucomp.tuning.space import Candidates

Device = tuple[str, str, str]  # kind, architecture, name
MOST_BYTES = 1 << 30  # of a file, unpacked
SMALL = 32 << 20  # bytes that any packed file may hold, however small it is
RATIO = 50  # compression ratio that no real JSON file exceeds


@dataclass(frozen=True)
class Recorded:
    """A space with the measured time of each point.

    seconds   float [points], NaN for a failure; in the file's unit, because only ratios are used
    overhead  float [points], seconds of building and checking, 0 if the file does not say
    failures  number of failed points by cause
    labels    the names of a parameter's values, if they are not integers in the file
    """

    name: str
    device: str
    candidates: Candidates
    seconds: np.ndarray
    overhead: np.ndarray
    failures: Mapping[str, int]
    labels: Mapping[str, tuple[str, ...]]

    def results_for(self, other: Recorded) -> list[tuple[dict[str, int], float | None]]:
        """The measurements as schedules of ``other``: a label becomes its index there, or -1 if it is unknown there."""
        schedules = []
        for schedule in self.candidates.schedules():
            for name, own in self.labels.items():
                known = other.labels.get(name, ())
                label = own[schedule[name]]
                schedule[name] = known.index(label) if label in known else -1
            schedules.append(schedule)
        times = [None if math.isnan(t) else t for t in self.seconds.tolist()]
        return list(zip(schedules, times, strict=True))

    @property
    def optimum(self) -> float:
        return float(np.nanmin(self.seconds))


@dataclass(frozen=True)
class Row:
    """One measurement of a file: ``seconds`` is None for a failure with the cause ``cause``."""

    values: Mapping[str, Any]
    seconds: float | None
    overhead: float = 0.0
    cause: str = ""


def read(path: Path) -> list[Recorded]:
    """The recorded spaces of a file, or of a folder of gpucomp's records: in records, one for each kernel and device.

    Raises ``UsageError`` (GPC2601), or ``RecordError`` for records, if the file cannot be read or has no successful
    measurement.
    """
    if path.is_dir():
        found = [space for file in records.files(path) for space in _lines(file)]
    else:
        found = _lines(path) if path.suffix == records.SUFFIX else _document(path, _text(path))
    spaces = [space for space in found if np.isfinite(space.seconds).any()]
    if not spaces:
        raise _refused(path, "it has no successful measurement")
    return spaces


def distinct(found: Sequence[tuple[Path, Recorded]]) -> list[Recorded]:
    """The spaces that were read from these files or folders; the folder is put before names that are equal."""
    count = Counter(space.name for _, space in found)
    return [
        replace(space, name=f"{path if path.is_dir() else path.parent}/{space.name}")
        if count[space.name] > 1
        else space
        for path, space in found
    ]


def _refused(path: Path, why: str) -> UsageError:
    return UsageError(f"{quote(path)}: {why}; a Kernel Tuner cache, T4 or gpucomp's records expected", code="GPC2601")


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rb") if packed else path.open("rb") as stream:
            most = min(MOST_BYTES, SMALL + RATIO * path.stat().st_size) if packed else MOST_BYTES
            data = bytearray()
            while len(data) <= most and (piece := stream.read(1 << 20)):
                data += piece
    except OSError as error:
        raise UsageError(f"cannot read {quote(path)}: {error.strerror or error}", code="GPC2601") from None
    except (EOFError, zlib.error) as error:
        raise _refused(path, f"damaged ({error})") from None
    if len(data) > most:
        raise _refused(path, f"more than {most >> 20} MB")
    return data.decode("utf-8", errors="replace")


def _parsed(path: Path, text: str) -> Any:
    # Kernel Tuner leaves the braces of a cache open as long as it may append to it
    for ending in ("", "}\n}"):
        try:
            return json.loads(text.rstrip().rstrip(",") + ending if ending else text)
        except (ValueError, RecursionError) as error:
            why = str(error)
    raise _refused(path, f"no JSON ({why})")


def _document(path: Path, text: str) -> list[Recorded]:
    try:
        return _spaces(path, _parsed(path, text))
    except (TypeError, ValueError, OverflowError) as error:  # a value of a type or size that no tool writes
        raise _refused(path, f"an invalid value ({str(error)[:80]})") from None


def _spaces(path: Path, document: Any) -> list[Recorded]:
    if not isinstance(document, dict):
        raise _refused(path, "a JSON object expected")
    name, device = path.name, ""
    extents: tuple[int, ...] = ()
    if isinstance(cache := document.get("cache"), dict):
        keys = document.get("tune_params_keys")
        if not isinstance(keys, list) or not all(isinstance(k, str) for k in keys):
            raise _refused(path, "no tune_params_keys")
        rows = [_of_cache(path, entry, keys) for entry in cache.values()]
        sizes = document.get("problem_size")
        extents = tuple(e for e in sizes if type(e) is int and e in records.INT64) if isinstance(sizes, list) else ()
        device = str(document.get("device_name", ""))
    elif isinstance(results := document.get("results"), list):
        rows = [_of_t4(path, entry) for entry in results]
    else:
        raise _refused(path, "neither a cache nor results in it")
    return [space_of(name, device, rows, extents)] if rows else []


def _of_cache(path: Path, entry: Any, keys: Sequence[str]) -> Row:
    if not isinstance(entry, dict) or any(k not in entry for k in keys):
        raise _refused(path, "an entry that lacks a parameter")
    values, time = {k: entry[k] for k in keys}, entry.get("time")
    overhead = sum(entry[k] for k in ("compile_time", "verification_time") if _is_time(entry.get(k))) / 1e3
    if "__error__" in entry or not _is_time(time):
        return Row(values, None, overhead, str(entry.get("__error__") or time)[:80])
    return Row(values, float(time), overhead)


def _of_t4(path: Path, entry: Any) -> Row:
    if not isinstance(entry, dict) or not isinstance(values := entry.get("configuration"), dict):
        raise _refused(path, "a result without a configuration")
    if (cause := entry.get("invalidity", "correct")) != "correct":
        return Row(values, None, cause=str(cause)[:80])
    measured = {m.get("name"): m.get("value") for m in entry.get("measurements") or () if isinstance(m, dict)}
    names = [*(entry.get("objectives") or ()), "time"]
    time = next((measured[n] for n in names if _is_time(measured.get(n))), None)
    return Row(values, time, cause="" if time else "no time")


def _lines(path: Path) -> list[Recorded]:
    """One space for each kernel and device. Lines that are not records, such as a killed writer leaves, are ignored."""
    groups: dict[tuple[str, Device], list[Row]] = {}
    extents: dict[tuple[str, Device], tuple[int, ...]] = {}
    labels: dict[str, str] = {}
    for _, record in records.read(path):
        if not record or record["kind"] not in ("task", "trial"):
            continue
        key = record["kernel"], records.device_key(record["device"])
        if record["kind"] == "trial":
            groups.setdefault(key, []).append(_of_record(record))
        else:
            extents[key] = tuple(record["problem"].values())
            labels[record["kernel"]] = record["label"]
    devices = Counter(kernel for kernel, _ in groups)
    return [
        space_of(
            _title(path, kernel, labels.get(kernel, ""), device if devices[kernel] > 1 else None),
            device[-1] or device[1],
            rows,
            extents.get((kernel, device), ()),
        )
        for (kernel, device), rows in groups.items()
    ]


def _title(path: Path, kernel: str, label: str, device: Device | None) -> str:
    """As ``records show`` names the kernel: the start of its digest, its label, and the device where there are several."""
    where = "" if device is None else f", {device[0]}:{device[1]} {device[2]}".rstrip()
    return f"{path.name}: {kernel[:12]} {label}".rstrip() + where


def _of_record(record: records.Record) -> Row:
    values = {"engine": record["engine"], **record["configuration"]}
    if record["invalidity"] != "correct":
        return Row(values, None, cause=record["invalidity"][:80])
    return Row(values, records.ratio_of(record))  # relative to the default beside it: a slower clock slows both


def _is_time(value: Any) -> TypeGuard[float]:
    return type(value) in (int, float) and 0 < value < records.LARGEST


def space_of(name: str, device: str, rows: Iterable[Row], extents: Sequence[int] = ()) -> Recorded:
    """A space of rows whose parameters may differ; a point that was measured twice keeps its smallest time."""
    best: dict[tuple[tuple[str, Any], ...], Row] = {}
    for row in rows:
        key = tuple(sorted(row.values.items()))
        old = best.get(key)
        if old is None or old.seconds is None or (row.seconds is not None and row.seconds < old.seconds):
            best[key] = row
    kept = list(best.values())
    names = list(dict.fromkeys(n for row in kept for n in row.values))
    columns, categories, labels = [], [], {}
    for n in names:
        column = [row.values.get(n, 0) for row in kept]
        if not all(type(v) in (int, bool) for v in column):
            # names, or fractions: they become ordinals, numbers sorted by size and names by spelling
            levels = sorted(set(map(str, column)), key=lambda v: (0, float(v), v) if _numeric(v) else (1, 0.0, v))
            column = [levels.index(str(v)) for v in column]
            labels[n] = tuple(levels)
            categories += [n] if not all(map(_numeric, levels)) else []
        columns.append(column)
    values = np.array(columns, np.int64).T.reshape(len(kept), len(names))
    failures: dict[str, int] = {}
    for row in kept:
        if row.seconds is None:
            failures[row.cause] = failures.get(row.cause, 0) + 1
    return Recorded(
        name=name,
        device=device,
        candidates=Candidates(names, values, extents=extents, categories=categories),
        seconds=np.array([math.nan if row.seconds is None else row.seconds for row in kept]),
        overhead=np.array([row.overhead for row in kept]),
        failures=failures,
        labels=labels,
    )


def _numeric(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
