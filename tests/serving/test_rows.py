"""Which dimension is the batch, and when its rows are proven not to change each other."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import gpucomp
from bench.decoder_model import Sizes, decoder
from gpucomp import ops
from gpucomp.errors import InputError
from gpucomp.frontend.onnx.loader import load
from gpucomp.ir.conditions import Assumed, assuming
from gpucomp.ir.dim import Dim
from gpucomp.ir.graph import Graph, input_value
from gpucomp.ir.instance import instance
from gpucomp.ir.size import size_of
from gpucomp.ir.types import F32, TensorType
from gpucomp.refusal import Refusal
from gpucomp.serving import rows
from gpucomp.serving.batch import batch_dim
from gpucomp.serving.rows import _alike, _are_of, independent
from tests.onnx_builders import model, node, value
from tests.serving import models

IMAGE = ["n", 3, 8, 8]


def one(nodes, weights=None, shape=("n", 5), result=("n", 5)):
    return model(nodes, [value("x", list(shape))], [value("y", list(result))], weights or {})


def found(proto, tmp_path, shapes=None):
    path = models.save(proto, tmp_path / "m.onnx")
    first = proto.graph.input[0]
    shapes = shapes or {first.name: tuple(d.dim_param or d.dim_value for d in first.type.tensor_type.shape.dim)}
    exe = gpucomp.compile(path, target="cpu", shapes=shapes)
    batch = batch_dim(exe.inputs, exe.outputs)
    return batch if isinstance(batch, Refusal) else independent(path, shapes, batch, exe.program.example)


def branch(nodes, result):
    return helper.make_graph(nodes, result, [], [value(result, None)])


def centred_where(comparison):
    """x - mean over the batch if ``comparison`` holds for the size of the batch and 512, else x."""
    mean = [node("ReduceMean", ["x", "axes"], ["m"], keepdims=1), node("Sub", ["x", "m"], ["centred"])]
    both = {
        "then_branch": branch(mean, "centred"),
        "else_branch": branch([node("Identity", ["x"], ["same"])], "same"),
    }
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["g"]),
        node(comparison, ["g", "many"], ["holds"]),
        node("If", ["holds"], ["y"], **both),
    ]
    return one(nodes, {"zero": np.array(0), "many": np.array(512), "axes": np.array([0])})


CONV = {"k": np.ones((4, 3, 3, 3), np.float32)}
INDEPENDENT = {
    "a product and a relu": models.mlp(),
    "a convolution with a pool": model(
        [node("Conv", ["x", "k"], ["c"]), node("GlobalAveragePool", ["c"], ["p"]), node("Flatten", ["p"], ["y"])],
        [value("x", IMAGE)],
        [value("y", ["n", 4])],
        CONV,
    ),
    "a softmax of each row": one([node("Softmax", ["x"], ["y"], axis=1)]),
    "the rows in columns and back": one(
        [
            node("Transpose", ["x"], ["t"], perm=[1, 0]),
            node("Relu", ["t"], ["r"]),
            node("Transpose", ["r"], ["y"], perm=[1, 0]),
        ]
    ),
    "a sum of two inputs, and one that nothing reads": model(
        [node("Add", ["x", "z"], ["s"]), node("Relu", ["s"], ["y"])],
        [value("x", ["n", 5]), value("z", ["n", 1]), value("unread", ["n", 2])],
        [value("s", ["n", 5]), value("y", ["n", 5])],
    ),
    "a decoder with rotated positions and a causal mask": decoder(Sizes(layers=1)),
}
DEPENDENT = {
    "the mean of the batch": models.centred(),
    "a softmax over the batch": one([node("Softmax", ["x"], ["y"], axis=0)]),
    "running sums": one([node("CumSum", ["x", "zero"], ["y"])], {"zero": np.array(0)}),
    "rows backwards": one(
        [node("Slice", ["x", "a", "b", "c", "d"], ["y"])],
        {"a": np.array([-1]), "b": np.array([-(2**62)]), "c": np.array([0]), "d": np.array([-1])},
    ),
    "divided by the size of the batch": one(
        [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "zero"], ["g"]),
            node("Cast", ["g"], ["c"], to=TensorProto.FLOAT),
            node("Div", ["x", "c"], ["y"]),
        ],
        {"zero": np.array(0)},
    ),
    "divided by the size of the batch, up to a hundred": one(
        [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "zero"], ["g"]),
            node("Min", ["g", "hundred"], ["least"]),
            node("Cast", ["least"], ["c"], to=TensorProto.FLOAT),
            node("Div", ["x", "c"], ["y"]),
        ],
        {"zero": np.array(0), "hundred": np.array(100)},
    ),
    "the mean of a batch that is small": centred_where("Less"),
    "the number of the row": one(
        [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "zero"], ["g"]),
            node("Range", ["zero", "g", "one"], ["r"]),
            node("Cast", ["r"], ["c"], to=TensorProto.FLOAT),
            node("Unsqueeze", ["c", "at"], ["u"]),
            node("Add", ["x", "u"], ["y"]),
        ],
        {"zero": np.array(0), "one": np.array(1), "at": np.array([1])},
    ),
    "the first row of all": one(
        [node("Gather", ["x", "zero"], ["g"], axis=0), node("Add", ["x", "g"], ["y"])], {"zero": np.array(0)}
    ),
    "the largest of another input": model(
        [node("ReduceMax", ["z", "axes"], ["m"], keepdims=1), node("Add", ["x", "m"], ["y"])],
        [value("x", ["n", 5]), value("z", ["n", 5])],
        [value("y", ["n", 5])],
        {"axes": np.array([0])},
    ),
    "the first row of another input": model(
        [node("Slice", ["z", "zero", "one", "zero"], ["g"]), node("Add", ["x", "g"], ["y"])],
        [value("x", ["n", 5]), value("z", ["n", 5])],
        [value("y", ["n", 5])],
        {"zero": np.array([0]), "one": np.array([1])},
    ),
    "an output that is read too": model(
        [
            node("Softmax", ["x"], ["z"], axis=0),
            node("Gather", ["z", "zero"], ["g"], axis=0),
            node("Add", ["x", "g"], ["y"]),
        ],
        [value("x", ["n", 5])],
        [value("y", ["n", 5]), value("z", ["n", 5])],
        {"zero": np.array(0)},
    ),
    "products of rows": model(
        [
            node("Transpose", ["x"], ["t"], perm=[1, 0]),
            node("MatMul", ["x", "t"], ["p"]),
            node("MatMul", ["p", "x"], ["y"]),
        ],
        [value("x", ["n", 5])],
        [value("y", ["n", 5])],
    ),
}


@pytest.mark.parametrize("proto", INDEPENDENT.values(), ids=INDEPENDENT)
def test_rows_that_do_not_change_each_other(proto, tmp_path):
    assert found(proto, tmp_path) is None


@pytest.mark.parametrize("proto", DEPENDENT.values(), ids=DEPENDENT)
def test_rows_that_do(proto, tmp_path):
    assert isinstance(found(proto, tmp_path), Refusal)


def test_a_batch_that_is_not_first_is_none(tmp_path):
    proto = one([node("Transpose", ["x"], ["y"], perm=[1, 0])], result=(5, "n"))

    assert "the first dimension of 'y' is not 'n'" in str(found(proto, tmp_path))


def test_a_size_of_two_dimensions_is_no_batch(tmp_path):
    proto = one([node("Relu", ["x"], ["y"])], shape=("n", "n"), result=("n", "n"))

    assert "is the size of other dimensions too" in str(found(proto, tmp_path))


def test_a_fixed_first_dimension_is_no_batch():
    exe = gpucomp.compile(one([node("Relu", ["x"], ["y"])], shape=(2, 5)), target="cpu")

    assert "has one size only" in str(batch_dim(exe.inputs, exe.outputs))


def wide(nodes, weights):
    return model(nodes, [value("x", ["n", "s"])], [value("y", ["n", "s"])], weights)


def at(proto, tmp_path, example):
    """The proof of a model of x[n,s] that is built around ``example``."""
    path = models.save(proto, tmp_path / "m.onnx")
    return independent(path, {"x": ("n", "s")}, Dim("n"), example)


def test_rows_that_are_rows_at_one_size_of_another_dimension_only(tmp_path):
    """Where ``s`` is 91, each row of 91 is one of ``x``; where it is 13, seven rows of several clients are."""
    nodes = [
        node("Reshape", ["x", "c"], ["a"]),
        node("Softmax", ["a"], ["b"], axis=1),
        node("Shape", ["x"], ["s"]),
        node("Reshape", ["b", "s"], ["y"]),
    ]

    why = at(wide(nodes, {"c": np.array([-1, 91])}), tmp_path, {"n": 90, "s": 91})

    assert "a condition, n*s == 91*floor(n*s/91), depends on 'n'" in str(why)


def test_the_number_of_rows_is_the_batch_by_its_formula():
    """Rows and columns are as many in an instance, and yet only the rows are the batch."""
    n, s = (size_of(Dim(name), 13) for name in "ns")
    with assuming(Assumed()):
        x = input_value("x", TensorType(F32, (n, s)))
        graph = Graph((x,), (ops.Relu(x),), ("y",))
    one = instance(graph, {"n": 13, "s": 13})

    assert _are_of(n, graph, one, dict.fromkeys((*one.inputs, *one.outputs), 0))
    assert not _are_of(n, graph, one, dict.fromkeys((*one.inputs, *one.outputs), 1))


def test_the_proof_is_for_other_sizes_of_other_dimensions_too(tmp_path, monkeypatch):
    tried = []
    proven = rows._proven_at
    monkeypatch.setattr(rows, "_proven_at", lambda example, *more: tried.append(example) or proven(example, *more))
    relu = [node("Relu", ["x"], ["y"])]

    assert at(wide(relu, {}), tmp_path, {"n": 7, "s": 5}) is None
    assert [one["s"] for one in tried] == [5, 6]


def test_a_dimension_that_a_weight_fixes_has_no_other_size(tmp_path):
    proto = wide([node("Add", ["x", "w"], ["y"])], {"w": np.ones(5, np.float32)})

    assert at(proto, tmp_path, {"n": 7, "s": 5}) is None


def test_a_range_without_two_sizes_of_its_own_proves_nothing(tmp_path):
    path = models.save(one([node("Relu", ["x"], ["y"])], shape=("n", 3), result=("n", 3)), tmp_path / "m.onnx")

    assert "too few sizes" in str(independent(path, {"x": (Dim("n", 3, 4), 3)}, Dim("n", 3, 4), {"n": 4}))


def repeated(count):
    """A loop of ``count`` steps over values that have no rows."""
    carried = [value("k", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("v_in", [5])]
    nodes = [node("Identity", ["go"], ["go_on"]), node("Add", ["v_in", "v_in"], ["v_out"])]
    body = helper.make_graph(nodes, "body", carried, [value("go_on", [], TensorProto.BOOL), value("v_out", [5])])
    loop = node("Loop", ["count", "", "w"], ["y"], body=body)
    return load(model([loop], [value("w", [5])], [value("y", [5])], {"count": np.array(count)}))


def test_loops_of_other_lengths_are_not_alike():
    assert ops.Repeat in {one.op for one in repeated(300).nodes()}

    assert _alike(repeated(300), repeated(300)) is None
    assert isinstance(_alike(repeated(300), repeated(301)), Refusal)


def test_sizes_that_the_program_is_not_for_need_no_proof(tmp_path):
    """The program is built around a small size, and refuses batches that are large."""
    proto = centred_where("Greater")
    exe = gpucomp.compile(proto, target="cpu", shapes={"x": ("n", 5)})
    exe.compile_with(None)
    x = np.random.default_rng(0).standard_normal((600, 5)).astype(np.float32)

    assert found(proto, tmp_path) is None
    for n in (1, 4, 512):
        np.testing.assert_array_equal(exe.run({"x": x[:n]})["y"], x[:n])
    with pytest.raises(InputError, match="GPC2113"):
        exe.run({"x": x})
