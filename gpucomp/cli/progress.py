"""Progress: one moving line on a terminal, with what is done, what is left and how long that takes.

In a pipe nothing is shown, or a line now and then.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Protocol

from gpucomp.errors import plain
from gpucomp.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from rich.text import Text

REDRAWN = 4.0  # times a second
BRIEF_S = 1.0  # nothing is foretold of a stage before it has lasted so long


class Report(Protocol):
    """Takes the stage, how many of its parts are done and of how many, and a text to show instead of the stage."""

    def __call__(self, stage: str, done: int, total: int, text: str = "") -> None: ...


@dataclass
class Line:
    """The state of a progress line. ``seconds`` is how long all of it takes, where that is known beforehand."""

    title: str
    seconds: float | None = None
    clock: Callable[[], float] = time.monotonic
    stage: str = ""
    text: str = ""
    done: int = 0
    total: int = 0
    started: float = field(init=False)
    stage_started: float = field(init=False)
    stage_done: int = 0  # when the stage began

    def __post_init__(self) -> None:
        self.started = self.stage_started = self.clock()

    def report(self, stage: str, done: int, total: int, text: str = "") -> None:
        """Note that ``done`` of ``total`` parts are done, which may count earlier stages' too; ``total`` is 0 where nobody
        knows it. ``text`` is shown instead of the stage and may change within it."""
        if stage != self.stage:
            self.stage, self.stage_started, self.stage_done = stage, self.clock(), done
        self.text = text or stage
        self.done, self.total = done, total

    @property
    def left(self) -> float | None:
        """Seconds that are left: of all of it, or of this stage at its speed so far; ``None`` if nothing is known."""
        if self.seconds is not None:
            return max(0.0, self.started + self.seconds - self.clock())
        spent = self.clock() - self.stage_started
        made = self.done - self.stage_done
        if not self.total or made <= 0 or spent < BRIEF_S:
            return None
        return spent / made * max(0, self.total - self.done)

    def __str__(self) -> str:
        # times first: a terminal's width cuts the line at its end
        parts = [f"{self.title}, {self.clock() - self.started:.0f} s"]
        if (left := self.left) is not None:
            of = " of this stage" if self.seconds is None else ""
            parts.append(f"about {left:.0f} s{of} left")
        said = ", ".join(parts)
        if self.text:
            said += f": {self.text}" + (f" {self.done} of {self.total}" if self.total > 1 else "")
        return plain(said)  # names of files and kernels are not the terminal's to obey

    def __rich__(self) -> Text:
        from rich.text import Text

        return Text(str(self), no_wrap=True, overflow="ellipsis")


@contextmanager
def progress(title: str, seconds: float | None = None, *, every: float | None = None) -> Iterator[Report]:
    """Show ``title`` while the block runs. The block can call the yielded function with (stage, done, total).

    The line is redrawn by a thread of its own, so it moves while the block computes. Where stderr is no terminal, it is
    written there each ``every`` seconds, or never.
    """
    line = Line(title, seconds)
    if not sys.stderr.isatty():
        with _written(line, every):
            yield line.report
        return
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner

    spinner = Spinner("dots", text=line)
    with Live(spinner, console=Console(stderr=True), refresh_per_second=REDRAWN, transient=True):
        yield line.report


@contextmanager
def _written(line: Line, every: float | None) -> Iterator[None]:
    if every is None:
        yield
        return
    ended = threading.Event()

    def write() -> None:
        while not ended.wait(every):
            print(line, file=sys.stderr, flush=True)

    thread = threading.Thread(target=write, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
