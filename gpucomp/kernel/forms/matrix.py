"""Recognises operands and results that the Tensor Memory Accelerator can access: matrices, and images (im2col)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpucomp.artifact.tensor_map import CORNERS, MAX_STRIDE, OFFSETS
from gpucomp.expr.core import Call, Const, Expr, Load, Select, Var, call, substitute, var
from gpucomp.expr.simplify import flatten, linear, simplify
from gpucomp.ir.size import Size, at_most, divides, is_one, is_zero, same
from gpucomp.ir.types import BF16, F16, F32, DType
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.forms.convolution import COMPUTED, NO_IMAGE, Pixels, long_axes, pixels_of, uncast
from gpucomp.refusal import Refusal

ROW_ALIGNMENT = 16  # bytes that rows must be aligned to, for tensor maps and asynchronous copies
MAX_STEP = 8  # largest stride of an im2col load, in pixels


@dataclass(frozen=True)
class Matrix:
    """``operand[batch, span, k]`` is at ``offset + batch * batch_stride + span * stride + k``, in elements.

    For a result, the span is the rows and the depth is the columns. All numbers but the depth can be sizes that each run
    decides: what is said of them here is then proved for every run.
    """

    source: int
    dtype: DType
    offset: int
    depth: int
    span: int
    stride: int
    batch: int  # 1 if all batches read the same matrix
    batch_stride: int

    @property
    def has_batch(self) -> bool:
        """Whether some run has several matrices."""
        return not at_most(self.batch, 1)


@dataclass(frozen=True)
class SideBySide:
    """Two operands side by side along the depth: ``near`` up to ``depth`` elements, then ``far``, which begins anew."""

    near: Matrix | Pixels
    far: Matrix | Pixels
    depth: int

    @property
    def dtype(self) -> DType:
        return self.near.dtype


Form = Matrix | Pixels
DEPTH_BYTES = 128  # of a tile, the span of the swizzle


def matrix_of(kernel: Kernel[Contraction], operand: str) -> Matrix | Refusal:
    """The operand (``a`` or ``b``) as a matrix, or why it is not one."""
    body = kernel.body
    value, span = (body.a, body.m) if operand == "a" else (body.b, body.n)
    return loaded_matrix(kernel, value, (body.batch, span, body.k), operand)


def loaded_matrix(kernel: Kernel, value: Expr, axes: tuple[Sequence[Var], ...], name: str) -> Matrix | Refusal:
    """The operand ``value`` over ``axes`` of the batch, the span and the depth as a matrix, or why it is not one."""
    load = uncast(value)
    if not isinstance(load, Load):
        return Refusal(f"operand {name} is computed while it is loaded")
    return _matrix(kernel, load.source, load.index, axes, name, "in depth")


STORED = (F16, BF16, F32)


def result_matrix(kernel: Kernel[Contraction]) -> Matrix | Refusal:
    """The result as a matrix that can be stored, or why it is not one."""
    body = kernel.body
    if len(kernel.stores) != 1:
        return Refusal(f"there are {len(kernel.stores)} results")
    (store,) = kernel.stores
    if (dtype := kernel.params[store.target].dtype) not in STORED:
        return Refusal(f"the result is {dtype}, not {', '.join(map(str, STORED))}")
    return _matrix(kernel, store.target, store.index, (body.batch, body.m, body.n), "the result", "in its columns")


def _matrix(
    kernel: Kernel, parameter: int, at: tuple[Expr, ...], axes: tuple[Sequence[Var], ...], name: str, along: str
) -> Matrix | Refusal:
    """``params[parameter][at]`` as a matrix. ``axes`` are those of the batch, the span and the depth."""
    operand = kernel.params[parameter]
    constant, terms = linear(flatten(at, operand.shape))
    groups = [_joined(group, terms) for group in axes]
    mine = {v for group in axes for v in group}
    if any(group is None for group in groups) or any(t not in mine for t in terms):
        return Refusal(f"{name} is not a matrix in memory")
    (batch, batch_stride), (span, stride), (depth, step) = (g or (1, 0) for g in groups)  # none is None here
    if isinstance(depth, Size):
        return Refusal(f"each run decides how long rows of {name} are")
    if depth > 1 and not is_one(step):
        return Refusal(f"{name} is not contiguous {along}")
    size, rounded = operand.dtype.nbytes, -(-depth * operand.dtype.nbytes // ROW_ALIGNMENT) * ROW_ALIGNMENT
    stride = rounded // size if at_most(span, 1) else stride
    batch_stride = 0 if at_most(batch, 1) else batch_stride
    if not at_most(1, stride) or not at_most(0, batch_stride):
        return Refusal(f"{name} has a stride that is not positive")
    if not at_most(depth, stride):  # for example, overlapping windows: drivers may reject such tensor maps
        return Refusal(f"rows of {name} overlap")
    if not all(divides(ROW_ALIGNMENT, n * size) for n in (constant, stride, batch_stride)):
        often = " in every run" if any(isinstance(n, Size) for n in (constant, stride, batch_stride)) else ""
        return Refusal(f"rows of {name} do not start at multiples of {ROW_ALIGNMENT} bytes{often}")
    if not all(at_most(n * size, MAX_STRIDE) for n in (stride, batch_stride)):
        return Refusal(f"rows of {name} may be too far apart")
    batch = 1 if is_zero(batch_stride) else batch
    return Matrix(parameter, operand.dtype, constant, depth, span, stride, batch, batch_stride)


def loadable_pixels(kernel: Kernel[Contraction]) -> Pixels | Refusal:
    """``a`` as pixels that im2col loads can read, or why they cannot."""
    found = pixels_of(kernel)
    if isinstance(found, Refusal):
        return found
    channels = found.image[3]
    if channels * found.dtype.nbytes % ROW_ALIGNMENT:
        return Refusal(f"{channels} channels of {found.dtype} are not a multiple of {ROW_ALIGNMENT} bytes")
    if any(not 1 <= s <= MAX_STEP for s in found.steps) or min(found.dilations) < 1:
        return Refusal(f"steps of {found.steps} pixels, one load supports 1 to {MAX_STEP}")
    if any((t - 1) * d not in OFFSETS for t, d in zip(found.window, found.dilations, strict=True)):
        return Refusal(f"a window of {found.window} taps with dilations {found.dilations} is too large for one load")
    corners = (*found.first, *last_pixel(found))
    if not all(at_most(CORNERS[0], corner) and at_most(corner, CORNERS[-1]) for corner in corners):
        return Refusal(f"the first or last pixel that is read is more than {CORNERS[-1]} pixels from the image's edge")
    if not at_most(math.prod(found.image[1:]) * found.dtype.nbytes, MAX_STRIDE):
        return Refusal("images may be too far apart")
    return found


def form_of_a(kernel: Kernel[Contraction]) -> Form | SideBySide | Refusal:
    """``a`` as a matrix, as pixels, or as two of these side by side, or why it is none of them."""
    parts = _parts_of_a(kernel)
    if parts is None:
        return _form_of_a(kernel)
    near, far = parts
    return _side_by_side(_form_of_a(near), _form_of_a(far), near.body.k[0].extent)


def _parts_of_a(kernel: Kernel[Contraction]) -> tuple[Kernel[Contraction], Kernel[Contraction]] | None:
    """Kernels with the two parts of an ``a`` that changes at a number along the depth; ``None`` for any other."""
    body, value = kernel.body, uncast(kernel.body.a)
    if not isinstance(value, Select) or len(body.k) != 1 or not isinstance(value.condition, Call):
        return None
    (k,), condition = body.k, value.condition
    if condition.fn != "lt" or condition.args[0] is not k or not isinstance(condition.args[1], Const):
        return None
    depth = int(condition.args[1].value)
    near, far = var(f"{k.name}_near", depth), var(f"{k.name}_far", k.extent - depth)
    rest = simplify(substitute(value.otherwise, {k: call("add", far, depth)}))
    first = replace(body, k=(near,), a=substitute(value.then, {k: near}))
    return replace(kernel, body=first), replace(kernel, body=replace(body, k=(far,), a=rest))


def _side_by_side(near: Form | Refusal, far: Form | Refusal, depth: int) -> SideBySide | Refusal:
    for part in (near, far):
        if isinstance(part, Refusal):
            return part
        if isinstance(part, Pixels) and part.taps > 1:
            return Refusal("a part of the depth of operand a has several taps")
        if isinstance(part, Matrix) and part.has_batch:
            return Refusal("a part of the depth of operand a has a batch")
    assert not isinstance(near, Refusal)
    assert not isinstance(far, Refusal)
    if near.dtype is not far.dtype:
        return Refusal(f"the parts of operand a are {near.dtype} and {far.dtype}")
    if depth * near.dtype.nbytes % DEPTH_BYTES:
        return Refusal(f"operand a changes after {depth} {near.dtype}, not a multiple of {DEPTH_BYTES} bytes")
    return SideBySide(near, far, depth)


def _form_of_a(kernel: Kernel[Contraction]) -> Form | Refusal:
    body = kernel.body
    matrix = matrix_of(kernel, "a")
    if isinstance(matrix, Matrix):
        return matrix
    pixels = loadable_pixels(kernel)
    if isinstance(pixels, Pixels) or not pixels.reason.startswith((COMPUTED, NO_IMAGE)):
        return pixels
    return pixels if len(long_axes(body.k)) > 1 else matrix


def last_pixel(form: Pixels) -> tuple[int, int]:
    """The last pixel that the first tap reads, relative to the last pixel of the image."""
    height, width = (
        first + (out - 1) * step - (extent - 1)
        for first, out, step, extent in zip(form.first, form.out, form.steps, form.image[1:3], strict=True)
    )
    return height, width


def _joined(axes: Sequence[Var], terms: dict[Expr, int]) -> tuple[int, int] | None:
    """The axes merged into one (extent, stride); ``None`` if their strides do not allow that."""
    extent, stride = 1, 0
    for axis in reversed(long_axes(axes)):
        step = terms.get(axis, 0)
        first = at_most(extent, 1)
        if not first and not same(step, stride * extent):
            return None
        stride = step if first else stride
        extent *= axis.extent
    return extent, stride
