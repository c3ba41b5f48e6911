"""The wgmma engine: numpy's answer on the CPU in any thread order, each mistake seen, what it refuses, what ptxas says."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from cuda_on_cpu.harness import ORDERS, CudaOnCpuError, Mapped, RaceError, compile_many
from cuda_on_cpu.kernel_files import broken
from cuda_on_cpu.whole_models import ModelOnCpu
from kernel_oracle import UNWRITTEN, expected
from kernels import conv, grouped_conv, into_part, matmul, random_inputs
from onnx import TensorProto, helper, numpy_helper
from tolerance import assert_matches

import gpucomp
from gpucomp import compiler
from gpucomp.codegen.families import FAMILIES, engines_of
from gpucomp.codegen.render import render
from gpucomp.codegen.tma import Matrix, Pixels, form_of_a, matrix_of, result_matrix
from gpucomp.errors import ScheduleError
from gpucomp.expr.core import call, cast, select
from gpucomp.ir.types import BF16, F16, F32, F64, I8, I32
from gpucomp.kernels_templates.contraction import wgmma
from gpucomp.packing import pack, packed_constant
from gpucomp.schedule import rank
from gpucomp.schedule.analytic import demand
from gpucomp.schedule.space import Digit, Packing
from gpucomp.targets import cuda, sass

FAMILY = FAMILIES["contraction/wgmma"]
TARGET = cuda.manifest("sm_90a")
TILE = {"tile_m": 64, "tile_n": 32, "consumers": 1, "stages": 2, "splits": 1, "overlap": 0,
        "setmaxnreg": 0, "multicast": 0, "tma_store": 0}  # fmt: skip


def with_math(kernel, math="tf32"):
    return replace(kernel, body=replace(kernel.body, math=math))


def constant_b(kernel):
    """``kernel`` with its second input known when the model is compiled."""
    return replace(kernel, constants=frozenset({1}))


def image(*args, **options):
    return constant_b(conv(*args, **options))


def one_result(kernel):
    """``kernel`` without its second result."""
    return replace(kernel, params=kernel.params[:-1], outputs=1, stores=kernel.stores[:1])


TWO = TILE | {"tile_m": 128, "consumers": 2}
TMA_STORE = TILE | {"tma_store": 1}

# kernel, schedule, and what the schedule is there for
CASES = {
    "f16": (matmul(100, 72, 200, dtype=F16, b_transposed=True), TILE),
    "bf16, two warpgroups": (matmul(137, 23, 328, dtype=BF16, b_transposed=True),
                             TILE | {"tile_m": 128, "consumers": 2, "tile_n": 16}),
    "128 rows a warpgroup": (matmul(150, 20, 136, dtype=F16, b_transposed=True), TILE | {"tile_m": 128, "tile_n": 8}),
    "three warpgroups": (matmul(200, 100, 72, dtype=F16, b_transposed=True),
                         TILE | {"tile_m": 192, "consumers": 3, "tile_n": 96}),
    "tf32": (with_math(matmul(65, 40, 100, b_transposed=True)), TILE | {"stages": 3}),
    "i8": (matmul(67, 33, 208, dtype=I8, acc=I32, b_transposed=True), TILE),
    "batched": (matmul(70, 17, 24, batch=(3, 2), dtype=F16, b_transposed=True), TILE),
    "a batch of one": (matmul(66, 17, 24, batch=(1,), dtype=F16, b_transposed=True), TILE),
    "one row": (matmul(1, 100, 520, dtype=F16, b_transposed=True), TILE | {"tile_n": 64, "stages": 4}),
    "one column": (matmul(65, 1, 64, dtype=F16, b_transposed=True), TILE | {"tile_n": 8}),
    "one step": (matmul(64, 64, 8, dtype=F16, b_transposed=True), TILE | {"tile_n": 64}),
    "split by two": (matmul(100, 50, 264, dtype=F16, b_transposed=True), TILE | {"splits": 2}),
    "split by eight": (matmul(70, 36, 648, dtype=F16, b_transposed=True), TILE | {"splits": 8, "stages": 3}),
    "split with nothing left for some": (matmul(30, 16, 136, dtype=F16, b_transposed=True), TILE | {"splits": 8}),
    "split tf32": (with_math(matmul(64, 40, 160, b_transposed=True)), TILE | {"splits": 4}),
    "split i8": (matmul(67, 24, 400, dtype=I8, acc=I32, b_transposed=True), TILE | {"splits": 2}),
    "overlapping": (matmul(65, 32, 200, dtype=F16, b_transposed=True), TILE | {"overlap": 1}),
    "overlapping, b early": (constant_b(matmul(65, 32, 328, dtype=F16, b_transposed=True)), TILE | {"overlap": 2}),
    "b early, split": (constant_b(matmul(65, 32, 328, dtype=F16, b_transposed=True)),
                       TILE | {"overlap": 2, "splits": 2, "stages": 4}),
    "packed": (constant_b(matmul(66, 20, 72, dtype=F16)), TILE),
    "into a part": (into_part(matmul(66, 24, 72, dtype=F16, b_transposed=True), 1, 5, 3), TILE),
    "1x1": (image((1, 9, 11, 40), 24, (1, 1), dtype=F16), TILE),
    "3x3": (image((2, 9, 7, 24), 40, (3, 3), pad=1, dtype=F16), TILE),
    "3x3 of two blocks": (image((1, 13, 11, 16), 24, (3, 3), pad=1, dtype=F16), TILE | {"tile_m": 128}),
    "3x3 of many channels": (image((1, 6, 5, 88), 16, (3, 3), pad=1, dtype=BF16), TILE | {"tile_n": 16, "stages": 4}),
    "strided": (image((1, 12, 15, 16), 24, (3, 3), stride=2, pad=1, dtype=F16), TILE),
    "strided 1x1": (image((2, 9, 8, 32), 16, (1, 1), stride=2, dtype=F16), TILE),
    "dilated": (image((1, 12, 9, 8), 12, (3, 2), dilation=2, pad=1, dtype=F16), TILE | {"tile_n": 16}),
    "no padding": (image((1, 7, 9, 16), 8, (2, 3), dtype=F16), TILE | {"tile_n": 8}),
    "one column of taps": (image((1, 9, 6, 16), 8, (3, 1), dtype=F16), TILE | {"tile_n": 8}),
    "conv tf32": (with_math(image((1, 7, 6, 20), 12, (3, 3), pad=1)), TILE | {"tile_n": 16}),
    "conv split": (image((1, 7, 7, 72), 24, (3, 3), pad=1, dtype=F16), TILE | {"splits": 4}),
    "conv, b early": (image((1, 7, 7, 72), 24, (3, 3), pad=1, dtype=F16), TILE | {"overlap": 2, "stages": 4}),
    "registers change hands": (matmul(137, 23, 328, dtype=BF16, b_transposed=True),
                               TWO | {"tile_n": 16, "setmaxnreg": 1}),
    "of three, split": (matmul(200, 40, 136, dtype=F16, b_transposed=True),
                        TILE | {"tile_m": 192, "consumers": 3, "setmaxnreg": 1, "splits": 2}),
    "tma store": (image((2, 9, 7, 24), 40, (3, 3), pad=1, dtype=F16), TMA_STORE),
    "tma store, short rows": (one_result(matmul(70, 56, 72, dtype=BF16, b_transposed=True)), TMA_STORE | {"tile_n": 48}),
    "tma store, two blocks": (one_result(matmul(139, 72, 72, batch=(2,), dtype=F16, b_transposed=True)),
                              TMA_STORE | {"tile_m": 128, "tile_n": 128}),
    "tma store f32": (with_math(one_result(matmul(137, 44, 40, b_transposed=True))), TMA_STORE | TWO | {"tma_store": 1}),
    "tma store f32, short rows": (with_math(one_result(matmul(67, 52, 40, b_transposed=True))), TMA_STORE | {"tile_n": 48}),
    "tma store f32, shortest": (with_math(one_result(matmul(67, 12, 40, b_transposed=True))), TMA_STORE | {"tile_n": 8}),
    "tma store into a part": (into_part(one_result(matmul(66, 24, 72, dtype=F16, b_transposed=True)), 1, 8, 16),
                              TMA_STORE | {"tile_n": 96}),
    "b for two": (matmul(150, 40, 328, batch=(2,), dtype=F16, b_transposed=True), TILE | {"multicast": 1, "stages": 3}),
    "a for two": (matmul(70, 90, 200, batch=(3,), dtype=BF16, b_transposed=True), TILE | {"multicast": 2}),
    "b for two, one pair": (constant_b(matmul(65, 16, 520, dtype=F16)),
                            TILE | {"tile_n": 16, "multicast": 1, "overlap": 2}),
    "taps for two": (image((2, 9, 7, 24), 40, (3, 3), pad=1, dtype=F16), TILE | {"multicast": 1, "tma_store": 1}),
    "pixels for two": (image((1, 13, 11, 72), 40, (3, 3), pad=1, dtype=F16), TILE | {"multicast": 2, "overlap": 1}),
    "everything": (image((1, 13, 11, 72), 48, (3, 3), stride=2, pad=1, dtype=F16),
                   TWO | {"setmaxnreg": 1, "multicast": 1, "tma_store": 1, "overlap": 2, "stages": 4}),
    "default": (image((1, 14, 14, 64), 32, (3, 3), pad=1, dtype=F16), None),
}  # fmt: skip


def problem_of(kernel):
    return SimpleNamespace(**FAMILY.problem(kernel))


def prepared(kernel, schedule):
    """The kernel and inputs that the engine is given: ``b`` packed where it asks for it. f32 as tf32 holds it."""
    inputs = random_inputs(kernel)
    if kernel.body.math == "tf32":
        inputs = [to_tf32(x) if x.dtype == np.float32 else x for x in inputs]
    wanted = FAMILY.packing(kernel, SimpleNamespace(**schedule), problem_of(kernel))
    if wanted is None:
        return kernel, inputs, inputs
    packed = pack(kernel, wanted)
    return packed.kernel, inputs, [*(inputs[k] for k in packed.kept), packed_constant(packed, inputs)]


def to_tf32(x):
    """Rounded to 10 bits of fraction, ties to even: products of such numbers are exact in f64, so the oracle's."""
    bits = x.view(np.uint32)
    return ((bits + np.uint32(0xFFF) + (bits >> 13 & 1)) & np.uint32(0xFFFFE000)).view(np.float32)


def schedule_of(name):
    kernel, schedule = CASES[name]
    return schedule or dict(FAMILY.default(problem_of(kernel), TARGET.limits))


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
        "registers change hands", {"replace": "gc_setmaxnreg_inc<232>();", "by": "if (id < 32) gc_setmaxnreg_inc<232>();"}
    ),
    "a store before all have written": ("tma store", {"replace": "gc_named_barrier(2, 128);"}),
    "a store of what was not fenced": ("tma store", {"replace": "gc_fence_proxy_async();"}),
    "no wait for the store": ("tma store", {"replace": "gc_tma_store_wait<0>();"}),
    "chunks of the next row": ("tma store", {"replace": "line / 2 % 4", "by": "line % 4"}),
    "a mask of one": ("b for two", {"replace": ", batch, 3)", "by": ", batch, 1)"}),
    "both load the same half": ("b for two", {"replace": "first_column + rank * 16", "by": "first_column"}),
    "arrivals at home": ("b for two", {"replace": "stage_before, 1)", "by": "stage_before, 0)"}),
    "a wait of the block for the cluster": ("b for two", {"replace": "gc_mbarrier_wait_cluster", "by": "gc_mbarrier_wait"}),
    "barriers that the other may not know": ("b for two", {"replace": "gc_cluster_sync();", "by": "__syncthreads();"}),
    "the other tap": ("3x3", {"replace": "step % 3, step / 3", "by": "step / 3, step % 3"}),
}  # fmt: skip
RACES = {
    "nothing": ("bf16, two warpgroups", {}),
    "nothing, split": ("split by two", {}),
    "nothing, registers and store": ("everything", {}),
    "nothing, for two": ("a for two", {}),
    "loads that do not wait for the other's readers": (
        "a for two", {"replace": "gc_mbarrier_wait_cluster(empty + stage, parity);"}
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


# ---- what it takes ----


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (matmul(64, 64, 64, dtype=F16, b_transposed=True), ""),
        (matmul(64, 64, 64, dtype=F16), "b is not contiguous in depth"),
        (constant_b(matmul(64, 64, 64, dtype=F16)), ""),
        (matmul(64, 64, 64, dtype=F16, b_transposed=True, a_transposed=True), "a is not contiguous in depth"),
        (matmul(64, 64, 63, dtype=F16, b_transposed=True), "rows of a do not start at multiples of 16 bytes"),
        (matmul(1, 64, 63, dtype=F16, b_transposed=True), "rows of b do not start at multiples of 16 bytes"),
        (constant_b(matmul(1, 64, 63, dtype=F16)), "a depth of 63 f16 is no multiple of 16 bytes"),
        (matmul(64, 64, 64, b_transposed=True), "does not multiply f32 by f32 into f32 (strict)"),
        (with_math(matmul(64, 64, 64, b_transposed=True)), ""),
        (with_math(matmul(64, 64, 64, b_transposed=True), "3xtf32"), "into f32 (3xtf32)"),
        (matmul(64, 64, 64, dtype=F64, acc=F64, b_transposed=True), "does not multiply f64"),
        (matmul(64, 64, 0, dtype=F16, b_transposed=True), "nothing to multiply"),
        (image((1, 9, 9, 8), 8, (3, 3), pad=1, dtype=F16), ""),
        (image((1, 9, 9, 4), 8, (3, 3), pad=1, dtype=F16), "4 channels of f16 are no multiple of 16 bytes"),
        (image((1, 9, 9, 8), 8, (3, 3), pad=1, nchw=True, dtype=F16), "not the pixels of an NHWC image"),
        (image((1, 30, 30, 8), 8, (1, 1), stride=9, dtype=F16), "one load walks by 1 to 8"),
        (image((1, 30, 300, 8), 8, (1, 2), dilation=256, dtype=F16), "too large for one load"),
        (image((1, 9, 9, 8), 8, (3, 3), pad=129, dtype=F16), "moved by more than 127 pixels"),
        (constant_b(with_math(grouped_conv((1, 5, 6, 8), 2, 5, (2, 2)))), "not the pixels of an NHWC image"),
    ],
)
def test_what_the_engine_refuses_and_why(kernel, reason):
    found = FAMILY.accepts(kernel, TARGET.features)

    assert bool(found) == bool(reason)
    assert reason in found


def test_an_operand_that_is_computed_is_refused():
    kernel = matmul(64, 64, 64, dtype=F16, b_transposed=True)
    a = call("max", kernel.body.a.value, 0)
    computed = replace(kernel, body=replace(kernel.body, a=cast(a, F32)))

    assert "a is computed while it is loaded" in FAMILY.accepts(computed, TARGET.features)
    with pytest.raises(ScheduleError, match="a is computed while it is loaded"):
        render(computed, TILE, TARGET, "k0", FAMILY)


@pytest.mark.parametrize(("arch", "takes"), [("sm_80", False), ("sm_90a", True), ("sm_100", False), ("sm_120", False)])
def test_only_sm_90a_has_the_engine(arch, takes):
    kernel = matmul(64, 64, 64, dtype=F16, b_transposed=True)

    found = engines_of(kernel, cuda.manifest(arch).features)

    assert (FAMILY in found) == takes
    assert found[-1] is FAMILIES["contraction/simt"]
    if takes:
        assert found[0] is FAMILY, "it comes before the engines that every architecture has"


def test_a_condition_that_is_no_edge_is_refused():
    kernel = image((1, 9, 9, 8), 8, (3, 3), pad=1, dtype=F16)
    body = kernel.body
    narrower = select(call("and", body.a.condition, body.m[1] < 5), body.a.then, body.a.otherwise)
    assert isinstance(form_of_a(kernel), Pixels)

    assert (
        form_of_a(replace(kernel, body=replace(body, a=narrower))) == "a has a condition that is no edge of the image"
    )


def test_forms_say_where_elements_lie():
    a = form_of_a(matmul(70, 17, 24, batch=(3, 2), dtype=F16, b_transposed=True))
    b = matrix_of(matmul(70, 17, 24, batch=(3, 2), dtype=F16, b_transposed=True), "b")
    pixels = form_of_a(conv((2, 9, 7, 8), 4, (3, 2), stride=2, pad=1, dilation=2, dtype=F16))

    assert a == Matrix(0, F16, 0, 24, 70, 24, 6, 1680)
    assert b == Matrix(1, F16, 0, 24, 17, 24, 6, 408)
    assert pixels == Pixels(0, F16, (2, 9, 7, 8), (4, 4), (3, 2), (2, 2), (-1, -1), (2, 2))


def test_weights_are_packed_by_columns():
    kernel = constant_b(matmul(64, 24, 40, batch=(3,), dtype=F16))

    wanted = FAMILY.packing(kernel, SimpleNamespace(**TILE), problem_of(kernel))

    assert wanted == Packing("b", (Digit("batch", 1, 3), Digit("span", 1, 24), Digit("k", 1, 40)))
    already = matmul(64, 24, 40, dtype=F16, b_transposed=True)
    assert FAMILY.packing(constant_b(already), SimpleNamespace(**TILE), problem_of(already)) is None


# ---- the space ----

LARGE = matmul(4096, 4096, 4096, dtype=F16, b_transposed=True)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, ""),
        ({"tile_m": 192}, "1 warpgroups do not share 192 rows by 64 or 128"),
        ({"tile_m": 256, "consumers": 2, "tile_n": 128}, ""),
        ({"tile_m": 256, "consumers": 2, "tile_n": 256}, "registers per work-item"),
        ({"tile_m": 256, "consumers": 2, "tile_n": 192}, "about 224 registers per work-item, there are 168"),
        ({"tile_m": 128, "tile_n": 192}, ""),
        ({"tile_m": 128, "tile_n": 256}, "about 288 registers per work-item, there are 255"),
        ({"tile_m": 192, "consumers": 3, "tile_n": 192}, ""),
        ({"tile_m": 192, "consumers": 3, "tile_n": 256}, "about 160 registers per work-item, there are 128"),
        ({"tile_m": 192, "consumers": 3, "tile_n": 256, "setmaxnreg": 1}, "ptxas wants 154 registers for one wgmma"),
        ({"tile_m": 256, "consumers": 2, "tile_n": 192, "setmaxnreg": 1}, ""),
        ({"tile_m": 256, "consumers": 2, "tile_n": 256, "setmaxnreg": 1}, "about 288 registers per work-item, there are 232"),
        ({"setmaxnreg": 1}, "1 warpgroup that multiplies has all registers it can use"),
        ({"multicast": 1}, ""),
        ({"multicast": 2, "tile_n": 8}, ""),
        ({"multicast": 1, "tile_n": 8}, "half of 8 columns of b is no multiple of 8"),
        ({"multicast": 2, "splits": 2}, "a cluster shares the depth or the loads, not both"),
        ({"tma_store": 1}, "the result is no matrix of f16, bf16 or f32 with rows of whole 16 bytes"),
        ({"tile_m": 128, "consumers": 2, "tile_n": 256, "stages": 4}, ""),
        ({"tile_m": 128, "consumers": 2, "tile_n": 256, "stages": 5}, "B of shared memory, the device has 232448 B"),
        ({"overlap": 1}, ""),
        ({"overlap": 2}, "b is the result of another kernel"),
    ],
)
def test_schedules_that_cannot_run_say_why(change, reason):
    found = FAMILY.reasons(TILE | change, FAMILY.problem(LARGE), TARGET.limits)

    assert bool(found) == bool(reason)
    assert reason in "; ".join(found)


@pytest.mark.parametrize(
    ("kernel", "change", "reason"),
    [
        (one_result(LARGE), {}, ""),
        (one_result(LARGE), {"splits": 2}, "added up in order of the rows"),
        (one_result(LARGE), {"tile_n": 8}, "stmatrix takes 16 columns at a time"),
        (with_math(one_result(matmul(64, 44, 64, b_transposed=True))), {"tile_n": 8}, ""),
        (with_math(one_result(matmul(64, 42, 64, b_transposed=True))), {}, "rows of whole 16 bytes"),
        (into_part(one_result(matmul(64, 24, 64, dtype=F16, b_transposed=True)), 1, 8, 8), {}, ""),
        (into_part(one_result(matmul(64, 24, 64, dtype=F16, b_transposed=True)), 1, 4, 8), {}, "rows of whole 16 bytes"),
        (matmul(64, 64, 64, dtype=F16, b_transposed=True), {}, "the result is no matrix"),
    ],
)
def test_what_leaves_by_tma_is_one_aligned_matrix(kernel, change, reason):
    found = FAMILY.reasons(TMA_STORE | change, FAMILY.problem(kernel), TARGET.limits)

    assert bool(found) == bool(reason)
    assert reason in "; ".join(found)


def test_a_result_says_why_it_is_no_matrix():
    half, narrow = matmul(64, 24, 64, dtype=F16, b_transposed=True), matmul(64, 24, 64, dtype=I8, acc=I32)

    assert result_matrix(one_result(half)) == Matrix(3, F16, 0, 24, 64, 24, 1, 0)
    assert result_matrix(half) == "there are 2 results"
    assert result_matrix(one_result(narrow)) == "the result is i8, not f16, bf16, f32"
    nchw = conv((2, 9, 9, 8), 8, (3, 3), pad=1, nchw=True, dtype=F16)
    assert result_matrix(nchw) == "the result does not lie in memory as a matrix"
    one_image = conv((1, 9, 9, 8), 8, (3, 3), pad=1, nchw=True, dtype=F16)
    assert result_matrix(one_image) == "the result is not contiguous in its columns"


def test_too_many_tiles_and_threads_are_refused():
    p = FAMILY.problem(LARGE) | {"batch": 1 << 30}

    assert any("a launch has at most" in r for r in FAMILY.reasons(TILE, p, TARGET.limits))
    p = FAMILY.problem(LARGE) | {"m": (1 << 31) - 64, "n": 64}
    assert any("counted with 32 bits" in r for r in FAMILY.reasons(TILE, p, TARGET.limits))
    assert not FAMILY.reasons(TILE, p | {"m": (1 << 31) - 65}, TARGET.limits)
    small = replace(TARGET.limits, threads=128)
    assert any("the device allows 128" in r for r in FAMILY.reasons(TILE, FAMILY.problem(LARGE), small))


REAL = {
    "large": LARGE,
    "classifier": constant_b(matmul(1, 1000, 2048, dtype=F16)),
    "1x1": image((1, 14, 14, 1024), 256, (1, 1), dtype=F16),
    "deep": image((1, 7, 7, 512), 512, (3, 3), pad=1, dtype=F16),
    "wide": image((1, 56, 56, 64), 64, (3, 3), pad=1, dtype=F16),
    "strided": image((1, 56, 56, 128), 128, (3, 3), stride=2, pad=1, dtype=BF16),
    "tf32": with_math(matmul(512, 768, 768, b_transposed=True)),
    "i8": matmul(512, 512, 512, dtype=I8, acc=I32, b_transposed=True),
}


def ptxas(kernel, schedule):
    """What ptxas took for the kernel, its weights packed where the engine asks for it; and the log."""
    wanted = FAMILY.packing(kernel, SimpleNamespace(**schedule), problem_of(kernel))
    source = render(pack(kernel, wanted).kernel if wanted else kernel, schedule, TARGET, "k0", FAMILY)
    assert not [r for m in source.tensor_maps for r in m.objections()]
    _, log = cuda.compile_source(source, TARGET)
    return cuda.resources(log)["k0"], log


@pytest.mark.parametrize("name", REAL)
def test_defaults_are_legal_and_spill_nothing(name):
    p = problem_of(REAL[name])
    schedule = dict(FAMILY.default(p, TARGET.limits))
    assert not FAMILY.reasons(schedule, vars(p), TARGET.limits)

    used, _ = ptxas(REAL[name], schedule)

    assert used.spill_stores == used.spill_loads == used.stack_bytes == 0
    assert_registers(used, schedule, p)


def assert_registers(used, schedule, p):
    """The formula's; with setmaxnreg all that a launch leaves a thread, or the consumers would wait for more forever."""
    s = SimpleNamespace(**schedule)
    if s.setmaxnreg:
        assert used.registers == wgmma.launch_registers(s, TARGET.limits), schedule
        given, taken = wgmma.TRADES[s.consumers]
        assert given + s.consumers * taken <= (1 + s.consumers) * used.registers
    else:
        assert wgmma.accumulators(s) < used.registers <= wgmma.registers(s, p), schedule


def test_deep_layers_are_split_and_large_ones_are_not():
    deep, large = (dict(FAMILY.default(problem_of(REAL[n]), TARGET.limits)) for n in ("deep", "large"))

    assert deep["splits"] > 1
    assert large["splits"] == 1
    assert large["tile_m"] * large["tile_n"] >= 128 * 128


def test_loads_are_shared_where_there_is_more_than_a_wave_and_results_leave_by_tma_where_nothing_is_read_beside():
    def chosen(kernel):
        return FAMILY.default(problem_of(kernel), TARGET.limits)

    plain, residual = one_result(LARGE), image((8, 56, 56, 64), 64, (3, 3), pad=1, dtype=F16)
    wave = one_result(matmul(1024, 1024, 4096, dtype=F16, b_transposed=True))

    assert (chosen(plain)["multicast"] > 0, chosen(plain)["tma_store"]) == (True, 1)
    assert problem_of(residual).out_bytes == 2
    assert chosen(residual)["tma_store"] == 0
    assert chosen(wave)["multicast"] == 0


def test_registers_are_taken_by_tiles_that_cannot_do_without():
    kernel = one_result(matmul(1 << 13, 3 << 11, 1 << 12, dtype=F16, b_transposed=True))

    schedule = FAMILY.default(problem_of(kernel), TARGET.limits)

    assert schedule["setmaxnreg"] == (wgmma.accumulators(SimpleNamespace(**schedule)) + 32 > 168)


def machine_code(kernel, schedule):
    source = render(kernel, schedule, TARGET, "k0", FAMILY)
    return sass.instructions(cuda.compile_source(source, TARGET)[0])


@pytest.mark.skipif(sass.disassembler() is None, reason="nvdisasm is not installed")
def test_machine_code_has_what_the_schedule_says():
    kernel = one_result(matmul(512, 512, 512, dtype=F16, b_transposed=True))

    def has(found, *parts):
        return any(all(part in name for part in parts) for name in found)

    plain = machine_code(kernel, TWO)
    for change, parts in (
        ({"setmaxnreg": 1}, ("USETMAXREG",)),
        ({"multicast": 1}, ("UTMALDG", "MULTICAST")),
        ({"tma_store": 1}, ("UTMASTG",)),
        ({"tma_store": 1}, ("STSM",)),
    ):
        assert has(machine_code(kernel, TWO | change), *parts)
        assert not has(plain, *parts)


def test_a_default_that_cannot_run_leaves_the_kernel_to_another_engine():
    p = FAMILY.problem(LARGE) | {"batch": 1 << 40}

    assert FAMILY.reasons(FAMILY.default(SimpleNamespace(**p), TARGET.limits), p, TARGET.limits)


@pytest.mark.parametrize("seed", range(10))
def test_a_spread_of_schedules_spills_nothing_and_keeps_to_the_formula(seed):
    draw = random.Random(seed)
    kernel = REAL[draw.choice(list(REAL))]
    problem = FAMILY.problem(kernel)
    schedule = None
    while schedule is None or FAMILY.reasons(schedule, problem, TARGET.limits):
        schedule = {param.name: draw.choice(param.choices) for param in FAMILY.params}

    used, log = ptxas(kernel, schedule)

    assert used.spill_stores == used.spill_loads == used.stack_bytes == 0, schedule
    assert_registers(used, schedule, SimpleNamespace(**problem))
    assert "serialized" not in log, "ptxas has wgmmas wait for each other"


def test_an_analytic_model_is_told_what_a_work_group_does():
    p = problem_of(LARGE)
    schedule = SimpleNamespace(**TILE | {"tile_m": 128, "consumers": 2, "tile_n": 128, "stages": 4})

    found = FAMILY.work(schedule, p)

    assert (found.macs, found.math, found.steps) == (128 * 128 * 4096, "f16", 64)
    assert found.cache_bytes == 64 * 128 * 256
    assert found.ahead == 4


def test_defaults_are_legal_at_every_size_and_ranked():
    for m, n, k in ((1, 1, 8), (1, 8, 1 << 16), (1 << 16, 8, 8), (3, 50000, 768), (1 << 14, 1 << 14, 1 << 14)):
        kernel = matmul(m, n, k, dtype=F16, b_transposed=True)
        p, wanted = problem_of(kernel), demand(kernel, TARGET.device)
        schedule = FAMILY.default(p, TARGET.limits)

        assert not FAMILY.reasons(schedule, vars(p), TARGET.limits)
        assert 0 < rank.predicted(FAMILY, vars(p), schedule, TARGET.device, wanted).us < 1e5


# ---- a whole model ----


def f16_model():
    """relu(x w + b) u of f16, and its weights."""
    rng = np.random.default_rng(8)
    w, b, u = (rng.standard_normal(shape).astype(np.float16) for shape in ((72, 40), (40,), (40, 24)))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Add", ["h", "b"], ["s"]),
        helper.make_node("Relu", ["s"], ["r"]),
        helper.make_node("MatMul", ["r", "u"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT16, s) for n, s in (("x", (37, 72)), ("y", (37, 24)))]
    weights = [numpy_helper.from_array(a, n) for a, n in ((w, "w"), (b, "b"), (u, "u"))]
    graph = helper.make_graph(nodes, "f16", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), w, b, u


def test_a_model_of_f16_is_compiled_to_the_engine_saved_and_gives_the_answer(tmp_path, monkeypatch):
    monkeypatch.setattr(compiler, "back_end", lambda language: (lambda kernel, features: (FAMILY,), render))
    model, w, b, u = f16_model()
    x = np.random.default_rng(9).standard_normal((37, 72)).astype(np.float16)

    gpucomp.compile(model, target="cuda:sm_90a").save(tmp_path / "model.gpuc")
    executable = gpucomp.load(tmp_path / "model.gpuc")
    kernels = executable.plan.kernels

    assert [k.family for k in kernels] == ["contraction/wgmma"] * 2
    assert [[m.extents for m in k.tensor_maps] for k in kernels] == [[(72, 37), (72, 40)], [(40, 37), (40, 24)]]
    found = ModelOnCpu(executable).run({"x": x})["y"]
    hidden = np.maximum((x.astype(np.float64) @ w).astype(np.float16) + b, 0)
    assert_matches(found, (hidden.astype(np.float64) @ u).astype(np.float16), terms=72)
