"""Quantized models on devices without matrix units for bytes use dot products of four bytes."""

from __future__ import annotations

import numpy as np
import pytest

import gpucomp
from gpucomp.compiler import lower
from gpucomp.kernel import Contraction
from gpucomp.targets import resolve
from testing.cuda_on_cpu.whole_models import ModelOnCpu
from tests.onnx_builders import model, node, value

U8, I8, I32 = 2, 3, 6  # ONNX's codes for element types
RNG = np.random.default_rng(4)


def codes(*shape: int, dtype: type = np.int8) -> np.ndarray:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


CODES = {
    "s": np.float32(0.05), "z": np.uint8(119), "ws": np.float32(0.02), "wz": np.int8(0), "ys": np.float32(9), "yz": np.uint8(7),
}  # fmt: skip
MODELS = {  # name: (model, the input, engine for CUDA)
    "QLinearMatMul": (
        model([node("QLinearMatMul", ["x", "s", "z", "w", "ws", "wz", "ys", "yz"], ["y"])],
              [value("x", (1, 148), U8)], [value("y", None, U8)], CODES | {"w": codes(148, 37)}),
        codes(1, 148, dtype=np.uint8), "gemv"),
    "MatMulInteger": (
        model([node("MatMulInteger", ["x", "w", "z"], ["y"])], [value("x", (3, 131), U8)], [value("y", None, I32)],
              {"z": np.uint8(119), "w": codes(131, 41)}),
        codes(3, 131, dtype=np.uint8), "gemv"),
    "ConvInteger": (
        model([node("ConvInteger", ["x", "w", "z"], ["y"], pads=[1, 1, 0, 1])], [value("x", (1, 5, 9, 7), U8)],
              [value("y", None, I32)], {"z": np.uint8(119), "w": codes(11, 5, 3, 2)}),
        codes(1, 5, 9, 7, dtype=np.uint8), "simt"),
    "QLinearConv": (
        model([node("QLinearConv", ["x", "s", "z", "w", "ws", "wz", "ys", "yz"], ["y"], pads=[1, 1, 1, 1], group=2)],
              [value("x", (1, 12, 7, 5), U8)], [value("y", None, U8)], CODES | {"w": codes(10, 6, 3, 3)}),
        codes(1, 12, 7, 5, dtype=np.uint8), "simt"),
}  # fmt: skip


def contraction(made, target: str):
    """(engine, text) of the model's one contraction."""
    rendered = lower(made, resolve(target)).rendered
    (found,) = [r for step, r in rendered.items() if isinstance(step.kernel.body, Contraction)]
    return found.choice.family.engine, found.source.text


def answer(name: str, target: str) -> np.ndarray:
    return gpucomp.compile(MODELS[name][0], target=target).run({"x": MODELS[name][1]})["y"]


@pytest.mark.parametrize("name", MODELS)
def test_cuda_multiplies_four_bytes_at_a_time(name):
    engine, text = contraction(MODELS[name][0], "cuda:sm_80")

    assert engine == MODELS[name][2]
    assert "gc_dot4<false, true>(" in text


@pytest.mark.parametrize("name", ["QLinearMatMul", "QLinearConv"])
def test_the_answer_from_cuda_text_is_right(name):
    executable = gpucomp.compile(MODELS[name][0], target="cuda:sm_80")
    found = ModelOnCpu(executable).run({"x": MODELS[name][1]})["y"]

    assert np.unique(found).size > 10
    np.testing.assert_array_equal(found, answer(name, "cpu"))


@pytest.mark.parametrize("name", MODELS)
def test_opencl_multiplies_four_bytes_at_a_time(name):
    engine, text = contraction(MODELS[name][0], "opencl:pocl")

    assert engine == MODELS[name][2]
    assert " = dot4(" in text
    np.testing.assert_array_equal(answer(name, "opencl:pocl"), answer(name, "cpu"))


@pytest.mark.parametrize(
    ("target", "product"), [("opencl:gfx906", "__builtin_amdgcn_sdot4("), ("opencl:generic", "c + (a & 255) *")]
)
def test_every_kind_of_device_is_given_what_it_has(target, product):
    assert all(product in contraction(made, target)[1] for made, _, _ in MODELS.values())


def test_matrix_units_keep_what_they_are_faster_at():
    made = model(
        [node("MatMulInteger", ["x", "w", "z"], ["y"])],
        [value("x", (196, 256), I8)],
        [value("y", None, I32)],
        {"z": np.int8(19), "w": codes(256, 128)},
    )

    for target, engine in (
        ("cuda:sm_75", "mma"),
        ("cuda:sm_90a", "mma"),
        ("opencl:gfx90a", "amd"),
        ("opencl:mali", "mali"),
    ):
        assert contraction(made, target)[0] == engine, target
