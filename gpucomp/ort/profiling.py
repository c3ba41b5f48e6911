"""The profile of a session, in the form that chrome://tracing and Perfetto read, as onnxruntime writes it."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from gpucomp.runtime.executable import Executable

US = 1_000_000
_numbers = itertools.count(1)  # of the profiles of this process
Work = Callable[[Executable, Mapping[str, Any]], Any]


class Profile:
    """The time of each run. ``written`` runs the last one's inputs again to find the time of each kernel."""

    def __init__(self, prefix: str) -> None:
        self.began_ns = time.perf_counter_ns()
        self._file = f"{prefix}_{time.strftime('%Y-%m-%d_%H-%M-%S')}_{os.getpid()}_{next(_numbers)}.json"
        self._events: list[dict[str, Any]] = []
        self._last: tuple[Executable, dict[str, Any]] | None = None

    def noted(self, work: Work) -> Work:
        """``work``, whose time becomes an event."""

        def timed(exe: Executable, feed: Mapping[str, Any]) -> Any:
            begin = time.perf_counter_ns()
            found = work(exe, feed)
            self._note("Session", "model_run", begin, time.perf_counter_ns() - begin, {})
            self._last = exe, dict(feed)
            return found

        return timed

    def _note(self, kind: str, name: str, begin_ns: int, length_ns: float, told: Mapping[str, Any]) -> None:
        self._events.append(
            {
                "cat": kind,
                "pid": os.getpid(),
                "tid": os.getpid(),
                "ts": (begin_ns - self.began_ns) / 1000,
                "dur": length_ns / 1000,
                "ph": "X",
                "name": name,
                "args": dict(told),
            }
        )

    def written(self) -> str:
        """The name of the file, which is written now. Raises gpucomp's errors if the last run cannot be done again."""
        if self._last is not None:
            exe, feed = self._last
            at = time.perf_counter_ns()
            for kernel, seconds in exe.profile(feed):
                told = {"op_name": kernel.label or kernel.name, "engine": kernel.family, "provider": exe.target}
                self._note("Node", f"{kernel.name}_kernel_time", at, seconds * 1e9, told)
                at += int(seconds * 1e9)
        with open(self._file, "w", encoding="utf-8") as file:
            json.dump(self._events, file, indent=1)
        return self._file
