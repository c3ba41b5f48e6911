"""Runs models written by torch's two exporters, and models in files, on the targets, and compares them with onnxruntime.

    python -m bench.exports [NAME ...] [--exporter dynamo --exporter script] [--target cpu --target opencl] [--file PATH ...]
                            [--journal exports.jsonl] [--write] [--save DIR] [--skeletons DIR]

Needs torch. The exporter ``dynamo`` needs onnxscript; the models of transformers need transformers. ``--file`` is an .onnx file
or a folder of them; without NAME only these are run. The journal keeps the results, which are not computed again; ``--write``
writes them to bench/results/exports.md. The exit status is 1 if any output differs from onnxruntime's by more than 1e-4, or if
any model cannot be compiled.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx

from bench.exports.files import opened
from bench.exports.report import PAGE, Row, known, page
from bench.exports.skeleton import skeleton
from bench.exports.verdict import verdict
from bench.gpu.results import append
from bench.options import parser_of


@dataclass(frozen=True)
class Case:
    """A model, its origin, and inputs."""

    name: str
    source: str
    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]

    @property
    def opset(self) -> int:
        return next(o.version for o in self.model.opset_import if o.domain in ("", "ai.onnx"))


def chosen(options: argparse.Namespace) -> Iterator[Case]:
    """Exported models, which need torch; then files."""
    if options.names or not options.file:
        from bench.exports.export import EXPORTERS, MODELS, exported, exporters

        for name in options.names or MODELS:
            for exporter in [e for e in exporters(name) if e in (options.exporter or EXPORTERS)]:
                yield Case(name, exporter, *exported(name, exporter))
    for given in options.file:
        for path in sorted(given.rglob("*.onnx")) if given.is_dir() else [given]:
            yield Case(path.parent.name if path.stem == "model" else path.stem, "file", *opened(path))


def run(case: Case, target: str) -> Row:
    start = time.perf_counter()
    said = verdict(case.model, case.feeds, target)
    seconds = round(time.perf_counter() - start, 1)
    return Row(case.name, case.source, target, case.opset, len(case.model.graph.node), seconds, said)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("bench.exports", __doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a model of MODELS in bench/exports/export.py")
    parser.add_argument(
        "--exporter",
        action="append",
        choices=("dynamo", "script"),
        help="only this exporter of torch; may repeat (default: both)",
    )
    parser.add_argument(
        "--target",
        action="append",
        metavar="TARGET",
        help="cpu, opencl[:NAME] or cuda[:ARCH]; may repeat (default: cpu)",
    )
    parser.add_argument(
        "--file",
        action="append",
        type=Path,
        default=[],
        metavar="PATH",
        help="an .onnx file or a folder of them; may repeat",
    )
    parser.add_argument(
        "--journal",
        type=Path,
        default=Path("exports.jsonl"),
        metavar="FILE",
        help="journal of all results; a later call continues from it",
    )
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name} from the journal")
    parser.add_argument("--save", type=Path, metavar="DIR", help="also write the models to this folder")
    parser.add_argument(
        "--skeletons", type=Path, metavar="DIR", help="also write the models without weights to this folder"
    )
    options = parser.parse_args(arguments)
    options.journal.parent.mkdir(parents=True, exist_ok=True)
    rows = known(options.journal)
    bad = 0
    for case in chosen(options):
        for folder in filter(None, (options.save, options.skeletons)):
            folder.mkdir(parents=True, exist_ok=True)
            kept = case.model if folder == options.save else skeleton(case.model)
            onnx.save(kept, folder / f"{case.name}-{case.source}.onnx")
        for target in options.target or ["cpu"]:
            key = (case.name, case.source, target)
            if key not in rows:
                rows[key] = run(case, target)
                append(options.journal, asdict(rows[key]))
            bad += not rows[key].right
            print(rows[key].line(), flush=True)
    if options.write:
        PAGE.write_text(page(rows.values()), encoding="utf-8")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
