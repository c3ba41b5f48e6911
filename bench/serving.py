"""Many requests at once on one processor: requests a second of gpucomp and of engines beside it, and what a run costs around.

    python -m bench.serving                              # eight models, two threads
    python -m bench.serving model.onnx --threads 1       # a file of your own
    python -m bench.serving magika minilm --seconds 5 --markdown serving.md
    python -m bench.serving --stress 100000              # runs from eight threads, many cancelled: every result must be right

Each engine serves as many requests as it can for --seconds, on --threads processor threads in all, in each of its ways: ``one``
request after the other with all threads, or as many requests side by side as threads. gpucomp's side by side are contexts,
one for each Python thread; onnxruntime's are threads that share a session with one thread for an operator; OpenVINO's are the
streams of its throughput hint. The engines take turns, several rounds each, and the best round of each way counts. The best way
of an engine is what it is compared by.

``apart`` is how far an engine's answer is from gpucomp's, relative to the answer's size: all compute in f32.
``around`` is the time of a run less that of its kernels, with arrays of the caller's for inputs and outputs. ``memory`` is what
further contexts add, in MiB each, beside the weights, which they share.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import gpucomp
from bench import packages
from bench.options import add_shared, engines_here, openvino_f32, parser_of
from gpucomp import config
from gpucomp.cli.compare import relative_error
from gpucomp.errors import RunStoppedError

CHOSEN = ("ppocr_cls", "ppocr_det", "ppocr_rec", "nudenet", "silero_vad", "minilm", "minilm_int8", "magika")
PEERS = ("onnxruntime", "openvino")
ROUNDS, REST_S = 3, 0.3  # of each way; threads of a way that has ended spin for a while
CONTEXTS = 4  # whose memory is measured
WARM = 20
CALLERS = 8
DIGITS = Path(__file__).parents[1] / "examples" / "digits" / "digits.onnx"
Request = Callable[[], Any]
Ways = dict[str, list[Request]]  # for each way, the requests that go side by side


def ours(proto: Any, inputs: Mapping[str, np.ndarray], threads: int) -> Ways:
    exe = gpucomp.compile(proto, target="cpu")
    contexts = [exe.context() for _ in range(threads)]
    return {"one": [lambda: exe.run(inputs)], "side by side": [lambda c=c: c.run(inputs) for c in contexts]}  # type: ignore[misc]


def onnxruntime(proto: Any, inputs: Mapping[str, np.ndarray], threads: int) -> Ways:
    ort = import_module("onnxruntime")

    def session(count: int) -> Any:
        options = ort.SessionOptions()
        options.intra_op_num_threads = count
        return ort.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])

    whole, shared = session(threads), session(1)
    return {"one": [lambda: whole.run(None, inputs)], "side by side": [lambda: shared.run(None, inputs)] * threads}


def openvino(proto: Any, inputs: Mapping[str, np.ndarray], threads: int) -> Ways:
    core = import_module("openvino").Core()
    model = core.read_model(proto.SerializeToString())

    def requests(hint: str, count: int) -> list[Request]:
        options = openvino_f32(threads, hint) | ({"NUM_STREAMS": count} if count > 1 else {})
        made = core.compile_model(model, "CPU", options)
        every = [made.create_infer_request() for _ in range(count)]
        return [lambda r=r: r.infer(dict(inputs), share_inputs=True) for r in every]  # type: ignore[misc]

    return {"one": requests("LATENCY", 1), "side by side": requests("THROUGHPUT", threads)}


ENGINES: dict[str, Callable[[Any, Mapping[str, np.ndarray], int], Ways]] = {
    "gpucomp": ours,
    "onnxruntime": onnxruntime,
    "openvino": openvino,
}


def rate(requests: Sequence[Request], seconds: float) -> float:
    """Requests a second, if each of ``requests`` is made again and again by a thread of its own."""
    counts, end = [0] * len(requests), time.perf_counter() + seconds

    def serve(number: int) -> None:
        while time.perf_counter() < end:
            requests[number]()
            counts[number] += 1

    begin = time.perf_counter()
    threads = [threading.Thread(target=serve, args=(number,)) for number in range(len(requests))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - begin)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def around(exe: Any, inputs: Mapping[str, np.ndarray], count: int = 300) -> float:
    """Seconds of a run with the caller's arrays, less those of its kernels: medians."""
    outputs = exe.run(inputs)
    for _ in range(WARM):  # until it is decided how many threads run it
        exe.run(inputs)
    with exe._program() as program:
        kernels = np.median(program.time_launches(inputs, count))
    whole = []
    for _ in range(count):
        begin = time.perf_counter()
        exe.run(inputs, outputs=outputs)
        whole.append(time.perf_counter() - begin)
    return float(np.median(whole) - kernels)


def memory(exe: Any, inputs: Mapping[str, np.ndarray]) -> float:
    """Bytes that each further context takes, after a run."""
    exe.run(inputs)
    before = resident()
    contexts = [exe.context() for _ in range(CONTEXTS)]
    for one in contexts:
        one.run(inputs)
    return (resident() - before) / CONTEXTS


def differs(ways: Ways, ours: Ways) -> float:
    """The largest distance of an answer, in every way that an engine has, from ours. Each request is made once."""
    wanted = answer(ours["one"][0])
    return max(
        relative_error(np.asarray(found), array)
        for requests in ways.values()
        for request in requests
        for found, array in zip(answer(request), wanted, strict=True)
    )


def answer(request: Request) -> list[Any]:
    found = request()
    return list(found.values() if isinstance(found, Mapping) else found)


def is_file(name: str) -> bool:
    return name.endswith(".onnx")


def measure(name: str, engines: Sequence[str], threads: int, seconds: float) -> dict[str, Any]:
    proto = onnx.load(name) if is_file(name) else packages.fixed(packages.MODELS[name])
    inputs = packages.inputs(proto)
    exe = gpucomp.compile(proto, target="cpu")
    model = Path(name).parent.name if Path(name).stem == "model" else Path(name).stem
    found: dict[str, Any] = {"model": model, "around": around(exe, inputs), "memory": memory(exe, inputs)}
    weights = sum(array.nbytes for array in exe.weights.values())
    ready = {engine: ENGINES[engine](proto, inputs, threads) for engine in engines}
    apart = {engine: differs(ways, ready["gpucomp"]) for engine, ways in ready.items()}
    rates: dict[str, dict[str, float]] = {engine: {} for engine in engines}
    for turn in range(ROUNDS):
        for engine in [*engines[turn % len(engines) :], *engines[: turn % len(engines)]]:
            for way, requests in ready[engine].items():
                time.sleep(REST_S)
                rates[engine][way] = max(rates[engine].get(way, 0.0), rate(requests, seconds))
    return {**found, "weights": weights, "apart": apart, "rates": rates}


def stress(count: int) -> dict[str, int]:
    """``count`` runs of the digits' network at changing sizes, from ``CALLERS`` threads: how many ended in which way."""
    exe = gpucomp.compile(DIGITS, target="cpu", shapes={"image": ("batch", 1, 8, 8)})
    rng = np.random.default_rng(0)
    feeds = [{"image": rng.random((batch, 1, 8, 8)).astype(np.float32)} for batch in range(1, 9)]
    wanted = [exe.run(feed) for feed in feeds]
    ended: list[Counter[str]] = [Counter() for _ in range(CALLERS)]

    def call(number: int) -> None:
        rng = np.random.default_rng(number)
        runs = exe.context() if number % 2 else exe
        for _ in range(count // CALLERS):
            which, way = rng.integers(len(feeds)), rng.random()
            try:
                if way < 0.4:
                    pending = runs.run_async(feeds[which])
                    if way < 0.3:
                        pending.cancel()
                    found = pending.result()
                else:
                    found = runs.run(feeds[which], timeout=rng.random() * 2e-4 if way < 0.7 else None)
            except (RunStoppedError, CancelledError):
                ended[number]["stopped"] += 1
            else:
                same = all(np.array_equal(found[name], array) for name, array in wanted[which].items())
                ended[number]["right" if same else "wrong"] += 1

    threads = [threading.Thread(target=call, args=(number,)) for number in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return dict(sum(ended, Counter()))


def text(row: Mapping[str, Any]) -> str:
    own = row["rates"]["gpucomp"]
    parts = [f"{row['model']:12} gpucomp one {own['one']:8.1f}/s, side by side {own['side by side']:8.1f}/s"]
    for engine, ways in row["rates"].items():
        if engine != "gpucomp":
            way = max(ways, key=ways.__getitem__)
            ratio, apart = max(own.values()) / ways[way], row["apart"][engine]
            parts.append(f"{engine} {ways[way]:8.1f}/s ({way}) {ratio:5.2f}x, {apart:.0e} apart")
    parts.append(f"around {1e6 * row['around']:5.1f} us")
    parts.append(f"memory {row['memory'] / 2**20:6.2f} of weights {row['weights'] / 2**20:6.2f}")
    return "   ".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("bench.serving", __doc__)
    every = ", ".join(packages.MODELS)
    parser.add_argument(
        "models", nargs="*", metavar="MODEL", help=f"an .onnx file, or of: {every} (default: {', '.join(CHOSEN)})"
    )
    parser.add_argument("--threads", type=int, default=2, help="of each engine in all")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each round")
    parser.add_argument("--peers", default=",".join(PEERS), metavar="NAMES", help=f"of: {', '.join(PEERS)}")
    add_shared(parser, "--markdown")
    parser.add_argument(
        "--stress", type=int, default=0, metavar="RUNS", help="only make so many runs, and check the results"
    )
    options: argparse.Namespace = parser.parse_args(arguments)
    if options.stress:
        ended = stress(options.stress)
        print(
            f"{options.stress} runs from {CALLERS} threads: "
            + ", ".join(f"{n} {how}" for how, n in sorted(ended.items()))
        )
        return int("wrong" in ended)
    if unknown := sorted({name for name in options.models if not is_file(name)} - set(packages.MODELS)):
        parser.error(f"no model {unknown[0]!r}: one of {', '.join(packages.MODELS)} expected")
    engines = engines_here(parser, options.peers, PEERS)
    rows, lines = [], []
    for name in options.models or CHOSEN:
        with config.using(threads=options.threads):
            rows.append(measure(name, engines, options.threads, options.seconds))
        lines.append(text(rows[-1]))
        print(lines[-1], flush=True)
    if options.markdown:
        command = f"python -m bench.serving --threads {options.threads} --seconds {options.seconds}"
        head = ["# Many requests at once", "", f"`{command}`:", ""]
        options.markdown.write_text("\n".join([*head, "```", *lines, "```", ""]), encoding="utf-8")
        options.markdown.with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
