"""The sweep over NVRTC: what it counts, what it calls a fault, and that it goes on where it stopped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench import compile_matrix
from bench.compile_matrix import Case, cases, row_of
from bench.models import build
from bench.nvrtc import Journal, Measured, collect, key, measure, write_report
from gpucomp.frontend import onnx as frontend
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.source import KernelSource
from gpucomp.targets import cuda
from gpucomp.targets.sass import disassembler

FINE = Measured("", 0.5, 40, 0, 0, 1024)


def source(text='// label\nextern "C" __global__ void kernel(float* x) { x[0] = 1.0f; }\n'):
    return KernelSource("kernel", "cuda", text, Geometry((1, 1, 1)))


@pytest.mark.parametrize(
    ("measured", "bound", "fault"),
    [
        (FINE, 40, None),
        (FINE, 0, None),
        (FINE, 39, "40 registers, the formula says at most 39"),
        (replace(FINE, spills=8), 0, "8 bytes spilt"),
        (replace(FINE, stack=16), 0, "16 bytes of stack"),
        (Measured("expected a ;"), 0, "expected a ;"),
    ],
)
def test_spills_stacks_refusals_and_too_many_registers_are_faults(measured, bound, fault):
    row = row_of("m", "sm_80", [(Case("conv", source(), bound), measured)])

    assert len(row.faults) == (fault is not None)
    assert fault is None or (fault in row.faults[0] and "m sm_80 conv" in row.faults[0])


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({}, None),
        ({"matrix": 0}, "0 instructions for matrix cores"),
        ({"local": 2}, "2 accesses of local memory"),
        ({"wide": 17}, "17 of 20 global loads of contractions move 16 bytes"),
    ],
)
def test_machine_code_of_contractions_is_judged_where_that_is_asked_for(change, fault):
    found = replace(FINE, **{"matrix": 64, "loads": 20, "wide": 18, "local": 0} | change)
    other = Case("softmax", source(), 0), replace(FINE, matrix=0, loads=7, wide=0, local=0)
    measured = [(Case("conv", source(), 0, matrix=True), found), other]

    judged, plain = (row_of("m", "sm_90a", measured, sass=sass) for sass in (True, False))

    assert (judged.contractions, judged.by_matrix, judged.loads) == (1, found.matrix > 0, 20)
    assert len(judged.faults) == (fault is not None)
    assert fault is None or fault in judged.faults[0]
    assert plain.faults == []
    assert plain.contractions == 0


def test_the_journal_keeps_what_was_measured_and_drops_a_cut_line(tmp_path):
    path = tmp_path / "journal.jsonl"
    Journal(path).add("a", FINE)
    path.write_text(path.read_text() + '{"key": "b", "err')

    assert Journal(path).known == {"a": FINE}


def test_a_key_changes_with_the_text_and_the_architecture_but_not_the_label():
    names = {key(source(), "sm_80"), key(source("// other\n" + source().text.partition("\n")[2]), "sm_80")}

    assert len(names) == 1
    assert key(source(), "sm_86") not in names
    assert key(source(source().text + "\n"), "sm_80") not in names


def test_a_kernel_is_measured_and_a_refusal_is_a_result():
    found = measure(source(), "sm_75")
    assert found.registers > 0
    assert (found.matrix, found.loads, found.local) == ((-1,) * 3 if disassembler() is None else (0, 0, 0))
    assert "error" in measure(source("// label\nnonsense;"), "sm_75").error


def test_a_reduced_model_has_every_distinct_kernel_once():
    found = cases(frontend.load(build("mobilenet_v2", reduced=True)), cuda.manifest("sm_80"))

    texts = [case.source.text.partition("\n")[2] for case in found]
    assert len(set(texts)) == len(texts) > 5
    assert any(case.bound for case in found)


def test_an_unknown_model_is_an_error(capsys):
    with pytest.raises(SystemExit):
        compile_matrix.main(["no_such"])

    assert "no_such" in capsys.readouterr().err


def test_a_sweep_tells_rows_as_they_come_and_its_report_names_every_fault(capsys, tmp_path):
    rows = [compile_matrix.Row("m", "sm_80", 3), compile_matrix.Row("n", "sm_80", 4, faults=["n conv: 8 bytes spilt"])]

    found = collect(iter(rows), compile_matrix.table)
    write_report(tmp_path / "new" / "r.md", "Title", "what it is", compile_matrix.table(found), found)

    out, err = capsys.readouterr()
    assert found == rows
    assert out.count("sm_80") == 2
    assert err.splitlines()[-1] == "FAULT n conv: 8 bytes spilt"
    text = (tmp_path / "new" / "r.md").read_text()
    assert text.startswith("# Title\n\nwhat it is\n")
    assert text.endswith("Faults:\n- n conv: 8 bytes spilt\n")
