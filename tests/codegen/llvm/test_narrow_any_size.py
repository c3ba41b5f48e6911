"""Contractions of bf16 and bytes on tile registers and by dot products whose rows or images each run decides.

They use the processor's instructions if it has them, else their emulation in software.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pytest

from gpucomp.codegen.llvm.engines import AMX, PAIRS, REGISTER_BLOCKS, VNNI, engines_of
from gpucomp.device.target import Target
from gpucomp.ir.conditions import Assumed, assuming
from gpucomp.ir.dim import Dim
from gpucomp.ir.size import size_of
from gpucomp.ir.types import BF16, I8, I32
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.example import example_of
from gpucomp.schedule.space import Family, Schedule
from gpucomp.targets import cpu
from testing.any_size import AnySize, Change
from testing.kernels import conv, grouped_conv, matmul, stem
from tests.matrix_emulation import emulated

Build = Callable[..., Kernel[Contraction]]
At = Mapping[str, int]
pytestmark = pytest.mark.usefixtures("strict_tiles")
HOST, SAPPHIRE_RAPIDS, ALDER_LAKE = cpu.host(), cpu.named("cpu:sapphirerapids"), cpu.named("cpu:alderlake")


@dataclass(frozen=True)
class Way:
    """An engine, the processor that it is compiled for, how the text is changed for this one, and what the engine is for."""

    name: str
    family: Family
    target: Target
    change: Change | None
    features: frozenset[str]


def _way(name: str, family: Family, needed: set[str], target: Target) -> Way:
    real = target.features <= HOST.features and needed <= HOST.features
    change = None if real else partial(emulated, first=True)
    # more of Sapphire Rapids' instructions than are emulated may be missing here
    built = HOST if target is SAPPHIRE_RAPIDS and not real else target
    return Way(name, family, built, change, target.features)


WAYS = [
    _way("amx", AMX, {"amx-tile", "amx-bf16", "amx-int8"}, SAPPHIRE_RAPIDS),
    _way("vnni", VNNI, {"avx512bf16", "avx512vnni"}, SAPPHIRE_RAPIDS),
]
PAIRED = _way("pairs", PAIRS, {"avx2"}, cpu.named("cpu:x86-64-v3"))
NARROW = _way("narrow vnni", VNNI, {"avxvnni"}, ALDER_LAKE)
by_software = pytest.mark.skipif(
    not HOST.features.issuperset({"avx2", "fma"}), reason="in software too, these engines need AVX2 and FMA"
)


def constant_weights(kernel: Kernel[Contraction]) -> Kernel[Contraction]:
    return dataclasses.replace(kernel, constants=frozenset({1}))


def some_schedules(kernel: AnySize, count: int) -> list[Schedule]:
    """``count`` random schedules that are legal for the example."""
    family, example = kernel.family, example_of(kernel.plain)
    problem, chooser, found = family.problem(example), random.Random(example.digest), []
    while len(found) < count:
        trial = {p.name: chooser.choice(p.choices) for p in family.params}
        if not family.reasons(trial, problem, kernel.target.limits):
            found.append(trial)
    return found


def check(build: Build, dims: Mapping[str, Dim], sizes: Sequence[At], way: Way, schedules: int = 2) -> None:
    """Right at all ``sizes`` by the default and by random schedules, and equal to static kernels at the last size."""
    made = partial(AnySize, build, dims, target=way.target, family=way.family, change=way.change, features=way.features)
    first = made()
    for kernel in (first, *(made(schedule=s) for s in some_schedules(first, schedules))):
        for at in sizes:
            kernel.check(bits=at is sizes[-1], **at)


M, B = {"m": Dim("m", 1, 300)}, {"b": Dim("b", 1, 4), "m": Dim("m", 0, 100)}
ROWS, PARTS = [{"m": m} for m in (1, 2, 16, 17, 300, 37)], ({"b": 1, "m": 1}, {"b": 2, "m": 0}, {"b": 3, "m": 37})
PRODUCTS: dict[str, tuple[Build, Mapping[str, Dim], Sequence[At]]] = {
    "rows in place": (lambda m: constant_weights(matmul(m, 70, 96, dtype=BF16)), M, ROWS),
    "rows of an odd length": (lambda m: constant_weights(matmul(m, 41, 51, dtype=BF16)), M, ROWS),
    "rows across": (lambda m: constant_weights(matmul(m, 17, 33, dtype=BF16, a_transposed=True)), M, ROWS),
    "columns of pairs": (lambda b, m: matmul(m, 19, 40, batch=(b,), dtype=BF16), B, PARTS),
    "columns turned": (lambda b, m: matmul(m, 35, 45, batch=(b,), dtype=BF16, b_transposed=True), B, PARTS),
    "bytes": (lambda m: constant_weights(matmul(m, 41, 131, dtype=I8, acc=I32)), M, ROWS),
    "bytes in place": (lambda m: constant_weights(matmul(m, 41, 128, dtype=I8, acc=I32)), M, ROWS),
}

IMAGE = {"n": Dim("n", 1, 3), "h": Dim("h", 9, 40), "w": Dim("w", 9, 40)}
IMAGES = ({"n": 1, "h": 9, "w": 9}, {"n": 2, "h": 17, "w": 10}, {"n": 1, "h": 40, "w": 40}, {"n": 3, "h": 11, "w": 13})
CONVOLUTIONS: dict[str, Build] = {
    "1x1": lambda n, h, w: conv((n, h, w, 64), 35, (1, 1), dtype=BF16),
    "1x1 strided": lambda n, h, w: conv((n, h, w, 22), 35, (1, 1), stride=2, dtype=BF16),
    "3x3 padded": lambda n, h, w: conv((n, h, w, 19), 40, (3, 3), pad=1, dtype=BF16),
    "3x3 strided": lambda n, h, w: conv((n, h, w, 32), 24, (3, 3), stride=2, pad=1, dtype=BF16),
    "deep pixels": lambda n, h, w: conv((n, h, w, 515), 37, (3, 2), stride=2, pad=1, dtype=BF16),
    "groups": lambda n, h, w: grouped_conv((n, h, w, 54), 3, 10, (3, 3), pad=1, dtype=BF16),
    "stem of planes": lambda n, h, w: stem((n, h, w, 3), 21, (7, 7), stride=2, pad=3, dtype=BF16),
}


@by_software
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
@pytest.mark.parametrize("name", PRODUCTS)
def test_any_number_of_rows(name: str, way: Way) -> None:
    check(*PRODUCTS[name], way)


@by_software
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_images_of_any_size(name: str, way: Way) -> None:
    check(lambda **sizes: constant_weights(CONVOLUTIONS[name](**sizes)), IMAGE, IMAGES, way)


@by_software
@pytest.mark.parametrize("way", [NARROW, PAIRED], ids=lambda way: way.name)
@pytest.mark.parametrize("name", ["bytes", "bytes in place"])
def test_any_number_of_rows_in_vectors_of_32_bytes(name: str, way: Way) -> None:
    check(*PRODUCTS[name], way)


@by_software
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
@pytest.mark.parametrize("open_one", IMAGE)
def test_images_of_which_one_extent_is_open(open_one: str, way: Way) -> None:
    def build(**size: int) -> Kernel[Contraction]:
        n, h, w = (({"n": 2, "h": 9, "w": 21} | size)[name] for name in "nhw")
        return constant_weights(conv((n, h, w, 32), 24, (3, 3), stride=2, pad=1, dtype=BF16))

    check(build, {open_one: Dim(open_one, 3, 60)}, [{open_one: size} for size in (3, 60, 23)], way)


def engines(build: Callable[..., Kernel], dim: Dim, example: int) -> list[Family]:
    with assuming(Assumed()) as notes:
        found = engines_of(build(size_of(dim, example)), SAPPHIRE_RAPIDS.features)
    assert not notes.conditions
    return list(found)


def test_open_columns_and_depths_are_left_to_register_blocks() -> None:
    some = Dim("n", 1, 100)

    assert engines(lambda n: matmul(5, n, 64, dtype=BF16), some, 50) == [REGISTER_BLOCKS]
    assert engines(lambda k: matmul(5, 64, k, dtype=BF16), some, 50) == [REGISTER_BLOCKS]
    assert engines(lambda m: matmul(m, 64, 5, dtype=BF16), some, 50) == [AMX, VNNI, REGISTER_BLOCKS]


def test_lines_that_may_be_too_long_for_the_stack_are_left_to_register_blocks() -> None:
    build = lambda w: constant_weights(conv((1, 9, w, 64), 32, (3, 3), pad=1, dtype=BF16))  # noqa: E731

    assert engines(build, Dim("w", 8, 1000), 56)[:2] == [AMX, VNNI]
    assert not {AMX.engine, VNNI.engine} & {family.engine for family in engines(build, Dim("w", 8, 8000), 56)}
