"""The table of legal points: lookup, neighbours, families, and what a model sees of it."""

import dataclasses
import itertools

import numpy as np
import pytest

from gpucomp.device.limits import Limits
from gpucomp.errors import UsageError
from gpucomp.kernel import Loops
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.sizes import Sizes, Tunables, tunable
from gpucomp.schedule.space import Family, Work
from gpucomp.tuning import space
from gpucomp.tuning.encoding import encode
from gpucomp.tuning.space import Candidates
from tests.tuning.spaces import empty, made, table

SMALL = table([8, 0], [8, 1], [16, 0], [64, 0], [64, 1], names=("tile", "flag"))


class Extent(Sizes):
    n: int


def family(tiles=(8, 16, 24, 32), depths=(1, 2, 4), **given):
    class Toy(Tunables):
        tile: int = tunable(tiles, "")
        depth: int = tunable(depths, "")
        fast: int = tunable((0, 1), "")

    def objections(s, p, limits):
        if s.tile * s.depth > limits.threads:
            yield "too many threads"

    return Family(
        name="toy",
        body=Loops,
        emit=lambda kernel, *others: "",
        space=Toy,
        sizes=lambda kernel: Extent(n=1),
        objections=objections,
        derive=lambda s, p: Sizes(),
        geometry=lambda s, p: Geometry((-(-p.n // s.tile), 1, 1), (s.tile, s.depth, 1)),
        default=lambda p, limits: Toy(tile=8, depth=1, fast=0),
        estimate=lambda s, p, limits: 100.0 / s.tile + s.depth,
        work=lambda s, p: Work(macs=float(s.tile), cache_bytes=4.0 * s.depth),
        **given,
    )


def test_a_row_is_found_again():
    assert [SMALL.find(s) for s in SMALL.schedules()] == list(range(5))


@pytest.mark.parametrize(
    "schedule", [{"tile": 16, "flag": 1}, {"tile": 12, "flag": 0}, {"tile": 8}, {"tile": 99, "flag": 0}]
)
def test_what_is_not_in_the_table_is_not_found(schedule):
    assert SMALL.find(schedule) is None


def test_many_rows_are_found_at_once_and_strangers_are_minus_one():
    wanted = np.array([[64, 1], [16, 1], [7, 0], [8, 0]])

    assert SMALL.find_all(wanted).tolist() == [4, -1, -1, 0]


def test_neighbours_differ_in_one_parameter():
    assert sorted(SMALL.neighbours(0).tolist()) == [1, 2, 3]
    assert sorted(SMALL.neighbours(4).tolist()) == [1, 3]


def test_adjacent_neighbours_step_to_the_next_legal_value():
    assert sorted(SMALL.neighbours(0, adjacent=True).tolist()) == [1, 2]
    assert sorted(SMALL.neighbours(4, adjacent=True).tolist()) == [1, 3]  # (16, 1) is illegal: 8 is the next below 64


def test_neighbours_agree_with_the_definition_on_a_space_with_holes():
    values = np.array([v for v in itertools.product((1, 2, 5), (0, 1, 2, 3), (7, 9)) if sum(v) % 3])
    space = Candidates(("a", "b", "c"), values)

    for row in range(len(space)):
        expected = np.flatnonzero((values != values[row]).sum(1) == 1)
        assert sorted(space.neighbours(row).tolist()) == expected.tolist()


def test_a_point_that_appears_twice_is_refused():
    with pytest.raises(UsageError, match="repeated point"):
        table([1, 2], [1, 2])


def test_empty_and_single_point_spaces():
    assert (len(empty()), empty().encoding.matrix.shape, empty().find({"a": 1, "b": 2})) == (0, (0, 0), None)
    one = table([4, 2])
    assert (len(one), one.encoding.matrix.shape, one.neighbours(0).tolist()) == (1, (1, 0), [])


def test_a_family_gives_exactly_its_legal_schedules_and_its_default():
    limits, toy = Limits(threads=48), family()

    space = Candidates.from_family(toy, Extent(n=77), limits)

    assert list(space.schedules()) == list(toy.legal(Extent(n=77), limits))
    assert space.schedule(space.default) == {"tile": 8, "depth": 1, "fast": 0}
    assert space.extents == (77,)
    assert {"groups", "items", "macs", "estimate"} <= set(space.derived)


@pytest.mark.parametrize("most", [2, 300_000])
def test_what_a_model_expects_most_of_is_among_the_points_and_measured_first(most, monkeypatch):
    """Whether it was drawn or not."""
    monkeypatch.setattr(space, "ENUMERATED", most)
    leading = [{"tile": 24, "depth": 2, "fast": 1}, {"tile": 16, "depth": 4, "fast": 0}]

    found = Candidates.from_family(family(), Extent(n=100), Limits(threads=64), most=3, leading=leading)
    sampler = made("model", found, seed=1)

    assert [found.schedule(row) for row in found.leading] == leading
    asked = [found.schedule(row) for row in sampler.ask(3)]
    assert asked == [{"tile": 8, "depth": 1, "fast": 0}, *leading]


def test_what_is_expected_is_the_model_s_word():
    found = Candidates.from_family(
        family(), Extent(n=100), Limits(threads=64), expect=lambda values: 7.0 - values[:, 0]
    )

    assert found.expected.tolist() == [7.0 - s["tile"] for s in found.schedules()]


@pytest.mark.parametrize("warp", [1, 32])
def test_of_an_engine_that_nobody_models_what_is_like_the_default_is_expected_to_be_fast(warp):
    """On a processor that plays work-items one by one, behind that what has more of them or keeps more."""
    toy = dataclasses.replace(
        family(),
        registers=lambda s, p: 10 - s.fast if s.tile < 32 else 20,
        geometry=lambda s, p: Geometry((1, 1, 1), (s.tile, s.depth, 1), workspace_bytes=4 * (s.tile == 24)),
    )

    found = Candidates.from_family(toy, Extent(n=100), Limits(threads=64, warp=warp))

    for s, expected in zip(found.schedules(), found.expected.tolist(), strict=True):
        changes = (s["tile"] != 8) + (s["depth"] != 1) + (s["fast"] != 0)
        heavier = (s["tile"] * s["depth"] > 8) + (s["tile"] == 32) + (s["tile"] == 24)
        assert expected == changes + (3 * heavier if warp == 1 else 0)


def test_a_space_without_a_legal_default_or_a_model_expects_nothing():
    legal = family()
    toy = dataclasses.replace(legal, default=lambda p, limits: legal.space(tile=8, depth=3, fast=0))

    found = Candidates.from_family(toy, Extent(n=100), Limits(threads=64))

    assert found.default is found.expected is None
    assert len(made("model", found, seed=1).ask(100)) == len(found) > 10


def test_of_a_space_that_is_drawn_half_is_near_the_default(monkeypatch):
    limits, toy = Limits(threads=2000), family(tiles=tuple(range(1, 60)), depths=tuple(range(1, 30)))
    monkeypatch.setattr(space, "ENUMERATED", 10)

    few, many = (Candidates.from_family(toy, Extent(n=100), limits, most=most, seed=3) for most in (400, 6000))

    near = [
        (t, d, f)
        for t in range(1, 60)
        for d in range(1, 30)
        for f in (0, 1)
        if t * d <= 2000 and (t != 8) + (d != 1) + (f != 0) <= 2
    ]
    assert [p for p in near if many.find(dict(zip(("tile", "depth", "fast"), p, strict=True))) is None] == []
    assert len(few) == 400
    assert (few.values != few.values[few.default]).sum(1).tolist().count(1) == 58 + 28 + 1  # all, before those of two


def test_a_space_too_large_to_list_is_drawn_legal_and_without_repetition():
    toy, limits = family(tiles=tuple(range(1, 400)), depths=tuple(range(1, 401))), Limits(threads=2000)

    space = Candidates.from_family(toy, Extent(n=100), limits, most=500, seed=3)
    again = Candidates.from_family(toy, Extent(n=100), limits, most=500, seed=3)

    assert len(space) == 500
    assert not [s for s in space.schedules() if toy.reasons(s, Extent(n=100), limits)]
    assert np.array_equal(space.values, again.values)
    assert space.schedule(space.default) == {"tile": 8, "depth": 1, "fast": 0}


def test_of_a_large_space_that_is_listed_many_points_are_drawn_and_the_default_s_neighbours_stay():
    toy, limits = family(tiles=tuple(range(1, 60)), depths=tuple(range(1, 30))), Limits(threads=2000)
    everything = Candidates.from_family(toy, Extent(n=100), limits)
    default = everything.schedule(everything.default)

    found = Candidates.from_family(toy, Extent(n=100), limits, most=300, seed=3)

    near = [everything.schedule(row) for row in everything.neighbours(everything.default)]
    assert len(everything) > 1000
    assert 300 <= len(found) <= 301 + len(near)
    assert found.schedule(found.default) == default
    assert [s for s in near if found.find(s) is None] == []
    assert [s for s in found.schedules() if everything.find(s) is None] == []
    assert np.array_equal(found.values, Candidates.from_family(toy, Extent(n=100), limits, most=300, seed=3).values)
    assert {len(column) for column in found.derived.values()} == {len(found)}


def test_categories_are_told_apart_and_absent_sizes_are_marked():
    values = np.array([[0, 8], [0, 16], [1, 0], [2, 0], [2, 32]])

    found = encode(("engine", "tile"), values, categories={"engine"})

    column = dict(zip(found.names, found.matrix.T.tolist(), strict=True))
    assert column["engine is 1"] == [0, 0, 1, 0, 0]
    assert column["tile is none"] == [0, 0, 1, 1, 0]
    assert column["log2(tile)"] == [0, 0.5, 0.5, 0.5, 1]


def test_a_million_points_are_found_and_have_neighbours():
    values = np.stack(np.unravel_index(np.arange(10**6), (10,) * 6), 1) + 1

    space = Candidates(tuple("abcdef"), values)

    assert len(space) == 10**6
    assert values[space.find(dict(zip("abcdef", (3, 1, 4, 1, 5, 9), strict=True)))].tolist() == [3, 1, 4, 1, 5, 9]
    assert len(space.neighbours(123_456)) == 54
    assert space.encoding.matrix.dtype == np.float32


def test_sizes_become_logarithms_alignment_and_divisibility():
    found = encode(("tile", "flag"), np.array([[v, k] for v in (8, 12, 16, 24, 48, 64) for k in (0, 1)]), extents=(48,))

    assert found.names == ("log2(tile)", "tile is no power of 2", "power of 2 in tile", "tile divides 48", "flag")
    column = dict(zip(found.names, found.matrix.T, strict=True))
    assert column["tile divides 48"].tolist() == [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0]
    assert column["tile is no power of 2"].tolist() == [0, 0, 1, 1, 0, 0, 1, 1, 1, 1, 0, 0]


def test_constant_and_repeated_features_are_dropped():
    values = np.array([[k, 3, 2 * k, -k] for k in (1, 2, 4, 8)])

    assert encode(("a", "b", "c", "d"), values).names == ("log2(a)", "d")


def test_unknown_derived_values_are_in_the_middle():
    found = encode(("a",), np.array([[0], [1], [0], [1], [1]]), derived={"us": np.array([1.0, 4.0, 16.0, np.nan, 4.0])})

    assert found.names == ("a", "us")
    assert found.matrix[:, 1].tolist() == [0, 0.5, 1, 0.5, 0.5]


def test_a_rare_legal_point_is_found_by_steps_from_the_default():
    """One combination in 2,000 is legal, all of them next to each other."""
    toy, limits = family(tiles=tuple(range(8, 608)), depths=tuple(range(1, 601))), Limits(threads=48)

    space = Candidates.from_family(toy, Extent(n=100), limits, most=60, seed=1)

    assert len(space) > 30
    assert not [s for s in space.schedules() if toy.reasons(s, Extent(n=100), limits)]


def test_what_a_model_calls_impossible_is_at_the_far_end():
    found = encode(("a",), np.array([[0], [1], [0], [1]]), derived={"us": np.array([1.0, 4.0, 16.0, np.inf])})

    assert found.matrix[:, 1].tolist() == [0, 0.5, 1, 1]
