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
"""

from __future__ import annotations

import math

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
from gpucomp.ir.types import BOOL, I64

Interval = tuple[float, float]
ANYTHING: Interval = (-math.inf, math.inf)


def bounds(expr: Expr) -> Interval:
    """Lowest and highest value of an integer expression (infinite where unknown). Every node keeps its own."""
    found: Interval | None = expr.__dict__.get("_interval")
    if found is None:
        found = _bounds(expr)
        object.__setattr__(expr, "_interval", found)
    return found


def _bounds(expr: Expr) -> Interval:
    match expr:
        case Const(value=value):
            return (value, value)
        case Var(extent=extent):
            return (0, max(extent - 1, 0))
        case Select():
            a, b = bounds(expr.then), bounds(expr.otherwise)
            return (min(a[0], b[0]), max(a[1], b[1]))
        case Cast() if not expr.value.dtype.is_float and expr.dtype.bits >= 32:
            return bounds(expr.value)
        case Call(fn=fn, args=(a, b)):
            return _binary_bounds(fn, bounds(a), bounds(b), expr)
        case Call(fn="neg", args=(a,)):
            low, high = bounds(a)
            return (-high, -low)
        case Load() if expr.dtype.is_integer:
            info = np.iinfo(expr.dtype.numpy) if not expr.dtype.storage_only else None
            return (int(info.min), int(info.max)) if info is not None else ANYTHING
        case Cast() if expr.dtype.is_integer and expr.dtype.bits < 32 and not expr.dtype.storage_only:
            info = np.iinfo(expr.dtype.numpy)
            return (int(info.min), int(info.max))
    return (0, 1) if expr.dtype is BOOL else ANYTHING


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


Terms = dict[Expr, int]


def linear(expr: Expr) -> tuple[int, Terms]:
    """``expr`` as constant + sum of coefficient * term. Terms are variables, quotients, remainders, loads ..."""
    constant = 0
    terms: Terms = {}
    stack: list[tuple[Expr, int]] = [(expr, 1)]
    while stack:
        node, factor = stack.pop()
        match node:
            case Const(value=value):
                constant += factor * int(value)
            case Call(fn="add", args=(a, b)):
                stack += [(b, factor), (a, factor)]
            case Call(fn="sub", args=(a, b)):
                stack += [(b, -factor), (a, factor)]
            case Call(fn="neg", args=(a,)):
                stack.append((a, -factor))
            case Call(fn="mul", args=(a, Const(value=c))) | Call(fn="mul", args=(Const(value=c), a)):
                stack.append((a, factor * int(c)))
            case _:
                terms[node] = terms.get(node, 0) + factor
    return constant, {t: c for t, c in terms.items() if c}


def from_linear(constant: int, terms: Terms) -> Expr:
    """The canonical spelling of a linear form: terms by falling coefficient, constant last."""
    result: Expr | None = None
    for term, factor in sorted(terms.items(), key=lambda tc: -abs(tc[1])):
        part = term if abs(factor) == 1 else call("mul", term, abs(factor))
        if result is None:
            result = part if factor > 0 else call("neg", part)
        else:
            result = call("add" if factor > 0 else "sub", result, part)
    if result is None:
        return index(constant)
    if constant == 0:
        return result
    return call("add", result, constant) if constant > 0 else call("sub", result, -constant)


def _join_quotients(constant: int, terms: Terms) -> tuple[int, Terms]:
    """q*c*(x // q) + c*(x % q)  ->  c*x"""
    for node, factor in list(terms.items()):
        match node:
            case Call(fn="mod", args=(x, Const(value=q))):
                quotient = call("floordiv", x, q)
                match x:  # (y // a) // q is spelt y // (a*q)
                    case Call(fn="floordiv", args=(y, Const(value=a))):
                        quotient = call("floordiv", y, a * q)
                if terms.get(quotient) == factor * q:
                    del terms[node], terms[quotient]
                    inner_constant, inner = linear(x)
                    for t, c in inner.items():
                        terms[t] = terms.get(t, 0) + c * factor
                    return _join_quotients(constant + inner_constant * factor, {t: c for t, c in terms.items() if c})
    return constant, terms


def simplify(expr: Expr) -> Expr:
    """``expr`` with its index arithmetic in canonical form. Every node keeps its own."""
    return transform(expr, _step, kept="_simple")


def _step(node: Expr) -> Expr | None:
    if isinstance(node, Var) and node.extent == 1:
        return index(0)
    if isinstance(node, Reduce) and any(a.extent == 1 for a in node.axes):
        return reduce(node.op, tuple(a for a in node.axes if a.extent != 1), node.body)
    if isinstance(node, Select) and not isinstance(node.condition, Const):
        return _select(node)
    if not isinstance(node, Call):
        return None
    if node.fn in {"lt", "le", "eq", "ne"} and not node.args[0].dtype.is_float:
        return _compare(node)
    if node.dtype is not I64:
        return None
    if node.fn in {"add", "sub", "neg", "mul"}:
        constant, terms = linear(node)
        return from_linear(*_join_quotients(constant, dict(terms)))
    if node.fn in {"floordiv", "mod"} and isinstance(node.args[1], Const) and node.args[1].value > 0:
        quotient, rest = _divide(node.args[0], int(node.args[1].value))
        return quotient if node.fn == "floordiv" else rest
    if node.fn in {"min", "max"}:
        return _extremum(node)
    return None


def _divide(x: Expr, c: int) -> tuple[Expr, Expr]:
    """``x // c`` and ``x % c``."""
    constant, terms = linear(x)
    whole = {t: f // c for t, f in terms.items() if f % c == 0}
    part = {t: f for t, f in terms.items() if f % c}
    rest = from_linear(constant % c, part)
    low, high = bounds(rest)
    if math.isfinite(low) and math.isfinite(high) and low // c == high // c:
        k = int(low // c)
        quotient = from_linear(constant // c + k, whole)
        constant_rest, part_rest = linear(rest)
        return quotient, from_linear(constant_rest - k * c, part_rest)
    divisor = 0
    for f in part.values():
        divisor = math.gcd(divisor, f)
    divisor = math.gcd(divisor, c)
    if divisor > 1 and low >= 0:  # (d*x + k) // (d*c) -> x // c when 0 <= k < d
        k = (constant % c) % divisor
        inner = from_linear((constant % c) // divisor, {t: f // divisor for t, f in part.items()})
        q, r = _divide(inner, c // divisor)
        scaled = linear(call("mul", r, divisor))
        return _add(whole, constant // c, q), from_linear(scaled[0] + k, scaled[1])
    if (grouped := _divide_groups(constant % c, part, c)) is not None:
        q, r = grouped
        return _add(whole, constant // c, q), r
    q, r = _atom(rest, c)
    return _add(whole, constant // c, q), r


def _divide_groups(constant: int, terms: Terms, c: int) -> tuple[Expr, Expr] | None:
    """(g*a + b) // (g*h) -> a // h, and the remainder g*(a % h) + b, when 0 <= b < g"""
    for g in sorted({math.gcd(f, c) for f in terms.values()}, reverse=True):
        if g in (1, c):
            continue
        coarse = {t: f // g for t, f in terms.items() if f % g == 0}
        fine = from_linear(constant, {t: f for t, f in terms.items() if f % g})
        low, high = bounds(fine)
        if low < 0 or high >= g:
            continue
        q, r = _divide(from_linear(0, coarse), c // g)
        scaled, inner = linear(call("mul", r, g)), linear(fine)
        merged = dict(scaled[1])
        for t, f in inner[1].items():
            merged[t] = merged.get(t, 0) + f
        return q, from_linear(scaled[0] + inner[0], merged)
    return None


def _add(terms: Terms, constant: int, extra: Expr) -> Expr:
    extra_constant, extra_terms = linear(extra)
    total = dict(terms)
    for t, f in extra_terms.items():
        total[t] = total.get(t, 0) + f
    return from_linear(constant + extra_constant, {t: f for t, f in total.items() if f})


def _atom(x: Expr, c: int) -> tuple[Expr, Expr]:
    match x:
        case Call(fn="floordiv", args=(inner, Const(value=a))):
            q, _ = _divide(inner, int(a) * c)
            return q, call("mod", x, c)
        case Call(fn="mod", args=(inner, Const(value=a))) if int(a) % c == 0:
            q, r = _divide(inner, c)
            return _divide(q, int(a) // c)[1], r
    return call("floordiv", x, c), call("mod", x, c)


def _compare(node: Call) -> Expr | None:
    a, b = node.args
    if a.dtype is not I64:
        return None
    constant, terms = linear(call("sub", a, b))
    low, high = bounds(from_linear(constant, terms))
    verdict = {
        "lt": (high < 0, low >= 0),
        "le": (high <= 0, low > 0),
        "eq": (low == high == 0, high < 0 or low > 0),
        "ne": (high < 0 or low > 0, low == high == 0),
    }[node.fn]
    return literal(verdict[0], BOOL) if any(verdict) else None


def _extremum(node: Call) -> Expr | None:
    (a_low, a_high), (b_low, b_high) = bounds(node.args[0]), bounds(node.args[1])
    if a_high <= b_low:
        return node.args[0] if node.fn == "min" else node.args[1]
    if b_high <= a_low:
        return node.args[1] if node.fn == "min" else node.args[0]
    return None


def _select(node: Select) -> Expr | None:
    """select(c, select(c, a, b), d)  ->  select(c, a, d)"""
    match node.then:
        case Select(condition=inner) if inner is node.condition:
            return select(node.condition, node.then.then, node.otherwise)
    return None


def flatten(indices: tuple[Expr, ...], shape: tuple[int, ...]) -> Expr:
    """The row-major offset, in elements, of ``indices`` in ``shape``."""
    offset: Expr = index(0)
    for i, extent in zip(indices, shape, strict=True):
        offset = call("add", call("mul", offset, extent), i)
    return simplify(offset)


def unflatten(offset: Expr, shape: tuple[int, ...]) -> tuple[Expr, ...]:
    """The indices in ``shape`` of a row-major offset."""
    result: list[Expr] = []
    for extent in reversed(shape):
        extent = max(extent, 1)
        result.append(call("mod", offset, extent) if len(result) + 1 < len(shape) else offset)
        offset = call("floordiv", offset, extent)
    return tuple(simplify(i) for i in reversed(result))


def coefficient(offset: Expr, variable: Var) -> int | None:
    """By how much ``offset`` grows when ``variable`` grows by one; ``None`` if that is not constant."""
    _, terms = linear(offset)
    if any(variable in t.free for t in terms if t is not variable):
        return None
    return terms.get(variable, 0)
