"""Draws what is rare in models: operators of late opsets, of signals, of data-dependent size on numbers that are known."""

from __future__ import annotations

import numpy as np

from tests.fuzz.draft import BOOL, F16, F32, F64, I32, I64, Draft, onnx_type
from tests.fuzz.kinds import draws
from tests.fuzz.movement import SOLID

# translated and not drawn, with the reason
NOT_DRAWN = (
    {
        "Multinomial": "random: no answer",
        "RandomNormal": "random: no answer",
        "RandomNormalLike": "random: no answer",
        "RandomUniform": "random: no answer",
        "RandomUniformLike": "random: no answer",
        "Scatter": "gone since opset 11",
        "Upsample": "gone since opset 10",
        "SequenceEmpty": "what a sequence is drawn from are tensors",
        "ImageDecoder": "onnxruntime has none",
        "MaxRoiPool": "the evaluator has none",
    }
    | dict.fromkeys(
        ("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer"),
        "what is drawn are numbers",
    )
    | dict.fromkeys(
        ("Affine", "ConstantFill", "Crop", "ImageScaler", "ParametricSoftplus", "Scale", "ScaledTanh"),
        "of no standard opset",
    )
)


@draws(0.5)
def of_known_numbers(d: Draft) -> None:
    """NonZero and Unique: what they give has a fixed size only where their operand is known."""
    shape = d.one(((), (5,), (3, 4), (2, 3, 2)))
    if d.chance(0.5):
        numbers = d.rng.integers(-1, 2, shape).astype(d.one((F32, I64, I32, BOOL)))
        d.add("NonZero", [d.constant(numbers)])
        return
    numbers = d.rng.integers(0, 4, shape or (6,)).astype(d.one((F32, I64)))
    axis = {"axis": d.axis(numbers.ndim)} if d.chance(0.4) else {}
    outputs = d.one(((True,), (True, True), (True, False, True), (True, True, True, True)))
    d.add("Unique", [d.constant(numbers)], outputs=outputs, sorted=1, **axis)


@draws(0.5)
def of_late_opsets(d: Draft) -> None:
    op = d.one(("Swish", "CumProd", "BitCast", "TensorScatter"))
    x = d.pick((F32, F64, F16), SOLID, lambda v: min(v.shape) > 0)
    if x is None or d.opset < 24:
        return
    if op == "Swish":
        d.add(op, [x], **({"alpha": d.one((0.5, 1.75))} if d.chance(0.5) else {}))
    elif op == "CumProd":
        axis = d.constant(np.array(d.axis(x.rank), np.int64))
        d.add(op, [x, axis], exclusive=d.number(0, 2), reverse=d.number(0, 2))
    elif op == "BitCast":
        whole = d.pick((I32, I64))
        if whole:
            d.add(op, [whole], to=onnx_type(np.dtype(f"uint{8 * whole.dtype.itemsize}")))
    elif x.rank >= 3:
        axis = d.number(1, x.rank - 1)
        update = list(x.shape)
        update[axis] = d.number(1, x.shape[axis] + 1)
        starts = d.rng.integers(0, x.shape[axis] - update[axis] + 1, x.shape[0])
        d.add(op, [x, d.floats(*update, dtype=x.dtype), d.data(starts.astype(np.int64))], axis=axis, mode="linear")


@draws(0.5)
def deformable(d: Draft) -> None:
    x = d.pick((F32,), (4,), lambda v: min(v.shape) > 0 and min(v.shape[2:]) >= 2 and v.array.size < 600)
    if x is None or d.opset < 19:
        return
    n, c, h, w = x.shape
    out, kernel, pad = d.number(1, 4), (2, d.number(1, 3)), d.number(0, 2)
    rows, columns = h + 2 * pad - kernel[0] + 1, w + 2 * pad - kernel[1] + 1
    taps = kernel[0] * kernel[1]
    weight = d.floats(out, c, *kernel, scale=1 / c**0.5)
    offset = d.floats(n, 2 * taps, rows, columns, scale=0.8)
    bias = d.floats(out) if d.chance(0.5) else None
    mask = d.floats(n, taps, rows, columns) if d.chance(0.5) else None
    d.add("DeformConv", [x, weight, offset, bias, mask], kernel_shape=kernel, pads=[pad] * 4)


@draws(0.5)
def signal(d: Draft) -> None:
    """Short transforms by frames, and the matrix that spreads frequencies over mel bands."""
    if d.opset < 17:
        return
    if d.chance(0.3):
        d.add(
            "MelWeightMatrix",
            [d.constant(np.array(v, np.int64)) for v in (d.number(3, 9), 16, 8000)]
            + [d.constant(np.array(v, np.float32)) for v in (d.one((0, 20)), 3800)],
            output_datatype=onnx_type(d.one((F32, F64))),
        )
        return
    frame, dtype = d.one((4, 6, 8)), d.one((F32, F64))
    wave = d.floats(d.number(1, 3), d.number(frame, 20), 1, dtype=dtype)
    window = d.floats(frame, dtype=dtype) if d.chance(0.6) else None
    step = d.constant(np.array(d.number(1, 4), np.int64))
    length = None if window else d.constant(np.array(frame, np.int64))
    d.add("STFT", [wave, step, window, length], onesided=d.number(0, 2))


@draws(0.5)
def affine_grid(d: Draft) -> None:
    """Axes of two pixels or more: where corners are aligned, the place of one pixel alone is anybody's guess."""
    if d.opset < 20:
        return
    batch, spatial = d.number(1, 3), [d.number(2, 6) for _ in range(d.one((2, 2, 3)))]
    theta = d.floats(batch, len(spatial), len(spatial) + 1, dtype=d.one((F32, F64)))
    d.add("AffineGrid", [theta, d.ints(batch, d.number(1, 4), *spatial)], align_corners=d.number(0, 2))
