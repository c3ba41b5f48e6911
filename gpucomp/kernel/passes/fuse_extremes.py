"""Finds the extremes of a large array in the kernel that writes it, on a CPU.

A quantization by the range of its values needs the least and the greatest of them before it begins. An array beyond the
second-level cache is written to far memory, and would be read from there for its range alone, by one thread.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from gpucomp.expr.core import Expr, Load, hole, load, loads, reduces, substitute, var
from gpucomp.expr.simplify import coefficient, flatten, same_form, simplify, unflatten
from gpucomp.ir.graph import Value
from gpucomp.ir.size import Size
from gpucomp.ir.types import TensorType
from gpucomp.kernel import Kernel, Loops, Rowwise, Statistic, Store
from gpucomp.kernel.pipeline import Setting
from gpucomp.kernel.rename import canonical
from gpucomp.kernel.splice import Renumbering
from gpucomp.kernel.step import BETWEEN, KernelStep, Step, is_step_of
from gpucomp.refusal import Refusal

SHORT_ROW = 128  # elements: the extremes of shorter rows would be a part of the array worth saving
FEW_ROWS = 64  # threads share rows: with fewer, they would not share the work as well as they share elements


def fuse(steps: Sequence[Step], at: Setting) -> list[Step]:
    """Finds the extremes of each row where the rows are written, and then the extremes of these.

    Takes  an elementwise kernel that writes an array beyond the second-level cache, and the kernels that find the least or
           the greatest of all its elements
    Gives  the first with the extremes of its rows as further results, and the others for these. No order of elements
           matters, so the results are the same but for the sign of a zero
    Leaves smaller arrays, sums, arrays that other kernels write, few rows, rows that are not contiguous in what they read,
           and arrays in 16 bits, whose extremes are of widened elements
    """
    found = list(steps)
    writers = Counter(value for step in steps for value in step.outputs)
    ranged: dict[Value, list[KernelStep[Rowwise]]] = {}
    for step in steps:
        if is_step_of(step, Rowwise) and (value := _whole(step)) is not None:
            ranged.setdefault(value, []).append(step)
    for value, readers in ranged.items():
        if isinstance(value.type.nbytes, Size) or value.type.nbytes < at.target.limits.cache_bytes:
            continue
        before = next((s for s in found if value in s.outputs), None)
        if before is None or writers[value] != 1 or not is_step_of(before, Loops):
            continue
        if changed := in_rows(before, readers, value):
            found = [changed.get(s, s) for s in found]
    return found


def _whole(step: KernelStep[Rowwise]) -> Value | None:
    """The array whose extremes ``step`` finds, if that is all that it reads of it, and the rest is done with them."""
    kernel, body = step.kernel, step.kernel.body
    read = {s.value for s in body.statistics}
    (value, *others) = read
    if others or body.rows or len(body.row_stores) != len(kernel.stores) or not isinstance(value, Load):
        return None
    if any(s.op not in ("min", "max") for s in body.statistics):
        return None
    type = kernel.params[value.source]
    every = flatten(body.cols, tuple(axis.extent for axis in body.cols))
    if value.source >= kernel.inputs or not same_form(flatten(value.index, type.shape), every):
        return None
    again = any(
        ld.source == value.source for store in kernel.stores for e in (*store.index, store.value) for ld in loads(e)
    )
    return None if again else step.inputs[value.source]


def in_rows(
    first: KernelStep[Loops], readers: Sequence[KernelStep[Rowwise]], value: Value
) -> dict[Step, Step] | Refusal:
    """``first`` with the extremes of the rows of ``value``, and ``readers`` for these; or why there are no such rows."""
    store = _written(first.kernel, first.kernel.results[first.outputs.index(value)])
    if isinstance(store, Refusal):
        return store
    shape = value.type.shape
    long = next((d for d in reversed(range(len(shape))) if math.prod(shape[d:]) >= SHORT_ROW), 0)
    if math.prod(shape[:long]) < FEW_ROWS:
        return Refusal("it has few rows")
    rows, cols = (tuple(var(f"d{d}", shape[d]) for d in part) for part in (range(long), range(long, len(shape))))
    whole = first.kernel.body.domain
    offsets = unflatten(flatten((*rows, *cols), shape), tuple(axis.extent for axis in whole))
    at: dict[Expr, Expr] = dict(zip(whole, offsets, strict=True))
    stores = [s.mapped(lambda e: simplify(substitute(e, at))) for s in first.kernel.stores]
    for ld in (ld for s in stores for ld in loads(s.value)):
        if coefficient(flatten(ld.index, first.kernel.params[ld.source].shape), cols[-1]) not in (0, 1):
            return Refusal("what it reads is not contiguous")
    names = dict.fromkeys(s.op for step in readers for s in step.kernel.body.statistics)
    partial = {op: BETWEEN(type=TensorType(store.value.dtype, shape[:long])) for op in names}
    element = stores[first.kernel.stores.index(store)].value
    changed: dict[Step, Step] = {first: _with_extremes(first, Rowwise(rows, cols, ()), stores, element, partial)}
    return changed | {step: _of_partial(step, value, partial) for step in readers}


def _written(kernel: Kernel[Loops], target: int) -> Store | Refusal:
    """The store that writes parameter ``target``, if it writes all of it in order."""
    domain = kernel.body.domain
    stores = [s for s in kernel.stores if s.target == target]
    every = flatten(domain, tuple(axis.extent for axis in domain))
    if len(stores) != 1 or not same_form(flatten(stores[0].index, kernel.params[target].shape), every):
        return Refusal("it does not write the array in order")
    if any(reduces(s.value) for s in kernel.stores):
        return Refusal("its elements are sums")
    return stores[0]


def _with_extremes(
    step: KernelStep[Loops], axes: Rowwise, stores: Sequence[Store], element: Expr, partial: dict[str, Value]
) -> KernelStep:
    """``step`` over ``axes``, with the extremes of ``element`` in each row as further results."""
    kernel, count = step.kernel, len(step.kernel.params)
    statistics = tuple(Statistic(hole(f"s{k}", element.dtype), op, element) for k, op in enumerate(partial))
    more = [Store(count + k, axes.rows, one.hole) for k, one in enumerate(statistics)]
    once = frozenset(range(len(stores), len(stores) + len(more)))
    made = Kernel(
        "norm",
        (*kernel.params, *(value.type for value in partial.values())),
        kernel.outputs + len(more),
        replace(axes, statistics=statistics, row_stores=once),
        (*stores, *more),
        f"{kernel.label} | {', '.join(partial)} of rows",
        kernel.constants,
    )
    outputs = (*step.outputs, *partial.values())
    return KernelStep(step.name, canonical(made), step.inputs, outputs, step.nodes, step.why, step.prologue)


def _of_partial(step: KernelStep[Rowwise], value: Value, partial: dict[str, Value]) -> KernelStep:
    """``step`` for the extremes of rows in place of ``value``."""
    kernel, body = step.kernel, step.kernel.body
    needed = dict.fromkeys(partial[s.op] for s in body.statistics)
    inputs = (*(v for v in step.inputs if v is not value), *needed)
    values = (*inputs, *step.outputs)
    old = enumerate((*step.inputs, *step.outputs))
    new = Renumbering({number: values.index(v) for number, v in old if v is not value})
    axes = tuple(var(f"c{d}", extent) for d, extent in enumerate(next(iter(needed)).shape))

    statistics = tuple(
        replace(s, value=load(values.index(partial[s.op]), axes, s.value.dtype)) for s in body.statistics
    )
    made = Kernel(
        kernel.family,
        tuple(v.type for v in values),
        kernel.outputs,
        Rowwise((), axes, statistics, body.row_stores),
        new.stores(kernel.stores),
        kernel.label,
        new.known(kernel.constants),
    )
    return KernelStep(step.name, canonical(made), inputs, step.outputs, step.nodes, step.why, step.prologue)
