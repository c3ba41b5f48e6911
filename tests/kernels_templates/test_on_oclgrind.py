"""Every family under Oclgrind: no race, no access out of bounds, no uninitialised read, no divergent barrier."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.passes.pack_weights import pack, packed_constant
from gpucomp.kernel.source import KernelSource
from gpucomp.kernels_templates.contraction.simt.space import PLAIN
from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.kernels_templates.render import render
from gpucomp.targets import opencl
from testing.cases.on_oclgrind import KERNELS, TINY
from testing.kernels import average_pool, conv, random_inputs
from testing.template_cases import CASES, default, is_empty, spread
from tests import oclgrind
from tests.oclgrind_jobs import TARGET, source_of

ROOT = Path(__file__).parents[2]
SMALL = TARGET.with_limits(threads=64).limits
LIMIT_S = 240

pytestmark = pytest.mark.skipif(shutil.which("oclgrind") is None, reason="oclgrind is not installed")

TILE = {**PLAIN, "tile_m": 4, "tile_n": 8, "tile_k": 4, "reg_m": 1, "reg_n": 2, "stages": 1}
CONTRACTIONS = {
    "groups of 16": TILE,
    "two stages": TILE | {"stages": 2},
    "split-K": TILE | {"splits": 3},
    "split-K in two stages": TILE | {"stages": 2, "splits": 2, "reg_m": 2},
    "one work-item": TILE | {"reg_m": 4, "reg_n": 8, "lanes": 4},
}


def simple_jobs(family: str) -> list[dict]:
    """The default and a random schedule for every case of a family."""
    jobs = []
    for case in (c for c in CASES if c.startswith(family) and not is_empty(CASES[c])):
        kernel = CASES[case]
        for schedule in (default(kernel, SMALL), *spread(kernel, SMALL, 1, seed=len(case))):
            jobs.append({"case": case, "schedule": schedule, "name": f"k{len(jobs)}"})
    return jobs


def contraction_jobs(part: str) -> list[dict]:
    schedules = [CONTRACTIONS[part]] if part in CONTRACTIONS else []
    jobs = []
    names = (
        ("odd", "aligned", "batched", "i32", "rows") if "split" in part else TINY
    )  # each race that is none takes its time
    for case in (f"tiny-{name}" for name in names if isinstance(TINY[name].body, Contraction)):
        for schedule in schedules or [default(KERNELS[case], opencl.manifest("pocl").limits)]:
            if case == "tiny-rows":  # their statistics follow scalar accumulators
                schedule = schedule | {"lanes": 1}
            jobs.append({"case": case, "schedule": schedule, "name": f"k{len(jobs)}"})
    return jobs


def findings(jobs: list[dict], folder: Path) -> list[str]:
    """Oclgrind's output for the jobs, one paragraph each."""
    (folder / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
    log = folder / "oclgrind.log"
    # without optimisation: its check of uninitialised values stops at instructions that optimisation leaves
    command = [
        "oclgrind",
        "--data-races",
        "--uninitialized",
        "--max-errors",
        "100000",
        "--log",
        str(log),
        "--build-options",
        "-cl-opt-disable",
    ]
    child = [sys.executable, "-m", "tests.oclgrind_jobs", str(folder / "jobs.json")]
    done = subprocess.run(
        command + child,
        env=dict(os.environ) | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == [job["name"] for job in jobs]
    said = log.read_text(encoding="utf-8") if log.exists() else ""
    return [block for block in re.split(r"\n{2,}(?=\S)", said.strip()) if block and not is_ordered(block)]


def is_ordered(block: str) -> bool:
    """Whether a reported race is between work-groups that a counter's atomic orders, which Oclgrind does not follow.

    They share partial results in the workspace, or rows that are read back.
    """
    lines = re.findall(r"At line \d+ \(column \d+\) of \S+:\n(.*)", block)
    scratch = [line for line in lines if re.search(r"\b(partial|workspace)\[", line)]
    again = [line for line in lines if "volatile __global const" in line]
    return "data race at global memory" in block and len(lines) == 2 and (len(scratch) == 2 or len(again) == 1)


@pytest.mark.parametrize("family", ["loops", "rowwise", "pool", "scan", "scatter"])
def test_every_schedule_keeps_to_its_memory(family, tmp_path):
    assert findings(simple_jobs(family), tmp_path) == []


@pytest.mark.parametrize("part", [*CONTRACTIONS, "default of a CPU"])
def test_every_contraction_keeps_to_its_memory_and_meets_at_every_barrier(part, tmp_path):
    assert findings(contraction_jobs(part), tmp_path) == []


STEM = {"tile_y": 1, "tile_x": 8, "tile_n": 8, "reg_m": 2, "reg_n": 4}
WINDOW = {"threads": 32, "vector": 2, "tile_y": 2, "tile_x": 2, "unroll": 1}
ATTENTION = {"tile_m": 4, "tile_n": 4, "reg_m": 2, "row_items": 4, "splits": 1, "vector": 1}
WINOGRAD = {
    "outputs": 2,
    "columns": 16,
    "blocks": 8,
    "channels": 4,
    "positions": 2,
    "reg_n": 4,
    "reg_b": 4,
    "stages": 1,
    "splits": 1,
}
FOUR = WINOGRAD | {"outputs": 4, "positions": 6, "reg_b": 2, "channels": 2}
LOOK_BACK = {"look_back": 1, "vector": 1, "accesses": 2}
ENGINES = [
    ("tiny-depthwise", "depthwise", WINDOW | {"vector": 4}),
    ("tiny-depthwise", "depthwise", WINDOW | {"tile_y": 1, "unroll": 0}),
    ("tiny-depthwise_stride", "depthwise", WINDOW),
    ("tiny-depthwise_stride", "depthwise", WINDOW | {"tile_y": 4, "tile_x": 7, "vector": 1}),
    ("tiny-transpose", "loops/transpose", {"tile": 8, "threads": 32}),
    ("stem-planar", "contraction/stem_simt", STEM),
    ("stem-channels-last", "contraction/stem_simt", STEM | {"tile_y": 2, "reg_m": 1}),
    ("tiny-attention", "attention/simt", ATTENTION),
    ("tiny-attention", "attention/simt", ATTENTION | {"tile_n": 2, "reg_m": 1, "row_items": 4}),
    ("tiny-attention_causal", "attention/simt", ATTENTION | {"splits": 2, "tile_n": 2}),
    ("filters", "contraction/winograd", WINOGRAD | {"stages": 2}),
    ("filters", "contraction/winograd", WINOGRAD | {"positions": 4, "reg_b": 2}),
    ("filters", "contraction/winograd", FOUR),
    ("filters", "contraction/winograd", FOUR | {"splits": 2}),
    ("scan-one_row", "scan", LOOK_BACK | {"lanes": 32, "rows_per_group": 1, "accesses": 4}),
    ("scan-rows_inside", "scan", LOOK_BACK | {"lanes": 4, "rows_per_group": 8}),
]


def test_every_engine_of_its_own_keeps_to_its_memory(tmp_path):
    jobs = [{"case": c, "engine": f, "schedule": s, "name": f"k{i}"} for i, (c, f, s) in enumerate(ENGINES)]

    assert findings(jobs, tmp_path) == []


def test_winograd_and_sliding_pools_keep_to_their_memory(tmp_path):
    winograd, sliding = FAMILIES["contraction/winograd"], FAMILIES["pool/window"]
    schedule = {
        "outputs": 2,
        "columns": 16,
        "blocks": 8,
        "channels": 4,
        "positions": 2,
        "reg_n": 4,
        "reg_b": 4,
        "stages": 2,
        "splits": 1,
    }
    kernel = replace(conv((1, 3, 5, 8), 6, (3, 3), pad=1), constants=frozenset({1}))
    made = pack(kernel, winograd.packing(kernel, winograd.schedule(schedule), winograd.problem(kernel)))
    inputs = random_inputs(kernel)
    arrays = [*(inputs[k] for k in made.kept), packed_constant(made, inputs)]
    jobs: list[tuple[Kernel, KernelSource, list[np.ndarray]]] = []
    jobs.append((made.kernel, render(made.kernel, schedule, TARGET, "k0", winograd), arrays))
    pooled = average_pool((1, 5, 7, 6), (3, 2), 2, 1)
    for change in ({}, {"unroll": 0, "tile_y": 1}):
        source = render(pooled, WINDOW | change, TARGET, f"k{len(jobs)}", sliding)
        jobs.append((pooled, source, random_inputs(pooled)))

    assert oclgrind.findings(jobs, tmp_path) == []


def test_every_gemv_keeps_to_its_memory_and_meets_at_every_barrier(tmp_path):
    shared = {"many_items": 2, "depth_items": 4, "accesses": 1, "unroll": 2, "shuffle": 0}
    schedules = (shared, shared | {"many_items": 1, "accesses": 2}, shared | {"many_items": 4, "depth_items": 1})
    cases = ("tiny-row", "tiny-row_along", "tiny-batched", "tiny-one", "tiny-no_depth", "contraction-column")
    jobs = [
        {"case": case, "schedule": schedule, "name": f"k{number}_{position}", "engine": "contraction/gemv"}
        for number, case in enumerate(cases)
        for position, schedule in enumerate(schedules)
    ]

    assert findings(jobs, tmp_path) == []


def seeded(change, schedule=TILE):
    job = {"case": "tiny-aligned", "schedule": schedule, "name": "k0"}
    text = source_of(job).text
    changed = change(text)
    assert changed != text
    return [job | {"text": changed}]


def without_barrier(number):
    def change(text):
        parts = text.split("barrier(CLK_LOCAL_MEM_FENCE);")
        return (
            "barrier(CLK_LOCAL_MEM_FENCE);".join(parts[:number])
            + ";"
            + "barrier(CLK_LOCAL_MEM_FENCE);".join(parts[number:])
        )

    return change


@pytest.mark.parametrize("number", [1, 2])
def test_a_missing_barrier_is_a_race(number, tmp_path):
    found = findings(seeded(without_barrier(number)), tmp_path)

    assert any("data race at local memory" in f for f in found)


def test_a_barrier_that_some_work_items_skip_is_divergence(tmp_path):
    def change(text):
        return text.replace("    barrier(", "    if (id < 3) barrier(", 1)

    found = findings(seeded(change), tmp_path)

    assert any("divergence" in f.lower() for f in found)


def test_a_read_one_past_the_end_is_seen(tmp_path):
    def change(text):
        return text.replace("vload2(0, x2 + column)", "vload2(0, x2 + column + 1)")

    found = findings(seeded(change), tmp_path)

    assert any("Invalid read" in f for f in found)


def test_sums_that_do_not_start_at_zero_are_uninitialised(tmp_path):
    def change(text):
        return text.replace("acc[0][j] = 0.0f;", ";")

    found = findings(seeded(change), tmp_path)

    assert any("uninitialized" in f for f in found)
