"""Layouts of the 8-bit and 4-bit floats: field widths, the bias, and special codes. Emits no code.

``f8e8m0fnu`` is not covered: it has only an exponent, and conversions of its own in ``helpers``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from gpucomp.ir.types import DType, finfo


@dataclass(frozen=True)
class Float8:
    """A sign bit, exponent bits with ``bias``, and ``mantissa`` bits. Codes are given without the sign.

    sign            the mask of the sign bit
    smallest        the smallest number above zero; denormals are multiples of it
    largest         the code of the largest finite number
    over            the code of numbers that are too large after rounding: NaN, or infinity if the format has one, or
                    the largest number if it has neither
    nan             the code of NaN, or the code 0 if the format has none
    negative_zero   whether the format has a negative zero; if not, that code is the only NaN and NaN has no sign
    """

    sign: int
    mantissa: int
    bias: int
    smallest: float
    largest: int
    over: int
    nan: int
    negative_zero: bool

    @property
    def infinity(self) -> int | None:
        """The code of infinity, or ``None`` if the format has none."""
        return self.over if self.over not in (self.nan, self.largest) else None


@cache
def layout(dtype: DType) -> Float8:
    """The layout of ``dtype``, found from its numpy type."""
    info = finfo(dtype.numpy)

    def code(value: float) -> int:
        with np.errstate(all="ignore"):
            return int(np.asarray(value, np.float32).astype(dtype.numpy).view(np.uint8))

    negative_zero = code(-0.0) != 0
    sign = 1 << (dtype.bits - 1)
    unsigned = sign - 1 if negative_zero else 0xFF
    return Float8(
        sign=sign,
        mantissa=info.nmant,
        bias=1 - int(np.log2(float(info.tiny))),
        smallest=float(info.smallest_subnormal),
        largest=code(float(info.max)),
        over=code(1e9) & unsigned,
        nan=code(np.nan) & unsigned,
        negative_zero=negative_zero,
    )
