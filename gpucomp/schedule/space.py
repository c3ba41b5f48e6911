"""What a template's parameters are and which values can run. No search and no template text live here."""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Generic, TypeVar

from gpucomp.device.limits import PARTS, REGISTER_FILE, Limits
from gpucomp.errors import ScheduleError
from gpucomp.ir.size import hint
from gpucomp.kernel import Kernel, kernel_of
from gpucomp.kernel.example import example_of, has_sizes
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.ir import K
from gpucomp.kernel.packing import Packing
from gpucomp.kernel.sizes import Param, Sizes, Tunables
from gpucomp.lazy_dataclass import dataclass

T = TypeVar("T")
S = TypeVar("S")
P = TypeVar("P")
Schedule = Mapping[str, int]


START_CYCLES = 400.0  # of a work-group before its first load, about: its launch, its place and its addresses


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one work-group under a schedule, for the analytic model (``gpucomp.schedule.model``).

    macs            multiply-adds, padding included
    cache_bytes     bytes that its loop reads from the cache that all units share
    steps           iterations of its loop; each waits for its own bytes
    math            ``fma``, ``dp4a`` (dot products of four bytes), ``dot2`` (of two f16), or the operand type of the matrix cores
    out_bytes       bytes of its part of the result, and of the partial sums that it stores
    ahead           iterations whose loads are in flight while one is computed
    shared_traffic  bytes read from and written to shared memory, or loaded through the unit's own cache beside ``cache_bytes``
    fragment_traffic  bytes of operands that lanes read from shared memory besides, half of them the same for several lanes
    shared_bytes    shared memory that it allocates
    registers       registers that a launch allots to a work-item, about; 0: the engine's formula
    uniform         registers of these that a compiler with scalar registers does not need
    instructions    instructions that its warps issue, counted once for a warp
    chains          independent multiplications of one warp
    step_cycles     overhead of an iteration in cycles, such as barriers
    start_cycles    cycles before the first load
    early_cycles    of these, what a kernel that reads constants does before it waits for the launches before it
    overlaps        1: a launch may begin before the one before it has ended, if the device has such launches
    in_turn         part of multiplying, issuing and reading shared memory that the longest of these does not hide, because a warp
                    does one after the other; of n work-groups on a unit an nth of it
    by_warp         the matrix cores are fed by ``mma.sync``, which is below their peak on some architectures
    least_share     the least share of the kernel's multiply-adds that a schedule of the engine executes
    splits          work-groups that share one part of the result
    in_cluster      these work-groups add up in the shared memory of a cluster
    joined_bytes    bytes of the partial sums that one of them stores for the last
    tail_bytes      bytes that row statistics read back
    tail_trips      dependent reads of the row statistics
    tail_instructions  instructions of the row statistics
    tail_sharers    work-groups that store parts of the same rows; the last of them computes the row statistics
    """

    macs: float
    cache_bytes: float
    steps: int = 1
    math: str = "fma"
    out_bytes: float = 0.0
    ahead: float = 1.0
    shared_traffic: float = 0.0
    fragment_traffic: float = 0.0
    shared_bytes: int = 0
    registers: int = 0
    uniform: int = 0
    instructions: float = 0.0
    chains: float = 8.0
    step_cycles: float = 0.0
    start_cycles: float = START_CYCLES
    early_cycles: float = 0.0
    overlaps: float = 1.0
    in_turn: float = 0.0
    by_warp: bool = False
    least_share: float = 1.0
    splits: int = 1
    in_cluster: bool = False
    joined_bytes: float = 0.0
    tail_bytes: float = 0.0
    tail_trips: int = 0
    tail_instructions: float = 0.0
    tail_sharers: int = 1


WARP = 32
RESERVED = 44  # registers of a work-item for addresses, predicates and loop counters
RESERVED_BESIDE_FRAGMENTS = 40  # the same if the operands are in fragments of matrix units
STATIC_SHARED = 48 << 10  # CUDA's limit for statically sized shared memory, in bytes
SECTOR = 32  # bytes of the smallest transfer of memory and caches
LATENCY = 600  # approximate latency of memory in cycles
MOST_REGISTERS = 255  # limit for a work-item
WRITTEN_OUT = 4  # iterations of a loop that ptxas unrolls by itself


def groups_for_registers(registers: int, threads: int) -> int:
    """How many work-groups of ``threads`` fit on a multiprocessor if each work-item has ``registers`` registers.

    It is the second number of ``__launch_bounds__``. Without it ptxas leaves registers for more work-groups than there
    will be, and spills. Every architecture can hold 1024 work-items and 16 work-groups; larger numbers are ignored.
    """
    allotted = -(-registers // 8) * 8  # registers are allotted in units of 8
    warps = PARTS * (REGISTER_FILE // (PARTS * WARP) // allotted)  # the registers of a warp are in one partition
    return max(1, min(16, min(warps, 1024 // WARP) // -(-threads // WARP)))


def groups_for_less_than_a_warp(threads: int) -> int:
    """The second number of ``__launch_bounds__`` that lets small work-groups use all registers; 0 for larger ones.

    Without it ptxas saves registers for as many work-groups as a multiprocessor can hold, and spills.
    """
    return int(threads < WARP)


def _anything(kernel: Kernel, features: frozenset[str]) -> str:
    return ""


def _as_it_is(kernel: Kernel, s: Tunables, p: Sizes) -> Packing | None:
    return None


def _as_fast(s: Tunables, own: Sizes, p: Sizes) -> float:
    return 1.0


def _as_there(kernel: Kernel[Any], p: Sizes) -> Sizes:
    return p


def _itself(kernel: Kernel[K]) -> Kernel[K]:
    return kernel


@dataclass(frozen=True)
class Family(Generic[K]):
    """One engine: a template or an emitter, with its search space. The ``space.py`` of the engine's folder defines it.

    A family of kernels can have several engines: ``contraction`` has ``simt``, ``mma`` ... ``accepts`` says which
    kernels an engine can compute; the last engine of a family computes all of them.

    ``body`` is the kind of body that the engine computes. Its functions only take kernels with such a body. ``problem``
    checks a kernel for that, and is called first when an engine is chosen for a kernel.

    ``s`` is a schedule of type ``space``, ``p`` is the result of ``problem``. During ranking, the numbers of ``s`` are
    columns (``gpucomp.device.lockstep``), so formulas use ``least``, ``most`` and ``gcd`` of that module.

    sizes(kernel)                -> the sizes that specialise the template
    objections(s, p, limits)     -> a reason for everything that cannot run (never for what is merely slow)
    derive(s, p)                 -> sizes computed from the schedule, for the template
    geometry(s, p)               -> the launch geometry
    default(p, limits)           -> a schedule that is legal at every size on the smallest device
    accepts(kernel, features)    -> why this engine cannot compute the kernel on such a device; empty if it can
    estimate(s, p, limits)       -> the approximate time in microseconds, if there is no ``Device``: a CPU's model
    work(s, p)                   -> the work of a work-group, for the analytic model; None: it cannot rank the engine
    without_shuffles(s, p)       -> the work if lanes exchange values through shared memory; None: as ``work``
    focus(p, limits)             -> the values of parameters to rank, if the whole space is too large
    settle(s, p)                 -> a ranked schedule with the parameters set that the model does not distinguish
    packing(kernel, s, p)        -> how a constant operand has to be packed; None: it is read unchanged
    registers(s, p)              -> the registers that a work-item needs at once, by the engine's formula
    taken(s, p)                  -> an upper bound of the registers that ptxas allots if there are enough; None: unknown
    emit(kernel, ...)            -> what the template reads besides numbers; without a template, the source itself
    template                     -> the file of the template in ``kernels_templates``
    in_words(kernel)             -> the kernel with bytes or f16 as words of four or two, if the template multiplies words.
                                    The order of its parameters stays, some of them become i32 or u32
    in_memory_order(kernel)      -> the kernel with its depth in memory order, if the template supports that
    in_general(kernel, p)        -> the sizes ``p`` of the example of a kernel for any size, without what only these sizes allow
    elsewhere(s, own, p)         -> how many times as long as estimated a source takes at ``p`` that is for any size, and was
                                    written for ``own``
    any_size                     -> whether extents may be sizes that each run decides: what is emitted is then right for all
                                    of them, and the other functions see the kernel at the example's sizes. Only ``sizes`` of
                                    an engine with a template sees the kernel as it is: what decides speed it takes from the
                                    example, and widths of accesses are right in every run. ``derive`` and ``geometry`` are
                                    also called with sizes where ``sizes`` has them
    """

    name: str
    body: type[K]
    space: type[Tunables]
    sizes: Callable[[Kernel[K]], Sizes]
    objections: Callable[[Any, Any, Limits], Iterator[str]]
    derive: Callable[[Any, Any], Sizes]
    geometry: Callable[[Any, Any], Geometry]
    default: Callable[[Any, Limits], Tunables]
    engine: str = ""
    accepts: Callable[[Kernel[K], frozenset[str]], str] = _anything
    estimate: Callable[[Any, Any, Limits], float] | None = None
    work: Callable[[Any, Any], Work] | None = None
    without_shuffles: Callable[[Any, Any], Work] | None = None
    packing: Callable[[Kernel[K], Any, Any], Packing | None] = _as_it_is
    registers: Callable[[Any, Any], int] | None = None
    focus: Callable[[Any, Limits], Mapping[str, Sequence[int]]] | None = None
    settle: Callable[[Any, Any], Tunables] | None = None
    taken: Callable[[Any, Any], int] | None = None
    in_words: Callable[[Kernel[K]], Kernel[K]] = _itself
    in_memory_order: Callable[[Kernel[K]], Kernel[K]] = _itself
    emit: Callable[..., Any] = field(kw_only=True)
    template: str = ""
    any_size: bool = False
    in_general: Callable[[Kernel[K], Any], Sizes] = _as_there
    elsewhere: Callable[[Any, Any, Any], float] = _as_fast

    @property
    def title(self) -> str:
        """``contraction/mma``, or just the name if the family has one engine."""
        return f"{self.name}/{self.engine}" if self.engine else self.name

    def problem(self, kernel: Kernel) -> Sizes:
        """The ``sizes`` of the kernel, at the example's. Raises ``TypeError`` if the kernel has another kind of body."""
        if self.template and has_sizes(kernel):
            sizes = self.sizes(kernel_of(kernel, self.body))
            return sizes.replace(**{name: hint(number) for name, number in sizes.numbers.items()})
        found = self.sizes(kernel_of(example_of(kernel), self.body))
        return self.in_general(kernel_of(kernel, self.body), found) if has_sizes(kernel) else found

    @property
    def params(self) -> tuple[Param, ...]:
        """The parameters of the search space."""
        return self.space.params

    def schedule(self, numbers: Schedule) -> Tunables:
        """The schedule with the parameters ``numbers``, as the engine's type."""
        return self.space(**numbers)

    def work_with(self, shuffles: bool) -> Callable[[Any, Any], Work] | None:
        """``work`` for devices with or without ``shuffles``."""
        return self.work if shuffles or self.without_shuffles is None else self.without_shuffles

    def reasons(self, schedule: Schedule, problem: Sizes, limits: Limits) -> list[str]:
        """Why ``schedule`` cannot run; empty if it can."""
        known = {p.name: p.choices for p in self.params}
        if set(schedule) != set(known):
            return [f"parameters {sorted(known)} expected, got {sorted(schedule)}"]
        foreign = [f"{k}={schedule[k]} is not one of {known[k]}" for k in known if schedule[k] not in known[k]]
        return foreign or list(self.objections(self.schedule(schedule), problem, limits))

    def require(self, schedule: Schedule, problem: Sizes, limits: Limits) -> None:
        """Raise ``ScheduleError`` with all reasons if ``schedule`` cannot run."""
        if reasons := self.reasons(schedule, problem, limits):
            raise ScheduleError(f"{self.title} {dict(schedule)}: {'; '.join(reasons)}", code="GPC8001")

    def legal(self, problem: Sizes, limits: Limits) -> Iterator[dict[str, int]]:
        """Every schedule that can run, in the order of the parameters."""
        names: Sequence[str] = [p.name for p in self.params]
        for values in itertools.product(*(p.choices for p in self.params)):
            schedule = dict(zip(names, values, strict=True))
            if not self.reasons(schedule, problem, limits):
                yield schedule

    def near(self, schedule: Schedule, problem: Sizes, limits: Limits) -> Iterator[dict[str, int]]:
        """Legal schedules, reached from ``schedule`` by changing one parameter by one step at a time, nearest first.

        Every schedule on the way is legal too.
        """
        start = dict(schedule)
        seen, waiting = {tuple(start.values())}, deque([start])
        while waiting:
            here = waiting.popleft()
            for param in self.params:
                at = param.choices.index(here[param.name])
                for value in (*param.choices[max(at - 1, 0) : at], *param.choices[at + 1 : at + 2]):
                    there = here | {param.name: value}
                    key = tuple(there.values())
                    if key not in seen and not self.reasons(there, problem, limits):
                        waiting.append(there)
                        yield there
                    seen.add(key)


LARGE_TILE = 128 * 128  # elements of the result
LEAST_SPLIT = 4  # fewest steps of a part of a split depth


MAX_GROUPS = (1 << 31) - 1  # limit for the work-groups along a launch's first axis


def too_large(limits: Limits, threads: int, registers: int, groups: int) -> Iterator[str]:
    """Why ``threads`` work-items of ``registers`` registers each, or ``groups`` work-groups, are too many."""
    yield from too_many_registers(limits, threads, registers)
    yield from too_many_groups(groups)


def too_many_registers(limits: Limits, threads: int, registers: int) -> Iterator[str]:
    available = limits.registers_for(threads)
    if registers > available:
        yield f"about {registers} registers per work-item, {threads} of them may have {available}"


def too_many_groups(groups: int) -> Iterator[str]:
    if groups > MAX_GROUPS:
        yield f"{groups} work-groups, a launch has at most {MAX_GROUPS}"


def cannot_meet(groups: int, limits: Limits) -> Iterator[str]:
    """Why ``groups`` work-groups cannot share one part of the result. The last to arrive reads what others stored."""
    if not limits.device_fence and groups > 1:
        yield f"{groups} work-groups share a result, but the device has no fence that orders memory between work-groups"


def too_wide(lanes: int, nbytes: int, limits: Limits) -> Iterator[str]:
    """Why a source cannot compute with vectors of ``lanes`` elements.

    PoCL 3.0 aborts the process for wider vectors if its LLVM does not know the processor.
    """
    if lanes * nbytes > limits.vector_bytes:
        yield f"{lanes} lanes of {nbytes} bytes, the processor has {limits.vector_bytes}-byte vectors"


def can_run(schedule: S, objections: Callable[[S, P, Limits], Iterator[str]], p: P, limits: Limits) -> bool:
    """Whether an engine has no objection to ``schedule``."""
    return next(objections(schedule, p, limits), None) is None


def fastest(
    candidates: Sequence[S],
    objections: Callable[[S, P, Limits], Iterator[str]],
    cycles: Callable[[S, P, Limits], float],
    p: P,
    limits: Limits,
) -> S:
    """The legal candidate with the fewest ``cycles``; the last candidate if none is legal."""
    legal = [s for s in candidates if can_run(s, objections, p, limits)]
    return min(legal or candidates[-1:], key=lambda s: cycles(s, p, limits))


def worthwhile_splits(choices: Sequence[int], depth: int, step: int, results: int, limits: Limits) -> tuple[int, ...]:
    """The splits of ``depth`` whose parts have enough steps of ``step``; only 1 if large tiles fill the device."""
    filled = results >= 2 * limits.units * LARGE_TILE
    return tuple(n for n in choices if n == 1 or (not filled and depth >= LEAST_SPLIT * step * n))


def remembered(derive: Callable[[S, P], T]) -> Callable[[S, P], T]:
    """Caches the last result of ``derive``: a schedule's formulas ask for the same sizes one after another.

    The cache compares the arguments by identity; they must not change.
    """
    last: tuple[S, P, T] | None = None

    @functools.wraps(derive)
    def answer(s: S, p: P) -> T:
        nonlocal last
        kept = last
        if kept is None or kept[0] is not s or kept[1] is not p:
            last = kept = s, p, derive(s, p)
        return kept[2]

    return answer
