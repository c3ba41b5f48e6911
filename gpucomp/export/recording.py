"""What the self-test of a C project compares with: runs of the model on random inputs, at several sizes if it has any."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from gpucomp.artifact.plan import Plan
from gpucomp.device import processor
from gpucomp.device.isa import TILES, isa_of
from gpucomp.errors import UsageError
from gpucomp.export.layout import ALIGNMENT
from gpucomp.ir.dim import Dim
from gpucomp.lazy_dataclass import dataclass
from gpucomp.runtime.any_shape import AnyShapeExecutable
from gpucomp.runtime.executable import Executable
from gpucomp.runtime.inputs import TensorSpec, random_inputs
from gpucomp.runtime.open_program import OpenProgram

MOST_ELEMENTS = 1 << 21  # of the inputs of a recorded run, but for the first
RUNS_OF_STATES = 3  # in a row, at the same sizes
Sizes = Mapping[str, int]


@dataclass(frozen=True)
class RecordedRun:
    """``sizes`` are those that a caller gives. ``inputs`` and ``outputs`` are offsets, ``nbytes`` the bytes of the outputs.

    ``kept`` has the offset of each state after the run, and ``kept_nbytes`` its bytes.
    """

    sizes: tuple[int, ...]
    anew: bool
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    nbytes: tuple[int, ...]
    kept: tuple[int, ...]
    kept_nbytes: tuple[int, ...]


@dataclass(frozen=True)
class Recorded:
    """Inputs and outputs of the self-test, each at a multiple of ``ALIGNMENT``. ``exact``: made by the very code."""

    runs: tuple[RecordedRun, ...]
    content: bytes
    exact: bool

    def most(self, output: int) -> int:
        """Bytes of an output in any run."""
        return max(run.nbytes[output] for run in self.runs)

    def most_kept(self, state: int) -> int:
        """Bytes of a state after any run."""
        return max(run.kept_nbytes[state] for run in self.runs)


def recorded(
    exe: Executable, plan: Plan, elsewhere: Callable[[], Executable] | None, counted: Sequence[str], seed: int
) -> Recorded:
    """Runs of ``exe``, or of what ``elsewhere`` makes if this machine cannot run its code. The states count the sizes of
    dimensions ``counted``.

    Raises ``UsageError`` (GPC2062) if there is nothing that runs.
    """
    here = isa_of(frozenset(plan.features)).name == platform.machine() and not processor.missing(plan.features)
    here = here and not (TILES.intersection(plan.features) and processor.tiles_refused())
    if not here and elsewhere is None:
        raise UsageError(
            f"the results of the self-test are recorded here, and this processor does not run code for {exe.target}: "
            "give the .onnx model, which can be compiled for this one too",
            code="GPC2062",
        )
    runner = exe if here or elsewhere is None else elsewhere()
    parts: list[bytes] = []
    runs: list[RecordedRun] = []
    at = 0

    def place(arrays: Sequence[np.ndarray]) -> tuple[int, ...]:
        nonlocal at
        offsets = []
        for array in arrays:
            content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).tobytes()
            offsets.append(at)
            parts.append(content + bytes(-len(content) % ALIGNMENT))
            at += len(parts[-1])
        return tuple(offsets)

    dims = exe.dims if isinstance(exe, AnyShapeExecutable) else {}
    for number, sizes in enumerate(_sizes(exe, dims, counted)):
        context = runner.context()
        for turn in range(RUNS_OF_STATES if exe.kept else 1):
            rows = {name: next(iter(context.rows.values())) for name in counted}
            specs = [_at(spec, {**sizes, **rows}) for spec in exe.inputs]
            inputs = random_inputs(specs, seed + 100 * number + turn)
            results = context.run(inputs) if exe.kept else _run(runner, inputs, sizes)
            outputs = [np.asarray(results[spec.name]) for spec in exe.outputs]
            given = tuple(size for name, size in sizes.items() if name not in counted)
            where = place([inputs[spec.name] for spec in exe.inputs])
            kept = [context.save()[state.name] for state in exe.states]
            bytes_of = [tuple(array.nbytes for array in arrays) for arrays in (outputs, kept)]
            runs.append(RecordedRun(given, turn == 0, where, place(outputs), bytes_of[0], place(kept), bytes_of[1]))
    return Recorded(tuple(runs), b"".join(parts) or bytes(ALIGNMENT), here)


def _run(runner: Executable, inputs: Mapping[str, np.ndarray], sizes: Sizes) -> Mapping[str, np.ndarray]:
    """By the program for any size, where there is one for these: an executable for declared sizes may round otherwise."""
    program = runner.program if isinstance(runner, AnyShapeExecutable) else None
    exe = program.at(sizes) if isinstance(program, OpenProgram) else None
    return (exe or runner).run(inputs)


def _at(spec: TensorSpec, sizes: Sizes) -> TensorSpec:
    return TensorSpec(spec.name, spec.dtype, tuple(sizes[n.name] if isinstance(n, Dim) else n for n in spec.shape))


def _sizes(exe: Executable, dims: Mapping[str, Dim], counted: Sequence[str]) -> list[Sizes]:
    """The sizes of the recorded runs, in the order of the dimensions: those of the example, the least, and some between."""
    program = exe.program if isinstance(exe, AnyShapeExecutable) else None
    if not isinstance(program, OpenProgram):
        return [{}]
    names = program.open_plan.formulas.dims
    example = {name: program.example[name] for name in names}
    least = {name: dims[name].nearest(max(dims[name].low, 1)) for name in names}
    larger = {name: dims[name].nearest(size + (dims[name].high - size) // 4) for name, size in example.items()}
    between = {name: dims[name].nearest((least[name] + size) // 2) for name, size in example.items()}
    found: list[Sizes] = []
    for sizes in (example, least, larger, between):
        here = {**sizes, **dict.fromkeys(counted, 0)}
        fits = not found or sum(math.prod(_at(spec, here).shape) for spec in exe.inputs) <= MOST_ELEMENTS
        if fits and here not in found and program.open_plan.numbers(here) is not None:
            found.append(here)
    return found
