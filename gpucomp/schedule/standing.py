"""Which record stands once its kernel is rendered: ``choose`` asks the records, this compares their sources with today's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gpucomp.device.target import Target
from gpucomp.kernel.source import KernelSource
from gpucomp.refusal import Refusal
from gpucomp.schedule.choose import TIERS, Choice, Tiers, unused
from gpucomp.schedule.engine_hash import engine_hash
from gpucomp.schedule.records import Pick, source_hash

# Parts that a processor's threads share a kernel's work in: four for each of eight threads. A pick was measured on the
# threads that there were; where it makes fewer parts than this, and than the default, those of a larger one would be idle.
ENOUGH_PARTS = 32


def standing(
    choose: Callable[[Tiers], Choice], source_of: Callable[[Choice], KernelSource], target: Target, tiers: Tiers
) -> Choice:
    """The schedule of the first of ``tiers`` whose answer is usable; its ``passed_over`` says why those before it are not.

    A stale record is not usable. Neither is one from a larger processor that leaves threads of this one idle.
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
    """What the record of this very kernel has against it where another source than ``source`` was measured.

    On a sibling device the same engine may write another text; there it is enough that the engine has not changed.
    """
    if choice.tier not in ("record", "sibling") or pick.source == source_hash(source.text, source.name):
        return None
    if choice.tier == "record":
        return Refusal("another source was measured than is rendered now (`gpucomp records refresh`, or tune again)")
    if pick.template == engine_hash(choice.family):
        return None
    return Refusal(f"another source was measured than is rendered now, and the engine {pick.engine} has changed since")


def may_idle(pick: Pick, source: KernelSource, target: Target) -> bool:
    """Whether a pick splits the work into few parts and was measured on another processor than this one."""
    return target.limits.is_cpu and not pick.is_of(target) and source.geometry.groups[0] < ENOUGH_PARTS


def idle(source: KernelSource, default: KernelSource) -> Refusal | None:
    """What a pick that ``may_idle`` has against it where the schedule chosen without records makes more parts."""
    parts, more = source.geometry.groups[0], default.geometry.groups[0]
    if parts >= more:
        return None
    return Refusal(f"it makes {parts} parts, the untuned schedule {more}: threads of this processor could be idle")
