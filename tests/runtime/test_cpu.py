"""The CPU program: memory, threads, host launches, fork and profile, on plans written by hand."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpucomp import config
from gpucomp.artifact.elf import Image
from gpucomp.artifact.plan import COUNTER, INPUT, OUTPUT, TEMP, WEIGHT, Buffer, CompiledKernel, Launch, Plan
from gpucomp.codegen.llvm import emit
from gpucomp.codegen.llvm.ir.launch_list import CHAINS, STEPS
from gpucomp.errors import ArtifactError, DeviceError
from gpucomp.expr.core import axes_of, call, hole, load
from gpucomp.ir.types import F32, TensorType
from gpucomp.kernel import Kernel, Loops, Rowwise, Statistic, Store
from gpucomp.runtime import cpu as runtime
from gpucomp.runtime import estimates, runner, workers
from gpucomp.runtime.cpu import CpuProgram
from gpucomp.runtime.native import DONE, TASKS, Table, address_of, aligned
from gpucomp.targets import cpu
from tests.native import default_schedule

ROWS, COLS = 211, 513
BYTES = ROWS * COLS * 4
PATIENCE = 60.0  # seconds
SHAPE = (ROWS, COLS)


def scale_kernel() -> Kernel:
    """x * w + 1, the weight along columns; enough work for many tasks."""
    axes = axes_of(SHAPE)
    body = call("tanh", load(0, axes, F32) * load(1, (axes[1],), F32)) + 1.0
    params = (TensorType(F32, SHAPE), TensorType(F32, (COLS,)), TensorType(F32, SHAPE))
    return Kernel("loops", params, 1, Loops(axes), (Store(2, axes, body),))


def sum_kernel() -> Kernel:
    r, c = axes_of((ROWS,), "i"), axes_of((COLS,), "j")
    total = hole("s0", F32)
    body = Rowwise(r, c, (Statistic(total, "sum", load(0, (*r, *c), F32)),), frozenset({0}))
    return Kernel("reduce", (TensorType(F32, SHAPE), TensorType(F32, (ROWS,))), 1, body, (Store(1, r, total),))


def tiny_kernel() -> Kernel:
    """y * 2 on one task."""
    axes = axes_of((ROWS,))
    params = (TensorType(F32, (ROWS,)),) * 2
    return Kernel("loops", params, 1, Loops(axes), (Store(1, axes, load(0, axes, F32) * 2.0),))


def plan_of(
    kernels: Sequence[Kernel], buffers: Sequence[Buffer], launches: Sequence[Launch], outputs: Sequence[int], arena: int
) -> tuple[Plan, dict[str, bytes]]:
    host = cpu.host()
    sources = [emit(k, default_schedule(k), host, f"k{i}") for i, k in enumerate(kernels)]
    compiled = tuple(
        CompiledKernel(s.name, "llvm", f"{s.name}.ll", "model.o", s.geometry.groups, (1, 1, 1)) for s in sources
    )
    inputs = tuple(i for i, b in enumerate(buffers) if b.kind == INPUT)
    names = tuple(buffers[o].name if buffers[o].kind == OUTPUT else f"out{o}" for o in outputs)
    plan = Plan(
        "cpu", "cpu", host.arch, tuple(buffers), compiled, tuple(launches), inputs, tuple(outputs), names, arena
    )
    return plan, {"model.o": cpu.build(sources, host)}


WEIGHTS = {"w0": np.linspace(-1, 1, COLS, dtype=np.float32)}


def chain() -> tuple[Plan, dict[str, bytes]]:
    """tanh(x*w)+1, twice, then row sums, doubled on one task, doubled again."""
    buffers = [
        Buffer(INPUT, "x", "f32", SHAPE, BYTES),
        Buffer(WEIGHT, "w0", "f32", (COLS,), COLS * 4),
        Buffer(TEMP, "t0", "f32", SHAPE, BYTES, 0),
        Buffer(TEMP, "t1", "f32", SHAPE, BYTES, -(-BYTES // 64) * 64),
        Buffer(TEMP, "t2", "f32", (ROWS,), ROWS * 4, 0),
        Buffer(TEMP, "t3", "f32", (ROWS,), ROWS * 4, 1024),
        Buffer(OUTPUT, "y", "f32", (ROWS,), ROWS * 4),
    ]
    launches = [Launch(0, (0, 1, 2)), Launch(0, (2, 1, 3)), Launch(1, (3, 4)), Launch(2, (4, 5)), Launch(2, (5, 6))]
    return plan_of([scale_kernel(), sum_kernel(), tiny_kernel()], buffers, launches, [6], 2 * BYTES + 4096)


def expected(x: np.ndarray) -> np.ndarray:
    w = WEIGHTS["w0"].astype(np.float64)
    once = np.tanh(x * w) + 1
    return (np.tanh(once * w) + 1).sum(axis=1) * 4


def image(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32)


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_any_number_of_threads_gives_the_same_bits(threads: int) -> None:
    plan, binaries = chain()
    x = image()
    alone = CpuProgram(plan, {}, binaries, WEIGHTS, threads=1).run({"x": x})["y"]

    program = CpuProgram(plan, {}, binaries, WEIGHTS, threads=threads)
    results = [program.run({"x": x})["y"] for _ in range(20)]

    np.testing.assert_allclose(alone, expected(x), rtol=1e-5)
    assert all(np.array_equal(r, alone) for r in results)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_run_that_is_interrupted_ends_before_its_arrays_are_freed(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl+C after the helpers have been started, and before or after the native code."""
    plan, binaries = chain()
    program = CpuProgram(plan, {}, binaries, WEIGHTS, threads=3)
    wanted = program.run({"x": image()})["y"]
    enter, calls = CpuProgram.enter, []

    def interrupted(self: CpuProgram, call: Any, thread: int) -> None:
        calls.append(thread)
        if len(calls) > 1 or when == "after":
            enter(self, call, thread)
        if len(calls) == 1:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(CpuProgram, "enter", interrupted)
        patched.setattr(runner.Runner, "help", lambda self, call, thread, bell: self.enter(call, thread))
        before = len(workers.workers._idle)
        with pytest.raises(KeyboardInterrupt):
            program.run({"x": image()})

    assert calls == [0, 0]
    table = program._launches.table
    assert (table._states[:, 0, DONE] == table._rows[:, TASKS]).all()
    assert len(workers.workers._idle) == before
    assert np.array_equal(program.run({"x": image()})["y"], wanted)


def test_a_thread_that_never_comes_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, binaries = chain()
    program = CpuProgram(plan, {}, binaries, WEIGHTS, threads=5)
    monkeypatch.setattr(workers.workers, "start", lambda work, threads: [])

    found = program.run({"x": image()})["y"]

    np.testing.assert_allclose(found, expected(image()), rtol=1e-5)


def test_a_helper_that_listens_hears_of_the_next_run(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, binaries = chain()
    program = CpuProgram(plan, {}, binaries, WEIGHTS, threads=2)
    bell, native = workers.Bell(), program._runner
    assert native is not None
    call = (program._launches.table.address, 0, 0, program._context_address, 2, 0, (), 0)  # of no launches
    native.help(call, 1, bell)  # nobody rings: it gives up

    monkeypatch.setattr(runner, "LISTENS", 1 << 60)
    bell.ring()
    native.help(call, 1, bell)  # this ring is not the one that is known

    bell.heard = 1
    listener = threading.Thread(target=native.help, args=(call, 1, bell), daemon=True)
    listener.start()
    time.sleep(0.01)
    assert listener.is_alive()
    bell.ring()
    listener.join(PATIENCE)
    assert not listener.is_alive()
    assert bell.address % workers.CACHE_LINE == 0


def test_a_late_helper_does_not_listen_while_a_job_waits() -> None:
    """It knows the ring of the job that it does, not the last one."""
    crew, done, rung = workers.Workers(), threading.Event(), []
    held = threading.Event()

    def slow(number: int, bell: workers.Bell) -> None:
        held.wait(PATIENCE)

    def quick(number: int, bell: workers.Bell) -> None:
        rung.append(bell.next - 1 - bell.heard)
        done.set()

    helpers = crew.start(slow, 2)
    for _ in range(3):
        crew.rest(helpers)
        assert crew.start(quick, 2) == helpers
    held.set()

    assert done.wait(PATIENCE)
    deadline = time.monotonic() + PATIENCE
    while len(rung) < 3 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert rung == [2, 1, 0]


def test_machine_code_of_earlier_versions_has_nobody_who_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "has", lambda self, name: False)
    plan, binaries = chain()
    program = CpuProgram(plan, {}, binaries, WEIGHTS, threads=2)

    for _ in range(3):
        np.testing.assert_allclose(program.run({"x": image()})["y"], expected(image()), rtol=1e-5)


def test_a_run_of_little_work_is_left_to_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, binaries = chain()
    program = CpuProgram(plan, {}, binaries, WEIGHTS, threads=2)
    calls: list[int] = []
    monkeypatch.setattr(workers.workers, "start", lambda work, threads: calls.append(threads) or [])

    program.run({"x": image()})
    shared = list(calls)
    monkeypatch.setattr(runtime, "SMALLEST_SHARED_NS", 1e9)
    program.run({"x": image()})

    assert shared == [2]
    assert calls == [2]


@pytest.mark.parametrize("family", ["contraction", "contraction/vnni"])
def test_a_contraction_s_work_is_its_multiply_adds_and_others_is_their_memory(family) -> None:
    m, k, n = 64, 1024, 512
    shapes = {"x": (m, k), "w": (k, n), "bias": (n,), "y": (m, n)}
    buffers = tuple(Buffer(TEMP, name, "f32", shape, 4 * int(np.prod(shape)), 0) for name, shape in shapes.items())
    kernels = tuple(
        CompiledKernel(f, "llvm", f"{f}.ll", "model.o", (8, 1, 1), (1, 1, 1), family=f) for f in (family, "loops")
    )
    launches = (Launch(0, (0, 1, 2, 3)), Launch(1, (0, 3)), Launch(1, (0, 0, 3)), Launch(1, (0, 3)))
    plan = Plan("cpu", "cpu", "", buffers, kernels, launches, (), (), (), 0)

    nbytes = [b.nbytes for b in buffers]
    product, moved, twice, step = estimates.Costs(plan, range(4)).of(nbytes, [8] * 4, {3: (-4 * k, 0)})
    alone = estimates.Costs(plan, range(4)).of(nbytes, [1, 8, 8, 8], {})

    assert alone[0] == 0
    assert step == pytest.approx(4 * (k + m * n) / estimates.BYTES_A_NS)
    assert product == pytest.approx(m * k * n / estimates.MULTIPLY_ADDS_A_NS)
    assert moved == twice == pytest.approx(4 * (m * k + m * n) / estimates.BYTES_A_NS)


def test_a_worker_that_has_long_nothing_to_do_sleeps_and_comes_back() -> None:
    plan, binaries = chain()
    x = image()
    alone = CpuProgram(plan, {}, binaries, WEIGHTS, threads=1).run({"x": x})["y"]
    program = CpuProgram(plan, {}, binaries, WEIGHTS, threads=3)
    words = program._context.view(np.uint64)
    words[runtime.LIMIT] = words[runtime.SLEEPS] = 0  # at once, so that every wait is a nap

    results = [program.run({"x": x})["y"] for _ in range(10)]

    assert all(np.array_equal(r, alone) for r in results)


def test_outputs_are_fresh_and_inputs_are_left_alone() -> None:
    plan, binaries = chain()
    program = CpuProgram(plan, {}, binaries, WEIGHTS, threads=2)
    x, other = image(), image(1)
    before = x.copy()

    first = program.run({"x": x})["y"]
    kept = first.copy()
    program.run({"x": other})

    np.testing.assert_array_equal(first, kept)
    np.testing.assert_array_equal(x, before)


def test_unaligned_inputs_and_weights_are_taken() -> None:
    plan, binaries = chain()
    x = image()
    raw = np.empty(x.nbytes + 1, np.uint8)
    skewed = raw[1:].view(np.float32).reshape(SHAPE)
    skewed[...] = x
    weights = {"w0": np.concatenate([[0], WEIGHTS["w0"]]).astype(np.float32)[1:]}

    result = CpuProgram(plan, {}, binaries, weights, threads=1).run({"x": skewed})["y"]

    np.testing.assert_allclose(result, expected(x), rtol=1e-5)


def test_callers_from_several_python_threads_take_turns() -> None:
    plan, binaries = chain()
    shared = CpuProgram(plan, {}, binaries, WEIGHTS, threads=2)
    programs = [shared, shared, CpuProgram(plan, {}, binaries, WEIGHTS, threads=2)]
    wrong: list[int] = []

    def work(number: int) -> None:
        x = image(number)
        want = expected(x)
        for _ in range(15):
            if not np.allclose(programs[number].run({"x": x})["y"], want, rtol=1e-5):
                wrong.append(number)

    callers = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()

    assert wrong == []


def test_a_forked_child_runs_with_threads_of_its_own() -> None:
    plan, binaries = chain()
    program = CpuProgram(plan, {}, binaries, WEIGHTS, threads=2)
    x = image()
    want = program.run({"x": x})["y"]
    reader, writer = os.pipe()

    child = os.fork()
    if child == 0:
        same = np.array_equal(program.run({"x": x})["y"], want)
        os.write(writer, b"1" if same else b"0")
        os._exit(0)
    os.close(writer)
    answer = os.read(reader, 1)
    os.close(reader)
    os.waitpid(child, 0)

    assert answer == b"1"
    np.testing.assert_array_equal(program.run({"x": x})["y"], want)


def test_host_launches_run_between_native_ones() -> None:
    buffers = [
        Buffer(INPUT, "x", "f32", SHAPE, BYTES),
        Buffer(WEIGHT, "w0", "f32", (COLS,), COLS * 4),
        Buffer(TEMP, "t0", "f32", SHAPE, BYTES, 0),
        Buffer(TEMP, "t1", "f32", SHAPE, BYTES, -(-BYTES // 64) * 64),
        Buffer(OUTPUT, "y", "f32", (ROWS,), ROWS * 4),
    ]
    launches = [Launch(0, (0, 1, 2)), Launch(-1, (2, 3), inputs=1, host="Neg"), Launch(1, (3, 4))]
    plan, binaries = plan_of([scale_kernel(), sum_kernel()], buffers, launches, [4], 2 * BYTES + 4096)
    program = CpuProgram(plan, {}, binaries, WEIGHTS, threads=2)
    x = image()

    result = program.run({"x": x})["y"]
    times = program.profile({"x": x})

    np.testing.assert_allclose(result, -(np.tanh(x * WEIGHTS["w0"]) + 1).sum(axis=1, dtype=np.float64), rtol=1e-5)
    assert len(times) == 3
    assert all(t >= 0 for t in times)


def test_profile_gives_a_time_a_launch() -> None:
    plan, binaries = chain()
    program = CpuProgram(plan, {}, binaries, WEIGHTS, threads=2)

    begin = time.perf_counter()
    times = program.profile({"x": image()})
    whole = time.perf_counter() - begin

    assert len(times) == len(plan.launches)
    assert all(t >= 0 for t in times)
    assert 0 < sum(times) <= whole


def test_an_output_may_be_an_input_a_weight_or_another_output() -> None:
    plan, binaries = chain()
    plan = Plan(
        "cpu",
        "cpu",
        plan.arch,
        plan.buffers,
        plan.kernels,
        plan.launches,
        plan.inputs,
        (6, 0, 1, 6),
        ("y", "x2", "w", "again"),
        plan.arena_bytes,
    )
    x = image()

    result = CpuProgram(plan, {}, binaries, WEIGHTS, threads=1).run({"x": x})

    np.testing.assert_array_equal(result["x2"], x)
    np.testing.assert_array_equal(result["w"], WEIGHTS["w0"])
    np.testing.assert_array_equal(result["again"], result["y"])
    assert not any(np.shares_memory(result["x2"], a) for a in (x, result["y"]))
    assert not np.shares_memory(result["again"], result["y"])


def test_a_model_of_no_kernels_copies() -> None:
    buffers = [Buffer(INPUT, "x", "f32", (3,), 12)]
    plan, _ = plan_of([], buffers, [], [0], 0)

    result = CpuProgram(plan, {}, {}, {}).run({"x": np.arange(3, dtype=np.float32)})

    np.testing.assert_array_equal(result["out0"], [0, 1, 2])


def test_counters_start_at_zero() -> None:
    axes = axes_of((5,))
    kernel = Kernel("loops", (TensorType(F32, (5,)),) * 2, 1, Loops(axes), (Store(1, axes, load(0, axes, F32) + 1.0),))
    buffers = [Buffer(COUNTER, "c0", "f32", (5,), 20), Buffer(OUTPUT, "y", "f32", (5,), 20)]
    plan, binaries = plan_of([kernel], buffers, [Launch(0, (0, 1))], [1], 0)

    result = CpuProgram(plan, {}, binaries, {}).run({})

    np.testing.assert_array_equal(result["y"], np.ones(5))


def test_the_configuration_sets_the_threads() -> None:
    with config.using(threads=5):
        assert workers.available_threads() == 5
    with config.using(threads=0):
        assert workers.available_threads() == len(os.sched_getaffinity(0))


def test_buffers_outside_the_arena_are_refused() -> None:
    plan, binaries = chain()
    bad = Plan(
        "cpu",
        "cpu",
        plan.arch,
        plan.buffers,
        plan.kernels,
        plan.launches,
        plan.inputs,
        plan.outputs,
        plan.output_names,
        100,
    )

    with pytest.raises(ArtifactError, match="'t0' lies outside the arena"):
        CpuProgram(bad, {}, binaries, WEIGHTS)


def test_weights_of_another_shape_are_refused() -> None:
    plan, binaries = chain()

    with pytest.raises(ArtifactError, match="weight 'w0': f32\\[513\\] expected"):
        CpuProgram(plan, {}, binaries, {"w0": np.zeros(3, np.float32)})


def test_missing_machine_code_is_refused() -> None:
    plan, _ = chain()

    with pytest.raises(ArtifactError, match="one member of machine code expected"):
        CpuProgram(plan, {}, {}, WEIGHTS)


def test_code_for_another_processor_is_refused() -> None:
    with pytest.raises(DeviceError, match="compiled for cpu with avx9000, which this processor lacks") as caught:
        runtime._require_features("sse4.1,avx9000", "cpu")

    assert caught.value.code == "GPC5007"


def test_loading_needs_no_compiler() -> None:
    script = "import sys, gpucomp.runtime.cpu; print([m for m in ('llvmlite', 'onnx', 'jinja2') if m in sys.modules])"

    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout

    assert output.strip() == "[]"


def test_a_timeline_has_the_threads_in_their_places() -> None:
    plan, binaries = chain()
    program = CpuProgram(plan, {}, binaries, WEIGHTS, threads=2)

    times, spans = program.timeline({"x": image()})

    leader = [s for s in spans if s.thread == 0]
    assert [s.launch for s in leader] == list(range(len(plan.launches)))
    assert all(a.end <= b.start + 1e-6 for a, b in pairwise(leader))
    assert all(0 <= s.start <= s.end for s in spans)
    assert {s.thread for s in spans} <= {0, 1}
    assert all(s.end - s.start <= times[s.launch] * 1.01 + 1e-6 for s in spans)


def test_ceilings_are_measured_by_the_program_s_own_probes() -> None:
    plan, binaries = chain()

    found = CpuProgram(plan, {}, binaries, WEIGHTS, threads=2).ceilings()

    assert found is not None
    assert found.threads == 2
    assert 1e8 < found.flops < 1e14
    assert all(1e7 < rate < 1e13 for _, rate in found.copies)
    assert found.launch_s < 1e-3


def test_a_plan_without_kernels_has_no_ceilings() -> None:
    plan, _ = plan_of([], [Buffer(INPUT, "x", "f32", (3,), 12)], [], [0], 0)

    assert CpuProgram(plan, {}, {}, {}).ceilings() is None


def test_the_copy_probe_copies_and_the_peak_probe_says_what_it_did() -> None:
    host = cpu.host()
    plan, binaries = chain()
    program = CpuProgram(plan, {}, binaries, WEIGHTS, threads=2)
    assert program._runner is not None
    at = program._runner.image.address
    source = aligned((3 * 1024,), np.dtype(np.uint8))
    source[:] = np.arange(source.size) % 251
    result, room = (aligned((n,), np.dtype(np.uint8)) for n in (4 * 1024, 1024))
    result[:] = 255
    sizes, numbers = np.array([1024, 2]), np.array([0.5, 1.0], np.float32)
    table = Table([(at("gc_copy.call"), 3, 3), (at("gc_peak.call"), 2, 5)], 2)
    table.arguments[:] = [a.ctypes.data for a in (source, result, sizes, numbers, room)]

    with program._seated(2):
        program.run_native(table, 0, 2, True)

    lanes = host.limits.vector_bytes // 4
    np.testing.assert_array_equal(result[: source.size], source)
    assert (result[source.size :] == 255).all()
    assert room.view(np.int64)[0] == 2 * lanes * CHAINS * STEPS
    np.testing.assert_allclose(
        room.view(np.float32)[16 : 16 + lanes], 2.0 * CHAINS, rtol=1e-6
    )  # x = x / 2 + 1 tends to 2


def test_a_thread_that_comes_late_for_another_table_does_not_note_in_this_run(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, binaries = chain()
    program = CpuProgram(plan, {}, binaries, WEIGHTS, threads=2)
    assert program._runner is not None
    longer = Table([(program._runner.image.address("gc_nothing.call"), 0, 8)] * 50, 2)
    room = np.zeros((2, len(longer), 2), np.int64)
    program._clocks = room[:, : len(program._launches.table)]
    program._notes = tuple(address_of(clocks) for clocks in program._clocks)
    late: list[workers.Work] = []
    monkeypatch.setattr(workers.workers, "start", lambda work, threads: late.append(work) or [])
    with program._seated(2):
        program.run_native(longer, 0, len(longer), True)

    held = iter([*late])

    def run_native(*args: Any, **named: Any) -> None:
        for work in held:
            work(1, workers.Bell())
        CpuProgram.run_native(program, *args, **named)

    monkeypatch.setattr(program, "run_native", run_native)
    program.profile({"x": image()})

    assert (program._clocks[0] > 0).all()
    assert not room[:, len(program._launches.table) :].any()
    assert not room[1].any()


def test_ten_thousand_runs_leave_memory_as_it_is() -> None:
    axes = axes_of((37,))
    params = (TensorType(F32, (37,)),) * 2
    kernel = Kernel("loops", params, 1, Loops(axes), (Store(1, axes, load(0, axes, F32) * 2.0),))
    buffers = [Buffer(INPUT, "x", "f32", (37,), 148), Buffer(OUTPUT, "y", "f32", (37,), 148)]
    plan, binaries = plan_of([kernel], buffers, [Launch(0, (0, 1))], [1], 0)
    program = CpuProgram(plan, {}, binaries, {}, threads=2)
    x = np.ones(37, np.float32)

    def resident_pages() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1])

    seen = []
    for _ in range(4):
        for _ in range(3_000):
            program.run({"x": x})
        seen.append(resident_pages())

    # the allocator may take more room once; a leak of 32 bytes a run would be 23 pages each time
    assert min(after - before for before, after in pairwise(seen)) < 16
