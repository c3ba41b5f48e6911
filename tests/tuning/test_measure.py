"""When a measurement ends and what it says, by clocks that are made up: noise, drops, throttling, hopeless candidates."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from gpucomp.tuning.measure import Patience, Rules, in_turn, interval, measure, noise_of


class Machine:
    """A clock that runs as things are run; ``speed(now)`` scales everything, ``noise`` is a relative deviation."""

    def __init__(self, noise=0.0, speed=lambda now: 1.0, seed=0):
        self.now, self.noise, self.speed = 0.0, noise, speed
        self.draw = random.Random(seed)

    def program(self, seconds):
        def run():
            took = seconds * self.speed(self.now) * (1 + abs(self.draw.gauss(0, self.noise)))
            self.now += took
            return took

        return run

    def clock(self):
        return self.now


def test_quiet_samples_end_it_at_once():
    m = Machine()

    found = measure(m.program(0.03), m.program(0.01), clock=m.clock)

    assert (found.ended, len(found.samples)) == ("quiet", Rules().least)
    assert found.ratio == pytest.approx(3.0)


def test_noise_takes_more_rounds_and_time_ends_it():
    m = Machine(noise=0.2)

    found = measure(m.program(0.01), m.program(0.01), clock=m.clock)

    assert found.ended == "time"
    assert len(found.samples) > 2 * Rules().least
    assert found.noise > Rules().noise


def test_rounds_end_it_when_time_does_not():
    m = Machine(noise=0.2)

    found = measure(m.program(1e-6), m.program(1e-6), clock=m.clock)

    assert (found.ended, len(found.samples)) == ("rounds", Rules().most)


def test_a_candidate_twice_as_slow_as_the_best_is_given_up():
    m = Machine()

    found = measure(m.program(0.021), m.program(0.01), best=1.0, clock=m.clock)

    assert (found.ended, len(found.samples)) == ("hopeless", Rules().screening)


def test_a_candidate_not_quite_as_slow_is_not():
    m = Machine()

    assert measure(m.program(0.019), m.program(0.01), best=1.0, clock=m.clock).ended == "quiet"


@pytest.mark.parametrize("drop", [1.3, 2.0, 5.0])
def test_a_clock_that_drops_changes_no_ratio(drop):
    for at in (0.0, 0.035, 0.1, 0.2):
        m = Machine(speed=lambda now, at=at: drop if now > at else 1.0)

        found = measure(m.program(0.012), m.program(0.01), clock=m.clock, rules=Rules(least=9, seconds=9))

        assert found.ratio == pytest.approx(1.2, rel=0.01)


def test_a_neighbour_that_comes_and_goes_changes_no_ratio():
    """It has the machine four tenths of the time, for about as long as a sample takes, and slows it up to four times."""
    for seed in range(20):
        draw = random.Random(seed)
        bursts = [draw.uniform(1.5, 4) if draw.random() < 0.4 else 1.0 for _ in range(1000)]
        m = Machine(noise=0.01, speed=lambda now, bursts=bursts: bursts[int(now / 0.015) % 1000], seed=seed)

        found = measure(m.program(0.008), m.program(0.01), clock=m.clock, rules=Rules(least=20, seconds=9))

        assert found.ratio == pytest.approx(0.8, rel=0.03)


def test_throttled_rounds_do_not_count():
    m, told = Machine(speed=lambda now: 3.0 if now < 0.2 else 1.0), []

    def held_back():
        told.append(m.now < 0.26)  # a round that began before it was over
        return told[-1]

    found = measure(m.program(0.01), m.program(0.01), held_back=held_back, clock=m.clock)

    assert found.throttled == sum(told) > 0
    assert max(found.samples) == pytest.approx(0.01)


def test_a_device_that_is_always_held_back_gives_no_samples():
    m = Machine()

    found = measure(m.program(0.01), m.program(0.01), held_back=lambda: True, clock=m.clock)

    assert (found.ended, found.samples, found.throttled) == ("throttled", [], Rules().throttled)
    assert math.isinf(found.ratio)


def test_rows_in_turn_are_ratios_to_the_anchor_around_them():
    m = Machine(speed=lambda now: 1 + now)  # ever slower

    rows = in_turn([m.program(1e-3), m.program(2e-3), m.program(0.5e-3)], 7, 1.0, clock=m.clock)

    assert len(rows) == 7
    assert [statistics.median(column) for column in zip(*rows, strict=True)] == pytest.approx([1, 2, 0.5], rel=1e-2)


def test_equal_programs_are_as_fast_as_each_other_however_rare_slow_samples_are():
    m = Machine(noise=0.2)

    rows = in_turn([m.program(1e-3)] * 3, 20_000, 1e9, clock=m.clock)

    assert [statistics.median(column) for column in zip(*rows, strict=True)] == pytest.approx([1, 1, 1], abs=4e-3)


def test_the_interval_holds_the_median_as_often_as_it_says():
    draw, inside = random.Random(3), 0
    for _ in range(400):
        low, high = interval([draw.lognormvariate(0, 0.3) for _ in range(31)])
        inside += low <= 1.0 <= high

    assert 0.93 <= inside / 400 <= 0.995


def test_the_interval_of_few_values_is_all_of_them():
    assert interval([3.0, 1.0, 2.0]) == (1.0, 3.0)
    assert interval([]) == (0.0, math.inf)


def test_the_noise_of_the_median_is_its_standard_error():
    draw = random.Random(5)
    medians = [statistics.median(draw.gauss(1, 0.1) for _ in range(25)) for _ in range(400)]
    found = statistics.mean(noise_of([draw.gauss(1, 0.1) for _ in range(25)]) for _ in range(400))

    assert found == pytest.approx(statistics.stdev(medians), rel=0.2)


def test_patience_is_learned():
    patience = Patience(first=60, least=5, most=120)
    for _ in range(4):
        patience.learn(1.0)
    assert patience.limit == 60

    patience.learn(1.0)
    assert patience.limit == 12
    for _ in range(50):
        patience.learn(0.01)
    assert patience.limit == 5
    for _ in range(500):
        patience.learn(100.0)
    assert patience.limit == 120
