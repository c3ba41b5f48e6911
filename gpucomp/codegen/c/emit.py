"""Statements for one work-item: values and stores of a kernel's expressions, a vector of lanes at a time.

Templates decide which elements a work-item computes; this module writes the statements, through ``c.printer``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpucomp.codegen.c.printer import OR, SUM, CPrinter
from gpucomp.expr.core import (
    Cast,
    Expr,
    Load,
    Reduce,
    Select,
    Var,
    both,
    cast,
    hole,
    index,
    substitute,
    transform,
    walk,
)
from gpucomp.expr.lower import Lowering, Operand, Ref
from gpucomp.expr.simplify import simplify
from gpucomp.ir.types import DType
from gpucomp.kernel import Store
from gpucomp.kernel.forms.access import Rewriter, chosen_loads, is_aligned, is_zero, parts_within, vector_loads
from gpucomp.kernel.forms.lanes import LANE, pure_load

MOST_BYTES = 16  # of one access of memory


@dataclass(frozen=True)
class FlatStore:
    """``params[target][offset] = value``."""

    target: int
    offset: Expr
    value: Expr


@dataclass(frozen=True)
class StoreStages:
    """The statements of stores in the order in which they are printed."""

    loads: list[str]  # of vectors, with the offsets that all lanes share
    values: list[str]  # with the other loads; stores that are not of whole vectors
    writes: list[str]


def flat_stores(stores: Iterable[Store], rewriter: Rewriter) -> list[FlatStore]:
    return [FlatStore(s.target, rewriter.offset(s.target, s.index), rewriter(s.value)) for s in stores]


@dataclass
class Emitter:
    """Writes statements into one scope. ``bindings`` names the values that the surrounding text has computed."""

    printer: CPrinter
    bindings: Mapping[Expr, str]
    prefix: str = "e"
    unroll_limit: int = 16
    _lowering: Lowering = field(init=False)

    def __post_init__(self) -> None:
        self._lowering = self.printer.lowering(self.bindings, prefix=self.prefix, unroll_limit=self.unroll_limit)

    def hoist(self, parts: Iterable[Expr]) -> list[str]:
        """Statements that compute ``parts`` once; later statements use the results."""
        operands = [self._lowering.lower(part) for part in parts]
        return self.printer.block(self._lowering.take(), later=operands)

    def named(self, parts: Iterable[Expr]) -> tuple[list[str], dict[Expr, str]]:
        """Like ``hoist``, and returns the name of each part, for inner scopes."""
        kept = list(parts)
        lines = self.hoist(kept)
        names = {part: self._lowering.lower(part) for part in kept}
        return lines, {part: operand.name for part, operand in names.items() if isinstance(operand, Ref)}

    def values(self, exprs: Sequence[Expr]) -> tuple[list[str], list[str]]:
        """Statements, and the text of each expression. Each text may be used once, right after the statements."""
        operands = [self._lowering.lower(e) for e in exprs]
        lines = self.printer.block(self._lowering.take(), results=operands)
        return lines, [self.printer.operand(o) for o in operands]

    def lanes(self, exprs: Sequence[Expr], lane: Var, width: int) -> tuple[list[str], list[str], list[str]]:
        """Statements before the loop over ``lane``, statements inside it, and each expression's text there.

        Vector loads and everything that does not depend on the lane come before the loop.
        """
        printer = self.printer
        varying = {e for e, text in self.bindings.items() if e is not lane and _names_lane(text)}

        def varies(expr: Expr) -> bool:
            return bool(varying) and any(n in varying for n in walk(expr))

        head = self.hoist([part for part in _invariant(exprs, lane) if not varies(part)])
        replaced: dict[Expr, Expr] = {}
        obeyed: dict[Expr, tuple[Expr, ...]] = {}
        for found in vector_loads(exprs, lane, width):
            if any(map(varies, found.guards)):
                continue  # the condition differs between lanes: one may read where its neighbour must not
            name = f"{self.prefix}v{len(replaced)}"
            _, dtype = printer.params[found.load.source]
            lines, place, guard = self._source(found.load, found.guards, lane)
            array = printer.dialect.aligned_array(printer.dialect.moved_type(dtype), name, width)
            head += [*lines, array, *printer.dialect.fetch(name, place, dtype, width, guard)]
            stand_in = hole(name, found.load.dtype)
            self._lowering.bind(stand_in, printer.fetched(f"{name}[{LANE}]", dtype))
            replaced[found.load] = stand_in
            obeyed[stand_in] = found.guards
        lines, texts = self.values([_without_guards(substitute(e, replaced), obeyed) for e in exprs])
        return head, lines, texts

    def each_lane(
        self, expr: Expr, lane: Var, width: int, scalars: Mapping[DType, str]
    ) -> tuple[list[str], list[Expr]]:
        """Statements that load vectors of at most ``MOST_BYTES``, and ``expr`` in each lane, which names their elements.

        ``scalars`` are the C types of elements of vectors.
        """
        printer, dialect, lines = self.printer, self.printer.dialect, list[str]()
        replaced: list[dict[Expr, Expr]] = [{lane: index(k)} for k in range(width)]
        obeyed: dict[Expr, tuple[Expr, ...]] = {}
        for chosen, guards in chosen_loads(expr, lane, width).items():
            loads = (node for node in walk(chosen) if isinstance(node, Load))
            types = {(printer.params[n.source][1], n.dtype) for n in loads}
            dtype, loaded = types.pop()
            if types or dtype not in scalars or width * dtype.nbytes > MOST_BYTES:
                continue
            name, scalar = f"{self.prefix}v{len(replaced[0]) - 1}", scalars[dtype]
            before, place, guard = self._source(chosen, guards, lane)
            text = dialect.vector_load(scalar, width, place, guard)
            lines += [*before, f"const {dialect.vector_type(scalar, width)} {name} = {text};"]
            for k, at in enumerate(replaced):
                element = hole(f"{name}_{k}", loaded)
                self._lowering.bind(element, printer.fetched(dialect.lane(name, k, dtype), dtype))
                at[chosen], obeyed[element] = cast(element, chosen.dtype), guards
        return lines, [simplify(_without_guards(substitute(expr, at), obeyed)) for at in replaced]

    def moved(self, expr: Expr, to: str, lane: Var | None = None, width: int = 1, *, late: bool = False) -> list[str]:
        """Statements that move ``width`` elements to the pointer ``to`` unchanged; none if that is not possible.

        It is possible for a single load whose lanes are adjacent and whose stored bits are the value's. The load may be
        guarded; the value is zero where the guard is false. ``late`` uses an asynchronous copy, which the caller
        commits and awaits.
        """
        found = pure_load(expr, lane, width)
        if found is None:
            return []
        load, guards = found
        dialect, (_, dtype) = self.printer.dialect, self.printer.params[load.source]
        if dialect.storage_type(dtype) != dialect.value_type(dtype):
            return []
        lines, place, guard = self._source(load, guards, lane)
        if late:
            return [*lines, f"gc_cp_async{width * dtype.nbytes}({to}, {place}, {guard or 'true'});"]
        return [*lines, *dialect.copy(to, place, dtype, width, guard)]

    def place(self, load: Load, lane: Var) -> tuple[list[str], str]:
        """Statements, and the text of the address of ``load``'s first lane."""
        lines, place, _ = self._source(load, (), lane)
        return lines, place

    def _source(self, load: Expr, guards: Sequence[Expr], lane: Var | None) -> tuple[list[str], str, str]:
        """Statements, the address of ``load``'s first lane, and the text of its guards; empty if there are none.

        It may be a choice of loads; all addresses are computed, which is safe.
        """
        parts: list[Expr] = []  # conditions and offsets in the order of the text
        choices = [load]
        while choices:
            match choices.pop():
                case Select(condition=condition, then=then, otherwise=otherwise):
                    parts.append(condition)
                    choices += [otherwise, then]
                case Cast(value=value):
                    choices.append(value)
                case Load(index=(offset,)):
                    parts.append(substitute(offset, {lane: index(0)}) if lane is not None else offset)
        operands: list[Operand] = [self._lowering.lower(e) for e in (*parts, *([both(guards)] if guards else []))]
        lines = self.printer.block(self._lowering.take(), results=operands)
        guard = self.printer.operand(operands.pop(), OR) if guards else ""
        return lines, self._address(load, iter(operands)), guard

    def _address(self, load: Expr, operands: Iterator[Operand]) -> str:
        """The text of an address that conditions choose."""
        match load:
            case Select(then=then, otherwise=otherwise):
                condition = self.printer.operand(next(operands), OR)
                first, second = self._address(then, operands), self._address(otherwise, operands)
                return f"({condition} ? {first} : {second})"
            case Cast(value=value):
                return self._address(value, operands)
            case Load(source=number):
                source, _ = self.printer.params[number]
                offset = self.printer.operand(next(operands), SUM)
                return source if offset == "0" else f"{source} + {offset}"
        raise AssertionError(f"no load: {load}")

    def _placed(self, exprs: Sequence[Expr]) -> tuple[list[str], list[str]]:
        operands: list[Operand] = [self._lowering.lower(e) for e in exprs]
        lines = self.printer.block(self._lowering.take(), results=operands)
        return lines, [self.printer.operand(o, SUM) for o in operands]

    def store(self, stores: Sequence[FlatStore], lane: Var | None = None, width: int = 1) -> list[str]:
        """Statements that compute and write ``stores``; every load comes before the first write."""
        found = self.store_stages(stores, lane, width)
        return [*found.loads, *found.values, *found.writes]

    def store_stages(self, stores: Sequence[FlatStore], lane: Var | None = None, width: int = 1) -> StoreStages:
        """``store``, stage by stage."""
        printer = self.printer
        if lane is None or width == 1:
            lines, texts = self.values([e for s in stores for e in (s.offset, printer.written(s.target, s.value))])
            writes = [printer.store(s.target, *texts[2 * n : 2 * n + 2]) for n, s in enumerate(stores)]
            return StoreStages([], lines, writes)
        vectors = [s for s in stores if is_aligned(s.offset, lane, width)]
        others = [s for s in stores if s not in vectors]
        starts, starting = self._placed([substitute(s.offset, {lane: index(0)}) for s in vectors])
        values = [printer.written(s.target, s.value) for s in (*vectors, *others)]
        exprs = [*values, *(s.offset for s in others)]
        head, body, texts = self.lanes(exprs, lane, width)
        arrays: list[str] = []
        tail: list[str] = []
        for number, (s, offset) in enumerate(zip(vectors, starting, strict=True)):
            name, dtype = printer.params[s.target]
            array = f"{self.prefix}w{number}"
            arrays.append(printer.dialect.aligned_array(printer.dialect.moved_type(dtype), array, width))
            body.append(f"{array}[{LANE}] = {printer.put(texts[number], dtype)};")
            tail += printer.dialect.put(f"{name} + {offset}", array, dtype, width)
        for value, offset, s in zip(texts[len(vectors) :], texts[len(stores) :], others, strict=False):
            body.append(printer.store(s.target, offset, value))
        return StoreStages([*starts, *head], [*arrays, *lane_loop(body, width)], tail)

    def kept(self, target: int, value: Expr, array: str, lane: Var, width: int) -> list[str]:
        """Statements that write ``width`` lanes of ``value`` to ``array``, as elements of ``params[target]``."""
        printer, dtype = self.printer, self.printer.params[target][1]
        head, body, (text,) = self.lanes([printer.written(target, value)], lane, width)
        return [*head, *lane_loop([*body, f"{array}[{LANE}] = {printer.put(text, dtype)};"], width)]


def _without_guards(expr: Expr, obeyed: Mapping[Expr, tuple[Expr, ...]]) -> Expr:
    """``expr`` without the conditions that its vector loads have applied: they give zeros where these are false."""

    def change(node: Expr) -> Expr | None:
        if not isinstance(node, Select) or not is_zero(node.otherwise):
            return None
        array = node.then
        while isinstance(array, Cast):
            array = array.value
        return node.then if node.condition in obeyed.get(array, ()) else None

    return transform(expr, change) if any(obeyed.values()) else expr


def lane_loop(body: Sequence[str], width: int, *, unrolled: bool = True) -> list[str]:
    """A loop that runs ``body`` for each lane."""
    return [
        *(["#pragma unroll"] if unrolled else []),
        f"for (int {LANE} = 0; {LANE} < {width}; ++{LANE}) {{",
        *(f"  {line}" for line in body),
        "}",
    ]


def _names_lane(text: str) -> bool:
    """Whether the text differs between lanes: it is an element of an array, indexed by the lane."""
    return re.search(rf"\b{LANE}\b", text) is not None


def _invariant(exprs: Sequence[Expr], lane: Var) -> list[Expr]:
    """The largest subexpressions that do not depend on the lane."""
    everything = frozenset(v for e in exprs for v in e.free) - {lane}
    bound = frozenset(a for e in exprs for n in walk(e) if isinstance(n, Reduce) for a in n.axes)
    return parts_within(exprs, everything - bound)
