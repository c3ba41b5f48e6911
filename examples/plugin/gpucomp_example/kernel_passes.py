"""A kernel pass: profiles and reports show which node of the model a kernel ends with."""

from collections.abc import Sequence
from dataclasses import replace

from gpucomp.kernel.pipeline import KernelPass, Setting
from gpucomp.kernel.step import KernelStep, Step


def name_kernels(steps: Sequence[Step], at: Setting) -> list[Step]:
    """Adds the name of the last node to a kernel's label.

    Takes  a kernel whose last node has a name
    Gives  the same kernel with another label, which changes neither its code nor its records
    Leaves kernels of nodes without a name, and operators on the host
    """
    return [_named(step) if isinstance(step, KernelStep) else step for step in steps]


def _named(step: KernelStep) -> KernelStep:
    name = step.nodes[-1].name if step.nodes else ""
    return replace(step, kernel=replace(step.kernel, label=f"{step.kernel.label} {name}")) if name else step


NAME_KERNELS = KernelPass("name-kernels", name_kernels)
