"""onnxruntime's matrix products and tables with block-quantized weights of 2, 4 or 8 bits, domain com.microsoft.

Language models have them.
"""

from __future__ import annotations

import numpy as np

from gpucomp import ops
from gpucomp.errors import UnsupportedError
from gpucomp.frontend.onnx.ai_onnx.nn import matmul
from gpucomp.frontend.onnx.ai_onnx.quantize import dequantized, spread
from gpucomp.frontend.onnx.compose import axis_of, cast, part, reshape, scalar_of, transpose, unsqueeze
from gpucomp.frontend.onnx.microsoft.common import MICROSOFT, expect_floats, expect_types
from gpucomp.frontend.onnx.translate import translates
from gpucomp.ir import Value, constant
from gpucomp.ir import types as t


@translates("MatMulNBits", since=1, domain=MICROSOFT)
def matmul_nbits(
    a: Value,
    b: Value,
    scales: Value,
    zero_points: Value | None = None,
    g_idx: Value | None = None,
    bias: Value | None = None,
    *,
    K: int,
    N: int,
    block_size: int,
    bits: int = 4,
    accuracy_level: int = 0,
    weight_prepacked: int = 0,
) -> Value:
    """a [..., K] times the transpose of N rows of weights of ``bits`` bits, in blocks of ``block_size`` along K.

    ``b`` u8[N, blocks, block_size bits / 8] holds the weights, the first in the lowest bits. Each block has one scale
    and one zero point. ``zero_points`` are packed like the weights, row by row, or are floats; the default is 2^(bits -
    1). ``accuracy_level`` would allow ``a`` to be rounded, and is ignored.
    """
    if g_idx is not None or weight_prepacked:
        raise UnsupportedError(
            "an order of groups (g_idx) and weights that are prepacked for a device are not supported"
        )
    expect_floats(a, scales, bias)
    expect_types((t.U8, t.F16, t.BF16, t.F32), zero_points)
    if bias is not None and bias.shape != (N,):
        raise ValueError(f"a bias of {N} elements expected, {bias.type} given")
    if bits not in (2, 4, 8) or min(K, N) < 1 or block_size < 1 or block_size * bits % 8:
        raise UnsupportedError(
            f"bits={bits} with block_size={block_size} is not supported: 2, 4 or 8 bits in blocks of whole bytes expected"
        )
    blocks, dtype = -(-K // block_size), a.type.dtype
    if b.type.dtype is not t.U8 or b.type.size != N * blocks * block_size * bits // 8 or scales.type.size != N * blocks:
        raise ValueError(f"{N} rows of {blocks} blocks expected, {b.type} and {scales.type} given")
    weights = _unpacked(reshape(b, (N, blocks, block_size * bits // 8)), bits)
    if zero_points is None:
        zero = scalar_of(t.F32, 1 << (bits - 1))
    elif zero_points.type.dtype is t.U8:
        packed = -(-blocks * bits // 8)
        if zero_points.type.size != N * packed:
            raise ValueError(f"{N} rows of {packed} bytes of zero points expected, {zero_points.type} given")
        rows = _unpacked(reshape(zero_points, (N, packed)), bits)
        zero = reshape(ops.Slice(rows, starts=(0, 0), steps=(1, 1), sizes=(N, blocks)), (N, blocks, 1))
    else:
        zero = reshape(zero_points, (N, blocks, 1))
    real = ops.Mul(
        ops.Sub(cast(weights, t.F32), cast(zero, t.F32)), reshape(cast(scales, t.F32), (N, blocks, 1))
    )  # [N, blocks, block_size]
    rows = ops.Slice(reshape(real, (N, blocks * block_size)), starts=(0, 0), steps=(1, 1), sizes=(N, K))
    y = matmul(a, transpose(cast(rows, dtype), (1, 0)))
    return y if bias is None else ops.Add(y, bias)


def _unpacked(packed: Value, bits: int) -> Value:
    """u8[..., n] to u8[..., n 8 / bits]: the numbers of ``bits`` bits in each byte, lowest bits first."""
    if bits == 8:
        return packed
    shifts = constant(np.arange(0, 8, bits, dtype=np.uint8))
    shifted = ops.BitShift(unsqueeze(packed, (len(packed.shape),)), shifts, direction="RIGHT")
    numbers = ops.BitwiseAnd(shifted, scalar_of(t.U8, (1 << bits) - 1))
    return reshape(numbers, (*packed.shape[:-1], packed.shape[-1] * (8 // bits)))


@translates("GatherBlockQuantized", since=1, domain=MICROSOFT)
def gather_block_quantized(
    data: Value,
    indices: Value,
    scales: Value,
    zero_points: Value | None = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> Value:
    """Gathers rows of a quantized table along one axis, and dequantizes only these. TileTransform are along another axis.

    ``data`` is i4 or u4, or u8 with packed numbers of ``bits`` bits along its last axis, lowest bits first. Zero points
    are packed in the same way; the default for u8 is 2^(bits - 1).
    """
    packed, rank = data.type.dtype is t.U8, len(data.shape)
    gathered, blocked = axis_of(gather_axis, rank), axis_of(quantize_axis, rank)
    if bits not in (2, 4, 8) or data.type.dtype not in (t.I4, t.U4, t.U8):
        raise UnsupportedError(
            f"a table of {data.type.dtype} with bits={bits} is not supported: int4, uint4 or uint8 with 2, 4 or 8 bits expected"
        )
    if gathered == blocked or block_size < 1 or (packed and bits < 8 and gathered == rank - 1):
        raise ValueError(
            f"gather_axis={gathered}, quantize_axis={blocked}, block_size={block_size}: two different axes and blocks of at "
            "least 1 element expected, and packed elements not gathered along the last axis"
        )
    places = cast(indices, t.I64)
    own, scale, zero = (
        None if v is None else ops.Gather(v, places, axis=gathered) for v in (data, scales, zero_points)
    )
    assert own is not None
    assert scale is not None
    axis = blocked + (len(indices.shape) - 1 if blocked > gathered else 0)
    if packed:
        own = _unpacked(own, bits)
        zero = None if zero is None else _unpacked(zero, bits)
    if zero is not None and zero.shape[-1] != scale.shape[-1]:
        zero = part(zero, len(zero.shape) - 1, 0, scale.shape[-1])
    if zero is None and packed:
        zero = scalar_of(t.U8, 1 << (bits - 1))
    wide = spread(scale, own, axis, block_size)
    return dequantized(own, wide, zero if zero is None or not zero.shape else spread(zero, own, axis, block_size))
