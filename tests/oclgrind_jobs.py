"""What runs under Oclgrind, in a process of its own: the kernels of a JSON file of jobs, one after the other.

A job is a case of ``testing.cases.on_oclgrind``, a schedule, a name for the kernel, and optionally its whole text
or the title of the engine that the schedule is for.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from gpucomp.kernel import Kernel
from gpucomp.kernel.interpreter import expected
from gpucomp.kernel.passes.pack_weights import pack, packed_constant
from gpucomp.kernel.source import KernelSource
from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.kernels_templates.render import render
from gpucomp.targets import opencl
from testing import opencl_device
from testing.cases.on_oclgrind import KERNELS
from testing.kernels import random_inputs
from testing.tolerance import assert_matches

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
