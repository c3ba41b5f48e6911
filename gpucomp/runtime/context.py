"""Runs of a model with memory of their own, for one thread at a time."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, NoReturn

import numpy as np

from gpucomp.errors import UsageError
from gpucomp.runtime.calls import takes_a_feed
from gpucomp.runtime.executable import Executable
from gpucomp.runtime.lanes import Lane, Lanes
from gpucomp.runtime.options import NONE, kept
from gpucomp.runtime.pending import Pending, begin
from gpucomp.runtime.states import States
from gpucomp.runtime.stopping import Stop, stop_after


class _Held:
    """Holds a context for a block. Takes a third of the time of a generator, which counts in runs of microseconds."""

    def __init__(self, busy: threading.Lock) -> None:
        self._busy = busy

    def __enter__(self) -> None:
        if not self._busy.acquire(blocking=False):
            raise UsageError(
                "this context is in use by another run; each thread needs its own: exe.context()", code="GPC2037"
            )

    def __exit__(self, *error: object) -> None:
        self._busy.release()


class Context:
    """Runs of one executable in memory of their own. ``Executable.context`` makes one.

    It is used by one thread at a time. As a context manager, it is closed at the end of the block. It holds the states of a model
    that has any (``compile(..., states=...)``): a run goes on from where the one before it ended.
    """

    def __init__(self, executable: Executable) -> None:
        self.executable = executable
        self._lanes: weakref.WeakKeyDictionary[Lanes, Lane] | None = weakref.WeakKeyDictionary()
        self.states = States(executable.states)
        self.make_locks()
        _all.add(self)

    def make_locks(self) -> None:
        """Make a fresh lock, for a process that was forked."""
        self._busy = threading.Lock()
        self._held = _Held(self._busy)
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
            self.states.reset()

    @property
    def rows(self) -> dict[str, int]:
        """How many rows of each state that grows are valid."""
        return dict(self.states.rows)

    def reset(self) -> None:
        """Let the states begin anew, without rows and with zeros. Raises ``UsageError`` (GPC2037) during a run."""
        with self._held:
            self.states.reset()

    def save(self) -> dict[str, np.ndarray]:
        """The states, by the names of their inputs: copies on the host of the rows that are valid. Empty before the first run.

        Raises ``UsageError`` (GPC2037) during a run.
        """
        with self._held:
            return self.states.save()

    def restore(self, saved: Mapping[str, object]) -> None:
        """Go on with states that ``save`` gave, of this or another context of the model, or with others of the right shapes.

        Raises ``InputError`` (GPC2117) for what is no such state, ``UsageError`` (GPC2037) during a run.
        """
        with self._held:
            self.states.restore(saved)

    def rewind(self, rows: int) -> None:
        """Go back to the first ``rows`` of all states, as if the runs since had not been.

        Raises ``UsageError``: GPC2041 if a state does not grow, or has fewer rows; GPC2037 during a run.
        """
        with self._held:
            self.states.rewind(rows)

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
        with self._held:
            return self._run(inputs, outputs, stop_after(timeout), stream)

    @takes_a_feed
    def run_async(
        self,
        inputs: Mapping[str, object],
        *,
        outputs: Mapping[str, object] | str = NONE,
        timeout: float | None = None,
        stream: Any = None,
    ) -> Pending:
        """As ``Executable.run_async``. Runs of one context happen one after the other, in the order of the calls."""

        inputs, outputs = kept(inputs), kept(outputs)

        def run(stop: Stop) -> dict[str, Any]:
            with self._busy:
                return self._run(inputs, outputs, stop, stream)

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
        one.make_locks()


os.register_at_fork(after_in_child=_after_fork)
