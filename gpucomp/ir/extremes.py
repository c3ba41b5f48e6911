"""The least and the greatest of several sizes, as formulas."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import chain
from typing import Any

from gpucomp.ir.polynomial import denominator
from gpucomp.ir.size import Choice, Operand, Size, affordable, bounds, made, same, terms_of


def smallest(*parts: Operand) -> Any:
    """The least of ``parts``, without a condition."""
    return _choice(parts, least=True)


def largest(*parts: Operand) -> Any:
    """The greatest of ``parts``, without a condition."""
    return _choice(parts, least=False)


def _choice(parts: Sequence[Operand], *, least: bool) -> Any:
    if not any(isinstance(part, Size) for part in parts):
        return min(parts) if least else max(parts)
    scale = math.lcm(*(denominator(terms_of(part)) for part in parts))
    if scale > 1:  # an atom is a whole number
        return _choice([part * scale for part in parts], least=least) / Fraction(scale)
    kept: list[Operand] = []
    for part in chain.from_iterable(_parts(part, least) for part in parts):
        if any(_proved(other, part, least) for other in kept):
            continue
        kept = [other for other in kept if not _proved(part, other, least)]
        kept.append(part)
    return kept[0] if len(kept) == 1 else made({(affordable(Choice(least, tuple(sorted(kept, key=str)))),): 1})


def _parts(size: Operand, least: bool) -> Sequence[Operand]:
    """The parts of a choice of the same kind, else ``size`` itself."""
    atom = next(iter(size.terms))[0:1] if isinstance(size, Size) and len(size.terms) == 1 else ()
    whole = atom and isinstance(atom[0], Choice) and atom[0].least == least and same(size, made({atom: 1}))
    return atom[0].parts if whole and isinstance(atom[0], Choice) else (size,)


def _proved(first: Operand, second: Operand, least: bool) -> bool:
    """Whether ``first`` is never greater (with ``least``), or never less, than ``second``."""
    low, high = bounds(second - first)
    return low >= 0 if least else high <= 0
