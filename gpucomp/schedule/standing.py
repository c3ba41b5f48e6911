"""Checks records after rendering: the source that was measured must be the source that is rendered now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gpucomp.device.target import Target
from gpucomp.kernel.source import KernelSource
from gpucomp.refusal import Refusal
from gpucomp.schedule.choose import TIERS, Choice, Tiers, unused
from gpucomp.schedule.engine_hash import engine_hash
from gpucomp.schedule.records import Pick, source_hash

# Tasks of a CPU kernel that are enough for any processor: four for each of eight threads. A pick may have been measured
# with fewer threads. If it makes fewer tasks than this and than the default, threads of a larger processor are idle.
ENOUGH_PARTS = 32


def standing(
    choose: Callable[[Tiers], Choice], source_of: Callable[[Choice], KernelSource], target: Target, tiers: Tiers
) -> Choice:
    """The schedule of the first of ``tiers`` with a usable answer.

    ``passed_over`` of the result says why earlier answers are not usable. A stale record is not usable. Neither is a
    record from another processor that would leave threads of this one idle.
    """
    untuned: Choice | None = None
    passed: tuple[str, ...] = ()
    while True:
        choice = choose(tiers)
        passed += choice.passed_over
        if choice.pick is None:
            return replace(untuned or choice, passed_over=passed)
        source = source_of(choice)
        reason = stale(choice, choice.pick, source)
        if reason is None and may_idle(choice.pick, source, target):
            untuned = untuned or choose(TIERS)
            reason = idle(source, source_of(untuned))
        if reason is None:
            return replace(choice, passed_over=passed)
        passed += (f"{choice.tier}: {unused(choice.pick, str(reason))}",)
        tiers = tiers[1 + [name for name, _ in tiers].index(choice.tier) :]


def stale(choice: Choice, pick: Pick, source: KernelSource) -> Refusal | None:
    """Why the kernel's record is stale: another source than ``source`` was measured. ``None`` if it is not stale.

    For a sibling device the same engine may render another source. Then it is enough that the engine has not changed.
    """
    if choice.tier not in ("record", "sibling") or pick.source == source_hash(source.text, source.name):
        return None
    if choice.tier == "record":
        return Refusal("the kernel's source has changed since it was measured: gpucomp records refresh, or tune again")
    if pick.template == engine_hash(choice.family):
        return None
    return Refusal(f"the kernel's source and the engine {pick.engine} have changed since it was measured")


def may_idle(pick: Pick, source: KernelSource, target: Target) -> bool:
    """Whether a pick from another processor splits the work into fewer than ``ENOUGH_PARTS`` parts."""
    return target.limits.is_cpu and not pick.is_of(target) and source.geometry.groups[0] < ENOUGH_PARTS


def idle(source: KernelSource, default: KernelSource) -> Refusal | None:
    """Why a pick that ``may_idle`` is not usable: the untuned schedule makes more parts. ``None`` if it does not."""
    parts, more = source.geometry.groups[0], default.geometry.groups[0]
    if parts >= more:
        return None
    return Refusal(f"it makes {parts} parts, the default schedule {more}: threads of this processor could be idle")
