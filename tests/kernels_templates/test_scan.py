"""The scan family: which work-items share a row, the order of tiles, look-back; and mutations that must be detected."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest

from gpucomp.kernel.interpreter import expected
from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.kernels_templates.render import render
from gpucomp.kernels_templates.scan.space import depth, derive, taking_down
from gpucomp.targets import amdgcn, cuda, opencl, sass
from testing import opencl_device
from testing.cases.scan import BACK, BASE, BOTH, LONG_ROWS, LOOKING_BACK, PLAIN
from testing.cuda_on_cpu.harness import ORDERS, CudaOnCpuError, RaceError, compile_many
from testing.kernels import random_inputs, scan
from testing.launches import in_any_order, launched
from testing.tolerance import assert_matches
from tests.native import Library

FAMILY = FAMILIES["scan"]
TARGET = cuda.manifest("sm_80")


FEATURES = PLAIN | LOOKING_BACK


def problem(kernel):
    return FAMILY.problem(kernel)


def assert_right(kernel, outputs):
    wanted = expected(kernel, random_inputs(kernel))
    for actual, right in zip(outputs, wanted, strict=True):
        assert_matches(actual, right, terms=kernel.body.axis.extent)


@pytest.fixture(scope="module")
def built():
    sources = {n: render(k, s, TARGET, f"f{i}") for i, (n, (k, s)) in enumerate(FEATURES.items())}
    made = compile_many([(s.text, s.name) for s in sources.values()])
    return dict(zip(FEATURES, zip(sources.values(), made, strict=True), strict=True))


@pytest.mark.parametrize("name", FEATURES)
def test_cuda_text_gives_numpy_s_answer_in_any_thread_order(name, built):
    kernel, _ = FEATURES[name]

    assert_right(kernel, in_any_order(kernel, *built[name]))


@pytest.mark.parametrize("name", FEATURES)
def test_opencl_text_gives_numpy_s_answer(name):
    kernel, schedule = FEATURES[name]
    schedule = schedule | {"rows_per_group": max(schedule["rows_per_group"], 32 // schedule["lanes"])}

    source = render(kernel, schedule, opencl_device.target().with_limits(warp=32), "k0")

    assert_right(kernel, opencl_device.run(kernel, source, random_inputs(kernel)))


@pytest.fixture(scope="module")
def library():
    kernels = {name: kernel for name, (kernel, _) in PLAIN.items()} | LONG_ROWS
    named = {f"k{i}": kernel for i, kernel in enumerate(kernels.values())}
    return dict(zip(kernels, named, strict=True)), Library(named)


@pytest.mark.parametrize("name", [*PLAIN, *LONG_ROWS])
def test_the_processor_gives_numpy_s_answer(name, library):
    names, compiled = library
    kernel = compiled.kernels[names[name]]

    assert_right(kernel, compiled.run(names[name], random_inputs(kernel)))


@pytest.mark.parametrize("look_back", [0, 1])
def test_a_sum_is_as_near_as_its_schedule_says(look_back):
    """Numbers of one sign, for which errors of a sequential sum would accumulate."""
    shape = {"look_back": look_back, "lanes": 64, "rows_per_group": 1, "vector": 4}
    kernel, schedule = scan("sum", 1, 4096), BASE | shape
    x = (1 + np.random.default_rng(0).random((1, 4096))).astype(np.float32)
    source = render(kernel, schedule, TARGET, "k0")
    (compiled,) = compile_many([(source.text, "k0")])
    found = np.zeros_like(x)

    scratch = [np.zeros(source.geometry.workspace_bytes, np.uint8), np.zeros(source.geometry.counter_bytes, np.uint8)]
    compiled.run(
        source.geometry.groups, source.geometry.items, [x, np.zeros_like(x), found, *(s for s in scratch if s.size)]
    )

    bound = depth(FAMILY.schedule(schedule), problem(kernel))
    exact = np.cumsum(x.astype(np.float64), axis=1)
    assert bound < 40
    assert (np.abs(found / 2 - exact) <= bound * 2.0**-24 * exact).all()


BARRIER = "__syncthreads();"
WARPS = (scan("sum", 2, 300), BASE | {"lanes": 64, "rows_per_group": 1})
APART = (scan("sum", 5, 37, rows_inside=True), BASE)
LOOKS = (scan("sum", 7, 53), BACK)
LOOKING_WARPS = (scan("sum", 2, 150), BACK | {"lanes": 64, "rows_per_group": 2, "accesses": 1})


def together(source):
    """``source`` with all work-groups in one cluster, which the CPU harness runs interleaved."""
    starts = itertools.count(step=1024)

    def moved(array):  # what a cluster's blocks have each for itself is dynamic there
        return f"  {array[1]}* const {array[2]} = reinterpret_cast<{array[1]}*>(gc_dynamic_shared() + {next(starts)});"

    text = re.sub(r"  __shared__ __align__\(16\) (.+?) (\w+)\[\d+\];", moved, source.text)
    x, y, _ = source.geometry.groups
    text = re.sub(r"(__launch_bounds__\([^)]*\))", rf"\1 __cluster_dims__({x}, {y}, 1)", text)
    geometry = replace(source.geometry, dynamic_shared_bytes=next(starts))
    return replace(source, text=text, geometry=geometry)


# mutations of the communication between work-groups: a pattern of the source, and its replacement
RACES = {
    "the flag before the totals": (
        r"( *if \(lane_id == 0\) workspace\[.*\n)( *__syncthreads\(\);\n)( *if \(id == 0\) \{\n *gc_store_release.*\n)",
        r"\2\3\1",
    ),
    "looks after the arrival": (
        r"(?s)( *for \(int part = id; part < own;.*?\n    \}\n)(.*?)( *int is_last = 0;.*?is_last = .*?\n)",
        r"\3\1\2",
    ),
    "an arrival that releases nothing": ("gc_atomic_inc_wrap_release", "gc_atomic_inc_wrap"),
    "a last one that acquires nothing": (r"gc_load_acquire\(.*?\);", ""),
}


ATTEMPTS = r"tile == own \? 1024 : 1"
IMPATIENT = ATTEMPTS, "1"


def changed(source, old, new):
    text, count = re.subn(old, new, source.text)
    assert count == 1
    return replace(source, text=text)


@pytest.fixture(scope="module")
def watched():
    """Sources built with ThreadSanitizer: unchanged, without one barrier (by its number), and with one of ``RACES``."""
    cases = {"warps": WARPS, "apart": APART, "looks": LOOKS, "looks together": LOOKS, "warps together": LOOKING_WARPS}
    sources = {}
    for i, (name, case) in enumerate(cases.items()):
        source = render(*case, TARGET, f"r{i}")
        sources[name, None] = source = together(source) if "together" in name else source
        if name == "warps together":  # a work-item that looks too early finds nothing
            source = changed(source, *IMPATIENT)
        parts = source.text.split(BARRIER) if name != "looks together" else [source.text]
        for n in range(len(parts) - 1):
            text = BARRIER.join([*parts[:n], parts[n] + parts[n + 1], *parts[n + 2 :]])
            sources[name, n] = replace(source, text=text)
    for mistake, change in RACES.items():
        sources["warps together", mistake] = changed(sources["warps together", None], *change)
    made = compile_many([(s.text, s.name) for s in sources.values()], sanitizer="thread")
    return dict(zip(sources, zip(sources.values(), made, strict=True), strict=True))


@pytest.mark.parametrize(
    ("name", "kernel", "count", "order"),
    [
        ("warps", WARPS[0], 2, "forward"),
        ("apart", APART[0], 4, "forward"),
        # some are needed where work-groups compute the totals of others alone: those come first here
        ("looks", LOOKS[0], 4, "shuffled"),
        ("warps together", LOOKING_WARPS[0], 5, "reversed"),
    ],
)
def test_there_is_no_race_and_every_barrier_is_needed(name, kernel, count, order, watched):
    launched(kernel, *watched[name, None], order=order)

    barriers = [n for who, n in watched if who == name and isinstance(n, int)]
    assert len(barriers) == count
    for n in barriers:
        with pytest.raises(RaceError):
            launched(kernel, *watched[name, n], order=order)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("name", "kernel"), [("looks together", LOOKS[0]), ("warps together", LOOKING_WARPS[0])])
def test_work_groups_that_run_at_the_same_time_look_back_without_a_race(name, kernel, order, watched):
    found = launched(kernel, *watched[name, None], order=order)

    assert_right(kernel, found)
    if name == "looks together":
        assert found[0].tobytes() == launched(kernel, *watched["looks", None])[0].tobytes()


@pytest.mark.parametrize("mistake", RACES)
def test_what_work_groups_leave_for_each_other_in_the_wrong_order_is_a_race(mistake, watched):
    with pytest.raises(RaceError):
        launched(LOOKING_WARPS[0], *watched["warps together", mistake], order="reversed")


NEVER = 1 << 30


@pytest.fixture(scope="module")
def mistaken():
    """Mutated sources with look-back: interleaved with other work-groups, or after those before in the order."""
    source = render(*LOOKS, TARGET, "m0")
    never, at_once = (ATTEMPTS, str(NEVER)), (r"gc_is_set\(.*\)\) continue", "true) continue")
    # the played device releases barriers of all work-groups at a time: the first is behind the others by so many
    late = r"for \(int tile = own;;\)", rf"if (own == 0) for (int i = 0; i < 9; ++i) {BARRIER}\n\g<0>"
    first_late = changed(together(render(*LOOKING_WARPS, TARGET, "m1")), *late)
    texts = {
        "does not wait": changed(source, *at_once),
        "in turns, the first late, does not wait": changed(first_late, *at_once),
        "in turns, the first late": changed(first_late, *IMPATIENT),
        "in turns, waits for ever": changed(together(source), *never),
        "waits for ever": changed(source, *never),
        "leaves its flags": changed(source, r"\*\(counters.* = 0;", ";"),
    }
    made = compile_many([(t.text, t.name) for t in texts.values()])
    return {name: (text, found) for (name, text), found in zip(texts.items(), made, strict=True)}


def test_a_work_group_waits_and_not_for_ever(mistaken):
    kernel = LOOKS[0]

    assert_right(kernel, in_any_order(kernel, *mistaken["in turns, waits for ever"]))
    assert_right(LOOKING_WARPS[0], in_any_order(LOOKING_WARPS[0], *mistaken["in turns, the first late"]))
    for order in ORDERS:
        (found,) = launched(LOOKING_WARPS[0], *mistaken["in turns, the first late, does not wait"], order=order)
        assert np.isnan(found).any()
    early = launched(kernel, *mistaken["does not wait"], order="reversed")
    assert np.isnan(early[0]).any()
    launched(kernel, *mistaken["waits for ever"])
    with pytest.raises(CudaOnCpuError, match=r"deadlock: .* spin on an atomic"):
        launched(kernel, *mistaken["waits for ever"], order="reversed")
    with pytest.raises(CudaOnCpuError, match="counters are not zero afterwards"):
        launched(kernel, *mistaken["leaves its flags"])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"vector": 2}, "vectors of 2 do not divide the 37 columns"),
        ({"vector": 8, "accesses": 8}, "64 elements of a tile per work-item, 32 can be held"),
        ({"lanes": 1024}, "4096 work-items per work-group"),
        ({"look_back": 1, "lanes": 32, "rows_per_group": 1}, "a row of one tile has no tile to look back at"),
    ],
)
def test_what_cannot_run_is_refused_with_the_reason(change, reason):
    sizes = FAMILY.problem(scan("sum", 11, 37))

    assert FAMILY.reasons(BASE, sizes, TARGET.limits) == []
    assert any(reason in r for r in FAMILY.reasons(BASE | change, sizes, TARGET.limits))


def test_what_is_left_for_other_work_groups_is_paid_for_and_taken_down_too():
    sizes = problem(scan("sum", 3, 37 * 64 * 2))
    alone, back = (FAMILY.schedule(BASE | {"look_back": n, "lanes": 64, "rows_per_group": 1}) for n in (0, 1))
    tiles = derive(back, sizes).tiles
    assert tiles == 37

    assert FAMILY.work(back, sizes).out_bytes == FAMILY.work(alone, sizes).out_bytes / tiles + 4 + 2 * 4
    assert taking_down(alone, sizes) == 0
    wide = back.replace(lanes=32)
    assert derive(wide, sizes).tiles > 2 * 32
    assert taking_down(wide, sizes) > taking_down(back, sizes)


def test_rows_side_by_side_are_read_by_whole_sectors_and_long_rows_are_shared():
    columns = FAMILY.default(problem(scan("sum", 4096, 128, rows_inside=True)), TARGET.limits).numbers
    rows = FAMILY.default(problem(scan("sum", 64, 8192)), TARGET.limits).numbers

    assert columns["rows_per_group"] >= 8
    assert -(-4096 // columns["rows_per_group"]) >= TARGET.limits.units
    assert rows["lanes"] >= 128
    assert rows["vector"] == 4


def test_defaults_read_sixteen_bytes_and_spill_nothing():
    target = cuda.manifest("sm_90a")
    for kernel in (scan("sum", 64, 8192), scan("sum", 12, 1024, **BOTH), scan("sum", 1, 10_000_000)):
        source = render(kernel, FAMILY.default(problem(kernel), target.limits).numbers, target, "k0")

        cubin, log = cuda.compile_source(source, target)

        used = cuda.resources(log)["k0"]
        assert used.spill_stores == used.spill_loads == used.stack_bytes == 0
        found = sass.instructions(cubin)
        # except for values that work-groups exchange
        if found is None:
            continue
        assert sass.wide_share({n: k for n, k in found.items() if "STRONG" not in n}) == 1.0
        # a flag is set, a work-group arrives: nothing else waits until what was written before is seen everywhere
        assert sass.count(found, "MEMBAR") == 2 * source.schedule["look_back"]
        assert not any(name.startswith("MEMBAR.SC") for name in found)


@pytest.mark.skipif(amdgcn.compiler() is None, reason="clang is not installed")
def test_an_amd_gpu_keeps_what_it_looks_back_with_in_registers():
    target, kernel = opencl.manifest("gfx90a"), scan("sum", 1, 1_000_000)
    schedule = FAMILY.default(problem(kernel), target.limits).numbers
    assert schedule["look_back"]

    used = amdgcn.resources(render(kernel, schedule, target, "k0"), "gfx90a")

    assert used.spilled == used.private_bytes == 0
    assert used.instructions["global_load_dwordx4"] >= schedule["accesses"]
    assert used.instructions["global_atomic_or"] > 0
