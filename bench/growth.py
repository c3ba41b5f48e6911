"""How the cost of a compilation grows with the model: seconds and memory from 10 nodes to 10,000.

    python -m bench.growth                                  # every kind, for the CPU, without a cache
    python -m bench.growth chain layers --most 1000 --html growth.html --json growth.json

Each figure is of a fresh process that has compiled another model before, so nothing is imported while it counts. ``growth``
is the power of the size that the seconds grow with, from one size to the next: 1 is linear, 2 quadratic. ``memory`` is what
the process takes beyond what it took before, at its peak, and ``weights`` how many bytes of constants the model has.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from llvmlite.binding import get_host_cpu_name
from onnx import TensorProto, helper, numpy_helper

from bench.cpu.peers import ROOT
from bench.options import add_shared, parser_of
from gpucomp.report import chart, page

SIZES = (10, 100, 1000, 10_000)
Made = tuple[list[onnx.NodeProto], dict[str, np.ndarray]]


def chain(count: int) -> Made:
    """Elementwise operators, each of the one before: expressions as deep as kernels allow."""
    kinds = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs")
    return [helper.make_node(kinds[k % 5], [f"v{k}"], [f"v{k + 1}"]) for k in range(count)], {}


def doubled(count: int) -> Made:
    """Each value is the sum of the one before with itself: twice as many terms at every step, if they were written out."""
    both = ("Add", "Max")
    return [helper.make_node(both[k % 2], [f"v{k}", f"v{k}"], [f"v{k + 1}"]) for k in range(count)], {}


def wide(count: int) -> Made:
    """Products with constants of their own, joined."""
    nodes = [helper.make_node("Mul", ["v0", f"w{k}"], [f"p{k}"]) for k in range(count)]
    joined = helper.make_node("Concat", [f"p{k}" for k in range(count)], [f"v{count}"], axis=1)
    return [*nodes, joined], {f"w{k}": np.full(64, 1 + k / count, np.float32) for k in range(count)}


def moved(count: int) -> Made:
    """Transposes, reshapes and rolled halves: index arithmetic of the one before."""
    found = []
    constants = {"tall": np.array([16, 4]), "flat": np.array([1, 64]), "halves": np.array([32, 32])}
    for k in range(0, count, 4):
        found += [
            helper.make_node("Reshape", [f"v{k}", "tall"], [f"v{k + 1}"]),
            helper.make_node("Transpose", [f"v{k + 1}"], [f"v{k + 2}"], perm=[1, 0]),
            helper.make_node("Reshape", [f"v{k + 2}", "flat"], [f"v{k + 3}"]),
            helper.make_node("Split", [f"v{k + 3}", "halves"], [f"a{k}", f"b{k}"], axis=1),
            helper.make_node("Concat", [f"b{k}", f"a{k}"], [f"v{k + 4}"], axis=1),
        ]
    return found, {name: array.astype(np.int64) for name, array in constants.items()}


def rows(count: int) -> Made:
    """The same kernel again and again."""
    found = [helper.make_node("Softmax", [f"v{k}"], [f"v{k + 1}"], axis=1) for k in range(count)]
    return found, {}


def layers(count: int) -> Made:
    """Matrix products of different sizes, each with a bias and a Relu: as many different kernels."""
    rng = np.random.default_rng(0)
    nodes, weights, wide = [], {}, 64
    for k in range(count):
        narrow, wide = wide, 24 + k * (1 + k // 97) % 97 if k + 1 < count else 64
        weights[f"w{k}"] = rng.standard_normal((narrow, wide)).astype(np.float32) / 8
        weights[f"c{k}"] = rng.standard_normal(wide).astype(np.float32)
        nodes += [
            helper.make_node("Gemm", [f"v{k}", f"w{k}", f"c{k}"], [f"p{k}"]),
            helper.make_node("Relu", [f"p{k}"], [f"v{k + 1}"]),
        ]
    return nodes, weights


KINDS: dict[str, Callable[[int], Made]] = {f.__name__: f for f in (chain, doubled, wide, moved, rows, layers)}
MOST = {"layers": 1000}  # each is a kernel of its own: 10,000 take minutes


def model(kind: str, count: int) -> onnx.ModelProto:
    """About ``count`` nodes of a kind, from ``x`` f32[1, 64]."""
    nodes, constants = KINDS[kind](count)
    for node in nodes:
        node.input[:] = ["x" if name == "v0" else name for name in node.input]
    info = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])]
    result = [onnx.ValueInfoProto(name=nodes[-1].output[0])]
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, kind, info, result, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def child(path: Path, target: str) -> dict[str, Any]:
    """Compile the model in this process, after a small one; what that took."""
    from gpucomp import compiler

    compiler.compile(model("layers", 2), target=target)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    exe = compiler.compile(path, target=target)
    seconds = time.perf_counter() - begin
    return {
        "seconds": seconds,
        "kernels": len(exe.plan.kernels),
        "launches": len(exe.plan.launches),
        "memory": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024,
    }


def measure(kind: str, count: int, options: argparse.Namespace) -> dict[str, Any]:
    """One process. Raises ``RuntimeError`` if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        made = model(kind, count)
        onnx.save(made, path)
        command = ["env", "GPUCOMP_CACHE=", sys.executable, "-m", "bench.growth", "--child", str(path)]
        done = subprocess.run(
            [*command, "--target", options.target], cwd=ROOT, capture_output=True, text=True, timeout=options.timeout
        )
        if done.returncode:
            raise RuntimeError(done.stderr.strip()[-1000:] or "without a word")
    weights = sum(len(tensor.raw_data) for tensor in made.graph.initializer)
    return {"kind": kind, "nodes": len(made.graph.node), "weights": weights, **json.loads(done.stdout.splitlines()[-1])}


def power(before: dict[str, Any], after: dict[str, Any]) -> float:
    """The power of the nodes that the seconds grow with."""
    return math.log(after["seconds"] / before["seconds"]) / math.log(after["nodes"] / before["nodes"])


def text(row: dict[str, Any], before: dict[str, Any] | None) -> str:
    grown = f"  growth {power(before, row):4.2f}" if before is not None else ""
    return (
        f"{row['kind']:8} {row['nodes']:6} nodes {row['kernels']:5} kernels {row['seconds']:8.2f} s  "
        f"memory {row['memory'] / 1e6:6.1f} MB  weights {row['weights'] / 1e6:5.1f} MB{grown}"
    )


def drawn(found: Sequence[dict[str, Any]], target: str) -> str:
    """The page with seconds and memory of every kind over the nodes."""
    kinds = list(dict.fromkeys(row["kind"] for row in found))
    charts = []
    for what, name, unit in (("seconds", "seconds", 1.0), ("memory", "MB beyond the start", 1e6)):
        series = [
            chart.Series(
                kind,
                [row["nodes"] for row in found if row["kind"] == kind],
                [max(row[what] / unit, 1e-3) for row in found if row["kind"] == kind],
                colour=number,
            )
            for number, kind in enumerate(kinds)
        ]
        charts.append(chart.lines(name, series, chart.Axis("nodes", log=True), chart.Axis(name, log=True)))
    explained = [f"{kind}: {(KINDS[kind].__doc__ or '').splitlines()[0]}" for kind in kinds]
    heading = page.heading(f"Growth of a compilation, {target}", 1)
    return page.page(
        "Growth of a compilation",
        [heading, *map(page.paragraph, explained), f'<div class="charts">{"".join(charts)}</div>'],
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("bench.growth", __doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of: {', '.join(KINDS)} (default: all)")
    parser.add_argument("--target", default="cpu", metavar="TARGET", help="what to compile for, on this machine")
    parser.add_argument("--most", type=int, default=SIZES[-1], metavar="N", help="the most nodes of a model")
    parser.add_argument("--timeout", type=float, default=900, metavar="S", help="time limit of a process, in seconds")
    add_shared(parser, "--markdown")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also draw the figures on this page")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures to this file, as JSON")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        print(json.dumps(child(options.child, options.target)))
        return 0
    if unknown := sorted(set(options.kinds) - KINDS.keys()):
        parser.error(f"no kind {unknown[0]!r}: one of {', '.join(KINDS)} expected")
    found: list[dict[str, Any]] = []
    told: list[str] = []
    for kind in options.kinds or KINDS:
        before = None
        for count in (n for n in SIZES if n <= min(options.most, MOST.get(kind, SIZES[-1]))):
            found.append(measure(kind, count, options))
            told.append(text(found[-1], before))
            print(told[-1], flush=True)
            before = found[-1]
    if options.markdown:
        where = f"`python -m bench.growth`, target {options.target}, {os.cpu_count()} cores of {get_host_cpu_name()}:"
        lines = ["# How the cost of a compilation grows", "", where, "", "```", *told, "```", ""]
        options.markdown.write_text("\n".join(lines), encoding="utf-8")
    if options.html:
        options.html.write_text(drawn(found, options.target), encoding="utf-8")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
