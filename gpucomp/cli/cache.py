"""``gpucomp cache``: shows and deletes what compilations keep in GPUCOMP_CACHE."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import click

from gpucomp import config
from gpucomp.artifact import cache as files
from gpucomp.cli.tables import Figure, exported, table
from gpucomp.errors import UsageError, several


@click.group()
def cache() -> None:
    """The cache of compiled kernels and models: list, clear."""


@cache.command("list")
@exported()
def list_entries() -> None:
    """List what the cache holds, the last used first: models each on a line, then all kernels together."""
    folder = _folder()
    found = files.entries(folder)
    models = [entry for entry in reversed(found) if entry.kind == "models"]
    if models:
        click.echo(
            "\n".join(table(("model", "target", "precision", "inputs", "MB", "used"), map(_row, models), "models"))
        )
    kernels = [entry for entry in found if entry.kind == "kernels"]
    total, most = sum(entry.nbytes for entry in found), config.current().cache_bytes
    click.echo(
        f"{several(len(models), 'model')} and {several(len(kernels), 'program')} of kernels in {folder}: "
        f"{total / 1e6:.1f} MB of at most {most / 1e6:.0f} MB"
    )


@cache.command()
def clear() -> None:
    """Delete everything in the cache. Models and kernels are then compiled again."""
    folder = _folder()
    count, nbytes = files.clear(folder)
    click.echo(f"{count} entries, {nbytes / 1e6:.1f} MB, deleted from {folder}")


def _folder() -> Path:
    folder = config.current().cache
    if folder is None:
        raise UsageError("GPUCOMP_CACHE is empty: there is no cache", code="GPC2001")
    return folder


def _row(entry: files.Entry) -> tuple[object, ...]:
    used = datetime.fromtimestamp(entry.used).isoformat(" ", "seconds")
    return *_about(entry), Figure(entry.nbytes / 1e6, ".1f"), used


def _about(entry: files.Entry) -> tuple[str, str, str, str]:
    """Model, target, precision and inputs, from the description of a model; empty if that is damaged."""
    text = next((path for path in entry.paths if path.suffix == ".json"), None)
    try:
        about = json.loads(text.read_bytes())["about"] if text is not None else {}
        inputs = " ".join(f"{name}:{'x'.join(shape)}" for name, shape in about["inputs"].items())
        return str(about["model"]), str(about["target"]), str(about["precision"]), inputs
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return "", "", "", ""
