"""Support vector machines against onnxruntime, or against ONNX's evaluator if onnxruntime refuses the model."""

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from gpucomp import ops
from gpucomp.cli.compare import onnxruntime_session
from gpucomp.errors import ShapeError, UnsupportedError
from gpucomp.frontend.onnx import load
from gpucomp.frontend.onnx.ai_onnx_ml import svm
from tests.onnx_builders import model, node, value
from tests.onnx_cases import InterpreterBackend

ML = "ai.onnx.ml"
RNG = np.random.default_rng(5)
X = RNG.standard_normal((23, 4)).astype(np.float32)
KERNELS = {
    "LINEAR": [0.0, 0.0, 0.0],
    "POLY": [0.3, 0.5, 3.0],
    "RBF": [0.4, 0.0, 0.0],
    "SIGMOID": [0.2, 0.1, 0.0],
}
LABELS = {
    2: {"classlabels_ints": [7, 3]},
    3: {"classlabels_strings": ["a", "b", "c"]},
    4: {"classlabels_ints": [0, 1, 2, 9]},
}
COUNTS = [3, 2, 4, 1]


@pytest.fixture(autouse=True)
def same_numbers_whatever_ran_before():
    RNG.bit_generator.state = np.random.default_rng(6).bit_generator.state


def numbers(*shape):
    return RNG.standard_normal(np.prod(shape)).round(3).tolist()


def of(operator, array=X, outputs=("y",), **attributes):
    info = value("x", array.shape, helper.np_dtype_to_tensor_dtype(array.dtype))
    proto = model([node(operator, ["x"], list(outputs), domain=ML, **attributes)], [info], outputs)
    proto.opset_import.append(helper.make_opsetid(ML, 1))
    return proto


def classifier(classes, kernel, *, probabilities=False, array=X, **attributes):
    counts, pairs = COUNTS[:classes], classes * (classes - 1) // 2
    total = sum(counts)
    given = {
        "vectors_per_class": counts,
        "coefficients": numbers(classes - 1, total),
        "support_vectors": numbers(total, 4),
        "rho": numbers(pairs),
        **LABELS[classes],
    }
    if probabilities:
        given |= {"prob_a": (-1 - RNG.random(pairs)).tolist(), "prob_b": numbers(pairs)}
    return of(
        "SVMClassifier",
        array,
        ("label", "scores"),
        kernel_type=kernel,
        kernel_params=KERNELS[kernel],
        **given,
        **attributes,
    )


def agrees(proto, array=X):
    expected = onnxruntime_session(proto.SerializeToString()).run(None, {"x": array})
    found = InterpreterBackend.prepare(proto).run([array])
    for actual, wanted in zip(found, expected, strict=True):
        if actual.dtype == np.float32:
            np.testing.assert_allclose(actual, wanted, rtol=2e-5, atol=2e-5 * np.abs(wanted).max(initial=1))
        else:
            assert actual.tolist() == wanted.tolist()


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_regressor_sums_over_its_vectors(kernel):
    weights = {"coefficients": numbers(7), "support_vectors": numbers(7, 4), "rho": [0.3], "n_supports": 7}

    agrees(of("SVMRegressor", kernel_type=kernel, kernel_params=KERNELS[kernel], **weights))
    agrees(of("SVMRegressor", kernel_type=kernel, kernel_params=KERNELS[kernel], one_class=1, **weights))


@pytest.mark.parametrize("probabilities", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("classes", LABELS)
def test_a_classifier_votes_by_pairs(classes, kernel, probabilities):
    agrees(classifier(classes, kernel, probabilities=probabilities))


@pytest.mark.parametrize("transform", ["LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_scores_of_pairs_are_transformed(transform):
    agrees(classifier(3, "RBF", post_transform=transform))


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_two_classes_are_transformed_as_the_standards_evaluator_does(transform):
    """The standard says that scores are transformed. It does not define the first class's score if two classes have one."""
    proto = classifier(2, "RBF", post_transform=transform)

    _, expected = ReferenceEvaluator(proto).run(None, {"x": X})

    label, scores = InterpreterBackend.prepare(proto).run([X])
    assert label.tolist() == onnxruntime_session(proto.SerializeToString()).run(["label"], {"x": X})[0].tolist()
    np.testing.assert_allclose(scores, expected, rtol=2e-5, atol=2e-6)


def test_where_all_coefficients_are_positive_the_second_class_needs_half_a_score():
    """As in onnxruntime. The standard's evaluator returns the label of the first class there."""
    seen = set()
    for rho in (-1.0, 0.0, 0.4, 0.8, 1.2):
        proto = classifier(2, "RBF")
        given = {a.name: a.floats for a in proto.graph.node[0].attribute}
        given["coefficients"][:] = map(abs, given["coefficients"])
        given["rho"][:] = [rho]
        (label,) = InterpreterBackend.prepare(proto).run([X])[:1]
        seen |= set(label.tolist())
        assert label.tolist() == onnxruntime_session(proto.SerializeToString()).run(["label"], {"x": X})[0].tolist()
    assert seen == {3, 7}


def test_pairs_of_many_classes_are_counted_before_they_are_listed(monkeypatch):
    monkeypatch.setattr(svm, "combinations", None)
    proto = of(
        "SVMClassifier",
        X,
        ("label", "scores"),
        classlabels_ints=list(range(2503)),
        rho=[0.3],
        coefficients=[0.5],
        vectors_per_class=[1] * 2503,
        kernel_params=KERNELS["RBF"],
    )

    with pytest.raises(ShapeError, match="3131253 pairs"):
        load(proto)


@pytest.mark.parametrize("counts", [[-1, 1, 0], [-3, 2, 4]])
def test_a_class_of_fewer_than_no_vectors_is_refused(counts):
    proto = of(
        "SVMClassifier",
        X,
        ("label", "scores"),
        rho=[0.3] * 3,
        coefficients=numbers(2, 3),
        vectors_per_class=counts,
        support_vectors=numbers(3, 4),
        kernel_params=KERNELS["RBF"],
        **LABELS[3],
    )

    with pytest.raises(ShapeError, match="below 0"):
        load(proto)


def test_other_types_are_classified_in_f32():
    for dtype in (np.float64, np.int32, np.int64):
        array = (3 * X).astype(dtype)
        agrees(classifier(3, "RBF", array=array), array)


@pytest.mark.parametrize("sign", [1, -1])
def test_without_vectors_there_is_a_row_for_each_class(sign):
    for labels in (LABELS[2], LABELS[4]):
        count = len(next(iter(labels.values())))
        weights = (sign * np.abs(numbers(count, 4))).tolist()
        proto = of(
            "SVMClassifier",
            X,
            ("label", "scores"),
            coefficients=weights,
            rho=[0.3],
            kernel_params=KERNELS["LINEAR"],
            **labels,
        )
        if count == 2 and sign < 0:  # here onnxruntime takes every positive score for the second class
            expected = ReferenceEvaluator(proto).run(None, {"x": X})
            label, scores = InterpreterBackend.prepare(proto).run([X])
            assert label.tolist() == expected[0].tolist()
            np.testing.assert_allclose(scores, expected[1], rtol=1e-5, atol=1e-6)
        else:
            agrees(proto)


def test_one_row_of_coefficients_is_a_regressor():
    agrees(of("SVMRegressor", coefficients=numbers(4), rho=[0.3], kernel_params=KERNELS["LINEAR"], n_supports=0))


def test_coupled_pairs_of_true_probabilities_give_these():
    p = np.float32([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [1 / 3, 1 / 3, 1 / 3]])
    pairs = p[:, :, None] / (p[:, :, None] + p[:, None, :])

    found = ops.PairwiseCoupling.reference(pairs)

    np.testing.assert_allclose(found, p, atol=0.01)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-6)


@pytest.mark.parametrize(
    ("proto", "error", "message"),
    [
        (of("SVMRegressor", coefficients=numbers(5), rho=[1.0]), ShapeError, "4 times 1 numbers expected, 5 given"),
        (of("SVMRegressor", rho=[1.0]), ShapeError, "rho and coefficients expected"),
        (of("SVMRegressor", coefficients=numbers(4), rho=[1.0], kernel_type="OTHER"), ShapeError, "kernel_type 'OTHER'"),
        (of("SVMRegressor", coefficients=numbers(4), rho=[1.0], kernel_params=[1.0]), ShapeError, "1 kernel_params"),
        (of("SVMClassifier", X, ("l", "s"), coefficients=numbers(4), rho=[1.0], classlabels_ints=[1]),
         UnsupportedError, "fewer than two classes"),
        (of("SVMClassifier", X, ("l", "s"), coefficients=numbers(6), support_vectors=numbers(3, 4), rho=[1.0],
            vectors_per_class=[3], classlabels_ints=[1, 2]), ShapeError, "vectors_per_class for 2 classes"),
        (of("SVMClassifier", X, ("l", "s"), coefficients=numbers(3), support_vectors=numbers(3, 4), rho=[1.0, 2.0],
            vectors_per_class=[1, 2], classlabels_ints=[1, 2]), ShapeError, "for 1 pairs of classes"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(proto, error, message):
    with pytest.raises(error, match=message):
        load(proto)
