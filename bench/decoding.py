"""A decoder's time per token behind few and behind many keys: gpucomp with states in place, and engines beside it.

    python -m bench.decoding                                  # 135M and 0.5B parameters, behind 100 to 8,000 keys
    python -m bench.decoding smollm2_135m --lengths 100 8000 --peers onnxruntime,openvino --markdown decoding.md
    python -m bench.decoding --states fp16                    # keys and values in 16 bits; so in OpenVINO

The decoders have the sizes of published ones and random weights, in f32. One token is decoded behind so many keys, which are
random too. gpucomp's context holds keys and values, and a run stores one more row in place. onnxruntime is given them as inputs
and returns them as outputs, in memory of its choice; OpenVINO holds them as variables (its stateful transformation). The engines
take turns, and so do the lengths, because a machine's own speed changes; the median of their runs counts.

``written`` is how many bytes of the states a run has changed, counted by looking at each element; ``a row`` is how many the
new keys and values have.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import gpucomp
from bench.decoder_model import Sizes, decoder
from bench.options import add_shared, engines_here, openvino_f32, parser_of
from gpucomp import Dim, config
from gpucomp.ir.precision import STATES_PRECISIONS

POSITIONS = 8192
MODELS = {
    "smollm2_135m": Sizes(30, 9, 3, 64, 1536, 49152, POSITIONS, tied=True),
    "qwen2.5_0.5b": Sizes(24, 14, 2, 64, 4864, 151936, POSITIONS, tied=True),
    "small": Sizes(2, 6, 2, 16, 96, 200, POSITIONS, tied=True),
}
CHOSEN = ("smollm2_135m", "qwen2.5_0.5b")
PEERS = ("onnxruntime", "openvino")
LENGTHS = (100, 1000, 4000, 8000)
TURNS, RUNS, WARM = 3, 8, 3  # turns of each engine, and runs of a turn, without the first ones
REST_S = 0.3  # threads of the engine before spin for a while
Keys = Mapping[str, np.ndarray]
Step = Callable[[], Any]


def names_of(s: Sizes) -> list[str]:
    return [f"past_key_values.{n}.{kind}" for n in range(s.layers) for kind in ("key", "value")]


def keys_of(s: Sizes, length: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(length)
    return {name: random.standard_normal((1, s.groups, length, s.size), np.float32) for name in names_of(s)}


class Ours:
    def __init__(self, proto: onnx.ModelProto, s: Sizes, threads: int, states: str) -> None:
        past = Dim("past_sequence_length", 0, s.positions)
        shapes: dict[str, Any] = dict.fromkeys(names_of(s), (1, s.groups, past, s.size))
        begin = time.perf_counter()
        self.exe = gpucomp.compile(
            proto,
            target="cpu",
            shapes={"input_ids": (1, Dim("sequence_length", 1, 1024)), **shapes},
            states="auto",
            states_precision=states,
        )
        self.compiled = time.perf_counter() - begin
        self.context = self.exe.context()

    def step(self, keys: Keys, token: np.ndarray) -> Step:
        """One token. Each run is behind one key more."""
        self.context.restore(keys)
        return lambda: self.context.run({"input_ids": token})["logits"]

    def written(self, token: np.ndarray) -> int:
        """The bytes of the states that one run changes."""
        before = {name: array.copy() for name, array in self.context.states.arrays.items()}
        self.context.run({"input_ids": token})
        now = self.context.states.arrays
        return sum(int((now[name] != old).sum()) * old.itemsize for name, old in before.items())


class OnnxRuntime:
    def __init__(self, proto: onnx.ModelProto, s: Sizes, threads: int, states: str) -> None:
        ort = import_module("onnxruntime")
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = ort.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])

    def step(self, keys: Keys, token: np.ndarray) -> Step:
        binding = self.session.io_binding()
        for name, array in {**keys, "input_ids": token}.items():
            binding.bind_cpu_input(name, array)
        for output in self.session.get_outputs():
            binding.bind_output(output.name, "cpu")

        def run() -> np.ndarray:
            self.session.run_with_iobinding(binding)
            return binding.get_outputs()[0].numpy()

        return run


class OpenVino:
    def __init__(self, proto: onnx.ModelProto, s: Sizes, threads: int, states: str) -> None:
        ov = import_module("openvino")
        core = ov.Core()
        model = core.read_model(proto.SerializeToString())
        pairs = {name: name.replace("past_key_values", "present") for name in names_of(s)}
        import_module("openvino._offline_transformations").apply_make_stateful_transformation(model, pairs)
        options = openvino_f32(threads) | {"KV_CACHE_PRECISION": {"fp32": "f32", "fp16": "f16", "bf16": "bf16"}[states]}
        self.ov = ov
        self.request = core.compile_model(model, "CPU", options).create_infer_request()

    def step(self, keys: Keys, token: np.ndarray) -> Step:
        for state in self.request.query_state():
            name = next(name for name in keys if state.name.startswith(name))
            state.state = self.ov.Tensor(keys[name])
        return lambda: self.request.infer({"input_ids": token})[0]


ENGINES = {"gpucomp": Ours, "onnxruntime": OnnxRuntime, "openvino": OpenVino}


def measure(name: str, peers: list[str], lengths: list[int], threads: int, states: str) -> dict[str, Any]:
    s = MODELS[name]
    proto = decoder(s)
    engines = {one: ENGINES[one](proto, s, threads, states) for one in ("gpucomp", *peers)}
    token = np.array([[7]], np.int64)
    row: dict[str, Any] = {"model": name, "parameters": sum(int(np.prod(w.dims)) for w in proto.graph.initializer)}
    row |= {"compile": engines["gpucomp"].compiled, "ms": {}, "differ": 0.0}
    times: dict[int, dict[str, list[float]]] = {length: {one: [] for one in engines} for length in lengths}
    for _, length in itertools.product(range(TURNS), lengths):
        keys = keys_of(s, length)
        steps = {one: engine.step(keys, token) for one, engine in engines.items()}
        logits = {one: np.array(step()) for one, step in steps.items()}  # all behind the same keys
        for one in peers:
            row["differ"] = max(row["differ"], float(np.abs(logits[one] - logits["gpucomp"]).max()))
        for one, step in steps.items():
            time.sleep(REST_S)
            for run in range(WARM + RUNS):
                begin = time.perf_counter()
                step()
                if run >= WARM:
                    times[length][one].append(1e3 * (time.perf_counter() - begin))
    for length, found in times.items():
        row["ms"][length] = {one: float(np.median(runs)) for one, runs in found.items()}
        print(f"{name} behind {length}: " + ", ".join(f"{one} {ms:.2f} ms" for one, ms in row["ms"][length].items()))
    row["written"] = engines["gpucomp"].written(token)
    row["a row"] = 2 * s.layers * s.groups * s.size * (4 if states == "fp32" else 2)
    return row


def table(rows: list[dict[str, Any]]) -> str:
    engines = list(next(iter(rows[0]["ms"].values())))
    lines = [
        "| model | keys | " + " | ".join(f"{one}, ms" for one in engines) + " | over the first length |",
        "|---" * (3 + len(engines)) + "|",
    ]
    for row in rows:
        first = next(iter(row["ms"].values()))["gpucomp"]
        for length, ms in row["ms"].items():
            cells = [f"{ms[one]:.2f}" for one in engines]
            lines.append(f"| {row['model']} | {length} | " + " | ".join(cells) + f" | {ms['gpucomp'] / first:.2f} |")
    lines.append("")
    for row in rows:
        lines.append(
            f"{row['model']}: {row['parameters'] / 1e6:.0f} million parameters, compiled in {row['compile']:.1f} s; a run writes "
            f"{row['written']} bytes of the states, a row has {row['a row']}; logits differ by at most {row['differ']:.1e}."
        )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of("bench.decoding", __doc__)
    parser.add_argument("models", nargs="*", default=list(CHOSEN), metavar="MODEL", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--lengths", nargs="+", type=int, default=list(LENGTHS), help="keys before the token")
    parser.add_argument("--peers", default=",".join(PEERS), metavar="A,B", help=f"of {', '.join(PEERS)}")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="of each engine")
    parser.add_argument("--states", choices=STATES_PRECISIONS, default="fp32", help="how keys and values are kept")
    add_shared(parser, "--markdown")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures to this file")
    options: argparse.Namespace = parser.parse_args(arguments)
    _, *peers = engines_here(parser, options.peers, PEERS)
    with config.using(threads=options.threads):
        rows = [measure(name, peers, options.lengths, options.threads, options.states) for name in options.models]
    text = table(rows)
    print(text)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    if options.markdown is not None:
        options.markdown.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
