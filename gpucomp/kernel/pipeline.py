"""Runs passes over kernels, and prints and verifies their results. ``lowering`` lists the passes in order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from gpucomp.device.target import Target
from gpucomp.ir.graph import Graph
from gpucomp.ir.passes import Form, PassRecord, run_passes
from gpucomp.ir.printer import Namer
from gpucomp.kernel.ir import Kernel
from gpucomp.kernel.step import HostStep, KernelStep, Step
from gpucomp.kernel.verify import verify_steps

Steps = list[Step]


class Expected(Protocol):
    """Estimates times, in microseconds, by the models of a target's engines: see ``gpucomp.schedule.expected``.

    Depth-first fusion on the CPU has its own model: ``gpucomp.codegen.llvm.depth_first.fuse``.
    """

    def total_us(self, kernels: Sequence[Kernel]) -> float:
        """The time of ``kernels``, launched one after another; infinite if there is no model for one of them."""

    def faster(self, these: Sequence[Kernel], those: Sequence[Kernel]) -> bool:
        """Whether ``these`` are clearly faster than ``those``; False if there is no model for one of the kernels."""

    def estimated_us(self, kernel: Kernel) -> float | None:
        """The estimate of the CPU engine that computes ``kernel``; ``None`` if the engine has no estimate."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a pass over kernels may use besides the kernels.

    ``elsewhere`` has the names and operators of a part of the model that is not in ``graph``; ``None`` if not known.
    """

    graph: Graph
    target: Target
    expected: Expected
    precision: str = "fp32"
    keep_fp32: Sequence[str] = ()
    elsewhere: Collection[str] | None = ()


@dataclass(frozen=True, slots=True)
class KernelPass:
    """A function from steps to steps. ``wanted`` says whether it runs for a target and a precision."""

    name: str
    run: Callable[[Steps, Setting], Steps]
    wanted: Callable[[Target, str], bool] = lambda target, precision: True


def run_kernel_passes(
    steps: Sequence[Step],
    passes: Sequence[KernelPass],
    setting: Setting,
    observer: Callable[[PassRecord], None] | None = None,
    watch: Callable[[str, Steps], None] | None = None,
    part: str = "",
) -> Steps:
    """``steps`` after all ``passes``. Names of dumped files begin with ``part``.

    For ``observer``, ``watch`` and ``VerifyError`` see ``run_passes``."""
    form = Form(
        "kernels",
        format_steps,
        lambda found: verify_steps(found, setting.graph),
        _count,
        "partition",
        f"{part}kernels-",
    )

    def bound(one: KernelPass) -> Callable[[Steps], Steps]:
        def run(before: Steps) -> Steps:
            after = one.run(before, setting)
            return before if _same(before, after) else after

        return run

    return run_passes(list(steps), [(one.name, bound(one)) for one in passes], form, observer, watch)


def _same(before: Steps, after: Steps) -> bool:
    return len(before) == len(after) and all(one is other for one, other in zip(before, after, strict=True))


def _count(steps: Steps) -> int:
    return sum(isinstance(step, KernelStep) for step in steps)


def format_steps(steps: Sequence[Step], namer: Namer | None = None) -> str:
    """Every step as text: the values that it reads and writes, its kernel, and why fusion ends there."""
    namer = namer or Namer()
    return "\n".join(format_step(step, namer) for step in steps) + "\n"


def format_step(step: Step, namer: Namer) -> str:
    results, operands = (", ".join(map(namer, values)) for values in (step.outputs, step.inputs))
    if isinstance(step, HostStep):
        return f"{results} = host {step.node.op.name}({operands})"
    lines = [f"{results} = {step.kernel.label or step.kernel.family}({operands})"]
    lines += [f"  {line}" for line in step.kernel.text.splitlines()]
    return "\n".join([*lines, *([f"  ends: {step.why}"] if step.why else [])])
