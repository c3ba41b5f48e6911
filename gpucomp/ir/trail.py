"""Reports the replacements that rewrites make to an observer that follows nodes. Nothing is stored here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from gpucomp.ir.graph import Value

Trail = Callable[[Sequence[Value], Sequence[Value], str], None]

_trail: ContextVar[Trail | None] = ContextVar("trail", default=None)


@contextmanager
def followed(trail: Trail) -> Iterator[None]:
    """Call ``trail(old, new, by)`` for every replacement in this block: old values, new values, and the rule's name.

    ``by`` is ``""`` if no rule made the replacement. If a node only gets other operands, the new node has the same
    attributes object.
    """
    token = _trail.set(trail)
    try:
        yield
    finally:
        _trail.reset(token)


def tell(old: Sequence[Value], new: Sequence[Value], by: str = "") -> None:
    """Report to the trail in force, if there is one, that the values ``new`` replace ``old``."""
    if (trail := _trail.get()) is not None:
        trail(old, new, by)
