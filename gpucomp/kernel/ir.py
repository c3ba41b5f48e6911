"""A kernel: one launch, described by what it computes. How it computes it (schedule, source) is decided elsewhere.

A kernel knows nothing of the graph: its loads name parameters by position, its variables have canonical names, so
two layers of one shape are one kernel (``digest``) and are compiled once. A ``Step`` binds it to graph values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from gpucomp.expr.core import Expr, Hole, Var
from gpucomp.expr.printer import format_expr
from gpucomp.ir.types import TensorType


@dataclass(frozen=True, eq=False)
class Store:
    """``params[target][index] = value`` for every point of the domain (of the rows alone, for a row result)."""

    target: int
    index: tuple[Expr, ...]
    value: Expr


@dataclass(frozen=True, eq=False)
class Loops:
    """Any algorithm: every point of ``domain`` on its own; values may hold ``Reduce`` nodes."""

    domain: tuple[Var, ...]


@dataclass(frozen=True, eq=False)
class Statistic:
    """``hole[rows] = op over cols of value``; ``value`` may use the holes of the statistics before it."""

    hole: Hole
    op: str
    value: Expr


@dataclass(frozen=True, eq=False)
class Tail:
    """Statistics of each row of what a contraction's stores have written, in order, then stores once a row.

    Rows are the contraction's axes ``batch`` and ``m``, columns its ``n``. Values may load the kernel's own outputs: of
    those, elements of the row, as they stand in memory.
    """

    statistics: tuple[Statistic, ...]
    stores: tuple[Store, ...]

    def mapped(self, change: Callable[[Expr], Expr]) -> Tail:
        """With each value changed; where results go stays."""
        return Tail(
            tuple(replace(s, value=change(s.value)) for s in self.statistics),
            tuple(replace(s, value=change(s.value)) for s in self.stores),
        )

    def expressions(self) -> list[Expr]:
        """Every expression, stores' indices included."""
        return [*(s.value for s in self.statistics), *(e for s in self.stores for e in (*s.index, s.value))]


@dataclass(frozen=True, eq=False)
class Contraction:
    """``acc[batch, m, n] = sum over k of a[batch, m, k] * b[batch, k, n]``, seen by stores as the hole ``acc``.

    ``a`` and ``b`` are element expressions: loads with index maps, halo guards and elementwise prologues. The
    accumulator's dtype is ``acc.dtype``; ``a`` and ``b`` are cast to it before they are multiplied.

    ``math`` is what may be done to f32 operands: ``strict`` nothing, ``tf32`` rounds them to 10 bits of fraction,
    ``3xtf32`` multiplies them as sums of two such numbers, which keeps f32's accuracy.
    """

    batch: tuple[Var, ...]
    m: tuple[Var, ...]
    n: tuple[Var, ...]
    k: tuple[Var, ...]
    a: Expr
    b: Expr
    acc: Hole
    math: str = "strict"
    tail: Tail | None = None

    @property
    def domain(self) -> tuple[Var, ...]:
        return self.batch + self.m + self.n


@dataclass(frozen=True, eq=False)
class Separable(Contraction):
    """A contraction whose ``a`` is a depthwise convolution over ``(*m, *k)``: it holds the sum over the window.

    What ``a`` computes is the epilogue of the depthwise convolution, in the type in which it would have been stored.
    """


@dataclass(frozen=True, eq=False)
class Rowwise:
    """Statistics of each row, in order, then stores: over rows and columns (softmax, norms) or rows alone (reductions).

    Stores listed in ``row_stores`` run once a row; the others once an element.
    """

    rows: tuple[Var, ...]
    cols: tuple[Var, ...]
    statistics: tuple[Statistic, ...]
    row_stores: frozenset[int] = frozenset()

    @property
    def domain(self) -> tuple[Var, ...]:
        return self.rows + self.cols


@dataclass(frozen=True, eq=False)
class Window:
    """``acc[domain] = op over window of value``: pooling. ``window`` is small enough to unroll."""

    domain: tuple[Var, ...]
    window: tuple[Var, ...]
    op: str
    value: Expr
    acc: Hole


@dataclass(frozen=True, eq=False)
class Attention:
    """``acc[batch, rows, values] = sum over cols of w * v / sum over cols of w``, seen by stores as the hole ``acc``.

    ``w = exp(score - largest score of the row)``, ``dot = sum over depth of q * k``, and ``score`` is an expression
    over the hole ``dot``: scale, mask, causality. ``q[batch, rows, depth]``, ``k[batch, cols, depth]`` and
    ``v[batch, cols, values]`` are element expressions in ``acc.dtype``; ``math`` is as in ``Contraction``.
    """

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
    math: str = "strict"

    @property
    def domain(self) -> tuple[Var, ...]:
        return self.batch + self.rows + self.values


@dataclass(frozen=True, eq=False)
class Scan:
    """``acc[rows, axis] = op over all j <= axis of value[rows, j]``, seen by stores as the hole ``acc``.

    ``exclusive`` leaves ``j = axis`` out, ``reverse`` runs from the end: over ``j >= axis``. ``value`` is of
    ``acc.dtype``. ``op`` is ``sum``, ``prod``, ``max`` or ``min``; of nothing it gives its identity.
    """

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


@dataclass(frozen=True, eq=False)
class Scatter:
    """Elements that updates change one after another, at places that are data. Lines are independent of each other.

    ``element[lines, places]`` starts as ``initial``. Then, for each point of ``updates`` in row-major order at which
    ``where`` holds and every ``found[d]`` lies within ``places[d]``, ``element[lines, found] = after``, which sees what
    was there as the hole ``acc``. Lines where ``guard`` does not hold have no updates, and nothing may be read for any.
    Stores see what is there at last as ``acc`` and store just that, anywhere.
    """

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


@dataclass(frozen=True, eq=False)
class Link:
    """A kernel of a chain. ``params`` are the parameters of the chain that its own are; ``HANDED`` as an input is what the
    link before it leaves, and as an output what the next one gets. ``schedule`` is how the link is computed, where its
    weights have been laid out for that already.
    """

    kernel: Kernel
    params: tuple[int, ...]
    schedule: Mapping[str, int]


HANDED = -1


@dataclass(frozen=True, eq=False)
class Chain:
    """Kernels one after the other, each of which reads what the one before it leaves, and nobody else does.

    What they hand on are images ``[image, row, column, channel]`` that no memory ever holds whole: of each only the rows
    are kept that the next link's present rows are made of.
    """

    links: tuple[Link, ...]

    @property
    def domain(self) -> tuple[Var, ...]:
        """What the last link stores over."""
        return self.links[-1].kernel.body.domain


@dataclass(frozen=True, eq=False)
class Blocks:
    """A linear map of square blocks, the same along rows and columns: the transforms of Winograd's algorithms.

    ``acc[blocks, i, j] = sum over r, s of matrix[i][r] * matrix[j][s] * value[blocks, r, s]``, seen by stores as the
    hole ``acc``, with ``(i, j)`` the axes ``outputs`` and ``(r, s)`` the axes ``inputs``. Stores write only where
    ``where``, a condition over the domain, holds. ``value`` is of ``acc.dtype``, and is a load or zero under guards.
    """

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


Body = Loops | Contraction | Rowwise | Window | Attention | Scan | Scatter | Chain | Blocks


def mapped(body: Body, change: Callable[[Expr], Expr]) -> Body:
    """``body`` with each of its element expressions changed; axes and holes stay."""
    match body:
        case Contraction():
            tail = body.tail.mapped(change) if body.tail else None
            return replace(body, a=change(body.a), b=change(body.b), tail=tail)
        case Attention():
            return replace(body, q=change(body.q), k=change(body.k), v=change(body.v), score=change(body.score))
        case Rowwise():
            return replace(body, statistics=tuple(replace(s, value=change(s.value)) for s in body.statistics))
        case Window() | Scan():
            return replace(body, value=change(body.value))
        case Scatter():
            found = tuple(map(change, body.found))
            guard, where = change(body.guard), change(body.where)
            initial, after = change(body.initial), change(body.after)
            return replace(body, found=found, guard=guard, where=where, initial=initial, after=after)
        case Chain():
            raise TypeError("a chain's links have params of their own: change each link's kernel")
        case Blocks():
            return replace(body, value=change(body.value), where=change(body.where))
        case Loops():
            return body


@dataclass(frozen=True, eq=False)
class Kernel:
    """``params`` are the inputs, then ``outputs`` results; ``Load.source`` and ``Store.target`` index them.

    ``constants`` are the inputs known when the model is compiled: an engine may ask for them in an order of its own.
    """

    family: str
    params: tuple[TensorType, ...]
    outputs: int
    body: Body
    stores: tuple[Store, ...]
    label: str = ""  # for people: "conv2d 3x3 64->128 28x28"
    constants: frozenset[int] = frozenset()

    @property
    def inputs(self) -> int:
        return len(self.params) - self.outputs

    @cached_property
    def text(self) -> str:
        return format_kernel(self)

    @cached_property
    def digest(self) -> str:
        """Names what the kernel computes: equal for equal kernels, in every process."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def expressions(self) -> list[Expr]:
        """Every expression of the kernel, stores' indices included. A chain has none of its own: its links have."""
        parts: list[Expr] = []
        match self.body:
            case Contraction(a=a, b=b, tail=tail):
                parts += [a, b, *(tail.expressions() if tail else ())]
            case Rowwise(statistics=statistics):
                parts += [s.value for s in statistics]
            case Window(value=value) | Scan(value=value):
                parts.append(value)
            case Attention(q=q, k=k, v=v, score=score):
                parts += [q, k, v, score]
            case Scatter() as c:
                parts += [*c.found, c.guard, c.where, c.initial, c.after]
            case Blocks(value=value, where=where):
                parts += [value, where]
        for store in self.stores:
            parts += [*store.index, store.value]
        return parts


def _axes(axes: Sequence[Var]) -> str:
    return ", ".join(f"{a.name}<{a.extent}" for a in axes)


def format_kernel(kernel: Kernel) -> str:
    """A kernel as text: its identity, and what ``inspect --kernels`` shows."""
    lines = [f"kernel {kernel.family}({', '.join(map(str, kernel.params))}) -> {kernel.outputs}"]
    if kernel.constants:
        lines.append(f"  constant {', '.join(f'x{k}' for k in sorted(kernel.constants))}")
    match kernel.body:
        case Loops(domain=domain):
            lines.append(f"  for {_axes(domain)}")
        case Contraction() as c:
            lines.append(f"  batch {_axes(c.batch)} | m {_axes(c.m)} | n {_axes(c.n)} | k {_axes(c.k)}")
            lines.append(f"  a = {format_expr(c.a)}")
            lines.append(f"  b = {format_expr(c.b)}")
            lines.append(f"  {c.acc.name}: {c.acc.dtype}" + (f" {c.math}" if c.math != "strict" else ""))
        case Rowwise() as r:
            lines.append(f"  rows {_axes(r.rows)} | cols {_axes(r.cols)}")
            lines += [f"  {s.hole.name}: {s.hole.dtype} = {s.op} {format_expr(s.value)}" for s in r.statistics]
        case Window() as w:
            lines.append(f"  for {_axes(w.domain)} | window {_axes(w.window)}")
            lines.append(f"  {w.acc.name}: {w.acc.dtype} = {w.op} {format_expr(w.value)}")
        case Scatter() as c:
            lines.append(f"  lines {_axes(c.lines)} | places {_axes(c.places)} | updates {_axes(c.updates)}")
            at = ", ".join(map(format_expr, c.found))
            lines.append(f"  {c.acc.name}: {c.acc.dtype} = {format_expr(c.initial)}")
            lines.append(f"  {c.acc.name}[{at}] = {format_expr(c.after)}")
            lines.append(f"  where {format_expr(c.guard)}, {format_expr(c.where)}")
        case Scan() as s:
            kind = f"{'exclusive ' if s.exclusive else ''}{'reverse ' if s.reverse else ''}{s.op}"
            lines.append(f"  rows {_axes(s.rows)} | axis {_axes((s.axis,))}")
            lines.append(f"  {s.acc.name}: {s.acc.dtype} = running {kind} {format_expr(s.value)}")
        case Blocks() as x:
            lines.append(f"  blocks {_axes(x.blocks)} | outputs {_axes(x.outputs)} | inputs {_axes(x.inputs)}")
            lines.append(f"  matrix {'; '.join(' '.join(map(str, row)) for row in x.matrix)}")
            lines.append(f"  {x.acc.name}: {x.acc.dtype} = matrix (x) matrix {format_expr(x.value)}")
            lines.append(f"  where {format_expr(x.where)}")
        case Attention() as t:
            axes = {"batch": t.batch, "rows": t.rows, "cols": t.cols, "depth": t.depth, "values": t.values}
            lines.append("  " + " | ".join(f"{name} {_axes(found)}" for name, found in axes.items()))
            lines += [f"  {name} = {format_expr(e)}" for name, e in (("q", t.q), ("k", t.k), ("v", t.v))]
            lines.append(f"  score = {format_expr(t.score)}")
            lines.append(f"  {t.acc.name}: {t.acc.dtype}" + (f" {t.math}" if t.math != "strict" else ""))
        case Chain(links=links):
            for link in links:
                names = ", ".join("handed on" if p == HANDED else f"x{p}" for p in link.params)
                lines.append(f"  link of {names}: {dict(link.schedule)}")
                lines += [f"    {line}" for line in link.kernel.text.splitlines()]
    for position, store in enumerate(kernel.stores):
        once = " (per row)" if isinstance(kernel.body, Rowwise) and position in kernel.body.row_stores else ""
        lines.append(_format_store(store) + once)
    if isinstance(kernel.body, Contraction) and kernel.body.tail:
        lines.append("  then of each row")
        lines += [f"  {s.hole.name}: {s.hole.dtype} = {s.op} {format_expr(s.value)}" for s in kernel.body.tail.statistics]
        lines += [f"{_format_store(s)} (per row)" for s in kernel.body.tail.stores]
    return "\n".join(lines)


def _format_store(store: Store) -> str:
    return f"  x{store.target}[{', '.join(map(format_expr, store.index))}] = {format_expr(store.value)}"










