"""Kernels of tests/kernels_templates/test_tile_transform.py, each with what is special about it."""

from dataclasses import replace

from gpucomp.ir.types import F16
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.passes import split_winograd as winograd_steps
from testing.kernels import conv, into_part


def fixed(kernel: Kernel[Contraction]) -> Kernel[Contraction]:
    return replace(kernel, constants=frozenset({1}))


ODD = fixed(conv((2, 9, 7, 12), 20, (3, 3), pad=1))

CASES = {
    "odd sizes, two images": ODD,
    "no padding, primes": fixed(conv((1, 7, 10, 11), 13, (3, 3))),
    "wide padding": fixed(conv((1, 5, 6, 8), 6, (3, 3), pad=2)),
    "one pixel": fixed(conv((1, 1, 1, 4), 8, (3, 3), pad=1)),
    "one row": fixed(conv((3, 1, 5, 6), 4, (3, 3), pad=1)),
    "whole blocks": fixed(conv((1, 8, 12, 8), 16, (3, 3), pad=1)),
    "into a part of a Concat": fixed(into_part(conv((1, 8, 6, 28), 40, (3, 3), pad=1), 3, 4, 8)),
    "f16": fixed(conv((1, 9, 6, 16), 12, (3, 3), pad=1, dtype=F16)),
}


def transforms(kernel: Kernel[Contraction], outputs: int) -> list[Kernel]:
    made = winograd_steps.kernels(kernel, outputs)
    return [made[0], made[2]]


TRANSFORMS = {
    f"{part} of {outputs}": kernel
    for outputs in (2, 4)
    for part, kernel in zip(("pixels", "outputs"), transforms(ODD, outputs), strict=True)
}
