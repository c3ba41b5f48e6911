"""The tcgen05 engine for sizes that each run decides: the bits of a kernel for one size, and the same tensor maps.

What it refuses is what wgmma refuses (test_wgmma_any_size.py): both ask ``tma_space.not_by_tiles``.
"""

from __future__ import annotations

import numpy as np
import pytest

from gpucomp.ir.types import F16
from gpucomp.kernel.interpreter import expected
from gpucomp.kernel.passes.pack_weights import pack
from gpucomp.kernels_templates.engines import engines_of
from gpucomp.kernels_templates.render import render
from gpucomp.targets import cuda
from testing.any_size_cases import B, H, M, N, Q, at, source_at
from testing.cuda_on_cpu.harness import compile_many
from testing.kernels import matmul, with_row_statistics
from testing.launches import launched
from testing.tcgen05_kernels import FAMILY, PAIR, TARGET, TILE, TMA_STORE, TWO, WIDE
from testing.tolerance import assert_matches
from testing.wgmma_kernels import image, one_result, prepared, with_math

SIZES = (  # one row, fewer than a tile has, and no multiple of a tile
    {"b": 1, "n": 1, "m": 1, "q": 4, "h": 5},
    {"b": 3, "n": 37, "m": 66, "q": 48, "h": 9},
    {"b": 2, "n": 149, "m": 90, "q": 20, "h": 12},
)
CASES = {
    "rows": (matmul(N, 40, 72, dtype=F16, b_transposed=True), TILE),
    "rows and a batch": (matmul(N, 40, 72, batch=(B,), dtype=F16, b_transposed=True), WIDE | {"stages": 3}),
    "columns": (matmul(M, Q, 72, batch=(2,), dtype=F16, b_transposed=True), TILE | {"multicast": 2}),
    "tf32": (with_math(matmul(N, 40, 100, b_transposed=True)), TWO | {"stages": 3}),
    "split": (matmul(N, 24, 264, dtype=F16, b_transposed=True), TILE | {"splits": 2}),
    "b for two": (
        matmul(N, 40, 328, batch=(B,), dtype=F16, b_transposed=True),
        TILE | {"multicast": 1, "stages": 3},
    ),
    "tma store": (
        one_result(matmul(N, 72, 72, batch=(B,), dtype=F16, b_transposed=True)),
        TMA_STORE | {"tile_m": 128, "tile_n": 64},
    ),
    "row statistics": (with_row_statistics(matmul(N, 48, 72, dtype=F16, b_transposed=True)), TILE),
    "images": (image((B, H, H, 24), 40, (3, 3), pad=1, dtype=F16), WIDE),
    "a pair": (matmul(N, 40, 72, batch=(B,), dtype=F16, b_transposed=True), PAIR),
    "turns": (
        one_result(matmul(N, 72, 72, batch=(B,), dtype=F16, b_transposed=True)),
        TMA_STORE | {"tile_n": 64, "turns": 2},
    ),
    "turns of a pair": (
        image((B, H, 11, 16), 24, (3, 3), pad=1, dtype=F16),
        PAIR | {"tma_store": 1, "tile_n": 16, "turns": 3},
    ),
    "strided": (image((B, H, 11, 16), 24, (3, 3), stride=2, pad=1, dtype=F16), TMA_STORE),
}


def rendered(name):
    """The source for any size; constants that the engine reads in another layout are packed."""
    kernel, schedule = CASES[name]
    wanted = FAMILY.packing(kernel, FAMILY.schedule(schedule), FAMILY.problem(kernel))
    kernel = kernel if wanted is None else pack(kernel, wanted).kernel
    return render(kernel, schedule, TARGET, f"k{list(CASES).index(name)}", FAMILY)


@pytest.fixture(scope="module")
def sources():
    return {name: rendered(name) for name in CASES}


@pytest.fixture(scope="module")
def built(sources):
    return dict(zip(sources, compile_many([(s.text, s.name) for s in sources.values()]), strict=True))


@pytest.fixture(scope="module")
def fixed():
    """For each case and each set of sizes the kernel, the source for these sizes alone, and its build."""
    found = {}
    for name, (kernel, schedule) in CASES.items():
        for number, sizes in enumerate(SIZES):
            one, inputs, given = prepared(at(kernel, sizes), schedule, FAMILY)
            source = render(one, schedule, TARGET, f"f{len(found)}", FAMILY)
            found[name, number] = at(kernel, sizes), inputs, one, given, source
    libraries = compile_many([(s.text, s.name) for *_, s in found.values()])
    return {key: (*parts, one) for (key, parts), one in zip(found.items(), libraries, strict=True)}


@pytest.mark.parametrize("name", CASES)
def test_one_source_has_the_bits_and_maps_of_a_source_for_each_size(name, sources, built, fixed):
    kernel, _ = CASES[name]
    assert FAMILY in engines_of(kernel, TARGET.features)

    for number, sizes in enumerate(SIZES):
        whole, inputs, one, given, alone, library = fixed[name, number]
        source, numbers = source_at(sources[name], sizes)
        found = launched(one, source, built[name], given, numbers=numbers)
        for x, y in zip(found, launched(one, alone, library, given), strict=True):
            np.testing.assert_array_equal(x, y)
        terms = int(np.prod([v.extent for v in whole.body.k]))
        for x, right in zip(found, expected(whole, inputs), strict=True):
            assert_matches(x, right, terms=terms)
        if min(sizes.values()) > 1:  # a batch of one, or a single row, is described by fewer numbers
            assert source.tensor_maps == alone.tensor_maps


@pytest.mark.parametrize("name", CASES)
def test_nvrtc_compiles_it_without_spills(name, sources):
    _, log = cuda.compile_source(sources[name], TARGET)

    assert cuda.resources(log)[sources[name].name].spilt == 0
