"""Kernels of tests/kernels_templates/test_attention_tcgen05.py, each with what is special about it."""

from gpucomp.ir.types import BF16, F16
from testing.kernels import attention, into_part


def tile(consumers, tile_n, stages=2, polynomials=0):
    return {"consumers": consumers, "tile_n": tile_n, "stages": stages, "polynomials": polynomials}


# what the engine can do: derived sizes that prove it, kernel, schedule
CASES = {
    "f16": ({"depth_panels": 1, "tensor_columns": 128}, attention(70, 100, 64, 64, heads=1, dtype=F16), tile(1, 32)),
    "two warpgroups": (
        {"tiles_m": 1, "tensor_columns": 256},
        attention(200, 230, 64, 64, heads=1, dtype=F16),
        tile(2, 64, 2, 2),
    ),
    "bf16, added mask": (
        {"values_pad": 32, "out_vector": 8},
        attention(17, 64, 64, 32, dtype=BF16, mask="add", residual=True),
        tile(1, 32, 3, 1),
    ),
    "all of tensor memory": (
        {"depth_panels": 2, "tensor_columns": 512},
        attention(130, 150, 128, 128, heads=1, dtype=BF16),
        tile(2, 128),
    ),
    "causal, registers change hands": (
        {"trades": 1, "causal": 0},
        attention(260, 260, 32, 32, heads=1, dtype=F16, causal=0),
        tile(2, 128, 2, 1),
    ),
    "an added mask, registers change hands": (
        {"trades": 1},
        attention(140, 200, 64, 64, heads=1, dtype=BF16, mask="add", residual=True),
        tile(2, 96),
    ),
    "heads that are no whole panels": (
        {"depth_steps": 5, "value_panels": 2, "values_pad": 96, "sum_columns": 128},
        attention(9, 70, 80, 72, dtype=F16),
        tile(1, 32),
    ),
    "heads of 8 and 256": (
        {"depth_steps": 1, "value_panels": 4},
        attention(9, 40, 8, 256, heads=1, dtype=F16),
        tile(1, 32, 2),
    ),
    "48 values": ({"values_pad": 48, "chunk": 16}, attention(5, 40, 16, 40, dtype=BF16), tile(2, 96)),
    "a boolean mask": ({"causal": -1}, attention(5, 129, 32, 32, dtype=F16, mask="bool"), tile(1, 64)),
    "causal": ({"causal": 0, "tiles_m": 2}, attention(150, 150, 16, 16, dtype=F16, causal=0), tile(1, 32, 3)),
    "causal, two warpgroups": ({"causal": 3}, attention(150, 170, 16, 16, heads=1, dtype=F16, causal=3), tile(2, 32)),
    "keys that heads share": ({"m": 201}, attention(67, 33, 32, 32, group=3, dtype=F16), tile(2, 32)),
    "one merged operand": (
        {"tiles_m": 2},
        attention(129, 129, 16, 16, merged=True, residual=True, dtype=F16),
        tile(1, 32, 4),
    ),
    "one row, one column": ({"tiles": 2}, attention(1, 1, 16, 16, dtype=BF16), tile(1, 32)),
    "into a part": ({"out_vector": 1}, into_part(attention(9, 17, 16, 8, dtype=F16), 3, 1, 2), tile(1, 32)),
}

RACES = {
    "one warpgroup": (attention(70, 100, 16, 16, heads=1, dtype=F16), tile(1, 32)),
    "two warpgroups": (attention(130, 130, 16, 16, heads=1, dtype=F16), tile(2, 32)),
}
