"""``make demo``: compiles a trained network for every device here and lets it read handwriting it has not seen.

Training is in ``train.py``; nothing is trained or downloaded here.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import gpucomp
from examples.digits import data
from gpucomp.cli import measure, show
from gpucomp.cli.doctor import targets_found
from gpucomp.cli.progress import progress
from gpucomp.device import processor

MODEL = Path(__file__).with_name("digits.onnx")
SHADES = " .:-=+*#%@"
ACROSS = 4
LATENCY_S = 0.5


def drawing(image: np.ndarray) -> list[str]:
    """An 8x8 digit in 0..1 as lines of text, two characters a pixel."""
    levels = (image * (len(SHADES) - 1)).round().astype(int)
    return ["".join(SHADES[level] * 2 for level in row) for row in levels]


def drawings(images: np.ndarray, labels: np.ndarray, predicted: np.ndarray) -> list[str]:
    """Digits side by side, with what the network says and, where it errs, what was meant."""
    lines: list[str] = []
    for start in range(0, len(images), ACROSS):
        group = range(start, min(start + ACROSS, len(images)))
        lines += ["  ".join(row).rstrip() for row in zip(*(drawing(images[k, 0]) for k in group), strict=True)]
        says = [f"reads {predicted[k]}" + ("" if predicted[k] == labels[k] else f", meant {labels[k]}") for k in group]
        lines += ["  ".join(text.center(16) for text in says).rstrip(), ""]
    return lines


def chosen(labels: np.ndarray, predicted: np.ndarray) -> list[int]:
    """Eight digits to show: the first of each of 0 to 6, and one that is misread, if there is one."""
    firsts = [int(np.flatnonzero(labels == digit)[0]) for digit in range(7)]
    wrong = [int(k) for k in np.flatnonzero(labels != predicted) if k not in firsts]
    return [*firsts, wrong[0] if wrong else int(np.flatnonzero(labels == 7)[0])]


def compiled(target: str, batch: int) -> tuple[gpucomp.Executable, float]:
    """The network for ``batch`` images, and the seconds that compiling it took."""
    start = time.perf_counter()
    with progress(f"compiling {MODEL.name} for {target}, {batch} images") as report:
        exe = gpucomp.compile(MODEL, target=target, shapes={"image": (batch, 1, 8, 8)}, progress=report)
    return exe, time.perf_counter() - start


def main(targets: Sequence[str] | None = None) -> int:
    images, labels = data.held_back()
    rows: list[tuple[object, ...]] = []
    failures: list[str] = []
    for target in targets or targets_found():
        try:
            many, seconds = compiled(target, len(images))
            predicted = many.run({"image": images})["logits"].argmax(axis=1)
        except gpucomp.DeviceError as error:  # a device that is there and cannot be used must not end the demo
            failures.append(f"{target} could not be used: {error}")
            continue
        right = int((predicted == labels).sum())
        one, _ = compiled(target, 1)
        with progress(f"measuring on {target}"):
            latency = measure.measure(
                lambda exe=one: exe.run({"image": images[:1]}), warmup_ms=100, duration_s=LATENCY_S, iterations=30
            )
        if not rows:
            print(f"{MODEL.name}: a network trained on 1347 handwritten digits reads {len(labels)} it has not seen\n")
            show_these = chosen(labels, predicted)
            print("\n".join(drawings(images[show_these], labels[show_these], predicted[show_these])))
            print(f"What was compiled for {many.target}:\n")
            print("\n".join(show.kernels(one.kernels)))
            print()
        rows.append(
            (
                many.target,
                f"{right} of {len(labels)}",
                f"{100 * right / len(labels):.1f}",
                len(one.kernels),
                f"{seconds:.2f}",
                f"{latency.median_ms:.3f}",
                f"{100 * latency.noise:.0f}",
            )
        )
    if not rows:
        print("\n".join(failures), file=sys.stderr)
        return gpucomp.DeviceError.exit_code
    print("\n".join(show.table(("target", "read right", "%", "kernels", "compile s", "latency ms", "noise %"), rows)))
    print(
        "\nLatency: one image, run() from numpy to numpy, median; compile: first use of the target, with "
        f"what it caches if anything. {processor.model_name()}"
    )
    print("\n".join(failures), end="\n" if failures else "")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or None))
