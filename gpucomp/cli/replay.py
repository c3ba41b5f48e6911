"""``gpucomp replay``: runs searches on recorded spaces, without a device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpucomp.cli.options import SAMPLERS_HELP
from gpucomp.cli.progress import progress
from gpucomp.cli.tables import draw_tables, exported, table
from gpucomp.errors import plain
from gpucomp.files import write

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from gpucomp.tuning.replay import Result

TOLD_S = 30.0  # between two lines of progress where there is no terminal
FIGURES = ("file", "sampler", "points", "seeds", "trials", "fraction of the optimum", "low", "high", "ms/trial")


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--sampler",
    "names",
    multiple=True,
    metavar="NAME",
    help=f"The sampler to judge: {SAMPLERS_HELP} May repeat.",
)
@click.option(
    "--trials",
    type=click.IntRange(1),
    default=200,
    show_default=True,
    metavar="N",
    help="Number of measurements in one search.",
)
@click.option(
    "--seeds",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    metavar="N",
    help="Number of searches for each space and sampler, each with a seed of its own.",
)
@click.option(
    "--prior",
    "others",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Records of another device, which the samplers may learn from. May repeat.",
)
@click.option(
    "--batch",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Number of schedules that are proposed before any of them is measured.",
)
@click.option(
    "--noise",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    metavar="SHARE",
    help="Add noise to the times: 0.05 is 5 % of each.",
)
@click.option(
    "--failing",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    metavar="SHARE",
    help="Let this share of the good trials fail.",
)
@click.option(
    "--throttle",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    metavar="SHARE",
    help="Probability that the clock of the simulated device changes before a trial.",
)
@click.option(
    "--json",
    "report",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help="Also write the results to FILE, as JSON. With -: to stdout, and nothing else.",
)
@click.option(
    "--study",
    type=click.Path(path_type=Path),
    metavar="FILE.html",
    help="Draw the searches and the spaces, as one HTML page.",
)
@exported("csv")
def replay(
    files: tuple[Path, ...],
    names: tuple[str, ...],
    trials: int,
    seeds: int,
    others: tuple[Path, ...],
    batch: int,
    noise: float,
    failing: float,
    throttle: float,
    report: Path | None,
    study: Path | None,
) -> None:
    """Compare samplers on recorded spaces, without a device.

    A search takes its times from FILES instead of measuring. The result is how close to the best recorded time each sampler
    gets. FILES are Kernel Tuner caches (.json, .json.gz), T4 results or gpucomp's records (.jsonl,
    or a folder of them).
    """
    from gpucomp.tuning import recorded
    from gpucomp.tuning import replay as laboratory
    from gpucomp.tuning.samplers import DEFAULT, named

    names = names or (DEFAULT,)
    for name in names:
        named.check(name)
    faults = laboratory.Faults(noise=noise, failing=failing, throttle=throttle)
    known = [space for path in others for space in recorded.read(path)]
    results: list[Result] = []
    with progress("searching", every=TOLD_S) as tell:
        spaces = recorded.distinct([(path, space) for path in files for space in recorded.read(path)])
        for space in spaces:
            for name in names:
                tell("search", len(results), len(spaces) * len(names), f"{space.name}, {name}")
                found = laboratory.replay(
                    space, name, trials=trials, seeds=seeds, others=known, faults=faults, batch=batch
                )
                results.append(found)
    notes = laboratory.notes(spaces, trials, faults)
    if study is not None:
        from gpucomp.tuning import page

        page.replayed(study, spaces, results, notes)
    text = json.dumps([found.as_json() for found in results], indent=1)
    table(FIGURES, [row for found in results for row in _figures(found)], "searches")  # for --csv
    if report is not None and str(report) == "-":
        click.echo(text)
        return
    draw_tables(_table(results))
    for note in notes:
        click.echo(plain(f"note: {note}"))
    if report is not None:
        write(report, text + "\n")


def _figures(found: Result) -> list[tuple[object, ...]]:
    """A row for each number of trials, with every figure in a column of its own."""
    own = (found.file, found.sampler, found.points, found.seeds)
    return [
        (*own, int(budget), fraction, *found.interval[budget], found.sampler_ms)
        for budget, fraction in found.fraction_of_optimum.items()
    ]


def _table(results: list[Result]) -> Table:
    from rich import box
    from rich.table import Table

    from gpucomp.tuning.replay import SEEDS

    seeds = results[0].seeds
    title = f"fraction of the optimum after k trials, mean of {seeds} [{'95%' if seeds >= SEEDS else 'range'}]"
    table = Table(box=box.SIMPLE, title=title)
    table.add_column("file", overflow="fold")
    table.add_column("sampler")
    table.add_column("points", justify="right")
    for budget in results[0].fraction_of_optimum:
        table.add_column(budget, justify="right", no_wrap=True)
    table.add_column("ms/trial", justify="right")
    for found in results:
        cells = [_cell(found, budget) for budget in found.fraction_of_optimum]
        table.add_row(plain(found.file), found.sampler, str(found.points), *cells, f"{found.sampler_ms:.1f}")
    for name in dict.fromkeys(found.sampler for found in results):
        own = [found for found in results if found.sampler == name]
        if len(own) > 1:
            means = [sum(f.fraction_of_optimum[b] for f in own) / len(own) for b in own[0].fraction_of_optimum]
            table.add_row("mean", name, "", *(f"{mean:.3f}" for mean in means), "", style="bold")
    return table


def _cell(found: Result, budget: str) -> Text:
    low, high = found.interval[budget]
    from rich.text import Text

    return Text.assemble(f"{found.fraction_of_optimum[budget]:.3f} ", (f"{low:.3f}-{high:.3f}", "dim"))
