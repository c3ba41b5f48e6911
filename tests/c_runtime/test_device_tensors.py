"""The C runtime on tensors that are in a device's memory, and runs that are not waited for: OpenCL, CUDA and HIP."""

from __future__ import annotations

import ctypes
import functools
import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import gpucomp
from gpucomp import Dim
from gpucomp.targets import amdgcn
from testing.c_library import COMPILERS, Model, NativeError, OnDevice, same_bits
from testing.cuda_on_cpu.harness import hip_compiler
from tests.c_runtime import models, test_cuda, test_opencl
from tests.c_runtime.gpus import EmulatedCuda, EmulatedHip
from tests.onnx_builders import model, node, value

RNG = np.random.default_rng(5)
COPIES = ("upload", "download", "htod", "dtoh", "copy")


@dataclass
class Device:
    """A device with memory of the caller's. ``log`` has the copies to, from and on it since ``clear``, where it tells them."""

    model: Model
    put: Callable[[np.ndarray, int], OnDevice]  # the array, in memory that begins so many bytes behind an aligned place
    get: Callable[[OnDevice, np.dtype], np.ndarray]
    queue: Callable[[], int]
    wait: Callable[[int], None]
    log: Callable[[], list[str]] | None
    kept: list[Any]


def chain(low: int = 3) -> Any:
    """y = tanh(x) + x, and z = -y: two outputs of the shape of the input."""
    nodes = [node("Tanh", ["x"], ["t"]), node("Add", ["t", "x"], ["y"]), node("Neg", ["y"], ["z"])]
    return model(nodes, [value("x", ["n", 40])], ["y", "z"]), {"x": (Dim("n", low, 9), 40)}


@functools.cache
def saved(target: str) -> tuple[Any, Any]:
    proto, shapes = chain()
    return models.saved("chain", gpucomp.compile(proto, target=target, shapes=shapes), target)


def on_opencl() -> Device:
    cl = pytest.importorskip("pyopencl")
    if not test_opencl.has_pocl():
        pytest.skip("no PoCL")
    _, path = saved("opencl:pocl")
    opened = Model(path)
    context = cl.Context.from_int_ptr(opened.info.native_context, retain=True)
    device = cl.Device.from_int_ptr(opened.info.native_device, retain=True)
    queue, kept = cl.CommandQueue(context, device), []

    def put(array: np.ndarray, offset: int = 0) -> OnDevice:
        buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=array)
        kept.append(buffer)
        return OnDevice(buffer.int_ptr, array.shape, array.nbytes)

    def get(tensor: OnDevice, dtype: np.dtype) -> np.ndarray:
        found = np.empty(tensor.shape, dtype)
        cl.enqueue_copy(queue, found, cl.Buffer.from_int_ptr(tensor.place, retain=True))
        return found

    return Device(opened, put, get, lambda: queue.int_ptr, lambda _: queue.finish(), None, kept)


def on_gpu(gpu: EmulatedCuda | EmulatedHip, path: Any) -> Device:
    cuda = isinstance(gpu, EmulatedCuda)
    library = gpu.driver.library if cuda else gpu.library
    allocate, stream, finish = (
        ("cuMemAlloc_v2", "cuStreamCreate", "cuStreamSynchronize")
        if cuda
        else ("hipMalloc", "hipStreamCreateWithFlags", "hipStreamSynchronize")
    )
    opened = Model(path, library=library._name)
    if cuda:
        assert opened.info.native_context
    assert opened.info.device_number == 0

    @contextmanager
    def current() -> Iterator[None]:
        """The model's context is that of this thread."""
        if cuda:
            library.cuCtxPushCurrent_v2(ctypes.c_void_p(opened.info.native_context))
        yield
        if cuda:
            library.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))

    def put(array: np.ndarray, offset: int = 0) -> OnDevice:
        place = ctypes.c_uint64()
        with current():
            assert getattr(library, allocate)(ctypes.byref(place), ctypes.c_size_t(array.nbytes + offset)) == 0
        at = place.value + offset
        ctypes.memmove(at, array.ctypes.data, array.nbytes)
        return OnDevice(at, array.shape, array.nbytes)

    def get(tensor: OnDevice, dtype: np.dtype) -> np.ndarray:
        return np.frombuffer(ctypes.string_at(tensor.place, tensor.nbytes), dtype).reshape(tensor.shape)

    def queue() -> int:
        made = ctypes.c_void_p()
        with current():
            assert getattr(library, stream)(ctypes.byref(made), ctypes.c_uint(1)) == 0
        return made.value

    def wait(made: int) -> None:
        with current():
            assert getattr(library, finish)(ctypes.c_void_p(made)) == 0

    def log() -> list[str]:
        lines = gpu.driver.log if cuda else gpu.log
        return [line for line in lines if line.split()[0] in COPIES]

    return Device(opened, put, get, queue, wait, log, [gpu])


def on_cuda() -> Device:
    if not test_cuda.has_nvrtc():
        pytest.skip("no NVRTC")
    _, path = saved("cuda:sm_80")
    return on_gpu(EmulatedCuda(path), path)


def on_hip() -> Device:
    if amdgcn.compiler("hip") is None or amdgcn.linker() is None or hip_compiler() is None:
        pytest.skip("clang 18 or lld is not installed")
    _, path = saved("hip:gfx90a")
    return on_gpu(EmulatedHip(path), path)


pytestmark = pytest.mark.skipif(not COMPILERS, reason="no C compiler")
KINDS = {"opencl": on_opencl, "cuda": on_cuda, "hip": on_hip}


@pytest.fixture
def opened():
    """A function that opens the model on a device of a kind. Its contexts end before the device does."""
    made: list[Device] = []

    def found(kind: str) -> Device:
        made.append(KINDS[kind]())
        return made[-1]

    yield found
    for one in made:
        for context in list(one.model._contexts):
            context.close()
    gc.collect()


@pytest.fixture(params=KINDS)
def device(request, opened):
    return opened(request.param)


def numbers(rows: int) -> np.ndarray:
    return RNG.standard_normal((rows, 40)).astype(np.float32)


def empty(rows: int) -> np.ndarray:
    return np.full((rows, 40), 77, np.float32)


def check(found: Sequence[np.ndarray], x: np.ndarray) -> None:
    y = np.tanh(x) + x
    np.testing.assert_allclose(found[0], y, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found[1], -found[0])


@pytest.mark.parametrize("rows", [3, 8])
def test_tensors_on_the_device_are_used_where_they_are(device, rows):
    context, x = device.model.context(), numbers(rows)
    given, results = device.put(x), [device.put(empty(rows)) for _ in "yz"]
    before = device.log() if device.log else None

    context.start("gpucomp_run", [given], results)

    check([device.get(one, np.float32) for one in results], x)
    assert np.array_equal(device.get(given, np.float32), x)
    assert before is None or device.log() == before


def test_some_tensors_are_on_the_device_and_others_on_the_host(device):
    context = device.model.context()
    for _ in range(2):
        x, y = numbers(5), empty(5)
        z = device.put(empty(5))
        context.start("gpucomp_run", [x], [y, z])
        check([y, device.get(z, np.float32)], x)
        given, y, z = device.put(x), device.put(empty(5)), empty(5)
        context.start("gpucomp_run", [given], [y, z])
        check([device.get(y, np.float32), z], x)


def test_the_caller_s_memory_is_another_one_in_each_run(device):
    context = device.model.context()
    for rows in (4, 4, 7, 4):
        x, y, z = numbers(rows), empty(rows), device.put(empty(rows))
        context.start("gpucomp_run", [device.put(x)], [y, z])
        check([y, device.get(z, np.float32)], x)
    x = numbers(4)
    found = context.run({"x": x})  # and then its own again
    check([found["y"], found["z"]], x)


def test_results_are_the_next_run_s_inputs_without_waiting(device):
    context, x, rows = device.model.context(), numbers(6), 6
    first, second = device.put(x), device.put(empty(rows))
    places = [first, second]
    z, want = empty(rows), x

    for turn in range(6):
        last = turn == 5
        outputs = [places[1], z if last else device.put(empty(rows))]
        context.start("gpucomp_enqueue", [places[0]], outputs)
        want, places = np.tanh(want) + want, places[::-1]
    context.call("gpucomp_wait")

    np.testing.assert_allclose(device.get(places[0], np.float32), want, rtol=1e-4)
    np.testing.assert_allclose(z, -want, rtol=1e-4)


def test_runs_of_other_sizes_follow_each_other(device):
    context, runs = device.model.context(), []
    for rows in (3, 9, 3, 5, 9):
        x, y, z = numbers(rows), empty(rows), empty(rows)
        context.start("gpucomp_enqueue", [x], [y, z])
        runs.append((x, y, z))
    context.call("gpucomp_wait")
    context.call("gpucomp_wait")  # of nothing

    for x, y, z in runs:
        check([y, z], x)


def test_states_follow_each_other_without_waiting():
    _, path = models.generator("opencl:pocl" if test_opencl.has_pocl() else "cpu")
    model, feeds = Model(path), [models.tokens(count, 2) for count in (3, 1, 1, 2)]
    first, second = model.context(), model.context()
    wanted = [first.run(feed) for feed in feeds]
    found = [{name: np.zeros_like(array) for name, array in one.items()} for one in wanted]
    for feed, results in zip(feeds, found, strict=True):
        second.start("gpucomp_enqueue", second.arrays(feed), list(results.values()))
    second.call("gpucomp_wait")

    assert all(same_bits(a, b) for a, b in zip(found, wanted, strict=True))
    assert np.array_equal(first.save(0), second.save(0))
    with pytest.raises(NativeError, match=r"GPC2042 state '.*': memory of the host expected"):
        second.restore(0, OnDevice(64, (1,), 4))


def test_a_context_that_is_ended_waits(device):
    context, x, y, z = device.model.context(), numbers(8), empty(8), empty(8)
    context.start("gpucomp_enqueue", [x], [y, z])
    context.close()
    check([y, z], x)


def test_a_stream_of_the_caller_s(device):
    stream = device.queue()
    context, x = device.model.context(stream=stream), numbers(3)
    results = [device.put(empty(3)) for _ in "yz"]

    context.start("gpucomp_enqueue", [device.put(x)], results)
    device.wait(stream)

    check([device.get(one, np.float32) for one in results], x)
    found = context.run({"x": x})
    check([found["y"], found["z"]], x)
    context.close()
    device.wait(stream)  # which is still there


@pytest.mark.parametrize("kind", ["cuda", "hip"])
def test_addresses_that_kernels_cannot_load_from_are_copied_on_the_device(kind, opened):
    device = opened(kind)
    context, x = device.model.context(), numbers(3)
    given, y, z = device.put(x, 4), device.put(empty(3), 8), device.put(empty(3))
    before = len(device.log())

    context.start("gpucomp_run", [given], [y, z])

    check([device.get(one, np.float32) for one in (y, z)], x)
    assert [line.split()[0] for line in device.log()[before:]] == ["copy", "copy"]


# ---- refusals ----


def test_memory_that_meets(device):
    context, x = device.model.context(), device.put(numbers(3))
    other = device.put(empty(3))
    for outputs, told in (([x, other], "with an input"), ([other, other], "with another")):
        with pytest.raises(NativeError, match=f"GPC2116 output '[yz]' shares memory {told}"):
            context.start("gpucomp_run", [x], outputs)


def test_memory_without_room_or_a_place(device):
    context, x = device.model.context(), numbers(4)
    small = device.put(empty(3))
    with pytest.raises(NativeError, match="GPC2115 output 'y': room for 640 bytes expected, found 480"):
        context.start("gpucomp_run", [x], [small, empty(4)])
    with pytest.raises(NativeError, match="GPC2042 output 'z': data that is aligned to its elements expected"):
        context.start("gpucomp_run", [x], [empty(4), OnDevice(0, (4, 40), 640)])


def test_buffers_of_opencl_that_are_not_the_model_s(opened):
    cl, device = pytest.importorskip("pyopencl"), opened("opencl")
    context, x = device.model.context(), numbers(4)
    small = device.put(empty(3))
    with pytest.raises(NativeError, match="GPC2042 output 'y': the buffer is smaller than the tensor"):
        context.start("gpucomp_run", [x], [OnDevice(small.place, (4, 40), 640), empty(4)])
    context_of = cl.Context.from_int_ptr(device.model.info.native_context, retain=True)
    fixed = cl.Buffer(context_of, cl.mem_flags.READ_ONLY, 640)
    with pytest.raises(NativeError, match="GPC2042 output 'z': a buffer that kernels can write expected"):
        context.start("gpucomp_run", [x], [empty(4), OnDevice(fixed.int_ptr, (4, 40), 640)])
    whole = cl.Buffer(context_of, cl.mem_flags.READ_WRITE, 4096)
    parts = [whole.get_sub_region(at, 640) for at in (0, 512, 1024)]
    y, meeting, apart = (OnDevice(part.int_ptr, (4, 40), 640) for part in parts)
    with pytest.raises(NativeError, match="GPC2116 output 'z' shares memory with another"):
        context.start("gpucomp_run", [x], [y, meeting])
    context.start("gpucomp_run", [x], [y, apart])
    check([device.get(one, np.float32) for one in (y, apart)], x)
    other = cl.Context([cl.Device.from_int_ptr(device.model.info.native_device, retain=True)])
    foreign = cl.Buffer(other, cl.mem_flags.READ_WRITE, 640)
    with pytest.raises(NativeError, match="GPC2042 input 'x': a buffer of the model's OpenCL context expected"):
        context.start("gpucomp_run", [OnDevice(foreign.int_ptr, (4, 40), 640)], [empty(4), empty(4)])
    for queue in (
        cl.CommandQueue(other),
        cl.CommandQueue(
            cl.Context.from_int_ptr(device.model.info.native_context, retain=True),
            properties=cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE,
        ),
    ):
        with pytest.raises(NativeError, match=r"GPC2042 options\.stream: an in-order queue of the model's"):
            device.model.context(stream=queue.int_ptr)


def test_a_failure_that_shows_later_is_told_by_the_wait(opened):
    device = opened("cuda")
    (gpu,) = device.kept
    context, x, y, z = device.model.context(), numbers(3), empty(3), empty(3)
    context.start("gpucomp_enqueue", [x], [y, z])
    gpu.driver.fail("cuStreamSynchronize", 719)
    with pytest.raises(NativeError, match=r"GPC5201 CUDA: the run failed: .* \(error 719\)"):
        context.call("gpucomp_wait")
    with pytest.raises(NativeError, match="GPC5201 CUDA: the GPU cannot be entered"):  # it is lost
        context.run({"x": x})


def test_a_model_for_the_processor_has_no_other_memory():
    _, path = saved("cpu")
    context, x = Model(path).context(), numbers(3)
    y, z = empty(3), empty(3)
    context.start("gpucomp_enqueue", [x], [y, z])
    check([y, z], x)
    context.call("gpucomp_wait")
    with pytest.raises(NativeError, match="GPC2042 input 'x': memory of the host expected"):
        context.start("gpucomp_run", [OnDevice(x.ctypes.data, (3, 40), 480)], [y, z])
    with pytest.raises(NativeError, match=r"GPC2042 options\.stream: none expected"):
        Model(path).context(stream=64)
