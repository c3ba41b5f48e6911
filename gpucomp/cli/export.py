"""``gpucomp export``: a model for a server of others, or as a C project."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpucomp.cli import tensors
from gpucomp.cli.opening import open_model
from gpucomp.cli.options import ModelOptions, model_options, states
from gpucomp.cli.progress import progress
from gpucomp.errors import UsageError

if TYPE_CHECKING:
    from gpucomp.runtime.executable import Executable


@click.command()
@model_options
@states
@click.option(
    "--output",
    "-o",
    "project",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Write a C project into this folder. For processors.",
)
@click.option(
    "--name", default="", metavar="NAME", help="With -o: the prefix of all names in C. Default: from the model's file."
)
@click.option(
    "--triton",
    "folder",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Write it into this model repository, for Triton's Python backend.",
)
@click.option(
    "--max-batch",
    type=click.IntRange(1, 4096),
    default=1,
    show_default=True,
    metavar="ROWS",
    help="Let Triton join requests into batches of up to so many rows, if it is proven that rows do not change each other.",
)
@click.option("--independent-rows", is_flag=True, help="With --max-batch: say that rows do not change each other.")
def export(
    how: ModelOptions,
    project: Path | None,
    name: str,
    folder: Path | None,
    max_batch: int,
    independent_rows: bool,
) -> None:
    """Write MODEL (.onnx or .gpuc) as a C project, or with what another inference server needs to run it."""
    if (project is None) == (folder is None):
        raise UsageError("one of -o FOLDER, for a C project, and --triton FOLDER expected", code="GPC2063")
    if project is not None:
        if max_batch > 1 or independent_rows:
            raise UsageError("--max-batch and --independent-rows are for --triton", code="GPC2063")
        paths = _as_c(how, project, name)
    else:
        assert folder is not None
        paths = _for_triton(how, folder, name, max_batch, independent_rows)
    for path in paths:
        click.echo(f"written   {path}")


def _as_c(how: ModelOptions, project: Path, name: str) -> list[Path]:
    from gpucomp.export.names import project_name
    from gpucomp.export.project import export_c
    from gpucomp.export.refusals import require_place, require_processor

    # what can be told before minutes of compiling
    require_place(project, project_name(name, how.model.stem))
    if how.model.suffix != ".gpuc":
        require_processor(how.target_name)
    exe = open_model(how)

    def here() -> Executable:
        return open_model(replace(how, target="cpu"))

    elsewhere = here if how.model.suffix != ".gpuc" else None
    with progress(f"exporting {how.model.name}"):
        return export_c(exe, project, name=name, model=how.model.name, elsewhere=elsewhere)


def _for_triton(how: ModelOptions, folder: Path, name: str, max_batch: int, independent_rows: bool) -> list[Path]:
    from gpucomp.serving.export import export_triton

    if name:
        raise UsageError("--name is for -o: Triton's model has the name of the file", code="GPC2063")
    late = {
        "--constants": bool(how.constants),
        "--keep-fp32": bool(how.keep_fp32),
        "--records": how.records is not None,
        "--states": bool(how.states),
    }
    if given := " and ".join(option for option, is_given in late.items() if is_given):
        raise UsageError(f"{given} with --triton: compile the model with it, and export the .gpuc file", code="GPC2063")
    with progress(f"compiling {how.model.name}"):
        place = export_triton(
            how.model,
            folder,
            target=how.target_name,
            shapes=tensors.parse_shapes(how.shapes),
            precision=how.precision,
            max_batch=max_batch,
            independent=independent_rows,
        )
    return sorted(path for path in place.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
