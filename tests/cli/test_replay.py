"""``gpucomp replay``: a table for people, JSON for machines, one line for mistakes."""

import csv
import json

import pytest

from tests.tuning.spaces import tiled, write_cache

pytestmark = pytest.mark.usefixtures("compiled")


@pytest.fixture
def cache(tmp_path):
    return write_cache(tmp_path / "t.json", tiled())


def test_replay_prints_a_row_a_file_and_sampler_and_the_mean(command, cache, tmp_path):
    other = write_cache(tmp_path / "u.json", tiled(1))

    ran = command(
        "replay", str(cache), str(other), "--sampler", "random", "--sampler", "grid", "--trials", "50", "--seeds", "2"
    )

    assert ran.code == 0
    rows = [line.split() for line in ran.out.splitlines() if line.strip()]
    assert [row[:2] for row in rows[3:]] == [
        ["t.json", "random"], ["t.json", "grid"], ["u.json", "random"], ["u.json", "grid"], ["mean", "random"], ["mean", "grid"],
    ]  # fmt: skip


def test_replay_gives_json_with_the_fraction_at_every_budget(command, cache, tmp_path):
    ran = command(
        "replay", str(cache), "--sampler", "genetic", "--trials", "200", "--seeds", "2", "--json", "-", "--csv", "t.csv"
    )

    (found,) = json.loads(ran.out)
    rows = list(csv.DictReader((tmp_path / "t.csv").read_text().splitlines()))
    assert [int(row["trials"]) for row in rows] == [25, 50, 100, 200]
    assert [float(row["fraction of the optimum"]) for row in rows] == list(found["fraction_of_optimum"].values())
    assert [[float(row["low"]), float(row["high"])] for row in rows] == list(found["interval"].values())
    assert (found["file"], found["sampler"]) == ("t.json", "genetic")
    assert list(found["fraction_of_optimum"]) == ["25", "50", "100", "200"]
    assert all(0 < value <= 1 for value in found["fraction_of_optimum"].values())
    assert len(found["curve"]) == 200


def test_replay_learns_from_another_file_and_writes_a_report(command, cache, tmp_path):
    ran = command("replay", str(cache), "--trials", "12", "--seeds", "1", "--prior", str(cache), "--json", "r.json")

    (found,) = json.loads((tmp_path / "r.json").read_text())
    assert found["prior"] == ["t.json"]
    assert found["sampler"] == "model"
    assert found["fraction_of_optimum"] == {"12": 1.0}  # its own records name its best
    assert "t.json" in ran.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gone.json",), "cannot read 'gone.json'"),
        (("t.json", "--sampler", "simplex"), "--sampler 'simplex': one of model, genetic"),
        (("t.json", "--prior", "gone.json"), "cannot read 'gone.json'"),
        (("t.json", "--trials", "0"), "--trials"),
        ((), "Missing argument"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(command, cache, arguments, message):
    ran = command("replay", *arguments)

    assert ran.code == 2
    assert message in ran.err
    assert len(ran.err.splitlines()) == 1
