"""Runs a drawn model on a target and says how its outputs differ from what the judges gave, if they do."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

import gpucomp
from gpucomp import config
from gpucomp.errors import GpucompError, UnsupportedError
from gpucomp.frontend.onnx import load
from gpucomp.ops.interpreter import interpret
from tests.fuzz.draft import Drawn, Value

CUDA_ON_CPU = "cuda:sm_80"  # compiled for it, and played on the CPU


@dataclass(frozen=True)
class Outcome:
    """``fault``: what is wrong. ``refused``: what gpucomp says that it cannot compile. Both empty: all is right."""

    fault: str = ""
    refused: str = ""


def outcome(drawn: Drawn, target: str) -> Outcome:
    try:
        with config.using(verify=True, records=None):
            found = _run(drawn, target)
    except UnsupportedError as error:
        return Outcome(refused="; ".join(error.problems) or str(error))
    except GpucompError as error:
        return Outcome(fault=f"{type(error).__name__}: {error}")
    except Exception:  # a finding like any other
        return Outcome(fault=traceback.format_exc(limit=-3))
    differences = [text for value in drawn.outputs if (text := difference(found[value.name], value))]
    return Outcome(fault="; ".join(differences) + _third_voice(drawn)) if differences else Outcome()


def _run(drawn: Drawn, target: str) -> Mapping[str, np.ndarray]:
    executable = gpucomp.compile(drawn.model, target=target)
    if target != CUDA_ON_CPU:
        return executable.run(drawn.feeds)
    from testing.cuda_on_cpu.whole_models import ModelOnCpu

    if any(launch.kernel < 0 for launch in executable.plan.launches):
        raise UnsupportedError("an operator of the host, which the harness has none of", code="GPC4001")
    return ModelOnCpu(executable).run(drawn.feeds)


def difference(found: np.ndarray, wanted: Value) -> str:
    """In words; empty where every element is within the value's tolerance."""
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return f"{wanted.name}: {found.dtype}{list(found.shape)}, {wanted.dtype}{list(wanted.shape)} expected"
    if not wanted.array.size:
        return ""
    a, b = found.astype(np.float64), wanted.array.astype(np.float64)
    distance = np.where(np.isfinite(a), np.abs(a - b), np.inf)
    worst, bound = float(distance.max()), wanted.tolerance
    if worst <= bound:
        return ""
    place = np.unravel_index(int(distance.argmax()), distance.shape)
    many = int((distance > bound).sum())
    return (
        f"{wanted.name}: {a[place]:.9g} at {[int(k) for k in place]}, {b[place]:.9g} expected, {worst:.2e} apart, "
        f"{bound:.2e} allowed, {many} of {a.size} elements"
    )


def _third_voice(drawn: Drawn) -> str:
    """What the numpy interpreter says of the model, which no back end has touched."""
    try:
        graph = load(drawn.model)
        found = dict(zip(graph.output_names, interpret(graph, drawn.feeds), strict=True))
    except GpucompError as error:
        return f" (the interpreter: {error})"
    wrong = [v.name for v in drawn.outputs if difference(found[v.name], v)]
    return f" (the interpreter differs too: {', '.join(wrong)})" if wrong else " (the interpreter is with the judges)"


def write(drawn: Drawn, path: Path) -> None:
    """The model as ``path``.onnx, its inputs and what it has to give as ``path``.npz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(drawn.model, path.with_suffix(".onnx"))
    arrays = {f"in:{v.name}": v.array for v in drawn.inputs} | {f"out:{v.name}": v.array for v in drawn.outputs}
    np.savez(path.with_suffix(".npz"), **arrays)
