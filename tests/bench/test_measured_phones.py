"""ncnn's published times beside predictions: how the table is read, shared, compared and told."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from bench.measured import phones
from bench.measured.phones import NETWORKS, Predicted, Published
from bench.models import build
from gpucomp.cli.commands import gpucomp as program
from gpucomp.kernel_bench.formats import load

TABLE = """# source: nowhere; ms
device,chip,line,network,ms
Adreno 640,Some chip,1,mobilenet,4.0
Adreno 640,Some chip,1,mobilenet_v2,3.0
Adreno 640,Some chip,1,resnet18,9.0
Adreno 512,Another chip,9,mobilenet,20.0
Mali-G610,A board,17,mobilenet,2.0
Mali-G610,A board,17,alexnet,2.0
Nonesuch 7,A toaster,25,mobilenet,1.0
"""


def table(tmp_path):
    (tmp_path / "some.csv").write_text(TABLE)
    return load(tmp_path / "some.csv")


def rows(tmp_path, *devices):
    return phones.published(table(tmp_path), devices, (), [])


def test_rows_are_those_of_known_gpus_and_networks(tmp_path):
    notes = []

    found = phones.published(table(tmp_path), (), (), notes)

    assert [(row.device, row.network, row.ms) for row in found] == [
        ("Adreno 640", "mobilenet", 4.0),
        ("Adreno 640", "mobilenet_v2", 3.0),
        ("Adreno 640", "resnet18", 9.0),
        ("Adreno 512", "mobilenet", 20.0),
        ("Mali-G610", "mobilenet", 2.0),
    ]
    assert {row.device: row.figures for row in found} == {
        "Adreno 640": "Adreno 640",
        "Adreno 512": "Adreno 640",
        "Mali-G610": "Mali-G610 MP4",
    }
    assert notes == ["Nonesuch 7: nothing is known of it"]
    assert [row.network for row in phones.published(table(tmp_path), ("Adreno 640",), ("resnet18",), [])] == [
        "resnet18"
    ]


def test_gpus_with_the_same_figures_share_a_prediction(tmp_path, monkeypatch):
    asked = []

    def predicted(device, network, *, precision):
        asked.append((device, network, precision))
        return Predicted(1000.0 * len(asked), 0.0, 1)

    monkeypatch.setattr(phones, "predicted", predicted)
    wanted = [row for row in rows(tmp_path) if row.network == "mobilenet"]

    found = phones.predictions(wanted, "fp32", 1)

    assert asked == [("Adreno 640", "mobilenet", "fp32"), ("Mali-G610", "mobilenet", "fp32")]
    assert [found[row].us for row in wanted] == [1000.0, 1000.0, 2000.0]


@pytest.mark.parametrize(("last", "order"), [(8000.0, "1.000"), (1000.0, "-0.500 (low)")])
def test_ratios_and_the_order_are_told_for_each_gpu(last, order, tmp_path):
    wanted = rows(tmp_path, "Adreno 640")
    times = {"mobilenet": 2000.0, "mobilenet_v2": 1500.0, "resnet18": last}
    found = {row: Predicted(times[row.network], 250.0, 10) for row in wanted}

    said = list(phones.lines(wanted, found))

    ends = sorted(found[row].us / row.ms / 1e3 for row in wanted)
    assert said[2] == (
        f"| Adreno 640 | Some chip | Adreno 640 | 3 | 0.50 | {ends[0]:.2f} to {ends[-1]:.2f} | {order} | nan |"
    )
    assert "| mobilenet_v2 | 3.00 | 1.50 | 0.25 | 10 | 0.50 |" in said


def test_the_order_of_other_gpus_is_that_of_their_means():
    times = {"a": (1.0, 2.0, 3.0), "b": (10.0, 20.0, 30.0), "c": (3.0, 1.0, 2.0)}
    every = [
        Published(device, "", "", network, ms)
        for device, known in times.items()
        for network, ms in zip(("x", "y", "z"), known, strict=True)
    ]
    every += [Published("d", "", "", "x", 9.0)]  # which has not all of the networks
    a, b, c, _ = phones.groups_of(every)

    assert phones.order_elsewhere(b, every) == phones.order_elsewhere(a, every)
    assert phones.order_elsewhere(c, every) == pytest.approx(-0.5)


def test_a_prediction_is_what_the_command_line_prints(tmp_path, monkeypatch):
    monkeypatch.setattr(phones, "NETWORKS", {"mobilenet": ("mobilenet_v1", {"reduced": True})})
    model = tmp_path / "model.onnx"
    model.write_bytes(build("mobilenet_v1", reduced=True).SerializeToString())
    arguments = ["bench", str(model), "--static", "--target", "opencl:mali", "--json", str(tmp_path / "report.json")]

    found = phones.predicted("Mali-G610", "mobilenet", precision="fp32")

    assert CliRunner().invoke(program, arguments).exit_code == 0
    report = json.loads((tmp_path / "report.json").read_text())
    assert found.us == pytest.approx(report["predicted_us"])
    assert found.launches == len(report["kernels"])
    assert 0 < found.launch_us < found.us


def test_the_command_writes_what_it_prints(tmp_path, monkeypatch, capsys):
    table(tmp_path)
    small = {name: (NETWORKS[name][0], {"reduced": True}) for name in ("mobilenet", "mobilenet_v2", "resnet18")}
    monkeypatch.setattr(phones, "NETWORKS", small)
    files = ["--json", str(tmp_path / "found.json"), "--markdown", str(tmp_path / "found.md")]

    assert phones.main(["--table", str(tmp_path / "some.csv"), "--devices", "Adreno 640", "--jobs", "1", *files]) == 0

    assert (tmp_path / "found.md").read_text() == capsys.readouterr().out
    found = json.loads((tmp_path / "found.json").read_text())
    assert [(one["device"], one["chip"], one["problems"]) for one in found["devices"]] == [
        ("Adreno 640", "Some chip", 3)
    ]
    assert all(one["predicted_ms"] > 0 for one in found["networks"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--networks", "no_such"], "no network 'no_such'"), (["--devices", "none"], "has no times")],
)
def test_what_is_not_there_is_named(arguments, said, capsys):
    with pytest.raises(SystemExit):
        phones.main(arguments)

    assert said in capsys.readouterr().err


def test_the_table_names_its_source_and_only_known_gpus_and_networks():
    shipped, notes = load(phones.TABLE), []

    found = phones.published(shipped, (), (), notes)

    assert "Tencent/ncnn @" in shipped.comment
    assert notes == []
    assert len(found) == len(shipped.rows) == len(set(found))
    assert all(isinstance(row, Published) and 1 < row.ms < 2000 for row in found)
    assert min(len(group) for group in phones.groups_of(found)) >= 7
