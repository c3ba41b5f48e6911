"""Every kernel pass is documented, changes its example, keeps the results, and leaves other kernels alone."""

from __future__ import annotations

from itertools import takewhile

import pytest

from gpucomp.kernel.grouping import Policy
from gpucomp.kernel.interpreter import run_steps
from gpucomp.kernel.partition import partition
from gpucomp.kernel.pipeline import KernelPass, Setting, run_kernel_passes
from gpucomp.kernel.step import Step
from gpucomp.kernel.verify import verify_steps
from gpucomp.lowering import KERNEL_PASSES, wanted_passes
from gpucomp.ops.interpreter import interpret
from testing.tolerance import assert_matches
from tests.builders import setting
from tests.kernel.passes.examples import EXAMPLES, REFUSALS, Case
from tests.rewrite.examples import draw

BY_NAME = {one.name: one for one in KERNEL_PASSES}


def reached(case: Case, one: KernelPass) -> tuple[list[Step], Setting]:
    """The input of the pass: the steps after the earlier passes for the target."""
    known = setting(case.graph, case.target, precision=case.precision)
    at = setting(
        case.graph,
        case.target,
        precision=case.precision,
        expected=case.expected(case.target, known.expected.engines_of),
    )
    wanted = wanted_passes(case.target, case.precision)
    assert one in wanted, f"{case.target.name} has no use for {one.name}"
    steps = partition(case.graph, Policy.of(case.target))
    return run_kernel_passes(steps, list(takewhile(lambda other: other is not one, wanted)), at), at


def test_every_pass_has_an_example_and_a_refusal():
    for table in (EXAMPLES, REFUSALS):
        assert list(table) == list(BY_NAME), (
            "tests/kernel/passes/examples.py has the passes of KERNEL_PASSES in its order"
        )
    assert all(REFUSALS.values())


@pytest.mark.parametrize("name", BY_NAME)
def test_every_pass_says_what_it_takes_gives_and_leaves(name):
    said = BY_NAME[name].run.__doc__ or ""

    assert [
        line.split()[0] for line in said.splitlines() if line.startswith(("    Takes ", "    Gives ", "    Leaves "))
    ] == [
        "Takes",
        "Gives",
        "Leaves",
    ]


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_pass_changes_its_example_and_keeps_the_meaning(name):
    case, inputs = EXAMPLES[name], draw(EXAMPLES[name].graph)
    before, at = reached(case, BY_NAME[name])

    after = run_kernel_passes(before, [BY_NAME[name]], at)

    assert list(map(id, after)) != list(map(id, before)), f"{name} left its example alone"
    verify_steps(after, case.graph)
    for found, expected in zip(run_steps(case.graph, after, inputs), interpret(case.graph, inputs), strict=True):
        rounded = [array.astype(case.stored) if array.dtype.kind == "f" else array for array in (found, expected)]
        assert_matches(*rounded, terms=case.terms)


@pytest.mark.parametrize(("name", "reason"), [(name, reason) for name, cases in REFUSALS.items() for reason in cases])
def test_a_pass_leaves_other_steps_the_same_objects(name, reason):
    before, at = reached(REFUSALS[name][reason], BY_NAME[name])

    after = BY_NAME[name].run(before, at)

    assert len(after) == len(before)
    assert all(one is other for one, other in zip(before, after, strict=True))
