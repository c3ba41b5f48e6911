"""Waiting for a driver's compiler, which may never be done. Nothing here knows what it compiles."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

LEAST_S = 60.0  # for a compiler to be done in, whatever it was given
KERNEL_S = 15.0  # more for each kernel: what takes a second elsewhere took Intel's compiler four
LOOK_S = 0.2  # how often is looked whether it is
BUSY = 10  # times as long by the clock, where the machine does something else meanwhile
MOST_LEFT = (
    3  # compilations left behind: some drivers compile one at a time, and all that follow would wait for the first
)
_left: list[Future[Any]] = []


def patiently(work: Callable[[], Any], kernels: int) -> Any:
    """What ``work`` returns or raises; ``TimeoutError`` when it is not done in the time that a compiler has for ``kernels``.

    A compiler in this process cannot be ended: it is left behind in a thread that goes when the process does, and that
    keeps nobody who interrupts the process waiting. While ``MOST_LEFT`` are, no more is waited for.
    """
    if sum(not other.done() for other in _left) >= MOST_LEFT:
        raise TimeoutError(f"the driver's compiler has not ended {MOST_LEFT} compilations, and is given no more")
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
            raise TimeoutError(f"the driver's compiler was not done after {waited_s:.0f} s, and is left behind")
    return done.result()
