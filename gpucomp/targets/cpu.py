"""The CPU target: the features of a processor, and LLVM IR compiled into one relocatable object. Nothing runs here."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm

from gpucomp import config
from gpucomp.artifact.elf import undefined_symbols
from gpucomp.codegen.llvm.ir.launch_list import RUNNER, probes
from gpucomp.device import processor
from gpucomp.device.target import Target
from gpucomp.errors import DeviceError, KernelBuildError, UsageError
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.source import KernelSource
from gpucomp.targets import processors
from gpucomp.targets.cache import KernelCache
from gpucomp.targets.isa import ISAS, KNOWN, LLVM_NAMES, isa_of

OPTIMIZATION = 2
PARALLEL_BYTES = 300_000  # sources shorter than this are compiled in this process


def _second_cache() -> int:
    """Bytes of this processor's L2 cache, from Linux; 1 MiB if that is unknown."""
    try:
        text = Path("/sys/devices/system/cpu/cpu0/cache/index2/size").read_text().strip()
    except OSError:
        return 1 << 20
    return int(text[:-1]) << 10 if text.endswith("K") and text[:-1].isdigit() else 1 << 20


def host() -> Target:
    """The processor of this machine. Another number of threads makes it another device for tuning records."""
    found, threads = _host(), config.current().threads
    if threads in (0, len(os.sched_getaffinity(0))):
        return found
    return replace(found, identity=f"{found.identity}, {threads} threads")


@cache
def _host() -> Target:
    _start_llvm()
    features = frozenset(name for name, there in llvm.get_host_cpu_features().items() if there) & KNOWN
    if processor.tiles_refused():
        features = frozenset(f for f in features if not f.startswith("amx-"))
    features -= frozenset(processor.missing(features))  # features that the kernel does not report or a filter hides
    isa = next((isa for isa in ISAS if isa.needed in features), None)
    if isa is None:
        known = ", ".join(f"{isa.name} with {isa.needed}" for isa in ISAS)
        raise DeviceError(f"cpu: no code can be generated for this processor; known are {known}", code="GPC5010")
    name = llvm.get_host_cpu_name()
    limits = isa.limits(features, _second_cache(), name)
    identity = f"{processor.model_name()}, {len(os.sched_getaffinity(0))} cores"
    return Target("cpu", "cpu", name, "llvm", limits, alignment=64, features=features, identity=identity)


def named(name: str) -> Target:
    """``cpu``, or ``cpu:NAME`` with the LLVM name of another processor. Raises ``UsageError`` for other names."""
    kind, _, arch = name.partition(":")
    if kind != "cpu":
        raise UsageError(f"target {name!r}: not a cpu target", code="GPC2010")
    if not arch:
        return host()
    for isa in ISAS:
        if arch in isa.processors:
            features = isa.processors[arch]
            return Target(
                name, "cpu", arch, "llvm", isa.limits(features, processor=arch), alignment=64, features=features
            )
    known = ", ".join(sorted(arch for isa in ISAS for arch in isa.processors))
    raise UsageError(f"target {name!r}: unknown processor; known are {known}", code="GPC2010")


@cache
def _start_llvm() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def _feature_string(target: Target) -> str:
    """LLVM's feature string: the host's for ``cpu``; empty for a named processor, whose name implies its features."""
    if target.name != "cpu":
        return ""
    features: str = llvm.get_host_cpu_features().flatten()
    return features


def _machine(target: Target) -> tuple[str, llvm.TargetMachine]:
    """The triple, and a new machine for one module: modules that share a machine crash LLVM."""
    triple = isa_of(target.features).triple
    return triple, llvm.Target.from_triple(triple).create_target_machine(
        cpu=LLVM_NAMES.get(target.arch, target.arch),
        features=_feature_string(target),
        opt=OPTIMIZATION,
        reloc="pic",
        codemodel="small",
    )


def _optimise(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> None:
    options = llvm.create_pipeline_tuning_options(speed_level=OPTIMIZATION)
    # the emitters write vectors, and unroll loops where it pays
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = options.loop_interleaving = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)


def _wrapper(source: KernelSource) -> str:
    """``NAME.call(ptr arguments, i64 first, i64 last)``: the signature that the native runner calls."""
    header = source.text[source.text.index(f"@{source.name}(") :]
    count = header[: header.index(")")].count("ptr %")
    loads = [
        f"  %a{i} = getelementptr ptr, ptr %arguments, i64 {i}\n  %p{i} = load ptr, ptr %a{i}" for i in range(count)
    ]
    passed = "".join(f"ptr %p{i}, " for i in range(count))
    return "\n".join(
        [
            f"define void @{source.name}.call(ptr %arguments, i64 %first, i64 %last) #1 {{",
            *loads,
            f"  tail call void @{source.name}({passed}i64 %first, i64 %last)",
            "  ret void\n}\n",
        ]
    )


def module_text(sources: Sequence[KernelSource], target: Target, *, runner: bool = True) -> str:
    """One LLVM module of the kernels and their wrappers; with ``runner`` also the native runner and the probes."""
    bits = target.limits.vector_bytes * 8
    width = f'"prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}"'
    unique = list({s.name: s for s in sources}.values())
    parts = [part for source in unique for part in (source.text, _wrapper(source))]
    if runner:
        needed = ",".join(sorted(target.features)).encode()
        parts.append(f'@gc_features = constant [{len(needed)} x i8] c"{needed.decode()}"')
        isa = isa_of(target.features)
        parts.append(RUNNER.replace("PAUSE", isa.wait).replace("CYCLES", isa.cycles))
        parts += [part for probe in probes(target) for part in (probe.text, _wrapper(probe))]
    parts.append(f'attributes #0 = {{ nounwind noinline "no-builtins" {width} }}')
    parts.append(f'attributes #1 = {{ nounwind "no-builtins" {width} }}')
    return "\n".join(parts)


def compile_text(text: str, target: Target) -> bytes:
    """Optimised machine code of a module, as an ELF object without undefined symbols."""
    _start_llvm()
    triple, machine = _machine(target)
    try:
        module = llvm.parse_assembly(text)
        module.triple = triple
        module.verify()
    except RuntimeError as error:
        lines = [line for line in str(error).splitlines() if "error:" in line] or str(error).splitlines()
        raise KernelBuildError(f"LLVM refuses a kernel: {lines[0]}", code="GPC5101") from error
    module.data_layout = str(machine.target_data)
    _optimise(module, machine)
    binary: bytes = machine.emit_object(module)
    if foreign := undefined_symbols(binary):
        raise KernelBuildError(f"generated code calls {', '.join(foreign)}, which is not defined", code="GPC5102")
    return binary


def build(sources: Sequence[KernelSource], target: Target, cache: KernelCache | None = None) -> bytes:
    """All kernels of a model as one blob of one or more objects, from ``cache`` if possible.

    Raises ``KernelBuildError`` if LLVM refuses a kernel.
    """
    unique = list({s.name: s for s in sources}.values())
    if cache is None:
        return _compile(unique, target)
    whole = KernelSource("model", "llvm", module_text(unique, target), Geometry((1, 1, 1)))
    version = "llvm " + ".".join(map(str, llvm.llvm_version_info))
    key = cache.key(whole, target=target.arch, compiler=version, flags=(_feature_string(target), str(OPTIMIZATION)))
    binary = cache.get(key)
    if binary is None:
        binary = _compile(unique, target)
        cache.put(key, binary)
    return binary


@cache
def _runner(target: Target) -> bytes:
    """The object of the native runner and the probes. It is the same for every program of a target: compiled once a process."""
    return compile_text(module_text([], target), target)


def _compile(unique: Sequence[KernelSource], target: Target) -> bytes:
    """Compile in several processes if there is much text: LLVM uses one processor only."""
    if not unique:
        return _pack([_runner(target)])
    workers = min(processors(), len(unique))
    if sum(len(s.text) for s in unique) < PARALLEL_BYTES or workers < 2:
        return _pack([_runner(target), compile_text(module_text(unique, target, runner=False), target)])
    groups: list[list[KernelSource]] = [[] for _ in range(workers)]
    for source in sorted(unique, key=lambda s: -len(s.text)):
        min(groups, key=lambda g: sum(len(s.text) for s in g)).append(source)
    texts = [module_text(group, target, runner=False) for group in groups]
    command = [sys.executable, "-m", "gpucomp.targets.cpu", target.name]
    helpers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for _ in texts[1:]
    ]
    try:
        for helper, text in zip(helpers, texts[1:], strict=True):
            assert helper.stdin is not None
            helper.stdin.write(text.encode())
            helper.stdin.close()
        objects = [compile_text(texts[0], target)]
        for helper, text in zip(helpers, texts[1:], strict=True):
            assert helper.stdout is not None
            binary = helper.stdout.read()
            # a failed helper reports no error: compiling the same text here raises the right one
            objects.append(binary if helper.wait() == 0 else compile_text(text, target))
    finally:
        for helper in helpers:
            helper.kill()
            helper.wait()
            assert helper.stdout is not None
            helper.stdout.close()
    return _pack([_runner(target), *objects])


def _pack(objects: Sequence[bytes]) -> bytes:
    """The objects, each preceded by its length: the input of ``artifact.elf.Image``."""
    return b"".join(len(o).to_bytes(8, "little") + o for o in objects)


def assembly(sources: Sequence[KernelSource], target: Target, *, runner: bool = False) -> str:
    """The machine code as text, for readers and for tests that look for an instruction."""
    _start_llvm()
    module = llvm.parse_assembly(module_text(sources, target, runner=runner))
    _, machine = _machine(target)
    _optimise(module, machine)
    text: str = machine.emit_assembly(module)
    return text


if __name__ == "__main__":
    sys.stdout.buffer.write(compile_text(sys.stdin.read(), named(sys.argv[1])))
