"""Searches on an AMD GPU by real processes: HIP's runtime is a fake, and kernels run on this processor."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

import pytest

import gpucomp
from gpucomp import cli
from gpucomp.device import hip as device
from gpucomp.errors import DeviceError
from gpucomp.schedule.records import ratio_of
from gpucomp.targets import amdgcn, hip
from gpucomp.tuning import choice, devices, records, specs, worker_pool
from gpucomp.tuning.measure import Patience
from testing.cuda_on_cpu.harness import hip_compiler
from tests.fake_hip.runtime import FakeHip

pytestmark = pytest.mark.skipif(
    amdgcn.compiler("hip") is None or amdgcn.linker() is None or hip_compiler() is None,
    reason="clang 18 or lld is not installed",
)
ROOT = Path(__file__).parents[2]
KERNEL = "matmul m=17 n=37 k=23 relu=1"
ARCH, NAME = "gfx942", "AMD Instinct MI210 | 60342134"  # as the fake says, whatever its instruction set
STARTED = (
    f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.tuning.hip_worker import main; main(*sys.argv[1:])"
)


@pytest.fixture
def tune(tmp_path, monkeypatch, quick, capfd):
    """``gpucomp tune`` on the fake GPU; kernels fault and hang as ``faults`` says. Returns the exit code, stdout and stderr."""
    faults = [""]
    started = worker_pool.Worker.__init__

    def start(self, role, target, *, command=None):
        command = [sys.executable, "-c", STARTED, str(tmp_path), faults[0], role, target, str(os.getpid())]
        started(self, role, target, command=command)

    monkeypatch.setattr(worker_pool.Worker, "__init__", start)
    monkeypatch.setattr(choice.final, "__kwdefaults__", {"processes": 1, "rounds": 9, "seconds": 60.0})
    there = FakeHip(arch=ARCH).library
    monkeypatch.setattr(device, "runtime", lambda: there)

    def run(*arguments, goes_wrong=""):
        faults[0] = goes_wrong
        given = ("--kernel", KERNEL, "--target", f"hip:{ARCH}", "--sampler", "random", "--records", tmp_path / "r")
        code = cli.main([str(a) for a in ("tune", *given, "--builders", 1, "--lock", tmp_path / "lock", *arguments)])
        return code, *capfd.readouterr()

    return run


def trials_in(folder):
    return [r for r in records.everything([folder / "r"])[0] if r["kind"] == "trial"]


@pytest.mark.slow
def test_the_command_tunes_on_a_gpu_and_goes_on_and_models_are_compiled_by_what_it_found(tune, tmp_path):
    code, out, err = tune("--trials", 3)

    assert (code, "error" in err) == (0, False)
    assert "records: " in out
    found = trials_in(tmp_path)
    assert [t["invalidity"] for t in found] == ["correct"] * len(found)
    assert len(found) >= 3
    assert {tuple(t["device"][n] for n in ("kind", "arch", "name")) for t in found} == {("hip", ARCH, NAME)}
    assert len({ratio_of(t) for t in found}) > 1  # times are the device's

    code, out, _ = tune("--trials", 2, "--resume")
    again = trials_in(tmp_path)
    (pick, *_) = [r for r in records.everything([tmp_path / "r"])[0] if r["kind"] == "pick"][::-1]
    best = min(again, key=ratio_of)

    assert code == 0
    assert again[: len(found)] == found
    assert len({str(t["configuration"]) + t["engine"] for t in again}) == len(again) > len(found)  # nothing twice
    assert (pick["engine"], pick["configuration"]) == (best["engine"], best["configuration"])
    exe = gpucomp.compile(specs.model(KERNEL), target="hip", records=tmp_path / "r")
    assert [(k.tier, dict(k.schedule)) for k in exe.kernels] == [("record", pick["configuration"])]


@pytest.mark.slow
def test_kernels_that_fault_or_hang_cost_nothing_but_themselves(tune, tmp_path, monkeypatch):
    monkeypatch.setattr(worker_pool, "Patience", partial(Patience, first=20.0))

    code, _, err = tune("--trials", 5, goes_wrong="fault hang")

    assert (code, "error" in err) == (0, False)
    found = trials_in(tmp_path)
    wrong = [t for t in found if t["invalidity"] != "correct"]
    assert sorted(t["invalidity"] for t in wrong) == ["runtime", "timeout"]
    assert len(found) - len(wrong) >= 3
    (fault,) = [t["fault"] for t in wrong if t["invalidity"] == "runtime"]
    assert "an illegal memory access was encountered (error 700)" in fault


def test_a_gpu_of_another_instruction_set_is_refused_before_anything_is_measured(tune, tmp_path):
    code, _, err = tune("--target", "hip:gfx1100")

    assert code != 0
    assert "the GPU here, AMD Instinct MI210, is gfx942, not gfx1100: name hip:gfx942\n" in err
    assert not (tmp_path / "r").exists()
    with pytest.raises(DeviceError, match="is gfx942, not gfx90a"):
        devices.open_device(hip.manifest("gfx90a"))
