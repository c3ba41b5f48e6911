"""Records how each kernel of a compiled model can be tested on a device: ``gpucomp.artifact.checks`` says what is kept.

Expected results are of the kernel before it was scheduled, so that packed weights and words of bytes are tested too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from gpucomp import targets
from gpucomp.artifact.checks import CHECKS, Check, Expected, Given, generated, may_be_tried, packed
from gpucomp.artifact.open_plan import OpenPlan
from gpucomp.artifact.plan import Plan
from gpucomp.device.target import Target
from gpucomp.errors import DeviceError, WrongKernelError
from gpucomp.ir.example import exemplified
from gpucomp.ir.graph import Value, constant_value
from gpucomp.ir.types import TensorType
from gpucomp.kernel.example import example_of
from gpucomp.kernel.sampled import limits_of, samples
from gpucomp.kernel.step import KernelStep, Step
from gpucomp.runtime import self_test
from gpucomp.runtime.executable import Executable

TESTED = ("opencl", "cuda", "hip")  # kinds of targets, whose code a driver makes or loads


def of_target(target: Target, plan: Plan, plain: Sequence[Step], launched: Sequence[Step]) -> dict[str, bytes]:
    """What a compiled model has among its binaries to be tested by; nothing for a target whose kernels are not tested."""
    if target.kind not in TESTED or not self_test.is_wanted(target.kind, target.arch):
        return {}
    return {CHECKS: recorded(plan, plain, launched)}


def of_any_size(
    target: Target, plan: OpenPlan, example: Mapping[str, int], plain: Sequence[Step], launched: Sequence[Step]
) -> dict[str, bytes]:
    """As ``of_target``, of a program for any sizes: its kernels are tested at the sizes of ``example``."""
    sized = plan.at(example)
    if sized is None:
        return {}
    with exemplified(example):
        there = [replace(s, kernel=example_of(s.kernel)) if isinstance(s, KernelStep) else s for s in plain]
    return of_target(target, sized.plan, there, launched)


def wrong_here(made: Executable, target: Target) -> dict[str, WrongKernelError]:
    """The kernels that are wrong on the target's device, by name, if that is here and is tested. Opens the device."""
    try:
        if self_test.is_wanted(target.kind, targets.driver_of(target)):
            made.open()
    except WrongKernelError as error:
        return {name: WrongKernelError(what, {name: what}) for name, what in error.kernels.items()}
    except DeviceError:  # a model may be compiled for a device that is elsewhere, or has no room for it now
        return {}
    return {}


def recorded(plan: Plan, plain: Sequence[Step], launched: Sequence[Step]) -> bytes:
    """The checks of a plan's kernels, each on its first launch, as a file (``checks.packed``).

    ``launched`` are the steps that the plan was made of, and ``plain`` the same before they were scheduled. Left out are
    kernels in loops, of states, and those of which ``samples`` gives nothing.
    """
    pairs = zip(plain, launched, strict=True)
    steps = {s.name: (p, s) for p, s in pairs if isinstance(p, KernelStep) and isinstance(s, KernelStep)}
    looped = {number for repeat in plan.repeats for number in range(repeat.first, repeat.last)}
    tried: set[int] = set()
    checks: list[Check] = []
    for number, launch in enumerate(plan.launches):
        if launch.kernel < 0 or launch.kernel in tried or number in looped:
            continue
        check = _check(plan, number, *steps[launch.name])
        if check is not None:
            tried.add(launch.kernel)
            checks.append(check)
    return packed(checks)


def _check(plan: Plan, number: int, before: KernelStep, launched: KernelStep) -> Check | None:
    """How launch ``number`` is tested; ``None`` if it cannot be."""
    args, kernel = plan.launches[number].args, before.kernel
    limits = limits_of(kernel)
    if limits is None:
        return None
    given: dict[Value, Given] = {}
    for k, (value, type) in enumerate(zip(before.inputs, kernel.params, strict=False)):
        if constant_value(value) is not None:
            continue
        if value not in launched.inputs or not _is_declared(plan, args[launched.inputs.index(value)], type):
            return None
        known = given.get(value, Given(launched.inputs.index(value), 0))
        least = [limit for limit in (known.limit, limits.get(k, 0)) if limit]
        given[value] = Given(known.argument, min(least, default=0))
    places = [launched.kernel.inputs + k for k in range(len(before.outputs))]
    if not all(may_be_tried(plan, args[place]) for place in places):
        return None
    found = samples(kernel, [_array(v, type, given) for v, type in zip(before.inputs, kernel.params, strict=False)])
    outputs = tuple(Expected(place, some) for place, some in zip(places, found or (), strict=False) if len(some))
    return Check(number, tuple(given.values()), outputs) if outputs else None


def _is_declared(plan: Plan, position: int, type: TensorType) -> bool:
    """Whether a buffer holds a value as the kernel declares it: it need not, between kernels that are narrower."""
    buffer = plan.buffers[position]
    return may_be_tried(plan, position) and (buffer.dtype, buffer.shape) == (type.dtype.name, type.shape)


def _array(value: Value, type: TensorType, given: dict[Value, Given]) -> np.ndarray:
    """The elements of an input that is declared as ``type``: a constant's own, or those that its check has."""
    array = constant_value(value)
    if array is None:
        one = given[value]
        array = generated(type.dtype.name, type.size, one.argument + 1, one.limit).reshape(type.shape)
    return array
