"""Translators of operators that draw random numbers. The host draws the numbers; kernels compute with them."""

from __future__ import annotations

from itertools import count
from typing import Any

from gpucomp import ops
from gpucomp.errors import UnsupportedError
from gpucomp.frontend.onnx.compose import cast, checked_size, like
from gpucomp.frontend.onnx.tensors import element_type
from gpucomp.frontend.onnx.translate import translates
from gpucomp.ir import DType, Op, Value
from gpucomp.ir.types import F32, F64

_streams = count(1)


def _drawn(op: Op, shape: tuple[int, ...], dtype: DType, seed: float | None, **parameters: Any) -> Value:
    """Random numbers, drawn in f32 for 16-bit floats. ``seed`` is an integer stored as a float."""
    if not dtype.is_float or dtype.storage_only:
        raise ValueError(f"float elements expected, got {dtype}")
    if any(d < 0 for d in shape):
        raise ValueError(f"the shape {list(shape)} has a negative dimension")
    stream = next(_streams) if seed is None else 0
    whole = None if seed is None else int(seed)
    drawn = op(shape=tuple(shape), dtype=F32 if dtype.bits < 32 else dtype, seed=whole, stream=stream, **parameters)
    return cast(drawn, dtype)


@translates("RandomUniform")
def random_uniform(
    *, shape: tuple[int, ...], dtype: int = 1, low: float = 0.0, high: float = 1.0, seed: float | None = None
) -> Value:
    return _drawn(ops.RandomUniform, shape, element_type(dtype, "dtype"), seed, low=low, high=high)


@translates("RandomNormal")
def random_normal(
    *, shape: tuple[int, ...], dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> Value:
    return _drawn(ops.RandomNormal, shape, element_type(dtype, "dtype"), seed, mean=mean, scale=scale)


def _type_like(x: Value, dtype: int | None) -> DType:
    return x.type.dtype if dtype is None else element_type(dtype, "dtype")


@translates("RandomUniformLike")
def random_uniform_like(
    x: Value, *, dtype: int | None = None, low: float = 0.0, high: float = 1.0, seed: float | None = None
) -> Value:
    return _drawn(ops.RandomUniform, x.shape, _type_like(x, dtype), seed, low=low, high=high)


@translates("RandomNormalLike")
def random_normal_like(
    x: Value, *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> Value:
    return _drawn(ops.RandomNormal, x.shape, _type_like(x, dtype), seed, mean=mean, scale=scale)


@translates("Multinomial", since=7)
def multinomial(x: Value, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None) -> Value:
    """Draws classes from [batch, classes] logarithms of weights: argmax(logarithm + Gumbel noise), the Gumbel-max trick."""
    if len(x.shape) != 2 or sample_size < 1:
        raise ValueError(f"[batch, classes] and a sample_size of at least 1 expected, got {x.type}, {sample_size}")
    if not x.shape[1]:
        raise ValueError(f"at least one class expected, {x.type} given")
    checked_size(x.type.size * sample_size, 4)
    shape = (x.shape[0], sample_size, x.shape[1])
    uniform = _drawn(ops.RandomUniform, shape, F64, seed, low=1e-12, high=1.0)  # in f32 some would round to 1
    noise = cast(ops.Neg(ops.Log(ops.Neg(ops.Log(uniform)))), F32)
    scores = ops.Add(cast(ops.Reshape(x, shape=(x.shape[0], 1, x.shape[1])), F32), noise)
    return cast(ops.ArgMax(scores, axis=2, keepdims=False, select_last_index=False), element_type(dtype, "dtype"))


def dropped(x: Value, rate: float, seed: Any) -> tuple[Value, Value]:
    """``x`` with each element zeroed with probability ``rate`` and the others scaled up, and a mask of the kept elements."""
    if not 0 <= rate < 1:
        raise UnsupportedError(f"a ratio of {rate} is not supported: from 0 to below 1 expected")
    shares = _drawn(ops.RandomUniform, x.shape, F64, seed, low=0.0, high=1.0)
    kept = ops.LessOrEqual(like(shares, rate), shares)
    scaled = ops.Mul(x, like(x, 1 / (1 - rate)))
    return ops.Where(kept, scaled, like(x, 0)), kept
