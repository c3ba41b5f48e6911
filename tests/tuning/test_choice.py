"""Who wins: never by noise, never by a clock that drops, the default where nobody is clearly faster."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from gpucomp.tuning.choice import Comparison, Finalist, decide, kept
from gpucomp.tuning.measure import in_turn
from tests.tuning.test_measure import Machine


def final(times, machine, rounds=36):
    """The pick among candidates of ``times`` seconds; the first is the default."""
    rows = in_turn([machine.program(t) for t in times], rounds, 1e9, clock=machine.clock)
    return decide([Finalist([row[k] for row in rows], f"c{k}", k) for k in range(1, len(times))])


@pytest.mark.parametrize("noise", [0.02, 0.05, 0.1])
def test_noise_flips_few_winners_outside_of_the_tie(noise):
    flips, cases = 0, 200
    for seed in range(cases):
        draw = random.Random(seed)
        best = draw.uniform(0.5, 0.85)
        times = [1e-3, *(1e-3 * best * f for f in (1.0, draw.uniform(1.06, 1.3), draw.uniform(1.06, 2.0)))]
        order = [0, *draw.sample([1, 2, 3], 3)]
        pick = final([times[k] for k in order], Machine(noise, seed=seed))
        flips += pick is None or order[int(pick.name[1:])] != 1

    assert flips < 0.05 * cases


@pytest.mark.parametrize("noise", [0.02, 0.05, 0.1])
def test_noise_makes_no_winner_of_what_is_as_fast_as_the_default(noise):
    wrong = sum(final([1e-3] * 5, Machine(noise, seed=seed)) is not None for seed in range(100))

    assert wrong < 5


@pytest.mark.parametrize("times", [(1.0, 0.99, 0.985), (1.0, 1.1, 2.0), (1.0,)])
def test_what_is_not_clearly_faster_loses_to_the_default(times):
    assert final([1e-3 * t for t in times], Machine()) is None


def test_a_tie_goes_to_the_simplest():
    ratios = [0.8, 0.799, 0.801, 0.8, 0.8, 0.8, 0.8]
    simple = Finalist([r * 1.01 for r in ratios], "b", 1)

    assert decide([Finalist(ratios, "a", 5), simple, Finalist([r * 0.999 for r in ratios], "c", 3)]) is simple
    assert decide([Finalist(ratios, "a", 5), Finalist([r * 1.03 for r in ratios], "b", 1)]).name == "a"


@pytest.mark.parametrize("drop", [1.5, 3.0])
def test_a_clock_that_drops_never_changes_the_pick(drop):
    times = [1e-3, 0.8e-3, 0.72e-3, 0.9e-3]
    for at in [k * 7e-3 for k in range(30)]:
        machine = Machine(noise=0.01, speed=lambda now, at=at: drop if now > at else 1.0, seed=1)
        assert final(times, machine).name == "c2"
        machine = Machine(noise=0.01, speed=lambda now, at=at: drop if at < now < at + 0.05 else 1.0, seed=2)
        assert final(times, machine).name == "c2"


# the whole model


class Model:
    """A model whose picks each save their part, or cost it; ``pair`` are two that only help without each other."""

    def __init__(self, effects, noise=0.0):
        self.effects, self.draw, self.noise, self.builds = effects, random.Random(4), noise, set()

    def seconds(self, names):
        return 1.0 - sum(self.effects[name] for name in names)

    def __call__(self, anchor, others):
        self.builds |= {anchor, others}
        ratio = self.seconds(others) / self.seconds(anchor)
        return Comparison([ratio * self.draw.gauss(1, self.noise) for _ in range(25)])


def test_picks_that_help_stay():
    chosen, found = kept({"a": 0.2, "b": 0.1}, Model({"a": 0.15, "b": 0.05}))

    assert chosen == {"a", "b"}
    assert found.median == pytest.approx(0.8)


def test_a_pick_that_hurts_the_model_is_dropped_whatever_its_final_said():
    chosen, _ = kept({"a": 0.2, "b": 0.3, "c": 0.02}, Model({"a": 0.15, "b": -0.05, "c": 0.02}, noise=0.005))

    assert chosen == {"a", "c"}


def test_small_picks_stand_and_fall_together():
    picks = {"a": 0.2} | {f"s{k}": 0.001 for k in range(9)}
    model = Model({"a": 0.2} | {f"s{k}": -0.001 for k in range(9)})

    chosen, _ = kept(picks, model)

    assert chosen == {"a"}
    assert len(model.builds) == 4


@pytest.mark.parametrize(("comparisons", "built", "left"), [(0, 2, "abcd"), (1, 3, "bcd"), (9, 6, "bcd")])
def test_what_there_is_no_time_to_judge_is_judged_as_one(comparisons, built, left):
    picks = {"a": 0.4, "b": 0.3, "c": 0.2, "d": 0.1}
    model, times = Model({"a": -0.05, "b": 0.1, "c": 0.1, "d": 0.1}), iter([True] * comparisons)

    chosen, found = kept(picks, model, in_time=lambda: next(times, False))

    assert chosen == set(left)
    assert found.median < 1
    assert len(model.builds) == built


@pytest.mark.parametrize("effect", [0.0, -0.01, -0.3])
def test_a_tuned_model_is_never_slower_than_the_untuned(effect):
    for picks in ({"a": 0.2}, {"a": 0.2, "b": 0.2}):
        chosen, found = kept(picks, Model(dict.fromkeys(picks, effect), noise=0.02))

        assert chosen == frozenset()
        assert found.median == 1.0


class Placed(Model):
    """A model each process of which is faster or slower as a whole, by where its memory lies."""

    def __init__(self, effects, placement, seed):
        super().__init__(effects, noise=0.002)
        self.placement, self.draw = placement, random.Random(seed)

    def __call__(self, anchor, others):
        found = Comparison([])
        for _ in range(3):
            here = super().__call__(anchor, others).median * self.draw.gauss(1, self.placement)
            ratios = [here * self.draw.gauss(1, self.noise) for _ in range(20)]
            found += Comparison(ratios, processes=[statistics.median(ratios)])
        return found


def test_one_process_says_nothing_of_what_processes_have_in_common():
    lone = Comparison([0.9] * 20, processes=[0.9])

    assert lone.interval == (-math.inf, math.inf)
    assert kept({"a": 0.2}, lambda *_: lone, in_time=lambda: False)[0] == frozenset()


def test_luck_of_where_memory_lies_is_no_gain():
    slower = [kept({"a": 0.2}, Placed({"a": -0.01}, 0.01, seed))[0] for seed in range(200)]
    faster = [kept({"a": 0.2}, Placed({"a": 0.04}, 0.01, seed))[0] for seed in range(200)]

    assert sum(map(bool, slower)) <= 10
    assert sum(map(bool, faster)) >= 180


def test_an_interval_holds_what_several_processes_have_in_common():
    held = 0
    for seed in range(400):
        draw = random.Random(seed)
        centres = [draw.gauss(1, 0.02) for _ in range(3)]
        ratios = [[draw.gauss(c, 0.002) for _ in range(20)] for c in centres]
        low, high = Comparison(
            [r for row in ratios for r in row], processes=[statistics.median(r) for r in ratios]
        ).interval
        held += low <= 1 <= high

    assert held >= 366  # 380 are expected: three standard deviations fewer


def test_without_a_pick_nothing_is_built():
    model = Model({})

    assert kept({}, model)[0] == frozenset()
    assert model.builds == set()
