"""Compares gpucomp's results for an exported model with onnxruntime's."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

import gpucomp
from gpucomp.cli.compare import distances, onnxruntime_outputs
from gpucomp.errors import GpucompError

LIMIT = 1e-4  # ||actual - expected|| / ||expected||


def verdict(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], target: str) -> str:
    """``right`` or ``WRONG`` with the largest relative L2 error, or why the model cannot be compiled."""
    feeds = {info.name: feeds[info.name] for info in model.graph.input if info.name in feeds}  # else a default
    expected = onnxruntime_outputs(model.SerializeToString(), feeds)
    try:
        shapes = {name: a.shape for name, a in feeds.items()}
        found = gpucomp.compile(model, target=target, shapes=shapes).run(feeds)
    except GpucompError as error:
        return str(error)
    errors = {name: far.l2 for name, far in distances(found, expected).items()}
    worst = max(errors, key=lambda name: errors[name])
    return f"{'right' if errors[worst] <= LIMIT else 'WRONG'}: {worst} is {errors[worst]:.1e} off"
