"""The models, the sizes of their runs, and onnxruntime's answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench import models, packages
from bench.c_models.script import Step
from gpucomp.cli.compare import onnxruntime_session
from gpucomp.ir.types import NAMED

FILES = Path(__file__).parents[3] / "shared" / "data" / "models"  # trained models that are not part of the project
Sizes = Mapping[str, int]
Feed = Callable[[Sequence[Any], Sizes, np.random.Generator], Mapping[str, np.ndarray]]


@dataclass(frozen=True)
class Model:
    """``how`` are arguments of ``compile``. ``sizes`` are those of the runs, in their order; the first is what is measured, and
    an emulator makes runs of ``few`` sizes.
    """

    content: Callable[[], bytes]
    how: Mapping[str, Any] = field(default_factory=dict)
    sizes: tuple[Sizes, ...] = ({}, {})
    few: tuple[Sizes, ...] = ({},)
    feed: Feed = packages.fed


def photos(specs: Sequence[Any], sizes: Sizes, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Images of 0 to 255, as trained detectors take them."""
    images = packages.fed(specs, sizes, rng)
    return {name: np.clip(96 + 48 * array, 0, 255).astype(array.dtype) for name, array in images.items()}


def _of_file(name: str) -> Callable[[], bytes]:
    return lambda: (FILES / name).read_bytes()


def _packaged(name: str, sizes: Sequence[Sizes], few: Sequence[Sizes], **how: Any) -> Model:
    model = packages.MODELS[name]
    compiled = {"shapes": model.shapes, "constants": model.constants, **how}
    return Model(lambda: packages.content(model), compiled, tuple(sizes), tuple(few))


def _widths(*widths: int) -> list[Sizes]:
    return [{"batch": 1, "width": width} for width in widths]


def _words(*counts: int) -> list[Sizes]:
    return [{"batch": 1, "sequence": count} for count in counts]


SOUND = {"batch": 1, "samples": 576}
MODELS = {
    "mobilenet_v2": Model(lambda: models.build("mobilenet_v2").SerializeToString()),
    "mobilenet_v2_int8": Model(
        _of_file("mobilenet_v2/mobilenetv2-12-int8.onnx"), {"shapes": {"input": (1, 3, 224, 224)}}
    ),
    "ppocr_rec": _packaged("ppocr_rec", _widths(320, 48, 161, 320), _widths(48, 33)),
    "silero_vad": _packaged("silero_vad", [SOUND] * 4, [SOUND] * 3, states="auto"),
    "magika": _packaged("magika", [{"batch": 1}, {"batch": 3}, {"batch": 1}], [{"batch": 1}]),
    "minilm": _packaged("minilm", _words(128, 12, 57, 128), _words(12, 5)),
    "yolox_nano": Model(_of_file("yolox_nano/yolox_nano.onnx"), feed=photos),
}


def steps(model: Model, exe: Any, sizes: Sequence[Sizes], seed: int) -> list[Step]:
    """Runs at ``sizes``, with onnxruntime's outputs. States go on from run to run, from zeros."""
    rng = np.random.default_rng(seed)
    session = onnxruntime_session(model.content())
    constants = {name: np.array(value) for name, value in model.how.get("constants", {}).items()}
    names = [output.name for output in session.get_outputs()]
    kept = {
        state.name: np.zeros([sizes[0].get(getattr(n, "name", ""), n) for n in state.shape], NAMED[state.dtype].numpy)
        for state in exe.states
    }
    found: list[Step] = []
    for number, one in enumerate(sizes):
        inputs = dict(model.feed(exe.inputs, one, rng))
        answers = dict(zip(names, session.run(None, inputs | constants | kept), strict=True))
        kept = {state.name: answers.pop(state.output) for state in exe.states}
        found.append(Step(one, number == 0, inputs, answers))
    return found
