"""The layout of a model whose sizes each run decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from gpucomp.artifact.open_plan import OpenPlan, Place
from gpucomp.artifact.plan import TEMP, Buffer, Plan
from gpucomp.export import states
from gpucomp.export.layout import ALIGNMENT, Argument, Layout, copies_of, places_of, rows_of
from gpucomp.export.names import identifiers
from gpucomp.export.numbers import Numbers
from gpucomp.export.refusals import LARGEST_ARENA
from gpucomp.export.sizes import OpenParts, Size, bytes_of, fills_of, placed, variants_of
from gpucomp.ir.dim import Dim


def open_layout_of(
    opened: OpenPlan, dims: Mapping[str, Dim], example: Plan, weights: Mapping[str, np.ndarray], pointer: int
) -> Layout:
    """As ``layout_of``, for a plan that is right at many sizes of ``dims``. ``example`` is the plan at some of them, for what
    decides only speed. ``pointer`` is the number of bytes of a pointer.
    """
    plan = opened.plan
    numbers = Numbers(opened.formulas, [dims[name] for name in opened.formulas.dims])
    for condition in opened.conditions:
        numbers.require_relation(*condition)
    places = places_of(plan, weights)
    temporaries = [position for position, buffer in enumerate(plan.buffers) if buffer.kind == TEMP]
    for number, position in enumerate(temporaries):
        places.of[position] = Argument("IN_TEMPORARY", 0, number)

    def nbytes(buffer: Buffer) -> int:
        return bytes_of(numbers, buffer.dtype, buffer.shape)

    def total(at: int, size: int) -> int:
        return numbers.total([at, numbers.rounded(size, ALIGNMENT)]) if at >= 0 else numbers.of(places.counters)

    kept, begin = states.rows_of(plan, nbytes, total)
    launched = list(range(len(plan.launches)))
    arguments, rows, loops, advances = rows_of(plan, example, launched, places.of, numbers.of)
    for loop in loops:
        numbers.require(loop.count, 0, (1 << 31) - 1)
        numbers.require(loop.after, 0, (1 << 31) - 1)
    variants, choices, given = variants_of(numbers, opened, [row.kernel for row in rows])
    offsets, arenas = placed(numbers, opened)
    arena = numbers.total([begin, numbers.least(arenas)])
    numbers.require(arena, 0, LARGEST_ARENA[pointer])
    growing = [state for state in plan.states if state.grows]
    parts = OpenParts(
        numbers,
        _sizes(opened.formulas.dims, dims, {state.dim for state in growing}),
        tuple(variants),
        tuple(choices),
        tuple(given),
        tuple(fills_of(numbers, opened, places.filled)),
        offsets,
        arenas,
        arena,
        numbers.of(growing[0].rows) if growing else -1,
        min((state.capacity for state in growing), default=0),
    )
    copies = copies_of(plan, places.of, nbytes)
    return Layout(
        tuple(arguments),
        tuple(rows),
        tuple(loops),
        tuple(advances),
        tuple(copies),
        tuple(kept),
        places.counters,
        begin,
        begin,
        places.weights,
        parts,
    )


def _sizes(names: Sequence[str], dims: Mapping[str, Dim], counted: set[str]) -> tuple[Size, ...]:
    members = identifiers("size", names)
    return tuple(
        Size(member, place, dims[name], name in counted)
        for place, (member, name) in enumerate(zip(members, names, strict=True))
    )


def shape_of(numbers: Numbers, shape: Sequence[object]) -> tuple[str, ...]:
    """The extents of a tensor as C: a number, or the one at a place."""
    return tuple(f"n[{n.number}]" if isinstance(n, Place) else str(cast(int, n)) for n in shape)
