"""The converters, each run in a process of its own: ``python -m gpucomp.frontend.foreign.programs NAME SOURCE TARGET``.

What they import is no dependency of this project. A file of torch is checked before torch reads it (``archive``); the other
formats are read by their own frameworks, which may run what a file says.
"""

from __future__ import annotations

import importlib
import io
import json
import logging
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gpucomp.errors import GpucompError, UnsupportedError, quote
from gpucomp.frontend.foreign.archive import checked_copy


def torch_export(source: Path, target: Path) -> None:
    """A program saved by ``torch.export.save``: torch reads a copy that has no pickle, and nothing else that runs."""
    copy = target.with_name("checked.pt2")
    checked_copy(source, copy)
    torch: Any = importlib.import_module("torch")
    load = torch.load

    def without_pickle(*given: Any, **named: Any) -> Any:
        return load(*given, **{**named, "weights_only": True})

    torch.load = without_pickle
    target.write_bytes(exported(torch.export.load(copy)))


def exported(program: Any) -> bytes:
    """An ``ExportedProgram`` as a model, with the ranges of its sizes. Raises ``UnsupportedError`` (GPC4022)."""
    torch = importlib.import_module("torch")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = torch.onnx.export(program, dynamo=True, verbose=False, optimize=False)
            proto = made.model_proto
        except (RuntimeError, TypeError, ValueError, LookupError, AttributeError, AssertionError) as error:
            cause = error.__cause__ or error
            raise UnsupportedError(
                f"torch's exporter: {type(cause).__name__}: {quote(str(cause).splitlines()[0] if str(cause) else '')}",
                code="GPC4022",
            ) from error
    if shapes := _shapes(program, proto):
        proto.metadata_props.add(key="gpucomp:shapes", value=json.dumps(shapes))
    return bytes(proto.SerializeToString(deterministic=True))


def _shapes(program: Any, proto: Any) -> dict[str, list[Any]]:
    """The shapes of inputs with open sizes: numbers, and for each open size its name, and its range if it has ends."""
    ranges = {str(symbol): found for symbol, found in program.range_constraints.items()}
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    names = [name for name in program.graph_signature.user_inputs if isinstance(name, str)]
    found: dict[str, list[Any]] = {}
    for name, info in zip(names, proto.graph.input, strict=False):
        sizes = getattr(values.get(name), "shape", ())
        shape = [size if isinstance(size, int) else _range(str(size), ranges.get(str(size))) for size in sizes]
        if any(isinstance(size, list) for size in shape):
            found[info.name] = shape
    return found


def _range(name: str, limits: Any) -> list[Any]:
    if limits is None:
        return [name]
    low = int(limits.lower) if limits.lower.is_Integer else 1
    high = int(limits.upper) if limits.upper.is_Integer and limits.upper < 1 << 31 else max(8192, low)
    return [name, max(low, 0), high]


def keras(source: Path, target: Path) -> None:
    """Keras's own exporter. ``safe_mode`` refuses layers with code of their own."""
    library = importlib.import_module("keras")
    made = library.saving.load_model(source, compile=False, safe_mode=True)
    examples = [library.ops.zeros([size or 2 for size in one.shape], one.dtype) for one in made.inputs]
    made(examples if len(examples) > 1 else examples[0])  # the exporter takes no model that was never called
    made.export(target, format="onnx", verbose=False)


def tflite(source: Path, target: Path) -> None:
    """tf2onnx, which calls TensorFlow."""
    importlib.import_module("tf2onnx.convert")
    convert = importlib.import_module("tf2onnx").convert.from_tflite
    convert(str(source), output_path=str(target))


def saved_model(source: Path, target: Path) -> None:
    """tf2onnx, which calls TensorFlow."""
    command = ["tf2onnx.convert", "--saved-model", str(source), "--output", str(target)]
    _main("tf2onnx.convert", command)


def paddle(source: Path, target: Path) -> None:
    """paddle2onnx."""
    weights = source.with_suffix(".pdiparams")
    given = (str(source), str(weights) if weights.is_file() else "", str(target))
    importlib.import_module("paddle2onnx").export(*given)


def _main(module: str, command: list[str]) -> None:
    sys.argv = command
    importlib.import_module(module).main()


PROGRAMS: Mapping[str, Callable[[Path, Path], None]] = {
    one.__name__: one for one in (torch_export, keras, tflite, saved_model, paddle)
}


def main() -> int:
    """The exit status: 0 with a model in TARGET, else the last line of the errors says why."""
    name, source, target = sys.argv[1:]
    sys.stdout = io.StringIO()
    try:
        PROGRAMS[name](Path(source), Path(target))
    except GpucompError as error:
        print(error.message, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
