"""Sizes that the engines of a plain contraction share: ``c[batch, m, n] = sum over k of a[batch, m, k] * b[batch, k, n]``."""

from __future__ import annotations

import math

from gpucomp.kernel import Contraction
from gpucomp.kernel.forms.row_statistics import TailProblem


class GemmProblem(TailProblem):
    """Sizes of the contraction, and how its operands and its result lie in memory."""

    m: int
    k: int
    a_by_depth: int  # 1: neighbours of ``a`` in memory are neighbours in depth, not rows
    a_wide: int  # elements that an access of ``a`` may take
    a_copied: int  # 1: an asynchronous copy may bring ``a`` to shared memory, since nothing is computed on the way
    b_by_depth: int  # the same of ``b``, whose other neighbours are columns
    b_wide: int
    b_copied: int
    out_wide: int  # columns that a store may take
    inputs: int  # parameters that are read


def extents(body: Contraction) -> dict[str, int]:
    """``batch``, ``m``, ``n`` and ``k``."""
    axes = {"batch": body.batch, "m": body.m, "n": body.n, "k": body.k}
    return {name: math.prod(v.extent for v in of) for name, of in axes.items()}
