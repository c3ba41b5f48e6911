"""The four 8-bit floats as numbers: where their exponent starts and which codes are special. No code is written here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import ml_dtypes
import numpy as np

from gpucomp.ir.types import DType


@dataclass(frozen=True)
class Float8:
    """A sign bit, exponent bits with ``bias``, and ``mantissa`` bits; codes are given without the sign.

    smallest        the least number above zero, and the unit of all denormals
    largest         the code of the largest finite number
    over            the code of what lies beyond it after rounding: NaN, or infinity where the format has one
    nan             the code of NaN
    negative_zero   whether the format has one; where it has none, that code is the only NaN and NaN has no sign
    """

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
        return self.over if self.over != self.nan else None


@cache
def layout(dtype: DType) -> Float8:
    """How ``dtype`` is laid out, as its numpy type says."""
    info = ml_dtypes.finfo(dtype.numpy)

    def code(value: float) -> int:
        with np.errstate(all="ignore"):
            return int(np.asarray(value, np.float32).astype(dtype.numpy).view(np.uint8))

    negative_zero = code(-0.0) != 0
    sign = 0x7F if negative_zero else 0xFF
    return Float8(
        mantissa=info.nmant,
        bias=1 - int(np.log2(float(info.tiny))),
        smallest=float(info.smallest_subnormal),
        largest=code(float(info.max)),
        over=code(1e9) & sign,
        nan=code(np.nan) & sign,
        negative_zero=negative_zero,
    )
