"""The C runtime tests kernels as Python does: with the same inputs, the same verdicts, and the same refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto

import gpucomp
from gpucomp import compiler, config
from gpucomp.artifact import checks
from gpucomp.artifact.checks import CHECKS, checks_of, packed
from gpucomp.runtime import artifact, self_test
from testing.c_library import COMPILERS, Model, NativeError
from tests.c_runtime.models import any_size_declared, decoding, digits
from tests.c_runtime.test_opencl import POCL, has_pocl
from tests.onnx_builders import model, node, value

pytestmark = [
    pytest.mark.skipif(not COMPILERS, reason="no C compiler"),
    pytest.mark.skipif(not has_pocl(), reason="no PoCL"),
]
INTEGERS = ("INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64")
FLOATS = ("FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16")


@pytest.fixture(autouse=True)
def settings(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUCOMP_SELF_TEST", "1")
    with config.using(cache=tmp_path / "python", self_test=True):
        yield


def saved(proto, path, change=lambda found: found, target=POCL):
    """The model in a file, whose checks ``change`` has changed."""
    exe = compiler.compile(proto, target=target)
    contents = exe.contents()
    found = change(checks_of(exe.binaries[CHECKS], exe.plan))
    artifact.save(path, replace(contents, binaries={**exe.binaries, CHECKS: packed(found)}))
    return exe


def verdicts(folder):
    """The verdicts that are kept in a folder, by the names of their files."""
    files = [path for path in folder.rglob("*.bin") if self_test.VERDICT in path.read_bytes()]
    return {path.name: path.read_bytes().partition(self_test.VERDICT)[2].decode() for path in files}


def with_wrong(found, number=1):
    """The checks, of which one expects another number."""
    first = found[number].outputs[0]
    elements = first.elements.copy()
    elements["value"][0] += 8
    changed = replace(found[number], outputs=(replace(first, elements=elements),))
    return [*found[:number], changed, *found[number + 1 :]]


def test_the_verdict_is_python_s(tmp_path):
    """Both keep it under one name, so that one of them tests for both."""
    saved(digits()[0], tmp_path / "m.gpuc")

    Model(tmp_path / "m.gpuc", cache=str(tmp_path / "c"))

    assert verdicts(tmp_path / "c") == verdicts(tmp_path / "python") != {}
    assert set(verdicts(tmp_path / "c").values()) == {""}


@pytest.mark.parametrize("name", INTEGERS + FLOATS)
def test_inputs_are_python_s(tmp_path, name):
    """Of each type: results that Python computed of its inputs are right for those of the C library."""
    type = getattr(TensorProto, name)
    wide = TensorProto.FLOAT if name in FLOATS else TensorProto.INT64
    proto = model(
        [node("Cast", ["x"], ["a"], to=wide), node("Add", ["a", "a"], ["b"]), node("Cast", ["b"], ["y"], to=type)],
        [value("x", [37, 61], type)],
    )
    types = []
    saved(proto, tmp_path / "m.gpuc", lambda found: (types.extend(found), found)[1])

    Model(tmp_path / "m.gpuc", cache=str(tmp_path / "c"))

    assert sum(len(one.elements) for check in types for one in check.outputs) > 40
    assert set(verdicts(tmp_path / "c").values()) == {""}


def test_indices_stay_inside(tmp_path):
    proto = model(
        [node("Gather", ["x", "i"], ["a"]), node("Where", ["c", "a", "x"], ["y"])],
        [
            value("x", [5, 7]),
            value("i", [5], TensorProto.INT64),
            value("c", [5, 7], TensorProto.BOOL),
        ],
    )
    limits = []
    saved(proto, tmp_path / "m.gpuc", lambda found: (limits.extend(g.limit for c in found for g in c.inputs), found)[1])

    Model(tmp_path / "m.gpuc", cache=str(tmp_path / "c"))

    assert 5 in limits
    assert set(verdicts(tmp_path / "c").values()) == {""}


def test_a_wrong_kernel_is_refused_by_name_and_the_verdict_stays(tmp_path):
    exe = saved(digits()[0], tmp_path / "m.gpuc", with_wrong)
    name = exe.plan.kernels[1].name

    for _ in range(2):
        with pytest.raises(
            NativeError, match=f"GPC5106 kernel {name}: 1 of 96 elements are wrong, by up to "
        ) as caught:
            Model(tmp_path / "m.gpuc", cache=str(tmp_path / "c"))

    assert "where other schedules are then tried; GPUCOMP_SELF_TEST=0 runs the kernel as it is" in str(caught.value)
    (line,) = verdicts(tmp_path / "c").values()
    assert line.startswith(f"{name} 1 of 96 elements are wrong")


def test_python_reads_that_verdict(tmp_path, monkeypatch):
    saved(digits()[0], tmp_path / "m.gpuc", lambda found: with_wrong(with_wrong(found), 3))
    with pytest.raises(NativeError) as told:
        Model(tmp_path / "m.gpuc", cache=str(tmp_path / "c"))

    monkeypatch.setattr(self_test, "fault", None)  # nothing is tested
    with config.using(cache=tmp_path / "c"), pytest.raises(self_test.WrongKernelError) as caught:
        gpucomp.load(tmp_path / "m.gpuc").open()

    assert str(caught.value).split() == str(told.value).split()
    assert ", and 1 more kernel: " in str(told.value)


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("declared", [False, True])
def test_kernels_for_any_size_are_tested_at_the_example_s(tmp_path, monkeypatch, wrong, declared):
    """Also if the file has a program of its own for the example's sizes."""
    exe = any_size_declared(target=POCL)
    program = exe.program
    if declared:
        exe = any_size_declared(program.example, target=POCL)
        program = exe.program
    plan = program.open_plan.at(program.example).plan
    found = checks_of(program.binaries[CHECKS], plan)
    assert len(found) > 1
    if wrong:
        program.binaries = {**program.binaries, CHECKS: packed(with_wrong(found))}
    exe.save(tmp_path / "m.gpuc")

    if wrong:
        with pytest.raises(NativeError, match="GPC5106 kernel "):
            Model(tmp_path / "m.gpuc", cache=str(tmp_path / "c"))
        return
    Model(tmp_path / "m.gpuc", cache=str(tmp_path / "c"))
    (name,) = verdicts(tmp_path / "c")
    gpucomp.load(tmp_path / "m.gpuc").open()
    assert name in verdicts(tmp_path / "python")


@pytest.mark.parametrize("wrong", [False, True])
def test_kernels_of_a_decoder_are_tested(tmp_path, wrong):
    """But for those that read or write its keys and values."""
    made = decoding(POCL)
    program = made.program
    found = checks_of(program.binaries[CHECKS], program.open_plan.at(program.example).plan)
    assert len(found) > 5
    binaries = {**program.binaries, CHECKS: packed(with_wrong(found) if wrong else found)}
    artifact.save(tmp_path / "m.gpuc", replace(made.contents(), binaries=binaries))

    if wrong:
        with pytest.raises(NativeError, match="GPC5106 kernel "):
            Model(tmp_path / "m.gpuc", cache=str(tmp_path / "c"))
    else:
        Model(tmp_path / "m.gpuc", cache=str(tmp_path / "c"))
        assert set(verdicts(tmp_path / "c").values()) == {""}


@pytest.mark.parametrize(("setting", "tested"), [("0", False), ("", False), (None, False), ("1", True)])
def test_the_setting(tmp_path, monkeypatch, setting, tested):
    saved(digits()[0], tmp_path / "m.gpuc", with_wrong)
    monkeypatch.delenv("GPUCOMP_SELF_TEST") if setting is None else monkeypatch.setenv("GPUCOMP_SELF_TEST", setting)

    if tested:
        with pytest.raises(NativeError, match="GPC5106"):
            Model(tmp_path / "m.gpuc", cache=str(tmp_path / "c"))
    else:
        Model(tmp_path / "m.gpuc", cache=str(tmp_path / "c"))


@pytest.mark.parametrize("cut", [lambda d: d[:-1], lambda d: d + b"\0", lambda d: b"GPCHECK9" + d[8:], lambda d: d[:7]])
def test_damaged_checks_are_refused(tmp_path, cut):
    exe = compiler.compile(digits()[0], target=POCL)
    wrong = cut(exe.binaries[CHECKS])
    artifact.save(tmp_path / "m.gpuc", replace(exe.contents(), binaries={**exe.binaries, CHECKS: wrong}))

    with pytest.raises(NativeError, match=r"GPC7004 checks\.bin: damaged"):
        Model(tmp_path / "m.gpuc", cache=str(tmp_path / "c"))


@pytest.mark.parametrize(
    "change",
    [
        lambda one: replace(one, launch=99),
        lambda one: replace(one, inputs=(replace(one.inputs[0], argument=0),)),  # a weight
        lambda one: replace(one, inputs=(replace(one.inputs[0], argument=9),)),
        lambda one: replace(one, outputs=(replace(one.outputs[0], argument=9),)),
        lambda one: replace(
            one, outputs=(replace(one.outputs[0], elements=np.array([(1 << 31, 1, 0)], checks.ELEMENT)),)
        ),
        lambda one: replace(one, inputs=one.inputs * 9),  # more than it has arguments
        lambda one: replace(one, outputs=one.outputs * 9),
    ],
)
def test_checks_of_another_plan_are_refused(tmp_path, change):
    saved(digits()[0], tmp_path / "m.gpuc", lambda found: [change(found[0]), *found[1:]])

    with pytest.raises(NativeError, match="GPC7004"):
        Model(tmp_path / "m.gpuc", cache=str(tmp_path / "c"))
