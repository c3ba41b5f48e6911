"""The optional packages: what each is for, and the command that installs it.

The commands name the packages themselves, with the versions of ``pyproject.toml``, so that they work wherever gpucomp was
installed from. ``tests/test_extras.py`` compares the two.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass


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
    "torch": Extra("export models from PyTorch", ("torch>=2.9", "onnxscript>=0.5")),
}


def install(extra: str) -> str:
    """The command that installs the packages of an extra. It is quoted, so that every shell takes it as it is."""
    return f"pip install {' '.join(map(shlex.quote, EXTRAS[extra].packages))}"
