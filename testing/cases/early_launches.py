"""Kernels of tests/kernels_templates/test_early_launches.py, each with what is special about it."""

from dataclasses import replace

from gpucomp.ir.types import F16
from testing.kernels import (
    add_relu,
    attention,
    conv,
    depthwise,
    layer_norm,
    matmul,
    max_pool,
    scan,
    scatter,
    separable,
    softmax,
    stem,
    transposed,
)


def constant(kernel):
    return replace(kernel, constants=frozenset({1}))


KERNELS = {
    "loops": (add_relu(5, 11, 4), {}),
    "loops/transpose": (transposed(13, 8), {}),
    "depthwise": (depthwise((1, 7, 9, 8), (3, 3), pad=1), {}),
    "contraction/simt": (matmul(19, 37, 45), {}),
    "contraction/gemv": (matmul(1, 100, 33), {}),
    "contraction/mma": (constant(matmul(37, 24, 136, dtype=F16)), {"stages": 3, "splits": 1}),
    "contraction/wgmma": (constant(matmul(65, 24, 136, dtype=F16, b_transposed=True)), {}),
    "contraction/tcgen05": (constant(matmul(65, 24, 136, dtype=F16, b_transposed=True)), {}),
    "contraction/winograd": (constant(conv((1, 6, 7, 12), 20, (3, 3), pad=1)), {}),
    "contraction/stem_simt": (stem((1, 9, 12, 3), 8, (3, 3), stride=2, pad=1), {}),
    "contraction/stem_mma": (stem((1, 9, 12, 3), 8, (3, 3), stride=2, pad=1, dtype=F16), {}),
    "contraction/separable_simt": (separable((1, 5, 9, 12), 20, (3, 3), pad=1), {}),
    "contraction/separable_mma": (separable((1, 7, 9, 24), 24, (3, 3), pad=1, dtype=F16), {}),
    "rowwise": (softmax(6, 100), {}),
    "scan": (scan("sum", 5, 37), {}),
    "scatter": (scatter((13, 24), (31, 1), "add"), {}),
    "pool": (max_pool((1, 9, 7, 4), 3, 2, 1), {}),
    "pool/window": (max_pool((1, 9, 7, 8), 3, 2, 1, dtype=F16), {}),
    "attention/simt": (attention(9, 13, 8, 12), {}),
    "attention/mma": (attention(17, 21, 16, 16, dtype=F16), {}),
    "attention/wgmma": (attention(17, 21, 16, 16, dtype=F16), {}),
    "attention/tcgen05": (attention(17, 21, 16, 16, dtype=F16), {}),
}

MMA_KERNELS = {
    "b of another kernel": (matmul(37, 24, 136, dtype=F16), {"stages": 3}),
    "b by elements": (constant(matmul(37, 27, 136, dtype=F16)), {"stages": 3}),
    "two stages": (constant(matmul(37, 24, 136, dtype=F16)), {"stages": 2}),
    "splits": (constant(matmul(37, 24, 168, dtype=F16)), {"stages": 3, "splits": 3}),
}

# a norm whose scale and shift are fetched first of all
ROWS = {
    "constant scale and shift": (replace(layer_norm(5, 44), constants=frozenset({2, 3})), {"keep": 2}),
    "scale of another kernel": (replace(layer_norm(5, 44), constants=frozenset({3})), {"keep": 2}),
}

# flags of work-groups that look back: its operands are constants, so that nothing else keeps it from starting early
LOOKS_BACK = {
    "looks back": (
        replace(scan("sum", 5, 83), constants=frozenset({0, 1})),
        {"look_back": 1, "lanes": 8, "rows_per_group": 4, "vector": 1, "accesses": 2},
    )
}
