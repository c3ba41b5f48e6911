"""The one set of sizes that ``bench`` measures: its inputs tell what each run decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpucomp.cli import tensors
from gpucomp.errors import UsageError, quote
from gpucomp.ir.dim import Dim
from gpucomp.runtime.any_shape import AnyShapeExecutable
from gpucomp.runtime.inputs import TensorSpec, random_inputs

if TYPE_CHECKING:
    import numpy as np

    from gpucomp.cli.options import ModelOptions
    from gpucomp.runtime.executable import Executable

WITH_INPUTS = "an array of the sizes to measure with --input NAME=FILE"


def require(how: ModelOptions, files: tuple[str, ...], *, static: bool) -> None:
    """Raise ``UsageError`` for sizes that neither --shapes nor an input tells, before a compilation for them."""
    if files and not static:
        return
    extents = [n for shape in tensors.parse_shapes(how.shapes).values() for n in shape or ()]
    names = [n.name if isinstance(n, Dim) else n for n in extents if isinstance(n, Dim | str)]
    if names:
        instead = "give a number for each in --shapes"
        raise _several_sets("--shapes", names, instead if static else f"{instead}, or {WITH_INPUTS}")


def _several_sets(whose: str, names: Iterable[str], instead: str) -> UsageError:
    """The error for a latency of sizes that each run decides: it is that of one set of sizes."""
    return UsageError(
        f"{whose} leaves {', '.join(map(quote, dict.fromkeys(names)))} to each run, and this measures one set of sizes: "
        f"{instead}; or measure many sets with --shapes-from TRACE.jsonl",
        code="GPC2017",
    )


def require_inputs(exe: Executable, model: Path, files: tuple[str, ...]) -> None:
    """Raise ``UsageError`` for a model for any size without an input that tells its sizes."""
    if isinstance(exe, AnyShapeExecutable) and not files:
        raise _several_sets(quote(model), exe.dims, f"give {WITH_INPUTS}")


def given(exe: Executable, files: tuple[str, ...], preprocess: str) -> tuple[dict[str, np.ndarray], str]:
    """The inputs of a run, random where no file gives them, and in words where they are from.

    The files tell the sizes that each run decides.
    """
    arrays = tensors.read_inputs(files, exe.inputs, preprocess)
    missing = [_sized(spec, exe.inputs, arrays) for spec in exe.inputs if spec.name not in arrays]
    arrays |= random_inputs(missing)
    if not missing:
        return arrays, "inputs from files"
    some = f"{len(missing)} of {len(exe.inputs)} " if len(missing) < len(exe.inputs) else ""
    return arrays, f"{some}inputs random (seed 0)"


def _sized(spec: TensorSpec, specs: Sequence[TensorSpec], given: Mapping[str, np.ndarray]) -> TensorSpec:
    """``spec`` with the sizes that the arrays ``given`` for other inputs have."""
    told = {
        dim: size
        for other in specs
        if other.name in given and len(other.shape) == given[other.name].ndim
        for dim, size in zip(other.shape, given[other.name].shape, strict=True)
        if isinstance(dim, Dim)
    }
    return replace(spec, shape=tuple(told.get(n, n) if isinstance(n, Dim) else n for n in spec.shape))


def of_inputs(exe: Executable, given: Mapping[str, np.ndarray]) -> tuple[Executable, dict[str, int]]:
    """The executable with a plan and kernels for the sizes of the inputs, and these sizes if each run decides them."""
    if not isinstance(exe, AnyShapeExecutable):
        return exe, {}
    return exe.of_inputs(given)
