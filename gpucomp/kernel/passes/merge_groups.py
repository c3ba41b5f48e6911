"""Merges adjacent groups of grouped convolutions with few channels per group, for matrix units.

A group of 4 channels of f16 is 8 bytes of a pixel and a quarter of what a matrix instruction takes. Adjacent groups are
merged up to 16 channels. The filters become block-diagonal: they are zero where a channel belongs to another group than
the output (CUTLASS calls this multiple groups, examples/42_ampere_tensorop_group_conv). Zero times infinity is NaN, so
an infinite or NaN pixel makes outputs of the groups merged with its own NaN too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpucomp.expr.core import Cast, Expr, Load, Var, call, cast, literal, loads, select, substitute, var, walk
from gpucomp.expr.simplify import coefficient, flatten, simplify
from gpucomp.ir.size import Size
from gpucomp.ir.types import BF16, F16, F32
from gpucomp.kernel import Contraction, Kernel, is_kernel_of
from gpucomp.kernel.passes.pack_weights import packable
from gpucomp.kernel.pipeline import Setting
from gpucomp.kernel.rename import canonical
from gpucomp.kernel.step import KernelStep, Step

MERGED = 16  # channels of 2 bytes that one instruction takes
LEAST = 2  # fewest channels of a group: with fewer, most products are by zeros. 8 channels fill an access already


def merge(steps: Sequence[Step], at: Setting) -> list[Step]:
    """Merges the groups of narrow grouped convolutions, for devices with matrix units.

    Takes  a convolution of f16 or bf16 with constant filters and 2 to 7 channels per group, groups contiguous in memory
    Gives  the same convolution with merged groups of at most 16 channels; filters are padded with zeros
    Leaves kernels on devices without matrix units, other types, wider groups, and depthwise convolutions
    """
    features = at.target.features
    if "mma" not in features:
        return list(steps)

    def suits(kernel: Kernel) -> bool:
        return "mma_sm80" in features or all(t.dtype is not BF16 for t in kernel.params)  # sm_75 cannot multiply bf16

    def changed(step: Step) -> Step:
        if not isinstance(step, KernelStep) or not is_kernel_of(step.kernel, Contraction) or not suits(step.kernel):
            return step
        new = merged(step.kernel)
        return step if new is step.kernel else replace(step, kernel=new)

    return [changed(step) for step in steps]


def merged(kernel: Kernel[Contraction]) -> Kernel:
    """``kernel`` with merged groups; ``kernel`` itself if it is not a convolution of narrow groups of f16 or bf16.

    ``sum over c of a[g, c] * b[g, c, o]``  ->  ``sum over j, c of a[G, j, c] * (b[G, i, c, o] where i = j, else 0)``,
    where the group is g = G * f + i for the output and G * f + j for what is read
    """
    count = _mergeable(kernel)
    if count < 2:
        return kernel
    body = kernel.body
    (group,), channel = body.batch, body.k[-1]
    whole, mine, read = var("whole", group.extent // count), var("mine", count), var("read", count)
    of_output: dict[Expr, Expr] = {group: whole * count + mine}
    of_input: dict[Expr, Expr] = {group: whole * count + read}
    a = simplify(substitute(body.a, of_input))
    filters = simplify(substitute(body.b, of_output))
    filters = filters.value if isinstance(filters, Cast) else filters  # keeps the type in memory
    b = cast(select(call("eq", mine, read), filters, literal(0, filters.dtype)), body.b.dtype)
    stores = tuple(s.mapped(lambda e: simplify(substitute(e, of_output))) for s in kernel.stores)
    new = replace(body, batch=(whole,), n=(mine, *body.n), k=(*body.k[:-1], read, channel), a=a, b=b)
    return canonical(replace(kernel, body=new, stores=stores))


def _mergeable(kernel: Kernel[Contraction]) -> int:
    """How many groups are merged into one; 1 if none."""
    body = kernel.body
    if len(body.batch) != 1 or not body.k or not packable(kernel, "b"):
        return 1
    (group,), channel = body.batch, body.k[-1]
    if isinstance(group.extent, Size) or isinstance(channel.extent, Size):
        return 1
    if body.acc.dtype is not F32 or not LEAST <= channel.extent < MERGED // 2:
        return 1
    reads = [*loads(body.a), *loads(body.b)]
    if len({ld.dtype for ld in reads}) != 1 or reads[0].dtype not in (F16, BF16):
        return 1
    steps = [_steps(kernel, body.a, axis) for axis in (group, channel)]
    if steps != [{channel.extent}, {1}]:
        return 1  # groups are not contiguous in memory
    count = 1
    while channel.extent * count * 2 <= MERGED and group.extent % (count * 2) == 0:
        count *= 2
    return count


def _steps(kernel: Kernel, value: Expr, axis: Var) -> set[int | None]:
    """The strides of ``axis`` in memory, over all loads."""
    found = (n for n in walk(value) if isinstance(n, Load))
    return {coefficient(flatten(ld.index, kernel.params[ld.source].shape), axis) for ld in found}
