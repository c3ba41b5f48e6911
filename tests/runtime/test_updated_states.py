"""States that a scatter updates in the context's memory, at places that data says."""

import numpy as np
import pytest
from onnx import TensorProto

import gpucomp
from gpucomp import Dim
from gpucomp.cli.compare import onnxruntime_session
from tests.onnx_builders import model, node, value
from tests.runtime.samples import close

RNG = np.random.default_rng(11)
TARGETS = ["cpu", "opencl"]


def grouped(batch, positions):
    """GroupQueryAttention with keys and values in a buffer that has room for ``positions`` of them."""
    inputs = [value(name, [batch, "s", heads * 16]) for name, heads in (("q", 6), ("k", 2), ("v", 2))]
    inputs += [value(name, [batch, 2, positions, 16]) for name in ("old_k", "old_v")]
    inputs += [value("lengths", [batch], TensorProto.INT32), value("total", [1], TensorProto.INT32)]
    nodes = [
        node(
            "GroupQueryAttention",
            [info.name for info in inputs],
            ["y", "new_k", "new_v"],
            domain="com.microsoft",
            num_heads=6,
            kv_num_heads=2,
        )
    ]
    return model(nodes, inputs, ["y", "new_k", "new_v"], domains=["com.microsoft"])


def heads(batch, count):
    shapes = {"q": (batch, count, 96), "k": (batch, count, 32), "v": (batch, count, 32)}
    return {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize("target", TARGETS)
def test_grouped_attention_stores_its_keys_where_its_lengths_say(target):
    kept = {"old_k": "new_k", "old_v": "new_v"}
    shapes = dict.fromkeys(kept, (1, 2, 30, 16)) | {"q": (1, Dim("s", 1, 30), 96)}
    exe = gpucomp.compile(grouped(1, 30), target=target, shapes=shapes, states=kept)
    context, session = exe.context(), onnxruntime_session(grouped(1, "p").SerializeToString())
    past = dict.fromkeys(kept, np.zeros((1, 2, 0, 16), np.float32))
    assert [(state.in_place, state.axis) for state in exe.states] == [(True, -1)] * 2
    rows = 0
    for count in (5, 1, 1, 9, 1):
        rows += count
        feed = heads(1, count) | {"lengths": np.array([rows - 1], np.int32), "total": np.array([rows], np.int32)}
        wanted, *now = session.run(None, feed | past)
        past = dict(zip(kept, now, strict=True))

        assert close(context.run(feed)["y"], wanted)
    assert all(close(context.save()[name][:, :, :rows], past[name]) for name in kept)


def test_sentences_of_one_batch_have_lengths_of_their_own():
    kept = {"old_k": "new_k", "old_v": "new_v"}
    exe = gpucomp.compile(grouped(2, 30), shapes={"q": (2, 1, 96)}, states=kept)
    session = onnxruntime_session(grouped(1, "p").SerializeToString())
    begun = {name: RNG.standard_normal((2, 2, 30, 16)).astype(np.float32) for name in kept}
    context, feed = exe.context(), heads(2, 1)
    context.restore(begun)

    found = context.run(feed | {"lengths": np.array([7, 19], np.int32), "total": np.array([20], np.int32)})["y"]

    for number, valid in enumerate((7, 19)):
        past = {name: array[number : number + 1, :, :valid] for name, array in begun.items()}
        one = {name: array[number : number + 1] for name, array in feed.items()} | past
        lengths = {"lengths": np.array([valid], np.int32), "total": np.array([valid + 1], np.int32)}
        assert close(found[number : number + 1], session.run(None, one | lengths)[0])


def test_without_a_state_the_past_is_no_buffer():
    """The total is more than the past has room for, so the result is longer."""
    exe = gpucomp.compile(grouped(1, 5), shapes={"q": (1, 1, 96)})
    past = {name: RNG.standard_normal((1, 2, 5, 16)).astype(np.float32) for name in ("old_k", "old_v")}
    feed = heads(1, 1) | past | {"lengths": np.array([5], np.int32), "total": np.array([6], np.int32)}

    found = exe.run(feed)

    wanted = onnxruntime_session(grouped(1, "p").SerializeToString()).run(None, feed)
    assert found["new_k"].shape == (1, 2, 6, 16)
    assert all(close(found[name], w) for name, w in zip(("y", "new_k", "new_v"), wanted, strict=True))


@pytest.mark.parametrize("target", TARGETS)
def test_tensor_scatter_is_in_place(target):
    nodes = [
        node("TensorScatter", ["old", "x", "at"], ["new"], axis=1, mode="linear"),
        node("ReduceMax", ["new", "two"], ["y"], keepdims=0),
    ]
    inputs = [value("old", [2, 9, 5]), value("x", [2, "s", 5]), value("at", [2], TensorProto.INT64)]
    graph = model(nodes, inputs, ["y", "new"], {"two": np.array([2], np.int64)}, opset=24)
    exe = gpucomp.compile(graph, target=target, shapes={"x": (2, Dim("s", 1, 9), 5)}, states={"old": "new"})
    context, wanted = exe.context(), np.zeros((2, 9, 5), np.float32)
    assert exe.states[0].in_place
    for count, at in ((3, (0, 5)), (1, (8, 2)), (2, (4, 0))):
        x = RNG.standard_normal((2, count, 5)).astype(np.float32)
        for number, start in enumerate(at):
            wanted[number, start : start + count] = x[number]

        found = context.run({"x": x, "at": np.array(at, np.int64)})

        assert np.array_equal(found["y"], wanted.max(2))
        assert np.array_equal(context.save()["old"], wanted)


def test_an_output_that_is_no_more_than_a_state_s_result_is_returned():
    nodes = [node("ScatterElements", ["old", "at", "x"], ["new"], axis=0), node("Identity", ["new"], ["same"])]
    nodes.append(node("Mul", ["same", "unit"], ["y"]))
    inputs = [value("old", [9, 5]), value("at", [2, 5], TensorProto.INT64), value("x", [2, 5])]
    graph = model(nodes, inputs, ["y", "new"], {"unit": np.float32(1)})
    exe = gpucomp.compile(graph, states={"old": "new"})
    x = RNG.standard_normal((2, 5)).astype(np.float32)

    found = exe.context().run({"x": x, "at": np.array([[1] * 5, [7] * 5])})

    assert np.array_equal(found["y"][[1, 7]], x)
    assert found["y"].shape == (9, 5)


def test_a_prompt_of_several_sentences_has_no_past():
    """Lengths of some are less than those of all: where everything is new, nothing is before it."""
    kept = {"old_k": "new_k", "old_v": "new_v"}
    shapes = dict.fromkeys(kept, (2, 2, 30, 16)) | {"q": (2, Dim("s", 1, 30), 96)}
    exe = gpucomp.compile(grouped(2, 30), shapes=shapes, states=kept)
    feed = heads(2, 5) | {"lengths": np.array([4, 2], np.int32), "total": np.array([5], np.int32)}
    past = dict.fromkeys(kept, np.zeros((2, 2, 0, 16), np.float32))
    wanted = onnxruntime_session(grouped(2, "p").SerializeToString()).run(None, feed | past)[0]

    found = exe.context().run(feed)["y"]

    assert close(found[0], wanted[0])
    assert close(found[1, :3], wanted[1, :3])
