"""Another program's answer to the same inputs, and how far ours is from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gpucomp.errors import AccuracyError, DeviceError, UsageError, quote


def relative_error(actual: np.ndarray, expected: np.ndarray) -> float:
    """``||actual - expected|| / ||expected||`` in f64; infinite for other shapes, or NaN and inf in other places."""
    a, b = actual.astype(np.float64), expected.astype(np.float64)
    if a.shape != b.shape:
        return float("inf")
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(a[finite]).all():
        return float("inf")
    distance, norm = float(np.linalg.norm(a[finite] - b[finite])), float(np.linalg.norm(b[finite]))
    return distance / norm if norm else distance


def onnxruntime_outputs(model: Path, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What onnxruntime's CPU provider answers. Raises ``DeviceError`` where it is missing or cannot run the model."""
    try:
        import onnxruntime
        from onnxruntime.capi import onnxruntime_pybind11_state as states
    except ImportError:
        raise DeviceError("onnxruntime is not installed: pip install 'gpucomp[ort]'", code="GPC5003") from None
    failures = tuple(kind for kind in vars(states).values() if isinstance(kind, type) and issubclass(kind, Exception))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        answers = session.run(None, dict(inputs))
    except failures as error:
        raise DeviceError(f"onnxruntime cannot run {quote(model)}: {error}", code="GPC5004") from None
    return {output.name: answer for output, answer in zip(session.get_outputs(), answers, strict=True)}


def compare(actual: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The relative error of every output. Raises ``UsageError`` when the two have other outputs."""
    if set(actual) != set(expected):
        raise UsageError(
            f"outputs {sorted(map(quote, actual))} cannot be compared with {sorted(map(quote, expected))}",
            code="GPC2006",
        )
    return {name: relative_error(actual[name], expected[name]) for name in actual}


def require(errors: Mapping[str, float], tolerance: float, reference: str) -> None:
    """Raise ``AccuracyError`` for the worst output if it is further off than ``tolerance``."""
    wrong = {name: error for name, error in errors.items() if not error <= tolerance}  # so is NaN
    if wrong:
        worst = max(wrong, key=lambda name: float("inf") if math.isnan(wrong[name]) else wrong[name])
        raise AccuracyError(
            f"output {quote(worst)}: relative L2 error {errors[worst]:.3e} against {reference} is above {tolerance:g}"
            f" ({len(wrong)} of {len(errors)} outputs are)",
            code="GPC6001",
        )
