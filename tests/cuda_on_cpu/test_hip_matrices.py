"""The matrix and dot instructions of AMD's GPUs on the CPU: AMD's lanes and registers, and its roundings where they are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest

from gpucomp.kernels_templates.contraction.amd.emit import INSTRUCTIONS
from testing.cuda_on_cpu import hip
from testing.cuda_on_cpu.harness import CudaOnCpu, CudaOnCpuError, hip_compiler
from tests.cuda_on_cpu.kernel_files import broken

pytestmark = pytest.mark.skipif(hip_compiler() is None, reason="clang 18 is not installed")
WAVES = 2  # of a launch, each with operands of its own
Place = Callable[
    [int, int], tuple[int, int]
]  # row and depth (row and column of a result) to lane and element of a register


@dataclass(frozen=True)
class Matrix:
    """An instruction and where its elements are: the calculator's "Matrix element to register mapping".

    The emulation was written after its other mapping, "Register to matrix element".
    """

    archs: tuple[str, ...]
    size: int
    depth: int
    operand: tuple[str, int]  # its type, and how many elements that has
    result: tuple[str, int]
    operand_at: Place
    result_at: Place
    call: str = "({a}, {b}, {c}, 0, 0, 0)"
    copies: tuple[int, ...] = (0,)  # lanes further on that hold an operand's element again


def of_mfma(size: int, parts: int) -> tuple[Place, Place]:
    """``parts`` elements in a lane; from 4 rows on, results are in the next ``size`` lanes."""
    return (
        lambda i, k: (size * (k // parts) + i, k % parts),
        lambda i, j: (size * (i // 4) % 64 + j, 4 * (i // 8) * (size == 32) + i % 4),
    )


CDNA = ("gfx908", "gfx90a", "gfx942", "gfx950")
WMMA = ("gfx1100", "gfx1151")
BOTH_HALVES = (0, 16)
PLAIN, SIGNED = "({a}, {b}, {c})", "(true, {a}, true, {b}, {c}, false)"
OF_WMMA: tuple[Place, Place] = lambda i, k: (i, k), lambda i, j: (16 * i % 32 + j, i // 2)
OF_GFX12: tuple[Place, Place] = (
    lambda i, k: (16 * (k // 4 % 2) + i, 4 * (k // 8) + k % 4),
    lambda i, j: (16 * (i // 8) + j, i % 8),
)
BYTES_OF_GFX12: tuple[Place, Place] = lambda i, k: (16 * (k // 8) + i, k % 8), OF_GFX12[1]
MATRICES = {
    "mfma_f32_32x32x2f32": Matrix(CDNA, 32, 2, ("float", 1), ("gc_float16", 16), *of_mfma(32, 1)),
    "mfma_f32_16x16x4f32": Matrix(CDNA, 16, 4, ("float", 1), ("gc_float4", 4), *of_mfma(16, 1)),
    "mfma_f32_32x32x8f16": Matrix(CDNA, 32, 8, ("gc_half4", 4), ("gc_float16", 16), *of_mfma(32, 4)),
    "mfma_f32_16x16x16f16": Matrix(CDNA, 16, 16, ("gc_half4", 4), ("gc_float4", 4), *of_mfma(16, 4)),
    "mfma_f32_32x32x4bf16": Matrix(CDNA[:1], 32, 4, ("gc_short2", 2), ("gc_float16", 16), *of_mfma(32, 2)),
    "mfma_f32_16x16x8bf16": Matrix(CDNA[:1], 16, 8, ("gc_short2", 2), ("gc_float4", 4), *of_mfma(16, 2)),
    "mfma_f32_32x32x8bf16_1k": Matrix(CDNA[1:], 32, 8, ("gc_short4", 4), ("gc_float16", 16), *of_mfma(32, 4)),
    "mfma_f32_16x16x16bf16_1k": Matrix(CDNA[1:], 16, 16, ("gc_short4", 4), ("gc_float4", 4), *of_mfma(16, 4)),
    "mfma_i32_32x32x8i8": Matrix(CDNA[:2], 32, 8, ("int", 4), ("gc_int16", 16), *of_mfma(32, 4)),
    "mfma_i32_16x16x16i8": Matrix(CDNA[:2], 16, 16, ("int", 4), ("gc_int4", 4), *of_mfma(16, 4)),
    "mfma_i32_32x32x16_i8": Matrix(CDNA[2:], 32, 16, ("long", 8), ("gc_int16", 16), *of_mfma(32, 8)),
    "mfma_i32_16x16x32_i8": Matrix(CDNA[2:], 16, 32, ("long", 8), ("gc_int4", 4), *of_mfma(16, 8)),
    "mfma_f32_32x32x16_f16": Matrix(CDNA[3:], 32, 16, ("gc_half8", 8), ("gc_float16", 16), *of_mfma(32, 8)),
    "mfma_f32_16x16x32_f16": Matrix(CDNA[3:], 16, 32, ("gc_half8", 8), ("gc_float4", 4), *of_mfma(16, 8)),
    "mfma_f32_32x32x16_bf16": Matrix(CDNA[3:], 32, 16, ("gc_bfloat8", 8), ("gc_float16", 16), *of_mfma(32, 8)),
    "mfma_f32_16x16x32_bf16": Matrix(CDNA[3:], 16, 32, ("gc_bfloat8", 8), ("gc_float4", 4), *of_mfma(16, 8)),
    "mfma_i32_32x32x32_i8": Matrix(CDNA[3:], 32, 32, ("gc_int4", 16), ("gc_int16", 16), *of_mfma(32, 16)),
    "mfma_i32_16x16x64_i8": Matrix(CDNA[3:], 16, 64, ("gc_int4", 16), ("gc_int4", 4), *of_mfma(16, 16)),
    "wmma_f32_16x16x16_f16_w32": Matrix(
        WMMA, 16, 16, ("gc_half16", 16), ("gc_float8", 8), *OF_WMMA, PLAIN, BOTH_HALVES
    ),
    "wmma_f32_16x16x16_bf16_w32": Matrix(
        WMMA, 16, 16, ("gc_short16", 16), ("gc_float8", 8), *OF_WMMA, PLAIN, BOTH_HALVES
    ),
    "wmma_i32_16x16x16_iu8_w32": Matrix(WMMA, 16, 16, ("gc_int4", 16), ("gc_int8", 8), *OF_WMMA, SIGNED, BOTH_HALVES),
    "wmma_f32_16x16x16_f16_w32_gfx12": Matrix(
        ("gfx1201",), 16, 16, ("gc_half8", 8), ("gc_float8", 8), *OF_GFX12, PLAIN
    ),
    "wmma_f32_16x16x16_bf16_w32_gfx12": Matrix(
        ("gfx1201",), 16, 16, ("gc_short8", 8), ("gc_float8", 8), *OF_GFX12, PLAIN
    ),
    "wmma_i32_16x16x16_iu8_w32_gfx12": Matrix(
        ("gfx1201",), 16, 16, ("gc_int2", 8), ("gc_int8", 8), *BYTES_OF_GFX12, SIGNED
    ),
}
EACH = [(name, arch) for name, matrix in MATRICES.items() for arch in matrix.archs]


def element_of(name: str) -> type:
    names = {"i32_": np.int8, "bf16": ml_dtypes.bfloat16, "f16": np.float16}
    return next((element for part, element in names.items() if part in name), np.float32)


def kernel_of(name: str, arch: str, note: str = "") -> CudaOnCpu:
    """A kernel of one instruction; another ``note`` makes it another text, which is compiled again."""
    matrix = MATRICES[name]
    call = matrix.call.format(a="gc_load<A>(a + i)", b="gc_load<A>(b + i)", c="gc_load<C>(c + i)")
    text = f"""// {note}
typedef {matrix.operand[0]} A;\ntypedef {matrix.result[0]} C;
extern "C" __global__ void k_matrix(const A* a, const A* b, C* c) {{
  const int i = threadIdx.x;
  const C d = __builtin_amdgcn_{name}{call};
  memcpy(c + i, &d, sizeof d);
}}"""
    return CudaOnCpu(text, "k_matrix", arch=arch)


def product(name: str, arch: str, a: np.ndarray, b: np.ndarray, c: np.ndarray, note: str = "") -> np.ndarray:
    """``c + a @ b`` for each wave, by the instruction: elements go where AMD says, and results are read there."""
    matrix, lanes = MATRICES[name], 64 if arch in CDNA else 32
    held_a, held_b = np.zeros((2, WAVES, lanes, matrix.operand[1]), element_of(name))
    sums = np.zeros((WAVES, lanes, matrix.result[1]), c.dtype)
    for i in range(matrix.size):
        for k in range(matrix.depth):
            lane, at = matrix.operand_at(i, k)
            for more in matrix.copies:
                held_a[:, lane + more, at], held_b[:, lane + more, at] = a[:, i, k], b[:, k, i]
    places = np.array([[matrix.result_at(i, j) for j in range(matrix.size)] for i in range(matrix.size)])
    sums[:, places[..., 0], places[..., 1]] = c
    kernel_of(name, arch, note).run((1,), (WAVES * lanes,), [held_a, held_b, sums])
    return sums[:, places[..., 0], places[..., 1]]


def numbers(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Operands whose sums every arithmetic gives exactly."""
    matrix, rng = MATRICES[name], np.random.default_rng(5)
    element = element_of(name)
    most = 128 if element is np.int8 else 9
    sums = np.int32 if element is np.int8 else np.float32
    shapes = (matrix.size, matrix.depth), (matrix.depth, matrix.size), (matrix.size, matrix.size)
    a, b, c = (rng.integers(-most, most, (WAVES, *shape)) for shape in shapes)
    return a.astype(element), b.astype(element), c.astype(sums)


def is_right(name: str, arch: str, note: str = "") -> bool:
    a, b, c = numbers(name)
    return np.array_equal(product(name, arch, a, b, c, note), c + np.matmul(a.astype(c.dtype), b.astype(c.dtype)))


def test_every_instruction_that_templates_ask_for_is_here():
    asked = {each.builtin for found in INSTRUCTIONS.values() for each in found.values()}

    assert asked == {f"__builtin_amdgcn_{name}" for name in MATRICES}


@pytest.mark.parametrize(("name", "arch"), EACH)
def test_lanes_and_registers_are_amd_s(name, arch):
    assert is_right(name, arch)


MISTAKES = [  # a depth that is permuted alike in both operands is none
    (
        "mfma_f32_32x32x8f16",
        "gfx90a",
        "row = 8 * (v / 4) + 4 * (lane / size)",
        "row = 4 * (v / 4) + 16 * (lane / size)",
    ),
    ("mfma_i32_32x32x16_i8", "gfx942", "all[k / parts * size + row]", "all[k % 2 * size + row]"),
    ("mfma_f32_16x16x4f32", "gfx90a", "column = lane % size", "column = lane / 4 % size"),
    ("mfma_f32_32x32x4bf16", "gfx908", "all[k / parts * size + row]", "all[(k + 2) % 4 / parts * size + row]"),
    ("mfma_f32_16x16x16bf16_1k", "gfx90a", "column = lane % size", "column = lane / 4 % size"),
    ("mfma_f32_32x32x8bf16_1k", "gfx942", "row = 8 * (v / 4)", "row = 8 * (3 - v / 4)"),
    ("mfma_f32_32x32x16_f16", "gfx950", "all[k / parts * size + row]", "all[(k + 8) % 16 / parts * size + row]"),
    ("mfma_f32_16x16x32_bf16", "gfx950", "row = 8 * (v / 4) + 4 * (lane / size)", "row = lane / size + 4 * v - v % 4"),
    ("mfma_i32_16x16x64_i8", "gfx950", "column = lane % size", "column = lane / 4 % size"),
    ("wmma_f32_16x16x16_bf16_w32", "gfx1151", "all[2 * v + lane / 16]", "all[v + lane / 16 * 8]"),
    ("wmma_f32_16x16x16_bf16_w32_gfx12", "gfx1201", "all[half + lane % 16].b, at)", "all[half + lane % 16].b, at ^ 4)"),
    ("wmma_i32_16x16x16_iu8_w32_gfx12", "gfx1201", "half + 8 * (lane / 16) + v", "half + 2 * v + lane / 16"),
    ("wmma_i32_16x16x16_iu8_w32_gfx12", "gfx1201", "all[half + lane % 16].b, at)", "all[half + lane % 16].b, at ^ 1)"),
    ("wmma_f32_16x16x16_f16_w32", "gfx1100", "all[2 * v + lane / 16]", "all[v + lane / 16 * 8]"),
    ("wmma_i32_16x16x16_iu8_w32", "gfx1100", "all[lane % 16].b, k)", "all[lane % 16].b, k ^ 3)"),
    ("wmma_f32_16x16x16_f16_w32_gfx12", "gfx1201", "half + 8 * (lane / 16) + v", "half + 2 * v + lane / 16"),
    ("wmma_f32_16x16x16_f16_w32_gfx12", "gfx1201", "all[half + lane % 16].b, at)", "all[half + lane % 16].b, at ^ 4)"),
]


@pytest.mark.parametrize(("name", "arch", "replace", "by"), MISTAKES)
def test_another_layout_is_seen(name, arch, replace, by, monkeypatch):
    whole = hip.header(arch)
    monkeypatch.setattr(hip, "header", lambda arch: broken(whole, replace=replace, by=by))

    assert not is_right(name, arch, note=by)


def test_lanes_that_hold_other_copies_are_an_error():
    name = "wmma_f32_16x16x16_f16_w32"
    held = np.ones((WAVES, 32, 16), np.float16)
    held[1, 20, 3] = 2

    with pytest.raises(CudaOnCpuError, match=r"thread \(36, 0, 0\): Illegal instruction"):
        kernel_of(name, "gfx1100").run((1,), (64,), [held, held.copy(), np.zeros((WAVES, 32, 8), np.float32)])


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        ("mfma_i32_32x32x8i8", "gfx942"),
        ("mfma_i32_32x32x16_i8", "gfx90a"),
        ("mfma_f32_32x32x8bf16_1k", "gfx908"),
        ("mfma_f32_16x16x32_f16", "gfx942"),
        ("wmma_f32_16x16x16_bf16_w32", "gfx1201"),
    ],
)
def test_an_instruction_of_another_device_is_refused(name, arch):
    with pytest.raises(CudaOnCpuError, match=f"undeclared identifier '__builtin_amdgcn_{name}'"):
        kernel_of(name, arch)


def first_sum(name: str, arch: str, a: list[float], b: list[float], c: float) -> np.float32:
    """The first result where the first row and column begin with ``a`` and ``b``; all else is zero."""
    matrix = MATRICES[name]
    left, right = np.zeros((WAVES, matrix.size, matrix.depth)), np.zeros((WAVES, matrix.depth, matrix.size))
    left[0, 0, : len(a)], right[0, : len(b), 0] = a, b
    sums = np.zeros((WAVES, matrix.size, matrix.size), np.float32)
    sums[0, 0, 0] = c
    return product(name, arch, left.astype(element_of(name)), right.astype(element_of(name)), sums)[0, 0, 0]


ULP = np.float32(2.0**-23)
HALVES = dict.fromkeys(CDNA, "mfma_f32_16x16x16f16")
HALVES |= {"gfx1100": "wmma_f32_16x16x16_f16_w32", "gfx1201": "wmma_f32_16x16x16_f16_w32_gfx12"}


BF16 = {"gfx908": "mfma_f32_16x16x8bf16", "gfx90a": "mfma_f32_16x16x16bf16_1k", "gfx942": "mfma_f32_16x16x16bf16_1k"}
BF16 |= {"gfx1100": "wmma_f32_16x16x16_bf16_w32", "gfx1201": "wmma_f32_16x16x16_bf16_w32_gfx12"}


@pytest.mark.parametrize("arch", BF16)
def test_subnormal_bf16_are_zero_on_cdna2_alone(arch):
    found = first_sum(BF16[arch], arch, [2.0**-130], [2.0**100], 0.0)

    assert found == (0.0 if arch == "gfx90a" else 2.0**-30)


@pytest.mark.parametrize(("arch", "right"), {"gfx908": 1, "gfx90a": 1 + ULP, "gfx942": 1 + ULP, "gfx1100": 1}.items())
def test_two_products_of_bf16_meet_before_the_sum_on_cdna1_and_four_on_cdna2(arch, right):
    small = 0.75 * 2.0**-12  # times 2^-12: three quarters of half an ulp of the sum so far

    assert first_sum(BF16[arch], arch, [small, 0, small], [2.0**-12, 0, 2.0**-12], 1.0) == np.float32(right)
    if arch == "gfx908":
        assert first_sum(BF16[arch], arch, [small, small], [2.0**-12, 2.0**-12], 1.0) == 1 + ULP


def test_products_of_bf16_that_f32_cannot_hold_are_infinite_on_cdna3():
    assert first_sum(BF16["gfx942"], "gfx942", [2.0**100, 2.0**100], [2.0**50, -1.0], 0.0) == np.inf


@pytest.mark.parametrize("arch", HALVES)
def test_subnormal_halves_are_zero_on_cdna2_alone(arch):
    found = first_sum(HALVES[arch], arch, [2.0**-20], [1.0], 0.0)

    assert found == (0.0 if arch == "gfx90a" else 2.0**-20)


@pytest.mark.parametrize(("arch", "right"), {"gfx90a": 1 + ULP, "gfx942": 1, "gfx1100": 1}.items())
def test_small_products_meet_before_the_sum_on_cdna2_and_are_cut_off_on_cdna3(arch, right):
    small = 0.75 * 2.0**-12  # times 2^-12: three quarters of half an ulp of the first product

    assert first_sum(HALVES[arch], arch, [1, 0, small, small], [1, 0, 2.0**-12, 2.0**-12], 0.0) == np.float32(right)


@pytest.mark.parametrize(("arch", "right"), {"gfx90a": 1, "gfx942": 1 - ULP / 2}.items())
def test_cdna3_rounds_the_smaller_sum_so_far_down(arch, right):
    assert first_sum(HALVES[arch], arch, [1.0], [1.0], -(2.0**-26)) == np.float32(right)


def test_products_of_floats_are_added_without_a_rounding_of_their_own():
    x = np.float32(1 + 2.0**-12)  # its square has 24 more bits

    found = first_sum("mfma_f32_16x16x4f32", "gfx90a", [x], [x], -1.0)

    assert found == 2.0**-11 + 2.0**-24


SIGNS = {"s": np.int8, "u": np.uint8}


@pytest.mark.parametrize(
    ("arch", "signs", "call"),
    [
        ("gfx906", "ss", "__builtin_amdgcn_sdot4(a[i], b[i], c[i], false)"),
        ("gfx1030", "uu", "(int)__builtin_amdgcn_udot4(a[i], b[i], c[i], false)"),
        *(
            (
                "gfx1100",
                f"{s}{t}",
                f"__builtin_amdgcn_sudot4({int(s == 's')}, a[i], {int(t == 's')}, b[i], c[i], false)",
            )
            for s in SIGNS
            for t in SIGNS
        ),
    ],
)
def test_dot_products_of_bytes_are_exact_and_sums_wrap(arch, signs, call):
    text = f"""extern "C" __global__ void k_dot(const int* a, const int* b, int* c) {{
      const int i = threadIdx.x;
      c[i] = {call};
    }}"""
    rng = np.random.default_rng(2)
    a, b = (rng.integers(0, 256, (2, 64, 4), np.uint8)).view(np.int8)
    c = rng.integers(-(2**31), 2**31, 64).astype(np.int32)
    c[:2] = 2**31 - 1, -(2**31)
    wide = [x.view(SIGNS[s]).astype(np.int64) for x, s in zip((a, b), signs, strict=True)]
    right = ((wide[0] * wide[1]).sum(1) + c).astype(np.int32)  # which wraps

    CudaOnCpu(text, "k_dot", arch=arch).run((1,), (64,), [a, b, c])

    np.testing.assert_array_equal(c, right)


def test_dot_products_of_two_halves_round_once_and_are_never_subnormal():
    text = """extern "C" __global__ void k_dot(const gc_half2* a, const gc_half2* b, float* c) {
      const int i = threadIdx.x;
      c[i] = __builtin_amdgcn_fdot2(a[i], b[i], c[i], false);
    }"""
    a, b = (np.ones((64, 2), np.float16) for _ in "ab")
    c = np.zeros(64, np.float32)
    a[0], b[0], c[0] = 2.0**-12, 0.75 * 2.0**-12, 1.0  # each product is less than half an ulp
    a[1], b[1], c[1] = (2.0**-24, 0.0), (1.0, 0.0), 0.0  # the least subnormal half
    a[2], b[2], c[2] = (0.0, 0.0), (0.0, 0.0), -(2.0**-140)

    CudaOnCpu(text, "k_dot", arch="gfx906").run((1,), (64,), [a, b, c])

    assert c[:3].tolist() == [1 + ULP, 2.0**-24, 0.0]
    assert np.signbit(c[2])
    np.testing.assert_array_equal(c[3:], 2)
