"""Shared by the CPU families: flat offsets, merged axes, the vector axis, tasks, and the function around the loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from gpucomp.codegen.llvm.core_space import COSTLY
from gpucomp.codegen.llvm.ir.builder import Code, Value
from gpucomp.codegen.llvm.ir.printer import INT32, Affine, LaneValue, Printer
from gpucomp.codegen.llvm.ir.types import I64, PTR
from gpucomp.device.target import Target
from gpucomp.expr.core import Call, Expr, Load, Reduce, Var, call, index, load, substitute, transform, var, walk
from gpucomp.expr.lower import Block, Lowering, Operand
from gpucomp.expr.simplify import coefficient, flatten, simplify
from gpucomp.ir.extremes import largest
from gpucomp.ir.size import Size, assumed, at_most, below, bounds, hint, is_one, is_zero, same
from gpucomp.ir.types import TensorType
from gpucomp.kernel import Kernel
from gpucomp.kernel.source import Emitted


@dataclass(frozen=True)
class FlatStore:
    """``params[target][offset] = value``; the offset counts elements."""

    target: int
    offset: Expr
    value: Expr


COMPARED = frozenset({"lt", "le", "eq", "ne"})


class Flattener:
    """Rewrites each load to one flat offset and simplifies."""

    def __init__(self, params: Sequence[TensorType]) -> None:
        self._params = params

    def __call__(self, expr: Expr) -> Expr:
        return simplify(transform(expr, self._flat_load))

    def _flat_load(self, node: Expr) -> Expr | None:
        if isinstance(node, Load):
            return load(node.source, (flatten(node.index, self._params[node.source].shape),), node.dtype)
        return None

    def stores(self, kernel: Kernel, values: Mapping[Expr, Expr] | None = None) -> list[FlatStore]:
        """The kernel's stores, with ``values`` in place of its holes. Offsets of a scalar result are 0."""
        return [
            FlatStore(
                s.target,
                self(flatten(s.index, kernel.params[s.target].shape)),
                self(substitute(s.value, values or {})),
            )
            for s in kernel.stores
        ]


def _divisions(exprs: Sequence[Expr]) -> int:
    seen = {node for expr in exprs for node in walk(expr)}
    return sum(isinstance(node, Call) and node.fn in {"floordiv", "mod"} for node in seen)


def offsets(exprs: Sequence[Expr]) -> list[Expr]:
    """The flat offset of every load in ``exprs``."""
    return list(dict.fromkeys(n.index[0] for e in exprs for n in walk(e) if isinstance(n, Load)))


def _joined(name: str, *axes: Var) -> Var:
    """One variable for ``axes``, always the same: what was simplified with it is found again."""
    return _joined_in(cast(Hashable, assumed.get()), name, *axes)


@lru_cache(maxsize=4096)
def _joined_in(block: Hashable, name: str, *axes: Var) -> Var:
    """As ``_joined``. What one ``block`` knows of the extents does not hold in another."""
    return var(name, math.prod(a.extent for a in axes))


def merge_axes(
    axes: Sequence[Var], exprs: Sequence[Expr], *, only_offsets: bool = False
) -> tuple[list[Var], list[Expr]]:
    """Merges neighbouring axes wherever that adds no division, and drops axes of extent 1.

    ``only_offsets`` allows divisions outside the offsets of loads (in guards).
    """
    axes, exprs = list(axes), list(exprs)
    ones: dict[Expr, Expr] = {axis: index(0) for axis in axes if is_one(axis.extent)}
    if ones:
        exprs = [simplify(substitute(e, ones)) for e in exprs]
        axes = [a for a in axes if a not in ones]
    position = len(axes) - 2
    while position >= 0:
        outer, inner = axes[position], axes[position + 1]
        position -= 1
        if _stay_apart(outer, inner, exprs, only_offsets=only_offsets):
            continue
        both = _joined(f"{outer.name}{inner.name}", outer, inner)
        split: dict[Expr, Expr] = {
            outer: call("floordiv", both, inner.extent),
            inner: call("mod", both, inner.extent),
        }
        merged = [simplify(substitute(e, split)) for e in exprs]
        before, after = (offsets(exprs), offsets(merged)) if only_offsets else (exprs, merged)
        if _divisions(after) <= _divisions(before):
            axes[position + 1 : position + 3] = [both]
            exprs = merged
    return axes, exprs


def _stay_apart(outer: Var, inner: Var, exprs: Sequence[Expr], *, only_offsets: bool) -> bool:
    """Whether it is plain that ``merge_axes`` would add a division: somewhere a step of ``outer`` is not all steps of ``inner``.

    Where nothing divides the axes now, a sum with other steps keeps a quotient or a remainder of both.
    """
    sums: dict[Expr, None] = {}
    for expr in exprs:
        for node in walk(expr):
            if isinstance(node, Call) and not node.free.isdisjoint((outer, inner)):
                if node.fn in {"floordiv", "mod"}:
                    return False
                if node.fn in COMPARED and not only_offsets and not node.args[0].dtype.is_float:
                    sums |= dict.fromkeys(node.args)
            if isinstance(node, Load):
                sums[node.index[0]] = None
    for one in sums:
        far, near = coefficient(one, outer), coefficient(one, inner)
        if far is not None and near is not None and not same(far, near * inner.extent):
            return True
    return False


def collapse(axes: Sequence[Var], name: str) -> tuple[Var, dict[Expr, Expr]]:
    """One flat variable for all ``axes``, and the value of each axis in terms of it."""
    flat = _joined(name, *axes) if axes else var(name, 1)  # no axes are those of any kernel: no variable of all
    extent: Any = flat.extent
    parts: dict[Expr, Expr] = {}
    inner = 1
    for axis in reversed(axes):
        quotient = call("floordiv", flat, inner)
        parts[axis] = quotient if same(inner * axis.extent, extent) else call("mod", quotient, axis.extent)
        if is_one(axis.extent):
            parts[axis] = index(0)
        inner *= axis.extent
    return flat, parts


def vector_score(axis: Var, stores: Sequence[Expr], reads: Sequence[Expr], width: int) -> float:
    """How suitable ``axis`` is for vectorization: unit strides help, other strides and short axes cost."""
    score = 0.0
    for weight, group in ((3.0, stores), (1.0, reads)):
        for offset in group:
            step = coefficient(offset, axis)
            score += weight * (1.0 if is_one(step) else 0.6 if is_zero(step) else -1.0)
    extent = hint(axis.extent)
    full = -(-extent // width) * width
    return float(score * extent / full) if score > 0 else score


@dataclass(frozen=True)
class Program:
    """Expressions that were lowered once. ``block`` computes ``results``; a printer has to bind ``names``."""

    block: Block
    results: list[Operand]
    names: dict[Expr, str]


def lower(exprs: Sequence[Expr], bound: Sequence[Expr], unroll: int = 0) -> Program:
    names = {e: f"b{position}" for position, e in enumerate(bound)}
    lowering = Lowering(names, unroll_limit=unroll)
    results = [lowering.lower(e) for e in exprs]
    return Program(lowering.block, results, names)


class Entry:
    """The function of one kernel: its parameters, its range of tasks, and the printers that write into it."""

    def __init__(self, kernel: Kernel, name: str, target: Target) -> None:
        self.kernel, self.name, self.target = kernel, name, target
        features = target.features
        self.code = Code(
            name,
            native_half=bool(features & {"f16c", "neon"}),
            native_scale="avx512f" in features,
            native_masks="avx2" in features,
        )
        self.params = [self.code.argument(f"p{i}", PTR) for i in range(len(kernel.params))]
        self.first, self.last = self.code.argument("first", I64), self.code.argument("last", I64)
        self.shared: list[Value] = []  # memory that the tasks share: the workspace and the counters
        self.more: list[Value] = []  # further numbers that a function of another function is called with
        self.workspace_bytes: Any = 0
        self.counter_bytes = 0
        self.below_zero: Container[Expr] = ()  # expressions that are at most 0, or NaN

    def share(self, workspace_bytes: Any, counter_bytes: int) -> tuple[Value, Value]:
        """The workspace and the counters: see ``Geometry``."""
        self.workspace_bytes, self.counter_bytes = workspace_bytes, counter_bytes
        self.shared = [self.code.argument(name, PTR) for name in ("workspace", "counters")]
        return self.shared[0], self.shared[1]

    def text(self) -> str:
        arguments = [f"ptr %p{i}" for i in range(len(self.params))] + [f"ptr {value.text}" for value in self.shared]
        arguments += ["ptr %sizes"] if self.code.sizes else []
        arguments += [f"i64 {value.text}" for value in (self.first, self.last, *self.more)]
        header = f"define void @{self.name}({', '.join(arguments)}) #0"
        return self.code.function(header)

    def emitted(self, tasks: Any, before: Sequence[str] = ()) -> Emitted:
        """This function after the functions that it calls, with its number of tasks."""
        text = "\n".join([*before, self.text()])
        return Emitted(text, tasks, self.code.sizes, self.workspace_bytes, self.counter_bytes)

    def printer(
        self,
        program: Program,
        values: dict[Expr, LaneValue],
        width: int,
        mask: Value | None,
        loaded: Mapping[Expr, Value] | None = None,
    ) -> Printer:
        """A printer that has run ``program`` with ``values``, and with the loads that are ``loaded`` already."""
        bound = {program.names[e]: v for e, v in values.items() if e in program.names}
        printer = Printer(
            self.code,
            self.params,
            self.kernel.params,
            width=width,
            mask=mask,
            values=bound,
            loaded=loaded,
            below_zero=self.below_zero,
        )
        printer.run(program.block)
        return printer

    def prefix_mask(self, lanes: int, width: int) -> Value:
        """A mask of the first ``lanes`` of ``width`` lanes."""
        return self.code.vector([lane < lanes for lane in range(width)], "i1")

    def chunks(
        self,
        start: Value | int,
        stop: Value | int,
        width: int,
        body: Callable[[Value, Value | None], None],
        extent: int,
    ) -> None:
        """Calls ``body(position, mask)`` for each chunk of ``width`` in ``start .. stop``.

        Only the chunk at ``extent`` may be cut. ``start`` is a multiple of ``width``; so is ``stop``, unless it is
        ``extent``.
        """
        code = self.code
        rest = extent % width
        if isinstance(rest, Size):
            self._chunks_and_rest(start, stop, width, body, extent, rest)
            return
        if isinstance(stop, Size):
            stop = code.integer(stop)
        if isinstance(stop, int):
            whole: Value | int = stop - stop % width
        else:
            whole = code.minimum(stop, extent - rest)
        if not isinstance(whole, int) or whole > 0:
            with code.loop(start, whole, width) as position:
                body(position, None)
        if rest:
            mask = self.prefix_mask(rest, width)
            if isinstance(stop, int):
                body(code.integer(extent - rest), mask)
            else:
                with code.when(stop.equals(extent)):
                    body(code.integer(extent - rest), mask)

    def _chunks_and_rest(
        self, start: Any, stop: Any, width: int, body: Callable[[Value, Value | None], None], extent: Size, rest: Size
    ) -> None:
        """``chunks`` of an extent that may or may not be cut."""
        code = self.code
        ends_here = isinstance(stop, Size)  # it is the extent
        whole = code.integer(extent - rest)
        with code.loop(start, whole if ends_here else code.minimum(stop, whole), width) as position:
            body(position, None)
        left = code.integer(rest)
        cut = left.differs(0)
        with code.when(cut if ends_here else cut & stop.equals(extent)):
            body(whole, self.first_lanes(left, width))

    def first_lanes(self, count: Value, width: int) -> Value:
        """A mask of the first ``count`` of ``width`` lanes."""
        lanes = self.code.vector(range(width), "i32")
        return lanes < self.code.splat(self.code.convert("trunc", count, "i32"), width)

    @contextmanager
    def nested(self, axes: Sequence[Var], values: dict[Expr, LaneValue]) -> Iterator[None]:
        """Loops over ``axes``; their variables are bound in ``values``."""
        if not axes:
            yield
            return
        with self.code.loop(0, axes[0].extent) as i:
            values[axes[0]] = i
            with self.nested(axes[1:], values):
                yield

    def decompose(self, flat: Value, extents: Sequence[int]) -> list[Value]:
        """The row-major indices, in an array of shape ``extents``, of the flat index ``flat``."""
        result = []
        short = at_most(math.prod(extents), INT32[1])
        for position in range(len(extents) - 1, -1, -1):
            extent = extents[position]
            if position == 0:
                result.append(flat)
            elif short and isinstance(extent, Size) and below(0, extent):
                above = self.code.divided(flat, extent)
                result.append(flat - above * extent)
                flat = above
            else:
                result.append(flat.integer_op("urem", extents[position]))
                flat = flat.integer_op("udiv", extents[position])
        return result[::-1]


def narrowed(width: int, axis: Var | None) -> int:
    """How many of ``width`` lanes are used for ``axis``: half of them if these cover it; none without an axis."""
    if axis is None:
        return 0
    while width > 2 and at_most(axis.extent, width // 2):
        width //= 2
    return width


def lane_index(position: Value, width: int) -> LaneValue:
    return Affine(position, 1) if width else position


@dataclass(frozen=True)
class Tasks:
    """``count`` tasks of a loop nest: it is divided along the leading ``axes`` and into blocks of the vector axis."""

    axes: tuple[Var, ...]
    inner: tuple[Var, ...]
    block: int
    blocks: int

    @property
    def count(self) -> int:
        return math.prod(a.extent for a in self.axes) * self.blocks


def cut(axes: Sequence[Var], extent: int, width: int, wanted: int, work: float) -> Tasks:
    """Divides a loop nest into ``wanted`` tasks if there is enough work.

    Leading axes are divided first, then the vector axis, into blocks. ``work`` estimates the operations of one element.
    A task has at least ``SMALLEST_TASK`` operations. How often sizes are divided is decided for the example; but if the largest
    sizes are worth more tasks, there are a few at least.
    """
    points = math.prod(hint(a.extent) for a in axes) * max(hint(extent), 1)
    most = math.prod(bounds(a.extent)[1] for a in axes) * max(bounds(extent)[1], 1)
    few = min(wanted, FEW_TASKS, int(most * work / SMALLEST_TASK)) if most > points else 1
    wanted = max(1, few, min(wanted, int(points * work / SMALLEST_TASK)))
    count, taken = 1, 0
    while taken < len(axes) and count < wanted:
        count *= int(hint(axes[taken].extent))
        taken += 1
    width = max(width, 1)
    parts = max(1, min(-(-wanted // max(count, 1)), -(-int(hint(extent)) // (4 * width))))
    block = -(-extent // parts)
    block = largest(-(-block // width) * width, width if isinstance(block, Size) else 0)
    blocks = -(-extent // block) if block else 1
    if isinstance(extent, Size) and parts == 1:
        blocks = 1
    return Tasks(tuple(axes[:taken]), tuple(axes[taken:]), block, blocks)


SMALLEST_TASK = 30_000
FEW_TASKS = 16  # for as many threads


def operations(exprs: Sequence[Expr]) -> float:
    """About how many operations the expressions cost; those in reductions count once per element."""
    costly = COSTLY | {"div", "sqrt"}

    def cost(expr: Expr, memo: dict[Expr, float]) -> float:
        total = 0.0
        for node in walk(expr):
            if isinstance(node, Load):
                total += 2
            elif isinstance(node, Call):
                total += 12 if node.fn in costly and node.dtype.is_float else 1
            elif isinstance(node, Reduce):
                total += memo.setdefault(node, cost(node.body, memo) * math.prod(hint(a.extent) for a in node.axes))
        return total

    memo: dict[Expr, float] = {}
    return 1 + sum(cost(e, memo) for e in exprs)
