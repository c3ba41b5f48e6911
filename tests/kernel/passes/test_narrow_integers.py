"""Integers between kernels are stored in narrow types: results are equal to the bit, in a quarter of the memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import gpucomp
from gpucomp import compiler, lowering
from gpucomp.compiler import lower
from gpucomp.expr.core import call, cast, hole, literal, load, select, var
from gpucomp.ir.types import F32, I8, I16, I32, U8, U16, TensorType
from gpucomp.kernel import Contraction, Kernel, Store
from gpucomp.kernel.interpreter import expected
from gpucomp.kernel.passes import narrow_integers as integers
from gpucomp.kernel.passes.narrow_integers import Narrow, fitting, split_offset
from gpucomp.targets import resolve
from testing.cuda_on_cpu.whole_models import ModelOnCpu
from testing.kernels import random_inputs
from tests.onnx_builders import model, node, value

IMAGE = (1, 5, 9, 7)


@pytest.mark.parametrize(
    ("interval", "form"),
    [
        ((0, 255), Narrow(U8)),
        ((-128, 127), Narrow(I8)),
        ((0, 127), Narrow(I8)),
        ((-119, 136), Narrow(U8, -119)),
        ((1000, 1255), Narrow(U8, 1000)),
        ((-129, 127), Narrow(I16)),  # 257 numbers
        ((0, 65535), Narrow(U16)),
        ((-1, 65535), None),
        ((70000, 70255), Narrow(U8, 70000)),
        ((float("-inf"), 3), None),
    ],
)
def test_the_narrowest_form_that_holds_a_range(interval, form):
    assert fitting(interval) == form


@pytest.mark.parametrize(
    ("interval", "form"),
    [
        ((0, 255), Narrow(I8, 128)),
        ((-128, 127), Narrow(I8)),
        ((-119, 136), Narrow(I8, 9)),
        ((1000, 1255), Narrow(I8, 1128)),
        ((200, 201), Narrow(I8, 328)),
        ((-129, 127), Narrow(I16)),
        ((0, 65535), Narrow(U16)),
        ((float("-inf"), 3), None),
    ],
)
def test_bytes_are_signed_where_the_device_multiplies_such(interval, form):
    assert fitting(interval, signed=True) == form


def quantized(zero_point: int, weights: type = np.int8):
    """Quantize, two convolutions with padding and a stride, dequantize: codes have the given zero point."""
    rng = np.random.default_rng(1)
    low, high = (-9, 10) if weights is np.int8 else (0, 20)
    made = {
        "scale": np.float32(0.05),
        "zp": np.uint8(zero_point),
        "w1": rng.integers(low, high, (8, 5, 3, 3)).astype(weights),
        "w2": rng.integers(low, high, (6, 8, 3, 3)).astype(weights),
        "ws": np.float32(0.02),
        "wz": weights(0 if weights is np.int8 else 10),
        "s1": np.float32(0.05),
        "s2": np.float32(0.02),
        "b1": rng.integers(-99, 99, 8).astype(np.int32),
    }
    nodes = [
        node("QuantizeLinear", ["x", "scale", "zp"], ["q"]),
        node("QLinearConv", ["q", "scale", "zp", "w1", "ws", "wz", "s1", "zp", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        node(
            "QLinearConv", ["c1", "s1", "zp", "w2", "ws", "wz", "s2", "zp"], ["c2"], pads=[1, 1, 0, 0], strides=[2, 2]
        ),
        node("DequantizeLinear", ["c2", "s2", "zp"], ["y"]),
    ]
    return model(nodes, [value("x", IMAGE)], [value("y", None)], made)


def wide(monkeypatch):
    monkeypatch.setattr(lowering.narrow_integers, "narrow", lambda steps, graph, features: list(steps))


@pytest.mark.parametrize(
    ("target", "engine", "product"),
    [
        ("opencl:mali", "mali", "arm_dot_acc("),
        ("opencl:gfx90a", "amd", "mfma_i32"),
        ("opencl:gfx1030", "simt", "sdot4(a, b, c, false)"),
        ("opencl:gfx1100", "amd", "wmma_i32_16x16x16_iu8"),
    ],
)
def test_a_quantized_model_multiplies_bytes_by_the_device_s_instruction(target, engine, product):
    device = resolve(target)
    lowered = lower(quantized(119), device)
    found = [r for step, r in lowered.rendered.items() if isinstance(step.kernel.body, Contraction)]

    assert found[1].choice.family.engine == engine  # the first has five channels, and quantizes what it reads
    assert product in found[1].source.text


def test_signed_bytes_give_the_same_answer_to_the_bit(monkeypatch):
    device = replace(resolve("opencl:pocl"), features=frozenset({"fp64", "mali"}))
    found = compiler.finish(lower(quantized(119), device), device, "fp32", lambda *told: None).run({"x": X})["y"]
    wide(monkeypatch)
    right = gpucomp.compile(quantized(119), target="opencl:pocl").run({"x": X})["y"]

    np.testing.assert_array_equal(found, right)


X = np.random.default_rng(2).standard_normal(IMAGE).astype(np.float32)


@pytest.mark.parametrize("target", ["cpu", "opencl"])
@pytest.mark.parametrize("zero_point", [0, 119, 255])
def test_the_answer_is_the_same_to_the_bit(zero_point, target, monkeypatch):
    made = quantized(zero_point)

    found = gpucomp.compile(made, target=target).run({"x": X})["y"]
    wide(monkeypatch)
    right = gpucomp.compile(made, target=target).run({"x": X})["y"]

    assert np.unique(right).size > 10
    np.testing.assert_array_equal(found, right)


def test_unsigned_weights_with_a_zero_point_are_right_too(monkeypatch):
    made = quantized(100, np.uint8)

    found = gpucomp.compile(made, target="cpu").run({"x": X})["y"]
    wide(monkeypatch)

    np.testing.assert_array_equal(found, gpucomp.compile(made, target="cpu").run({"x": X})["y"])


@pytest.mark.parametrize("zero_point", [0, 119])
def test_matrix_units_for_bytes_give_the_same(zero_point):
    made = quantized(zero_point)
    executable = gpucomp.compile(made, target="cuda:sm_80")

    found = ModelOnCpu(executable).run({"x": X})["y"]

    if zero_point == 0:  # asynchronous copies can only pad with zeros
        assert executable.kernels[-1].family == "contraction/mma"
    np.testing.assert_array_equal(found, gpucomp.compile(made, target="cpu").run({"x": X})["y"])


def test_codes_take_a_byte_and_sums_are_corrected_once():
    steps = lower(quantized(119), resolve("opencl:generic")).unpacked  # packed, the weights are words of four
    kernels = [s.kernel for s in steps]

    (between,) = [k.params[k.inputs] for k in kernels if k.params[k.inputs].dtype is U8]
    second = kernels[-1]
    assert between.dtype is U8
    assert [p.dtype for p in second.params[:2]] == [U8, I8]
    assert "i32(x0" in second.text
    assert " : -119" not in second.text  # padding is the zero point's code, 119
    assert " : 119" in second.text
    assert second.params[second.inputs - 1].dtype is I32
    assert second.inputs - 1 in second.constants


def test_codes_without_a_zero_point_need_no_correction():
    steps = lower(quantized(0), resolve("opencl:generic")).unpacked

    assert steps[-1].kernel.inputs == 2 + sum(
        p.dtype is not U8 and p.dtype is not I8 for p in steps[-1].kernel.params[: steps[-1].kernel.inputs]
    )
    assert "select" not in steps[-1].kernel.text


def test_the_model_s_own_integers_keep_their_type():
    nodes = [node("Cast", ["x"], ["c"], to=2), node("Cast", ["c"], ["y"], to=6)]
    made = model(nodes, [value("x", (3, 4))], [value("y", (3, 4), 6)])

    found = gpucomp.compile(made, target="cpu").run({"x": np.full((3, 4), 7, np.float32)})["y"]

    assert found.dtype == np.int32
    assert (found == 7).all()


PLACE = var("i", 5)


def element(offset=0, padding=None):
    i = PLACE
    wide = cast(load(0, (i,), U8), I32)
    value = call("add", wide, offset) if offset else wide
    return value if padding is None else select(call("lt", i, 3), value, literal(padding, I32))


def test_an_offset_is_split_off_and_padding_moves_with_it():
    assert split_offset(element()) == (element(), 0)
    assert split_offset(element(-7)) == (element(), -7)
    assert split_offset(element(-7, 0)) == (element(0, 7), -7)
    assert split_offset(element(3, 3)) == (element(0, 0), 3)


def test_what_is_no_element_of_memory_has_no_offset():
    assert split_offset(call("mul", element(), 2)) is None
    assert split_offset(cast(load(0, (var("i", 5),), F32), I32) * 2) is None


def test_the_correction_is_the_offset_times_the_sum_of_the_constant():
    """One kernel before and after the pass: sum (a + o) b with a guard."""
    m, n, k = var("m0", 6), var("n0", 4), var("k0", 5)
    acc = hole("acc", I32)
    a = select(call("le", k, m), call("add", cast(load(0, (m, k), U8), I32), -50), literal(0, I32))
    body = Contraction((), (m,), (n,), (k,), a, cast(load(1, (k, n), I8), I32), acc)
    params = (TensorType(U8, (6, 5)), TensorType(I8, (5, 4)), TensorType(I32, (6, 4)))
    kernel = Kernel("contraction", params, 1, body, (Store(2, (m, n), acc * 3),), constants=frozenset({1}))
    x, w = random_inputs(kernel)
    from gpucomp.ir import constant, input_value
    from gpucomp.kernel.step import KernelStep

    step = KernelStep("k", kernel, (input_value("x", params[0]), constant(w)), (), ())

    found = integers._corrected(step)

    assert len(found.inputs) == 3
    correction = found.inputs[2].node.attrs["value"]
    np.testing.assert_array_equal(correction, -50 * w.astype(np.int32).sum(axis=0))
    np.testing.assert_array_equal(expected(found.kernel, [x, w, correction])[0], expected(kernel, [x, w])[0])


def test_a_byte_that_is_computed_has_an_offset_too():
    byte = cast(load(0, (PLACE,), F32), U8)

    assert split_offset(call("add", cast(byte, I32), -7)) == (cast(byte, I32), -7)
    assert split_offset(call("add", cast(cast(load(0, (PLACE,), F32), I16), I32), -7)) is None


def residual(*, wide_output=False):
    """Codes that a convolution reads widened to i32 and an addition reads as bytes."""
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("QLinearConv", ["q", "s", "z", "w", "s", "wz", "s", "z"], ["a"]),
        node("QLinearConv", ["a", "s", "z", "w2", "s", "wz", "s", "z"], ["b"]),
        node("QLinearAdd", ["a", "s", "z", "b", "s", "z", "s", "z"], ["y"], domain="com.microsoft"),
    ]
    outputs = [value("y", None, 2)] + ([value("a", None, 2)] if wide_output else [])
    rng = np.random.default_rng(4)
    made = {
        "s": np.float32(0.05),
        "z": np.uint8(0),
        "wz": np.int8(0),
        "w": rng.integers(-9, 9, (6, 5, 1, 1)).astype(np.int8),
        "w2": rng.integers(-9, 9, (6, 6, 1, 1)).astype(np.int8),
    }
    return model(nodes, [value("x", IMAGE)], outputs, made, domains={"com.microsoft": 1})


@pytest.mark.parametrize("wide_output", [False, True])
def test_codes_are_stored_once_for_who_reads_them_wide_and_narrow(wide_output):
    steps = lower(residual(wide_output=wide_output), resolve("cpu:x86-64-v4")).steps

    first = next(s for s in steps if isinstance(s.kernel.body, Contraction))
    if not wide_output:  # else the caller's are in another order
        assert [p.dtype for p in first.kernel.params[first.kernel.inputs :]] == [U8]
        assert set(first.outputs) <= set(steps[-1].inputs)
    found = gpucomp.compile(residual(wide_output=wide_output), target="cpu").run({"x": X})
    right = gpucomp.compile(residual(wide_output=wide_output), target="opencl").run({"x": X})
    for name in found:
        np.testing.assert_array_equal(found[name], right[name])
