"""Random models in the suite: a fixed few of what ``make fuzz`` runs by the thousand, and the fuzzer's own machinery."""

from __future__ import annotations

import ast
import dataclasses
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from gpucomp.frontend.onnx import load, translate
from gpucomp.kernel.grouping import Policy
from gpucomp.kernel.interpreter import run_steps
from gpucomp.kernel.partition import partition
from gpucomp.rewrite.pipeline import run_pipeline
from tests import onnx_builders as onnx_of
from tests.fuzz import any_shape, control, fleet, learned, lists, microsoft, rare
from tests.fuzz.__main__ import journalled, judged, report
from tests.fuzz.check import CUDA_ON_CPU, Outcome, difference, outcome
from tests.fuzz.draft import Draft, names_read
from tests.fuzz.generate import draw
from tests.fuzz.judges import judge
from tests.fuzz.neural import window

BY_NUMPY = range(24)
ON_CPU = range(100, 116)
THROUGH_OPENCL = (200,)
ON_HARNESS = (304,)
ANY_SIZE = (400, 407, 413)


@pytest.mark.parametrize("seed", BY_NUMPY)
def test_the_kernels_of_a_random_model_compute_what_the_judges_say(seed):
    drawn = draw(seed)

    graph = run_pipeline(load(drawn.model))
    steps = partition(graph, Policy(prologues=seed % 2 == 0))

    found = dict(zip(graph.output_names, run_steps(graph, steps, drawn.feeds), strict=True))
    assert [text for v in drawn.outputs if (text := difference(found[v.name], v))] == []


CASES = [("cpu", s) for s in ON_CPU] + [("opencl", s) for s in THROUGH_OPENCL] + [(CUDA_ON_CPU, s) for s in ON_HARNESS]


@pytest.mark.parametrize(("target", "seed"), CASES)
def test_a_random_model_computes_what_the_judges_say(target, seed):
    found = outcome(draw(seed), target)

    assert (found.fault, found.refused) == ("", "")


def test_a_seed_is_a_model():
    first, again, other = draw(5), draw(5), draw(6)

    assert first.model.SerializeToString() == again.model.SerializeToString() != other.model.SerializeToString()
    for name, array in first.feeds.items():
        np.testing.assert_array_equal(array, again.feeds[name])


def test_a_drawn_model_is_valid():
    for seed in (7, 8, 9):
        onnx.checker.check_model(draw(seed).model, full_check=True)


def test_every_translated_operator_is_drawn_or_has_a_reason():
    written = {
        node.value
        for path in Path(__file__).parent.glob("*.py")
        if not path.name.startswith("test_")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    not_drawn = set(rare.NOT_DRAWN | learned.NOT_DRAWN | microsoft.NOT_DRAWN)
    drawn = written | {f"Reduce{name}" for name in written} - not_drawn
    translated = {name for domain, name in translate._TRANSLATORS if domain in ("", learned.ML, microsoft.DOMAIN)}

    assert translated - drawn - not_drawn == set()
    assert not_drawn <= translated


def value(array, apart=0.0):
    d = Draft(np.random.default_rng(0))
    made = d.input(np.asarray(array))
    return dataclasses.replace(made, twins=tuple(made.array + np.asarray(apart, made.array.dtype) for _ in made.twins))


def test_an_element_beyond_the_tolerance_is_named():
    wanted = value(np.linspace(0.5, 1, 15, dtype=np.float32).reshape(3, 5))
    found = wanted.array.copy()
    found[2, 1] += 1e-5

    assert difference(wanted.array, wanted) == ""
    assert "at [2, 1]" in difference(found, wanted)
    assert "1 of 15 elements" in difference(found, wanted)


def test_the_tolerance_is_what_rounding_does_to_the_value():
    steady, shaken = value(np.ones(3, np.float32)), value(np.ones(3, np.float32), apart=1e-3)

    assert steady.tolerance == 2 * 2.0**-24
    assert shaken.tolerance == pytest.approx(2.5e-4, rel=0.01)


@pytest.mark.parametrize("bad", [np.float32([1, np.nan]), np.float32([1, np.inf]), np.float64([1, 1]), np.float32([1])])
def test_what_is_no_number_or_of_another_type_is_never_near(bad):
    assert difference(bad, value(np.ones(2, np.float32)))


def test_integers_have_to_be_equal():
    assert difference(np.array([1, 3]), value(np.array([1, 2])))
    assert difference(np.array([1, 2]), value(np.array([1, 2]))) == ""


@pytest.mark.parametrize(
    ("op", "operands", "why"),
    [
        ("Log", [np.float32([0, 1])], "not finite or too large"),
        ("Add", [np.int8([100]), np.int8([100])], "integer overflow"),
        ("CastLike", [np.float64([-1.5]), np.uint8([0])], "integer overflow"),
        ("Mul", [np.int64([1 << 19]), np.int64([8])], "too large an integer"),
        ("HardSigmoid", [np.ones(2, bool)], "not valid"),
        ("Erf", [np.float64([1])], "no judge is good enough"),
        ("LRN", [np.ones((1, 2, 3, 1))], "no judge is good enough"),
    ],
)
def test_what_the_standard_leaves_open_is_not_drawn(op, operands, why):
    d = Draft(np.random.default_rng(0))

    assert d.add(op, [d.input(a) for a in operands]) is None
    assert d.refused == {(op, why): 1}


def test_an_operator_that_the_opset_has_not_is_not_drawn_beside_functions_either():
    d = Draft(np.random.default_rng(0), opset=13)
    x = d.input(np.ones((3, 5), np.float32))
    while not d.functions:
        control.function(d)

    assert d.add("Trilu", [x]) is None
    assert d.refused["Trilu", "not valid"] == 1


def test_bodies_read_what_is_around_them():
    d = Draft(np.random.default_rng(3))
    x, y = (d.input(np.linspace(-1, 1, 6, dtype=np.float32)) for _ in range(2))
    for _ in range(9):
        control.condition(d)
    nodes = [node for node in d.nodes if node.op_type == "If"]

    assert {x.name, y.name} & set().union(*(names_read(node) - set(node.input) for node in nodes))


def test_nodes_of_a_group_are_judged_together_and_give_one_value():
    d = Draft(np.random.default_rng(0))
    x = d.input(np.arange(14, dtype=np.int8).reshape(2, 7))
    g = lists.Group(d)
    g.node("SequenceAt", [g.node("SplitToSequence", [g.value(x)], axis=1), g.constant(np.array(-2))])

    (column,) = g.add()

    np.testing.assert_array_equal(column.array, x.array[:, 5:6])
    assert [node.op_type for node in d.nodes] == ["SplitToSequence", "SequenceAt"]
    assert outcome(d.finish(), "cpu") == Outcome()


def test_levels_that_noise_moves_are_not_drawn():
    d = Draft(np.random.default_rng(0))
    whole, half = (value(np.full(3, k, np.float32), apart=1e-3) for k in (20, 20.5))

    def rounded(x):
        g = lists.Group(d)
        g.node("Round", [g.value(x)])
        return g.add(levels=True)

    assert rounded(half) is None
    assert d.refused == {("Round", "a jump"): 1}
    assert rounded(whole)


def test_the_evaluator_alone_is_not_believed_where_it_inserts_at_the_wrong_end():
    """Three rows, two rows, and three again at the end; without the last, what is left has no common shape to stack."""
    nodes = [
        onnx_of.node("SplitToSequence", ["x", "rows"], ["parts"], axis=0),
        onnx_of.node("SequenceAt", ["parts", "first"], ["again"]),
        onnx_of.node("SequenceInsert", ["parts", "again", "end"], ["three"]),
        onnx_of.node("SequenceErase", ["three"], ["two"]),
        onnx_of.node("ConcatFromSequence", ["two"], ["y"], axis=0, new_axis=1),
    ]
    numbers = {"rows": np.array([3, 2], np.int64), "first": np.array(0, np.int64), "end": np.array(2, np.int64)}
    stacked = onnx_of.model(nodes, [onnx_of.value("x", (5, 7))], weights=numbers)

    assert judge(stacked, [{"x": np.zeros((5, 7), np.float32)}]).reason == "both refuse"


def test_the_evaluator_alone_is_not_believed_against_onnxruntime_in_another_type():
    """It adds the bias of a grouped transposed convolution to the wrong channels, and onnxruntime has none in f64."""
    d = Draft(np.random.default_rng(0))
    arrays = [d.rng.standard_normal(shape) for shape in ((1, 2, 2, 2), (2, 1, 3, 2), (2,))]

    assert d.add("ConvTranspose", [d.input(a) for a in arrays], group=2) is None
    assert d.refused == {("ConvTranspose", "they disagree, onnxruntime in f32"): 1}
    assert d.add("ConvTranspose", [d.input(a.astype(np.float32)) for a in arrays], group=2) is None
    assert d.refused["ConvTranspose", "they disagree, the interpreter is with onnxruntime"] == 1
    assert d.add("ConvTranspose", [d.input(a) for a in arrays[:2]], group=2)


def test_a_jump_that_rounding_decides_is_not_drawn():
    d = Draft(np.random.default_rng(0))
    (third,) = d.add("Div", [d.input(np.float32([1, 2])), d.input(np.float32([3, 3]))])
    (whole,) = d.add("Mul", [third, d.input(np.float32([3, 3]))])

    assert d.add("Floor", [whole]) is None
    assert d.refused == {("Floor", "a jump, or too sensitive"): 1}
    assert d.add("Floor", [third])


def test_what_a_sum_leaves_of_its_addends_may_be_off_by_their_rounding():
    d = Draft(np.random.default_rng(0))
    numbers = np.random.default_rng(1).standard_normal(10007).astype(np.float32)
    numbers -= numbers.mean()
    (mean,) = d.add("ReduceMean", [d.input(numbers)], keepdims=0)
    (even,) = d.add("Add", [d.input(np.float32([1e-8])), d.input(np.float32([2e-8]))])

    assert abs(float(numbers.astype(np.float64).mean()) - float(mean.array)) <= mean.tolerance
    assert 1e-9 < mean.tolerance < 1e-6  # a sum in f32 is off by 6e-8 of its largest partial sum, about 100, over 10007
    assert even.tolerance < 1e-9


def test_no_window_wants_pads_below_zero():
    drawn = [window(Draft(np.random.default_rng(seed)), (2, 2)) for seed in range(600)]
    same = [w for w in drawn if w and w.get("auto_pad", "VALID") != "VALID"]

    wide = [w for w in same if "strides" in w and max(w["strides"]) == 3]
    assert len(same) > 20
    assert wide
    assert all(k >= 2 for w in wide for k, s in zip(w["kernel_shape"], w["strides"], strict=True) if s == 3)


def test_ties_and_what_may_be_nothing_are_not_drawn():
    d = Draft(np.random.default_rng(1))
    signal = d.input(np.random.default_rng(1).uniform(-1, 1, (1, 7, 1)))
    (spectrum,) = d.add("DFT", [signal, None, d.ints(1)], onesided=0)  # its halves mirror each other

    assert d.add("ArgMin", [spectrum], axis=1) is None
    assert d.add("Cast", [spectrum], to=onnx.TensorProto.BOOL) is None  # the sum of all has no imaginary part
    assert d.add("ArgMin", [signal], axis=1)


def run(tmp_path, script, seeds=3, patience=20.0):
    journal = tmp_path / "journal.jsonl"
    fleet.Fleet(iter(range(seeds)), ["cpu"], [sys.executable, "-c", script], journal, patience, minutes=1).run(1)
    return {seed: entry for (seed, _), entry in journalled(journal).items()}


ANSWER = 'import sys, os, time\nfor line in sys.stdin:\n seed = int(line)\n print(\'{"ops": ["Add"]}\', flush=True)\n'


def test_a_crash_costs_one_model(tmp_path):
    found = run(tmp_path, ANSWER + ' if seed == 1: os.abort()\n print(\'{"fault": ""}\', flush=True)')

    assert [found[k]["fault"][:27] for k in range(3)] == ["", "a crash: exit status -6: ", ""]
    assert found[1]["ops"] == ["Add"]


@pytest.mark.parametrize("stuck", ["time.sleep(60)", "while True: pass"])
def test_a_hang_costs_one_model(tmp_path, monkeypatch, stuck):
    monkeypatch.setattr(fleet, "STARVED", 20)
    script = ANSWER + f' if seed == 1:\n  {stuck}\n print(\'{{"fault": ""}}\', flush=True)'

    found = run(tmp_path, script, patience=0.5)

    assert [found[k]["fault"][:6] for k in range(3)] == ["", "a hang", ""]


def test_a_judge_that_crashes_is_no_fault(tmp_path):
    found = run(tmp_path, "import os; input(); os.abort()", seeds=1)

    assert found[0]["fault"] == ""
    assert found[0]["refused"].startswith("while drawing: a crash")


def test_the_report_ends_with_one_when_anything_is_wrong(capsys):
    fine, wrong = {"fault": "", "ops": ["Add", "Add"]}, {"fault": "off", "seed": 7, "ops": ["Mul"]}

    assert report({(1, "cpu"): fine}, ["cpu"]) == 0
    assert report({(1, "cpu"): fine, (7, "cpu"): wrong}, ["cpu"]) == 1
    assert "cpu: 2 models of 3 nodes of 2 operators: 1 wrong" in capsys.readouterr().out


@pytest.mark.parametrize("seed", ANY_SIZE)
def test_a_random_model_for_any_size_computes_what_its_compilation_for_each_size_does(seed):
    found = any_shape.check(draw(seed), seed, "cpu")

    assert (found.fault, found.refused) == ("", "")
    assert found.runs


def test_one_model_in_a_share_is_for_any_size_too(monkeypatch):
    drawn = draw(5)
    monkeypatch.setattr(any_shape, "check", lambda *_: any_shape.Found(fault="off", runs=2))

    assert judged(drawn, 8, "cpu", share=4) == {
        "fault": "for any size: off",
        "refused": "",
        "any_size": {"runs": 2, "refused": ""},
    }
    for seed, share in ((5, 4), (8, 0)):
        assert judged(drawn, seed, "cpu", share) == {"fault": "", "refused": ""}


def test_the_report_counts_models_for_any_size(capsys):
    ended = [{"runs": 3, "refused": ""}, {"runs": 0, "refused": ""}, {"runs": 0, "refused": "no formula"}]
    entries = {(seed, "cpu"): {"fault": "", "any_size": found} for seed, found in enumerate(ended)}

    report(entries, ["cpu"])

    told = capsys.readouterr().out
    assert "for any size: 3 models, 3 runs, 1 for no sizes, 1 refused" in told
    assert "refused 1 for any size: no formula" in told
