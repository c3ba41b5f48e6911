"""Translators of Fourier transforms: products with constant matrices of sines and cosines. Long ones are factored."""

from __future__ import annotations

import math

import numpy as np

from gpucomp import ops
from gpucomp.frontend.onnx.ai_onnx.fourier import hermitian, transform
from gpucomp.frontend.onnx.compose import (
    axis_of,
    checked_size,
    concat,
    iota,
    move_axis,
    pad,
    part,
    reshape,
    scalar,
    unsqueeze,
)
from gpucomp.frontend.onnx.translate import translates
from gpucomp.ir import Value, constant

MATRIX = 1024  # longer transforms are factored: the matrix of this length has 4 MiB in f32


def fourier(x: Value, axis: int, length: int | None, *, inverse: bool, onesided: bool) -> Value:
    """The transform along ``axis`` of x [..., 1] (real) or [..., 2] (complex): [..., 2], or [..., 1] for the inverse
    of a one-sided spectrum. ``length`` truncates the axis or pads it with zeros."""
    rank = len(x.shape)
    if rank < 2 or x.shape[-1] not in (1, 2) or axis == rank - 1:
        raise ValueError(f"[..., 1] or [..., 2] and another axis expected, {x.type} and axis {axis} given")
    extent = x.shape[axis]
    if length is None:
        length = 2 * (extent - 1) if inverse and onesided else extent
    if length < 1:
        raise ValueError(f"a transform of length at least 1 expected, {length} given")
    to_real = inverse and onesided
    taken = min(extent, length // 2 + 1 if to_real else length)
    bins = length // 2 + 1 if onesided and not inverse else length
    if length > MATRIX:
        return _long(x, axis, length, taken, bins, inverse=inverse, to_real=to_real)
    steps = np.outer(np.arange(taken), np.arange(bins))
    steps %= length
    angle = 2 * np.pi / length * steps
    del steps
    cosine = np.cos(angle)
    sine = np.sin(angle, out=angle)  # e^(+-i angle) = cosine + i sine
    if not inverse:
        np.negative(sine, out=sine)
    if inverse:
        weight = np.full((taken, 1), 1 / length)
        if to_real:  # the other half of the spectrum is the conjugate of this one
            mirrored = np.arange(taken)
            weight[(mirrored > 0) & (2 * mirrored != length)] *= 2
        cosine, sine = cosine * weight, sine * weight
    dtype = x.type.dtype.numpy
    rows = move_axis(part(x, axis, 0, taken), axis, rank - 1)  # [..., 1 or 2, taken]
    matrices = [constant(m.astype(dtype)) for m in (cosine, sine)]
    components = [reshape(part(rows, rank - 2, k, 1), (*rows.shape[:-2], taken)) for k in range(x.shape[-1])]
    real, imaginary = (_product(components[0], m) for m in matrices)
    if len(components) == 2:
        real = ops.Sub(real, _product(components[1], matrices[1]))
        imaginary = ops.Add(imaginary, _product(components[1], matrices[0]))
    parts = [real] if to_real else [real, imaginary]
    stacked = concat([unsqueeze(p, (rank - 1,)) for p in parts], rank - 1)  # the transformed axis is last but one
    return move_axis(stacked, rank - 2, axis)


def _long(x: Value, axis: int, length: int, taken: int, bins: int, *, inverse: bool, to_real: bool) -> Value:
    """``fourier`` by factors of ``length``."""
    rank = len(x.shape)
    rows = move_axis(part(x, axis, 0, taken), axis, rank - 1)  # [..., 1 or 2, taken]
    count = math.prod(rows.shape[:-2])
    components = [reshape(part(rows, rank - 2, k, 1), (count, taken)) for k in range(x.shape[-1])]
    given = components[0], components[1] if len(components) == 2 else None
    if to_real:
        given = hermitian(given, length)
    else:
        given = pad(given[0], (0, 0, 0, length - taken)), given[1] and pad(given[1], (0, 0, 0, length - taken))
    transformed = transform(given, inverse=inverse)
    parts = [reshape(part(v, 1, 0, bins), (*rows.shape[:-2], bins)) for v in transformed[: 1 if to_real else 2]]
    stacked = concat([unsqueeze(p, (rank - 1,)) for p in parts], rank - 1)
    return move_axis(stacked, rank - 2, axis)


def _product(x: Value, matrix: Value) -> Value:
    """x [..., n] times a matrix [n, m]; ``x`` may be a vector."""
    rows = reshape(x, (x.type.size // max(matrix.shape[0], 1), matrix.shape[0]))
    return reshape(ops.MatMul(rows, matrix), (*x.shape[:-1], matrix.shape[1]))


@translates("DFT", since=17)
def dft_attribute(x: Value, length: Value | None = None, *, axis: int, inverse: int, onesided: int) -> Value:
    count = None if length is None else int(scalar(length, "dft_length"))
    return fourier(x, axis_of(axis, len(x.shape)), count, inverse=bool(inverse), onesided=bool(onesided))


@translates("DFT", since=20)
def dft(x: Value, length: Value | None = None, axis: Value | None = None, *, inverse: int, onesided: int) -> Value:
    place = -2 if axis is None else int(scalar(axis, "axis"))
    return dft_attribute(x, length, axis=place, inverse=inverse, onesided=onesided)


@translates("STFT", since=17)
def stft(
    signal: Value, step: Value, window: Value | None = None, frame_length: Value | None = None, *, onesided: int
) -> Value:
    """Overlapping frames of signal [batch, length, 1 or 2], windowed and transformed: [batch, frames, bins, 2]."""
    hop = int(scalar(step, "frame_step"))
    if len(signal.shape) == 2:
        signal = unsqueeze(signal, (2,))
    if len(signal.shape) != 3 or hop < 1:
        raise ValueError(f"[batch, length, 1 or 2] and a step of at least 1 expected, {signal.type} and {hop} given")
    if frame_length is not None:
        size = int(scalar(frame_length, "frame_length"))
    elif window is not None:
        size = window.type.size
    else:
        size = signal.shape[1]
    if not 1 <= size <= signal.shape[1] or (window is not None and window.shape != (size,)):
        raise ValueError(
            f"frames of 1 to {signal.shape[1]} elements, the length of the signal, and a window of that length expected; frames "
            f"of {size} given"
        )
    frames = (signal.shape[1] - size) // hop + 1
    checked_size(frames, 8)
    starts = constant((np.arange(frames) * hop).reshape(frames, 1))
    places = ops.Add(starts, iota(size))  # not folded: it can be larger than the signal
    framed = ops.Gather(signal, places, axis=1)  # [batch, frames, size, 1 or 2]
    if window is not None:
        framed = ops.Mul(framed, reshape(window, (size, 1)))
    return fourier(framed, 2, None, inverse=False, onesided=bool(onesided) and signal.shape[2] == 1)
