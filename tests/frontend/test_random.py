"""Random numbers are drawn in every run, are the same with a seed, and have the requested type, shape and distribution."""

import numpy as np
import pytest
from onnx import TensorProto

from gpucomp import compile
from gpucomp.errors import ShapeError
from gpucomp.frontend.onnx import load
from gpucomp.rewrite.pipeline import run_pipeline
from tests.onnx_builders import model, node, value

SHAPE = [37, 53]


def drawn(*nodes, inputs=(), outputs=("y",), **feed):
    exe = compile(model(list(nodes), list(inputs), outputs), target="cpu")
    return exe.run(feed), exe.run(feed)


def test_draws_without_a_seed_differ_from_run_to_run_and_from_each_other():
    nodes = [node("RandomUniform", [], [name], shape=SHAPE, low=-1.0, high=3.0) for name in "yz"]

    first, second = drawn(*nodes, outputs=("y", "z"))

    arrays = [first["y"], first["z"], second["y"], second["z"]]
    assert len({a.tobytes() for a in arrays}) == 4
    assert all(a.min() >= -1 and a.max() < 3 and abs(a.mean() - 1) < 0.2 for a in arrays)


@pytest.mark.parametrize("dtype", [TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_draws_with_a_seed_are_the_same_in_every_run(dtype):
    first, second = drawn(node("RandomNormal", [], ["y"], shape=SHAPE, mean=5.0, scale=0.5, dtype=dtype, seed=7.0))

    assert np.array_equal(first["y"], second["y"])
    assert abs(first["y"].astype(np.float64).mean() - 5) < 0.1
    assert abs(first["y"].astype(np.float64).std() - 0.5) < 0.05


def test_no_pass_makes_a_draw_a_constant():
    proto = model(
        [node("RandomUniformLike", ["w"], ["u"]), node("Exp", ["u"], ["y"])],
        weights={"w": np.zeros((3, 5), np.float32)},
    )

    graph = run_pipeline(load(proto))

    assert "RandomUniform" in [n.op.name for n in graph.nodes()]


def test_dropout_keeps_the_sum_and_says_what_it_kept():
    x = np.full(SHAPE, 2.0, np.float32)
    proto = model(
        [node("Dropout", ["x", "r", "t"], ["y", "mask"])],
        [value("x", SHAPE)],
        ["y", "mask"],
        weights={"r": np.float32(0.25).reshape(()), "t": np.array(True)},
    )

    result = compile(proto, target="cpu").run({"x": x})

    np.testing.assert_allclose(result["y"], np.where(result["mask"], x / 0.75, 0), rtol=1e-6)
    assert abs(result["mask"].mean() - 0.75) < 0.05


def test_classes_are_drawn_by_their_weights():
    x = np.log(np.array([[0.1, 0.6, 0.3], [1e-9, 1e-9, 1]], np.float32))

    result, again = drawn(
        node("Multinomial", ["x"], ["y"], sample_size=4001, seed=3.0), inputs=[value("x", (2, 3))], x=x
    )

    assert np.array_equal(result["y"], again["y"])
    assert result["y"].dtype == np.int32
    np.testing.assert_allclose(np.bincount(result["y"][0], minlength=3) / 4001, [0.1, 0.6, 0.3], atol=0.03)
    assert (result["y"][1] == 2).all()


def test_classes_are_drawn_by_shares_that_never_round_to_one():
    """In f32, a number below 1 can round to 1. Its noise is infinite, so the class would win whatever its weight."""
    proto = model([node("Multinomial", ["x"], ["y"], sample_size=5)], [value("x", (2, 3))], ["y"])

    (shares,) = [n for n in load(proto).nodes() if n.op.name == "RandomUniform"]

    assert shares.types[0].dtype.name == "f64"


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"shape": [2, -1]}, "negative dimension"),
        ({"shape": [2], "dtype": TensorProto.INT32}, "float elements expected, got i32"),
    ],
)
def test_draws_of_no_sensible_size_or_type_are_refused(attributes, message):
    with pytest.raises(ShapeError, match=message):
        load(model([node("RandomNormal", [], ["y"], **attributes)]))
