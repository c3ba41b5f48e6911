"""Loops and recurrences become ``Repeat``; what cannot is unrolled as before."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from gpucomp import ops
from gpucomp.errors import UnsupportedError
from gpucomp.frontend.onnx import load
from gpucomp.frontend.onnx.repeat import UNROLLED
from gpucomp.ir import verify
from gpucomp.ops.interpreter import interpret
from tests.onnx_builders import model, node, value

DATA = np.array([[1, -2, 3], [4, 5, -6]], np.float32)
X = value("x", (2, 3))
STEPS = UNROLLED + 2


def info(name):
    return onnx.ValueInfoProto(name=name)


def body(nodes, inputs=("i", "go", "v"), outputs=("more", "w", "row")):
    keep = [node("Identity", ["go"], ["more"])] if not any("more" in n.output for n in nodes) else []
    return helper.make_graph([*keep, *nodes], "body", [info(n) for n in inputs], [info(n) for n in outputs])


def loop(nodes, steps=STEPS, **given):
    made = node("Loop", ["n", "", "x"], ["y", "rows"], name="loop", body=body(nodes, **given))
    return load(model([made], [X], ["y", "rows"], weights={"n": np.array(steps)}))


def repeats(graph):
    return [n for n in graph.nodes() if n.op is ops.Repeat]


ADD = [node("Add", ["v", "x"], ["w"]), node("Neg", ["w"], ["row"])]


def test_a_loop_is_one_node_that_reads_what_is_outside():
    graph = loop(ADD)

    verify(graph)
    (found,) = repeats(graph)
    assert (found.attrs["count"], found.attrs["states"], found.attrs["scans"]) == (STEPS, 1, 0)
    y, rows = interpret(graph, {"x": DATA})
    np.testing.assert_array_equal(y, DATA * (STEPS + 1))
    np.testing.assert_array_equal(rows, np.stack([-DATA * (k + 2) for k in range(STEPS)]))


def test_the_number_of_the_step_is_scanned_only_if_it_is_read():
    nodes = [
        node("Cast", ["i"], ["k"], to=TensorProto.FLOAT),
        node("Add", ["v", "k"], ["w"]),
        node("Neg", ["k"], ["row"]),
    ]

    graph = loop(nodes)

    assert repeats(graph)[0].attrs["scans"] == 1
    y, rows = interpret(graph, {"x": DATA})
    np.testing.assert_array_equal(y, DATA + sum(range(STEPS)))
    np.testing.assert_array_equal(rows, [-k for k in range(STEPS)])


def test_a_state_that_no_step_changes_is_read_from_outside():
    made = node(
        "Loop",
        ["n", "", "x", "x"],
        ["y", "z"],
        body=body(
            [node("Add", ["v", "u"], ["w"]), node("Identity", ["u"], ["same"])],
            inputs=("i", "go", "v", "u"),
            outputs=("more", "w", "same"),
        ),
    )

    graph = load(model([made], [X], ["y", "z"], weights={"n": np.array(STEPS)}))

    assert repeats(graph)[0].attrs["states"] == 1
    y, z = interpret(graph, {"x": DATA})
    np.testing.assert_array_equal(y, DATA * (STEPS + 1))
    np.testing.assert_array_equal(z, DATA)


REFUSED = {
    "random numbers differ from step to step": [
        node("RandomNormalLike", ["v"], ["noise"], seed=1.0),
        node("Add", ["v", "noise"], ["w"]),
        node("Neg", ["w"], ["row"]),
    ],
    "a state that grows": [node("Concat", ["v", "x"], ["w"], axis=0), node("ReduceSum", ["x"], ["row"])],
    "a shape that depends on the step": [
        node("Add", ["v", "x"], ["w"]),
        node("Constant", [], ["zero"], value_ints=[0]),
        node("Constant", [], ["one"], value_ints=[1]),
        node("Unsqueeze", ["i", "zero"], ["k"]),
        node("Add", ["k", "one"], ["size"]),
        node("Slice", ["x", "zero", "one", "one"], ["part"]),
        node("Tile", ["one", "size"], ["many"]),
        node("ReduceSum", ["many"], ["row"]),
    ],
    "a condition that ends it": [
        node("Constant", [], ["two"], value_int=2),
        node("Less", ["i", "two"], ["more"]),
        *ADD,
    ],
}


@pytest.mark.parametrize("why", REFUSED)
def test_other_loops_are_unrolled(why):
    assert repeats(loop(REFUSED[why])) == []


def test_few_steps_are_unrolled():
    assert repeats(loop(ADD, steps=UNROLLED)) == []
    assert repeats(loop(ADD, steps=UNROLLED + 1))


def test_a_loop_in_a_loop_is_the_only_one():
    inner = node(
        "Loop", ["m", "", "v"], ["w"], body=body([node("Add", ["p", "x"], ["q"])], ("j", "on", "p"), ("more", "q"))
    )
    inner.attribute[0].g.node[0].input[0] = "on"
    outer = node("Loop", ["n", "", "x"], ["y", "rows"], body=body([inner, node("Neg", ["w"], ["row"])]))

    graph = load(model([outer], [X], ["y"], weights={"n": np.array(3), "m": np.array(5)}))

    assert [n.attrs["count"] for n in repeats(graph)] == [5] * 3
    np.testing.assert_array_equal(interpret(graph, {"x": DATA})[0], DATA * 16)


def test_too_many_steps_are_refused():
    weights = {"w": np.ones((1, 2, 3), np.float32), "r": np.ones((1, 2, 2), np.float32)}
    long = model([node("RNN", ["x", "w", "r"], ["y"], hidden_size=2)], [value("x", (1 << 31, 1, 3))], weights=weights)

    with pytest.raises(UnsupportedError, match="more than 2147483647 steps"):
        load(long)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_a_scan_takes_slices_along_any_axis_in_either_direction(axis, reverse):
    inner = helper.make_graph(
        [node("Add", ["s", "e"], ["t"]), node("Identity", ["t"], ["o"])],
        "b",
        [info("s"), info("e")],
        [info("t"), info("o")],
    )
    made = node(
        "Scan", ["h", "x"], ["y", "z"], body=inner, num_scan_inputs=1, scan_input_axes=[axis],
        scan_input_directions=[reverse], scan_output_axes=[axis], scan_output_directions=[reverse],
    )  # fmt: skip
    x = np.arange(42, dtype=np.float32).reshape(6, 7)
    h = np.ones(x.shape[1 - axis % 2], np.float32)

    graph = load(model([made], [value("h", h.shape), value("x", x.shape)], ["y", "z"], opset=16))

    assert repeats(graph)
    last, sums = interpret(graph, {"h": h, "x": x})
    ordered = np.flip(x, axis) if reverse else x
    expected = np.cumsum(ordered, axis) + np.expand_dims(h, axis)
    np.testing.assert_array_equal(last, np.take(expected, -1, axis))
    np.testing.assert_array_equal(sums, np.flip(expected, axis) if reverse else expected)


def test_expensive_loops_behind_shapes_that_depend_on_values_are_compiled():
    """The rows that are not zero, through a recurrence; two models of it differ in weights alone."""
    import gpucomp

    def found(scale):
        rng = np.random.default_rng(0)
        weights = {"w": scale * rng.standard_normal((1, 64, 16)), "r": scale * rng.standard_normal((1, 64, 16)) / 8}
        nodes = [
            node("NonZero", ["x"], ["at"]),
            node("Transpose", ["at"], ["rows"]),
            node("GatherND", ["x", "rows"], ["kept"]),
            node("Reshape", ["kept", "shape"], ["steps"]),
            node("LSTM", ["steps", "w", "r"], ["y"], hidden_size=16),
        ]
        arrays = {k: v.astype(np.float32) for k, v in weights.items()} | {"shape": np.array([-1, 1, 16])}
        return model(nodes, [value("x", (600, 16))], weights=arrays), weights

    x = np.random.default_rng(1).standard_normal((600, 16)).astype(np.float32)
    for scale in (0.1, 0.2):
        proto, weights = found(scale)
        exe = gpucomp.compile(proto, target="cpu")
        whole = model([node("LSTM", ["x", "w", "r"], ["y"], hidden_size=16)], [value("x", (600, 1, 16))],
                      weights={k: v.astype(np.float32) for k, v in weights.items()})  # fmt: skip
        (expected,) = interpret(load(whole), {"x": x[:, None]})
        for _ in range(3):
            np.testing.assert_allclose(exe.run({"x": x})["y"], expected, rtol=1e-4, atol=1e-5)
