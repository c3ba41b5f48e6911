"""Models for any size on OpenCL and CUDA: one program, whose plans share kernels, weights and the arena."""

import numpy as np
import pytest

import gpucomp
from gpucomp import Dim
from gpucomp.cli.compare import onnxruntime_session
from gpucomp.runtime.open_program import OpenProgram
from testing.cuda_on_cpu.whole_models import ModelOnCpu
from tests.onnx_builders import model, node, value

RNG = np.random.default_rng(7)


def weight(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def perceptron():
    return model(
        [
            node("MatMul", ["x", "w"], ["a"]),
            node("Add", ["a", "c"], ["d"]),
            node("Relu", ["d"], ["e"]),
            node("MatMul", ["e", "v"], ["y"]),
        ],
        [value("x", ["b", 40])],
        [value("y", ["b", 10])],
        {"w": weight(40, 64), "c": weight(64), "v": weight(64, 10)},
    )


def convolutions():
    """Plain, depthwise and strided ones, pooling, and the mean of the image."""
    return model(
        [
            node("Conv", ["x", "w"], ["a"], pads=[1] * 4),
            node("Relu", ["a"], ["r"]),
            node("Conv", ["r", "g"], ["k"], pads=[1] * 4, group=8),
            node("MaxPool", ["k"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
            node("Conv", ["p", "u"], ["q"], pads=[1] * 4, strides=[2, 2]),
            node("GlobalAveragePool", ["q"], ["y"]),
        ],
        [value("x", ["b", 3, "h", "w"])],
        [value("y", ["b", 12, 1, 1])],
        {"w": weight(8, 3, 3, 3), "g": weight(8, 1, 3, 3), "u": weight(12, 8, 3, 3)},
    )


def attention():
    """Heads are split off and merged again, then a norm over the features."""
    split = [node("Transpose", [n], [f"{n}t"], perm=[0, 2, 1, 3]) for n in "qv"]
    return model(
        [
            *split,
            node("Transpose", ["k"], ["kt"], perm=[0, 2, 3, 1]),
            node("MatMul", ["qt", "kt"], ["s"]),
            node("Mul", ["s", "c"], ["sc"]),
            node("Softmax", ["sc"], ["p"], axis=-1),
            node("MatMul", ["p", "vt"], ["o"]),
            node("Transpose", ["o"], ["ot"], perm=[0, 2, 1, 3]),
            node("Reshape", ["ot", "shape"], ["m"]),
            node("LayerNormalization", ["m", "scale", "shift"], ["y"], axis=-1),
        ],
        [value(n, ["b", "s", 4, 16]) for n in "qkv"],
        [value("y", ["b", "s", 64])],
        {"c": np.float32(0.25), "shape": np.array([0, 0, 64], np.int64), "scale": weight(64), "shift": weight(64)},
    )


def rows():
    """A softmax, a running sum, a transpose and two sequences one after the other."""
    return model(
        [
            node("Concat", ["x", "z"], ["c"], axis=1),
            node("Softmax", ["c"], ["s"], axis=-1),
            node("CumSum", ["s", "one"], ["r"]),
            node("Transpose", ["r"], ["y"], perm=[1, 0]),
        ],
        [value("x", ["b", "h"]), value("z", ["b", "g"])],
        [value("y", ["t", "b"])],
        {"one": np.array(1, np.int64)},
    )


BATCH, HEIGHT, WIDTH = Dim("b", 1, 4), Dim("h", 8, 40), Dim("w", 8, 64, multiple=4)
MODELS = {
    "perceptron": (perceptron, {"x": (Dim("b", 1, 300), 40)}),
    "convolutions": (convolutions, {"x": (BATCH, 3, HEIGHT, WIDTH)}),
    "attention": (attention, {n: (BATCH, Dim("s", 1, 130), 4, 16) for n in "qkv"}),
    "rows": (rows, {"x": (BATCH, Dim("h", 1, 300)), "z": ("b", Dim("g", 1, 30))}),
}


def compiled(name, target):
    build, shapes = MODELS[name]
    proto = build()
    exe = gpucomp.compile(proto, target=target, shapes=shapes)
    assert isinstance(exe.program, OpenProgram), exe.program
    assert exe.program.open_plan.conditions == ()
    return exe, onnxruntime_session(proto.SerializeToString())


def drawn(exe, count):
    """The least sizes, the greatest, and others; each with inputs."""
    dims = exe.dims
    for number in range(count):
        sizes = {
            n: d.nearest(d.low)
            if number == 0
            else d.high
            if number == 1
            else d.nearest(int(RNG.integers(d.low, d.high)))
            for n, d in dims.items()
        }
        shapes = {s.name: [sizes[e.name] if isinstance(e, Dim) else e for e in s.shape] for s in exe.inputs}
        yield sizes, {n: RNG.standard_normal(shape).astype(np.float32) for n, shape in shapes.items()}


def assert_close(found, wanted):
    scale = np.abs(wanted).max()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=2e-6 * scale)


@pytest.mark.parametrize("name", MODELS)
def test_one_opencl_program_is_right_at_every_size(name, monkeypatch):
    exe, session = compiled(name, "opencl")
    monkeypatch.setattr(exe, "_make", lambda shapes: pytest.fail(f"compiled for {shapes}"))

    for _, inputs in drawn(exe, 5):
        assert_close(exe.run(inputs)["y"], session.run(None, inputs)[0])


def test_programs_take_turns_in_an_arena_that_grows():
    exe, session = compiled("convolutions", "opencl")
    feeds = sorted((inputs for _, inputs in drawn(exe, 6)), key=lambda feed: feed["x"].size)
    wanted = [session.run(None, inputs)[0] for inputs in feeds]

    for _ in range(2):  # small ones again after the large ones have replaced the arena
        for inputs, right in zip(feeds, wanted, strict=True):
            assert_close(exe.run(inputs)["y"], right)

    programs = [made._opened(exe.program.lanes._free[0]) for made in exe._made.values()]
    assert len(programs) == len({id(p) for p in programs}) > 2
    assert len({id(p._shared) for p in programs}) == 1
    weights = [k for k, b in enumerate(programs[0].plan.buffers) if b.kind == "weight"]
    assert all(p._buffers[k] is programs[0]._buffers[k] for p in programs for k in weights)


@pytest.mark.parametrize("name", MODELS)
def test_one_cuda_program_is_right_at_every_size(name):
    exe, session = compiled(name, "cuda:sm_80")
    like = None

    for sizes, inputs in drawn(exe, 3):
        if max(sizes.values()) > 130:
            continue  # the processor plays every thread
        like = ModelOnCpu(exe.at(**sizes), like=like)
        assert_close(like.run(inputs)["y"], session.run(None, inputs)[0])


def test_counters_and_partial_sums_are_of_each_run_s_size(tmp_path):
    """Few rows and a long sum: work-groups share it."""
    deep = model([node("MatMul", ["x", "w"], ["y"])], [value("x", ["b", 4096])], ["y"], {"w": weight(4096, 64)})
    exe = gpucomp.compile(deep, target="cuda:sm_80", shapes={"x": (Dim("b", 9, 300), 4096)})
    exe.save(tmp_path / "model.gpuc")
    loaded, session = gpucomp.load(tmp_path / "model.gpuc"), onnxruntime_session(deep.SerializeToString())
    like, found = None, []

    for _, inputs in drawn(exe, 2):
        one = loaded.at(b=len(inputs["x"]))
        found.append({b.kind: b.nbytes for b in one.plan.buffers if b.kind in ("counter", "temp")})
        if len(inputs["x"]) < 100:
            like = ModelOnCpu(one, like=like)
            assert_close(like.run(inputs)["y"], session.run(None, inputs)[0])

    assert found[0]["counter"] < found[1]["counter"]
    assert found[0]["temp"] < found[1]["temp"]


def test_a_file_has_one_program_for_every_size(tmp_path):
    exe, session = compiled("perceptron", "opencl")
    exe.save(tmp_path / "model.gpuc")
    loaded = gpucomp.load(tmp_path / "model.gpuc")

    for _, inputs in drawn(exe, 3):
        assert_close(loaded.run(inputs)["y"], session.run(None, inputs)[0])
