"""Plans on OpenCL (PoCL): one queue, weights uploaded once, host operators in between, errors that say which device."""

from __future__ import annotations

import builtins
from dataclasses import replace

import numpy as np
import pytest

from gpucomp.errors import DeviceError, KernelBuildError
from gpucomp.runtime import opencl_arrays
from gpucomp.runtime.opencl import OpenCLProgram
from gpucomp.targets import opencl, opencl_build
from tests.plans import COLUMNS, ROWS, answer, split_products, two_layers

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
    (binary,) = cl.Program(context, text).build(list(opencl_build.FLAGS)).get_info(cl.program_info.BINARIES)

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

    with pytest.raises(DeviceError, match="no device for target opencl:pocl; its OpenCL devices are none"):
        OpenCLProgram(plan, sources, {}, weights)


def test_missing_pyopencl_names_the_extra(monkeypatch):
    found = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "pyopencl":
            raise ImportError(name)
        return found(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)

    with pytest.raises(DeviceError, match=r"pip install 'pyopencl>=2025.1'"):
        opencl.pyopencl()


def test_a_host_operator_that_gives_another_shape_is_an_error():
    from gpucomp.runtime.host import run_host

    plan, _, _ = two_layers(opencl.manifest("pocl"), host=True)
    launch = plan.launches[1]

    with pytest.raises(DeviceError, match=r"Relu gave shape \[2\], the plan has \[5, 7\]"):
        run_host(plan, launch, [np.zeros(2, np.float32)])
    with pytest.raises(DeviceError, match="no host operator 'Nonsense'"):
        run_host(plan, replace(launch, host="Nonsense"), [X])


# ---- devices that ask for more, or give less ----


def allocated(monkeypatch, most=None):
    """Sizes of the buffers that are made from now on; with ``most`` larger ones are refused, as drivers do."""
    cl, sizes = opencl.pyopencl(), []
    whole = cl.Buffer

    def buffer(context, flags, size):
        if most is not None and size > most:
            raise cl.LogicError("clCreateBuffer failed: INVALID_BUFFER_SIZE")
        sizes.append(size)
        return whole(context, flags, size)

    monkeypatch.setattr(cl, "Buffer", buffer)
    return sizes


def says(monkeypatch, **answers):
    """Devices answer so."""
    for question, answer_ in answers.items():
        monkeypatch.setattr(opencl.pyopencl().Device, question, answer_, raising=False)


def test_parts_of_the_arena_are_aligned_to_what_nvidia_asks_for():
    for flavour in (*opencl.FLAVOURS, *opencl.AMD):
        assert opencl.manifest(flavour).alignment == 512


@pytest.mark.parametrize(
    "answers",
    [
        {"mem_base_addr_align": 8 * 4096},
        {"max_mem_alloc_size": 1024},
        {"name": "Mali-G76 r0p0"},
        {"vendor": "Imagination"},
    ],
    ids=["alignment", "largest allocation", "bifrost", "powervr"],
)
def test_where_parts_of_an_arena_will_not_do_buffers_are_whole(monkeypatch, answers):
    says(monkeypatch, **answers)
    monkeypatch.setattr(opencl, "device_of", lambda target: opencl.devices()[0])
    parts = []
    monkeypatch.setattr(opencl.pyopencl().Buffer, "get_sub_region", lambda *args: parts.append(args))
    sizes = allocated(monkeypatch, answers.get("max_mem_alloc_size"))

    program = opened(host=True)

    assert parts == []
    assert sizes == [4 * ROWS * COLUMNS] * 2 + [b.nbytes or 1 for b in program.plan.buffers if b.kind != "temp"]
    for scale in (1, -2):
        for name, wanted in answer(X * np.float32(scale), host=True).items():
            np.testing.assert_array_equal(program.run({"x": X * np.float32(scale)})[name], wanted, err_msg=name)


def test_elsewhere_temporaries_are_parts_of_one_arena(monkeypatch):
    sizes = allocated(monkeypatch)

    program = opened()

    assert sizes.count(program.plan.arena_bytes) == 1


@pytest.mark.parametrize(
    ("vendor", "name", "has"),
    [("ARM", "Mali-G610 r0p0", True), ("ARM", "Mali-G57 MC2", True), ("ARM", "Mali-G710 r0p0", True),
     ("ARM", "Mali-G31 r0p0", False), ("ARM", "Mali-G52 r1p0", False), ("ARM", "Mali-G71", False),
     ("ARM", "Mali-T880 r2p0", False), ("Imagination Technologies", "PowerVR B-Series BXM-8-256", False),
     ("Intel(R) Corporation", "Intel(R) UHD Graphics", True)],
)  # fmt: skip
def test_drivers_that_fail_with_parts_of_buffers_are_known(monkeypatch, vendor, name, has):
    says(monkeypatch, vendor=vendor, name=name)

    assert opencl.has_sub_buffers(opencl.devices()[0]) == has


def test_a_buffer_above_the_largest_allocation_is_named(monkeypatch):
    says(monkeypatch, max_mem_alloc_size=64)
    allocated(monkeypatch, 64)

    with pytest.raises(
        DeviceError, match=r"cannot allocate a buffer of 140 bytes .* its largest allocation is 64 bytes"
    ) as found:
        opened()

    assert found.value.code == "GPC5004"


@pytest.mark.parametrize("kind", ["MemoryError", "LogicError", "RuntimeError"])
@pytest.mark.parametrize(
    ("where", "code"),
    [("Context", "GPC5005"), ("CommandQueue", "GPC5005"), ("Buffer", "GPC5004"), ("enqueue_copy", "GPC5005")],
)
def test_every_error_of_opening_has_a_code(monkeypatch, kind, where, code):
    cl = opencl.pyopencl()

    def fails(*args, **options):
        raise getattr(cl, kind)("the driver's words")

    monkeypatch.setattr(cl, where, fails)
    monkeypatch.setattr(opencl_arrays, "_contexts", {})  # programs that were opened before have one

    with pytest.raises(DeviceError, match="the driver's words") as found:
        opened()

    assert found.value.code == ("GPC5004" if kind == "MemoryError" else code)


@pytest.mark.parametrize("kind", ["MemoryError", "LogicError", "RuntimeError"])
@pytest.mark.parametrize("where", ["Program", "Kernel"])
def test_every_error_of_building_is_one_of_a_kernel(monkeypatch, kind, where):
    cl = opencl.pyopencl()

    def fails(*args, **options):
        raise getattr(cl, kind)("the driver's words")

    monkeypatch.setattr(cl, where, fails)

    with pytest.raises(KernelBuildError, match=r"the driver's words.* compile the model on this device"):
        opened()


@pytest.mark.parametrize("kind", ["MemoryError", "LogicError", "RuntimeError"])
@pytest.mark.parametrize("where", ["enqueue_nd_range_kernel", "enqueue_map_buffer"])
@pytest.mark.parametrize("how", ["run", "profile"])
def test_every_error_of_running_has_a_code(monkeypatch, kind, where, how):
    program = opened()
    monkeypatch.setattr(program, "_mapped", True)

    def fails(*args, **options):
        raise getattr(program._cl, kind)("the driver's words")

    monkeypatch.setattr(program._cl, where, fails)

    with pytest.raises(DeviceError, match=r"the run failed: .*the driver's words") as found:
        getattr(program, how)({"x": X})

    assert found.value.code == ("GPC5004" if kind == "MemoryError" else "GPC5006")


@pytest.mark.parametrize("how", ["profile", "timeline", "time_launches"])
def test_a_driver_that_does_not_tell_its_times_has_a_code(monkeypatch, how):
    program = opened()
    enqueue = program._cl.enqueue_nd_range_kernel

    class Event:
        @property
        def profile(self):
            raise program._cl.RuntimeError("PROFILING_INFO_NOT_AVAILABLE")

    monkeypatch.setattr(program._cl, "enqueue_nd_range_kernel", lambda *args: enqueue(*args) and Event())

    with pytest.raises(DeviceError, match="the run failed: PROFILING_INFO_NOT_AVAILABLE") as found:
        getattr(program, how)({"x": X}, *([2] if how == "time_launches" else []))

    assert found.value.code == "GPC5006"


@pytest.mark.parametrize("asked", ["WORK_GROUP_SIZE", "LOCAL_MEM_SIZE"])
def test_a_kernel_that_cannot_be_launched_is_told_when_it_is_opened(monkeypatch, asked):
    cl = opencl.pyopencl()
    question = getattr(cl.kernel_work_group_info, asked)
    answers = {"WORK_GROUP_SIZE": 0, "LOCAL_MEM_SIZE": 1 << 40}
    whole = cl.Kernel.get_work_group_info
    monkeypatch.setattr(
        cl.Kernel, "get_work_group_info", lambda k, i, d: answers[asked] if i == question else whole(k, i, d)
    )
    says(monkeypatch, local_mem_type=cl.device_local_mem_type.LOCAL)

    with pytest.raises(KernelBuildError, match=r"kernel k0: .*; compile the model on this device") as found:
        opened()

    assert found.value.code == "GPC5104"


# ---- running where memory is the host's, and telling the driver to start ----


def test_inputs_and_outputs_are_the_host_s_where_memory_is(monkeypatch):
    cl = opencl.pyopencl()
    says(monkeypatch, host_unified_memory=True)
    program = opened()
    host = {
        b.name
        for b, m in zip(program.plan.buffers, program._buffers, strict=True)
        if m.flags & cl.mem_flags.ALLOC_HOST_PTR
    }
    copies = []
    monkeypatch.setattr(cl, "enqueue_copy", lambda *args, **options: copies.append(args))

    found = program.run({"x": X})

    assert host == {"x", "y", "z", "nothing"}
    assert copies == []
    np.testing.assert_array_equal(found["y"], answer(X)["y"])


def test_they_are_copied_to_a_device_with_memory_of_its_own(monkeypatch):
    says(monkeypatch, host_unified_memory=False)
    program = opened(host=True)
    monkeypatch.setattr(program._cl, "enqueue_map_buffer", None)

    assert not any(m.flags & program._cl.mem_flags.ALLOC_HOST_PTR for m in program._buffers)
    np.testing.assert_array_equal(program.run({"x": X})["y"], answer(X, host=True)["y"])


def test_runs_and_profiles_take_turns_with_mapped_memory(monkeypatch):
    says(monkeypatch, host_unified_memory=True)
    program = opened(host=True)

    for scale in (1, 2, 3):
        program.profile({"x": X})
        np.testing.assert_array_equal(program.run({"x": scale * X})["y"], answer(scale * X, host=True)["y"])


def test_the_driver_is_told_to_start_while_more_is_launched(monkeypatch):
    plan, sources, weights = two_layers(opencl.manifest("pocl"))
    first, second = plan.launches
    program = OpenCLProgram(replace(plan, launches=(*[first] * 39, second)), sources, {}, weights)
    queue, done, enqueue = program._queue, [], program._cl.enqueue_nd_range_kernel

    class Telling:
        def __getattr__(self, name):
            return getattr(queue, name)

        def flush(self):
            done.append("flush")
            queue.flush()

    def launch(q, *args):
        done.append("launch")
        return enqueue(queue, *args)

    monkeypatch.setattr(program, "_mapped", True)
    monkeypatch.setattr(program._cl, "enqueue_nd_range_kernel", launch)
    whole = program._cl.enqueue_map_buffer
    monkeypatch.setattr(program._cl, "enqueue_map_buffer", lambda q, *args, **options: whole(queue, *args, **options))
    monkeypatch.setattr(program, "_queue", Telling())

    found = program.run({"x": X})

    assert [done[: at + 1].count("launch") for at, what in enumerate(done) if what == "flush"] == [16, 32]
    np.testing.assert_array_equal(found["y"], answer(X)["y"])
