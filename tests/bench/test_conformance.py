"""The conformance program: what it keeps, what it calls a regression, and the page it writes."""

import json

import numpy as np
import pytest

from bench.conformance import __main__ as program
from bench.conformance.cases import INEXACT, RANDOM, Case, cases, compiles, light_cases, passing, verdict
from bench.conformance.table import counts, page, versions
from tests.onnx_builders import model, node, value

X = np.array([[1.0, -2.0, 3.0]], np.float32)
RELU = Case(
    "test_relu_of_ours",
    "node",
    model([node("Relu", ["x"], ["y"])], [value("x", X.shape)], opset=13),
    [([X], [np.maximum(X, 0)])],
    1e-3,
    1e-7,
)
LISTED, COARSE, DRAWN = "test_abs", "test_dft_inverse", "test_bernoulli"


@pytest.mark.parametrize(
    ("found", "lines"),
    [
        ({LISTED: "", COARSE: "wrong: x", DRAWN: ""}, []),
        ({LISTED: "unsupported: x"}, ["test_abs: unsupported: x"]),
        ({LISTED: "wrong: x"}, ["test_abs: wrong: x"]),
        ({DRAWN: "wrong: x"}, ["test_bernoulli: wrong: x"]),
        ({"test_new": ""}, ["test_new: passes, and is not on the list"]),
        ({"test_new": "wrong: x"}, ["test_new: wrong: x"]),
        ({"test_new": "unsupported: x"}, []),
    ],
)
def test_a_run_is_held_against_the_list(found, lines):
    assert {LISTED} <= passing()
    assert {COARSE} <= set(INEXACT)
    assert {DRAWN} <= set(RANDOM)

    assert program.regressions(found, {}) == lines


def test_an_interrupted_run_goes_on_where_it_was(tmp_path, monkeypatch):
    journal, said = tmp_path / "run.jsonl", []
    monkeypatch.setattr(program, "say", lambda case, target: said.append(case.name) or "")
    chosen = dict.fromkeys(("test_a", "test_b", "test_c"), RELU)

    program.run({"test_a": RELU}, "cpu", journal)
    with journal.open("a") as file:
        file.write('{"target": "cpu", "case": "test_b", "sa')
    said.clear()

    assert program.run(chosen, "opencl", None) == dict.fromkeys(chosen, "")
    assert len(said) == 3
    said.clear()
    assert program.run(chosen, "cpu", journal) == dict.fromkeys(chosen, "")
    assert len(said) == 2


def test_a_crash_is_wrong_and_ends_nothing(monkeypatch):
    def crash(*_):
        raise KeyError("no such thing")

    monkeypatch.setattr(program, "verdict", crash)

    assert program.say(RELU, "cpu") == "wrong: KeyError: 'no such thing'"


def test_a_case_that_is_not_what_is_expected_is_wrong_on_its_target():
    backend = program.backend_for("cpu")
    other = Case(**{**{f: getattr(RELU, f) for f in RELU.__dataclass_fields__}, "data_sets": [([X], [X])]})

    assert not verdict(RELU, backend)
    assert verdict(other, backend).startswith("wrong: output 0: [0.], [-2.] expected")


SPREAD = [
    "test_cast_FLOAT_to_FLOAT4E2M1",
    "test_cast_e8m0_FLOAT_to_FLOAT8E8M0",
    "test_quantizelinear_int2",
    "test_conv_with_strides_padding",
    "test_ai_onnx_ml_tree_ensemble_set_membership",
    "test_sequence_map_add_2_sequences",
    "test_adam",
]


@pytest.mark.parametrize("name", SPREAD)
def test_nvrtc_compiles_a_spread_of_the_list(name):
    assert name in passing()
    assert not compiles(cases()[name], "cuda:sm_80")


def test_the_nine_networks_are_read():
    found = light_cases()

    assert len(found) == 9
    assert all(len(c.data_sets[0][0]) == len(c.data_sets[0][1]) == 1 for c in found.values())


def test_the_page_counts_and_names_what_there_is():
    results = {"cpu": {"test_relu_of_ours": "", COARSE: "wrong: x", "test_gone": "unsupported: maps"}}

    text = page({"test_relu_of_ours": RELU}, results)

    assert counts(results["cpu"]) == {"passed": 1, "coarse": 1, "unsupported": 1}
    assert versions(RELU) == {("", "Relu", 13)}
    assert "| `cpu` | 3 | 1 | 1 | 1 | 0 |" in text
    assert "| Relu | 13 | 1 / 1 |" in text
    assert "- `test_gone` on `cpu`: unsupported: maps" in text


def test_the_page_in_the_docs_is_made_of_the_results_that_are_kept():
    results = json.loads(program.RESULTS.read_text())

    assert program.PAGE.read_text() == page(cases() | light_cases(), results)
    for found in results.values():
        assert set(found) <= set(cases()) | set(light_cases())
        assert not program.regressions(found, cases() | light_cases())
