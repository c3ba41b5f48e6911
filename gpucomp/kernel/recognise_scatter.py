"""Recognises scatters by the structure of their expressions.

    data op (op over k of select(found[k] == i, update[k], identity))          updates that combine
    select(last < 0, data, update[last])                                       updates that replace, where
        last = max over k of select(found[k] == i, k, -1)

These expressions search all updates for each element. A ``Scatter`` runs over the updates instead, and each update
finds its element.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpucomp.expr.core import (
    REDUCTIONS,
    Call,
    Cast,
    Const,
    Expr,
    Reduce,
    Select,
    Var,
    both,
    call,
    cast,
    hole,
    identity_of,
    literal,
    loads,
    reduces,
    substitute,
)
from gpucomp.expr.simplify import flatten, simplify
from gpucomp.ir.size import is_zero
from gpucomp.ir.types import BOOL, I64, DType
from gpucomp.kernel import Scatter
from gpucomp.lazy_dataclass import dataclass


@dataclass(frozen=True)
class _Updates:
    """The initial element, the reduction that searches for updates, and the element after an update of the hole."""

    initial: Expr
    search: Reduce
    after: Expr


def scatter_of(domain: Sequence[Var], value: Expr) -> Scatter | None:
    """``value`` over ``domain`` as a scatter; ``None`` if it is not one.

    Sums and products of 16-bit floats do not become scatters: each update would store, and so round, its result.
    """
    if len(reduces(value)) != 1 or any(is_zero(v.extent) for v in domain):
        return None
    guard: Expr = literal(True, BOOL)
    acc = hole("acc", value.dtype)
    read = _updates(value, acc)
    if read is None:
        match value:
            case Select(condition=guard, then=then, otherwise=otherwise):
                read = _updates(then, acc)
            case _:
                return None
        if read is None or read.initial is not otherwise or loads(guard):
            return None
    search, axes = read.search, set(domain)
    if any(is_zero(v.extent) for v in search.axes):
        return None
    match search.body:
        case Select(condition=hit):
            pass
        case _:
            return None
    places: list[Var] = []
    found: list[Expr] = []
    where: list[Expr] = []
    for part in _conjunction(hit):
        match part:
            case Call(fn="eq", args=(at, Var() as place)) if place in axes and place not in places:
                pass
            case Call(fn="eq", args=(Var() as place, at)) if place in axes and place not in places:
                pass
            case _:
                where.append(part)
                continue
        if at.dtype is not I64:
            return None
        places.append(place)
        found.append(at)
    condition = both(where)
    if not places or any(e.free & set(places) for e in (*found, guard, condition, read.after)):
        return None
    order = [v for v in domain if v in places]
    at_place = dict(zip(places, found, strict=True))
    lines = tuple(v for v in domain if v not in places)
    indices = tuple(at_place[v] for v in order)
    return Scatter(lines, tuple(order), search.axes, indices, guard, condition, read.initial, read.after, acc)


def _updates(value: Expr, acc: Expr) -> _Updates | None:
    """Matches the two forms of a scatter's element; see the module's docstring."""
    match value:
        case Select(
            condition=Call(fn="lt", args=(Reduce(op="max") as last, Const(value=0))), then=data, otherwise=update
        ):
            return _replaced(data, last, update)
    return _combined(value, acc)


def _replaced(data: Expr, last: Reduce, update: Expr) -> _Updates | None:
    number = flatten(last.axes, tuple(a.extent for a in last.axes))
    match last.body:
        case Select(then=counted, otherwise=Const(value=-1)) if simplify(counted) is number:
            pass
        case _:
            return None
    return None if reduces(data) else _Updates(data, last, simplify(substitute(update, {last: number})))


def _combined(value: Expr, acc: Expr) -> _Updates | None:
    stored: DType = value.dtype
    inner = value.value if isinstance(value, Cast) else value
    if not isinstance(inner, (Call, Reduce)):
        return None
    match inner:
        case Reduce() as search:  # the data is the identity, and was simplified away
            data: Expr = literal(identity_of(search.op, search.dtype), search.dtype)
        case Call(fn=fn, args=(data, Reduce() as search)) if fn == REDUCTIONS[search.op]:
            pass
        case _:
            return None
    exact = stored is search.dtype or (stored.is_integer and search.dtype.is_integer)
    if search.op in {"sum", "prod"} and not exact:  # the result would be rounded after each update
        return None
    nothing = literal(identity_of(search.op, search.dtype), search.dtype)
    match search.body:
        case Select(then=update, otherwise=otherwise) if otherwise is nothing and not reduces(data):
            after = call(REDUCTIONS[search.op], cast(acc, search.dtype), update)
            narrow = data.value if isinstance(data, Cast) and data.value.dtype is stored else cast(data, stored)
            return _Updates(narrow, search, cast(after, stored))
    return None


def _conjunction(condition: Expr) -> list[Expr]:
    parts, stack = [], [condition]
    while stack:
        match stack.pop():
            case Call(fn="and", args=(a, b)):
                stack += [b, a]
            case part:
                parts.append(part)
    return parts
