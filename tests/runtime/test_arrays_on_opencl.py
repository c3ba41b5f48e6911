"""Arrays of pyopencl that are read and written where they lie, on PoCL; and those that are copied or refused."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

import gpucomp
from gpucomp import config
from gpucomp.errors import DeviceError, InputError, UsageError
from gpucomp.frontend.onnx.repeat import UNROLLED
from gpucomp.ir.dim import Dim
from gpucomp.runtime import opencl_arrays
from gpucomp.runtime.executable import Executable
from gpucomp.targets import opencl
from tests.onnx_builders import model, node, value
from tests.plans import COLUMNS, ROWS, answer, two_layers

cl = pytest.importorskip("pyopencl")
arrays = pytest.importorskip("pyopencl.array")

SHAPE = ROWS, COLUMNS
SIZE = 4 * ROWS * COLUMNS
X = np.random.default_rng(3).standard_normal(SHAPE).astype(np.float32)
PART = 1024  # bytes, where every device lets a part of a buffer begin


@pytest.fixture(autouse=True)
def no_shared_cache(tmp_path):
    with config.using(cache=tmp_path):
        yield


def opened(host=False):
    plan, sources, weights = two_layers(opencl.manifest("pocl"), host=host)
    return Executable(plan, sources, {}, weights)


@pytest.fixture(params=[False, True], ids=["kernels", "host operator"])
def exe(request):
    return opened(request.param)


def wanted(x, exe):
    return answer(x, host=any(launch.host for launch in exe.plan.launches))


def there(exe, x):
    return arrays.to_device(exe.queue, x)


def inside(exe, x, start):
    """An array with the contents of ``x`` that begins ``start`` bytes after its buffer does."""
    memory = cl.Buffer(exe.queue.context, cl.mem_flags.READ_WRITE, start + x.nbytes + 64)
    array = arrays.Array(exe.queue, x.shape, x.dtype, data=memory, offset=start)
    array.set(x)
    return array


@pytest.fixture
def copies(monkeypatch):
    """The bytes of each copy from now on, with what it is from and to: ``h`` for the host, ``d`` for the device."""
    found, whole, whole_map = [], cl.enqueue_copy, cl.enqueue_map_buffer

    def noted(queue, target, source, **options):
        host = target if isinstance(target, np.ndarray) else source if isinstance(source, np.ndarray) else None
        way = "".join("h" if isinstance(end, np.ndarray) else "d" for end in (source, target))
        found.append(f"{way} {options['byte_count'] if host is None else host.nbytes}")
        return whole(queue, target, source, **options)

    def mapped(queue, memory, flags, offset, shape, *more, **options):
        found.append(f"{'dh' if flags == cl.map_flags.READ else 'hd'} {shape[0]}")
        return whole_map(queue, memory, flags, offset, shape, *more, **options)

    monkeypatch.setattr(cl, "enqueue_copy", noted)
    monkeypatch.setattr(cl, "enqueue_map_buffer", mapped)
    return found


# ---- results ----


def test_results_stay_on_the_device_in_memory_of_their_own(exe):
    found = [exe.run({"x": X * np.float32(scale)}, outputs="device") for scale in (1, -2, 3)]
    context = exe.queue.context
    for scale, results in zip((1, -2, 3), found, strict=True):
        for name, array in wanted(X * np.float32(scale), exe).items():
            assert isinstance(results[name], arrays.Array)
            assert results[name].context == context
            np.testing.assert_array_equal(results[name].get(), array, err_msg=name)
    assert found[0]["nothing"].shape == (0, 3)


def test_results_outlive_their_program():
    exe = opened()
    found = exe.run({"x": X}, outputs="device")
    del exe
    gc.collect()

    np.testing.assert_array_equal(found["y"].get(), answer(X)["y"])


def test_nothing_is_copied_between_two_runs_on_the_device(copies):
    exe = opened()
    state, expected = there(exe, X), X
    exe.run({"x": state}, outputs="device")
    copies.clear()

    for _ in range(6):
        state, expected = exe.run({"x": state}, outputs="device")["y"], answer(expected)["y"]

    # "x" is an output as well: that one is a copy of the input
    assert copies == [f"dd {SIZE}"] * 6
    np.testing.assert_array_equal(state.get(), expected)


def test_results_of_one_model_are_inputs_of_another(copies):
    first, second = opened(), opened()
    assert first.queue.context == second.queue.context
    copied = first.run({"x": X}, outputs="device")["y"]
    copies.clear()

    found = second.run({"x": copied}, outputs="device")

    assert copies == [f"dd {SIZE}"]
    np.testing.assert_array_equal(found["y"].get(), answer(answer(X)["y"])["y"])


def test_arrays_of_the_caller_are_read_and_written_where_they_lie(exe, copies):
    sets = [(there(exe, X * np.float32(k + 1)), *(there(exe, 0 * X) for _ in "yz")) for k in range(3)]
    exe.run({"x": X})
    copies.clear()
    for _ in range(3):
        for x, y, z in sets:
            found = exe.run({"x": x}, outputs={"y": y, "z": z})
            assert (found["y"] is y, found["z"] is z) == (True, True)
    if not any(launch.host for launch in exe.plan.launches):
        assert copies == [f"dh {SIZE}"] * 9, "x is a result for the host"
    for k, (x, y, z) in enumerate(sets):
        np.testing.assert_array_equal(x.get(), X * np.float32(k + 1))
        np.testing.assert_array_equal(y.get(), wanted(x.get(), exe)["y"])
        np.testing.assert_array_equal(z.get(), wanted(x.get(), exe)["z"])


def test_arrays_on_device_and_host_are_mixed(exe):
    y, z = there(exe, 0 * X), np.zeros_like(X)

    for scale in (1, 2, 3):
        x = X * np.float32(scale)
        found = exe.run({"x": x}, outputs={"z": z, "y": y})

        assert list(found) == ["y", "z", "nothing", "x"]
        assert (found["y"] is y, found["z"] is z) == (True, True)
        np.testing.assert_array_equal(z, wanted(x, exe)["z"])
        np.testing.assert_array_equal(y.get(), wanted(x, exe)["y"])
        np.testing.assert_array_equal(found["x"], x)


def test_after_arrays_of_the_caller_the_program_s_own_memory_is_used_again(exe):
    x, y = there(exe, X), there(exe, 0 * X)
    exe.run({"x": x}, outputs={"y": y})

    found = exe.run({"x": X * 3})

    np.testing.assert_array_equal(found["y"], wanted(X * 3, exe)["y"])
    np.testing.assert_array_equal(x.get(), X)
    np.testing.assert_array_equal(y.get(), wanted(X, exe)["y"])


def test_an_output_twice_is_written_once_and_copied(copies):
    plan, sources, weights = two_layers(opencl.manifest("pocl"))
    from dataclasses import replace

    exe = Executable(replace(plan, outputs=(4, 4, 5), output_names=("y", "again", "z")), sources, {}, weights)
    exe.run({"x": X})
    copies.clear()
    given = {name: there(exe, 0 * X) for name in ("again", "y")}
    copies.clear()

    exe.run({"x": X}, outputs=given)

    assert copies.count(f"dd {SIZE}") == 1
    np.testing.assert_array_equal(given["y"].get(), answer(X)["y"])
    np.testing.assert_array_equal(given["again"].get(), answer(X)["y"])


# ---- where arrays begin ----


def test_an_array_that_begins_where_a_part_of_a_buffer_may_is_used_there(copies):
    exe = opened()
    x, y = inside(exe, X, PART), inside(exe, 0 * X, 2 * PART)
    copies.clear()

    found = exe.run({"x": x}, outputs={"y": y})

    assert not [line for line in copies if line.startswith(("dd", "hd"))]
    np.testing.assert_array_equal(found["y"].get(), answer(X)["y"])
    np.testing.assert_array_equal(found["x"], X)


def test_an_array_that_begins_elsewhere_is_copied_on_the_device(copies):
    exe = opened()
    x, y = inside(exe, X, 4), inside(exe, 0 * X, 8)
    copies.clear()

    found = exe.run({"x": x}, outputs={"y": y})

    assert [line for line in copies if not line.startswith("dh")] == [f"dd {SIZE}"] * 2
    np.testing.assert_array_equal(found["y"].get(), answer(X)["y"])


def test_where_parts_of_buffers_fail_such_arrays_are_copied_too(copies, monkeypatch):
    exe = opened()
    x = inside(exe, X, PART)
    monkeypatch.setattr(opencl, "has_sub_buffers", lambda device: False)
    copies.clear()

    found = exe.run({"x": x})

    assert f"dd {SIZE}" in copies
    np.testing.assert_array_equal(found["y"], answer(X)["y"])


def test_an_array_in_a_part_of_a_buffer_is_used_there(copies):
    exe = opened()
    whole = cl.Buffer(exe.queue.context, cl.mem_flags.READ_WRITE, 4 * PART)
    part = whole.get_sub_region(PART, 3 * PART)
    x = arrays.Array(exe.queue, SHAPE, np.float32, data=part, offset=PART)
    x.set(X)
    copies.clear()

    np.testing.assert_array_equal(exe.run({"x": x})["y"], answer(X)["y"])
    assert f"dd {SIZE}" not in copies


def test_memory_of_pyopencl_s_pools_is_used_and_copied_where_an_array_begins_inside(copies):
    exe = opened()
    pool = pytest.importorskip("pyopencl.tools").MemoryPool(cl.tools.ImmediateAllocator(exe.queue))
    both = arrays.to_device(exe.queue, np.concatenate([X, X[::-1]]), allocator=pool)
    copies.clear()

    np.testing.assert_array_equal(exe.run({"x": both[:ROWS]})["y"], answer(X)["y"])
    assert f"dd {SIZE}" not in copies
    np.testing.assert_array_equal(exe.run({"x": both[ROWS:]})["y"], answer(X[::-1])["y"])
    assert f"dd {SIZE}" in copies


@pytest.mark.parametrize("mapped", [False, True])
def test_memory_that_is_the_host_s_makes_no_difference(exe, monkeypatch, mapped):
    with exe._program() as program:
        monkeypatch.setattr(program, "_mapped", mapped)
    x = there(exe, X)

    for _ in range(2):
        found = exe.run({"x": x}, outputs="device")
        np.testing.assert_array_equal(found["y"].get(), wanted(X, exe)["y"])
        np.testing.assert_array_equal(exe.run({"x": X * 2})["y"], wanted(X * 2, exe)["y"])


# ---- what is refused ----


def elsewhere(x):
    queue = cl.CommandQueue(cl.Context([opencl.devices()[0]]))
    return arrays.to_device(queue, x)


def test_an_array_in_another_context_is_refused():
    exe = opened()
    with pytest.raises(
        InputError, match=r"GPC2106 input 'x': an array in the context of exe.queue expected, this one is in another"
    ):
        exe.run({"x": elsewhere(X)})
    with pytest.raises(InputError, match=r"GPC2115 output 'y': an array in the context of exe.queue expected"):
        exe.run({"x": X}, outputs={"y": elsewhere(X)})
    np.testing.assert_array_equal(exe.run({"x": there(exe, X)})["y"], answer(X)["y"])


@pytest.mark.parametrize(
    ("make", "code", "told"),
    [
        (
            lambda e: there(e, X.T.copy()).T,
            "GPC2106",
            r"input 'x': a C-contiguous array expected, found strides \[4, 20\]",
        ),
        (lambda e: there(e, np.concatenate([X, X], 1))[:, :COLUMNS], "GPC2106", "a C-contiguous array expected"),
        (lambda e: there(e, X.astype(np.float64)), "GPC2104", r"element type f32 \(float32\) expected, found float64"),
        (lambda e: there(e, X.astype(">f4")), "GPC2106", "in this machine's order of bytes expected, found >f4"),
        (lambda e: there(e, X.T.copy()), "GPC2103", r"shape \[5, 7\] expected, found \[7, 5\]"),
    ],
)
def test_an_input_that_does_not_fit_is_refused(make, code, told):
    exe = opened()
    with pytest.raises(InputError, match=told) as found:
        exe.run({"x": make(exe)})
    assert found.value.code == code


def read_only(exe):
    flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
    return arrays.Array(exe.queue, SHAPE, np.float32, data=cl.Buffer(exe.queue.context, flags, hostbuf=X))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda e: there(e, X.T.copy()).T, r"a C-contiguous array expected, found strides \[4, 20\]"),
        (lambda e: there(e, X.astype(np.float64)), r"element type f32 \(float32\) expected, found float64"),
        (lambda e: there(e, X.T.copy()), r"shape \[5, 7\] expected, found \[7, 5\]"),
        (read_only, "an array that can be written expected, this one is read-only"),
    ],
)
def test_an_array_that_a_result_does_not_fit_in_is_refused(make, told):
    exe = opened()
    with pytest.raises(InputError, match=f"GPC2115 output 'y': {told}"):
        exe.run({"x": X}, outputs={"y": make(exe)})


def test_a_read_only_input_is_read():
    exe = opened()

    np.testing.assert_array_equal(exe.run({"x": read_only(exe)})["y"], answer(X)["y"])


def test_results_in_memory_of_each_other_or_of_an_input_are_refused():
    exe = opened()
    both = there(exe, np.concatenate([X, X, X]))
    first, second, third = both[:ROWS], both[ROWS : 2 * ROWS], both[2 * ROWS :]
    with pytest.raises(InputError, match="GPC2116 outputs 'y' and 'z' share memory"):
        exe.run({"x": X}, outputs={"y": first, "z": both[1 : ROWS + 1]})
    with pytest.raises(
        InputError, match="GPC2115 output 'y': memory of its own expected, this array shares that of an input"
    ):
        exe.run({"x": first}, outputs={"y": both[1 : ROWS + 1]})

    found = exe.run({"x": first}, outputs={"y": second, "z": third})  # side by side

    np.testing.assert_array_equal(found["y"].get(), answer(X)["y"])
    np.testing.assert_array_equal(found["z"].get(), answer(X)["z"])


def test_arrays_in_parts_of_one_buffer_are_compared_where_they_lie():
    exe = opened()
    whole = cl.Buffer(exe.queue.context, cl.mem_flags.READ_WRITE, 4 * PART)
    parts = [arrays.Array(exe.queue, SHAPE, np.float32, data=whole.get_sub_region(k * PART, PART)) for k in (0, 1, 1)]
    with pytest.raises(InputError, match="GPC2116"):
        exe.run({"x": X}, outputs={"y": parts[1], "z": parts[2]})

    np.testing.assert_array_equal(exe.run({"x": X}, outputs={"y": parts[0], "z": parts[1]})["z"].get(), answer(X)["z"])


def test_only_opencl_has_a_queue():
    exe = gpucomp.compile(model([node("Relu", ["x"], ["y"])], [value("x", SHAPE)], ["y"]), target="cpu")
    with pytest.raises(UsageError, match="GPC2038 queue: cpu has none of OpenCL's"):
        _ = exe.queue


# ---- order ----


class Late:
    """A queue that does its work when somebody waits for it."""

    def __init__(self, work):
        self.work = work

    def finish(self):
        self.work()


def test_a_run_comes_after_what_the_array_s_queue_was_given():
    exe = opened()
    x, y = there(exe, 0 * X), there(exe, 0 * X)
    x.queue = Late(lambda: cl.enqueue_copy(exe.queue, x.base_data, X))
    waited = []
    y.queue = Late(lambda: waited.append("y"))

    np.testing.assert_array_equal(exe.run({"x": x}, outputs={"y": y})["z"], answer(X)["z"])
    assert waited == ["y"], "who reads the array must have done so"


def test_an_array_without_a_queue_is_waited_for_by_its_events():
    exe = opened()
    x = there(exe, X).with_queue(None)
    assert x.events

    np.testing.assert_array_equal(exe.run({"x": x})["y"], answer(X)["y"])
    assert not x.events


def test_results_are_complete_for_every_queue():
    exe = opened()
    other = cl.CommandQueue(exe.queue.context)
    for scale in (1, 2, 3):
        found = exe.run({"x": X * np.float32(scale)}, outputs="device")["y"]
        np.testing.assert_array_equal(found.get(other), answer(X * np.float32(scale))["y"])


def test_contexts_and_threads_use_arrays_side_by_side():
    exe, wrong = opened(), []
    contexts = [exe, exe, exe.context(), exe.context()]

    def work(k):
        x = X * np.float32(k + 2)
        state = there(exe, x)
        for _ in range(10):
            found = contexts[k].run({"x": state}, outputs="device")
            wrong.extend(n for n, expected in answer(x).items() if not np.array_equal(found[n].get(), expected))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_program_keeps_no_array_of_a_run_that_has_ended():
    exe = opened()
    exe.run({"x": there(exe, X)}, outputs="device")
    with exe._program() as program:
        own = list(program._buffers)
    x = there(exe, X)

    exe.run({"x": x}, outputs="device")

    with exe._program() as program:
        assert all(a is b for a, b in zip(program._buffers, own, strict=True))


def test_a_failed_run_leaves_arrays_and_the_next_run_alone(monkeypatch):
    exe = opened()
    x = there(exe, X)
    exe.run({"x": x})
    launch, calls = cl.enqueue_nd_range_kernel, []

    def fails(*given, **named):
        calls.append(given)
        if len(calls) == 2:
            raise cl.LogicError("the driver's words")
        return launch(*given, **named)

    monkeypatch.setattr(cl, "enqueue_nd_range_kernel", fails)
    with pytest.raises(DeviceError, match="the driver's words"):
        exe.run({"x": x}, outputs="device")

    np.testing.assert_array_equal(exe.run({"x": X * 2})["y"], answer(X * 2)["y"])
    np.testing.assert_array_equal(x.get(), X)


def test_after_a_failure_new_programs_get_another_context(monkeypatch):
    exe = opened()
    context = exe.queue.context
    assert opened().queue.context == context
    with exe._program() as program:
        monkeypatch.setattr(program, "_mapped", False)

    def fails(*given, **named):
        raise cl.LogicError("the driver's words")

    with monkeypatch.context() as patch:
        patch.setattr(cl, "enqueue_nd_range_kernel", fails)
        with pytest.raises(DeviceError, match="the driver's words"):
            exe.run({"x": X})

    assert opened().queue.context != context
    np.testing.assert_array_equal(exe.run({"x": there(exe, X)})["y"], answer(X)["y"])


def test_a_process_that_was_forked_uses_no_context_of_its_parent(monkeypatch):
    device = opencl.devices()[0]
    context = opencl_arrays.context_of(device)
    assert opencl_arrays.context_of(device) is context
    monkeypatch.setattr(opencl_arrays.os, "getpid", lambda: -1)

    assert opencl_arrays.context_of(device) is not context


# ---- profiles, other devices, models of any size ----


def test_profiles_take_arrays_on_the_device(exe):
    x = there(exe, X)

    assert len(exe.profile({"x": x})) == len(exe.kernels)
    np.testing.assert_array_equal(exe.run({"x": X * 2})["y"], wanted(X * 2, exe)["y"])
    np.testing.assert_array_equal(x.get(), X)


def test_a_processor_reads_arrays_of_pyopencl_and_writes_none():
    exe = gpucomp.compile(model([node("Relu", ["x"], ["y"])], [value("x", SHAPE)], ["y"]), target="cpu")
    x = elsewhere(X)

    np.testing.assert_array_equal(exe.run({"x": x})["y"], np.maximum(X, 0))
    np.testing.assert_array_equal(exe.run({"x": x.with_queue(None)})["y"], np.maximum(X, 0))
    with pytest.raises(InputError, match="GPC2115 output 'y': an array in the memory of this model's device expected"):
        exe.run({"x": X}, outputs={"y": x})


def test_a_model_of_any_size_uses_arrays_at_every_size():
    weight = np.random.default_rng(5).standard_normal((7, 7)).astype(np.float32)
    made = model([node("MatMul", ["x", "w"], ["y"])], [value("x", ["rows", 7])], ["y"], {"w": weight})
    exe = gpucomp.compile(made, target="opencl", shapes={"x": (Dim("rows", 1, 40), 7)})
    state = arrays.to_device(exe.queue, np.eye(7, dtype=np.float32))
    np.testing.assert_allclose(exe.run({"x": state}, outputs="device")["y"].get(), weight, rtol=1e-5)
    for rows in (3, 40, 3, 1, 40):
        x = np.random.default_rng(rows).standard_normal((rows, 7)).astype(np.float32)
        y = arrays.zeros(exe.queue, (rows, 7), np.float32)
        expected = exe.run({"x": x})["y"]

        np.testing.assert_array_equal(exe.run({"x": there(exe, x)}, outputs="device")["y"].get(), expected)
        assert exe.run({"x": there(exe, x)}, outputs={"y": y})["y"] is y
        np.testing.assert_array_equal(y.get(), expected)


def test_a_loop_reads_and_writes_its_slices_in_arrays_on_the_device():
    rng = np.random.default_rng(7)
    steps, batch, size, hidden = UNROLLED + 3, 2, 3, 5
    weights = {
        "w": rng.standard_normal((1, 3 * hidden, size)).astype(np.float32),
        "r": rng.standard_normal((1, 3 * hidden, hidden)).astype(np.float32),
    }
    made = model(
        [node("GRU", ["x", "w", "r"], ["y"], hidden_size=hidden)], [value("x", [steps, batch, size])], ["y"], weights
    )
    exe = gpucomp.compile(made, target="opencl")
    assert exe.plan.repeats
    x = rng.standard_normal((steps, batch, size)).astype(np.float32)
    expected = exe.run({"x": x})["y"]

    for given in (there(exe, x), inside(exe, x, 4), inside(exe, x, PART)):
        np.testing.assert_array_equal(exe.run({"x": given}, outputs="device")["y"].get(), expected)


def test_zeros_are_read_and_written_where_they_lie(copies):
    exe = opened()
    with exe._program() as program:
        x, y, z = (program.zeros(SHAPE, np.float32) for _ in "xyz")
    copies.clear()

    exe.run({"x": x}, outputs={"y": y, "z": z})

    assert copies == [f"dh {SIZE}"]
    np.testing.assert_array_equal(y.get(), answer(0 * X)["y"])


def test_a_part_on_the_host_gives_its_results_there_and_fills_arrays_on_the_device():
    exe = gpucomp.compile(
        model(
            [node("Relu", ["x"], ["h"]), node("NonZero", ["h"], ["y"])], [value("x", [6])], [value("y", [1, None], 7)]
        ),
        target="opencl",
    )
    x = np.array([1, -1, 2, 0, 3, -2], np.float32)
    assert exe.dynamic_operators
    with pytest.raises(UsageError, match="GPC2038 outputs='device': a part of this model runs on the host"):
        exe.run({"x": x}, outputs="device")
    y = arrays.zeros(exe.queue, (1, 3), np.int64)

    found = exe.run({"x": there(exe, x)}, outputs={"y": y})

    assert found["y"] is y
    np.testing.assert_array_equal(y.get(), [[0, 2, 4]])
