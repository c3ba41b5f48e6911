"""The schedule and the source of a step's kernel, and others in their place where a device refuses it or computes it wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice

from gpucomp import targets
from gpucomp.device.target import Target
from gpucomp.errors import KernelBuildError, ScheduleError, UnsupportedError, WrongKernelError
from gpucomp.kernel.source import KernelSource
from gpucomp.kernel.step import KernelStep
from gpucomp.lowering import scheduled
from gpucomp.planning import Rendered
from gpucomp.schedule.choose import TIERS, Choice, Tiers, choose
from gpucomp.schedule.scheduled import Scheduled
from gpucomp.schedule.space import Schedule
from gpucomp.targets.back_end import back_end

MOST_TRIED = 20_000  # schedules to search for one with fewer work-items: takes about a second
MOST_NEAR = 4  # schedules of an engine that are tried instead of one that is computed wrong
Seen = dict[tuple[object, ...], KernelSource]
Made = tuple[Rendered, Scheduled]  # a kernel's source, and what it was rendered from


def choice_of(step: KernelStep, target: Target, tiers: Tiers, which: slice = slice(None)) -> Choice:
    """The schedule for a step's kernel, by those of the target's engines that ``which`` takes.

    Raises ``UnsupportedError`` (GPC4014) if none of them computes it, and ``ScheduleError``.
    """
    engines_of, _ = back_end(target.language)
    engines = engines_of(step.kernel, target.features)[which]
    if not engines:
        raise UnsupportedError(
            f"{step.name}: no engine computes this kernel for sizes that each run decides", code="GPC4014"
        )
    return choose(step.kernel, engines, target.limits, target.device, tiers=tiers)


def rendered_of(one: Scheduled, target: Target, seen: Seen | None = None) -> Rendered:
    """The source of ``one``. ``seen`` has the sources that were rendered to check records."""
    _, render_one = back_end(target.language)
    seen, name, choice = {} if seen is None else seen, one.step.name, one.choice
    key = (name, one.kernel.digest, choice.family.title, *choice.schedule.items())
    if key not in seen:
        seen[key] = render_one(one.kernel, choice.schedule, target, name, choice.family)
    return Rendered(seen[key], choice)


def others(step: KernelStep, target: Target, item: Rendered, error: KernelBuildError) -> Iterator[Made]:
    """What to try instead of ``item``, the kernel of ``step``, of which ``error`` says what is wrong. Each text comes once.

    For one that is computed wrong, the nearest schedules of its engine, then those of other engines. Then, and for one that is
    refused, lower and lower demands on the device, at last by the engine that every device can run, with smaller and smaller
    work-groups. There are none of these if the target has no lesser variants: then a refusal is a bug.
    """
    texts, lesser = {item.source.text}, list(targets.lesser(target))
    found: list[Iterator[Made]] = []
    if isinstance(error, WrongKernelError):
        found += [_near(step, target, item.choice), _by_others(step, target, item.choice)]
    if lesser:
        found += [_with_less(step, lesser), _in_smaller_groups(step, target, item.source)]
    for one in chain.from_iterable(found):
        if one[0].source.text not in texts:
            texts.add(one[0].source.text)
            yield one


def none_left(error: KernelBuildError) -> KernelBuildError:
    """``error``, after everything of ``others`` was tried."""
    if not isinstance(error, WrongKernelError):
        return error
    return WrongKernelError(
        f"{error.message}; no other schedule is right: update the driver, or choose another device; GPUCOMP_SELF_TEST=0 runs the "
        "kernel as it is",
        error.kernels,
    )


def _near(step: KernelStep, target: Target, choice: Choice) -> Iterator[Made]:
    """The schedules of the same engine that are nearest."""
    engines_of, _ = back_end(target.language)
    engines = engines_of(step.kernel, target.features)
    family = next((one for one in engines if one.title == choice.family.title), None)
    if family is None:
        return
    problem, at = family.problem(step.kernel), engines.index(family)
    own = dict(choice.schedule)
    near = (found for found in family.near(own, problem, target.limits) if dict(found) != own)
    for found in islice(near, MOST_NEAR):
        yield _chosen(step, target, found, slice(at, at + 1))


def _by_others(step: KernelStep, target: Target, choice: Choice) -> Iterator[Made]:
    """The best schedule of each other engine."""
    engines_of, _ = back_end(target.language)
    for at, family in enumerate(engines_of(step.kernel, target.features)):
        if family.title == choice.family.title:
            continue
        try:
            one = scheduled(step, replace(choice_of(step, target, TIERS, slice(at, at + 1)), tier="other"))
            yield rendered_of(one, target), one
        except (ScheduleError, UnsupportedError):  # it does not compute the kernel within these limits
            continue


def _chosen(step: KernelStep, target: Target, schedule: Schedule, which: slice, tier: str = "other") -> Made:
    one = scheduled(step, choice_of(step, target, ((tier, lambda *_: schedule),), which))
    return rendered_of(one, target), one


def _with_less(step: KernelStep, lesser: Sequence[Target]) -> Iterator[Made]:
    for engines in (slice(None), slice(-1, None)):
        for less in lesser:
            try:
                one = scheduled(step, replace(choice_of(step, less, TIERS, engines), tier="smaller"))
                yield rendered_of(one, less), one
            except (ScheduleError, UnsupportedError):  # no engine computes the kernel within these limits
                continue


def _in_smaller_groups(step: KernelStep, target: Target, refused: KernelSource) -> Iterator[Made]:
    """Halve the work-group of the last engine repeatedly. Each schedule is the nearest legal one to the one before."""
    engines_of, _ = back_end(target.language)
    family = engines_of(step.kernel, target.features)[-1]
    problem = family.problem(step.kernel)

    def items(schedule: Schedule) -> int:
        return math.prod(family.geometry(family.schedule(schedule), problem).items)

    last, most = dict(family.default(problem, target.limits).numbers), math.prod(refused.geometry.items) // 2
    while most:
        near = islice(family.near(last, problem, target.limits), MOST_TRIED)
        found = next((s for s in near if items(s) <= most), None)
        if found is None:
            return
        yield _chosen(step, target, found, slice(-1, None), "smaller")
        last, most = found, items(found) // 2
