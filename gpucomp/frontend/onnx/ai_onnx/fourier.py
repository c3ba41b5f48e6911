"""Discrete Fourier transforms of any length as graphs: matrices of sines and cosines, factors, and chirps for large primes.

A short transform is a product with its matrix. A longer one is split in two while its length has a small factor (Cooley
and Tukey, "An algorithm for the machine calculation of complex Fourier series", 1965). A length without small factors
becomes a convolution with a chirp, whose length is a power of two (Bluestein, "A linear filtering approach to the
computation of discrete Fourier transform", 1970). Angles are reduced to one turn in integers, so that tables are
accurate for large ones.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpucomp import ops
from gpucomp.frontend.onnx.compose import checked_size, concat, like, pad, part, reshape, strided, transpose
from gpucomp.ir import Value, constant
from gpucomp.ir.types import DType

DENSE = 512  # transforms up to this length are one product: a matrix of 1 MiB in f32
RADIX = 64  # the largest factor that is split off: wide enough for an efficient product
Complex = tuple[Value, Value | None]  # real part and imaginary part, if there is one


def transform(x: Complex, *, inverse: bool) -> tuple[Value, Value]:
    """The transform of every row of ``x``, as two matrices [rows, n]. The inverse is divided by n."""
    n = x[0].shape[1]
    real, imaginary = _unscaled(x, 1 if inverse else -1)
    if not inverse:
        return real, imaginary
    return ops.Mul(real, like(real, 1 / n)), ops.Mul(imaginary, like(imaginary, 1 / n))


def hermitian(x: Complex, n: int) -> Complex:
    """All ``n`` frequencies of a real signal from the first n // 2 + 1. The others are conjugates, in reverse order."""
    mirrored = n - (n // 2 + 1)

    def whole(half: Value, sign: int) -> Value:
        half = pad(half, (0, 0, 0, n // 2 + 1 - half.shape[1]))
        if not mirrored:
            return half
        back = strided(half, {1: (mirrored, -1, mirrored)})
        return concat([half, ops.Neg(back) if sign < 0 else back], 1)

    real, imaginary = x
    return whole(real, 1), None if imaginary is None else whole(imaginary, -1)


def _unscaled(x: Complex, sign: int) -> tuple[Value, Value]:
    """sum over t of x[t] e^(sign 2 pi i k t / n) for every k."""
    rows, n = x[0].shape
    if n <= DENSE:
        cosine, sine = _table(n, n, n, sign, x[0].type.dtype)
        return _sum(x, lambda v, m: ops.MatMul(v, m), cosine, sine)
    factor = next((r for r in range(RADIX, 1, -1) if n % r == 0), 0)
    if not factor:
        return _chirp(x, sign)
    other = n // factor
    cosine, sine = _table(factor, factor, factor, sign, x[0].type.dtype)
    columns = _parts(x, lambda v: reshape(v, (rows, factor, other)))
    turned = _sum(columns, lambda v, m: ops.MatMul(m, v), cosine, sine)
    turned = _sum(turned, ops.Mul, *_table(factor, other, n, sign, x[0].type.dtype))
    inner = _unscaled(_parts(turned, lambda v: reshape(v, (rows * factor, other))), sign)
    real, imaginary = (reshape(transpose(reshape(v, (rows, factor, other)), (0, 2, 1)), (rows, n)) for v in inner)
    return real, imaginary


def _chirp(x: Complex, sign: int) -> tuple[Value, Value]:
    """By k t = (k^2 + t^2 - (k - t)^2) / 2: a circular convolution with e^(-sign pi i t^2 / n), of length 2^m >= 2 n - 1."""
    n, dtype = x[0].shape[1], x[0].type.dtype
    length = 1 << (2 * n - 2).bit_length()
    checked_size(length, 16)
    t = np.arange(n, dtype=np.int64)
    wave = np.exp(sign * 1j * np.pi / n * (t * t % (2 * n)))
    other = np.zeros(length, complex)
    other[:n] = wave.conj()
    other[length - n + 1 :] = wave[:0:-1].conj()
    spectrum = np.fft.fft(other) / length
    modulated = _sum(x, ops.Mul, *_pair(wave, dtype))
    padded = _parts(modulated, lambda v: pad(v, (0, 0, 0, length - n)))
    product = _sum(_unscaled(padded, -1), ops.Mul, *_pair(spectrum, dtype))
    back = _parts(_unscaled(product, 1), lambda v: part(v, 1, 0, n))
    return _sum(back, ops.Mul, *_pair(wave, dtype))


def _table(rows: int, columns: int, n: int, sign: int, dtype: DType) -> tuple[Value, Value]:
    """cosine and sine of sign 2 pi j k / n, [rows, columns]."""
    checked_size(rows * columns, 16)
    angle = sign * 2 * np.pi / n * (np.outer(np.arange(rows), np.arange(columns)) % n)
    return _pair(np.cos(angle) + 1j * np.sin(angle), dtype)


def _pair(array: np.ndarray, dtype: DType) -> tuple[Value, Value]:
    return constant(array.real.astype(dtype.numpy)), constant(array.imag.astype(dtype.numpy))


def _parts(x: Complex, change: Callable[[Value], Value]) -> tuple[Value, Value | None]:
    real, imaginary = x
    return change(real), None if imaginary is None else change(imaginary)


def _sum(x: Complex, product: Callable[[Value, Value], Value], cosine: Value, sine: Value) -> tuple[Value, Value]:
    """``product`` of ``x`` with cosine + i sine."""
    real, imaginary = product(x[0], cosine), product(x[0], sine)
    if x[1] is None:
        return real, imaginary
    return ops.Sub(real, product(x[1], sine)), ops.Add(imaginary, product(x[1], cosine))
