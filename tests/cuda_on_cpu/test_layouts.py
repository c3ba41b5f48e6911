"""Layouts beside an independent judge: CuTe, the layout algebra of NVIDIA's CUTLASS, as its headers define them.

What is judged is what the portable prelude computes with and what rendered kernels do, by running them; where an element
lies is asked of CuTe (cute.py). Skipped where CUTLASS's headers are not installed: `make layouts` installs them.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gpucomp.artifact.tensor_map import TensorMap
from gpucomp.ir.types import BF16, F16, I8, I32
from gpucomp.kernel import Kernel
from gpucomp.kernel.interpreter import expected
from gpucomp.kernel.passes.pack_weights import pack
from gpucomp.kernel.source import KernelSource
from gpucomp.kernels_templates.render import render
from testing.cuda_on_cpu.harness import CudaOnCpu, Mapped, compile_many
from testing.kernels import matmul
from testing.wgmma_kernels import FAMILY, TARGET, TILE, image, one_result, problem_of, with_math
from tests import nvrtc
from tests.cuda_on_cpu.cute import ABSENT, Cute, include_folders
from tests.cuda_on_cpu.kernel_files import PRELUDE_CUDA, broken, kernel_text

if not include_folders():
    pytest.skip(ABSENT, allow_module_level=True)

LANES, GROUP = 32, 128  # threads of a warp, of a warpgroup
MMAS = {  # dtypes of a and b, of the sums
    "m16n8k8_f16": (np.float16, np.float16, np.float32),
    "m16n8k16_f16": (np.float16, np.float16, np.float32),
    "m16n8k16_bf16": (ml_dtypes.bfloat16, ml_dtypes.bfloat16, np.float32),
    "m16n8k8_tf32": (np.float32, np.float32, np.float32),
    "m8n8k16_s8s8": (np.int8, np.int8, np.int32),
    "m8n8k16_u8s8": (np.uint8, np.int8, np.int32),
    "m8n8k16_s8u8": (np.int8, np.uint8, np.int32),
    "m8n8k16_u8u8": (np.uint8, np.uint8, np.int32),
    "m16n8k32_s8s8": (np.int8, np.int8, np.int32),
    "m16n8k32_u8s8": (np.uint8, np.int8, np.int32),
    "m16n8k32_s8u8": (np.int8, np.uint8, np.int32),
    "m16n8k32_u8u8": (np.uint8, np.uint8, np.int32),
}
WGMMAS = {  # the instruction, elements in memory, the sums
    "f16": ("f16", np.float16, "float"),
    "bf16": ("bf16", ml_dtypes.bfloat16, "float"),
    "tf32": ("tf32", np.float32, "float"),
    "i8": ("s8", np.int8, "int"),
}
COLUMNS = (8, 16, 32, 48, 64, 96, 128, 192, 256)
ROW = 128  # bytes of a row of an operand of wgmma


@pytest.fixture(scope="module")
def built() -> Callable[[str, str], CudaOnCpu]:
    """``built(source, kernel)``; the sources that tests start from are compiled together."""
    known = [(source, name) for source in (FRAGMENTS, TILES) for name in re.findall(r"\bk_\w+(?=\()", source)]
    kernels = {(k.source, k.kernel): k for k in compile_many(known)}
    return lambda source, kernel: kernels.get((source, kernel)) or CudaOnCpu(source, kernel)


def small(rng: np.random.Generator, shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """Whole numbers whose products sum up exactly in any order."""
    return rng.integers(0 if dtype is np.uint8 else -4, 5, shape).astype(dtype)


# ---- fragments of mma ----

FRAGMENTS = kernel_text("fragments")
MMA_MISTAKES = {
    "two registers of a are exchanged": ("ar[i] = a[i * 32", "ar[i] = a[(i ^ 1) * 32"),
    "lanes of b are exchanged": ("br[i] = b[i * 32 + threadIdx.x]", "br[i] = b[i * 32 + (threadIdx.x ^ 4)]"),
    "two sums are exchanged": ("c[i * 32 + threadIdx.x] = cr[i]", "c[i * 32 + threadIdx.x] = cr[i ^ 1]"),
}


def registers(matrix: np.ndarray, places: np.ndarray) -> np.ndarray:
    """(registers, lanes) of 32 bits that hold ``matrix``: value v of lane t is ``matrix[places[t, v]]``."""
    values = np.ascontiguousarray(matrix[places[..., 0], places[..., 1]])
    return np.ascontiguousarray(values.view(np.uint32).T)


def check_mma(cute: Cute, kernel: CudaOnCpu, name: str) -> None:
    a_type, b_type, c_type = MMAS[name]
    m, n, k = map(int, re.findall(r"\d+", name)[:3])
    rng = np.random.default_rng(5)
    a, b, c = small(rng, (m, k), a_type), small(rng, (n, k), b_type), small(rng, (m, n), c_type)
    answer = cute.ask(f"mma {name}")
    layout = {operand: np.reshape(answer[operand], (LANES, -1, 2)) for operand in "abc"}
    sums = registers(c, layout["c"]).view(c_type)

    kernel.run((1,), (LANES,), [registers(a, layout["a"]), registers(b, layout["b"]), sums])

    wanted = c + a.astype(c_type) @ b.astype(c_type).T
    np.testing.assert_array_equal(sums, registers(wanted, layout["c"]).view(c_type))


@pytest.mark.parametrize("name", MMAS)
def test_an_mma_multiplies_fragments_as_cute_deals_them_out(cute, built, name):
    check_mma(cute, built(FRAGMENTS, f"k_{name}"), name)


@pytest.mark.parametrize("mistake", MMA_MISTAKES)
def test_a_fragment_dealt_out_differently_is_seen(cute, mistake):
    replaced, by = MMA_MISTAKES[mistake]
    kernel = CudaOnCpu(broken(FRAGMENTS, replace=replaced, by=by), "k_m16n8k16_f16")

    with pytest.raises(AssertionError):
        check_mma(cute, kernel, "m16n8k16_f16")


# ---- matrices of 8 x 8 ----

LDMATRIX = {"x1": (0, 1), "x2": (1, 2), "x4": (3, 4), "x1_trans": (7, 1), "x2_trans": (8, 2), "x4_trans": (10, 4)}
TILES = """
// Lane l names row order[l] of 16 bytes, and has four registers.
extern "C" __global__ void k_stmatrix_rows(const unsigned* r, const int* order, uint4* y) {
  __shared__ uint4 tile[32];
  const unsigned* mine = r + threadIdx.x * 4;
  gc_stmatrix_x4(tile + order[threadIdx.x], mine[0], mine[1], mine[2], mine[3]);
  gc_syncwarp();
  y[threadIdx.x] = tile[threadIdx.x];
}

// What a load leaves in shared memory, byte by byte.
template <class Load>
__device__ __forceinline__ void keep_loaded(uint4* y, int pieces, Load load) {
  unsigned char* const tile = gc_swizzled_shared();
  unsigned long long* const full = reinterpret_cast<unsigned long long*>(tile + pieces * 16);
  if (threadIdx.x == 0) {
    gc_mbarrier_init(full, 1);
    gc_fence_barrier_init();
    gc_mbarrier_arrive_expect_tx(full, pieces * 16);
    load(tile, full);
  }
  __syncthreads();
  gc_mbarrier_wait(full, 0);
  for (int i = threadIdx.x; i < pieces; i += blockDim.x) y[i] = reinterpret_cast<const uint4*>(tile)[i];
}
extern "C" __global__ void k_load(const __grid_constant__ gc_tensor_map map, uint4* y, int pieces) {
  keep_loaded(y, pieces, [&](void* tile, unsigned long long* full) { gc_tma_load_2d(tile, &map, full, 0, 0); });
}
extern "C" __global__ void k_load_pixels(const __grid_constant__ gc_tensor_map map, uint4* y, int pieces, int c, int w,
                                         int h, int n, int s, int r) {
  keep_loaded(y, pieces, [&](void* tile, unsigned long long* full) {
    gc_tma_load_im2col_4d(tile, &map, full, c, w, h, n, (unsigned short)s, (unsigned short)r);
  });
}

// What a store takes from shared memory that was filled byte by byte.
extern "C" __global__ void k_store(const __grid_constant__ gc_tensor_map map, const uint4* x, int pieces) {
  uint4* const tile = reinterpret_cast<uint4*>(gc_swizzled_shared());
  for (int i = threadIdx.x; i < pieces; i += blockDim.x) tile[i] = x[i];
  gc_fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    gc_tma_store_2d(&map, tile, 0, 0);
    gc_tma_store_commit();
    gc_tma_store_wait<0>();
  }
}
"""


def dealt(source: np.ndarray, layout: Mapping[str, Any], side: str, threads: int) -> np.ndarray:
    """The 16-bit values of a copy by their numbers in its layout; (thread, value) of ``side`` has ``source``."""
    numbers = np.reshape(layout[side], (LANES, -1))[:threads]
    found = np.zeros(numbers.size, source.dtype)
    found[numbers] = source[:threads]
    return found


def check_ldmatrix(cute: Cute, kernel: CudaOnCpu) -> None:
    rng = np.random.default_rng(1)
    x, order = rng.permutation(2**16)[:256].astype(np.uint16).reshape(32, 8), rng.permutation(32).astype(np.int32)
    y = np.zeros((14, LANES), np.uint32)

    kernel.run((1,), (LANES,), [x, order, y])

    for name, (first, count) in LDMATRIX.items():
        layout = cute.ask(f"ldmatrix {name}")
        values = dealt(x[order], layout, "from", 8 * count)
        wanted = values[np.reshape(layout["to"], (LANES, 2 * count))]
        np.testing.assert_array_equal(y[first : first + count], wanted.view(np.uint32).T, name)


def check_stmatrix(cute: Cute, kernel: CudaOnCpu) -> None:
    rng = np.random.default_rng(2)
    r, order = rng.permutation(2**16)[:256].astype(np.uint16).reshape(LANES, 8), rng.permutation(32).astype(np.int32)
    y = np.zeros((32, 8), np.uint16)

    kernel.run((1,), (LANES,), [r, order, y])

    layout = cute.ask("stmatrix x4")
    values = dealt(r, layout, "from", LANES)
    np.testing.assert_array_equal(y[order], values[np.reshape(layout["to"], (32, 8))])


def test_ldmatrix_hands_out_what_cute_says(cute, built):
    check_ldmatrix(cute, built(FRAGMENTS, "k_ldmatrix"))


def test_stmatrix_lays_down_what_cute_says(cute, built):
    check_stmatrix(cute, built(TILES, "k_stmatrix_rows"))


@pytest.mark.parametrize(
    ("function", "other"), [("x1(r", "x1_trans(r"), ("x4_trans(r", "x4(r"), ("tile + order[", "tile + 31 - order[")]
)
def test_matrices_that_are_read_differently_are_seen(cute, function, other):
    with pytest.raises(AssertionError):
        check_ldmatrix(cute, CudaOnCpu(broken(FRAGMENTS, replace=function, by=other), "k_ldmatrix"))


def test_matrices_that_are_written_differently_are_seen(cute):
    exchanged = broken(TILES, replace="mine[1], mine[2]", by="mine[2], mine[1]")

    with pytest.raises(AssertionError):
        check_stmatrix(cute, CudaOnCpu(exchanged, "k_stmatrix_rows"))


# ---- swizzled tiles ----

ELEMENTS = {"f16": ("f16", np.uint16), "f32": ("tf32", np.uint32), "i8": ("i8", np.uint8)}  # CuTe's name, bits
SWIZZLES = (0, 32, 64, 128)


def in_shared(cute: Cute, name: str, matrix: np.ndarray) -> np.ndarray:
    """The bytes of a tile in shared memory as CuTe lays it out; a row of 16 bytes is not swizzled."""
    rows, row_bytes = len(matrix), matrix[0].nbytes
    places = np.reshape(cute.ask(f"layout {name} {row_bytes}"), (256, -1))[:rows]
    tile = np.zeros(rows * row_bytes, np.uint8)
    tile[places[..., None] + np.arange(matrix.itemsize)] = matrix.view(np.uint8).reshape(*matrix.shape, -1)
    return tile


def tile_of(dtype: str, swizzle: int) -> tuple[np.ndarray, TensorMap]:
    bits = ELEMENTS[dtype][1]
    row_bytes, rows = swizzle or 16, 72
    columns = row_bytes // np.dtype(bits).itemsize
    matrix = np.random.default_rng(3).integers(0, 2**8, (rows, row_bytes)).astype(np.uint8).view(bits)
    return matrix, TensorMap(0, dtype, (columns, rows), (row_bytes,), (columns, rows), swizzle=swizzle)


def check_load(cute: Cute, kernel: CudaOnCpu, dtype: str, swizzle: int, change: Callable = lambda spec: spec) -> None:
    matrix, spec = tile_of(dtype, swizzle)
    found = np.zeros(matrix.nbytes, np.uint8)

    kernel.run(
        (1,),
        (64,),
        [Mapped(change(spec), matrix), found, np.int32(matrix.nbytes // 16)],
        dynamic_shared=matrix.nbytes + 8,
    )

    np.testing.assert_array_equal(found, in_shared(cute, ELEMENTS[dtype][0], matrix))


def check_store(cute: Cute, kernel: CudaOnCpu, dtype: str, swizzle: int, change: Callable = lambda spec: spec) -> None:
    matrix, spec = tile_of(dtype, swizzle)
    found = np.zeros_like(matrix)
    tile = in_shared(cute, ELEMENTS[dtype][0], matrix)

    kernel.run((1,), (64,), [Mapped(change(spec), found), tile, np.int32(len(tile) // 16)], dynamic_shared=len(tile))

    np.testing.assert_array_equal(found, matrix)


@pytest.mark.parametrize("swizzle", SWIZZLES)
@pytest.mark.parametrize("dtype", ELEMENTS)
def test_tiles_are_loaded_and_stored_as_cute_swizzles_them(cute, built, dtype, swizzle):
    check_load(cute, built(TILES, "k_load"), dtype, swizzle)
    check_store(cute, built(TILES, "k_store"), dtype, swizzle)


@pytest.mark.parametrize("swizzle", SWIZZLES[1:])
@pytest.mark.parametrize("check", [check_load, check_store])
def test_a_tile_with_another_swizzle_is_seen(cute, built, check, swizzle):
    kernel = built(TILES, "k_load" if check is check_load else "k_store")
    others = [s for s in SWIZZLES if s > swizzle] or [0]

    for other in others:
        with pytest.raises(AssertionError):
            check(cute, kernel, "f16", swizzle, lambda spec, other=other: replace(spec, swizzle=other))


# ---- sums and operands of wgmma ----

SUMS = """
template <int columns, class Sum, class Multiply>
__device__ __forceinline__ void all_sums(const uint4* image, Sum* y, Multiply multiply) {
  unsigned char* const tiles = gc_swizzled_shared();
  for (int i = threadIdx.x; i < (64 + columns) * 8; i += 128) reinterpret_cast<uint4*>(tiles)[i] = image[i];
  gc_fence_proxy_async();
  __syncthreads();
  Sum acc[columns / 2];
  for (int i = 0; i < columns / 2; ++i) acc[i] = 0;
  gc_wgmma_fence();
#pragma unroll
  for (int k = 0; k < 4; ++k) multiply(acc, gc_wgmma_operand(tiles) + 2 * k, gc_wgmma_operand(tiles + 8192) + 2 * k);
  gc_wgmma_commit();
  gc_wgmma_wait<0>();
  for (int i = 0; i < columns / 2; ++i) y[threadIdx.x * (columns / 2) + i] = acc[i];
}
"""
SUMS += "".join(
    f'extern "C" __global__ void __launch_bounds__(128) k_{name}_{n}(const uint4* image, {kind}* y) {{\n'
    f"  all_sums<{n}>(image, y, gc_wgmma_{instruction}<{n}>);\n}}\n"
    for name, (instruction, _, kind) in WGMMAS.items()
    for n in COLUMNS
)
SUMS_MISTAKES = {
    "a step in depth that is too short": ("operand(tiles) + 2 * k", "operand(tiles) + k"),
    "columns that begin eight rows early": ("tiles + 8192", "tiles + 7168"),
    "sums of the rows below": ("+ i] = acc[i]", "+ i] = acc[i ^ 2]"),
    "sums of a neighbour": ("y[threadIdx.x *", "y[(threadIdx.x ^ 1) *"),
}


@pytest.fixture(scope="module")
def summed() -> Mapping[str, CudaOnCpu]:
    names = re.findall(r"\bk_\w+(?=\()", SUMS)
    return dict(zip(names, compile_many([(SUMS, name) for name in names]), strict=True))


def check_sums(cute: Cute, kernel: CudaOnCpu, name: str, columns: int) -> None:
    _, dtype, kind = WGMMAS[name]
    rng, depth = np.random.default_rng(7), ROW // np.dtype(dtype).itemsize
    a, b = small(rng, (64, depth), dtype), small(rng, (columns, depth), dtype)
    wide = np.float32 if kind == "float" else np.int32
    image = np.concatenate([in_shared(cute, name, a), in_shared(cute, name, b)])
    found = np.zeros((GROUP, columns // 2), wide)

    kernel.run((1,), (GROUP,), [image, found], dynamic_shared=len(image))

    row, column = np.moveaxis(np.reshape(cute.ask(f"sums {name} {columns}"), (GROUP, columns // 2, 2)), 2, 0)
    np.testing.assert_array_equal(found, (a.astype(wide) @ b.astype(wide).T)[row, column])


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("name", WGMMAS)
def test_wgmma_reads_and_deals_out_as_cute_says(cute, summed, name, columns):
    check_sums(cute, summed[f"k_{name}_{columns}"], name, columns)


@pytest.mark.parametrize("mistake", SUMS_MISTAKES)
def test_a_wgmma_that_reads_or_deals_out_differently_is_seen(cute, mistake):
    replaced, by = SUMS_MISTAKES[mistake]

    with pytest.raises(AssertionError):
        check_sums(cute, CudaOnCpu(broken(SUMS, replace=replaced, by=by), "k_bf16_32"), "bf16", 32)


# ---- rendered kernels ----

OPERANDS = "".join(
    re.findall(r"__device__ [^\n]* gc_wgmma_(?:operand|along)\(.*?\n}\n", PRELUDE_CUDA.read_text(), re.DOTALL)
)
LOAD = re.compile(r"gc_tma_load_(?:2d|3d|im2col_4d)\([^,;]*, &map_(?P<map>\w), [^,;]*, (?P<at>[^;]*)\);")
STORE = re.compile(r"gc_tma_store_2d\(&map_c, (?P<tile>[^,;]*), (?P<at>[^;]*)\);")
MULTIPLY = re.compile(r"gc_wgmma_\w+<\d+>\(\w+, (?P<operands>[^;]*)\);")
# A record is how many numbers follow; then of each event its kind, how many numbers it has, and these
NOTE = """
template <class... Numbers>
inline void note(long long* record, char kind, Numbers... numbers) {
  const long long all[] = {kind, sizeof...(numbers), (long long)numbers...};
  for (const long long number : all) record[++record[0]] = number;
}
inline void note_bytes(long long* record, const unsigned char* bytes, int count) {
  record[++record[0]] = 't';
  record[++record[0]] = count / 8;
  memcpy(record + record[0] + 1, bytes, count);
  record[0] += count / 8;
}
"""


@dataclass(frozen=True)
class Case:
    """A kernel with its schedule, and what is rendered of both."""

    given: Kernel
    schedule: Mapping[str, int]

    @functools.cached_property
    def kernel(self) -> Kernel:
        """``given``, packed where the engine asks for it."""
        wanted = FAMILY.packing(self.given, FAMILY.schedule(self.schedule), problem_of(self.given))
        return pack(self.given, wanted).kernel if wanted else self.given

    @functools.cached_property
    def source(self) -> KernelSource:
        return render(self.kernel, self.schedule, TARGET, "judged", FAMILY)

    @property
    def element(self) -> str:
        return self.source.tensor_maps[0].dtype

    @property
    def depth(self) -> int:
        """Elements of a row of an operand's tile."""
        return ROW // self.kernel.params[0].dtype.nbytes


def case(kernel: Kernel, **schedule: int) -> Case:
    return Case(kernel, {**TILE, "tile_n": 64, **schedule})


def noting(text: str, tile_bytes: int = 0, *, multiplies: bool = True) -> str:
    """A kernel that also notes where it loads, what it multiplies and what it stores, tiles of so many bytes.

    Its operands are described by the bodies of gc_wgmma_operand and gc_wgmma_along that NVRTC compiles.
    """
    operands = OPERANDS.replace("__cvta_generic_to_shared", "gc_runtime_shared_offset")
    text = LOAD.sub(r"{ note(record, '\g<map>', blockIdx.x, \g<at>); \g<0> }", text)
    noted = "if (id % 128 == 0) note(record, 'm', id / 128, left, \\g<operands>);"
    text = MULTIPLY.sub(rf"{{ {noted} \g<0> }}" if multiplies else noted, text)
    text = STORE.sub(rf"{{ note(record, 'c', \g<at>); note_bytes(record, \g<tile>, {tile_bytes}); \g<0> }}", text)
    text = broken(
        text, replace=") {\n  unsigned char* const shared", by=", long long* record) {\n  unsigned char* const shared"
    )
    return NOTE + re.sub(r"gc_wgmma_(operand|along)", r"\1_on_a_device", operands + text)


def events(judged: Case, text: str, inputs: list[np.ndarray] | None = None) -> Mapping[str, np.ndarray]:
    """The numbers of the events of each kind of one launch, a row each."""
    params, g = judged.kernel.params, judged.source.geometry
    inputs = inputs or [np.zeros(t.shape, t.dtype.numpy) for t in params[: judged.kernel.inputs]]
    args = [*inputs, *(np.zeros(t.shape, t.dtype.numpy) for t in params[judged.kernel.inputs :])]
    args += [Mapped(spec, args[spec.parameter]) for spec in judged.source.tensor_maps]
    record = np.zeros(1 << 17, np.int64)

    CudaOnCpu(text, "judged").run(g.groups, g.items, [*args, record], dynamic_shared=g.dynamic_shared_bytes)

    found: dict[str, list[np.ndarray]] = {}
    at, end = 1, 1 + record[0]
    while at < end:
        kind, count = chr(record[at]), int(record[at + 1])
        found.setdefault(kind, []).append(record[at + 2 : at + 2 + count])
        at += 2 + count
    return {kind: np.array(numbers) for kind, numbers in found.items()}


# ---- matrices that are loaded ----

MATRICES = {  # rows, columns, depth and batches
    "f16": (case(matmul(100, 40, 200, dtype=F16, b_transposed=True)), (100, 40, 200, 1)),
    "bf16": (case(matmul(137, 23, 72, dtype=BF16, b_transposed=True), tile_m=128), (137, 23, 72, 1)),
    "tf32": (case(with_math(matmul(65, 40, 100, b_transposed=True))), (65, 40, 100, 1)),
    "i8": (case(matmul(67, 33, 208, dtype=I8, acc=I32, b_transposed=True)), (67, 33, 208, 1)),
    "batched": (case(matmul(70, 17, 136, batch=(3,), dtype=F16, b_transposed=True)), (70, 17, 136, 3)),
}
MATRIX_MISTAKES = {  # of the text of "batched"
    "rows of the tile before": ("step * 64, first_row", "step * 64, first_row - 64"),
    "half a step in depth": ("step * 64, first_row", "step * 32, first_row"),
    "depth and rows exchanged": ("step * 64, first_row", "first_row, step * 64"),
    "another batch": ("first_column, batch", "first_column, batch ^ 1"),
}
MAP_MISTAKES = {  # of the map of a of "batched"
    "another swizzle": {"swizzle": 64},
    "a stride of the elements' number": {"strides": (136, 70 * 136 * 2)},
    "rows and batches exchanged": {"extents": (136, 3, 70)},
    "a box of fewer rows": {"box": (64, 32, 1)},
    "every second row": {"element_strides": (1, 2, 1)},
    "another type": {"dtype": "bf16"},
}


def axes_of(found: Mapping[str, Any]) -> list[tuple[int, ...]]:
    """Stride, extent, box and step of each axis, by stride: an axis of which a box has one may stand anywhere."""
    return sorted(zip((0, *found["strides"]), found["extents"], found["box"], found["steps"], strict=True))


def by_stride(at: Any, strides: Any) -> np.ndarray:
    """Coordinates in the order of ``axes_of``."""
    return np.asarray(at)[..., np.argsort((0, *strides))]


def fields(spec: TensorMap) -> dict[str, Any]:
    """As CuTe's answers name what a driver is handed."""
    names = ["dtype", "extents", "strides", "steps", "swizzle"]
    names += ["lower", "upper", "channels", "pixels"] if spec.is_im2col else ["box"]
    return {name: list(value) if isinstance(value := getattr(spec, name), tuple) else value for name in names}


def check_tiled_map(spec: TensorMap, wanted: Mapping[str, Any]) -> None:
    found = fields(spec)
    assert (found["dtype"], found["swizzle"]) == (wanted["dtype"], wanted["swizzle"])
    assert axes_of(found) == axes_of(wanted)


def asked_matrices(cute: Cute, name: str) -> list[Mapping[str, Any]]:
    judged, (m, n, k, batch) = MATRICES[name]
    return [
        cute.ask(f"load {judged.element} {rows_of_tile}", rows, k, k, *((batch, rows * k) if batch > 1 else ()))
        for rows, rows_of_tile in ((m, judged.schedule["tile_m"]), (n, 64))
    ]


def check_matrix_loads(cute: Cute, name: str, text: str) -> None:
    judged, (m, _, _, batch) = MATRICES[name]
    found = events(judged, noting(text))
    tiles_m = -(-m // judged.schedule["tile_m"])
    for operand, wanted, spec in zip("ab", asked_matrices(cute, name), judged.source.tensor_maps, strict=True):
        at = by_stride(wanted["at"], wanted["strides"])
        rows = tiles_m if operand == "a" else 1
        tiles = at.reshape(batch, -1, rows, at.shape[1]).swapaxes(1, 2)  # CuTe walks over rows first, then depth
        blocks = np.broadcast_to(tiles, (batch, tiles_m, *tiles.shape[2:])).reshape(-1, at.shape[1])
        np.testing.assert_array_equal(by_stride(found[operand][:, 1:], spec.strides), blocks)


@pytest.mark.parametrize("name", MATRICES)
def test_matrices_are_loaded_by_the_boxes_that_cute_loads(cute, name):
    judged, _ = MATRICES[name]

    for spec, wanted in zip(judged.source.tensor_maps, asked_matrices(cute, name), strict=True):
        check_tiled_map(spec, wanted)
    check_matrix_loads(cute, name, judged.source.text)


@pytest.mark.parametrize("mistake", MATRIX_MISTAKES)
def test_another_tile_of_a_matrix_is_seen(cute, mistake):
    replaced, by = MATRIX_MISTAKES[mistake]

    with pytest.raises(AssertionError):
        check_matrix_loads(cute, "batched", broken(MATRICES["batched"][0].source.text, replace=replaced, by=by))


@pytest.mark.parametrize("mistake", MAP_MISTAKES)
def test_another_map_of_a_matrix_is_seen(cute, mistake):
    with pytest.raises(AssertionError):
        check_tiled_map(
            replace(MATRICES["batched"][0].source.tensor_maps[0], **MAP_MISTAKES[mistake]),
            asked_matrices(cute, "batched")[0],
        )


# ---- pixels that are loaded ----

CONVOLUTIONS = {  # window, step, padding, dilation
    "3x3": (case(image((2, 9, 7, 24), 40, (3, 3), pad=1, dtype=F16)), (3, 3), 1, 1, 1),
    "3x3 of many channels": (case(image((1, 6, 5, 88), 16, (3, 3), pad=1, dtype=BF16)), (3, 3), 1, 1, 1),
    "strided": (case(image((2, 12, 15, 72), 24, (3, 3), stride=2, pad=1, dtype=F16)), (3, 3), 2, 1, 1),
    "three by three pixels": (case(image((1, 29, 37, 16), 24, (2, 3), stride=3, pad=1, dtype=F16)), (2, 3), 3, 1, 1),
    "dilated": (case(image((1, 12, 9, 8), 12, (3, 2), dilation=2, pad=1, dtype=F16)), (3, 2), 1, 1, 2),
    "no padding": (case(image((3, 7, 9, 16), 8, (2, 3), dtype=F16)), (2, 3), 1, 0, 1),
    "tf32": (case(with_math(image((1, 9, 11, 36), 12, (3, 3), pad=1))), (3, 3), 1, 1, 1),
}
PIXEL_MISTAKES = {  # of the text of "strided"
    "a window that begins at the image": ("first_row % 8 * 2 - 1", "first_row % 8 * 2"),
    "a step of one": ("/ 8 % 6 * 2 - 1", "/ 8 % 6 - 1"),
    "rows and columns exchanged": ("first_w, first_h", "first_h, first_w"),
    "taps column by column": ("tap % 3, tap / 3", "tap / 3, tap % 3"),
    "filters of the tap before": ("tap, first_column", "tap - 1, first_column"),
}
WALK_MISTAKES = {  # of the map of a of "strided"
    "a column more": {"upper": (2, -1)},
    "a row less": {"upper": (0, -3)},
    "no padding": {"lower": (0, 0)},
    "a step of one": {"element_strides": (1, 1, 1, 1)},
    "rows and columns exchanged": {"extents": (72, 12, 15, 2), "strides": (144, 1728, 25920)},
    "another swizzle": {"swizzle": 0},
}


def asked_pixels(cute: Cute, name: str) -> Mapping[str, Any]:
    judged, window, step, pad, dilation = CONVOLUTIONS[name]
    n, h, w, c = judged.kernel.params[0].shape
    (out_channels,) = (v.extent for v in judged.kernel.body.n)
    sizes = (n, h, w, c, out_channels, *window, c, *[pad] * 4, *[step] * 2, *[dilation] * 2)
    return cute.ask(f"im2col {judged.element}", *sizes)


def walk_of(found: Mapping[str, Any]) -> list[list[int]]:
    """The columns and the rows that the walk visits for the first tap: corners that differ may mean the same ones."""
    return [
        list(range(low, extent + up, step))
        for low, up, extent, step in zip(
            found["lower"], found["upper"], found["extents"][1:3], found["steps"][1:3], strict=True
        )
    ]


def check_im2col_map(spec: TensorMap, wanted: Mapping[str, Any]) -> None:
    found = fields(spec)
    for name in ("dtype", "swizzle", "extents", "strides", "steps", "channels", "pixels", "lower"):
        assert found[name] == wanted[name], name
    assert walk_of(found) == walk_of(wanted)


def check_pixel_loads(cute: Cute, name: str, text: str) -> None:
    judged, window, *_ = CONVOLUTIONS[name]
    c, taps = judged.kernel.params[0].shape[3], math.prod(window)
    (columns,) = (v.extent for v in judged.kernel.body.n)
    found, pixels = events(judged, noting(text)), asked_pixels(cute, name)
    at = np.reshape(pixels["at"], (taps * -(-c // judged.depth), -1, 6))
    np.testing.assert_array_equal(found["a"][:, 1:], at.swapaxes(0, 1).reshape(-1, 6))

    filters, spec = cute.ask(f"load {judged.element} 64", columns, c, taps * c, taps, c), judged.source.tensor_maps[1]
    check_tiled_map(spec, filters)
    at = by_stride(filters["at"], filters["strides"])
    np.testing.assert_array_equal(
        by_stride(found["b"][:, 1:], spec.strides), np.tile(at, (len(found["b"]) // len(at), 1))
    )


def check_walk(cute: Cute, kernel: CudaOnCpu, name: str, spec: TensorMap) -> None:
    """What a load leaves in shared memory are the rows of the convolution's matrix, of each tile and the last tap."""
    judged = CONVOLUTIONS[name][0]
    shape, dtype = judged.kernel.params[0].shape, judged.kernel.params[0].dtype.numpy
    x = small(np.random.default_rng(11), shape, dtype)
    found = asked_pixels(cute, name)
    padded = np.zeros((shape[0], *(e + 64 for e in shape[1:])), dtype)
    padded[:, 32:-32, 32:-32, :-64] = x
    for row in range(0, len(found["walk"]), 64):
        start = next(a for a in reversed(found["at"]) if a[1:4] == found["walk"][row][1:4])
        c, *_, s, r = start
        tile = np.zeros(64 * ROW, np.uint8)
        kernel.run(
            (1,),
            (64,),
            [Mapped(spec, x), tile, np.int32(len(tile) // 16), *map(np.int32, start)],
            dynamic_shared=len(tile) + 8,
        )
        wanted = [
            padded[n, 32 + h + r, 32 + w + s, c : c + judged.depth]
            for _, w, h, n, _, _ in found["walk"][row : row + 64]
        ]
        places = np.reshape(cute.ask(f"layout {judged.element} {ROW}"), (256, -1))[: len(wanted)]
        there = tile[places[..., None] + np.arange(dtype.itemsize)].view(dtype)[..., 0]
        np.testing.assert_array_equal(there, wanted)


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_pixels_are_loaded_by_the_walk_that_cutlass_sets_up(cute, built, name):
    judged = CONVOLUTIONS[name][0]

    check_im2col_map(judged.source.tensor_maps[0], asked_pixels(cute, name))
    check_pixel_loads(cute, name, judged.source.text)
    check_walk(cute, built(TILES, "k_load_pixels"), name, judged.source.tensor_maps[0])


@pytest.mark.parametrize("mistake", PIXEL_MISTAKES)
def test_other_pixels_or_filters_are_seen(cute, mistake):
    replaced, by = PIXEL_MISTAKES[mistake]

    with pytest.raises(AssertionError):
        check_pixel_loads(cute, "strided", broken(CONVOLUTIONS["strided"][0].source.text, replace=replaced, by=by))


@pytest.mark.parametrize("mistake", WALK_MISTAKES)
def test_another_walk_is_seen(cute, built, mistake):
    spec = replace(CONVOLUTIONS["strided"][0].source.tensor_maps[0], **WALK_MISTAKES[mistake])

    with pytest.raises(AssertionError):
        check_im2col_map(spec, asked_pixels(cute, "strided"))
    with pytest.raises(AssertionError):
        check_walk(cute, built(TILES, "k_load_pixels"), "strided", spec)


# ---- operands that are described ----

DESCRIBED = {
    "f16": case(matmul(100, 40, 200, dtype=F16, b_transposed=True), stages=3),
    "bf16, two blocks": case(matmul(137, 23, 72, dtype=BF16, b_transposed=True), tile_m=128),
    "tf32, two warpgroups": case(with_math(matmul(137, 44, 100, b_transposed=True)), tile_m=128, consumers=2),
    "i8": case(matmul(67, 33, 416, dtype=I8, acc=I32, b_transposed=True)),
}
OPERAND_MISTAKES = {  # of the body that NVRTC compiles, or of the text of "bf16, two blocks"
    "eight rows that are 512 bytes": ("64ull << 32", "32ull << 32"),
    "another swizzle": ("1ull << 62", "1ull << 63"),
    "an address in bytes": (">> 4 &", "&"),
    "a step of 16 bytes": ("along_on_a_device(rows, 2 * k)", "along_on_a_device(rows, k)"),
    "a block of 32 rows": ("(rows, 512 + 2 * k)", "(rows, 256 + 2 * k)"),
    "columns eight rows too far": ("(shared + 16384)", "(shared + 17408)"),
}


def check_operands(cute: Cute, judged: Case, text: str) -> None:
    s = judged.schedule
    blocks, stage_bytes = s["tile_m"] // 64, (s["tile_m"] + s["tile_n"]) * ROW
    multiplied = events(judged, text)["m"].astype(np.uint64)
    for left in np.unique(multiplied[:, 1]):
        start = int(multiplied[:, 1].max() - left) % s["stages"] * stage_bytes
        rows = np.array(cute.ask(f"descriptors {judged.element} a", start), np.uint64).reshape(2, 4)[:blocks]
        columns = np.array(cute.ask(f"descriptors {judged.element} b", start + s["tile_m"] * ROW), np.uint64)
        for group, mine in enumerate(np.split(rows, s["consumers"])):
            found = multiplied[(multiplied[:, 0] == group) & (multiplied[:, 1] == left)][: 4 * len(mine), 2:]
            wanted = [(a, columns[k]) for k in range(4) for a in mine[:, k]]
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", DESCRIBED)
def test_operands_are_described_as_cute_describes_them(cute, name):
    check_operands(cute, DESCRIBED[name], noting(DESCRIBED[name].source.text, multiplies=False))


@pytest.mark.parametrize("mistake", OPERAND_MISTAKES)
def test_another_description_of_an_operand_is_seen(cute, mistake):
    judged = DESCRIBED["bf16, two blocks"]
    replaced, by = OPERAND_MISTAKES[mistake]

    with pytest.raises(AssertionError):
        check_operands(cute, judged, broken(noting(judged.source.text, multiplies=False), replace=replaced, by=by))


# ---- results that are stored ----

STORED = {  # by type and bytes of a row of a piece
    "f16, 128": (case(one_result(matmul(70, 72, 40, dtype=F16, b_transposed=True)), tma_store=1), 128),
    "f16, 64": (
        case(
            one_result(matmul(139, 96, 40, dtype=F16, b_transposed=True)),
            tile_m=128,
            consumers=2,
            tile_n=32,
            tma_store=1,
        ),
        64,
    ),
    "f16, 32": (case(one_result(matmul(70, 48, 40, dtype=F16, b_transposed=True)), tile_n=48, tma_store=1), 32),
    "f32, 128": (
        case(with_math(one_result(matmul(137, 44, 40, b_transposed=True))), tile_m=128, tile_n=96, tma_store=1),
        128,
    ),
    "f32, 64": (case(with_math(one_result(matmul(67, 52, 40, b_transposed=True))), tile_n=48, tma_store=1), 64),
    "f32, 32": (case(with_math(one_result(matmul(67, 12, 40, b_transposed=True))), tile_n=8, tma_store=1), 32),
}
STORE_MISTAKES = {  # of the text of "f16, 128" and of "f32, 64"
    "f16, 128": {
        "chunks moved by another row": ("^ line % 8", "^ (line + 1) % 8"),
        "chunks moved by every second row": ("^ line % 8", "^ line / 2 % 8"),
        "lanes of other rows": ("id % 32 % 16;", "id % 16 / 2 + id % 2 * 8;"),
        "columns that are not moved": ("(at ^ j * 16 % 128)", "at + j * 16 % 128"),
        "the upper and the lower rows exchanged": ("words[0], words[1]", "words[1], words[0]"),
    },
    "f32, 64": {
        "chunks moved by each row": ("^ line / 2 % 4", "^ line % 4"),
        "pairs of columns exchanged": ("+ id % 2 * 8", "+ (id % 2 ^ 1) * 8"),
        "the piece before": ("to + j * 8 / 16 *", "to + (j * 8 / 16 ^ 1) *"),
    },
}


def check_stores(cute: Cute, name: str, change: Callable[[str], str] = lambda text: text) -> None:
    judged, row_bytes = STORED[name]
    kernel, dtype = judged.kernel, judged.kernel.params[-1].dtype.numpy
    rng = np.random.default_rng(13)
    inputs = [small(rng, t.shape, t.dtype.numpy.type) for t in kernel.params[: kernel.inputs]]
    (result,) = expected(kernel, inputs)
    (m, n), columns = result.shape, row_bytes // dtype.itemsize
    stored = cute.ask(f"store {kernel.params[-1].dtype.name} {row_bytes}", m, n, n)
    check_tiled_map(judged.source.tensor_maps[2], stored)

    found = events(judged, change(noting(judged.source.text, 64 * row_bytes)), inputs)

    inside = (found["c"] < (n, m)).all(1)
    assert sorted(map(list, found["c"][inside])) == sorted(stored["at"])
    padded = np.zeros((m + 64, n + columns), dtype)
    padded[:m, :n] = result
    for (column, row), tile in zip(found["c"][inside], found["t"][inside], strict=True):
        piece = padded[row : row + 64, column : column + columns]
        wanted = in_shared(cute, {2: "f16", 4: "tf32"}[dtype.itemsize], np.ascontiguousarray(piece))
        np.testing.assert_array_equal(tile.view(np.uint8), wanted)


@pytest.mark.parametrize("name", STORED)
def test_results_are_staged_and_stored_as_cute_swizzles_them(cute, name):
    check_stores(cute, name)


@pytest.mark.parametrize(
    ("name", "mistake"), [(name, mistake) for name in STORE_MISTAKES for mistake in STORE_MISTAKES[name]]
)
def test_a_result_that_is_staged_differently_is_seen(cute, name, mistake):
    replaced, by = STORE_MISTAKES[name][mistake]

    with pytest.raises(AssertionError):
        check_stores(cute, name, lambda text: broken(text, replace=replaced, by=by))


# ---- the instructions ----

INSTRUCTION = re.compile(r"\b((?:mma|wgmma\.mma_async|ldmatrix|stmatrix)\.[\w.]+)\s*([^;]*);")


def instruction_of(text: str) -> tuple[list[str], list[int], str]:
    """The parts of its name in any order, how many registers each operand has, and what follows these."""
    name, operands = INSTRUCTION.search(text).groups()
    found = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+", operands)
    return sorted(name.split(".")), [len(o.split(",")) for o in found], ", ".join(found)


@functools.cache
def headers_of(cute: Cute) -> str:
    names = ("mma_sm75", "mma_sm80", "mma_sm90_gmma", "mma_sm90_gmma_ext", "copy_sm75", "copy_sm90")
    return "\n".join((cute.include[0] / f"cute/arch/{name}.hpp").read_text() for name in names)


def cutlass_instruction(cute: Cute, struct: str) -> tuple[list[str], list[int], str]:
    """The instruction in the assembly of one of CuTe's structs."""
    text = re.search(rf"^struct {struct}\n.*?asm volatile\s*\((.*?)\n\s*:", headers_of(cute), re.DOTALL | re.MULTILINE)[
        1
    ]
    return instruction_of("".join(re.findall(r'"([^"]*)"', text)).replace(r"\n", "\n"))


@functools.cache
def ptx_of(source: str, kernel: str) -> list[tuple[list[str], list[int], str]]:
    """The instructions that NVRTC makes of a kernel."""
    text = _ptx(source).partition(f".entry {kernel}(")[2].partition(".entry ")[0]
    return [instruction_of(found[0]) for found in INSTRUCTION.finditer(text)]


@functools.cache
def _ptx(source: str) -> str:
    return nvrtc.ptx(PRELUDE_CUDA.read_text() + source, "compute_90a")


@pytest.mark.parametrize("name", MMAS)
def test_the_mma_whose_fragments_are_judged_is_the_one_that_is_compiled(cute, name):
    (found,) = ptx_of(FRAGMENTS, f"k_{name}")

    assert found[:2] == cutlass_instruction(cute, cute.ask(f"mma {name}")["struct"])[:2]


def test_the_matrix_copies_that_are_judged_are_those_that_are_compiled(cute):
    wanted = [cutlass_instruction(cute, cute.ask(f"ldmatrix {name}")["struct"])[:2] for name in LDMATRIX]
    stored = cutlass_instruction(cute, cute.ask("stmatrix x4")["struct"])[:2]

    assert [found[:2] for found in ptx_of(FRAGMENTS, "k_ldmatrix")] == wanted
    assert [found[:2] for found in ptx_of(TILES, "k_stmatrix_rows")] == [stored]


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("name", WGMMAS)
def test_the_wgmma_whose_sums_are_judged_is_the_one_that_is_compiled(cute, name, columns):
    kind = {
        "f16": "x16_F32F16F16_SS",
        "bf16": "x16_F32BF16BF16_SS",
        "tf32": "x8_F32TF32TF32_SS_TN",
        "i8": "x32_S32S8S8_SS_TN",
    }
    parts, counts, _ = cutlass_instruction(cute, f"MMA_64x{columns}{kind[name]}")
    immediates = cute.ask("immediates")[: len(counts) - 3]

    found = ptx_of(SUMS, f"k_{name}_{columns}")

    assert len(found) == 4
    for found_parts, found_counts, operands in found:
        assert (found_parts, found_counts) == (parts, counts)
        assert operands.endswith(", ".join(map(str, immediates)))
