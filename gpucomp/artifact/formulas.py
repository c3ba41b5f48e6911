"""Formulas of sizes as plain data: a list of steps, each a sum, a quotient or a choice of what earlier steps gave.

A file holds them, so nothing in them is trusted: ``Formulas`` checks the steps once, and each number when it is computed.
This module needs nothing but the standard library.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from gpucomp.errors import ArtifactError
from gpucomp.lazy_dataclass import dataclass

LARGEST = (1 << 63) - 1
MOST_DIMS = 1_000
MOST_STEPS = 100_000
MOST_TERMS = 1_000  # of a sum, and parts of a choice
MOST_FACTORS = 64
MOST_PLACES = 500_000  # in all steps together: a run reads each
MOST_CHARACTERS = 160  # of a formula as text; longer ones are named
SUM, QUOTIENT, LEAST, GREATEST = "sum", "quotient", "least", "greatest"
_LINEAR, _SUM, _QUOTIENT, _LEAST, _GREATEST = range(5)

# (SUM, number, ((factor, (step, ...)), ...), divisor)    (QUOTIENT, step, step)    (LEAST or GREATEST, (step, ...))
Step = tuple[Any, ...]


@dataclass(frozen=True)
class Formulas:
    """Whole numbers that follow from the sizes of ``dims``.

    The first numbers are the sizes of the dimensions. Then there is one number for each step, which refers to the numbers
    before it by their positions:

    sum        number + the sum of factor * the product of numbers, divided by divisor without a rest
    quotient   of two numbers, rounded down; the second is positive
    least, greatest   of several numbers

    Raises ``ArtifactError`` for steps that are not of this form.
    """

    dims: tuple[str, ...]
    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        if len(self.steps) > MOST_STEPS or len(self.dims) > MOST_DIMS:
            raise damaged(f"{len(self.steps)} steps for {len(self.dims)} dimensions")
        places = 0
        for number, step in enumerate(self.steps, start=len(self.dims)):
            places += _check(step, number)
            if places > MOST_PLACES:
                raise damaged(f"more than {MOST_PLACES} numbers are read")

    def __len__(self) -> int:
        return len(self.dims) + len(self.steps)

    @cached_property
    def _instructions(self) -> list[tuple[int, Any, Any, Any]]:
        made: list[tuple[int, Any, Any, Any]] = []
        for step in self.steps:
            match step:
                case (str() as kind, start, ((factor, (place,)),), 1) if kind == SUM:
                    made.append((_LINEAR, start, factor, place))
                case (str() as kind, start, terms, divisor) if kind == SUM:
                    made.append((_SUM, start, terms, divisor))
                case (str() as kind, top, bottom) if kind == QUOTIENT:
                    made.append((_QUOTIENT, top, bottom, None))
                case (kind, parts):
                    made.append((_LEAST if kind == LEAST else _GREATEST, parts, None, None))
        return made

    def at(self, sizes: Mapping[str, int]) -> list[int]:
        """All numbers at ``sizes``. Raises ``ArithmeticError`` if one is not whole or does not fit 64 bits."""
        found = [sizes[name] for name in self.dims]
        for kind, a, b, c in self._instructions:
            if kind == _LINEAR:
                value = a + b * found[c]
            elif kind == _SUM:
                value = a
                for factor, places in b:
                    for place in places:
                        factor *= found[place]
                    value += factor
                if c != 1:
                    value, rest = divmod(value, c)
                    if rest:
                        raise ArithmeticError("a size that is no whole number")
            elif kind == _QUOTIENT:
                if found[b] <= 0:
                    raise ArithmeticError(f"a division by {found[b]}")
                value = found[a] // found[b]
            else:
                value = (min if kind == _LEAST else max)([found[place] for place in a])
            if not -LARGEST <= value <= LARGEST:
                raise ArithmeticError("a size of more than 64 bits")
            found.append(value)
        return found

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """All numbers for people. In the text of another one, a long one is ``#`` and its position."""
        texts = list(self.dims)
        for step in self.steps:
            if step[0] == SUM:
                text = _sum(_signed(step, texts))
                texts.append(text if step[3] == 1 else f"{_within(text)}/{step[3]}")
            elif step[0] == QUOTIENT:
                top, bottom = (_short(texts, place) for place in step[1:])
                texts.append(f"floor({_within(top)}/{_within(bottom)})")
            else:
                parts = ", ".join(_short(texts, place) for place in step[1])
                texts.append(f"{'min' if step[0] == LEAST else 'max'}({parts})")
        return tuple(texts)

    def comparison(self, place: int, relation: str) -> str:
        """That a number is in this relation to 0, for people: what is subtracted is on the right."""
        step = self.steps[place - len(self.dims)] if place >= len(self.dims) else None
        if step is None or step[0] != SUM:
            return f"{_short(self.texts, place)} {relation} 0"
        parts = _signed(step, self.texts)
        left, right = ([(abs(f), text) for f, text in parts if (f > 0) == which] for which in (True, False))
        if not left or left == [(left[0][0], "")]:
            left, right, relation = right, left, relation.translate(str.maketrans("<>", "><"))
        if left[1:] and left[-1][1] == "" and not right:  # n + 3 < 0 has no other form
            return f"{_sum(left)} {relation} 0"
        return f"{_sum(left)} {relation} {_sum(right)}"

    def needed(self, place: int) -> list[int]:
        """The numbers that one is computed from, in order, with itself."""
        seen, left = set[int](), [place]
        while left:
            number = left.pop()
            if number not in seen:
                seen.add(number)
                left += _places_of(self.steps[number - len(self.dims)]) if number >= len(self.dims) else ()
        return sorted(seen)

    def dims_in(self, place: int) -> tuple[str, ...]:
        """The dimensions that a number depends on."""
        return tuple(self.dims[number] for number in self.needed(place) if number < len(self.dims))


def _places_of(step: Step) -> list[int]:
    if step[0] == SUM:
        return [place for _, places in step[2] for place in places]
    return [step[1], step[2]] if step[0] == QUOTIENT else list(step[1])


def _short(texts: Sequence[str], place: int) -> str:
    return texts[place] if len(texts[place]) <= MOST_CHARACTERS else f"#{place}"


def _within(text: str) -> str:
    return f"({text})" if " " in text and not (text.endswith(")") and text.count("(") == 1) else text


def _signed(step: Step, texts: Sequence[str]) -> list[tuple[int, str]]:
    """The terms of a sum, each a factor and a product as text, which is empty for the number."""
    terms = [(factor, "*".join(_within(_short(texts, p)) for p in places)) for factor, places in step[2]]
    return [*terms, (step[1], "")] if step[1] else terms


def _sum(parts: Sequence[tuple[int, str]]) -> str:
    text = ""
    for factor, product in parts:
        number = [str(abs(factor))] if abs(factor) != 1 or not product else []
        text += f" {'-' if factor < 0 else '+'} {'*'.join([*number, *([product] if product else [])])}"
    return text[3:] if text.startswith(" +") else f"-{text[3:]}" if text else "0"


def is_whole(value: object) -> bool:
    return type(value) is int and -LARGEST <= value <= LARGEST


def _check(step: object, number: int) -> int:
    """How many places ``step`` has. Raises ``ArtifactError`` unless it is one, and refers to numbers before ``number`` only."""

    def places(given: object, most: int) -> bool:
        return (
            isinstance(given, tuple)
            and len(given) <= most
            and all(is_whole(place) and 0 <= place < number for place in given)
        )

    count = 2
    match step:
        case (str() as kind, start, tuple() as terms, int() as divisor) if kind == SUM:
            fits = is_whole(start) and is_whole(divisor) and divisor > 0 and len(terms) <= MOST_TERMS
            fits = fits and all(
                isinstance(term, tuple) and len(term) == 2 and is_whole(term[0]) and places(term[1], MOST_FACTORS)
                for term in terms
            )
            count = sum(1 + len(term[1]) for term in terms) if fits else 0
        case (str() as kind, top, bottom) if kind == QUOTIENT:
            fits = places((top, bottom), 2)
        case (str() as kind, tuple() as parts) if kind in (LEAST, GREATEST):
            fits = bool(parts) and places(parts, MOST_TERMS)
            count = len(parts)
        case _:
            fits = False
    if not fits:
        raise damaged(f"step {number} is not one")
    return count


def damaged(what: str) -> ArtifactError:
    return ArtifactError(f"the formulas of the model's sizes are damaged: {what}", code="GPC7024")


def steps_of(given: Sequence[Any]) -> tuple[Step, ...]:
    """Steps as JSON has them, lists, as tuples."""

    def tuples(value: Any, depth: int) -> Any:
        return tuple(tuples(part, depth + 1) for part in value) if isinstance(value, list) and depth < 5 else value

    return tuple(tuples(step, 0) for step in given)
