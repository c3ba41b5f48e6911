"""Models of bytes on tile registers: those of the processor where it has them, else tiles in software."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import onnx
import pytest

import gpucomp
from gpucomp import config
from gpucomp.ir.dim import Dim
from gpucomp.targets import cpu
from testing.tolerance import assert_identical
from tests.kernel.passes.test_run_time_zero_points import PRODUCTS, Product, codes, convolutions, feed_forward
from tests.matrix_emulation import with_tiles, without_tiles
from tests.onnx_builders import model, node, value

pytestmark = [
    pytest.mark.skipif(
        not cpu.host().features.issuperset({"avx2", "fma"}), reason="tiles in software need AVX2 and FMA"
    ),
    pytest.mark.usefixtures("strict_tiles"),
]
RNG = np.random.default_rng(29)
WIDTH, HEADS, DEEP, PRODUCTS_OF_BYTES = 44, 2, 131, 6
BYTE = {np.uint8: np.uint8(119), np.int8: np.int8(0)}  # zero points of weights


def tile_kernels(exe: gpucomp.Executable) -> int:
    """Launches of kernels on tiles."""
    plan = exe.contents().plan
    return [plan.kernels[launch.kernel].family for launch in plan.launches].count("contraction/amx")


def compiled(proto: onnx.ModelProto, **options: object) -> Iterator[gpucomp.Executable]:
    """For a processor with tiles, then for one without."""
    with with_tiles():
        yield gpucomp.compile(proto, target="cpu", **options)
    with without_tiles():
        yield gpucomp.compile(proto, target="cpu", **options)


def check(proto: onnx.ModelProto, feeds: Sequence[Mapping[str, np.ndarray]], tiles: int, **options: object) -> None:
    """``tiles`` kernels use tile registers, and give the bits of the engine of a processor without them."""
    found = []
    for exe, wanted in zip(compiled(proto, **options), (tiles, 0), strict=True):
        assert tile_kernels(exe) == wanted
        found.append([exe.run(feed) for feed in feeds])
    for ours, others in zip(*found, strict=True):
        assert ours.keys() == others.keys()
        for name, array in ours.items():
            assert np.isfinite(array).all()
            assert_identical(array, others[name])


class Encoder:
    """Nodes and weights of a transformer's encoder whose linear layers multiply bytes."""

    def __init__(self, weights: type, static: bool) -> None:
        self.weights, self.static = weights, static
        self.nodes: list[onnx.NodeProto] = []
        self.arrays: dict[str, np.ndarray] = {}

    def constant(self, name: str, array: object) -> str:
        self.arrays[name] = np.asarray(array)
        return name

    def op(self, operator: str, inputs: Sequence[str], name: str, **attributes: object) -> str:
        self.nodes.append(node(operator, list(inputs), [name], **attributes))
        return name

    def linear(self, x: str, columns: int, depth: int, to: str) -> str:
        bias = self.constant(f"{to}.bias", RNG.standard_normal(columns).astype(np.float32))
        w = self.constant(f"{to}.w", codes(depth, columns, dtype=self.weights))
        return self.op("Add", [(self._static if self.static else self._dynamic)(x, w, to), bias], to)

    def _dynamic(self, x: str, w: str, to: str) -> str:
        """As onnxruntime's quantize_dynamic writes it."""
        q, scale, zero = (f"{to}.{part}" for part in ("q", "scale", "zero"))
        self.nodes.append(node("DynamicQuantizeLinear", [x], [q, scale, zero]))
        w_zero = self.constant(f"{to}.wz", BYTE[self.weights])
        w_scale = self.constant(f"{to}.ws", np.float32(0.004))
        sums = self.op("Cast", [self.op("MatMulInteger", [q, w, zero, w_zero], f"{to}.sums")], f"{to}.cast", to=1)
        return self.op("Mul", [sums, self.op("Mul", [scale, w_scale], f"{to}.both")], f"{to}.product")

    def _static(self, x: str, w: str, to: str) -> str:
        """As onnxruntime's quantize_static writes it: codes that are read back, and a scale for each column."""
        columns = self.arrays[w].shape[1]
        w_scale = self.constant(f"{to}.ws", RNG.uniform(0.002, 0.006, columns).astype(np.float32))
        w_zero = self.constant(f"{to}.wz", np.zeros(columns, np.int8))
        scale, zero = self.constant(f"{to}.s", np.float32(0.03)), self.constant(f"{to}.z", np.uint8(121))
        read = self.op("QuantizeLinear", [x, scale, zero], f"{to}.codes")
        factors = [self.op("DequantizeLinear", [read, scale, zero], f"{to}.x")]
        factors.append(self.op("DequantizeLinear", [w, w_scale, w_zero], f"{to}.filters", axis=1))
        return self.op("MatMul", factors, f"{to}.product")

    def heads(self, x: str, to: str) -> str:
        shape = self.constant("heads", np.array([0, 0, HEADS, WIDTH // HEADS], np.int64))
        return self.op("Transpose", [self.op("Reshape", [x, shape], f"{to}.parts")], to, perm=[0, 2, 1, 3])

    def layer(self, x: str, name: str) -> str:
        q, k, v = (self.heads(self.linear(x, WIDTH, WIDTH, f"{name}.{p}"), f"{name}.{p}.heads") for p in "qkv")
        turned = self.op("Transpose", [k], f"{name}.turned", perm=[0, 1, 3, 2])
        scaled = self.op("Mul", [q, self.constant("factor", np.float32((WIDTH / HEADS) ** -0.5))], f"{name}.scaled")
        share = self.op("Softmax", [self.op("MatMul", [scaled, turned], f"{name}.scores")], f"{name}.share")
        mixed = self.op("MatMul", [share, v], f"{name}.mixed")
        back = self.op("Transpose", [mixed], f"{name}.back", perm=[0, 2, 1, 3])
        rows = self.op("Reshape", [back, self.constant("rows", np.array([0, 0, WIDTH], np.int64))], f"{name}.rows")
        first = self.norm(x, self.linear(rows, WIDTH, WIDTH, f"{name}.out"), f"{name}.first")
        deep = self.op("Gelu", [self.linear(first, DEEP, WIDTH, f"{name}.deep")], f"{name}.gelu")
        return self.norm(first, self.linear(deep, WIDTH, DEEP, f"{name}.flat"), name)

    def norm(self, x: str, y: str, to: str) -> str:
        gain, bias = (self.constant(f"{to}.{part}", RNG.uniform(0.5, 1.5, WIDTH).astype(np.float32)) for part in "gb")
        return self.op("LayerNormalization", [self.op("Add", [x, y], f"{to}.sum"), gain, bias], to, axis=-1)


def encoder(weights: type, static: bool, shape: Sequence[int | str] = (2, 37)) -> onnx.ModelProto:
    made = Encoder(weights, static)
    made.layer("x", "y")
    return model(made.nodes, [value("x", (*shape, WIDTH))], [value("y", (*shape, WIDTH))], made.arrays)


def rows(*shape: int) -> dict[str, np.ndarray]:
    return {"x": RNG.standard_normal((*shape, WIDTH)).astype(np.float32)}


@pytest.mark.parametrize(
    ("weights", "static", "threads"),
    [(np.int8, False, 2), (np.uint8, False, 1), (np.int8, True, 1)],
    ids=["i8", "u8", "static"],
)
def test_an_encoder_gives_the_bits_of_other_engines(weights: type, static: bool, threads: int) -> None:
    with config.using(threads=threads):
        check(encoder(weights, static), [rows(2, 37), rows(2, 37)], PRODUCTS_OF_BYTES)


def test_an_encoder_of_any_size_gives_the_bits_of_other_engines() -> None:
    sizes = {"x": (Dim("b", 1, 3), Dim("t", 1, 70), WIDTH)}
    feeds = [rows(*shape) for shape in ((1, 1), (1, 16), (2, 37), (3, 70), (1, 17), (1, 3))]

    with config.using(threads=1):
        check(encoder(np.int8, False, ("b", "t")), feeds, PRODUCTS_OF_BYTES, shapes=sizes)


@pytest.mark.skipif(
    "avx512f" not in cpu.host().features,
    reason="a product and a sum after it may be one instruction or two: smaller vectors differ in that between these engines",
)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8], ids=["i8", "u8"])
def test_padded_windows_give_the_bits_of_other_engines(dtype: type) -> None:
    image = RNG.standard_normal((1, 5, 31, 31)).astype(np.float32)

    with config.using(threads=1):
        check(convolutions(31, dtype=dtype), [{"x": image}], 2)


# exact sums, compared with numpy's


def exact(product: Product, *, tiles: bool) -> None:
    ends = np.iinfo(product.zero.dtype)
    with with_tiles():
        exe = gpucomp.compile(product.proto, target="cpu")
        assert tile_kernels(exe) == tiles
        for zero in (product.zero, np.full_like(product.zero, ends.min), np.full_like(product.zero, ends.max)):
            np.testing.assert_array_equal(product.feed(exe, zero), product.expected(zero))


ON_TILES = ("u8 by i8", "i8 by i8", "batched, a zero point for each row", "i8 by u8, one zero point a column",
            "padded windows", "padded windows, u8 by u8, one zero point", "padded windows, one zero point a column",
            "padded windows in groups, one zero point a column")  # fmt: skip


@pytest.mark.parametrize("name", ON_TILES)
def test_zero_points_of_a_run_are_taken_out(name: str) -> None:
    exact(PRODUCTS[name], tiles=True)


# rows, columns and depth; around the 16 rows and columns and the 64 points of k of a tile, and far from them
SIZES = [
    (4, 2, 64), (5, 16, 63), (15, 17, 65), (16, 15, 64), (17, 33, 128), (31, 31, 127), (32, 32, 5), (33, 47, 2),
    (47, 49, 3), (48, 64, 191), (49, 97, 193), (63, 5, 61), (64, 48, 320), (65, 2, 4), (97, 113, 67), (130, 80, 96),
]  # fmt: skip
SIGNS = [(np.uint8, np.int8), (np.int8, np.int8), (np.int8, np.uint8), (np.uint8, np.uint8)]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: "x".join(map(str, size)))
def test_sums_of_awkward_sizes_are_numpy_s(size: tuple[int, int, int]) -> None:
    m, n, k = size
    a, b = SIGNS[SIZES.index(size) % 4]
    zero = np.array(np.iinfo(a).max - 3, a)
    w_zero = None if b is np.int8 else np.array(119, b)

    exact(Product(codes(m, k, dtype=a), codes(k, n, dtype=b), zero, w_zero), tiles=True)


@pytest.mark.parametrize(("a", "b"), SIGNS, ids=["u8 i8", "i8 i8", "i8 u8", "u8 u8"])
def test_the_largest_sums_do_not_saturate(a: type, b: type) -> None:
    """All codes at an end of their type: sums of two products leave 16 bits, where ``vpmaddubsw`` saturates."""
    depth = 259
    for left in (np.iinfo(a).min, np.iinfo(a).max):
        x, w = np.full((19, depth), left, a), np.full((depth, 21), np.iinfo(b).min or np.iinfo(b).max, b)
        exact(Product(x, w, np.array(0, a)), tiles=True)


@pytest.mark.parametrize(("a", "b"), SIGNS, ids=["u8 i8", "i8 i8", "i8 u8", "u8 u8"])
def test_both_factors_may_be_inputs(a: type, b: type) -> None:
    """Scores of attention in bytes: no operand is packed when the model is compiled."""
    numbers = {np.uint8: onnx.TensorProto.UINT8, np.int8: onnx.TensorProto.INT8}
    q, k = codes(2, 3, 37, 43, dtype=a), codes(2, 3, 29, 43, dtype=b)
    nodes = [node("Transpose", ["k"], ["turned"], perm=[0, 1, 3, 2]), node("MatMulInteger", ["q", "turned"], ["y"])]
    inputs = [value("q", q.shape, numbers[a]), value("k", k.shape, numbers[b])]
    proto = model(nodes, inputs, [value("y", None, onnx.TensorProto.INT32)])

    with with_tiles():
        exe = gpucomp.compile(proto, target="cpu")
        assert tile_kernels(exe) == 1
        found = exe.run({"q": q, "k": k})["y"]

    np.testing.assert_array_equal(found, q.astype(np.int32) @ k.astype(np.int32).transpose(0, 1, 3, 2))


# what keeps other engines


@pytest.mark.parametrize(
    "make", [lambda: encoder(np.int8, False, (1, 1)), lambda: feed_forward(1)], ids=["encoder", "two layers"]
)
def test_one_row_is_left_to_dot_products(make: Callable[[], onnx.ModelProto]) -> None:
    with with_tiles():
        assert tile_kernels(gpucomp.compile(make(), target="cpu")) == 0


def test_sums_of_floats_are_left_to_register_blocks() -> None:
    """Weights of bytes that are read back to f32 are no products of bytes: rounding rows to bytes would change the answer."""
    arrays = {"w": codes(67, 33), "s": np.float32(0.01), "z": np.int8(0)}
    nodes = [node("DequantizeLinear", ["w", "s", "z"], ["f"]), node("MatMul", ["x", "f"], ["y"])]
    proto = model(nodes, [value("x", (37, 67))], [value("y", (37, 33))], {k: np.asarray(v) for k, v in arrays.items()})

    with with_tiles():
        assert tile_kernels(gpucomp.compile(proto, target="cpu")) == 0
