"""``compile``: a model that was compiled before comes from the cache of models, any other from the compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpucomp.errors import InputError, ModelError, UsageError, quote
from gpucomp.extras import needs_compiler
from gpucomp.frontend.foreign.convert import as_onnx
from gpucomp.garbage import seldom_collected
from gpucomp.ir.dims import has_dims
from gpucomp.ir.traces import given_sizes, no_open_sizes
from gpucomp.loading import of_any_shape
from gpucomp.model_cache import ModelCache, entry_for
from gpucomp.runtime.executable import Executable

if TYPE_CHECKING:
    from onnx import ModelProto
    from torch.export import ExportedProgram

    from gpucomp.ir.passes import PassRecord
    from gpucomp.schedule.records import Picks
    from gpucomp.stages import Progress


@needs_compiler()
def compile(
    model: str | Path | bytes | ModelProto | ExportedProgram,
    *,
    target: str = "auto",
    shapes: Mapping[str, Any] | None = None,
    constants: Mapping[str, Any] | None = None,
    precision: str = "fp32",
    keep_fp32: Sequence[str] = (),
    records: str | Path | Picks | None = None,
    progress: Progress | None = None,
    observer: Callable[[PassRecord], None] | None = None,
    specialise: str = "never",
    specialise_for: Sequence[Mapping[str, Any]] = (),
    shapes_from: str | Path | Sequence[Mapping[str, Any]] = (),
    states: Mapping[str, str] | str | None = None,
    states_precision: str = "fp32",
) -> Executable:
    """Compile an ONNX model (a path, its bytes or a ``ModelProto``), or one of ``as_onnx``, for one device.

    target    ``cpu``, ``opencl``, ``opencl:pocl``, ``cuda:sm_90a`` ...; ``auto`` is GPUCOMP_TARGET, else cpu
    shapes    shapes of inputs with dynamic dimensions: ``{"x": (1, 3, 224, 224)}``. For a sequence: the list of its
              tensors' shapes. For an empty optional: ``None``. A size that each run decides is a ``Dim`` or a name:
              ``{"x": (Dim("batch", 1, 64), 3, "h", "w")}``. An ``ExportedProgram`` of torch has its own ranges
    constants values of inputs that become constants; needed if the value of an input decides a shape
    precision ``fp32`` (strict), ``tf32``, ``3xtf32``, ``fp16``, ``bf16`` or ``mixed``: see ``gpucomp.kernel.passes.precision``
    keep_fp32 patterns (``*`` and ``?``) of node names or operators that stay f32 at any precision
    records   a file or folder of tuning records, in addition to GPUCOMP_RECORDS and the shipped records
    progress  called with (stage, done, total) during the compilation
    observer  called with the record of each graph pass and each kernel pass
    specialise  with a ``Dim`` in ``shapes``: ``declared``, a program for each of ``specialise_for`` too; ``background``, also for
              sizes that are run often, by a thread. Used if measured to be faster: see ``exe.report()``
    specialise_for  sets of sizes: each ``{"h": 224, "w": 224}``, or shapes: ``{"x": (1, 3, 224, 224)}``
    shapes_from  sets of sizes that runs will have, or a file with one on each line as JSON: what schedules are chosen for
    states    inputs that the next run gets from outputs of this one, such as a decoder's keys and values: ``{"past.*":
              "present.*"}``, or ``auto`` for names by convention. A context holds them on the device: ``exe.context()``. One
              that grows along a dimension is updated in place, in memory for the dimension's largest size: see ``exe.states``
    states_precision  ``fp16`` or ``bf16``: f32 states that are updated in place are kept in 16 bits, which halves their memory
              and what a run reads; new rows are rounded, and arithmetic stays as it is

    The same call gives the artefact that it gave before, from GPUCOMP_CACHE, unless there is an ``observer``.
    If shapes depend on data, as after a NonMaxSuppression, the nodes from there on run on the host (``dynamic_operators``).

    Raises ``ModelError`` for a bad model, ``UnsupportedError`` with every unsupported operator at once, ``DeviceError``
    if the target's compiler is missing or fails, ``UsageError`` for a wrong target or shape, ``RecordError`` for bad records.
    """
    onnx_model, shapes = as_onnx(model, shapes)
    _require_specialise(specialise, specialise_for, has_dims(shapes))
    kept = _states(states, states_precision, specialise != "never" or bool(specialise_for))
    how: dict[str, Any] = {"constants": constants, "precision": precision, "keep_fp32": keep_fp32}
    declared = _declared(specialise_for, shapes_from, has_dims(shapes)) | kept
    entry = entry_for(onnx_model, target, {"shapes": shapes, **how, **declared}, records) if observer is None else None
    how |= {"target": target, "records": records}
    exe = _kept(onnx_model, entry, how)
    if exe is None:
        exe = _compiled(
            onnx_model, entry, {**how, "shapes": shapes, "progress": progress, "observer": observer, **declared}
        )
    if (open_exe := of_any_shape(exe)) is not None:
        open_exe.specialise(background=specialise == "background")
    return exe


def _require_specialise(mode: str, declared: Sequence[Mapping[str, Any]], any_shape: bool) -> None:
    """Raise what ``require_specialise`` raises, which is seldom asked."""
    if (mode, declared) != ("never", ()):
        from gpucomp.runtime.specialise import require_specialise

        require_specialise(mode, declared, any_shape)


def _compiled(model: Any, entry: ModelCache | None, how: Mapping[str, Any]) -> Executable:
    """The executable, and in the cache it, or what is wrong with the model."""
    try:
        with seldom_collected():
            from gpucomp import compiler  # takes longer to import than most models take to read

            exe = compiler.compile(model, **how)
    except ModelError as error:
        if entry is not None:
            entry.keep_refusal(error)
        raise
    if entry is not None:
        entry.keep(exe)
    return exe


def _kept(model: Any, entry: ModelCache | None, how: Mapping[str, Any]) -> Executable | None:
    """The executable in the cache, which compiles the model again for sizes that its program is not for."""
    exe = entry.find() if entry is not None else None
    if entry is not None and exe is not None and (open_exe := of_any_shape(exe)) is not None:
        types = {state.name: state.dtype for state in exe.states}
        open_exe.compile_with(partial(_again, model, entry, {**how, "states": exe.kept, "states_precision": types}))
    return exe


def _states(states: Mapping[str, str] | str | None, precision: str, specialised: bool) -> dict[str, Any]:
    """What the compiler is told of states. Raises ``UsageError`` (GPC2040) for what does not go with them."""
    if states and specialised:
        raise UsageError("states: each run has other sizes, so there are none to specialise for", code="GPC2040")
    if not isinstance(precision, str):
        raise UsageError(
            f"states_precision: the name of a precision expected, found {quote(precision)}", code="GPC2040"
        )
    if precision != "fp32" and not states:
        raise UsageError(f"states_precision {quote(precision)}: states expected as well", code="GPC2040")
    return {"states": states, "states_precision": precision} if states else {}


def _declared(
    specialise_for: Sequence[Mapping[str, Any]], shapes_from: str | Path | Sequence[Mapping[str, Any]], any_size: bool
) -> dict[str, Any]:
    """The sizes that are given, as arguments of the compiler. Raises ``UsageError`` (GPC2028) if no run decides any."""
    if shapes_from and not any_size:
        raise no_open_sizes()
    found: dict[str, Any] = {"specialise_for": specialise_for} if specialise_for else {}
    return found | ({"usual": given_sizes(shapes_from)} if shapes_from else {})


def _again(
    model: Any,
    entry: ModelCache,
    arguments: Mapping[str, Any],
    shapes: Mapping[str, object],
    progress: Progress | None = None,
) -> Executable:
    """The model of a cached executable, compiled for the concrete ``shapes`` that its program is not for."""
    if entry.has_changed():
        raise InputError(
            f"sizes that need a compilation, but {quote(model)} was written again since; call gpucomp.compile again",
            code="GPC2113",
        )
    from gpucomp import compiler

    return compiler.compile(model, shapes=shapes, progress=progress, **arguments)
