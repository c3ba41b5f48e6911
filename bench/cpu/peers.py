"""The peers: their packages, environments and processes. ``adapters`` has the code that uses each engine."""

from __future__ import annotations

import json
import select
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).parents[2]
VENVS = Path.home() / ".cache" / "gpucomp-peers"


@dataclass(frozen=True)
class Peer:
    """``requirements`` go into the environment ``venv``; the packages ``alone`` are installed without their dependencies.

    ``variables`` are set for its processes. A value with ``|`` lists programs; the first that is installed is used. With
    ``levels`` the engine uses only instructions of a level of x86-64, if these variables are set; an engine without them has no
    such switch and uses all instructions of the processor.
    """

    name: str
    venv: str
    requirements: tuple[str, ...]
    alone: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


ONEDNN = {
    "x86-64-v2": ("ONEDNN_MAX_CPU_ISA=SSE41",),
    "x86-64-v3": ("ONEDNN_MAX_CPU_ISA=AVX2",),
    "x86-64-v4": ("ONEDNN_MAX_CPU_ISA=AVX512_CORE",),
}
# oneDNN, torch's own kernels (torch.compile's too), MKL's products
TORCH = {
    "x86-64-v3": (*ONEDNN["x86-64-v3"], "ATEN_CPU_CAPABILITY=avx2", "MKL_ENABLE_INSTRUCTIONS=AVX2"),
    "x86-64-v4": (*ONEDNN["x86-64-v4"], "ATEN_CPU_CAPABILITY=avx512", "MKL_ENABLE_INSTRUCTIONS=AVX512"),
}
ZENTORCH = {
    "x86-64-v3": (*TORCH["x86-64-v3"], "AOCL_DLP_ENABLE_INSTRUCTIONS=AVX2"),
    "x86-64-v4": (*TORCH["x86-64-v4"], "AOCL_DLP_ENABLE_INSTRUCTIONS=AVX512"),
}
TORCH_PACKAGES = ("torch==2.13.0", "onnx==1.23.2", "onnxruntime==1.31.1", "numpy")
ONNX2TORCH = ("onnx2torch==1.5.15",)
CLANG = "CC=clang-21|clang-20|clang-19|clang-18|clang"

# versions that work together. pnnx depends on torch, but its ONNX converter, a binary, does not use it; onnx2torch depends on
# torchvision, which only detectors need, and onnxruntime folds constants for it. zentorch is built for one version of torch.
# tinygrad needs a recent clang on the PATH, which no wheel contains
PEERS = {
    peer.name: peer
    for peer in (
        Peer("onnxruntime", "onnxruntime", ("onnxruntime==1.31.1", "numpy")),
        Peer("openvino", "openvino", ("openvino==2026.4.1", "numpy"), levels=ONEDNN),
        Peer("ncnn", "ncnn", ("ncnn==1.0.20261020", "numpy"), ("pnnx==20261020",)),
        Peer("mnn", "mnn", ("MNN==3.6.1", "numpy")),
        Peer("torch", "torch", TORCH_PACKAGES, ONNX2TORCH, levels=TORCH),
        Peer("tvm", "tvm", ("apache-tvm==0.27.0.post1", "onnx==1.23.2", "numpy")),
        Peer("iree", "iree", ("iree-base-compiler[onnx]==3.13.0", "iree-base-runtime==3.13.0", "numpy")),
        Peer("tinygrad", "tinygrad", ("tinygrad==0.14.0", "numpy"), variables=("DEV=CPU", CLANG)),
        Peer("inductor", "torch", TORCH_PACKAGES, ONNX2TORCH, levels=TORCH),
        Peer("zentorch", "zentorch", ("zentorch==2.13.0.2", *TORCH_PACKAGES), ONNX2TORCH, levels=ZENTORCH),
        Peer(
            "xnnpack",
            "xnnpack",
            ("ai-edge-litert==2.3.0", "litert-torch==0.10.0", *TORCH_PACKAGES),
            ONNX2TORCH,
        ),
    )
}


class PeerError(Exception):
    """A peer is missing, fails, dies or does not answer. Its row has the reason; the other peers continue."""


def setup(names: Sequence[str], venvs: Path) -> None:
    """Make or update the virtual environment of each peer. Raises ``CalledProcessError``."""
    for peer in {PEERS[name].venv: PEERS[name] for name in names}.values():
        folder = venvs / peer.venv
        if not (folder / "bin" / "python").exists():
            venv.create(folder, with_pip=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, *peer.requirements], check=True)
        if peer.alone:
            subprocess.run([*pip, "--no-deps", *peer.alone], check=True)


def python_of(name: str, venvs: Path) -> Path:
    """The interpreter of the peer's environment. Raises ``PeerError`` if it is not installed."""
    if name == "gpucomp":
        return Path(sys.executable)
    python = venvs / PEERS[name].venv / "bin" / "python"
    if not python.exists():
        raise PeerError(f"not installed: python -m bench.cpu setup {name}")
    return python


def convert(name: str, python: Path, folder: Path, timeout_s: float, target: str = "cpu") -> None:
    """Let the engine convert the model in ``folder``. Raises ``PeerError``."""
    command = [*python_with(name, python, target), "-m", "bench.cpu.worker", name, str(folder)]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, errors="replace")
    except subprocess.TimeoutExpired:
        raise PeerError(f"its converter did not finish in {timeout_s:g} s") from None
    if done.returncode:
        raise PeerError(f"its converter failed: {_said(done.stderr)}")


def _said(text: str) -> str:
    """The reason why a process failed: the first error of a compiler, if there is one; otherwise the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.partition(" error: ")[2] for line in lines if " error: " in line]
    return [*errors, *lines[-1:], "without a word"][0][:200]


class Worker:
    """The process of one engine. Every method raises ``PeerError`` if it dies or takes longer than ``timeout_s``."""

    def __init__(self, command: Sequence[str], timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
        )
        self._buffer = b""

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, **command: Any) -> dict[str, Any]:
        """The answer to a command."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._died() from None
        line = self._line()
        try:
            answer = json.loads(line)
        except ValueError:
            raise PeerError(f"no answer but {line[:80]!r}") from None
        if not isinstance(answer, dict):
            raise PeerError(f"no answer but {line[:80]!r}")
        return answer

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        descriptor, end = self._process.stdout, time.monotonic() + self._timeout_s
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                self.close()
                raise PeerError(f"no answer in {self._timeout_s:g} s")
            more = descriptor.read1(1 << 16)  # type: ignore[attr-defined]
            if not more:
                raise self._died()
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _died(self) -> PeerError:
        code = self._process.wait()
        self._errors.seek(0)
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        return PeerError(f"it died ({how}): {_said(self._errors.read())}")

    def close(self) -> None:
        """End the process, whatever its state."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                continue  # the process did not read the last command
        self._errors.close()


def variables_for(name: str, target: str) -> tuple[str, ...]:
    """What restricts the peer to the instructions of ``target``, as ``NAME=VALUE``; nothing if it has no such switch."""
    return PEERS[name].levels.get(target.partition(":")[2], ()) if name in PEERS else ()


def instructions(name: str, target: str) -> str:
    """Which instructions the engine uses when gpucomp compiles for ``target``; empty for all of the processor's."""
    if name == "gpucomp":
        return target.partition(":")[2]
    return " ".join(variables_for(name, target))


def python_with(name: str, python: Path, target: str = "cpu") -> list[str]:
    """The command for an interpreter with the peer's variables, restricted to ``target`` if the peer can be."""
    found = ["env", *variables_for(name, target)]
    for variable in PEERS[name].variables if name in PEERS else ():
        key, _, values = variable.partition("=")
        programs = values.split("|")
        found.append(f"{key}={next(filter(shutil.which, programs), programs[-1])}")
    return [*found, str(python)]


def start(name: str, python: Path, timeout_s: float, target: str = "cpu") -> Worker:
    """Start a process of the peer, which waits for a model."""
    return Worker([*python_with(name, python, target), "-m", "bench.cpu.worker"], timeout_s)
