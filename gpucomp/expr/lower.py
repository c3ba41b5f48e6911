"""Lowers expressions to a short program of statements, which every printer writes in its own language.

Each distinct sub-expression becomes one ``Let`` in the outermost loop that binds its variables, so nothing is
computed twice and loop-invariant parts leave their loops. A branch that reads memory becomes an ``If``: the branch
not taken is never read. Loads that both branches always execute are placed before the ``If``. Otherwise they would be
printed twice, and twice again for every enclosing ``If``. Nothing here depends on the target.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpucomp.expr.core import (
    Const,
    Expr,
    Hole,
    Load,
    Reduce,
    Select,
    Var,
    identity_of,
    literal,
    walk,
)
from gpucomp.ir.size import Size, is_zero
from gpucomp.ir.types import DType


@dataclass(frozen=True, slots=True)
class Ref:
    """The name of a value: ``e3`` for a statement's result, or a name that the caller bound."""

    name: str
    dtype: DType


Operand = Ref | Const


@dataclass(frozen=True, slots=True)
class Let:
    """``name = expr`` with the expression's operands already named. ``expr`` gives function, dtype and source."""

    target: Ref
    expr: Expr
    operands: tuple[Operand, ...]


@dataclass(slots=True)
class If:
    """``target = condition ? then : otherwise`` with statements of its own in each branch."""

    target: Ref
    condition: Operand
    then: Block
    then_value: Operand
    otherwise: Block
    otherwise_value: Operand


@dataclass(slots=True)
class Loop:
    """Accumulates ``targets`` over ``axis``. Nested axes are nested loops that carry the same accumulators."""

    axis: Var
    axis_name: str
    body: Block
    unroll: bool = False


@dataclass(slots=True)
class Start:
    """``target = initial``: an accumulator, written to by ``Accumulate``."""

    target: Ref
    initial: Const


@dataclass(slots=True)
class Accumulate:
    """``target = op(target, value)``."""

    target: Ref
    op: str
    value: Operand


Statement = Let | If | Loop | Start | Accumulate


@dataclass(slots=True)
class Block:
    statements: list[Statement] = field(default_factory=list)

    def __iter__(self) -> Iterator[Statement]:
        return iter(self.statements)


class _Scope:
    def __init__(self, parent: _Scope | None, bound: frozenset[Var], block: Block, guarded: bool = False) -> None:
        self.parent, self.bound, self.block, self.guarded = parent, bound, block, guarded
        self.names: dict[Expr, Operand] = {}

    def find(self, expr: Expr) -> Operand | None:
        scope: _Scope | None = self
        while scope is not None:
            if expr in scope.names:
                return scope.names[expr]
            scope = scope.parent
        return None


class Lowering:
    """Lowers expressions into blocks. One instance per kernel, so that names are unique and common parts are shared.

    ``bindings`` names the values of the surrounding code: index variables, holes, or whole sub-expressions. Raises
    ``OverflowError`` if more than ``most`` names are needed.
    """

    def __init__(
        self, bindings: Mapping[Expr, str], *, prefix: str = "e", unroll_limit: int = 0, most: int = sys.maxsize
    ) -> None:
        self._prefix = prefix
        self._counter, self._most = 0, most
        self._unroll_limit = unroll_limit
        self._certain: dict[Expr, frozenset[Expr]] = {}
        self._reading: set[Expr] = set()
        self.block = Block()
        self._root = _Scope(None, frozenset(e for e in bindings if isinstance(e, Var)), self.block)
        self._root.names.update({e: Ref(name, e.dtype) for e, name in bindings.items()})

    def bind(self, expr: Expr, name: str) -> None:
        """Use ``name``, a variable of the surrounding code, for ``expr`` from now on."""
        self._root.names[expr] = Ref(name, expr.dtype)

    def lower(self, expr: Expr) -> Operand:
        """The operand that holds ``expr``; the statements it needs are appended to ``self.block``."""
        return self._lower(expr, self._root)

    def take(self) -> Block:
        """The statements so far. Later statements go to a fresh block and can use the same names."""
        taken = Block(self.block.statements)
        self.block.statements = []
        return taken

    def _fresh(self, dtype: DType) -> Ref:
        if self._counter >= self._most:
            raise OverflowError(f"more than {self._most} names")
        ref = Ref(f"{self._prefix}{self._counter}", dtype)
        self._counter += 1
        return ref

    def _home(self, expr: Expr, scope: _Scope) -> _Scope:
        """The outermost scope that binds what ``expr`` needs. Nothing leaves a guarded scope: its loads are unsafe outside."""
        needed = expr.free
        while scope.parent is not None and not scope.guarded and not (needed & scope.bound):
            scope = scope.parent
        return scope

    def _lower(self, expr: Expr, scope: _Scope) -> Operand:
        if isinstance(expr, Const):
            return expr
        operand = scope.find(expr)
        if operand is not None:
            return operand
        if isinstance(expr, (Var, Hole)):
            raise KeyError(f"{expr.name} is not bound here")
        home = self._home(expr, scope)
        result: Operand
        if isinstance(expr, Select) and self._reads_more(expr, home):
            result = self._if(expr, home)
        elif isinstance(expr, Reduce):
            result = self._reduce(expr, home)
        else:
            operands = tuple(self._lower(child, home) for child in expr.operands)
            target = self._fresh(expr.dtype)
            home.block.statements.append(Let(target, expr, operands))
            result = target
        home.names[expr] = result
        return result

    def _reads_more(self, expr: Select, scope: _Scope) -> bool:
        """Whether a branch has loads that are not executed in any case. Lowers the condition and the loads that are."""
        self._lower(expr.condition, scope)
        certain = self._reads_certainly(expr.then) & self._reads_certainly(expr.otherwise)
        if certain:
            for node in [n for n in walk(expr) if n in certain]:  # operands first
                self._lower(node, scope)
        stack, seen = [expr.then, expr.otherwise], set()
        while stack:
            node = stack.pop()
            if node in seen or scope.find(node) is not None:
                continue
            if isinstance(node, (Load, Reduce)):
                return True
            seen.add(node)
            stack.extend(node.operands)
        return False

    def _reads_certainly(self, expr: Expr) -> frozenset[Expr]:
        """The parts of ``expr`` that read memory and are computed whichever branches are taken."""
        pending = [expr]
        while pending:
            node = pending[-1]
            if node in self._certain:
                pending.pop()
                continue
            if unknown := [operand for operand in node.operands if operand not in self._certain]:
                pending += unknown
                continue
            pending.pop()
            match node:
                case Select():
                    always = self._certain[node.condition] | self._certain[node.then] & self._certain[node.otherwise]
                case Reduce():  # its body is another scope, which may never run
                    always = frozenset()
                case _:
                    always = frozenset().union(*(self._certain[operand] for operand in node.operands))
            if isinstance(node, (Load, Reduce)) or any(operand in self._reading for operand in node.operands):
                self._reading.add(node)
                always |= {node}
            self._certain[node] = always
        return self._certain[expr]

    def _if(self, expr: Select, scope: _Scope) -> Ref:
        condition = self._lower(expr.condition, scope)
        then, otherwise = Block(), Block()
        then_value = self._lower(expr.then, _Scope(scope, frozenset(), then, guarded=True))
        otherwise_value = self._lower(expr.otherwise, _Scope(scope, frozenset(), otherwise, guarded=True))
        result = self._fresh(expr.dtype)
        scope.block.statements.append(If(result, condition, then, then_value, otherwise, otherwise_value))
        return result

    def _reduce(self, expr: Reduce, scope: _Scope) -> Operand:
        identity = literal(identity_of(expr.op, expr.dtype), expr.dtype)
        if any(is_zero(axis.extent) for axis in expr.axes):
            return identity
        result = self._fresh(expr.dtype)
        points = math.prod(axis.extent for axis in expr.axes)
        inner, loops = scope, []
        for axis in expr.axes:
            name = f"{self._prefix}{self._counter}"
            self._counter += 1
            loops.append(
                Loop(axis, name, Block(), unroll=not isinstance(points, Size) and points <= self._unroll_limit)
            )
            inner = _Scope(inner, frozenset({axis}), loops[-1].body)
            inner.names[axis] = Ref(name, axis.dtype)
        value = self._lower(expr.body, inner)
        loops[-1].body.statements.append(Accumulate(result, expr.op, value))
        # append each loop to the enclosing loop last: the statements that were moved out of it must come first
        for outer, nested in zip(loops[-2::-1], loops[:0:-1], strict=True):
            outer.body.statements.append(nested)
        scope.block.statements += [Start(result, identity), loops[0]]
        return result


def lower_all(
    exprs: Sequence[Expr], bindings: Mapping[Expr, str], *, unroll_limit: int = 0
) -> tuple[Block, list[Operand]]:
    """One block that computes all ``exprs``, and their operands."""
    lowering = Lowering(bindings, unroll_limit=unroll_limit)
    results = [lowering.lower(e) for e in exprs]
    return lowering.block, results


def is_short(exprs: Sequence[Expr], most: int) -> bool:
    """Whether at most ``most`` names compute ``exprs``. Nested selects can need far more statements than they have nodes."""
    bindings: dict[Expr, str] = {axis: f"i{k}" for k, axis in enumerate(frozenset().union(*(e.free for e in exprs)))}
    lowering = Lowering(bindings, most=most)
    try:
        for expr in exprs:
            lowering.lower(expr)
    except OverflowError:
        return False
    return True
