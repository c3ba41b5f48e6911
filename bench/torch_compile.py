"""``torch.compile(model, backend="gpucomp")`` beside eager and inductor on a processor: breaks, errors, compile times, speed.

    python -m bench.torch_compile                                       # every model whose packages are here
    python -m bench.torch_compile resnet50 bert_base --markdown torch_compile.md --json torch_compile.json

Models have random weights and take one image or text. Those of torchvision and of transformers need these packages; others do
not. The three take turns, several rounds each, all on --threads threads, and the median of all calls counts. ``error`` is the
largest absolute difference from eager's results over the largest of these; inductor's is beside it. ``breaks`` are the places
where Dynamo ended a graph, ``eager`` the graphs, or parts of them, that gpucomp left to eager. ``first`` is the seconds of the
first call, with Dynamo's trace, the export and the compilation, with empty caches; ``again`` is the same in a fresh process that
finds the caches full.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from bench.options import add_shared, parser_of
from gpucomp import config
from gpucomp.device.processor import model_name

ROUNDS, LEAST_CALLS, REST_S = 5, 3, 0.3  # threads of a backend whose turn has ended spin for a while
BACKENDS = ("eager", "inductor", "gpucomp")
IMAGE = (1, 3, 224, 224)
TINY = (
    "resnet",
    "lstm",
    "unet",
    "detector",
    "spotter",
    "bert",
    "gpt2",
    "vit",
    "whisper",
    "mixtral",
)  # of bench.exports
VISION = (
    "resnet18",
    "resnet50",
    "mobilenet_v3_large",
    "efficientnet_b0",
    "densenet121",
    "convnext_tiny",
    "swin_t",
    "vit_b_16",
    "shufflenet_v2_x1_0",
    "regnet_y_400mf",
)
TEXT = ("bert_base", "distilbert", "gpt2_small", "t5_encoder")
MODELS = (*TINY, *VISION, *TEXT)
Net = tuple[Any, tuple[Any, ...]]


def tiny(name: str) -> Net:
    exports = import_module("bench.exports.export")
    net, given = exports.MODELS[name]()
    return net, given


def vision(name: str) -> Net:
    torch = import_module("torch")
    model = getattr(import_module("torchvision.models"), name)(weights=None)
    for parameter in model.parameters():
        if not parameter.any():  # some heads begin as zeros, and so would their results be
            torch.nn.init.normal_(parameter, std=0.02)
    return model, (torch.randn(IMAGE),)


def without_operators() -> None:
    """Let torchvision be imported without its operators: its wheel on PyPI is for torch with CUDA. No model here calls one."""
    torch = import_module("torch")
    try:
        import_module("torchvision")
    except RuntimeError:
        for module in [key for key in sys.modules if key.partition(".")[0] == "torchvision"]:
            del sys.modules[module]
        _libraries.append(torch.library.Library("torchvision", "DEF"))
        for operator in ("nms", "qnms"):
            _libraries[0].define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import_module("torchvision")
    except ModuleNotFoundError:
        pass


_libraries: list[Any] = []  # operators end with the object that defined them


def text(name: str) -> Net:
    from bench.exports.transformers_nets import Named, tokens

    made = import_module("transformers")
    ids = tokens(1, 128, below=1000)
    if name == "gpt2_small":
        return Named(made.GPT2LMHeadModel(made.GPT2Config(use_cache=False)), ("input_ids",), ("logits",)), (ids,)
    configs = {
        "bert_base": lambda: made.BertModel(made.BertConfig()),
        "distilbert": lambda: made.DistilBertModel(made.DistilBertConfig()),
        "t5_encoder": lambda: made.T5EncoderModel(made.T5Config()),
    }
    return Named(configs[name](), ("input_ids",), ("last_hidden_state",)), (ids,)


def net(name: str) -> Net:
    """The model, in evaluation mode, and its arguments; always the same."""
    without_operators()
    import_module("torch").manual_seed(7)
    make = tiny if name in TINY else vision if name in VISION else text
    model, given = make(name)
    return model.eval(), given


def flat(results: Any) -> list[Any]:
    leaves: list[Any] = import_module("torch.utils._pytree").tree_leaves(results)
    return leaves


def error(found: Sequence[Any], wanted: Sequence[Any]) -> float:
    """The largest difference of a result, over the largest number in it; the worst of all results."""
    each = [
        float((a.double() - b.double()).abs().max()) / max(float(b.double().abs().max()), 1e-30)
        for a, b in zip(found, wanted, strict=True)
        if b.numel()
    ]
    return max(each, default=0.0)


def breaks() -> int:
    return sum(import_module("torch._dynamo.utils").counters["graph_break"].values())


def compiled(model: Any, backend: str) -> Callable[..., Any]:
    if backend == "eager":
        eager: Callable[..., Any] = model
        return eager
    own = import_module("gpucomp.torch").backend if backend == "gpucomp" else backend
    found: Callable[..., Any] = import_module("torch").compile(model, backend=own)
    return found


def first_call(name: str, backend: str) -> dict[str, Any]:
    """Seconds of the first call in this process, and for gpucomp what became of the graphs."""
    torch = import_module("torch")
    model, given = net(name)
    run = compiled(model, backend)
    with torch.no_grad():
        began = time.perf_counter()
        run(*given)
        row: dict[str, Any] = {"seconds": time.perf_counter() - began, "breaks": breaks()}
    if backend == "gpucomp":
        report = import_module("gpucomp.torch").report()
        row |= {"graphs": len(report.graphs), "left": [str(why) for graph in report.graphs for why in graph.eager]}
        row["told"] = str(report)
    return row


def in_a_process(name: str, backend: str, folder: Path, threads: int) -> dict[str, Any]:
    """``first_call`` in a process with these caches."""
    caches = [f"GPUCOMP_CACHE={folder / 'gpucomp'}", f"TORCHINDUCTOR_CACHE_DIR={folder / 'inductor'}"]
    command = [
        "env",
        *caches,
        sys.executable,
        "-m",
        "bench.torch_compile",
        name,
        "--first",
        backend,
        "--threads",
        str(threads),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    if ended.returncode:
        return {"failed": ended.stderr.strip().splitlines()[-1:]}
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def speed(name: str, backends: Sequence[str], seconds: float) -> dict[str, Any]:
    """Median seconds of a call, and errors, for each backend; they take turns."""
    torch = import_module("torch")
    torch.compiler.reset()  # of the model before
    model, given = net(name)
    with torch.no_grad():
        wanted = flat(model(*given))
        calls, errors = {}, {}
        for backend in backends:
            run = compiled(model, backend)
            try:
                errors[backend] = error(flat(run(*given)), wanted)
            except (RuntimeError, NotImplementedError) as problem:  # inductor's, for what it cannot compile
                errors[backend] = None
                print(f"{name}: {backend}: {str(problem).splitlines()[0]}", file=sys.stderr)
                continue
            calls[backend] = run
        times: dict[str, list[float]] = {backend: [] for backend in calls}
        for _ in range(ROUNDS):
            for backend, run in calls.items():
                time.sleep(REST_S)
                run(*given)
                times[backend] += turn(lambda run=run: run(*given), seconds / ROUNDS)  # type: ignore[misc]
    return {"ms": {backend: 1e3 * float(np.median(found)) for backend, found in times.items()}, "errors": errors}


def turn(call: Callable[[], Any], seconds: float) -> list[float]:
    found: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(found) < LEAST_CALLS:
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return found


def measure(name: str, backends: Sequence[str], seconds: float, threads: int) -> dict[str, Any]:
    row: dict[str, Any] = {"model": name}
    for backend in backends:
        if backend != "eager":
            with tempfile.TemporaryDirectory() as folder:
                row[f"first {backend}"] = in_a_process(name, backend, Path(folder), threads)
                row[f"again {backend}"] = in_a_process(name, backend, Path(folder), threads)
    return row | speed(name, backends, seconds)


def cells(row: dict[str, Any]) -> list[str]:
    """A line of the table."""
    times, errors = row["ms"], row["errors"]
    ours = times.get("gpucomp")
    found = [row["model"]]
    for backend in BACKENDS:
        found.append(f"{times[backend]:.2f}" if backend in times else "-")
    found += [f"{times[other] / ours:.2f}" if ours and other in times else "-" for other in ("eager", "inductor")]
    found += [f"{errors[name]:.1e}" if errors.get(name) is not None else "-" for name in ("gpucomp", "inductor")]
    first = row.get("first gpucomp", {})
    found += [str(first.get("breaks", "-")), str(len(first["left"]) if "left" in first else "-")]
    for backend in ("gpucomp", "inductor"):
        for when in ("first", "again"):
            taken = row.get(f"{when} {backend}", {}).get("seconds")
            found.append("-" if taken is None else f"{taken:.1f}")
    return found


HEAD = (
    "model",
    "eager ms",
    "inductor ms",
    "gpucomp ms",
    "eager / gpucomp",
    "inductor / gpucomp",
    "error",
    "error of inductor",
    "breaks",
    "eager",
    "first s",
    "again s",
    "inductor first s",
    "inductor again s",
)


def markdown(rows: Sequence[dict[str, Any]], about: str) -> str:
    lines = [about, "", f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}"]
    lines += [f"| {' | '.join(cells(row))} |" for row in rows]
    for other in ("eager", "inductor"):
        ratios = [row["ms"][other] / row["ms"]["gpucomp"] for row in rows if {other, "gpucomp"} <= row["ms"].keys()]
        if ratios:
            lines += [
                "",
                f"Geometric mean of {other} / gpucomp over {len(ratios)} models: {np.exp(np.mean(np.log(ratios))):.2f}",
            ]
    left = {row["model"]: row["first gpucomp"]["left"] for row in rows if row.get("first gpucomp", {}).get("left")}
    for name, reasons in left.items():
        lines += ["", f"{name}, left to eager:", *(f"- {why}" for why in dict.fromkeys(reasons))]
    for row in rows:
        told = row.get("first gpucomp", {}).get("told", "").splitlines()
        if broken := [line.removeprefix("break: ") for line in told if line.startswith("break: ")]:
            lines += ["", f"{row['model']}, where Dynamo ended graphs:", *(f"- {why}" for why in broken)]
    return "\n".join(lines) + "\n"


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = parser_of("bench.torch_compile", __doc__)
    parser.add_argument("models", nargs="*", metavar="NAME", help=f"models, all if there is none: {', '.join(MODELS)}")
    parser.add_argument("--backends", default=",".join(BACKENDS), metavar="A,B", help="what takes turns")
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds of calls of each backend for each model")
    parser.add_argument("--threads", type=int, default=2, help="threads of each backend")
    parser.add_argument("--first", metavar="BACKEND", help="only the first call of one model, told as JSON")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all results to this file, as JSON")
    add_shared(parser, "--markdown")
    found = parser.parse_args(given)
    if unknown := [name for name in found.models if name not in MODELS]:
        parser.error(f"no model {unknown[0]!r}: one of {', '.join(MODELS)} expected")
    if unknown := [name for name in found.backends.split(",") if name not in BACKENDS]:
        parser.error(f"no backend {unknown[0]!r}: one of {', '.join(BACKENDS)} expected")
    return found


def main(given: Sequence[str] | None = None) -> None:
    asked = arguments(given)
    torch = import_module("torch")
    torch.set_num_threads(asked.threads)
    with config.using(threads=asked.threads):
        if asked.first:
            print(json.dumps(first_call(asked.models[0], asked.first)))
            return
        about = f"torch {torch.__version__}, {asked.threads} threads, {len(os.sched_getaffinity(0))} cores of {model_name()}"
        about = f"`python -m bench.torch_compile {' '.join(sys.argv[1:])}`: {about}".replace(" `", "`")
        rows = []
        for name in asked.models or MODELS:
            try:
                rows.append(measure(name, asked.backends.split(","), asked.seconds, asked.threads))
            except ModuleNotFoundError as problem:
                print(f"{name} is left out: {problem.name} is not installed", file=sys.stderr)
                continue
            print("  ".join(f"{title} {cell}" for title, cell in zip(HEAD, cells(rows[-1]), strict=True)), flush=True)
            if asked.markdown:
                asked.markdown.write_text(markdown(rows, about), encoding="utf-8")
            if asked.json:
                asked.json.write_text(json.dumps({"about": about, "rows": rows}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
