"""Expressions print as short text, and shared parts of large ones are printed once."""

from __future__ import annotations

from gpucomp.expr.core import call, load, var
from gpucomp.expr.printer import format_expr
from gpucomp.ir.types import F32

AXIS = var("i", 7)


def test_a_small_expression_is_written_out_whole():
    x = load(0, (AXIS,), F32)

    assert format_expr(x * x + 1.0) == "((x0[i] * x0[i]) + 1.0)"


def test_shared_parts_of_a_large_expression_are_written_once():
    value = load(0, (AXIS,), F32)
    for _ in range(200):
        value = value * value

    text = format_expr(value)

    assert text.startswith("{t0 = x0[i]; t1 = (t0 * t0); ")
    assert len(text) < 200 * 30


def test_large_expressions_that_differ_deep_inside_are_written_differently():
    texts = set()
    for number in (1.0, 2.0):
        value = load(0, (AXIS,), F32) + number
        for _ in range(40):
            value = value * value
        texts.add(format_expr(value))

    assert len(texts) == 2


def test_a_deep_expression_is_written():
    value = load(0, (AXIS,), F32)
    for _ in range(3000):
        value = call("exp", value)

    assert format_expr(value).count("exp") == 3000
