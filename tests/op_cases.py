"""Operands and attributes for every operator: what its algorithm, and every kernel made of it, has to compute right."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np

from gpucomp import ops
from gpucomp.ir import Graph, input_value
from gpucomp.ir.types import (
    BF16,
    BOOL,
    F4E2M1,
    F8E4M3,
    F8E5M2,
    F8E8M0,
    F16,
    F32,
    F64,
    I2,
    I4,
    I8,
    I16,
    I32,
    I64,
    STRING,
    U2,
    U4,
    U8,
    U16,
    U32,
    U64,
    DType,
    TensorType,
)

FLOATS = (F32, F64, F16, BF16)
INTEGERS = (I8, I16, I32, I64, U8, U16, U32, U64)
SPECIAL = [0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -1.0, 0.5, -2.5, 1.5, 2.5, 100.0, -100.0]


@dataclass(frozen=True)
class Case:
    """``terms``: how many numbers were summed for an element. ``exact``: not even the last bit may differ.

    ``outside``: some index is out of range, which ONNX leaves undefined and gpucomp defines.
    """

    operands: tuple[np.ndarray, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    terms: int = 1
    exact: bool = False
    outside: bool = False

    def __str__(self) -> str:
        kinds = ",".join(f"{a.dtype}{list(a.shape)}".replace(" ", "") for a in self.operands)
        attrs = ",".join(f"{k}={v}".replace(" ", "") for k, v in self.attrs.items())
        return f"{kinds}-{attrs}"


def sample(dtype: DType, *shape: int, low: float = -2.0, high: float = 3.0, seed: int = 0) -> np.ndarray:
    """Numbers between ``low`` and ``high``, the same ones each time; integers cover the range, bools are mixed."""
    rng = np.random.default_rng((seed, *shape))
    if dtype is BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.is_integer:
        lowest = 0 if dtype.kind == "u" else int(low)
        return rng.integers(lowest, max(int(high), lowest + 1), shape, endpoint=True).astype(dtype.numpy)
    return (rng.random(shape) * (high - low) + low).astype(np.float32).astype(dtype.numpy)


def special(dtype: DType) -> np.ndarray:
    return np.array(SPECIAL, np.float32).astype(dtype.numpy)


def pairs(dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    """Every pair of special values, as a column and a row."""
    return special(dtype)[:, None], special(dtype)[None, :]


def unary(*attrs: dict[str, Any], low: float = -4.0, high: float = 5.0, exact: bool = False) -> list[Case]:
    """A float function: each float type, the special values, a scalar and nothing at all."""
    made = []
    for a in attrs or ({},):
        made += [Case((sample(t, 3, 7, low=low, high=high),), a, exact=exact) for t in FLOATS]
        made += [Case((special(t),), a, exact=exact) for t in FLOATS]
        made += [Case((sample(F32, low=low, high=high),), a, exact=exact), Case((sample(F32, 5, 0),), a, exact=exact)]
    return made


def integer_unary(types: tuple[DType, ...], *attrs: dict[str, Any]) -> list[Case]:
    return [Case((sample(t, 5, 3, low=-9, high=11),), a, exact=True) for a in attrs or ({},) for t in types]


def binary(types: tuple[DType, ...] = (*FLOATS, *INTEGERS), *, low: float = -5, high: float = 7) -> list[Case]:
    made = []
    for t in types:
        first, second = sample(t, 2, 3, 5, low=low, high=high), sample(t, 3, 1, low=low, high=high, seed=1)
        made += [Case((first, second)), Case((second, first))]
        if t.is_float:
            made.append(Case(pairs(t)))
    first = types[0]
    return [
        *made,
        Case((sample(first), sample(first, 7, seed=1))),
        Case((sample(first, 0, 3), sample(first, 1, 3, seed=1))),
    ]


def logic() -> list[Case]:
    return [Case((sample(BOOL, 5, 7), sample(BOOL, 7, seed=1))), Case((sample(BOOL, 1), sample(BOOL, 0, seed=1)))]


def extremes(dtype: DType) -> np.ndarray:
    """The ends of an integer type and what is next to them and to zero."""
    info = np.iinfo(dtype.numpy)
    return np.array([info.min, info.min + 1, 0, 1, 2, 5, info.max - 1, info.max], dtype.numpy)


def divisions() -> list[Case]:
    """Integer division and remainder: every sign, zero divisors and the overflowing quotient."""
    made = []
    for t in INTEGERS:
        values = np.concatenate([extremes(t), sample(t, 7, low=-9, high=11)])
        made.append(Case((values[:, None], values[None, :])))
    return made


def reductions(types: tuple[DType, ...], *, low: float = -2.0, high: float = 3.0) -> list[Case]:
    made = []
    for t in types:
        x = sample(t, 3, 5, 7, low=low, high=high)
        made += [
            Case((x,), {"axes": (1,), "keepdims": True}, terms=5),
            Case((x,), {"axes": (0, 2), "keepdims": False}, terms=21),
            Case((x,), {"axes": (0, 1, 2), "keepdims": False}, terms=105),
        ]
    x = sample(types[0], 3, 5, 7, low=low, high=high)
    return [
        *made,
        Case((x,), {"axes": (), "keepdims": True}),
        Case((sample(types[0], 3, 1, 7),), {"axes": (1,), "keepdims": False}),
        Case((sample(types[0], 3, 0, 2),), {"axes": (1,), "keepdims": False}),
        Case((sample(types[0], 3, 0, 2),), {"axes": (0,), "keepdims": True}),
        Case((special(types[0])[:, None],), {"axes": (1,), "keepdims": False}),
        Case((special(types[0])[None, :],), {"axes": (1,), "keepdims": False}),
    ]


def rows(attr: str = "axis") -> list[Case]:
    made = [Case((sample(t, 3, 5, 7),), {attr: a}, terms=35) for t in FLOATS for a in (1, 2)]
    return [
        *made,
        Case((sample(F32, 3, 5, 7),), {attr: 0}, terms=105),
        Case((sample(F32, 11, low=-1000, high=1000),), {attr: 0}, terms=11),
        Case((sample(F32, 4, 1),), {attr: 1}),
        Case((sample(F32, 2, 0, 3),), {attr: 1}),
        Case((sample(F32, 2, 0, 3),), {attr: 0}),
        Case((np.array([[1, np.nan, 2], [3, 4, 5]], np.float32),), {attr: 1}, terms=3),
    ]


def window(kernel, strides, pads, dilations, out, **more) -> dict[str, Any]:
    return {"kernel": kernel, "strides": strides, "pads": pads, "dilations": dilations, "out": out, **more}


WINDOWS = [
    ((2, 3, 7, 5), window((3, 2), (2, 1), (0, 0, 0, 0), (1, 1), (3, 4)), "NCHW"),
    ((2, 3, 7, 5), window((3, 3), (2, 2), (1, 1, 1, 1), (1, 1), (4, 3)), "NCHW"),
    ((2, 3, 7, 5), window((3, 3), (1, 2), (1, 0, 2, 1), (2, 1), (6, 2)), "NCHW"),
    ((1, 2, 6, 5), window((3, 2), (2, 2), (0, 0, 0, 0), (1, 1), (3, 3)), "NCHW"),  # ceil_mode
    ((2, 7, 5, 3), window((3, 3), (2, 2), (1, 1, 1, 1), (1, 1), (4, 3)), "NHWC"),
    ((2, 3, 11), window((4,), (3,), (1, 2), (2,), (3,)), "NCHW"),
    ((1, 2, 3, 5, 4), window((2, 2, 3), (1, 2, 1), (1, 0, 1, 0, 1, 1), (1, 1, 1), (3, 3, 4)), "NCHW"),
    ((1, 1, 1, 1), window((1, 1), (1, 1), (0, 0, 0, 0), (1, 1), (1, 1)), "NCHW"),
    ((0, 3, 4, 4), window((2, 2), (2, 2), (0, 0, 0, 0), (1, 1), (2, 2)), "NCHW"),
]


def pools(types: tuple[DType, ...], *more: dict[str, Any], layouts: bool = True) -> list[Case]:
    made = []
    for extra in more or ({},):
        for shape, attrs, layout in WINDOWS:
            if layout == "NHWC" and not layouts:
                continue
            named = {"layout": layout} if layouts else {}
            made.append(Case((sample(F32, *shape),), {**attrs, **named, **extra}, terms=12))
        shape, attrs, layout = WINDOWS[1]
        made += [Case((sample(t, *shape, low=-50, high=50),), {**attrs, **extra}, terms=9) for t in types]
    return made


def conv(x, w, strides, pads, dilations, *, types=(F32,), terms, **more) -> list[Case]:
    attrs = {"strides": strides, "pads": pads, "dilations": dilations, **more}
    return [Case((sample(t, *x), sample(t, *w, seed=1)), attrs, terms=terms) for t in types]


def resize(x, sizes, scales=None, *, dtype=F32, terms=16, **more) -> Case:
    scales = tuple(scales or (s / n for s, n in zip(sizes, x, strict=True)))
    return Case((sample(dtype, *x, low=-20, high=100),), {"sizes": sizes, "scales": scales, **more}, terms=terms)


def resizes() -> list[Case]:
    made = []
    modes = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")
    for how in modes:
        for nearest in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
            common = {"coordinate_transformation_mode": how, "nearest_mode": nearest}
            made.append(resize((1, 2, 3, 5), (1, 2, 6, 10), **common))
            made.append(resize((1, 2, 7, 5), (1, 2, 3, 1), **common))
        for mode in ("linear", "cubic"):
            common = {"coordinate_transformation_mode": how, "mode": mode}
            made.append(resize((1, 2, 3, 5), (1, 2, 7, 10), **common))
            made.append(resize((1, 2, 7, 5), (1, 2, 3, 1), **common))
            made.append(resize((1, 1, 4, 4), (1, 1, 3, 2), (1.0, 1.0, float(np.float32(0.8)), 0.6), **common))
            made.append(resize((1, 1, 9, 7), (1, 1, 4, 3), antialias=True, terms=64, **common))
        made.append(
            resize((1, 1, 4, 5), (1, 1, 7, 3), mode="cubic", exclude_outside=True, coordinate_transformation_mode=how)
        )
    crop = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 10.0}
    box = (0.0, 0.0, 0.25, -0.5, 1.0, 1.0, 1.25, 0.75)
    for mode in ("nearest", "linear", "cubic"):
        made.append(resize((1, 1, 5, 7), (1, 1, 3, 6), mode=mode, roi=box, **crop))
        made.append(resize((1, 1, 5, 7), (1, 1, 1, 1), mode=mode, roi=box, **crop))
    for dtype in (F64, F16, BF16, I8, U8, I32):
        made += [resize((3, 5), (5, 3), dtype=dtype, mode=mode) for mode in ("nearest", "linear", "cubic")]
    made += [
        resize((2, 3, 5), (4, 5, 7), mode="linear"),
        resize((1, 2, 3, 5), (1, 2, 3, 5), mode="linear"),
        resize((1, 2, 3, 5), (1, 2, 3, 5), mode="cubic"),
        resize((1, 2, 3, 5), (1, 2, 0, 5), (1.0, 1.0, 0.1, 1.0), mode="linear"),
        resize((5,), (11,), (2.25,), mode="linear", coordinate_transformation_mode="asymmetric"),
        resize((4, 4), (13, 13), (3.3, 3.3), mode="nearest"),
    ]
    made.append(Case((sample(BOOL, 3, 2),), {"sizes": (6, 4), "scales": (2.0, 2.0)}))
    return made


def grid_samples() -> list[Case]:
    """Places that the computation to elements does not round: multiples of 1/8 from -1.5 to 1.5, and two far away."""
    made = []
    places = np.random.default_rng(3).integers(-12, 13, (2, 4, 3, 2)) / 8
    places[0, 0, 0], places[1, 3, 2] = (-9.25, 7.5), (9.25, -3.0)
    far = np.where(np.abs(places) > 5, places * 1e6, places)
    for mode in ("nearest", "linear", "cubic"):
        for padding in ("zeros", "border", "reflection"):
            for align in (False, True):
                attrs = {"mode": mode, "padding_mode": padding, "align_corners": align}
                grid = (places if padding == "reflection" else far).astype(np.float32)
                made.append(Case((sample(F32, 2, 3, 5, 7), grid), attrs, terms=16))
                made.append(Case((sample(F32, 1, 1, 1, 4), grid[:1]), attrs, terms=16))
        made.append(Case((sample(F64, 2, 2, 6, 4), places), {"mode": mode}, terms=16))
        made.append(Case((sample(F16, 2, 2, 6, 4), places.astype(np.float16)), {"mode": mode}, terms=16))
    volume = (np.random.default_rng(4).integers(-10, 11, (1, 2, 3, 2, 3)) / 8).astype(np.float32)
    made += [Case((sample(F32, 1, 2, 3, 4, 5), volume), {"mode": m}, terms=64) for m in ("linear", "nearest")]
    made.append(Case((sample(I32, 1, 2, 3, 4, 5), volume), {"mode": "nearest"}))
    made.append(Case((sample(F32, 1, 2, 3), np.zeros((1, 0, 1), np.float32))))
    return made


def roi_aligns() -> list[Case]:
    boxes = np.array([[0, 0, 4, 3], [1, 0.5, 6.5, 4.25], [-3, -2, 2, 9], [2, 2, 2.25, 2.5]], np.float32)
    made = []
    for mode in ("avg", "max"):
        for how in ("half_pixel", "output_half_pixel"):
            attrs = {"output_height": 3, "output_width": 2, "sampling_ratio": 2, "spatial_scale": 0.75}
            attrs |= {"mode": mode, "coordinate_transformation_mode": how}
            made += [
                Case((sample(t, 2, 3, 7, 5), boxes.astype(t.numpy), ints(1, 0, 1, 1)), attrs, terms=16)
                for t in (F32, F64)
            ]
    attrs = {"output_height": 1, "output_width": 4, "sampling_ratio": 1}
    made.append(Case((sample(F16, 1, 2, 5, 4), boxes.astype(np.float16), ints(0, 0, 0, 0)), attrs, terms=4))
    made.append(Case((sample(F32, 1, 2, 5, 4), np.zeros((0, 4), np.float32), np.zeros((0,), np.int64)), attrs))
    return made


def adaptive_roi_aligns() -> list[Case]:
    boxes = np.array([[-9, -2, 40, 13], [1, 0.5, 6.5, 4.25], [2, 2, 2.25, 2.5], [4, 4, 2, 5]], np.float32)
    attrs = {"output_height": 3, "output_width": 2, "spatial_scale": 0.75}
    return [
        Case((sample(t, 2, 3, 7, 5), boxes.astype(t.numpy), ints(1, 0, 1, 1)), attrs | {"mode": mode}, terms=99)
        for mode in ("avg", "max")
        for t in FLOATS
    ]


def deform_convs() -> list[Case]:
    made = []
    for t in FLOATS:
        attrs = {"strides": (1, 2), "pads": (1, 0, 1, 1), "dilations": (1, 2)}
        moves = (sample(F32, 2, 12, 6, 2, low=-12, high=12, seed=2).round() / 4).astype(t.numpy)
        x, w, mask = sample(t, 2, 3, 6, 5), sample(t, 4, 3, 3, 2, seed=1), sample(t, 2, 6, 6, 2, seed=3)
        made.append(Case((x, w, moves, mask), attrs, terms=72))
    attrs = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "group": 2, "offset_group": 4}
    moves, mask = (sample(F32, 1, 32, 3, 2, low=-9, high=9).round() / 2), sample(F32, 1, 16, 3, 2, seed=3)
    made.append(Case((sample(F32, 1, 4, 4, 3), sample(F32, 6, 2, 2, 2, seed=1), moves, mask), attrs, terms=32))
    attrs = {"strides": (2,), "pads": (1, 1), "dilations": (1,)}
    moves, mask = sample(F32, 1, 3, 3, seed=2), sample(F32, 1, 3, 3, seed=3)
    made.append(Case((sample(F32, 1, 2, 5), sample(F32, 3, 2, 3, seed=1), moves, mask), attrs, terms=12))
    return made


def attentions() -> list[Case]:
    made = []
    for t in FLOATS:
        q, k, v = sample(t, 2, 3, 5, 4), sample(t, 2, 3, 7, 4, seed=1), sample(t, 2, 3, 7, 6, seed=2)
        mask, chosen = sample(t, 5, 7, seed=3), sample(BOOL, 2, 1, 5, 7)
        chosen[..., 0] = True  # a row with nothing chosen has no softmax
        made += [
            Case((q, k, v), {"scale": 0.5}, terms=7),
            Case((q, k, v, mask), {"scale": 1.5}, terms=7),
            Case((q, k, v, chosen), {"scale": 0.5, "masked": -np.inf}, terms=7),
        ]
    made.append(Case((sample(F32, 5, 4), sample(F32, 3, 4), sample(F32, 3, 2)), {"scale": 0.5}, terms=3))
    shared = (sample(F32, 2, 3, 5, 4), sample(F32, 2, 1, 7, 4, seed=1), sample(F32, 2, 1, 7, 6, seed=2))
    made.append(Case(shared, {"scale": 0.5, "masked": -np.inf, "causal": 1}, terms=7))
    made.append(Case((sample(F32, 5, 4), sample(F32, 3, 4), sample(F32, 3, 2), sample(BOOL, 5, 3)), terms=3))
    return made


def ints(*values: Any, dtype: Any = np.int64) -> np.ndarray:
    return np.array(values[0] if len(values) == 1 else values, dtype)


def cumulative(low: float, high: float) -> list[Case]:
    cases = [
        Case((sample(t, 3, 7, 2, low=low, high=high),), {"axis": a, "exclusive": e, "reverse": r}, terms=7)
        for t in (*FLOATS, I32)
        for a, e, r in ((0, False, False), (1, True, False), (1, False, True), (2, True, True))
    ]
    return [
        *cases,
        Case((sample(F32, 0, 2),), {"axis": 0}),
        Case((sample(F32, 1, 2),), {"axis": 0, "exclusive": True}),
        Case((np.array([1, np.inf, 2, np.nan, 3], np.float32),), {"axis": 0, "exclusive": True}),
        Case((sample(F32, 67, low=low, high=high),), {"axis": 0}, terms=67),
        Case((sample(F32, 5, 33, low=low, high=high),), {"axis": 1, "reverse": True}, terms=33),
        Case((sample(F32, 13, 37, low=low, high=high),), {"axis": 0}, terms=13),
    ]


def scatters() -> list[Case]:
    made = []
    data, updates = sample(F32, 5, 3), sample(F32, 3, 3, seed=1)
    inside = ints([[4, 0, -1], [1, 2, 4], [1, 0, -5]])
    outside = ints([[4, 0, -1], [1, 7, 4], [1, 0, -9]])
    for how in ("none", "add", "mul", "max", "min"):
        attrs = {"axis": 0, "reduction": how}
        made.append(Case((data, inside, updates), attrs, terms=4))
        made.append(Case((data, outside, updates), attrs, terms=4, outside=True))
        made.append(Case((data.astype(np.int32), inside.astype(np.int32), updates.astype(np.int32)), attrs))
        made.append(Case((sample(F16, 5, 3), inside, sample(F16, 3, 3, seed=1)), attrs, terms=4))
    made.append(Case((sample(BOOL, 5, 3), inside, sample(BOOL, 3, 3, seed=1)), {"axis": 0}))
    made.append(Case((sample(F32, 4, 5, 3), ints([[[2], [0]], [[1], [1]]]), sample(F32, 2, 2, 1)), {"axis": 2}))
    made.append(Case((sample(F32, 4, 3), np.zeros((0, 3), np.int64), sample(F32, 0, 3)), {"axis": 0}))
    return made


def nd_scatters() -> list[Case]:
    made = []
    inside = ints([[[0, 1], [3, -1]], [[0, 1], [2, 2]], [[1, 0], [-1, -1]]])
    outside = ints([[[0, 1], [3, -1]], [[0, 1], [2, 2]], [[5, 0], [-1, -4]]])
    for how in ("none", "add", "mul", "max", "min"):
        attrs = {"reduction": how}
        made.append(Case((sample(F32, 4, 3, 5), inside, sample(F32, 3, 2, 5, seed=1)), attrs, terms=4))
        made.append(Case((sample(F32, 4, 3, 5), outside, sample(F32, 3, 2, 5, seed=1)), attrs, terms=4, outside=True))
        made.append(Case((sample(I32, 4, 3), inside, sample(I32, 3, 2, seed=1)), attrs))
    made.append(Case((sample(F32, 4, 3), ints([[1], [1], [-4]]), sample(F32, 3, 3, seed=1))))
    made.append(Case((sample(F32, 4, 3), ints([2]), sample(F32, 3, seed=1))))
    made.append(Case((sample(F32, 4, 3), np.zeros((2, 0), np.int64), sample(F32, 2, 4, 3, seed=1))))
    made.append(Case((sample(F32, 4, 3), np.zeros((0, 1), np.int64), sample(F32, 0, 3))))
    return made


def casts() -> list[Case]:
    made = []
    numbers = np.array([*SPECIAL, 3e9, -3e9, 2.0**40, 254.7, -7.9, 448.0, 460.0, 1e30, 6e4, -1e6])
    sources = [numbers.astype(np.float32), sample(I8, 7, low=-100, high=100), sample(BOOL, 7), extremes(I64)]
    with np.errstate(over="ignore"):
        sources += [numbers.astype(np.float16), numbers.astype(ml_dtypes.bfloat16), numbers, extremes(U32)]
    for source in sources:
        made += [Case((source,), {"to": to}) for to in (F32, F64, F16, BF16, BOOL, *INTEGERS)]
    small = np.array([-9, -8, -1, 0, 3, 7, 8, 15, 16], np.int8)
    packed = (I4, U4, I2, U2)
    made += [Case((small,), {"to": to}) for to in packed]
    made += [Case((small.astype(t.numpy),), {"to": to}) for t in packed for to in (F32, I8, I32)]
    steps = np.array([0.2, 0.25, 0.26, -0.75, 1.25, 1.75, -2.5, 3.5, 5.0, 5.1, 7.0, -1e30, np.inf, 0.0], np.float32)
    made += [Case((steps,), {"to": F4E2M1}), Case((steps.astype(F4E2M1.numpy),), {"to": F32})]
    powers = np.array([0.0, 1.0, 1.1, 1.5, 1.9, 3.0, 2.0**-127, 1.5 * 2.0**-126, 2.0**127, 3e38, np.inf, np.nan])
    made += [
        Case((powers.astype(np.float32),), {"to": F8E8M0, "saturate": s, "round_mode": r})
        for s in (True, False)
        for r in ("nearest", "up", "down")
    ]
    made.append(Case((powers[6:].astype(F8E8M0.numpy),), {"to": F32}))
    for to in (F8E4M3, F8E5M2):
        made += [Case((numbers.astype(np.float32),), {"to": to, "saturate": s}) for s in (True, False)]
        made.append(Case((special(F32).astype(to.numpy),), {"to": F32}))
    return made


def identical(*cases: Case) -> list[Case]:
    return [replace(c, exact=True) for c in cases]


def pads() -> list[Case]:
    x, reach = sample(F32, 2, 5, 3), (0, 3, 1, 1, 2, 2)
    made = [Case((x,), {"pads": reach, "mode": m}) for m in ("constant", "reflect", "edge", "wrap")]
    made += [Case((x,), {"pads": (1, -2, 9, 0, 3, 4), "mode": m}) for m in ("constant", "reflect", "edge", "wrap")]
    made += [
        Case((x,), {"pads": (0, 0, 0, 0, 0, 0), "mode": "constant", "value": 7.5}),
        Case((x,), {"pads": (1, 0, 0, 0, 0, 2), "mode": "constant", "value": -np.inf}),
        Case((sample(I64, 4),), {"pads": (2, 1), "mode": "constant", "value": -3}),
        Case((sample(BOOL, 4),), {"pads": (2, 1), "mode": "constant", "value": True}),
        Case((sample(F32, 0, 2),), {"pads": (1, 0, 2, 0), "mode": "constant", "value": 1.0}),
        Case((sample(F32, 1),), {"pads": (4, 2), "mode": "reflect"}),
        Case((sample(F32, 3),), {"pads": (-1, -2), "mode": "edge"}),
        Case((sample(F32, 5),), {"pads": (6, -5), "mode": "constant", "value": 2.0}),
    ]
    return made


CASES: dict[str, list[Case]] = {
    "Abs": unary(exact=True) + integer_unary(INTEGERS),
    "Copy": unary(exact=True) + integer_unary((I8, I64, U8)),
    "Extremes": reductions((*FLOATS, *INTEGERS)),
    "Neg": unary(exact=True) + integer_unary((I8, I16, I32, I64)),
    "Sign": unary() + integer_unary(INTEGERS),
    "Floor": unary(exact=True),
    "Ceil": unary(exact=True),
    "Round": unary(exact=True),
    "Sqrt": unary(low=0, high=9),
    "Exp": unary(),
    "Log": unary(low=0.01, high=9),
    "Sin": unary(),
    "Cos": unary(),
    "Tan": unary(low=-1.5, high=1.5),
    "Asin": unary(low=-1, high=1),
    "Acos": unary(low=-1, high=1),
    "Atan": unary(),
    "Sinh": unary(),
    "Cosh": unary(),
    "Tanh": unary(),
    "Asinh": unary(),
    "Acosh": unary(low=1, high=5),
    "Atanh": unary(low=-0.99, high=0.99),
    "Erf": unary(low=-3, high=3),
    "Reciprocal": unary(low=0.1, high=5),
    "Not": [Case((sample(BOOL, 3, 7),)), Case((sample(BOOL, 0),))],
    "IsNaN": unary(exact=True),
    "IsInf": unary(
        {},
        {"detect_negative": False, "detect_positive": True},
        {"detect_negative": True, "detect_positive": False},
        {"detect_negative": False, "detect_positive": False},
        exact=True,
    ),
    "BitwiseNot": integer_unary(INTEGERS),
    "Clip": unary({"low": -1.0, "high": 2.0}, {"low": None, "high": 0.5}, {"low": 3.0, "high": 1.0}, exact=True)
    + unary({"low": 0.25, "high": None}, {"low": None, "high": None}, exact=True)
    + integer_unary(INTEGERS, {"low": 2, "high": 5}),
    "Relu": unary(exact=True) + integer_unary((I8, I32)),
    "LeakyRelu": unary({}, {"alpha": 0.25}),
    "Elu": unary({}, {"alpha": 2.0}),
    "Selu": unary({}, {"alpha": 2.0, "gamma": 3.0}),
    "Celu": unary({}, {"alpha": 2.0}),
    "Sigmoid": unary({}, low=-30, high=30),
    "Swish": unary({}, {"alpha": 1.702}, low=-30, high=30),
    "HardSigmoid": unary({}, {"alpha": 0.5, "beta": 0.25}),
    "HardSwish": unary(),
    "Softplus": unary(low=-30, high=30),
    "Softsign": unary(),
    "Mish": unary(low=-30, high=30),
    "Gelu": unary({}, {"approximate": "tanh"}),
    "ThresholdedRelu": unary({}, {"alpha": 2.0}),
    "Shrink": unary({"lambd": 1.5, "bias": 1.5}, {"lambd": 0.5, "bias": 0.0}),
    "PRelu": binary((*FLOATS, I32)),
    "Add": binary(),
    "Sub": binary(),
    "Mul": binary(),
    "Div": binary(FLOATS) + divisions(),
    "Mod": [Case(c.operands, {"fmod": True}) for c in binary(FLOATS)]
    + [Case(c.operands, {"fmod": f}) for c in divisions() for f in (True, False)],
    "Pow": [
        *(Case((sample(t, 5, 3, low=0.1, high=3), sample(t, 3, low=-3, high=3, seed=1))) for t in FLOATS),
        *(Case(pairs(t)) for t in FLOATS),
        *(Case((sample(t, 7, 5, low=-3, high=5), sample(t, 5, low=-2, high=4, seed=1))) for t in (I32, I64)),
        Case((np.array([0, 1, 2], np.int32), np.array([2, 0, 3], np.int32))),
    ],
    "Max": binary(),
    "Min": binary(),
    "Equal": binary() + logic(),
    "Less": binary(),
    "LessOrEqual": binary(),
    "And": logic(),
    "Or": logic(),
    "Xor": logic(),
    "BitwiseAnd": binary(INTEGERS),
    "BitwiseOr": binary(INTEGERS),
    "BitwiseXor": binary(INTEGERS),
    "BitShift": [
        Case(
            (np.array([1, 2, 0xA5, 255], t.numpy), np.array([[0], [1], [7], [8], [31], [64]], t.numpy)),
            {"direction": d},
        )
        for t in (U8, U16, U32, U64)
        for d in ("LEFT", "RIGHT")
    ],
    "Where": [
        *(
            Case((sample(BOOL, 5, 1), sample(t, 3), sample(t, 2, 5, 3, seed=1)), exact=True)
            for t in (*FLOATS, I64, BOOL)
        ),
        Case((sample(BOOL), special(F32), special(F32)[:, None]), exact=True),
        Case((sample(BOOL, 0), sample(F32, 1), sample(F32)), exact=True),
    ],
    "Cast": casts(),
    "Reshape": identical(
        Case((sample(F32, 3, 5, 7),), {"shape": (7, 15)}),
        Case((sample(F32, 2, 6),), {"shape": (3, 1, 4)}),
        Case((sample(I64, 1),), {"shape": ()}),
        Case((sample(F32, 0, 3),), {"shape": (2, 0)}),
    ),
    "Transpose": identical(
        Case((sample(F32, 3, 5, 7),), {"perm": (1, 2, 0)}),
        Case((sample(F16, 2, 3, 5, 7),), {"perm": (3, 1, 0, 2)}),
        Case((sample(F32),), {"perm": ()}),
        Case((sample(F32, 0, 3),), {"perm": (1, 0)}),
    ),
    "Concat": identical(
        Case((sample(F32, 2, 3), sample(F32, 2, 1, seed=1), sample(F32, 2, 5, seed=2)), {"axis": 1}),
        Case((sample(I8, 3, 2), sample(I8, 0, 2), sample(I8, 1, 2)), {"axis": 0}),
        Case((special(F32),), {"axis": 0}),
    ),
    "Append": identical(
        Case((sample(F32, 2, 7, 3), sample(F32, 2, 2, 3, seed=1)), {"axis": 1, "at": 4}),
        Case((sample(I8, 5, 2), sample(I8, 5, 2, seed=1)), {"axis": 1, "at": 0}),
        Case((sample(F16, 3), sample(F16, 0)), {"axis": 0, "at": 3}),
    ),
    "Slice": identical(
        Case((sample(F32, 5, 7),), {"starts": (1, 6), "steps": (2, -3), "sizes": (2, 3)}),
        Case((sample(I32, 5, 7),), {"starts": (0, 2), "steps": (1, 1), "sizes": (5, 1)}),
        Case((sample(F32, 5),), {"starts": (9,), "steps": (1,), "sizes": (0,)}),
        Case((sample(F32),), {"starts": (), "steps": (), "sizes": ()}),
    ),
    "Pad": identical(*pads()),
    "Expand": identical(
        Case((sample(F32, 3, 1),), {"shape": (2, 3, 5)}),
        Case((sample(I64),), {"shape": (4,)}),
        Case((sample(F32, 1, 2),), {"shape": (0, 2)}),
        Case((special(F32),), {"shape": (len(SPECIAL),)}),
    ),
    "Iota": identical(*(Case((), {"size": size, "dtype": dtype}) for size, dtype in ((13, I64), (200, U8), (0, I32)))),
    "Tile": identical(
        Case((sample(F32, 3, 5),), {"repeats": (2, 3)}),
        Case((sample(F32, 1, 5),), {"repeats": (7, 1)}),
        Case((sample(F32, 3),), {"repeats": (0,)}),
        Case((sample(F32, 0, 2),), {"repeats": (2, 2)}),
    ),
    "Gather": identical(
        Case((sample(F32, 5, 3, 7), ints([[0, -1], [4, 2]])), {"axis": 0}),
        Case((sample(F32, 5, 3, 7), ints([2, -3, 9, -9], dtype=np.int32)), {"axis": 1}, outside=True),
        Case((sample(F32, 5, 3, 7), ints([2, -3, 1, 1], dtype=np.int32)), {"axis": 1}),
        Case((sample(I64, 5, 3), np.array(1)), {"axis": 1}),
        Case((sample(F32, 0, 3), np.zeros((0,), np.int64)), {"axis": 0}),
        Case((sample(F32, 5), np.array([3, 200], np.uint8)), {"axis": 0}, outside=True),
    ),
    "GatherElements": identical(
        Case((sample(F32, 5, 3), ints([[0, -1, 4], [2, 2, 9]])), {"axis": 0}, outside=True),
        Case((sample(F32, 5, 3), ints([[0, -1, 4], [2, 2, 3]])), {"axis": 0}),
        Case((sample(F32, 5, 3, 2), ints([[[0, 1]], [[-1, 2]]])), {"axis": 1}),
        Case((sample(F32, 3), np.zeros((0,), np.int32)), {"axis": 0}),
    ),
    "GatherND": identical(
        Case((sample(F32, 5, 3, 7), ints([[0, -1], [4, 2], [9, -9]])), outside=True),
        Case((sample(F32, 5, 3, 7), ints([[0, -1], [4, 2], [1, -3]]))),
        Case((sample(F32, 5, 3, 7), ints([[[0, 1, 6]], [[4, 2, -1]]]))),
        Case((sample(F32, 2, 3, 7), ints([[[1], [0]], [[-1], [2]]])), {"batch_dims": 1}),
        Case((sample(F32, 4, 3), np.zeros((2, 0), np.int64))),
        Case((sample(I32, 4), np.array([2]))),
        Case((sample(F32, 2, 3, 7), np.arange(6).reshape(2, 3, 1)), {"batch_dims": 2}),
    ),
    "ScatterElements": scatters(),
    "ScatterND": nd_scatters(),
    "ReverseSequence": identical(
        Case((sample(F32, 4, 3, 2), ints(2, 4, 0)), {"batch_axis": 1, "time_axis": 0}),
        Case((sample(I32, 2, 3, 5), ints(1, 3)), {"batch_axis": 0, "time_axis": 1}),
        Case((sample(F32, 2, 0), ints(0, 0)), {"batch_axis": 0, "time_axis": 1}),
    ),
    "ReduceSum": reductions((*FLOATS, I32, I64, U8)),
    "ReduceMean": reductions((*FLOATS, I32, I64)),
    "ReduceProd": reductions((*FLOATS, I32, I64), low=0.5, high=1.5),
    "ReduceMax": reductions((*FLOATS, *INTEGERS, BOOL)),
    "ReduceMin": reductions((*FLOATS, *INTEGERS, BOOL)),
    "ArgMax": [],
    "ArgMin": [],
    "CumSum": cumulative(-2, 2),
    "CumProd": cumulative(0.5, 1.5),
    "TopK": [
        Case((sample(t, 3, 7, 2, low=-4, high=4),), {"k": k, "axis": 1, "largest": largest}, exact=True)
        for t in (*FLOATS, I64, U8)
        for k, largest in ((3, True), (3, False), (7, True))
    ]
    + [
        Case((np.array([2.0, np.nan, 2, -np.inf, np.nan, np.inf], np.float32),), {"k": 6, "axis": 0, "largest": big})
        for big in (True, False)
    ]
    + [Case((sample(F32, 3, 5),), {"k": 0, "axis": 1})],
    "Rank": [
        Case((sample(t, 3, 7, 2, low=-4, high=4),), {"axis": 1, "largest": largest})
        for t in (*FLOATS, I64, U8)
        for largest in (True, False)
    ]
    + [
        Case((np.array([2.0, np.nan, 2, -np.inf, np.nan, np.inf], np.float32),), {"axis": 0, "largest": big})
        for big in (True, False)
    ]
    + [Case((sample(F32, 3, 0),), {"axis": 1}), Case((sample(F32, 1),), {"axis": 0})],
    "Softmax": rows(),
    "LogSoftmax": rows(),
    "LayerNorm": [*rows(), Case((sample(F32, 3, 5),), {"axis": 1, "epsilon": 0.5}, terms=5)],
    "RMSNorm": [*rows(), Case((sample(F32, 3, 5),), {"axis": 1, "epsilon": 0.5}, terms=5)],
    "InverseRMS": [*rows(), Case((sample(F32, 3, 5),), {"axis": 1, "epsilon": 0.5, "times": 0.125}, terms=5)],
    "RowStatistics": [*rows(), Case((sample(F32, 3, 5),), {"axis": 1, "epsilon": 0.5}, terms=5)],
    "MaxPool": pools((*FLOATS, I8, U8)),
    "MaxPoolIndices": [
        Case((np.array([[[1, np.nan, 3, -np.inf, 2]]], np.float32),), window((2,), (1,), (2, 1), (1,), (7,))),
        Case((np.full((1, 1, 3), -np.inf, np.float32),), window((2,), (1,), (0, 0), (1,), (2,))),
        *pools((F64, F16, I8), {"storage_order": 0}, {"storage_order": 1}, layouts=False),
    ],
    "AveragePool": pools(FLOATS, {"count_include_pad": False}, {"count_include_pad": True}),
    "MatMul": [
        *(Case((sample(t, 5, 7), sample(t, 7, 3, seed=1)), terms=7) for t in (*FLOATS, I32, I8, U8)),
        Case((sample(F32, 2, 1, 5, 7), sample(F32, 3, 7, 2, seed=1)), terms=7),
        Case((sample(F32, 5, 0), sample(F32, 0, 3))),
        Case((sample(F32, 1, 1), sample(F32, 1, 1))),
        Case((sample(F32, 0, 4), sample(F32, 4, 3))),
    ],
    "Conv": [
        *conv((2, 4, 7, 5), (6, 4, 3, 2), (2, 1), (1, 0, 1, 1), (1, 1), types=(*FLOATS, I8), terms=24),
        *conv((1, 4, 7, 5), (6, 2, 3, 3), (1, 2), (2, 2, 2, 2), (2, 1), group=2, terms=18),
        *conv((1, 7, 5, 4), (3, 3, 1, 4), (1, 1), (1, 1, 1, 1), (1, 1), group=4, layout="NHWC", terms=9),
        *conv((2, 7, 5, 19), (3, 2, 19, 1), (2, 1), (1, 0, 1, 1), (1, 2), layout="NHWC", terms=114),
        *conv((1, 1, 61, 1), (1, 19, 1, 1), (1, 3), (0, 5, 0, 2), (1, 1), layout="NHWC", terms=19),
        *conv((2, 3, 11), (5, 3, 4), (3,), (1, 2), (2,), terms=12),
        *conv((1, 2, 3, 5, 4), (3, 2, 2, 1, 3), (1, 2, 1), (1, 0, 1, 0, 0, 1), (1, 1, 1), terms=12),
        *conv((1, 1, 1, 1), (1, 1, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1), terms=1),
        *conv((0, 1, 2, 2), (1, 1, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1), terms=1),
    ],
    "ConvTranspose": [
        *conv((2, 3, 4, 5), (3, 2, 3, 2), (2, 1), (1, 0, 1, 0), (1, 1), types=(*FLOATS, I8), out=(7, 6), terms=18),
        *conv((1, 4, 3, 5), (4, 3, 3, 3), (2, 3), (0, 1, 0, 0), (2, 1), out=(9, 15), group=2, terms=18),
        *conv((1, 3, 5, 4), (2, 3, 4, 2), (2, 2), (0, 1, 0, 1), (1, 1), out=(6, 11), layout="NHWC", terms=24),
        *conv((2, 3, 5), (3, 4, 3), (2,), (0, 0), (1,), out=(13,), terms=9),
        *conv((1, 1, 1, 1), (1, 1, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1), out=(1, 1), terms=1),
    ],
    "Einsum": [
        Case((sample(F32, 3, 5), sample(F32, 5, 7, seed=1)), {"equation": "ij, jk -> ik"}, terms=5),
        Case((sample(F32, 2, 3, 5), sample(F32, 2, 5, 7, seed=1)), {"equation": "bij,bjk->bik"}, terms=5),
        Case((sample(F32, 2, 1, 3, 5), sample(F32, 7, 5, 4, seed=1)), {"equation": "...ij,...jk->...ik"}, terms=5),
        Case((sample(F32, 5, 5),), {"equation": "ii->i"}),
        Case((sample(F32, 5, 5),), {"equation": "ii"}, terms=5),
        Case((sample(F32, 3, 5),), {"equation": "ij->ji"}),
        Case((sample(F32, 3, 5, 2),), {"equation": "b...->..."}, terms=3),
        Case((sample(F32, 3), sample(F32, 5, seed=1)), {"equation": "i,j"}),
        Case((sample(F32, 3), sample(F32, 3, seed=1)), {"equation": "i,i"}, terms=3),
        Case(
            (sample(F32, 2, 3), sample(F32, 3, 5, seed=1), sample(F32, 5, seed=2)), {"equation": "ab,bc,c->a"}, terms=15
        ),
        *(
            Case((sample(t, 3, 5), sample(t, 7, 5, seed=1)), {"equation": "ik,jk->ij"}, terms=5)
            for t in (F64, F16, BF16, I32)
        ),
        Case((sample(F32, 3, 0), sample(F32, 0, 2)), {"equation": "ij,jk->ik"}),
    ],
    "Attention": attentions(),
    "DeformConv": deform_convs(),
    "Resize": resizes(),
    "GridSample": grid_samples(),
    "RoiAlign": roi_aligns(),
}

for _name in ("ArgMax", "ArgMin"):
    _x = np.array([[2, 5, 5, 1], [7, 0, 7, 0], [3, 3, 3, 3]], np.float32)
    CASES[_name] = [
        Case((_x.astype(t.numpy),), {"axis": a, "keepdims": k, "select_last_index": last})
        for t in (*FLOATS, I32, U8)
        for a, k, last in ((0, False, False), (1, True, False), (1, False, True))
    ] + [
        Case((np.array([1, np.nan, 3, np.nan], np.float32),), {"axis": 0, "keepdims": False, "select_last_index": s})
        for s in (False, True)
    ]

WORDS = np.array([["a", "β"], ["", "a b"], ["3.5", "-inf"]], object)
LABELS = {"keys": ("a", ""), "values": (7, 3), "default": -1, "to": I64}
GRAMS = {"grams": ((2,), (5, 3)), "places": (1, 0), "weights": (0.5, 2.0), "lengths": (1, 2), "skips": 1}
DRAW = {"shape": (3, 0, 5), "seed": 7, "stream": 0}


def repeated(count: int = 5) -> Case:
    """A running maximum, and each step's sum with it, the last first."""
    x, h = input_value("x", TensorType(F32, (3,))), input_value("h", TensorType(F32, (3,)))
    after = ops.Max(h, x)
    body = Graph((h, x), (after, ops.Add(after, x)))
    attrs = {"body": body, "count": count, "states": 1, "scans": 1, "reverse": (False,), "out_reverse": (True,)}
    return Case((sample(F32, 3), sample(F32, count, 3)), attrs)


HOST_CASES: dict[str, list[Case]] = {  # no algorithm: numpy runs them on the host
    "AdaptiveRoiAlign": adaptive_roi_aligns(),
    "Repeat": [repeated(), repeated(count=0)],
    "StringConcat": [Case((WORDS, WORDS[:, :1])), Case((WORDS[:0], WORDS[0]))],
    "StringEqual": [Case((WORDS, WORDS[::-1])), Case((WORDS, np.array("a", object)))],
    "RegexFullMatch": [Case((WORDS,), {"pattern": "[a-z ]*"}), Case((WORDS[:0],), {"pattern": ""})],
    "NumberToString": [Case((special(t),)) for t in (F32, F64, F16, BF16)]
    + [Case((extremes(I64),)), Case((sample(BOOL, 3),))],
    "StringToNumber": [Case((WORDS[2],), {"to": t}) for t in (F32, F64, F16)]
    + [Case((np.array(["-7"], object),), {"to": I64})],
    "LabelEncoder": [
        Case((WORDS,), LABELS),
        Case((special(F32),), {"keys": (np.nan, 1.0), "values": ("nan", "one"), "default": "", "to": STRING}),
    ],
    "CategoryIndex": [
        Case((WORDS[:1],), {"categories": ("β", "a", "β")}),
        Case((np.zeros((3, 0), np.int64),), {"categories": (5,)}),
    ],
    "TfIdfVectorizer": [
        *(
            Case((sample(I32, *shape),), {"mode": mode, **GRAMS})
            for shape in ((7,), (2, 5), (0, 3))
            for mode in ("TF", "IDF", "TFIDF")
        ),
        Case((WORDS,), {"mode": "TF", **GRAMS, "grams": (("a",), ("", "a b"))}),
    ],
    "NonZero": [
        Case((np.array([[0, 3, 0], [np.nan, 0, -0.0]], np.float32),), {"count": 2}),
        Case((np.zeros((2, 0, 3), np.int8),), {"count": 0}),
        Case((np.array(5, np.int64),), {"count": 1}),
        Case((np.array([True, False, True]),), {"count": 2}),
    ],
    "Unique": [
        *(
            Case((np.array([[2, 1, 2, 1], [0, 3, 0, 3]], np.int32),), {"axis": axis, "sorted": sorted})
            for axis in (None, 0, 1)
            for sorted in (False, True)
        ),
        Case((np.zeros((0,), np.float32),), {"axis": None, "sorted": True}),
    ],
    "NonMaxSuppression": [
        Case(
            (sample(F32, 2, 7, 4), sample(F32, 2, 3, 7)),
            {"limit": limit, "overlap": 0.3, "least": least, "centred": centred},
        )
        for limit, least, centred in ((3, None, False), (1 << 62, 0.1, True), (0, None, False), (-1, 9.0, True))
    ],
    "PairwiseCoupling": [Case((np.abs(sample(F32, 5, k, k)) % 1,)) for k in (2, 3)] + [Case((sample(F32, 0, 3, 3),))],
    "RandomUniform": [Case((), {"low": -1.0, "high": 2.0, "dtype": t, **DRAW}) for t in FLOATS],
    "RandomNormal": [Case((), {"mean": -1.0, "scale": 2.0, "dtype": t, **DRAW}) for t in FLOATS],
}

CASE_LIST = [(name, case) for name, cases in CASES.items() for case in cases]
