"""``gpucomp bench --kernel --static``: what the analytic model predicts of kernels, beside what others have published."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpucomp.cli import tables
from gpucomp.errors import UnsupportedError, several
from gpucomp.files import write

if TYPE_CHECKING:
    from gpucomp.device.target import Target
    from gpucomp.kernel_bench.formats import Table
    from gpucomp.kernel_bench.published import Figure
    from gpucomp.kernel_bench.specs import Spec
    from gpucomp.report.cost import Cost
    from gpucomp.schedule.records import Picks

UNKNOWN = "-"
MOST_NEAREST = 3  # kernels that others are looked for of which something is published
PREDICTED = ("kernel", "launches", "predicted us", "interval us", "floor us", "GFLOP/s", "GB/s", "limiter")
PUBLISHED = ("kernel", "device", "predicted us", "interval us", "published us", "predicted / published", "of", "file")
INTERVAL = "interval: what four of five published measurements were within"


def predict(
    specs: Sequence[Spec], target: Target | None, records: Path | None, places: Sequence[Path], report: Path | None
) -> None:
    """What the model expects of each kernel on ``target``, and on each device of which ``places`` have a time of it.

    Without a target only the latter. Nothing is run.
    """
    from gpucomp import targets
    from gpucomp.kernel_bench import published
    from gpucomp.schedule.records import picks_of

    if target is not None:
        targets.require_compiler(target)
    picks, files = picks_of(records), published.tables(places)
    found = [predicted(spec, _costs(spec, target, picks), target) for spec in specs] if target is not None else []
    others = [_beside(one, picks) for one in published.figures(specs, files, target)]
    data: dict[str, Any] = {"target": target.name if target is not None else None, "kernels": found}
    if files:
        data |= {"published": others, "files": {table.name: published.source(table) for table in files}}
    text = json.dumps(data, indent=1)
    if report is not None and str(report) == "-":
        click.echo(text)
        return
    if target is not None:
        for line in _predictions(found, target):
            click.echo(line)
    if files:
        for line in _publications(specs, others, files, target):
            click.echo(line)
    if report is not None:
        write(report, text + "\n")


def _costs(spec: Spec, target: Target, picks: Picks | None) -> list[Cost]:
    from gpucomp.cli.opening import costs_of
    from gpucomp.compiler import lower
    from gpucomp.kernel_bench.models import model
    from gpucomp.kernel_bench.reference import operands

    lowered = lower(model(spec, operands(spec)).SerializeToString(), target, picks=picks)
    return costs_of(Path(str(spec)), lowered, target)


def predicted(spec: Spec, costs: Sequence[Cost], target: Target) -> dict[str, Any]:
    """The figures of a prediction, by their names in the data. ``interval_us``: four of five measurements are within."""
    from gpucomp.kernel_bench.specs import nbytes, operations
    from gpucomp.schedule.uncertainty import interval, together

    us, counted = sum(cost.terms.total_us for cost in costs), operations(spec)
    return {
        "kernel": str(spec),
        "launches": len(costs),
        "predicted_us": us,
        "interval_us": together(interval(cost.engine, cost.terms, target) for cost in costs),
        "floor_us": sum(cost.terms.floor_us for cost in costs),
        "gflops": counted / us / 1e3 if counted else None,
        "gbs": nbytes(spec) / us / 1e3,
        "limiter": max(costs, key=lambda cost: cost.terms.total_us).terms.limiter,
    }


def _beside(figure: Figure, picks: Picks | None) -> dict[str, Any]:
    """A published figure and the prediction for its device, by their names in the data; ``None`` if there is no kernel."""
    try:
        own = predicted(figure.spec, _costs(figure.spec, figure.target, picks), figure.target)
    except UnsupportedError:
        own = {"predicted_us": None, "interval_us": None}
    us = own["predicted_us"]
    return {
        "kernel": str(figure.spec),
        "device": figure.device,
        "predicted_us": us,
        "interval_us": own["interval_us"],
        "published_us": figure.us,
        "ratio": us / figure.us if us is not None else None,
        "measurements": figure.rows,
        "file": figure.file,
    }


def _predictions(found: Sequence[dict[str, Any]], target: Target) -> list[str]:
    return [
        *tables.table(PREDICTED, [list(map(_cell, one.values())) for one in found], "kernels"),
        f"\nPredicted for {target.name} by the analytic model, not measured; {INTERVAL}; floor: arithmetic or bytes alone",
    ]


def _publications(
    specs: Sequence[Spec], found: Sequence[dict[str, Any]], files: Sequence[Table], target: Target | None
) -> list[str]:
    from gpucomp.kernel_bench.published import nearest, source

    told = {one["kernel"] for one in found}
    without = [spec for spec in specs if str(spec) not in told]
    where = f" on a device of {target.name}" if target is not None else ""
    lines = [""] if target is not None else []
    if found:
        lines += tables.table(PUBLISHED, [list(map(_cell, one.values())) for one in found], "published")
        lines.append(
            "\nPredicted: for that device by the analytic model, not measured. Published: measured by others, the fastest of so "
            f"many in the file, without bias and activation; {INTERVAL}"
        )
        named = {one["file"] for one in found}
        lines += [f"{table.name}: {source(table)}" for table in files if table.name in named]
    if without:
        of = f"{len(without)} of {several(len(specs), 'kernel')}{where}"
        lines.append(f"nothing is published in {several(len(files), 'file')} of {of}")
    for spec in without[:MOST_NEAREST]:
        if (other := nearest(spec, files, target)) is not None:
            lines.append(f"the nearest to {spec}: {other}")
    return lines


def _cell(value: Any) -> str | int:
    if value is None:
        return UNKNOWN
    if isinstance(value, tuple):
        return " to ".join(f"{end:.4g}" for end in value)
    return value if isinstance(value, str | int) else f"{value:.4g}"
