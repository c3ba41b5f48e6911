"""Files of tuning records that are cut, forged or no records: nothing of them is chosen, and reading them ends."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from gpucomp.schedule import records
from tests.hostile.corpus import OK, Act, add

DEVICE = {"kind": "cpu", "arch": "x86-64-v3", "name": "a device"}
PICK: Mapping[str, Any] = {
    "kind": "pick",
    "timestamp": "2026-01-02T03:04:05+00:00",
    "kernel": "0123",
    "device": DEVICE,
    "engine": "loops",
    "configuration": {"vector": 8},
    "problem": {"n": 5},
    "ratio": 0.5,
    "template": "t",
    "source": "s",
}
GOOD = records.sealed(PICK)
HOSTILE = {
    "null": None,
    "true": True,
    "minus_1": -1,
    "2_70": 1 << 70,
    "1e308": 1e308,
    "text": "x",
    "nul": "\0",
    "list": [],
    "table": {},
    "nested": [[[[]]]],
    "surrogate": "\ud800",
    "template": "{{7*7}}",
    "path": "../../secret.bin",
    "very_long": "x" * 500_000,
}


def resealed(text: str) -> str:
    """Any JSON object with a checksum that is right."""
    return f'{text[:-1]}{records.SEAL}{zlib.crc32(text.encode()):08x}"}}'


def read(path: Path, picks: int) -> None:
    """As a compilation reads it: ``picks`` sound records are found, and the rest is a warning."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        found = records.load(path)
    assert sum(map(len, found.by_kernel.values())) == picks, found.by_kernel


def store(path: Path, picks: int) -> None:
    """As the tuner reads it, which then appends to it."""
    from gpucomp.tuning.records import Store, everything

    found, _ = everything([path])
    assert sum(r["kind"] == "pick" for r in found) == picks
    with Store(path) as opened:
        opened.append(PICK["kind"], {n: v for n, v in PICK.items() if n != "kind"})
        assert len(opened.read()) == len(found) + 1


def case(what: str, content: Callable[[], bytes], picks: int = 1, act: Callable[[Path, int], None] = read) -> None:
    def prepare(folder: Path) -> Act:
        (folder / "r.jsonl").write_bytes(content())
        return partial(act, folder / "r.jsonl", picks)

    add(f"records/{what}", OK, prepare)


def line(text: str) -> Callable[[], bytes]:
    """The good record, then this line."""
    return lambda: f"{GOOD}\n{text}\n".encode()


case("good", lambda: GOOD.encode())
case("empty", lambda: b"", 0)
for percent in (1, 30, 70, 99):
    cut = (GOOD + "\n" + GOOD[: len(GOOD) * percent // 100]).encode()
    case(f"truncated_{percent}", lambda d=cut: d)
    case(f"truncated_{percent}_and_appended_to", lambda d=cut: d, act=store)
case("nul_tail", lambda: GOOD.encode() + b"\n" + bytes(100_000))
case("nul_hole", lambda: GOOD.encode() + b"\n" + bytes(5000) + b"\n" + GOOD.encode().replace(b"0123", b"9876"), 1)
case("two_writers_torn", lambda: (GOOD[:50] + GOOD + "\n" + GOOD + "\n" + GOOD[50:]).encode())
case("one_line_of_twenty_megabytes", lambda: GOOD.encode() + b"\n" + b"x" * (20 << 20))
case("one_line_of_twenty_megabytes_first", lambda: b"x" * (20 << 20) + b"\n" + GOOD.encode())
case("two_hundred_thousand_lines_of_nothing", lambda: b"x\n" * 200_000 + GOOD.encode())
case("two_hundred_thousand_lines_listed", lambda: b"x\n" * 200_000 + GOOD.encode(), act=store)
case("no_utf8", lambda: GOOD.encode() + b"\n\xff\xfe\xfd\n" + GOOD.encode().replace(b"loops", b"l\xffops"))
case("bit_flipped", lambda: GOOD.encode() + b"\n" + GOOD.encode().replace(b"0.5", b"0.4"))
case("no_checksum", line(json.dumps(PICK)))
case("checksum_of_another", line(GOOD[:-10] + '00000000"}'))
case("json_5000_deep", line(resealed('{"schema":1,"kind":' + "[" * 5000 + "]" * 5000 + "}")))
case("json_of_300000_levels", line(resealed('{"schema":1,"kind":' + "[" * 300_000 + "]" * 300_000 + "}")))
case("json_nan", line(resealed(json.dumps({"schema": 1, **PICK, "ratio": float("nan")}))))
case("json_infinity", line(resealed(json.dumps({"schema": 1, **PICK, "ratio": float("inf")}))))
case("json_of_100000_digits", line(resealed(json.dumps({"schema": 1, **PICK}).replace("0.5", "9" * 100_000))))
case("json_list", line(resealed('[{"schema":1}]')))
case("schema_2", line(resealed(json.dumps({"schema": 2, **PICK}))))
case("kind_of_a_list", line(resealed(json.dumps({"schema": 1, **PICK, "kind": []}))))
for name in PICK:
    for what, wrong in HOSTILE.items():
        text = name in ("kernel", "engine", "template", "source") and isinstance(wrong, str) and what != "surrogate"
        if text or (name in ("configuration", "problem") and what == "table"):
            continue  # a text is what belongs there, and a schedule may be empty
        forged = {"schema": 1, **PICK, name: wrong}
        if what in ("null", "2_70", "text", "table", "surrogate", "list"):
            case(f"field_{name}_{what}", line(resealed(json.dumps(forged))))
case("device_without_a_name", line(resealed(json.dumps({"schema": 1, **PICK, "device": {"kind": "cpu", "arch": "x"}}))))
case("configuration_of_a_fraction", line(resealed(json.dumps({"schema": 1, **PICK, "configuration": {"vector": 8.5}}))))
case("ratio_0", line(resealed(json.dumps({"schema": 1, **PICK, "ratio": 0}))))
case("ratio_negative", line(resealed(json.dumps({"schema": 1, **PICK, "ratio": -1e-9}))))
case("timestamp_of_the_year_0", line(resealed(json.dumps({"schema": 1, **PICK, "timestamp": "0000-01-01T00:00:00"}))))
case(
    "timestamp_before_1970", line(resealed(json.dumps({"schema": 1, **PICK, "timestamp": "1900-01-01T00:00:00+00:00"})))
)


def place(what: str, code: str, make: Callable[[Path], object], act: Callable[[Path], object] = records.load) -> None:
    """Something at the place of the file."""

    def prepare(folder: Path) -> Act:
        make(folder / "r.jsonl")
        return partial(act, folder / "r.jsonl")

    add(f"records/{what}", code, prepare, "records '")


def inside(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def prepare(path: Path) -> None:
        path.mkdir()
        make(path / "r.jsonl")

    return prepare


place("missing", "GPC7102", lambda p: None)
place("pipe", "GPC7102", os.mkfifo)
place("pipe_in_a_folder", "GPC7102", inside(os.mkfifo))
place("folder_of_that_name", "GPC7102", inside(lambda p: p.mkdir()))
place("link_to_dev_zero", "GPC7102", lambda p: p.symlink_to("/dev/zero"))
place("link_to_itself", "GPC7102", lambda p: p.symlink_to(p))


# --- spaces that other tools recorded


def replay(path: Path) -> None:
    from gpucomp.tuning.recorded import read

    read(path)


def document(what: str, content: Callable[[], bytes], code: str = "GPC2601") -> None:
    def prepare(folder: Path) -> Act:
        (folder / "t4.json").write_bytes(content())
        return partial(replay, folder / "t4.json")

    add(f"records/t4_{what}", code, prepare, "t4.json" if code != OK else "")


def t4(**fields: Any) -> bytes:
    result = {
        "configuration": {"a": 1},
        "measurements": [{"name": "time", "value": 1.0}],
        "invalidity": "correct",
    } | fields
    return json.dumps({"schema_version": "1.0.0", "results": [result, {**result, "configuration": {"a": 2}}]}).encode()


def gzipped(blanks: int = 8 << 20) -> bytes:
    import gzip

    return gzip.compress(t4() + b" " * blanks, mtime=0)


document("good", t4, OK)
document("empty", lambda: b"")
document("truncated", lambda: t4()[:-40])
document("list", lambda: b"[]")
document("text", lambda: b"hello")
document("300000_deep", lambda: b"[" * 300_000)
document("without_results", lambda: b"{}")
document("results_of_numbers", lambda: b'{"results": [1, 2, 3]}')
document("configuration_of_a_list", lambda: t4(configuration=[1]))
document("configuration_of_lists", lambda: t4(configuration={"a": [[1], {}]}))
document("value_of_2_70", lambda: t4(configuration={"a": 1 << 70}))
document("time_nan", lambda: t4(measurements=[{"name": "time", "value": float("nan")}]))
document("time_negative", lambda: t4(measurements=[{"name": "time", "value": -1}]))
document("time_of_text", lambda: t4(measurements=[{"name": "time", "value": "1"}]))
document("measurements_of_a_number", lambda: t4(measurements=7))
document("objectives_of_a_number", lambda: t4(objectives=7))
document("objectives_of_lists", lambda: t4(objectives=[[]]))
document("names_of_lists", lambda: t4(measurements=[{"name": [], "value": 1}]))
document("invalidity_of_a_list", lambda: t4(invalidity=[]))
document("zipped_blanks", gzipped, OK)
document("zip_bomb", lambda: gzipped(64 << 20))
document("gzip_cut", lambda: gzipped()[:200])
document("cache_of_numbers", lambda: b'{"cache": {"a": 1}, "tune_params_keys": ["a"]}')
document("cache_keys_of_a_number", lambda: b'{"cache": {"a": {}}, "tune_params_keys": 1}')
