"""ONNX's own cases through the C runtime: a spread of them, and what the command says of those that are not right."""

import dataclasses
from pathlib import Path

import pytest

from bench.conformance.c_runtime import Said, page, say, verdicts
from bench.conformance.cases import cases, listed
from testing.c_library import COMPILERS, build, native

pytestmark = pytest.mark.skipif(not COMPILERS, reason="no C compiler")
SPREAD = listed(Path(__file__).parents[1] / "onnx_spread_opencl.txt")
REFUSED = {
    "test_string_concat_broadcasting": "operators that run on the host, which only Python runs: StringConcat at node 'result'",
    "test_training_dropout_mask": "operators that run on the host, which only Python runs: RandomUniform at node 'y'",
}


@pytest.mark.parametrize("name", [name for name in SPREAD if name not in REFUSED])
def test_a_case_of_every_family_is_right(name):
    assert say(cases()[name], native()).verdict == ""


@pytest.mark.parametrize(("name", "told"), REFUSED.items())
def test_what_is_refused_is_told_by_name(name, told):
    assert say(cases()[name], native()).verdict == f"unsupported: GPC4102 the file has {told}"


def test_other_results_are_wrong():
    case = cases()["test_abs"]
    ((inputs, (expected,)),) = case.data_sets
    said = say(dataclasses.replace(case, data_sets=[(inputs, [expected + 1])]), native())

    assert said.verdict.startswith("wrong: output 0: ")
    assert said.launches == 1


@pytest.mark.slow
def test_a_process_that_dies_is_a_wrong_case_and_no_more(tmp_path):
    """A library that ends the process when it opens a file, in place of ours."""
    (tmp_path / "dying.c").write_text(
        "#include <stdlib.h>\nvoid gpucomp_close(void *m);\nvoid gpucomp_close(void *m) { (void)m; }\n"
        "void gpucomp_context_destroy(void *c);\nvoid gpucomp_context_destroy(void *c) { (void)c; }\n"
        "int gpucomp_open(void);\nint gpucomp_open(void) { abort(); }\n"
    )
    library = build("dying.so", [tmp_path / "dying.c"], "-shared", "-fPIC")

    found = list(verdicts(["test_abs", "test_add"], 1, library))

    assert found == [Said(name, "wrong: the process ended with -6", 0) for name in ("test_abs", "test_add")]


def test_the_page_has_a_row_for_each_reason():
    told = page(
        [
            Said("test_a", "", 1),
            Said(
                "test_b",
                "unsupported: GPC4102 the file has operators that run on the host, which only Python runs: A at node 'x'",
                0,
            ),
            Said(
                "test_c",
                "unsupported: GPC4102 the file has operators that run on the host, which only Python runs: A at node 'y'",
                0,
            ),
            Said("test_d", "", 0),
            Said("test_e", "wrong: output 0: 1, 2 expected", 1),
        ]
    )

    assert "| 5 | 2 | 0 | 2 | 1 |" in told
    assert "1 of the right cases" in told
    assert (
        "| 2 | GPC4102 the file has operators that run on the host, which only Python runs: A at node ... | `test_b`, `test_c` |"
        in told
    )
    assert "- `test_e`: wrong: output 0: 1, 2 expected" in told
