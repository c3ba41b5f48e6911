"""Statements for tile transforms: a line or more of a block's outputs, by vectors of neighbouring blocks.

A line of outputs needs one sum over each column of its block's inputs, whose rows it takes one after the other; then its
outputs are sums of those, each stored when it is there. So little is alive at a time, and nothing is an array.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.constant_matvec import one_by_one, parts_and_sums
from gpucomp.codegen.c.emit import Emitter, FlatStore, flat_stores
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.codegen.c.text import stage
from gpucomp.codegen.c.vectors import component, fetch, load_vectors, store_vectors, wide_loads
from gpucomp.errors import ScheduleError
from gpucomp.expr.core import Const, Expr, Load, both, index, substitute, var, walk
from gpucomp.expr.simplify import coefficient, from_linear, linear, simplify
from gpucomp.ir.types import BOOL, F32
from gpucomp.kernel import Kernel, TileTransform
from gpucomp.kernel.forms.access import Rewriter, regroup
from gpucomp.kernel.forms.convolution import conjuncts
from gpucomp.kernel.forms.lanes import LANE, lanes_of
from gpucomp.kernel.forms.operand import places
from gpucomp.kernel.forms.plain_loads import plain

if TYPE_CHECKING:
    from gpucomp.kernels_templates.tile_transform.space import (
        TileTransformProblem,
        TileTransformSchedule,
        TileTransformSizes,
    )


def emit_tile_transform(
    kernel: Kernel[TileTransform],
    printer: CPrinter,
    s: TileTransformSchedule,
    p: TileTransformProblem,
    derived: TileTransformSizes,
) -> Mapping[str, Any]:
    """See ``kernels_templates/tile_transform/kernel.j2`` for what each hook is."""
    work = _Work(kernel, printer, s, p)
    emitter = Emitter(printer, {work.point: "point"})
    before, names = emitter.named([*work.shared_parts(), *work.source.shared, *work.places_shared()])
    known = {work.point: "point"} | names
    parts = [work.lines(known, range(first, first + s.lines)) for first in range(0, p.outputs, s.lines)]
    return {
        "before": before,
        "parts": parts,
        "index": printer.dialect.index_type(p.points // s.vector + s.threads),
    }


@dataclass(frozen=True)
class _Source:
    """Where a block's inputs lie: ``base`` elements into parameter ``number``, and so many from one to the next.

    rows, columns    conditions that an input's row, or column, has to meet
    shared           their parts that all inputs of a block have in common
    """

    number: int
    base: Expr
    row_step: int
    column_step: int
    rows: Sequence[Expr]
    columns: Sequence[Expr]
    shared: Sequence[Expr]


class _Work:
    """What a work-item computes of ``vector`` neighbouring blocks."""

    def __init__(
        self, kernel: Kernel[TileTransform], printer: CPrinter, s: TileTransformSchedule, p: TileTransformProblem
    ) -> None:
        self.kernel, self.printer, self.body, self.width = kernel, printer, kernel.body, s.vector
        self.point, self.lane = var("point", max(1, p.points // s.vector)), var(LANE, s.vector)
        flat = var("flat", max(1, p.points))
        vector = lanes_of(flat, self.point, self.lane, s.vector)
        self.at = {v: substitute(e, vector) for v, e in places(self.body.blocks, flat).items()}
        ctype = printer.dialect.value_type(F32)
        self.ctype = ctype if s.vector == 1 else f"{ctype}{s.vector}"
        self.source = self._source()
        self._known_stores: dict[tuple[int, int], tuple[list[FlatStore], Expr]] = {}

    # ---- inputs ----

    def _source(self) -> _Source:
        found = plain(self.body.value, F32)
        assert found is not None, "a block's inputs are loads, or zero under guards"
        guard, ld = found
        row, column = self.body.inputs
        rewriter = Rewriter(self.kernel.params, self.at)
        placed = rewriter(ld)
        assert isinstance(placed, Load)
        (offset,) = placed.index
        steps = coefficient(offset, row), coefficient(offset, column)
        if None in steps or (self.width > 1 and coefficient(offset, self.lane) != 1):
            raise ScheduleError(
                "tile_transform: inputs of neighbouring blocks are not neighbours in memory", code="GPC8001"
            )
        start = simplify(substitute(offset, {row: index(0), column: index(0), self.lane: index(0)}))
        groups = (frozenset({self.point}), frozenset({row, column}))
        conditions = [] if guard is None else [regroup(rewriter(c), groups) for c in conjuncts(guard)]
        kept = [c for c in conditions if not (isinstance(c, Const) and c.value)]
        rows = [c for c in kept if column not in c.free]
        shared = [e for c in kept for e in walk(c) if e.free == {self.point} and e.dtype.is_integer]
        return _Source(
            placed.source, start, steps[0] or 0, steps[1] or 0, rows, [c for c in kept if c not in rows], shared
        )

    def shared_parts(self) -> list[Expr]:
        return [self.source.base]

    def _conditions(self, emitter: Emitter, axis: int, used: Sequence[int]) -> tuple[list[str], dict[int, str]]:
        """Statements, then by the number of a row (or column) the name of the condition under which it may be read."""
        lines: list[str] = []
        names: dict[int, str] = {}
        for number in used:
            at: dict[Expr, Expr] = {self.body.inputs[axis]: index(number)}
            wanted = [substitute(c, at) for c in (self.source.rows, self.source.columns)[axis]]
            settled = [simplify(c) for c in wanted]
            if any(isinstance(c, Const) and not c.value for c in settled):
                names[number] = self.printer.dialect.literal(False, BOOL)  # outside of every block
                continue
            wanted = [c for c, known in zip(wanted, settled, strict=True) if not isinstance(known, Const)]
            if wanted:
                names[number] = f"in_{'yx'[axis]}{number}"
                more, (text,) = emitter.values([both(wanted)])
                lines += [*more, f"const bool {names[number]} = {text};"]
        return lines, names

    def _load(self, name: str, emitter: Emitter, row: int, column: int, guard: str) -> list[str]:
        pointer, dtype = self.printer.params[self.source.number]
        lines, (at,) = emitter.values([self.source.base])
        delta = row * self.source.row_step + column * self.source.column_step
        text = fetch(self.printer, dtype, self.width, pointer, f"{at} + {delta}" if delta else at, value=F32)
        if guard:
            zero = self.printer.dialect.literal(0, F32)
            text = f"{guard} ? {text} : {zero if self.width == 1 else f'({self.ctype})({zero})'}"
        return [*lines, f"const {self.ctype} {name} = {text};"]

    # ---- outputs ----

    def _stores(self, i: int, j: int) -> tuple[list[FlatStore], Expr]:
        """The stores of output (i, j), and the condition under which they write."""
        if (i, j) not in self._known_stores:
            at = self.at | {self.body.outputs[0]: index(i), self.body.outputs[1]: index(j)}
            rewriter = Rewriter(self.kernel.params, at)
            self._known_stores[i, j] = flat_stores(self.kernel.stores, rewriter), rewriter(self.body.where)
        return self._known_stores[i, j]

    def places_shared(self) -> list[Expr]:
        """What the offsets of a block's stores have in common, and their conditions."""
        found: dict[Expr, None] = {}
        size = len(self.body.matrix)
        for i, j in ((0, 0), (size - 1, size - 1)):
            stores, where = self._stores(i, j)
            for t in stores:
                first = simplify(substitute(t.offset, {self.lane: index(0)}))
                found[from_linear(0, linear(first)[1])] = None
            found |= {e: None for e in walk(where) if e.free == {self.point} and e.dtype.is_integer}
        return [e for e in found if self.point in e.free]

    def lines(self, known: Mapping[Expr, str], numbers: Sequence[int]) -> list[str]:
        """The statements that compute and store the lines ``numbers`` of outputs."""
        matrix = self.body.matrix
        mine = [matrix[i] for i in numbers]
        rows = [r for r in range(len(matrix[0])) if any(row[r] for row in mine)]
        columns = [c for c in range(len(matrix[0])) if any(row[c] for row in matrix)]
        emitter = Emitter(self.printer, known, prefix="i")
        text, in_rows = self._conditions(emitter, 0, rows)
        more, in_columns = self._conditions(emitter, 1, columns)
        text = stage("the rows and columns of the inputs that are in the image", [*text, *more])
        shared, loaded = self._of_all_outputs(known)
        text += stage("load what the stores of all outputs read", shared)
        dialect = self.printer.dialect
        for c in columns:
            text += ["", f"// load column {c} of the inputs, and add it up"]
            for r in rows:
                guard = " && ".join(names[k] for names, k in ((in_rows, r), (in_columns, c)) if k in names)
                text += self._load(f"d{r}_{c}", emitter, r, c, guard)
            named, sums = parts_and_sums(dialect, mine, [f"d{r}_{c}" for r in range(len(matrix[0]))], f"p{c}_")
            for i, head, total in zip(numbers, one_by_one(self.ctype, named, sums), sums, strict=True):
                text += [*head, f"const {self.ctype} e{i}_{c} = {total};"]
        for i in numbers:
            text += ["", f"// add up line {i} of the outputs, and store it"]
            named, sums = parts_and_sums(dialect, matrix, [f"e{i}_{c}" for c in range(len(matrix[0]))], f"q{i}_")
            for j, (head, total) in enumerate(zip(one_by_one(self.ctype, named, sums), sums, strict=True)):
                text += head
                if _never(self._stores(i, j)[1]):
                    continue  # of no block
                text += [f"const {self.ctype} y{i}_{j} = {total};"]
                text += self._stored({**known, **loaded}, i, j, loaded)
        return text

    def _of_all_outputs(self, known: Mapping[Expr, str]) -> tuple[list[str], dict[Expr, str]]:
        """Vectors that every output's stores read, a bias say: a block's first output is always there, so they are."""
        times: Counter[Load] = Counter()
        all_of_them = [(i, j) for i in range(len(self.body.matrix)) for j in range(len(self.body.matrix))]
        for i, j in all_of_them:
            times.update(set(wide_loads(self.printer, self._stores(i, j)[0], self.lane, self.width)))
        every = [ld for ld, n in times.items() if n == len(all_of_them) > 1]
        return load_vectors(self.printer, known, every, self.lane, self.width, "n")

    def _stored(self, known: Mapping[Expr, str], i: int, j: int, loaded: Mapping[Expr, str]) -> list[str]:
        stores, where = self._stores(i, j)
        texts = [component(f"y{i}_{j}", k, self.width) for k in range(self.width)]
        results = (self.body.acc, texts)
        lines = store_vectors(self.printer, stores, self.lane, self.width, known, results, f"s{i}_{j}", loaded)
        if isinstance(where, Const) and where.value:
            return lines
        head, (condition,) = Emitter(self.printer, known, prefix=f"w{i}_{j}").values([where])
        return [*head, f"if ({condition}) {{", *(f"  {line}" for line in lines), "}"]


def _never(where: Expr) -> bool:
    return isinstance(where, Const) and not where.value
