"""Attention whose operands TMA loads in panels, for sizes that each run decides: the bits and the maps of one for these sizes."""

from __future__ import annotations

import numpy as np
import pytest

from gpucomp.ir.types import BF16, F16
from gpucomp.kernel.interpreter import expected
from gpucomp.kernels_templates.engines import FAMILIES, engines_of
from gpucomp.kernels_templates.render import render
from gpucomp.targets import cuda
from testing.any_size_cases import B, M, N, Q, at, source_at
from testing.cuda_on_cpu.harness import compile_many
from testing.kernels import attention, random_inputs
from testing.launches import launched
from testing.tolerance import assert_matches

SIZES = (  # one row and key, fewer than a tile has, and no multiple of a tile
    {"b": 1, "n": 1, "m": 1, "q": 4},
    {"b": 3, "n": 37, "m": 66, "q": 48},
    {"b": 2, "n": 149, "m": 90, "q": 96},
)
KERNELS = {
    "rows and columns": attention(M, N, 16, 32, dtype=F16),
    "heads": attention(40, N, 24, 16, heads=B, group=2, dtype=BF16),
    "causal": attention(N, N, 16, 16, causal=0, dtype=F16),
    "a mask, and one more operand": attention(N, Q, 32, 16, mask="add", residual=True, dtype=F16),
}
ENGINES = {
    "attention/wgmma": ("sm_90a", {"consumers": 2, "tile_n": 32, "stages": 2, "overlap": 1}),
    "attention/tcgen05": ("sm_100", {"consumers": 2, "tile_n": 32, "stages": 2, "polynomials": 2}),
}
CASES = [(engine, name) for engine in ENGINES for name in KERNELS]


def rendered(engine, kernel, name):
    arch, schedule = ENGINES[engine]
    return render(kernel, schedule, cuda.manifest(arch), name, FAMILIES[engine])


@pytest.fixture(scope="module")
def sources():
    return {(engine, name): rendered(engine, KERNELS[name], f"k{i}") for i, (engine, name) in enumerate(CASES)}


@pytest.fixture(scope="module")
def built(sources):
    """Of each case the kernel for any size, and of each set of sizes the source for it alone, with its build."""
    alone = {
        (*case, number): rendered(case[0], at(KERNELS[case[1]], sizes), f"f{i}_{number}")
        for i, case in enumerate(CASES)
        for number, sizes in enumerate(SIZES)
    }
    texts = {**sources, **alone}
    found = compile_many([(source.text, source.name) for source in texts.values()])
    return alone, dict(zip(texts, found, strict=True))


@pytest.mark.parametrize(("engine", "name"), CASES)
def test_one_source_has_the_bits_and_maps_of_a_source_for_each_size(engine, name, sources, built):
    assert FAMILIES[engine] in engines_of(KERNELS[name], cuda.manifest(ENGINES[engine][0]).features)
    alone, libraries = built

    for number, sizes in enumerate(SIZES):
        kernel = at(KERNELS[name], sizes)
        source, numbers = source_at(sources[engine, name], sizes)
        one, inputs = alone[engine, name, number], random_inputs(kernel)
        found = launched(kernel, source, libraries[engine, name], inputs, numbers=numbers)
        for x, y in zip(found, launched(kernel, one, libraries[engine, name, number], inputs), strict=True):
            np.testing.assert_array_equal(x, y)
        for x, right in zip(found, expected(kernel, inputs), strict=True):
            assert_matches(x, right, terms=kernel.body.cols[0].extent)
        if min(sizes.values()) > 1:  # a batch of one is described by fewer numbers
            assert source.tensor_maps == one.tensor_maps


@pytest.mark.parametrize(("engine", "name"), CASES)
def test_nvrtc_compiles_it_without_spills(engine, name, sources):
    source = sources[engine, name]

    _, log = cuda.compile_source(source, cuda.manifest(ENGINES[engine][0]))

    assert cuda.resources(log)[source.name].spilt == 0
