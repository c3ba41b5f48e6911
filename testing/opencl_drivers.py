"""Other OpenCL drivers than the process's own PoCL. Each runs in a process of its own, with a watchdog for hangs.

So a driver that crashes or hangs fails only its own tests, the first device does not depend on what is installed, and the
copies of LLVM in the drivers do not collide. OpenCL loaders read ``OCL_ICD_VENDORS``, a folder with names of libraries, when
the platforms are first listed; the process gets a folder with its one driver. Platforms that a loader adds by itself, as
pyopencl's loader adds PoCL from PyPI, are ignored by name.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import multiprocessing
import os
import pickle
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

VENDORS = Path("/etc/OpenCL/vendors")
LIMIT_S = 60.0  # processor time for one step of a driver, such as building a program
STILL_S = 300.0  # wall-clock time for a step: a deadlocked driver uses no processor time
TICKS = os.sysconf("SC_CLK_TCK")


class DriverError(AssertionError):
    """A driver hung and was killed, or its process ended; the message says during which step."""


@dataclass(frozen=True)
class Driver:
    """``platform`` is a part of the platform's name, in lower case. ``library`` returns "" if it is not installed."""

    platform: str
    install: str  # the command that installs it
    library: Callable[[], str]
    environment: Mapping[str, str] = field(default_factory=dict)


def of_wheel(distribution: str, library: str) -> str:
    """The path of ``library`` from a wheel. Its dependencies are beside it and are found there."""
    try:
        files = importlib.metadata.files(distribution) or ()
    except importlib.metadata.PackageNotFoundError:
        return ""
    return next((str(Path(f.locate()).resolve()) for f in files if f.name == library), "")


def registered(mark: str) -> str:
    """The library of a driver that is registered on this machine."""
    names = (file.read_text().strip() for file in sorted(VENDORS.glob("*.icd")))
    return next((name for name in names if mark in name.lower()), "")


DRIVERS = {
    "intel": Driver(
        "intel",
        "pip install intel-opencl-rt intel-cmplr-lib-rt",
        lambda: of_wheel("intel-opencl-rt", "libintelocl.so") or registered("intelocl"),
    ),
    # its shader cache in the user's home is switched off, so that tests start without it
    "rusticl": Driver(
        "rusticl",
        "apt-get install mesa-opencl-icd",
        lambda: registered("rusticl"),
        {"RUSTICL_ENABLE": "llvmpipe", "MESA_SHADER_CACHE_DISABLE": "true"},
    ),
}


class Process:
    """Runs functions in a process with one driver. It is started on the first call, and again after it has ended."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._process: Any = None
        self._pipe: Any = None

    def call(self, function: Callable[..., Any], *args: Any, limit_s: float = LIMIT_S, **options: Any) -> Any:
        """Call ``function``, which must be importable, in the process; the driver's device is the only one there.

        Returns its result or raises its exception. Raises ``DriverError`` if a step of it, such as building a program, takes
        more than ``limit_s`` of processor time, or if the process ends.
        """
        if self._process is None or not self._process.is_alive():
            self._start()
            self._answer(LIMIT_S)
        self._pipe.send((function, args, options))
        return self._answer(limit_s)

    def _answer(self, limit_s: float) -> Any:
        step, since, started = "starting", self._cpu_s(), time.monotonic()
        while True:
            if self._pipe.poll(0.2):
                try:
                    kind, value = self._pipe.recv()
                except EOFError:
                    self._process.join()
                    ended = self._process.exitcode
                    raise DriverError(f"{self.name}: {step} ended the process (exit code {ended})") from None
                if kind == "returned":
                    return value
                if kind == "raised":
                    raise value
                step, since, started = value, self._cpu_s(), time.monotonic()
            elif self._cpu_s() - since > limit_s or time.monotonic() - started > max(limit_s, STILL_S):
                self.end()
                raise DriverError(f"{self.name}: {step} was not done after {limit_s:g} s and was killed")

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(self.name, DRIVERS[self.name].library(), theirs), daemon=True
        )
        self._process.start()
        theirs.close()

    def _cpu_s(self) -> float:
        """Processor time of all threads of the process."""
        try:
            after_name = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(after_name[11]) + int(after_name[12])) / TICKS


@cache
def process(name: str) -> Process:
    return Process(name)


def _serve(name: str, library: str, pipe: Connection) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / f"{name}.icd").write_text(f"{library}\n")
        os.environ |= {"OCL_ICD_VENDORS": folder, **DRIVERS[name].environment}
        try:
            _open(name, pipe)
        except Exception as error:
            pipe.send(("raised", DriverError(f"{name}: {error!r}, with {library}; {DRIVERS[name].install}")))
            return
        pipe.send(("returned", None))
        from gpucomp import config

        # the same settings as in ``conftest.checked_compiler``
        with config.using(verify=True, cache=Path(folder) / "cache", records=None), contextlib.suppress(EOFError):
            while True:
                function, args, options = pipe.recv()
                pipe.send(("step", function.__name__))
                pipe.send(_outcome(function, args, options))


def _open(name: str, pipe: Connection) -> None:
    """Make the driver's device the only one, and report every build of a program as a step."""
    import pyopencl as cl

    from gpucomp.targets import opencl

    warnings.simplefilter("error")
    platforms = [p for p in cl.get_platforms() if DRIVERS[name].platform in p.name.lower()]
    (device,) = (device for platform in platforms for device in platform.get_devices())
    opencl.devices = lambda: (device,)
    build, one_at_a_time = cl.Program.build, threading.Lock()

    def tell(step: str) -> None:
        with one_at_a_time:
            pipe.send(("step", step))

    def told(program: Any, *args: Any, **options: Any) -> Any:
        tell("building a program")
        try:
            return build(program, *args, **options)
        finally:
            tell("what follows the build of a program")

    cl.Program.build = told


def _outcome(function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> tuple[str, Any]:
    try:
        return "returned", function(*args, **options)
    except Exception as error:
        error.add_note(traceback.format_exc())
        try:
            return "raised", pickle.loads(pickle.dumps(error))
        except Exception:  # pyopencl's exceptions cannot be pickled
            return "raised", DriverError(traceback.format_exc())
