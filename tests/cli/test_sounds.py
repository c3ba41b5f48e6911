"""Recordings as inputs: how samples become numbers, and where time and channels are."""

from __future__ import annotations

import wave

import numpy as np
import pytest

from gpucomp.cli import sounds, tensors
from gpucomp.errors import InputError, UsageError
from gpucomp.ir.dim import Dim
from gpucomp.runtime.inputs import TensorSpec
from tests.onnx_builders import model, node, value

WORDS = np.array([[0, 100], [16384, -16384], [-32768, 32767]], "<i2")  # [time, channels]


def recorded(path, data, rate=16000):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(data.shape[1])
        file.setsampwidth(data.itemsize)
        file.setframerate(rate)
        file.writeframes(data.tobytes())
    return path


def read(path, shape, dtype="f32"):
    return tensors.read_tensor(path, TensorSpec("x", dtype, shape), "imagenet")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (np.array([[0], [128], [255]], "u1"), [-1, 0, 127 / 128]),
        (np.array([[-32768], [0], [16384]], "<i2"), [-1, 0, 0.5]),
        (np.array([[-(2**31)], [0], [2**30]], "<i4"), [-1, 0, 0.5]),
    ],
)
def test_samples_are_numbers_from_minus_one_to_one(tmp_path, data, expected):
    found = read(recorded(tmp_path / "a.wav", data), (3,))

    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.float32(expected))


@pytest.mark.parametrize("shape", [(3,), (1, 3), (1, 1, 3), (3, 1)])
def test_a_stereo_recording_is_averaged_for_an_input_of_one_channel(tmp_path, shape):
    found = read(recorded(tmp_path / "a.wav", WORDS), shape)

    np.testing.assert_array_equal(found, np.float32([50, 0, -0.5]).reshape(shape) / 32768)


@pytest.mark.parametrize(("shape", "turned"), [((2, 3), True), ((1, 2, 3), True), ((3, 2), False), ((1, 3, 2), False)])
def test_two_channels_are_where_the_input_has_two(tmp_path, shape, turned):
    stereo = read(recorded(tmp_path / "a.wav", WORDS), shape)
    mono = read(recorded(tmp_path / "b.wav", WORDS[:, :1]), shape)

    both = np.float32(WORDS) / 32768
    twice = np.float32(WORDS[:, [0, 0]]) / 32768
    np.testing.assert_array_equal(stereo, (both.T if turned else both).reshape(shape))
    np.testing.assert_array_equal(mono, (twice.T if turned else twice).reshape(shape))


def test_integers_of_16_bits_stay_as_they_are(tmp_path):
    found = read(recorded(tmp_path / "a.wav", WORDS[:, :1]), (1, 3), "i16")

    assert found.dtype == np.int16
    np.testing.assert_array_equal(found, [[0, 16384, -32768]])


def test_where_a_run_decides_the_length_it_is_that_of_the_file(tmp_path):
    path = recorded(tmp_path / "a.wav", WORDS[:, :1])

    assert read(path, (Dim("batch"), Dim("time"))).shape == (1, 3)
    assert tensors.shapes_of_media([f"x={path}"], {"x": (None, None), "y": (None,)}) == {"x": (1, 3)}
    assert tensors.shapes_of_media([str(path)], {"x": (None, 2, None)}) == {"x": (1, 2, 3)}
    assert tensors.shapes_of_media([str(path)], {"x": (4, None)}) == {}


@pytest.mark.parametrize(
    ("shape", "dtype", "error", "message"),
    [
        (
            (5,),
            "f32",
            InputError,
            r"GPC2103 '.*a.wav' has 3 samples, input 'x' takes 5: cut or pad the recording, or compile",
        ),
        ((4, 3), "f32", UsageError, r"GPC2003 input 'x' is f32\[4,3\]; for a recording one axis of time expected"),
        ((1, 1), "f32", UsageError, "GPC2003 .* for a recording one axis of time expected"),
        ((3,), "i32", UsageError, "GPC2003 .* a type of floating-point numbers expected, or i16"),
    ],
)
def test_an_input_that_is_no_sound_is_refused(tmp_path, shape, dtype, error, message):
    with pytest.raises(error, match=message):
        read(recorded(tmp_path / "a.wav", WORDS), shape, dtype)


def test_channels_that_an_input_has_not_are_refused(tmp_path):
    surround = np.zeros((3, 6), "<i2")

    with pytest.raises(UsageError, match="has 6 channels; 1 or 2 expected"):
        read(recorded(tmp_path / "a.wav", surround), (2, 3))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data[:20] + b"\x03" + data[21:], "unknown format: 3; PCM samples of 8, 16 or 32 bits expected"),
        (lambda data: data[:34] + b"\x18" + data[35:], "its samples have 24 bits; 8, 16 or 32 expected"),
        (lambda data: data[:30], "it ends within its header"),
        (lambda data: b"OggS" + data[4:], "does not start with RIFF id"),
    ],
)
def test_what_is_no_recording_of_samples_is_refused(tmp_path, change, reason):
    path = recorded(tmp_path / "a.wav", WORDS)
    path.write_bytes(change(path.read_bytes()))

    with pytest.raises(UsageError, match=f"GPC2004 cannot read '.*a.wav': .*{reason}"):
        read(path, (3,))


def test_a_recording_that_ends_early_has_the_samples_that_are_there(tmp_path):
    path = recorded(tmp_path / "a.wav", WORDS)
    path.write_bytes(path.read_bytes()[:-3])

    np.testing.assert_array_equal(sounds.samples(path), WORDS[:2])


def test_a_header_that_promises_gigabytes_asks_for_no_memory(tmp_path, monkeypatch):
    path = recorded(tmp_path / "a.wav", WORDS)
    data = path.read_bytes()
    path.write_bytes(data[:40] + b"\xf0\xff\xff\x7f" + data[44:])
    asked = []
    monkeypatch.setattr(wave.Wave_read, "readframes", lambda self, count: asked.append(count) or data[44:])

    assert len(sounds.samples(path)) == 3
    assert asked == [len(data) // 4]


def test_a_model_of_open_length_runs_on_a_recording(command, tmp_path):
    proto = model([node("Neg", ["x"], ["y"])], [value("x", ("batch", "time"))])
    (tmp_path / "sound.onnx").write_bytes(proto.SerializeToString())
    recorded(tmp_path / "a.wav", WORDS[:, :1])

    ran = command("run", "sound.onnx", "--input", "a.wav", "--output-dir", "out")
    fixed = command("run", "sound.onnx", "--shapes", "x:1x4", "--input", "x=a.wav")

    assert ran.code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "y.npy"), np.float32([[0, -0.5, 1]]))
    assert (fixed.code, fixed.error[:15]) == (2, "error GPC2103: ")
