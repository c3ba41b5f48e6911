"""Tokens of a decoder behind few and behind many keys, on a small one."""

import json

from bench import decoding


def test_every_engine_has_a_time_behind_each_number_of_keys(tmp_path, capsys):
    figures, page = tmp_path / "figures.json", tmp_path / "page.md"

    decoding.main(
        ["small", "--lengths", "9", "30", "--peers", "onnxruntime", "--json", str(figures), "--markdown", str(page)]
    )

    (row,) = json.loads(figures.read_text())
    assert row["ms"].keys() == {"9", "30"}
    assert all(ms.keys() == {"gpucomp", "onnxruntime"} and min(ms.values()) > 0 for ms in row["ms"].values())
    assert row["written"] == row["a row"] == 2 * 2 * 2 * 16 * 4  # layers, keys and values, groups, a head, f32
    assert row["differ"] < 1e-4
    assert "| small | 30 |" in page.read_text()
    assert "a run writes 512 bytes of the states, a row has 512" in capsys.readouterr().out
