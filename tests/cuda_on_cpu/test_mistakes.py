"""The CUDA-on-CPU harness: what a device would not allow is an error, and undefined memory is NaN."""

import functools

import numpy as np
import pytest
from cuda_on_cpu.harness import ORDERS, CudaOnCpu, CudaOnCpuError
from cuda_on_cpu.kernel_files import kernel_text


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
