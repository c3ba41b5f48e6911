"""Lays out one kernel as a plan that the runtimes execute: buffers with guard bands, poison, and several sets to rotate.

Everything except constants is in one arena, which is the plan's only input and only output. The arena's image is made here,
with inputs, poisoned outputs and a band of known bytes around each buffer, and it is checked here after a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gpucomp.artifact.plan import TEMP, WEIGHT, Buffer, CompiledKernel, Launch, Plan
from gpucomp.device.target import Target
from gpucomp.ir.types import U8, TensorType
from gpucomp.kernel import Kernel
from gpucomp.kernel.passes.pack_weights import Packed, packed_constant
from gpucomp.kernel.source import KernelSource
from gpucomp.lazy_dataclass import dataclass
from gpucomp.planning import Rendered, compiled_kernel
from gpucomp.schedule.choose import Choice
from gpucomp.schedule.space import Family

ALIGNMENT = 512  # of buffers: OpenCL devices require up to 4096 bits
BAND = 1024  # bytes before and after each buffer
PATTERN = 0xA5
POISON = 113  # initial value of integer outputs; that of floats is NaN
ARENA = "arena"
WEIGHT_BYTES = 128 << 20  # limit for all sets of a program's constants


@dataclass(frozen=True)
class Place:
    """The place of a parameter of the first set in the arena."""

    type: TensorType
    offset: int


@dataclass(frozen=True)
class Setup:
    """A plan, the arena's image before a run, and the places to check after it.

    ``kept`` are the places that a kernel must not change: its inputs and its counters.
    """

    plan: Plan
    sources: Mapping[str, str]
    weights: Mapping[str, np.ndarray]
    image: np.ndarray
    places: tuple[Place, ...]
    kept: tuple[Place, ...]
    bands: tuple[tuple[int, int], ...]

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        return {ARENA: self.image}

    def outputs(self, after: np.ndarray) -> list[np.ndarray]:
        """The results of the first set; ``after`` is the arena after a run."""
        return [_at(after, place) for place in self.places]

    def damage(self, after: np.ndarray) -> str:
        """What the kernel wrote outside of its outputs, or ""."""
        for number, (begin, end) in enumerate(self.bands):
            wrong = np.flatnonzero(after[begin:end] != PATTERN)
            if wrong.size:
                return f"byte {begin + int(wrong[0])} between the buffers was written ({wrong.size} in band {number})"
        for number, place in enumerate(self.kept):
            if _bytes(_at(after, place)).tobytes() != _bytes(_at(self.image, place)).tobytes():
                return f"input or counter {number} was changed"
        return ""


def poisoned(kernel: Kernel) -> list[np.ndarray]:
    """The outputs' contents before a kernel runs."""
    return _poison(kernel.params[kernel.inputs :])


def _poison(types: Sequence[TensorType]) -> list[np.ndarray]:
    return [np.full(t.shape, np.nan if t.dtype.is_float else POISON).astype(t.dtype.numpy) for t in types]


@dataclass(frozen=True)
class Subject:
    """One candidate as plain data, so that a process that knows no kernels can lay it out and launch it.

    arrays     the kernel's inputs, packed for the engine
    types      types of all parameters, the inputs first
    constants  numbers of the inputs that are outside of the arena, as a model's weights are
    """

    compiled: CompiledKernel
    text: str
    types: tuple[TensorType, ...]
    arrays: tuple[np.ndarray, ...]
    constants: frozenset[int]
    workspace_bytes: int = 0
    counter_bytes: int = 0


def subject(
    kernel: Kernel,
    family: Family,
    source: KernelSource,
    packed: Packed | None,
    inputs: Sequence[np.ndarray],
    *,
    constants: frozenset[int] = frozenset(),
    operand: np.ndarray | None = None,
) -> Subject:
    """``kernel`` with the source ``source``. ``inputs`` are those before packing; if any input is a constant, the packed one is.

    ``operand`` is the packed operand, if the caller has it already.
    """
    if packed is not None:
        operand = packed_constant(packed, inputs) if operand is None else operand
        constants = frozenset(k for k, old in enumerate(packed.kept) if old in constants) | (
            {len(packed.kept)} if constants else frozenset()
        )
        inputs = [*(inputs[k] for k in packed.kept), operand]
        kernel = packed.kernel
    compiled = compiled_kernel(kernel, Rendered(source, Choice(source.schedule, "measured", family)))
    geometry = source.geometry
    return Subject(
        compiled, source.text, kernel.params, tuple(inputs), constants, geometry.workspace_bytes, geometry.counter_bytes
    )


def setup(
    kernel: Kernel,
    family: Family,
    source: KernelSource,
    packed: Packed | None,
    inputs: Sequence[np.ndarray],
    target: Target,
    *,
    constants: frozenset[int] = frozenset(),
    sets: int = 1,
    launches: int = 1,
    weight_sets: int = 0,
) -> Setup:
    """``launches`` launches of ``kernel`` that take turns on ``sets`` equal sets of buffers, see ``arrange``.

    ``inputs`` are the kernel's inputs before packing. ``constants`` are the numbers of inputs that are outside of the arena,
    as a model's weights are; if there are any, a packed operand is one of them.
    """
    found = subject(kernel, family, source, packed, inputs, constants=constants)
    return arrange(found, target, sets=sets, launches=launches, weight_sets=weight_sets)


def arrange(subject: Subject, target: Target, *, sets: int = 1, launches: int = 1, weight_sets: int = 0) -> Setup:
    """``launches`` launches of ``subject`` that take turns on ``sets`` equal sets of buffers.

    ``weight_sets`` is the number of sets of constants, limited by ``WEIGHT_BYTES``. It can be larger than ``sets``, because
    weights, which a model reads once in a run, are colder than what the previous kernel has just written.
    """
    # packed: Winograd's weights are up to seven times larger than the model's
    weights_bytes = sum(subject.arrays[k].nbytes for k in subject.constants)
    weight_sets = max(1, min(weight_sets or sets, WEIGHT_BYTES // max(1, weights_bytes)))
    scratch: list[np.ndarray] = []
    if subject.workspace_bytes:
        scratch.append(np.full(subject.workspace_bytes, 255, np.uint8))  # NaN, so that reading an unwritten sum shows
    if subject.counter_bytes:
        scratch.append(np.zeros(subject.counter_bytes, np.uint8))
    inputs = len(subject.arrays)
    arrays = [*subject.arrays, *_poison(subject.types[inputs:]), *scratch]
    types = [*subject.types, *(TensorType(U8, a.shape) for a in scratch)]
    builder = _Arena()
    weights: dict[str, np.ndarray] = {}
    buffer: dict[tuple[int, int], int] = {}  # by set and number of the parameter
    for number in range(max(sets, weight_sets)):
        for k, (array, type) in enumerate(zip(arrays, types, strict=True)):
            if k in subject.constants:
                if number < weight_sets:
                    buffer[number, k] = builder.weight(f"w{number}_{k}", type)
                    weights[f"w{number}_{k}"] = array if number == 0 else array.copy()  # a runtime may keep it
            elif number < sets:
                buffer[number, k] = builder.add(f"x{number}_{k}", type, array)
    turns = [weight_sets if k in subject.constants else sets for k in range(len(types))]
    calls = [tuple(buffer[n % turn, k] for k, turn in enumerate(turns)) for n in range(launches)]
    arena_bytes = builder.end()
    buffers = [*builder.buffers, Buffer(TEMP, ARENA, "u8", (arena_bytes,), arena_bytes, 0)]
    plan = Plan(
        target=target.name,
        kind=target.kind,
        arch=target.arch,
        buffers=tuple(buffers),
        kernels=(subject.compiled,),
        launches=tuple(Launch(0, call, f"{subject.compiled.name}_{n}") for n, call in enumerate(calls)),
        inputs=(len(buffers) - 1,),
        outputs=(len(buffers) - 1,),
        output_names=(ARENA,),
        arena_bytes=arena_bytes,
        features=tuple(sorted(target.features)),
    )
    first = {k: Place(t, buffers[calls[0][k]].offset) for k, t in enumerate(types)}
    counters = [len(types) - 1] if subject.counter_bytes else []
    kept = [*(k for k in range(inputs) if k not in subject.constants), *counters]
    return Setup(
        plan,
        {subject.compiled.source: subject.text},
        weights,
        builder.image(arena_bytes),
        tuple(first[k] for k in range(inputs, len(subject.types))),
        tuple(first[k] for k in kept),
        tuple(builder.bands),
    )


class _Arena:
    """Buffers one after the other, with a band after each and one before the first."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self.bands: list[tuple[int, int]] = []
        self._contents: list[tuple[int, np.ndarray]] = []
        self._end = 0

    def add(self, name: str, type: TensorType, array: np.ndarray) -> int:
        offset = -(-(self._end + BAND) // ALIGNMENT) * ALIGNMENT
        self.bands.append((self._end, offset))
        self._contents.append((offset, array))
        self._end = offset + type.nbytes
        self.buffers.append(Buffer(TEMP, name, type.dtype.name, type.shape, type.nbytes, offset))
        return len(self.buffers) - 1

    def weight(self, name: str, type: TensorType) -> int:
        self.buffers.append(Buffer(WEIGHT, name, type.dtype.name, type.shape, type.nbytes))
        return len(self.buffers) - 1

    def end(self) -> int:
        """Close the arena with the last band; return its size."""
        total = -(-(self._end + BAND) // ALIGNMENT) * ALIGNMENT
        self.bands.append((self._end, total))
        self._end = total
        return total

    def image(self, nbytes: int) -> np.ndarray:
        image = np.full(nbytes, PATTERN, np.uint8)
        for offset, array in self._contents:
            image[offset : offset + array.nbytes] = _bytes(array)
        return image


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _at(arena: np.ndarray, place: Place) -> np.ndarray:
    raw = arena[place.offset : place.offset + place.type.nbytes]
    return raw.view(place.type.dtype.numpy).reshape(place.type.shape)
