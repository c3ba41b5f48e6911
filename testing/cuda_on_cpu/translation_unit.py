"""Combines CUDA sources into one C++ text for g++. Nothing is compiled here."""

import re
from collections.abc import Sequence

from testing.cuda_on_cpu.errors import CudaOnCpuError

KERNEL = re.compile(  # matches a kernel's name
    r"__global__\s+(?:void\s+)?(?:(?:__launch_bounds__|__cluster_dims__|GC_WAVES|GC_WAVES_OF_RDNA)\s*\([^)]*\)\s*)*(?:void\s+)?(\w+)\s*\("
)
SHARED_TYPE = re.compile(r"__shared__\s+(?!__align__)((?:(?:unsigned|signed|long|short)\s+)*\w+)")
# g++ may emit the variables of a section in either order; four bytes come first in both cases, so that no variable is
# better aligned than it requires
SHARED_OFFSET = "__shared__ __attribute__((used, aligned(128))) char gc_shared_{}[4];"


def translation_unit(kernels: Sequence[tuple[str, str]]) -> str:
    """All sources, each in a namespace with its own section for shared memory, and the table of kernels."""
    units = {source: i for i, source in enumerate(dict.fromkeys(source for source, _ in kernels))}
    text, table = [], []
    for source, i in units.items():
        _refuse_shared_in_templates(source)
        names = KERNEL.findall(source)
        # the rename separates extern "C" kernels with the same name in two sources
        text += [f"#define {name} gc_unit_{i}_{name}" for name in names]
        text += [f'#define GC_SHARED_SECTION "gc_shared_{i}"', f"namespace gc_unit_{i} {{ namespace {{"]
        text += [SHARED_OFFSET.format("first")]
        text += [f'#line 1 "{names[0] if names else "source"}.cu"', _with_natural_alignment(source)]
        text += ['#line 1 "harness"', SHARED_OFFSET.format("last"), "}}"]
        weak = '__attribute__((weak, visibility("hidden")))'  # a source may have no shared memory
        text += [f'extern "C" unsigned char __{end}_gc_shared_{i}[] {weak};' for end in ("start", "stop")]
        text += [f"#undef {name}" for name in (*names, "GC_SHARED_SECTION")]
    for source, name in kernels:
        i = units[source]
        if name not in KERNEL.findall(source):
            raise CudaOnCpuError(f"the source has no kernel {name}")
        function, section = f"gc_unit_{i}::gc_unit_{i}_{name}", f"__start_gc_shared_{i}, __stop_gc_shared_{i}"
        table.append(f'{{"{name}", gc_call<{function}>, gc_arity({function}), {section}}},')
    return "\n".join([*text, "const GcEntry gc_entries[] = {", *table, "};", ""])


def _attribute(source: str, kernel: str, name: str) -> list[int]:
    """The numbers of an attribute before the kernel's name; empty if it does not have the attribute."""
    head = next((m[0] for m in KERNEL.finditer(source) if m[1] == kernel), "")
    found = re.search(rf"__{name}__\s*\(([^)]*)\)", head)
    return [int(number) for number in found[1].split(",")] if found else []


REGISTERS = 65536  # of a multiprocessor
MOST_REGISTERS = 256  # of a thread, counted as setmaxnreg does


def registers_of(source: str, kernel: str, threads: int) -> int:
    """The registers of a thread at the start of a block of ``threads``, from the kernel's ``__launch_bounds__``."""
    bounds = _attribute(source, kernel, "launch_bounds") or [threads]
    bound, blocks = (*bounds, 1)[:2]
    return min(MOST_REGISTERS, REGISTERS // (bound * blocks) // 8 * 8)


def cluster_of(source: str, kernel: str) -> tuple[int, int, int]:
    """The blocks of a cluster, x first, from the kernel's ``__cluster_dims__``."""
    found = _attribute(source, kernel, "cluster_dims")
    if not found:
        return 1, 1, 1
    if re.search(r"(?<!extern )__shared__", source):
        raise CudaOnCpuError(f"{kernel}: blocks of a cluster share static variables here: use dynamic shared memory")
    x, y, z = (*found, 1, 1)[:3]
    return x, y, z


def _with_natural_alignment(source: str) -> str:
    """``__shared__ float a[8]``  ->  ``__shared__ __align__(alignof(float)) float a[8]``

    A device aligns shared memory only as its type requires, but g++ would align arrays to 16 bytes or more. Then a float4
    read that can trap on a device would pass here.
    """
    return SHARED_TYPE.sub(r"__shared__ __align__(alignof(\1)) \1", source)


def _refuse_shared_in_templates(source: str) -> None:
    """Refuse shared memory in templates: g++ silently drops the section there, so the block would not be poisoned."""
    for match in re.finditer(r"\btemplate\s*<[^{;]*\{", source):
        depth, end = 1, match.end()
        while depth and end < len(source):
            depth += {"{": 1, "}": -1}.get(source[end], 0)
            end += 1
        if "__shared__" in source[match.end() : end]:
            raise CudaOnCpuError("__shared__ in a C++ template: declare it in the kernel and pass a pointer")
