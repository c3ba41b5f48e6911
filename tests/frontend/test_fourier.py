"""Transforms of all kinds of lengths compared with numpy's, in both precisions: tables, factors, chirps."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

import gpucomp
from gpucomp.frontend.onnx import load
from gpucomp.ops.interpreter import interpret
from testing.tolerance import assert_matches
from tests.onnx_builders import model, node, value

NUMBERS = {np.float32: TensorProto.FLOAT, np.float64: TensorProto.DOUBLE}
ROUNDING = {np.float32: 2.0**-24, np.float64: 2.0**-53}
# a matrix; factors below 64 alone; one factor that is a matrix of its own; primes; a prime and two factors
LENGTHS = [1024, 1025, 1 << 12, 2 * 3 * 5 * 7 * 11, 6 * 509, 1031, 4 * 521]


def dft(shape, dtype=np.float32, length=None, **attributes):
    weights = {} if length is None else {"l": np.array(length, np.int64)}
    made = node("DFT", ["x", "l" if weights else "", "a"], ["y"], **attributes)
    return model([made], [value("x", shape, NUMBERS[dtype])], weights={**weights, "a": np.array(1, np.int64)})


def numbers(shape, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def as_complex(x):
    x = x.astype(np.float64)
    return x[..., 0] + (1j * x[..., 1] if x.shape[-1] == 2 else 0)


def assert_close(found, expected, dtype, n):
    """The relative error of an FFT, in norms, grows with the logarithm of its length."""
    assert found.dtype == dtype
    assert found.shape == expected.shape
    bound = 8 * ROUNDING[dtype] * np.log2(2 * n)
    assert np.linalg.norm(found - expected) <= bound * np.linalg.norm(expected)


def parts(x):
    return np.stack([x.real, x.imag], -1)


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("n", LENGTHS)
def test_a_transform_is_numpys(n, dtype):
    x = numbers((2, n, 2), dtype)

    (forth,) = interpret(load(dft((2, n, 2), dtype)), {"x": x})
    (back,) = interpret(load(dft((2, n, 2), dtype, inverse=1)), {"x": x})

    assert_close(forth, parts(np.fft.fft(as_complex(x), axis=1)), dtype, n)
    assert_close(back, parts(np.fft.ifft(as_complex(x), axis=1)), dtype, n)


@pytest.mark.parametrize("n", [1025, 2310, 1031, 1 << 11])
def test_half_a_spectrum_of_a_real_signal_goes_forth_and_back(n):
    x = numbers((2, n, 1), np.float64)

    (forth,) = interpret(load(dft((2, n, 1), np.float64, onesided=1)), {"x": x})
    back = dft(forth.shape, np.float64, length=n, onesided=1, inverse=1)
    (again,) = interpret(load(back), {"x": forth})

    assert_close(forth, parts(np.fft.rfft(x[..., 0], axis=1)), np.float64, n)
    assert_close(again, x, np.float64, n)


@pytest.mark.parametrize(("extent", "n"), [(700, 1031), (3000, 2310), (1500, 2048)])
def test_a_signal_is_cut_or_filled_with_zeros(extent, n):
    x = numbers((2, extent, 2), np.float64)
    half = numbers((2, extent // 2, 2), np.float64)
    half[:, 0, 1] = 0

    (found,) = interpret(load(dft((2, extent, 2), np.float64, length=n)), {"x": x})
    (real,) = interpret(load(dft(half.shape, np.float64, length=n, onesided=1, inverse=1)), {"x": half})

    assert_close(found, parts(np.fft.fft(as_complex(x), n, axis=1)), np.float64, n)
    assert_close(real[..., 0], np.fft.irfft(as_complex(half), n, axis=1), np.float64, n)


@pytest.mark.parametrize(("n", "dtype", "target"), [(1 << 16, np.float32, "opencl"), (10007, np.float64, "cpu")])
def test_a_long_transform_is_compiled(n, dtype, target):
    x = numbers((1, n, 1), dtype)

    found = gpucomp.compile(dft((1, n, 1), dtype), target=target).run({"x": x})["y"]

    assert_close(found, parts(np.fft.fft(as_complex(x), axis=1)), dtype, n)


def test_a_transform_of_a_million_points_is_compiled():
    n = 1 << 20
    x = numbers((1, n, 1), np.float32)

    found = gpucomp.compile(dft((1, n, 1)), target="cpu").run({"x": x})["y"]

    assert_close(found, parts(np.fft.fft(as_complex(x), axis=1)), np.float32, n)


def test_rows_along_another_axis_are_transformed_each():
    made = node("DFT", ["x", "", "a"], ["y"])
    proto = model([made], [value("x", (1100, 3, 2), TensorProto.DOUBLE)], weights={"a": np.array(0, np.int64)})
    x = numbers((1100, 3, 2), np.float64)

    (found,) = interpret(load(proto), {"x": x})

    assert_close(found, parts(np.fft.fft(as_complex(x), axis=0)), np.float64, 1100)


def test_half_a_minute_of_sound_is_compiled():
    length, size, hop = 30 * 16000, 400, 160
    window = np.hanning(size).astype(np.float32)
    proto = model(
        [node("STFT", ["x", "hop", "window"], ["y"])],
        [value("x", (1, length, 1))],
        weights={"hop": np.array(hop, np.int64), "window": window},
    )
    x = numbers((1, length, 1), np.float32)

    found = gpucomp.compile(proto, target="cpu").run({"x": x})["y"]

    frames = np.lib.stride_tricks.sliding_window_view(x[0, :, 0], size)[::hop] * window.astype(np.float64)
    assert_matches(found[0], parts(np.fft.rfft(frames)).astype(np.float32), terms=size)
