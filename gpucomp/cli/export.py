"""``gpucomp export``: a model for a server of others."""

from __future__ import annotations

from pathlib import Path

import click

from gpucomp import config
from gpucomp.cli import tensors
from gpucomp.cli.options import PRECISION_HELP, SHAPES_HELP, TARGET_HELP
from gpucomp.cli.progress import progress
from gpucomp.ir.precision import PRECISIONS


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--triton",
    "folder",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Write it into this model repository, for Triton's Python backend.",
)
@click.option("--target", metavar="TARGET", help=TARGET_HELP)
@click.option("--shapes", multiple=True, metavar="NAME:1x3x224x224", help=SHAPES_HELP)
@click.option("--precision", type=click.Choice(PRECISIONS), default="fp32", show_default=True, help=PRECISION_HELP)
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
    model: Path,
    folder: Path,
    target: str | None,
    shapes: tuple[str, ...],
    precision: str,
    max_batch: int,
    independent_rows: bool,
) -> None:
    """Write MODEL (.onnx or .gpuc) with what another inference server needs to run it."""
    from gpucomp.serving.export import export_triton

    with progress(f"compiling {model.name}"):
        place = export_triton(
            model,
            folder,
            target=target or config.current().target,
            shapes=tensors.parse_shapes(shapes),
            precision=precision,
            max_batch=max_batch,
            independent=independent_rows,
        )
    for path in sorted(path for path in place.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        click.echo(f"written   {path}")
