"""Kernels of tests/kernels_templates/test_attention_mma.py, each with what is special about it."""

from dataclasses import replace

from gpucomp.ir.types import BF16, F16
from testing.kernels import attention, into_part


def tile(warps, tile_n, splits, warp_m=16):
    return {"warps": warps, "warp_m": warp_m, "tile_n": tile_n, "splits": splits}


def with_math(kernel, math="tf32"):
    return replace(kernel, body=replace(kernel.body, math=math))


# what the engine can do: derived sizes that prove it, kernel, schedule
CASES = {
    "f16": ({"k_wide": 8, "keep_q": 1}, attention(17, 40, 64, 64, dtype=F16), tile(2, 16, 1)),
    "bf16": ({"v_wide": 8}, attention(17, 64, 64, 32, dtype=BF16, mask="add", residual=True), tile(1, 32, 1)),
    "heads that are no whole steps": (
        {"depth_pad": 48, "values_pad": 32},
        attention(9, 33, 40, 24, dtype=F16),
        tile(1, 32, 1),
    ),
    "copies of 4 bytes": ({"q_wide": 2, "v_wide": 4}, attention(7, 17, 6, 12, dtype=F16), tile(1, 16, 1)),
    "a boolean mask": ({"causal": -1}, attention(5, 129, 32, 32, dtype=F16, mask="bool"), tile(1, 64, 1)),
    "causal": ({"causal": 0}, attention(64, 64, 16, 16, dtype=F16, causal=0), tile(1, 16, 1)),
    "causal, split": ({"causal": 0}, attention(65, 65, 16, 16, dtype=F16, causal=0), tile(2, 16, 3)),
    "one row, split": ({"tiles_per_split": 2}, attention(1, 197, 64, 64, dtype=F16), tile(1, 32, 4)),
    "more splits than stages": ({"tiles_per_split": 1}, attention(3, 33, 16, 16, dtype=BF16), tile(1, 32, 3)),
    "keys that heads share": ({"m": 51}, attention(17, 33, 32, 32, group=3, dtype=F16), tile(2, 32, 1)),
    "one merged operand": (
        {"tiles_m": 3},
        attention(65, 65, 16, 16, merged=True, residual=True, dtype=F16),
        tile(2, 32, 1),
    ),
    "vit": ({"tiles_m": 4}, attention(197, 197, 64, 64, heads=1, dtype=F16), tile(4, 64, 1)),
    "head of 200": ({"keep_q": 0}, attention(9, 33, 200, 200, dtype=F16), tile(1, 16, 1)),
    "tf32": (
        {"k_wide": 4, "keep_q": 1, "products": 1},
        with_math(attention(17, 40, 64, 64, mask="add")),
        tile(2, 16, 1),
    ),
    "tf32, odd heads": (
        {"q_wide": 1, "depth_pad": 40, "values_pad": 32},
        with_math(attention(9, 33, 37, 19)),
        tile(1, 32, 1),
    ),
    "tf32, causal, split": ({"causal": 0}, with_math(attention(65, 65, 32, 32, causal=0)), tile(2, 16, 3)),
    "tf32, head of 200": ({"keep_q": 0}, with_math(attention(9, 33, 200, 200)), tile(1, 16, 1)),
    "tf32, merged": ({"tiles_m": 3}, with_math(attention(65, 65, 16, 16, merged=True, residual=True)), tile(2, 32, 1)),
    "3xtf32": ({"products": 3, "keep_q": 0}, with_math(attention(33, 81, 64, 64, heads=1), "3xtf32"), tile(2, 32, 1)),
    "3xtf32, a boolean mask": (
        {"q_wide": 2, "keep_q": 0},
        with_math(attention(5, 129, 82, 46, mask="bool"), "3xtf32"),
        tile(1, 32, 1),
    ),
    "32 rows": (
        {"tile_m": 64, "keep_q": 1},
        attention(75, 70, 64, 64, heads=1, mask="add", residual=True, dtype=F16),
        tile(2, 32, 1, 32),
    ),
    "32 rows, causal, split": ({"causal": 0}, attention(65, 65, 16, 32, dtype=BF16, causal=0), tile(2, 16, 3, 32)),
    "32 rows of wide heads": ({"keep_q": 0}, attention(33, 40, 128, 72, heads=1, dtype=F16), tile(1, 32, 1, 32)),
    "into a part": ({"out_vector": 1}, into_part(attention(9, 17, 16, 8, dtype=F16), 3, 1, 2), tile(1, 16, 1)),
}

RACES = {
    "one work-group": (attention(33, 40, 16, 16, heads=1, dtype=F16), tile(4, 16, 1), 2),
    "splits": (attention(33, 40, 16, 16, heads=1, dtype=F16), tile(4, 16, 2), 4),
    "32 rows": (attention(65, 40, 16, 16, heads=1, dtype=F16), tile(2, 16, 2, 32), 4),
}
