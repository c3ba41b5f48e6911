"""Text of ``inspect --node``: follows one node of a model to the text of its kernel. Everything here returns lines."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from gpucomp.cli.show import counted
from gpucomp.device.device import typical
from gpucomp.errors import ScheduleError, UsageError, quote
from gpucomp.ir.graph import Constant, Input, Node, Value
from gpucomp.ir.printer import MAX_ELEMENTS, Namer, format_attr, format_node
from gpucomp.kernel.pipeline import format_step
from gpucomp.kernel.step import KernelStep, RepeatStep
from gpucomp.report.journey import Change, Journey, changes, steps_of
from gpucomp.schedule import rank
from gpucomp.schedule.scheduled import Scheduled
from gpucomp.targets.back_end import engines_by_body

if TYPE_CHECKING:
    from gpucomp.compiler import Lowered
    from gpucomp.device.target import Target
    from gpucomp.frontend.onnx.loader import Named
    from gpucomp.kernel import Kernel
    from gpucomp.kernel.step import Step
    from gpucomp.planning import Rendered
    from gpucomp.schedule.space import Family

MOST_NODES = 16  # shown of a graph, before or after a pass
MOST_NAMES = 12
MOST_SHARERS = 8
TIERS: Mapping[str, str] = {
    "record": "it was measured for this very kernel on this device",
    "sibling": "it was measured for this very kernel on a similar device",
    "nearest": "it was measured for the most similar problem on such a device",
    "portfolio": "most records of such devices agree on it",
    "analytic": "the analytic model expects it to be clearly faster than the default",
    "estimates": "of the engines' defaults, it is the one that their estimates expect to be the fastest",
    "default": "no record answers, and no model predicts anything clearly faster: the engine's rule of thumb",
}


class Names(Namer):
    """Names values by the nodes that compute them. A value that replaces another one gets that one's name."""

    def __init__(self, stands_for: Mapping[Value, Value]) -> None:
        super().__init__()
        self._stands_for = stands_for

    def _invent(self, value: Value) -> str:
        if value in self._stands_for and value.op is not Constant:
            return self(self._stands_for[value])
        if value.op is Constant:
            array = value.attrs["value"]
            return format_attr(array) if array.size <= MAX_ELEMENTS and array.ndim < 2 else f"constant {value.type}"
        if value.op is Input or value.index or not value.node.name:
            return super()._invent(value)
        name, number = f"%{value.node.name}", 2
        while name in self._taken:
            name, number = f"%{value.node.name}.{number}", number + 1
        self._taken.add(name)
        return name


def chosen(pattern: str, found: Sequence[Named], model: Path) -> list[str]:
    """The names of the nodes that ``pattern`` names, by the node's name or an output's, or matches (``*`` and ``?``).

    Raises ``UsageError`` with similar names if there is none.
    """
    exact = [node.name for node in found if pattern in (node.name, *node.outputs)]
    matched = [n.name for n in found if any(fnmatchcase(text, pattern) for text in (n.name, *n.outputs))]
    if names := list(dict.fromkeys(exact or matched)):
        return names
    known = list(dict.fromkeys(text for node in found for text in (node.name, *node.outputs)))
    near = difflib.get_close_matches(pattern, known, n=5, cutoff=0.5)
    near = near or [text for text in known if pattern.lower() in text.lower()][:5]
    hint = f"; similar names: {', '.join(map(quote, near))}" if near else f"; the model has {len(found)} nodes"
    raise UsageError(
        f"--node {quote(pattern)}: no node or node output of {quote(model)} has this name{hint}", code="GPC2013"
    )


def of_node(
    name: str,
    found: Sequence[Named],
    journey: Journey,
    lowered: Lowered,
    target: Target,
    data_dependent: bool,
    source: bool,
) -> list[str]:
    """Everything about the model's nodes called ``name``, section by section; with ``source`` also the kernels' texts."""
    mine = [node for node in found if node.name == name]
    namer = Names(journey.stands_for)
    lines = [f"{node.op} {quote(name)} -> {', '.join(map(quote, node.outputs))}" for node in mine]
    start = journey.nodes_of(journey.start, [name])
    if not start:
        return [*lines, *_not_read(name, mine, journey, namer, data_dependent)]
    lines += ["", "As imported", *(f"  {text}" for text, _ in _listed(start, journey, namer))]
    found_changes = changes(journey, name)
    texts = [_change(change, journey, namer) for change in found_changes]
    lines += ["", f"Graph passes: {len(texts)} of {len(journey.graphs)} changed it"]
    for text in texts:
        lines += ["", *text]
    left = journey.nodes_of(lowered.graph, [name])
    if not any(node.op is not Constant for node in left):
        last = found_changes[-1] if found_changes else None
        return [*lines, "", *_gone(last, left, namer)]
    return lines + _kernels(left, journey, lowered, target, namer, source)


# the graph ---------------------------------------------------------------------------------------------------------


def _not_read(name: str, mine: Sequence[Named], journey: Journey, namer: Namer, data_dependent: bool) -> list[str]:
    if data_dependent:
        return ["", "Its shape depends on values: numpy runs it on the host, in each run"]
    constants = [n for n in journey.start.nodes() if n.op is Constant and n.name == name]
    if constants:
        return ["", f"It became a constant at import: {', '.join(str(n.types[0]) for n in constants)}"]
    return [
        "",
        "The imported graph has no node for it: its results were known at import, or are its operands,",
        "or no output of the model needs them (inspect --graph before shows the imported graph)",
    ]


def _listed(
    nodes: Sequence[Node], journey: Journey, namer: Namer, beside: frozenset[Node] = frozenset()
) -> list[tuple[str, list[str]]]:
    """Each node's line. If it is not just the node of its name, further lines say what it is made of."""
    found = []
    for node in nodes[:MOST_NODES]:
        names = sorted(journey.made_of(node))
        note = [f"made of {_names(names)}"] if names != [node.name] else []
        found.append((format_node(node, namer), ["made by the pass"] if node in beside else note))
    more = len(nodes) - MOST_NODES
    return [*found, (f"... and {more} more nodes", [])] if more > 0 else found


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def _change(change: Change, journey: Journey, namer: Namer) -> list[str]:
    """A change as a diff of the nodes. Notes on what a node is made of are those after the pass."""
    by = counted(name for name, count in sorted(change.rules.items()) for _ in range(count))
    old = dict(_listed(change.before, journey, namer))
    new = dict(_listed(change.after, journey, namer, change.beside))
    shown = []
    for text in (*old, *(text for text in new if text not in old)):
        mark = "    " if text in old and text in new else "  - " if text in old else "  + "
        shown += [f"{mark}{text}", *(f"        {note}" for note in new.get(text, ()))]
    head = f"{change.name}{f': {by}' if by else ''}{': equal nodes were merged' if change.shared else ''}"
    return [head, *shown, *([f"  = {namer(change.instead)} is read instead"] if change.instead is not None else [])]


def _gone(last: Change | None, left: Sequence[Node], namer: Namer) -> list[str]:
    if left:
        return [f"It is computed at compile time: {', '.join(str(n.types[0]) for n in left)}, a constant"]
    if last is not None and last.instead is not None:
        return [f"It is gone: {namer(last.instead)} replaces it"]
    return ["It is gone: no node reads its result any more"]


# kernels -----------------------------------------------------------------------------------------------------------


def _kernels(
    nodes: Sequence[Node], journey: Journey, lowered: Lowered, target: Target, namer: Namer, source: bool
) -> list[str]:
    first = steps_of(journey.first_steps, nodes)
    if not first:
        return ["", "No kernel computes it: no output of the model needs it"]
    lines = ["", "Kernels after partitioning"]
    for step in first:
        lines += _step(step, namer, "  ")
        lines += [f"  made of: {_made_of(step, journey)}"]
    changed = []
    for stage in journey.kernels:
        after = steps_of(stage.after, nodes)
        members = {n for step in after for n in (*step.nodes, *step.prologue)}
        mine, left = set(steps_of(stage.before, nodes)), set(stage.after)
        # kernels that became part of these; others that only store parts of the same Concat are still there
        before = [s for s in steps_of(stage.before, members.union(nodes)) if s in mine or s not in left]
        if len(before) != len(after) or any(a is not b for a, b in zip(before, after, strict=True)):
            old = [line for step in before for line in _step(step, namer, "")[: None if step in mine else 1]]
            new = [line for step in after for line in _step(step, namer, "")]
            if len(before) == len(after):
                diff = list(difflib.unified_diff(old, new, n=0, lineterm=""))[2:]
            else:  # the number of kernels changed: print the old ones, then the new ones
                diff = [*(f"-{line}" for line in old), *(f"+{line}" for line in new)]
            if diff:
                changed.append([stage.name, *(f"  {d[0]} {d[1:]}" for d in diff if not d.startswith("@@"))])
    lines += ["", f"Kernel passes: {len(changed)} of {len(journey.kernels)} changed it"]
    for text in changed:
        lines += ["", *text]
    plain = list(lowered.unpacked)
    for step in steps_of(plain, nodes):
        lines += ["", *_final(plain.index(step), journey, lowered, target, namer, source)]
    return lines


def _step(step: Step, namer: Namer, indent: str) -> list[str]:
    return [f"{indent}{line}" for line in format_step(step, namer).splitlines()]


def _made_of(step: Step, journey: Journey) -> str:
    nodes = (*step.prologue, *step.nodes)
    names = list(dict.fromkeys(name for node in nodes for name in sorted(journey.made_of(node))))
    others = counted(node.op.name for node in nodes if not journey.made_of(node))
    if not nodes:
        return "no whole node: it computes a part of the next kernel's nodes"
    return "; added by passes: ".join(text for text in (_names(names), others) if text)


def _final(number: int, journey: Journey, lowered: Lowered, target: Target, namer: Namer, source: bool) -> list[str]:
    step, plain = lowered.steps[number], lowered.unpacked[number]
    if isinstance(step, RepeatStep):
        return [f"A loop: the next {step.length} kernels run {step.count} times"]
    if not (isinstance(step, KernelStep) and isinstance(plain, KernelStep)):
        return [f"On the host: {step.why or 'numpy runs it'}"]
    rendered = lowered.rendered[step]
    found, tier = rendered.source, rendered.choice.tier
    if tier == "analytic" and rendered.choice.family.estimate is not None:
        tier = "estimates"  # the same tier, as ``choose`` has it for a CPU
    groups, items = ("x".join(map(str, axes)) for axes in (found.geometry.groups, found.geometry.items))
    schedule = " ".join(f"{k}={v}" for k, v in rendered.choice.schedule.items()) or "no parameters"
    lines = [
        f"Kernel {number + 1} of {len(lowered.steps)}: {step.name}, {plain.kernel.label or plain.kernel.family}",
        f"  made of   {_made_of(step, journey)}",
        f"  engine    {rendered.choice.family.title}",
        f"  schedule  {schedule}",
        f"  chosen by {rendered.choice.said}: {TIERS.get(tier, 'the device refused a larger one')}",
        *(f"  not by    {reason}" for reason in rendered.choice.passed_over),
        f"  launch    {groups} work-groups of {items}",
    ]
    if packed := "; ".join(_packed(plain, step)):
        lines.append(f"  packed    {packed}")
    lines += ["", "Engines for this kind of kernel, in order of preference"]
    lines += [*_engines(plain.kernel, rendered, target), "", *_finished(number, journey), ""]
    return lines + _source(number, lowered, rendered, source)


def _finished(number: int, journey: Journey) -> list[str]:
    """What each pass after the choice of a schedule did to the kernel, as a diff."""
    changed = []
    for stage in journey.scheduled:
        before, after = stage.before[number], stage.after[number]
        if isinstance(before, Scheduled) and isinstance(after, Scheduled) and before.kernel is not after.kernel:
            old, new = (one.kernel.text.splitlines() for one in (before, after))
            diff = [
                d for d in difflib.unified_diff(old, new, n=0, lineterm="") if not d.startswith(("@@", "---", "+++"))
            ]
            changed.append([stage.name, *(f"  {d[0]} {d[1:]}" for d in diff)])
    lines = [f"Passes after the choice: {len(changed)} of {len(journey.scheduled)} changed it"]
    for text in changed:
        lines += ["", *text]
    return lines


def _packed(plain: Step, packed: Step) -> Iterator[str]:
    for old in plain.inputs:
        if old not in packed.inputs:
            new = [v for v in packed.inputs if v not in plain.inputs]
            yield f"weights {old.type} laid out as {', '.join(str(v.type) for v in new)}"


def _engines(kernel: Kernel, rendered: Rendered, target: Target) -> list[str]:
    rows = []
    able = [f for f in engines_by_body(target.language)[type(kernel.body)] if not f.accepts(kernel, target.features)]
    expected = _expected(kernel, able, target)
    for family in engines_by_body(target.language)[type(kernel.body)]:
        reason = family.accepts(kernel, target.features)
        if reason:
            verdict = f"refused: {reason}"
        else:
            verdict = "chosen" if family is rendered.choice.family else "not chosen"
            verdict += f"; {expected[family.title]}" if family.title in expected else ""
        rows.append(f"  {family.title:28} {verdict}")
    return rows


def _expected(kernel: Kernel, able: Sequence[Family], target: Target) -> dict[str, str]:
    """What the models predict for the engines' default schedules, in words, or why a default cannot run."""
    found: dict[str, str] = {}
    problems = rank.problems(kernel, able)
    for family, problem in problems:
        try:
            schedule = family.default(problem, target.limits).numbers
        except ScheduleError as error:
            found[family.title] = f"its default cannot run: {error.message}"
            continue
        if reasons := family.reasons(schedule, problem, target.limits):
            found[family.title] = f"its default cannot run: {'; '.join(reasons)}"
        elif family.estimate is not None:
            us = family.estimate(family.schedule(schedule), problem, target.limits)
            found[family.title] = f"about {us:.1f} us with its default schedule"
    if not target.limits.is_cpu:
        like = target.device or typical(target.limits.units, dots=target.limits.dots)
        for one in rank.defaults(kernel, problems, target.limits, like):
            if math.isfinite(one.us):
                found[one.family.title] = f"about {one.us:.1f} us with its default schedule"
    return found


def _source(number: int, lowered: Lowered, rendered: Rendered, wanted: bool) -> list[str]:
    text = rendered.source.text.rstrip("\n").splitlines()
    sharers = [s.name for s, item in lowered.rendered.items() if item is rendered and s is not lowered.steps[number]]
    lines = [f"Source of {rendered.source.name}, {len(text)} lines of {rendered.source.language}"]
    if sharers:
        more = f" and {len(sharers) - MOST_SHARERS} more" if len(sharers) > MOST_SHARERS else ""
        lines.append(f"  also run by equal kernels: {', '.join(sharers[:MOST_SHARERS])}{more}")
    return [*lines, "", *text] if wanted else lines
