"""Unreadable, invalid and hostile models raise an error of gpucomp's own: one line that names the place."""

import os

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import gpucomp
from gpucomp.errors import GpucompError, ModelError, ShapeError, UnsupportedError, UsageError
from gpucomp.frontend.onnx import check, load
from gpucomp.frontend.onnx.loader import declared_shapes
from gpucomp.ir.graph import Op
from gpucomp.ops.interpreter import interpret
from tests.onnx_builders import model, node, value

X = value("x")
RELU = node("Relu", ["x"], ["y"], name="act")


def refused(proto, error=ModelError, **arguments):
    """The message; it is one line."""
    with pytest.raises(error) as caught:
        load(proto, **arguments)
    text = str(caught.value)
    assert "\n" not in text
    assert text.isprintable()
    return text


# --- bytes


GOOD = model([RELU], [X]).SerializeToString()


def test_empty_bytes_are_refused():
    assert "is empty" in refused(b"")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_a_truncated_model_is_refused(share):
    refused(GOOD[: int(len(GOOD) * share)], GpucompError)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00" * 64,
        b"hello, this is text\n" * 20,
        b"\x89PNG\r\n\x1a\n" + bytes(range(256)),
        b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00}\x94.",
        b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x3a\x02" * 5000,
        np.random.default_rng(0).bytes(4096),
        TensorProto(name="t", data_type=1, dims=[1], float_data=[1]).SerializeToString(),
    ],
    ids=["zeros", "text", "png", "pickle", "length", "nesting", "random", "tensor"],
)
def test_foreign_bytes_are_refused(data):
    refused(data, GpucompError)


def test_a_missing_file_a_folder_and_a_pipe_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")

    assert "no such file" in refused(tmp_path / "none.onnx")
    assert "is a directory" in refused(tmp_path)
    assert "not a regular file" in refused(tmp_path / "pipe")
    assert "no file can have this name" in refused("a\0b")


def test_a_model_is_read_from_path_text_bytes_and_proto(tmp_path):
    (tmp_path / "m.onnx").write_bytes(GOOD)

    for source in (tmp_path / "m.onnx", str(tmp_path / "m.onnx"), GOOD, onnx.ModelProto.FromString(GOOD)):
        assert load(source).input_names == ("x",)


def test_names_that_are_no_text_are_refused():
    data = GOOD.replace(b"act", b"\xff\xfe\xfd")

    assert "UTF-8" in refused(data)


# --- graph


@pytest.mark.parametrize(
    ("version", "error"),
    [(0, ModelError), (-1, ModelError), (999, UnsupportedError), (1 << 62, UnsupportedError)],
)
def test_an_absurd_opset_is_refused(version, error):
    proto = model([RELU], [X])
    proto.opset_import[0].version = version

    assert "opset" in refused(proto, error)


def test_a_model_from_before_opsets_has_the_first_operators():
    proto = model([node("Relu", ["x"], ["y"], consumed_inputs=[1])], [X])
    del proto.opset_import[:]
    assert "imports no opset" in refused(proto, ModelError)
    proto.ir_version = 2

    assert load(proto).output_names == ("y",)


def test_a_model_without_opset_graph_or_output_is_refused():
    no_opset, no_graph, no_output = (model([RELU], [X]) for _ in range(3))
    del no_opset.opset_import[:]
    no_graph.ClearField("graph")
    del no_output.graph.output[:]

    assert "imports no opset" in refused(no_opset)
    assert "has no graph" in refused(no_graph)
    assert "no outputs" in refused(no_output)


def test_an_unsorted_graph_is_sorted_and_a_cycle_refused():
    nodes = [node("Relu", ["a"], ["y"], name="last"), node("Neg", ["x"], ["a"])]
    cycle = [node("Add", ["x", "b"], ["a"], name="one"), node("Relu", ["a"], ["b"]), node("Neg", ["x"], ["y"])]

    x = np.array([[1, -2, 3], [4, 5, -6]], np.float32)
    assert np.array_equal(interpret(load(model(nodes, [X])), {"x": x})[0], np.maximum(-x, 0))
    assert "cycle through node 'one'" in refused(model(cycle, [X]))
    assert "cycle through node 'self'" in refused(model([node("Relu", ["y"], ["y"], name="self")], [X]))


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        ([node("Relu", ["q"], ["y"], name="act")], "at node 'act': its input 'q' is not defined"),
        ([RELU, node("Neg", ["x"], ["y"])], "'y' is defined twice"),
        ([node("Neg", ["x"], ["x"]), RELU], "'x' is defined twice"),
        ([node("Relu", ["x"], ["z"])], "output 'y' is not computed"),
        ([node("Relu", ["x", "x"], ["y"], name="act")], "at node 'act': 1 inputs expected, 2 given"),
        ([node("Relu", [], ["y"], name="act")], "at node 'act': 1 inputs expected, 0 given"),
        ([node("Relu", ["x"], ["y", "z"], name="act")], "1 outputs expected, 2 given"),
        ([node("Add", ["", "x"], ["y"], name="sum")], "at node 'sum': input 0 is required"),
        ([node("Relu", ["x"], ["y"], name="act", alpha=1.0)], "unknown attribute 'alpha'"),
        ([node("Softmax", ["x"], ["y"], name="s", axis=1.5)], "'axis' of type INT expected, FLOAT found"),
        ([node("Softmax", ["x"], ["y"], name="s", axis=5)], "axis 5 is outside"),
        ([node("Concat", ["x"], ["y"], name="c")], "attribute 'axis' is required"),
        ([node("Upsample", ["x"], ["y"], name="u", scales=[1.0])], "does not exist in this opset"),
        ([node("Not", ["x"], ["y"], name="n")], "at node 'n': input 0 must not be of type f32"),
        ([node("MatMul", ["x", "x"], ["y"], name="m")], "at node 'm'"),
    ],
)
def test_an_invalid_node_is_refused_by_name(nodes, text):
    assert text in refused(model(nodes, [X]))


def test_operands_of_mixed_types_are_refused():
    proto = model([node("Add", ["x", "w"], ["y"], name="sum")], [X], weights={"w": np.zeros(3, np.int64)})

    assert "at node 'sum': input 1 is i64" in refused(proto)


def test_a_repeated_attribute_is_refused():
    twice = node("Softmax", ["x"], ["y"], axis=1)
    twice.attribute.append(helper.make_attribute("axis", 0))

    assert "'axis' is given twice" in refused(model([twice], [X]))


def test_duplicate_inputs_initialisers_and_outputs_are_refused():
    weight = helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])

    assert "'x' is declared twice" in refused(model([RELU], [X, X]))
    assert "defined twice" in refused(model([RELU], [X], weights=[weight, weight]))
    assert "'y' is listed twice" in refused(model([RELU], [X], ["y", "y"]))


def test_an_output_of_another_type_than_declared_is_refused():
    assert "declared as element type 7" in refused(model([RELU], [X], [value("y", None, TensorProto.INT64)]))


# --- tensors


def weight(**fields):
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2, 3])
    for name, content in fields.items():
        if isinstance(content, (list, tuple)):
            tensor.ClearField(name)
            getattr(tensor, name).extend(content)
        else:
            setattr(tensor, name, content)
    return model([node("Add", ["x", "w"], ["y"])], [X], weights=[tensor])


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"raw_data": b"\0" * 23}, "raw_data of 23 bytes, f32[2, 3] needs 24"),
        ({"raw_data": b"\0" * 25}, "raw_data of 25 bytes"),
        ({"raw_data": b""}, "raw_data of 0 bytes"),
        ({"float_data": [1.0] * 5}, "5 numbers in float_data, f32[2, 3] needs 6"),
        ({}, "0 numbers in float_data"),
        ({"int32_data": [1] * 6}, "f32 data belongs in float_data"),
        ({"float_data": [1.0] * 6, "raw_data": b"\0" * 24}, "more than one place"),
        ({"dims": [-1, 6]}, "is negative or too large"),
        ({"dims": [-4, -4]}, "is negative or too large"),
        ({"dims": [1 << 62, 4]}, "is negative or too large"),
        ({"dims": [1 << 32, 1 << 32]}, "is negative or too large"),
        ({"dims": [1] * 300}, "rank 300"),
        ({"data_type": 0}, "0 is not an element type"),
        ({"data_type": 999}, "999 is not an element type"),
        ({"data_type": -3}, "-3 is not an element type"),
        ({"data_type": TensorProto.UINT8, "int32_data": [0, 1, 2, 3, 4, 256]}, "does not fit in u8"),
        ({"data_type": TensorProto.INT4, "raw_data": b"\0\0"}, "raw_data of 2 bytes, i4[2, 3] needs 3"),
        ({"data_type": TensorProto.INT2, "raw_data": b"\0"}, "raw_data of 1 bytes, i2[2, 3] needs 2"),
        ({"data_type": TensorProto.UINT2, "int32_data": [0, 256]}, "2 numbers in int32_data, u2[2, 3] needs 6"),
        ({"data_type": TensorProto.FLOAT4E2M1, "raw_data": b"\0\0\0\0"}, "raw_data of 4 bytes, f4e2m1fn[2, 3] needs 3"),
    ],
)
def test_a_malformed_tensor_is_refused_by_name(fields, text):
    message = refused(weight(**fields))

    assert "'w'" in message
    assert text in message


@pytest.mark.parametrize("data_type", [TensorProto.COMPLEX64, TensorProto.COMPLEX128])
def test_tensors_of_other_elements_are_not_supported(data_type):
    assert "not supported" in refused(weight(data_type=data_type), UnsupportedError)


def test_a_segmented_tensor_is_refused():
    proto = weight(raw_data=b"\0" * 24)
    proto.graph.initializer[0].segment.begin = 0

    assert "segmented" in refused(proto)


# --- shapes, attributes, bombs


@pytest.mark.parametrize(
    ("nodes", "weights"),
    [
        ([node("Expand", ["x", "s"], ["y"], name="n")], {"s": np.array([1 << 62, 2, 3])}),
        ([node("Tile", ["x", "s"], ["y"], name="n")], {"s": np.array([1 << 62, 1])}),
        ([node("Reshape", ["x", "s"], ["y"], name="n")], {"s": np.array([1 << 62, 4])}),
        ([node("Reshape", ["x", "s"], ["y"], name="n")], {"s": np.array([-1, -1])}),
        ([node("Reshape", ["x", "s"], ["y"], name="n")], {"s": np.array([-1, 4])}),
        ([node("Pad", ["x", "s"], ["y"], name="n")], {"s": np.array([1 << 62, 0, 0, 0])}),
        (
            [node("Slice", ["x", "a", "b", "c", "z"], ["y"], name="n")],
            {k: np.array([v]) for k, v in (("a", 0), ("b", 1), ("c", 0), ("z", 0))},
        ),
        ([node("Gather", ["x", "i"], ["y"], name="n")], {"i": np.array([2])}),
        ([node("Gather", ["x", "i"], ["y"], name="n")], {"i": np.array([-3])}),
        ([node("GatherND", ["x", "i"], ["y"], name="n")], {"i": np.array([[0, 3]])}),
        (
            [node("ScatterND", ["x", "i", "u"], ["y"], name="n")],
            {"i": np.array([[9]]), "u": np.zeros((1, 3), np.float32)},
        ),
        ([node("Einsum", ["x"], ["y"], name="n", equation="i->j")], {}),
        ([node("Einsum", ["x"], ["y"], name="n", equation="ij,jk->ik")], {}),
        ([node("Unsqueeze", ["x", "a"], ["y"], name="n")], {"a": np.array([1 << 40])}),
        ([node("Split", ["x", "s"], ["y", "z"], name="n")], {"s": np.array([5, -3])}),
    ],
)
def test_an_impossible_node_is_refused_by_name(nodes, weights):
    assert "at node 'n'" in refused(model(nodes, [X], weights=weights))


@pytest.mark.parametrize(
    ("nodes", "weights"),
    [
        ([node("ConstantOfShape", ["s"], ["y"], name="n")], {"s": np.array([1 << 62])}),
        (
            [node("Range", ["a", "b", "c"], ["y"], name="n")],
            {"a": np.array(0), "b": np.array(1 << 62), "c": np.array(1)},
        ),
        (
            [node("OneHot", ["i", "d", "v"], ["y"], name="n")],
            {"i": np.array([1]), "d": np.array(1 << 62), "v": np.zeros(2, np.float32)},
        ),
    ],
)
def test_a_bomb_is_refused_before_memory_is_asked_for(nodes, weights):
    assert "at node 'n'" in refused(model(nodes, [X], weights=weights), GpucompError)


@pytest.mark.parametrize(
    "attributes",
    [
        {"strides": [0, 1]},
        {"strides": [1 << 62, 1]},
        {"dilations": [0, 1]},
        {"dilations": [1, 1 << 62]},
        {"group": 0},
        {"group": -1},
        {"group": 1 << 62},
        {"pads": [1 << 62] * 4},
        {"pads": [-1, 0, 0, 0]},
        {"pads": [0, 0]},
        {"kernel_shape": [1, 1]},
        {"auto_pad": "SOME"},
    ],
)
def test_a_convolution_with_absurd_attributes_is_refused(attributes):
    conv = node("Conv", ["x", "w"], ["y"], name="conv", **attributes)
    proto = model([conv], [value("x", (1, 3, 7, 5))], weights={"w": np.zeros((2, 3, 3, 2), np.float32)})

    assert "at node 'conv'" in refused(proto)


def test_a_dimension_of_two_to_the_62_is_refused():
    assert "'x'" in refused(model([RELU], [value("x", (1 << 62, 3))]), GpucompError)
    assert "dimension 0 is -5" in refused(model([RELU], [value("x", (-5, 3))]))


def test_rank_mismatches_of_constants_are_refused_not_crashed():
    nodes = [node("Slice", ["x", "a", "b"], ["y"], name="n")]

    assert "starts" in refused(model(nodes, [X], weights={"a": np.array([[0]]), "b": np.array([1])}))


# --- names


NAMES = [
    "*/",
    '"; system("true"); //',
    "a\n#include </etc/passwd>\n",
    "line\\\n",
    "??/",
    "{{7*7}}",
    "{% for x in y %}",
    "{{ ''.__class__.__mro__ }}",
    "%n%s",
    "$(touch PWNED)",
    "'; DROP TABLE models; --",
    "../../tmp/pwned",
    "\x1b[31mred\x1b[0m",
    "\u202eevil",
    "float",
    "__kernel",
    "x" * 100_000,
    " ",
]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_hostile_names_are_only_names(name):
    info = value(name)
    proto = model([node("Relu", [name], [f"{name}y"], name=name)], [info], [f"{name}y"])
    x = np.array([[1, -2, 3], [4, 5, -6]], np.float32)

    graph = load(proto)

    assert graph.input_names == (name,)
    assert np.array_equal(interpret(graph, {name: x})[0], np.maximum(x, 0))


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_hostile_names_are_escaped_and_cut_in_messages(name):
    proto = model([node("MatMul", [name, name], ["y"], name=name)], [value(name)])

    assert len(refused(proto)) < 1000
    assert len(refused(model([node(name, [name], ["y"], name=name)], [value(name)]), UnsupportedError)) < 1000
    assert len(refused(model([node("Relu", ["q" + name], ["y"], name=name)]))) < 1000


# --- unsupported


def test_all_unsupported_operators_are_reported_at_once_with_node_opset_and_type():
    nodes = [
        node("DictVectorizer", ["x"], ["p"], name="vectorise", domain="ai.onnx.ml"),
        node("Cast", ["p"], ["q"], to=TensorProto.FLOAT),
        node("Frobnicate", ["x"], ["r"], name="frob", domain="com.example"),
        node("NonZero", ["x"], ["s"], name="places"),
        node("Relu", ["x"], ["y"]),
    ]
    proto = model(
        nodes, [X, value("b", (8,), TensorProto.UINT8)], ["y", "q", "r", "s"], domains=["com.example", "ai.onnx.ml"]
    )

    with pytest.raises(UnsupportedError, match=r"vectorise.*\(and 2 more\)") as caught:
        load(proto)

    assert list(caught.value.problems) == [
        "ai.onnx.ml.DictVectorizer (opset 1) at node 'vectorise': no translation for this operator (f32)",
        "com.example.Frobnicate (opset 1) at node 'frob': unknown operator",
        "NonZero (opset 20) at node 'places': its operand must be known at compile time, but depends on the value of 'x'",
    ]
    assert check(proto) == (list(caught.value.problems[:2]), b"")  # NonZero is data-dependent: it runs later


def test_check_of_a_supported_model_is_empty():
    assert check(model([RELU], [X])) == ([], b"")


def test_a_domain_that_is_not_imported_is_refused():
    assert "imports no opset of domain 'com.example'" in refused(
        model([node("Relu", ["x"], ["y"], domain="com.example")], [X])
    )


def test_a_shape_computed_from_values_names_the_input_that_decides_it():
    nodes = [node("Reshape", ["x", "s"], ["y"], name="r")]
    proto = model(nodes, [X, value("s", (2,), TensorProto.INT64)])

    with pytest.raises(UnsupportedError, match="must be known at compile time, but depends on the value of 's'") as e:
        load(proto)

    assert e.value.inputs == ("s",)
    assert load(proto, constants={"s": np.array([3, 2])}).outputs[0].shape == (3, 2)
    with pytest.raises(ShapeError, match="at node 'r'"):
        load(proto, constants={"s": np.array([4, 2])})
    with pytest.raises(UsageError, match="i64 expected"):
        load(proto, constants={"s": np.array([3.0, 2.0])})


# --- shapes


def test_an_open_dimension_shows_the_argument_to_write():
    proto = model([RELU], [value("x", ("batch", 3, None))])

    text = refused(proto, UsageError)

    assert text.startswith(
        "GPC2102 give shapes={'x': (N, 3, N)} with a number for each N; for sizes that each run decides "
    )
    assert "shapes={'x': ('batch', 3, 'd2')}, or gpucomp.Dim for a name" in text
    assert text.endswith("does not say 'batch' (dimension 0 of input 'x'), dimension 2 of input 'x'")
    assert load(proto, shapes={"x": (5, 3, 7)}).outputs[0].shape == (5, 3, 7)


def test_every_input_with_an_open_dimension_is_named_at_once():
    add = node("Add", ["x", "z"], ["y"])
    proto = model([add], [value("x", ("n", 3)), value("z", (None, 3))])

    with pytest.raises(UsageError) as error:
        load(proto)

    told = "The model does not say 'n' (dimension 0 of input 'x'), dimension 0 of input 'z'"
    assert "shapes={'x': (N, 3), 'z': (N, 3)} with a number for each N;" in error.value.message
    assert "decides shapes={'x': ('n', 3)}, or" in error.value.message
    assert error.value.message.endswith(told)
    assert error.value.in_shell == (
        "give --shapes x:Nx3 --shapes z:Nx3 with a number for each N; for sizes that each run decides --shapes 'x:{n}x3' "
        f"(not for compare). {told}"
    )


def test_only_the_inputs_that_tell_all_names_are_asked_for():
    many = [value(f"feature_{k}" * 5, ("atoms", "graphs", "channels")[k % 3 :]) for k in range(60)]
    proto = model([node("Relu", [many[0].name], ["y"])], many)

    with pytest.raises(UsageError) as error:
        load(proto)

    first, atoms = many[0].name, "'atoms' (dimension 0 of input"
    assert error.value.in_shell.startswith(f"give --shapes {first}:NxNxN with a number for each N; for sizes that each")
    assert f"decides --shapes '{many[2].name}:{{channels}}' (not for" in error.value.in_shell
    assert error.value.message.count(atoms) == 1
    assert "and 59 more" in error.value.message  # places of 'channels'
    load(proto, shapes={first: (2, 3, 4)})


def test_a_name_that_cannot_be_written_is_replaced():
    assert "shapes={'x': ('d0', 3)}" in refused(model([RELU], [value("x", ("2*n + 1", 3))]), UsageError)


@pytest.mark.parametrize("given", [(None, 3), ("n", None), (2.5, 3)])
def test_what_is_no_size_is_told_with_what_may_stand_there(given):
    with pytest.raises(
        UsageError, match=r"GPC2110 .* names such as 'n' and gpucomp\.Dim for sizes that each run decides"
    ):
        gpucomp.compile(model([RELU], [value("x", ("n", 3))]), shapes={"x": given})


def test_dimensions_as_converters_from_paddle_write_them_are_open():
    proto = model([RELU], [value("x", (-1, 3, "?", "?"))])

    assert "shapes={'x': (N, 3, N, N)} with a number for each N; for sizes that each run decides" in refused(
        proto, UsageError
    )
    assert load(proto, shapes={"x": (5, 3, 7, 9)}).outputs[0].shape == (5, 3, 7, 9)
    assert declared_shapes(proto) == {"x": (None, 3, None, None)}


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        ({"x": (5, 4)}, "dimension 1 is 3 in the model, 4 was given"),
        ({"x": (5,)}, "2 dimensions expected, 5 given"),
        ({"x": (-5, 3)}, "negative"),
        ({"q": (5, 3)}, "no input 'q'; its inputs are: 'x', 'z'"),
        ({"x": (5, 3), "z": (7, 3)}, "dimension 'n' is 7 here and 5 in input 'x'"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(shapes, text):
    proto = model([node("Add", ["x", "z"], ["y"])], [value("x", ("n", 3)), value("z", ("n", 3))])

    assert text in refused(proto, UsageError, shapes=shapes)


def test_a_symbol_known_from_one_input_serves_the_others():
    proto = model([node("Add", ["x", "z"], ["y"])], [value("x", ("n", 3)), value("z", ("n", 3))])

    assert load(proto, shapes={"x": (5, 3)}).inputs[1].shape == (5, 3)


def test_an_input_without_shape_needs_one():
    proto = model([RELU], [value("x", None)])

    assert "shapes={'x': (D0, D1, ...)}" in refused(proto, UsageError)
    assert load(proto, shapes={"x": ()}).outputs[0].shape == ()


def translated_by(monkeypatch, translator):
    monkeypatch.setattr("gpucomp.frontend.onnx.importer.find_translator", lambda domain, op, opset: (translator, False))
    return load(model([RELU], [X]))


def claimed(x):
    assert x.shape == ()


def raised(error):
    def translator(x):
        raise error

    return translator


BUGS = {
    "a name of a module": lambda x: np.no_such_function(x),
    "a field of a value": lambda x: x.no_such_field,
    "a name": lambda x: no_such_name,  # noqa: F821
    "nothing": lambda x: None.shape,
    "a call": lambda x: len(x, x),
    "a key": lambda x: {}[x],
    "an index": lambda x: x.shape[7],
    "an assertion": claimed,
    "a contradiction": raised(RuntimeError("two roots")),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_in_a_translator_is_not_a_bad_model(monkeypatch, bug):
    with pytest.raises(GpucompError, match=r"Relu .* on \(f32\[2,3\]\): internal error, \w+Error: ") as caught:
        translated_by(monkeypatch, BUGS[bug])

    assert (type(caught.value), caught.value.code, caught.value.exit_code) == (GpucompError, "GPC1000", 1)
    assert "please report it" in caught.value.message


def test_a_bug_in_a_type_rule_is_not_a_bad_model(monkeypatch):
    broken = Op("Broken", lambda x: x.shape[7])

    with pytest.raises(GpucompError, match="internal error, IndexError") as caught:
        translated_by(monkeypatch, lambda x: broken(x))

    assert (caught.value.code, caught.value.exit_code) == ("GPC1000", 1)


@pytest.mark.parametrize("fault", [ValueError("no such axis"), ZeroDivisionError("a stride of 0")])
def test_what_does_not_fit_is_the_models_fault(monkeypatch, fault):
    with pytest.raises(ShapeError, match=str(fault)) as caught:
        translated_by(monkeypatch, raised(fault))

    assert (caught.value.code, caught.value.exit_code) == ("GPC3101", 3)


def test_an_attribute_that_a_translator_needs_is_the_models_fault(monkeypatch):
    with pytest.raises(ModelError, match="attribute 'no_such_argument' is required") as caught:
        translated_by(monkeypatch, lambda x, *, no_such_argument: x)

    assert caught.value.code == "GPC3014"
