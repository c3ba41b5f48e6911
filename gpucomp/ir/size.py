"""Sizes that each run decides, as formulas: polynomials with exact coefficients over symbols and rounded quotients.

A ``Size`` takes the place of an ``int`` as an extent. Sums, products, quotients, remainders, ``smallest`` and ``largest`` give
sizes; a result that is the same in every run is a plain number again. Equal formulas have equal terms: a sum has one order, a
remainder is written by a quotient, and of a quotient everything that divides exactly is taken out.

A comparison is decided for the whole range of the symbols if interval arithmetic can prove it. If not, it is decided for the
example sizes, and the condition is noted: what is built in ``assuming`` is right wherever its conditions hold. To use a size
as a plain number, for example in ``range``, is such a condition too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from fractions import Fraction
from functools import cached_property
from typing import Any, Protocol, Union, cast

from gpucomp.ir.dim import Dim
from gpucomp.ir.example import example_now
from gpucomp.ir.polynomial import (
    Atom,
    Exact,
    Interval,
    NotPolynomial,
    Symbol,
    Terms,
    added,
    at_corners,
    denominator,
    interval,
    kept_bounds,
    narrowed,
    order,
    ordered,
    plain,
    product,
    shared_bounds,
    text_of,
    without,
)
from gpucomp.lazy_dataclass import dataclass

Operand = Union["Size", Exact]
MOST_ATOMS = 2000  # of a formula


@dataclass(frozen=True, eq=False)
class Quotient:
    """``top`` divided by ``bottom`` and rounded down. ``bottom`` is positive. Equal if the formulas are."""

    top: Operand
    bottom: Operand

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quotient) and same(self.top, other.top) and same(self.bottom, other.bottom)

    def __hash__(self) -> int:
        return hash((Quotient, self.top, self.bottom))

    @cached_property
    def hint(self) -> Exact:
        return math.floor(Fraction(hint(self.top)) / Fraction(hint(self.bottom)))

    @property
    def bounds(self) -> Interval:
        return kept_bounds(self, self._bounds_now)

    def _bounds_now(self) -> Interval:
        low, high = bounds(self.bottom)
        least = Fraction(1, denominator(terms_of(self.bottom)))  # it is positive, also where its bounds do not say so
        corners = [
            math.floor(Fraction(t) / b) for t in bounds(self.top) for b in (max(Fraction(low), least), Fraction(high))
        ]
        return narrowed(self, min(corners), max(corners))

    @cached_property
    def cost(self) -> int:
        return 1 + cost(self.top) + cost(self.bottom)

    def __str__(self) -> str:
        return f"floor({_within(self.top)}/{_within(self.bottom)})"


@dataclass(frozen=True, eq=False)
class Choice:
    """The least or the greatest of ``parts``, which are in the order of their texts. Equal if the formulas are."""

    least: bool
    parts: tuple[Operand, ...]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Choice) or self.least != other.least or len(self.parts) != len(other.parts):
            return False
        return all(map(same, self.parts, other.parts))

    def __hash__(self) -> int:
        return hash((Choice, self.least, self.parts))

    @cached_property
    def hint(self) -> Exact:
        return (min if self.least else max)(map(hint, self.parts))

    @cached_property
    def cost(self) -> int:
        return 1 + sum(map(cost, self.parts))

    @property
    def bounds(self) -> Interval:
        return kept_bounds(self, self._bounds_now)

    def _bounds_now(self) -> Interval:
        lows, highs = zip(*map(bounds, self.parts), strict=True)
        pick = min if self.least else max
        return narrowed(self, pick(lows), pick(highs))

    def __str__(self) -> str:
        return f"{'min' if self.least else 'max'}({', '.join(map(str, self.parts))})"


@dataclass(frozen=True)
class _Remainder:
    """``top % bottom`` of a quotient by a number. Only ``bounds`` uses it."""

    of: Quotient
    hint: int = 0

    @property
    def bounds(self) -> Interval:
        return 0, cast(int, self.of.bottom) - 1


class Size:
    """A size that is not the same in every run. Made by ``size_of`` and by arithmetic. Immutable."""

    __slots__ = ("__dict__", "terms")

    def __init__(self, terms: Terms) -> None:
        self.terms = terms

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(frozenset(self.terms.items()))

    @property
    def bounds(self) -> Interval:
        """The least and the greatest value, or numbers beyond them."""
        return shared_bounds(self, self.terms, self._bounds_now)

    def _bounds_now(self) -> Interval:
        (low, high), (least, most) = interval(self.terms), interval(_spread(self.terms))
        low, high = max(low, least), min(high, most)
        if (corners := at_corners(self.terms)) is not None:
            low, high = max(low, corners[0]), min(high, corners[1])
        if all(isinstance(c, int) for c in self.terms.values()):
            return math.ceil(low), math.floor(high)
        return low, high

    @cached_property
    def hint(self) -> Exact:
        """The value at the example sizes."""
        return sum(c * math.prod(atom.hint for atom in monomial) for monomial, c in self.terms.items())

    # arithmetic

    def __add__(self, other: Operand | float) -> Any:
        if isinstance(other, float) and math.isfinite(other):
            other = Fraction(other)
        if not isinstance(other, Size | int | Fraction):
            return NotImplemented
        return made(added(self.terms, terms_of(other)))

    __radd__ = __add__

    def __neg__(self) -> Any:
        return made({monomial: -c for monomial, c in self.terms.items()})

    def __sub__(self, other: Operand | float) -> Any:
        return self + -other if isinstance(other, Size | int | Fraction | float) else NotImplemented

    def __rsub__(self, other: Operand | float) -> Any:
        return -self + other if isinstance(other, Size | int | Fraction | float) else NotImplemented

    def __mul__(self, other: Operand | float) -> Any:
        if isinstance(other, float) and math.isfinite(other):  # for example the scale of a resize
            other = Fraction(other)
        if not isinstance(other, Size | int | Fraction):
            return NotImplemented
        terms: Terms = {}
        for a, c in self.terms.items():
            for b, d in terms_of(other).items():
                monomial = ordered((*a, *b))
                terms[monomial] = terms.get(monomial, 0) + c * d
        return made(terms)

    __rmul__ = __mul__

    def __pow__(self, power: int) -> Any:
        if power < 0:
            raise NotPolynomial(f"{self} to the power {power} is not a polynomial")
        result: Any = 1
        for _ in range(power):
            result = self * result
        return result

    def __truediv__(self, other: Operand) -> Any:
        return _exactly(self, other) if isinstance(other, Size | int | Fraction) else NotImplemented

    def __rtruediv__(self, other: Operand) -> Any:
        return _exactly(other, self) if isinstance(other, int | Fraction) else NotImplemented

    def __floordiv__(self, other: Operand) -> Any:
        return quotient(self, other) if isinstance(other, Size | int | Fraction) else NotImplemented

    def __rfloordiv__(self, other: Operand) -> Any:
        return quotient(other, self) if isinstance(other, int | Fraction) else NotImplemented

    def __mod__(self, other: Operand) -> Any:
        return self - other * quotient(self, other) if isinstance(other, Size | int | Fraction) else NotImplemented

    def __rmod__(self, other: Operand) -> Any:
        return other - self * quotient(other, self) if isinstance(other, int | Fraction) else NotImplemented

    def __divmod__(self, other: Operand) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Operand) -> Any:
        return other // self, other % self

    def __floor__(self) -> Any:
        return quotient(self, 1)

    def __ceil__(self) -> Any:
        return -quotient(-self, 1)

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    # comparisons

    def __eq__(self, other: object) -> bool:
        if isinstance(other, float) and math.isfinite(other):
            other = Fraction(other)
        if not isinstance(other, Size | int | Fraction):
            return NotImplemented
        difference = self - other
        return difference == 0 if not isinstance(difference, Size) else decided("==", difference)

    def __lt__(self, other: Operand) -> bool:
        return _below(self, other, "<")

    def __le__(self, other: Operand) -> bool:
        return _below(self, other, "<=")

    def __gt__(self, other: Operand) -> bool:
        return _below(other, self, "<")

    def __ge__(self, other: Operand) -> bool:
        return _below(other, self, "<=")

    def __bool__(self) -> bool:
        return self != 0

    def __index__(self) -> int:
        """The value in the example, on the condition that it is this one."""
        value = int(self.hint)
        if not decided("==", self - value):
            raise AssertionError(f"{self} is not {value} in the example")
        return value

    __int__ = __index__

    def __float__(self) -> float:
        """The value in the example, on the condition that it is this one."""
        return float(self.hint) if decided("==", self - self.hint) else math.nan

    def __str__(self) -> str:
        return text_of(self.terms)

    def __repr__(self) -> str:
        return str(self)


def size_of(dim: Dim, example: int) -> Any:
    """The size of a dimension, ``example`` in the example; a number if the range has one size."""
    step = dim.multiple
    low, high = dim.nearest(dim.low) // step, dim.high // step
    if low == high:
        return low * step
    return made({(Symbol(dim.name, low, high, example // step, step),): step})


def quotient(top: Operand, bottom: Operand) -> Any:
    """``top // bottom``. Raises ``ZeroDivisionError`` for a quotient by 0."""
    if not isinstance(top, Size) and not isinstance(bottom, Size):
        return top // bottom
    if bottom == 0:
        raise ZeroDivisionError(f"{top} by {bottom}")
    if bottom < 0:
        top, bottom = -top, -bottom
    top, bottom = made(terms_of(top)), made(terms_of(bottom))  # what was learnt since they were made
    if isinstance(bottom, Size):
        return _by_size(top, bottom)
    if not isinstance(top, Size):
        return top // bottom
    scale = math.lcm(*(Fraction(c).denominator for c in (*terms_of(top).values(), bottom)))
    n = int(bottom * scale)
    whole: Terms = {}
    rest: Terms = {}
    for monomial, c in terms_of(top).items():
        a = int(c * scale)
        whole[monomial] = a // n if a >= 0 or not monomial else -(-a // n)
        rest[monomial] = a - n * cast(int, whole[monomial])
    return made(whole) + _by_number(made(rest), n)


def _by_number(top: Operand, n: int) -> Any:
    """``top // n``, where the coefficients are whole and between -n and n, and the constant is not negative."""
    if not isinstance(top, Size):
        return top // n
    first = min((monomial for monomial in top.terms if monomial), key=lambda m: [*map(order, m)])
    if top.terms[first] < 0:  # rounding up is written in one way: floor(-x / n) = -floor((x + n - 1) / n)
        return -quotient(-top + (n - 1), n)
    constant = top.terms.get((), 0)
    common = math.gcd(n, *(int(c) for monomial, c in top.terms.items() if monomial))
    if common > 1:  # floor((g x + c) / (g n)) = floor((x + floor(c / g)) / n)
        return quotient(made({m: c // common for m, c in top.terms.items()}), n // common)
    low, high = (math.floor(Fraction(end) / n) for end in top.bounds)
    if low == high:
        return low
    inner = next((m[0] for m, c in top.terms.items() if len(m) == 1 and c == 1), None)
    if isinstance(inner, Quotient) and isinstance(inner.bottom, int) and len(top.terms) == 1 + bool(constant):
        return quotient(inner.top + constant * inner.bottom, inner.bottom * n)
    return made({(affordable(Quotient(top, n)),): 1})


def _by_size(top: Operand, bottom: Size) -> Any:
    whole: Terms = {}
    rest = dict(terms_of(top))
    if len(bottom.terms) == 1:  # a product: what it divides is taken out
        ((factors, c),) = bottom.terms.items()
        for monomial, d in terms_of(top).items():
            left = without(monomial, factors)
            if left is not None and Fraction(d) % Fraction(c) == 0:
                whole[left] = plain(Fraction(d) / Fraction(c))
                del rest[monomial]
    elif (factor := _multiple(top, bottom)) is not None:
        return factor
    remaining = made(rest)
    if isinstance(remaining, Size) or remaining:
        low, high = bounds(remaining)
        least = bounds(bottom)[0]
        if low < 0 or high >= least:
            whole[(affordable(Quotient(remaining, bottom)),)] = 1
    return made(whole)


def _exactly(top: Operand, bottom: Operand) -> Any:
    """``top / bottom`` where that is a polynomial. Raises ``NotPolynomial`` if it is not, ``ZeroDivisionError`` for 0."""
    if not isinstance(bottom, Size):
        return made({monomial: plain(Fraction(c) / Fraction(bottom)) for monomial, c in terms_of(top).items()})
    if len(bottom.terms) == 1:
        ((factors, d),) = bottom.terms.items()
        left = {without(monomial, factors): plain(Fraction(c) / Fraction(d)) for monomial, c in terms_of(top).items()}
        if None not in left:
            return made(cast(Terms, left))
    if (factor := _multiple(top, bottom)) is not None:
        return factor
    raise NotPolynomial(f"{_within(top)} / {_within(bottom)} is not a polynomial")


def _multiple(top: Operand, bottom: Size) -> Exact | None:
    """The number that ``top`` is ``bottom`` times, if there is one."""
    terms = terms_of(top)
    if terms.keys() != bottom.terms.keys():
        return None
    factors = {Fraction(terms[m]) / Fraction(c) for m, c in bottom.terms.items()}
    factor = plain(factors.pop())
    return factor if not factors and isinstance(factor, int) else None


def affordable(atom: Quotient | Choice) -> Quotient | Choice:
    """``atom``. Raises ``NotPolynomial`` if its formula is too long: formulas share parts, and are walked as trees."""
    if atom.cost > MOST_ATOMS:
        raise NotPolynomial(f"a formula of more than {MOST_ATOMS} parts")
    return atom


# values


def same(first: Operand, second: Operand) -> bool:
    """Whether two sizes have one formula. Sizes with two formulas can be equal too, in some runs or in all."""
    if isinstance(first, Size) and isinstance(second, Size):
        return first is second or first.terms == second.terms
    return not isinstance(first, Size) and not isinstance(second, Size) and first == second


def bounds(size: Operand) -> Interval:
    """The least and the greatest value that ``size`` can have, or numbers beyond them."""
    return size.bounds if isinstance(size, Size) else (size, size)


def cost(size: Operand) -> int:
    """The number of parts of its formula, with shared ones as often as they stand there."""
    if not isinstance(size, Size):
        return 0
    return sum(1 + sum(getattr(atom, "cost", 0) for atom in monomial) for monomial in size.terms)


def hint(size: Operand) -> Exact:
    """The value at the example sizes, or at those of the innermost ``exemplified`` block."""
    if not isinstance(size, Size):
        return size
    instead = example_now()
    return size.hint if instead is None else cast(Exact, value_at(size, dict(instead)))


def same_shape(first: Sequence[Operand], second: Sequence[Operand]) -> bool:
    """Whether two shapes have the same formulas."""
    return len(first) == len(second) and all(map(same, first, second))


def is_one(size: Operand | None) -> bool:
    """Whether ``size`` is 1 in every run. A size that can also be greater is not: what holds for any size holds for 1."""
    return not isinstance(size, Size) and size == 1


def is_zero(size: Operand | None) -> bool:
    """Whether ``size`` is 0 in every run, by its formula."""
    return not isinstance(size, Size) and size == 0


def at_most(first: Operand | float, second: Operand | float) -> bool:
    """Whether ``first <= second`` is proved for every run. No condition is noted if it is not."""
    if isinstance(first, Size) or isinstance(second, Size):
        return _least_difference(first, second) >= 0
    return first <= second


def below(first: Operand | float, second: Operand | float) -> bool:
    """Whether ``first < second`` is proved for every run. No condition is noted if it is not."""
    if isinstance(first, Size) or isinstance(second, Size):
        return _least_difference(first, second) > 0
    return first < second


def _least_difference(first: Operand | float, second: Operand | float) -> Exact | float:
    """The least value of ``second - first``, or a number below it. One of them can be infinite."""
    if isinstance(first, float) or isinstance(second, float):
        return bounds(second)[0] - bounds(first)[1]  # type: ignore[arg-type]
    return bounds(second - first)[0]


def divides(divisor: Operand, size: Operand) -> bool:
    """Whether ``size`` is proved to be a multiple of ``divisor``, which is positive. No condition is noted if it is not."""
    return below(0, divisor) and is_zero(size % divisor)


def value_at(size: Any, sizes: Mapping[str, int]) -> Any:
    """The value at the ``sizes`` of the dimensions. What is no size is returned as it is."""
    if not isinstance(size, Size):
        return size
    return plain(Fraction(sum(c * math.prod(_atom_at(a, sizes) for a in m) for m, c in size.terms.items())))


def _atom_at(atom: Atom, sizes: Mapping[str, int]) -> Exact:
    match atom:
        case Symbol():
            return Fraction(sizes[atom.name], atom.step)
        case Quotient():
            return math.floor(Fraction(value_at(atom.top, sizes)) / Fraction(value_at(atom.bottom, sizes)))
        case Choice():
            return cast(Exact, (min if atom.least else max)(value_at(part, sizes) for part in atom.parts))
    raise AssertionError(f"{atom} is in no formula")


def names_in(size: object) -> set[str]:
    """The dimensions that ``size`` depends on."""
    if not isinstance(size, Size):
        return set()
    found: set[str] = set()
    for atom in (atom for monomial in size.terms for atom in monomial):
        match atom:
            case Symbol():
                found.add(atom.name)
            case Quotient():
                found |= names_in(atom.top) | names_in(atom.bottom)
            case Choice():
                found |= set().union(*map(names_in, atom.parts))
    return found


# conditions


class Notes(Protocol):
    """What is known in an ``assuming`` block: see ``gpucomp.ir.conditions``."""

    values: dict[Atom, Operand]

    def note(self, relation: str, size: Size) -> bool:
        """Whether ``size`` is 0 (``==``), negative (``<``), or at most 0 (``<=``), in the example."""


assumed: ContextVar[Notes | None] = ContextVar("assumed", default=None)


def is_assuming() -> bool:
    """Whether this is in an ``assuming`` block: only there are graphs with sizes built."""
    return assumed.get() is not None


def decided(relation: str, size: Size) -> bool:
    """Whether ``size`` is 0 (``==``), negative (``<``), or at most 0 (``<=``): always, or in the example.

    Raises ``TypeError`` if it differs from run to run, and this is outside of ``assuming``.
    """
    low, high = size.bounds
    if relation == "==" and (low > 0 or high < 0 or _is_never_zero(size)):
        return False
    if relation != "==" and holds(relation, low) == holds(relation, high):
        return holds(relation, low)
    notes = assumed.get()
    if notes is None:
        raise TypeError(f"whether {size} {relation} 0 differs from run to run")
    return notes.note(relation, size)


def holds(relation: str, value: Exact) -> bool:
    return {"==": value == 0, "<": value < 0, "<=": value <= 0}[relation]


def _is_never_zero(size: Size) -> bool:
    """Whether all terms but the constant have a common divisor that it lacks. Every atom is a whole number."""
    scale = denominator(size.terms)
    common = math.gcd(*(int(c * scale) for monomial, c in size.terms.items() if monomial))
    return int(size.terms.get((), 0) * scale) % common != 0


def _below(first: Operand, second: Operand, relation: str) -> bool:
    if not isinstance(first, Size | int | Fraction) or not isinstance(second, Size | int | Fraction):
        return NotImplemented
    difference = first - second
    if isinstance(difference, Size):
        return decided(relation, difference)
    return difference < 0 if relation == "<" else difference <= 0


# terms


def terms_of(size: Operand) -> Terms:
    return size.terms if isinstance(size, Size) else {(): size}


def made(terms: Terms) -> Any:
    notes = assumed.get()
    if notes is not None and notes.values:
        terms = _replaced(terms, notes.values)
    kept = {monomial: plain(c) for monomial, c in terms.items() if c}
    return Size(kept) if any(kept) else kept.get((), 0)


def _replaced(terms: Terms, values: Mapping[Atom, Operand]) -> Terms:
    """``terms`` with the ``values`` of atoms in their places."""
    while any(atom in values for monomial in terms for atom in monomial):
        result: Terms = {}
        for monomial, c in terms.items():
            expanded: Terms = {(): c}
            for atom in monomial:
                expanded = product(expanded, terms_of(values[atom]) if atom in values else {(atom,): 1})
            result = added(result, expanded)
        terms = {monomial: c for monomial, c in result.items() if c}
    return terms


def _spread(terms: Terms) -> Terms:
    """``terms`` with ``(x - x % n) / n`` for every ``x // n``, so that bounds of sums of both are not too wide."""
    result: Terms = {}
    for monomial, c in terms.items():
        expanded: Any = {(): c}
        for atom in monomial:
            if isinstance(atom, Quotient) and isinstance(atom.bottom, int):
                numerator = added(_spread(terms_of(atom.top)), {(_Remainder(atom),): -1})
                expanded = product(expanded, {m: Fraction(d) / atom.bottom for m, d in numerator.items()})
            else:
                expanded = product(expanded, {(atom,): 1})
        result = added(result, expanded)
    return {monomial: c for monomial, c in result.items() if c}


def _within(size: Operand) -> str:
    text = str(size)
    return f"({text})" if " " in text or "/" in text else text
