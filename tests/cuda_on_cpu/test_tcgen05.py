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
KERNELS = (
    "k_tcgen05_f16",
    "k_tcgen05_types",
    "k_tcgen05_pair",
    "k_tcgen05_as_one",
    "k_tcgen05_as_one_types",
    "k_tcgen05_weights",
    "k_tcgen05_weights_bf16",
    "k_tcgen05_instruction",
)
USED = "used the product's columns"
NO_WAIT = (
    r"sums are not done: nobody has seen the phase of a barrier|a product is asked for while a thread loads|" + USED
)
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
        "lanes of a warp have different addresses",
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

READS = "  float again[16];\n  gc_tcgen05_load_row<16>(again, sums + mine);\n  gc_tcgen05_fence_before();"
# the same of k_tcgen05_weights
OF_WEIGHTS = {
    "no wait for the stores": (
        {"replace": "  gc_tcgen05_wait_store();\n  gc_tcgen05_fence_before();"},
        "stores are in flight|used the product's columns",
    ),
    "a fence before the wait for the stores": (
        {"replace": "  gc_tcgen05_wait_store();\n  gc_tcgen05_fence_before();", "by": "  gc_tcgen05_fence_before();"},
        "gc_tcgen05_fence_before: stores are in flight",
    ),
    "no fence after the stores": (
        {"replace": "  gc_tcgen05_wait_store();\n  gc_tcgen05_fence_before();", "by": "  gc_tcgen05_wait_store();"},
        "used the product's columns, and no gc_tcgen05_fence_before",
    ),
    "no fence before the products": (
        {"replace": "        gc_tcgen05_fence_after();\n#pragma"  , "by": "#pragma"},
        "fence_after has not followed what others did in the product's columns",
    ),
    "no wait for the weights": (
        {"replace": "gc_mbarrier_wait(stored, turn);"},
        f"{USED}|while a thread loads|has not followed what others did|deadlock|in flight|not done|under way reads",
    ),
    "no wait for the sums": (
        {"replace": "gc_mbarrier_wait(done, 0);"},
        "its sums are not done|has not followed the end|used the product's columns|while a thread loads",
    ),
    "another warp's lanes": (
        {"replace": "mine = threadIdx.x / 32 << 21", "by": "mine = (threadIdx.x / 32 ^ 1) << 21"},
        "lane [0-9]+, which warp [0-3] does not reach so",
    ),
    "half of the lanes": (
        {"replace": "mine = threadIdx.x / 32 << 21", "by": "mine = (threadIdx.x / 32 * 2 + 1) << 20"},
        "lane [0-9]+, which warp [0-3] does not reach so",
    ),
    "weights in the sums": (
        {"replace": "weights = sums + 96", "by": "weights = sums + 64"},
        "in the columns of the sums|are not done",
    ),
    "weights beside the allocation": ({"replace": "weights = sums + 96", "by": "weights = sums + 120"}, "are not allocated"),
    "weights from a lane on": (
        {"replace": "(sums, weights + 8 * j, values", "by": "(sums, weights + (32 << 16), values", "occurrence": 1},
        "from lane 32 on",
    ),
    "weights of the first step": (
        {"replace": "(sums, weights + 8 * j, values", "by": "(sums, weights, values", "occurrence": 1},
        None,
    ),
    "values of the first step": ({"replace": ") + 128 * j", "by": ")"}, None),
    "panels that are too near": ({"replace": "gc_tcgen05_turned(tiles, 4096)", "by": "gc_tcgen05_turned(tiles, 2048)"}, None),
    "values that are not turned": (
        {"replace": "gc_tcgen05_turned(tiles, 4096) + 128 * j", "by": "gc_tcgen05_operand(tiles) + 128 * j"},
        None,
    ),
    "sums that are loaded before they are stored": (
        {"replace": "  gc_tcgen05_wait_store();\n  gc_tcgen05_fence_before();", "by": READS, "occurrence": 1},
        "the thread's stores are in flight",
    ),
    "stores over what is loaded still": (
        {"replace": "    gc_tcgen05_wait_row<16>(part);\n"},
        "the thread still loads them",
    ),
    "stores that are never waited for": (
        {
            "replace": "  gc_tcgen05_wait_row<48>(lower);",
            "by": "  gc_tcgen05_wait_row<48>(lower);\n  gc_tcgen05_store_row<16>(weights + mine, words);\n  return;",
        },
        "exits with stores to tensor memory in flight",
    ),
    "what was there is added to": ({"replace": "turn > 0 || j > 0", "by": "true", "occurrence": 1}, None),
}  # fmt: skip
# the same of k_tcgen05_as_one
OF_TWO = {
    "an allocation before the other block runs": (
        {"replace": "gc_cluster_sync();"},
        "gc_tcgen05_alloc_pair: the other block may not have started: gc_cluster_sync",
    ),
    "columns of one block": (
        {"replace": "gc_tcgen05_alloc_pair", "by": "gc_tcgen05_alloc"},
        "a product of a pair, and columns of one block",
    ),
    "a product of one block": (
        {"replace": "gc_tcgen05_f16_pair<48>", "by": "gc_tcgen05_f16<128, 48>"},
        "a product of one block, and columns of a pair",
    ),
    "both announce": (
        {"replace": "if (rank == 0) gc_mbarrier_arrive_expect_tx", "by": "gc_mbarrier_arrive_expect_tx"},
        "1 threads have arrived already, and bytes of the phase are missing",
    ),
    "the bytes of one block": (
        {"replace": "38912", "by": "19456"},
        "deadlock|is on its way still|changed in shared memory|exited while TMA loads",
    ),
    "bytes that are counted at home": (
        {"replace": "gc_tma_load_2d_pair(tiles + 16384", "by": "gc_tma_load_2d(tiles + 16384"},
        "deadlock",
    ),
    "the second block asks": (
        {"replace": "      if (rank == 0) {", "by": "      if (rank == 1) {"},
        "deadlock",
    ),
    "the second block asks without waiting": (
        {"replace": "      if (rank == 0) {\n        gc_mbarrier_wait(full, step & 1);", "by": "      {"},
        "a thread of the block of rank 1 asks for a pair's product|is on its way still",
    ),
    "a product of more columns": ({"replace": "f16_pair<48>", "by": "f16_pair<56>"}, "a product of 256 x 56"),
    "an arrival of one block's products": (
        {"replace": "gc_tcgen05_commit_pair(done)", "by": "gc_tcgen05_commit(done)"},
        "of products of a pair: gc_tcgen05_commit_pair",
    ),
    "a stage that is loaded again too early": (
        {"replace": "gc_mbarrier_wait_cluster(empty, (step & 1) ^ 1);"},
        "changed in shared memory before the product|is on its way still|exited while TMA loads|have arrived already|deadlock",
    ),
    "a wait of the block for the cluster": (
        {"replace": "gc_mbarrier_wait_cluster(done, 0)", "by": "gc_mbarrier_wait(done, 0)"},
        "threads of another block arrived: gc_mbarrier_wait_cluster",
    ),
    "freed while the other block loads": (
        {"replace": "gc_cluster_sync();", "by": "__syncthreads();", "occurrence": 2},
        "in flight|no gc_tcgen05_fence_before has followed|the other block has freed|has not followed the other",
    ),
    "freed by one block": (
        {"replace": "if (threadIdx.x / 32 == 1) gc_tcgen05_free", "by": "if (threadIdx.x / 32 == 1 + 9 * rank) gc_tcgen05_free"},
        "exited with 64 columns of tensor memory allocated",
    ),
    "freed as one block's": (
        {"replace": "gc_tcgen05_free_pair", "by": "gc_tcgen05_free"},
        "the columns are of a pair: gc_tcgen05_free_pair",
    ),
    "the end before the other block has freed": (
        {"replace": "gc_cluster_sync();", "occurrence": 3},
        "gc_tcgen05_free_pair: the other block has exited",
    ),
    "the other block's columns": ({"replace": "rank * 24", "by": "(rank ^ 1) * 24"}, None),
    "the other block's rows": ({"replace": "step * 64, rank * 128", "by": "step * 64, (rank ^ 1) * 128"}, None),
    "half of the columns": ({"replace": "f16_pair<48>", "by": "f16_pair<32>"}, None),
}  # fmt: skip


@functools.cache
def compiled(change: str = "", sanitizer: str | None = None) -> dict[str, CudaOnCpu]:
    text = broken(TCGEN05, **MISTAKES[change][0]) if change else TCGEN05
    names = KERNELS[:1] if change else KERNELS
    return dict(zip(names, compile_many([(text, name) for name in names], sanitizer=sanitizer), strict=True))


@functools.cache
def mistaken() -> dict[str, CudaOnCpu]:
    built = compile_many([(broken(TCGEN05, **change), KERNELS[0]) for change, _ in MISTAKES.values()])
    return dict(zip(MISTAKES, built, strict=True))


@functools.cache
def mistaken_weights() -> dict[str, CudaOnCpu]:
    start = TCGEN05.index("// y[128, 80]")
    texts = [TCGEN05[:start] + broken(TCGEN05[start:], **change) for change, _ in OF_WEIGHTS.values()]
    built = compile_many([(text, "k_tcgen05_weights") for text in texts])
    return dict(zip(OF_WEIGHTS, built, strict=True))


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


def as_one(kernel: CudaOnCpu, order: str = "forward") -> None:
    """k_tcgen05_as_one on fewer rows than there are in two tiles."""
    rng = np.random.default_rng(7)
    a, b = rng.standard_normal((251, 128)).astype("f2"), rng.standard_normal((48, 128)).astype("f2")
    y = np.zeros((256, 48), np.float32)
    args = [mapped(a, 128, "f16", 0), mapped(b, 24, "f16", 1), y]

    kernel.run((2,), (128,), args, order=order, dynamic_shared=19456 + 32)

    check(y[:251], a, b)
    assert not y[251:].any(), "rows past the end are zeros"


@pytest.mark.parametrize("sanitizer", [None, "thread"])
@pytest.mark.parametrize("order", ORDERS)
def test_two_blocks_multiply_as_one(order, sanitizer):
    as_one(compiled("", sanitizer)["k_tcgen05_as_one"], order)


@pytest.mark.parametrize("order", ORDERS)
def test_two_blocks_multiply_other_types_and_load_images_and_batches(order):
    rng = np.random.default_rng(5)
    a, b = (
        rng.standard_normal((256, 64)).astype(ml_dtypes.bfloat16),
        rng.standard_normal((2, 32, 64)).astype(ml_dtypes.bfloat16),
    )
    words = rng.standard_normal((256, 32)).astype(np.float32), rng.standard_normal((32, 32)).astype(np.float32)
    image = a.reshape(1, 16, 16, 64)
    described = TensorMap(
        0,
        "bf16",
        image.shape[::-1],
        image.strides[2::-1],
        channels=64,
        pixels=128,
        lower=(0, 0),
        upper=(0, 0),
        swizzle=128,
    )
    batch = TensorMap(1, "bf16", b.shape[::-1], b.strides[1::-1], (64, 16, 1), swizzle=128)
    y = np.zeros((2, 256, 32), np.float32)
    maps = [
        Mapped(described, image),
        Mapped(batch, b),
        mapped(words[0], 128, "tf32", 2),
        mapped(words[1], 16, "tf32", 3),
    ]

    compiled()["k_tcgen05_as_one_types"].run((2,), (128,), [*maps, y], order=order, dynamic_shared=36864 + 24)

    check(y[0], a, b[1])
    check(y[1], *map(to_tf32, words))


@functools.cache
def mistaken_pairs() -> dict[str, CudaOnCpu]:
    start, end = TCGEN05.index("// y[256, 48]"), TCGEN05.index("// y[2, 256, 32]")
    texts = [TCGEN05[:start] + broken(TCGEN05[start:end], **change) + TCGEN05[end:] for change, _ in OF_TWO.values()]
    built = compile_many([(text, "k_tcgen05_as_one") for text in texts])
    return dict(zip(OF_TWO, built, strict=True))


@pytest.mark.parametrize("mistake", OF_TWO)
def test_a_mistake_of_two_blocks_is_seen(mistake):
    reason = OF_TWO[mistake][1]

    def in_every_order():
        for order in ORDERS:
            as_one(mistaken_pairs()[mistake], order)

    with pytest.raises(CudaOnCpuError if reason else AssertionError, match=reason):
        in_every_order()


def weigh(kernel: CudaOnCpu, order: str = "forward", dtype: str = "f16") -> None:
    """Three times the product, as it is doubled between two."""
    rng, kind = np.random.default_rng(8), {"f16": np.float16, "bf16": ml_dtypes.bfloat16}[dtype]
    w, v = rng.standard_normal((128, 32)).astype(kind), rng.standard_normal((32, 80)).astype(kind)
    y = np.zeros((128, 80), np.float32)
    described = TensorMap(1, dtype, (80, 32), (160,), (64, 32), swizzle=128)

    kernel.run((1,), (160,), [w.view(np.uint32), Mapped(described, v), y], order=order, dynamic_shared=8192 + 32)

    check(y / 3, w, np.ascontiguousarray(v.T))


@pytest.mark.parametrize("order", ORDERS)
def test_weights_that_threads_store_are_multiplied_with_values_that_are_read_across(order):
    weigh(compiled()["k_tcgen05_weights"], order)
    weigh(compiled()["k_tcgen05_weights_bf16"], order, "bf16")


@pytest.mark.parametrize("mistake", OF_WEIGHTS)
def test_a_mistake_with_weights_is_seen_in_any_order(mistake):
    reason = OF_WEIGHTS[mistake][1]
    for order in ORDERS:
        with pytest.raises(CudaOnCpuError if reason else AssertionError, match=reason):
            weigh(mistaken_weights()[mistake], order)


def test_a_lane_that_tells_of_weights_before_the_others_have_is_seen_in_some_order():
    text = broken(TCGEN05, replace="  gc_tcgen05_fence_before();\n  gc_syncwarp();", by="  gc_tcgen05_fence_before();")
    (kernel,) = compile_many([(text, "k_tcgen05_weights")])

    def in_every_order():
        for order in ORDERS:
            weigh(kernel, order)

    with pytest.raises(CudaOnCpuError, match="used the product's columns, and no gc_tcgen05_fence_before"):
        in_every_order()


def test_threads_that_store_weights_race_with_nothing():
    weigh(compiled("", "thread")["k_tcgen05_weights"])


def test_an_instruction_is_described_by_its_fields():
    y = np.zeros(4, np.uint32)

    compiled()["k_tcgen05_instruction"].run((1,), (1,), [y])

    def fields(word):
        return [int(word) >> first & (1 << bits) - 1 for first, bits in ((4, 2), (7, 3), (10, 3), (17, 6), (24, 5))]

    assert [fields(word) for word in y] == [[1, 0, 0, 32, 8], [1, 1, 1, 6, 4], [1, 2, 2, 2, 8], [1, 0, 0, 12, 16]]
