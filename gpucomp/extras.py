"""The packages that can be missing: what each is for, and the command that installs it.

These are the extras, and what only the compiler needs: a program that runs compiled models can do without (``RUNTIME``).

The commands name the packages themselves, with the versions of ``pyproject.toml``, so that they work wherever gpucomp was
installed from. ``tests/test_extras.py`` compares the two.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from gpucomp.errors import DeviceError


@dataclass(frozen=True)
class Extra:
    """An extra of ``pyproject.toml``: what its packages are needed for, and their requirements."""

    purpose: str
    packages: tuple[str, ...]


EXTRAS: Mapping[str, Extra] = {
    "nvrtc": Extra("compile for CUDA, without a GPU", ("nvidia-cuda-nvrtc>=13,<14", "nvidia-cuda-nvdisasm>=13,<14")),
    "cuda13": Extra(
        "run on NVIDIA GPUs, with a driver for CUDA 13",
        ("cupy-cuda13x>=14", "nvidia-cuda-nvrtc>=13,<14", "cuda-bindings>=13,<14", "nvidia-ml-py>=13"),
    ),
    "cuda12": Extra(
        "run on NVIDIA GPUs, with a driver for CUDA 12",
        ("cupy-cuda12x>=14", "nvidia-cuda-nvrtc-cu12>=12.8", "cuda-bindings>=12.8,<13", "nvidia-ml-py>=12"),
    ),
    "opencl": Extra("run on OpenCL devices", ("pyopencl>=2025.1",)),
    "pocl": Extra("an OpenCL device on the CPU", ("pyopencl[pocl]>=2025.1",)),
    "tune": Extra("tune, replay", ("optuna>=5", "cmaes>=0.13")),
    "dist": Extra("tune --fleet, worker", ("distributed>=2026.1",)),
    "image": Extra("photos as inputs", ("pillow>=11",)),
    "ort": Extra("compare, run --compare onnxruntime", ("onnxruntime>=1.22",)),
    "serve": Extra("serve models over HTTP", ("starlette>=1.3", "uvicorn>=0.50,<1", "prometheus-client>=0.26")),
    "torch": Extra("torch.compile, and models of PyTorch", ("torch>=2.9", "onnxscript>=0.5")),
    "keras": Extra("models of Keras", ("keras>=3.12,<4", "torch>=2.9", "onnxscript>=0.5")),
    "tensorflow": Extra("models of TensorFlow and TensorFlow Lite", ("tf2onnx>=1.17,<2", "tensorflow>=2.16")),
}


# by the modules that are imported
RUNTIME: Mapping[str, str] = {
    "numpy": "numpy>=1.26,<2.6",
    "ml_dtypes": "ml_dtypes>=0.5",
    "click": "click>=8.1",
    "rich": "rich>=13.9",
}
COMPILER: Mapping[str, str] = {"onnx": "onnx>=1.21", "jinja2": "jinja2>=3.1.6", "llvmlite": "llvmlite>=0.50"}


def not_installed(error: ModuleNotFoundError) -> DeviceError | None:
    """The error for a package of ``COMPILER`` that is missing; ``None`` if another module is."""
    name = error.name or ""  # not a module in a package that is there, but of another version
    if name not in COMPILER:
        return None
    command = f"pip install {' '.join(map(shlex.quote, COMPILER.values()))}"
    return DeviceError(
        f"{name} is not installed, and the compiler needs it: {command}; only a compiled model (.gpuc) runs without",
        code="GPC5003",
    )


@contextmanager
def needs_compiler() -> Iterator[None]:
    """Raise ``DeviceError`` where a package of ``COMPILER`` is imported and missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if found := not_installed(error):
            raise found from None
        raise


def install(extra: str) -> str:
    """The command that installs the packages of an extra. It is quoted, so that every shell takes it as it is."""
    return f"pip install {' '.join(map(shlex.quote, EXTRAS[extra].packages))}"
