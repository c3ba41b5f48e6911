"""The page of ``inspect --graph -o``: kernels as boxes, with the nodes that are fused in each, and what they read and write.

It has pan and search, and loads nothing. Nodes of the model that no kernel computes are found by the search too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from itertools import pairwise

from gpucomp.compiler import Lowered
from gpucomp.errors import several
from gpucomp.frontend.onnx.loader import Named
from gpucomp.ir.graph import Constant, Node, Value
from gpucomp.kernel.step import HostStep, KernelStep, RepeatStep, Step
from gpucomp.lazy_dataclass import dataclass
from gpucomp.report import page
from gpucomp.report.journey import Journey
from gpucomp.report.layered import layout
from gpucomp.report.page import COLOURS, line, shown

WIDE, ROW, PAD = 280, 17, 8  # pixels of a box, of a line in it, of its edge
LETTERS = 38  # that fit on a line
MOST_ROWS = 14  # of nodes in a box; the panel beside the graph lists all
Line = tuple[str, str]  # style and text
CONTROLS = """<input id="find" type="search" placeholder="Find a node, kernel or operator" aria-label="Find"
autocomplete="off" spellcheck="false"><span class="buttons"><button id="out" title="smaller">−</button><button id="in"
title="larger">+</button><button id="fit">fit</button></span>"""
PANEL = """<aside id="panel"><p class="hint">Choose a kernel to see what it is made of. Drag to move, Ctrl and the wheel to
zoom.</p></aside>"""


@dataclass
class Box:
    """A kernel, an input or an output. ``facts`` and ``nodes`` are what the panel shows.

    A node is its operator, its type, whether it is computed while operands are read, and the names in the model.
    """

    head: str
    kind: str
    sizes: str = ""  # of its operands, a part of the kernel's label
    lines: list[Line] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)
    nodes: list[tuple[str, str, bool, list[str]]] = field(default_factory=list)

    @property
    def title(self) -> str:
        return f"{self.head} {self.sizes}".strip()

    @property
    def size(self) -> tuple[float, float]:
        return WIDE, ROW * (len(self.lines) + 1) + 2 * PAD


def text(
    lowered: Lowered, journey: Journey, model: str, target: str, nodes: Sequence[Named], elsewhere: Iterable[str] = ()
) -> str:
    """The page. ``nodes`` are the model's, and ``elsewhere`` names those that numpy runs on the host in each run."""
    boxes, edges = _boxes(lowered, journey)
    kinds = list(dict.fromkeys(box.kind for box in boxes))
    title = f"Graph of {line(model)}"
    inside = {name for box in boxes for *_, names in box.nodes for name in names}
    apart = frozenset(elsewhere)
    left = [
        (node.op, node.name, "on the host: its shape depends on values" if node.name in apart else "")
        for node in nodes
        if node.name not in inside
    ]
    kernels = sum(isinstance(step, KernelStep) for step in lowered.unpacked)
    about = f"{several(len(nodes), 'node')} of the model, {several(kernels, 'kernel')} for {target}"
    loops = sum(isinstance(step, RepeatStep) for step in lowered.unpacked)
    if host := len(lowered.unpacked) - kernels - loops:
        about += f", {several(host, 'operator')} on the host"
    values = {
        "boxes": [
            {
                "title": line(b.title),
                "head": line(b.head),
                "facts": [(k, line(v, 2000)) for k, v in b.facts],
                "nodes": [(op, kind, early, [line(n) for n in names]) for op, kind, early, names in b.nodes],
            }
            for b in boxes
        ],
        "edges": edges,
        "left": [(line(op), line(name), why) for op, name, why in left],
    }
    body = [
        f"<header><div><h1>{shown(title)}</h1><p>{shown(about)}</p></div>{CONTROLS}{_legend(kinds)}</header>",
        f'<main><div id="view" tabindex="0">{_drawing(boxes, edges, kinds)}</div>{PANEL}</main>',
        page.data("graph-data", values),
    ]
    return page.page(title, body, sheets=("graph.css",), script="graph.js")


def _boxes(lowered: Lowered, journey: Journey) -> tuple[list[Box], list[tuple[int, int]]]:
    """Inputs, kernels in the order of launch, and outputs, with the edges between them."""
    boxes, edges = list[Box](), list[tuple[int, int]]()
    writers: dict[Value, list[int]] = {}  # several if each writes a part
    for value in lowered.graph.inputs:
        writers[value] = [len(boxes)]
        boxes.append(_end("input", value.attrs["label"], value))
    for number, (plain, step) in enumerate(zip(lowered.unpacked, lowered.steps, strict=True), start=1):
        edges += [(writer, len(boxes)) for v in plain.inputs for writer in writers.get(v, ())]
        for value in plain.outputs:
            earlier = [] if value in plain.inputs else writers.get(value, [])
            writers[value] = [*earlier, len(boxes)]
        boxes.append(_kernel(number, plain, step, lowered, journey))
    for name, value in zip(lowered.graph.output_names, lowered.graph.outputs, strict=True):
        edges += [(writer, len(boxes)) for writer in writers.get(value, ())]
        boxes.append(_end("output", name, value))
    return boxes, sorted(set(edges))


def _end(kind: str, name: str, value: Value) -> Box:
    return Box(name, kind, "", [("soft", str(value.type))], [("kind", kind), ("type", str(value.type))])


def _kernel(number: int, plain: Step, step: Step, lowered: Lowered, journey: Journey) -> Box:
    weights = [str(v.type) for v in plain.inputs if v.op is Constant]
    facts = [
        ("reads", ", ".join(str(v.type) for v in plain.inputs if v.op is not Constant)),
        ("weights", ", ".join(weights)),
        ("writes", ", ".join(str(v.type) for v in plain.outputs)),
    ]
    if isinstance(step, RepeatStep):
        which = ", the first step" if step.after else ", all but the first step" if step.before else ""
        times = f"{step.count} times the next {step.length} kernels{which}"
        box = Box(f"{number} loop", "host", facts=[("runs", times), *facts])
    elif isinstance(plain, HostStep) or isinstance(step, HostStep):
        box = Box(f"{number} {plain.nodes[0].op.name}", "host", facts=[("runs", "on the host, by numpy"), *facts])
    else:
        rendered = lowered.rendered[step]
        schedule = " ".join(f"{k}={v}" for k, v in rendered.choice.schedule.items())
        name, _, sizes = (plain.kernel.label or plain.kernel.family).partition(" ")
        box = Box(
            f"{number} {name}",
            plain.kernel.family,
            sizes,
            facts=[
                ("kernel", step.name),
                ("engine", rendered.choice.family.title),
                ("schedule", schedule or "no parameters"),
                ("chosen by", rendered.choice.said),
                *facts,
            ],
        )
    box.facts.append(("ends because", plain.why))
    box.facts = [(name, value) for name, value in box.facts if value]
    box.nodes = [_node(node, journey, True) for node in plain.prologue]
    box.nodes += [_node(node, journey, False) for node in plain.nodes]
    box.lines = [("soft", box.sizes)] if box.sizes else []
    box.lines += [_row(op, early, names) for op, _, early, names in box.nodes[:MOST_ROWS]]
    if (more := len(box.nodes) - MOST_ROWS) > 0:
        box.lines.append(("soft", f"and {more} more"))
    if not box.nodes:
        box.lines.append(("soft", "a part of the next kernel"))
    box.lines.append(("soft", f"→ {', '.join(str(v.type) for v in plain.outputs)}"))
    return box


def _node(node: Node, journey: Journey, early: bool) -> tuple[str, str, bool, list[str]]:
    return node.op.name, ", ".join(map(str, node.types)), early, sorted(journey.made_of(node))


def _row(op: str, early: bool, names: Sequence[str]) -> Line:
    """The operator and the end of its first name, which tells more than its beginning."""
    more = f" +{len(names) - 1}" if len(names) > 1 else ""
    room = LETTERS - len(op) - len(more) - 2
    name = line(names[0][-2 * LETTERS :], 2 * LETTERS) if names else "added by a pass"
    name = name if len(name) <= room else f"…{name[len(name) - max(room, 4) + 1 :]}"
    return "early" if early else "node", f"{op}\t{name}{more}"


# the drawing -------------------------------------------------------------------------------------------------------


def _legend(kinds: Sequence[str]) -> str:
    signs = [
        f'<span><svg width="14" height="10"><rect width="14" height="10" rx="2" fill="{_ink(kind, kinds)}"/></svg>'
        f"{shown(kind, 30)}</span>"
        for kind in kinds
    ]
    early = "<span><em>Italic: computed while operands are read</em></span>"
    return f'<div class="legend">{"".join(signs)}{early}</div>'


def _ink(kind: str, kinds: Sequence[str]) -> str:
    drawn = [k for k in kinds if k not in ("input", "output")]
    # further kinds share the last colour
    return f"var(--c{min(drawn.index(kind), COLOURS - 1)})" if kind in drawn else "var(--soft)"


def _drawing(boxes: Sequence[Box], edges: Sequence[tuple[int, int]], kinds: Sequence[str]) -> str:
    found = layout([box.size for box in boxes], edges)
    wide, high = found.width + 40, found.height + 40
    paths = [f'<path class="e" data-e="{k}" d="{_path(points)}"/>' for k, points in enumerate(found.routes) if points]
    drawn = [
        _box(k, box, x, y, _ink(box.kind, kinds))
        for k, (box, (x, y)) in enumerate(zip(boxes, found.places, strict=True))
    ]
    return (
        f'<svg id="graph" width="{wide:.0f}" height="{high:.0f}" viewBox="-20 -20 {wide:.0f} {high:.0f}">'
        f'<g class="edges">{"".join(paths)}</g>{"".join(drawn)}</svg>'
    )


def _path(points: Sequence[tuple[float, float]]) -> str:
    parts = [f"M{points[0][0]:.0f} {points[0][1]:.0f}"]
    for (x, y), (a, b) in pairwise(points):
        half = (b - y) / 2
        parts.append(f"V{b:.0f}" if x == a else f"C{x:.0f} {y + half:.0f} {a:.0f} {b - half:.0f} {a:.0f} {b:.0f}")
    return "".join(parts)


def _box(number: int, box: Box, x: float, y: float, ink: str) -> str:
    wide, high = box.size
    rows = []
    for k, (style, words) in enumerate(box.lines):
        head, _, tail = words.partition("\t")
        inner = f"<tspan>{shown(head, LETTERS)}</tspan> {shown(tail, LETTERS)}" if tail else shown(head, LETTERS)
        rows.append(f'<text class="{style}" x="14" y="{PAD + ROW * (k + 2) - 4}">{inner}</text>')
    place, stripe = f'width="{wide}" height="{high}"', f'<rect class="stripe" width="5" height="{high}" fill="{ink}"/>'
    return (
        f'<g class="k" data-k="{number}" tabindex="0" role="button" transform="translate({x:.0f} {y:.0f})">'
        f'<rect {place} rx="5"/>{stripe}<svg {place}>'  # the inner one cuts long lines off
        f'<text class="title" x="14" y="{PAD + ROW - 4}">{shown(box.head, LETTERS)}</text>{"".join(rows)}</svg></g>'
    )
