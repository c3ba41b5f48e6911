"""Which values of a graph are computed in one kernel, and why each kernel ends where it does.

Every value of the graph is one of

    source    an input or a constant: it is in memory already
    anchor    its algorithm reduces (contraction, pool, norm ...): it starts a kernel, with its node's other results
    member    epilogue: computed in the kernel of one of its operands, at the same point of the domain
    inlined   prologue: never stored, but computed where its reader loads it. A value has several readers only if it
              moves elements, or if it widens a narrower result that is stored instead
    start     elementwise or movement, and none of the above: it starts a ``loops`` kernel
    host      no algorithm: numpy runs it between two kernels

Kernels run in the order of their anchors. A value joins the kernel of its *latest* operand, and only if everything
else that it reads is ready before that kernel. The order is therefore topological by construction.

Legality (``_joins``) and profitability (``_worth_inlining``) are separate. Only the latter depends on the target.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import field

from gpucomp import ops
from gpucomp.device.target import Target
from gpucomp.expr.core import (
    Algorithm,
    Call,
    Expr,
    Load,
    Reduce,
    Select,
    axes_of,
    index,
    load,
    reduces,
    walk,
)
from gpucomp.expr.simplify import simplify
from gpucomp.ir.graph import Constant, Graph, Input, Node, Sizes, Value
from gpucomp.ir.size import hint, is_one, is_zero, same, same_shape
from gpucomp.ir.types import I8, I32, STRING, U8
from gpucomp.kernel.images import MANY_ELEMENTS, has_taps, is_depthwise, mirrored, scattered
from gpucomp.kernel.recognise_scatter import scatter_of
from gpucomp.lazy_dataclass import dataclass

MAX_STORES = 3  # results that one kernel may write
MAX_PARAMS = 48  # pointers that one kernel may take: OpenCL guarantees 1024 bytes of arguments
MAX_WEIGHT = 400  # nodes of an inlined expression
MAX_DEPTH = 8  # nested inlined producers: index maps grow with each level
MAX_PLACE = 60  # nodes of the index expressions of a store
MAX_MEMBERS = 240  # nodes of all members of a kernel: limits the depth of the expressions that later code walks
FEW_CHOICES = 8  # ``Select`` nodes of a kernel: each further one may double the text of its branches
MANY_QUOTIENTS = 16  # elements that read each of some quotients: from here on these are stored, see ``Policy.divides``
MANY_CODES = 4096  # from this size, codes that are read repeatedly are stored, at the cost of a launch
MANY_COLUMNS = 256  # from this number of columns, several tiles of a product read the left operand
EXPENSIVE = frozenset(
    {
        "exp",
        "log",
        "pow",
        "erf",
        "tanh",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "asinh",
        "acosh",
        "atanh",
        "sqrt",
    }
)


@dataclass(frozen=True)
class Policy:
    """What partition may assume about a target.

    prologues   elementwise producers may be inlined in the loads of a contraction
    divides     quotients may be computed again for each of many elements that read them, which a launch would save: a
                GPU's launch takes longer

    gathers     a transposed or mirrored image may be gathered again for each tap of a convolution: the same holds
    """

    prologues: bool = True
    divides: bool = True
    gathers: bool = True

    @classmethod
    def of(cls, target: Target) -> Policy:
        launches = target.kind != "cpu"
        return cls(prologues=target.prologues, divides=launches, gathers=launches)


Order = tuple[int, ...]  # when a kernel runs: its anchor's position, or right after another kernel: (5,) (5, 12) (6,)
AT_ONCE: Order = (-1,)


@dataclass(eq=False)
class Group:
    """A kernel under construction: its anchor, and its members in topological order."""

    order: Order
    anchor: Value
    members: list[Value] = field(default_factory=list)
    weight: int = 0  # expression nodes of the members after the anchor
    choices: int = 0  # ``Select`` nodes of all members
    parts: list[tuple[Value, int]] = field(default_factory=list)  # (Concat, operand): the kernel stores this part of it


@dataclass(frozen=True)
class Footprint:
    """The cost of inlining a value, with everything that is inlined in it.

    weight      expression nodes
    depth       nested inlined producers
    reads       the values that it loads
    computes    whether it does arithmetic on data, and does not only move it
    expensive   whether it calls one of ``EXPENSIVE``
    divides     whether it divides floats
    choices     ``Select`` nodes
    """

    weight: int
    depth: int
    reads: frozenset[Value]
    computes: bool
    expensive: bool
    divides: bool
    choices: int


class Grouping:
    def __init__(self, graph: Graph, policy: Policy, cut: Set[Value] = frozenset()) -> None:
        """``cut``: values that are stored if their expression would have more than ``FEW_CHOICES`` ``Select`` nodes."""
        self.graph, self.policy, self.cut = graph, policy, cut
        self.nodes = graph.nodes()
        self.position = {node: i for i, node in enumerate(self.nodes)}
        self.consumers = graph.consumers()
        self.is_output = set(graph.outputs)
        self.appended = {value for value in graph.in_place() if value.op is ops.Append}
        self.algorithms: dict[Value, Algorithm | None] = {}
        self.group: dict[Value, Group] = {}
        self.inlined: dict[Value, Footprint] = {}
        self.place: dict[Value, tuple[Expr, ...]] = {}  # members: the index of the element, over the anchor's axes
        self.host: dict[Value, Order] = {}
        self.written_in_parts: dict[Value, Order] = {}
        self.groups: list[Group] = []
        self.reasons: dict[Value, str] = {}
        self.live = {v for node in self.nodes for v in node.inputs} | self.is_output

    # the kinds of values ------------------------------------------------------------------------------------

    def algorithm(self, value: Value) -> Algorithm | None:
        if value not in self.algorithms:
            node = value.node
            if node.op in (Input, Constant, Sizes) or on_host(node):
                self.algorithms[value] = None
            elif value in self.appended:  # what a kernel computes of it
                axes = axes_of(node.inputs[1].shape)
                self.algorithms[value] = Algorithm(axes, load(1, axes, value.type.dtype))
            else:
                assert node.op.algorithm is not None
                found = node.op.algorithm(*(v.type for v in node.inputs), **node.attrs)
                results = found if isinstance(found, tuple) else (found,)
                for result, a in zip(node.values, results, strict=True):
                    self.algorithms[result] = Algorithm(a.axes, simplify(a.body))
        return self.algorithms[value]

    def reduces(self, value: Value) -> bool:
        algorithm = self.algorithm(value)
        return algorithm is not None and any(isinstance(n, Reduce) for n in walk(algorithm.body))

    def latest(self, value: Value) -> Order:
        """The order of the last kernel that ``value`` depends on; ``AT_ONCE`` if it depends on none."""
        if value in self.group:
            return self.group[value].order
        if value in self.host:
            return self.host[value]
        if value in self.written_in_parts:
            return self.written_in_parts[value]
        if value in self.inlined:
            return max((self.latest(v) for v in self.inlined[value].reads), default=AT_ONCE)
        return AT_ONCE

    # the walk -----------------------------------------------------------------------------------------------

    def run(self) -> list[Group]:
        for node in self.nodes:
            if node.op in (Input, Constant, Sizes):
                continue
            for value in node.values:
                if value in self.live:
                    self._place(value)
        for group in self.groups:
            for value in reversed(group.members[1:]):
                if steps := self._widening(value, group):
                    self._compute_where_read(steps, group)
        return self.groups

    def _place(self, value: Value) -> None:
        node = value.node
        if value in self.appended:
            self._append(value)
        elif self.algorithm(value) is None:
            self.host[value] = (self.position[node],)
        elif self.reduces(value):
            if not self._accompanies(value):
                self._start(value, (self.position[node],))
        elif not self._join(value) and not self._join_parts(value):
            footprint = self._footprint(value)
            reason = self._worth_inlining(value, footprint)
            if reason:
                self.reasons[value] = reason
                self._start(value, (self.position[node],))
            else:
                self.inlined[value] = footprint

    def _accompanies(self, value: Value) -> bool:
        """Make ``value`` a member of the kernel of its node's first result, if both have the same axes."""
        first, own = value.node[0], self.algorithm(value)
        group, leading = self.group.get(first), self.algorithm(first)
        if value is first or group is None or own is None or leading is None or own.axes != leading.axes:
            return False
        group.members.append(value)
        group.choices += self._choices(value)
        self.group[value], self.place[value] = group, self.place[first]
        return True

    def _start(self, value: Value, order: Order) -> None:
        """Start a kernel at ``value``. Inlined producers that would make it too large get their own kernels."""
        while True:
            below = {v: self.inlined[v] for v in value.inputs if v in self.inlined}
            reads = {v for v in value.inputs if v not in below}.union(*(f.reads for f in below.values()))
            if not below or (len(reads) < MAX_PARAMS and sum(f.weight for f in below.values()) <= 2 * MAX_WEIGHT):
                break
            self._store_after_all(max(below, key=lambda v: (len(below[v].reads), below[v].weight)))
        group = Group(order, value, [value], choices=self._choices(value))
        self.groups.append(group)
        self.group[value] = group
        algorithm = self.algorithm(value)
        assert algorithm is not None
        self.place[value] = _identity(algorithm)

    def _store_after_all(self, value: Value) -> None:
        """Give an inlined value its own kernel, which runs before every kernel that would have computed it."""
        order = (*self.latest(value), self.position[value.node])
        del self.inlined[value]
        self.reasons[value] = "too long to be inlined"
        self._start(value, order)
        changed = {value}
        for reader in self.inlined:  # operands come before their readers
            if not changed.isdisjoint(reader.inputs):
                self.inlined[reader] = self._footprint(reader)
                changed.add(reader)

    # epilogues ----------------------------------------------------------------------------------------------

    def _join(self, value: Value) -> bool:
        """Make ``value`` a member of the latest kernel that computes one of its operands, if that is legal."""
        candidates = {self.group[v] for v in value.inputs if v in self.group}
        if not candidates:
            return False
        group = max(candidates, key=lambda g: g.order)
        obstacle = self._joins(value, group)
        if obstacle:
            for v in value.inputs:
                if self.group.get(v) is group:
                    self.reasons.setdefault(v, obstacle)
            return False
        group.members.append(value)
        if value.op.push is None:
            self.place[value] = next(self.place[v] for v in value.inputs if self.group.get(v) is group)
            algorithm = self.algorithm(value)
            assert algorithm is not None
            group.weight += sum(1 for _ in walk(algorithm.body))
            group.choices += self._choices(value)
        self.group[value] = group
        return True

    def _joins(self, value: Value, group: Group) -> str:
        """Why ``value`` cannot be computed in ``group``; empty if it can."""
        inside = [k for k, v in enumerate(value.inputs) if self.group.get(v) is group]
        others = [v for k, v in enumerate(value.inputs) if k not in inside]
        if any(self.latest(v) >= group.order for v in others):
            return f"{value.op} also reads a value that depends on this kernel's result"
        if value.op.push is not None:
            return self._pushes(value, group, inside)
        if self._scatters(group.anchor):
            return f"the results of {group.anchor.op} are final only after its last update"
        if len(value.node.types) > 1 or any(
            not same_shape(v.shape, value.shape) for v in value.inputs if self.group.get(v) is group
        ):
            return f"{value.op} has another shape"
        if len({self.place[value.inputs[k]] for k in inside}) > 1:
            return f"{value.op} reads elements of this kernel at different indices"
        algorithm = self.algorithm(value)
        assert algorithm is not None
        for node in walk(algorithm.body):
            if isinstance(node, Load) and node.source in inside and node.index != _identity(algorithm):
                return f"{value.op} reads it at other indices than it writes"
        if len(self._pending(group, value)) > MAX_STORES:
            return f"the kernel already writes {MAX_STORES} results"
        if len(self._reads_of(group, [*others])) > MAX_PARAMS:
            return f"the kernel already takes {MAX_PARAMS} buffers"
        if group.weight + sum(1 for _ in walk(algorithm.body)) > MAX_MEMBERS:
            return "the kernel would be too long"
        if value in self.cut and group.choices + self._choices(value) > FEW_CHOICES:
            return "the kernel would have too many nested selects"
        return ""

    def _pushes(self, value: Value, group: Group, inside: Sequence[int]) -> str:
        """Why the movement ``value`` cannot join; empty if it can. Its operand is then stored at other indices.

        It can join only if it is the operand's only reader.
        """
        if len(value.inputs) > 1:
            return f"{value.op} gathers from several kernels"
        operand = value.inputs[inside[0]]
        if operand in self.is_output or len(self.consumers[operand]) > 1:
            return f"{value.op} is not its only reader"
        place = pushed(value, inside[0], self.place[operand])
        if len({n for i in place for n in walk(i)}) > MAX_PLACE:
            return "the indices of its stores would be too long"
        self.place[value] = place
        return ""

    def _join_parts(self, value: Value) -> bool:
        """Concat of results of kernels: each kernel stores its part in the Concat's result, so there is no copy."""
        if value.op.push is None or len(value.inputs) < 2 or len(set(value.inputs)) < len(value.inputs):
            return False
        owners = [self.group.get(v) for v in value.inputs]
        if any(g is None for g in owners) or is_zero(value.type.size):
            return False
        for operand, owner in zip(value.inputs, owners, strict=True):
            assert owner is not None
            if len(self._pending(owner, value)) + len(owner.parts) > MAX_STORES:
                self.reasons.setdefault(operand, f"its kernel already writes {MAX_STORES} results")
                return False
        for k, owner in enumerate(owners):
            assert owner is not None
            owner.parts.append((value, k))
        self.written_in_parts[value] = max(g.order for g in owners if g is not None)
        return True

    def _append(self, value: Value) -> None:
        """The kernel that computes new rows stores them in the state's memory; rows of no kernel are copied there by one."""
        owner = self.group.get(value.inputs[1])
        fits = owner is not None and len(self._pending(owner, value)) + len(owner.parts) <= MAX_STORES
        if owner is None or not fits:
            self._start(value, (self.position[value.node],))
            self.place[value] = appended_at(value, self.place[value])
            owner = self.group.pop(value)  # nothing joins it: it is stored rows first
        else:
            owner.parts.append((value, 1))
        self.written_in_parts[value] = owner.order

    def _pending(self, group: Group, joining: Value) -> list[Value]:
        """Members of ``group`` that have to be stored if ``joining`` becomes a member."""
        members = set(group.members) | {joining}
        return [m for m in members if m in self.is_output or not set(self.readers(m)) <= members or m is joining]

    def readers(self, value: Value) -> list[Value]:
        return [result for node in self.consumers.get(value, []) for result in node.values if result in self.live]

    def _reads_of(self, group: Group, extra: Sequence[Value]) -> set[Value]:
        reads: set[Value] = set()
        for value in [*(v for m in group.members for v in m.inputs), *extra]:
            if self.group.get(value) is not group:
                reads |= self.inlined[value].reads if value in self.inlined else {value}
        return reads

    # prologues ----------------------------------------------------------------------------------------------

    def _footprint(self, value: Value) -> Footprint:
        algorithm = self.algorithm(value)
        assert algorithm is not None
        nodes = list(walk(algorithm.body))
        calls = {n.fn for n in nodes if isinstance(n, Call) and not n.dtype.is_integer and n.dtype.kind != "b"}
        calls |= {n.fn for n in nodes if isinstance(n, Call) and n.dtype.is_integer and _touches_data(n)}
        below = [self.inlined[v] for v in value.inputs if v in self.inlined]
        reads = {v for v in value.inputs if v not in self.inlined and not is_scalar(v)}
        return Footprint(
            weight=len(nodes) + sum(f.weight for f in below),
            depth=1 + max((f.depth for f in below), default=0),
            reads=frozenset(reads.union(*(f.reads for f in below))),
            computes=bool(calls) or any(f.computes for f in below),
            expensive=bool(calls & EXPENSIVE) or any(f.expensive for f in below),
            divides=any(_divides(n) for n in nodes) or any(f.divides for f in below),
            choices=self._choices(value),
        )

    def _choices(self, value: Value) -> int:
        """``Select`` nodes of ``value`` and of what is inlined in it."""
        algorithm = self.algorithm(value)
        assert algorithm is not None
        below = (self.inlined[v].choices for v in value.inputs if v in self.inlined)
        return sum(isinstance(n, Select) for n in walk(algorithm.body)) + sum(below)

    # members that widen a narrower result

    def _widening(self, value: Value, group: Group) -> list[Value]:
        """The members that compute ``value`` from a narrower member, in order. Nothing else may read them.

        This is for residuals in quantized models. The codes are stored, and elementwise kernels outside ``group`` that
        read ``value`` compute it from the codes, so that the wide result is not stored. Empty if ``value`` has other
        readers, or if no member is narrower.
        """
        readers = self.readers(value)
        inside = [r for r in readers if self.group.get(r) is group or r not in self.group or self.reduces(r)]
        if inside or not readers or value in self.is_output:
            return []
        steps: list[Value] = []
        while value is not group.anchor and self._only_computes(value, group, steps):
            steps.insert(0, value)
            (value,) = [v for v in value.inputs if not is_scalar(v)]
            if value.type.nbytes < steps[-1].type.nbytes and value.type.dtype.bits >= 8:
                return steps
        return []

    def _only_computes(self, value: Value, group: Group, after: Sequence[Value]) -> bool:
        """Whether ``value`` is cheap to compute from one member, and only the first of ``after`` (if any) reads it."""
        operands = [v for v in value.inputs if not is_scalar(v)]
        if len(operands) != 1 or self.group.get(operands[0]) is not group or value.op.push is not None:
            return False
        if after and (value in self.is_output or self.readers(value) != [after[0]]):
            return False
        footprint = self._footprint(value)
        return operands[0].shape == value.shape and not footprint.expensive and footprint.depth + len(after) < MAX_DEPTH

    def _compute_where_read(self, steps: Sequence[Value], group: Group) -> None:
        for value in steps:
            group.members.remove(value)
            del self.group[value]
            self.inlined[value] = self._footprint(value)

    def _worth_inlining(self, value: Value, footprint: Footprint) -> str:
        """Why ``value`` should be stored; empty if it should be computed where it is read."""
        if value in self.is_output:
            return "graph output"
        readers = self.consumers.get(value, [])
        if any(on_host(r) for r in readers):
            return "read on the host"
        if len(footprint.reads) > MAX_PARAMS // 2 or footprint.weight > MAX_WEIGHT or footprint.depth > MAX_DEPTH:
            return "too long to be inlined"
        if value in self.cut and footprint.choices > FEW_CHOICES:
            return "it has too many nested selects to be inlined"
        if len(footprint.reads) > 1 and not footprint.computes and self._read_by_contraction(value):
            return f"{value.op} gathers from several places"
        if hint(value.type.size) >= MANY_ELEMENTS and any(map(_reads_again, readers)) and self._puts_together(value):
            return "cheaper to store than to select between its parts again for each tap or column"
        apart = (scattered(value) and not all(self._stays_first(value, r) for r in readers)) or mirrored(value)
        if not self.policy.gathers and apart and any(map(has_taps, readers)):
            return "cheaper to store than to gather again for each tap"
        if not footprint.computes:
            return "" if len(readers) <= 4 else "read by many"
        if len(readers) > 1:
            return "read by several kernels"
        (reader,) = readers
        largest = max(hint(v.type.size) for v in reader.values)
        for result in reader.values:
            if _is_read_once(value, reader):
                continue
            if not self.reduces(result):
                grows = largest / max(hint(value.type.size), 1)
                divided = footprint.divides and not self.policy.divides and largest >= MANY_ELEMENTS
                again = (footprint.expensive and grows > 4) or (divided and grows > MANY_QUOTIENTS)
                return "cheaper to store than to compute again" if again else ""
            if self._is_contraction(result) and not self.policy.prologues:
                return "the contraction reads plain memory on this target"
            if hint(value.type.size) >= MANY_CODES and _reads_again(reader) and _quantizes(value):
                return "cheaper to store as codes than to quantize again"
            if footprint.expensive and self._rereads(result):
                return "cheaper to store than to compute again"
        return ""

    def _stays_first(self, value: Value, reader: Node) -> bool:
        """Whether ``reader`` is a depthwise convolution of the transposed ``value`` whose result is transposed back.

        Its kernel then reads rows of the image and writes rows of the result: they are contiguous with channels first.
        """
        if (
            value.op is not ops.Transpose
            or not is_depthwise(reader)
            or not value.type.dtype.is_float
            or value.type.rank > 4
        ):
            return False
        result = reader[0]
        while result not in self.is_output and len(readers := self.consumers.get(result, [])) == 1:
            (node,) = readers
            if node.op is ops.Transpose:
                return all(value.attrs["perm"][axis] == d for d, axis in enumerate(node.attrs["perm"]))
            if node.op.push is not None or len(node.types) > 1 or on_host(node) or self.reduces(node[0]):
                return False
            result = node[0]
        return False

    def _puts_together(self, value: Value) -> bool:
        """Whether ``value`` contains a Concat: each element then selects from its parts (a detector's Focus stem)."""
        if value.op is ops.Concat:
            return len(value.inputs) > 1
        return any(self._puts_together(v) for v in value.inputs if v in self.inlined)

    def _read_by_contraction(self, value: Value) -> bool:
        return any(self._is_contraction(r) for r in self.readers(value) if self.reduces(r))

    def _is_contraction(self, value: Value) -> bool:
        algorithm = self.algorithm(value)
        assert algorithm is not None
        sums = reduces(algorithm.body)
        if len(sums) != 1 or sums[0].op != "sum":
            return False
        product = sums[0].body
        return isinstance(product, Call) and product.fn == "mul" and all(_touches_data(a) for a in product.args)

    def _scatters(self, value: Value) -> bool:
        algorithm = self.algorithm(value)
        assert algorithm is not None
        return self.reduces(value) and scatter_of(algorithm.axes, algorithm.body) is not None

    def _rereads(self, value: Value) -> bool:
        """Whether each element of an operand is read for many results, as in sliding windows and contractions."""
        return self._is_contraction(value) or hint(value.type.size) * 2 > max(hint(v.type.size) for v in value.inputs)


def _reads_again(reader: Node) -> bool:
    """Whether ``reader`` reads its left operand many times: for each tap of a convolution, or for many columns."""
    if reader.op is not ops.Conv:
        return reader.op is ops.MatMul
    weights = reader.inputs[1].shape
    last = reader.attrs.get("layout", "NCHW") == "NHWC"
    taps, columns = (weights[:-2], weights[-1]) if last else (weights[2:], weights[0])
    return math.prod(taps) > 1 or columns >= MANY_COLUMNS


def _is_read_once(value: Value, reader: Node) -> bool:
    """Whether ``value`` is the left operand of one product with one column, which is a sum over each of its rows."""
    if reader.op is not ops.MatMul or reader.inputs[0] is not value:
        return False
    (result,) = reader.values
    return is_one(result.shape[-1]) and same(result.type.size * value.shape[-1], value.type.size)


def _quantizes(value: Value) -> bool:
    """Whether ``value`` is bytes quantized from floats, also after movements, widening or subtracting a zero point."""
    while value.op in (ops.Transpose, ops.Reshape) or (value.op in (ops.Cast, ops.Sub) and value.type.dtype is I32):
        value = value.inputs[0]
    return value.op is ops.Cast and value.type.dtype in (I8, U8) and value.inputs[0].type.dtype.is_float


def _divides(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.fn == "div" and expr.dtype.is_float


def _touches_data(expr: Expr) -> bool:
    return any(isinstance(n, Load) for n in walk(expr))


def _identity(algorithm: Algorithm) -> tuple[Expr, ...]:
    return tuple(index(0) if is_one(a.extent) else a for a in algorithm.axes)


def is_scalar(value: Value) -> bool:
    """Whether ``value`` is one number that is known before a run, or that follows from the run's sizes."""
    known = value.op in (Constant, Sizes)
    return known and is_one(value.type.size) and not value.type.dtype.storage_only


def appended_at(value: Value, at: Sequence[Expr]) -> tuple[Expr, ...]:
    """The index in the memory of a state, for an ``Append``, of the element that the new rows have at index ``at``."""
    axis, start = value.attrs["axis"], value.attrs["at"]
    return tuple(simplify(a + start) if d == axis else a for d, a in enumerate(at))


def pushed(movement: Value, operand: int, at: Sequence[Expr]) -> tuple[Expr, ...]:
    """The index in the result of a movement of the element that ``operand`` has at index ``at``."""
    assert movement.op.push is not None
    types = [v.type for v in movement.inputs]
    return tuple(map(simplify, movement.op.push(operand, at, *types, **movement.attrs)))


def on_host(node: Node) -> bool:
    """Whether numpy runs ``node``: it has no algorithm, or it has strings, which kernels do not support."""
    return node.op.algorithm is None or any(t.dtype is STRING for t in (*node.types, *(v.type for v in node.inputs)))
