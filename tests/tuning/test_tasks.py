"""What there is to tune in a model, and where the time goes: to what promises the most, until nothing does."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from onnx import helper, numpy_helper

from gpucomp import compiler
from gpucomp.kernel.step import KernelStep
from gpucomp.targets import cpu
from gpucomp.tuning.tasks import Progress, following, forecast, tasks_of, weigh
from tests.onnx_builders import model, value

TARGET = cpu.named("cpu:x86-64-v3")


def progress(weight, best=1.0, **changes):
    return Progress(SimpleNamespace(weight=weight), best, **changes)


def test_the_heaviest_comes_first():
    a, b, c = progress(0.6), progress(0.5), progress(0.7)

    assert following([a, b, c]) is c


@pytest.mark.parametrize(("hope", "first"), [(0.2, "heavy"), (0.1, "heavy"), (0.075, "fresh"), (0.0005, "fresh")])
def test_what_nobody_has_looked_at_is_thought_to_take_as_long_as_the_others(hope, first):
    """Whichever promises more is next: a heavy one again while it gets faster, a light one once that saves nothing."""
    heavy, fresh = progress(1.0, hope=hope, batches=2, seconds=14.0), progress(0.6)

    assert following([fresh, heavy]) is (heavy if first == "heavy" else fresh)
    assert following([heavy, progress(0.001)]) is (heavy if hope > 0.001 else None)


def test_batches_that_took_no_time_by_the_clock_are_no_reason_to_fail():
    a, b = progress(1.0, hope=0.1, batches=3), progress(0.5)

    assert following([a, b]) is a


def test_then_what_promises_the_most_for_its_time():
    cheap = progress(0.5, hope=0.1, batches=2, seconds=2.0)
    dear = progress(0.5, hope=0.1, batches=2, seconds=9.0)
    hopeless = progress(5.0, hope=1e-5, batches=2, seconds=2.0)

    assert following([dear, hopeless, cheap]) is cheap


def test_what_is_exhausted_or_promises_nothing_ends_it():
    assert following([progress(1.0, exhausted=True)]) is None
    assert following([progress(1.0, hope=0.0005, batches=3)]) is None
    assert following([progress(1.0, hope=0.0005, batches=3, seconds=1.0)], enough=0.0) is not None
    assert following([]) is None


def test_a_kernel_of_little_weight_is_not_worth_a_batch():
    heavy, light = progress(1.0, exhausted=True), progress(0.001)

    assert following([heavy, light]) is None


def test_hope_is_halved_by_a_batch_that_saves_nothing_and_renewed_by_one_that_does():
    p = progress(1.0)
    p.after(1.0, 1.0)
    assert p.hope == pytest.approx(0.075)
    p.after(0.5, 1.0)
    assert p.hope == pytest.approx(0.2875)
    assert (p.best, p.batches, p.cost) == (0.5, 2, 1.0)
    p.after(0.8, 1.0)  # a worse batch takes nothing back
    assert p.best == 0.5


def test_a_search_ends_by_itself_and_spends_on_what_saves():
    """Of two kernels of one weight the one that gets faster has most of the batches."""
    a, b = progress(0.5), progress(0.5)
    count = 0
    while (p := following([a, b])) is not None:
        count += 1
        p.after(p.best * (0.9 if p is a and p.batches < 12 else 1.0), 1.0)

    assert count < 40
    assert a.batches > 2 * b.batches
    assert sum(p.task.weight * p.best for p in (a, b)) == pytest.approx(0.5 * 0.9**12 + 0.5)


def test_the_forecast_grows_with_time_and_has_an_end():
    p = [progress(1.0, hope=0.1, batches=1, seconds=1.0), progress(0.3, hope=0.2, batches=1, seconds=3.0)]

    found = [forecast(p, seconds) for seconds in (0, 1, 10, 1e9)]

    assert found[0] == 0
    assert found == sorted(found)
    assert found[-1] == pytest.approx(2 * (0.1 + 0.06), rel=1e-3)


def test_equal_kernels_are_one_task_and_empty_ones_none():
    names = ["x", "a", "b", "y"]
    nodes = [helper.make_node("Softmax", [a], [b], axis=1) for a, b in itertools.pairwise(names)]
    lowered = compiler.lower(model(nodes, [value("x", (3, 5))], [value("y", (3, 5))]), TARGET)
    tasks = tasks_of(lowered, TARGET)

    assert sum(t.launches for t in tasks) == len([s for s in lowered.unpacked if isinstance(s, KernelStep)])
    assert len(tasks) < len(lowered.unpacked)
    assert len({t.kernel.digest for t in tasks}) == len(tasks)


def test_between_two_launches_lie_the_weights_and_results_of_the_model():
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Softmax", ["a"], ["y"])]
    weights = numpy_helper.from_array(np.ones((5, 7), np.float32), "w")
    made = model(nodes, [value("x", (3, 5))], [value("y", (3, 7))], [weights])

    tasks = tasks_of(compiler.lower(made, TARGET), TARGET)

    assert [t.between for t in tasks] == [4 * (35 + 21 + 21)] * 2


def test_weights_are_seconds_of_all_launches():
    task = SimpleNamespace(kernel=SimpleNamespace(digest="d"), seconds=0.0, launches=2)
    other = SimpleNamespace(kernel=SimpleNamespace(digest="e"), seconds=0.0, launches=1)
    looped = SimpleNamespace(kernel=SimpleNamespace(digest="f"), seconds=0.0, launches=10)  # one launch, ten steps

    times = [("s1", 1e-3), ("host", 9.0), ("s2", 3e-3), ("s3", 5e-3)]
    weigh([task, other, looped], {"s1": "d", "s2": "d", "s3": "f"}, times)

    assert (task.seconds, other.seconds, looped.seconds) == (2e-3, 0.0, 5e-4)
