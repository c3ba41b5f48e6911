"""The ONNX frontend: ``load`` and ``check``."""

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
    scatter,
)
from gpucomp.frontend.onnx.loader import check, load

__all__ = [
    "check",
    "control",
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
    "scatter",
]
