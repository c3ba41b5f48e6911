"""The cache of compiled models: what was compiled before is read from its file, without the compiler.

An entry is a compiled model, ``KEY.gpuc``, and its description, ``KEY.json``: for what it was compiled, and the digests of
the data files beside the model. For a model that cannot be compiled, the description is the error. KEY is a hash of everything
else that decides the result: the model's bytes, the arguments, the settings, the target with its compiler, the tuning records,
the files of this package, and the versions of the packages that it calls.

Like the cache of kernels, it never makes a compilation fail, and nobody waits for anybody. Nothing is kept or found while
GPUCOMP_DEBUG, GPUCOMP_DUMP or GPUCOMP_VERIFY watch the compilation, or after a plug-in was loaded.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import mmap
import os
import platform
import re
import stat
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from gpucomp import config
from gpucomp.artifact import cache as files
from gpucomp.artifact import known
from gpucomp.artifact.plan import Plan
from gpucomp.device import processor
from gpucomp.errors import ArtifactError, GpucompError, ModelError, ShapeError
from gpucomp.loading import of_any_shape, opened
from gpucomp.refusal import Refusal
from gpucomp.runtime import artifact
from gpucomp.runtime.executable import Executable

FORMAT = 1
CALLED = ("numpy", "onnx", "llvmlite", "ml_dtypes", "jinja2")  # packages that the result depends on
MAX_DESCRIPTION = 1 << 20  # bytes
MODEL, DATA, ARTEFACT = "model", "data", "artefact"  # kinds of notes
WHOLE = "whole"  # what is noted of an artefact whose digests were compared
OF_OPERATORS = "GPC31"  # beginning of codes
PACKAGE = Path(__file__).parent
_imported = time.time()


class ModelCache:
    """The entry for one call of ``compile``.

    Raises ``TypeError`` or ``LookupError`` if the result cannot be kept: for an argument that has no canonical text, or if
    it is unknown on what the result depends. Raises ``OSError`` for a file that cannot be read, and the errors of
    ``targets.resolve``.
    """

    def __init__(
        self, folder: Path, model: object, target: str, arguments: Mapping[str, Any], records: object = None
    ) -> None:
        settings = config.current()
        self.folder, self._model, self._began = folder, model, time.time()
        self._path = Path(model) if isinstance(model, str | os.PathLike) else None
        self._before = self._state()
        digest, self._has_data = _looked_at(model, folder)
        places = (records, settings.records, settings.devices)
        parts = {
            "format": FORMAT,
            "model": digest,
            "arguments": canonical(arguments),
            "settings": [settings.fold_limit, settings.threads, settings.self_test, *map(_what_is_in, places)],
            "target": _what_is(settings.target if target == "auto" else target),
            "code": _code(),
            "versions": _versions(),
        }
        self.key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        self.artefact = folder / "models" / self.key[:2] / f"{self.key}.gpuc"
        self.description = self.artefact.with_suffix(".json")

    def find(self) -> Executable | None:
        """The compiled model; ``None`` if it is missing, damaged or not trusted, or if a data file is another one.

        Raises the ``ModelError`` that ``keep_refusal`` kept.
        """
        content = files.read(self.description)
        try:
            kept = json.loads(content) if 0 < len(content) <= MAX_DESCRIPTION else None
        except (ValueError, RecursionError):
            return None
        if not isinstance(kept, dict) or kept.get("key") != self.key or not isinstance(kept.get("data"), dict):
            return None
        if isinstance(told := kept.get("refused"), list) and len(told) == 4 and all(isinstance(t, str) for t in told):
            raise (ShapeError if told[0] == ShapeError.__name__ else ModelError)(
                told[1], code=told[2], in_shell=told[3]
            )
        try:
            if any(self._digest(name)[0] != digest for name, digest in kept["data"].items()):
                return None
            return self._loaded()
        except (OSError, ValueError, ArtifactError, MemoryError):
            return None

    def _loaded(self) -> Executable | None:
        """The artefact, if it is trusted. Its digests are compared unless it did not change since that was done."""
        began, status = time.time_ns(), os.lstat(self.artefact)
        if not files.is_trusted(status):
            return None
        is_known = known.told(self.folder, ARTEFACT, status) == WHOLE
        exe = opened(artifact.load(self.artefact, known=is_known))
        if not is_known:
            known.note(self.folder, ARTEFACT, status, WHOLE, began)
        return exe

    def has_changed(self) -> bool:
        """Whether the model's file is gone or was written again since the call."""
        try:
            return self._state() != self._before
        except OSError:
            return True

    def keep(self, exe: Executable) -> None:
        """Store the compiled model, unless one of the files that it was made from changed in the meantime."""
        if (open_exe := of_any_shape(exe)) and isinstance(open_exe.program, Refusal):
            return
        contents = exe.contents()
        if any(kernel.tier in ("smaller", "other") for kernel in contents.plan.kernels):
            return  # the device refused a kernel, or computes it wrong; the next compilation has to warn again
        limit = config.current().cache_bytes
        if sum(array.nbytes for array in contents.weights.values()) > limit // 2:
            return
        try:
            data = {name: self._digest(name) for name in self._data_files()}
            if any(not digest or changed >= self._began for digest, changed in data.values()):
                return
            if self._state() != self._before or _fingerprint() != _code():
                return
            self.artefact.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
            artifact.save(self.artefact, contents, durable=False)
            os.chmod(self.artefact, 0o644)
            kept = {"key": self.key, "data": {name: digest for name, (digest, _) in data.items()}}
            files.write(self.description, json.dumps(kept | {"about": self._about(exe, contents.plan)}).encode())
            files.trim(self.folder, limit)
            known.note_written(self.folder, ARTEFACT, self.artefact, WHOLE)
        except (OSError, ArtifactError, LookupError) as error:
            _warn("the compiled model is not cached: %s: %s", self.folder, error)

    def keep_refusal(self, error: ModelError) -> None:
        """Store that the call raises ``error``, if it does so whatever is installed here: operators and shapes do not fit."""
        try:
            if not error.code.startswith(OF_OPERATORS) or self._has_data:
                return
            if self._state() != self._before or _fingerprint() != _code():
                return
            told = [type(error).__name__, error.message, error.code, error.in_shell]
            files.write(self.description, json.dumps({"key": self.key, "data": {}, "refused": told}).encode())
            files.trim(self.folder, config.current().cache_bytes)
        except OSError as problem:
            _warn("that the model cannot be compiled is not cached: %s: %s", self.folder, problem)

    def _about(self, exe: Executable, plan: Plan) -> dict[str, object]:
        """What ``gpucomp cache list`` shows."""
        name = plan.model if self._path is None else self._path.name
        shapes = {spec.name[:100]: [str(extent) for extent in spec.shape] for spec in exe.inputs[:8]}
        return {"model": name[:200], "target": exe.target, "precision": plan.precision, "inputs": shapes}

    def _state(self) -> tuple[int, ...]:
        """What tells whether the model's file was written again."""
        if self._path is None:
            return ()
        status = os.stat(self._path)
        return status.st_ino, status.st_size, status.st_mtime_ns

    def _data_files(self) -> set[str]:
        """The names of the files with the model's external data."""
        if not self._has_data or self._path is None:
            return set()
        from gpucomp.frontend.onnx.loader import data_files  # the compiler has imported it

        return data_files(self._path)

    def _digest(self, name: str) -> tuple[str, float]:
        """The digest of a data file, and when it was last written.

        The digest is empty unless it is a regular file in the model's folder, on a path without links.
        """
        if self._path is None or os.path.islink(self._path):
            return "", 0.0
        folder = os.path.realpath(self._path.parent)
        path = os.path.join(folder, name)
        if not path.startswith(folder + os.sep) or os.path.realpath(path) != path:
            return "", 0.0
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return "", 0.0
            digest = known.of_bytes(
                self.folder, DATA, file.fileno(), lambda: hashlib.file_digest(file, "sha256").hexdigest()
            )
            return digest, os.fstat(file.fileno()).st_mtime


def entry_for(model: object, target: object, arguments: Mapping[str, Any], records: object = None) -> ModelCache | None:
    """The place of a call's result; ``None`` if the cache is off, or if the result cannot be kept."""
    settings = config.current()
    plugins = sys.modules.get("gpucomp.plugins")
    if settings.cache is None or settings.debug or settings.dump or settings.verify or (plugins and plugins.loaded()):
        return None
    if not isinstance(target, str):
        return None
    try:
        return ModelCache(settings.cache, model, target, arguments, records)
    except (GpucompError, OSError, TypeError, ValueError, LookupError, MemoryError):
        return None  # the compiler tells what is wrong with the call, if anything is


def _warn(message: str, folder: Path, error: Exception) -> None:
    import logging  # takes longer to import than a model to find

    logging.getLogger(__name__).warning(message, folder, error)


def canonical(value: object) -> object:
    """``value`` as JSON that is equal for equal values. Raises ``TypeError`` for a value of another kind."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return [type(value).__name__, repr(value)]
    if isinstance(value, Mapping):
        return {"mapping": sorted([str(canonical(k)), canonical(v)] for k, v in value.items())}
    if isinstance(value, frozenset | set):
        return {"set": sorted(str(canonical(v)) for v in value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return [type(value).__qualname__, canonical(fields)]
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.hasobject:
            return ["array", list(value.shape), canonical(value.tolist())]
        return ["array", value.dtype.str, list(value.shape), hashlib.sha256(value.tobytes()).hexdigest()]
    if isinstance(value, Sequence):
        return [canonical(v) for v in value]
    raise TypeError(f"no canonical text for {type(value).__name__}")


def _looked_at(model: object, folder: Path) -> tuple[str, bool]:
    """The digest of a model's bytes, and whether it may have external data: every such tensor has the key ``location``."""
    if isinstance(model, str | os.PathLike):
        if not Path(model).is_file():
            raise FileNotFoundError(model)
        with open(model, "rb") as file:
            return _looked_at_file(file, folder)
    if isinstance(model, bytes | bytearray | memoryview):
        return hashlib.sha256(model).hexdigest(), False
    if hasattr(model, "SerializeToString"):
        return hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest(), False
    raise TypeError(f"no bytes of {type(model).__name__}")


def _looked_at_file(file: BinaryIO, folder: Path) -> tuple[str, bool]:
    """``_looked_at`` of a file, which is mapped: the compiler reads it once more, and memory would hold a large model twice."""

    def read() -> str:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return f"{hashlib.sha256(content).hexdigest()} {DATA if content.find(b'location') >= 0 else ''}"

    digest, _, beside = known.of_bytes(folder, MODEL, file.fileno(), read).partition(" ")
    return digest, beside == DATA


def _what_is_in(place: object) -> object:
    """The content of record files: of one, or of those in a folder. Other things are their own content."""
    if (
        not isinstance(place, str | os.PathLike) or place == config.SHIPPED
    ):  # the package's fingerprint has the shipped ones
        return canonical(str(place) if place == config.SHIPPED else place)
    folder = Path(place)
    found = sorted(folder.iterdir()) if folder.is_dir() else [folder]
    return [[path.name, hashlib.sha256(path.read_bytes()).hexdigest()] for path in found if path.is_file()]


def _what_is(target: str) -> object:
    """The device and the compiler that a target's name means here."""
    if target.partition(":")[0] == "cpu":
        return [target, processor.description()]
    from gpucomp import targets

    found = targets.resolve(target)
    return [target, canonical(found), targets.compiler_version(found)]


@cache
def _code() -> str:
    """The fingerprint of this package's files when it was first asked for."""
    return _fingerprint()


def _fingerprint() -> str:
    """Name, size and time of every file of this package. Raises ``LookupError`` if one changed after it was imported."""
    found: list[tuple[str, int, int]] = []
    folders, start = [str(PACKAGE)], len(str(PACKAGE))
    for folder in folders:
        with os.scandir(folder) as inside:
            for one in inside:
                if one.is_dir():
                    folders += [] if one.name == "__pycache__" else [one.path]
                    continue
                status = one.stat()
                if status.st_mtime > _imported:
                    raise LookupError(f"{one.name} was changed")
                found.append((one.path[start:], status.st_size, status.st_mtime_ns))
    return hashlib.sha256(repr(sorted(found)).encode()).hexdigest()


@cache
def _versions() -> tuple[str, ...]:
    """The versions of Python and of the packages that the result depends on. Raises ``LookupError`` if one is unknown."""
    found: dict[str, str] = {}
    for folder in sys.path:
        with contextlib.suppress(OSError):
            for name in os.listdir(folder or "."):
                stem, _, kind = name.rpartition(".")
                if kind in ("dist-info", "egg-info"):
                    package, _, version = stem.partition("-")
                    # older packages, as Debian's, need not have the version in the name
                    found.setdefault(re.sub("[-_.]+", "_", package).lower(), version if kind == "dist-info" else "")
    return platform.python_version(), *(f"{name} {found.get(name) or _asked_version(name)}" for name in CALLED)


def _asked_version(package: str) -> str:
    """The version in a package's metadata. Raises ``LookupError`` if it has none."""
    from importlib import metadata  # takes longer to import than the folders to list

    try:
        version: str | None = metadata.version(package)
    except metadata.PackageNotFoundError:
        version = None
    if not version:
        raise LookupError(f"the version of {package} is unknown")
    return version
