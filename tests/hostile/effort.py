"""Small files that want much work of whoever reads them: what is cheap once, a thousand times, or for each of ten thousand."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.hostile.corpus import OK, compile_cpu, listed, run_cpu
from tests.hostile.functions import OPSET, calling
from tests.hostile.loops import body, graph, loop
from tests.hostile.shapes import f32, i64, one
from tests.onnx_builders import model, node, value

X = value("x")
ML = "ai.onnx.ml"
TEXT = TensorProto.STRING


def many(
    op: str,
    count: int,
    inputs: Sequence[str],
    outputs: Sequence[str] = ("p",),
    x: onnx.ValueInfoProto = X,
    weights: Any = (),
    domains: Sequence[str] = (),
    **attributes: Any,
) -> onnx.ModelProto:
    """``count`` equal nodes on the same operands, whose results nobody reads."""
    nodes = [
        node(op, list(inputs), [f"{o}{k}" for o in outputs], domain=domains[0] if domains else "", **attributes)
        for k in range(count)
    ]
    return model([*nodes, node("Neg", ["x"], ["y"])], [x], weights=weights, domains=domains)


def in_two(path: Any) -> None:
    """As ``compile`` reads it: what waits for values is left apart."""
    from gpucomp.frontend import onnx as frontend

    assert frontend.load_split(path)[1]


def text(letters: str) -> TensorProto:
    return helper.make_tensor("t", TEXT, [1], [letters.encode()])


def untaken(nodes: int) -> onnx.ModelProto:
    """A loop whose body chooses, each time, against a branch of so many nodes."""
    large = graph([*[node("Neg", ["s"], [f"q{k}"]) for k in range(nodes)], node("Neg", ["s"], ["r"])], [], ["r"])
    choice = node("If", ["k"], ["t"], then_branch=graph([node("Neg", ["s"], ["r"])], [], ["r"]), else_branch=large)
    found = loop(2000, body([choice]))
    found.graph.initializer.append(numpy_helper.from_array(np.array(True), "k"))
    return found


UNROLLED = "RandomNormalLike"  # as an operator of a body: every step is written out, as random numbers differ


def weighted(count: int, op: str = UNROLLED) -> onnx.ModelProto:
    """A loop whose body has so many weights of its own."""
    small = [helper.make_tensor(f"w{k}", TensorProto.FLOAT, [1], [1.0]) for k in range(count)]
    return loop(4096, body([node(op, ["s"], ["t"])], small))


def scanned(count: int) -> onnx.ModelProto:
    """A loop that collects so many results in every step."""
    inner = graph(
        [node("Identity", ["c"], ["d"]), node(UNROLLED, ["s"], ["t"])], ["i", "c", "s"], ["d", "t", *["c"] * count]
    )
    return loop(4096, inner)


def carried(count: int) -> onnx.ModelProto:
    names = [f"s{k}" for k in range(count)]
    nodes = [node("Identity", ["c"], ["d"]), node(UNROLLED, ["s0"], ["t"])]
    inner = graph(nodes, ["i", "c", *names], ["d", "t", *names[1:]])
    made = node("Loop", ["m", "", *["x"] * count], ["y"], name="loop", body=inner)
    return model([made], [X], weights={"m": np.array(4096)})


def wide_scan(count: int, op: str = UNROLLED) -> onnx.ModelProto:
    inner = graph([node(op, ["e0"], ["o"])], [f"e{k}" for k in range(count)], ["o"])
    made = node("Scan", ["x"] * count, ["y"], name="scan", body=inner, num_scan_inputs=count)
    return model([made], [value("x", (4096,))])


def listing(count: int) -> onnx.ModelProto:
    """A loop whose body reads a long list of an attribute in every step."""
    return loop(4096, body([node("Constant", [], ["q"], value_ints=range(count)), node(UNROLLED, ["s"], ["t"])]))


def indexed() -> onnx.ModelProto:
    """A loop that gathers by many constant indices, which are looked through before."""
    found = loop(2000, body([node("Gather", ["x", "j"], ["p"]), node("Neg", ["s"], ["t"])]))
    found.graph.initializer.append(numpy_helper.from_array(np.zeros(500_000, np.int64), "j"))
    return found


def calls(function: onnx.FunctionProto, count: int) -> onnx.ModelProto:
    names = ["x", *(f"v{k}" for k in range(count - 1)), "y"]
    nodes = [node("f0", [a], [b], domain="f") for a, b in itertools.pairwise(names)]
    return model(nodes, [X], functions=[function], domains=["f"])


def function(inputs: int = 0, opsets: int = 0, defaults: int = 0) -> onnx.FunctionProto:
    return helper.make_function(
        "f",
        "f0",
        ["a", *(f"i{k}" for k in range(inputs))],
        ["z"],
        [node("Neg", ["a"], ["z"])],
        [OPSET[0], *(helper.make_opsetid(f"d{k}", 1) for k in range(opsets))],
        attribute_protos=[helper.make_attribute(f"t{k}", 1) for k in range(defaults)],
    )


def referred(count: int) -> onnx.ModelProto:
    """A function that has a tensor of its caller in so many places: it may not be copied to each."""
    nodes = [node("Constant", [], [f"c{k}"], name=f"n{k}") for k in range(count)]
    for made in nodes:
        made.attribute.add(name="value", ref_attr_name="v", type=onnx.AttributeProto.TENSOR)
    whole = helper.make_function(
        "f", "f0", ["a"], ["z"], [*nodes, node("Add", ["a", "c0"], ["z"])], OPSET, attributes=["v"]
    )
    return calling([whole], v=numpy_helper.from_array(np.ones((500, 500, 2, 3), np.float32)))


def asked(chain: int, times: int) -> onnx.ModelProto:
    """Shapes that depend on the end of a long chain: what it depends on is told for each."""
    names = ["x", *(f"v{k}" for k in range(chain))]
    nodes = [node("Neg", [a], [b]) for a, b in itertools.pairwise(names)]
    nodes.append(node("Cast", [names[-1]], ["shape"], to=TensorProto.INT64))
    nodes += [node("Reshape", ["x", "shape"], [f"r{k}"], name=f"r{k}") for k in range(times)]
    return model(nodes, [value("x", (4,))], ["r0"])


def inserted(length: int, times: int) -> onnx.ModelProto:
    nodes = [node("SequenceInsert", ["s", "x"], [f"q{k}"]) for k in range(times)]
    return model(
        [node("SplitToSequence", ["x"], ["s"]), *nodes, node("SequenceAt", ["s", "k"], ["y"])],
        [value("x", (length,))],
        weights={"k": np.array(0)},
    )


def joined(length: int, times: int) -> onnx.ModelProto:
    nodes = [node("ConcatFromSequence", ["s"], [f"q{k}"], axis=0) for k in range(times)]
    return model(
        [node("SplitToSequence", ["x"], ["s"]), *nodes, node("SequenceAt", ["s", "k"], ["y"])],
        [value("x", (length,))],
        weights={"k": np.array(0)},
    )


def grams(columns: int, longest: int) -> onnx.ModelProto:
    """Grams of every length, with anything between their elements, looked for in a constant."""
    pool, begins = [], []
    for length in range(1, longest + 1):
        begins.append(len(pool))
        pool += [1] * length
    return model(
        [
            node(
                "TfIdfVectorizer",
                ["w"],
                ["y"],
                max_gram_length=longest,
                min_gram_length=1,
                max_skip_count=10**6,
                mode="TF",
                ngram_counts=begins,
                ngram_indexes=range(longest),
                pool_int64s=pool,
            )
        ],
        weights={"w": np.arange(columns)},
    )


def long_texts(count: int) -> onnx.ModelProto:
    """A text doubled until it is long, and then many others made of it."""
    names = ["t", *(f"d{k}" for k in range(25))]
    nodes = [node("StringConcat", [a, a], [b]) for a, b in itertools.pairwise(names)]
    nodes += [node("StringConcat", [names[-1], "t"], [f"q{k}"]) for k in range(count)]
    return model([*nodes, node("Neg", ["x"], ["y"])], [X], weights=[text("a")])


def patterns(count: int) -> onnx.ModelProto:
    nodes = [node("RegexFullMatch", ["t"], [f"m{k}"], pattern=f"(a{{99}}){{49}}{k}") for k in range(count)]
    return model([*nodes, node("Neg", ["x"], ["y"])], [X, value("t", (1,), TEXT)])


def sparse(count: int, elements: int) -> onnx.ModelProto:
    """So many weights of one number each that are large when they are made dense."""
    found = model([*[node("Exp", [f"p{k}"], [f"e{k}"]) for k in range(count)], node("Neg", ["x"], ["y"])], [X])
    for k in range(count):
        found.graph.sparse_initializer.append(
            helper.make_sparse_tensor(
                numpy_helper.from_array(f32(1), f"p{k}"), numpy_helper.from_array(i64(3), f"i{k}"), [elements]
            )
        )
    return found


def forest(targets: int) -> onnx.ModelProto:
    zeros = [0, 0]
    made = node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        name="n",
        domain=ML,
        n_targets=targets,
        nodes_treeids=[0, 1],
        nodes_nodeids=zeros,
        nodes_featureids=zeros,
        nodes_values=[1.0, 1.0],
        nodes_modes=["LEAF"] * 2,
        nodes_truenodeids=zeros,
        nodes_falsenodeids=zeros,
        target_treeids=[0],
        target_nodeids=[0],
        target_ids=[0],
        target_weights=[1.0],
    )
    return model([made], [X], domains=[ML])


def numbers(dtype: int, field: str, count: int) -> onnx.ModelProto:
    """A weight of so many numbers, of which each takes one byte in the file."""
    w = TensorProto(name="w", data_type=dtype, dims=[count])
    getattr(w, field).extend([1] * count)
    return model([node("Cast", ["w"], ["y"], to=TensorProto.DOUBLE)], weights=[w])


def packed(dtype: int, nbytes: int, a_byte: int) -> onnx.ModelProto:
    w = TensorProto(name="w", data_type=dtype, dims=[nbytes * a_byte], raw_data=bytes(nbytes))
    return model([node("Identity", ["w"], ["y"])], weights=[w], opset=25)


def of_rank(rank: int, *nodes: onnx.NodeProto, constant: bool = False) -> onnx.ModelProto:
    shape = (*[1] * (rank - 2), 2, 3)
    if constant:
        return model(nodes, weights={"x": np.ones(shape, np.float32)})
    return model(nodes, [value("x", shape)])


def regions_of_bins(bins: int, mode: str) -> onnx.ModelProto:
    """All of it constant; as many samples as the region's size asks for."""
    made = node("RoiAlign", ["x", "r", "b"], ["y"], output_height=bins, output_width=1, sampling_ratio=0, mode=mode)
    region = np.array([[0, 0, 1, 16384]], np.float32)
    return model([made], weights={"x": np.ones((1, 1, 16384, 1), np.float32), "r": region, "b": i64(0)})


TOO_MUCH = "than are supported for a file of this size"
MADE = "constants would take"
listed("effort", [
    ("branch_not_taken_in_a_loop", OK, lambda: untaken(10_000)),
    ("body_of_many_weights", "GPC4006", lambda: weighted(5_000), TOO_MUCH),
    ("body_of_few_weights", OK, lambda: weighted(5)),
    ("body_of_many_weights_that_is_read_once", OK, lambda: weighted(5_000, "Neg")),
    ("body_of_many_slices_that_is_read_once", OK, lambda: wide_scan(2_000, "Neg")),
    ("body_of_many_results", "GPC4006", lambda: scanned(5_000), TOO_MUCH),
    ("body_of_many_states", "GPC4006", lambda: carried(3_000), TOO_MUCH),
    ("body_of_many_slices", "GPC4006", lambda: wide_scan(2_000), TOO_MUCH),
    ("body_of_a_long_list", "GPC4006", lambda: listing(100_000), TOO_MUCH),
    ("body_that_gathers_by_a_large_constant", OK, indexed),
    ("function_of_many_inputs", "GPC4006", lambda: calls(function(inputs=20_000), 2_000), TOO_MUCH),
    ("function_of_many_opsets", "GPC4006", lambda: calls(function(opsets=10_000), 2_000), TOO_MUCH),
    ("function_of_many_defaults", "GPC4006", lambda: calls(function(defaults=10_000), 2_000), TOO_MUCH),
    ("function_called_two_thousand_times", OK, lambda: calls(function(inputs=5, opsets=1, defaults=3), 2_000)),
    ("tensor_of_the_caller_in_many_places", OK, lambda: referred(2_000)),
    ("shapes_at_the_end_of_a_chain", OK, lambda: asked(10_000, 900), "", in_two),
    ("split_into_a_hundred_thousand", "GPC4006", lambda: model([
        node("Split", ["x"], [f"y{k}" for k in range(100_000)], axis=0, num_outputs=100_000)],
        [value("x", (100_000,))], ["y0"]), TOO_MUCH),
    ("split_into_a_thousand", OK, lambda: model([
        node("Split", ["x"], [f"y{k}" for k in range(1_000)], axis=0, num_outputs=1_000)], [value("x", (1_000,))], ["y0"])),
    ("sequences_of_a_million", "GPC4006", lambda: many("SplitToSequence", 300, ["x"], x=value("x", (4096,))), TOO_MUCH),
    ("sequences_that_differ_in_one", "GPC4006", lambda: inserted(4_000, 9_000), TOO_MUCH),
    ("sequences_joined_again_and_again", "GPC4006", lambda: joined(4_000, 2_000), TOO_MUCH),
    ("patterns_of_many_states", "GPC4006", lambda: patterns(300), TOO_MUCH),
    ("pattern_of_a_nested_set", OK, lambda: one("RegexFullMatch", value("x", (1,), TEXT), attributes={
        "pattern": "[[a]--b]"})()),
    ("grams_of_every_length", OK, lambda: grams(4_000, 60)),
    ("texts_of_a_long_one", OK, lambda: long_texts(40)),
    ("texts_taken_apart_again_and_again", "GPC4006", lambda: many(
        "StringSplit", 50, ["t"], ["a", "b"], weights=[text("ab " * 300_000)]), MADE),
    ("text_of_many_words", "GPC4001", lambda: many("StringSplit", 1, ["t"], ["a", "b"], weights=[text("ab " * 800_000)])),
    ("text_that_becomes_eighteen_times_as_long", "GPC4006", lambda: many(
        "StringNormalizer", 1, ["t"], weights=[text("\ufdfa" * 3_000_000)], case_change_action="UPPER"), TOO_MUCH),
    ("sparse_weights_of_gigabytes", "GPC4001", lambda: sparse(60, 10_000_000), "sparse tensors would take"),
    ("forest_of_2_30_targets", "GPC4001", lambda: forest(1 << 30), "'n'"),
    ("largest_of_a_constant_again_and_again", "GPC4006", lambda: many(
        "TopK", 2_000, ["w", "k"], ["v", "i"], weights={"k": i64(5), "w": np.arange(300_000, dtype=np.float32)}), MADE),
    ("largest_of_2_30", "GPC4001", lambda: one("TopK", value("x", (1 << 30,)), ["y", "i"], k=i64(1 << 30))()),
    ("transforms_again_and_again", "GPC4006", lambda: many("DFT", 3_000, ["x"], x=value("x", (1, 509, 1))), MADE),
    ("distinct_numbers_again_and_again", "GPC4006", lambda: many(
        "Unique", 3_000, ["w"], weights={"w": np.arange(100_000, dtype=np.float32)})),
    ("boxes_again_and_again", "GPC4006", lambda: many("NonMaxSuppression", 3_000, ["b", "s", "m"], weights={
        "m": i64(200), "b": np.random.default_rng(0).random((1, 2000, 4), np.float32),
        "s": np.random.default_rng(1).random((1, 1, 2000), np.float32)}), TOO_MUCH),
    ("region_of_a_million_bins", OK, lambda: regions_of_bins(1_000_000, "avg")),
    ("region_of_many_bins", OK, lambda: regions_of_bins(8_000_000, "avg")),
    ("region_of_many_greatest_samples", OK, lambda: regions_of_bins(100_000, "max")),
    ("regions_of_2_40_windows", "GPC4001", one("MaxRoiPool", value("x", (1, 1, 5, 7)), attributes={
        "pooled_shape": [1 << 40, 1]}, r=np.zeros((1, 5), np.float32)), "'n'"),
    ("grid_of_no_and_2_40_pixels", "GPC4001", one("AffineGrid", value("x", (1, 2, 3)), s=i64(1, 1, 0, 1 << 40)), "'n'"),
    ("bands_of_nothing", "GPC4001", one("MelWeightMatrix", None, b=np.array(2_500_000), d=np.array(1), r=np.array(8000),
                                        lo=np.array(0, np.float32), hi=np.array(4e3, np.float32))),
    ("numbers_of_a_byte_each", OK, lambda: numbers(TensorProto.INT64, "int64_data", 7_500_000)),
    ("too_many_numbers_of_a_byte_each", "GPC4006", lambda: numbers(TensorProto.INT64, "int64_data", 12_000_000), "of lists"),
    ("bytes_as_numbers", OK, lambda: numbers(TensorProto.INT8, "int32_data", 15_000_000)),
    ("quarters_of_bytes", OK, lambda: packed(TensorProto.INT2, 24 << 20, 4)),
    ("list_of_seven_million_floats", "GPC4006", lambda: one("Constant", None, attributes={
        "value_floats": np.zeros(7_000_000, np.float32)})(), "entries"),
    ("list_of_a_million_texts", OK, lambda: model([
        node("Constant", [], ["c"], value_strings=[b"ab"] * 1_000_000), node("Neg", ["x"], ["y"])], [X])),
    ("rank_33", "GPC3033", lambda: of_rank(33, node("Neg", ["x"], ["y"]))),
    ("rank_33_of_a_result", "GPC3102", lambda: model([
        node("Unsqueeze", ["x", "a"], ["y"], name="n")], [value("x", (1,) * 32)], weights={"a": i64(0)}), "'n'"),
])  # fmt: skip
SUMMED = [node("ReduceSum", ["x"], ["s"], keepdims=1), node("Add", ["x", "s"], ["y"])]
turned = partial(run_cpu, inputs={"x": np.ones((*[1] * 30, 2, 3), np.float32)}, expected={}, last={"y": 7})
listed(
    "effort",
    [
        ("rank_32_runs", OK, lambda: of_rank(32, *SUMMED), "", turned),
        (
            "rank_32_of_constants",
            OK,
            lambda: of_rank(32, *SUMMED, constant=True),
            "",
            partial(run_cpu, inputs={}, expected={}, last={"y": 7}),
        ),
        (
            "lstm_of_no_features",
            OK,
            lambda: model(
                [node("LSTM", ["x", "w", "r"], ["y"], hidden_size=0)],
                [value("x", (3, 1, 3))],
                weights={"w": np.zeros((1, 0, 3), np.float32), "r": np.zeros((1, 0, 0), np.float32)},
            ),
            "",
            compile_cpu,
        ),
    ],
)
