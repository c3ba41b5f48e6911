"""``gpucomp records``: merges, compares, prunes, refreshes, shows and exports tuning records."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpucomp import config
from gpucomp.cli import tensors
from gpucomp.cli.tables import exported, table
from gpucomp.errors import UsageError, quote
from gpucomp.kernel.passes.precision import PRECISIONS

if TYPE_CHECKING:
    from gpucomp.schedule.records import Record


@click.group()
def records() -> None:
    """Tuning records: merge, diff, prune, refresh, show, study, export."""


def _said(damage: Sequence[str]) -> None:
    for fault in damage[:5]:
        print(f"no record: {fault}", file=sys.stderr)
    if len(damage) > 5:
        print(f"and {len(damage) - 5} more lines that are no records", file=sys.stderr)


def _read(places: Sequence[Path]) -> list[Record]:
    from gpucomp.tuning import records as store

    found, damage = store.everything(places)
    _said(damage)
    return found


def _file_of(place: Path, output: Path | None, usage: str) -> Path:
    """The file that a command writes: ``output``, or that of ``place``.

    Raises ``UsageError`` for a place that holds no records; ``usage`` says what to write instead.
    """
    from gpucomp.schedule.records import SUFFIX
    from gpucomp.tuning import records as store

    if place.is_file() and place.suffix != SUFFIX:
        raise UsageError(
            f"PLACE {quote(place)}: a {SUFFIX} file or a folder of records expected; for example: {usage}",
            code="GPC2005",
        )
    return output or store.in_folder(place)


@records.command()
@click.argument("places", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The .jsonl file to write.")
def merge(places: tuple[Path, ...], output: Path) -> None:
    """Write all records of PLACES (files or folders) to one file, each once, sorted by time."""
    from gpucomp.tuning import records as store

    found = store.merged(_read(places))
    store.write(output, found, found)
    click.echo(f"{len(found)} records -> {output}")


@records.command()
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@exported()
def diff(before: Path, after: Path) -> None:
    """List the kernels whose picks or numbers of trials differ between two places."""
    click.echo("\n".join(difference(_read([before]), _read([after]))))


@records.command()
@click.argument("place", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write here instead of to PLACE.")
def prune(place: Path, output: Path | None) -> None:
    """Remove what is superseded: releases, replaced picks, trials of templates that have changed, broken lines."""
    from gpucomp.tuning import records as store
    from gpucomp.tuning.engines import hashes

    path = _file_of(place, output, f"gpucomp records prune {store.NAME}")
    before = _read([place])
    after = store.pruned(before, hashes())
    store.write(path, after, before)
    click.echo(f"{len(after)} of {len(before)} records -> {path}")


@records.command()
@click.argument("place", type=click.Path(path_type=Path))
@click.argument("models", nargs=-1, type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write here instead of to PLACE.")
@click.option("--target", metavar="TARGET", help="The target of the records, or one with the same sources.")
@click.option("--shapes", multiple=True, metavar="NAME:1x3x224x224", help="Shapes of the models' inputs.")
@click.option("--precision", type=click.Choice(PRECISIONS), default="fp32", show_default=True)
def refresh(
    place: Path,
    models: tuple[Path, ...],
    output: Path | None,
    target: str | None,
    shapes: tuple[str, ...],
    precision: str,
) -> None:
    """Make stale records of PLACE valid again for the kernels of MODELS, where an engine changed but not its output.

    Each kernel is rendered and compared with the hash of the source that was measured. If they differ, the record stays
    stale.
    """
    from gpucomp import targets
    from gpucomp.tuning import records as store
    from gpucomp.tuning import tuner
    from gpucomp.tuning.refresh import refreshed

    usage = f"gpucomp records refresh {store.NAME} model.onnx"
    path = _file_of(place, output, usage)
    if not models:
        raise UsageError(f"records refresh {quote(place)}: no model given; for example: {usage}")
    device = targets.resolve(target or config.current().target)
    before, count = _read([place]), 0
    after = before
    for model in models:
        tasks = tuner.tasks_in(model, device, shapes=tensors.parse_shapes(shapes), precision=precision)[1]
        after, more = refreshed(after, tasks)
        count += more
    store.write(path, after, before)
    click.echo(f"{count} of {len(before)} records refreshed -> {path}")


@records.command("show")
@click.argument("places", nargs=-1, required=True, type=click.Path(path_type=Path))
@exported()
def show_records(places: tuple[Path, ...]) -> None:
    """One row for each kernel and device: trials, invalid trials by reason, the pick."""
    click.echo("\n".join(overview(_read(places))))


@records.command()
@click.argument("places", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--to", "form", required=True, type=click.Choice(["t4", "kernel-tuner", "optuna", "autotvm"]))
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="A file, or a folder for several kernels."
)
def export(places: tuple[Path, ...], form: str, output: Path) -> None:
    """Export trials in another tool's format: one file for each kernel, device and engine; autotvm has one log."""
    from gpucomp.tuning import exports

    for path, count in exports.export(_read(places), form, output):
        click.echo(f"{count} trials -> {path}")


@records.command("study")
@click.argument("places", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The HTML page to write.")
@click.option("--kernel", metavar="TEXT", help="Only kernels whose digest starts with TEXT or whose label contains it.")
@click.option("--model", type=click.Path(path_type=Path), help="The tuned model; needed to compare sources.")
@click.option("--target", metavar="TARGET", help="The target it was tuned for.")
@click.option("--shapes", multiple=True, metavar="NAME:1x3x224x224", help="Shapes of its inputs.")
@click.option("--precision", type=click.Choice(PRECISIONS), default="fp32", show_default=True)
def study_records(
    places: tuple[Path, ...],
    output: Path,
    kernel: str | None,
    model: Path | None,
    target: str | None,
    shapes: tuple[str, ...],
    precision: str,
) -> None:
    """Write one page on each search: which parameters matter, its progress, the winner's neighbours, how sources differ.

    There is one section for each kernel and device in PLACES. Figures are of the trials that the search made. Without
    --model there are no sources, because records have none.
    """
    from gpucomp import targets
    from gpucomp.tuning import study_page, tuner

    found = _read(places)
    labels = {r["kernel"]: r["label"] for r in found if r.get("label")}
    if kernel is not None:
        found = [r for r in found if r["kernel"].startswith(kernel) or kernel in labels.get(r["kernel"], "")]
        if not found:
            raise UsageError(f"--kernel {quote(kernel)}: no such kernel in these records")
    tasks = []
    if model is not None:
        device = targets.resolve(target or config.current().target)
        tasks = tuner.tasks_in(model, device, shapes=tensors.parse_shapes(shapes), precision=precision)[1]
    shown = study_page.write(output, found, {task.kernel.digest: task for task in tasks})
    count = len(_grouped(found))
    rest = f"; {count - shown} without a successful trial are in its first table only" if count > shown else ""
    click.echo(f"{shown} of {count} kernels and devices -> {output}{rest}")


Group = tuple[str, str, str, str]  # kernel, and the device's kind, architecture and name


def _grouped(found: Sequence[Record]) -> dict[Group, list[Record]]:
    groups: dict[Group, list[Record]] = {}
    for record in found:
        device = record["device"]
        groups.setdefault((record["kernel"], device["kind"], device["arch"], device["name"]), []).append(record)
    return groups


def _device(group: Group) -> str:
    """The device as text for a table, with its kind: a processor has the same name as a CPU target and by OpenCL."""
    _, kind, arch, name = group
    return show_text(f"{kind}:{arch} {name}")


def _pick(found: Sequence[Record]) -> Record | None:
    from gpucomp.schedule.records import time_of

    decided = [record for record in found if record["kind"] in ("pick", "drop")]
    last = max(reversed(decided), key=time_of, default=None)
    return last if last is not None and last["kind"] == "pick" else None


def _told(pick: Record | None) -> str:
    if pick is None:
        return "-"
    return f"{pick['engine']} " + " ".join(f"{k}={v}" for k, v in pick["configuration"].items())


def overview(found: Sequence[Record]) -> list[str]:
    """One row for each kernel and device."""
    rows = []
    for key, group in sorted(_grouped(found).items()):
        trials = [r for r in group if r["kind"] == "trial"]
        wrong: dict[str, int] = {}
        for r in trials:
            if r["invalidity"] != "correct":
                wrong[r["invalidity"]] = wrong.get(r["invalidity"], 0) + 1
        label = next((r["label"] for r in group if r.get("label")), "-")
        pick = _pick(group)
        gain = f"{1 / pick['ratio']:.3f}" if pick is not None else "-"
        invalid = " ".join(f"{count} {kind}" for kind, count in sorted(wrong.items())) or "-"
        rows.append((key[0][:12], show_text(label), _device(key), len(trials), invalid, gain, _told(pick)))
    return table(("kernel", "label", "device", "trials", "invalid", "x default", "pick"), rows, "records")


def show_text(text: str) -> str:
    """``text`` from a file, safe for a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)[:60]


def difference(before: Sequence[Record], after: Sequence[Record]) -> list[str]:
    """One row for each kernel and device whose pick or number of trials changed."""
    a, b = _grouped(before), _grouped(after)
    rows = []
    for key in sorted(a.keys() | b.keys()):
        sides = [a.get(key, []), b.get(key, [])]
        counts = [sum(r["kind"] == "trial" for r in side) for side in sides]
        told = [_told(_pick(side)) for side in sides]
        if counts[0] != counts[1] or told[0] != told[1]:
            rows.append((key[0][:12], _device(key), *counts, *told))
    lines = table(("kernel", "device", "trials", "after", "pick", "after"), rows, "differences")
    return lines if rows else ["no difference"]
