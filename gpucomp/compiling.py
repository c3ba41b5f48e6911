"""``compile``: a model that was compiled before comes from the cache of models, any other from the compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpucomp.errors import InputError, quote
from gpucomp.model_cache import ModelCache, entry_for
from gpucomp.runtime.any_shape import AnyShapeExecutable
from gpucomp.runtime.executable import Executable

if TYPE_CHECKING:
    from onnx import ModelProto

    from gpucomp.ir.passes import PassRecord
    from gpucomp.schedule.records import Picks
    from gpucomp.stages import Progress


def compile(
    model: str | Path | bytes | ModelProto,
    *,
    target: str = "auto",
    shapes: Mapping[str, Any] | None = None,
    constants: Mapping[str, Any] | None = None,
    precision: str = "fp32",
    keep_fp32: Sequence[str] = (),
    records: str | Path | Picks | None = None,
    progress: Progress | None = None,
    observer: Callable[[PassRecord], None] | None = None,
) -> Executable:
    """Compile an ONNX model (a path, its bytes or a ``ModelProto``) for one device.

    target    ``cpu``, ``opencl``, ``opencl:pocl``, ``cuda:sm_90a`` ...; ``auto`` is GPUCOMP_TARGET, or cpu if that is
              not set
    shapes    shapes of inputs with dynamic dimensions: ``{"x": (1, 3, 224, 224)}``. For a sequence: the list of its
              tensors' shapes. For an empty optional: ``None``. A size that each run decides is a ``Dim`` or a name:
              ``{"x": (Dim("batch", 1, 64), 3, "h", "w")}``
    constants values of inputs that become constants; needed if the value of an input decides a shape
    precision ``fp32`` (strict), ``tf32``, ``3xtf32``, ``fp16``, ``bf16`` or ``mixed``: see
              ``gpucomp.kernel.passes.precision``
    keep_fp32 patterns (``*`` and ``?``) of node names or operators that stay f32 at any precision
    records   a file or folder of tuning records, in addition to GPUCOMP_RECORDS and the shipped records
    progress  called with (stage, done, total) during the compilation
    observer  called with the record of each graph pass and each kernel pass

    The same call gives the artefact that it gave before, from GPUCOMP_CACHE, unless there is an ``observer``.

    If shapes depend on data, for example after a NonMaxSuppression, the nodes from there on run on the host
    (``Executable.dynamic_operators``).

    Raises ``ModelError`` for a bad model, ``UnsupportedError`` with every unsupported operator at once, ``DeviceError``
    if the target's compiler is missing or fails, ``UsageError`` for a wrong target or shape, ``RecordError`` for
    records that cannot be read.
    """
    arguments = {"shapes": shapes, "constants": constants, "precision": precision, "keep_fp32": keep_fp32}
    entry = entry_for(model, target, arguments, records) if observer is None else None
    found = entry.find() if entry is not None else None
    if isinstance(found, AnyShapeExecutable) and entry is not None:
        found.compile_with(partial(_again, model, entry, arguments | {"target": target, "records": records}))
    if found is not None:
        return found
    from gpucomp import compiler  # takes longer to import than most models take to read

    exe = compiler.compile(model, target=target, records=records, progress=progress, observer=observer, **arguments)  # type: ignore[arg-type]
    if entry is not None:
        entry.keep(exe)
    return exe


def _again(model: Any, entry: ModelCache, arguments: Mapping[str, Any], shapes: Mapping[str, object]) -> Executable:
    """The model of a cached executable, compiled for the concrete ``shapes`` that its program is not for."""
    if entry.has_changed():
        raise InputError(
            f"sizes that need a compilation, but {quote(model)} was written again since; call gpucomp.compile again",
            code="GPC2113",
        )
    from gpucomp import compiler

    return compiler.compile(model, **(dict(arguments) | {"shapes": shapes}))
