"""Which sizes stand for all sizes where only speed is decided."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

Example = tuple[tuple[str, int], ...]
_instead: ContextVar[Example | None] = ContextVar("instead", default=None)


@contextmanager
def exemplified(sizes: Mapping[str, int]) -> Iterator[None]:
    """In this block, what only decides speed is decided for ``sizes``. Conditions are still those of the example."""
    token = _instead.set(tuple(sizes.items()))
    try:
        yield
    finally:
        _instead.reset(token)


def example_now() -> Example | None:
    """The sizes of the innermost ``exemplified`` block."""
    return _instead.get()
