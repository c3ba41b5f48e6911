"""Kernels of tests/kernels_templates/test_attention.py, each with what is special about it."""

from gpucomp.ir.types import BF16, F16
from testing.kernels import attention

NAMES = ("tile_m", "tile_n", "reg_m", "row_items", "splits", "vector")


def tile(*numbers):
    return dict(zip(NAMES, (*numbers, 1), strict=True))


SMALL = tile(16, 16, 2, 8, 1)

# what the engine can do: derived sizes that prove it, kernel, schedule
CASES = {
    "no mask": ({"q_inside": 1, "k_wide": 4}, attention(17, 17, 32, 32), SMALL),
    "one row, one split": ({"tiles_m": 1}, attention(1, 129, 64, 64), tile(1, 32, 1, 32, 1)),
    "one row, split": ({"tiles_per_split": 2}, attention(1, 129, 64, 64), tile(4, 16, 1, 16, 6)),
    "more splits than stages": ({"tiles_per_split": 1}, attention(5, 17, 8, 8), tile(8, 8, 2, 4, 4)),
    "an added mask": ({"causal": -1}, attention(17, 64, 40, 40, mask="add"), SMALL),
    "a boolean mask": ({"causal": -1}, attention(9, 129, 16, 16, mask="bool"), tile(8, 32, 1, 16, 1)),
    "causal": ({"causal": 0}, attention(64, 64, 16, 16, causal=0), SMALL),
    "causal beside earlier keys": ({"causal": 47}, attention(17, 64, 16, 16, causal=47), tile(8, 16, 2, 4, 1)),
    "causal, split": ({"causal": 0, "tiles_per_split": 2}, attention(64, 64, 16, 16, causal=0), tile(16, 8, 4, 4, 4)),
    "causal and masked": ({"causal": 1}, attention(19, 21, 8, 8, causal=1, mask="add"), tile(8, 8, 1, 8, 1)),
    "keys that heads share": ({"m": 51}, attention(17, 33, 32, 32, group=3), SMALL),
    "shared, causal": ({"causal": -1}, attention(9, 9, 8, 8, group=2, causal=0), SMALL),
    "head of 80": ({"values_pad": 80, "run_v": 2}, attention(17, 17, 80, 80), SMALL),
    "head of 128": ({"reg_v": 4, "run_v": 4}, attention(17, 64, 128, 128), tile(4, 16, 1, 32, 1)),
    "head of 200": ({"values_pad": 224}, attention(5, 17, 200, 200), tile(2, 16, 1, 32, 1)),
    "head of 256": ({"idle": 1}, attention(3, 9, 256, 256), tile(2, 2, 1, 32, 1)),
    "odd heads": ({"depth_pad": 8, "q_wide": 1}, attention(7, 11, 5, 3), tile(8, 8, 2, 4, 1)),
    "one value": ({"values": 1}, attention(5, 9, 7, 1), tile(8, 8, 2, 4, 1)),
    "keys turned": ({"k_inside": 0, "k_wide": 4}, attention(9, 36, 24, 16, transposed=True), SMALL),
    "keys turned, narrow": ({"k_inside": 0, "k_wide": 1}, attention(9, 37, 24, 16, transposed=True), SMALL),
    "one merged operand": ({"out_wide": 4}, attention(65, 65, 16, 16, merged=True, residual=True), SMALL),
    "vit": ({"tiles_m": 7}, attention(197, 197, 64, 64, heads=1, merged=True), tile(32, 32, 4, 16, 1)),
    "f16": ({"k_wide": 8}, attention(17, 40, 64, 64, dtype=F16, residual=True), SMALL),
    "bf16": ({"v_wide": 8}, attention(17, 40, 40, 64, dtype=BF16, mask="add"), tile(16, 32, 4, 8, 2)),
}

RACES = {
    "one work-group": (attention(9, 21, 8, 8), tile(8, 8, 2, 8, 1), 5),
    "splits": (attention(5, 40, 8, 8, causal=35), tile(8, 8, 1, 8, 3), 7),
}
