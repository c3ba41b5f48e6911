"""What waits for values, where it is easily wrong: what is fixed, answered, compiled, external, hostile or without end."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import gpucomp
from gpucomp import ops
from gpucomp.compiler import open_dynamic
from gpucomp.dynamic import outline
from gpucomp.dynamic import program as dynamic_program
from gpucomp.errors import ArtifactError, DeviceError, UnsupportedError, UsageError
from gpucomp.frontend.onnx import folding
from gpucomp.ir import Graph, Input, TensorType, constant, input_value
from gpucomp.ir.types import F32
from gpucomp.ops import suppression
from testing.tolerance import assert_matches
from tests.onnx_builders import model, node, value

RNG = np.random.default_rng(7)
ZERO = {"zero": np.array(0, np.float32)}


def branch(name, *nodes, weights=()):
    return helper.make_graph(list(nodes), name, [], [onnx.ValueInfoProto(name="r")], list(weights))


def chosen_rows(*nodes, columns=13, rows=11, outputs=None, weights=None, more=()):
    """Rows ``g`` of ``x`` where ``s`` is positive, and ``nodes`` behind them."""
    first = [node("Greater", ["s", "zero"], ["c"]), node("Compress", ["x", "c"], ["g"], axis=0)]
    return model(
        [*first, *nodes],
        [value("x", (rows, columns)), value("s", (rows,)), *more],
        outputs or nodes[-1].output[:1],
        ZERO | (weights or {}),
    )


def feeds(count, columns=13, rows=11):
    s = np.where(np.arange(rows) < count, 1, -1).astype(np.float32)
    return {"x": RNG.standard_normal((rows, columns)).astype(np.float32), "s": s}


def test_a_constant_stands_for_the_initialiser_of_its_name():
    weights = {"t": np.array([0.5], np.float32)}
    nodes = [node("Greater", ["x", "t"], ["c"]), node("Compress", ["x", "c"], ["g"]), node("Add", ["g", "t"], ["y"])]
    proto = model(nodes, [value("x", (8,)), value("t", (1,))], weights=weights)
    x = np.arange(8, dtype=np.float32)

    fixed = gpucomp.compile(proto, target="cpu", constants={"t": np.array([3], np.float32)}).run({"x": x})

    np.testing.assert_array_equal(fixed["y"], [7, 8, 9, 10])


def test_a_branch_with_large_constants_changes_nothing_before_it(monkeypatch):
    """What is folded must not depend on what was decoded: the second translation goes on with the first one's arrays."""
    monkeypatch.setattr(folding, "ONE", 1000)
    table = RNG.standard_normal((53, 61)).astype(np.float32)
    yes = branch(
        "yes",
        node("ReduceSum", ["w"], ["ws"], keepdims=0),
        node("Add", ["sum", "ws"], ["r"]),
        weights=[numpy_helper.from_array(table, "w")],
    )
    nodes = [
        node("Shape", ["g"], ["shape"]),
        node("Gather", ["shape", "at"], ["k"]),
        node("Concat", ["k", "wide"], ["ks"], axis=0),
        node("Expand", ["two", "ks"], ["twos"]),
        node("ReduceSum", ["twos"], ["s0"], keepdims=0),
        node("Add", ["s0", "q"], ["sum"]),
        node("Mul", ["g", "sum"], ["gs"]),
        node("Greater", ["gs", "zero"], ["positive"]),
        node("NonZero", ["positive"], ["places"]),
        node("Greater", ["q", "zero"], ["is"]),
        node("If", ["is"], ["y"], then_branch=yes, else_branch=branch("no", node("Identity", ["sum"], ["r"]))),
    ]
    weights = {"at": np.array([0], np.int64), "wide": np.array([611], np.int64), "two": np.array(2, np.float32)}
    proto = chosen_rows(*nodes, outputs=["places", "y"], weights=weights, more=[value("q", ())])
    exe = gpucomp.compile(proto, target="cpu")

    for q in (1, 1, -1, 1):
        given = feeds(5)
        found = exe.run(given | {"q": np.array(q, np.float32)})
        np.testing.assert_array_equal(found["places"], np.nonzero(given["x"][:5] > 0))
        assert_matches(found["y"], np.array(5 * 611 * 2 + q + (table.sum() if q > 0 else 0), np.float32), terms=3233)


def heavy_question(columns=29):
    """Rows times a matrix, twice; how many of the result are positive decides. A branch reads what is between."""
    w = (RNG.standard_normal((columns, columns)) / 5).astype(np.float32)
    sides = [
        branch("yes", node("MatMul", ["a", "w"], ["r"])),
        branch("no", node("Mul", ["b", "places_sum"], ["r"])),
    ]
    nodes = [
        node("MatMul", ["g", "w"], ["h"]),
        node("Relu", ["h"], ["a"]),
        node("Sigmoid", ["h"], ["b"]),
        node("Mul", ["a", "b"], ["ab"]),
        node("MatMul", ["ab", "w"], ["v"]),
        node("Greater", ["v", "zero"], ["mask"]),
        node("NonZero", ["mask"], ["places"]),
        node("Cast", ["places"], ["pf"], to=1),
        node("ReduceMean", ["pf"], ["pm"], keepdims=0),
        node("Mul", ["pm", "zero"], ["pz"]),
        node("Add", ["pz", "one"], ["places_sum"]),
        node("Greater", ["q", "zero"], ["is"]),
        node("If", ["is"], ["y"], then_branch=sides[0], else_branch=sides[1]),
    ]
    weights = {"w": w, "one": np.array(1, np.float32)}
    return chosen_rows(*nodes, columns=columns, weights=weights, more=[value("q", ())]), w


def heavy_answer(given, count, q, w):
    h = given["x"][:count] @ w
    return np.maximum(h, 0) @ w if q > 0 else 1 / (1 + np.exp(-h))


def test_what_was_answered_is_never_computed_again(monkeypatch):
    monkeypatch.setattr(outline, "PART_WORK", 1 << 9)
    monkeypatch.setattr(dynamic_program, "REPEATED_WORK", 0)
    ran: list[tuple[str, str]] = []
    take, padded = dynamic_program.Run._take, outline.Part.padded

    def computed(*nodes):
        ran.extend((n.op.name, n.name) for n in nodes if n.op not in (Input, ops.Constant))

    monkeypatch.setattr(
        dynamic_program.Run, "_take", lambda run, step, uses: (computed(step.node), take(run, step, uses))[1]
    )
    monkeypatch.setattr(
        outline.Part, "padded", lambda part, arrays: (computed(*part.graph.nodes()), padded(part, arrays))[1]
    )
    proto, w = heavy_question()
    exe = gpucomp.compile(proto, target="cpu")

    for q in (-1, 1, -1, 1):
        ran.clear()
        given = feeds(6, 29)
        found = exe.run(given | {"q": np.array(q, np.float32)})
        assert_matches(found["y"], heavy_answer(given, 6, q, w), terms=60)
        assert len(ran) == len(set(ran)) > 10
    assert exe._dynamic._compiled


def test_rows_are_found_where_results_without_them_are_given_too():
    """What all rows read may be among the results; what is made of the rows may not be without them."""
    x, w = input_value("x", TensorType(F32, (11, 13))), input_value("w", TensorType(F32, (13, 7)))
    squared = ops.Mul(w, w)
    y = ops.MatMul(x, squared)
    total = ops.ReduceSum(y, axes=(0,), keepdims=False)

    count, axes = outline.by_rows(Graph((x, w), (squared, y)), (11,))
    assert (count, axes[y], axes[x]) == (11, 0, 0)
    assert squared not in axes
    assert outline.by_rows(Graph((x, w), (squared, y, total)), (11,)) is None
    assert outline.by_rows(Graph((x, w), (squared, ops.Add(y, constant(np.ones(7, np.float32))), total)), (11,)) is None


def test_rows_that_depend_on_each_other_are_compiled_when_they_come_again(monkeypatch):
    monkeypatch.setattr(outline, "PART_WORK", 200)
    nodes = [node("Transpose", ["g"], ["t"]), node("MatMul", ["g", "t"], ["y"])]
    exe = gpucomp.compile(chosen_rows(*nodes), target="cpu")

    for count, compiled in ((5, 0), (7, 0), (5, 1), (5, 1), (7, 2)):
        given = feeds(count)
        assert_matches(exe.run(given)["y"], given["x"][:count] @ given["x"][:count].T, terms=13)
        assert len(exe._dynamic._compiled) == compiled


def test_numpy_does_what_cannot_be_built(monkeypatch):
    monkeypatch.setattr(outline, "PART_WORK", 100)
    w = np.ones((13, 3), np.float32)
    exe = gpucomp.compile(chosen_rows(node("MatMul", ["g", "w"], ["y"]), weights={"w": w}), target="cpu")
    asked = []

    def fails(graph):
        asked.append(graph)
        raise DeviceError("no compiler", code="GPC5001")

    exe._dynamic._compile = fails
    for _ in range(2):
        given = feeds(9)
        assert_matches(exe.run(given)["y"], given["x"][:9] @ w, terms=13)
    assert len(asked) == 1


def test_external_data_of_bodies_and_functions_goes_into_the_dynamic_model(tmp_path):
    w = RNG.standard_normal((13, 7)).astype(np.float32)
    stores = {"yes": numpy_helper.from_array(w, "yes"), "no": numpy_helper.from_array(2 * w, "no")}
    sides = [branch(name, node("MatMul", ["g", name], ["r"]), weights=[stored]) for name, stored in stores.items()]
    nodes = [
        node("ReduceMax", ["g"], ["m"], keepdims=0),
        node("Greater", ["m", "zero"], ["is"]),
        node("If", ["is"], ["y"], then_branch=sides[0], else_branch=sides[1]),
    ]
    onnx.save(
        chosen_rows(*nodes), tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=100
    )
    stored = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    assert [t.data_location for a in stored.graph.node[-1].attribute for t in a.g.initializer] == [
        TensorProto.EXTERNAL
    ] * 2
    exe = gpucomp.compile(tmp_path / "m.onnx", target="cpu")
    (tmp_path / "m.data").unlink()

    for sign in (1, -1):
        given = feeds(3)
        given["x"] = sign * np.abs(given["x"])
        assert_matches(exe.run(given)["y"], given["x"][:3] @ (w if sign > 0 else 2 * w), terms=13)


def test_patterns_of_what_stays_f32_reach_what_is_compiled_in_a_run(monkeypatch, tmp_path):
    monkeypatch.setattr(outline, "PART_WORK", 100)
    w = RNG.standard_normal((13, 13)).astype(np.float32)
    nodes = [node("MatMul", ["g", "w"], ["h"], name="one"), node("MatMul", ["h", "w"], ["y"], name="two")]
    proto = chosen_rows(*nodes, weights={"w": w})
    given = feeds(7)
    wanted = given["x"][:7].astype(np.float64) @ w @ w

    def error(exe):
        found = exe.run(given)["y"]
        assert exe._dynamic._compiled
        return np.abs(found - wanted).max() / np.abs(wanted).max()

    kept = gpucomp.compile(proto, target="cpu", precision="bf16", keep_fp32=["one", "two"])
    kept.save(tmp_path / "m.gpuc")
    assert error(kept) < 1e-5
    assert error(gpucomp.load(tmp_path / "m.gpuc")) < 1e-5
    assert error(gpucomp.compile(proto, target="cpu", precision="bf16")) > 1e-4
    with pytest.raises(UsageError, match="'three'"):
        gpucomp.compile(proto, target="cpu", precision="bf16", keep_fp32=["three"])


def test_texts_are_told_apart_along_an_axis():
    x = np.array([["b", "a"], ["a", "b"], ["b", "a"]], object)
    for order, first, inverse in ((1, [1, 0], [1, 0, 1]), (0, [0, 1], [0, 1, 0])):
        node_ = node("Unique", ["x"], ["v", "first", "inverse", "counts"], axis=0, sorted=order)
        outputs = ["v", "first", "inverse", "counts"]
        for proto, given in (
            (model([node_], [value("x", (3, 2), TensorProto.STRING)], outputs), {"x": x}),
            (model([node_], [value("unread", (1,))], outputs, {"x": x}), {"unread": np.zeros(1, np.float32)}),
        ):
            found = gpucomp.compile(proto, target="cpu").run(given)
            np.testing.assert_array_equal(found["v"], x[first])
            np.testing.assert_array_equal(found["first"], first)
            np.testing.assert_array_equal(found["inverse"], inverse)
            np.testing.assert_array_equal(found["counts"], np.bincount(inverse))


def with_dynamic_model(proto):
    made = gpucomp.compile(model([node("NonZero", ["x"], ["y"])], [value("x", (5,))]), target="cpu")
    return gpucomp.Executable(
        made.plan, made.sources, made.binaries, made.weights, proto.SerializeToString(), open_dynamic
    )


@pytest.mark.parametrize("name", ["x", "absent"])
def test_a_rest_that_reads_a_sequence_which_nobody_gives_is_refused(name):
    given = helper.make_tensor_sequence_value_info(name, TensorProto.FLOAT, None)
    exe = with_dynamic_model(
        model([node("SequenceLength", [name], ["y"])], [given], [value("y", (), TensorProto.INT64)])
    )

    with pytest.raises(ArtifactError, match=f"reads '{name}': a sequence") as caught:
        exe.run({"x": np.ones(5, np.float32)})
    assert caught.value.code == "GPC7004"


def test_a_declared_extent_below_zero_says_nothing():
    exe = with_dynamic_model(
        model([node("NonZero", ["x"], ["y"])], [value("x", (5,))], [value("y", (1, -5), TensorProto.INT64)])
    )

    assert [str(spec) for spec in exe.outputs] == ["y: i64[1,?]"]


def test_a_function_that_onnx_inlines_amiss_stays_whole():
    """Its nodes are out of order, which onnx's inliner takes for names that are not defined."""
    inside = [node("NonZero", ["b"], ["d"]), node("Sin", ["a"], ["b"])]
    made = helper.make_function("own", "Places", ["a"], ["d", "a"], inside, [helper.make_opsetid("", 20)])
    call = node("Places", ["x"], ["y", "z"], domain="own")
    proto = model([call], [value("x", (7,))], ["y", "z"], functions=[made], domains=["own"])
    x = np.arange(7, dtype=np.float32)

    found = gpucomp.compile(proto, target="cpu").run({"x": x})

    np.testing.assert_array_equal(found["y"], [np.flatnonzero(np.sin(x))])
    np.testing.assert_array_equal(found["z"], x)


def endless(op):
    body = helper.make_graph(
        [
            node("ReduceMax", ["v"], ["top"], keepdims=0),
            node("Less", ["top", "most"], ["on"]),
            node(op, ["v"], ["next"]),
        ],
        "body",
        [value("i", (), TensorProto.INT64), value("c", (), TensorProto.BOOL), value("v", (11, 13))],
        [value("on", (), TensorProto.BOOL), value("next", (11, 13))],
    )
    proto = model(
        [node("Loop", ["", "true", "x"], ["y"], body=body, name="forever")],
        [value("x", (11, 13))],
        weights={"true": np.array(True), "most": np.array(100, np.float32)},
    )
    return gpucomp.compile(proto, target="cpu")


def test_arrays_of_a_loop_that_never_ends_are_bounded(monkeypatch):
    monkeypatch.setattr(dynamic_program, "LIVE", 400 * 11 * 13 * 4)

    with pytest.raises(UnsupportedError, match="takes more than") as caught:
        endless("Neg").run({"x": np.ones((11, 13), np.float32)})
    assert caught.value.code == "GPC4006"
    with pytest.raises(UnsupportedError, match="more than 4096 steps"):  # views take no memory
        endless("Identity").run({"x": np.ones((11, 13), np.float32)})
    np.testing.assert_array_equal(endless("Neg").run({"x": np.full((11, 13), 200, np.float32)})["y"], -200)


def test_programs_are_kept_by_their_steps_too(monkeypatch):
    exe = gpucomp.compile(chosen_rows(node("Neg", ["g"], ["y"])), target="cpu")
    exe.run(feeds(1))
    ((program, *_),) = exe._dynamic._programs.values()
    monkeypatch.setattr(dynamic_program, "STEPS", 2 * len(program.steps))

    for count in (2, 3, 4):
        exe.run(feeds(count))
    assert len(exe._dynamic._programs) == 2


def test_suppression_is_the_same_whatever_is_compared_at_once(monkeypatch):
    rng = np.random.default_rng(3)
    low = rng.uniform(0, 40, (2, 211)).astype(np.float32)
    high = low + rng.uniform(1, 5, (2, 211)).astype(np.float32)
    boxes = suppression.Boxes(low, high, np.prod(high - low, axis=0))
    scores = rng.uniform(0, 1, 211).astype(np.float32)
    wanted = suppression._kept(boxes, scores, 1 << 40, 0.2, None).tolist()

    assert 70 < len(wanted) < 211
    for first, most, pairs in ((1, 1, 1), (7, 50, 5), (300, 300, 1 << 15)):
        monkeypatch.setattr(suppression, "FIRST_BLOCK", first)
        monkeypatch.setattr(suppression, "MOST_BLOCK", most)
        monkeypatch.setattr(suppression, "PAIRS", pairs)
        for limit in (0, 1, 31, 1 << 40):
            assert suppression._kept(boxes, scores, limit, 0.2, None).tolist() == wanted[:limit]
