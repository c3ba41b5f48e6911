"""tcgen05 and tensor memory in the CUDA-on-CPU harness: right kernels are right, each mistake is seen for what it is."""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np
import pytest

from gpucomp.artifact.tensor_map import TensorMap
from testing.cuda_on_cpu.harness import ORDERS, CudaOnCpu, CudaOnCpuError, Mapped, RaceError, compile_many
from testing.wgmma_kernels import to_tf32
from tests.cuda_on_cpu.kernel_files import broken, kernel_text

TCGEN05 = kernel_text("tcgen05")
KERNELS = ("k_tcgen05_f16", "k_tcgen05_types", "k_tcgen05_pair", "k_tcgen05_instruction")
NO_WAIT = r"sums are not done: nobody has seen the phase of a barrier|sums are asked for while a thread loads"
NO_FENCE = "no fences are around the barrier between"
# a change of k_tcgen05_f16, and what is found then; None: wrong numbers
MISTAKES = {
    "columns that no power of two is": (
        {"replace": "alloc(allocated, 64)", "by": "alloc(allocated, 48)"},
        "48 columns",
    ),
    "too many columns": ({"replace": "alloc(allocated, 64)", "by": "alloc(allocated, 1024)"}, "1024 columns"),
    "a second allocation": (
        {
            "replace": "gc_tcgen05_alloc(allocated, 64);",
            "by": "{ gc_tcgen05_alloc(allocated, 32); gc_tcgen05_alloc(allocated, 64); }",
        },
        "has given up the right to allocate",
    ),
    "lanes that want different columns": (
        {
            "replace": "gc_tcgen05_alloc(allocated, 64)",
            "by": "gc_tcgen05_alloc(allocated, threadIdx.x == 40 ? 32 : 64)",
        },
        "lanes of a warp ask for different columns",
    ),
    "fewer columns than the sums have": (
        {"replace": "alloc(allocated, 64)", "by": "alloc(allocated, 32)"},
        "columns 480 to 527 of tensor memory are not allocated",
    ),
    "sums beside the allocation": (
        {"replace": "sums = *allocated", "by": "sums = *allocated - 32"},
        "columns 416 to 463 of tensor memory are not allocated",
    ),
    "no fence before the barrier": ({"replace": "gc_tcgen05_fence_before();"}, NO_FENCE),
    "no fence after the barrier": ({"replace": "gc_tcgen05_fence_after();"}, NO_FENCE),
    "never freed": ({"replace": "gc_tcgen05_free(sums, 64);"}, "exited with 64 columns of tensor memory allocated"),
    "freed in part": (
        {"replace": "free(sums, 64)", "by": "free(sums, 32)"},
        "32 columns at 448 are not what was allocated",
    ),
    "freed while others load": (
        {"replace": "  gc_named_barrier(1, 128);\n"},
        "in flight|no gc_tcgen05_fence_before has followed|has not followed the others' loads",
    ),
    "freed without the fence before": (
        {"replace": "gc_tcgen05_fence_before();", "occurrence": 1},
        "of another warp has loaded, and no gc_tcgen05_fence_before",
    ),
    "freed without the fence after": (
        {"replace": "gc_tcgen05_fence_after();", "occurrence": 2},
        "gc_tcgen05_fence_after has not followed the others' loads",
    ),
    "no wait for the products": (
        {"replace": "gc_mbarrier_wait(done, 0);"},
        f"{NO_WAIT}|gc_tcgen05_fence_after has not followed the end",
    ),
    "no fence after that wait": (
        {"replace": "gc_tcgen05_fence_after();", "occurrence": 1},
        "gc_tcgen05_fence_after has not followed the end of its products",
    ),
    "a barrier that no product arrives at": ({"replace": "gc_tcgen05_commit(done);"}, "deadlock"),
    "a barrier at which the thread itself arrives": (
        {"replace": "gc_tcgen05_commit(done);", "by": "gc_mbarrier_arrive(done);"},
        NO_WAIT,
    ),
    "no wait for the loads": (
        {"replace": "    gc_tcgen05_wait_load<32>(upper);\n    gc_tcgen05_wait_load<16>(lower);\n"},
        "exits with loads of tensor memory in flight",
    ),
    "sums that are used before the wait": (
        {
            "replace": "    gc_tcgen05_wait_load<32>(upper);\n",
            "by": "    upper[0] = 1.0f;\n    gc_tcgen05_wait_load<32>(upper);\n",
        },
        "sums were written while they are loaded",
    ),
    "a wait for what is not loaded": (
        {"replace": "gc_tcgen05_wait_load<32>(upper)", "by": "gc_tcgen05_wait_load<32>(upper + 1)"},
        "are not those of a load in flight",
    ),
    "another warp's lanes": (
        {"replace": "threadIdx.x / 32 * 32 + half * 16) << 16", "by": "half * 16) << 16"},
        "lane 0, which warp [123] does not reach so",
    ),
    "lanes in the middle": (
        {"replace": "+ half * 16) << 16", "by": "+ half * 8) << 16"},
        "lane [0-9]+, which warp [0-3] does not reach so",
    ),
    "lanes of a warp that load from different columns": (
        {"replace": "upper, from)", "by": "upper, from + threadIdx.x % 2)"},
        "lanes of a warp load from different addresses",
    ),
    "a stage that is loaded again too early": (
        {"replace": "gc_tcgen05_commit(empty + stage);", "by": "gc_mbarrier_arrive(empty + stage);"},
        "changed in shared memory before the product was done|operand [ab] is on its way",
    ),
    "operands that have not arrived": (
        {"replace": "gc_mbarrier_wait(full + stage, step / 2 & 1);"},
        "operand a is on its way still|deadlock",
    ),
    "a descriptor without a swizzle": (
        {
            "replace": "gc_tcgen05_operand(tiles + stage * 22528);",
            "by": "gc_tcgen05_operand(tiles + stage * 22528) & ~(7ull << 61);",
        },
        "operand a is not described with the 128-byte swizzle",
    ),
    "a descriptor of sm_90": (
        {"replace": "gc_tcgen05_operand(tiles + stage * 22528);", "by": "gc_wgmma_operand(tiles + stage * 22528);"},
        "the descriptor of operand a is not of version 1",
    ),
    "a descriptor with a base offset": (
        {
            "replace": "gc_tcgen05_operand(tiles + stage * 22528);",
            "by": "gc_tcgen05_operand(tiles + stage * 22528) | 1ull << 49;",
        },
        "has a base offset, or a mode",
    ),
    "rows that are too near": (
        {
            "replace": "gc_tcgen05_operand(tiles + stage * 22528);",
            "by": "gc_tcgen05_operand(tiles + stage * 22528) - (32ull << 32);",
        },
        None,
    ),
    "an operand within the pattern": (
        {
            "replace": "gc_tcgen05_operand(tiles + stage * 22528);",
            "by": "gc_tcgen05_operand(tiles + stage * 22528 + 128);",
        },
        "within a pattern of the swizzle",
    ),
    "a product of half the rows": ({"replace": "f16<128, 48>", "by": "f16<64, 48>"}, None),
    "a product that there is not": ({"replace": "f16<128, 48>", "by": "f16<128, 40>"}, "a product of 128 x 40"),
    "another type": ({"replace": "f16<128, 48>", "by": "bf16<128, 48>"}, None),
    "a type of four bytes": ({"replace": "f16<128, 48>", "by": "tf32<128, 48>"}, None),
    "what was there is added to": ({"replace": "step > 0 || k > 0", "by": "true"}, None),
    "sums from a lane on": ({"replace": "(sums, rows", "by": "(sums + (16 << 16), rows"}, "sums from lane 16 on"),
}


@functools.cache
def compiled(change: str = "", sanitizer: str | None = None) -> dict[str, CudaOnCpu]:
    text = broken(TCGEN05, **MISTAKES[change][0]) if change else TCGEN05
    names = KERNELS[:1] if change else KERNELS
    return dict(zip(names, compile_many([(text, name) for name in names], sanitizer=sanitizer), strict=True))


@functools.cache
def mistaken() -> dict[str, CudaOnCpu]:
    built = compile_many([(broken(TCGEN05, **change), KERNELS[0]) for change, _ in MISTAKES.values()])
    return dict(zip(MISTAKES, built, strict=True))


def mapped(x: np.ndarray, rows: int, dtype: str, number: int) -> Mapped:
    columns = 128 // x.itemsize
    return Mapped(TensorMap(number, dtype, x.shape[::-1], (x.strides[0],), (columns, rows), swizzle=128), x)


def check(found: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Within the roundings of as many sums as the depth has."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    assert (np.abs(found - a @ b.T) <= a.shape[1] * 2.0**-24 * (np.abs(a) @ np.abs(b).T)).all()


def multiply(kernel: CudaOnCpu, order: str = "forward") -> None:
    """k_tcgen05_f16 on fewer rows than there are in a tile."""
    rng, depth = np.random.default_rng(2), 320
    a, b = rng.standard_normal((125, depth)).astype("f2"), rng.standard_normal((48, depth)).astype("f2")
    y = np.zeros((128, 48), np.float32)
    args = [mapped(a, 128, "f16", 0), mapped(b, 48, "f16", 1), y, np.int32(depth)]
    kernel.run((1,), (192,), args, order=order, dynamic_shared=2 * 22528 + 48)
    check(y[:125], a, b)
    assert not y[125:].any(), "rows past the end are zeros"


@pytest.mark.parametrize("order", ORDERS)
def test_sums_are_made_in_tensor_memory_and_loaded_from_it(order):
    multiply(compiled()["k_tcgen05_f16"], order)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_seen_in_any_order(mistake):
    reason = MISTAKES[mistake][1]
    for order in ORDERS:
        with pytest.raises(CudaOnCpuError if reason else AssertionError, match=reason):
            multiply(mistaken()[mistake], order)


def test_threads_that_wait_race_with_nothing():
    multiply(compiled("", "thread")["k_tcgen05_f16"])


@pytest.mark.parametrize("mistake", ["a stage that is loaded again too early", "no wait for the products"])
def test_a_missing_wait_is_a_race_too(mistake):
    with pytest.raises((RaceError, CudaOnCpuError)):
        multiply(compiled(mistake, "thread")["k_tcgen05_f16"])


@pytest.mark.parametrize("order", ORDERS)
def test_other_types_and_64_rows_are_multiplied(order):
    rng = np.random.default_rng(4)
    f32 = rng.standard_normal((128, 64)).astype(np.float32)
    halves = [np.ascontiguousarray(x) for x in np.split(f32.astype(ml_dtypes.bfloat16), 2)]
    words = [np.ascontiguousarray(x[:, :32]) for x in np.split(f32, 2)]
    maps = [mapped(x, 64, "bf16", i) for i, x in enumerate(halves)] + [
        mapped(x, 64, "tf32", 2 + i) for i, x in enumerate(words)
    ]
    y = np.zeros((2, 64, 64), np.float32)

    compiled()["k_tcgen05_types"].run((1,), (128,), [*maps, y], order=order, dynamic_shared=32768 + 24)

    check(y[0], *halves)
    check(y[1], *map(to_tf32, words))


@pytest.mark.parametrize("sanitizer", [None, "thread"])
@pytest.mark.parametrize("order", ORDERS)
def test_products_tell_both_blocks_that_a_stage_is_empty(order, sanitizer):
    rng = np.random.default_rng(6)
    a, b = rng.standard_normal((128, 128)).astype("f2"), rng.standard_normal((16, 128)).astype("f2")
    y = np.zeros((128, 16), np.float32)
    args = [mapped(a, 64, "f16", 0), mapped(b, 8, "f16", 1), y]

    compiled("", sanitizer)["k_tcgen05_pair"].run((2,), (128,), args, order=order, dynamic_shared=10240 + 32)

    check(y, a, b)


def test_an_instruction_is_described_by_its_fields():
    y = np.zeros(3, np.uint32)

    compiled()["k_tcgen05_instruction"].run((1,), (1,), [y])

    def fields(word):
        return [int(word) >> first & (1 << bits) - 1 for first, bits in ((4, 2), (7, 3), (10, 3), (17, 6), (24, 5))]

    assert [fields(word) for word in y] == [[1, 0, 0, 32, 8], [1, 1, 1, 6, 4], [1, 2, 2, 2, 8]]
