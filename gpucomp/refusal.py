"""Why something is not what was asked about, as a value: what a function gives instead of its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Refusal:
    """False, so that ``found = matrix_of(...)`` can be asked ``if found``; it prints as its reason.

    Where a result can be empty, and so be false as well, ask ``isinstance(found, Refusal)``.
    """

    reason: str

    def __bool__(self) -> Literal[False]:
        return False

    def __str__(self) -> str:
        return self.reason


def required(found: T | Refusal) -> T:
    """``found``, in code that is only asked where it is no refusal. Raises ``TypeError`` with the reason where it is one."""
    if isinstance(found, Refusal):
        raise TypeError(found.reason)
    return found
