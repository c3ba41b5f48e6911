"""How long a user waits for a compiled model, beside other engines: from the import to the end of the first run.

    python -m bench.compile_time                                     # the benchmark models, for the CPU
    python -m bench.compile_time resnet50 model.onnx --target opencl --json out.json
    python -m bench.compile_time --peers onnxruntime,openvino        # after: python -m bench.cpu setup openvino
    python -m bench.compile_time mobilenet_v2 --passes               # milliseconds of every pass

Each figure is of a fresh process (``compile_time_child``) that finds its bytecode, as an installed package does. ``cold`` has an
empty cache, ``kernels`` one that holds the machine code and not the model, ``model`` one that holds the model. ``wall`` is
seconds until the first result, ``cpu`` the processor seconds of the process and its helpers, ``again`` seconds of the same call
once more in the same process, where everything is imported. ``stages`` are seconds between the compiler's own marks, as
``GPUCOMP_DEBUG=1`` prints them; ``render`` chooses schedules too, kernel by kernel, and on the CPU LLVM works beside it. A peer's
time is that of its ``load`` in ``bench.cpu.worker``, which ends with the first run too; a peer that needs a converter has been
given a converted model.

The least of ``--rounds`` processes counts: what disturbs a process makes it slower. The engines take turns.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx

from bench.cpu import peers
from bench.cpu.adapters import ENGINES, MODEL, PRECISION, TARGET
from bench.cpu.compare import write_inputs
from bench.cpu.peers import PeerError
from bench.models import MODELS, build, inputs
from bench.options import add_shared, parser_of

STATES = ("cold", "kernels", "model")


def ours(folder: Path, state: str, target: str, timeout: float, *, passes: bool = False) -> dict[str, Any]:
    """One process with the cache in ``state``. Raises ``PeerError`` if it fails."""
    kept = folder / "cache"
    if state == "cold":
        shutil.rmtree(kept, ignore_errors=True)
    if state == "kernels":
        shutil.rmtree(kept / "models", ignore_errors=True)
    # an installed package has its bytecode: without it, each process would compile the sources of gpucomp and of no peer
    command = ["env", "-u", "PYTHONDONTWRITEBYTECODE", f"GPUCOMP_CACHE={kept}", sys.executable]
    done = subprocess.run(
        [*command, "-m", "bench.compile_time_child", str(folder), target, *(["--passes"] if passes else [])],
        cwd=peers.ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    if done.returncode:
        raise PeerError(done.stderr.strip().splitlines()[-1][:200] if done.stderr.strip() else "without a word")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def theirs(folder: Path, peer: str, options: argparse.Namespace) -> dict[str, Any]:
    """One process of a peer. Raises ``PeerError``."""
    with peers.start(peer, peers.python_of(peer, options.venvs), options.timeout) as worker:
        threads = len(os.sched_getaffinity(0))
        return {"wall": worker.ask(do="load", engine=peer, folder=str(folder), threads=threads)["seconds"]}


def measure(model: str, options: argparse.Namespace) -> dict[str, Any]:
    """The least figures of one model; a peer that fails has its reason as text."""
    row: dict[str, Any] = {"model": Path(model).stem if model not in MODELS else model, "ours": {}, "peers": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        graph = build(model, reduced=options.reduced) if model in MODELS else onnx.load(model)
        onnx.save(graph, folder / MODEL)
        write_inputs(folder, inputs(graph))
        (folder / PRECISION).write_text("fp32", encoding="utf-8")
        (folder / TARGET).write_text(options.target, encoding="utf-8")
        for peer in options.peers:
            try:
                if hasattr(ENGINES[peer], "convert"):
                    peers.convert(peer, peers.python_of(peer, options.venvs), folder, options.timeout)
            except PeerError as error:
                row["peers"][peer] = str(error)
        for _ in range(options.rounds):
            for state in STATES:
                found = ours(folder, state, options.target, options.timeout)
                row["ours"][state] = min(row["ours"].get(state, found), found, key=lambda one: one["wall"])
            for peer in options.peers:
                _their_turn(row["peers"], folder, peer, options)
        if options.passes:
            row["passes"] = ours(folder, "cold", options.target, options.timeout, passes=True)["passes"]
    return row


def _their_turn(rows: dict[str, Any], folder: Path, peer: str, options: argparse.Namespace) -> None:
    if isinstance(rows.get(peer), str):
        return
    try:
        found = theirs(folder, peer, options)
    except PeerError as error:
        rows[peer] = str(error)
    else:
        rows[peer] = min(rows.get(peer, found), found, key=lambda one: one["wall"])


def lines(row: dict[str, Any], options: argparse.Namespace) -> list[str]:
    """A row as text."""
    cold, kernels, model = (row["ours"][state] for state in STATES)
    head = (
        f"{row['model']:16} {cold['kernels']:4} kernels  cold {cold['wall']:6.2f} s (cpu {cold['cpu']:5.2f}, "
        f"{cold['peak_mb']:5.0f} MB)  kernels {kernels['wall']:5.2f} s  model {model['wall']:5.3f} s "
        f"(again {model['again']:6.4f})"
    )
    for peer, found in row["peers"].items():
        what = found if isinstance(found, str) else f"{found['wall']:.3f} s"
        head += f"  {peer} {what}"
    told = [head, "  cold: " + "  ".join(_stage(name, cold) for name in cold["stages"])]
    slowest = sorted(row.get("passes", {}).items(), key=lambda item: -item[1])
    told += [f"  {ms:9.1f} ms  {name}" for name, ms in slowest]
    return told


def _stage(name: str, found: dict[str, Any]) -> str:
    cpu = f" (cpu {found['stages_cpu'][name]:.2f})" if name in found["stages_cpu"] else ""
    return f"{name} {found['stages'][name]:.2f}{cpu}"


def summary(rows: Sequence[dict[str, Any]], options: argparse.Namespace) -> list[str]:
    """Geometric means of our times over each peer's, over the models that it runs."""
    told = []
    for peer in options.peers:
        both = [row for row in rows if isinstance(row["peers"].get(peer), dict)]
        if both:
            means = [
                math.exp(sum(math.log(r["ours"][state]["wall"] / r["peers"][peer]["wall"]) for r in both) / len(both))
                for state in STATES
            ]
            shown = "  ".join(f"{state} {mean:.2f}" for state, mean in zip(STATES, means, strict=True))
            told.append(f"our time over that of {peer}, geometric mean of {len(both)} models: {shown}")
    return told


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("bench.compile_time", __doc__)
    parser.add_argument(
        "models",
        nargs="*",
        metavar="MODEL",
        help="a model of bench.models by name, or an .onnx file (default: all models)",
    )
    parser.add_argument("--target", default="cpu", metavar="TARGET", help="what to compile for, on this machine")
    parser.add_argument("--peers", default="onnxruntime", metavar="A,B", help="engines of bench.cpu; '' for none")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="number of processes of each kind")
    add_shared(parser, "--reduced")
    parser.add_argument("--passes", action="store_true", help="also print the milliseconds of every pass")
    parser.add_argument("--timeout", type=float, default=600, metavar="S", help="time limit of a process, in seconds")
    parser.add_argument(
        "--venvs", type=Path, default=peers.VENVS, metavar="DIR", help="folder of the peers' environments"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures to this file, as JSON")
    options = parser.parse_args(arguments)
    options.peers = [name for name in options.peers.split(",") if name]
    if unknown := sorted(set(options.peers) - (ENGINES.keys() - {"gpucomp"})):
        parser.error(f"no peer {unknown[0]!r}: one of {', '.join(sorted(ENGINES.keys() - {'gpucomp'}))} expected")
    rows, failed = [], False
    for model in options.models or MODELS:
        try:
            rows.append(measure(model, options))
        except (PeerError, subprocess.TimeoutExpired) as error:
            print(f"{model}: {error}", file=sys.stderr)
            failed = True
            continue
        print("\n".join(lines(rows[-1], options)), flush=True)
    print("\n".join(summary(rows, options)))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
