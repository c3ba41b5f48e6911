"""(kernel, schedule, target) to source text, through one jinja2 environment. A pure function: equal in, equal out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from jinja2 import BaseLoader, ChoiceLoader, Environment, PackageLoader, PrefixLoader, StrictUndefined

from gpucomp.codegen.c.dialect import DIALECTS, Dialect
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.codegen.c.text import modulo, over, plus, tidy, times
from gpucomp.device.target import Target
from gpucomp.errors import UsageError
from gpucomp.kernel import Kernel
from gpucomp.kernel.forms.row_statistics import read_again
from gpucomp.kernel.source import KernelSource
from gpucomp.kernels_templates.engines import family_of
from gpucomp.schedule.space import Family, Schedule


class _Packages(dict[str, BaseLoader]):
    """The loaders of other packages, for templates that are called ``package:path``."""

    def __missing__(self, package: str) -> BaseLoader:
        self[package] = PackageLoader(package, "")
        return self[package]


@cache
def environment() -> Environment:
    """The only environment: a misspelt variable in a template is an error, never an empty string."""
    found = Environment(
        loader=ChoiceLoader([PackageLoader("gpucomp", "kernels_templates"), PrefixLoader(_Packages(), delimiter=":")]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    found.globals.update(plus=plus, times=times, over=over, modulo=modulo)
    return found


def render(kernel: Kernel, schedule: Schedule, target: Target, name: str, family: Family | None = None) -> KernelSource:
    """``render_scheduled`` for a kernel that is in no model: after the passes ``pack-bytes`` and ``order-depth`` of its engine.

    ``family`` is the engine that the schedule is for; the one that every device has if there is none.
    """
    family = family or family_of(kernel)
    return render_scheduled(family.in_memory_order(family.in_words(kernel)), schedule, target, name, family)


def render_scheduled(
    kernel: Kernel, schedule: Schedule, target: Target, name: str, family: Family | None = None
) -> KernelSource:
    """The source of ``kernel`` with ``schedule`` in the target's language; its entry is called ``name``.

    ``kernel`` is what ``lowering.SCHEDULED_PASSES`` gave for ``family``, and it is printed as it is.

    Raises ``ScheduleError`` for a schedule that cannot run, ``UnsupportedError`` for arithmetic that the device lacks.
    """
    if target.language not in DIALECTS:
        raise UsageError(f"templates speak {', '.join(DIALECTS)}, not {target.language}", code="GPC2003")
    family, dialect = family or family_of(kernel), DIALECTS[target.language]
    if family.in_words(kernel) is not kernel or family.in_memory_order(kernel) is not kernel:
        raise TypeError(f"kernel {kernel.label or kernel.family}: the passes of {family.title} have not run on it")
    problem = family.problem(kernel)
    family.require(schedule, problem, target.limits)
    s = family.schedule(schedule)
    params = [(f"x{i}", t.dtype) for i, t in enumerate(kernel.params)]
    printer = CPrinter(dialect, params, target.features)
    derived = family.derive(s, problem)
    hooks = family.emit(kernel, printer, s, problem, derived)
    waits = "pdl" in target.features
    programmatic = hooks.get("programmatic", waits)
    text = (
        environment()
        .get_template(family.template)
        .render(
            dialect=dialect.template,
            name=name,
            params=[*_parameters(kernel, dialect, programmatic), *hooks.get("scratch", ())],
            wide="" if hooks["index"] == "int" else f"({hooks['index']})",
            helpers=list(printer.helpers.values()),
            waits=waits,
            **{**problem.numbers, **schedule, **derived.numbers, **hooks},
        )
    )
    geometry = family.geometry(s, problem)
    if target.limits.is_cpu and geometry.items[0] > 1:
        # a CPU's work-items are loops around the text: PoCL, told to unroll inside, writes past what it keeps for them
        text = re.sub(r"^ *#pragma unroll.*\n", "", text, flags=re.M)
    if target.language == "opencl" and geometry.items == (1, 1, 1):
        # alone in its work-group it waits for nobody; PoCL copies what stands around a barrier, many times over
        text = re.sub(r"^ *barrier\(CLK_LOCAL_MEM_FENCE(?: \| CLK_GLOBAL_MEM_FENCE)?\);\n", "", text, flags=re.M)
    header = _header(kernel, family, problem.numbers, schedule)
    return KernelSource(
        name,
        target.language,
        header + tidy(text),
        geometry,
        dict(schedule),
        family.title,
        tensor_maps=hooks.get("tensor_maps", ()),
        programmatic=programmatic,
    )


def _parameters(kernel: Kernel, dialect: Dialect, programmatic: bool) -> list[dict[str, Any]]:
    """What the templates declare. Inputs of a ``programmatic`` kernel are ``awaited``, but for constants.

    Outputs that work-groups read back from each other are ``exchanged``: no compiler may reckon with what it has seen of
    them before a fence.
    """
    exchanged = read_again(kernel)

    def access(number: int) -> str:
        if number >= kernel.inputs:
            return "exchanged" if number in exchanged else "written"
        return "awaited" if programmatic and number not in kernel.constants else "read"

    return [
        {"name": f"x{i}", "type": dialect.storage_type(t.dtype), "access": access(i)}
        for i, t in enumerate(kernel.params)
    ]


def _header(kernel: Kernel, family: Family, problem: Mapping[str, int], schedule: Schedule) -> str:
    """What this is, for a reader. A label is cut down to letters that cannot end the comment."""
    label = re.sub(r"[^A-Za-z0-9 .,:+<>=_x\[\]()-]", "?", kernel.label) or kernel.family
    numbers = [" ".join(f"{k}={v}" for k, v in dict(group).items()) for group in (problem, schedule)]
    return f"// {label}\n// problem   {numbers[0]}\n// schedule  {numbers[1]}\n// engine    {family.title}\n\n"
