"""Results for exported models: a row for each model and target, kept as JSON lines, and a page of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.gpu.results import lines

PAGE = Path(__file__).parents[1] / "results" / "exports.md"
Key = tuple[str, str, str]


@dataclass(frozen=True)
class Row:
    """``seconds``: for compiling, one run, and onnxruntime. ``said`` is the verdict; it begins with "right" if it is right."""

    name: str
    source: str
    target: str
    opset: int
    nodes: int
    seconds: float
    said: str

    @property
    def right(self) -> bool:
        return self.said.startswith("right")

    def line(self) -> str:
        return (
            f"{self.name:26} {self.source:8} opset {self.opset:2} {self.nodes:4} nodes  {self.target:8} "
            f"{self.seconds:6.1f} s  {self.said}"
        )


def known(journal: Path) -> dict[Key, Row]:
    rows = [Row(**entry) for entry in lines(journal)]
    return {(row.name, row.source, row.target): row for row in rows}


def page(rows: Iterable[Row]) -> str:
    """Markdown: how many are right on each target, and a line for each model with the result on each target."""
    rows = list(rows)
    targets = sorted({row.target for row in rows})
    models = dict.fromkeys((row.name, row.source) for row in rows)
    told = {(row.name, row.source, row.target): row for row in rows}
    right = {target: [row.right for row in rows if row.target == target] for target in targets}
    counts = [f"{sum(found)} of {len(found)} right on {target}" for target, found in right.items()]
    heads = [cell for target in targets for cell in (target, "s")]
    text = [
        "# Exported and trained models, beside onnxruntime",
        "",
        "`python -m bench.exports --target cpu --target opencl --write` made this page; do not edit it. `dynamo` and `script`",
        "are torch's exporters, with random weights; `file` is a trained model in a file. Right: each output within 1e-4 of",
        "onnxruntime's (relative L2). Seconds: compiling for the target, one run, and onnxruntime's session.",
        "",
        f"{'; '.join(counts)}.",
        "",
        f"| model | from | opset | nodes | {' | '.join(heads)} |",
        f"|{'---|' * (4 + len(heads))}",
    ]
    for name, source in models:
        found = [told.get((name, source, target)) for target in targets]
        (first, *_) = [row for row in found if row]
        cells = [cell for row in found for cell in ((row.said, f"{row.seconds:.1f}") if row else ("not run", ""))]
        text.append(f"| {name} | {source} | {first.opset} | {first.nodes} | {' | '.join(cells)} |")
    return "\n".join(text) + "\n"
