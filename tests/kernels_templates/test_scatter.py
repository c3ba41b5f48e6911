"""The scatter family: updates of the same place run in order, and nothing outside is written, under every schedule.

Sums are compared bit by bit, because their order is the same in every schedule and on every back end.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from gpucomp.ir.types import BOOL
from gpucomp.kernel.forms.scatter import copied_in_place
from gpucomp.kernel.interpreter import expected
from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.kernels_templates.render import render
from gpucomp.kernels_templates.scatter.space import READERS, READERS_OF_A_UNIT, ScatterProblem, most_parts
from gpucomp.targets import cuda, sass
from testing import opencl_device
from testing.cases.scatter import BASE, FEATURES
from testing.cuda_on_cpu.harness import RaceError, compile_many
from testing.kernels import scatter
from testing.launches import in_any_order, launched
from testing.tolerance import assert_identical
from tests.native import Library

FAMILY = FAMILIES["scatter"]
TARGET = cuda.manifest("sm_80")


def problem(kernel):
    return FAMILY.problem(kernel)


def inputs_of(kernel):
    """Indices that repeat, that are negative, and that are out of bounds on both sides."""
    rng = np.random.default_rng(0)
    extent = max(v.extent for v in kernel.body.places)
    arrays = []
    for number, t in enumerate(kernel.params[: kernel.inputs]):
        if number == 1:
            low = 0 if t.dtype.kind == "u" else -extent - 3
            arrays.append(rng.integers(low, extent + 3, t.shape).astype(t.dtype.numpy))
        elif t.dtype.is_float:
            arrays.append(rng.standard_normal(t.shape).astype(t.dtype.numpy))
        else:
            arrays.append(rng.integers(0, 2 if t.dtype is BOOL else 10, t.shape).astype(t.dtype.numpy))
    return arrays


@pytest.fixture(scope="module")
def built():
    sources = {n: render(k, s, TARGET, f"f{i}") for i, (n, (k, s)) in enumerate(FEATURES.items())}
    made = compile_many([(s.text, s.name) for s in sources.values()])
    return dict(zip(FEATURES, zip(sources.values(), made, strict=True), strict=True))


@pytest.mark.parametrize("name", FEATURES)
def test_cuda_text_gives_the_bits_of_one_update_after_another(name, built):
    kernel, _ = FEATURES[name]
    (wanted,) = expected(kernel, inputs_of(kernel))

    assert_identical(in_any_order(kernel, *built[name], inputs_of(kernel))[0], wanted)


@pytest.mark.parametrize("name", FEATURES)
def test_opencl_text_gives_the_bits_of_one_update_after_another(name):
    kernel, schedule = FEATURES[name]

    source = render(kernel, schedule, opencl_device.target().with_limits(warp=32), "k0")

    inputs = inputs_of(kernel)
    assert_identical(opencl_device.run(kernel, source, inputs)[0], expected(kernel, inputs)[0])


LARGE = {
    "slices in tasks": scatter((301, 520), (97, 1), "add"),
    "places in parts": scatter((2, 500_009), (2, 53), "add", axis=1),
    "columns in tasks": scatter((211, 320), (150, 320), "max", axis=0),
}


@pytest.fixture(scope="module")
def library():
    kernels = {name: kernel for name, (kernel, _) in FEATURES.items()} | LARGE
    named = {f"k{i}": kernel for i, kernel in enumerate(kernels.values())}
    return dict(zip(kernels, named, strict=True)), Library(named)


@pytest.mark.parametrize("name", FEATURES)
def test_the_processor_gives_the_bits_of_one_update_after_another(name, library):
    names, compiled = library
    kernel = compiled.kernels[names[name]]
    inputs = inputs_of(kernel)

    assert_identical(compiled.run(names[name], inputs)[0], expected(kernel, inputs)[0])


UFUNCS = {"add": np.add, "max": np.maximum}


@pytest.mark.parametrize("name", LARGE)
def test_the_processor_s_tasks_together_do_every_update_once(name, library):
    names, compiled = library
    kernel = compiled.kernels[names[name]]
    data, indices, updates = inputs_of(kernel)
    rows = indices.shape[-1] == 1
    places = data.shape[0] if name != "places in parts" else data.shape[1]
    at = np.where(indices < 0, indices + places, indices)
    inside = (at >= 0) & (at < places)
    wanted = data.copy()
    ufunc = UFUNCS[kernel.label.split()[-1]]
    if rows:
        ufunc.at(wanted, at[inside], updates[inside[:, 0]])
    else:
        grid = [*np.indices(indices.shape)]
        grid[0 if name == "columns in tasks" else 1] = at
        ufunc.at(wanted, tuple(g[inside] for g in grid), updates[inside])

    assert compiled.sources[names[name]].geometry.groups[0] > 1
    assert_identical(compiled.run(names[name], [data, indices, updates])[0], wanted)


@pytest.mark.parametrize("name", ["added", "slices", "added along rows"])
def test_a_result_on_data_s_own_memory_is_changed_there(name, built, library):
    kernel, _ = FEATURES[name]
    source, compiled = built[name]
    data, indices, updates = inputs_of(kernel)
    (wanted,) = expected(kernel, [data, indices, updates])

    compiled.run(source.geometry.groups, source.geometry.items, [data, indices, updates, data])

    assert_identical(data, wanted)
    assert "if (x3 != x0)" in source.text


@pytest.mark.parametrize("name", ["added", "slices", "added along rows"])
def test_opencl_text_changes_a_result_on_data_s_own_memory_there(name):
    kernel, schedule = FEATURES[name]
    source = render(kernel, schedule, opencl_device.target().with_limits(warp=32), "k0")
    inputs = inputs_of(kernel)

    (found,) = opencl_device.run(kernel, source, inputs, in_place=0)

    assert_identical(found, expected(kernel, inputs)[0])
    assert "if (x3 != x0)" in source.text


def test_data_that_is_computed_or_read_by_updates_is_never_taken_for_the_result():
    kernel = scatter((5, 3), (4, 3), "add", axis=0)
    body = kernel.body
    computed = replace(kernel, body=replace(body, initial=body.initial * 2.0))
    read = replace(kernel, body=replace(body, after=body.after + body.initial * 0.0))

    assert copied_in_place(kernel) == 0
    assert copied_in_place(computed) is None
    assert copied_in_place(read) is None
    assert "!= x0" not in render(computed, BASE, TARGET, "k0").text


BARRIER = "__syncthreads();"


def test_the_barrier_between_copy_and_updates_is_needed():
    kernel, schedule = FEATURES["added along rows"]
    source = render(kernel, schedule, TARGET, "r0")
    assert source.text.count(BARRIER) == 1
    texts = [(source.text, "r0"), (source.text.replace(BARRIER, ""), "r0")]
    good, bad = compile_many(texts, sanitizer="thread")

    launched(kernel, source, good, inputs_of(kernel))
    with pytest.raises(RaceError):
        launched(kernel, source, bad, inputs_of(kernel))


@pytest.mark.parametrize(
    ("sizes", "most"),
    [
        ((1, 1000, 10), 256),
        ((1, 10**4, 10), 1000),
        ((3000, 1000, 100_000), READERS),
        ((3, 7, 100_000), 7),
        ((1, 1, 1), 1),
        ((1, 10**9, 1), 10**9),
        ((1, 1000, 10**6), 256),
        ((2, 1000, 10**6), 128),
    ],
)
def test_work_is_linear_in_places_and_updates(sizes, most):
    lines, places, updates = sizes
    p = ScatterProblem(lines=lines, places=places, updates=updates, side_by_side=0, widest=1)

    assert most_parts(p, 4) == most
    for limits in (TARGET.limits, opencl_device.target().limits):
        schedule = FAMILY.default(p, limits)
        looks = updates * schedule.parts * schedule.part_items
        readers = max(READERS, READERS_OF_A_UNIT * limits.units // lines) if limits.warp > 1 else READERS
        assert looks <= max(places, readers * updates)


def test_few_places_with_many_updates_have_more_than_one_work_group():
    p = ScatterProblem(lines=1, places=1000, updates=10**6, side_by_side=0, widest=1)

    groups = FAMILY.geometry(FAMILY.default(p, TARGET.limits), p).groups

    assert groups[0] * groups[1] > 3


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"vector": 2}, "1 lines can be changed at once, not 2"), ({"part_items": 256}, "1024 work-items per work-group")],
)
def test_what_cannot_run_is_refused_with_the_reason(change, reason):
    sizes, limits = FAMILY.problem(FEATURES["added"][0]), TARGET.with_limits(threads=512).limits

    assert FAMILY.reasons(BASE, sizes, limits) == []
    assert any(reason in r for r in FAMILY.reasons(BASE | change, sizes, limits))


def test_slices_are_read_and_written_by_sixteen_bytes_and_nothing_spills():
    kernel = scatter((512, 768), (64, 1), "add")
    source = render(kernel, FAMILY.default(problem(kernel), TARGET.limits).numbers, TARGET, "k0")

    cubin, log = cuda.compile_source(source, TARGET)

    used = cuda.resources(log)["k0"]
    assert math.prod(source.geometry.groups) >= 16
    assert used.spill_stores == used.spill_loads == used.stack_bytes == 0
    found = sass.instructions(cubin)
    if found is not None:  # indices are the other loads
        assert sum(n for name, n in found.items() if name.startswith("STG") and ".128" not in name) == 0
        assert sass.wide_share(found) > 0.4
