"""Quantized layers give exactly onnxruntime's codes: awkward sizes, borders, strides, dilations, saturation."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

import gpucomp
from gpucomp.cli.compare import onnxruntime_session
from gpucomp.compiler import lower
from gpucomp.frontend.onnx import load
from gpucomp.ops.interpreter import interpret
from gpucomp.targets import resolve
from tests.native import HERE

MICROSOFT = "com.microsoft"


class Network:
    """A sequence of layers, each with its own scales and zero point. Every result is an output."""

    def __init__(self, activations: type, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.type = activations
        self.nodes: list = []
        self.constants: dict[str, np.ndarray] = {}
        self.scales: dict[str, tuple[str, str]] = {}
        self.names: list[str] = []

    def constant(self, array) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def result(self, scale: float) -> str:
        info = np.iinfo(self.type)
        name = f"y{len(self.names)}"
        zero = self.rng.integers(info.min + 3, info.max - 3)
        self.scales[name] = self.constant(np.float32(scale)), self.constant(np.array(zero, self.type))
        self.names.append(name)
        return name

    def conv(self, x: str, channels: tuple[int, int], window: tuple[int, int], *, group: int = 1, **attributes) -> str:
        inside, outside = channels
        depth = inside // group * window[0] * window[1]
        w = self.rng.integers(-128, 128, (outside, inside // group, *window)).astype(np.int8)
        scales = self.rng.uniform(0.002, 0.01, outside).astype(np.float32)
        bias = self.rng.integers(-4000, 4000, outside).astype(np.int32)
        y = self.result(0.004 * depth**0.5)
        weights = [self.constant(w), self.constant(scales), self.constant(np.zeros(outside, np.int8))]
        operands = [x, *self.scales[x], *weights, *self.scales[y], self.constant(bias)]
        self.nodes.append(helper.make_node("QLinearConv", operands, [y], group=group, **attributes))
        return y

    def own(self, operator: str, *operands: str, scale: float) -> str:
        y = self.result(scale)
        given = [name for x in operands for name in (x, *self.scales[x])]
        self.nodes.append(helper.make_node(operator, [*given, *self.scales[y]], [y], domain=MICROSOFT))
        return y

    def proto(self, shape: tuple[int, ...]) -> bytes:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.type))
        graph = helper.make_graph(
            self.nodes,
            "layers",
            [helper.make_tensor_value_info("x", kind, shape)],
            [helper.make_tensor_value_info(name, kind, None) for name in self.names if name != "x"],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        opsets = [helper.make_opsetid("", 13), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


SHAPE = (1, 5, 11, 13)


def inverted_residual(activations: type) -> bytes:
    """A dense layer, a depthwise one with each kind of border, a pointwise one with a residual, and an average."""
    net = Network(activations, seed=activations(1).itemsize + (activations is np.int8))
    net.scales["x"] = (
        net.constant(np.float32(0.02)),
        net.constant(np.array(-3 if activations is np.int8 else 131, activations)),
    )
    a = net.conv("x", (5, 19), (3, 3), pads=[1, 1, 1, 1]) if activations is np.uint8 else net.conv("x", (5, 19), (1, 1))
    b = net.conv(a, (19, 67), (1, 1))
    c = net.conv(b, (67, 67), (3, 3), group=67, pads=[1, 1, 1, 1])
    d = net.conv(c, (67, 19), (1, 1))
    e = net.own("QLinearAdd", a, d, scale=0.05)
    f = net.conv(e, (19, 19), (3, 3), group=19, pads=[1, 0, 1, 1], strides=[2, 2])
    net.own("QLinearGlobalAveragePool", f, scale=0.01)
    return net.proto(SHAPE)


@pytest.mark.parametrize("target", HERE, ids=lambda t: t.arch)
@pytest.mark.parametrize("activations", [np.uint8, np.int8])
def test_every_layer_has_onnxruntime_s_codes(activations, target):
    info = np.iinfo(activations)
    made = inverted_residual(activations)
    x = np.random.default_rng(7).integers(info.min, info.max + 1, SHAPE).astype(activations)

    found = gpucomp.compile(made, target=target.name).run({"x": x})

    session = onnxruntime_session(made)
    for (name, codes), right in zip(found.items(), session.run(None, {"x": x}), strict=True):
        assert np.unique(right).size > 8
        np.testing.assert_array_equal(codes, right, err_msg=name)


def test_depthwise_layers_of_codes_are_windows_of_bytes():
    lowered = lower(inverted_residual(np.uint8), resolve("cpu:icelake-server"))

    engines = [r.choice.family.title for r in lowered.rendered.values()]
    assert engines.count("loops/bytes") == 2
    assert engines.count("contraction/vnni") >= 2


def test_the_multiplier_is_one_number_in_f32():
    """Near halves, the order of roundings decides between two codes. It has to be onnxruntime's."""
    rng = np.random.default_rng(11)
    while True:
        sx, sw, sy = (np.float32(v) for v in rng.uniform(0.001, 0.1, 3))
        total = np.arange(-20_000, 20_000, dtype=np.float32)
        ours, other = (
            np.rint(total * np.float32(np.float32(sx * sw) / sy)),
            np.rint(np.float32(total * np.float32(sx * sw)) / sy),
        )
        apart = np.flatnonzero((ours != other) & (np.abs(ours) < 100))
        if apart.size:
            break
    sums = total[apart].astype(np.int32)
    constants = {
        "sx": sx,
        "z": np.uint8(128),
        "w": np.ones((sums.size, 1, 1, 1), np.int8),
        "sw": sw,
        "wz": np.int8(0),
        "sy": sy,
        "b": sums,
    }
    node = helper.make_node("QLinearConv", ["x", "sx", "z", "w", "sw", "wz", "sy", "z", "b"], ["y"])
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(np.uint8))
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("x", kind, (1, 1, 1, 1))],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()
    x = np.full((1, 1, 1, 1), 128, np.uint8)

    found = gpucomp.compile(made, target="cpu").run({"x": x})["y"].reshape(-1)

    np.testing.assert_array_equal(found, np.clip(ours[apart] + 128, 0, 255).astype(np.uint8))
    (right,) = onnxruntime_session(made).run(None, {"x": x})
    np.testing.assert_array_equal(found, right.reshape(-1))
    np.testing.assert_array_equal(found, interpret(load(made), {"x": x})[0].reshape(-1))


def dequantized_layers() -> bytes:
    """Conv, Relu, depthwise Conv and Add in f32, between DequantizeLinear and QuantizeLinear, as quantizers write them."""
    rng = np.random.default_rng(5)
    constants: dict[str, np.ndarray] = {"s0": np.float32(0.03), "z0": np.uint8(131)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s0", "z0"], ["q0"]),
        helper.make_node("DequantizeLinear", ["q0", "s0", "z0"], ["d0"]),
    ]
    for k, (shape, group) in enumerate([((67, 5, 1, 1), 1), ((67, 1, 3, 3), 67), ((67, 67, 1, 1), 1)], start=1):
        scale = rng.uniform(0.002, 0.01, shape[0]).astype(np.float32)
        step = np.float32(constants[f"s{k - 1}"]) * scale
        constants |= {
            f"w{k}": rng.integers(-127, 128, shape).astype(np.int8), f"ws{k}": scale, f"wz{k}": np.zeros(shape[0], np.int8),
            f"b{k}": rng.integers(-3000, 3000, shape[0]).astype(np.int32), f"bs{k}": step, f"bz{k}": np.zeros(shape[0], np.int32),
            f"s{k}": np.float32(0.02 * k), f"z{k}": np.uint8(0 if k == 1 else 120),
        }  # fmt: skip
        nodes += [
            helper.make_node("DequantizeLinear", [f"w{k}", f"ws{k}", f"wz{k}"], [f"dw{k}"], axis=0),
            helper.make_node("DequantizeLinear", [f"b{k}", f"bs{k}", f"bz{k}"], [f"db{k}"], axis=0),
            helper.make_node(
                "Conv", [f"d{k - 1}", f"dw{k}", f"db{k}"], [f"c{k}"], group=group, pads=[shape[2] // 2] * 4
            ),
            *([helper.make_node("Relu", ["c1"], ["r1"])] if k == 1 else []),
            helper.make_node("QuantizeLinear", ["r1" if k == 1 else f"c{k}", f"s{k}", f"z{k}"], [f"q{k}"]),
            helper.make_node("DequantizeLinear", [f"q{k}", f"s{k}", f"z{k}"], [f"d{k}"]),
        ]
    nodes.append(helper.make_node("Add", ["d1", "d3"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "dequantized",
        [helper.make_tensor_value_info("x", 1, SHAPE)],
        [helper.make_tensor_value_info("y", 1, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()


def test_dequantized_layers_are_multiplied_as_codes_where_the_processor_multiplies_bytes():
    made = dequantized_layers()
    of_bytes, of_floats = (lower(made, resolve(f"cpu:{name}")) for name in ("icelake-server", "skylake-avx512"))

    def text(lowered) -> str:
        return "".join(step.kernel.text for step in lowered.steps)

    assert [r.choice.family.title for r in of_bytes.rendered.values()][1:] == ["loops/bytes", "contraction/vnni"]
    assert text(of_bytes).count("acc: i32") == 2
    assert "i32" not in text(of_floats)


@pytest.mark.parametrize("target", HERE, ids=lambda t: t.arch)
def test_dequantized_layers_have_onnxruntime_s_codes(target):
    made = dequantized_layers()
    x = np.random.default_rng(9).standard_normal(SHAPE).astype(np.float32)

    found = gpucomp.compile(made, target=target.name).run({"x": x})["y"]

    session = onnxruntime_session(made)
    (right,) = session.run(None, {"x": x})
    steps = [np.rint(y / np.float32(0.02)) for y in (found, right)]  # the scales are 0.02 and 0.06
    assert np.unique(steps[1]).size > 50
    np.testing.assert_allclose(found, right, atol=4e-6)
    if target.features & {"avx512vnni", "avxvnni"}:
        np.testing.assert_array_equal(*steps)
    else:  # sums in f32 may round ties differently
        assert np.mean(steps[0] != steps[1]) < 0.01
