"""The child process that hostile cases run in, one after the other: ``python -m tests.hostile.worker FOLDER MODULE``.

Names of cases come on stdin, one a line; for each, a line of JSON with its name goes out before it starts and one with
what became of it after it ended, so that a death belongs to a case. The call of a case may

- take ``SECONDS`` of processor time, or as much more as a probe beside it takes longer than on the machine of that number,
- take ``CONSTANT`` bytes, and twice what its files have, more than there was,
- open files of its own folder, of Python, of this project and of the kernel cache, and no others,
- leave no file behind anywhere, start no process and connect to nothing.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import resource
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import onnx

ROOT = Path(__file__).parents[2]
SECONDS = 2.0  # on a processor that takes ``PROBE`` seconds for ``probe``: a Zen 4 at 3.5 GHz
PROBE = 0.022
SPEED_LASTS = 5.0  # seconds of the wall clock: how fast a processor is depends on what else its cores and caches do
CONSTANT = 256 << 20  # bytes of resident memory
ADDRESSES = 1 << 30  # of address space: what reserves more is stopped at once
IN_ACCESS, IN_OPEN = 1, 32
FORBIDDEN = (
    "subprocess.",
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.system",
    "socket.",
    "ctypes.dlopen",
)


def probe() -> float:
    """Seconds of processor time that work like the loader's takes: objects, strings, a dictionary, bytes, memory."""
    began = time.process_time()
    nodes = [onnx.helper.make_node("Neg", [f"v{k}"], [f"v{k + 1}"]) for k in range(3000)]
    data = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", [], [])).SerializeToString()
    known = {node.output[0]: k for k, node in enumerate(onnx.load_from_string(data).graph.node)}
    assert len(known) == 3000
    np.ones(2_000_000, np.float32).cumsum()
    return time.process_time() - began


def allowed(probed: float) -> float:
    """Seconds of processor time for a case where the probe takes ``probed``: never less than are promised."""
    return SECONDS * max(1.0, probed / PROBE)


class Clock:
    """What is allowed here and now, by a probe beside the cases, which is repeated every ``SPEED_LASTS`` seconds."""

    def __init__(self) -> None:
        probe()  # it imports, and allocates
        self._until = 0.0
        self._seconds = SECONDS

    def seconds(self) -> float:
        if time.monotonic() > self._until:
            self._seconds = allowed(min(probe(), probe()))
            self._until = time.monotonic() + SPEED_LASTS
        return self._seconds


class TookTooLong(BaseException):
    """The processor time of a case is over. Not an ``Exception``: nothing may answer it."""


class Watch:
    """An audit hook that notes what a case touches and must not. Hooks stay for ever: one a process."""

    def __init__(self, scratch: Path) -> None:
        places = [ROOT, Path(sys.prefix), Path(sys.base_prefix), Path(os.__file__).parent, scratch / "cache"]
        self.allowed = (*tuple(str(p.resolve()) for p in places), "/proc/", "/sys/", "/dev/null", "/dev/urandom")
        self.folder = ""
        self.active = False
        self.faults: list[str] = []
        sys.addaudithook(self._note)

    def _note(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.active:
            return
        if event == "open":
            path = args[0]
            if isinstance(path, int):
                return
            text = os.fsdecode(path)
            inside = os.path.abspath(text)
            if not os.path.isabs(text) and os.sep not in text and text != os.pardir:
                return  # opened beneath a folder's descriptor, or in the case's empty folder
            if not inside.startswith((self.folder, *self.allowed)):
                self.faults.append(f"opened {text[:200]!r}")
        elif event.startswith(FORBIDDEN) and not (event == "ctypes.dlopen" and _is_library(args[0])):
            self.faults.append(f"{event} {str(args)[:200]}")

    @contextmanager
    def of(self, folder: Path) -> Iterator[list[str]]:
        self.folder, self.faults, self.active = str(folder), [], True
        try:
            yield self.faults
        finally:
            self.active = False


def _is_library(name: object) -> bool:
    return name is None or "/" not in str(name) or str(name).startswith((sys.prefix, sys.base_prefix))


class Canary:
    """A file outside of every case's folder; the system tells when it is opened or read, under any of its names."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(b"\0\0\x80\x3f" * 16)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._notes = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._notes < 0 or self._libc.inotify_add_watch(self._notes, os.fsencode(path), IN_ACCESS | IN_OPEN) < 0:
            raise OSError(ctypes.get_errno(), "inotify")

    def touched(self) -> int:
        """What was done to it since this was asked last."""
        found = 0
        try:
            data = os.read(self._notes, 4096)
        except BlockingIOError:
            return 0
        for at in range(0, len(data), 16):
            found |= int.from_bytes(data[at + 4 : at + 8], "little")
        return found & (IN_ACCESS | IN_OPEN)


def memory(field: str) -> int:
    """A field of /proc/self/status, in bytes."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(f"{field}:"))


def forget_peak() -> bool:
    """Let the system measure the peak of resident memory anew. False where it does not allow that."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def listing(place: Path) -> set[str]:
    return {str(p.relative_to(place)) for p in place.rglob("*") if "cache" not in p.relative_to(place).parts[:1]}


def _expired(number: int, frame: FrameType | None) -> None:
    raise TookTooLong


def limited(files: int) -> int:
    """Set the limits for a case whose files have so many bytes; its bound on resident memory."""
    bound = CONSTANT + 2 * files
    soft = memory("VmSize") + ADDRESSES + 2 * files
    resource.setrlimit(resource.RLIMIT_AS, (soft, resource.RLIM_INFINITY))
    return bound


def unlimited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def judge(case: Any, scratch: Path, watch: Watch, canary: Canary, seconds: float) -> dict[str, Any]:
    """Run one case. ``faults`` is empty when nothing was done that must not be; ``code`` and ``message`` are its end."""
    from gpucomp.errors import GpucompError

    folder = scratch / "case" / "model"
    folder.mkdir(parents=True)
    os.chdir(scratch / "cwd")
    act = case.prepare(folder)
    size = sum(p.lstat().st_blocks * 512 for p in folder.rglob("*"))
    before = listing(scratch)
    canary.touched()
    code, message, measured = "ok", "", forget_peak()
    bound, resident = limited(size), memory("VmRSS")
    began = time.process_time()
    with watch.of(folder) as faults:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            act()
        except GpucompError as error:
            code = error.code
            message = " | ".join([str(error), *getattr(error, "problems", ())])
        except TookTooLong:
            faults.append(f"took more than {seconds:.1f} s of processor time")
        except BaseException as error:  # whatever it is, it is told, and is a fault of the product
            code, message = type(error).__name__, str(error)[:500]
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            unlimited()
    took = time.process_time() - began
    grown = memory("VmHWM") - resident if measured else 0
    if grown > bound:
        faults.append(f"took {grown >> 20} MiB, {bound >> 20} allowed for files of {size} bytes")
    seen = canary.touched()
    if seen & IN_ACCESS or (seen and "hard_link" not in case.name):  # a hard link shows only once it is open
        faults.append("the file outside of the folder was opened or read")
    if left := sorted(listing(scratch) ^ before):
        faults.append(f"files came or went: {left[:5]}")
    if "\n" in message or len(message) > 20_000 or not message.isprintable():
        faults.append(f"a message of {len(message)} characters, or one that is no plain line: {message[:300]!r}")
    return {
        "name": case.name,
        "code": code,
        "message": message[:2000],
        "faults": faults,
        "seconds": took,
        "bytes": grown,
    }


def clean(scratch: Path) -> None:
    os.chdir(scratch)
    for name in ("case", "cwd"):
        shutil.rmtree(scratch / name, ignore_errors=True)
    (scratch / "cwd").mkdir()


def main(scratch: Path, module: str) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever prints does not disturb the answers
    cases = importlib.import_module(module).everything()
    importlib.import_module("gpucomp.compiler")
    importlib.import_module("gpucomp.cli.commands")
    warnings.simplefilter("error")
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    signal.signal(signal.SIGPROF, _expired)
    clean(scratch)
    watch, canary, clock = Watch(scratch), Canary(scratch / "secret.bin"), Clock()
    for line in sys.stdin:
        name = line.rstrip("\n")
        print(json.dumps({"start": name}), file=answers)
        result = judge(cases[name], scratch, watch, canary, clock.seconds())
        clean(scratch)
        print(json.dumps(result), file=answers)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
