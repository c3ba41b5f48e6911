"""The stages that measure, in a dry run: what they find, what they write down, and what is made of it."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bench.gpu import __main__ as kit
from bench.gpu import call, checks, clblast, devices, loops, measure, models, probe, report, results, tune
from bench.gpu.candidates import default
from bench.gpu.context import Context, Options
from bench.gpu.problems import MODELS, problems, supported
from bench.models import build, inputs
from gpucomp import config
from gpucomp.cli.compare import onnxruntime_session
from gpucomp.kernel.interpreter import expected
from gpucomp.kernels_templates.engines import family_of
from gpucomp.targets import cuda, opencl
from testing.kernels import conv, matmul, softmax
from tests.plans import two_layers

ROOT = Path(__file__).parents[2]
TARGET = cuda.manifest("sm_80")


@pytest.fixture(scope="module")
def dry_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kit")
    stages = ("probe", "kernels", "models", "tune")
    command = [sys.executable, "-m", "bench.gpu", *stages, "--dry-run", "--compilers", "2", "--out", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return folder, done


@pytest.mark.slow
def test_the_dry_run_of_every_measuring_stage_is_right_and_complete(dry_run):
    folder, done = dry_run

    assert done.returncode == 0, done.stderr + (folder / "work.log").read_text()
    found = [e for e in results.lines(folder / "results.jsonl") if "ok" in e]
    assert all(e["ok"] for e in found)
    names = {stage: {e["name"] for e in found if e["stage"] == stage} for stage in kit.STAGES}
    assert {
        "device",
        "copy-dram",
        "copy-l2-8",
        "copy-l2-25",
        "fma",
        "empty",
        "empty-overlapping",
        "mma-f16",
        "mma-tf32",
        "grid-barrier",
    } <= names["probe"]
    assert (len(names["kernels"]), len(names["tune"])) == (2, 1)
    assert names["models"] == {"mobilenet_v2-fp32-reduced"}
    for e in found:
        if e["stage"] == "kernels":
            assert 0 < e["error"] <= checks.LIMITS[e["precision"]]
            assert min(e[k] for k in ("warm_us", "cold_us", "floor_us", "static_us")) > 0
            assert len(e["cold_samples_us"]) == len(e["cold_alone_samples_us"]) == measure.REPLAYS
            assert e["warm_alone_us"] > e["warm_us"]  # the harness' clock says so


@pytest.mark.slow
def test_every_measurement_is_a_record_with_all_that_it_depends_on(dry_run):
    folder, _ = dry_run
    records = list(results.lines(folder / measure.RECORDS))

    assert records
    wanted = {
        "engine",
        "schedule",
        "kernel",
        "problem",
        "template",
        "source",
        "device",
        "clocks",
        "flags",
        "error",
        "samples_us",
        "tuner",
        "seed",
    }
    assert all(wanted <= set(r) for r in records)


@pytest.mark.slow
def test_the_report_shows_what_was_found(dry_run, capsys):
    folder, _ = dry_run

    assert kit.main(["report", "--out", str(folder)]) == 0

    text = capsys.readouterr().out
    for heading in ("## The device", "## Right and wrong", "## Models", "## Kernels", "## Prediction and measurement"):
        assert heading in text
    assert "dram_gbs=" in text


@pytest.mark.slow
def test_what_is_recorded_is_not_measured_again(dry_run, tmp_path):
    folder, _ = dry_run
    (tmp_path / measure.RECORDS).write_text((folder / measure.RECORDS).read_text())
    record = next(results.lines(folder / measure.RECORDS))
    context = Context(Options(tmp_path, dry_run=True))

    known = tune.recorded(context, record["kernel"], record["device"])

    assert tune.key(record) in known
    assert tune.recorded(context, record["kernel"], {"gpu": "another"}) == {}
    assert tune.recorded(context, "another kernel", record["device"]) == {}


# ---- probe ----


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a", "sm_120"])
def test_the_loops_compile_and_keep_their_sums_in_registers(arch):
    target = cuda.manifest(arch)
    for name, make in probe._loops(target, False):
        _, log = cuda.compile_source(loops.source_of(make(target), target), target)
        found = cuda.resources(log)["k0"]
        assert (found.stack_bytes, found.spill_stores) == (0, 0), name


def test_the_device_s_line_has_the_measured_figures():
    def entry(name, median, **more):
        return {"stage": "probe", "name": name, "ok": True, "median": median, **more}

    units, ghz = 132, 1.5
    entries = [
        {"stage": "probe", "name": "device", "ok": True, "gpu": "X", "units": units, "l2_bytes": 5},
        entry("copy-dram", 4200.4),
        entry("empty", 1.234),
        entry("mma-f16", 2 * 1024 * units * ghz * 1e9 / 1e12),
        entry("fma", 2 * 128 * units * ghz * 1e9 / 1e12, clocks={"sm_mhz": 1500}),
    ]

    entries += [entry("copy-l2-8", 7000.4), entry("copy-l2-25", 5000.4)]

    text = probe.constants(entries, "sm_90a")

    assert "l2_gbs=7000" in text
    assert "copies of 8 MB to 8 MB: 7000.4 GB/s" in text
    assert "copies of 25 MB to 25 MB: 5000.4 GB/s" in text
    assert "l2_gbs" not in probe.constants(entries[:-2], "sm_90a")
    assert "dram_gbs=4200" in text
    assert "launch_us=1.23" in text
    assert "a node that does not overlap: 1.23 us" in text
    overlapping = probe.constants([*entries, entry("empty-overlapping", 0.815)], "sm_90a")
    assert "launch_us=0.81" in overlapping
    assert "waits_us=0.42" in overlapping
    assert "waits_us" not in text
    assert "a node that does not overlap: 1.23 us" in overlapping
    assert "fma=128 " in text
    assert "'f16': 1024" in text


def test_measured_figures_are_what_the_model_reckons_with(tmp_path):
    def entry(name, **more):
        return {"stage": "probe", "name": name, "ok": True, **more}

    def tera(per_unit):
        return per_unit * 2 * 131 * 1.5e9 / 1e12

    entries = [
        entry("device", gpu="X", units=131, clock_mhz=1500),
        entry("copy-dram", median=3901.2),
        entry("mma-f16", median=tera(1100)),
        entry("torch-matmul-fp16", median=tera(1760)),
    ]

    probe.save(entries, "sm_90a", tmp_path)
    with config.using(devices=tmp_path / "devices.json"):
        device, other = cuda.manifest("sm_90a").device, cuda.manifest("sm_80").device

    assert (device.units, device.dram_gbs, device.matrix["f16"]) == (131, 3901, 1760)
    assert device.by_warp_share == 0.625
    assert device.matrix["s8"] == cuda.DEVICES["sm_90a"].matrix["s8"]  # not measured: as the table says
    assert other == cuda.DEVICES["sm_80"]


@pytest.mark.parametrize(
    ("measured_us", "launch_us", "waits_us"),
    [
        ({"empty": 2.3, "empty-overlapping": 1.1}, 1.1, 1.2),
        ({"empty": 1.1, "empty-overlapping": 1.2}, 1.2, 0.0),
        ({"empty": 2.3}, 2.3, 0.0),
        ({}, cuda.DEVICES["sm_90a"].launch_us, cuda.DEVICES["sm_90a"].waits_us),
    ],
    ids=["both", "overlap gains nothing", "launches that wait", "not measured"],
)
def test_a_measured_launch_has_no_wait_of_another_device(tmp_path, measured_us, launch_us, waits_us):
    names = [("device", {"units": 131, "clock_mhz": 1500}), *((n, {"median": us}) for n, us in measured_us.items())]

    probe.save([{"stage": "probe", "name": n, "ok": True, **more} for n, more in names], "sm_90a", tmp_path)
    with config.using(devices=tmp_path / "devices.json"):
        device = cuda.manifest("sm_90a").device

    assert (device.launch_us, device.waits_us) == pytest.approx((launch_us, waits_us))


def test_splits_of_a_product_are_the_default_schedule_but_for_their_number():
    split = next(iter(probe._splits(False)))

    found = list(probe.split_candidates(split.kernel, TARGET))

    assert len({c.schedule["splits"] for c in found}) == len(found) > 4
    others = [{k: v for k, v in c.schedule.items() if k != "splits"} for c in found]
    assert all(o == others[0] for o in others)


# ---- kernels ----


@pytest.fixture(scope="module")
def reduced():
    """Every kernel of the five models in f16 and in f32."""
    return problems(MODELS, ("fp32", "fp16"), TARGET, lambda name: build(name, reduced=True))


def test_torch_computes_each_kernel_s_nodes_as_the_kernel_s_own_oracle_does(reduced):
    torch = pytest.importorskip("torch")
    from bench.gpu.translated import Translated

    assert {"contraction", "pool", "norm", "reduce", "loops"} <= {p.kernel.family for p in reduced}
    for problem in reduced:
        given = problem.inputs()
        function = Translated(problem.step, given, torch, torch.float64, "cpu")
        with torch.no_grad():
            found = function(*function.arguments)
        for y, right in zip(found, expected(problem.kernel, given), strict=True):
            assert checks.error_of(right, y.numpy()) <= checks.LIMITS[problem.precision], problem.name


def test_problems_are_distinct_counted_and_taken_in_turn(reduced):
    assert len({(p.precision, p.kernel.digest) for p in reduced}) == len(reduced) == len({p.name for p in reduced})
    assert [p.precision for p in reduced[:4]] == ["fp32", "fp16", "fp32", "fp16"]
    assert max(sum(p.launches.values()) for p in reduced) > 1
    floors = [p.floor_us(TARGET) * sum(p.launches.values()) for p in reduced if p.precision == "fp32"]
    assert floors == sorted(floors, reverse=True)


def test_a_kernel_that_a_precision_leaves_as_it_is_is_measured_once():
    found = problems(("mobilenet_v2",), ("fp32", "tf32"), TARGET, lambda name: build(name, reduced=True))

    families = {p: {q.kernel.family for q in found if q.precision == p} for p in ("fp32", "tf32")}
    assert families["tf32"] == {"contraction"} < families["fp32"]


def test_precisions_are_those_that_the_target_has():
    assert supported((), TARGET) == ("fp32", "fp16", "tf32", "3xtf32")
    assert supported((), opencl.manifest("pocl")) == ("fp32", "fp16")


class Repeating:
    """A device whose kernels give back ``outputs``; nothing is compiled."""

    target, name, cache_bytes, least_launches = TARGET, "fake", 1 << 20, 1

    def __init__(self, outputs):
        self.outputs = outputs

    def facts(self):
        return {"gpu": "fake"}

    def clocks(self):
        return {"sm_mhz": 1}

    def open(self, plan, sources, binaries, weights):
        self.plan = plan
        return self

    def run(self, given):
        image = given["arena"].copy()
        for position, array in zip(self.plan.launches[0].args[-len(self.outputs) :], self.outputs, strict=True):
            buffer = self.plan.buffers[position]
            image[buffer.offset : buffer.offset + buffer.nbytes] = (
                np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            )
        return {"arena": image}

    def time_replays(self, count, *, overlap=True):
        return [3e-6] * count


@pytest.mark.parametrize(("factor", "invalidity"), [(1.0, None), (1.001, "wrong"), (math.nan, "wrong")])
def test_a_schedule_is_timed_only_when_its_answer_is_right(factor, invalidity, reduced, tmp_path, monkeypatch):
    monkeypatch.setattr(devices, "build", lambda source, target, folder=None: {})
    problem = next(p for p in reduced if p.kernel.family == "norm" and p.precision == "fp32")
    given = problem.inputs()
    wanted = expected(problem.kernel, given)
    device = Repeating([(w * factor).astype(w.dtype) for w in wanted])
    context = Context(Options(tmp_path))
    first = default(problem.kernel, family_of(problem.kernel), TARGET.limits)
    plain = [{"refused": "too large", **measure.plain_of(first)}, measure.plain_of(first)]

    refused, found = measure.measured(context, device, problem, plain, given, wanted, 60.0, "test")

    assert refused["invalidity"] == "build"
    assert found.get("invalidity") == invalidity
    assert ("us" in found) == (invalidity is None)
    assert len(list(results.lines(tmp_path / measure.RECORDS))) == 2


def test_cold_buffers_are_together_twice_the_cache():
    problem = type("P", (), {"kernel": type("K", (), {"params": [type("T", (), {"nbytes": 1 << 20})]})})
    device = type("D", (), {"cache_bytes": 50 << 20})

    assert measure.cold_sets(device, problem, False) == 100
    assert measure.cold_sets(device, problem, True) == 2
    device.cache_bytes = 1
    assert measure.cold_sets(device, problem, False) == 2


class Product:
    """Stands in for pyclblast: ``off`` is what it adds to each element."""

    def __init__(self, off):
        self.off = off

    def gemm(self, queue, m, n, k, a, b, c, *, a_ld, b_ld, c_ld):
        assert (a.shape, b.shape, (a_ld, b_ld, c_ld)) == ((m, k), (k, n), (k, n, n))
        c.memory[...] = a.memory @ b.memory + self.off


class OnDevice:
    """Stands in for pyopencl.array, and for an array of it."""

    def __init__(self, memory=None):
        self.memory = memory

    def to_device(self, queue, array):
        return OnDevice(array.copy())

    @property
    def shape(self):
        return self.memory.shape

    def get(self):
        return self.memory


def test_clblast_is_timed_when_its_answer_is_right():
    queue = type("Queue", (), {"finish": lambda self: None})()

    right = clblast.gemm_times(Product(0), OnDevice(), queue, (7, 11, 5), 4)
    wrong = clblast.gemm_times(Product(0.01), OnDevice(), queue, (7, 11, 5), 4)

    assert len(right["clblast_samples_us"]) == 4
    assert right["clblast_us"] > 0
    assert "wrong by" in wrong["clblast"]
    assert "clblast_us" not in wrong


def test_only_products_of_two_f32_matrices_go_to_clblast():
    assert clblast.sizes(conv((2, 9, 7, 8), 12, (3, 3), pad=1)) == (126, 12, 72)
    assert "only products" in str(clblast.sizes(matmul(7, 12, 20, batch=(3, 2))))
    assert "no such routine" in str(clblast.sizes(softmax(6, 100)))


# ---- models ----


@pytest.mark.parametrize("name", MODELS)
def test_the_models_in_torch_compute_what_onnxruntime_computes(name):
    torch = pytest.importorskip("torch")
    from bench.gpu import torch_models

    model = build(name, reduced=True)
    feeds = inputs(model)
    w = torch_models.Weights(model, torch, torch.float32, "cpu")
    with torch.no_grad():
        found = torch_models.MODELS[name](w)(*torch_models.arguments(model, feeds, w))
    session = onnxruntime_session(model.SerializeToString())

    for y, right in zip(found, session.run(None, feeds), strict=True):
        assert checks.relative_error(y.numpy(), right) < 2e-6


def test_rivals_take_turns():
    order = []
    clocks = {name: lambda name=name: order.append(name) or 1.0 for name in "ab"}

    samples = models.in_turn(clocks, 3, 2)

    assert "".join(order) == "aaabbb" * 3
    assert {k: len(v) for k, v in samples.items()} == {"a": 6, "b": 6}


class Overlapping:
    """A device whose programs answer 1, or ``alone`` where no launch overlaps."""

    def __init__(self, alone):
        self.alone, self.opened = alone, []

    def clocks(self):
        return {}

    def open(self, plan, *others):
        overlaps = [k.programmatic for k in plan.kernels]
        self.opened.append(overlaps)
        answer = 1.0 if any(overlaps) else self.alone
        return SimpleNamespace(run=lambda feeds: {"y": np.float32([answer])}, time_replays=lambda n: [answer * 1e-3])


@pytest.mark.parametrize(("alone", "fault"), [(1.0, ""), (2.0, "other bits than one by one")])
def test_launches_that_overlap_are_also_timed_one_by_one_and_give_the_same_bits(monkeypatch, alone, fault):
    plan, sources, weights = two_layers(cuda.manifest("sm_90a"))
    plan = replace(plan, kernels=(replace(plan.kernels[0], programmatic=True), *plan.kernels))
    executable = SimpleNamespace(plan=plan, sources=sources, binaries={}, weights=weights, kernels=plan.kernels)
    monkeypatch.setattr(models, "built", lambda *a: None)
    monkeypatch.setattr("bench.models.inputs", lambda model: {})
    monkeypatch.setattr(models, "compiled", lambda *a: executable)
    monkeypatch.setattr(models, "reference", lambda *a: ({"y": np.float64([1.0])}, "numpy"))
    monkeypatch.setattr(models, "RIVALS", {})
    device, job = Overlapping(alone), SimpleNamespace(subject=models.Subject("resnet18", "fp32"))

    found = models.perform(SimpleNamespace(options=SimpleNamespace(dry_run=True)), device, job, {})

    assert device.opened == [[True, False], [False, False]]
    assert found.get("fault", "").endswith(fault)
    assert found["ok"] == (not fault)
    if not fault:
        assert set(found["median_ms"]) == {"gpucomp", "one by one"}


# ---- report ----


def kernel_entry(name, ours, theirs, **more):
    return {
        "stage": "kernels",
        "name": name,
        "ok": True,
        "label": name,
        "precision": "fp32",
        "family": "contraction",
        "engine": "contraction/simt",
        "warm_us": ours,
        "cold_us": ours,
        "torch_warm_us": theirs,
        "torch_cold_us": theirs,
        "floor_us": ours / 4,
        "launches": {"m": 2},
        "limiter": "memory",
        "static_us": ours * 2,
        "default_us": ours * 3,
        **more,
    }


def test_means_are_geometric_and_the_costliest_losses_come_first():
    entries = [
        kernel_entry("win", 10.0, 40.0),
        kernel_entry("small_loss", 2.0, 1.0),
        kernel_entry("large_loss", 100.0, 50.0),
        {**kernel_entry("alone", 1.0, 1.0), "torch_warm_us": None},
    ]
    del entries[3]["torch_warm_us"], entries[3]["torch_cold_us"]
    entries[0] |= {"warm_alone_us": 20.0, "cold_alone_us": 80.0}  # 40 by torch

    text = report.kernels_table(entries)

    assert "| fp32 | contraction | 4 | 1.00 | 1.00 | 0.79 | 0.50 | 0.25 | 2 |" in text
    losses = [line for line in text.splitlines() if "_loss" in line]
    assert [line.split()[1] for line in losses] == ["large_loss", "small_loss"]
    assert "| 100.0 |" in losses[0]
    said = report.kernels_said(entries).splitlines()
    assert said[0] == (
        "fp32, 4 kernels: others take 1.00 times as long with data in cache, 1.00 without, 0.50 where launches do not "
        "overlap; 2 are slower than theirs."
    )
    assert [line.split()[2] for line in said[1:]] == ["large_loss", "small_loss"]
    assert "| contraction/simt | 4 | 2.00 | 2.00 | 2.00 | 1.00 | 3.00 |" in report.predictions(entries)


def test_the_report_names_what_is_wrong_and_the_last_word_counts(tmp_path):
    base = {"device": "gpu sm_90a", "version": "v", "stage": "correct"}
    for entry in (
        {"name": "a", "ok": False, "fault": "other bits"},
        {"name": "b", "ok": False, "error": "it hung"},
        {"name": "b", "ok": True},
    ):
        results.append(tmp_path / "results.jsonl", {**base, **entry})

    text = report.report(tmp_path)

    assert "| correct | 1 | 1 |" in text
    assert "other bits" in text
    assert "it hung" not in text
    assert report.report(tmp_path / "none").startswith("there are no results")


def test_a_target_as_plain_data_is_the_target():
    device = type("D", (), {"target": cuda.manifest("sm_90a"), "cache_bytes": 7, "name": "X"})()

    assert devices.Described(**json.loads(json.dumps(devices.described(device)))).target() == device.target


@pytest.mark.slow
def test_an_opencl_device_is_checked_and_measured_by_the_same_stages(tmp_path):
    pytest.importorskip("pyopencl")
    only = ("loops-add_relu-*-0", "rowwise-softmax-*-0", "empty", "fp32-ReduceMean*")
    command = [
        sys.executable,
        "-m",
        "bench.gpu",
        "probe",
        "correct",
        "kernels",
        "--target",
        "opencl",
        "--reduced",
        "--models",
        "mobilenet_v2",
        "--precisions",
        "fp32",
        "--top",
        "1",
        "--compilers",
        "1",
        *(f"--only={pattern}" for pattern in only),
        "--out",
        str(tmp_path),
    ]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr + (tmp_path / "work.log").read_text()
    found = [e for e in results.lines(tmp_path / "results.jsonl") if "ok" in e]
    assert [e["stage"] for e in found] == ["probe", "correct", "correct", "kernels"]
    assert all(e["ok"] for e in found)
    assert found[-1]["cold_us"] > 0
    assert "clblast" in found[-1]


def test_a_rehearsal_is_told_and_has_no_ratios():
    device = f"{devices.Harness().facts()['gpu']} sm_90a"
    kernel = {
        "stage": "kernels",
        "name": "k",
        "ok": True,
        "precision": "fp16",
        "family": "contraction",
        "device": device,
    }
    kernel |= {"warm_us": 2.0, "cold_us": 2.0, "torch_warm_us": 53.96, "torch_cold_us": 1.0, "floor_us": 1.0}
    kernel |= {"label": "MatMul", "engine": "contraction/simt", "launches": {"m": 1}}
    model = {
        "stage": "models",
        "name": "m",
        "ok": True,
        "precision": "fp16",
        "model": "m",
        "error": 0.0,
        "device": device,
    }
    model |= {"median_ms": {"gpucomp": 1.0, "torch": 26.98}}

    assert report.is_rehearsal([kernel])
    assert report.kernels_said([kernel]) == "fp16, 1 kernels: rehearsed, so there are no ratios."
    assert "26.98" not in report.kernels_table([kernel]) + report.models_table([model])
    measured = {"device": "NVIDIA H200 sm_90a"}
    assert "26.98" in report.kernels_table([kernel | measured])
    assert "26.98" in report.models_table([model | measured])


def test_a_result_is_shown_in_words():
    result = {
        "ok": True,
        "error": 1.23456e-7,
        "us_by_splits": {"simt": {1: 2.5}},
        "engines": ["a", "b"],
        "samples": [1],
    }

    assert call.shown(result) == "right, error 1.235e-07, us_by_splits (simt (1 2.5)), engines a b"
    assert call.shown({"ok": False, "fault": "NaN", "cold_samples_us": [1.0]}) == "WRONG, fault NaN"
