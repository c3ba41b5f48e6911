"""What runs under Oclgrind, in a process of its own: the kernels of a JSON file of jobs, one after the other.

A job is a case of ``template_cases`` or of ``TINY``, a schedule, a name for the kernel, and optionally its whole text
or the title of the engine that the schedule is for.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from gpucomp.ir.types import BF16, F16, F64, I32
from gpucomp.kernel import Kernel
from gpucomp.kernel.packing import Digit, Packing
from gpucomp.kernel.passes.pack_weights import pack, packed_constant
from gpucomp.kernel.source import KernelSource
from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.kernels_templates.render import render
from gpucomp.targets import opencl
from testing import opencl_device
from testing.kernel_oracle import expected
from testing.kernels import attention, conv, depthwise, matmul, random_inputs, stem, transposed, with_row_statistics
from testing.template_cases import CASES
from testing.tolerance import assert_matches

TINY = {
    "odd": matmul(5, 7, 9),
    "aligned": matmul(8, 16, 12),
    "batched": matmul(3, 4, 5, batch=(2, 2)),
    "a_transposed": matmul(8, 5, 7, a_transposed=True),
    "b_transposed": matmul(3, 8, 12, b_transposed=True),
    "row": matmul(1, 9, 11),
    "row_along": matmul(2, 7, 12, b_transposed=True),
    "column": matmul(9, 1, 5),
    "one": matmul(1, 1, 1),
    "no_depth": matmul(2, 3, 0),
    "f16": matmul(5, 8, 8, dtype=F16),
    "bf16": matmul(5, 8, 8, dtype=BF16),
    "f64": matmul(5, 6, 7, dtype=F64, acc=F64),
    "i32": matmul(5, 6, 7, dtype=I32, acc=I32),
    "rows": with_row_statistics(matmul(5, 11, 9)),
    "conv": conv((1, 3, 5, 4), 5, (3, 3), pad=1),
    "conv_stem": conv((1, 5, 7, 3), 4, (3, 3), stride=2, pad=1),
    "conv_nchw": conv((1, 5, 3, 2), 3, (3, 3), pad=1, nchw=True),
    "depthwise": depthwise((1, 3, 5, 4), (3, 3), pad=1),
    "depthwise_stride": depthwise((2, 5, 4, 6), (3, 2), stride=(2, 1), dilation=(1, 2), pad=1),
    "transpose": transposed(9, 11),
    "attention": attention(5, 6, 4, 3, heads=1, mask="bool"),
    "attention_causal": attention(5, 5, 4, 4, heads=1, causal=0, residual=True),
}
FILTERS = {"filters": replace(conv((1, 5, 7, 4), 6, (3, 3), pad=1), constants=frozenset({1}))}
# their filters as the engine has them: taps, then columns filled up to those of a tile
STEMS = {
    "stem-planar": pack(stem((1, 5, 8, 3), 7, (3, 3), stride=2, pad=1),
                        Packing("b", (Digit("k", 1, 27), Digit("span", 1, 8)))).kernel,
    "stem-channels-last": pack(stem((2, 5, 6, 2), 7, (3, 2), pad=1, planar=False),
                               Packing("b", (Digit("k", 1, 12), Digit("span", 1, 8)))).kernel,
}  # fmt: skip
KERNELS: dict[str, Kernel] = CASES | FILTERS | STEMS | {f"tiny-{name}": kernel for name, kernel in TINY.items()}
# its simulator takes any schedule; f64 is what it says of itself. It has no fence of the device, and needs none: it runs
# one work-item at a time
TARGET = replace(opencl.manifest("generic"), features=frozenset({"fp64", "device_fence"})).with_limits(
    device_fence=True
)
FENCE = re.compile(r"atomic_work_item_fence\(.*\);")


def source_of(job: dict) -> KernelSource:
    schedule = job["schedule"]
    alone = "tile_k" in schedule and (schedule["tile_m"], schedule["tile_n"]) == (schedule["reg_m"], schedule["reg_n"])
    target = TARGET.with_limits(warp=1, vector_bytes=64) if alone else TARGET
    family = FAMILIES[job["engine"]] if "engine" in job else None
    source = render(packed(job)[0], schedule, target, job["name"], family)
    return replace(source, text=FENCE.sub("mem_fence(CLK_GLOBAL_MEM_FENCE);", job.get("text", source.text)))


def packed(job: dict) -> tuple[Kernel, list[np.ndarray]]:
    """The kernel as its engine wants it, and its inputs: constants packed, where it packs them."""
    kernel = KERNELS[job["case"]]
    inputs, family = random_inputs(kernel), FAMILIES.get(job.get("engine", ""))
    if family is None or not kernel.constants:
        return kernel, inputs
    wanted = family.packing(kernel, family.schedule(job["schedule"]), family.problem(kernel))
    if wanted is None:
        return kernel, inputs
    made = pack(kernel, wanted)
    return made.kernel, [*(inputs[k] for k in made.kept), packed_constant(made, inputs)]


def main(path: str) -> None:
    for job in json.loads(Path(path).read_text(encoding="utf-8")):
        kernel = KERNELS[job["case"]]
        ready, inputs = packed(job)
        found = opencl_device.run(ready, source_of(job), inputs, device="generic")
        if "text" not in job:
            for actual, right in zip(found, expected(kernel, random_inputs(kernel)), strict=True):
                assert_matches(actual, right, terms=200)
        print(job["name"], flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
