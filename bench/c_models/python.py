"""Runs a .gpuc file in Python, as runtime.c does in C: ``python -m bench.c_models.python FILE SCRIPT RESULTS``.

With ``-`` as RESULTS it waits for numbers on its standard input, each on a line, makes the first run of the script so many times,
and prints their nanoseconds on a line. ``--emulated``: the code is for aarch64, and an emulator runs it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

import gpucomp
from bench.c_models import script


def runs(exe: Any, path: Path) -> Iterator[list[np.ndarray]]:
    """The outputs of each run of the script."""
    context = exe.context()
    dtypes = [spec.type.dtype.numpy for spec in exe.inputs]
    for anew, arrays, shapes in script.read(path, dtypes):
        if anew and exe.states:
            context.reset()
        feed = dict(zip((spec.name for spec in exe.inputs), arrays, strict=True))
        found = context.run(feed)
        outputs = [np.ascontiguousarray(found[spec.name]) for spec in exe.outputs]
        if [array.shape for array in outputs] != shapes:
            sys.exit(f"outputs of {shapes} expected, found {[array.shape for array in outputs]}")
        yield outputs


def first(exe: Any, path: Path) -> Callable[[], Any]:
    """The first run of the script as a program does it that runs it often: with arrays of its own for the outputs."""
    dtypes = [spec.type.dtype.numpy for spec in exe.inputs]
    _, arrays, shapes = next(script.read(path, dtypes))
    feed = {spec.name: array.copy() for spec, array in zip(exe.inputs, arrays, strict=True)}
    made = {s.name: np.empty(n, s.type.dtype.numpy) for s, n in zip(exe.outputs, shapes, strict=True)}
    run = exe.context().run if exe.states else exe.run
    return lambda: run(feed, outputs=made)


def serve(run: Callable[[], Any]) -> None:
    now = time.perf_counter_ns
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            begin = now()
            run()
            times.append(now() - begin)
        print(*times, flush=True)


def main(arguments: Sequence[str]) -> None:
    file, path, to = arguments[:3]
    if "--emulated" in arguments:
        from testing.arm64 import emulated  # needs unicorn

        how: Any = emulated()
    else:
        how = nullcontext()
    with how:
        exe = gpucomp.load(file)
        if to == "-":
            serve(first(exe, Path(path)))
        else:
            every = list(runs(exe, Path(path)))
            Path(to).write_bytes(b"".join(array.tobytes() for outputs in every for array in outputs))


if __name__ == "__main__":
    main(sys.argv[1:])
