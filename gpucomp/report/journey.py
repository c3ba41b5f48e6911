"""Follows a model's nodes through every stage of the compiler: which model nodes is each node of a program made of?

Rewrites replace nodes by other nodes. The heirs of an old node are found among the nodes that replaced it, by the first of
these rules that finds any:

    itself     the node with the same attributes, or with the same operator and name, on other operands
    kind       nodes of the same operator: a Conv whose weights have absorbed a scale
    name       nodes with the old node's name
    all        all new nodes, or those that compute if there are also data movements: a LayerNormalization of a dozen nodes

An heir is made of everything that it inherits from. Other new nodes, such as a Transpose, are made of no node of the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import cast

from gpucomp.ir.graph import Constant, Graph, Input, Node, Value
from gpucomp.kernel.step import HostStep, Step
from gpucomp.lazy_dataclass import dataclass
from gpucomp.schedule.scheduled import Program, Scheduled

DEEPEST = 40  # the longest path searched from a replaced node to the operands of its replacement
NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class Replacement:
    """What a rule put in the place of ``old``; ``by`` names the rule and is empty for a pass without rules."""

    by: str
    old: tuple[Value, ...]
    new: tuple[Value, ...]
    gone: frozenset[Node]  # nodes that computed ``old`` and nothing else
    made: frozenset[Node]

    @property
    def is_rebuilt(self) -> bool:
        """Whether a node only got other operands."""
        return _is_rebuilt(self.old, self.new, self.made)

    @property
    def is_shared(self) -> bool:
        """Whether the node was merged with another one that computes the same."""
        return not self.by and not self.made


@dataclass(frozen=True, eq=False)
class Rewritten:
    """A pass over graphs."""

    name: str
    before: Graph
    after: Graph
    replacements: tuple[Replacement, ...]


@dataclass(frozen=True, eq=False)
class Stepped:
    """A pass over kernels."""

    name: str
    before: tuple[Step, ...]
    after: tuple[Step, ...]


@dataclass(frozen=True, eq=False)
class Finished:
    """A pass from chosen schedules to what is rendered. Entries are in the order of the program's steps."""

    name: str
    before: tuple[Scheduled | HostStep, ...]
    after: tuple[Scheduled | HostStep, ...]


@dataclass(eq=False)
class Journey:
    """Follows every node of a model. Pass ``watch`` to ``compiler.lower`` and ``replaced`` to ``trail.followed``."""

    graphs: list[Rewritten] = field(default_factory=list)
    kernels: list[Stepped] = field(default_factory=list)
    scheduled: list[Finished] = field(default_factory=list)
    stands_for: dict[Value, Value] = field(default_factory=dict)  # new value -> the value that it replaces
    _graph: Graph | None = None
    _steps: tuple[Step, ...] | None = None
    _program: tuple[Scheduled | HostStep, ...] | None = None
    _names: dict[Node, frozenset[str]] = field(default_factory=dict)
    _news: list[Replacement] = field(default_factory=list)

    @property
    def start(self) -> Graph:
        """The graph as it was imported."""
        return self.graphs[0].before

    @property
    def first_steps(self) -> tuple[Step, ...]:
        """The kernels before the first pass over kernels."""
        return self.kernels[0].before if self.kernels else self._steps or ()

    def made_of(self, node: Node) -> frozenset[str]:
        """The names of the model nodes that ``node`` is made of."""
        return self._names.get(node, NOTHING)

    def nodes_of(self, graph: Graph, names: Iterable[str]) -> list[Node]:
        """The nodes of ``graph`` that are made of one of ``names``."""
        wanted = frozenset(names)
        return [node for node in graph.nodes() if self.made_of(node) & wanted]

    # callbacks of the compiler -------------------------------------------------------------------------------------

    def watch(self, name: str, program: Graph | list[Step] | Program) -> None:
        if name == "chosen" or self._program is not None:
            self._finish(name, cast(Program, program))
        elif isinstance(program, Graph):
            self._settle(program)
            if self._graph is not None:
                self.graphs.append(Rewritten(name, self._graph, program, tuple(self._news)))
            self._graph, self._news = program, []
        else:
            steps = tuple(cast("list[Step]", program))
            if self._steps is not None:
                self.kernels.append(Stepped(name, self._steps, steps))
            self._steps = steps

    def _finish(self, name: str, program: Program) -> None:
        after = tuple(program)
        if self._program is not None:
            self.scheduled.append(Finished(name, self._program, after))
        self._program = after

    def _settle(self, graph: Graph) -> None:
        """Nodes that no rewrite reported are made of the model node with the same name."""
        for node in graph.nodes():
            if node not in self._names:
                given = node.name and node.op not in (Input, Constant)
                self._names[node] = frozenset([node.name]) if given else NOTHING

    def replaced(self, old: Sequence[Value], new: Sequence[Value], by: str) -> None:
        for olds, news, made in _together(old, new, self._names):
            plain = not by and (not made or _is_rebuilt(olds, news, made))
            gone = frozenset(v.node for v in olds) if plain else _gone(olds, news, made)
            change = Replacement(by, olds, news, gone, made)
            self._inherit(change)
            self._news.append(change)
            for one, other in zip(olds, news, strict=True):
                if other.node in made:
                    self.stands_for[other] = one

    def _inherit(self, change: Replacement) -> None:
        self._names |= dict.fromkeys(change.made, NOTHING)
        heirs = {v.node for v in change.new} if change.is_shared else change.made
        for node in change.gone:
            for heir in _heirs(node, heirs):
                self._names[heir] |= self.made_of(node)


def _is_rebuilt(old: Sequence[Value], new: Sequence[Value], made: frozenset[Node]) -> bool:
    return len(made) == 1 and all(o.attrs is n.attrs for o, n in zip(old, new, strict=True))


def _heirs(node: Node, made: Iterable[Node]) -> list[Node]:
    made = [m for m in made if m.op is not Input]
    computing = [m for m in made if m.op is not Constant]
    return (
        [m for m in computing if m.attrs is node.attrs or (m.op is node.op and m.name == node.name)]
        or [m for m in computing if m.op is node.op]
        or [m for m in computing if m.name == node.name != ""]
        or [m for m in computing if m.op.push is None]
        or computing
        or made
    )


def _together(
    old: Sequence[Value], new: Sequence[Value], known: Mapping[Node, object]
) -> list[tuple[tuple[Value, ...], tuple[Value, ...], frozenset[Node]]]:
    """Merge the replacements that share a node, old or new; each comes with the nodes that were made for it."""
    groups: list[tuple[list[Value], list[Value], set[Node]]] = []
    for one, other in zip(old, new, strict=True):
        made = _made(other.node, known)
        mine = [g for g in groups if made & g[2] or any(v.node is one.node for v in g[0])]
        groups = [g for g in groups if g not in mine]
        olds, news = [v for g in mine for v in g[0]], [v for g in mine for v in g[1]]
        groups.append(([*olds, one], [*news, other], made.union(*(g[2] for g in mine))))
    return [(tuple(olds), tuple(news), frozenset(made)) for olds, news, made in groups]


def _made(root: Node, known: Mapping[Node, object]) -> set[Node]:
    made: set[Node] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if node not in known and node not in made:
            made.add(node)
            stack += [v.node for v in node.inputs]
    return made


def _gone(old: Sequence[Value], new: Sequence[Value], made: frozenset[Node]) -> frozenset[Node]:
    """The nodes of ``old``, and those nodes above them from which every path leads to an operand of ``new``."""
    roots = {v.node for v in old}
    ends = {v.node for m in made for v in m.inputs if v.node not in made}
    ends |= {v.node for v in new if v.node not in made}
    between: dict[Node, bool] = {}

    def is_between(node: Node, depth: int) -> bool:
        if node in ends or node.op is Constant:
            return True
        if node.op is Input or depth == DEEPEST:
            return False
        if node not in between:
            between[node] = all(is_between(v.node, depth + 1) for v in node.inputs)
        return between[node]

    for root in roots:
        for value in root.inputs:
            is_between(value.node, 1)
    return frozenset(roots | {node for node, found in between.items() if found})


# questions ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Change:
    """What a graph pass did to some nodes: the rules that fired, the nodes before and after, and new nodes ``beside`` them."""

    name: str
    rules: Mapping[str, int]
    before: Sequence[Node]
    after: Sequence[Node]
    beside: frozenset[Node]
    shared: bool = False  # one of them was merged with another node that computes the same
    instead: Value | None = None  # the value that is read in their place, if none of them is left


def changes(journey: Journey, name: str) -> list[Change]:
    """What each graph pass did to node ``name`` and the nodes it was merged with; the last change is its removal, if any."""
    found = []
    for stage in journey.graphs:
        before = journey.nodes_of(stage.before, [name])
        if not before:
            break
        after = journey.nodes_of(stage.after, [name])
        change = _change(journey, stage, name, before, after)
        if change is not None:
            found.append(change)
        if not any(node.op is not Constant for node in after):
            break
    return found


def _change(
    journey: Journey, stage: Rewritten, name: str, before: Sequence[Node], after: Sequence[Node]
) -> Change | None:
    known = set(stage.before.nodes())
    told = [
        r
        for r in stage.replacements
        if not r.is_rebuilt
        and any(name in journey.made_of(n) for n in (*r.gone, *(v.node for v in r.new if r.is_shared)))
    ]
    fresh = [n for n in after if n not in known]
    if not told and all(any(n.attrs is b.attrs for b in before) for n in fresh) and len(after) == len(before):
        return None
    joined = frozenset([name]).union(*(journey.made_of(n) for n in after))
    beside = {n for n in stage.after.nodes() if n not in known and _is_beside(n, after, journey)}
    left = {*_computing(journey.nodes_of(stage.after, joined), after), *beside}
    instead = None if after else _instead(stage, told, name, journey)
    return Change(
        stage.name,
        Counter(r.by for r in told if r.by),
        _computing(journey.nodes_of(stage.before, joined), before),
        [n for n in stage.after.nodes() if n in left],
        frozenset(beside),
        any(r.is_shared for r in told),
        instead,
    )


def _is_beside(node: Node, mine: Sequence[Node], journey: Journey) -> bool:
    """Whether it is made of no node of the model, and reads one of ``mine`` or is read by one of them."""
    if node.op in (Input, Constant) or journey.made_of(node):
        return False
    return any(v.node in mine for v in node.inputs) or any(v.node is node for m in mine for v in m.inputs)


def _computing(nodes: Sequence[Node], mine: Sequence[Node]) -> list[Node]:
    """``nodes`` without constants, unless constants are all that is left of ``mine``."""
    only = all(node.op is Constant for node in mine)
    return [node for node in nodes if node.op is not Constant or (only and node in mine)]


def _instead(stage: Rewritten, told: Sequence[Replacement], name: str, journey: Journey) -> Value | None:
    """The value in the graph that replaced the last value made of ``name``, or ``None``."""
    there = {v for node in stage.after.nodes() for v in node.values}
    forward = {o: n for r in stage.replacements for o, n in zip(r.old, r.new, strict=True)}
    for change in reversed(told):
        for old, value in zip(change.old, change.new, strict=True):
            if name in journey.made_of(old.node):
                while value not in there and value in forward:
                    value = forward[value]
                if value in there:
                    return value
    return None


def steps_of(steps: Sequence[Step], nodes: Iterable[Node]) -> list[Step]:
    """The steps that compute one of ``nodes``, and steps without nodes whose results only these read."""
    wanted = set(nodes)
    mine = {step for step in steps if wanted & {*step.nodes, *step.prologue}}
    for step in reversed(steps):
        if not step.nodes:
            readers = [s for s in steps if set(s.inputs) & set(step.outputs)]
            mine |= {step} if readers and all(r in mine for r in readers) else set()
    return [step for step in steps if step in mine]
