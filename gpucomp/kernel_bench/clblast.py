"""Products of f32 by CLBlast, through pyclblast, on the OpenCL device of a target."""

from __future__ import annotations

import importlib
import importlib.util
from functools import partial
from typing import Any

import numpy as np

from gpucomp.kernel_bench.problem import Called, Problem, Ready
from gpucomp.kernel_bench.specs import Spec
from gpucomp.refusal import Refusal


def prepared(problem: Problem) -> Ready | Refusal:
    """The routine for a product, which takes both operands as they are, or why there is none."""
    spec = problem.spec
    if problem.target.kind != "opencl":
        return Refusal("CLBlast computes on OpenCL devices only")
    if spec.kind not in ("gemm", "batched_gemm") or spec.dtype != "f32":
        return Refusal("CLBlast has products of f32 only")
    if spec.kind == "gemm" and (spec.bias or spec.act != "none"):
        return Refusal("CLBlast adds no bias and has no act")
    if importlib.util.find_spec("pyclblast") is None:
        return Refusal("pip install pyclblast, which needs the library CLBlast")
    from gpucomp.targets import opencl

    cl, library = opencl.pyopencl(), importlib.import_module("pyclblast")
    arrays = importlib.import_module("pyopencl.array")
    queue = cl.CommandQueue(cl.Context([opencl.device_of(problem.target)]))
    # routines want matrices: those of a batch are below each other
    a, b = (
        arrays.to_device(queue, array.reshape(-1, array.shape[-1]))
        for array in (problem.arrays["a"], problem.arrays["b"])
    )
    result = arrays.zeros(queue, (spec.values.get("batch", 1) * spec.m, spec.n), np.float32)
    routine = _routine(library, spec, queue, a, b, result)

    def call() -> None:
        routine()
        queue.finish()

    def output() -> np.ndarray:
        call()
        found: np.ndarray = result.get()
        return found.reshape(-1, spec.m, spec.n) if spec.kind == "batched_gemm" else found

    return Called(call, output)


def _routine(library: Any, spec: Spec, queue: Any, a: Any, b: Any, result: Any) -> Any:
    """The call that anyone would make: of one row a product of a matrix and a vector."""
    m, n, k = spec.m, spec.n, spec.k
    how = {"a_transp": spec.values.get("trans_a", False), "b_transp": spec.trans_b}
    leading = {"a_ld": a.shape[1], "b_ld": b.shape[1], "c_ld": n}
    if spec.kind == "batched_gemm":
        apart = {"a_stride": m * k, "b_stride": k * n, "c_stride": m * n}
        return partial(library.gemmStridedBatched, queue, m, n, k, spec.batch, a, b, result, **leading, **apart, **how)
    if m == 1:
        rows, columns = b.shape
        vector, to = a.reshape(k), result.reshape(n)
        return partial(library.gemv, queue, rows, columns, b, vector, to, a_ld=columns, a_transp=not spec.trans_b)
    return partial(library.gemm, queue, m, n, k, a, b, result, **leading, **how)
