"""Prefetches for a contraction's epilogue. Results are compared in ``test_contractions``."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from gpucomp import ops
from gpucomp.codegen.llvm import emit
from gpucomp.codegen.llvm.contraction.epilogue_lines import Requests, Touched, touched_by
from gpucomp.codegen.llvm.contraction.operands import operands_of
from gpucomp.codegen.llvm.engines import REGISTER_BLOCKS as FAMILY
from gpucomp.codegen.llvm.ir import builder
from gpucomp.codegen.llvm.ir.builder import Code
from gpucomp.ir import Graph, constant
from gpucomp.ir.types import I64
from gpucomp.kernel.partition import partition
from gpucomp.targets import cpu
from testing.kernels import conv, into_part, matmul
from tests.builders import tensor

V4 = cpu.named("cpu:x86-64-v4")


def touched(kernel):
    return [(t.source, t.row, t.written) for t in touched_by(operands_of(kernel, 1), kernel.params)]


def text_of(kernel, **changes):
    schedule = {"lanes": 16, "mr": 5, "nv": 2, "kc": 384, "tile_m": 16, "panels": 1, "pack_a": 0, "pack_b": 0,
                "unroll_k": 4, "ahead": 0}  # fmt: skip
    return emit(kernel, schedule | changes, V4, "k", FAMILY).text


def asked(kernel, **changes):
    """(prefetches for reads, prefetches for writes) in the text. Columns are prefetched into the second-level cache."""
    text = text_of(kernel, **changes)
    found = re.findall(r"@llvm.prefetch.p0\(ptr [^,]+, i32 (\d), i32 3, i32 1\)", text)
    return found.count("0"), found.count("1")


def without_residual(kernel):
    return replace(kernel, stores=(replace(kernel.stores[0], value=kernel.body.acc),))


def test_residual_and_result_are_touched_row_by_row_and_a_bias_is_not():
    assert touched(conv((1, 7, 5, 24), 37, (1, 1))) == [(4, 148, True), (3, 148, False)]


def test_every_result_is_touched():
    assert touched(matmul(13, 40, 29)) == [(3, 160, True), (4, 160, True)]


def test_rows_of_a_part_lie_as_far_apart_as_those_of_the_whole():
    assert touched(into_part(conv((1, 6, 7, 8), 21, (1, 1)), 3, 5, 4))[0] == (4, 4 * 30, True)


def test_columns_that_are_not_side_by_side_are_left_alone():
    assert touched(conv((1, 7, 5, 24), 37, (1, 1), nchw=True)) == []


def test_a_result_of_one_row_is_left_alone():
    assert touched(matmul(1, 40, 29)) == []


def test_where_an_index_says_is_not_asked_for_ahead_of_the_guard_of_that_index():
    """The matrix before the first is zeros. Its index would be read before the start of the indices."""
    residual, indices, x = tensor("r", 17, 13, 29), tensor("i", 2, dtype=I64), tensor("x", 3, 13, 40)
    product = ops.MatMul(x, constant(np.ones((3, 40, 29), np.float32)))
    padded = ops.Pad(ops.Gather(residual, indices, axis=0), pads=(1, 0, 0, 0, 0, 0))
    (step,) = partition(Graph((residual, indices, x), (ops.Add(product, padded),), ("y",)))

    assert step.kernel.family == "contraction"
    assert touched(step.kernel) == [(4, 116, True)]


@pytest.mark.parametrize(
    ("kernel", "changes", "lines"),
    [
        # whole blocks and the last rows, each of a whole panel (two lines) and the last columns (one): residual, result
        (conv((1, 7, 9, 24), 37, (1, 1)), {}, (6, 6)),
        (matmul(17, 40, 29), {}, (0, 12)),
        # no prefetches if so few points of k are unrolled
        (conv((1, 7, 9, 11), 37, (1, 1)), {}, (0, 0)),
        # rows by pointers, nine blocks of five: two rows at each of three outer points
        (conv((1, 7, 9, 24), 32, (3, 1)), {}, (4, 4)),
        (without_residual(conv((1, 7, 9, 24), 32, (3, 1))), {}, (0, 4)),
        # k cut within a tap: all five rows in the one part of a run; a result alone is not worth cutting it
        (conv((1, 7, 9, 72), 32, (3, 1)), {"kc": 64}, (10, 10)),
        (without_residual(conv((1, 7, 9, 72), 32, (3, 1))), {"kc": 64}, (0, 0)),
    ],
    ids=["residual", "two results", "short", "pointers", "pointers, result", "cut", "cut, result"],
)
def test_lines_are_asked_for(kernel, changes, lines):
    assert asked(kernel, **changes) == lines


@pytest.mark.parametrize(("k", "step"), [(30, 5), (147, 7), (32, 4), (31, 4)])
def test_each_row_is_asked_for_however_many_points_are_written_out(k, step):
    text = text_of(matmul(6, 32, k), mr=6)
    (divisor,) = {int(found) for found in re.findall(r"udiv i64 %[.\w]+, (\d+)\n[^\n]+ call i64 @llvm\.smin", text)}

    assert re.search(rf"= add (?:nuw |nsw )*i64 %[.\w]+, {step}\n", text)
    assert {min(first // divisor, 5) for first in range(0, k // step * step, step)} == set(range(6))


@pytest.mark.parametrize(
    ("image", "changes", "lines"),
    [
        # after five rows of 128 points 80 bytes every four points, two lines; after the last two rows one
        ((1, 46, 47, 128), {}, 3),
        ((1, 46, 47, 133), {}, 4),  # 140 bytes every seven points, which leave none over; then 56
        ((1, 46, 47, 128), {"kc": 64}, 0),  # a row's points are not all read at a time
        ((1, 31, 33, 128), {}, 0),  # half of the second cache
    ],
    ids=["far", "far, by seven", "in parts", "near"],
)
def test_rows_that_come_from_far_are_asked_for(image, changes, lines):
    read, written = asked(conv(image, 32, (1, 1)), **changes)

    assert read - written == lines  # beside the residual's, as many as the result's


def test_a_row_past_the_last_is_never_asked_for():
    code = Code("k")
    start, step = code.argument("start", builder.I64), code.argument("step", builder.I64)
    requests = Requests(code, [(Touched(0, operands_of(matmul(5, 32, 8), 1).stores[0].offset, 160, True), start, 2)], 5,
                        code.integer(0))  # fmt: skip

    requests.ask(step)

    text = code.function("define void @k(ptr %start, i64 %step)")
    assert re.search(r"call i64 @llvm\.smin\.i64\(i64 %\w+, i64 4\)", text)
    assert text.count("@llvm.prefetch") >= 2
