"""The contraction family's `simt_pairs` engine: `simt` with two f16 a product, by AMD's v_dot2_f32_f16.

Its schedules, its template and its formulas are those of `simt`: an element of a tile is a word of two f16, and the depth
counts words. A product takes the time of an f32 multiply-add and does two of them.
"""

from __future__ import annotations

from dataclasses import replace

from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.forms.packed_f16 import in_pairs, packed_in_pairs, pair_packing
from gpucomp.kernel.packing import Packing
from gpucomp.kernels_templates.contraction.simt.space import FAMILY as SIMT
from gpucomp.kernels_templates.contraction.simt.space import SimtProblem, SimtSchedule, sizes_of


def problem(kernel: Kernel[Contraction]) -> SimtProblem:
    return sizes_of(packed_in_pairs(kernel))


def accepts(kernel: Kernel[Contraction], features: frozenset[str]) -> str:
    if not {"fdot2", "fp16"} <= features:
        return "the device has no dot products of f16"
    if in_pairs(kernel) is kernel:
        return "pairs are of f16 in memory, side by side along the depth, with f32 sums"
    return ""


def packing(kernel: Kernel[Contraction], s: SimtSchedule, p: SimtProblem) -> Packing | None:
    """Constant f16 packed in whole words."""
    return pair_packing(kernel)


FAMILY = replace(
    SIMT,
    sizes=problem,
    engine="simt_pairs",
    accepts=accepts,
    packing=packing,
    in_words=in_pairs,
)
