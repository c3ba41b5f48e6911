"""Random numbers, drawn on the host in every run. With a seed, every run draws the same numbers.

The generator is numpy's Mersenne Twister (``RandomState``), which ONNX's own tests use too.
"""

from __future__ import annotations

import numpy as np

from gpucomp.ir.types import DType, TensorType
from gpucomp.ops.registry import op


def _generator(seed: int | None) -> np.random.RandomState:
    return np.random.RandomState(None if seed is None else seed % (1 << 32))


def _check(shape: tuple[int, ...], dtype: DType) -> TensorType:
    if not dtype.is_float or dtype.storage_only:
        raise ValueError(f"float elements expected, got {dtype}")
    return TensorType(dtype, shape)


@op("RandomUniform")
def RandomUniform(
    *, shape: tuple[int, ...], low: float, high: float, dtype: DType, seed: int | None, stream: int
) -> TensorType:
    """Numbers of [low, high). ``stream`` differs between nodes without a seed, so that these are never merged."""
    return _check(shape, dtype)


@RandomUniform.define("reference")
def _uniform_reference(
    *, shape: tuple[int, ...], low: float, high: float, dtype: DType, seed: int | None, stream: int
) -> np.ndarray:
    return np.asarray(_generator(seed).uniform(low, high, shape)).astype(dtype.numpy)


@op("RandomNormal")
def RandomNormal(
    *, shape: tuple[int, ...], mean: float, scale: float, dtype: DType, seed: int | None, stream: int
) -> TensorType:
    """Normally distributed numbers. ``stream`` as in ``RandomUniform``."""
    return _check(shape, dtype)


@RandomNormal.define("reference")
def _normal_reference(
    *, shape: tuple[int, ...], mean: float, scale: float, dtype: DType, seed: int | None, stream: int
) -> np.ndarray:
    return np.asarray(_generator(seed).normal(mean, scale, shape)).astype(dtype.numpy)


RANDOM = (RandomUniform, RandomNormal)
