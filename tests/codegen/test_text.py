"""Rendered sources read as if written by hand: no empty loops, terms or conditions, and correct indentation."""

from __future__ import annotations

import re

import pytest

from gpucomp.codegen.c.text import modulo, over, plus, tidy, times
from gpucomp.ir.types import F16
from gpucomp.kernel import Kernel
from gpucomp.kernels_templates.render import render
from gpucomp.targets import cuda, opencl
from testing.kernels import add_relu, conv, grouped_conv, matmul, max_pool, softmax
from testing.template_cases import CASES, default, spread

IDLE = {
    "a loop of one round": r"for \((?:int|long|long long) (\w+) = 0; \1 < 1; ",
    "a sum with zero": r"(?<![\w.])0 \+ |\+ 0(?![\w.])",
    "a product with one": r"\* 1(?![\w.])|(?<![\w.])1 \* ",
    "a quotient by one": r"[/%] 1(?![\w.])",
    "a comparison of numbers": r"\(\d+ (?:<|>|<=|>=|==) \d+\)|[(&|] ?\d+ (?:<|<=|==) \d+[ )]",
    "a name for zero": r"const int \w+ = 0;",
    "a run of blank lines": r"\n\n\n",
    "a blank line in front of a brace": r"\n\n *\}",
    "a trailing blank": r"[ \t]\n",
}
BAD = {
    "a loop of one round": "for (int a_t = 0; a_t < 1; ++a_t) {",
    "a sum with zero": "x0[0 + row]",
    "a product with one": "row * 1;",
    "a quotient by one": "tile / 1;",
    "a comparison of numbers": "if (0 < 24) {",
    "a name for zero": "const int first_column = 0;",
    "a run of blank lines": "a;\n\n\nb;",
    "a blank line in front of a brace": "a;\n\n}",
    "a trailing blank": "a; \n",
}


def faults(text: str) -> list[str]:
    found = [f"{name}: {match[0]!r}" for name, pattern in IDLE.items() for match in re.finditer(pattern, text)]
    depth = 0
    for number, line in enumerate(text.splitlines(), 1):
        body = line.lstrip()
        if depth and body and len(line) - len(body) != 2 * (depth - body.startswith("}")):
            found.append(f"line {number} is not where its block is: {line!r}")
        depth += body.count("{") - body.count("}")
    return found


# a layer of each kind in the models of the benchmark
MODELS: dict[str, list[Kernel]] = {
    "resnet": [
        conv((1, 32, 32, 3), 16, (7, 7), stride=2, pad=3),
        max_pool((1, 16, 16, 16), 3, 2, 1),
        conv((1, 14, 14, 16), 32, (3, 3), pad=1),
        conv((1, 7, 7, 64), 16, (1, 1)),
        matmul(1, 100, 64),
    ],
    "mobilenet": [
        grouped_conv((1, 9, 9, 8), 8, 1, (3, 3), pad=1),
        grouped_conv((1, 7, 7, 16), 4, 8, (3, 3), pad=1),
        conv((1, 7, 7, 24), 40, (1, 1)),
        add_relu(7, 7, 40),
    ],
    "bert": [
        matmul(16, 64, 64),
        matmul(16, 16, 32, batch=(1, 2), b_transposed=True),
        matmul(24, 32, 64, dtype=F16),
        softmax(2, 16, 96),
        add_relu(16, 64),
    ],
}
TARGETS = (cuda.manifest("sm_75"), cuda.manifest("sm_90a"), opencl.manifest("generic"), opencl.manifest("pocl"))


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("model", MODELS)
def test_the_kernels_of_a_model_read_well(model, target):
    for kernel in MODELS[model]:
        assert faults(render(kernel, default(kernel, target.limits), target, "k0").text) == []


# a sum of no depth is left out: its loop has no rounds, and says so
@pytest.mark.parametrize("case", [c for c in CASES if c.startswith("contraction") and "no_depth" not in c])
def test_schedules_over_the_whole_space_read_well(case):
    kernel, target = CASES[case], cuda.manifest("sm_80")
    for schedule in spread(kernel, target.limits, 4, seed=len(case)):
        assert faults(render(kernel, schedule, target, "k0").text) == [], schedule


@pytest.mark.parametrize("name", IDLE)
def test_each_fault_is_seen(name):
    assert any(f.startswith(name) for f in faults(BAD[name]))


def test_a_misplaced_line_is_seen():
    assert faults("void f() {\n    a;\n}\n") != []


def test_sums_and_products_have_no_idle_terms():
    assert plus("row", 0, "column") == "row + column"
    assert plus("0", 0) == "0"
    assert times("row", 1) == "row"
    assert times("row + 1", 4) == "(row + 1) * 4"
    assert times("f(a + b)[i]", 4) == "f(a + b)[i] * 4"
    assert times(3, 4) == "12"
    assert times("row", 0) == times("0", 9) == "0"
    assert over("a_i", 1) == "a_i"
    assert over("a * 4", 2) == "(a * 4) / 2"
    assert over(9, 4) == "2"
    assert modulo("i", 1) == "0"
    assert modulo(9, 4) == "1"


def test_tidy_indents_by_braces_and_keeps_a_parameter_list_s_own():
    text = "void f(\n    int a,\n    int b) {\n\n\nif (a) {\n      b; // {\n\n}\n}\n\n\nint c;\n\n"

    assert tidy(text) == "void f(\n    int a,\n    int b) {\n  if (a) {\n    b; // {\n  }\n}\n\nint c;\n"
