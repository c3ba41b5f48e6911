"""Kernels of tests/kernels_templates/test_row_statistics.py, each with what is special about it."""

from dataclasses import replace

from gpucomp.expr.core import cast, load
from gpucomp.ir.types import BF16, F16, F32, TensorType
from gpucomp.kernel import Store
from gpucomp.kernels_templates.contraction.simt.space import PLAIN
from gpucomp.kernels_templates.engines import FAMILIES
from testing.kernels import conv, matmul, with_inverse_rms, with_largest, with_row_statistics
from testing.tcgen05_kernels import TILE as TCGEN05_TILE
from testing.wgmma_kernels import TILE as WGMMA_TILE
from testing.wgmma_kernels import TMA_STORE, TWO, constant_b, image, one_result, with_math

SIMT, MMA, WGMMA, TCGEN05 = (FAMILIES[f"contraction/{engine}"] for engine in ("simt", "mma", "wgmma", "tcgen05"))

TILE = {**PLAIN, "tile_m": 8, "tile_n": 16, "tile_k": 8, "reg_m": 2, "reg_n": 2, "stages": 1}  # a warp

FEW = TILE | {"tile_m": 4, "tile_n": 8}  # eight threads: they do not shuffle

WARPS = {
    "warp_m": 16,
    "warp_n": 16,
    "warps_m": 1,
    "warps_n": 2,
    "warps_k": 1,
    "k_steps": 1,
    "stages": 2,
    "splits": 1,
    "raster": 1,
}


def residual(m, n, k, dtype=F32):
    """max(a @ b + bias, 0) + a residual: statistics are of the sum, as it is stored."""
    kernel = matmul(m, n, k, dtype=dtype)
    (store, _), (i, j) = kernel.stores, kernel.stores[0].index
    value = cast(cast(store.value, F32) + cast(load(3, (i, j), dtype), F32), dtype)
    params = (*kernel.params[:3], TensorType(dtype, (m, n)), TensorType(dtype, (m, n)))
    return replace(kernel, params=params, outputs=1, stores=(Store(4, (i, j), value),))


S = with_row_statistics

THREE = WGMMA_TILE | {"tile_m": 192, "consumers": 3, "setmaxnreg": 1}

CASES = {
    "simt": (SIMT, S(matmul(13, 40, 30)), TILE),
    "simt, one tile of columns": (SIMT, S(matmul(13, 11, 7)), TILE),
    "simt, one row": (SIMT, S(matmul(1, 47, 9, dtype=BF16)), TILE | {"tile_m": 1, "reg_m": 1, "tile_n": 8}),
    "simt, one column": (SIMT, S(conv((1, 3, 5, 7), 1, (1, 1))), TILE),
    "simt, batches": (SIMT, S(matmul(13, 37, 30, batch=(2, 3))), TILE),
    "simt, split": (SIMT, S(matmul(13, 40, 61)), TILE | {"splits": 3}),
    "simt, split and sliced": (SIMT, S(matmul(13, 37, 61, dtype=F16)), TILE | {"splits": 2, "slices": 2}),
    "simt, sliced": (SIMT, S(matmul(11, 40, 30)), TILE | {"slices": 2}),
    "simt, few threads": (SIMT, S(matmul(7, 23, 13)), FEW),
    "simt, few threads, split": (SIMT, S(matmul(7, 23, 45)), FEW | {"splits": 2}),
    "simt, a work-item": (SIMT, S(matmul(5, 11, 13)), FEW | {"tile_m": 2, "tile_n": 4, "reg_n": 4}),
    "simt, rows too long to be kept": (SIMT, S(matmul(3, 4099, 5)), TILE | {"tile_n": 256, "reg_n": 16}),
    "simt, residual": (SIMT, S(residual(13, 40, 30, F16)), TILE),
    "simt, pixels": (SIMT, S(conv((2, 5, 4, 6), 24, (3, 3), pad=1)), TILE),
    "simt, inverse rms": (SIMT, with_inverse_rms(matmul(13, 40, 30)), TILE),
    "simt, largest": (SIMT, with_largest(matmul(13, 40, 9)), TILE),
    "mma f16": (MMA, S(matmul(29, 40, 64, dtype=F16)), WARPS),
    "mma bf16, batches": (MMA, S(matmul(29, 37, 64, batch=(2,), dtype=BF16)), WARPS | {"raster": 2, "warps_m": 2}),
    "mma tf32, split": (MMA, S(with_math(matmul(19, 71, 40))), WARPS | {"splits": 3, "warps_k": 2, "k_steps": 2}),
    "mma, depth shared": (MMA, S(matmul(29, 17, 64, dtype=F16)), WARPS | {"warps_k": 2, "k_steps": 2}),
    "mma, one row": (MMA, S(matmul(1, 71, 64, dtype=F16)), WARPS | {"splits": 2, "warps_n": 1}),
    "mma, residual": (MMA, S(residual(29, 72, 64, F16)), WARPS | {"warp_n": 32}),
    "wgmma": (WGMMA, S(matmul(100, 72, 200, dtype=F16, b_transposed=True)), WGMMA_TILE),
    "wgmma tf32": (WGMMA, S(with_math(matmul(65, 40, 100, b_transposed=True))), WGMMA_TILE | {"stages": 3}),
    "wgmma, one tile of columns": (WGMMA, S(matmul(137, 23, 328, dtype=BF16, b_transposed=True)), TWO),
    "wgmma, batches": (WGMMA, S(matmul(70, 71, 24, batch=(3, 2), dtype=F16, b_transposed=True)), WGMMA_TILE),
    "wgmma, split": (
        WGMMA,
        S(matmul(70, 36, 648, dtype=F16, b_transposed=True)),
        WGMMA_TILE | {"splits": 8, "stages": 3},
    ),
    "wgmma, split, one tile of columns": (
        WGMMA,
        S(matmul(70, 23, 328, dtype=BF16, b_transposed=True)),
        WGMMA_TILE | {"splits": 2},
    ),
    "wgmma, three share, split": (
        WGMMA,
        S(constant_b(matmul(200, 40, 136, dtype=F16, b_transposed=True))),
        THREE | {"splits": 4, "overlap": 2},
    ),
    "wgmma, tma store": (
        WGMMA,
        S(one_result(matmul(139, 72, 72, batch=(2,), dtype=F16, b_transposed=True))),
        TMA_STORE,
    ),
    "wgmma, tma store, one tile of columns": (
        WGMMA,
        S(one_result(matmul(137, 24, 72, dtype=BF16, b_transposed=True))),
        TWO | {"tma_store": 1},
    ),
    "wgmma, tma store of tf32": (
        WGMMA,
        S(with_math(one_result(matmul(131, 52, 40, b_transposed=True)))),
        TMA_STORE | {"tile_m": 128, "tile_n": 48},
    ),
    "wgmma, b for two, tma store, one tile of columns": (
        WGMMA,
        S(image((1, 9, 11, 40), 24, (1, 1), dtype=F16)),
        TMA_STORE | {"multicast": 1},
    ),
    "wgmma, b for two, one tile of columns": (
        WGMMA,
        S(matmul(150, 29, 136, dtype=F16, b_transposed=True)),
        WGMMA_TILE | {"multicast": 1},
    ),
    "wgmma, a for two, tma store": (
        WGMMA,
        S(one_result(matmul(139, 72, 136, batch=(2,), dtype=F16, b_transposed=True))),
        TMA_STORE | {"multicast": 2},
    ),
    "wgmma, a for two, columns of one": (
        WGMMA,
        S(matmul(67, 24, 72, dtype=F16, b_transposed=True)),
        WGMMA_TILE | {"multicast": 2},
    ),
    "wgmma, b for two": (
        WGMMA,
        S(matmul(150, 40, 328, batch=(2,), dtype=F16, b_transposed=True)),
        WGMMA_TILE | {"multicast": 1, "stages": 3},
    ),
    "wgmma, a for two": (
        WGMMA,
        S(matmul(70, 90, 200, batch=(3,), dtype=BF16, b_transposed=True)),
        WGMMA_TILE | {"multicast": 2},
    ),
    "tcgen05": (TCGEN05, S(matmul(100, 72, 200, dtype=F16, b_transposed=True)), TCGEN05_TILE),
    "tcgen05, split": (
        TCGEN05,
        S(matmul(70, 36, 648, dtype=F16, b_transposed=True)),
        TCGEN05_TILE | {"splits": 8, "stages": 3},
    ),
    "tcgen05, tma store": (
        TCGEN05,
        S(one_result(matmul(139, 72, 72, batch=(2,), dtype=F16, b_transposed=True))),
        TCGEN05_TILE | {"tma_store": 1},
    ),
    "tcgen05, one tile of columns": (
        TCGEN05,
        S(matmul(137, 23, 328, dtype=BF16, b_transposed=True)),
        TCGEN05_TILE | {"tile_m": 256},
    ),
    "wgmma, everything": (
        WGMMA,
        S(image((1, 13, 11, 72), 48, (3, 3), stride=2, pad=1, dtype=F16)),
        TWO | {"setmaxnreg": 1, "multicast": 1, "tma_store": 1, "overlap": 2, "stages": 4},
    ),
}
