"""Half precision in OpenCL: the core language loads and stores it, cl_khr_fp16 is needed to compute with it."""

from __future__ import annotations

import numpy as np
import pytest

from gpucomp.codegen.c.helpers import FP16
from gpucomp.ir.types import F16
from gpucomp.kernel import Kernel
from gpucomp.kernel.interpreter import expected
from gpucomp.kernels_templates.engines import family_of
from gpucomp.kernels_templates.render import render
from gpucomp.targets import opencl
from testing import opencl_device
from testing.kernels import add_relu, joined, matmul, padded, softmax
from testing.template_cases import default
from testing.tolerance import assert_matches
from tests import opencl_c

KERNELS: dict[str, Kernel] = {
    "vectors": add_relu(5, 16, dtype=F16),
    "elements": add_relu(5, 7, dtype=F16),
    "guarded": padded(11, 2, dtype=F16),
    "chosen addresses": joined(3, 4, 5, dtype=F16),
    "rows": softmax(5, 33, dtype=F16),
    "products": matmul(7, 12, 9, dtype=F16),
}
FLAVOURS = ("generic", "pocl", "mali")


def text_for(kernel, flavour):
    target = opencl.manifest(flavour)
    family = family_of(kernel)
    schedule = family.default(family.problem(kernel), target.limits).numbers
    return render(kernel, schedule, target, "k0").text


@pytest.mark.skipif(opencl_c.CLANG is None, reason="clang is not installed")
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_half_kernels_need_no_extension_that_the_device_lacks(name, flavour):
    text = text_for(KERNELS[name], flavour)

    assert opencl_c.complaints(text, opencl.manifest(flavour).features) == ""
    assert "vload_half" in text


@pytest.mark.skipif(opencl_c.CLANG is None, reason="clang is not installed")
def test_the_check_refuses_half_arithmetic_without_the_extension():
    text = "__kernel void k(__global half* x) { half a = x[0]; x[0] = a + a; }"

    assert "half" in opencl_c.complaints(text)
    assert opencl_c.complaints(FP16 + text, {"fp16"}) == ""


@pytest.mark.parametrize(("flavour", "native"), [("generic", False), ("mali", True)])
def test_rounding_is_a_conversion_where_the_device_has_halves(flavour, native):
    text = text_for(KERNELS["vectors"], flavour)

    assert ("convert_half_rte" in text) is native
    assert ("cl_khr_fp16 : enable" in text) is native


def test_a_chosen_address_is_loaded_from_as_half():
    kernel = KERNELS["chosen addresses"]
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(t.shape).astype(np.float16) for t in kernel.params[:-1]]

    source = render(kernel, default(kernel, opencl_device.target().limits), opencl_device.target(), "k0")
    found = opencl_device.run(kernel, source, inputs)

    assert "vload_half(0, " in source.text
    assert_matches(found[0], expected(kernel, inputs)[0])


def test_halves_round_to_nearest_even_and_keep_subnormals_and_infinities():
    values = [1 + 2.0**-11, 1 + 3 * 2.0**-11, 2.0**-24, 65504.0, 40000.0, -0.0, np.inf, np.nan]
    x = np.array([values, values[::-1]], np.float16)
    kernel = add_relu(2, 8, dtype=F16)
    bias = np.array([2.0**-11, 3 * 2.0**-11, 2.0**-24, 65504.0, 40000.0, -0.0, 1, 1], np.float16)

    source = render(kernel, default(kernel, opencl_device.target().limits), opencl_device.target(), "k0")
    found = opencl_device.run(kernel, source, [x, bias])

    for actual, right in zip(found, expected(kernel, [x, bias]), strict=True):
        np.testing.assert_array_equal(actual, right)
