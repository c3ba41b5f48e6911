"""What became of a model's nodes: every stage of the compiler, and which of the model's nodes each program's nodes are made of.

Rewrites replace nodes by nodes. Of what a rewrite put in the place of some, an old node's heirs are the first of

    itself     the node with the same attributes, or of the same operator and name, on other operands
    its kind   nodes of the same operator: a Conv whose weights have swallowed a scale
    its name   nodes that are called as it was
    all        whatever was made there, but for movements beside what computes: a LayerNormalization of a dozen nodes

and an heir is made of all that it inherits from. What a rule made besides, a Transpose say, is made of no node of the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gpucomp.ir.graph import Constant, Graph, Input, Node, Value
from gpucomp.kernel.step import Step

DEEPEST = 40  # nodes from what is replaced to the operands of what replaces it
NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class Replacement:
    """What a rule, or a pass that has no rules (``by`` is empty), put in the place of ``old``."""

    by: str
    old: tuple[Value, ...]
    new: tuple[Value, ...]
    gone: frozenset[Node]  # what computed ``old`` alone
    made: frozenset[Node]

    @property
    def is_rebuilt(self) -> bool:
        """Whether a node was only given other operands."""
        return _is_rebuilt(self.old, self.new, self.made)

    @property
    def is_shared(self) -> bool:
        """Whether a node was found to compute what another one does."""
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


@dataclass(eq=False)
class Journey:
    """Follows every node of a model. ``watch`` is for ``compiler.lower``, ``replaced`` for ``trail.followed``."""

    graphs: list[Rewritten] = field(default_factory=list)
    kernels: list[Stepped] = field(default_factory=list)
    stands_for: dict[Value, Value] = field(default_factory=dict)  # the value that a new one was put in the place of
    _graph: Graph | None = None
    _steps: tuple[Step, ...] | None = None
    _names: dict[Node, frozenset[str]] = field(default_factory=dict)
    _news: list[Replacement] = field(default_factory=list)

    @property
    def start(self) -> Graph:
        """The graph as the model was read."""
        return self.graphs[0].before

    @property
    def first_steps(self) -> tuple[Step, ...]:
        """The kernels before the first pass over kernels."""
        return self.kernels[0].before if self.kernels else self._steps or ()

    def made_of(self, node: Node) -> frozenset[str]:
        """The names of the model's nodes that ``node`` is made of."""
        return self._names.get(node, NOTHING)

    def nodes_of(self, graph: Graph, names: Iterable[str]) -> list[Node]:
        """The nodes of ``graph`` that are made of one of ``names``."""
        wanted = frozenset(names)
        return [node for node in graph.nodes() if self.made_of(node) & wanted]

    # what the compiler tells -------------------------------------------------------------------------------------

    def watch(self, name: str, program: Graph | list[Step]) -> None:
        if isinstance(program, Graph):
            self._settle(program)
            if self._graph is not None:
                self.graphs.append(Rewritten(name, self._graph, program, tuple(self._news)))
            self._graph, self._news = program, []
        else:
            steps = tuple(program)
            if self._steps is not None:
                self.kernels.append(Stepped(name, self._steps, steps))
            self._steps = steps

    def _settle(self, graph: Graph) -> None:
        """Nodes that nobody has told of are made of the model's node whose name they have."""
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
    """The replacements that share a node, old or new, as one each; with the nodes that were made for it."""
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
    """The nodes of ``old``, and those between them and what ``new`` is computed of: each way up from them leads there."""
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
    """What a pass over graphs did to some nodes: ``rules`` that fired, the nodes before and after, what was made beside them."""

    name: str
    rules: Mapping[str, int]
    before: Sequence[Node]
    after: Sequence[Node]
    beside: frozenset[Node]
    shared: bool = False  # one of them was found to compute what another one does
    instead: Value | None = None  # what is read in their place where none is left


def changes(journey: Journey, name: str) -> list[Change]:
    """What every pass over graphs did to ``name`` and the model's nodes that it was joined with; last, what it is no more."""
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
    """Whether it is made of no node of the model, and reads one of ``mine`` or is read by one."""
    if node.op in (Input, Constant) or journey.made_of(node):
        return False
    return any(v.node in mine for v in node.inputs) or any(v.node is node for m in mine for v in m.inputs)


def _computing(nodes: Sequence[Node], mine: Sequence[Node]) -> list[Node]:
    """``nodes`` without constants, but for those that are all that is left of ``mine``."""
    only = all(node.op is Constant for node in mine)
    return [node for node in nodes if node.op is not Constant or (only and node in mine)]


def _instead(stage: Rewritten, told: Sequence[Replacement], name: str, journey: Journey) -> Value | None:
    """What stands for the last value that was made of ``name``, where it is in the graph still."""
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
    """The steps that compute one of ``nodes``, and those without nodes of their own that work for them alone."""
    wanted = set(nodes)
    mine = {step for step in steps if wanted & {*step.nodes, *step.prologue}}
    for step in reversed(steps):
        if not step.nodes:
            readers = [s for s in steps if set(s.inputs) & set(step.outputs)]
            mine |= {step} if readers and all(r in mine for r in readers) else set()
    return [step for step in steps if step in mine]
