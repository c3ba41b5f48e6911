"""Sums of products take numbers below the normal ones as zero on x86; everything else keeps them."""

from __future__ import annotations

import numpy as np
import pytest

import gpucomp
from gpucomp.targets import resolve
from tests.onnx_builders import model, node, value

TINY = np.float32(1e-40)
NORMAL = np.finfo(np.float32).tiny
RNG = np.random.default_rng(11)
x86 = pytest.mark.skipif("sse4.1" not in resolve("cpu").features, reason="the mode is that of x86")


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.setenv("GPUCOMP_THREADS", "1")


def numbers(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def half_tiny(*shape):
    """Weights as those of a network with dead channels."""
    found = numbers(*shape)
    found.reshape(-1)[::2] = TINY
    return found


def run(operator, x, w, **attributes):
    proto = model(
        [node(operator, ["x", "w"], ["y"], **attributes)], [value("x", x.shape)], [value("y", None)], {"w": w}
    )
    return gpucomp.compile(proto, target="cpu").run({"x": x})["y"]


@pytest.mark.parametrize(
    ("operator", "x", "w", "attributes"),
    [
        ("MatMul", (7, 37), (37, 29), {}),
        ("Conv", (1, 13, 9, 8), (17, 13, 3, 3), {"pads": [1, 1, 1, 1]}),
        ("Conv", (1, 13, 9, 8), (13, 1, 3, 3), {"group": 13}),  # depthwise
    ],
)
def test_a_sum_of_products_is_as_with_zeros_in_their_place(operator, x, w, attributes):
    image, weights = numbers(*x), half_tiny(*w)
    zeros = np.where(np.abs(weights) < NORMAL, np.float32(0), weights)

    np.testing.assert_array_equal(
        run(operator, image, weights, **attributes), run(operator, image, zeros, **attributes)
    )


@x86
def test_a_product_of_tiny_numbers_alone_is_zero():
    assert not run("MatMul", np.ones((3, 5), np.float32), np.full((5, 4), TINY)).any()


def test_the_mode_ends_with_the_kernel():
    run("MatMul", numbers(3, 5), numbers(5, 4))

    assert (np.full(5, TINY) * np.float32(1)).all()


@pytest.mark.parametrize("operator", ["Add", "Mul"])
def test_other_operators_keep_tiny_numbers(operator):
    x, w = np.full((3, 5), TINY), np.full((3, 5), 0 if operator == "Add" else 1, np.float32)

    np.testing.assert_array_equal(run(operator, x, w), x)


def test_a_sum_of_tiny_numbers_keeps_them():
    x = np.full((3, 50), TINY)
    proto = model([node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)], [value("x", x.shape)], [value("y", None)],
                  {"axes": np.array([1])})  # fmt: skip
    (found,) = gpucomp.compile(proto, target="cpu").run({"x": x}).values()

    np.testing.assert_allclose(found, np.full(3, 50 * TINY), rtol=1e-3)
