"""The commands of ``gpucomp``. Each parses its options, makes one call into the library and prints the result."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

import click

import gpucomp as package
from gpucomp import config
from gpucomp.cli import cache, compare, measure, one_set, records, show, tensors
from gpucomp.cli import tune as tuning
from gpucomp.cli.export import export
from gpucomp.cli.inspect import inspect
from gpucomp.cli.kernels import kernels
from gpucomp.cli.opening import (
    compiled_already,
    costs_of,
    fixed_inputs,
    lowered_model,
    needs_model,
    open_graph,
    open_model,
    shapes_told_by,
)
from gpucomp.cli.options import ModelOptions, inputs, model, model_options, page, shapes_from, states
from gpucomp.cli.options import tolerance as tolerance_option
from gpucomp.cli.progress import progress
from gpucomp.cli.replay import replay
from gpucomp.cli.serve import serve
from gpucomp.cli.tables import exported, note_tables, print_tables, refuse_export
from gpucomp.errors import UnsupportedError, UsageError, quote, several
from gpucomp.files import write
from gpucomp.ir.dims import has_dims
from gpucomp.ir.traces import no_open_sizes
from gpucomp.runtime.ceilings import together
from gpucomp.runtime.inputs import random_inputs

if TYPE_CHECKING:
    import numpy as np
    from rich.table import Table

    from gpucomp.cli.profile import Profile
    from gpucomp.runtime.executable import Executable


class _Stdout:
    """stdout that ignores a closed pipe (``gpucomp ... | head``), so that the command still writes its files."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._drop()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._drop()

    def _drop(self) -> None:
        """Discard what is buffered and all later output."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


# what other programs call it, and the command here
ELSEWHERE = {
    "explain": "inspect",
    "show": "inspect",
    "info": "inspect",
    "profile": "bench --profile",
    "benchmark": "bench",
    "build": "compile",
    "verify": "compare",
    "validate": "check",
    "autotune": "tune",
}


class _Commands(click.Group):
    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if (meant := ELSEWHERE.get(args[0])) is not None:
            raise click.UsageError(f"no command {quote(args[0])}: gpucomp {meant} does that", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        with contextlib.redirect_stdout(cast("TextIO", _Stdout(sys.stdout))):
            try:
                return super().invoke(ctx)
            except BrokenPipeError as error:  # from a subprocess: click would exit with 1 and no message
                raise RuntimeError("a process that was written to has ended") from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package.__version__, prog_name="gpucomp", message="%(prog)s %(version)s")
@click.option("--plugin", "plugins", multiple=True, metavar="NAME", help="Load this installed plug-in. May repeat.")
def gpucomp(plugins: tuple[str, ...]) -> None:
    """Compile ONNX models to kernels for the CPU, OpenCL and CUDA, and run them."""
    config.current()  # every command reports a wrong GPUCOMP_ variable
    for name in plugins:
        package.plugin(name)


@gpucomp.command()
@shapes_from("choose schedules for", "shapes_from")
@model_options
@states
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The .gpuc file to write.")
def compile(
    how: ModelOptions,
    output: Path,
) -> None:
    """Compile MODEL (.onnx) for one target and write it as one file."""
    if output.suffix != ".gpuc":
        raise UsageError(f"--output {quote(output)}: a name that ends in .gpuc expected", code="GPC2008")
    if how.model.suffix == ".gpuc":
        raise compiled_already(how.model)
    start = time.perf_counter()
    exe = open_model(how)
    seconds = time.perf_counter() - start
    exe.save(output)
    click.echo("\n".join(show.summary(exe)))
    click.echo(f"compiled  in {seconds:.2f} s")
    click.echo(f"written   {output} ({show.size(output.stat().st_size)})")


@gpucomp.command()
@model_options
@states
@inputs
@click.option("--output-dir", type=click.Path(path_type=Path), help="Write each output to this folder, as .npy.")
@click.option(
    "--compare", "reference", type=click.Choice(["onnxruntime"]), help="Compare the outputs with this engine's."
)
@tolerance_option
@exported()
def run(
    how: ModelOptions,
    files: tuple[str, ...],
    preprocess: str,
    output_dir: Path | None,
    reference: str | None,
    tolerance: float | None,
    atol: float,
) -> None:
    """Run MODEL (.onnx or .gpuc) once and print a summary of each output.

    Every input needs an --input.
    """
    if reference and how.model.suffix == ".gpuc":
        raise needs_model(how, "graph to compare with", f"run MODEL.onnx --compare {reference}")
    if not reference:
        refuse_export("give --compare too")
    _check_early(files, reference)
    exe = open_model(how, files, runs=True, needs_inputs=True)
    given = tensors.read_inputs(files, exe.inputs, preprocess)
    with progress("running"):
        outputs = exe.context().run(given) if exe.states else exe.run(given)
    click.echo("\n".join(show.tensor(name, array) for name, array in outputs.items()))
    if output_dir is not None:
        for name, path in tensors.write_outputs(output_dir, outputs).items():
            click.echo(f"{quote(name)} -> {path}")
    if reference:
        with progress("running onnxruntime"):
            fixed = fixed_inputs(how)
            found = compare.distances(outputs, compare.onnxruntime_outputs(how.model, {**given, **fixed}))
        allowed = _allowed(how, tolerance, atol)
        click.echo("\n".join(show.errors(found, allowed, outputs)))
        advice = f"gpucomp compare {shlex.quote(str(how.model))} finds the first wrong tensor, and who is right"
        compare.require(found, allowed, reference, advice)


def _check_early(files: tuple[str, ...], reference: str | None = None) -> None:
    """Raise ``DeviceError`` for a package, and ``UsageError`` for a file, that would be missed only after a compilation."""
    if any(file.lower().endswith(tensors.IMAGES) for file in files):
        tensors.require_pillow()
    if reference == "onnxruntime":
        compare.require_onnxruntime()
    tensors.check_files(files)


def _allowed(how: ModelOptions, relative: float | None, absolute: float) -> compare.Tolerance:
    """What ``--tolerance`` and ``--atol`` allow; without the former the model's types and its precision decide."""
    return compare.Tolerance(
        compare.tolerance_for(how.model, how.precision) if relative is None else relative, absolute
    )


@gpucomp.command("compare")
@model_options
@inputs
@click.option(
    "--against",
    type=click.Choice(compare.REFERENCES),
    default="onnxruntime",
    show_default=True,
    help="What to compare with: onnxruntime, or the reference evaluator of the onnx package.",
)
@tolerance_option
@click.option("--tensors", "every", is_flag=True, help="Also print a line for each tensor.")
@click.option(
    "--bisect",
    is_flag=True,
    help="If an output is wrong: cut the model to the fewest nodes that show it, and name the stage of the compiler.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The new folder that --bisect writes to. Default: bisect-MODEL.",
)
@exported()
def compare_(
    how: ModelOptions,
    files: tuple[str, ...],
    preprocess: str,
    against: str,
    tolerance: float | None,
    atol: float,
    every: bool,
    bisect: bool,
    output: Path | None,
) -> None:
    """Compare every tensor of MODEL (.onnx) with another engine's.

    Prints the error of each output and the first tensor that is wrong. The operator that gives this tensor is then computed
    in f64, once from gpucomp's operands and once from the other engine's. This shows which of the two is right. Inputs
    without --input are random. The exit code is 6 if an output is wrong, and 0 if f64 says that gpucomp is right about every
    tensor that differs.
    """
    if how.model.suffix == ".gpuc":
        raise needs_model(how, "graph to compare with", "compare MODEL.onnx")
    from gpucomp import targets
    from gpucomp.cli import bisect as bisecting

    told = tensors.parse_shapes(how.shapes)
    if has_dims(told):
        raise UsageError(
            "compare needs one size of each dimension: give numbers in --shapes; gpucomp run MODEL --input NAME=FILE "
            f"--compare {compare.REFERENCES[0]} takes sizes that each run decides",
            code="GPC2017",
        )
    folder = (output or Path(f"bisect-{how.model.stem}")) if bisect else None
    if folder is not None:
        bisecting.check_folder(folder)
    _check_early(files, against)
    targets.require_device(targets.resolve(how.target_name))
    allowed = _allowed(how, tolerance, atol)
    fixed = fixed_inputs(how)
    question = bisecting.Question(targets.resolve(how.target_name), how.precision, allowed, fixed)
    sizes = {**shapes_told_by(files, how.model), **told}
    specs = bisecting.input_specs(how.model, sizes, fixed)
    given = tensors.read_inputs(files, specs, preprocess)
    given |= random_inputs([spec for spec in specs if spec.name not in given])
    bisecting.compare_model(how.model, {**given, **fixed}, question, against, folder, tensors=every)


@gpucomp.command()
@exported("csv")
@kernels
@partial(model_options, required=False)
@inputs
@click.option(
    "--warmup",
    "warmup_ms",
    type=click.FloatRange(0),
    default=200,
    show_default=True,
    metavar="MS",
    help="Run for this many milliseconds before measuring, after a first run, which may compile.",
)
@click.option(
    "--duration",
    "duration_s",
    type=click.FloatRange(0),
    default=3,
    show_default=True,
    metavar="S",
    help="Measure for this many seconds.",
)
@click.option(
    "--iterations",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    metavar="N",
    help="Measure at least this many runs, even if they take longer than --duration.",
)
@click.option("--percentile", default="90,95,99", show_default=True, metavar="P,P", help="Percentiles to print.")
@click.option(
    "--json",
    "report",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help="Also write all samples to FILE, as JSON. With -: to stdout, and nothing else.",
)
@click.option(
    "--static",
    is_flag=True,
    help="Run nothing. Print registers, size of the machine code and least possible time (floor) of every kernel.",
)
@click.option(
    "--profile",
    "profiled",
    is_flag=True,
    help="Also time each kernel, and print what share of the machine's peak it gets.",
)
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Profile, and write one run to FILE as a trace for Perfetto.",
)
@click.option(
    "--copies",
    "copied",
    is_flag=True,
    help="Also print what one run copies between host and device: with numpy arrays, and with arrays on the device.",
)
@page("Profile, and draw each kernel's time and its least possible time (floor) as one HTML page.")
@shapes_from("print the total and percentiles of one run at each of")
def bench(
    how: ModelOptions,
    files: tuple[str, ...],
    preprocess: str,
    warmup_ms: float,
    duration_s: float,
    iterations: int,
    percentile: str,
    report: Path | None,
    static: bool,
    profiled: bool,
    trace: Path | None,
    copied: bool,
    output: Path | None,
    trace_file: Path | None,
) -> None:
    """Measure the latency of MODEL (.onnx or .gpuc), or of kernels. Inputs without --input are random."""
    profiled = profiled or trace is not None or output is not None
    if trace_file is not None:
        _bench_trace(how, trace_file, report, alone=not (static or profiled or copied or files))
        return
    if static and (profiled or copied):
        raise _static_alone()
    one_set.require(how, files, static=static)
    if static:
        _bench_static(how, report)
        return
    if not profiled:
        refuse_export("give --profile or --static too")
    from gpucomp.cli import copies, profile, profile_page

    percentiles = _percentiles(percentile)
    _check_early(files)
    exe, compile_s = _opened(how, files)
    given, inputs = one_set.given(exe, files, preprocess)
    run, exe, sizes = exe.run, *one_set.of_inputs(exe, given)
    with progress("measuring", duration_s + warmup_ms / 1e3):
        latency = measure.measure(lambda: run(given), warmup_ms=warmup_ms, duration_s=duration_s, iterations=iterations)
        found = _profiled(exe, given, iterations) if profiled else None
        counted = copies.measured(exe, given) if copied else {}
    method = measure.method(latency, exe.target, inputs)
    setting = measure.setting(exe.target, exe.plan.precision, exe.inputs, given)
    data = {
        "model": str(how.model),
        **setting,
        "method": method,
        "machine": measure.machine(),
        **({"sizes": sizes} if sizes else {}),
        **_about(exe, compile_s),
        **measure.as_json(latency, percentiles),
        **({"copies": copies.as_json(counted)} if copied else {}),
        **({"profile": profile.as_json(found)} if found else {}),
    }
    if found is not None:
        profile_page.write(found, trace, output, how.model.name, [measure.said(setting), method])
    text = json.dumps(data, indent=1)
    lines = ["=== Performance summary ===", *measure.summary(latency, percentiles), *copies.lines(counted), method]
    _tell(lines, text, report, found)


def _about(exe: Executable, compile_s: float) -> dict[str, object]:
    sizes = {"arena_bytes": exe.plan.arena_bytes, "peak_bytes": exe.peak_bytes}
    return {"kernels": len(exe.kernels), "compile_s": compile_s, **sizes}


def _static_alone() -> UsageError:
    return UsageError(
        "--static measures nothing, --profile, --trace, --copies and --output do: leave out one or the other",
        code="GPC2028",
    )


def _opened(how: ModelOptions, files: tuple[str, ...]) -> tuple[Executable, float]:
    """The model, and the seconds until it was there. Inputs must tell the sizes that each run decides."""
    start = time.perf_counter()
    exe = open_model(how, files, runs=True)
    one_set.require_inputs(exe, how.model, files)
    return exe, time.perf_counter() - start


def _bench_trace(how: ModelOptions, path: Path, report: Path | None, *, alone: bool) -> None:
    """Measure the sizes of a trace. ``alone``: without options for one set of sizes."""
    if not alone:
        others = "--static, --profile, --trace, --copies, --output and --input"
        raise UsageError(f"--shapes-from runs many sizes on random inputs: it excludes {others}", code="GPC2028")
    from gpucomp.cli import trace as traces
    from gpucomp.runtime.any_shape import AnyShapeExecutable

    if how.model.suffix != ".gpuc" and not has_dims(tensors.parse_shapes(how.shapes)):
        raise no_open_sizes()
    exe = open_model(how, runs=True)
    if not isinstance(exe, AnyShapeExecutable):
        raise UsageError(
            f"{quote(how.model)} is compiled for one set of sizes, too late for --shapes-from: compile the .onnx model for any "
            "size, with --shapes such as x:{n:1..8}x3x{h}",
            code="GPC2007",
        )
    found = traces.read(path, exe)
    with progress("measuring"):
        latency = traces.measure(found, exe)
    method = measure.method(latency, exe.target, "inputs random (seed 0)")
    data = {
        "model": str(how.model),
        "target": exe.target,
        "device": measure.device(exe.target),
        "gpucomp": package.__version__,
        "date": measure.now(),
        "method": method,
        "machine": measure.machine(),
        **traces.as_json(found, latency),
        **measure.as_json(latency, (99,)),
    }
    _tell(["=== Performance summary ===", *traces.summary(found, latency), method], json.dumps(data, indent=1), report)


def _tell(lines: list[str], text: str, report: Path | None, found: Profile | None = None) -> None:
    """Print the lines and the profile, and write ``text``. If that goes to stdout, nothing else does."""
    if str(report) == "-":
        if found is not None:
            note_tables(**_tables(found))
        click.echo(text)
        return
    click.echo("\n".join(lines))
    if found is not None:
        _show_profile(found)
    if report is not None:
        write(report, text + "\n")


def _profiled(exe: Executable, given: dict[str, np.ndarray], iterations: int) -> Profile:
    from gpucomp.cli import profile

    before = exe.ceilings()
    runs = [exe.timeline(given) for _ in range(iterations)]
    after = exe.ceilings()
    ceilings = together(before, after) if before is not None and after is not None else None
    return profile.Profile(runs, ceilings, profile.rows(exe.kernels, runs, ceilings))


def _show_profile(found: Profile) -> None:
    from gpucomp.cli import profile

    click.echo("=== Profile ===")
    print_tables(**_tables(found))
    lines = [*profile.summary(found.rows, found.ceilings), *profile.threads_said(found.runs, found.ceilings)]
    lines += profile.LEGEND if found.ceilings is not None else ()
    click.echo("\n".join(lines))


def _tables(found: Profile) -> dict[str, Table]:
    from gpucomp.cli import profile

    return {"kernels": profile.table(found.rows), "families": profile.by_family(found.rows)}


def _bench_static(
    how: ModelOptions,
    report: Path | None,
) -> None:
    if how.model.suffix == ".gpuc":
        raise needs_model(how, "expressions to count work in", "bench MODEL.onnx --static")
    from gpucomp import targets
    from gpucomp.cli import costs

    targets.require_compiler(targets.resolve(how.target_name))
    lowered, device = lowered_model(how, ("expressions", "bench MODEL.onnx --static"))
    found = costs_of(how.model, lowered, device)
    data, lines = costs.as_json(found, device), costs.static(found, device)
    text = json.dumps({"model": str(how.model), "precision": how.precision, **data}, indent=1)
    _tell(lines, text, report)


def _percentiles(text: str) -> tuple[float, ...]:
    try:
        found = tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        found = (-1.0,)
    if not all(0 < p <= 100 for p in found):
        raise UsageError(f"--percentile {quote(text)}: numbers above 0 and up to 100 expected", code="GPC2027")
    return found


@gpucomp.command()
@model
def check(model: Path, target: str | None, shapes: tuple[str, ...], constants: tuple[str, ...]) -> None:
    """List the operators of MODEL (.onnx) that cannot be compiled and those that run on the host.

    The exit code is 4 if any cannot be compiled.
    """
    if model.suffix == ".gpuc":
        raise compiled_already(model)
    from gpucomp import targets
    from gpucomp.dynamic.program import DynamicModel
    from gpucomp.frontend import onnx as frontend

    device = targets.resolve(target or config.current().target)
    with progress(f"checking {model.name}"):
        sizes, fixed = tensors.parse_shapes(shapes), tensors.parse_constants(constants)
        opened = open_graph(model, sizes, fixed) if has_dims(sizes) else None
        try:
            example = opened.shapes.at(opened.example) if opened else sizes
            problems, dynamic_model = frontend.check(model, shapes=example, constants=fixed)
        except UsageError as error:
            problems, dynamic_model = frontend.unknown_operators(model), b""
            if error.code != "GPC2102" or not problems:
                raise
            problems.append(error.in_shell)
    if problems:
        click.echo("\n".join(" ".join(problem.split()) for problem in problems))
        cases = several(len(problems), "problem")
        raise UnsupportedError(f"{quote(model)} cannot be compiled: {cases}, listed on standard output", code="GPC4001")
    if opened:
        click.echo("\n".join(show.free_sizes(opened)))
    if dynamic_model:
        click.echo("\n".join(show.dynamic_operators(DynamicModel(dynamic_model))))
        click.echo(f"{quote(model)}: everything else can be compiled for {device.name}")
    else:
        click.echo(f"{quote(model)}: everything can be compiled for {device.name}")


@gpucomp.command()
@click.option("--json", "report", type=click.Path(path_type=Path, allow_dash=True), help="Write it there; - is stdout.")
def doctor(report: Path | None) -> None:
    """Print what gpucomp finds on this machine, what is missing, and how to install it."""
    from gpucomp.cli.doctor import as_json, findings, lines

    with progress("searching this machine"):
        found = findings()
    if str(report) != "-":
        click.echo("\n".join(lines(found)))
    text = json.dumps(as_json(found), indent=1) if report is not None else ""
    if str(report) == "-":
        click.echo(text)
    elif report is not None:
        write(report, text + "\n")


gpucomp.add_command(inspect)
gpucomp.add_command(replay)
gpucomp.add_command(tuning.tune)
gpucomp.add_command(tuning.worker)
gpucomp.add_command(records.records)
gpucomp.add_command(cache.cache)
gpucomp.add_command(serve)
gpucomp.add_command(export)
