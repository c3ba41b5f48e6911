"""A deep-learning inference compiler: ONNX in, kernels for CUDA, OpenCL and the CPU out.

>>> exe = gpucomp.compile("model.onnx", target="cpu")
>>> outputs = exe.run({"x": x})

Names are imported on first use, so ``import gpucomp`` is fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpucomp.compiling import compile
    from gpucomp.device.target import Target
    from gpucomp.errors import (
        AccuracyError,
        ArtifactError,
        DeviceError,
        GpucompError,
        InputError,
        ModelError,
        RunStoppedError,
        UnsupportedError,
        UsageError,
    )
    from gpucomp.ir.dim import Dim
    from gpucomp.loading import load
    from gpucomp.plugins import plugin
    from gpucomp.runtime.context import Context
    from gpucomp.runtime.executable import Executable
    from gpucomp.tuning.tuner import TuneOptions, tune

__version__ = "0.1.0"

__all__ = [
    "AccuracyError",
    "ArtifactError",
    "Context",
    "DeviceError",
    "Dim",
    "Executable",
    "GpucompError",
    "InputError",
    "ModelError",
    "RunStoppedError",
    "Target",
    "TuneOptions",
    "UnsupportedError",
    "UsageError",
    "compile",
    "load",
    "plugin",
    "tune",
]

_HOMES = {
    "Context": "gpucomp.runtime.context",
    "Dim": "gpucomp.ir.dim",
    "Executable": "gpucomp.runtime.executable",
    "Target": "gpucomp.device.target",
    "TuneOptions": "gpucomp.tuning.tuner",
    "compile": "gpucomp.compiling",
    "load": "gpucomp.loading",
    "plugin": "gpucomp.plugins",
    "tune": "gpucomp.tuning.tuner",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'gpucomp' has no attribute {name!r}")
    from gpucomp.extras import needs_compiler

    with needs_compiler():
        value = getattr(importlib.import_module(_HOMES.get(name, "gpucomp.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
