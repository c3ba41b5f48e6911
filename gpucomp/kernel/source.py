"""The source of a kernel in one language, with its launch geometry."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from typing import Any, NamedTuple

from gpucomp.artifact.tensor_map import TensorMap
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.run_sizes import RunSize
from gpucomp.lazy_dataclass import dataclass

COMMENTS = ("//", ";")  # how comment lines begin in C and in LLVM IR
SOURCE_SUFFIX = {"cuda": ".cu", "opencl": ".cl", "hip": ".hip", "llvm": ".ll"}  # by language


class Emitted(NamedTuple):
    """The text of a CPU kernel, its number of tasks, the numbers that each run gives it, and memory: see ``Geometry``."""

    text: str
    tasks: Any  # a number, or a size
    sizes: tuple[RunSize, ...] = ()
    workspace_bytes: Any = 0  # a number, or a size
    counter_bytes: int = 0


@dataclass(frozen=True)
class KernelSource:
    """One kernel in one language: ``cuda`` or ``hip`` (without the prelude), ``opencl`` or ``llvm``.

    The arguments of the entry point ``name`` are a pointer for each parameter of the kernel, in order; the workspace
    and the counters, if the geometry has them; the ``tensor_maps``, by value. A ``programmatic`` kernel may be launched before
    earlier kernels end: it waits for them itself (programmatic dependent launch).

    The entry point of an ``llvm`` kernel is ``void name(ptr, ..., i64 first_task, i64 last_task)``.

    If there are ``sizes``, these numbers of the run come next, each a 64-bit integer; for an ``llvm`` kernel a pointer to an
    array of them, after the workspace and the counters. Tensor maps then have sizes of each run.
    """

    name: str
    language: str
    text: str
    geometry: Geometry
    schedule: Mapping[str, int] = field(default_factory=dict)
    engine: str = ""
    tensor_maps: tuple[TensorMap, ...] = ()
    programmatic: bool = False
    sizes: tuple[RunSize, ...] = ()

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(f"{self.language}\n{self.name}\n{self.text}".encode()).hexdigest()


def statements(text: str) -> str:
    """A source without empty lines and without lines that are only a comment."""
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith(COMMENTS))
