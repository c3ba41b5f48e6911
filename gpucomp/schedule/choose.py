"""Which schedule a kernel gets: the first tier that answers. No search lives here.

    1 record      the exact problem on this device          (tuning records)
    2 sibling     the same problem on a sibling device      (tuning records)
    3 nearest     the nearest problem on this device        (tuning records)
                  (on any device of the kind, if the target names only a kind)
    4 portfolio   the schedule that most records of near and far problems agree on, on any device of this kind,
                  of all engines that can run the kernel    (tuning records)
    5 analytic    ranked by a model of the device
    6 default     the family's rule of thumb, legal everywhere

If a device refuses to build or to launch a kernel, its schedule is chosen again for lower limits (``compiler.finish``). That
tier is called ``smaller``.

A tier is a function ``(kernel, family, problems, limits) -> schedule, pick or None``. ``TIERS`` lists those that need no
records, ``recorded`` those that do. Every answer is checked for legality on the target before it is used. What a tier that
asks records has against an answer is a ``Refusal``; ``Choice.passed_over`` collects these, and those of
``gpucomp.schedule.standing``, where the rendered source is compared with the record. Within a tier
the engines are asked in the order of preference, and the first with a legal answer wins. The analytic tier compares all
engines: a GPU's by the model of ``gpucomp.schedule.model``, every schedule of each where a ``Device`` describes the
machine; a CPU's by their own estimates of their defaults.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from gpucomp.device.device import Device, typical
from gpucomp.device.limits import Limits
from gpucomp.device.target import Target
from gpucomp.errors import ScheduleError, quote
from gpucomp.kernel import Kernel
from gpucomp.kernel.packing import Packing
from gpucomp.kernel.sizes import Sizes
from gpucomp.refusal import Refusal
from gpucomp.schedule import rank
from gpucomp.schedule.analytic import demand
from gpucomp.schedule.engine_hash import engine_hash
from gpucomp.schedule.records import Pick, Picks, distance
from gpucomp.schedule.space import Family, Schedule

Problems = Mapping[Family, Sizes]  # of one kernel, by each engine that can run it
Tier = Callable[[Kernel, Family, Problems, Limits], Schedule | Pick | Refusal | None]
Tiers = tuple[tuple[str, Tier], ...]


@dataclass(frozen=True)
class Choice:
    """A schedule, the tier that gave it, the engine it is for, and how that wants a constant operand packed.

    ``pick`` is the record that the schedule is from, if any. ``passed_over`` has a line for each earlier tier that reads
    records: the tier, the device of the record if there is one, and why it was not used.
    """

    schedule: Mapping[str, int]
    tier: str
    family: Family
    packing: Packing | None = None
    pick: Pick | None = None
    passed_over: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """The tier. For a record also its device, and its problem if that is another one."""
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

    # where the nearest problem's own default won, of whatever engine, so may this one's: it knows these sizes
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
    """Why ``pick`` is not used, with the device that it is of."""
    return Refusal(f"{quote(pick.device['name'])}: {reason}")


TIERS: Tiers = (("default", _default),)


CLEAR_GAIN = 1.1  # of the time beyond the launch. The model tells siblings apart no better than that, and an engine's
# default is of a short list that other compilers found good: what it is expected to lose by less is not worth leaving it


def _compared(
    kernel: Kernel, problems: Sequence[tuple[Family, Sizes]], limits: Limits, device: Device | None
) -> tuple[Family, Sizes, Schedule] | None:
    """What the analytic tier answers; ``None`` where it leaves the answer to the engines' order and their defaults."""
    if any(family.estimate is not None for family, _ in problems):
        return _estimated(problems, limits)
    if limits.is_cpu or not rank.can_rank(problems[0][0]):
        return None  # no GPU, or an engine that the model does not know and that is to be preferred
    if 0 in [t.size for t in kernel.params[kernel.inputs :]]:
        return None  # there is nothing to compute
    return _modelled(kernel, problems, limits, device)


def _modelled(
    kernel: Kernel, problems: Sequence[tuple[Family, Sizes]], limits: Limits, device: Device | None
) -> tuple[Family, Sizes, Schedule] | None:
    """The fastest engine's default, or a schedule that the model finds clearly faster.

    Without a ``device`` only the defaults are compared, on a GPU like others. ``None`` where the first engine's wins.
    """
    like = device or typical(limits.units, dots=limits.dots)
    starts = rank.defaults(kernel, problems, limits, like)
    if device is not None and not any(math.isfinite(r.us) for r in starts):
        return _modelled(kernel, problems, limits, None)  # all work in a memory that the device does not have apart
    if not starts or starts[0].family is not problems[0][0]:
        return None
    chosen = start = min(starts, key=lambda r: r.us)
    if device is not None:
        found = rank.improved(kernel, starts, problems, limits, device)[0]
        gain = (start.us - device.launch_us) / max(found.us - device.launch_us, 1e-9)
        if gain >= CLEAR_GAIN or start.registers > rank.PRESSURE:
            chosen = found
    return None if chosen is starts[0] else (chosen.family, dict(problems)[chosen.family], chosen.schedule)


def _estimated(problems: Sequence[tuple[Family, Sizes]], limits: Limits) -> tuple[Family, Sizes, Schedule] | None:
    """The engine that estimates the least time for its default; ``None`` where the first choice estimates nothing.

    An engine's default is the best of its own short list by its own model, so this compares the engines alone.
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

    ``device`` is what the model reckons with; without one, it only compares the defaults of a GPU's engines.

    Raises ``ScheduleError`` when not even the last family's default can run.
    """
    problems = [(family, family.problem(kernel)) for family in families]
    passed: dict[str, None] = {}  # in order, each once: what a tier has against a record is the same for all engines
    for name, tier in tiers:
        if name == "default" and (found := _compared(kernel, problems, limits, device)) is not None:
            return replace(_choice(kernel, "analytic", *found), passed_over=tuple(passed))
        for family, problem in problems:
            answer = tier(kernel, family, dict(problems), limits)
            if isinstance(answer, Refusal):
                passed[f"{name}: {answer}"] = None
                continue
            schedule, pick = (answer.schedule, answer) if isinstance(answer, Pick) else (answer, None)
            if schedule is None:
                continue
            if not (faults := family.reasons(schedule, problem, limits)):
                return replace(_choice(kernel, name, family, problem, schedule, pick), passed_over=tuple(passed))
            if pick is not None:
                passed[f"{name}: {unused(pick, f'its schedule is not legal here: {faults[0]}')}"] = None
    family, problem = problems[-1]
    family.require(family.default(problem, limits).numbers, problem, limits)
    raise AssertionError("the last tier always answers")


def expected_us(
    kernel: Kernel, families: Sequence[Family], limits: Limits, device: Device | None = None
) -> float | None:
    """What the model expects of the schedule that ``choose`` gives; ``None`` where it knows no engine that can run it."""
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
    return rank.predicted(found.family, problem, found.schedule, like, demand(kernel, like)).us


def _choice(
    kernel: Kernel, tier: str, family: Family, problem: Sizes, schedule: Schedule, pick: Pick | None = None
) -> Choice:
    packing = family.packing(kernel, family.schedule(schedule), problem)
    return Choice(dict(schedule), tier, family, packing, pick)
