"""Runs of a model with memory of their own, for one thread at a time."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, NoReturn

from gpucomp.errors import UsageError
from gpucomp.runtime.executable import Executable, takes_a_feed
from gpucomp.runtime.lanes import Lane, Lanes
from gpucomp.runtime.options import NONE
from gpucomp.runtime.pending import Pending, begin
from gpucomp.runtime.stopping import Stop, stop_after


class Context:
    """Runs of one executable in memory of their own. ``Executable.context`` makes one.

    It is used by one thread at a time. As a context manager, it is closed at the end of the block.
    """

    def __init__(self, executable: Executable) -> None:
        self.executable = executable
        self._lanes: weakref.WeakKeyDictionary[Lanes, Lane] | None = weakref.WeakKeyDictionary()
        self.reset()
        _all.add(self)

    def reset(self) -> None:
        """Make a fresh lock, for a process that was forked."""
        self._busy = threading.Lock()
        vars(self).pop("_thread", None)

    def __repr__(self) -> str:
        return f"<Context of {self.executable!r}>"

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the memory, after the end of all runs that have begun or wait. Later runs raise ``UsageError``."""
        if (thread := vars(self).get("_thread")) is not None:
            thread.shutdown(wait=True)
        with self._busy:
            self._lanes = None

    def lane(self, lanes: Lanes) -> Lane:
        """This context's own among ``lanes``, while a run holds the context."""
        assert self._lanes is not None, "a closed context"
        found = self._lanes.get(lanes)
        if found is None:
            found = self._lanes[lanes] = lanes.new()
        return found

    @takes_a_feed
    def run(
        self,
        inputs: Mapping[str, object],
        *,
        outputs: Mapping[str, object] | str = NONE,
        timeout: float | None = None,
        stream: Any = None,
    ) -> dict[str, Any]:
        """As ``Executable.run``, in this context's memory. Raises ``UsageError`` (GPC2037) if it is closed or in use."""
        if not self._busy.acquire(blocking=False):
            raise UsageError(
                "this context is in use by another run; each thread needs its own: exe.context()", code="GPC2037"
            )
        try:
            return self._run(inputs, outputs, stop_after(timeout), stream)
        finally:
            self._busy.release()

    @takes_a_feed
    def run_async(
        self,
        inputs: Mapping[str, object],
        *,
        outputs: Mapping[str, object] | str = NONE,
        timeout: float | None = None,
    ) -> Pending:
        """As ``Executable.run_async``. Runs of one context happen one after the other, in the order of the calls."""

        def run(stop: Stop) -> dict[str, Any]:
            with self._busy:
                return self._run(inputs, outputs, stop, None)

        if self._lanes is None:
            raise UsageError("this context is closed; a new one expected: exe.context()", code="GPC2037")
        return begin(self._thread, timeout, run)

    @cached_property
    def _thread(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, "gpucomp-context")

    def _run(
        self, inputs: Mapping[str, object], outputs: Mapping[str, object] | str, stop: Stop | None, stream: Any
    ) -> dict[str, Any]:
        if self._lanes is None:
            raise UsageError("this context is closed; a new one expected: exe.context()", code="GPC2037")
        return self.executable._run(inputs, self.executable._wanted(outputs, self, stop, stream))

    def _refuse_call(self, method: str) -> NoReturn:
        self.executable._refuse_call(method)


_all: weakref.WeakSet[Context] = weakref.WeakSet()


def _after_fork() -> None:
    for one in _all:
        one.reset()


os.register_at_fork(after_in_child=_after_fork)
