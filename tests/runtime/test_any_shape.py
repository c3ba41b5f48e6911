"""Models whose sizes each run decides: right at every size, one compilation for each, and bad sizes told."""

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from onnx import helper

import gpucomp
from gpucomp import Dim, config
from gpucomp.cli.compare import onnxruntime_session
from gpucomp.compiler import _Range
from gpucomp.errors import DeviceError, InputError, UsageError
from gpucomp.ir.dims import OpenShapes
from gpucomp.ir.polynomial import NotPolynomial
from gpucomp.refusal import Refusal
from gpucomp.runtime import any_shape, large_pages
from gpucomp.runtime.executable import Executable
from tests.onnx_builders import model, node, value

RNG = np.random.default_rng(5)
FILTER = RNG.standard_normal((7, 3, 3, 3)).astype(np.float32)


def convolution():
    """Conv and Add: the batch of both inputs has one name in the model."""
    return model(
        [node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), node("Add", ["c", "b"], ["y"])],
        [value("x", ["n", 3, "h", "w"]), value("b", ["n", 1, 1, 1])],
        [value("y", ["n", 7, "h", "w"])],
        {"w": FILTER},
    )


def feed(n, h, w):
    return {
        "x": RNG.standard_normal((n, 3, h, w)).astype(np.float32),
        "b": RNG.standard_normal((n, 1, 1, 1)).astype(np.float32),
    }


def compiled(target="cpu", **dims):
    declared = {"n": Dim("n", 1, 5), "h": Dim("h", 4, 64, multiple=4), "w": "w"} | dims
    return gpucomp.compile(convolution(), target=target, shapes={"x": (declared["n"], 3, declared["h"], declared["w"])})


def without_a_program():
    """The model as it is where no kernels take any size: each set of sizes is compiled when it is first run."""
    exe = compiled()
    exe.program = Refusal("a reason")
    return exe


@pytest.mark.parametrize("target", ["cpu", "opencl"])
def test_every_size_of_the_range_is_right(target):
    exe = compiled(target)
    session = onnxruntime_session(convolution().SerializeToString())

    for sizes in [(1, 4, 1), (2, 12, 7), (5, 64, 33)]:
        inputs = feed(*sizes)
        np.testing.assert_allclose(exe.run(inputs)["y"], session.run(None, inputs)[0], rtol=1e-4, atol=1e-5)


def test_a_size_gives_the_bits_of_a_compilation_for_it():
    inputs = feed(3, 8, 5)
    fixed = gpucomp.compile(convolution(), target="cpu", shapes={name: a.shape for name, a in inputs.items()})

    assert compiled().run(inputs)["y"].tobytes() == fixed.run(inputs)["y"].tobytes()


def test_a_size_is_compiled_once_and_the_least_recently_used_goes(monkeypatch):
    monkeypatch.setattr(any_shape, "KEPT", 2)
    exe, made = without_a_program(), []
    make = exe._make
    monkeypatch.setattr(exe, "_make", lambda shapes: made.append(shapes["x"]) or make(shapes))

    for n, h, w in [(1, 4, 4), (2, 4, 4), (1, 4, 4), (3, 4, 4), (1, 4, 4), (2, 4, 4)]:
        exe.run(feed(n, h, w))

    assert made == [(1, 3, 4, 4), (2, 3, 4, 4), (3, 3, 4, 4), (2, 3, 4, 4)]


def test_threads_that_meet_a_new_size_compile_it_once(monkeypatch):
    exe, made, inputs, results = without_a_program(), [], feed(2, 8, 8), []
    make = exe._make
    monkeypatch.setattr(exe, "_make", lambda shapes: made.append(shapes["x"]) or make(shapes))
    threads = [threading.Thread(target=lambda: results.append(exe.run(inputs)["y"].tobytes())) for _ in range(4)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert made == [(2, 3, 8, 8)]
    assert len(results) == 4
    assert len(set(results)) == 1


def test_no_run_at_known_sizes_waits_for_a_compilation(monkeypatch):
    exe, begun, go_on = without_a_program(), threading.Event(), threading.Event()
    make = exe._make
    exe.run(feed(1, 4, 4))

    def slow(shapes):
        begun.set()
        go_on.wait(60)
        return make(shapes)

    monkeypatch.setattr(exe, "_make", slow)
    other = threading.Thread(target=exe.run, args=(feed(2, 8, 8),))
    other.start()
    begun.wait(60)
    done = []
    known = threading.Thread(target=lambda: done.append(exe.run(feed(1, 4, 4))["y"].shape))
    known.start()
    known.join(20)

    assert done == [(1, 7, 4, 4)]
    go_on.set()
    other.join()


@pytest.mark.parametrize("pages", [True, False], ids=["large pages", "small pages"])
def test_equal_weights_are_in_memory_once(monkeypatch, pages):
    monkeypatch.setattr(large_pages, "given", lambda: pages)
    table = RNG.standard_normal((600, 1000)).astype(np.float32)  # more than a large page
    exe = gpucomp.compile(
        model([node("Gather", ["t", "i"], ["y"])], [value("i", ["k"], 7)], ["y"], {"t": table}),
        target="cpu",
        shapes={"i": ("k",)},
    )

    places = set()
    for k in (1, 5, 9):
        np.testing.assert_array_equal(exe.run({"i": np.arange(k)})["y"], table[:k])
        places |= {array.ctypes.data for array in exe.at(k=k).weights.values() if array.size == table.size}

    assert len(places) == 1


def test_inputs_and_outputs_name_the_dimensions():
    exe = compiled()

    assert list(map(str, exe.inputs)) == ["x: f32[n,3,h,w]", "b: f32[n,1,1,1]"]
    assert list(map(str, exe.outputs)) == ["y: f32[n,7,h,w]"]
    assert exe.dims == {"n": Dim("n", 1, 5), "h": Dim("h", 4, 64, 4), "w": Dim("w", 1, 8192)}


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (
            (6, 4, 4),
            "GPC2111 dimension 0 of input 'x': 'n' is 6, 1 to 5 expected, as the given shape of input 'x' says",
        ),
        ((1, 6, 4), "GPC2111 dimension 2 of input 'x': 'h' is 6, 4 to 64, a multiple of 4 expected"),
        ((1, 0, 4), "GPC2111 dimension 2 of input 'x': 'h' is 0, 4 to 64, a multiple of 4 expected"),
        ((1, 4, 0), "GPC2111 dimension 3 of input 'x': 'w' is 0, 1 to 8192 expected"),
    ],
)
def test_a_size_outside_its_range_is_told(sizes, message):
    with pytest.raises(InputError) as caught:
        compiled().run(feed(*sizes))

    assert str(caught.value).startswith(message)


def test_two_sizes_of_one_dimension_are_told():
    with pytest.raises(
        InputError, match="GPC2112 dimension 0 of input 'b': 'n' is 3, but 2 in dimension 0 of input 'x'"
    ):
        compiled().run({"x": feed(2, 4, 4)["x"], "b": feed(3, 4, 4)["b"]})


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda f: {"x": f["x"]}, "GPC2109"),
        (lambda f: f | {"z": f["x"]}, "GPC2101"),
        (lambda f: f | {"x": f["x"][0]}, "GPC2103"),
        (lambda f: f | {"x": f["x"][:, :2]}, "GPC2103"),
        (lambda f: f | {"x": f["x"].astype(np.float64)}, "GPC2104"),
    ],
    ids=["missing", "unknown", "rank", "fixed size", "element type"],
)
def test_inputs_are_checked_before_anything_is_compiled(monkeypatch, change, code):
    exe = compiled()
    monkeypatch.setattr(exe, "_make", None)

    with pytest.raises(InputError, match=code):
        exe.run(change(feed(1, 4, 4)))


def test_what_belongs_to_one_set_of_sizes_is_asked_of_it():
    exe = compiled()

    for ask in (lambda: exe.plan, lambda: exe.kernels, lambda: exe.peak_bytes):
        with pytest.raises(UsageError, match=r"GPC2017 .*exe\.at\(n=1, h=4, w=1\)"):
            ask()
    assert len(exe.at(n=1, h=4, w=1).kernels) == 1


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"n": 1, "h": 4}, "dimension 'w' has no size"),
        ({"n": 1, "h": 4, "w": 9000}, "dimension 'w' is 9000, 1 to 8192 expected"),
        ({"n": 1, "h": 4, "w": 1, "k": 2}, "the model has no dimension 'k'; its dimensions are 'n', 'h', 'w'"),
    ],
)
def test_wrong_sizes_for_at_are_told(sizes, message):
    with pytest.raises(InputError, match=message):
        compiled().at(**sizes)


def test_profiles_are_those_of_the_sizes_fed():
    exe = compiled()

    assert [info.ops for info, _ in exe.profile(feed(1, 4, 4))] == [info.ops for info in exe.at(n=1, h=4, w=4).kernels]
    assert len(exe.timeline(feed(1, 4, 4))[0]) == 1


def test_a_model_that_fits_no_size_is_told_when_it_is_compiled():
    wrong = model(
        [node("MatMul", ["x", "w"], ["y"])], [value("x", ["n", 4])], ["y"], {"w": np.zeros((3, 2), np.float32)}
    )

    with pytest.raises(gpucomp.ModelError, match="MatMul"):
        gpucomp.compile(wrong, target="cpu", shapes={"x": ("n", 4)})


def test_a_model_needs_not_fit_its_smallest_size():
    pooled = model([node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3])], [value("x", [1, 2, "h", "w"])], ["y"])
    exe = gpucomp.compile(pooled, target="cpu", shapes={"x": (1, 2, "h", "w")})

    assert exe.run({"x": np.zeros((1, 2, 9, 5), np.float32)})["y"].shape == (1, 2, 7, 3)
    with pytest.raises(gpucomp.ModelError):
        exe.run({"x": np.zeros((1, 2, 1, 1), np.float32)})


def test_an_end_of_the_range_may_leave_one_column_in_which_no_step_is_seen():
    """Winograd's engine takes steps of 2 in both directions: at these sizes alone there seem to be steps of 2 and 1."""
    rng = np.random.default_rng(4)
    weights = {f"w{k}": (rng.standard_normal((16, 16, 3, 3)) / 12).astype(np.float32) for k in range(2)}
    how = {"strides": [2, 2], "pads": [1, 1, 1, 1]}
    nodes = [node("Conv", ["x", "w0"], ["h"], **how), node("Conv", ["h", "w1"], ["y"], **how)]
    m = model(nodes, [value("x", ["b", 16, "h", "v"])], ["y"], weights)
    exe = gpucomp.compile(m, target="cpu", shapes={"x": (Dim("b", 2, 64), 16, Dim("h", 8, 4096), Dim("v", 2, 4096))})

    session = onnxruntime_session(m.SerializeToString())
    for shape in ((2, 16, 9, 2), (3, 16, 8, 3), (2, 16, 41, 37)):
        x = rng.standard_normal(shape).astype(np.float32)
        np.testing.assert_allclose(exe.run({"x": x})["y"], session.run(None, {"x": x})[0], rtol=2e-4, atol=2e-5)


def test_a_size_that_the_device_has_no_memory_for_leaves_the_others_usable(monkeypatch):
    exe = compiled()
    make = Executable._new_program

    def full(self, **like):
        if self.plan.buffers[self.plan.inputs[0]].shape[0] == 5:
            raise MemoryError
        return make(self, **like)

    monkeypatch.setattr(Executable, "_new_program", full)
    with pytest.raises(DeviceError, match="memory") as told:
        exe.run(feed(5, 8, 3))
    assert told.value.code == "GPC5013"

    inputs = feed(2, 8, 3)
    np.testing.assert_array_equal(exe.run(inputs)["y"], compiled().run(inputs)["y"])


def test_threads_at_several_sizes_open_one_program_first(monkeypatch):
    exe = compiled()
    make, first = Executable._new_program, []

    def slow(self, **like):
        if not like:
            first.append(self)
            time.sleep(0.1)
        return make(self, **like)

    monkeypatch.setattr(Executable, "_new_program", slow)
    threads = [threading.Thread(target=exe.run, args=(feed(n, 8, 3),)) for n in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(first) == 1


def test_a_size_of_the_program_waits_for_no_compilation():
    exe = compiled()

    with exe._compiling:  # as while another thread compiles
        assert exe.run(feed(2, 8, 3))["y"].shape == (2, 7, 8, 3)


@pytest.mark.parametrize(
    ("dim", "most", "found"),
    [
        (Dim("a", 0, 27, 11), 11, [11]),
        (Dim("a", 0, 27, 11), 10, [0]),
        (Dim("a", 3, 27, 4), 5, [4]),
        (Dim("a", 3, 27, 4), 3, []),
        (Dim("a", 1, 1000), 100, [62]),
    ],
)
def test_where_the_greatest_size_may_not_be_a_smaller_one_is_tried(dim, most, found):
    """Sizes are halved. Those that are a multiple of something never ended to be."""
    opened = SimpleNamespace(
        shapes=OpenShapes({"x": (dim,)}, {"a": "somebody"}, {}),
        conditions=SimpleNamespace(hold_at=lambda sizes: sizes["a"] <= most),
    )

    assert _Range._greatest(SimpleNamespace(opened=opened)) == [{"a": size} for size in found]


def test_an_output_that_the_model_does_not_describe_is_saved_as_it_is_computed(tmp_path):
    nodes = [node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["z"])]
    inputs = [value("x", ["n", 4]), value("u", ["k"])]  # nothing depends on the second one
    made = model(nodes, inputs, [helper.make_empty_tensor_value_info("y"), value("z", ["n", 4])])
    made.graph.output[0].type.tensor_type.elem_type = 1
    exe = gpucomp.compile(made, target="cpu", shapes={"x": ("n", 4), "u": ("k",)})
    exe.save(tmp_path / "m.gpuc")
    loaded = gpucomp.load(tmp_path / "m.gpuc")

    x = RNG.standard_normal((6, 4)).astype(np.float32)
    assert [str(spec) for spec in loaded.outputs] == ["y: f32[n,4]", "z: f32[n,4]"]
    np.testing.assert_array_equal(loaded.run({"x": x, "u": x[0]})["y"], np.maximum(x, 0))


@pytest.mark.parametrize("size", [3.0, True, "3", None])
def test_a_size_is_a_whole_number(size):
    with pytest.raises(InputError, match="dimension 'n' is"):
        compiled().at(n=size, h=8, w=3)


def test_one_of_numpy_is_a_whole_number():
    exe = compiled()

    assert exe.at(n=np.int64(3), h=8, w=3) is exe.at(n=3, h=8, w=3)


def test_it_can_be_opened_before_its_first_run():
    exe = compiled()
    exe.open()

    assert exe.dynamic_operators == ()
    with pytest.raises(UsageError, match=r"nothing to open before its sizes are known \(a reason\)"):
        without_a_program().open()


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_an_image_of_any_size_is_resized_by_its_corners(mode):
    """Positions are quotients by a size that each run decides, which has no reciprocal as a formula."""
    how = {"mode": mode, "coordinate_transformation_mode": "align_corners"}
    proto = model(
        [node("Resize", ["x", "", "scales"], ["y"], **how)],
        [value("x", ["n", 2, "h", 4])],
        [value("y", ["n", 2, None, None])],
        {"scales": np.array([1, 1, 2, 1.5], np.float32)},
        opset=19,
    )
    exe = gpucomp.compile(proto, target="cpu", shapes={"x": (Dim("n", 1, 9), 2, Dim("h", 1, 40), 4)})
    session = onnxruntime_session(proto.SerializeToString())

    assert not isinstance(exe.program, Refusal)
    for n, h in [(1, 2), (1, 7), (3, 5), (9, 40)]:
        x = RNG.standard_normal((n, 2, h, 4)).astype(np.float32)
        np.testing.assert_allclose(exe.run({"x": x})["y"], session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-5)


def test_what_no_formula_says_is_compiled_for_the_sizes_of_a_run(monkeypatch):
    def refuse(*given, **named):
        raise NotPolynomial("1 / (n - 1) is not a polynomial")

    monkeypatch.setattr("gpucomp.compiler.rewritten", refuse)
    exe = compiled()
    monkeypatch.undo()

    assert "not a polynomial" in exe.program.reason
    assert exe.run(feed(2, 4, 3))["y"].shape == (2, 7, 4, 3)


@pytest.mark.parametrize("op", ["Bernoulli", "RandomNormalLike", "RandomUniformLike"])
def test_numbers_that_the_host_draws_are_as_many_as_each_run_has(op, tmp_path):
    """An attribute of a host operator is one number in a program for any size."""
    proto = model([node(op, ["x"], ["y"], seed=3.0)], [value("x", ["n", 5])], [value("y", ["n", 5])])
    with config.using(cache=tmp_path, verify=False):
        exe = gpucomp.compile(proto, target="cpu", shapes={"x": (Dim("n", 1, 99), 5)})

    for n in (4, 1, 60):
        found = exe.run({"x": np.full((n, 5), 0.5, np.float32)})["y"]
        assert found.shape == (n, 5)
        assert len(np.unique(found)) > 1
