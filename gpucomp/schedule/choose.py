"""Chooses the schedule of a kernel: the first tier that answers decides. No search lives here.

    1 record      the exact problem on this device          (tuning records)
    2 sibling     the same problem on a sibling device      (tuning records)
    3 nearest     the nearest problem on this device        (tuning records)
                  (on any device of the kind, if the target names only a kind)
    4 portfolio   the schedule that most records of nearby problems share, on any device of this kind,
                  of all engines that can run the kernel    (tuning records)
    5 analytic    ranked by a model of the device
    6 default     the engine's rule of thumb, legal everywhere

If a device refuses to build or to launch a kernel, its schedule is chosen again for lower limits (``compiler.finish``).
That tier is called ``smaller``. If it computes a kernel wrong, other schedules are tried first; their tier is called ``other``.

A tier is a function ``(kernel, family, problems, limits) -> schedule, pick, refusal or None``. ``TIERS`` lists the
tiers that need no records, ``recorded`` those that do. Every answer is checked for legality on the target before it is
used. If a tier does not use a record, it returns the reason as a ``Refusal``. ``Choice.passed_over`` collects these,
with those of ``gpucomp.schedule.standing``, which compares the rendered source with the record.

In each tier the engines are tried in the order of preference, and the first with a legal answer wins. The analytic tier
compares all engines. On a GPU it uses ``gpucomp.schedule.model``, and ranks every schedule if a ``Device`` describes
the machine. On a CPU it compares the engines' estimates for their defaults.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from gpucomp.device.device import Device, typical
from gpucomp.device.limits import Limits
from gpucomp.device.target import Target
from gpucomp.errors import ScheduleError, quote
from gpucomp.kernel import Kernel
from gpucomp.kernel.example import example_of
from gpucomp.kernel.packing import Packing
from gpucomp.kernel.sizes import Sizes
from gpucomp.lazy_dataclass import dataclass
from gpucomp.refusal import Refusal
from gpucomp.schedule import rank
from gpucomp.schedule.analytic import demand
from gpucomp.schedule.engine_hash import engine_hash
from gpucomp.schedule.records import Pick, Picks, distance
from gpucomp.schedule.space import Family, Schedule
from gpucomp.schedule.uncertainty import clearly_faster, gain_over_default

Problems = Mapping[Family, Sizes]  # the problem of one kernel for each engine that can run it
Tier = Callable[[Kernel, Family, Problems, Limits], Schedule | Pick | Refusal | None]
Tiers = tuple[tuple[str, Tier], ...]


@dataclass(frozen=True)
class Choice:
    """A schedule, the tier that chose it, its engine, and how the engine requires a constant operand to be packed.

    ``pick`` is the record that the schedule is from, if any. ``passed_over`` has a line for each earlier tier that
    reads records: the tier, the device of the record if there is one, and why it was not used.
    """

    schedule: Mapping[str, int]
    tier: str
    family: Family
    packing: Packing | None = None
    pick: Pick | None = None
    passed_over: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """The tier as text. For a record also its device, and its problem if that is not the kernel's."""
        if self.pick is None:
            return self.tier
        sizes = " ".join(f"{name}={size}" for name, size in self.pick.problem.items())
        problem = f", {sizes}" if self.tier in ("nearest", "portfolio") else ""
        return f"{self.tier}: {quote(self.pick.device['name'])}{problem}"


def _default(kernel: Kernel, family: Family, problems: Problems, limits: Limits) -> Schedule:
    return dict(family.default(problems[family], limits).numbers)


def recorded(picks: Picks, target: Target) -> Tiers:
    """The tiers that read ``picks``. If an engine has changed since, its picks are used for their own kernels only.

    For its own kernel, ``gpucomp.schedule.standing`` checks that the rendered source is the one that was measured. For
    another kernel that source cannot be rendered here, so the engine's hash decides.
    """

    def tier(find: Callable[[Kernel, Problems], Pick | Refusal], *, own: bool) -> Tier:
        def answer(kernel: Kernel, family: Family, problems: Problems, limits: Limits) -> Pick | Refusal | None:
            pick = find(kernel, problems)
            if isinstance(pick, Refusal):
                return pick
            if pick.engine != family.title:
                able = pick.engine in [f.title for f in problems]
                return None if able else unused(pick, f"its engine {pick.engine} does not run this kernel here")
            if not own and pick.template != engine_hash(family):
                return unused(pick, f"the engine {pick.engine} has changed since it was measured")
            return pick

        return answer

    def closest(kernel: Kernel, problems: Problems) -> Pick | Refusal:
        sizes = {f: p.numbers for f, p in problems.items()}
        found = [(p, picks.nearest(p, f.title, target, kernel.digest)) for f, p in sizes.items()]
        near = [(distance(problem, pick.problem), pick.ratio, pick) for problem, pick in found if pick]
        return min(near, key=lambda one: one[:2])[2] if near else found[0][1]

    # if an engine's default won for the nearest problem, the default is used here too: it is computed for these sizes
    def nearest(kernel: Kernel, problems: Problems) -> Pick | Refusal:
        pick = closest(kernel, problems)
        return unused(pick, "the default won for the nearest problem") if pick and pick.ratio >= 1 else pick

    def agreed(kernel: Kernel, problems: Problems) -> Pick | Refusal:
        pick = closest(kernel, problems)
        if pick and pick.ratio >= 1:
            return unused(pick, "the default won for the nearest problem")
        return picks.agreed({f.title: problem.numbers for f, problem in problems.items()}, target, kernel.digest)

    return (
        ("record", tier(lambda kernel, problems: picks.exact(kernel.digest, target), own=True)),
        ("sibling", tier(lambda kernel, problems: picks.sibling(kernel.digest, target), own=True)),
        ("nearest", tier(nearest, own=False)),
        ("portfolio", tier(agreed, own=False)),
    )


def unused(pick: Pick, reason: str) -> Refusal:
    """The refusal of ``pick``: its device, and why it is not used."""
    return Refusal(f"{quote(pick.device['name'])}: {reason}")


TIERS: Tiers = (("default", _default),)


def _compared(
    kernel: Kernel, problems: Sequence[tuple[Family, Sizes]], limits: Limits, device: Device | None
) -> tuple[Family, Sizes, Schedule] | None:
    """The answer of the analytic tier; ``None`` if the default of the first engine is to be used."""
    if any(family.estimate is not None for family, _ in problems):
        return _estimated(problems, limits)
    if limits.is_cpu or not rank.can_rank(problems[0][0]):
        return None  # not a GPU, or the model cannot rank the preferred engine
    if 0 in [t.size for t in kernel.params[kernel.inputs :]]:
        return None  # there is nothing to compute
    return _modelled(kernel, problems, limits, device)


def _modelled(
    kernel: Kernel, problems: Sequence[tuple[Family, Sizes]], limits: Limits, device: Device | None
) -> tuple[Family, Sizes, Schedule] | None:
    """The default of the fastest engine, or a schedule that the model predicts to be clearly faster.

    Without a ``device`` only the defaults are compared, on a typical GPU. ``None`` if the first engine's default wins.
    """
    like = device or typical(limits.units, dots=limits.dots)
    starts = rank.defaults(kernel, problems, limits, like)
    if device is not None and not any(math.isfinite(r.us) for r in starts):
        return _modelled(kernel, problems, limits, None)  # all engines use shared memory, and the device has none
    if not starts or starts[0].family is not problems[0][0]:
        return None
    chosen = start = min(starts, key=lambda r: r.us)
    if device is not None:
        found = rank.improved(kernel, starts, problems, limits, device)[0]
        gain = gain_over_default(found.engine, device)
        if clearly_faster([found], [start], gain) or start.registers > rank.PRESSURE:
            chosen = found
    return None if chosen is starts[0] else (chosen.family, dict(problems)[chosen.family], chosen.schedule)


def _estimated(problems: Sequence[tuple[Family, Sizes]], limits: Limits) -> tuple[Family, Sizes, Schedule] | None:
    """The engine with the lowest estimate for its default; ``None`` if the preferred engine has no estimate.

    An engine's default is already the best of its short list by the engine's own model, so only the defaults are
    compared.
    """
    rivals = [(family, problem) for family, problem in problems if family.estimate is not None]
    if len(rivals) < 2 or rivals[0][0] is not problems[0][0]:
        return None
    found = []
    for family, problem in rivals:
        schedule = dict(family.default(problem, limits).numbers)
        if family.estimate is not None and not family.reasons(schedule, problem, limits):
            found.append((family.estimate(family.schedule(schedule), problem, limits), family, problem, schedule))
    if len(found) < 2:
        return None  # nothing to compare
    _, family, problem, schedule = min(found, key=lambda candidate: candidate[0])
    return family, problem, schedule


def choose(
    kernel: Kernel,
    families: Sequence[Family],
    limits: Limits,
    device: Device | None = None,
    *,
    tiers: Tiers = TIERS,
) -> Choice:
    """The schedule of the first tier that answers, for the first of ``families`` that can run it.

    ``device`` is the device of the analytic model. Without one, the model only compares the defaults of a GPU's
    engines.

    Raises ``ScheduleError`` if not even the last family's default can run.
    """
    problems = [(family, family.problem(kernel)) for family in families]
    whole, kernel = kernel, example_of(kernel)
    passed: dict[str, None] = {}  # an ordered set: a tier refuses a record for the same reason for all engines
    for name, tier in tiers:
        if name == "default" and (found := _compared(kernel, problems, limits, device)) is not None:
            return replace(_choice(whole, "analytic", *found), passed_over=tuple(passed))
        for family, problem in problems:
            answer = tier(kernel, family, dict(problems), limits)
            if isinstance(answer, Refusal):
                passed[f"{name}: {answer}"] = None
                continue
            schedule, pick = (answer.schedule, answer) if isinstance(answer, Pick) else (answer, None)
            if schedule is None:
                continue
            if not (faults := family.reasons(schedule, problem, limits)):
                return replace(_choice(whole, name, family, problem, schedule, pick), passed_over=tuple(passed))
            if pick is not None:
                passed[f"{name}: {unused(pick, f'its schedule is not legal here: {faults[0]}')}"] = None
    family, problem = problems[-1]
    family.require(family.default(problem, limits).numbers, problem, limits)
    raise AssertionError("the last tier always answers")


def prediction(
    kernel: Kernel, families: Sequence[Family], limits: Limits, device: Device | None = None
) -> rank.Ranked | None:
    """The prediction for the schedule that ``choose`` gives.

    ``None`` if the model cannot rank the preferred engine or the chosen one.
    """
    known = [family for family in families if rank.can_rank(family)]
    if limits.is_cpu or not known or known[0] is not families[0]:
        return None
    like = device or typical(limits.units, dots=limits.dots)
    try:
        found = choose(kernel, families, limits, device)
    except ScheduleError:
        return None
    if found.family not in known:
        return None
    problem = found.family.problem(kernel)
    return rank.predicted(found.family, problem, found.schedule, like, demand(kernel, like))


def _choice(
    kernel: Kernel, tier: str, family: Family, problem: Sizes, schedule: Schedule, pick: Pick | None = None
) -> Choice:
    packing = family.packing(kernel if family.template else example_of(kernel), family.schedule(schedule), problem)
    return Choice(dict(schedule), tier, family, packing, pick)
