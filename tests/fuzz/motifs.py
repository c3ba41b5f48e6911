"""Draws what exporters write: patterns of several nodes that the rewrites and the fusion look for."""

from __future__ import annotations

import math

import numpy as np
import onnx

from tests.fuzz.draft import F16, F32, F64, FLOATS, Draft, Value
from tests.fuzz.kinds import draws
from tests.fuzz.neural import window

Made = list[Value] | None


def chain(d: Draft, x: Value, *steps: tuple[str, tuple[Value, ...]], **attributes: object) -> Value | None:
    """Each step's operator on the value so far and its other operands; ``None`` where one was not used."""
    for op, others in steps:
        made = d.add(op, [x, *others], **attributes)
        if made is None:
            return None
        x = made[0]
    return x


def scalar(d: Draft, number: float, x: Value) -> Value:
    return d.constant(np.array(number, x.dtype))


@draws(2)
def conv_block(d: Draft) -> None:
    """Conv, then any of: batch norm, a scale, an activation, a residual, a pool."""
    x = d.pick((F32, F32, F64, F16), (4,), lambda v: min(v.shape) > 0)
    options = window(d, x.shape[2:]) if x else None
    if x is None or options is None:
        return
    c = x.shape[1]
    same = d.chance(0.4)
    if same:
        options = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    out = c if same else d.one((1, 3, 4, 8, 16))
    group = c if same and d.chance(0.4) else 1
    terms = c // group * math.prod(options["kernel_shape"])
    made = d.add(
        "Conv",
        [x, d.floats(out, c // group, *options["kernel_shape"], scale=2 / terms**0.5, dtype=x.dtype)],
        group=group,
        **options,
    )
    if made and d.chance(0.5):
        variance = d.constant(d.rng.uniform(0.5, 2, out).astype(x.dtype))
        made = d.add("BatchNormalization", [*made, *(d.floats(out, dtype=x.dtype) for _ in range(3)), variance])
    if made and d.chance(0.3):
        made = d.add(d.one(("Mul", "Add")), [*made, d.floats(out, 1, 1, dtype=x.dtype)])
    if made and d.chance(0.6):
        made = d.add(d.one(("Relu", "Sigmoid", "HardSwish", "Elu", "Tanh")), made)
    if made and made[0].shape == x.shape and d.chance(0.7):
        made = d.add("Add", [x, *made] if d.chance(0.5) else [*made, x])
    if made and d.chance(0.3) and min(made[0].shape[2:]) >= 2:
        d.add(d.one(("MaxPool", "AveragePool")), made, kernel_shape=[2, 2], strides=[d.one((1, 2))] * 2)


@draws(1)
def siblings(d: Draft) -> None:
    """Several products or convolutions of one value, joined again: they may become one."""
    x = d.pick((F32, F64), (2, 3, 4), lambda v: min(v.shape) > 0)
    if x is None:
        return
    parts = []
    for _ in range(d.number(2, 4)):
        if x.rank == 4:
            out = d.one((1, 2, 5))
            made = d.add("Conv", [x, d.floats(out, x.shape[1], 1, 1, scale=1 / x.shape[1] ** 0.5, dtype=x.dtype)])
        else:
            made = d.add(
                "MatMul", [x, d.floats(x.shape[-1], d.one((2, 3, 7)), scale=1 / x.shape[-1] ** 0.5, dtype=x.dtype)]
            )
        if made and d.chance(0.5):
            made = d.add("Relu", made)
        if made:
            parts += made
    if len(parts) > 1 and d.chance(0.7):
        d.add("Concat", parts, axis=1 if x.rank == 4 else -1)


@draws(2)
def attention(d: Draft) -> None:
    """Heads split off, scaled scores, a mask or none, softmax, values, heads merged."""
    x = d.pick((F32, F32, F64, F16), (3,), lambda v: min(v.shape) > 0)
    if x is None:
        return
    batch, rows, features = x.shape
    heads, depth = d.one((1, 2, 3)), d.one((1, 4, 8, 5))
    projections: list[Value] = []
    for _ in range(3):
        y = chain(
            d,
            x,
            ("MatMul", (d.floats(features, heads * depth, scale=2 / features**0.5, dtype=x.dtype),)),
            ("Reshape", (d.ints(batch, rows, heads, depth),)),
        )
        if y is None:
            return
        projections.append(y)
    q, k, v = projections
    turned = [
        d.add("Transpose", [y], perm=perm) for y, perm in ((q, (0, 2, 1, 3)), (k, (0, 2, 3, 1)), (v, (0, 2, 1, 3)))
    ]
    if not all(turned):
        return
    (q,), (k,), (v,) = turned
    if d.chance(0.5):
        scaled = d.add("Mul", [q, scalar(d, depth**-0.5, q)])
        scores = d.add("MatMul", [*scaled, k]) if scaled else None
    else:
        raw = d.add("MatMul", [q, k])
        scores = d.add("Div", [*raw, scalar(d, depth**0.5, q)]) if raw else None
    if scores and d.chance(0.5):
        kind = d.one(("causal", "padding", "added"))
        seen = np.tril(np.ones((rows, rows), bool)) if kind == "causal" else d.rng.random((batch, 1, 1, rows)) < 0.7
        seen[..., 0] = True
        if kind == "added":
            scores = d.add("Add", [*scores, d.data(np.where(seen, 0, -100).astype(x.dtype))])
        else:
            scores = d.add("Where", [d.data(seen), *scores, scalar(d, -100.0, x)])
    soft = d.add("Softmax", scores, axis=-1) if scores else None
    mixed = d.add("MatMul", [*soft, v]) if soft else None
    merged = d.add("Transpose", mixed, perm=(0, 2, 1, 3)) if mixed else None
    if merged and d.chance(0.8):
        d.add("Reshape", [*merged, d.ints(batch, rows, heads * depth)])


@draws(1.2)
def attention_operator(d: Draft) -> None:
    """The operator of opset 23: three or four axes, fewer keys than queries have heads, masks, causality, a cache of keys."""
    if d.opset < 23:
        return
    batch, rows, keys, depth, values = d.one((1, 2)), d.number(1, 6), d.number(1, 7), d.one((2, 4, 8)), d.one((2, 4, 5))
    kv_heads = d.one((1, 2))
    heads = kv_heads * d.one((1, 1, 2, 3))
    dtype = d.one((F32, F32, F16))
    past = d.number(1, 5) if d.chance(0.3) else 0
    causal = d.chance(0.3)
    attributes: dict[str, object] = {"is_causal": int(causal)}
    if d.chance(0.3):
        attributes["scale"] = 0.4
    if d.chance(0.2):
        attributes["softcap"] = 1.5
    sizes = ((heads, rows, depth), (kv_heads, keys, depth), (kv_heads, keys, values))
    if d.chance(0.5):
        shapes = [(batch, *size) for size in sizes]
    else:
        shapes = [(batch, long, count * wide) for count, long, wide in sizes]
        attributes |= {"q_num_heads": heads, "kv_num_heads": kv_heads}
    operands: list[Value | None] = [d.floats(*shape, dtype=dtype) for shape in shapes]
    operands.append(_mask(d, (batch, heads, rows, past + keys), dtype) if d.chance(0.5) else None)
    outputs = [True]
    if past:
        operands += [d.floats(batch, kv_heads, past, wide, dtype=dtype) for wide in (depth, values)]
        outputs += [True, True]
    if d.chance(0.15):
        outputs += [False] * (3 - len(outputs)) + [True]
        attributes["qk_matmul_output_mode"] = d.number(0, 4)
    d.add("Attention", operands, outputs=outputs, **attributes)


def _mask(d: Draft, scores: tuple[int, ...], dtype: np.dtype) -> Value:
    """For scores of that shape: numbers to add, or flags of what is seen, of which each row has one."""
    shape = d.one((scores[2:], (1, 1, *scores[2:]), (scores[0], 1, *scores[2:]), scores))
    if d.chance(0.5):
        return d.floats(*shape, dtype=dtype)
    seen = d.rng.random(shape) < 0.6
    seen[..., 0] = True
    return d.data(seen)


@draws(0.6)
def rotary(d: Draft) -> None:
    """Rotary embedding, as the operator of opset 23 or by halves that change places."""
    batch, heads, rows, depth = d.one((1, 2)), d.number(1, 4), d.number(1, 6), d.one((2, 4, 8))
    angles = d.rng.uniform(-3, 3, (rows, depth // 2))
    cos, sin = (f(angles).astype(np.float32) for f in (np.cos, np.sin))
    x = d.floats(batch, heads, rows, depth, dtype=F32)
    if d.opset >= 23 and d.chance(0.5):
        attributes: dict[str, int] = {"interleaved": d.number(0, 2)}
        if d.chance(0.4):
            x, attributes["num_heads"] = d.floats(batch, rows, heads * depth, dtype=F32), heads
        if depth > 2 and d.chance(0.3):
            attributes["rotary_embedding_dim"] = depth // 2
            cos, sin = cos[:, : depth // 4].copy(), sin[:, : depth // 4].copy()
        if d.chance(0.4):
            places = d.data(d.rng.integers(0, rows, (batch, rows)))
            d.add("RotaryEmbedding", [x, d.constant(cos), d.constant(sin), places], **attributes)
            return
        tables = [d.constant(np.broadcast_to(t, (batch, *t.shape)).copy()) for t in (cos, sin)]
        d.add("RotaryEmbedding", [x, *tables], **attributes)
        return
    halves = d.add("Split", [x, d.ints(depth // 2, depth // 2)], outputs=2, axis=-1)
    if halves is None:
        return
    negative = d.add("Neg", [halves[1]])
    turned = d.add("Concat", [*negative, halves[0]], axis=-1) if negative else None
    wide = [d.constant(np.concatenate([t, t], -1)) for t in (cos, sin)]
    left = d.add("Mul", [x, wide[0]])
    right = d.add("Mul", [*turned, wide[1]]) if turned else None
    if left and right:
        d.add("Add", [*left, *right])


@draws(1.5)
def norm_by_hand(d: Draft) -> None:
    """Layer norm or RMS norm, by their parts."""
    x = d.pick((F32, F32, F64), range(1, 5), lambda v: v.shape[-1] >= 3 and min(v.shape) > 0)
    if x is None:
        return
    axes = ([d.ints(-1)], {}) if d.opset >= 18 else ([], {"axes": [-1]})
    centred: Made = [x]
    if d.chance(0.6):
        mean = d.add("ReduceMean", [x, *axes[0]], keepdims=1, **axes[1])
        centred = d.add("Sub", [x, *mean]) if mean else None
    squares = None
    if centred:
        squares = d.add("Mul", [*centred, *centred]) if d.chance(0.5) else d.add("Pow", [*centred, scalar(d, 2, x)])
    variance = d.add("ReduceMean", [*squares, *axes[0]], keepdims=1, **axes[1]) if squares else None
    shifted = d.add("Add", [*variance, scalar(d, 0.01, x)]) if variance else None
    root = d.add("Sqrt", shifted) if shifted else None
    if root and centred:
        if d.chance(0.5):
            made = d.add("Div", [*centred, *root])
        else:
            inverse = d.add("Reciprocal", root)
            made = d.add("Mul", [*centred, *inverse]) if inverse else None
        if made and d.chance(0.7):
            scaled = d.add("Mul", [*made, d.floats(x.shape[-1], dtype=x.dtype)])
            if scaled and d.chance(0.7):
                d.add("Add", [*scaled, d.floats(x.shape[-1], dtype=x.dtype)])


@draws(1)
def gelu_by_hand(d: Draft) -> None:
    """x Phi(x), by erf or by tanh."""
    x = d.pick((F32, F32, F64))
    if x is None:
        return
    if d.chance(0.5):
        inner = chain(d, x, (d.one(("Mul",)), (scalar(d, 2**-0.5, x),)), ("Erf", ()), ("Add", (scalar(d, 1, x),)))
    else:
        cube = d.add("Pow", [x, scalar(d, 3, x)])
        mixed = d.add("Mul", [*cube, scalar(d, 0.044715, x)]) if cube else None
        total = d.add("Add", [x, *mixed]) if mixed else None
        steps = (("Mul", (scalar(d, (2 / math.pi) ** 0.5, x),)), ("Tanh", ()), ("Add", (scalar(d, 1, x),)))
        inner = chain(d, total[0], *steps) if total else None
    if inner:
        product = d.add("Mul", [x, inner])
        if product:
            d.add("Mul", [*product, scalar(d, 0.5, x)])


@draws(1)
def turned_sum(d: Draft) -> None:
    """A value and its transpose meet: one kernel at two places of its domain."""
    x = d.pick(FLOATS, (2, 3, 4), lambda v: len(set(v.shape)) < v.rank and min(v.shape) > 0)
    if x is None:
        return
    pairs = [(a, b) for a in range(x.rank) for b in range(a) if x.shape[a] == x.shape[b]]
    a, b = d.one(pairs)
    perm = list(range(x.rank))
    perm[a], perm[b] = b, a
    left = d.add("Tanh", [x]) if d.chance(0.5) else [x]
    turned = d.add("Transpose", left, perm=perm) if left else None
    right = d.add("Abs", [x]) if d.chance(0.5) else [x]
    if turned and right:
        d.add(d.one(("Add", "Mul", "Sub", "MatMul") if x.rank == 2 else ("Add", "Mul", "Sub")), [*turned, *right])


@draws(1)
def shuffled_channels(d: Draft) -> None:
    """Reshape, transpose, reshape: channels between groups."""
    x = d.pick(FLOATS, (4,), lambda v: v.shape[1] in (4, 6, 8, 16) and min(v.shape) > 0)
    if x is None:
        return
    n, c, h, w = x.shape
    split = d.add("Reshape", [x, d.ints(n, 2, c // 2, h, w)])
    turned = d.add("Transpose", split, perm=(0, 2, 1, 3, 4)) if split else None
    if turned:
        d.add("Reshape", [*turned, d.ints(n, -1, h, w)])


@draws(1)
def layout_round_trip(d: Draft) -> None:
    """NHWC in, NCHW for the operator, NHWC out, as converters from other frameworks write."""
    x = d.pick((F32, F64), (4,), lambda v: min(v.shape) > 0 and min(v.shape[1:3]) >= 2)
    turned = d.add("Transpose", [x], perm=(0, 3, 1, 2)) if x else None
    if not turned:
        return
    y = turned[0]
    if d.chance(0.6):
        made = d.add("Conv", [y, d.floats(d.one((2, 5)), y.shape[1], 2, 2, scale=1 / y.shape[1] ** 0.5, dtype=y.dtype)])
    else:
        made = d.add("MaxPool", [y], kernel_shape=[2, 2], strides=[1, 1])
    if made:
        d.add("Transpose", made, perm=(0, 2, 3, 1))


@draws(0.7)
def wide(d: Draft) -> None:
    """One value read by many, all joined again."""
    x = d.pick((F32, F64), range(1, 4), lambda v: v.array.size < 200)
    if x is None:
        return
    parts = [d.add(d.one(("Tanh", "Neg", "Relu", "Sin", "Softsign", "Abs")), [x]) for _ in range(d.number(8, 20))]
    parts = [p[0] for p in parts if p]
    if len(parts) > 1:
        if d.chance(0.5):
            d.add("Concat", parts, axis=d.axis(x.rank))
        else:
            d.add("Sum", parts)


REPEATABLE = ("Add", "Mul", "Tanh", "Transpose", "Conv", "MatMul", "Relu", "ReduceMean", "Softmax")


@draws(1)
def repeated(d: Draft) -> None:
    """A node once more, by another name: both results may be outputs, and one kernel is enough."""
    known = {v.name: v for v in d.values}
    copies = [n for n in d.nodes if n.op_type in REPEATABLE and all(name in known for name in n.input)]
    if copies:
        node = onnx.NodeProto()
        node.CopyFrom(d.one(copies))
        node.output[:] = [d.fresh()]
        node.name = f"n{len(d.nodes)}"
        d.append(node, list(dict.fromkeys(known[name] for name in node.input)))


@draws(0.7)
def deep(d: Draft) -> None:
    """A long chain of cheap operators."""
    x = d.pick((F32, F64), range(4), lambda v: v.array.size < 200)
    for _ in range(d.number(15, 40)):
        if x is None:
            return
        op = d.one(("Tanh", "Neg", "Relu", "Sin", "Softsign", "Abs", "Add", "Mul", "Sub"))
        others = [d.constant(np.array(d.rng.uniform(0.5, 1.5), x.dtype))] if op in ("Add", "Mul", "Sub") else []
        made = d.add(op, [x, *others])
        x = made[0] if made else x


@draws(0.7)
def boxes(d: Draft) -> None:
    """NonMaxSuppression as a detector ends with: on numbers that are known, or at times on inputs, which then decide a shape."""
    count, classes = d.number(2, 7), d.number(1, 3)
    corner, size = d.rng.uniform(0, 1, (1, count, 2)), d.rng.uniform(0.1, 0.6, (1, count, 2))
    given = d.constant if d.prefix or d.chance(0.8) else d.input
    box = given(np.concatenate([corner, corner + size], -1).astype(np.float32))
    scores = given(d.rng.uniform(0, 1, (1, classes, count)).astype(np.float32))
    limits = [
        d.constant(np.array([d.number(1, 4)], np.int64)),
        d.constant(np.array([0.4], np.float32)),
        d.constant(np.array([0.1], np.float32)),
    ]
    d.add("NonMaxSuppression", [box, scores, *limits[: d.number(1, 4)]])
