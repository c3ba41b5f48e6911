"""The page of errors and limits says what the code does: every code, and the figures of the limits."""

import re
from pathlib import Path

import pytest

from gpucomp import errors
from gpucomp.artifact import manifest
from gpucomp.cli import tensors as files
from gpucomp.frontend.onnx import external, folding, functions, importer, repeat, tensors, wire
from gpucomp.frontend.onnx.ai_onnx import control
from gpucomp.ir import graph
from gpucomp.schedule import records
from tests.hostile import corpus
from tests.hostile.worker import CONSTANT, SECONDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
CODE = re.compile(r"GPC\d{4}")
MIB = 1 << 20


def test_every_code_is_on_the_page_and_every_code_of_the_page_is_raised():
    sources = [p.read_text(encoding="utf-8") for folder in ("gpucomp", "tuning") for p in (ROOT / folder).rglob("*.py")]
    raised = {code for text in sources for code in CODE.findall(text)}
    of_c = (ROOT / "gpucomp" / "native" / "src" / "store.h").read_text(
        encoding="utf-8"
    )  # the C library has some of its own
    raised |= {f"GPC{number}" for number in re.findall(r"#define GCRT_\w+ (\d{4})", of_c)}

    assert raised - set(CODE.findall(PAGE)) == set()
    assert set(CODE.findall(PAGE)) - raised == set()


def test_every_code_that_a_hostile_case_ends_with_is_on_the_page():
    expected = {case.code for case in corpus.everything().values()} - {corpus.OK}

    assert expected <= set(CODE.findall(PAGE))
    assert len(expected) > 40


@pytest.mark.parametrize(
    ("row", "figures"),
    [
        ("messages in a file; texts in it", (wire.MAX_MESSAGES, wire.MAX_TEXTS)),
        ("nodes in a file, including subgraphs and functions", (functions.MAX_NODES,)),
        ("nodes after inlining", (functions.MAX_ADDED,)),
        ("depth of functions", (functions.MAX_DEPTH,)),
        ("steps of a loop", (control.MAX_TRIPS, repeat.MAX_COUNT)),
        ("bytes of one value", (importer.MAX_NODE_BYTES >> 30,)),
        ("elements of one value", (graph.MAX_RANK,)),
        ("bytes of the lists", (wire.MAX_LISTS, wire.A_NUMBER, wire.A_SMALL_NUMBER, wire.AN_ENTRY, wire.A_TEXT)),
        ("bytes of the lists", (wire.A_DOUBLE, wire.A_FLOAT)),
        ("entries of the lists", (functions.MAX_LISTED,)),
        (
            "other work of the translation",
            (
                functions.EFFORT,
                functions.EFFORT_OF_THE_FILE,
                functions.EFFORT_A_NODE,
                functions.EFFORT_AN_OPERAND,
                functions.BUILT_EFFORT,
                functions.OPERAND_EFFORT,
            ),
        ),
        ("bytes of a constant that an operator makes", (tensors.MADE_LIMIT // MIB,)),
        ("bytes of all of these together", (2 * folding.ALL // MIB, tensors.ALL_MADE // MIB)),
        ("values computed while a model is read", (folding.ONE // MIB, folding.ALL // MIB)),
        ("bytes of the manifest", (manifest.MAX_BYTES // MIB, manifest.MAX_VALUES)),
        ("bytes of a line of records", (records.MAX_LINE // MIB,)),
        ("pixels of a photo", (files.MAX_PIXELS,)),
    ],
)
def test_the_figures_of_the_page_are_those_of_the_code(row, figures):
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| {row}")]

    for figure in figures:
        assert re.search(rf"(?<![\d,]){figure:,}(?![\d,])", line)


def test_the_promises_of_the_page_are_those_that_the_cases_are_held_to():
    assert f"at most {SECONDS:.0f} seconds of processor time" in PAGE
    assert f"plus {CONSTANT // MIB} MiB" in PAGE
    assert f"at most {errors.MAX_MESSAGE:,} characters" in PAGE
    assert folding.WORK == 1 << 25
    assert graph.MAX_RANK == tensors.MAX_RANK == 32
    assert external.SMALL <= CONSTANT
