"""The numbers of an open plan as steps for native code, see ``gpucomp.ir.size_steps``: from the inputs' shapes to the launches.

``OpenPlan.at`` finds the same numbers in Python, for every device. That takes longer than a small model runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import chain
from typing import Any, cast

import numpy as np

from gpucomp.artifact.formulas import GREATEST, LARGEST, QUOTIENT, SUM
from gpucomp.artifact.open_plan import MOST_BYTES, MOST_GROUPS, MOST_STEPS, OpenPlan, Place, Stacks
from gpucomp.artifact.plan import COUNTER, NUMBERS, OUTPUT, TEMP, WEIGHT, Repeat
from gpucomp.device import processor
from gpucomp.ir import size_steps as op
from gpucomp.ir.dim import Dim
from gpucomp.ir.run_numbers import SHIFT, SIZE
from gpucomp.ir.types import NAMED, STRING
from gpucomp.lazy_dataclass import dataclass
from gpucomp.runtime.estimates import MULTIPLY_ADDS_A_NS
from gpucomp.runtime.inputs import TensorSpec
from gpucomp.runtime.launches import Rows
from gpucomp.runtime.native import CODE, ENTRY_WORDS, TASKS
from gpucomp.runtime.repeats import ADVANCES, COUNT, HOW, MOST_CLAIMS, SMALLEST_SHARED_STEP_NS

LEAST_WORD = -LARGEST - 1
WITHIN_0 = {"<": (LEAST_WORD, -1), "<=": (LEAST_WORD, 0), "==": (0, 0)}  # the numbers that are in this relation to 0
OTHERS = {"<": (0, LARGEST), "<=": (1, LARGEST)}  # those that are not


@dataclass(frozen=True)
class SizeSteps:
    """Steps that turn the extents of all inputs, the first words, into what a run needs.

    words         before the steps: extents of 0, and constants
    arena_at, numbers_at   where the address of the arena, and that of the numbers, is to be given
    numbers       where the numbers of the kernels begin
    arena_bytes   where its size is found
    results       where the first of the words is found that a run reads: the time that threads can share, then for each of
                  ``outputs`` its bytes and its extents
    loops         where the addresses of the launches' loops begin, 0 for those in none
    pointers      the place of each such address, and that of what it is to point to
    late          by the positions of inputs and outputs: where it is found how far behind their beginning each argument points
    outputs       positions of the buffers of those that vary, with their ranks
    ranks         of the inputs
    table         the layout of the table of launches that the steps write into
    """

    steps: np.ndarray
    words: np.ndarray
    arena_at: int
    numbers_at: int
    numbers: int
    arena_bytes: int
    results: int
    loops: int
    pointers: tuple[tuple[int, int], ...]
    late: dict[int, list[int]]
    outputs: tuple[tuple[int, int], ...]
    ranks: tuple[int, ...]
    table: tuple[tuple[int, ...], tuple[int, ...]]


def layout(rows: Rows) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The launches in the table, and where their arguments begin."""
    return tuple(rows.numbers), (*rows.begins, rows.size)


def steps_of(plan: OpenPlan, inputs: Sequence[TensorSpec], rows: Rows) -> SizeSteps | None:
    """The steps, or ``None`` for a plan with host operators, strings or sizes that the inputs' shapes do not tell."""
    form = plan.plan
    temporaries = {k for k, b in enumerate(form.buffers) if b.kind == TEMP}
    told = {dim.name for spec in inputs for dim in spec.shape if isinstance(dim, Dim)}
    if (
        any(launch.kernel < 0 for launch in form.launches)
        or any(b.kind == NUMBERS or b.dtype == STRING.name for b in form.buffers)
        or temporaries & {*form.inputs, *form.outputs}
        or not told.issuperset(plan.formulas.dims)
        or not all(temporaries <= {b for stack in order for b in stack.buffers} for order in plan.orders)
        or (temporaries and not plan.orders)
    ):
        return None
    writer = _Writer(plan, inputs, rows)
    return writer.written() if writer.fits() else None


class _Writer:
    """Writes the steps. Methods return places of words; ``number`` has those of the plan's formulas."""

    def __init__(self, plan: OpenPlan, inputs: Sequence[TensorSpec], rows: Rows) -> None:
        self.plan, self.inputs, self.rows = plan, inputs, rows
        self.ranks = tuple(len(spec.shape) for spec in inputs)
        self.words = [0] * sum(self.ranks)
        self.steps: list[tuple[int, int, int, int, int]] = []
        self.constants: dict[int, int] = {}
        self.found: dict[tuple[int, int, int, int], int] = {}  # words that steps write, by what the steps do
        self.number: list[int] = []
        self.starts: dict[int, int] = {}  # of arguments that a loop uses from its end on, how far behind the beginning
        self.arena_at, self.numbers_at = self.new(), self.new()

    def fits(self) -> bool:
        """Whether all launches are in the table, and no weight or counter is used from the end of a loop on."""
        rows, form = self.rows, self.plan.plan
        kept = {k for k, b in enumerate(form.buffers) if b.kind in (WEIGHT, COUNTER)}
        return len(rows.numbers) == len(form.launches) and not any(
            position in kept and (isinstance(advance, Place) or advance < 0)
            for repeat in form.repeats
            for launch, advances in zip(form.launches[repeat.first : repeat.last], repeat.advances, strict=True)
            for position, advance in zip(launch.args, advances, strict=True)
        )

    def written(self) -> SizeSteps:
        self.read_shapes()
        self.compute_formulas()
        self.require_conditions()
        nbytes, of_shapes = self.compute_bytes()
        arena_bytes, offsets = self.place(nbytes)
        chosen = self.choose()
        numbers, starts = self.write_numbers()
        loops = [self.read_loop(repeat, nbytes) for repeat in self.plan.plan.repeats]
        tasks = self.write_table(chosen, numbers, starts, offsets, loops)
        shared_ns = self.estimate(nbytes, tasks, loops)
        pointers = self.new([0] * len(self.rows.numbers))
        records = [
            (pointers + row, record) for loop in loops for row, record in zip(loop.rows, loop.records, strict=True)
        ]
        zero = self.constant(0)
        late = {k: [self.starts.get(p, zero) for p in places.tolist()] for k, places in self.rows.moving.items()}
        late = {k: places for k, places in late.items() if {*places} != {zero}}
        buffers = self.plan.plan.buffers
        varying = [k for k in self.plan.plan.outputs if k in of_shapes and buffers[k].kind == OUTPUT]
        results = self.gather([shared_ns, *chain(*((of_shapes[k][1], *of_shapes[k][0]) for k in varying))])
        return SizeSteps(
            steps=np.array(sorted(self.steps, key=lambda step: step[0] == op.STORE), np.int64).reshape(-1, op.WORDS),
            words=np.array(self.words, np.int64),
            arena_at=self.arena_at,
            numbers_at=self.numbers_at,
            numbers=numbers,
            arena_bytes=arena_bytes,
            results=results,
            loops=pointers,
            pointers=tuple(records),
            late=late,
            outputs=tuple((k, len(buffers[k].shape)) for k in varying),
            ranks=self.ranks,
            table=layout(self.rows),
        )

    # words and steps

    def new(self, values: Sequence[int] = (0,)) -> int:
        """The place of the first of some new words."""
        self.words += values
        return len(self.words) - len(values)

    def constant(self, value: int) -> int:
        if value not in self.constants:
            self.constants[value] = self.new((value,))
        return self.constants[value]

    def do(self, what: int, a: int, b: int | None = None, c: int | None = None, to: int | None = None) -> int:
        zero = self.constant(0)
        step = what, a, zero if b is None else b, zero if c is None else c
        if to is None and step in self.found:  # no word is written twice
            return self.found[step]
        to = self.new() if to is None else to
        self.steps.append((what, to, *step[1:]))
        if what != op.STORE:
            self.found.setdefault(step, to)
        return to

    def within(self, a: int, low: int, high: int) -> None:
        self.do(op.WITHIN, a, self.constant(low), self.constant(high))

    def plus(self, a: int, b: int, to: int | None = None) -> int:
        return self.do(op.ADD_PRODUCT, a, self.constant(1), b, to)

    def gather(self, places: Sequence[int]) -> int:
        """The place of the first of as many new words, into which the words at ``places`` are copied."""
        block = self.new([0] * len(places))
        for to, place in enumerate(places, block):
            self.plus(place, self.constant(0), to=to)
        return block

    def all_of(self, what: int, places: Sequence[int]) -> int:
        """``LEAST`` or ``GREATEST`` of several."""
        found, *others = dict.fromkeys(places)
        for place in others:
            found = self.do(what, found, place)
        return found

    def product(self, places: Sequence[int], factor: int, start: int) -> int:
        """The word at ``start`` + ``factor`` * the product of the words at ``places``."""
        so_far = self.constant(factor)
        for place in places[:-1]:
            so_far = self.do(op.ADD_PRODUCT, so_far, place)
        return self.do(op.ADD_PRODUCT, so_far, places[-1] if places else self.constant(1), start)

    def at(self, n: Any) -> int:
        """Of a number of the plan."""
        return self.number[n.number] if isinstance(n, Place) else self.constant(n)

    # the parts, in order

    def read_shapes(self) -> None:
        sizes: dict[str, int] = {}
        for place, extent in enumerate(chain(*(spec.shape for spec in self.inputs))):
            if not isinstance(extent, Dim):
                self.within(place, extent, extent)
            elif extent.name in sizes:
                self.do(op.WITHIN, place, sizes[extent.name], sizes[extent.name])
            else:
                sizes[extent.name] = place
                self.within(place, extent.low, extent.high)
                if extent.multiple > 1:
                    self.do(op.EXACT, place, self.constant(extent.multiple))
        self.number = [sizes[name] for name in self.plan.formulas.dims]

    def compute_formulas(self) -> None:
        for step in self.plan.formulas.steps:
            if step[0] == SUM:
                _, start, terms, divisor = step
                found = self.constant(start)
                for factor, places in terms:
                    found = self.product([self.number[p] for p in places], factor, found)
                found = found if divisor == 1 else self.do(op.EXACT, found, self.constant(divisor))
            elif step[0] == QUOTIENT:
                found = self.do(op.QUOTIENT, self.number[step[1]], self.number[step[2]])
            else:
                what = op.GREATEST if step[0] == GREATEST else op.LEAST
                found = self.all_of(what, [self.number[p] for p in step[1]])
            self.number.append(found)

    def require_conditions(self) -> None:
        for place, relation, truth in self.plan.conditions:
            if not truth and relation == "==":
                self.do(op.UNEQUAL, self.number[place])
            else:
                self.within(self.number[place], *(WITHIN_0 if truth else OTHERS)[relation])

    def compute_bytes(self) -> tuple[list[int], dict[int, tuple[list[int], int]]]:
        """The bytes of all buffers, and for those whose shape varies, where the extents and the bytes are."""
        form = self.plan.plan
        counts: chain[Any] = chain(*(kernel.groups for kernel in form.kernels))
        for place in {n.number for n in counts if isinstance(n, Place)}:
            self.within(self.number[place], 0, MOST_GROUPS)
        known: dict[tuple[Any, ...], int] = {}
        nbytes, of_shapes = [], {}
        for position, buffer in enumerate(form.buffers):
            shape: tuple[Any, ...] = buffer.shape
            if not any(isinstance(n, Place) for n in shape):
                nbytes.append(self.constant(buffer.nbytes))
                continue
            extents = [self.at(n) for n in shape]
            itemsize = NAMED[buffer.dtype].nbytes
            if (itemsize, *shape) not in known:
                for n in extents:
                    self.within(n, 0, LARGEST)
                found = known[itemsize, *shape] = self.product(extents, itemsize, self.constant(0))
                self.within(found, 0, MOST_BYTES)
            nbytes.append(known[itemsize, *shape])
            of_shapes[position] = extents, nbytes[-1]
        return nbytes, of_shapes

    def place(self, nbytes: Sequence[int]) -> tuple[int, dict[int, int]]:
        """The bytes of the arena, and the offsets of the temporaries, as ``OpenPlan`` places them."""
        orders = [self._placed(order, nbytes) for order in self.plan.orders]
        if not orders:
            return self.constant(0), {}
        if len(orders) == 1:
            ((arena, offsets),) = orders
        else:
            block = self.gather([end for end, _ in orders])
            which = self.do(op.FIRST_LEAST, self.constant(0), block, self.constant(len(orders)))
            arena = self._of(which, [end for end, _ in orders])
            offsets = {k: self._of(which, [there[k] for _, there in orders]) for k in orders[0][1]}
        self.within(arena, 0, MOST_BYTES)
        return arena, offsets

    def _of(self, which: int, places: Sequence[int]) -> int:
        """The word at number ``which`` of ``places``."""
        return places[0] if len(set(places)) == 1 else self.do(op.AT, which, self.new(places))

    def _placed(self, stacks: Stacks, nbytes: Sequence[int]) -> tuple[int, dict[int, int]]:
        zero, alignment = self.constant(0), self.constant(self.plan.alignment)
        ends: list[int] = []
        offsets: dict[int, int] = {}
        for stack in stacks:
            start = self.all_of(op.GREATEST, [ends[below] for below in stack.above] or [zero])
            most = self.all_of(op.GREATEST, [nbytes[k] for k in stack.buffers])
            offsets |= dict.fromkeys(stack.buffers, start)
            ends.append(self.do(op.ROUNDED_UP, self.plus(most, start), alignment))
        return self.all_of(op.GREATEST, ends or [zero]), offsets

    def choose(self) -> dict[int, tuple[int, tuple[int, ...]]]:
        """For each kernel that has variants, which of them is launched, and which there are."""
        found = {}
        for one in self.plan.choices:
            starts = self.new(one.starts)
            which = self.do(op.PART, self.number[one.points], starts, self.constant(len(one.starts)))
            found[one.kernel] = which, one.kernels
        return found

    def write_numbers(self) -> tuple[int, list[int]]:
        """Where the numbers of all kernels begin, and those of each of them behind that."""
        pairs = [cast(tuple[Any, ...], kernel.numbers) for kernel in self.plan.plan.kernels]
        numbers = self.new([0] * sum(map(len, pairs)))
        known: dict[Any, int] = {}
        for to, (kind, place) in enumerate(chain(*pairs), numbers):
            if kind != SIZE and (kind, place) not in known:
                known[kind, place] = self.do(op.SHIFT if kind == SHIFT else op.MAGIC, self.number[place])
            self.plus(known.get((kind, place), self.number[place]), self.constant(0), to=to)
        starts = np.cumsum([0, *map(len, pairs)]).tolist()
        return numbers, starts

    def write_table(
        self,
        chosen: dict[int, tuple[int, tuple[int, ...]]],
        numbers: int,
        starts: Sequence[int],
        offsets: dict[int, int],
        loops: Sequence[_Loop],
    ) -> list[int]:
        """Write into the table of launches. What it returns are the tasks of each launch."""
        rows, kernels, zero = self.rows, self.plan.plan.kernels, self.constant(0)
        tasks, before = [], []
        any_step = {row: loop.any_step for loop in loops for row in loop.rows}
        for row, kernel in enumerate(rows.kernels):
            which, variants = chosen.get(kernel, (zero, (kernel,)))
            groups: list[Any] = [kernels[k].groups[0] for k in variants]
            tasks.append(self._of(which, [self.at(n) for n in groups]))
            if (wanted := any_step.get(row)) is not None:
                tasks[-1] = self.do(op.ADD_PRODUCT, tasks[-1], wanted)
            before.append(self._of(which, [self.constant(8 * starts[k]) for k in variants]))
            self.do(op.STORE, tasks[-1], to=ENTRY_WORDS * row + TASKS)
            if len(variants) > 1:
                code = self._of(which, [self.constant(rows.codes[kernels[k].name]) for k in variants])
                self.do(op.STORE, code, to=ENTRY_WORDS * row + CODE)
        first = ENTRY_WORDS * len(rows.kernels)
        of_kernel = {kernel: before[many[0]] for kernel, many in rows.of_kernel.items()}
        for argument, kernel in zip(rows.number_places.tolist(), rows.number_kernels.tolist(), strict=True):
            self.do(op.STORE, of_kernel[kernel], self.numbers_at, to=first + argument)
        for argument, position in zip(rows.temporary_places.tolist(), rows.temporary_of.tolist(), strict=True):
            offset = offsets[position]
            offset = self.plus(offset, self.starts[argument]) if argument in self.starts else offset
            self.do(op.STORE, offset, self.arena_at, to=first + argument)
        return tasks

    def read_loop(self, repeat: Repeat, nbytes: Sequence[int]) -> _Loop:
        """Write what the native runner is told of a loop, as ``repeats.LoopTable`` does, but who runs it."""
        form, rows = self.plan.plan, self.rows
        zero, one, before = self.constant(0), self.constant(1), self.constant(repeat.before)
        told, after = self.at(repeat.count), self.at(repeat.after)
        self.within(told, 0, MOST_STEPS)
        self.within(after, 0, MOST_STEPS)
        following = self.plus(told, after)
        steps, following = self.plus(following, before), self.plus(following, self.constant(-1))
        following = self.do(op.GREATEST, following, zero)
        any_step = self.do(op.LEAST, told, one) if isinstance(repeat.count, Place) else None
        count = self.do(op.GREATEST, told, one)
        found = _Loop(range(rows.numbers.index(repeat.first), rows.numbers.index(repeat.last - 1) + 1), count, any_step)
        held = set[int]()
        for row, advances in zip(found.rows, repeat.advances, strict=True):
            args = form.launches[rows.numbers[row]].args
            record = self.new([found.rows.start, found.rows.stop, 0, 0, rows.counts[row], *[0] * rows.counts[row]])
            self.plus(count, zero, to=record + COUNT)
            found.records.append(record)
            found.moved.append({})
            for k, (position, advance) in enumerate(zip(args, advances, strict=True)):
                if not advance:
                    held.add(position)
                    continue
                by = self.at(advance)
                self.plus(by, zero, to=record + ADVANCES + k)
                back = self.do(op.ADD_PRODUCT, by, self.constant(-1))
                found.moved[-1][position] = self.do(op.GREATEST, by, back)
                reach = self.do(op.ADD_PRODUCT, found.moved[-1][position], steps)
                self.do(op.WITHIN, reach, zero, nbytes[position])
                if isinstance(advance, Place) or advance < 0 or repeat.before:
                    lag, lead = self.do(op.GREATEST, back, zero), self.do(op.GREATEST, by, zero)
                    start = self.do(op.ADD_PRODUCT, lead, before)
                    self.starts[rows.begins[row] + k] = self.do(op.ADD_PRODUCT, lag, following, start)
        total = zero
        for position in held:
            total = self.plus(nbytes[position], total)
        found.turns = self.do(op.LESS, self.constant(processor.second_cache()), total)
        return found

    def estimate(self, nbytes: Sequence[int], tasks: Sequence[int], loops: Sequence[_Loop]) -> int:
        """As ``estimates.Costs``, of all launches together. Decide who runs the loops, as ``repeats.loop_of``."""
        moved = {row: there for loop in loops for row, there in zip(loop.rows, loop.moved, strict=True)}
        costs = [self._cost(row, nbytes, tasks[row], moved.get(row, {})) for row in range(len(tasks))]
        total, zero, one = self.constant(0), self.constant(0), self.constant(1)
        for loop in loops:
            step = zero
            for row in loop.rows:
                step = self.plus(costs[row], step)
                costs[row] = zero
            brief = self.do(op.LESS, step, self.constant(int(SMALLEST_SHARED_STEP_NS)))
            claims = self.do(op.ADD_PRODUCT, self.all_of(op.GREATEST, [tasks[row] for row in loop.rows]), loop.count)
            alone = self.do(op.GREATEST, brief, self.do(op.LESS, self.constant(MOST_CLAIMS - 1), claims))
            how = self.do(op.ADD_PRODUCT, loop.turns, self.constant(2), alone)
            for record in loop.records:
                self.plus(how, zero, to=record + HOW)
            several = self.do(op.ADD_PRODUCT, alone, self.constant(-1), one)
            total = self.do(op.ADD_PRODUCT, self.do(op.ADD_PRODUCT, step, loop.count), several, total)
        for cost in costs:
            total = self.plus(cost, total) if cost != zero else total
        return total

    def _cost(self, row: int, nbytes: Sequence[int], tasks: int, moved: Mapping[int, int]) -> int:
        form = self.plan.plan
        launch = form.launches[self.rows.numbers[row]]
        args = list(dict.fromkeys(launch.args))
        sizes = [max(NAMED[form.buffers[k].dtype].nbytes, 1) for k in args]
        pairs = ((moved.get(k, nbytes[k]), size) for k, size in zip(args, sizes, strict=True))
        told = self.new([len(args), *chain(*pairs)])
        of_contraction = form.kernels[launch.kernel].is_contraction
        return self.do(op.COST, tasks, told, self.constant(MULTIPLY_ADDS_A_NS if of_contraction else 0))


@dataclass
class _Loop:
    """A loop of the plan: its rows in the table, the places of its count and of what each row is told of it.

    any_step  the place of 1, or of 0 if no step runs; ``None`` where one always does
    moved   for each row, the places of the bytes that a step uses of the buffers that advance
    turns   the place of whether odd steps go backwards
    """

    rows: range
    count: int
    any_step: int | None
    records: list[int] = field(default_factory=list)
    moved: list[dict[int, int]] = field(default_factory=list)
    turns: int = 0
