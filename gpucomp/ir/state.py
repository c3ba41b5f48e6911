"""Inputs of a model that the next run gets from the outputs of this one. ``rewrite.states`` finds them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class State:
    """A tensor that stays in a context's memory: input ``input``, which after a run is what the model calls ``output``.

    With an ``axis`` of 0 or more, a run stores ``rows`` new rows in the input's own memory, behind the valid ones, and returns
    no array: ``dim`` is the number of valid rows, and ``capacity`` the input's extent along ``axis``. Else a run makes the
    whole tensor as an output, and ``why`` says why.
    """

    input: str
    output: str
    axis: int = -1
    dim: str = ""
    capacity: int = 0
    rows: int = 0
    why: str = ""
