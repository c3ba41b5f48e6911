"""Recorded spaces from files: Kernel Tuner's caches, T4, gpucomp's records; and files that are none."""

import gzip
import json

import numpy as np
import pytest

from gpucomp.errors import UsageError
from gpucomp.schedule import records
from gpucomp.tuning.recorded import Row, distinct, read, space_of
from tests.tuning.spaces import tiled, write_cache


def trial(configuration, ratio, **given):
    device = {"kind": "cpu", "arch": "x86_64", "name": "a processor"}
    record = {"kind": "trial", "kernel": "k1", "device": device, "engine": "simt", "invalidity": "correct"}
    record |= {
        "timestamp": "2026-03-05T07:11:13.170+00:00",
        "configuration": configuration,
        "samples": [2.0],
        "ratio": ratio,
        "template": "",
        "source": "",
        "rendered": "",
    }
    return records.sealed(record | given)


def test_a_cache_is_read_with_its_failures_and_problem(tmp_path):
    space = tiled()

    (found,) = read(write_cache(tmp_path / "t.json", space))

    assert found.candidates.names == space.candidates.names
    assert np.array_equal(found.candidates.values, space.candidates.values)
    assert np.array_equal(found.seconds, space.seconds, equal_nan=True)
    assert found.failures == {"RuntimeFailedConfig": int(np.isnan(space.seconds).sum())}
    assert (found.device, found.candidates.extents, found.overhead[0]) == ("a formula", (1536,), 0.25)


def test_a_packed_cache_and_one_left_open_are_read_too(tmp_path):
    space = tiled()
    opened = write_cache(tmp_path / "open.json", space, open_ended=True)
    packed = tmp_path / "t.json.gz"
    packed.write_bytes(gzip.compress(write_cache(tmp_path / "t.json", space).read_bytes()))

    assert [len(read(path)[0].candidates) for path in (opened, packed)] == [len(space.candidates)] * 2


def test_t4_results_are_read(tmp_path):
    def result(tile, value, invalidity="correct"):
        measurement = {"name": "time", "value": value, "unit": "ms"}
        return {"configuration": {"tile": tile}, "invalidity": invalidity, "measurements": [measurement]}

    path = tmp_path / "t4.json"
    path.write_text(json.dumps({"results": [result(8, 2.5), result(16, 1.5), result(32, 0, "compile")]}))

    (found,) = read(path)

    assert found.optimum == 1.5
    assert found.failures == {"compile": 1}


def test_records_are_one_space_a_kernel_and_device(tmp_path):
    lines = [
        trial({"tile": 8}, 1.5),
        trial({"tile": 16}, 0.5),
        trial({"tile": 16}, 0.25, engine="mma"),
        trial({"tile": 32}, 0, samples=[], invalidity="runtime"),
        trial({"tile": 8}, 7.0, kernel="k2"),
        trial({"tile": 64}, 7.0)[:40],
        trial({"tile": 8}, 7.0, kind="task", problem={"m": 77, "n": 1}, label="Conv"),
        trial({"tile": 8}, 7.0, kind="launch"),
    ]
    path = tmp_path / "tuning.jsonl"
    path.write_text("\n".join(lines))

    first, second = read(path)

    assert (first.name, second.name) == ("tuning.jsonl: k1 Conv", "tuning.jsonl: k2")
    assert first.seconds.tolist()[:3] == [1.5, 0.5, 0.25]
    assert np.isnan(first.seconds[3])
    assert (first.device, first.candidates.extents, len(first.seconds)) == ("a processor", (77,), 4)
    assert first.labels == {"engine": ("mma", "simt")}
    assert "engine is 0" in first.candidates.encoding.names


def test_a_folder_of_records_has_the_spaces_of_its_files(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text(trial({"tile": 8}, 1.5, kernel=name))

    assert [space.name for space in read(tmp_path)] == ["a.jsonl: a", "b.jsonl: b"]


def test_a_folder_without_records_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no successful measurement"):
        read(tmp_path)


def test_devices_that_differ_in_one_thing_only_are_two_spaces(tmp_path):
    here = {"kind": "cuda", "arch": "sm_89", "name": "a card"}
    devices = [here, here | {"name": ""}, here | {"kind": "opencl"}, here | {"arch": "sm_80", "name": ""}]
    path = tmp_path / "tuning.jsonl"
    path.write_text("\n".join(trial({"tile": 8}, 1.5, device=device) for device in devices))

    assert [space.device for space in read(path)] == ["a card", "sm_89", "a card", "sm_80"]


def test_names_and_fractions_become_numbered_levels_and_match_by_name():
    one = space_of("a", "", [Row({"mode": m, "share": s}, 1.0) for m in ("row", "tile") for s in (0.5, 0.25, 10.0)])
    other = space_of("b", "", [Row({"mode": m, "share": s}, 2.0) for m in ("column", "row") for s in (0.25, 0.5)])

    assert one.labels == {"mode": ("row", "tile"), "share": ("0.25", "0.5", "10.0")}
    matched = [one.candidates.find(schedule) for schedule, _ in other.results_for(one)]
    assert matched == [None, None, 1, 0]


def test_a_point_measured_twice_keeps_its_smallest_time():
    space = space_of("a", "", [Row({"t": 1}, 3.0), Row({"t": 1}, 2.0), Row({"t": 1}, None), Row({"t": 2}, None)])

    assert (space.seconds[0], len(space.seconds), space.failures) == (2.0, 2, {"": 1})


def t4(**changes):
    result = {"configuration": {"tile": 8}, "measurements": [{"name": "time", "value": 2.5}]}
    return json.dumps({"results": [result | changes]}).encode()


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("a.json", b"{", "no JSON"),
        ("a.json", b"[1, 2]", "a JSON object expected"),
        ("a.json", b"{}", "neither a cache nor results"),
        ("a.json", b'{"cache": {"1": {}}}', "no tune_params_keys"),
        ("a.json", b'{"cache": {"1": {"b": 1}}, "tune_params_keys": ["a"]}', "lacks a parameter"),
        (
            "a.json",
            b'{"cache": {"1": {"a": 1, "time": "ErrorConfig"}}, "tune_params_keys": ["a"]}',
            "no successful measurement",
        ),
        ("a.json", b'{"results": [3]}', "a result without a configuration"),
        ("a.json", t4(objectives=5), "an invalid value"),
        ("a.json", t4(measurements=5), "an invalid value"),
        ("a.json", t4(configuration={"tile": [8]}), "an invalid value"),
        ("a.json", t4(configuration={"tile": 10**30}), "an invalid value"),
        ("a.json", t4(measurements=[{"name": "time", "value": 10**400}]), "no successful measurement"),
        ("a.json", t4(measurements=[{"name": ["time"], "value": 1}]), "an invalid value"),
        ("a.json", b"[" * 100_000, "no JSON"),
        ("a.json.gz", gzip.compress(b"{}" * 50, mtime=0)[:-9], "damaged"),
        ("a.jsonl", b"nothing of the kind", "no successful measurement"),
    ],
)
def test_what_is_no_record_is_refused(tmp_path, name, data, why):
    path = tmp_path / name
    path.write_bytes(data)

    with pytest.raises(UsageError, match=why):
        read(path)


def test_a_problem_size_that_no_problem_has_is_passed_over(tmp_path):
    space = json.loads(write_cache(tmp_path / "t.json", tiled()).read_text())
    (tmp_path / "t.json").write_text(json.dumps(space | {"problem_size": [10**400, 77, True, "x"]}))

    (found,) = read(tmp_path / "t.json")

    assert found.candidates.extents == (77,)
    assert len(found.candidates.encoding.names) > 0


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"cannot read '.*gone\.json': No such file"):
        read(tmp_path / "gone.json")


def test_equal_names_have_their_folders(tmp_path):
    spaces = []
    for folder in "ab":
        (tmp_path / folder).mkdir()
        file = write_cache(tmp_path / folder / "t.json", tiled())
        spaces += [(file, space) for space in read(file)]
    other = tmp_path / "u.json", read(write_cache(tmp_path / "u.json", tiled()))[0]

    names = [space.name for space in distinct([*spaces, other])]

    assert names == [f"{tmp_path}/a/t.json", f"{tmp_path}/b/t.json", "u.json"]
