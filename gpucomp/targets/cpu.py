"""The CPU target: the features of a processor, and LLVM IR compiled into one relocatable object. Nothing runs here."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

import llvmlite.binding as llvm

from gpucomp import config
from gpucomp.codegen.llvm.ir.launch_list import BEGIN, RUNNER, probes
from gpucomp.codegen.llvm.ir.size_runner import SIZES
from gpucomp.device import processor
from gpucomp.device.isa import ISAS, KNOWN, LLVM_FEATURES, LLVM_NAMES, WASM32, X86_64, isa_of
from gpucomp.device.target import Target
from gpucomp.errors import DeviceError, KernelBuildError, UsageError, quote, several
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.source import KernelSource
from gpucomp.targets import llvm_object, processors
from gpucomp.targets.cache import KernelCache
from gpucomp.targets.linked import needed, without_calls
from gpucomp.targets.llvm_build import Build

# Engines that unroll sums and write addresses with constant offsets. LLVM's strength reduction compares each of these addresses
# with each other: it takes a third of a model's compilation, up to nine tenths of a depthwise convolution's, and makes none of
# them faster (measured with AVX2; vnni and bytes have the nests of pairs and windows; Winograd's algorithm takes 0.99 to 1.01 of
# the time with AVX-512, AVX2 and SSE4; attention 0.99 to 1.01 with AVX2 and SSE4, but of one query 1.07 with SSE4). Copies,
# pools, reductions and fused layers are 3 to 20 % faster with it.
ADDRESSED = frozenset(
    {
        "attention",
        "contraction",
        "contraction/pairs",
        "contraction/vnni",
        "contraction/winograd",
        "loops/windows",
        "loops/planes",
        "loops/bytes",
    }
)
# Engines whose inner loops have the same instructions without LLVM's passes for loops and invariants, but for a few that compute
# addresses (AVX-512, AVX2, SSE4): these passes take a quarter to two fifths of the compilation of such a kernel. Those with
# ``POINTERS`` are left out.
WRITTEN_OUT = frozenset({"fused_layers", "contraction", "contraction/winograd", "loops/windows", "pool/windows"})
LONG_POOL = 100_000  # bytes of text of a pooling for any size that has many taps
POINTERS = " x ptr], align 64"  # a table of a pointer for each row: what its loops compute of it does not stay in registers then

HELPED_NODES = 30  # of a model; the kernels of less are compiled before a helper has started


def host() -> Target:
    """The processor of this machine. Another number of threads makes it another device for tuning records."""
    found, threads = _host(), config.current().threads
    if threads in (0, len(os.sched_getaffinity(0))):
        return found
    return replace(found, identity=f"{found.identity}, {several(threads, 'thread')}")


@cache
def _host() -> Target:
    llvm_object.start_llvm()
    features = frozenset(name for name, there in llvm.get_host_cpu_features().items() if there) & KNOWN
    if processor.tiles_refused():
        features = frozenset(f for f in features if not f.startswith("amx-"))
    features -= frozenset(processor.missing(features))  # features that the kernel does not report or a filter hides
    isa = next((isa for isa in ISAS if isa.loads and isa.needed in features), None)
    if isa is None:
        known = ", ".join(f"{isa.name} with {isa.needed}" for isa in ISAS if isa.loads)
        raise DeviceError(f"target cpu: this processor is not supported; supported are {known}", code="GPC5010")
    name = llvm.get_host_cpu_name()
    limits = isa.limits(features, processor.second_cache(), name)
    identity = f"{processor.model_name()}, {len(os.sched_getaffinity(0))} cores"
    return Target("cpu", "cpu", name, "llvm", limits, alignment=64, features=features, identity=identity)


def named(name: str) -> Target:
    """``cpu``, or ``cpu:NAME`` with the LLVM name of another processor. Raises ``UsageError`` for other names."""
    kind, _, arch = name.partition(":")
    if kind != "cpu":
        raise UsageError(f"target {quote(name)}: cpu or cpu:PROCESSOR expected", code="GPC2010")
    if not arch:
        return host()
    for isa in ISAS:
        if arch in isa.processors:
            features = isa.processors[arch]
            return Target(
                name, "cpu", arch, "llvm", isa.limits(features, processor=arch), alignment=64, features=features
            )
    known = ", ".join(sorted(arch for isa in ISAS for arch in isa.processors))
    raise UsageError(f"target {quote(name)}: unknown processor; known are {known}", code="GPC2010")


def _feature_string(target: Target) -> str:
    """LLVM's feature string: the host's for ``cpu``; a named processor's name implies its features."""
    host: str = llvm.get_host_cpu_features().flatten() if target.name == "cpu" else ""
    parts = (host, isa_of(target.features).features, LLVM_FEATURES.get(target.arch, ""))
    return ",".join(part for part in parts if part)


def _arguments(target: Target) -> tuple[str, str, str]:
    """Triple, processor and features, as ``llvm_object`` takes them."""
    return isa_of(target.features).triple, LLVM_NAMES.get(target.arch, target.arch), _feature_string(target)


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
        features = ",".join(sorted(target.features))
        parts.append(f'@gc_features = constant [{len(features)} x i8] c"{features}"')
        isa = isa_of(target.features)
        parts.append(RUNNER.replace("PAUSE", isa.wait).replace("CYCLES", isa.cycles))
        if isa.loads:
            parts += [BEGIN, SIZES]
        parts += [part for probe in probes(target) for part in (probe.text, _wrapper(probe))]
    if isa_of(target.features) is X86_64 and unique:
        parts += [llvm_object.AS_WRITTEN] if all(map(_addressed, unique)) else []
        parts += [llvm_object.FEW_PASSES] if all(map(_written_out, unique)) else []
    parts.append(f'attributes #0 = {{ nounwind noinline "no-builtins" {width} }}')
    parts.append(f'attributes #1 = {{ nounwind "no-builtins" {width} }}')
    text = "\n".join(parts)
    isa = isa_of(target.features)
    return without_calls(text, rounds=isa is WASM32) if isa.pointer == 4 else text


def _addressed(source: KernelSource) -> bool:
    """Whether LLVM's strength reduction would gain too little.

    A long pooling for any size is up to 5 % faster with it, and compiles in half of the time without.
    """
    long = source.engine == "pool/windows" and source.sizes and len(source.text) > LONG_POOL
    return source.engine in ADDRESSED or bool(long)


def _written_out(source: KernelSource) -> bool:
    """Whether LLVM's passes for loops would gain nothing. Windows along rows of any width lose 4 % without them."""
    written_out = WRITTEN_OUT - {"loops/windows"} if source.sizes else WRITTEN_OUT
    return source.engine in written_out and POINTERS not in source.text


def compile_text(text: str, target: Target) -> bytes:
    """Optimised machine code of a module, as an ELF object without undefined symbols."""
    try:
        return _defined(llvm_object.object_of(text, *_arguments(target)))
    except RuntimeError as error:
        raise _refused(error) from error


def linked(sources: Mapping[str, KernelSource], target: Target) -> bytes:
    """One ELF object of kernels, for a linker of others: ``void NAME(void **arguments, int64_t first, int64_t last)`` for each
    name of ``sources``. It has no undefined symbols. Raises ``KernelBuildError`` if LLVM refuses a kernel.
    """
    texts = [
        (module_text([source], target, runner=False), {f"{source.name}.call": name}) for name, source in sources.items()
    ]
    try:
        return _defined(llvm_object.linked_object(texts, *_arguments(target)))
    except RuntimeError as error:
        raise _refused(error) from error


def _refused(error: RuntimeError) -> KernelBuildError:
    lines = [line for line in str(error).splitlines() if "error:" in line] or str(error).splitlines()
    return KernelBuildError(f"LLVM refuses a kernel: {lines[0]}", code="GPC5101")


def _defined(binary: bytes) -> bytes:
    if foreign := needed(binary):
        raise KernelBuildError(f"generated code calls {', '.join(foreign)}, which is not defined", code="GPC5102")
    return binary


class Begun:
    """Kernels whose compilation has begun, each as an object of its own. Use it as a context manager.

    An object is the same whatever else is compiled, and comes from ``cache`` if it is there.
    """

    def __init__(self, target: Target, cache: KernelCache | None = None) -> None:
        self._target, self._cache = target, cache
        self._build = Build(_arguments(target), processors() - 1, lambda text: compile_text(text, target))
        self._compiler = "llvm " + ".".join(map(str, llvm.llvm_version_info))
        self._runner = _runner_source(target)
        self._modules: dict[str, KernelSource] = {}  # by the digest of the kernel, or of the runner
        self._cached: dict[str, bytes] = {}  # objects by the text of their module

    def __enter__(self) -> Begun:
        self._build.__enter__()
        if self._target not in _runners:
            self._begin(self._runner, self._runner.text)
        return self

    def __exit__(self, *error: object) -> None:
        self._build.__exit__(*error)

    def expect(self, nodes: int) -> None:
        """A helper compiles the runner, if it is in no cache, while a model of so many ``nodes`` is turned into kernels."""
        if nodes >= HELPED_NODES:
            self._build.start_helper()

    def start(self, source: KernelSource) -> None:
        if source.digest not in self._modules:
            self._begin(source, module_text([source], self._target, runner=False))

    def _begin(self, source: KernelSource, text: str) -> None:
        module = self._modules[source.digest] = replace(source, text=text)
        found = self._cache.get(self._key(module)) if self._cache is not None else None
        if found is None:
            self._build.start(module.text)
        else:
            self._cached[module.text] = found

    def blob(self, sources: Sequence[KernelSource]) -> bytes:
        """The objects of ``sources``, with the native runner. Raises ``KernelBuildError`` if LLVM refuses a kernel."""
        for source in sources:
            self.start(source)
        made = {text: _defined(binary) for text, binary in self._build.objects().items()}
        for module in self._modules.values():
            if module.text in made and self._cache is not None:
                self._cache.put(self._key(module), made[module.text])
        objects = made | self._cached
        texts = dict.fromkeys(self._modules[source.digest].text for source in sources)
        runner = _runners.get(self._target) or _runners.setdefault(self._target, objects[self._runner.text])
        return _pack([runner, *(objects[text] for text in texts)])

    def _key(self, module: KernelSource) -> str:
        flags = (_feature_string(self._target), str(llvm_object.OPTIMIZATION))
        return KernelCache.key(module, target=self._target.arch, compiler=self._compiler, flags=flags)


def build(
    sources: Sequence[KernelSource], target: Target, cache: KernelCache | None = None, begun: Begun | None = None
) -> bytes:
    """All kernels of a model as one blob of objects: those of ``begun``, or else from ``cache`` if possible.

    Raises ``KernelBuildError`` if LLVM refuses a kernel.
    """
    if begun is not None:
        return begun.blob(sources)
    with Begun(target, cache) as begun:
        return begun.blob(sources)


_runners: dict[Target, bytes] = {}  # the objects of this process: that of a target is in each of its programs


@cache
def _runner_source(target: Target) -> KernelSource:
    """The native runner and the probes, as a module."""
    return KernelSource("gc_run", "llvm", module_text([], target), Geometry((0, 1, 1)))


def _pack(objects: Sequence[bytes]) -> bytes:
    """The objects, each preceded by its length: the input of ``artifact.elf.Image``."""
    return b"".join(len(o).to_bytes(8, "little") + o for o in objects)


def assembly(sources: Sequence[KernelSource], target: Target, *, runner: bool = False) -> str:
    """The machine code as text, for readers and for tests that look for an instruction."""
    arguments = _arguments(target)
    machine = llvm_object.machine_of(*arguments)
    code = module_text(sources, target, runner=runner)
    module = llvm_object.optimised(code, arguments[0], machine)
    with llvm_object.selecting(code):
        text: str = machine.emit_assembly(module)
    return text
