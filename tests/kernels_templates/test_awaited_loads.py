"""Machine code of overlapping launches: loads of values that other launches write come after the wait for them.

ptxas may move loads of constants (ld.global.nc, in machine code LDG....CONSTANT) before the wait. The CPU harness, which
runs the source, cannot detect that.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from gpucomp.kernel.passes.pack_weights import pack
from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.kernels_templates.render import render
from gpucomp.targets import cuda, sass
from testing.cases.awaited_loads import KERNELS
from testing.template_cases import default
from tests.sass_paths import before, kernels

TARGET = cuda.manifest("sm_90a")
WAIT = "ACQBULK"  # griddepcontrol.wait
AS_CONSTANTS = "weights_early, all inputs as if they were constants"


def rendered(name):
    engine, kernel, changes = KERNELS[name]
    family = FAMILIES[engine]
    schedule = default(kernel, TARGET.limits, family) | changes
    wanted = family.packing(kernel, family.schedule(schedule), family.problem(kernel))
    return render(pack(kernel, wanted).kernel if wanted else kernel, schedule, TARGET, f"k_{name}", family)


@pytest.fixture(scope="module")
def listings():
    if sass.disassembler() is None:
        pytest.skip("nvdisasm is not installed")
    sources = {name: rendered(name) for name in KERNELS}
    text = sources["weights_early"].text.replace("k_weights_early", "k_as_constants")
    sources[AS_CONSTANTS] = replace(sources["weights_early"], name="k_as_constants", text=restricted(text))
    apart = "".join(f"namespace of_{s.name} {{\n{s.text}}}\n" for s in sources.values())
    cubin, _ = cuda.compile_source(replace(sources["loops"], text=apart), TARGET)
    found = kernels(sass.listing(cubin))
    return {name: found[source.name] for name, source in sources.items()}


def restricted(text):
    found, count = re.subn(r"^( +const \w+\*) (x\d,)$", r"\1 __restrict__ \2", text, flags=re.MULTILINE)
    assert count == 3  # pixels, bias, residual
    return found


def loads(instructions):
    return [i for i in instructions if i.split(".")[0] in ("LDG", "LD")]


@pytest.mark.parametrize("name", KERNELS)
def test_what_other_launches_leave_is_loaded_behind_the_wait(name, listings):
    assert "LDG." in listings[name]
    assert WAIT in listings[name]
    assert loads(before(listings[name], WAIT)) == []
    assert ".CONSTANT" not in listings[name]


def test_a_load_that_ptxas_moves_before_the_wait_is_seen(listings):
    found = loads(before(listings[AS_CONSTANTS], WAIT))

    assert found
    assert all(".CONSTANT" in load for load in found)


def test_constants_are_read_as_such_and_results_hold_up_no_load():
    engine, kernel, _ = KERNELS["gemv"]
    known, family = replace(kernel, constants=frozenset({1})), FAMILIES[engine]

    text = render(known, default(known, TARGET.limits, family), TARGET, "k0", family).text

    for parameter in (
        "const float* x0",
        "const float* __restrict__ x1",
        "const float* x2",
        "    float* __restrict__ x3",
    ):
        assert parameter in text
