"""Models as torch's two exporters write them, on the targets, beside onnxruntime.

    python -m bench.exports [NAME ...] [--exporter dynamo --exporter script] [--target cpu --target opencl] [--save DIR]
                            [--skeletons DIR]

Needs torch; the exporter ``dynamo`` needs onnxscript, the models of transformers need transformers. The exit status is 1
when any output is further from onnxruntime's than 1e-4, or any model cannot be compiled.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import onnx

from bench.exports.export import EXPORTERS, MODELS, exported, exporters
from bench.exports.skeleton import skeleton
from bench.exports.verdict import verdict


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *MODELS], metavar="NAME", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--exporter", action="append", choices=EXPORTERS)
    parser.add_argument("--target", action="append")
    parser.add_argument("--save", type=Path, metavar="DIR", help="write the models there")
    parser.add_argument("--skeletons", type=Path, metavar="DIR", help="write them there without their weights")
    options = parser.parse_args(arguments)
    bad = 0
    for name in options.names or MODELS:
        for exporter in [e for e in exporters(name) if e in (options.exporter or EXPORTERS)]:
            model, feeds = exported(name, exporter)
            for folder, kept in ((options.save, model), (options.skeletons, skeleton(model))):
                if folder:
                    folder.mkdir(parents=True, exist_ok=True)
                    onnx.save(kept, folder / f"{name}-{exporter}.onnx")
            for target in options.target or ["cpu"]:
                start = time.perf_counter()
                found = verdict(model, feeds, target)
                bad += not found.startswith("right")
                opset = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
                print(f"{name:10} {exporter:8} opset {opset:2} {len(model.graph.node):4} nodes  {target:8} "
                      f"{time.perf_counter() - start:6.1f} s  {found}", flush=True)  # fmt: skip
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
