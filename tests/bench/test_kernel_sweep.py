"""The sweep of random kernels: the same cases from the same seed, a journal that goes on, disagreements that are told."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyopencl as cl
import pytest

from bench.gpu.checks import terms_of
from bench.gpu.results import lines
from bench.kernel_sweep import __main__ as program
from bench.kernel_sweep import layers
from bench.kernel_sweep.__main__ import Journal, main
from bench.kernel_sweep.cases import CELLS, HIP_PREFIX, LARGEST, Case, Cell, cells, draw, features_of, target_of, work
from bench.kernel_sweep.play import built_by_pocl, by_harness, by_opencl, compiled, prepared
from bench.kernel_sweep.points import sampled
from gpucomp.ir.types import F16, F32, I32
from gpucomp.kernel import Kernel
from gpucomp.kernel.interpreter import expected
from gpucomp.kernels_templates.contraction.simt.space import row_chunk
from gpucomp.kernels_templates.engines import FAMILIES
from testing.cuda_on_cpu.harness import hip_compiler
from testing.kernels import (
    attention,
    average_pool,
    conv,
    depthwise,
    layer_norm,
    matmul,
    max_pool,
    random_inputs,
    reduction,
    softmax,
    with_largest,
    with_row_statistics,
)
from tests.cuda_on_cpu.kernel_files import broken

SIMT = Cell("sm_80", "contraction/simt", "f32")


@pytest.mark.parametrize("cell", cells(), ids=lambda c: c.name)
def test_a_case_suits_its_engine(cell):
    case = draw(cell, 3)

    assert cell.family.accepts(case.kernel, features_of(cell)) == ""
    assert cell.family.reasons(case.schedule, cell.family.problem(case.kernel), target_of(cell).limits) == []


def test_other_numbers_and_seeds_are_other_cases_and_the_same_ones_are_the_same():
    first, again = ([draw(SIMT, number, seed) for number in range(4) for seed in range(3)] for _ in range(2))
    keys = [[(case.kernel.digest, tuple(case.schedule.items())) for case in found] for found in (first, again)]

    assert keys[0] == keys[1]
    assert len(set(keys[0])) == len(first)


def test_a_cell_of_a_way_has_schedules_that_take_it_and_others_have_both():
    def takes(case):
        return row_chunk(case.cell.family.schedule(case.schedule), case.cell.family.problem(case.kernel)) > 0

    rows = replace(SIMT, dtype="f32-rows")

    assert all(takes(draw(rows, number)) for number in range(5))
    assert not all(takes(draw(SIMT, number)) for number in range(5))


@pytest.mark.parametrize("engine", ["contraction/simt", "contraction/mma", "contraction/wgmma"])
def test_a_cell_of_tails_has_row_statistics_of_every_kind_and_others_have_none(engine):
    tails = [cell for cell in cells() if cell.engine == engine and cell.has_tail]
    found = [[draw(cell, number).kernel for number in range(16)] for cell in tails]

    assert len(tails) >= 3
    for kernels_ in found:
        assert {len(k.body.tail.statistics) for k in kernels_} == {1, 2}
        assert {k.body.math for k in kernels_} == {tails[found.index(kernels_)].math}
    others = [draw(replace(cell, dtype=cell.dtype.removesuffix("-tail")), 0).kernel for cell in tails]
    assert not any(k.body.tail for k in others)


def test_every_engine_has_cells():
    assert {engine for engines in CELLS.values() for engine in engines} == set(FAMILIES)


# one of every engine; the sweep itself is for the hours outside of the suite
SAMPLE = (
    "sm_80 loops f16", "sm_80 loops/transpose u8", "sm_80 depthwise bf16", "sm_80 contraction/simt i8",
    "sm_80 contraction/gemv bf16", "sm_80 contraction/mma 3xtf32", "sm_80 contraction/winograd f32", "sm_80 rowwise f64",
    "sm_80 contraction/stem_mma f16", "pocl contraction/stem_simt f32", "sm_80 scan i64", "sm_80 scatter f32",
    "sm_80 pool u8", "sm_80 pool/window f16", "sm_80 attention/simt f32", "sm_80 attention/mma bf16",
    "sm_75 contraction/mma f16", "sm_90a contraction/wgmma tf32", "pocl contraction/mali f16", "pocl rowwise bf16",
    "sm_80 contraction/simt bf16-tail", "sm_80 contraction/mma 3xtf32-tail", "sm_90a contraction/wgmma f16-tail",
    "gfx90a contraction/amd f16", "sm_80 contraction/separable_mma bf16", "sm_80 contraction/simt f32-rows",
    "hip:gfx90a contraction/amd f16", "hip:gfx942 contraction/amd i8", "hip:gfx1100 contraction/amd i8",
    "hip:gfx950 contraction/amd bf16", "hip:gfx950 attention/amd f16", "gfx950 contraction/amd i8",
    "hip:gfx1201 contraction/amd f16", "hip:gfx1201 contraction/amd i8", "hip:gfx908 contraction/amd bf16",
    "gfx1201 contraction/amd bf16", "hip:gfx1100 contraction/gemv i8", "hip:gfx90a rowwise f64",
    "hip:gfx90a attention/simt f16", "gfx906 contraction/simt_pairs f16", "hip:gfx1030 contraction/simt_pairs f16-tail",
)  # fmt: skip
if hip_compiler() is None:
    SAMPLE = tuple(name for name in SAMPLE if not name.startswith(HIP_PREFIX))


def test_a_sample_of_the_cells_agrees_and_is_not_tried_twice(tmp_path, capsys):
    arguments = ["--cases", "1", "--journal", str(tmp_path / "j.jsonl"), "--markdown", str(tmp_path / "r.md")]
    arguments += ["--summary", str(tmp_path / "s.json")]
    arguments += [word for name in SAMPLE for word in ("--cell", name)]

    assert main(arguments) == 0
    first = list(lines(tmp_path / "j.jsonl"))
    assert main(arguments) == 0

    ended = [entry for entry in first if "fault" in entry]
    played = sum("left_out" not in entry for entry in ended)
    assert len(ended) == len(SAMPLE)
    assert played >= len(SAMPLE) - 2, "hardly any text is too long"
    assert list(lines(tmp_path / "j.jsonl")) == first
    assert f"{played} cases in {len(SAMPLE)} cells" in (tmp_path / "r.md").read_text()
    assert "| sm_80 | pool | u8 | 1 |" in capsys.readouterr().out
    summary = json.loads((tmp_path / "s.json").read_text())["--seed 0"]
    assert {cell for cell, numbers in summary.items() if numbers["tried"]} <= set(SAMPLE) == set(summary)


def test_a_case_that_cannot_be_made_says_why_also_in_the_next_call(tmp_path, capsys, monkeypatch):
    def draw(*given):
        raise LookupError("no kernel of 400 suits it")

    monkeypatch.setattr(program, "draw", draw)
    arguments = ["--cases", "1", "--journal", str(tmp_path / "j.jsonl"), "--cell", "pocl scan f32"]

    first, told = main(arguments), capsys.readouterr()
    second, again = main(arguments), capsys.readouterr()

    assert (first, second) == (1, 1)
    assert "FAULT pocl scan f32 0 by --seed 0: " in told.err
    assert "no kernel of 400 suits it" in told.err
    assert "no kernel of 400 suits it" in again.err
    assert "these 1 are from an earlier call; --again runs them again" in again.err


def fixed(kernel, schedule=None):
    problem = SIMT.family.problem(kernel)
    default = SIMT.family.default(problem, target_of(SIMT).limits).numbers
    return Case(SIMT, 0, kernel, dict(schedule or default))


@pytest.mark.parametrize(
    ("replace_", "by", "fault"),
    [("a_depth < 13", "a_depth < 12", "max error"), ("row < 9", "row < 10", "written 0 bytes past its end")],
)
def test_a_kernel_that_is_wrong_is_told(replace_, by, fault):
    ready = prepared(fixed(matmul(9, 7, 13)))
    wrong = replace(ready, source=replace(ready.source, text=broken(ready.source.text, replace=replace_, by=by)))

    whole, changed = compiled([ready, wrong])

    assert by_harness(ready, whole) == ""
    assert fault in by_harness(wrong, changed)


@pytest.mark.skipif(hip_compiler() is None, reason="clang 18 is not installed")
@pytest.mark.parametrize(
    ("target", "dtype", "replace_", "by"),
    [
        ("hip:gfx90a", "f16", "lane / 16 * 4 + r", "lane / 16 + 4 * r"),
        ("hip:gfx942", "i8", "as_long(a_part[0].hi)", "as_long(a_part[0].lo)"),
        ("hip:gfx90a", "bf16", "a_part[0].hi", "a_part[0].lo"),
        ("hip:gfx1100", "bf16", ") >> 16)", ") >> 15)"),
        ("hip:gfx1201", "i8", "a_part[0].hi", "a_part[0].lo"),
        ("hip:gfx1100", "i8", "r * 2 + lane / 16", "lane / 16 * 8 + r"),
        ("hip:gfx1201", "f16", "lane / 16 * 8 + r", "r * 2 + lane / 16"),
    ],
)
def test_a_kernel_of_hip_with_other_lanes_is_told(target, dtype, replace_, by):
    cell = Cell(target, "contraction/amd", dtype)
    kernel = matmul(19, 23, 70, dtype=cell.type, acc=I32 if dtype == "i8" else F32)
    schedule = cell.family.default(cell.family.problem(kernel), target_of(cell).limits)
    ready = prepared(Case(cell, 0, kernel, dict(schedule.numbers)))
    wrong = replace(ready, source=replace(ready.source, text=broken(ready.source.text, replace=replace_, by=by)))

    whole, changed = compiled([ready, wrong])

    assert by_harness(ready, whole) == ""
    assert "parameter 3:" in by_harness(wrong, changed)


@pytest.mark.parametrize(
    ("kernel", "replace_", "by", "fault"),
    [
        (with_row_statistics(matmul(9, 7, 13)), "mask > 0", "mask > 1", "parameter 5: max error"),
        (with_row_statistics(matmul(9, 7, 13)), "x6[row] = o4", "x6[row] = o3", "parameter 6: max error"),
        (with_row_statistics(matmul(9, 7, 13)), "a_depth < 13", "a_depth < 12", "parameter 3: max error"),
        (with_row_statistics(matmul(9, 7, 13, dtype=F16)), "mask > 0", "mask > 1", "parameter 5: max error"),
        (with_largest(matmul(9, 7, 13)), "x3[", "x3[0 * ", "parameter 7: max error"),
    ],
)
def test_row_statistics_that_are_wrong_are_told(kernel, replace_, by, fault):
    ready = prepared(fixed(kernel))
    wrong = replace(ready, source=replace(ready.source, text=broken(ready.source.text, replace=replace_, by=by)))

    whole, changed = compiled([ready, wrong])

    assert by_harness(ready, whole) == ""
    assert by_harness(wrong, changed).startswith(fault)


def test_a_text_that_does_not_compile_is_told_and_the_others_are_played():
    ready = prepared(fixed(matmul(5, 6, 7)))
    wrong = replace(ready, source=replace(ready.source, text=ready.source.text + "nonsense"))

    good, bad = compiled([ready, wrong])

    assert by_harness(ready, good) == ""
    assert "nonsense" in bad.reason


def test_a_case_that_ended_the_process_is_a_failure_once_and_again_is_tried_again(tmp_path):
    path = tmp_path / "j.jsonl"
    journal = Journal(path)
    journal.begin("a", "cell")
    journal.begin("b", "cell")
    journal.end("b", "cell", "")
    path.write_text(path.read_text() + '{"case": "c", "fau')

    found, third = Journal(path), Journal(path, again=True)

    assert {name: entry["fault"] for name, entry in found.ended.items()} == {"a": "it ended the process", "b": ""}
    assert [found.wants(name) for name in "abc"] == [False, False, True]
    assert [third.wants(name) for name in "abc"] == [True, False, True]
    assert third.ended["a"]["fault"], "it stands until it is tried"
    third.end("a", "cell", "")
    assert not third.wants("a")
    assert [json.loads(line)["fault"] for line in path.read_text().splitlines()[-2:]] == ["it ended the process", ""]


def test_faults_are_counted_in_the_row_of_their_cell(tmp_path):
    journal = Journal(tmp_path / "j.jsonl")
    journal.end(f"{SIMT.name} 0 by --seed 0", SIMT.name, "off", groups=3, steps=1)
    journal.end(f"{SIMT.name} 0 by --seed 1", SIMT.name, "", groups=3, steps=1)
    journal.end(f"{SIMT.name} 1 by --seed 0", SIMT.name, "", left_out="too long")

    (row,) = program.rows([SIMT], " by --seed 0", journal)

    assert (row.tried, row.groups, row.steps, row.left_out, len(row.faults)) == (1, 1, 0, 1, 1)
    assert "- sm_80 contraction/simt f32 0 by --seed 0" in program.report([row], "--seed 0")


def test_a_summary_is_added_to(tmp_path):
    path = tmp_path / "s.json"
    for how, tried in (("--seed 0", 3), ("--seed 1", 5), ("--seed 0", 7)):
        program.add_summary(path, how, [program.Row("sm_80 pool f32", tried, 5, faults=["off"]), program.Row("a b c")])

    found = json.loads(path.read_text())
    assert {how: run["sm_80 pool f32"]["tried"] for how, run in found.items()} == {"--seed 0": 7, "--seed 1": 5}
    assert found["--seed 1"]["sm_80 pool f32"]["faults"] == ["off"]
    assert found["--seed 1"]["a b c"] == {"tried": 0, "groups": 0, "steps": 0, "left_out": 0, "faults": []}


def test_a_summary_of_some_cells_keeps_the_others(tmp_path):
    path = tmp_path / "s.json"
    program.add_summary(path, "--seed 0", [program.Row("sm_80 pool f32", 3, 1), program.Row("sm_80 pool u8", 4, 2)])

    program.add_summary(path, "--seed 0", [program.Row("sm_80 pool u8", 9, 5)])

    found = json.loads(path.read_text())["--seed 0"]
    assert {cell: numbers["tried"] for cell, numbers in found.items()} == {"sm_80 pool f32": 3, "sm_80 pool u8": 9}


def test_the_report_has_a_line_for_an_engine_with_the_least_and_the_most_of_its_dtypes():
    rows = [program.Row("sm_80 pool f32", 7, 5), program.Row("sm_80 pool u8", 3, 2, left_out=1)]
    rows += [program.Row("pocl pool f32", 4, 4, 2)]

    lines_ = program.by_engine(rows).splitlines()[2:]

    assert lines_ == [
        "| sm_80 | pool | f32 u8 | 10 | 3 to 7 | 7 | 0 | 1 | 0 |",
        "| pocl | pool | f32 | 4 | 4 | 4 | 2 | 0 | 0 |",
    ]


def test_texts_of_other_macros_and_flags_share_a_run_of_the_compiler_of_opencl():
    cells_ = (
        Cell("gfx90a", "contraction/amd", "f16"),
        Cell("pocl", "pool", "f16"),
        Cell("pocl", "contraction/gemv", "f16"),
    )
    ready = [prepared(draw(cell, number), f"k{k}{number}") for k, cell in enumerate(cells_) for number in (4, 5)]

    programs = built_by_pocl(ready)

    assert [by_opencl(r, built) for r, built in zip(ready, programs, strict=True)] == [""] * 6
    told = [built.get_build_info(built.devices[0], cl.program_build_info.OPTIONS) for built in programs]
    assert ["-cl-opt-disable" in options for options in told[2:4]] == [False, True]
    assert len(set(map(id, programs))) == 2


SAMPLED: dict[str, Kernel] = {
    "conv": conv((2, 7, 5, 3), 6, (3, 3), pad=1),
    "batch": matmul(5, 7, 11, batch=(3,), dtype=F16),
    "integers": matmul(5, 7, 11, dtype=I32, acc=I32),
    "depthwise": depthwise((1, 6, 7, 5), (3, 3), pad=1),
    "softmax": softmax(3, 19, 8, axis=1),
    "row results": reduction("sum", 17, 13, rows_inside=True),
    "layer norm": layer_norm(7, 48),
    "max pool": max_pool((1, 11, 9, 8), 3, 2, 1),
    "average pool": average_pool((2, 6, 7, 3), (3, 2), 2, 1),
    "causal attention": attention(13, 13, 8, 12, causal=0, dtype=F16),
    "masked attention": attention(5, 9, 8, 6, group=2, mask="bool", residual=True),
}


@pytest.mark.parametrize(
    ("name", "terms"), {"conv": 27, "depthwise": 9, "average pool": 6, "max pool": 1, "softmax": 19}.items()
)
def test_as_many_terms_are_allowed_for_as_are_added_up(name, terms):
    assert terms_of(SAMPLED[name]) == terms


@pytest.mark.parametrize("name", SAMPLED)
def test_points_are_those_of_the_whole_oracle(name):
    kernel = SAMPLED[name]
    inputs = random_inputs(kernel, seed=4)
    whole = expected(kernel, inputs)

    found = sampled(kernel, inputs, 40)

    assert [p.target - kernel.inputs for p in found] == list(range(kernel.outputs))
    for points, right in zip(found, whole, strict=True):
        there = right[points.index]
        assert points.values.size > 4
        assert len({tuple(int(i) for i in at) for at in zip(*(a.flat for a in points.index), strict=True)}) > 4
        last = [n - 1 for n in right.shape]
        assert any(all(a.flat[k] == n for a, n in zip(points.index, last, strict=True)) for k in range(there.size))
        np.testing.assert_allclose(points.values.astype(np.float64), there.astype(np.float64), rtol=1e-6, atol=1e-6)


def test_a_layer_is_tried_by_every_engine_that_takes_it_and_a_large_one_is_left_out(monkeypatch):
    small, large = matmul(24, 16, 32, dtype=F16), matmul(1 << 10, 1 << 9, 1 << 11, dtype=F16)
    monkeypatch.setattr(layers, "kernels", lambda models, target, reduced: [large, small])

    found = list(layers.layers("sm_80", ["a model"]))

    assert [case.cell.engine for _, case in found] == ["contraction/simt", "contraction/mma"]
    assert all(case.kernel is small for _, case in found)
    assert work(large) > layers.MOST_WORK > LARGEST > work(small)
