"""The time of a run in C beside Python's, on this machine's own processor."""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

from bench.c_models.levels import ROOT, ProgramError, made, python_command, runtime
from bench.c_models.models import MODELS

MOST_RATIO = 1.02
FEWEST_PAIRS = 3  # that decide: one pair of processes alone was off by a quarter, and its rounds agreed
TURN_S = 0.05  # of one program
FEWEST, MOST = 6, 2000  # runs of a turn
WARM = 2  # runs of a turn that do not count: the other program has the caches
WARM_S = 0.5  # of a program that begins: it also tries how many threads pay
REST_S = 0.002  # threads of a program that waits spin for a while
DRAWS = 2000  # of the bootstrap


class Worker:
    """A program that makes runs when it is told, and says how many nanoseconds each took."""

    def __init__(self, *words: str | Path) -> None:
        self._process = subprocess.Popen(
            [str(word) for word in words], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """It ends when its standard input does."""
        with suppress(BrokenPipeError):
            self._process.communicate(timeout=60)

    def times(self, count: int) -> list[int]:
        """The nanoseconds of so many runs. Raises ``ProgramError`` if the program has ended."""
        into, out = self._process.stdin, self._process.stdout
        assert into
        assert out
        with suppress(BrokenPipeError):
            into.write(f"{count}\n")
            into.flush()
        found = [int(word) for word in out.readline().split()]
        if len(found) != count:
            raise ProgramError(f"{self._process.args}: {count} times expected, found {len(found)}")
        return found

    def turn(self, count: int) -> float:
        """The median of so many runs, in microseconds."""
        time.sleep(REST_S)
        return statistics.median(self.times(WARM + count)[WARM:]) / 1e3

    def warm(self) -> float:
        """The seconds of a run, once the program is warm."""
        end = time.monotonic() + WARM_S
        times: list[int] = []
        while time.monotonic() < end or len(times) < 40:
            times += self.times(10)
        return statistics.median(times[-10:]) / 1e9


@dataclass(frozen=True)
class Latency:
    """Microseconds of a run, and the ratio of C's to Python's: the median of all rounds, and where it lies with 95 %."""

    model: str
    threads: int
    c_us: float
    python_us: float
    ratio: float
    low: float
    high: float
    pairs: int
    rounds: int

    @property
    def right(self) -> bool:
        """Not if C is surely slower than it may be."""
        return self.low <= MOST_RATIO or self.pairs < FEWEST_PAIRS

    @property
    def verdict(self) -> str:
        decided = self.high <= MOST_RATIO and self.pairs >= FEWEST_PAIRS
        return "SLOWER" if not self.right else "within" if decided else "not decided"

    def text(self) -> str:
        return (
            f"{self.model:18} {self.threads} threads   C {self.c_us:9.1f} us   Python {self.python_us:9.1f} us   "
            f"ratio {self.ratio:.3f} ({self.low:.3f} to {self.high:.3f})   {self.verdict}"
        )


def interval(ratios: Sequence[Sequence[float]], seed: int = 0) -> tuple[float, float]:
    """Where the median lies with 95 %, by a bootstrap: pairs of processes are drawn, and rounds of each.

    Rounds of one pair have in common where its memory lies, so they alone would make it look too sure.
    """
    rng = np.random.default_rng(seed)
    table = [np.array(one) for one in ratios]
    found = []
    for _ in range(DRAWS):
        pairs = [table[k] for k in rng.integers(0, len(table), len(table))]
        found.append(np.median(np.concatenate([rng.choice(one, len(one)) for one in pairs])))
    low, high = np.percentile(found, [2.5, 97.5])
    return float(low), float(high)


def measure(name: str, threads: int, pairs: int, rounds: int, folder: Path, seed: int) -> Latency:
    """``pairs`` times a process of C and one of Python, which take turns in ``rounds``; who begins alternates."""
    compiled = made(name, "cpu", MODELS[name].sizes[:1], folder, seed)
    c_command = [runtime(), compiled.file, compiled.script, str(threads), "-"]
    python = [*python_command(threads), compiled.file, compiled.script, "-"]
    ratios: list[list[float]] = []
    microseconds: tuple[list[float], list[float]] = ([], [])
    for pair in range(pairs):
        ratios.append([])
        with ExitStack() as stack:
            workers = [stack.enter_context(Worker(*words)) for words in (c_command, python)]
            slowest = max(worker.warm() for worker in workers)
            count = min(max(int(TURN_S / slowest), FEWEST), MOST)
            for number in range(rounds):
                turns = [0.0, 0.0]
                for which in (0, 1) if (pair + number) % 2 == 0 else (1, 0):
                    turns[which] = workers[which].turn(count)
                    microseconds[which].append(turns[which])
                ratios[-1].append(turns[0] / turns[1])
    c_us, python_us = map(statistics.median, microseconds)
    ratio = statistics.median(ratio for one in ratios for ratio in one)
    return Latency(name, threads, c_us, python_us, ratio, *interval(ratios), pairs, rounds)
