"""Waits for a driver's compiler with a time limit, because it may never return. Nothing here knows what it compiles."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

LEAST_S = 60.0  # time limit of a compilation, whatever the compiler was given
KERNEL_S = 15.0  # added for each kernel: Intel's compiler took four seconds for what takes others one
LOOK_S = 0.2  # how often the result is polled
BUSY = 10  # factor on the limit in wall-clock time, for a machine that is busy with other work
MOST_LEFT = 3  # abandoned compilations; some drivers compile one at a time, so that later ones would wait for the first
_left: list[Future[Any]] = []


def patiently(work: Callable[[], Any], kernels: int) -> Any:
    """Run ``work`` in a thread; return its result or raise its error. ``TimeoutError`` after the time limit for ``kernels``.

    A compilation cannot be cancelled. After the limit it is abandoned in a daemon thread, which ends with the process and does
    not delay Ctrl-C. Once ``MOST_LEFT`` are abandoned and still running, nothing more is compiled.
    """
    if sum(not other.done() for other in _left) >= MOST_LEFT:
        raise TimeoutError(
            f"the driver's compiler hangs in {MOST_LEFT} compilations, so this process does not call it again"
        )
    done: Future[Any] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    limit_s, began, used = LEAST_S + KERNEL_S * kernels, time.monotonic(), time.process_time()
    threading.Thread(target=run, name="a driver's compiler", daemon=True).start()
    while not wait([done], timeout=LOOK_S).done:
        waited_s = time.monotonic() - began
        if waited_s > limit_s and (time.process_time() - used > limit_s or waited_s > BUSY * limit_s):
            _left.append(done)
            raise TimeoutError(f"the driver's compiler was not done after {waited_s:.0f} s")
    return done.result()
