"""Small builders that the translators share: constant operands, axes, and movements that are omitted if they do nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain
from typing import Any

import numpy as np

from gpucomp import config, ops
from gpucomp.errors import UnsupportedError, quote
from gpucomp.frontend.onnx.tensors import MADE_LIMIT
from gpucomp.ir import Input, Node, Sizes, Value, constant, constant_value, sizes, topological
from gpucomp.ir import types as t
from gpucomp.ir.size import Size, same_shape
from gpucomp.ir.types import DType

# --- constants

_known: ContextVar[Callable[[Value], np.ndarray] | None] = ContextVar("known", default=None)


@contextmanager
def answering(answer: Callable[[Value], np.ndarray]) -> Iterator[None]:
    """In this block, ``static`` calls ``answer`` for values that are not constants: while a model runs, all are known."""
    token = _known.set(answer)
    try:
        yield
    finally:
        _known.reset(token)


def is_running() -> bool:
    """Whether the model is being translated while it runs, so that its values are known: see ``answering``."""
    return _known.get() is not None


MOST_SOURCES = 64  # most inputs that a message and an error list


class _Traced:
    """Cached results of ``sources`` and ``extremes``."""

    def __init__(self) -> None:
        self.done: set[Node] = set()
        self.inputs: dict[Node, tuple[str, ...]] = {}
        # arrays are kept alive so that no other array gets their id
        self.extremes: dict[tuple[int, int], tuple[np.ndarray, np.ndarray, np.ndarray]] = {}


_traced: ContextVar[_Traced | None] = ContextVar("traced", default=None)


@contextmanager
def tracing() -> Iterator[None]:
    """Cache the results of ``sources`` and ``extremes`` in this block: they are slow, and a model can need them often."""
    token = _traced.set(_Traced())
    try:
        yield
    finally:
        _traced.reset(token)


def sources(value: Value) -> tuple[str, ...]:
    """The inputs that ``value`` depends on, up to ``MOST_SOURCES`` of them."""
    known = _traced.get() or _Traced()
    for node in topological([value.node], known.done):
        operand_inputs = list(dict.fromkeys(known.inputs[v.node] for v in node.inputs))
        if node.op is Input:
            known.inputs[node] = (node.attrs["label"],)
        elif len(operand_inputs) == 1:
            known.inputs[node] = operand_inputs[0]  # the same object, so that a long chain takes no memory
        else:
            known.inputs[node] = tuple(dict.fromkeys(chain.from_iterable(operand_inputs)))[:MOST_SOURCES]
    return known.inputs[value.node]


def extremes(array: np.ndarray, columns: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest number in each of ``columns`` columns of a constant, which must not be empty."""
    known = _traced.get() or _Traced()
    key = id(array), columns
    if key not in known.extremes:
        rows = array.reshape(-1, columns)
        known.extremes[key] = array, rows.min(axis=0), rows.max(axis=0)
    return known.extremes[key][1:]


_states: ContextVar[Collection[str]] = ContextVar("states", default=())


@contextmanager
def keeping(states: Collection[str]) -> Iterator[None]:
    """In this block, the inputs named ``states`` are states: a run may change their memory."""
    token = _states.set(states)
    try:
        yield
    finally:
        _states.reset(token)


def is_state(value: Value) -> bool:
    return value.op is Input and value.attrs["label"] in _states.get()


def static(value: Value, what: str) -> np.ndarray:
    """The array of a constant, or an array of objects with the sizes that runs decide.

    For other values, raises ``UnsupportedError`` that names the inputs it depends on.
    The code is GPC4005: the node can be translated again while the model runs, when the value is known.
    """
    array = value.attrs["values"] if value.op is Sizes else constant_value(value)
    answer = _known.get()
    if array is None and answer is not None:
        return answer(value)
    if array is None:
        inputs = sources(value)
        source = ", ".join(map(quote, inputs[:4])) or "the model"
        raise UnsupportedError(
            f"its {what} must be known at compile time, but depends on the value of {source}",
            inputs=inputs,
            code="GPC4005",
        )
    return array


def ints(value: Value, what: str) -> tuple[Any, ...]:
    """A constant 1-D (or 0-D) integer operand as a tuple."""
    array = static(value, what)
    if array.ndim > 1 or not value.type.dtype.is_integer:
        raise ValueError(f"{what}: a list of integers expected, {value.type} given")
    return tuple(v if isinstance(v, Size) else int(v) for v in array.reshape(-1))


def scalar(value: Value, what: str) -> Any:
    """A constant operand of one element as a Python number, or the ``Size`` that it is."""
    array = static(value, what)
    if array.size != 1:
        raise ValueError(f"{what}: one element expected, {value.type} given")
    if value.op is Sizes:
        return array.reshape(()).item()
    return array.reshape(()).astype(np.float64).item() if value.type.dtype.is_float else array.reshape(()).item()


def like(x: Value, number: float | int | bool) -> Value:
    """A scalar constant of ``x``'s element type."""
    return scalar_of(x.type.dtype, number)


def scalar_of(dtype: DType, number: float | int | bool) -> Value:
    if isinstance(number, Size):
        return sizes(np.array(number, object), dtype)
    with np.errstate(all="ignore"):
        return constant(np.asarray(number).astype(dtype.numpy))


def int64(numbers: Iterable[int]) -> Value:
    return sizes(np.array([*numbers, None], object)[:-1], t.I64)


def checked_size(count: int, itemsize: int) -> None:
    """Raise ``UnsupportedError`` for a generated constant that would be too large, before it is allocated."""
    if count * itemsize > min(MADE_LIMIT, config.current().fold_limit):
        raise UnsupportedError(f"it makes a constant of {count * itemsize} bytes", code="GPC4008")


# --- axes


def axis_of(axis: int, rank: int) -> int:
    """``axis`` counted from the front. Raises ``ValueError`` outside [-rank, rank)."""
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is outside -{rank}..{rank - 1}")
    return axis % rank


def axes_of(axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """Distinct axes counted from the front, in the order given."""
    result = tuple(axis_of(a, rank) for a in axes)
    if len(set(result)) != len(result):
        raise ValueError(f"axes {list(result)} has a repeated axis")
    return result


# --- movements that are left out when they change nothing


def reshape(x: Value, shape: Sequence[int]) -> Value:
    shape = tuple(d if isinstance(d, Size) else int(d) for d in shape)
    return x if same_shape(shape, x.shape) else ops.Reshape(x, shape=shape)


def transpose(x: Value, perm: Sequence[int]) -> Value:
    perm = tuple(perm)
    return x if perm == tuple(range(len(x.shape))) else ops.Transpose(x, perm=perm)


def move_axis(x: Value, source: int, target: int) -> Value:
    """Move the axis ``source`` to position ``target``. Both are non-negative."""
    order = [a for a in range(len(x.shape)) if a != source]
    order.insert(target, source)
    return transpose(x, order)


def expand(x: Value, shape: Sequence[int]) -> Value:
    shape = tuple(shape)
    return x if same_shape(shape, x.shape) else ops.Expand(x, shape=shape)


def cast(x: Value, to: DType) -> Value:
    return x if x.type.dtype is to else ops.Cast(x, to=to)


def squeeze(x: Value, axes: Iterable[int]) -> Value:
    gone = set(axes)
    return reshape(x, [d for a, d in enumerate(x.shape) if a not in gone])


def unsqueeze(x: Value, axes: Iterable[int]) -> Value:
    """Insert axes of extent 1 at the positions ``axes`` of the result."""
    shape = list(x.shape)
    for a in sorted(axes):
        shape.insert(a, 1)
    return reshape(x, shape)


def part(x: Value, axis: int, start: int, size: int) -> Value:
    """``size`` elements along ``axis``, from ``start`` on."""
    return strided(x, {axis: (start, 1, size)})


def strided(x: Value, ranges: dict[int, tuple[int, int, int]]) -> Value:
    """The elements given by (start, step, count) per axis. Other axes stay whole."""
    starts, steps, sizes = [0] * len(x.shape), [1] * len(x.shape), list(x.shape)
    for axis, (start, step, size) in ranges.items():
        starts[axis], steps[axis], sizes[axis] = start, step, size
    if same_shape(sizes, x.shape) and all(s == 1 for s in steps):
        return x
    return ops.Slice(x, starts=tuple(starts), steps=tuple(steps), sizes=tuple(sizes))


def concat(parts: Sequence[Value], axis: int) -> Value:
    return parts[0] if len(parts) == 1 else ops.Concat(*parts, axis=axis)


def pad(x: Value, pads: Sequence[int], value: float | int | bool | str = 0, mode: str = "constant") -> Value:
    return ops.Pad(x, pads=tuple(pads), mode=mode, value=value) if any(pads) else x


def channels(x: Value, rank: int) -> Value:
    """A [C] vector as [C, 1, 1 ...], so that it broadcasts against [N, C, ...] of ``rank``."""
    return reshape(x, (*x.shape, *[1] * (rank - 2)))


# --- arithmetic


def accumulation(dtype: DType) -> DType:
    """The type that means and norms are computed in."""
    return t.F32 if dtype in (t.F16, t.BF16) else dtype


def computable(x: Value) -> Value:
    """``x``, cast to f32 if its type is for storage only. f32 can represent all numbers of such types."""
    return cast(x, t.F32) if x.type.dtype.storage_only and x.type.dtype is not t.STRING else x


def mean(x: Value, axes: Sequence[int], *, keepdims: bool = True) -> Value:
    return ops.ReduceMean(x, axes=tuple(axes), keepdims=keepdims)


def iota(n: int, dtype: DType = t.I64) -> Value:
    """0, 1 ... n - 1"""
    if isinstance(n, Size):
        return ops.Iota(size=n, dtype=dtype) if dtype.is_integer else cast(ops.Iota(size=n, dtype=t.I64), dtype)
    checked_size(n, 8)
    return constant(np.arange(n, dtype=np.int64).astype(dtype.numpy))
