"""Sanitizer builds of the CUDA-on-CPU harness: races and exact bounds are reported, right kernels are not."""

import functools

import numpy as np
import pytest

from testing.cuda_on_cpu.harness import ORDERS, CudaOnCpu, CudaOnCpuError, RaceError, compile_many
from testing.cuda_on_cpu.sanitizers import races
from tests.cuda_on_cpu.kernel_files import broken, kernel_text, line_of

BARRIER = "__syncthreads();"
SOURCES = {
    "gemm": (kernel_text("gemm"), "k_gemm"),
    "gemm without the barrier before use": (broken(kernel_text("gemm"), replace=BARRIER), "k_gemm"),
    "gemm without the barrier after use": (
        broken(kernel_text("gemm"), replace=BARRIER, occurrence=1),
        "k_gemm",
    ),
    "async_copy": (kernel_text("async_copy"), "k_async_copy"),
    "async_copy without the barrier before use": (
        broken(kernel_text("async_copy"), replace=BARRIER),
        "k_async_copy",
    ),
    "async_copy without the barrier after use": (
        broken(kernel_text("async_copy"), replace=BARRIER, occurrence=1),
        "k_async_copy",
    ),
    "reverse_in_warp": (kernel_text("collectives"), "k_reverse_in_warp"),
    "reverse_in_warp without gc_syncwarp": (
        broken(kernel_text("collectives"), replace="gc_syncwarp();"),
        "k_reverse_in_warp",
    ),
    "reverse_in_warp with a shuffle instead": (
        broken(kernel_text("collectives"), replace="gc_syncwarp();", by="gc_warp_sum(1.0f);"),
        "k_reverse_in_warp",
    ),
    "split_k_dot": (kernel_text("split_k_dot"), "k_split_k_dot"),
}

GEMM_LINES = {
    line_of(SOURCES["gemm"][0], text)
    for text in ("tile_a[i % 8][i / 8] =", "tile_b[i / 32][i % 32] =", "&tile_b[depth]", "tile_a[depth]")
}
COPY_LINES = {
    line_of(SOURCES["async_copy"][0], text)
    for text in ("&buffer[0]", "&buffer[(step + 1) % 2]", "wait<1>", "2.0f * buffer")
}
REVERSE_LINES = {
    line_of(SOURCES["reverse_in_warp"][0], text)
    for text in ("  tile[threadIdx.x] = x[threadIdx.x]", "tile[blockDim.x - 1 - threadIdx.x]")
}


@functools.cache
def compiled(name: str) -> CudaOnCpu:
    return compile_many(list(SOURCES.values()), sanitizer="thread")[list(SOURCES).index(name)]


def launch(name: str, order: str = "forward") -> None:
    rng = np.random.default_rng(3)
    zeros = functools.partial(np.zeros, dtype=np.float32)
    match name.split()[0]:
        case "gemm":
            a, b, c = (
                rng.standard_normal((19, 17), "f4"),
                rng.standard_normal((17, 37), "f4"),
                zeros((19, 37)),
            )
            sizes = (np.int32(19), np.int32(37), np.int32(17))
            compiled(name).run((2, 2), (64,), [a, b, c, *sizes], order=order)
            bound = 2 * 17 * 2.0**-24 * (np.abs(a).astype(np.float64) @ np.abs(b))
            assert (np.abs(c - a.astype(np.float64) @ b) <= bound).all()
        case "async_copy":
            x, y = rng.standard_normal(1024, "f4"), zeros(1021)
            compiled(name).run((1,), (64,), [x, y, np.int32(1021)], order=order)
            assert (y == 2 * x[:1021]).all()
        case "reverse_in_warp":
            x, y = rng.standard_normal(29, "f4"), zeros(29)
            compiled(name).run((1,), (29,), [x, y], order=order, dynamic_shared=29 * 4)
            assert (y == x[::-1]).all()
        case "split_k_dot":
            x, y = rng.standard_normal((2, 331), "f4")
            out = zeros(1)
            args = [x, y, zeros(12), np.zeros(1, np.uint32), out, np.int32(331)]
            compiled(name).run((3,), (64,), args, order=order)
            assert abs(out[0] - x.astype(np.float64) @ y) <= 331 * 2.0**-24 * np.abs(x * y).sum()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", ["gemm", "async_copy", "reverse_in_warp", "split_k_dot"])
def test_a_right_kernel_has_no_races_and_right_numbers(name, order):
    launch(name, order)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("name", "variables", "lines"),
    [
        ("gemm without the barrier before use", {"tile_a", "tile_b"}, GEMM_LINES),
        ("gemm without the barrier after use", {"tile_a", "tile_b"}, GEMM_LINES),
        ("async_copy without the barrier before use", {"buffer"}, COPY_LINES),
        ("async_copy without the barrier after use", {"buffer"}, COPY_LINES),
        ("reverse_in_warp without gc_syncwarp", {None}, REVERSE_LINES),
        ("reverse_in_warp with a shuffle instead", {None}, REVERSE_LINES),
    ],
)
def test_a_missing_barrier_is_a_race_between_named_lines(name, variables, lines, order):
    with pytest.raises(RaceError) as caught:
        launch(name, order)

    found = caught.value.races
    assert {race.variable for race in found} == variables
    assert {access.line for race in found for access in (race.first, race.second)} <= lines
    for race in found:
        assert race.first.thread.startswith("CUDA thread (")
        assert race.first.thread != race.second.thread


def test_a_report_of_another_form_is_not_passed_over():
    with pytest.raises(ValueError, match="with 0 accesses"):
        races("WARNING: ThreadSanitizer: data race (pid=1)\n  something else\n")


@functools.cache
def access(kernel: str) -> CudaOnCpu:
    return CudaOnCpu(kernel_text("accesses"), kernel, sanitizer="address")


@pytest.mark.parametrize(
    ("kernel", "at", "message"),
    [
        ("k_write_at", 11, "heap-buffer-overflow, write of 4 bytes, in line 2, 0 bytes .* of 44-byte"),
        ("k_write_at", -1, "heap-buffer-overflow, write of 4 bytes, in line 2, 4 bytes .* of 44-byte"),
        ("k_shared_at", 7, "global-buffer-overflow, read of 4 bytes, in line 13, 0 bytes .* 'tile'"),
    ],
)
def test_address_sanitizer_names_the_access_that_is_out_of_bounds(kernel, at, message):
    with pytest.raises(CudaOnCpuError, match=message):
        access(kernel).run((1,), (1,), [np.zeros(11, np.float32), np.int32(at)])


def test_address_sanitizer_sees_a_read_one_past_the_end():
    with pytest.raises(CudaOnCpuError, match="heap-buffer-overflow, read of 4 bytes, in line 4"):
        access("k_read_at").run((1,), (1,), [np.zeros(11, "f4"), np.zeros(1, "f4"), np.int32(11)])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("kernel", "at"), [("k_write_at", 10), ("k_shared_at", 6)])
def test_address_sanitizer_is_silent_in_bounds(kernel, at, order):
    y = np.zeros(11, np.float32)

    access(kernel).run((3,), (5,), [y, np.int32(at)], order=order)

    assert y.sum() == 1


def test_a_divergent_barrier_is_reported_in_sanitizer_builds_too():
    with pytest.raises(CudaOnCpuError, match="barrier divergence: 13 threads wait"):
        CudaOnCpu(kernel_text("wrong"), "k_some_wait", sanitizer="address").run((1,), (64,), [np.zeros(64, np.float32)])
