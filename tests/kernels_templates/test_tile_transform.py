"""Winograd convolutions in three launches: the family ``blocks``, and the steps of the pass ``split_winograd``."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from gpucomp import compiler, lowering
from gpucomp.codegen.c.vectors import HEX
from gpucomp.ir.graph import constant, input_value
from gpucomp.ir.types import F16
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.interpreter import UNWRITTEN, expected
from gpucomp.kernel.passes import split_winograd as winograd_steps
from gpucomp.kernel.passes.pack_weights import pack, packed_constant
from gpucomp.kernel.step import KernelStep
from gpucomp.kernels_templates.engines import FAMILIES, engines_of
from gpucomp.kernels_templates.render import render
from gpucomp.kernels_templates.tile_transform.space import TileTransformSchedule, registers
from gpucomp.schedule.choose import choose
from gpucomp.schedule.expected import Expected
from gpucomp.targets import opencl
from testing import opencl_device
from testing.cases.tile_transform import CASES, ODD, fixed, transforms
from testing.kernels import conv, grouped_conv, matmul, random_inputs
from testing.tolerance import assert_matches, winograd_bound
from tests import oclgrind, opencl_c
from tests.builders import graph_of, setting
from tests.onnx_builders import model, node, value

FAMILY = FAMILIES["tile_transform"]
MALI = opencl.manifest("mali")


RUNS = [(name, winograd_steps.possible(kernel)[number % 2 - 1]) for number, (name, kernel) in enumerate(CASES.items())]


def step_of(kernel: Kernel[Contraction]) -> tuple[KernelStep[Contraction], list[np.ndarray]]:
    inputs = random_inputs(kernel)
    values = [
        constant(a) if k in kernel.constants else input_value(f"x{k}", t)
        for k, (a, t) in enumerate(zip(inputs, kernel.params, strict=False))
    ]
    outputs = tuple(input_value(f"y{k}", t) for k, t in enumerate(kernel.params[kernel.inputs :]))
    return KernelStep("k0", kernel, tuple(values), outputs, ()), inputs


def chosen(kernel: Kernel):
    choice = choose(kernel, engines_of(kernel, MALI.features), MALI.limits, MALI.device)
    return choice.family, choice.schedule, choice.packing


def run(kernel: Kernel, inputs) -> list[np.ndarray]:
    """Runs the kernel on PoCL with the schedule for a Mali."""
    family, schedule, packing = chosen(kernel)
    if packing is not None:
        made = pack(kernel, packing)
        kernel, inputs = made.kernel, [*(inputs[k] for k in made.kept), packed_constant(made, inputs)]
    source = render(kernel, schedule, opencl_device.target(), "k0", family)
    return opencl_device.run(kernel, source, inputs)


def convolved(kernel: Kernel[Contraction], outputs: int) -> list[np.ndarray]:
    step, inputs = step_of(kernel)
    known = dict(zip(step.inputs, inputs, strict=True))
    for part in winograd_steps.in_three(step, outputs):
        given = [known[v] if v in known else v.attrs["value"] for v in part.inputs]
        known |= dict(zip(part.outputs, run(part.kernel, given), strict=True))
    return [known[v] for v in step.outputs]


def assert_right(kernel: Kernel[Contraction], outputs: int) -> None:
    """The elements that the kernel writes are within the error bounds of Winograd's sums. All others are unchanged."""
    (found,), (right,) = convolved(kernel, outputs), expected(kernel, random_inputs(kernel))
    written = right != UNWRITTEN
    np.testing.assert_array_equal(found[~written], right[~written])
    channels = kernel.params[0].shape[3]
    if found.dtype == np.float16:
        assert_matches(found[written], right[written], terms=9 * channels)
        return
    wide = right[written].astype(np.float64)
    error = np.linalg.norm(found[written] - wide) / np.linalg.norm(wide)
    assert error < winograd_bound(outputs, channels), f"relative error {error}"


# ---- results ----


@pytest.mark.parametrize(("name", "outputs"), RUNS)
def test_three_steps_give_numpy_s_answer(name, outputs):
    assert_right(CASES[name], outputs)


@pytest.mark.parametrize(("outputs", "schedule"), [(2, (2, 2)), (2, (1, 4)), (4, (2, 1)), (4, (1, 2))], ids=str)
@pytest.mark.parametrize("which", [0, 1], ids=["pixels", "outputs"])
def test_a_schedule_gives_numpy_s_answer(which, outputs, schedule):
    kernel = transforms(ODD, outputs)[which]
    lines = schedule[1] if FAMILY.problem(kernel).outputs % schedule[1] == 0 else 1
    inputs = random_inputs(kernel)
    source = render(
        kernel, {"threads": 32, "vector": schedule[0], "lines": lines}, opencl_device.target(), "k0", FAMILY
    )

    for actual, right in zip(opencl_device.run(kernel, source, inputs), expected(kernel, inputs), strict=True):
        assert_matches(actual, right, terms=64)


def replaced(old: str, new: str):
    def change(text):
        assert old in text, f"{old!r}: the text has changed"
        return text.replace(old, new, 1)

    return change


MISTAKES = {
    "a sign of the pixels' transform": (0, replaced("d0_0 - d2_0", "d0_0 + d2_0")),
    "a pixel past the edge": (0, replaced("+ 2 < 9", "+ 2 < 10")),
    "a pixel of another row": (0, replaced("+ e13 + 168)", "+ e13 + 84)")),
    "a position stored over another": (0, replaced("x1 + e18 + 480)", "x1 + e18)")),
    "lines of another work-group": (0, replaced("(int)get_group_id(1) == 0", "(int)get_group_id(1) == 2")),
    "a sign of the outputs' transform": (1, replaced("e0_0 + q0_0", "e0_0 - q0_0")),
    "a column that is not stored": (1, replaced("if (e15 < 7)", "if (e15 < 5)")),
    "the bias of other channels": (1, replaced("x1 + point % 5 * 4)", "x1 + (point + 1) % 5 * 4)")),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_show(mistake):
    which, change = MISTAKES[mistake]
    kernel = transforms(ODD, 2)[which]
    schedule = FAMILY.default(FAMILY.problem(kernel), MALI.limits).numbers
    inputs = random_inputs(kernel)
    source = render(kernel, schedule, opencl_device.target(), "k0", FAMILY)

    (found,) = opencl_device.run(kernel, replace(source, text=change(source.text)), inputs)

    with pytest.raises(AssertionError, match=r"max error|NaN"):
        assert_matches(found, expected(kernel, inputs)[0], terms=64)


# ---- text ----


def text_of(kernel: Kernel, **schedule) -> str:
    default = FAMILY.default(FAMILY.problem(kernel), MALI.limits).numbers
    return render(kernel, {**default, **schedule}, MALI, "k0", FAMILY).text


def live_registers(text: str) -> int:
    """The most 32-bit registers that named vectors of floats need at once, in the order of the statements.

    Each part of a vector is live from its declaration to its last use.
    """
    most = 0
    for part in re.split(r"\n  (?:if|\} else)", text):
        declared, last = {}, {}
        for number, line in enumerate(part.splitlines()):
            found = re.match(r"\s*const float(\d*) (\w+) =", line)
            if found:
                declared[found[2]] = (number, int(found[1] or 1))
            last |= dict.fromkeys(set(re.findall(r"[a-z]\w*", line)) & set(declared), number)
        alive = [sum(w for n, (at, w) in declared.items() if at <= k < last[n]) for k in range(len(part.splitlines()))]
        most = max(most, *alive)
    return most


def test_live_registers_are_counted_by_lines():
    text = "x\n  if (a) {\n    const float4 b = c;\n    const float4 d = b + b;\n    const float2 e = d.s01;\n    f(d, e);\n  }"

    assert live_registers(text) == 6


@pytest.mark.parametrize("case", ["odd sizes, two images", "into a part of a Concat", "f16"])
@pytest.mark.parametrize("outputs", [2, 4])
def test_a_mali_has_registers_for_the_default(case, outputs):
    for kernel in transforms(CASES[case], outputs):
        p = FAMILY.problem(kernel)
        s = FAMILY.default(p, MALI.limits)

        assert FAMILY.reasons(s.numbers, p, MALI.limits) == []
        assert live_registers(text_of(kernel)) <= registers(s, p) - 8 <= 56


@pytest.mark.parametrize("lines", [1, 2])
@pytest.mark.parametrize("outputs", [2, 4])
def test_the_formula_has_no_fewer_registers_than_the_text(outputs, lines):
    for kernel in transforms(ODD, outputs):
        p = FAMILY.problem(kernel)
        s = TileTransformSchedule(threads=64, vector=2, lines=lines)

        assert registers(s, p) - 8 - 8 <= live_registers(text_of(kernel, **s.numbers)) <= registers(s, p) - 8


@pytest.mark.parametrize("outputs", [2, 4])
def test_accesses_are_of_sixteen_bytes_and_nothing_meets(outputs):
    for kernel in transforms(CASES["whole blocks"], outputs):
        text = text_of(kernel)

        assert set(re.findall(r"\b(v(?:load|store)\w*)\(", text)) == {"vload4", "vstore4"}
        assert not re.search(r"barrier|__local|(float|int)\d* \w+\[", text)
        assert not re.search(rf"\.s[{HEX}]", text) or "x3" in text  # whole vectors, but for what follows the sums


@pytest.mark.skipif(opencl_c.CLANG is None, reason="clang is not installed")
@pytest.mark.parametrize("case", ["no padding, primes", "into a part of a Concat", "f16"])
def test_clang_accepts_the_source_for_a_mali(case):
    for outputs in winograd_steps.possible(CASES[case]):
        for kernel in transforms(CASES[case], outputs):
            assert opencl_c.complaints(text_of(kernel), MALI.features) == ""


@pytest.mark.skipif(shutil.which("oclgrind") is None, reason="oclgrind is not installed")
def test_every_access_is_within_its_memory(tmp_path):
    jobs = []
    for outputs, kernel in (
        (2, fixed(conv((1, 3, 5, 4), 5, (3, 3), pad=1))),
        (4, fixed(conv((2, 4, 3, 8), 4, (3, 3)))),
    ):
        for part in transforms(kernel, outputs):
            schedule = FAMILY.default(FAMILY.problem(part), MALI.limits).numbers
            source = render(part, {**schedule, "threads": 32}, opencl.manifest("generic"), "k0", FAMILY)
            jobs.append((part, source, random_inputs(part)))

    assert oclgrind.findings(jobs, tmp_path) == []


# ---- the space ----


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, ""),
        ({"lines": 4}, "does not divide the 6 lines"),
        ({"vector": 8}, "an access of 32 bytes"),
        ({"lines": 3}, "registers per work-item"),
        ({"threads": 256}, ""),
    ],
)
def test_what_cannot_run_is_refused_with_the_reason(change, reason):
    problem = FAMILY.problem(transforms(fixed(conv((1, 8, 8, 16), 8, (3, 3), pad=1)), 4)[0])

    found = FAMILY.reasons({"threads": 64, "vector": 4, "lines": 1} | change, problem, MALI.limits)

    assert any(reason in r for r in found) if reason else found == []


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 12, 257])
@pytest.mark.parametrize("limits", [MALI.limits, opencl.manifest("pocl").limits], ids=["mali", "pocl"])
def test_defaults_are_legal(channels, limits):
    for kernel in transforms(fixed(conv((1, 5, 6, channels), channels, (3, 3), pad=1)), 4):
        problem = FAMILY.problem(kernel)

        assert FAMILY.reasons(FAMILY.default(problem, limits).numbers, problem, limits) == []


# ---- the choice ----


def parts(kernel: Kernel[Contraction], target=MALI) -> list[str]:
    step, _ = step_of(kernel)
    return [s.kernel.label for s in winograd_steps.split([step], setting(graph_of(*step.outputs), target))]


@pytest.mark.parametrize(
    ("kernel", "found"),
    [
        (fixed(conv((1, 28, 28, 128), 128, (3, 3), pad=1)), "F(4, 3)"),
        (fixed(conv((1, 28, 28, 128), 128, (3, 3), pad=1, dtype=F16)), "F(4, 3)"),
        (conv((1, 28, 28, 128), 128, (3, 3), pad=1), ""),  # its filters are not constants
        (fixed(conv((1, 28, 28, 128), 128, (3, 3), pad=1, stride=2)), ""),
        (fixed(conv((1, 28, 28, 128), 128, (3, 3), pad=2, dilation=2)), ""),
        (fixed(conv((1, 28, 28, 128), 128, (1, 1))), ""),
        (fixed(conv((1, 28, 28, 128), 128, (5, 5), pad=2)), ""),
        (fixed(grouped_conv((1, 28, 28, 128), 2, 64, (3, 3), pad=1)), ""),
        (fixed(conv((1, 56, 56, 3), 64, (3, 3), pad=1)), ""),  # saves few products, transforms many outputs
        (fixed(conv((1, 5, 5, 8), 8, (3, 3), pad=1)), ""),  # three launches take longer
        (fixed(matmul(64, 64, 64)), ""),
    ],
    ids=lambda v: v.label if isinstance(v, Kernel) else v,
)
def test_a_convolution_is_taken_apart_where_that_is_faster(kernel, found):
    labels = parts(kernel)

    assert len(labels) == (3 if found else 1)
    assert all(found in label for label in labels)


@pytest.mark.parametrize("target", ["pocl", "amd", "generic"])
def test_other_devices_have_local_memory(target):
    (split,) = (one for one in lowering.KERNEL_PASSES if one.name == "split-winograd")

    assert split.wanted(MALI, "fp32")
    assert not split.wanted(opencl.manifest(target), "fp32")


def test_a_model_runs_with_its_convolution_in_three():
    """From the graph to the arena: the values between the steps are temporaries."""
    rng = np.random.default_rng(3)
    made = {"w": rng.standard_normal((9, 16, 3, 3)).astype(np.float32), "b": rng.standard_normal(9).astype(np.float32)}
    nodes = [
        node("MaxPool", ["x"], ["r"], kernel_shape=[2, 2]),
        node("Conv", ["r", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        node("Sigmoid", ["c"], ["y"]),
    ]
    onnx_model = model(nodes, [value("x", (1, 16, 11, 13))], [value("y", None)], made)
    x = rng.standard_normal((1, 16, 11, 13)).astype(np.float32)
    slow = replace(MALI.device, launch_us=0.01, fma=1)  # products are expensive
    device = replace(opencl_device.target(), features=frozenset({"fp64", "mali"}), limits=MALI.limits, device=slow)

    executable = compiler.finish(compiler.lower(onnx_model, device), device, "fp32", lambda *told: None)

    assert [k for k in executable.plan.kernels if k.family == "tile_transform"]
    found, right = executable.run({"x": x})["y"], ReferenceEvaluator(onnx_model).run(None, {"x": x})[0]
    assert_matches(found, right, terms=144)


def test_a_convolution_whose_blocks_take_too_much_memory_stays_in_one_step(monkeypatch):
    kernel = fixed(conv((1, 56, 56, 64), 64, (3, 3), pad=1))
    assert winograd_steps._outputs(kernel, Expected(MALI, engines_of))
    monkeypatch.setattr(winograd_steps, "MOST_BYTES", 1 << 20)

    assert winograd_steps._outputs(kernel, Expected(MALI, engines_of)) == 0
