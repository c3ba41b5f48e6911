"""``load``: a compiled model from its file. What a run of it may have to compile is handed to it here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gpucomp.artifact.plan import Plan
from gpucomp.runtime import artifact
from gpucomp.runtime.executable import Executable, Waiting


def load(path: str | Path, *, trusted: bool = True) -> Executable:
    """Read a compiled model that ``Executable.save`` wrote. Needs no compiler; the device is opened by ``run``.

    Nor does it need onnx, but for a model with a ``rest``.

    A file holds native code. ``trusted=False`` ignores it and builds again from the sources inside, which needs the
    target's compiler. Raises ``ArtifactError`` for a damaged or foreign file.
    """
    contents = artifact.load(path, rebuild=None if trusted else _rebuild)
    return Executable(
        contents.plan, contents.sources, contents.binaries, contents.weights, contents.rest, waiting=_waiting
    )


def _rebuild(plan: Plan, sources: Mapping[str, str]) -> dict[str, bytes]:
    from gpucomp.targets import rebuild  # the target's compiler, which a trusted file does without

    return rebuild(plan, sources)


def _waiting(plan: Plan, rest: bytes) -> Waiting:
    from gpucomp.compiler import waiting  # the whole compiler: for models of which a part waits for values

    return waiting(plan, rest)
