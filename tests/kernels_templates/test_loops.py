"""The engines of the loops family: transposes by tiles, and independent points with several accesses in flight."""

from __future__ import annotations

import pytest

from gpucomp import ops
from gpucomp.expr.core import axes_of, call, load, select
from gpucomp.ir.types import F16, F32, F64, I64, TensorType
from gpucomp.kernel.interpreter import expected
from gpucomp.kernels_templates.engines import FAMILIES, engines_of
from gpucomp.kernels_templates.render import render
from gpucomp.schedule.choose import choose
from gpucomp.targets import cuda, opencl, sass
from testing import opencl_device
from testing.cases.loops import BASE, FEATURES, WIDE, batched, heads, of_operator
from testing.cuda_on_cpu.errors import CudaOnCpuError
from testing.cuda_on_cpu.harness import RaceError, compile_many
from testing.kernels import add_relu, elementwise, padded, random_inputs, transposed
from testing.launches import in_any_order, launched
from testing.tolerance import assert_matches
from tests import nvrtc

FAMILY = FAMILIES["loops/transpose"]
TARGET = cuda.manifest("sm_80")


def assert_right(kernel, outputs):
    for actual, right in zip(outputs, expected(kernel, random_inputs(kernel)), strict=True):
        assert_matches(actual, right)


@pytest.fixture(scope="module")
def built():
    sources = [render(k, s, TARGET, f"f{i}", FAMILY) for i, (k, s) in enumerate(FEATURES.values())]
    made = compile_many([(s.text, s.name) for s in sources])
    return dict(zip(FEATURES, zip(sources, made, strict=True), strict=True))


@pytest.mark.parametrize("name", FEATURES)
def test_cuda_text_gives_numpy_s_answer_in_any_thread_order(name, built):
    kernel, _ = FEATURES[name]

    assert_right(kernel, in_any_order(kernel, *built[name]))


@pytest.mark.parametrize("name", FEATURES)
def test_opencl_text_gives_numpy_s_answer(name):
    kernel, schedule = FEATURES[name]

    source = render(kernel, schedule, opencl_device.target(), "k0", FAMILY)

    assert_right(kernel, opencl_device.run(kernel, source, random_inputs(kernel)))


def guarded():
    i, j = axes = axes_of((20, 20))
    return elementwise([select(i < 9, load(0, (j, i), F32), 0.0)], (TensorType(F32, (20, 20)),), (20, 20), axes)


def two_turned():
    i, j = axes = axes_of((20, 20))
    square = TensorType(F32, (20, 20))
    return elementwise([load(0, (j, i), F32) + load(1, (j, i), F32)], (square, square), (20, 20), axes)


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (add_relu(9, 16), "0 loads are contiguous along another axis"),
        (padded(20, 2), "0 loads are contiguous along another axis"),
        (two_turned(), "2 loads are contiguous along another axis"),
        (guarded(), "the load is guarded"),
        (transposed(100, 3), "fills no tile"),
        (elementwise([load(0, (), F32)], (TensorType(F32, ()),), (), ()), "one common axis"),
    ],
)
def test_what_is_no_transpose_stays_with_the_points(kernel, reason):
    assert reason in FAMILY.accepts(kernel, frozenset())
    assert [f.title for f in engines_of(kernel)] == ["loops"]


def test_a_transpose_goes_to_its_own_engine():
    assert choose(transposed(64, 64), engines_of(transposed(64, 64)), TARGET.limits).family is FAMILY


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"threads": 512}, "do not divide a tile of 16 by 16"),
        ({"tile": 64, "threads": 32}, "do not divide a tile of 64 by 64"),
        ({"tile": 64, "threads": 512}, "512 work-items per work-group, the device allows 256"),
        ({"tile": 64}, "33280 B of shared memory"),
    ],
)
def test_what_cannot_run_is_refused_with_the_reason(change, reason):
    limits = opencl.manifest("generic").limits
    sizes = FAMILY.problem(transposed(100, 100, dtype=F64))

    assert FAMILY.reasons(BASE, sizes, limits) == []
    assert any(reason in r for r in FAMILY.reasons(BASE | change, sizes, limits))


@pytest.mark.parametrize("arch", nvrtc.SPREAD)
def test_defaults_compile_and_take_the_shared_memory_of_a_padded_tile(arch):
    target = cuda.manifest(arch)
    for kernel in (transposed(1024, 1024), transposed(197, 64, dtype=F16), heads(197, 3, 64)):
        sizes = FAMILY.problem(kernel)
        schedule = FAMILY.default(sizes, target.limits).numbers
        source = render(kernel, schedule, target, "k0", FAMILY)

        used = cuda.resources(cuda.compile_source(source, target)[1])["k0"]

        assert used.shared_bytes == schedule["tile"] * (schedule["tile"] + 1) * sizes.width
        assert used.spill_stores == used.stack_bytes == 0


@pytest.mark.parametrize("flavour", opencl.FLAVOURS)
def test_defaults_are_legal_on_every_device(flavour):
    limits = opencl.manifest(flavour).limits
    for kernel in (transposed(1024, 1024), transposed(9, 1000, dtype=F64), batched(3, 21, 18)):
        sizes = FAMILY.problem(kernel)

        assert FAMILY.reasons(FAMILY.default(sizes, limits).numbers, sizes, limits) == []


def test_large_arrays_have_several_accesses_in_flight_and_small_ones_do_not():
    family = FAMILIES["loops"]
    large, small = (family.problem(add_relu(n, 4096)) for n in (4096, 16))

    assert family.default(large, TARGET.limits).numbers["items"] == 4
    assert family.default(large, TARGET.limits).numbers["vector"] == 4
    assert family.default(small, TARGET.limits).numbers["items"] == 1


# ---- conditions on what is loaded ----


def thresholded(kind: str):
    """Elements above a bound, else zero. The condition depends on the element, not on its index."""
    axes = axes_of((7, 24))
    i = axes[0]
    x = load(0, axes, F32)
    above = call("lt", 0.25, x)
    value = {
        "alone": select(above, x, 0.0),
        "within a margin": select(call("le", 2, i), select(above, x, 0.0), 0.0),
        "around a margin": select(above, select(call("le", 2, i), x, 0.0), 0.0),
        "used twice": select(above, x, 0.0) * x + x,
        "the other way": select(above, 0.0, x),
    }[kind]
    return elementwise([value], (TensorType(F32, (7, 24)),), (7, 24), axes)


THRESHOLDS = ("alone", "within a margin", "around a margin", "used twice", "the other way")


def test_a_condition_on_the_element_outlives_its_vector_load():
    family, schedule = FAMILIES["loops"], {"threads": 32, "vector": 4, "items": 1}
    kernels = {name: thresholded(name) for name in THRESHOLDS}
    sources = {name: render(k, schedule, TARGET, f"t{i}", family) for i, (name, k) in enumerate(kernels.items())}
    made = compile_many([(s.text, s.name) for s in sources.values()])

    for (name, kernel), one in zip(kernels.items(), made, strict=True):
        assert "reinterpret_cast<const uint4*>(x0" in sources[name].text, name
        assert_right(kernel, launched(kernel, sources[name], one))
        on_opencl = render(kernel, schedule, opencl_device.target(), "k0", family)
        assert_right(kernel, opencl_device.run(kernel, on_opencl, random_inputs(kernel)))


# ---- seeded mistakes ----

MISTAKES = {
    "a tail one too long": ("tails of both sides", "reading < 21", "reading < 22"),
    "a tile not turned": ("tails of both sides", "= tile[fast][slow + step]", "= tile[slow + step][fast]"),
    "a step left out": ("tails of both sides", "step < 16", "step < 12"),
    "another batch": ("batched, beside others", "batch = number / 4", "batch = number / 3"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_seen(name):
    feature, old, new = MISTAKES[name]
    kernel, schedule = FEATURES[feature]
    source = render(kernel, schedule, TARGET, "m0", FAMILY)
    assert old in source.text
    (one,) = compile_many([(source.text.replace(old, new), "m0")])

    with pytest.raises((AssertionError, CudaOnCpuError)):
        assert_right(kernel, launched(kernel, source, one))


def test_a_missing_barrier_is_a_race_and_the_text_has_none():
    kernel, schedule = FEATURES["tails of both sides"]
    source = render(kernel, schedule, TARGET, "r0", FAMILY)
    missing = source.text.replace("__syncthreads();", "")
    assert missing != source.text
    whole, broken = compile_many([(source.text, "r0"), (missing, "r0")], sanitizer="thread")

    launched(kernel, source, whole)
    with pytest.raises(RaceError):
        launched(kernel, source, broken)


@pytest.mark.parametrize("name", WIDE)
def test_gathered_rows_and_resized_images_move_by_sixteen_bytes(name):
    kernel, wide, narrow = WIDE[name]
    target = cuda.manifest("sm_90a")
    chosen = choose(kernel, engines_of(kernel, target.features), target.limits)

    cubin, log = cuda.compile_source(render(kernel, chosen.schedule, target, "k0", chosen.family), target)

    used, found = cuda.resources(log)["k0"], sass.instructions(cubin)
    assert used.spill_stores == used.spill_loads == used.stack_bytes == 0
    if found is None:
        pytest.skip("nvdisasm is not installed")
    moved = {n: sum(c for i, c in found.items() if i.startswith(n) and ".128" in i) for n in ("LDG", "STG")}
    assert moved == {"LDG": wide, "STG": 1}
    assert sass.count(found, "LDG", "STG") == wide + narrow + 1
    assert sass.count(found, "CALL") == 0  # divisions that are not multiplications are calls


def test_indices_wider_than_what_they_gather_do_not_narrow_it():
    half = of_operator(ops.Gather, TensorType(F16, (50, 64)), TensorType(I64, (7,)), axis=0)
    single = of_operator(ops.GatherElements, TensorType(F32, (9, 64)), TensorType(I64, (7, 64)), axis=0)

    assert FAMILIES["loops"].problem(half).width == 2
    assert FAMILIES["loops"].problem(single).width == 8  # an index for each element
