"""The kernel pipeline: passes have names, are observed, dumped and verified, and an error names the pass."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from gpucomp import config, lowering, ops, targets
from gpucomp.errors import VerifyError
from gpucomp.expr.core import cast, load
from gpucomp.ir.graph import constant
from gpucomp.ir.types import F16, F32, TensorType
from gpucomp.kernel.partition import partition
from gpucomp.kernel.pipeline import KernelPass, format_steps
from gpucomp.kernel.verify import verify_steps
from gpucomp.lowering import KERNEL_PASSES, kernels_of, wanted_passes
from tests.builders import graph_of, tensor

CPU = targets.resolve("cpu")
NOTHING = KernelPass("nothing", lambda steps, setting: list(steps))


def network():
    x = tensor("x", 7, 12)
    w = constant(np.random.default_rng(3).standard_normal((12, 5)).astype(np.float32))
    return graph_of(ops.Softmax(ops.MatMul(x, w), axis=1))


def test_every_pass_has_a_name_of_its_own():
    assert len({one.name for one in KERNEL_PASSES}) == len(KERNEL_PASSES)


@pytest.mark.parametrize(
    ("target", "precision", "wanted", "unwanted"),
    [
        ("cpu", "fp32", "fuse-depth-first", "fuse-separable"),
        ("cuda:sm_80", "fp32", "fuse-row-statistics", "merge-groups"),
        ("cuda:sm_80", "fp16", "merge-groups", "split-winograd"),
        ("opencl:mali", "fp32", "split-winograd", "split-attention"),
    ],
)
def test_a_target_has_the_passes_that_it_has_a_use_for(target, precision, wanted, unwanted):
    names = [one.name for one in wanted_passes(targets.resolve(target), precision)]

    assert wanted in names
    assert unwanted not in names


def test_the_observer_gets_a_record_of_every_pass():
    records = []
    drop = KernelPass("drop", lambda steps, setting: steps[:1])

    with config.using(verify=False):
        kernels_of(network(), CPU, passes=[NOTHING, drop, NOTHING], observer=records.append)

    assert [(r.name, r.changed, r.before, r.after, r.unit) for r in records] == [
        ("nothing", False, 2, 2, "kernels"),
        ("drop", True, 2, 1, "kernels"),
        ("nothing", False, 1, 1, "kernels"),
    ]


def first(change):
    """A pass that applies ``change`` to the first step."""
    return KernelPass("spoil", lambda steps, setting: [change(steps[0]), *steps[1:]])


def stored(**changes):
    """A pass that changes the first step's store."""
    return first(lambda s: replace(s, kernel=replace(s.kernel, stores=(replace(s.kernel.stores[0], **changes),))))


FAULTS = {
    "another order": (KernelPass("spoil", lambda steps, setting: steps[::-1]), "that earlier steps have not written"),
    "no result": (KernelPass("spoil", lambda steps, setting: steps[:1]), "no step writes output 'output0'"),
    "a store to an input": (stored(target=0), "a store to x0, but the outputs are x2 to x2"),
    "too few indices": (stored(index=()), "a store to x2 with 0 indices"),
    "another type stored": (first(lambda s: replace(s, kernel=replace(s.kernel, stores=tuple(
        replace(one, value=cast(one.value, F16)) for one in s.kernel.stores)))), "a store of f16 to x2"),
    "a parameter too many": (first(lambda s: replace(s, inputs=s.inputs[:1])), "3 parameters, but the step reads 1"),
    "a parameter of another size": (first(lambda s: replace(s, inputs=s.inputs[::-1])), "f32[7,12] is bound to value"),
    "a load of nothing": (stored(value=load(9, (), F32)), "a load of x9, but there are 3 parameters"),
    "a load with too few indices": (stored(value=load(0, (), F32)), "a load of x0 with 0 indices"),
    "two types of a value": (first(lambda s: replace(s, kernel=replace(s.kernel,
        params=(*s.kernel.params[:2], TensorType(F16, s.kernel.params[2].shape)),
        stores=tuple(replace(one, value=cast(one.value, F16)) for one in s.kernel.stores)))),
        "is bound to a value that is f16"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_the_pass_that_breaks_a_rule_is_named(fault):
    spoil, said = FAULTS[fault]

    with config.using(verify=True), pytest.raises(VerifyError, match=re.escape(said)) as refused:
        kernels_of(network(), CPU, passes=[NOTHING, spoil])

    assert "after pass 'spoil' (which ran after nothing)" in str(refused.value)


def test_right_steps_have_no_fault():
    graph = network()

    verify_steps(partition(graph), graph)


def test_every_step_is_dumped_with_what_changed(tmp_path):
    label = first(lambda s: replace(s, kernel=replace(s.kernel, label="called so")))

    with config.using(dump=tmp_path):
        kernels_of(network(), CPU, passes=[NOTHING, label])

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "kernels-00-partition.txt",
        "kernels-01-nothing.txt",
        "kernels-02-spoil.diff",
        "kernels-02-spoil.txt",
    ]
    diff = (tmp_path / "kernels-02-spoil.diff").read_text()
    assert "+%2 = called so(%x, %1)" in diff or "= called so(" in diff
    assert "softmax" not in "".join(line for line in diff.splitlines() if line[0] in "+-")


def test_a_step_is_printed_with_its_values_its_kernel_and_why_it_ends():
    text = format_steps(partition(network()))

    assert text.splitlines()[0].endswith("(%x, %2)")
    assert "  kernel contraction(f32[7,12], f32[12,5], f32[7,5]) -> 1" in text
    assert "  ends: " in text


def test_passes_are_those_of_the_table_when_they_are_run(monkeypatch):
    seen = []
    spy = KernelPass("spy", lambda steps, setting: seen.append(setting.precision) or list(steps))
    monkeypatch.setattr(lowering, "KERNEL_PASSES", (spy,))

    kernels_of(network(), targets.resolve("cuda:sm_80"), "fp16")

    assert seen == ["fp16"]
