"""Runs rendered kernels under Oclgrind in a process of their own, and reads what it found."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gpucomp.kernel import Kernel
from gpucomp.kernel.source import KernelSource

ROOT = Path(__file__).parents[1]
LIMIT_S = 240
Job = tuple[Kernel, KernelSource, Sequence[np.ndarray]]


def findings(jobs: Sequence[Job], folder: Path) -> list[str]:
    """What Oclgrind says of the jobs' accesses, races and uninitialised values, a paragraph each."""
    described = []
    for number, (kernel, source, inputs) in enumerate(jobs):
        for position, array in enumerate(inputs):
            (folder / f"{number}_{position}.bin").write_bytes(np.ascontiguousarray(array).tobytes())
        described.append(
            {
                "name": source.name,
                "text": source.text,
                "groups": source.geometry.groups,
                "items": source.geometry.items,
                "inputs": kernel.inputs,
                "bytes": [t.nbytes for t in kernel.params],
            }
        )
    (folder / "jobs.json").write_text(json.dumps(described), encoding="utf-8")
    log = folder / "oclgrind.log"
    # without optimisation: its check of uninitialised values stops at instructions that optimisation leaves
    command = ["oclgrind", "--data-races", "--uninitialized", "--max-errors", "1000", "--log", str(log)]
    command += ["--build-options", "-cl-opt-disable", sys.executable, "-m", "tests.oclgrind", str(folder)]
    environment = dict(os.environ) | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == [str(number) for number in range(len(jobs))]
    said = log.read_text(encoding="utf-8") if log.exists() else ""
    return [block for block in re.split(r"\n{2,}(?=\S)", said.strip()) if block]


def main(folder: Path) -> None:
    import pyopencl as cl

    queue = cl.CommandQueue(cl.Context([cl.get_platforms()[0].get_devices()[0]]))
    for number, job in enumerate(json.loads((folder / "jobs.json").read_text(encoding="utf-8"))):
        buffers = [cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, max(1, n)) for n in job["bytes"]]
        for position in range(job["inputs"]):
            data = (folder / f"{number}_{position}.bin").read_bytes()
            if data:
                cl.enqueue_copy(queue, buffers[position], np.frombuffer(data, np.uint8))
        size = tuple(g * i for g, i in zip(job["groups"], job["items"], strict=True))
        program = cl.Program(queue.context, job["text"]).build()
        cl.Kernel(program, job["name"])(queue, size, tuple(job["items"]), *buffers)
        queue.finish()
        print(number, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
