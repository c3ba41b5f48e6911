"""What waits for values: detectors with every number of detections, and everything else whose shapes values decide."""

from __future__ import annotations

from functools import cache

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import gpucomp
from gpucomp import ops
from gpucomp.compiler import open_dynamic
from gpucomp.dynamic import outline
from gpucomp.dynamic import program as dynamic_program
from gpucomp.dynamic.program import DynamicModel
from gpucomp.errors import ArtifactError, DeviceError, ShapeError, UnsupportedError
from gpucomp.frontend import onnx as frontend
from gpucomp.runtime import artifact
from testing.tolerance import assert_matches
from tests.detectors import COLUMNS, MOST, ROWS, expected, image, masks, ssd
from tests.onnx_builders import model, node, value

BRIGHT = (0, 1, 40, 3, ROWS * COLUMNS, 3, 0)  # cells with something in them, run after run
FOUND = (0, 1, MOST, 3, MOST, 3, 0)
TARGETS = ("cpu", "opencl")


@cache
def built(target):
    return gpucomp.compile(ssd(), target=target)


def detector(target="cpu"):
    """The detector as if just compiled: nothing is translated yet."""
    made = built(target)
    return gpucomp.Executable(made.plan, made.sources, made.binaries, made.weights, made.dynamic_model, open_dynamic)


def assert_right(found, wanted, terms=64):
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert found[name].shape == array.shape, name
        assert found[name].dtype == array.dtype, name
        if array.dtype.kind == "f":
            assert_matches(found[name], array, terms=terms)
        else:
            np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("target", TARGETS)
def test_a_detector_is_right_for_none_one_and_many_detections(target, tmp_path):
    proto, exe = ssd(), detector(target)
    exe.save(tmp_path / "ssd.gpuc")

    for runs in (exe.run, gpucomp.load(tmp_path / "ssd.gpuc").run):
        counts = []
        for bright in BRIGHT:
            given = image(bright, seed=bright)
            found = runs({"image": given})
            assert_right(found, expected(proto, {"image": given}))
            counts.append(len(found["detections"]))
        assert tuple(counts) == FOUND


def test_places_and_compressions_of_any_length_are_right():
    proto = masks()
    exe = gpucomp.compile(proto, target="cpu")

    lengths = set()
    for bright in BRIGHT:
        given = image(bright, seed=bright)
        found = exe.run({"image": given})
        assert_right(found, expected(proto, {"image": given}))
        lengths.add((len(found["where"]), len(found["chosen"])))

    assert len(lengths) == 5
    assert {places for places, _ in lengths} == set(BRIGHT)
    assert all(chosen < places for places, chosen in lengths if places)


def test_the_backbone_is_compiled_and_the_rest_is_named():
    exe = detector()

    compiled = [op for kernel in exe.kernels for op in kernel.ops]
    assert compiled.count("Conv") == 4
    assert "Softmax" in compiled
    assert [op for op, _ in exe.dynamic_operators][:3] == ["NonMaxSuppression", "Slice", "Slice"]
    assert exe.dynamic_operators[0] == ("NonMaxSuppression", "nms")
    assert DynamicModel(exe.dynamic_model).first == (("NonMaxSuppression", "nms"),)
    assert [str(spec) for spec in exe.outputs] == [
        "detections: f32[k,6]",
        "best_labels: i64[k]",
        "reach: f32[k]",
        "features: f32[1,11,7,9]",
    ]


def test_a_model_without_such_operators_has_no_dynamic_model(tmp_path):
    exe = gpucomp.compile(model([node("Relu", ["x"], ["y"])], [value("x")]), target="cpu")
    exe.save(tmp_path / "m.gpuc")

    assert exe.dynamic_operators == ()
    assert exe.dynamic_model == artifact.load(tmp_path / "m.gpuc").dynamic_model == b""


def test_a_suppression_of_constants_is_computed_at_compile_time():
    weights = {
        "boxes": np.array([[[0, 0, 2, 2], [0, 0, 2, 1.9], [5, 5, 7, 7]]], np.float32),
        "scores": np.array([[[0.5, 0.9, 0.7]]], np.float32),
        "most": np.array([3], np.int64),
        "overlap": np.array([0.5], np.float32),
    }
    nodes = [
        node("NonMaxSuppression", list(weights), ["kept"]),
        node("Cast", ["kept"], ["k"], to=1),
        node("Add", ["k", "x"], ["y"]),
    ]
    exe = gpucomp.compile(model(nodes, [value("x", (2, 3))], weights=weights), target="cpu")

    assert exe.dynamic_operators == ()
    np.testing.assert_array_equal(exe.run({"x": np.zeros((2, 3), np.float32)})["y"], [[0, 0, 1], [0, 0, 2]])


@pytest.mark.parametrize("centred", [0, 1])
def test_suppression_of_many_classes_and_images_is_as_in_onnxruntime(centred):
    rng = np.random.default_rng(2)
    weights = {
        "most": np.array([34], np.int64),
        "overlap": np.array([0.3], np.float32),
        "least": np.array([0.2], np.float32),
    }
    given = [value("b", (2, 53, 4)), value("s", (2, 3, 53))]
    nodes = [node("NonMaxSuppression", ["b", "s", *weights], ["y"], center_point_box=centred)]
    proto = model(nodes, given, [value("y", ("n", 3), TensorProto.INT64)], weights)
    low = rng.uniform(0, 9, (2, 53, 2))
    boxes = np.concatenate([low, rng.uniform(1, 5, (2, 53, 2)) if centred else low + rng.uniform(-5, 5, (2, 53, 2))], 2)
    feeds = {"b": boxes.astype(np.float32), "s": rng.uniform(0, 1, (2, 3, 53)).astype(np.float32)}

    found = run(proto, **feeds)["y"]

    np.testing.assert_array_equal(found, expected(proto, feeds)["y"])
    assert 100 < len(found) < 6 * 34  # the limit ends some classes, not all


# --- translations are kept


def test_a_count_that_was_there_before_is_not_translated_again():
    exe = detector()
    runs = [3, 0, 1, 3, 1, 0, 3]

    for bright in runs:
        exe.run({"image": image(bright, seed=1)})

    assert exe._dynamic.translations == len(set(runs))


def test_translations_that_are_not_used_go_first(monkeypatch):
    monkeypatch.setattr(dynamic_program, "PROGRAMS", 2)
    exe = detector()

    counts = []
    for bright in (0, 1, 0, 3, 0, 1):
        exe.run({"image": image(bright, seed=1)})
        counts.append(exe._dynamic.translations)

    assert counts == [1, 2, 2, 3, 3, 4]
    assert len(exe._dynamic._programs) == 2


def test_constants_of_translations_are_bounded(monkeypatch):
    nodes = [
        node("NonZero", ["x"], ["p"]),
        node("Shape", ["p"], ["s"]),
        node("Gather", ["s", "i"], ["n"]),
        node("Range", ["zero", "n", "one"], ["y"]),
    ]
    weights = {"i": np.array(1, np.int64), "zero": np.array(0, np.int64), "one": np.array(1, np.int64)}
    exe = gpucomp.compile(model(nodes, [value("x", (501,))], weights=weights), target="cpu")
    monkeypatch.setattr(dynamic_program, "MADE_BYTES", 9000)

    for count in (499, 500, 501, 498):
        x = (np.arange(501) < count).astype(np.float32)
        np.testing.assert_array_equal(exe.run({"x": x})["y"], np.arange(count))

    assert len(exe._dynamic._programs) == 2


def test_what_two_counts_have_in_common_is_computed_once(monkeypatch):
    calls = []
    reference = ops.NonMaxSuppression.meaning["reference"]
    monkeypatch.setitem(
        ops.NonMaxSuppression.meaning, "reference", lambda *a, **k: (calls.append(1), reference(*a, **k))[1]
    )
    exe = detector()

    for bright in (3, 1, 3, 0, 1):
        exe.run({"image": image(bright, seed=1)})

    assert len(calls) == 5


def test_results_belong_to_the_caller():
    nodes = [node("NonZero", ["x"], ["p"]), node("Transpose", ["p"], ["q"]), node("Identity", ["q"], ["r"])]
    exe = gpucomp.compile(model(nodes, [value("x", (7,))], ["p", "q", "r", "x"]), target="cpu")
    x = np.array([0, 1, 1, 0, 0, 1, 0], np.float32)

    for _ in range(2):
        found = exe.run({"x": x})
        np.testing.assert_array_equal(found["p"], [[1, 2, 5]])
        np.testing.assert_array_equal(found["r"], [[1], [2], [5]])
        for array in found.values():
            array[...] = 9
    np.testing.assert_array_equal(x, [0, 1, 1, 0, 0, 1, 0])


# --- what is too much for numpy


def head():
    """A network on as many rows as there are places, and what is not row by row before and behind it."""
    rng = np.random.default_rng(4)
    weights = {
        "half": np.array(0.5, np.float32),
        "w1": (rng.standard_normal((7, 5, 3, 3)) / 7).astype(np.float32),
        "w2": (rng.standard_normal((7 * 49, 13)) / 18).astype(np.float32),
        "b2": rng.standard_normal(13).astype(np.float32),
        "s": np.array([-1, 7 * 49], np.int64),
        "k": np.array([1], np.int64),
    }
    nodes = [
        node("Greater", ["x", "half"], ["m"]),
        node("NonZero", ["m"], ["p"]),
        node("Squeeze", ["p"], ["q"]),
        node("Gather", ["maps", "q"], ["rows"], axis=0),
        node("Conv", ["rows", "w1"], ["c"]),
        node("Relu", ["c"], ["r"]),
        node("Reshape", ["r", "s"], ["flat"]),
        node("Gemm", ["flat", "w2", "b2"], ["scores"]),
        node("Softmax", ["scores"], ["likely"], axis=1),
        node("ReduceMax", ["likely"], ["best"], keepdims=0),
        node("TopK", ["likely", "k"], ["top", "label"], axis=1),
    ]
    return model(nodes, [value("x", (37,)), value("maps", (37, 5, 9, 9))], ["likely", "best", "label", "r"], weights)


def given(count):
    rng = np.random.default_rng(count)
    x = np.zeros(37, np.float32)
    x[rng.permutation(37)[:count]] = 1
    return {"x": x, "maps": rng.standard_normal((37, 5, 9, 9)).astype(np.float32)}


@pytest.mark.parametrize("target", TARGETS)
def test_a_network_behind_a_selection_is_compiled_for_few_counts_and_right_for_all(target, monkeypatch):
    monkeypatch.setattr(outline, "PART_WORK", 1 << 10)
    proto = head()
    exe = gpucomp.compile(proto, target=target)

    rounds = (((5, 16, 9, 2), 1), ((17, 31), 2), ((33, 37), 3), ((3, 20, 36), 3))
    for counts, compiled in rounds if target == "cpu" else rounds[:1]:
        for count in counts:
            feeds = given(count)
            assert_right(exe.run(feeds), expected(proto, feeds), terms=64)
        assert len(exe._dynamic._compiled) == compiled


def test_what_numpy_does_fast_is_not_compiled():
    exe = gpucomp.compile(head(), target="cpu")

    exe.run(given(5))

    assert not exe._dynamic._compiled


def test_compiled_parts_are_bounded(monkeypatch):
    monkeypatch.setattr(outline, "PART_WORK", 1 << 10)
    monkeypatch.setattr(dynamic_program, "COMPILED", 1)
    proto = head()
    exe = gpucomp.compile(proto, target="cpu")

    for count in (5, 20, 6):
        feeds = given(count)
        assert_right(exe.run(feeds), expected(proto, feeds))
        assert len(exe._dynamic._compiled) == 1


def test_rows_that_depend_on_each_other_are_computed_as_many_as_there_are(monkeypatch):
    monkeypatch.setattr(outline, "PART_WORK", 1)
    nodes = [
        node("NonZero", ["x"], ["p"]),
        node("Transpose", ["p"], ["q"]),
        node("Cast", ["q"], ["f"], to=1),
        node("MatMul", ["p_", "f"], ["y"]),
        node("Cast", ["p"], ["p_"], to=1),
    ]
    exe = gpucomp.compile(model(nodes, [value("x", (5, 7))]), target="cpu")

    for seed in range(2):
        x = np.random.default_rng(seed).integers(0, 2, (5, 7)).astype(np.float32)
        places = np.array(np.nonzero(x), np.float32)
        assert_matches(exe.run({"x": x})["y"], places @ places.T, terms=35)
    assert exe._dynamic._compiled


def test_a_value_that_a_compiled_part_kept_to_itself_is_there_for_the_next(monkeypatch):
    monkeypatch.setattr(outline, "PART_WORK", 1 << 5)
    nodes = [
        node("Reshape", ["x", "s"], ["a"]),
        node("Exp", ["a"], ["b"]),
        node("Sin", ["b"], ["c"]),
        node("Greater", ["c", "half"], ["m"]),
        node("NonZero", ["m"], ["p"]),
        node("Transpose", ["p"], ["q"]),
        node("GatherND", ["b", "q"], ["y"]),
    ]
    proto = model(
        nodes, [value("x", (6, 11)), value("s", (2,), TensorProto.INT64)], weights={"half": np.array(0.5, np.float32)}
    )
    exe = gpucomp.compile(proto, target="cpu")

    for seed in (1, 2, 1):
        feeds = {"x": np.random.default_rng(seed).standard_normal((6, 11)).astype(np.float32), "s": np.array([11, 6])}
        assert_right(exe.run(feeds), expected(proto, feeds))
    assert exe._dynamic._compiled


# --- what else values decide


def run(proto, **inputs):
    return gpucomp.compile(proto, target="cpu").run(inputs)


def test_a_shape_that_is_an_input_is_taken_as_it_comes():
    exe = gpucomp.compile(
        model(
            [node("Exp", ["x"], ["e"]), node("Reshape", ["e", "s"], ["y"], name="r")],
            [value("x", (2, 3)), value("s", (2,), TensorProto.INT64)],
        ),
        target="cpu",
    )
    x = np.arange(6, dtype=np.float32).reshape(2, 3)

    for shape in ((3, 2), (1, 6), (-1, 2)):
        assert_matches(exe.run({"x": x, "s": np.array(shape)})["y"], np.exp(x).reshape(shape))
    with pytest.raises(ShapeError, match="at node 'r'"):
        exe.run({"x": x, "s": np.array([4, 2])})
    assert [kernel.ops for kernel in exe.kernels] == [("Exp",)]


def branch(name, *nodes):
    return helper.make_graph(list(nodes), name, [], [onnx.ValueInfoProto(name="r")])


def test_a_condition_decides_between_results_of_different_shapes():
    nodes = [
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Greater", ["sum", "zero"], ["c"]),
        node(
            "If",
            ["c"],
            ["y"],
            then_branch=branch("yes", node("Neg", ["x"], ["r"])),
            else_branch=branch("no", node("Slice", ["x", "at", "to"], ["r"])),
        ),
    ]
    weights = {"zero": np.array(0, np.float32), "at": np.array([1], np.int64), "to": np.array([3], np.int64)}
    exe = gpucomp.compile(model(nodes, [value("x", (5,))], weights=weights), target="cpu")
    x = np.array([3, -1, 4, -1, 5], np.float32)

    np.testing.assert_array_equal(exe.run({"x": x})["y"], -x)
    np.testing.assert_array_equal(exe.run({"x": -x})["y"], -x[1:3])


def test_a_branch_that_does_not_fit_the_shapes_is_left_to_the_value():
    weights = {"wide": np.ones((5, 2), np.float32), "long": np.ones((7, 2), np.float32)}
    choice = node(
        "If",
        ["c"],
        ["y"],
        name="rate",
        then_branch=branch("fits", node("MatMul", ["x", "wide"], ["r"])),
        else_branch=branch("not", node("MatMul", ["x", "long"], ["r"])),
    )
    inputs = [value("x", (3, 5)), value("c", (), TensorProto.BOOL)]
    proto = model([choice, node("Neg", ["y"], ["z"])], inputs, ["z"], weights)
    exe = gpucomp.compile(proto, target="cpu")
    x = np.arange(15, dtype=np.float32).reshape(3, 5)

    assert exe.dynamic_operators == (("If", "rate"), ("Neg", "z"))
    assert_matches(exe.run({"x": x, "c": np.array(True)})["z"], -x @ weights["wide"], terms=5)
    with pytest.raises(ShapeError, match="inner sizes differ: 5 and 7"):
        exe.run({"x": x, "c": np.array(False)})
    with pytest.raises(
        UnsupportedError, match=r"If .* at node 'rate': its condition must be .* the value of 'c': one br"
    ):
        frontend.load(proto)
    assert gpucomp.compile(proto, target="cpu", constants={"c": True}).dynamic_operators == ()


def test_a_loop_ends_when_its_values_say_so():
    body = helper.make_graph(
        [
            node("Add", ["v", "v"], ["twice"]),
            node("Less", ["twice", "most"], ["on"]),
            node("Identity", ["twice"], ["row"]),
        ],
        "body",
        [value("i", (), TensorProto.INT64), value("c", (), TensorProto.BOOL), value("v", ())],
        [value("on", (), TensorProto.BOOL), value("twice", ()), value("row", ())],
    )
    proto = model(
        [node("Loop", ["", "true", "x"], ["last", "rows"], body=body)],
        [value("x", ())],
        ["last", "rows"],
        {"true": np.array(True), "most": np.array(100, np.float32)},
    )
    exe = gpucomp.compile(proto, target="cpu")

    for x, rows in ((3, [6, 12, 24, 48, 96, 192]), (40, [80, 160]), (3, [6, 12, 24, 48, 96, 192])):
        found = exe.run({"x": np.array(x, np.float32)})
        np.testing.assert_array_equal(found["rows"], rows)
        assert found["last"] == rows[-1]
    assert exe._dynamic.translations == 2


def test_a_loop_of_many_steps_is_kept_by_few_bytes_a_step():
    body = helper.make_graph(
        [node("Add", ["v", "one"], ["next"]), node("Less", ["next", "most"], ["on"])],
        "body",
        [value("i", (), TensorProto.INT64), value("c", (), TensorProto.BOOL), value("v", ())],
        [value("on", (), TensorProto.BOOL), value("next", ())],
    )
    weights = {"true": np.array(True), "one": np.array(1, np.float32), "most": np.array(500, np.float32)}
    proto = model([node("Loop", ["", "true", "x"], ["y"], body=body)], [value("x", ())], weights=weights)
    exe = gpucomp.compile(proto, target="cpu")

    for x in (1, 3, 1):
        assert exe.run({"x": np.array(x, np.float32)})["y"] == 500
    assert exe._dynamic.translations == 2
    assert (
        len(exe._dynamic._begun) == 1 + 499 + 1
    )  # the shorter path is the beginning of the longer one, but for its end


def test_a_loop_that_never_ends_is_refused_when_it_runs():
    body = helper.make_graph(
        [node("Less", ["v", "most"], ["on"]), node("Identity", ["v"], ["same"])],
        "body",
        [value("i", (), TensorProto.INT64), value("c", (), TensorProto.BOOL), value("v", ())],
        [value("on", (), TensorProto.BOOL), value("same", ())],
    )
    proto = model(
        [node("Loop", ["", "true", "x"], ["y"], body=body, name="forever")],
        [value("x", ())],
        weights={"true": np.array(True), "most": np.array(100, np.float32)},
    )
    exe = gpucomp.compile(proto, target="cpu")

    assert exe.run({"x": np.array(100, np.float32)})["y"] == 100
    with pytest.raises(UnsupportedError, match=r"'forever'.*more than 4096 steps"):
        exe.run({"x": np.array(1, np.float32)})


def test_a_sequence_of_a_length_that_values_decide():
    nodes = [node("NonZero", ["x"], ["p"]), node("SplitToSequence", ["p", "one"], ["s"], axis=1)]
    proto = model(
        nodes,
        [value("x", (5,))],
        weights={"one": np.array(1, np.int64)},
        outputs=[helper.make_tensor_sequence_value_info("s", TensorProto.INT64, None)],
    )
    exe = gpucomp.compile(proto, target="cpu")

    for x in ([0, 7, 0, 8, 9], [0, 0, 4, 0, 0], [1, 1, 1, 1, 1]):
        found = exe.run({"x": np.array(x, np.float32)})["s"]
        assert [a.tolist() for a in found] == [[[k]] for k in np.flatnonzero(x)]


def test_a_sequence_that_is_computed_before_is_read_behind():
    nodes = [
        node("Neg", ["x"], ["a"]),
        node("SequenceConstruct", ["a", "x"], ["s"]),
        node("ReduceMax", ["k"], ["at"], keepdims=0),
        node("SequenceAt", ["s", "at"], ["y"]),
    ]
    exe = gpucomp.compile(model(nodes, [value("x", (3,)), value("k", (2,), TensorProto.INT64)]), target="cpu")
    x = np.array([1, 2, 3], np.float32)

    np.testing.assert_array_equal(exe.run({"x": x, "k": np.array([0, 0])})["y"], -x)
    np.testing.assert_array_equal(exe.run({"x": x, "k": np.array([0, 1])})["y"], x)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.int8, np.bool_], ids=lambda t: np.dtype(t).name)
def test_constants_of_every_kind_go_into_the_dynamic_model(dtype):
    table = np.arange(6).reshape(3, 2).astype(dtype)
    nodes = [
        node("NonZero", ["x"], ["p"]),
        node("Squeeze", ["p"], ["q"]),
        node("Transpose", ["t"], ["u"]),
        node("Gather", ["u", "q"], ["y"], axis=1),
    ]

    found = run(model(nodes, [value("x", (3,))], weights={"t": table}), x=np.array([1, 0, 1], np.float32))

    np.testing.assert_array_equal(found["y"].astype(np.float32), table.T[:, [0, 2]].astype(np.float32))
    assert found["y"].dtype == table.dtype


def test_unique_counts_what_is_there():
    proto = model(
        [node("Unique", ["x"], ["v", "first", "inverse", "counts"], axis=1, sorted=0)],
        [value("x", (2, 5), TensorProto.INT32)],
        ["v", "first", "inverse", "counts"],
    )
    x = np.array([[7, 3, 7, 3, 1], [0, 2, 0, 2, 2]], np.int32)

    found = run(proto, x=x)

    np.testing.assert_array_equal(found["v"], [[7, 3, 1], [0, 2, 2]])
    np.testing.assert_array_equal(found["first"], [0, 1, 4])
    np.testing.assert_array_equal(found["inverse"], [0, 1, 0, 1, 2])
    np.testing.assert_array_equal(found["counts"], [2, 2, 1])


def test_a_function_is_opened_where_only_its_end_waits():
    inside = [node("Sin", ["a"], ["b"]), node("Relu", ["b"], ["c"]), node("NonZero", ["c"], ["d"])]
    made = helper.make_function("own", "Places", ["a"], ["d"], inside, [helper.make_opsetid("", 20)])
    proto = model([node("Places", ["x"], ["y"], domain="own")], [value("x", (7,))], functions=[made], domains=["own"])
    exe = gpucomp.compile(proto, target="cpu")
    x = np.arange(7, dtype=np.float32)

    assert [op for kernel in exe.kernels for op in kernel.ops] == ["Sin", "Relu"]
    assert [op for op, _ in exe.dynamic_operators] == ["NonZero"]
    np.testing.assert_array_equal(exe.run({"x": x})["y"], [np.flatnonzero(np.sin(x) > 0)])


def test_strings_and_lengths_that_only_a_run_tells():
    proto = model([node("StringSplit", ["x"], ["y", "n"])], [value("x", (2,), TensorProto.STRING)], ["y", "n"])
    exe = gpucomp.compile(proto, target="cpu")

    for texts, wide in ((["a b", "c"], 2), (["d e f", ""], 3)):
        found = exe.run({"x": np.array(texts, object)})
        assert found["y"].shape == (2, wide)
        np.testing.assert_array_equal(found["n"], [len(t.split()) for t in texts])


# --- what is wrong


def test_what_no_value_settles_is_refused_at_compile_time_alone():
    nodes = [node("NonZero", ["x"], ["p"], name="places"), node("Frobnicate", ["p"], ["y"], name="f", domain="own")]
    proto = model(nodes, [value("x")], domains=["own"])

    with pytest.raises(UnsupportedError, match="'f': unknown operator") as caught:
        gpucomp.compile(proto, target="cpu")

    assert len(caught.value.problems) == 1


def test_a_strict_translation_still_names_what_waits():
    with pytest.raises(UnsupportedError, match="'nms': its boxes must be known at compile time"):
        frontend.load(ssd())


def test_an_operator_that_fails_is_named():
    proto = model(
        [node("NonZero", ["x"], ["p"]), node("Gather", ["t", "p"], ["y"], name="g")],
        [value("x", (3,))],
        weights={"t": np.zeros((0, 2), np.float32)},
    )
    exe = gpucomp.compile(proto, target="cpu")

    assert exe.run({"x": np.zeros(3, np.float32)})["y"].shape == (1, 0, 2)
    with pytest.raises((DeviceError, ShapeError), match="'g'"):
        exe.run({"x": np.ones(3, np.float32)})


def test_an_artefact_whose_rest_is_another_models_is_refused(tmp_path):
    exe = gpucomp.compile(model([node("NonZero", ["x"], ["y"])], [value("x", (3,))]), target="cpu")
    other = gpucomp.compile(model([node("NonZero", ["x"], ["y"])], [value("x", (5,))]), target="cpu")
    third = gpucomp.compile(model([node("NonZero", ["z"], ["y"])], [value("z", (3,))]), target="cpu")

    for made in (other, third):
        contents = artifact.Contents(exe.plan, exe.sources, exe.binaries, exe.weights, made.dynamic_model)
        artifact.save(tmp_path / "m.gpuc", contents)
        with pytest.raises(ArtifactError, match=r"the dynamic part of the model reads '[xz]': f32"):
            gpucomp.load(tmp_path / "m.gpuc").run({"x": np.ones(3, np.float32)})
