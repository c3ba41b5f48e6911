"""ldmatrix and mma of the portable prelude: every fragment against numpy, by the tables of the PTX manual."""

import functools
import re

import ml_dtypes
import numpy as np
import pytest

from testing.cuda_on_cpu.harness import ORDERS, CudaOnCpu, CudaOnCpuError, compile_many
from tests.cuda_on_cpu.kernel_files import kernel_text

SOURCE = kernel_text("fragments")
G, T = np.arange(32) // 4, np.arange(32) % 4
# A register of a holds depth from p * t, a row half, a depth half; p elements a register
SHAPES = {  # rows, depth, dtype of a, dtype of b
    "m16n8k8_f16": (16, 8, np.float16, np.float16),
    "m16n8k16_f16": (16, 16, np.float16, np.float16),
    "m16n8k16_bf16": (16, 16, ml_dtypes.bfloat16, ml_dtypes.bfloat16),
    "m16n8k8_tf32": (16, 8, np.float32, np.float32),
    "m8n8k16_s8s8": (8, 16, np.int8, np.int8),
    "m8n8k16_u8s8": (8, 16, np.uint8, np.int8),
    "m8n8k16_s8u8": (8, 16, np.int8, np.uint8),
    "m8n8k16_u8u8": (8, 16, np.uint8, np.uint8),
    "m16n8k32_s8s8": (16, 32, np.int8, np.int8),
    "m16n8k32_u8s8": (16, 32, np.uint8, np.int8),
    "m16n8k32_s8u8": (16, 32, np.int8, np.uint8),
    "m16n8k32_u8u8": (16, 32, np.uint8, np.uint8),
}


@functools.cache
def kernel(name: str) -> CudaOnCpu:
    names = re.findall(r"\bk_\w+(?=\()", SOURCE)
    return compile_many([(SOURCE, n) for n in names])[names.index(f"k_{name}")]


def random(rng: np.random.Generator, shape: tuple[int, ...], dtype: type) -> np.ndarray:
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max + 1, shape).astype(dtype)
    x = rng.standard_normal(shape).astype(dtype)
    return (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) if dtype is np.float32 else x


def registers(matrix: np.ndarray) -> np.ndarray:
    """(words, lanes) of a matrix [span][depth]: row g + 8 * half, depth t * packed and 4 * packed further."""
    packed = 4 // matrix.itemsize
    words = []
    for step in range(matrix.shape[1] // (4 * packed)):
        for half in range(matrix.shape[0] // 8):
            start = 4 * packed * step + packed * T
            elements = [matrix[G + 8 * half, start + e] for e in range(packed)]
            words.append(np.stack(elements, 1).copy().view(np.uint32)[:, 0])
    return np.ascontiguousarray(words)


def result_of(words: np.ndarray) -> np.ndarray:
    """c[row][column] of (words, lanes)."""
    c = np.zeros((4 * len(words), 8), words.dtype)
    for i, word in enumerate(words):
        c[G + 8 * (i // 2), 2 * T + i % 2] = word
    return c


def added_in_blocks(before: np.ndarray, a: np.ndarray, b: np.ndarray, width: int, *, extra: int) -> np.ndarray:
    """``before + a @ b.T`` as matrix units add: ``width`` products and the sum before them on one grid, cut towards zero.

    The grid ends ``extra`` bits below f32's last of the largest exponent (arXiv 2512.07004).
    """
    total, a, b = before.astype(np.float64), a.astype(np.float64), b.astype(np.float64)
    for k in range(0, a.shape[1], width):
        left, right = a[:, None, k : k + width], b[None, :, k : k + width]
        largest = np.maximum((exponent(left) + exponent(right)).max(axis=2), exponent(total))
        grid = np.exp2(largest - 23.0 - extra)
        total = (np.trunc(left * right / grid[..., None]).sum(axis=2) + np.trunc(total / grid)) * grid
        near = total.astype(np.float32)
        total = np.where(np.abs(near) > np.abs(total), np.nextafter(near, np.float32(0)), near).astype(np.float64)
    return total.astype(np.float32)


def exponent(x: np.ndarray) -> np.ndarray:
    return np.where(x == 0, -1000, np.frexp(x)[1] - 1)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", SHAPES)
def test_an_mma_multiplies_the_fragments_of_the_manual(name, order):
    rows, depth, a_type, b_type = SHAPES[name]
    rng = np.random.default_rng(7)
    a, b = random(rng, (rows, depth), a_type), random(rng, (8, depth), b_type)
    is_float = np.dtype(a_type).kind not in "iu"
    c = (
        rng.standard_normal((rows // 4, 32)).astype(np.float32)
        if is_float
        else rng.integers(-(2**20), 2**20, (rows // 4, 32)).astype(np.int32)
    )
    before = result_of(c)

    kernel(name).run((1,), (32,), [registers(a), registers(b), c], order=order)

    if is_float:
        assert (
            result_of(c) == added_in_blocks(before, a, b, 4 if np.dtype(a_type).itemsize == 4 else 8, extra=1)
        ).all()
    else:
        assert (result_of(c) == before + a.astype(np.int32) @ b.astype(np.int32).T).all()


def test_an_mma_cuts_off_what_lies_far_below_its_largest_term():
    """Of ones and products of 2^-24 and 2^-25: the former lie one bit below f32's last, which is kept, the latter two."""
    a, b = np.zeros((16, 16), np.float16), np.zeros((8, 16), np.float16)
    a[:, :8], b[0, :2], b[1, :4], b[2, 4:8] = 2.0**-12, 2.0**-12, 2.0**-13, 2.0**-13
    a[8:, 15], b[2, 15] = 1, 1
    c = np.ones((4, 32), np.float32)

    kernel("m16n8k16_f16").run((1,), (32,), [registers(a), registers(b), c])

    found = result_of(c)
    assert (found[:, 0] == 1 + 2.0**-23).all()
    assert (found[:, 1] == 1).all()
    assert (found[:8, 2] == 1).all()
    assert (found[8:, 2] == 2).all()


@pytest.mark.parametrize(("name", "a_type", "b_type"), [
    ("s8s8", np.int8, np.int8), ("u8s8", np.uint8, np.int8), ("s8u8", np.int8, np.uint8), ("u8u8", np.uint8, np.uint8),
])  # fmt: skip
def test_a_dot_product_of_four_bytes_wraps(name, a_type, b_type):
    rng = np.random.default_rng(11)
    a, b = (rng.integers(0, 2**32, 64, np.uint32) for _ in range(2))
    a[:2], b[:2] = [0x80808080, 0xFFFFFFFF], [0x7F7F7F7F, 0xFFFFFFFF]
    sums = rng.integers(-(2**31), 2**31, 64).astype(np.int32)
    sums[:4] = [2**31 - 1, 2**31 - 1, -(2**31), -1]
    four = [x.view(t).reshape(64, 4).astype(np.int64) for x, t in ((a, a_type), (b, b_type))]
    wanted = (sums + (four[0] * four[1]).sum(axis=1)).astype(np.uint64).astype(np.uint32).view(np.int32)

    kernel(f"dot4_{name}").run((2,), (32,), [a, b, sums])

    np.testing.assert_array_equal(sums, wanted)


def test_an_mma_ignores_the_bits_that_tf32_lacks():
    rng = np.random.default_rng(3)
    a, b = random(rng, (16, 8), np.float32), random(rng, (8, 8), np.float32)
    more = (a.view(np.uint32) | rng.integers(0, 2**13, a.shape, np.uint32)).view(np.float32)
    found = []
    for x in (a, more):
        c = np.zeros((4, 32), np.float32)
        kernel("m16n8k8_tf32").run((1,), (32,), [registers(x), registers(b), c])
        found.append(c)

    assert (found[0] == found[1]).all()


@pytest.mark.parametrize("order", ORDERS)
def test_ldmatrix_hands_out_rows_or_columns(order):
    rng = np.random.default_rng(1)
    x = rng.integers(0, 2**16, (32, 8), np.uint16)
    rows = rng.permutation(32).astype(np.int32)
    y = np.zeros((14, 32), np.uint32)

    kernel("ldmatrix").run((1,), (32,), [x, rows, y], order=order)

    matrices = x[rows].reshape(4, 8, 8)
    for first, count, m in (
        (0, 1, matrices),
        (1, 2, matrices),
        (3, 4, matrices),
        (7, 1, matrices.transpose(0, 2, 1)),
        (8, 2, matrices.transpose(0, 2, 1)),
        (10, 4, matrices.transpose(0, 2, 1)),
    ):
        for i in range(count):
            pair = m[i, G, 2 * T].astype(np.uint32) | m[i, G, 2 * T + 1].astype(np.uint32) << np.uint32(16)
            assert (y[first + i] == pair).all(), (first, i)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ldmatrix_misaligned", r"thread \(3, 0, 0\): gc_ldmatrix_x1: misaligned address"),
        ("ldmatrix_of_global", "gc_ldmatrix_x1: the address is not in shared memory"),
    ],
)
def test_a_row_that_a_device_would_refuse_is_an_error(name, message):
    with pytest.raises(CudaOnCpuError, match=message):
        kernel(name).run((1,), (32,), [np.zeros(128, np.uint32)])


def test_tf32_rounds_halves_away_from_zero():
    bits = np.random.default_rng(2).integers(0, 2**32, 2048, np.uint32)
    special = [0x3F801000, 0xBF801000, 0x3F800FFF, 0x3F801001, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00001, 1, 0]
    bits[: len(special)] = special
    x, y = bits.view(np.float32), np.zeros(2048, np.uint32)

    kernel("float_to_tf32").run((8,), (256,), [x, y])

    finite = np.isfinite(x)
    exponent = np.maximum(np.frexp(x[finite])[1], -125)  # below 2^-126 the spacing stays
    step = np.ldexp(1.0, exponent - 24 + 13)
    wanted = np.copysign(np.floor(np.abs(x[finite].astype(np.float64)) / step + 0.5) * step, x[finite])
    with np.errstate(over="ignore"):
        assert (y.view(np.float32)[finite] == wanted.astype(np.float32)).all()
    assert (np.isnan(y.view(np.float32)) == np.isnan(x)).all()
    assert (y.view(np.float32)[np.isinf(x)] == x[np.isinf(x)]).all()
