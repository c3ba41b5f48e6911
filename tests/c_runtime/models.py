"""Models that the C runtime is tried with, compiled for this processor and saved."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx

import gpucomp
from bench import models
from bench.decoder_model import Sizes, decoder
from gpucomp import Dim
from gpucomp.runtime.executable import Executable
from testing.c_library import folder
from tests.onnx_builders import model, node, value
from tests.runtime.test_repeats import recurrence

RNG = np.random.default_rng(3)
SIZES = Sizes()
PAST = [f"past_key_values.{n}.{kind}" for n in range(SIZES.layers) for kind in ("key", "value")]
Feeds = list[dict[str, np.ndarray]]


def digits() -> tuple[onnx.ModelProto, Feeds]:
    """A network of MNIST's size: two convolutions and a classifier."""
    weights = {"w": (8, 1, 5, 5), "v": (16, 8, 5, 5), "m": (256, 10), "c": (10,)}
    made = model(
        [
            node("Conv", ["x", "w"], ["a"]),
            node("Relu", ["a"], ["b"]),
            node("MaxPool", ["b"], ["d"], kernel_shape=[2, 2], strides=[2, 2]),
            node("Conv", ["d", "v"], ["e"]),
            node("MaxPool", ["e"], ["f"], kernel_shape=[2, 2], strides=[2, 2]),
            node("Flatten", ["f"], ["g"]),
            node("Gemm", ["g", "m", "c"], ["y"]),
        ],
        [value("x", [1, 1, 28, 28])],
        weights={name: RNG.standard_normal(shape).astype(np.float32) / 5 for name, shape in weights.items()},
    )
    return made, [{"x": RNG.standard_normal((1, 1, 28, 28)).astype(np.float32)} for _ in range(3)]


def quantized() -> tuple[onnx.ModelProto, Feeds]:
    """A convolution of int8 between a quantizer and its inverse, with another output of bytes."""
    weights = {
        "s": np.float32(0.02),
        "z": np.uint8(128),
        "w": RNG.integers(-127, 127, (24, 12, 3, 3)).astype(np.int8),
        "ws": np.float32(0.004),
        "wz": np.int8(0),
        "ys": np.float32(0.1),
    }
    made = model(
        [
            node("QuantizeLinear", ["x", "s", "z"], ["q"]),
            node("QLinearConv", ["q", "s", "z", "w", "ws", "wz", "ys", "z"], ["bytes"], pads=[1, 1, 1, 1]),
            node("DequantizeLinear", ["bytes", "ys", "z"], ["y"]),
        ],
        [value("x", [1, 12, 18, 18])],
        ["y", "bytes"],
        weights=weights,
    )
    return made, [{"x": RNG.standard_normal((1, 12, 18, 18)).astype(np.float32)} for _ in range(3)]


def built(name: str) -> tuple[onnx.ModelProto, Feeds]:
    made = models.build(name, reduced=True)
    return made, [models.inputs(made, seed) for seed in range(2)]


def looped() -> tuple[onnx.ModelProto, Feeds]:
    made, feed = recurrence("LSTM", 131, 1, 7)
    return made, [feed]


def backwards() -> tuple[onnx.ModelProto, Feeds]:
    made, feed = recurrence("LSTM", 40, 1, 160, "bidirectional")
    return made, [feed]


def from_zeros() -> tuple[onnx.ModelProto, Feeds]:
    """Recurrences whose first step is a loop of its own."""
    made, feed = recurrence("GRU", 11, 2, 24, "bidirectional", states=False, linear_before_reset=1)
    return made, [feed]


def straight() -> tuple[onnx.ModelProto, Feeds]:
    """Outputs that are an input, a constant, and one tensor twice."""
    made = model(
        [node("Relu", ["x"], ["y"]), node("Identity", ["x"], ["same"]), node("Identity", ["y"], ["again"])],
        [value("x", [3, 5])],
        ["y", "same", "again", "c"],
        weights={"c": np.arange(6, dtype=np.int64).reshape(2, 3)},
    )
    return made, [{"x": RNG.standard_normal((3, 5)).astype(np.float32)}]


FIXED: dict[str, Callable[[], tuple[onnx.ModelProto, Feeds]]] = {
    "digits": digits,
    "int8": quantized,
    "mobilenet_v2": functools.partial(built, "mobilenet_v2"),
    "bert": functools.partial(built, "bert_base"),
    "lstm": looped,
    "lstm_both_ways": backwards,
    "gru_from_zeros": from_zeros,
    "straight": straight,
}


@functools.cache
def fixed(name: str, target: str = "cpu") -> tuple[Executable, Path, Feeds]:
    proto, feeds = FIXED[name]()
    return *saved(name, gpucomp.compile(proto, target=target), target), feeds


def saved(name: str, exe: Executable, target: str = "cpu") -> tuple[Executable, Path]:
    path = folder() / f"{name}.{target.replace(':', '_')}.gpuc"
    exe.save(path)
    return exe, path


def any_size_declared(*sizes: dict[str, int], target: str = "cpu") -> Executable:
    """Two inputs whose sizes each run decides; ``sizes`` have programs of their own."""
    weights = {"w": np.linspace(-1, 1, 189, dtype=np.float32).reshape(7, 3, 3, 3)}
    proto = model(
        [
            node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
            node("Add", ["c", "b"], ["d"]),
            node("Softmax", ["d"], ["y"], axis=-1),
        ],
        [value("x", ["n", 3, "h", "w"]), value("b", ["n", 1, 1, 1])],
        weights=weights,
    )
    dims = {"x": (Dim("n", 1, 5), 3, Dim("h", 4, 64, multiple=4), Dim("w", 1, 90))}
    more = {"specialise": "declared", "specialise_for": list(sizes)} if sizes else {}
    return gpucomp.compile(proto, target=target, shapes=dims, **more)


@functools.cache
def any_size(target: str = "cpu") -> tuple[Executable, Path]:
    return saved("any_size", any_size_declared(target=target), target)


def any_size_feed(n: int, h: int, w: int) -> dict[str, np.ndarray]:
    shapes = {"x": (n, 3, h, w), "b": (n, 1, 1, 1)}
    return {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


@functools.cache
def rows_of_any_number() -> tuple[Executable, Path]:
    """A kernel whose groups are as many as the run has rows, and which takes milliseconds at the largest size."""
    proto = model([node("Softmax", ["x"], ["y"], axis=-1)], [value("x", ["n", 1024])])
    return saved("rows", gpucomp.compile(proto, target="cpu", shapes={"x": (Dim("n", 1, 8192), 1024)}))


@functools.cache
def generator(target: str = "cpu") -> tuple[Executable, Path]:
    """A decoder, whose keys and values grow in the context."""
    return saved("generator", decoding(target), target)


def decoding(target: str) -> Executable:
    batch, past = Dim("batch_size", 1, 4), Dim("past_sequence_length", 0, SIZES.positions)
    shapes = dict.fromkeys(PAST, (batch, SIZES.groups, past, SIZES.size)) | {"input_ids": (batch, "sequence_length")}
    return gpucomp.compile(decoder(SIZES), target=target, shapes=shapes, states="auto")


def tokens(count: int, batch: int = 1) -> dict[str, np.ndarray]:
    return {"input_ids": RNG.integers(0, SIZES.vocabulary, (batch, count))}


@functools.cache
def filtered(target: str = "cpu") -> tuple[Executable, Path]:
    """A recurrent cell, whose state each run makes as a whole, as voice detectors have it."""
    weights = {name: RNG.standard_normal((16, 16)).astype(np.float32) / 4 for name in ("w", "r")}
    proto = model(
        [
            node("MatMul", ["x", "w"], ["a"]),
            node("MatMul", ["h", "r"], ["b"]),
            node("Add", ["a", "b"], ["c"]),
            node("Tanh", ["c"], ["h_new"]),
            node("ReduceSum", ["h_new"], ["y"]),
        ],
        [value("x", [2, 16]), value("h", [2, 16])],
        ["y", "h_new"],
        weights=weights,
    )
    return saved("filtered", gpucomp.compile(proto, target=target, states={"h": "h_new"}), target)
