"""Fused layers on the CPU: results compared with the layers one by one, which are fused, and which must not be."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

import gpucomp.compiler
from gpucomp import ops
from gpucomp.codegen.llvm.depth_first import fuse as depth_first
from gpucomp.codegen.llvm.depth_first import space as fused_space
from gpucomp.codegen.llvm.depth_first.layers import Slides, layer_rows
from gpucomp.codegen.llvm.engines import DEPTH_FIRST
from gpucomp.device.target import Target
from gpucomp.ir import Graph, Value, constant
from gpucomp.kernel import HANDED, FusedLayers, kernel_of
from gpucomp.kernel.interpreter import expected, run_steps
from gpucomp.kernel.partition import partition
from gpucomp.kernel.passes import precision
from gpucomp.kernel.step import KernelStep, Step
from gpucomp.runtime.executable import Executable
from gpucomp.schedule.analytic import operations, traffic
from gpucomp.targets import cpu
from gpucomp.tuning import reference
from testing.tolerance import assert_matches
from tests.builders import graph_of, setting, tensor, weights
from tests.native import Library
from tests.schedules_together import assert_agrees

HOST = cpu.host()


def filters(*shape: int, seed: int = 0) -> Value:
    """Random filters with mean zero, so that sums neither grow nor cancel."""
    return constant(np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32))


def conv(x: Value, out: int, k: int = 1, stride: int = 1, pads: Sequence[int] = (0,) * 4, dilation: int = 1, group: int = 1
         ) -> Value:  # fmt: skip
    w = filters(k, k, x.shape[-1] // group, out)
    return ops.Conv(
        x, w, strides=(stride,) * 2, pads=tuple(pads), dilations=(dilation,) * 2, group=group, layout="NHWC"
    )


def depthwise(x: Value, k: int = 3, stride: int = 1, pads: Sequence[int] = (1,) * 4, dilation: int = 1) -> Value:
    return conv(x, x.shape[-1], k, stride, pads, dilation, x.shape[-1])


def biased(x: Value) -> Value:
    return ops.Relu(ops.Add(x, weights(x.shape[-1], seed=3)))


def bottleneck(batch: int = 2) -> Graph:
    x = tensor("x", batch, 13, 11, 5)
    return graph_of(ops.Add(conv(biased(depthwise(biased(conv(x, 19)))), 5), x))


def separable() -> Graph:
    """A depthwise convolution with stride 2 and padding above but not below, and two pointwise ones."""
    x = tensor("x", 1, 10, 17, 33)
    return graph_of(biased(conv(biased(conv(depthwise(x, stride=2, pads=(1, 0, 0, 2)), 7)), 21)))


def deep() -> Graph:
    """Two windows, one of them dilated. Both read rows repeatedly."""
    x = tensor("x", 3, 7, 9, 4)
    wide = depthwise(conv(x, 18), 5, pads=(2,) * 4)
    return graph_of(biased(conv(depthwise(biased(conv(wide, 6)), dilation=2, pads=(2,) * 4), 35)))


def leaping() -> Graph:
    """Strides larger than the window, so that some rows are never read."""
    x = tensor("x", 1, 17, 12, 6)
    return graph_of(conv(depthwise(conv(x, 20), 2, stride=3, pads=(0,) * 4), 9, stride=2))


def ending_in_a_window() -> Graph:
    x = tensor("x", 1, 23, 8, 3)
    return graph_of(depthwise(ops.Sigmoid(conv(x, 37)), 5, stride=2, pads=(2,) * 4))


GRAPHS = {g.__name__: g() for g in (bottleneck, separable, deep, leaping, ending_in_a_window)}


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """All layers that can be fused are, regardless of their cost."""
    monkeypatch.setattr(depth_first, "NEAR_SHARE", 1 << 40)
    monkeypatch.setattr(depth_first, "_cost", lambda layers, limits: -len(layers))


def fused(graph: Graph, target: Target = HOST) -> list[Step]:
    return depth_first.fuse(partition(graph), setting(graph, target))


def data(graph: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    return {v.attrs["label"]: rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs}


def executable(graph: Graph, steps: Sequence[Step], target: Target = HOST) -> Executable:
    laid_out, rendered = gpucomp.compiler.render(steps, target, lambda *_: None)
    lowered = gpucomp.compiler.Lowered(graph, laid_out, rendered, steps)
    return gpucomp.compiler.finish(lowered, target, "fp32", lambda *_: None)


@pytest.mark.parametrize("name", GRAPHS)
def test_fused_layers_are_one_kernel_with_the_bits_of_each(name: str, eager: None) -> None:
    graph = GRAPHS[name]
    apart, together = partition(graph), fused(graph)
    inputs = data(graph)
    (wanted,) = run_steps(graph, apart, inputs)

    (step,) = together
    assert isinstance(step, KernelStep)
    assert isinstance(step.kernel.body, FusedLayers)
    assert len(step.kernel.body.layers) == len(apart)
    one, several = executable(graph, together), executable(graph, apart)
    (result,) = one.run(inputs).values()
    assert_matches(result, wanted, terms=64)
    np.testing.assert_array_equal(result, next(iter(several.run(inputs).values())))
    assert one.plan.arena_bytes == 0


@pytest.mark.parametrize("name", ["bottleneck", "deep", "leaping"])
def test_every_cut_of_an_image_gives_the_same_bits(name: str, eager: None) -> None:
    """Tasks run one by one, the last first: each computes its own halo and reads nothing from another task."""
    (step,) = fused(GRAPHS[name])
    kernel = step.kernel
    assert kernel is not None
    schedules = {f"k{r}_{p}": {"rows": r, "parts": p} for r, p in ((1, 1), (4, 2), (1, 16), (16, 4))}
    library = Library(dict.fromkeys(schedules, kernel), schedules)
    rng = np.random.default_rng(5)
    inputs = [v.attrs.get("value", rng.standard_normal(v.shape).astype(np.float32)) for v in step.inputs]

    results = [library.run(n, inputs)[0] for n in schedules]

    (wanted,) = expected(kernel, inputs)
    assert_matches(results[0], wanted, terms=64)
    assert_matches(results[0], reference.expected(kernel, inputs, [np.empty_like(wanted)])[0], terms=64)
    assert all(np.array_equal(r, results[0]) for r in results)


def test_threads_and_runs_give_the_same_bits(eager: None, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = bottleneck(batch=5)
    inputs = data(graph)
    found = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("GPUCOMP_THREADS", threads)
        program = executable(graph, fused(graph))
        found += [next(iter(program.run(inputs).values())) for _ in range(5)]

    assert all(np.array_equal(y, found[0]) for y in found)


@pytest.mark.parametrize("arch", ["x86-64-v2", "x86-64-v3"])
def test_narrow_vectors_give_the_same(arch: str, eager: None) -> None:
    graph, target = GRAPHS["deep"], cpu.named(f"cpu:{arch}")
    inputs = data(graph)
    (wanted,) = run_steps(graph, partition(graph), inputs)

    (result,) = executable(graph, fused(graph, target), target).run(inputs).values()

    assert_matches(result, wanted, terms=64)


def test_the_work_is_the_layers_and_what_they_hand_on_moves_no_byte(eager: None) -> None:
    graph = graph_of(conv(depthwise(conv(tensor("x", 3, 7, 5, 11), 32), stride=2), 16))  # columns that fill panels
    apart, (step,) = partition(graph), fused(graph)

    handed = [s.kernel.params[-1].nbytes for s in apart[:-1]]
    assert operations(step.kernel) == sum(operations(s.kernel) for s in apart)
    assert traffic(step.kernel) == sum(traffic(s.kernel) for s in apart) - 2 * sum(handed)
    assert step.kernel.text.count("handed on") == 2 * len(handed)


# kernels that are not fused


def test_many_schedules_at_once_are_legal_where_each_is(eager: None) -> None:
    for graph in GRAPHS.values():
        (step,) = fused(graph)
        assert isinstance(step, KernelStep)
        assert_agrees(step.kernel, DEPTH_FIRST, HOST)


def has_fused(graph: Graph) -> bool:
    return any(isinstance(s, KernelStep) and isinstance(s.kernel.body, FusedLayers) for s in fused(graph))


def test_an_image_that_somebody_else_reads_is_stored(eager: None) -> None:
    x = tensor("x", 1, 9, 7, 5)
    inner = conv(x, 18)

    assert has_fused(graph_of(depthwise(inner)))
    assert not has_fused(graph_of(depthwise(inner), inner))
    assert not has_fused(graph_of(depthwise(inner), ops.Softmax(inner, axis=3)))


def test_a_convolution_whose_rows_reach_into_the_padding_is_not_fused(eager: None) -> None:
    x = tensor("x", 1, 9, 7, 5)

    assert not has_fused(graph_of(depthwise(conv(x, 18, 3, pads=(1,) * 4))))
    assert not has_fused(graph_of(conv(depthwise(x), 18, 1, pads=(1,) * 4)))
    assert not has_fused(graph_of(conv(depthwise(x), 18, 3)))


def test_columns_that_are_no_constant_are_not_fused(eager: None) -> None:
    x, w = tensor("x", 1, 9, 7, 5), tensor("w", 1, 1, 5, 18)
    product = ops.Conv(x, w, strides=(1, 1), pads=(0,) * 4, dilations=(1, 1), group=1, layout="NHWC")

    assert not has_fused(graph_of(depthwise(product)))


def test_other_numbers_than_f32_are_not_fused(eager: None) -> None:
    graph = GRAPHS["bottleneck"]
    narrow = precision.apply(partition(graph), graph, "bf16")

    assert [s.kernel.family for s in depth_first.fuse(narrow, setting(graph, HOST))] == [
        "contraction",
        "loops",
        "contraction",
    ]


def test_rows_may_be_what_were_columns_but_no_channels(eager: None) -> None:
    x = tensor("x", 1, 9, 7, 5)
    turned = graph_of(depthwise(ops.Transpose(conv(x, 18), perm=(0, 2, 1, 3))))
    inputs = data(turned)

    assert has_fused(turned)
    (wanted,) = run_steps(turned, partition(turned), inputs)
    assert_matches(next(iter(executable(turned, fused(turned)).run(inputs).values())), wanted, terms=64)
    assert not has_fused(graph_of(depthwise(ops.Transpose(conv(x, 9), perm=(0, 3, 2, 1)))))


def test_fused_layers_wait_for_a_value_that_comes_later(eager: None) -> None:
    """The residual is computed after the first layer. The kernel runs in the position of the last layer."""
    x = tensor("x", 1, 9, 7, 5)
    inner = conv(x, 18)
    later = ops.Softmax(ops.Mul(x, weights(1, 9, 7, 5)), axis=3)
    graph = graph_of(ops.Add(conv(depthwise(inner), 5), later))
    inputs = data(graph)
    (wanted,) = run_steps(graph, partition(graph), inputs)

    (result,) = executable(graph, fused(graph)).run(inputs).values()

    assert has_fused(graph)
    assert_matches(result, wanted, terms=64)


# the cost


def large(side: int = 56) -> Graph:
    x = tensor("x", 1, side, side, 24)
    return graph_of(conv(biased(depthwise(biased(conv(x, 144)))), 24))


def test_images_that_the_cache_holds_stay_apart() -> None:
    with_little, with_much = (HOST.with_limits(cache_bytes=size << 20) for size in (1, 8))

    assert [s.kernel.family for s in fused(large(), with_little)] == ["fused_layers"]
    assert [s.kernel.family for s in fused(large(), with_much)] == ["contraction", "loops", "contraction"]


def test_weights_that_fill_the_cache_stay_apart() -> None:
    """Each row would read all weights again."""
    x = tensor("x", 1, 29, 29, 320)
    graph = graph_of(depthwise(conv(x, 640)))

    assert len(fused(graph, HOST.with_limits(cache_bytes=1 << 20))) == 2


def test_rows_at_hand_fit_the_cache_and_parts_share_the_work() -> None:
    (step,) = fused(large(), HOST.with_limits(cache_bytes=1 << 20))
    p = fused_space.problem(kernel_of(step.kernel, FusedLayers))
    schedule = fused_space.default(p, HOST.with_limits(cache_bytes=1 << 20).limits).numbers

    row = 4 * 56 * 144
    assert (p.out_rows, p.row_bytes, p.halo_bytes) == (56, 2 * row, 2 * row)
    assert p.halo == pytest.approx(2 * operations(partition(large())[0].kernel) / 56 / 40, abs=1)
    assert p.carried_bytes == 2 * row
    assert schedule["rows"] == fused_space.ENOUGH_ROWS
    assert (1 << 20) // fused_space.WIDEST_SHARE < fused_space.kept_bytes(4, p) <= (1 << 20) // fused_space.CACHE_SHARE
    assert fused_space.default(p, HOST.with_limits(cache_bytes=1 << 22).limits).numbers["rows"] == 8
    assert fused_space.default(p, HOST.with_limits(cache_bytes=1 << 19).limits).numbers["rows"] == 2
    assert list(fused_space.objections(fused_space.FusedLayersSchedule(rows=16, parts=1), p, HOST.limits)) == [
        f"{34 * row} bytes of kept rows, {1 << 20} are allowed"
    ]


def test_a_layer_says_which_rows_it_reads() -> None:
    _, window, product = (s.kernel for s in partition(GRAPHS["leaping"]))
    source = next(k for k, t in enumerate(window.params) if t.shape == (1, 17, 12, 20))

    found = layer_rows(window, source)

    assert found
    assert found.slides == Slides(stride=3, taps=2)
    assert found.slides.reach(4) == 11
    assert layer_rows(product, 0).slides == Slides(stride=2)
    assert math.prod(layer_rows(product, 0).row.params[-1].shape) == math.prod(product.params[-1].shape)


def test_what_is_handed_on_is_no_parameter(eager: None) -> None:
    (step,) = fused(GRAPHS["bottleneck"])

    first, middle, last = step.kernel.body.layers
    assert first.params[-1] == HANDED
    assert middle.params.count(HANDED) == 2
    assert last.params.count(HANDED) == 1
    assert len(step.inputs) == len(step.kernel.params) - 1
