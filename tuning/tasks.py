"""The tuning tasks of a model: its distinct kernels, their shares of the latency, and which one to continue with."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property

import numpy as np

from gpucomp.compiler import Lowered
from gpucomp.device.target import Target
from gpucomp.ir.graph import constant_value
from gpucomp.ir.types import BOOL, I8, U8
from gpucomp.kernel import Contraction, Kernel, Math
from gpucomp.kernel.passes.pack_weights import Packed
from gpucomp.kernel.sizes import Sizes
from gpucomp.kernel.source import KernelSource, statements
from gpucomp.kernel.step import KernelStep, with_counts
from gpucomp.lazy_dataclass import dataclass
from gpucomp.lowering import scheduled
from gpucomp.schedule.analytic import operations
from gpucomp.schedule.choose import Choice, choose
from gpucomp.schedule.space import Family, Schedule
from gpucomp.targets.back_end import back_end
from gpucomp.tuning import reference
from gpucomp.tuning.setups import poisoned

NAME = "k0"  # of a measured kernel, so that its source does not depend on its name in the model
SMALL_BYTES = 100  # quantized values are drawn from 0 .. 99
USELESS = 0.5  # if a larger share of the expected values is not finite, the check would be blind


@dataclass(frozen=True)
class Candidate:
    """One way to compute a kernel: an engine and its schedule."""

    family: Family
    schedule: Schedule

    @property
    def key(self) -> tuple[str, tuple[tuple[str, int], ...]]:
        return self.family.title, tuple(sorted(self.schedule.items()))


@dataclass(eq=False)
class Task:
    """A distinct kernel of a model on a target. The kernel's digest covers family, sizes, element types and epilogue.

    launches   number of launches in a run of the model
    seconds    time of one launch in the untuned model
    between    bytes of weights and results that a run of the model touches, and so between two launches of the kernel
    """

    kernel: Kernel
    step: KernelStep
    target: Target
    engines: tuple[Family, ...]
    default: Candidate
    tier: str
    launches: int = 1
    seconds: float = 0.0
    between: int = 0

    @property
    def label(self) -> str:
        return self.kernel.label or self.kernel.family

    @property
    def weight(self) -> float:
        """Seconds in a run of the untuned model."""
        return self.launches * self.seconds

    @property
    def flops(self) -> float:
        return operations(self.kernel)

    @property
    def math(self) -> Math:
        return self.kernel.body.math if isinstance(self.kernel.body, Contraction) else "strict"

    @cached_property
    def terms(self) -> int:
        return reference.terms(self.kernel)

    def problem(self, family: Family) -> Sizes:
        """The kernel's sizes in the terms of ``family``."""
        if family not in self._problems:
            self._problems[family] = family.problem(self.kernel)
        return self._problems[family]

    @cached_property
    def _problems(self) -> dict[Family, Sizes]:
        return {}

    def rendered(self, candidate: Candidate) -> tuple[KernelSource, Packed | None]:
        """The candidate's source, rendered as the compiler would. Raises ``ScheduleError`` for a candidate that cannot run."""
        family = candidate.family
        packing = family.packing(self.kernel, family.schedule(candidate.schedule), self.problem(family))
        choice = Choice(candidate.schedule, "tuned", family, packing)
        one = scheduled(self.step, choice)
        render = back_end(self.target.language)[1]
        return render(one.kernel, candidate.schedule, self.target, NAME, family), one.packed

    def data(self, seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Inputs and the kernel's expected outputs: the model's constants, and normally distributed numbers.

        If most of the results would not be finite (logarithms of negative numbers), positive numbers are used instead.
        """
        found, wanted = self._data(seed, positive=False)
        if _useless(wanted):
            found, wanted = self._data(seed, positive=True)
        return found, wanted

    def _data(self, seed: int, *, positive: bool) -> tuple[list[np.ndarray], list[np.ndarray]]:
        rng = np.random.default_rng(seed)
        found = []
        for value, type in zip(self.step.inputs, self.kernel.params, strict=False):
            array = constant_value(value)
            if array is None and type.dtype.is_float:
                drawn = rng.standard_normal(type.shape, np.float32)
                array = (np.abs(drawn) + 0.1 if positive else drawn).astype(type.dtype.numpy)
            elif array is None and type.dtype in (I8, U8):
                array = rng.integers(0, SMALL_BYTES, type.shape).astype(type.dtype.numpy)
            elif array is None:  # it may be used as an index
                array = rng.integers(0, 2, type.shape).astype(np.bool_ if type.dtype is BOOL else type.dtype.numpy)
            found.append(np.ascontiguousarray(array))
        return found, reference.expected(self.kernel, found, poisoned(self.kernel))


def rendered_hash(source: KernelSource, packed: Packed | None) -> str:
    """A hash of a source, its launch and its packing: candidates with the same hash are equal."""
    parts = statements(source.text), repr(packed.packing if packed else None), repr(source.geometry)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _useless(wanted: Sequence[np.ndarray]) -> bool:
    floats = [array.astype(np.float64) for array in wanted if array.dtype.kind not in "iub"]
    total = sum(array.size for array in floats)
    return total > 0 and sum(int(np.count_nonzero(~np.isfinite(a))) for a in floats) > USELESS * total


def tasks_of(lowered: Lowered, target: Target) -> list[Task]:
    """The distinct kernels of a model, in order of first appearance, with their untuned schedules."""
    engines_of = back_end(target.language)[0]
    found: dict[str, Task] = {}
    between = 0
    for step, count in with_counts(lowered.unpacked):
        if not isinstance(step, KernelStep):
            continue
        kernel = step.kernel
        between += sum(t.nbytes for k, t in enumerate(kernel.params) if k >= kernel.inputs or k in kernel.constants)
        if 0 in [t.size for t in kernel.params[kernel.inputs :]]:
            continue
        if kernel.digest in found:
            found[kernel.digest].launches += count
            continue
        engines = engines_of(kernel, target.features)
        choice: Choice = choose(kernel, engines, target.limits, target.device)
        default = Candidate(choice.family, choice.schedule)
        found[kernel.digest] = Task(kernel, step, target, engines, default, choice.tier, count)
    for task in found.values():
        task.between = between
    return list(found.values())


# which task to continue with

HOPE = 0.15  # share of a kernel's time that a first batch is expected to save
MEMORY = 0.5  # weight of the old expectation after each batch
ENOUGH = 0.001  # share of the model's time: a batch that promises less is not worth running


@dataclass(eq=False)
class Progress:
    """The progress of one task's search.

    best     the smallest ratio to the default so far
    hope     share of its time that the next batch is expected to save; a batch that saves nothing halves it
    """

    task: Task
    best: float = 1.0
    hope: float = HOPE
    trials: int = 0
    batches: int = 0
    seconds: float = 0.0
    exhausted: bool = False
    invalid: dict[str, int] = field(default_factory=dict)

    def after(self, best: float, seconds: float) -> None:
        """Update the state after a batch."""
        saved = max(0.0, 1 - best / self.best)
        self.hope = MEMORY * self.hope + (1 - MEMORY) * saved
        self.best = min(self.best, best)
        self.batches += 1
        self.seconds += seconds

    @property
    def gain(self) -> float:
        """Seconds of a run of the model that the next batch is expected to save."""
        return 0.0 if self.exhausted else self.task.weight * self.best * self.hope

    @property
    def cost(self) -> float:
        """Seconds of a batch."""
        return self.seconds / self.batches if self.batches else 1.0


def following(progress: Sequence[Progress], *, enough: float = ENOUGH) -> Progress | None:
    """The task whose next batch promises the largest gain for its time; ``None`` if no batch is worth running.

    A new task is assumed to need the time of the other tasks' batches. So the heaviest task goes first, but a light new one
    does not go before the next batch of a heavy one that promises more. Spending time by the expected gain of the whole model
    is the idea of Ansor's task scheduler (Zheng et al., OSDI 2020); the halved expectation is not from there.
    """
    total = sum(p.task.weight for p in progress)
    batches, seconds = (sum(getattr(p, name) for p in progress) for name in ("batches", "seconds"))
    usual = seconds / batches if seconds else 1.0
    worth = [p for p in progress if p.gain > enough * total]
    return max(worth, key=lambda p: p.gain / ((p.cost if p.batches else usual) or usual), default=None)


def forecast(progress: Sequence[Progress], seconds: float) -> float:
    """Seconds of a run of the model that a search of ``seconds`` more is expected to save."""
    ahead = [_Ahead(p.gain, p.cost) for p in progress if p.gain > 0]
    saved = 0.0
    while ahead and seconds > 0:
        chosen = max(ahead, key=lambda a: a.gain / a.cost)
        saved, seconds = saved + chosen.gain, seconds - chosen.cost
        chosen.gain *= MEMORY
        if chosen.gain < 1e-12:
            return saved
    return saved


@dataclass(eq=False)
class _Ahead:
    gain: float
    cost: float


def weigh(tasks: Sequence[Task], names: Mapping[str, str], launches: Sequence[tuple[str, float]]) -> None:
    """Set every task's seconds from a profile: (name of a launch, seconds). ``names`` has the kernels' digests by launch."""
    found: dict[str, list[float]] = {}
    for name, seconds in launches:
        if name in names:
            found.setdefault(names[name], []).append(seconds)
    for task in tasks:
        times = found.get(task.kernel.digest, [])
        task.seconds = math.fsum(times) / max(task.launches, len(times)) if times else 0.0
