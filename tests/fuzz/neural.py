"""Draws contractions, convolutions, pools, norms, reductions, recurrences and resampling."""

from __future__ import annotations

import math

import numpy as np

from tests.fuzz.draft import F16, F32, F64, FLOATS, I32, I64, LARGEST, Draft, Value
from tests.fuzz.elementwise import meets
from tests.fuzz.kinds import draws
from tests.fuzz.movement import SOLID

IMAGES = (3, 4, 5)
COMMON = (F32, F64, F16)


def image(d: Draft, ranks: tuple[int, ...] = (3, 4, 4, 5)) -> Value | None:
    """A batch of channels of something, each of at least one element."""
    return d.pick(FLOATS, ranks, lambda v: min(v.shape) > 0)


# --- products


@draws(3, smooth=True)
def matmul(d: Draft) -> None:
    x = d.pick((*FLOATS, I32, I64), SOLID, lambda v: v.shape[-1] > 0)
    if x is None:
        return
    k = x.shape[-1]
    others = [
        v
        for v in d.values
        if v.dtype == x.dtype and v.rank and v.shape[max(0, v.rank - 2)] == k and meets(v.shape[:-2], x.shape[:-2])
    ]
    if others and d.chance(0.5):
        y = d.one(others)
    elif x.dtype in FLOATS:
        lead = [n if d.chance(0.6) else 1 for n in x.shape[:-2]][d.number(0, max(1, x.rank - 1)) :]
        shape = [k] if d.chance(0.1) else [*lead, k, d.extent()]
        y = d.floats(*shape, scale=2 / k**0.5, dtype=x.dtype)
    else:
        y = d.data(d.rng.integers(-3, 4, (k, d.extent())).astype(x.dtype))
    d.add("MatMul", [x, y])


@draws(2)
def gemm(d: Draft) -> None:
    x = d.pick(FLOATS, (2,), lambda v: min(v.shape) > 0)
    if x is None:
        return
    transposed = d.number(0, 2), d.number(0, 2)
    m, k = x.shape[::-1] if transposed[0] else x.shape
    n = d.extent(zero=0)
    wanted = (n, k) if transposed[1] else (k, n)
    bias = d.one(((), (n,), (1, n), (m, 1), (m, n), (1, 1)))
    operands = [x, d.floats(*wanted, scale=2 / k**0.5, dtype=x.dtype)]
    operands += [d.floats(*bias, dtype=x.dtype)] if d.chance(0.7) else []
    attributes = {"alpha": d.one((1.0, 0.5, -1.25)), "beta": d.one((1.0, 0.7, 0.0))} if d.chance(0.6) else {}
    d.add("Gemm", operands, transA=transposed[0], transB=transposed[1], **attributes)


@draws(1)
def einsum(d: Draft) -> None:
    x = d.pick((F32, F64), (2, 3, 4), lambda v: min(v.shape) > 0)
    if x is None:
        return
    letters = "abcd"[: x.rank]
    sizes = dict(zip(letters, x.shape, strict=True)) | {"z": d.extent(zero=0)}
    second = [*d.some(letters), *(["z"] if d.chance(0.6) else [])]
    second = [second[k] for k in d.rng.permutation(len(second))]
    result = d.some([*letters, *(["z"] if "z" in second else [])])
    result = [result[k] for k in d.rng.permutation(len(result))]
    if d.chance(0.15):
        diagonal = d.floats(5, 5, 3, dtype=x.dtype)
        d.add("Einsum", [diagonal], equation=d.one(("iij->ij", "iij->j", "iij -> ji")))
        return
    y = d.floats(*(sizes[c] for c in second), dtype=x.dtype)
    d.add("Einsum", [x, y], equation=f"{letters},{''.join(second)}->{''.join(result)}")


# --- convolutions and windows


def window(d: Draft, spatial: tuple[int, ...], *, dilated: bool = True) -> dict[str, list[int] | str] | None:
    """kernel_shape, strides, pads or auto_pad, dilations: one that fits, of whatever may be left out some left out."""
    found: dict[str, list[int] | str] = {"kernel_shape": [d.one((1, 2, 3, 3, 3, 5)) for _ in spatial]}
    if d.chance(0.6):
        found["strides"] = [d.one((1, 1, 2, 3)) for _ in spatial]
    if dilated and d.chance(0.3):
        found["dilations"] = [d.one((1, 2, 3)) for _ in spatial]
    reach = [
        (k - 1) * a + 1 for k, a in zip(found["kernel_shape"], found.get("dilations", [1] * len(spatial)), strict=True)
    ]
    if d.chance(0.15) and "dilations" not in found:
        found["auto_pad"] = d.one(("SAME_UPPER", "SAME_LOWER", "VALID"))
        if found["auto_pad"] != "VALID":
            strides = found.get("strides", [1] * len(spatial))
            last = [-(-n // s) * s - s + r for n, s, r in zip(spatial, strides, reach, strict=True)]
            # a window that ends before the image does would have a pad below zero, of which the standard says nothing
            return found if all(at >= n for at, n in zip(last, spatial, strict=True)) else None
        return found if all(n >= r for n, r in zip(spatial, reach, strict=True)) else None
    pads = [0] * 2 * len(spatial)
    if d.chance(0.7):
        pads = [d.number(0, r) for r in (*reach, *reach)]
        if d.chance(0.5):
            pads = [d.number(0, 2) if min(reach) > 1 else 0] * 2 * len(spatial)
        found["pads"] = pads
    fits = all(n + pads[i] + pads[i + len(spatial)] >= r for i, (n, r) in enumerate(zip(spatial, reach, strict=True)))
    return found if fits else None


@draws(6)
def conv(d: Draft) -> None:
    x = image(d)
    if x is None:
        return
    c = x.shape[1]
    options = window(d, x.shape[2:])
    if options is None:
        return
    group = d.one([g for g in (1, 1, 1, 2, 3, c) if c % g == 0])
    out = group * d.one((1, 1, 2, 3, 5))
    if group == 1 and d.chance(0.2):
        out = d.one((8, 16, 17, 32) if d.largest == LARGEST else (32, 48, 64, 65))
    terms = c // group * math.prod(options["kernel_shape"])
    operands = [x, d.floats(out, c // group, *options["kernel_shape"], scale=2 / terms**0.5, dtype=x.dtype)]
    operands += [d.floats(out, dtype=x.dtype)] if d.chance(0.6) else []
    if d.chance(0.3):
        del options["kernel_shape"]
    d.add("Conv", operands, **({"group": group} if group > 1 else {}), **options)


@draws(1.5)
def conv_transpose(d: Draft) -> None:
    x = image(d)
    if x is None:
        return
    c, spatial = x.shape[1], x.shape[2:]
    group = d.one([g for g in (1, 1, 2, c) if c % g == 0])
    kernel = [d.number(1, 4) for _ in spatial]
    strides = [d.one((1, 2, 3)) for _ in spatial]
    dilations = [d.one((1, 1, 2)) for _ in spatial]
    extra = [d.number(0, s) for s in strides]
    pads = [d.number(0, k) for k in (*kernel, *kernel)]
    sizes = [
        s * (n - 1) + e + (k - 1) * a + 1 - pads[i] - pads[i + len(spatial)]
        for i, (n, s, k, a, e) in enumerate(zip(spatial, strides, kernel, dilations, extra, strict=True))
    ]
    if min(sizes) < 1:
        return
    out = d.one((1, 2, 3))
    operands = [x, d.floats(c, out, *kernel, scale=1 / (c // group) ** 0.5, dtype=x.dtype)]
    operands += [d.floats(out * group, dtype=x.dtype)] if d.chance(0.5) else []
    d.add(
        "ConvTranspose",
        operands,
        group=group,
        kernel_shape=kernel,
        strides=strides,
        dilations=dilations,
        pads=pads,
        output_padding=extra,
    )


@draws(3)
def pool(d: Draft) -> None:
    """``ceil_mode`` only where no window starts in the padding: the versions of the standard differ on these."""
    x = image(d)
    if x is None:
        return
    op = d.one(("MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool"))
    options = window(d, x.shape[2:], dilated=op == "MaxPool" or d.opset >= 19)
    if options is None:
        return
    kernel, spatial = options["kernel_shape"], x.shape[2:]
    pads = options.get("pads", [0] * 2 * len(spatial))
    if any(p >= k for p, k in zip(pads, (*kernel, *kernel), strict=True)):
        return
    if d.chance(0.2) and not any(pads) and "auto_pad" not in options:
        strides, dilations = options.get("strides", [1] * len(spatial)), options.get("dilations", [1] * len(spatial))
        steps = zip(spatial, kernel, strides, dilations, strict=True)
        if all((-(-(n - (k - 1) * a - 1) // s)) * s < n for n, k, s, a in steps) and op == "MaxPool":
            options["ceil_mode"] = 1
    if op == "AveragePool" and d.chance(0.5):
        options["count_include_pad"] = 1
    if op == "LpPool" and d.chance(0.6):
        options["p"] = d.one((1, 2, 3))
    indices = op == "MaxPool" and "ceil_mode" not in options and d.chance(0.15)
    d.add(op, [x], outputs=2 if indices else 1, **options)


@draws(1)
def global_pool(d: Draft) -> None:
    if x := image(d):
        op = d.one(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"))
        d.add(op, [x], **({"p": d.one((1, 2, 3))} if op == "GlobalLpPool" else {}))


@draws(0.5)
def unpool(d: Draft) -> None:
    x = d.pick(COMMON, (4,), lambda v: min(v.shape[2:]) >= 2 and min(v.shape) > 0)
    pooled = d.add("MaxPool", [x], outputs=2, kernel_shape=[2, 2], strides=[2, 2]) if x else None
    if pooled:
        d.add("MaxUnpool", pooled, kernel_shape=[2, 2], strides=[2, 2])


@draws(0.7)
def im2col(d: Draft) -> None:
    """Col2Im, the sum of overlapping blocks."""
    if d.opset < 18:
        return
    spatial, block = (d.number(3, 7), d.number(3, 7)), (d.number(1, 3), d.number(1, 3))
    columns = math.prod(n - b + 1 for n, b in zip(spatial, block, strict=True))
    x = d.floats(d.one((1, 2)), d.number(1, 3) * math.prod(block), columns)
    d.add("Col2Im", [x, d.ints(*spatial), d.ints(*block)])


# --- norms


@draws(2)
def norm(d: Draft) -> None:
    op = d.one(
        (
            "BatchNormalization",
            "InstanceNormalization",
            "LRN",
            "GroupNormalization",
            "LpNormalization",
            "MeanVarianceNormalization",
        )
    )
    x = image(d)
    if x is None:
        return
    c = x.shape[1]
    per_channel = [d.floats(c, dtype=x.dtype) for _ in range(2)]
    if op == "BatchNormalization":
        mean, variance = d.floats(c, dtype=x.dtype), d.constant(d.rng.uniform(0.5, 2, c).astype(x.dtype))
        d.add(op, [x, *per_channel, mean, variance], **({"epsilon": 1e-2} if d.chance(0.5) else {}))
    elif op == "InstanceNormalization" and math.prod(x.shape[2:]) > 2:
        d.add(op, [x, *per_channel], epsilon=1e-2)
    elif op == "GroupNormalization" and d.opset >= 18:
        groups = d.one([g for g in range(1, c + 1) if c % g == 0])
        if d.opset < 21:
            per_channel = [d.floats(groups, dtype=x.dtype) for _ in range(2)]
        if x.array.size // x.shape[0] // groups > 2:
            d.add(op, [x, *per_channel], num_groups=groups, epsilon=1e-2)
    elif op == "LRN":
        d.add(op, [x], size=d.one((1, 3, 5)), alpha=0.3, beta=d.one((0.5, 0.75)), bias=1.5)
    elif op == "LpNormalization" and x.dtype in COMMON:
        d.add(op, [x], axis=d.axis(x.rank), p=d.one((1, 2)))
    elif op == "MeanVarianceNormalization" and x.rank == 4 and math.prod(x.shape[2:]) * x.shape[0] > 2:
        d.add(op, [x], axes=d.one(([0, 2, 3], [2, 3], [1, 2, 3])))


@draws(2)
def layer_norm(d: Draft) -> None:
    x = d.pick(COMMON, SOLID, lambda v: min(v.shape) > 0)
    if x is None:
        return
    axis = d.axis(x.rank)
    rest = x.shape[axis:]
    if math.prod(rest) < 3:
        return
    scale = d.floats(*rest, dtype=x.dtype)
    if d.opset >= 23 and d.chance(0.4):
        d.add("RMSNormalization", [x, scale], axis=axis, epsilon=1e-2)
        return
    bias = d.floats(*rest, dtype=x.dtype) if d.chance(0.6) else None
    d.add(
        "LayerNormalization",
        [x, scale, bias],
        axis=axis,
        epsilon=1e-2,
        outputs=(True, True, True) if d.chance(0.15) else 1,
    )


@draws(2)
def softmax(d: Draft) -> None:
    if x := d.pick(FLOATS, SOLID, lambda v: min(v.shape) > 0):
        d.add(
            d.one(("Softmax", "Softmax", "LogSoftmax", "Hardmax")),
            [x],
            **({"axis": d.axis(x.rank)} if d.chance(0.8) else {}),
        )


# --- reductions


@draws(4)
def reduce(d: Draft) -> None:
    """No axes is all of them, or none with ``noop_with_empty_axes``."""
    op = d.one(("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSumExp", "SumSquare", "LogSum"))
    x = d.pick((*FLOATS, I32, I64) if op in ("Sum", "Max", "Min", "Prod", "L1", "SumSquare") else FLOATS, SOLID)
    if x is None:
        return
    if op == "LogSum":
        made = d.add("Exp", [x])
        if made is None:
            return
        x = made[0]
    axes = [a - (x.rank if d.chance(0.3) else 0) for a in d.some(range(x.rank))]
    attributes = {"keepdims": d.number(0, 2)} if d.chance(0.8) else {}
    by_input = d.opset >= 18 or (op == "Sum" and d.opset >= 13)
    if d.chance(0.12):
        if by_input and d.chance(0.5):
            attributes["noop_with_empty_axes"] = 1
        d.add(f"Reduce{op}", [x], **attributes)
    elif by_input:
        d.add(f"Reduce{op}", [x, d.ints(*axes)], **attributes)
    else:
        d.add(f"Reduce{op}", [x], axes=axes, **attributes)


@draws(1)
def arg_reduce(d: Draft) -> None:
    if x := d.pick((*COMMON, I32), SOLID, lambda v: min(v.shape) > 0):
        last = {"select_last_index": d.number(0, 2)} if d.chance(0.5) else {}
        d.add(d.one(("ArgMax", "ArgMin")), [x], axis=d.axis(x.rank), keepdims=d.number(0, 2), **last)


@draws(1)
def cumulative(d: Draft) -> None:
    if x := d.pick((*COMMON, I32, I64), SOLID, lambda v: min(v.shape) > 0):
        d.add(
            "CumSum",
            [x, d.constant(np.array(d.axis(x.rank), np.int64))],
            exclusive=d.number(0, 2),
            reverse=d.number(0, 2),
        )


@draws(1)
def top_k(d: Draft) -> None:
    if x := d.pick((*COMMON, I32, I64), SOLID, lambda v: min(v.shape) > 0):
        axis = d.axis(x.rank)
        k = d.number(1, x.shape[axis] + 1)
        outputs = d.one(((True, True), (True, False), (False, True)))
        d.add("TopK", [x, d.ints(k)], outputs=outputs, axis=axis, largest=d.number(0, 2), sorted=1)


@draws(0.5)
def determinant(d: Draft) -> None:
    """Of matrices whose diagonal outweighs the rest: where all of it cancels, what is left is rounding."""
    if x := d.pick((F32, F64), (2, 3, 4), lambda v: min(v.shape) > 0 and v.shape[-2] <= 7):
        m, n = x.shape[-2:]
        square = d.add("MatMul", [x, d.floats(n, m, scale=1 / n**0.5, dtype=x.dtype)])
        small = square and d.add("Clip", [*square, *(d.data(np.array(side / m, x.dtype)) for side in (-1, 1))])
        if small and (added := d.add("Add", [*small, d.data((1.5 * np.eye(m)).astype(x.dtype))])):
            d.add("Det", added)


# --- recurrences


@draws(1.2)
def recurrent(d: Draft) -> None:
    x = d.pick((F32,), (3,), lambda v: min(v.shape) > 0 and max(v.shape) <= 9)
    if x is None:
        return
    op, hidden = d.one(("RNN", "GRU", "LSTM")), d.number(1, 5)
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    direction = d.one(("forward", "reverse", "bidirectional"))
    ways, (steps, batch, features) = (2 if direction == "bidirectional" else 1), x.shape
    operands: list[Value | None] = [
        x,
        d.floats(ways, gates * hidden, features, scale=0.7),
        d.floats(ways, gates * hidden, hidden, scale=0.7),
        d.floats(ways, 2 * gates * hidden) if d.chance(0.7) else None,
        d.constant(d.rng.integers(1, steps + 1, batch).astype(np.int32)) if d.chance(0.2) else None,
        d.floats(ways, batch, hidden) if d.chance(0.5) else None,
    ]
    attributes = {"linear_before_reset": d.number(0, 2)} if op == "GRU" else {}
    if op == "LSTM":
        operands.append(d.floats(ways, batch, hidden) if d.chance(0.5) else None)
        if d.chance(0.3):
            operands.append(d.floats(ways, 3 * hidden))
    outputs = 3 if op == "LSTM" else 2
    kept = [d.chance(0.6) for _ in range(outputs)]
    kept[d.number(0, outputs)] = True
    while not kept[-1]:
        kept.pop()
    d.add(op, operands, outputs=kept, hidden_size=hidden, direction=direction, **attributes)


# --- resampling


@draws(1.5)
def resize(d: Draft) -> None:
    x = d.pick((F32, F64), (3, 4), lambda v: min(v.shape) > 0 and v.shape[0] * v.shape[1] < 40)
    if x is None:
        return
    mode = d.one(("nearest", "linear", "cubic"))
    coordinates = d.one(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"))
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if mode == "nearest":
        attributes["nearest_mode"] = d.one(("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"))
    if mode == "cubic" and d.chance(0.5):
        attributes["cubic_coeff_a"] = -0.5
    sizes = [*x.shape[:2], *(max(1, d.one((n, 2 * n, 3 * n, n // 2, n + 1))) for n in x.shape[2:])]
    if d.chance(0.5):
        d.add("Resize", [x, None, None, d.ints(*sizes)], **attributes)
    else:
        scales = [1.0, 1.0, *(d.one((1.0, 2.0, 3.0, 0.5, 1.5)) for _ in x.shape[2:])]
        if min(n * s for n, s in zip(x.shape, scales, strict=True)) >= 1:
            d.add("Resize", [x, None, d.constant(np.array(scales, np.float32))], **attributes)


@draws(0.7)
def grid_sample(d: Draft) -> None:
    """Before opset 20 onnxruntime alone knows bicubic, and moves points outside to the border where torch moves taps."""
    x = d.pick((F32, F64), (4,), lambda v: min(v.shape) > 0)
    if x is None:
        return
    mode = d.one(("bilinear", "nearest", "bicubic") if d.opset < 20 else ("linear", "nearest", "cubic"))
    padding = "zeros" if mode == "bicubic" else d.one(("zeros", "border", "reflection"))
    grid = d.floats(x.shape[0], d.number(1, 5), d.number(1, 5), 2, scale=1.2, dtype=x.dtype)
    d.add("GridSample", [x, grid], mode=mode, padding_mode=padding, align_corners=d.number(0, 2))


@draws(0.5)
def roi_align(d: Draft) -> None:
    x = d.pick((F32, F64), (4,), lambda v: min(v.shape) > 0)
    if x is None:
        return
    count = d.number(1, 4)
    corner, size = d.rng.uniform(0, 3, (count, 2)), d.rng.uniform(1, 4, (count, 2))
    rois = d.data(np.concatenate([corner, corner + size], 1).astype(x.dtype))
    batch = d.data(d.rng.integers(0, x.shape[0], count).astype(np.int64))
    d.add(
        "RoiAlign",
        [x, rois, batch],
        mode=d.one(("avg", "max")),
        output_height=d.number(1, 4),
        output_width=d.number(1, 4),
        sampling_ratio=d.number(0, 4),
        spatial_scale=d.one((1.0, 0.5)),
    )


@draws(0.4)
def fourier(d: Draft) -> None:
    """A real signal's transform along its axis; whole or the half that is not redundant."""
    x = d.pick((F32, F64), (3,), lambda v: v.shape[-1] == 1 and min(v.shape) > 0)
    x = x or d.floats(d.number(1, 3), d.one((4, 5, 8)), 1, dtype=d.one((F32, F64)))
    onesided = d.number(0, 2)
    if d.opset >= 20:
        d.add("DFT", [x, None, d.constant(np.array(1, np.int64))], onesided=onesided)
    else:
        d.add("DFT", [x], axis=1, onesided=onesided)
