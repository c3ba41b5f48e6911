"""The converters, each run in a process of its own: ``python -m gpucomp.frontend.foreign.programs NAME SOURCE TARGET``.

What they import is no dependency of this project. A file of torch is checked before torch reads it (``archive``); the other
formats are read by their own frameworks, which may run what a file says.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gpucomp.errors import GpucompError, ModelError, quote
from gpucomp.frontend.foreign.archive import checked_copy
from gpucomp.frontend.foreign.formats import FAILED


def torch_export(source: Path, target: Path) -> None:
    """A program saved by ``torch.export.save``: torch reads a copy that has no pickle, and nothing else that runs."""
    from gpucomp.frontend.foreign.exported import exported  # imports torch, which other converters do without

    copy = target.with_name("checked.pt2")
    checked_copy(source, copy)
    torch: Any = importlib.import_module("torch")
    load = torch.load

    def without_pickle(*given: Any, **named: Any) -> Any:
        return load(*given, **{**named, "weights_only": True})

    torch.load = without_pickle
    target.write_bytes(exported(torch.export.load(copy)))


def keras(source: Path, target: Path) -> None:
    """A model of Keras on torch as a program of torch. ``safe_mode`` refuses layers with code of their own.

    Keras's own exporter calls torch's as it is, without what ``exported`` knows of its mistakes.
    """
    from gpucomp.frontend.foreign.exported import exported, program_of

    library = importlib.import_module("keras")
    made = library.saving.load_model(source, compile=False, safe_mode=True)
    for one in made.inputs:
        if None in one.shape[1:]:  # layers unroll their steps, as many as the example has
            raise ModelError(
                f"has an input {quote(one.name)} of shape {tuple(one.shape)}, and only the batch can be open: "
                "give the model's Input fixed sizes, such as keras.Input((100, 8)), and save it again",
                code="GPC3090",
            )
    examples = {one.name: library.ops.zeros([size or 2 for size in one.shape], one.dtype) for one in made.inputs}
    batched = [one.name for one in made.inputs if one.shape[0] is None]
    target.write_bytes(exported(program_of(made, examples, batched)))


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
    """The exit status: 0 with a model in TARGET, else ``FAILED`` or the last line of the errors says why."""
    name, source, target = sys.argv[1:]
    try:
        PROGRAMS[name](Path(source), Path(target))
    except GpucompError as error:
        told = {"code": error.code, "message": error.message}
        Path(target).with_name(FAILED).write_text(json.dumps(told), encoding="utf-8")
        print(error.message, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
