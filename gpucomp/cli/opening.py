"""From the options of a command to the model that it works on: compiled, lowered to kernels, or with its costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gpucomp as package
from gpucomp.cli import tensors
from gpucomp.cli.options import ModelOptions
from gpucomp.cli.progress import progress
from gpucomp.errors import DeviceError, GpucompError, InputError, UsageError, quote
from gpucomp.ir.dims import has_dims

if TYPE_CHECKING:
    from gpucomp.compiler import Lowered
    from gpucomp.device.target import Target
    from gpucomp.frontend.onnx.loader import OpenGraph
    from gpucomp.report.cost import Cost
    from gpucomp.runtime.executable import Executable
    from gpucomp.schedule.choose import Choice


def open_model(
    how: ModelOptions, files: tuple[str, ...] = (), *, runs: bool = False, needs_inputs: bool = False
) -> Executable:
    """Load a compiled model, or compile an ONNX model. Shapes that the model leaves open are taken from ``files``.

    If it ``runs``, a device that is missing is told before anything is compiled. If it ``needs_inputs``, so is an input.
    """
    path, sizes, constants = how.model, tensors.parse_shapes(how.shapes), tensors.parse_constants(how.constants)
    if path.suffix == ".gpuc":
        from gpucomp.loading import load

        exe = load(path)
        plan = exe.contents().plan
        late = {
            "--shapes": bool(sizes),
            "--constants": bool(constants),
            "--records": how.records is not None,
            "--precision": how.precision not in ("fp32", plan.precision),
            "--keep-fp32": bool(how.keep_fp32),
            "--shapes-from": how.shapes_from is not None,
            "--states": bool(how.states),
            "--states-precision": how.states_precision != "fp32",
            "--target": bool(how.target) and how.target not in (exe.target, plan.kind),
        }
        if too_late := " and ".join(option for option, given in late.items() if given):
            raise UsageError(
                f"{quote(path)} is compiled for {exe.target} at {plan.precision}, too late for {too_late}: compile the "
                ".onnx model again with it",
                code="GPC2007",
            )
        return exe
    if runs:
        from gpucomp import targets

        targets.require_device(targets.resolve(how.target_name))
    if needs_inputs and not files:
        _require_inputs(path, sizes, constants)
    options: dict[str, Any] = {"target": how.target_name, "precision": how.precision, "keep_fp32": how.keep_fp32}
    if constants:
        options["constants"] = constants
    if how.records is not None:
        options["records"] = how.records
    if how.shapes_from is not None:
        options["shapes_from"] = how.shapes_from
    if how.states:
        options["states"] = "auto" if how.states == ("auto",) else tensors.parse_states(how.states)
    if how.states_precision != "fp32":
        options["states_precision"] = how.states_precision
    with progress(f"compiling {path.name}") as report:
        try:
            return package.compile(path, shapes=sizes, progress=report, **options)
        except UsageError as error:
            found = shapes_told_by(files, path) if error.code == "GPC2102" else {}
            if not found.keys() - sizes.keys():
                raise
        return package.compile(path, shapes={**found, **sizes}, progress=report, **options)


def open_graph(model: Path, shapes: Mapping[str, Any], constants: Mapping[str, Any]) -> OpenGraph:
    """The graph of an ONNX model for the dimensions that ``shapes`` declare."""
    from gpucomp.frontend.onnx.loader import Source, load_open, read
    from gpucomp.frontend.onnx.open_shapes import open_shapes

    proto, files = read(model)
    return load_open(Source(proto, files), open_shapes(proto, shapes, constants), constants)


def needs_model(how: ModelOptions, what: str, command: str) -> UsageError:
    """The error for a question that a compiled model cannot answer, with the command that asks the ``.onnx`` model."""
    from gpucomp.loading import load

    plan = load(how.model).contents().plan
    options = f"--target {how.target or plan.target}" + (
        f" --precision {plan.precision}" if plan.precision != "fp32" else ""
    )
    return UsageError(
        f"{quote(how.model)} is compiled and holds no {what}; ask the model: gpucomp {command} {options}",
        code="GPC2033",
    )


def compiled_already(model: Path) -> UsageError:
    return UsageError(
        f"{quote(model)} is compiled already; gpucomp run and gpucomp bench take it, or give the .onnx model here",
        code="GPC2034",
    )


def _require_inputs(model: Path, sizes: Mapping[str, Any], constants: Mapping[str, Any]) -> None:
    """Raise ``InputError`` if the model has inputs, and the shapes of all are known. Other faults are told later."""
    from gpucomp.frontend import onnx as frontend

    try:
        declared = frontend.declared_shapes(model)
    except GpucompError:
        return
    missing = [name for name in declared if name not in constants]
    if missing and all(name in sizes or None not in declared[name] for name in missing):
        names = ", ".join(map(quote, missing))
        raise InputError(
            f"not all inputs are given, missing: {names}; give each a file: --input NAME=FILE", code="GPC2109"
        )


def shapes_told_by(files: tuple[str, ...], model: Path) -> dict[str, tuple[int, ...]]:
    if not files:
        return {}
    from gpucomp.frontend import onnx as frontend

    return {**tensors.shapes_of_media(files, frontend.declared_shapes(model)), **tensors.shapes_in_files(files)}


def fixed_inputs(how: ModelOptions) -> dict[str, Any]:
    """The arrays of ``--constants``, which another program needs as inputs."""
    constants = tensors.parse_constants(how.constants)
    if not constants:
        return {}
    from gpucomp.frontend.onnx.loader import read
    from gpucomp.frontend.onnx.symbols import fixed_array

    proto, _ = read(how.model)
    return {info.name: fixed_array(info, constants[info.name]) for info in proto.graph.input if info.name in constants}


def lowered_model(
    how: ModelOptions,
    asked: tuple[str, str],
    watch: Callable[[str, Any], None] | None = None,
) -> tuple[Lowered, Target]:
    """The model as kernels. ``asked`` says what a compiled model does not hold, and the command that needs it."""
    from gpucomp import targets
    from gpucomp.compiler import lower
    from gpucomp.schedule.records import picks_of

    if how.model.suffix == ".gpuc":
        raise needs_model(how, *asked)
    device = targets.resolve(how.target_name)
    with progress(f"compiling {how.model.name}") as report:
        sizes, picks = tensors.parse_shapes(how.shapes), picks_of(how.records)
        found = lower(
            how.model,
            device,
            sizes,
            tensors.parse_constants(how.constants),
            how.precision,
            keep_fp32=how.keep_fp32,
            tell=report,
            picks=picks,
            watch=watch,
        )
    return found, device


def costs_of(
    model: Path, lowered: Lowered, device: Target, *, compare: bool = False, compiled: bool = True
) -> list[Cost]:
    from gpucomp.report import static_cuda as static
    from gpucomp.report import static_opencl

    with progress(f"building {model.name}") as report:
        if static_opencl.is_for(device):
            return static_opencl.costs(lowered, device, report, compare=compare)
        return static.costs(lowered, device, report, compare=compare, compiled=compiled)


def has_compiler(device: Target) -> bool:
    from gpucomp import targets

    try:
        targets.require_compiler(device)
    except DeviceError:
        return False
    return True


def model_to_show(how: ModelOptions) -> tuple[Executable, list[Choice]]:
    """The model to look at, and the choice of each kernel's schedule, which a compiled model does not hold.

    It is built only where a device may refuse a kernel, because another one would then be in its place.
    """
    if how.model.suffix == ".gpuc" or has_dims(tensors.parse_shapes(how.shapes)):
        return open_model(how), []
    from gpucomp import targets
    from gpucomp.compiler import finish, unbuilt

    lowered, device = lowered_model(how, ("expressions", "inspect MODEL.onnx"))
    choices = [item.choice for item in lowered.rendered.values()]
    if next(targets.lesser(device), None) is None:
        return unbuilt(lowered, device, how.precision), choices
    with progress(f"building {how.model.name}") as report:
        return finish(lowered, device, how.precision, report), choices
