"""The first call of a graph, beside eager's results."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch

from gpucomp.errors import AccuracyError
from gpucomp.torch.reports import Graph
from gpucomp.torch.settings import Settings

# of the largest number of a result; in 16 bits each operator rounds
_ALLOWED = {torch.float64: 1e-8, torch.float32: 1e-3, torch.float16: 3e-2, torch.bfloat16: 1e-1}
_NARROW = ("fp16", "bf16", "mixed")
log = logging.getLogger(__name__)


class Verified:
    """Calls ``run``, the first time beside ``eager``, without effects. If they differ, ``eager`` is called from then on."""

    def __init__(self, run: Callable[..., Any], eager: Callable[..., Any], settings: Settings, graph: Graph) -> None:
        self._run, self._eager, self._settings, self._graph = run, eager, settings, graph
        self._verified = False

    def __call__(self, *args: Any) -> Any:
        """Raises ``AccuracyError`` (GPC6010) with ``strict`` for other results than eager's."""
        if self._verified:
            return self._run(*args)
        with torch.random.fork_rng(range(torch.cuda.device_count())):  # its random numbers are eager's too
            found = self._run(*args)
        wanted = self._eager(*args)
        if why := self._difference(found, wanted):
            told = f"its results were not eager's: {why}"
            if self._settings.strict:
                raise AccuracyError(f"graph {self._graph.number}: {told}", code="GPC6010")
            log.warning("graph %d stays in eager: %s", self._graph.number, told)
            self._graph.parts.clear()
            self._graph.eager.append(told)
            self._run = self._eager
        self._verified = True
        return wanted

    def _difference(self, found: Any, wanted: Any) -> str:
        for number, (a, b) in enumerate(zip(found, wanted, strict=True)):
            if not isinstance(b, torch.Tensor) or not b.numel():
                continue
            if not b.dtype.is_floating_point:
                if not torch.equal(a, b):
                    return f"result {number} has other whole numbers"
                continue
            allowed = _ALLOWED[torch.bfloat16 if self._settings.precision in _NARROW else b.dtype]
            finite = torch.isfinite(b)
            if not torch.equal(
                a.masked_fill(torch.isfinite(a), 0).nan_to_num(1), b.masked_fill(finite, 0).nan_to_num(1)
            ):
                return f"result {number} has other infinities"
            distance = float((a[finite].double() - b[finite].double()).abs().amax()) if bool(finite.any()) else 0.0
            largest = float(b[finite].double().abs().amax()) if bool(finite.any()) else 0.0
            if distance > allowed * max(largest, 1e-30):
                return f"result {number} differs by {distance:.2g}, its largest number is {largest:.2g}"
        return ""
