"""Recognises the parts of a kernel that computes a depthwise convolution and the pointwise one after it.

On a GPU ``gpucomp.kernel.passes.fuse_separable`` decides which pairs become one kernel, by
``gpucomp.schedule.expected.Expected.faster``. On a CPU ``gpucomp.codegen.llvm.depth_first.fuse`` decides.
"""

from __future__ import annotations

from gpucomp.expr.core import Expr, literal, loads, reduces, substitute
from gpucomp.ir.size import is_zero
from gpucomp.ir.types import TensorType
from gpucomp.kernel import Kernel, Loops, Separable, Store
from gpucomp.kernel.forms.copyable import stored
from gpucomp.kernel.forms.sliding import Sliding, depthwise_of
from gpucomp.kernel.passes.pack_weights import packable
from gpucomp.refusal import Refusal


def depthwise_kernel(kernel: Kernel[Separable], value: Expr) -> Kernel[Loops]:
    """A kernel that computes ``value``, a part of ``a``. Its result, [pixels, channels], is the last parameter."""
    body = kernel.body
    domain = (*body.m, *body.k)
    result = TensorType(value.dtype, tuple(v.extent for v in domain))
    store = Store(kernel.inputs, domain, value)
    params = (*kernel.params[: kernel.inputs], result)
    return Kernel("loops", params, 1, Loops(domain), (store,), kernel.label, kernel.constants)


def separable_of(kernel: Kernel[Separable]) -> tuple[Kernel[Loops], Sliding] | Refusal:
    """The depthwise convolution in ``a``, in the type that its result would be stored in; or why there is none."""
    body = kernel.body
    if any(is_zero(v.extent) for v in (*body.m, *body.n, *body.k)):
        return Refusal("there is nothing to multiply")
    if not packable(kernel, "b"):
        return Refusal("its filters are not constants, so they cannot be packed when the model is compiled")
    part = depthwise_kernel(kernel, stored(body.a))
    found = depthwise_of(part)
    if isinstance(found, Refusal):
        return found
    value = part.stores[0].value
    beside = substitute(value, {node: literal(0, node.dtype) for node in reduces(value)})
    if any(e.free & set(body.m) for ld in loads(beside) for e in ld.index):
        return Refusal("its epilogue reads pixels, and a tile may extend past the image")
    if len(found.lead) > 1 or [*found.lead, *(s.out for s in (found.y, found.x) if s.out)] != list(body.m):
        return Refusal("pixels are not read row by row, image by image")
    return part, found
