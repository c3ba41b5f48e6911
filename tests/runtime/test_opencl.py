"""Plans on OpenCL (PoCL): one queue, weights uploaded once, host operators in between, errors that say which device."""

from __future__ import annotations

import builtins

import numpy as np
import pytest
from plans import COLUMNS, ROWS, answer, split_products, two_layers

from gpucomp.errors import DeviceError
from gpucomp.runtime.opencl import OpenCLProgram
from gpucomp.targets import opencl

X = np.random.default_rng(3).standard_normal((ROWS, COLUMNS)).astype(np.float32)
LEFT = np.random.default_rng(5).integers(-9, 10, (19, 53)).astype(np.float32)


@pytest.fixture(autouse=True)
def no_shared_cache(tmp_path, monkeypatch):
    from gpucomp import config

    with config.using(cache=tmp_path):
        yield


def opened(host=False, binaries=None):
    plan, sources, weights = two_layers(opencl.manifest("pocl"), host=host)
    return OpenCLProgram(plan, sources, binaries or {}, weights)


@pytest.mark.parametrize("host", [False, True])
def test_a_plan_gives_its_answer_run_after_run(host):
    program = opened(host)

    for scale in (1, -2, 3):
        found = program.run({"x": X * np.float32(scale)})

        for name, wanted in answer(X * np.float32(scale), host=host).items():
            np.testing.assert_array_equal(found[name], wanted, err_msg=name)


def test_outputs_are_fresh_arrays():
    program = opened()

    first = program.run({"x": X})
    program.run({"x": -X})

    np.testing.assert_array_equal(first["y"], answer(X)["y"])


@pytest.mark.parametrize("mapped", [False, True])
def test_a_run_synchronises_once(monkeypatch, mapped):
    """But where memory is the host's it waits for a mapping of each input first, when nothing is under way."""
    program = opened()
    monkeypatch.setattr(program, "_mapped", mapped)
    waits = []
    queue, cl = program._queue, program._cl

    class Counting:
        def __getattr__(self, name):
            return getattr(queue, name)

        def finish(self):
            waits.append("finish")
            queue.finish()

    def counted(name):
        whole = getattr(cl, name)

        def enqueue(q, *args, **options):
            waits.extend([name] * bool(options.get("is_blocking", name != "enqueue_nd_range_kernel")))
            return whole(queue, *args, **options)

        monkeypatch.setattr(cl, name, enqueue)

    monkeypatch.setattr(program, "_queue", Counting())
    for name in ("enqueue_copy", "enqueue_map_buffer", "enqueue_nd_range_kernel"):
        counted(name)

    found = program.run({"x": X})

    assert waits == ["enqueue_map_buffer"] * mapped + ["finish"]
    for name, wanted in answer(X).items():
        np.testing.assert_array_equal(found[name], wanted, err_msg=name)


def stopped_midway(monkeypatch, program, error):
    """The next launch lacks the work-groups of one split and fails; those behind it are whole."""
    whole, sizes = program._cl.enqueue_nd_range_kernel, []

    def enqueue(queue, kernel, size, items):
        sizes.append(size)
        if len(sizes) > 1:
            return whole(queue, kernel, size, items)
        tiles, splits, _ = size
        whole(queue, kernel, (tiles, splits - 1, 1), items)
        raise error

    monkeypatch.setattr(program._cl, "enqueue_nd_range_kernel", enqueue)


@pytest.fixture
def product():
    """A program whose sums are split, and what it has to give."""
    plan, sources, weights = split_products(opencl.manifest("pocl"))
    return OpenCLProgram(plan, sources, {}, weights), lambda x: np.maximum(x @ weights["w0"] + weights["w1"], 0)


@pytest.mark.parametrize("first", ["run", "profile"])
def test_after_a_launch_that_stopped_midway_sums_are_whole_again(monkeypatch, product, first):
    program, right = product
    np.testing.assert_array_equal(program.run({"x": LEFT})["y"], right(LEFT))
    stopped_midway(monkeypatch, program, program._cl.RuntimeError("out of resources"))

    with pytest.raises(DeviceError, match="the run failed: out of resources"):
        getattr(program, first)({"x": LEFT})

    for sign in (-1, 1):
        np.testing.assert_array_equal(program.run({"x": sign * LEFT})["y"], right(sign * LEFT))


def test_an_interrupted_run_leaves_no_counts_behind(monkeypatch, product):
    program, right = product
    stopped_midway(monkeypatch, program, KeyboardInterrupt())

    with pytest.raises(KeyboardInterrupt):
        program.run({"x": LEFT})

    np.testing.assert_array_equal(program.run({"x": LEFT})["y"], right(LEFT))


def test_counters_are_filled_after_a_failure_only(monkeypatch, product):
    program, filled = product[0], []
    monkeypatch.setattr(program, "_zero", lambda memory, buffer: filled.append(buffer.name))

    for _ in range(2):
        program.run({"x": LEFT})
    program.profile({"x": LEFT})
    program.time_launches({"x": LEFT}, 2)

    assert filled == []
    stopped_midway(monkeypatch, program, program._cl.RuntimeError("out of resources"))
    with pytest.raises(DeviceError):
        program.time_launches({"x": LEFT}, 2)
    for _ in range(2):
        program.run({"x": LEFT})
    assert filled == ["c0"]


def test_binaries_are_used_and_foreign_ones_are_built_from_the_source():
    cl = opencl.pyopencl()
    _, sources, _ = two_layers(opencl.manifest("pocl"))
    text = sources["k0.src"]
    context = cl.Context([opencl.device_of(opencl.manifest("pocl"))])
    (binary,) = cl.Program(context, text).build(list(opencl.FLAGS)).get_info(cl.program_info.BINARIES)

    for member in (bytes(binary), b"\x7fELF of another driver", text.encode()):
        found = opened(binaries={"k0.bin": member}).run({"x": X})

        np.testing.assert_array_equal(found["y"], answer(X)["y"])


def test_profiling_gives_a_time_for_every_launch():
    times = opened(host=True).profile({"x": X})

    assert len(times) == 3
    assert times[1] == 0.0
    assert times[0] > 0
    assert times[2] > 0


def test_a_timeline_has_a_span_for_every_kernel_and_the_host_none():
    program = opened(host=True)

    times, spans = program.timeline({"x": X})

    assert [s.launch for s in spans] == [0, 2]
    assert [s.end - s.start for s in spans] == pytest.approx([times[0], times[2]])
    assert 0 == spans[0].start < spans[1].start
    assert program.ceilings() is None


def test_a_missing_device_is_a_device_error(monkeypatch):
    monkeypatch.setattr(opencl, "devices", lambda: ())
    plan, sources, weights = two_layers(opencl.manifest("pocl"))

    with pytest.raises(DeviceError, match="opencl:pocl here; devices are none"):
        OpenCLProgram(plan, sources, {}, weights)


def test_missing_pyopencl_names_the_extra(monkeypatch):
    found = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "pyopencl":
            raise ImportError(name)
        return found(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)

    with pytest.raises(DeviceError, match=r"pip install gpucomp\[opencl\]"):
        opencl.pyopencl()


def test_a_host_operator_that_gives_another_shape_is_an_error():
    from dataclasses import replace

    from gpucomp.runtime.host import run_host

    plan, _, _ = two_layers(opencl.manifest("pocl"), host=True)
    launch = plan.launches[1]

    with pytest.raises(DeviceError, match=r"Relu gave shape \[2\], the plan has \[5, 7\]"):
        run_host(plan, launch, [np.zeros(2, np.float32)])
    with pytest.raises(DeviceError, match="no host operator 'Nonsense'"):
        run_host(plan, replace(launch, host="Nonsense"), [X])
