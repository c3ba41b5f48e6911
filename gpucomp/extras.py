"""The packages that can be missing: what each is for, and the command that installs it.

These are the extras, what the command line needs (``COMMAND_LINE``), and what only the compiler needs (``COMPILER``). The
compiler itself is missing where only the distribution gpucomp-runtime is installed, which needs ``RUNTIME``.

The commands name the packages themselves, with the versions of ``pyproject.toml``, so that they work wherever gpucomp was
installed from. ``tests/test_extras.py`` compares the two.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec

from gpucomp.errors import DeviceError
from gpucomp.lazy_dataclass import dataclass


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
        ("cupy-cuda12x>=14", "nvidia-cuda-nvrtc-cu12>=12.9", "cuda-bindings>=12.8,<13", "nvidia-ml-py>=12"),
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
RUNTIME: Mapping[str, str] = {"numpy": "numpy>=1.26,<2.6", "ml_dtypes": "ml_dtypes>=0.5"}
COMMAND_LINE: Mapping[str, str] = {"click": "click>=8.1", "rich": "rich>=13.9"}
COMPILER: Mapping[str, str] = {"onnx": "onnx>=1.21", "jinja2": "jinja2>=3.1.6", "llvmlite": "llvmlite>=0.50"}


def compiler_is_here() -> bool:
    """Whether the compiler is installed, and not only gpucomp-runtime."""
    return find_spec("gpucomp.compiler") is not None


def not_installed(error: ImportError) -> DeviceError | None:
    """The error (GPC5003) where the compiler, or a package that it or the command line needs, is not installed.

    ``None`` if ``error`` is about anything else.
    """
    name = error.name or ""  # not a module in a package that is there, but of another version
    for requirements, user, rest in (
        (COMPILER, "the compiler", "only a compiled model (.gpuc)"),
        (COMMAND_LINE, "the command line", "gpucomp.load"),
    ):
        if name in requirements:
            told = f"{user} needs it: {_command(requirements.values())}; {rest} runs without"
            return DeviceError(f"{name} is not installed, and {told}", code="GPC5003")
    if name.partition(".")[0] == "gpucomp" and not compiler_is_here():
        return DeviceError(
            "the compiler is not installed, only gpucomp-runtime, which runs compiled models (.gpuc): install the package "
            "gpucomp of the same version, whose wheel make dist builds beside the runtime's",
            code="GPC5003",
        )
    return None


@contextmanager
def needs_compiler() -> Iterator[None]:
    """Raise ``DeviceError`` where the compiler, or a package of ``COMPILER``, is imported and missing."""
    try:
        yield
    except ImportError as error:
        if found := not_installed(error):
            raise found from None
        raise


def install(extra: str) -> str:
    """The command that installs the packages of an extra. It is quoted, so that every shell takes it as it is."""
    return _command(EXTRAS[extra].packages)


def _command(requirements: Iterable[str]) -> str:
    return f"pip install {' '.join(map(shlex.quote, requirements))}"
