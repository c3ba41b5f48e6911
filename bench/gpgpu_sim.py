"""Runs kernels as PTX in GPGPU-Sim, beside float64: the part of CUDA without matrix units, in a third-party simulator.

    python -m bench.gpgpu_sim PATH --cuda DIR [--cell 'sm_75 scan f32' ...] [--cases 10] [--seed 0] [--minutes 60] [--limit S]
                              [--journal F] [--again] [--markdown F] [--summary F]

PATH is a built checkout of GPGPU-Sim 4.2; DIR is the folder of the CUDA toolkit that it was built with (for its ``include``).
NVRTC makes the PTX for sm_75; it is executed functionally, without timing (``PTX_SIM_MODE_FUNC``), in one process for each case.
Cases, oracle and journal are those of ``bench.kernel_sweep``. The simulator's PTX has no ldmatrix, mma.sync, cp.async, max.NaN,
bf16 or tensor maps, and its dp4a is not implemented, so engines and types that need these are left out. Memory orders become
fences that its parser knows. In this mode a shuffle returns 0 in all warps of a work-group except the first (``PROBE``); cases
with such shuffles are left out.

``gpgpu_sim_launcher.cc`` loads the PTX and launches it, because the simulator has no cuModuleLoad.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.kernel_sweep.cases import Cell
from bench.kernel_sweep.play import Ready
from bench.simulated import SimulatorError, arguments_of, commit_of, run, simulator_parser
from gpucomp.kernel.source import KernelSource
from gpucomp.targets import cuda

ARCH = "sm_75"
CONFIGURATION = "configs/tested-cfgs/SM75_RTX2060"
CELLS = {
    "loops": ("f32", "f16", "i32"),
    "loops/transpose": ("f32",),
    "depthwise": ("f32", "f16"),
    "contraction/simt": ("f32", "f16"),
    "contraction/gemv": ("f32", "f16"),
    "contraction/winograd": ("f32",),
    "contraction/stem_simt": ("f32",),
    "contraction/separable_simt": ("f32",),
    "rowwise": ("f32", "f16"),
    "scan": ("f32", "i32"),
    "scatter": ("f32",),
    "pool": ("f32",),
    "pool/window": ("f32",),
    "attention/simt": ("f32",),
}
# the simulator cannot parse memory orders; the fences of older PTX are stronger
ORDERED = (
    (re.compile(r"^(\s*)(st|atom|red)\.release\.gpu\.", re.MULTILINE), r"\1membar.gl;\n\1\2."),
    (re.compile(r"^(\s*)(ld)\.acquire\.gpu\.([^;]*;)", re.MULTILINE), r"\1\2.volatile.\3\n\1membar.gl;"),
    (re.compile(r"\bld\.relaxed\.gpu\."), "ld.volatile."),
)
# nor does it write the result of a shuffle that also writes a predicate
SHUFFLE = re.compile(r"(\bshfl\.sync\.\w+\.b32\s+%r\d+)\|(%p\d+)")
SHARED = 65536  # bytes of a work-group on a T4; the simulator's configuration has the size without opting in
WRONG = re.compile(r"^.*(?:yntax error|arse error|ERROR|ssert|not implemented).*$", re.MULTILINE)
DONE = "LAUNCHER result 0"


def cells() -> list[Cell]:
    return [Cell(ARCH, engine, dtype) for engine, dtypes in CELLS.items() for dtype in dtypes]


def older(ptx: str) -> str:
    """``ptx`` without what the simulator does not know. Shuffle predicates that are read stay, and fail in the simulator."""
    for pattern, text in ORDERED:
        ptx = pattern.sub(text, ptx)
    return SHUFFLE.sub(lambda m: m[1] if len(re.findall(rf"{m[2]}\b", ptx)) == 1 else m[0], ptx)


def job(source: KernelSource, used: cuda.Resources, inputs: int, outputs: int) -> str:
    """The launcher's input: one line for each fact, then one for each argument.

    The simulator would ask the ptxas of its time what a kernel uses. It is told instead, with the launch's shared memory.
    """
    geometry = source.geometry
    lines = [
        f"ptx k.ptx {ARCH.removeprefix('sm_')} {source.name}",
        "grid {} {} {}".format(*geometry.groups),
        "block {} {} {}".format(*geometry.items),
        f"shared {geometry.dynamic_shared_bytes}",
        f"info {used.registers} {used.shared_bytes} {used.stack_bytes}",
        *(f"in {n}.bin" for n in range(inputs)),
        *(f"out {n}.bin" for n in range(inputs, inputs + outputs)),
        *(f"zero {n}" for n in (geometry.workspace_bytes, geometry.counter_bytes) if n),
    ]
    return "\n".join(lines) + "\n"


def configured(text: str) -> str:
    """The simulator's configuration with sm_75's shared memory for a work-group, and without per-line statistics."""
    wanted = {"gpgpu_shmem_per_block": SHARED, "enable_ptx_file_line_stats": 0, "gpgpu_ptx_inst_debug_to_file": 0}
    for name, value in wanted.items():
        text = re.sub(rf"^-{name}\b.*$\n?", "", text, flags=re.MULTILINE) + f"\n-{name} {value}\n"
    return text


def complaint(log: str, code: int | None) -> str:
    """Why a launch failed, in the simulator's words; "" if it did not."""
    if code == 0 and DONE in log:
        return ""
    said = WRONG.findall(log)
    return f"GPGPU-Sim ends with {code}: {' | '.join(said[:2])[:240]}"


# each of two warps exchanges numbers between lanes 16 apart
PROBE = """
.version 7.0
.target sm_75
.address_size 64
.visible .entry k0(.param .u64 out)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [out];
  cvta.to.global.u64 %rd2, %rd1;
  mov.u32 %r1, %tid.x;
  add.s32 %r2, %r1, 100;
  shfl.sync.bfly.b32 %r3, %r2, 16, 31, -1;
  mul.wide.s32 %rd3, %r1, 4;
  add.s64 %rd4, %rd2, %rd3;
  st.global.u32 [%rd4], %r3;
  ret;
}
"""
EXCHANGED = 100 + (np.arange(64, dtype=np.int32) ^ 16)


def shuffles(ready: Ready) -> bool:
    """Whether a case uses shuffles in a work-group of several warps."""
    return ("gc_shfl" in ready.source.text or "gc_warp_sum" in ready.source.text) and ready.source.geometry.items[
        0
    ] > 32


@dataclass(frozen=True)
class Simulator:
    """A built checkout, and the launcher linked with it."""

    path: Path
    cuda: Path
    launcher: Path
    limit: float

    def play(self, ready: Ready) -> list[np.ndarray]:
        """Raises ``SimulatorError`` for anything that ends a launch early."""
        source, target = ready.source, cuda.manifest(ARCH)
        given, first, count = arguments_of(ready)
        ptx = cuda.members({"k.cubin": source}, target)[cuda.ptx_name("k.cubin")]
        used = cuda.resources(cuda.compile_source(source, target)[1])[source.name]
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            given = given[: first + count]
            self._launch(folder, older(ptx.rstrip(b"\0").decode()), job(source, used, first, count), given)
            files = [folder / f"{number}.bin" for number in range(len(given))]
            found = [np.fromfile(f, array.dtype).reshape(array.shape) for f, array in zip(files, given, strict=True)]
            return found[first:]

    def exchanges(self) -> bool:
        """Whether shuffles work in every warp of a work-group, by ``PROBE``."""
        with tempfile.TemporaryDirectory() as name:
            lines = ["ptx k.ptx 75 k0", "grid 1 1 1", "block 64 1 1", "shared 0", "info 8 0 0", "out 0.bin"]
            self._launch(Path(name), PROBE, "\n".join(lines), [np.zeros(64, np.int32)])
            return np.array_equal(np.fromfile(Path(name, "0.bin"), np.int32), EXCHANGED)

    def _launch(self, folder: Path, ptx: str, work: str, arguments: Sequence[np.ndarray]) -> None:
        for file in (self.path / CONFIGURATION).iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
        config = folder / "gpgpusim.config"
        config.write_text(configured(config.read_text(encoding="utf-8")), encoding="utf-8")
        (folder / "k.ptx").write_text(ptx, encoding="utf-8")
        (folder / "job").write_text(work, encoding="utf-8")
        for number, array in enumerate(arguments):
            array.tofile(folder / f"{number}.bin")
        command = ["env", "PTX_SIM_MODE_FUNC=1", f"CUDA_INSTALL_PATH={self.cuda}", str(self.launcher), "job"]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, timeout=self.limit, check=False)
        except subprocess.TimeoutExpired as error:
            raise SimulatorError(f"no end after {self.limit:.0f} s") from error
        if why := complaint((done.stdout + done.stderr).decode(errors="replace"), done.returncode):
            raise SimulatorError(why)


def opened(path: Path, toolkit: Path, folder: Path, limit: float) -> Simulator:
    """The simulator, with a launcher built in ``folder``. Raises ``FileNotFoundError`` if the simulator is not built."""
    library = next(path.glob("lib/**/libcudart.so"), None)
    header = next(path.glob("build/**/cuda-sim/ptx.tab.h"), None)
    if library is None or header is None:
        raise FileNotFoundError(f"{path} is not a built checkout of GPGPU-Sim: it has no libcudart.so or no ptx.tab.h")
    if not (toolkit / "include" / "cuda.h").is_file():
        raise FileNotFoundError(
            f"{toolkit} has no include/cuda.h: --cuda names the toolkit that GPGPU-Sim was built with"
        )
    launcher, text = folder / "launcher", Path(__file__).parent / "gpgpu_sim_launcher.cc"
    command = ["g++", "-std=c++14", "-O1", "-w", "-DCUDART_VERSION=11080", f"-I{toolkit / 'include'}"]
    command += [
        "-iquote",
        str(path),
        "-iquote",
        str(header.parent),
        str(text),
        "-o",
        str(launcher),
        f"-L{library.parent}",
    ]
    command += ["-lcudart", f"-Wl,-rpath,{library.parent}", "-lz", "-lGL", "-pthread"]
    subprocess.run(command, check=True)
    return Simulator(path, toolkit, launcher, limit)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = simulator_parser("bench.gpgpu_sim", __doc__, [cell.name for cell in cells()], 10)
    parser.add_argument(
        "--cuda",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder of the CUDA toolkit that the simulator was built with",
    )
    options = parser.parse_args(arguments)
    chosen = [cell for cell in cells() if not options.cell or cell.name in options.cell]
    with tempfile.TemporaryDirectory() as folder:
        try:
            simulator = opened(options.path.resolve(), options.cuda.resolve(), Path(folder), options.limit)
        except FileNotFoundError as error:
            parser.error(str(error))
        lead = (
            f"`python -m bench.gpgpu_sim`: PTX of NVRTC ({cuda.compiler_version()}) for {ARCH} in GPGPU-Sim 4.2 "
            f"({commit_of(options.path)}), functionally."
        )
        wrong = "" if simulator.exchanges() else "the simulator gets shuffles of a work-group's later warps wrong"

        def without(ready: Ready) -> str:
            return wrong if shuffles(ready) else ""

        return run(options, chosen, simulator.play, without, "GPGPU-Sim", lead)


if __name__ == "__main__":
    sys.exit(main())
