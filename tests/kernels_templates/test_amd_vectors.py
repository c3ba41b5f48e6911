"""AMD's matrix engine: operands that are computed from vectors, among them those of joined parts."""

from __future__ import annotations

import re

import pytest

from gpucomp.ir.types import BF16, F16, F32
from gpucomp.targets import amdgcn, hip
from testing.cases.amd import KERNELS, of_parts, of_two
from tests.kernels_templates.test_amd import SMALL, assert_right, constant, replaced, source_of

JOINED_MISTAKES = {
    "a part begins late": ("< 40 ?", "< 48 ?"),
    "a part's row is another's": ("x2 + a0s4", "x2 + a0s2"),
    "the scale is the first lane's": ("= a0ev0.s3", "= a0ev0.s0"),
}


@pytest.mark.parametrize("mistake", JOINED_MISTAKES)
def test_a_mistake_with_joined_parts_is_found(mistake):
    with pytest.raises(AssertionError, match=r"max error|Mismatched|NaN"):
        assert_right(constant(KERNELS["joined"]), SMALL, change=replaced(*JOINED_MISTAKES[mistake]))


@pytest.mark.parametrize(("name", "accesses"), [("joined", True), ("joined_odd", False)])
def test_one_access_reads_a_chunk_of_joined_parts_that_are_whole_chunks(name, accesses):
    text = source_of(constant(KERNELS[name]), SMALL).text

    assert ("vload8(0, (a0e0 <" in text) is accesses
    assert ("vload_half(" in text) is not accesses


@pytest.mark.parametrize(("dtype", "declared"), [(F16, True), (BF16, False)])
def test_vectors_of_f16_are_declared_in_products_of_other_types(dtype, declared):
    """OpenCL C has no type half unless it is asked for, whatever is computed with it."""
    kernel = constant(of_two(33, 20, 40, dtype, F32))
    text = source_of(kernel, SMALL).text

    assert ("cl_khr_fp16 : enable" in text) is declared
    assert (re.search(r"\bhalf[248]\b", text) is not None) is declared


@pytest.mark.parametrize(
    "clang", amdgcn.compilers("hip") or [pytest.param("", marks=pytest.mark.skip("clang is not installed"))]
)
@pytest.mark.parametrize("arch", ["gfx90a", "gfx1201"])
def test_joined_parts_keep_no_scalar_in_vector_registers(arch, clang, monkeypatch):
    """Where each lane had branches of its own, clang 19 kept 76 scalars so, and read them 1584 times."""
    monkeypatch.setattr(amdgcn, "compilers", lambda language: [clang])
    target = hip.manifest(arch)
    kernel = constant(of_parts(49, 128, (544, 32, 32, 32, 32, 32), F16))
    found = amdgcn.resources(source_of(kernel, SMALL | {"wave": target.limits.warp, "steps": 4}, target), arch)

    assert (found.spilled, found.private_bytes) == (0, 0)
    assert found.count("global_load_u") + found.count("global_load_d16") <= 8  # none by elements
