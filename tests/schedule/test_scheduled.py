"""Passes after a schedule is chosen: they are named, documented, observed, dumped and verified."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import onnx
import pytest

from bench import models
from gpucomp import cli, compiler, config, lowering, ops, targets
from gpucomp.errors import VerifyError
from gpucomp.expr.core import cast, hole, load, var
from gpucomp.frontend import onnx as frontend
from gpucomp.ir.graph import constant, input_value
from gpucomp.ir.types import F32, I8, I32, U8, TensorType
from gpucomp.kernel import Contraction, Kernel, Store
from gpucomp.kernel.forms.packed_int8 import PackedInt8
from gpucomp.kernel.interpreter import expected, run_steps
from gpucomp.kernel.partition import partition
from gpucomp.kernel.passes.pack_weights import packed_constant
from gpucomp.kernel.step import KernelStep
from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.kernels_templates.render import render, render_scheduled
from gpucomp.lowering import SCHEDULED_PASSES, scheduled
from gpucomp.ops.interpreter import interpret
from gpucomp.planning import make_plan
from gpucomp.schedule.choose import Choice
from gpucomp.schedule.scheduled import Scheduled, ScheduledPass, run_scheduled_passes
from gpucomp.schedule.space import Family
from testing.kernels import conv, matmul, random_inputs
from testing.tolerance import assert_matches
from tests.builders import graph_of, tensor

SIMT, MMA, LOOPS = (FAMILIES[name] for name in ("contraction/simt", "contraction/mma", "loops"))
SM_80 = targets.resolve("cuda:sm_80")
BY_NAME = {one.name: one for one in SCHEDULED_PASSES}


def bytes_along_the_depth() -> Kernel:
    i, j, c, acc = var("m0", 5), var("n0", 6), var("k0", 8), hole("acc", I32)
    a, b = cast(load(0, (i, c), U8), I32), cast(load(1, (j, c), I8), I32)
    params = (TensorType(U8, (5, 8)), TensorType(I8, (6, 8)), TensorType(I32, (5, 6)))
    return Kernel(
        "contraction", params, 1, Contraction((), (i,), (j,), (c,), a, b, acc), (Store(2, (i, j), acc),), "bytes"
    )


def with_constants(kernel: Kernel) -> Kernel:
    return replace(kernel, constants=frozenset({1}))


PATCHES = conv((1, 32, 32, 3), 16, (4, 4), stride=4, nchw=True)
EXAMPLES = {
    "pack-weights": (with_constants(matmul(33, 24, 72)), MMA),
    "pack-bytes": (bytes_along_the_depth(), SIMT),
    "order-depth": (PATCHES, SIMT),
}
REFUSALS: dict[str, dict[str, tuple[Kernel, Family]]] = {
    "pack-weights": {"nothing is constant": (matmul(33, 24, 72), MMA)},
    "pack-bytes": {
        "the numbers are f32": (matmul(5, 6, 8), SIMT),
        "the engine multiplies no words": (bytes_along_the_depth(), MMA),
    },
    "order-depth": {"the image has channels last": (conv((1, 8, 8, 4), 16, (3, 3), pad=1), SIMT)},
}


def chosen(kernel: Kernel, family) -> Scheduled:
    p = family.problem(kernel)
    schedule = dict(family.default(p, SM_80.limits).numbers)
    choice = Choice(schedule, "default", family, family.packing(kernel, family.schedule(schedule), p))
    return Scheduled(KernelStep("k0", kernel, (), (), ()), choice, kernel)


def outputs(one: Scheduled, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The results of the kernel to render, on the step's inputs: with its packed constant, and with bytes as words."""
    if one.packed is not None:
        operand = packed_constant(one.packed, inputs)
        inputs = [*(inputs[k] for k in one.packed.kept), operand]
    return expected(one.kernel, inputs)


def test_every_pass_has_an_example_and_a_refusal():
    assert list(EXAMPLES) == list(REFUSALS) == list(BY_NAME)


@pytest.mark.parametrize("name", BY_NAME)
def test_every_pass_says_what_it_takes_gives_and_leaves(name):
    said = BY_NAME[name].run.__doc__ or ""

    assert [word for word in ("Takes", "Gives", "Leaves") if f"    {word} " in said] == ["Takes", "Gives", "Leaves"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_pass_changes_its_example(name):
    one = chosen(*EXAMPLES[name])

    after = BY_NAME[name].run(one)

    assert after.kernel.digest != one.kernel.digest
    assert after.step is one.step
    assert BY_NAME[name].run(replace(after, choice=replace(after.choice, packing=None))).kernel is after.kernel


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_pass_keeps_what_the_kernel_computes(name):
    one = chosen(*EXAMPLES[name])
    inputs = random_inputs(one.kernel)

    for found, right in zip(outputs(BY_NAME[name].run(one), inputs), expected(one.kernel, inputs), strict=True):
        assert_matches(found, right, terms=128)


@pytest.mark.parametrize(("name", "reason"), [(name, reason) for name, cases in REFUSALS.items() for reason in cases])
def test_a_pass_leaves_other_kernels_the_same_object(name, reason):
    one = chosen(*REFUSALS[name][reason])

    assert BY_NAME[name].run(one) is one


@pytest.mark.parametrize("name", ["pack-bytes", "order-depth"])
def test_rendering_rewrites_nothing(name):
    """Rendering refuses a kernel before the passes. A kernel alone is rendered after them, to the same source."""
    kernel, family = EXAMPLES[name]
    one = chosen(kernel, family)
    ready = scheduled(one.step, one.choice).kernel
    arguments = one.choice.schedule, SM_80, "k0", family

    with pytest.raises(TypeError, match=f"the passes of {family.title} have not run on it"):
        render_scheduled(kernel, *arguments)
    assert render_scheduled(ready, *arguments).text == render(kernel, *arguments).text


# in a model --------------------------------------------------------------------------------------------------


def network():
    """Two products of the same shape by the same weights: one kernel, and one packed constant."""
    x, w = tensor("x", 33, 72), constant(np.random.default_rng(3).standard_normal((72, 72)).astype(np.float32))
    return graph_of(ops.MatMul(ops.Softmax(ops.MatMul(x, w), axis=1), w))


def program_of(graph):
    return compiler.schedule(partition(graph), targets.resolve("cpu:x86-64-v4"), compiler.silent)


def test_equal_kernels_share_one_and_constants_too():
    first, _, second = program_of(network())

    assert first.kernel is second.kernel
    assert first.packed is not None
    made: dict = {}
    assert first.launched(made).inputs[-1] is second.launched(made).inputs[-1]


def test_what_is_rendered_is_what_the_passes_gave(monkeypatch):
    """All sources have the label that a pass sets."""
    label = ScheduledPass("label", lambda one: replace(one, kernel=replace(one.kernel, label="turned")))
    monkeypatch.setattr(lowering, "SCHEDULED_PASSES", (*SCHEDULED_PASSES, label))
    monkeypatch.setattr(compiler, "SCHEDULED_PASSES", (*SCHEDULED_PASSES, label))

    _, rendered = compiler.render(partition(network()), SM_80, compiler.silent)

    assert all(item.source.text.startswith("// turned\n") for item in rendered.values())


def test_observers_and_dumps_have_every_pass(tmp_path):
    records = []

    with config.using(dump=tmp_path):
        compiler.schedule(
            partition(network()), targets.resolve("cpu:x86-64-v4"), compiler.silent, observer=records.append
        )

    assert [(r.name, r.changed, r.unit) for r in records] == [
        ("pack-weights", True, "scheduled"), ("pack-bytes", False, "scheduled"), ("order-depth", False, "scheduled"),
    ]  # fmt: skip
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "scheduled-00-chosen.txt", "scheduled-01-pack-weights.diff", "scheduled-01-pack-weights.txt",
        "scheduled-02-pack-bytes.txt", "scheduled-03-order-depth.txt",
    ]  # fmt: skip
    assert "contraction" in (tmp_path / "scheduled-00-chosen.txt").read_text()


def spoiled(change):
    return ScheduledPass("spoil", lambda one: replace(one, kernel=change(one.kernel)))


FAULTS = {
    "a parameter too many": (
        spoiled(lambda k: replace(k, params=(*k.params, k.params[-1]), outputs=k.outputs + 1)), "parameters, but",
    ),
    "a parameter of other bytes": (
        spoiled(lambda k: replace(k, params=(TensorType(F32, (1,) * len(k.params[0].shape)), *k.params[1:]))), "x0 is f32[1,1]",
    ),
    "a load of nothing": (
        spoiled(lambda k: replace(k, stores=(replace(k.stores[0], value=load(9, (), F32)),))), "a load of x9",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_the_pass_that_breaks_a_rule_is_named(fault):
    spoil, said = FAULTS[fault]
    program = program_of(network())

    with config.using(verify=True), pytest.raises(VerifyError, match=re.escape(said)) as refused:
        run_scheduled_passes(program, [spoil])

    assert "after pass 'spoil'" in str(refused.value)


def quantized_product():
    """A product of bytes by constant bytes, of a depth that is no multiple of four."""
    x = input_value("x", TensorType(U8, (9, 27)))
    w = constant(np.random.default_rng(4).integers(-99, 99, (27, 12)).astype(np.int8))
    return graph_of(ops.MatMul(ops.Cast(x, to=I32), ops.Cast(w, to=I32)))


def test_the_steps_of_a_model_have_the_kernels_that_are_rendered(tmp_path):
    """What is dumped, planned, printed and interpreted is one: bytes by words, weights in their order."""
    graph, target = quantized_product(), targets.resolve("opencl:generic")
    steps = lowering.kernels_of(graph, target)

    with config.using(dump=tmp_path):
        laid_out, rendered = compiler.render(steps, target, compiler.silent)
    plan, weights = make_plan(graph, laid_out, rendered, target)

    (step,) = laid_out
    assert isinstance(step.kernel.body, PackedInt8)
    assert step.kernel.text.splitlines()[0] in (tmp_path / "scheduled-03-order-depth.txt").read_text()
    assert [w.nbytes for w in weights.values()] == [step.kernel.params[1].nbytes] == [28 * 12]
    assert plan.kernels[0].operations == step.kernel.operations(lambda *exprs: 0) == 2 * 9 * 12 * 28
    x = np.random.default_rng(5).integers(0, 255, (9, 27)).astype(np.uint8)
    (found,), (right,) = run_steps(graph, laid_out, {"x": x}), interpret(graph, {"x": x})
    np.testing.assert_array_equal(found, right)


def test_words_are_no_fault():
    one = chosen(bytes_along_the_depth(), SIMT)

    with config.using(verify=True):
        (found,) = run_scheduled_passes([one], SCHEDULED_PASSES)

    assert isinstance(found.kernel.body, PackedInt8)


def test_the_command_shows_them(tmp_path, capfd):
    path = tmp_path / "m.onnx"
    onnx.save(models.build("bert_base", reduced=True), path)
    with config.using():
        assert cli.main(["inspect", str(path), "--target", "cpu:x86-64-v4", "--passes"]) == 0
    tables = capfd.readouterr().out
    name = next(n.name for n in frontend.nodes_in(path) if n.op == "MatMul")

    with config.using():
        assert cli.main(["inspect", str(path), "--target", "cpu:x86-64-v4", "--node", name]) == 0
    lines = capfd.readouterr().out.splitlines()

    assert [one.name for one in SCHEDULED_PASSES] == re.findall(r"^ ?\d+  (pack-\w+|order-depth)", tables, re.M)
    (start,) = [k for k, line in enumerate(lines) if line.startswith("Passes after the choice: ")]
    assert lines[start] == "Passes after the choice: 1 of 3 changed it"
    assert lines[start + 2] == "pack-weights"
    assert any(line.startswith("  + ") and "f32" in line for line in lines[start + 3 :])
