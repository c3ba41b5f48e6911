"""The ONNX frontend: ``load`` and related functions. There is one file per group of operators."""

from gpucomp.frontend.onnx import generate
from gpucomp.frontend.onnx.ai_onnx import (
    control,
    determinant,
    elementwise,
    experimental,
    images,
    legacy,
    movement,
    nn,
    pooling,
    quantize,
    random,
    recurrent,
    reduction,
    resize,
    sampling,
    scatter,
    selection,
    sequences,
    signal,
    strings,
    training,
)
from gpucomp.frontend.onnx.ai_onnx_ml import forests, svm, trees
from gpucomp.frontend.onnx.ai_onnx_ml import operators as ml
from gpucomp.frontend.onnx.compose import keeping
from gpucomp.frontend.onnx.loader import (
    check,
    deciding_inputs,
    declared_shapes,
    load,
    load_open,
    load_split,
    names_in,
    nodes_in,
    unknown_operators,
)
from gpucomp.frontend.onnx.microsoft import attention as microsoft_attention
from gpucomp.frontend.onnx.microsoft import blockwise as microsoft_blocks
from gpucomp.frontend.onnx.microsoft import decoders as microsoft_decoders
from gpucomp.frontend.onnx.microsoft import fused as microsoft_fused
from gpucomp.frontend.onnx.microsoft import norms as microsoft_norms
from gpucomp.frontend.onnx.microsoft import quantized as microsoft_quantized
from gpucomp.frontend.onnx.microsoft import recurrent as microsoft_recurrent

__all__ = [
    "check",
    "control",
    "deciding_inputs",
    "declared_shapes",
    "determinant",
    "elementwise",
    "experimental",
    "forests",
    "generate",
    "images",
    "keeping",
    "legacy",
    "load",
    "load_open",
    "load_split",
    "microsoft_attention",
    "microsoft_blocks",
    "microsoft_decoders",
    "microsoft_fused",
    "microsoft_norms",
    "microsoft_quantized",
    "microsoft_recurrent",
    "ml",
    "movement",
    "names_in",
    "nn",
    "nodes_in",
    "pooling",
    "quantize",
    "random",
    "recurrent",
    "reduction",
    "resize",
    "sampling",
    "scatter",
    "selection",
    "sequences",
    "signal",
    "strings",
    "svm",
    "training",
    "trees",
    "unknown_operators",
]
