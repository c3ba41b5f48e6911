"""Commands with states: a decoder is compiled with them, and runs in a context."""

import numpy as np
import onnx
import pytest

from bench.decoder_model import Sizes, decoder

SIZES = Sizes(layers=1)
SHAPES = ["--shapes", "input_ids:1x{s}"]
for kind in ("key", "value"):
    SHAPES += ["--shapes", f"past_key_values.0.{kind}:1x2x{{past:0..64}}x8"]


@pytest.fixture
def saved(tmp_path):
    onnx.save(decoder(SIZES), tmp_path / "decoder.onnx")
    np.save(tmp_path / "ids.npy", np.array([[5, 3, 8]]))
    return tmp_path


@pytest.mark.parametrize("states", ["auto", "past_key_values.*=present.*"])
def test_compile_tells_the_states_and_run_begins_without_rows(saved, command, states):
    file = saved / "decoder.gpuc"

    told = command("compile", saved / "decoder.onnx", *SHAPES, "--states", states, "-o", file).out
    ran = command("run", file, "--input", f"input_ids={saved / 'ids.npy'}").out

    assert "state     past_key_values.0.key and 1 more f32 in place, room for 64 rows" in told
    assert ran.startswith("'logits' f32[1,3,97]")


def test_states_in_16_bits(saved, command):
    options = (*SHAPES, "--states", "auto", "--states-precision", "bf16", "-o", saved / "decoder.gpuc")

    told = command("compile", saved / "decoder.onnx", *options).out

    assert "state     past_key_values.0.key and 1 more bf16 in place, room for 64 rows" in told


@pytest.mark.parametrize("states", ["past", "=present", "past=", "auto=", "auto,past=present"])
def test_states_that_cannot_be_understood(saved, command, states):
    told = command("compile", saved / "decoder.onnx", *SHAPES, "--states", states, "-o", saved / "m.gpuc")

    assert told.code == 2
    assert "GPC2040" in told.err


def test_states_come_too_late_for_a_compiled_model(saved, command):
    file = saved / "decoder.gpuc"
    command("compile", saved / "decoder.onnx", *SHAPES, "-o", file)

    told = command("run", file, "--states", "auto", "--states-precision", "fp16")

    assert told.code == 2
    assert "too late for --states and --states-precision" in told.err
