"""``gpucomp bench --kernel``: what it prints and writes, and which options it refuses."""

import csv
import json
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from gpucomp.kernel_bench import engines, rounds
from gpucomp.kernel_bench.problem import Called

GEMM, SOFTMAX = "gemm:m=4,n=6,k=8", "softmax:rows=3,cols=5"


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(rounds, "rest", lambda: None)


def bench(command, *arguments):
    return command("bench", "--duration", 0.001, *arguments)


def test_kernels_beside_numpy(command, quick):
    done = bench(command, "--kernel", GEMM, "--kernel", SOFTMAX, "--against", "numpy")

    assert (done.code, done.err) == (0, "")
    rows = done.out.splitlines()
    assert [row.split()[:2] for row in rows[1:5]] == [
        [GEMM, "gpucomp"],
        [GEMM, "numpy"],
        [SOFTMAX, "gpucomp"],
        [SOFTMAX, "numpy"],
    ]
    assert "in the geometric mean of 2 kernels" in done.out
    assert "errors against f64" in done.out


def test_a_list_of_kernels_as_json_csv_and_svg(command, quick, tmp_path):
    (tmp_path / "mine.txt").write_text(f"{GEMM}\n{SOFTMAX}\n")

    done = bench(
        command, "--kernels", "mine.txt", "--against", "numpy", "--json", "f.json", "--csv", "f.csv", "-o", "f.svg"
    )

    assert (done.code, done.err) == (0, "")
    data = json.loads((tmp_path / "f.json").read_text())
    assert [one["kernel"] for one in data["kernels"]] == [GEMM, SOFTMAX]
    ours, theirs = data["kernels"][0]["engines"]
    assert len(ours["turns_us"]) == data["rounds"] == 15
    assert ours["us"] == pytest.approx(np.median(ours["turns_us"]))
    assert theirs["ratio_low"] <= theirs["ratio"] <= theirs["ratio_high"]
    assert ours["gflops"] == pytest.approx(2 * 4 * 6 * 8 / ours["us"] / 1e3)
    assert data["kernels"][0]["floor_us"] > 0
    assert data["cache"] == "warm"
    with (tmp_path / "f.csv").open() as file:
        assert [row["engine"] for row in csv.DictReader(file)] == ["gpucomp", "numpy"] * 2
    picture = ET.parse(tmp_path / "f.svg").getroot()
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"
    notes = [note.text for note in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert sum(note.startswith(GEMM) for note in notes) == 3  # two points of the roofline, and a ratio


def test_json_alone_on_stdout(command, quick):
    done = bench(command, "--kernel", GEMM, "--against", "none", "--json", "-")

    (engine,) = json.loads(done.out)["kernels"][0]["engines"]
    assert engine["engine"] == "gpucomp"
    assert engine["ratio"] == 1


def test_a_wrong_kernel_of_ours_ends_with_an_error(command, quick, monkeypatch):
    monkeypatch.setitem(engines.ENGINES, "gpucomp", lambda p: Called(lambda: None, lambda: np.zeros((4, 6))))

    done = bench(command, "--kernel", GEMM, "--against", "numpy")

    assert done.code == 6
    assert done.error.startswith(
        f"error GPC6011: a kernel of gpucomp's is wrong: '{GEMM}': wrong: relative error 1.00e+00"
    )
    assert "numpy" in done.out


def test_a_device_that_is_not_here(command):
    done = command("bench", "--kernel", GEMM, "--target", "opencl:mali")

    assert done.code == 5
    assert done.error.endswith("--static predicts times without a device")


@pytest.mark.parametrize("target", ["cuda:sm_90a", "opencl:mali"])
def test_kernels_without_a_device_are_predicted(command, target, tmp_path):
    done = command(
        "bench",
        "--kernel",
        GEMM,
        "--kernel",
        SOFTMAX,
        "--target",
        target,
        "--static",
        "--json",
        "f.json",
        "--csv",
        "f.csv",
    )

    assert (done.code, done.err) == (0, "")
    assert "not measured" in done.out
    data = json.loads((tmp_path / "f.json").read_text())
    assert [one["kernel"] for one in data["kernels"]] == [GEMM, SOFTMAX]
    assert all(one["predicted_us"] > one["floor_us"] > 0 for one in data["kernels"])
    assert [one["gflops"] is None for one in data["kernels"]] == [False, True]
    with (tmp_path / "f.csv").open() as file:
        assert [row["kernel"] for row in csv.DictReader(file)] == [GEMM, SOFTMAX]


PUBLISHED = """# source: example.org/gemms (MIT); bf16; us
system,framework,dtype,m,n,k,us
h100_sxm,trtllm,bfloat16,512,640,384,35.0
a100_sxm,trtllm,bfloat16,512,640,384,55.0
"""


def test_published_figures_beside_predictions_for_their_devices(command, tmp_path):
    (tmp_path / "p.csv").write_text(PUBLISHED)
    given = (
        "--kernel",
        "gemm:m=512,n=640,k=384,bias,dtype=bf16",
        "--kernel",
        SOFTMAX,
        "--static",
        "--published",
        "p.csv",
    )

    done = command("bench", *given, "--json", "f.json")

    assert (done.code, done.err) == (0, "")
    assert "kernels" not in done.out.splitlines()[0]
    assert "nothing is published in 1 file of 1 of 2 kernels" in done.out
    assert "p.csv: example.org/gemms (MIT)" in done.out
    data = json.loads((tmp_path / "f.json").read_text())
    assert (data["target"], data["kernels"]) == (None, [])
    assert [(one["device"], one["published_us"]) for one in data["published"]] == [("a100_sxm", 55), ("h100_sxm", 35)]
    for one in data["published"]:
        assert one["ratio"] == pytest.approx(one["predicted_us"] / one["published_us"])
        assert one["interval_us"][0] < one["interval_us"][1]


def test_published_figures_of_one_target_beside_its_own_prediction(command, tmp_path):
    (tmp_path / "p.csv").write_text(PUBLISHED)
    given = (
        "--kernel",
        "gemm:m=512,n=600,k=384,dtype=bf16",
        "--static",
        "--target",
        "cuda:sm_80",
        "--published",
        "p.csv",
    )

    done = command("bench", *given)

    assert "Predicted for cuda:sm_80" in done.out
    assert done.out.endswith("the nearest to gemm:m=512,n=600,k=384,dtype=bf16: gemm:m=512,n=640,k=384,dtype=bf16\n")


def test_the_clocks_of_each_round_are_told(command, quick, monkeypatch):
    monkeypatch.setattr(rounds, "reader", lambda target: lambda: {"mhz": 1410})

    done = bench(command, "--kernel", GEMM, "--against", "none", "--json", "-")

    assert json.loads(done.out)["kernels"][0]["clocks"] == [{"mhz": 1410}] * 15


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (["--kernel", "gemm:m=1"], "GPC2055", "gemm needs n, k"),
        (["--kernels", "nowhere.txt"], "GPC2056", "cannot read kernels from 'nowhere.txt'"),
        (["--kernel", GEMM, "--against", "cudnn"], "GPC2057", "--against 'cudnn': "),
        (["model.onnx", "--kernel", GEMM], "GPC2057", "model is for models"),
        (["--kernel", GEMM, "--profile"], "GPC2057", "--profile is for models"),
        (["--kernel", GEMM, "--static", "--cold"], "GPC2028", "--static measures nothing: leave out --cold"),
        (["--kernel", GEMM, "--published", "p.csv"], "GPC2028", "--published is for --static"),
        (
            ["--kernel", GEMM, "--static", "--published", "p.csv"],
            "GPC2058",
            "cannot read published figures from 'p.csv'",
        ),
        (["--kernel", GEMM, "--shapes", "x:1x2"], "GPC2057", "--shapes is for models"),
        (["model.onnx", "--cold"], "GPC2057", "--cold is for kernels"),
        ([], "GPC2057", "a MODEL expected"),
    ],
)
def test_what_does_not_go_together_is_told(command, arguments, code, why):
    done = command("bench", *arguments)

    assert done.code == 2
    assert done.error.startswith(f"error {code}: ")
    assert why in done.error
