"""The CPU's manifests, cross-compilation, the cache and parallel builds. What kernels compute is tested in codegen."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from concurrent.futures import wait
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpucomp import config
from gpucomp.artifact.elf import LINKED, Image, split, undefined_symbols
from gpucomp.artifact.relocations import MACHINES
from gpucomp.codegen.llvm import emit
from gpucomp.codegen.llvm.engines import ENGINES
from gpucomp.device.isa import ISAS
from gpucomp.device.target import Target
from gpucomp.errors import KernelBuildError, UsageError
from gpucomp.expr.core import axes_of, call, hole, load, var
from gpucomp.ir.dim import Dim
from gpucomp.ir.size import size_of
from gpucomp.ir.types import F32, TensorType
from gpucomp.kernel import Contraction, Kernel, Loops, Store
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.run_sizes import RunSize
from gpucomp.kernel.source import KernelSource
from gpucomp.targets import cpu, llvm_build, llvm_object
from gpucomp.targets.cache import KernelCache
from testing.kernels import conv
from tests.native import default_schedule


def product(size: int = 97) -> Kernel:
    i, j, k = var("i", size), var("j", 64), var("k", 64)
    acc = hole("acc", F32)
    body = Contraction((), (i,), (j,), (k,), load(0, (i, k), F32), load(1, (k, j), F32), acc)
    params = (TensorType(F32, (size, 64)), TensorType(F32, (64, 64)), TensorType(F32, (size, 64)))
    return Kernel("contraction", params, 1, body, (Store(2, (i, j), acc),))


def elementwise(name: str) -> Kernel:
    axes = axes_of((331,))
    body = call(name, load(0, axes, F32))
    return Kernel("loops", (TensorType(F32, (331,)),) * 2, 1, Loops(axes), (Store(1, axes, body),))


def source(kernel: Kernel, target: Target, name: str = "k") -> KernelSource:
    return emit(kernel, default_schedule(kernel, target), target, name)


def fused_operations(text: str, register: str) -> int:
    return len(re.findall(rf"vfmadd\d+ps\s.*%{register}", text))


@pytest.mark.parametrize(
    ("name", "register", "others"),
    [("cpu:x86-64-v3", "ymm", "zmm"), ("cpu:skylake-avx512", "zmm", "ymm"), ("cpu:haswell", "ymm", "zmm")],
)
def test_a_register_block_fuses_in_the_widest_registers(name: str, register: str, others: str) -> None:
    target = cpu.named(name)

    text = cpu.assembly([source(product(), target)], target)

    assert fused_operations(text, register) >= 12
    assert fused_operations(text, others) == 0


def test_a_register_block_stays_in_registers() -> None:
    target = cpu.named("cpu:skylake-avx512")

    text = cpu.assembly([source(product(), target)], target)

    loops = [part for part in re.split(r"\n\.LBB\w+:", text) if fused_operations(part, "zmm") >= 24]
    assert loops
    assert not any(re.search(r"zmm\d+.*Spill|Reload.*zmm", part) for part in loops)


def test_plain_sse_has_no_wider_instruction() -> None:
    target = cpu.named("cpu:x86-64-v2")

    text = cpu.assembly([source(product(), target), source(elementwise("exp"), target, "e")], target)

    assert "%ymm" not in text
    assert "%zmm" not in text
    assert "mulps" in text


@pytest.mark.parametrize("fn", ["exp", "sin", "pow", "erf", "fmod", "floor", "round"])
@pytest.mark.parametrize("name", ["cpu:x86-64-v2", "cpu:x86-64-v3", "cpu:x86-64-v4"])
def test_no_function_leaves_the_object(name: str, fn: str) -> None:
    axes = axes_of((37,))
    x = load(0, axes, F32)
    body = call(fn, x, x) if fn in {"pow", "fmod"} else call(fn, x)
    kernel = Kernel("loops", (TensorType(F32, (37,)),) * 2, 1, Loops(axes), (Store(1, axes, body),))
    target = cpu.named(name)

    _, binary = split(cpu.build([source(kernel, target)], target))  # an undefined symbol is refused

    assert binary[:4] == b"\x7fELF"


def test_unknown_processors_are_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"unknown processor; known are .*x86-64-v3"):
        cpu.named("cpu:pentium")


def test_the_host_is_described() -> None:
    host = cpu.host()

    assert (host.kind, host.language) == ("cpu", "llvm")
    assert host.limits.vector_bytes in {16, 32, 64}


def test_ir_that_llvm_refuses_is_an_error_with_its_reason() -> None:
    broken = KernelSource(
        "k", "llvm", "define void @k(ptr %p0, i64 %first, i64 %last) #0 {\n  nonsense\n}\n", Geometry((1, 1, 1))
    )

    with pytest.raises(KernelBuildError, match=r"LLVM refuses a kernel: .*expected instruction opcode"):
        cpu.build([broken], cpu.host())


def test_calls_to_outside_are_refused() -> None:
    text = """
declare void @getpid()
define void @k(ptr %p0, i64 %first, i64 %last) #0 {
  call void @getpid()
  ret void
}
"""
    with pytest.raises(KernelBuildError, match="generated code calls getpid"):
        cpu.build([KernelSource("k", "llvm", text, Geometry((1, 1, 1)))], cpu.host())


FUNCTIONS = ("exp", "tanh", "log", "erf", "abs")


def helped(monkeypatch: pytest.MonkeyPatch, processors: int) -> None:
    monkeypatch.setattr(llvm_build, "HELPED_BYTES", 1)
    monkeypatch.setattr(cpu.os, "sched_getaffinity", lambda pid: set(range(processors)))


def test_the_objects_do_not_depend_on_the_number_of_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    host = cpu.host()
    sources = [source(elementwise(fn), host, f"f_{fn}") for fn in FUNCTIONS]
    helped(monkeypatch, 1)
    alone = cpu.build(sources, host)
    helped(monkeypatch, 4)

    assert cpu.build(sources, host) == alone
    assert len(split(alone)) == 1 + len(sources)  # the runner's, and one for each kernel
    image = Image(alone)
    x, y = np.linspace(0.1, 3, 331, dtype=np.float32), np.empty(331, np.float32)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    function(image.address("f_exp"))(x.ctypes.data, y.ctypes.data, 0, sources[0].geometry.groups[0])
    np.testing.assert_allclose(y, np.exp(x), rtol=3e-7)


def test_helpers_compile_while_others_are_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    host = cpu.host()
    helped(monkeypatch, 3)
    monkeypatch.setattr(
        cpu, "compile_text", lambda text, target, real=cpu.compile_text: here.append(text) or real(text, target)
    )
    here: list[str] = []
    with cpu.Begun(host) as begun:
        for fn in FUNCTIONS:
            begun.start(source(elementwise(fn), host, f"f_{fn}"))
        texts = list(begun._build._given)
        wait(begun._build._given.values(), timeout=60)
        begun.blob([])

    assert len(texts) == len(FUNCTIONS)
    assert not set(texts) & set(here)


@pytest.mark.parametrize("harm", ["dies", "is not there"])
def test_without_helpers_this_process_compiles(harm: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host = cpu.host()
    sources = [source(elementwise(fn), host, f"f_{fn}") for fn in FUNCTIONS]
    helped(monkeypatch, 1)
    alone = cpu.build(sources, host)
    helped(monkeypatch, 3)
    program = tmp_path / "python"
    if harm == "dies":
        program.write_text("#!/bin/sh\nhead -c 100 > /dev/null\nprintf 123456789\n")
        program.chmod(0o755)
    monkeypatch.setattr(llvm_build.sys, "executable", str(program))

    assert cpu.build(sources, host) == alone


def test_ir_that_a_helper_refuses_is_an_error_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    helped(monkeypatch, 2)
    broken = KernelSource(
        "k", "llvm", "define void @k(ptr %p0, i64 %first, i64 %last) #0 {\n  no\n}\n", Geometry((1, 1, 1))
    )

    with cpu.Begun(cpu.host()) as begun:
        begun.start(broken)
        wait(begun._build._given.values(), timeout=60)
        with pytest.raises(KernelBuildError, match=r"LLVM refuses a kernel: .*expected instruction opcode"):
            begun.blob([broken])


def test_helpers_end_with_the_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    host = cpu.host()
    helped(monkeypatch, 3)
    with contextlib.suppress(ZeroDivisionError), cpu.Begun(host) as begun:
        begun.start(source(elementwise("exp"), host))
        processes = begun._build._processes
        raise ZeroDivisionError

    assert all(process.returncode is not None for process in processes)


def test_a_cached_model_is_not_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host, cache = cpu.host(), KernelCache(tmp_path)
    sources = [source(elementwise("exp"), host)]
    first = cpu.build(sources, host, cache)
    monkeypatch.setattr(cpu, "compile_text", None)

    second = cpu.build(sources, host, cache)

    assert second == first


def test_another_process_compiles_no_runner_that_is_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host, cache = cpu.host(), KernelCache(tmp_path)
    sources = [source(elementwise("exp"), host)]
    monkeypatch.setattr(cpu, "_runners", {})
    first = cpu.build(sources, host, cache)
    monkeypatch.setattr(cpu, "_runners", {})
    monkeypatch.setattr(cpu, "compile_text", None)

    assert cpu.build(sources, host, cache) == first


def test_the_runner_is_compiled_once_for_all_programs_of_a_target(monkeypatch: pytest.MonkeyPatch) -> None:
    host, made = cpu.host(), []
    real = llvm_object.optimised
    monkeypatch.setattr(llvm_object, "optimised", lambda text, *how: made.append(text) or real(text, *how))
    monkeypatch.setattr(cpu, "_runners", {})

    programs = [split(cpu.build([source(elementwise(fn), host)], host)) for fn in ("exp", "log")]
    empty = split(cpu.build([], host))

    assert sum("@gc_features" in module for module in made) == 1
    assert len(made) == 3
    assert [objects[0] for objects in programs] == 2 * empty
    assert Image(cpu.build([], host)).data("gc_features") == ",".join(sorted(host.features)).encode()


STEPS = """
define void @far(ptr %p, i64 %n, i64 %stride) {
entry:
  br label %body
body:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %at = mul i64 %i, %stride
  %q = getelementptr float, ptr %p, i64 %at
  store float 1.0, ptr %q
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %body, label %end
end:
  ret void
}
"""


def test_addresses_are_as_written_in_modules_that_say_so_and_in_no_others() -> None:
    arguments = ("x86_64-unknown-linux-gnu", "x86-64-v3", "")
    marked = STEPS + llvm_object.AS_WRITTEN
    plain = llvm_object.object_of(STEPS, *arguments)

    assert llvm_object.object_of(marked, *arguments) != plain
    assert llvm_object.object_of(STEPS, *arguments) == plain
    assert llvm_object.object_of(marked, *arguments) != plain


def test_engines_that_unroll_sums_say_that_their_addresses_are_as_written() -> None:
    known = {family.title for engines in ENGINES.values() for family in engines}
    x86, arm = cpu.named("cpu:x86-64-v3"), cpu.named("cpu:neoverse-n1")
    loop = source(elementwise("exp"), x86)
    unrolled = replace(loop, engine="contraction")

    assert known > cpu.ADDRESSED
    assert llvm_object.AS_WRITTEN in cpu.module_text([unrolled], x86, runner=False)
    assert llvm_object.AS_WRITTEN not in cpu.module_text([loop], x86, runner=False)
    assert llvm_object.AS_WRITTEN not in cpu.module_text([unrolled], arm, runner=False)


def test_of_poolings_only_long_ones_for_any_size_have_addresses_as_written() -> None:
    x86 = cpu.named("cpu:x86-64-v3")
    pool = replace(source(elementwise("exp"), x86), engine="pool/windows")
    long = replace(pool, text=pool.text + "\n;" * cpu.LONG_POOL)
    sizes = (RunSize(size_of(Dim("n", 1, 8), 2)),)

    assert llvm_object.AS_WRITTEN in cpu.module_text([replace(long, sizes=sizes)], x86, runner=False)
    for other in (replace(pool, sizes=sizes), long):
        assert llvm_object.AS_WRITTEN not in cpu.module_text([other], x86, runner=False)


def test_engines_of_many_loops_get_few_passes() -> None:
    known = {family.title for engines in ENGINES.values() for family in engines}
    x86, arm = cpu.named("cpu:x86-64-v3"), cpu.named("cpu:neoverse-n1")
    loop, layers = source(elementwise("exp"), x86), replace(source(elementwise("log"), x86), engine="fused_layers")

    assert known > cpu.WRITTEN_OUT
    assert llvm_object.FEW_PASSES in cpu.module_text([layers], x86, runner=False)
    assert llvm_object.FEW_PASSES not in cpu.module_text([layers, loop], x86, runner=False)
    assert llvm_object.FEW_PASSES not in cpu.module_text([layers], arm, runner=False)


def test_products_get_few_passes_unless_rows_have_pointers() -> None:
    x86 = cpu.named("cpu:x86-64-v3")
    plain, windows = source(product(37), x86), source(conv((1, 13, 11, 16), 24, (3, 2), stride=2, pad=1), x86)

    assert (plain.engine, windows.engine) == ("contraction", "contraction")
    assert llvm_object.FEW_PASSES in cpu.module_text([plain], x86, runner=False)
    assert llvm_object.FEW_PASSES in cpu.module_text([of_any_size(plain)], x86, runner=False)
    assert llvm_object.FEW_PASSES not in cpu.module_text([windows], x86, runner=False)


def test_windows_along_rows_of_any_width_get_all_passes() -> None:
    x86 = cpu.named("cpu:x86-64-v3")
    depthwise = replace(source(product(37), x86), engine="loops/windows")

    assert llvm_object.FEW_PASSES in cpu.module_text([depthwise], x86, runner=False)
    assert llvm_object.FEW_PASSES not in cpu.module_text([of_any_size(depthwise)], x86, runner=False)


def of_any_size(one: KernelSource) -> KernelSource:
    return replace(one, sizes=(RunSize(size_of(Dim("n"), 5)),))


@pytest.mark.parametrize(("processors", "nodes", "helps"), [(2, 97, True), (2, 5, False), (1, 97, False)])
def test_a_helper_compiles_the_runner_of_a_large_model_before_its_first_kernel(
    processors: int, nodes: int, helps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, kernel = cpu.host(), source(elementwise("log"), cpu.host())
    monkeypatch.setattr(cpu.os, "sched_getaffinity", lambda pid: set(range(processors)))
    monkeypatch.setattr(cpu, "_runners", {})
    with cpu.Begun(host) as begun:
        begun.expect(nodes)
        given = dict(begun._build._given)
        wait(given.values(), timeout=60)
        begun.start(kernel)
        then = len(begun._build._given)

        assert [bool(given), then] == [helps, 2 * helps]
        assert len(split(begun.blob([kernel]))) == 2


@pytest.mark.parametrize("processors", [2, 5])
def test_little_does_not_start_all_helpers(processors: int, monkeypatch: pytest.MonkeyPatch) -> None:
    host = cpu.host()
    sources = [source(elementwise(fn), host, f"f_{fn}") for fn in FUNCTIONS]
    monkeypatch.setattr(cpu.os, "sched_getaffinity", lambda pid: set(range(processors)))
    monkeypatch.setattr(cpu, "_runners", {})

    with cpu.Begun(host) as begun:
        begun.expect(97)
        for one in sources:
            wait(begun._build._given.values(), timeout=60)
            begun.start(one)
        made = begun.blob(sources)

        assert len(begun._build._given) == 1 + len(sources)
        # one; on five processors perhaps another, if the first has answered and does not wait for more yet
        assert len(begun._build._processes) <= processors // 2
    assert len(split(made)) == 1 + len(sources)


def test_a_helper_is_not_started_for_a_runner_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    host = cpu.host()
    cpu.build([source(elementwise("log"), host)], host)
    monkeypatch.setattr(cpu.os, "sched_getaffinity", lambda pid: {0, 1, 2})

    with cpu.Begun(host) as begun:
        begun.expect(97)

        assert not begun._build._given


def test_another_kernel_is_not_taken_from_the_cache(tmp_path: Path) -> None:
    host, cache = cpu.host(), KernelCache(tmp_path)

    first = cpu.build([source(elementwise("exp"), host)], host, cache)
    second = cpu.build([source(elementwise("log"), host)], host, cache)

    assert first != second


def test_a_processor_with_fewer_threads_is_another_device_to_records():
    cores = len(os.sched_getaffinity(0))
    with config.using(threads=0):
        plain = cpu.host()
    with config.using(threads=cores):
        assert cpu.host() == plain
    with config.using(threads=cores + 3):
        found = cpu.host()

    with config.using(threads=1):
        alone = cpu.host()

    assert found.identity == f"{plain.identity}, {cores + 3} threads"
    assert alone.identity in (plain.identity, f"{plain.identity}, 1 thread")
    assert (found.name, found.arch, found.limits) == (plain.name, plain.arch, plain.limits)


def test_what_the_system_does_not_name_is_not_used(monkeypatch):
    """A model compiled here has to load here, and loading asks the system."""
    there = cpu._host().features
    hidden = sorted(there)[0]
    monkeypatch.setattr(cpu.processor, "missing", lambda features: [hidden] if hidden in features else [])

    assert cpu._host.__wrapped__().features == there - {hidden}


def test_code_is_loaded_for_the_machines_whose_relocations_are_known():
    assert {isa.name for isa in ISAS if isa.loads} == set(MACHINES.values())
    assert {isa.name for isa in ISAS if not isa.loads and isa.pointer == 8} == set(LINKED.values())


def test_one_object_of_several_kernels_has_their_names_and_no_others():
    sources = {
        f"net_{number}": KernelSource(name, "llvm", NOTHING % name, Geometry((1, 1, 1)))
        for number, name in enumerate("ab")
    }

    data = cpu.linked(sources, cpu.named("cpu:x86-64-v2"))

    assert undefined_symbols(data) == []
    image = Image(len(data).to_bytes(8, "little") + data)
    assert [name for name in ("net_0", "net_1", "a", "b", "a.call", "gc_run") if image.has(name)] == ["net_0", "net_1"]


def test_llvm_refuses_one_of_several_kernels():
    wrong = KernelSource("a", "llvm", "define void @a(i64 %first, i64 %last) #0 { nonsense }", Geometry((1, 1, 1)))
    with pytest.raises(KernelBuildError, match="GPC5101 LLVM refuses a kernel"):
        cpu.linked({"net_0": wrong}, cpu.named("cpu:x86-64-v2"))


NOTHING = "define void @%s(i64 %%first, i64 %%last) #0 {\n  ret void\n}\n"
