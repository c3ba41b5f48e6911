"""Puts CUDA sources together into one C++ text for g++. Nothing is compiled here."""

import re
from collections.abc import Sequence

from testing.cuda_on_cpu.errors import CudaOnCpuError

KERNEL = re.compile(  # its name
    r"__global__\s+(?:void\s+)?(?:__(?:launch_bounds|cluster_dims)__\s*\([^)]*\)\s*)*(?:void\s+)?(\w+)\s*\("
)
SHARED_TYPE = re.compile(r"__shared__\s+(?!__align__)((?:(?:unsigned|signed|long|short)\s+)*\w+)")
# g++ may emit the variables of a section first to last or last to first; either way four bytes come first, so
# that nothing is better aligned than it asked for
SHARED_OFFSET = "__shared__ __attribute__((used, aligned(128))) char gc_shared_{}[4];"


def translation_unit(kernels: Sequence[tuple[str, str]]) -> str:
    """All sources, each in a namespace with its own section for shared memory, and the table of kernels."""
    units = {source: i for i, source in enumerate(dict.fromkeys(source for source, _ in kernels))}
    text, table = [], []
    for source, i in units.items():
        _refuse_shared_in_templates(source)
        names = KERNEL.findall(source)
        # the rename keeps extern "C" kernels of one name in two sources apart
        text += [f"#define {name} gc_unit_{i}_{name}" for name in names]
        text += [f'#define GC_SHARED_SECTION "gc_shared_{i}"', f"namespace gc_unit_{i} {{ namespace {{"]
        text += [SHARED_OFFSET.format("first")]
        text += [f'#line 1 "{names[0] if names else "source"}.cu"', _with_natural_alignment(source)]
        text += ['#line 1 "harness"', SHARED_OFFSET.format("last"), "}}"]
        weak = '__attribute__((weak, visibility("hidden")))'  # a source may have no shared memory at all
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
    """The numbers of an attribute in front of the kernel's name; none where it does not stand there."""
    head = next((m[0] for m in KERNEL.finditer(source) if m[1] == kernel), "")
    found = re.search(rf"__{name}__\s*\(([^)]*)\)", head)
    return [int(number) for number in found[1].split(",")] if found else []


REGISTERS = 65536  # of a multiprocessor
MOST_REGISTERS = 256  # of a thread, as setmaxnreg counts


def registers_of(source: str, kernel: str, threads: int) -> int:
    """What a thread may have when a block of ``threads`` starts, as the kernel's ``__launch_bounds__`` says."""
    bounds = _attribute(source, kernel, "launch_bounds") or [threads]
    bound, blocks = (*bounds, 1)[:2]
    return min(MOST_REGISTERS, REGISTERS // (bound * blocks) // 8 * 8)


def cluster_of(source: str, kernel: str) -> tuple[int, int, int]:
    """The blocks of a cluster, x first, as the kernel's ``__cluster_dims__`` says."""
    found = _attribute(source, kernel, "cluster_dims")
    if not found:
        return 1, 1, 1
    if re.search(r"(?<!extern )__shared__", source):
        raise CudaOnCpuError(f"{kernel}: blocks of a cluster share their variables here: use dynamic shared memory")
    x, y, z = (*found, 1, 1)[:3]
    return x, y, z


def _with_natural_alignment(source: str) -> str:
    """``__shared__ float a[8]``  ->  ``__shared__ __align__(alignof(float)) float a[8]``

    A device aligns shared memory as its type asks and no better, g++ would give arrays 16 bytes or more:
    a float4 read from it, which traps on the device where the place is unlucky, would pass.
    """
    return SHARED_TYPE.sub(r"__shared__ __align__(alignof(\1)) \1", source)


def _refuse_shared_in_templates(source: str) -> None:
    """g++ silently drops the section of a template's static variable, and with it the poison of a block."""
    for match in re.finditer(r"\btemplate\s*<[^{;]*\{", source):
        depth, end = 1, match.end()
        while depth and end < len(source):
            depth += {"{": 1, "}": -1}.get(source[end], 0)
            end += 1
        if "__shared__" in source[match.end() : end]:
            raise CudaOnCpuError("__shared__ in a C++ template: declare it in the kernel and pass a pointer")
