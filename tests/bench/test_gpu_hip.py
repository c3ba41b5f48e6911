"""The kit on AMD's GPUs: every stage through HIP's runtime and its fake driver, and what differs from CUDA."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from bench.gpu import __main__ as kit
from bench.gpu import (
    cases,
    contact,
    correct,
    devices,
    first,
    hip_facts,
    loops,
    measure,
    probe,
    published,
    results,
    torch_timing,
)
from bench.gpu import models as models_stage
from bench.gpu.context import Context, Options
from bench.measured import __main__ as measured
from bench.measured import layers
from bench.measured.predict import predicted_on_hip
from bench.models import build
from gpucomp import config
from gpucomp.device import hip as device
from gpucomp.errors import DeviceError
from gpucomp.kernel_bench.operations import Conv
from gpucomp.kernels_templates.engines import engines_of
from gpucomp.runtime import hip_arrays
from gpucomp.targets import amdgcn, hip
from testing.cuda_on_cpu.harness import hip_compiler
from tests.fake_hip.kernels import on_this_processor
from tests.fake_hip.runtime import FakeHip

COMPILES = pytest.mark.skipif(
    amdgcn.compiler("hip") is None or amdgcn.linker() is None or hip_compiler() is None,
    reason="clang 18 or lld is not installed",
)
ARCH = "gfx90a"
HEADER = "db,c,h,w,r,s,k,oh,ow,n,ph,pw,sh,sw,dh,dw,layout,dtype,groups,solvers_ms\n"
FIND_DB = HEADER + (
    "gfx90878,3,224,224,7,7,64,112,112,64,3,3,2,2,1,1,NCHW,FP32,1,Slow:0.9;ConvBinWinogradRxS:0.5\n"
    "gfx90878,64,56,56,1,1,64,56,56,64,0,0,1,1,1,1,NCHW,FP32,1,Fast:0.1\n"
    "gfx90878,64,56,56,1,1,64,56,56,8,0,0,1,1,1,1,NCHW,FP32,1,Fast:0.01\n"  # another batch
    "gfx90878,64,57,56,1,1,64,57,56,64,0,0,1,1,1,1,NCHW,FP32,1,Fast:0.1\n"  # no layer of the model
    "nonesuch,64,56,56,1,1,64,56,56,64,0,0,1,1,1,1,NCHW,FP32,1,Fast:0.1\n"
)


@pytest.fixture
def gpu(monkeypatch):
    """A GPU of AMD in this machine, as HIP's library tells."""
    made = FakeHip({}, ARCH, gpus=1)
    monkeypatch.setattr(device, "runtime", lambda: made.library)
    hip_arrays.shared.cache_clear()
    yield made
    hip_arrays.shared.cache_clear()


class Twice:
    """A program of which every run is two, as a dry run makes one and timing needs the graph that the second captures."""

    def __init__(self, program):
        self._program, self.time_replays = program, program.time_replays

    def run(self, inputs):
        before, after = (self._program.run(inputs) for _ in range(2))
        assert all(before[name].tobytes() == array.tobytes() for name, array in after.items())
        return after


class OnFake(devices.Hip):
    """The kit's own device on the driver of the tests, whose kernels run on this processor."""

    least_launches = 2

    def __init__(self, gpu):
        super().__init__()
        self.gpu = gpu

    def open(self, plan, sources, binaries, weights):
        self.gpu.kernels |= on_this_processor(plan, sources, plan.arch)
        return Twice(super().open(plan, sources, binaries, weights))


@COMPILES
@pytest.mark.slow
def test_the_whole_plan_runs_through_hip_s_runtime(gpu, monkeypatch, tmp_path, capsys):
    """In the sizes of a dry run, but with code objects, launches and graphs as on a GPU."""
    monkeypatch.setattr(Context, "open_device", lambda self: OnFake(gpu))
    monkeypatch.setattr(Context, "harness_folder", None)
    monkeypatch.setattr(measure, "REPLAYS", 2)
    monkeypatch.setattr(models_stage, "REPLAYS", 1)
    table = tmp_path / "find.csv.gz"
    table.write_bytes(gzip.compress(FIND_DB.encode()))
    loaded = gpu.log.count("load")

    arguments = ["first", "--target", "hip", "--dry-run", "--inline", "--find-db", str(table), "--out", str(tmp_path)]
    assert kit.main(arguments) == 0

    assert gpu.error is None
    assert {"launch", "capture", "replay", "load"} <= set(gpu.done("launch", "capture", "replay", "load"))
    assert gpu.log.count("load") > loaded
    found = [e for e in results.lines(tmp_path / "results.jsonl") if "ok" in e]
    assert all(e["ok"] for e in found)
    stages = Counter(e["stage"] for e in found)
    assert set(stages) == {"first", "contact", "correct", "probe", "kernels", "published", "models"}
    assert stages["contact"] == 3
    assert {e["engine"] for e in found if e["stage"] == "correct"} == {
        f.title for n in correct.DRY for f in engines_of(cases.cases()[n], hip.manifest(ARCH).features)
    }
    (facts,) = (e for e in found if e["name"] == "device")
    assert (facts["units"], facts["l2_bytes"], facts["clock_mhz"]) == (104, 8 << 20, 1700)
    assert {e["name"] for e in found if e["stage"] == "probe"} >= {"mma-f16", "mma-bf16", "fma", "grid-barrier"}
    timed = [e for e in found if e["stage"] == "kernels"]
    assert all(min(e["warm_us"], e["cold_us"], e["static_us"], e["registers"]) > 0 for e in timed)
    said = capsys.readouterr().out
    for text in ("contraction/amd: 3 of 3 right", "the driver runs HIP 6.3.42134", "| 3 x 224 x 224, 7 x 7 / 2, 64 |"):
        assert text in said
    assert json.loads((tmp_path / "devices.json").read_text())[ARCH]["units"] == 104


@COMPILES
@pytest.mark.slow
def test_a_wrong_kernel_of_hip_is_found_out(gpu, monkeypatch, tmp_path):
    class Off(OnFake):
        def open(self, plan, sources, binaries, weights):
            program = super().open(plan, sources, binaries, weights)
            run = gpu.kernels["k0"]

            def off(*memory):
                run(*memory)
                memory[-1].view(np.float32)[5] += 1

            gpu.kernels["k0"] = off
            return program

    monkeypatch.setattr(Context, "open_device", lambda self: Off(gpu))
    monkeypatch.setattr(Context, "harness_folder", None)

    arguments = [
        "correct",
        "--target",
        "hip",
        "--dry-run",
        "--inline",
        "--only",
        "loops-add_relu-*",
        "--out",
        str(tmp_path),
    ]
    assert kit.main(arguments) == 1

    (entry,) = (e for e in results.lines(tmp_path / "results.jsonl") if "ok" in e)
    assert "max error" in entry["fault"]


def context(tmp_path, target=None, **options):
    options = Options(tmp_path, "hip", **options)
    found = devices.described(SimpleNamespace(target=target or hip.manifest(ARCH), cache_bytes=1, name="MI210"))
    return Context(options, devices.Described(**found))


def test_a_target_of_hip_is_the_same_as_plain_data(tmp_path):
    assert context(tmp_path).target == hip.manifest(ARCH)


def test_hip_needs_no_package_and_opencl_has_no_rehearsal(tmp_path, capsys):
    assert set(kit.missing(Options(tmp_path, "hip"))) == set()

    with pytest.raises(SystemExit):
        kit.main(["probe", "--target", "opencl", "--dry-run", "--out", str(tmp_path)])

    assert "--dry-run has no kernels of opencl" in capsys.readouterr().err


def test_first_contact_asks_hip_for_no_tensor_maps_and_no_overlap(tmp_path):
    jobs = contact.jobs(context(tmp_path))

    assert [job.name for job in jobs] == ["compiler", "shared-memory", "pair-of-launches"]
    assert not jobs[-1].subject.loop.programmatic


def test_a_part_of_the_plan_without_jobs_is_not_told(tmp_path, capsys):
    call = SimpleNamespace(context=context(tmp_path), results=results.Results(tmp_path, "gpu"), wrong=0)
    (part,) = (part for part in first.PLAN if part.name == "wgmma")

    assert first._do(call, part, 0.0) == 0
    assert capsys.readouterr().out == ""
    assert call.results.ended["first", "wgmma"]


# ---- the device ----


def test_units_of_rdna_are_two_for_each_that_hip_counts(gpu):
    assert hip_facts.numbers(gpu.library, "gfx942")["units"] == 104
    assert hip_facts.numbers(gpu.library, "gfx1100")["units"] == 208
    assert hip_facts.memory(gpu.library) == {"memory_bytes": 64 << 30, "free_bytes": 8 << 30}


@pytest.mark.parametrize("function", ["hipDeviceGetAttribute", "hipMemGetInfo", "hipDeviceGetPCIBusId"])
def test_what_hip_does_not_tell_is_left_out(gpu, function):
    gpu.fail(function, 1)
    numbers = hip_facts.numbers(gpu.library, ARCH)
    told = {"hipDeviceGetAttribute": "units" in numbers, "hipMemGetInfo": bool(hip_facts.memory(gpu.library))}

    assert not told.get(function, bool(hip_facts.clocks(gpu.library)))


def test_clocks_are_those_of_the_gpu_s_own_files(gpu, monkeypatch, tmp_path):
    monkeypatch.setattr(hip_facts, "PCI", tmp_path)
    for bus, mhz in (("0000:c1:00.0", 1700), ("0000:c6:00.0", 300)):
        folder = tmp_path / bus / "hwmon" / "hwmon3"
        folder.mkdir(parents=True)
        (folder / "freq1_input").write_text(f"{mhz}000000\n")
        (folder / "power1_input").write_text("212000000\n")
        (folder / "temp1_input").write_text("nothing\n")

    assert hip_facts.clocks(gpu.library) == {"sm_mhz": 1700, "watts": 212}


@COMPILES
@pytest.mark.parametrize("arch", ["gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"])
def test_the_loops_compile_for_amd_and_keep_their_sums_in_registers(arch):
    target = hip.manifest(arch)
    sources = {name: loops.source_of(make(target), target) for name, make in probe._loops(target, False)}
    try:
        used = {name: amdgcn.resources(source, arch) for name, source in sources.items()}
    except DeviceError as unknown:  # clang knows gfx950 from 20 on
        pytest.skip(str(unknown))
    for name, found in used.items():
        assert (found.private_bytes, found.spilled) == (0, 0), name
        assert (found.count("v_mfma") + found.count("v_wmma") > 0) == name.startswith("mma-")


@pytest.mark.parametrize(
    ("arch", "operands", "multiply_adds"),
    [
        ("gfx90a", "f16", 32 * 32 * 16),  # two instructions of 32 x 32 x 8
        ("gfx908", "bf16", 32 * 32 * 16),
        ("gfx90a", "f32", 32 * 32 * 8),
        ("gfx942", "s8", 32 * 32 * 32),
        ("gfx950", "bf16", 32 * 32 * 16),  # one instruction
        ("gfx950", "s8", 32 * 32 * 32),
        ("gfx1100", "f16", 16 * 16 * 16),
        ("gfx1100", "s8", 16 * 16 * 32),  # two instructions of 16 x 16 x 16
        ("gfx1201", "bf16", 16 * 16 * 16),
    ],
)
def test_a_step_of_a_matrix_loop_is_what_its_instructions_multiply(arch, operands, multiply_adds):
    target = hip.manifest(arch)
    loop = loops.mma(target, operands, 10)

    waves = loop.groups * loop.threads // target.limits.warp
    assert loop.per_launch == pytest.approx(2e-12 * multiply_adds * 10 * loops.SUMS * waves)


def test_measured_figures_are_those_of_hip_s_target(tmp_path):
    (tmp_path / "devices.json").write_text('{"gfx90a": {"units": 100}, "gfx1103": {"ghz": 2.5}}')
    other = hip.manifest("gfx942").device

    with config.using(devices=tmp_path / "devices.json"):
        assert hip.manifest("gfx90a").device.units == 100
        assert hip.manifest("gfx1103").device.ghz == 2.5
        assert hip.manifest("gfx942").device == other


# ---- torch for ROCm ----


@pytest.mark.parametrize(
    ("version", "there", "where"),
    [
        ({"hip": "6.2", "cuda": None}, True, "cuda"),
        ({"hip": "6.2", "cuda": None}, False, "cpu"),
        ({"hip": None, "cuda": "12.4"}, True, "cpu"),  # of another vendor
    ],
)
def test_torch_is_asked_only_when_it_is_made_for_such_gpus(version, there, where, tmp_path):
    torch = SimpleNamespace(version=SimpleNamespace(**version), cuda=SimpleNamespace(is_available=lambda: there))

    assert measure.torch_device(torch, context(tmp_path)) == where


def test_the_faster_one_of_torch_s_libraries_for_products_is_taken():
    chosen = ["default"]

    def choose(name=None):
        chosen.extend([name] if name else [])
        return chosen[-1]

    torch = SimpleNamespace(backends=SimpleNamespace(cuda=SimpleNamespace(preferred_blas_library=choose)))
    times = {"cublas": 5.0, "cublaslt": 3.0}

    found = torch_timing.fastest(torch, tuple(times), lambda: {"torch_warm_us": times[chosen[-1]]})

    assert found == {"torch_warm_us": 3.0, "torch_products": "cublaslt"}
    assert chosen == ["default", "cublas", "cublaslt", "default"]
    old = SimpleNamespace(backends=SimpleNamespace(cuda=SimpleNamespace()))
    assert torch_timing.fastest(old, tuple(times), partial(dict, torch_warm_us=1.0)) == {"torch_warm_us": 1.0}


# ---- MIOpen's find-db ----


def test_the_layers_of_resnet_are_its_distinct_convolutions():
    found = layers.layers_of(build("resnet50"))

    assert sum(found.values()) == 53
    assert found[Conv(0, 3, 224, 224, 64, 7, 7, (3, 3), (2, 2), dtype="")] == 1
    assert found[Conv(0, 256, 14, 14, 1024, 1, 1, dtype="")] == 6


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (None, "no file is given: --find-db FILE"),
        ("nowhere.csv", "no file "),
        ("other.csv", "has no layer of resnet50"),
    ],
)
def test_the_database_is_left_out_by_name_when_it_is_not_there(place, said, tmp_path):
    (tmp_path / "other.csv").write_text(HEADER + FIND_DB.splitlines()[-1])
    given = context(tmp_path, find_db=place and tmp_path / place)
    (job,) = published.jobs(given)

    result = published.perform(given, None, job, published.prepare(given, job))

    assert result["ok"]
    assert said in published.summary([{**result, "stage": "published"}], ARCH)


def test_layers_are_compared_one_by_one_and_together(tmp_path, capsys):
    (tmp_path / "find.csv").write_text(FIND_DB)

    assert measured.main([str(tmp_path), "--layers", "--jobs", "1", "--json", str(tmp_path / "found.json")]) == 0

    rows = json.loads((tmp_path / "found.json").read_text())["layers"]
    assert [(row["device"], row["solver"], row["us"]) for row in rows] == [
        ("gfx90878", "ConvBinWinogradRxS", 500.0),
        ("gfx90878", "Fast", 100.0),
    ]
    a, b = (row["predicted_us"] for row in rows)
    printed = capsys.readouterr().out
    assert f"| 3 x 224 x 224, 7 x 7 / 2, 64 | 1 | 500, {a / 500:.2f} w |" in printed
    assert f"| 64 x 56 x 56, 1 x 1, 64 | 1 | 100, {b / 100:.2f} |" in printed
    assert f"| all layers | | {(a + b) / 600:.2f} |" in printed
    assert "21 of 23 layers are not in the database" in printed


def test_layers_are_predicted_in_the_layout_that_the_compiler_gives_them():
    """In NHWC, a window of 3 x 3 is Winograd's on a device without matrix units."""
    spec = Conv(64, 128, 28, 28, 128, 3, 3, (1, 1), dtype="f32")
    row = layers.Published("gfx906_60", spec, "Fast", 800.0)

    found = layers.predictions([row], 1)

    assert found == {(row.device, spec): predicted_on_hip(row.device, replace(spec, nchw=False))}
    assert found[row.device, spec] < 0.6 * predicted_on_hip(row.device, spec)


def test_only_gpus_of_amd_have_a_target_of_hip():
    assert layers.target_of("gfx90878", "hip").name == "hip:gfx908"
    assert layers.target_of("NVIDIA H100", "hip") is None
