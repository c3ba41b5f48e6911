"""onnxruntime's Python interface on gpucomp: a program that was written for onnxruntime runs unchanged.

>>> import gpucomp.ort as ort
>>> session = ort.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
>>> outputs = session.run(None, {"x": x})

For programs that import onnxruntime themselves, before they do: ``gpucomp.ort.install()``.

The interface is that of onnxruntime 1.32. ``gpucomp.ort.options.TABLE`` says what each option does; ``MISSING`` lists what
onnxruntime has and this does not, with the reason: also names of its classes and of ``capi``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import metadata
from typing import Any

from gpucomp.ort import capi
from gpucomp.ort.binding import IOBinding
from gpucomp.ort.capi import onnxruntime_inference_collection, onnxruntime_pybind11_state  # noqa: F401 - capi's attributes
from gpucomp.ort.enums import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    OrtAllocatorType,
    OrtDeviceMemoryType,
    OrtMemType,
    OrtSparseFormat,
)
from gpucomp.ort.missing import MISSING
from gpucomp.ort.model import ModelMetadata, NodeArg
from gpucomp.ort.options import RunOptions, SessionOptions
from gpucomp.ort.providers import get_all_providers, get_available_providers
from gpucomp.ort.session import InferenceSession
from gpucomp.ort.values import OrtDevice, OrtMemoryInfo, OrtValue, SparseTensor, copy_tensors

__version__ = "1.32.0"  # the interface's: programs compare it
version = __version__
package_name = "onnxruntime"
cuda_version = ""
SessionIOBinding = IOBinding
__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtAllocatorType",
    "OrtDevice",
    "OrtDeviceMemoryType",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtSparseFormat",
    "OrtValue",
    "RunOptions",
    "SessionIOBinding",
    "SessionOptions",
    "SparseTensor",
    "capi",
    "copy_tensors",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "install",
    "preload_dlls",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
]


def install() -> None:
    """Let ``import onnxruntime`` give this module, in this process. Raises ``RuntimeError`` if onnxruntime was imported."""
    before = sys.modules.get("onnxruntime")
    if before is not None and before is not sys.modules[__name__]:
        raise RuntimeError("onnxruntime was imported before: call gpucomp.ort.install() first")
    sys.modules["onnxruntime"] = sys.modules[__name__]
    for name in [name for name in sys.modules if name.startswith(f"{__name__}.capi")]:
        sys.modules[f"onnxruntime{name.removeprefix(__name__)}"] = sys.modules[name]


def __getattr__(name: str) -> Any:
    told = f": {MISSING[name]}" if name in MISSING else ""
    raise AttributeError(f"gpucomp.ort has no attribute {name!r}{told}")


def get_device() -> str:
    """``GPU`` if a provider for one is here, else ``CPU``."""
    return "GPU" if "CUDAExecutionProvider" in get_available_providers() else "CPU"


def get_version_string() -> str:
    return __version__


def get_build_info() -> str:
    return f"gpucomp {metadata.version('gpucomp')}, with the interface of onnxruntime {__version__}"


def _nothing(name: str, why: str) -> Callable[..., None]:
    def does_nothing(*given: Any, **named: Any) -> None:
        return None

    does_nothing.__name__ = does_nothing.__qualname__ = name
    does_nothing.__doc__ = f"Without effect: {why}."
    return does_nothing


disable_telemetry_events = _nothing("disable_telemetry_events", "there is no telemetry")
enable_telemetry_events = _nothing("enable_telemetry_events", "there is no telemetry")
preload_dlls = _nothing("preload_dlls", "libraries are loaded when they are needed")
set_default_logger_severity = _nothing("set_default_logger_severity", "there is no log")
set_default_logger_verbosity = _nothing("set_default_logger_verbosity", "there is no log")
set_global_thread_pool_sizes = _nothing("set_global_thread_pool_sizes", "GPUCOMP_THREADS says how many there are")
set_seed = _nothing("set_seed", "a model's random operators have the seeds of the file")
