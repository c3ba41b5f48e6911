"""``gpucomp tune`` and ``gpucomp worker``: they parse options, call the tuner and print tables."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from gpucomp import config
from gpucomp.cli import measure, tensors
from gpucomp.cli.options import CONSTANTS_HELP, KEEP_FP32_HELP, PRECISION_HELP, SAMPLERS_HELP, SHAPES_HELP, TARGET_HELP
from gpucomp.cli.progress import progress
from gpucomp.cli.tables import exported, table
from gpucomp.errors import UsageError, quote, several
from gpucomp.files import write
from gpucomp.kernel.passes.precision import PRECISIONS

if TYPE_CHECKING:
    from onnx import ModelProto

    from gpucomp.compiler import Lowered
    from gpucomp.device.target import Target
    from gpucomp.tuning.choice import Verdict
    from gpucomp.tuning.fleet import Wanted
    from gpucomp.tuning.network import Certificates
    from gpucomp.tuning.study import Study
    from gpucomp.tuning.tasks import Task
    from gpucomp.tuning.tuner import State, Tuned, TuneOptions, Watch

UNITS = {"s": 1, "m": 60, "h": 3600}
FOLDER = "tuning-records"
UNSTEADY = 0.1  # share by which a default schedule beside itself may differ
TOLD_S = 30.0  # between two lines of progress where there is no terminal
HELD = 1.02  # times as fast: less is within the noise of a search
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
    help="The device to measure on: cpu, opencl[:NAME] or cuda[:ARCH]. Default: GPUCOMP_TARGET, or cpu.",
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
    "spec",
    metavar="'OP a=1 b=2'",
    help="Tune one kernel instead of a model: 'matmul m=64 n=64 k=64'. OP is conv2d, matmul, softmax, layernorm, maxpool or "
    "add. For the sizes of one, give it alone: 'conv2d'.",
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
    spec: str | None,
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
    dry_run: bool,
    report: Path | None,
) -> int:
    """Search faster schedules for the kernels of MODEL (.onnx), by measuring them on this machine's device.

    Every measurement is written to the records at once. So Ctrl-C loses nothing, and --resume continues from there. `gpucomp
    compile --records DIR` compiles with the schedules that were found.
    """
    from gpucomp import targets
    from gpucomp.tuning import tuner

    subject = _subject(model, spec)
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
        whole=spec is None,
        fleet=_fleet(address, workers, _certificates(tls_ca, tls_cert, tls_key)),
        **({"sampler": sampler} if sampler else {}),
    )
    inputs = {"shapes": tensors.parse_shapes(shapes), "constants": tensors.parse_constants(constants)}
    if not dry_run:
        _require(device, here=address is None)
    with progress("reading the model"):
        lowered, tasks = tuner.tasks_in(subject, device, **inputs, precision=precision, keep_fp32=keep_fp32)
    if dry_run:
        click.echo("\n".join(planned(tasks, options)))
        return 0
    tuned = _searched(lowered, tasks, device, place, options, precision)
    if report is not None:
        _write_report(report, tuned)
    return 0 if any(t["invalidity"] == "correct" for s in tuned.state.studies for t in s.trials) else NOTHING_VALID


def _require(device: Target, *, here: bool) -> None:
    """Raise ``DeviceError`` if a compiler is missing, or the device ``here``: with a fleet, workers have it."""
    from gpucomp import targets

    targets.require_compiler(device)
    if here:
        targets.require_device(device)


def _subject(model: Path | None, spec: str | None) -> Path | ModelProto:
    """What is tuned: a model's file, or a model of one kernel."""
    from gpucomp.tuning import specs

    if model is not None and spec is None:
        return model
    if spec is not None and model is None:
        return specs.model(spec)
    raise UsageError("give a model, or one kernel with --kernel", code="GPC2023")


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
    lowered: Lowered, tasks: Sequence[Task], device: Target, place: Path, options: TuneOptions, precision: str
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
    click.echo("\n".join(result(tuned, time.monotonic() - begin, options)))
    return tuned


def _write_report(path: Path, tuned: Tuned) -> None:
    text = json.dumps(as_json(tuned), indent=1)
    if str(path) == "-":
        click.echo(text)
    else:
        write(path, text + "\n")


def planned(tasks: Sequence[Any], options: Any) -> list[str]:
    """One row for each task that would be searched."""
    from gpucomp.tuning import tuner
    from gpucomp.tuning.engines import MOST

    rows = []
    for number, task in enumerate(tasks, start=1):
        engines = " ".join(family.title for family in task.engines)
        size = tuner.space_size(task, options)
        schedule = " ".join(f"{k}={v}" for k, v in task.default.schedule.items())
        rows.append((number, task.label, task.launches, f"{1e-9 * task.flops:.4g}", size, engines, task.tier, schedule))
    legend = (
        f"candidates: the schedules that a search chooses from, up to {MOST} of an engine. Larger spaces are sampled; inspect "
        "--spaces has their sizes"
    )
    return [
        *table(("#", "kernel", "launches", "GFLOP", "candidates", "engines", "tier", "default"), rows, "tasks"),
        legend,
    ]


def _rows(state: State) -> Iterator[tuple[str, ...]]:
    total = sum(s.task.weight for s in state.studies) or 1.0
    for number, study in enumerate(state.studies, start=1):
        task, made = study.task, study.progress
        verdict = state.verdicts.get(task.kernel.digest)
        ratio = _stands(made.best, verdict)
        best = task.seconds * ratio
        invalid = " ".join(f"{count} {kind}" for kind, count in sorted(made.invalid.items())) or "-"
        yield (
            str(number),
            task.label,
            f"{1e-9 * task.flops:.3g}",
            f"{100 * task.weight / total:.1f}",
            f"{1e6 * task.seconds:.1f}",
            f"{1e6 * best:.1f}",
            f"{1 / ratio:.2f}",
            *([_roof(study, best, verdict)] if task.target.device is not None else []),
            str(made.trials),
            invalid,
            study.fault or _final(study, verdict),
        )


def _stands(searched: float, verdict: Verdict | None) -> float:
    """The time of a task's best schedule over its default's: as the final measured it, until then as the search did."""
    if verdict is None or not verdict.decided:
        return searched
    return 1.0 if verdict.is_default else verdict.ratio


def _final(study: Study, verdict: Verdict | None) -> str:
    """The result of a task's final; if the final was not reached, the result of an earlier run."""
    if verdict is None:
        return "-"
    if verdict.came == "not reached" and (pick := study.known.pick) is not None:
        return "earlier: default" if pick.get("default", False) else f"earlier: {1 / pick['ratio']:.2f} x"
    if verdict.came == "not reached":
        return "not decided: the time ended" if study.progress.trials else "no trial"
    if not verdict.decided:
        return verdict.came
    if verdict.came == "model":
        return f"default: {1 / verdict.alone:.2f} x alone, but the model is no faster"
    if verdict.is_default:
        searched = 1 / study.progress.best
        return f"default: the search's {searched:.2f} x was not confirmed" if searched > HELD else "default"
    return f"{1 / verdict.ratio:.2f} x"


def _roof(study: Study, best: float, verdict: Verdict | None) -> str:
    """The floor of the best schedule's engine over its time."""
    from gpucomp.schedule.analytic import floor_us

    device = study.task.target.device
    if device is None or not best:
        return "-"
    decided = verdict is not None and verdict.decided
    engine = verdict.candidate.family.title if verdict is not None and decided else study.winner.family.title
    return f"{100 * floor_us(study.task.kernel, device, engine) / (1e6 * best):.0f}"


def _header(state: State) -> tuple[str, ...]:
    roof = ("% of roof",) if state.studies[0].task.target.device is not None else ()
    return (
        "#",
        "kernel",
        "GFLOP",
        "% of model",
        "default us",
        "best us",
        "x default",
        *roof,
        "trials",
        "invalid",
        "final",
    )


def task_table(state: State) -> list[str]:
    """One row for each task: its size, its times, its trials, and the result of the final."""
    return table(_header(state), _rows(state), "tasks")


def line(state: State, trials: int = 0) -> str:
    """What is searched, how far it is, and the best so far over the default. ``trials`` is their largest number, or 0."""
    study = state.current
    label = study.task.label if study is not None else ""
    if state.phase != "search" or study is None:
        return " ".join(part for part in (state.phase, label) if part)
    number = list(state.studies).index(study) + 1
    best = f"{1 / study.best:.2f} x its default, " if study.trials else ""
    trial = "trial" if trials > 1 else f"trial {state.trials}"  # the progress line ends in how many of how many
    return f"kernel {number} of {len(state.studies)}, {best}{label}, {trial}"


@contextmanager
def watching(options: TuneOptions) -> Iterator[Watch]:
    """Show the state of a search as a line on a terminal; without one, write it now and then."""
    trials = options.trials or 0
    with progress("tuning", options.budget, every=TOLD_S) as report:
        yield lambda state: report(state.phase, state.trials, trials, line(state, trials))


def untried(state: State, options: TuneOptions) -> list[str]:
    """How many kernels had no trial, and why: a search measures what promises the most of the model's time."""
    without = [s.task.weight for s in state.studies if not s.progress.trials and not s.fault]
    if not without:
        return []
    share = sum(without) / (sum(s.task.weight for s in state.studies) or 1.0)
    said = f"{len(without)} of {len(state.studies)} kernels, {100 * share:.1f} % of the kernels' time, had no trial: "
    if options.budget is None and options.trials is None:
        return [f"{said}measuring them promised too little"]
    limit = f"{options.budget:g} s" if options.budget is not None else several(options.trials or 0, "trial")
    return [f"{said}the budget of {limit} went to kernels that promised more; --resume goes on with them"]


def unsteady(state: State) -> list[str]:
    """A diagnosis if a default schedule that was timed beside itself seemed to be another one."""
    apart = [
        max(t["ratio"], 1 / t["ratio"]) - 1
        for study in state.studies
        for t in study.trials
        if t.get("default") and t["invalidity"] == "correct"
    ]
    if not apart or max(apart) <= UNSTEADY:
        return []
    count = sum(one > UNSTEADY for one in apart)
    sign = (
        f"the default schedule beside itself differs by up to {100 * max(apart):.0f} %, in {count} of "
        f"{several(len(apart), 'kernel')} by more than {100 * UNSTEADY:.0f} %"
    )
    return [measure.unstable(sign, "only the finals' ratios are to be trusted, so search again when it is quiet")]


def result(tuned: Tuned, took: float, options: TuneOptions) -> list[str]:
    """The table, the model's gain, and what more time would gain."""
    state = tuned.state
    lines = task_table(state)
    picked = tuned.changed  # without the picks of a default, which change nothing
    trials = sum(len(s.trials) for s in state.studies)
    defaults = sum(bool(t.get("default")) for s in state.studies for t in s.trials)
    lines.append(
        f"{several(trials, 'trial')} of {several(len(state.studies), 'kernel')} in {took:.0f} s, {defaults} of them of default "
        f"schedules; "
        f"{several(picked, 'schedule')} changed"
    )
    lines += [*unsteady(state), *untried(state, options)]
    if tuned.comparison.ratios and tuned.untuned_s:
        low, high = tuned.comparison.interval
        ratio = tuned.comparison.median
        lines.append(
            f"model: {1e3 * tuned.untuned_s:.4g} ms untuned, {1e3 * tuned.untuned_s * ratio:.4g} ms tuned: "
            f"{1 / ratio:.3f} times as fast (95 %: {1 / high:.3f} to {1 / low:.3f})"
            if picked
            else f"model: {1e3 * tuned.untuned_s:.4g} ms; no schedule that was found makes it faster"
        )
    total = sum(s.task.weight for s in state.studies)
    if total:
        lines.append(
            f"ten more minutes of search may save about {100 * tuned.forecast_s / total:.1f} % of the kernels' time"
        )
    lines.append(f"records: {tuned.records}")
    return lines


def as_json(tuned: Tuned) -> dict[str, object]:
    """The result as data; each name has its unit."""
    state = tuned.state
    return {
        "untuned_s": tuned.untuned_s,
        "ratio": tuned.comparison.median if tuned.comparison.ratios else None,
        "ratio_interval": list(tuned.comparison.interval) if tuned.comparison.ratios else None,
        "forecast_s": tuned.forecast_s,
        "records": str(tuned.records),
        "tasks": [
            {
                "kernel": study.task.kernel.digest,
                "label": study.task.label,
                "launches": study.task.launches,
                "default_s": study.task.seconds,
                "search_ratio": study.best,
                "trials": len(study.trials),
                "invalid": study.progress.invalid,
                "fault": study.fault,
                "pick": None
                if verdict is None
                else {
                    "engine": verdict.candidate.family.title,
                    "configuration": dict(verdict.candidate.schedule),
                    **verdict.fields,
                    "came": verdict.came,
                    "alone": verdict.alone if verdict.came == "model" else None,
                    "kept": study.task.kernel.digest in state.kept,
                },
            }
            for study in state.studies
            for verdict in [state.verdicts.get(study.task.kernel.digest)]
        ],
    }
