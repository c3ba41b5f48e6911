"""The CUDA-on-CPU harness: right kernels give the right numbers in every order, launches are checked."""

import functools

import numpy as np
import pytest

from testing.cuda_on_cpu import harness
from testing.cuda_on_cpu.harness import ORDERS, CudaOnCpu, CudaOnCpuError, compile_many
from tests.cuda_on_cpu.kernel_files import broken, kernel_text

GEMM, ASYNC_COPY = kernel_text("gemm"), kernel_text("async_copy")
WAIT = "    gc_cp_async_wait<1>();"
RIGHT = {
    "gemm": (GEMM, "k_gemm"),
    "row_reduce": (kernel_text("row_reduce"), "k_row_reduce"),
    "async_copy": (ASYNC_COPY, "k_async_copy"),
    "no_wait": (broken(ASYNC_COPY, replace=WAIT), "k_async_copy"),
    "late_wait": (broken(ASYNC_COPY, replace=WAIT, by="gc_cp_async_wait<2>();"), "k_async_copy"),
    "no_commit": (broken(ASYNC_COPY, replace="gc_cp_async_commit();"), "k_async_copy"),
    "split_k_dot": (kernel_text("split_k_dot"), "k_split_k_dot"),
    "look_back": (kernel_text("split_k_dot"), "k_look_back"),
    "turns": (kernel_text("collectives"), "k_turns"),
}
UNIT_ROUNDOFF = 2.0**-24


@functools.cache
def right(name: str) -> CudaOnCpu:
    kernels = compile_many(list(RIGHT.values()))
    return kernels[list(RIGHT).index(name)]


@functools.cache
def access(kernel: str) -> CudaOnCpu:
    return CudaOnCpu(kernel_text("accesses"), kernel)


def gemm(kernel: CudaOnCpu, m: int, n: int, k: int, order: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(m * 10007 + n * 101 + k)
    a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    c = np.full((m, n), np.nan, np.float32)
    sizes = (np.int32(m), np.int32(n), np.int32(k))
    kernel.run((-(-n // 32), -(-m // 16)), (64,), [a, b, c, *sizes], order=order, seed=m)
    return a, b, c


@pytest.mark.parametrize(("m", "n", "k"), [(37, 53, 29), (1, 1, 1), (16, 32, 8), (17, 31, 7), (5, 97, 1)])
def test_a_tiled_gemm_is_right_and_bit_identical_in_three_orders(m, n, k):
    results = [gemm(right("gemm"), m, n, k, order) for order in ORDERS]

    a, b, c = results[0]
    bound = 2 * k * UNIT_ROUNDOFF * (np.abs(a).astype(np.float64) @ np.abs(b))
    assert (np.abs(c - a.astype(np.float64) @ b) <= bound).all()
    for _, _, other in results[1:]:
        assert other.tobytes() == c.tobytes()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("rows", "columns"), [(5, 131), (1, 1), (3, 96)])
def test_a_row_reduction_by_warp_shuffles(rows, columns, order):
    x = np.random.default_rng(rows).standard_normal((rows, columns), np.float32)
    sums, largest, least = (np.full(rows, np.nan, np.float32) for _ in range(3))

    right("row_reduce").run((rows,), (96,), [x, sums, largest, least, np.int32(columns)], order=order)

    bound = columns * UNIT_ROUNDOFF * np.abs(x).sum(1, np.float64)
    assert (np.abs(sums - x.sum(1, np.float64)) <= bound).all()
    assert (largest == x.max(1)).all()
    assert (least == x.min(1)).all()


def async_copy(name: str, n: int, order: str) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(n).standard_normal(-(-n // 4) * 4, np.float32)
    y = np.full(n, np.nan, np.float32)
    right(name).run((1,), (64,), [x, y, np.int32(n)], order=order)
    return x[:n], y


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("n", [1, 255, 256, 1021])
def test_a_double_buffered_async_copy(n, order):
    x, y = async_copy("async_copy", n, order)

    assert (y == 2 * x).all()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("mistake", ["no_wait", "late_wait", "no_commit"])
def test_an_async_copy_read_before_its_wait_is_nan(mistake, order):
    _, y = async_copy(mistake, 1021, order)

    assert np.isnan(y).any()


@pytest.mark.parametrize("order", ORDERS)
def test_split_k_by_the_block_that_arrives_last(order):
    x, y = np.random.default_rng(7).standard_normal((2, 1531), np.float32)
    partial, out = np.full(20, np.nan, np.float32), np.full(1, np.nan, np.float32)
    arrived = np.zeros(1, np.uint32)

    for _ in range(2):  # the counter wraps: a second launch needs no reset
        right("split_k_dot").run((5,), (64,), [x, y, partial, arrived, out, np.int32(1531)], order=order)

    assert arrived[0] == 0
    bound = 1531 * UNIT_ROUNDOFF * np.abs(x.astype(np.float64) * y).sum()
    assert abs(out[0] - x.astype(np.float64) @ y) <= bound


@pytest.mark.parametrize("order", ORDERS)
def test_a_block_looks_back_at_flags_that_are_set_or_are_not(order):
    x = np.arange(1, 42, dtype=np.float32)
    left, out = np.full(41, np.nan, np.float32), np.full(41, np.nan, np.float32)
    flags, arrived = np.zeros(41, np.uint32), np.zeros(1, np.uint32)

    right("look_back").run((41,), (32,), [x, left, flags, arrived, out], order=order)

    assert not flags.any()
    assert arrived[0] == 0
    assert (left == x).all()
    assert out.tolist() == np.cumsum(x).tolist()


def turns(order: str, seed: int = 0) -> np.ndarray:
    handed_out, counter = np.full(3 * 50, -1, np.int32), np.zeros(1, np.int32)
    histogram, total = np.zeros(3, np.uint32), np.zeros(1, np.float32)
    right("turns").run((3,), (50,), [handed_out, counter, histogram, total], order=order, seed=seed)
    assert counter[0] == 150
    assert histogram.tolist() == [100, 100, 100]
    assert total[0] == 75
    return handed_out


def test_orders_apply_to_threads_and_to_blocks():
    assert turns("forward").tolist() == list(range(150))
    assert turns("reversed").tolist() == list(range(150))[::-1]
    shuffled = turns("shuffled", seed=1)
    assert sorted(shuffled) == list(range(150))
    assert (shuffled == turns("shuffled", seed=1)).all()
    assert (shuffled != turns("shuffled", seed=2)).any()
    assert not (np.diff(shuffled.reshape(3, 50)) == 1).all()


def test_an_argument_given_twice_is_one_buffer():
    x = np.arange(5, dtype=np.float32)

    access("k_read_at").run((1,), (1,), [x, x, np.int32(3)])

    assert x.tolist() == [3, 1, 2, 3, 4]


def test_a_read_only_argument_must_stay_as_it_is():
    x, y = np.ones(5, np.float32), np.zeros(5, np.float32)
    x.flags.writeable = y.flags.writeable = False

    with pytest.raises(CudaOnCpuError, match="argument 1 is read-only, and the kernel wrote to it"):
        access("k_read_at").run((1,), (1,), [x, y, np.int32(3)])
    access("k_read_at").run((1,), (1,), [x, np.zeros(1, np.float32), np.int32(3)])


@pytest.mark.parametrize(
    ("grid", "block", "args", "message"),
    [
        ((1,), (1,), [np.zeros(3, "f4")], "k_write_at takes 2 arguments, 1 given"),
        ((1,), (33, 32), [np.zeros(3, "f4"), np.int32(0)], "1056 threads in a block, at most 1024"),
        ((1, 0), (1,), [np.zeros(3, "f4"), np.int32(0)], "each at least 1"),
        ((1, 1, 1, 1), (1,), [np.zeros(3, "f4"), np.int32(0)], "one to three extents"),
        ((1,), (1,), [np.zeros((3, 2), "f4").T, np.int32(0)], "not C-contiguous"),
        ((1,), (1,), [np.zeros(3, "f4"), 0], "neither an array nor a numpy scalar"),
    ],
)
def test_a_launch_that_cannot_be_is_an_error(grid, block, args, message):
    with pytest.raises(CudaOnCpuError, match=message):
        access("k_write_at").run(grid, block, args)


def test_arguments_that_overlap_in_part_are_an_error():
    memory = np.zeros(9, np.float32)

    with pytest.raises(CudaOnCpuError, match="overlap in part"):
        access("k_read_at").run((1,), (1,), [memory[:5], memory[3:], np.int32(0)])


def test_source_that_does_not_compile_is_an_error_with_its_line():
    with pytest.raises(CudaOnCpuError, match=r"k_bad\.cu:3:.*missing"):
        CudaOnCpu('extern "C" __global__ void k_bad(float* y) {\n\n  y[0] = missing;\n}\n', "k_bad")


def test_a_kernel_that_the_source_lacks_is_an_error():
    with pytest.raises(CudaOnCpuError, match="the source has no kernel k_gem"):
        CudaOnCpu(GEMM, "k_gem")


def test_kernels_of_one_name_and_their_shared_memory_stay_apart_in_a_batch():
    source = """__device__ __forceinline__ float value() { return %d.0f; }
    extern "C" __global__ void __launch_bounds__(2) k_same(float* y) {
      __shared__ float tile[2];
      tile[threadIdx.x] = value();
      __syncthreads();
      y[threadIdx.x] = tile[1 - threadIdx.x];
    }"""
    y = np.zeros((2, 2), np.float32)

    for row, kernel in zip(y, compile_many([(source % 3, "k_same"), (source % 5, "k_same")]), strict=True):
        kernel.run((1,), (2,), [row])

    assert y.tolist() == [[3, 3], [5, 5]]


HELPER = """%s
    __device__ %s float block_sum(float value) {
      __shared__ float parts[3];
      value = gc_warp_sum(value);
      if (threadIdx.x %% 32 == 0) parts[threadIdx.x / 32] = value;
      __syncthreads();
      return parts[0] + parts[1] + (threadIdx.x == 5 ? parts[2] : 0.0f);
    }
    extern "C" __global__ void k_sum(const float* __restrict__ x, float* __restrict__ y) {
      y[threadIdx.x] = block_sum(x[threadIdx.x]);
    }"""


@pytest.mark.parametrize("inline", ["", "__forceinline__", "inline", "static"])
def test_shared_memory_of_a_helper_function_is_nan_until_written_too(inline):
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)

    CudaOnCpu(HELPER % ("", inline), "k_sum").run((1,), (64,), [x, y], order="shuffled")

    assert np.isnan(y).tolist() == [i == 5 for i in range(64)]  # only thread 5 reads what no warp writes
    assert (np.delete(y, 5) == 2016).all()


def test_shared_memory_in_a_cxx_template_is_refused_because_it_could_not_be_poisoned():
    source = (HELPER % ("template <class T>", "")).replace("(float value)", "(T value)")

    with pytest.raises(CudaOnCpuError, match="__shared__ in a C\\+\\+ template"):
        CudaOnCpu(source, "k_sum")


def test_an_executable_in_the_cache_is_used_again(tmp_path):
    source = 'extern "C" __global__ void k_one(float* y) { y[0] = 1.0f; }'
    CudaOnCpu(source, "k_one", cache_dir=tmp_path)
    made = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    harness._build.cache_clear()
    y = np.zeros(1, np.float32)

    CudaOnCpu(source, "k_one", cache_dir=tmp_path).run((1,), (1,), [y])

    assert y[0] == 1
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == made


def test_the_prelude_is_read_as_g_plus_plus_has_made_it_once(tmp_path):
    source = 'extern "C" __global__ void k_one(float* y) { y[0] = 1.0f; }'
    CudaOnCpu(source, "k_one", cache_dir=tmp_path)
    (header,) = tmp_path.glob("prelude-*.h")
    header.write_text("#error this is read instead")
    y = np.zeros(1, np.float32)

    CudaOnCpu(source.replace("1.0f", "2.0f"), "k_one", cache_dir=tmp_path).run((1,), (1,), [y])

    assert y[0] == 2


def test_blocks_and_threads_have_their_places_in_three_dimensions():
    source = """extern "C" __global__ void k_places(int* y) {
      const int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
      const int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
      y[block * blockDim.x * blockDim.y * blockDim.z + thread] = block * 1000 + thread;
    }"""
    y = np.full((2 * 3 * 5, 7 * 2 * 3), -1, np.int32)

    CudaOnCpu(source, "k_places").run((2, 3, 5), (7, 2, 3), [y], order="shuffled")

    assert (y == np.arange(30)[:, None] * 1000 + np.arange(42)).all()


def test_static_and_dynamic_shared_memory_together_are_within_a_block_s():
    text = """
extern "C" __global__ void k(float* y) {
  __shared__ float a[256];
  a[threadIdx.x] = 1.0f;
  y[threadIdx.x] = a[threadIdx.x];
}
"""
    kernel, y = CudaOnCpu(text, "k"), np.zeros(32, np.float32)

    kernel.run((1,), (32,), [y], dynamic_shared=47 << 10, shared_limit=48 << 10)
    with pytest.raises(CudaOnCpuError, match=r"static and 49152 dynamic bytes.*a block may have 49152"):
        kernel.run((1,), (32,), [y], dynamic_shared=48 << 10, shared_limit=48 << 10)
