"""What became of each graph that Dynamo handed over."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import suppress
from dataclasses import field

from torch import fx
from torch._dynamo.utils import counters

from gpucomp.errors import several
from gpucomp.frontend.foreign.translations import place_of
from gpucomp.lazy_dataclass import dataclass
from gpucomp.runtime.executable import Executable
from gpucomp.torch.operators import Missing

MOST_GRAPHS = 1000  # the oldest are forgotten
MOST_NOTES = 20


@dataclass
class Part:
    """A part of a graph that was compiled. Seconds are those of the last compilation.

    ``nodes`` are operators of ATen, ``kernels`` launches of a run. ``dims`` are dimensions whose size each call decides.
    """

    nodes: int
    target: str = ""
    kernels: int = 0
    weights: int = 0
    dims: tuple[str, ...] = ()
    on_host: tuple[str, ...] = ()
    export_s: float = 0.0
    export_cached: bool = False
    compile_s: float = 0.0
    notes: Counter[str] = field(default_factory=Counter)

    def compiled(self, exe: Executable, seconds: float, weights: int) -> None:
        """Take over what is known of the executable."""
        self.target, self.compile_s, self.weights = exe.target, seconds, weights
        dims = getattr(exe, "dims", {})
        self.dims = tuple(f"{dim.name} {dim.range}" for dim in dims.values())
        if not dims:
            self.kernels = len(exe.kernels)
            self.on_host = tuple(sorted({operator for operator, _ in exe.dynamic_operators}))

    def note(self, text: str) -> None:
        if text in self.notes or len(self.notes) < MOST_NOTES:
            self.notes[text] += 1

    def __str__(self) -> str:
        export = "export from the cache" if self.export_cached else f"export {self.export_s:.2f} s"
        counts = [several(self.nodes, "operator"), several(self.weights, "weight")]
        counts += [several(self.kernels, "kernel")] * bool(self.kernels)
        lines = [f"{self.target}: {', '.join(counts)}; {export}, compilation {self.compile_s:.2f} s"]
        lines += [f"any size: {', '.join(self.dims)}"] * bool(self.dims)
        lines += [f"by numpy on the host: {', '.join(self.on_host)}"] * bool(self.on_host)
        lines += [f"{text} ({count} times)" if count > 1 else text for text, count in self.notes.items()]
        return "\n      ".join(lines)


@dataclass
class Graph:
    """One graph of Dynamo's. ``eager`` has why the rest of it, or all of it if there are no ``parts``, runs in eager."""

    number: int
    where: str
    nodes: int
    parts: list[Part] = field(default_factory=list)
    eager: list[Missing | str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def compiled(self) -> bool:
        """Whether all of it is compiled."""
        return bool(self.parts) and not self.eager

    def __str__(self) -> str:
        state = "compiled" if self.compiled else "compiled in part" if self.parts else "eager"
        at = f", {self.where}" if self.where else ""
        lines = [f"graph {self.number}: {state}, {several(self.nodes, 'node')}{at}; {self.seconds:.2f} s in all"]
        lines += [f"    {part}" for part in self.parts]
        reasons = Counter(map(str, self.eager))
        lines += [f"    eager: {why}{f' ({count} times)' if count > 1 else ''}" for why, count in reasons.items()]
        return "\n".join(lines)


@dataclass(frozen=True)
class Report:
    """Every graph so far, and why Dynamo ended graphs early, with the number of times. ``print`` it."""

    graphs: tuple[Graph, ...]
    breaks: dict[str, int]

    def __str__(self) -> str:
        whole = sum(graph.compiled for graph in self.graphs)
        part = sum(bool(graph.parts) and not graph.compiled for graph in self.graphs)
        counts = f"{whole} compiled, {part} compiled in part, {len(self.graphs) - whole - part} eager"
        broken = several(sum(self.breaks.values()), "graph break")
        lines = [f"{several(len(self.graphs), 'graph')}: {counts}; {broken}"]
        lines += map(str, self.graphs)
        lines += [f"break: {' '.join(why.split())[:200]} ({count})" for why, count in self.breaks.items()]
        return "\n".join(lines)


_graphs: list[Graph] = []  # torch makes the calls: there is no object of the user's to keep them in
_lock = threading.Lock()
_made = 0


def begin(module: fx.GraphModule) -> Graph:
    """A new entry for a graph."""
    global _made
    nodes = [node for node in module.graph.nodes if node.op.startswith("call_")]
    with _lock:
        _made += 1
        graph = Graph(_made, _place(module), len(nodes))
        _graphs.append(graph)
        del _graphs[:-MOST_GRAPHS]
    return graph


def _place(module: fx.GraphModule) -> str:
    return next((place for node in module.graph.nodes if (place := place_of(node))), "")


def withdraw(graph: Graph) -> None:
    """Forget a graph that Dynamo will hand over again in another form."""
    with _lock, suppress(ValueError):  # another thread may have called ``reset``
        _graphs.remove(graph)


def report() -> Report:
    """What became of each graph that ``torch.compile`` handed over since the start, or since ``torch.compiler.reset``."""
    with _lock:
        return Report(tuple(_graphs), dict(counters["graph_break"]))


def reset() -> None:
    """Forget all graphs; ``torch.compiler.reset`` calls it."""
    with _lock:
        _graphs.clear()
