"""A finite search space as a table of its legal points. No search is here, and no point that cannot run."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from gpucomp.device.limits import Limits
from gpucomp.errors import ScheduleError, UsageError
from gpucomp.kernel.sizes import Sizes
from gpucomp.schedule import points
from gpucomp.schedule.space import Family, Schedule
from gpucomp.tuning.encoding import Encoding, encode

ENUMERATED = 300_000  # spaces up to this size are enumerated; larger ones are sampled
SAMPLED = 20_000  # legal points of a sampled space
CENTRES = 24  # points whose neighbourhood is searched, on a processor where only light neighbours are kept
TRIES = 6  # random combinations for each point of the sample, and as many random steps after that
LARGEST_CODE = 1 << 62


class Candidates:
    """A table of legal points: ``values`` is int64 [points, parameters]. A point is named by its row number.

    extents    sizes of the problem, for the encoding's divisibility features
    derived    further columns, float [points] each: values that a family computes from a schedule, or an analytic model's
               estimate; the encoding drops constant ones
    categories parameters whose values are names and not sizes, such as the number of an engine
    default    the row of the schedule of an untuned build, if it is in the table
    leading    the rows that an analytic model predicts to be fastest, the fastest first
    expected   float [points]: the expected time of each point, of which only the order counts; the smallest comes first
    error      the deviation of the logarithm of measured over expected times, where a model knows how far it may be off: the
               expected times' ratios count then

    Raises ``UsageError`` for a table with repeated rows, or whose shape does not fit the names.
    """

    def __init__(
        self,
        names: Sequence[str],
        values: np.ndarray,
        *,
        extents: Sequence[int] = (),
        derived: Mapping[str, np.ndarray] | None = None,
        categories: Iterable[str] = (),
        default: int | None = None,
        leading: Sequence[int] = (),
        expected: np.ndarray | None = None,
        error: float | None = None,
    ) -> None:
        self.names = tuple(names)
        self.values = np.ascontiguousarray(values, dtype=np.int64).reshape(-1, len(self.names))
        self.extents = tuple(int(e) for e in extents if e > 1)
        self.derived = dict(derived or {})
        self.categories = frozenset(categories)
        self.default = default
        self.leading = tuple(leading)
        self.expected = expected
        self.error = error
        if len(set(self.names)) != len(self.names):
            raise UsageError(f"parameters {sorted(self.names)}: a name appears twice")
        if any(len(column) != len(self) for column in self.derived.values()):
            raise UsageError(f"derived columns of {len(self)} points expected")
        self._index  # noqa: B018  refuses a table with repeated rows now, not in the middle of a search

    @classmethod
    def from_family(
        cls,
        family: Family,
        problem: Sizes,
        limits: Limits,
        *,
        most: int = SAMPLED,
        seed: int = 0,
        leading: Sequence[Schedule] = (),
        expect: Callable[[np.ndarray], np.ndarray | None] = lambda values: None,
        error: float | None = None,
    ) -> Candidates:
        """The schedules of ``family`` that can run, or a sample of about ``most`` of them.

        The family's default is always included and becomes ``default``; if it is not legal here, there is none. The
        ``leading`` schedules, which are legal, are included too. A space of up to ``ENUMERATED`` combinations is enumerated,
        and points that differ from the default or a leading schedule in a single parameter are always kept. The derived
        columns are the launch, the work of a group, and the engine's estimate.

        ``expect`` returns the expected times of a table of schedules, which are off by ``error``. If it returns None, points
        are expected to be the slower the more they differ from the default. An engine's own estimate is not used for this: it
        is made for a short list that the default is the best of. Beyond that list it ignores register pressure, and it prefers
        schedules that are ten times slower.
        """
        names = [p.name for p in family.params]
        size = points.size(family)
        default = dict(family.default(problem, limits).numbers)
        start = [] if family.reasons(default, problem, limits) else [default]
        if size > ENUMERATED:
            legal = _drawn(family, problem, limits, size, most, seed)
        else:
            table = points.legal(family, problem, limits)
            kept = _thinned(table, [[s[n] for n in names] for s in (*start, *leading)], most)
            legal = [dict(zip(names, row, strict=True)) for row in kept.tolist()]
        rows = {tuple(s[n] for n in names): s for s in (*legal, *start, *leading)}
        number = {key: row for row, key in enumerate(rows)}
        values = np.array(list(rows), np.int64).reshape(-1, len(names))
        derived = derived_columns(family, list(rows.values()), problem, limits)
        row = number[tuple(default[n] for n in names)] if start else None
        fastest = [number[tuple(s[n] for n in names)] for s in leading]
        expected = expect(values)
        if expected is None:
            error = None
        if expected is None and row is not None:
            heavier = _heavier(family, list(rows.values()), problem, row) if limits.is_cpu else np.zeros(len(values))
            expected = (values != values[row]).sum(1) + len(names) * heavier
        return cls(
            names,
            values,
            extents=tuple(problem.numbers.values()),
            derived=derived,
            default=row,
            leading=fastest,
            expected=expected,
            error=error,
        )

    def __len__(self) -> int:
        return len(self.values)

    def schedule(self, point: int) -> dict[str, int]:
        return dict(zip(self.names, map(int, self.values[point]), strict=True))

    def schedules(self) -> Iterator[dict[str, int]]:
        return (self.schedule(point) for point in range(len(self)))

    def find(self, schedule: Mapping[str, int]) -> int | None:
        """The row of ``schedule``, or None if it is not one of the points."""
        if set(schedule) != set(self.names):
            return None
        code = 0
        for name, levels, stride in zip(self.names, self.levels, self._strides, strict=True):
            level = int(np.searchsorted(levels, schedule[name]))
            if level == len(levels) or levels[level] != schedule[name]:
                return None
            code += level * stride
        found = self._rows(np.array([code]))
        return int(found[0]) if found[0] >= 0 else None

    def find_all(self, values: np.ndarray) -> np.ndarray:
        """The rows of the points ``values`` [count, parameters], -1 for one that is not in the table."""
        ordinals = np.empty(values.shape, np.int64)
        known = np.ones(len(values), bool)
        for j, levels in enumerate(self.levels):
            ordinals[:, j] = np.minimum(np.searchsorted(levels, values[:, j]), len(levels) - 1)
            known &= levels[ordinals[:, j]] == values[:, j]
        return np.where(known, self._rows(ordinals @ self._strides), -1)

    def neighbours(self, point: int, *, adjacent: bool = False) -> np.ndarray:
        """Rows that differ from ``point`` in one parameter; with ``adjacent`` only by one step to the next legal value."""
        own, code = self.ordinals[point], self._codes[point]
        found = []
        for j, levels in enumerate(self.levels):
            others = np.delete(np.arange(len(levels)), own[j])
            rows = self._rows(code + (others - own[j]) * self._strides[j])
            if adjacent:
                below, above = rows[: own[j]], rows[own[j] :]
                rows = np.concatenate([below[below >= 0][-1:], above[above >= 0][:1]])
            found.append(rows[rows >= 0])
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def nearest(self, places: np.ndarray, among: np.ndarray) -> np.ndarray:
        """The rows of ``among`` nearest to ``places``, float [parameters]: positions among each parameter's levels.

        The distance is L1 with every parameter's range scaled to 1; two different names have distance 1.
        """
        spans = np.maximum([len(levels) - 1 for levels in self.levels], 1)
        distance = np.abs(self.ordinals[among] - places)
        named = [j for j, name in enumerate(self.names) if name in self.categories]
        distance[:, named] = spans[named] * (distance[:, named] > 0)
        total = (distance / spans).sum(1)
        return np.asarray(among[total <= total.min() * (1 + 1e-9)])

    @cached_property
    def levels(self) -> tuple[np.ndarray, ...]:
        """The values that each parameter takes here, in rising order."""
        return tuple(np.unique(column) for column in self.values.T)

    @cached_property
    def ordinals(self) -> np.ndarray:
        """int32 [points, parameters]: the position of each value among its parameter's levels."""
        columns = [np.searchsorted(levels, column) for levels, column in zip(self.levels, self.values.T, strict=True)]
        return np.array(columns, np.int32).T.reshape(self.values.shape)

    @cached_property
    def encoding(self) -> Encoding:
        """The points as features for a model."""
        return encode(self.names, self.values, self.extents, self.derived, self.categories)

    @cached_property
    def _strides(self) -> np.ndarray:
        counts = [max(len(levels), 1) for levels in self.levels]
        if math.prod(counts) >= LARGEST_CODE:
            raise UsageError(f"a space of {math.prod(counts):.1e} combinations: the limit is {LARGEST_CODE:.1e}")
        return np.array([math.prod(counts[j + 1 :]) for j in range(len(counts))], np.int64)

    @cached_property
    def _codes(self) -> np.ndarray:
        return np.asarray(self.ordinals.astype(np.int64) @ self._strides)

    @cached_property
    def _index(self) -> tuple[np.ndarray, np.ndarray]:
        order = np.argsort(self._codes, kind="stable")
        codes = self._codes[order]
        if (codes[1:] == codes[:-1]).any():
            raise UsageError("a search space with a repeated point")
        return codes, order

    def _rows(self, codes: np.ndarray) -> np.ndarray:
        known, order = self._index
        if not len(known):
            return np.full(len(codes), -1)
        at = np.minimum(np.searchsorted(known, codes), len(known) - 1)
        return np.where(known[at] == codes, order[at], -1)


def _drawn(family: Family, problem: Sizes, limits: Limits, size: int, most: int, seed: int) -> list[Schedule]:
    """Up to ``most`` legal schedules, each once: those near the default, random combinations, random steps from legal ones.

    Near are those that differ from it in one parameter or two, half of all at most: chance finds few of them. On a
    processor that plays work-items one by one these are only those that weigh no more than it (``_weight``), with those
    near to them in turn. Where one combination in a hundred is legal, steps in one parameter find in seconds what chance
    would not. All are bounded, and the default is where the steps may start from too.
    """
    draw = _Draw(family, problem, limits, np.random.default_rng(seed))
    draw.near_default(max(1, most // 2))
    draw.by_chance(size, most)
    draw.by_steps(most)
    return list(draw.found.values())


class _Draw:
    """Legal combinations by their numbers, the last parameter fastest, and what was drawn and is not legal."""

    def __init__(self, family: Family, problem: Sizes, limits: Limits, rng: np.random.Generator) -> None:
        self.family, self.problem, self.limits, self.rng = family, problem, limits, rng
        self.counts = [len(p.choices) for p in family.params]
        self.strides = [math.prod(self.counts[j + 1 :]) for j in range(len(self.counts))]
        self.found: dict[int, Schedule] = {}
        self.refused: set[int] = set()

    def consider(self, number: int) -> None:
        if number in self.found or number in self.refused:
            return
        schedule = {p.name: p.choices[place] for p, place in zip(self.family.params, self._places(number), strict=True)}
        if self.family.reasons(schedule, self.problem, self.limits):
            self.refused.add(number)
        else:
            self.found[number] = schedule

    def _places(self, number: int) -> list[int]:
        """Which of its choices each parameter takes."""
        return [number // stride % count for stride, count in zip(self.strides, self.counts, strict=True)]

    def near_default(self, most: int) -> None:
        params = self.family.params
        default = self.family.default(self.problem, self.limits).numbers
        if not all(default.get(p.name) in p.choices for p in params):
            return
        start = sum(p.choices.index(default[p.name]) * stride for p, stride in zip(params, self.strides, strict=True))
        self.consider(start)
        limit = _weight(self.family, default, self.problem)
        centres = [start]
        for centre in itertools.islice(centres, CENTRES if self.limits.is_cpu else 1):  # which grow meanwhile
            for number in self._around(centre):
                if len(self.found) >= most or number in self.found:
                    continue
                self.consider(number)
                if self.limits.is_cpu and number in self.found:
                    if self._is_heavier(number, limit):
                        del self.found[number]
                    else:
                        centres.append(number)

    def _around(self, centre: int) -> Iterator[int]:
        """The combinations that differ from ``centre`` in one parameter, then those in two, at random."""
        steps = [
            [(k - place) * stride for k in range(count) if k != place]
            for place, stride, count in zip(self._places(centre), self.strides, self.counts, strict=True)
        ]
        one = [step for each in steps for step in each]
        two = [a + b for j, each in enumerate(steps) for a in each for later in steps[j + 1 :] for b in later]
        return (centre + offset for offset in (*one, *self.rng.permutation(two).tolist()))

    def _is_heavier(self, number: int, limit: tuple[int, int, int]) -> bool:
        weight = _weight(self.family, self.found[number], self.problem)
        return any(x > y for x, y in zip(weight, limit, strict=True))

    def by_chance(self, size: int, most: int) -> None:
        for number in self.rng.integers(size, size=TRIES * most).tolist():
            if len(self.found) >= most:
                return
            self.consider(number)

    def by_steps(self, most: int) -> None:
        """Random steps in one parameter, from any legal combination."""
        rng, counts, strides = self.rng, self.counts, self.strides
        legal = list(self.found)
        for _ in range(TRIES * most if legal else 0):
            if len(self.found) >= most:
                return
            start = legal[int(rng.integers(len(legal)))]
            j = int(rng.integers(len(counts)))
            level = start // strides[j] % counts[j]
            to = int(rng.integers(counts[j])) if rng.random() < 0.5 else level + int(rng.choice((-1, 1)))
            if not 0 <= to < counts[j]:
                continue
            number = start + (to - level) * strides[j]
            known = len(self.found)
            self.consider(number)
            if len(self.found) > known:
                legal.append(number)


def _thinned(table: np.ndarray, around: Sequence[Sequence[int]], most: int) -> np.ndarray:
    """``most`` rows of [rows, parameters], and all rows that differ from one of ``around`` in at most one place.

    The sample does not depend on the seed, so that a search finds the points of an earlier search in its table.
    """
    if len(table) <= most:
        return table
    kept = np.zeros(len(table), bool)
    kept[np.random.default_rng(0).choice(len(table), most, replace=False)] = True
    for point in around:
        kept |= np.count_nonzero(table != np.array(point), 1) <= 1
    return table[kept]


def _weight(family: Family, point: Schedule, problem: Sizes) -> tuple[int, int, int]:
    """Work-items, registers and workspace. A processor that runs work-items one by one needs few of each.

    Work-items that meet at barriers are compiled without optimisation there, register spilling makes a compilation take
    minutes, and splitting a sum gains nothing.
    """
    schedule = family.schedule(point)
    try:
        launch = family.geometry(schedule, problem)
        registers = family.registers(schedule, problem) if family.registers is not None else 0
    except ScheduleError:
        return LARGEST_CODE, LARGEST_CODE, LARGEST_CODE  # the family's own formulas refuse it
    return math.prod(launch.items), registers, launch.workspace_bytes


def _heavier(family: Family, points: Sequence[Schedule], problem: Sizes, default: int) -> np.ndarray:
    """int [points]: in how many of the three parts of ``_weight`` each point exceeds the default."""
    weights = np.array([_weight(family, point, problem) for point in points], float)
    return np.asarray((weights > weights[default]).sum(1))


def derived_columns(
    family: Family, points: Sequence[Schedule], problem: Sizes, limits: Limits
) -> dict[str, np.ndarray]:
    """What a family computes from schedules, for an encoding: the launch, the work of a group, and the engine's estimate."""
    columns: dict[str, list[float]] = {}
    for number, point in enumerate(points):
        schedule = family.schedule(point)
        try:
            geometry = family.geometry(schedule, problem)
            facts: dict[str, float] = {
                "groups": math.prod(geometry.groups),
                "items": math.prod(geometry.items),
                "shared_bytes": geometry.dynamic_shared_bytes,
            }
            if (work_of := family.work_with(limits.subgroups)) is not None:
                work = work_of(schedule, problem)
                facts |= {"macs": work.macs, "cache_bytes": work.cache_bytes, "steps": work.steps}
            if family.estimate is not None:
                facts["estimate"] = family.estimate(schedule, problem, limits)
        except ScheduleError:
            facts = {}  # the family's own formulas refuse a legal schedule: it is measured without them
        for name, value in facts.items():
            if name not in columns:
                columns[name] = [math.nan] * number
            columns[name].append(float(value))
        for column in columns.values():
            column.extend([math.nan] * (number + 1 - len(column)))
    return {name: np.array(column) for name, column in columns.items()}
