"""Statistics of latency samples, and the error of an answer against another."""

import numpy as np
import pytest

from gpucomp.cli import measure
from gpucomp.cli.compare import SAME, Distance, Tolerance, distance, distances, relative_error, require
from gpucomp.cli.measure import Latency
from gpucomp.errors import AccuracyError, UsageError


class Clock:
    """Advances by the given milliseconds a run."""

    def __init__(self, *costs):
        self.now, self.costs, self.runs = 0.0, costs, 0

    def __call__(self):
        return self.now

    def run(self):
        self.now += self.costs[min(self.runs, len(self.costs) - 1)] / 1e3
        self.runs += 1


def test_warm_up_runs_are_not_among_the_samples():
    clock = Clock(900, 60, 60, 60, 5, 7)  # the first run compiles

    latency = measure.measure(clock.run, warmup_ms=150, duration_s=0, iterations=2, clock=clock)

    assert latency.warmup_runs == 3
    assert latency.samples_ms == pytest.approx((5, 7))


def test_the_method_counts_what_came_before_the_samples():
    said = [measure.method(Latency((5.0,) * n, n, 200.0, 1.0, 900.0), "cpu", "") for n in (0, 1, 2)]

    assert "0 samples after a first run of 900 ms, each" in said[0]
    assert "1 sample after a first run of 900 ms and 1 warm-up run (200 ms), each" in said[1]
    assert "2 samples after a first run of 900 ms and 2 warm-up runs (200 ms), each" in said[2]


def test_samples_are_taken_until_both_count_and_time_are_reached():
    clock = Clock(10)

    latency = measure.measure(clock.run, warmup_ms=0, duration_s=0.095, iterations=3, clock=clock)

    assert (latency.first_ms, latency.warmup_runs) == (pytest.approx(10), 0)
    assert len(latency.samples_ms) == 10


def test_percentiles_are_samples():
    latency = Latency(tuple(float(v) for v in (9, 1, 8, 2, 7, 3, 6, 4, 5, 10)), 1, 1.0, 1.0)

    assert [latency.percentile_ms(p) for p in (0.1, 10, 50, 90, 99, 100)] == [1, 1, 5, 9, 10, 10]
    assert latency.median_ms == 5.5
    assert latency.noise == pytest.approx((8 - 3) / 5.5)


def test_noisy_samples_are_diagnosed():
    lines = measure.summary(Latency((1.0, 2.0, 3.0, 4.0), 1, 1.0, 1.0))

    assert lines[-1].startswith("Diagnosis: unstable")


def test_steady_samples_are_not_diagnosed():
    lines = measure.summary(Latency((2.0, 2.0, 2.0, 2.0), 1, 1.0, 1.0))

    assert not any(line.startswith("Diagnosis") for line in lines)


@pytest.mark.parametrize(
    ("actual", "expected", "error"),
    [
        ([3.0, 4.0], [3.0, 4.0], 0),
        ([3.0, 4.5], [3.0, 4.0], 0.1),
        ([np.nan, 1.0], [np.nan, 1.0], 0),
        ([np.inf, 1.0], [np.inf, 2.0], 0.5),
        ([np.inf, 1.0], [-np.inf, 1.0], np.inf),
        ([np.nan, 1.0], [0.0, 1.0], np.inf),
        ([1.0, 1.0], [np.nan, 1.0], np.inf),
        ([1.0], [1.0, 1.0], np.inf),
        ([0.25, 0.0], [0.0, 0.0], 0.25),
        ([], [], 0),
    ],
)
def test_the_relative_error_is_a_distance_over_a_length(actual, expected, error):
    assert relative_error(np.array(actual), np.array(expected)) == pytest.approx(error)


def test_an_error_that_is_no_number_is_no_success():
    with pytest.raises(AccuracyError, match="output 'y'"):
        require({"x": SAME, "y": Distance(*[float("nan")] * 5)}, Tolerance(), "onnxruntime")


@pytest.mark.parametrize(
    ("actual", "expected", "right"),
    [
        ([1e-5 + 1.4e-7], [1e-5], True),  # a coarse sigmoid: 1.4e-2 relative, a rounding of 1 absolute
        ([1e-5 + 3e-6], [1e-5], False),
        ([0.0, 9e-7], [0.0, 0.0], True),
        ([0.0, 1.3e-6], [0.0, 0.0], True),  # its root mean square is what counts, not its largest element
        ([2e-6, 2e-6], [0.0, 0.0], False),
        ([100.009], [100.0], True),
        ([100.02], [100.0], False),
        ([1e30 * 1.00009, 0.0], [1e30, 0.0], True),
        ([np.nan], [1.0], False),
    ],
)
def test_an_error_is_judged_by_its_relative_and_its_absolute_size_together(actual, expected, right):
    assert Tolerance(1e-4, 1e-6).allows(distance(np.array(actual), np.array(expected))) == right


def test_without_an_absolute_part_the_relative_one_decides():
    far = distance(np.array([1e-5 + 1.4e-7]), np.array([1e-5]))

    assert not Tolerance(1e-4, 0.0).allows(far)


def test_other_outputs_cannot_be_compared():
    with pytest.raises(UsageError, match="cannot be compared"):
        distances({"x": np.zeros(1)}, {"y": np.zeros(1)})
