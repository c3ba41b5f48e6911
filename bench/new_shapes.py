"""What a new set of sizes costs a model that was compiled for all: the time of its plan, and memory that is left over.

    python -m bench.new_shapes                          # a chain of 134 pools and softmaxes, 10,000 sets of sizes
    python -m bench.new_shapes --shapes 500 --json new.json
    python -m bench.new_shapes --arena minilm nudenet   # arenas of real models, see bench.packages

``plan`` is the time for the numbers and the arena of a new set of sizes, ``program`` that until it can run. ``grown`` is how much
more memory the process has after all runs than after the first hundred; threads and open files are counted too. ``--arena``
compares the arena that formulas place with one that is planned for the same sizes, over sizes drawn with --seed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import gpucomp
from bench.any_shape import drawn
from bench.options import parser_of
from bench.packages import MODELS, content
from gpucomp import Dim
from gpucomp.artifact.arena import Lifetime, plan_arena
from gpucomp.artifact.open_plan import placed
from gpucomp.frontend import onnx as frontend
from gpucomp.frontend.onnx.loader import Source, read
from gpucomp.frontend.onnx.open_shapes import open_shapes
from gpucomp.ir.conditions import assuming
from gpucomp.ir.instance import nonempty
from gpucomp.ir.size import value_at
from gpucomp.kernel.step import HostStep
from gpucomp.lowering import kernels_of, rewritten
from gpucomp.planning import arenas_of
from gpucomp.runtime.any_shape import AnyShapeExecutable
from gpucomp.runtime.open_program import OpenProgram
from gpucomp.targets import resolve

DIMS = (Dim("n", 1, 16), 4, Dim("h", 8, 40), Dim("w", 8, 40))
SETTLED = 100  # runs after which nothing should grow
LAYERS = 134


def chain(layers: int) -> onnx.ModelProto:
    """Pools of different windows and softmaxes in turns: nothing is fused, and each softmax is scaled."""
    nodes, weights, last = [], [], "x"
    for i in range(layers // 2):
        window = [3 + 2 * (i % 7), 3 + 2 * (i // 7 % 7)]
        kind, pads = "MaxPool" if i < 49 else "AveragePool", [n // 2 for n in window] * 2
        weights.append(numpy_helper.from_array(np.full((4, 1, 1), 1 + i / 100, np.float32), f"c{i}"))
        nodes.append(helper.make_node(kind, [last], [f"p{i}"], kernel_shape=window, pads=pads))
        nodes.append(helper.make_node("Softmax", [f"p{i}"], [f"s{i}"], axis=-1 if i % 2 else 1))
        last = f"a{i}"
        nodes.append(helper.make_node("Mul", [f"s{i}", f"c{i}"], [last]))
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4, "h", "w"]) for name in ("x", last)]
    graph = helper.make_graph(nodes, "chain", infos[:1], infos[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def all_sizes(dims: Mapping[str, Dim], count: int) -> list[dict[str, int]]:
    """``count`` different sets of sizes, in an order of no pattern."""
    choices = [[n for n in range(dim.low, dim.high + 1) if n in dim] for dim in dims.values()]
    total = int(np.prod([len(one) for one in choices]))
    if count > total:
        raise SystemExit(f"there are {total} sets of sizes, {count} were asked for")
    found = np.unravel_index(np.random.default_rng(0).permutation(total)[:count], [len(one) for one in choices])
    rows = zip(*found, strict=True)
    return [{name: one[k] for name, one, k in zip(dims, choices, row, strict=True)} for row in rows]


def measure(count: int, layers: int) -> dict[str, Any]:
    exe = gpucomp.compile(chain(layers), target="cpu", shapes={"x": DIMS})
    assert isinstance(exe, AnyShapeExecutable)
    assert isinstance(exe.program, OpenProgram), exe.program.reason
    plan = exe.program.open_plan
    sizes = all_sizes(exe.dims, count)
    exe.at(**sizes[0]).open()
    plans, programs = [], []
    for one in sizes[:SETTLED]:
        begin = time.perf_counter()
        plan.at(one)
        between = time.perf_counter()
        made = exe.program.at(one)
        assert made is not None
        made.open()
        plans.append(between - begin)
        programs.append(time.perf_counter() - between)
    memory = np.random.default_rng(0).random(np.prod([getattr(n, "high", n) for n in DIMS]), np.float32)
    before = {}
    for number, one in enumerate(sizes):
        if number == min(SETTLED, count - 1):
            before = {"bytes": resident_bytes(), "threads": threading.active_count(), "files": open_files()}
        shape = (one["n"], 4, one["h"], one["w"])
        exe.run({"x": memory[: np.prod(shape)].reshape(shape)})
    return {
        "kernels": len(plan.plan.launches),
        "buffers": len(plan.plan.buffers),
        "formulas": len(plan.formulas),
        "plan_us": 1e6 * float(np.median(plans)),
        "program_us": 1e6 * float(np.median(programs)),
        "shapes": count,
        "grown_bytes": resident_bytes() - before["bytes"],
        "more_threads": threading.active_count() - before["threads"],
        "more_files": open_files() - before["files"],
    }


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def arenas(name: str, count: int, seed: int) -> dict[str, Any]:
    """The largest ratio of an arena by formulas to one that is planned for the same sizes."""
    model, device = MODELS[name], resolve("cpu")
    proto, files = read(content(model))
    shapes = open_shapes(proto, model.shapes, model.constants)
    opened = frontend.load_open(Source(proto, files), shapes, model.constants)
    with assuming(opened.conditions):
        graph = rewritten(nonempty(opened.graph), device, "fp32", ())
        steps = [step for step in kernels_of(graph, device, "fp32", ()) if not isinstance(step, HostStep)]
        temporaries, orders = arenas_of(graph, steps, shapes, device.alignment)
    ratios = []
    for sizes in drawn(shapes.dims, count, np.random.default_rng(seed)):
        lives = [Lifetime(int(value_at(one.nbytes, sizes)), one.first, one.last, one.inplace) for one in temporaries]
        best = plan_arena(lives, device.alignment).arena_bytes
        nbytes = [life.nbytes for life in lives]
        ratios.append(min(placed(order, nbytes, device.alignment)[1] for order in orders) / max(best, 1))
    return {
        "model": name,
        "buffers": len(temporaries),
        "orders": len(orders),
        "largest": max(ratios),
        "mean": float(np.mean(ratios)),
    }


def text(row: Mapping[str, Any]) -> str:
    return (
        f"{row['kernels']} kernels, {row['buffers']} buffers, {row['formulas']} formulas: plan {row['plan_us']:.0f} us, "
        f"program {row['program_us']:.0f} us; after {row['shapes']} shapes {row['grown_bytes'] / 2**20:.1f} MiB grown, "
        f"{row['more_threads']} more threads, {row['more_files']} more files"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("bench.new_shapes", __doc__)
    parser.add_argument(
        "--shapes", type=int, default=10_000, metavar="N", help="sets of sizes that are run, all different"
    )
    parser.add_argument("--layers", type=int, default=LAYERS, metavar="N", help="kernels of the chain")
    parser.add_argument("--arena", nargs="+", metavar="MODEL", help=f"compare arenas instead: {', '.join(MODELS)}")
    parser.add_argument("--draws", type=int, default=40, metavar="N", help="sets of sizes for --arena")
    parser.add_argument("--seed", type=int, default=1, help="of these sizes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures to this file, as JSON")
    options: argparse.Namespace = parser.parse_args(arguments)
    found: Any
    if options.arena:
        if unknown := sorted(set(options.arena) - MODELS.keys()):
            parser.error(f"no model {unknown[0]!r}: one of {', '.join(MODELS)} expected")
        found = [arenas(name, options.draws, options.seed) for name in options.arena]
        for row in found:
            print(
                f"{row['model']:18} {row['buffers']:4} temporaries, {row['orders']} orders: arena at most "
                f"{row['largest']:.3f} of the planned one, {row['mean']:.3f} in the mean"
            )
    else:
        found = measure(options.shapes, options.layers)
        print(text(found))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
