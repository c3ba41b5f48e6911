"""Building: binaries from NVRTC and PoCL, errors that lead to the source, and the cache in between."""

from __future__ import annotations

import importlib
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpucomp import config, targets
from gpucomp.artifact.plan import CompiledKernel, Plan
from gpucomp.errors import DeviceError, KernelBuildError
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.source import KernelSource
from gpucomp.kernels_templates.render import render
from gpucomp.targets import cpu, cuda, opencl, opencl_build
from gpucomp.targets.cache import KernelCache
from testing.kernels import add_relu
from testing.template_cases import default

KERNEL = add_relu(5, 7)
BROKEN = {
    "cuda": 'extern "C" __global__ void k0() { undeclared = 1; }',
    "opencl": "__kernel void k0() { undeclared = 1; }",
}


def source_for(target, name="k0"):
    return render(KERNEL, default(KERNEL, target.limits), target, name)


def plan_for(target, names):
    kernels = tuple(CompiledKernel(n, target.language, f"{n}.src", f"{n}.bin", (1, 1, 1), (1, 1, 1)) for n in names)
    return Plan(target.name, target.kind, target.arch, (), kernels, (), (), (), (), 0)


def test_nvrtc_gives_a_cubin_without_a_device():
    cubin = cuda.build(source_for(cuda.manifest("sm_90a")), cuda.manifest("sm_90a"))

    assert cubin.startswith(b"\x7fELF")
    assert b"k0" in cubin


def test_the_log_tells_what_was_spent():
    log = (
        "ptxas info    : Compiling entry function 'k0' for 'sm_80'\n"
        "ptxas info    : Function properties for k0\n"
        "    48 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads\n"
        "ptxas info    : Used 40 registers, used 1 barriers, 2048 bytes smem, 380 bytes cmem[0]\n"
    )

    assert cuda.resources(log) == {"k0": cuda.Resources(40, 48, 12, 8, 2048)}


SPENT = (
    "ptxas info    : Compiling entry function 'k0' for 'sm_80'\n"
    "    8 bytes stack frame, {0} bytes spill stores, {0} bytes spill loads\n"
    "ptxas info    : Used {1} registers\n"
)


@pytest.mark.parametrize(
    ("first", "again", "kept"),
    [
        ((8, 64), (0, 99), 1),  # registers were left: 65536 among 256 work-items
        ((8, 64), (8, 99), 0),  # no gain
        ((8, 64), (12, 128), 0),
        ((8, 255), None, 0),  # there are no more
        ((0, 64), None, 0),
    ],
)
@pytest.mark.parametrize("text", ["__launch_bounds__(256) k0()", "__launch_bounds__(256, 2) k0()"])
def test_what_spills_though_registers_are_left_is_compiled_again(first, again, kept, text, monkeypatch):
    source = KernelSource("k0", "cuda", text, Geometry((1, 1, 1), (256, 1, 1)))
    outcomes = [(bytes([n]), b"", SPENT.format(*spent)) for n, spent in enumerate(filter(None, (first, again)))]
    asked, left = [], iter(outcomes)

    def compiled_text(source, text, target):
        asked.append(text)
        return next(left)

    monkeypatch.setattr(cuda, "_compiled_text", compiled_text)

    assert cuda.compile_source(source, cuda.manifest("sm_80")) == outcomes[kept][::2]
    assert asked == [text, "__launch_bounds__(256, 1) k0()"][: len(outcomes)]


def test_a_text_that_says_one_work_group_is_compiled_once(monkeypatch):
    source = KernelSource("k0", "cuda", "__launch_bounds__(256, 1) k0()", Geometry((1, 1, 1), (256, 1, 1)))
    left = iter([(b"", b"", SPENT.format(8, 64))])
    monkeypatch.setattr(cuda, "_compiled_text", lambda *_: next(left))

    assert cuda.resources(cuda.compile_source(source, cuda.manifest("sm_80"))[1])["k0"].spilt == 16


@pytest.mark.parametrize("target", [cuda.manifest("sm_80"), opencl.manifest("pocl")], ids=lambda t: t.name)
def test_a_refused_source_is_named_with_the_first_error_and_dumped(target, tmp_path):
    source = KernelSource("k0", target.language, BROKEN[target.language], Geometry((1, 1, 1)))

    with config.using(dump=tmp_path), pytest.raises(KernelBuildError, match="undeclared") as found:
        importlib.import_module(targets.BUILDERS[target.kind]).build(source, target)

    dumped = Path(str(found.value).rpartition(" is at ")[2])
    assert dumped.read_text() == BROKEN[target.language]
    assert dumped.parent == tmp_path
    assert found.value.exit_code == 5


@pytest.mark.parametrize("target", [cuda.manifest("sm_80"), opencl.manifest("generic")], ids=lambda t: t.name)
def test_a_second_build_comes_from_the_cache(target, tmp_path, monkeypatch):
    source, cache = source_for(target), KernelCache(tmp_path)
    module = importlib.import_module(targets.BUILDERS[target.kind])
    monkeypatch.setattr(opencl, "flavour_of", lambda device: "generic")  # a driver that keeps nothing itself

    first = module.build(source, target, cache)
    monkeypatch.setattr(cuda, "_compiled", lambda *a: pytest.fail("compiled again"))
    reads = []
    monkeypatch.setattr(cache, "put", lambda key, payload: reads.append(key))
    second = module.build(source, target, cache)

    assert first == second
    assert first != source.text.encode()
    assert reads == []


def test_what_pocl_builds_is_left_to_its_own_cache(tmp_path):
    target = opencl.manifest("pocl")
    source = source_for(target)

    assert opencl_build.build(source, target, KernelCache(tmp_path)) == source.text.encode()
    assert not list(tmp_path.rglob("*.bin"))


@pytest.mark.parametrize("damaged", [0, 1])
def test_a_damaged_entry_is_compiled_again(damaged, tmp_path):
    target, cache = cuda.manifest("sm_80"), KernelCache(tmp_path)
    first = cuda.members({"k0.cubin": source_for(target)}, target, cache)
    entry = sorted(tmp_path.rglob("*.bin"))[damaged]
    entry.write_bytes(entry.read_bytes()[:-1] + b"?")

    assert cuda.members({"k0.cubin": source_for(target)}, target, cache) == first


@pytest.mark.parametrize(("arch", "kept"), [("sm_75", ["k0.cubin", "k0.ptx"]), ("sm_90a", ["k0.cubin"])])
def test_ptx_is_kept_where_it_is_of_use_to_newer_devices(arch, kept, tmp_path):
    target = cuda.manifest(arch)
    for _ in range(2):  # compiled, then from the cache
        found = cuda.members({"k0.cubin": source_for(target)}, target, KernelCache(tmp_path))

        assert sorted(found) == kept
        assert found["k0.cubin"].startswith(b"\x7fELF")
        assert all(b".target sm_75" in found[name] and found[name].endswith(b"\0") for name in kept[1:])


def by_tcgen05(target):
    """A kernel with an instruction that sm_100 itself does not have, only its family."""
    text = 'extern "C" __global__ void k0(float* x) { gc_tcgen05_fence_after(); x[threadIdx.x] = 1.0f; }'
    return KernelSource("k0", "cuda", text, Geometry((1, 1, 1), (32, 1, 1)))


def test_a_kernel_of_sm_100_s_family_is_compiled_for_it_and_others_are_for_all_newer_devices(tmp_path):
    target = cuda.manifest("sm_100")
    for _ in range(2):  # compiled, then from the cache
        own = cuda.members({"k0.cubin": by_tcgen05(target)}, target, KernelCache(tmp_path))
        other = cuda.members({"k0.cubin": source_for(target)}, target, KernelCache(tmp_path))

        assert sorted(own) == ["k0.cubin"]
        assert sorted(other) == ["k0.cubin", "k0.ptx"]
    assert "for 'sm_100f'" in cuda.compile_source(by_tcgen05(target), target)[1]
    assert "for 'sm_100'" in cuda.compile_source(source_for(target), target)[1]


@pytest.mark.parametrize("arch", ["sm_90a", "sm_120"])
def test_no_other_architecture_compiles_it(arch):
    target = cuda.manifest(arch)

    with pytest.raises(KernelBuildError, match="tcgen05"):
        cuda.compile_source(by_tcgen05(target), target)


def with_helper(name, factor, items=1):
    """A kernel that calls a helper, of the same name in every text, at its own number; items meet where there are more."""
    meeting = "  barrier(CLK_LOCAL_MEM_FENCE);\n" if items > 1 else ""
    text = (
        f"int times(int x) {{\n  return {factor} * x;\n}}\n"
        f"__kernel void {name}(__global int* y) {{\n{meeting}  y[get_global_id(0)] = times(7);\n}}\n"
    )
    return KernelSource(name, "opencl", text, Geometry((1, 1, 1), (items, 1, 1)))


@pytest.fixture
def compiled(monkeypatch):
    """The texts that the device's compiler was given."""
    cl, texts = opencl.pyopencl(), []
    whole = cl.Program

    def program(context, text, *binaries):
        texts.append(text)
        return whole(context, text, *binaries)

    monkeypatch.setattr(cl, "Program", program)
    return texts


def test_pocl_compiles_kernels_together_and_each_calls_its_own_helpers(compiled):
    target = opencl.manifest("pocl")
    sources = [with_helper(f"k{i}", i) for i in (3, 1, 2)] + [with_helper(f"m{i}", 10 + i, items=2) for i in (1, 2)]
    names = [s.name for s in sources]

    assert [[s.name for s in batch] for batch in opencl_build.batches(sources, target)] == [
        ["k1", "k2", "k3"],
        ["m1", "m2"],
    ]
    binaries = targets.build(plan_for(target, names), sources, target, lambda *a: None)

    assert binaries == {f"{s.name}.bin": s.text.encode() for s in sources}
    assert len(compiled) == 2
    cl, device = opencl.pyopencl(), opencl.device_of(target)
    queue = cl.CommandQueue(cl.Context([device]))
    loaded = opencl_build.load_all(queue.context, device, [(s, binaries[f"{s.name}.bin"]) for s in sources], None)
    assert sorted(compiled[2:]) == sorted(compiled[:2])  # PoCL's cache knows them
    for source, built, wanted in zip(sources, loaded, (21, 7, 14, 77, 84), strict=True):
        found, items = np.zeros(source.geometry.items[0], np.int32), source.geometry.items
        memory = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, found.nbytes)
        cl.Kernel(built, source.name)(queue, items, items, memory)
        cl.enqueue_copy(queue, found, memory)
        assert set(found.tolist()) == {wanted}


def test_a_kernel_that_pocl_refuses_is_named_among_others(tmp_path):
    target = opencl.manifest("pocl")
    broken = KernelSource("k2", "opencl", BROKEN["opencl"].replace("k0", "k2"), Geometry((1, 1, 1)))
    sources = [with_helper("k1", 1), broken, with_helper("k3", 3)]
    device = opencl.device_of(target)
    context = opencl.pyopencl().Context([device])

    for build in (
        lambda: targets.build(plan_for(target, ["k1", "k2", "k3"]), sources, target, lambda *a: None),
        lambda: opencl_build.load_all(context, device, [(s, b"") for s in sources], None),
    ):
        with config.using(dump=tmp_path), pytest.raises(KernelBuildError, match=r"kernel k2: .*undeclared") as found:
            build()

        dumped = Path(str(found.value).rpartition(" is at ")[2])
        assert [path.read_text() for path in tmp_path.iterdir()] == [dumped.read_text()] == [broken.text]


def test_batches_are_what_a_device_s_compiler_makes_in_one_run(compiled, monkeypatch):
    target = opencl.manifest("pocl")
    sources = [with_helper(f"k{i:02}", i) for i in range(opencl_build.TOGETHER + 1)]
    device = opencl.device_of(target)
    twins = [with_helper("k1", 1), with_helper("k1", 2)]

    assert [len(batch) for batch in opencl_build.batches(sources, target)] == [opencl_build.TOGETHER, 1]
    assert [len(batch) for batch in opencl_build.batches(sources, opencl.manifest("mali"))] == [1] * len(sources)
    assert [len(batch) for batch in opencl_build.batches(twins, target)] == [1, 1]
    context = opencl.pyopencl().Context([device])
    opencl_build.load_all(context, device, [(s, b"") for s in twins], None)
    assert sorted(compiled) == sorted(s.text for s in twins)
    monkeypatch.setattr(opencl, "flavour_of", lambda device: "generic")
    monkeypatch.setattr(opencl_build, "processors", lambda: 4)
    assert [len(batch) for batch in opencl_build.batches(sources, opencl.manifest("generic"))] == [9, 9, 9, 6]


def told(device_name, number, queue, built):
    """What kernel ``device_name`` of a program of ``with_helper`` writes."""
    cl, found = opencl.pyopencl(), np.zeros(1, np.int32)
    memory = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, found.nbytes)
    cl.Kernel(built, device_name)(queue, (1, 1, 1), (1, 1, 1), memory)
    cl.enqueue_copy(queue, found, memory)
    return int(found[0]) == 7 * number


def test_elsewhere_than_on_pocl_the_first_of_a_batch_holds_the_binary_of_all(compiled, monkeypatch, tmp_path):
    monkeypatch.setattr(opencl, "flavour_of", lambda device: "generic")
    monkeypatch.setattr(opencl_build, "processors", lambda: 2)
    target = opencl.manifest("generic")
    sources = [with_helper(f"k{i}", i) for i in range(1, 6)]

    with config.using(cache=tmp_path):
        binaries = targets.build(plan_for(target, [s.name for s in sources]), sources, target, lambda *a: None)
        assert len(compiled) == 2
        again = targets.build(plan_for(target, [s.name for s in sources]), sources, target, lambda *a: None)

    assert binaries == again
    assert [bool(binaries[f"k{i}.bin"]) for i in range(1, 6)] == [True, False, False, True, False]
    made = [text for text in compiled if isinstance(text, str)]
    assert len(made) == 2  # the second time they came from the cache
    device = opencl.device_of(target)
    queue = opencl.pyopencl().CommandQueue(opencl.pyopencl().Context([device]))
    for kept in (binaries, dict.fromkeys(binaries, b"of another driver")):
        loaded = opencl_build.load_all(queue.context, device, [(s, kept[f"{s.name}.bin"]) for s in sources], None)
        assert all(told(f"k{i}", i, queue, built) for i, built in enumerate(loaded, 1))
    assert len([text for text in compiled if isinstance(text, str)]) == 4


def test_an_adreno_is_not_told_the_sizes_of_work_groups(monkeypatch):
    source = source_for(opencl.manifest("generic"))
    device = opencl.devices()[0]
    required = "__attribute__((reqd_work_group_size("

    assert required in opencl_build.for_driver(device, source.text)
    monkeypatch.setattr(opencl.pyopencl().Device, "vendor", "QUALCOMM")
    assert opencl_build.for_driver(device, source.text) == opencl_build.REQUIRED.sub("", source.text)
    assert required not in opencl_build.for_driver(device, source.text)
    assert f"__kernel void {source.name}(" in opencl_build.for_driver(device, source.text)


@pytest.mark.parametrize(
    ("text", "exact", "flagged"),
    [
        ("a / b", True, True),
        ("a / b", False, False),
        ("round_to_half(a / b)", False, False),
        ("rint(a / b)", False, True),
        ("floor(a / b)", False, True),
        ("f32_to_i32(a / b)", False, True),
    ],
)
def test_quotients_are_rounded_right_where_the_model_is_exact(text, exact, flagged):
    device = opencl.devices()[0]
    source = KernelSource("k0", "opencl", text, Geometry((1, 1, 1)))

    assert (
        "-cl-fp32-correctly-rounded-divide-sqrt" in opencl_build.build_flags(device, source, exact=exact)
    ) == flagged


@pytest.mark.parametrize(("precision", "exact"), [("fp32", True), ("fp16", False), ("mixed", False)])
def test_a_plan_s_precision_says_whether_the_model_is_exact(monkeypatch, precision, exact):
    target, asked = opencl.manifest("pocl"), []
    flags = opencl_build.build_flags
    monkeypatch.setattr(
        opencl_build, "build_flags", lambda d, s, *, exact=True: asked.append(exact) or flags(d, s, exact=exact)
    )
    plan = replace(plan_for(target, ["k1"]), precision=precision)

    targets.build(plan, [with_helper("k1", 1)], target, lambda *a: None)

    assert set(asked) == {exact}


def test_a_driver_is_not_given_what_another_one_has_built(compiled, monkeypatch):
    """Mesa's rusticl ends the process over it."""
    source, device = with_helper("k0", 1), opencl.device_of(opencl.manifest("pocl"))
    context = opencl.pyopencl().Context([device])
    monkeypatch.setattr(opencl, "flavour_of", lambda device: "generic")
    _, own = opencl_build.program(context, device, source)
    monkeypatch.setattr(opencl_build, "compiler_version", lambda device: "another driver")
    _, foreign = opencl_build.program(context, device, source)
    monkeypatch.undo()
    given = opencl.pyopencl().Program
    monkeypatch.setattr(opencl.pyopencl(), "Program", lambda context, *of: compiled.append(of) or given(context, *of))
    compiled.clear()

    for binary in (foreign, b"\x7fELF", own):
        opencl_build.load_all(context, device, [(source, binary)], None)

    assert compiled == [(source.text,), (source.text,), ([device], [own.partition(b"\n")[2]])]


def test_a_flavour_without_a_device_keeps_its_source():
    target = opencl.manifest("mali")
    source = source_for(target)

    assert opencl_build.build(source, target) == source.text.encode()


def test_a_plan_s_binaries_have_the_plan_s_names(tmp_path):
    target = cuda.manifest("sm_80")
    sources = [source_for(target, f"k{i}") for i in range(3)]
    told = []

    with config.using(cache=tmp_path):
        found = targets.build(plan_for(target, ["k0", "k1", "k2"]), sources, target, lambda *a: told.append(a))

    assert set(found) == {f"k{i}.bin{of}" for i in range(3) for of in ("", ".ptx")}
    assert all(b"k%d" % i in found[f"k{i}.bin"] for i in range(3))
    assert told == [("compile", i, 3) for i in range(3)]


@pytest.mark.parametrize("name", ["cpu", "cuda:sm_80", "opencl:pocl"])
def test_a_plan_without_kernels_builds_nothing(name):
    target = targets.resolve(name)
    unused = KernelSource("k0", target.language, "what no compiler takes", Geometry((0, 1, 1)))

    assert targets.build(plan_for(target, []), [unused], target, lambda *a: None) == {}


def test_a_source_that_no_kernel_needs_is_left_out_of_the_cpu_s_object():
    target = targets.resolve("cpu")
    kernel = CompiledKernel("k0", "llvm", "k0.ll", "model.o", (1, 1, 1), (1, 1, 1))
    plan = Plan(target.name, "cpu", target.arch, (), (kernel,), (), (), (), (), 0)
    used = KernelSource(
        "k0", "llvm", "define void @k0(i64 %first, i64 %last) #0 {\n  ret void\n}\n", Geometry((1, 1, 1))
    )
    unused = KernelSource("k1", "llvm", "what no compiler takes", Geometry((0, 1, 1)))

    with config.using(cache=None):
        built = targets.build(plan, [used, unused], target, lambda *a: None)

    assert built == {"model.o": cpu.build([used], target)}


def test_binaries_are_built_again_from_the_sources_alone():
    target = cuda.manifest("sm_80")
    plan = plan_for(target, ["k0"])

    with config.using(cache=None):
        found = targets.rebuild(plan, {"k0.src": source_for(target).text})

    assert found["k0.bin"].startswith(b"\x7fELF")


def test_a_model_without_kernels_has_no_binaries():
    target = cuda.manifest("sm_80")

    assert targets.build(plan_for(target, []), [], target, lambda *a: None) == {}


def test_a_missing_compiler_names_the_extra(monkeypatch):
    monkeypatch.setattr(cuda.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(cuda.ctypes.util, "find_library", lambda name: None)

    with pytest.raises(DeviceError, match=r"pip install 'nvidia-cuda-nvrtc>=13,<14'"):
        cuda.nvrtc.__wrapped__()


def test_no_thread_hears_the_notes_of_another_s_compiler():
    """Filters of warnings are the process's: a thread that restores them must not do so while another builds."""
    inside, leave = threading.Event(), threading.Event()

    def first():
        with opencl_build._quiet:
            inside.set()
            leave.wait(10)

    before = list(warnings.filters)
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(first)
        inside.wait(10)
        with opencl_build._quiet:
            leave.set()
            done.result()
            warnings.warn("a note", UserWarning, stacklevel=1)  # an error, were it heard
    assert warnings.filters == before
    with pytest.raises(UserWarning):
        warnings.warn("a note", UserWarning, stacklevel=1)
