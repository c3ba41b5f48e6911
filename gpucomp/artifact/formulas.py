"""Formulas of sizes as plain data: a list of steps, each a sum, a quotient or a choice of what earlier steps gave.

A file holds them, so nothing in them is trusted: ``Formulas`` checks the steps once, and each number when it is computed.
This module needs nothing but the standard library.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpucomp.errors import ArtifactError

LARGEST = (1 << 63) - 1
MOST_STEPS = 100_000
MOST_TERMS = 1_000  # of a sum, and parts of a choice
MOST_FACTORS = 64
SUM, QUOTIENT, LEAST, GREATEST = "sum", "quotient", "least", "greatest"

# (SUM, number, ((factor, (step, ...)), ...), divisor)    (QUOTIENT, step, step)    (LEAST or GREATEST, (step, ...))
Step = tuple[Any, ...]


@dataclass(frozen=True)
class Formulas:
    """Whole numbers that follow from the sizes of ``dims``.

    The first numbers are the sizes of the dimensions, each divided by its ``unit``, which divides every allowed size. Then
    there is one number for each step, which refers to the numbers before it by their positions:

    sum        number + the sum of factor * the product of numbers, divided by divisor without a rest
    quotient   of two numbers, rounded down; the second is positive
    least, greatest   of several numbers

    Raises ``ArtifactError`` for steps that are not of this form.
    """

    dims: tuple[str, ...]
    units: tuple[int, ...]
    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        if len(self.steps) > MOST_STEPS or len(self.dims) != len(self.units):
            raise _bad(f"{len(self.steps)} steps for {len(self.dims)} dimensions and {len(self.units)} units")
        if not all(_is_whole(unit) and unit > 0 for unit in self.units):
            raise _bad("a unit that is not a positive whole number")
        for number, step in enumerate(self.steps, start=len(self.dims)):
            _check(step, number)

    def at(self, sizes: Mapping[str, int]) -> list[int]:
        """All numbers at ``sizes``. Raises ``ArithmeticError`` if one is not whole or does not fit 64 bits."""
        found = [sizes[name] // unit for name, unit in zip(self.dims, self.units, strict=True)]
        for step in self.steps:
            kind = step[0]
            if kind == SUM:
                value = step[1]
                for factor, places in step[2]:
                    for place in places:
                        factor *= found[place]
                    value += factor
                if step[3] != 1:
                    value, rest = divmod(value, step[3])
                    if rest:
                        raise ArithmeticError(f"a size that is no whole number at {dict(sizes)}")
            elif kind == QUOTIENT:
                if found[step[2]] <= 0:
                    raise ArithmeticError(f"a division by {found[step[2]]} at {dict(sizes)}")
                value = found[step[1]] // found[step[2]]
            else:
                value = (min if kind == LEAST else max)([found[place] for place in step[1]])
            if not -LARGEST <= value <= LARGEST:
                raise ArithmeticError(f"a size of more than 64 bits at {dict(sizes)}")
            found.append(value)
        return found


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST


def _check(step: object, number: int) -> None:
    """Raise ``ArtifactError`` unless ``step`` is one, and refers to numbers before ``number`` only."""

    def places(given: object, most: int) -> bool:
        return (
            isinstance(given, tuple)
            and len(given) <= most
            and all(_is_whole(place) and 0 <= place < number for place in given)
        )

    match step:
        case (str() as kind, start, tuple() as terms, int() as divisor) if kind == SUM:
            fits = _is_whole(start) and _is_whole(divisor) and divisor > 0 and len(terms) <= MOST_TERMS
            fits = fits and all(
                isinstance(term, tuple) and len(term) == 2 and _is_whole(term[0]) and places(term[1], MOST_FACTORS)
                for term in terms
            )
        case (str() as kind, top, bottom) if kind == QUOTIENT:
            fits = places((top, bottom), 2)
        case (str() as kind, tuple() as parts) if kind in (LEAST, GREATEST):
            fits = bool(parts) and places(parts, MOST_TERMS)
        case _:
            fits = False
    if not fits:
        raise _bad(f"step {number} is not one")


def _bad(what: str) -> ArtifactError:
    return ArtifactError(f"the formulas of the model's sizes are damaged: {what}", code="GPC7024")


def steps_of(given: Sequence[Any]) -> tuple[Step, ...]:
    """Steps as JSON has them, lists, as tuples."""

    def tuples(value: Any, depth: int) -> Any:
        return tuple(tuples(part, depth + 1) for part in value) if isinstance(value, list) and depth < 5 else value

    return tuple(tuples(step, 0) for step in given)
