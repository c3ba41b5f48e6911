"""Kernels of CUDA and HIP are tested in Python and in C, where a setting asks for it: on GPUs that run on this processor."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from gpucomp import compiler, config
from gpucomp.artifact.checks import CHECKS, checks_of
from gpucomp.errors import WrongKernelError
from gpucomp.runtime import artifact
from gpucomp.runtime import cuda as cuda_programs
from gpucomp.runtime import hip as hip_programs
from gpucomp.runtime.executable import Executable
from gpucomp.targets import amdgcn
from testing.c_library import COMPILERS, Model, NativeError
from testing.cuda_on_cpu.harness import hip_compiler
from tests.c_runtime.gpus import EmulatedCuda, EmulatedHip
from tests.c_runtime.models import any_size_declared, digits
from tests.c_runtime.test_cuda import has_nvrtc
from tests.c_runtime.test_self_test import verdicts

HAS_HIP = amdgcn.compiler("hip") is not None and amdgcn.linker() is not None and hip_compiler() is not None
GPUS = [
    pytest.param("cuda:sm_80", marks=pytest.mark.skipif(not has_nvrtc(), reason="no NVRTC")),
    pytest.param("hip:gfx90a", marks=pytest.mark.skipif(not HAS_HIP, reason="clang 18 or lld is not installed")),
]
pytestmark = pytest.mark.skipif(not COMPILERS, reason="no C compiler")


class Broken:
    """A kernel whose result is one bit off in each number's exponent."""

    def __init__(self, kernel):
        self.kernel = kernel

    def run(self, groups, items, arguments, **options):
        self.kernel.run(groups, items, arguments, **options)
        arguments[-1].view(np.uint32)[...] ^= 1 << 23


@pytest.fixture
def opened(monkeypatch, tmp_path):
    """A function that lets a model run on a GPU of its target, and gives this and the path of its library."""
    monkeypatch.setenv("GPUCOMP_SELF_TEST", "1")

    def found(model):
        if (model if isinstance(model, Executable) else artifact.load(model)).plan.kind == "hip":
            gpu = EmulatedHip(model)
            monkeypatch.setattr(hip_programs, "shared", lambda: gpu.arrays)
            monkeypatch.setattr(hip_programs.hip, "runtime", lambda: gpu.library)
            return gpu, gpu.library._name
        gpu = EmulatedCuda(model)
        monkeypatch.setattr(cuda_programs, "import_cupy", lambda: gpu.cupy)
        monkeypatch.setattr(cuda_programs, "import_driver", lambda: gpu.driver.bindings)
        return gpu, gpu.driver.library._name

    with config.using(self_test=True, cache=tmp_path / "python"):
        yield found
    gc.collect()  # programs of the fake before it has no device any more


def another(exe):
    return Executable(exe.plan, exe.sources, exe.binaries, exe.weights)


@pytest.mark.parametrize("target", GPUS)
def test_right_kernels(opened, tmp_path, target):
    exe = compiler.compile(digits()[0], target=target)
    exe.save(tmp_path / "m.gpuc")
    gpu, library = opened(exe)

    another(exe).open()
    Model(tmp_path / "m.gpuc", library=library, cache=str(tmp_path / "c"))

    assert gpu.error is None
    assert len(checks_of(exe.binaries[CHECKS], exe.plan)) == len(exe.plan.kernels)
    assert verdicts(tmp_path / "c") == verdicts(tmp_path / "python") != {}
    assert set(verdicts(tmp_path / "c").values()) == {""}


@pytest.mark.parametrize("target", GPUS)
def test_a_wrong_kernel_is_refused_by_name(opened, tmp_path, target):
    exe = compiler.compile(digits()[0], target=target)
    exe.save(tmp_path / "m.gpuc")
    gpu, library = opened(exe)
    name = exe.plan.kernels[1].name
    gpu.emulated[name] = Broken(gpu.emulated[name])

    with pytest.raises(WrongKernelError, match=f"GPC5106 kernel {name}: ") as in_python:
        another(exe).open()
    with pytest.raises(NativeError, match=f"GPC5106 kernel {name}: ") as in_c:
        Model(tmp_path / "m.gpuc", library=library, cache=str(tmp_path / "c"))

    assert gpu.error is None
    assert str(in_c.value).split() == str(in_python.value).split()


@pytest.mark.parametrize("target", GPUS)
def test_kernels_for_any_size(opened, tmp_path, target):
    exe = any_size_declared(target=target)
    exe.save(tmp_path / "m.gpuc")
    gpu, library = opened(tmp_path / "m.gpuc")

    exe.program.at({"n": 2, "h": 8, "w": 33}).open()
    Model(tmp_path / "m.gpuc", library=library, cache=str(tmp_path / "c"))

    assert gpu.error is None
    assert verdicts(tmp_path / "c") == verdicts(tmp_path / "python") != {}
    assert set(verdicts(tmp_path / "c").values()) == {""}


@pytest.mark.parametrize("target", GPUS)
def test_gpus_are_not_tested_unless_that_is_asked_for(opened, target, monkeypatch):
    with config.using(self_test=None):
        assert CHECKS not in compiler.compile(digits()[0], target=target).binaries
