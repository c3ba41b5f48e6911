"""Runs a converter in a process of its own, with a time limit, and keeps what it wrote."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from gpucomp import config
from gpucomp.artifact import cache as files
from gpucomp.errors import DeviceError, GpucompError, ModelError, UnsupportedError, UsageError, quote
from gpucomp.frontend.foreign import own_code
from gpucomp.frontend.foreign.formats import FAILED, Converter, converter_of
from gpucomp.ir.dim import Dim

LIMIT_S = 600.0
SHAPES = "gpucomp:shapes"  # the key of a model's metadata: shapes with ranges, as JSON
PROGRAMS = "gpucomp.frontend.foreign.programs"
INSTALLED = "gpucomp.frontend.foreign.installed"
PACKAGE = Path(__file__).parents[2]  # in which another Python finds these programs
ASK_S = 60.0
ERRORS: Mapping[str, type[GpucompError]] = {"GPC3": ModelError, "GPC4": UnsupportedError}
MOST_BYTES = (1 << 31) - 1  # of a model without files beside it
TAIL = 1 << 14  # bytes of a converter's messages


def as_onnx(model: Any, shapes: Mapping[str, Any] | None = None) -> tuple[Any, Mapping[str, Any] | None]:
    """The model itself, or what it is converted to, as bytes; and ``shapes``, with those of inputs whose sizes it leaves open.

    Converted are a path of ``formats.CONVERTERS``, such as ``model.pt2`` and ``model.keras``, in a process of its own, and an
    ``ExportedProgram`` of torch, in this one.

    Raises ``UsageError`` (GPC2054) for a format that nobody converts, ``DeviceError`` (GPC5003) if a converter is not
    installed, ``ModelError`` (GPC3001) for a file that cannot be read, (GPC3090) if the converter fails or takes longer than
    ``LIMIT_S``, or (GPC3091) and ``UnsupportedError`` (GPC4022) for a program of torch.
    """
    if type(model).__name__ == "ExportedProgram" and type(model).__module__.startswith("torch."):
        from gpucomp.frontend.foreign.exported import exported

        shapes = _mapping(shapes)
        content = exported(model)
        return content, {**shapes_in(content), **shapes}
    if not isinstance(model, str | Path) or (converter := converter_of(Path(model))) is None:
        return model, shapes
    shapes = _mapping(shapes)
    content, own = _converted(Path(model), converter)
    return content, {**own, **shapes}


def _mapping(shapes: Any) -> Mapping[str, Any]:
    if shapes is not None and not isinstance(shapes, Mapping):
        raise UsageError(f"shapes: a mapping of input names expected, {type(shapes).__name__} given", code="GPC2009")
    return shapes or {}


def shapes_in(content: bytes) -> dict[str, Any]:
    """The shapes with ranges that a model's metadata has. Raises ``ValueError`` if it is no model."""
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    try:
        proto = ModelProto.FromString(content)
    except DecodeError as error:
        raise ValueError(str(error)) from error
    told = next((prop.value for prop in proto.metadata_props if prop.key == SHAPES), "{}")
    return {
        name: tuple(Dim(*extent) if isinstance(extent, list) else extent for extent in shape)
        for name, shape in json.loads(told).items()
    }


def _converted(path: Path, converter: Converter) -> tuple[bytes, dict[str, Any]]:
    found = _installed((*converter.modules, "onnx", "onnx_ir"))
    key = _key(path, converter, found)  # a file that cannot be read is told first, with a cache or without one
    if missing := [module for module in converter.modules if found.get(module) is None]:
        raise DeviceError(
            f"{quote(path)} is {converter.title}, and {missing[0]}, which reads it, is not installed: {converter.install}",
            code="GPC5003",
        )
    content, _ = files.export(
        config.current().cache, key, lambda: _written(path, converter), lambda: key == _key(path, converter, found)
    )
    return content, shapes_in(content)


def _written(path: Path, converter: Converter) -> bytes:
    """What the converter makes of ``path``: a model, else ``ModelError`` (GPC3090)."""
    with tempfile.TemporaryDirectory(prefix="gpucomp-") as folder:
        target = Path(folder) / "model.onnx"
        _run(path, converter, target)
        beside = [one for one in target.parent.iterdir() if one.name.startswith(target.name) and one != target]
        if beside or target.stat().st_size > MOST_BYTES:
            raise ModelError(f"{quote(path)}, {converter.title}: as a model it is larger than 2 GiB", code="GPC3090")
        content = target.read_bytes()
    try:
        shapes_in(content)
    except ValueError as error:
        raise ModelError(
            f"{quote(path)}, {converter.title}: its converter wrote no model: {error}", code="GPC3090"
        ) from error
    return content


def _installed(modules: Sequence[str]) -> dict[str, str | None]:
    """The versions of what the converters' Python has. Raises ``DeviceError`` (GPC5003) if it cannot be asked."""
    python = config.current().converters
    if python is None:
        from gpucomp.frontend.foreign.installed import versions  # imports half of the standard library

        return versions(modules)
    try:
        with _started(()) as started:
            command = [*started, INSTALLED, *modules]
            told = subprocess.run(command, capture_output=True, timeout=ASK_S, check=True).stdout
        return dict(json.loads(told))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise DeviceError(
            f"GPUCOMP_CONVERTERS={quote(python)} cannot be asked what it has ({type(error).__name__}): the Python of an "
            "environment expected",
            code="GPC5003",
        ) from error


@contextlib.contextmanager
def _started(environment: Sequence[str]) -> Iterator[list[str]]:
    """The beginning of a command that runs a module of this package by the converters' Python."""
    python = config.current().converters
    if python is None:
        yield ["env", *environment, sys.executable, "-P", "-m"]
        return
    with tempfile.TemporaryDirectory(
        prefix="gpucomp-"
    ) as folder:  # of this package alone, not of what is installed beside it
        (Path(folder) / PACKAGE.name).symlink_to(PACKAGE)
        yield ["env", f"PYTHONPATH={folder}", *environment, str(python), "-P", "-m"]


def _key(path: Path, converter: Converter, found: Mapping[str, str | None]) -> str:
    """What a conversion depends on: the files, and the versions of what reads them. Raises ``ModelError`` (GPC3001)."""
    digest = hashlib.sha256(f"{own_code.digest()} {converter.program} {sorted(found.items())}".encode())
    try:
        for one in _content(path, converter):
            nbytes, content = _digest_of(path, one)
            digest.update(b"%s %d " % (os.fsencode(os.path.relpath(one, path.parent)), nbytes))
            digest.update(content)
    except OSError as error:
        raise ModelError(f"{quote(path)} cannot be read: {error.strerror}", code="GPC3001") from error
    except ValueError:
        raise ModelError(f"{quote(path)}: no file can have this name", code="GPC3001") from None
    return digest.hexdigest()


def _content(path: Path, converter: Converter) -> Iterator[Path]:
    """The files of a model: itself, those of its folder, and for PaddlePaddle the weights beside it. Raises ``OSError``."""
    if not converter.folder:
        beside = path.with_suffix(".pdiparams")
        yield from (path, beside) if beside.is_file() else (path,)
        return
    seen = set()
    for folder, inside, names in os.walk(path, onerror=_raise, followlinks=True):
        status = os.stat(folder)
        if (status.st_dev, status.st_ino) in seen:  # a link to a folder above it, or to one that was read
            inside.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        inside.sort()
        yield from (Path(folder, name) for name in sorted(names))


def _raise(error: OSError) -> NoReturn:
    raise error


def _digest_of(path: Path, one: Path) -> tuple[int, bytes]:
    """How long a file of the model ``path`` is, and its SHA-256. Raises ``OSError``."""
    descriptor = os.open(one, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a named pipe would block for ever
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ModelError(f"{quote(path)} cannot be read: {quote(one.name)} is not a regular file", code="GPC3001")
        return status.st_size, hashlib.file_digest(file, "sha256").digest()


def _run(path: Path, converter: Converter, target: Path) -> None:
    source = os.path.abspath(path)  # links are kept: the names of what they are for differ
    told = f"{quote(path)}, {converter.title}: its converter"
    with tempfile.TemporaryFile() as errors, _started(converter.environment) as started:
        command = [*started, PROGRAMS, converter.program, source, str(target)]
        try:
            status = _status(command, errors)
        except subprocess.TimeoutExpired as error:
            raise ModelError(f"{told} took more than {LIMIT_S:g} s and was ended", code="GPC3090") from error
        except OSError as error:
            raise ModelError(f"{told} cannot be started: {error.strerror}", code="GPC3090") from error
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - TAIL))
        text = errors.read().decode(errors="replace")
    if status < 0:
        raise ModelError(f"{told} was ended by signal {-status}", code="GPC3090")
    if status and (found := _told_by(target.with_name(FAILED))):
        kind, code, message = found
        message = message.removeprefix(quote(source)).removeprefix(" ")
        raise kind(f"{quote(path)} {message}" if kind is ModelError else f"{quote(path)}: {message}", code=code)
    if status or not target.is_file():
        lines = [line for line in text.splitlines() if line.strip()] or ["it wrote no model"]
        packages = ", ".join(converter.packages)
        raise ModelError(f"{told} failed: {lines[-1][:500]} (tested: {packages})", code="GPC3090")


def _status(command: list[str], errors: Any) -> int:
    """How a program ended. Nothing that it started stays. Raises ``OSError`` and ``subprocess.TimeoutExpired``."""
    nowhere = subprocess.DEVNULL
    child = subprocess.Popen(command, stdin=nowhere, stdout=nowhere, stderr=errors, start_new_session=True)
    try:
        return child.wait(LIMIT_S)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _told_by(path: Path) -> tuple[type[GpucompError], str, str] | None:
    """The error that a converter wrote: its class, code and message; ``None`` if there is none."""
    try:
        told = json.loads(path.read_bytes())
        code, message = str(told["code"]), str(told["message"])
    except (OSError, ValueError, LookupError, TypeError):
        return None
    kind = ERRORS.get(code[:4])
    return (kind, code, message) if kind else None
