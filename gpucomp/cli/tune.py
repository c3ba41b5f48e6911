"""``gpucomp tune`` and ``gpucomp worker``: they parse options, call the tuner and print tables."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from gpucomp import config
from gpucomp.cli import tensors
from gpucomp.cli.options import (
    CONSTANTS_HELP,
    KEEP_FP32_HELP,
    PRECISION_HELP,
    SAMPLERS_HELP,
    SHAPES_HELP,
    TARGET_HELP,
    shapes_from,
)
from gpucomp.cli.progress import progress
from gpucomp.cli.tables import exported
from gpucomp.cli.tuned import as_json, line, planned, result
from gpucomp.errors import UsageError, plain, quote, several
from gpucomp.files import write
from gpucomp.ir.precision import PRECISIONS
from gpucomp.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from onnx import ModelProto

    from gpucomp.compiler import Lowered
    from gpucomp.device.target import Target
    from gpucomp.tuning.fleet import Wanted
    from gpucomp.tuning.network import Certificates
    from gpucomp.tuning.tasks import Task
    from gpucomp.tuning.tuner import Tuned, TuneOptions, Watch

UNITS = {"s": 1, "m": 60, "h": 3600}
FOLDER = "tuning-records"
TOLD_S = 30.0  # between two lines of progress where there is no terminal
LOCK_HELP = "Lock this file during each measurement. Searches with the same FILE then measure in turn."
NOTHING_VALID = 8  # exit code: the budget ended and no candidate was valid


def seconds(text: str) -> float:
    """Parse ``90``, ``90s``, ``20m`` or ``1.5h``. Raises ``UsageError``."""
    number, unit = (text[:-1], UNITS[text[-1]]) if text[-1:] in UNITS else (text, 1)
    try:
        found = float(number) * unit
    except ValueError:
        found = -1.0
    if not 0 < found < 1e8:
        raise UsageError(f"--budget {quote(text)}: a time such as 90s, 20m or 1.5h expected", code="GPC2022")
    return found


def _check(sampler: str | None, lock: Path | None, report: Path | None) -> None:
    """Refuse options that would fail only after hours of measuring. Raises ``UsageError``."""
    if sampler is not None:
        from gpucomp.tuning.samplers import named

        named.check(sampler)
    for option, path in (("--json", report), ("--lock", lock)):
        if path is None or (option == "--json" and str(path) == "-"):
            continue
        place = path if path.exists() else path.absolute().parent
        why = (
            "a folder"
            if path.is_dir()
            else "no such folder"
            if not place.exists()
            else "not allowed"
            if not os.access(place, os.W_OK)
            else ""
        )
        if why:
            raise UsageError(f"{option}: cannot write {quote(path)}: {why}", code="GPC2005")


def certificates(command: Any) -> Any:
    """Add the options for a machine's certificates."""
    for name, text in (
        ("--tls-key", "This machine's private key (PEM)."),
        ("--tls-cert", "This machine's certificate (PEM)."),
        ("--tls-ca", "The certificate of the authority that signed those of all machines (PEM)."),
    ):
        command = click.option(name, type=click.Path(path_type=Path), metavar="FILE", help=text)(command)
    return command


def _certificates(authority: Path | None, certificate: Path | None, key: Path | None) -> Certificates | None:
    """The three options as one value. Raises ``UsageError`` if only some of them are given."""
    from gpucomp.tuning.network import Certificates

    if authority is None and certificate is None and key is None:
        return None
    if authority is None or certificate is None or key is None:
        raise UsageError("--tls-ca, --tls-cert and --tls-key belong together", code="GPC2031")
    return Certificates(authority, certificate, key)


@click.command()
@click.option(
    "--scheduler",
    "address",
    metavar="ADDRESS",
    required=True,
    help="The address that `gpucomp tune --fleet` listens at.",
)
@click.option(
    "--target",
    metavar="TARGET",
    help="The device to measure on: cpu, opencl[:NAME], cuda[:ARCH] or hip[:gfxNNN]. Default: GPUCOMP_TARGET, or cpu.",
)
@click.option("--lock", type=click.Path(path_type=Path), metavar="FILE", help=LOCK_HELP)
@certificates
def worker(
    address: str,
    target: str | None,
    lock: Path | None,
    tls_ca: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
) -> int:
    """Measure on this machine for a `gpucomp tune --fleet` on another one, until that search ends.

    A worker measures one schedule at a time on one device, in a separate process. It needs no model. The tuner can run code
    here. So if it is on another machine, both must show certificates of the same authority.
    """
    from gpucomp import targets
    from gpucomp.tuning import fleet

    _check(None, lock, None)
    device = targets.resolve(target or config.current().target)
    signed = _certificates(tls_ca, tls_cert, tls_key)
    with terminable():
        fleet.work(
            address,
            target=device.name,
            certificates=signed,
            lock=lock,
            ready=lambda message: print(message, file=sys.stderr, flush=True),
        )
    return 0


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does: temporary files are removed, and unfinished trials are not recorded as failed."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@click.command()
@click.argument("model", required=False, type=click.Path(path_type=Path))
@click.option(
    "--kernel",
    "kernels",
    multiple=True,
    metavar="SPEC",
    help="Tune this kernel instead of a model, as bench --kernel measures it: gemm:m=64,n=64,k=64. May repeat. Also "
    "'OP m=64 n=64', where OP is conv2d, matmul, softmax, layernorm, maxpool or add.",
)
@click.option(
    "--kernels",
    "lists",
    multiple=True,
    metavar="FILE",
    help="Tune the kernels in this file or list, as bench --kernels has them. May repeat.",
)
@click.option("--target", metavar="TARGET", help=TARGET_HELP)
@click.option("--shapes", multiple=True, metavar="NAME:1x3x224x224", help=SHAPES_HELP)
@click.option("--constants", multiple=True, metavar="NAME=VALUE", help=CONSTANTS_HELP)
@click.option("--precision", type=click.Choice(PRECISIONS), default="fp32", show_default=True, help=PRECISION_HELP)
@click.option("--keep-fp32", multiple=True, metavar="PATTERN", help=KEEP_FP32_HELP)
@click.option(
    "--budget",
    metavar="TIME",
    help="Time limit of the whole search: 90s, 20m, 1.5h. Default: until more measurements are not worth their time.",
)
@click.option(
    "--trials",
    type=click.IntRange(1),
    metavar="N",
    help="Largest number of measurements, for all kernels together. Those of the default schedules, one for each kernel, do "
    "not count.",
)
@click.option(
    "--records",
    "place",
    type=click.Path(path_type=Path),
    default=FOLDER,
    show_default=True,
    metavar="DIR",
    help="The folder that every measurement is written to.",
)
@click.option("--sampler", metavar="NAME", help=f"What proposes the schedules to measure: {SAMPLERS_HELP}")
@click.option(
    "--storage",
    metavar="URL",
    help="Also keep the searches here, for optuna-dashboard: sqlite:///tuning.db, or the path of a journal file.",
)
@click.option(
    "--seed", type=int, default=0, show_default=True, metavar="N", help="Seed of the sampler's random numbers."
)
@click.option(
    "--builders",
    type=click.IntRange(1),
    metavar="N",
    help="Number of processes that compile. Default: one for each core.",
)
@click.option("--lock", type=click.Path(path_type=Path), metavar="FILE", help=LOCK_HELP)
@click.option(
    "--fleet",
    "address",
    metavar="ADDRESS",
    help="Measure on other machines, with `gpucomp worker`. Listen at this address, such as tls://0.0.0.0:8786.",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="With --fleet: number of workers to wait for before the search starts.",
)
@certificates
@click.option("--resume", is_flag=True, help="Continue from the records in DIR. It is an error if there are none.")
@shapes_from("tune at the middle, at small and at large ones of")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print the kernels and how many schedules a search of each chooses from. Measure nothing.",
)
@click.option(
    "--json",
    "report",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help="Also write the result to FILE, as JSON. With -: to stdout.",
)
@exported("csv")
def tune(
    model: Path | None,
    kernels: tuple[str, ...],
    lists: tuple[str, ...],
    target: str | None,
    shapes: tuple[str, ...],
    constants: tuple[str, ...],
    precision: str,
    keep_fp32: tuple[str, ...],
    budget: str | None,
    trials: int | None,
    place: Path,
    sampler: str | None,
    storage: str | None,
    seed: int,
    builders: int | None,
    lock: Path | None,
    address: str | None,
    workers: int,
    tls_ca: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    resume: bool,
    trace_file: Path | None,
    dry_run: bool,
    report: Path | None,
) -> int:
    """Search faster schedules for the kernels of MODEL (.onnx), by measuring them on this machine's device.

    Every measurement is written to the records at once. So Ctrl-C loses nothing, and --resume continues from there. `gpucomp
    compile --records DIR` compiles with the schedules that were found.
    """
    from gpucomp import targets
    from gpucomp.tuning import tuner

    works = _kernels(kernels, lists, model, bool(shapes or constants or trace_file))
    _check(sampler, lock, report)
    device = targets.resolve(target or config.current().target)
    options = tuner.TuneOptions(
        seconds(budget) if budget else None,
        trials,
        storage=storage,
        seed=seed,
        builders=builders or 0,
        resume=resume,
        lock=lock,
        whole=model is not None,
        fleet=_fleet(address, workers, _certificates(tls_ca, tls_cert, tls_key)),
        **({"sampler": sampler} if sampler else {}),
    )
    known, fixed = tensors.parse_shapes(shapes), tensors.parse_constants(constants)
    if not dry_run:
        _require(device, here=address is None)
    works = works or _at_sizes(model, known, fixed, trace_file)
    how = {"constants": fixed, "precision": precision, "keep_fp32": keep_fp32}
    found = _tuned(works, device, how, options, None if dry_run else place)
    if report is not None and found:
        _write_report(report, found, works)
    correct = any(t["invalidity"] == "correct" for one in found for s in one.state.studies for t in s.trials)
    return 0 if correct or dry_run else NOTHING_VALID


@dataclass(frozen=True)
class _Work:
    """What one of several searches is of: a model at ``sizes``, or a kernel, whose ``title`` is then not empty."""

    title: str
    subject: Callable[[], Path | ModelProto]
    sizes: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def about(self) -> dict[str, Any]:
        """What tells this search from the others, by its name in the data."""
        return ({"kernel": self.title} if self.title else {}) | ({"sizes": dict(self.sizes)} if self.sizes else {})


def _tuned(
    works: Sequence[_Work], device: Target, how: Mapping[str, Any], options: TuneOptions, place: Path | None
) -> list[Tuned]:
    """The results of all searches, each printed. Without ``place`` only what would be searched is printed."""
    from gpucomp.tuning import any_size, tuner

    some = any_size.affordable(works, options)
    if place is not None and len(some) < len(works):
        what = "kernels" if works[0].title else "sets of sizes"
        click.echo(f"{several(len(some), 'trial')} for {len(works)} {what}: only the first of them are tuned")
    shares, found = any_size.Shares(options, len(some)), []
    for number, work in enumerate(works if place is None else some, start=1):
        with progress("reading the model"):
            lowered, tasks = tuner.tasks_in(work.subject(), device, shapes=work.shapes, **how)
        if work.sizes or (work.title and len(works) > 1):
            click.echo(f"{number} of {len(works)}: {work.title or _told(work.sizes)}")
        name = "tasks" if number == 1 else f"tasks-{number}"
        if place is None:
            click.echo("\n".join(planned(tasks, options, name)))
            continue
        found.append(_searched(lowered, tasks, device, place, shares.next(), how["precision"], name))
        shares.note(found[-1])
    return found


def _told(sizes: Mapping[str, int]) -> str:
    return " ".join(f"{plain(name)}={size}" for name, size in sizes.items())


def _require(device: Target, *, here: bool) -> None:
    """Raise ``DeviceError`` if a compiler is missing, or the device ``here``: with a fleet, workers have it."""
    from gpucomp import targets

    targets.require_compiler(device)
    if here:
        targets.require_device(device)


def _kernels(texts: Sequence[str], lists: Sequence[str], model: Path | None, sized: bool) -> list[_Work]:
    """The kernels that are given, one by one and in lists; their models are made when their turn comes.

    Raises ``UsageError`` unless there are kernels or a ``model``, and if they are ``sized`` by options for models.
    """
    if (model is not None) == bool(texts or lists):
        raise UsageError("give a model, or one kernel with --kernel", code="GPC2023")
    if model is None and sized:
        raise UsageError("--shapes, --constants and --shapes-from are for models, not for --kernel", code="GPC2023")
    from gpucomp.kernel_bench.models import model as model_of
    from gpucomp.kernel_bench.reference import operands
    from gpucomp.kernel_bench.specs import Spec, spec_of, specs_in
    from gpucomp.tuning import specs

    def made(spec: Spec) -> ModelProto:
        return model_of(spec, operands(spec))

    given = [*(spec_of(text) for text in texts if ":" in text), *(spec for name in lists for spec in specs_in(name))]
    short = [text for text in texts if ":" not in text]
    for text in short:
        specs.parse(text)
    return [
        *(_Work(text, partial(specs.model, text)) for text in short),
        *(_Work(str(spec), partial(made, spec)) for spec in given),
    ]


def _at_sizes(
    model: Path | None, shapes: Mapping[str, Any], constants: Mapping[str, Any], trace_file: Path | None
) -> list[_Work]:
    """A model, once for each set of sizes that it is tuned at."""
    from gpucomp.tuning import any_size

    if model is None:
        return []
    parts = any_size.parts_of(model, shapes, constants, trace_file or ())
    return [_Work("", lambda: model, part.sizes, part.shapes) for part in parts]


def _fleet(address: str | None, workers: int, signed: Certificates | None) -> Wanted | None:
    """The workers to measure on. Raises ``UsageError`` for a wrong address, or certificates without one."""
    from gpucomp.tuning import fleet, network

    if address is None:
        if signed is not None:
            raise UsageError("--tls-ca, --tls-cert and --tls-key are for --fleet", code="GPC2031")
        return None
    network.Address.parse(address, signed is not None)
    network.distributed()  # before any work
    return fleet.Wanted(address, workers, signed)


def _searched(
    lowered: Lowered,
    tasks: Sequence[Task],
    device: Target,
    place: Path,
    options: TuneOptions,
    precision: str,
    name: str = "tasks",
) -> Tuned:
    """The result of the search, after it was printed."""
    from gpucomp.tuning import tuner

    begin = time.monotonic()
    try:
        with terminable(), watching(options) as watch:
            tuned = tuner.search(lowered, tasks, device, place, options, precision=precision, watch=watch)
    except KeyboardInterrupt:
        print(f"interrupted: the measurements are in {place}; continue with --resume", file=sys.stderr)
        raise
    click.echo("\n".join(result(tuned, time.monotonic() - begin, options, name)))
    return tuned


def _write_report(path: Path, found: Sequence[Tuned], works: Sequence[_Work]) -> None:
    """The result as JSON; of several searches a list, with what each is of."""
    each: list[Any] = [work.about | as_json(tuned) for work, tuned in zip(works, found, strict=False)]
    text = json.dumps(each if works[0].sizes or len(works) > 1 else each[0], indent=1)
    if str(path) == "-":
        click.echo(text)
    else:
        write(path, text + "\n")


@contextmanager
def watching(options: TuneOptions) -> Iterator[Watch]:
    """Show the state of a search as a line on a terminal; without one, write it now and then."""
    trials = options.trials or 0
    with progress("tuning", options.budget, every=TOLD_S) as report:
        yield lambda state: report(state.phase, state.trials, trials, line(state, trials))
