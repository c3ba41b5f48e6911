"""gfx950 (MI350): kernels with more local memory than 64 KiB, and its own matrix instructions, on the CPU and as clang has them.

clang knows gfx950 from 20 on.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpucomp.device.catalogue import find
from gpucomp.errors import DeviceError, KernelBuildError
from gpucomp.ir.types import BF16, F16, F32, I8, I32
from gpucomp.kernel.interpreter import expected
from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.kernels_templates.render import render
from gpucomp.targets import amdgcn, hip, opencl
from testing.cuda_on_cpu.errors import CudaOnCpuError
from testing.cuda_on_cpu.harness import CudaOnCpu, hip_compiler
from testing.kernels import attention, matmul, random_inputs
from testing.tolerance import assert_matches

GFX942, GFX950 = (hip.manifest(arch) for arch in ("gfx942", "gfx950"))
LDS = 160 << 10
PRODUCT, ATTENTION = FAMILIES["contraction/amd"], FAMILIES["attention/simt"]
LARGE = {"wave": 64, "block": 32, "waves_m": 2, "waves_n": 2, "blocks_m": 4, "blocks_n": 4}
LARGE |= {"steps": 4, "stages": 2, "splits": 1}  # 256 x 256
ROWS = {"tile_m": 64, "tile_n": 64, "reg_m": 4, "row_items": 16, "splits": 1, "vector": 1}
HEADS = attention(97, 130, 96, 96, heads=1)
TYPES = {"f16": F16, "bf16": BF16, "f32": F32, "i8": I8}
needs_harness = pytest.mark.skipif(hip_compiler() is None, reason="clang 18 or lld is not installed")


def product(dtype):
    return matmul(270, 259, 70, dtype=dtype, acc=I32 if dtype is I8 else F32)


def source_of(kernel, family, schedule, target=GFX950):
    return render(kernel, schedule, target, "k0", family)


def objections(kernel, family, schedule, target):
    return family.reasons(schedule, family.problem(kernel), target.limits)


@pytest.mark.parametrize("manifest", [hip.manifest, opencl.manifest])
def test_the_tables_say_how_much_a_work_group_has(manifest):
    sizes = {arch: manifest(arch).limits.shared_bytes for arch in ("gfx90a", "gfx942", "gfx950", "gfx1201")}

    assert sizes == {"gfx90a": 64 << 10, "gfx942": 64 << 10, "gfx950": LDS, "gfx1201": 64 << 10}
    assert manifest("gfx950").device.shared_bytes == LDS
    assert find("AMD Instinct MI355X").target == "opencl:gfx950"


@pytest.mark.parametrize(
    ("kernel", "family", "schedule", "needed"),
    [(product(F16), PRODUCT, LARGE, 147_456), (HEADS, ATTENTION, ROWS, None)],
    ids=["product", "attention"],
)
def test_spaces_have_schedules_that_only_gfx950_takes(kernel, family, schedule, needed):
    work = family.work(family.schedule(schedule), family.problem(kernel))

    assert (64 << 10) < work.shared_bytes <= LDS
    assert needed in (None, work.shared_bytes)
    assert objections(kernel, family, schedule, GFX950) == []
    assert any(f"{work.shared_bytes} B of" in why for why in objections(kernel, family, schedule, GFX942))


@needs_harness
@pytest.mark.parametrize("name", TYPES)
def test_a_product_in_more_than_64_kib_is_right(name):
    kernel = product(TYPES[name])

    assert_right(kernel, PRODUCT, LARGE)


@needs_harness
def test_an_attention_in_more_than_64_kib_is_right():
    assert_right(HEADS, ATTENTION, ROWS)


def assert_right(kernel, family, schedule):
    inputs, source = random_inputs(kernel), source_of(kernel, family, schedule)
    outputs = [np.zeros(t.shape, t.dtype.numpy) for t in kernel.params[kernel.inputs :]]
    made, geometry = CudaOnCpu(source.text, "k0", arch="gfx950"), source.geometry
    launch = geometry.groups, geometry.items, [*inputs, *outputs]

    assert geometry.dynamic_shared_bytes == 0  # it is all in the code object: a launch asks for nothing
    with pytest.raises(CudaOnCpuError, match="shared memory"):
        made.run(*launch, shared_limit=64 << 10)
    made.run(*launch, shared_limit=LDS)

    for found, right in zip(outputs, expected(kernel, inputs), strict=True):
        assert_matches(found, right, terms=max(kernel.params[0].shape))


@pytest.mark.skipif(
    amdgcn.compiler("hip") is None or amdgcn.linker() is None, reason="clang 18 or lld is not installed"
)
def test_the_compiler_of_a_smaller_set_refuses_such_a_kernel_and_an_old_one_does_not_know_gfx950():
    source = source_of(product(F16), PRODUCT, LARGE)
    of_gfx942 = source_of(product(F16), PRODUCT, LARGE, replace(GFX942, limits=GFX950.limits))

    with pytest.raises(KernelBuildError, match=r"local memory .*147456.* exceeds limit .*65536"):
        amdgcn.code_object(of_gfx942, "gfx942")
    with pytest.raises(KernelBuildError, match="this compiler has no __builtin_amdgcn_mfma_f32_32x32x16_f16"):
        amdgcn.code_object(source, "gfx942")
    newest = max(map(amdgcn._major, amdgcn.compilers("hip")))
    if newest >= 20:
        assert amdgcn.code_object(source, "gfx950").startswith(b"\x7fELF")
        return
    with pytest.raises(DeviceError, match="no installed clang knows gfx950: install a newer one"):
        amdgcn.code_object(source, "gfx950")


INSTRUCTIONS = {
    F16: ("v_mfma_f32_32x32x16_f16", "v_mfma_f32_16x16x32_f16"),
    BF16: ("v_mfma_f32_32x32x16_bf16", "v_mfma_f32_16x16x32_bf16"),
    I8: ("v_mfma_i32_32x32x32_i8", "v_mfma_i32_16x16x64_i8"),
}


def used_by(kernel, family, schedule, target=GFX950):
    try:
        return amdgcn.resources(source_of(kernel, family, schedule, target), "gfx950")
    except DeviceError as unknown:
        pytest.skip(str(unknown))


@needs_harness
@pytest.mark.parametrize("target", [GFX950, opencl.manifest("gfx950")], ids=["hip", "opencl"])
@pytest.mark.parametrize("block", [32, 16])
@pytest.mark.parametrize("dtype", INSTRUCTIONS)
def test_a_product_has_one_instruction_for_the_16_bytes_of_a_lane(dtype, block, target):
    found = used_by(product(dtype), PRODUCT, LARGE | {"block": block, "blocks_m": 2, "blocks_n": 2}, target)

    assert found.count("v_mfma") == found.count(INSTRUCTIONS[dtype][block == 16]) == 4 * 2 * 2
    assert (found.spilled, found.private_bytes) == (0, 0)


@needs_harness
@pytest.mark.parametrize(("block", "tile_n", "shallow"), [(32, 64, 0), (16, 64, 0), (16, 16, 4)])
@pytest.mark.parametrize("dtype", [F16, BF16])
def test_both_products_of_attention_have_them_where_a_stage_has_so_many_keys(dtype, block, tile_n, shallow):
    kernel = attention(512, 512, 64, 64, heads=12, dtype=dtype)
    schedule = {"wave": 64, "block": block, "waves": 4, "blocks": 1, "tile_n": tile_n, "splits": 1}
    found = used_by(kernel, FAMILIES["attention/amd"], schedule)

    assert found.count("v_mfma") - found.count(INSTRUCTIONS[dtype][block == 16]) == shallow
    assert (found.spilled, found.private_bytes) == (0, 0)
