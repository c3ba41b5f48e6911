"""Translators of ai.onnx.ml operators: arithmetic on tensors, and ZipMap. Operators that read maps are not supported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpucomp import ops
from gpucomp.errors import UnsupportedError
from gpucomp.frontend.onnx.compose import axis_of, cast, concat, iota, like, reshape, scalar_of, unsqueeze
from gpucomp.frontend.onnx.containers import MapsValue
from gpucomp.frontend.onnx.translate import translates
from gpucomp.ir import Value, constant
from gpucomp.ir.types import F32, F64, I64, STRING

ML = "ai.onnx.ml"


def _row(numbers: Sequence[float], x: Value, what: str) -> Value:
    """One number for all features of ``x``, or one for each, as a constant of its type."""
    if len(numbers) not in (1, x.shape[-1] if x.shape else 1):
        raise ValueError(f"{what}: 1 or {x.shape[-1:]} numbers expected, {len(numbers)} given")
    array = np.asarray(numbers).astype(x.type.dtype.numpy)
    return constant(array.reshape(()) if len(numbers) == 1 else array)


@translates("Scaler", since=1, domain=ML)
def scaler(x: Value, *, offset: tuple[float, ...] = (0.0,), scale: tuple[float, ...] = (1.0,)) -> Value:
    wide = cast(x, F32)
    return ops.Mul(ops.Sub(wide, _row(offset, wide, "offset")), _row(scale, wide, "scale"))


@translates("Imputer", since=1, domain=ML)
def imputer(
    x: Value,
    *,
    imputed_value_floats: tuple[float, ...] | None = None,
    imputed_value_int64s: tuple[int, ...] | None = None,
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Value:
    """``x`` with one value, which can be NaN, replaced."""
    is_float = x.type.dtype.is_float
    values: Sequence[float] | None = imputed_value_floats if is_float else imputed_value_int64s
    if not values:
        raise ValueError(f"imputed values for {x.type.dtype} expected")
    gone = replaced_value_float if is_float else replaced_value_int64
    missing = ops.IsNaN(x) if np.isnan(gone) else ops.Equal(x, like(x, gone))
    return ops.Where(missing, _row(values, x, "imputed values"), x)


@translates("Normalizer", since=1, domain=ML)
def normalizer(x: Value, *, norm: str) -> Value:
    """Rows divided by their largest magnitude (MAX), sum of magnitudes (L1) or root of the sum of squares (L2)."""
    if len(x.shape) not in (1, 2):
        raise ValueError(f"[C] or [N, C] expected, {x.type} given")
    wide = cast(x, F32)
    axes = (len(x.shape) - 1,)
    match norm:
        case "MAX":
            size = ops.ReduceMax(ops.Abs(wide), axes=axes, keepdims=True)
        case "L1":
            size = ops.ReduceSum(ops.Abs(wide), axes=axes, keepdims=True)
        case "L2":
            size = ops.Sqrt(ops.ReduceSum(ops.Mul(wide, wide), axes=axes, keepdims=True))
        case _:
            raise ValueError(f"norm MAX, L1 or L2 expected, got {norm!r}")
    return ops.Where(ops.Equal(size, like(size, 0)), wide, ops.Div(wide, size))


@translates("FeatureVectorizer", since=1, domain=ML)
def feature_vectorizer(*operands: Value, inputdimensions: tuple[int, ...] | None = None) -> Value:
    """Concatenates the rows of the operands."""
    rows = [reshape(x, (1, *x.shape)) if len(x.shape) == 1 else x for x in operands]
    if inputdimensions is not None and [x.shape[-1] for x in rows] != list(inputdimensions):
        raise ValueError(
            f"operands with {list(inputdimensions)} columns expected (inputdimensions), "
            f"{[str(x.type) for x in operands]} given"
        )
    return concat([cast(x, F32) for x in rows], 1)


@translates("LinearRegressor", since=1, domain=ML)
def linear_regressor(
    x: Value,
    *,
    coefficients: tuple[float, ...],
    intercepts: tuple[float, ...] = (),
    post_transform: str = "NONE",
    targets: int = 1,
) -> Value:
    return transformed(_scores(x, coefficients, intercepts, targets), post_transform)


@translates("LinearClassifier", since=1, domain=ML)
def linear_classifier(
    x: Value,
    *,
    coefficients: tuple[float, ...],
    intercepts: tuple[float, ...] = (),
    classlabels_ints: tuple[int, ...] | None = None,
    classlabels_strings: tuple[str, ...] | None = None,
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> tuple[Value, Value]:
    """The label of the greatest score, and the scores. A single score for two classes is that of the second."""
    labels: Any = classlabels_ints or classlabels_strings
    if not labels or len(labels) < 2:
        raise UnsupportedError("a classifier of fewer than two classes")
    rows = reshape(x, (1, *x.shape)) if len(x.shape) == 1 else x
    width = rows.shape[-1]
    single_score = len(coefficients) == width and len(labels) == 2
    scores = _scores(rows, coefficients, intercepts, 1 if single_score else len(labels))
    if single_score:
        scores = concat([ops.Neg(scores), scores], 1)
    scores = transformed(scores, post_transform)
    return named(ops.ArgMax(scores, axis=1, keepdims=False, select_last_index=False), labels), scores


def named(places: Value, labels: Sequence[int] | Sequence[str]) -> Value:
    """The label at each of ``places``."""
    if isinstance(labels[0], int):
        return ops.Gather(constant(np.asarray(labels, np.int64)), cast(places, I64), axis=0)
    keys, values = tuple(range(len(labels))), tuple(labels)
    return ops.LabelEncoder(cast(places, I64), keys=keys, values=values, default="", to=STRING)


def _scores(x: Value, coefficients: Sequence[float], intercepts: Sequence[float], targets: int) -> Value:
    """[N, C] to [N, targets]. The coefficients of each target are contiguous."""
    if len(x.shape) != 2 or targets < 1 or len(coefficients) != targets * x.shape[1]:
        raise ValueError(f"{targets} times {x.shape[-1:]} coefficients expected, {len(coefficients)} given")
    dtype = F64 if x.type.dtype is F64 else F32
    table = np.asarray(coefficients, np.float32).reshape(targets, x.shape[1]).T.astype(dtype.numpy)
    scores = ops.MatMul(cast(x, dtype), constant(np.ascontiguousarray(table)))
    if intercepts:
        if len(intercepts) != targets:
            raise ValueError(f"{targets} intercepts expected, {len(intercepts)} given")
        scores = ops.Add(scores, constant(np.asarray(intercepts, np.float32).astype(dtype.numpy)))
    return cast(scores, F32)


def transformed(scores: Value, how: str) -> Value:
    """Apply ``post_transform`` to scores. SOFTMAX_ZERO is a Softmax of non-zero scores; others stay near zero."""
    match how:
        case "NONE":
            return scores
        case "LOGISTIC":
            return ops.Sigmoid(scores)
        case "SOFTMAX":
            return ops.Softmax(scores, axis=axis_of(-1, len(scores.shape)))
        case "SOFTMAX_ZERO":
            axes = (axis_of(-1, len(scores.shape)),)
            highest = ops.ReduceMax(scores, axes=axes, keepdims=True)
            power = ops.Exp(ops.Sub(scores, highest))
            kept = ops.Where(
                ops.Less(like(scores, 1e-7), ops.Abs(scores)), power, ops.Mul(scores, ops.Exp(ops.Neg(highest)))
            )
            total = ops.ReduceSum(kept, axes=axes, keepdims=True)
            nothing = ops.Equal(total, like(total, 0))
            return ops.Where(nothing, like(scores, 0.5), ops.Div(kept, total))
        case "PROBIT":
            return _probit(scores)
    raise UnsupportedError(f"post_transform {how} is not supported")


def _probit(p: Value) -> Value:
    """sqrt(2) erfinv(2 p - 1) for 0 < p < 1, with S. Winitzki's approximation of erfinv (2008), a = 0.147."""
    z = ops.Sub(ops.Add(p, p), like(p, 1))
    log = ops.Log(ops.Mul(ops.Sub(like(p, 1), z), ops.Add(like(p, 1), z)))
    inner = ops.Add(like(p, 2 / (np.pi * 0.147)), ops.Mul(log, like(p, 0.5)))
    root = ops.Sqrt(ops.Sub(ops.Mul(inner, inner), ops.Mul(log, like(p, 1 / 0.147))))
    size = ops.Mul(ops.Sqrt(ops.Sub(root, inner)), like(p, np.sqrt(2)))
    return ops.Where(ops.Less(z, like(p, 0)), ops.Neg(size), size)


@translates("OneHotEncoder", since=1, domain=ML)
def one_hot_encoder(
    x: Value, *, cats_int64s: tuple[int, ...] = (), cats_strings: tuple[str, ...] = (), zeros: int = 1
) -> Value:
    """A 1 at the index of each element's category. Unknown elements become all zeros; without ``zeros``, the run fails."""
    if bool(cats_int64s) == bool(cats_strings) or bool(cats_strings) != (x.type.dtype is STRING):
        raise ValueError(f"categories of {x.type.dtype} expected, of one kind")
    if not zeros:
        places = ops.CategoryIndex(x if cats_strings else cast(x, I64), categories=cats_strings or cats_int64s)
        return cast(ops.Equal(unsqueeze(places, (len(x.shape),)), iota(len(cats_strings or cats_int64s))), F32)
    last = unsqueeze(x, (len(x.shape),))
    if cats_strings:
        table = np.empty(len(cats_strings), object)
        table[:] = cats_strings
        return cast(ops.StringEqual(last, constant(table)), F32)
    return cast(ops.Equal(cast(last, I64), constant(np.asarray(cats_int64s, np.int64))), F32)


@translates("ZipMap", since=1, domain=ML)
def zip_map(
    x: Value, *, classlabels_int64s: tuple[int, ...] | None = None, classlabels_strings: tuple[str, ...] | None = None
) -> MapsValue:
    """A map from labels to scores for each row of ``x`` [N, K] or [K]. It must be an output: no operator reads maps."""
    labels = classlabels_strings or classlabels_int64s or ()
    if (
        bool(classlabels_strings) == bool(classlabels_int64s)
        or len(x.shape) not in (1, 2)
        or len(labels) != x.shape[-1]
    ):
        raise ValueError(f"one label of one kind for each of {x.shape[-1:]} columns of [N, K] or [K] expected")
    keys = np.empty(len(labels), object if classlabels_strings else np.int64)
    keys[:] = labels
    return MapsValue(constant(keys), x)


@translates("CategoryMapper", since=1, domain=ML)
def category_mapper(
    x: Value,
    *,
    cats_int64s: tuple[int, ...] = (),
    cats_strings: tuple[str, ...] = (),
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Value:
    """Strings to integers or back, by two parallel lists."""
    if x.type.dtype is STRING:
        return ops.LabelEncoder(x, keys=cats_strings, values=cats_int64s, default=default_int64, to=I64)
    return ops.LabelEncoder(x, keys=cats_int64s, values=cats_strings, default=default_string, to=STRING)


@translates("MaxRoiPool")
def max_roi_pool(x: Value, rois: Value, *, pooled_shape: tuple[int, int], spatial_scale: float = 1.0) -> Value:
    """The greatest element of each of ``pooled_shape`` windows of each region (R. Girshick, Fast R-CNN, 2015).

    A region is (image, x1, y1, x2, y2), scaled and rounded. Windows outside the image give 0. Computed as a maximum
    over masked columns, then over masked rows.
    """
    if (
        len(x.shape) != 4
        or len(rois.shape) != 2
        or rois.shape[1] != 5
        or len(pooled_shape) != 2
        or min(pooled_shape) < 1
    ):
        raise ValueError(f"[N, C, H, W], [regions, 5] and two extents expected, {x.type}, {rois.type} given")
    count, dtype = rois.shape[0], x.type.dtype
    numbers = cast(rois, F32)

    def column(k: int) -> Value:
        return ops.Slice(numbers, starts=(0, k), steps=(1, 1), sizes=(count, 1))

    image = cast(reshape(column(0), (count,)), I64)
    scaled = [_half_away(ops.Mul(column(k), scalar_of(F32, spatial_scale))) for k in (1, 2, 3, 4)]
    own = ops.Gather(x, image, axis=0)  # [R, C, H, W]
    lowest = scalar_of(dtype, -np.inf)
    across = _inside(scaled[0], scaled[2], pooled_shape[1], x.shape[3])  # [R, PW, W]
    shape = (count, 1, 1, pooled_shape[1], x.shape[3])
    best = ops.ReduceMax(ops.Where(reshape(across, shape), unsqueeze(own, (3,)), lowest), axes=(4,), keepdims=False)
    down = _inside(scaled[1], scaled[3], pooled_shape[0], x.shape[2])  # [R, PH, H]
    shape = (count, 1, pooled_shape[0], x.shape[2], 1)
    best = ops.ReduceMax(ops.Where(reshape(down, shape), unsqueeze(best, (2,)), lowest), axes=(3,), keepdims=False)
    return ops.Where(ops.Equal(best, lowest), scalar_of(dtype, 0), best)


def _half_away(x: Value) -> Value:
    """``x`` rounded, with halves away from zero."""
    return ops.Mul(ops.Sign(x), ops.Floor(ops.Add(ops.Abs(x), like(x, 0.5))))


def _inside(start: Value, end: Value, windows: int, extent: int) -> Value:
    """[R, windows, extent]: whether a position is in a window. Regions are at least 1 wide."""
    step = ops.Div(ops.Max(ops.Add(ops.Sub(end, start), like(end, 1)), like(end, 1)), like(end, windows))
    number = reshape(iota(windows, F32), (1, windows))
    low = ops.Add(ops.Floor(ops.Mul(number, step)), start)
    high = ops.Add(ops.Ceil(ops.Mul(ops.Add(number, like(number, 1)), step)), start)
    place = reshape(iota(extent, F32), (1, 1, extent))
    return ops.And(ops.LessOrEqual(unsqueeze(low, (2,)), place), ops.Less(place, unsqueeze(high, (2,))))
