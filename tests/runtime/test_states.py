"""States in a context: a decoder's keys and values stay where they are from run to run."""

import json
import threading

import numpy as np
import pytest

import gpucomp
from bench.decoder_model import Sizes, decoder
from gpucomp import Dim
from gpucomp.artifact import manifest
from gpucomp.cli.compare import onnxruntime_session
from gpucomp.device import hip as device
from gpucomp.errors import ArtifactError, InputError, RunStoppedError, UsageError
from gpucomp.runtime import hip, hip_arrays
from gpucomp.runtime.stopping import Stop
from gpucomp.targets import amdgcn
from testing.cuda_on_cpu.harness import hip_compiler
from testing.cuda_on_cpu.whole_models import ModelOnCpu
from tests.c_runtime.gpus import EmulatedHip
from tests.onnx_builders import model, node, value
from tests.runtime.samples import close

SIZES = Sizes()
RNG = np.random.default_rng(11)
NAMES = [f"past_key_values.{n}.{kind}" for n in range(SIZES.layers) for kind in ("key", "value")]
PAST = Dim("past_sequence_length", 0, SIZES.positions)
BATCH = Dim("batch_size", 1, 4)
SHAPES = {"input_ids": (BATCH, "sequence_length"), **dict.fromkeys(NAMES, (BATCH, SIZES.groups, PAST, SIZES.size))}
MODEL = decoder(SIZES)
TARGETS = ["cpu", "opencl"]


def compiled(target="cpu", graph=MODEL, shapes=SHAPES, **more):
    return gpucomp.compile(graph, target=target, shapes=shapes, states="auto", **more)


HIP = pytest.param(
    "hip:gfx90a",
    marks=pytest.mark.skipif(
        amdgcn.compiler("hip") is None or amdgcn.linker() is None or hip_compiler() is None,
        reason="clang 18 or lld is not installed",
    ),
)


@pytest.fixture(scope="module", params=[*TARGETS, HIP])
def exe(request):
    made = compiled(request.param)
    with pytest.MonkeyPatch.context() as patch:
        if request.param.startswith("hip"):
            gpu = EmulatedHip(made.at(batch_size=1, sequence_length=1, past_sequence_length=0))
            for module in (hip_arrays, hip):
                patch.setattr(module, "shared", lambda: gpu.arrays)
            patch.setattr(device, "runtime", lambda: gpu.library)
        yield made


def tokens(count, batch=1):
    return {"input_ids": RNG.integers(0, SIZES.vocabulary, (batch, count))}


class Peer:
    """onnxruntime, which is given all keys and values in each run."""

    def __init__(self, batch=1):
        self.session = onnxruntime_session(MODEL.SerializeToString())
        self.past = {name: np.zeros((batch, SIZES.groups, 0, SIZES.size), np.float32) for name in NAMES}

    def run(self, feed):
        logits, *now = self.session.run(None, {**feed, **self.past})
        self.past = dict(zip(NAMES, now, strict=True))
        return logits


def test_a_decoder_goes_on_from_where_it_was(exe):
    context, peer = exe.context(), Peer(batch=2)
    for count in (5, 1, 1, 7, 1, 3, 20, 1):
        feed = tokens(count, 2)

        found = context.run(feed)

        assert found.keys() == {"logits"}
        assert close(found["logits"], peer.run(feed))
    assert context.rows == dict.fromkeys(NAMES, 39)
    saved = context.save()
    assert all(close(saved[name], peer.past[name]) and saved[name].shape == peer.past[name].shape for name in NAMES)


def test_states_are_told(exe):
    assert [spec.name for spec in exe.inputs] == ["input_ids"]
    assert [spec.name for spec in exe.outputs] == ["logits"]
    assert [state.name for state in exe.states] == NAMES
    assert all(state.in_place and state.capacity == SIZES.positions and state.axis == 2 for state in exe.states)


def test_a_run_stores_its_own_rows_and_touches_no_others():
    context = compiled().context()
    context.run(tokens(9))
    held = dict(context.states.arrays)
    before = {}
    for name, array in held.items():
        array[:, :, 9:] = 123.0  # behind the valid rows
        before[name] = array.copy()

    context.run(tokens(2))

    for name, array in context.states.arrays.items():
        assert array is held[name]
        changed = (array != before[name]).any((0, 1, 3))
        assert changed.tolist() == [9 <= row < 11 for row in range(SIZES.positions)]


def test_what_is_behind_the_valid_rows_is_not_read(exe):
    feeds = [tokens(4), tokens(1), tokens(3)]
    clean, other = exe.context(), exe.context()
    wanted = [clean.run(feed)["logits"] for feed in feeds]
    other.run(tokens(60))
    other.rewind(0)
    assert all(np.array_equal(other.run(feed)["logits"], w) for feed, w in zip(feeds, wanted, strict=True))


def test_contexts_are_apart(exe):
    feeds = [[tokens(n) for n in (3, 1, 1)] for _ in range(3)]
    wanted = []
    for own in feeds:
        context = exe.context()
        wanted.append([context.run(feed)["logits"] for feed in own])
    contexts, wrong = [exe.context() for _ in feeds], []

    def work(number):
        for feed, logits in zip(feeds[number], wanted[number], strict=True):
            if not np.array_equal(contexts[number].run(feed)["logits"], logits):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_context_begins_anew_after_reset(exe):
    context, feed = exe.context(), tokens(4)
    first = context.run(feed)["logits"]
    context.run(tokens(2))

    context.reset()

    assert context.rows == dict.fromkeys(NAMES, 0)
    assert context.save() == {}
    assert np.array_equal(context.run(feed)["logits"], first)


def test_saved_states_go_on_in_another_context(exe):
    context, feed = exe.context(), tokens(1)
    context.run(tokens(6))
    saved = context.save()
    wanted = context.run(feed)["logits"]
    other = exe.context()
    other.run(tokens(3))

    other.restore(saved)

    assert other.rows == dict.fromkeys(NAMES, 6)
    assert all(np.array_equal(other.save()[name], saved[name]) for name in NAMES)
    assert np.array_equal(other.run(feed)["logits"], wanted)
    other.restore({})
    assert other.rows == dict.fromkeys(NAMES, 0)


def test_rewind_forgets_the_last_rows(exe):
    context, feed = exe.context(), tokens(2)
    context.run(tokens(5))
    wanted = context.run(feed)["logits"]
    context.run(tokens(3))

    context.rewind(5)

    assert np.array_equal(context.run(feed)["logits"], wanted)
    for rows in (8, -1, True, 2.0):
        with pytest.raises(UsageError, match="rewind: 0 to 7 rows expected") as error:
            context.rewind(rows)
        assert error.value.code == "GPC2041"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda saved: saved | {"logits": 1}, "state 'logits': no state"),
        (lambda saved: {NAMES[0]: saved[NAMES[0]]}, "all states expected, this one is missing"),
        (lambda saved: saved | {NAMES[1]: saved[NAMES[1]].astype(np.float64)}, "float32 of shape .* found float64"),
        (lambda saved: saved | {NAMES[1]: saved[NAMES[1]][..., :3]}, r"found float32 of \[1, 2, 6, 3\]"),
        (
            lambda saved: saved | {NAMES[1]: np.zeros((1, 2, 65, 8), np.float32)},
            "at most so many along axis 2 expected",
        ),
    ],
)
def test_what_is_no_state_is_not_restored(change, told):
    context, feed = compiled().context(), tokens(1)
    context.run(tokens(6))
    saved = context.save()

    with pytest.raises(InputError, match=told) as error:
        context.restore(change(saved))

    assert error.value.code == "GPC2117"
    assert context.rows == dict.fromkeys(NAMES, 6)
    context.run(feed)


def test_states_of_other_lengths_do_not_fit_together():
    context = compiled().context()
    saved = {name: np.zeros((1, SIZES.groups, 6, SIZES.size), np.float32) for name in NAMES}
    context.restore(saved | {NAMES[2]: saved[NAMES[2]][:, :, :5]})

    with pytest.raises(InputError, match="'past_sequence_length' is 5, but 6 in dimension 2 of input") as error:
        context.run(tokens(1))
    assert error.value.code == "GPC2112"


def test_a_full_state_says_so_and_stays_as_it_was(exe):
    context = exe.context()
    context.run(tokens(SIZES.positions - 1))

    with pytest.raises(InputError, match="has room for 64 rows, 63 are in it and this run appends 2: ") as error:
        context.run(tokens(2))

    assert error.value.code == "GPC2118"
    context.run(tokens(1))
    assert context.rows[NAMES[0]] == 64


def test_another_batch_needs_a_reset(exe):
    context = exe.context()
    context.run(tokens(3, 2))

    with pytest.raises(InputError, match="'batch_size' is 2, but 1 in dimension 0 of input") as error:
        context.run(tokens(3, 1))

    assert error.value.code == "GPC2112"
    context.reset()
    assert context.run(tokens(3, 1))["logits"].shape == (1, 3, SIZES.vocabulary)


def test_a_stopped_run_leaves_the_states_as_they_were():
    exe = compiled()
    context, feed = exe.context(), tokens(2)
    context.run(tokens(5))
    saved, wanted = context.save(), context.run(feed)["logits"]
    context.rewind(5)

    class Late(Stop):
        """Ends the run behind its last kernel, before the results are handed out."""

        left = 2

        def check(self):
            self.left -= 1
            if not self.left:
                self.stop()
            super().check()

    with pytest.raises(RunStoppedError):
        context._run(tokens(2), {}, Late(), None)

    assert all(np.array_equal(context.save()[name], saved[name]) for name in NAMES)
    assert np.array_equal(context.run(feed)["logits"], wanted)


def test_a_model_with_states_runs_in_a_context():
    exe = compiled()
    with pytest.raises(UsageError, match=r"a context holds: context = exe.context\(\)") as error:
        exe.run(tokens(3))
    assert error.value.code == "GPC2041"


def test_a_state_is_no_input():
    context = compiled().context()
    with pytest.raises(InputError, match=f"input '{NAMES[0]}' is a state, which the context has") as error:
        context.run(tokens(3) | {NAMES[0]: np.zeros((1, 2, 0, 8), np.float32)})
    assert error.value.code == "GPC2117"


def test_a_file_keeps_what_it_says_of_states(tmp_path):
    exe = compiled()
    exe.save(tmp_path / "decoder.gpuc")

    loaded = gpucomp.load(tmp_path / "decoder.gpuc")

    assert loaded.states == exe.states
    first, second = exe.context(), loaded.context()
    for count in (4, 1, 1):
        feed = tokens(count)
        assert np.array_equal(first.run(feed)["logits"], second.run(feed)["logits"])


def test_results_can_go_into_arrays_of_the_caller(exe):
    context, feed = exe.context(), tokens(3)
    wanted = context.run(feed)["logits"]
    context.reset()
    array = np.zeros_like(wanted)

    found = context.run(feed, outputs={"logits": array})

    assert found["logits"] is array
    assert np.array_equal(array, wanted)


def test_profile_takes_states_to_begin_with():
    exe = compiled()
    context = exe.context()
    context.run(tokens(6))

    begun = exe.profile(tokens(1) | context.save())
    empty = exe.profile(tokens(1))

    assert len(begun) == len(empty) > 0


def table_of_past():
    """The program for any size is not for an empty state: rows of a table as many as there are rows."""
    nodes = [
        node("Concat", ["old", "x"], ["new"], axis=1),
        node("Shape", ["old"], ["shape"], start=1, end=2),
        node("Slice", ["table", "zero", "shape", "zero"], ["rows"]),
        node("ReduceSum", ["rows", "zero"], ["r"], keepdims=0),
        node("ReduceSum", ["new", "one"], ["n"], keepdims=0),
        node("Add", ["n", "r"], ["y"]),
    ]
    weights = {"table": RNG.standard_normal((30, 5)).astype(np.float32)}
    weights |= {"zero": np.array([0], np.int64), "one": np.array([1], np.int64)}
    inputs = [value("x", ["b", "s", 5]), value("old", ["b", "p", 5])]
    return model(nodes, inputs, ["y", "new"], weights)


def test_sizes_that_the_program_is_not_for_are_compiled_with_states():
    graph = table_of_past()
    exe = gpucomp.compile(graph, shapes={"x": (1, "s", 5), "old": (1, Dim("p", 0, 30), 5)}, states={"old": "new"})
    context, session = exe.context(), onnxruntime_session(graph.SerializeToString())
    past = np.zeros((1, 0, 5), np.float32)
    for count in (3, 1, 2):
        x = RNG.standard_normal((1, count, 5)).astype(np.float32)
        wanted, past = session.run(None, {"x": x, "old": past})

        assert close(context.run({"x": x})["y"], wanted)
    assert close(context.save()["old"], past)


def recurrent(batch="b"):
    """Two states of one size, and one that grows but not in place."""
    nodes = [
        node("Add", ["x", "h"], ["hn"]),
        node("Mul", ["hn", "c"], ["p"]),
        node("Tanh", ["p"], ["cn"]),
        node("Concat", ["x", "past"], ["present"], axis=0),
        node("ReduceMax", ["present", "zero"], ["m"], keepdims=1),
        node("Add", ["cn", "m"], ["y"]),
    ]
    inputs = [value("x", [batch, 7]), value("h", [batch, 7]), value("c", [batch, 7]), value("past", ["p", 7])]
    return model(nodes, inputs, ["y", "hn", "cn", "present"], {"zero": np.array([0], np.int64)})


@pytest.mark.parametrize("target", TARGETS)
def test_states_that_are_made_anew_take_turns(target):
    shapes = {"x": (2, 7), "h": (2, 7), "c": (2, 7), "past": (Dim("p", 0, 40), 7)}
    exe = gpucomp.compile(recurrent(), target=target, shapes=shapes, states="auto")
    context, session = exe.context(), onnxruntime_session(recurrent().SerializeToString())
    assert [state.in_place for state in exe.states] == [False] * 3
    held = {"h": np.zeros((2, 7), np.float32), "c": np.zeros((2, 7), np.float32), "past": np.zeros((0, 7), np.float32)}
    for _ in range(5):
        x = RNG.standard_normal((2, 7)).astype(np.float32)
        wanted, *now = session.run(None, {"x": x, **held})
        held = dict(zip(held, now, strict=True))

        assert close(context.run({"x": x})["y"], wanted)

    saved = context.save()
    assert all(close(saved[name], held[name]) for name in held)
    with pytest.raises(UsageError, match="rewind: state 'h' does not grow"):
        context.rewind(0)


@pytest.mark.parametrize("target", TARGETS)
def test_a_model_of_fixed_sizes_keeps_states(target):
    nodes = [node("Add", ["x", "h"], ["hn"]), node("Relu", ["hn"], ["y"])]
    graph = model(nodes, [value("x", [2, 7]), value("h", [2, 7])], ["y", "hn"])
    exe = gpucomp.compile(graph, target=target, states={"h": "hn"})
    context = exe.context()
    x, total = RNG.standard_normal((2, 7)).astype(np.float32), np.zeros((2, 7), np.float32)
    for _ in range(4):
        total = total + x
        assert close(context.run({"x": x})["y"], np.maximum(total, 0))
    context.restore({"h": np.full((2, 7), -9, np.float32)})
    assert close(context.run({"x": x})["y"], np.maximum(x - 9, 0))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_cuda_kernels_store_rows_in_the_state(arch):
    exe, peer = compiled(f"cuda:{arch}", shapes=SHAPES), Peer()
    shape = (1, SIZES.groups, SIZES.positions, SIZES.size)
    held = {name: np.full(shape, 7, np.float32) for name in NAMES}
    like, rows = None, 0

    for count in (5, 1, 3):
        feed = tokens(count)
        one = exe.at(batch_size=1, sequence_length=count, past_sequence_length=rows)
        like = ModelOnCpu(one, like=like)
        assert close(like.run(feed | held)["logits"], peer.run(feed))
        rows += count

    assert all(close(held[name][:, :, :rows], peer.past[name]) for name in NAMES)
    assert all((held[name][:, :, rows:] == 7).all() for name in NAMES)


def test_a_token_at_a_time_has_sizes_in_no_extent():
    """The kernel that stores one row has the number of valid rows in its index alone."""
    shapes = {"input_ids": (1, 1), **dict.fromkeys(NAMES, (1, SIZES.groups, PAST, SIZES.size))}
    contexts = [compiled(target, shapes=shapes).context() for target in TARGETS]
    peer = Peer()
    for _ in range(4):
        feed = tokens(1)
        wanted = peer.run(feed)
        assert all(close(context.run(feed)["logits"], wanted) for context in contexts)


def test_an_executable_for_one_size_has_no_state_that_grows():
    one = compiled().at(batch_size=1, sequence_length=1, past_sequence_length=5)

    with pytest.raises(UsageError, match="grows, and this executable is for one number of rows") as error:
        one.context().run(tokens(1))
    assert error.value.code == "GPC2041"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"input": "nothing"}, "no input 'nothing'"),
        ({"axis": 3}, "that is 64 long at axis 3"),
        ({"axis": 7}, "that is 64 long at axis 7"),
        ({"capacity": 65}, "that is 65 long at axis 2"),
        ({"axis": -1}, "an axis and the dimension that grows along it"),
        ({"dim": ""}, "an axis and the dimension that grows along it"),
        ({"output": "logits"}, "output 'logits', or a state in place"),
        ({"why": "of this"}, "output 'present.0.key', or a state in place"),
        ({"rows": -1}, "a whole number"),
        ({"axis": "2"}, "a whole number"),
    ],
)
def test_a_damaged_file_has_no_such_states(change, told):
    plan = compiled().at(batch_size=1, sequence_length=1, past_sequence_length=5).plan
    data = json.loads(manifest.dumps(manifest.data_of(plan)))
    assert manifest.plan_of(data).states == plan.states
    data["states"][0] |= change

    with pytest.raises(ArtifactError, match=told):
        manifest.plan_of(data)


def test_a_state_made_anew_may_have_the_dimension_that_another_grows_in_place():
    """Its two arrays have another shape in every run."""
    nodes = [
        node("Concat", ["k", "x"], ["k1"], axis=1),
        node("Concat", ["v", "x"], ["v1"], axis=1),
        node("ReduceSum", ["v", "one"], ["s"], keepdims=1),  # reads the state too
        node("ReduceSum", ["k1", "one"], ["t"], keepdims=1),
        node("Add", ["s", "t"], ["y"]),
    ]
    inputs = [value("x", [1, "n", 5]), value("k", [1, "p", 5]), value("v", [1, "p", 5])]
    graph = model(nodes, inputs, ["y", "k1", "v1"], {"one": np.array([1], np.int64)})
    kept = {"k": "k1", "v": "v1"}
    past = Dim("p", 1, 40)
    exe = gpucomp.compile(graph, shapes={"x": (1, "n", 5), "k": (1, past, 5), "v": (1, past, 5)}, states=kept)
    context, session = exe.context(), onnxruntime_session(graph.SerializeToString())
    assert [state.in_place for state in exe.states] == [True, False]
    held = {name: RNG.standard_normal((1, 2, 5)).astype(np.float32) for name in kept}
    context.restore(held)
    for count in (1, 1, 1, 3, 1):
        x = RNG.standard_normal((1, count, 5)).astype(np.float32)
        wanted, *now = session.run(None, {"x": x, **held})
        held = dict(zip(kept, now, strict=True))

        assert close(context.run({"x": x})["y"], wanted)
    assert all(close(context.save()[name], held[name]) for name in kept)


def test_an_input_that_has_the_growing_dimension_agrees_with_the_states():
    nodes = [
        node("Concat", ["k", "x"], ["k1"], axis=1),
        node("ReduceSum", ["k1", "one"], ["t"], keepdims=0),
        node("ReduceSum", ["mask", "one"], ["m"], keepdims=1),
        node("Add", ["m", "t"], ["y"]),
    ]
    inputs = [value("x", [1, "n", 5]), value("k", [1, "p", 5]), value("mask", [1, "p"])]
    graph = model(nodes, inputs, ["y", "k1"], {"one": np.array([1], np.int64)})
    shapes = {"x": (1, "n", 5), "k": (1, Dim("p", 0, 40), 5), "mask": (1, "p")}
    context = gpucomp.compile(graph, shapes=shapes, states={"k": "k1"}).context()
    x = np.ones((1, 3, 5), np.float32)
    context.restore({"k": np.ones((1, 2, 5), np.float32)})
    context.run({"x": x, "mask": np.ones((1, 2), np.float32)})

    with pytest.raises(InputError, match=r"'p' is [45]") as error:
        context.run({"x": x, "mask": np.ones((1, 4), np.float32)})
    assert error.value.code == "GPC2112"
    context.run({"x": x, "mask": np.ones((1, 5), np.float32)})
