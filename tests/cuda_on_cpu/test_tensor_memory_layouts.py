"""tcgen05 beside CuTe: descriptors of operands and instructions, where sums are in tensor memory, and what a thread loads.

What is judged is what the harness plays, and the text that NVRTC compiles (test_layouts.py says more).
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from testing.cuda_on_cpu.harness import CudaOnCpu, compile_many
from tests import nvrtc
from tests.cuda_on_cpu.cute import Cute
from tests.cuda_on_cpu.kernel_files import PRELUDE_CUDA, broken, kernel_text

TYPES = ("f16", "bf16", "tf32")
SIZES = ((64, 16), (64, 96), (128, 48), (128, 256), (256, 96))
LOADS = (16, 32, 64)
POISON = 0x7FFD7FFD


def function(name: str) -> str:
    """The text of one function of the prelude that NVRTC compiles."""
    found = re.search(rf"__device__ [^\n]* {name}\(.*?\n}}\n", PRELUDE_CUDA.read_text(), re.DOTALL)[0]
    return found.replace(name, f"{name}_on_a_device").replace("__cvta_generic_to_shared", "gc_runtime_shared_offset")


OPERAND, INSTRUCTION = function("gc_tcgen05_operand"), function("gc_tcgen05_instruction")
TURNED = function("gc_tcgen05_turned")
# rows of 128 bytes at `tiles`, first those of `a`; y: what each warp loads of its lanes, 16 at a time
SUMS = """
template <int m, int columns>
__device__ __forceinline__ void all_sums(const uint4* image, float* y) {
  unsigned char* const tiles = gc_swizzled_shared();
  unsigned long long* const done = reinterpret_cast<unsigned long long*>(tiles + 24576);
  unsigned* const allocated = reinterpret_cast<unsigned*>(done + 1);
  for (int i = threadIdx.x; i < 24576 / 16; i += 128) reinterpret_cast<uint4*>(tiles)[i] = image[i];
  gc_fence_proxy_async();
  if (threadIdx.x == 0) gc_mbarrier_init(done, 1);
  if (threadIdx.x / 32 == 0) gc_tcgen05_alloc(allocated, 64);
  gc_tcgen05_fence_before();
  __syncthreads();
  gc_tcgen05_fence_after();
  const unsigned sums = *allocated;
  if (threadIdx.x == 0) {
    gc_tcgen05_f16<m, 64>(sums, gc_tcgen05_operand(tiles), gc_tcgen05_operand(tiles + 16384), false);
    gc_tcgen05_commit(done);
  }
  gc_mbarrier_wait(done, 0);
  gc_tcgen05_fence_after();
  for (int half = 0; half < 2; ++half) {
    float values[columns / 2];
    gc_tcgen05_load<columns>(values, sums + (threadIdx.x / 32 * 32 + half * 16 << 16));
    gc_tcgen05_wait_load<columns>(values);
    for (int i = 0; i < columns / 2; ++i)
      y[(threadIdx.x / 32 * 64 + half * 32 + threadIdx.x % 32) * (columns / 2) + i] = values[i];
  }
  gc_tcgen05_fence_before();
  __syncthreads();
  gc_tcgen05_fence_after();
  if (threadIdx.x / 32 == 0) gc_tcgen05_free(sums, 64);
}
"""
SUMS += "".join(
    f'extern "C" __global__ void __launch_bounds__(128) k_{m}_{n}(const uint4* image, float* y) {{\n'
    f"  all_sums<{m}, {n}>(image, y);\n}}\n"
    for m in (64, 128)
    for n in LOADS
)
# words of 128 rows, which are stored and loaded again: y
ROWS = """
template <int columns>
__device__ __forceinline__ void all_rows(const unsigned* words, unsigned* y, unsigned* there) {
  if (threadIdx.x / 32 == 0) gc_tcgen05_alloc(there, 32);
  gc_tcgen05_fence_before();
  __syncthreads();
  gc_tcgen05_fence_after();
  const unsigned allocated = *there, mine = allocated + (threadIdx.x / 32 << 21);
  unsigned stored[columns];
  float loaded[columns];
  for (int i = 0; i < columns; ++i) stored[i] = words[threadIdx.x * columns + i];
  gc_tcgen05_store_row<columns>(mine, stored);
  gc_tcgen05_wait_store();
  gc_tcgen05_load_row<columns>(loaded, mine);
  gc_tcgen05_wait_row<columns>(loaded);
  for (int i = 0; i < columns; ++i) y[threadIdx.x * columns + i] = __float_as_uint(loaded[i]);
  gc_tcgen05_fence_before();
  __syncthreads();
  gc_tcgen05_fence_after();
  if (threadIdx.x / 32 == 0) gc_tcgen05_free(allocated, 32);
}
"""
ROWS += "".join(
    f'extern "C" __global__ void __launch_bounds__(128) k_rows_{n}(const unsigned* words, unsigned* y) {{\n'
    f"  __shared__ __align__(4) unsigned there;\n  all_rows<{n}>(words, y, &there);\n}}\n"
    for n in (16, 32)
)
DESCRIBED = f"""{OPERAND}{INSTRUCTION}{TURNED}
extern "C" __global__ void k_operands(unsigned long long* y, int start) {{
  y[0] = gc_tcgen05_operand(gc_swizzled_shared() + start);
  y[1] = gc_tcgen05_operand_on_a_device(gc_swizzled_shared() + start);
}}
extern "C" __global__ void k_turned(unsigned long long* y, int start) {{
  y[0] = gc_tcgen05_turned(gc_swizzled_shared() + start, 8192);
  y[1] = gc_tcgen05_turned_on_a_device(gc_swizzled_shared() + start, 8192);
}}
extern "C" __global__ void k_instructions(unsigned* y) {{
  for (unsigned format = 0; format < 3; ++format) {{
    const int rows[] = {{64, 64, 128, 128, 256}}, columns[] = {{16, 96, 48, 256, 96}};
    for (int i = 0; i < 5; ++i) {{
      y[format * 5 + i] = gc_tcgen05_instruction(format, rows[i], columns[i]);
      y[15 + format * 5 + i] = gc_tcgen05_instruction_on_a_device(format, rows[i], columns[i]);
    }}
  }}
}}
"""


def in_shared(cute: Cute, matrix: np.ndarray) -> np.ndarray:
    """The bytes of rows of 64 f16 as CuTe swizzles them by 128 bytes."""
    places = np.reshape(cute.ask("layout f16 128"), (256, 64))[: len(matrix)]
    tile = np.zeros(matrix.size, np.float16)
    tile[places // 2] = matrix
    return tile.view(np.uint8)


def check_sums(cute: Cute, kernel: CudaOnCpu, m: int, columns: int) -> None:
    """Each sum says its row and column: row + 128 column, with factors that f16 has exactly."""
    a, b = np.zeros((128, 64), np.float16), np.zeros((64, 64), np.float16)
    a[:, 0], a[:, 1] = np.arange(128), 1
    b[:, 0], b[:, 1] = 1, 128 * np.arange(64)
    image = np.concatenate([in_shared(cute, a), in_shared(cute, b)])
    found = np.zeros((4, 2, 32, columns // 2), np.float32)

    kernel.run((1,), (128,), [image, found], dynamic_shared=24576 + 16)

    memory = np.full((128, 64), POISON, np.uint32)
    address = np.reshape(cute.ask(f"tensor memory {m}"), (m, 64))
    row, column = np.indices((m, 64))
    memory[address >> 16, address & 0xFFFF] = (row + 128.0 * column).astype(np.float32).view(np.uint32)
    lane, at = np.moveaxis(np.reshape(cute.ask(f"tensor load {columns}"), (32, columns // 2, 2)), 2, 0)
    wanted = memory.reshape(4, 2, 16, 64)[:, :, lane, at]
    np.testing.assert_array_equal(found.view(np.uint32), wanted)


@pytest.fixture(scope="module")
def summed():
    names = [f"k_{m}_{n}" for m in (64, 128) for n in LOADS]
    return dict(zip(names, compile_many([(SUMS, name) for name in names]), strict=True))


@pytest.mark.parametrize("columns", LOADS)
@pytest.mark.parametrize("m", [64, 128])
def test_sums_are_where_cute_says_and_are_dealt_out_as_it_says(cute, summed, m, columns):
    check_sums(cute, summed[f"k_{m}_{columns}"], m, columns)


@pytest.mark.parametrize(
    ("replaced", "by"),
    [
        ("half * 16 << 16", "(half ^ 1) * 16 << 16"),
        ("+ i] = values[i]", "+ i] = values[i ^ 1]"),
        ("+ threadIdx.x % 32) *", "+ (threadIdx.x % 32 ^ 1)) *"),
        ("gc_tcgen05_operand(tiles + 16384)", "gc_tcgen05_operand(tiles + 15360)"),
    ],
)
def test_sums_that_are_dealt_out_differently_are_seen(cute, replaced, by):
    with pytest.raises(AssertionError):
        check_sums(cute, CudaOnCpu(broken(SUMS, replace=replaced, by=by), "k_128_32"), 128, 32)


@pytest.mark.parametrize("start", [0, 1024, 229376])
@pytest.mark.parametrize("name", TYPES)
def test_operands_are_described_as_cute_describes_them(cute, name, start):
    found = np.zeros(2, np.uint64)

    CudaOnCpu(DESCRIBED, "k_operands").run((1,), (1,), [found, np.int32(start)], dynamic_shared=start + 1024)

    for operand in "ab":
        wanted = np.array(cute.ask(f"tcgen05 descriptors {name} {operand}", start), np.int64).view(np.uint64)
        for described in found:
            np.testing.assert_array_equal(described + 2 * np.arange(4, dtype=np.uint64), wanted)


@pytest.mark.parametrize("start", [0, 1024, 65536])
@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_turned_operands_are_described_as_cute_describes_them(cute, name, start):
    """Two panels of 64 columns, each of 64 steps of depth."""
    found = np.zeros(2, np.uint64)

    CudaOnCpu(DESCRIBED, "k_turned").run((1,), (1,), [found, np.int32(start)], dynamic_shared=start + 1024)

    wanted = np.array(cute.ask(f"tcgen05 turned {name}", start), np.int64).view(np.uint64)
    for described in found:
        np.testing.assert_array_equal(described + 128 * np.arange(4, dtype=np.uint64), wanted)


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_products_of_weights_are_described_as_cute_describes_them(cute, name):
    text = nvrtc.ptx(PRELUDE_CUDA.read_text() + kernel_text("tcgen05"), "compute_100f")
    wanted = cute.ask(f"tcgen05 turned instruction {name}")

    plain = cute.ask(f"tcgen05 instruction {name} 128 256") - ((256 - 128) // 8 << 17)
    assert wanted == plain | 1 << 16
    assert name != "f16" or f", {wanted - ((128 - 80) // 8 << 17)};" in text  # that kernel has 80 columns


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_weights_lie_in_tensor_memory_where_cute_says(cute, name):
    """Row r is in lane r; two elements share a column, and the next 16 are 8 columns further."""
    lane, number = np.moveaxis(np.reshape(cute.ask(f"tcgen05 weights {name}"), (128, 64, 2)), 2, 0)

    np.testing.assert_array_equal(lane, np.arange(128)[:, None].repeat(64, 1))
    np.testing.assert_array_equal(number, np.arange(64)[None].repeat(128, 0))


@pytest.mark.parametrize("columns", [16, 32])
def test_rows_are_stored_and_loaded_as_cute_says(cute, columns):
    words = np.random.default_rng(0).integers(0, 2**32, (128, columns), dtype=np.uint32)
    found = np.zeros_like(words)

    CudaOnCpu(ROWS, f"k_rows_{columns}").run((1,), (128,), [words, found])

    np.testing.assert_array_equal(found, words)
    for how in ("load", "store"):
        lane, column = np.moveaxis(np.reshape(cute.ask(f"tensor row {how} {columns}"), (32, columns, 2)), 2, 0)
        np.testing.assert_array_equal(lane, np.arange(32)[:, None].repeat(columns, 1))
        np.testing.assert_array_equal(column, np.arange(columns)[None].repeat(32, 0))


def test_two_blocks_have_the_rows_and_columns_that_cute_says(cute):
    """As k_tcgen05_as_one loads and stores them: 128 rows each, half of the columns of b, and all columns of the sums."""
    parts = {which: np.reshape(cute.ask(f"tcgen05 of two {which}"), (2, -1, 2)) for which in "abc"}

    for which, (rows, columns) in {"a": (128, 16), "b": (24, 16), "c": (128, 48)}.items():
        for rank, part in enumerate(parts[which]):
            wanted = {(row, column) for row in range(rank * rows, (rank + 1) * rows) for column in range(columns)}
            assert set(map(tuple, part.tolist())) == wanted
            assert len(part) == len(wanted)
    address = np.reshape(cute.ask("tensor memory of two"), (128, 48))
    np.testing.assert_array_equal(address, np.arange(128)[:, None] * 65536 + np.arange(48))


def test_instructions_are_described_as_cute_describes_them(cute):
    found = np.zeros((2, 3, 5), np.uint32)

    CudaOnCpu(DESCRIBED, "k_instructions").run((1,), (1,), [found])

    wanted = [[cute.ask(f"tcgen05 instruction {name} {m} {n}") for m, n in SIZES] for name in TYPES]
    for described in found:
        np.testing.assert_array_equal(described, wanted)


def test_the_instructions_that_are_compiled_are_those_that_cutlass_has(cute):
    text = nvrtc.ptx(PRELUDE_CUDA.read_text() + kernel_text("tcgen05"), "compute_100f")
    names = set(re.findall(r"\btcgen05\.[\w.:]+", text))
    files = ("cute/arch/mma_sm100_umma.hpp", "cute/arch/copy_sm100.hpp", "cute/arch/tmem_allocator_sm100.hpp")
    headers = "".join((cute.include[0] / f).read_text() for f in (*files, "cutlass/arch/barrier.h"))
    tma = (cute.include[0] / "cute/arch/copy_sm100_tma.hpp").read_text()
    known = set(re.findall(r"\btcgen05\.[\w.:]+", headers))
    fences = {"tcgen05.fence::before_thread_sync", "tcgen05.fence::after_thread_sync"}  # not in its headers

    assert len(names) == 23
    assert names - known == fences
    loads = set(re.findall(r"\bcp\.async\.bulk\.tensor[\w.:]*cta_group::2[\w.:]*", text))
    in_any_order = {frozenset(name.split(".")) for name in re.findall(r"\bcp\.[\w.:]+", tma)}
    assert {frozenset([*load.split("."), "L2::cache_hint"]) for load in loads} <= in_any_order
    assert len(loads) == 3
