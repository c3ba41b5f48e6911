"""Operators of opsets 1 to 6: broadcasting and sizes are attributes, and training is the default.

Versions that differ from the next one only in defaults, or in attributes without effect on the result
(``consumed_inputs``, ``output_sequence``), use the current translators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx

from gpucomp import ops
from gpucomp.errors import UnsupportedError
from gpucomp.frontend.onnx.ai_onnx.elementwise import cast_to, dropout_by_attribute, greater
from gpucomp.frontend.onnx.ai_onnx.movement import concat_all, pad_attributes, reshape_to, split_attribute, tile
from gpucomp.frontend.onnx.ai_onnx.nn import batch_normalization, gemm
from gpucomp.frontend.onnx.ai_onnx.pooling import average_pool, lp_pool
from gpucomp.frontend.onnx.ai_onnx.recurrent import gru, lstm, rnn
from gpucomp.frontend.onnx.ai_onnx.resize import upsample_attribute
from gpucomp.frontend.onnx.compose import axis_of, int64, reshape, scalar, static
from gpucomp.frontend.onnx.translate import Site, translates
from gpucomp.ir import Value

Binary = Callable[[Value, Value], Value]
BY_ATTRIBUTE = ("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Less", "Greater")  # as numpy since 7


def _fitted(a: Value, b: Value, axis: int | None, broadcast: int) -> Value:
    """``b`` reshaped to broadcast to ``a``. Its axes are the axes of ``a`` from ``axis`` on, or the last ones."""
    if not broadcast:
        if a.shape != b.shape:
            raise ValueError(f"{a.type} and {b.type}: equal shapes expected where broadcast is not 1")
        return b
    if math.prod(b.shape) == 1:
        return reshape(b, ())
    rank = len(a.shape)
    first = rank - len(b.shape) if axis is None else axis_of(axis, rank)
    covered = a.shape[first : first + len(b.shape)]
    if first < 0 or len(covered) != len(b.shape) or any(n not in (1, m) for n, m in zip(b.shape, covered, strict=True)):
        raise ValueError(f"{b.type} does not fit the axes of {a.type} from {first} on")
    return reshape(b, (*b.shape, *(1,) * (rank - first - len(b.shape))))


def _binary(op: Binary) -> Callable[..., Value]:
    def translate(a: Value, b: Value, *, axis: int | None = None, broadcast: int = 0) -> Value:
        return op(a, _fitted(a, b, axis, broadcast))

    return translate


for _name in BY_ATTRIBUTE:
    translates(_name, until=7)(_binary(greater if _name == "Greater" else ops.OPS[_name]))


@translates("PRelu", until=7)
def prelu(x: Value, slope: Value) -> Value:
    """One slope for all elements, or one per channel (axis 1)."""
    if math.prod(slope.shape) == 1:
        return ops.PRelu(x, reshape(slope, ()))
    if len(x.shape) < 2 or slope.shape != x.shape[1:2]:
        raise ValueError(f"one slope, or one for each channel of {x.type}, expected, {slope.type} given")
    return ops.PRelu(x, reshape(slope, (*slope.shape, *(1,) * (len(x.shape) - 2))))


@translates("Gemm", until=7)
def gemm_by_attribute(
    a: Value, b: Value, c: Value, *, alpha: float, beta: float, transA: int, transB: int, broadcast: int
) -> Value:
    product = gemm(a, b, alpha=alpha, beta=beta, transA=transA, transB=transB)
    if not broadcast and c.shape != product.shape:
        raise ValueError(
            f"c is {c.type}, the product is {product.type}: equal shapes expected where broadcast is not 1"
        )
    return gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)


def _infers(is_test: int) -> None:
    if not is_test:
        raise UnsupportedError("is_test=0 trains, which is not supported before opset 12; for inference set is_test=1")


@translates("BatchNormalization", until=7)
def batch_normalization_by_attribute(
    x: Value,
    scale: Value,
    bias: Value,
    mean: Value,
    variance: Value,
    *,
    epsilon: float,
    is_test: int,
    momentum: float,
    spatial: int,
    site: Site,
) -> tuple[Value, ...]:
    _infers(is_test)
    return batch_normalization(x, scale, bias, mean, variance, epsilon=epsilon, spatial=spatial, site=site)


@translates("Dropout", until=7)
def dropout_of_training(x: Value, *, is_test: int, ratio: float, site: Site) -> tuple[Value, Value | None]:
    if ratio:
        _infers(is_test)
    return dropout_by_attribute(x, site=site)


@translates("AveragePool", until=7)
def average_pool_without_pads(
    x: Value,
    *,
    auto_pad: str,
    kernel_shape: tuple[int, ...],
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Value:
    return average_pool(
        x, auto_pad=auto_pad, kernel_shape=kernel_shape, pads=pads, strides=strides, count_include_pad=0
    )


@translates("LpPool", until=2)
def lp_pool_of_a_real_power(
    x: Value,
    *,
    auto_pad: str,
    p: float,
    kernel_shape: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Value:
    if kernel_shape is None:
        raise ValueError("kernel_shape is required")
    return lp_pool(x, auto_pad=auto_pad, kernel_shape=kernel_shape, p=p, pads=pads, strides=strides)


@translates("Cast", until=6)
def cast_by_name(x: Value, *, to: str) -> Value:
    kinds = onnx.TensorProto.DataType
    if to.upper() not in kinds.keys():  # noqa: SIM118 - not a mapping
        raise ValueError(f"to={to[:40]!r}: the name of an element type expected")
    return cast_to(x, to=kinds.Value(to.upper()))


@translates("Concat", until=4)
def concat_along_channels(*parts: Value, axis: int = 1) -> Value:
    return concat_all(*parts, axis=axis)


@translates("Split", until=2)
def split_by_either(
    x: Value, sizes: Value | None = None, *, axis: int = 0, split: tuple[int, ...] | None = None, site: Site
) -> list[Value]:
    if sizes is not None:
        split = tuple(int(size) for size in static(sizes, "sizes").ravel())  # the type of x: floats
    return split_attribute(x, axis=axis, split=split, site=site)


@translates("Pad", until=2)
def pad_by_attribute(x: Value, *, paddings: tuple[int, ...], mode: str, value: float) -> Value:
    return pad_attributes(x, pads=paddings, mode=mode, value=value)


@translates("Reshape", until=5)
def reshape_by_attribute(x: Value, *, shape: tuple[int, ...] = ()) -> Value:
    return reshape_to(x, int64(shape))


@translates("Tile", until=6)
def tile_one_axis(x: Value, tiles: Value, axis: Value) -> Value:
    repeats = np.ones(len(x.shape), np.int64)
    repeats[axis_of(int(scalar(axis, "axis")), len(x.shape))] = scalar(tiles, "tiles")
    return tile(x, int64(repeats.tolist()))


@translates("Upsample", until=7)
def upsample_image(x: Value, *, height_scale: float, width_scale: float, mode: str) -> Value:
    if len(x.shape) != 4:
        raise ValueError(f"[N, C, H, W] expected, {x.type} given")
    return upsample_attribute(x, scales=(1.0, 1.0, height_scale, width_scale), mode=mode)


def _sequence(translator: Callable[..., Any]) -> Callable[..., Sequence[Value]]:
    def translate(*operands: Value | None, output_sequence: int = 0, **attributes: Any) -> Sequence[Value]:
        made: Sequence[Value] = translator(*operands, **attributes)
        return made

    return translate


for _name, _translator in (("RNN", rnn), ("GRU", gru), ("LSTM", lstm)):
    translates(_name, until=7)(_sequence(_translator))
