"""Which operands asynchronous copies can bring to shared memory, how wide the copies are, and their source."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpucomp.codegen.c.async_copies import Walk, copy_loader, place
from gpucomp.codegen.c.dialect import CUDA
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.expr.core import Load, Select, call, cast, index, literal, load, loads, select, substitute, var
from gpucomp.expr.evaluate import evaluate, grid_of
from gpucomp.ir.types import BF16, BOOL, F16, F32, F64, I8, I32, U8
from gpucomp.kernel.forms.copyable import copyable, stored
from gpucomp.kernel.forms.operand import count
from testing.kernels import conv, grouped_conv, matmul, random_inputs

WIDTHS = {  # operand a: (by depth, chunk), operand b
    "aligned f32": (matmul(8, 16, 12), (1, 4), (0, 4)),
    "aligned f16": (matmul(8, 16, 24, dtype=F16), (1, 8), (0, 8)),
    "aligned i8": (matmul(8, 32, 48, dtype=I8, acc=I32), (1, 16), (0, 16)),
    "f16 in fours": (matmul(8, 20, 12, dtype=F16), (1, 4), (0, 4)),
    "f16 in pairs": (matmul(8, 18, 14, dtype=F16), (1, 2), (0, 2)),
    "odd f32": (matmul(9, 15, 13), (1, 1), (0, 1)),
    "odd f16": (matmul(9, 15, 13, dtype=F16), (1, 0), (0, 0)),
    "a transposed": (matmul(8, 16, 13, a_transposed=True), (0, 4), (0, 4)),
    "b transposed": (matmul(8, 15, 12, b_transposed=True, dtype=BF16), (1, 4), (1, 4)),
    "batched": (matmul(8, 16, 12, batch=(2, 3)), (1, 4), (0, 4)),
    "channels of a window": (conv((1, 9, 9, 8), 16, (3, 3), pad=1, dtype=F16), (1, 8), (0, 8)),
    "three channels": (conv((1, 9, 9, 3), 16, (3, 3), pad=1), (1, 1), (0, 4)),
    "three channels of f16": (conv((1, 9, 9, 3), 16, (3, 3), pad=1, dtype=F16), (1, 0), (0, 8)),
    "groups": (grouped_conv((1, 7, 5, 16), 2, 12, (3, 3), pad=1), (1, 4), (0, 4)),
}


def operands(kernel):
    c = kernel.body
    return {"a": (c.a, (c.m, c.k, c.batch)), "b": (c.b, (c.n, c.k, c.batch))}


@pytest.mark.parametrize("name", WIDTHS)
def test_a_chunk_is_as_wide_as_layout_and_guards_allow(name):
    kernel, *expected = WIDTHS[name]

    found = [copyable(kernel, value, span, depth) for value, (span, depth, _) in operands(kernel).values()]

    assert [(f.by_depth, f.width) for f in found] == expected
    assert all(bool(f.reason) == (f.width == 0) for f in found)


def with_a(change):
    kernel = matmul(8, 16, 12, dtype=F16)
    body = replace(kernel.body, a=change(kernel.body.a, kernel.body))
    return copyable(kernel, body.a, body.m, body.k)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda a, _: a * 2.0, "computed"),
        (lambda a, _: call("max", a, 0.0), "computed"),
        (lambda a, c: select(c.k[0] < 5, a, literal(1.0, F32)), "computed"),
        (lambda a, c: select(c.k[0] < 5, a, literal(-0.0, F32)), "computed"),
        (lambda a, c: select(c.k[0] < 5, a, 0.0), "one guard"),
        (lambda a, c: cast(load(0, (c.m[0], cast(load(2, (c.k[0],), F16), index(0).dtype)), F16), F32), "memory"),
    ],
)
def test_what_is_computed_or_cut_apart_is_not_copied(change, reason):
    found = with_a(change)

    assert found.width == 0
    assert reason in found.reason


@pytest.mark.parametrize(
    "change",
    [
        lambda a, _: a,
        lambda a, c: select(c.m[0] < 5, a, 0.0),
        lambda a, c: select(c.k[0] // 4 < 2, select(c.m[0] < 5, a, 0.0), 0.0),
    ],
)
def test_guards_that_a_whole_chunk_shares_are_none_to_a_copy(change):
    assert with_a(change).width == 4


def test_exact_conversions_are_left_to_the_reader():
    i = var("i", 8)
    x16, inside = load(0, (i,), F16), i < 5

    assert stored(cast(x16, F32)) is x16
    assert stored(cast(load(0, (i,), I8), I32)).dtype is I8
    assert stored(cast(load(0, (i,), U8), I32)).dtype is U8
    assert stored(select(inside, cast(x16, F32), 0.0)) is select(inside, x16, literal(0, F16))
    for kept in (
        cast(load(0, (i,), F32), F16),
        cast(load(0, (i,), I8), U8),
        cast(load(0, (i,), BOOL), F32),
        cast(load(0, (i,), I8), F64),
    ):
        assert stored(kept) is kept


TILE = 8  # chunks per tile in the loop below


def walk_of(axes, found):
    span, depth, batch = axes
    width, across = (found.width, 1) if found.by_depth else (1, found.width)
    limit = count(depth) // width
    tile, fast = var("tile", limit // TILE + 1), var("fast", TILE)  # the last of them past the end
    names = {tile: "k_tile", fast: "fast"}
    return Walk(var("span", count(span) // across), tile * TILE + fast, names, limit, var("batch", count(batch)))


PLACED = ["odd f32", "aligned f16", "a transposed", "batched", "channels of a window", "three channels", "groups"]


@pytest.mark.parametrize("name", PLACED)
def test_a_walk_meets_the_elements_and_zeros_past_the_end_of_the_depth(name):
    kernel = WIDTHS[name][0]
    inputs = random_inputs(kernel)
    for value, axes in operands(kernel).values():
        span, depth, batch = axes
        found = copyable(kernel, value, span, depth)
        walk, lane = walk_of(axes, found), var("lane", max(1, found.width))
        element = place(kernel, stored(value), axes, walk, by_depth=found.by_depth, width=found.width, lane=lane)
        order = [walk.batch, walk.span, *walk.depth_names, lane]
        if not found.by_depth:
            order = [walk.batch, *walk.depth_names, walk.span, lane]
        flat_inputs = [a.reshape(-1) for a in inputs]
        # addresses outside the buffer are never read, but numpy evaluates both sides: the buffer is padded with zeros
        offset = loads(element)[0].index[0]
        element = substitute(element, {offset: offset + 4096})
        padded = [np.pad(a, (4096, 4096)) for a in flat_inputs]
        got = evaluate(element, padded, grid_of(order))
        got = np.broadcast_to(got, [v.extent for v in order])

        right = evaluate(value, inputs, grid_of((*batch, *span, *depth)))
        right = np.broadcast_to(right, [v.extent for v in (*batch, *span, *depth)])
        right = right.reshape(count(batch), count(span), count(depth))
        if not found.by_depth:
            right = right.transpose(0, 2, 1)
            got = got.reshape(count(batch), -1, count(span))
            pad = ((0, 0), (0, got.shape[1] - count(depth)), (0, 0))
        else:
            got = got.reshape(count(batch), count(span), -1)
            pad = ((0, 0), (0, 0), (0, got.shape[2] - count(depth)))
        np.testing.assert_array_equal(got, np.pad(right, pad))


def text_of(kernel, operand="a", span_steps=2):
    value, axes = operands(kernel)[operand]
    found = copyable(kernel, value, *axes[:2])
    params = [(f"x{i}", t.dtype) for i, t in enumerate(kernel.params)]
    printer = CPrinter(CUDA, params, frozenset())
    return copy_loader(
        kernel,
        printer,
        operand,
        value,
        axes,
        walk_of(axes, found),
        by_depth=found.by_depth,
        width=found.width,
        span_steps=span_steps,
    )


def test_what_depends_on_pixels_alone_leaves_the_loop_over_depth():
    copy = text_of(conv((1, 9, 9, 8), 16, (3, 3), pad=1, dtype=F16))

    assert copy.nbytes == 16
    assert copy.span_lines == [
        "const int as1 = a_span / 9 - 1;",
        "const int as3 = a_span % 9 - 1;",
        "const int as5 = a_span * 8 - 80;",
    ]
    assert copy.arrays == [("a_at0", "int", "as1"), ("a_at1", "int", "as3"), ("a_at2", "int", "as5")]
    assert copy.depth_lines[-1] == "const int ad7 = ad3 * 72 + ad4 * 8;"
    assert copy.address == "&x0[a_at2[a_i] + ad7]"
    assert copy.valid == "ad2 && (0 <= ae1 && ae1 < 9 && 0 <= ae5 && ae5 < 9)"


def test_one_step_along_the_span_needs_no_arrays():
    copy = text_of(matmul(8, 16, 24, dtype=F16), span_steps=1)

    assert copy.address == "&x0[as0 + ad3]"
    assert not copy.spans_used


def test_a_span_that_is_its_own_offset_is_read_itself():
    copy = text_of(matmul(9, 15, 13), "b")

    assert copy.spans_used
    assert copy.address.startswith("&x1[b_spans[b_i] + ")


def test_stored_is_a_load_or_guards_around_one():
    kernel = conv((1, 9, 9, 8), 16, (3, 3), pad=1, dtype=F16)

    value = stored(kernel.body.a)

    assert isinstance(value, Select)
    assert isinstance(value.then, Load)
