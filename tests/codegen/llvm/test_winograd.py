"""The CPU's `winograd` engine, compared with a float64 convolution: awkward sizes, all algorithms and vector widths."""

from __future__ import annotations

import ctypes
import random
from dataclasses import replace

import numpy as np
import pytest

from gpucomp.artifact.elf import Image
from gpucomp.codegen.llvm import emit
from gpucomp.codegen.llvm.core_space import FEW_THREADS
from gpucomp.codegen.llvm.engines import ENGINES, engines_of
from gpucomp.codegen.llvm.engines import WINOGRAD as FAMILY
from gpucomp.codegen.llvm.winograd.space import SCRATCH_BYTES, cycles, derive, scratch_bytes
from gpucomp.device.limits import Limits
from gpucomp.errors import ScheduleError
from gpucomp.expr.core import call, load, select
from gpucomp.ir.types import BF16, F16, F32, I32
from gpucomp.kernel import Contraction, Store
from gpucomp.kernel.interpreter import UNWRITTEN
from gpucomp.kernel.passes.pack_weights import pack, packed_constant
from gpucomp.schedule.choose import choose
from gpucomp.targets import cpu
from testing.kernels import conv, grouped_conv, into_part, matmul

AVX512 = Limits(threads=1, shared_bytes=0, warp=1, registers=32, vector_bytes=64, cache_bytes=2 << 20)
AVX2 = replace(AVX512, registers=16, vector_bytes=32, cache_bytes=1 << 20)
SSE = replace(AVX2, vector_bytes=16)
# relative errors in the L2 norm, for sums of unit variance over tens to hundreds of channels; a direct f32 sum has 3e-7
ERROR = {2: 8e-7, 4: 3e-6, 6: 1.2e-5}
WIDTH = min(cpu.host().limits.vector_bytes // 4, 16)


def constant(kernel):
    return replace(kernel, constants=frozenset({1}))


def inputs_of(kernel, *, mean=0.0, seed=0):
    """Pixels of unit variance around ``mean``, and filters that keep the variance."""
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal(t.shape).astype(t.dtype.numpy) for t in kernel.params[: kernel.inputs]]
    r, s, c, _ = arrays[1].shape
    arrays[0] += np.float32(mean)
    arrays[1] *= np.float32((1 / (r * s * c)) ** 0.5)
    return arrays


def small(outputs=4, **changes):
    return {"lanes": WIDTH, "outputs": outputs, "block": 4, "mr": 3, "nv": 2, "part": 32, "panels": 1} | changes


def packed(kernel, schedule, inputs):
    made = pack(kernel, FAMILY.packing(kernel, FAMILY.schedule(schedule), FAMILY.problem(kernel)))
    return made.kernel, [*(inputs[k] for k in made.kept), packed_constant(made, inputs)]


def run(kernel, cases, target=None, order=1):
    """The first output for each of the (schedule, inputs) ``cases``, compiled together. Tasks run one by one, last first."""
    target = target or cpu.host()
    ready = [packed(kernel, schedule, inputs) for schedule, inputs in cases]
    sources = [
        emit(made, s, target, f"k{i}", FAMILY) for i, ((made, _), (s, _)) in enumerate(zip(ready, cases, strict=True))
    ]
    image = Image(cpu.build(sources, target))
    found = []
    for source, (made, arrays) in zip(sources, ready, strict=True):
        outputs = [np.full(t.shape, UNWRITTEN).astype(t.dtype.numpy) for t in made.params[made.inputs :]]
        arrays = [np.ascontiguousarray(a) for a in arrays]
        pointers = [a.ctypes.data for a in (*arrays, *outputs)]
        prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(pointers), ctypes.c_int64, ctypes.c_int64)
        function = prototype(image.address(source.name))
        tasks = source.geometry.groups[0]
        for task in range(0, tasks, order)[::-1]:
            function(*pointers, task, min(tasks, task + order))
        found.append(outputs)
    return found


def direct(image, filters, pad, step=1):
    """The direct convolution in float64."""
    x = np.pad(image.astype(np.float64), ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    oh, ow = x.shape[1] - 2, x.shape[2] - 2
    taps = [(r, s) for r in range(3) for s in range(3)]
    return sum(x[:, r : r + oh : step, s : s + ow : step] @ filters[r, s].astype(np.float64) for r, s in taps)


def expected(inputs, pad, step=1):
    """The expected result of ``kernels.conv``: the convolution and its epilogue."""
    total = direct(inputs[0], inputs[1], pad, step) + inputs[2].astype(np.float64) + inputs[3].astype(np.float64)
    return np.maximum(total, 0)


def error(found, right, scale=None):
    return np.linalg.norm(found - right) / np.linalg.norm(right if scale is None else scale)


CASES = {
    "5 x 7, 3 to 17 channels": ((1, 5, 7, 3), 17, 1),
    "two images of one pixel": ((2, 1, 1, 17), 3, 1),
    "one channel to one": ((1, 6, 4, 1), 1, 1),
    "two images, 17 to 37 channels": ((2, 11, 9, 17), 37, 1),
    "no padding": ((1, 8, 13, 33), 20, 0),
    "padded by two": ((1, 4, 6, 5), 18, 2),
    "one row of results": ((1, 3, 19, 16), 32, 0),
    "whole tiles and vectors": ((1, 12, 12, 64), 64, 1),
    "channels in three parts": ((1, 7, 5, 80), 40, 1),
}


@pytest.mark.parametrize("name", CASES)
def test_it_filters_images_of_any_size(name):
    image, columns, pad = CASES[name]
    kernel = constant(conv(image, columns, (3, 3), pad=pad))
    inputs, problem = inputs_of(kernel), FAMILY.problem(kernel)
    chooser = random.Random(name)
    schedules = [small(2), small(4), small(6), FAMILY.default(problem, cpu.host().limits).numbers]
    while len(schedules) < 6:
        trial = {p.name: chooser.choice(p.choices) for p in FAMILY.params} | {"nv": chooser.choice((1, 3, 4))}
        if not FAMILY.reasons(trial, problem, cpu.host().limits):
            schedules.append(trial)

    for schedule, (found,) in zip(schedules, run(kernel, [(s, inputs) for s in schedules]), strict=True):
        assert error(found, expected(inputs, pad)) < ERROR[schedule["outputs"]], schedule


STRIDED = {
    "5 x 7, 3 to 17 channels": ((1, 5, 7, 3), 17, 1),
    "two images of one pixel": ((2, 1, 1, 17), 3, 1),
    "two images, an even and an odd side": ((2, 10, 13, 17), 37, 1),
    "no padding": ((1, 8, 13, 33), 20, 0),
    "padded by two": ((1, 4, 7, 5), 18, 2),
    "channels in three parts": ((1, 7, 12, 80), 40, 1),
}


@pytest.mark.parametrize("name", STRIDED)
def test_it_filters_with_steps_of_two(name):
    image, columns, pad = STRIDED[name]
    kernel = constant(conv(image, columns, (3, 3), pad=pad, stride=2))
    inputs, problem = inputs_of(kernel), FAMILY.problem(kernel)
    schedules = [
        small(2),
        small(2, nv=1, mr=5, panels=2),
        FAMILY.default(problem, cpu.host().limits).numbers,
    ]

    for schedule, (found,) in zip(schedules, run(kernel, [(s, inputs) for s in schedules], order=2), strict=True):
        assert error(found, expected(inputs, pad, 2)) < ERROR[2], schedule


@pytest.mark.parametrize(("dtype", "rounding"), [(F16, 3e-4), (BF16, 2.3e-3)], ids=str)
@pytest.mark.parametrize("step", [1, 2])
def test_pixels_may_be_narrow_in_memory(dtype, rounding, step):
    """The only error is the rounding of results: filters and sums are f32."""
    image, columns, pad = CASES["two images, 17 to 37 channels"]
    kernel = constant(conv(image, columns, (3, 3), pad=pad, stride=step, dtype=dtype))
    wide = inputs_of(replace(kernel, params=tuple(replace(t, dtype=F32) for t in kernel.params)))
    inputs = [a.astype(dtype.numpy) for a in wide]
    default = FAMILY.default(FAMILY.problem(kernel), cpu.host().limits).numbers
    schedules = [small(2), default] + ([small(4), small(6, nv=1)] if step == 1 else [])

    for schedule, (found,) in zip(schedules, run(kernel, [(s, inputs) for s in schedules]), strict=True):
        assert error(found.astype(np.float64), expected(inputs, pad, step)) < rounding, schedule


def test_filters_of_narrow_pixels_are_packed_in_f32():
    """Filters are already rounded in memory. They are not rounded again when they are transformed."""
    kernel = constant(conv((1, 6, 7, 8), 21, (3, 3), pad=1, dtype=BF16))
    inputs = [np.ones(t.shape, t.dtype.numpy) for t in kernel.params[: kernel.inputs]]

    made, arrays = packed(kernel, small(), inputs)

    assert arrays[-1].dtype == np.float32
    assert FAMILY.accepts(made, frozenset()) == ""


def test_steps_of_two_are_as_exact_as_a_direct_sum():
    kernel = constant(conv((1, 14, 14, 256), 32, (3, 3), pad=1, stride=2))
    inputs = inputs_of(kernel)

    ((found,),) = run(kernel, [(small(2, part=256, block=8), inputs)])

    assert error(found, expected(inputs, 1, 2)) < 5e-7


@pytest.mark.parametrize("outputs", ERROR)
def test_consecutive_tasks_of_one_call_give_what_single_ones_give(outputs):
    kernel = constant(conv((1, 13, 11, 20), 70, (3, 3), pad=1))
    inputs = inputs_of(kernel)

    (one,), (three,) = (run(kernel, [(small(outputs), inputs)], order=order)[0] for order in (1, 3))

    np.testing.assert_array_equal(one, three)
    assert error(one, expected(inputs, 1)) < ERROR[outputs]


@pytest.mark.parametrize("arch", ["x86-64-v2", "x86-64-v3"])
def test_narrower_vectors_give_the_same_answer(arch):
    target = cpu.named(f"cpu:{arch}")
    kernel = constant(conv((1, 9, 7, 19), 21, (3, 3), pad=1))
    inputs = inputs_of(kernel)
    lanes = target.limits.vector_bytes // 4

    (found,), (other,) = run(kernel, [(small(2, lanes=lanes), inputs), (small(4, lanes=lanes, mr=4), inputs)], target)

    assert error(found, expected(inputs, 1)) < ERROR[2]
    assert error(other, expected(inputs, 1)) < ERROR[4]


def test_results_go_where_a_concat_wants_them_and_nowhere_else():
    kernel = into_part(constant(conv((1, 6, 7, 8), 21, (3, 3), pad=1)), 3, 5, 4)
    inputs = inputs_of(kernel)

    ((found,),) = run(kernel, [(small(), inputs)])

    assert error(found[..., 5:26], expected(inputs, 1)) < ERROR[4]
    assert (found[..., :5] == UNWRITTEN).all()
    assert (found[..., 26:] == UNWRITTEN).all()


def test_epilogues_may_be_long_and_store_twice():
    base = constant(conv((1, 7, 9, 12), 20, (3, 3), pad=1))
    total = base.stores[0].value
    sigmoid = 1.0 / (1.0 + call("exp", -total))
    out = base.params[-1]
    second = Store(5, base.stores[0].index, call("sqrt", call("abs", total)) + select(total > 1, total, sigmoid))
    kernel = replace(
        base, params=(*base.params, out), outputs=2, stores=(replace(base.stores[0], value=sigmoid), second)
    )
    inputs = inputs_of(kernel)
    right = expected(inputs, 1)

    ((first, other),) = run(kernel, [(small(), inputs)])

    assert error(first, 1 / (1 + np.exp(-right))) < ERROR[4]
    assert error(other, np.sqrt(right) + np.where(right > 1, right, 1 / (1 + np.exp(-right)))) < ERROR[4]


# ---- accuracy ----


@pytest.mark.parametrize("outputs", ERROR)
def test_the_error_at_the_depth_of_real_layers_is_as_documented(outputs):
    kernel = constant(conv((1, 12, 12, 256), 32, (3, 3), pad=1))
    inputs = inputs_of(kernel)

    ((found,),) = run(kernel, [(small(outputs, part=256, block=8), inputs)])

    assert error(found, expected(inputs, 1)) < {2: 6e-7, 4: 2e-6, 6: 8e-6}[outputs]


@pytest.mark.parametrize("outputs", ERROR)
def test_a_large_mean_that_cancels_costs_no_more_than_its_products(outputs):
    """Filters whose sum is zero cancel a mean of 1000. The error is small relative to the sum of magnitudes."""
    kernel = constant(conv((1, 12, 12, 48), 32, (3, 3), pad=1))
    inputs = inputs_of(kernel, mean=1000.0)
    inputs[1] -= inputs[1].mean(axis=(0, 1), keepdims=True)
    magnitude = direct(np.abs(inputs[0]), np.abs(inputs[1]), 1)

    ((found,),) = run(kernel, [(small(outputs), inputs)])

    assert error(found, expected(inputs, 1), magnitude) < {2: 2e-7, 4: 6e-7, 6: 2.4e-6}[outputs]


# ---- kernels that it refuses ----


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (constant(conv((2, 9, 7, 3), 20, (3, 3), pad=1)), ""),
        (constant(conv((1, 6, 6, 8), 8, (3, 3), pad=2)), ""),
        (constant(conv((2, 9, 7, 12), 20, (3, 3), pad=1, stride=2)), ""),
        (constant(conv((2, 9, 7, 12), 20, (3, 3), pad=1, stride=3)), "3 x 3, strides of 1 or 2 and no dilation"),
        (constant(conv((2, 9, 7, 12), 20, (3, 3), pad=1, dilation=2)), "3 x 3, strides of 1 or 2 and no dilation"),
        (constant(conv((2, 9, 7, 12), 20, (5, 5), pad=2)), "3 x 3, strides of 1 or 2 and no dilation"),
        (constant(conv((2, 9, 7, 12), 20, (3, 1))), "3 x 3, strides of 1 or 2 and no dilation"),
        (constant(grouped_conv((1, 6, 7, 6), 3, 4, (3, 3), pad=1)), "NHWC"),
        (constant(conv((2, 9, 7, 12), 20, (3, 3), pad=1, nchw=True)), "NHWC"),
        (constant(conv((2, 9, 7, 12), 20, (3, 3), pad=1, dtype=F16)), "does not convert f16"),
        (constant(conv((2, 9, 7, 12), 20, (3, 3), pad=1, dtype=I32)), "found i32 and i32"),
        (constant(matmul(5, 6, 7)), "while it is loaded"),
        (constant(matmul(5, 6, 7, dtype=I32, acc=I32)), "f32 that is not rounded"),
        (conv((2, 9, 7, 12), 20, (3, 3), pad=1), "not constants"),
        (constant(conv((2, 9, 7, 12), 0, (3, 3), pad=1)), "nothing to multiply"),
    ],
)
def test_other_kernels_are_left_to_the_plain_engine(kernel, reason):
    said = FAMILY.accepts(kernel, frozenset())

    assert reason in said
    assert bool(said) is bool(reason)
    assert (FAMILY in engines_of(kernel)) is not bool(reason)
    assert engines_of(kernel)[-1] is ENGINES[Contraction][-1]  # which computes all of them


def test_a_prologue_is_left_to_the_plain_engine():
    kernel = constant(conv((1, 9, 7, 12), 20, (3, 3), pad=1))
    body = kernel.body
    changed = replace(kernel, body=replace(body, a=call("max", body.a, load(2, (body.k[2],), F32))))

    assert "while it is loaded" in FAMILY.accepts(changed, frozenset())


def test_filters_that_are_not_transformed_are_an_error():
    kernel = constant(conv((1, 6, 7, 8), 21, (3, 3), pad=1))

    with pytest.raises(ScheduleError, match="pack the kernel"):
        emit(kernel, small(), cpu.host(), "k", FAMILY)


@pytest.mark.parametrize(
    ("changes", "limits", "reason"),
    [
        ({"lanes": 16}, AVX2, "32-byte vectors"),
        ({"block": 96, "part": 1024, "mr": 6}, AVX512, "bytes of scratch"),
        ({"outputs": 3}, AVX512, "is not one of"),
    ],
)
def test_schedules_that_cannot_run_are_refused(changes, limits, reason):
    kernel = constant(conv((1, 60, 60, 700), 40, (3, 3), pad=1))

    reasons = FAMILY.reasons(small(lanes=8) | changes, FAMILY.problem(kernel), limits)

    assert any(reason in r for r in reasons), reasons


def test_steps_of_two_know_one_tile():
    problem = FAMILY.problem(constant(conv((1, 14, 14, 16), 40, (3, 3), pad=1, stride=2)))

    assert FAMILY.reasons(small(2), problem, AVX512) == []
    assert FAMILY.reasons(small(4), problem, AVX512) == ["outputs=4: not with steps of 2"]


# ---- its choice ----


SIZES = [(224, 64, 64), (112, 128, 128), (56, 64, 64), (28, 512, 512), (14, 256, 256), (7, 512, 512), (35, 96, 96),
         (13, 48, 192), (1, 3, 1), (5, 1, 17)]  # fmt: skip


@pytest.mark.parametrize("limits", [AVX512, AVX2, SSE], ids=["avx512", "avx2", "sse"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_defaults_are_legal_and_no_worse_than_their_neighbours(size, limits):
    side, channels, columns = size
    p = FAMILY.problem(constant(conv((1, side, side, channels), columns, (3, 3), pad=1)))

    s = FAMILY.default(p, limits)

    assert FAMILY.reasons(s.numbers, p, limits) == []
    assert scratch_bytes(s, p) <= SCRATCH_BYTES
    assert s.outputs in (2, 4) or limits is not AVX512, "F(6, 3) costs accuracy and saves too little"
    assert s.mr * s.nv + s.nv < limits.registers
    for panels in (1, 2, 4, 8):
        other = s.replace(panels=panels)
        if panels <= derive(s, p).panels and scratch_bytes(other, p) <= SCRATCH_BYTES:
            assert on_all(s, p, limits) <= on_all(other, p, limits)


def on_all(s, p, limits):
    """The cycles of all threads together, summed over all numbers of threads."""
    return sum(threads * cycles(s, p, threads, limits) for threads in FEW_THREADS)


@pytest.mark.parametrize("threads", FEW_THREADS)
def test_more_threads_take_no_longer_and_share_the_work_of_a_large_layer(threads):
    p = FAMILY.problem(constant(conv((1, 56, 56, 128), 256, (3, 3), pad=1)))
    s = FAMILY.default(p, AVX512)

    assert cycles(s, p, threads, AVX512) <= 1.25 * cycles(s, p, 1, AVX512) / threads


@pytest.mark.parametrize(
    ("size", "step", "engine"),
    [((56, 64, 64), 1, "winograd"), ((28, 128, 128), 1, "winograd"), ((14, 256, 256), 1, "winograd"), ((7, 128, 32), 1, ""),
     ((56, 128, 128), 2, "winograd"), ((14, 512, 512), 2, "")],
    ids=str,
)  # fmt: skip
def test_it_is_chosen_where_it_saves_more_than_its_filters_cost(size, step, engine):
    side, channels, columns = size
    kernel = constant(conv((1, side, side, channels), columns, (3, 3), pad=1, stride=step))

    choice = choose(kernel, engines_of(kernel), AVX512)

    assert (choice.tier, choice.family.engine) == ("analytic", engine)
    assert choice.packing is not None
    assert choice.packing.transform.startswith(engine)
    assert bool(choice.packing.transform) is bool(engine)


@pytest.mark.parametrize(("processor", "engine"), [("znver4", "winograd"), ("sapphirerapids", "")])
def test_it_is_chosen_for_fewer_where_a_core_multiplies_less(processor, engine):
    target, kernel = cpu.named(f"cpu:{processor}"), constant(conv((1, 7, 7, 512), 512, (3, 3), pad=1))

    assert choose(kernel, engines_of(kernel, target.features), target.limits).family.engine == engine


@pytest.mark.parametrize(
    ("processor", "dtype", "engine"),
    [
        ("znver4", BF16, "winograd"),
        ("sapphirerapids", BF16, "amx"),
        ("znver4", F16, "winograd"),
        ("x86-64-v2", F16, ""),
    ],
)
def test_it_is_chosen_for_narrow_pixels_beside_faster_products(processor, dtype, engine):
    target, kernel = cpu.named(f"cpu:{processor}"), constant(conv((1, 56, 56, 64), 64, (3, 3), pad=1, dtype=dtype))

    assert choose(kernel, engines_of(kernel, target.features), target.limits).family.engine == engine
