"""What a kernel computes: one class for each kind of body. Code for all kinds uses the interface ``Described``."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Literal, Protocol, Self

from gpucomp.expr.core import Expr, Hole, Var
from gpucomp.expr.printer import format_expr
from gpucomp.ir.types import DType
from gpucomp.lazy_dataclass import dataclass


class Count(Protocol):
    """Counts the floating-point operations of expressions at one point. Shared subexpressions count once."""

    def __call__(self, *exprs: Expr) -> float: ...


# How f32 operands are multiplied: ``strict`` in f32; ``tf32`` rounded to 10 bits of fraction; ``3xtf32`` as sums of two
# such numbers, which keeps f32's accuracy.
Math = Literal["strict", "tf32", "3xtf32"]
PER_ROW = " (per row)"  # follows the text of a store that runs once a row


@dataclass(frozen=True, eq=False)
class Store:
    """``params[target][index] = value`` for every point of the domain, or for every row if it is a result per row."""

    target: int
    index: tuple[Expr, ...]
    value: Expr

    def mapped(self, change: Callable[[Expr], Expr]) -> Store:
        """The store with ``change`` applied to its value and its indices."""
        return Store(self.target, tuple(map(change, self.index)), change(self.value))

    def expressions(self) -> list[Expr]:
        return [*self.index, self.value]

    def line(self) -> str:
        return f"  x{self.target}[{', '.join(map(format_expr, self.index))}] = {format_expr(self.value)}"


@dataclass(frozen=True, eq=False)
class Described(ABC):
    """The interface of all bodies.

    Code that prints bodies, renames axes, changes expressions or counts operations uses it, so that it does not depend
    on the kind of body.
    """

    AXES: ClassVar[Mapping[str, str]] = {}  # field that holds axes -> first letter of their canonical names

    def axes(self) -> dict[str, tuple[Var, ...]]:
        """Every axis of the body, by field."""
        return {role: getattr(self, role) for role in self.AXES}

    def with_axes(self, axes: Mapping[str, tuple[Var, ...]]) -> Self:
        """The body with other axes, by field. Its expressions stay as they are."""
        return replace(self, **axes)

    @abstractmethod
    def expressions(self) -> list[Expr]:
        """Every expression of the body, in a fixed order."""

    @abstractmethod
    def mapped(self, change: Callable[[Expr], Expr]) -> Self:
        """The body with ``change`` applied to each of ``expressions``, in order. Axes and holes stay the same."""

    @abstractmethod
    def reduced(self) -> Sequence[tuple[Var, ...]]:
        """The axes of each reduction that a result depends on, in the order in which they are computed."""

    @abstractmethod
    def operations(self, count: Count) -> float:
        """Floating-point operations of the body. The kernel's stores are not counted."""

    @abstractmethod
    def text_lines(self, stores: Sequence[str]) -> list[str]:
        """The body as text. ``stores`` has one line for each store of the kernel; they are inserted where they run."""

    def _axes_line(self) -> str:
        return "  " + " | ".join(f"{role} {_axes(axes)}" for role, axes in self.axes().items())


@dataclass(frozen=True, eq=False)
class Loops(Described):
    """Any algorithm: each point of ``domain`` is computed independently. Values may contain ``Reduce`` nodes."""

    AXES: ClassVar = {"domain": "i"}

    domain: tuple[Var, ...]

    def expressions(self) -> list[Expr]:
        return []

    def mapped(self, change: Callable[[Expr], Expr]) -> Self:
        return self

    def reduced(self) -> Sequence[tuple[Var, ...]]:
        return ()

    def operations(self, count: Count) -> float:
        return 0.0

    def text_lines(self, stores: Sequence[str]) -> list[str]:
        return [f"  for {_axes(self.domain)}", *stores]


@dataclass(frozen=True, eq=False)
class Statistic:
    """``hole[rows] = op over cols of value``. ``value`` may use the holes of earlier statistics."""

    hole: Hole
    op: str
    value: Expr

    def mapped(self, change: Callable[[Expr], Expr]) -> Statistic:
        return replace(self, value=change(self.value))

    def line(self) -> str:
        return f"  {self.hole.name}: {self.hole.dtype} = {self.op} {format_expr(self.value)}"


def _operations_of(statistics: Sequence[Statistic], count: Count) -> float:
    """Operations of one element: its value, and one to combine it with the rest of the row."""
    return sum(count(s.value) + 1 for s in statistics)


@dataclass(frozen=True, eq=False)
class RowStatistics:
    """Statistics of each row of a contraction's stored results, in order. ``stores`` then run once per row.

    Rows are the contraction's axes ``batch`` and ``m``, columns its ``n``. Values may load elements of the same row
    from the kernel's own outputs, as they are in memory.
    """

    statistics: tuple[Statistic, ...]
    stores: tuple[Store, ...]

    def mapped(self, change: Callable[[Expr], Expr]) -> RowStatistics:
        """The statistics and stores with ``change`` applied to each of ``expressions``."""
        return RowStatistics(
            tuple(s.mapped(change) for s in self.statistics), tuple(s.mapped(change) for s in self.stores)
        )

    def expressions(self) -> list[Expr]:
        """Every expression, including the indices of stores."""
        return [*(s.value for s in self.statistics), *(e for s in self.stores for e in s.expressions())]

    def lines(self) -> list[str]:
        return ["  then of each row", *(s.line() for s in self.statistics), *(s.line() + PER_ROW for s in self.stores)]


@dataclass(frozen=True, eq=False)
class Contraction(Described):
    """``acc[batch, m, n] = sum over k of a[batch, m, k] * b[batch, k, n]``. Stores use the sum as the hole ``acc``.

    ``a`` and ``b`` are element expressions: loads with index maps, halo guards and elementwise prologues. The
    accumulator's dtype is ``acc.dtype``; ``a`` and ``b`` are cast to it before they are multiplied.
    """

    AXES: ClassVar = {"batch": "b", "m": "m", "n": "n", "k": "k"}

    batch: tuple[Var, ...]
    m: tuple[Var, ...]
    n: tuple[Var, ...]
    k: tuple[Var, ...]
    a: Expr
    b: Expr
    acc: Hole
    math: Math = "strict"
    tail: RowStatistics | None = None

    @property
    def domain(self) -> tuple[Var, ...]:
        return self.batch + self.m + self.n

    @property
    def factor(self) -> DType:
        """The type of both operands' elements when they are multiplied."""
        return self.acc.dtype

    def expressions(self) -> list[Expr]:
        return [self.a, self.b, *(self.tail.expressions() if self.tail else ())]

    def mapped(self, change: Callable[[Expr], Expr]) -> Self:
        a, b = change(self.a), change(self.b)
        return replace(self, a=a, b=b, tail=self.tail.mapped(change) if self.tail else None)

    def reduced(self) -> Sequence[tuple[Var, ...]]:
        return (self.k, self.n) if self.tail else (self.k,)

    def operations(self, count: Count) -> float:
        followed = _operations_of(self.tail.statistics, count) if self.tail else 0
        return _points(self.domain) * (followed + 2 * _points(self.k))

    def text_lines(self, stores: Sequence[str]) -> list[str]:
        operands = [f"  a = {format_expr(self.a)}", f"  b = {format_expr(self.b)}", _accumulator(self.acc, self.math)]
        return [self._axes_line(), *operands, *stores, *(self.tail.lines() if self.tail else ())]


@dataclass(frozen=True, eq=False)
class Separable(Contraction):
    """A contraction whose ``a`` is a depthwise convolution over ``(*m, *k)``: ``a`` contains the sum over the window.

    The rest of ``a`` is the epilogue of the depthwise convolution, in the type that its result would be stored in.
    """

    def operations(self, count: Count) -> float:
        return super().operations(count) + _points(self.m) * _points(self.k) * count(self.a)


@dataclass(frozen=True, eq=False)
class Rowwise(Described):
    """Statistics of each row, in order, followed by stores.

    Stores run once per element (softmax, norms). Those whose positions are in ``row_stores`` run once per row
    (reductions).
    """

    AXES: ClassVar = {"rows": "i", "cols": "j"}

    rows: tuple[Var, ...]
    cols: tuple[Var, ...]
    statistics: tuple[Statistic, ...]
    row_stores: frozenset[int] = frozenset()

    @property
    def domain(self) -> tuple[Var, ...]:
        return self.rows + self.cols

    def expressions(self) -> list[Expr]:
        return [s.value for s in self.statistics]

    def mapped(self, change: Callable[[Expr], Expr]) -> Self:
        return replace(self, statistics=tuple(s.mapped(change) for s in self.statistics))

    def reduced(self) -> Sequence[tuple[Var, ...]]:
        return (self.cols,)

    def operations(self, count: Count) -> float:
        return _points(self.domain) * _operations_of(self.statistics, count)

    def text_lines(self, stores: Sequence[str]) -> list[str]:
        once = [line + PER_ROW if number in self.row_stores else line for number, line in enumerate(stores)]
        return [self._axes_line(), *(s.line() for s in self.statistics), *once]


@dataclass(frozen=True, eq=False)
class Window(Described):
    """Pooling: ``acc[domain] = op over window of value``. ``window`` is small enough to unroll."""

    AXES: ClassVar = {"domain": "i", "window": "r"}

    domain: tuple[Var, ...]
    window: tuple[Var, ...]
    op: str
    value: Expr
    acc: Hole

    def expressions(self) -> list[Expr]:
        return [self.value]

    def mapped(self, change: Callable[[Expr], Expr]) -> Self:
        return replace(self, value=change(self.value))

    def reduced(self) -> Sequence[tuple[Var, ...]]:
        return (self.window,)

    def operations(self, count: Count) -> float:
        return _points(self.domain) * _points(self.window) * (count(self.value) + 1)

    def text_lines(self, stores: Sequence[str]) -> list[str]:
        accumulated = f"  {self.acc.name}: {self.acc.dtype} = {self.op} {format_expr(self.value)}"
        return [f"  for {_axes(self.domain)} | window {_axes(self.window)}", accumulated, *stores]


@dataclass(frozen=True, eq=False)
class Attention(Described):
    """``acc[batch, rows, values] = sum over cols of w * v / sum over cols of w``. Stores use it as the hole ``acc``.

    ``w = exp(score - largest score of the row)``, ``dot = sum over depth of q * k``, and ``score`` is an expression
    over the hole ``dot``: scale, mask, causality. ``q[batch, rows, depth]``, ``k[batch, cols, depth]`` and
    ``v[batch, cols, values]`` are element expressions in ``acc.dtype``.
    """

    AXES: ClassVar = {"batch": "b", "rows": "i", "cols": "j", "depth": "c", "values": "d"}

    batch: tuple[Var, ...]
    rows: tuple[Var, ...]
    cols: tuple[Var, ...]
    depth: tuple[Var, ...]
    values: tuple[Var, ...]
    q: Expr
    k: Expr
    v: Expr
    dot: Hole
    score: Expr
    acc: Hole
    math: Math = "strict"

    @property
    def domain(self) -> tuple[Var, ...]:
        return self.batch + self.rows + self.values

    def expressions(self) -> list[Expr]:
        return [self.q, self.k, self.v, self.score]

    def mapped(self, change: Callable[[Expr], Expr]) -> Self:
        return replace(self, q=change(self.q), k=change(self.k), v=change(self.v), score=change(self.score))

    def reduced(self) -> Sequence[tuple[Var, ...]]:
        return self.cols, self.depth

    def operations(self, count: Count) -> float:
        pairs = _points(self.batch + self.rows + self.cols)
        # per pair: two products, the score, a difference, exp, the total
        return pairs * (2 * _points(self.depth) + 2 * _points(self.values) + count(self.score) + 3)

    def text_lines(self, stores: Sequence[str]) -> list[str]:
        values = {"q": self.q, "k": self.k, "v": self.v, "score": self.score}
        defined = [f"  {name} = {format_expr(value)}" for name, value in values.items()]
        return [self._axes_line(), *defined, _accumulator(self.acc, self.math), *stores]


@dataclass(frozen=True, eq=False)
class Scan(Described):
    """``acc[rows, axis] = op over all j <= axis of value[rows, j]``. Stores use it as the hole ``acc``.

    ``exclusive`` leaves out ``j = axis``. ``reverse`` reduces over ``j >= axis`` instead. ``value`` has the dtype
    ``acc.dtype``. ``op`` is ``sum``, ``prod``, ``max`` or ``min``; over no elements it gives its identity.
    """

    AXES: ClassVar = {"rows": "i", "axis": "j"}

    rows: tuple[Var, ...]
    axis: Var
    op: str
    value: Expr
    acc: Hole
    exclusive: bool = False
    reverse: bool = False

    @property
    def domain(self) -> tuple[Var, ...]:
        return (*self.rows, self.axis)

    def axes(self) -> dict[str, tuple[Var, ...]]:
        return {"rows": self.rows, "axis": (self.axis,)}

    def with_axes(self, axes: Mapping[str, tuple[Var, ...]]) -> Self:
        (axis,) = axes["axis"]
        return replace(self, rows=axes["rows"], axis=axis)

    def expressions(self) -> list[Expr]:
        return [self.value]

    def mapped(self, change: Callable[[Expr], Expr]) -> Self:
        return replace(self, value=change(self.value))

    def reduced(self) -> Sequence[tuple[Var, ...]]:
        return ((self.axis,),)

    def operations(self, count: Count) -> float:
        return _points(self.domain) * (count(self.value) + 1)

    def text_lines(self, stores: Sequence[str]) -> list[str]:
        kind = f"{'exclusive ' if self.exclusive else ''}{'reverse ' if self.reverse else ''}{self.op}"
        running = f"  {self.acc.name}: {self.acc.dtype} = running {kind} {format_expr(self.value)}"
        return [self._axes_line(), running, *stores]


@dataclass(frozen=True, eq=False)
class Scatter(Described):
    """Updates change elements one after another, at data-dependent indices. Lines are independent of each other.

    ``element[lines, places]`` starts as ``initial``. The points of ``updates`` then run in row-major order. If
    ``where`` holds and every ``found[d]`` is inside the extent of ``places[d]``, ``element[lines, found] = after``;
    ``after`` uses the element's previous value as the hole ``acc``. If ``guard`` does not hold, the line has no updates
    and nothing may be read for them. The value of every store is the hole ``acc``, the element's final value.
    """

    AXES: ClassVar = {"lines": "i", "places": "p", "updates": "k"}

    lines: tuple[Var, ...]
    places: tuple[Var, ...]
    updates: tuple[Var, ...]
    found: tuple[Expr, ...]
    guard: Expr
    where: Expr
    initial: Expr
    after: Expr
    acc: Hole

    @property
    def domain(self) -> tuple[Var, ...]:
        return self.lines + self.places

    def expressions(self) -> list[Expr]:
        return [*self.found, self.guard, self.where, self.initial, self.after]

    def mapped(self, change: Callable[[Expr], Expr]) -> Self:
        found = tuple(map(change, self.found))
        guard, where, initial, after = map(change, (self.guard, self.where, self.initial, self.after))
        return replace(self, found=found, guard=guard, where=where, initial=initial, after=after)

    def reduced(self) -> Sequence[tuple[Var, ...]]:
        return (self.updates,)

    def operations(self, count: Count) -> float:
        return _points(self.domain) * count(self.initial) + _points(self.lines + self.updates) * count(self.after)

    def text_lines(self, stores: Sequence[str]) -> list[str]:
        at = ", ".join(map(format_expr, self.found))
        return [
            self._axes_line(),
            f"  {self.acc.name}: {self.acc.dtype} = {format_expr(self.initial)}",
            f"  {self.acc.name}[{at}] = {format_expr(self.after)}",
            f"  where {format_expr(self.guard)}, {format_expr(self.where)}",
            *stores,
        ]


@dataclass(frozen=True, eq=False)
class TileTransform(Described):
    """A linear map of square blocks, the same along rows and columns: the transforms of Winograd's algorithms.

    ``acc[blocks, i, j] = sum over r, s of matrix[i][r] * matrix[j][s] * value[blocks, r, s]``, where ``(i, j)`` are the
    axes ``outputs`` and ``(r, s)`` the axes ``inputs``. Stores use the sum as the hole ``acc``, and run only if
    ``where``, a condition over the domain, holds. ``value`` has the dtype ``acc.dtype``; it is a guarded load, with
    zero where a guard fails.
    """

    AXES: ClassVar = {"blocks": "i", "outputs": "o", "inputs": "r"}

    blocks: tuple[Var, ...]
    outputs: tuple[Var, Var]
    inputs: tuple[Var, Var]
    matrix: tuple[tuple[float, ...], ...]
    value: Expr
    where: Expr
    acc: Hole

    @property
    def domain(self) -> tuple[Var, ...]:
        return self.blocks + self.outputs

    def expressions(self) -> list[Expr]:
        return [self.value, self.where]

    def mapped(self, change: Callable[[Expr], Expr]) -> Self:
        return replace(self, value=change(self.value), where=change(self.where))

    def reduced(self) -> Sequence[tuple[Var, ...]]:
        return (self.inputs,)

    def operations(self, count: Count) -> float:
        # the matrix is applied to each row of the block, then to each column of the result
        maps = len(self.matrix[0]) + len(self.matrix)
        return _points(self.blocks) * maps * 2 * sum(x != 0 for row in self.matrix for x in row)

    def text_lines(self, stores: Sequence[str]) -> list[str]:
        return [
            self._axes_line(),
            f"  matrix {'; '.join(' '.join(map(str, row)) for row in self.matrix)}",
            f"  {self.acc.name}: {self.acc.dtype} = matrix (x) matrix {format_expr(self.value)}",
            f"  where {format_expr(self.where)}",
            *stores,
        ]


def _points(axes: Sequence[Var]) -> int:
    return math.prod(a.extent for a in axes)


def _axes(axes: Sequence[Var]) -> str:
    return ", ".join(f"{a.name}<{a.extent}" for a in axes)


def _accumulator(acc: Hole, math: Math) -> str:
    return f"  {acc.name}: {acc.dtype}" + (f" {math}" if math != "strict" else "")
