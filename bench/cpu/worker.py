"""Runs one engine with one model, controlled by lines of JSON on standard input: ``python -m bench.cpu.worker``.

    {"do": "load", "engine": "mnn", "folder": "...", "threads": 2}     -> {"version": "3.6.1", "seconds": 0.1}
    {"do": "run", "to": "out.npz"}                                     -> {"outputs": 1}
    {"do": "time", "seconds": 0.05, "least": 3}                        -> {"ms": [...], "cpu_s": 0.1, "wall_s": 0.05}
    {"do": "memory"}                                                   -> {"resident_mb": 80.5, "peak_mb": 130.0}

``load`` needs ``inputs.npz`` beside the model. Any error ends the process, with the reason on standard error. Engines may print:
their output goes to standard error, and answers go to the original standard output.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.cpu.adapters import ENGINES, Engine

INPUTS = "inputs.npz"


def read_inputs(folder: Path) -> dict[str, np.ndarray]:
    with np.load(folder / INPUTS) as found:
        return {name: found[name] for name in found.files}


def _stay_on(count: int) -> None:
    """Run only on the first ``count`` processors. On a shared machine processors differ in speed, and some engines stay on one
    processor while others move. Without this, one thread was compared on two processors, with factors of 1.8 between rounds."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def _load(command: dict[str, Any]) -> tuple[Engine, dict[str, Any]]:
    _stay_on(command["threads"])
    begin = time.perf_counter()
    folder = Path(command["folder"])
    engine = ENGINES[command["engine"]](folder, read_inputs(folder), command["threads"])
    engine.run()
    return engine, {"version": engine.version, "seconds": time.perf_counter() - begin}


def _time(engine: Engine, seconds: float, least: int) -> dict[str, Any]:
    """Milliseconds of each run: runs for ``seconds``, at least ``least`` of them, after one that does not count."""
    engine.run()
    samples: list[float] = []
    cpu, start = time.process_time(), time.perf_counter()
    while len(samples) < least or time.perf_counter() - start < seconds:
        begin = time.perf_counter()
        engine.run()
        samples.append(1e3 * (time.perf_counter() - begin))
    return {"ms": samples, "cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - start}


def _memory() -> dict[str, float]:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return {name: int(status[key].split()[0]) / 1024 for name, key in (("resident_mb", "VmRSS"), ("peak_mb", "VmHWM"))}


def serve() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what engines print goes to standard error
    engine: Engine | None = None
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "load":
            engine, answer = _load(command)
        elif command["do"] == "memory":
            answer = _memory()
        elif engine is None:
            raise ValueError(f"nothing is loaded: {line}")
        elif command["do"] == "run":
            outputs = engine.run()
            np.savez(command["to"], *outputs)
            answer = {"outputs": len(outputs)}
        else:
            answer = _time(engine, command["seconds"], command["least"])
        print(json.dumps(answer), file=answers, flush=True)


def convert(name: str, folder: Path) -> None:
    """Convert the model in ``folder`` for the engine; nothing to do for an engine that reads ONNX."""
    if make := getattr(ENGINES[name], "convert", None):
        make(folder, read_inputs(folder))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        convert(sys.argv[1], Path(sys.argv[2]))
    else:
        serve()
