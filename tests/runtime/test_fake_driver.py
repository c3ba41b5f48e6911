"""What the fake driver refuses, as a driver does, and that nothing happens on its streams before somebody waits."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from gpucomp.runtime.cuda_driver import Driver, DriverCallError, KernelLaunch, captured, function_of, loaded
from tests.fake_cupy import FakeCupy
from tests.fake_driver.cubins import cubin
from tests.fake_driver.driver import ILLEGAL_ADDRESS

OK, INVALID_VALUE, INVALID_CONTEXT, NO_BINARY, OUT_OF_RESOURCES, UNSUPPORTED, INVALIDATED = (
    0,
    1,
    201,
    209,
    701,
    900,
    901,
)


@pytest.fixture
def session():
    """A driver in its context, a stream and 4096 bytes of memory."""
    cupy = FakeCupy({}, (8, 0))
    driver, stream, memory = Driver(cupy.bindings), cupy.cuda.Stream(non_blocking=True), cupy.alloc(4096)
    with driver.current(cupy.contexts[0]):
        yield driver, stream.ptr, memory.ptr


def status(call, *arguments, **options):
    try:
        call(*arguments, **options)
    except DriverCallError as error:
        return error.status
    return OK


def launch(driver, stream, address, *, groups=(1, 1, 1), items=(32, 1, 1), dynamic=0, asked=None, **kernel):
    """The status of a launch of a kernel with ``dynamic`` bytes, ``asked`` of the function before."""
    try:
        module = loaded(driver, cubin("k", [8], **kernel))
        function = function_of(driver, module, "k", dynamic if asked is None else asked)
        argument = [np.array([address], np.uint64)]
        KernelLaunch(driver, function, groups, items, dynamic, stream, argument, programmatic=False)()
    except DriverCallError as error:
        return error.status
    return OK


@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        ({}, OK),
        ({"items": (1024, 1, 1)}, OK),
        ({"items": (1025, 1, 1)}, INVALID_VALUE),
        ({"items": (256, 1, 1), "max_threads": 128}, INVALID_VALUE),  # __launch_bounds__
        ({"items": (1, 1, 65)}, INVALID_VALUE),
        ({"groups": (1 << 20, 1, 1)}, OK),
        ({"groups": (1, 65536, 1)}, INVALID_VALUE),
        ({"groups": (0, 1, 1)}, INVALID_VALUE),
        ({"items": (512, 1, 1), "registers": 128}, OK),
        ({"items": (544, 1, 1), "registers": 128}, OUT_OF_RESOURCES),
        ({"dynamic": 48 << 10, "asked": 0}, OK),
        ({"dynamic": 48 << 10, "asked": 0, "static_shared": 4}, INVALID_VALUE),
        ({"dynamic": 48 << 10, "static_shared": 4}, OK),
        ({"dynamic": 163 << 10}, OK),
        ({"dynamic": 163 << 10, "static_shared": 4}, INVALID_VALUE),
        ({"arch": 86}, NO_BINARY),
        ({"arch": 75}, NO_BINARY),
    ],
)
def test_a_launch_that_a_device_cannot_make_is_refused(session, how, wanted):
    driver, stream, address = session

    assert launch(driver, stream, address, **how) == wanted


def test_a_kernel_that_is_given_no_address_of_the_device_ends_the_context(session):
    driver, stream, _ = session
    assert launch(driver, stream, 4096) == OK

    assert status(driver, "cuStreamSynchronize", stream) == ILLEGAL_ADDRESS
    assert status(driver, "cuMemAlloc", 16) == ILLEGAL_ADDRESS


def test_memory_that_is_not_the_device_s_is_refused(session):
    driver, stream, address = session
    host = np.zeros(4096, np.uint8)

    def upload(to, nbytes):
        return status(driver, "cuMemcpyHtoDAsync", to, host.ctypes.data, nbytes, stream)

    assert upload(address, 4096) == OK
    assert upload(address, 4097) == INVALID_VALUE
    assert upload(host.ctypes.data, 16) == INVALID_VALUE
    assert status(driver, "cuMemcpyDtoHAsync", host.ctypes.data, address + 4000, 97, stream) == INVALID_VALUE
    assert status(driver, "cuMemsetD8Async", host.ctypes.data, 0, 16, stream) == INVALID_VALUE


RELAXED, THREAD_LOCAL = "RELAXED", "THREAD_LOCAL"  # only in the former may a thread allocate and free


@pytest.mark.parametrize(
    ("call", "mode", "refused"),
    [
        ("cuStreamSynchronize", RELAXED, True),
        ("cuCtxSynchronize", RELAXED, True),
        ("cuMemcpyDtoHAsync", RELAXED, True),
        ("cuMemAlloc", RELAXED, False),
        ("cuMemAlloc", THREAD_LOCAL, True),
    ],
)
def test_what_waits_is_refused_while_a_graph_is_captured_and_ends_the_capture(session, call, mode, refused):
    driver, stream, address = session
    host = np.zeros(16, np.uint8)
    arguments = {
        "cuStreamSynchronize": (stream,),
        "cuCtxSynchronize": (),
        "cuMemAlloc": (16,),
        "cuMemcpyDtoHAsync": (host.ctypes.data, address, 16, stream),
    }[call]
    modes = driver.bindings.CUstreamCaptureMode

    driver("cuStreamBeginCapture", stream, getattr(modes, f"CU_STREAM_CAPTURE_MODE_{mode}"))
    found = [
        status(driver, call, *arguments),
        status(driver, "cuMemsetD8Async", address, 1, 16, stream),
        status(driver, "cuStreamEndCapture", stream),
    ]

    assert found == ([UNSUPPORTED, INVALIDATED, INVALIDATED] if refused else [OK] * 3)
    assert status(driver, "cuStreamSynchronize", stream) == OK


def test_a_thread_without_a_context_may_do_nothing(session):
    driver, stream, address = session
    driver("cuCtxPopCurrent")

    assert status(driver, "cuMemsetD8Async", address, 1, 16, stream) == INVALID_CONTEXT

    driver("cuCtxPushCurrent", driver("cuDevicePrimaryCtxRetain", 0))


def test_memory_that_is_freed_in_a_kernel_makes_nothing_happen_before_the_kernel_s_end():
    order = []

    def first(memory):
        order.append("begins")
        driver("cuMemFree", driver("cuMemAlloc", 16))
        order.append("ends")

    cupy = FakeCupy({"k": first, "l": lambda memory: order.append("next")})
    driver, stream, memory = Driver(cupy.bindings), cupy.cuda.Stream(non_blocking=True), cupy.alloc(16)
    with driver.current(cupy.contexts[0]):
        for name in ("k", "l"):
            function = function_of(driver, loaded(driver, cubin(name, [8])), name, 0)
            argument = [np.array([memory.ptr], np.uint64)]
            KernelLaunch(driver, function, (1, 1, 1), (1, 1, 1), 0, stream.ptr, argument, programmatic=False)()
        driver("cuStreamSynchronize", stream.ptr)

    assert cupy.driver.error is None
    assert order == ["begins", "ends", "next"]


def test_nothing_happens_before_somebody_waits(session):
    driver, stream, address = session
    pinned = int(driver("cuMemHostAlloc", 16, 0))
    host = np.frombuffer((ctypes.c_uint8 * 16).from_address(pinned), np.uint8)
    host[:] = 1

    driver("cuMemcpyHtoDAsync", address, pinned, 16, stream)
    host[:] = 2  # too early
    driver("cuMemcpyDtoHAsync", pinned, address, 16, stream)
    before = host.copy()
    graph = captured(driver, stream, lambda: driver("cuMemsetD8Async", address, 3, 16, stream))
    driver("cuStreamSynchronize", stream)

    assert (before == 2).all()
    assert (host == 2).all()  # what the upload found, and no 3: a captured call does not happen
    driver("cuGraphLaunch", graph, stream)
    driver("cuMemcpyDtoHAsync", pinned, address, 16, stream)
    driver("cuStreamSynchronize", stream)
    assert (host == 3).all()
