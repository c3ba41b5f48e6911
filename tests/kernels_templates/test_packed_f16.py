"""Two f16 a product in `simt_pairs`: the sums of f32 products, on devices that have the instruction and on no other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.machine_code import amd
from bench.machine_code.flow import main_loop
from gpucomp.expr.core import call, cast, load
from gpucomp.ir.types import BF16, F16, F32
from gpucomp.kernel import Kernel
from gpucomp.kernel.forms.packed_f16 import WORDS, PackedF16, in_pairs, packed_in_pairs, pair_packing
from gpucomp.kernel.forms.packed_words import is_whole
from gpucomp.kernel.interpreter import expected
from gpucomp.kernel.passes.pack_weights import pack, packed_constant
from gpucomp.kernels_templates.contraction.simt.space import PLAIN
from gpucomp.kernels_templates.engines import FAMILIES, engines_of
from gpucomp.kernels_templates.render import render
from gpucomp.schedule.analytic import demand, floor_us, math_of
from gpucomp.schedule.choose import choose
from gpucomp.schedule.rank import predicted
from gpucomp.targets import amdgcn, cuda, hip, opencl
from testing import opencl_device
from testing.amd_emulation import with_pairs
from testing.cases.packed_f16 import CASES, PAIRS, product, slices, square, window
from testing.cases.packed_int8 import TILE
from testing.cuda_on_cpu.harness import compile_many, hip_compiler
from testing.kernels import conv, matmul, random_inputs
from testing.launches import in_any_order
from testing.tolerance import assert_matches
from tests.schedules_together import assert_agrees

SIMT = FAMILIES["contraction/simt"]
GFX906, GFX1030 = (hip.manifest(arch) for arch in ("gfx906", "gfx1030"))
needs_clang = pytest.mark.skipif(hip_compiler() is None, reason="clang is not installed")


def compiled(kernel, schedule, target, name="k0", inputs=None):
    """(kernel, source, inputs), with a packed constant operand."""
    wanted = PAIRS.packing(kernel, PAIRS.schedule(schedule), PAIRS.problem(kernel))
    inputs = inputs or random_inputs(kernel)
    if wanted is not None:
        packed = pack(kernel, wanted)
        kernel, inputs = packed.kernel, [*(inputs[k] for k in packed.kept), packed_constant(packed, inputs)]
    return kernel, render(kernel, schedule, target, name, PAIRS), inputs


def terms(kernel: Kernel) -> int:
    return int(np.prod([axis.extent for axis in kernel.body.k]))


def assert_right(kernel: Kernel, found, inputs=None) -> None:
    for actual, right in zip(found, expected(kernel, inputs or random_inputs(kernel)), strict=True):
        assert_matches(actual, right, terms=terms(kernel))


# ---- HIP on the harness, where the instruction rounds once ----


@pytest.fixture(scope="module", params=["gfx906", "gfx1030"])
def built(request):
    if hip_compiler() is None:
        pytest.skip("clang is not installed")
    target = hip.manifest(request.param)
    made = {name: compiled(*case, target, f"k{i}") for i, (name, case) in enumerate(CASES.items())}
    programs = compile_many([(s.text, s.name) for _, s, _ in made.values()], arch=request.param)
    return made, dict(zip(made, programs, strict=True))


@pytest.mark.parametrize("name", CASES)
def test_hip_gives_the_sums_in_any_thread_order(name, built):
    made, programs = built
    kernel, source, inputs = made[name]

    assert "= dot2(" in source.text
    assert_right(CASES[name][0], in_any_order(kernel, source, programs[name], inputs))


@needs_clang
def test_what_lies_behind_an_odd_depth_is_not_multiplied():
    """In the last word of a row there is an infinity beside the last element; times the other operand's 0 it is no number."""
    kernel, schedule = slices(10, 7, 13, 16), TILE
    inputs = random_inputs(kernel)
    for rows in inputs[:2]:
        rows[:, 13:] = np.inf, np.nan, -np.inf

    ready, source, arrays = compiled(kernel, schedule, GFX906, inputs=inputs)
    (program,) = compile_many([(source.text, "k0")], arch="gfx906")
    found = in_any_order(ready, source, program, arrays)

    assert all(is_whole(operand, WORDS) for operand in (in_pairs(kernel).body.a, in_pairs(kernel).body.b))
    assert np.isfinite(found[0]).all()
    assert_right(kernel, found, inputs)


@needs_clang
def test_infinities_and_nan_of_operands_are_those_of_the_sums():
    kernel = product(6, 5, 9, b_transposed=True)
    inputs = random_inputs(kernel)
    inputs[0][1, 3], inputs[0][2, 8], inputs[1][4, 0] = np.inf, np.nan, -np.inf

    ready, source, arrays = compiled(kernel, TILE, GFX1030, inputs=inputs)
    (program,) = compile_many([(source.text, "k0")], arch="gfx1030")

    assert_right(kernel, in_any_order(ready, source, program, arrays), inputs)


# ---- OpenCL on PoCL, which has neither the instruction nor half in registers ----


@pytest.fixture(scope="module")
def built_for_opencl():
    own = opencl_device.target()
    target = replace(own, features=own.features | {"fdot2", "fp16"})
    made = {}
    for i, (name, (kernel, schedule)) in enumerate(CASES.items()):
        ready, source, inputs = compiled(kernel, schedule, target, f"k{i}")
        made[name] = ready, with_pairs(source), inputs
    return made, opencl_device.built_together([source for _, source, _ in made.values()])


@pytest.mark.parametrize("name", CASES)
def test_opencl_gives_the_sums(name, built_for_opencl):
    made, programs = built_for_opencl
    kernel, source, inputs = made[name]

    found = opencl_device.run(kernel, source, inputs, built=programs[source.name])

    assert "__builtin_amdgcn_fdot2(as_half2(a), as_half2(b), c, false)" in source.text
    assert_right(CASES[name][0], found)


# ---- texts and machine code ----

GOLDEN = TILE | {"tile_m": 32, "reg_m": 8, "reg_n": 8}


@pytest.mark.parametrize(("target", "suffix"), [(GFX906, "hip"), (opencl.manifest("gfx1030"), "cl")])
def test_text(target, suffix, golden):
    kernel = window((1, 9, 8, 24), 40, (3, 3), pad=1)

    golden(compiled(kernel, GOLDEN, target)[1].text, f"contraction_pairs.{suffix}")


LAYERS = {
    "product": matmul(512, 512, 512, dtype=F16),
    "window": replace(conv((1, 28, 28, 128), 128, (3, 3), pad=1, dtype=F16), constants=frozenset({1})),
    "planar": window((8, 28, 28, 128), 128, (1, 1), planar=True),
    "stem": window((1, 112, 112, 3), 64, (7, 7), pad=3),
}


@needs_clang
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize(("arch", "name"), [("gfx906", "v_dot2_f32_f16"), ("gfx1030", "v_dot2c_f32_f16")])
@pytest.mark.parametrize("language", [hip, opencl])
def test_defaults_and_choices_hold_the_instruction_and_spill_nothing(layer, arch, name, language):
    kernel, target = LAYERS[layer], language.manifest(arch)
    chosen = choose(kernel, engines_of(kernel, target.features), target.limits, target.device)
    default = dict(PAIRS.default(PAIRS.problem(kernel), target.limits).numbers)

    assert chosen.family is PAIRS
    for schedule in (default, dict(chosen.schedule)):
        source = compiled(kernel, schedule, target)[1]
        found = amdgcn.resources(source, arch)
        loop = main_loop(amd.kernel(amdgcn.assemble(source, arch)), lambda one: one.name.startswith(name))

        assert loop is not None
        assert sum(one.name.startswith(name) for one in loop) >= 4 * schedule["reg_m"] * schedule["reg_n"]
        assert found.count("v_fma") + found.count("v_mac") + found.count("v_fmac") == 0
        assert found.spilled == found.private_bytes == 0


# ---- which kernels are in pairs ----


def residual(kernel: Kernel) -> Kernel:
    """With its first operand added to the sum."""
    (store,) = kernel.stores
    first = cast(load(0, (kernel.body.m[0], kernel.body.n[0]), F16), F32)
    return replace(kernel, stores=(replace(store, value=store.value + first),))


def rectified(kernel: Kernel) -> Kernel:
    """With a first operand that is computed when it is loaded."""
    a = load(0, (kernel.body.m[0], kernel.body.k[0]), F16)
    return replace(kernel, body=replace(kernel.body, a=cast(call("max", a, 0.0), F32)))


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        (product(5, 6, 8, types=(F32, F32)), "operands of f32"),
        (product(5, 6, 8, types=(BF16, BF16)), "operands of bf16"),
        (product(5, 6, 8, types=(F16, F32)), "an operand of f32"),
        (product(5, 6, 1), "no depth"),
        (product(5, 6, 0), "no depth"),
        (window((1, 5, 5, 8), 6, (3, 3), pad=1, zero=0.1), "padding that is no f16"),
        (residual(product(8, 8, 8)), "the first operand is read as f16 too"),
        (rectified(product(8, 8, 8)), "an operand that is computed"),
    ],
)
def test_what_is_no_product_of_f16_in_memory_is_left_to_simt(kernel, why):
    assert in_pairs(kernel) is kernel, why
    assert packed_in_pairs(kernel) is kernel
    assert pair_packing(kernel) is None
    assert engines_of(kernel, GFX906.features)[-1] is SIMT
    assert PAIRS not in engines_of(kernel, GFX906.features)


def test_only_devices_with_the_instruction_have_the_engine():
    kernel = product(64, 64, 64)
    targets = [hip.manifest(arch) for arch in ("gfx906", "gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1012", "gfx1100")]
    targets += [hip.manifest("gfx900"), *(opencl.manifest(name) for name in (*opencl.flavours(), "gfx906", "gfx1010"))]
    targets += [cuda.manifest(arch) for arch in ("sm_75", "sm_90a")]

    have = {target.name for target in targets if PAIRS in engines_of(kernel, target.features)}

    assert have == {"hip:gfx906", "hip:gfx908", "hip:gfx1030", "hip:gfx1012", "opencl:gfx906"}
    assert PAIRS not in engines_of(kernel, opencl.manifest("gfx906").features - {"fp16"})  # the helper's type


def test_matrix_cores_come_first_where_there_are_some():
    kernel, target = LAYERS["product"], hip.manifest("gfx908")

    assert choose(kernel, engines_of(kernel, target.features), target.limits, target.device).family.engine == "amd"


def test_words_are_whole_where_memory_has_them_so():
    def whole(kernel):
        body = in_pairs(kernel).body
        assert isinstance(body, PackedF16)
        return is_whole(body.a, WORDS), is_whole(body.b, WORDS)

    assert whole(product(5, 6, 8, b_transposed=True)) == (True, True)
    assert whole(product(5, 6, 8)) == (True, False)  # b is not contiguous along the depth
    assert whole(product(5, 6, 9, b_transposed=True)) == (False, False)  # rows of nine are not aligned
    assert whole(square(12, 12, b_transposed=False)) == (False, False)  # one parameter has one type
    assert whole(square(12, 12, b_transposed=True)) == (True, True)


def test_words_are_declared_u32_and_single_f16_u16():
    whole, single = (in_pairs(product(6, 4, 8, b_transposed=b)) for b in (True, False))

    assert [t.dtype.name for t in whole.params] == ["u32", "u32", "f32", "f32"]
    assert [t.dtype.name for t in single.params] == ["u32", "u16", "f32", "f32"]
    assert [t.shape for t in whole.params[:2]] == [(24,), (16,)]


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_in_pairs_computes_the_same(name):
    kernel, _ = CASES[name]
    inputs = random_inputs(kernel)

    found = expected(in_pairs(kernel), inputs)

    for one, other in zip(found, expected(kernel, inputs), strict=True):
        assert_matches(one, other, terms=terms(kernel))


def test_a_constant_is_packed_by_pairs_with_a_zero_at_the_end():
    kernel = product(3, 2, 5, constant=True)
    weights = np.arange(1, 11, dtype=np.float16).reshape(5, 2)

    packed = pack(kernel, pair_packing(kernel))

    found = packed_constant(packed, [None, weights, None])
    np.testing.assert_array_equal(found, [[[1, 3], [2, 4]], [[5, 7], [6, 8]], [[9, 0], [10, 0]]])
    assert pair_packing(product(3, 2, 8, b_transposed=True, constant=True)) is None  # as they are they are whole


# ---- the model ----

SQUARE = {**PLAIN, "tile_m": 64, "tile_n": 64, "tile_k": 16, "reg_m": 4, "reg_n": 4, "stages": 2}


def test_the_model_counts_two_multiply_adds_a_product():
    kernel, device = product(2048, 2048, 2048), GFX906.device

    work = PAIRS.work(PAIRS.schedule(SQUARE), PAIRS.problem(kernel))
    plain = SIMT.work(SIMT.schedule(SQUARE), SIMT.problem(kernel))

    assert (work.math, plain.math) == ("dot2", "fma")
    assert work.macs == plain.macs == 64 * 64 * 2048
    assert 1.9 < plain.instructions / work.instructions < 2
    us = [predicted(f, f.problem(kernel), SQUARE, device, demand(kernel, device)).us for f in (SIMT, PAIRS)]
    assert 1.8 < us[0] / us[1] <= 2
    assert device.unit_rate("dot2") == 2 * device.unit_rate("fma")


def test_many_schedules_are_reckoned_at_once_as_each_is():
    assert_agrees(product(197, 136, 266, constant=True), PAIRS, GFX906)


def test_the_least_time_is_that_of_the_dot_products():
    half, single = product(1024, 1024, 1024), product(1024, 1024, 1024, types=(F32, F32))

    assert [math_of(half, hip.manifest(arch).device) for arch in ("gfx906", "gfx908")] == ["dot2", "f16"]
    assert math_of(single, GFX906.device) == math_of(half, hip.manifest("gfx900").device) == "fma"
    assert floor_us(half, GFX906.device) == pytest.approx(floor_us(single, GFX906.device) / 2)
