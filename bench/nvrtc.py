"""Compiles kernels with NVRTC, those of HIP with clang, and keeps the results in a journal; reports of sweeps over many
kernels. No GPU is needed."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from gpucomp import config
from gpucomp.errors import KernelBuildError
from gpucomp.kernel.source import KernelSource
from gpucomp.report import static_opencl
from gpucomp.targets import amdgcn, cuda, hip, hip_text, sass

MATRIX, LOADS, LOCAL = ("HMMA", "HGMMA", "IMMA", "IGMMA"), ("LDG", "LDGSTS"), ("LDL", "STL")
ENTRY = "kernel"  # one name for all kernels, so that equal kernels of two models have the same text


@dataclass(frozen=True)
class Measured:
    """The result of compiling one text; ``error`` is the compiler's first error. For HIP, spills are registers.

    The counts of the machine code are -1 without a disassembler: instructions for matrix cores, global loads, those of them
    that move 16 bytes, accesses of local memory.
    """

    error: str = ""
    seconds: float = 0.0
    registers: int = 0
    stack: int = 0
    spills: int = 0
    shared: int = 0
    matrix: int = -1
    loads: int = -1
    wide: int = -1
    local: int = -1


def key(source: KernelSource, arch: str) -> str:
    """A hash of everything that decides the measurement."""
    if source.language == "hip":
        text = hip_text.text_of(source.text.partition("\n")[2])
        return hashlib.sha256("\n".join((hip.compiler_version(), *amdgcn.HIP_FLAGS, arch, text)).encode()).hexdigest()
    parts = (
        cuda.compiler_version(),
        *cuda.OPTIONS,
        cuda.ONE_BLOCK_PER_SM,
        arch,
        cuda.prelude(),
        source.text.partition("\n")[2],
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def measure(source: KernelSource, arch: str) -> Measured:
    """Compile ``source`` for ``arch``; read ptxas's report and, with nvdisasm, the machine code. Of HIP, clang's listing."""
    begin = time.perf_counter()
    if source.language == "hip":
        return _measure_hip(source, arch, begin)
    try:
        cubin, log = cuda.compile_source(source, cuda.manifest(arch))
    except KernelBuildError as error:
        return Measured(error=error.message, seconds=time.perf_counter() - begin)
    seconds, used = time.perf_counter() - begin, cuda.resources(log)[source.name]
    spent = used.registers, used.stack_bytes, used.spilt, used.shared_bytes
    if (found := sass.instructions(cubin)) is None:
        return Measured("", seconds, *spent)
    matrix, loads = sass.count(found, *MATRIX), sass.count(found, *LOADS)
    return Measured(
        "", seconds, *spent, matrix, loads, round(sass.wide_share(found) * loads), sass.count(found, *LOCAL)
    )


def _measure_hip(source: KernelSource, arch: str, begin: float) -> Measured:
    try:
        found = amdgcn.resources(source, arch)
    except KernelBuildError as error:
        return Measured(error=error.message, seconds=time.perf_counter() - begin)
    loads = sum(map(found.count, static_opencl.LOADS))
    wide = sum(found.count(f"{name}_{width}") for name in static_opencl.LOADS for width in ("dwordx4", "b128"))
    return Measured(
        seconds=time.perf_counter() - begin,
        registers=found.vector,
        stack=found.private_bytes,
        spills=found.spilled,
        shared=found.local_bytes,
        matrix=sum(map(found.count, static_opencl.MATRIX)),
        loads=loads,
        wide=wide,
        local=found.count("scratch_"),
    )


class Journal:
    """Measurements by key, one JSON line each; a truncated line is measured again."""

    def __init__(self, path: Path) -> None:
        self.path, self.known = path, dict[str, Measured]()
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    entry = json.loads(line)
                    name = entry.pop("key")
                    self.known[name] = Measured(**entry)
                except (ValueError, KeyError, TypeError):
                    continue
        path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, name: str, measured: Measured) -> None:
        self.known[name] = measured
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": name, **asdict(measured)}) + "\n")


def open_journal(path: Path | None, name: str) -> Journal:
    """The journal at ``path``; by default the one called ``name`` in the cache folder."""
    return Journal(path or (config.current().cache or Path.cwd()) / f"{name}.jsonl")


class Row(Protocol):
    @property
    def faults(self) -> Sequence[str]: ...


R = TypeVar("R", bound=Row)


def collect(rows: Iterable[R], table: Callable[[Sequence[R]], str]) -> list[R]:
    """Collect ``rows``; print each to stderr when it comes, and all of them to stdout at the end."""
    found: list[R] = []
    for row in rows:
        found.append(row)
        print(table([row]).splitlines()[-1], file=sys.stderr, flush=True)
        for fault in row.faults:
            print(f"FAULT {fault}", file=sys.stderr, flush=True)
    print(table(found))
    return found


def write_report(path: Path, title: str, summary: str, table: str, rows: Iterable[Row]) -> None:
    """Write the table with its explanation as markdown."""
    faults = [f"- {fault}" for row in rows for fault in row.faults]
    lines = [f"# {title}", "", summary, "", table, "", "Faults:" if faults else "Faults: none.", *faults, ""]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines), encoding="utf-8")
