"""Turns composed expressions into a kernel. The family is recognised by structure, never by an operator's name.

no reduction                                   loops
weighted sum over the softmax of products      attention
one sum of products, with rows and columns     contraction     (depthwise stays in loops: it has no columns)
one reduction over a sliding window            pool
one reduction up to an axis of the result      scan
one reduction that searches for updates        scatter
reductions over whole rows                     norm, or reduce if there is one result per row
anything else                                  loops, with the reductions inside
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gpucomp.device.limits import HEAD_LIMIT
from gpucomp.expr.core import (
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Reduce,
    Select,
    Var,
    call,
    hole,
    identity_of,
    index,
    literal,
    loads,
    reduces,
    substitute,
    var,
    walk,
)
from gpucomp.expr.simplify import coefficient, flatten, linear, simplify
from gpucomp.ir.size import at_most, divides, is_one, is_zero, same, same_shape
from gpucomp.ir.types import F32, I32, TensorType
from gpucomp.kernel import (
    Attention,
    Body,
    Contraction,
    Kernel,
    Loops,
    Rowwise,
    Scan,
    Statistic,
    Store,
    Window,
)
from gpucomp.kernel.recognise_scatter import scatter_of
from gpucomp.kernel.rename import canonical, rename
from gpucomp.lazy_dataclass import dataclass

SHORT_ROW = 7  # elements that are too few for lanes
WINDOW_LIMIT = 1024  # most points of a pooling window


@dataclass(frozen=True)
class Composed:
    """A kernel whose family is not known yet: stores over ``domain``."""

    params: tuple[TensorType, ...]
    outputs: int
    domain: tuple[Var, ...]
    stores: tuple[Store, ...]


def recognise(composed: Composed, label: str = "") -> Kernel:
    """The kernel that computes ``composed``, with canonical names for its variables."""
    stores = tuple(Store(s.target, tuple(map(simplify, s.index)), simplify(s.value)) for s in composed.stores)
    domain = tuple(v for v in composed.domain if not is_one(v.extent))
    for attempt in (_attention, _contraction, _scatter, _window, _scan, _rowwise):
        if found := attempt(domain, stores, composed.params):
            family, body, stores = found
            break
    else:
        domain, stores = _collapse(domain, stores, composed.params)
        family, body = "loops", Loops(domain)
    return canonical(Kernel(family, composed.params, composed.outputs, body, stores, label))


Found = tuple[str, Body, tuple[Store, ...]]


def _is_empty(axes: Sequence[Var]) -> bool:
    """Whether a domain has no points in any run. Kernels of other families than ``loops`` are not for such."""
    return any(is_zero(axis.extent) for axis in axes)


def _all_reduces(stores: Sequence[Store]) -> list[Reduce]:
    return list(dict.fromkeys(r for s in stores for r in reduces(s.value)))


def _replace(stores: Sequence[Store], replacements: dict[Expr, Expr]) -> tuple[Store, ...]:
    return tuple(
        Store(s.target, tuple(substitute(i, replacements) for i in s.index), substitute(s.value, replacements))
        for s in stores
    )


# attention --------------------------------------------------------------------------------------------------


def _attention(domain: tuple[Var, ...], stores: tuple[Store, ...], params: tuple[TensorType, ...]) -> Found | None:
    """sum_j exp(s_ij - max_j s_ij) v_jd / sum_j exp(s_ij - max_j s_ij), where s_ij holds sum_c q_ic k_jc"""
    quotients = list(dict.fromkeys(q for s in stores for q in walk(s.value) if _is_weighted_mean(q)))
    if len(quotients) != 1:
        return None
    (mean,) = quotients
    weighted, total = mean.operands
    assert isinstance(weighted, Reduce)
    assert isinstance(total, Reduce)
    weight, v = sorted(weighted.body.operands, key=lambda factor: not reduces(factor))
    match weight:
        case Call(fn="exp", args=(Call(fn="sub", args=(score, Reduce(op="max") as top)),)):
            pass
        case _:
            return None
    cols = weighted.axes
    if not (_is_same(total.body, total.axes, weight, cols) and _is_same(top.body, top.axes, score, cols)):
        return None
    match reduces(score):
        case [Reduce(op="sum", axes=depth, body=Call(fn="mul", args=(q, k))) as product]:
            q, k = (k, q) if set(cols) & q.free else (q, k)
        case _:
            return None
    if set(cols) & q.free or reduces(v) or mean.dtype is not F32:
        return None
    values = tuple(a for a in domain if a in v.free and a not in score.free)
    rows = tuple(a for a in domain if a in score.free and a not in v.free and a not in k.free)
    batch = tuple(a for a in domain if a not in values and a not in rows)
    sizes = [math.prod(a.extent for a in axes) for axes in (depth, values)]
    empty = _is_empty((*domain, *cols, *depth, *values))
    if empty or not all(at_most(size, HEAD_LIMIT) for size in sizes) or any(a not in mean.free for a in batch):
        return None
    for axis in batch:
        if split := _group_split(axis, call("mul", k, v)):  # query heads that share keys become rows of one head
            position = domain.index(axis)
            domain = (*domain[:position], *split, *domain[position + 1 :])
            apart = _replace(stores, {axis: split[0] * split[1].extent + split[1]})
            stores = tuple(Store(s.target, tuple(map(simplify, s.index)), simplify(s.value)) for s in apart)
            return _attention(domain, stores, params)
    dot, acc = hole("dot", product.dtype), hole("acc", mean.dtype)
    stores = _replace(stores, {mean: acc})
    if _all_reduces(stores):
        return None
    score = substitute(score, {product: dot})
    return "attention", Attention(batch, rows, cols, depth, values, q, k, v, dot, score, acc), stores


def _is_weighted_mean(expr: Expr) -> bool:
    match expr:
        case Call(fn="div", args=(Reduce(op="sum", body=Call(fn="mul")), Reduce(op="sum"))):
            return True
    return False


def _is_same(a: Expr, a_axes: tuple[Var, ...], b: Expr, b_axes: tuple[Var, ...]) -> bool:
    """Whether ``a`` equals ``b`` after renaming these axes and the axes of the reductions inside."""
    pairs = [(a_axes, b_axes), *((x.axes, y.axes) for x, y in zip(reduces(a), reduces(b), strict=False))]
    names: dict[Var, Var] = {}
    for ours, theirs in pairs:
        if not same_shape([v.extent for v in ours], [v.extent for v in theirs]):
            return False
        names |= dict(zip(ours, theirs, strict=True))
    return rename(a, names) is b


# contraction ------------------------------------------------------------------------------------------------


def _contraction(domain: tuple[Var, ...], stores: tuple[Store, ...], params: tuple[TensorType, ...]) -> Found | None:
    found = _all_reduces(stores)
    if len(found) != 1 or found[0].op != "sum" or _is_empty((*domain, *found[0].axes)):
        return None
    sum_ = found[0]
    match sum_.body:
        case Call(fn="mul", args=(a, b)):
            pass
        case _:
            return None
    if not loads(a) or not loads(b):
        return None
    splits: dict[Expr, Expr] = {}
    for axis in [v for v in domain if v in a.free and v in b.free]:
        split = _group_split(axis, a) or _group_split(axis, b)
        if split:
            splits[axis] = split[0] * split[1].extent + split[1]
            position = domain.index(axis)
            domain = (*domain[:position], *split, *domain[position + 1 :])
    if splits:
        a, b = simplify(substitute(a, splits)), simplify(substitute(b, splits))
        stores = _replace(stores, splits)
        stores = tuple(Store(s.target, tuple(map(simplify, s.index)), simplify(s.value)) for s in stores)
        found = _all_reduces(stores)
        if len(found) != 1:
            return None
        sum_ = found[0]
    if any(v not in a.free or v not in b.free for v in sum_.axes):
        return None
    if any(v not in a.free and v not in b.free for v in domain):
        return None
    only_a = tuple(v for v in domain if v in a.free and v not in b.free)
    only_b = tuple(v for v in domain if v in b.free and v not in a.free)
    batch = tuple(v for v in domain if v in a.free and v in b.free)
    if only_a and (not only_b or (domain and domain[-1] in only_a and domain[-1] not in batch)):
        a, b, only_a, only_b = b, a, only_b, only_a  # n is where results are contiguous
    codes = sum_.dtype is I32 and not _slides(
        sum_, domain
    )  # products of bytes have fast kernels for batches of vectors
    if not only_b or (not only_a and batch and not codes) or (not only_a and not _contiguous_in(b, only_b[-1], params)):
        return None  # depthwise, or a matrix times a vector, whose results are sums over rows
    acc = hole("acc", sum_.dtype)
    body = Contraction(batch, only_a, only_b, sum_.axes, a, b, acc)
    return "contraction", body, _replace(stores, {sum_: acc})


def _group_split(axis: Var, factor: Expr) -> tuple[Var, Var] | None:
    """The axes (group, member) if ``factor`` uses ``axis`` only as ``axis // q``, else ``None``."""
    quotients = {
        node.args[1].value
        for node in walk(factor)
        if isinstance(node, Call) and node.fn == "floordiv" and node.args[0] is axis and isinstance(node.args[1], Const)
    }
    if len(quotients) != 1:
        return None
    q: Any = quotients.pop()
    rest = substitute(factor, {call("floordiv", axis, q): index(0)})
    if axis in rest.free or not divides(q, axis.extent):
        return None
    return var("g", axis.extent // q), var("o", q)


def _contiguous_in(factor: Expr, axis: Var, params: tuple[TensorType, ...]) -> bool:
    steps = [coefficient(flatten(ld.index, params[ld.source].shape), axis) for ld in loads(factor)]
    return all(is_zero(step) or is_one(step) for step in steps)


# windows and rows -------------------------------------------------------------------------------------------


def _window(domain: tuple[Var, ...], stores: tuple[Store, ...], params: tuple[TensorType, ...]) -> Found | None:
    found = _all_reduces(stores)
    if len(found) != 1 or not at_most(math.prod(a.extent for a in found[0].axes), WINDOW_LIMIT):
        return None
    (reduction,) = found
    if _is_empty((*domain, *reduction.axes)) or not _slides(reduction, domain):
        return None
    match _unwrap(reduction.body):
        case Call(fn="mul", args=(a, b)) if loads(a) and loads(b):
            return None  # depthwise convolution
    acc = hole("acc", reduction.dtype)
    body = Window(domain, reduction.axes, reduction.op, reduction.body, acc)
    return "pool", body, _replace(stores, {reduction: acc})


def _unwrap(expr: Expr) -> Expr:
    return expr.value if isinstance(expr, Cast) else expr


def _slides(reduction: Reduce, domain: tuple[Var, ...]) -> bool:
    """Whether some index of a load depends on both an axis of the result and an axis of the window."""
    axes, places = set(reduction.axes), set(domain)
    return any(i.free & axes and i.free & places for ld in loads(reduction.body) for i in ld.index)


def _scatter(domain: tuple[Var, ...], stores: tuple[Store, ...], params: tuple[TensorType, ...]) -> Found | None:
    values = {s.value for s in stores}
    if len(values) != 1 or (body := scatter_of(domain, values.pop())) is None:
        return None
    return "scatter", body, tuple(Store(s.target, s.index, body.acc) for s in stores)


def _scan(domain: tuple[Var, ...], stores: tuple[Store, ...], params: tuple[TensorType, ...]) -> Found | None:
    """op over k of select(k <= i, x[k], identity), where i is an axis of the result of the same extent as k"""
    found = _all_reduces(stores)
    if len(found) != 1 or len(found[0].axes) != 1 or _is_empty(domain):
        return None
    (reduction,) = found
    (k,) = reduction.axes
    match reduction.body:
        case Select(
            condition=Call(fn="lt" | "le" as how, args=(Var() as a, Var() as b)), then=value, otherwise=nothing
        ):
            pass
        case _:
            return None
    axis = b if a is k else a
    if k not in (a, b) or axis not in domain or not same(axis.extent, k.extent) or axis in value.free:
        return None
    if nothing is not literal(identity_of(reduction.op, reduction.dtype), reduction.dtype) or not loads(value):
        return None
    acc = hole("acc", reduction.dtype)
    rows = tuple(v for v in domain if v is not axis)
    body = Scan(rows, axis, reduction.op, substitute(value, {k: axis}), acc, how == "lt", a is not k)
    return "scan", body, _replace(stores, {reduction: acc})


def _rowwise(domain: tuple[Var, ...], stores: tuple[Store, ...], params: tuple[TensorType, ...]) -> Found | None:
    found = _all_reduces(stores)
    if not found or _is_empty((*domain, *(a for r in found for a in r.axes))):
        return None
    extents = [a.extent for a in found[0].axes]
    if any(not same_shape([a.extent for a in r.axes], extents) for r in found):
        return None
    places = set(domain)
    rows = tuple(v for v in domain if any(v in r.free for r in found))
    rest = tuple(v for v in domain if v not in rows)
    if not rest and any(_slides(r, domain) and not _reads_along(r, domain, params) for r in found):
        return None  # depthwise convolution: neighbouring results share what they read
    if rest and not same_shape([v.extent for v in rest], extents):
        return None
    if any(r.free - places for r in found):
        return None  # a reduction inside another that depends on its axis
    cols = rest or tuple(var(f"c{d}", n) for d, n in enumerate(extents))
    replacements: dict[Expr, Expr] = {}
    statistics = []
    for number, reduction in enumerate(found):
        value = substitute(reduction.body, {**dict(zip(reduction.axes, cols, strict=True)), **replacements})
        statistic = Statistic(hole(f"s{number}", reduction.dtype), reduction.op, value)
        statistics.append(statistic)
        replacements[reduction] = statistic.hole
    stores = _replace(stores, replacements)
    if any(isinstance(node, Reduce) for s in statistics for node in walk(s.value)):
        return None
    columns = set(cols)
    per_row = frozenset(k for k, s in enumerate(stores) if not any(e.free & columns for e in (*s.index, s.value)))
    if rest and per_row and len(per_row) == len(stores):
        return None  # results are repeated along axes that only have the extents of the reduced ones
    if rest and per_row:
        return None
    family = "reduce" if len(per_row) == len(stores) else "norm"
    return family, Rowwise(rows, cols, tuple(statistics), per_row), stores


def _reads_along(reduction: Reduce, domain: tuple[Var, ...], params: tuple[TensorType, ...]) -> bool:
    """Whether what a result sums lies in a row in memory, and what neighbouring results read does not.

    So it is in a convolution with one channel of results whose image has the channels last, and in one along a line in steps.
    """
    inner = reduction.axes[-1]
    if at_most(inner.extent, SHORT_ROW):
        return False
    for load in loads(reduction.body):
        place = flatten(load.index, params[load.source].shape)
        steps = [coefficient(place, axis) for axis in domain if axis in place.free]
        if not is_one(coefficient(place, inner)) or any(step is None or is_one(step) for step in steps):
            return False
    return True


# fewer axes -------------------------------------------------------------------------------------------------


def _collapse(
    domain: tuple[Var, ...], stores: tuple[Store, ...], params: tuple[TensorType, ...]
) -> tuple[tuple[Var, ...], tuple[Store, ...]]:
    """Merge adjacent axes that are contiguous in every access: a copy of any shape becomes one loop."""
    position = len(domain) - 1
    while position > 0:
        outer, inner = domain[position - 1], domain[position]
        if _walks_as_one(outer, inner, stores, params):
            merged = var(outer.name, outer.extent * inner.extent)
            parts = {outer: call("floordiv", merged, inner.extent), inner: call("mod", merged, inner.extent)}
            stores = tuple(
                Store(s.target, tuple(map(simplify, s.index)), simplify(s.value))
                for s in _replace(stores, parts)  # type: ignore[arg-type]
            )
            domain = (*domain[: position - 1], merged, *domain[position + 1 :])
        position -= 1
    return domain, stores


def _walks_as_one(outer: Var, inner: Var, stores: Sequence[Store], params: tuple[TensorType, ...]) -> bool:
    pair = {outer, inner}
    accesses = [flatten(s.index, params[s.target].shape) for s in stores]
    for store in stores:
        accesses += [flatten(ld.index, params[ld.source].shape) for ld in loads(store.value)]
    for offset in accesses:
        _, terms = linear(offset)
        if any(t.free & pair for t in terms if t not in pair):
            return False
        if not same(terms.get(outer, 0), terms.get(inner, 0) * inner.extent):
            return False
    return not any(_uses_outside_loads(store.value, pair) for store in stores)


def _uses_outside_loads(expr: Expr, pair: set[Var]) -> bool:
    """Whether a variable of ``pair`` is used outside the indices of loads: in a guard, or as a number."""
    stack, seen = [expr], set()
    while stack:
        node = stack.pop()
        if node in seen or isinstance(node, Load):
            continue
        seen.add(node)
        if node in pair:
            return True
        stack.extend(node.operands)
    return False
