"""Runs a converter in a process of its own, with a time limit, and keeps what it wrote."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gpucomp import config
from gpucomp.artifact import cache as files
from gpucomp.errors import DeviceError, ModelError, quote
from gpucomp.extras import EXTRAS, install
from gpucomp.frontend.foreign.formats import Converter, converter_of
from gpucomp.ir.dim import Dim

FORMAT = 2
LIMIT_S = 600.0
SHAPES = "gpucomp:shapes"  # the key of a model's metadata: shapes with ranges, as JSON
PROGRAMS = "gpucomp.frontend.foreign.programs"


def as_onnx(model: Any, shapes: Mapping[str, Any] | None = None) -> tuple[Any, Mapping[str, Any] | None]:
    """The model itself, or what it is converted to, as bytes; and ``shapes``, with those of inputs whose sizes it leaves open.

    Converted are a path of ``formats.CONVERTERS``, such as ``model.pt2`` and ``model.keras``, in a process of its own, and an
    ``ExportedProgram`` of torch, in this one.

    Raises ``UsageError`` (GPC2054) for a format that nobody converts, ``DeviceError`` (GPC5003) if a converter is not
    installed, ``ModelError`` (GPC3090) if it fails or takes longer than ``LIMIT_S``.
    """
    if type(model).__name__ == "ExportedProgram" and type(model).__module__.startswith("torch."):
        from gpucomp.frontend.foreign.exported import exported

        content = exported(model)
        return content, {**shapes_in(content), **(shapes or {})}
    if not isinstance(model, str | Path) or (converter := converter_of(Path(model))) is None:
        return model, shapes
    content, own = _converted(Path(model), converter)
    return content, {**own, **(shapes or {})}


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
    if missing := [module for module in converter.modules if importlib.util.find_spec(module) is None]:
        raise DeviceError(
            f"{quote(path)} is {converter.title}, and {missing[0]}, which reads it, is not installed: "
            f"{install(converter.extra)}",
            code="GPC5003",
        )
    folder = config.current().cache
    key = "" if folder is None else _key(path, converter)
    content, _ = files.export(folder, key, lambda: _written(path, converter))
    return content, shapes_in(content)


def _written(path: Path, converter: Converter) -> bytes:
    """What the converter makes of ``path``: a model, else ``ModelError`` (GPC3090)."""
    with tempfile.TemporaryDirectory(prefix="gpucomp-") as folder:
        target = Path(folder) / "model.onnx"
        _run(path, converter, target)
        content = target.read_bytes()
    try:
        shapes_in(content)
    except ValueError as error:
        raise ModelError(
            f"{quote(path)}, {converter.title}: its converter wrote no model: {error}", code="GPC3090"
        ) from error
    return content


def _key(path: Path, converter: Converter) -> str:
    """What a conversion depends on: the files, and the versions of what reads them."""
    digest = hashlib.sha256(f"{FORMAT} {converter.program} {list(_versions(converter))}".encode())
    try:
        for one in _content(path):
            digest.update(f"{one.relative_to(path.parent)} {one.stat().st_size} ".encode())
            with open(one, "rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    except OSError as error:
        raise ModelError(f"{quote(path)} cannot be read: {error.strerror}", code="GPC3001") from error
    except ValueError:
        raise ModelError(f"{quote(path)}: no file can have this name", code="GPC3001") from None
    return digest.hexdigest()


def _versions(converter: Converter) -> Iterator[str]:
    for module in converter.modules:
        with contextlib.suppress(PackageNotFoundError):
            yield version(module)


def _content(path: Path) -> list[Path]:
    """The files of a model: itself, those of its folder, and for PaddlePaddle the weights beside it."""
    if path.is_dir():
        return sorted(one for one in path.rglob("*") if one.is_file())
    beside = path.with_suffix(".pdiparams")
    return [path, beside] if beside.is_file() else [path]


def _run(path: Path, converter: Converter, target: Path) -> None:
    command = [
        "env",
        *converter.environment,
        sys.executable,
        "-P",
        "-m",
        PROGRAMS,
        converter.program,
        str(path.resolve()),
        str(target),
    ]
    told = f"{quote(path)}, {converter.title}: its converter"
    try:
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired as error:
        raise ModelError(f"{told} took more than {LIMIT_S:g} s and was ended", code="GPC3090") from error
    if ended.returncode < 0:
        raise ModelError(f"{told} was ended by signal {-ended.returncode}", code="GPC3090")
    if ended.returncode or not target.is_file():
        lines = [line for line in ended.stderr.splitlines() if line.strip()] or ["it wrote no model"]
        versions = ", ".join(EXTRAS[converter.extra].packages)
        raise ModelError(f"{told} failed: {lines[-1][:500]} (tested: {versions})", code="GPC3090")
