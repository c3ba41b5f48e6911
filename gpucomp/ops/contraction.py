"""Sums of products: MatMul, Conv, ConvTranspose, Einsum. Contraction families recognise them by their algorithms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpucomp.expr.core import Algorithm, Expr, axes_of, both, call, cast, index, load, reduce, select, var
from gpucomp.ir.size import is_one
from gpucomp.ir.types import TensorType
from gpucomp.ops.registry import accumulator, broadcast, broadcast_index, expect, op


@op("MatMul")
def MatMul(a: TensorType, b: TensorType) -> TensorType:
    """``a @ b`` over the last two axes (rank >= 2 each); leading axes broadcast."""
    if a.rank < 2 or b.rank < 2:
        raise ValueError("operands of rank 2 or more expected")
    if a.dtype is not b.dtype:
        raise ValueError(f"operands of one element type expected, got {a.dtype} and {b.dtype}")
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(f"inner sizes differ: {a.shape[-1]} and {b.shape[-2]}")
    return a.with_shape((*broadcast(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]))


@MatMul.define("reference")
def _matmul_reference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    wide = np.float64 if a.dtype.kind in "fV" else a.dtype
    return np.asarray(np.matmul(a.astype(wide), b.astype(wide))).astype(a.dtype)


@MatMul.define("algorithm")
def _matmul_algorithm(a: TensorType, b: TensorType) -> Algorithm:
    shape = MatMul.type_rule(a, b).shape  # type: ignore[union-attr]
    axes = axes_of(shape)
    *batch, row, col = axes
    k = var("k", a.shape[-1])
    acc = accumulator(a.dtype)
    left = cast(load(0, (*broadcast_index(batch, a.shape[:-2]), row, k), a.dtype), acc)
    right = cast(load(1, (*broadcast_index(batch, b.shape[:-2]), k, col), b.dtype), acc)
    return Algorithm(axes, cast(reduce("sum", (k,), left * right), a.dtype))


def _wrong_lengths(
    x: TensorType, w: TensorType, strides: tuple[int, ...], dilations: tuple[int, ...], pads: tuple[int, ...]
) -> str:
    rank = x.rank - 2
    if rank < 1:
        return f"an operand of rank 3 or more expected, got {x}"
    return (
        f"strides and dilations of {rank} numbers, pads of {2 * rank} and weights of rank {x.rank} expected for {x}, "
        f"got {list(strides)}, {list(dilations)}, {list(pads)} and {w}"
    )


@op("Conv")
def Conv(
    x: TensorType,
    w: TensorType,
    *,
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    group: int = 1,
    layout: str = "NCHW",
) -> TensorType:
    """Convolution without bias over any number of spatial axes; ``pads`` holds all begins, then all ends.

    layout NCHW: x [N, C, *spatial], w [OC, C/group, *kernel]; result [N, OC, *out]
    layout NHWC: x [N, *spatial, C], w [*kernel, C/group, OC]; result [N, *out, OC]
    """
    rank = x.rank - 2
    if rank < 1 or w.rank != x.rank or len(strides) != rank or len(dilations) != rank or len(pads) != 2 * rank:
        raise ValueError(_wrong_lengths(x, w, strides, dilations, pads))
    if x.dtype is not w.dtype:
        raise ValueError(f"operands of one element type expected, got {x.dtype} and {w.dtype}")
    if group < 1 or any(v < 1 for v in (*strides, *dilations)):
        raise ValueError(
            f"group, strides and dilations of at least 1 expected, got {group}, {list(strides)} and {list(dilations)}"
        )
    nchw = layout == "NCHW"
    channels, spatial = (x.shape[1], x.shape[2:]) if nchw else (x.shape[-1], x.shape[1:-1])
    if nchw:
        out_channels, per_group, kernel = w.shape[0], w.shape[1], w.shape[2:]
    else:
        out_channels, per_group, kernel = w.shape[-1], w.shape[-2], w.shape[:-2]
    if per_group * group != channels or out_channels % group:
        raise ValueError(f"{channels} input and {out_channels} output channels do not fit group={group}")
    out = []
    for d in range(rank):
        span = spatial[d] + pads[d] + pads[rank + d] - ((kernel[d] - 1) * dilations[d] + 1)
        if span < 0:
            raise ValueError(
                f"kernel {kernel[d]} with dilation {dilations[d]} is larger than the padded input along spatial axis {d}"
            )
        out.append(span // strides[d] + 1)
    return x.with_shape((x.shape[0], out_channels, *out) if nchw else (x.shape[0], *out, out_channels))


@Conv.define("algorithm")
def _conv_algorithm(
    x: TensorType,
    w: TensorType,
    *,
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    group: int = 1,
    layout: str = "NCHW",
) -> Algorithm:
    result = Conv.type_rule(x, w, strides=strides, pads=pads, dilations=dilations, group=group, layout=layout)
    axes = axes_of(result.shape)  # type: ignore[union-attr]
    nchw = layout == "NCHW"
    image, channel, place = (axes[0], axes[1], axes[2:]) if nchw else (axes[0], axes[-1], axes[1:-1])
    spatial = x.shape[2:] if nchw else x.shape[1:-1]
    kernel = w.shape[2:] if nchw else w.shape[:-2]
    per_group, out_channels = (w.shape[1], w.shape[0]) if nchw else (w.shape[-2], w.shape[-1])
    taps = axes_of(kernel, "r")
    c = var("c", per_group)
    first: Expr = call("floordiv", channel, out_channels // group) * per_group if group > 1 else channel * 0
    at, inside = [], []
    for d, tap in enumerate(taps):
        position = place[d] * strides[d] - pads[d] + tap * dilations[d]
        at.append(position)
        if pads[d] or pads[len(taps) + d]:
            inside += [position >= 0, position < spatial[d]]
    source = (image, first + c, *at) if nchw else (image, *at, first + c)
    acc = accumulator(x.dtype)
    value = select(both(inside), cast(load(0, source, x.dtype), acc), 0)
    weight = cast(load(1, (channel, c, *taps) if nchw else (*taps, c, channel), w.dtype), acc)
    return Algorithm(axes, cast(reduce("sum", (*taps, c), value * weight), x.dtype))


@Conv.define("reference")
def _conv_reference(
    x: np.ndarray,
    w: np.ndarray,
    *,
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    group: int = 1,
    layout: str = "NCHW",
) -> np.ndarray:
    if layout == "NHWC":
        x = np.moveaxis(x, -1, 1)
        w = np.moveaxis(w, (-1, -2), (0, 1))
    rank = x.ndim - 2
    wide = np.float64 if x.dtype.kind in "fV" else np.int64
    widths = [(0, 0), (0, 0), *((pads[d], pads[rank + d]) for d in range(rank))]
    padded = np.pad(x, widths).astype(wide)
    kernel = w.shape[2:]
    span = [(k - 1) * dilations[d] + 1 for d, k in enumerate(kernel)]
    windows = np.lib.stride_tricks.sliding_window_view(padded, span, axis=tuple(range(2, 2 + rank)))
    windows = windows[(slice(None), slice(None), *(slice(None, None, s) for s in strides))]
    windows = windows[(*(slice(None),) * (2 + rank), *(slice(None, None, d) for d in dilations))]
    n, channels, *out = windows.shape[: 2 + rank]
    grouped = windows.reshape(n, group, channels // group, *out, *kernel)
    weights = w.reshape(group, w.shape[0] // group, *w.shape[1:]).astype(wide)
    parts = []
    for g in range(group):
        axes_in, axes_w = [1, *range(2 + rank, 2 + 2 * rank)], [1, *range(2, 2 + rank)]
        parts.append(np.moveaxis(np.tensordot(grouped[:, g], weights[g], (axes_in, axes_w)), -1, 1))
    result = np.concatenate(parts, axis=1).astype(x.dtype)
    return np.moveaxis(result, 1, -1) if layout == "NHWC" else result


@op("ConvTranspose")
def ConvTranspose(
    x: TensorType,
    w: TensorType,
    *,
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    out: tuple[int, ...],
    group: int = 1,
    layout: str = "NCHW",
) -> TensorType:
    """The transpose of convolution, without bias. ``out`` holds the result's spatial extents, so pad ends are ignored.

    layout NCHW: x [N, C, *spatial], w [C, OC/group, *kernel]; result [N, OC, *out]
    layout NHWC: x [N, *spatial, C], w [*kernel, C, OC/group]; result [N, *out, OC]
    """
    rank = x.rank - 2
    if x.dtype is not w.dtype:
        raise ValueError(f"operands of one element type expected, got {x.dtype} and {w.dtype}")
    if rank < 1 or w.rank != x.rank or not len(strides) == len(dilations) == len(out) == rank or len(pads) != 2 * rank:
        raise ValueError(_wrong_lengths(x, w, strides, dilations, pads))
    if group < 1 or any(v < 1 for v in (*strides, *dilations)) or any(v < 0 for v in out):
        raise ValueError(
            f"group, strides and dilations of at least 1 expected, got {group}, {list(strides)} and {list(dilations)}"
        )
    nchw = layout == "NCHW"
    channels = x.shape[1] if nchw else x.shape[-1]
    rows, per_group = w.shape[:2] if nchw else w.shape[-2:]
    if rows != channels or channels % group:
        raise ValueError(f"{channels} input channels and weights {w} do not fit group={group}")
    return x.with_shape((x.shape[0], per_group * group, *out) if nchw else (x.shape[0], *out, per_group * group))


@ConvTranspose.define("algorithm")
def _conv_transpose_algorithm(
    x: TensorType,
    w: TensorType,
    *,
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    out: tuple[int, ...],
    group: int = 1,
    layout: str = "NCHW",
) -> Algorithm:
    """Computed as a gather: sums over the taps whose distance from the result element is a multiple of the stride."""
    result = ConvTranspose.type_rule(
        x, w, strides=strides, pads=pads, dilations=dilations, out=out, group=group, layout=layout
    )
    axes = axes_of(result.shape)  # type: ignore[union-attr]
    nchw = layout == "NCHW"
    image, channel, place = (axes[0], axes[1], axes[2:]) if nchw else (axes[0], axes[-1], axes[1:-1])
    spatial = x.shape[2:] if nchw else x.shape[1:-1]
    kernel = w.shape[2:] if nchw else w.shape[:-2]
    rows, per_group = w.shape[:2] if nchw else w.shape[-2:]
    taps = axes_of(kernel, "r")
    c = var("c", rows // group)
    source: Expr = call("floordiv", channel, per_group) * (rows // group) + c if group > 1 else c
    column: Expr = channel % per_group if group > 1 else channel
    at, inside = [], []
    for d, tap in enumerate(taps):
        distance = place[d] + pads[d] - tap * dilations[d]
        position = call("floordiv", distance, strides[d])
        at.append(position)
        if strides[d] > 1:
            inside.append(call("eq", distance % strides[d], 0))
        inside += [distance >= 0, position < spatial[d]]
    acc = accumulator(x.dtype)
    element = load(0, (image, source, *at) if nchw else (image, *at, source), x.dtype)
    weight = cast(load(1, (source, column, *taps) if nchw else (*taps, source, column), w.dtype), acc)
    value = select(both(inside), cast(element, acc), 0)
    return Algorithm(axes, cast(reduce("sum", (*taps, c), value * weight), x.dtype))


@ConvTranspose.define("reference")
def _conv_transpose_reference(
    x: np.ndarray,
    w: np.ndarray,
    *,
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    out: tuple[int, ...],
    group: int = 1,
    layout: str = "NCHW",
) -> np.ndarray:
    """Computed as a scatter: every input element times the kernel is added to the result, which is cropped at the end."""
    if layout == "NHWC":
        x = np.moveaxis(x, -1, 1)
        w = np.moveaxis(w, (-2, -1), (0, 1))
    rank = x.ndim - 2
    wide = np.float64 if x.dtype.kind in "fV" else np.int64
    n, channels, *spatial = x.shape
    per_group = w.shape[1]
    full = [
        max(pads[d] + out[d], (max(spatial[d], 1) - 1) * strides[d] + (w.shape[2 + d] - 1) * dilations[d] + 1)
        for d in range(rank)
    ]
    total = np.zeros((n, group * per_group, *full), wide)
    images = x.reshape(n, group, channels // group, *spatial).astype(wide)
    weights = w.reshape(group, channels // group, *w.shape[1:]).astype(wide)
    for g in range(group):
        for tap in np.ndindex(*w.shape[2:]):
            part = np.einsum("nc...,cm->nm...", images[:, g], weights[(g, slice(None), slice(None), *tap)])
            where = tuple(
                slice(t * dilations[d], t * dilations[d] + (spatial[d] - 1) * strides[d] + 1, strides[d])
                for d, t in enumerate(tap)
            )
            total[(slice(None), slice(g * per_group, (g + 1) * per_group), *where)] += part
    cut = tuple(slice(pads[d], pads[d] + out[d]) for d in range(rank))
    result = total[(slice(None), slice(None), *cut)].astype(x.dtype)
    return np.moveaxis(result, 1, -1) if layout == "NHWC" else result


def parse_einsum(equation: str, ranks: Sequence[int]) -> tuple[list[list[str]], list[str]]:
    """The labels of each operand and of the result, one per axis. An ellipsis becomes the labels ``0``, ``1`` ...

    Raises ``ValueError`` if the equation is malformed or does not fit operands of ``ranks``.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ValueError(f"{len(terms)} operands expected by {equation!r}, got {len(ranks)}")
    widest = 0
    for term, rank in zip(terms, ranks, strict=True):
        named = term.replace("...", "", 1)
        if not all(c.isascii() and c.isalpha() for c in named):
            raise ValueError(f"letters and one ellipsis expected in {term!r} of {equation!r}")
        if len(named) > rank or ("..." not in term and len(named) != rank):
            raise ValueError(f"an operand of rank {len(named)} expected for {term!r} of {equation!r}, got {rank}")
        widest = max(widest, rank - len(named))

    def labels(term: str, hidden: int) -> list[str]:
        before, _, after = term.partition("...") if "..." in term else (term, "", "")
        return [*before, *(str(d) for d in range(widest - hidden, widest)), *after]

    operands = [labels(t, r - len(t.replace("...", ""))) for t, r in zip(terms, ranks, strict=True)]
    if arrow:
        result = labels(right, widest if "..." in right else 0)
    else:
        letters = [c for c in left if c.isalpha()]
        result = [str(d) for d in range(widest)] + sorted(c for c in set(letters) if letters.count(c) == 1)
    known = {label for operand in operands for label in operand}
    if len(set(result)) != len(result) or not set(result) <= known:
        raise ValueError(f"distinct labels of the operands expected after the arrow of {equation!r}")
    return operands, result


def _einsum_extents(equation: str, types: Sequence[TensorType]) -> tuple[list[list[str]], list[str], dict[str, int]]:
    operands, result = parse_einsum(equation, [t.rank for t in types])
    extents: dict[str, int] = {}
    for labels, t in zip(operands, types, strict=True):
        for label, n in zip(labels, t.shape, strict=True):
            known = extents.setdefault(label, n)
            try:
                extents[label] = broadcast((known,), (n,))[0]
            except ValueError:
                told = f"equal extents for each label of {equation!r} expected, got {known} and {n}"
                raise ValueError(told) from None
    return operands, result, extents


@op("Einsum")
def Einsum(*types: TensorType, equation: str) -> TensorType:
    """The sum of products given by ``equation``, as in ``np.einsum``; without an arrow the result is implied."""
    if any(t.dtype is not types[0].dtype for t in types):
        raise ValueError(f"operands of one element type expected, got {', '.join(str(t.dtype) for t in types)}")
    _, result, extents = _einsum_extents(equation, types)
    expect(types[0], "fiu")
    return types[0].with_shape(tuple(extents[label] for label in result))


@Einsum.define("algorithm")
def _einsum_algorithm(*types: TensorType, equation: str) -> Algorithm:
    operands, result, extents = _einsum_extents(equation, types)
    axes = axes_of(tuple(extents[label] for label in result))
    place: dict[str, Expr] = dict(zip(result, axes, strict=True))
    summed = [var(f"r{k}", extents[label]) for k, label in enumerate(n for n in extents if n not in place)]
    place.update(zip((n for n in extents if n not in result), summed, strict=True))
    acc = accumulator(types[0].dtype)
    body: Expr | None = None
    for k, (labels, t) in enumerate(zip(operands, types, strict=True)):
        at = [index(0) if is_one(n) else place[label] for label, n in zip(labels, t.shape, strict=True)]
        element = cast(load(k, at, t.dtype), acc)
        body = element if body is None else body * element
    assert body is not None
    return Algorithm(axes, cast(reduce("sum", summed, body), types[0].dtype))


@Einsum.define("reference")
def _einsum_reference(*arrays: np.ndarray, equation: str) -> np.ndarray:
    wide = np.float64 if arrays[0].dtype.kind in "fV" else arrays[0].dtype
    return np.asarray(np.einsum(equation.replace(" ", ""), *(a.astype(wide) for a in arrays))).astype(arrays[0].dtype)
