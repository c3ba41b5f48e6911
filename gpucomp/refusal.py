"""``Refusal``: a reason, which a function returns in place of a result that does not exist."""

from __future__ import annotations

from typing import Literal, TypeVar

from gpucomp.lazy_dataclass import dataclass

T = TypeVar("T")


@dataclass(frozen=True)
class Refusal:
    """A reason why there is no result. It is false, so callers write ``if found:``; ``str`` gives the reason.

    If a result can also be false, for example an empty tuple, test ``isinstance(found, Refusal)``.
    """

    reason: str

    def __bool__(self) -> Literal[False]:
        return False

    def __str__(self) -> str:
        return self.reason


def required(found: T | Refusal) -> T:
    """``found``, where the caller knows that it is a result. Raises ``TypeError`` with the reason if it is a refusal."""
    if isinstance(found, Refusal):
        raise TypeError(found.reason)
    return found
