"""Kernels with awkward sizes for every family, and samples of legal schedules."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from gpucomp.device.limits import Limits
from gpucomp.ir.types import BF16, BOOL, F16, F64, I32, I64, U8
from gpucomp.kernel import Kernel
from gpucomp.kernel.sizes import Sizes
from gpucomp.kernels_templates.engines import family_of
from gpucomp.schedule.space import Family
from testing.kernels import (
    add_relu,
    attention,
    conv,
    layer_norm,
    matmul,
    max_pool,
    padded,
    reduction,
    scan,
    scatter,
    softmax,
    transposed,
)

LOOPS = {
    "add_relu": add_relu(3, 5, 8),
    "add_relu_prime": add_relu(13, 17),
    "one_element": add_relu(1, 1),
    "f16": add_relu(5, 16, dtype=F16),
    "bf16": add_relu(5, 8, dtype=BF16),
    "f64": add_relu(5, 8, dtype=F64),
    "i64": add_relu(5, 8, dtype=I64),
    "u8": add_relu(5, 16, dtype=U8),
    "transposed": transposed(13, 8),
    "padded": padded(12, 2),
    "one_axis": add_relu(1),
    "empty": add_relu(0, 7),
}
CONTRACTION = {
    "matmul": matmul(33, 47, 29),
    "aligned": matmul(32, 64, 48),
    "batched": matmul(7, 12, 20, batch=(3, 2)),
    "a_transposed": matmul(24, 20, 17, a_transposed=True),
    "b_transposed": matmul(19, 36, 24, b_transposed=True),
    "row": matmul(1, 100, 33),
    "column": matmul(31, 1, 5),
    "one": matmul(1, 1, 1),
    "no_depth": matmul(5, 6, 0),
    "no_rows": matmul(0, 6, 5),
    "no_columns": matmul(6, 0, 5),
    "f16": matmul(17, 24, 16, dtype=F16),
    "bf16": matmul(17, 24, 16, dtype=BF16),
    "f64": matmul(17, 24, 16, dtype=F64, acc=F64),
    "i32": matmul(17, 24, 16, dtype=I32, acc=I32),
    "conv_3x3": conv((2, 9, 7, 8), 12, (3, 3), pad=1),
    "conv_stem": conv((1, 11, 13, 3), 8, (5, 3), stride=2, pad=2),
    "conv_1x1": conv((1, 5, 7, 16), 20, (1, 1)),
    "conv_dilated": conv((1, 12, 9, 4), 5, (3, 2), dilation=2, pad=1),
    "conv_nchw": conv((2, 9, 7, 5), 6, (3, 3), pad=1, nchw=True),
    "conv_f16": conv((1, 6, 6, 8), 8, (3, 3), pad=1, dtype=F16),
}
ROWWISE = {
    "softmax": softmax(6, 100),
    "softmax_rows_inside": softmax(3, 19, 8, axis=1),
    "softmax_f16": softmax(5, 33, dtype=F16),
    "softmax_one_column": softmax(7, 1),
    "softmax_one_row": softmax(1, 1000),
    "sum": reduction("sum", 17, 130),
    "sum_rows_inside": reduction("sum", 40, 13, rows_inside=True),
    "max": reduction("max", 5, 71),
    "min_int": reduction("min", 9, 14, dtype=I32),
    "prod_int": reduction("prod", 3, 6, dtype=I64),
    "any": reduction("max", 9, 14, dtype=BOOL),
    "no_columns": reduction("sum", 6, 0),
    "no_rows": reduction("sum", 0, 6),
    "layer_norm": layer_norm(7, 48),
    "layer_norm_f16": layer_norm(3, 40, dtype=F16),
    "layer_norm_rows_inside": layer_norm(24, 11, rows_inside=True),
    "all": reduction("sum", 1, 3001),
    "one_element": reduction("max", 1, 1),
    "wide_rows_inside": reduction("max", 64, 35, rows_inside=True, dtype=F16),
}
POOL = {
    "3x3": max_pool((1, 11, 9, 8), 3, 2, 1),
    "2x2": max_pool((2, 8, 6, 5), 2, 2, 0),
    "7x7": max_pool((1, 9, 8, 4), 7, 1, 3),
    "one": max_pool((1, 1, 1, 1), 1, 1, 0),
    "empty": max_pool((0, 4, 4, 4), 2, 2, 0),
}
ATTENTION = {
    "plain": attention(17, 29, 40, 36),
    "causal": attention(33, 33, 16, 16, causal=0),
    "merged": attention(19, 19, 8, 8, merged=True, residual=True),
    "shared_keys": attention(5, 33, 12, 20, group=3, mask="bool"),
    "f16": attention(9, 40, 32, 24, dtype=F16, mask="add"),
    "one_row": attention(1, 50, 200, 64),
}
SCAN = {
    "vectors": scan("sum", 3, 264, reverse=True, exclusive=True),
    "rows_inside": scan("prod", 37, 29, rows_inside=True, exclusive=True, dtype=F16),
    "one_row": scan("max", 1, 531, dtype=I32),
    "empty": scan("sum", 0, 5),
}
SCATTER = {
    "slices": scatter((7, 24), (13, 1), "add"),
    "columns": scatter((17, 5), (9, 3), axis=0, dtype=F16),
    "rows": scatter((3, 37), (2, 19), "max", axis=1, dtype=I32),
}
FAMILIES: Mapping[str, Mapping[str, Kernel]] = {
    "loops": LOOPS,
    "contraction": CONTRACTION,
    "rowwise": ROWWISE,
    "pool": POOL,
    "attention": ATTENTION,
    "scan": SCAN,
    "scatter": SCATTER,
}
CASES = {f"{family}-{name}": kernel for family, cases in FAMILIES.items() for name, kernel in cases.items()}

SMALLEST = Limits(threads=64, shared_bytes=8192, warp=8, registers=64, units=1, vector_bytes=16, subgroups=False)


def is_empty(kernel: Kernel) -> bool:
    return any(t.size == 0 for t in kernel.params[kernel.inputs :])


def default(kernel: Kernel, limits: Limits, family: Family | None = None) -> dict[str, int]:
    family = family or family_of(kernel)
    return dict(family.default(family.problem(kernel), limits).numbers)


MIN_ITEMS = 32  # PoCL unrolls the work-items of a smaller work-group


def spread(
    kernel: Kernel,
    limits: Limits,
    count: int,
    seed: int = 0,
    unrolled: int = 512,
    family: Family | None = None,
    besides: Sequence[Limits] = (),
) -> list[dict[str, int]]:
    """``count`` random schedules that are legal under ``limits`` and ``besides``; the same ones for the same ``seed``.

    ``unrolled`` limits the unrolled code of a work-item, in multiply-adds and in elements of a loaded tile, because CPU
    compilers need minutes for thousands of them.
    """
    family = family or family_of(kernel)
    problem = family.problem(kernel)
    draw = random.Random(seed)
    found: list[dict[str, int]] = []
    while len(found) < count:
        schedule = {p.name: draw.choice(p.choices) for p in family.params}
        if schedule in found or any(family.reasons(schedule, problem, allowed) for allowed in (limits, *besides)):
            continue
        threads = family.geometry(family.schedule(schedule), problem).items[0]
        tile_k = schedule.get("tile_k", 1)
        sums = tile_k * schedule.get("reg_m", 1) * schedule.get("reg_n", 1)
        loaded = tile_k * (schedule.get("tile_m", 0) + schedule.get("tile_n", 0)) / threads
        if threads >= MIN_ITEMS and sums <= unrolled and loaded <= unrolled / 4:
            found.append(schedule)
    return found


def flat(sizes: Sizes) -> dict[str, int]:
    """An engine's sizes, with those of an operand ``a`` as ``a_vector`` ..."""
    of_operands = {
        f"{name}_{k}": v for name, of in sizes.numbers.items() if isinstance(of, Sizes) for k, v in of.numbers.items()
    }
    return {name: number for name, number in sizes.numbers.items() if not isinstance(number, Sizes)} | of_operands
