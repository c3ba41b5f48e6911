"""Scalar expressions: the value of one element of a tensor. Schedules and printers decide elsewhere how it is computed.

Nodes are interned: two structurally equal expressions are one object, so equality is ``is`` and sharing is free.
Build them with the functions and operators here, never with the classes.

In an operator's ``Algorithm`` a ``Load``'s source is the operand's position; in a kernel it is the position of the
kernel's parameter. Index arithmetic has dtype ``i64``; the printers choose the width that the sizes need.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import numpy as np

from gpucomp.expr.functions import FUNCTIONS
from gpucomp.ir.extremes import largest, smallest
from gpucomp.ir.polynomial import denominator
from gpucomp.ir.size import Size, assumed, at_most, below
from gpucomp.ir.types import BOOL, I64, DType

Number = int | float | bool


@dataclass(frozen=True, eq=False, repr=False)
class Expr:
    """The base: an element type, and ``free``, the index variables it depends on."""

    dtype: DType

    @property
    def operands(self) -> tuple[Expr, ...]:
        return ()

    @property
    def free(self) -> frozenset[Var]:
        cached = self.__dict__.get("_free")
        if cached is None:
            cached = self._compute_free()
            object.__setattr__(self, "_free", cached)
        return cached

    def _compute_free(self) -> frozenset[Var]:
        return frozenset().union(*(e.free for e in self.operands))

    def __repr__(self) -> str:
        from gpucomp.expr.printer import format_expr  # the printer needs the classes above

        return format_expr(self)

    def __add__(self, other: Expr | Number) -> Expr:
        return call("add", self, other)

    def __radd__(self, other: Number) -> Expr:
        return call("add", literal(other, self.dtype), self)

    def __sub__(self, other: Expr | Number) -> Expr:
        return call("sub", self, other)

    def __rsub__(self, other: Number) -> Expr:
        return call("sub", literal(other, self.dtype), self)

    def __mul__(self, other: Expr | Number) -> Expr:
        return call("mul", self, other)

    def __rmul__(self, other: Number) -> Expr:
        return call("mul", literal(other, self.dtype), self)

    def __truediv__(self, other: Expr | Number) -> Expr:
        return call("div", self, other)

    def __rtruediv__(self, other: Number) -> Expr:
        return call("div", literal(other, self.dtype), self)

    def __floordiv__(self, other: Expr | Number) -> Expr:
        return call("floordiv", self, other)

    def __mod__(self, other: Expr | Number) -> Expr:
        return call("mod", self, other)

    def __neg__(self) -> Expr:
        return call("neg", self)

    def __lt__(self, other: Expr | Number) -> Expr:
        return call("lt", self, other)

    def __le__(self, other: Expr | Number) -> Expr:
        return call("le", self, other)

    def __gt__(self, other: Expr | Number) -> Expr:
        return call("lt", coerced(other, self.dtype), self)

    def __ge__(self, other: Expr | Number) -> Expr:
        return call("le", coerced(other, self.dtype), self)


@dataclass(frozen=True, eq=False, repr=False)
class Const(Expr):
    """A number. Floats keep NaN, infinities and the sign of zero. An I64 can be a ``Size``: each run has its own."""

    value: Number


@dataclass(frozen=True, eq=False, repr=False)
class Var(Expr):
    """An index variable, ``0 <= v < extent``, which can be a ``Size``. Not interned: two variables are never the same."""

    name: str
    extent: int

    def _compute_free(self) -> frozenset[Var]:
        return frozenset({self})


@dataclass(frozen=True, eq=False, repr=False)
class Hole(Expr):
    """A value that the family's template computes: the accumulator, or a row statistic."""

    name: str


@dataclass(frozen=True, eq=False, repr=False)
class Load(Expr):
    """Element ``index`` of operand or parameter number ``source``."""

    source: int
    index: tuple[Expr, ...]

    @property
    def operands(self) -> tuple[Expr, ...]:
        return self.index


@dataclass(frozen=True, eq=False, repr=False)
class Call(Expr):
    """A function of ``FUNCTIONS`` applied to operands of one type."""

    fn: str
    args: tuple[Expr, ...]

    @property
    def operands(self) -> tuple[Expr, ...]:
        return self.args


@dataclass(frozen=True, eq=False, repr=False)
class Select(Expr):
    """``then`` where ``condition`` holds, else ``otherwise``. The branch not taken is never read from memory."""

    condition: Expr
    then: Expr
    otherwise: Expr

    @property
    def operands(self) -> tuple[Expr, ...]:
        return (self.condition, self.then, self.otherwise)


@dataclass(frozen=True, eq=False, repr=False)
class Cast(Expr):
    """Conversion as in C. Float to integer rounds to zero and saturates; a conversion to bool is ``!= 0``."""

    value: Expr

    @property
    def operands(self) -> tuple[Expr, ...]:
        return (self.value,)


@dataclass(frozen=True, eq=False, repr=False)
class Reduce(Expr):
    """``op`` over all values of ``axes``, in order. ``op`` is ``sum``, ``prod``, ``max`` or ``min``."""

    op: str
    axes: tuple[Var, ...]
    body: Expr

    @property
    def operands(self) -> tuple[Expr, ...]:
        return (self.body,)

    def _compute_free(self) -> frozenset[Var]:
        return self.body.free - frozenset(self.axes)


REDUCTIONS = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}

_interned: WeakValueDictionary[tuple[Any, ...], Any] = WeakValueDictionary()  # an expression of the key's first class
_references = _interned.data  # type: ignore[attr-defined]  # its own ``get`` takes three times as long
E = TypeVar("E", bound=Expr)


def _intern(cls: type[E], *fields: Any) -> E:
    key = (cls, *fields)
    reference = _references.get(key)
    expr: E | None = None if reference is None else reference()
    if expr is None:
        expr = cls(*fields)
        _interned[key] = expr
    return expr


def literal(value: Any, dtype: DType) -> Const:
    """A constant of ``dtype``. ``1``, ``1.0`` and ``True`` stay apart, as do 0.0 and -0.0."""
    key: tuple[Any, ...]
    if isinstance(value, Size) and dtype is I64:
        # what is simplified with one block's conditions must not be found in another: the block is in the key
        key = (Const, dtype, "size", frozenset(value.terms.items()), assumed.get())
    elif dtype.is_float:
        value = float(value)
        key = (Const, dtype, "float", np.float64(value).tobytes())
    elif dtype is BOOL:
        value = bool(value)
        key = (Const, dtype, "bool", value)
    else:
        value = int(value)
        key = (Const, dtype, "int", value)
    reference = _references.get(key)
    const: Const | None = None if reference is None else reference()
    if const is None:
        const = Const(dtype, value)
        _interned[key] = const
    return const


def index(value: int | Size) -> Const:
    """A constant for index arithmetic."""
    return literal(value, I64)


def var(name: str, extent: Any) -> Var:
    """A fresh index variable ``0 <= name < extent``."""
    kept: Any = extent if isinstance(extent, Size) else int(extent)
    return Var(I64, name, kept)


def axes_of(shape: Sequence[int], prefix: str = "i") -> tuple[Var, ...]:
    """One fresh variable per dimension: ``i0, i1, ...``."""
    return tuple(var(f"{prefix}{d}", n) for d, n in enumerate(shape))


def hole(name: str, dtype: DType) -> Hole:
    return _intern(Hole, dtype, name)


def load(source: int, indices: Iterable[Expr | int], dtype: DType) -> Load:
    return _intern(Load, dtype, source, tuple(coerced(i, I64) for i in indices))


def coerced(value: Any, dtype: DType) -> Expr:
    """A number or a size as an expression of ``dtype``; an expression as it is."""
    if isinstance(value, Size) and dtype is not I64:
        divisor = denominator(value.terms)
        return cast(index(value * divisor), dtype) / divisor if divisor > 1 else cast(index(value), dtype)
    return value if isinstance(value, Expr) else literal(value, dtype)


def call(fn: str, *args: Expr | Number) -> Expr:
    """Apply a function. Plain numbers take the type of the first expression; integer constants are folded.

    Raises ``TypeError`` when the operands' types differ: conversions are always written out.
    """
    function = FUNCTIONS[fn]
    first = args[0]
    dtype = first.dtype if isinstance(first, Expr) else next(a.dtype for a in args if isinstance(a, Expr))
    given: list[Expr] = []
    fits, constant = len(args) == function.arity, dtype is BOOL
    for arg in args:
        expr = arg if isinstance(arg, Expr) else coerced(arg, dtype)
        fits = fits and expr.dtype is dtype
        constant = constant or expr.__class__ is Const
        given.append(expr)
    exprs = tuple(given)
    if not fits:
        raise TypeError(f"{fn}({', '.join(str(e.dtype) for e in exprs)}): operands of one type expected")
    if constant and dtype.kind != "f" and (folded := _fold_integers(fn, exprs, dtype)) is not None:
        return folded
    return _intern(Call, BOOL if function.result == "bool" else dtype, fn, exprs)


EXACT = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}  # on integers, unless the result wraps

# what leaves the other operand as it is, on the left and on the right
NEUTRAL = {"add": (0, 0), "mul": (1, 1), "sub": (None, 0), "div": (None, 1), "floordiv": (None, 1)}


def _fold_integers(fn: str, args: tuple[Expr, ...], dtype: DType) -> Expr | None:
    values = [a.value if type(a) is Const else None for a in args]
    unknown = sum([v is None for v in values])
    if not unknown:
        if any(isinstance(v, Size) for v in values):
            return _fold_sizes(fn, *values)
        if dtype is I64 and fn in EXACT:
            exact = EXACT[fn](*values)
            if -(1 << 63) <= exact < 1 << 63:
                return literal(exact, I64)
        with np.errstate(all="ignore"):
            result = FUNCTIONS[fn].numpy(*(np.asarray(v, dtype.numpy) for v in values))
        return literal(np.asarray(result).item(), BOOL if FUNCTIONS[fn].result == "bool" else dtype)
    if dtype is BOOL:
        return _fold_logic(fn, args, values)
    if len(args) != 2 or unknown == 2:
        return None
    a, b = args
    left, right = NEUTRAL.get(fn, (None, None))
    if left is not None and _is(values[0], left):
        return b
    if right is not None and _is(values[1], right):
        return a
    if fn == "mul" and (_is(values[0], 0) or _is(values[1], 0)):
        return literal(0, dtype)
    if fn == "mod" and _is(values[1], 1):
        return literal(0, dtype)
    return None


def _is(value: Any, number: int) -> bool:
    """Whether a constant's value is ``number``. A size is none: it is another number in another run."""
    return value is not None and not isinstance(value, Size) and value == number


def _fold_sizes(fn: str, a: Any, b: Any = 0) -> Expr | None:
    """The result of a function of sizes, if it is a formula, or a comparison that every run decides alike."""
    if fn in EXACT:
        return index(EXACT[fn](a, b))
    if fn == "neg":
        return index(-a)
    if fn in {"min", "max"}:
        return index((smallest if fn == "min" else largest)(a, b))
    if fn in {"floordiv", "mod"} and below(0, b):
        return index(a // b if fn == "floordiv" else a % b)
    if fn in {"lt", "le"}:
        less, more = (below, at_most) if fn == "lt" else (at_most, below)
        verdict = True if less(a, b) else False if more(b, a) else None
        return None if verdict is None else literal(verdict, BOOL)
    if fn in {"eq", "ne"} and (below(a, b) or below(b, a)):
        return literal(fn == "ne", BOOL)
    return None


def _fold_logic(fn: str, args: tuple[Expr, ...], values: list[Any]) -> Expr | None:
    for known, other in ((values[0], args[-1]), (values[-1], args[0])):
        if len(args) == 2 and known is not None and fn in {"and", "or"}:
            absorbing = known is (fn == "or")
            return literal(known, BOOL) if absorbing else other
    return args[0] if len(args) == 2 and args[0] is args[1] and fn in {"and", "or"} else None


def select(condition: Expr, then: Expr | Number, otherwise: Expr | Number) -> Expr:
    dtype = then.dtype if isinstance(then, Expr) else otherwise.dtype  # type: ignore[union-attr]
    a, b = coerced(then, dtype), coerced(otherwise, dtype)
    if a.dtype is not b.dtype or condition.dtype is not BOOL:
        raise TypeError(f"select({condition.dtype}, {a.dtype}, {b.dtype}): bool and two operands of one type expected")
    if isinstance(condition, Const):
        return a if condition.value else b
    return a if a is b else _intern(Select, dtype, condition, a, b)


def cast(value: Expr, dtype: DType) -> Expr:
    if value.dtype is dtype:
        return value
    sized = isinstance(value, Const) and isinstance(value.value, Size)
    if isinstance(value, Const) and not sized and not dtype.is_float and not value.dtype.is_float:
        return literal(np.asarray(value.value).astype(dtype.numpy).item(), dtype)
    return _intern(Cast, dtype, value)


def reduce(op: str, axes: Sequence[Var], body: Expr) -> Expr:
    if op not in REDUCTIONS:
        raise ValueError(f"no reduction {op!r}")
    return _intern(Reduce, body.dtype, op, tuple(axes), body) if axes else body


def identity_of(op: str, dtype: DType) -> Number:
    """The result of a reduction over no elements: 0, 1, the lowest or the highest value (-inf, inf for floats)."""
    if op == "sum":
        return 0
    if op == "prod":
        return 1
    if dtype.is_float:
        return -math.inf if op == "max" else math.inf
    if dtype is BOOL:
        return op == "min"
    info = np.iinfo(dtype.numpy)
    return int(info.min if op == "max" else info.max)


def both(conditions: Iterable[Expr]) -> Expr:
    """The conjunction of conditions; true when there are none."""
    result: Expr = literal(True, BOOL)
    for condition in conditions:
        result = call("and", result, condition)
    return result


def rebuild(expr: Expr, operands: Sequence[Expr]) -> Expr:
    """``expr`` with other operands, built by the constructors that fold constants."""
    match expr:
        case Load():
            return load(expr.source, operands, expr.dtype)
        case Call():
            return call(expr.fn, *operands)
        case Select():
            return select(*operands)
        case Cast():
            return cast(operands[0], expr.dtype)
        case Reduce():
            return reduce(expr.op, expr.axes, operands[0])
    return expr


def transform(
    expr: Expr, change: Callable[[Expr], Expr | None], known: Mapping[Expr, Expr] | None = None, *, kept: str = ""
) -> Expr:
    """Rebuild ``expr`` from its leaves. ``change(node)`` is called with rebuilt operands and can return a replacement.

    Sub-expressions in ``known`` are replaced and not entered. The results of ``change`` are not passed to it again, not
    even if folding reduces the node above to one of them.

    Iterative and memoised: shared parts are visited once, and any depth is possible. If ``change`` depends on nothing but
    the node, ``kept`` is an attribute that keeps each node's result for later calls.
    """
    done: dict[Expr, Expr] = dict(known or {})
    stack = [expr]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        if kept and (before := node.__dict__.get(kept)) is not None:
            done[node] = before
            continue
        operands: list[Expr] = []
        complete, changes = True, False
        for child in node.operands:
            one = done.get(child)
            if one is None:
                stack.append(child)
                complete = False
            else:
                operands.append(one)
                changes = changes or one is not child
        if not complete:
            continue
        result = rebuild(node, operands) if changes else node
        folded = changes and result in operands
        changed = None if folded else change(result)
        done[node] = result = result if changed is None else changed
        if kept:
            node.__dict__[kept] = result
    return done[expr]


def substitute(expr: Expr, replacements: Mapping[Expr, Expr]) -> Expr:
    """``expr`` with variables, holes or whole sub-expressions replaced, the outermost first.

    Replacements are not searched again, and reduction axes are bound: they are never replaced.
    """
    if not replacements:
        return expr
    return transform(expr, lambda node: None, replacements)


def walk(expr: Expr) -> Iterator[Expr]:
    """Every distinct node of ``expr``, operands before users."""
    seen: set[Expr] = set()
    stack: list[Expr | None] = [expr]  # None: what lies below it was entered, and is next
    while stack:
        node = stack.pop()
        if node is None:
            yield stack.pop()  # type: ignore[misc]
        elif node not in seen:
            seen.add(node)
            stack += (node, None)
            stack += node.operands


def loads(expr: Expr) -> list[Load]:
    return [node for node in walk(expr) if isinstance(node, Load)]


def reduces(expr: Expr) -> list[Reduce]:
    return [node for node in walk(expr) if isinstance(node, Reduce)]


@dataclass(frozen=True, eq=False)
class Algorithm:
    """One result of an operator: ``result[axes] = body``. The extents of ``axes`` are the result's shape."""

    axes: tuple[Var, ...]
    body: Expr

    def at(self, indices: Sequence[Expr]) -> Expr:
        """The element at ``indices``."""
        return substitute(self.body, dict(zip(self.axes, indices, strict=True)))
