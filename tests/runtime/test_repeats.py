"""Loops on devices: beside the operators' references, with any number of threads, saved and loaded, and timed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import helper

import gpucomp
from gpucomp import Dim, config
from gpucomp.artifact import manifest
from gpucomp.artifact.plan import Repeat
from gpucomp.errors import ArtifactError
from gpucomp.frontend.onnx import load
from gpucomp.frontend.onnx.repeat import UNROLLED
from gpucomp.ops.interpreter import interpret
from gpucomp.runtime import repeats
from gpucomp.runtime.cpu import CpuProgram
from gpucomp.runtime.kernel_info import kernels_of
from gpucomp.runtime.shared_buffers import share
from testing.cuda_on_cpu.whole_models import ModelOnCpu
from testing.tolerance import assert_matches
from tests.onnx_builders import model, node, value

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def recurrence(op, time, batch, hidden, direction="forward", *, lengths=False, states=True, inputs=5, **attributes):
    rng = np.random.default_rng(time + hidden)
    ways, gates = 2 if direction == "bidirectional" else 1, GATES[op]
    weights = {
        "w": rng.uniform(-0.5, 0.5, (ways, gates * hidden, inputs)),
        "r": rng.uniform(-0.5, 0.5, (ways, gates * hidden, hidden)),
        "b": rng.uniform(-0.5, 0.5, (ways, 2 * gates * hidden)),
    }
    feeds = {"x": rng.standard_normal((time, batch, inputs)).astype(np.float32)}
    infos = [value("x", (time, batch, inputs))]
    if lengths:
        weights["n"] = np.minimum(np.arange(batch) * 2 + 1, time).astype(np.int32)
    names = ["x", "w", "r", "b", "n" if lengths else ""]
    if states:
        names += ["h0", "c0"] if op == "LSTM" else ["h0"]
        for name in names[5:]:
            infos.append(value(name, (ways, batch, hidden)))
            feeds[name] = rng.standard_normal((ways, batch, hidden)).astype(np.float32)
    outputs = ["y", "h", "c"] if op == "LSTM" else ["y", "h"]
    made = node(op, names, outputs, hidden_size=hidden, direction=direction, **attributes)
    weights = {name: a.astype(np.float32) if name != "n" else a for name, a in weights.items()}
    return model([made], infos, outputs, weights=weights, opset=17), feeds


CASES = [
    ("LSTM", 131, 1, 7, "forward", {}),
    ("LSTM", 5, 3, 33, "bidirectional", {"lengths": True}),
    ("LSTM", 2, 1, 33, "reverse", {"states": False}),
    ("LSTM", 1, 3, 7, "bidirectional", {}),
    ("LSTM", 6, 1, 160, "bidirectional", {}),
    ("GRU", 5, 3, 7, "bidirectional", {"linear_before_reset": 1}),
    ("GRU", 5, 1, 33, "reverse", {"lengths": True}),
    ("RNN", 131, 3, 7, "bidirectional", {"activations": ["Relu", "Tanh"]}),
    ("RNN", 5, 1, 33, "forward", {"clip": 0.5}),
    ("RNN", 0, 1, 7, "forward", {}),
    ("LSTM", 5, 3, 33, "bidirectional", {"states": False}),
    ("GRU", 6, 2, 19, "reverse", {"states": False, "linear_before_reset": 1}),
    ("RNN", 7, 1, 33, "forward", {"states": False, "lengths": True}),
]


def checked(exe, proto, feeds):
    graph = load(proto)
    for name, wanted in zip(graph.output_names, interpret(graph, feeds), strict=True):
        assert_matches(exe.run(feeds)[name], wanted, terms=500)


@pytest.mark.parametrize("target", ["cpu", "opencl"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case[:5])))
def test_a_recurrence_gives_what_its_reference_does(target, case):
    op, time, batch, hidden, direction, more = case
    proto, feeds = recurrence(op, time, batch, hidden, direction, **more)

    exe = gpucomp.compile(proto, target=target)

    assert bool(exe.plan.repeats) == (time > UNROLLED)
    checked(exe, proto, feeds)


@pytest.mark.parametrize("states", [True, False])
def test_a_recurrence_in_cuda(states):
    proto, feeds = recurrence("LSTM", 5, 3, 9, "bidirectional", lengths=True, states=states)
    graph = load(proto)

    found = ModelOnCpu(gpucomp.compile(proto, target="cuda:sm_80")).run(feeds)

    for name, wanted in zip(graph.output_names, interpret(graph, feeds), strict=True):
        assert_matches(found[name], wanted, terms=500)


def test_a_recurrence_from_zeros_multiplies_nothing_in_its_first_step():
    proto, feeds = recurrence("LSTM", 9, 3, 33, "reverse", states=False)

    exe = gpucomp.compile(proto, target="cpu")

    first, rest = exe.plan.repeats
    assert (first.count, first.before, first.after, rest.count, rest.before, rest.after) == (1, 0, 8, 8, 1, 0)
    families = [exe.plan.kernels[launch.kernel].family for launch in exe.plan.launches]
    assert "contraction" not in families[first.first : first.last]
    assert "contraction" in families[rest.first : rest.last]
    assert not any("begin" in launch.name for launch in exe.plan.launches)  # the first step reads no state
    checked(exe, proto, feeds)


@pytest.mark.parametrize("target", ["cpu", "opencl"])
@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_a_recurrence_from_zeros_of_any_length(target, op):
    proto, _ = recurrence(op, 7, 2, 19, "bidirectional", states=False)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "time"
    exe = gpucomp.compile(proto, target=target, shapes={"x": (Dim("time", 1, 30), 2, 5)})

    for time in (1, 4, 2, 1, 30):
        proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = time
        checked(exe, proto, {"x": np.random.default_rng(time).standard_normal((time, 2, 5)).astype(np.float32)})


def counting(steps):
    """A loop with a row of 8 bytes, and states that change places."""
    nodes = [node("Identity", ["go"], ["more"]), node("Sub", ["a", "b"], ["b2"]), node("Identity", ["b"], ["a2"])]
    ends = [helper.make_tensor_value_info(n, 1, None) for n in ("more", "b2", "a2", "i")]
    starts = [helper.make_tensor_value_info(n, 1, None) for n in ("i", "go", "a", "b")]
    for info in (*ends, *starts):
        info.ClearField("type")
    made = node("Loop", ["n", "", "x", "z"], ["a", "b", "rows"], body=helper.make_graph(nodes, "b", starts, ends))
    return model([made], [value("x"), value("z")], ["a", "b", "rows"], weights={"n": np.array(steps)})


@pytest.mark.parametrize("target", ["cpu", "opencl"])
def test_a_loop_counts_its_steps(target):
    proto, feeds = counting(6), {k: np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32) for k in "xz"}

    exe = gpucomp.compile(proto, target=target)

    assert exe.plan.repeats
    np.testing.assert_array_equal(exe.run(feeds)["rows"], np.arange(6))
    checked(exe, proto, feeds)


@pytest.fixture
def program(monkeypatch):
    """Programs of a recurrence with tasks to share, by number of threads; ``alone``: one thread runs the loop."""
    proto, feeds = recurrence("LSTM", 37, 3, 96, "bidirectional", lengths=True)
    exe = gpucomp.compile(proto, target="cpu")
    expected = dict(zip(exe.plan.output_names, interpret(load(proto), feeds), strict=True))

    def make(threads, *, alone):
        monkeypatch.setattr(repeats, "SMALLEST_SHARED_STEP_NS", np.inf if alone else 0.0)
        monkeypatch.setattr("gpucomp.runtime.cpu.SMALLEST_SHARED_NS", 0.0)
        return CpuProgram(exe.plan, exe.sources, exe.binaries, dict(exe.weights), threads=threads)

    return make, exe.plan, feeds, expected


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("alone", [False, True])
def test_threads_share_a_loop_or_wait_for_it(program, threads, alone):
    make, plan, feeds, expected = program
    assert max(k.groups[0] for k in plan.kernels) > 1

    made = make(threads, alone=alone)

    first = made.run(feeds)
    for _ in range(20):
        found = made.run(feeds)
        for name, wanted in expected.items():
            assert_matches(found[name], wanted, terms=500)
            np.testing.assert_array_equal(found[name], first[name])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("alone", [False, True])
def test_a_profile_has_the_time_of_all_steps(program, threads, alone):
    make, plan, feeds, _ = program
    made = make(threads, alone=alone)

    seconds, spans = made.timeline(feeds)

    assert len(seconds) == len(plan.launches)
    (loop,) = plan.repeats
    assert all(seconds[k] > 0 for k in range(loop.first, loop.last))
    assert {s.launch for s in spans if s.thread == 0} >= set(range(loop.first, loop.last))
    assert all(s.start <= s.end for s in spans)


def test_kernels_of_a_loop_say_how_often_they_run():
    proto, feeds = recurrence("LSTM", 37, 1, 16)
    exe = gpucomp.compile(proto, target="cpu")

    (loop,) = exe.plan.repeats
    inside = exe.kernels[loop.first : loop.last]

    assert all(info.label.endswith(" x37") for info in inside)
    kernels = [exe.plan.kernels[launch.kernel] for launch in exe.plan.launches[loop.first : loop.last]]
    assert [info.operations for info in inside] == [37 * k.operations for k in kernels]
    assert len(exe.profile(feeds)) == len(exe.plan.launches)


def test_what_does_not_advance_counts_once_if_it_stays_in_the_cache():
    proto, _ = recurrence("LSTM", 37, 1, 16)
    exe = gpucomp.compile(proto, target="cpu")
    (loop,) = exe.plan.repeats
    each = [exe.plan.kernels[launch.kernel].traffic for launch in exe.plan.launches[loop.first : loop.last]]
    weights = max(b.nbytes for b in exe.plan.buffers if b.shape and b.kind == "weight")  # the recurrence's

    cached = exe.kernels[loop.first : loop.last]
    outside = kernels_of(replace(exe.plan, cache_bytes=1 << 10))[loop.first : loop.last]

    assert [info.traffic for info in outside] == [37 * nbytes for nbytes in each]
    assert all(info.held > weights for info in outside)
    assert all(info.held == 0 for info in cached)
    assert max(info.traffic for info in cached) < weights + 37 * (max(each) - weights)


@pytest.mark.parametrize(("target", "nbytes"), [("cpu:x86-64-v3", 1 << 20), ("cuda:sm_80", 40 << 20)])
def test_that_cache_is_the_one_of_the_target(target, nbytes):
    proto, _ = recurrence("LSTM", 9, 1, 16)

    assert gpucomp.compile(proto, target=target).plan.cache_bytes == nbytes


def test_the_size_of_the_cache_is_saved_where_there_are_loops():
    looped = gpucomp.compile(recurrence("GRU", 9, 3, 33)[0], target="cpu").plan
    straight = replace(looped, repeats=())
    other = replace(looped, cache_bytes=12345)
    older = {name: value for name, value in saved(other).items() if name != "cache_bytes"}

    assert manifest.plan_of(saved(other)) == other
    assert "cache_bytes" not in saved(straight)
    assert manifest.plan_of(older).cache_bytes == 1 << 20


def saved(plan):
    return manifest.loads(manifest.dumps(manifest.data_of(plan)))


def test_a_loop_is_saved_and_loaded(tmp_path):
    proto, feeds = recurrence("GRU", 9, 3, 33, "bidirectional")
    exe = gpucomp.compile(proto, target="cpu")
    exe.save(tmp_path / "model.gpuc")

    loaded = gpucomp.load(tmp_path / "model.gpuc")

    assert loaded.plan.repeats == exe.plan.repeats != ()
    for name, array in exe.run(feeds).items():
        np.testing.assert_array_equal(loaded.run(feeds)[name], array)


def test_a_plan_without_loops_is_stored_as_before():
    exe = gpucomp.compile(model([node("Relu", ["x"], ["y"])], [value("x")]), target="cpu")

    data = manifest.data_of(exe.plan)

    assert "repeats" not in data
    assert manifest.plan_of(manifest.loads(manifest.dumps(data))) == exe.plan


def loops_of_a_file():
    proto, _ = recurrence("LSTM", 9, 1, 16)
    plan = gpucomp.compile(proto, target="cpu").plan
    return plan, plan.repeats[0]


def moved(repeat, by):
    (head, *tail) = repeat.advances[0]
    return replace(repeat, advances=((head or by, *tail), *repeat.advances[1:]))


HOSTILE = {
    "beyond the launches": lambda plan, r: [replace(r, last=len(plan.launches) + 1)],
    "empty": lambda plan, r: [replace(r, last=r.first)],
    "negative count": lambda plan, r: [replace(r, count=-1)],
    "endless": lambda plan, r: [replace(r, count=1 << 31)],
    "overlapping": lambda plan, r: [r, r],
    "too many steps": lambda plan, r: [replace(r, count=r.count + 1)],
    "a step too many before": lambda plan, r: [replace(r, before=1)],
    "a step too many after": lambda plan, r: [replace(r, after=1)],
    "negative steps before": lambda plan, r: [replace(r, before=-1)],
    "negative steps after": lambda plan, r: [replace(r, after=-1)],
    "a product beyond 2^63": lambda plan, r: [replace(moved(r, 1 << 48), count=(1 << 31) - 1)],
    "outside of the buffer": lambda plan, r: [moved(r, -4096)],
    "fewer numbers than arguments": lambda plan, r: [replace(r, advances=(r.advances[0][1:], *r.advances[1:]))],
    "fewer launches": lambda plan, r: [replace(r, advances=r.advances[1:])],
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_loop_is_refused(what):
    plan, loop = loops_of_a_file()
    data = manifest.data_of(replace(plan, repeats=tuple(HOSTILE[what](plan, loop))))

    with pytest.raises(ArtifactError, match=r"plan\.repeats") as error:
        manifest.plan_of(manifest.loads(manifest.dumps(data)))
    assert error.value.code == "GPC7004"


def test_a_loop_without_steps_is_left_out():
    plan, loop = loops_of_a_file()
    proto, feeds = recurrence("LSTM", 9, 1, 16)
    exe = gpucomp.compile(proto, target="cpu")
    none = replace(exe.plan, repeats=tuple(replace(r, count=0) for r in exe.plan.repeats))

    found = CpuProgram(none, exe.sources, exe.binaries, dict(exe.weights), threads=2).run(feeds)

    np.testing.assert_array_equal(found["h"], feeds["h0"])
    np.testing.assert_array_equal(found["c"], feeds["c0"])
    assert plan.counts()[loop.first] == 9


def test_buffers_that_every_step_needs_are_not_shared_in_the_loop():
    proto, _ = recurrence("LSTM", 9, 3, 16, "bidirectional", lengths=True)
    plan = gpucomp.compile(proto, target="cpu").plan

    shared = share(plan)

    for loop in plan.repeats:
        inside = {a for launch in plan.launches[loop.first : loop.last] for a in launch.args} & shared.of.keys()
        outside = {a for n, launch in enumerate(plan.launches) if not loop.first <= n < loop.last for a in launch.args}
        kept = [shared.of[a] for a in inside & outside]
        assert not set(kept) & {shared.of[a] for a in inside - outside}
        assert len(set(kept)) == len(kept)


def test_slices_start_where_they_say():
    assert Repeat(0, 1, 5, ((-8, 8, 0),)).start(-8) == 32
    assert Repeat(0, 1, 5, ((-8, 8, 0),)).start(8) == 0
    assert Repeat(0, 1, 0, ((-8, 8, 0),)).start(-8) == 0
    first, rest = Repeat(0, 1, 1, ((-8, 8, 0),), before=0, after=4), Repeat(1, 2, 4, ((-8, 8, 0),), before=1, after=0)
    assert (first.start(-8), first.start(8), rest.start(-8), rest.start(8)) == (32, 0, 24, 8)


def test_threads_wait_for_what_is_before_a_loop_without_steps():
    """A recurrence of one step: it is computed before the loop of all others, by one thread, and the product reads it."""
    hidden, width, batch = 32, 512, 16
    random = np.random.default_rng(0)

    def weights(*shape):
        return (0.1 * random.standard_normal(shape)).astype(np.float32)

    held = {"m": weights(width, width), "w": weights(1, 4 * hidden, width), "r": weights(1, 4 * hidden, hidden)}
    held["q"] = weights(hidden, 2 * width)
    nodes = [
        node("MatMul", ["x", "m"], ["before"]),
        node("LSTM", ["before", "w", "r"], ["y"], hidden_size=hidden),
        node("MatMul", ["y", "q"], ["z"]),
    ]
    proto = model(nodes, [value("x", ("n", batch, width))], [value("y", None), value("z", None)], weights=held)
    with config.using(threads=2):
        exe = gpucomp.compile(proto, target="cpu", shapes={"x": (Dim("n", 1, 24), batch, width)})
        assert 0 in {repeat.count for repeat in exe.at(n=1).plan.repeats}
        for _ in range(200):
            found = exe.run({"x": random.standard_normal((1, batch, width)).astype(np.float32)})
            np.testing.assert_allclose(found["z"], found["y"] @ held["q"], rtol=1e-3, atol=1e-4)
