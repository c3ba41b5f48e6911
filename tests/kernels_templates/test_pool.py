"""The pool family's window engine, compared with numpy: pooling by the register window of depthwise convolutions."""

from __future__ import annotations

import pytest

from gpucomp.expr.core import axes_of, hole, load, var
from gpucomp.ir.types import F32, TensorType
from gpucomp.kernel import Kernel, Store, Window
from gpucomp.kernel.interpreter import expected
from gpucomp.kernels_templates.depthwise.space import registers_taken
from gpucomp.kernels_templates.engines import FAMILIES, engines_of
from gpucomp.kernels_templates.render import render
from gpucomp.schedule.choose import choose
from gpucomp.targets import cuda, opencl
from testing import opencl_device
from testing.cases.pool import FEATURES
from testing.cuda_on_cpu.errors import CudaOnCpuError
from testing.cuda_on_cpu.harness import compile_many
from testing.kernels import average_pool, max_pool, random_inputs
from testing.launches import in_any_order, launched
from testing.tolerance import assert_matches

FAMILY = FAMILIES["pool/window"]
TARGET = cuda.manifest("sm_80")


def assert_right(kernel, outputs):
    for actual, right in zip(outputs, expected(kernel, random_inputs(kernel)), strict=True):
        assert_matches(actual, right, terms=9)


@pytest.fixture(scope="module")
def built():
    sources = [render(k, s, TARGET, f"f{i}", FAMILY) for i, (k, s) in enumerate(FEATURES.values())]
    made = compile_many([(s.text, s.name) for s in sources], sanitizer="address")
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


def channels_first():
    c, i, j = domain = axes_of((4, 6, 6))
    taps = (var("r0", 3), var("r1", 3))
    acc = hole("acc", F32)
    body = Window(domain, taps, "max", load(0, (c, i + taps[0], j + taps[1]), F32), acc)
    return Kernel("pool", (TensorType(F32, (4, 8, 8)), TensorType(F32, (4, 6, 6))), 1, body, (Store(1, domain, acc),))


def three_axes():
    z, y, x, c = domain = axes_of((3, 4, 5, 4))
    r = axes_of((2, 2, 2), "r")
    acc = hole("acc", F32)
    body = Window(domain, r, "max", load(0, (z + r[0], y + r[1], x + r[2], c), F32), acc)
    shapes = ((4, 5, 6, 4), (3, 4, 5, 4))
    return Kernel("pool", tuple(TensorType(F32, s) for s in shapes), 1, body, (Store(1, domain, acc),))


@pytest.mark.parametrize(
    ("kernel", "reason"), [(channels_first(), "does not slide"), (three_axes(), "one or two axes")]
)
def test_other_windows_stay_with_the_points(kernel, reason):
    assert reason in FAMILY.accepts(kernel, frozenset())
    assert [f.title for f in engines_of(kernel)] == ["pool"]


def test_pooling_of_channels_goes_to_the_window():
    kernel = max_pool((8, 112, 112, 64), 3, 2, 1)

    assert [f.title for f in engines_of(kernel)] == ["pool/window", "pool"]
    assert choose(kernel, engines_of(kernel), TARGET.limits).family is FAMILY


@pytest.mark.parametrize(
    "target", [*map(cuda.manifest, cuda.ARCHITECTURES), *map(opencl.manifest, opencl.FLAVOURS)], ids=lambda t: t.name
)
def test_defaults_are_legal_and_spill_nothing(target):
    for kernel in (max_pool((1, 112, 112, 64), 3, 2, 1), average_pool((1, 35, 35, 192), (3, 3), 1, 1)):
        sizes = FAMILY.problem(kernel)
        schedule = FAMILY.default(sizes, target.limits).numbers
        assert FAMILY.reasons(schedule, sizes, target.limits) == []
        if target.language == "cuda":
            used = cuda.resources(cuda.compile_source(render(kernel, schedule, target, "k0", FAMILY), target)[1])["k0"]

            assert used.spill_stores == used.stack_bytes == 0
            assert used.registers <= registers_taken(FAMILY.schedule(schedule), sizes)


MISTAKES = {
    "padding that counts": ("max 3x3 stride 1", "u0 < 9", "u0 < 10"),
    "padding that wins": ("max 3x3 stride 2", "uv0[lane] : (-__int_as_float(0x7f800000))", "uv0[lane] : 3.0f"),
    "a tail that is stored": ("max 3x3 stride 2", "if (out_x >= 6) continue;", ""),
    "stride left out": ("max 3x3 stride 2", "line[j * 2 + s]", "line[j + s]"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_seen(name):
    feature, old, new = MISTAKES[name]
    kernel, schedule = FEATURES[feature]
    source = render(kernel, schedule, TARGET, "m0", FAMILY)
    assert old in source.text, source.text
    (one,) = compile_many([(source.text.replace(old, new), "m0")])

    with pytest.raises((AssertionError, CudaOnCpuError)):
        assert_right(kernel, launched(kernel, source, one))


def test_windows_of_many_items_are_not_written_out_into_spills():
    """Eight items of nine taps of 64 bytes each: ptxas took 56 registers on sm_100, and spilled 120 bytes."""
    kernel, target = max_pool((1, 35, 35, 288), 3, 2, 0), cuda.manifest("sm_100")
    schedule = {"threads": 64, "vector": 16, "items": 8, "unroll": 1}

    _, log = cuda.compile_source(render(kernel, schedule, target, "k0", FAMILIES["pool"]), target)

    used = cuda.resources(log)["k0"]
    assert used.spill_stores == used.spill_loads == used.stack_bytes == 0
