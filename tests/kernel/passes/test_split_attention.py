"""Attention on a CPU as one kernel or as three: both give the same results, and the faster one is chosen."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gpucomp import ops
from gpucomp.codegen.llvm.engines import engines_of
from gpucomp.ir import Graph
from gpucomp.ir.types import BF16, F32
from gpucomp.kernel import Attention, Kernel
from gpucomp.kernel.interpreter import expected, run_steps, update
from gpucomp.kernel.partition import partition
from gpucomp.kernel.passes.split_attention import in_three, one_us, pieces, split, three_us
from gpucomp.schedule.expected import Expected
from gpucomp.targets import cpu
from testing.kernels import attention, random_inputs
from testing.tolerance import assert_matches
from tests.builders import graph_of, setting, tensor

AMX, AVX512, AVX2 = (cpu.named(f"cpu:{arch}") for arch in ("sapphirerapids", "icelake-server", "haswell"))

KERNELS = {
    "added mask": attention(17, 29, 40, 36, mask="add"),
    "masks of rows that share keys": attention(5, 33, 12, 20, group=3, mask="bool"),
    "one row": attention(1, 50, 20, 64),
    "a residual": attention(19, 19, 8, 8, merged=True, residual=True),
    "causal": attention(33, 33, 16, 15, causal=0),
    "bf16": attention(9, 41, 32, 24, dtype=BF16),
}


def in_pieces(kernel: Kernel[Attention], inputs: list[np.ndarray]) -> np.ndarray:
    """The results of the three kernels, run one after another."""
    result = np.full(kernel.params[-1].shape, 113).astype(kernel.params[-1].dtype.numpy)
    three = pieces(kernel)
    between = [np.empty(p.kernel.params[-1].shape, p.kernel.params[-1].dtype.numpy) for p in three[:2]]
    arrays = [*inputs, result, *between]
    for piece in three:
        taken = [arrays[k] for k in piece.params]
        update(piece.kernel, taken[: piece.kernel.inputs], taken[piece.kernel.inputs :])
    return result


@pytest.mark.parametrize("name", KERNELS)
def test_three_kernels_compute_what_one_does(name: str) -> None:
    kernel = KERNELS[name]
    inputs = random_inputs(kernel)

    found = in_pieces(kernel, inputs)

    assert_matches(found, expected(kernel, inputs)[0], terms=100)


def test_the_pieces_are_a_softmax_between_two_products() -> None:
    families = {name: [p.kernel.family for p in pieces(kernel)] for name, kernel in KERNELS.items()}

    assert families.pop("one row") == ["reduce", "norm", "reduce"]
    assert all(found == ["contraction", "norm", "contraction"] for found in families.values())


def test_weights_are_stored_in_the_bits_of_the_values() -> None:
    def between(kernel: Kernel[Attention]) -> list[object]:
        return [p.kernel.params[-1].dtype for p in pieces(kernel)[:2]]

    assert between(KERNELS["bf16"]) == [F32, BF16]
    assert between(KERNELS["causal"]) == [F32, F32]


def test_what_is_constant_stays_so() -> None:
    kernel = dataclasses.replace(KERNELS["added mask"], constants=frozenset({2, 3}))

    assert [p.kernel.constants for p in pieces(kernel)] == [{2}, frozenset(), {0}]


def attention_graph(rows: int, cols: int) -> Graph:
    q, k, v = tensor("q", 2, rows, 24), tensor("k", 2, cols, 24), tensor("v", 2, cols, 20)
    return Graph((q, k, v), (ops.Relu(ops.Attention(q, k, v, scale=0.2)),))


def test_steps_in_three_run_one_after_the_other() -> None:
    graph = attention_graph(7, 19)
    (step,) = partition(graph)
    feeds = {
        v.attrs["label"]: np.random.default_rng(5).standard_normal(v.shape).astype(np.float32) for v in graph.inputs
    }

    three = in_three(step)

    assert [s.name for s in three] == [f"{step.name}_scores", f"{step.name}_weights", step.name]
    (found,), (want,) = run_steps(graph, three, feeds), run_steps(graph, [step], feeds)
    assert_matches(found, want, terms=43)


@pytest.mark.parametrize(
    ("kernel", "target", "whole"),
    [
        (attention(128, 128, 64, 64, heads=12), AVX512, True),
        (attention(197, 197, 64, 64, heads=3), AVX2, True),
        (attention(2048, 2048, 64, 64, heads=8), AVX512, True),
        (attention(1, 777, 64, 64, heads=12), AVX512, True),
        (attention(17, 100, 64, 64, heads=12), AVX512, False),
        (attention(128, 128, 64, 64, heads=12, dtype=BF16), AMX, False),
        (attention(128, 128, 64, 64, heads=12, dtype=BF16), AVX2, True),
    ],
    ids=["bert", "vit", "long", "one row", "half of a tile", "bf16 on tiles", "bf16 without"],
)
def test_what_is_expected_to_be_faster_is_taken(kernel: Kernel[Attention], target: cpu.Target, whole: bool) -> None:
    (step,) = partition(attention_graph(5, 11))
    inputs = tuple(tensor(f"x{k}", *t.shape, dtype=t.dtype) for k, t in enumerate(kernel.params[: kernel.inputs]))
    outputs = (tensor("y", *kernel.params[-1].shape, dtype=kernel.params[-1].dtype),)
    step = dataclasses.replace(step, kernel=kernel, inputs=inputs, outputs=outputs)

    times = Expected(target, engines_of)
    found = split([step], setting(graph_of(*outputs), target))

    assert (one_us(kernel, target, times) <= three_us(kernel, target, times)) == whole
    assert len(found) == (1 if whole else 3)
    assert [isinstance(s.kernel.body, Attention) for s in found] == ([True] if whole else [False] * 3)


def test_other_steps_are_left_alone() -> None:
    x, w = tensor("x", 5, 7), tensor("w", 7, 3)
    graph = Graph((x, w), (ops.MatMul(x, w),))
    steps = partition(graph)

    assert split(steps, setting(graph, AVX512)) == steps
