"""Translators of the training operators: optimisers are elementwise, Gradient is reverse-mode differentiation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gpucomp import ops
from gpucomp.errors import UnsupportedError, quote
from gpucomp.frontend.onnx.compose import cast, expand, like, reshape, scalar_of, transpose
from gpucomp.frontend.onnx.translate import Site, translates
from gpucomp.ir import Value, topological

TRAINING = "ai.onnx.preview.training"


def _tensors(operands: Sequence[Value], kinds: int) -> list[tuple[Value, ...]]:
    """The operands of each optimised tensor: all tensors come first, then all gradients, and so on."""
    if not operands or len(operands) % kinds:
        raise ValueError(f"a multiple of {kinds} operands expected, {kinds} for each tensor; {len(operands)} given")
    count = len(operands) // kinds
    return [tuple(operands[k::count]) for k in range(count)]


def _ordered(results: Sequence[tuple[Value, ...]]) -> list[Value]:
    return [value for column in zip(*results, strict=True) for value in column]


def _scaled(x: Value, factor: float) -> Value:
    return ops.Mul(x, like(x, factor))


def _regularised(x: Value, gradient: Value, norm: float) -> Value:
    return ops.Add(_scaled(x, norm), gradient) if norm else gradient


def _rate(rate: Value, x: Value) -> Value:
    return cast(reshape(rate, ()), x.type.dtype)


@translates("Adagrad", since=1, domain=TRAINING)
def adagrad(
    rate: Value,
    step: Value,
    *operands: Value,
    decay_factor: float = 0.0,
    epsilon: float = 0.0,
    norm_coefficient: float = 0.0,
) -> list[Value]:
    """h' = h + g g;  x' = x - rate / (1 + step decay) g / (sqrt(h') + epsilon)"""
    results = []
    for x, gradient, squares in _tensors(operands, 3):
        decay = ops.Add(_scaled(_rate(step, x), decay_factor), like(x, 1))
        g = _regularised(x, gradient, norm_coefficient)
        h = ops.Add(squares, ops.Mul(g, g))
        moved = ops.Div(ops.Mul(ops.Div(_rate(rate, x), decay), g), ops.Add(ops.Sqrt(h), like(h, epsilon)))
        results.append((ops.Sub(x, moved), h))
    return _ordered(results)


@translates("Adam", since=1, domain=TRAINING)
def adam(
    rate: Value,
    step: Value,
    *operands: Value,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 0.0,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> list[Value]:
    """v' = alpha v + (1 - alpha) g;  h' = beta h + (1 - beta) g g;  x' = x - r v' / (sqrt(h') + epsilon)

    with r = rate sqrt(1 - beta^step) / (1 - alpha^step) once step > 0.
    """
    results = []
    for x, gradient, mean, squares in _tensors(operands, 4):
        r, count = _rate(rate, x), _rate(step, x)
        grown = [ops.Sub(like(x, 1), ops.Pow(like(x, base), count)) for base in (beta, alpha)]
        corrected = ops.Div(ops.Mul(r, ops.Sqrt(grown[0])), grown[1])
        r = ops.Where(ops.Less(like(x, 0), count), corrected, r)
        g = _regularised(x, gradient, norm_coefficient)
        v = ops.Add(_scaled(mean, alpha), _scaled(g, 1 - alpha))
        h = ops.Add(_scaled(squares, beta), _scaled(ops.Mul(g, g), 1 - beta))
        new = ops.Sub(x, ops.Div(ops.Mul(r, v), ops.Add(ops.Sqrt(h), like(h, epsilon))))
        results.append((_scaled(new, 1 - norm_coefficient_post) if norm_coefficient_post else new, v, h))
    return _ordered(results)


@translates("Momentum", since=1, domain=TRAINING)
def momentum(
    rate: Value, step: Value, *operands: Value, alpha: float, beta: float, mode: str, norm_coefficient: float
) -> list[Value]:
    """v' = alpha v + b g, b = beta once step > 0, else 1;  x' = x - rate v', or x - rate (g + alpha v') after Nesterov"""
    if mode not in ("standard", "nesterov"):
        raise ValueError(f"mode standard or nesterov expected, got {mode!r}")
    results = []
    for x, gradient, velocity in _tensors(operands, 3):
        share = ops.Where(ops.Less(scalar_of(step.type.dtype, 0), reshape(step, ())), like(x, beta), like(x, 1))
        g = _regularised(x, gradient, norm_coefficient)
        v = ops.Add(_scaled(velocity, alpha), ops.Mul(share, g))
        direction = v if mode == "standard" else ops.Add(g, _scaled(v, alpha))
        results.append((ops.Sub(x, ops.Mul(_rate(rate, x), direction)), v))
    return _ordered(results)


@translates("Gradient", since=1, domain=TRAINING)
def gradient(*operands: Value, xs: tuple[str, ...], y: str, zs: tuple[str, ...] = (), site: Site) -> list[Value]:
    """The derivative of the sum of ``y`` by each of ``xs``. The operands must be the tensors that ``xs`` and ``zs`` name."""
    named = [site.scope.find(name) for name in (*xs, *zs)]
    target = site.scope.find(y)
    if not isinstance(target, Value) or any(not isinstance(v, Value) for v in named):
        raise ValueError("xs, zs and y must name tensors that are computed before")
    if len(operands) != len(named):
        raise ValueError(f"{len(named)} operands expected, {len(operands)} given")
    if any(a is not b for a, b in zip(operands, named, strict=True)):
        raise UnsupportedError("a gradient at values other than those of the named tensors is not supported")
    sums: dict[Value, Value] = {target: expand(like(target, 1), target.shape)}
    depends = _depending(target, operands[: len(xs)])
    for node in reversed(topological([target.node])):
        flowing = sums.get(node[0])
        if flowing is None or node[0] in operands[: len(xs)]:
            continue
        needs_gradient = [v in depends for v in node.inputs]
        if not any(needs_gradient):
            continue
        rule = BACKWARD.get(node.op.name)
        if rule is None or len(node.types) != 1:
            raise UnsupportedError(f"the derivative of {quote(node.op.name)} is not supported")
        for value, part, needed in zip(node.inputs, rule(flowing, node[0], *node.inputs), needs_gradient, strict=True):
            if needed:
                part = _summed_to(part, value.shape)
                sums[value] = ops.Add(sums[value], part) if value in sums else part
    return [sums.get(x, expand(like(x, 0), x.shape)) for x in operands[: len(xs)]]


def _depending(target: Value, sources: Sequence[Value]) -> set[Value]:
    """The values between ``sources`` and ``target``, both included."""
    depending = set(sources)
    for node in topological([target.node]):
        if any(v in depending for v in node.inputs):
            depending.update(node.values)
    return depending


def _summed_to(x: Value, shape: tuple[int, ...]) -> Value:
    """``x`` summed over the axes that were broadcast from ``shape``."""
    if x.shape == shape:
        return x
    extra = len(x.shape) - len(shape)
    axes = tuple(a for a in range(len(x.shape)) if a < extra or (shape[a - extra] == 1 and x.shape[a] != 1))
    return reshape(ops.ReduceSum(x, axes=axes, keepdims=True), shape) if axes else reshape(x, shape)


def _swapped(x: Value) -> Value:
    rank = len(x.shape)
    return transpose(x, (*range(rank - 2), rank - 1, rank - 2))


def _matmul_backward(g: Value, y: Value, a: Value, b: Value) -> tuple[Value, Value]:
    if min(len(a.shape), len(b.shape)) < 2:
        raise UnsupportedError("the derivative of a product with a vector is not supported")
    return ops.MatMul(g, _swapped(b)), ops.MatMul(_swapped(a), g)


BACKWARD: dict[str, Callable[..., tuple[Value, ...]]] = {
    "Add": lambda g, y, a, b: (g, g),
    "Sub": lambda g, y, a, b: (g, ops.Neg(g)),
    "Mul": lambda g, y, a, b: (ops.Mul(g, b), ops.Mul(g, a)),
    "Div": lambda g, y, a, b: (ops.Div(g, b), ops.Neg(ops.Div(ops.Mul(g, y), b))),
    "Neg": lambda g, y, a: (ops.Neg(g),),
    "Exp": lambda g, y, a: (ops.Mul(g, y),),
    "Log": lambda g, y, a: (ops.Div(g, a),),
    "Sqrt": lambda g, y, a: (ops.Div(g, _scaled(y, 2.0)),),
    "Tanh": lambda g, y, a: (ops.Mul(g, ops.Sub(like(y, 1), ops.Mul(y, y))),),
    "Sigmoid": lambda g, y, a: (ops.Mul(g, ops.Mul(y, ops.Sub(like(y, 1), y))),),
    "Relu": lambda g, y, a: (ops.Where(ops.Less(like(a, 0), a), g, like(g, 0)),),
    "MatMul": _matmul_backward,
    "Reshape": lambda g, y, a: (reshape(g, a.shape),),
    "Transpose": lambda g, y, a: (transpose(g, tuple(np.argsort(y.attrs["perm"]).tolist())),),
    "Expand": lambda g, y, a: (g,),
}
