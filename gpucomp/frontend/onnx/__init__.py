"""The ONNX frontend: ``load``, ``check`` and ``deciding_inputs``. One file an area of operators."""

from gpucomp.frontend.onnx import (  # each registers its translators
    control,
    elementwise,
    generate,
    movement,
    nn,
    pooling,
    quantize,
    recurrent,
    reduction,
    resize,
    sampling,
    scatter,
    signal,
)
from gpucomp.frontend.onnx.loader import check, deciding_inputs, load

__all__ = [
    "check",
    "control",
    "deciding_inputs",
    "elementwise",
    "generate",
    "load",
    "movement",
    "nn",
    "pooling",
    "quantize",
    "recurrent",
    "reduction",
    "resize",
    "sampling",
    "scatter",
    "signal",
]
