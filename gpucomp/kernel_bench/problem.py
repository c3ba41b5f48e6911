"""A kernel to measure, with its operands, and what an engine makes of it: something whose calls are timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np

from gpucomp.device.target import Target
from gpucomp.kernel_bench.models import constants
from gpucomp.kernel_bench.specs import Spec
from gpucomp.lazy_dataclass import dataclass
from gpucomp.runtime.ceilings import Ceilings

Flush = Callable[[], object]


@dataclass(frozen=True)
class Problem:
    """One kernel with its operands, for all engines: as numpy arrays, and as a model with those of them that are constants."""

    spec: Spec
    arrays: Mapping[str, np.ndarray]
    model: bytes
    target: Target
    threads: int
    on_processor: bool  # or else on a GPU
    records: Path | None = None

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        """The operands that are no constants."""
        kept = constants(self.spec, self.arrays)
        return {name: array for name, array in self.arrays.items() if name not in kept}


class Ready(Protocol):
    """A kernel that an engine has prepared."""

    def output(self) -> np.ndarray:
        """The result of a call."""
        ...

    def seconds(self, count: int, flush: Flush | None) -> list[float]:
        """Seconds of each of ``count`` calls; ``flush`` empties caches before each."""
        ...


class Replayed:
    """A kernel of which ``replay`` runs one call and gives its seconds, as the graphs of CUDA devices do."""

    def __init__(self, replay: Callable[[], float], output: Callable[[], np.ndarray]) -> None:
        self._replay, self.output = replay, output

    def seconds(self, count: int, flush: Flush | None) -> list[float]:
        found = []
        for _ in range(count):
            if flush is not None:
                flush()
            found.append(self._replay())
        return found


class Called(Replayed):
    """A kernel that is computed when a function returns: this process's clock times it."""

    def __init__(
        self,
        call: Callable[[], object],
        output: Callable[[], np.ndarray],
        ceilings: Callable[[], Ceilings | None] = lambda: None,
    ) -> None:
        super().__init__(partial(_clocked, call), output)
        self.ceilings = ceilings


def _clocked(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin
