"""Kernels that a device refuses: a smaller schedule, then one without extensions, and a warning that says so once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper

import gpucomp
from gpucomp import config, targets
from gpucomp.errors import KernelBuildError
from gpucomp.kernels_templates.engines import family_of
from gpucomp.targets import cuda, opencl
from testing.template_cases import CASES, default
from testing.tolerance import assert_matches
from tests.onnx_builders import model as onnx_model
from tests.onnx_builders import node as onnx_node
from tests.onnx_builders import value as onnx_value

X = np.random.default_rng(3).standard_normal((300, 60)).astype(np.float32)
W = np.random.default_rng(5).standard_normal((60, 50)).astype(np.float32)


def model(*nodes):
    """softmax(x @ w), which is two kernels; or what ``nodes`` compute."""
    nodes = nodes or (helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Softmax", ["h"], ["y"], axis=-1))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, (300, 50))]
    weights = [helper.make_tensor("w", TensorProto.FLOAT, W.shape, W.tobytes(), raw=True)]
    graph = helper.make_graph(list(nodes), "refused", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def answer():
    e = np.exp(X @ W - (X @ W).max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.fixture(autouse=True)
def folders(tmp_path):
    with config.using(cache=tmp_path, dump=tmp_path):
        yield


def takes(monkeypatch, most):
    """The device launches no kernel in larger work-groups."""
    cl = opencl.pyopencl()
    whole, size = cl.Kernel.get_work_group_info, cl.kernel_work_group_info.WORK_GROUP_SIZE
    monkeypatch.setattr(cl.Kernel, "get_work_group_info", lambda k, i, d: most if i == size else whole(k, i, d))


def refuses(monkeypatch, fault):
    """The device's compiler refuses the texts of which ``fault`` says so; what it was given."""
    cl, texts = opencl.pyopencl(), []
    whole = cl.Program

    def program(context, text, *binaries):
        texts.append(text)
        if not binaries and fault(text):
            raise cl.RuntimeError("clBuildProgram failed: OUT_OF_RESOURCES\n\nk.cl:3: error: too much for me")
        return whole(context, text, *binaries)

    monkeypatch.setattr(cl, "Program", program)
    return texts


def compiled(flavour="generic"):
    """The model, and what was warned of."""
    with pytest.warns(RuntimeWarning) as warned:
        found = gpucomp.compile(model(), target=f"opencl:{flavour}")
    return found, [str(w.message) for w in warned]


def test_kernels_whose_work_groups_are_too_large_get_smaller_ones(monkeypatch):
    wide = [k.items[0] for k in gpucomp.compile(model(), target="opencl:generic").plan.kernels]
    takes(monkeypatch, 64)

    found, warned = compiled()

    assert max(wide) > 64
    items = [k.items[0] for k in found.plan.kernels]
    assert max(items) <= 64
    assert [k.tier == "smaller" for k in found.kernels] == [n > 64 for n in wide]
    (line,) = warned
    assert "work-items in a work-group" in line
    assert "now compiled with smaller schedules: " in line
    np.testing.assert_allclose(found.run({"x": X})["y"], answer(), rtol=1e-4, atol=1e-6)


def test_a_device_of_very_small_work_groups_gets_the_smallest_of_each_engine(monkeypatch):
    """Of a product, too, whose space is far too large to be looked through."""
    takes(monkeypatch, 8)

    found, _ = compiled()

    assert max(k.items[0] for k in found.plan.kernels) <= 8
    np.testing.assert_allclose(found.run({"x": X})["y"], answer(), rtol=1e-4, atol=1e-6)


def test_a_kernel_that_does_not_build_gets_a_smaller_schedule(monkeypatch):
    plain = gpucomp.compile(model(), target="opencl:generic")
    product = plain.sources[plain.plan.kernels[0].source]
    texts = refuses(monkeypatch, lambda text: product in text)

    found, warned = compiled()

    assert len(warned) == 1
    assert "too much for me; its source is at" in warned[0]
    assert [k.tier == "smaller" for k in found.kernels] == [True, False]
    assert found.kernels[0].schedule != plain.kernels[0].schedule
    assert len(texts) == len(set(texts))  # none is tried twice
    np.testing.assert_allclose(found.run({"x": X})["y"], answer(), rtol=1e-4, atol=1e-6)


def test_a_kernel_of_few_work_items_gets_still_fewer(monkeypatch):
    """Its default is the smallest that the family makes: its space has smaller ones."""
    plain = gpucomp.compile(model(), target="opencl:generic")
    rows = plain.sources[plain.plan.kernels[1].source]
    refuses(monkeypatch, lambda text: rows in text)

    found, _ = compiled()

    before, after = plain.plan.kernels[1].items[0], found.plan.kernels[1].items[0]
    assert before == 64
    assert after <= 32
    assert found.kernels[1].tier == "smaller"
    np.testing.assert_allclose(found.run({"x": X})["y"], answer(), rtol=1e-4, atol=1e-6)


def test_at_last_a_kernel_does_without_the_extension(monkeypatch):
    """A compiler that names an extension and does not have it."""
    extension, target = "#pragma OPENCL EXTENSION cl_khr_fp16", opencl.manifest("generic")
    monkeypatch.setattr(targets, "resolve", lambda name: replace(target, features=frozenset({"fp16"})))
    texts = refuses(monkeypatch, lambda text: extension in text)
    there = helper.make_node("Cast", ["x"], ["half"], to=TensorProto.FLOAT16)
    back = helper.make_node("Cast", ["half"], ["y"], to=TensorProto.FLOAT)

    with pytest.warns(RuntimeWarning, match="refused a kernel"):
        found = gpucomp.compile(model(there, back), target="opencl:generic")

    assert extension in texts[0]
    assert not any(extension in text for text in found.sources.values())
    np.testing.assert_array_equal(found.run({"x": X})["y"], X.astype(np.float16).astype(np.float32))


def test_at_last_a_kernel_does_without_the_fence_of_the_device(monkeypatch):
    """A compiler that does not have the fence that its driver lists: no sum is split there."""
    target = opencl.manifest("generic")
    target = replace(target.with_limits(device_fence=True), features=frozenset({"device_fence"}))
    monkeypatch.setattr(targets, "resolve", lambda name: target)
    texts = refuses(monkeypatch, lambda text: "atomic_work_item_fence" in text)
    product = onnx_node("MatMul", ["row", "long"], ["y"])
    a, b = (np.random.default_rng(3).standard_normal(shape).astype(np.float32) for shape in ((20, 4096), (4096, 32)))
    made = onnx_model([product], [onnx_value("row", a.shape)], [onnx_value("y", (20, 32))], {"long": b})

    with pytest.warns(RuntimeWarning, match="refused a kernel"):
        found = gpucomp.compile(made, target="opencl:generic")

    assert "atomic_work_item_fence" in texts[0]
    assert not any("atomic_work_item_fence" in text for text in found.sources.values())
    assert_matches(found.run({"row": a})["y"], a @ b, terms=4096)


def test_what_is_refused_however_small_is_an_error(monkeypatch):
    texts = refuses(monkeypatch, lambda text: True)

    with pytest.raises(KernelBuildError, match=r"kernel k00.*: .*too much for me; its source is at") as found:
        gpucomp.compile(model(), target="opencl:generic")

    assert found.value.code == "GPC5100"
    assert len(set(texts)) > 2  # both as one program, each alone, and what there is in their place


def test_an_artefact_has_no_compiler_and_says_where_one_helps(monkeypatch, tmp_path):
    gpucomp.compile(model(), target="opencl:generic").save(tmp_path / "model.gpuc")
    takes(monkeypatch, 1)

    with pytest.raises(KernelBuildError, match="; compile the model on this device") as found:
        gpucomp.load(tmp_path / "model.gpuc").run({"x": X})

    assert found.value.code == "GPC5104"


def test_other_targets_have_nothing_less_to_try(monkeypatch):
    """Whose compiler is ours to know: what it refuses is a bug, and no smaller schedule hides it."""
    tried = []

    def refused(wanted, *_):
        tried.extend(wanted)
        raise KernelBuildError("an internal error of the compiler")

    monkeypatch.setattr(cuda, "members", refused)
    rows = [onnx_node("Softmax", ["x"], ["y"], axis=-1)]
    softmax = onnx_model(rows, [onnx_value("x", (300, 50))], [onnx_value("y", (300, 50))])

    with pytest.raises(KernelBuildError, match="an internal error of the compiler"):
        gpucomp.compile(softmax, target="cuda:sm_80")

    assert len(tried) == 1
    assert list(targets.lesser(targets.resolve("cpu"))) == []


@pytest.mark.parametrize("flavour", [*opencl.FLAVOURS, "gfx90a", "gfx1100"])
def test_every_kernel_has_a_schedule_for_what_is_tried_last(flavour):
    *_, least = (less.limits for less in targets.lesser(opencl.manifest(flavour)))

    for name, kernel in CASES.items():
        family = family_of(kernel)
        assert family.reasons(default(kernel, least), family.problem(kernel), least) == [], name
