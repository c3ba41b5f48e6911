"""Functions of a code become lookup tables with the same results, if they depend on nothing but the code."""

from __future__ import annotations

import math

import numpy as np
import pytest

import gpucomp
from gpucomp import ops
from gpucomp.compiler import lower
from gpucomp.expr.core import Expr, axes_of, call, cast, literal, load
from gpucomp.ir import Graph, input_value
from gpucomp.ir.types import F32, I8, I32, U8, DType, TensorType
from gpucomp.kernel import Kernel, Loops, Store
from gpucomp.kernel.interpreter import expected
from gpucomp.kernel.passes.lookup_tables import look_up, table_of
from gpucomp.kernel.step import HostStep, KernelStep
from gpucomp.targets import resolve
from tests.builders import setting
from tests.onnx_builders import model, node, value

AT = setting(Graph((), ()), "cpu")

SHAPE = (3, 7)
AXES = axes_of(SHAPE)


def code(x: Expr, zero: float = 3.0, dtype: DType = U8) -> Expr:
    low, high = (0.0, 255.0) if dtype is U8 else (-128.0, 127.0)
    return cast(call("min", call("max", call("round", x) + zero, low), high), dtype)


def real(byte: Expr, scale: float = 0.05, zero: float = 99.0) -> Expr:
    return (cast(byte, F32) - zero) * scale


def sigmoid(x: Expr) -> Expr:
    return 1.0 / (call("exp", call("neg", x)) + 1.0)


def step(value: Expr, *types: TensorType) -> KernelStep:
    out = TensorType(value.dtype, SHAPE)
    kernel = Kernel("loops", (*types, out), 1, Loops(AXES), (Store(len(types), AXES, value),))
    return KernelStep(
        "k", kernel, tuple(input_value(f"x{i}", t) for i, t in enumerate(types)), (input_value("y", out),), ()
    )


FLOATS, BYTES = TensorType(F32, SHAPE), TensorType(U8, SHAPE)
SILU = code(
    (real(code(load(0, AXES, F32))) * real(code(sigmoid(real(code(load(0, AXES, F32)))) * 255.0), 1 / 255, 3.0)) / 0.03
)


@pytest.mark.parametrize("dtype", [U8, I8])
def test_every_code_has_its_number_in_the_table(dtype):
    byte = load(0, AXES, dtype)
    info = np.iinfo(dtype.numpy)
    codes = np.arange(info.min, info.max + 1)

    table = table_of(code(sigmoid(real(byte, zero=1.0)) / 0.007, dtype=dtype), byte)

    right = np.rint(1 / (1 + np.exp(-(codes - 1.0) * 0.05)) / 0.007) + 3
    assert table.dtype == np.int32
    assert np.abs(table - np.clip(right, info.min, info.max)).max() == 0


@pytest.mark.parametrize("dtype", [U8, I8])
def test_what_costs_more_than_a_look_up_is_one(dtype):
    made = step(code(sigmoid(real(load(0, AXES, dtype))) / 0.004, dtype=dtype), TensorType(dtype, SHAPE))
    x = np.random.default_rng(0).integers(-128 if dtype is I8 else 0, 128, SHAPE).astype(dtype.numpy)

    (found,) = look_up([made], AT)

    assert "exp" not in found.kernel.text
    assert found.kernel.constants == {1}
    table = found.inputs[1].attrs["value"]
    assert table.shape == (256,)
    np.testing.assert_array_equal(expected(found.kernel, [x, table])[0], expected(made.kernel, [x])[0])


def test_the_widest_function_of_the_farthest_code_is_looked_up_once():
    (found,) = look_up([step(SILU, FLOATS)], AT)

    assert len(found.inputs) == 2
    assert found.kernel.text.count("round") == 1  # the code that all depends on is still computed


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(code(sigmoid(load(0, AXES, F32)) / 0.004), id="of a float"),
        pytest.param(code(real(load(1, AXES, U8)) / 0.03), id="a division is no more than a look-up"),
        pytest.param(code(sigmoid(real(load(1, AXES, U8)) * load(0, AXES, F32)) / 0.004), id="of a code and a float"),
        pytest.param(sigmoid(real(load(1, AXES, U8))) / 0.004, id="no byte comes of it"),
        pytest.param(
            code(sigmoid(real(load(1, AXES, U8)) + cast(cast(AXES[0], I32), F32)) / 0.004), id="of a code and its place"
        ),
        pytest.param(cast(literal(7, I32), U8), id="a constant"),
    ],
)
def test_what_is_no_costly_function_of_a_code_alone_stays(value):
    made = step(value, FLOATS, BYTES)

    assert look_up([made], AT) == [made]


def test_host_steps_stay():
    made = HostStep("k", ops.Sqrt(input_value("x", TensorType(F32, (3,)))).node)

    assert look_up([made], AT) == [made]


def silu_between_quantizers():
    constants = {
        "s": np.float32(0.05),
        "z": np.uint8(99),
        "t": np.float32(1 / 255),
        "u": np.float32(0.03),
        "o": np.uint8(0),
    }
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["a"]),
        node("DequantizeLinear", ["a", "s", "z"], ["b"]),
        node("Sigmoid", ["b"], ["c"]),
        node("QuantizeLinear", ["c", "t", "o"], ["d"]),
        node("DequantizeLinear", ["d", "t", "o"], ["e"]),
        node("Mul", ["b", "e"], ["f"]),
        node("QuantizeLinear", ["f", "u", "z"], ["g"]),
        node("DequantizeLinear", ["g", "u", "z"], ["y"]),
    ]
    return model(nodes, [value("x", (5, 77))], [value("y", None)], constants)


def test_a_quantized_activation_is_looked_up_on_the_cpu_alone():
    kernels = [s.kernel for s in lower(silu_between_quantizers(), resolve("cpu:x86-64-v3")).steps]
    elsewhere = [s.kernel for s in lower(silu_between_quantizers(), resolve("opencl:generic")).steps]

    assert "exp" not in "".join(k.text for k in kernels)
    assert "exp" in "".join(k.text for k in elsewhere)


def test_a_quantized_activation_has_the_right_codes():
    x = np.random.default_rng(1).uniform(-8, 12, (5, 77)).astype(np.float32)

    found = gpucomp.compile(silu_between_quantizers(), target="cpu").run({"x": x})["y"]

    a = (np.clip(np.rint(x / np.float32(0.05)) + 99, 0, 255) - 99) * 0.05
    d = np.clip(np.rint(1 / (1 + np.exp(-a)) * 255), 0, 255) / 255
    codes = np.clip(np.rint(a * d / 0.03) + 99, 0, 255)
    steps = np.rint(found / 0.03 + 99)
    assert np.mean(steps != codes) < 0.01  # f64 rounds some ties differently
    assert np.abs(steps - codes).max() <= 1
    assert not math.isclose(found.std(), 0)
