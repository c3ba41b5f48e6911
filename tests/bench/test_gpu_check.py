"""The kit for a machine with a GPU, without one: its dry run, what it says of wrong answers, and how it goes on."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fake_cupy import FakeCupy
from template_cases import CASES, default

from bench.gpu import check
from bench.gpu.devices import Gpu
from gpucomp.targets import cuda

ROOT = Path(__file__).parents[2]
ABSENT = (
    "onnxruntime",
    "onnx_ir",
    "click",
    "rich",
    "platformdirs",
    "safetensors",
    "torch",
    "cupy",
    "pyopencl",
    "pytest",
)
PROGRAM = """
import sys
from importlib.machinery import PathFinder
class Absent:
    def find_spec(name, path=None, target=None):
        if name.split(".")[0] in {absent}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent)
import importlib.util
import bench.gpu.check as check
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in {absent} else found(name, *rest)
sys.exit(check.main(sys.argv[1:]))
"""


def entries(folder):
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def dry_run(tmp_path_factory):
    """All stages, where nothing is installed but what the kit says it needs."""
    folder = tmp_path_factory.mktemp("kit")
    command = [sys.executable, "-c", PROGRAM.format(absent=ABSENT), "--dry-run", "--out", str(folder)]
    return folder, subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_dry_run_finds_every_stage_right_with_the_named_packages_alone(dry_run):
    folder, done = dry_run

    assert done.returncode == 0, done.stderr
    found = entries(folder)
    assert {e["stage"] for e in found} == set(check.STAGES)
    assert len({(e["stage"], e["name"]) for e in found}) == len(found)
    assert {e["name"].partition("-")[0] for e in found if e["stage"] == "correct"} == {
        "loops", "contraction", "rowwise", "pool",
    }  # fmt: skip
    assert all(e["ok"] for e in found)
    assert max(e["error"] for e in found if e["stage"] in {"models", "layers"}) > 0


@pytest.mark.slow
def test_a_second_call_does_nothing_again(dry_run, capsys):
    folder, _ = dry_run
    before = entries(folder)

    assert check.main(["--dry-run", "--out", str(folder)]) == 0

    assert entries(folder) == before
    assert "0 wrong" in capsys.readouterr().out


@pytest.mark.slow
def test_results_of_other_sources_and_cut_lines_do_not_count(dry_run, tmp_path):
    entry = entries(dry_run[0])[0]
    lines = [json.dumps(entry | {"version": "another"}), json.dumps(entry | {"ok": False}), '{"stage": "pro']
    (tmp_path / "results.jsonl").write_text("\n".join(lines) + "\n")

    assert check.Results(tmp_path, entry["device"]).done == set()


def test_a_time_limit_stops_before_the_next_piece_of_work(tmp_path, capsys):
    assert check.main(["probe", "--dry-run", "--limit-s", "-1", "--out", str(tmp_path)]) == 3

    assert "call again" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["nothing"], ["models", "--models", "no_such"]])
def test_an_unknown_stage_or_model_is_named(arguments, tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        check.main([*arguments, "--dry-run", "--out", str(tmp_path)])

    assert stopped.value.code == 2
    assert arguments[-1] in capsys.readouterr().err


def test_missing_packages_are_named(monkeypatch, capsys):
    monkeypatch.setattr(check.importlib.util, "find_spec", lambda name: None if name in {"cupy", "jinja2"} else True)

    assert check.main([]) == 2

    assert capsys.readouterr().err == "not installed: jinja2, cupy\n"


class Idle:
    """A device that computes nothing."""

    target = cuda.manifest("sm_80")

    def launch(self, source, arguments):
        pass


@pytest.mark.parametrize("case", ["loops-add_relu", "contraction-i32", "rowwise-softmax", "pool-3x3"])
def test_outputs_that_no_kernel_wrote_are_wrong(case):
    result = check.check_kernel(Idle(), CASES[case], default(CASES[case], Idle.target.limits))

    assert not result["ok"]


def test_a_wrong_kernel_makes_the_run_fail(tmp_path, monkeypatch):
    monkeypatch.setattr("bench.gpu.devices.Harness.launch", Idle.launch)

    assert check.main(["correct", "--dry-run", "--out", str(tmp_path)]) == 1

    assert not any(e["ok"] for e in entries(tmp_path))


def test_a_gpu_s_launch_brings_back_what_the_kernel_wrote(monkeypatch):
    def k0(x, bias, relu, total):
        sums = x.view(np.float32).reshape(13, 17) + bias.view(np.float32)
        total[:] = sums.reshape(-1).view(np.uint8)
        relu[:] = np.maximum(sums, 0).reshape(-1).view(np.uint8)

    monkeypatch.setattr(cuda, "build", lambda source, target: b"cubin")
    gpu = object.__new__(Gpu)
    gpu.cupy, gpu.target = FakeCupy({"k0": k0}), Idle.target
    kernel = CASES["loops-add_relu_prime"]

    assert check.check_kernel(gpu, kernel, default(kernel, gpu.target.limits))["ok"]


@pytest.mark.parametrize(("a", "b", "error"), [([3.0, 4.0], [3.0, 4.0], 0.0), ([3.0, 3.0], [3.0, 4.0], 0.2),
                                               ([math.nan], [1.0], math.inf), ([1.0], [1.0, 1.0], math.inf)])  # fmt: skip
def test_the_error_is_relative_and_infinite_for_what_is_no_answer(a, b, error):
    assert check.relative_error(np.array(a), np.array(b)) == error
