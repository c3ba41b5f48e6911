"""The floats of 8 and 4 bits as numbers: where their exponent starts and which codes are special. No code is written here.

``f8e8m0fnu`` is none of them: it has an exponent alone, and conversions of its own beside theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from gpucomp.ir.types import DType, finfo


@dataclass(frozen=True)
class Float8:
    """A sign bit, exponent bits with ``bias``, and ``mantissa`` bits; codes are given without the sign.

    sign            the sign's bit
    smallest        the least number above zero, and the unit of all denormals
    largest         the code of the largest finite number
    over            the code of what lies beyond it after rounding: NaN, infinity where the format has one, or the largest
                    number where it has neither
    nan             the code of NaN, or of zero where the format has none
    negative_zero   whether the format has one; where it has none, that code is the only NaN and NaN has no sign
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
        """The code of infinity, where there is one."""
        return self.over if self.over not in (self.nan, self.largest) else None


@cache
def layout(dtype: DType) -> Float8:
    """How ``dtype`` is laid out, as its numpy type says."""
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
