"""Calls of the native runner of a CPU program's image."""

from __future__ import annotations

import ctypes

from gpucomp.artifact.elf import Image
from gpucomp.runtime.native import Table
from gpucomp.runtime.workers import Bell

LISTENS = 10_000  # spins after a run, in which a helper listens for the next one: some tenths of a millisecond
DELAY = 200  # spins after the bell, until the thread that rings has given up the interpreter's lock: some microseconds

Notes = tuple[int, ...]  # for each thread, where it notes when it reached and left each launch; empty for no notes
# table, first launch, last launch, context, threads, epoch, notes, loops
Call = tuple[int, int, int, int, int, int, Notes, int]


class Runner:
    """The native runner of one image. It keeps the image in memory as long as it can be called."""

    def __init__(self, image: Image, *, loops: bool) -> None:
        self.image = image
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        arguments = (pointer, number, number, pointer, number, number, number, pointer)
        self._run = ctypes.CFUNCTYPE(None, *arguments)(image.address("gc_run"))
        # machine code of earlier versions lacks what is None
        self._run_loops = ctypes.CFUNCTYPE(None, *arguments, pointer)(image.address("gc_run_loops")) if loops else None
        # with the table, the first and the last launch, the context, the notes and the loops
        self.alone = self.brief = self.sizes = self._begin = self._help = None
        if image.has("gc_help"):
            listening = (pointer, number, number, number)
            self._help = ctypes.CFUNCTYPE(None, *arguments, pointer, *listening)(image.address("gc_help"))
        if image.has("gc_alone"):
            told = (pointer, number, number, pointer, pointer, pointer)
            self.alone = ctypes.CFUNCTYPE(None, *told)(image.address("gc_alone"))
            self.brief = ctypes.PYFUNCTYPE(None, *told)(image.address("gc_alone"))  # keeps the interpreter's lock
        # those below keep the interpreter's lock
        if image.has("gc_begin"):
            # with the table, the first and the last launch, the epoch, its threads, and the table's
            self._begin = ctypes.PYFUNCTYPE(None, pointer, *[number] * 5)(image.address("gc_begin"))
        if image.has("gc_sizes"):  # with the steps, their number, the words and the table
            self.sizes = ctypes.PYFUNCTYPE(number, pointer, number, pointer, pointer)(image.address("gc_sizes"))

    def begin(self, table: Table, first: int, last: int, epoch: int, threads: int) -> None:
        """As ``Table.begin``, in a part of the time. Threads that are late for another run find that it is over."""
        if self._begin is None:
            table.begin(first, last, epoch, threads)
        else:
            self._begin(table.address, first, last, epoch, threads, table.threads)

    def help(self, call: Call, thread: int, bell: Bell) -> None:
        """As ``enter``, and then listen to ``bell`` for a while."""
        if self._help is None:
            self.enter(call, thread)
            return
        table, first, last, context, threads, epoch, notes, loops = call
        given = (table, first, last, context, thread, threads, epoch, notes[thread] if notes else None, loops)
        self._help(*given, bell.address, bell.heard, LISTENS, DELAY)

    def enter(self, call: Call, thread: int) -> None:
        table, first, last, context, threads, epoch, notes, loops = call
        given = (table, first, last, context, thread, threads, epoch, notes[thread] if notes else None)
        if self._run_loops is not None and loops:
            self._run_loops(*given, loops)
        else:
            self._run(*given)
