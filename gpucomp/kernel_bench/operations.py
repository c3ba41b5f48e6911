"""The operators that published measurements are of: plain data, as ``gpucomp.kernel_bench.formats`` reads it from files."""

from __future__ import annotations

from gpucomp.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Gemm:
    """c[batch, m, n] = a @ b, row-major. ``a_transposed``: a is [k, m] in memory; ``b_transposed``: b is [n, k]."""

    m: int
    n: int
    k: int
    batch: int = 1
    dtype: str = "f32"
    a_transposed: bool = False
    b_transposed: bool = False
    constant: bool = False  # whether b is known when a model is compiled


@dataclass(frozen=True)
class Conv:
    """A forward convolution without bias; weights are known when a model is compiled."""

    n: int
    c: int
    h: int
    w: int
    k: int  # output channels
    r: int
    s: int
    pad: tuple[int, int] = (0, 0)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    nchw: bool = True
    dtype: str = "f32"

    @property
    def out(self) -> tuple[int, int]:
        """Height and width of the result."""
        sizes = zip((self.h, self.w), (self.r, self.s), self.pad, self.stride, self.dilation, strict=True)
        oh, ow = ((size + 2 * pad - far * (window - 1) - 1) // step + 1 for size, window, pad, step, far in sizes)
        return oh, ow


@dataclass(frozen=True)
class Attend:
    """Attention without a mask, of equal lengths."""

    batch: int
    tokens: int
    heads: int
    depth: int
    dtype: str = "f16"


@dataclass(frozen=True)
class Rows:
    """An operator over [rows, columns] that memory bounds. ``gated``: of two halves of a row, one scales the other."""

    operator: str
    rows: int
    columns: int
    dtype: str = "f32"


Operation = Gemm | Conv | Attend | Rows
