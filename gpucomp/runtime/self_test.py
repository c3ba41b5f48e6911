"""Tests kernels on the device when a driver, a device and a model meet for the first time: drivers are known to compile wrong.

Each kernel runs alone, on inputs that its check says (``gpucomp.artifact.checks``), in the memory that runs use as well. The
verdict stands in the cache of compiled kernels, under a hash of the driver, the device and every text of the model: later
programs read it.

A test finds kernels that are plainly wrong, at the elements that are compared. It does not find wrong elements between these, or
numbers that are rounded badly.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from gpucomp import config
from gpucomp.artifact.checks import CHECKS, Check, checks_of, generated
from gpucomp.artifact.plan import Plan
from gpucomp.errors import WrongKernelError, several

VERDICT = b"gpucomp self-test 1\n"  # the first line of a verdict; a line for each wrong kernel follows
ADVICE = (
    "update the driver, or compile the model on this device, where other schedules are then tried; GPUCOMP_SELF_TEST=0 runs "
    "the kernel as it is"
)


class Tried(Protocol):
    """An open program, of which single launches can be run."""

    plan: Plan

    @property
    def driver(self) -> str:
        """Names and versions of the driver and the device."""
        ...

    def tried(self, number: int, given: Mapping[int, np.ndarray], wanted: Sequence[int]) -> list[np.ndarray]:
        """What launch ``number`` leaves in the buffers ``wanted``, if those of ``given`` hold these arrays before it."""
        ...


def is_wanted(kind: str, driver: str) -> bool:
    """Whether kernels are tested: as ``GPUCOMP_SELF_TEST`` says, else for OpenCL, where the driver's compiler makes the code.

    PoCL's is the exception, on which all of gpucomp is tested anyway. ``driver`` is its name, or that of a target's flavour.
    """
    setting = config.current().self_test
    return kind == "opencl" and "pocl" not in driver.lower() if setting is None else setting


def require_right(
    program: Tried,
    sources: Mapping[str, str],
    binaries: Mapping[str, bytes],
    at_example: Callable[[Any], Tried] = lambda program: program,
) -> None:
    """Test the kernels, unless a verdict is known. Raises ``WrongKernelError`` (GPC5106) for kernels that are wrong here.

    ``at_example`` gives the program at the sizes that checks are for, if it is one of many sizes.

    Raises ``ArtifactError`` for checks that are damaged, and what a run raises if the device fails.
    """
    if not binaries.get(CHECKS) or not is_wanted(program.plan.kind, program.driver):
        return
    from gpucomp.targets.cache import open_cache  # no program for processors needs what it imports

    cache, key = open_cache(), key_of(program.driver, program.plan.precision, sources, binaries)
    verdict = cache.get(key) if cache else None
    if verdict is None or not verdict.startswith(VERDICT):
        tested = at_example(program)
        lines = [found for check in checks_of(binaries[CHECKS], tested.plan) if (found := fault(tested, check))]
        verdict = VERDICT + "".join(f"{line}\n" for line in lines).encode()
        if cache:
            cache.put(key, verdict)
    wrong = [line.split(" ", 1) for line in verdict.removeprefix(VERDICT).decode(errors="replace").splitlines()]
    if wrong:
        kernels = {name: f"kernel {name}: {what}, on {program.driver}" for name, what in wrong}
        more = f", and {several(len(wrong) - 1, 'more kernel')}" if len(wrong) > 1 else ""
        raise WrongKernelError(f"{next(iter(kernels.values()))}{more}: {ADVICE}", kernels)


def key_of(driver: str, precision: str, sources: Mapping[str, str], binaries: Mapping[str, bytes]) -> str:
    """The name of a verdict: a hash of the driver and the device, and of the model's sources, binaries and checks.

    ``precision`` decides how the driver's compiler rounds (``opencl_build.build_flags``).
    """
    parts = ["self-test", driver, precision]
    parts += [f"{name} {hashlib.sha256(sources[name].encode()).hexdigest()}" for name in sorted(sources)]
    parts += [f"{name} {hashlib.sha256(binaries[name]).hexdigest()}" for name in sorted(binaries)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def fault(program: Tried, check: Check) -> str:
    """The kernel's name and what is wrong with its results; empty if they are right."""
    plan = program.plan
    launch = plan.launches[check.launch]
    given: dict[int, np.ndarray] = {}
    for one in check.inputs:
        position = launch.args[one.argument]
        buffer = plan.buffers[position]
        made = generated(buffer.dtype, math.prod(buffer.shape), one.argument + 1, one.limit)
        given[position] = made.reshape(buffer.shape)
    arrays = program.tried(check.launch, given, [launch.args[found.argument] for found in check.outputs])
    count, beyond = 0, list[tuple[float, float]]()  # how far wrong elements are away, and how far they may be
    for found, array in zip(check.outputs, arrays, strict=True):
        with np.errstate(all="ignore"):
            away = np.abs(array.reshape(-1)[found.elements["at"]].astype(np.float64) - found.elements["value"])
        away[np.isnan(away)] = np.inf
        wrong = away > found.elements["within"]
        count += len(away)
        beyond += zip(away[wrong].tolist(), found.elements["within"][wrong].tolist(), strict=True)
    if not beyond:
        return ""
    worst, allowed = max(beyond)
    name = plan.kernels[launch.kernel].name
    return f"{name} {len(beyond)} of {count} elements are wrong, by up to {worst:.3g} where {allowed:.3g} is allowed"
