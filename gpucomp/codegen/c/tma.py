"""What the tensor memory accelerator can load and store: a contraction's operand as a matrix or as the pixels of a
convolution, its result as a matrix.

An operand has to be a plain load, contiguous in depth, with every other stride a multiple of 16 bytes and no two rows
that overlap: the accelerator neither computes nor reads unaligned rows; a result the same along its columns. What it
cannot move is refused with the reason.
"""

from __future__ import annotations

from gpucomp.artifact.tensor_map import TensorMap
from gpucomp.kernel.forms.matrix import ROW_ALIGNMENT, Form, Matrix, last_pixel


def map_of_a(form: Form, dtype: str, rows: int, depth: int) -> TensorMap:
    """``rows`` rows, ``depth`` elements deep: 128 bytes, swizzled."""
    if isinstance(form, Matrix):
        return _map_of_matrix(form, dtype, rows, depth)
    n, h, w, c = form.image
    size = form.dtype.nbytes
    return TensorMap(
        form.source,
        dtype,
        (c, w, h, n),
        (c * size, w * c * size, h * w * c * size),
        element_strides=(1, form.steps[1], form.steps[0], 1),
        swizzle=128,
        channels=depth,
        pixels=rows,
        lower=form.first[::-1],
        upper=last_pixel(form)[::-1],
    )


def map_of_b(form: Matrix, dtype: str, rows: int, depth: int, taps: int) -> TensorMap:
    """As ``map_of_a``; with ``taps``, depth within a tap is an axis of its own, and ends where the tap's channels do."""
    if taps == 1:
        return _map_of_matrix(form, dtype, rows, depth)
    size, channels = form.dtype.nbytes, form.depth // taps
    return TensorMap(
        form.source,
        dtype,
        (channels, taps, form.span),
        (channels * size, form.stride * size),
        (depth, 1, rows),
        swizzle=128,
        offset=form.offset * size,
    )


def map_of_result(form: Matrix, rows: int, columns: int) -> TensorMap:
    """Pieces of ``rows`` rows and ``columns`` columns, swizzled by the length of their rows."""
    nbytes = columns * form.dtype.nbytes
    return _map_of_matrix(form, form.dtype.name, rows, columns, swizzle=nbytes if nbytes > ROW_ALIGNMENT else 0)


def _map_of_matrix(form: Matrix, dtype: str, rows: int, depth: int, swizzle: int = 128) -> TensorMap:
    size, has_batch = form.dtype.nbytes, form.batch > 1
    return TensorMap(
        form.source,
        dtype,
        (form.depth, form.span, form.batch)[: 2 + has_batch],
        (form.stride * size, form.batch_stride * size)[: 1 + has_batch],
        (depth, rows, 1)[: 2 + has_batch],
        swizzle=swizzle,
        offset=form.offset * size,
    )


# ---- reading expressions ----
