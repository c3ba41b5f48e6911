"""onnxruntime's exceptions and types under the path where programs import them from.

What ``gpucomp.ort`` has besides, such as its functions, is here too.
"""

import importlib
from typing import Any

from gpucomp.ort.enums import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    OrtAllocatorType,
    OrtDeviceMemoryType,
    OrtMemType,
    OrtSparseFormat,
)
from gpucomp.ort.exceptions import (
    DeviceReset,
    EngineError,
    EPFail,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    ModelLoadCanceled,
    ModelLoaded,
    ModelRequiresCompilation,
    NoModel,
    NoSuchFile,
    NotFound,
    NotImplemented,
    RuntimeException,
)
from gpucomp.ort.missing import MISSING
from gpucomp.ort.model import ModelMetadata, NodeArg
from gpucomp.ort.options import RunOptions, SessionOptions
from gpucomp.ort.providers import get_all_providers, get_available_providers

__all__ = [
    "DeviceReset",
    "EPFail",
    "EngineError",
    "ExecutionMode",
    "ExecutionOrder",
    "Fail",
    "GraphOptimizationLevel",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "ModelLoadCanceled",
    "ModelLoaded",
    "ModelMetadata",
    "ModelRequiresCompilation",
    "NoModel",
    "NoSuchFile",
    "NodeArg",
    "NotFound",
    "NotImplemented",
    "OrtAllocatorType",
    "OrtDeviceMemoryType",
    "OrtMemType",
    "OrtSparseFormat",
    "RunOptions",
    "RuntimeException",
    "SessionOptions",
    "get_all_providers",
    "get_available_providers",
]


def __getattr__(name: str) -> Any:
    if why := MISSING.get(f"onnxruntime_pybind11_state.{name}"):
        raise AttributeError(f"gpucomp.ort has no {name!r}: {why}")
    if name.startswith("_"):
        raise AttributeError(name)
    return getattr(importlib.import_module("gpucomp.ort"), name)  # imported late: it imports this module
