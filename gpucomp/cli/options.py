"""Options shared by several commands: the model, how it is compiled, and its inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Any

import click

from gpucomp import config
from gpucomp.cli.compare import ABSOLUTE
from gpucomp.kernel.passes.precision import PRECISIONS

TARGET_HELP = "cpu, opencl[:NAME] or cuda[:ARCH]; default: GPUCOMP_TARGET, or cpu."


def model(function: Callable[..., Any]) -> Callable[..., Any]:
    shapes = "Fix an input's shape; NAME:[2x3,4x3] for a sequence, NAME:none for an optional that holds nothing."
    function = click.option("--shapes", multiple=True, metavar="NAME:1x3x224x224", help=shapes)(function)
    function = click.option(
        "--constants", multiple=True, metavar="NAME=VALUE", help="Fix an input to a number, or to a list: NAME=1,1,2,2."
    )(function)
    function = click.option("--target", metavar="TARGET", help=TARGET_HELP)(function)
    return click.argument("model", type=click.Path(path_type=Path))(function)


@dataclass(frozen=True)
class ModelOptions:
    """The options for what is compiled and how."""

    model: Path
    target: str | None = None
    shapes: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()
    precision: str = "fp32"
    keep_fp32: tuple[str, ...] = ()
    records: Path | None = None

    @property
    def target_name(self) -> str:
        return self.target or config.current().target


def model_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of ``ModelOptions`` to a command, which gets them as its first argument."""

    @wraps(function)
    def command(**options: Any) -> Any:
        how = ModelOptions(**{field.name: options.pop(field.name) for field in fields(ModelOptions)})
        return function(how, **options)

    for option in (
        click.option(
            "--keep-fp32", multiple=True, metavar="PATTERN", help="Nodes or operators that stay f32 (* and ? match)."
        ),
        click.option(
            "--records", type=click.Path(path_type=Path), metavar="DIR", help="Tuning records of `gpucomp tune`."
        ),
        click.option(
            "--precision", type=click.Choice(PRECISIONS), default="fp32", show_default=True, help="What may be rounded."
        ),
    ):
        command = option(command)
    return model(command)


def inputs(function: Callable[..., Any]) -> Callable[..., Any]:
    function = click.option(
        "--preprocess",
        type=click.Choice(["imagenet", "none"]),
        default="imagenet",
        show_default=True,
        help="How a photo is normalised after it is resized.",
    )(function)
    return click.option(
        "--input", "files", multiple=True, metavar="NAME=FILE", help="An input from .npy, .npz, .pb or a photo."
    )(function)


def tolerance(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--tolerance`` and ``--atol``, see ``compare.Tolerance``; without the former the model's types decide, see
    ``compare.tolerance_for``."""
    function = click.option(
        "--atol",
        type=click.FloatRange(min=0),
        default=ABSOLUTE,
        show_default=True,
        help="The absolute part of --tolerance.",
    )(function)
    return click.option(
        "--tolerance",
        type=click.FloatRange(min=0),
        metavar="RTOL",
        help="A tensor is right if rms(difference) <= RTOL * rms(expected) + ATOL, which is numpy.allclose for the tensor "
        "as a whole; default 1e-4, or eight roundings to f16 or bf16 for models in these types.",
    )(function)


def page(help: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``--output``: where a command draws one HTML page."""
    return click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE.html", help=help)
