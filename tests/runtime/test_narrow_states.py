"""States that a context keeps in 16 bits: rows are rounded as they are stored, and arithmetic stays f32."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import gpucomp
from bench.decoder_model import Sizes, decoder
from gpucomp import Dim, ops
from gpucomp.cli.compare import onnxruntime_session
from gpucomp.errors import InputError, UsageError
from gpucomp.ir.graph import Graph, input_value
from gpucomp.ir.state import State
from gpucomp.ir.types import F32, NAMED, TensorType
from gpucomp.ops.interpreter import interpret
from gpucomp.rewrite.states import with_states
from testing.cuda_on_cpu.whole_models import ModelOnCpu
from tests.onnx_builders import model, node, value
from tests.runtime.samples import close
from tests.runtime.test_states import table_of_past
from tests.runtime.test_updated_states import grouped, heads

SIZES = Sizes(heads=9, groups=3, size=10)
RNG = np.random.default_rng(13)
NAMES = [f"past_key_values.{n}.{kind}" for n in range(SIZES.layers) for kind in ("key", "value")]
PAST = Dim("past_sequence_length", 0, SIZES.positions)
SHAPES = {"input_ids": (1, "sequence_length"), **dict.fromkeys(NAMES, (1, SIZES.groups, PAST, SIZES.size))}
MODEL = decoder(SIZES)
TARGETS = ["cpu", "opencl"]
ROUNDED = {"fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}
KEPT = {"fp16": "f16", "bf16": "bf16"}


def rounding(proto, precision):
    """The model with new rows rounded before they are appended: an f32 model with the same arithmetic."""
    nodes = []
    for one in proto.graph.node:
        if one.op_type == "Concat" and one.input[0].startswith("past"):
            rows = one.input[1]
            nodes.append(node("Cast", [rows], [f"{rows}.narrow"], to=ROUNDED[precision]))
            nodes.append(node("Cast", [f"{rows}.narrow"], [f"{rows}.rounded"], to=TensorProto.FLOAT))
            one = onnx.NodeProto.FromString(one.SerializeToString())
            one.input[1] = f"{rows}.rounded"
        nodes.append(one)
    found = onnx.ModelProto.FromString(proto.SerializeToString())
    del found.graph.node[:]
    found.graph.node.extend(nodes)
    return found


def tokens(count):
    return {"input_ids": RNG.integers(0, SIZES.vocabulary, (1, count))}


@pytest.mark.parametrize("precision", ROUNDED)
@pytest.mark.parametrize("target", TARGETS)
def test_new_rows_are_rounded_and_nothing_else_is(target, precision):
    exe = gpucomp.compile(MODEL, target=target, shapes=SHAPES, states="auto", states_precision=precision)
    context, session = exe.context(), onnxruntime_session(rounding(MODEL, precision).SerializeToString())
    past = {name: np.zeros((1, SIZES.groups, 0, SIZES.size), np.float32) for name in NAMES}
    assert [(state.dtype, state.in_place, state.capacity) for state in exe.states] == [(KEPT[precision], True, 64)] * 4
    for count in (5, 1, 1, 7, 1, 2, 20, 1):
        feed = tokens(count)
        logits, *now = session.run(None, {**feed, **past})
        past = dict(zip(NAMES, now, strict=True))

        # a sum in another order can round a row to the next number of 16 bits
        error = np.abs(context.run(feed)["logits"] - logits).max() / np.abs(logits).max()
        assert error < (1e-3 if precision == "fp16" else 8e-3)
    saved = context.save()
    assert all(saved[name].dtype == NAMED[KEPT[precision]].numpy for name in NAMES)
    assert all(saved[name].shape == past[name].shape for name in NAMES)


def test_other_numbers_are_not_rounded():
    """Keys and values that 16 bits hold exactly give the bits of a model that keeps 32."""
    begun = {name: RNG.integers(-8, 9, (1, SIZES.groups, 41, SIZES.size)).astype(np.float32) / 4 for name in NAMES}
    wide, narrow = (
        gpucomp.compile(rounding(MODEL, "fp16"), shapes=SHAPES, states="auto"),
        gpucomp.compile(MODEL, shapes=SHAPES, states="auto", states_precision="fp16"),
    )
    contexts = [exe.context() for exe in (wide, narrow)]
    for context in contexts:
        context.restore(begun)
    feed = tokens(1)

    wanted, found = (context.run(feed)["logits"] for context in contexts)

    assert close(found, wanted)
    assert np.array_equal(*(context.save()[NAMES[0]].astype(np.float32)[:, :, :41] for context in contexts))


@pytest.mark.parametrize("target", TARGETS)
def test_a_buffer_that_a_scatter_updates_is_kept_in_16_bits(target):
    kept = {"old_k": "new_k", "old_v": "new_v"}
    shapes = dict.fromkeys(kept, (1, 2, 30, 16)) | {"q": (1, Dim("s", 1, 30), 96)}
    exe = gpucomp.compile(grouped(1, 30), target=target, shapes=shapes, states=kept, states_precision="fp16")
    context, session = exe.context(), onnxruntime_session(grouped(1, "p").SerializeToString())
    past = dict.fromkeys(kept, np.zeros((1, 2, 0, 16), np.float32))
    assert [(state.in_place, state.dtype) for state in exe.states] == [(True, "f16")] * 2
    rows = 0
    for count in (5, 1, 9, 1):
        rows += count
        feed = heads(1, count) | {"lengths": np.array([rows - 1], np.int32), "total": np.array([rows], np.int32)}
        feed |= {name: feed[name].astype(np.float16).astype(np.float32) for name in "kv"}  # what 16 bits hold
        wanted, *now = session.run(None, feed | past)
        past = dict(zip(kept, now, strict=True))

        assert close(context.run(feed)["y"], wanted)
    assert all(np.array_equal(context.save()[name][:, :, :rows], past[name].astype(np.float16)) for name in kept)


def test_states_that_are_no_f32_or_are_made_anew_keep_their_types():
    nodes = [
        node("Concat", ["old", "x"], ["new"], axis=0),
        node("Concat", ["old_ids", "ids"], ["new_ids"], axis=0),
        node("Add", ["h", "x_mean"], ["hn"]),
        node("ReduceMean", ["x", "zero"], ["x_mean"], keepdims=0),
        node("ReduceSum", ["new", "zero"], ["y"], keepdims=0),
    ]
    inputs = [value("x", ["s", 3]), value("ids", ["s"], TensorProto.INT64), value("h", [3])]
    inputs += [value("old", ["p", 3]), value("old_ids", ["p"], TensorProto.INT64)]
    graph = model(nodes, inputs, ["y", "new", "new_ids", "hn"], {"zero": np.array([0], np.int64)})
    shapes = {"x": ("s", 3), "old": (Dim("p", 0, 50), 3)}
    states = {"old": "new", "old_ids": "new_ids", "h": "hn"}

    exe = gpucomp.compile(graph, shapes=shapes, states=states, states_precision="bf16")

    assert {state.name: state.dtype for state in exe.states} == {"old": "bf16", "old_ids": "i64", "h": "f32"}
    context = exe.context()
    context.run({"x": np.full((2, 3), 1 + 2**-12, np.float32), "ids": np.array([5, 1 << 40])})
    found = context.run({"x": np.full((1, 3), 0.5, np.float32), "ids": np.array([7])})
    assert found["y"].tolist() == [2.5] * 3  # two rows of 1 and one of 0.5
    saved = context.save()
    assert saved["old_ids"].tolist() == [5, 1 << 40, 7]
    assert saved["h"].tolist() == [1.5 + 2**-12] * 3


def test_sums_in_a_state_stay_f32():
    graph = model(
        [node("ScatterElements", ["old", "at", "x"], ["new"], axis=0, reduction="add"), node("Neg", ["new"], ["y"])],
        [value("old", [9]), value("at", ["n"], TensorProto.INT64), value("x", ["n"])],
        ["y", "new"],
    )
    shapes = {"at": (Dim("n", 1, 9),), "x": (Dim("n", 1, 9),)}
    with pytest.raises(UsageError, match="'old': add would be computed in 16 bits"):
        gpucomp.compile(graph, shapes=shapes, states={"old": "new"}, states_precision="bf16")


def test_a_state_that_grows_by_other_rows_than_the_first_stays_f32():
    nodes = [
        node("Concat", ["old", "x"], ["new"], axis=0),
        node("Concat", ["other", "x", "x"], ["other_new"], axis=0),
        node("ReduceSum", ["new", "zero"], ["y"], keepdims=0),
    ]
    inputs = [value("x", ["s", 3]), value("old", ["p", 3]), value("other", ["p", 3])]
    graph = model(nodes, inputs, ["y", "new", "other_new"], {"zero": np.array([0], np.int64)})
    past = Dim("p", 0, 50)

    exe = gpucomp.compile(
        graph,
        shapes={"x": ("s", 3), "old": (past, 3), "other": (past, 3)},
        states={"old": "new", "other": "other_new"},
        states_precision="fp16",
    )

    assert [(state.dtype, state.in_place) for state in exe.states] == [("f16", True), ("f32", False)]


def test_a_result_that_is_no_store_is_rounded_as_a_whole():
    """As where no row is valid, and the graph has no Concat: what reads it gets what is kept."""
    past, x = input_value("old", TensorType(F32, (0, 3))), input_value("x", TensorType(F32, (2, 3)))
    new = ops.Neg(x)
    graph = Graph((x, past), (ops.Neg(new), new), ("y", "new"))
    rows = np.full((2, 3), 1 + 2**-12, np.float32)

    found = with_states(graph, [State("old", "new", 0, "p", 30, 2)], precision={"old": "bf16"})

    assert [value.type.dtype.name for value in (found.inputs[1], *found.outputs)] == ["bf16", "f32", "bf16"]
    y, kept = interpret(found, {"x": rows, "old": np.zeros((30, 3), NAMED["bf16"].numpy)})
    assert y.tolist() == [[1.0] * 3] * 2
    assert kept[:2].astype(np.float32).tolist() == [[-1.0] * 3] * 2


def test_sizes_that_the_program_is_not_for_keep_states_so_too():
    graph = table_of_past()
    exe = gpucomp.compile(
        graph,
        shapes={"x": (1, "s", 5), "old": (1, Dim("p", 0, 30), 5)},
        states={"old": "new"},
        states_precision="fp16",
    )
    context, session = exe.context(), onnxruntime_session(graph.SerializeToString())
    past = np.zeros((1, 0, 5), np.float32)
    for count in (3, 1, 2):
        x = RNG.integers(-40, 40, (1, count, 5)).astype(np.float32) / 8
        wanted, past = session.run(None, {"x": x, "old": past})

        assert close(context.run({"x": x})["y"], wanted)
    assert np.array_equal(context.save()["old"], past.astype(np.float16))


def test_f32_is_rounded_when_it_is_restored_and_other_types_are_refused():
    context = gpucomp.compile(MODEL, shapes=SHAPES, states="auto", states_precision="bf16").context()
    begun = {name: np.full((1, SIZES.groups, 2, SIZES.size), 1.01, np.float32) for name in NAMES}

    context.restore(begun)

    assert context.save()[NAMES[0]].astype(np.float32).max() == np.float32(1.0078125)
    with pytest.raises(InputError, match=r"bfloat16 of shape .* found float64") as error:
        context.restore({name: array.astype(np.float64) for name, array in begun.items()})
    assert error.value.code == "GPC2117"


def test_a_file_and_the_cache_of_models_know_how_states_are_kept(tmp_path):
    wide, narrow = (
        gpucomp.compile(MODEL, shapes=SHAPES, states="auto", states_precision=one) for one in ("fp32", "fp16")
    )
    assert (wide.states[0].dtype, narrow.states[0].dtype) == ("f32", "f16")
    narrow.save(tmp_path / "m.gpuc")

    loaded = gpucomp.load(tmp_path / "m.gpuc")

    assert loaded.states == narrow.states
    first, second, feed = narrow.context(), loaded.context(), tokens(6)
    assert np.array_equal(first.run(feed)["logits"], second.run(feed)["logits"])


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_cuda_kernels_store_rounded_rows(arch):
    exe = gpucomp.compile(MODEL, target=f"cuda:{arch}", shapes=SHAPES, states="auto", states_precision="fp16")
    session = onnxruntime_session(rounding(MODEL, "fp16").SerializeToString())
    past = {name: np.zeros((1, SIZES.groups, 0, SIZES.size), np.float32) for name in NAMES}
    held = {name: np.full((1, SIZES.groups, SIZES.positions, SIZES.size), 7, np.float16) for name in NAMES}
    like, rows = None, 0
    for count in (5, 1):
        feed = tokens(count)
        logits, *now = session.run(None, {**feed, **past})
        past = dict(zip(NAMES, now, strict=True))
        like = ModelOnCpu(exe.at(sequence_length=count, past_sequence_length=rows), like=like)

        assert np.abs(like.run(feed | held)["logits"] - logits).max() < 1e-3 * np.abs(logits).max()
        rows += count
    for name in NAMES:
        assert np.abs(held[name][:, :, :rows] - past[name]).max() < 2e-3 * np.abs(past[name]).max()
        assert (held[name][:, :, rows:] == 7).all()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"states": "auto", "states_precision": "int8"}, "states_precision 'int8': fp32, fp16, bf16 expected"),
        ({"states_precision": "fp16"}, "states_precision 'fp16': states expected as well"),
        ({"states": "auto", "states_precision": {NAMES[0]: "i8"}}, "the name of a precision expected, found"),
    ],
)
def test_a_precision_that_states_cannot_have(more, told):
    with pytest.raises(UsageError, match=told) as error:
        gpucomp.compile(MODEL, shapes=SHAPES, **more)
    assert error.value.code == "GPC2040"


def test_no_state_that_can_be_kept_so_is_an_error():
    graph = model([node("Add", ["x", "h"], ["hn"])], [value("x", [2, 7]), value("h", [2, 7])], ["hn"])

    with pytest.raises(
        UsageError, match=r"there are none \('h': it is made by Add, a scatter into the state expected\)"
    ):
        gpucomp.compile(graph, states={"h": "hn"}, states_precision="fp16")
