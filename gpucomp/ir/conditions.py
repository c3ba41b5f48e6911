"""What holds for the example sizes only: conditions, and what follows from them for other comparisons and formulas."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from fractions import Fraction

from gpucomp.ir.polynomial import Atom, Exact, Interval, Symbol, Terms, narrowing
from gpucomp.ir.size import Operand, Quotient, Size, assumed, holds, made, names_in, same, value_at
from gpucomp.lazy_dataclass import dataclass


@dataclass(frozen=True, eq=False)
class Condition:
    """``size`` is 0 (``==``), negative (``<``), or at most 0 (``<=``). Equal if relation and formula are."""

    relation: str
    size: Size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Condition) and self.relation == other.relation and same(self.size, other.size)

    def __hash__(self) -> int:
        return hash((self.relation, self.size))

    def holds_at(self, sizes: Mapping[str, int]) -> bool:
        return holds(self.relation, value_at(self.size, sizes))

    def text(self, holds: bool = True) -> str:
        """For people: the terms with coefficients above 0 on the left, the others on the right."""
        relation = self.relation if holds else {"==": "!=", "<": ">=", "<=": ">"}[self.relation]
        left = _as_they_are({m: c for m, c in self.size.terms.items() if m and c > 0})
        right = _as_they_are({m: -c for m, c in self.size.terms.items() if not m or c < 0})
        if not isinstance(left, Size):
            left = _as_they_are({m: -c for m, c in self.size.terms.items() if m})
            right, relation = self.size.terms.get((), 0), relation.translate(str.maketrans("<>", "><"))
        return f"{left} {relation} {right}"

    def __str__(self) -> str:
        return self.text()


@dataclass(eq=False)
class Assumed:
    """What was decided for the example only: each condition, and whether it holds there.

    ``intervals`` and ``values`` are what follows from the conditions for single atoms.
    """

    conditions: dict[Condition, bool] = field(default_factory=dict)
    intervals: dict[Atom, Interval] = field(default_factory=dict)
    values: dict[Atom, Operand] = field(default_factory=dict)

    def note(self, relation: str, size: Size) -> bool:
        """Whether the condition holds in the example; from now on it is known."""
        condition = Condition(relation, size)
        if condition not in self.conditions:
            self.conditions[condition] = holds(relation, size.hint)
            self._learn(condition)
        return self.conditions[condition]

    def _learn(self, condition: Condition) -> None:
        """Use one of the conditions."""
        size, truth = condition.size, self.conditions[condition]
        if condition.relation == "==":
            self._learn_equal(size, truth)
        else:  # not x < 0 is -x <= 0
            self._learn_at_most(size if truth else -size, (condition.relation == "<") == truth)

    def _learn_at_most(self, size: Operand, strict: bool) -> None:
        """Use that ``size <= 0``, or that ``size < 0``."""
        if not isinstance(size, Size) or (found := _of_one(size)) is None:
            return
        atom, c, constant = found
        edge = Fraction(-constant) / Fraction(c)
        low, high = atom.bounds
        if c > 0:
            high = min(high, math.ceil(edge) - 1 if strict else math.floor(edge))
        else:
            low = max(low, math.floor(edge) + 1 if strict else math.ceil(edge))
        self._narrow(atom, low, high)

    def _learn_equal(self, size: Size, holds: bool) -> None:
        """Use that ``size == 0``, or that it is not."""
        found = _of_one(size)
        if found is not None:
            atom, c, constant = found
            value = -constant / Fraction(c)
            low, high = atom.bounds
            self._narrow(atom, value if holds else low + (value == low), value if holds else high - (value == high))
        elif holds:
            self._replace(size)

    def _replace(self, size: Size) -> None:
        """Use that ``size == 0`` to replace one of its atoms: one with whole coefficients for the others, and the longest."""
        rank: dict[Atom, tuple[bool, bool, int, str]] = {}
        for (atom, *more), c in ((m, c) for m, c in size.terms.items() if m):
            others = [d for m, d in size.terms.items() if m != (atom,)]
            value = (size - made({(atom,): c})) / -c
            alone = not more and not any(atom in m for m in size.terms if m != (atom,))
            if alone and not (isinstance(atom, Symbol) and atom.name in names_in(value)):
                whole = all(Fraction(d) % Fraction(c) == 0 for d in others)
                rank[atom] = whole, not isinstance(atom, Symbol), len(str(atom)), str(atom)
        if rank:
            atom = max(rank, key=lambda a: rank[a])
            self.values[atom] = (size - made({(atom,): size.terms[(atom,)]})) / -size.terms[(atom,)]

    def _narrow(self, atom: Atom, low: Exact, high: Exact) -> None:
        if low > high or (low, high) == atom.bounds:
            return
        self.intervals[atom] = low, high
        if isinstance(atom, Quotient) and isinstance(atom.bottom, int):
            self._learn_at_most(low * atom.bottom - atom.top, strict=False)
            self._learn_at_most(atom.top - (high + 1) * atom.bottom, strict=True)

    def hold_at(self, sizes: Mapping[str, int]) -> bool:
        """Whether what was built is right at ``sizes``."""
        return all(c.holds_at(sizes) == truth for c, truth in self.conditions.items())

    def texts(self) -> list[str]:
        """The conditions as they hold, each once, without those that the bounds of the others prove."""
        needed = dict(self.conditions)
        for condition, truth in reversed(self.conditions.items()):
            del needed[condition]
            if not _proves(needed, condition, truth):
                needed[condition] = truth
        return list(dict.fromkeys(c.text(truth) for c, truth in self.conditions.items() if c in needed))

    def __str__(self) -> str:
        return ", ".join(self.texts())


@contextmanager
def assuming(notes: Assumed) -> Iterator[Assumed]:
    """In this block, a comparison that is not the same in every run is decided for the example, and noted in ``notes``."""
    token = assumed.set(notes)
    try:
        with narrowing(notes.intervals):
            yield notes
    finally:
        assumed.reset(token)


def _as_they_are(terms: Terms) -> Operand:
    """The size of ``terms``, without what was learnt."""
    return Size(terms) if any(terms) else terms.get((), 0)


def _proves(known: Mapping[Condition, bool], condition: Condition, truth: bool) -> bool:
    """Whether ``condition`` is ``truth`` wherever ``known`` hold. False if neither intervals nor another limit show it."""
    if any(_limits_more(other, known[other], condition, truth) for other in known):
        return True
    facts = Assumed(dict(known))
    with narrowing(facts.intervals):
        for other in known:
            facts._learn(other)
        low, high = condition.size.bounds
    if condition.relation == "==":
        return low == high == 0 if truth else not low <= 0 <= high
    return holds(condition.relation, low) == holds(condition.relation, high) == truth


def _limits_more(known: Condition, known_truth: bool, other: Condition, truth: bool) -> bool:
    """Whether both limit the same formula, and ``known`` not less."""
    first, second = _limit(known, known_truth), _limit(other, truth)
    return first is not None and second is not None and first[0] == second[0] and first[1] <= second[1]


def _limit(condition: Condition, truth: bool) -> tuple[Terms, Exact] | None:
    """Terms, and the number that they are at most: a whole number below 3 is at most 2. ``None`` if they need not be whole."""
    terms = {m: c if truth else -c for m, c in condition.size.terms.items()}
    if condition.relation == "==" or not all(isinstance(c, int) for c in terms.values()):
        return None
    strict = (condition.relation == "<") == truth
    return terms, -terms.pop((), 0) - strict


def _of_one(size: Size) -> tuple[Atom, Exact, Exact] | None:
    """The atom, its coefficient and the constant of a size that has one atom, else ``None``."""
    atoms = [monomial for monomial in size.terms if monomial]
    if len(atoms) != 1 or len(atoms[0]) != 1:
        return None
    return atoms[0][0], size.terms[atoms[0]], size.terms.get((), 0)
