"""Sizes of plain contractions: ``c[batch, m, n] = sum over k of a[batch, m, k] * b[batch, k, n]``."""

from __future__ import annotations

import math

from gpucomp.kernel import Contraction
from gpucomp.kernel.forms.row_statistics import TailProblem


class GemmProblem(TailProblem):
    """Sizes of the contraction, and how its operands and its result are stored."""

    m: int
    k: int
    a_by_depth: int  # 1: ``a`` is contiguous along the depth, not along rows
    a_wide: int  # most elements of an access of ``a``
    a_copied: int  # 1: asynchronous copies can bring ``a`` to shared memory, because nothing is computed on the way
    b_by_depth: int  # the same for ``b``; otherwise it is contiguous along columns
    b_wide: int
    b_copied: int
    out_wide: int  # most columns of one store
    inputs: int  # number of parameters that are read


def extents(body: Contraction) -> dict[str, int]:
    """``batch``, ``m``, ``n`` and ``k``."""
    axes = {"batch": body.batch, "m": body.m, "n": body.n, "k": body.k}
    return {name: math.prod(v.extent for v in of) for name, of in axes.items()}
