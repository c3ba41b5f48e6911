"""HIP's own prelude and mathematics on the CPU: the text that AMD's compiler is given, between builtins of the harness."""

from __future__ import annotations

import functools
import math
import re
from contextlib import suppress

import ml_dtypes
import numpy as np
import pytest

from gpucomp.targets import hip_text
from testing.cuda_on_cpu import hip
from testing.cuda_on_cpu.harness import ORDERS, CudaOnCpu, CudaOnCpuError, hip_compiler
from tests.cuda_on_cpu.kernel_files import broken
from tests.cuda_on_cpu.test_prelude import same_bits, spread_of_floats

pytestmark = pytest.mark.skipif(hip_compiler() is None, reason="clang 18 is not installed")
ARCHS = ("gfx90a", "gfx1100")  # waves of 64 and of 32
MASKS = (1, 2, 4, 8, 16, 5, 31)
KERNELS = """
template <class T>
__device__ __forceinline__ void exchange(const T* x, T* y) {
  const int i = threadIdx.x, n = blockDim.x;
  const int masks[7] = {1, 2, 4, 8, 16, 5, 31};
  for (int k = 0; k < 7; ++k) y[k * n + i] = gc_shfl_xor(x[i], masks[k]);
  y[7 * n + i] = gc_shfl(x[i], 11);
  y[8 * n + i] = gc_shfl(x[i], i * 3 % 32);
}
extern "C" __global__ void k_float(const float* x, float* y) { exchange(x, y); }
extern "C" __global__ void k_double(const double* x, double* y) { exchange(x, y); }
extern "C" __global__ void k_int(const int* x, int* y) { exchange(x, y); }
extern "C" __global__ void k_long(const long long* x, long long* y) { exchange(x, y); }
extern "C" __global__ void k_short(const short* x, short* y) { exchange(x, y); }
extern "C" __global__ void k_sum(const double* x, double* y) { y[threadIdx.x] = gc_warp_sum(x[threadIdx.x]); }
extern "C" __global__ void k_first_half(const float* x, float* y) {  // one half of a wave of 64 alone
  if (threadIdx.x < 32) y[threadIdx.x] = gc_warp_sum(x[threadIdx.x]);
}
extern "C" __global__ void k_parts(const gc_int4* x, long* y) {
  const gc_int4 mine = x[threadIdx.x];
  y[2 * threadIdx.x] = as_long(mine.lo);
  y[2 * threadIdx.x + 1] = as_long(mine.hi);
}
extern "C" __global__ void k_joined(const gc_half8* x, gc_half16* y) { y[0] = gc_concatenated(x[0], x[1]); }
extern "C" __global__ void k_moves(const float* x, float* y, const gc_half* h, gc_half* g) {
  const int i = threadIdx.x;
  gc_move<16>(y + 4 * i, x + 4 * i, i % 3 != 0);
  const gc_half8 loose = gc_load<gc_half8>(h + 1 + 8 * i);
  for (int k = 0; k < 8; ++k) g[8 * i + k] = gc_half{loose[k]};
}
extern "C" __global__ void k_misaligned(const float* x, float* y) { gc_move<16>(y, x + 1); }
extern "C" __global__ void k_turns(unsigned* counter, int* turns, int* least, const int* x) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  turns[i] = (int)gc_atomic_inc_wrap(counter, blockDim.x * 2 - 1);
  gc_atomic_min(least, x[i]);
}
extern "C" __global__ void k_handed_on(unsigned* flags, int* sums) {  // each block takes what the one before has left
  if (threadIdx.x == 0) {
    const bool there = blockIdx.x > 0 && gc_is_set(flags + blockIdx.x - 1, 3);
    gc_acquire_from_device();
    if (there) sums[blockIdx.x] += sums[blockIdx.x - 1];
    gc_release_to_device();
    gc_store_release(flags + blockIdx.x, 1u);
  }
}
extern "C" __global__ void k_reversed(const float* x, float* y) {
  float* tile = reinterpret_cast<float*>(gc_dynamic_shared());
  const int i = threadIdx.x;
  tile[i] = x[i];
  __syncthreads();
  y[i] = tile[blockDim.x - 1 - i];
}
extern "C" __global__ void k_lonely(float* y) {
  if (threadIdx.x < 32) __syncthreads();
  y[threadIdx.x] = 1.0f;
}
extern "C" __global__ void k_float_to_half(const float* x, gc_half* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = gc_float_to_half(x[i]);
}
extern "C" __global__ void k_float_to_bf16(const float* x, gc_bf16* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = gc_float_to_bf16(x[i]);
}
extern "C" __global__ void k_widened(const gc_half* x, const gc_bf16* z, float* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
  y[i] = gc_half_to_float(x[i]);
  y[n + i] = gc_bf16_to_float(z[i]);
}
extern "C" __global__ void k_math(const float* x, float* y, double* z) {
  const int i = threadIdx.x, n = blockDim.x;
  const float a = x[i], b = fabsf(a) + 0.1f;
  const float f[] = {expf(a), logf(b), tanhf(a), erff(a), sqrtf(b), powf(b, 1.5f), sinf(a), cosf(a), atanf(a), fmodf(a, 0.7f)};
  for (int k = 0; k < 10; ++k) y[k * n + i] = f[k];
  const double d[] = {exp(a), log(b), tanh(a), erf(a), pow(b, 1.5)};
  for (int k = 0; k < 5; ++k) z[k * n + i] = d[k];
}
""".replace("gridDim.x * blockDim.x", "65536")


@functools.cache
def kernel(name: str, arch: str) -> CudaOnCpu:
    text = re.search(rf'extern "C" __global__ void k_{name}\(.*?\n(?=extern|\Z)', KERNELS, re.S)[0]
    shared = KERNELS[: KERNELS.index('extern "C"')]
    return CudaOnCpu(shared + text, f"k_{name}", arch=arch)


TYPES = {"float": np.float32, "double": np.float64, "int": np.int32, "long": np.int64, "short": np.int16}


def exchanged(name: str, arch: str, order: str = "forward") -> tuple[np.ndarray, np.ndarray]:
    """What 128 lanes gave, 32 in a row, and what each got."""
    x = np.random.default_rng(3).integers(-(2**14), 2**14, (4, 32)).astype(TYPES[name])
    x *= 1 if name == "short" else 3
    y = np.zeros((9, 4, 32), x.dtype)
    kernel(name, arch).run((1,), (128,), [x, y], order=order)
    return x, y


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", TYPES)
def test_shuffles_stay_within_32_lanes_of_either_wave(name, arch, order):
    x, y = exchanged(name, arch, order)
    lanes = np.arange(32)

    for k, mask in enumerate(MASKS):
        np.testing.assert_array_equal(y[k], x[:, lanes ^ mask])
    np.testing.assert_array_equal(y[7], np.broadcast_to(x[:, [11]], x.shape))
    np.testing.assert_array_equal(y[8], x[:, lanes * 3 % 32])


@pytest.mark.parametrize(
    ("replace", "by"), [("0xb1, 0xf", "0x4e, 0xf"), ("word, 0x201f", "word, 0x101f"), ("& ~31) | (lane", ") | (lane")]
)
def test_another_permutation_in_the_prelude_is_seen(replace, by, monkeypatch):
    whole = hip.header("gfx90a")
    monkeypatch.setattr(hip, "header", lambda arch: broken(whole, replace=replace, by=by))
    text = f"// {by}\n" + KERNELS[: KERNELS.index('extern "C" __global__ void k_double')]
    x = np.arange(128, dtype=np.float32).reshape(4, 32)
    y = np.zeros((9, 4, 32), np.float32)

    lanes = np.arange(32)
    right = [*(x[:, lanes ^ mask] for mask in MASKS), np.broadcast_to(x[:, [11]], x.shape), x[:, lanes * 3 % 32]]

    with suppress(CudaOnCpuError):  # a lane of the other half is refused
        CudaOnCpu(text, "k_float", arch="gfx90a").run((1,), (128,), [x, y])

    assert not np.array_equal(y, right)


@pytest.mark.parametrize("arch", ARCHS)
def test_sums_are_those_of_32_lanes_also_where_the_rest_of_the_wave_takes_no_part(arch):
    x = np.arange(64.0)
    y, half = np.zeros(64), np.zeros(64, np.float32)

    kernel("sum", arch).run((1,), (64,), [x, y])
    kernel("first_half", arch).run((1,), (64,), [x.astype(np.float32), half])

    np.testing.assert_array_equal(y.reshape(2, 32), np.broadcast_to(x.reshape(2, 32).sum(1, keepdims=True), (2, 32)))
    np.testing.assert_array_equal(half, np.where(np.arange(64) < 32, x[:32].sum(), 0))


def test_parts_of_vectors_keep_their_place_as_one_number():
    x = np.arange(64 * 4, dtype=np.int32)
    y, halves = np.zeros(64 * 2, np.int64), np.zeros(16, np.float16)

    kernel("parts", "gfx942").run((1,), (64,), [x, y])
    kernel("joined", "gfx1100").run((1,), (1,), [np.arange(16, dtype=np.float16), halves])

    np.testing.assert_array_equal(y, x.view(np.int64))
    np.testing.assert_array_equal(halves, np.arange(16))


def test_a_bit_cast_of_a_part_of_a_vector_would_take_the_first_elements(monkeypatch):
    whole = hip.header("gfx942")
    function = "__device__ __forceinline__ long as_long(gc_int2 x) { return __builtin_bit_cast(long, x); }"
    as_it_was = broken(whole, replace=function, by="#define as_long(x) __builtin_bit_cast(long, (x))")
    monkeypatch.setattr(hip, "header", lambda arch: as_it_was)
    text = re.search(r'extern "C" __global__ void k_parts.*?\n}\n', KERNELS, re.S)[0]
    x, y = np.arange(64 * 4, dtype=np.int32), np.zeros(64 * 2, np.int64)

    CudaOnCpu("// as it was\n" + text, "k_parts", arch="gfx942").run((1,), (64,), [x, y])

    assert (y[1::2] == x.view(np.int64)[::2]).all()


@pytest.mark.parametrize("arch", ARCHS)
def test_moves_and_loads_ask_for_the_alignment_that_they_say(arch):
    x, h = np.arange(256, dtype=np.float32) + 1, np.arange(520, dtype=np.float16)
    y, g = np.zeros(256, np.float32), np.zeros(512, np.float16)

    kernel("moves", arch).run((1,), (64,), [x, y, h, g])

    np.testing.assert_array_equal(y, np.where(np.arange(256) // 4 % 3 == 0, 0, x))
    np.testing.assert_array_equal(g, h[1:513])
    with pytest.raises(CudaOnCpuError, match="Illegal instruction"):
        kernel("misaligned", arch).run((1,), (1,), [x, y])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("arch", ARCHS)
def test_atomics_give_each_its_turn_and_a_flag_is_waited_for_a_while(arch, order):
    counter, turns, least = np.zeros(1, np.uint32), np.zeros(128, np.int32), np.full(1, 99, np.int32)
    x = np.random.default_rng(1).integers(-50, 50, 128).astype(np.int32)
    flags, sums = np.zeros(5, np.uint32), np.arange(5, dtype=np.int32)

    kernel("turns", arch).run((2,), (64,), [counter, turns, least, x], order=order)
    kernel("handed_on", arch).run((5,), (64,), [flags, sums], order=order)

    assert sorted(turns) == list(range(128))
    assert (counter[0], least[0]) == (0, x.min())
    if order != "shuffled":  # from the last block on, none is there in time
        np.testing.assert_array_equal(sums, [0, 1, 3, 6, 10] if order == "forward" else [0, 1, 2, 3, 4])
    assert flags.all()


@pytest.mark.parametrize("arch", ARCHS)
def test_shared_memory_of_a_launch_and_barriers(arch):
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)

    kernel("reversed", arch).run((1,), (64,), [x, y], dynamic_shared=256)

    np.testing.assert_array_equal(y, x[::-1])
    with pytest.raises(CudaOnCpuError, match=r"32 threads wait at __syncthreads in line 11, 32 threads have exited"):
        kernel("lonely", arch).run((1,), (64,), [y])


@pytest.mark.parametrize(("name", "dtype"), [("half", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_narrowing_rounds_as_numpy_does(name, dtype):
    x = spread_of_floats()
    y = np.zeros(x.size, dtype)

    kernel(f"float_to_{name}", "gfx90a").run((x.size // 256,), (256,), [x, y])

    with np.errstate(over="ignore", invalid="ignore"):
        assert same_bits(y, x.astype(dtype))


def test_widening_is_exact_for_every_pattern():
    bits = np.arange(2**16).astype(np.uint16)
    y = np.zeros((2, bits.size), np.float32)

    kernel("widened", "gfx1100").run((256,), (256,), [bits.view(np.float16), bits.view(ml_dtypes.bfloat16), y])

    assert same_bits(y[0], bits.view(np.float16).astype(np.float32))
    assert same_bits(y[1], bits.view(ml_dtypes.bfloat16).astype(np.float32))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_mathematical_functions_are_those_of_the_text_for_amd_s_compiler():
    x = np.linspace(-6, 6, 256, dtype=np.float32)
    y, z = np.zeros((10, 256), np.float32), np.zeros((5, 256))

    kernel("math", "gfx90a").run((1,), (256,), [x, y, z])

    a, b = x.astype(np.float64), (np.abs(x) + np.float32(0.1)).astype(np.float64)
    erf = np.vectorize(math.erf)
    right = [np.exp(a), np.log(b), np.tanh(a), erf(a), np.sqrt(b), b**1.5, np.sin(a), np.cos(a), np.arctan(a)]
    np.testing.assert_allclose(y, [*right, np.fmod(x, np.float32(0.7))], rtol=5e-7, atol=1e-7)
    np.testing.assert_allclose(z, [*right[:4], right[5]], rtol=2e-13, atol=1e-15)


def test_what_the_harness_gives_kernels_is_between_its_builtins_and_its_instructions():
    text = hip.header("gfx90a")

    assert text.index("#define GC_WAVE 64") < text.index(hip_text.prelude()) < text.index("gc_mfma")
    assert hip_text.mathematics(circular=True) in text
