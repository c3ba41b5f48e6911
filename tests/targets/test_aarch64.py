"""Code for 64-bit Arm: what it is made of, and what it computes, run by an emulator."""

from __future__ import annotations

import mmap
import platform
import re

import numpy as np
import pytest

import gpucomp
from bench import models
from gpucomp.artifact.elf import Image
from gpucomp.cli.compare import onnxruntime_session
from gpucomp.codegen.llvm import emit
from gpucomp.codegen.llvm.engines import engines_of
from gpucomp.device import processor
from gpucomp.device.isa import AARCH64
from gpucomp.errors import ArtifactError, DeviceError
from gpucomp.kernel.interpreter import expected
from gpucomp.targets import cpu
from testing.arm64 import PAGE, Processor, emulated
from testing.kernels import add_relu, matmul
from testing.template_cases import CASES
from testing.tolerance import assert_matches
from tests.codegen.llvm.test_families import random_inputs
from tests.native import Library, default_schedule

ARM = cpu.named("cpu:neoverse-n1")
elsewhere = pytest.mark.skipif(platform.machine() == "aarch64", reason="this is such a processor")


def assembly(kernel, name="k"):
    return cpu.assembly([emit(kernel, default_schedule(kernel, ARM), ARM, name)], ARM)


def test_multiply_adds_are_fused_vector_instructions():
    text = assembly(matmul(64, 48, 96))

    fused = len(re.findall(r"\tfmla\tv\d+\.4s", text))
    assert fused >= 4 * 12
    assert fused > 2 * len(re.findall(r"\t(?:ldr|ldp)\tq\d+", text))
    assert not re.findall(r"\tfmul\tv", text)
    assert not re.findall(r"\tst[rp]\tq\d+, .*\[sp", text)


@pytest.mark.parametrize("name", AARCH64.processors)
def test_every_processor_that_may_be_named_is_known_to_llvm(name, capfd):
    target = cpu.named(f"cpu:{name}")
    kernel = add_relu(3, 5)

    assert cpu.build([emit(kernel, default_schedule(kernel, target), target, "k")], target)
    assert "not a recognized processor" not in capfd.readouterr().err


def test_the_runner_reads_a_counter_that_programs_may_read():
    text = cpu.assembly([], ARM, runner=True)

    assert "CNTVCT_EL0" in text
    assert "PMCCNTR" not in text
    assert "\tisb" in text


def test_no_engine_of_other_instructions_takes_a_kernel():
    for kernel in CASES.values():
        names = {family.name for family in engines_of(kernel, ARM.features)}
        assert not names & {"contraction/amx", "contraction/vnni"}


@pytest.fixture(scope="module")
def library():
    return Library(CASES, target=ARM)


@pytest.mark.parametrize("name", CASES)
def test_kernels_of_every_family(library, name):
    inputs = random_inputs(CASES[name])

    for actual, want in zip(library.run(name, inputs), expected(CASES[name], inputs), strict=True):
        assert_matches(actual, want, terms=99)


@pytest.fixture
def python_on_arm():
    with emulated():
        yield


@elsewhere
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "vit_tiny"])
def test_whole_models(name, python_on_arm):
    model = models.build(name, reduced=True)
    inputs = models.inputs(model)
    session = onnxruntime_session(model.SerializeToString())

    found = gpucomp.compile(model, target="cpu:neoverse-n1").run(inputs)

    for actual, wanted in zip(found.values(), session.run(None, inputs), strict=True):
        assert np.linalg.norm(actual - wanted) <= 1e-5 * np.linalg.norm(wanted)


@elsewhere
def test_a_model_for_it_is_refused_elsewhere(tmp_path, monkeypatch):
    path = tmp_path / "model.gpuc"
    model = models.build("vit_tiny", reduced=True)
    gpucomp.compile(model, target="cpu:cortex-a72").save(path)
    x = models.inputs(model)

    with pytest.raises(DeviceError, match=r"compiled for cortex-a72, .* has no neon: compile it here"):
        gpucomp.load(path).run(x)
    monkeypatch.setattr(processor, "flags", frozenset)  # a system that names no features
    with pytest.raises(DeviceError, match=r"compiled for cortex-a72 \(aarch64\), this is "):
        gpucomp.load(path).run(x)


FAR = """
@table = constant [4 x i64] [i64 10, i64 20, i64 30, i64 4700000000]
define void @pick(ptr %to, i64 %i) {
  %at = getelementptr i64, ptr @table, i64 %i
  %v = load i64, ptr %at
  store i64 %v, ptr %to
  ret void
}
define void @both(ptr %to, i64 %i) {
  call void @pick(ptr %to, i64 %i)
  %next = getelementptr i64, ptr %to, i64 1
  call void @pick(ptr %next, i64 3)
  ret void
}
"""


def test_loaded_code_calls_and_reads_constants():
    image = Image(cpu._pack([cpu.compile_text(FAR, ARM)]))
    room = np.zeros(3, np.int64)

    Processor().call(image.address("both"), room.ctypes.data, 1)

    assert image.machine == "aarch64"
    assert room.tolist() == [20, 4_700_000_000, 0]


def test_the_emulator_sees_what_leaves_memory():
    image = Image(cpu._pack([cpu.compile_text(FAR, ARM)]))

    with pytest.raises(AssertionError, match=r"outside memory: \['0x8'\]"):
        Processor().call(image.address("pick"), 8, 1)


ACROSS = """
define void @copy(ptr %first, ptr %from, ptr %to) {
  %touched = load volatile i64, ptr %first
  %read = load <4 x float>, ptr %from, align 4
  store <4 x float> %read, ptr %to, align 4
  ret void
}
"""


@pytest.mark.parametrize("first", [0, PAGE])
def test_the_emulator_reads_across_two_pages_of_which_it_knows_one(first):
    image = Image(cpu._pack([cpu.compile_text(ACROSS, ARM)]))
    memory = mmap.mmap(-1, 2 * PAGE)
    room = np.frombuffer(memory, np.float32)
    room[PAGE // 4 - 1 : PAGE // 4 + 3] = 3, 1, 4, 1
    start, out = room.ctypes.data, np.zeros(4, np.float32)

    Processor().call(image.address("copy"), start + first, start + PAGE - 4, out.ctypes.data)

    assert out.tolist() == [3, 1, 4, 1]


def test_objects_for_two_machines_do_not_mix():
    mixed = [cpu.compile_text(FAR, cpu.named("cpu:x86-64-v3")), cpu.compile_text(FAR, ARM)]

    with pytest.raises(ArtifactError, match="objects for different machines"):
        Image(cpu._pack(mixed))
