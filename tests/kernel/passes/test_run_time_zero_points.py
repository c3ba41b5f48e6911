"""Zero points computed at run time by dynamic quantization: engines for bytes are used, with numpy's exact results."""

from __future__ import annotations

import numpy as np
import pytest

import gpucomp
from gpucomp.compiler import lower
from gpucomp.ir.types import F32
from gpucomp.kernel import Contraction
from gpucomp.targets import resolve
from testing.cuda_on_cpu.whole_models import ModelOnCpu
from tests.onnx_builders import model, node, value

NUMBERS = {np.float32: 1, np.uint8: 2, np.int8: 3, np.int32: 6}  # ONNX's codes for element types
RNG = np.random.default_rng(23)


def codes(*shape: int, dtype: type = np.int8) -> np.ndarray:
    """Random codes that include the least and the greatest of their type."""
    info = np.iinfo(dtype)
    found = RNG.integers(info.min, info.max + 1, shape).astype(dtype)
    found.flat[0], found.flat[-1] = info.min, info.max
    return found


class Product:
    """A MatMulInteger or ConvInteger whose codes and zero point are inputs."""

    def __init__(
        self, x: np.ndarray, w: np.ndarray, zero: np.ndarray, w_zero: np.ndarray | None = None, **attributes
    ) -> None:
        self.x, self.w, self.zero, self.w_zero = x, w, zero, w_zero
        self.operator = "ConvInteger" if "pads" in attributes else "MatMulInteger"
        self.proto = model(
            [node(self.operator, ["x", "w", "z", *(["wz"] if w_zero is not None else [])], ["y"], **attributes)],
            [value("x", x.shape, NUMBERS[x.dtype.type]), value("z", zero.shape, NUMBERS[zero.dtype.type])],
            [value("y", None, NUMBERS[np.int32])],
            {"w": w} | ({"wz": w_zero} if w_zero is not None else {}),
        )

    def run(self, target: str, zero: np.ndarray | None = None) -> np.ndarray:
        return self.feed(gpucomp.compile(self.proto, target=target), zero)

    def feed(self, executable, zero: np.ndarray | None = None) -> np.ndarray:
        return executable.run({"x": self.x, "z": self.zero if zero is None else zero})["y"]

    def expected(self, zero: np.ndarray | None = None) -> np.ndarray:
        """numpy's product of both operands after their zero points are subtracted."""
        zero = self.zero if zero is None else zero
        z = zero.astype(np.int32)
        x = self.x.astype(np.int32) - (z[:, None] if z.ndim else z)
        w_zero = np.int32(0) if self.w_zero is None else self.w_zero.astype(np.int32)
        if self.operator == "MatMulInteger":
            return x @ (self.w.astype(np.int32) - w_zero)
        w = self.w.astype(np.int32) - np.reshape(w_zero, (-1, 1, 1, 1))
        padded = np.pad(x, ((0, 0), (0, 0), (1, 0), (0, 2)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], axis=(2, 3))[:, :, ::2]
        groups = x.shape[1] // w.shape[1]
        parts = zip(np.split(windows, groups, axis=1), np.split(w, groups), strict=True)
        return np.concatenate([np.einsum("nchwij,ocij->nohw", *p, dtype=np.int32) for p in parts], axis=1)


PRODUCTS = {
    "u8 by i8": Product(codes(13, 37, dtype=np.uint8), codes(37, 29), np.array(3, np.uint8)),
    "i8 by i8": Product(codes(5, 131), codes(131, 17), np.array(-7, np.int8)),
    "batched, a zero point for each row": Product(
        codes(2, 3, 67, dtype=np.uint8), codes(67, 19), np.array([0, 255, 119], np.uint8)
    ),
    "i8 by u8, one zero point a column": Product(
        codes(7, 41), codes(41, 23, dtype=np.uint8), np.array(100, np.int8), RNG.integers(0, 256, 23).astype(np.uint8)
    ),
    "u8 by u8, one zero point": Product(
        codes(1, 67, dtype=np.uint8), codes(67, 11, dtype=np.uint8), np.array(131, np.uint8), np.array(119, np.uint8)
    ),
    "no more than one": Product(codes(1, 1, dtype=np.uint8), codes(1, 1), np.array(9, np.uint8)),
    "padded windows": Product(
        codes(2, 5, 9, 7, dtype=np.uint8),
        codes(11, 5, 3, 2),
        np.array(119, np.uint8),
        pads=[1, 0, 0, 2],
        strides=[2, 1],
    ),
    "padded windows, u8 by u8, one zero point": Product(
        codes(2, 5, 9, 7, dtype=np.uint8),
        codes(11, 5, 3, 2, dtype=np.uint8),
        np.array(119, np.uint8),
        np.array(120, np.uint8),
        pads=[1, 0, 0, 2],
        strides=[2, 1],
    ),
    "padded windows, one zero point a column": Product(
        codes(1, 3, 8, 13, dtype=np.uint8),
        codes(17, 3, 5, 3, dtype=np.uint8),
        np.array(7, np.uint8),
        RNG.integers(0, 256, 17).astype(np.uint8),
        pads=[1, 0, 0, 2],
        strides=[2, 1],
    ),
    "padded windows in groups, one zero point a column": Product(
        codes(2, 12, 9, 7, dtype=np.uint8),
        codes(15, 4, 3, 2, dtype=np.uint8),
        np.array(119, np.uint8),
        RNG.integers(0, 256, 15).astype(np.uint8),
        pads=[1, 0, 0, 2],
        strides=[2, 1],
        group=3,
    ),
    "a window a channel, u8 by u8": Product(
        codes(1, 19, 7, 11, dtype=np.uint8),
        codes(19, 1, 3, 3, dtype=np.uint8),
        np.array(131, np.uint8),
        np.array(119, np.uint8),
        pads=[1, 0, 0, 2],
        strides=[2, 1],
        group=19,
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_the_cpu_s_answer_is_numpy_s(name):
    product = PRODUCTS[name]
    executable = gpucomp.compile(product.proto, target="cpu")
    ends = np.iinfo(product.zero.dtype)

    for zero in (product.zero, np.full_like(product.zero, ends.min), np.full_like(product.zero, ends.max)):
        np.testing.assert_array_equal(product.feed(executable, zero), product.expected(zero))


@pytest.mark.parametrize(
    "name", ["u8 by u8, one zero point", "padded windows", "padded windows, u8 by u8, one zero point"]
)
def test_opencl_s_answer_is_numpy_s(name):
    product = PRODUCTS[name]

    np.testing.assert_array_equal(product.run("opencl"), product.expected())


@pytest.mark.parametrize("name", ["u8 by i8", "padded windows, one zero point a column"])
def test_matrix_units_give_numpy_s_answer(name):
    product = PRODUCTS[name]
    executable = gpucomp.compile(product.proto, target="cuda:sm_80")

    np.testing.assert_array_equal(product.feed(ModelOnCpu(executable)), product.expected())


def feed_forward(rows: int, *, dtype: type = np.int8):
    """Two linear layers and a Relu, as onnxruntime's quantize_dynamic writes them."""
    nodes, constants, x = [], {}, "x"
    for k, (depth, columns) in enumerate([(67, 131), (131, 67)]):
        constants |= {
            f"w{k}": codes(depth, columns, dtype=dtype),
            f"wz{k}": np.array(0 if dtype is np.int8 else 119, dtype),
            f"ws{k}": np.float32(0.01),
            f"b{k}": RNG.standard_normal(columns).astype(np.float32),
        }
        nodes += [
            node("DynamicQuantizeLinear", [x], [f"q{k}", f"s{k}", f"z{k}"]),
            node("MatMulInteger", [f"q{k}", f"w{k}", f"z{k}", f"wz{k}"], [f"p{k}"]),
            node("Cast", [f"p{k}"], [f"f{k}"], to=1),
            node("Mul", [f"s{k}", f"ws{k}"], [f"m{k}"]),
            node("Mul", [f"f{k}", f"m{k}"], [f"u{k}"]),
            node("Add", [f"u{k}", f"b{k}"], [f"a{k}"]),
            *([node("Relu", ["a0"], ["r0"])] if k == 0 else []),
        ]
        x = "r0"
    return model(nodes, [value("x", (rows, 67))], [value("a1", None)], constants)


def convolutions(size: int, *, dtype: type = np.int8, depthwise: bool = False):
    """Two padded convolutions with biases and a Relu between, as onnxruntime's quantize_dynamic writes them."""
    nodes, constants, x = [], {}, "x"
    for k, (depth, columns) in enumerate([(5, 17), (17, 17)]):
        group = 17 if k and depthwise else 1
        constants |= {
            f"w{k}": codes(columns, depth // group, 3, 3, dtype=dtype),
            f"wz{k}": np.array(0 if dtype is np.int8 else 119, dtype),
            f"ws{k}": np.float32(0.01),
            f"b{k}": RNG.standard_normal((1, columns, 1, 1)).astype(np.float32),
        }
        nodes += [
            node("DynamicQuantizeLinear", [x], [f"q{k}", f"s{k}", f"z{k}"]),
            node("ConvInteger", [f"q{k}", f"w{k}", f"z{k}", f"wz{k}"], [f"p{k}"], pads=[1] * 4, group=group),
            node("Cast", [f"p{k}"], [f"f{k}"], to=1),
            node("Mul", [f"s{k}", f"ws{k}"], [f"m{k}"]),
            node("Mul", [f"f{k}", f"m{k}"], [f"u{k}"]),
            node("Add", [f"u{k}", f"b{k}"], [f"a{k}"]),
            *([node("Relu", ["a0"], ["r0"])] if k == 0 else []),
        ]
        x = "r0"
    return model(nodes, [value("x", (1, 5, size, size))], [value("a1", None)], constants)


def contractions(made, target: str):
    lowered = lower(made, resolve(target))
    return [(step.kernel, r) for step, r in lowered.rendered.items() if isinstance(step.kernel.body, Contraction)]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize(
    ("target", "engine"),
    [("cpu:sapphirerapids", "contraction/amx"), ("cpu:cascadelake", "contraction/vnni"), ("cuda:sm_80", "contraction/mma"),
     ("opencl:gfx90a", "contraction/amd"), ("opencl:mali", "contraction/mali")],
)  # fmt: skip
def test_both_layers_go_to_the_engine_for_bytes(target, engine, dtype):
    found = contractions(feed_forward(71, dtype=dtype), target)

    assert [r.choice.family.title for _, r in found] == [engine] * 2
    for (kernel, _), depth in zip(found, (67, 131), strict=True):
        assert {p.dtype.nbytes for p in kernel.params[: kernel.inputs] if p.shape == (71, depth)} == {1}


def test_one_row_is_multiplied_by_dot_products_of_words():
    for target, product in (("cuda:sm_80", "gc_dot4<false, true>("), ("opencl:pocl", " = dot4(")):
        assert all(product in r.source.text for _, r in contractions(feed_forward(1), target))


def test_a_processor_without_products_of_bytes_keeps_the_difference():
    ((kernel, _), _) = contractions(feed_forward(3), "cpu:x86-64-v2")

    assert " - i32(" in kernel.text.split("  a = ")[1].splitlines()[0]


def test_products_of_pairs_take_the_zero_point_out():
    ((kernel, rendered), _) = contractions(feed_forward(3), "cpu:x86-64-v3")

    assert rendered.choice.family.engine == "pairs"
    assert " - i32(" not in kernel.text.split("  a = ")[1].splitlines()[0]


@pytest.mark.parametrize(
    ("rows", "quantized_again"), [(1, [True, True]), (31, [True, True]), (61, [True, False]), (71, [False, False])]
)
def test_codes_are_stored_where_the_columns_would_quantize_many_again(rows, quantized_again):
    """Rows of 67 codes, then of 131. From 4096 codes on they are stored."""
    texts = [kernel.text for kernel, _ in contractions(feed_forward(rows), "cpu:cascadelake")]

    assert ["round" in text.split("  a = ")[1].splitlines()[0] for text in texts] == quantized_again


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_windows_read_codes_that_are_stored_once_channels_last(dtype):
    lowered = lower(convolutions(31, dtype=dtype), resolve("cpu:sapphirerapids"))

    assert [r.choice.family.title for r in lowered.rendered.values()].count("contraction/amx") == 2
    texts = [step.kernel.text for step in lowered.rendered]
    assert sum("round(" in text for text in texts) == 4  # a zero point and the codes, for each layer
    codes = [
        v for step in lowered.rendered for v in step.outputs if v.type.size == 31 * 31 * 17 and v.type.dtype is not F32
    ]
    assert [v.shape for v in codes] == [(1, 31, 31, 17)]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_a_window_a_channel_is_summed_in_bytes(dtype):
    rendered = lower(convolutions(31, dtype=dtype, depthwise=True), resolve("cpu:sapphirerapids")).rendered

    assert [r.choice.family.title for r in rendered.values()].count("loops/bytes") == 1


def test_rows_are_summed_once_for_all_products_that_read_them_and_codes_stay_what_they_are():
    names = "qkv"
    constants = {f"w{n}": codes(67, 19, dtype=np.uint8) for n in names} | {"wz": np.array(119, np.uint8)}
    nodes = [node("MatMulInteger", ["x", f"w{n}", "z", "wz"], [n]) for n in names]
    nodes.append(node("DequantizeLinear", ["x", "scale", "z"], ["floats"]))
    made = model(
        nodes,
        [value("x", (71, 67), NUMBERS[np.uint8]), value("z", (), NUMBERS[np.uint8])],
        [*names, "floats"],
        constants | {"scale": np.float32(0.5)},
    )
    x, z = codes(71, 67, dtype=np.uint8), np.array(131, np.uint8)

    found = gpucomp.compile(made, target="cpu").run({"x": x, "z": z})
    kernels = [step.kernel for step in lower(made, resolve("cpu:sapphirerapids")).rendered]

    for n in names:
        np.testing.assert_array_equal(
            found[n], (x.astype(np.int32) - 131) @ (constants[f"w{n}"].astype(np.int32) - 119)
        )
    np.testing.assert_array_equal(found["floats"], (x.astype(np.float32) - 131) / 2)
    assert sum(k.family == "reduce" for k in kernels) == 1
