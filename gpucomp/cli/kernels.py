"""``gpucomp bench --kernel``: one kernel, or a list of them, beside the libraries of vendors."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from gpucomp import config
from gpucomp.cli import measure
from gpucomp.cli.progress import progress
from gpucomp.cli.tables import print_tables
from gpucomp.errors import DeviceError, UsageError, quote, several
from gpucomp.files import write

if TYPE_CHECKING:
    from rich.table import Table

    from gpucomp.device.target import Target
    from gpucomp.kernel_bench.rounds import Measured, Row, Settings

OWN = {"kernel", "kernels", "against", "cold", "published"}
SHARED = {
    "target",
    "records",
    "duration_s",
    "report",
    "output",
    "static",
    "csv_of_tables",
}  # what also a model's benchmark has
ROUNDS = 15
UNKNOWN = "-"


def kernels(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--kernel`` and ``--kernels`` to a command that measures a model; with one of them it measures kernels."""

    @wraps(function)
    def command(**options: Any) -> Any:
        own = {name: options.pop(name) for name in OWN}
        if own["kernel"] or own["kernels"]:
            return _bench(options, **own)
        if given := _given(OWN):
            raise UsageError(f"{given[0]} is for kernels: give --kernel or --kernels too", code="GPC2057")
        if options["model"] is None:
            raise UsageError("a MODEL expected, or --kernel or --kernels", code="GPC2057")
        return function(**options)

    for option in (
        click.option(
            "--published",
            multiple=True,
            type=click.Path(path_type=Path),
            metavar="PLACE",
            help="With --kernel --static: also print what this file of published measurements, or those in this folder, have of "
            "the kernels. May repeat.",
        ),
        click.option("--cold", is_flag=True, help="With --kernel: empty the caches before each call."),
        click.option(
            "--against",
            metavar="NAME,NAME",
            help="With --kernel: onnxruntime, torch, numpy, clblast, or none. Default: those of the first two that are "
            "installed, and clblast on OpenCL.",
        ),
        click.option(
            "--kernels",
            multiple=True,
            metavar="FILE",
            help="Measure the kernels in this file, one on each line, or in a list that comes with gpucomp: bert, blas, "
            "deepbench, llama, resnet50 or mixed. May repeat.",
        ),
        click.option(
            "--kernel",
            multiple=True,
            metavar="SPEC",
            help="Measure this kernel beside other libraries, such as gemm:m=512,n=512,k=512. May repeat.",
        ),
    ):
        command = option(command)
    return command


def _given(names: set[str]) -> list[str]:
    """The options of these names that the command line has."""
    context = click.get_current_context()
    found = [p for p in context.command.params if p.name in names]
    return [p.opts[-1] for p in found if context.get_parameter_source(p.name or "") is ParameterSource.COMMANDLINE]


def _bench(
    options: Mapping[str, Any],
    kernel: Sequence[str],
    kernels: Sequence[str],
    against: str | None,
    cold: bool,
    published: Sequence[Path],
) -> None:
    from gpucomp import targets
    from gpucomp.kernel_bench import engines, rounds
    from gpucomp.kernel_bench.specs import spec_of, specs_in
    from gpucomp.runtime.workers import available_threads

    context = click.get_current_context()
    if others := _given({p.name or "" for p in context.command.params} - OWN - SHARED):
        raise UsageError(f"{others[0]} is for models: it cannot be given with --kernel or --kernels", code="GPC2057")
    specs = [*map(spec_of, kernel), *(spec for name in kernels for spec in specs_in(name))]
    target = targets.resolve(options["target"] or config.current().target)
    if options["static"]:
        if given := _given({"against", "cold", "duration_s", "output"}):
            raise UsageError(f"--static measures nothing: leave out {given[0]}", code="GPC2028")
        from gpucomp.cli import kernels_static

        wanted = None if published and target.kind == "cpu" else target  # of a processor nothing is predicted
        kernels_static.predict(specs, wanted, options["records"], published, options["report"])
        return
    if published:
        raise UsageError("--published is for --static, which measures nothing", code="GPC2028")
    settings = rounds.Settings(
        target=target,
        against=_engines(
            against, engines.installed(target), [name for name in engines.ENGINES if name != engines.OURS]
        ),
        threads=available_threads(),
        seconds=options["duration_s"],
        rounds=ROUNDS,
        cold=cold,
        on_processor=_on_processor(target),
        records=options["records"],
    )
    with progress("measuring", len(specs) * (1 + len(settings.against)) * settings.seconds):
        found = rounds.measure(specs, settings)
    _tell(found, settings, options["report"], options["output"])
    if wrong := [one for one in found if one.ours.failure.startswith("wrong")]:
        raise _wrong(wrong)


def _on_processor(target: Target) -> bool:
    """Whether the target's device is this machine's processor. Raises ``DeviceError`` if the device is not here."""
    from gpucomp.tuning.devices import open_device

    try:
        return open_device(target).noisy
    except DeviceError as error:
        raise DeviceError(f"{error.message}; --static predicts times without a device", code=error.code) from None


def _engines(asked: str | None, usual: Sequence[str], known: Sequence[str]) -> list[str]:
    if asked is None:
        return list(usual)
    names = [] if asked == "none" else [name.strip() for name in asked.split(",")]
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"--against {quote(unknown[0])}: {', '.join(known)} or none expected", code="GPC2057")
    return list(dict.fromkeys(names))


def _wrong(found: Sequence[Measured]) -> Exception:
    from gpucomp.errors import AccuracyError

    others = f" (and {several(len(found) - 1, 'other')})" if len(found) > 1 else ""
    first = f"{quote(str(found[0].spec))}{others}: {found[0].ours.failure}"
    return AccuracyError(f"a kernel of gpucomp's is wrong: {first}", code="GPC6011")


def _tell(found: Sequence[Measured], settings: Settings, report: Path | None, output: Path | None) -> None:
    from gpucomp.kernel_bench import clocks

    about = _about(settings)
    lines = [*summary(found), _method(settings), clocks.told([state for one in found for state in one.clocks]), about]
    if report is not None and str(report) == "-":
        click.echo(json.dumps(as_json(found, settings), indent=1))
        return
    print_tables(kernels=table(found))
    for line in ("", *lines):
        click.echo(line)
    if report is not None:
        write(report, json.dumps(as_json(found, settings), indent=1) + "\n")
    if output is not None:
        from gpucomp.kernel_bench import picture

        write(output, picture.svg(found, about))


def _about(settings: Settings) -> str:
    from gpucomp import __version__

    threads = f", {several(settings.threads, 'thread')}" if settings.target.kind == "cpu" else ""
    device = f"{measure.device(settings.target.name)}, target {settings.target.name}{threads}"
    return f"{device}; gpucomp {__version__}; {measure.now()}"


def _method(settings: Settings) -> str:
    state = "caches emptied before each call" if settings.cold else "data in the cache, as after a call before"
    return (
        f"Method: {settings.rounds} rounds in which the engines take turns; us: the median of a turn's calls, then of the turns, "
        f"with its 95 % interval; x: an engine's time over gpucomp's in the same round, above 1 gpucomp is faster; {state}; "
        "errors against f64"
    )


def table(found: Sequence[Measured]) -> Table:
    """A row for each kernel and engine."""
    from rich.table import Table

    result = Table(box=None, pad_edge=False, header_style="bold")
    result.add_column("kernel", overflow="fold")
    result.add_column("engine")
    for title in ("us", "from", "to", "x", "x from", "x to", "GFLOP/s", "GB/s", "% of floor", "error"):
        result.add_column(title, justify="right")
    result.add_column("why not", overflow="fold")
    for one in found:
        for row in one.rows:
            result.add_row(str(one.spec), row.engine, *_cells(one, row), row.failure)
    return result


def figures(one: Measured, row: Row) -> dict[str, float | None]:
    """The figures of an engine on a kernel, by their names in the data."""
    from gpucomp.kernel_bench.specs import nbytes, operations

    seconds, counted, floor = row.median_s, operations(one.spec), one.floor_s()
    low, high = row.interval_s or (None, None)
    ratio = one.ratio(row) or (None, None, None)
    return {
        "us": _us(seconds),
        "us_low": _us(low),
        "us_high": _us(high),
        "ratio": ratio[1],
        "ratio_low": ratio[0],
        "ratio_high": ratio[2],
        "gflops": counted / seconds / 1e9 if seconds and counted else None,
        "gbs": nbytes(one.spec) / seconds / 1e9 if seconds else None,
        "of_floor": floor / seconds if floor and seconds else None,
        "error": row.error,
    }


def _us(seconds: float | None) -> float | None:
    return None if seconds is None else 1e6 * seconds


def _cells(one: Measured, row: Row) -> list[str]:
    forms = (".4g", ".4g", ".4g", ".2f", ".2f", ".2f", ".1f", ".1f", ".0f", ".1e")
    found = figures(one, row)
    found["of_floor"] = None if found["of_floor"] is None else 100 * found["of_floor"]
    return [
        UNKNOWN if value is None else format(value, form) for value, form in zip(found.values(), forms, strict=True)
    ]


def summary(found: Sequence[Measured]) -> list[str]:
    """For each other engine the geometric mean of its ratios, and on how many kernels gpucomp is faster for sure."""
    lines = []
    for name in dict.fromkeys(row.engine for one in found for row in one.rows[1:]):
        ratios = [ratio for one in found for row in one.rows if row.engine == name and (ratio := one.ratio(row))]
        if ratios:
            mean = statistics.geometric_mean([middle for _, middle, _ in ratios])
            faster, slower = sum(low > 1 for low, _, _ in ratios), sum(high < 1 for _, _, high in ratios)
            lines.append(
                f"{name}: {mean:.2f} times gpucomp's time in the geometric mean of {several(len(ratios), 'kernel')}; gpucomp is "
                f"faster on {faster}, slower on {slower}, and on {len(ratios) - faster - slower} the intervals do not tell"
            )
    return lines


def as_json(found: Sequence[Measured], settings: Settings) -> dict[str, Any]:
    """All figures and the turns; each name has its unit."""
    return {
        "target": settings.target.name,
        "device": measure.device(settings.target.name),
        "machine": measure.machine(),
        "date": measure.now(),
        "threads": settings.threads,
        "rounds": settings.rounds,
        "cache": "cold" if settings.cold else "warm",
        "kernels": [
            {
                "kernel": str(one.spec),
                "floor_us": _us(one.floor_s()),
                "clocks": [dict(state) for state in one.clocks if state],
                "engines": [
                    {
                        "engine": row.engine,
                        "version": row.release,
                        "failure": row.failure,
                        **figures(one, row),
                        "turns_us": [1e6 * seconds for seconds in row.turns_s],
                    }
                    for row in one.rows
                ],
            }
            for one in found
        ],
    }
