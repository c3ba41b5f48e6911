"""Cases that do what hostile files must not bring about, so that the harness is seen to notice each."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from gpucomp.errors import ModelError
from tests.hostile.corpus import OK, Case


def read_canary(folder: Path) -> None:
    (folder / "../../secret.bin").read_bytes()


def leave(place: str, folder: Path) -> None:
    (folder / place).write_text("PWNED")


def fill(folder: Path) -> None:
    del folder
    assert len(bytearray(300 << 20))
    assert bytearray(300 << 20).count(1) == 0


def reserve(folder: Path) -> None:
    del folder
    assert bytearray(1 << 40)


def compute(folder: Path) -> None:
    del folder
    while True:
        sum(range(1000))


def recurse(folder: Path) -> None:
    recurse(folder)


def die(folder: Path) -> None:
    del folder
    os.abort()


def sleep(folder: Path) -> None:
    del folder
    time.sleep(600)


def start(folder: Path) -> None:
    del folder
    subprocess.run([sys.executable, "-c", ""], check=True)


def connect(folder: Path) -> None:
    del folder
    with socket.socket() as s:
        s.connect_ex(("127.0.0.1", 1))


def refuse(message: str, folder: Path) -> None:
    del folder
    raise ModelError(message, code="GPC3001")


def long(folder: Path) -> None:
    del folder
    error = ModelError("x", code="GPC3001")
    error.problems = ("two\nlines",)  # type: ignore[attr-defined]
    raise error


def nothing(folder: Path) -> None:
    del folder


ACTS: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "nothing": (nothing, "", ""),
    "refuses": (partial(refuse, "no"), "GPC3001", ""),
    "reads_canary": (read_canary, OK, "outside of the folder was opened or read"),
    "reads_passwd": (lambda folder: Path("/etc/passwd").read_bytes() and None, OK, "opened '/etc/passwd'"),
    "leaves_a_file_in_its_folder": (partial(leave, "left"), OK, "files came or went"),
    "leaves_a_file_where_it_runs": (lambda folder: Path("left").write_text("x") and None, OK, "files came or went"),
    "leaves_a_temporary_file": (partial(leave, "../../tmp/left"), OK, "files came or went"),
    "takes_memory": (fill, OK, "MiB"),
    "reserves_a_terabyte": (reserve, OK, "ok expected, MemoryError found"),
    "takes_time": (compute, OK, "processor time"),
    "recurses": (recurse, OK, "ok expected, RecursionError found"),
    "dies": (die, OK, "died with status -6"),
    "sleeps": (sleep, OK, "hangs"),
    "starts_a_process": (start, OK, "subprocess.Popen"),
    "connects": (connect, OK, "socket.connect"),
    "refuses_by_another_code": (partial(refuse, "no"), "GPC3002", "GPC3002 expected, GPC3001 found"),
    "does_not_refuse": (nothing, "GPC3001", "GPC3001 expected, ok found"),
    "raises_another_error": (lambda folder: {}["x"], "GPC3001", "KeyError found"),
    "says_two_lines": (long, "GPC3001", "no plain line"),
}


def everything() -> Mapping[str, Case]:
    """A case for each act; ``mention`` is checked by the test, not here."""
    return {
        f"misdeeds/{name}": Case(f"misdeeds/{name}", lambda folder, a=act: partial(a, folder), code or OK)
        for name, (act, code, _) in ACTS.items()
    }
