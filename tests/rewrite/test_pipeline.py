import re

import pytest

from gpucomp import config, ops
from gpucomp.errors import VerifyError
from gpucomp.ir import Graph, Node, TensorType, Value
from gpucomp.ir.types import F32
from gpucomp.rewrite import canonicalize
from gpucomp.rewrite.pipeline import PIPELINE, Pass, rules_pass, run_pipeline
from tests.builders import graph_of, scalar, tensor

X = tensor("x", 2, 3)


def twice_transposed() -> Graph:
    return graph_of(ops.Relu(ops.Transpose(ops.Transpose(X, perm=(1, 0)), perm=(1, 0), name="second")))


CLEAN = rules_pass("clean", canonicalize.RULES)
NOTHING = Pass("nothing", lambda graph: graph)


def test_the_observer_gets_a_record_of_every_pass():
    records = []

    run_pipeline(twice_transposed(), [NOTHING, CLEAN, NOTHING], observer=records.append)

    assert [(r.name, r.changed, r.before, r.after) for r in records] == [
        ("nothing", False, 4, 4),
        ("clean", True, 4, 2),
        ("nothing", False, 2, 2),
    ]
    assert records[1].fired == {"merge_transposes": 1, "drop_transpose": 1}
    assert all(r.ms >= 0 for r in records)


def test_who_watches_sees_the_program_before_the_first_pass_and_after_each():
    graph, seen = twice_transposed(), []

    found = run_pipeline(graph, [NOTHING, CLEAN], watch=lambda name, program: seen.append((name, program)))

    assert seen == [("model", graph), ("nothing", graph), ("clean", found)]
    assert found is not graph


def test_a_pass_that_the_target_does_not_want_is_left_out():
    unwanted = Pass("unwanted", lambda graph: pytest.fail("it ran"), lambda target: target is not None)
    records = []

    run_pipeline(twice_transposed(), [unwanted, NOTHING], observer=records.append)

    assert [r.name for r in records] == ["nothing"]


def test_a_broken_pass_is_named_with_its_predecessors():
    def spoil(graph: Graph) -> Graph:
        wrong = Node(ops.Relu, (X,), {}, (TensorType(F32, (7,)),), "spoiled")
        return graph.with_outputs([Value(wrong, 0)])

    with (
        config.using(verify=True),
        pytest.raises(VerifyError, match=r"after pass 'spoil' \(which ran after nothing, clean\): .*'spoiled'.*"),
    ):
        run_pipeline(twice_transposed(), [NOTHING, CLEAN, Pass("spoil", spoil)])


def test_debug_one_prints_a_line_a_pass(capsys):
    with config.using(debug=1):
        run_pipeline(twice_transposed(), [NOTHING, CLEAN])

    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"01 nothing +\d+\.\d\d ms\n02 clean +\d+\.\d\d ms +4 -> +2 nodes\n", err)


def test_debug_two_adds_the_rules_that_fired(capsys):
    with config.using(debug=2):
        run_pipeline(twice_transposed(), [CLEAN])

    assert capsys.readouterr().err.splitlines()[1:] == ["        1 drop_transpose", "        1 merge_transposes"]


def test_debug_three_adds_a_short_diff(capsys):
    with config.using(debug=3):
        run_pipeline(twice_transposed(), [NOTHING, CLEAN])

    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line[0] in "+-"] == [
        "--- before clean",
        "+++ after clean",
        "-  %1 = Transpose(%x, perm=(1, 0)) : f32[3,2]",
        "-  %2 = Transpose(%1, perm=(1, 0)) : f32[2,3]",
        "-  %3 = Relu(%2) : f32[2,3]",
        "-  return %3",
        "+  %4 = Relu(%x) : f32[2,3]",
        "+  return %4",
    ]


def test_a_dump_has_the_graph_after_every_pass_and_a_diff_where_it_changed(tmp_path):
    with config.using(dump=tmp_path / "a"):
        run_pipeline(twice_transposed(), [NOTHING, CLEAN])
    with config.using(dump=tmp_path / "b"):
        run_pipeline(twice_transposed(), [NOTHING, CLEAN])

    texts = [{p.name: p.read_text() for p in (tmp_path / run).iterdir()} for run in "ab"]
    assert sorted(texts[0]) == ["00-model.txt", "01-nothing.txt", "02-clean.diff", "02-clean.txt"]
    assert texts[0] == texts[1]
    assert "Transpose" in texts[0]["01-nothing.txt"]
    assert "Transpose" not in texts[0]["02-clean.txt"]


def test_names_of_passes_differ():
    assert len({p.name for p in PIPELINE}) == len(PIPELINE)


def test_a_second_run_of_the_pipeline_changes_nothing():
    x = tensor("image", 1, 3, 8, 8)
    y = ops.Relu(ops.Add(x, scalar(1.5)))

    once = run_pipeline(graph_of(y))

    assert run_pipeline(once) is once
