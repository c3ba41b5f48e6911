"""The winograd engine for images whose number and sides each run decides: the bits of a kernel for one size, and refusals.

Sources are rendered where no condition can be noted: a comparison that is not the same in every run raises ``TypeError``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpucomp.ir.dim import Dim
from gpucomp.ir.size import size_of
from gpucomp.kernel.interpreter import UNWRITTEN, expected
from gpucomp.kernel.passes.pack_weights import pack, packed_constant
from gpucomp.kernels_templates.engines import FAMILIES, engines_of
from gpucomp.kernels_templates.render import render
from gpucomp.targets import cuda, opencl
from testing import opencl_device
from testing.any_size_cases import B, H, M, at, source_at
from testing.cases.winograd import FOUR, SMALL
from testing.cuda_on_cpu.harness import compile_many
from testing.kernels import conv, into_part, random_inputs
from testing.launches import launched
from testing.tolerance import winograd_bound
from tests import nvrtc

FAMILY = FAMILIES["contraction/winograd"]
TARGET = cuda.manifest("sm_80")
SIZES = ({"b": 1, "h": 5, "m": 1}, {"b": 2, "h": 9, "m": 7}, {"b": 5, "h": 12, "m": 22})


def constant(kernel):
    return replace(kernel, constants=frozenset({1}))


CASES = {
    "images and both sides": (constant(conv((B, H, M, 12), 20, (3, 3), pad=1)), SMALL | {"stages": 2}),
    "images": (constant(conv((B, 9, 7, 12), 40, (3, 3), pad=1)), SMALL),
    "one image, no padding": (constant(conv((1, H, H, 20), 35, (3, 3))), SMALL | {"channels": 8}),
    "splits": (constant(conv((B, H, 6, 28), 35, (3, 3), pad=1)), SMALL | {"splits": 3}),
    "4: images and both sides": (constant(conv((B, H, M, 12), 20, (3, 3), pad=1)), FOUR),
    "4: splits, into a part": (
        constant(into_part(conv((B, 8, H, 28), 40, (3, 3), pad=1), 3, 4, 8)),
        FOUR | {"channels": 2, "splits": 3},
    ),
}


def packed(kernel, schedule):
    return pack(kernel, FAMILY.packing(kernel, FAMILY.schedule(schedule), FAMILY.problem(kernel)))


def sources_for(target):
    return {
        name: render(packed(kernel, schedule).kernel, schedule, target, f"k{number}", FAMILY)
        for number, (name, (kernel, schedule)) in enumerate(CASES.items())
    }


def given(kernel, schedule):
    """The kernel at one set of sizes with transformed filters, and its inputs."""
    made, inputs = packed(kernel, schedule), random_inputs(kernel)
    return made.kernel, [*(inputs[k] for k in made.kept), packed_constant(made, inputs)]


def assert_right(kernel, schedule, found):
    (right,) = expected(kernel, random_inputs(kernel))
    written = right != UNWRITTEN
    np.testing.assert_array_equal(found[~written], right[~written])
    right = right[written].astype(np.float64)
    error = np.linalg.norm(found[written] - right) / np.linalg.norm(right)
    assert error < winograd_bound(schedule["outputs"], FAMILY.problem(kernel).depth)


@pytest.fixture(scope="module")
def built():
    sources = sources_for(TARGET)
    return dict(
        zip(
            sources,
            zip(sources.values(), compile_many([(s.text, s.name) for s in sources.values()]), strict=True),
            strict=True,
        )
    )


@pytest.mark.parametrize("name", CASES)
def test_one_source_in_cuda_has_the_bits_of_a_source_for_each_size(name, built):
    kernel, schedule = CASES[name]
    assert FAMILY in engines_of(kernel, TARGET.features)
    ready = [given(at(kernel, sizes), schedule) for sizes in SIZES]
    alone = [render(one, schedule, TARGET, f"f{number}", FAMILY) for number, (one, _) in enumerate(ready)]
    libraries = compile_many([(s.text, s.name) for s in alone])

    for sizes, (one, inputs), fixed, library in zip(SIZES, ready, alone, libraries, strict=True):
        source, numbers = source_at(built[name][0], sizes)
        (found,) = launched(one, source, built[name][1], inputs, numbers=numbers)
        np.testing.assert_array_equal(found, launched(one, fixed, library, inputs)[0])
        assert_right(at(kernel, sizes), schedule, found)


@pytest.mark.parametrize("name", CASES)
def test_one_source_in_opencl_is_right_at_every_size(name):
    kernel, schedule = CASES[name]
    source = sources_for(opencl_device.gpu())[name]
    built = opencl_device.built_together([source])[source.name]

    for sizes in SIZES:
        one, inputs = given(at(kernel, sizes), schedule)
        launch, numbers = source_at(source, sizes)
        (found,) = opencl_device.run(one, launch, inputs, built=built, numbers=numbers)
        assert_right(at(kernel, sizes), schedule, found)


def test_nvrtc_compiles_them():
    for source in sources_for(TARGET).values():
        nvrtc.compile(cuda.prelude() + source.text, "sm_80")


def test_the_text_for_any_size_is_the_golden_one(golden):
    kernel, schedule = CASES["images and both sides"]

    source = render(packed(kernel, schedule).kernel, schedule, opencl.manifest("generic"), "kernel0", FAMILY)

    golden(source.text, "any_size_contraction_winograd.cl")


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (conv((B, H, H, 6), 8, (3, 3), pad=1), "6 channels of f32 are not a multiple of 16 bytes"),
        (conv((B, H, H, M), 8, (3, 3), pad=1), "each run decides the window"),
        (conv((size_of(Dim("z", 1, 1 << 30), 2), 9, 9, 8), 8, (3, 3), pad=1), "blocks are counted with 32 bits"),
    ],
)
def test_what_the_engine_refuses_and_why(kernel, reason):
    assert reason in FAMILY.accepts(constant(kernel), TARGET.features)
