"""The two bodies of the gc_* prelude: they declare the same functions, compile and compute right."""

import functools
import math
import re

import ml_dtypes
import numpy as np
import pytest

from testing.cuda_on_cpu.harness import ORDERS, PRELUDE, CudaOnCpu, compile_many
from tests import nvrtc
from tests.cuda_on_cpu.kernel_files import KERNEL_FILES, PRELUDE_CUDA, architectures, broken, kernel_text

DECLARATION = re.compile(r"^(template <[^>]*>\n)?__device__ __forceinline__ ([^;{]*?\bgc_\w+\([^)]*\))", re.MULTILINE)
CONVERSIONS, COLLECTIVES = kernel_text("conversions"), kernel_text("collectives")
FLOATS = ("f32", "f64")


def declarations(text: str) -> list[str]:
    return [" ".join("".join(match).split()) for match in DECLARATION.findall(text)]


def test_both_preludes_declare_the_same_functions():
    cuda, cpu = PRELUDE_CUDA.read_text(), PRELUDE.read_text()

    assert declarations(cpu) == declarations(cuda)
    # neither hides a device function behind another spelling
    assert len(declarations(cuda)) == cuda.count("__forceinline__") == cuda.count("__device__")


@pytest.mark.parametrize(
    ("signature", "other"), [("int lane_mask)", "unsigned lane_mask)"), ("gc_cp_async8(", "gc_cp_async9(")]
)
def test_a_signature_that_differs_is_seen(signature, other):
    cuda = PRELUDE_CUDA.read_text()

    assert declarations(broken(cuda, replace=signature, by=other)) != declarations(cuda)


def test_the_kernels_here_use_every_function_of_the_prelude():
    used = "\n".join(path.read_text() for path in KERNEL_FILES)

    for declaration in declarations(PRELUDE_CUDA.read_text()):
        name = re.search(r"gc_\w+(?=\()", declaration)[0]
        assert re.search(rf"\b{name}\b", used), f"{name} is never called"


@pytest.mark.parametrize(
    ("path", "arch"),
    [(p, a) for p in KERNEL_FILES for a in architectures(p, nvrtc.ARCHITECTURES)],
    ids=lambda value: getattr(value, "stem", value),
)
def test_the_same_sources_compile_with_nvrtc_without_spills(path, arch):
    compiled = nvrtc.compile(PRELUDE_CUDA.read_text() + path.read_text(), arch)

    assert compiled.cubin[:4] == b"\x7fELF"
    assert set(compiled.kernels) == set(re.findall(r"\bk_\w+(?=\()", path.read_text()))
    for kernel, resources in compiled.kernels.items():
        assert resources.spill_store_bytes == resources.spill_load_bytes == 0, kernel
        # setmaxnreg deals out what launch bounds leave a thread: all of that has to be there
        least, most = {"k_wgmma_f16": (128, 128), "k_wgmma_chained": (128, 160)}.get(kernel, (1, 64))
        assert least <= resources.registers <= most, kernel


def test_nvrtc_figures_are_those_of_the_kernel():
    gemm = nvrtc.compile(PRELUDE_CUDA.read_text() + kernel_text("gemm"), "sm_80").kernels["k_gemm"]
    spilling = """extern "C" __global__ void __launch_bounds__(1024) k_spills(float* x) {
      float v[96];
      for (int i = 0; i < 96; ++i) v[i] = x[threadIdx.x + i * 1024];
      __syncthreads();
      for (int i = 0; i < 96; ++i) x[threadIdx.x + i * 1024] = v[i] * v[i * 7 % 96];
    }"""

    assert gemm.shared_bytes == 4 * 8 * (16 + 32)
    assert nvrtc.compile(spilling, "sm_80").kernels["k_spills"].spill_store_bytes > 0


def test_nvrtc_rejects_wrong_source_with_its_log():
    with pytest.raises(nvrtc.NvrtcError, match=r'kernel\.cu\(1\).*"missing" is undefined'):
        nvrtc.compile('extern "C" __global__ void k(float* y) { y[0] = missing; }', "sm_80")


@pytest.mark.parametrize(("arch", "asynchronous"), [("compute_75", False), ("compute_80", True)])
def test_async_copies_are_plain_ones_before_sm_80(arch, asynchronous):
    ptx = nvrtc.ptx(PRELUDE_CUDA.read_text() + kernel_text("async_copy"), arch)

    assert ("cp.async.cg.shared.global" in ptx) == asynchronous
    assert ("cp.async.wait_group 1" in ptx) == asynchronous


@functools.cache
def conversion(name: str) -> CudaOnCpu:
    names = re.findall(r"\bk_\w+(?=\()", CONVERSIONS)
    return compile_many([(CONVERSIONS, kernel) for kernel in names])[names.index(f"k_{name}")]


def convert(name: str, x: np.ndarray, dtype: type) -> np.ndarray:
    size = math.gcd(x.size, 256)
    y = np.zeros(x.size, dtype)
    conversion(name).run((x.size // size,), (size,), [x, y])
    return y


def same_bits(actual: np.ndarray, expected: np.ndarray) -> bool:
    """Equal bit for bit, -0.0 included; any NaN equals any other."""
    nan = np.isnan(expected)
    return bool(np.array_equal(np.isnan(actual), nan)) and actual[~nan].tobytes() == expected[~nan].tobytes()


def spread_of_floats() -> np.ndarray:
    """Random bit patterns, then every 16-bit float and each neighbour of each midpoint between two."""
    bits = np.random.default_rng(5).integers(0, 2**32, 2**16, np.uint32)
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    finite = np.sort(halves[np.isfinite(halves)].astype(np.float32))
    middle = (finite[1:] + finite[:-1]) / 2
    upper = (np.arange(2**16, dtype=np.uint32) << 16) + np.uint32(0x8000)  # midpoints of bf16
    parts = [
        bits.view(np.float32),
        finite,
        upper.view(np.float32),
        np.float32([np.inf, -np.inf, 65519.99, 65520, 463.9, 464, 61439, 61440]),
    ]
    parts += [middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(-np.inf))]
    joined = np.concatenate(parts)
    return np.resize(joined, -(-joined.size // 256) * 256)


@pytest.mark.parametrize(
    ("name", "bits", "dtype"),
    [
        ("half", np.uint16, np.float16),
        ("bf16", np.uint16, ml_dtypes.bfloat16),
        ("f8e4m3", np.uint8, ml_dtypes.float8_e4m3fn),
        ("f8e5m2", np.uint8, ml_dtypes.float8_e5m2),
    ],
)
def test_widening_is_exact_for_every_pattern(name, bits, dtype):
    x = np.arange(np.iinfo(bits).max + 1).astype(bits).view(dtype)

    assert same_bits(convert(f"{name}_to_float", x, np.float32), x.astype(np.float32))


@pytest.mark.parametrize(("name", "dtype"), [("half", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_narrowing_rounds_as_numpy_does(name, dtype):
    x = spread_of_floats()

    y = convert(f"float_to_{name}", x, dtype)

    with np.errstate(over="ignore", invalid="ignore"):
        assert same_bits(y, x.astype(dtype))
    assert (y[np.isnan(x)].view(np.uint16) == 0x7FFF).all()


@pytest.mark.parametrize(("name", "dtype"), [("f8e4m3", ml_dtypes.float8_e4m3fn), ("f8e5m2", ml_dtypes.float8_e5m2)])
def test_narrowing_to_f8_rounds_as_ml_dtypes_does_and_saturates(name, dtype):
    x = spread_of_floats()
    largest = float(ml_dtypes.finfo(dtype).max)

    y = convert(f"float_to_{name}", x, dtype)

    with np.errstate(invalid="ignore"):
        assert same_bits(y, np.clip(x, -largest, largest).astype(dtype))


@pytest.mark.parametrize(
    ("name", "source_type", "result_type"),
    [
        ("float_to_bf16", "float", "gc_bf16"),  # the branch for sm_75
        ("float_to_f8e4m3", "float", "gc_f8e4m3"),
        ("float_to_f8e5m2", "float", "gc_f8e5m2"),
        ("f8e4m3_to_float", "gc_f8e4m3", "float"),
    ],
)
def test_a_device_body_without_ptx_gives_the_bits_of_the_portable_one(name, source_type, result_type):
    text, head = PRELUDE_CUDA.read_text(), f"__device__ __forceinline__ {result_type} gc_{name}("
    start = text.index(head)
    device_body = text[start : text.index("\n}\n", start) + 3].replace(f"gc_{name}", "device_body")
    source = f"""{device_body}
    extern "C" __global__ void k_both(const {source_type}* x, {result_type}* device,
                                      {result_type}* portable) {{
      const int i = blockIdx.x * blockDim.x + threadIdx.x;
      device[i] = device_body(x[i]);
      portable[i] = gc_{name}(x[i]);
    }}"""
    x = spread_of_floats() if source_type == "float" else np.arange(256, dtype=np.uint8)
    bits = {"float": np.uint32, "gc_bf16": np.uint16}.get(result_type, np.uint8)
    device, portable = np.zeros((2, x.size), bits)

    CudaOnCpu(source, "k_both").run((x.size // 256,), (256,), [x, device, portable])

    assert device.any()
    assert (device == portable).all()


@functools.cache
def collective(name: str) -> CudaOnCpu:
    names = re.findall(r"\bk_\w+(?=\()", COLLECTIVES)
    return compile_many([(COLLECTIVES, kernel) for kernel in names])[names.index(f"k_{name}")]


SHUFFLE_DTYPES = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "u32": np.uint32, "i64": np.int64}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", SHUFFLE_DTYPES)
def test_shuffles_stay_within_their_warp(name, order):
    dtype, lanes = SHUFFLE_DTYPES[name], np.arange(32)
    x = np.random.default_rng(11).integers(-(2**20), 2**20, (3, 32)).astype(dtype)
    y = np.zeros((6, 3, 32), dtype)

    collective(f"shuffle_{name}").run((1,), (96,), [x, y], order=order)

    assert (y[0] == x[:, lanes ^ 5]).all()
    assert (y[1] == x[:, np.where(lanes + 3 < 32, lanes + 3, lanes)]).all()
    assert (y[2] == x[:, [11]]).all()
    assert (y[3] == x.sum(1, keepdims=True, dtype=dtype)).all()  # exact: the integers are small
    assert (y[4] == x.max(1, keepdims=True)).all()
    assert (y[5] == x.min(1, keepdims=True)).all()


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("lane", [0, 13, 31])
def test_a_nan_in_any_lane_is_the_largest_and_the_least(name, lane):
    x = np.arange(32).astype(SHUFFLE_DTYPES[name])
    x[lane] = np.nan
    y = np.zeros((6, 32), x.dtype)

    collective(f"shuffle_{name}").run((1,), (32,), [x, y])

    assert np.isnan(y[3:]).all()


def test_a_nan_on_either_side_is_the_larger_and_the_smaller():
    numbers = np.float32([-np.inf, -1.5, -0.0, 0.0, 2.25, np.inf, np.nan])
    a, b = (np.ascontiguousarray(x.ravel()) for x in np.meshgrid(numbers, numbers))
    larger, smaller = np.empty_like(a), np.empty_like(a)

    CudaOnCpu(COLLECTIVES, "k_larger_and_smaller").run((1,), (a.size,), [a, b, larger, smaller])

    np.testing.assert_array_equal(larger, np.maximum(a, b))
    np.testing.assert_array_equal(smaller, np.minimum(a, b))


def test_powers_of_two_are_zero_where_they_would_be_denormal():
    x = np.float32([-np.inf, -150, -126.5, -126, -3.25, 0, 0.5, 127, 128, np.nan])
    found = np.empty_like(x)

    CudaOnCpu(COLLECTIVES, "k_powers_of_two").run((1,), (x.size,), [x, found])

    with np.errstate(over="ignore"):
        right = np.exp2(x)
    np.testing.assert_allclose(found, np.where(right < 2.0**-126, np.float32(0), right), rtol=2.4e-7)


def test_powers_by_multiply_adds_are_near_and_zero_where_they_are_small():
    x = np.float32([-np.inf, -3e38, -150, -127.5, -127, 0, np.nan, *np.linspace(-126, 10, 500)])
    found = np.empty_like(x)

    for first in range(0, x.size, 32):
        part, into = x[first : first + 32], found[first : first + 32]
        CudaOnCpu(COLLECTIVES, "k_powers_by_multiply_adds").run((1,), (part.size,), [part, into])

    assert found[:7].tolist()[:6] == [0, 0, 0, 0, 0, 1]
    assert np.isnan(found[6])
    np.testing.assert_allclose(found[7:], np.exp2(x[7:].astype(np.float64)), rtol=3.1e-6)


def test_powers_by_multiply_adds_are_the_same_text_in_both_preludes():
    texts = [
        re.search(r"float gc_exp2_polynomial\(float x\) \{(.*?)\n\}", p.read_text(), re.DOTALL)[1]
        for p in (PRELUDE_CUDA, PRELUDE)
    ]
    lines = [[line.split("//")[0].strip() for line in text.splitlines()] for text in texts]

    assert lines[0] == lines[1]
    assert len(lines[0]) > 5


def test_two_numbers_are_rounded_into_the_halves_of_32_bits():
    low, high = (
        np.float32([1.0, -2.5, 1e-7, np.inf, 70000, 1.0009766]),
        np.float32([3.0, 0.1, -0.0, -np.inf, 1e-20, 1.00390625]),
    )
    f16, bf16 = np.zeros((2, low.size), np.uint32)

    CudaOnCpu(CONVERSIONS, "k_pairs").run((1,), (low.size,), [low, high, f16, bf16])

    with np.errstate(over="ignore"):
        for found, kind in ((f16, np.float16), (bf16, ml_dtypes.bfloat16)):
            right = np.stack([low, high], 1).astype(kind).view(np.uint32).ravel()
            np.testing.assert_array_equal(found, right)


def test_a_warp_knows_what_is_so_in_any_of_its_lanes():
    x, found = np.zeros(96, np.float32), np.full(96, -1, np.int32)
    x[37] = 2

    CudaOnCpu(COLLECTIVES, "k_any").run((1,), (96,), [x, found])

    np.testing.assert_array_equal(found, np.repeat([0, 1, 0], 32))


def test_a_lane_that_does_not_exist_gives_nan():
    x, y = np.ones(29, np.float32), np.zeros((6, 29), np.float32)

    collective("shuffle_f32").run((1,), (29,), [x, y])

    assert np.isnan(y[1]).tolist() == [False] * 26 + [True] * 3
    assert np.isnan(y[3]).all()


@pytest.mark.parametrize("order", ORDERS)
def test_small_async_copies_fill_with_zeros_where_not_valid(order):
    x, y = np.arange(1, 65, dtype=np.float32), np.full(128, np.nan, np.float32)

    collective("small_copies").run((1,), (32,), [x, y], order=order)

    i = np.arange(64)
    assert (y[:64] == np.where(i % 3 != 0, x, 0)).all()
    assert (y[64:] == np.where(i // 2 % 3 != 0, x, 0)).all()


def test_math_functions_have_the_names_that_nvrtc_has():
    x = np.float32([-2.75, -0.5, 0.0, 0.3, 1.9, 3.2])
    y, z = np.zeros(6, np.float32), np.zeros(6)

    collective("math").run((1,), (6,), [x, y, z])

    d = x.astype(np.float64)
    erf = np.array([math.erf(value) for value in d])
    common = np.exp(d) + np.log(abs(d) + 1) + np.tanh(d) + erf + np.sqrt(abs(d)) + 1 / np.sqrt(abs(d) + 1)
    common += abs(d) ** 1.5 + np.floor(d) + np.ceil(d) + np.rint(d) + np.fmod(d, 0.7)
    common += np.minimum(d, 0.25) + np.maximum(d, -0.5) + d * d + 1
    assert np.allclose(z, common, rtol=1e-14, atol=0)
    more = np.minimum(3, x.astype(int)) + np.maximum(d, 0.1)
    assert np.allclose(y, common + more, rtol=1e-5, atol=0)
