"""The rule engine: ``@rule`` makes a rewrite of one node, ``apply_rules`` runs rules to a fixed point. No rules are here.

A rule is a function ``node -> Value | Sequence[Value] | None`` with its equation as the docstring. Nodes are immutable,
so a rule that declined a node will always decline it. One walk in topological order therefore reaches the fixed point,
if it also visits the nodes that rules build. Only rules that depend on use counts need another walk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from inspect import signature

from gpucomp.errors import VerifyError
from gpucomp.ir.graph import Graph, Node, Op, Value
from gpucomp.ir.trail import tell
from gpucomp.ir.types import TensorType

Result = Value | Sequence[Value] | None
Uses = Callable[[Value], int]

MAX_SWEEPS = 100
FIRES_PER_NODE = 200


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A rewrite of nodes of the operators ``roots``, or of any operator when there are none.

    The function is given the node and, if it takes a second argument, ``uses``: how often a value is read by nodes
    and as a graph output. It returns what replaces the node (one value for each of its results) or ``None``.
    """

    name: str
    roots: tuple[Op, ...]
    function: Callable[..., Result]
    reads_uses: bool

    def __call__(self, node: Node, uses: Uses) -> Result:
        return self.function(node, uses) if self.reads_uses else self.function(node)


def rule(*roots: Op) -> Callable[[Callable[..., Result]], Rule]:
    """Decorator that makes a ``Rule``: ``@rule(ops.Transpose)``. ``Rule`` describes the function."""

    def make(function: Callable[..., Result]) -> Rule:
        return Rule(function.__name__, roots, function, len(signature(function).parameters) > 1)

    return make


_counter: ContextVar[Counter[str] | None] = ContextVar("fired", default=None)


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Count how often each rule fires in this block, by name."""
    fired: Counter[str] = Counter()
    token = _counter.set(fired)
    try:
        yield fired
    finally:
        _counter.reset(token)


def apply_rules(graph: Graph, rules: Sequence[Rule]) -> Graph:
    """Rewrite to a fixed point; earlier rules go first. Returns ``graph`` itself when no rule applies.

    Raises ``VerifyError`` if the rules reach no fixed point, or if a rule changes the type of a value.
    """
    rewriter = _Rewriter(graph, rules)
    for _ in range(MAX_SWEEPS):
        before, graph = graph, rewriter.sweep(graph)
        if graph is before or not rewriter.counts_matter:
            break
    else:
        names = ", ".join(r.name for r in rules)
        raise VerifyError(f"no fixed point after {MAX_SWEEPS} sweeps; two of these undo each other: {names}")
    if (counter := _counter.get()) is not None:
        counter.update(rewriter.fired)
    return graph


def substitute(graph: Graph, replaced: Mapping[Value, Value]) -> Graph:
    """``graph`` with first results of nodes replaced. A replacement may use only values that come before it."""
    result: dict[Value, Value] = {}

    def rebuilt(value: Value) -> Value:  # recursion is a few nodes deep: only what a rewrite built
        if value not in result and value.inputs:
            node = value.node.with_inputs([rebuilt(v) for v in value.inputs])
            _keep(value.node, node, result)
        return result.get(value, value)

    tell(list(replaced), list(replaced.values()))
    for node in graph.nodes():
        if node[0] in replaced:
            result[node[0]] = rebuilt(replaced[node[0]])
        else:
            _keep(node, node.with_inputs([result.get(v, v) for v in node.inputs]), result)
    return graph.with_outputs(result[v] for v in graph.outputs)


def _keep(old: Node, new: Node, result: dict[Value, Value]) -> None:
    """Record in ``result`` that ``new`` replaces ``old``. It is the same node, perhaps on other operands."""
    result.update(zip(old.values, new.values, strict=True))
    if new is not old:
        tell(old.values, new.values)


class _Rewriter:
    """The state of one call of ``apply_rules``: the replacements so far, and the current use counts."""

    def __init__(self, graph: Graph, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        self.counts_matter = any(r.reads_uses for r in rules)
        self.fired: Counter[str] = Counter()
        self._by_op: dict[Op, tuple[Rule, ...]] = {}
        self._declined: set[Node] = set()  # by every rule that ignores use counts, and so for good
        self._forward: dict[Value, Value] = {}
        self._finished: set[Node] = set()
        self._counts: Counter[Value] = Counter()
        self._limit = 10_000 + FIRES_PER_NODE * len(graph.nodes())

    def sweep(self, graph: Graph) -> Graph:
        self._forward, self._finished = {}, set()
        if self.counts_matter:
            self._counts = graph.uses()
        for node in graph.nodes():
            self._visit(node)
        return graph.with_outputs(self._resolve(v) for v in graph.outputs)

    def _visit(self, root: Node) -> None:
        """Rewrite ``root`` and everything that replaces it, operands first, until no rule applies."""
        stack = [root]
        while stack:
            node = stack.pop()
            if node in self._finished:
                continue
            operands = [self._resolve(v) for v in node.inputs]
            pending = [v.node for v in operands if v.node not in self._finished]
            if pending:
                stack.append(node)
                stack.extend(reversed(pending))
                continue
            self._finished.add(node)
            current = node.with_inputs(operands)
            if current is not node:
                self._finished.add(current)
                tell(node.values, current.values)
                self._replace(node, current.values)
            if results := self._rewrite(current):
                stack.extend(v.node for v in results)

    def _resolve(self, value: Value) -> Value:
        if value not in self._forward:
            return value
        path = []
        while value in self._forward:
            path.append(value)
            value = self._forward[value]
        for passed in path:
            self._forward[passed] = value
        return value

    def _candidates(self, op: Op) -> tuple[Rule, ...]:
        if op not in self._by_op:
            self._by_op[op] = tuple(r for r in self.rules if not r.roots or op in r.roots)
        return self._by_op[op]

    def _rewrite(self, node: Node) -> tuple[Value, ...] | None:
        settled = node in self._declined
        for candidate in self._candidates(node.op):
            if settled and not candidate.reads_uses:
                continue
            result = candidate(node, self._counts.__getitem__)
            if result is not None:
                results = (result,) if isinstance(result, Value) else tuple(result)
                return self._accept(candidate, node, results)
        self._declined.add(node)
        return None

    def _accept(self, fired: Rule, node: Node, results: tuple[Value, ...]) -> tuple[Value, ...]:
        self.fired[fired.name] += 1
        if self.fired.total() > self._limit:
            busiest = ", ".join(name for name, _ in self.fired.most_common(4))
            raise VerifyError(f"no fixed point after {self._limit} rewrites; these fired most: {busiest}")
        types = tuple(v.type for v in results)
        if len(types) != len(node.types) or not all(map(TensorType.agrees, types, node.types)):
            raise VerifyError(
                f"rule {fired.name} replaces {node!r} by {', '.join(map(str, types))}: other types than before"
            )
        results = self._named(node, results)
        self._adopt(fired, node, results)
        tell(node.values, results, fired.name)
        self._replace(node, results)
        self._drop(node)
        return results

    def _named(self, node: Node, results: tuple[Value, ...]) -> tuple[Value, ...]:
        """``results`` with the name of ``node`` given to unnamed nodes that the rule built."""
        if not node.name:
            return results
        copies: dict[Node, Node] = {}
        for value in results:
            made = value.node
            if not made.name and made not in self._finished and made not in copies:
                copies[made] = Node(made.op, made.inputs, made.attrs, made.types, node.name)
        return tuple(copies[v.node][v.index] if v.node in copies else v for v in results)

    def _adopt(self, fired: Rule, node: Node, results: tuple[Value, ...]) -> None:
        """Check what a rule built, and count its uses."""
        stack, seen = [v.node for v in results], set()
        while stack:
            made = stack.pop()
            if made is node:
                raise VerifyError(f"rule {fired.name} builds on the node that it replaces: {node!r}")
            if made in self._finished or made in seen:
                continue
            seen.add(made)
            for value in made.inputs:
                self._counts[value] += 1
                stack.append(value.node)

    def _replace(self, node: Node, results: Sequence[Value]) -> None:
        for old, new in zip(node.values, results, strict=True):
            self._forward[old] = new
            if self.counts_matter:
                self._counts[new] += self._counts.pop(old, 0)

    def _drop(self, node: Node) -> None:
        """Take the uses by a dead node out of the counts, and those by operands that are then dead too."""
        if not self.counts_matter:
            return
        stack = [node]
        while stack:
            dead = stack.pop()
            for value in dead.inputs:
                self._counts[value] -= 1
                if not any(self._counts[v] for v in value.node.values):
                    stack.append(value.node)
