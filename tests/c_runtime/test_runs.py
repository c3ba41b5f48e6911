"""The C runtime gives the bits that Python does: for fixed sizes, any sizes, loops and states, with any number of threads."""

import ctypes
import subprocess
import threading

import numpy as np
import pytest

import gpucomp
from gpucomp.errors import InputError
from gpucomp.runtime import artifact
from gpucomp.runtime.executable import Executable
from testing.c_library import COMPILERS, NATIVE, SOURCES, Model, NativeError, build, same_bits
from tests.c_runtime import models
from tests.c_runtime.models import (
    any_size,
    any_size_declared,
    any_size_feed,
    filtered,
    fixed,
    generator,
    rows_of_any_number,
    tokens,
)
from tests.c_runtime.state_checks import check_a_state_made_anew
from tests.onnx_builders import model, node, value

pytestmark = pytest.mark.skipif(not COMPILERS, reason="no C compiler")
SIZES = [(1, 4, 1), (5, 64, 90), (2, 8, 33), (1, 4, 1), (3, 64, 17)]


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("name", models.FIXED)
def test_bits_are_those_of_python(name, threads):
    exe, path, feeds = fixed(name)
    context = Model(path).context(threads=threads)

    for feed in feeds * 12:  # the first runs try how many threads pay
        assert same_bits(context.run(feed), exe.run(feed))


def test_weights_in_large_pages(tmp_path):
    """Weights of 32 MiB are copied into large pages where the system gives them; the results are the same."""
    w = models.RNG.standard_normal((2048, 4300)).astype(np.float32)
    made = model([node("MatMul", ["x", "w"], ["y"])], [value("x", [1, 2048])], weights={"w": w})
    exe = gpucomp.compile(made, target="cpu")
    exe.save(tmp_path / "m.gpuc")
    feed = {"x": models.RNG.standard_normal((1, 2048)).astype(np.float32)}
    opened = Model(tmp_path / "m.gpuc")

    assert opened.info.weight_bytes > 32 << 20
    assert same_bits(opened.context().run(feed), exe.run(feed))


@pytest.mark.parametrize("threads", [1, 2])
def test_any_size(threads):
    exe, path = any_size()
    context = Model(path).context(threads=threads)

    for size in SIZES * 3:
        feed = any_size_feed(*size)
        assert same_bits(context.run(feed), exe.run(feed))


def test_threads_share_runs_of_any_size():
    exe, path = rows_of_any_number()
    context = Model(path).context(threads=4)

    for rows in (6000, 500, 8192, 1, 3000) * 3:
        feed = {"x": models.RNG.standard_normal((rows, 1024)).astype(np.float32)}
        assert same_bits(context.run(feed), exe.run(feed))


def test_late_helpers_leave_the_next_plan_alone():
    """The outputs of a run are unmapped after it, and the next plan has more tasks: whoever works on finds no memory."""
    program = build("resized", [NATIVE.parents[1] / "tests/c_runtime/resized.c", *SOURCES], "-O2")
    command = [program, rows_of_any_number()[1], "1024", "500", "8000", "4", "400"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "400 runs\n", "")


def test_sizes_of_their_own_programs():
    exe, path = any_size()
    path = path.with_name("declared.gpuc")
    declared = any_size_declared({"n": 2, "h": 8, "w": 33})
    declared.save(path)
    context, own = Model(path).context(), artifact.load(path).fixed[0][1]
    own = Executable(own.plan, own.sources, own.binaries, own.weights)
    feed, other = any_size_feed(2, 8, 33), any_size_feed(3, 8, 33)

    assert context.model.info.fixed == 1
    assert same_bits(context.run(feed), own.run(feed))
    assert same_bits(context.run(other), exe.run(other))
    assert same_bits(context.run(feed), own.run(feed))


@pytest.mark.parametrize("threads", [1, 2])
def test_states_that_grow(threads):
    exe, path = generator()
    context, python = Model(path).context(threads=threads), exe.context()

    for count in (5, 1, 1, 7, 1, 3, 20, 1):
        feed = tokens(count, 2)
        assert same_bits(context.run(feed), python.run(feed))
        assert context.rows(0) == python.rows[models.PAST[0]]
    for number, info in enumerate(context.model.states):
        assert (context.save(number) == python.save()[info.name.decode()]).all()


def test_rewound_and_restored_states():
    _, path = generator()
    model = Model(path)
    first, second, feeds = model.context(), model.context(), [tokens(count) for count in (4, 3, 2)]
    for feed in feeds[:2]:
        first.run(feed)
    kept = [first.save(number) for number in range(len(model.states))]
    wanted = first.run(feeds[2])
    first.call("gpucomp_rewind", ctypes.c_int64(7))
    for number, array in enumerate(kept):
        second.restore(number, array)

    assert same_bits(first.run(feeds[2]), wanted)
    assert same_bits(second.run(feeds[2]), wanted)
    with pytest.raises(NativeError, match=r"GPC2041 rewind: 0 to 9 rows expected, found 10"):
        first.call("gpucomp_rewind", ctypes.c_int64(10))
    first.call("gpucomp_reset")
    assert first.rows(0) == 0


def test_a_state_that_each_run_makes_anew():
    exe, path = filtered()
    check_a_state_made_anew(Model(path), exe.context(), 5)


def test_a_full_state():
    exe, path = generator()
    context, python = Model(path).context(), exe.context()
    context.run(tokens(60)), python.run(tokens(60))

    with pytest.raises(InputError) as told:
        python.run(tokens(5))
    with pytest.raises(NativeError, match="has room for 64 rows, 60 are in it and this run appends 5") as told_here:
        context.run(tokens(5))
    assert told_here.value.code == told.value.code == "GPC2118"
    assert context.rows(0) == 60


def test_contexts_of_one_model_run_side_by_side():
    exe, path, feeds = fixed("mobilenet_v2")
    model, wanted = Model(path), exe.run(feeds[0])
    found = []

    def work():
        context = model.context(threads=2)
        found.extend(same_bits(context.run(feeds[0]), wanted) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert found == [True] * 80


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", ["mobilenet_v2", "lstm_both_ways", "any_size", "generator"])
def test_runs_allocate_nothing(name, threads):
    path = {"any_size": any_size, "generator": generator}.get(name, lambda: fixed(name))()[1]
    program = build("allocations", [NATIVE.parents[1] / "tests/c_runtime/allocations.c", *SOURCES], "-O1")
    done = subprocess.run([program, path, str(threads)], capture_output=True, text=True, timeout=300, check=False)

    assert (done.stdout, done.stderr) == ("40 runs, 0 allocations\n", "")


def test_arena_bytes():
    exe, path = any_size()
    model = Model(path)
    assert isinstance(exe, Executable)
    assert model.arena_bytes(n=5, h=64, w=90) == model.arena_bytes() == exe.at(n=5, h=64, w=90).plan.arena_bytes
    assert model.arena_bytes(n=1, h=4, w=1) == exe.at(n=1, h=4, w=1).plan.arena_bytes
