"""Elementwise operators: arithmetic and activations. Broadcasting and the loop over elements are the registry's."""

from __future__ import annotations

import numpy as np

from gpucomp.expr.core import Algorithm, Expr, axes_of, call, cast, load, select
from gpucomp.expr.evaluate import convert
from gpucomp.expr.functions import FUNCTIONS
from gpucomp.ir.graph import Op
from gpucomp.ir.types import DType, TensorType
from gpucomp.ops.registry import elementwise, op


def _binary(name: str, fn: str, *, result_bool: bool = False) -> Op:
    return elementwise(name, lambda a, b: call(fn, a, b), FUNCTIONS[fn].numpy, operands=2, result_bool=result_bool)


Add = _binary("Add", "add")
Sub = _binary("Sub", "sub")
Mul = _binary("Mul", "mul")
Div = _binary("Div", "div")


def _relu(x: Expr) -> Expr:
    return select(x < 0, 0, x)  # NaN stays NaN


Relu = elementwise("Relu", _relu, lambda x: np.where(x < 0, np.zeros_like(x), x), operands=1)


@op("Cast")
def Cast(x: TensorType, *, to: DType) -> TensorType:
    """Conversion of the element type; see ``expr.core.Cast`` for the rounding."""
    return x.with_dtype(to)


@Cast.define("algorithm")
def _cast_algorithm(x: TensorType, *, to: DType) -> Algorithm:
    axes = axes_of(x.shape)
    return Algorithm(axes, cast(load(0, axes, x.dtype), to))


@Cast.define("reference")
def _cast_reference(x: np.ndarray, *, to: DType) -> np.ndarray:
    return convert(x, to)
