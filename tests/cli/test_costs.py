"""``bench --static``, ``inspect --why`` and ``inspect --spaces`` on a small model, without a GPU."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import gpucomp
from gpucomp import cli, config
from gpucomp.cli import costs
from gpucomp.compiler import lower
from gpucomp.errors import DeviceError, UsageError
from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.report import static_cuda as static
from gpucomp.report import static_opencl
from gpucomp.schedule import analytic
from gpucomp.schedule.engine_hash import engine_hash
from gpucomp.targets import amdgcn, cuda, resolve, sass
from gpucomp.tuning import specs
from gpucomp.tuning.records import Store
from gpucomp.tuning.tasks import tasks_of

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
SHAPES = {"image": (2, 1, 8, 8)}
OPEN = ("--shapes", "image:2x1x8x8")  # the network leaves its batch open


@pytest.fixture(scope="module")
def found():
    target = cuda.manifest("sm_80")
    return static.costs(lower(DIGITS, target, SHAPES), target)


def command(capfd, *arguments):
    with config.using():
        code = cli.main([str(a) for a in arguments])
    out, err = capfd.readouterr()
    return code, out, err


def test_every_launch_is_there_with_what_ptxas_and_the_disassembler_say(found):
    executable = gpucomp.compile(DIGITS, target="cuda:sm_80", shapes=SHAPES)

    assert [c.name for c in found] == [launch.name for launch in executable.plan.launches]
    for cost in found:
        assert 8 <= cost.spent.registers <= 255
        assert cost.spent.spills == 0
        assert cost.spent.instructions["EXIT"] >= 1
        assert cost.terms.total_us > cost.terms.floor_us > 0
    assert any(sass.count(c.spent.instructions, "FFMA") for c in found)


def test_loads_are_told_apart_by_width():
    mix = sass.Counter({"LDG.E.128.CONSTANT": 3, "LDG.E": 1, "LDGSTS.E.BYPASS.128": 4, "LDS.128": 9})

    assert sass.count(mix, "LDG") == 4
    assert sass.wide_share(mix) == 7 / 8
    assert sass.wide_share(sass.Counter({"FFMA": 2})) == 1.0


def test_instructions_are_read_off_a_listing_with_predicates_and_uniform_registers():
    text = """
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*00f0*/              @!P0 LDC.64 R2, c[0x0][0x210] ;
        /*0100*/             @!UP1 UIADD3 UR4, UR4, 0x1, URZ ;
        .byte 1
    """
    assert sass.INSTRUCTION.findall(text) == ["LDC", "LDC.64", "UIADD3"]


def test_the_report_is_a_table_and_json(found, capfd, tmp_path):
    code, out, _ = command(
        capfd, "bench", DIGITS, *OPEN, "--static", "--target", "cuda:sm_80", "--json", tmp_path / "r.json"
    )

    data = json.loads((tmp_path / "r.json").read_text())
    assert code == 0
    header, *rows = out.splitlines()
    assert header.split()[:4] == ["#", "kernel", "name", "engine"]
    assert all(cost.label in row and cost.name in row for cost, row in zip(found, rows, strict=False))
    assert {"occ", "waves", "MMA", "LDG.128"} <= set(re.findall(r"[\w.]+(?=[:,])", rows[-1]))  # explained
    assert "A100" in out
    assert len(data["kernels"]) == len(found)
    assert data["predicted_us"] == pytest.approx(static.total_us(found))
    assert data["floor_us"] == pytest.approx(static.floor_us(found))


def test_a_missing_disassembler_is_said(found, monkeypatch):
    target = cuda.manifest("sm_80")
    monkeypatch.setattr(sass, "disassembler", lambda: None)

    assert sass.instructions(b"") is None
    without = [replace(c, spent=replace(c.spent, instructions=None)) for c in found]
    assert "'nvidia-cuda-nvdisasm>=13,<14'" in costs.static(without, target)[-1]


@pytest.mark.parametrize("target", ["cpu", "opencl:generic"])
def test_targets_without_ptxas_have_no_static_report(target):
    device = resolve(target)
    with pytest.raises(UsageError, match="this report is for GPU targets: cuda:sm_XX"):
        static.costs(lower(DIGITS, device, SHAPES), device)


@pytest.fixture(scope="module", params=["opencl:amd", "opencl:mali"])
def opencl_costs(request):
    target = resolve(request.param)
    return target, static_opencl.costs(lower(DIGITS, target, SHAPES), target)


def test_a_gpu_by_opencl_has_a_report_too(opencl_costs, monkeypatch):
    target, found = opencl_costs
    header, *rows = costs.static(found, target)

    assert len(rows) > len(found)
    assert "16 B loads" in header
    assert ("VGPRs" in header) == (target.arch == "amd")
    for cost in found:
        assert cost.terms.total_us > cost.terms.floor_us > 0
        assert 0 <= cost.spent.wide_share <= 1
        assert cost.spent.registers is None or 4 <= cost.spent.registers <= 256
    assert any(c.spent.wide_share > 0.5 for c in found)
    data = json.loads(json.dumps(costs.as_json(found, target)))
    assert [k["wide_share"] for k in data["kernels"]] == [c.spent.wide_share for c in found]
    assert data["predicted_us"] == pytest.approx(static.total_us(found))


@pytest.mark.skipif(amdgcn.compiler() is None, reason="clang is not installed")
def test_matrix_instructions_are_a_share_of_all_multiply_adds():
    target = resolve("opencl:gfx90a")
    found = static_opencl.costs(lower(DIGITS, target, SHAPES, precision="fp16"), target)

    by_engine = {c.engine: c for c in found}
    assert by_engine["contraction/amd"].spent.matrix_share > 0.2
    assert [c.spent.matrix_share for engine, c in by_engine.items() if engine.startswith("pool")] == [0]
    assert all(c.spent.spills == 0 and c.spent.waves >= 1 for c in found)
    assert static_opencl.matrix_share(listing(v_mfma_f32_16x16x16f16=3, v_fma_f32=1, v_add_f32=9)) == 0.75
    assert static_opencl.matrix_share(listing(v_fmac_f32=4)) == 0


def listing(**instructions):
    return amdgcn.Resources(0, 0, 0, 0, 0, 0, instructions)


@pytest.mark.parametrize(("name", "clang"), [("opencl:gfx90a", "clang"), ("hip:gfx90a", "clang 18 or newer")])
def test_without_clang_formulas_stand_for_what_it_would_say(name, clang, monkeypatch):
    monkeypatch.setattr(amdgcn, "compiler", lambda language: None)
    target = resolve(name)

    found = static_opencl.costs(lower(DIGITS, target, SHAPES), target)

    assert {(c.spent.spills, c.spent.waves, c.spent.matrix_share, c.spent.instructions) for c in found} == {(None,) * 4}
    assert any(c.spent.registers for c in found)
    assert f"nothing was compiled for the AMD GPU: {clang} is not installed" in costs.static(found, target)[-1]


@pytest.mark.skipif(amdgcn.compiler() is None, reason="clang is not installed")
def test_an_instruction_set_that_clang_does_not_know_is_said_so():
    source = SimpleNamespace(name="k0", text="__kernel void k0() {}", language="opencl", digest="0")

    with pytest.raises(
        DeviceError, match="no installed clang knows gfx1999: install a newer one, for example apt-get install clang-"
    ):
        amdgcn.assemble(source, "gfx1999")


@pytest.mark.parametrize(("target", "asked"), [("amd", "gfx1030"), ("gfx90a", "gfx90a"), ("gfx1151", "gfx1151")])
def test_clang_is_asked_for_the_instruction_set_that_was_named(target, asked):
    assert static_opencl.instruction_set(resolve(f"opencl:{target}")) == asked


def test_why_names_every_term(capfd):
    code, out, _ = command(capfd, "inspect", DIGITS, *OPEN, "--why", "--target", "cuda:sm_80")

    assert code == 0
    terms = ("launch", "start", "loop", "math", "issue", "shared", "cache", "latency", "end", "join", "memory")
    for word in ("floor", "waves", "occupancy", *terms, "bound by", "others"):
        assert word in out


def test_why_says_on_which_device_a_record_was_measured(capfd, tmp_path):
    """One of another GPU of the same architecture: the target names no GPU."""
    target = cuda.manifest("sm_80")
    (task, *_) = tasks_of(lower(DIGITS, target, SHAPES), target)
    device = {"kind": "cuda", "arch": "sm_80", "name": "NVIDIA A30 | 12040"}
    with Store(tmp_path / "r.jsonl") as store:
        store.append(
            "pick",
            {
                "kernel": task.kernel.digest,
                "device": device,
                "engine": task.default.family.title,
                "configuration": dict(task.default.schedule),
                "problem": dict(task.problem(task.default.family).numbers),
                "template": engine_hash(task.default.family),
                "source": "",
                "ratio": 0.9,
            },
        )

    code, out, _ = command(
        capfd, "inspect", DIGITS, *OPEN, "--why", "--target", "cuda:sm_80", "--records", tmp_path / "r.jsonl"
    )

    assert code == 0
    assert "(sibling: 'NVIDIA A30 | 12040')" in out


def test_spaces_count_each_distinct_problem_once(capfd):
    code, out, _ = command(capfd, "inspect", DIGITS, *OPEN, "--spaces", "--target", "cuda:sm_80")

    header, *rows, legend = out.splitlines()
    assert code == 0
    assert len(rows) == len(set(rows))
    assert any("contraction/simt" in row and row.startswith("Conv f32[2,8,8,1]") for row in rows)
    assert header.split() == ["kernel", "engine", "raw", "legal", "kernels", "problem"]
    assert all(f"{name}: " in legend for name in ("kernel", "raw", "legal"))


def test_a_small_space_is_counted_and_a_large_one_estimated():
    pool, simt = FAMILIES["pool"], FAMILIES["contraction/simt"]
    from testing.kernels import matmul, max_pool

    limits = cuda.manifest("sm_80").limits
    counted = costs.legal(pool, pool.problem(max_pool((1, 9, 9, 8), 3, 2, 1)), limits)
    estimated = costs.legal(simt, simt.problem(matmul(64, 64, 64)), limits)

    assert int(counted) == sum(1 for _ in pool.legal(pool.problem(max_pool((1, 9, 9, 8), 3, 2, 1)), limits))
    assert estimated.startswith("~")
    assert int(estimated[1:]) > 0


@pytest.mark.parametrize("arguments", [("inspect", "--why"), ("bench", "--static")])
def test_a_processor_has_no_such_report_and_the_message_says_what_there_is(capfd, arguments):
    name, option = arguments

    code, _, err = command(capfd, name, DIGITS, *OPEN, option, "--target", "cpu")

    assert code == 2
    assert "error GPC2012: target cpu: this report is for GPU targets" in err
    assert "`gpucomp inspect MODEL --node '*'` prints who chose each schedule" in err


def test_winograds_floor_is_that_of_its_bytes(monkeypatch):
    target = cuda.manifest("sm_80")
    ((step, item),) = static.launched(lower(specs.model("matmul m=1024 n=1024 k=1024"), target))
    counted = static.cost_of(step, item, target.device, static.by_formula(step, item))
    for module in (analytic, costs):  # as if this engine did fewer operations than are counted
        monkeypatch.setattr(module, "FEWER_OPERATIONS", (counted.engine,))

    cost = static.cost_of(step, item, target.device, static.by_formula(step, item))

    wanted = analytic.demand(step.kernel, target.device)
    assert cost.terms.floor_us == pytest.approx(
        float(analytic.bytes_us(wanted.bytes, wanted.constant_bytes, target.device))
    )
    assert cost.terms.floor_us < counted.terms.floor_us
    assert "floor     of 1 kernel by Winograd's algorithm: that of the bytes alone" in costs.static([cost], target)
