"""Turns a plan whose extents are sizes into an ``OpenPlan``: the sizes become formulas as plain data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gpucomp.artifact.formulas import GREATEST, LEAST, QUOTIENT, SUM, Formulas, Step
from gpucomp.artifact.open_plan import OpenPlan, Place, Stack
from gpucomp.artifact.plan import Plan
from gpucomp.ir.conditions import Assumed
from gpucomp.ir.polynomial import Atom, Symbol, denominator
from gpucomp.ir.size import Choice, Operand, Quotient, Size, terms_of


class _Recorder:
    """Writes formulas as steps, each once."""

    def __init__(self, dims: Sequence[str]) -> None:
        self.dims = {name: number for number, name in enumerate(dims)}
        self.units = [1] * len(dims)
        self.steps: list[Step] = []
        self._places: dict[Any, int] = {}

    def place(self, size: Operand) -> int:
        """The place of ``size``, which is a whole number in every run."""
        terms = terms_of(size)
        if len(terms) == 1:
            ((monomial, factor),) = terms.items()
            if len(monomial) == 1 and factor == 1:
                return self._of(monomial[0])
        divisor = denominator(terms)
        parts, start = [], 0
        for monomial, c in terms.items():
            factor = int(c * divisor)
            if monomial:
                parts.append((factor, tuple(self._of(atom) for atom in monomial)))
            else:
                start = factor
        return self._step((SUM, start, tuple(parts), divisor))

    def _of(self, atom: Atom) -> int:
        if atom in self._places:
            return self._places[atom]
        match atom:
            case Symbol():
                found = self.dims[atom.name]
                self.units[found] = atom.step
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
    plan: Plan, dims: Sequence[str], conditions: Assumed, stacks: tuple[Stack, ...], alignment: int
) -> OpenPlan:
    """``plan`` for every size that meets ``conditions``. ``stacks``: see ``OpenPlan``."""
    recorder = _Recorder(dims)

    def told(value: Any) -> Any:
        return Place(recorder.place(value)) if isinstance(value, Size) else value

    buffers = tuple(
        replace(
            b,
            shape=tuple(map(told, b.shape)),
            nbytes=0 if isinstance(b.nbytes, Size) else b.nbytes,
            numbers=tuple(map(told, b.numbers)),
        )
        for b in plan.buffers
    )
    kernels = tuple(
        replace(
            k,
            groups=tuple(map(told, k.groups)),
            numbers=tuple((one.kind, recorder.place(one.size)) for one in k.numbers),  # type: ignore[attr-defined, misc]
        )
        for k in plan.kernels
    )
    noted = tuple((recorder.place(c.size), c.relation, truth) for c, truth in conditions.conditions.items())
    formulas = Formulas(tuple(dims), tuple(recorder.units), tuple(recorder.steps))
    return OpenPlan(replace(plan, buffers=buffers, kernels=kernels), formulas, noted, stacks, alignment)
