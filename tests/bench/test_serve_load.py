"""``bench.serve_load``, with less to do."""

import json

import pytest

for package in ("uvicorn", "starlette", "prometheus_client"):
    pytest.importorskip(package, reason=f"could not import '{package}'")
pytest.importorskip("tritonclient.http", reason="pip install tritonclient[http]")
pytest.importorskip("psutil", reason="could not import 'psutil'")

from bench import serve_load
from gpucomp import config


def test_every_answer_is_right_and_the_report_is_written(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("GPUCOMP_CACHE", str(config.current().cache))  # of the server
    places = tmp_path / "load.md", tmp_path / "load.json"
    small = ["--minutes", "0.01", "--rate", "20", "--clients", "4"]

    code = serve_load.main([*small, "--markdown", str(places[0]), "--json", str(places[1])])

    found = json.loads(places[1].read_text())
    run = found["soak"]
    assert code == 0
    assert run["ended"] == {"right": run["offered"]}
    assert (run["lost"], found["more_than_answered"]) == (0, 0)
    assert set(run["models"]) == set(found["server"]) == {"resnet", "decoder"}
    assert len(run["rss_mib"]) == 3
    assert "| decoder | " in places[0].read_text()
    capsys.readouterr()


def test_a_wrong_answer_is_noticed():
    class Client:
        def __init__(self, number, scale):
            self.number, self.scale = number, scale

        def infer(self, model, inputs, request_id):
            return self

        def get_response(self):
            return {"id": self.number}

        def as_numpy(self, name):
            return self.scale * case.expected[name]

    array = serve_load.np.ones((1, 2), serve_load.np.float32)
    case = serve_load.Case("m", {"x": array}, {"y": array})

    assert serve_load.ask(Client("7", 1), 7, case) == "right"
    assert serve_load.ask(Client("7", 1.01), 7, case) == "wrong"
    assert serve_load.ask(Client("8", 1), 7, case) == "another's"


def test_the_knee_is_the_last_rate_before_latencies_bend(monkeypatch):
    class Load:
        def run(self, rate, seconds, seed):
            tally = serve_load.Tally()
            tally.ended.update(offered=100, right=100)
            tally.seconds["m"] = [0.1 if rate > 180 else 0.01] * 100
            return tally

    knee, rows = serve_load.find_knee(Load(), 100.0, 1.0)

    assert knee == pytest.approx(140)
    assert [round(row["rate"]) for row in rows] == [100, 140, 196, 196]
