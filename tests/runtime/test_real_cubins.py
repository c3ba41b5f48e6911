"""What NVRTC makes, loaded and launched by the runtime on a driver without a GPU, which reads it as a driver does."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import gpucomp
from gpucomp import replacing
from gpucomp.ir.types import DTYPES, F16
from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.kernels_templates.render import render
from gpucomp.runtime.cuda import CudaProgram
from gpucomp.targets import cuda
from testing.cuda_on_cpu.harness import Mapped, compile_many
from testing.kernels import matmul
from testing.tolerance import assert_matches
from testing.wgmma_kernels import f16_model
from tests.fake_cupy import FakeCupy
from tests.fake_driver.driver import FakeDriver

OPT_IN = {"sm_75": 64 << 10, "sm_80": 163 << 10, "sm_90a": 227 << 10, "sm_100": 227 << 10}
MAP = 128  # bytes of a parameter that is one
IMAGE = (1, 64, 56, 56)


def capability(arch):
    return divmod(int(arch.strip("sm_a")), 10)


@pytest.mark.parametrize("arch", OPT_IN)
def test_a_cubin_says_what_ptxas_said(arch):
    """A split product: its flag is static shared memory, which sm_90a's files count with what the system reserves."""
    kernel, family, target = matmul(130, 128, 512, dtype=F16), FAMILIES["contraction/mma"], cuda.manifest(arch)
    schedule = dict(family.default(family.problem(kernel), target.limits).numbers) | {"splits": 4}
    source = render(kernel, schedule, target, "k0", family)
    binary, log = cuda.compile_source(source, target)
    resources = cuda.resources(log)["k0"]
    bindings = FakeDriver({}, capability(arch), OPT_IN[arch]).bindings
    names = bindings.CUfunction_attribute
    wanted = {
        names.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: resources.shared_bytes,
        names.CU_FUNC_ATTRIBUTE_NUM_REGS: resources.registers,
        names.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: source.geometry.items[0],
        names.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: (48 << 10) - resources.shared_bytes,
    }

    _, context = bindings.cuDevicePrimaryCtxRetain(0)
    bindings.cuCtxPushCurrent(context)
    status, module = bindings.cuModuleLoadData(binary)
    assert status == 0
    _, function = bindings.cuModuleGetFunction(module, b"k0")

    assert resources.shared_bytes > 0
    assert {name: bindings.cuFuncGetAttribute(name, function)[1] for name in wanted} == wanted
    bindings.cuModuleUnload(module)
    bindings.cuCtxPopCurrent()


def model_of_f16():
    """A convolution, a pool, a product and a softmax."""
    rng = np.random.default_rng(8)
    weights = {"w": rng.standard_normal((256, 64, 3, 3)), "u": rng.standard_normal((256, 32))}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "u"], ["m"]),
        helper.make_node("Softmax", ["m"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT16, s) for n, s in (("x", IMAGE), ("y", (1, 32)))]
    initial = [numpy_helper.from_array(a.astype(np.float16), n) for n, a in weights.items()]
    graph = helper.make_graph(nodes, "f16", ends[:1], ends[1:], initial)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def where_it_can(engines_of, family):
    """``family`` for all kernels that it takes."""

    def engines(kernel, features):
        found = engines_of(kernel, features)
        return (family,) if family in found else found

    return engines


@pytest.mark.parametrize(("arch", "engine"), [*((arch, "") for arch in OPT_IN), ("sm_90a", "contraction/wgmma")])
def test_a_compiled_model_is_loaded_launched_and_replayed(arch, engine, monkeypatch):
    if engine:
        engines_of, render_text = replacing.back_end("cuda")
        monkeypatch.setattr(
            replacing, "back_end", lambda language: (where_it_can(engines_of, FAMILIES[engine]), render_text)
        )
    executable = gpucomp.compile(model_of_f16(), target=f"cuda:{arch}")
    plan, seen = executable.plan, []
    kernels = {k.name: lambda *arguments, k=k: seen.append((k.name, arguments)) for k in plan.kernels}
    cupy = FakeCupy(kernels, capability(arch), OPT_IN[arch])
    program = CudaProgram(plan, executable.sources, executable.binaries, executable.weights, cupy=cupy)
    x = np.zeros(IMAGE, np.float16)

    for _ in range(3):
        program.run({"x": x})

    wanted = []
    for launch in plan.launches:
        k = plan.kernels[launch.kernel]
        shape = " ".join("x".join(map(str, extents)) for extents in (k.groups, k.items))
        wanted.append(f"launch {k.name} {shape} {k.shared}{' overlapping' * k.programmatic}")
    assert [line for line in cupy.driver.log if line.startswith("launch")] == wanted * 3
    assert [name for name, _ in seen] == [plan.kernels[launch.kernel].name for launch in plan.launches] * 3
    for launch, (_, arguments) in zip(plan.launches, seen, strict=False):  # a buffer each, then the maps
        k = plan.kernels[launch.kernel]
        memory = [cupy.driver.memory(program._memory[a]) for a in launch.args]
        assert [a.ctypes.data for a in arguments[: len(memory)]] == [m.ctypes.data for m in memory]
        assert [a.nbytes for a in arguments[len(memory) :]] == [MAP] * len(k.tensor_maps)
    assert bool(engine) == any(k.tensor_maps for k in plan.kernels)


def products_of_f16():
    """Two products with an epilogue, as small as a processor plays them quickly."""
    model, w, b, u = f16_model()

    def answer(x):
        hidden = np.maximum((x.astype(np.float64) @ w).astype(np.float16) + b, 0)
        return (hidden.astype(np.float64) @ u).astype(np.float16)

    return model, answer


def played(plan, sources):
    """Each kernel as a function of the device's memory: the harness runs its text on the processor."""
    pairs = [(sources[k.source], k.name) for k in plan.kernels]
    buffers = {launch.kernel: [plan.buffers[a] for a in launch.args] for launch in plan.launches}

    def function(number, built):
        kernel = plan.kernels[number]

        def play(*parameters):
            arrays = [
                memory[: b.nbytes].view(DTYPES[b.dtype].numpy).reshape(b.shape)
                for memory, b in zip(parameters, buffers[number], strict=False)
            ]
            maps = [Mapped(m, arrays[m.parameter]) for m in kernel.tensor_maps]
            built.run(kernel.groups, kernel.items, [*arrays, *maps], dynamic_shared=kernel.shared)

        return play

    return {
        k.name: function(n, built) for n, (k, built) in enumerate(zip(plan.kernels, compile_many(pairs), strict=True))
    }


@pytest.mark.slow
@pytest.mark.parametrize(("arch", "engine"), [("sm_80", ""), ("sm_90a", "contraction/wgmma")])
def test_a_model_gives_the_answer_launched_and_replayed(arch, engine, monkeypatch):
    """From the model to its cubins, through the driver's launches and graphs, to numbers."""
    if engine:
        engines_of, render_text = replacing.back_end("cuda")
        monkeypatch.setattr(
            replacing, "back_end", lambda language: (where_it_can(engines_of, FAMILIES[engine]), render_text)
        )
    model, answer = products_of_f16()
    executable = gpucomp.compile(model, target=f"cuda:{arch}")
    cupy = FakeCupy(played(executable.plan, executable.sources), capability(arch), OPT_IN[arch])
    program = CudaProgram(executable.plan, executable.sources, executable.binaries, executable.weights, cupy=cupy)

    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal((37, 72)).astype(np.float16)

        found = program.run({"x": x})["y"]

        assert cupy.driver.error is None
        assert_matches(found, answer(x), terms=72)


def test_the_ptx_of_a_model_is_loaded_by_a_newer_device():
    executable = gpucomp.compile(model_of_f16(), target="cuda:sm_80")
    cupy = FakeCupy({}, (9, 0), OPT_IN["sm_90a"])

    program = CudaProgram(executable.plan, executable.sources, executable.binaries, executable.weights, cupy=cupy)
    program.run({"x": np.zeros(IMAGE, np.float16)})

    assert {line for line in cupy.driver.log if line.startswith("load")} == {"load ptx"}
    assert len(cupy.driver.done("launch")) == len(executable.plan.launches)
