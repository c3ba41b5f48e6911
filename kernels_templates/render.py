"""Renders (kernel, schedule, target) to source text, through one jinja2 environment.

Equal arguments give equal text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from jinja2 import BaseLoader, ChoiceLoader, Environment, PackageLoader, PrefixLoader, StrictUndefined

from gpucomp.codegen.c.arguments import MARK, in_texts, plain
from gpucomp.codegen.c.dialect import DIALECTS, Dialect
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.codegen.c.text import modulo, over, plus, stage, tidy, times
from gpucomp.device.target import Target
from gpucomp.errors import UnsupportedError, UsageError
from gpucomp.ir.size import Size
from gpucomp.kernel import Kernel
from gpucomp.kernel.example import has_sizes
from gpucomp.kernel.forms.row_statistics import read_again
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.source import KernelSource
from gpucomp.kernels_templates.engines import family_of
from gpucomp.schedule.space import MAX_GROUPS, Family, Schedule

SIZES = ({"name": MARK, "type": "", "access": "sizes"},)  # the last parameter, where each run gives numbers


class _Packages(dict[str, BaseLoader]):
    """The loaders of other packages, for templates that are called ``package:path``."""

    def __missing__(self, package: str) -> BaseLoader:
        self[package] = PackageLoader(package, "")
        return self[package]


@cache
def environment() -> Environment:
    """The only environment. A misspelt variable in a template is an error, not an empty string."""
    found = Environment(
        loader=ChoiceLoader([PackageLoader("gpucomp", "kernels_templates"), PrefixLoader(_Packages(), delimiter=":")]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    found.globals.update(plus=plus, times=times, over=over, modulo=modulo, staged=stage)
    return found


def render(kernel: Kernel, schedule: Schedule, target: Target, name: str, family: Family | None = None) -> KernelSource:
    """``render_scheduled`` for a kernel outside a model, after the passes ``pack-bytes`` and ``order-depth``.

    ``family`` is the engine of the schedule; by default the one that every device has.
    """
    family = family or family_of(kernel)
    return render_scheduled(family.in_memory_order(family.in_words(kernel)), schedule, target, name, family)


def render_scheduled(
    kernel: Kernel, schedule: Schedule, target: Target, name: str, family: Family | None = None
) -> KernelSource:
    """The source of ``kernel`` with ``schedule`` in the target's language; its entry point is called ``name``.

    ``kernel`` is the result of ``lowering.SCHEDULED_PASSES`` for ``family``; it is printed without further changes.
    Raises ``ScheduleError`` for a schedule that cannot run, ``UnsupportedError`` for arithmetic that the device lacks.
    """
    if target.language not in DIALECTS:
        raise UsageError(f"templates speak {', '.join(DIALECTS)}, not {target.language}", code="GPC2003")
    family, dialect = family or family_of(kernel), DIALECTS[target.language]
    if family.in_words(kernel) is not kernel or family.in_memory_order(kernel) is not kernel:
        raise TypeError(f"kernel {kernel.label or kernel.family}: the passes of {family.title} have not run on it")
    example = family.problem(kernel)
    family.require(schedule, example, target.limits)
    s = family.schedule(schedule)
    params = [(f"x{i}", t.dtype) for i, t in enumerate(kernel.params)]
    printer = CPrinter(dialect, params, target.features)
    any_size = has_sizes(kernel)
    problem = in_texts(printer.arguments, family.sizes(kernel)) if any_size else example
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
            params=[
                *_parameters(kernel, dialect, programmatic),
                *hooks.get("scratch", ()),
                *(SIZES if any_size else ()),
            ],
            wide="" if hooks["index"] == "int" else f"({hooks['index']})",
            helpers=list(printer.helpers.values()),
            waits=waits,
            **{**problem.numbers, **schedule, **derived.numbers, **hooks},
        )
    )
    if any_size:
        text = printer.arguments.placed(text)
    geometry = _plain(family.geometry(s, problem))
    text = _alone(text, geometry, target)
    header = _header(kernel, family, example.numbers, schedule, any_size)
    return KernelSource(
        name,
        target.language,
        header + tidy(text),
        geometry,
        dict(schedule),
        family.title,
        tensor_maps=hooks.get("tensor_maps", ()),
        programmatic=programmatic,
        sizes=printer.arguments.sizes,
    )


def _alone(text: str, geometry: Geometry, target: Target) -> str:
    """``text`` for a device, or a work-group, that runs one work-item at a time."""
    if target.limits.is_cpu and geometry.items[0] > 1:
        # PoCL puts loops over work-items around the text; if told to unroll inside, it writes past its own arrays
        text = re.sub(r"^ *#pragma unroll.*\n", "", text, flags=re.M)
    if target.language == "opencl" and geometry.items == (1, 1, 1):
        # a single work-item waits for nobody, and PoCL duplicates the code around a barrier many times
        text = re.sub(r"^ *barrier\(CLK_LOCAL_MEM_FENCE(?: \| CLK_GLOBAL_MEM_FENCE)?\);\n", "", text, flags=re.M)
    return text


def _plain(geometry: Geometry) -> Geometry:
    """``geometry`` with sizes in place of their texts. What a launch is limited to is a condition if it is not proved."""
    x, y, z = map(plain, geometry.groups)
    workspace, counters = plain(geometry.workspace_bytes), plain(geometry.counter_bytes)
    if isinstance(x, Size) and not x <= MAX_GROUPS:
        raise UnsupportedError(f"{x} work-groups, a launch has at most {MAX_GROUPS}", code="GPC4014")
    if isinstance(workspace, Size) and not workspace <= MAX_GROUPS:
        raise UnsupportedError(f"{workspace} bytes of partial results: more than 2 GiB", code="GPC4014")
    return replace(geometry, groups=(x, y, z), workspace_bytes=workspace, counter_bytes=counters)


def _parameters(kernel: Kernel, dialect: Dialect, programmatic: bool) -> list[dict[str, Any]]:
    """The parameters that templates declare. Inputs of a ``programmatic`` kernel are ``awaited``, except constants.

    Outputs that work-groups read back from each other are ``exchanged``: a compiler must not reuse values of them that
    it loaded before a fence.
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


def _header(kernel: Kernel, family: Family, problem: Mapping[str, int], schedule: Schedule, any_size: bool) -> str:
    """A comment for readers. Only letters of the label that cannot end the comment are kept."""
    label = re.sub(r"[^A-Za-z0-9 .,:+<>=_x\[\]()-]", "?", kernel.label) or kernel.family
    numbers = [" ".join(f"{k}={v}" for k, v in dict(group).items()) for group in (problem, schedule)]
    example = "  (an example: each run decides its sizes)" if any_size else ""
    return f"// {label}\n// problem   {numbers[0]}{example}\n// schedule  {numbers[1]}\n// engine    {family.title}\n\n"
