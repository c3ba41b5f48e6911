"""The wgmma engine on the CPU harness: numpy's results in any thread order, mutations are detected, a whole model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import gpucomp
from gpucomp import replacing
from gpucomp.kernel.interpreter import UNWRITTEN, expected
from gpucomp.kernels_templates.render import render
from testing.cases.wgmma import CASES
from testing.cuda_on_cpu.harness import ORDERS, CudaOnCpuError, Mapped, RaceError, compile_many
from testing.cuda_on_cpu.whole_models import ModelOnCpu
from testing.kernels import random_inputs
from testing.tolerance import assert_matches
from testing.wgmma_kernels import (
    FAMILY,
    TARGET,
    f16_model,
    prepared,
    problem_of,
    to_tf32,
)
from tests.cuda_on_cpu.kernel_files import broken
from tests.onnx_builders import model, node, value


def schedule_of(name):
    kernel, schedule = CASES[name]
    return schedule or dict(FAMILY.default(problem_of(kernel), TARGET.limits).numbers)


def source_of(name):
    kernel, _, _ = prepared(CASES[name][0], schedule_of(name))
    return render(kernel, schedule_of(name), TARGET, f"w{list(CASES).index(name)}", FAMILY)


@pytest.fixture(scope="module")
def compiled():
    sources = {name: source_of(name) for name in CASES}
    built = compile_many([(s.text, s.name) for s in sources.values()])
    return dict(zip(sources, zip(sources.values(), built, strict=True), strict=True))


def launch(name, source, built, order="forward", change=lambda spec: spec):
    """The outputs of one launch."""
    kernel, _, inputs = prepared(CASES[name][0], schedule_of(name))
    outputs = [np.full(t.shape, UNWRITTEN).astype(t.dtype.numpy) for t in kernel.params[kernel.inputs :]]
    args = [*(np.ascontiguousarray(x) for x in inputs), *outputs]
    args += [Mapped(change(spec), args[spec.parameter]) for spec in source.tensor_maps]
    g = source.geometry
    built.run(g.groups, g.items, args, order=order, seed=5, dynamic_shared=g.dynamic_shared_bytes)
    return outputs


@pytest.mark.parametrize("name", CASES)
def test_numpy_s_answer_in_any_thread_order(name, compiled):
    kernel, _ = CASES[name]
    assert FAMILY.accepts(kernel, TARGET.features) == ""

    results = [launch(name, *compiled[name], order=order) for order in ORDERS]

    _, inputs, _ = prepared(kernel, schedule_of(name))
    terms = int(np.prod([v.extent for v in kernel.body.k]))
    for actual, right in zip(results[0], expected(kernel, inputs), strict=True):
        assert_matches(actual, right, terms=terms)
    for other in results[1:]:
        for x, y in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(x, y)


def test_f32_is_rounded_to_tf32_on_its_way(compiled):
    kernel, _ = CASES["tf32"]
    source, built = compiled["tf32"]
    inputs = random_inputs(kernel, seed=9)
    outputs = [np.zeros(t.shape, np.float32) for t in kernel.params[kernel.inputs :]]
    args = [*inputs, *outputs]
    args += [Mapped(spec, args[spec.parameter]) for spec in source.tensor_maps]
    g = source.geometry

    built.run(g.groups, g.items, args, dynamic_shared=g.dynamic_shared_bytes)

    assert not np.array_equal(to_tf32(inputs[0]), inputs[0])
    right = expected(kernel, [to_tf32(inputs[0]), to_tf32(inputs[1]), inputs[2]])
    assert_matches(outputs[0], right[0], terms=100)


# ---- mistakes ----

MISTAKES = {
    "no wait for the bytes": ("f16", {"replace": "gc_mbarrier_wait(full + stage, parity);"}),
    "the wrong parity": ("f16", {"replace": "unsigned parity = 1;", "by": "unsigned parity = 0;"}),
    "too many bytes announced": ("f16", {"replace": "expect_tx(full + stage, 12288)", "by": "expect_tx(full, 12800)"}),
    "no fence of the barriers": ("f16", {"replace": "gc_fence_barrier_init();"}),
    "no fence of the sums": ("f16", {"replace": "gc_wgmma_fence();"}),
    "no wait for the sums": ("f16", {"replace": "gc_wgmma_wait<0>();"}),
    "readers that never arrive": ("f16", {"replace": "gc_mbarrier_arrive(empty + stage_before);", "by": ";"}),
    "no wait for the first part": ("split by two", {"replace": "gc_cluster_sync();"}),
    "no wait for the last reader": ("split by two", {"replace": "gc_cluster_sync();", "occurrence": 1}),
    "nobody gives registers": ("registers change hands", {"replace": "gc_setmaxnreg_dec<40>();"}),
    "nobody takes registers": ("registers change hands", {"replace": "gc_setmaxnreg_inc<232>();"}),
    "a warp takes registers": (
        "registers change hands",
        {"replace": "gc_setmaxnreg_inc<232>();", "by": "if (id < 32) gc_setmaxnreg_inc<232>();"},
    ),
    "a store before all have written": ("tma store", {"replace": "gc_named_barrier(2, 128);"}),
    "a store of what was not fenced": ("tma store", {"replace": "gc_fence_proxy_async();"}),
    "no wait for the store": ("tma store", {"replace": "gc_tma_store_wait<0>();"}),
    "chunks of the next row": ("tma store", {"replace": "line / 2 % 4", "by": "line % 4"}),
    "a mask of one": ("b for two", {"replace": ", batch, 3)", "by": ", batch, 1)"}),
    "both load the same half": ("b for two", {"replace": "first_column + rank * 16", "by": "first_column"}),
    "arrivals at home": ("b for two", {"replace": "stage_before, 1)", "by": "stage_before, 0)"}),
    "a wait of the block for the cluster": (
        "b for two",
        {"replace": "gc_mbarrier_wait_cluster", "by": "gc_mbarrier_wait"},
    ),
    "barriers that the other may not know": ("b for two", {"replace": "gc_cluster_sync();", "by": "__syncthreads();"}),
    "the other tap": ("3x3", {"replace": "step % 3, step / 3", "by": "step / 3, step % 3"}),
}
RACES = {
    "nothing": ("bf16, two warpgroups", {}),
    "nothing, split": ("split by two", {}),
    "nothing, registers and store": ("everything", {}),
    "nothing, for two": ("a for two", {}),
    "loads that do not wait for the other's readers": (
        "a for two",
        {"replace": "gc_mbarrier_wait_cluster(empty + stage, parity);"},
    ),
    "no barrier before the ring is left": ("everything", {"replace": "gc_named_barrier(1, 256);"}),
    "a stage given back early": ("bf16, two warpgroups", {"replace": "empty + stage_before", "by": "empty + stage"}),
    "no barrier before the sums are left": ("bf16, two warpgroups", {"replace": "gc_named_barrier(1, 256);"}),
    "no barrier after that": ("bf16, two warpgroups", {"replace": "gc_named_barrier(1, 256);", "occurrence": 1}),
}


@pytest.fixture(scope="module")
def mistaken():
    pairs = {m: (source_of(name), change) for m, (name, change) in MISTAKES.items()}
    built = compile_many([(broken(s.text, **change), s.name) for s, change in pairs.values()])
    return {m: (source, b) for (m, (source, _)), b in zip(pairs.items(), built, strict=True)}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_text_is_seen(mistake, mistaken):
    name, _ = MISTAKES[mistake]
    kernel, _ = CASES[name]
    _, inputs, _ = prepared(kernel, schedule_of(name))
    right = expected(kernel, inputs)

    def in_all_orders():
        for order in ORDERS:
            for x, y in zip(launch(name, *mistaken[mistake], order=order), right, strict=True):
                assert_matches(x, y, terms=200)

    with pytest.raises((AssertionError, CudaOnCpuError)):
        in_all_orders()


@pytest.fixture(scope="module")
def watched():
    pairs = {m: (source_of(name), change) for m, (name, change) in RACES.items()}
    texts = [(broken(s.text, **change) if change else s.text, s.name) for s, change in pairs.values()]
    built = compile_many(texts, sanitizer="thread")
    return {m: (source, b) for (m, (source, _)), b in zip(pairs.items(), built, strict=True)}


@pytest.mark.parametrize("mistake", RACES)
def test_a_missing_wait_is_a_race_and_there_is_none_otherwise(mistake, watched):
    name, change = RACES[mistake]
    if not change:
        launch(name, *watched[mistake])
        return
    with pytest.raises((RaceError, CudaOnCpuError)):
        launch(name, *watched[mistake])


def test_a_map_with_another_swizzle_gives_another_answer(compiled):
    kernel, _ = CASES["f16"]

    outputs = launch("f16", *compiled["f16"], change=lambda spec: replace(spec, swizzle=0))

    with pytest.raises(AssertionError):
        assert_matches(outputs[0], expected(kernel, random_inputs(kernel))[0], terms=200)


# ---- a whole model ----


def test_a_model_of_f16_is_compiled_to_the_engine_saved_and_gives_the_answer(tmp_path, monkeypatch):
    monkeypatch.setattr(replacing, "back_end", lambda language: (lambda kernel, features: (FAMILY,), render))
    network, w, b, u = f16_model()
    x = np.random.default_rng(9).standard_normal((37, 72)).astype(np.float16)

    gpucomp.compile(network, target="cuda:sm_90a").save(tmp_path / "model.gpuc")
    executable = gpucomp.load(tmp_path / "model.gpuc")
    kernels = executable.plan.kernels

    assert [k.family for k in kernels] == ["contraction/wgmma"] * 2
    assert [[m.extents for m in k.tensor_maps] for k in kernels] == [[(72, 37), (72, 40)], [(40, 37), (40, 24)]]
    found = ModelOnCpu(executable).run({"x": x})["y"]
    hidden = np.maximum((x.astype(np.float64) @ w).astype(np.float16) + b, 0)
    assert_matches(found, (hidden.astype(np.float64) @ u).astype(np.float16), terms=72)


def test_a_shortcut_is_a_part_of_the_last_product_of_its_block():
    rng = np.random.default_rng(5)
    shapes = {"w0": (64, 24), "w1": (72, 64), "w2": (96, 72), "w3": (96, 64)}
    weights = {n: (rng.standard_normal((*s, 1, 1)) / 8).astype(np.float32) for n, s in shapes.items()}
    weights |= {n: rng.standard_normal(m).astype(np.float32) for n, m in (("b1", 72), ("b2", 96), ("b3", 96))}
    nodes = [
        node("Conv", ["x", "w0"], ["i"]),
        node("Relu", ["i"], ["a"]),
        node("Conv", ["a", "w1", "b1"], ["c"], strides=[2, 2]),
        node("Relu", ["c"], ["b"]),
        node("Conv", ["b", "w2", "b2"], ["p"]),
        node("Conv", ["a", "w3", "b3"], ["q"], strides=[2, 2]),
        node("Add", ["p", "q"], ["s"]),
        node("Relu", ["s"], ["y"]),
    ]
    x = rng.standard_normal((1, 24, 9, 13)).astype(np.float32)
    executable = gpucomp.compile(
        model(nodes, [value("x", x.shape)], weights=weights), target="cuda:sm_90a", precision="fp16"
    )

    found = ModelOnCpu(executable).run({"x": x})["y"]

    assert [len(k.tensor_maps) for k in executable.plan.kernels][2:] == [3]
    half = {n: w.astype(np.float16).astype(np.float64) for n, w in weights.items()}
    i, *others = (np.squeeze(half[n], (2, 3)) for n in shapes)
    a = np.maximum(np.einsum("oi,nihw->nohw", i, x.astype(np.float16)), 0).astype(np.float16)[..., ::2, ::2]
    b1, b2 = weights["b1"][:, None, None], (weights["b2"] + weights["b3"])[:, None, None]
    b = np.maximum(np.einsum("oi,nihw->nohw", others[0], a) + b1, 0).astype(np.float16)
    y = np.einsum("oi,nihw->nohw", others[1], b) + np.einsum("oi,nihw->nohw", others[2], a) + b2
    assert_matches(found.astype(np.float16), np.maximum(y, 0).astype(np.float16), terms=136)
