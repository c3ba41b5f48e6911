"""Counts the copies of runs: from the host's memory to the device's and back, and within the device's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field

import numpy as np

from gpucomp.lazy_dataclass import dataclass

TO_DEVICE, FROM_DEVICE, ON_DEVICE = "host to device", "device to host", "device to device"
WAYS = (TO_DEVICE, FROM_DEVICE, ON_DEVICE)


@dataclass
class Copies:
    """How many copies there were, and of how many bytes together, by their way."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(WAYS, 0))
    nbytes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(WAYS, 0))

    def note(self, way: str, nbytes: int, count: int = 1) -> None:
        self.counts[way] += count
        self.nbytes[way] += nbytes


_current: ContextVar[Copies | None] = ContextVar("copies", default=None)


@contextmanager
def counted() -> Iterator[Copies]:
    """Counts what runs of this thread copy in the block, from their checked inputs to their results.

    A program's memory is the device's, a processor's too. What goes through pinned memory of the host counts once.
    """
    copies = Copies()
    token = _current.set(copies)
    try:
        yield copies
    finally:
        _current.reset(token)


def note(way: str, nbytes: int) -> None:
    """Count a copy, if somebody wants to know."""
    if (copies := _current.get()) is not None:
        copies.note(way, nbytes)


def note_all(others: Copies) -> None:
    """Count copies that were counted when they were recorded, for a replay of them."""
    if (copies := _current.get()) is not None:
        for way in WAYS:
            copies.note(way, others.nbytes[way], others.counts[way])


def copied(array: np.ndarray, target: np.ndarray | None = None) -> np.ndarray:
    """``target`` or a fresh array, after a copy of ``array`` within a processor's memory, which counts."""
    note(ON_DEVICE, array.nbytes)
    if target is None:
        return array.copy()
    target[...] = array
    return target
