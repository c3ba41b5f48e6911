"""Writes a model as a repository for Triton's Python backend: its configuration, the compiled model, and what runs it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpucomp.errors import UnsupportedError, UsageError, quote
from gpucomp.serving.model import load
from gpucomp.serving.model_config import model_config, pbtxt
from gpucomp.serving.repository import INDEPENDENT, NAME, Entry, ModelConfig

FIELDS = ("name", "max_batch_size", "input", "output", "instance_group", "dynamic_batching")
RUNS_IT = Path(__file__).with_name("triton_model.py")


def export_triton(
    model: Path,
    folder: Path,
    *,
    target: str = "auto",
    shapes: Mapping[str, Any] | None = None,
    precision: str = "fp32",
    max_batch: int = 1,
    independent: bool = False,
) -> Path:
    """Write ``folder/NAME/config.pbtxt`` and ``folder/NAME/1`` for an ``.onnx`` or ``.gpuc`` file, and give ``folder/NAME``.

    ``max_batch`` rows are joined by Triton if it is more than 1. Then it has to be proven that rows do not change each other,
    unless ``independent`` says so. Raises as ``gpucomp.serving.model.load``; ``UsageError`` (GPC2052) for a name that Triton
    cannot have, ``UnsupportedError`` (GPC4020) for an element type or a shape that its Python backend has not.
    """
    name = model.stem
    if not NAME.fullmatch(name):
        raise UsageError(f"{quote(name)}: letters, digits, '_', '-' and '.' expected as a model's name", code="GPC2052")
    rows = INDEPENDENT if independent else ""
    config = ModelConfig(
        precision=precision, shapes=dict(shapes or {}), max_batch=max_batch, rows=rows, instances=1, versions=(1,)
    )
    loaded = load(Entry(name, 1, model), config, target, 1)
    for one in (*loaded.inputs, *loaded.outputs):
        if one.datatype.name == "BF16":
            raise UnsupportedError(
                f"{quote(one.name)} is BF16, which Triton's Python backend has no arrays for", code="GPC4020"
            )
        if not one.shape:
            raise UnsupportedError(f"{quote(one.name)} is a scalar, and Triton wants a dimension", code="GPC4020")
    said = model_config(loaded, [1])
    said |= {key: [_with_dims(one) for one in said[key]] for key in ("input", "output")}
    text = pbtxt({"backend": "python"} | {key: said[key] for key in FIELDS if key in said})
    place = folder / name
    try:
        (place / "1").mkdir(parents=True, exist_ok=True)
        (place / "config.pbtxt").write_text(text, encoding="utf-8")
        shutil.copyfile(RUNS_IT, place / "1" / "model.py")
    except OSError as error:
        raise UsageError(f"cannot write {quote(place)}: {error.strerror}", code="GPC2005") from None
    loaded.exe.save(place / "1" / "model.gpuc")
    return place


def _with_dims(tensor: Mapping[str, Any]) -> dict[str, Any]:
    """A tensor of a configuration. Triton wants a dimension beside the batch: where there is none, it has a 1 of its own."""
    return {**tensor, "dims": [1], "reshape": {"shape": []}} if not tensor["dims"] else dict(tensor)
