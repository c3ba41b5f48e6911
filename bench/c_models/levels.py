"""Levels of processors and other devices: how C and Python run a model there, and how far the results are apart."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import gpucomp
from bench.c_models.models import MODELS, Model, Sizes, steps
from bench.c_models.script import Order, Step, results, write
from gpucomp.cli.compare import Tolerance, distances, wrong
from gpucomp.errors import GpucompError
from gpucomp.export.project import export_c
from gpucomp.runtime.any_shape import AnyShapeExecutable
from gpucomp.runtime.open_program import OpenProgram
from gpucomp.targets import cpu, opencl
from testing import webassembly
from testing.c_library import COMPILERS, CPU_SOURCES, SOURCES, WARNINGS, build, same_bits

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ARM, QEMU = "aarch64-linux-gnu-gcc", "qemu-aarch64"
LONGEST_S = 3600  # of a program, emulators too
THREADS = (1, 3)  # of the C runtime: the bits must be the same


class ProgramError(Exception):
    """What a program told when it failed."""


@dataclass(frozen=True)
class Row:
    """``bits`` says whether all outputs of C are Python's in every bit; ``None`` where Python does not run the code.

    ``worst`` is the largest relative L2 error of an output against onnxruntime, ``off`` the outputs that are farther off than
    ``gpucomp compare`` allows, and ``told`` what went wrong where nothing could be compared.
    """

    model: str
    level: str
    runs: int = 0
    bits: bool | None = None
    worst: float = 0.0
    off: tuple[str, ...] = ()
    told: str = ""
    seconds: float = 0.0

    @property
    def right(self) -> bool:
        return self.bits is not False and not self.off and not self.told

    def text(self) -> str:
        if self.told:
            return f"{self.model:18} {self.level:10} FAILED: {self.told}"
        bits = {True: "equal", False: "DIFFERENT", None: "-"}[self.bits]
        off = f"   OFF: {', '.join(self.off)}" if self.off else ""
        return (
            f"{self.model:18} {self.level:10} {self.runs} runs   bits {bits:9}   worst {self.worst:7.1e}   "
            f"{self.seconds:6.1f} s{off}"
        )


@dataclass(frozen=True)
class Made:
    """A compiled model in ``folder``, saved as ``file``, and the script of its runs."""

    model: Model
    exe: Any
    folder: Path
    steps: Sequence[Step]
    order: Order

    @property
    def file(self) -> Path:
        return self.folder / "model.gpuc"

    @property
    def script(self) -> Path:
        return self.folder / "script.bin"


def order_of(exe: Any) -> Order:
    program = exe.program if isinstance(exe, AnyShapeExecutable) else None
    sizes = program.open_plan.formulas.dims if isinstance(program, OpenProgram) else ()
    return Order(sizes, [spec.name for spec in exe.inputs], [spec.name for spec in exe.outputs])


def made(name: str, target: str, sizes: Sequence[Sizes], folder: Path, seed: int) -> Made:
    """The model compiled for ``target`` and saved, with runs at ``sizes``."""
    model = MODELS[name]
    exe = gpucomp.compile(model.content(), target=target, **model.how)
    found = Made(model, exe, folder, steps(model, exe, sizes, seed), order_of(exe))
    exe.save(found.file)
    write(found.script, found.steps, found.order)
    return found


def run(*words: str | Path) -> None:
    """Raises ``ProgramError`` with what the program told."""
    done = subprocess.run([str(word) for word in words], cwd=ROOT, capture_output=True, text=True, timeout=LONGEST_S)
    if done.returncode:
        raise ProgramError(f"exit status {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")


def python_command(threads: int = 1) -> list[str]:
    return ["env", f"GPUCOMP_THREADS={threads}", sys.executable, "-m", "bench.c_models.python"]


def runtime() -> Path:
    """The program of C, for this machine."""
    return build("c_models", [HERE / "runtime.c", *SOURCES], f"-I{HERE}", "-Os")  # as it is shipped


Results = list[dict[str, np.ndarray]]


def _python(made: Made, *options: str) -> Results:
    to = made.folder / "python.bin"
    run(*python_command(), made.file, made.script, to, *options)
    return results(to, made.steps, made.order)


def _c(made: Made, program: Sequence[str | Path], threads: int) -> Results:
    to = made.folder / f"c-{threads}.bin"
    run(*program, made.file, made.script, str(threads), to)
    return results(to, made.steps, made.order)


def _project(made: Made, compiler: Sequence[str]) -> Path:
    """The program of the exported C project."""
    folder, program, how = made.folder / "project", made.folder / "net", made.model.how
    export_c(made.exe, folder, name="net", elsewhere=lambda: gpucomp.compile(made.model.content(), target="cpu", **how))
    parts = [folder / "net.c", folder / "net_weights.S", folder / "net_kernels.o", HERE / "project.c"]
    kinds = [*(["-DSIZED"] if made.order.sizes else []), *(["-DSTATES"] if made.exe.states else [])]
    run(*compiler, *WARNINGS, "-O2", f"-I{folder}", *kinds, *parts, "-o", program)
    return program


def _c_project(made: Made, compiler: Sequence[str], *emulator: str) -> Results:
    to = made.folder / "project.bin"
    run(*emulator, _project(made, compiler), made.script, to)
    return results(to, made.steps, made.order)


def on_processor(made: Made) -> tuple[list[Results], Results | None]:
    """The results of C, with one thread, with several and as a project, and those of Python."""
    in_c = [_c(made, [runtime()], threads) for threads in THREADS]
    return [*in_c, _c_project(made, COMPILERS[:1])], _python(made)


def on_opencl(made: Made) -> tuple[list[Results], Results | None]:
    return [_c(made, [runtime()], 1)], _python(made)


def on_arm(made: Made) -> tuple[list[Results], Results | None]:
    """C in an emulated system of 64-bit Arm, and Python here, whose code for kernels an emulator runs."""
    program = build("c_models_arm", [HERE / "runtime.c", *CPU_SOURCES], f"-I{HERE}", "-Os", "-static", compiler=ARM)
    in_c = [_c(made, [QEMU, program], 2), _c_project(made, [ARM, "-static"], QEMU)]
    return in_c, _python(made, "--emulated")


def in_wasmtime(made: Made) -> tuple[list[Results], Results | None]:
    """The exported C project. Python does not run WebAssembly."""
    program = _project(made, webassembly.COMPILER)
    if code := webassembly.ended(program, made.folder, made.script.name, "c.bin"):
        raise ProgramError(f"exit status {code}: {(made.folder / 'told').read_text()}")
    return [results(made.folder / "c.bin", made.steps, made.order)], None


def _missing_of(level: str) -> list[str]:
    """The features of a level that this processor has not."""
    return sorted(cpu.named(f"cpu:{level}").features - cpu.host().features)


def _missing_of_pocl() -> list[str]:
    try:
        found = any(opencl.flavour_of(device) == "pocl" for device in opencl.devices())
    except opencl.DeviceError:
        found = False
    return [] if found else ["PoCL"]


def _missing_of_arm() -> list[str]:
    return [tool for tool in (ARM, QEMU) if not shutil.which(tool)] + [
        name for name in ("unicorn",) if importlib.util.find_spec(name) is None
    ]


@dataclass(frozen=True)
class Level:
    """``few``: an emulator runs it, at few sizes. ``missing`` names what this machine has not and what it needs."""

    target: str
    run: Callable[[Made], tuple[list[Results], Results | None]]
    missing: Callable[[], list[str]]
    few: bool = False


LEVELS = {
    **{
        name: Level(f"cpu:{name}", on_processor, lambda name=name: _missing_of(name))  # type: ignore[misc]
        for name in ("x86-64-v2", "x86-64-v3", "x86-64-v4")
    },
    "aarch64": Level("cpu:armv8-a", on_arm, _missing_of_arm, few=True),
    "opencl": Level("opencl:pocl", on_opencl, _missing_of_pocl),
    "wasm32": Level("cpu:wasm32", in_wasmtime, lambda: webassembly.MISSING, few=True),
}


def missing(level: str) -> list[str]:
    return ([] if COMPILERS else ["a C compiler"]) + LEVELS[level].missing()


def compare(name: str, level: str, folder: Path, seed: int) -> Row:
    """Compile the model, run it by C and by Python, and compare."""
    begin = time.monotonic()
    here, model = LEVELS[level], MODELS[name]
    row = Row(name, level)
    try:
        compiled = made(name, here.target, model.few if here.few else model.sizes, folder, seed)
        every, python = here.run(compiled)
    except (GpucompError, ProgramError) as error:
        return replace(row, told=str(error), seconds=time.monotonic() - begin)
    row = replace(row, runs=len(compiled.steps), seconds=time.monotonic() - begin)
    return judged(row, compiled.steps, every, python)


def judged(row: Row, steps: Sequence[Step], every: Sequence[Results], python: Results | None) -> Row:
    """``row`` with what the results of C are like: Python's bits, and onnxruntime's numbers."""
    apart = [distances(found, dict(step.outputs)) for found, step in zip(every[0], steps, strict=True)]
    off = sorted({name for one in apart for name in wrong(one, Tolerance())})
    worst = max(far.l2 for one in apart for far in one.values())
    others = [*every[1:], *([python] if python is not None else [])]
    same = all(same_bits(a, b) for other in others for a, b in zip(every[0], other, strict=True))
    return replace(row, bits=same if python is not None else None, worst=worst, off=tuple(off))
