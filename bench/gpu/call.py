"""One call of ``python -m bench.gpu``: its options, device and results, and the execution of a stage's jobs."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from bench.gpu import work
from bench.gpu.context import Context, Options
from bench.gpu.results import Results

SAMPLES = ("samples_us", "samples_ms")
HIDDEN = {"samples", "schedule", "candidates", "said", "stages", "launches", "wrong", "refused", "table"}


@dataclass
class Call:
    """``deadline`` is in monotonic seconds; ``device`` is set with ``--inline``; ``wrong`` counts wrong results so far."""

    context: Context
    results: Results
    deadline: float
    log: Path
    device: Any = None
    wrong: int = 0

    def do(self, stage: Any, context: Context, jobs: Sequence[work.Job], deadline: float) -> int:
        """Do those of ``jobs`` that are not done; the number that are left when the time is over."""
        todo, failed = chosen(jobs, self.results, context.options)
        counted: list[bool] = []

        def done(job: work.Job, result: dict[str, Any]) -> None:
            counted.append(bool(result["ok"]))
            print(f"{job.stage} {job.name}: {shown(result)}", file=sys.stderr, flush=True)

        if self.device is not None:
            in_line(stage, context, self.device, todo, self.results, deadline, done)
        else:
            work.WorkerPool(stage, context, todo, self.log, context.options.compilers).run(self.results, deadline, done)
        self.wrong += failed + counted.count(False)
        return len(todo) - len(counted)


def chosen(jobs: Sequence[work.Job], results: Results, options: Options) -> tuple[list[work.Job], int]:
    """The jobs that are not done, and the number of done ones that were wrong."""
    todo, failed = [], 0
    for job in jobs:
        if options.only and not any(fnmatchcase(job.name, pattern) for pattern in options.only):
            continue
        ended = results.ended.get((job.stage, job.name))
        culprit = results.is_culprit(job.stage, job.name)
        if options.again and not ended:
            todo.append(job)
        elif culprit:
            results.end(
                job.stage, job.name, {"ok": False, "error": "it was started twice, and ended the process both times"}
            )
            failed += 1
        elif ended is None:
            todo.append(job)
        else:
            failed += not ended
    return todo, failed


def in_line(
    stage: Any, context: Context, device: Any, jobs: Sequence[work.Job], results: Results, deadline: float, done: Any
) -> None:
    """Do the jobs in this process, for debuggers and for tools that watch a process."""
    for job in jobs:
        if time.monotonic() > deadline:
            return
        results.start(job.stage, job.name)
        given = work.prepared(stage, context, job)
        if "error" in given:
            result = {"ok": False, **given}
        else:
            _, result = work.performed(stage, context, device, job, given)
        results.end(job.stage, job.name, result)
        done(job, result)


def shown(result: Mapping[str, Any]) -> str:
    """A result in words: whether it is right, then its figures; what is long is in the file of results only."""
    figures = {k: v for k, v in result.items() if k != "ok" and k not in HIDDEN and not k.endswith(SAMPLES)}
    return ", ".join(["right" if result["ok"] else "WRONG", *(f"{k} {_words(v)}" for k, v in figures.items())])


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"({', '.join(f'{k} {_words(v)}' for k, v in value.items())})"
    if isinstance(value, (list, tuple)):
        return " ".join(map(_words, value)) or "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
