"""The C runtime on OpenCL devices gives the bits that Python does there, and keeps what a driver compiled."""

import os
import re
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

from gpucomp.runtime import artifact
from gpucomp.runtime.executable import Executable
from gpucomp.targets import opencl
from testing.c_library import COMPILERS, NATIVE, SOURCES, Model, NativeError, build, same_bits
from tests.c_runtime.models import any_size, any_size_declared, any_size_feed, filtered, fixed, generator
from tests.c_runtime.state_checks import check_a_state_made_anew, check_states_that_grow

POCL = "opencl:pocl"
TOOLS = [NATIVE / "tools" / "gpucomp_run.c", NATIVE / "tools" / "npy.c", *SOURCES]
RUSTICL = Path("/etc/OpenCL/vendors/rusticl.icd")
TESTS = NATIVE.parents[1] / "tests" / "c_runtime"


def has_pocl() -> bool:
    try:
        return any(opencl.flavour_of(device) == "pocl" for device in opencl.devices())
    except opencl.DeviceError:
        return False


pytestmark = [
    pytest.mark.skipif(not COMPILERS, reason="no C compiler"),
    pytest.mark.skipif(not has_pocl(), reason="no PoCL"),
]
with_rusticl = pytest.mark.skipif(
    not RUSTICL.exists(), reason="no rusticl, whose binaries are kept (PoCL keeps its own)"
)


@pytest.mark.parametrize("name", ["digits", "int8", "lstm", "straight"])
def test_bits_are_those_of_python(name):
    exe, path, feeds = fixed(name, POCL)
    context = Model(path).context()

    for feed in feeds * 2:
        assert same_bits(context.run(feed), exe.run(feed))


def test_what_a_model_says():
    info = Model(fixed("digits", POCL)[1], device="PTHREAD").info

    assert info.target == b"opencl:pocl"
    assert info.device in {device.name.strip().encode() for device in opencl.devices()}
    assert info.compiled > 0


def test_any_size():
    exe, path = any_size(POCL)
    context = Model(path).context()

    for size in [(1, 4, 1), (5, 64, 90), (2, 8, 33), (1, 4, 1), (3, 64, 17)] * 2:
        feed = any_size_feed(*size)
        assert same_bits(context.run(feed), exe.run(feed))


def test_sizes_of_their_own_programs(tmp_path):
    any_size_declared({"n": 2, "h": 8, "w": 33}, target=POCL).save(tmp_path / "m.gpuc")
    exe, context, own = (
        any_size(POCL)[0],
        Model(tmp_path / "m.gpuc").context(),
        artifact.load(tmp_path / "m.gpuc").fixed[0][1],
    )
    own = Executable(own.plan, own.sources, own.binaries, own.weights)
    feed, other = any_size_feed(2, 8, 33), any_size_feed(5, 64, 33)

    for _ in range(2):
        assert same_bits(context.run(feed), own.run(feed))
        assert same_bits(context.run(other), exe.run(other))


def test_states_that_grow():
    exe, path = generator(POCL)
    context = check_states_that_grow(Model(path), exe.context(), (5, 1, 1, 7, 1, 3), 2)
    context.call("gpucomp_reset")
    assert context.rows(0) == 0


def test_a_state_that_each_run_makes_anew():
    exe, path = filtered(POCL)
    check_a_state_made_anew(Model(path), exe.context(), 5)


def test_contexts_of_one_model_run_side_by_side():
    exe, path, feeds = fixed("digits", POCL)
    model, wanted = Model(path), [exe.run(feed) for feed in feeds]
    found = []

    def work():
        context = model.context()
        found.extend(same_bits(context.run(feeds[k % 3]), wanted[k % 3]) for k in range(12))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert found == [True] * 24


@pytest.mark.parametrize("name", ["lstm", "any_size", "generator"])
def test_runs_allocate_nothing_of_the_library_s_own(name):
    """Calls of malloc in the library are counted, and not the driver's."""
    path = {"any_size": any_size, "generator": generator}.get(name, lambda target: fixed(name, target))(POCL)[1]
    wrapped = [f"-Wl,--wrap={call}" for call in ("malloc", "calloc", "realloc")]
    program = build("own_allocations", [TESTS / "allocations.c", *SOURCES], "-O1", "-DWRAPPED", *wrapped)
    done = subprocess.run([program, path, "1"], capture_output=True, text=True, timeout=300, check=False)

    assert (done.stdout, done.stderr) == ("40 runs, 0 allocations\n", "")


def test_a_missing_library(tmp_path, monkeypatch):
    path = fixed("digits", POCL)[1]
    with pytest.raises(NativeError, match=r"GPC5002 '/none/libOpenCL.so' has no OpenCL"):
        Model(path, library="/none/libOpenCL.so")
    with pytest.raises(NativeError, match=r"GPC5002 .libm\.so\.6. has no OpenCL .clGetPlatformIDs is missing"):
        Model(path, library="libm.so.6")
    monkeypatch.setenv("GPUCOMP_OPENCL_LIBRARY", "/none/libOpenCL.so")
    with pytest.raises(NativeError, match="GPC5002"):
        Model(path)


def test_no_such_device():
    path = fixed("digits", POCL)[1]
    for asked in ("Mali-G78", "63"):
        with pytest.raises(
            NativeError, match=f"GPC5001 no device '{asked}' for target {POCL}; .* devices are '.*' of "
        ):
            Model(path, device=asked)
    none = {**os.environ, "OCL_ICD_VENDORS": "/none"}
    tool = build("gpucomp-run", TOOLS, "-O1")
    done = subprocess.run([tool, path], capture_output=True, text=True, env=none, check=False)
    assert done.returncode == 1
    assert f"GPC5001 this machine has no device for target {POCL}; its OpenCL devices are none" in done.stderr
    done = subprocess.run([tool, "--devices"], capture_output=True, text=True, env=none, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "GPC5001 OpenCL device 0: this machine has 0" in done.stderr


def test_memory_of_the_caller_is_for_the_processor():
    model = Model(fixed("digits", POCL)[1])

    with pytest.raises(NativeError, match=r"GPC2042 options\.arena: none expected"):
        model.context(arena=np.zeros(1 << 16, np.uint8))


# ---- what is kept: with rusticl, in processes of their own, as drivers read their environment when they are loaded ----


ALONE = {"OCL_ICD_VENDORS": str(RUSTICL), "RUSTICL_ENABLE": "llvmpipe", "GPUCOMP_SELF_TEST": "0"}


def opened(cache, *, code=0, **more):
    """How many programs the driver compiled to open a model with this cache, and its result."""
    tool, path = build("gpucomp-run", TOOLS, "-O1"), fixed("digits", "opencl:generic")[1]
    environment = {**os.environ, **ALONE, **more}
    done = subprocess.run([tool, path, "--cache", cache], capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (code, "")
    return int(re.search(r"device  llvmpipe .*, (\d+) programs were compiled", done.stdout)[1])


def entries(cache):
    return sorted(cache.rglob("*.bin"))


@with_rusticl
def test_what_was_compiled_is_kept(tmp_path):
    first = opened(tmp_path)
    assert first == len(entries(tmp_path)) > 1
    assert opened(tmp_path) == 0

    head, _, rest = entries(tmp_path)[0].read_bytes().partition(b"\n")
    for damaged in (
        b"",
        head,
        head + b"\n" + rest[:-1],
        head + b"\n" + rest[:-1] + bytes([rest[-1] ^ 1]),
        b"{}\n" + rest,
    ):
        entries(tmp_path)[0].write_bytes(damaged)
        assert opened(tmp_path) == 1
        assert opened(tmp_path) == 0
    entries(tmp_path)[0].chmod(0o666)  # others could have written it
    assert opened(tmp_path) == 1
    assert not list(tmp_path.rglob(".gpucomp.*"))


@with_rusticl
def test_the_cache_has_a_bound(tmp_path):
    first = opened(tmp_path)
    entries(tmp_path)[0].unlink()
    newest = max(entries(tmp_path), key=lambda path: path.stat().st_mtime_ns)
    bound = 2 * -(-newest.stat().st_size // 4096) * 4096

    assert opened(tmp_path, GPUCOMP_CACHE_BYTES=str(bound)) == 1
    assert 1 <= len(entries(tmp_path)) < first
    assert sum(path.stat().st_size for path in entries(tmp_path)) <= bound


@with_rusticl
def test_a_cache_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "file").touch()

    assert opened(tmp_path / "file") == opened(tmp_path / "file") > 0
    assert opened("") > 0
    limited = build("limited", [TESTS / "full_disk.c", *SOURCES], "-O1")
    environment = {**os.environ, **ALONE}
    command = [limited, fixed("digits", "opencl:generic")[1], tmp_path / "full"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 0
    assert list((tmp_path / "full").rglob("*.bin")) == []
    assert list((tmp_path / "full").rglob(".gpucomp.*")) == []


@with_rusticl
def test_python_reads_what_the_library_kept(tmp_path):
    from gpucomp.targets.cache import KernelCache

    opened(tmp_path)
    cache = KernelCache(tmp_path / "kernels")

    assert all((cache.get(path.stem) or b"").startswith(b"gpucomp opencl ") for path in entries(tmp_path))


@with_rusticl
def test_kernels_are_tested_and_the_verdict_is_kept_beside_them(tmp_path):
    opened(tmp_path)
    opened(tmp_path, GPUCOMP_SELF_TEST="")

    (verdict,) = [path for path in entries(tmp_path) if path.read_bytes().endswith(b"\ngpucomp self-test 1\n")]
    before = verdict.stat().st_ino
    opened(tmp_path, GPUCOMP_SELF_TEST="")
    assert verdict.stat().st_ino == before  # it was read, not written again
