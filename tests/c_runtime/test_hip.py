"""The C runtime on GPUs of HIP gives Python's bits, through a fake library whose kernels run on this processor."""

import ctypes
import gc
import os
import subprocess
import threading

import numpy as np
import pytest

import gpucomp
from gpucomp.device import hip
from gpucomp.runtime import artifact
from gpucomp.runtime import hip as programs
from gpucomp.runtime.executable import Executable
from gpucomp.targets import amdgcn
from testing.c_library import COMPILERS, NATIVE, SOURCES, Model, NativeError, build, same_bits
from testing.cuda_on_cpu.harness import hip_compiler
from tests.c_runtime import models
from tests.c_runtime.checks import SANITIZED
from tests.c_runtime.gpus import EmulatedHip
from tests.c_runtime.models import any_size, any_size_declared, any_size_feed, filtered, fixed, generator
from tests.c_runtime.state_checks import check_a_state_made_anew, check_states_that_grow
from tests.runtime.test_repeats import recurrence

GPU = "hip:gfx90a"
TESTS = NATIVE.parents[1] / "tests" / "c_runtime"
TOOLS = [NATIVE / "tools" / "gpucomp_run.c", NATIVE / "tools" / "npy.c", *SOURCES]
pytestmark = [
    pytest.mark.skipif(not COMPILERS, reason="no C compiler"),
    pytest.mark.skipif(
        amdgcn.compiler("hip") is None or amdgcn.linker() is None or hip_compiler() is None,
        reason="clang 18 or lld is not installed",
    ),
]


@pytest.fixture
def opened(monkeypatch):
    """A function that lets models run on a GPU of HIP, in Python and in C."""

    def found(*exes, **how):
        gpu = EmulatedHip(*exes, **how)
        monkeypatch.setattr(hip, "runtime", lambda: gpu.library)
        monkeypatch.setattr(programs, "shared", lambda: gpu.arrays)
        return gpu

    return found


def in_c(path, gpu, **options):
    return Model(path, library=gpu.library._name, **options)


@pytest.mark.parametrize("name", ["digits", "straight"])
def test_bits_are_those_of_python(name, opened):
    exe, path, feeds = fixed(name, GPU)
    gpu = opened(exe)
    context = in_c(path, gpu).context()

    for feed in feeds[:2]:
        assert same_bits(context.run(feed), exe.run(feed)), gpu.error
    assert same_bits(context.run(feeds[0]), exe.run(feeds[0]))


def test_what_a_model_says(opened):
    exe, path, _ = fixed("digits", GPU)
    info = in_c(path, opened(exe), device="instinct").info

    assert (info.target, info.device, info.compiled) == (b"hip:gfx90a", b"AMD Instinct MI210", 0)


def test_any_size(opened):
    exe, path = any_size(GPU)
    context = in_c(path, opened(path)).context()

    for size in [(1, 4, 1), (3, 16, 40), (2, 8, 33), (1, 4, 1)]:
        feed = any_size_feed(*size)
        assert same_bits(context.run(feed), exe.run(feed))


def test_sizes_of_their_own_programs(opened, tmp_path):
    any_size_declared({"n": 2, "h": 8, "w": 33}, target=GPU).save(tmp_path / "m.gpuc")
    exe, general = any_size(GPU)
    fixed_one = artifact.load(tmp_path / "m.gpuc").fixed[0][1]
    own = Executable(fixed_one.plan, fixed_one.sources, fixed_one.binaries, fixed_one.weights)
    gpu = opened(general)
    context = in_c(tmp_path / "m.gpuc", gpu).context()
    feed, other = any_size_feed(2, 8, 33), any_size_feed(3, 16, 33)

    for _ in range(2):
        gpu.play(own)
        assert same_bits(context.run(feed), own.run(feed))
        gpu.play(general)
        assert same_bits(context.run(other), exe.run(other))


def test_a_loop_moves_addresses_and_copies_what_is_not_aligned(opened):
    """The steps of 7 floats, 28 bytes, begin at places that kernels cannot load 16 bytes at; those of 4 x 5 can."""
    for batch, hidden, copied in ((1, 7, True), (4, 5, False)):
        proto, feed = recurrence("LSTM", 8, batch, hidden)
        exe, path = models.saved(f"steps{batch}", gpucomp.compile(proto, target=GPU), GPU)
        assert exe.plan.repeats
        gpu = opened(exe)
        context, wanted = in_c(path, gpu).context(), exe.run(feed)
        before = len(gpu.log)

        assert same_bits(context.run(feed), wanted)
        assert any(line.startswith("copy") for line in gpu.log[before:]) == copied


def test_states_that_grow(opened):
    exe, path = generator(GPU)
    check_states_that_grow(in_c(path, opened(path)), exe.context(), (3, 1), 1)


def test_a_state_that_each_run_makes_anew(opened):
    exe, path = filtered(GPU)
    check_a_state_made_anew(in_c(path, opened(exe)), exe.context(), 3)


def test_contexts_share_weights_and_run_side_by_side(opened):
    exe, path, feeds = fixed("digits", GPU)
    gpu = opened(exe)
    wanted = [exe.run(feed) for feed in feeds]
    gc.collect()  # of earlier tests
    before, loads = gpu.held(), gpu.log.count("load")
    model = in_c(path, gpu)
    held, found = [gpu.held()["allocated"]], []
    for _ in range(2):
        context = model.context()
        held.append(gpu.held()["allocated"])
        context.close()
        assert gpu.held()["allocated"] == held[0]
    assert held[0] - before["allocated"] == model.info.weight_bytes
    assert held[1] - held[0] == held[2] - held[0] >= model.info.arena_bytes > 0
    assert gpu.log.count("load") - loads == len({kernel.binary for kernel in exe.plan.kernels})

    def work():
        context = model.context()
        found.extend(same_bits(context.run(feeds[k % 3]), wanted[k % 3]) for k in range(3))
        context.close()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert found == [True] * 6
    model = context = None
    gc.collect()
    assert gpu.held() == before


def test_the_second_gpu_is_used_and_the_thread_s_own_stays(opened):
    exe, path, feeds = fixed("digits", GPU)
    gpu, current = opened(exe), ctypes.c_int(7)
    gpu.library.hipSetDevice(0)
    context = in_c(path, gpu, device="1").context()

    assert same_bits(context.run(feeds[0]), exe.run(feeds[0]))
    gpu.library.hipGetDevice(ctypes.byref(current))
    assert current.value == 0


# ---- refusals ----


def test_a_missing_library(monkeypatch, tmp_path):
    path = fixed("digits", GPU)[1]
    with pytest.raises(NativeError, match=r"GPC5002 'libm\.so\.6' has no HIP \(hipInit is missing\): the path of lib"):
        Model(path, library="libm.so.6")
    if not hip.has_gpu():
        monkeypatch.setenv("ROCM_PATH", str(tmp_path))
        with pytest.raises(NativeError, match=r"GPC5002 HIP's library is missing \(libamdhip64\.so: .*ROCM_PATH"):
            Model(path)


def test_the_library_of_rocm_s_folder(opened, monkeypatch, tmp_path):
    exe, path, _ = fixed("digits", GPU)
    gpu = opened(exe)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libamdhip64.so").symlink_to(gpu.library._name)
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))

    assert Model(path).info.device == b"AMD Instinct MI210"


def test_gpus_that_a_file_is_not_for(opened):
    exe, path, _ = fixed("digits", GPU)
    with pytest.raises(NativeError, match=r"GPC5001 HIP finds no usable GPU \(error 100\): rocminfo"):
        in_c(path, opened(exe, gpus=0))
    with pytest.raises(
        NativeError, match=r"GPC5008 the model is compiled for gfx90a, the GPU AMD .* is gfx942: .*gfx942"
    ):
        in_c(path, opened(exe, arch="gfx942:xnack-"))
    for asked in ("MI300", "2"):
        with pytest.raises(NativeError, match=f"GPC5001 no GPU '{asked}'; HIP finds 'AMD Instinct MI210', 'AMD"):
            in_c(path, opened(exe), device=asked)


def test_memory_that_is_missing(opened):
    exe, path, feeds = fixed("digits", GPU)
    gpu = opened(exe)
    gc.collect()  # of earlier tests
    before = gpu.held()
    gpu.library.fake_memory(4096)
    with pytest.raises(NativeError, match=r"GPC5004 HIP: memory of \d+ bytes: out of memory \(error 2\)"):
        in_c(path, gpu)
    gc.collect()
    assert gpu.held() == before
    gpu.library.fake_memory(1 << 30)
    model = in_c(path, gpu)
    gpu.library.fake_memory(0)
    with pytest.raises(NativeError, match="GPC5004 HIP: memory of"):
        model.context()
    gpu.library.fake_memory(1 << 30)
    assert same_bits(model.context().run(feeds[0]), exe.run(feeds[0]))


def test_calls_that_fail(opened):
    exe, path, feeds = fixed("digits", GPU)
    gpu = opened(exe)
    for call, code, told in (
        ("hipModuleLoadData", "GPC5015", "kernel k0.*: no kernel image is available for execution on the device"),
        ("hipModuleGetFunction", "GPC5015", "kernel k0.*: no kernel image"),
        ("hipStreamCreateWithFlags", "GPC5005", "a stream: no kernel image"),
        ("hipGetDevicePropertiesR0600", "GPC5005", "the description of a GPU: no kernel image"),
        ("hipMemcpyHtoDAsync", "GPC5005", "the copy of a weight: no kernel image"),
    ):
        gpu.fail(call, 209)
        with pytest.raises(NativeError, match=f"{code} HIP: {told}.* .error 209."):
            in_c(path, gpu)
    context = in_c(path, gpu).context()
    for call in ("hipModuleLaunchKernel", "hipMemcpyDtoHAsync", "hipMemcpyHtoDAsync", "hipSetDevice"):
        gpu.fail(call, 209)
        with pytest.raises(NativeError, match="GPC5006 HIP: "):
            context.run(feeds[0])
    assert same_bits(context.run(feeds[0]), exe.run(feeds[0]))  # counters are zero again
    gpu.fail("hipStreamSynchronize", 719)
    for _ in range(2):
        with pytest.raises(NativeError, match=r"GPC5201 HIP: .*unspecified launch failure .* no longer answers"):
            context.run(feeds[0])


def test_a_file_without_machine_code(opened, tmp_path):
    exe, _, _ = fixed("digits", GPU)
    Executable(exe.plan, exe.sources, dict.fromkeys(exe.binaries, b""), exe.weights).save(tmp_path / "m.gpuc")

    with pytest.raises(NativeError, match=r"GPC5015 kernel k0.*: the file has no machine code of it, and only Python"):
        in_c(tmp_path / "m.gpuc", opened(exe))


def test_memory_of_the_caller_is_for_the_processor(opened):
    exe, path, _ = fixed("digits", GPU)

    with pytest.raises(NativeError, match=r"GPC2042 options\.arena: none expected"):
        in_c(path, opened(exe)).context(arena=np.zeros(1 << 16, np.uint8))


# ---- programs that find the library in ROCm's folder; their kernels compute nothing ----


@pytest.fixture
def elsewhere(opened, tmp_path):
    """The environment of such a program."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libamdhip64.so").symlink_to(opened().library._name)
    return {**os.environ, "ROCM_PATH": str(tmp_path), "OCL_ICD_VENDORS": "/none"}


def files():
    return [fixed("digits", GPU)[1], any_size(GPU)[1], generator(GPU)[1], filtered(GPU)[1]]


def test_runs_allocate_nothing_of_the_library_s_own(elsewhere):
    """Calls of malloc in the library are counted, and not the driver's."""
    wrapped = [f"-Wl,--wrap={call}" for call in ("malloc", "calloc", "realloc")]
    program = build("own_allocations", [TESTS / "allocations.c", *SOURCES], "-O1", "-DWRAPPED", *wrapped)
    for path in files():
        done = subprocess.run([program, path, "1"], capture_output=True, text=True, env=elsewhere, check=False)
        assert (done.stdout, done.stderr) == ("40 runs, 0 allocations\n", "")


def test_sanitizers_have_nothing_to_say(elsewhere):
    tool = build("sanitized-run", TOOLS, *SANITIZED)
    for path in files():
        for more in (["--steps", "3"], ["--device", "1", "--bench", "3"], ["--device", "MI300"]):
            done = subprocess.run([tool, path, *more], capture_output=True, text=True, env=elsewhere, check=False)
            told = "GPC5001 no GPU" if more[-1] == "MI300" and more[0] == "--device" else ""
            assert (done.returncode, told in done.stderr) == (int(bool(told)), True), done.stderr
            assert told or done.stderr == ""


def test_devices_are_listed(elsewhere):
    tool = build("gpucomp-run", TOOLS, "-O1")
    done = subprocess.run([tool, "--devices"], capture_output=True, text=True, env=elsewhere, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    line = "AMD Instinct MI210 (hip:gfx90a, driver 6.3, GPU)"
    assert done.stdout.splitlines() == [f"hip {number}  {line}" for number in range(2)]


@pytest.mark.slow
def test_mutations_are_refused_without_a_fault(elsewhere):
    program = build("mutate", [TESTS / "mutate.c", TESTS / "mutations.c", *SOURCES], f"-I{NATIVE / 'src'}", *SANITIZED)
    command = [program, any_size(GPU)[1], "7", "200"]
    done = subprocess.run(command, capture_output=True, text=True, env=elsewhere, timeout=500, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert {"GPC7001", "GPC7003", "GPC7004"} <= {line.split()[0] for line in done.stdout.splitlines()[1:]}
