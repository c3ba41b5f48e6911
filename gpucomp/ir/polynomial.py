"""Polynomials as dicts: a coefficient for each product of atoms. What an atom is, is said in ``gpucomp.ir.size``."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from fractions import Fraction
from functools import lru_cache
from typing import Protocol, cast

from gpucomp.errors import quote
from gpucomp.lazy_dataclass import dataclass

Exact = int | Fraction
Interval = tuple[Exact, Exact]


class NotPolynomial(ValueError):
    """What was asked for has no formula, or too long a one. A model can be compiled for one set of sizes all the same."""


class Atom(Protocol):
    """A whole number that each run decides. Hashable, and equal to others of the same formula."""

    @property
    def bounds(self) -> Interval: ...

    @property
    def hint(self) -> Exact: ...


MOST_CORNERED = 4  # atoms whose ranges' corners are tried

Monomial = tuple[Atom, ...]  # a product; sorted, and a power is repeated
Terms = dict[Monomial, Exact]


_narrower: ContextVar[Mapping[Atom, Interval] | None] = ContextVar("narrower", default=None)


@contextmanager
def narrowing(known: Mapping[Atom, Interval]) -> Iterator[None]:
    """In this block, atoms in ``known`` are in these intervals."""
    token = _narrower.set(known)
    try:
        yield
    finally:
        _narrower.reset(token)


def narrowed(atom: Atom, low: Exact, high: Exact) -> Interval:
    """``low`` and ``high``, or what is known of ``atom`` in this block if that says more."""
    known = _narrower.get()
    if not known or atom not in known:
        return low, high
    least, most = known[atom]
    return max(low, least), min(high, most)


def kept_bounds(owner: object, compute: Callable[[], Interval]) -> Interval:
    """``compute()``, kept in ``owner`` as long as no more is known: what one block knows does not hold in another."""
    known = _narrower.get()
    facts = 0 if known is None else len(known)
    before = vars(owner).get("_bounds")
    if before is None or before[0] is not known or before[1] != facts:
        before = vars(owner)["_bounds"] = known, facts, compute()
    return cast(Interval, before[2])


_first: dict[frozenset[tuple[Monomial, Exact]], object] = {}  # of the owners of equal terms
MOST_FIRST = 4096


def shared_bounds(owner: object, terms: Terms, compute: Callable[[], Interval]) -> Interval:
    """As ``kept_bounds``, and kept for all owners of equal ``terms``: most sizes are made anew over and over."""

    def of_equals() -> Interval:
        if len(_first) > MOST_FIRST:
            _first.clear()
        first = _first.setdefault(frozenset(terms.items()), owner)
        return kept_bounds(first, compute) if first is not owner else compute()

    return kept_bounds(owner, of_equals)


@dataclass(frozen=True)
class Symbol:
    """What a run decides: dimension ``name`` has ``step`` times this many elements. ``hint`` is its value in the example."""

    name: str
    low: int
    high: int
    hint: int
    step: int = 1

    @property
    def bounds(self) -> Interval:
        return narrowed(self, self.low, self.high)

    def __str__(self) -> str:
        return _in_formulas(self.name)


@lru_cache(maxsize=1024)
def _in_formulas(name: str) -> str:
    """``name``, quoted if it could be taken for a number or a formula: different sizes have different texts."""
    return name if re.fullmatch(r"[^\W\d][\w.:]*", name) else quote(name)


def plain(number: Exact) -> Exact:
    return number.numerator if isinstance(number, Fraction) and number.denominator == 1 else number


def denominator(terms: Terms) -> int:
    """The least number that ``terms`` times have whole coefficients."""
    return math.lcm(*(Fraction(c).denominator for c in terms.values()))


def ordered(atoms: Sequence[Atom]) -> Monomial:
    return tuple(sorted(atoms, key=order)) if len(atoms) > 1 else tuple(atoms)


def order(atom: Atom) -> tuple[bool, str]:
    return not isinstance(atom, Symbol), str(atom)


def without(monomial: Monomial, factors: Monomial) -> Monomial | None:
    """``monomial`` divided by ``factors``; ``None`` if it is not a multiple."""
    left = list(monomial)
    for factor in factors:
        if factor not in left:
            return None
        left.remove(factor)
    return tuple(left)


def added(first: Terms, second: Terms) -> Terms:
    result = dict(first)
    for monomial, c in second.items():
        result[monomial] = result.get(monomial, 0) + c
    return result


def product(first: Terms, second: Terms) -> Terms:
    result: Terms = {}
    for a, c in first.items():
        for b, d in second.items():
            monomial = ordered((*a, *b))
            result[monomial] = result.get(monomial, 0) + c * d
    return result


def interval(terms: Terms) -> Interval:
    low: Exact = 0
    high: Exact = 0
    for monomial, c in terms.items():
        ends: Interval = (1, 1)
        for atom in monomial:
            corners = [a * b for a in ends for b in atom.bounds]
            ends = min(corners), max(corners)
        low += min(c * ends[0], c * ends[1])
        high += max(c * ends[0], c * ends[1])
    return low, high


def at_corners(terms: Terms) -> Interval | None:
    """The least and the greatest value if the atoms are independent: at ends of their ranges, as none has a power.

    ``None`` where ``interval`` is as good: if no product has several terms, or for many atoms.
    """
    atoms = list(dict.fromkeys(atom for monomial in terms for atom in monomial))
    products = [monomial for monomial in terms if len(monomial) > 1]
    if not products or len(terms) == 1 or len(atoms) > MOST_CORNERED or any(len(set(m)) < len(m) for m in products):
        return None
    values = [
        sum(c * math.prod(at[atom] for atom in monomial) for monomial, c in terms.items())
        for at in (dict(zip(atoms, ends, strict=True)) for ends in itertools.product(*(atom.bounds for atom in atoms)))
    ]
    return min(values), max(values)


def text_of(terms: Terms) -> str:
    parts = []
    for monomial, c in sorted(terms.items(), key=lambda item: (not item[0], *map(order, item[0]))):
        number = Fraction(c)
        for atom in monomial:
            number /= atom.step if isinstance(atom, Symbol) else 1
        names = "*".join(map(str, monomial))
        sign = "-" if number < 0 else "+"
        parts.append(f"{sign} {_factors(abs(number), names)}")
    text = " ".join(parts)
    return text.removeprefix("+ ") if text.startswith("+") else text.replace("- ", "-", 1)


def _factors(number: Fraction, names: str) -> str:
    top = names if number.numerator == 1 and names else "*".join(filter(None, (str(number.numerator), names)))
    return top if number.denominator == 1 else f"{top}/{number.denominator}"
