"""The wgmma engine for sizes that each run decides: the bits of a kernel for one size, the same tensor maps, and refusals.

Sources are rendered where no condition can be noted: a comparison that is not the same in every run raises ``TypeError``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import gpucomp
from gpucomp import replacing
from gpucomp.ir.dim import Dim
from gpucomp.ir.size import size_of
from gpucomp.ir.types import BF16, F16, I8, I32, TensorType
from gpucomp.kernel.interpreter import expected
from gpucomp.kernel.passes.pack_weights import pack
from gpucomp.kernels_templates.engines import engines_of
from gpucomp.kernels_templates.render import render
from gpucomp.targets import cuda
from testing.any_size_cases import B, H, M, N, Q, at, source_at
from testing.cuda_on_cpu.harness import compile_many
from testing.cuda_on_cpu.whole_models import ModelOnCpu
from testing.kernels import conv, into_part, matmul, with_row_statistics
from testing.launches import launched
from testing.tolerance import assert_matches
from testing.wgmma_kernels import (
    FAMILY,
    TARGET,
    TILE,
    TMA_STORE,
    TWO,
    constant_b,
    f16_model,
    image,
    one_result,
    prepared,
    with_math,
)
from tests import nvrtc

SIZES = (  # one row, fewer than a tile has, and no multiple of a tile
    {"b": 1, "n": 1, "m": 1, "q": 4, "h": 5},
    {"b": 3, "n": 37, "m": 66, "q": 48, "h": 9},
    {"b": 2, "n": 149, "m": 90, "q": 20, "h": 12},
)
CASES = {
    "rows": (matmul(N, 40, 72, dtype=F16, b_transposed=True), TILE),
    "rows and a batch": (matmul(N, 40, 72, batch=(B,), dtype=F16, b_transposed=True), TILE | {"stages": 3}),
    "rows of two dimensions": (matmul(B * M, 17, 24, dtype=F16, b_transposed=True), TILE),
    "batches of two dimensions": (matmul(70, 17, 24, batch=(3, B), dtype=F16, b_transposed=True), TILE),
    "columns": (matmul(M, Q, 72, batch=(2,), dtype=F16, b_transposed=True), TILE | {"multicast": 2}),
    "bf16, registers change hands": (
        constant_b(matmul(N, 20, 328, dtype=BF16)),
        TWO | {"tile_n": 16, "setmaxnreg": 1, "overlap": 2, "stages": 4},
    ),
    "tf32": (with_math(matmul(N, 40, 100, b_transposed=True)), TILE | {"stages": 3}),
    "i8, split": (matmul(N, 24, 400, dtype=I8, acc=I32, b_transposed=True), TILE | {"splits": 2}),
    "b for two": (
        matmul(N, 40, 328, batch=(B,), dtype=F16, b_transposed=True),
        TILE | {"multicast": 1, "stages": 3},
    ),
    "tma store": (
        one_result(matmul(N, 72, 72, batch=(B,), dtype=F16, b_transposed=True)),
        TMA_STORE | {"tile_m": 128, "tile_n": 64},
    ),
    "tma store into a part": (
        into_part(one_result(matmul(N, 24, 72, dtype=F16, b_transposed=True)), 1, 8, 16),
        TMA_STORE | {"multicast": 1},
    ),
    "row statistics": (with_row_statistics(matmul(N, 48, 72, dtype=F16, b_transposed=True)), TILE),
    "images": (image((B, H, H, 24), 40, (3, 3), pad=1, dtype=F16), TILE | {"tile_m": 128}),
    "strided": (image((B, H, 11, 16), 24, (3, 3), stride=2, pad=1, dtype=F16), TMA_STORE),
    "wide images for two": (image((1, 7, M, 16), 24, (1, 1), stride=2, dtype=F16), TILE | {"multicast": 1}),
    "pixels for two": (image((B, H, H, 16), 40, (3, 1), pad=1, dtype=F16), TILE | {"multicast": 2, "overlap": 1}),
}


def rendered(name):
    kernel, schedule = CASES[name]
    return render(prepared_open(kernel, schedule), schedule, TARGET, f"k{list(CASES).index(name)}", FAMILY)


def prepared_open(kernel, schedule):
    """The kernel as the engine renders it: constants that it reads in another layout are packed."""
    wanted = FAMILY.packing(kernel, FAMILY.schedule(schedule), FAMILY.problem(kernel))
    return kernel if wanted is None else pack(kernel, wanted).kernel


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
            one, inputs, given = prepared(at(kernel, sizes), schedule)
            source = render(one, schedule, TARGET, f"f{len(found)}", FAMILY)
            found[name, number] = at(kernel, sizes), inputs, one, given, source
    libraries = compile_many([(s.text, s.name) for *_, s in found.values()])
    return {key: (*parts, one) for (key, parts), one in zip(found.items(), libraries, strict=True)}


@pytest.mark.parametrize("name", CASES)
def test_one_source_has_the_bits_of_a_source_for_each_size(name, sources, built, fixed):
    kernel, _ = CASES[name]
    assert FAMILY.accepts(kernel, TARGET.features) == ""

    for number, sizes in enumerate(SIZES):
        whole, inputs, one, given, alone, library = fixed[name, number]
        source, numbers = source_at(sources[name], sizes)
        found = launched(one, source, built[name], given, numbers=numbers)
        for x, y in zip(found, launched(one, alone, library, given), strict=True):
            np.testing.assert_array_equal(x, y)
        terms = int(np.prod([v.extent for v in whole.body.k]))
        for x, right in zip(found, expected(whole, inputs), strict=True):
            assert_matches(x, right, terms=terms)


@pytest.mark.parametrize("name", CASES)
def test_tensor_maps_have_the_numbers_of_a_source_for_each_size(name, sources, fixed):
    for number, sizes in enumerate(SIZES):
        if min(sizes.values()) == 1:
            continue  # a batch of one, or a single row, is described by fewer numbers
        source, _ = source_at(sources[name], sizes)
        assert source.tensor_maps == fixed[name, number][4].tensor_maps


@pytest.mark.parametrize("name", CASES)
def test_nvrtc_compiles_it(name, sources):
    nvrtc.compile(cuda.prelude() + sources[name].text, "sm_90a")


# ---- a whole model ----


def test_a_file_has_one_program_with_the_bits_of_models_for_each_size(tmp_path, monkeypatch):
    monkeypatch.setattr(replacing, "back_end", lambda language: (lambda kernel, features: (FAMILY,), render))
    rng, (model, w, b, u) = np.random.default_rng(4), f16_model("n")
    gpucomp.compile(model, target="cuda:sm_90a", shapes={"x": (Dim("n", 1, 300), 72)}).save(tmp_path / "model.gpuc")
    loaded, like = gpucomp.load(tmp_path / "model.gpuc"), None

    for n in (1, 37, 149):
        like, alone = ModelOnCpu(loaded.at(n=n), like=like), gpucomp.compile(f16_model(n)[0], target="cuda:sm_90a")
        x = rng.standard_normal((n, 72)).astype(np.float16)
        found, plan = like.run({"x": x})["y"], like.plan
        assert [k.family for k in plan.kernels] == ["contraction/wgmma"] * 2
        assert [k.tensor_maps[0].extents for k in plan.kernels] == [(72, n), (40, n)]
        if [k.schedule for k in plan.kernels] == [k.schedule for k in alone.plan.kernels]:
            assert [k.tensor_maps for k in plan.kernels] == [k.tensor_maps for k in alone.plan.kernels]
            np.testing.assert_array_equal(found, ModelOnCpu(alone).run({"x": x})["y"])
        hidden = np.maximum((x.astype(np.float64) @ w).astype(np.float16) + b, 0)
        assert_matches(found, (hidden.astype(np.float64) @ u).astype(np.float16), terms=72)


# ---- refusals ----


def of_width(width):
    """A product whose rows are parts of longer ones, of ``width`` elements."""
    kernel = matmul(N, 40, 72, dtype=F16, b_transposed=True)
    return replace(kernel, params=(TensorType(F16, (N, width)), *kernel.params[1:]))


def wide(multiple):
    return size_of(Dim("w", 72, 200, multiple), 72)


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (of_width(wide(8)), ""),
        (of_width(wide(4)), "rows of a do not start at multiples of 16 bytes in every run"),
        (of_width(wide(4) * 2), ""),
        (of_width(size_of(Dim("w", 1, 200, 8), 72)), "rows of a overlap"),
        (matmul(64, 40, Q, dtype=F16, b_transposed=True), "each run decides the depth"),
        (
            matmul(size_of(Dim("z", 0, 9), 5), 40, 72, dtype=F16, b_transposed=True),
            "in some runs there is nothing to multiply",
        ),
        (matmul(size_of(Dim("z", 1, 1 << 30), 5) * 2, 40, 72, dtype=F16, b_transposed=True), "counted with 32 bits"),
        (matmul(M, 40, 72, batch=(N,), dtype=F16), "b is not contiguous in depth"),
        (matmul(N * 2000, 8, 1 << 20, batch=(M,), dtype=F16, b_transposed=True), "rows of a may be too far apart"),
        (image((B, H, H, M), 8, (3, 3), pad=1, dtype=F16), "each run decides the depth"),
        (image((B, H, H, 4), 8, (3, 3), pad=1, dtype=F16), "4 channels of f16 are not a multiple of 16 bytes"),
        (image((B, H, H, 8), 8, (3, 3), stride=2, pad=129, dtype=F16), "more than 127 pixels from the image's edge"),
        (constant_b(conv((B, H, H, 8), 8, (3, 3), pad=1, nchw=True, dtype=F16)), "pixels of an NHWC image"),
    ],
)
def test_what_the_engine_refuses_and_why(kernel, reason):
    found = FAMILY.accepts(kernel, TARGET.features)

    assert bool(found) == bool(reason)
    assert reason in found
    assert (FAMILY in engines_of(kernel, TARGET.features)) is not bool(reason)


def test_a_result_of_open_columns_does_not_leave_by_tma():
    """Its rows are as long as each run decides, so nothing is known of where they start."""
    kernel = one_result(matmul(N, Q, 72, dtype=F16, b_transposed=True))

    found = FAMILY.reasons(TMA_STORE, FAMILY.problem(kernel), TARGET.limits)

    assert any("TMA cannot store the result" in reason for reason in found)
