"""Packs weights: constant operands of contractions get the memory layout that an engine reads.

This runs after a schedule is chosen, because the engine decides the layout: ``gpucomp.lowering.SCHEDULED_PASSES``.

``pack`` rewrites a kernel so that the operand is a plain load of a new constant. ``packed_constant`` evaluates the
operand's expression to make that constant, so a transpose or a scale in it costs nothing at run time. A packing may
also transform the values. The packed kernel then contains the inverse transform, so that it still describes the same
function.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from gpucomp.expr.core import Cast, Expr, Load, Var, call, cast, index, literal, load, loads, select
from gpucomp.expr.evaluate import evaluate
from gpucomp.expr.printer import format_expr
from gpucomp.expr.simplify import flatten, simplify, unflatten
from gpucomp.ir.graph import Value, constant, constant_value
from gpucomp.ir.types import TensorType
from gpucomp.kernel import Contraction, Kernel, kernel_of
from gpucomp.kernel.example import is_fixed
from gpucomp.kernel.packing import Digit, Packing
from gpucomp.kernel.splice import parameters
from gpucomp.kernel.step import KernelStep
from gpucomp.kernel.winograd_matrices import ALL, floats

AXES = ("batch", "k", "span")
CHUNK = 1 << 22  # elements of an operand that are evaluated at a time
CACHED = 1 << 12  # columns of windows that are transformed at a time


@dataclass(frozen=True)
class Transform:
    """A linear map of square windows ``g`` of a filter, ``forward @ g @ forward.T``. ``back`` is its inverse.

    The depth before is (window rows, window columns, channels), after it (position rows, position columns, channels).
    """

    forward: tuple[tuple[float, ...], ...]
    back: tuple[tuple[float, ...], ...]

    @property
    def taps(self) -> int:
        """Rows and columns of a window before the transform."""
        return len(self.back)

    @property
    def positions(self) -> int:
        """Rows and columns of a window after the transform."""
        return len(self.forward)

    def depth(self, k: int) -> int:
        """The depth after the transform of a depth of ``k``. Raises ``ValueError`` if that is not whole windows."""
        if k % self.taps**2:
            raise ValueError(f"a depth of {k} is not a multiple of {self.taps} x {self.taps} windows")
        return k // self.taps**2 * self.positions**2


TRANSFORMS: Mapping[str, Transform] = {
    name: Transform(floats(algorithm.filter), floats(algorithm.back)) for name, algorithm in ALL.items()
}


@dataclass(frozen=True, eq=False)
class Packed:
    """A kernel after packing.

    kernel    the new kernel; its last input is the packed operand
    kept      the old inputs that the new kernel still reads, in order
    element   the operand's element before packing, over ``axes``; it loads the old inputs
    axes      batch axes, depth axes, span axes
    """

    kernel: Kernel[Contraction]
    kept: tuple[int, ...]
    element: Expr
    axes: tuple[tuple[Var, ...], ...]
    packing: Packing


def packable(kernel: Kernel[Contraction], operand: str) -> bool:
    """Whether ``operand`` (``a`` or ``b``) of a contraction reads only constants, the same elements in every run."""
    body = kernel.body
    sources = {ld.source for ld in loads(body.a if operand == "a" else body.b)}
    return bool(sources) and sources <= kernel.constants and is_fixed(body, operand)


def pack(kernel: Kernel, packing: Packing) -> Packed:
    """``kernel`` with the operand of ``packing`` read from one constant in that layout.

    Raises ``ValueError`` if the digits are not a mixed radix of each axis, or if they do not cover an axis. Raises
    ``TypeError`` if ``kernel`` is not a contraction.
    """
    contraction = kernel_of(kernel, Contraction)
    body = contraction.body
    assert packable(contraction, packing.operand)
    old = body.a if packing.operand == "a" else body.b
    change = TRANSFORMS[packing.transform] if packing.transform else None
    element = old.value if isinstance(old, Cast) and change is None else old
    dtype = element.dtype
    axes = (body.batch, body.k, body.m if packing.operand == "a" else body.n)
    flat = {name: flatten(group, tuple(v.extent for v in group)) for name, group in zip(AXES, axes, strict=True)}
    extents = {name: math.prod(v.extent for v in group) for name, group in zip(AXES, axes, strict=True)}
    depth = extents["k"]
    if change is not None:
        extents["k"] = change.depth(depth)
    if packing.filled:
        flat["k"], extents["k"] = _filled_depth(packing, flat["k"], depth)
    _check(packing.digits, extents)

    other = body.b if packing.operand == "a" else body.a
    others = [
        other,
        *(e for s in kernel.stores for e in (*s.index, s.value)),
        *(body.tail.expressions() if body.tail else ()),
    ]
    used = {ld.source for e in others for ld in loads(e)}
    kept = tuple(k for k in range(kernel.inputs) if k in used)
    type = TensorType(dtype, tuple(d.extent for d in packing.digits))
    new = parameters(kernel, [*kept, type, *kernel.results])

    def read(k: Expr) -> Expr:
        at = flat | {"k": k}
        place = tuple(simplify(call("mod", call("floordiv", at[d.axis], d.step), d.extent)) for d in packing.digits)
        return load(len(kept), place, dtype)

    if change is None:
        packed: Expr = cast(read(flat["k"]), old.dtype)
    else:
        packed = simplify(_undone(change, read, flat["k"], depth // change.taps**2))
    a, b = (packed, new(other)) if packing.operand == "a" else (new(other), packed)
    body = replace(body, a=a, b=b, tail=new.tail(body.tail) if body.tail is not None else None)
    constants = new.constants | {len(kept)}
    made = replace(contraction, params=new.types, body=body, stores=new.stores(kernel.stores), constants=constants)
    return Packed(made, kept, element, axes, packing)


def _filled_depth(packing: Packing, k: Expr, depth: int) -> tuple[Expr, int]:
    """The index of depth ``k`` in the padded depth, and the extent of the padded depth."""
    parts, filled = zip(*packing.filled, strict=True)
    if math.prod(parts) != depth or any(map(operator.gt, parts, filled)) or packing.transform:
        raise ValueError(f"a depth of {depth} cannot be padded by {packing.filled}")
    return flatten(unflatten(k, parts), filled), math.prod(filled)


def _undone(change: Transform, read: Callable[[Expr], Expr], k: Expr, channels: int) -> Expr:
    """The operand at depth ``k``: the inverse transform of what ``read`` gives at transformed depths."""
    tap, channel = call("floordiv", k, channels), call("mod", k, channels)
    result: Expr | None = None
    for row, column in reversed(list(np.ndindex(change.taps, change.taps))):
        total: Expr | None = None
        for i, j in np.ndindex(change.positions, change.positions):
            factor = change.back[row][i] * change.back[column][j]
            if factor == 0:
                continue
            value = read(channel + (i * change.positions + j) * channels)
            term = value if factor == 1 else value * literal(factor, value.dtype)
            total = term if total is None else total + term
        assert total is not None
        here = call("eq", tap, index(row * change.taps + column))
        result = total if result is None else select(here, total, result)
    assert result is not None
    return result


def packed_step(step: KernelStep, packed: Packed, made: dict[tuple[object, ...], Value]) -> KernelStep:
    """``step`` with the packed kernel and constant. ``made`` has the constants packed so far, which steps can share."""
    sources = sorted({ld.source for ld in loads(packed.element)})
    extents = tuple(tuple(v.extent for v in group) for group in packed.axes)
    key = (packed.packing, format_expr(packed.element), extents, *(step.inputs[k] for k in sources))
    if key not in made:
        arrays = [constant_value(value) for value in step.inputs]
        made[key] = constant(packed_constant(packed, arrays))
    inputs = (*(step.inputs[k] for k in packed.kept), made[key])
    return replace(step, kernel=packed.kernel, inputs=inputs)


def packed_constant(packed: Packed, inputs: Sequence[np.ndarray | None]) -> np.ndarray:
    """The operand's elements in the packed layout; padding is zero."""
    extents = [math.prod(v.extent for v in group) for group in packed.axes]
    elements = operand_elements(packed.element, [v for group in packed.axes for v in group], inputs).reshape(extents)
    if packed.packing.transform:
        elements = _transformed(TRANSFORMS[packed.packing.transform], elements)
    if packed.packing.filled:
        elements = _filled(packed.packing.filled, elements)
    extents = list(elements.shape)
    radix = {name: _radix(packed.packing.digits, name) for name in AXES}
    room = [math.prod(d.extent for d in radix[name]) for name in AXES]
    if room != extents:
        padded = np.zeros(room, elements.dtype)
        padded[tuple(slice(n) for n in extents)] = elements
        elements = padded
    split = [d for name in AXES for d in radix[name]]
    elements = elements.reshape([d.extent for d in split])
    return np.ascontiguousarray(elements.transpose([split.index(d) for d in packed.packing.digits]))


def _filled(filled: Sequence[tuple[int, int]], elements: np.ndarray) -> np.ndarray:
    """``elements`` [batch, depth, span] with each axis of the depth padded with zeros."""
    batch, _, span = elements.shape
    room = np.zeros((batch, *(n for _, n in filled), span), elements.dtype)
    parts = elements.reshape(batch, *(n for n, _ in filled), span)
    room[tuple(slice(n) for n in parts.shape)] = parts
    return room.reshape(batch, -1, span)


def _transformed(change: Transform, elements: np.ndarray) -> np.ndarray:
    """``elements`` [batch, depth, span] with the depth transformed. Computed in f64 and rounded once.

    Row after row, not as products of matrices: their threads wait for processors that compile kernels meanwhile (ResNet-50's
    15 constants took 2.3 s, now 0.3), and their sums have other bits on other processors.
    """
    batch, depth, span = elements.shape
    taps, size = change.taps, len(change.forward)
    windows = elements.reshape(batch, taps, taps, -1)
    found = np.empty((batch, size, size, windows.shape[3]), elements.dtype)
    for image in range(batch):
        for begin in range(0, windows.shape[3], CACHED):
            part = slice(begin, begin + CACHED)
            rows = windows[image, :, :, part].astype(np.float64)
            for i, line in enumerate(_combined(change.forward, rows)):
                for j, column in enumerate(_combined(change.forward, line)):
                    found[image, i, j, part] = column
    return found.reshape(batch, change.depth(depth), span)


def _combined(forward: Sequence[Sequence[float]], parts: np.ndarray) -> Iterator[np.ndarray]:
    """For each row of ``forward``, the sum of ``parts`` that it weighs."""
    for row in forward:
        total = np.zeros(parts.shape[1:])
        for weight, part in zip(row, parts, strict=True):
            if weight:
                total += weight * part
        yield total


def operand_elements(element: Expr, axes: Sequence[Var], inputs: Sequence[np.ndarray | None]) -> np.ndarray:
    """``element`` at every point of ``axes``. ``inputs`` has the arrays of the constants that it loads."""
    sources = [np.empty(0) if array is None else array for array in inputs]
    if (straight := _as_stored(element, axes, sources)) is not None:
        return straight
    shape = tuple(v.extent for v in axes)
    result = np.empty(shape, element.dtype.numpy)
    first, rest = (axes[0].extent, axes[1:]) if axes else (1, [])
    rows = max(1, CHUNK // max(1, math.prod(v.extent for v in rest)))
    for begin in range(0, first, rows):
        end = min(first, begin + rows)
        bound: dict[Expr, np.ndarray] = {}
        for position, axis in enumerate(axes):
            values = np.arange(begin, end) if position == 0 else np.arange(axis.extent)
            bound[axis] = values.reshape([-1 if k == position else 1 for k in range(len(axes))])
        result[begin:end] = evaluate(element, sources, bound)
    return result


def _as_stored(element: Expr, axes: Sequence[Var], sources: Sequence[np.ndarray]) -> np.ndarray | None:
    """The operand as a view of a constant, if its indices are just the axes; else ``None``."""
    if not isinstance(element, Load):
        return None
    array, used = sources[element.source], []
    take: list[int | slice] = []
    for place, extent in zip(element.index, array.shape, strict=True):
        if isinstance(place, Var) and place.extent == extent and place not in used:
            used.append(place)
            take.append(slice(None))
        elif place is index(0):
            take.append(0)
        else:
            return None
    if set(used) != {v for v in axes if v.extent != 1 or v in used}:
        return None
    view = array[tuple(take)].transpose([used.index(v) for v in axes if v in used])
    return view.reshape([v.extent for v in axes])


def _radix(digits: Sequence[Digit], axis: str) -> list[Digit]:
    return sorted((d for d in digits if d.axis == axis), key=lambda d: (-d.step, -d.extent))


def _check(digits: Sequence[Digit], extents: dict[str, int]) -> None:
    if repeated := [d for d, same in groupby(sorted(digits, key=repr)) if len(list(same)) > 1]:
        raise ValueError(f"digit {repeated[0]} is repeated")
    for name, extent in extents.items():
        room = 1
        for digit in reversed(_radix(digits, name)):
            if digit.step != room:
                raise ValueError(f"{digit} does not continue the digits below it, which count to {room}")
            room *= digit.extent
        if room < extent:
            raise ValueError(f"the digits of {name} count to {room}, but its extent is {extent}")
