"""Turns a plan whose extents are sizes into an ``OpenPlan``: the sizes become formulas as plain data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from gpucomp.artifact.formulas import GREATEST, LEAST, QUOTIENT, SUM, Formulas, Step
from gpucomp.artifact.open_plan import Choices, OpenPlan, Place, Stacks
from gpucomp.artifact.plan import INPUT, Buffer, Plan
from gpucomp.ir.conditions import Assumed
from gpucomp.ir.dim import Dim
from gpucomp.ir.dims import OpenShapes
from gpucomp.ir.polynomial import Atom, Symbol, denominator
from gpucomp.ir.size import Choice, Operand, Quotient, Size, terms_of


class _Recorder:
    """Writes formulas as steps, each once."""

    def __init__(self, dims: Sequence[str]) -> None:
        self.dims = {name: number for number, name in enumerate(dims)}
        self.steps: list[Step] = []
        self._places: dict[Any, int] = {}

    def place(self, size: Operand) -> int:
        """The place of ``size``, which is a whole number in every run."""
        terms = {
            m: Fraction(c) / math.prod(atom.step for atom in m if isinstance(atom, Symbol))
            for m, c in terms_of(size).items()
        }
        if len(terms) == 1:
            ((monomial, factor),) = terms.items()
            if len(monomial) == 1 and factor == 1:
                return self._of(monomial[0])
        divisor = math.lcm(*(c.denominator for c in terms.values()))
        parts = tuple((int(c * divisor), tuple(map(self._of, m))) for m, c in terms.items() if m)
        return self._step((SUM, int(terms.get((), 0) * divisor), parts, divisor))

    def _of(self, atom: Atom) -> int:
        """The place of an atom; of a symbol that of its dimension."""
        if isinstance(atom, Symbol):
            return self.dims[atom.name]
        if atom in self._places:
            return self._places[atom]
        match atom:
            case Quotient():
                scale = math.lcm(*(denominator(terms_of(end)) for end in (atom.top, atom.bottom)))
                found = self._step((QUOTIENT, self.place(atom.top * scale), self.place(atom.bottom * scale)))
            case Choice():
                kind = LEAST if atom.least else GREATEST
                found = self._step((kind, tuple(self.place(part) for part in atom.parts)))
            case _:
                raise AssertionError(f"{atom} is in no formula")
        self._places[atom] = found
        return found

    def _step(self, step: Step) -> int:
        if step not in self._places:
            self._places[step] = len(self.dims) + len(self.steps)
            self.steps.append(step)
        return self._places[step]


def open_plan(
    plan: Plan,
    shapes: OpenShapes,
    conditions: Assumed,
    orders: tuple[Stacks, ...],
    alignment: int,
    choices: Sequence[Choices] = (),
) -> OpenPlan:
    """``plan`` for every size of ``shapes`` that meets ``conditions``. ``orders``, ``choices``: see ``OpenPlan``.

    The points of ``choices`` are sizes; here they become places.
    """
    dims = tuple(shapes.dims)
    recorder = _Recorder(dims)

    def told(value: Any) -> Any:
        return Place(recorder.place(value)) if isinstance(value, Size) else value

    grown = {state.input for state in plan.states if state.grows}  # these have their capacity

    def shape_of(b: Buffer) -> tuple[Any, ...]:
        # as it is declared: conditions can say the same otherwise
        if b.kind == INPUT and b.name in shapes.shapes and b.name not in grown:
            return tuple(Place(dims.index(n.name)) if isinstance(n, Dim) else n for n in shapes.shapes[b.name])
        return tuple(map(told, b.shape))

    def nbytes_of(b: Buffer, shape: tuple[Any, ...]) -> int:
        return 0 if any(isinstance(n, Place) for n in shape) else int(b.nbytes)

    shaped = [(b, shape_of(b)) for b in plan.buffers]
    buffers = tuple(
        replace(b, shape=shape, nbytes=nbytes_of(b, shape), numbers=tuple(map(told, b.numbers))) for b, shape in shaped
    )
    kernels = tuple(
        replace(
            k,
            groups=tuple(map(told, k.groups)),
            tensor_maps=tuple(m.with_numbers(tuple(map(told, m.numbers))) for m in k.tensor_maps),
            numbers=tuple((one.kind, recorder.place(one.size)) for one in k.numbers),  # type: ignore[attr-defined, misc]
        )
        for k in plan.kernels
    )
    repeats = tuple(
        replace(
            r, count=told(r.count), after=told(r.after), advances=tuple(tuple(map(told, row)) for row in r.advances)
        )
        for r in plan.repeats
    )
    states = tuple(replace(one, rows=told(one.rows)) for one in plan.states)
    noted = tuple(
        (recorder.place(c.size * denominator(c.size.terms)), c.relation, truth)
        for c, truth in conditions.conditions.items()
    )
    decided = tuple(replace(one, points=recorder.place(one.points)) for one in choices)
    formulas = Formulas(dims, tuple(recorder.steps))
    opened = replace(plan, buffers=buffers, kernels=kernels, repeats=repeats, states=states)
    return OpenPlan(opened, formulas, noted, orders, alignment, decided)
