"""Tells whoever follows nodes through rewrites what is put in the place of what. Nothing is kept here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from gpucomp.ir.graph import Value

Trail = Callable[[Sequence[Value], Sequence[Value], str], None]

_trail: ContextVar[Trail | None] = ContextVar("trail", default=None)


@contextmanager
def followed(trail: Trail) -> Iterator[None]:
    """``trail(old, new, by)`` is called in this block for every replacement: the values, what stands for each, the rule's name.

    A node that stays and is only given other operands is a replacement by ``""``, with the same object as its attributes.
    """
    token = _trail.set(trail)
    try:
        yield
    finally:
        _trail.reset(token)


def tell(old: Sequence[Value], new: Sequence[Value], by: str = "") -> None:
    """Tell whoever follows, if anybody does, that ``new`` stand for ``old`` from now on."""
    if (trail := _trail.get()) is not None:
        trail(old, new, by)
