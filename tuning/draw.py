"""A kernel's candidates of all engines, drawn at random where they are too many to list, and a sampler that takes them so."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from gpucomp.tuning.tasks import Candidate, Task

WHOLE = 4096
DRAWS = 40_000


class Table:
    """Legal candidates by row; the default is row 0."""

    def __init__(self, task: Task, seed: int = 0) -> None:
        found = {task.default.key: task.default}
        draw = random.Random(seed)
        for family in task.engines:
            problem, limits = task.problem(family), task.target.limits
            if math.prod(len(p.choices) for p in family.params) <= WHOLE:
                schedules = list(family.legal(problem, limits))
            else:
                drawn = ({p.name: draw.choice(p.choices) for p in family.params} for _ in range(DRAWS))
                schedules = [s for s in drawn if not family.reasons(s, problem, limits)][:WHOLE]
            for schedule in schedules:
                candidate = Candidate(family, schedule)
                found.setdefault(candidate.key, candidate)
        self.rows: Sequence[Candidate] = list(found.values())
        self._number = {key: row for row, key in enumerate(found)}

    def __len__(self) -> int:
        return len(self.rows)

    def candidate(self, row: int) -> Candidate:
        return self.rows[row]

    def row(self, key: tuple[str, tuple[tuple[str, int], ...]]) -> int | None:
        return self._number.get(key)


class Random:
    def __init__(self, table: Table, seed: int) -> None:
        self._left = list(range(len(table)))
        random.Random(seed).shuffle(self._left)
        self._seen: set[int] = set()

    def ask(self, count: int) -> list[int]:
        found: list[int] = []
        while self._left and len(found) < count:
            row = self._left.pop()
            if row not in self._seen:
                found.append(row)
                self._seen.add(row)
        return found

    def tell(self, point: int, seconds: float | None) -> None:
        self._seen.add(point)
