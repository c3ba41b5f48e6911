"""Activation functions, in forms that neither overflow nor cancel. Tanh and Erf are in elementwise.py."""

from __future__ import annotations

import math

import numpy as np

from gpucomp.expr.core import Expr, call, select
from gpucomp.expr.functions import FUNCTIONS
from gpucomp.ir.types import TensorType
from gpucomp.ops.registry import elementwise, in_double


def _relu(x: Expr) -> Expr:
    return select(x < 0, 0, x)  # NaN stays NaN


Relu = elementwise("Relu", _relu, lambda x: np.where(x < 0, np.zeros_like(x), x), operands=1, kinds="fiu")


def _leaky(x: Expr, *, alpha: float = 0.01) -> Expr:
    return select(x < 0, x * alpha, x)


def _leaky_reference(x: np.ndarray, *, alpha: float = 0.01) -> np.ndarray:
    return np.where(x < 0, alpha * x, x)


LeakyRelu = elementwise("LeakyRelu", _leaky, in_double(_leaky_reference), operands=1, kinds="f", wide=True)


def _prelu_reference(x: np.ndarray, slope: np.ndarray) -> np.ndarray:
    return np.where(x < 0, slope * x, x).astype(x.dtype)


PRelu = elementwise(
    "PRelu", lambda x, slope: select(x < 0, x * slope, x), _prelu_reference, operands=2, kinds="fiu", wide=True
)


def _elu(x: Expr, *, alpha: float = 1.0) -> Expr:
    return select(x < 0, (call("exp", x) - 1) * alpha, x)


def _elu_reference(x: np.ndarray, *, alpha: float = 1.0) -> np.ndarray:
    return np.where(x < 0, alpha * np.expm1(x), x)


Elu = elementwise("Elu", _elu, in_double(_elu_reference), operands=1, kinds="f", wide=True)

SELU_ALPHA = 1.6732632423543772848170429916717  # Klambauer et al. 2017, self-normalizing networks
SELU_GAMMA = 1.0507009873554804934193349852946


def _selu(x: Expr, *, alpha: float = SELU_ALPHA, gamma: float = SELU_GAMMA) -> Expr:
    return select(x > 0, x, (call("exp", x) - 1) * alpha) * gamma


def _selu_reference(x: np.ndarray, *, alpha: float = SELU_ALPHA, gamma: float = SELU_GAMMA) -> np.ndarray:
    return gamma * np.where(x > 0, x, alpha * np.expm1(x))


Selu = elementwise("Selu", _selu, in_double(_selu_reference), operands=1, kinds="f", wide=True)


def _celu(x: Expr, *, alpha: float = 1.0) -> Expr:
    return select(x < 0, (call("exp", x / alpha) - 1) * alpha, x)


def _celu_reference(x: np.ndarray, *, alpha: float = 1.0) -> np.ndarray:
    return np.where(x < 0, alpha * np.expm1(x / alpha), x)


def _check_celu(x: TensorType, *, alpha: float = 1.0) -> None:
    if not alpha > 0:
        raise ValueError(f"alpha above 0 expected, got {alpha}")


Celu = elementwise("Celu", _celu, in_double(_celu_reference), operands=1, kinds="f", wide=True, check=_check_celu)


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + exp(-x)), computed without positive exponents, so that nothing overflows."""
    small = call("exp", -call("abs", x))
    return select(x < 0, small, 1) / (small + 1)


def _sigmoid_reference(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * x))


Sigmoid = elementwise("Sigmoid", sigmoid, in_double(_sigmoid_reference), operands=1, kinds="f", wide=True)


def _swish(x: Expr, *, alpha: float = 1.0) -> Expr:
    return x * sigmoid(x if alpha == 1 else x * alpha)


def _swish_reference(x: np.ndarray, *, alpha: float = 1.0) -> np.ndarray:
    return np.asarray(x * _sigmoid_reference(alpha * x))


Swish = elementwise("Swish", _swish, in_double(_swish_reference), operands=1, kinds="f", wide=True)


def _hard_sigmoid(x: Expr, *, alpha: float = 0.2, beta: float = 0.5) -> Expr:
    return call("max", call("min", x * alpha + beta, 1), 0)


def _hard_sigmoid_reference(x: np.ndarray, *, alpha: float = 0.2, beta: float = 0.5) -> np.ndarray:
    return np.clip(alpha * x + beta, 0, 1)


HardSigmoid = elementwise(
    "HardSigmoid", _hard_sigmoid, in_double(_hard_sigmoid_reference), operands=1, kinds="f", wide=True
)


def _hard_swish(x: Expr) -> Expr:
    return x * _hard_sigmoid(x, alpha=1 / 6, beta=0.5)


HardSwish = elementwise(
    "HardSwish", _hard_swish, in_double(lambda x: x * np.clip(x / 6 + 0.5, 0, 1)), operands=1, kinds="f", wide=True
)


def _softplus(x: Expr) -> Expr:
    return call("max", x, 0) + call("log", call("exp", -call("abs", x)) + 1)


def _softplus_reference(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.logaddexp(0, x))


Softplus = elementwise("Softplus", _softplus, in_double(_softplus_reference), operands=1, kinds="f", wide=True)

Softsign = elementwise(
    "Softsign",
    lambda x: x / (call("abs", x) + 1),
    in_double(lambda x: x / (1 + np.abs(x))),
    operands=1,
    kinds="f",
    wide=True,
)


def _mish(x: Expr) -> Expr:
    """x * tanh(log(1 + exp(x))). With e = exp(-|x|), the tanh is a quotient of polynomials in e:
    (1 + 2e) / (1 + 2e + 2e^2) for x >= 0, and (e^2 + 2e) / (e^2 + 2e + 2) for x < 0."""
    e = call("exp", -call("abs", x))
    numerator = select(x < 0, e * (e + 2), e * 2 + 1)
    return x * (numerator / (numerator + select(x < 0, 2, e * e * 2)))


def _mish_reference(x: np.ndarray) -> np.ndarray:
    return np.asarray(x * np.tanh(np.logaddexp(0, x)))


Mish = elementwise("Mish", _mish, in_double(_mish_reference), operands=1, kinds="f", wide=True)


def _gelu(x: Expr, *, approximate: str = "none") -> Expr:
    if approximate == "tanh":
        inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
        return x * 0.5 * (call("tanh", inner) + 1)
    return x * 0.5 * (call("erf", x * math.sqrt(0.5)) + 1)


def _gelu_reference(x: np.ndarray, *, approximate: str = "none") -> np.ndarray:
    if approximate == "tanh":
        return np.asarray(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))
    return np.asarray(0.5 * x * (1 + FUNCTIONS["erf"].numpy(x / np.sqrt(2))))


def _check_gelu(x: TensorType, *, approximate: str = "none") -> None:
    if approximate not in {"none", "tanh"}:
        raise ValueError(f"approximate none or tanh expected, got {approximate!r}")


Gelu = elementwise("Gelu", _gelu, in_double(_gelu_reference), operands=1, kinds="f", wide=True, check=_check_gelu)


def _thresholded(x: Expr, *, alpha: float = 1.0) -> Expr:
    return select(x > alpha, x, 0)


def _thresholded_reference(x: np.ndarray, *, alpha: float = 1.0) -> np.ndarray:
    return np.where(x > alpha, x, 0)


ThresholdedRelu = elementwise(
    "ThresholdedRelu", _thresholded, in_double(_thresholded_reference), operands=1, kinds="f", wide=True
)


def _shrink(x: Expr, *, lambd: float = 0.5, bias: float = 0.0) -> Expr:
    return select(x < -lambd, x + bias, select(x > lambd, x - bias, 0))


def _shrink_reference(x: np.ndarray, *, lambd: float = 0.5, bias: float = 0.0) -> np.ndarray:
    return np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0))


Shrink = elementwise("Shrink", _shrink, in_double(_shrink_reference), operands=1, kinds="f", wide=True)
