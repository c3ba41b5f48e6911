"""Translators of operators that sample at positions given as data."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gpucomp import ops
from gpucomp.frontend.onnx.ai_onnx.nn import matmul, with_bias
from gpucomp.frontend.onnx.ai_onnx.windows import windows
from gpucomp.frontend.onnx.compose import cast, checked_size, ints, reshape, transpose
from gpucomp.frontend.onnx.translate import translates
from gpucomp.ir import Value, constant
from gpucomp.ir import types as t


@translates("GridSample", since=16)
def grid_sample_2d(x: Value, grid: Value, *, align_corners: int, mode: str, padding_mode: str) -> Value:
    names = {"bilinear": "linear", "bicubic": "cubic"}
    return grid_sample(x, grid, align_corners=align_corners, mode=names.get(mode, mode), padding_mode=padding_mode)


@translates("GridSample", since=20)
def grid_sample(x: Value, grid: Value, *, align_corners: int, mode: str, padding_mode: str) -> Value:
    """Integers and bools are sampled as floats that can represent them. The result is truncated."""
    wide = x if x.type.dtype.is_float else cast(x, t.F64 if x.type.dtype.bits > 16 else t.F32)
    y = ops.GridSample(wide, grid, mode=mode, padding_mode=padding_mode, align_corners=bool(align_corners))
    return cast(y, x.type.dtype)


@translates("AffineGrid", since=20)
def affine_grid(theta: Value, size: Value, *, align_corners: int) -> Value:
    """theta [N, d, d + 1] times every pixel of [N, C, spatial...]: [N, spatial..., d], with the last axis' coordinate first.

    Coordinates are from -1 to 1. With ``align_corners``, the first and last pixels are at -1 and 1, and a single pixel
    is at -1. Otherwise they are half a pixel inside. The function body of ONNX 1.23 fails for N = 1, because it
    squeezes the batch.
    """
    count, _, *spatial = ints(size, "size")
    d = len(spatial)
    if d not in (2, 3) or min(spatial) < 0 or theta.shape != (count, d, d + 1):
        raise ValueError(
            f"size [N, C, H, W] or [N, C, D, H, W] and theta [N, 2, 3] or [N, 3, 4] expected, size "
            f"{[count, _, *spatial]} and theta {theta.type} given"
        )
    points = math.prod(spatial)
    checked_size(max(points * (d + 1), *spatial), 8)  # an extent can be 0
    along = [_pixels(n, align_corners=bool(align_corners)) for n in spatial]
    grid = np.stack([*np.meshgrid(*along, indexing="ij")[::-1], np.ones(spatial)], -1)
    pixels = constant(grid.reshape(points, d + 1).astype(theta.type.dtype.numpy))
    return reshape(matmul(pixels, transpose(theta, (0, 2, 1))), (count, *spatial, d))


def _pixels(n: int, *, align_corners: bool) -> np.ndarray:
    if align_corners:
        return np.arange(n) * (2 / max(n - 1, 1)) - 1
    return (2 * np.arange(n) + 1) / max(n, 1) - 1


@translates("RoiAlign", since=10)
def roi_align(
    x: Value,
    rois: Value,
    batch_indices: Value,
    *,
    coordinate_transformation_mode: str = "output_half_pixel",  # the only mode before opset 16
    mode: str,
    output_height: int,
    output_width: int,
    sampling_ratio: int,
    spatial_scale: float,
) -> Value:
    how: dict[str, Any] = {
        "output_height": output_height,
        "output_width": output_width,
        "spatial_scale": spatial_scale,
        "mode": mode,
        "coordinate_transformation_mode": coordinate_transformation_mode,
    }
    if sampling_ratio == 0:
        return ops.AdaptiveRoiAlign(x, rois, batch_indices, **how)
    return ops.RoiAlign(x, rois, batch_indices, sampling_ratio=sampling_ratio, **how)


@translates("DeformConv", since=19)
def deform_conv(
    x: Value,
    w: Value,
    offset: Value,
    bias: Value | None = None,
    mask: Value | None = None,
    *,
    dilations: tuple[int, ...] | None = None,
    group: int,
    kernel_shape: tuple[int, ...] | None = None,
    offset_group: int,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Value:
    kernel = w.shape[2:]
    if kernel_shape is not None and tuple(kernel_shape) != kernel:
        raise ValueError(f"kernel_shape {list(kernel_shape)} differs from the weights' {list(kernel)}")
    win = windows(x.shape[2:], kernel, strides, pads, dilations, "NOTSET")
    if mask is None:
        shape = (x.shape[0], offset.shape[1] // max(len(kernel), 1), *offset.shape[2:])
        ones = np.ones((1,) * len(shape), x.type.dtype.numpy)
        mask = ops.Expand(constant(ones), shape=shape)
    y = ops.DeformConv(
        x,
        w,
        offset,
        mask,
        strides=win.strides,
        pads=win.pads,
        dilations=win.dilations,
        group=group,
        offset_group=offset_group,
    )
    return with_bias(y, bias)
