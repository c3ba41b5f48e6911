"""Graphs for a range of shapes: at every set of sizes they compute what the model's own translation for it computes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from gpucomp import Dim, ModelError
from gpucomp.frontend.onnx.loader import Source, load, load_open, read
from gpucomp.frontend.onnx.open_shapes import open_shapes
from gpucomp.ir.instance import instance
from gpucomp.ir.polynomial import NotPolynomial
from gpucomp.ir.size import value_at
from gpucomp.ops.interpreter import interpret
from tests.onnx_builders import model, node, value

RNG = np.random.default_rng(11)
LISTS = {
    "zero": np.array([0]),
    "one": np.array([1]),
    "two": np.array([2]),
    "three": np.array([3]),
    "minus": np.array([-1]),
    "minus_two": np.array([-2]),
    "last": np.array([2**62]),
    "seven": np.array([7]),
    "half": np.array([0.5], np.float32),
    "double": np.array([2.0], np.float32),
    "s0": np.array(0),
    "s1": np.array(1),
    "s2": np.array(2),
    "m2": np.array(-2),
    "f0": np.array(0, np.float32),
    "f1": np.array(1, np.float32),
    "w": RNG.standard_normal((5, 3, 3, 3)).astype(np.float32),
    "ones": np.ones(3, np.int64),
    "table": np.arange(12, dtype=np.float32).reshape(3, 4),
}


def made(*nodes, shape=("n", 3, "h", "w"), inputs=None, outputs=("y",)) -> onnx.ModelProto:
    used = {name for n in nodes for name in n.input}
    weights = {name: array for name, array in LISTS.items() if name in used}
    return model(list(nodes), inputs or [value("x", shape)], list(outputs), weights)


def of_shape(*picked: int) -> list[onnx.NodeProto]:
    """x's shape as ``s``, and its entries ``picked`` as ``d0``, ``d1``, ... of one element each."""
    return [
        node("Shape", ["x"], ["s"]),
        *(node("Slice", ["s", f"b{k}", f"e{k}"], [f"d{k}"]) for k in picked),
    ]


for _k in range(4):
    LISTS[f"b{_k}"], LISTS[f"e{_k}"] = np.array([_k]), np.array([_k + 1])

CASES = {
    "reshape with -1": made(
        *of_shape(0), node("Concat", ["d0", "minus"], ["t"], axis=0), node("Reshape", ["x", "t"], ["y"])
    ),
    "reshape with 0": made(node("Reshape", ["x", "t"], ["y"]), inputs=[value("x", ["n", 3, "h", "w"])]),
    "heads": made(
        *of_shape(0, 1),
        node("Concat", ["d0", "d1", "two", "three"], ["t"], axis=0),
        node("Reshape", ["x", "t"], ["z"]),
        node("Transpose", ["z"], ["y"], perm=[0, 2, 1, 3]),
        shape=("n", "h", 6),
    ),
    "convolution": made(node("Conv", ["x", "w"], ["y"], strides=[2, 3], pads=[1, 0, 2, 1], dilations=[1, 2])),
    "same padding": made(node("Conv", ["x", "w"], ["y"], strides=[2, 2], auto_pad="SAME_UPPER")),
    "pooling up": made(node("MaxPool", ["x"], ["y"], kernel_shape=[3, 2], strides=[2, 3], ceil_mode=1)),
    "average": made(node("AveragePool", ["x"], ["y"], kernel_shape=[2, 2], pads=[1, 1, 0, 0])),
    "transposed": made(node("ConvTranspose", ["x", "w3"], ["y"], strides=[2, 2], output_padding=[1, 0])),
    "flatten": made(node("Flatten", ["x"], ["y"], axis=2)),
    "pooled": made(node("GlobalAveragePool", ["x"], ["z"]), node("Flatten", ["z"], ["y"])),
    "slice from the end": made(node("Slice", ["x", "minus_two", "last", "three"], ["y"])),
    "slice to the last": made(node("Slice", ["x", "one", "minus", "two"], ["y"])),
    "slice backwards": made(node("Slice", ["x", "minus", "zero", "three", "minus_two"], ["y"])),
    "slice to a size": made(*of_shape(2), node("Slice", ["x", "zero", "d2", "three"], ["y"])),
    "upsampled": made(node("Resize", ["x", "", "scales"], ["y"], mode="nearest")),
    "resized to another": made(
        *of_shape(0, 1, 2, 3),
        node("Mul", ["d2", "three"], ["u"]),
        node("Concat", ["d0", "d1", "u", "d3"], ["t"], axis=0),
        node("Resize", ["x", "", "", "t"], ["y"], mode="linear"),
    ),
    "resized by corners": made(
        *of_shape(0, 1, 3),
        node("Add", ["d3", "seven"], ["u"]),
        node("Concat", ["d0", "d1", "seven", "u"], ["t"], axis=0),
        node("Resize", ["x", "", "", "t"], ["y"], mode="linear", coordinate_transformation_mode="align_corners"),
    ),
    "resized like": made(
        *of_shape(0, 1),
        node("Slice", ["s", "two", "last"], ["hw"]),
        node("Cast", ["hw"], ["f"], to=TensorProto.FLOAT),
        node("Mul", ["f", "half"], ["g"]),
        node("Floor", ["g"], ["i"]),
        node("Cast", ["i"], ["j"], to=TensorProto.INT64),
        node("Concat", ["d0", "d1", "j"], ["t"], axis=0),
        node("Resize", ["x", "", "", "t"], ["y"], mode="nearest"),
    ),
    "expand": made(
        *of_shape(0, 2),
        node("Concat", ["d0", "three", "d2", "seven"], ["t"], axis=0),
        node("Expand", ["x", "t"], ["y"]),
        shape=("n", 1, "h", 1),
    ),
    "expand where": made(
        *of_shape(0, 1),
        node("Concat", ["d0", "minus", "d1"], ["t"], axis=0),
        node("Equal", ["t", "minus"], ["is"]),
        node("Where", ["is", "ones", "t"], ["v"]),
        node("Unsqueeze", ["x", "one"], ["z"]),
        node("Expand", ["z", "v"], ["y"]),
        shape=("n", "h"),
    ),
    "constant of shape": made(
        *of_shape(0, 2),
        node("Concat", ["d0", "d2"], ["t"], axis=0),
        node("ConstantOfShape", ["t"], ["z"], value=onnx.numpy_helper.from_array(np.array([2.5], np.float32))),
        node("ReduceSum", ["x", "axes"], ["r"], keepdims=0),
        node("Add", ["z", "r"], ["y"]),
    ),
    "padded": made(
        *of_shape(2),
        node("Concat", ["zero", "zero", "zero", "zero", "zero", "zero", "d2", "one"], ["p"], axis=0),
        node("Pad", ["x", "p"], ["y"]),
    ),
    "halves": made(node("Split", ["x"], ["y", "z"], axis=2, num_outputs=2), outputs=("y", "z")),
    "tiled": made(
        *of_shape(0), node("Concat", ["one", "one", "d0", "one"], ["r"], axis=0), node("Tile", ["x", "r"], ["y"])
    ),
    "size of it": made(node("Size", ["x"], ["c"]), node("Cast", ["c"], ["f"], to=1), node("Div", ["x", "f"], ["y"])),
    "scaled by a size": made(
        *of_shape(3),
        node("Cast", ["d3"], ["f"], to=TensorProto.FLOAT),
        node("Sqrt", ["f"], ["q"]),
        node("Mul", ["x", "q"], ["y"]),
    ),
    "number of elements": made(
        node("Shape", ["x"], ["s"]),
        node("ReduceProd", ["s"], ["c"], keepdims=1),
        node("Div", ["c", "three"], ["t"]),
        node("Reshape", ["x", "u"], ["y"]),
    ),
    "attention": made(
        node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
        node("MatMul", ["x", "t"], ["m"]),
        node("Softmax", ["m"], ["p"], axis=-1),
        node("MatMul", ["p", "x"], ["y"]),
        shape=("n", "h", 5),
    ),
    "mean": made(node("ReduceMean", ["x", "axes"], ["y"], keepdims=1)),
    "space to depth": made(node("SpaceToDepth", ["x"], ["y"], blocksize=2)),
    "gathered": made(
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "s0"], ["a"], axis=0),
        node("Unsqueeze", ["a", "zero"], ["b"]),
        node("Concat", ["b", "minus"], ["t"], axis=0),
        node("Reshape", ["x", "t"], ["y"]),
    ),
    "numbered": made(
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "s2"], ["a"], axis=0),
        node("Range", ["s0", "a", "s1"], ["r"]),
        node("Range", ["a", "s1", "m2"], ["q"]),
        node("Cast", ["a"], ["b"], to=TensorProto.FLOAT),
        node("Range", ["f0", "b", "f1"], ["f"]),
        node("ReduceSum", ["x"], ["z"], keepdims=0),
        node("Add", ["f", "z"], ["p"]),
        node("Cast", ["r"], ["g"], to=TensorProto.FLOAT),
        node("Sub", ["p", "g"], ["y"]),
        outputs=("y", "q"),
    ),
    "bounded": made(
        *of_shape(3), node("Min", ["d3", "seven"], ["e"]), node("Slice", ["x", "zero", "e", "three"], ["y"])
    ),
}
for _name, _weights in {
    "reshape with 0": {"t": np.array([0, 0, -1])},
    "transposed": {"w3": RNG.standard_normal((3, 4, 3, 2)).astype(np.float32)},
    "upsampled": {"scales": np.array([1, 1, 2, 1.5], np.float32)},
    "constant of shape": {"axes": np.array([1, 3])},
    "number of elements": {"u": np.array([-1, 3])},
    "mean": {"axes": np.array([2, 3])},
}.items():
    CASES[_name].graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in _weights.items())

RANGES = {"n": Dim("n", 1, 9), "h": Dim("h", 1, 60), "w": Dim("w", 1, 40)}


def opened(proto: onnx.ModelProto, ranges: dict[str, Dim] = RANGES):
    (info,) = proto.graph.input
    dims = info.type.tensor_type.shape.dim
    declared = {"x": tuple(ranges[d.dim_param] if d.dim_param else d.dim_value for d in dims)}
    return load_open(Source(*read(proto)), open_shapes(proto, declared, {}))


@pytest.mark.parametrize("name", CASES)
def test_a_graph_of_formulas_is_the_models_own_at_every_set_of_sizes(name):
    proto = CASES[name]
    found, met = opened(proto), 0

    assert found.varying(), f"nothing varies: {found.conditions}"
    for _ in range(12):
        sizes = {name: int(RNG.integers(dim.low, dim.high, endpoint=True)) for name, dim in RANGES.items()}
        if not found.conditions.hold_at(sizes):
            continue
        met += 1
        shape = found.shapes.at(sizes)["x"]
        own, ours = load(proto, shapes={"x": shape}), instance(found.graph, sizes)
        inputs = {"x": RNG.standard_normal(shape).astype(np.float32)}
        for formula, right, output in zip(found.graph.outputs, own.outputs, ours.outputs, strict=True):
            assert tuple(value_at(extent, sizes) for extent in formula.shape) == right.shape, str(formula.type)
            assert output.type == right.type
        for right, actual in zip(interpret(own, inputs), interpret(ours, inputs), strict=True):
            np.testing.assert_array_equal(actual, right)
    assert met, f"the conditions never hold: {found.conditions}"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("reshape with -1", "f32[n,3*h*w]"),
        ("heads", "f32[n,2,h,3]"),
        ("convolution", "f32[n,5,floor(h/2) + 1,floor((w + 2)/3) - 1]"),
        ("same padding", "f32[n,5,floor((h + 1)/2),floor((w + 1)/2)]"),
        ("flatten", "f32[3*n,h*w]"),
        ("pooled", "f32[n,3]"),
        ("upsampled", "f32[n,3,2*h,w + floor(w/2)]"),
        ("expand where", "f32[n,1,h]"),
        ("bounded", "f32[n,3,h,min(7, w)]"),
        ("gathered", "f32[n,3*h*w]"),
        ("numbered", "f32[h]"),
    ],
)
def test_the_shape_of_a_result_is_a_formula(name, text):
    assert str(opened(CASES[name]).graph.outputs[0].type) == text


@pytest.mark.parametrize(
    ("name", "conditions"),
    [
        ("flatten", []),
        ("attention", []),
        ("convolution", ["w >= 4"]),
    ],
)
def test_what_a_graph_depends_on_is_told(name, conditions):
    assert opened(CASES[name]).conditions.texts() == conditions


def test_what_has_no_formula_is_the_graph_of_an_example():
    def refuse(graph):
        raise NotPolynomial("1 / n is not a polynomial")

    proto = CASES["flatten"]
    shapes = open_shapes(proto, {"x": (RANGES["n"], 3, RANGES["h"], RANGES["w"])}, {})
    found = load_open(Source(*read(proto)), shapes, change=refuse)

    assert found.varying() == set()
    assert found.conditions.hold_at(found.example)


@pytest.mark.parametrize(
    ("equation", "operands", "shape"),
    [
        ("ij,jk->ik", ["x", "table"], ("n", 3)),
        ("ij->i", ["x"], ("n", 3)),
        ("ij,ik->jk", ["x", "x"], ("n", 3)),
        ("...ij,jk", ["x", "table"], ("n", "h", 3)),
        ("bii->bi", ["x"], ("n", 3, 3)),
        ("ii->i", ["x"], ("n", "n")),
    ],
)
def test_an_einsum_is_for_one_row_too(equation, operands, shape):
    """A letter that all operands have with one size, or with a number, broadcasts at no size."""
    proto = made(node("Einsum", operands, ["y"], equation=equation), shape=shape)
    found = opened(proto)
    sizes = dict.fromkeys(found.shapes.dims, 1)
    x = {"x": RNG.standard_normal(found.shapes.at(sizes)["x"]).astype(np.float32)}

    assert found.conditions.texts() == []
    (actual,) = interpret(instance(found.graph, sizes), x)
    np.testing.assert_allclose(actual, np.einsum(equation, *({**LISTS, **x}[o] for o in operands)), rtol=1e-5)


def test_a_needed_multiple_is_told():
    assert opened(CASES["space to depth"]).conditions.texts()[:2] == ["h == 2*floor(h/2)", "w == 2*floor(w/2)"]


def test_a_multiple_that_was_declared_is_no_condition():
    even = {"n": Dim("n", 1, 9), "h": Dim("h", 2, 60, 2), "w": Dim("w", 4, 40, 4)}

    assert opened(CASES["space to depth"], even).conditions.texts() == []


def test_the_steps_of_a_recurrence_vary():
    proto = model(
        [node("LSTM", ["x", "w", "r"], ["y"], hidden_size=2)],
        [value("x", ["t", "n", 3])],
        ["y"],
        {"w": np.ones((1, 8, 3), np.float32), "r": np.ones((1, 8, 2), np.float32)},
    )
    found = load_open(Source(*read(proto)), open_shapes(proto, {"x": ("t", "n", 3)}, {}))

    assert found.varying() == {"t", "n"}


def test_where_there_is_no_formula_the_graph_is_that_of_an_example():
    proto = made(
        *of_shape(2),
        node("Cast", ["d2"], ["f"], to=TensorProto.FLOAT),
        node("Sqrt", ["f"], ["q"]),
        node("Cast", ["q"], ["k"], to=TensorProto.INT64),
        node("Slice", ["x", "zero", "k", "two"], ["y"]),
    )
    found = opened(proto)

    assert found.varying() == set()
    assert found.conditions.texts() == [f"{name} == {size}" for name, size in found.example.items()]
    assert (
        found.graph.outputs[0].shape == load(proto, shapes={"x": found.shapes.at(found.example)["x"]}).outputs[0].shape
    )


def test_a_model_that_fits_no_sizes_is_an_error():
    with pytest.raises(ModelError, match=r"MatMul.*no sizes that were tried fit the model, such as 'n' 9, 'h' 60"):
        opened(made(node("MatMul", ["x", "x"], ["y"]), shape=("n", "h", 5)))
