"""Small models, each of which makes another part of an exported C project work."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from gpucomp import Dim
from tests.onnx_builders import model, node, value


def _weights(*shape: int, seed: int = 3, scale: float = 0.3) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def classifier() -> onnx.ModelProto:
    """Convolutions, a pool and a product, with the features as a second output."""
    nodes = [
        node("Conv", ["image", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["c1"], ["r1"]),
        node("Conv", ["r1", "w2"], ["c2"], pads=[1, 1, 1, 1], group=16),
        node("Relu", ["c2"], ["r2"]),
        node("GlobalAveragePool", ["r2"], ["p"]),
        node("Flatten", ["p"], ["features"]),
        node("Gemm", ["features", "w3", "b3"], ["logits"]),
    ]
    weights = {
        "w1": _weights(16, 3, 3, 3),
        "b1": _weights(16),
        "w2": _weights(16, 1, 3, 3),
        "w3": _weights(16, 10),
        "b3": _weights(10),
    }
    outputs = [value("logits", [1, 10]), value("features", [1, 16])]
    return model(nodes, [value("image", [1, 3, 28, 28])], outputs, weights)


def quantized() -> onnx.ModelProto:
    """A convolution of bytes between quantization and dequantization, and its bytes as an output."""
    rng = np.random.default_rng(5)
    weights = {
        "scale": np.float32(0.05),
        "zero": np.uint8(128),
        "w": rng.integers(-127, 128, (8, 4, 3, 3), np.int8),
        "w_scale": np.float32(0.01),
        "w_zero": np.int8(0),
        "y_scale": np.float32(0.1),
        "y_zero": np.uint8(100),
    }
    nodes = [
        node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        node(
            "QLinearConv",
            ["q", "scale", "zero", "w", "w_scale", "w_zero", "y_scale", "y_zero"],
            ["bytes"],
            pads=[1, 1, 1, 1],
        ),
        node("DequantizeLinear", ["bytes", "y_scale", "y_zero"], ["y"]),
    ]
    outputs = [value("bytes", [1, 8, 12, 12], TensorProto.UINT8), value("y", [1, 8, 12, 12])]
    arrays = {name: np.asarray(array) for name, array in weights.items()}
    return model(nodes, [value("x", [1, 4, 12, 12])], outputs, arrays)


def transformer() -> onnx.ModelProto:
    """One head of attention over words, with a norm and a GELU: two inputs, one of indices and one of truths."""
    weights = {
        "table": _weights(50, 32),
        **{name: _weights(32, 32, seed=k) for k, name in enumerate(("wq", "wk", "wv", "wo"))},
        "gain": _weights(32),
        "bias": _weights(32),
        "lowest": np.float32(-1e4),
        "nought": np.float32(0),
    }
    nodes = [
        node("Gather", ["table", "words"], ["x"]),
        *(node("MatMul", ["x", f"w{name}"], [name]) for name in "qkv"),
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["scores"]),
        node("Where", ["seen", "nought", "lowest"], ["mask"]),
        node("Add", ["scores", "mask"], ["masked"]),
        node("Softmax", ["masked"], ["share"], axis=-1),
        node("MatMul", ["share", "v"], ["mixed"]),
        node("MatMul", ["mixed", "wo"], ["out"]),
        node("Add", ["out", "x"], ["sum"]),
        node("LayerNormalization", ["sum", "gain", "bias"], ["normal"]),
        node("Gelu", ["normal"], ["y"]),
    ]
    inputs = [value("words", [1, 12], TensorProto.INT64), value("seen", [1, 1, 12], TensorProto.BOOL)]
    return model(nodes, inputs, [value("y", [1, 12, 32])], {k: np.asarray(v) for k, v in weights.items()})


def recurrent() -> onnx.ModelProto:
    """An LSTM in both directions, which is a loop in the list of launches."""
    weights = {"w": _weights(2, 64, 8), "r": _weights(2, 64, 16), "b": _weights(2, 128)}
    nodes = [node("LSTM", ["x", "w", "r", "b"], ["y", "h", "c"], hidden_size=16, direction="bidirectional")]
    outputs = [value("y", [20, 2, 2, 16]), value("h", [2, 2, 16]), value("c", [2, 2, 16])]
    return model(nodes, [value("x", [20, 2, 8])], outputs, weights)


def odd() -> onnx.ModelProto:
    """Outputs that no kernel writes: an input, a constant, another output; a scalar; half numbers; names that are no C."""
    nodes = [
        node("Identity", ["int"], ["*/ #include"]),
        node("Identity", ["constant"], ["double"]),
        node("Relu", ["int"], ["a b"]),
        node("Identity", ["a b"], ["a-b"]),
        node("ReduceSum", ["int"], ["sum"], keepdims=0),
        node("Cast", ["int"], ["half"], to=TensorProto.FLOAT16),
        node("Greater", ["int", "zero"], ["π"]),
    ]
    weights = {"constant": np.arange(6, dtype=np.int32).reshape(2, 3), "zero": np.float32(0).reshape(())}
    outputs = [
        value("*/ #include", [5, 7]),
        value("double", [2, 3], TensorProto.INT32),
        value("a b", [5, 7]),
        value("a-b", [5, 7]),
        value("sum", []),
        value("half", [5, 7], TensorProto.FLOAT16),
        value("π", [5, 7], TensorProto.BOOL),
    ]
    return model(nodes, [value("int", [5, 7])], outputs, {k: np.asarray(v) for k, v in weights.items()})


def on_the_host() -> onnx.ModelProto:
    """Two operators that Python runs on the host, of texts."""
    nodes = [
        node("StringConcat", ["words", "words"], ["a"], name="twice"),
        node("StringConcat", ["a", "words"], ["y"], name="thrice"),
    ]
    texts = [value(name, [4], TensorProto.STRING) for name in ("words", "y")]
    return model(nodes, texts[:1], texts[1:])


def nonzero() -> onnx.ModelProto:
    """Its output's shape depends on values."""
    return model(
        [node("NonZero", ["x"], ["y"], name="where")], [value("x", [3, 4])], [value("y", [2, None], TensorProto.INT64)]
    )


def large(rows: int = 5600) -> onnx.ModelProto:
    """More than 100 MB of weights."""
    weights = np.random.default_rng(1).standard_normal((rows, rows), np.float32)
    return model([node("MatMul", ["x", "w"], ["y"])], [value("x", [1, rows])], [value("y", [1, rows])], {"w": weights})


def convolution() -> onnx.ModelProto:
    """One that Winograd's algorithm suits."""
    nodes = [node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])]
    return model(nodes, [value("x", [1, 64, 56, 56])], [value("y", [1, 64, 56, 56])], {"w": _weights(64, 64, 3, 3)})


def transformed() -> onnx.ModelProto:
    """A small one, of which Winograd's algorithm keeps the addresses of pixels."""
    nodes = [node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])]
    return model(nodes, [value("x", [1, 64, 8, 8])], [value("y", [1, 64, 8, 8])], {"w": _weights(64, 64, 3, 3)})


def bare() -> onnx.ModelProto:
    """No kernel at all, and tensors without elements."""
    nodes = [node("Identity", ["x"], ["y"]), node("Identity", ["none"], ["nothing"])]
    inputs = [value("x", [2, 3]), value("none", [0, 4])]
    return model(nodes, inputs, [value("y", [2, 3]), value("nothing", [0, 4])])


def constant() -> onnx.ModelProto:
    """No inputs."""
    nodes = [node("Identity", ["w"], ["y"])]
    return model(nodes, [], [value("y", [4, 5])], {"w": _weights(4, 5)})


def pyramid() -> tuple[onnx.ModelProto, dict[str, tuple[object, ...]]]:
    """Convolutions of images of any size, and outputs that are an input, a temporary and one number."""
    weights = {"w1": _weights(8, 3, 3, 3), "w2": _weights(8, 8, 3, 3), "b": _weights(8)}
    nodes = [
        node("Conv", ["x", "w1", "b"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["c"], ["r"]),
        node("Conv", ["r", "w2"], ["d"], pads=[1, 1, 1, 1]),
        node("Add", ["d", "r"], ["sum"]),
        node("Softmax", ["sum"], ["y"], axis=-1),
        node("ReduceMax", ["y"], ["most"], keepdims=0),
        node("Identity", ["x"], ["same"]),
        node("Transpose", ["sum"], ["turned"], perm=[0, 2, 3, 1]),
        node("Identity", ["turned"], ["again"]),
    ]
    outputs = [value(name, None) for name in ("y", "most", "same", "turned", "again")]
    shape = (Dim("batch", 1, 4), 3, Dim("h", 4, 64, 4), Dim("w", 1, 90))
    return model(nodes, [value("x", ["n", 3, "h", "w"])], outputs, weights), {"x": shape}


def steps() -> tuple[onnx.ModelProto, dict[str, tuple[object, ...]]]:
    """An LSTM in both directions over as many steps as a run has."""
    weights = {"w": _weights(2, 64, 8), "r": _weights(2, 64, 16), "b": _weights(2, 128)}
    nodes = [node("LSTM", ["x", "w", "r", "b"], ["y", "h", "c"], hidden_size=16, direction="bidirectional")]
    outputs = [value("y", ["t", 2, 2, 16]), value("h", [2, 2, 16]), value("c", [2, 2, 16])]
    return model(nodes, [value("x", ["t", 2, 8])], outputs, weights), {"x": (Dim("steps", 1, 60), 2, 8)}


def filter_of(batch: object) -> onnx.ModelProto:
    """A recurrent cell, whose state each run makes as a whole, as voice detectors have it."""
    weights = {name: _weights(16, 16, seed=k) for k, name in enumerate(("w", "r"))}
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("MatMul", ["h", "r"], ["b"]),
        node("Add", ["a", "b"], ["c"]),
        node("Tanh", ["c"], ["h_new"]),
        node("ReduceSum", ["h_new"], ["y"], keepdims=0),
    ]
    inputs = [value("x", [batch, 16]), value("h", [batch, 16])]
    return model(nodes, inputs, [value("y", None), value("h_new", [batch, 16])], weights)


ANY_SIZE = {one.__name__: one for one in (pyramid, steps)}
MODELS = {one.__name__: one for one in (classifier, quantized, transformer, recurrent, odd, bare, constant)}
