"""Who computes a kernel: gpucomp, and the libraries that it is held against. Each says why it cannot, or is timed.

A call starts where its operands are in the device's memory and ends when the result is there. On a processor, and on OpenCL, it
is timed by the clock of this process, and includes what the library does around its kernels. On CUDA and HIP, graphs of launches
are replayed and timed by the device's events.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

import gpucomp
from gpucomp.cli.compare import onnxruntime_failures, onnxruntime_session, require_onnxruntime
from gpucomp.cli.copies import there
from gpucomp.device.target import Target
from gpucomp.errors import DeviceError, UnsupportedError
from gpucomp.extras import install
from gpucomp.kernel_bench import clblast, torch_kernels
from gpucomp.kernel_bench.models import RESULT, result_type
from gpucomp.kernel_bench.problem import Called, Problem, Ready, Replayed
from gpucomp.kernel_bench.reference import compute
from gpucomp.refusal import Refusal

OURS = "gpucomp"


def _gpucomp(problem: Problem) -> Ready | Refusal:
    how: dict[str, Any] = {} if problem.records is None else {"records": problem.records}
    exe = gpucomp.compile(problem.model, target=problem.target.name, **how)
    if problem.target.kind in ("cuda", "hip"):
        from gpucomp.tuning.devices import open_device

        program = open_device(problem.target).open(exe.plan, exe.sources, exe.binaries, exe.weights)
        feed = problem.inputs
        return Replayed(lambda: program.time_launches(feed, 1)[0], lambda: program.run(feed)[RESULT])
    arrays = there(exe, problem.inputs)
    results = exe.run(arrays, outputs="device")

    def output() -> np.ndarray:
        found = exe.run(problem.inputs)[RESULT]
        return np.asarray(found)

    return Called(partial(exe.run, arrays, outputs=results), output, exe.ceilings)


def _numpy(problem: Problem) -> Ready | Refusal:
    spec, arrays = problem.spec, problem.arrays
    if not problem.on_processor:
        return Refusal("numpy computes on the processor only")
    if spec.dtype != "f32" or spec.kind == "nbits_gemm":
        return Refusal(f"numpy has no fast kernels of {'few bits' if spec.kind == 'nbits_gemm' else spec.dtype}")
    if spec.kind in ("gemm", "batched_gemm") and not (
        spec.values.get("bias") or spec.values.get("act", "none") != "none"
    ):
        a, b = arrays["a"], arrays["b"]
        a = np.swapaxes(a, -1, -2) if spec.values.get("trans_a") else a
        b = np.swapaxes(b, -1, -2) if spec.trans_b else b
        result = a @ b
        return Called(partial(np.matmul, a, b, out=result), lambda: result)
    return Called(partial(compute, spec, arrays), partial(compute, spec, arrays))


def _onnxruntime(problem: Problem) -> Ready | Refusal:
    ort = require_onnxruntime()
    provider = "CPUExecutionProvider" if problem.on_processor else "CUDAExecutionProvider"
    if problem.target.kind == "opencl" and not problem.on_processor:
        return Refusal("onnxruntime has no OpenCL provider")
    if provider not in ort.get_available_providers():
        return Refusal(f"this onnxruntime has no {provider}")
    if problem.spec.dtype == "bf16":
        return Refusal("onnxruntime takes no arrays of bf16 from numpy")
    try:
        session = onnxruntime_session(problem.model, threads=problem.threads, provider=provider)
        place = ("cuda", 0) if problem.target.kind == "cuda" else ("cpu", 0)
        binding, output = session.io_binding(), session.get_outputs()[0]
        held = {name: ort.OrtValue.ortvalue_from_numpy(array, *place) for name, array in problem.inputs.items()}
        for name, value in held.items():
            binding.bind_ortvalue_input(name, value)
        kind = result_type(problem.spec).type
        result = ort.OrtValue.ortvalue_from_shape_and_type(output.shape, kind, *place)
        binding.bind_ortvalue_output(RESULT, result)
        session.run_with_iobinding(binding)
    except onnxruntime_failures() as error:
        return Refusal(f"onnxruntime refuses it: {' '.join(str(error).split())[:160]}")

    def call(held: object = held) -> None:  # the binding does not keep what it is bound to
        session.run_with_iobinding(binding)

    return Called(call, lambda: np.array(result.numpy()))


def _torch(problem: Problem) -> Ready | Refusal:
    if importlib.util.find_spec("torch") is None:
        return Refusal(install("torch"))
    return torch_kernels.prepared(problem)


ENGINES: Mapping[str, Callable[[Problem], Ready | Refusal]] = {
    OURS: _gpucomp,
    "onnxruntime": _onnxruntime,
    "torch": _torch,
    "numpy": _numpy,
    "clblast": clblast.prepared,
}


def prepared(name: str, problem: Problem) -> Ready | Refusal:
    """The engine's kernel, or why it has none."""
    try:
        return ENGINES[name](problem)
    except (DeviceError, UnsupportedError) as error:
        return Refusal(error.message)


def release(name: str) -> str:
    """The version of an engine; empty if it is not installed."""
    if name == OURS:
        return gpucomp.__version__
    try:
        return version("pyclblast" if name == "clblast" else name)
    except PackageNotFoundError:
        return ""


def installed(target: Target) -> list[str]:
    """The peers that are here and compute on ``target``'s device."""
    usual: Sequence[str] = ("onnxruntime", "torch", *(["clblast"] if target.kind == "opencl" else []))
    return [name for name in usual if release(name)]
