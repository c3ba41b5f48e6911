"""Kernels of tests/kernels_templates/test_attention_amd.py, each with what is special about it."""

from gpucomp.ir.types import BF16, F16
from testing.cases import attention_mma
from testing.kernels import attention


def of_mma(name):
    """A kernel of engine ``mma``'s cases."""
    return attention_mma.CASES[name][1]


def tile(waves, tile_n, splits, *, blocks=1, block=32):
    """A schedule; ``block`` is that of waves of 64, as those of 32 have one."""
    return {"block": block, "waves": waves, "blocks": blocks, "tile_n": tile_n, "splits": splits}


# what the engine can do: derived sizes that prove it, kernel, schedule
CASES = {
    "f16": ({"k_wide": 8}, of_mma("f16"), tile(2, 32, 1)),
    "small instructions": ({"v_wide": 8}, attention(37, 40, 64, 64, dtype=F16), tile(2, 16, 1, block=16)),
    "bf16": ({"bf16": 1}, of_mma("bf16"), tile(1, 32, 1)),
    "bf16, two blocks": ({"bf16": 1}, attention(70, 70, 32, 48, dtype=BF16), tile(2, 32, 1, blocks=2, block=16)),
    "heads that are no whole steps": (
        {"depth_pad": 48, "values_pad": 32},
        of_mma("heads that are no whole steps"),
        tile(1, 32, 1),
    ),
    "copies of 4 bytes": ({"q_wide": 2, "v_wide": 4}, of_mma("copies of 4 bytes"), tile(1, 32, 1)),
    "a boolean mask": ({"causal": -1}, of_mma("a boolean mask"), tile(1, 64, 1)),
    "causal": ({"causal": 0}, of_mma("causal"), tile(1, 32, 1)),
    "causal, split": ({"causal": 0}, of_mma("causal, split"), tile(2, 32, 3)),
    "one row, split": ({"tiles_per_split": 2}, of_mma("one row, split"), tile(1, 32, 4)),
    "more splits than stages": ({"tiles_per_split": 1}, of_mma("more splits than stages"), tile(1, 32, 3)),
    "keys that heads share": ({"m": 51}, of_mma("keys that heads share"), tile(2, 32, 1)),
    "one merged operand": (
        {"batch": 2},
        of_mma("one merged operand"),
        tile(2, 32, 1),
    ),
    "vit": ({"batch": 1}, of_mma("vit"), tile(4, 64, 1)),
    "two blocks": ({"batch": 1}, attention(197, 197, 32, 32, heads=1, dtype=F16), tile(2, 32, 1, blocks=2)),
    "into a part": ({"out_wide": 1}, of_mma("into a part"), tile(1, 32, 1)),
}
# WMMA takes no f32, and RDNA's registers hold no such head
CASES_MFMA = {
    "head of 200": ({"values_pad": 208}, of_mma("head of 200"), tile(4, 32, 1, block=16)),
    "f32": ({"k_wide": 4}, attention(17, 40, 64, 64, mask="add"), tile(2, 32, 1)),
    "f32, small instructions": ({"k_wide": 4}, attention(37, 40, 32, 48), tile(2, 16, 1, block=16)),
    "f32, odd heads": ({"q_wide": 1, "values_pad": 32}, attention(9, 33, 37, 19), tile(1, 32, 1)),
    "f32, causal, split": ({"causal": 0}, attention(65, 65, 32, 32, causal=0), tile(2, 32, 3)),
    "f32, merged": ({"batch": 2}, attention(65, 65, 16, 16, merged=True, residual=True), tile(2, 32, 1)),
}


# kernel, schedule, barriers
RACES = {
    "one work-group": (attention(33, 70, 16, 16, heads=1, dtype=F16), tile(2, 32, 1), 2),
    "splits": (attention(33, 70, 16, 16, heads=1, dtype=F16), tile(2, 32, 2), 4),
}


def on(schedule, features):
    """``schedule`` as a device with ``features`` can have it."""
    return {**schedule, "wave": 64} if "mfma" in features else {**schedule, "wave": 32, "block": 16}


def cases_of(features):
    """Those of a device with ``features``, with its schedules."""
    found = CASES | (CASES_MFMA if "mfma" in features else {})
    return {name: (proof, kernel, on(schedule, features)) for name, (proof, kernel, schedule) in found.items()}
