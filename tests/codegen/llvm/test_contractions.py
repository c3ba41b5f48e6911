"""Contractions on the CPU, compared with numpy: operands are read in place, packed at compile time, or copied."""

from __future__ import annotations

import dataclasses
import random
import re

import numpy as np
import pytest

import gpucomp
from gpucomp.codegen.llvm import emit
from gpucomp.codegen.llvm.contraction.image_lines import windows_of
from gpucomp.codegen.llvm.contraction.operands import block_k, columns_in_place, operands_of, rows_in_place
from gpucomp.codegen.llvm.contraction.space import (
    COPIED,
    POINTERS,
    STRAIGHT,
    ContractionProblem,
    contraction_form,
    crowding,
    scratch_bytes,
)
from gpucomp.codegen.llvm.engines import REGISTER_BLOCKS as FAMILY
from gpucomp.codegen.llvm.engines import engines_of
from gpucomp.device.target import Target
from gpucomp.errors import ScheduleError
from gpucomp.expr.core import hole, index, load, select, substitute, var
from gpucomp.ir.types import BF16, F16, F32, F64, I8, I32, I64, DType, TensorType
from gpucomp.kernel import Contraction, Kernel, Store
from gpucomp.kernel.interpreter import expected
from gpucomp.kernel.passes.pack_weights import pack, packed_constant
from gpucomp.schedule.choose import choose
from gpucomp.schedule.space import Schedule
from gpucomp.targets import cpu
from testing.kernels import conv, grouped_conv, matmul, random_inputs
from testing.tolerance import assert_matches
from tests.native import HERE, Library, innermost_loops
from tests.onnx_builders import model, node, value

V3 = cpu.named("cpu:x86-64-v3")


def constant_weights(kernel: Kernel[Contraction]) -> Kernel[Contraction]:
    return dataclasses.replace(kernel, constants=frozenset({1}))


def of_one_channel(kernel: Kernel[Contraction]) -> Kernel[Contraction]:
    """The kernel without its axis of channels, which has one element, as passes leave it."""
    body = kernel.body
    *taps, channel = body.k
    assert channel.extent == 1
    a, b = (substitute(operand, {channel: index(0)}) for operand in (body.a, body.b))
    return dataclasses.replace(kernel, body=dataclasses.replace(body, k=tuple(taps), a=a, b=b))


def problem_of(kernel: Kernel[Contraction]) -> ContractionProblem:
    return FAMILY.problem(kernel)


def depth(kernel: Kernel[Contraction]) -> int:
    assert isinstance(kernel.body, Contraction)
    return int(np.prod([v.extent for v in kernel.body.k]))


def check_packed(kernel: Kernel[Contraction], schedules: list[Schedule], target=None) -> None:
    """Asserts that the kernel, with its weights packed for each schedule, gives the same results."""
    inputs = random_inputs(kernel)
    wanted = expected(kernel, inputs)
    kernels, arrays = {}, {}
    for i, schedule in enumerate(schedules):
        packing = FAMILY.packing(kernel, FAMILY.schedule(schedule), problem_of(kernel))
        kernels[f"k{i}"], arrays[f"k{i}"] = kernel, inputs
        if packing is not None:
            packed = pack(kernel, packing)
            kernels[f"k{i}"] = packed.kernel
            arrays[f"k{i}"] = [*(inputs[j] for j in packed.kept), packed_constant(packed, inputs)]
    library = Library(kernels, {f"k{i}": s for i, s in enumerate(schedules)}, target)
    for i, schedule in enumerate(schedules):
        for actual, want in zip(library.run(f"k{i}", arrays[f"k{i}"]), wanted, strict=True):
            try:
                assert_matches(actual, want, terms=depth(kernel))
            except AssertionError as error:
                raise AssertionError(f"{schedule}: {error}") from error


def some_schedules(kernel: Kernel[Contraction], count: int, target, **fixed: int) -> list[Schedule]:
    """The default and ``count`` random legal schedules."""
    problem = FAMILY.problem(kernel)
    found: list[Schedule] = [dict(FAMILY.default(problem, target.limits).numbers)]
    chooser = random.Random(kernel.digest)
    while len(found) < count + 1:
        trial = (
            {p.name: chooser.choice(p.choices) for p in FAMILY.params}
            | {"lanes": target.limits.vector_bytes // 4}
            | fixed
        )
        if not FAMILY.reasons(trial, problem, target.limits):
            found.append(trial)
    return found


CONVOLUTIONS = {
    "3x3 padded": conv((2, 7, 6, 19), 40, (3, 3), pad=1),
    "3x3 strided": conv((1, 9, 11, 8), 24, (3, 3), stride=2, pad=1),
    "5x3 dilated": conv((1, 11, 9, 7), 17, (5, 3), pad=2, dilation=2),
    "1x1 strided": conv((1, 9, 7, 21), 35, (1, 1), stride=2),
    "3x3 deep": conv((1, 5, 4, 150), 50, (3, 3), pad=1),
    "grouped": grouped_conv((1, 6, 5, 27), 3, 10, (3, 3), pad=1),
    "stem of planes": conv((2, 13, 19, 3), 21, (7, 7), stride=2, pad=3, nchw=True),
    "stem of one plane": conv((1, 9, 37, 1), 5, (3, 5), pad=1, nchw=True),
    "stem of pixels": conv((1, 12, 11, 4), 33, (3, 3), stride=2, pad=1),
    "stem of one channel": of_one_channel(conv((2, 13, 29, 1), 21, (5, 3), stride=2, pad=1)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_with_weights_laid_out_at_compile_time(name: str) -> None:
    kernel = constant_weights(CONVOLUTIONS[name])

    check_packed(kernel, some_schedules(kernel, 3, cpu.host(), pack_b=2))


@pytest.mark.parametrize("target", HERE, ids=lambda t: t.arch)
@pytest.mark.parametrize("name", ["3x3 padded", "stem of planes"])
def test_convolutions_on_every_level_of_processors(name: str, target: Target) -> None:
    kernel = constant_weights(CONVOLUTIONS[name])

    check_packed(kernel, some_schedules(kernel, 1, target, pack_b=2), target)


@pytest.mark.parametrize(
    "sizes", [((), 1, 131, 37), ((), 23, 40, 19), ((), 37, 96, 403), ((3,), 13, 24, 21), ((), 5, 3, 11)]
)
def test_matrix_products_with_weights_laid_out_at_compile_time(sizes: tuple[tuple[int, ...], int, int, int]) -> None:
    batch, m, n, k = sizes
    kernel = constant_weights(matmul(m, n, k, batch=batch))

    check_packed(kernel, some_schedules(kernel, 4, cpu.host(), pack_b=2))


@pytest.mark.parametrize(("dtype", "acc"), [(F16, F32), (BF16, F32), (I8, I32), (F64, F64)], ids=str)
def test_narrow_weights_are_converted_as_they_are_read(dtype: DType, acc: DType) -> None:
    kernel = constant_weights(matmul(11, 37, 70, dtype=dtype, acc=acc))
    schedules = some_schedules(kernel, 3, cpu.host(), pack_b=2)
    packing = FAMILY.packing(kernel, FAMILY.schedule(schedules[0]), problem_of(kernel))
    assert packing is not None
    packed = pack(kernel, packing).kernel
    lanes = schedules[0]["lanes"] * 4 // acc.nbytes
    nr = min(schedules[0]["nv"], -(-37 // lanes)) * lanes

    found = columns_in_place(operands_of(packed, 1), acc, nr, [t.size for t in packed.params])

    assert found is not None
    assert found.dtype is dtype
    check_packed(kernel, schedules)


@pytest.mark.parametrize("kc", [64, 96])
def test_blocks_of_k_inside_and_across_the_taps_of_a_convolution(kc: int) -> None:
    kernel = constant_weights(conv((1, 6, 5, 41 if kc == 96 else 150), 33, (3, 3), pad=1))
    schedule = some_schedules(kernel, 0, cpu.host())[0] | {"kc": kc, "mr": 4, "tile_m": 8}

    check_packed(kernel, [schedule, schedule | {"panels": 4, "nv": 1}, schedule | {"pack_a": 1}])


# how operands are found


def rows_of(kernel: Kernel[Contraction]) -> int:
    return problem_of(kernel).rows


def test_images_are_read_in_place_by_pointers_and_matrices_straight() -> None:
    assert rows_of(CONVOLUTIONS["3x3 padded"]) == POINTERS
    assert rows_of(CONVOLUTIONS["1x1 strided"]) == POINTERS
    assert rows_of(conv((1, 5, 7, 9), 11, (1, 1))) == STRAIGHT
    assert rows_of(matmul(5, 7, 9)) == STRAIGHT


def test_images_of_few_channels_are_copied_line_by_line() -> None:
    kernel = CONVOLUTIONS["stem of planes"]
    windows = windows_of(kernel)

    assert rows_of(kernel) == COPIED
    assert windows is not None
    assert (windows.stride, windows.span, windows.planes) == (2, 10, True)
    assert windows.pixel.extent == 2 * 9 + 7
    assert problem_of(kernel).lines == 7 * (2 * 9 + 7) * 3


def test_images_of_one_channel_are_copied_line_by_line_too() -> None:
    kernel = CONVOLUTIONS["stem of one channel"]
    windows = windows_of(kernel)

    assert windows is not None
    assert (windows.stride, windows.span, windows.planes) == (2, 15, False)
    assert problem_of(kernel).lines == 5 * (2 * 14 + 3)
    assert FAMILY.default(problem_of(kernel), cpu.host().limits).numbers["pack_a"] == 2


def test_no_windows_where_none_slide() -> None:
    assert windows_of(of_one_channel(conv((1, 9, 9, 1), 11, (3, 3), pad=2, dilation=2))) is None
    assert windows_of(of_one_channel(conv((1, 21, 21, 1), 11, (6, 6), stride=5))) is None  # few pixels are read twice
    assert windows_of(conv((1, 5, 7, 3), 11, (1, 1))) is None  # one tap
    assert windows_of(conv((1, 9, 9, 3), 11, (3, 3), pad=2, dilation=2)) is None  # taps apart
    assert windows_of(matmul(5, 7, 9)) is None
    assert windows_of(conv((1, 9, 9, 23), 11, (3, 3), nchw=True)) is None  # too many planes to interleave


def test_computed_rows_are_no_rows_in_place() -> None:
    kernel = matmul(5, 7, 9)
    body = kernel.body
    assert isinstance(body, Contraction)
    doubled = dataclasses.replace(kernel, body=dataclasses.replace(body, a=body.a * 2.0))

    assert rows_in_place(operands_of(kernel, 1), F32) is not None
    assert rows_in_place(operands_of(doubled, 1), F32) is None


def test_a_guard_that_looks_at_k_inside_a_tap_copies_the_rows() -> None:
    kernel = conv((1, 7, 6, 19), 40, (3, 3), pad=1)
    body = kernel.body
    assert isinstance(body, Contraction)
    a = select(body.k[2] < 11, body.a, 0.0)

    assert rows_in_place(operands_of(dataclasses.replace(kernel, body=dataclasses.replace(body, a=a)), 1), F32) is None


def test_columns_are_padded_only_where_memory_says_so() -> None:
    kernel = constant_weights(matmul(5, 23, 9))
    schedule = some_schedules(kernel, 0, cpu.host())[0] | {"nv": 1, "pack_b": 2}
    packing = FAMILY.packing(kernel, FAMILY.schedule(schedule), problem_of(kernel))
    assert packing is not None
    packed = pack(kernel, packing).kernel
    lanes = schedule["lanes"]

    def found(of: Kernel[Contraction]):
        return columns_in_place(operands_of(of, 1), F32, lanes, [t.size for t in of.params])

    plain, laid_out = found(kernel), found(packed)

    assert plain is not None
    assert (plain.step, plain.padded) == (23, False)
    assert laid_out is not None
    assert (laid_out.step, laid_out.padded) == (lanes, True)


def test_columns_that_lie_along_k_are_not_read_in_place() -> None:
    assert columns_in_place(operands_of(matmul(5, 23, 9, b_transposed=True), 1), F32, 4, [999] * 4) is None


@pytest.mark.parametrize(("ko", "ki", "kc"), [(9, 64, 384), (9, 41, 96), (1, 3072, 384), (7, 21, 8192), (9, 150, 64)])
def test_blocks_cover_k_once(ko: int, ki: int, kc: int) -> None:
    blocks = block_k(ko, ki, kc, 16)

    assert blocks.count * blocks.length >= ko * ki
    if blocks.chunks > 1:
        assert blocks.count == ko * blocks.chunks
        assert (blocks.chunks - 1) * blocks.chunk < ki <= blocks.chunks * blocks.chunk
    else:
        assert (blocks.count - 1) * blocks.group < ko <= blocks.count * blocks.group
        assert blocks.length <= max(kc, ki)


# what is refused, and what is chosen


def test_columns_that_are_no_constant_cannot_be_laid_out() -> None:
    kernel = matmul(5, 23, 9)
    schedule = some_schedules(kernel, 0, cpu.host())[0] | {"pack_b": 2}

    with pytest.raises(ScheduleError, match="pack_b=2: the columns are not constant"):
        emit(kernel, schedule, cpu.host(), "k")


def test_lines_are_refused_where_no_windows_slide() -> None:
    kernel = matmul(5, 23, 9)
    schedule = some_schedules(kernel, 0, cpu.host())[0] | {"pack_a": 2}

    with pytest.raises(ScheduleError, match="pack_a=2: no windows slide along the rows"):
        emit(kernel, schedule, cpu.host(), "k")


@pytest.mark.parametrize("target", [cpu.host(), V3, cpu.named("cpu:x86-64-v2")], ids=lambda t: t.name)
@pytest.mark.parametrize(
    "kernel",
    [
        *CONVOLUTIONS.values(),
        matmul(128, 3072, 768),
        matmul(1, 1000, 2048),
        conv((1, 224, 224, 3), 64, (7, 7), nchw=True),
    ],
    ids=lambda k: k.label,
)
def test_defaults_are_legal_for_constants_and_for_others(kernel: Kernel[Contraction], target) -> None:
    for each in (kernel, constant_weights(kernel)):
        problem = FAMILY.problem(each)

        assert FAMILY.reasons(FAMILY.default(problem, target.limits).numbers, problem, target.limits) == []


def test_a_packed_kernel_is_computed_by_the_form_it_was_packed_for() -> None:
    for kernel in (constant_weights(matmul(1, 131, 37)), constant_weights(conv((1, 5, 7, 9), 3, (1, 1)))):
        choice = choose(kernel, (FAMILY,), cpu.host().limits)
        assert choice.packing is not None

        assert contraction_form(pack(kernel, choice.packing).kernel) == contraction_form(kernel) == "gemm"


@pytest.mark.parametrize(
    "kernel", [conv((1, 28, 28, 128), 128, (3, 3), pad=1), matmul(128, 768, 768), conv((1, 14, 14, 256), 1024, (1, 1))],
    ids=lambda k: k.label,
)  # fmt: skip
@pytest.mark.parametrize("target", [V3, cpu.named("cpu:x86-64-v4")], ids=lambda t: t.name)
def test_sums_stay_in_registers(kernel: Kernel[Contraction], target) -> None:
    kernel = constant_weights(kernel)
    choice = choose(kernel, (FAMILY,), target.limits)
    assert choice.packing is not None
    text = cpu.assembly([emit(pack(kernel, choice.packing).kernel, choice.schedule, target, "k")], target)

    loops = innermost_loops(text)
    sums = choice.schedule["mr"] * choice.schedule["nv"]
    whole = [loop for loop in loops if loop.count("vfmadd") >= sums]

    assert whole, "no loop has a multiply-add for each sum"
    for loop in whole:
        assert not re.search(r"%[yz]mm\d+, -?\d*\(%rsp\)", loop), "a sum is written to the stack"


def test_weights_are_kept_once() -> None:
    w = np.random.default_rng(0).standard_normal((64, 96)).astype(np.float32)
    both = model(
        [node("MatMul", ["x", "w"], ["h"]), node("Relu", ["h"], ["r"])],
        [value("x", (7, 64))], [value("r", (7, 96))], {"w": w},
    )  # fmt: skip
    x = np.random.default_rng(1).standard_normal((7, 64)).astype(np.float32)

    exe = gpucomp.compile(both, target="cpu")

    assert sum(array.nbytes for array in exe.weights.values()) == w.nbytes
    assert_matches(exe.run({"x": x})["r"], np.maximum(x.astype(np.float64) @ w, 0).astype(np.float32), terms=64)


def test_an_index_that_is_loaded_is_no_place_to_read_rows_from() -> None:
    i, j, k = var("i", 5), var("j", 7), var("k", 9)
    gathered = load(0, (load(2, (i,), I64), k), F32)
    body = Contraction((), (i,), (j,), (k,), gathered, load(1, (k, j), F32), hole("acc", F32))
    params = (TensorType(F32, (11, 9)), TensorType(F32, (9, 7)), TensorType(I64, (5,)), TensorType(F32, (5, 7)))
    kernel = Kernel("contraction", params, 1, body, (Store(3, (i, j), body.acc),))

    assert rows_in_place(operands_of(kernel, 1), F32) is None


def test_the_frame_is_no_larger_than_the_space_reckons():
    kernels = {
        "columns along k": constant_weights(matmul(64, 256, 700, b_transposed=True)),
        "columns in place": constant_weights(matmul(64, 256, 700)),
        "convolution": constant_weights(conv((1, 9, 9, 24), 40, (3, 3), pad=1)),
    }
    for name, kernel in kernels.items():
        problem = problem_of(kernel)
        for schedule in some_schedules(kernel, 12, V3):
            packing = FAMILY.packing(kernel, FAMILY.schedule(schedule), problem)
            text = emit(pack(kernel, packing).kernel if packing else kernel, schedule, V3, "k0", FAMILY).text

            frame = sum(
                int(count) * {"float": 4, "ptr": 8, "i64": 8, "i32": 4}[scalar]
                for count, scalar in re.findall(r"alloca \[(\d+) x (\w+)\]", text)
            )

            assert frame <= scratch_bytes(FAMILY.schedule(schedule), problem), (name, schedule)


def test_columns_of_a_batch_that_runs_backwards_are_not_read_past_their_end():
    kernel = matmul(5, 17, 4, batch=(3,))
    body = kernel.body
    assert isinstance(body, Contraction)
    (batch,) = body.batch
    backwards = substitute(body.b, {batch: 2 - batch})
    turned = dataclasses.replace(kernel, body=dataclasses.replace(body, b=backwards))

    for tested in (kernel, turned):  # 17 columns in panels of 16: the last panel's rest lies behind the last batch
        columns = columns_in_place(operands_of(tested, 1), F32, 16, [t.size for t in tested.params])
        assert columns is not None
        assert not columns.padded


@pytest.mark.parametrize(("k", "crowded"), [(1024, True), (3072, True), (768, False), (1000, False)])
def test_rows_a_multiple_of_a_page_apart_do_not_crowd_out_each_other(k: int, crowded: bool) -> None:
    """In a first-level cache of 8 ways, rows of 4096 and 12288 bytes share one set, rows of 3072 bytes have four."""
    eight, twelve = (cpu.named(f"cpu:{name}").limits for name in ("znver4", "sapphirerapids"))

    assert (crowding(12, 4 * k, 4, eight) > 0) is crowded
    assert crowding(8, 4 * k, 4, eight) == crowding(12, 4 * k, 4, twelve) == 0
    assert not crowded or FAMILY.default(problem_of(constant_weights(matmul(196, 512, k))), eight).numbers["mr"] <= 8


def test_dot_products_of_bf16_are_worth_it_where_they_take_as_long_as_multiply_adds() -> None:
    kernel = constant_weights(matmul(196, 512, 768, dtype=BF16))

    engines = {"znver4": "vnni", "znver5": "vnni", "cooperlake": "", "sapphirerapids": "amx", "icelake-server": ""}
    for name, engine in engines.items():
        target = cpu.named(f"cpu:{name}")
        assert choose(kernel, engines_of(kernel, target.features), target.limits).family.engine == engine, name
