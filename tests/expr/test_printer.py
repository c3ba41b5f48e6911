"""Text of expressions: readable while small, and never longer than the expression has parts."""

from __future__ import annotations

from gpucomp.expr.core import call, load, select, var
from gpucomp.expr.printer import format_expr
from gpucomp.ir.types import F32

I = var("i0", 7)  # noqa: E741


def rectified(depth):
    value = load(0, (I,), F32)
    for _ in range(depth):
        value = select(value < 0.0, 0.0, value) + 1.0
    return value


def test_a_small_expression_is_written_out():
    assert format_expr(rectified(1)) == "(((x0[i0] < 0.0) ? 0.0 : x0[i0]) + 1.0)"


def test_a_deep_expression_names_what_it_shares():
    text = format_expr(rectified(300))

    assert len(text) < 30_000
    assert text.startswith("{%0 = x0[i0]; ")
    assert text.endswith("}")


def test_different_deep_expressions_have_different_texts():
    value = rectified(200)

    texts = {format_expr(e) for e in (value, call("exp", value), value * 2.0, rectified(201))}

    assert len(texts) == 4
