"""Some elements of what a kernel gives for given inputs, in numpy, at a small part of the cost of all of them.

The kernel is cut down to a few points along each axis that no sum runs over, among them the first and the last, and
``gpucomp.kernel.interpreter`` computes these. How far a right result may be away follows from what the results do when inputs,
quotients and other functions change by about a rounding: a test with these bounds finds kernels that are wrong, not kernels that
round badly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from gpucomp.artifact.checks import ELEMENT, generated
from gpucomp.expr.core import Call, Const, Expr, Hole, Load, Var, call, index, loads, reduces, transform, var, walk
from gpucomp.expr.evaluate import evaluate
from gpucomp.kernel.body import (
    Attention,
    Contraction,
    Loops,
    Rowwise,
    Scan,
    Scatter,
    Store,
    TileTransform,
    Window,
)
from gpucomp.kernel.example import has_sizes
from gpucomp.kernel.interpreter import update
from gpucomp.kernel.ir import FusedLayers, Kernel

MOST_POINTS = 128  # of the axes that no sum runs over
MOST_SAMPLES = 96  # elements of a result that are kept
MOST_WORK = 1 << 23  # points times the elements that each sums up
MOST_UPDATES = 1 << 11  # of a scatter, which numpy does one by one
# by element type: about a rounding, relative to a number; and how far a right result may be away, relative to the largest
# of its tensor. The order of sums is free, so the second is many roundings
ROUNDING = {"f64": 2.0**-20, "f32": 2.0**-20, "f16": 2.0**-9, "bf16": 2.0**-6}
LOOSE = {"f64": 2.0**-10, "f32": 2.0**-10, "f16": 2.0**-5, "bf16": 2.0**-3}
AS_F16 = "tf32"  # a kernel that rounds operands to 10 bits of fraction is as exact as one of f16
# functions of whole numbers that have no result for some operands, such as a quotient by zero
PARTIAL = frozenset({"div", "floordiv", "mod", "fmod", "pow", "shl", "shr"})
# functions of floats whose last bits depend on the device
INEXACT = frozenset({"div", "pow", "sqrt", "exp", "log", "sin", "cos", "tan", "asin", "acos", "atan", "erf"})
INEXACT |= {"sinh", "cosh", "tanh", "asinh", "acosh", "atanh"}
PER_CHANGE = 16  # of a result's change when inputs change by a rounding, what it may be away
LEAST_NORMAL = {"float16": 2.0**-14}  # by numpy's name of a result's type, else 2**-126: less may be zero on a device
LEAST_SURE = 0.25  # an element that may be away by more of the largest one tells nothing
FILLS = (113, 0)  # what results hold before: an element with both is not written


def limits_of(kernel: Kernel) -> dict[int, int] | None:
    """For each input that others are indexed by, the number that its elements must be below to stay inside of them.

    ``None`` if no such number is known: the kernel cannot be tested on inputs that nobody checked.
    """
    limits: dict[int, int] = {}
    inside: list[tuple[Expr, int]] = []
    for expr in _expressions(kernel):
        for found in loads(expr):
            inside += zip(found.index, kernel.params[found.source].shape, strict=True)
    for store in _stores(kernel):
        inside += zip(store.index, kernel.params[store.target].shape, strict=True)
    if isinstance(kernel.body, Scatter):
        inside += [(e, axis.extent) for e, axis in zip(kernel.body.found, kernel.body.places, strict=True)]
    dependent = [(e, extent, set(_variable(kernel, e))) for e, extent in inside if _variable(kernel, e)]
    for _, extent, sources in dependent:
        for source in sources:
            if kernel.params[source].dtype.is_float or not extent:
                return None
            limits[source] = min(limits.get(source, extent), extent)
    if all(_stays(kernel, e, extent, limits) for e, extent, _ in dependent):
        return limits
    limits = dict.fromkeys(limits, 1)
    return limits if all(_stays(kernel, e, extent, limits) for e, extent, _ in dependent) else None


def _variable(kernel: Kernel, expr: Expr) -> list[int]:
    """The inputs that an index depends on and that differ from run to run."""
    return [one.source for one in loads(expr) if one.source not in kernel.constants]


def _stays(kernel: Kernel, expr: Expr, extent: int, limits: Mapping[int, int]) -> bool:
    """Whether an index is inside at the ends of all axes, for the least and the largest elements."""
    axes = [node for node in walk(expr) if isinstance(node, Var)]
    if any(isinstance(node, Hole) for node in walk(expr)) or len(axes) > 12:
        return False
    ends: dict[Expr, np.ndarray] = {
        axis: np.array([0, max(axis.extent - 1, 0)]).reshape((-1,) + (1,) * (len(axes) - 1 - k))
        for k, axis in enumerate(axes)
    }
    for largest in (False, True):
        sources = []
        for number, type in enumerate(kernel.params):
            value = limits.get(number, 1) - 1 if largest else 0
            sources.append(np.broadcast_to(np.asarray(value).astype(type.dtype.numpy), type.shape))
        found = evaluate(expr, sources, ends)
        if found.min() < 0 or found.max() >= extent:
            return False
    return True


def _stores(kernel: Kernel) -> list[Store]:
    tail = kernel.body.tail if isinstance(kernel.body, Contraction) else None
    return [*kernel.stores, *(tail.stores if tail else ())]


def _expressions(kernel: Kernel) -> list[Expr]:
    return [*kernel.body.expressions(), *(e for store in kernel.stores for e in store.expressions())]


def samples(kernel: Kernel, inputs: Sequence[np.ndarray]) -> list[np.ndarray] | None:
    """For each output some of its elements, as ``checks.ELEMENT``; none of an output of which nothing is sure.

    ``inputs`` are all of the kernel's, as its parameters declare them. ``None`` if the kernel is not one that can be cut down:
    one for sizes that each run decides, layers that are fused, a single element that sums up too much, floats of 8 bits, types of
    fewer bits, or operators that have no result for some whole numbers.
    """
    unit = _unit(kernel)
    small = None if unit is None or _is_partial(kernel) else cut_down(kernel)
    if small is None or unit is None:
        return None
    changed = [_changed(kernel, k, array, unit) for k, array in enumerate(inputs)]
    up, down = [more for more, _ in changed], [less for _, less in changed]
    found = [
        _computed(small, inputs, FILLS[0]),
        _computed(_scaled(small, 1), up, FILLS[1]),
        _computed(_scaled(small, -1), down, FILLS[1]),
    ]
    whole = not any(type.dtype.is_float for type in kernel.params) and not _uses_floats(kernel)
    return [_sure(plain, more, less, unit, whole) for plain, more, less in zip(*found, strict=True)]


def _computed(kernel: Kernel, inputs: Sequence[np.ndarray], fill: int) -> list[np.ndarray]:
    outputs = [np.full(t.shape, fill).astype(t.dtype.numpy) for t in kernel.params[kernel.inputs :]]
    update(kernel, inputs, outputs)
    return outputs


def _changed(kernel: Kernel, number: int, array: np.ndarray, unit: str) -> tuple[np.ndarray, np.ndarray]:
    """An input with each element changed by about a rounding, some up and some down, and with each changed the other way."""
    if number in kernel.constants or not kernel.params[number].dtype.is_float:
        return array, array
    signs = generated("bool", array.size, ~number & 0xFFFF).reshape(array.shape)
    wide = array if array.dtype.itemsize > 2 else array.astype(np.float32)
    step = wide * np.where(signs, wide.dtype.type(ROUNDING[unit]), wide.dtype.type(-ROUNDING[unit]))
    return (wide + step).astype(array.dtype), (wide - step).astype(array.dtype)


def _scaled(kernel: Kernel, sign: int) -> Kernel:
    """``kernel`` where what its functions of ``INEXACT`` give is about a rounding larger, or smaller.

    A device may take 10 / 10 for a little less than 1, and its floor is 0.
    """

    def scaled(node: Expr) -> Expr | None:
        if not isinstance(node, Call) or node.fn not in INEXACT or not node.dtype.is_float:
            return None
        if not any(isinstance(one, (Load, Hole)) for one in walk(node)):
            return None
        return node * (1 + sign * ROUNDING[node.dtype.name])

    def mapped(expr: Expr) -> Expr:
        return transform(expr, scaled)

    return replace(kernel, body=kernel.body.mapped(mapped), stores=tuple(s.mapped(mapped) for s in kernel.stores))


def _unit(kernel: Kernel) -> str | None:
    """The float type with the fewest bits that the kernel uses; ``None`` if it uses one of which nothing is known."""
    every = {type.dtype for type in kernel.params} | {node.dtype for e in _expressions(kernel) for node in walk(e)}
    names = {dtype.name for dtype in every if dtype.is_float or dtype.storage_only}
    if names - ROUNDING.keys():
        return None
    if isinstance(kernel.body, (Contraction, Attention)) and kernel.body.math == AS_F16:
        names.add("f16")
    return max(names, key=lambda name: ROUNDING[name], default="f32")


def _is_partial(kernel: Kernel) -> bool:
    """Whether a function of ``PARTIAL`` has a second operand that is not known."""
    every = (node for e in _expressions(kernel) for node in walk(e) if isinstance(node, Call) and node.fn in PARTIAL)
    return any(not node.dtype.is_float and not isinstance(node.args[-1], Const) for node in every)


def _uses_floats(kernel: Kernel) -> bool:
    return any(node.dtype.is_float for e in _expressions(kernel) for node in walk(e))


def _sure(plain: np.ndarray, up: np.ndarray, down: np.ndarray, unit: str, whole: bool) -> np.ndarray:
    """The elements that are written and of which a right result is near; at most ``MOST_SAMPLES``, from first to last."""
    fills = [np.asarray(fill).astype(plain.dtype) for fill in FILLS]
    places = np.flatnonzero(~((plain == fills[0]) & (up == fills[1])))
    value, *others = (array.reshape(-1)[places].astype(np.float64) for array in (plain, up, down))
    with np.errstate(all="ignore"):
        change = np.maximum(*(np.abs(other - value) for other in others))
        finite = np.isfinite(value) & np.isfinite(change) & (np.abs(value) < 2.0**53)
        largest = float(np.abs(value[finite]).max(initial=0.0))
        if plain.dtype.kind in "iub":
            within = np.where(change > 0, np.inf, 0.0 if whole or plain.dtype.kind == "b" else 1.0)
        else:
            least = LEAST_NORMAL.get(plain.dtype.name, 2.0**-126)
            within = np.minimum(LOOSE[unit] * largest + PER_CHANGE * change + least, np.finfo(np.float32).max)
            within[within > LEAST_SURE * largest if largest else change > 0] = np.inf
    kept = np.flatnonzero(finite & np.isfinite(within))
    if len(kept) > MOST_SAMPLES:
        kept = kept[np.linspace(0, len(kept) - 1, MOST_SAMPLES).astype(np.int64)]
    found = np.empty(len(kept), ELEMENT)
    found["at"], found["value"], found["within"] = places[kept], value[kept], within[kept]
    return found


def cut_down(kernel: Kernel) -> Kernel | None:
    """``kernel`` at few points of each axis that no sum runs over; its parameters stay as they are."""
    if isinstance(kernel.body, FusedLayers) or has_sizes(kernel) or any(0 in type.shape for type in kernel.params):
        return None
    free = _free(kernel)
    work = math.prod(axis.extent for axis in _summed(kernel))
    if isinstance(kernel.body, Scatter):
        work = max(work, math.prod(a.extent for a in kernel.body.places))
        if math.prod(a.extent for a in kernel.body.updates) > MOST_UPDATES:
            return None
    points = min(MOST_POINTS, MOST_WORK // max(work, 1))
    if points < 1:
        return None
    new = {axis: var(axis.name, n) for axis, n in zip(free, _counts([a.extent for a in free], points), strict=True)}

    def place(node: Expr) -> Expr | None:
        if not isinstance(node, Var) or node not in new or new[node].extent == node.extent:
            return None
        steps = max(new[node].extent - 1, 1)
        step = -(-(node.extent - 1) // steps) | 1  # odd: the points are not all the first of a tile
        return call("min", new[node] * step, index(node.extent - 1))

    def mapped(expr: Expr) -> Expr:
        return transform(expr, place)

    small = {axis: made if made.extent < axis.extent else axis for axis, made in new.items()}
    axes = {role: tuple(small.get(a, a) for a in group) for role, group in kernel.body.axes().items()}
    body = kernel.body.mapped(mapped).with_axes(axes)
    return replace(kernel, body=body, stores=tuple(s.mapped(mapped) for s in kernel.stores))


def _free(kernel: Kernel) -> tuple[Var, ...]:
    """The axes along which elements do not depend on each other."""
    match kernel.body:
        case Loops(domain=axes) | Window(domain=axes):
            return axes
        case Contraction() as c:
            return c.batch + c.m + (() if c.tail else c.n)
        case Rowwise(rows=axes) | Scan(rows=axes) | TileTransform(blocks=axes) | Scatter(lines=axes):
            return axes
        case Attention() as t:
            return t.batch + t.rows + t.values
    return ()


def _summed(kernel: Kernel) -> list[Var]:
    """The axes that the elements of one point run over, with those of sums inside of expressions."""
    inner = chain.from_iterable(one.axes for e in _expressions(kernel) for one in reduces(e))
    return list(dict.fromkeys((*chain.from_iterable(kernel.body.reduced()), *inner)))


def _counts(extents: Sequence[int], most: int) -> list[int]:
    """How many points of each axis: about the same number along all, and at most ``most`` together."""
    counts = [1] * len(extents)
    while grown := [k for k, n in enumerate(counts) if n < extents[k] and math.prod(counts) // n * (n + 1) <= most]:
        least = min(grown, key=lambda k: counts[k])
        counts[least] += 1
    return counts
