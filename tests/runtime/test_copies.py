"""Copies of a run, counted where they are made: on a processor, on PoCL, and on the CUDA driver without a GPU."""

from __future__ import annotations

import re
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest

import gpucomp
from gpucomp.artifact.plan import Repeat
from gpucomp.cli import copies as command
from gpucomp.errors import DeviceError
from gpucomp.runtime import cuda as runtime
from gpucomp.runtime.copies import FROM_DEVICE, ON_DEVICE, TO_DEVICE, Copies, copied, counted, note
from gpucomp.runtime.executable import PROGRAMS, Executable
from gpucomp.runtime.native import aligned
from gpucomp.targets import cuda, opencl
from tests.fake_cupy import FakeCupy
from tests.fake_driver.cubins import cubin
from tests.onnx_builders import model, node, value
from tests.plans import COLUMNS, ROWS, two_layers

SIZE = 4 * ROWS * COLUMNS
X = np.random.default_rng(3).standard_normal((ROWS, COLUMNS)).astype(np.float32)
WORDS = {"upload": TO_DEVICE, "download": FROM_DEVICE, "copy": ON_DEVICE}


def made(to_device=0, from_device=0, on_device=0):
    """So many copies of an array of ``SIZE`` bytes."""
    counts = {TO_DEVICE: to_device, FROM_DEVICE: from_device, ON_DEVICE: on_device}
    return Copies(counts, {way: SIZE * count for way, count in counts.items()})


def on_opencl(host=False):
    plan, sources, weights = two_layers(opencl.manifest("pocl"), host=host)
    return Executable(plan, sources, {}, weights)


class Fake(runtime.CudaProgram):
    def __init__(self, *given, **named):
        super().__init__(*given, cupy=named.pop("cupy", sys.modules["cupy"]), **named)


@pytest.fixture
def cupy(monkeypatch):
    fake = FakeCupy({"k0": lambda *arrays: None})
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setattr(runtime, "CudaProgram", Fake)
    monkeypatch.setitem(PROGRAMS, "cuda", (runtime.__name__, "CudaProgram"))
    return fake


def on_cuda(host=False, **changes):
    plan, sources, weights = two_layers(cuda.manifest("sm_80"), host=host)
    return Executable(replace(plan, **changes), sources, {"k0.bin": cubin("k0", [8] * 4)}, weights)


def counted_in(exe, **options):
    with counted() as found:
        exe.run({"x": X}, **options)
    return found


# x is an input and an output, y and z are outputs; the host operator reads one temporary and writes another


@pytest.mark.parametrize("mapped", [False, True])
def test_opencl_counts_what_goes_to_the_device_and_back(monkeypatch, mapped):
    exe = on_opencl()
    with exe._program() as program:
        monkeypatch.setattr(program, "_mapped", mapped)
    for _ in range(3):
        assert counted_in(exe) == made(1, 3)
    assert counted_in(exe, outputs="device") == made(1, 0, 1)
    assert counted_in(on_opencl(host=True)) == made(2, 4)


def test_cuda_counts_what_goes_to_the_device_and_back(cupy):
    exe = on_cuda()
    for _ in range(4):
        assert counted_in(exe) == made(1, 3)
    assert counted_in(exe, outputs="device") == made(1, 0, 1)
    assert counted_in(on_cuda(host=True)) == made(2, 4)


def test_cuda_counts_the_copies_in_a_graph_at_each_replay(cupy):
    row = 4 * COLUMNS  # 28 bytes, not aligned: slices are copied
    exe = on_cuda(repeats=(Repeat(0, 1, ROWS, ((row, 0, row, row),)),))
    exe.open()
    for _ in range(5):
        cupy.driver.clear_log()
        found = counted_in(exe)
        lines = [line.split() for line in cupy.driver.log if line.split()[0] in WORDS]
        wanted = Copies()
        for word, nbytes, *_ in lines:
            wanted.note(WORDS[word], int(nbytes))
        assert found == wanted
        assert found.counts[ON_DEVICE] == 3 * ROWS
    assert "replay" in cupy.driver.log


def test_a_processor_counts_only_what_cannot_be_used_in_place():
    exe = gpucomp.compile(
        model([node("Relu", ["x"], ["y"]), node("Identity", ["x"], ["same"])], [value("x", X.shape)], ["y", "same"]),
        target="cpu",
    )
    assert counted_in(exe) == made(on_device=1), "the input is an output"
    shifted = np.zeros(SIZE + 1, np.uint8)[1:].view(np.float32).reshape(X.shape)
    with counted() as found:
        exe.run({"x": shifted})
    assert found == made(on_device=2), "an input that is not aligned"
    assert counted_in(exe, outputs={"y": aligned(X.shape, X.dtype)}) == made(on_device=1)
    alone = gpucomp.compile(model([node("Relu", ["x"], ["y"])], [value("x", X.shape)], ["y"]), target="cpu")
    assert counted_in(alone) == made()


def test_nothing_is_counted_outside_a_block_and_in_other_threads():
    with counted() as outer:
        note(TO_DEVICE, SIZE)
        with counted() as inner:
            copied(X)
        thread = threading.Thread(target=note, args=(TO_DEVICE, SIZE))
        thread.start()
        thread.join()
    note(TO_DEVICE, SIZE)

    assert outer == made(1)
    assert inner == made(on_device=1)


def test_a_copy_is_the_array_or_is_in_the_one_that_is_given():
    target = np.zeros_like(X)

    assert copied(X, target) is target
    np.testing.assert_array_equal(target, X)
    fresh = copied(X.T)
    assert fresh.flags.c_contiguous
    np.testing.assert_array_equal(fresh, X.T)


# ---- bench --copies ----


@pytest.mark.parametrize("target", ["opencl", "cuda"])
def test_bench_counts_a_run_on_the_host_s_arrays_and_one_on_the_device_s(target, cupy):
    found = command.measured(on_cuda() if target == "cuda" else on_opencl(), {"x": X})

    assert list(found.values()) == [made(1, 3), made(on_device=1)]
    host, device = command.lines(found)
    assert host.endswith(
        f": {SIZE} bytes host to device (1 time), {3 * SIZE} bytes device to host (3 times), nothing device to device"
    )
    assert device.endswith(
        f"on the device: nothing host to device, nothing device to host, {SIZE} bytes device to device (1 time)"
    )
    told = command.as_json(found)
    assert told["numpy"]["device_to_host"] == {"copies": 3, "bytes": 3 * SIZE}
    assert told["device"]["device_to_device"] == {"copies": 1, "bytes": SIZE}


def test_bench_says_why_there_is_no_run_on_the_device(cupy, monkeypatch):
    exe = on_cuda()

    def refuses(*given, **named):
        raise DeviceError("cupy has no arrays of bfloat16", code="GPC5019")

    monkeypatch.setattr(Fake, "zeros", refuses)
    found = command.measured(exe, {"x": X})

    assert command.lines(found)[1].endswith("on the device: none counted: cupy has no arrays of bfloat16")
    assert command.as_json(found)["device"] == {"refused": "cupy has no arrays of bfloat16"}


def test_texts_stay_on_the_host():
    text = model(
        [node("Identity", ["t"], ["u"]), node("Relu", ["x"], ["y"])],
        [value("t", [2], 8), value("x", X.shape)],
        ["u", "y"],
    )
    exe = gpucomp.compile(text, target="opencl")

    found = command.measured(exe, {"t": np.array(["a", "b"], object), "x": X})

    assert list(found.values()) == [made(1, 1), made()]
    assert not re.search("refused", str(command.as_json(found)))
