"""Finds the stage of the compiler that makes a small model wrong: the import, a pass, a kernel, or the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from gpucomp import compiler, targets
from gpucomp.cli import compare
from gpucomp.cli.cut import Case
from gpucomp.compiler import Lowered
from gpucomp.device.target import Target
from gpucomp.errors import GpucompError
from gpucomp.frontend import onnx as frontend
from gpucomp.ir.graph import Constant, Graph, Value, input_value
from gpucomp.ir.types import TensorType
from gpucomp.kernel.interpreter import run_steps, update
from gpucomp.kernel.passes.precision import KernelStorage
from gpucomp.kernel.repeat import apart
from gpucomp.kernel.step import BETWEEN, KernelStep, Step
from gpucomp.lazy_dataclass import dataclass
from gpucomp.lowering import wanted_passes as wanted_kernel_passes
from gpucomp.ops.interpreter import evaluate, interpret
from gpucomp.planning import make_plan
from gpucomp.report.journey import Journey
from gpucomp.rewrite.pipeline import wanted_passes
from gpucomp.rewrite.rounding import Rounding
from gpucomp.rewrite.rule import counting
from gpucomp.runtime.executable import Executable
from gpucomp.schedule.scheduled import Scheduled

IMPORT, PASS, KERNEL, PLAN = "import", "pass", "kernel", "plan"
FAILURE, ROUNDING = "failure", "rounding"  # an error of the compiler; nothing is wrong
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Alone:
    """A group of steps that write the same values, as a program of its own, with its inputs and expected outputs."""

    executable: Executable
    inputs: Arrays
    expected: Arrays


@dataclass(frozen=True)
class Blame:
    """``stage`` is one of ``IMPORT``, ``PASS``, ``KERNEL``, ``PLAN``, ``FAILURE`` and ``ROUNDING``.

    ``name`` is the name of the pass or of the kernels, the error's message, or where the two programs rounded differently.

    ``fired`` are the rules that the pass applied, ``without`` is the verdict with each pass switched off, and ``alone`` is
    the wrong kernel as a program of its own.
    """

    stage: str
    name: str = ""
    fired: Mapping[str, int] = field(default_factory=dict)
    without: Mapping[str, str] = field(default_factory=dict)
    alone: Alone | None = None


def blame(
    case: Case, target: Target, precision: str, tolerance: compare.Tolerance, constants: Arrays | None = None
) -> Blame:
    """Find the first stage with a wrong result. Graphs and kernels run in the numpy interpreters, sources on the device.

    ``constants`` are the model's inputs that are fixed at compile time; ``case.inputs`` are the others.
    """
    fixed = constants or {}
    graph = frontend.load(case.model, constants=fixed)
    if not _keeps(graph, case, tolerance):
        return Blame(IMPORT)
    passes = wanted_passes(target, None, Rounding(precision), KernelStorage(target))
    without = {p.name: _verdict(case, target, precision, tolerance, fixed, pipeline=_but(passes, p)) for p in passes}
    for one in passes:
        with counting() as fired:
            graph = one.run(graph)
        if not _keeps(graph, case, tolerance):
            return Blame(PASS, one.name, dict(fired), without)
    of_kernels = wanted_kernel_passes(target, precision)
    without |= {
        p.name: _verdict(case, target, precision, tolerance, fixed, kernel_passes=_but(of_kernels, p))
        for p in of_kernels
    }
    journey = Journey()
    lowered = compiler.lower(case.model, target, constants=fixed, precision=precision, watch=journey.watch)
    for name, steps in _stages(journey):
        if not _agrees(lowered.graph, run_steps(lowered.graph, steps, case.inputs), case, tolerance):
            return Blame(PASS, name, without=without)
    for name, alone in _groups(lowered, target, precision, case.inputs):
        found = alone.executable.run(alone.inputs)
        if compare.wrong(compare.distances(found, alone.expected), tolerance):
            return Blame(KERNEL, name, without=without, alone=alone)
    return Blame(PLAN, without=without)


def _keeps(graph: Graph, case: Case, tolerance: compare.Tolerance) -> bool:
    return _agrees(graph, interpret(graph, case.inputs), case, tolerance)


def _agrees(graph: Graph, outputs: Sequence[np.ndarray], case: Case, tolerance: compare.Tolerance) -> bool:
    found = dict(zip(graph.output_names, outputs, strict=True))
    return not compare.wrong(compare.distances(found, case.expected), tolerance)


def _stages(journey: Journey) -> Iterator[tuple[str, Sequence[Step]]]:
    """The partition, and every pass that changed kernels, before a schedule was chosen or after; each with its steps."""
    yield "partition", journey.first_steps
    for stage in journey.kernels:
        if stage.after != stage.before:
            yield stage.name, stage.after
    for finish in journey.scheduled:
        if finish.after != finish.before:
            made: dict[tuple[object, ...], Value] = {}
            yield finish.name, [item.launched(made) if isinstance(item, Scheduled) else item for item in finish.after]


def _but(passes: Sequence[Any], one: Any) -> list[Any]:
    return [p for p in passes if p is not one]


def _verdict(
    case: Case, target: Target, precision: str, tolerance: compare.Tolerance, fixed: Arrays, **passes: Any
) -> str:
    """``right``, ``wrong``, or why the model cannot be compiled with only these ``passes``."""
    try:
        lowered = compiler.lower(case.model, target, constants=fixed, precision=precision, **passes)
        found = compiler.finish(lowered, target, precision, compiler.silent).run(case.inputs)
    except (GpucompError, AssertionError) as error:  # the rest of the compiler needs the pass that is missing
        return f"cannot be compiled: {error}"
    return "wrong" if compare.wrong(compare.distances(found, case.expected), tolerance) else "right"


def _groups(lowered: Lowered, target: Target, precision: str, given: Arrays) -> list[tuple[str, Alone]]:
    """Every kernel as a program of its own; kernels that write the same value are one group. The interpreter computes the
    operands and the expected results."""
    graph, steps = lowered.graph, [s for s in apart(lowered.steps) if isinstance(s, KernelStep)]
    values = list(dict.fromkeys(v for step in steps for v in (*step.inputs, *step.outputs) if v.op is not Constant))
    known = [v for v in values if v.op is not BETWEEN]
    arrays = dict(zip(known, evaluate(known, {v: given[v.attrs["label"]] for v in graph.inputs}), strict=True))
    for step in steps:
        if any(v.op is BETWEEN for v in step.outputs):  # which only kernels compute
            operands = [arrays[v] if v.op is not Constant else v.attrs["value"] for v in step.inputs]
            results = [np.zeros(t.shape, t.dtype.numpy) for t in step.kernel.params[step.kernel.inputs :]]
            update(step.kernel, operands, results)
            arrays |= {v: r for v, r in zip(step.outputs, results, strict=True) if v.op is BETWEEN}
    found = []
    for group in _together(steps):
        name = ", ".join(step.kernel.label or step.name for step in group)
        found.append((name, _alone(group, lowered, target, precision, arrays)))
    return found


def _together(steps: Sequence[KernelStep]) -> list[list[KernelStep]]:
    """Group the steps that write parts of the same value."""
    groups: list[list[KernelStep]] = []
    for step in steps:
        mine = [g for g in groups if any(v in other.outputs for other in g for v in step.outputs)]
        groups = [g for g in groups if g not in mine] + [[s for g in mine for s in g] + [step]]
    return groups


def _alone(
    group: Sequence[KernelStep], lowered: Lowered, target: Target, precision: str, arrays: Mapping[Value, np.ndarray]
) -> Alone:
    """Inputs and outputs have the types that the kernels were made for, which may be narrower than those in the graph."""
    types = _types(lowered)
    stand_in: dict[Value, Value] = {}
    inputs: dict[str, np.ndarray] = {}
    expected: dict[str, np.ndarray] = {}
    for step in group:
        for value in step.outputs:
            if value not in stand_in:
                type = types[value]
                stand_in[value] = input_value(f"out{len(expected)}", type)
                expected[f"out{len(expected)}"] = arrays[value].astype(type.dtype.numpy).reshape(type.shape)
    for step in group:
        for value in step.inputs:
            if value.op is not Constant and value not in stand_in:
                type = types[value]
                stand_in[value] = input_value(f"in{len(inputs)}", type)
                inputs[f"in{len(inputs)}"] = arrays[value].astype(type.dtype.numpy).reshape(type.shape)
    steps = [
        replace(
            step,
            inputs=tuple(stand_in.get(v, v) for v in step.inputs),
            outputs=tuple(stand_in[v] for v in step.outputs),
        )
        for step in group
    ]
    ends = {v.attrs["label"]: v for v in stand_in.values()}
    graph = Graph(
        tuple(ends[name] for name in inputs), tuple(ends[name] for name in expected), tuple(expected), "alone"
    )
    rendered = {new: lowered.rendered[old] for new, old in zip(steps, group, strict=True)}
    plan, weights = make_plan(graph, steps, rendered, target, precision)
    sources = {item.source.name: item.source for item in rendered.values()}
    binaries = targets.build(plan, list(sources.values()), target, compiler.silent)
    texts = {kernel.source: sources[kernel.name].text for kernel in plan.kernels}
    return Alone(Executable(plan, texts, binaries, weights), inputs, expected)


def _types(lowered: Lowered) -> dict[Value, TensorType]:
    """The type of every value between kernels; a rendered kernel may see its bytes by words."""
    steps = [step for step in lowered.unpacked if isinstance(step, KernelStep)]
    return {v: t for s in steps for v, t in zip((*s.inputs, *s.outputs), s.kernel.params, strict=True)}
