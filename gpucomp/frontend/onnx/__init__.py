"""The ONNX frontend: ``load``, ``check``, ``deciding_inputs`` and ``declared_shapes``. One file an area of operators."""

from gpucomp.frontend.onnx import (  # each registers its translators
    control,
    elementwise,
    generate,
    legacy,
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
from gpucomp.frontend.onnx.loader import check, deciding_inputs, declared_shapes, load

__all__ = [
    "check",
    "control",
    "deciding_inputs",
    "declared_shapes",
    "elementwise",
    "generate",
    "legacy",
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
