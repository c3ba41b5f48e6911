"""OpenCL drivers beside the PoCL of the process itself, each alone in a process that a watchdog ends when it hangs.

A process for a driver: one that crashes or never returns takes no test of another with it, which device is the first does
not depend on what is installed, and the copies of LLVM that drivers bring do not meet. Loaders of OpenCL read
``OCL_ICD_VENDORS``, a folder of names of libraries, when the first platform is asked for: the process has a folder with the
one driver's. What else a loader adds of its own, as pyopencl's adds PyPI's PoCL, is left out by the platform's name.
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
LIMIT_S = 60.0  # of processor time that a driver has for one step, as building a program
STILL_S = 300.0  # that it may take in all: a driver that waits for itself uses no processor
TICKS = os.sysconf("SC_CLK_TCK")


class DriverError(AssertionError):
    """A driver hung and was ended, or ended its process; at what."""


@dataclass(frozen=True)
class Driver:
    """``platform`` is in the name of its platform, in lower case. ``library`` is empty where it is not installed."""

    platform: str
    install: str  # the command that brings it
    library: Callable[[], str]
    environment: Mapping[str, str] = field(default_factory=dict)


def of_wheel(distribution: str, library: str) -> str:
    """Where pip has put ``library``. What it needs lies beside it, and is found there."""
    try:
        files = importlib.metadata.files(distribution) or ()
    except importlib.metadata.PackageNotFoundError:
        return ""
    return next((str(Path(f.locate()).resolve()) for f in files if f.name == library), "")


def registered(mark: str) -> str:
    """The library that a driver of this machine has registered."""
    names = (file.read_text().strip() for file in sorted(VENDORS.glob("*.icd")))
    return next((name for name in names if mark in name.lower()), "")


DRIVERS = {
    "intel": Driver(
        "intel", "pip install intel-opencl-rt intel-cmplr-lib-rt",
        lambda: of_wheel("intel-opencl-rt", "libintelocl.so") or registered("intelocl"),
    ),
    # its cache of what it has compiled lies in the user's home: a test starts without
    "rusticl": Driver(
        "rusticl", "apt-get install mesa-opencl-icd", lambda: registered("rusticl"),
        {"RUSTICL_ENABLE": "llvmpipe", "MESA_SHADER_CACHE_DISABLE": "true"},
    ),
}  # fmt: skip


class Process:
    """Runs functions where one driver is loaded. It is started when the first is asked for, and anew when it has ended."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._process: Any = None
        self._pipe: Any = None

    def call(self, function: Callable[..., Any], *args: Any, limit_s: float = LIMIT_S, **options: Any) -> Any:
        """What ``function``, of a module, returns or raises there; the device is the only one of ``opencl.devices``.

        Raises ``DriverError`` when a step of it, as building one program, is not done within ``limit_s`` of processor
        time, and when the process ends.
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
                raise DriverError(f"{self.name}: {step} was not done after {limit_s:g} s, and was ended")

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
        """Processor time of the process, all its threads together."""
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

        # as ``conftest.checked_compiler`` has it
        with config.using(verify=True, cache=Path(folder) / "cache", records=None), contextlib.suppress(EOFError):
            while True:
                function, args, options = pipe.recv()
                pipe.send(("step", function.__name__))
                pipe.send(_outcome(function, args, options))


def _open(name: str, pipe: Connection) -> None:
    """Makes the driver's device the only one, and tells of every program that is built."""
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
        except Exception:  # pyopencl's own do not travel
            return "raised", DriverError(traceback.format_exc())
