"""Records a space: many schedules of one kernel, measured on this machine, as a Kernel Tuner cache.

    python -m bench.tuning_lab_record 'matmul m=61 n=96 k=200 relu=1' --points 500 --seconds 180 -o matmul.json.gz

It takes a random part of the legal schedules of the default's engine. Each is built, checked against the reference and timed for
some milliseconds; the fastest sample counts, so that neighbours on the same cores matter little. Records of ``gpucomp tune`` are
more reliable and take longer. An existing file is extended.
"""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import numpy as np

from bench.options import parser_of
from gpucomp import compiler
from gpucomp.errors import GpucompError
from gpucomp.targets import resolve
from gpucomp.tuning import specs
from gpucomp.tuning.checks import error_of, run_checked
from gpucomp.tuning.devices import open_device
from gpucomp.tuning.setups import setup
from gpucomp.tuning.space import Candidates
from gpucomp.tuning.tasks import Candidate, Task, tasks_of
from gpucomp.tuning.worker import build

SAMPLES = 40
SAMPLE_S = 5e-4


def entry(task: Task, schedule: dict[str, int], data: tuple[list[np.ndarray], list[np.ndarray]]) -> dict[str, object]:
    """An entry of Kernel Tuner's cache: milliseconds, or the class of the error."""
    begin = time.perf_counter()
    inputs, wanted = data
    family, target = task.default.family, task.target
    constants = frozenset(task.kernel.constants)
    try:
        source, packed = task.rendered(Candidate(family, schedule))
        binary = build(source, target)
        compiled_ms = 1e3 * (time.perf_counter() - begin)
        device = open_device(target)

        def opened(launches: int) -> tuple:
            made = setup(task.kernel, family, source, packed, inputs, target, constants=constants, launches=launches)
            binaries = {kernel.binary: binary for kernel in made.plan.kernels}
            return device.open(made.plan, made.sources, binaries, made.weights), made

        program, made = opened(1)
        outputs, fault = run_checked(program, made, 1)
        for found, expected in zip(outputs, wanted, strict=True):
            fault = fault or error_of(found, expected, task.terms, task.math)[1]
        if fault:
            return {**schedule, "time": "RuntimeFailedConfig", "__error__": fault, "compile_time": compiled_ms}
        once = min(float(program.time_launches(made.inputs, 1)[0]) for _ in range(3))
        launches = max(1, round(SAMPLE_S / once))
        program, made = opened(launches)
        times = [1e3 * float(program.time_launches(made.inputs, 1)[0]) / launches for _ in range(SAMPLES)]
    except GpucompError as error:
        return {**schedule, "time": "CompilationFailedConfig", "__error__": error.message[:200]}
    return {**schedule, "time": min(times), "compile_time": compiled_ms}


def main() -> None:
    parser = parser_of("bench.tuning_lab_record", __doc__)
    parser.add_argument("kernel", help="the kernel, as for gpucomp tune --kernel")
    parser.add_argument("--target", default="cpu", metavar="TARGET", help="cpu, opencl[:NAME] or cuda[:ARCH]")
    parser.add_argument("--points", type=int, default=500, metavar="N", help="number of schedules to measure")
    parser.add_argument("--seconds", type=float, default=200.0, metavar="S", help="time limit, in seconds")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the random numbers")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help="the .json.gz file to write; an existing one is extended",
    )
    given = parser.parse_args()
    target = resolve(given.target)
    (task,) = tasks_of(compiler.lower(specs.model(given.kernel), target), target)
    family = task.default.family
    whole = Candidates.from_family(family, task.problem(family), target.limits, most=given.points, seed=given.seed)
    data, entries = task.data(given.seed), {}
    if given.output.exists():
        entries = json.loads(gzip.decompress(given.output.read_bytes()))["cache"]
    end = time.monotonic() + given.seconds
    for point in np.random.default_rng(given.seed).permutation(len(whole))[: given.points].tolist():
        schedule = whole.schedule(point)
        name = ",".join(map(str, schedule.values()))
        if name not in entries:
            entries[name] = entry(task, schedule, data)
        if time.monotonic() > end:
            break
    document = {
        "device_name": f"{target.identity}: {given.kernel}",
        "kernel_name": family.title,
        "problem_size": [size for size in task.problem(family).numbers.values() if size > 1],
        "tune_params_keys": list(whole.names),
        "tune_params": {n: levels.tolist() for n, levels in zip(whole.names, whole.levels, strict=True)},
        "cache": entries,
    }
    with gzip.GzipFile(given.output, "wb", mtime=0) as file:
        file.write(json.dumps(document).encode())
    print(f"{len(entries)} of {len(whole)} schedules of {family.title} -> {given.output}")


if __name__ == "__main__":
    main()
