"""Times CLBlast for a contraction on an OpenCL device, if pyclblast is installed.

Only the product of the same m, n and k is timed, without gathering the image of a convolution and without the epilogue, so
CLBlast looks better than it would be for a user.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpucomp.device.target import Target
from gpucomp.kernel import Contraction, Kernel
from gpucomp.refusal import Refusal
from gpucomp.targets import opencl

WARMUPS = 2


def sizes(kernel: Kernel) -> tuple[int, int, int] | Refusal:
    """m, n and k of a product of f32 matrices, or a refusal."""
    body = kernel.body
    if not isinstance(body, Contraction) or body.tail:
        return Refusal("CLBlast has no such routine")
    if math.prod(v.extent for v in body.batch) != 1 or body.acc.dtype.name != "f32":
        return Refusal("only products of two f32 matrices are timed beside CLBlast")
    m, n, k = (math.prod(v.extent for v in axes) for axes in (body.m, body.n, body.k))
    return m, n, k


def clblast_times(kernel: Kernel, target: Target, replays: int) -> dict[str, Any]:
    """Microseconds of a product, from enqueuing it to the end of the queue; or the reason in ``clblast``."""
    if importlib.util.find_spec("pyclblast") is None:
        return {"clblast": "pyclblast is not installed"}
    found = sizes(kernel)
    if isinstance(found, Refusal):
        return {"clblast": found.reason}
    cl, library = opencl.pyopencl(), importlib.import_module("pyclblast")
    arrays = importlib.import_module("pyopencl.array")
    queue = cl.CommandQueue(cl.Context([opencl.device_of(target)]))
    return gemm_times(library, arrays, queue, found, replays)


def gemm_times(library: Any, arrays: Any, queue: Any, shape: Sequence[int], replays: int) -> dict[str, Any]:
    m, n, k = shape
    rng = np.random.default_rng(9)
    a, b = (rng.standard_normal(s, np.float32) for s in ((m, k), (k, n)))
    left, right, result = (arrays.to_device(queue, x) for x in (a, b, np.zeros((m, n), np.float32)))
    samples = []
    for _ in range(WARMUPS + replays):
        begin = time.perf_counter()
        library.gemm(queue, m, n, k, left, right, result, a_ld=k, b_ld=n, c_ld=n)
        queue.finish()
        samples.append(round(1e6 * (time.perf_counter() - begin), 3))
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    error = float(np.linalg.norm(result.get() - wanted) / np.linalg.norm(wanted))
    if not error < 1e-4:
        return {"clblast": f"its answer is wrong by {error:.3g}"}
    samples = samples[WARMUPS:]
    return {"clblast_us": statistics.median(samples), "clblast_samples_us": samples}
