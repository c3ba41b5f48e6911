"""Runs that go on while their caller does something else."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from gpucomp.runtime.stopping import Stop


class Pending(Future):  # type: ignore[type-arg]
    """The result of a run that ``run_async`` began: a ``concurrent.futures.Future``, which can also be awaited.

    ``result`` gives the outputs, or raises what ``run`` raises. ``cancel`` ends the run between two kernels if it has begun;
    ``result`` then raises ``RunStoppedError``, and ``CancelledError`` if it had not.
    """

    def __init__(self, stop: Stop) -> None:
        super().__init__()
        self._stop = stop

    def cancel(self) -> bool:
        """End the run, or do not begin it. False if it has ended."""
        if super().cancel():
            return True
        self._stop.stop()
        return not self.done()

    def __await__(self) -> Generator[Any, None, dict[str, Any]]:
        import asyncio  # takes longer to import than a small model to load

        return asyncio.wrap_future(self).__await__()


def begin(threads: ThreadPoolExecutor, timeout: float | None, run: Callable[[Stop], dict[str, Any]]) -> Pending:
    """Let one of ``threads`` call ``run``. The timeout counts from now."""
    stop = Stop(timeout)
    pending = Pending(stop)

    def work() -> dict[str, Any]:
        return run(stop) if pending.set_running_or_notify_cancel() else {}

    def ended(done: Future[dict[str, Any]]) -> None:
        if pending.cancelled():
            return
        if (error := done.exception()) is not None:
            pending.set_exception(error)
        else:
            pending.set_result(done.result())

    threads.submit(work).add_done_callback(ended)
    return pending
