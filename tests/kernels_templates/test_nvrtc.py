"""CUDA sources of every family compile for every architecture, without spills and within the formulas' registers."""

from __future__ import annotations

import pytest

from gpucomp.kernels_templates.contraction.simt.space import PLAIN, registers_taken, shared_bytes
from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.kernels_templates.render import render
from gpucomp.targets import cuda
from testing.cases.nvrtc import REAL
from testing.template_cases import CASES, default, spread


def compiled(kernel, schedule, target):
    source = render(kernel, schedule, target, "k0")
    _, log = cuda.compile_source(source, target)
    return cuda.resources(log)["k0"]


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("arch", cuda.ARCHITECTURES)
def test_defaults_compile_and_spill_nothing(name, arch):
    target = cuda.manifest(arch)

    used = compiled(REAL[name], default(REAL[name], target.limits), target)

    assert used.spill_stores == used.spill_loads == 0
    assert used.stack_bytes == 0
    assert used.registers <= 255


@pytest.mark.parametrize("case", CASES)
def test_awkward_sizes_compile(case):
    target = cuda.manifest("sm_80")

    for schedule in (default(CASES[case], target.limits), *spread(CASES[case], target.limits, 1, seed=3)):
        assert compiled(CASES[case], schedule, target).registers > 0


@pytest.mark.parametrize("tile", [(128, 128, 8, 8, 8), (64, 64, 16, 4, 4), (32, 64, 16, 4, 4), (64, 32, 32, 8, 2)])
@pytest.mark.parametrize("stages", [1, 2])
def test_shared_memory_and_registers_agree_with_the_formulas(tile, stages):
    names = ("tile_m", "tile_n", "tile_k", "reg_m", "reg_n")
    schedule = dict(zip(names, tile, strict=True)) | PLAIN | {"stages": stages}
    kernel = REAL["large"]
    simt = FAMILIES["contraction/simt"]
    s, p = simt.schedule(schedule), simt.problem(kernel)

    used = compiled(kernel, schedule, cuda.manifest("sm_80"))

    assert used.shared_bytes == shared_bytes(s, p)
    assert used.registers <= registers_taken(s, p)
    assert used.registers >= s.reg_m * s.reg_n
