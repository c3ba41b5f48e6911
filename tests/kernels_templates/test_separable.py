"""Depthwise separable convolutions as one kernel: both engines compared with numpy, refusals, registers, mutations."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest

from gpucomp.ir.types import F16
from gpucomp.kernel.interpreter import UNWRITTEN, expected
from gpucomp.kernel.passes.pack_weights import pack, packed_constant
from gpucomp.kernels_templates.engines import engines_of
from gpucomp.kernels_templates.render import render
from gpucomp.schedule import rank
from gpucomp.targets import cuda, opencl
from testing import opencl_device
from testing.cases.separable import FEATURES, MMA, MODELS, SIMT, M, S
from testing.cuda_on_cpu.errors import CudaOnCpuError, RaceError
from testing.cuda_on_cpu.harness import ORDERS, compile_many
from testing.kernels import random_inputs, separable
from testing.tolerance import assert_matches
from tests import nvrtc

TARGET = cuda.manifest("sm_80")


def prepared(family, kernel, schedule):
    """The kernel with packed filters, and its inputs."""
    packing = family.packing(kernel, family.schedule(schedule), family.problem(kernel))
    made, inputs = pack(kernel, packing), random_inputs(kernel)
    return made.kernel, [*(inputs[k] for k in made.kept), packed_constant(made, inputs)]


def launched(kernel, source, built, inputs, order="forward"):
    g = source.geometry
    outputs = [np.full(t.shape, UNWRITTEN).astype(t.dtype.numpy) for t in kernel.params[kernel.inputs :]]
    scratch = []
    if g.workspace_bytes:
        scratch = [np.full(g.workspace_bytes, 255, np.uint8), np.zeros(g.counter_bytes, np.uint8)]
    args = [*map(np.ascontiguousarray, inputs), *outputs, *scratch]
    built.run(g.groups, g.items, args, order=order, seed=3, dynamic_shared=g.dynamic_shared_bytes)
    return outputs


def assert_right(kernel, outputs):
    """tf32 rounds both operands to 11 bits, as f16 has them."""
    r, s, c = kernel.params[1].shape
    if kernel.body.math == "tf32":
        outputs = [x.astype(np.float16) for x in outputs]
        for actual, right in zip(outputs, expected(kernel, random_inputs(kernel)), strict=True):
            assert_matches(actual, right.astype(np.float16), terms=r * s * c)
        return
    for actual, right in zip(outputs, expected(kernel, random_inputs(kernel)), strict=True):
        assert_matches(actual, right, terms=r * s * c)


@pytest.fixture(scope="module")
def built():
    ready = {name: prepared(*case) for name, case in FEATURES.items()}
    sources = {
        name: render(ready[name][0], schedule, TARGET, f"k{number}", family)
        for number, (name, (family, _, schedule)) in enumerate(FEATURES.items())
    }
    made = compile_many([(s.text, s.name) for s in sources.values()])
    return {name: (sources[name], one, ready[name][1]) for name, one in zip(FEATURES, made, strict=True)}


@pytest.mark.parametrize("name", FEATURES)
def test_cuda_text_gives_numpy_s_answer_in_any_thread_order(name, built):
    _, kernel, _ = FEATURES[name]

    results = [launched(kernel, *built[name], order) for order in ORDERS]

    assert_right(kernel, results[0])
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", ["channels that fill no part", "two images, stride 2, split", "one row of pixels"])
def test_opencl_text_gives_numpy_s_answer(name):
    family, kernel, schedule = FEATURES[name]
    schedule = schedule | {"asynchronous": 0, "reg_y": 1}
    packed, inputs = prepared(family, kernel, schedule)
    target = replace(opencl_device.target(), limits=replace(opencl.manifest("generic").limits, device_fence=True))

    source = render(packed, schedule, target, "k0", family)

    assert_right(kernel, opencl_device.run(packed, source, inputs))


def random_case(draw, family):
    while True:
        half = family is MMA and draw.random() < 0.6
        window, pad = draw.choice([((3, 3), 1), ((3, 3), 0), ((5, 5), 2), ((2, 3), 1), ((1, 5), 0)])
        stride = (draw.choice([1, 1, 2]), draw.choice([1, 1, 2, 3]))
        image = (draw.choice([1, 2]), draw.randint(5, 12), draw.randint(5, 12), draw.choice([2, 6, 8, 20, 36]))
        math = "3xtf32" if family is MMA and not half else "strict"
        dtype = {"dtype": F16} if half else {}
        kernel = separable(image, draw.choice([1, 5, 16, 27]), window, stride=stride, pad=pad, math=math, **dtype)
        if family.accepts(kernel, TARGET.features):
            continue
        drawn = {p.name: draw.choice(p.choices) for p in family.params}
        problem, schedule = family.problem(kernel), family.schedule(drawn)
        if family.reasons(drawn, problem, TARGET.limits):
            continue
        derived = family.derive(schedule, problem)
        if derived.trips > 4:
            continue
        if family.geometry(schedule, problem).items[0] * derived.tiles <= 4096:
            return family, kernel, drawn


def test_windows_and_schedules_drawn_at_random_give_numpy_s_answer():
    draw = random.Random(11)
    cases = [random_case(draw, family) for family in (SIMT, MMA) for _ in range(2)]
    ready = [prepared(*case) for case in cases]
    sources = [render(r[0], c[2], TARGET, f"k{i}", c[0]) for i, (r, c) in enumerate(zip(ready, cases, strict=True))]

    made = compile_many([(s.text, s.name) for s in sources])

    for (_, kernel, _), (_, inputs), source, one in zip(cases, ready, sources, made, strict=True):
        assert_right(kernel, launched(kernel, source, one, inputs))


# ---- what the engines take, and what they make of a device ----


def halved(kernel):
    _, h, w, c = kernel.params[0].shape
    r, s, _ = kernel.params[1].shape
    stride = h // kernel.params[-1].shape[1]
    return separable((1, h, w, c), kernel.params[-1].shape[3], (r, s), stride=(stride, stride), pad=r // 2, dtype=F16)


@pytest.mark.parametrize("arch", nvrtc.ARCHITECTURES)
def test_what_is_ranked_first_spills_nothing_and_fits_its_formula(arch):
    target = cuda.manifest(arch)
    number = nvrtc.ARCHITECTURES.index(arch)
    one, other = (list(MODELS.values())[(number + step) % len(MODELS)] for step in (0, 2))
    for kernel in (one, halved(other)):
        engines = rank.problems(kernel, engines_of(kernel, target.features))
        found = rank.best(kernel, engines, target.limits, target.device)[0]
        family, problem = found.family, found.family.problem(kernel)
        schedule = family.schedule(found.schedule)
        packed = pack(kernel, family.packing(kernel, schedule, problem)).kernel
        source = render(packed, found.schedule, target, "k0", family)

        used = cuda.resources(cuda.compile_source(source, target)[1])["k0"]

        assert used.spill_stores == used.spill_loads == used.stack_bytes == 0, (kernel.label, found.schedule)
        assert used.registers <= min(
            family.taken(schedule, problem), target.limits.registers_for(source.geometry.items[0])
        )
        assert family is (MMA if kernel.params[0].dtype is F16 else SIMT)


@pytest.mark.parametrize(
    ("family", "kernel", "schedule", "limits", "registers"),
    [
        (
            SIMT,
            separable((1, 56, 56, 144), 24, (3, 3), pad=1),
            S
            | {
                "tile_y": 8,
                "tile_x": 32,
                "tile_n": 8,
                "reg_m": 1,
                "reg_n": 4,
                "vector": 4,
                "reg_y": 1,
                "reg_x": 4,
                "parts": 12,
                "splits": 3,
            },
            cuda.manifest("sm_86").limits,
            128,
        ),
        (
            MMA,
            separable((1, 56, 56, 144), 24, (3, 3), pad=1, dtype=F16),
            M
            | {
                "tile_y": 2,
                "tile_x": 32,
                "warp_n": 64,
                "warps_m": 1,
                "warps_n": 2,
                "warps_k": 1,
                "vector": 4,
                "reg_y": 2,
                "reg_x": 1,
                "parts": 3,
                "splits": 3,
            },
            cuda.manifest("sm_75").limits,
            rank.PRESSURE,
        ),
    ],
    ids=["512 work-items have 128", "two windows of 16 bytes"],
)
def test_spills_are_foreseen(family, kernel, schedule, limits, registers):
    """ptxas spills 16 bytes (sm_86) and 12 bytes (sm_75) of these."""
    p = family.problem(kernel)

    assert family.registers(family.schedule(schedule), p) > registers
    small = schedule | {"reg_y": 1, "reg_x": 1, "vector": 2}
    assert family.reasons(small, p, limits) == []
    assert family.registers(family.schedule(small), p) <= registers


@pytest.mark.parametrize(
    ("target", "kernel", "engines"),
    [
        (cuda.manifest("sm_80"), MODELS["first"], ["separable_simt"]),
        (cuda.manifest("sm_80"), halved(MODELS["first"]), ["separable_mma"]),
        (cuda.manifest("sm_80"), separable((1, 9, 9, 8), 8, (3, 3), math="tf32"), ["separable_mma", "separable_simt"]),
        (cuda.manifest("sm_75"), separable((1, 9, 9, 8), 8, (3, 3), math="tf32"), ["separable_simt"]),
        (opencl.manifest("generic"), MODELS["first"], ["separable_simt"]),
        (opencl.manifest("mali"), MODELS["first"], []),
        (opencl.manifest("gfx90a"), MODELS["first"], []),
        (cuda.manifest("sm_80"), separable((1, 9, 9, 7), 8, (3, 3)), []),
        (cuda.manifest("sm_80"), separable((1, 19, 19, 8), 8, (9, 9), pad=4), []),
        (cuda.manifest("sm_80"), replace(MODELS["first"], constants=frozenset({1, 2})), []),
    ],
)
def test_who_takes_what(target, kernel, engines):
    assert [f.engine for f in engines_of(kernel, target.features)] == engines


@pytest.mark.parametrize("family", [SIMT, MMA], ids=lambda f: f.engine)
@pytest.mark.parametrize(
    "target", [*map(cuda.manifest, cuda.ARCHITECTURES), opencl.manifest("generic")], ids=lambda t: t.name
)
def test_defaults_are_legal(family, target):
    for kernel in MODELS.values():
        kernel = kernel if family is SIMT else halved(kernel)
        if family.accepts(kernel, target.features):
            assert (family, target.kind) == (MMA, "opencl")
            continue
        sizes = family.problem(kernel)

        assert family.reasons(family.default(sizes, target.limits).numbers, sizes, target.limits) == []


@pytest.mark.parametrize(
    ("family", "change", "reason"),
    [
        (SIMT, {"reg_m": 8, "tile_y": 1, "tile_x": 4}, "must divide"),
        (SIMT, {"vector": 8}, "an access takes 4 channels"),
        (SIMT, {"tile_y": 1, "reg_y": 2}, "reg_y, reg_x must divide"),
        (SIMT, {"asynchronous": 0, "parts": 1}, "arrays of fixed size"),
        (SIMT, {"tile_y": 16, "tile_x": 32, "reg_m": 1}, "work-items per work-group"),
        (SIMT, {"tile_n": 128, "tile_x": 32, "reg_m": 8}, "B of shared memory, the device has"),
        (SIMT, {"parts": 1, "splits": 8, "tile_n": 4}, ""),
        (SIMT, {"parts": 1, "splits": 16}, "leave some of 16 work-groups with none"),
        (MMA, {"warps_m": 4}, "do not share 16 outputs"),
        (MMA, {"splits": 16, "parts": 16}, "leave some of 16 work-groups with none"),
    ],
)
def test_what_cannot_run_is_refused_with_the_reason(family, change, reason):
    kernel = separable((1, 14, 14, 576), 96, (3, 3), pad=1) if family is SIMT else halved(MODELS["middle"])
    base = (S | {"parts": 2}) if family is SIMT else (M | {"parts": 2})
    sizes = family.problem(kernel)

    reasons = family.reasons(base | change, sizes, TARGET.limits)

    assert family.reasons(base, sizes, TARGET.limits) == []
    assert any(reason in r for r in reasons) if reason else reasons == []


def test_less_shared_memory_is_more_parts():
    sizes = SIMT.problem(separable((1, 7, 7, 1024), 256, (3, 3), pad=1))

    def least_parts(shared):
        limits = replace(TARGET.limits, shared_bytes=shared)
        return next(n for n in (1, 2, 3, 4, 6, 8, 12, 16) if not SIMT.reasons(S | {"parts": n}, sizes, limits))

    assert [least_parts(shared) for shared in (232448, 101376, 65536, 16384)] == [1, 2, 3, 12]


# ---- seeded mistakes ----

MISTAKES = {
    "no wait for the filters": ("plain", "gc_cp_async_wait<0>();", "", None),
    "a halo one too wide": ("plain", "u0 < 9", "u0 <= 9", "address"),
    "a tail of channels that is not cleared": ("plain", "if (channel < 3) {", "if (channel < 99) {", "address"),
    "the second part's filters are the first's": ("channels that fill no part", "(part * 16 + number", "(number", None),
    "no barrier before the next part": (
        "channels that fill no part",
        "    }\n    __syncthreads();\n  }",
        "    }\n  }",
        "thread",
    ),
    "another split's channels": (
        "two images, stride 2, split",
        "int begin = (int)blockIdx.y * 2",
        "int begin = 0 * 2",
        None,
    ),
    "fragments of another step": ("f16", "(step) * 32)", "0 * 32)", None),
    "a warp's columns are its neighbour's": ("f16 of many warps", "+ b_warp * 16 + my_lane", "+ my_lane", None),
}


@pytest.fixture(scope="module")
def broken():
    cases = {}
    for number, (name, (case, old, new, sanitizer)) in enumerate(MISTAKES.items()):
        family, kernel, schedule = FEATURES[case]
        packed, inputs = prepared(family, kernel, schedule)
        source = render(packed, schedule, TARGET, f"m{number}", family)
        assert old in source.text, source.text
        cases[name] = (kernel, source, inputs, source.text.replace(old, new), sanitizer)
    found = {}
    for sanitizer, names in itertools.groupby(sorted(cases, key=lambda n: str(cases[n][4])), key=lambda n: cases[n][4]):
        names = list(names)
        made = compile_many([(cases[n][3], cases[n][1].name) for n in names], sanitizer=sanitizer)
        found |= {n: (*cases[n][:3], one) for n, one in zip(names, made, strict=True)}
    return found


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_seen(name, broken):
    kernel, source, inputs, one = broken[name]

    with pytest.raises((AssertionError, CudaOnCpuError, RaceError)):
        assert_right(kernel, launched(kernel, source, one, inputs, "shuffled"))
