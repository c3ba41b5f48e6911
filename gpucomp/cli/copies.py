"""``bench --copies``: what one run copies from and to the host and on the device, as counted where the copies are made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpucomp.errors import DeviceError, UsageError, several
from gpucomp.runtime.copies import WAYS, Copies, counted
from gpucomp.runtime.executable import Executable

HOST, DEVICE = "from numpy arrays to numpy arrays", "with inputs and results on the device"
Found = Mapping[str, Copies | str]


def measured(exe: Executable, inputs: Mapping[str, np.ndarray]) -> Found:
    """The copies of one run on ``inputs``, and of one on arrays in the device's memory; or why there is no such run."""
    exe.run(inputs)  # the first one may be another than later ones
    with counted() as host:
        exe.run(inputs)
    try:
        arrays = there(exe, inputs)
        exe.run(arrays, outputs="device")
        with counted() as device:
            exe.run(arrays, outputs="device")
    except (DeviceError, UsageError) as error:  # no such arrays, or a part of the model is on the host
        return {HOST: host, DEVICE: error.message}
    return {HOST: host, DEVICE: device}


def there(exe: Executable, inputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The inputs in the device's memory, where kernels read them; texts stay on the host."""
    arrays: dict[str, Any] = {}
    with exe._program() as program:
        for name, array in inputs.items():
            if array.dtype.kind in "OU":
                arrays[name] = array
                continue
            arrays[name] = array_there = program.zeros(array.shape, array.dtype)
            if isinstance(array_there, np.ndarray):
                array_there[...] = array
            elif array.size:
                array_there.set(np.ascontiguousarray(array))
    return arrays


def lines(found: Found) -> list[str]:
    """A line for each of the two runs."""
    return [
        f"Copies of a run {which}: "
        + (f"none counted: {one}" if isinstance(one, str) else ", ".join(_told(one, way) for way in WAYS))
        for which, one in found.items()
    ]


def _told(copies: Copies, way: str) -> str:
    """``280 bytes host to device (2 times)``."""
    if not (count := copies.counts[way]):
        return f"nothing {way}"
    return f"{several(copies.nbytes[way], 'byte')} {way} ({several(count, 'time')})"


def as_json(found: Found) -> dict[str, object]:
    """By run and way; ``refused`` if there is no such run."""
    names = {HOST: "numpy", DEVICE: "device"}
    return {
        names[which]: {"refused": one}
        if isinstance(one, str)
        else {way.replace(" ", "_"): {"copies": one.counts[way], "bytes": one.nbytes[way]} for way in WAYS}
        for which, one in found.items()
    }
