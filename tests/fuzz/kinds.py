"""The table of drawing functions: each adds a node or a motif of several to a ``Draft``, or nothing where none fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.fuzz.draft import Draft

Draw = Callable[[Draft], object]


@dataclass(frozen=True)
class Kind:
    """``weight``: how often it is drawn, beside others. ``smooth``: fit for a loop's body, on whatever its state becomes."""

    function: Draw
    weight: float
    smooth: bool


KINDS: dict[str, Kind] = {}


def draws(weight: float = 1.0, *, smooth: bool = False) -> Callable[[Draw], Draw]:
    """Decorator: put a drawing function into the table."""

    def register(function: Draw) -> Draw:
        assert function.__name__ not in KINDS
        KINDS[function.__name__] = Kind(function, weight, smooth)
        return function

    return register
