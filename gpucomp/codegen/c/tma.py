"""What the Tensor Memory Accelerator loads and stores for a contraction.

An operand is loaded as a matrix or as the pixels of a convolution; a result is stored as a matrix. An operand has to be
a plain load, contiguous along the depth. Its other strides must be multiples of 16 bytes and its rows must not overlap,
because the accelerator does not compute and does not read unaligned rows. The same holds for a result along its
columns.
"""

from __future__ import annotations

from gpucomp.artifact.tensor_map import TensorMap
from gpucomp.kernel.forms.matrix import ROW_ALIGNMENT, Form, Matrix, last_pixel


def map_of_a(form: Form, dtype: str, rows: int, depth: int) -> TensorMap:
    """Boxes of ``rows`` rows and ``depth`` elements along the depth: 128 bytes, swizzled."""
    if isinstance(form, Matrix):
        return map_of_matrix(form, dtype, rows, depth)
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
    """Like ``map_of_a``. With ``taps``, depth within a tap is an axis of its own. It ends with the tap's channels."""
    if taps == 1:
        return map_of_matrix(form, dtype, rows, depth)
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
    """Boxes of ``rows`` rows and ``columns`` columns, swizzled by the length of their rows."""
    nbytes = columns * form.dtype.nbytes
    return map_of_matrix(form, form.dtype.name, rows, columns, swizzle=nbytes if nbytes > ROW_ALIGNMENT else 0)


def map_of_matrix(form: Matrix, dtype: str, rows: int, depth: int, swizzle: int = 128) -> TensorMap:
    """Boxes of ``rows`` rows and ``depth`` elements of them."""
    size, has_batch = form.dtype.nbytes, form.has_batch
    return TensorMap(
        form.source,
        dtype,
        (form.depth, form.span, form.batch)[: 2 + has_batch],
        (form.stride * size, form.batch_stride * size)[: 1 + has_batch],
        (depth, rows, 1)[: 2 + has_batch],
        swizzle=swizzle,
        offset=form.offset * size,
    )
