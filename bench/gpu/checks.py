"""The largest errors that results may have. The tuner has the code that runs a setup so that every fault shows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gpucomp.expr.core import Reduce, walk
from gpucomp.kernel import Attention, Contraction, Kernel, Rowwise, Scan, Scatter, Window

# ||result - float64|| / ||float64||: about four times the error of rounding operands and results
LIMITS = {"fp32": 1e-5, "3xtf32": 1e-5, "tf32": 2e-3, "fp16": 2e-3, "mixed": 2e-3, "bf16": 1.6e-2}
RUNS = 3  # runs of a setup: launched, captured, replayed


def relative_error(actual: Any, expected: Any) -> float:
    """||actual - expected|| / ||expected||, in f64; infinite for another shape or a value that is not finite."""
    a, b = np.asarray(actual).astype(np.float64), np.asarray(expected).astype(np.float64)
    if a.shape != b.shape or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return float("inf")
    return float(np.linalg.norm(a - b)) / (float(np.linalg.norm(b)) or 1.0)


def error_of(actual: Any, wanted: Any) -> float:
    """``relative_error`` of a result; integers must be equal, and expected values that overflow its type must be infinite."""
    found, right = np.asarray(actual), np.asarray(wanted).astype(np.float64)
    if found.shape != right.shape:
        return float("inf")
    with np.errstate(over="ignore"):
        narrow = right.astype(found.dtype)
    if found.dtype.kind in "iub":
        return 0.0 if np.array_equal(found, narrow) else float("inf")
    beyond = np.isinf(narrow) & (narrow == found)
    return relative_error(np.where(beyond, 0, found.astype(np.float64)), np.where(beyond, 0, right))


def terms_of(kernel: Kernel) -> int:
    """The number of terms that are added up for an element."""
    match kernel.body:
        case Contraction(k=axes) | Rowwise(cols=axes) | Attention(cols=axes) | Scatter(updates=axes):
            return max(1, math.prod(v.extent for v in axes))
        case Window(op="sum", window=axes):
            return math.prod(v.extent for v in axes)
        case Scan(axis=axis):
            return axis.extent
    inside = (e for store in kernel.stores for e in walk(store.value) if isinstance(e, Reduce) and e.op == "sum")
    return max((math.prod(v.extent for v in e.axes) for e in inside), default=1)


def cost(kernel: Kernel) -> int:
    """The number of points that the oracle computes."""
    body = kernel.body
    named = (getattr(body, name, ()) for name in ("k", "window", "cols", "depth", "updates"))
    inner = [v for axes in named if isinstance(axes, tuple) for v in axes]
    return math.prod(v.extent for v in {*body.domain, *inner})
