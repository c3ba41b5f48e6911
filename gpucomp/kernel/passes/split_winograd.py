"""Computes 3 x 3 convolutions by Winograd's algorithms in three kernels, on devices without local memory.

On other devices, a work-group keeps its blocks in local memory between the transforms (engine
``contraction/winograd``). On a Mali, local memory is plain memory, so there are three kernels. The first transforms
pixels into one matrix for each position of a block. The second multiplies these by the transformed filters. The third
transforms the products into blocks of outputs and computes the convolution's epilogue.

The values between the kernels are planned like any temporary, and the product is a contraction that the usual engine
computes. The pass runs after partition because it needs the epilogue and the layout of the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpucomp.expr.core import (
    Expr,
    Var,
    both,
    call,
    cast,
    hole,
    index,
    literal,
    load,
    loads,
    select,
    substitute,
    var,
)
from gpucomp.expr.simplify import simplify, unflatten
from gpucomp.ir.graph import Value, constant, constant_value
from gpucomp.ir.types import BOOL, F16, F32, TensorType
from gpucomp.kernel import Contraction, Kernel, Store, TileTransform
from gpucomp.kernel.forms.convolution import Pixels, long_axes, winograd_pixels
from gpucomp.kernel.packing import Digit, Packing
from gpucomp.kernel.passes.pack_weights import pack, packed_constant
from gpucomp.kernel.pipeline import Expected, Setting
from gpucomp.kernel.splice import parameters
from gpucomp.kernel.step import BETWEEN, KernelStep, Step, is_step_of
from gpucomp.kernel.winograd_matrices import ALGORITHMS, floats
from gpucomp.refusal import required

OUTPUTS = (2, 4)  # outputs along a side of a block
# types of pixels and filters. The values between the kernels are always f32: in f16 they would have ten times the error
# of a direct sum, and could overflow even if no sum does
STORED = (F32, F16)

MOST_BYTES = 256 << 20  # of transformed pixels and products: boards have little memory


def split(steps: Sequence[Step], at: Setting) -> list[Step]:
    """Computes 3 x 3 convolutions by Winograd's algorithms, in three kernels, where that is expected to be faster.

    Takes  a 3 x 3 convolution with steps of 1, constant filters and strict f32 sums
    Gives  three kernels: the transform of the pixels, a batch of products with the transformed filters, and the
           transform of the products with the convolution's epilogue
    Leaves other convolutions, and those that are expected to be faster as one kernel
    """
    chosen: dict[str, int] = {}
    found: list[Step] = []
    for step in steps:
        if not is_step_of(step, Contraction):
            found.append(step)
            continue
        kernel = step.kernel
        if kernel.digest not in chosen:
            chosen[kernel.digest] = _outputs(kernel, at.expected)
        found += in_three(step, chosen[kernel.digest]) if chosen[kernel.digest] else [step]
    return found


def possible(kernel: Kernel[Contraction]) -> tuple[int, ...]:
    """The block sizes of ``OUTPUTS`` with which ``kernel`` can be computed; empty if it is not such a convolution."""
    return OUTPUTS if winograd_pixels(kernel, STORED) else ()


def _outputs(kernel: Kernel[Contraction], expected: Expected) -> int:
    """The block size that the model predicts to be fastest; 0 if one kernel is faster."""
    parts = {n: kernels(kernel, n) for n in possible(kernel)}
    fitting = {n: p for n, p in parts.items() if sum(k.params[-1].nbytes for k in p[:2]) <= MOST_BYTES}
    best = min(fitting, key=lambda n: expected.total_us(fitting[n]), default=0)
    return best if best and expected.faster(fitting[best], [kernel]) else 0


def kernels(kernel: Kernel[Contraction], outputs: int) -> tuple[Kernel, Kernel, Kernel]:
    """The three kernels that compute ``kernel`` by F(``outputs``, 3). x0 of each is the result of the one before.

    ``possible`` must allow this block size.
    """
    body, form = kernel.body, required(winograd_pixels(kernel, STORED))
    algorithm = ALGORITHMS[f"winograd{outputs}3"]
    side, blocks = algorithm.positions, _blocks(form, outputs)
    _, height, width, channels = form.image
    columns = math.prod(v.extent for v in body.n)
    pixels = TensorType(F32, (side * side, math.prod(blocks), channels))
    products = TensorType(F32, (side * side, math.prod(blocks), columns))

    i, r, o = _axes("i", (*blocks, channels)), _axes("r", (side, side)), _axes("o", (side, side))
    y, x = (i[1 + d] * outputs + r[d] + form.first[d] for d in (0, 1))
    inside = both([y >= 0, y < height, x >= 0, x < width])
    value = select(inside, cast(load(0, (i[0], y, x, i[3]), form.dtype), F32), 0.0)
    acc = hole("acc", F32)
    made = TileTransform(i, (o[0], o[1]), (r[0], r[1]), floats(algorithm.data), value, literal(True, BOOL), acc)
    at = (o[0] * side + o[1], _number(i), i[3])
    first = Kernel(
        "tile_transform",
        (kernel.params[form.source], pixels),
        1,
        made,
        (Store(1, at, acc),),
        label=f"pixels of {kernel.label}, F({outputs}, 3)",
    )

    (b,), (m,), (n,), (k,) = (
        _axes(*axis)
        for axis in (("b", (side * side,)), ("m", pixels.shape[1:2]), ("n", (columns,)), ("k", (channels,)))
    )
    filters = TensorType(F32, (side * side, channels, columns))
    product = Contraction((b,), (m,), (n,), (k,), load(0, (b, m, k), F32), load(1, (b, k, n), F32), acc)
    second = Kernel(
        "contraction",
        (pixels, filters, products),
        1,
        product,
        (Store(2, (b, m, n), acc),),
        label=f"products of {kernel.label}, F({outputs}, 3)",
        constants=frozenset({1}),
    )
    return first, second, _finished(kernel, form, outputs, products)


def _finished(kernel: Kernel[Contraction], form: Pixels, outputs: int, products: TensorType) -> Kernel:
    """The third kernel: transforms the products into outputs, and computes the epilogue of ``kernel``."""
    body = kernel.body
    algorithm = ALGORITHMS[f"winograd{outputs}3"]
    side = algorithm.positions
    i, r, o = (
        _axes("i", (*_blocks(form, outputs), products.shape[2])),
        _axes("r", (side, side)),
        _axes("o", (outputs,) * 2),
    )
    y, x = (i[1 + d] * outputs + o[d] for d in (0, 1))
    extents, walk = (form.image[0], *form.out), (i[0], y, x)
    of_rows = [place for extent, place in zip(extents, walk, strict=True) if extent > 1]
    of_columns = unflatten(i[3], tuple(v.extent for v in body.n))
    at: dict[Expr, Expr] = {v: index(0) for v in body.m} | dict(zip(long_axes(body.m), of_rows, strict=True))
    at |= dict(zip(body.n, of_columns, strict=True))
    kept = _epilogue_inputs(kernel)
    new = parameters(kernel, [products, *kept, *kernel.results])
    stores = new.stores(s.mapped(lambda e: simplify(substitute(e, at))) for s in kernel.stores)
    value = load(0, (r[0] * side + r[1], _number(i), i[3]), F32)
    where = both([call("lt", y, index(form.out[0])), call("lt", x, index(form.out[1]))])
    made = TileTransform(i, (o[0], o[1]), (r[0], r[1]), floats(algorithm.result), value, where, body.acc)
    label = f"{kernel.label}, F({outputs}, 3)"
    return Kernel("tile_transform", new.types, kernel.outputs, made, stores, label, new.constants)


def _epilogue_inputs(kernel: Kernel) -> list[int]:
    """The inputs that the stores read."""
    return sorted({ld.source for s in kernel.stores for e in (*s.index, s.value) for ld in loads(e)})


def in_three(step: KernelStep[Contraction], outputs: int) -> list[Step]:
    """``step`` as three steps by F(``outputs``, 3), with transformed filters."""
    kernel = step.kernel
    form = required(winograd_pixels(kernel, STORED))
    first, second, third = kernels(kernel, outputs)
    positions, channels, columns = second.params[1].shape
    digits = (Digit("k", channels, positions), Digit("k", 1, channels), Digit("span", 1, columns))
    packed = pack(kernel, Packing("b", digits, f"winograd{outputs}3"))
    filters = packed_constant(packed, [constant_value(v) for v in step.inputs]).reshape(second.params[1].shape)
    pixels, products = BETWEEN(type=first.params[-1]), BETWEEN(type=second.params[-1])
    others = tuple(step.inputs[k] for k in _epilogue_inputs(kernel))
    made: tuple[Value, ...] = (pixels, constant(filters))
    return [
        KernelStep(
            f"{step.name}_pixels",
            first,
            (step.inputs[form.source],),
            (pixels,),
            (),
            "a product for each position is next",
        ),
        KernelStep(f"{step.name}_products", second, made, (products,), (), "outputs are sums of several products"),
        KernelStep(step.name, third, (products, *others), step.outputs, step.nodes, step.why, step.prologue),
    ]


def _blocks(form: Pixels, outputs: int) -> tuple[int, int, int]:
    """The number of images, and of blocks along the height and the width of each."""
    return form.image[0], -(-form.out[0] // outputs), -(-form.out[1] // outputs)


def _number(i: Sequence[Var]) -> Expr:
    """The number of a block, counted over all images."""
    return (i[0] * i[1].extent + i[1]) * i[2].extent + i[2]


def _axes(prefix: str, extents: Sequence[int]) -> tuple[Var, ...]:
    return tuple(var(f"{prefix}{d}", n) for d, n in enumerate(extents))
