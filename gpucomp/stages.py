"""How long each stage of a compilation takes, for ``GPUCOMP_DEBUG`` and for ``bench.compile_time``."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from gpucomp import config

Progress = Callable[[str, int, int], None]


class Stage(NamedTuple):
    """Seconds of wall time, and of all processors together."""

    name: str
    wall: float
    cpu: float


class Stages:
    """A ``progress`` callback that also notes when the stage changes; it hands every call on to ``tell``."""

    def __init__(self, tell: Progress | None = None) -> None:
        self._tell = tell
        self._marks = [("start", *_now())]
        self._helped = _of_helpers()

    def __call__(self, stage: str, done: int, total: int) -> None:
        if self._marks[-1][0] != stage:
            self._marks.append((stage, *_now()))
        if self._tell is not None:
            self._tell(stage, done, total)

    def until_now(self) -> list[Stage]:
        """The stages in order, ``start`` first; one that came several times has the sum.

        The last are ``helpers``, processes that compile beside the stages, if any has ended.
        """
        found: dict[str, Stage] = {}
        for (name, wall, cpu), (_, next_wall, next_cpu) in zip(
            self._marks, [*self._marks[1:], ("", *_now())], strict=True
        ):
            before = found.get(name, Stage(name, 0.0, 0.0))
            found[name] = Stage(name, before.wall + next_wall - wall, before.cpu + next_cpu - cpu)
        helped = _of_helpers() - self._helped
        return [*found.values(), *([Stage("helpers", 0.0, helped)] if helped else [])]


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _of_helpers() -> float:
    spent = os.times()
    return spent.children_user + spent.children_system


@contextmanager
def watched(tell: Progress) -> Iterator[Progress]:
    """What a compilation calls instead of ``tell``: with ``GPUCOMP_DEBUG``, a table of the stages is printed at its end."""
    if not config.current().debug:
        yield tell
        return
    stages = Stages(tell)
    yield stages
    print(table(stages.until_now()), file=sys.stderr)


def table(stages: list[Stage]) -> str:
    """``rewrite       0.312 s  cpu  0.41 s`` for each stage, and their sum."""
    total = Stage("all stages", sum(s.wall for s in stages), sum(s.cpu for s in stages))
    return "\n".join(f"{s.name:20} {s.wall:8.3f} s  cpu {s.cpu:7.2f} s" for s in (*stages, total))
