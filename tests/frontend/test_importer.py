"""Scopes, inlining, folding, unrolling, tensors of every type, and sizes that must not use Python's stack."""

import gc
import tracemalloc
from collections.abc import Sequence

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from gpucomp import config, ops
from gpucomp.errors import ModelError, UnsupportedError
from gpucomp.frontend.onnx import load
from gpucomp.frontend.onnx.functions import ADDED
from gpucomp.frontend.onnx.tensors import as_array
from gpucomp.frontend.onnx.translate import _TRANSLATORS, find_translator, signature_of, translates
from gpucomp.ir import Constant, constant_value, verify
from gpucomp.ops.interpreter import interpret
from tests.onnx_builders import model, node, value

X = value("x")
DATA = np.array([[1, -2, 3], [4, 5, -6]], np.float32)


def run(proto, feed=None, **arguments):
    graph = load(proto, **arguments)
    verify(graph)
    return interpret(graph, {"x": DATA} if feed is None else feed)


# --- the registry


def test_the_newest_translator_not_above_the_opset_is_used():
    def squeeze(opset):
        return find_translator("", "Squeeze", opset)[0].__name__

    assert squeeze(7) == squeeze(12) == "squeeze_attribute"
    assert squeeze(13) == squeeze(28) == "squeeze_axes"
    assert find_translator("", "Gelu", 19) is None


def test_a_translator_that_ends_goes_before_the_one_that_stays():
    def cast(opset):
        return find_translator("", "Cast", opset)[0].__name__

    assert cast(1) == cast(5) == "cast_by_name"
    assert cast(6) == cast(28) == "cast_to"


def test_an_operator_is_not_translated_twice_for_one_opset():
    with pytest.raises(ValueError, match="operator 'Relu' since 1 is translated twice"):
        translates("Relu")(lambda x: x)


def test_every_translator_is_of_an_operator_that_exists():
    newest = onnx.defs.onnx_opset_version()
    of_onnx = {schema.domain for schema in onnx.defs.get_all_schemas()}
    for (domain, op_type), versions in _TRANSLATORS.items():
        if domain not in of_onnx or (not domain and op_type in ADDED and versions[0].since == 1):
            continue
        for v in versions:
            last = min(v.until - 1, newest)
            assert any(signature_of(domain, op_type, k) for k in range(v.since, last + 1)), (op_type, v.since)


# --- opset variants


@pytest.mark.parametrize(
    ("opset", "nodes", "weights", "expected"),
    [
        (12, [node("Softmax", ["x"], ["y"], axis=0)], {}, np.exp(DATA) / np.exp(DATA).sum()),
        (13, [node("Softmax", ["x"], ["y"], axis=0)], {}, np.exp(DATA) / np.exp(DATA).sum(0)),
        (12, [node("Unsqueeze", ["x"], ["y"], axes=[0, 3])], {}, DATA[None, :, :, None]),
        (13, [node("Unsqueeze", ["x", "a"], ["y"])], {"a": np.array([0, -1])}, DATA[None, :, :, None]),
        (9, [node("Slice", ["x"], ["y"], starts=[-2], ends=[1000], axes=[1])], {}, DATA[:, -2:]),
        (
            10,
            [node("Slice", ["x", "a", "b", "c", "d"], ["y"])],
            {"a": np.array([9]), "b": np.array([-9]), "c": np.array([-1]), "d": np.array([-2])},
            DATA[:, ::-2],
        ),
        (
            10,
            [node("Pad", ["x"], ["y"], pads=[0, 1, 2, 0], value=5.0)],
            {},
            np.pad(DATA, ((0, 2), (1, 0)), constant_values=5),
        ),
        (
            18,
            [node("Pad", ["x", "p", "", "a"], ["y"], mode="edge")],
            {"p": np.array([1, 2]), "a": np.array([-1])},
            np.pad(DATA, ((0, 0), (1, 2)), mode="edge"),
        ),
        (6 + 1, [node("Clip", ["x"], ["y"], min=-1.0, max=3.0)], {}, DATA.clip(-1, 3)),
        (11, [node("Clip", ["x", "", "h"], ["y"])], {"h": np.array(3, np.float32)}, np.minimum(DATA, 3)),
        (11, [node("Split", ["x"], ["a", "y"], axis=1, split=[1, 2])], {}, DATA[:, 1:]),
        (13, [node("Split", ["x", "s"], ["a", "y"], axis=1)], {"s": np.array([1, 2])}, DATA[:, 1:]),
        (18, [node("Split", ["x"], ["a", "y"], axis=1, num_outputs=2)], {}, DATA[:, 2:]),
        (12, [node("ReduceSum", ["x"], ["y"], axes=[1], keepdims=0)], {}, DATA.sum(1)),
        (13, [node("ReduceSum", ["x", "a"], ["y"], keepdims=0)], {"a": np.array([1])}, DATA.sum(1)),
        (13, [node("ReduceSum", ["x", "a"], ["y"], noop_with_empty_axes=1)], {"a": np.zeros(0, np.int64)}, DATA),
        (17, [node("ReduceMax", ["x"], ["y"], axes=[0])], {}, DATA.max(0, keepdims=True)),
        (9, [node("TopK", ["x"], ["y", "i"], k=2)], None, None),
        (7, [node("Dropout", ["x"], ["y"], ratio=0.3)], {}, DATA),
        (12, [node("Dropout", ["x", "r"], ["y"])], {"r": np.array(0.3, np.float32)}, DATA),
        (8, [node("Upsample", ["x"], ["y"], scales=[1.0, 2.0])], {}, DATA.repeat(2, 1)),
        (9, [node("Upsample", ["x", "s"], ["y"])], {"s": np.array([2, 1], np.float32)}, DATA.repeat(2, 0)),
        (10, [node("Resize", ["x", "s"], ["y"])], {"s": np.array([2, 1], np.float32)}, DATA.repeat(2, 0)),
        (12, [node("Hardmax", ["x"], ["y"], axis=0)], {}, (np.arange(6) == 4).reshape(2, 3)),
        (13, [node("Hardmax", ["x"], ["y"], axis=0)], {}, DATA.max(0) == DATA),
        (14, [node("Trilu", ["x"], ["y"])], {}, np.triu(DATA)),
        (8, [node("Cast", ["x"], ["y"], to=TensorProto.INT32)], {}, DATA.astype(np.int32)),
        (
            7,
            [node("Gemm", ["x", "w", "b"], ["y"], alpha=2.0, beta=3.0, transB=1)],
            {"w": DATA, "b": DATA[0, :2]},
            2 * DATA @ DATA.T + 3 * DATA[0, :2],
        ),
    ],
)
def test_an_operator_means_what_its_opset_says(opset, nodes, weights, expected):
    if weights is None:  # TopK below opset 10
        weights, expected = {}, np.sort(DATA, axis=1)[:, :0:-1]

    y = run(model(nodes, [X], weights=weights, opset=opset))[0]

    assert y.shape == expected.shape
    np.testing.assert_allclose(y, expected, rtol=1e-6)


# --- tensors of every type


@pytest.mark.parametrize(
    ("dtype", "numbers"),
    [
        (np.float64, [1.5, -2, np.inf]),
        (np.float32, [1.5, -2, np.nan]),
        (np.float16, [1.5, -2, 65504]),
        (ml_dtypes.bfloat16, [1.5, -2, 3e38]),
        (np.int64, [-(1 << 63), 0, (1 << 63) - 1]),
        (np.int32, [-(1 << 31), 0, (1 << 31) - 1]),
        (np.int16, [-32768, 0, 32767]),
        (np.int8, [-128, 0, 127]),
        (np.uint64, [0, 5, (1 << 64) - 1]),
        (np.uint32, [0, 5, (1 << 32) - 1]),
        (np.uint16, [0, 5, 65535]),
        (np.uint8, [0, 5, 255]),
        (np.bool_, [True, False, True]),
        (ml_dtypes.float8_e4m3fn, [1.5, -2, 448]),
        (ml_dtypes.float8_e4m3fnuz, [1.5, -2, 240]),
        (ml_dtypes.float8_e5m2, [1.5, -2, 57344]),
        (ml_dtypes.float8_e5m2fnuz, [1.5, -2, 57344]),
        (ml_dtypes.int4, [-8, 7, -1]),
        (ml_dtypes.uint4, [15, 0, 8]),
        (ml_dtypes.int2, [-2, 1, -1]),
        (ml_dtypes.uint2, [3, 0, 2]),
        (ml_dtypes.float4_e2m1fn, [-6, 0.5, 1.5]),
        (ml_dtypes.float8_e8m0fnu, [2.0**-126, 1, 2.0**127]),
    ],
)
def test_an_initialiser_is_read_from_raw_bytes_and_from_numbers(dtype, numbers):
    array = np.array(numbers, dtype)
    raw = numpy_helper.from_array(array, "w")
    number = helper.make_tensor("w", raw.data_type, [3], array.astype(np.float64) if array.dtype.kind == "V" else array)
    assert raw.HasField("raw_data")
    assert not number.HasField("raw_data")

    for tensor in (raw, number):
        graph = load(model([node("Identity", ["w"], ["y"])], weights=[tensor], opset=25))
        read = constant_value(graph.outputs[0])

        assert read.dtype == array.dtype
        assert read.tobytes() == array.tobytes()


class Counted(int):
    """A number whose class counts its live instances, and their maximum."""

    there = most = 0

    def __init__(self, number: int) -> None:
        Counted.there += 1
        Counted.most = max(Counted.most, Counted.there)

    def __del__(self) -> None:
        Counted.there -= 1


class Listed(Sequence):
    """A list as in older versions of protobuf: each number becomes an object when it is read, not before."""

    def __len__(self) -> int:
        return 1009

    def __getitem__(self, at: int) -> int:
        if not 0 <= at < 1009:
            raise IndexError(at)
        return Counted(7 * at)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float32])
def test_a_list_that_is_no_array_is_read_without_all_of_its_numbers_as_objects(dtype):
    Counted.most = 0

    array = as_array(Listed(), dtype)

    np.testing.assert_array_equal(array, np.arange(0, 7063, 7, dtype=dtype), strict=True)
    assert 0 < Counted.most < 9


@pytest.mark.parametrize("listed", [[], (5, -3), np.array([4, 9, 1], np.uint8)])
def test_other_lists_and_arrays_are_read_as_they_are(listed):
    np.testing.assert_array_equal(as_array(listed, np.int64), np.array(listed, np.int64), strict=True)


@pytest.mark.parametrize("what", ["attribute", "operator", "domain"])
def test_a_name_that_a_model_makes_up_is_not_kept(what):
    def refused(letter: str) -> None:
        name = letter * (1 << 20)
        attributes = {name if what == "attribute" else "nodes_nodeids": range(17)}
        operator = name if what == "operator" else "TreeEnsembleRegressor"
        domain = name if what == "domain" else "ai.onnx.ml"
        proto = model([node(operator, ["x"], ["y"], domain=domain, **attributes)], [value("x")], domains=[domain])
        with pytest.raises((ModelError, UnsupportedError)):
            load(proto)

    refused("n")  # what a first call makes stays
    tracemalloc.start()
    try:
        refused("m")
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 1 << 19
    finally:
        tracemalloc.stop()


def test_raw_bools_other_than_0_and_1_are_true():
    tensor = TensorProto(name="w", data_type=TensorProto.BOOL, dims=[3], raw_data=b"\x00\x02\xff")

    read = constant_value(load(model([node("Identity", ["w"], ["y"])], weights=[tensor])).outputs[0])

    assert read.tobytes() == b"\x00\x01\x01"


def sparse(indices, values=(5.0, 7.0), dims=(2, 3)):
    return helper.make_sparse_tensor(
        helper.make_tensor("w", TensorProto.FLOAT, [len(values)], values),
        numpy_helper.from_array(np.array(indices, np.int64), "i"),
        dims,
    )


def sparse_model(tensor):
    proto = model([node("Identity", ["w"], ["y"])])
    proto.graph.sparse_initializer.append(tensor)
    return proto


@pytest.mark.parametrize("indices", [[1, 5], [[0, 1], [1, 2]]])
def test_a_sparse_initialiser_is_made_dense(indices):
    read = constant_value(load(sparse_model(sparse(indices))).outputs[0])

    assert read.tolist() == [[0, 5, 0], [0, 0, 7]]


@pytest.mark.parametrize("indices", [[1, 6], [-1, 2], [2, 1], [1, 1], [[0, 1], [2, 0]], [[0, 3], [1, 0]], [1, 2, 3]])
def test_a_sparse_initialiser_with_bad_indices_is_refused(indices):
    with pytest.raises(ModelError, match="'w'"):
        load(sparse_model(sparse(indices)))


def test_a_huge_sparse_initialiser_is_refused():
    with pytest.raises(UnsupportedError, match="too large to be made dense"):
        load(sparse_model(sparse([1, 2], dims=(1 << 30, 1 << 10))))


# --- inputs and outputs


def test_an_input_with_an_initialiser_is_a_constant_unless_given_a_shape():
    proto = model([node("Add", ["x", "w"], ["y"])], [X, value("w")], weights={"w": DATA})

    assert load(proto).input_names == ("x",)
    assert load(proto, shapes={"w": (2, 3)}).input_names == ("x", "w")
    assert np.array_equal(run(proto)[0], 2 * DATA)


def test_unused_inputs_stay_and_outputs_may_be_inputs_constants_and_each_other():
    nodes = [node("Relu", ["x"], ["a"]), node("Identity", ["a"], ["b"])]
    proto = model(nodes, [X, value("unused", (7,))], ["a", "b", "x", "w"], weights={"w": DATA[0]})

    graph = load(proto)
    results = interpret(graph, {"x": DATA, "unused": np.zeros(7, np.float32)})

    assert graph.input_names == ("x", "unused")
    assert graph.output_names == ("a", "b", "x", "w")
    for actual, expected in zip(results, [np.maximum(DATA, 0)] * 2 + [DATA, DATA[0]], strict=True):
        assert np.array_equal(actual, expected)


# --- folding


def test_shape_arithmetic_folds_away():
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Unsqueeze", ["n", "zero1"], ["n1"]),
        node("Concat", ["n1", "rest"], ["target"], axis=0),
        node("Reshape", ["x", "target"], ["y"]),
    ]
    weights = {"zero": np.array(0), "zero1": np.array([0]), "rest": np.array([-1, 1])}

    graph = load(model(nodes, [X], weights=weights))

    assert graph.outputs[0].shape == (2, 3, 1)
    assert [n.op for n in graph.nodes() if n.op is not Constant] == [graph.inputs[0].op, ops.Reshape]


def test_a_fold_above_the_limit_stays_a_node():
    proto = model([node("Expand", ["w", "s"], ["y"])], weights={"w": DATA, "s": np.array([50, 2, 3])})

    with config.using(fold_limit=1199):
        assert load(proto).outputs[0].op is ops.Expand
    with config.using(fold_limit=1200):
        assert load(proto).outputs[0].op is Constant


def test_a_constant_that_meets_no_input_folds_though_its_node_has_one():
    proto = model([node("CastLike", ["w", "x"], ["y"])], [X], weights={"w": np.array([1, 2])})

    assert load(proto).outputs[0].op is Constant


# --- functions


def function(name, inputs, outputs, nodes, attributes=(), defaults=(), opset=20):
    return helper.make_function(
        "local",
        name,
        inputs,
        outputs,
        nodes,
        [helper.make_opsetid("", opset), helper.make_opsetid("local", 1)],
        list(attributes),
        list(defaults),
    )


def call(name, inputs, outputs, **attributes):
    return node(name, inputs, outputs, domain="local", name=f"call {name}", **attributes)


def test_local_functions_are_inlined_with_attributes_defaults_and_absent_inputs():
    leaky = node("LeakyRelu", ["a"], ["b"])
    leaky.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT))
    clip = node("Clip", ["b", "low", "high"], ["c"])
    made = function("F", ["a", "low", "high"], ["c"], [leaky, clip], defaults=[helper.make_attribute("slope", 0.5)])
    high = np.array(3, np.float32)

    def result(**attributes):
        nodes = [call("F", ["x", "", "h"], ["y"], **attributes)]
        return run(model(nodes, [X], weights={"h": high}, functions=[made], domains=["local"]))[0]

    assert np.array_equal(result(), np.minimum(np.where(DATA < 0, DATA * 0.5, DATA), 3))
    assert np.array_equal(result(slope=0.25), np.minimum(np.where(DATA < 0, DATA * 0.25, DATA), 3))
    with pytest.raises(ModelError, match=r"call F.*unknown attribute 'q'"):
        result(q=1.0)


def test_a_functions_names_are_its_own():
    made = function("F", ["x"], ["t"], [node("Neg", ["x"], ["t"], name="inner")])
    nodes = [node("Relu", ["x"], ["t"]), call("F", ["t"], ["u"]), node("Add", ["t", "u"], ["y"])]

    graph = load(model(nodes, [X], functions=[made], domains=["local"]))

    assert np.array_equal(interpret(graph, {"x": DATA})[0], np.zeros_like(DATA))
    assert "call F/inner" in {n.name for n in graph.nodes()}


def test_a_function_sees_no_names_around_it():
    made = function("F", ["a"], ["b"], [node("Add", ["a", "x"], ["b"], name="inner")])

    with pytest.raises(ModelError, match="at node 'call F/inner': its input 'x' is not defined"):
        load(model([call("F", ["x"], ["y"])], [X], functions=[made], domains=["local"]))


def test_nested_functions_are_inlined_a_hundred_deep_and_no_deeper():
    def nested(depth):
        chain = [function("F0", ["a"], ["b"], [node("Neg", ["a"], ["b"])])]
        chain += [function(f"F{k}", ["a"], ["b"], [call(f"F{k - 1}", ["a"], ["b"])]) for k in range(1, depth)]
        return model([call(f"F{depth - 1}", ["x"], ["y"])], [X], functions=chain, domains=["local"])

    assert np.array_equal(run(nested(100))[0], -DATA)
    with pytest.raises(UnsupportedError, match="101 deep"):
        load(nested(101))


def test_recursive_functions_are_refused():
    direct = function("F", ["a"], ["b"], [call("F", ["a"], ["b"])])
    mutual = [
        function("F", ["a"], ["b"], [call("G", ["a"], ["b"])]),
        function("G", ["a"], ["b"], [call("F", ["a"], ["b"])]),
    ]

    for functions in ([direct], mutual):
        with pytest.raises(ModelError, match="calls itself"):
            load(model([call("F", ["x"], ["y"])], [X], functions=functions, domains=["local"]))


def test_a_billion_laughs_are_refused_before_any_is_inlined():
    chain = [function("F0", ["a"], ["b"], [node("Neg", ["a"], ["b"])])]
    for k in range(1, 41):
        chain.append(
            function(f"F{k}", ["a"], ["c"], [call(f"F{k - 1}", ["a"], ["b"]), call(f"F{k - 1}", ["b"], ["c"])])
        )

    with pytest.raises(UnsupportedError, match="at most 20328 nodes"):
        load(model([call("F40", ["x"], ["y"])], [X], functions=chain, domains=["local"]))


def test_operators_with_a_body_in_the_standard_are_inlined():
    y = run(model([node("MeanVarianceNormalization", ["x"], ["y"], axes=[1])], [X]))[0]

    centred = DATA - DATA.mean(1, keepdims=True)
    np.testing.assert_allclose(y, centred / np.sqrt((centred**2).mean(1, keepdims=True)), rtol=1e-5)


# --- control flow


def branch(name, output="o"):
    return helper.make_graph([node(name, ["x"], [output])], name, [], [onnx.ValueInfoProto(name=output)])


def test_a_constant_condition_takes_its_branch():
    choice = node("If", ["c"], ["y"], then_branch=branch("Relu"), else_branch=branch("Neg"))

    for condition, expected in ((True, np.maximum(DATA, 0)), (False, -DATA)):
        graph = load(model([choice], [X], weights={"c": np.array(condition)}))
        assert np.array_equal(interpret(graph, {"x": DATA})[0], expected)
        assert len(graph.nodes()) == 2


def test_a_computed_condition_chooses_between_both_branches():
    choice = node("If", ["c"], ["y"], then_branch=branch("Relu"), else_branch=branch("Neg"))
    proto = model([choice], [X, value("c", (), TensorProto.BOOL)])

    assert np.array_equal(run(proto, {"x": DATA, "c": np.array(True)})[0], np.maximum(DATA, 0))
    assert np.array_equal(run(proto, {"x": DATA, "c": np.array(False)})[0], -DATA)


def test_branches_of_different_type_need_a_constant_condition():
    choice = node("If", ["c"], ["y"], name="choice", then_branch=branch("Relu"), else_branch=branch("Shape"))

    with pytest.raises(UnsupportedError, match=r"at node 'choice'.*computed at run time"):
        load(model([choice], [X, value("c", (), TensorProto.BOOL)]))


def loop_body(condition="go", step="Neg"):
    nodes = [node("Identity", ["go"], ["more"]), node(step, ["v"], ["w"]), node("Identity", ["w"], ["row"])]
    if condition == "i<2":
        nodes[0] = node("Less", ["i", "two"], ["more"])
    inputs = [value("i", (), TensorProto.INT64), value("go", (), TensorProto.BOOL), value("v")]
    weights = [numpy_helper.from_array(np.array(2), "two")]
    return helper.make_graph(
        nodes, "body", inputs, [onnx.ValueInfoProto(name=n) for n in ("more", "w", "row")], weights
    )


def test_a_loop_of_constant_length_is_unrolled():
    loop = node("Loop", ["n", "", "x"], ["y", "rows"], body=loop_body())

    y, rows = run(model([loop], [X], ["y", "rows"], weights={"n": np.array(3)}))

    assert np.array_equal(y, -DATA)
    assert np.array_equal(rows, np.stack([-DATA, DATA, -DATA]))


def test_a_loop_ends_when_its_constant_condition_does():
    loop = node("Loop", ["", "", "x"], ["y", "rows"], body=loop_body("i<2"))

    assert run(model([loop], [X], ["rows"]))[0].shape == (3, 2, 3)


def test_a_loop_without_end_is_refused():
    for inputs in (["n", "", "x"], ["", "", "x"]):
        loop = node("Loop", inputs, ["y"], name="spin", body=loop_body())
        with pytest.raises(UnsupportedError, match=r"at node 'spin'.*more than 4096 steps"):
            load(model([loop], [X], weights={"n": np.array(1 << 62)}))


def test_a_loop_of_computed_length_is_refused():
    loop = node("Loop", ["n", "", "x"], ["y"], name="spin", body=loop_body())

    with pytest.raises(UnsupportedError, match="trip count must be known at compile time"):
        load(model([loop], [X, value("n", (), TensorProto.INT64)]))


def test_a_doubling_loop_stops_at_the_limit_on_sizes():
    nodes = [node("Identity", ["go"], ["more"]), node("Concat", ["v", "v"], ["w"], axis=0)]
    inputs = [value("i", (), TensorProto.INT64), value("go", (), TensorProto.BOOL), value("v")]
    body = helper.make_graph(nodes, "body", inputs, [onnx.ValueInfoProto(name=n) for n in ("more", "w")])

    with pytest.raises(UnsupportedError, match="larger than 16 GiB"):
        load(model([node("Loop", ["n", "", "x"], ["y"], body=body)], [X], weights={"n": np.array(100)}))


def test_ifs_nested_twenty_five_deep_are_translated():
    inner = branch("Relu", "o")
    for k in range(25):
        other = helper.make_graph([node("Identity", ["x"], ["q"])], "other", [], [onnx.ValueInfoProto(name="q")])
        outer = node("If", ["c"], [f"o{k}"], then_branch=inner, else_branch=other)
        inner = helper.make_graph([outer], f"g{k}", [], [onnx.ValueInfoProto(name=f"o{k}")])

    proto = model(
        [node("If", ["c"], ["y"], then_branch=inner, else_branch=branch("Neg"))], [X], weights={"c": np.array(True)}
    )

    assert np.array_equal(run(proto)[0], np.maximum(DATA, 0))


# --- sizes


def test_a_chain_of_twenty_thousand_nodes_loads_and_runs():
    nodes = [node("Neg", ["x" if k == 0 else f"v{k - 1}"], [f"v{k}"]) for k in range(20_000)]

    assert np.array_equal(run(model(nodes, [X], ["v19999"]))[0], DATA)


def test_a_sum_may_be_of_as_many_as_its_file_lists(monkeypatch):
    monkeypatch.setattr("gpucomp.frontend.onnx.functions.EFFORT", 0)
    nodes = [node("Sum", ["x"] * (50 + k), [f"y{k}"]) for k in range(50)]

    graph = load(model(nodes, [value("x", (3,))], [value("y49", (3,))]))

    assert sum(n.op is ops.Add for n in graph.nodes()) == 98


def test_a_concat_of_two_thousand_and_a_split_into_a_thousand_work():
    nodes = [
        node("Concat", ["x"] * 2000, ["wide"], axis=0),
        node("Split", ["wide"], [f"p{k}" for k in range(1000)], axis=0, num_outputs=1000),
        node("Sum", [f"p{k}" for k in range(1000)], ["y"]),
    ]

    assert np.array_equal(run(model(nodes, [X]))[0], 1000 * np.tile(DATA, (2, 1)))
