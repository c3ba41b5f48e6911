"""Draws elementwise operators: unary, binary, n-ary, comparisons, logic, bits, casts."""

from __future__ import annotations

import numpy as np

from tests.fuzz.draft import ALL, BF16, BOOL, F16, F32, F64, FLOATS, INTEGERS, SIGNED, UNSIGNED, Draft, Value, onnx_type
from tests.fuzz.kinds import draws

BOUNDED = ("Tanh", "Sigmoid", "Erf", "Softsign", "Sin", "Cos", "Atan", "HardSigmoid")
UNARY = (
    "Relu", "Neg", "Abs", "Softplus", "Elu", "Selu", "Celu", "LeakyRelu", "HardSwish", "Mish", "Identity", "Exp",
    "Sinh", "Cosh", "Asinh", "Floor", "Ceil", "Round", "Sign", "ThresholdedRelu", "Shrink",
)  # fmt: skip
ATTRIBUTES = {
    "Elu": ("alpha",), "Selu": ("alpha", "gamma"), "Celu": ("alpha",), "LeakyRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"), "ThresholdedRelu": ("alpha",), "Shrink": ("bias", "lambd"),
}  # fmt: skip
BINARY = ("Add", "Sub", "Mul", "Max", "Min")
COMPARISONS = ("Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal")


def attributes_of(d: Draft, op: str) -> dict[str, float]:
    """Some of its numbers set, away from their defaults."""
    return {name: round(float(d.rng.uniform(0.1, 1.4)), 3) for name in ATTRIBUTES.get(op, ()) if d.chance(0.5)}


def broadcasts(shape: tuple[int, ...], onto: tuple[int, ...]) -> bool:
    return len(shape) <= len(onto) and all(a in (1, b) for a, b in zip(shape[::-1], onto[::-1], strict=False))


def meets(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether the two broadcast together, each in some axes perhaps."""
    return all(x == y or 1 in (x, y) for x, y in zip(a[::-1], b[::-1], strict=False))


def partner(d: Draft, x: Value, low: float = -1.0, high: float = 1.0) -> Value:
    """Another operand of x's type: a value at hand that broadcasts with it, or new numbers."""
    others = [v for v in d.values if v.dtype == x.dtype and meets(v.shape, x.shape)]
    if others and d.chance(0.5):
        return d.one(others)
    shape = [n if d.chance(0.6) else 1 for n in x.shape[d.number(0, x.rank + 1) :]]
    if d.chance(0.1) and len(shape) == x.rank and x.rank < 5:
        shape.insert(0, d.one((1, 2)))
    return numbers(d, x.dtype, shape, low, high)


def numbers(d: Draft, dtype: np.dtype, shape: list[int], low: float = -1.0, high: float = 1.0) -> Value:
    """New numbers of ``dtype``: floats between ``low`` and ``high``, small integers, or bools."""
    if dtype == BOOL:
        return d.data(d.rng.random(shape) < 0.5)
    if dtype in FLOATS:
        return d.data(d.rng.uniform(low, high, shape).astype(dtype))
    return d.data(d.rng.integers(0 if dtype in UNSIGNED else -7, 8, shape).astype(dtype))


@draws(4, smooth=True)
def bounded(d: Draft) -> None:
    if x := d.pick():
        op = d.one(BOUNDED)
        d.add(op, [x], **attributes_of(d, op))


@draws(6)
def unary(d: Draft) -> None:
    op = d.one(UNARY)
    dtypes = FLOATS if op not in ("Neg", "Abs", "Identity", "Sign") else (*FLOATS, *SIGNED)
    if x := d.pick(dtypes):
        d.add(op, [x], **attributes_of(d, op))


@draws(2)
def unary_of_a_domain(d: Draft) -> None:
    """Operators that are defined, or well behaved, on some numbers only: the operand is brought there first."""
    op = d.one(("Log", "Sqrt", "Reciprocal", "Acosh", "Asin", "Acos", "Atanh", "Tan"))
    x = d.pick()
    if x is None:
        return
    if op in ("Asin", "Acos", "Atanh", "Tan"):
        bounded = d.add("Tanh", [x])
        inside = d.add("Mul", [*bounded, d.constant(np.array(0.75, x.dtype))]) if bounded else None
    else:
        positive = d.add("Abs", [x])
        least = 1.25 if op == "Acosh" else 0.25
        inside = d.add("Add", [*positive, d.constant(np.array(least, x.dtype))]) if positive else None
    if inside:
        d.add(op, inside)


@draws(1.5)
def by_opset(d: Draft) -> None:
    """Operators that came late: Gelu with 20, Swish with 24, which is spelt out here by its parts."""
    x = d.pick()
    if x is None:
        return
    if d.opset >= 20 and d.chance(0.5):
        d.add("Gelu", [x], approximate=d.one(("none", "tanh")))
    else:
        gate = d.add("Sigmoid", [x])
        if gate:
            d.add("Mul", [x, *gate] if d.chance(0.5) else [*gate, x])


@draws(2)
def clip(d: Draft) -> None:
    if x := d.pick((*FLOATS, *INTEGERS)):
        whole = x.dtype in INTEGERS
        low, high = (2, 5) if whole else sorted(d.rng.uniform(-1, 1, 2).tolist())
        low, high = d.constant(np.array(low, x.dtype)), d.constant(np.array(high, x.dtype))
        d.add("Clip", [x, *d.one(((low, high), (low,), (None, high), ()))])


@draws(7, smooth=True)
def binary(d: Draft) -> None:
    if x := d.pick():
        operands = [x, partner(d, x)]
        if d.chance(0.4):
            operands.reverse()
        d.add(d.one(BINARY), operands)


@draws(2)
def binary_of_integers(d: Draft) -> None:
    if x := d.pick(INTEGERS):
        operands = [x, partner(d, x)]
        if d.chance(0.4):
            operands.reverse()
        d.add(d.one(BINARY), operands)


@draws(2)
def division(d: Draft) -> None:
    """The divisor is at least a quarter in size, or a positive integer: what / and Mod give else is left open."""
    x = d.pick((*FLOATS, *INTEGERS))
    if x is None:
        return
    shape = [n if d.chance(0.6) else 1 for n in x.shape[d.number(0, x.rank + 1) :]]
    if x.dtype in INTEGERS:
        by = d.data(d.rng.integers(1, 7, shape).astype(x.dtype))
        op = d.one(("Div", "Mod"))
        d.add(op, [x, by], **({"fmod": 1} if op == "Mod" and d.chance(0.3) else {}))
        return
    size = d.rng.uniform(0.25, 2, shape) * d.rng.choice([-1, 1], shape)
    by = d.data(size.astype(x.dtype))
    if d.chance(0.7):
        d.add("Div", [x, by])
    else:
        d.add("Mod", [x, by], fmod=1)


@draws(1)
def power(d: Draft) -> None:
    """Whole exponents of anything, others of positive numbers."""
    x = d.pick((*FLOATS, *SIGNED[2:]))
    if x is None:
        return
    if x.dtype in SIGNED:
        d.add("Pow", [x, d.constant(np.array(d.number(0, 4), x.dtype))])
        return
    if d.chance(0.6):
        kind = d.one((x.dtype, np.dtype("int64"), np.dtype("int32")))
        d.add("Pow", [x, d.constant(np.array(d.number(0, 4), kind))])
        return
    base = d.add("Exp", [x])
    if base:
        d.add("Pow", [*base, partner(d, base[0])])


@draws(2, smooth=True)
def several(d: Draft) -> None:
    """Operators of any number of operands; one operand may be there twice."""
    x = d.pick()
    if x is None:
        return
    others = [v for v in d.values if v.dtype == x.dtype and meets(v.shape, x.shape)]
    rest = [v for v in (d.one(others) for _ in range(d.number(0, 4))) if broadcasts(v.shape, x.shape)]
    d.add(d.one(("Sum", "Mean", "Max", "Min")), [x, *rest])


@draws(2.5)
def comparison(d: Draft) -> None:
    if x := d.pick(ALL):
        op = "Equal" if x.dtype == BOOL else d.one(COMPARISONS)
        d.add(op, [x, partner(d, x)])


@draws(1)
def logic(d: Draft) -> None:
    if x := d.pick((BOOL,)):
        op = d.one(("And", "Or", "Xor", "Not"))
        d.add(op, [x] if op == "Not" else [x, partner(d, x)])


@draws(1.5)
def where(d: Draft) -> None:
    flag = d.pick((BOOL,))
    if flag is None:
        return
    others = [v for v in d.values if meets(v.shape, flag.shape)]
    if others:
        x = d.one(others)
        d.add("Where", [flag, x, partner(d, x)])


@draws(1)
def bits(d: Draft) -> None:
    op = d.one(("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift"))
    x = d.pick(UNSIGNED if op == "BitShift" else INTEGERS)
    if x is None or (op != "BitShift" and d.opset < 18):
        return
    if op == "BitShift":
        by = d.data(d.rng.integers(0, 3, x.shape if d.chance(0.5) else ()).astype(x.dtype))
        d.add(op, [x, by], direction=d.one(("LEFT", "RIGHT")))
    else:
        d.add(op, [x] if op == "BitwiseNot" else [x, partner(d, x)])


@draws(3)
def cast(d: Draft) -> None:
    """Between any two types; bfloat16 and float16 get as much as they hold."""
    if x := d.pick(ALL):
        common = (F32, F32, d.main, F16, F64, BF16, *SIGNED, *UNSIGNED, BOOL)
        target = d.one([dtype for dtype in common if dtype != x.dtype])
        if d.chance(0.2):
            d.add("CastLike", [x, d.constant(np.zeros((), target))])
        else:
            d.add("Cast", [x], to=onnx_type(target))


@draws(0.7)
def tests_of_floats(d: Draft) -> None:
    if x := d.pick((F32, F64, F16)):
        op = d.one(("IsNaN", "IsInf"))
        d.add(op, [x], **({"detect_negative": d.number(0, 2)} if op == "IsInf" else {}))


@draws(1)
def prelu(d: Draft) -> None:
    if x := d.pick((F32, F64, F16)):
        shape = [n if d.chance(0.6) else 1 for n in x.shape[d.number(0, x.rank + 1) :]]
        d.add("PRelu", [x, d.data(d.rng.uniform(-1, 1, shape).astype(x.dtype))])


@draws(0.5)
def dropout(d: Draft) -> None:
    """Without training it is the identity, and its mask all true."""
    if x := d.pick((F32, F64, F16)):
        d.add("Dropout", [x], outputs=d.one(((True,), (True, True))))
