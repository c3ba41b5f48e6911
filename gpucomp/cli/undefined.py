"""Which elements of an operator's result ONNX leaves undefined, because a number becomes an integer that cannot hold it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import ml_dtypes
import numpy as np
import onnx

Operands = Sequence[np.ndarray]


def undefined(node: onnx.NodeProto, tensors: Mapping[str, np.ndarray], tensor: str) -> np.ndarray | None:
    """Where ONNX does not say what ``node`` gives in ``tensor``; ``None`` if it says it everywhere.

    NaN has no integer, nor has an infinity or a number out of range in a cast. The smallest of numbers among which is NaN is
    not defined either.
    """
    find, operands = _CONVERSIONS.get(node.op_type), [tensors.get(name) for name in node.input]
    if find is None or operands[0] is None or operands[0].dtype.kind in "biuOSU":
        return None
    with np.errstate(all="ignore"):
        found = find(operands[0].astype(np.float64), tensors[tensor], list(node.output).index(tensor))
    return found if found.any() else None


def _cast(x: np.ndarray, result: np.ndarray, _: int) -> np.ndarray:
    try:
        limits = ml_dtypes.iinfo(result.dtype)  # type: ignore[no-untyped-call]
    except ValueError:  # floating-point numbers, and bool
        return np.zeros(x.shape, bool)
    whole = np.trunc(x)
    beyond = float(int(limits.max) + 1)  # a power of two: the greatest integer of 64 bits is no float64
    return np.asarray(~((whole >= limits.min) & (whole < beyond)))


def _quantize(x: np.ndarray, result: np.ndarray, _: int) -> np.ndarray:
    return np.asarray(np.isnan(x))  # infinities saturate


def _quantize_dynamically(x: np.ndarray, result: np.ndarray, output: int) -> np.ndarray:
    if np.isnan(x).any():
        return np.ones(result.shape, bool)
    low, high = x.min(initial=0), x.max(initial=0)
    scale = (high - low) / 255
    zero_point = -low / scale if scale else 0.0
    return np.asarray(np.isnan([x / (scale or 1.0) + zero_point, scale, zero_point][output]))


_CONVERSIONS: Mapping[str, Callable[[np.ndarray, np.ndarray, int], np.ndarray]] = {
    "Cast": _cast,
    "CastLike": _cast,
    "QuantizeLinear": _quantize,
    "DynamicQuantizeLinear": _quantize_dynamically,
}
