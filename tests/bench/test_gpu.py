"""The kit for a machine with a GPU, without one: its dry run, what it says of wrong answers, and how it goes on."""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bench.gpu import __main__ as kit
from bench.gpu import call, candidates, cases, checks, contact, correct, devices, first, loops, results, work
from bench.gpu.context import Context, Options
from gpucomp.errors import DeviceLostError
from gpucomp.ir.types import F16
from gpucomp.kernels_templates.engines import FAMILIES, engines_of, family_of
from gpucomp.targets import cuda, opencl
from gpucomp.tuning import setups
from testing.kernels import add_relu, matmul
from testing.template_cases import CASES
from tests.fake_cupy import FakeCupy
from tests.fake_driver.cubins import cubin

ROOT = Path(__file__).parents[2]
TARGET = cuda.manifest("sm_80")
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
BLOCKED = """
import sys
class Absent:
    def find_spec(name, path=None, target=None):
        if name.split(".")[0] in absent:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent)
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in absent else found(name, *rest)
"""
PROGRAM = """
import bench.gpu.__main__ as kit
sys.exit(kit.main(sys.argv[1:]))
"""


def ends(folder):
    """What ended, in order: the lines that say how something went."""
    return [entry for entry in results.lines(folder / "results.jsonl") if "ok" in entry]


@pytest.fixture(scope="module")
def dry_run(tmp_path_factory):
    """The whole plan, in small, where nothing is installed but what the kit says it needs."""
    folder = tmp_path_factory.mktemp("kit")
    program = f"absent = {ABSENT!r}\n" + BLOCKED + PROGRAM
    command = [sys.executable, "-c", program, "first", "--dry-run", "--compilers", "2", "--out", str(folder)]
    return folder, subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_plan_is_gone_through_whole_and_says_what_is_known_after_each_part(dry_run):
    folder, done = dry_run

    assert done.returncode == 0, done.stderr + (folder / "work.log").read_text()
    headings = [line for line in done.stdout.splitlines() if line.startswith("== ")]
    assert [heading.split()[1].rstrip(":") for heading in headings] == [
        part.name for part in first.PLAN if part.name != "published"
    ]
    assert all(number == total for heading in headings for number, total in [heading.split()[2:5:2]])
    ended = [e["stage"] for e in ends(folder) if e["stage"] != first.NAME]
    assert list(dict.fromkeys(ended)) == ["contact", "correct", "probe", "kernels", "models"]
    for said in ("Tensor map, im2col: encoded", "contraction/wgmma: 1 of 1 right", "dram_gbs=", "fp16, 2 kernels"):
        assert said in done.stdout


@pytest.mark.slow
def test_the_dry_run_finds_every_engine_right_with_the_named_packages_alone(dry_run):
    folder, _ = dry_run
    found = [e for e in ends(folder) if e["stage"] == "correct"]
    known = cases.cases()

    features = devices.Harness().target.features
    assert {e["engine"] for e in found} == {f.title for n in correct.DRY for f in engines_of(known[n], features)}
    assert {"contraction/wgmma", "attention/mma", "contraction/mma", "contraction/simt"} <= {e["engine"] for e in found}
    assert len({(e["stage"], e["name"]) for e in found}) == len(found)
    assert all(e["ok"] for e in found)
    assert max(e["error"] for e in found) > 0


@pytest.mark.slow
def test_a_second_call_does_and_lists_nothing_again(dry_run, capsys, monkeypatch):
    folder, _ = dry_run
    before = (folder / "results.jsonl").read_text()
    monkeypatch.setattr(first, "_do", lambda call, part, deadline: pytest.fail(f"{part.name} was done again"))

    assert kit.main(["first", "--dry-run", "--out", str(folder)]) == 0

    assert (folder / "results.jsonl").read_text() == before
    assert "0 wrong" in capsys.readouterr().out


# ---- the plan ----


class Clock:
    """Stands in for ``time``."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now


class Planned:
    """A plan of two parts of one minute each; ``takes`` are the seconds of a part's jobs, one job each second.

    ``calls(limit_s)`` is one call of the kit; ``done`` is what was done, in order.
    """

    def __init__(self, monkeypatch, folder, takes, wrong=()):
        self.folder, self.left, self.wrong = folder, dict(takes), wrong
        self.clock, self.done, self.listed = Clock(), [], []
        monkeypatch.setattr(first, "PLAN", tuple(first.Part(name, name, 1.0) for name in takes))
        monkeypatch.setattr(first, "time", self.clock)
        monkeypatch.setattr(first.importlib, "import_module", lambda name: self.stage(name.rpartition(".")[2]))

    def stage(self, name):
        def jobs(context):
            self.listed.append(name)
            return [work.Job(name, "job")]

        return SimpleNamespace(NAME=name, jobs=jobs, summary=lambda entries, arch: f"{name} is known")

    def call(self, limit_s):
        outer = self

        class Doing(call.Call):
            def do(self, stage, context, jobs, deadline):
                seconds = min(outer.left[stage.NAME], deadline - outer.clock.now)
                outer.clock.now += seconds + (seconds < outer.left[stage.NAME]) * 0.01
                outer.left[stage.NAME] -= seconds
                outer.done.append((stage.NAME, seconds))
                if not outer.left[stage.NAME]:
                    self.wrong += stage.NAME in outer.wrong
                return outer.left[stage.NAME]

        context = Context(Options(self.folder), devices.Described(**devices.described(OnFake(None))))
        made = Doing(context, results.Results(self.folder, "gpu"), self.clock.now + limit_s, self.folder / "log")
        return first.run(made), made.wrong


def test_a_part_that_is_slow_takes_nothing_from_the_others_and_is_finished_at_the_end(monkeypatch, tmp_path, capsys):
    plan = Planned(monkeypatch, tmp_path, {"slow": 100, "quick": 20})

    assert plan.call(1000) == (0, 0)

    assert plan.done == [("slow", 60), ("quick", 20), ("slow", 40)]
    assert capsys.readouterr().out.count("slow is known") == 2


def test_a_call_that_its_limit_stops_is_followed_by_one_that_goes_on(monkeypatch, tmp_path):
    plan = Planned(monkeypatch, tmp_path, {"a": 50, "b": 50, "c": 5})

    assert plan.call(70) == (30, 0)
    assert plan.call(70) == (0, 0)

    assert plan.done == [("a", 50), ("b", 20), ("b", 30), ("c", 5)]
    assert plan.listed == ["a", "b", "b", "c"]


def test_shares_are_counted_over_calls(monkeypatch, tmp_path):
    plan = Planned(monkeypatch, tmp_path, {"slow": 100, "quick": 20})

    plan.call(50)
    plan.call(1000)

    assert [(name, round(seconds)) for name, seconds in plan.done] == [
        ("slow", 50),
        ("slow", 10),
        ("quick", 20),
        ("slow", 40),
    ]


def test_what_was_wrong_in_an_earlier_call_still_is(monkeypatch, tmp_path):
    plan = Planned(monkeypatch, tmp_path, {"a": 5, "b": 5}, wrong=("a",))

    assert plan.call(100) == (0, 1)
    assert plan.call(100) == (0, 1)

    assert plan.listed == ["a", "b"]


def test_the_parts_of_correct_are_all_of_it_once_default_schedules_first_and_engines_in_turn():
    context = Context(Options(Path("unused")), devices.Described(**devices.described(devices.Harness())))
    jobs = [job for job in correct.jobs(context) if isinstance(job.subject, correct.Case)]

    parts = [first.of(part, jobs) for part in first.PLAN if part.stage == "correct"]

    assert sorted(job.name for part in parts for job in part) == sorted(job.name for job in jobs)
    for part in parts:
        numbers = [job.subject.number for job in part]
        assert numbers == sorted(numbers)
    others = {job.subject.family.title for job in parts[-1]}
    assert len(others) > 10
    assert {job.subject.family.title for job in parts[-1][: len(others)]} == others


# ---- first contact ----


def test_the_maps_that_are_asked_for_are_legal_but_the_one_that_is_open():
    assert {name: bool(spec.objections()) for name, spec in contact.MAPS.items()} == {
        "tiled": False,
        "im2col": False,
        "overlapping": True,
    }
    assert contact.MAPS["im2col"].is_im2col
    assert devices.nbytes(contact.MAPS["im2col"]) == 2 * 28 * 28 * 64 * 2
    assert devices.nbytes(contact.MAPS["overlapping"]) == 1999 * 128 + 512


@pytest.mark.parametrize("name", contact.MAPS)
def test_the_driver_is_asked_for_the_maps(name):
    gpu = object.__new__(devices.Gpu)  # opening one asks for a driver that has a GPU
    gpu.cupy = FakeCupy({}, (9, 0))

    refused = gpu.refused(contact.MAPS[name])

    assert ("cuTensorMapEncodeTiled: invalid argument" in refused) == (name == "overlapping")


@pytest.mark.parametrize(("name", "ok"), [("tiled", False), ("overlapping", True)])
def test_a_map_that_the_driver_refuses_is_wrong_where_kernels_need_it(name, ok):
    device = SimpleNamespace(refused=lambda spec: "error 1")
    job = work.Job(contact.NAME, f"map-{name}", contact.MAPS[name])

    result = contact.perform(None, device, job, {})

    assert result == {"ok": ok, "refused": "error 1"}
    assert f"Tensor map, {name}: refused, error 1." in contact.summary(
        [{**result, "stage": "contact", "name": job.name}], "sm_90a"
    )


class Answering:
    """A device whose launches give ``answer(x)``, and that says what a plan asks for."""

    target = cuda.manifest("sm_90a")

    def __init__(self, answer):
        self.answer, self.plans = answer, []

    def open(self, plan, sources, binaries, weights):
        self.plans.append(plan)
        return self

    def run(self, inputs):
        return {"out": self.answer(inputs["x"])}

    def time_replays(self, count, *, overlap=True):
        return [(2e-6 if overlap else 3e-6)] * count


def contact_job(name):
    context = Context(Options(Path("unused")), devices.Described(**devices.described(devices.Harness())))
    return context, next(job for job in contact.jobs(context) if job.name == name)


def test_a_launch_asks_for_48_kib_of_dynamic_shared_memory_beside_static(monkeypatch):
    monkeypatch.setattr(devices, "build", lambda source, target, folder=None: {})
    context, job = contact_job("shared-memory")
    device = Answering(job.subject.answer)

    assert contact.perform(context, device, job, {})["ok"]

    (kernel,) = device.plans[0].kernels
    used = cuda.resources(cuda.compile_source(loops.source_of(job.subject.loop, Answering.target), Answering.target)[1])
    assert (kernel.shared, used["k0"].shared_bytes) == (49152, 4 * loops.FEW)


def test_the_pair_of_launches_overlaps_and_the_second_reads_what_the_first_wrote(monkeypatch):
    monkeypatch.setattr(devices, "build", lambda source, target, folder=None: {})
    context, job = contact_job("pair-of-launches")
    device = Answering(job.subject.answer)

    result = contact.perform(context, device, job, {})

    assert (result["ok"], round(result["us"], 3), round(result["alone_us"], 3)) == (True, 2, 3)
    (plan,) = device.plans
    assert [kernel.programmatic for kernel in plan.kernels] == [True]
    a, b = (launch.args for launch in plan.launches)
    assert a[1] == b[0]
    assert len({*a, *b}) == 3


def test_what_an_earlier_run_has_left_is_no_answer(monkeypatch):
    """A second launch that does not wait for the first finds the first's words of the run before."""
    monkeypatch.setattr(devices, "build", lambda source, target, folder=None: {})
    context, job = contact_job("pair-of-launches")
    seen = []

    def late(x):
        seen.append(x)
        return job.subject.answer(seen[max(0, len(seen) - 2)])

    result = contact.perform(context, Answering(late), job, {})

    assert not result["ok"]
    assert "run 1: " in result["fault"]


class Pool:
    freed = 0

    def free_all_blocks(self):
        self.freed += 1


def test_memory_is_given_back_after_each_piece_of_work(monkeypatch):
    pools = [Pool(), Pool()]
    gpu = devices.Gpu.__new__(devices.Gpu)
    gpu.cupy = SimpleNamespace(
        get_default_memory_pool=lambda: pools[0], get_default_pinned_memory_pool=lambda: pools[1]
    )
    context = SimpleNamespace(open_device=lambda: gpu)

    for number in range(2):
        work.performed(Stage(), context, gpu, work.Job("stage", f"{number}", "ok"), {"pid": 0})

    assert [pool.freed for pool in pools] == [2, 2]


def test_what_was_measured_stands_where_memory_cannot_be_given_back():
    gpu = devices.Gpu.__new__(devices.Gpu)
    gpu.cupy = SimpleNamespace()  # has no pools to ask

    _, result = work.performed(Stage(), SimpleNamespace(), gpu, work.Job("stage", "job", "ok"), {"pid": 0})

    assert result["ok"]
    assert result["fresh"]


# ---- results ----


def test_results_of_other_sources_other_kinds_and_cut_lines_do_not_count(tmp_path):
    mine = results.Results(tmp_path, "a GPU")
    mine.start("correct", "x")
    mine.end("correct", "x", {"ok": True})
    other = results.Results(tmp_path, "another GPU")
    assert other.ended == {}
    with mine.path.open("a") as file:
        file.write('{"stage": "corr')
    mine.end("correct", "y", {"ok": False})
    results.append(mine.path, {"stage": "correct", "name": "z", "ok": True, "version": "old", "device": "a GPU"})

    assert results.Results(tmp_path, "a GPU").ended == {("correct", "x"): True, ("correct", "y"): False}


def test_what_was_started_twice_and_never_ended_is_not_started_again(tmp_path):
    jobs = [work.Job("correct", name) for name in ("once", "twice", "never")]
    for name in ("once", "twice", "twice"):
        results.Results(tmp_path, "gpu").start("correct", name)
    found = results.Results(tmp_path, "gpu")

    todo, failed = call.chosen(jobs, found, Options(tmp_path))

    assert [job.name for job in todo] == ["once", "never"]
    assert failed == 1
    assert not results.Results(tmp_path, "gpu").ended["correct", "twice"]


def test_work_that_the_time_limit_cut_off_is_not_to_blame(tmp_path):
    for _ in range(3):
        found = results.Results(tmp_path, "gpu")
        found.start("kernels", "long")
        found.stop("kernels", "long")
    job = work.Job("kernels", "long")

    assert call.chosen([job], results.Results(tmp_path, "gpu"), Options(tmp_path)) == ([job], 0)


def test_what_failed_is_done_again_only_when_asked(tmp_path):
    jobs = [work.Job("correct", name) for name in ("wrong", "right")]
    found = results.Results(tmp_path, "gpu")
    found.end("correct", "wrong", {"ok": False})
    found.end("correct", "right", {"ok": True})

    assert call.chosen(jobs, found, Options(tmp_path)) == ([], 1)
    assert call.chosen(jobs, found, Options(tmp_path, again=True)) == (jobs[:1], 0)


# ---- the command ----


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_time_limit_stops_before_the_next_piece_of_work(tmp_path, capsys):
    assert kit.main(["correct", "--dry-run", "--limit-s", "-1", "--out", str(tmp_path)]) == 3

    assert "run this again" in capsys.readouterr().err
    assert ends(tmp_path) == []


@pytest.mark.parametrize("arguments", [["nothing"], ["kernels", "--models", "no_such"], ["--precisions", "fp12"]])
def test_an_unknown_stage_model_or_precision_is_named(arguments, tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        kit.main([*arguments, "--dry-run", "--out", str(tmp_path)])

    assert stopped.value.code == 2
    assert arguments[-1] in capsys.readouterr().err


def test_missing_packages_are_named(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(
        kit.importlib.util, "find_spec", lambda name: None if name in {"cuda.bindings", "jinja2"} else True
    )

    assert kit.main(["--out", str(tmp_path)]) == 2

    assert capsys.readouterr().err == "not installed: jinja2, cuda.bindings\n"


def test_a_part_of_a_package_that_is_not_there_is_named(monkeypatch, capsys, tmp_path):
    def find(name):
        if name == "cuda.bindings":
            raise ModuleNotFoundError(name)
        return True

    monkeypatch.setattr(kit.importlib.util, "find_spec", find)

    assert kit.main(["--out", str(tmp_path)]) == 2

    assert capsys.readouterr().err == "not installed: cuda.bindings\n"


# ---- children ----

FORKS = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # the children do nothing but answer


class Stage:
    """Jobs whose subject says what becomes of the process."""

    def prepare(self, context, job):
        if job.subject == "not prepared":
            raise ValueError("no schedule")
        if job.subject == "kills its compiler":
            os._exit(7)
        return {"pid": os.getpid()}

    def perform(self, context, device, job, prepared):
        found = {"ok": job.subject != "wrong", "pid": os.getpid(), "prepared_by": prepared["pid"]}
        match job.subject:
            case "hangs":
                time.sleep(60)
            case "dies":
                print("an illegal address", file=sys.stderr, flush=True)
                os._exit(11)
            case "loses the device":
                raise DeviceLostError("the context is gone", code="GPC5201")
            case "raises":
                raise TypeError("a tensor")
        return found


class Nowhere:
    def open_device(self):
        return SimpleNamespace(free=lambda: None)


def pool_run(tmp_path, *subjects, deadline_s=60.0):
    jobs = [work.Job("stage", f"{n}-{s}", s, limit_s=1.0) for n, s in enumerate(subjects)]
    found = results.Results(tmp_path, "gpu")
    pool = work.WorkerPool(Stage(), Nowhere(), jobs, tmp_path / "work.log")
    complete = pool.run(found, time.monotonic() + deadline_s, lambda job, result: None)
    return complete, {
        entry["name"].split("-")[1] if entry["name"][2:] != "ok" else entry["name"]: entry for entry in ends(tmp_path)
    }


@FORKS
@pytest.mark.parametrize(
    ("subject", "said"),
    [
        ("hangs", "still running after 1 s"),
        ("dies", "ended with 11: an illegal address"),
        ("loses the device", "the context is gone"),
        ("raises", "TypeError: a tensor"),
        ("not prepared", "ValueError: no schedule"),
        ("kills its compiler", "the compiling process died"),
    ],
)
def test_what_breaks_a_process_is_named_and_the_others_are_done_in_a_fresh_one(subject, said, tmp_path):
    complete, found = pool_run(tmp_path, "ok", subject, "ok")

    assert complete
    assert said in found[subject]["error"]
    assert not found[subject]["ok"]
    assert found["0-ok"]["ok"]
    assert found["2-ok"]["ok"]
    survives = subject in {"not prepared", "kills its compiler"}
    assert (found["0-ok"]["pid"] == found["2-ok"]["pid"]) == survives
    assert os.getpid() not in {found["0-ok"]["pid"], found["0-ok"]["prepared_by"]}


@FORKS
def test_what_runs_when_the_time_is_over_is_cut_off_and_not_blamed(tmp_path, monkeypatch):
    monkeypatch.setattr(work, "GRACE_S", 0.5)
    jobs = [work.Job("stage", "long", "hangs", limit_s=60.0)]
    pool = work.WorkerPool(Stage(), Nowhere(), jobs, tmp_path / "work.log")

    complete = pool.run(results.Results(tmp_path, "gpu"), time.monotonic() + 0.5, lambda job, result: None)

    assert not complete
    assert results.Results(tmp_path, "gpu").started == {("stage", "long"): 0}


@FORKS
def test_a_wrong_answer_costs_no_process(tmp_path):
    _, found = pool_run(tmp_path, "ok", "wrong", "ok")

    assert not found["wrong"]["ok"]
    assert found["0-ok"]["pid"] == found["2-ok"]["pid"]


@FORKS
def test_nothing_is_started_when_the_time_is_over(tmp_path):
    complete, found = pool_run(tmp_path, "ok", deadline_s=-1.0)

    assert not complete
    assert found == {}


# ---- setups: what a kernel may do wrong ----

ADD = add_relu(13, 17)


def answer(x, bias, relu, total):
    sums = x.view(np.float32).reshape(13, 17) + bias.view(np.float32)
    total[:] = sums.reshape(-1).view(np.uint8)
    relu[:] = np.maximum(sums, 0).reshape(-1).view(np.uint8)


def beyond(array, nbytes=1):
    """The bytes behind an array of the arena."""
    base = array.base
    begin = array.ctypes.data - base.ctypes.data + array.nbytes
    return base[begin : begin + nbytes]


def writes_behind(x, bias, relu, total):
    answer(x, bias, relu, total)
    beyond(relu)[:] = 0


def writes_before(x, bias, relu, total):
    answer(x, bias, relu, total)
    beyond(x, 400)[399] = 7


def changes_an_input(x, bias, relu, total):
    answer(x, bias, relu, total)
    bias[0] ^= 1


def leaves_one_out(x, bias, relu, total):
    before = total[-4:].copy()
    answer(x, bias, relu, total)
    total[-4:] = before


def is_off(x, bias, relu, total):
    answer(x, bias, relu, total)
    total.view(np.float32)[5] += 0.01


def test_shared_memory_beyond_48_kb_is_asked_for(monkeypatch):
    """The driver of the tests refuses a launch that did not."""
    monkeypatch.setattr(devices, "build", lambda source, target, folder=None: {})
    kernel, family = matmul(130, 128, 96, dtype=F16), FAMILIES["contraction/mma"]
    problem = family.problem(kernel)
    schedule = next(
        s
        for s in candidates.drawn(family, problem, TARGET.limits, 300)
        if family.geometry(family.schedule(s), problem).dynamic_shared_bytes > 48 << 10
    )

    result = correct.checked(
        Context(Options(Path("unused"))), OnFake(lambda *arrays: None), kernel, candidates.Candidate(family, schedule)
    )

    assert "NaN" in result["fault"]


class Changing:
    """Right, but other bits every time."""

    def __init__(self):
        self.runs = 0

    def __call__(self, x, bias, relu, total):
        answer(x, bias, relu, total)
        self.runs += 1
        total.view(np.float32)[3] *= 1 + self.runs * 2e-7


class OnFake:
    """A device that opens CudaProgram on the driver of the tests."""

    target, name, cache_bytes, least_launches = TARGET, "fake", 1 << 12, 2

    def __init__(self, function):
        self.function = function

    def facts(self):
        return {"gpu": "fake"}

    def clocks(self):
        return {}

    def open(self, plan, sources, binaries, weights):
        from gpucomp.runtime.cuda import CudaProgram

        sizes = [plan.buffers[a].nbytes for a in plan.launches[0].args]
        cupy = FakeCupy({"k0": lambda *memory: self.function(*(m[:n] for m, n in zip(memory, sizes, strict=True)))})
        binaries = {k.binary: cubin("k0", [8] * len(sizes)) for k in plan.kernels}
        return CudaProgram(plan, sources, binaries, weights, cupy=cupy)


def checked(function, kernel=ADD, tmp_path=Path("unused")):
    context = Context(Options(tmp_path))
    candidate = candidates.default(kernel, family_of(kernel), TARGET.limits)
    return correct.checked(context, OnFake(function), kernel, candidate)


def test_a_right_kernel_is_right_by_the_runtime_s_own_launches(monkeypatch):
    monkeypatch.setattr(devices, "build", lambda source, target, folder=None: {})

    assert checked(answer)["ok"]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (writes_behind, "between the buffers"),
        (writes_before, "between the buffers"),
        (changes_an_input, "input or counter 1 was changed"),
        (leaves_one_out, "NaN"),
        (is_off, "max error"),
        (Changing(), "other bits than the first"),
    ],
)
def test_a_wrong_kernel_is_found_out(function, said, monkeypatch):
    monkeypatch.setattr(devices, "build", lambda source, target, folder=None: {})

    result = checked(function)

    assert not result["ok"]
    assert said in result["fault"]


class Idle:
    """A device that computes nothing."""

    target = TARGET

    def open(self, plan, sources, binaries, weights):
        return self

    def run(self, inputs):
        return dict(inputs)


@pytest.mark.parametrize("case", ["loops-add_relu", "contraction-i32", "rowwise-softmax", "pool-3x3"])
def test_outputs_that_no_kernel_wrote_are_wrong(case, monkeypatch, tmp_path):
    monkeypatch.setattr(devices, "build", lambda source, target, folder=None: {})
    kernel = CASES[case]

    result = correct.checked(Context(Options(tmp_path)), Idle(), kernel, candidates.default(
        kernel, family_of(kernel), TARGET.limits))  # fmt: skip

    assert not result["ok"]


def test_sets_of_buffers_take_turns_and_constants_lie_apart():
    kernel = replace(matmul(5, 16, 8), constants=frozenset({1}))
    candidate = candidates.default(kernel, FAMILIES["contraction/simt"], TARGET.limits)
    source, packed = candidates.rendered(kernel, candidate, TARGET, "k0")
    inputs = [np.ones(t.shape, np.float32) for t in kernel.params[: kernel.inputs]]

    made = setups.setup(
        kernel, candidate.family, source, packed, inputs, TARGET, constants=kernel.constants, sets=3, launches=7
    )

    used = [launch.args for launch in made.plan.launches]
    assert used == [used[n % 3] for n in range(7)]
    assert len({a for args in used for a in args}) == 3 * len(used[0])
    assert len(made.weights) == 3
    spans = sorted((b.offset, b.offset + b.nbytes) for b in made.plan.buffers if b.name != "arena" and b.offset >= 0)
    assert all(after[0] - before[1] >= setups.BAND for before, after in itertools.pairwise(spans))


# ---- candidates and cases ----


def test_candidates_are_legal_distinct_and_begin_with_the_defaults_of_all_engines():
    kernel = replace(matmul(49, 512, 256), constants=frozenset({1}))
    kernel = replace(kernel, body=replace(kernel.body, math="tf32"))
    engines = engines_of(kernel, TARGET.features)

    found = candidates.shortlist(kernel, TARGET, 8)

    assert len(engines) > 1
    assert [c.schedule for c in found[: len(engines)]] == [
        candidates.default(kernel, f, TARGET.limits).schedule for f in engines
    ]
    assert len({c.title for c in found}) == len(found) == 8
    assert all(not c.family.reasons(c.schedule, c.family.problem(kernel), TARGET.limits) for c in found)


def test_the_shortlist_is_fast_by_the_model_and_its_members_are_unlike_each_other():
    kernel = matmul(784, 128, 1152, dtype=F16)
    family = FAMILIES["contraction/mma"]
    drawn = [
        candidates.estimate_us(kernel, family, s, family.problem(kernel), TARGET)
        for s in candidates.drawn(family, family.problem(kernel), TARGET.limits, 200)
    ]

    found = candidates.ranked(kernel, family, TARGET, 6)[1:]

    assert max(c.estimate_us for c in found) < sorted(drawn)[len(drawn) // 2]
    assert found[0].estimate_us <= min(drawn)
    first = candidates.Candidate(family, {"a": 1, "b": 2}, 5.0)
    twin, cousin = replace(first, schedule={"a": 1, "b": 3}), replace(first, schedule={"a": 9, "b": 8})
    slow = replace(cousin, estimate_us=50.0)
    assert candidates.diverse(first, [twin, slow, cousin], 3) == [first, cousin, twin]


def test_the_cases_are_distinct_kernels_of_all_engines_with_constant_weights_and_every_math():
    found = cases.cases()

    assert len({k.digest for k in found.values()}) == len(found)
    assert any(k.constants for k in found.values())
    assert {getattr(k.body, "math", "strict") for k in found.values()} == {"strict", "tf32", "3xtf32"}
    kinds = [
        cuda.manifest("sm_90a").features,
        cuda.manifest("sm_100").features,
        opencl.manifest("mali").features,
        opencl.manifest("gfx1030").features,
        frozenset({"amd", "mfma", "hip"}),
    ]
    reached = {f.title for k in found.values() for features in kinds for f in engines_of(k, features)}
    assert reached == set(FAMILIES)


LISTING = """
import json
import sys
{before}
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
from bench.gpu import correct
from bench.gpu.context import Context, Options
from bench.gpu.devices import Described, described, Harness
context = Context(Options(None), Described(**described(Harness())))
names = [job.name for job in correct.jobs(context)]
print(json.dumps([names, opened]))
"""
NOT_ON_A_GPU_MACHINE = ("pyopencl", "unicorn", "pytest", "sklearn", "hypothesis", "onnxruntime", "torch", "distributed")
NO_DRIVER = """
import pyopencl
def asked():
    raise SystemExit("a driver was asked for its platforms")
pyopencl.get_platforms = asked
"""


def listing(absent=(), before=""):
    """The jobs of ``correct``, and the files that were opened to list them, in a process of its own."""
    program = f"absent = {absent!r}\n" + BLOCKED + LISTING.format(before=before)
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_cases_are_listed_without_the_tests_and_what_they_import():
    names, files = listing(NOT_ON_A_GPU_MACHINE)

    assert any("mali-kernels-" in name for name in names)
    assert not [file for file in files if Path(file).is_relative_to(ROOT / "tests")]


def test_looking_for_cases_opens_no_driver():
    """A forked process hangs in a driver that its parent has opened."""
    pytest.importorskip("pyopencl")

    names, _ = listing(before=NO_DRIVER)

    assert names


class Sanitizer:
    """Stands in for compute-sanitizer."""

    def __init__(self, tmp_path, code, said):
        self.path = tmp_path / "compute-sanitizer"
        self.path.write_text(f"#!/bin/sh\necho '{said}'\nexit {code}\n")
        self.path.chmod(0o755)


@pytest.mark.parametrize(
    ("code", "said", "ok"),
    [
        (0, "========= ERROR SUMMARY: 0 errors", True),
        (86, "========= Invalid __global__ write of size 4 bytes", False),
        (1, "Error: Device not supported", True),
    ],
)
def test_what_compute_sanitizer_finds_counts(code, said, ok, tmp_path):
    tool = Sanitizer(tmp_path, code, said)

    result = correct.watched(Context(Options(tmp_path)), correct.Watch("memcheck", str(tool.path), ("a", "b")))

    assert result["ok"] is ok
    assert said.split()[-1] in json.dumps(result) or "left_out" in result


# ---- errors ----


@pytest.mark.parametrize(
    ("actual", "expected", "error"),
    [
        ([3.0, 4.0], [3.0, 4.0], 0.0),
        ([3.0, 3.0], [3.0, 4.0], 0.2),
        ([math.nan], [1.0], math.inf),
        ([1.0], [1.0, 1.0], math.inf),
    ],
)
def test_the_error_is_relative_and_infinite_for_what_is_no_answer(actual, expected, error):
    assert checks.relative_error(np.array(actual), np.array(expected)) == error


def test_a_number_beyond_a_narrow_type_is_to_be_an_infinity():
    wanted = np.array([1.0, -1e30])

    assert checks.error_of(np.array([1.0, -np.inf], np.float16), wanted) == 0
    assert checks.error_of(np.array([1.0, np.inf], np.float16), wanted) == math.inf
    assert checks.error_of(np.array([1.0, -np.inf]), wanted) == math.inf


# ---- clocks ----


def test_clocks_come_from_nvidia_smi_where_there_is_no_pynvml(tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho '1980, 3201, 41, 512.25'\n")
    tool.chmod(0o755)
    monkeypatch.setattr(devices.shutil, "which", lambda name: str(tool))
    run = subprocess.run
    monkeypatch.setattr(devices.subprocess, "run", lambda command, **how: run([str(tool), *command[1:]], **how))

    assert devices.smi_clocks() == {"sm_mhz": 1980, "memory_mhz": 3201, "celsius": 41, "watts": 512.25}
    tool.write_text("#!/bin/sh\necho 'No devices were found'\n")
    assert devices.smi_clocks() == {}


@pytest.mark.parametrize(
    ("nvml", "told", "found"),
    [
        (object(), {"sm_mhz": 1755}, {"sm_mhz": 1755}),
        (object(), {}, {"sm_mhz": 1980}),  # a driver that it does not fit
        (None, {"sm_mhz": 1755}, {"sm_mhz": 1980}),
    ],
)
def test_a_gpu_s_clocks_come_from_pynvml_or_else_from_nvidia_smi(nvml, told, found, monkeypatch):
    monkeypatch.setattr(devices, "import_nvml", lambda: nvml)
    monkeypatch.setattr(devices, "nvml_clocks", lambda module: told)
    monkeypatch.setattr(devices, "smi_clocks", lambda: {"sm_mhz": 1980})

    assert devices.Gpu.clocks(None) == found
