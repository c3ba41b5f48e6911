"""Tensor data in files beside the model, confined to the model's folder. Written against every trick that got past
onnx's own checks: ``..``, absolute paths, links of both kinds, devices and pipes. No tensor is decoded here.
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
SMALL = 1 << 16  # bytes of a file that is read, not mapped
MAX_DIGITS = 18  # a number of bytes below 10^18; longer texts are not even parsed


class ExternalFiles:
    """The tensors of one model: its data files, each opened once and mapped, and what was decoded. ``folder=None``: no files."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.nbytes = 0  # of the model's tensors, wherever they are stored
        self.arrays: dict[int, tuple[Any, np.ndarray]] = {}  # tensors that were decoded: a loop's body asks each time
        self._maps: dict[str, np.ndarray] = {}

    def once(self, tensor: Any, decode: Callable[[], np.ndarray]) -> np.ndarray:
        """``decode()``, called once for a tensor. The tensor is held so that its id stays its own."""
        if id(tensor) not in self.arrays:
            array = decode()
            self.nbytes += array.nbytes
            self.arrays[id(tensor)] = tensor, array
        return self.arrays[id(tensor)][1]

    def read(self, tensor: onnx.TensorProto, nbytes: int, where: str) -> np.ndarray:
        """The ``nbytes`` bytes of ``tensor``: a read-only u8 view of the file. Raises ``ModelError``."""
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
                f"{where}: bytes {offset} to {offset + length} lie past the end of {quote(location)}, "
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
        descriptor = _open_beneath(self.folder, parts, what)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ModelError(f"{what}: not a regular file", code="GPC3025")
            if status.st_nlink != 1:
                raise ModelError(f"{what}: has {status.st_nlink} hard links, only 1 is allowed", code="GPC3026")
            if status.st_size == 0:
                return np.zeros(0, np.uint8)
            with os.fdopen(os.dup(descriptor), "rb") as file:
                if status.st_size <= SMALL:  # a mapping keeps a descriptor, and a model may have thousands of files
                    return np.frombuffer(file.read(SMALL), np.uint8)
                return np.memmap(file, np.uint8, "r")
        except OSError as error:
            raise ModelError(f"{what}: {os.strerror(error.errno or 0).lower()}", code="GPC3025") from None
        finally:
            os.close(descriptor)


def _open_beneath(folder: Path, parts: list[str], what: str) -> int:
    """Open a file below ``folder`` one path component at a time, following no link and never waiting for a pipe."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for position, part in enumerate(parts):
            last = position == len(parts) - 1
            try:
                inner = os.open(part, flags if last else flags | os.O_DIRECTORY, dir_fd=descriptor)
            finally:
                os.close(descriptor)
            descriptor = inner
    except OSError as error:
        reason = (
            "a symbolic link, or a path through one"
            if error.errno == errno.ELOOP
            else os.strerror(error.errno or 0).lower()
        )
        raise ModelError(f"{what}: {reason}", code="GPC3025") from None
    return descriptor


def _number(text: str, what: str, where: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
        raise ModelError(f"{where}: external-data {what} {quote(text)}: a number of bytes expected", code="GPC3020")
    return int(text)
