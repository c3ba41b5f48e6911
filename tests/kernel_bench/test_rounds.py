"""Turns and their statistics, on engines that are made up."""

import importlib.util
import itertools
import statistics

import numpy as np
import pytest

from gpucomp import targets
from gpucomp.kernel_bench import engines, rounds
from gpucomp.kernel_bench.models import RESULT
from gpucomp.kernel_bench.problem import Called
from gpucomp.kernel_bench.rounds import Measured, Row, Settings, interval, measure
from gpucomp.kernel_bench.specs import spec_of
from gpucomp.refusal import Refusal
from gpucomp.runtime.ceilings import Ceilings
from gpucomp.tuning.devices import OpenCL

SPEC = spec_of("gemm:m=4,n=6,k=8")


def settings(*against, **how):
    return Settings(targets.resolve("cpu"), against, 2, **({"seconds": 0.001, "rounds": 4, "cold": False} | how))


class Invented:
    """Calls take the seconds that are given, one after the other; it notes in ``order`` when it had a turn."""

    def __init__(self, name, result, seconds, order):
        self.name, self.result, self.times, self.order = name, result, itertools.cycle(seconds), order

    def output(self):
        return self.result

    def seconds(self, count, flush):
        self.order.append(self.name)
        if flush is not None:
            flush()
        return [next(self.times) for _ in range(count)]


@pytest.fixture
def invented(monkeypatch):
    """Replaces the engines by those that a test makes of a problem, with the order of their turns."""
    monkeypatch.setattr(rounds, "rest", lambda: None)

    def use(**made):
        for name, one in made.items():
            monkeypatch.setitem(engines.ENGINES, name, one)

    return use


def right(problem):
    return problem.arrays["a"].astype(np.float64) @ problem.arrays["b"].astype(np.float64)


def test_engines_take_turns_and_another_one_begins_each_round(invented):
    order = []
    invented(
        gpucomp=lambda p: Invented("gpucomp", right(p), [2.0], order),
        torch=lambda p: Invented("torch", right(p), [3.0], order),
    )

    (found,) = measure([SPEC], settings("torch"))

    assert order[2:] == ["gpucomp", "torch", "torch", "gpucomp"] * 2
    assert [row.turns_s for row in found.rows] == [[2.0] * 4, [3.0] * 4]
    assert found.ratio(found.rows[1]) == (1.5, 1.5, 1.5)


def test_a_wrong_kernel_is_told_before_it_is_timed(invented):
    order = []
    invented(
        gpucomp=lambda p: Invented("gpucomp", right(p), [2.0], order),
        torch=lambda p: Invented("torch", right(p) * 1.01, [1.0], order),
        numpy=lambda p: Refusal("there is none"),
    )

    (found,) = measure([SPEC], settings("torch", "numpy"))
    ours, wrong, none = found.rows

    assert "torch" not in order
    assert wrong.failure.startswith("wrong: relative error 1.00e-02")
    assert (wrong.median_s, wrong.interval_s, none.failure) == (None, None, "there is none")
    assert ours.median_s == 2.0


class Clock:
    """A process whose other threads take ``spinning`` seconds of a core and are idle then; it counts its own sleep."""

    def __init__(self, spinning):
        self.now, self.spinning = 0.0, spinning

    def monotonic(self):
        return self.now

    def process_time(self):
        return min(self.now, self.spinning)

    def sleep(self, seconds):
        self.now += seconds


@pytest.mark.parametrize(("spinning", "least", "most"), [(0.0, 0.0, 0.01), (0.06, 0.06, 0.08), (9.0, 1.0, 1.01)])
def test_a_turn_begins_when_the_threads_of_the_one_before_are_idle(monkeypatch, spinning, least, most):
    clock = Clock(spinning)
    monkeypatch.setattr(rounds, "time", clock)

    rounds.rest()

    assert least <= clock.now <= most


def test_caches_are_emptied_before_each_call_if_that_is_asked_for(invented, monkeypatch):
    flushed = []
    monkeypatch.setattr(rounds, "flusher", lambda target: lambda: flushed.append(1))
    invented(gpucomp=lambda p: Called(lambda: None, lambda: right(p)))

    measure([SPEC], settings(cold=True, seconds=1e-9))

    assert len(flushed) == rounds.WARMUPS + 4 * (rounds.WARMUPS + rounds.LEAST_CALLS)


def test_what_flushes_is_larger_than_the_cache():
    flush = rounds.flusher(targets.resolve("cpu"))

    assert flush().nbytes >= rounds.LEAST_FLUSHED


@pytest.mark.skipif(importlib.util.find_spec("pyopencl") is None, reason="pyopencl is not installed")
def test_the_caches_of_an_opencl_gpu_are_flushed_there(monkeypatch):
    monkeypatch.setattr(OpenCL, "noisy", False, raising=False)
    monkeypatch.setattr(
        OpenCL, "__setattr__", lambda self, name, value: name == "noisy" or object.__setattr__(self, name, value)
    )

    flush = rounds.flusher(targets.resolve("opencl:pocl"))
    flushed = flush()

    assert flushed[RESULT].nbytes >= rounds.LEAST_FLUSHED // 3 - 4
    assert not isinstance(flushed[RESULT], np.ndarray)


@pytest.mark.parametrize("count", [6, 9, 15, 40])
def test_an_interval_has_the_median_as_often_as_it_says(count):
    rng = np.random.default_rng(count)
    samples = rng.exponential(1.0, (4000, count))
    inside = [low <= np.log(2) <= high for low, high in map(interval, samples.tolist())]

    assert 0.94 < statistics.fmean(inside) < 1.0
    low, high = interval(samples[0].tolist())
    assert low < statistics.median(samples[0].tolist()) < high


def test_an_interval_of_few_samples_is_all_of_them():
    assert interval([3.0, 1.0, 2.0]) == (1.0, 3.0)
    assert interval([5.0]) == (5.0, 5.0)


def test_a_floor_is_the_longer_one_of_arithmetic_and_memory():
    ceilings = Ceilings(2, 100e9, ((1 << 16, 10e9), (1 << 26, 5e9)), 1e-6)
    large = spec_of("gemm:m=500,n=500,k=500")

    assert Measured(large, [Row("gpucomp", "1")], ceilings).floor_s() == pytest.approx(2 * 500**3 / 100e9)
    assert Measured(SPEC, [Row("gpucomp", "1")], ceilings).floor_s() == pytest.approx(4 * (32 + 48 + 24) / 10e9)
    assert Measured(spec_of("gemm:m=4,n=6,k=8,dtype=f16"), [Row("gpucomp", "1")], ceilings).floor_s() is None
    assert Measured(SPEC, [Row("gpucomp", "1")]).floor_s() is None
