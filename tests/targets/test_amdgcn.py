"""Every family's kernels through an AMD compiler: they build, keep to registers, and take the local memory they say."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gpucomp.codegen.c.printer import LIBRARY
from gpucomp.errors import DeviceError, KernelBuildError
from gpucomp.expr.core import call, load
from gpucomp.expr.functions import FUNCTIONS
from gpucomp.ir.types import BF16, F16, F32, F64, TensorType
from gpucomp.kernels_templates.engines import engines_of
from gpucomp.kernels_templates.render import render
from gpucomp.schedule.choose import choose
from gpucomp.targets import amdgcn, opencl
from testing.kernels import add_relu, axes_of, conv, elementwise, matmul, max_pool, softmax
from testing.template_cases import CASES

pytestmark = pytest.mark.skipif(amdgcn.compiler() is None, reason="clang is not installed")
KERNELS = {
    "loops": add_relu(64, 64),
    "loops_f16": add_relu(64, 64, dtype=F16),
    "rowwise": softmax(64, 1000),
    "pool": max_pool((1, 28, 28, 64), 3, 2, 1),
    "row": matmul(1, 1000, 512),
    "product": matmul(196, 256, 256),
    "product_bf16": matmul(196, 256, 256, dtype=BF16),
    "stem": conv((1, 56, 56, 3), 32, (3, 3), stride=2, pad=1),
}


def source_for(kernel, arch):
    target = opencl.manifest(arch)
    choice = choose(kernel, engines_of(kernel, target.features), target.limits)
    return render(kernel, choice.schedule, target, "k0", choice.family)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("arch", ["gfx906", "gfx90a", "gfx1030"])
def test_defaults_build_without_a_spill(name, arch):
    found = amdgcn.resources(source_for(KERNELS[name], arch), arch)

    assert (found.spilled, found.private_bytes) == (0, 0)
    assert 0 < found.vector <= 256
    assert found.occupancy >= 1
    assert found.local_bytes <= opencl.manifest(arch).limits.shared_bytes
    assert found.count("s_endpgm") >= 1


def test_an_array_that_no_register_holds_shows():
    text = """__kernel void k0(__global float* x0) {
  float kept[64];
  for (int i = 0; i < 64; ++i) kept[i] = x0[i];
  x0[0] = kept[(int)x0[64]];
}
"""
    source = source_for(KERNELS["loops"], "gfx90a")

    found = amdgcn.resources(SimpleNamespace(name="k0", text=text, language="opencl", digest="0"), "gfx90a")

    assert found.private_bytes >= 256
    assert amdgcn.resources(source, "gfx90a").private_bytes == 0


@pytest.mark.parametrize("name", CASES)
def test_no_listing_of_any_engine_has_a_call(name):
    """Registers of a kernel that calls a function are those of any function: AMD's convention gives it half of them."""
    target, kernel = opencl.manifest("gfx1100"), CASES[name]
    for family in engines_of(kernel, target.features):
        problem = family.problem(kernel)
        schedule = dict(family.default(problem, target.limits).numbers)
        if not family.reasons(schedule, problem, target.limits):
            listing = amdgcn.assemble(render(kernel, schedule, target, "k0", family), "gfx1100")

            assert "s_swappc" not in listing


@pytest.mark.parametrize("dtype", [F32, F64], ids=lambda dtype: dtype.name)
def test_every_function_of_the_library_that_kernels_call_is_defined(dtype):
    shape, axes = (8,), axes_of((8,))
    values = [
        call(name, *(load(n, tuple(axes), dtype) for n in range(FUNCTIONS[name].arity))) for name in sorted(LIBRARY)
    ]
    total = values[0]
    for value in values[1:]:
        total = total + value
    kernel = elementwise([total], (TensorType(dtype, shape),) * 2, shape, axes)

    assert amdgcn.resources(source_for(kernel, "gfx90a"), "gfx90a").vector > 0


def test_a_call_that_is_left_is_refused_by_the_name_of_what_is_called():
    text = "__kernel void k0(__global float* x0) { x0[0] = lgamma(x0[1]); }"

    with pytest.raises(KernelBuildError, match=r"lgamma.* is called, which amdgcn\.PRELUDE does not define"):
        amdgcn.assemble(SimpleNamespace(name="k0", text=text, language="opencl", digest="0"), "gfx90a")


def test_what_the_compiler_refuses_is_an_error_with_its_words():
    source = SimpleNamespace(name="k0", text="__kernel void k0() { undeclared(1); }", language="opencl", digest="0")

    with pytest.raises(KernelBuildError, match="undeclared"):
        amdgcn.resources(source, "gfx90a")


def test_a_compiler_that_takes_too_long_is_an_error_of_the_kernel(monkeypatch):
    monkeypatch.setattr(amdgcn, "LIMIT_S", 1e-4)
    source = SimpleNamespace(name="k7", text="kernel void k7(void) {}", language="opencl", digest="0" * 12)

    with pytest.raises(KernelBuildError, match=r"kernel k7: \S*clang\S* took more than 0.0001 s"):
        amdgcn.assemble(source, "gfx90a")


def test_without_a_compiler_it_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(amdgcn.shutil, "which", lambda name: None)

    with pytest.raises(DeviceError, match="clang is not installed"):
        amdgcn.resources(source_for(KERNELS["loops"], "gfx90a"), "gfx90a")
