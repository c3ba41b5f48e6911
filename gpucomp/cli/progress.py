"""Progress on stderr: a bar on a terminal, else a plain line for whatever takes over two seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE_S = 2.0

Report = Callable[[str, int, int], None]


@contextmanager
def progress(title: str) -> Iterator[Report]:
    """Show ``title`` while the block runs. The block can call the yielded function with (stage, done, total)."""
    with _bar(title) if sys.stderr.isatty() else _lines(title) as report:
        yield report


@contextmanager
def _bar(title: str) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(24))
    console = Console(stderr=True)
    with Progress(*columns, MofNCompleteColumn(), TimeElapsedColumn(), console=console, transient=True) as bars:
        task = bars.add_task(title, total=None)
        yield lambda stage, done, total: bars.update(
            task, description=f"{title}: {stage}", completed=done, total=total or None
        )


@contextmanager
def _lines(title: str) -> Iterator[Report]:
    started = time.monotonic()
    state = ["", 0, 0]
    done = threading.Event()

    def speak() -> None:
        while not done.wait(PATIENCE_S):
            stage, count, total = state
            what = f": {stage}" if stage else ""
            if total:
                what += f" {count} of {total}"
            print(f"{title}{what} ({time.monotonic() - started:.0f} s)", file=sys.stderr, flush=True)

    def report(stage: str, count: int, total: int) -> None:
        state[:] = stage, count, total

    speaker = threading.Thread(target=speak, name="progress", daemon=True)
    speaker.start()
    try:
        yield report
    finally:
        done.set()
        speaker.join()
