"""Experimental operators of ONNX's first opsets, which were removed and have no schema in today's onnx.

Converters of that time wrote them: those of Core ML and Caffe2 in networks for style transfer and detection, torch up
to 1.1 ConstantFill. onnxruntime runs most of them.
"""

from __future__ import annotations

import numpy as np
import onnx

from gpucomp import ops
from gpucomp.errors import quote
from gpucomp.frontend.onnx.compose import cast, channels, expand, ints, like, mean, part, scalar_of
from gpucomp.frontend.onnx.tensors import element_type
from gpucomp.frontend.onnx.translate import Site, translates
from gpucomp.ir import Value, constant
from gpucomp.ir.types import F32

SMALLEST_DEVIATION = 1e-9  # added to a standard deviation


@translates("Affine")
def affine(x: Value, *, alpha: float = 1.0, beta: float = 0.0) -> Value:
    return ops.Add(ops.Mul(x, like(x, alpha)), like(x, beta))


@translates("Scale")
def scale(x: Value, *, scale: float = 1.0) -> Value:
    return ops.Mul(x, like(x, scale))


@translates("ScaledTanh")
def scaled_tanh(x: Value, *, alpha: float, beta: float) -> Value:
    return ops.Mul(ops.Tanh(ops.Mul(x, like(x, beta))), like(x, alpha))


@translates("ParametricSoftplus")
def parametric_softplus(x: Value, *, alpha: float, beta: float) -> Value:
    return ops.Mul(ops.Softplus(ops.Mul(x, like(x, beta))), like(x, alpha))


@translates("ImageScaler")
def image_scaler(x: Value, *, bias: tuple[float, ...], scale: float = 1.0) -> Value:
    """``x`` [N, C, H, W] times ``scale``, plus one bias per channel."""
    if len(x.shape) != 4 or len(bias) != x.shape[1]:
        raise ValueError(f"[N, {len(bias)}, H, W] expected, as there are as many biases, {x.type} given")
    return ops.Add(ops.Mul(x, like(x, scale)), channels(constant(np.array(bias).astype(x.type.dtype.numpy)), 4))


@translates("Crop")
def crop(x: Value, *, border: tuple[int, ...], scale: tuple[int, ...] = ()) -> Value:
    """``x`` [N, C, H, W] without ``border`` (left, top, right, bottom); with ``scale``, height and width are given."""
    if len(x.shape) != 4 or len(border) != 4 or len(scale) not in (0, 2) or min((*border, *scale)) < 0:
        raise ValueError(f"[N, C, H, W], 4 borders and 0 or 2 sizes expected, {x.type}, {border} and {scale} given")
    left, top, right, bottom = border
    height, width = scale or (x.shape[2] - top - bottom, x.shape[3] - left - right)
    if not 0 <= height <= x.shape[2] - top or not 0 <= width <= x.shape[3] - left:
        raise ValueError(f"{height} x {width} pixels from {top}, {left} on are not in {x.type}")
    return part(part(x, 2, top, height), 3, left, width)


@translates("ConstantFill")
def constant_fill(
    x: Value | None = None,
    *,
    dtype: int = onnx.TensorProto.FLOAT,
    extra_shape: tuple[int, ...] = (),
    input_as_shape: int = 0,
    shape: tuple[int, ...] | None = None,
    value: float = 0.0,
    site: Site,
) -> Value:
    """``value`` in the shape ``shape``, or in the shape of ``x`` or given by its elements, extended by ``extra_shape``."""
    if (x is None) == (shape is None) or (input_as_shape and x is None):
        raise ValueError("an input or a shape expected")
    own = shape if x is None else ints(x, "the input that is a shape") if input_as_shape else x.shape
    sizes = (*(own or ()), *(() if x is None else extra_shape))
    if any(size < 0 for size in sizes):
        raise ValueError(f"a negative size in {sizes}")
    return expand(scalar_of(element_type(dtype, f"dtype of {quote(site.name)}"), value), sizes)


@translates("MeanVarianceNormalization", until=9)
def mean_variance_normalization(x: Value, *, across_channels: int = 0, normalize_variance: int = 1) -> Value:
    """``x`` [N, C, ...] minus its mean, divided by its standard deviation, over all images; per channel by default.

    This is how onnxruntime computes it. The operator of the standard since opset 9 has the same default.
    """
    if len(x.shape) < 2:
        raise ValueError(f"[N, C, ...] expected, {x.type} given")
    axes = [axis for axis in range(len(x.shape)) if across_channels or axis != 1]
    wide = cast(x, F32)
    centred = ops.Sub(wide, mean(wide, axes))
    if normalize_variance:
        deviation = ops.Sqrt(mean(ops.Mul(centred, centred), axes))
        centred = ops.Div(centred, ops.Add(deviation, like(deviation, SMALLEST_DEVIATION)))
    return cast(centred, x.type.dtype)
