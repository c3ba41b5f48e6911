"""The tcgen05 engine on the CPU harness: numpy's results in any thread order, mutations are detected, a whole model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import gpucomp
from gpucomp import replacing
from gpucomp.kernel.interpreter import UNWRITTEN, expected
from gpucomp.kernels_templates.render import render
from testing.cases.tcgen05 import CASES
from testing.cuda_on_cpu.harness import ORDERS, CudaOnCpuError, Mapped, RaceError, compile_many
from testing.cuda_on_cpu.whole_models import ModelOnCpu
from testing.kernels import random_inputs
from testing.tcgen05_kernels import FAMILY, TARGET
from testing.tolerance import assert_matches
from testing.wgmma_kernels import f16_model, prepared
from tests.cuda_on_cpu.kernel_files import broken


def schedule_of(name):
    kernel, schedule = CASES[name]
    return schedule or dict(FAMILY.default(FAMILY.problem(kernel), TARGET.limits).numbers)


def source_of(name):
    kernel, _, _ = prepared(CASES[name][0], schedule_of(name), FAMILY)
    return render(kernel, schedule_of(name), TARGET, f"t{list(CASES).index(name)}", FAMILY)


@pytest.fixture(scope="module")
def compiled():
    sources = {name: source_of(name) for name in CASES}
    built = compile_many([(s.text, s.name) for s in sources.values()])
    return dict(zip(sources, zip(sources.values(), built, strict=True), strict=True))


def launch(name, source, built, order="forward", change=lambda spec: spec):
    """The outputs of one launch."""
    kernel, _, inputs = prepared(CASES[name][0], schedule_of(name), FAMILY)
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
    assert not FAMILY.reasons(schedule_of(name), FAMILY.problem(kernel), TARGET.limits)

    results = [launch(name, *compiled[name], order=order) for order in ORDERS]

    _, inputs, _ = prepared(kernel, schedule_of(name), FAMILY)
    terms = int(np.prod([v.extent for v in kernel.body.k]))
    for actual, right in zip(results[0], expected(kernel, inputs), strict=True):
        assert_matches(actual, right, terms=terms)
    for other in results[1:]:
        for x, y in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(x, y)


# ---- mistakes ----

MISTAKES = {
    "no wait for the bytes": ("f16", {"replace": "gc_mbarrier_wait(full + stage, parity);"}),
    "the wrong parity": ("f16", {"replace": "unsigned parity = 1;", "by": "unsigned parity = 0;"}),
    "too many bytes announced": ("f16", {"replace": "expect_tx(full + stage, 12288)", "by": "expect_tx(full, 12800)"}),
    "no fence of the barriers": ("f16", {"replace": "gc_fence_barrier_init();"}),
    "no allocation": ("f16", {"replace": "if (id / 32 == 1) gc_tcgen05_alloc(allocated, 32);"}),
    "too few columns": (
        "96 columns",
        {"replace": "gc_tcgen05_alloc(allocated, 128)", "by": "gc_tcgen05_alloc(allocated, 64)"},
    ),
    "two warps allocate": (
        "f16",
        {"replace": "if (id / 32 == 1) gc_tcgen05_alloc", "by": "if (id / 32 < 2) gc_tcgen05_alloc"},
    ),
    "no fence after the allocation": ("f16", {"replace": "gc_tcgen05_fence_before();"}),
    "no fence before its use": ("f16", {"replace": "gc_tcgen05_fence_after();"}),
    "an address that was not asked for": ("f16", {"replace": "sums_at = *allocated", "by": "sums_at = 0"}),
    "nothing is freed": ("f16", {"replace": "gc_tcgen05_free(sums_at, 32);"}),
    "freed before all have loaded": ("f16", {"replace": "gc_named_barrier(1, 128);"}),
    "no fence after the loads": ("f16", {"replace": "gc_tcgen05_fence_before();", "occurrence": 1}),
    "no fence before it is freed": ("f16", {"replace": "gc_tcgen05_fence_after();", "occurrence": 2}),
    "no wait for the products": ("f16", {"replace": "gc_mbarrier_wait(done, 0);"}),
    "no fence after that wait": ("f16", {"replace": "gc_tcgen05_fence_after();", "occurrence": 1}),
    "no arrival of the products": ("f16", {"replace": "gc_tcgen05_commit(done);"}),
    "an arrival before the products": (
        "f16",
        {"replace": "gc_tcgen05_commit(done);", "by": "gc_mbarrier_arrive(done);"},
    ),
    "stages that are never empty": ("f16", {"replace": "gc_tcgen05_commit(empty + stage);", "by": ";"}),
    "stages that are empty too early": (
        "f16",
        {"replace": "gc_tcgen05_commit(empty + stage);", "by": "gc_mbarrier_arrive(empty + stage);"},
    ),
    "no wait for the loads": ("f16", {"replace": "gc_tcgen05_wait_load<32>(acc);"}),
    "what was there is added to": ("f16", {"replace": "step > 0 || k > 0", "by": "true"}),
    "each step begins anew": ("f16", {"replace": "step > 0 || k > 0", "by": "k > 0"}),
    "another depth": ("f16", {"replace": "rows + 2 * k", "by": "rows + 2 * (k ^ 1)"}),
    "another instruction": ("f16", {"replace": "gc_tcgen05_f16<64, 32>", "by": "gc_tcgen05_bf16<64, 32>"}),
    "half of the columns": ("f16", {"replace": "gc_tcgen05_f16<64, 32>", "by": "gc_tcgen05_f16<64, 16>"}),
    "lanes of 128 rows": ("f16", {"replace": "gc_tcgen05_f16<64, 32>", "by": "gc_tcgen05_f16<128, 32>"}),
    "the second half of a warp's lanes": (
        "f16, 128 rows",
        {"replace": "my_sums + 1048576 + first", "by": "my_sums + first"},
    ),
    "another warp's lanes": ("f16", {"replace": "id / 32 % 4 << 21", "by": "(id / 32 ^ 1) % 4 << 21"}),
    "the other product": ("bf16, 256 rows", {"replace": "sums_at + 64", "by": "sums_at"}),
    "no wait for the first part": ("split by two", {"replace": "gc_cluster_sync();"}),
    "no wait for the last reader": ("split by two", {"replace": "gc_cluster_sync();", "occurrence": 1}),
    "sums that nobody made": (
        "split with nothing left for some",
        {"replace": "if (first_step >= last_step)", "by": "if (false)"},
    ),
    "a store before all have written": ("tma store", {"replace": "gc_named_barrier(1, 128);"}),
    "a store of what was not fenced": ("tma store", {"replace": "gc_fence_proxy_async();"}),
    "no wait for the store": ("tma store", {"replace": "gc_tma_store_wait<0>();"}),
    "chunks of the next row": ("tma store", {"replace": "line / 2 % 4", "by": "line % 4"}),
    "a mask of one": ("b for two", {"replace": ", batch, 3)", "by": ", batch, 1)"}),
    "arrivals at home": ("b for two", {"replace": "empty + stage, 3)", "by": "empty + stage, 1)"}),
    "a wait of the block for the cluster": (
        "b for two",
        {"replace": "gc_mbarrier_wait_cluster", "by": "gc_mbarrier_wait"},
    ),
    "barriers that the other may not know": ("b for two", {"replace": "gc_cluster_sync();", "by": "__syncthreads();"}),
    "an allocation before the other one runs": ("a pair", {"replace": "gc_cluster_sync();  // both run"}),
    "bytes that both announce": ("a pair", {"replace": "if (rank == 0) gc_mbarrier", "by": "gc_mbarrier"}),
    "bytes of one": ("a pair", {"replace": "36864);\n        gc_tma", "by": "18432);\n        gc_tma"}),
    "loads that are counted at home": ("a pair", {"replace": "gc_tma_load_2d_pair(to, ", "by": "gc_tma_load_2d(to, "}),
    "products of the second one": ("a pair", {"replace": "rank == 0 && gc_elect", "by": "rank == 1 && gc_elect"}),
    "products of both": ("a pair", {"replace": "rank == 0 && gc_elect_one()", "by": "gc_elect_one()"}),
    "columns of the other one": ("a pair", {"replace": "rank * 16", "by": "(1 - rank) * 16"}),
    "all columns at both": ("a pair", {"replace": "first_column + rank * 16", "by": "first_column"}),
    "sums that the other one has not left": (
        "a pair",
        {
            "replace": "gc_cluster_sync();\n  if (id / 32 == 1) {",
            "by": "gc_named_barrier(1, 128);\n  if (id / 32 == 1) {",
        },
    ),
    "an end before the other one has left": ("a pair", {"replace": "gc_cluster_sync();  // neither", "by": "//"}),
    "an arrival at one": ("a pair", {"replace": "gc_tcgen05_commit_pair(done)", "by": "gc_tcgen05_commit(done)"}),
    "the second half of a pair's rows": ("a pair, 256 rows", {"replace": "rows + 1024 + 2 * k", "by": "rows + 2 * k"}),
    "sums that are not yet taken": ("turns", {"replace": "gc_mbarrier_wait(left + turn % 2, (turn / 2 & 1) ^ 1);"}),
    "sums that are never left": ("turns", {"replace": "if (id == 0) gc_mbarrier_arrive(left + turn % 2);"}),
    "sums of the other turn": ("turns", {"replace": "sums = sums_at + turn % 2 * 32", "by": "sums = sums_at"}),
    "the end of the other turn": ("turns", {"replace": "done + turn % 2, turn / 2", "by": "done, turn"}),
    "tiles of another work-group": ("turns", {"replace": "tile += 6", "by": "tile += 5", "occurrence": 2}),
    "a tile too few": ("turns", {"replace": "tile < 18", "by": "tile < 17", "occurrence": 2}),
    "stages that are not told of before the last tile": ("turns of a pair", {"replace": ") * 4;", "by": ") * 4 - 1;"}),
    "a result over one that is read": ("turns", {"replace": "gc_tma_store_wait_read<0>();"}),
    "an end before the result is stored": ("turns", {"replace": "if (id % 128 == 0) gc_tma_store_wait<0>();"}),
    "an arrival that no load waits for": (
        "b for two",
        {"replace": "if (step < 3) gc_tcgen05_commit", "by": "gc_tcgen05_commit"},
    ),
    "a pair's arrival that no load waits for": (
        "a pair",
        {"replace": "if (step < 2) gc_tcgen05_commit", "by": "gc_tcgen05_commit"},
    ),
    "an arrival of the last turn that no load waits for": (
        "turns of a pair",
        {"replace": "if (--more >= 2) gc_tcgen05_commit", "by": "gc_tcgen05_commit"},
    ),
    "a pair's sums that the other one has not taken": (
        "turns of a pair",
        {"replace": "gc_mbarrier_init(left + i, 2)", "by": "gc_mbarrier_init(left + i, 1)"},
    ),
    "a pair's sums that are left at home": (
        "turns of a pair",
        {"replace": "gc_mbarrier_arrive_cluster(left + turn % 2, 0)", "by": "gc_mbarrier_arrive(left + turn % 2)"},
    ),
    "the other tap": ("3x3", {"replace": "step % 3, step / 3", "by": "step / 3, step % 3"}),
}
RACES = {
    "nothing": ("bf16, 256 rows", {}),
    "nothing, split": ("split by two", {}),
    "nothing, and store": ("everything", {}),
    "nothing, for two": ("a for two", {}),
    "nothing, a pair": ("a pair, 256 rows", {}),
    "nothing, a pair, and store": ("a pair, everything", {}),
    "nothing, by turns": ("turns", {}),
    "nothing, a pair by turns": ("turns of a pair", {}),
    "a result over one that is stored": ("turns", {"replace": "if (turn > 0) gc_named_barrier(1, 128);"}),
    "a ring that a pair leaves before its products are done": (
        "a pair",
        {"replace": "gc_mbarrier_wait_cluster(done, 0);"},
    ),
    "a pair's loads that do not wait": ("a pair", {"replace": "gc_mbarrier_wait_cluster(empty + stage, parity);"}),
    "loads that do not wait for the other's readers": (
        "a for two",
        {"replace": "gc_mbarrier_wait_cluster(empty + stage, parity);"},
    ),
    "the ring is left before the products are done": ("bf16, 256 rows", {"replace": "gc_mbarrier_wait(done, 0);"}),
    "no barrier after the sums are left": ("bf16, 256 rows", {"replace": "gc_named_barrier(1, 256);"}),
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
    _, inputs, _ = prepared(kernel, schedule_of(name), FAMILY)
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
    model, w, b, u = f16_model()
    x = np.random.default_rng(9).standard_normal((37, 72)).astype(np.float16)

    gpucomp.compile(model, target="cuda:sm_100").save(tmp_path / "model.gpuc")
    executable = gpucomp.load(tmp_path / "model.gpuc")
    kernels = executable.plan.kernels

    assert [k.family for k in kernels] == ["contraction/tcgen05"] * 2
    assert [[m.extents for m in k.tensor_maps] for k in kernels] == [
        [(72, 37), (72, 40)],
        [(40, 37), (40, 24), (24, 37)],  # TMA stores the second result
    ]
    found = ModelOnCpu(executable).run({"x": x})["y"]
    hidden = np.maximum((x.astype(np.float64) @ w).astype(np.float16) + b, 0)
    assert_matches(found, (hidden.astype(np.float64) @ u).astype(np.float16), terms=72)
