"""Row statistics after a contraction: numpy's results by every engine that computes them, on all devices.

The statistics are the mean and 1 / deviation. Every mutation of the source is detected: by wrong numbers, by a race, or by
a counter that is not reset.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest

from gpucomp.expr.core import call, cast
from gpucomp.ir.types import F16, F32, I8, I32, TensorType
from gpucomp.kernel import Contraction, RowStatistics, Store
from gpucomp.kernel.forms.row_statistics import tail_sizes
from gpucomp.kernel.interpreter import expected, row_statistics
from gpucomp.kernel.passes.pack_weights import pack, packed_constant
from gpucomp.kernels_templates.engines import ENGINES, engines_of
from gpucomp.kernels_templates.render import render
from gpucomp.schedule import rank
from gpucomp.targets import cuda, opencl
from testing import opencl_device
from testing.cases.row_statistics import CASES, MMA, SIMT, TCGEN05, TILE, WARPS, WGMMA, S, residual
from testing.cuda_on_cpu.harness import ORDERS, CudaOnCpuError, RaceError, compile_many
from testing.kernels import matmul, random_inputs, with_inverse_rms, with_row_statistics
from testing.launches import in_any_order, launched
from testing.template_cases import default
from testing.tolerance import assert_matches
from testing.wgmma_kernels import TILE as WGMMA_TILE
from testing.wgmma_kernels import constant_b, one_result
from tests.cuda_on_cpu.kernel_files import broken
from tests.schedules_together import assert_agrees

TARGETS = {
    SIMT: cuda.manifest("sm_80"),
    MMA: cuda.manifest("sm_80"),
    WGMMA: cuda.manifest("sm_90a"),
    TCGEN05: cuda.manifest("sm_100"),
}


def to_tf32(x):
    bits = x.view(np.uint32)
    return ((bits + np.uint32(0xFFF) + (bits >> 13 & 1)) & np.uint32(0xFFFFE000)).view(np.float32)


def prepared(name):
    """The packed kernel, the inputs for the oracle, and the inputs of the launch."""
    family, kernel, schedule = CASES[name]
    inputs = random_inputs(kernel)
    if kernel.body.math == "tf32":
        inputs = [to_tf32(x) if x.dtype == np.float32 else x for x in inputs]
    problem = family.problem(kernel)
    wanted = family.packing(kernel, family.schedule(schedule), problem)
    if wanted is None:
        return kernel, inputs, inputs
    packed = pack(kernel, wanted)
    return packed.kernel, inputs, [*(inputs[k] for k in packed.kept), packed_constant(packed, inputs)]


def source_of(name):
    family, _, schedule = CASES[name]
    return render(prepared(name)[0], schedule, TARGETS[family], f"k{list(CASES).index(name)}", family)


def assert_right(name, inputs, found, terms):
    """Results match numpy, and statistics match the stored results, which may be rounded differently than numpy's."""
    kernel = CASES[name][1]
    right, known = expected(kernel, inputs), [array.copy() for array in found]
    row_statistics(kernel, inputs, known)
    of_rows = {s.target - kernel.inputs for s in kernel.body.tail.stores}
    for number, actual in enumerate(found):
        assert_matches(actual, known[number] if number in of_rows else right[number], terms=terms)


def terms_of(kernel):
    return max(v.extent for v in (*kernel.body.k, *kernel.body.n)) * 4


@pytest.fixture(scope="module")
def compiled():
    sources = {name: source_of(name) for name in CASES}
    built = compile_many([(s.text, s.name) for s in sources.values()])
    return dict(zip(CASES, zip(sources.values(), built, strict=True), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_rows_are_numpy_s_in_any_thread_order(name, compiled):
    kernel, inputs, given = prepared(name)

    found = in_any_order(kernel, *compiled[name], given)

    assert_right(name, inputs, found, terms_of(kernel))


def test_cases_walk_rows_in_every_way():
    sizes = []
    for family, kernel, schedule in CASES.values():
        p, s = family.problem(kernel), family.schedule(schedule)
        d = {**schedule, **family.derive(s, p).numbers}
        sizes.append(tail_sizes(d["threads"], d["tile_m"], p))

    assert {z.keep for z in sizes} == {0, 1}
    assert {z.lanes for z in sizes} >= {1, 8, 32}
    assert {z.wide for z in sizes} >= {1, 2, 4, 8}
    assert {z.at_once for z in sizes} >= {1, 4}
    assert {z.together for z in sizes} >= {1, 2, 4}
    assert max(z.passes for z in sizes) > 1


def test_a_row_far_from_zero_keeps_its_deviation():
    """The deviation is a millionth of the mean, so the mean of squares minus the squared mean would cancel completely."""
    kernel, _, _ = prepared("simt")
    inputs = random_inputs(kernel)
    inputs[0][:] = 0
    inputs[2][:] = 1e4 + np.arange(40, dtype=np.float32) / 1000
    built = compile_many([(source_of("simt").text, source_of("simt").name)])[0]

    deviation = launched(kernel, source_of("simt"), built, inputs)[3]

    np.testing.assert_allclose(deviation, 1 / np.sqrt(np.var(inputs[2].astype(np.float64)) + 1e-5), rtol=1e-3)


# ---- mistakes ----

MISTAKES = {
    "a counter that counts too far": ("simt", {"replace": "tile / 3, 2) == 2", "by": "tile / 3, 3) == 3"}),
    "the last but one": ("simt", {"replace": "tile / 3, 2) == 2", "by": "tile / 3, 2) == 1"}),
    "the counters of the splits": ("simt, split", {"replace": "counters + 6 + tile / 3", "by": "counters + tile / 3"}),
    "the rows of the other rank": ("wgmma, split", {"replace": "* 8 + rank", "by": "* 8"}),
    "no wait for the store": ("wgmma, tma store", {"replace": "gc_tma_store_wait<0>();"}),
    "lanes that do not meet": ("simt, few threads", {"replace": "slots_s0[r][id + half_way]", "by": "slots_s0[r][id]"}),
}
RACES = {
    "nothing": ("simt", {}),
    "nothing, split": ("simt, split and sliced", {}),
    "nothing, few threads": ("simt, few threads, split", {}),
    "nothing, mma": ("mma tf32, split", {}),
    "nothing, wgmma": ("wgmma, split", {}),
    "nothing, a pair": ("wgmma, everything", {}),
    "no barrier for the flag": (
        "simt, sliced",
        {"replace": "__syncthreads();\n  if (!is_last[0])", "by": "if (!is_last[0])"},
    ),
    "no barrier between lanes": (
        "simt, few threads",
        {"replace": "__syncthreads();\n    for (int half_way", "by": "for (int half_way"},
    ),
    "no barrier in one tile": ("simt, one tile of columns", {"replace": "__syncthreads();", "occurrence": 2}),
    "fences of one warpgroup": (
        "wgmma, everything",
        {"replace": "gc_fence_proxy", "by": "if (id < 128) gc_fence_proxy"},
    ),
    "a fence of the thread that stores": (
        "wgmma, tma store",
        {"replace": "gc_fence_proxy", "by": "if (id % 128 == 0) gc_fence_proxy"},
    ),
    "nothing, fenced for all": (
        "wgmma, tma store",
        {
            "replace": "gc_fence_proxy_async();\n  gc_named_barrier(2, 128);",
            "by": "gc_named_barrier(2, 128);\n  if (id % 128 == 0) gc_fence_proxy_async();",
        },
    ),
    "nothing, stored by tma": ("wgmma, tma store, one tile of columns", {}),
    "no barrier behind a store by tma": (
        "wgmma, tma store, one tile of columns",
        {"replace": "statistics\n  gc_named_barrier(1, 256);", "by": "statistics\n"},
    ),
}


@pytest.fixture(scope="module")
def mistaken():
    sources = {m: source_of(name) for m, (name, _) in MISTAKES.items()}
    built = compile_many([(broken(sources[m].text, **change), sources[m].name) for m, (_, change) in MISTAKES.items()])
    return {m: (sources[m], b) for m, b in zip(MISTAKES, built, strict=True)}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_text_is_seen(mistake, mistaken):
    name, _ = MISTAKES[mistake]
    kernel, inputs, given = prepared(name)

    def in_all_orders():
        for order in ORDERS:
            assert_right(name, inputs, launched(kernel, *mistaken[mistake], given, order), terms_of(kernel))

    with pytest.raises((AssertionError, CudaOnCpuError)):
        in_all_orders()


@pytest.fixture(scope="module")
def watched():
    sources = {m: source_of(name) for m, (name, _) in RACES.items()}
    texts = [
        (broken(sources[m].text, **change) if change else sources[m].text, sources[m].name)
        for m, (_, change) in RACES.items()
    ]
    built = compile_many(texts, sanitizer="thread")
    return {m: (sources[m], b) for m, b in zip(RACES, built, strict=True)}


@pytest.mark.parametrize("mistake", RACES)
def test_a_missing_wait_is_a_race_and_there_is_none_otherwise(mistake, watched):
    name, _ = RACES[mistake]
    kernel, _, given = prepared(name)
    if mistake.startswith("nothing"):
        launched(kernel, *watched[mistake], given)
        return
    with pytest.raises((RaceError, CudaOnCpuError)):
        launched(kernel, *watched[mistake], given)


ARRIVALS = {  # if work-groups share rows: how they synchronise, the flag, and how the last one is recognised
    "simt": ("__syncthreads();", "is_last[0]", "tile / 3, 2) == 2"),
    "simt, split": ("__syncthreads();", "is_last[0]", "6 + tile / 3, 2) == 2"),
    "simt, split and sliced": ("__syncthreads();", "is_last[0]", "6 + tile / 3, 2) == 2"),
    "mma f16": ("__syncthreads();", "is_last[0]", "first_row / 16, 1) == 1"),
    "mma tf32, split": ("__syncthreads();", "is_last[0]", "6 + first_row / 16, 2) == 2"),
    "wgmma": ("gc_named_barrier(1, 128);", "*last_of_rows", "first_row / 64, 2) == 2"),
    "wgmma, split": ("gc_named_barrier(1, 128);", "*last_of_rows", "(first_row / 64) * 8 + rank, 1) == 1"),
    "wgmma, three share, split": (
        "gc_named_barrier(1, 384);",
        "*last_of_rows",
        "(first_row / 192) * 4 + rank, 1) == 1",
    ),
    "wgmma, tma store": ("gc_named_barrier(1, 128);", "*last_of_rows", "batch * 3 + first_row / 64, 2) == 2"),
    "wgmma, b for two": ("gc_named_barrier(1, 128);", "*last_of_rows", "batch * 4 + first_row / 64, 1) == 1"),
    "wgmma, a for two": ("gc_named_barrier(1, 128);", "*last_of_rows", "batch * 2 + first_row / 64, 3) == 3"),
    "wgmma, a for two, columns of one": ("gc_named_barrier(1, 128);", "*last_of_rows", "first_row / 64, 1) == 1"),
    "wgmma, a for two, tma store": (
        "gc_named_barrier(1, 128);",
        "*last_of_rows",
        "batch * 3 + first_row / 64, 3) == 3",
    ),
    "wgmma, everything": ("gc_named_barrier(1, 256);", "*last_of_rows", "first_row / 128, 1) == 1"),
    "tcgen05": ("gc_named_barrier(1, 128);", "*last_of_rows", "first_row / 64, 2) == 2"),
    "tcgen05, split": ("gc_named_barrier(1, 128);", "*last_of_rows", "(first_row / 64) * 8 + rank, 1) == 1"),
    "tcgen05, tma store": ("gc_named_barrier(1, 128);", "*last_of_rows", "batch * 3 + first_row / 64, 2) == 2"),
}
ALONE = {  # if a work-group stores whole rows: how its work-items synchronise
    "simt, one tile of columns": "__syncthreads();",
    "mma, depth shared": "__syncthreads();",
    "wgmma, one tile of columns": "gc_named_barrier(1, 256);",
    "tcgen05, one tile of columns": "gc_named_barrier(1, 256);",
    "wgmma, split, one tile of columns": "gc_named_barrier(1, 128);",
    "wgmma, tma store, one tile of columns": "gc_named_barrier(1, 256);",
    "wgmma, b for two, one tile of columns": "gc_named_barrier(1, 128);",
    "wgmma, b for two, tma store, one tile of columns": "gc_named_barrier(1, 128);",
}
SHARED_ROWS = "// the last to have stored a part of these rows reads them back for their statistics"
OWN_ROWS = "// these rows are stored: their statistics"


def arrival(text, heading):
    """The calls from the fence before TMA stores (if there are any) to ``heading``, and the statements after it."""
    lines = [line.strip() for line in text.splitlines()]
    first = lines.index(heading)
    leaves = "gc_fence_proxy_async();"
    left = lines[lines.index(leaves) : first] if leaves in lines else []
    return re.findall(r"\bgc_\w+(?:<\w+>)?", "\n".join(left)), lines[first + 1 : first + 7]


def tma_calls(name):
    family, kernel, schedule = CASES[name]
    if not schedule.get("tma_store"):
        return []
    store = f"gc_tma_store_{3 if kernel.body.batch else 2}d"
    meet = ["gc_named_barrier"]
    if family is TCGEN05:
        meet = ["gc_tcgen05_fence_before", *meet, "gc_tcgen05_fence_after", "gc_tcgen05_free"]
    return ["gc_fence_proxy_async", *meet, store, "gc_tma_store_commit", "gc_tma_store_wait<0>"]


@pytest.mark.parametrize("name", ARRIVALS)
def test_stores_are_seen_by_all_before_a_work_group_counts_itself(name):
    """On the CPU, blocks run one after another, so fences between them can only be checked in the source."""
    meet, flag, counted = ARRIVALS[name]

    calls, statements = arrival(source_of(name).text, SHARED_ROWS)

    assert calls == tma_calls(name)
    assert statements == [
        "gc_threadfence();",
        meet,
        f"if (id == 0) {flag} = gc_atomic_inc_wrap(counters + {counted};",
        meet,
        f"if (!{flag}) return;",
        "gc_threadfence();",
    ]


@pytest.mark.parametrize("name", ALONE)
def test_a_work_group_that_stores_whole_rows_meets_before_it_reads_them(name):
    calls, statements = arrival(source_of(name).text, OWN_ROWS)

    assert calls == tma_calls(name)
    assert statements[0] == ALONE[name]
    assert "counters" not in source_of(name).text


@pytest.mark.parametrize("name", [*ARRIVALS, *ALONE])
def test_what_is_read_again_is_not_restrict_and_the_rest_is(name):
    source = source_of(name)
    again = [f"x{CASES[name][1].inputs}", *["workspace"] * (source.geometry.workspace_bytes > 0)]
    lines = [line.strip() for line in source.text.splitlines()]

    declared = [line.strip(",") for line in lines if line.endswith((",", "{")) and "* " in line and "(" not in line]
    aliased = [line.split()[-1] for line in declared if "__restrict__" not in line and "const" not in line]
    assert aliased == again


def ways(names):
    """How wgmma cases split the depth, share loads, and store."""
    schedules = [schedule for family, _, schedule in map(CASES.get, names) if family is WGMMA]
    return {(s["splits"] > 1, s["multicast"], s["tma_store"]) for s in schedules}


def test_arrivals_are_of_every_way_that_wgmma_can_share_and_store():
    problem = WGMMA.problem(S(one_result(matmul(139, 72, 648, dtype=F16, b_transposed=True))))
    legal = set()
    for splits, multicast, tma_store in itertools.product((1, 2), (0, 1, 2), (0, 1)):
        schedule = WGMMA_TILE | {"splits": splits, "multicast": multicast, "tma_store": tma_store}
        if not WGMMA.reasons(schedule, problem, TARGETS[WGMMA].limits):
            legal.add((splits > 1, multicast, tma_store))

    assert len(legal) == 7
    assert ways(ARRIVALS) == legal
    assert ways(ALONE) == {way for way in legal if way[1] != 2}, "who share the rows of a are two tiles of columns"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, ""),
        ({"splits": 2, "tma_store": 1}, "the parts of a split sum are added in the order of the rows"),
        ({"splits": 2, "multicast": 1}, "a cluster shares the depth or the loads, not both"),
        ({"splits": 2, "multicast": 2}, "a cluster shares the depth or the loads, not both"),
    ],
)
def test_ways_that_wgmma_cannot_go_say_why(change, reason):
    kernel = S(one_result(matmul(139, 72, 648, dtype=F16, b_transposed=True)))

    found = WGMMA.reasons(WGMMA_TILE | change, WGMMA.problem(kernel), TARGETS[WGMMA].limits)

    assert bool(found) == bool(reason)
    assert reason in "; ".join(found)


# ---- fences ----

PLAYED_FENCES = (
    "gc_fence_barrier_init();",
    "gc_wgmma_fence();",
    "gc_fence_proxy_async();",
)  # their lack changes numbers
READ_FENCES = ("gc_threadfence();",)  # of the arrival: its order in the text is held, numbers do not change


def test_wgmma_has_no_fences_but_those_whose_lack_is_seen():
    found = set()
    for name, (family, _, _) in CASES.items():
        if family is WGMMA:
            found |= set(re.findall(r"\bgc_\w*fence\w*\(\);", source_of(name).text))

    assert found == {*PLAYED_FENCES, *READ_FENCES}


@pytest.fixture(scope="module")
def unfenced():
    """By case and fence: the kernel's source, and the source compiled without that fence."""
    sources = {name: source_of(name) for name in ("wgmma, tma store", "wgmma, everything")}
    keys = list(itertools.product(sources, PLAYED_FENCES))
    built = compile_many([(broken(sources[name].text, replace=fence), sources[name].name) for name, fence in keys])
    return {(name, fence): (sources[name], b) for (name, fence), b in zip(keys, built, strict=True)}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("fence", PLAYED_FENCES)
@pytest.mark.parametrize("name", ["wgmma, tma store", "wgmma, everything"])
def test_a_fence_that_is_missing_is_seen_in_any_order(name, fence, order, unfenced):
    kernel, inputs, given = prepared(name)

    with pytest.raises((AssertionError, CudaOnCpuError)):
        assert_right(name, inputs, launched(kernel, *unfenced[name, fence], given, order), terms_of(kernel))


# ---- OpenCL ----

PLAYED = (
    "simt",
    "simt, split",
    "simt, split and sliced",
    "simt, few threads",
    "simt, a work-item",
    "simt, pixels",
    "simt, one tile of columns",
    "simt, rows too long to be kept",
    "simt, largest",
    "simt, residual",
)


@pytest.mark.parametrize("name", PLAYED)
def test_rows_are_numpy_s_in_opencl(name):
    _, kernel, schedule = CASES[name]
    inputs = random_inputs(kernel)
    source = render(kernel, schedule, opencl_device.target(), "k0")

    found = opencl_device.run(kernel, source, inputs, launches=3)  # counters are ready again

    assert_right(name, inputs, found, terms_of(kernel))


@pytest.mark.parametrize("shape", [(5, 11, 13), (13, 70, 9)])
def test_rows_are_numpy_s_by_the_default_for_pocl(shape):
    """One work-item, with one tile of columns and with several."""
    kernel, target = with_row_statistics(one_result(matmul(*shape))), opencl_device.target()
    inputs = random_inputs(kernel)
    source = render(kernel, default(kernel, target.limits), target, "k0")

    found = opencl_device.run(kernel, source, inputs, launches=2)

    assert source.geometry.items == (1, 1, 1)
    for actual, right in zip(found, expected(kernel, inputs), strict=True):
        assert_matches(actual, right, terms=terms_of(kernel))


# ---- engines, spaces ----


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a", "sm_100"])
@pytest.mark.parametrize("dtype", [F16, F32])
def test_the_schedule_that_is_ranked_first_spills_nothing(arch, dtype):
    target = cuda.manifest(arch)
    plain = constant_b(residual(128, 768, 768, dtype))
    kernel = with_row_statistics(plain)
    for ranked in rank.best(
        kernel, rank.problems(kernel, engines_of(kernel, target.features)), target.limits, target.device
    ):
        p, s = ranked.family.problem(kernel), ranked.family.schedule(ranked.schedule)
        wanted = ranked.family.packing(kernel, s, p)
        packed = pack(kernel, wanted).kernel if wanted else kernel
        source = render(packed, ranked.schedule, target, "k0", ranked.family)
        _, log = cuda.compile_source(source, target)
        used = cuda.resources(log)["k0"]
        assert used.spill_stores == used.spill_loads == used.stack_bytes == 0, ranked


@pytest.mark.parametrize("k_steps", [4, 8])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_sums_of_other_work_groups_are_read_part_by_part_where_all_warps_stay(arch, k_steps):
    """Otherwise ptxas reads all four parts at once: 128 registers per work-item (of 512) and 288 or 320 bytes of spills."""
    schedule = WARPS | {"warp_m": 32, "warp_n": 32, "warps_m": 2, "warps_n": 4, "warps_k": 2, "splits": 4, "raster": 8}
    schedule |= {"k_steps": k_steps}
    kernel, target = with_inverse_rms(one_result(matmul(1225, 112, 288, dtype=F16))), cuda.manifest(arch)
    assert MMA.reasons(schedule, MMA.problem(kernel), target.limits) == []

    _, log = cuda.compile_source(render(kernel, schedule, target, "k0", MMA), target)

    assert cuda.resources(log)["k0"].spilt == 0


@pytest.mark.parametrize("family", [SIMT, MMA, WGMMA, TCGEN05], ids=lambda f: f.engine)
@pytest.mark.parametrize("columns", [40, 771])
def test_many_schedules_are_told_together_what_each_is_told_alone(family, columns):
    assert_agrees(S(matmul(197, columns, 72, dtype=F16, b_transposed=True)), family, TARGETS[family])


def test_engines_that_end_with_their_stores_say_so():
    plain = matmul(1, 64, 64, dtype=F16, b_transposed=True)
    features = frozenset({"mma", "mma_sm80", "wgmma", "tma", "cluster", "mfma", "mali"})

    found = engines_of(with_row_statistics(plain), features)

    assert [family.engine for family in found] == ["wgmma", "mma", "simt"]
    assert {"mali", "gemv", "amd"} <= {family.engine for family in engines_of(plain, features)}
    assert len(ENGINES[Contraction]) > 5


def test_bytes_keep_their_words_beside_row_statistics():
    """i32 sums are scaled and stored as floats, and row statistics are computed from these. Operands are words."""
    kernel = matmul(13, 40, 32, dtype=I8, acc=I32, b_transposed=True)
    i, j = kernel.stores[0].index
    value = cast(kernel.body.acc, F32) * 0.01
    params = (*kernel.params[:3], TensorType(F32, (13, 40)))
    kernel = with_row_statistics(replace(kernel, params=params, outputs=1, stores=(Store(3, (i, j), value),)))
    inputs = random_inputs(kernel)
    schedule = TILE | {"tile_k": 4}
    source = render(kernel, schedule, TARGETS[SIMT], "k0", SIMT)
    (built,) = compile_many([(source.text, "k0")])

    assert SIMT.problem(kernel).dot == 4
    viewed = [inputs[0].view(np.int32).reshape(-1), inputs[1].view(np.int32).reshape(-1), inputs[2]]
    for actual, right in zip(
        in_any_order(SIMT.in_words(kernel), source, built, viewed), expected(kernel, inputs), strict=True
    ):
        assert_matches(actual, right, terms=200)


def test_kernels_that_differ_in_their_statistics_differ_in_their_digest():
    plain = matmul(13, 40, 30)
    ranged = replace(
        with_row_statistics(plain),
        body=replace(
            with_row_statistics(plain).body,
            tail=RowStatistics(
                with_row_statistics(plain).body.tail.statistics,
                tuple(replace(s, value=call("neg", s.value)) for s in with_row_statistics(plain).body.tail.stores),
            ),
        ),
    )

    assert len({k.digest for k in (plain, with_row_statistics(plain), ranged)}) == 3
    assert "then of each row" in with_row_statistics(plain).text


def test_mali_leaves_row_statistics_to_others():
    kernel, features = with_row_statistics(matmul(13, 40, 30)), opencl.manifest("mali").features

    assert [family.engine for family in engines_of(kernel, features)] == ["simt"]
