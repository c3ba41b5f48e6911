"""Pages of text through detection and recognition, each image of another size, beside engines with dynamic sessions.

    python -m bench.ocr_trace                                  # 20 pages, about 300 lines of text
    python -m bench.ocr_trace --pages 5 --peers onnxruntime --markdown trace.md

Pages are drawn with Pillow: text of random width and size. The whole page goes through PP-OCRv4's detection at its own size, a
multiple of 32, and each line of it, 48 pixels high, through the recognition at its own width. Requests come one after the other,
and every engine answers each before the next one comes; who is first changes. Nothing is warmed up, as a server meets most sizes
for the first time; compilation, and the opening of sessions, are reported apart. A peer that is not installed is left out, and
named. ``worst`` is the largest difference to onnxruntime over the root mean square of its output.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import gpucomp
from bench.any_shape import LEAST
from bench.options import add_shared, engines_here, openvino_f32, parser_of
from bench.packages import MODELS, content
from gpucomp import Dim
from gpucomp.cli.compare import distance

PEERS = ("onnxruntime", "openvino")
DETECTION, RECOGNITION = "ppocr_det", "ppocr_rec"
SIDE = Dim("height", 320, 960, 32), Dim("width", 320, 960, 32)
LINE = Dim("width", 48, 960)
SHAPES = {DETECTION: (1, 3, *SIDE), RECOGNITION: (1, 3, 48, LINE)}
WORDS = (
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "a",
    "lazy",
    "dog",
    "while",
    "seventeen",
    "small",
    "boats",
    "drift",
)
Engine = Callable[[str, np.ndarray], np.ndarray]


@dataclass
class Times:
    """Seconds of one engine: to be ready, and of each request, by model."""

    ready: float = 0.0
    requests: dict[str, list[float]] = field(default_factory=lambda: {DETECTION: [], RECOGNITION: []})
    worst: float = 0.0

    @property
    def all(self) -> list[float]:
        return [seconds for found in self.requests.values() for seconds in found]


def pages(count: int, seed: int) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
    """Images of pages and of their lines, as the models take them: [1, 3, height, width], numbers of -1 to 1."""
    from PIL import Image, ImageDraw, ImageFont

    rng = np.random.default_rng(seed)
    for _ in range(count):
        height, width = (int(rng.integers(dim.low // 32, dim.high // 32, endpoint=True)) * 32 for dim in SIDE)
        page = Image.new("RGB", (width, height), "white")
        draw, top, lines = ImageDraw.Draw(page), 12, []
        while top < height - 40:
            size = int(rng.integers(14, 30))
            font = ImageFont.load_default(size)
            text = " ".join(rng.choice(WORDS, int(rng.integers(1, 9))))
            draw.text((10, top), text, "black", font)
            right = min(int(draw.textlength(text, font)) + 14, width - 4)
            box = page.crop((6, top, max(right, 30), min(top + size + 8, height)))
            across = max(LINE.low, min(LINE.high, round(box.width * 48 / box.height)))
            lines.append(prepared(box.resize((across, 48))))
            top += size + int(rng.integers(10, 40))
        yield prepared(page), lines


def prepared(image: Any) -> np.ndarray:
    array = np.asarray(image, np.float32).transpose(2, 0, 1)[None] / 127.5 - 1
    return np.ascontiguousarray(array)


def ours(threads: int) -> Engine:
    made = {
        name: gpucomp.compile(content(MODELS[name]), target="cpu", shapes={"x": shape})
        for name, shape in SHAPES.items()
    }
    outputs = {name: exe.outputs[0].name for name, exe in made.items()}
    return lambda name, image: made[name].run({"x": image})[outputs[name]]


def onnxruntime(threads: int) -> Engine:
    ort = import_module("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    made = {name: ort.InferenceSession(content(MODELS[name]), options, ["CPUExecutionProvider"]) for name in SHAPES}
    return lambda name, image: made[name].run(None, {made[name].get_inputs()[0].name: image})[0]


def openvino(threads: int) -> Engine:
    core = import_module("openvino").Core()
    made = {
        name: core.compile_model(core.read_model(content(MODELS[name])), "CPU", openvino_f32(threads))
        for name in SHAPES
    }
    requests = {name: compiled.create_infer_request() for name, compiled in made.items()}
    return lambda name, image: np.array(requests[name].infer([image])[0])


ENGINES: dict[str, Callable[[int], Engine]] = {"gpucomp": ours, "onnxruntime": onnxruntime, "openvino": openvino}


def measure(engines: Sequence[str], count: int, seed: int, threads: int) -> dict[str, Times]:
    times, ready = {name: Times() for name in engines}, {}
    for name in engines:
        begin = time.perf_counter()
        ready[name] = ENGINES[name](threads)
        times[name].ready = time.perf_counter() - begin
    turn = 0
    for page, lines in pages(count, seed):
        for model, image in [(DETECTION, page), *((RECOGNITION, line) for line in lines)]:
            order = [*engines[turn % len(engines) :], *engines[: turn % len(engines)]]
            turn += 1
            answers = {}
            for name in order:
                begin = time.perf_counter()
                answers[name] = ready[name](model, image)
                times[name].requests[model].append(time.perf_counter() - begin)
            if "onnxruntime" in answers:
                for name in engines:
                    apart = distance(answers[name], answers["onnxruntime"])
                    times[name].worst = max(times[name].worst, apart.linf / max(apart.scale, LEAST))
    return times


def text(name: str, times: Times, mine: Times) -> str:
    found, own = times.all, mine.all
    pages_s, lines_s = (sum(times.requests[model]) for model in (DETECTION, RECOGNITION))
    return (
        f"{name:12} ready {times.ready:6.2f} s   {len(found)} requests {sum(found):7.3f} s (pages {pages_s:.3f}, "
        f"lines {lines_s:.3f})   median {1e3 * np.median(found):6.2f} ms   99 % {1e3 * np.percentile(found, 99):7.2f} ms   "
        f"worst {times.worst:7.1e}   over ours: total {sum(found) / sum(own):.2f}, "
        f"99 % {np.percentile(found, 99) / np.percentile(own, 99):.2f}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("bench.ocr_trace", __doc__)
    parser.add_argument("--pages", type=int, default=20, metavar="N", help="how many are drawn (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the pages")
    parser.add_argument("--threads", type=int, default=2, help="of each engine; of ours by GPUCOMP_THREADS")
    parser.add_argument("--peers", default=",".join(PEERS), metavar="NAMES", help=f"of: {', '.join(PEERS)}")
    add_shared(parser, "--markdown")
    options: argparse.Namespace = parser.parse_args(arguments)
    engines = engines_here(parser, options.peers, PEERS)
    times = measure(engines, options.pages, options.seed, options.threads)
    rows = [text(name, times[name], times["gpucomp"]) for name in engines]
    print("\n".join(rows))
    if options.markdown:
        head = [
            "# Pages of text, each of another size",
            "",
            f"`python -m bench.ocr_trace --pages {options.pages} --seed {options.seed}`:",
        ]
        Path(options.markdown).write_text("\n".join([*head, "", "```", *rows, "```", ""]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
