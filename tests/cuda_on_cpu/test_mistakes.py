"""The CUDA-on-CPU harness: what a device would not allow is an error, and undefined memory is NaN."""

import functools

import numpy as np
import pytest

from testing.cuda_on_cpu.harness import ORDERS, CudaOnCpu, CudaOnCpuError, compile_many
from tests.cuda_on_cpu.kernel_files import kernel_text


@functools.cache
def wrong(kernel: str) -> CudaOnCpu:
    return CudaOnCpu(kernel_text("wrong"), kernel)


@functools.cache
def access(kernel: str) -> CudaOnCpu:
    return CudaOnCpu(kernel_text("accesses"), kernel)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (
            "k_some_wait",
            r"block \(0, 0, 0\): barrier divergence: 13 threads .* line 3, 51 threads have",
        ),
        ("k_wait_in_two_places", r"barrier divergence: 13 threads .* line 9, 51 threads .* line 12"),
        ("k_half_warp_shuffles", r"deadlock: 32 threads wait in gc_shfl_xor, 32 threads wait at .* line 21"),
        ("k_two_collectives", r"warp divergence: lanes of warp 0 wait in gc_shfl_down and in gc_shfl_xor"),
    ],
)
def test_divergence_is_an_error_that_says_who_waits_where(kernel, message):
    with pytest.raises(CudaOnCpuError, match=message):
        wrong(kernel).run((2,), (64,), [np.zeros(64, np.float32)])


def test_a_thread_may_wait_for_the_atomic_of_another():
    source = """extern "C" __global__ void k_waits(int* flag) {
      if (threadIdx.x == 40) gc_atomic_add(flag, 7);
      while (gc_atomic_add(flag, 0) == 0) {
      }
    }"""
    flag = np.zeros(1, np.int32)

    CudaOnCpu(source, "k_waits").run((1,), (64,), [flag])

    assert flag[0] == 7


def test_a_flag_that_no_thread_sets_is_a_deadlock():
    with pytest.raises(CudaOnCpuError, match=r"deadlock: 1 threads spin on an atomic .*, 63 threads wait at"):
        wrong("k_waits_for_a_flag").run((1,), (64,), [np.zeros(1, np.int32)])


LOOKS = """
__device__ bool is_zero(int* flag) { return gc_atomic_add(flag, 0) == 0; }
"""
ENDLESS = {  # what the first thread of each block does with flags that nobody sets, what the harness says
    "two in turn": (
        "for (int i = 0; is_zero(flags + i % 2); ++i) {}",
        "deadlock: 1 threads spin .*, 31 threads wait at",
    ),
    "a few at each of many, over and over": (
        "for (int i = 0; is_zero(flags + i / 7 % 13); ++i) {}",
        "deadlock: 1 threads spin .*, 31 threads wait at",
    ),
    "each for the other": (
        "while (is_zero(flags + gc_cluster_rank())) {}\n gc_atomic_add(flags + 1 - gc_cluster_rank(), 1);",
        "deadlock in a cluster: rank 0: 1 threads spin .*, 31 threads wait at .*; rank 1: 1 threads spin",
    ),
    "for one that waits for it": (
        "if (gc_cluster_rank() == 0) gc_cluster_sync();\n else while (is_zero(flags)) {}",
        "deadlock in a cluster: rank 0: 1 threads wait in gc_cluster_sync, 31 .*; rank 1: 1 threads spin on an atomic",
    ),
}


@pytest.mark.parametrize("order", ORDERS)
def test_endless_looks_are_a_deadlock_wherever_they_go(order):
    sources = {
        f"k{i}": f"""extern "C" __global__ void {"__cluster_dims__(2, 1, 1)" * ("cluster" in message)} k{i}(int* flags) {{
          if (threadIdx.x == 0) {{ {statements} }}
          __syncthreads();
        }}"""
        for i, (statements, message) in enumerate(ENDLESS.values())
    }
    made = compile_many([(LOOKS + text, name) for name, text in sources.items()])

    for kernel, (_, message) in zip(made, ENDLESS.values(), strict=True):
        with pytest.raises(CudaOnCpuError, match=message):
            kernel.run((2,), (32,), [np.zeros(13, np.int32)], order=order)


BOUNDED = (
    LOOKS
    + """
extern "C" __global__ void k_gives_up(int* flags, int* vain, int patience, int end) {
  if (threadIdx.x == 0) {
    int looks = 0;
    for (int i = 0; i < 71; ++i)
      for (int more = patience; more > 0 && is_zero(flags + i); --more) ++looks;
    vain[0] = looks;
    gc_atomic_add(flags + end, 1);
  }
  if (threadIdx.x == 33)
    while (is_zero(flags + end)) {}
}"""
)


@pytest.mark.parametrize("order", ORDERS)
def test_looks_that_end_are_no_deadlock_however_many_there_are(order):
    """At 71 flags that nobody sets, 800 times each, while another thread looks for what comes after them all the time."""
    flags, vain = np.zeros(72, np.int32), np.zeros(1, np.int32)

    CudaOnCpu(BOUNDED, "k_gives_up").run((1,), (64,), [flags, vain, np.int32(800), np.int32(71)], order=order)

    assert (flags[71], vain[0]) == (1, 71 * 800)


def test_a_loop_that_never_waits_ends_at_the_timeout():
    with pytest.raises(CudaOnCpuError, match=r"k_loops_forever: still running after 0\.2 s"):
        wrong("k_loops_forever").run((1,), (64,), [np.zeros(1, np.int32)], timeout=0.2)


@pytest.mark.parametrize(
    ("at", "message"),
    [
        (11, "argument 0 is written 0 bytes past its end"),
        (14, "argument 0 is written 12 bytes past its end"),
        (-1, "argument 0 is written 4 bytes before its start"),
        (2**31 - 1, r"block \(0, 0, 0\), thread \(0, 0, 0\): Segmentation fault"),
    ],
)
def test_a_write_out_of_bounds_is_an_error(at, message):
    y = np.zeros(11, np.float32)

    with pytest.raises(CudaOnCpuError, match=message):
        access("k_write_at").run((1,), (1,), [y, np.int32(at)])
    assert not y.any()


@pytest.mark.parametrize("at", [11, 12, 13, 1003, -1, -5])
def test_a_copy_of_what_lies_outside_to_what_lies_outside_is_an_error(at):
    """Reads outside give NaN: written outside of another argument it is not what was there."""
    x, y = np.zeros(11, np.float32), np.zeros(11, np.float32)

    with pytest.raises(CudaOnCpuError, match=r"argument 1 is written \d+ bytes (past its end|before its start)"):
        access("k_copy_at").run((1,), (1,), [x, y, np.int32(at)])


def test_undefined_memory_written_outside_is_an_error():
    with pytest.raises(CudaOnCpuError, match="argument 0 is written 0 bytes past its end"):
        wrong("k_writes_undefined_memory_at").run((1,), (1,), [np.zeros(11, np.float32), np.int32(11)])


def test_a_write_in_bounds_is_none():
    y = np.zeros(11, np.float32)

    access("k_write_at").run((1,), (1,), [y, np.int32(10)])

    assert y.tolist() == [0.0] * 10 + [1.0]


def test_a_read_out_of_bounds_gives_nan():
    x, y = np.zeros(11, np.float32), np.zeros(1, np.float32)

    access("k_read_at").run((1,), (1,), [x, y, np.int32(11)])

    assert np.isnan(y).all()


def test_shared_memory_is_nan_until_the_block_itself_writes_it():
    f32, f16, f64, dynamic = (np.zeros((3, 2), dtype) for dtype in ("f4", "f2", "f8", "f4"))

    wrong("k_reads_what_it_did_not_write").run((3,), (2,), [f32, f16, f64, dynamic], dynamic_shared=8)

    for read in (f32, f16, f64, dynamic):
        assert (read[0] == 1).all()
        assert np.isnan(read[1:]).all()


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        ("k_copies_misaligned", "gc_cp_async16: misaligned address"),
        ("k_copies_to_global", "gc_cp_async4: the destination is not in shared memory"),
    ],
)
def test_an_async_copy_that_a_device_would_refuse_is_an_error(kernel, message):
    with pytest.raises(CudaOnCpuError, match=message):
        wrong(kernel).run((1,), (1,), [np.zeros(8, np.float32), np.zeros(8, np.float32)])


def test_the_destination_of_an_async_copy_is_nan_while_in_flight():
    x, y = np.full(1, 7, np.float32), np.zeros(3, np.float32)

    wrong("k_reads_a_copy_in_flight").run((1,), (1,), [x, y])

    assert y[[0, 2]].tolist() == [1, 7]
    assert np.isnan(y[1])


@pytest.mark.parametrize("order", ORDERS)
def test_a_lane_that_has_exited_gives_nan(order):
    y = np.zeros((2, 32), np.float32)

    wrong("k_reads_a_lane_that_left").run((1,), (32,), [y], order=order)

    others = np.arange(32) != 5
    assert (y[0, others] == 7).all()
    assert np.isnan(y[1, others]).all()
    assert not y[:, 5].any()


def test_a_vector_access_that_is_misaligned_is_an_error():
    x, y = np.arange(8, dtype=np.float32), np.zeros(4, np.float32)

    access("k_vector_at").run((1,), (1,), [x, y, np.int32(4)])
    assert (y == x[4:]).all()
    with pytest.raises(CudaOnCpuError, match=r"misaligned address .*float4.* 16 byte alignment, in line 7"):
        access("k_vector_at").run((1,), (1,), [x, y, np.int32(2)])


@pytest.mark.parametrize("after", ["", "__shared__ float other[16];"])
@pytest.mark.parametrize("before", ["", "__shared__ float first[16];"])
@pytest.mark.parametrize(
    ("declaration", "allowed"),
    [
        ("__shared__ float tile[4][16];", False),
        ("__shared__ unsigned char tile[16];", False),
        ("__shared__ __align__(16) float tile[4][16];", True),
        ("__shared__ float4 tile[2];", True),
    ],
)
def test_shared_memory_has_the_alignment_it_asks_for_and_no_better(declaration, allowed, before, after):
    source = f"""extern "C" __global__ void k_tile(float* y) {{
      {before}
      {declaration}
      {after}
      *reinterpret_cast<float4*>(tile) = make_float4(1.0f, 2.0f, 3.0f, 4.0f);
      y[0] = reinterpret_cast<const float4*>(tile)->z;
      {"first[0] = y[0];" if before else ""}
      {"other[0] = y[0];" if after else ""}
    }}"""
    y = np.zeros(1, np.float32)
    kernel = CudaOnCpu(source, "k_tile")

    if allowed:
        kernel.run((1,), (1,), [y])
        assert y[0] == 3
    else:
        with pytest.raises(CudaOnCpuError, match=r"misaligned address .* in line 5"):
            kernel.run((1,), (1,), [y])


def test_integer_division_by_zero_is_an_error_and_not_a_crash():
    with pytest.raises(CudaOnCpuError, match="integer division by zero"):
        wrong("k_divide").run((1,), (1,), [np.array([3, 0], np.int32)])
