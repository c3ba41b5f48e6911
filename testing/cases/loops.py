"""Kernels of tests/kernels_templates/test_loops.py, each with what is special about it."""

from gpucomp import ops
from gpucomp.expr.core import axes_of, call, load
from gpucomp.ir.types import BF16, BOOL, F16, F32, F64, I64, U8, TensorType
from gpucomp.kernel import Store
from gpucomp.kernel.recognise import Composed, recognise
from testing.kernels import elementwise, transposed

BASE = {"tile": 16, "threads": 64}


def batched(batch: int, rows: int, columns: int, dtype=F32):
    """relu of x[b, i, j] + y[b, j, i] + z[j] at [b, j, i]: one array is turned, the others are not."""
    b, j, i = axes = axes_of((batch, columns, rows))
    value = call("max", load(0, (b, i, j), dtype) + load(1, axes, dtype) + load(2, (j,), dtype), 0)
    shapes = ((batch, rows, columns), (batch, columns, rows), (columns,))
    return elementwise([value], [TensorType(dtype, s) for s in shapes], (batch, columns, rows), axes)


def heads(rows: int, count: int, width: int):
    """[row, head, width] to [head, width, row]: keys of an attention."""
    h, d, r = axes = axes_of((count, width, rows))
    return elementwise([load(0, (r, h, d), F32)], (TensorType(F32, (rows, count, width)),), (count, width, rows), axes)


FEATURES = {
    "one tile": (transposed(16, 16), BASE),
    "tails of both sides": (transposed(37, 21), BASE),
    "a row a work-item": (transposed(19, 40), BASE | {"threads": 256}),
    "tile of 8": (transposed(9, 13), {"tile": 8, "threads": 32}),
    "tile of 64": (transposed(70, 66, dtype=F16), {"tile": 64, "threads": 256}),
    "bf16": (transposed(33, 34, dtype=BF16), {"tile": 32, "threads": 128}),
    "f64": (transposed(20, 19, dtype=F64), BASE),
    "i64": (transposed(20, 19, dtype=I64), BASE),
    "u8": (transposed(20, 19, dtype=U8), BASE),
    "bool": (transposed(20, 19, dtype=BOOL), BASE),
    "batched, beside others": (batched(3, 21, 18), BASE),
    "heads": (heads(19, 3, 9), BASE),
    "one row of tiles": (transposed(8, 50), BASE),
}


def of_operator(op, *types, **attrs):
    """The kernel of one operator."""
    algorithm = op.algorithm(*types, **attrs)
    store = Store(len(types), algorithm.axes, algorithm.body)
    result = op.type_rule(*types, **attrs)
    return recognise(Composed((*types, result), 1, algorithm.axes, (store,)))


IMAGE = TensorType(F32, (1, 56, 56, 64))

TWICE = {"sizes": (1, 112, 112, 64), "scales": (1.0, 2.0, 2.0, 1.0)}

ODD = {"sizes": (1, 97, 83, 64), "scales": (1.0, 97 / 56, 83 / 56, 1.0)}

# kernel, its 16-byte loads and its other loads: of indices
WIDE = {
    "embedding": (of_operator(ops.Gather, TensorType(F32, (30522, 768)), TensorType(I64, (1, 128)), axis=0), 1, 1),
    "tuples": (of_operator(ops.GatherND, TensorType(F32, (64, 32, 768)), TensorType(I64, (100, 2))), 1, 2),
    "nearest": (of_operator(ops.Resize, IMAGE, **TWICE, mode="nearest"), 1, 0),
    "linear": (of_operator(ops.Resize, IMAGE, **TWICE, mode="linear"), 4, 0),
    "linear to odd sizes": (of_operator(ops.Resize, IMAGE, **ODD, mode="linear"), 4, 0),
}
