"""One source for every size: the engines' kernels at several sizes, in OpenCL on PoCL and in CUDA on the CPU.

Sources are rendered where no condition can be noted: a comparison that is not the same in every run raises ``TypeError``.
"""

from __future__ import annotations

import math
from functools import cache

import pytest

from gpucomp.kernel import Attention, Contraction, Rowwise, Scan
from gpucomp.kernel.interpreter import expected
from gpucomp.kernels_templates.engines import FAMILIES, engines_of
from gpucomp.kernels_templates.render import render
from gpucomp.targets import cuda, hip, opencl
from testing import opencl_device
from testing.any_size_cases import CASES, SIZES, at, source_at
from testing.cuda_on_cpu.harness import compile_many, hip_compiler
from testing.kernels import random_inputs
from testing.launches import launched
from testing.tcgen05_kernels import TARGET as BLACKWELL
from testing.tcgen05_kernels import TILE as TCGEN05_TILE
from testing.template_cases import spread
from testing.tolerance import assert_matches
from testing.wgmma_kernels import TARGET as HOPPER
from testing.wgmma_kernels import TILE
from tests import nvrtc

CUDA = cuda.manifest("sm_80")
BY_TMA = {"wgmma": 160, "tcgen05": 192}  # work-items: one warp loads besides, and with tcgen05 another multiplies
GOLDEN = {  # engine: case, schedule
    "loops": ("add_relu_multiples", {"threads": 256, "vector": 4, "items": 1}),
    "loops/transpose": ("transposed", {"tile": 32, "threads": 256}),
    "rowwise": ("softmax", {"lanes": 32, "rows_per_group": 2, "vector": 1, "keep": 1, "splits": 1}),
    "pool": ("max_pool_of_open_channels", {"threads": 256, "vector": 1, "items": 1, "unroll": 1}),
    "pool/window": ("max_pool", {"threads": 64, "vector": 4, "tile_y": 1, "tile_x": 1, "unroll": 1}),
    "depthwise": ("depthwise", {"threads": 64, "vector": 2, "tile_y": 2, "tile_x": 7, "unroll": 1}),
    "scan": ("running_sum", {"look_back": 0, "lanes": 32, "rows_per_group": 1, "vector": 1, "accesses": 4}),
    "contraction/simt": (
        "conv",
        {
            "tile_m": 16,
            "tile_n": 16,
            "tile_k": 16,
            "reg_m": 2,
            "reg_n": 2,
            "stages": 2,
            "asynchronous": 0,
            "fragments": 1,
            "slices": 1,
            "splits": 1,
            "lanes": 1,
        },
    ),
    "contraction/gemv": (
        "row_of_open_depth",
        {"many_items": 8, "depth_items": 32, "accesses": 1, "unroll": 4, "shuffle": 0},
    ),
    "attention/simt": (
        "attention",
        {"tile_m": 32, "tile_n": 64, "reg_m": 4, "row_items": 16, "splits": 1, "vector": 1},
    ),
    "contraction/mma": (
        "matmul_f16_open",
        {
            "warp_m": 16,
            "warp_n": 16,
            "warps_m": 1,
            "warps_n": 1,
            "warps_k": 4,
            "k_steps": 4,
            "stages": 4,
            "splits": 1,
            "raster": 4,
        },
    ),
    "contraction/wgmma": ("matmul_f16_by_rows", TILE | {"overlap": 1, "multicast": 1}),
    "contraction/tcgen05": ("matmul_f16_by_rows", TCGEN05_TILE | {"overlap": 1, "multicast": 1}),
    "attention/mma": ("attention_f16_causal", {"warps": 1, "warp_m": 16, "tile_n": 64, "splits": 1}),
    "attention/wgmma": ("attention_f16_causal", {"consumers": 1, "tile_n": 64, "stages": 2, "overlap": 1}),
    "attention/tcgen05": ("attention_f16_causal", {"consumers": 1, "tile_n": 64, "stages": 2, "polynomials": 1}),
    "attention/amd": (
        "attention_f16_causal",
        {"wave": 64, "block": 32, "waves": 1, "blocks": 1, "tile_n": 32, "splits": 1},
    ),
    "scatter": ("scatter", {"line_items": 8, "part_items": 4, "parts": 1, "vector": 4}),
}


@cache
def rendered(case, target):
    """A source with the default schedule of each engine, and with another schedule."""
    kernel, found = CASES[case], []
    for family in engines_of(kernel, target.features):
        few = target.with_limits(threads=BY_TMA.get(family.engine, 128)).limits
        schedules = [
            dict(family.default(family.problem(kernel), target.limits).numbers),
            *spread(kernel, few, 1, seed=2, family=family),
        ]
        found += [render(kernel, s, target, f"k{len(found) + n}", family) for n, s in enumerate(schedules)]
    return found


def assert_right(case, source, run):
    for sizes in SIZES:
        kernel = at(CASES[case], sizes)
        launch, numbers = source_at(source, sizes)
        inputs = random_inputs(kernel)
        for actual, right in zip(run(kernel, launch, inputs, numbers), expected(kernel, inputs), strict=True):
            assert_matches(actual, right, terms=terms_of(kernel))


def terms_of(kernel):
    match kernel.body:
        case Contraction(k=axes) | Rowwise(cols=axes) | Attention(cols=axes):
            return max(1, math.prod(a.extent for a in axes))
        case Scan(axis=axis):
            return axis.extent
    return 1


@pytest.mark.parametrize("case", CASES)
def test_one_source_in_opencl_is_right_at_every_size(case):
    sources = rendered(case, opencl_device.gpu())
    built = opencl_device.built_together(sources)

    for source in sources:
        assert_right(
            case,
            source,
            lambda kernel, launch, inputs, numbers: opencl_device.run(
                kernel, launch, inputs, built=built[launch.name], numbers=numbers
            ),
        )


@pytest.mark.parametrize("case", CASES)
def test_so_is_the_default_of_a_processor(case):
    kernel, target = CASES[case], opencl_device.target()
    family = engines_of(kernel, target.features)[0]
    source = render(kernel, family.default(family.problem(kernel), target.limits).numbers, target, "k0", family)

    assert_right(
        case,
        source,
        lambda kernel, launch, inputs, numbers: opencl_device.run(kernel, launch, inputs, numbers=numbers),
    )


@pytest.mark.parametrize("case", CASES)
def test_one_source_in_cuda_is_right_at_every_size(case):
    sources = rendered(case, CUDA)
    built = {s.name: b for s, b in zip(sources, compile_many([(s.text, s.name) for s in sources]), strict=True)}

    for source in sources:
        assert_right(
            case,
            source,
            lambda kernel, launch, inputs, numbers: launched(
                kernel, launch, built[launch.name], inputs, numbers=numbers
            ),
        )


@pytest.mark.skipif(hip_compiler() is None, reason="needs clang 18 or newer: apt-get install clang-19 lld-19")
@pytest.mark.parametrize(
    ("engine", "arch", "case"),
    [
        *(
            ("attention/amd", arch, case)
            for arch in ("gfx90a", "gfx1100")
            for case in ("attention_f16", "attention_f16_causal")
        ),
        *(
            ("contraction/simt_pairs", "gfx906", case)
            for case in ("matmul_f16", "matmul_f16_by_rows", "matmul_f16_with_statistics", "conv_f16")
        ),
    ],
)
def test_one_source_in_hip_is_right_at_every_size(engine, arch, case):
    sources = rendered(case, hip.manifest(arch))
    built = compile_many([(s.text, s.name) for s in sources], arch=arch)
    assert engine in {source.engine for source in sources}

    for source, binary in zip(sources, built, strict=True):
        assert_right(
            case,
            source,
            lambda kernel, launch, inputs, numbers, binary=binary: launched(
                kernel, launch, binary, inputs, numbers=numbers
            ),
        )


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100"])
def test_nvrtc_compiles_them(arch):
    for case in CASES:
        for source in rendered(case, cuda.manifest(arch))[::2]:
            nvrtc.compile(cuda.prelude() + source.text, cuda.compiled_for(source.text, arch))


@pytest.mark.parametrize("engine", GOLDEN)
def test_the_text_for_any_size_is_the_golden_one(engine, golden):
    case, schedule = GOLDEN[engine]
    known = {"mma": CUDA, "wgmma": HOPPER, "tcgen05": BLACKWELL, "amd": hip.manifest("gfx90a")}
    target = known.get(engine.partition("/")[2], opencl.manifest("generic"))
    suffix = {"opencl": "cl", "cuda": "cu"}.get(target.language, target.language)

    source = render(CASES[case], schedule, target, "kernel0", FAMILIES[engine])

    golden(source.text, f"any_size_{engine.replace('/', '_')}.{suffix}")
