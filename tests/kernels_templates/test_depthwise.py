"""The depthwise family: windows, strides, dilations and halos compared with numpy; which kernels it accepts."""

from __future__ import annotations

import random

import pytest

from gpucomp.expr.core import axes_of, load, reduce, var
from gpucomp.ir.types import F32, TensorType
from gpucomp.kernel import Kernel, Loops, Store
from gpucomp.kernel.interpreter import expected
from gpucomp.kernels_templates.depthwise.space import derive, registers, registers_taken
from gpucomp.kernels_templates.engines import FAMILIES, engines_of
from gpucomp.kernels_templates.render import render
from gpucomp.schedule.choose import choose
from gpucomp.targets import cuda, opencl
from testing import opencl_device
from testing.cases.depthwise import BASE, FEATURES, MODELS
from testing.cuda_on_cpu.errors import CudaOnCpuError
from testing.cuda_on_cpu.harness import compile_many
from testing.kernels import add_relu, depthwise, elementwise, random_inputs
from testing.launches import in_any_order, launched
from testing.tolerance import assert_matches
from tests import nvrtc

FAMILY = FAMILIES["depthwise"]
TARGET = cuda.manifest("sm_80")

RUNS = [name for name in FEATURES if name != "one pixel, padded"]


def terms(kernel):
    return kernel.params[1].shape[0] * kernel.params[1].shape[1]


def sources(cases, target):
    return [render(kernel, schedule, target, f"f{i}", FAMILY) for i, (kernel, schedule) in enumerate(cases)]


def assert_right(kernel, outputs):
    for actual, right in zip(outputs, expected(kernel, random_inputs(kernel)), strict=True):
        assert_matches(actual, right, terms=terms(kernel))


@pytest.fixture(scope="module")
def built():
    rendered = sources([FEATURES[name] for name in RUNS], TARGET)
    made = compile_many([(s.text, s.name) for s in rendered], sanitizer="address")
    return dict(zip(RUNS, zip(rendered, made, strict=True), strict=True))


@pytest.mark.parametrize("name", RUNS)
def test_cuda_text_gives_numpy_s_answer_in_any_thread_order(name, built):
    kernel, _ = FEATURES[name]

    assert_right(kernel, in_any_order(kernel, *built[name]))


@pytest.mark.parametrize("name", RUNS)
def test_opencl_text_gives_numpy_s_answer(name):
    kernel, schedule = FEATURES[name]

    source = render(kernel, schedule, opencl_device.target(), "k0", FAMILY)

    assert_right(kernel, opencl_device.run(kernel, source, random_inputs(kernel)))


def random_case(draw):
    """A random window over a random image, and a legal schedule for it."""
    while True:
        window = draw.choice([(3, 3), (2, 3), (5, 5), (1, 3), (4, 2), (7, 7)])
        image = (draw.choice([1, 2]), draw.randint(1, 14), draw.randint(1, 14), draw.choice([1, 2, 4, 6, 8]))
        options = {
            "stride": (draw.choice([1, 1, 2, 3]), draw.choice([1, 1, 2, 3])),
            "dilation": (draw.choice([1, 1, 2]), draw.choice([1, 1, 3])),
            "pad": draw.choice([0, 1, 2, 3]),
        }
        reach = [d * (f - 1) + 1 for f, d in zip(window, options["dilation"], strict=True)]
        if any(e + 2 * options["pad"] < r for e, r in zip(image[1:3], reach, strict=True)):
            continue
        kernel = depthwise(image, window, **options)
        if FAMILY.accepts(kernel, frozenset()):
            continue
        legal = {p.name: draw.choice(p.choices) for p in FAMILY.params} | {"threads": 32}
        if not FAMILY.reasons(legal, FAMILY.problem(kernel), TARGET.limits):
            return kernel, legal


def test_windows_and_schedules_drawn_at_random_give_numpy_s_answer():
    draw = random.Random(7)
    cases = [random_case(draw) for _ in range(24)]
    rendered = sources(cases, TARGET)

    made = compile_many([(s.text, s.name) for s in rendered])

    for (kernel, _), source, one in zip(cases, rendered, made, strict=True):
        assert_right(kernel, launched(kernel, source, one))


def several_outputs_of_a_channel():
    """A channel multiplier: two results per channel of the image."""
    i, j, c = domain = axes_of((6, 6, 8))
    r, s = var("r0", 3), var("r1", 3)
    value = reduce("sum", (r, s), load(0, (i + r, j + s, c // 2), F32) * load(1, (r, s, c), F32))
    shapes = ((8, 8, 4), (3, 3, 8), (6, 6, 8))
    return Kernel("loops", tuple(TensorType(F32, x) for x in shapes), 1, Loops(domain), (Store(2, domain, value),))


def channels_first():
    c, i, j = domain = axes_of((4, 6, 6))
    r, s = var("r0", 3), var("r1", 3)
    value = reduce("sum", (r, s), load(0, (c, i + r, j + s), F32) * load(1, (c, r, s), F32))
    shapes = ((4, 8, 8), (4, 3, 3), (4, 6, 6))
    return Kernel("loops", tuple(TensorType(F32, x) for x in shapes), 1, Loops(domain), (Store(2, domain, value),))


def turned_window():
    """Taps move along both the rows and the columns of the image, so this is not a sliding window."""
    i, j, c = domain = axes_of((6, 6, 4))
    r = var("r0", 3)
    value = reduce("sum", (r,), load(0, (i * 2 + r, j + r, c), F32) * load(1, (r, c), F32))
    shapes = ((13, 8, 4), (3, 4), (6, 6, 4))
    return Kernel("loops", tuple(TensorType(F32, x) for x in shapes), 1, Loops(domain), (Store(2, domain, value),))


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (add_relu(3, 4), "not one sum"),
        (elementwise([load(0, (), F32)], (TensorType(F32, ()),), (), ()), "no loop over channels"),
        (several_outputs_of_a_channel(), "several outputs share a channel"),
        (channels_first(), "both factors depend"),
        (turned_window(), "the sum of an output's place and a tap's place"),
    ],
)
def test_what_is_no_depthwise_convolution_stays_with_the_loops(kernel, reason):
    assert reason in FAMILY.accepts(kernel, frozenset())
    assert [f.name for f in engines_of(kernel)] == ["loops"]


def test_a_depthwise_convolution_goes_to_its_own_engine():
    kernel, _ = FEATURES["3x3"]

    choice = choose(kernel, engines_of(kernel), TARGET.limits)

    assert choice.family is FAMILY


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"vector": 8}, "vectors of 8 do not divide the 12 channels"),
        ({"tile_y": 2, "unroll": 0}, "only where the rows are written out"),
        ({"vector": 4, "tile_y": 4, "tile_x": 8}, "registers per work-item"),
        ({"tile_y": 4, "tile_x": 8}, "multiply-adds written out"),
    ],
)
def test_what_cannot_run_is_refused_with_the_reason(change, reason):
    sizes = FAMILY.problem(depthwise((1, 12, 12, 12), (7, 7), pad=3))

    assert FAMILY.reasons(BASE, sizes, TARGET.limits) == []
    assert any(reason in r for r in FAMILY.reasons(BASE | change, sizes, TARGET.limits))


def test_the_image_is_read_once_by_a_work_item():
    sizes = FAMILY.problem(depthwise((1, 56, 56, 32), (3, 3), pad=1))

    found = derive(FAMILY.schedule(BASE | {"tile_x": 4, "tile_y": 2}), sizes)

    assert (found.rows, found.columns) == (4, 6)


def test_a_dilated_window_skips_what_no_output_needs():
    sizes = FAMILY.problem(depthwise((1, 56, 56, 32), (3, 3), dilation=(2, 2), pad=2))

    one = derive(FAMILY.schedule(BASE), sizes)
    four = derive(FAMILY.schedule(BASE | {"tile_x": 4}), sizes)

    assert (one.rows, one.columns) == (3, 3)
    assert (four.rows, four.columns) == (3, 8)


@pytest.mark.parametrize("arch", nvrtc.SPREAD)
def test_defaults_spill_nothing_and_fit_their_formula(arch):
    target = cuda.manifest(arch)
    for name, kernel in MODELS.items():
        sizes = FAMILY.problem(kernel)
        schedule = FAMILY.default(sizes, target.limits)
        source = render(kernel, schedule.numbers, target, "k0", FAMILY)

        used = cuda.resources(cuda.compile_source(source, target)[1])["k0"]

        assert used.spill_stores == used.spill_loads == used.stack_bytes == 0, name
        assert used.registers <= registers_taken(schedule, sizes), name


@pytest.mark.parametrize("tile", [(4, 1, 4, 1), (4, 2, 4, 1), (2, 4, 4, 1), (4, 1, 8, 0), (4, 2, 7, 1), (8, 1, 2, 1)])
def test_registers_agree_with_the_formula(tile):
    schedule = BASE | dict(zip(("vector", "tile_y", "tile_x", "unroll"), tile, strict=True)) | {"threads": 128}
    kernel = MODELS["first"]
    s, p = FAMILY.schedule(schedule), FAMILY.problem(kernel)

    used = cuda.resources(cuda.compile_source(render(kernel, schedule, TARGET, "k0", FAMILY), TARGET)[1])["k0"]

    assert used.spill_stores == used.stack_bytes == 0
    assert s.vector * s.tile_y * s.tile_x <= used.registers
    assert registers(s, p) - 40 <= used.registers <= registers_taken(s, p)


@pytest.mark.parametrize(
    "target", [cuda.manifest("sm_75"), *map(opencl.manifest, opencl.FLAVOURS)], ids=lambda t: t.name
)
def test_defaults_are_legal_on_every_device(target):
    for name, kernel in MODELS.items():
        sizes = FAMILY.problem(kernel)

        reasons = FAMILY.reasons(FAMILY.default(sizes, target.limits).numbers, sizes, target.limits)

        assert reasons == [], name


def test_accesses_are_16_bytes_where_the_channels_allow_it():
    widths = {name: FAMILY.problem(kernel).widest for name, kernel in MODELS.items()}

    assert widths == dict.fromkeys(MODELS, 4) | {"half": 8, "odd": 2}


# ---- seeded mistakes ----

MISTAKES = {
    "halo test of the wrong side": ("3x3", "u0 < 9", "u0 <= 9"),
    "halo of the first row left out": ("3x3", "0 <= v0 && v0 < 7", "v0 < 7"),
    "a window one too narrow": ("3x3", "s < 3", "s < 2"),
    "rows of the window swapped": ("3x3, rows too", "int r = y - i;", "int r = 2 - (y - i);"),
    "a tail that is stored": ("3x3, rows too", "if (out_y >= 7) continue;", ""),
    "stride left out": ("3x3 stride 2", "line[j * 2 + s]", "line[j + s]"),
    "dilation left out": ("dilated, tiles", "const int r = ahead / 2;", "const int r = ahead / 2 * 0;"),
}


@pytest.fixture(scope="module")
def broken():
    pairs = []
    for number, (name, old, new) in enumerate(MISTAKES.values()):
        kernel, schedule = FEATURES[name]
        source = render(kernel, schedule, TARGET, f"m{number}", FAMILY)
        assert old in source.text, source.text
        pairs.append((source, source.text.replace(old, new)))
    made = compile_many([(text, source.name) for source, text in pairs])
    return {name: (source, one) for name, (source, _), one in zip(MISTAKES, pairs, made, strict=True)}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_seen(name, broken):
    kernel, _ = FEATURES[MISTAKES[name][0]]

    with pytest.raises((AssertionError, CudaOnCpuError)):
        assert_right(kernel, launched(kernel, *broken[name]))
