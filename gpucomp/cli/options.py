"""Options shared by several commands: the model, how it is compiled, and its inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from gpucomp import config
from gpucomp.cli.compare import ABSOLUTE
from gpucomp.ir.precision import PRECISIONS, STATES_PRECISIONS
from gpucomp.lazy_dataclass import dataclass

TARGET_HELP = (
    "What to compile for: cpu[:PROCESSOR], opencl[:NAME] (pocl, generic, mali, mali-g78, amd, gfx90a, or a part of a device's "
    "name), cuda[:ARCH] (sm_75 to sm_120) or hip[:gfxNNN]. Default: auto, which is GPUCOMP_TARGET, or cpu."
)
SHAPES_HELP = (
    "The shape of an input, if the model leaves it open; once for each such input. [2x3,4x3] gives the shapes of a "
    "sequence's tensors, none is an empty optional. check, compile, export, inspect, run, tune and bench also take "
    "{h}, {h:32..1536} and {h:32..1536:32}: a size that each run decides."
)
STATES_HELP = (
    "Inputs that a context keeps from run to run, each with the output that it becomes: 'past.*=present.*', where * is the same "
    "text; or auto, for names by convention. May repeat."
)
STATES_PRECISION_HELP = "How states of f32 that are updated in place are kept: 16 bits take half the memory."
CONSTANTS_HELP = "Compile an input in as a constant: a number, or a list such as 1,1,2,2. May repeat."
PRECISION_HELP = "Types that numbers may be rounded to."
SAMPLERS_HELP = "model (default), genetic, random, grid, tpe, cmaes, or an optuna sampler as package.module:Class."
KEEP_FP32_HELP = "Never round the nodes or operators of this name; * and ? match. May repeat."

Command = TypeVar("Command", bound=Callable[..., Any])


def model(function: Callable[..., Any], *, required: bool = True) -> Callable[..., Any]:
    function = click.option("--shapes", multiple=True, metavar="NAME:1x3x224x224", help=SHAPES_HELP)(function)
    function = click.option("--constants", multiple=True, metavar="NAME=VALUE", help=CONSTANTS_HELP)(function)
    function = click.option("--target", metavar="TARGET", help=TARGET_HELP)(function)
    return click.argument("model", type=click.Path(path_type=Path), required=required)(function)


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
    shapes_from: Path | None = None
    states: tuple[str, ...] = ()
    states_precision: str = "fp32"

    @property
    def target_name(self) -> str:
        return self.target or config.current().target


def model_options(function: Callable[..., Any], *, required: bool = True) -> Callable[..., Any]:
    """Add the options of ``ModelOptions`` to a command, which gets them as its first argument. ``required``: also the model."""

    @wraps(function)
    def command(**options: Any) -> Any:
        how = ModelOptions(**{field.name: options.pop(field.name, field.default) for field in fields(ModelOptions)})
        return function(how, **options)

    for option in (
        click.option("--keep-fp32", multiple=True, metavar="PATTERN", help=KEEP_FP32_HELP),
        click.option(
            "--records",
            type=click.Path(path_type=Path),
            metavar="DIR",
            help="Take schedules from these tuning records, which `gpucomp tune` writes.",
        ),
        click.option(
            "--precision", type=click.Choice(PRECISIONS), default="fp32", show_default=True, help=PRECISION_HELP
        ),
    ):
        command = option(command)
    return model(command, required=required)


def shapes_from(does: str, name: str = "trace_file") -> Callable[[Command], Command]:
    """``--shapes-from``, as the argument ``name``. ``does`` says what the command does at the sizes in the file."""
    return click.option(
        "--shapes-from",
        name,
        type=click.Path(path_type=Path),
        metavar="TRACE.jsonl",
        help=f"For a model for any size: {does} the sizes in this file, a JSON object of sizes or of shapes on each line.",
    )


def states(function: Command) -> Command:
    function = click.option(
        "--states-precision",
        type=click.Choice(STATES_PRECISIONS),
        default="fp32",
        show_default=True,
        help=STATES_PRECISION_HELP,
    )(function)
    return click.option("--states", multiple=True, metavar="auto|IN=OUT", help=STATES_HELP)(function)


def inputs(function: Callable[..., Any]) -> Callable[..., Any]:
    function = click.option(
        "--preprocess",
        type=click.Choice(["imagenet", "none"]),
        default="imagenet",
        show_default=True,
        help="How to normalise a photo: with ImageNet's mean and deviation, or not at all (0 to 255).",
    )(function)
    return click.option(
        "--input",
        "files",
        multiple=True,
        metavar="NAME=FILE",
        help="Read an input from an .npy, .npz, .pb or .wav file or from a photo, which is resized. May repeat.",
    )(function)


def tolerance(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--tolerance`` and ``--atol``, see ``compare.Tolerance``; without the former the model's types decide, see
    ``compare.tolerance_for``."""
    function = click.option(
        "--atol",
        type=click.FloatRange(min=0),
        default=ABSOLUTE,
        show_default=True,
        metavar="ATOL",
        help="The absolute error that --tolerance adds.",
    )(function)
    return click.option(
        "--tolerance",
        type=click.FloatRange(min=0),
        metavar="RTOL",
        help="Relative error allowed. A tensor is right if rms(actual - expected) <= RTOL * rms(expected) + ATOL. "
        "Default: 1e-4; for models in f16 or bf16, and at a --precision with roundings, eight times the rounding error of that "
        "type.",
    )(function)


def page(help: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``--output``: where a command draws one HTML page."""
    return click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE.html", help=help)
