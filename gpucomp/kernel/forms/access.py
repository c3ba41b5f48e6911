"""Memory access of a kernel's expressions: flat offsets, terms grouped by loop, vector loads. Nothing is printed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpucomp.expr.core import (
    Call,
    Cast,
    Const,
    Expr,
    Hole,
    Load,
    Reduce,
    Select,
    Var,
    call,
    literal,
    load,
    substitute,
    transform,
    walk,
)
from gpucomp.expr.simplify import coefficient, flatten, from_linear, linear, simplify
from gpucomp.ir.size import Size, divides, is_one
from gpucomp.ir.size import is_zero as zero_size
from gpucomp.ir.types import I64, TensorType
from gpucomp.refusal import Refusal


class Rewriter:
    """Rewrites a kernel's expressions: variables are replaced by a template's, and each load gets one flat offset."""

    def __init__(self, params: Sequence[TensorType], replacements: Mapping[Expr, Expr]) -> None:
        self._params, self._replacements = params, replacements

    def __call__(self, expr: Expr) -> Expr:
        return simplify(transform(transform(expr, self._replacements.get), self._flat))

    def offset(self, target: int, indices: Iterable[Expr]) -> Expr:
        """The flat offset of ``params[target][indices]``."""
        return self(flatten(tuple(indices), self._params[target].shape))

    def _flat(self, node: Expr) -> Expr | None:
        if not isinstance(node, Load):
            return None
        if zero_size(self._params[node.source].size):
            return literal(0, node.dtype)  # an empty source reads as 0
        return load(node.source, (flatten(node.index, self._params[node.source].shape),), node.dtype)


def split(offset: Expr, groups: Sequence[frozenset[Var]]) -> Expr:
    """``offset``, a linear form, with the terms of each group of variables added first.

    Each partial sum can then be hoisted out of the loops of the other groups.
    """
    constant, terms = linear(offset)
    parts: list[dict[Expr, int]] = [{} for _ in range(len(groups) + 1)]
    for term, factor in terms.items():
        home = next((i for i, g in enumerate(groups) if term.free <= g), len(groups))
        parts[home][term] = factor
    if sum(map(bool, parts)) < 2:
        return offset
    result: Expr | None = None
    for part in filter(None, parts):
        piece = from_linear(constant if result is None else 0, part)
        result = piece if result is None else call("add", result, piece)
    assert result is not None
    return result


def regroup(expr: Expr, groups: Sequence[frozenset[Var]]) -> Expr:
    """``expr`` with ``split`` applied to its outermost sums, in offsets and in guards."""

    def change(node: Expr) -> Expr | None:
        if isinstance(node, Load):
            return load(node.source, [split(i, groups) for i in node.index], node.dtype)
        if isinstance(node, Call) and node.fn in {"lt", "le", "eq", "ne"} and node.args[0].dtype is I64:
            a, b = node.args
            return call(node.fn, split(a, groups), split(b, groups))
        return None

    return transform(expr, change)


def reads_memory(expr: Expr) -> bool:
    return any(isinstance(node, (Load, Reduce)) for node in walk(expr))


def is_zero(value: Expr) -> bool:
    """Whether ``value`` is the constant 0 or +0.0. -0.0 does not count."""
    return isinstance(value, Const) and value.value == 0 and math.copysign(1.0, value.value) > 0


def guarded_load(value: Expr) -> tuple[Load, tuple[Expr, ...]] | Refusal:
    """``value`` as a load and its guards, with zero where a guard fails; or why it is not one."""
    guards: list[Expr] = []
    while isinstance(value, Select) and is_zero(value.otherwise):
        guards.append(value.condition)
        value = value.then
    if not isinstance(value, Load):
        return Refusal("it is computed, not just read")
    if any(map(reads_memory, (*guards, *value.index))):
        return Refusal("its index or its guard is read from memory")
    return value, tuple(guards)


def parts_within(exprs: Iterable[Expr], inside: frozenset[Var], *, loads: bool = True) -> list[Expr]:
    """The largest subexpressions that depend only on variables of ``inside`` and are safe to compute early.

    A load under a ``Select`` is not moved out of its guard. Variables and constants are left out because they cost
    nothing.
    """
    found: dict[Expr, None] = {}
    seen: set[tuple[Expr, bool]] = set()
    stack = [(e, False) for e in exprs]
    while stack:
        node, guarded = stack.pop()
        if (node, guarded) in seen or isinstance(node, (Const, Var, Hole)):
            continue
        seen.add((node, guarded))
        holes = any(isinstance(n, Hole) for n in walk(node))
        if node.free <= inside and not holes and not (reads_memory(node) and (guarded or not loads)):
            found[node] = None
        elif isinstance(node, Select) and reads_memory(node):
            stack += [(node.otherwise, True), (node.then, True), (node.condition, guarded)]
        elif isinstance(node, Reduce):
            continue  # the body is computed inside its own loop
        else:
            stack += [(child, guarded) for child in reversed(node.operands)]
    return list(found)


@dataclass(frozen=True)
class VectorLoad:
    """A load that is contiguous in the lane of a vector. ``guards`` are the conditions under which it may be read."""

    load: Load
    guards: tuple[Expr, ...]


def vector_loads(exprs: Sequence[Expr], lane: Var, width: int) -> list[VectorLoad]:
    """The loads of ``exprs`` that can be accesses of ``width`` elements.

    Such a load is contiguous in ``lane`` and aligned to the width. Its guards do not depend on the lane, and all its
    uses are under these guards.
    """
    found = []
    for node, guards in _guarded(exprs, lambda node: isinstance(node, Load), lane).items():
        if not isinstance(node, Load) or (guards and reads_memory(node.index[0])):
            continue
        if is_aligned(node.index[0], lane, width):
            found.append(VectorLoad(node, guards))
    return found


def chosen_loads(expr: Expr, lane: Var, width: int) -> dict[Expr, tuple[Expr, ...]]:
    """Like ``vector_loads``, also of loads among which conditions choose, as in a concatenation: by value, their guards.

    The conditions are the same for all lanes, so that one address is chosen and one access reads all. What is loaded may
    be cast before the choice.
    """
    return _guarded([expr], lambda node: not isinstance(node, Cast) and _is_choice(node, lane, width), lane)


def _is_choice(value: Expr, lane: Var, width: int) -> bool:
    if isinstance(value, Cast):
        value = value.value
        return isinstance(value, Load) and _is_choice(value, lane, width)
    if isinstance(value, Load):
        return is_aligned(value.index[0], lane, width) and not reads_memory(value.index[0])
    if not isinstance(value, Select) or lane in value.condition.free or reads_memory(value.condition):
        return False
    return _is_choice(value.then, lane, width) and _is_choice(value.otherwise, lane, width)


def _guarded(exprs: Sequence[Expr], wanted: Callable[[Expr], bool], lane: Var) -> dict[Expr, tuple[Expr, ...]]:
    """What is ``wanted`` of ``exprs``, and the guards that all its uses are under, if they do not depend on the lane."""
    paths: dict[Expr, set[tuple[Expr, ...]]] = {}
    stack: list[tuple[Expr, tuple[Expr, ...]]] = [(e, ()) for e in exprs]
    seen: set[tuple[Expr, tuple[Expr, ...]]] = set()
    while stack:
        node, guards = stack.pop()
        if (node, guards) in seen or isinstance(node, Reduce):
            continue
        seen.add((node, guards))
        if is_wanted := wanted(node):
            paths.setdefault(node, set()).add(guards)
        if not isinstance(node, Select):
            stack += [(child, guards) for child in node.operands]
        elif not is_wanted:
            negated = call("not", node.condition)
            stack += [
                (node.condition, guards),
                (node.then, (*guards, node.condition)),
                (node.otherwise, (*guards, negated)),
            ]
    found = {}
    for node, ways in paths.items():
        # relu(x[i]) reads x[i] twice: without a guard in the comparison, and guarded where it is positive
        weakest = min(ways, key=len)
        implied = all(set(weakest) <= set(way) for way in ways)
        if implied and not any(lane in g.free or reads_memory(g) for g in weakest):
            found[node] = weakest
    return found


def is_aligned(offset: Expr, lane: Var, width: int) -> bool:
    """Whether ``offset`` is ``lane`` plus a multiple of ``width``."""
    if not is_one(coefficient(offset, lane)):
        return False
    constant, terms = linear(offset)
    return divides(width, constant) and all(divides(width, f) for term, f in terms.items() if term is not lane)


def equal_in_lanes(expr: Expr, lane: Var, width: int) -> Expr:
    """``expr`` without ``lane`` in conditions that are the same for all lanes.

    before --> after, for four lanes: ``4 * i + lane < 8`` --> ``4 * i < 8``, ``8 <= 4 * i + lane`` --> ``8 <= 4 * i``
    """

    def change(node: Expr) -> Expr | None:
        if not isinstance(node, Call) or node.fn not in {"lt", "le"} or lane not in node.free:
            return None
        low, high = node.args if node.fn == "lt" else node.args[::-1]
        if low.dtype is not I64 or not is_aligned(call("sub", low, high), lane, width):
            return None
        return simplify(substitute(node, {lane: literal(0, I64)}))

    return transform(expr, change)


def steady(extent: Any) -> int:
    """``extent``; of one that each run decides, the largest power of two, up to 64, that divides it in every run."""
    if not isinstance(extent, Size):
        return int(extent)
    return next(power for power in (64, 32, 16, 8, 4, 2, 1) if divides(power, extent))


def innermost(exprs: Iterable[Expr], variable: Var) -> bool:
    """Whether some load of ``exprs`` is contiguous in ``variable``."""
    loads = (node for e in exprs for node in walk(e) if isinstance(node, Load))
    return any(is_one(coefficient(node.index[0], variable)) for node in loads)
