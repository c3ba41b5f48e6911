"""Templates read like C: decisions are in emit.py, and the stages of a rendered kernel have comments."""

import pytest

from bench.gpu.candidates import default, rendered
from bench.gpu.cases import cases
from gpucomp.kernels_templates.engines import FAMILIES, engines_of
from gpucomp.kernels_templates.render import environment
from gpucomp.targets import cuda, hip, opencl

TARGETS = [
    *(cuda.manifest("sm_90a"), cuda.manifest("sm_100")),
    *(opencl.manifest("mali"), opencl.manifest("gfx90a"), hip.manifest("gfx90a"), hip.manifest("gfx906")),
]
STAGES = dict.fromkeys(FAMILIES, 3) | {
    "contraction/simt": 6,
    "contraction/simt_pairs": 6,
    "contraction/mma": 8,
    "contraction/gemv": 5,
    "contraction/wgmma": 6,
    "contraction/tcgen05": 6,
    "attention/simt": 8,
    "attention/mma": 8,
    "attention/wgmma": 8,
    "attention/tcgen05": 8,
    "attention/amd": 8,
}


@pytest.fixture(scope="module")
def kernels():
    """Of each engine, a kernel that it accepts and the target."""
    found = {}
    for kernel in cases().values():
        for target in TARGETS:
            for family in engines_of(kernel, target.features):
                found.setdefault(family.title, (kernel, target))
        if len(found) == len(FAMILIES):
            break
    return found


@pytest.mark.parametrize("engine", FAMILIES)
def test_fewer_than_a_third_of_a_template_s_lines_are_tags(engine):
    loader = environment().loader
    assert loader is not None
    source, _, _ = loader.get_source(environment(), FAMILIES[engine].template)

    head = ("{% import", "{% from")
    lines = [line.strip() for line in source.split("-#}", 1)[1].splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(head)]
    tags = [line for line in lines if line.startswith("{%")]

    assert lines
    assert len(tags) / len(lines) < 1 / 3


@pytest.mark.parametrize("engine", FAMILIES)
def test_a_printed_kernel_says_at_its_stages_what_it_does(engine, kernels):
    kernel, target = kernels[engine]

    source, _ = rendered(kernel, default(kernel, FAMILIES[engine], target.limits), target, "k0")

    text = source.text[source.text.index("{") :]
    comments = {line.strip() for line in text.splitlines() if line.strip().startswith("//")}
    assert len(comments) >= STAGES[engine]
