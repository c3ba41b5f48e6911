"""The C runtime on GPUs of CUDA gives Python's bits, through a fake driver whose kernels run on this processor."""

import ctypes
import gc
from dataclasses import replace

import numpy as np
import pytest

import gpucomp
from gpucomp.artifact.tensor_map import TensorMap
from gpucomp.errors import DeviceError
from gpucomp.runtime import cuda as programs
from gpucomp.runtime.executable import Executable
from gpucomp.targets import cuda
from testing.c_library import COMPILERS, Model, NativeError, same_bits
from tests.c_runtime import models
from tests.c_runtime.gpus import EmulatedCuda
from tests.c_runtime.models import any_size, any_size_feed, filtered, fixed
from tests.c_runtime.test_refusals import sealed
from tests.fake_cupy import FakeCupy
from tests.fake_driver.cubins import cubin
from tests.fake_driver.driver import _library
from tests.plans import COLUMNS, ROWS, answer, two_layers
from tests.runtime.test_repeats import recurrence

GPU = "cuda:sm_80"
SIZE = 4 * ROWS * COLUMNS
X = np.random.default_rng(3).standard_normal((ROWS, COLUMNS)).astype(np.float32)


def has_nvrtc() -> bool:
    try:
        return bool(cuda.nvrtc())
    except DeviceError:
        return False


pytestmark = [
    pytest.mark.skipif(not COMPILERS, reason="no C compiler"),
    pytest.mark.skipif(not has_nvrtc(), reason="no NVRTC"),
]


@pytest.fixture
def opened(monkeypatch):
    """A function that lets models run on a GPU of CUDA, in Python and in C."""

    def found(*played, **how):
        gpu = EmulatedCuda(*played, **how)
        monkeypatch.setattr(programs, "import_cupy", lambda: gpu.cupy)
        monkeypatch.setattr(programs, "import_driver", lambda: gpu.driver.bindings)
        return gpu

    yield found
    gc.collect()  # programs of the fake before it has no device any more


def in_c(path, gpu=None, **options):
    library = (gpu.driver.library if gpu else _library())._name
    return Model(path, library=library, **options)


def saved(path, plan, sources, weights, binary, ptx_text=b""):
    """A file of a plan whose machine code is made up."""
    binaries = {"k0.bin": binary} | ({cuda.ptx_name("k0.bin"): ptx_text} if ptx_text else {})
    exe = Executable(plan, sources, binaries, weights)
    exe.save(path)
    return exe


def add_relu(x, bias, relu, total, *rest):
    sums = x[:SIZE].view(np.float32).reshape(ROWS, COLUMNS) + bias[: 4 * COLUMNS].view(np.float32)
    total[:SIZE] = sums.reshape(-1).view(np.uint8)
    relu[:SIZE] = np.maximum(sums, 0).reshape(-1).view(np.uint8)


@pytest.mark.parametrize("name", ["straight", "lstm"])
def test_bits_are_those_of_python(name, opened):
    proto, feed = recurrence("LSTM", 8, 1, 7)
    exe, path, feeds = (
        fixed(name, GPU)
        if name == "straight"
        else (*models.saved("steps", gpucomp.compile(proto, target=GPU), GPU), [feed])
    )
    context = in_c(path, opened(exe)).context()

    for feed in feeds * 2:
        assert same_bits(context.run(feed), exe.run(feed))


def test_any_size(opened):
    exe, path = any_size(GPU)
    context = in_c(path, opened(path)).context()

    for size in [(1, 4, 1), (3, 16, 40), (2, 8, 33), (1, 4, 1)]:
        feed = any_size_feed(*size)
        assert same_bits(context.run(feed), exe.run(feed))


def test_a_state_that_each_run_makes_anew(opened):
    exe, path = filtered(GPU)
    model, python = in_c(path, opened(exe)), exe.context()
    context, second = model.context(), model.context()
    feeds = [{"x": models.RNG.standard_normal((2, 16)).astype(np.float32)} for _ in range(3)]

    assert all(same_bits(context.run(feed), python.run(feed)) for feed in feeds)
    second.restore(0, context.save(0))
    assert same_bits(second.run(feeds[0]), python.run(feeds[0]))


def test_ptx_for_a_newer_gpu(opened):
    exe, path, feeds = fixed("straight", GPU)
    for capability, by_ptx in (((8, 9), False), ((9, 0), True)):
        gpu = opened(exe, capability=capability)
        model = in_c(path, gpu)
        assert model.info.device == b"NVIDIA A100-SXM4-40GB"
        assert model.info.compiled == (len(exe.plan.kernels) if by_ptx else 0)
        assert {line for line in gpu.driver.log if line.startswith("load")} == {"load ptx" if by_ptx else "load cubin"}
        assert same_bits(model.context().run(feeds[0]), exe.run(feeds[0]))
    gpu.driver.fail("cuModuleLoadData", 222)
    with pytest.raises(
        NativeError, match=r"GPC5008 CUDA: kernel k0.*: it is PTX \d\.\d, .* newer than .* CUDA 13\.0: compile"
    ):
        in_c(path, gpu)
    gpu.driver.fail("cuModuleLoadData", 218)
    with pytest.raises(
        NativeError, match=r"GPC5008 CUDA: kernel k0.*, compiled by the driver from PTX for sm_80: a PTX JIT"
    ):
        in_c(path, gpu)


def test_launches_are_those_of_python(tmp_path, monkeypatch):
    """Tensor maps, shared memory and launches that begin early: the driver is given what Python gives it."""
    plan, sources, weights = two_layers(cuda.manifest("sm_90a"))
    maps = (
        TensorMap(0, "f32", (4, 8), (16,), box=(4, 2), swizzle=32),
        TensorMap(3, "tf32", (4, 3, 2, 1), (16, 48, 96), channels=4, pixels=2, lower=(-1, 0), upper=(1, -2), offset=16),
    )
    kernel = replace(plan.kernels[0], shared=64 << 10, programmatic=True, tensor_maps=maps)
    plan = replace(plan, kernels=(kernel,))
    exe = saved(tmp_path / "m.gpuc", plan, sources, weights, cubin("k0", [8] * 4 + [128] * 2, arch=90))
    given, done = [], []

    def launched(x, bias, relu, total, tiles, windows):
        add_relu(x, bias, relu, total)
        places = [int(one[:8].view(np.uint64)[0]) - array.ctypes.data for one, array in ((tiles, x), (windows, total))]
        given.append((places, bytes(tiles[8:]), bytes(windows[8:])))

    for use_c in (False, True):
        cupy = FakeCupy({"k0": launched}, (9, 0), 227 << 10)
        driver = cupy.driver
        monkeypatch.setattr(programs, "import_cupy", lambda: cupy)  # noqa: B023 (it is called in this turn)
        monkeypatch.setattr(programs, "import_driver", lambda: driver.bindings)  # noqa: B023
        found = in_c(tmp_path / "m.gpuc").context().run({"x": X}) if use_c else exe.run({"x": X})
        assert driver.error is None
        for name, right in answer(X).items():
            np.testing.assert_array_equal(found[name], right)
        done.append([line for line in driver.log if line.startswith("launch")])
    assert given[:2] == given[2:]
    assert [places for places, *_ in given] == [[0, 16]] * 4
    assert done[0] == done[1]
    assert len(done[1]) == 2
    assert all(line.endswith("65536 overlapping") for line in done[1])


# ---- refusals ----


def test_a_missing_library():
    path = fixed("straight", GPU)[1]
    with pytest.raises(
        NativeError, match=r"GPC5002 'libm\.so\.6' has no CUDA \(cuInit is missing\): the path of libcuda"
    ):
        Model(path, library="libm.so.6")


def test_gpus_that_a_file_is_not_for(opened, tmp_path):
    exe, path, _ = fixed("straight", GPU)
    gpu = opened(exe, capability=(7, 5))
    with pytest.raises(
        NativeError, match=r"GPC5008 the model is compiled for sm_80, the GPU NVIDIA .* 7\.5: .* cuda:sm_75"
    ):
        in_c(path, gpu)
    plan, sources, weights = two_layers(cuda.manifest("sm_90a"))
    plan = replace(plan, kernels=(replace(plan.kernels[0], shared=100 << 10),))
    code = cubin("k0", [8] * 4, arch=90)
    saved(tmp_path / "m.gpuc", plan, sources, weights, code)
    for capability, shared, told in (
        ((9, 0), 64 << 10, r"a kernel needs 102400 bytes of shared memory, the GPU NVIDIA .* has 65536: .*sm_90a"),
        ((10, 0), 227 << 10, r"the model is compiled for sm_90a, .*capability 10\.0: compile for cuda:sm_100"),
    ):
        with pytest.raises(NativeError, match=f"GPC5008 {told}"):
            in_c(tmp_path / "m.gpuc", opened(capability=capability, shared=shared))
    with pytest.raises(NativeError, match="GPC5001 no GPU 'H200'; CUDA finds 'NVIDIA A100"):
        in_c(path, opened(exe), device="H200")
    gpu.driver.no_device()
    with pytest.raises(NativeError, match=r"GPC5001 CUDA finds no usable GPU \(error 100\): nvidia-smi"):
        in_c(path, gpu)


def test_memory_that_is_missing(opened, tmp_path):
    plan, sources, weights = two_layers(cuda.manifest("sm_80"))
    saved(tmp_path / "m.gpuc", plan, sources, weights, cubin("k0", [8] * 4))
    gpu = opened()
    gc.collect()  # of earlier tests
    before = gpu.driver.held()
    gpu.driver.library.fake_memory(16)
    with pytest.raises(NativeError, match=r"GPC5004 CUDA: memory of \d+ bytes: out of memory \(error 2\)"):
        in_c(tmp_path / "m.gpuc", gpu)
    gc.collect()
    assert gpu.driver.held() == before
    gpu.driver.library.fake_memory(1 << 30)
    model = in_c(tmp_path / "m.gpuc", gpu)
    gpu.driver.library.fake_memory(0)
    with pytest.raises(NativeError, match="GPC5004 CUDA: memory of"):
        model.context()
    gpu.driver.library.fake_memory(1 << 30)
    model.context().close()
    del model
    gc.collect()
    assert gpu.driver.held() == before


def test_calls_that_fail(tmp_path):
    plan, sources, weights = two_layers(cuda.manifest("sm_80"))
    saved(tmp_path / "m.gpuc", plan, sources, weights, cubin("k0", [8] * 4))
    cupy = FakeCupy({"k0": add_relu})
    driver = cupy.driver
    for call, code, told in (
        ("cuModuleLoadData", "GPC5015", "kernel k0: an unknown error .error 999."),
        ("cuModuleGetFunction", "GPC5015", "kernel k0: an unknown error"),
        ("cuDevicePrimaryCtxRetain", "GPC5005", "the GPU's context: an unknown error"),
        ("cuStreamCreate", "GPC5005", "a stream: an unknown error"),
        ("cuDeviceGetName", "GPC5005", "the description of a GPU: an unknown error"),
    ):
        driver.fail(call, 999)
        with pytest.raises(NativeError, match=f"{code} CUDA: {told}"):
            in_c(tmp_path / "m.gpuc")
    context = in_c(tmp_path / "m.gpuc").context()
    for call in ("cuLaunchKernelEx", "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "cuCtxPushCurrent"):
        driver.fail(call, 999)
        with pytest.raises(NativeError, match="GPC5006 CUDA: "):
            context.run({"x": X})
    assert same_bits(context.run({"x": X}), answer(X))
    current = ctypes.c_void_p(7)
    driver.library.cuCtxGetCurrent(ctypes.byref(current))
    assert current.value is None
    driver.fail("cuStreamSynchronize", 700)
    for _ in range(2):
        with pytest.raises(NativeError, match=r"GPC5201 CUDA: .*an illegal memory access .* no longer answers"):
            context.run({"x": X})


def test_counters_are_zero_again_after_a_run_that_failed(tmp_path):
    plan, sources, weights = two_layers(cuda.manifest("sm_80"))
    launches = [replace(one, args=(*one.args, 6)) for one in plan.launches]
    saved(tmp_path / "m.gpuc", replace(plan, launches=tuple(launches)), sources, weights, cubin("k0", [8] * 5))
    seen = []

    def counts(x, bias, relu, total, counter):
        add_relu(x, bias, relu, total)
        seen.append(int(counter[0]))
        counter[0] = 1 - counter[0]  # two launches leave it at zero

    cupy = FakeCupy({"k0": counts})
    context = in_c(tmp_path / "m.gpuc").context()
    context.run({"x": X})
    cupy.driver.fail("cuLaunchKernelEx", 1, after=1)
    with pytest.raises(NativeError, match="GPC5006 CUDA: k0: invalid argument"):
        context.run({"x": X})
    context.run({"x": X})

    assert seen == [0, 1, 0, 0, 1]


def test_tensor_maps_that_do_not_fit(tmp_path):
    plan, sources, weights = two_layers(cuda.manifest("sm_90a"))
    kernel = replace(plan.kernels[0], tensor_maps=(TensorMap(0, "f32", (4, 8), (16,), box=(4, 2)),))
    code = cubin("k0", [8] * 4 + [128], arch=90)
    saved(tmp_path / "m.gpuc", replace(plan, kernels=(kernel,)), sources, weights, code)
    FakeCupy({"k0": add_relu}, (9, 0), 227 << 10)
    assert same_bits(in_c(tmp_path / "m.gpuc").context().run({"x": X}), answer(X))
    for field, wrong, told in (
        ("extents", [4, 9], "GPC7004 kernel k0: a tensor map that does not fit its parameter of 140 bytes"),
        ("extents", [4, 1 << 40], "GPC7004 kernel k0: a tensor map that does not fit"),
        ("extents", [], "GPC7004 kernel k0: a tensor map that does not fit"),
        ("extents", [4, 0], "GPC7004 kernel k0: a tensor map that does not fit"),
        ("strides", [], "GPC7004 kernel k0: a tensor map that does not fit"),
        ("strides", [1 << 40], "GPC7004 kernel k0: a tensor map that does not fit"),
        ("box", [4], "GPC7004 kernel k0: a tensor map that does not fit"),
        ("element_strides", [1], "GPC7004 kernel k0: a tensor map that does not fit"),
        ("lower", [1], "GPC7004 kernel k0: a tensor map that does not fit"),
        ("channels", 4, "GPC5016 CUDA: kernel k0: no tensor map of its parameter 0: invalid argument"),
        ("offset", 16, "GPC7004 kernel k0: a tensor map that does not fit"),
        ("parameter", 4, "GPC7004 kernel k0: a tensor map of a parameter that it does not have"),
        ("box", [4, 0], "GPC5016 CUDA: kernel k0: no tensor map of its parameter 0: invalid argument"),
    ):

        def change(plan, field=field, wrong=wrong):
            plan["kernels"][0]["tensor_maps"][0][field] = wrong

        with pytest.raises(NativeError, match=told):
            in_c(sealed(tmp_path / "m.gpuc", tmp_path / "wrong.gpuc", change)).context().run({"x": X})
