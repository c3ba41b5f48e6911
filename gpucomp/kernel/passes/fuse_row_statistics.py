"""Fuses reductions of the same rows with each other, and into the contraction that stores the rows.

For example, if a norm is folded into the next matrix product, the mean and the deviation of its rows are left. Each
would be a launch that reads the same rows. Fused reductions read the rows once, and in the contraction's launch the
rows are still in a cache.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeGuard

from gpucomp.expr.core import Cast, Expr, Hole, Load, Select, Var, cast, hole, load, loads, substitute, transform, walk
from gpucomp.expr.simplify import flatten, same_form, simplify, unflatten
from gpucomp.ir.graph import Value
from gpucomp.ir.size import Size, same, same_shape
from gpucomp.ir.types import F32, TensorType
from gpucomp.kernel import Contraction, RowStatistics, Rowwise, Statistic, Store
from gpucomp.kernel.grouping import MAX_PARAMS
from gpucomp.kernel.pipeline import Setting
from gpucomp.kernel.splice import Splice, without_results
from gpucomp.kernel.step import KernelStep, Step, is_step_of
from gpucomp.refusal import Refusal

MAX_STATISTICS = 4  # per row in one kernel


def join(steps: Sequence[Step], at: Setting) -> list[Step]:
    """Fuses reductions of the same rows, with each other and into the contraction that stores the rows.

    Takes  kernels that reduce the rows of one value, and the contraction that writes this value
    Gives  one kernel with all these reductions, or the contraction with them as its tail, if that is expected to be
           faster. Only targets with ``row_tails`` can have tails
    Leaves reductions of rows of other sizes, and more than ``MAX_STATISTICS`` statistics of a row
    """
    found = list(steps)
    for step in steps:
        if step in found and _is_statistics(step):
            found = _joined(found, step, at)
    return found


def _joined(steps: list[Step], first: KernelStep[Rowwise], at: Setting) -> list[Step]:
    """``steps`` with ``first`` and later reductions of the same rows fused, also into the contraction before them."""
    rows, parts = first, [first]
    for step in steps[steps.index(first) + 1 :]:
        if not _is_statistics(step) or _waits(step, rows, steps):
            continue
        if one := merged(rows, step):
            rows, parts = one, [*parts, step]
    if len(parts) > 1 and not at.expected.faster([rows.kernel], [part.kernel for part in parts]):
        rows, parts = first, [first]
    for step in steps[: steps.index(first)] if at.target.row_tails else []:
        if not isinstance(step, KernelStep) or set(step.outputs).isdisjoint(rows.inputs) or _waits(rows, step, steps):
            continue
        kept = {v for other in steps if other not in parts for v in other.inputs}.union(at.graph.outputs)
        both = followed(step, rows, kept) if _writes_alone(step, steps) else None
        if both and at.expected.faster([both.kernel], [step.kernel, rows.kernel]):
            return [both if s is step else s for s in steps if s not in parts]
    return [rows if s is first else s for s in steps if s is first or s not in parts]


def _is_statistics(step: Step) -> TypeGuard[KernelStep[Rowwise]]:
    return is_step_of(step, Rowwise) and len(step.kernel.body.row_stores) == len(step.kernel.stores)


def _writes_alone(step: Step, steps: Sequence[Step]) -> bool:
    """Whether no other step writes parts of the same results."""
    writers = Counter(value for s in steps for value in s.outputs)
    return all(writers[value] == 1 for value in step.outputs)


def _waits(step: Step, place: Step, steps: Sequence[Step]) -> bool:
    """Whether ``step`` cannot run in the position of ``place`` because it reads values that are written after it."""
    at = next(k for k, s in enumerate(steps) if not set(s.outputs).isdisjoint(place.outputs))
    late = {value for s in steps[at:] if s is not step for value in s.outputs}.difference(place.outputs)
    return not late.isdisjoint(step.inputs)


# reductions of the same rows --------------------------------------------------------------------------------


def merged(first: KernelStep[Rowwise], second: KernelStep[Rowwise]) -> KernelStep[Rowwise] | Refusal:
    """Both steps fused into one, which replaces ``first``, or why they cannot be fused."""
    one, two = first.kernel, second.kernel
    above, below = one.body, two.body
    pairs = ((above.rows, below.rows), (above.cols, below.cols))
    if not all(same_shape([v.extent for v in a], [v.extent for v in b]) for a, b in pairs):
        return Refusal("their rows have different sizes")
    if len(above.statistics) + len(below.statistics) > MAX_STATISTICS:
        return Refusal(f"more than {MAX_STATISTICS} statistics of a row")
    if not set(first.inputs) & set(second.inputs):
        return Refusal("they read nothing in common")
    known = _handed(first, second)
    if isinstance(known, Refusal):
        return known
    splice = Splice([first, second])
    mine, theirs = splice.renumberings
    at: dict[Expr, Expr] = dict(zip((*below.rows, *below.cols), (*above.rows, *above.cols), strict=True))
    holes = {s.hole: hole(f"s{k}", s.hole.dtype) for k, s in enumerate(below.statistics, len(above.statistics))}
    elsewhere = False

    def changed(expr: Expr) -> Expr:
        def change(node: Expr) -> Expr | None:
            nonlocal elsewhere
            if isinstance(node, Hole):
                return holes.get(node)
            if not isinstance(node, Load):
                return None
            if node.source not in known:
                return theirs(node)
            store = known[node.source]
            type = two.params[node.source]
            elsewhere |= not same_form(flatten(node.index, type.shape), flatten(store.index, type.shape))
            return mine(store.value)

        return transform(simplify(substitute(expr, at)), change)

    statistics = [s.mapped(mine) for s in above.statistics]
    statistics += [Statistic(holes[s.hole], s.op, changed(s.value)) for s in below.statistics]
    stores = [*mine.stores(one.stores), *(replace(s.mapped(changed), target=theirs[s.target]) for s in two.stores)]
    if elsewhere:
        return Refusal("a result of the first is read at other indices than it is stored")
    body = Rowwise(above.rows, above.cols, tuple(statistics), frozenset(range(len(stores))))
    reasons = dict.fromkeys(w for why in (first.why, second.why) for w in why.split("; ") if w)
    return splice.step(splice.kernel(one.family, body, stores), first.name, "; ".join(reasons))


def _handed(first: KernelStep, second: KernelStep) -> dict[int, Store] | Refusal:
    """The stores of ``first`` that write inputs of ``second``, by input; or why they cannot be fused."""
    one, two = first.kernel, second.kernel
    found: dict[int, Store] = {}
    for place, value in enumerate(second.inputs):
        if value in first.outputs:
            target = one.results[first.outputs.index(value)]
            stores = [s for s in one.stores if s.target == target]
            if len(stores) != 1 or one.params[target] != two.params[place]:
                return Refusal("the value is stored in parts, or read with another type")
            found[place] = stores[0]
    return found


# in the tail of a contraction -------------------------------------------------------------------------------


def followed(step: KernelStep, rows: KernelStep[Rowwise], kept: Collection[Value]) -> KernelStep | Refusal:
    """The contraction ``step`` with the statistics ``rows`` of its results as its tail, or why it cannot have them.

    ``kept`` are the values that other steps read. A result outside ``kept`` that is just another result widened is not
    stored.
    """
    one, two = step.kernel, rows.kernel
    body, below = one.body, two.body
    if type(body) is not Contraction or body.tail is not None:
        return Refusal("it is not a contraction, or it has statistics already")
    if any(s.hole.dtype is not F32 for s in below.statistics):
        return Refusal("the statistics are not f32")
    if any(isinstance(n, Select) and loads(n) for s in below.statistics for n in walk(s.value)):
        return Refusal("the statistics contain conditional loads")
    at = _axes_in(step, rows, body, below)
    if isinstance(at, Refusal):
        return at
    splice = Splice([step, rows])
    if len(splice.params) > MAX_PARAMS:
        return Refusal(f"more than {MAX_PARAMS} buffers")
    mine, theirs = splice.renumberings
    tail = RowStatistics(below.statistics, two.stores).mapped(lambda e: simplify(substitute(e, at)))
    followed_body = replace(body.mapped(mine), tail=theirs.tail(tail))
    kernel = splice.kernel(one.family, followed_body, mine.stores(one.stores))
    return _without_widened(splice.step(kernel, step.name, _reasons(step, rows)), kept)


def _reasons(step: KernelStep, rows: KernelStep) -> str:
    """Why fusion ends after both steps. Reasons of ``step`` that are about nodes of ``rows`` are dropped."""
    over = {str(n.op) for n in (*rows.nodes, *rows.prologue)}
    found = [*step.why.split("; "), "statistics of its rows follow", *rows.why.split("; ")]
    return "; ".join(dict.fromkeys(w for w in found if w and over.isdisjoint(w.split())))


def _axes_in(step: KernelStep, rows: KernelStep, body: Contraction, below: Rowwise) -> Mapping[Expr, Expr] | Refusal:
    """The axes of ``rows`` in terms of the contraction's, or why the statistics are not of the contraction's rows."""
    one, two = step.kernel, rows.kernel
    long, wide = body.batch + body.m, body.n
    if any(
        not same(math.prod(v.extent for v in a), math.prod(v.extent for v in b))
        for a, b in ((long, below.rows), (wide, below.cols))
    ):
        return Refusal("the statistics are of rows of another size")
    stores = _handed(step, rows)
    if isinstance(stores, Refusal):
        return stores
    if isinstance(math.prod(v.extent for v in wide), Size):
        return Refusal("each run decides the size of a row")
    for place, store in stores.items():
        if not is_matrix(store.index, one.params[store.target], long, wide):
            return Refusal("it does not store contiguous rows")
        reads = {ld for e in two.expressions() for ld in loads(e) if ld.source == place}
        if not all(is_matrix(ld.index, two.params[place], below.rows, below.cols) for ld in reads):
            return Refusal("the statistics are not of its rows")
    return _digits(below.rows, long) | _digits(below.cols, wide)


def is_matrix(index: Sequence[Expr], type: TensorType, rows: Sequence[Var], cols: Sequence[Var]) -> bool:
    """Whether ``index`` walks over the whole array in row-major order of ``rows`` and ``cols``."""
    axes = (*rows, *cols)
    extents = tuple(v.extent for v in axes)
    whole = same(math.prod(extents), type.size)
    return whole and same_form(flatten(tuple(index), type.shape), flatten(axes, extents))


def _digits(axes: Sequence[Var], others: Sequence[Var]) -> dict[Expr, Expr]:
    """``axes`` in terms of ``others``, which have the same number of points."""
    extents = tuple(v.extent for v in axes)
    if same_shape(extents, [v.extent for v in others]):
        return dict(zip(axes, others, strict=True))
    number = flatten(tuple(others), tuple(v.extent for v in others))
    return dict(zip(axes, map(simplify, unflatten(number, extents)), strict=True))


def _without_widened(step: KernelStep[Contraction], kept: Collection[Value]) -> KernelStep:
    """``step`` without a result that only its tail reads and that is another, narrower result widened."""
    kernel = step.kernel
    body = kernel.body
    assert body.tail is not None
    for wide in kernel.stores:
        value = step.outputs[wide.target - kernel.inputs]
        if value in kept or not isinstance(wide.value, Cast):
            continue
        places = flatten(wide.index, kernel.params[wide.target].shape)
        for narrow in kernel.stores:
            there = kernel.params[narrow.target]
            alike = narrow.value is wide.value.value and there.dtype is narrow.value.dtype
            if alike and same_form(flatten(narrow.index, there.shape), places):
                return _widening(step, wide, narrow)
    return step


def _widening(step: KernelStep[Contraction], wide: Store, narrow: Store) -> KernelStep:
    """``step`` without the result of ``wide``: its tail reads the result of ``narrow`` instead, and widens it."""
    kernel = step.kernel
    body = kernel.body
    assert body.tail is not None
    element = load(narrow.target, narrow.index, kernel.params[narrow.target].dtype)

    def change(node: Expr) -> Expr | None:
        return cast(element, wide.value.dtype) if isinstance(node, Load) and node.source == wide.target else None

    tail = body.tail.mapped(lambda e: transform(e, change))
    changed = replace(step, kernel=replace(kernel, body=replace(body, tail=tail)))
    return without_results(changed, [step.outputs[wide.target - kernel.inputs]])
