"""``python -m bench.cpu.picture results.json picture.svg``: the ratios of ``bench.cpu run`` as a picture, one row a model.

The README shows the picture of bench/results/cpu_1.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.cpu.compare import OURS, Row, ratio
from bench.cpu.report import rows_of
from bench.options import parser_of

COLOURS = {"onnxruntime": "#d1495b", "openvino": "#2e86ab", "ncnn": "#e09f3e", "mnn": "#6a994e"}
GREY = "#808080"  # readable on a white page and on a dark one
LEFT, WIDTH, ROW, TOP, RIGHT = 120, 480, 20, 46, 20
STEP = 0.5  # of the ratio, between two grid lines


def picture(rows: Sequence[Row]) -> str:
    """An SVG image with a dot for each engine and model: its time over gpucomp's. Equal rows give equal text."""
    ours = {(row.model, row.threads): row for row in rows if row.peer == OURS}
    found = [
        (row, three[1])
        for row in rows
        if row.peer != OURS and (three := ratio(row, ours[row.model, row.threads])) is not None
    ]
    models = list(dict.fromkeys(row.model for row, _ in found))
    most = STEP * -(-max(value for _, value in found) // STEP)
    width, height = LEFT + WIDTH + RIGHT, TOP + ROW * len(models) + 24

    def across(value: float) -> str:
        return f"{LEFT + WIDTH * value / most:.1f}"

    style = f'font-family="sans-serif" font-size="12" fill="{GREY}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {style}>',
        *_legend([peer for peer in COLOURS if any(row.peer == peer for row, _ in found)]),
    ]
    for number in range(round(most / STEP) + 1):
        x, one = across(number * STEP), number * STEP == 1
        thickness = 1.5 if one else 0.4
        lines += [
            f'<line x1="{x}" y1="{TOP}" x2="{x}" y2="{height - 22}" stroke="{GREY}" stroke-width="{thickness}"/>',
            f'<text x="{x}" y="{height - 8}" text-anchor="middle">{number * STEP:g}</text>',
        ]
    for place, model in enumerate(models):
        y = TOP + ROW * place + ROW // 2
        lines.append(f'<text x="{LEFT - 10}" y="{y + 4}" text-anchor="end">{model}</text>')
        lines += [
            f'<circle cx="{across(value)}" cy="{y}" r="4.5" fill="{COLOURS[row.peer]}"/>'
            for row, value in found
            if row.model == model
        ]
    return "\n".join([*lines, "</svg>", ""])


def _legend(peers: Sequence[str]) -> Iterator[str]:
    yield f'<text x="{LEFT}" y="14">time of another engine over the time of gpucomp (right of 1: gpucomp is faster)</text>'
    for place, peer in enumerate(peers):
        x = LEFT + 110 * place
        yield f'<circle cx="{x + 5}" cy="30" r="4.5" fill="{COLOURS[peer]}"/><text x="{x + 16}" y="34">{peer}</text>'


def main() -> None:
    parser = parser_of("bench.cpu.picture", __doc__)
    parser.add_argument("results", type=Path, help="the JSON file of `python -m bench.cpu run --out`")
    parser.add_argument("picture", type=Path, help="the SVG file to write")
    options = parser.parse_args()
    data = json.loads(options.results.read_text(encoding="utf-8"))
    options.picture.write_text(picture(rows_of(data)), encoding="utf-8")


if __name__ == "__main__":
    main()
