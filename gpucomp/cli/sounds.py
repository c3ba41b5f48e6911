"""Reads recordings, .wav files of PCM samples, as inputs. Nothing is resampled: a model expects one sampling rate."""

from __future__ import annotations

import wave
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpucomp.errors import InputError, UsageError, quote
from gpucomp.ir.dim import Dim
from gpucomp.ir.types import I16
from gpucomp.runtime.inputs import TensorSpec

SOUNDS = (".wav",)
STEREO = 2
_WIDTHS: dict[int, np.dtype[Any]] = {1: np.dtype("u1"), 2: np.dtype("<i2"), 4: np.dtype("<i4")}  # bytes of a sample


def samples(path: Path) -> np.ndarray:
    """The samples [time, channels] of a .wav file. Raises ``ValueError`` or ``OSError`` if it is none."""
    try:
        with wave.open(str(path), "rb") as file:
            width, channels = file.getsampwidth(), file.getnchannels()
            most = path.stat().st_size // (width * channels)  # the header may promise gigabytes
            data = file.readframes(min(file.getnframes(), most))
    except wave.Error as error:
        raise ValueError(f"{error}; PCM samples of 8, 16 or 32 bits expected") from None
    except EOFError:
        raise ValueError("it ends within its header") from None
    if width not in _WIDTHS:
        raise ValueError(f"its samples have {8 * width} bits; 8, 16 or 32 expected")
    whole = len(data) // (width * channels) * channels
    return np.frombuffer(data, _WIDTHS[width], whole).reshape(-1, channels)


def sound(path: Path, spec: TensorSpec) -> np.ndarray:
    """A recording as the input ``spec``: floats from -1 to 1, or 16-bit integers as they are in the file.

    All axes of the input but the one of time are 1 long; one may be 2 long, for left and right. A mono recording is then
    both, and a stereo recording for an input without such an axis is averaged.
    """
    places = axes(spec.shape)
    if places is None:
        raise UsageError(
            f"input {quote(spec.name)} is {spec.type}; for a recording one axis of time expected, and at most one more: of "
            "length 2, for stereo",
            code="GPC2003",
        )
    time, channel = places
    found = _converted(samples(path), spec)
    if channel is None:
        found = found.mean(axis=1, keepdims=True).astype(found.dtype) if found.shape[1] > 1 else found
    elif found.shape[1] == 1:
        found = np.repeat(found, STEREO, axis=1)
    elif found.shape[1] != STEREO:
        raise UsageError(f"{quote(path)} has {found.shape[1]} channels; 1 or 2 expected", code="GPC2003")
    length = spec.shape[time]
    if not isinstance(length, Dim) and length != len(found):
        raise InputError(
            f"{quote(path)} has {len(found)} samples, input {quote(spec.name)} takes {length}: cut or pad the recording, or "
            "compile the model for its length",
            code="GPC2103",
        )
    turned = found if channel is None or time < channel else found.T
    return turned.reshape(sized(spec.shape, places, len(found)))


def axes(shape: Sequence[Any]) -> tuple[int, int | None] | None:
    """The axes of time and of channels, or ``None`` if the input is no sound. An open size is ``None`` or a ``Dim``."""
    long = [axis for axis, size in enumerate(shape) if size != 1]
    pairs = [axis for axis in long if shape[axis] == STEREO]
    channel = pairs[0] if len(pairs) == 1 and len(long) > 1 else None
    times = [axis for axis in long if axis != channel]
    if not times or not all(_may_be_one(shape[axis]) for axis in times[:-1]):
        return None
    return times[-1], channel


def sized(shape: Sequence[Any], places: tuple[int, int | None], length: int) -> tuple[int, ...]:
    """The shape of a recording of ``length`` samples."""
    time, channel = places
    return tuple(length if axis == time else STEREO if axis == channel else 1 for axis in range(len(shape)))


def _may_be_one(size: Any) -> bool:
    return size is None or (isinstance(size, Dim) and 1 in size)


def _converted(found: np.ndarray, spec: TensorSpec) -> np.ndarray:
    if spec.type.dtype is I16 and found.dtype == np.int16:
        return found
    if not spec.type.dtype.is_float:
        raise UsageError(
            f"input {quote(spec.name)} is {spec.type}; for a recording of {8 * found.itemsize} bits a type of floating-point "
            f"numbers expected{', or i16' if found.itemsize == 2 else ''}",
            code="GPC2003",
        )
    half = np.float64(1 << (8 * found.itemsize - 1))
    centred = found - half if found.dtype.kind == "u" else found
    return (centred / half).astype(spec.type.dtype.numpy)
