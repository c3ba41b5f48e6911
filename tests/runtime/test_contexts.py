"""Runs side by side: lanes of ``run``, contexts of the caller, and arrays that results are written into."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import weakref

import numpy as np
import pytest

import gpucomp
from gpucomp import config
from gpucomp.errors import InputError, RunStoppedError, UsageError
from gpucomp.runtime import any_shape
from gpucomp.runtime.inputs import random_inputs
from gpucomp.runtime.moving import MovingPrograms
from gpucomp.runtime.stopping import Stop, stop_after
from gpucomp.runtime.trial import seconds_of
from gpucomp.runtime.workers import Workers, workers
from tests.onnx_builders import model, node, value
from tests.runtime.samples import executable, use_numpy

RNG = np.random.default_rng(7)
WEIGHT, BIAS = RNG.standard_normal((23, 19)).astype(np.float32), RNG.standard_normal(19).astype(np.float32)
NODES = [
    node("MatMul", ["x", "w"], ["h"]),
    node("Add", ["h", "b"], ["y"]),
    node("Softmax", ["y"], ["z"], axis=1),
    node("Transpose", ["z"], ["t"]),
]
TARGETS = ["cpu", "opencl"]


def network(rows: int | str = 13):
    return model(NODES, [value("x", [rows, 23])], ["y", "z", "t"], {"w": WEIGHT, "b": BIAS})


@pytest.fixture(scope="module", params=TARGETS)
def exe(request):
    return gpucomp.compile(network(), target=request.param)


@pytest.fixture
def feed():
    return {"x": RNG.standard_normal((13, 23)).astype(np.float32)}


def same(found, wanted):
    return found.keys() == wanted.keys() and all(np.array_equal(found[name], wanted[name]) for name in wanted)


def test_threads_side_by_side_get_the_bits_of_one_alone(exe):
    feeds = [{"x": RNG.standard_normal((13, 23)).astype(np.float32)} for _ in range(5)]
    wanted = [exe.run(feed) for feed in feeds]
    wrong = []

    def work(context, number):
        for _ in range(20):
            if not same(context.run(feeds[number]), wanted[number]):
                wrong.append(number)

    contexts = [exe, exe, exe.context(), exe.context(), exe.context()]
    threads = [threading.Thread(target=work, args=(one, number)) for number, one in enumerate(contexts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []


def test_contexts_share_the_weights(exe):
    first, second = exe.context(), exe.context()
    for one in (exe, first, second):
        one.run(random_inputs(exe.inputs))
    programs = [context.lane(exe.lanes).first for context in (first, second)]
    weights = [k for k, b in enumerate(exe.plan.buffers) if b.kind == "weight"]
    memory = [program._kept if exe.target == "cpu" else program._buffers for program in programs]

    assert weights
    assert all(memory[0][k] is memory[1][k] for k in weights)
    assert programs[0] is not programs[1]


def test_a_context_is_of_one_thread_at_a_time(exe, feed):
    context = exe.context()
    context._busy.acquire()  # as while another thread runs

    with pytest.raises(UsageError, match=r"GPC2037 this context is in use by another run"):
        context.run(feed)


def test_a_closed_context_runs_no_more_and_frees_its_memory(exe, feed):
    with exe.context() as context:
        context.run(feed)
        program = weakref.ref(context.lane(exe.lanes).first)
        assert program() is not None

    gc.collect()
    assert program() is None
    with pytest.raises(UsageError, match="GPC2037 this context is closed"):
        context.run(feed)


def test_a_context_runs_any_size():
    exe = gpucomp.compile(network("rows"), target="cpu", shapes={"x": ("rows", 23)})
    with exe.context() as context:
        for rows in (1, 13, 5, 1):
            feed = {"x": RNG.standard_normal((rows, 23)).astype(np.float32)}
            assert same(context.run(feed), exe.run(feed))
            target = np.empty((rows, 19), np.float32)
            assert context.run(feed, outputs={"y": target})["y"] is target
            np.testing.assert_array_equal(target, exe.run(feed)["y"])


def test_a_context_is_told_how_it_is_run(exe, feed):
    with pytest.raises(UsageError, match=r"GPC2016 one dict of the inputs expected: exe.run\("):
        exe.context().run(None, feed)


@pytest.mark.parametrize("names", [["y"], ["t", "y"], ["y", "z", "t"]])
def test_results_are_written_into_arrays_of_the_caller(exe, feed, names):
    wanted = exe.run(feed)
    given = {name: np.full_like(wanted[name], 7) for name in names}

    found = exe.run(feed, outputs=given)

    assert all(found[name] is given[name] for name in names)
    assert same(found, wanted)


def test_results_on_the_device_are_numpy_arrays_of_a_processor_and_pyopencl_s_of_opencl(exe, feed):
    found = exe.run(feed, outputs="device")
    if exe.target == "opencl":
        assert all(array.queue == exe.queue for array in found.values())
        found = {name: array.get() for name, array in found.items()}

    assert same(found, exe.run(feed))
    with pytest.raises(UsageError, match=r"GPC2038 stream: .* has none of CUDA's"):
        exe.run(feed, stream=0)


def awkward(shape, how):
    """An array of ``shape`` that cannot be written at once."""
    if how == "strided":
        return np.zeros((shape[0], 3 * shape[1]), np.float32)[:, ::3]
    if how == "transposed":
        return np.zeros(shape[::-1], np.float32).T
    raw = np.zeros(4 * shape[0] * shape[1] + 1, np.uint8)
    return raw[1:].view(np.float32).reshape(shape)


@pytest.mark.parametrize("how", ["strided", "transposed", "unaligned"])
def test_arrays_that_cannot_be_written_at_once_get_a_copy(exe, feed, how):
    wanted = exe.run(feed)
    given = awkward((13, 19), how)

    found = exe.run(feed, outputs={"y": given})

    assert found["y"] is given
    assert same(found, wanted)


def test_an_array_may_begin_anywhere_that_its_type_may(exe, feed):
    wanted = exe.run(feed)
    memory = np.zeros(13 * 19 + 3, np.float32)

    exe.run(feed, outputs={"y": memory[3:].reshape(13, 19)})

    np.testing.assert_array_equal(memory[3:].reshape(13, 19), wanted["y"])


def test_a_result_may_replace_the_input_that_it_is_computed_from(exe):
    memory = RNG.standard_normal(13 * 23).astype(np.float32)
    feed = {"x": memory.reshape(13, 23)}
    wanted = exe.run(feed)

    found = exe.run(feed, outputs={"t": memory[: 19 * 13].reshape(19, 13)})

    assert same(found, wanted)


def test_a_tensor_of_another_library_is_written_too(exe, feed):
    torch = pytest.importorskip("torch")
    given = torch.zeros(13, 19)

    found = exe.run(feed, outputs={"y": given})

    assert found["y"] is given
    np.testing.assert_array_equal(given.numpy(), exe.run(feed)["y"])


def read_only():
    array = np.zeros((13, 19), np.float32)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("outputs", "code", "told"),
    [
        ({"q": np.zeros(3)}, "GPC2114", r"there is no output 'q'; outputs that are tensors: 'y', 'z', 't'"),
        ([np.zeros(3)], "GPC2114", "outputs: a mapping of names to arrays expected, found list"),
        (np.zeros(3), "GPC2114", "outputs: a mapping of names to arrays expected, found ndarray"),
        (None, "GPC2114", "outputs: a mapping of names to arrays expected, found NoneType"),
        (
            {"y": np.float32(1)},
            "GPC2115",
            "output 'y': an array in the memory of this model's device expected, found float32",
        ),
        ({"y": np.zeros((13, 19))}, "GPC2115", r"output 'y': element type f32 \(float32\) expected, found float64"),
        ({"y": np.zeros((19, 13), np.float32)}, "GPC2115", r"output 'y': shape \[13, 19\] expected, found \[19, 13\]"),
        ({"y": [[0.0]]}, "GPC2115", "output 'y': an array expected"),
        ({"y": read_only()}, "GPC2115", "output 'y': an array that can be written expected"),
    ],
)
def test_an_array_that_no_result_fits_in_is_refused(exe, feed, outputs, code, told):
    with pytest.raises(InputError, match=told) as error:
        exe.run(feed, outputs=outputs)
    assert error.value.code == code


def test_two_arrays_in_the_same_memory_are_refused(exe, feed):
    memory = np.zeros(13 * 19 + 5, np.float32)
    outputs = {"y": memory[5:].reshape(13, 19), "z": memory[:-5].reshape(13, 19)}

    with pytest.raises(InputError, match="GPC2116 outputs 'y' and 'z' share memory"):
        exe.run(feed, outputs=outputs)
    assert not memory.any()


def test_a_wrong_input_is_told_before_an_output_is_written(exe, feed):
    target = np.zeros((13, 19), np.float32)

    with pytest.raises(InputError, match="GPC2103"):
        exe.run({"x": feed["x"][:5]}, outputs={"y": target})
    assert not target.any()


def test_two_names_of_one_result_are_two_arrays():
    nodes = [node("Relu", ["x"], ["y"]), node("Identity", ["y"], ["again"])]
    exe = gpucomp.compile(model(nodes, [value("x", [3, 7])], ["y", "again"]), target="cpu")
    x, target = RNG.standard_normal((3, 7)).astype(np.float32), np.zeros((3, 7), np.float32)

    for name, other in (("y", "again"), ("again", "y")):
        found = exe.run({"x": x}, outputs={name: target})
        assert found[name] is target
        assert not np.may_share_memory(found[other], target)
        assert np.array_equal(found[other], np.maximum(x, 0))
        assert np.array_equal(target, np.maximum(x, 0))


def test_an_output_that_is_an_input_is_copied_into_the_array():
    exe = gpucomp.compile(model([node("Identity", ["x"], ["y"])], [value("x", [3, 7])], ["y"]), target="cpu")
    x, target = RNG.standard_normal((3, 7)).astype(np.float32), np.zeros((3, 7), np.float32)

    assert exe.run({"x": x}, outputs={"y": target})["y"] is target
    assert np.array_equal(target, x)


def test_a_shape_that_only_the_run_decides_is_checked_at_its_end():
    exe = gpucomp.compile(
        model([node("NonZero", ["x"], ["y"])], [value("x", [2, 3])], [value("y", [2, None], 7)]), target="cpu"
    )
    x = np.array([[1, 0, 2], [0, 0, 3]], np.float32)
    fits, other = np.zeros((2, 3), np.int64), np.zeros((2, 4), np.int64)

    assert exe.run({"x": x}, outputs={"y": fits})["y"] is fits
    assert np.array_equal(fits, np.nonzero(x))
    with pytest.raises(InputError, match=r"GPC2115 output 'y': shape \[2, 3\] expected, found \[2, 4\]"):
        exe.run({"x": x}, outputs={"y": other})


def test_a_lane_that_cannot_be_opened_leaves_the_others_usable(monkeypatch):
    use_numpy(monkeypatch)
    exe, fails = executable(), [True]
    new = type(exe)._new_program

    def refused(self):
        if fails.pop():
            raise MemoryError
        return new(self)

    fails = [False, True]
    monkeypatch.setattr(type(exe), "_new_program", refused)
    x = np.ones((3, 5), np.float32)
    with pytest.raises(gpucomp.GpucompError, match="GPC5013"):
        exe.run({"x": x})

    assert exe.run({"x": x})["y"].shape == (3, 5)


def test_seats_are_as_many_as_threads_are_asked_for():
    seats = Workers()
    with config.using(threads=3):
        assert seats.take(2) == 2
        assert seats.take(3) == 1
    waited: list[int] = []
    late = threading.Thread(target=lambda: waited.append(seats.take(3)))
    late.start()
    late.join(0.05)
    assert late.is_alive()

    seats.give(2)
    late.join(5)

    assert waited == [1], "who waited has one seat"
    assert seats.take(3) == 1
    seats.give(1)
    seats.give(1)
    seats.give(1)
    assert seats.take(9) == 9, "a program that has more threads than the configuration brings its seats"


@pytest.mark.parametrize("pin", [True, False])
def test_helpers_stay_on_one_processor_each_if_they_are_asked_to(pin):
    here = os.sched_getaffinity(0)
    found: dict[int, set[int]] = {}
    done = threading.Semaphore(0)

    def work(number: int, bell: object) -> None:
        found[number] = os.sched_getaffinity(0)  # of this thread
        done.release()

    with config.using(pin=pin):
        Workers().start(work, 4)
        for _ in range(3):
            assert done.acquire(timeout=10)

    if pin:
        assert all(len(place) == 1 for place in found.values())
        assert set().union(*found.values()) == set(sorted(here)[-3:]), "no two share one while others are free"
    else:
        assert all(place == here for place in found.values())
    assert os.sched_getaffinity(0) == here, "the thread that calls stays where it was"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")
def test_helpers_keep_off_the_processor_of_a_caller_that_stays_there():
    here, found, done = os.sched_getaffinity(0), [], threading.Event()

    def work(number: int, bell: object) -> None:
        found.append(os.sched_getaffinity(0))
        done.set()

    os.sched_setaffinity(0, {max(here)})
    try:
        with config.using(pin=True):
            Workers().start(work, 2)
    finally:
        os.sched_setaffinity(0, here)

    assert done.wait(10)
    assert len(found[0]) == 1
    assert found[0] <= here - {max(here)}


def test_who_came_first_is_served_first():
    seats = Workers()
    with config.using(threads=1):
        seats.take(1)
    order: list[int] = []

    def wait(number: int) -> None:
        seats.take(1)
        order.append(number)
        seats.give(1)

    threads = []
    for number in range(4):
        threads.append(threading.Thread(target=wait, args=(number,)))
        threads[-1].start()
        while len(seats._waiting) <= number:
            pass
    seats.give(1)
    for thread in threads:
        thread.join()

    assert order == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("whole", "own", "alone", "counted"),
    [(5.0, 2.0, True, 2.0), (5.0, 2.0, False, 5.0), (5.0, 0.0, True, 5.0), (5.0, 10.0, True, 5.0)],
    ids=["it waited for the interpreter", "with helpers", "a clock that stands still", "a clock of long steps"],
)
def test_what_a_trial_counts_of_a_run(whole, own, alone, counted):
    assert seconds_of((1.0, 3.0), (1.0 + whole, 3.0 + own), alone=alone) == counted


def test_free_seats_are_taken_and_given_without_the_lock():
    """A lock that two threads get in turn makes each wait for the other in every run."""
    seats = Workers()
    with config.using(threads=2):
        seats.give(seats.take(1))
    with seats._lock:
        assert seats.take(1) == 1
        assert seats.take(2) == 1
        seats.give(2)
    assert seats.take(2) == 2


def test_no_seat_is_lost_or_taken_twice_by_many_threads():
    seats, most, held, too_many = Workers(), 3, [0] * 8, []
    with config.using(threads=most):
        seats.give(seats.take(1))

    def work(number: int) -> None:
        for turn in range(400):
            try:
                count = seats.take(1 + (turn + number) % most, stop_after(1e-5) if turn % 5 == 0 else None)
            except RunStoppedError:
                continue
            held[number] = count
            if sum(held) > most:
                too_many.append(number)
            held[number] = 0
            seats.give(count)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(len(held))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        sys.setswitchinterval(before)

    assert not any(thread.is_alive() for thread in threads), "a seat was lost"
    assert not too_many
    assert not seats._waiting
    assert seats.take(most) == most


def test_a_child_process_runs_while_another_thread_of_the_parent_does(feed):
    exe = gpucomp.compile(network(), target="cpu")  # OpenCL does not outlive a fork
    wanted = exe.run(feed)
    held = exe.lanes.take()
    child = os.fork()
    if child == 0:
        os._exit(0 if same(exe.run(feed), wanted) else 1)
    exe.lanes.give(held)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_numbers_are_no_texts():
    texts = model([node("Identity", ["x"], ["y"])], [value("x", [3], 8)], [value("y", [3], 8)])
    exe = gpucomp.compile(texts, target="cpu")

    with pytest.raises(InputError, match="GPC2104"):
        exe.run({"x": np.arange(3.0)})
    with pytest.raises(InputError, match="GPC2115"):
        exe.run({"x": np.array(["a", "b", "c"])}, outputs={"y": np.zeros(3)})


def test_a_new_size_is_kept_though_all_others_are_in_use(monkeypatch):
    monkeypatch.setattr(MovingPrograms, "run", lambda *given: None)  # as on other devices
    exe = gpucomp.compile(network("rows"), target="cpu", shapes={"x": ("rows", 23)})
    feeds = [{"x": np.zeros((rows, 23), np.float32)} for rows in range(1, any_shape.KEPT + 2)]
    for feed in [*feeds[:-1], *feeds]:
        exe.run(feed)

    assert (len(feeds),) in exe._made
    assert len(exe._made) == any_shape.KEPT
    programs = [lane.programs for lane in exe.program.lanes._lanes]
    gc.collect()
    assert all(len(of_lane) <= any_shape.KEPT for of_lane in programs)


def test_a_run_keeps_no_array_of_the_caller_s(feed):
    exe = gpucomp.compile(network(), target="cpu")
    target = np.zeros((13, 19), np.float32)
    held = [weakref.ref(feed["x"]), weakref.ref(target)]

    found = exe.run(feed, outputs={"y": target})
    exe.profile(feed)
    feed.clear()
    del target, found
    gc.collect()

    assert [one() for one in held] == [None, None]


@pytest.mark.parametrize("rows", [13, "rows"])
@pytest.mark.parametrize("later", [False, True])
def test_a_dict_of_the_caller_s_may_change_while_a_run_waits(feed, rows, later):
    exe = gpucomp.compile(network(rows), target="cpu", shapes={"x": (rows, 23)})
    wanted = exe.run(feed)["y"]
    target, small = np.zeros((13, 19), np.float32), np.zeros((1, 19), np.float32)
    inputs, outputs = dict(feed), {"y": target}
    seats = workers.take(workers._seats)
    if later:
        run = exe.run_async(inputs, outputs=outputs)
    else:
        run = threading.Thread(target=exe.run, args=(inputs,), kwargs={"outputs": outputs})
        run.start()
        while not workers._waiting:
            time.sleep(1e-3)
    inputs["x"], outputs["y"] = feed["x"][:1], small
    workers.give(seats)
    run.result() if later else run.join()

    np.testing.assert_array_equal(target, wanted)
    assert not small.any()


def test_async_runs_that_were_accepted_end_before_a_context_is_closed(exe, feed):
    with exe.context() as context:
        pending = [context.run_async(feed) for _ in range(5)]

    assert all(one.result(0)["y"].shape == (13, 19) for one in pending)
    with pytest.raises(UsageError, match="GPC2037 this context is closed"):
        context.run_async(feed)


def test_who_stops_waiting_for_a_lane_leaves_the_next_one_waiting_for_it():
    exe = gpucomp.compile(network(), target="cpu")
    lanes = exe.lanes
    with config.using(threads=1):
        lane = lanes.take()

        class Late(Stop):
            def check(self):
                lanes._free.append(lane)  # given back, and this one told, in the moment in which it gives up
                raise RunStoppedError("late", code="GPC1102")

        got = []
        waiter = threading.Thread(target=lambda: got.append(lanes.take()))
        waiter.start()
        while lanes._waiting < 1:
            pass
        with pytest.raises(RunStoppedError):
            lanes.take(Late())
        waiter.join(5)

    assert got == [lane]
