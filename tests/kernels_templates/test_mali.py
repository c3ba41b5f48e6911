"""The `mali` engine of contractions: on PoCL against numpy, under Oclgrind, and as clang reads it for a Mali."""

from __future__ import annotations

import random
import re
import shutil
from dataclasses import replace

import numpy as np
import pyopencl as cl
import pytest

from gpucomp.errors import ScheduleError
from gpucomp.expr.core import cast
from gpucomp.ir.types import F16, F32, F64, I8, I32
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.interpreter import expected
from gpucomp.kernel.passes.pack_weights import pack, packed_constant
from gpucomp.kernels_templates.contraction.mali.space import MaliProblem, registers
from gpucomp.kernels_templates.engines import FAMILIES, engines_of
from gpucomp.kernels_templates.render import render
from gpucomp.schedule.choose import choose
from gpucomp.targets import opencl, opencl_build
from testing import opencl_device
from testing.cases.mali import CASES, KERNELS, TINY, with_constant_weights
from testing.kernels import conv, conv_of_bytes, matmul, random_inputs
from testing.template_cases import SMALLEST
from testing.tolerance import assert_matches
from tests import oclgrind, opencl_c

FAMILY = FAMILIES["contraction/mali"]
MALI = opencl.manifest("mali")
BASE = {"m0": 4, "n0": 4, "k0": 4, "image": 0, "lws_x": 2, "lws_y": 4}


def tf32(kernel: Kernel) -> Kernel:
    assert isinstance(kernel.body, Contraction)
    return replace(kernel, body=replace(kernel.body, math="tf32"))


def packed(kernel: Kernel, schedule: dict[str, int], inputs: list[np.ndarray]) -> tuple[Kernel, list[np.ndarray]]:
    """The kernel and its inputs. Constant weights are packed for the engine."""
    s, p = FAMILY.schedule(schedule), FAMILY.problem(kernel)
    wanted = FAMILY.packing(kernel, s, p)
    if wanted is None:
        return kernel, inputs
    made = pack(kernel, wanted)
    return made.kernel, [*(inputs[k] for k in made.kept), packed_constant(made, inputs)]


def default(kernel: Kernel) -> dict[str, int]:
    return dict(FAMILY.default(FAMILY.problem(kernel), MALI.limits).numbers)


def drawn(kernel: Kernel, count: int, seed: int) -> list[dict[str, int]]:
    """``count`` different random legal schedules. Asserts that illegal ones are refused with a reason."""
    draw, problem, found = random.Random(seed), FAMILY.problem(kernel), []
    while len(found) < count:
        schedule = {p.name: draw.choice(p.choices) for p in FAMILY.params}
        reasons = FAMILY.reasons(schedule, problem, MALI.limits)
        assert all(reasons)
        if not reasons and schedule not in found:
            found.append(schedule)
    return found


def assert_right(kernel: Kernel, schedule: dict[str, int], change=None, **features) -> str:
    inputs = random_inputs(kernel)
    compiled, arrays = packed(kernel, schedule, inputs)
    target = replace(opencl_device.target(), **features)
    source = render(compiled, schedule, target, "k0", FAMILY)
    if change is not None:
        changed = change(source.text)
        assert changed != source.text
        source = replace(source, text=changed)
    found = opencl_device.run(compiled, source, arrays)
    for actual, right in zip(found, expected(kernel, inputs), strict=True):
        assert_matches(actual, right, terms=max(1, FAMILY.problem(kernel).k))
    return source.text


@pytest.mark.parametrize("case", CASES)
def test_the_default_gives_numpy_s_answer(case):
    assert_right(CASES[case], default(CASES[case]))


@pytest.mark.parametrize("case", [c for c in CASES if c.endswith("packed") or "transposed" in c])
def test_a_drawn_schedule_gives_numpy_s_answer(case):
    (schedule,) = drawn(CASES[case], 1, seed=len(case))

    assert_right(CASES[case], schedule)


@pytest.mark.parametrize("m", [1, 4, 5, 7])
@pytest.mark.parametrize(("n", "k"), [(3, 7), (8, 4), (9, 6), (1, 8)])
def test_tails_in_every_axis(m, n, k):
    assert_right(with_constant_weights(matmul(m, n, k)), BASE)


@pytest.mark.parametrize("dtype", [F32, F16], ids=lambda t: t.name)
@pytest.mark.parametrize("n", [6, 10])
def test_sums_as_they_are_go_to_memory_in_parts_of_a_vector(n, dtype):
    """Four columns are one vector of sums. Rows with an odd number of pairs are stored two columns at a time."""
    kernel = matmul(5, n, 7, dtype=dtype)
    bare = replace(
        kernel, params=kernel.params[:4], stores=(replace(kernel.stores[0], value=cast(kernel.body.acc, dtype)),)
    )

    text = assert_right(with_constant_weights(bare), BASE)

    assert "vstore2((float2)(c0.s0, c0.s1)" in text or (
        dtype is F16 and "vstore_half2_rte((float2)(c0.s0, c0.s1)" in text
    )


def test_accesses_are_exactly_sixteen_bytes():
    texts = {
        dtype: assert_right(with_constant_weights(matmul(32, 64, 64, dtype=dtype)), BASE | {"k0": k0})
        for dtype, k0 in ((F32, 4), (F16, 8))
    }

    assert set(re.findall(r"= (vload\w*)\(", texts[F32])) == {"vload4"}
    assert set(re.findall(r"const float\d [ab]\d+ = (vload\w*)\(", texts[F16])) == {"vload_half8"}


@pytest.mark.parametrize("case", ["conv_3x3-packed", "conv_f16-packed", "batched-dynamic", "i8-packed"])
def test_nothing_meets_and_nothing_is_indexed_in_private_memory(case):
    text = render_for(CASES[case], default(CASES[case])).text

    assert "barrier" not in text
    assert "__local" not in text
    assert not re.search(r"(float|half|int)\d* \w+\[", text)


def render_for(kernel: Kernel, schedule: dict[str, int], target=MALI):
    compiled, _ = packed(kernel, schedule, [np.zeros(t.shape, t.dtype.numpy) for t in kernel.params[: kernel.inputs]])
    return render(compiled, schedule, target, "k0", FAMILY)


# ---- weights through an image ----

IMAGES = replace(MALI, limits=replace(MALI.limits, image_width=65536))


def run_with_image(kernel: Kernel, schedule: dict[str, int]) -> list[np.ndarray]:
    """Runs the kernel on PoCL, which has no images from buffers: the last input is copied into an image."""
    target = opencl_device.target().with_limits(image_width=16384)
    compiled, arrays = packed(kernel, schedule, random_inputs(kernel))
    source = render(compiled, schedule, target, "k0", FAMILY)
    queue = opencl_device.device_queue("pocl")
    flags, weights = cl.mem_flags, arrays[-1]
    kind = cl.channel_type.HALF_FLOAT if weights.dtype == np.float16 else cl.channel_type.FLOAT
    rows = -(-FAMILY.problem(kernel).n // schedule["n0"]) * FAMILY.problem(kernel).batch
    shape = (weights.size // rows // 4, rows)
    image = cl.create_image(
        queue.context,
        flags.READ_ONLY | flags.COPY_HOST_PTR,
        cl.ImageFormat(cl.channel_order.RGBA, kind),
        shape=shape,
        hostbuf=np.ascontiguousarray(weights),
    )
    buffers = [cl.Buffer(queue.context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=a) for a in arrays[:-1]]
    outputs = [np.zeros(t.shape, t.dtype.numpy) for t in compiled.params[compiled.inputs :]]
    results = [cl.Buffer(queue.context, flags.READ_WRITE, t.nbytes) for t in compiled.params[compiled.inputs :]]
    built, _ = opencl_build.program(queue.context, queue.device, source)
    size = tuple(g * i for g, i in zip(source.geometry.groups, source.geometry.items, strict=True))
    cl.Kernel(built, "k0")(queue, size, source.geometry.items, *buffers, image, *results)
    for array, result in zip(outputs, results, strict=True):
        cl.enqueue_copy(queue, array.view(np.uint8), result)
    queue.finish()
    return outputs


@pytest.mark.skipif(not opencl.device_of(opencl.manifest("pocl")).image_support, reason="the device has no images")
@pytest.mark.parametrize(
    ("name", "n0"),
    [("matmul", 4), ("conv_3x3", 8), ("f16", 8), ("conv_f16_prime", 4), ("grouped", 4), ("conv_stem", 4)],
)
def test_weights_come_through_an_image(name, n0):
    kernel = with_constant_weights(KERNELS[name])

    found = run_with_image(kernel, BASE | {"m0": 2, "n0": n0, "image": 1})

    for actual, right in zip(found, expected(kernel, random_inputs(kernel)), strict=True):
        assert_matches(actual, right, terms=max(1, FAMILY.problem(kernel).k))


@pytest.mark.skipif(opencl_c.CLANG is None, reason="clang is not installed")
@pytest.mark.parametrize("name", ["matmul", "conv_3x3", "f16", "f16_sums"])
def test_clang_accepts_images_for_a_mali(name):
    text = render_for(with_constant_weights(KERNELS[name]), BASE | {"m0": 2, "image": 1}, IMAGES).text

    assert opencl_c.complaints(text, MALI.features) == ""
    assert "__read_only image2d_t" in text
    assert ("read_imageh" in text) is (name == "f16_sums")


@pytest.mark.parametrize(
    ("kernel", "change", "limits", "reason"),
    [
        (matmul(8, 8, 8), {}, MALI.limits, "shows no buffer as an image"),
        (matmul(8, 8, 8), {}, IMAGES.limits, ""),
        (matmul(8, 8, 8), {"n0": 2}, IMAGES.limits, "no multiple of the 4 elements"),
        (matmul(8, 8, 8, dtype=I32, acc=I32), {}, IMAGES.limits, "f32 or f16"),
        (matmul(8, 8, 70000), {}, IMAGES.limits, "70000 x 2 pixels"),
    ],
)
def test_images_are_refused_where_there_are_none(kernel, change, limits, reason):
    problem = FAMILY.problem(with_constant_weights(kernel))

    found = FAMILY.reasons(BASE | {"image": 1} | change, problem, limits)

    assert [reason in r for r in found] == ([True] if reason else [])


def test_an_image_of_weights_that_change_is_refused():
    kernel = matmul(8, 8, 8)

    (reason,) = FAMILY.reasons(BASE | {"image": 1}, FAMILY.problem(kernel), IMAGES.limits)
    assert "only constant weights" in reason
    with pytest.raises(ScheduleError, match="these are not"):
        render(with_constant_weights(matmul(8, 7, 8)), BASE | {"image": 1}, IMAGES, "k0", FAMILY)


# ---- precision ----


def test_sums_are_halves_where_the_kernel_says_so_and_the_device_can():
    asked, schedule = with_constant_weights(matmul(13, 16, 12, dtype=F16, acc=F16)), BASE | {"m0": 2, "n0": 8}
    wide = with_constant_weights(matmul(13, 16, 12, dtype=F16))

    texts = [render_for(k, schedule, t).text for k, t in ((asked, MALI), (asked, opencl_device.target()), (wide, MALI))]

    assert ["half8 c0 = 0" in text for text in texts] == [True, False, False]
    assert ["float4 c0_0 = 0" in text for text in texts] == [False, False, True]


PRODUCTS = "const int4 p = convert_int4(a) * convert_int4(b)"
DOT = {
    "arm_dot_acc": f"int arm_dot_acc(char4 a, char4 b, int c) {{ {PRODUCTS}; return c + p.x + p.y + p.z + p.w; }}\n",
    "arm_dot": f"int arm_dot(char4 a, char4 b) {{ {PRODUCTS}; return p.x + p.y + p.z + p.w; }}\n",
    "khr_dot": "int dot_4x8packed_ss_int(uint x, uint y) {\n"
    f"  const char4 a = as_char4(x), b = as_char4(y);\n  {PRODUCTS};\n  return p.x + p.y + p.z + p.w;\n}}\n",
}
CALLED = {"khr_dot": "dot_4x8packed_ss_int"}
WAYS = [("i8", "dynamic"), ("padded conv", "packed")]  # of every feature; the others of one


@pytest.mark.parametrize(
    ("feature", "name", "how"),
    [(feature, *way) for feature in DOT for way in WAYS]
    + [
        ("arm_dot_acc", *way)
        for way in (("i8", "packed"), ("conv", "dynamic"), ("conv", "packed"), ("padded conv", "dynamic"))
    ],
)
def test_bytes_are_multiplied_by_the_device_s_dot_product(feature, name, how):
    kernel = {"i8": matmul(9, 12, 32, dtype=I8, acc=I32), "conv": conv_of_bytes(), "padded conv": conv_of_bytes(-9)}[
        name
    ]
    kernel = with_constant_weights(kernel) if how == "packed" else kernel

    def defined(text):
        # a device may have it: there it is another one
        called = CALLED.get(feature, feature)
        mine = f"#undef {called}\n#define {called} mine\n{DOT[feature]}"
        return mine + re.sub(r"#pragma OPENCL EXTENSION cl_(arm|khr_integer)\w+ : enable\n", "", text)

    text = assert_right(kernel, BASE, defined, features=frozenset({"fp64", feature}))

    assert f"{CALLED.get(feature, feature)}(" in text.partition("__kernel")[2]
    assert "+= a" not in text


@pytest.mark.parametrize("extent", [6, 7])
def test_bytes_that_no_dot_product_takes_by_fours_are_multiplied_one_by_one(extent):
    kernel = with_constant_weights(matmul(5, 8, extent, dtype=I8, acc=I32))

    assert "arm_dot(" not in assert_right(kernel, BASE, features=frozenset({"fp64", "arm_dot"}))


# ---- as a Mali's compiler reads it ----


@pytest.mark.skipif(opencl_c.CLANG is None, reason="clang is not installed")
@pytest.mark.parametrize("case", CASES)
def test_clang_accepts_the_source_for_a_mali(case):
    text = render_for(CASES[case], default(CASES[case])).text

    assert opencl_c.complaints(text, MALI.features) == ""


# ---- under Oclgrind ----

needs_oclgrind = pytest.mark.skipif(shutil.which("oclgrind") is None, reason="oclgrind is not installed")


def job(kernel: Kernel, schedule: dict[str, int], change=None) -> oclgrind.Job:
    compiled, arrays = packed(kernel, schedule, random_inputs(kernel))
    source = render(compiled, schedule, opencl.manifest("generic"), "k0", FAMILY)
    text = change(source.text) if change else source.text
    assert (text != source.text) is bool(change)
    return compiled, replace(source, text=text), arrays


@needs_oclgrind
def test_every_schedule_keeps_to_its_memory(tmp_path):
    kernels = [k for kernel in TINY.values() for k in (kernel, with_constant_weights(kernel))]

    jobs = [job(k, schedule) for k in kernels for schedule in (BASE, default(k))]

    assert oclgrind.findings(jobs, tmp_path) == []


def replaced(old: str, new: str):
    return lambda text: text.replace(old, new, 1)


def shifted_last_row(text):
    """A mutation: the last row is neither clamped nor guarded when it is stored."""
    text = text.replace(f"min({ROW3[0]}, 4)", ROW3[0]).replace(f"if ({ROW3[1]})", "if (true)")
    return text.replace("x0 + a3_at", "x0 + a0_at")


ROW3 = ("row_block * 4 + 3", "row_block * 4 + 3 < 5")


def unmasked(text):
    """A mutation: the first row is loaded without its halo guard, both in the address and in the value."""
    text = text.replace("const int a0_at = a0_in ? a0s5 + at4 : 0;", "const int a0_at = a0s5 + at4;")
    return text.replace("a0_in ? vload4(0, x0 + a0_at) : (float4)(0.0f)", "vload4(0, x0 + a0_at)")


OUTSIDE = {  # mistakes that leave the buffers: (kernel, change, what Oclgrind says)
    "a row past the end is not clamped": (TINY["odd"], replaced(f"min({ROW3[0]}, 4)", ROW3[0]), "Invalid read"),
    "a row past the end is stored": (TINY["odd"], shifted_last_row, "Invalid write"),
    "a halo is read": (TINY["conv"], unmasked, "Invalid read"),
    "a step is one too far": (
        TINY["odd"],
        replaced("vload4(0, x0 + a3_at + depth)", "vload4(0, x0 + a3_at + depth + 4)"),
        "Invalid read",
    ),
    "a sum starts with nothing": (TINY["odd"], replaced("float4 c0 = 0.0f;", "float4 c0;"), "uninitialized"),
}


@needs_oclgrind
@pytest.mark.parametrize("mistake", OUTSIDE)
def test_a_mistake_outside_the_buffers_is_found(mistake, tmp_path):
    kernel, change, said = OUTSIDE[mistake]

    found = oclgrind.findings([job(with_constant_weights(kernel), BASE, change)], tmp_path)

    assert any(said in f for f in found)


MASKED = "a0_in ? vload4(0, x0 + a0_at + depth) : (float4)(0.0f)"
INSIDE = {  # mistakes that give wrong numbers
    "the halo is one wide": ("conv_3x3", replaced("< 9 && 0 <=", "<= 9 && 0 <=")),
    "a masked load is not masked": ("conv_3x3", replaced(MASKED, "vload4(0, x0 + a0_at + depth)")),
    "a product of the rest is missing": ("matmul", lambda text: re.sub(r"\n  c0 \+= .*", "", text, count=1)),
    "two components are swapped": ("aligned", replaced("c1 += a1.s2 * b2", "c1 += a1.s2 * b1")),
    "packed blocks are read with another step": ("aligned", replaced("depth * 4 + 8", "depth * 4 + 4")),
    "the tap is not added": ("conv_3x3", replaced("a0s6 + at4", "a0s6")),
    "columns past the end are stored": ("matmul", replaced("if (column_block * 4 + 3 < 47)", "if (true)")),
    "a row is stored twice": ("aligned", replaced("int row3 = row_block * 4 + 3", "int row3 = row_block * 4 + 2")),
}


@pytest.mark.parametrize("mistake", INSIDE)
def test_a_mistake_in_the_numbers_is_found(mistake):
    name, change = INSIDE[mistake]

    with pytest.raises(AssertionError, match=r"max error|Mismatched|NaN|past its end"):
        assert_right(CASES[f"{name}-packed"], BASE, change)


# ---- the space ----


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"m0": 8, "n0": 8, "k0": 8}, "about 192 registers per work-item, the device has 64"),
        ({"lws_x": 32, "lws_y": 16}, "512 work-items per work-group, the device allows 256"),
    ],
)
def test_what_cannot_run_is_refused_with_the_reason(change, reason):
    problem = FAMILY.problem(matmul(300, 300, 300))

    assert FAMILY.reasons(BASE, problem, MALI.limits) == []
    assert FAMILY.reasons(BASE | change, problem, MALI.limits) == [reason]


def test_launches_that_no_number_counts_are_refused():
    problem = FAMILY.problem(matmul(4, 4, 4)).replace(m=1 << 20, n=1 << 20)

    (reason,) = FAMILY.reasons(BASE, problem, MALI.limits)

    assert "32 bits" in reason


def test_the_largest_tile_of_the_reference_fits_its_registers():
    problem = FAMILY.problem(matmul(300, 300, 300))
    tile = FAMILY.schedule(BASE | {"m0": 5, "n0": 4, "k0": 4})

    assert registers(tile, problem) == 56
    assert registers(tile.replace(m0=8, n0=8), problem.replace(acc_bytes=2)) == 64


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000, 1 << 20])
@pytest.mark.parametrize("acc_bytes", [2, 4])
@pytest.mark.parametrize("flags", [{"b_constant": 0, "dot": 0}, {"b_constant": 1, "dot": 1}])
def test_defaults_are_legal_at_every_size(size, acc_bytes, flags):
    for m, n, k in ((size, 8, 8), (8, size, 8), (8, 8, size), (size, size, size), (1, size, size)):
        sizes = {"batch": 1, "m": m, "n": n, "k": k, "taps": 1, "run": k}
        problem = MaliProblem(**sizes, acc_bytes=acc_bytes, b_batched=0, b_pixels=1, out_wide=1, **flags)
        if m * n > 1 << 33:
            continue
        for limits in (SMALLEST, MALI.limits):
            assert FAMILY.reasons(FAMILY.default(problem, limits).numbers, problem, limits) == []


def test_tiles_follow_the_reference_tables():
    def tile(*sizes, acc=F32, dtype=F32):
        s = default(with_constant_weights(matmul(*sizes, dtype=dtype, acc=acc)))
        return s["m0"], s["n0"], s["k0"]

    assert tile(196, 256, 1024) == (4, 4, 4)
    assert tile(1, 1000, 2048) == (1, 4, 4)
    assert tile(1024, 1024, 1024, acc=F16, dtype=F16) == (4, 8, 4)
    assert tile(196, 512, 512, acc=F16, dtype=F16) == (5, 4, 4)


def test_the_engine_is_chosen_on_a_mali_and_nowhere_else():
    kernel = with_constant_weights(conv((1, 9, 7, 8), 12, (3, 3), pad=1))

    chosen = {
        flavour: choose(
            kernel, engines_of(kernel, opencl.manifest(flavour).features), opencl.manifest(flavour).limits
        ).family.engine
        for flavour in opencl.FLAVOURS
    }

    assert chosen["mali"] == "mali"
    assert "mali" not in {chosen[flavour] for flavour in ("pocl", "generic", "amd")}


@pytest.mark.parametrize(
    ("kernel", "features", "reason"),
    [
        (matmul(3, 4, 5), {"fp16"}, "without local memory"),
        (matmul(3, 4, 5, dtype=F64, acc=F64), {"mali"}, "not f64"),
        (tf32(matmul(3, 4, 5)), {"mali"}, "no tf32"),
        (matmul(3, 4, 5), {"mali"}, ""),
    ],
)
def test_kernels_that_it_cannot_compute_are_left_to_others(kernel, features, reason):
    said = FAMILY.accepts(kernel, frozenset(features))

    assert reason in said
    assert bool(said) is bool(reason)


def test_a_schedule_of_another_space_is_refused():
    with pytest.raises(ScheduleError, match="m0"):
        render(matmul(3, 4, 5), {"tile_m": 4}, MALI, "k0", FAMILY)


def test_offsets_beyond_32_bits_are_computed_in_64():
    """The right operand has 5 G elements, so offsets of its rows overflow an int."""
    kernel = matmul(4, 1 << 20, 5000)
    text = render(kernel, BASE, MALI, "k0", FAMILY).text

    assert "(ulong)(long)depth * (ulong)1048576" in text
    assert "depth * 1048576" not in text
