"""Tensor data in files beside the model. Only files in the model's folder are read. Refused are all tricks that got past
onnx's own checks: ``..``, absolute paths, symbolic and hard links, devices and pipes. No tensor is decoded here.

Only the links of a Hugging Face cache are followed. There, ``snapshots/REVISION/model.onnx`` and its data files are
links to files in ``blobs`` of the same repository (huggingface_hub's documentation, "Understand caching").
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from gpucomp.errors import ModelError, quote

KEYS = {"location", "offset", "length", "checksum"}
SMALL = 1 << 16  # bytes: files up to this size are read, larger ones are mapped
MAX_DIGITS = 18  # most digits of an offset or length; longer texts are not parsed


class ExternalFiles:
    """The data files of one model, each opened once and mapped, and its decoded tensors. ``folder=None``: there are no files.

    ``blobs`` is the only folder that links in ``folder`` may lead to. Without it, no link is followed.
    """

    def __init__(self, folder: Path | None, blobs: Path | None = None) -> None:
        self.folder = folder
        self.blobs = blobs
        self.nbytes = 0  # bytes of the model's tensors as stored, in the model or in files
        self.made = 0  # bytes of sparse tensors after conversion to dense ones
        self.arrays: dict[int, tuple[Any, np.ndarray]] = {}  # decoded tensors: loops read them many times
        self._maps: dict[str, np.ndarray] = {}

    def once(self, tensor: Any, decode: Callable[[], np.ndarray], stored: Callable[[], int]) -> np.ndarray:
        """``decode()``, called once per tensor. ``stored()`` is its size in the model. Keeps ``tensor`` alive for its id."""
        if id(tensor) not in self.arrays:
            array = decode()
            self.nbytes += stored()
            self.arrays[id(tensor)] = tensor, array
        return self.arrays[id(tensor)][1]

    def read(self, tensor: onnx.TensorProto, nbytes: int, where: str) -> np.ndarray:
        """The ``nbytes`` bytes of ``tensor``, as a read-only u8 view of the file. Raises ``ModelError``."""
        keys: dict[str, str] = {}
        for entry in tensor.external_data:
            if entry.key not in KEYS or entry.key in keys:
                raise ModelError(f"{where}: unknown or repeated external-data key {quote(entry.key)}", code="GPC3020")
            keys[entry.key] = entry.value
        location = keys.get("location", "")
        offset = _number(keys.get("offset", "0"), "offset", where)
        length = _number(keys["length"], "length", where) if "length" in keys else nbytes
        if length != nbytes:
            raise ModelError(
                f"{where}: external data of {length} bytes, its type and shape need {nbytes}", code="GPC3021"
            )
        data = self._map(location, where)
        if offset + length > data.size:
            raise ModelError(
                f"{where}: bytes {offset} to {offset + length} are past the end of {quote(location)}, "
                f"which has {data.size} bytes",
                code="GPC3022",
            )
        return data[offset : offset + length]

    def _map(self, location: str, where: str) -> np.ndarray:
        if location not in self._maps:
            self._maps[location] = self._open(location, where)
        return self._maps[location]

    def _open(self, location: str, where: str) -> np.ndarray:
        what = f"{where}: external data file {quote(location)}"
        if self.folder is None:
            raise ModelError(f"{what}: the model was not read from a file, so it has no folder", code="GPC3023")
        parts = location.split("/")
        if (
            not location
            or os.path.isabs(location)
            or any(c in location for c in "\0\\:")
            or any(part in ("", ".", "..") for part in parts)
        ):
            raise ModelError(f"{what}: a plain relative path inside the model's folder expected", code="GPC3024")
        descriptor = _open_beneath(self.folder, parts, self.blobs, what)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ModelError(f"{what}: not a regular file", code="GPC3025")
            if status.st_nlink != 1:
                raise ModelError(f"{what}: has {status.st_nlink} hard links, only 1 is allowed", code="GPC3026")
            if status.st_size == 0:
                return np.zeros(0, np.uint8)
            with os.fdopen(os.dup(descriptor), "rb") as file:
                if status.st_size <= SMALL:  # each mapping keeps a descriptor, and a model can have thousands of files
                    return np.frombuffer(file.read(SMALL), np.uint8)
                return np.memmap(file, np.uint8, "r")
        except OSError as error:
            raise ModelError(f"{what}: {os.strerror(error.errno or 0).lower()}", code="GPC3025") from None
        finally:
            os.close(descriptor)


def beside(model: Path) -> ExternalFiles:
    """The data files that the model at this path may have: the files of its folder.

    If the model is a link, this is the folder of the file that it leads to, except in a Hugging Face cache. There,
    ``REPO/snapshots/REVISION/.../model.onnx`` is a link into ``REPO/blobs``. Its data files are in the folder of the
    link, and may be links to files in the same ``blobs``.
    """
    folder = Path(os.path.realpath(model.parent))
    try:
        target = Path(os.path.normpath(folder / os.readlink(folder / model.name)))
    except (OSError, ValueError):
        return ExternalFiles(folder)  # not a link
    blobs = target.parent
    if blobs.name == "blobs" and not target.is_symlink() and blobs.parent / "snapshots" in folder.parents:
        return ExternalFiles(folder, blobs)
    return ExternalFiles(Path(os.path.realpath(model)).parent)


_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = _READ | os.O_DIRECTORY


def _open_beneath(folder: Path, parts: list[str], blobs: Path | None, what: str) -> int:
    """Open a file below ``folder`` one path component at a time, without waiting for pipes.

    A link is followed only if it is the file itself and leads to a file in ``blobs``.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for part in parts[:-1]:
            descriptor = _step(descriptor, part, _FOLDER)
        blob = _blob(descriptor, folder.joinpath(*parts), blobs) if blobs is not None else None
        if blob is None:
            return _step(descriptor, parts[-1], _READ)
        os.close(descriptor)
        return _step(os.open(str(blobs), _FOLDER), blob, _READ)
    except OSError as error:
        reason = (
            "a symbolic link, or a path through one"
            if error.errno == errno.ELOOP
            else os.strerror(error.errno or 0).lower()
        )
        raise ModelError(f"{what}: {reason}", code="GPC3025") from None


def _step(folder: int, name: str, flags: int) -> int:
    """Open ``name`` in the open ``folder``, and close ``folder``."""
    try:
        return os.open(name, flags, dir_fd=folder)
    finally:
        os.close(folder)


def _blob(folder: int, path: Path, blobs: Path) -> str | None:
    """The file in ``blobs`` that the link ``path``, in the open ``folder``, leads to directly; ``None`` if there is none."""
    try:
        target = Path(os.path.normpath(path.parent / os.readlink(path.name, dir_fd=folder)))
    except OSError:
        return None
    return target.name if target.parent == blobs else None


def _number(text: str, what: str, where: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
        raise ModelError(f"{where}: external-data {what} {quote(text)}: a number of bytes expected", code="GPC3020")
    return int(text)
