"""What the C program of a model for any size has beside its layout: sizes, formulas, and which kernels run at which sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from gpucomp.artifact.formulas import LARGEST
from gpucomp.artifact.open_plan import MOST_GROUPS, OpenPlan, Place
from gpucomp.artifact.plan import TEMP
from gpucomp.export.numbers import Numbers
from gpucomp.ir.dim import Dim
from gpucomp.ir.run_numbers import MAGIC, SHIFT, SIZE
from gpucomp.ir.types import NAMED
from gpucomp.lazy_dataclass import dataclass

KINDS = {SIZE: "A_SIZE", MAGIC: "A_MAGIC", SHIFT: "A_SHIFT"}


def is_open(numbers: Sequence[object]) -> bool:
    return any(isinstance(n, Place) for n in numbers)


@dataclass(frozen=True)
class Size:
    """A size of each run: member ``member`` of the C struct, number ``place``. ``counted`` if it is the rows of the states."""

    member: str
    place: int
    dim: Dim
    counted: bool

    @property
    def low(self) -> int:
        return self.dim.nearest(0)

    @property
    def most(self) -> int:
        return self.dim.nearest(self.dim.high)


@dataclass(frozen=True)
class Variant:
    """``kernel`` from the number ``start`` on. ``tasks`` is the place of its tasks, ``given`` where its numbers begin."""

    kernel: int
    start: int
    tasks: int
    given: int


@dataclass(frozen=True)
class Choice:
    """A launch's variants: ``count`` from ``first`` on. The number at place ``points`` chooses."""

    first: int
    count: int
    points: int


@dataclass(frozen=True)
class Fill:
    """A number in the arena that follows from the sizes: ``ctype`` at ``offset`` is the number at ``place``."""

    offset: int
    ctype: str
    place: int


@dataclass(frozen=True)
class OpenParts:
    """``offsets`` has for each order of the temporaries the places of their offsets, and ``arenas`` those of their bytes.

    ``given`` has the numbers that kernels take: a kind, which is a constant of the C program, and a place. ``arena`` is the place
    of all bytes behind the context.
    """

    numbers: Numbers
    sizes: tuple[Size, ...]
    variants: tuple[Variant, ...]
    choices: tuple[Choice, ...]
    given: tuple[tuple[str, int], ...]
    fills: tuple[Fill, ...]
    offsets: tuple[tuple[int, ...], ...]
    arenas: tuple[int, ...]
    arena: int
    rows: int = -1  # the place of how many rows a run appends to states that grow
    capacity: int = 0

    @property
    def held(self) -> Size | None:
        return next((size for size in self.sizes if size.counted), None)


def placed(numbers: Numbers, plan: OpenPlan) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]:
    """The places of the temporaries' offsets in each order of the plan, by their numbers, and of the bytes that each takes."""
    buffers = plan.plan.buffers
    temporaries = [position for position, buffer in enumerate(buffers) if buffer.kind == TEMP]
    offsets, arenas = [], []
    for order in plan.orders:
        ends: list[int] = []
        at: dict[int, int] = {}
        for stack in order:
            start = numbers.greatest([ends[n] for n in stack.above])
            at |= dict.fromkeys(stack.buffers, start)
            sizes = [bytes_of(numbers, buffers[position].dtype, buffers[position].shape) for position in stack.buffers]
            most = numbers.greatest(sorted(set(sizes)))
            end = numbers.total([start, most]) if stack.above else most
            ends.append(numbers.rounded(end, plan.alignment))
        offsets.append(tuple(at[position] for position in temporaries))
        arenas.append(numbers.greatest(sorted(set(ends))))
    return tuple(offsets), tuple(arenas)


def bytes_of(numbers: Numbers, dtype: str, shape: Sequence[object]) -> int:
    """The place of the bytes of a tensor."""
    for extent in shape:
        if isinstance(extent, Place):
            numbers.require(extent.number, 0, LARGEST)
    return numbers.product(NAMED[dtype].nbytes, shape)


def variants_of(
    numbers: Numbers, plan: OpenPlan, launched: Sequence[int]
) -> tuple[list[Variant], list[Choice], list[tuple[str, int]]]:
    """The variants of the kernel of each launch, and the numbers that kernels are given."""
    choice_of = {choice.kernel: choice for choice in plan.choices}
    variants: list[Variant] = []
    choices: list[Choice] = []
    given: list[tuple[str, int]] = []
    known: dict[tuple[object, ...], int] = {}
    first_of: dict[int, Choice] = {}
    for kernel in launched:
        if kernel in first_of:
            choices.append(first_of[kernel])
            continue
        choice = choice_of.get(kernel)
        kernels, starts = (choice.kernels, choice.starts) if choice else ((kernel,), (0,))
        first = len(variants)
        for one, start in zip(kernels, starts, strict=True):
            told = cast(tuple[Any, ...], plan.plan.kernels[one].numbers)  # pairs of a kind and a place
            if told not in known:
                known[told] = len(given)
                given += [(KINDS[kind], place) for kind, place in told]
            tasks = numbers.of(plan.plan.kernels[one].groups[0])
            numbers.require(tasks, 0, MOST_GROUPS)
            variants.append(Variant(one, start, tasks, known[told]))
        choices.append(Choice(first, len(kernels), choice.points if choice else 0))
        first_of[kernel] = choices[-1]
    return variants, choices, given


def fills_of(numbers: Numbers, plan: OpenPlan, filled: Mapping[int, int]) -> list[Fill]:
    """What is written where the numbers of a buffer follow from the sizes: ``filled`` has the buffers and their offsets."""
    found = []
    for position, offset in filled.items():
        buffer = plan.plan.buffers[position]
        dtype = NAMED[buffer.dtype]
        bits, signed = 8 * dtype.nbytes, dtype.numpy.kind == "i"
        for k, number in enumerate(buffer.numbers):
            place = numbers.of(number)
            if bits < 64:
                most = (1 << (bits - signed)) - 1
                numbers.require(place, -most - 1 if signed else 0, most)
            found.append(Fill(offset + k * dtype.nbytes, f"{'' if signed else 'u'}int{bits}_t", place))
    return found
