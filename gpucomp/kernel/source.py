"""The source of a kernel in one language, with its launch."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from gpucomp.artifact.tensor_map import TensorMap
from gpucomp.kernel.geometry import Geometry

COMMENTS = ("//", ";")  # that begin a line of C, and of LLVM IR
SOURCE_SUFFIX = {"cuda": ".cu", "opencl": ".cl", "llvm": ".ll"}  # by language


@dataclass(frozen=True)
class KernelSource:
    """One kernel in one language: ``cuda`` (without the prelude), ``opencl`` or ``llvm``.

    The entry ``name`` takes a pointer a parameter of the kernel, in order, then, where the geometry asks for them,
    the workspace and the counters, then, by value, the ``tensor_maps``. A ``programmatic`` kernel waits itself for the
    launches before it, so it may be started before they end.

    An ``llvm`` entry is ``void name(ptr, ..., i64 first_task, i64 last_task)``.
    """

    name: str
    language: str
    text: str
    geometry: Geometry
    schedule: Mapping[str, int] = field(default_factory=dict)
    engine: str = ""
    tensor_maps: tuple[TensorMap, ...] = ()
    programmatic: bool = False

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(f"{self.language}\n{self.name}\n{self.text}".encode()).hexdigest()


def statements(text: str) -> str:
    """A source without empty lines, and without lines that are only a comment: what a compiler reads of it."""
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith(COMMENTS))
