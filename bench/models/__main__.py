"""Writes a benchmark model to a file, or lists them: ``python -m bench.models resnet50 -o resnet50.onnx``."""

import sys
from pathlib import Path

from bench.models import MODELS, build
from bench.options import parser_of


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of("bench.models", __doc__)
    parser.add_argument("name", nargs="?", choices=MODELS, metavar="NAME", help="the model: " + ", ".join(MODELS))
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="the file to write (default: NAME.onnx)")
    parser.add_argument("--batch", type=int, default=1, metavar="N", help="batch size")
    parser.add_argument("--reduced", action="store_true", help="few channels and layers, and a small input")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the random weights")
    parser.add_argument("--list", action="store_true", help="print the parameters, nodes and GFLOP of every model")
    options = parser.parse_args(arguments)
    if options.batch < 1:
        parser.error("--batch is at least 1")
    if options.list:
        print_table(options.batch, options.reduced)
    elif options.name is None:
        parser.error("a NAME or --list is needed")
    else:
        model = build(options.name, batch=options.batch, reduced=options.reduced, seed=options.seed)
        path = options.output or Path(f"{options.name}.onnx")
        path.write_bytes(model.SerializeToString(deterministic=True))
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    return 0


def print_table(batch: int, reduced: bool) -> None:
    """GFLOP counts a multiply-add as two, in convolutions and matrix products only."""
    print(f"{'model':<16} {'opset':>5} {'parameters':>12} {'nodes':>6} {'GFLOP':>8}")
    for name, builder in MODELS.items():
        g = builder.graph(name, batch=batch, reduced=reduced)
        print(f"{name:<16} {g.opset:>5} {g.parameters:>12,} {len(g.nodes):>6} {g.flop / 1e9:>8.2f}")


if __name__ == "__main__":
    sys.exit(main())
