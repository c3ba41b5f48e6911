"""Dot products of four bytes in `simt` and `gemv`: exact integers on every kind of device."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest

from gpucomp.codegen.c.dots import DOTS
from gpucomp.device.device import CUDA, PLAIN_DOT, typical, without_dots
from gpucomp.expr.core import cast, hole, load
from gpucomp.ir.types import F32, I8, I16, I32, U8
from gpucomp.kernel import Kernel
from gpucomp.kernel.forms.packed_int8 import PackedInt8, in_words, is_whole, packed_in_words, word_packing
from gpucomp.kernel.interpreter import expected
from gpucomp.kernel.passes.pack_weights import pack, packed_constant
from gpucomp.kernels_templates.contraction.simt.space import PLAIN
from gpucomp.kernels_templates.render import render
from gpucomp.schedule.analytic import demand, floor_us, math_of
from gpucomp.schedule.choose import choose
from gpucomp.schedule.rank import predicted
from gpucomp.targets import amdgcn, cuda, opencl, sass
from testing import opencl_device
from testing.cases.packed_int8 import CASES, GEMV, SIGNS, SIMT, TILE, product, slices, square, window
from testing.cuda_on_cpu.harness import compile_many
from testing.launches import in_any_order
from testing.template_cases import default
from tests import oclgrind, opencl_c
from tests.schedules_together import assert_agrees

SM_80 = cuda.manifest("sm_80")
SMALL = {**PLAIN, "tile_m": 4, "tile_n": 4, "tile_k": 4, "reg_m": 2, "reg_n": 2}


def data(kernel: Kernel) -> list[np.ndarray]:
    """Random bytes of the whole range, including its ends."""
    rng = np.random.default_rng(3)
    arrays = []
    for t in kernel.params[: kernel.inputs]:
        info = np.iinfo(t.dtype.numpy)
        low, high = (info.min, info.max) if t.dtype.nbytes == 1 else (-999, 999)
        arrays.append(rng.integers(low, high + 1, t.shape).astype(t.dtype.numpy))
        arrays[-1].reshape(-1)[:2] = low, high
    return arrays


def compiled(family, kernel, schedule, target, name="k0"):
    """(kernel, schedule, source, inputs), with a packed constant operand."""
    schedule = schedule or default(kernel, target.limits, family)
    wanted = family.packing(kernel, family.schedule(schedule), family.problem(kernel))
    inputs = data(kernel)
    if wanted is not None:
        packed = pack(kernel, wanted)
        kernel, inputs = packed.kernel, [*(inputs[k] for k in packed.kept), packed_constant(packed, inputs)]
    return kernel, render(kernel, schedule, target, name, family), inputs


def assert_equal(kernel, found):
    for actual, right in zip(found, expected(kernel, data(kernel)), strict=True):
        assert np.unique(right).size > 10
        np.testing.assert_array_equal(actual, right)


@pytest.fixture(scope="module")
def built():
    made = {name: compiled(*case, SM_80, f"k{i}") for i, (name, case) in enumerate(CASES.items())}
    return made, dict(zip(made, compile_many([(s.text, s.name) for _, s, _ in made.values()]), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_cuda_text_gives_the_same_integers_in_any_thread_order(name, built):
    made, programs = built
    kernel, source, inputs = made[name]

    assert "gc_dot4<" in source.text
    assert_equal(CASES[name][1], in_any_order(kernel, source, programs[name], inputs))


@pytest.fixture(scope="module")
def built_for_opencl():
    """The kernel as rendered for a GPU and for PoCL."""
    target, made = opencl_device.target(), {}
    for i, (name, (family, kernel, schedule)) in enumerate(CASES.items()):
        asked = None if schedule is None or schedule.get("asynchronous") else schedule
        made[name] = compiled(family, kernel, asked, target, f"k{i}")
    return made, opencl_device.built_together([source for _, source, _ in made.values()])


@pytest.mark.parametrize("name", CASES)
def test_opencl_text_gives_the_same_integers(name, built_for_opencl):
    made, programs = built_for_opencl
    kernel, source, inputs = made[name]

    assert " = dot4(" in source.text
    assert_equal(CASES[name][1], opencl_device.run(kernel, source, inputs, built=programs[source.name]))


# ---- each device's own instruction, written out for PoCL ----

SIGN_OF = {"s": "char", "u": "uchar"}


def function(result: str, name: str, parameters: str, kinds: str, plus: str = "") -> str:
    """The dot product ``name`` as a function of ``a`` and ``b``, words or vectors of four bytes."""
    vectors = "4 a" in parameters

    def byte(x: str, kind: str, i: int) -> str:
        return f"{x}.s{i}" if vectors else f"({SIGN_OF[kind]})(({x}) >> {8 * i})"

    products = " + ".join(f"{byte('a', kinds[0], i)} * {byte('b', kinds[1], i)}" for i in range(4))
    return f"{result} {name}({parameters}) {{\n  return {plus}{products};\n}}\n"


def arm(kind: str, name: str, third: str = "", plus: str = "") -> str:
    result = "uint" if kind == "u" else "int"
    return function(result, name, f"{SIGN_OF[kind]}4 a, {SIGN_OF[kind]}4 b{third.format(result)}", kind * 2, plus)


DEVICES = {  # the functions of each feature, given whether all bytes are unsigned
    "khr_dot": lambda kind: "".join(
        function(result, f"dot_4x8packed_{kinds}_{result}", "uint a, uint b", kinds)
        for kinds, result in (("ss", "int"), ("uu", "uint"), ("su", "int"), ("us", "int"))
    ),
    "arm_dot": lambda kind: arm(kind, "arm_dot"),
    "arm_dot_acc": lambda kind: arm(kind, "arm_dot_acc", ", {} c", "c + "),
    "sdot4": lambda kind: (
        function("int", "__builtin_amdgcn_sdot4", "int a, int b, int c, bool clamp", "ss", "c + ")
        + function("uint", "__builtin_amdgcn_udot4", "uint a, uint b, uint c, bool clamp", "uu", "c + ")
    ),
    "sudot4": lambda kind: (
        "".join(function("int", f"by_{kinds}", "int a, int b", kinds) for kinds in SIGNS)
        + "int __builtin_amdgcn_sudot4(bool s, int a, bool t, int b, int c, bool clamp) {\n"
        "  return c + (s ? t ? by_ss(a, b) : by_su(a, b) : t ? by_us(a, b) : by_uu(a, b));\n}\n"
    ),
}
CALLED = {"khr_dot": "dot_4x8packed_{}_", "sdot4": "__builtin_amdgcn_{}dot4(", "sudot4": "__builtin_amdgcn_sudot4("}


@pytest.fixture(scope="module")
def instructions():
    assert {*DEVICES, "dp4a"} == set(DOTS)
    made = {}
    for number, (feature, defined) in enumerate(DEVICES.items()):
        target = replace(opencl_device.target(), features=frozenset({"fp64", feature}))
        for signs, types in SIGNS.items():
            kernel, source, inputs = compiled(
                SIMT, product(3, 5, 27, types, constant=True), SMALL, target, f"k{number}{signs}"
            )
            text = "\n".join(line for line in source.text.splitlines() if "#pragma OPENCL EXTENSION" not in line)
            text = defined("u" if signs == "uu" else "s") + text
            made[feature, signs] = kernel, replace(source, text=text), inputs
    return made, opencl_device.built_together([source for _, source, _ in made.values()])


@pytest.mark.parametrize("signs", SIGNS)
@pytest.mark.parametrize("feature", DEVICES)
def test_every_device_s_dot_product_is_called_for_what_it_computes(feature, signs, instructions):
    made, programs = instructions
    kernel, source, inputs = made[feature, signs]
    kind = signs if feature == "khr_dot" else "u" if signs == "uu" else "s"

    found = opencl_device.run(kernel, source, inputs, built=programs[source.name])

    body = source.text.partition("int dot4(")[2]
    assert CALLED.get(feature, f"{feature}(").format(kind) in body
    assert_equal(product(3, 5, 27, SIGNS[signs], constant=True), found)


def test_a_device_without_one_is_given_plain_c_of_the_same_words():
    target = replace(SM_80, features=SM_80.features - {"dp4a"})
    kernel, source, inputs = compiled(SIMT, product(9, 7, 27, constant=True), TILE, target)

    (program,) = compile_many([(source.text, "k0")])

    assert "gc_dot4" not in source.text
    assert_equal(product(9, 7, 27, constant=True), in_any_order(kernel, source, program, inputs))


@pytest.mark.skipif(opencl_c.CLANG is None, reason="clang is not installed")
def test_khronos_names_them_so():
    """The names match clang's declarations."""
    target = replace(opencl.manifest("generic"), features=frozenset({"khr_dot"}))
    source = compiled(SIMT, product(3, 5, 27, constant=True), TILE, target)[1]

    assert "dot_4x8packed_us_int" in source.text
    assert opencl_c.complaints(source.text, standard="CL3.0") == ""
    assert "dot_4x8packed" in opencl_c.complaints(source.text)  # OpenCL C 1.2 has not got them, whatever a device lists


# ---- machine code ----


@pytest.mark.parametrize("arch", ["sm_75", "sm_90a", "sm_120"])
def test_cubins_hold_the_instruction(arch):
    if sass.disassembler() is None:
        pytest.skip("nvdisasm is not installed")
    target = cuda.manifest(arch)
    for signs, suffix in (("us", "U8.S8"), ("ss", "S8.S8")):
        _, source, _ = compiled(GEMV, product(1, 1000, 2048, SIGNS[signs], constant=True), None, target)
        cubin, log = cuda.compile_source(source, target)
        found, used = sass.instructions(cubin), cuda.resources(log)["k0"]

        assert found[f"IDP.4A.{suffix}"] >= 16
        assert sass.count(found, "IMAD", "IMUL", "I2F") < found[f"IDP.4A.{suffix}"] * 4
        assert any(name.startswith("LDG") and ".128" in name for name in found)
        assert used.spill_stores == used.spill_loads == used.stack_bytes == 0


@pytest.mark.parametrize(("signs", "suffix"), [("us", "U8.S8"), ("su", "S8.U8"), ("uu", "U8.U8"), ("ss", "S8.S8")])
def test_the_prelude_s_instruction_has_the_signs_that_are_asked_for(signs, suffix):
    """Checked in machine code, because the harness uses the function's other body."""
    if sass.disassembler() is None:
        pytest.skip("nvdisasm is not installed")
    _, source, _ = compiled(GEMV, product(1, 16, 64, SIGNS[signs], constant=True), None, SM_80)

    found = sass.instructions(cuda.compile_source(source, SM_80)[0])

    assert {name for name in found if name.startswith("IDP")} == {f"IDP.4A.{suffix}"}


@pytest.mark.skipif(amdgcn.compiler() is None, reason="clang is not installed")
@pytest.mark.parametrize(
    ("arch", "types", "name"),
    [
        ("gfx906", "ss", "v_dot4_i32_i8"),
        ("gfx1030", "uu", "v_dot4_u32_u8"),
        ("gfx1030", "us", "v_dot4c_i32_i8"),
        ("gfx1100", "us", "v_dot4_i32_iu8"),
    ],
)
def test_amd_s_listing_holds_the_instruction(arch, types, name):
    target = opencl.manifest(arch)
    kernel = product(512, 512, 512, SIGNS[types], constant=True)
    schedule = {**PLAIN, "tile_m": 64, "tile_n": 64, "tile_k": 16, "reg_m": 4, "reg_n": 4, "stages": 2}
    try:
        found = amdgcn.resources(compiled(SIMT, kernel, schedule, target)[1], arch)
    except amdgcn.DeviceError as unknown:
        pytest.skip(str(unknown))

    assert found.count(name) >= 16 * 16
    assert found.count("v_mul_lo") < 16
    assert found.spilled == found.private_bytes == 0


# ---- kernels in words ----


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        (product(5, 6, 8, (I16, I8)), "an operand of two bytes"),
        (product(5, 6, 8, (I32, I8)), "an operand of i32"),
        (product(5, 6, 2), "half of each word would be zeros"),
        (product(5, 6, 1), "no depth"),
        (product(5, 6, 0), "no depth"),
        (window((1, 5, 5, 8), 6, (3, 3), pad=1, zero=256), "padding that is no byte"),
        (window((1, 5, 5, 8), 6, (3, 3), pad=1, zero=-1), "padding that is no byte"),
    ],
)
def test_what_is_no_product_of_bytes_is_left_alone(kernel, why):
    assert in_words(kernel) is kernel, why
    assert packed_in_words(kernel) is kernel
    assert word_packing(kernel) is None
    assert SIMT.problem(kernel).dot == 1


def test_floats_and_bytes_less_a_zero_point_are_left_alone():
    kernel = product(5, 6, 8)
    body = kernel.body
    floats = hole("acc", F32)

    shifted = replace(kernel, body=replace(body, a=body.a + -119))
    summed = replace(kernel, body=replace(body, a=cast(body.a, F32), b=cast(body.b, F32), acc=floats), stores=())

    assert in_words(shifted) is shifted
    assert in_words(summed) is summed


def test_words_are_whole_where_memory_has_them_so():
    def whole(kernel):
        body = in_words(kernel).body
        assert isinstance(body, PackedInt8)
        return is_whole(body.a), is_whole(body.b)

    assert whole(product(5, 6, 8, b_transposed=True)) == (True, True)
    assert whole(product(5, 6, 8)) == (True, False)  # b is not contiguous along the depth
    assert whole(product(5, 6, 10, b_transposed=True)) == (False, False)  # rows of ten bytes are not aligned
    assert whole(square(12, 12, b_transposed=False)) == (False, False)  # one parameter has one type
    assert whole(square(12, 12, b_transposed=True)) == (True, True)
    assert whole(slices(10, 7, 12, 16)) == (True, True)
    assert whole(slices(10, 7, 13, 16)) == (False, True)  # three bytes of the last word are not part of the depth


def test_what_the_epilogue_reads_keeps_its_type():
    kernel = product(8, 8, 8, b_transposed=True)
    (store,) = kernel.stores
    residual = cast(load(0, (kernel.body.m[0], kernel.body.n[0]), U8), I32)

    words = in_words(replace(kernel, stores=(replace(store, value=store.value + residual),)))

    assert [t.dtype for t in words.params[:2]] == [U8, I32]
    assert (is_whole(words.body.a), is_whole(words.body.b)) == (False, True)


def test_a_constant_is_packed_by_words_with_zeros_at_the_end():
    kernel = product(3, 2, 5, constant=True)
    weights = np.arange(1, 11, dtype=np.int8).reshape(5, 2)

    packed = pack(kernel, word_packing(kernel))

    found = packed_constant(packed, [None, weights, None])
    np.testing.assert_array_equal(found, [[[1, 3, 5, 7], [2, 4, 6, 8]], [[9, 0, 0, 0], [10, 0, 0, 0]]])
    assert word_packing(product(3, 2, 8, b_transposed=True, constant=True)) is None  # as they are they are whole


def test_a_matrix_that_changes_and_runs_across_the_depth_is_multiplied_byte_by_byte_by_gemv():
    dynamic, constant = (product(1, 40, 64, constant=c) for c in (False, True))

    assert (GEMV.problem(dynamic).dot, GEMV.problem(constant).dot) == (1, 4)
    assert SIMT.problem(dynamic).dot == 4  # whose tile is put together once and multiplied often
    assert "dot4" not in compiled(GEMV, dynamic, None, opencl_device.target())[1].text


def test_a_constant_matrix_that_nobody_packed_gives_the_right_sums_too():
    kernel, target = product(2, 7, 30, constant=True), opencl_device.target()
    source = render(kernel, default(kernel, target.limits, GEMV), target, "k0", GEMV)

    assert_equal(kernel, opencl_device.run(kernel, source, data(kernel)))


def test_the_problem_before_packing_is_the_one_after(built):
    for name, (family, kernel, _) in CASES.items():
        ready, _, _ = built[0][name]

        assert family.problem(ready) == family.problem(kernel), name
        assert family.problem(family.in_words(ready)) == family.problem(kernel), name


# ---- the model ----


def test_the_model_counts_four_multiply_adds_a_product():
    device = CUDA["sm_80"]
    kernel = product(256, 256, 1024, constant=True)
    problem = SIMT.problem(kernel)
    schedule = {**PLAIN, "tile_m": 64, "tile_n": 64, "tile_k": 16, "reg_m": 4, "reg_n": 4, "stages": 2}
    wide = product(256, 256, 1024, (I32, I32), constant=True)

    work = SIMT.work(SIMT.schedule(schedule), problem)
    plain = SIMT.work(SIMT.schedule(schedule), SIMT.problem(wide))

    assert (work.math, plain.math) == ("dp4a", "fma")
    assert work.macs == plain.macs == 64 * 64 * 1024
    assert 3.9 < plain.instructions / work.instructions < 4
    of_bytes, of_words = (predicted(SIMT, SIMT.problem(k), schedule, device, demand(k, device)) for k in (wide, kernel))
    assert 3 < (of_bytes.us - device.launch_us) / (of_words.us - device.launch_us) <= 4.1


def test_many_schedules_are_reckoned_at_once_as_each_is():
    assert_agrees(product(197, 136, 266, constant=True), SIMT, SM_80)
    assert_agrees(product(3, 1000, 131, constant=True), GEMV, SM_80)


def test_devices_without_matrix_units_are_reckoned_by_their_dot_products():
    kernel = product(256, 256, 1024)
    apart = replace(CUDA["sm_80"], matrix={"dp4a": 256})
    without = replace(apart, matrix={})

    assert [math_of(kernel, d) for d in (CUDA["sm_80"], apart, without)] == ["s8", "dp4a", "fma"]
    assert floor_us(kernel, without) == pytest.approx(4 * floor_us(kernel, apart), rel=0.3)


def test_plain_c_costs_what_its_text_has_of_shifts_and_multiply_adds():
    source = compiled(SIMT, product(3, 5, 27, SIGNS["ss"], constant=True), SMALL, opencl.manifest("generic"))[1]

    (line,) = source.text.partition("int dot4(")[2].splitlines()[1:2]

    assert line.startswith("  return c + ")
    assert line.count(" + ") == line.count(" * ") == 4  # each pair is one instruction
    assert line.count("<<") + line.count(">>") + line.count(" * ") == PLAIN_DOT


def test_targets_and_texts_know_the_same_dot_products_of_opencl():
    assert DOTS.keys() - {"dp4a"} == opencl.DOTS  # CUDA's: a target is resolved without the code generator


def test_a_device_without_dot_products_is_reckoned_by_plain_c():
    kernel = product(256, 256, 1024, constant=True)
    schedule = {**PLAIN, "tile_m": 64, "tile_n": 64, "tile_k": 16, "reg_m": 4, "reg_n": 4, "stages": 2}
    has = typical(8)
    lacks = without_dots(has)
    wide = product(256, 256, 1024, (I32, I32), constant=True)  # one multiply-add a step of the depth

    def loop_us(k, device):
        return predicted(SIMT, SIMT.problem(k), schedule, device, demand(k, device)).terms.loop_us

    assert lacks.rate("dp4a") == pytest.approx(4 * lacks.rate("fma") / PLAIN_DOT)
    assert typical(8, dots=False) == lacks != has
    assert loop_us(wide, lacks) == loop_us(wide, has)
    assert loop_us(kernel, lacks) / loop_us(kernel, has) == pytest.approx(PLAIN_DOT, rel=0.2)
    assert loop_us(kernel, lacks) / loop_us(wide, lacks) == pytest.approx(PLAIN_DOT / 4, rel=0.1)


def test_an_engine_is_not_preferred_for_an_instruction_that_is_not_there():
    kernel = product(1, 1000, 2048, SIGNS["ss"])
    without, has = opencl.manifest("generic"), opencl.manifest("generic")
    has = replace(has, features=has.features | {"khr_dot"}, limits=replace(has.limits, dots=True))

    chosen = [choose(kernel, [GEMV, SIMT], t.limits, t.device).family for t in (has, without)]

    assert chosen == [SIMT, GEMV]


# ---- under Oclgrind, and as text ----


@pytest.mark.skipif(shutil.which("oclgrind") is None, reason="oclgrind is not installed")
def test_words_keep_to_their_memory(tmp_path):
    cases = [
        (SIMT, product(3, 5, 13, constant=True), SMALL),
        (SIMT, product(3, 5, 8, b_transposed=True), SMALL),
        (SIMT, window((1, 3, 4, 4), 3, (3, 3), pad=1, zero=9), SMALL),
        (GEMV, product(2, 9, 11, constant=True), None),
    ]

    jobs = [compiled(*case, opencl.manifest("generic")) for case in cases]

    assert oclgrind.findings(jobs, tmp_path) == []
