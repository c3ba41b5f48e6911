"""Templates read like C: decisions are in emit.py, and the stages of a rendered kernel have comments."""

import pytest

from gpucomp.ir.types import F16
from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.kernels_templates.render import environment, render
from gpucomp.targets import cuda
from testing.kernels import matmul

TARGET = cuda.manifest("sm_80")
CASES = {
    "contraction/simt": (matmul(100, 70, 50), 6),
    "contraction/mma": (matmul(130, 128, 512, dtype=F16), 8),
    "contraction/gemv": (matmul(1, 100, 333), 5),
}


@pytest.mark.parametrize("engine", CASES)
def test_fewer_than_a_third_of_a_template_s_lines_are_tags(engine):
    loader = environment().loader
    assert loader is not None
    source, _, _ = loader.get_source(environment(), FAMILIES[engine].template)

    lines = [line.strip() for line in source.split("-#}", 1)[1].splitlines() if line.strip()]  # without its head
    tags = [line for line in lines if line.startswith("{%")]

    assert len(lines) > 30
    assert len(tags) / len(lines) < 1 / 3


@pytest.mark.parametrize("engine", CASES)
def test_a_printed_kernel_says_at_its_stages_what_it_does(engine):
    (kernel, stages), family = CASES[engine], FAMILIES[engine]

    text = render(kernel, family.default(family.problem(kernel), TARGET.limits).numbers, TARGET, "k0", family).text

    comments = {line.strip() for line in text[text.index("{") :].splitlines() if line.strip().startswith("//")}
    assert len(comments) >= stages
