"""Random models with dimensions that each run decides: one program, run at several sizes, beside a compilation for each of them.

``tests.fuzz`` does this with a share of its models. Some extents of a model's inputs become dimensions. What is compiled for all
sizes must give what is compiled for the sizes of a run, wherever its conditions hold.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

import gpucomp
from gpucomp import Dim, config
from gpucomp.errors import GpucompError, UnsupportedError
from gpucomp.runtime.open_program import OpenProgram
from tests.fuzz.draft import BOOL, FLOATS, UNSIGNED, Drawn

UNFIT = "no sizes that were tried fit the model"
SETS = 3  # of sizes, for each model
TRIES = 40  # sets of sizes drawn for each that the conditions allow
NEAR = {
    "float64": 1e-9,
    "float32": 2e-4,
    "float16": 3e-2,
    "bfloat16": 1e-1,
}  # of the largest element: sums differ in order


@dataclass
class Found:
    """What became of one model. No runs and no refusal: its conditions allow none of the sizes that were tried."""

    fault: str = ""
    refused: str = ""
    runs: int = 0


def opened(drawn: Drawn, rng: np.random.Generator, kept: float) -> dict[str, tuple[Any, ...]]:
    """The shapes of the inputs, with dimensions in place of all extents but those ``kept``. Equal extents may be one."""
    shapes: dict[str, tuple[Any, ...]] = {}
    shared: dict[int, Dim] = {}
    for value in drawn.inputs:
        shape: list[Any] = []
        for axis, extent in enumerate(value.shape):
            if extent == 0 or rng.random() < kept:
                shape.append(extent)
            elif extent > 1 and extent in shared and rng.random() < 0.7:
                shape.append(shared[extent])
            else:
                step = extent if rng.random() < 0.2 else 1
                dim = Dim(f"{value.name}_{axis}", step, 2 * extent + 5, step)
                shared[extent] = dim
                shape.append(dim)
        shapes[value.name] = tuple(shape)
    return shapes


def sizes_of(drawn: Drawn, shapes: Mapping[str, tuple[Any, ...]]) -> dict[str, int]:
    """The sizes of the model as it was drawn."""
    pairs = ((dim, extent) for v in drawn.inputs for dim, extent in zip(shapes[v.name], v.shape, strict=True))
    return {dim.name: extent for dim, extent in pairs if isinstance(dim, Dim)}


def open_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with inputs of any shape, and outputs whose shapes are not said."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for info in copy.graph.input:
        for dim in info.type.tensor_type.shape.dim:
            dim.Clear()
    for info in copy.graph.output:
        info.type.tensor_type.ClearField("shape")
    del copy.graph.value_info[:]
    return copy


def fed(drawn: Drawn, shapes: Mapping[str, tuple[Any, ...]], sizes: Mapping[str, int], rng: np.random.Generator) -> Any:
    """Inputs at ``sizes``; those that were drawn at the sizes that were drawn."""
    feeds = {}
    for value in drawn.inputs:
        shape = tuple(sizes[d.name] if isinstance(d, Dim) else d for d in shapes[value.name])
        if shape == value.shape:
            feeds[value.name] = value.array
        elif value.dtype == BOOL:
            feeds[value.name] = rng.random(shape) < 0.5
        elif value.dtype in FLOATS:
            feeds[value.name] = rng.uniform(-1, 1, shape).astype(value.dtype)
        else:
            low, high = (0 if value.dtype in UNSIGNED else -9), 10
            feeds[value.name] = rng.integers(low, high, shape).astype(value.dtype)
    return feeds


def allowed(
    program: OpenProgram, dims: Mapping[str, Dim], own: Mapping[str, int], count: int, rng: Any
) -> Iterator[Any]:
    """Up to ``count`` sets of sizes that the program is for."""
    if program.open_plan.numbers(own) is not None:
        yield dict(own)
        count -= 1
    for _ in range(TRIES * count):
        sizes = {n: int(rng.choice(range(d.low, d.high + 1, d.multiple))) for n, d in dims.items()}
        if program.open_plan.numbers(sizes) is not None:
            yield sizes
            count -= 1
        if not count:
            return


def difference(found: np.ndarray, wanted: np.ndarray) -> str:
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return f"{found.dtype}{list(found.shape)}, {wanted.dtype}{list(wanted.shape)} expected"
    if found.dtype == object or found.dtype.name not in NEAR:
        return (
            "" if np.array_equal(found, wanted) else f"{int((found != wanted).sum())} of {found.size} elements differ"
        )
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    largest = max(1e-3, float(np.abs(b[np.isfinite(b)]).max(initial=0.0)))
    if np.allclose(a, b, rtol=0, atol=NEAR[found.dtype.name] * largest, equal_nan=True):
        return ""
    return f"{float(np.nanmax(np.abs(a - b))):.3g} apart, the largest is {largest:.3g}"


def check(drawn: Drawn, seed: int, target: str, count: int = SETS) -> Found | None:
    """Run a model at up to ``count`` sets of sizes, which follow from ``seed``. ``None`` if no extent became a dimension."""
    for kept in (0.3, 0.6, 0.8):  # with fewer dimensions if not all fit the model
        found = _checked(drawn, seed, kept, target, count)
        if found is None or UNFIT not in found.fault:
            return found
    return Found(refused=UNFIT)


def _checked(drawn: Drawn, seed: int, kept: float, target: str, count: int) -> Found | None:
    rng = np.random.default_rng([0x616E79, seed, int(10 * kept)])
    shapes = opened(drawn, rng, kept)
    own = sizes_of(drawn, shapes)
    if not own:
        return None
    model = open_model(drawn.model)
    result = Found()
    try:
        with config.using(verify=True, records=None):
            try:
                exe: Any = gpucomp.compile(model, target=target, shapes=shapes)
            except UnsupportedError as error:
                return Found(refused="; ".join(error.problems) or str(error))
            if not isinstance(exe.program, OpenProgram):
                result.refused = str(exe.program)
                return result
            for sizes in allowed(exe.program, exe.dims, own, count, rng):
                feeds = fed(drawn, shapes, sizes, rng)
                found = exe.run(feeds)
                alone = gpucomp.compile(model, target=target, shapes={name: a.shape for name, a in feeds.items()})
                wanted = alone.run(feeds)
                result.runs += 1
                apart = {name: text for name in wanted if (text := difference(found[name], wanted[name]))}
                if apart:
                    result.fault = f"at {sizes}: {apart}"
                    return result
    except GpucompError as error:
        result.fault = f"{type(error).__name__}: {error}"
    except Exception:  # a finding like any other
        result.fault = traceback.format_exc(limit=-4)
    return result
