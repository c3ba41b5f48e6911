"""``load`` reads a compiled model from its file, and hands it the compiler in case a run has to compile something."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gpucomp.artifact.plan import Plan
from gpucomp.extras import needs_compiler
from gpucomp.runtime import artifact
from gpucomp.runtime.executable import DynamicRunner, Executable

if TYPE_CHECKING:
    from gpucomp.runtime.any_shape import AnyShapeExecutable


def load(path: str | Path, *, trusted: bool = True) -> Executable:
    """Read a compiled model that ``Executable.save`` wrote. ``run`` opens the device.

    This needs no compiler, and no onnx unless the model has a dynamic part. A model that was compiled for any sizes runs
    at all that its file is for.

    The file holds native code. ``trusted=False`` ignores that code and builds it again from the sources inside, which needs
    the target's compiler. Raises ``ArtifactError`` for a damaged or foreign file.
    """
    return opened(artifact.load(path, rebuild=None if trusted else _rebuild))


def opened(contents: artifact.Contents) -> Executable:
    """What runs the contents of a file."""
    if contents.open is not None:
        from gpucomp.runtime.any_shape import loaded  # models for one set of sizes do without

        return loaded(contents)
    return Executable(
        contents.plan,
        contents.sources,
        contents.binaries,
        contents.weights,
        contents.dynamic_model,
        open_dynamic=_open_dynamic,
    )


def of_any_shape(exe: Executable) -> AnyShapeExecutable | None:
    """``exe`` if it is for any sizes in a range."""
    if not exe.any_shape:
        return None
    from gpucomp.runtime.any_shape import AnyShapeExecutable

    return exe if isinstance(exe, AnyShapeExecutable) else None


@needs_compiler()
def _rebuild(plan: Plan, sources: Mapping[str, str]) -> dict[str, bytes]:
    from gpucomp.targets import rebuild  # imports the target's compiler, which a trusted file does not need

    return rebuild(plan, sources)


@needs_compiler()
def _open_dynamic(plan: Plan, dynamic_model: bytes) -> DynamicRunner:
    from gpucomp.compiler import open_dynamic  # imports the whole compiler, which only models with a dynamic part need

    return open_dynamic(plan, dynamic_model)
