"""A driver's compiler that is never done: left behind after a while, told, and the kernel compiled by a smaller schedule."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest

import gpucomp
from gpucomp.errors import KernelBuildError
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.source import KernelSource
from gpucomp.targets import opencl, opencl_build, patience
from gpucomp.targets.patience import patiently
from testing.tolerance import assert_matches
from tests.onnx_builders import model, node, value

TEXT = "__kernel void k0(__global float* x) { x[0] = 1; }"


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(patience, "LEAST_S", 0.1)
    monkeypatch.setattr(patience, "KERNEL_S", 0.01)
    monkeypatch.setattr(patience, "BUSY", 1)


@pytest.fixture
def hanging(monkeypatch):
    """Texts whose builds do not end before the test does; the clock goes on by hours with each."""
    cl, texts, over, builds = opencl.pyopencl(), set(), threading.Event(), []
    build = cl.Program.build

    def hang(program, *args, **options):
        if program.get_info(cl.program_info.SOURCE).rstrip("\0") in texts:
            builds.append(program)
            over.wait()
        return build(program, *args, **options)

    clock = SimpleNamespace(monotonic=lambda: 10_000.0 * len(builds), process_time=lambda: 0.0)
    monkeypatch.setattr(patience, "time", clock)
    monkeypatch.setattr(cl.Program, "build", hang)
    yield texts
    over.set()


def test_what_is_done_in_time_is_returned_and_what_it_raises_raised():
    def fail():
        raise TimeoutError("of its own")

    assert patiently(lambda: 7, 1) == 7
    with pytest.raises(TimeoutError, match="of its own"):
        patiently(fail, 1)


def test_what_is_never_done_is_left_behind_and_keeps_nobody_waiting(impatient):
    over = threading.Event()

    with pytest.raises(TimeoutError, match=r"was not done after \d s"):
        patiently(over.wait, 3)

    (left,) = (thread for thread in threading.enumerate() if thread.name == "a driver's compiler")
    assert left.daemon
    over.set()
    left.join()


def test_a_driver_that_never_ends_is_given_no_more(impatient, monkeypatch):
    """Where it compiles one at a time, each would be waited for in vain; what ends after all makes room again."""
    monkeypatch.setattr(patience, "_left", [])
    over = threading.Event()
    for _ in range(patience.MOST_LEFT):
        with pytest.raises(TimeoutError, match="was not done after"):
            patiently(over.wait, 1)

    with pytest.raises(TimeoutError, match="hangs in 3 compilations, so this process does not call it again"):
        patiently(lambda: 7, 1)
    over.set()
    for left in patience._left:
        left.result()
    assert patiently(lambda: 7, 1) == 7


def test_a_compiler_has_more_time_for_more_kernels(impatient, monkeypatch):
    monkeypatch.setattr(patience, "KERNEL_S", 60.0)
    over = threading.Event()
    threading.Timer(0.3, over.set).start()

    assert patiently(over.wait, 1)


def test_a_kernel_whose_build_is_never_done_is_refused_by_name(hanging):
    device = opencl.device_of(opencl.manifest("pocl"))
    context = opencl.pyopencl().Context([device])
    hanging.add(TEXT)

    with pytest.raises(KernelBuildError, match=r"GPC5105 kernel k0: .*compiler was not done after .*its source is at"):
        opencl_build.load_all(context, device, [(KernelSource("k0", "opencl", TEXT, Geometry((1, 1, 1))), b"")], None)


def test_a_kernel_that_is_alone_is_built_once(monkeypatch):
    """Its compiler would be waited for twice, and left behind in two threads."""
    device = opencl.device_of(opencl.manifest("pocl"))
    cl, builds = opencl.pyopencl(), []
    build = cl.Program.build
    monkeypatch.setattr(cl.Program, "build", lambda program, *a, **o: builds.append(1) or build(program, *a, **o))
    source = KernelSource("k0", "opencl", TEXT.replace("x[0]", "nonsense"), Geometry((1, 1, 1)))

    with pytest.raises(KernelBuildError, match="nonsense"):
        opencl_build.load_all(cl.Context([device]), device, [(source, b"")], None)

    assert len(builds) == 1


def test_a_model_is_compiled_by_a_smaller_schedule_where_a_build_is_never_done(hanging):
    made = model(
        [node("MatMul", ["x", "w"], ["y"])],
        [value("x", (1, 256))],
        [value("y", None)],
        {"w": np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)},
    )
    whole = gpucomp.compile(made, target="opencl:pocl")
    x = np.random.default_rng(1).standard_normal((1, 256)).astype(np.float32)
    right = whole.run({"x": x})["y"]
    hanging |= set(whole.sources.values())

    with pytest.warns(RuntimeWarning, match="now compiled with smaller schedules: .*compiler was not done"):
        smaller = gpucomp.compile(made, target="opencl:pocl")

    assert set(smaller.sources.values()).isdisjoint(hanging)
    assert_matches(smaller.run({"x": x})["y"], right, terms=256)
