"""All exceptions that gpucomp raises on purpose, in one tree with stable codes. No other module defines exceptions.

    GpucompError            exit 1   GPC1000  any other error
    ├── RunStoppedError     exit 1   GPC11xx  a run was cancelled, or given up after its timeout
    ├── ServingError        exit 1   GPC12xx  the model server refuses a request, or cannot serve a model
    ├── UsageError          exit 2   GPC2xxx  the call or the command line is wrong
    │   └── InputError      exit 2   GPC21xx  an input of run(): name, shape, dtype
    ├── ModelError          exit 3   GPC3xxx  the model is unreadable or invalid
    │   └── ShapeError      exit 3   GPC31xx  shapes or types do not fit together
    ├── UnsupportedError    exit 4   GPC4xxx  valid, but not supported (every case at once)
    ├── DeviceError         exit 5   GPC5xxx  device, driver or compiler missing or failing
    │   ├── KernelBuildError         GPC51xx  the compiler refused a kernel's source
    │   │   └── WrongKernelError     GPC5106  a kernel gives wrong numbers on this driver
    │   └── DeviceLostError          GPC52xx  the device's context is dead
    ├── AccuracyError       exit 6   GPC6xxx  a comparison with a reference failed
    ├── ArtifactError       exit 3   GPC7xxx  a .gpuc file or cache entry is damaged or of another kind
    │   └── RecordError      exit 3   GPC71xx  a file of tuning records cannot be read or written
    ├── ScheduleError       exit 1   GPC8xxx  a schedule cannot run
    └── VerifyError         exit 1   GPC9xxx  the IR is inconsistent: a bug in gpucomp

A message is one line. It says what failed, at which ONNX node, what was expected and found, and what to do.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

MAX_QUOTED = 120
MAX_MESSAGE = 2000


def quote(text: object) -> str:
    """``text`` from a model for a one-line message: escaped, and truncated if long."""
    escaped = repr(str(text)[: MAX_QUOTED + 1])  # truncated first, because escaping can make it four times as long
    return escaped if len(escaped) <= MAX_QUOTED else f"{escaped[: MAX_QUOTED - 4]}...'"


def plain(text: object) -> str:
    """``text`` as one line for a terminal: whitespace is collapsed, and unprintable characters are escaped."""
    line = " ".join(str(text).split())
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in line)


def several(count: int, noun: str) -> str:
    """``1 kernel``, ``2 kernels``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _one_line(message: str) -> str:
    line = plain(message)
    return line if len(line) <= MAX_MESSAGE else f"{line[: MAX_MESSAGE - 4]} ..."


class GpucompError(Exception):
    """The base class. ``code`` is stable across releases; ``exit_code`` is the exit status of the command line.

    ``in_shell`` is the message for the command line, where options are written differently than arguments in Python.
    """

    code = "GPC1000"
    exit_code = 1

    def __init__(self, message: str, *, code: str | None = None, in_shell: str | None = None) -> None:
        self.code = code or type(self).code
        self.message = _one_line(message)
        self.in_shell = self.message if in_shell is None else _one_line(in_shell)
        super().__init__(f"{self.code} {self.message}")


def again(error: GpucompError) -> GpucompError:
    """A new exception that says what ``error`` says. An exception that is kept must not be raised itself: with each time its
    traceback grows by the frames, and these have the arguments of the calls.
    """
    made = type(error).__new__(type(error), *error.args)
    vars(made).update(vars(error))
    return made


FOREIGN: dict[str, str] = {}  # modules and packages that the user named, such as plug-ins, and what to call each


def not_searched(error: BaseException, module: str) -> str:
    """A hint if the package of ``module`` was not found, and is not looked for in the current folder; empty otherwise."""
    missing = isinstance(error, ModuleNotFoundError) and error.name == module.partition(".")[0]
    if not missing or {"", os.getcwd()} & set(sys.path):
        return ""
    return "; the current folder is not searched, PYTHONPATH=. adds it"


def failed_in(error: BaseException, module: str) -> str:
    """``FILE:LINE``: the innermost line of ``module``, or of a module in it, that raised ``error``; empty if none did."""
    place, trace = "", error.__traceback__
    while trace is not None:
        if f"{trace.tb_frame.f_globals.get('__name__', '')}.".startswith(f"{module}."):
            place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def internal_error(error: BaseException, where: str = "") -> GpucompError:
    """The error for an exception that only a bug raises, with what to do about it: a bug of gpucomp or of ``FOREIGN`` code."""
    at = f"{where}: " if where else ""
    for module, title in FOREIGN.items():
        if place := failed_in(error, module):
            return UsageError(
                f"{at}{title} failed in {place}: {type(error).__name__}: {str(error)[:300]}; GPUCOMP_DEBUG=1 prints the "
                "traceback",
                code="GPC2019",
            )
    return GpucompError(
        f"{at}internal error, {type(error).__name__}: {str(error)[:300]}; this is a bug of gpucomp: please report it with the "
        "traceback (GPUCOMP_DEBUG=1)",
        code="GPC1000",
    )


class UsageError(GpucompError):
    """The call or the command line is wrong."""

    code = "GPC2000"
    exit_code = 2


def wrong_argument(message: str, *, code: str | None = None) -> UsageError:
    """An error whose ``message`` starts with the name of an argument. The command line has an option of that name."""
    return UsageError(message, code=code, in_shell=f"--{message}")


class InputError(UsageError):
    """An input given to ``run`` has a wrong name, shape or dtype."""

    code = "GPC2100"


class ModelError(GpucompError):
    """The model cannot be read, or breaks the ONNX standard."""

    code = "GPC3000"
    exit_code = 3


class ShapeError(ModelError):
    """Shapes or element types do not fit together."""

    code = "GPC3100"


class UnsupportedError(GpucompError):
    """The model is valid, but gpucomp cannot compile it. ``problems`` has one line for each reason.

    ``inputs`` names the model's inputs that must have fixed values, if that would help.
    """

    code = "GPC4000"
    exit_code = 4

    def __init__(
        self, message: str, *, problems: tuple[str, ...] = (), inputs: tuple[str, ...] = (), code: str | None = None
    ) -> None:
        super().__init__(message, code=code)
        self.problems = tuple(map(plain, problems)) or (self.message,)
        self.inputs = inputs


class DeviceError(GpucompError):
    """A device, driver or compiler is missing or failed. There is never a silent fallback."""

    code = "GPC5000"
    exit_code = 5


class KernelBuildError(DeviceError):
    """A compiler refused a kernel's source."""

    code = "GPC5100"


class WrongKernelError(KernelBuildError):
    """Kernels give wrong numbers on this driver and device. ``kernels`` says by name what is wrong with each."""

    code = "GPC5106"

    def __init__(self, message: str, kernels: Mapping[str, str]) -> None:
        super().__init__(message)
        self.kernels = kernels


class DeviceLostError(DeviceError):
    """The device's context is dead. The process must be restarted."""

    code = "GPC5200"


class RunStoppedError(GpucompError):
    """A run was cancelled, or given up after its timeout. The model can be run again."""

    code = "GPC1100"


class ServingError(GpucompError):
    """The model server refuses a request, or cannot serve a model. ``status`` is the HTTP status that a client gets."""

    code = "GPC1200"

    def __init__(self, message: str, *, code: str | None = None, status: int = 400) -> None:
        super().__init__(message, code=code)
        self.status = status


class AccuracyError(GpucompError):
    """A comparison with a reference failed."""

    code = "GPC6000"
    exit_code = 6


class ArtifactError(GpucompError):
    """A compiled artefact is damaged, of another kind or of another version."""

    code = "GPC7000"
    exit_code = 3


class RecordError(ArtifactError):
    """A file of tuning records cannot be read or written."""

    code = "GPC7100"


class ScheduleError(GpucompError):
    """A schedule cannot run; the message lists the reasons."""

    code = "GPC8000"


class VerifyError(GpucompError):
    """The IR is inconsistent: gpucomp is wrong, not the model."""

    code = "GPC9000"
