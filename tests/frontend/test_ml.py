"""The ai.onnx.ml operators against ONNX's own evaluator, MaxRoiPool against onnxruntime, and invalid models."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import gpucomp
from gpucomp.cli.compare import onnxruntime_session
from gpucomp.errors import DeviceError, ModelError, ShapeError, UnsupportedError
from gpucomp.frontend.onnx import load
from tests.onnx_builders import model, node, value
from tests.onnx_cases import InterpreterBackend

ML = "ai.onnx.ml"
RNG = np.random.default_rng(11)
X = RNG.integers(-3, 4, (7, 5)).astype(np.float32)
X[2] = 0
GAPS = np.where(X == 1, np.nan, X).astype(np.float32)
WORDS = np.array([["a", "b"], ["c", "a"], ["", "z"]], object)
THREE = {"coefficients": RNG.standard_normal(15).round(2).tolist(), "intercepts": [0.5, -1.0, 0.25]}


def of(operator, array, outputs=("y",), **attributes):
    dtype = TensorProto.STRING if array.dtype == object else helper.np_dtype_to_tensor_dtype(array.dtype)
    proto = model(
        [node(operator, ["x"], list(outputs), domain=ML, **attributes)], [value("x", array.shape, dtype)], outputs
    )
    proto.opset_import.append(helper.make_opsetid(ML, 3))
    return proto


def by_onnxruntime(proto, feeds):
    session = onnxruntime_session(proto.SerializeToString())
    return session.run(None, feeds)


CASES = [
    ("Scaler", X, {"offset": [1.0, 2.0, 3.0, -1.0, 0.5], "scale": [0.5, 2.0, 1.0, 3.0, -1.0]}),
    ("Scaler", X, {"offset": [1.5], "scale": [2.0]}),
    ("Imputer", GAPS, {"imputed_value_floats": [1.0, 2.0, 3.0, 4.0, 5.0], "replaced_value_float": float("nan")}),
    ("Imputer", X, {"imputed_value_floats": [9.0], "replaced_value_float": -2.0}),
    ("Imputer", X.astype(np.int64), {"imputed_value_int64s": [8], "replaced_value_int64": 3}),
    *(("Normalizer", X, {"norm": norm}) for norm in ("MAX", "L1", "L2")),
    ("LinearRegressor", X, {"targets": 3, **THREE}),
    ("OneHotEncoder", X.astype(np.int64), {"cats_int64s": [3, -1, 0], "zeros": 1}),
    ("OneHotEncoder", WORDS, {"cats_strings": ["a", "", "b"], "zeros": 1}),
]


@pytest.mark.parametrize(("operator", "array", "attributes"), CASES, ids=[f"{c[0]}-{k}" for k, c in enumerate(CASES)])
def test_it_computes_what_onnxs_evaluator_does(operator, array, attributes):
    proto = of(operator, array, **attributes)

    (expected,) = ReferenceEvaluator(proto).run(None, {"x": array})

    (actual,) = InterpreterBackend.prepare(proto).run([array])
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_scores_between_0_and_1_become_quantiles():
    x = np.linspace(0.01, 0.99, 35, dtype=np.float32).reshape(7, 5)
    proto = of(
        "LinearRegressor", x, targets=2, post_transform="PROBIT", coefficients=[1.0, 0, 0, 0, 0, 0, 0, 0, 0, 1.0]
    )

    (y,) = InterpreterBackend.prepare(proto).run([x])

    (expected,) = onnxruntime_session(proto.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("labels", [{"classlabels_ints": [7, -2, 0]}, {"classlabels_strings": ["x", "y", "z"]}])
def test_a_classifier_gives_labels_and_scores(labels, transform):
    proto = of("LinearClassifier", X, ("label", "scores"), post_transform=transform, multi_class=1, **labels, **THREE)

    expected = ReferenceEvaluator(proto).run(None, {"x": X})

    label, scores = InterpreterBackend.prepare(proto).run([X])
    assert label.tolist() == expected[0].tolist()
    np.testing.assert_allclose(scores, expected[1], rtol=1e-5)


def test_one_score_for_two_classes_is_that_of_the_second():
    attributes = {"coefficients": [1.0, 0.0, -1.0, 0.0, 2.0], "classlabels_ints": [4, 9], "intercepts": [0.25]}

    label, scores = InterpreterBackend.prepare(of("LinearClassifier", X, ("label", "scores"), **attributes)).run([X])

    score = X @ np.float32([1, 0, -1, 0, 2]) + 0.25
    np.testing.assert_allclose(scores, np.stack([-score, score], 1), rtol=1e-6)
    assert label.tolist() == np.where(score > 0, 9, 4).tolist()


def test_categories_are_mapped_both_ways():
    lists = {"cats_strings": ["a", "b"], "cats_int64s": [5, 6]}

    assert InterpreterBackend.prepare(of("CategoryMapper", WORDS, **lists)).run([WORDS])[0].tolist() == [
        [5, 6],
        [-1, 5],
        [-1, -1],
    ]
    numbers = np.array([6, 0], np.int64)
    assert InterpreterBackend.prepare(of("CategoryMapper", numbers, **lists)).run([numbers])[0].tolist() == [
        "b",
        "_Unused",
    ]


def test_the_first_label_encoder_counts_the_places_of_a_list():
    def found(array):
        proto = of("LabelEncoder", array, classes_strings=["a", "", "b"], default_int64=-7, default_string="none")
        proto.opset_import[-1].version = 1
        return InterpreterBackend.prepare(proto).run([array])[0].tolist()

    assert found(WORDS) == [[0, 2], [-7, 0], [1, -7]]
    assert found(np.array([2, 0, 3, -1])) == ["b", "a", "none", "none"]


def test_features_are_put_one_behind_the_other():
    nodes = [node("FeatureVectorizer", ["x", "n"], ["y"], inputdimensions=[5, 2], domain=ML)]
    proto = model(nodes, [value("x", (3, 5)), value("n", (3, 2))])
    proto.opset_import.append(helper.make_opsetid(ML, 1))
    n = np.arange(6, dtype=np.float32).reshape(3, 2)

    (y,) = InterpreterBackend.prepare(proto).run([X[:3], n])

    np.testing.assert_array_equal(y, np.concatenate([X[:3], n], 1))


@pytest.mark.parametrize(("pooled", "scale"), [((2, 3), 1.0), ((1, 1), 0.5), ((7, 5), 0.3)])
def test_regions_are_pooled_as_onnxruntime_does(pooled, scale):
    x = RNG.standard_normal((2, 3, 11, 7)).astype(np.float32)
    rois = np.array(
        [[0, 0, 0, 6, 10], [1, 2, 3, 4, 5], [1, 5, 9, 30, 40], [0, 3, 3, 3, 3], [0, 6, 2, 1, 1]], np.float32
    )
    attributes = {"pooled_shape": list(pooled), "spatial_scale": scale}
    proto = model(
        [node("MaxRoiPool", ["x", "r"], ["y"], **attributes)],
        [value("x", x.shape), value("r", rois.shape)],
        [value("y", (5, 3, *pooled))],
    )

    (expected,) = by_onnxruntime(proto, {"x": x, "r": rois})

    np.testing.assert_array_equal(InterpreterBackend.prepare(proto).run([x, rois])[0], expected)


@pytest.mark.parametrize(
    ("proto", "message"),
    [
        (of("Scaler", X, offset=[1.0, 2.0]), "offset: 1 or"),
        (of("Imputer", X, imputed_value_int64s=[1]), "imputed values for f32"),
        (of("Normalizer", X, norm="L3"), "norm MAX, L1 or L2"),
        (of("LinearRegressor", X, coefficients=[1.0]), "coefficients expected, 1 given"),
        (of("OneHotEncoder", WORDS, cats_int64s=[1]), "categories of string"),
    ],
)
def test_attributes_that_do_not_fit_are_refused(proto, message):
    with pytest.raises(ShapeError, match=message):
        load(proto)


def test_what_is_not_supported_says_so():
    with pytest.raises(UnsupportedError, match="post_transform OTHER"):
        load(of("LinearRegressor", X, targets=3, post_transform="OTHER", **THREE))


@pytest.mark.parametrize(
    ("array", "stranger", "attributes"),
    [
        (np.array([[3, 0], [-1, 3]]), 7, {"cats_int64s": [3, -1, 0]}),
        (np.float32([3.5, 0, -1]), 1, {"cats_int64s": [3, -1, 0]}),
        (WORDS, "A", {"cats_strings": ["a", "", "b", "z", "c"]}),
    ],
)
def test_without_zeros_an_element_of_no_category_ends_the_run(array, stranger, attributes):
    proto = of("OneHotEncoder", array, zeros=0, **attributes)
    (expected,) = by_onnxruntime(proto, {"x": array})
    compiled = gpucomp.compile(proto, target="cpu")

    np.testing.assert_array_equal(compiled.run({"x": array})["y"], expected)

    strange = array.copy()
    strange.reshape(-1)[-1] = stranger
    with pytest.raises(DeviceError, match=f"{stranger}.* is not one of the {expected.shape[-1]} categories") as raised:
        compiled.run({"x": strange})
    assert raised.value.code == "GPC5012"
    np.testing.assert_array_equal(compiled.run({"x": array})["y"], expected)


def zip_map(rows, labels, nodes=(), outputs=("y",)):
    kind = "classlabels_strings" if isinstance(labels[0], str) else "classlabels_int64s"
    made = node("ZipMap", ["x"], ["y"], domain=ML, **{kind: labels})
    proto = model([*nodes, made], [value("x", rows.shape)], outputs)
    proto.graph.output[0].type.CopyFrom(
        helper.make_sequence_type_proto(
            helper.make_map_type_proto(
                TensorProto.STRING if isinstance(labels[0], str) else TensorProto.INT64,
                helper.make_tensor_type_proto(TensorProto.FLOAT, []),
            )
        )
    )
    proto.opset_import.append(helper.make_opsetid(ML, 3))
    return proto


@pytest.mark.parametrize("labels", [[7, -2, 5], ["β", "", "z"]])
@pytest.mark.parametrize("shape", [(4, 3), (1, 3), (3,)])
def test_a_zip_map_gives_a_map_for_each_row(labels, shape, tmp_path):
    rows = RNG.standard_normal(shape).astype(np.float32)
    proto = zip_map(rows, labels)
    (expected,) = by_onnxruntime(proto, {"x": rows})
    compiled = gpucomp.compile(proto, target="cpu")

    assert compiled.run({"x": rows}) == {"y": expected}

    compiled.save(tmp_path / "m.gpuc")
    assert gpucomp.load(tmp_path / "m.gpuc").run({"x": rows}) == {"y": expected}


def test_a_zip_map_of_no_rows_is_empty():
    rows = np.zeros((0, 2), np.float32)

    assert gpucomp.compile(zip_map(rows, [1, 2]), target="cpu").run({"x": rows}) == {"y": []}


def test_a_zip_map_behind_what_waits_for_values():
    rows = np.float32([[0, 3, 0], [2, 0, 0]])
    proto = zip_map(rows, ["row", "column"], [node("NonZero", ["x"], ["n"]), node("Transpose", ["n"], ["t"])])
    proto.graph.node.insert(2, node("Cast", ["t"], ["places"], to=TensorProto.FLOAT))
    proto.graph.node[3].input[0] = "places"

    assert gpucomp.compile(proto, target="cpu").run({"x": rows}) == {
        "y": [{"row": 0.0, "column": 1.0}, {"row": 1.0, "column": 0.0}]
    }


def test_a_zip_map_that_is_not_one_is_refused():
    rows = np.zeros((2, 3), np.float32)
    with pytest.raises(ShapeError, match=r"one label of one kind for each of \(3,\) columns"):
        load(zip_map(rows, [1, 2]))
    with pytest.raises(ModelError, match="input 0 must not be of type seq"):
        load(zip_map(rows, [1, 2, 3], outputs=("y", "z"), nodes=[node("SequenceLength", ["y"], ["z"])]))
    with pytest.raises(UnsupportedError, match="a ZipMap is not supported in a model with data-dependent shapes"):
        gpucomp.compile(
            zip_map(rows, [1, 2, 3], outputs=("y", "n"), nodes=[node("NonZero", ["x"], ["n"])]), target="cpu"
        )
