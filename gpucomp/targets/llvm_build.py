"""Compiles LLVM IR in helper processes, while the caller renders the next kernels.

llvmlite runs one call at a time in a process, so the other processors are used by processes (``llvm_object``). The first is
started when a model is known to have many kernels, the others when enough text waits. A text has the same object wherever it is
compiled.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from gpucomp.targets import llvm_object

HELPED_BYTES = 300_000  # of text; less is compiled before a helper has started


class Build:
    """Texts that are being compiled. Helpers begin at once, and ``objects`` compiles what they have not begun.

    ``arguments`` are those of ``llvm_object.object_of`` behind the text. ``compile`` does the same in this process, and
    raises the right error for a text that LLVM refuses. As a context manager, it ends the helpers.
    """

    def __init__(self, arguments: tuple[str, str, str], helpers: int, compile: Callable[[str], bytes]) -> None:
        self._command = [sys.executable, "-P", llvm_object.__file__, *arguments]
        self._compile = compile
        self._own: list[str] = []  # too little for a helper so far
        self._helpers = helpers
        self._given: dict[str, Future[bytes]] = {}
        self._many = False  # enough for all helpers
        self._processes: list[subprocess.Popen[bytes]] = []
        self._here = threading.local()
        self._pool = ThreadPoolExecutor(helpers, initializer=self._start_helper) if helpers else None

    def __enter__(self) -> Build:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            for process in self._processes:
                process.kill()
            self._pool.shutdown()
        for process in self._processes:
            with suppress(OSError), process:  # closes its pipes and waits for it
                pass

    def start_helper(self) -> None:
        """Start the first helper for what waits so far: it is ready when more comes."""
        self._give(self._own[:1])

    def start(self, text: str) -> None:
        """Compile ``text``, some time later. Equal texts are compiled once."""
        if text in self._given or text in self._own:
            return
        self._own.append(text)
        self._many = self._many or sum(map(len, self._own)) > HELPED_BYTES
        self._give(self._own if self._many else self._for_idle_helpers())

    def objects(self) -> dict[str, bytes]:
        """The objects of all texts. Raises what ``compile`` raises."""
        self._give(self._for_idle_helpers())
        found = {text: self._compile(text) for text in self._own}
        for text in sorted(self._given, key=len, reverse=True):  # the last one that is begun should be a short one
            if self._given[text].cancel():
                found[text] = self._compile(text)
        # a helper tells no reason: what it could not compile raises the right error here
        return found | {t: f.result() or self._compile(t) for t, f in self._given.items() if not f.cancelled()}

    def _for_idle_helpers(self) -> list[str]:
        """What helpers that have started can do next. Further ones would start for little."""
        if self._helpers == 1 and self._given:
            return self._own
        return self._own[: bool(self._given) and all(future.done() for future in self._given.values())]

    def _give(self, texts: Sequence[str]) -> None:
        """Leave ``texts``, which are some of the own ones, to the helpers, if there are any."""
        if self._pool is not None:
            self._given |= {one: self._pool.submit(self._by_helper, one) for one in texts}
            self._own = [one for one in self._own if one not in self._given]

    def _start_helper(self) -> None:
        self._here.process = None
        with suppress(OSError):  # no program can be started here
            process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            self._here.process = process
            self._processes.append(process)

    def _by_helper(self, text: str) -> bytes:
        """The object of ``text``; empty if the helper cannot compile it, or is dead."""
        process = self._here.process
        if process is None:
            return b""
        with suppress(OSError):
            llvm_object.write_frame(process.stdin, text.encode())
            return llvm_object.read_frame(process.stdout) or b""
        return b""
