"""Statements for one work-item: values and stores of a kernel's expressions, a vector of lanes at a time.

Templates decide where work-items stand; this module writes what each of them does, through ``c_printer``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gpucomp.codegen.access import Rewriter, is_aligned, parts_within, vector_loads
from gpucomp.codegen.c_printer import SUM, CPrinter
from gpucomp.expr.core import Expr, Reduce, Var, call, hole, index, substitute, walk
from gpucomp.expr.lower import Lowering, Operand, Ref
from gpucomp.kernel import Store

LANE = "lane"


@dataclass(frozen=True)
class FlatStore:
    """``params[target][offset] = value``."""

    target: int
    offset: Expr
    value: Expr


def flat_stores(stores: Iterable[Store], rewriter: Rewriter) -> list[FlatStore]:
    return [FlatStore(s.target, rewriter.offset(s.target, s.index), rewriter(s.value)) for s in stores]


@dataclass
class Emitter:
    """Writes statements into one scope. ``bindings``: what the surrounding text already computed, by name."""

    printer: CPrinter
    bindings: Mapping[Expr, str]
    prefix: str = "e"
    unroll_limit: int = 16
    _lowering: Lowering = field(init=False)

    def __post_init__(self) -> None:
        self._lowering = self.printer.lowering(self.bindings, prefix=self.prefix, unroll_limit=self.unroll_limit)

    def hoist(self, parts: Iterable[Expr]) -> list[str]:
        """Statements that compute ``parts`` once; what is written later knows them."""
        operands = [self._lowering.lower(part) for part in parts]
        return self.printer.block(self._lowering.take(), later=operands)

    def named(self, parts: Iterable[Expr]) -> tuple[list[str], dict[Expr, str]]:
        """``hoist``, with the name of each part, for scopes further in."""
        kept = list(parts)
        lines = self.hoist(kept)
        names = {part: self._lowering.lower(part) for part in kept}
        return lines, {part: operand.name for part, operand in names.items() if isinstance(operand, Ref)}

    def values(self, exprs: Sequence[Expr]) -> tuple[list[str], list[str]]:
        """Statements, then the text of each expression, to be used once and at once."""
        operands = [self._lowering.lower(e) for e in exprs]
        lines = self.printer.block(self._lowering.take(), results=operands)
        return lines, [self.printer.operand(o) for o in operands]

    def lanes(self, exprs: Sequence[Expr], lane: Var, width: int) -> tuple[list[str], list[str], list[str]]:
        """Statements in front of the loop over ``lane``, statements inside it, and each expression's text there.

        Vector loads and all that does not depend on the lane stand in front.
        """
        printer = self.printer
        head = self.hoist(_invariant(exprs, lane))
        replaced: dict[Expr, Expr] = {}
        for found in vector_loads(exprs, lane, width):
            name = f"{self.prefix}v{len(replaced)}"
            source, dtype = printer.params[found.load.source]
            start = substitute(found.load.index[0], {lane: index(0)})
            lines, (offset, *guards) = self._placed([start, *found.guards])
            head += lines
            ctype = printer.dialect.moved_type(dtype)
            copies = printer.dialect.fetch(name, f"{source} + {offset}", dtype, width)
            if guards:
                head.append(printer.dialect.aligned_array(ctype, name, width, printer.dialect.zeros))
                head += [f"if ({' && '.join(guards)}) {{", *(f"  {c}" for c in copies), "}"]
            else:
                head += [printer.dialect.aligned_array(ctype, name, width), *copies]
            stand_in = hole(name, found.load.dtype)
            self._lowering.bind(stand_in, printer.fetched(f"{name}[{LANE}]", dtype))
            replaced[found.load] = stand_in
        lines, texts = self.values([substitute(e, replaced) for e in exprs])
        return head, lines, texts

    def _placed(self, exprs: Sequence[Expr]) -> tuple[list[str], list[str]]:
        operands: list[Operand] = [self._lowering.lower(e) for e in exprs]
        lines = self.printer.block(self._lowering.take(), results=operands)
        return lines, [self.printer.operand(o, SUM) for o in operands]

    def store(self, stores: Sequence[FlatStore], lane: Var | None = None, width: int = 1) -> list[str]:
        """Statements that compute and write ``stores``; every load comes before the first write."""
        printer = self.printer
        if lane is None or width == 1:
            lines, texts = self.values([e for s in stores for e in (s.offset, printer.written(s.target, s.value))])
            for number, s in enumerate(stores):
                lines.append(printer.store(s.target, texts[2 * number], texts[2 * number + 1]))
            return lines
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
        return [*starts, *head, *arrays, *lane_loop(body, width), *tail]


def lane_loop(body: Sequence[str], width: int) -> list[str]:
    """``body`` for each lane, unrolled."""
    return [
        "#pragma unroll",
        f"for (int {LANE} = 0; {LANE} < {width}; ++{LANE}) {{",
        *(f"  {line}" for line in body),
        "}",
    ]


def _invariant(exprs: Sequence[Expr], lane: Var) -> list[Expr]:
    """The largest parts that no lane changes."""
    everything = frozenset(v for e in exprs for v in e.free) - {lane}
    bound = frozenset(a for e in exprs for n in walk(e) if isinstance(n, Reduce) for a in n.axes)
    return parts_within(exprs, everything - bound)


def lanes_of(variable: Var, quotient: Var, lane: Var, width: int) -> dict[Expr, Expr]:
    """``variable = quotient * width + lane``."""
    return {variable: call("add", call("mul", quotient, width), lane)} if width > 1 else {variable: quotient}
