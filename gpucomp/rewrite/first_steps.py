"""Gives loops a first step of its own where its states are numbers that are known: mostly zeros, which need no products."""

from __future__ import annotations

from collections.abc import Sequence

from gpucomp import ops
from gpucomp.ir.graph import Constant, Graph, Input, Node, Value, input_value
from gpucomp.ir.size import bounds, is_one
from gpucomp.ir.trail import tell
from gpucomp.rewrite.bodies import with_attrs
from gpucomp.rewrite.match import splat
from gpucomp.rewrite.rule import Rule, apply_rules, substitute

MOST_STEPS = 64  # with more, the first one saves less than 2 %, and its kernels have to be compiled


def with_first_steps(graph: Graph, rules: Sequence[Rule]) -> Graph:
    """``graph`` with a ``first`` step in each loop that has fewer products there. The same object if there is none.

    So a recurrence that starts with zeros does not multiply them: of two steps of an LSTM, that is half of the work. ``rules``
    simplify it.
    """

    def changed(node: Node) -> dict[str, Graph]:
        first = _first_step(node, rules)
        return {} if first is None else {"first": first}

    return with_attrs(graph, changed)


def _first_step(node: Node, rules: Sequence[Rule]) -> Graph | None:
    """The body of a loop with its initial states, if that has fewer products; ``None`` also where no step may run."""
    if node.op is not ops.Repeat or node.attrs.get("first") is not None or is_one(node.attrs["count"]):
        return None
    if not 1 <= bounds(node.attrs["count"])[0] <= MOST_STEPS:
        return None
    body, states = node.attrs["body"], node.attrs["states"]
    known = {
        state: initial
        for state, initial in zip(body.inputs[:states], node.inputs[:states], strict=True)
        if splat(initial) is not None
    }
    if not known:
        return None
    first = apply_rules(substitute(body, known), rules)
    return _apart(first) if _products(first) < _products(body) else None


def _products(body: Graph) -> int:
    return sum(node.op is ops.MatMul for node in body.nodes())


def _apart(graph: Graph) -> Graph:
    """``graph`` of values that no other graph has: each of a step's values has memory of its own."""
    new: dict[Value, Value] = {v: input_value(v.attrs["label"], v.type) for v in graph.inputs}
    for node in graph.nodes():
        if node.op not in (Constant, Input):
            made = Node(node.op, tuple(new.get(v, v) for v in node.inputs), node.attrs, node.types, node.name)
            tell(node.values, made.values)
            new.update(zip(node.values, made.values, strict=True))
    return Graph(
        tuple(new[v] for v in graph.inputs), tuple(new.get(v, v) for v in graph.outputs), graph.output_names, graph.name
    )
