"""Kernels are tested when a driver, a device and a model meet: those that are wrong are found, and no right one is refused."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from onnx import numpy_helper

import gpucomp
from bench import models
from gpucomp import compiler, config
from gpucomp.artifact import checks
from gpucomp.artifact.checks import CHECKS, ELEMENT, Check, Expected, Given, checks_of, generated, packed
from gpucomp.errors import ArtifactError, WrongKernelError
from gpucomp.refusal import Refusal
from gpucomp.runtime import artifact, self_test
from gpucomp.runtime.executable import Executable
from gpucomp.runtime.opencl import OpenCLProgram
from gpucomp.targets import opencl, opencl_build
from tests.c_runtime.models import FIXED, decoding, digits
from tests.onnx_builders import model, node, value

POCL = "opencl:pocl"
POOL = "max_f32(acc[i][j][lane], line"  # of the schedule that is chosen for the pools of ``digits``
LEAST = POOL.replace("max_f32", "fmin")
FIRST_POOL = "k001_pool"


@pytest.fixture(autouse=True)
def folders(tmp_path):
    with config.using(cache=tmp_path / "cache", dump=None, self_test=True):
        yield


def compiles_wrong(monkeypatch, fault):
    """The driver's compiler takes what ``fault`` makes of a text for that text."""
    plain = opencl_build.for_driver
    monkeypatch.setattr(opencl_build, "for_driver", lambda device, text: fault(plain(device, text)))


def counted(monkeypatch):
    """The launches that are tried from now on."""
    tried, plain = [], OpenCLProgram.tried

    def count(program, number, given, wanted):
        tried.append(number)
        return plain(program, number, given, wanted)

    monkeypatch.setattr(OpenCLProgram, "tried", count)
    return tried


def quietly(*args, **options):
    """As ``compiler.compile``, where a kernel that is found wrong is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        return compiler.compile(*args, **options)


def another(exe):
    """The same model, as another process opens it."""
    return Executable(exe.plan, exe.sources, exe.binaries, exe.weights)


# ---- a driver that compiles wrong ----


def test_a_kernel_that_is_wrong_gets_another_schedule(monkeypatch):
    proto, (feed, *_) = digits()
    plain = quietly(proto, target=POCL)
    wrong = plain.sources[plain.plan.kernels[1].source]
    compiles_wrong(monkeypatch, lambda text: text.replace(wrong, wrong.replace(POOL, LEAST), 1))

    with config.using(cache=None), pytest.warns(RuntimeWarning) as warned:
        found = compiler.compile(proto, target=POCL)

    (line,) = [str(w.message) for w in warned]
    assert f"{POCL} computes a kernel wrong, now compiled with other schedules: kernel {FIRST_POOL}: " in line
    assert [k.tier for k in found.kernels] == ["default", "other", "default", "default", "default"]
    np.testing.assert_allclose(found.run(feed)["y"], plain.run(feed)["y"], rtol=1e-5, atol=1e-5)


def test_a_kernel_that_is_wrong_with_every_schedule_is_refused_by_name(monkeypatch):
    idle = f"__kernel void {FIRST_POOL}(__global const float* restrict x0, __global float* restrict x1) {{}}\n"
    name = f"void {FIRST_POOL}("
    compiles_wrong(monkeypatch, lambda text: text.replace(name, "void idle(") + idle if name in text else text)

    with (
        config.using(cache=None),
        pytest.raises(
            WrongKernelError, match=f"GPC5106 kernel {FIRST_POOL}: .*; no other schedule is right: update the driver"
        ),
    ):
        compiler.compile(digits()[0], target=POCL)


def test_a_file_is_refused_where_its_kernels_are_wrong_and_the_verdict_stays(monkeypatch, tmp_path):
    proto, (feed, *_) = digits()
    quietly(proto, target=POCL).save(tmp_path / "m.gpuc")
    driver = ["broken 1"]
    version = opencl_build.compiler_version
    monkeypatch.setattr(opencl_build, "compiler_version", lambda device: f"{version(device)} {driver[0]}")
    wrong = []
    compiles_wrong(monkeypatch, lambda text: text.replace(POOL, LEAST) if wrong else text)
    tried = counted(monkeypatch)

    wrong.append(True)
    for _ in range(2):
        with pytest.raises(WrongKernelError) as caught:
            gpucomp.load(tmp_path / "m.gpuc").run(feed)
    wrong.clear()
    with pytest.raises(WrongKernelError):  # the verdict is of this driver
        gpucomp.load(tmp_path / "m.gpuc").run(feed)

    assert tried == [0, 1, 2, 3, 4]
    assert caught.value.code == "GPC5106"
    assert set(caught.value.kernels) == {FIRST_POOL, "k003_pool"}
    assert "broken 1, and 1 more kernel: update the driver" in str(caught.value)
    assert " elements are wrong, by up to " in str(caught.value)
    with config.using(self_test=False):
        gpucomp.load(tmp_path / "m.gpuc").run(feed)
    driver[0] = "mended 2"
    gpucomp.load(tmp_path / "m.gpuc").run(feed)
    assert tried == [0, 1, 2, 3, 4] * 2


def test_numbers_that_are_not_stored_are_found(monkeypatch):
    """A kernel that does nothing leaves what was in memory."""
    proto, _ = digits()
    compiles_wrong(monkeypatch, lambda text: text.replace("x3[column] = e1;", ""))

    with config.using(cache=None), pytest.warns(RuntimeWarning, match="computes a kernel wrong.*k004_contraction"):
        compiler.compile(proto, target=POCL)


# ---- verdicts ----


def test_a_verdict_is_read_and_not_made_again(monkeypatch):
    tried = counted(monkeypatch)
    exe = quietly(digits()[0], target=POCL)
    first = list(tried)

    another(exe).open()

    assert first == tried == [0, 1, 2, 3, 4]


def test_a_damaged_verdict_is_made_again(monkeypatch, tmp_path):
    exe = quietly(digits()[0], target=POCL)
    (verdict,) = [path for path in (tmp_path / "cache").rglob("*.bin") if self_test.VERDICT in path.read_bytes()]
    verdict.write_bytes(verdict.read_bytes()[:-1])
    tried = counted(monkeypatch)

    another(exe).open()

    assert len(tried) == 5


def test_a_verdict_is_of_one_precision(monkeypatch):
    """The same text is compiled with other options."""
    proto = model([node("Div", ["x", "z"], ["y"])], [value("x", [9, 70]), value("z", [9, 70])])
    tried = counted(monkeypatch)

    exact, loose = (quietly(proto, target=POCL, precision=precision) for precision in ("fp32", "fp16"))

    assert (exact.sources, exact.binaries[CHECKS]) == (loose.sources, loose.binaries[CHECKS])
    assert tried == [0, 0]


def test_without_a_cache_each_program_is_tested(monkeypatch):
    tried = counted(monkeypatch)
    with config.using(cache=None):
        another(quietly(digits()[0], target=POCL)).open()

    assert len(tried) == 10


@pytest.mark.parametrize("setting", [None, False])
def test_kernels_are_not_tested_on_pocl_unless_that_is_asked_for(monkeypatch, setting):
    tried = counted(monkeypatch)
    with config.using(self_test=setting):
        assert CHECKS not in quietly(digits()[0], target=POCL).binaries
        generic = quietly(digits()[0], target="opencl:generic")
        generic.open()

    assert tried == []
    assert (CHECKS in generic.binaries) == (setting is None)  # which may go to another device


def test_a_lost_device_is_no_verdict(monkeypatch, tmp_path):
    exe = quietly(digits()[0], target="opencl:generic")

    def lost(*_):
        raise opencl.DeviceError("lost", code="GPC5006")

    with config.using(cache=tmp_path / "other"):
        with monkeypatch.context() as patched:
            patched.setattr(OpenCLProgram, "tried", lost)
            with pytest.raises(opencl.DeviceError, match="lost"):
                another(exe).open()
        tried = counted(monkeypatch)
        another(exe).open()

    assert len(tried) == 5


# ---- right kernels ----


def alone(plan):
    """The kernels that some launch outside of loops runs."""
    looped = {k for r in plan.repeats for k in range(r.first, r.last)}
    return {one.kernel for k, one in enumerate(plan.launches) if k not in looped and one.kernel >= 0}


@pytest.mark.parametrize("name", ["int8", "lstm", "straight"])
def test_right_kernels_of_small_models(name):
    exe = quietly(FIXED[name]()[0], target=POCL)
    found = checks_of(exe.binaries[CHECKS], exe.plan)

    assert {exe.plan.launches[check.launch].kernel for check in found} == alone(exe.plan)


@pytest.mark.parametrize("name", ["mobilenet_v1", "vit_tiny"])
def test_right_kernels_of_reduced_models(name):
    exe = quietly(models.build(name, reduced=True), target=POCL)
    found = checks_of(exe.binaries[CHECKS], exe.plan)

    assert {exe.plan.launches[check.launch].kernel for check in found} == set(range(len(exe.plan.kernels)))


# ---- files ----


def test_checks_come_back_from_a_file(tmp_path):
    exe = quietly(digits()[0], target=POCL)
    exe.save(tmp_path / "m.gpuc")
    there = artifact.load(tmp_path / "m.gpuc")

    assert there.binaries[CHECKS] == exe.binaries[CHECKS]
    assert packed(checks_of(there.binaries[CHECKS], there.plan)) == exe.binaries[CHECKS]
    assert len(exe.binaries[CHECKS]) < 10_000


def test_what_is_built_anew_is_tested_too(monkeypatch, tmp_path):
    quietly(digits()[0], target=POCL).save(tmp_path / "m.gpuc")
    tried = counted(monkeypatch)

    with config.using(cache=tmp_path / "other"):
        gpucomp.load(tmp_path / "m.gpuc", trusted=False).open()

    assert len(tried) == 5


def test_files_do_not_depend_on_the_run(tmp_path):
    proto, _ = digits()
    one, other = (quietly(proto, target=POCL) for _ in range(2))

    assert one.binaries[CHECKS] == other.binaries[CHECKS]


def element(at, value=1.0, within=0.5):
    return np.array([(at, within, value)], ELEMENT)


@pytest.mark.parametrize(
    "check",
    [
        Check(99, (), (Expected(2, element(0)),)),
        Check(0, (Given(0, 0),), (Expected(2, element(0)),)),  # a weight is not overwritten
        Check(0, (Given(1, 0),), (Expected(9, element(0)),)),
        Check(0, (Given(1, 0),), (Expected(2, element(1 << 31)),)),
        Check(0, (Given(1, 0),), (Expected(2, element(0)[:0]),)),
        Check(0, (Given(1, 0),) * 9, (Expected(2, element(0)),)),  # more than it has arguments
        Check(0, (Given(1, 0),), (Expected(2, element(0)),) * 9),
    ],
)
def test_checks_of_another_plan_are_refused(check):
    exe = quietly(digits()[0], target=POCL)
    wrong = Executable(exe.plan, exe.sources, {**exe.binaries, CHECKS: packed([check])}, exe.weights)

    with pytest.raises(ArtifactError, match=r"GPC7004 checks\.bin: launch"):
        wrong.open()


@pytest.mark.parametrize("cut", [lambda d: d[:-1], lambda d: d + b"\0", lambda d: b"GPCHECK9" + d[8:], lambda d: d[:7]])
def test_checks_that_are_damaged_are_refused(cut):
    exe = quietly(digits()[0], target=POCL)

    with pytest.raises(ArtifactError, match=r"GPC7004 checks\.bin: damaged"):
        checks_of(cut(exe.binaries[CHECKS]), exe.plan)


def test_kernels_in_loops_and_of_states_are_left_out():
    exe = quietly(FIXED["lstm"]()[0], target=POCL)
    looped = {k for r in exe.plan.repeats for k in range(r.first, r.last)}

    found = checks_of(exe.binaries[CHECKS], exe.plan)

    assert looped
    assert not looped & {check.launch for check in found}
    wrong = replace(found[0], launch=min(looped))
    with pytest.raises(ArtifactError, match="GPC7004"):
        checks_of(packed([wrong]), exe.plan)


def test_programs_for_single_sizes_keep_their_checks(tmp_path):
    dims = {"n": gpucomp.Dim("n", 1, 64)}
    proto = model([node("Relu", ["x"], ["y"])], [value("x", ["n", 5])])
    exe = compiler.compile(proto, target="opencl:generic", shapes={"x": (dims["n"], 5)}, specialise_for=[{"n": 3}])
    exe.save(tmp_path / "m.gpuc")

    ((_, one),) = artifact.load(tmp_path / "m.gpuc").fixed

    assert len(checks_of(one.binaries[CHECKS], one.plan)) == 1


# ---- models for any sizes ----


def two_kernels():
    """Softmax after a product, for any number of rows."""
    proto = model(
        [node("MatMul", ["x", "w"], ["a"]), node("Softmax", ["a"], ["y"], axis=-1)],
        [value("x", ["n", 60])],
        weights={"w": np.random.default_rng(3).standard_normal((60, 50)).astype(np.float32)},
    )
    return proto, {"x": (gpucomp.Dim("n", 1, 300), 60)}


def test_kernels_for_any_size_are_tested_at_the_example_s(monkeypatch, tmp_path):
    tried = counted(monkeypatch)
    proto, shapes = two_kernels()
    exe = quietly(proto, target=POCL, shapes=shapes)
    exe.save(tmp_path / "m.gpuc")
    x = generated("f32", 7 * 60, 9).reshape(7, 60)

    with config.using(cache=tmp_path / "other"):
        found = gpucomp.load(tmp_path / "m.gpuc").run({"x": x})["y"]

    assert tried == [0, 1, 0, 1]
    right = np.exp(x @ proto_weight(proto))
    np.testing.assert_allclose(found, right / right.sum(-1, keepdims=True), rtol=1e-4, atol=1e-6)


def proto_weight(proto):
    (weight,) = proto.graph.initializer
    return numpy_helper.to_array(weight)


def test_states_get_no_memory_for_a_test(monkeypatch):
    """A decoder's keys and values may be most of a device's memory, and a context has them."""
    programs, plain = [], OpenCLProgram.tried
    monkeypatch.setattr(OpenCLProgram, "tried", lambda *given: (programs.append(given[0]), plain(*given))[1])

    decoding(POCL)

    program = programs[-1]
    states = {k for k in program.plan.inputs if program.plan.buffers[k].name in {s.input for s in program.plan.states}}
    assert len(states) == 4
    assert {program._buffers[k].size for k in states} == {1}


def test_a_wrong_kernel_for_any_size_is_refused(monkeypatch, tmp_path):
    proto, shapes = two_kernels()
    exe = quietly(proto, target=POCL, shapes=shapes)
    exe.save(tmp_path / "m.gpuc")
    compiles_wrong(monkeypatch, lambda text: text.replace("exp(", "exp2("))

    with config.using(cache=tmp_path / "other"), pytest.raises(WrongKernelError, match=r"kernel k001_\w+: "):
        gpucomp.load(tmp_path / "m.gpuc").run({"x": np.zeros((7, 60), np.float32)})


def test_there_is_no_program_for_any_size_if_a_kernel_of_it_is_wrong(monkeypatch):
    proto, shapes = two_kernels()
    compiles_wrong(monkeypatch, lambda text: text.replace("exp(", "exp2("))

    with config.using(cache=None):
        exe = compiler.compile(proto, target=POCL, shapes=shapes)

    assert isinstance(exe.program, Refusal)
    assert "elements are wrong" in exe.program.reason


# ---- inputs ----


def test_inputs_are_the_same_everywhere():
    """Native code makes them too, so no number may change."""
    assert generated("f32", 4, 3).tolist() == [1.7890625, -1.1015625, -1.6484375, -1.8671875]
    assert generated("i8", 8, 3).tolist() == [114, -71, -106, -120, -18, 41, -55, -82]
    assert generated("u8", 8, 3).tolist() == [242, 57, 22, 8, 110, 169, 73, 46]
    assert generated("bool", 8, 3).tolist() == [False, True, False, False, False, True, True, False]
    assert generated("i32", 8, 3, 5).tolist() == [2, 0, 2, 3, 4, 1, 0, 3]
    for dtype in ("f64", "f16", "bf16"):
        np.testing.assert_array_equal(generated(dtype, 999, 7).astype(np.float32), generated("f32", 999, 7))


def test_inputs_do_not_depend_on_the_parts_they_are_made_in(monkeypatch):
    whole = generated("f32", 1000, 5)
    monkeypatch.setattr(checks, "PART", 7)

    np.testing.assert_array_equal(generated("f32", 1000, 5), whole)
