"""``gpucomp records``: merges, compares, prunes, refreshes, shows and exports tuning records."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpucomp import config
from gpucomp.cli import tensors
from gpucomp.cli.options import CONSTANTS_HELP, KEEP_FP32_HELP, PRECISION_HELP, shapes_from
from gpucomp.cli.tables import exported, table
from gpucomp.errors import UsageError, quote, several
from gpucomp.ir.precision import PRECISIONS

if TYPE_CHECKING:
    from gpucomp.schedule.records import Record
    from gpucomp.tuning.tasks import Task


@click.group()
def records() -> None:
    """Show, compare and maintain tuning records, the measurements of `gpucomp tune`."""


def _as_tuned(command: Any) -> Any:
    """Add the options that say how a model was tuned. They reach the command as one ``tasks_of(model)``."""

    @wraps(command)
    def parsed(
        *arguments: Any,
        target: str | None,
        shapes: tuple[str, ...],
        constants: tuple[str, ...],
        precision: str,
        keep_fp32: tuple[str, ...],
        trace_file: Path | None,
        **options: Any,
    ) -> Any:
        def tasks_of(model: Path) -> list[Task]:
            from gpucomp import targets
            from gpucomp.tuning import any_size, tuner

            device, fixed = targets.resolve(target or config.current().target), tensors.parse_constants(constants)
            how: dict[str, Any] = {"constants": fixed, "precision": precision, "keep_fp32": keep_fp32}
            parts = any_size.parts_of(model, tensors.parse_shapes(shapes), fixed, trace_file or ())
            return [task for part in parts for task in tuner.tasks_in(model, device, shapes=part.shapes, **how)[1]]

        return command(*arguments, tasks_of=tasks_of, **options)

    for option in (
        shapes_from("take what was tuned for"),
        click.option("--keep-fp32", multiple=True, metavar="PATTERN", help=KEEP_FP32_HELP),
        click.option(
            "--precision", type=click.Choice(PRECISIONS), default="fp32", show_default=True, help=PRECISION_HELP
        ),
        click.option("--constants", multiple=True, metavar="NAME=VALUE", help=CONSTANTS_HELP),
        click.option(
            "--shapes",
            multiple=True,
            metavar="NAME:1x3x224x224",
            help="The shape of an input, as it was tuned. May repeat.",
        ),
        click.option(
            "--target",
            metavar="TARGET",
            help="The target of the records, or one with the same kernel sources. Default: GPUCOMP_TARGET, or cpu.",
        ),
    ):
        parsed = option(parsed)
    return parsed


def _said(damage: Sequence[str]) -> None:
    for fault in damage[:5]:
        print(f"ignored, because it is not a record: {fault}", file=sys.stderr)
    if len(damage) > 5:
        print(f"{len(damage) - 5} more lines are ignored, because they are not records", file=sys.stderr)


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
    """Write all records of PLACES (files or folders) to one file, without duplicates, sorted by time."""
    from gpucomp.tuning import records as store

    found = store.merged(_read(places))
    store.write(output, found, found)
    click.echo(f"{several(len(found), 'record')} -> {output}")


@records.command()
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@exported()
def diff(before: Path, after: Path) -> None:
    """List the kernels whose chosen schedule (pick) or number of trials differs between BEFORE and AFTER.

    Both are .jsonl files or folders of them.
    """
    click.echo("\n".join(difference(_read([before]), _read([after]))))


@records.command()
@click.argument("place", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to this file and leave PLACE as it is.")
def prune(place: Path, output: Path | None) -> None:
    """Remove records that are no longer used.

    These are launches that did not run, picks that a later one replaced, trials of templates that have changed, and broken
    lines. PLACE is a .jsonl file or a folder of them.
    """
    from gpucomp.tuning import records as store
    from gpucomp.tuning.engines import hashes

    path = _file_of(place, output, f"gpucomp records prune {store.NAME}")
    before = _read([place])
    after = store.pruned(before, hashes())
    store.write(path, after, before)
    click.echo(f"{len(after)} of {several(len(before), 'record')} kept, {len(before) - len(after)} removed -> {path}")


@records.command()
@click.argument("place", type=click.Path(path_type=Path))
@click.argument("models", nargs=-1, type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to this file and leave PLACE as it is.")
@_as_tuned
def refresh(place: Path, models: tuple[Path, ...], output: Path | None, tasks_of: Callable[[Path], list[Task]]) -> None:
    """Make stale records valid again if the kernels of MODELS still have the same source.

    A record is stale once its engine (a template and its space) has changed. This command renders each kernel and compares
    its hash with that of the source that was measured. If they are equal, the record gets the engine's new hash. If not, it
    stays stale. PLACE is a .jsonl file or a folder of them.
    """
    from gpucomp.tuning import records as store
    from gpucomp.tuning.engines import hashes
    from gpucomp.tuning.refresh import refreshed, stale

    usage = f"gpucomp records refresh {store.NAME} model.onnx"
    path = _file_of(place, output, usage)
    if not models:
        raise UsageError(f"records refresh {quote(place)}: no model given; for example: {usage}")
    before, count = _read([place]), 0
    after = before
    for model in models:
        after, more = refreshed(after, tasks_of(model))
        count += more
    store.write(path, after, before)
    left = stale(after, hashes())
    if count + left == 0:
        click.echo(
            f"nothing to refresh: {several(len(before), 'record')}, all of the engines as they are today -> {path}"
        )
    else:
        rest = f"; {left} stay stale" if left else ""
        click.echo(f"{count} of {several(count + left, 'stale record')} refreshed{rest} -> {path}")


@records.command("show")
@click.argument("places", nargs=-1, required=True, type=click.Path(path_type=Path))
@exported()
def show_records(places: tuple[Path, ...]) -> None:
    """Print the trials, invalid trials and chosen schedule (pick) of each kernel on each device."""
    click.echo("\n".join(overview(_read(places))))


@records.command()
@click.argument("places", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--to",
    "form",
    required=True,
    type=click.Choice(["t4", "kernel-tuner", "optuna", "autotvm"]),
    help="The format to write.",
)
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(),
    help="The file to write; with t4 and kernel-tuner, the folder if there are several kernels.",
)
def export(places: tuple[Path, ...], form: str, output: str) -> None:
    """Export trials in the format of another tool.

    With t4 and kernel-tuner each kernel, device and engine gets a file of its own. With optuna and autotvm one file has all.
    """
    from gpucomp.tuning import exports

    if form in exports.OF_ALL and (output.endswith("/") or Path(output).is_dir()):
        raise UsageError(
            f"--output {quote(output)}: {form} writes all trials to one file; give its name, such as "
            f"{quote(Path(output) / 'trials.log')}",
            code="GPC2005",
        )
    for path, count in exports.export(_read(places), form, Path(output)):
        click.echo(f"{several(count, 'trial')} -> {path}")


@records.command("study")
@click.argument("places", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The HTML page to write.")
@click.option("--kernel", metavar="TEXT", help="Only kernels whose digest starts with TEXT or whose label contains it.")
@click.option(
    "--model", type=click.Path(path_type=Path), help="The tuned model. Needed to compare sources, which records lack."
)
@_as_tuned
def study_records(
    places: tuple[Path, ...],
    output: Path,
    kernel: str | None,
    model: Path | None,
    tasks_of: Callable[[Path], list[Task]],
) -> None:
    """Draw what the searches found, as one HTML page.

    The page has a section for each kernel and device in PLACES. A section shows the search's progress, which parameters
    matter, the neighbours of the best schedule and, with --model, how their sources differ.
    """
    from gpucomp.tuning import study_page

    found = _read(places)
    labels = {r["kernel"]: r["label"] for r in found if r.get("label")}
    if kernel is not None:
        found = [r for r in found if r["kernel"].startswith(kernel) or kernel in labels.get(r["kernel"], "")]
        if not found:
            raise UsageError(f"--kernel {quote(kernel)}: no such kernel in these records")
    tasks = tasks_of(model) if model is not None else []
    shown = study_page.write(output, found, {task.kernel.digest: task for task in tasks})
    count = len(_grouped(found))
    tried = len({(r["kernel"], *_device_of(r)) for r in found if r["kind"] == "trial"})
    others = [(tried - shown, "without a successful trial"), (count - tried, "not tried")]
    rest = "".join(f"; {number} {what}" for number, what in others if number)
    click.echo(f"{shown} of {count} kernels and devices -> {output}{rest}")


Group = tuple[str, str, str, str]  # kernel, and the device's kind, architecture and name


def _grouped(found: Sequence[Record]) -> dict[Group, list[Record]]:
    groups: dict[Group, list[Record]] = {}
    for record in found:
        groups.setdefault((record["kernel"], *_device_of(record)), []).append(record)
    return groups


def _device_of(record: Record) -> tuple[str, str, str]:
    device = record["device"]
    return device["kind"], device["arch"], device["name"]


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
