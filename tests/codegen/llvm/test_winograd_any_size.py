"""Winograd convolutions on the CPU over images whose number, height and width each run decides."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from gpucomp.codegen.llvm.engines import WINOGRAD, engines_of
from gpucomp.device.target import Target
from gpucomp.ir.conditions import Assumed, assuming
from gpucomp.ir.dim import Dim
from gpucomp.ir.size import size_of
from gpucomp.ir.types import BF16, F32
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.example import example_of
from gpucomp.schedule.space import Schedule
from gpucomp.targets import cpu
from testing.any_size import AnySize, Comparison
from testing.kernels import conv
from testing.tolerance import winograd_bound
from tests.native import HERE

Build = Callable[..., Kernel[Contraction]]
At = Mapping[str, int]
IMAGE = {"n": Dim("n", 1, 3), "h": Dim("h", 3, 40), "w": Dim("w", 3, 40)}
IMAGES = ({"n": 1, "h": 3, "w": 3}, {"n": 2, "h": 17, "w": 10}, {"n": 1, "h": 40, "w": 40}, {"n": 3, "h": 11, "w": 13})
CONVOLUTIONS: dict[str, tuple[Build, Mapping[str, Dim], Sequence[At]]] = {
    "padded": (lambda n, h, w: conv((n, h, w, 19), 40, (3, 3), pad=1), IMAGE, IMAGES),
    "not padded": (lambda n, h, w: conv((n, h, w, 37), 40, (3, 3)), IMAGE, IMAGES),
    "strided": (lambda n, h, w: conv((n, h, w, 40), 24, (3, 3), stride=2, pad=1), IMAGE, IMAGES),
    "narrow": (lambda n, h, w: conv((n, h, w, 40), 24, (3, 3), pad=1, dtype=BF16), IMAGE, IMAGES),
    "open height": (
        lambda h: conv((1, h, 9, 40), 24, (3, 3), pad=1), {"h": IMAGE["h"]}, ({"h": 3}, {"h": 40}, {"h": 21}),
    ),
    "open batch": (
        lambda n: conv((n, 7, 9, 40), 24, (3, 3), pad=1), {"n": Dim("n", 1, 40)}, ({"n": 1}, {"n": 40}, {"n": 13}),
    ),
}  # fmt: skip


def constant_weights(kernel: Kernel[Contraction]) -> Kernel[Contraction]:
    return dataclasses.replace(kernel, constants=frozenset({1}))


def some_schedules(kernel: AnySize, count: int) -> list[Schedule]:
    """``count`` random schedules that are legal for the example."""
    example = example_of(kernel.plain)
    problem, chooser, found = WINOGRAD.problem(example), random.Random(example.digest), []
    while len(found) < count:
        trial = {p.name: chooser.choice(p.choices) for p in WINOGRAD.params}
        if not WINOGRAD.reasons(trial, problem, kernel.target.limits):
            found.append(trial)
    return found


def check(
    build: Build, dims: Mapping[str, Dim], sizes: Sequence[At], schedules: int = 2, target: Target | None = None
) -> None:
    """Right at all ``sizes`` by the default and by random schedules, and equal to static kernels at the last size."""

    def made(schedule: Schedule | None = None) -> AnySize:
        constant = lambda **at: constant_weights(build(**at))  # noqa: E731
        return AnySize(constant, dims, schedule=schedule, target=target, family=WINOGRAD)

    first = made()
    for kernel in (first, *map(made, some_schedules(first, schedules))):
        for at in sizes:
            kernel.check(bits=at is sizes[-1], compare=accurate(kernel), **at)


def accurate(kernel: AnySize) -> Comparison | None:
    """Whether f32 is as near as the algorithm can be expected to be."""
    problem = WINOGRAD.problem(example_of(kernel.plain))
    bound = winograd_bound(kernel.schedule["outputs"], problem.depth)

    def compare(actual: np.ndarray, wanted: np.ndarray) -> None:
        error = np.linalg.norm(actual.astype(np.float64) - wanted) / np.linalg.norm(wanted.astype(np.float64))
        assert error < bound, f"relative error {error}"

    return compare if kernel.plain.params[0].dtype is F32 else None


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_images_of_any_size(name: str) -> None:
    check(*CONVOLUTIONS[name])


@pytest.mark.parametrize("target", HERE, ids=lambda t: t.arch)
def test_any_size_on_every_level_of_processors(target: Target) -> None:
    check(*CONVOLUTIONS["padded"], schedules=1, target=target)


def test_large_blocks_are_cut_to_fit_the_stack() -> None:
    build = lambda h: constant_weights(conv((1, h, 40, 64), 40, (3, 3), pad=1))  # noqa: E731
    small = AnySize(build, {"h": Dim("h", 3, 40)}, example={"h": 3}, family=WINOGRAD)
    large = {**small.schedule, "outputs": 6, "block": 96, "part": 64}
    kernel = AnySize(build, small.dims, example={"h": 3}, family=WINOGRAD, schedule=large)

    for h in (3, 17, 40):
        kernel.check(h=h, compare=accurate(kernel))


def test_what_is_accepted_notes_no_condition() -> None:
    with assuming(Assumed()) as notes:
        n, h, w = (size_of(IMAGE[name], 3) for name in "nhw")
        kernels = [conv((n, h, w, 19), 40, (3, 3), pad=pad, stride=stride) for pad in (0, 1) for stride in (1, 2, 3)]
        able = [WINOGRAD in engines_of(constant_weights(kernel), cpu.host().features) for kernel in kernels]

    assert able == [True, True, False] * 2
    assert not notes.conditions
