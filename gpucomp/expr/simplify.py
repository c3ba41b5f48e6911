"""Simplifies index arithmetic: intervals, and rewriting to a sum of terms. Floating-point expressions do not change.

Integer expressions become ``c0 + c1*t1 + c2*t2 ...`` with one coefficient per distinct term. The index map of
``reshape(transpose(reshape(x)))`` then looks as a person would write it:

    (q*(x//q) + x%q)          ->  x
    (c*a + b) // c            ->  a + b//c         (a + 0 when 0 <= b < c)
    (c*a + b) % c             ->  b % c
    (x // a) // b             ->  x // (a*b)
    (c*a + b) // (c*d)        ->  a // d           (0 <= b < c)
    (x % (a*b)) // a          ->  (x // a) % b
    comparisons decided by the operands' intervals become constants

Coefficients, divisors and the ends of intervals can be sizes that each run decides. A rule then fires only if what it needs is
proved for every run; it never notes a condition.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

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
    index,
    literal,
    reduce,
    select,
    transform,
)
from gpucomp.ir.extremes import largest, smallest
from gpucomp.ir.size import Size, at_most, below, divides, hint, is_one, is_zero, same
from gpucomp.ir.size import bounds as bounds_of_size
from gpucomp.ir.types import BOOL, I64

Interval = tuple[float, float]
Ends = tuple[Any, Any]  # numbers, or sizes
ANYTHING: Interval = (-math.inf, math.inf)


def bounds(expr: Expr) -> Interval:
    """Lowest and highest value of an integer expression, in any run (infinite where unknown)."""
    return _numbers(ends(expr))


def ends(expr: Expr) -> Ends:
    """As ``bounds``, but the lowest and the highest value of each run, which can be sizes. Every node keeps its own."""
    found: Ends | None = expr.__dict__.get("_interval")
    if found is None:
        found = _ends(expr)
        object.__setattr__(expr, "_interval", found)
    return found


def _numbers(interval: Ends) -> Interval:
    low, high = interval
    return (  # type: ignore[return-value]  # of whole numbers
        bounds_of_size(low)[0] if isinstance(low, Size) else low,
        bounds_of_size(high)[1] if isinstance(high, Size) else high,
    )


def _ends(expr: Expr) -> Ends:
    match expr:
        case Const(value=value):
            return (value, value)
        case Var(extent=extent):
            return (0, largest(extent - 1, 0) if isinstance(extent, Size) else max(extent - 1, 0))
        case Select():
            a, b = ends(expr.then), ends(expr.otherwise)
            if _has_sizes(a, b):
                return _sized_ends("min", a, b, expr)[0], _sized_ends("max", a, b, expr)[1]
            return (min(a[0], b[0]), max(a[1], b[1]))
        case Cast() if not expr.value.dtype.is_float and expr.dtype.bits >= 32:
            return ends(expr.value)
        case Call(fn=fn, args=(a, b)):
            first, second = ends(a), ends(b)
            which = _sized_ends if _has_sizes(first, second) else _binary_bounds
            return which(fn, first, second, expr)
        case Call(fn="neg", args=(a,)):
            low, high = ends(a)
            return (-high, -low)
        case Load() if expr.dtype.is_integer:
            info = np.iinfo(expr.dtype.numpy) if not expr.dtype.storage_only else None
            return (int(info.min), int(info.max)) if info is not None else ANYTHING
        case Cast() if expr.dtype.is_integer and expr.dtype.bits < 32 and not expr.dtype.storage_only:
            info = np.iinfo(expr.dtype.numpy)
            return (int(info.min), int(info.max))
    return (0, 1) if expr.dtype is BOOL else ANYTHING


def _has_sizes(*intervals: Ends) -> bool:
    return any(isinstance(end, Size) for interval in intervals for end in interval)


def _sized_ends(fn: str, a: Ends, b: Ends, expr: Expr) -> Ends:
    """The ends of a function of two operands, of which at least one end is a size."""
    if all(isinstance(end, Size | int) for end in (*a, *b)):
        if fn == "add":
            return (a[0] + b[0], a[1] + b[1])
        if fn == "sub":
            return (a[0] - b[1], a[1] - b[0])
        if fn == "mul":
            for x, y in ((a, b), (b, a)):
                if at_most(0, x[0]) and (at_most(0, y[0]) or same(*x)):
                    return (x[0] * y[0], x[1] * y[1])
        if fn in {"min", "max"}:
            pick = smallest if fn == "min" else largest
            return (pick(a[0], b[0]), pick(a[1], b[1]))
        if fn in {"floordiv", "mod"} and same(*b) and below(0, b[0]):
            c = b[0]
            if fn == "floordiv":
                return (a[0] // c, a[1] // c)
            return a if at_most(0, a[0]) and below(a[1], c) else (0, c - 1)
    return _binary_bounds(fn, _numbers(a), _numbers(b), expr)


def _product(x: float, y: float) -> float:
    return 0 if x == 0 or y == 0 else x * y  # 0 * inf is 0 for interval ends


def _binary_bounds(fn: str, a: Interval, b: Interval, expr: Expr) -> Interval:
    if fn == "add":
        return (a[0] + b[0], a[1] + b[1])
    if fn == "sub":
        return (a[0] - b[1], a[1] - b[0])
    if fn == "mul":
        ends = [_product(x, y) for x in a for y in b]
        return (min(ends), max(ends))
    if fn == "min":
        return (min(a[0], b[0]), min(a[1], b[1]))
    if fn == "max":
        return (max(a[0], b[0]), max(a[1], b[1]))
    if fn in {"floordiv", "div"} and b[0] == b[1] and b[0] > 0 and (fn == "floordiv" or a[0] >= 0):
        c = b[0]
        return tuple(x // c if math.isfinite(x) else x for x in a)  # type: ignore[return-value]
    if fn == "mod" and b[0] == b[1] and b[0] > 0:
        return a if a[0] >= 0 and a[1] < b[0] else (0, b[0] - 1)
    return (0, 1) if expr.dtype is BOOL else ANYTHING


Terms = dict[Expr, Any]  # of int or Size


def linear(expr: Expr) -> tuple[Any, Terms]:
    """``expr`` as constant + sum of coefficient * term. Terms are variables, quotients, remainders, loads ..."""
    constant: Any = 0
    terms: Terms = {}
    stack: list[tuple[Expr, Any]] = [(expr, 1)]
    while stack:
        node, factor = stack.pop()
        if type(node) is Const:
            constant = constant + factor * _whole(node.value)
            continue
        if type(node) is Call:  # no ``match``: of all expressions, these are looked at most often
            fn, args = node.fn, node.args
            if fn == "add":
                stack += [(args[1], factor), (args[0], factor)]
                continue
            if fn == "sub":
                stack += [(args[1], -factor), (args[0], factor)]
                continue
            if fn == "neg":
                stack.append((args[0], -factor))
                continue
            if fn == "mul":
                a, b = args
                if type(b) is Const:
                    stack.append((a, factor * _whole(b.value)))
                    continue
                if type(a) is Const:
                    stack.append((b, factor * _whole(a.value)))
                    continue
        terms[node] = terms.get(node, 0) + factor
    return constant, _without_zeros(terms)


def _whole(value: Any) -> Any:
    return value if type(value) is int or isinstance(value, Size) else int(value)


def _without_zeros(terms: Terms) -> Terms:
    return {t: c for t, c in terms.items() if not is_zero(c)}


def _sign(factor: Any) -> bool:
    """Whether ``factor`` is spelt with a plus: a size that is positive in the example is."""
    return bool(hint(factor) > 0)


def _order(item: tuple[Expr, Any]) -> Any:
    factor: Any = hint(item[1])
    return -abs(factor)


def from_linear(constant: Any, terms: Terms) -> Expr:
    """The canonical spelling of a linear form: terms by falling coefficient, constant last."""
    result: Expr | None = None
    for term, factor in sorted(terms.items(), key=_order):
        positive = _sign(factor)
        size = factor if positive else -factor
        part = term if is_one(size) else call("mul", term, size)
        if result is not None:
            part = call("add" if positive else "sub", result, part)
        elif not positive:
            part = call("neg", part)
        result = part
    if result is None:
        return index(constant)
    if is_zero(constant):
        return result
    return call("add", result, constant) if _sign(constant) else call("sub", result, -constant)


def _join_quotients(constant: Any, terms: Terms) -> tuple[Any, Terms]:
    """q*c*(x // q) + c*(x % q)  ->  c*x"""
    for node, factor in list(terms.items()):
        match node:
            case Call(fn="mod", args=(x, Const(value=q))):
                quotient = call("floordiv", x, q)
                match x:  # (y // a) // q is spelt y // (a*q)
                    case Call(fn="floordiv", args=(y, Const(value=a))):
                        quotient = call("floordiv", y, a * q)
                if quotient in terms and same(terms[quotient], factor * q):
                    del terms[node], terms[quotient]
                    inner_constant, inner = linear(x)
                    for t, c in inner.items():
                        terms[t] = terms.get(t, 0) + c * factor
                    return _join_quotients(constant + inner_constant * factor, _without_zeros(terms))
    return constant, terms


def same_form(first: Expr, second: Expr) -> bool:
    """Whether two integer expressions are the same sum of terms. No condition is noted."""
    (constant, terms), (other, others) = linear(first), linear(second)
    return same(constant, other) and terms.keys() == others.keys() and all(same(f, others[t]) for t, f in terms.items())


def simplify(expr: Expr) -> Expr:
    """``expr`` with its index arithmetic in canonical form. Every node keeps its own."""
    return transform(expr, _step, kept="_simple")


def _step(node: Expr) -> Expr | None:
    if type(node) is Call:
        return _step_of_call(node)
    if isinstance(node, Var) and is_one(node.extent):
        return index(0)
    if isinstance(node, Reduce) and any(is_one(a.extent) for a in node.axes):
        return reduce(node.op, tuple(a for a in node.axes if not is_one(a.extent)), node.body)
    if isinstance(node, Select) and not isinstance(node.condition, Const):
        return _select(node)
    return None


def _step_of_call(node: Call) -> Expr | None:
    fn = node.fn
    if fn in {"lt", "le", "eq", "ne"} and not node.args[0].dtype.is_float:
        return _compare(node)
    if node.dtype is not I64:
        return None
    if fn in {"add", "sub", "neg", "mul"}:
        constant, terms = linear(node)
        return from_linear(*_join_quotients(constant, terms))
    if fn in {"floordiv", "mod"} and isinstance(node.args[1], Const) and below(0, node.args[1].value):
        quotient, rest = _divide(node.args[0], _whole(node.args[1].value))
        return quotient if fn == "floordiv" else rest
    if fn in {"min", "max"}:
        return _extremum(node)
    return None


def _divide(x: Expr, c: Any) -> tuple[Expr, Expr]:
    """``x // c`` and ``x % c``."""
    constant, terms = linear(x)
    whole: Terms = {}
    part: Terms = {}
    for t, f in terms.items():
        if divides(c, f):
            whole[t] = f // c
        else:
            part[t] = f
    if isinstance(c, Size) and not divides(c, constant):
        shared, constant = 0, constant  # by how often a constant holds a size is no simpler
    else:
        shared, constant = constant // c, constant % c
    rest = from_linear(constant, part)
    low, high = ends(rest)
    if isinstance(c, Size) or _has_sizes((low, high)):
        if at_most(0, low) and below(high, c):
            return from_linear(shared, whole), rest
    elif math.isfinite(low) and math.isfinite(high) and low // c == high // c:
        k = int(low // c)
        quotient = from_linear(shared + k, whole)
        constant_rest, part_rest = linear(rest)
        return quotient, from_linear(constant_rest - k * c, part_rest)
    divisor = 0
    if isinstance(c, int) and isinstance(constant, int) and all(isinstance(f, int) for f in part.values()):
        divisor = math.gcd(c, *part.values())
    if divisor > 1 and at_most(0, low):  # (d*x + k) // (d*c) -> x // c when 0 <= k < d
        k = constant % divisor
        inner = from_linear(constant // divisor, {t: f // divisor for t, f in part.items()})
        q, r = _divide(inner, c // divisor)
        scaled = linear(call("mul", r, divisor))
        return _add(whole, shared, q), from_linear(scaled[0] + k, scaled[1])
    if (grouped := _divide_groups(constant, part, c)) is not None:
        q, r = grouped
        return _add(whole, shared, q), r
    q, r = _atom(rest, c)
    return _add(whole, shared, q), r


def _group_sizes(terms: Terms, c: Any) -> list[Any]:
    if isinstance(c, int) and all(isinstance(f, int) for f in terms.values()):
        return [g for g in sorted({math.gcd(f, c) for f in terms.values()}, reverse=True) if g not in (1, c)]
    sizes = {str(f): f for f in terms.values() if below(0, f) and divides(f, c) and not is_one(f) and not same(f, c)}
    return sorted(sizes.values(), key=hint, reverse=True)


def _divide_groups(constant: Any, terms: Terms, c: Any) -> tuple[Expr, Expr] | None:
    """(g*a + b) // (g*h) -> a // h, and the remainder g*(a % h) + b, when 0 <= b < g"""
    for g in _group_sizes(terms, c):
        coarse = {t: f // g for t, f in terms.items() if divides(g, f)}
        fine = from_linear(constant, {t: f for t, f in terms.items() if t not in coarse})
        low, high = ends(fine)
        if not (at_most(0, low) and below(high, g)):
            continue
        q, r = _divide(from_linear(0, coarse), c // g)
        scaled, inner = linear(call("mul", r, g)), linear(fine)
        merged = dict(scaled[1])
        for t, f in inner[1].items():
            merged[t] = merged.get(t, 0) + f
        return q, from_linear(scaled[0] + inner[0], merged)
    return None


def _add(terms: Terms, constant: Any, extra: Expr) -> Expr:
    extra_constant, extra_terms = linear(extra)
    total = dict(terms)
    for t, f in extra_terms.items():
        total[t] = total.get(t, 0) + f
    return from_linear(constant + extra_constant, _without_zeros(total))


def _atom(x: Expr, c: Any) -> tuple[Expr, Expr]:
    match x:
        case Call(fn="floordiv", args=(inner, Const(value=a))):
            q, _ = _divide(inner, _whole(a) * c)
            return q, call("mod", x, c)
        case Call(fn="mod", args=(inner, Const(value=a))) if divides(c, _whole(a)):
            q, r = _divide(inner, c)
            return _divide(q, _whole(a) // c)[1], r
    return call("floordiv", x, c), call("mod", x, c)


def _compare(node: Call) -> Expr | None:
    a, b = node.args
    if a.dtype is not I64:
        return None
    constant, terms = linear(call("sub", a, b))
    low, high = ends(from_linear(constant, terms))
    zero, apart = is_zero(low) and is_zero(high), below(high, 0) or below(0, low)
    verdict = {
        "lt": (below(high, 0), at_most(0, low)),
        "le": (at_most(high, 0), below(0, low)),
        "eq": (zero, apart),
        "ne": (apart, zero),
    }[node.fn]
    return literal(verdict[0], BOOL) if any(verdict) else None


def _extremum(node: Call) -> Expr | None:
    (a_low, a_high), (b_low, b_high) = ends(node.args[0]), ends(node.args[1])
    if at_most(a_high, b_low):
        return node.args[0] if node.fn == "min" else node.args[1]
    if at_most(b_high, a_low):
        return node.args[1] if node.fn == "min" else node.args[0]
    return None


def _select(node: Select) -> Expr | None:
    """select(c, select(c, a, b), d)  ->  select(c, a, d)"""
    match node.then:
        case Select(condition=inner) if inner is node.condition:
            return select(node.condition, node.then.then, node.otherwise)
    return None


def flatten(indices: tuple[Expr, ...], shape: tuple[Any, ...]) -> Expr:
    """The row-major offset, in elements, of ``indices`` in ``shape``."""
    offset: Expr = index(0)
    for i, extent in zip(indices, shape, strict=True):
        offset = call("add", call("mul", offset, extent), i)
    return simplify(offset)


def unflatten(offset: Expr, shape: tuple[Any, ...]) -> tuple[Expr, ...]:
    """The indices in ``shape`` of a row-major offset."""
    result: list[Expr] = []
    for extent in reversed(shape):
        extent = largest(extent, 1)
        result.append(call("mod", offset, extent) if len(result) + 1 < len(shape) else offset)
        offset = call("floordiv", offset, extent)
    return tuple(simplify(i) for i in reversed(result))


def coefficient(offset: Expr, variable: Var) -> int | None:
    """By how much ``offset`` grows when ``variable`` grows by one; ``None`` if that is not constant."""
    _, terms = linear(offset)
    if any(variable in t.free for t in terms if t is not variable):
        return None
    step: int = terms.get(variable, 0)
    return step
