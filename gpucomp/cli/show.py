"""Text of kernels, passes, memory and outputs. Everything here returns lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpucomp.artifact.open_plan import Place
from gpucomp.artifact.plan import WEIGHT
from gpucomp.cli.tables import Figure, note_facts, table
from gpucomp.errors import plain, quote, several
from gpucomp.ir.run_numbers import SIZE
from gpucomp.ir.types import type_of
from gpucomp.runtime.any_shape import AnyShapeExecutable
from gpucomp.runtime.executable import Executable
from gpucomp.runtime.kernel_info import KernelInfo, kernels_of

if TYPE_CHECKING:
    from gpucomp.cli.compare import Distance, Tolerance
    from gpucomp.dynamic.program import DynamicModel
    from gpucomp.frontend.onnx.loader import OpenGraph
    from gpucomp.ir.passes import PassRecord
    from gpucomp.schedule.choose import Choice

FORMULA = 60  # characters of a formula in a table


def size(nbytes: int) -> str:
    """``12.3 MiB``."""
    value, unit = float(nbytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.2f} {unit}"


def counted(names: Iterable[str]) -> str:
    """``Conv Relu*2``: in order of first appearance."""
    return " ".join(f"{n}*{c}" if c > 1 else n for n, c in Counter(names).items())


def kernels(infos: Sequence[KernelInfo]) -> list[str]:
    """One row for each launch: kernel, operators, schedule, who chose it, and why the kernel ends there."""
    rows = [
        (
            number,
            info.label or info.entry or info.name,
            info.family,
            counted(info.ops) or "-",
            " ".join(f"{name}={value}" for name, value in info.schedule.items()) or "-",
            info.tier or "-",
            " ".join(info.why.split()) or "-",
        )
        for number, info in enumerate(infos, start=1)
    ]
    return table(("#", "kernel", "family", "operators", "schedule", "tier", "why it ends there"), rows, "kernels")


def launch(number: int, of: int, info: KernelInfo, source: str = "") -> list[str]:
    """All that a compiled model knows of one launch, and the text of its kernel."""
    schedule = " ".join(f"{name}={value}" for name, value in info.schedule.items())
    facts = {
        "family": info.family,
        "operators": counted(info.ops),
        "nodes": " ".join(map(quote, info.nodes)),
        "schedule": f"{schedule} ({info.tier})" if schedule else "",
        "ends at": " ".join(info.why.split()),
    }
    title = f"kernel {number} of {of}: {plain(info.label or info.entry or info.name)}"
    text = "".join(c if c.isprintable() or c in "\n\t" else plain(c) for c in source)  # a file may have any source
    return [title, *(f"  {name:10} {plain(fact)}" for name, fact in facts.items() if fact), *text.splitlines()]


def without_record(choices: Sequence[Choice]) -> list[str]:
    """How many kernels no record was used for, though there are records, and how to see the reasons."""
    without = [choice for choice in choices if choice.passed_over and choice.pick is None]
    if not without:
        return []
    said = f"no record is used for {len(without)} of {len(choices)} kernels"
    return [f"{said}: --node NAME says why for one, --node '*' for all"]


def passes(records: Sequence[PassRecord]) -> list[str]:
    """One table for each pipeline, one row for each pass: its time, sizes before and after, and the rules that fired."""
    units = dict.fromkeys(record.unit for record in records)
    return [line for unit in units for line in _passes([r for r in records if r.unit == unit], unit)]


def _passes(records: Sequence[PassRecord], unit: str) -> list[str]:
    rows = [
        (
            number,
            record.name,
            f"{record.ms:.2f}",
            record.before,
            record.after,
            " ".join(f"{name}*{count}" for name, count in sorted(record.fired.items())) or "-",
        )
        for number, record in enumerate(records, start=1)
    ]
    return table(("#", "pass", "ms", unit, "after", "rules that fired"), rows, f"passes over {unit}")


def memory(exe: Executable) -> list[str]:
    """The arena beside its lower bound, the weights, and the peak."""
    plan = exe.plan
    weights = sum(b.nbytes for b in plan.buffers if b.kind == WEIGHT)
    ratio = f", {plan.arena_bytes / plan.live_bytes:.3f} of the largest live set" if plan.live_bytes else ""
    return [
        f"arena     {size(plan.arena_bytes)} ({plan.arena_bytes} bytes{ratio})",
        f"weights   {size(weights)} ({weights} bytes)",
        f"peak      {size(exe.peak_bytes)} (arena, weights, inputs, outputs)",
    ]


def summary(exe: Executable) -> list[str]:
    """The compiled model in about a dozen lines."""
    if isinstance(exe, AnyShapeExecutable):
        return open_summary(exe)
    infos = exe.kernels
    families = counted(info.family for info in infos)
    host = [info for info in infos if info.family == "host"]
    lines = [
        f"model     {quote(exe.plan.model)}",
        f"target    {exe.target} ({exe.plan.arch})",
        *([f"precision {exe.plan.precision}"] if exe.plan.precision != "fp32" else []),
        *(f"input     {spec}" for spec in exe.inputs),
        *(f"output    {spec}" for spec in exe.outputs),
        *states(exe),
        f"kernels   {len(infos)}: {families}" if infos else "kernels   0",
        *memory(exe),
    ]
    if host:
        lines.append(f"host      {several(len(host), 'operator')} on the host: {counted(info.label for info in host)}")
    if exe.dynamic_operators:
        lines.append(
            f"dynamic   {several(len(exe.dynamic_operators), 'operator')} behind data-dependent shapes on the host, by numpy: "
            f"{counted(op for op, _ in exe.dynamic_operators)}"
        )
    return lines


def states(exe: Executable) -> list[str]:
    """What a context keeps from run to run, a line for those that are alike."""
    found: dict[str, list[str]] = {}
    for one in exe.states:
        room = f", room for {several(one.capacity, 'row')}" if one.grows else ""
        found.setdefault(f"{one.dtype} in place{room}" if one.in_place else f"made anew: {one.why}", []).append(
            one.name
        )
    return [
        f"state     {plain(names[0])}{f' and {len(names) - 1} more' if names[1:] else ''} {how}"
        for how, names in found.items()
    ]


def open_summary(exe: AnyShapeExecutable) -> list[str]:
    """A compiled model for any sizes: its dimensions, and the conditions that sizes must meet."""
    contents = exe.contents()
    assert contents.open is not None
    plan, opened = contents.plan, contents.open.plan
    infos = kernels_of(plan)
    weights = sum(b.nbytes for b in plan.buffers if b.kind == WEIGHT)
    where = dict.fromkeys(opened.condition_text(*condition) for condition in opened.conditions)
    return [
        f"model     {quote(plan.model)}",
        f"target    {exe.target} ({plan.arch})",
        *([f"precision {plan.precision}"] if plan.precision != "fp32" else []),
        *(f"size      {plain(name)}: {dim.range}, says {exe.said(name)}" for name, dim in exe.dims.items()),
        *(f"where     {plain(condition)}" for condition in where),
        *(f"input     {plain(spec)}" for spec in exe.inputs),
        *(f"output    {plain(spec)}" for spec in exe.outputs),
        *states(exe),
        f"kernels   {len(infos)}: {counted(info.family for info in infos)}" if infos else "kernels   0",
        *([f"variants  {several(len(opened.choices), 'kernel')} chosen by the sizes"] if opened.choices else []),
        *(f"fixed     a program for {_sizes(sizes)}" for sizes, _ in contents.fixed),
        f"arena     {size(plan.arena_bytes)} ({plan.arena_bytes} bytes) at {_sizes(contents.open.example)}",
        f"weights   {size(weights)} ({weights} bytes)",
    ]


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{plain(name)}={number}" for name, number in sizes.items())


def open_kernels(exe: AnyShapeExecutable) -> list[str]:
    """The rows of ``kernels``, each with how many tasks there are and the numbers that a run gives it, then the long formulas."""
    contents = exe.contents()
    assert contents.open is not None
    plan, formulas = contents.plan, contents.open.plan.formulas
    texts = [text if len(text) <= FORMULA else f"#{k}" for k, text in enumerate(formulas.texts)]

    def told(number: Any) -> str:
        return texts[number.number] if isinstance(number, Place) else str(number)

    rows = []
    for number, (launch, info) in enumerate(zip(plan.launches, kernels_of(plan), strict=True), start=1):
        kernel = plan.kernels[launch.kernel] if launch.kernel >= 0 else None
        pairs: Any = kernel.numbers if kernel else ()
        given = dict.fromkeys(f"{'' if kind == SIZE else kind + ' '}{texts[place]}" for kind, place in pairs)
        rows.append(
            (
                number,
                info.label or info.entry or info.name,
                info.family,
                counted(info.ops) or "-",
                " x ".join(told(n) for n in kernel.groups if n != 1) or "1" if kernel else "-",
                "; ".join(given) or "-",
            )
        )
    lines = table(("#", "kernel", "family", "operators", "tasks", "numbers of a run"), rows, "kernels")
    long = [f"#{k} = {plain(text)}" for k, text in enumerate(formulas.texts) if len(text) > FORMULA]
    return [*lines, *long]


def variants(exe: AnyShapeExecutable) -> list[str]:
    """A row for each schedule of the kernels that have several: where it is used, who chose it, and the largest regret.

    The regret is the predicted ratio to the fastest schedule that is known for some sizes, the same for all rows of a kernel.
    """
    contents = exe.contents()
    assert contents.open is not None
    opened = contents.open.plan
    rows = []
    for choices in opened.choices:
        sizes, regret = max(choices.regrets, key=lambda each: each[1], default=((), 1.0))
        where = " ".join(f"{plain(name)}={size}" for name, size in zip(exe.dims, sizes, strict=False))
        places = ranges(opened.formulas.texts[choices.points], choices.starts)
        for used, number in zip(places, choices.kernels, strict=True):
            kernel = opened.plan.kernels[number]
            schedule = " ".join(f"{name}={value}" for name, value in kernel.schedule.items()) or "-"
            label = kernel.label or kernel.name
            rows.append(
                (
                    label,
                    used,
                    schedule,
                    kernel.tier or "-",
                    Figure(regret, ".2f"),
                    where or "-",
                )
            )
    if not rows:
        return ["every kernel has one schedule for all sizes"]
    return table(("kernel", "used where", "schedule", "tier", "regret", "largest at"), rows, "variants")


def ranges(text: str, starts: Sequence[int]) -> list[str]:
    """``b < 19``, ``19 <= b < 300``, ``b >= 300``: where a formula is from each start to the next."""
    ends = [*starts[1:], None]
    found = []
    for k, (start, end) in enumerate(zip(starts, ends, strict=True)):
        low, high = (f"{start} <= " if k else ""), ("" if end is None else f" < {end}")
        found.append(f"{low}{text}{high}" if high else f"{text} >= {start}")
    return found


def free_sizes(opened: OpenGraph) -> list[str]:
    """The dimensions whose size each run decides, the outputs' shapes as formulas of them, and where these are right."""
    shapes, varying = opened.shapes, opened.varying()
    lines = []
    for name, dim in shapes.dims.items():
        places = [f"{quote(i)}" for i, shape in shapes.shapes.items() if dim in shape]
        fixed = (
            ""
            if name in varying
            else "; each size is another graph, because of a loop, or of a shape without a formula"
        )
        lines.append(f"{plain(name)}: {dim.range}, in {', '.join(places)}, says {shapes.said[name]}{fixed}")
    if varying == set(shapes.dims):
        outputs = zip(opened.graph.output_names, opened.graph.outputs, strict=True)
        lines += [f"output {plain(name)}: {plain(value.type)}" for name, value in outputs]
        lines += [f"where {plain(condition)}" for condition in opened.conditions.texts()]
    return lines


def dynamic_operators(model: DynamicModel) -> list[str]:
    """The nodes whose result shapes depend on values, and a count of the nodes behind them."""
    behind = list(model.operators)
    lines = []
    for op, name in model.first:
        what = "which branch runs" if op == "If" else "the shape of its result"
        lines.append(f"{op} at node {quote(name)}: {what} depends on values")
        behind.remove((op, name))
    if behind:
        lines.append(f"operators that read such results ({len(behind)}): {counted(op for op, _ in behind)}")
    return [
        *lines,
        "all these run on the host, in numpy, because their shapes differ from run to run",
        "if only an input decides them, fix its value with --constants NAME=VALUE",
    ]


FEW = 3  # texts of a tensor that are printed


def tensor(name: str, array: np.ndarray | list[Any] | dict[Any, float] | None) -> str:
    """An output in one line: its type, its range and, for one row of scores, the five largest.

    A sequence has further lines, one for each of its tensors or maps. An optional without a value is ``nothing``.
    """
    if array is None:
        return f"{quote(name)} nothing"
    if isinstance(array, dict):
        first = " ".join(f"{quote(str(key))}: {number:.6g}" for key, number in list(array.items())[:FEW])
        return f"{quote(name)} {first}{' ...' if len(array) > FEW else ''}"
    if isinstance(array, list):
        own = [f"  {tensor(f'{name}[{k}]', item)}" for k, item in enumerate(array)]
        return "\n".join([f"{quote(name)} a sequence of {len(array)}", *own])
    line = f"{quote(name)} {type_of(array)}"
    if not array.size or array.dtype.kind == "b":
        return line
    if array.dtype.kind in "OSU":
        first = " ".join(quote(str(text)) for text in array.reshape(-1)[:FEW])
        return f"{line} {first}{' ...' if array.size > FEW else ''}"
    wide = array.astype(np.float64)
    with np.errstate(all="ignore"):
        line += f" min {wide.min():.6g} mean {wide.mean():.6g} max {wide.max():.6g}"
    if wide.ndim >= 1 and wide.shape[-1] == wide.size >= 5:
        scores = wide.reshape(-1)
        best = np.argsort(-scores, kind="stable")[:5]
        line += ", largest " + " ".join(f"[{k}]={scores[k]:.4g}" for k in best)
    return line


def errors(found: Mapping[str, Distance], tolerance: Tolerance, outputs: Mapping[str, Any]) -> list[str]:
    """One row for each output: how far it is off, and whether that is within the tolerance. Then those that have NaN.
    The verdict is about their other values."""
    columns = ("output", "relative L2 error", "root mean square", "largest")
    nans = {name: _nans(outputs[name]) for name in found}
    rows = [
        (
            quote(name),
            *(Figure(value, ".3e") for value in (far.l2, far.rms, far.linf)),
            nans[name][0],
            "ok" if tolerance.allows(far) else "WRONG",
        )
        for name, far in found.items()
    ]
    header = (*columns, "NaN", f"tolerance {tolerance}")
    lines = table(header, rows, "outputs", (*columns, "NaN", "verdict"))
    note_facts("tolerance", {"relative": tolerance.relative, "absolute": tolerance.absolute})
    for name, (count, size) in nans.items():
        if count:
            many = "all" if count == size else f"{count} of"
            both = ", in both results" if tolerance.allows(found[name]) else ""
            lines.append(f"output {quote(name)}: {many} {several(size, 'value')} NaN{both}")
    return lines


def _nans(output: object) -> tuple[int, int]:
    """How many values of an output are NaN, and how many there are; of a sequence, in all of its tensors."""
    if isinstance(output, list):
        found = [_nans(item) for item in output]
        return sum(count for count, _ in found), sum(size for _, size in found)
    if not isinstance(output, np.ndarray):
        return 0, 0
    exact = output.dtype.kind in "biuOSU"
    return 0 if exact else int(np.isnan(output.astype(np.float64)).sum()), output.size
