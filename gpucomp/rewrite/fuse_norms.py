"""Recognises normalisations and activations in the pieces that exporters write. Every rule holds up to rounding.

The pieces are in canonical form: squares are x * x, constants stand on the right. Numbers in a formula (0.5, sqrt(2),
0.044715 ...) may differ by the rounding of a constant of the element type, and by no more.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from gpucomp import ops
from gpucomp.ir.graph import Node, Value
from gpucomp.ir.types import DType
from gpucomp.rewrite.match import close, either_way, factors, is_number, multiple, numbers_apart, product, splat
from gpucomp.rewrite.rule import rule

# normalisations ----------------------------------------------------------------------------------------------


@rule(ops.Div, ops.Mul)
def layer_norm(node: Node) -> Value | None:
    """(x - mean(x)) / sqrt(mean((x - mean(x))^2) + e)  ->  layer_norm(x, e), over the last axes"""
    for centred, variance, epsilon in _over_root(node):
        match centred:
            case Value(ops.Sub, (x, Value(ops.ReduceMean, (y,), {"axes": axes}) as mean)) if x is y:
                if _is_mean_square(variance, centred, axes) and _last_axes(mean, x):
                    return ops.LayerNorm(x, axis=min(axes), epsilon=epsilon)
    return None


@rule(ops.Div, ops.Mul)
def rms_norm(node: Node) -> Value | None:
    """x / sqrt(mean(x^2) + e)  ->  rms_norm(x, e), over the last axes"""
    for x, mean, epsilon in _over_root(node):
        if mean.op is ops.ReduceMean and _is_mean_square(mean, x, mean.attrs["axes"]) and _last_axes(mean, x):
            return ops.RMSNorm(x, axis=min(mean.attrs["axes"]), epsilon=epsilon)
    return None


def _over_root(node: Node) -> list[tuple[Value, Value, float]]:
    """Every way to read the node as a / sqrt(b + e), as (a, b, e)."""
    readings = []
    if node.op is ops.Div:
        pairs = [(node.inputs[0], _under_root(node.inputs[1]))]
    else:
        pairs = [(a, _under_inverse_root(b)) for a, b in either_way(node)]
    for a, inside in pairs:
        if inside is not None and a.type == node.types[0]:
            match inside:
                case Value(ops.Add, (b, c)) if (
                    (epsilon := splat(c)) is not None and epsilon > 0 and b.type == inside.type
                ):
                    readings.append((a, b, float(epsilon)))
    return readings


def _under_root(value: Value) -> Value | None:
    match value:
        case Value(ops.Sqrt, (inside,)):
            return inside
        case Value(ops.Pow, (inside, half)) if is_number(half, 0.5):
            return inside
    return None


def _under_inverse_root(value: Value) -> Value | None:
    match value:
        case Value(ops.Reciprocal, (root,)):
            return _under_root(root)
        case Value(ops.Div, (one, root)) if is_number(one, 1):
            return _under_root(root)
        case Value(ops.Pow, (inside, power)) if is_number(power, -0.5):
            return inside
    return None


def _is_mean_square(value: Value, x: Value, axes: tuple[int, ...]) -> bool:
    """Whether ``value`` is the mean of ``x * x`` over ``axes``."""
    match value:
        case Value(ops.ReduceMean, (Value(ops.Mul, (a, b)),), {"axes": over}):
            return a is x and b is x and tuple(over) == tuple(axes) and value.attrs.get("keepdims", True)
        case Value(ops.ReduceMean, (Value(ops.Pow, (a, two)),), {"axes": over}):
            return a is x and is_number(two, 2) and tuple(over) == tuple(axes) and value.attrs.get("keepdims", True)
    return False


def _last_axes(reduced: Value, x: Value) -> bool:
    axes = sorted(reduced.attrs["axes"])
    return (
        bool(axes)
        and axes == list(range(x.type.rank - len(axes), x.type.rank))
        and reduced.attrs.get("keepdims", True)
        and x.type.dtype.is_float
    )


@rule(ops.Div, ops.Mul)
def softmax(node: Node) -> Value | None:
    """exp(x - max(x)) / sum(exp(x - max(x)))  ->  softmax(x), over one axis"""
    pairs = [node.inputs] if node.op is ops.Div else [(a, b.inputs[0]) for a, b in either_way(node) if _inverts(b)]
    for power, total in pairs:
        match power, total:
            case (
                Value(ops.Exp, (Value(ops.Sub, (x, Value(ops.ReduceMax, (y,), {"axes": (axis,)}) as highest)),)),
                Value(ops.ReduceSum, (again,), {"axes": (over,)}),
            ) if x is y and again is power and axis == over:
                if highest.attrs.get("keepdims", True) and total.attrs.get("keepdims", True):
                    return ops.Softmax(x, axis=axis)
    return None


def _inverts(value: Value) -> bool:
    return value.op is ops.Reciprocal


@rule(ops.Log)
def log_softmax(node: Node) -> Value | None:
    """log(softmax(x))  ->  log_softmax(x), which is finite where the softmax underflows"""
    match node.inputs[0]:
        case Value(ops.Softmax, (x,), {"axis": axis}):
            return ops.LogSoftmax(x, axis=axis)
    return None


# activations -------------------------------------------------------------------------------------------------


def _one_plus(value: Value) -> Value | None:
    """y if ``value`` is y + 1."""
    match value:
        case Value(ops.Add, (y, one)) if is_number(one, 1) and y.type == value.type:
            return y
    return None


def _gates(node: Node) -> Iterator[tuple[Value, list[Value]]]:
    """Every factor of a product, with the list of the other factors."""
    leaves = factors(node[0])
    for position, leaf in enumerate(leaves):
        yield leaf, leaves[:position] + leaves[position + 1 :]


@rule(ops.Mul, ops.Div)
def gelu(node: Node) -> Value | None:
    """x / 2 * (1 + erf(x / sqrt(2)))  ->  gelu(x), in any order of the product"""
    dtype = node.types[0].dtype
    for gate, rest in _gates(node):
        match _one_plus(gate):
            case Value(ops.Erf, (Value(ops.Mul | ops.Div, (x, _)) as inside,)) if x.type == node.types[0]:
                scale, half = multiple(factors(inside), x), multiple(rest, x)
                if scale and half and close(scale, math.sqrt(0.5), dtype) and close(half, 0.5, dtype):
                    return ops.Gelu(x, approximate="none")
    return None


@rule(ops.Mul, ops.Div)
def gelu_tanh(node: Node) -> Value | None:
    """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))  ->  gelu(x, approximate="tanh"), in any order"""
    dtype = node.types[0].dtype
    for gate, rest in _gates(node):
        match _one_plus(gate):
            case Value(ops.Tanh, (inside,)):
                x = _gelu_operand(inside)
                half = multiple(rest, x) if x is not None and x.type == node.types[0] else None
                if x is not None and half and close(half, 0.5, dtype):
                    return ops.Gelu(x, approximate="tanh")
    return None


def _gelu_operand(value: Value) -> Value | None:
    """x if ``value`` is sqrt(2 / pi) * (x + 0.044715 x^3), or sqrt(2 / pi) * x * (1 + 0.044715 x^2)."""
    dtype = value.type.dtype
    leaves = factors(value)
    number, _ = product(value)
    if not close(number, math.sqrt(2 / math.pi), dtype):
        return None
    for position, leaf in enumerate(leaves):
        rest = leaves[:position] + leaves[position + 1 :]
        if leaf.op is not ops.Add:
            continue
        for x, cubic in either_way(leaf):
            if not numbers_apart(rest)[1] and _is_cubic(cubic, [x] * 3, dtype):
                return x
            if is_number(x, 1):
                outer = numbers_apart(rest)[1]
                if len(outer) == 1 and _is_cubic(cubic, outer * 2, dtype):
                    return outer[0]
    return None


def _is_cubic(value: Value, powers: list[Value], dtype: DType) -> bool:
    """Whether ``value`` is 0.044715 times the product of ``powers``, which are all the same value."""
    number, others = product(value)
    expanded: list[Value] = []
    for other in others:
        match other:
            case Value(ops.Pow, (base, exponent)) if splat(exponent) in (2, 3):
                expanded += [base] * int(splat(exponent) or 0)
            case _:
                expanded.append(other)
    scale = 1.0
    leaves: list[Value] = []
    for power in powers:
        a, b = product(power)
        scale, leaves = scale * a, leaves + b
    if expanded == powers:
        return close(number, 0.044715, dtype)
    return bool(scale) and close(number / scale, 0.044715, dtype) and Counter(expanded) == Counter(leaves)


@rule(ops.Div, ops.Reciprocal)
def sigmoid(node: Node) -> Value | None:
    """1 / (1 + exp(-x))  ->  sigmoid(x);  y / (1 + exp(-x))  ->  y * sigmoid(x)"""
    match _one_plus(node.inputs[-1]):
        case Value(ops.Exp, (Value(ops.Neg, (x,)),)):
            if node.op is ops.Reciprocal:
                return ops.Sigmoid(x)
            return ops.Mul(node.inputs[0], ops.Sigmoid(x))
    return None


@rule(ops.Mul)
def swish(node: Node) -> Value | None:
    """x * sigmoid(x)  ->  swish(x);  x * sigmoid(a * x)  ->  swish(x, a)"""
    for x, gate in either_way(node):
        match gate:
            case Value(ops.Sigmoid, (inside,)) if x.type == inside.type == node.types[0]:
                alpha = 1.0 if inside is x else multiple(factors(inside), x)
                if alpha:
                    return ops.Swish(x, alpha=alpha)
    return None


@rule(ops.Mul)
def mish(node: Node) -> Value | None:
    """x * tanh(softplus(x))  ->  mish(x)"""
    for x, gate in either_way(node):
        match gate:
            case Value(ops.Tanh, (Value(ops.Softplus, (inside,)),)) if inside is x:
                return ops.Mish(x)
    return None


@rule(ops.Log)
def softplus(node: Node) -> Value | None:
    """log(1 + exp(x))  ->  softplus(x), which is finite where exp overflows"""
    match _one_plus(node.inputs[0]):
        case Value(ops.Exp, (x,)):
            return ops.Softplus(x)
    return None


def _relu6_of_plus_three(value: Value) -> Value | None:
    """x if ``value`` is clip(x + 3, 0, 6)."""
    match value:
        case Value(ops.Clip, (Value(ops.Add, (x, three)),), {"low": 0, "high": 6}) if is_number(three, 3):
            return x if x.type == value.type else None
    return None


@rule(ops.Div, ops.Mul)
def hard_sigmoid(node: Node) -> Value | None:
    """clip(x + 3, 0, 6) / 6  ->  hard_sigmoid(x, 1/6, 1/2)"""
    number, others = product(node[0])
    if len(others) == 1 and close(number, 1 / 6, node.types[0].dtype):
        x = _relu6_of_plus_three(others[0])
        if x is not None and x.type == node.types[0]:
            return ops.HardSigmoid(x, alpha=1 / 6, beta=0.5)
    return None


@rule(ops.Div, ops.Mul)
def hard_swish(node: Node) -> Value | None:
    """x * hard_sigmoid(x, 1/6, 1/2)  ->  hard_swish(x);  x * clip(x + 3, 0, 6) / 6  ->  hard_swish(x)"""
    dtype = node.types[0].dtype
    for gate, rest in _gates(node):
        x, expected = _relu6_of_plus_three(gate), 1 / 6
        match gate:
            case Value(ops.HardSigmoid, (inside,), {"alpha": alpha, "beta": 0.5}) if close(alpha, 1 / 6, dtype):
                x, expected = inside, 1.0
        if x is not None and x.type == node.types[0]:
            number = multiple(rest, x)
            if number and close(number, expected, dtype):
                return ops.HardSwish(x)
    return None


RULES = (
    layer_norm,
    rms_norm,
    softmax,
    log_softmax,
    gelu,
    gelu_tanh,
    sigmoid,
    swish,
    mish,
    softplus,
    hard_sigmoid,
    hard_swish,
)
