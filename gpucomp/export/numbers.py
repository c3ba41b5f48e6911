"""Numbers of a C program that follow from the sizes of a run. This is the one place that writes a formula as C."""

from __future__ import annotations

from collections.abc import Sequence

from gpucomp.artifact.formulas import GREATEST, LARGEST, LEAST, QUOTIENT, SUM, Formulas, Step
from gpucomp.artifact.open_plan import Place
from gpucomp.ir.dim import Dim

Bounds = tuple[int, int]
ANYTHING = (-LARGEST, LARGEST)


class Numbers:
    """The numbers ``n[0], n[1] ...`` of a C program: the sizes of ``dims``, the formulas of a plan, and what is added to them.

    ``lines`` are the statements that compute all but the sizes. They leave the function with 0 if the program is not for the
    sizes. Arithmetic is plain where the ranges of the sizes prove that nothing overflows; else functions check it, whose names
    are in ``helpers``.
    """

    def __init__(self, formulas: Formulas, dims: Sequence[Dim]) -> None:
        self.lines: list[str] = []
        self.helpers: set[str] = set()
        self._known: dict[Step, int] = {}
        self._bounds: list[Bounds] = [(dim.nearest(0), dim.high) for dim in dims]
        for step in formulas.steps:  # not by ``add``: each has its place
            self._known.setdefault(step, len(self._bounds))
            self._write(step)

    def __len__(self) -> int:
        return len(self._bounds)

    def of(self, number: int | Place) -> int:
        """The place of a number of a plan."""
        return number.number if isinstance(number, Place) else self.add((SUM, number, (), 1))

    def add(self, step: Step) -> int:
        """The place of what ``step`` gives."""
        if step not in self._known:
            self._known[step] = len(self._bounds)
            self._write(step)
        return self._known[step]

    def product(self, factor: int, numbers: Sequence[object]) -> int:
        """The place of ``factor`` times numbers of a plan."""
        places = tuple(n.number for n in numbers if isinstance(n, Place))
        for number in numbers:
            factor *= number if isinstance(number, int) else 1
        return self.add((SUM, 0, ((factor, places),), 1)) if places else self.of(factor)

    def total(self, places: Sequence[int], more: int = 0) -> int:
        if len(places) == 1 and not more:
            return places[0]
        return self.add((SUM, more, tuple((1, (place,)) for place in places), 1))

    def greatest(self, places: Sequence[int]) -> int:
        return self._choose(GREATEST, places) if places else self.of(0)

    def least(self, places: Sequence[int]) -> int:
        return self._choose(LEAST, places)

    def _choose(self, kind: str, places: Sequence[int]) -> int:
        return places[0] if len(places) == 1 else self.add((kind, tuple(places)))

    def rounded(self, place: int, alignment: int) -> int:
        """The least multiple of ``alignment`` that is not below the number at ``place``."""
        units = self.add((QUOTIENT, self.total([place], alignment - 1), self.of(alignment)))
        return self.add((SUM, 0, ((alignment, (units,)),), 1))

    def require(self, place: int, low: int, high: int) -> None:
        """Sizes at which the number at ``place`` is not in this range are not supported."""
        least, most = self._bounds[place]
        wrong = [f"n[{place}] < {low}"] * (least < low) + [f"n[{place}] > {high}"] * (most > high)
        if wrong:
            self.lines += [f"if ({' || '.join(wrong)})", "    return 0;"]
            self._bounds[place] = max(least, low), min(most, high)

    def require_relation(self, place: int, relation: str, truth: bool) -> None:
        """Sizes at which the number at ``place`` is not in this relation to 0, or is if not ``truth``, are not supported."""
        self.lines += [f"if ({'!' if truth else ''}(n[{place}] {relation} 0))", "    return 0;"]

    def _write(self, step: Step) -> None:
        number = len(self._bounds)
        if step[0] == SUM:
            text, bounds = self._sum(*step[1:])
        elif step[0] == QUOTIENT:
            text, bounds = self._quotient(*step[1:])
        else:
            text, bounds = self._choice(step[0] == LEAST, step[1])
        self.lines.append(f"n[{number}] = {text};")
        if "&wrong" in text:
            self.lines += ["if (wrong)", "    return 0;"]
        self._bounds.append(bounds)

    def _sum(self, start: int, terms: Sequence[tuple[int, tuple[int, ...]]], divisor: int) -> tuple[str, Bounds]:
        text, bounds = (str(start), (start, start)) if start or not terms else ("", (0, 0))
        for factor, places in terms:
            term, more = self._product(factor, places)
            both = bounds[0] + more[0], bounds[1] + more[1]
            if not text:
                text = term
            elif _is_literal(text) and _is_literal(term) and _fits(both):  # C would compute it with 32 bits
                text = str(int(text) + int(term))
            elif _fits(both):
                text = f"{text} - {term[1:]}" if term.startswith("-") else f"{text} + {term}"
            else:
                text = self._checked("plus", text, term)
            bounds = _clipped(both)
        if divisor != 1:
            text = self._checked("whole", text, str(divisor))
            bounds = -(-bounds[0] // divisor), bounds[1] // divisor
        return text, bounds

    def _product(self, factor: int, places: Sequence[int]) -> tuple[str, Bounds]:
        text, bounds = str(factor), (factor, factor)
        for place in places:
            corners = [a * b for a in bounds for b in self._bounds[place]]
            both = min(corners), max(corners)
            name = self._name(place)
            if not _fits(both):
                text = self._checked("times", text, name)
            elif _is_literal(text) and _is_literal(name):
                text = str(int(text) * int(name))
            elif text == "1" or (text == "-1" and name.startswith("n")):
                text = f"{text[:-1]}{name}"
            else:
                text = f"{text} * {name}"
            bounds = _clipped(both)
        return text, bounds

    def _quotient(self, top: int, bottom: int) -> tuple[str, Bounds]:
        (low, high), (least, most) = self._bounds[top], self._bounds[bottom]
        corners = [a // b for a in (low, high) for b in (max(least, 1), max(most, 1))]
        plain = low >= 0 and least > 0
        names = self._name(top), self._name(bottom)
        if plain:
            text = str(corners[0]) if all(map(_is_literal, names)) else f"{names[0]} / {names[1]}"
        else:
            text = self._checked("quotient", *names)
        return text, (min(corners), max(corners))

    def _choice(self, least: bool, places: Sequence[int]) -> tuple[str, Bounds]:
        name, pick = ("least", min) if least else ("greatest", max)
        text = self._name(places[0])
        for place in places[1:]:
            text = f"{name}({text}, {self._name(place)})"
            self.helpers.add(name)
        lows, highs = zip(*(self._bounds[place] for place in places), strict=True)
        return text, (pick(lows), pick(highs))

    def _name(self, place: int) -> str:
        """The number as C. One that is the same at all sizes is written out."""
        low, high = self._bounds[place]
        return f"n[{place}]" if low < high else str(low)

    def _checked(self, helper: str, a: str, b: str) -> str:
        self.helpers.add(helper)
        return f"{helper}({a}, {b}, &wrong)"


def _is_literal(text: str) -> bool:
    return text.lstrip("-").isdigit()


def _fits(bounds: Bounds) -> bool:
    return bounds[0] >= -LARGEST and bounds[1] <= LARGEST


def _clipped(bounds: Bounds) -> Bounds:
    low, high = (max(-LARGEST, min(end, LARGEST)) for end in bounds)
    return low, high
