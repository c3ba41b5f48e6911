"""Inputs of a model that the next run gets from the outputs of this one. ``rewrite.states`` finds them."""

from __future__ import annotations

from gpucomp.lazy_dataclass import dataclass


@dataclass(frozen=True)
class State:
    """A tensor that stays in a context's memory: input ``input``, which after a run is what the model calls ``output``.

    Without a ``why``, a run changes the input's own memory and returns no array. With an ``axis`` of 0 or more, it stores
    ``rows`` new rows there, behind the valid ones: ``dim`` is the number of these, and ``capacity`` the input's extent along
    ``axis``. Else it stores elements where its data says, as a Scatter does. With a ``why``, a run makes the whole tensor as
    an output.
    """

    input: str
    output: str
    axis: int = -1
    dim: str = ""
    capacity: int = 0
    rows: int = 0
    why: str = ""

    @property
    def grows(self) -> bool:
        return self.axis >= 0

    @property
    def in_place(self) -> bool:
        return not self.why
