"""Rendering: it is pure and strict, both dialects have the same macros, and the source is readable."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from jinja2 import UndefinedError
from jinja2.runtime import Macro

from gpucomp.codegen.c.dialect import DIALECTS
from gpucomp.device.limits import Limits
from gpucomp.device.target import Target
from gpucomp.errors import ScheduleError, UnsupportedError, UsageError
from gpucomp.expr.core import call, hole, load, select, var
from gpucomp.ir.types import F32, F64, TensorType
from gpucomp.kernel import Kernel, Rowwise, Statistic, Store
from gpucomp.kernels_templates.contraction.simt.space import PLAIN
from gpucomp.kernels_templates.engines import family_of
from gpucomp.kernels_templates.render import environment, render
from gpucomp.targets import cuda, hip, opencl
from testing import opencl_device
from testing.kernels import (
    add_relu,
    conv,
    conv_of_bytes,
    matmul,
    max_pool,
    padded,
    reduction,
    scan,
    scatter,
    softmax,
    transposed,
)

TARGETS = (cuda.manifest("sm_80"), opencl.manifest("generic"), opencl.manifest("pocl"), hip.manifest("gfx90a"))
KERNELS: dict[str, Kernel] = {
    "loops": add_relu(3, 7),
    "contraction": matmul(5, 7, 11),
    "rowwise": softmax(4, 19),
    "pool": max_pool((1, 7, 5, 4), 3, 2, 1),
    "scan": scan("sum", 4, 19),
    "scatter": scatter((5, 7), (3, 1)),
}


def default(kernel, target):
    family = family_of(kernel)
    return dict(family.default(family.problem(kernel), target.limits).numbers)


def signatures(path):
    module = environment().get_template(path).module
    return {name: macro.arguments for name, macro in vars(module).items() if isinstance(macro, Macro)}


def test_dialects_define_the_same_macros():
    cuda_macros, *others = (signatures(d.template) for d in DIALECTS.values())

    assert len(cuda_macros) > 10
    assert len(others) == 2
    assert all(cuda_macros == other_macros for other_macros in others)


@pytest.mark.parametrize("family", KERNELS)
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_every_family_renders_for_every_dialect_at_its_default(family, target):
    kernel = KERNELS[family]

    source = render(kernel, default(kernel, target), target, "k7")

    assert source.language == target.language
    assert source.text.count("k7(") == 1
    assert "undefined" not in source.text.lower()
    assert "#define" not in source.text


@pytest.mark.parametrize("family", KERNELS)
def test_rendering_is_a_pure_function(family):
    kernel, target = KERNELS[family], TARGETS[0]

    texts = {render(kernel, default(kernel, target), target, "k0").text for _ in range(3)}

    assert len(texts) == 1


def test_a_misspelt_variable_is_an_error():
    with pytest.raises(UndefinedError, match="tile_q"):
        environment().from_string("{{ tile_q }}").render(tile_m=1)


@pytest.mark.parametrize("label", ["*/ int x; /*", "a\nint x;", "a\\", '"{{ 7*7 }}"', "a\u2028b\r", "??/\n#error"])
def test_a_label_never_ends_its_comment(label):
    kernel = dataclasses.replace(KERNELS["loops"], label=label)

    text = render(kernel, default(kernel, TARGETS[0]), TARGETS[0], "k0").text

    header, rest = text.split("\n\n", 1)
    assert all(line.startswith("// ") for line in header.split("\n"))
    assert len(header.split("\n")) == 4
    assert "\\" not in header
    assert "49" not in header
    assert rest == render(KERNELS["loops"], default(kernel, TARGETS[0]), TARGETS[0], "k0").text.split("\n\n", 1)[1]


def test_a_schedule_that_cannot_run_is_refused_with_the_reason():
    schedule = {"threads": 1024, "vector": 1, "items": 1}

    with pytest.raises(ScheduleError, match="1024 work-items per work-group, the device allows 256"):
        render(KERNELS["loops"], schedule, opencl.manifest("generic"), "k0")


def test_double_precision_is_refused_where_the_device_has_none():
    with pytest.raises(UnsupportedError, match="cl_khr_fp64"):
        render(add_relu(3, 5, dtype=F64), {"threads": 64, "vector": 1, "items": 1}, opencl.manifest("mali"), "k0")


def test_templates_do_not_render_for_the_cpu():
    with pytest.raises(UsageError, match="llvm"):
        render(KERNELS["loops"], {}, Target("cpu", "cpu", "x", "llvm", Limits()), "k0")


GOLDEN: dict[str, tuple[Kernel, dict[str, int]]] = {
    "loops_vector": (add_relu(6, 8), {"threads": 128, "vector": 4, "items": 1}),
    "loops_guarded": (padded(11, 2), {"threads": 64, "vector": 1, "items": 2}),
    "loops_transpose": (transposed(5, 7), {"threads": 64, "vector": 1, "items": 1}),
    "contraction_conv": (
        conv((1, 9, 9, 16), 32, (3, 3), pad=1),
        {**PLAIN, "tile_m": 32, "tile_n": 32, "tile_k": 16, "reg_m": 4, "reg_n": 4, "stages": 1},
    ),
    "contraction_bytes": (
        conv_of_bytes(-9),
        {**PLAIN, "tile_m": 16, "tile_n": 8, "tile_k": 8, "reg_m": 2, "reg_n": 2, "stages": 2},
    ),
    "contraction_split": (
        matmul(20, 36, 100),
        {**PLAIN, "tile_m": 16, "tile_n": 32, "tile_k": 8, "reg_m": 2, "reg_n": 4, "stages": 2, "splits": 4},
    ),
    "rowwise_softmax": (
        softmax(6, 100),
        {"lanes": 32, "rows_per_group": 4, "vector": 4, "keep": 1, "splits": 1},
    ),
    "rowwise_sum": (
        reduction("sum", 40, 13, rows_inside=True),
        {"lanes": 4, "rows_per_group": 16, "vector": 1, "keep": 0, "splits": 1},
    ),
    "scan_tiles": (scan("sum", 5, 37), {"look_back": 0, "lanes": 64, "rows_per_group": 1, "vector": 1, "accesses": 2}),
    "scan_looks_back": (
        scan("sum", 2, 331),
        {"look_back": 1, "lanes": 64, "rows_per_group": 1, "vector": 1, "accesses": 2},
    ),
    "scatter_slices": (scatter((13, 24), (31, 1), "add"), {"line_items": 8, "part_items": 4, "parts": 1, "vector": 4}),
    "pool_max": (max_pool((1, 8, 8, 4), 2, 2, 0), {"threads": 64, "vector": 4, "items": 1, "unroll": 1}),
}


@pytest.mark.parametrize("name", GOLDEN)
@pytest.mark.parametrize("target", TARGETS[:2], ids=lambda t: t.language)
def test_rendered_text_is_the_golden_one(name, target, golden):
    kernel, schedule = GOLDEN[name]
    if target.language == "opencl":  # any GPU with OpenCL C 3.0 and device-wide fences
        target = dataclasses.replace(target, features=frozenset({"device_fence"})).with_limits(device_fence=True)

    golden(render(kernel, schedule, target, "kernel0").text, f"{name}.{'cu' if target.language == 'cuda' else 'cl'}")


def test_a_work_item_alone_in_its_group_meets_nobody():
    kernel = KERNELS["contraction"]
    alone, many = opencl.manifest("pocl"), opencl.manifest("generic")

    assert "barrier(" not in render(kernel, default(kernel, alone), alone, "k0").text
    assert "barrier(" in render(kernel, default(kernel, many), many, "k0").text


def test_a_guard_that_differs_from_lane_to_lane_guards_no_vector():
    """Lanes are rows, and the load's guard depends on the row's maximum."""
    r, c = var("r", 8), var("c", 3)
    top = hole("top", F32)
    body = Rowwise((r,), (c,), (Statistic(top, "max", load(0, (c, r), F32)),), frozenset({0}))
    value = select(call("lt", top, 0.0), load(1, (r,), F32), top)
    params = (TensorType(F32, (3, 8)), TensorType(F32, (8,)), TensorType(F32, (8,)))
    kernel = Kernel("reduce", params, 1, body, (Store(2, (r,), value),))
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    x[:, 3] = -1
    other = np.arange(8, dtype=np.float32)

    source = render(kernel, default(kernel, opencl_device.target()), opencl_device.target(), "k0")

    assert source.schedule["vector"] > 1
    (found,) = opencl_device.run(kernel, source, [x, other])
    np.testing.assert_array_equal(found, np.where(x.max(axis=0) < 0, other, x.max(axis=0)))
