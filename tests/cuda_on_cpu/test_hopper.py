"""mbarriers, TMA, wgmma and clusters in the CUDA-on-CPU harness: right kernels are right, each mistake is seen."""

import functools
import re
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from gpucomp.artifact.tensor_map import TensorMap
from testing.cuda_on_cpu.harness import ORDERS, CudaOnCpu, CudaOnCpuError, Mapped, RaceError, compile_many
from tests.cuda_on_cpu.kernel_files import broken, kernel_text

HOPPER, READ_BACK, WGMMA = kernel_text("hopper"), kernel_text("read_back"), kernel_text("wgmma")
ROW = TensorMap(0, "f32", (32, 1), (128,), (32, 8))  # 8 rows of 32 floats
SOURCES = {
    "ring": (HOPPER, "k_ring"),
    "ring without a wait for the bytes": (
        broken(HOPPER, replace="gc_mbarrier_wait(full + stage, round & 1);"),
        "k_ring",
    ),
    "ring with the wrong phase": (
        broken(HOPPER, replace="(full + stage, round & 1)", by="(full + stage, (round & 1) ^ 1)"),
        "k_ring",
    ),
    "ring that announces too much": (broken(HOPPER, replace="full + stage, 1024", by="full + stage, 2048"), "k_ring"),
    "ring that announces too little": (broken(HOPPER, replace="full + stage, 1024", by="full + stage, 512"), "k_ring"),
    "ring without the barrier's fence": (broken(HOPPER, replace="gc_fence_barrier_init();"), "k_ring"),
    "ring whose readers never say that they are done": (
        broken(HOPPER, replace="gc_mbarrier_arrive(empty + stage);", by=";"),
        "k_ring",
    ),
    "ring that does not wait for its readers": (
        broken(HOPPER, replace="gc_mbarrier_wait(empty + stage, (round & 1) ^ 1);"),
        "k_ring",
    ),
    "ring with its barriers in a tile": (broken(HOPPER, replace="() + 2 * 1024)", by="() + 1016)"), "k_ring"),
    "boxes": (HOPPER, "k_boxes"),
    "store": (HOPPER, "k_store"),
    "store without the proxies' fence": (broken(HOPPER, replace="gc_fence_proxy_async();"), "k_store"),
    "store without a wait": (broken(HOPPER, replace="gc_tma_store_wait<0>();"), "k_store"),
    "read back": (READ_BACK, "k_store_and_read"),
    "read back without the proxies' fence": (broken(READ_BACK, replace="gc_fence_proxy_async();"), "k_store_and_read"),
    "read back after one thread's fence": (
        broken(READ_BACK, replace="gc_fence", by="if (threadIdx.x == 0) gc_fence"),
        "k_store_and_read",
    ),
    "read back after one fence for all": (
        broken(
            READ_BACK,
            replace="gc_fence_proxy_async();\n  __syncthreads();",
            by="__syncthreads();\n  if (threadIdx.x == 0) gc_fence_proxy_async();",
        ),
        "k_store_and_read",
    ),
    "read back of what is written over": (
        broken(
            READ_BACK,
            replace="  if (threadIdx.x == 0) {",
            by="  if (threadIdx.x == 40) tile[77] = 0.0f;\n  if (threadIdx.x == 0) {",
        ),
        "k_store_and_read",
    ),
    "read back before the wait": (
        broken(
            broken(READ_BACK, replace="    gc_tma_store_wait<0>();\n"),
            replace="z[i] = y[i];",
            by="z[i] = y[i];\n  __syncthreads();\n  gc_tma_store_wait<0>();",
        ),
        "k_store_and_read",
    ),
    "read back after a wait for too little": (broken(READ_BACK, replace="wait<0>", by="wait<1>"), "k_store_and_read"),
    "read back by threads that did not meet": (
        broken(READ_BACK, replace="__syncthreads();", occurrence=1),
        "k_store_and_read",
    ),
    "cluster": (HOPPER, "k_cluster"),
    "cluster without the first wait": (broken(HOPPER, replace="gc_cluster_sync();"), "k_cluster"),
    "cluster without the last wait": (broken(HOPPER, replace="gc_cluster_sync();", occurrence=1), "k_cluster"),
    "stmatrix": (HOPPER, "k_stmatrix"),
    "store 3d": (HOPPER, "k_store_3d"),
    "store twice": (HOPPER, "k_store_twice"),
    "store twice without a wait": (
        broken(HOPPER, replace="  if (threadIdx.x == 0) gc_tma_store_wait<0>();"),
        "k_store_twice",
    ),
    "store twice by lanes that do not meet": (
        broken(
            HOPPER,
            replace="    }\n    gc_syncwarp();\n  }\n  if (threadIdx.x == 0) gc_tma",
            by="    }\n  }\n  if (threadIdx.x == 0) gc_tma",
        ),
        "k_store_twice",
    ),
    "named barrier": (HOPPER, "k_named_barrier"),
    "named barrier that is missing": (
        broken(HOPPER, replace="gc_named_barrier(3, 64);", occurrence=1),
        "k_named_barrier",
    ),
    "named barrier for more than come": (broken(HOPPER, replace="(3, 64)", by="(3, 96)"), "k_named_barrier"),
    "multicast": (HOPPER, "k_multicast"),
    "multicast to one": (broken(HOPPER, replace="rank * 4, 3)", by="rank * 4, 1)"), "k_multicast"),
    "multicast to nobody": (broken(HOPPER, replace="rank * 4, 3)", by="rank * 4, 0)"), "k_multicast"),
    "multicast to a stranger": (broken(HOPPER, replace="rank * 4, 3)", by="rank * 4, 7)"), "k_multicast"),
    "multicast that does not wait for the other": (
        broken(HOPPER, replace="gc_mbarrier_wait_cluster(empty, (step & 1) ^ 1);"),
        "k_multicast",
    ),
    "multicast that waits within its block": (
        broken(HOPPER, replace="gc_mbarrier_wait_cluster", by="gc_mbarrier_wait"),
        "k_multicast",
    ),
    "multicast with an arrival too many": (broken(HOPPER, replace="step + 1 < steps && ", by=""), "k_multicast"),
    "multicast before the other is there": (
        broken(HOPPER, replace="gc_cluster_sync();\n  if (threadIdx.x >=", by="__syncthreads();\n  if (threadIdx.x >="),
        "k_multicast",
    ),
    "multicast boxes": (HOPPER, "k_multicast_boxes"),
    "wgmma": (WGMMA, "k_wgmma_f16"),
    "wgmma without its fence": (broken(WGMMA, replace="gc_wgmma_fence();"), "k_wgmma_f16"),
    "wgmma without a wait": (broken(WGMMA, replace="gc_wgmma_wait<0>();"), "k_wgmma_f16"),
    "wgmma that waits for too little": (broken(WGMMA, replace="wait<0>", by="wait<1>"), "k_wgmma_f16"),
    "wgmma without a commit": (broken(WGMMA, replace="gc_wgmma_commit();"), "k_wgmma_f16"),
    "wgmma on bytes that have not landed": (
        broken(WGMMA, replace="gc_mbarrier_wait(full + stage, step / 2 & 1);"),
        "k_wgmma_f16",
    ),
    "wgmma whose stage is given back early": (
        broken(
            broken(WGMMA, replace="    if (threadIdx.x % 32 == 0) gc_mbarrier_arrive(empty + stage);\n"),
            replace="    gc_wgmma_commit();\n",
            by="    gc_wgmma_commit();\n    if (threadIdx.x % 32 == 0) gc_mbarrier_arrive(empty + stage);\n    gc_syncwarp();\n",
        ),
        "k_wgmma_f16",
    ),
    "wgmma by half of a warpgroup": (
        broken(WGMMA, replace="threadIdx.x >= 128", by="threadIdx.x >= 64"),
        "k_wgmma_f16",
    ),
    "wgmma types": (WGMMA, "k_wgmma_types"),
    "wgmma chained": (WGMMA, "k_wgmma_chained"),
    "wgmma chained, panels too near": (broken(WGMMA, replace="12288, 4096)", by="12288, 2048)"), "k_wgmma_chained"),
    "wgmma chained, registers written too early": (
        broken(WGMMA, replace="float meanwhile =", by="left[0][1] = 0;\n  float meanwhile ="),
        "k_wgmma_chained",
    ),
}
WATCHED = (
    "ring",
    "ring that does not wait for its readers",
    "cluster",
    "multicast",
    "read back",
    "read back by threads that did not meet",
    "read back after one thread's fence",
    "read back after one fence for all",
    "read back of what is written over",
    "store twice",
    "store twice without a wait",
    "store twice by lanes that do not meet",
    "named barrier",
    "named barrier that is missing",
    "wgmma",
    "wgmma whose stage is given back early",
)


@functools.cache
def compiled(name: str, sanitizer: str | None = None) -> CudaOnCpu:
    names = [n for n in SOURCES if sanitizer is None or n in WATCHED]
    return compile_many([SOURCES[n] for n in names], sanitizer=sanitizer)[names.index(name)]


def ring(name: str, order: str = "forward", sanitizer: str | None = None) -> None:
    steps = 5
    x, y = np.random.default_rng(1).standard_normal((37, 32), "f4"), np.full((40, 32), 7, np.float32)
    spec = replace(ROW, extents=(32, 37))
    compiled(name, sanitizer).run((1,), (64,), [Mapped(spec, x), y, np.int32(steps)], order=order, dynamic_shared=2080)
    np.testing.assert_array_equal(y[:37], 2 * x)
    np.testing.assert_array_equal(y[37:], 0)


def wgmma(name: str, order: str = "forward", sanitizer: str | None = None, swizzle: int = 128) -> None:
    rng, depth = np.random.default_rng(2), 320
    a, b = rng.standard_normal((61, depth)).astype("f2"), rng.standard_normal((32, depth)).astype("f2")
    maps = [
        TensorMap(i, "f16", x.shape[::-1], (2 * depth,), (64, rows), swizzle=s)
        for i, (x, rows, s) in enumerate(((a, 64, 128), (b, 32, swizzle)))
    ]
    y = np.zeros((64, 32), np.float32)
    args = [Mapped(maps[0], a), Mapped(maps[1], b), y, np.int32(depth)]
    compiled(name, sanitizer).run((1,), (256,), args, order=order, dynamic_shared=2 * 12288 + 32)
    wide = a.astype(np.float64), b.astype(np.float64)
    bound = depth * 2.0**-24 * (np.abs(wide[0]) @ np.abs(wide[1]).T)
    assert (np.abs(y[:61] - wide[0] @ wide[1].T) <= bound).all()
    assert not y[61:].any(), "rows past the end are zeros"


def cluster(name: str, order: str = "forward", sanitizer: str | None = None) -> None:
    x = np.random.default_rng(3).integers(0, 10, (3, 4, 32)).astype(np.float32)
    y, z, by_four = np.zeros((3, 4, 32), np.float32), np.zeros(12, np.int32), np.zeros((3, 4, 32), np.float32)
    compiled(name, sanitizer).run((12,), (32,), [x, y, z, by_four], order=order, dynamic_shared=256)
    weights = np.float32([1000, 100, 10, 1])
    assert (y == (x * weights[:, None]).sum(1, keepdims=True)).all()
    assert (z == 102 * 1000 + 103).all()
    assert (by_four == y).all()


def multicast(name: str, order: str = "forward", sanitizer: str | None = None) -> None:
    steps = 5
    x, y = np.random.default_rng(7).standard_normal((37, 32), "f4"), np.full((steps, 2, 8, 32), 7, np.float32)
    spec = replace(ROW, extents=(32, 37), box=(32, 4))
    compiled(name, sanitizer).run((2,), (64,), [Mapped(spec, x), y, np.int32(steps)], order=order, dynamic_shared=1040)
    right = np.concatenate([2 * x, np.zeros((3, 32), np.float32)]).reshape(steps, 1, 8, 32)
    np.testing.assert_array_equal(y, np.broadcast_to(right, y.shape))


def named_barrier(name: str, order: str = "forward", sanitizer: str | None = None) -> None:
    x, y = np.arange(64, dtype=np.float32), np.zeros((2, 64), np.float32)
    kernel = compiled(f"named barrier{name.removeprefix('named_barrier')}", sanitizer)
    kernel.run((1,), (96,), [x, y], order=order, dynamic_shared=256)
    np.testing.assert_array_equal(y, np.stack([x[::-1], 2 * x[::-1]]))


def stored_and_read(name: str, order: str = "forward", sanitizer: str | None = None) -> tuple[np.ndarray, ...]:
    """What is stored of ones by TMA, and what the kernel reads of it."""
    y, z = np.full((8, 32), 7, np.float32), np.full((8, 32), 7, np.float32)
    args = [np.ones((8, 32), np.float32), Mapped(replace(ROW, extents=(32, 8)), y), y, z]
    compiled(name, sanitizer).run((1,), (64,), args, order=order, dynamic_shared=1024)
    return y, z


def read_back(name: str, order: str = "forward", sanitizer: str | None = None) -> None:
    for kernel in ("read back", "read back after one fence for all"):
        for found in stored_and_read(kernel, order, sanitizer):
            assert (found == 3).all()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "launch", [ring, wgmma, cluster, multicast, named_barrier, read_back], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("sanitizer", [None, "thread"])
def test_right_kernels_give_the_answer_in_any_order_without_races(launch, order, sanitizer):
    launch(launch.__name__, order, sanitizer)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ring that announces too much", r"0 of 1 arrivals missing, 2048 bytes announced, 1024 in flight"),
        ("ring that announces too little", "deadlock: 64 threads wait for parity 0 .* 512 bytes announced, 1024 in"),
        ("ring without the barrier's fence", "TMA load: gc_fence_barrier_init has not followed"),
        (
            "ring whose readers never say that they are done",
            r"deadlock: 1 threads wait for parity 0 of the mbarrier at byte 2064 \(in its phase 0: 2 of 2 arrivals missing",
        ),
        ("ring with its barriers in a tile", "the mbarrier was overwritten"),
    ],
)
def test_a_phase_that_cannot_complete_is_an_error_that_says_what_is_missing(name, message):
    with pytest.raises(CudaOnCpuError, match=message):
        ring(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("multicast to one", "deadlock in a cluster: .* rank 1: 32 threads wait .* 1024 bytes announced, 0 in flight"),
        ("multicast that does not wait for the other", "bytes of the phase are missing"),
        ("multicast to nobody", "for no block of the cluster"),
        ("multicast to a stranger", "block 2 of a cluster of 2"),
        ("multicast that waits within its block", "gc_mbarrier_wait: threads of another block arrived"),
        ("multicast with an arrival too many", "block . of the cluster has exited|threads have arrived already"),
        ("multicast before the other is there", "another block's mbarrier, and no gc_cluster_sync has followed"),
    ],
)
def test_a_multicast_mistake_is_an_error(name, message):
    def in_all_orders():
        for order in ORDERS:
            multicast(name, order)

    with pytest.raises(CudaOnCpuError, match=message):
        in_all_orders()


def test_a_named_barrier_that_is_missing_is_a_race_and_one_for_too_many_never_opens():
    with pytest.raises(RaceError):
        named_barrier("named_barrier that is missing", sanitizer="thread")
    with pytest.raises(CudaOnCpuError, match="deadlock: 32 threads have exited, 64 threads wait at named barrier 3"):
        named_barrier("named_barrier for more than come")


@pytest.mark.parametrize("name", ["ring without a wait for the bytes", "ring with the wrong phase"])
@pytest.mark.parametrize("order", ORDERS)
def test_bytes_that_nobody_waited_for_are_not_there(name, order):
    with pytest.raises((AssertionError, CudaOnCpuError)):
        ring(name, order)


def test_a_tile_that_is_loaded_over_while_it_is_read_is_a_race():
    with pytest.raises(RaceError):
        ring("ring that does not wait for its readers", sanitizer="thread")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wgmma without its fence", "gc_wgmma_fence is missing"),
        ("wgmma without a wait", "exits with wgmma in flight"),
        ("wgmma that waits for too little", "operand a is on its way still"),
        ("wgmma without a commit", "exits with wgmma in flight"),
        ("wgmma on bytes that have not landed", "operand a is on its way still"),
        ("wgmma by half of a warpgroup", "wgmma"),
    ],
)
def test_a_wgmma_mistake_is_an_error(name, message):
    with pytest.raises(CudaOnCpuError, match=message):
        wgmma(name)


def test_wgmma_cuts_off_what_lies_far_below_its_largest_term():
    """A product of one, then in the next step in depth products of 2^-25 and of 2^-26: two bits below f32's last are kept."""
    a, b = np.zeros((64, 64), np.float16), np.zeros((32, 64), np.float16)
    a[:, 0], b[:, 0] = 1, 1
    a[:, 16:24], b[0, 16:20], b[1, 16:24] = 2.0**-12, 2.0**-13, 2.0**-14
    maps = [TensorMap(i, "f16", (64, len(x)), (128,), (64, len(x)), swizzle=128) for i, x in enumerate((a, b))]
    y = np.zeros((64, 32), np.float32)

    compiled("wgmma").run(
        (1,), (256,), [Mapped(maps[0], a), Mapped(maps[1], b), y, np.int32(64)], dynamic_shared=2 * 12288 + 32
    )

    assert (y[:, 0] == 1 + 2.0**-23).all()
    assert (y[:, 1:] == 1).all()


CHANGES = {  # of registers: what consumers do, what the producer does, the message; 384 threads start with 168 each
    "right": ("gc_setmaxnreg_inc<232>();", "gc_setmaxnreg_dec<40>();", ""),
    "too many": (
        "gc_setmaxnreg_inc<240>();",
        "gc_setmaxnreg_dec<40>();",
        "128 threads wait for 240 registers each .* 7168 registers are free",
    ),
    "nobody gives": ("gc_setmaxnreg_inc<232>();", "", "wait for 232 registers each .* 0 registers are free"),
    "nobody takes": ("", "gc_setmaxnreg_dec<40>();", "registers are given up, and nobody takes them"),
    "more are given than there are": (
        "gc_setmaxnreg_inc<232>();",
        "gc_setmaxnreg_dec<176>();",
        "gc_setmaxnreg_dec: 176 registers, a thread has 168",
    ),
    "fewer are taken": (
        "gc_setmaxnreg_inc<160>();",
        "gc_setmaxnreg_dec<40>();",
        "gc_setmaxnreg_inc: 160 registers, a thread has 168",
    ),
    "a warp alone": ("gc_setmaxnreg_inc<232>();", "if (threadIdx.x < 288) gc_setmaxnreg_dec<40>();", "deadlock"),
    "a warp too few": ("if (threadIdx.x != 5) gc_setmaxnreg_inc<232>();", "gc_setmaxnreg_dec<40>();", "deadlock"),
    "warps that disagree": (
        "if (threadIdx.x < 32) gc_setmaxnreg_inc<232>(); else gc_setmaxnreg_inc<224>();",
        "gc_setmaxnreg_dec<40>();",
        "warps of a warpgroup ask for different registers",
    ),
}


@functools.cache
def changing(name: str) -> CudaOnCpu:
    sources = [
        (
            f"""extern "C" __global__ void __launch_bounds__(384, 1) k{i}() {{
          if (threadIdx.x < 256) {{
            {taken}
          }} else {{
            {given}
          }}
        }}""",
            f"k{i}",
        )
        for i, (taken, given, _) in enumerate(CHANGES.values())
    ]
    return compile_many(sources)[list(CHANGES).index(name)]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", CHANGES)
def test_registers_are_given_and_taken_by_whole_warpgroups_that_have_them(name, order):
    if message := CHANGES[name][2]:
        with pytest.raises(CudaOnCpuError, match=message):
            changing(name).run((1,), (384,), [], order=order)
    else:
        changing(name).run((1,), (384,), [], order=order)


def test_launch_bounds_say_how_many_registers_there_are():
    source = """extern "C" __global__ void __launch_bounds__(256, 2) k() {
      if (threadIdx.x < 128) gc_setmaxnreg_inc<216>(); else gc_setmaxnreg_dec<40>();
    }"""
    CudaOnCpu(source, "k").run((1,), (256,), [])

    with pytest.raises(CudaOnCpuError, match="gc_setmaxnreg_inc: 216 registers, a thread has 256"):
        CudaOnCpu(source.replace("256, 2", "256, 1"), "k").run((1,), (256,), [])


def test_an_operand_that_is_given_back_too_early_is_seen():
    with pytest.raises(RaceError):
        wgmma("wgmma whose stage is given back early", sanitizer="thread")


def test_an_operand_with_another_swizzle_gives_other_numbers():
    with pytest.raises(AssertionError):
        wgmma("wgmma", swizzle=0)


def test_a_row_longer_than_the_swizzle_is_no_tensor_map():
    with pytest.raises(CudaOnCpuError, match="no tensor map: rows of 128 bytes with a swizzle of 64"):
        wgmma("wgmma", swizzle=64)


@pytest.mark.parametrize("order", ORDERS)
def test_a_missing_wait_of_a_cluster_is_seen(order):
    with pytest.raises((AssertionError, CudaOnCpuError)):
        cluster("cluster without the first wait", order)
    with pytest.raises(CudaOnCpuError, match="of the cluster has exited: its shared memory is gone"):
        cluster("cluster without the last wait", order)


def test_a_grid_consists_of_whole_clusters():
    floats = np.zeros(192, "f4")
    with pytest.raises(CudaOnCpuError, match="a grid of 6 x 1 x 1 does not consist of clusters of 4 x 1 x 1"):
        compiled("cluster").run((6,), (32,), [floats, floats.copy(), np.zeros(6, "i4"), floats.copy()])


def test_variables_of_blocks_of_a_cluster_are_refused():
    source = 'extern "C" __global__ void __cluster_dims__(2, 1, 1) k(float* y) { __shared__ float x[2]; x[0] = y[0]; }'
    with pytest.raises(CudaOnCpuError, match="use dynamic shared memory"):
        CudaOnCpu(source, "k")


@pytest.mark.parametrize("order", ORDERS)
def test_every_type_of_element_is_multiplied(order):
    rng = np.random.default_rng(4)
    f32 = rng.standard_normal((64 + 8, 64)).astype(np.float32)
    bf16 = f32.astype(ml_dtypes.bfloat16)
    s8 = rng.integers(-128, 128, (64 + 8, 128)).astype(np.int8)
    maps, arrays = [], []
    for array, dtype in ((bf16, "bf16"), (np.ascontiguousarray(f32[:, :32]), "tf32"), (s8, "i8")):
        for part in (array[:64], array[64:]):
            held = np.ascontiguousarray(part)
            spec = TensorMap(0, dtype, held.shape[::-1], (held.strides[0],), held.shape[::-1], swizzle=128)
            maps.append(Mapped(spec, held))
            arrays.append(held)
    y, z = np.zeros((2, 64, 8), np.float32), np.zeros((64, 8), np.int32)

    compiled("wgmma types").run((1,), (128,), [*maps, y, z], order=order, dynamic_shared=27656)

    rounded = [a.astype(np.float64) for a in arrays[:2]] + [to_tf32(a).astype(np.float64) for a in arrays[2:4]]
    for found, a, b in ((y[0], *rounded[:2]), (y[1], *rounded[2:])):
        assert (np.abs(found - a @ b.T) <= 64 * 2.0**-24 * (np.abs(a) @ np.abs(b).T)).all()
    np.testing.assert_array_equal(z, arrays[4].astype(np.int32) @ arrays[5].astype(np.int32).T)


def chained(name: str, order: str) -> None:
    """Each product is right to the roundings of its sums; the first is rounded to the type of the second's operand."""
    rng = np.random.default_rng(5)
    maps, expected, bounds = [], [], []
    for dtype, half in (("f16", np.float16), ("bf16", ml_dtypes.bfloat16)):
        a, b, c = (rng.standard_normal(shape).astype(half) for shape in ((64, 64), (32, 64), (32, 96)))
        for array, box in ((a, (64, 64)), (b, (64, 32)), (c, (64, 32))):
            spec = TensorMap(len(maps), dtype, array.shape[::-1], (array.strides[0],), box, swizzle=128)
            maps.append(Mapped(spec, array))
        a, b, c = (x.astype(np.float64) for x in (a, b, c))
        rounding = 2.0 ** (
            -10 if dtype == "f16" else -7
        )  # twice a half's unit: rounding, and sums that fall on its other side
        expected.append((a @ b.T) @ c)
        bounds.append(rounding * (np.abs(a @ b.T) @ np.abs(c)))
    y = np.full(2 * 64 * 96 + 128, np.nan, np.float32)

    compiled(name).run((1,), (128,), [*maps, y], order=order, dynamic_shared=40968)

    found = y[: 2 * 64 * 96].reshape(2, 64, 96)
    assert (np.abs(found - np.stack(expected)) <= np.stack(bounds)).all()
    assert np.isfinite(y).all()


@pytest.mark.parametrize("order", ORDERS)
def test_a_product_in_registers_is_multiplied_with_a_turned_operand(order):
    chained("wgmma chained", order)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("wgmma chained, panels too near", AssertionError),
        ("wgmma chained, registers written too early", CudaOnCpuError),
    ],
)
def test_a_mistake_in_a_chain_of_products_is_seen(name, error):
    with pytest.raises(error):
        chained(name, "forward")


def to_tf32(x: np.ndarray) -> np.ndarray:
    """Rounded to 10 bits of fraction, ties to even."""
    bits = x.view(np.uint32)
    return ((bits + np.uint32(0xFFF) + (bits >> 13 & 1)) & np.uint32(0xFFFFE000)).view(np.float32)


def unswizzled(tile: np.ndarray, swizzle: int) -> np.ndarray:
    """Rows of bytes put back in order: piece c of row r lies at c ^ (bits of r), by the table of kernels with rows of
    32 bytes: c ^ (r >> 2 & 1)."""
    rows = tile.copy()
    if swizzle == 32:
        for r in range(len(rows)):
            if r >> 2 & 1:
                rows[r] = np.concatenate([tile[r, 16:], tile[r, :16]])
    return rows


@pytest.mark.parametrize("swizzle", [0, 32])
@pytest.mark.parametrize("start", [(0, 0, 0, 0), (8, -2, 3, 1), (16, 5, -1, 1)])
@pytest.mark.parametrize(("stride", "pad", "dilation", "first"), [(1, 1, 1, 0), (2, 2, 1, 3), (1, 0, 2, 11)])
def test_boxes_are_cut_out_with_zeros_around_and_pixels_are_a_convolution_s(
    swizzle, start, stride, pad, dilation, first
):
    x = np.random.default_rng(5).standard_normal((2, 6, 7, 24)).astype(np.float16)
    n, h, w, c = x.shape
    window, tap = (3, 2), (2, 1)  # filter rows and columns; the tap (row, column) whose pixels are loaded
    oh, ow = ((e + 2 * pad - dilation * (f - 1) - 1) // stride + 1 for e, f in zip((h, w), window, strict=True))
    first_pixel = (first // ow // oh, first // ow % oh, first % ow)
    four = TensorMap(0, "f16", (c, w, h, n), (2 * c, 2 * c * w, 2 * c * w * h), (16, 4, 2, 2), swizzle=swizzle)
    three = replace(four, extents=(c, w, h * n), strides=four.strides[:2], box=(16, 4, 4))
    lower, upper = (-pad, -pad), tuple(-pad + (o - 1) * stride - (e - 1) for o, e in ((ow, w), (oh, h)))
    pixels = replace(
        four, box=(), channels=16, pixels=16, lower=lower, upper=upper, element_strides=(1, stride, stride, 1)
    )
    at = np.int32(
        [
            *start[:3],
            first_pixel[0],
            first_pixel[2] * stride - pad,
            first_pixel[1] * stride - pad,
            tap[1] * dilation,
            tap[0] * dilation,
        ]
    )
    y = np.zeros((3, 16, 32), np.uint8)

    compiled("boxes").run(
        (1,),
        (32,),
        [Mapped(three, x), Mapped(four, x), Mapped(pixels, x), at, y, np.int32(512)],
        dynamic_shared=3 * 512 + 8,
    )

    def element(image, row, column, channel):
        inside = 0 <= image < n and 0 <= row < h and 0 <= column < w and 0 <= channel < c
        return x[image, row, column, channel] if inside else 0

    def flat_row(row, column, channel):
        return element(row // h, row % h, column, channel) if 0 <= row < n * h else 0

    ci, wi, hi, ni = start[0], start[1], start[2], first_pixel[0]
    wanted_three = [[flat_row(hi + k, wi + j, ci + i) for i in range(16)] for k in range(4) for j in range(4)]
    wanted_four = [
        [element(ni + k // 2, hi + k % 2, wi + j, ci + i) for i in range(16)] for k in range(4) for j in range(4)
    ]
    wanted_pixels = []
    for m in range(first, first + 16):
        row = m // ow % oh * stride - pad + tap[0] * dilation
        column = m % ow * stride - pad + tap[1] * dilation
        wanted_pixels.append([element(m // ow // oh, row, column, ci + i) for i in range(16)])
    for found, wanted in zip(y, (wanted_three, wanted_four, wanted_pixels), strict=True):
        np.testing.assert_array_equal(unswizzled(found, swizzle).view(np.float16), np.float16(wanted))

    of_both = np.zeros((2, 2, 16, 32), np.uint8)
    args = [Mapped(three, x), Mapped(pixels, x), at, of_both, np.int32(512)]
    compiled("multicast boxes").run((2,), (32,), args, dynamic_shared=2 * 512 + 8)
    np.testing.assert_array_equal(of_both, np.broadcast_to(y[[0, 2]], of_both.shape))


@pytest.mark.parametrize("order", ORDERS)
def test_a_store_leaves_out_what_is_outside(order):
    x, y = np.random.default_rng(6).standard_normal((8, 32), "f4"), np.zeros((5, 28), np.float32)

    compiled("store").run(
        (1,), (32,), [x, Mapped(TensorMap(0, "f32", (28, 5), (112,), (32, 8)), y)], dynamic_shared=1024, order=order
    )

    np.testing.assert_array_equal(y, 3 * x[:5, :28])


def test_a_store_of_three_dimensions_leaves_out_what_is_outside():
    x, y = np.random.default_rng(6).standard_normal((2, 4, 32), "f4"), np.zeros((2, 5, 28), np.float32)
    spec = TensorMap(0, "f32", (28, 5, 2), (112, 560), (32, 4, 2))

    compiled("store 3d").run((1,), (32,), [x, Mapped(spec, y)], dynamic_shared=1024)

    right = np.zeros_like(y)
    right[1, 2:] = 3 * x[0, :3, :28]
    np.testing.assert_array_equal(y, right)


def test_a_store_takes_what_was_fenced_and_is_waited_for():
    x, y = np.ones((8, 32), np.float32), np.zeros((8, 32), np.float32)
    spec = replace(ROW, extents=(32, 8))

    compiled("store without the proxies' fence").run((1,), (32,), [x, Mapped(spec, y)], dynamic_shared=1024)
    assert np.isnan(y).all()
    with pytest.raises(CudaOnCpuError, match="exits while a TMA store reads its shared memory"):
        compiled("store without a wait").run((1,), (32,), [x, Mapped(spec, y)], dynamic_shared=1024)


@pytest.mark.parametrize("sanitizer", [None, "thread"])
@pytest.mark.parametrize("order", ORDERS)
def test_memory_is_written_again_when_a_store_has_read_it(order, sanitizer):
    x, y = np.random.default_rng(6).standard_normal((8, 32), "f4"), np.zeros((16, 32), np.float32)
    spec = TensorMap(0, "f32", (32, 16), (128,), (32, 8))

    def run(name):
        compiled(name, sanitizer).run((1,), (32,), [x, Mapped(spec, y)], dynamic_shared=1024, order=order)

    run("store twice")
    np.testing.assert_array_equal(y, np.concatenate([3 * x, 5 * x]))
    with pytest.raises(CudaOnCpuError, match="exits while a TMA store"):
        run("store twice without a wait")
    if sanitizer:
        with pytest.raises(RaceError):
            run("store twice by lanes that do not meet")


@pytest.mark.parametrize("order", ORDERS)
def test_what_a_store_writes_is_poison_until_its_thread_has_waited(order):
    stored, read = stored_and_read("read back before the wait", order)

    assert np.isnan(read).all()
    assert (stored == 3).all()
    with pytest.raises(CudaOnCpuError, match="exits while a TMA store reads its shared memory"):
        stored_and_read("read back after a wait for too little", order)


@pytest.mark.parametrize("order", ORDERS)
def test_a_store_of_what_no_thread_fenced_is_of_what_was_there_before(order):
    for found in stored_and_read("read back without the proxies' fence", order):
        assert np.isnan(found).all()


def test_numbers_tell_of_a_fence_what_had_not_been_written_by_then():
    """The first thread fences before the others write, or else after all of them: then it makes up for their fences."""
    fenced = np.arange(256).reshape(8, 32) % 64 == 0

    for found in stored_and_read("read back after one thread's fence", "forward"):
        assert (found[fenced] == 3).all()
        assert np.isnan(found[~fenced]).all()
    for found in stored_and_read("read back after one thread's fence", "reversed"):
        assert (found == 3).all()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", ["read back after one thread's fence", "read back of what is written over"])
def test_what_a_store_reads_races_with_writes_that_not_all_fenced_or_that_do_not_wait_for_it(name, order):
    with pytest.raises(RaceError, match="by the async proxy"):
        stored_and_read(name, order, "thread")


@pytest.mark.parametrize("order", ORDERS)
def test_reads_that_no_barrier_orders_behind_the_wait_for_a_store_are_a_race(order):
    with pytest.raises(RaceError):
        stored_and_read("read back by threads that did not meet", order, "thread")


@pytest.mark.parametrize("order", ORDERS)
def test_stmatrix_undoes_a_fragment(order):
    tile = np.arange(8 * 16, dtype=np.uint32).reshape(8, 16)  # pairs of 16-bit elements
    lanes = np.arange(32)
    fragments = np.stack([tile[lanes // 4, 4 * i + lanes % 4] for i in range(4)], axis=1)
    y = np.zeros((8, 16), np.uint32)

    compiled("stmatrix").run((1,), (32,), [np.ascontiguousarray(fragments), y], order=order, dynamic_shared=512)

    np.testing.assert_array_equal(y, tile)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, ""),
        ({"strides": (100,)}, "are not multiples of 16 bytes"),
        ({"strides": (64,)}, "rows of 128 bytes overlap, 64 bytes apart"),
        ({"offset": 8}, "are not multiples of 16 bytes"),
        ({"box": (32, 257)}, r"a box of \(32, 257\)"),
        ({"box": (5, 8)}, "rows of 20 bytes"),
        ({"extents": (32, 0)}, "are not from 1"),
        ({"element_strides": (1, 9)}, "not from 1 to 8"),
        ({"strides": ()}, "rank 2 has 0 strides"),
        ({"box": (), "channels": 32, "pixels": 8}, "not NHWC"),
    ],
)
def test_a_tensor_map_says_why_no_driver_would_encode_it(change, reason):
    reasons = replace(ROW, **change).objections()

    assert bool(reasons) == bool(reason)
    assert any(re.search(reason, text) for text in reasons) or not reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, ""),
        ({"lower": (-129, 0)}, "window corners"),
        ({"pixels": 1025}, "1025 pixels in one load"),
        ({"channels": 264, "swizzle": 0}, "264 channels"),
    ],
)
def test_an_im2col_map_says_why_no_driver_would_encode_it(change, reason):
    good = TensorMap(
        0,
        "f16",
        (264, 7, 7, 1),
        (528, 3696, 25872),
        swizzle=128,
        channels=64,
        pixels=64,
        lower=(-1, -1),
        upper=(-1, -1),
    )

    assert bool(replace(good, **change).objections()) == bool(reason)
    assert reason in " ".join(replace(good, **change).objections())
