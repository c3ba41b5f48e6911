"""Compares all engines on one model: outputs against a reference, latencies in turns, memory at the end."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench.cpu.peers import PeerError, Worker
from bench.cpu.worker import INPUTS
from gpucomp.cli.compare import relative_error

# relative L2 error. At f32 Winograd with large tiles stays below this, a wrong result does not. bf16 rounds by up to 2^-8
# of a number between any two layers: dozens of layers add up to some hundredths. In models that multiply bytes a difference in
# the last bit of an f32 becomes one step of a quantization: one such step of 147,456 numbers became 0.15 at the end of an encoder
# of eight layers, while a wrong computation is about 1
TOLERANCE = {"fp32": 1e-3, "bf16": 8e-2, "bytes": 0.25}
OURS, THEIRS = "gpucomp", "onnxruntime"
REST_S = 0.02  # pause between two engines, because their threads spin for a while after a run


@dataclass
class Row:
    """One engine on one model.

    failure    why the engine failed; later fields may then be missing
    rounds_ms  milliseconds of every run, by round
    error      relative L2 error against the reference's outputs
    busy       CPU seconds over wall seconds of its turns; far below the number of threads, others used the machine
    level      what restricted it to some of the processor's instructions; empty: it uses all
    """

    model: str
    peer: str
    threads: int
    failure: str = ""
    version: str = ""
    error: float | None = None
    convert_s: float = 0.0
    load_s: float = 0.0
    rounds_ms: list[list[float]] = field(default_factory=list)
    cpu_s: float = 0.0
    wall_s: float = 0.0
    resident_mb: float | None = None
    peak_mb: float | None = None
    level: str = ""

    @property
    def samples_ms(self) -> list[float]:
        return [ms for one in self.rounds_ms for ms in one]

    @property
    def median_ms(self) -> float | None:
        return statistics.median(self.samples_ms) if not self.failure and self.rounds_ms else None

    @property
    def noise(self) -> float | None:
        """Interquartile range of the rounds' medians over their median."""
        if self.median_ms is None:
            return None
        low, middle, high = np.percentile([statistics.median(one) for one in self.rounds_ms], (25, 50, 75))
        return float((high - low) / middle)

    @property
    def cpu_ms(self) -> float | None:
        """CPU milliseconds of a run, summed over all threads; with one thread, other processes disturb this least."""
        return 1e3 * self.cpu_s / len(self.samples_ms) if self.median_ms is not None else None

    @property
    def busy(self) -> float | None:
        return self.cpu_s / self.wall_s if self.wall_s else None


def ratio(row: Row, ours: Row) -> tuple[float, float, float] | None:
    """First quartile, median and third quartile of the engine's time over ours, by round. Above 1 ours is faster."""
    if row.median_ms is None or ours.median_ms is None:
        return None
    rounds = zip(row.rounds_ms, ours.rounds_ms, strict=False)
    found = [statistics.median(theirs) / statistics.median(mine) for theirs, mine in rounds]
    low, middle, high = np.percentile(found, (25, 50, 75))
    return float(low), float(middle), float(high)


Opens = Callable[[str], tuple[Worker, float]]  # an engine's name to its process, and seconds to convert the model


def compare(
    model: str,
    folder: Path,
    peers: Sequence[str],
    opens: Opens,
    *,
    threads: int,
    rounds: int,
    turn_s: float,
    tolerance: float = TOLERANCE["fp32"],
    expected: Sequence[np.ndarray] | None = None,
    level: Callable[[str], str] = lambda name: "",
) -> list[Row]:
    """One row for each engine, in the order of ``peers``; the first that runs is the reference, unless there is ``expected``.

    ``folder`` has the model and its inputs. The row of an engine that fails has the reason.
    """
    rows = {name: Row(model, name, threads, level=level(name)) for name in peers}
    workers: dict[str, Worker] = {}
    with ExitStack() as stack:
        for name, row in rows.items():
            try:
                worker, row.convert_s = opens(name)
                stack.enter_context(worker)
                outputs = _load(row, worker, folder)
                if expected is None:
                    expected = outputs
                row.error = _error(outputs, expected)
                if not row.error <= tolerance:
                    raise PeerError(f"wrong output: relative L2 error {row.error:.2e}")
                workers[name] = worker
            except PeerError as error:
                row.failure = str(error)
        _take_turns(rows, workers, rounds, turn_s)
        for name, worker in workers.items():
            if not rows[name].failure:
                _ask(rows[name], worker, _memory)
    return list(rows.values())


def _load(row: Row, worker: Worker, folder: Path) -> list[np.ndarray]:
    found = worker.ask(do="load", engine=row.peer, folder=str(folder), threads=row.threads)
    row.version, row.load_s = str(found["version"]), float(found["seconds"])
    to = folder / f"{row.peer}.out.npz"
    worker.ask(do="run", to=str(to))
    with np.load(to) as arrays:
        return [arrays[key] for key in arrays.files]


def _error(outputs: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    """The largest relative L2 error of an output; infinite if the outputs' shapes or number differ."""
    if len(outputs) != len(expected):
        return float("inf")
    # an engine without a batch axis, or with its own layout, may return a result of another rank
    pairs = [(a.reshape(e.shape) if a.size == e.size else a, e) for a, e in zip(outputs, expected, strict=True)]
    return max((relative_error(a, e) for a, e in pairs), default=0.0)


def _take_turns(rows: Mapping[str, Row], workers: Mapping[str, Worker], rounds: int, turn_s: float) -> None:
    """Every engine has a turn in each round; the engine that begins changes from round to round."""
    names = list(workers)
    for number in range(rounds):
        for k in range(len(names)):
            name = names[(number + k) % len(names)]
            if not rows[name].failure:
                time.sleep(REST_S)
                _ask(rows[name], workers[name], lambda row, worker: _turn(row, worker, turn_s))


def _ask(row: Row, worker: Worker, question: Callable[[Row, Worker], None]) -> None:
    try:
        question(row, worker)
    except PeerError as error:
        row.failure = str(error)


def _turn(row: Row, worker: Worker, turn_s: float) -> None:
    found = worker.ask(do="time", seconds=turn_s, least=3)
    row.rounds_ms.append([float(ms) for ms in found["ms"]])
    row.cpu_s += float(found["cpu_s"])
    row.wall_s += float(found["wall_s"])


def _memory(row: Row, worker: Worker) -> None:
    found = worker.ask(do="memory")
    row.resident_mb, row.peak_mb = float(found["resident_mb"]), float(found["peak_mb"])


def write_inputs(folder: Path, inputs: Mapping[str, np.ndarray]) -> None:
    """Write the inputs, in the model's order, to the file that every worker reads."""
    np.savez(folder / INPUTS, **inputs)  # type: ignore[arg-type]
