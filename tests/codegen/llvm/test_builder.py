"""Code as it is written: which instructions are written once, where their values may be used, and what is folded."""

from __future__ import annotations

import random

import llvmlite.binding as llvm
import pytest

from gpucomp.codegen.llvm.ir.builder import Code, Value
from gpucomp.codegen.llvm.ir.types import F32, I64, PTR

HEADER = "define void @f(i64 %n, ptr %p)"


@pytest.fixture
def code():
    return Code("f")


@pytest.fixture
def n(code):
    return code.argument("n", I64)


def text_of(code: Code) -> str:
    """The text, which LLVM has verified: a value is used only where its instruction dominates."""
    text = code.function(HEADER)
    module = llvm.parse_assembly(text)
    module.verify()
    return text


def test_an_instruction_is_written_once(code, n):
    assert (n + 3) is (n + 3)
    assert (n + 3) is not (n + 4)
    assert text_of(code).count(" add ") == 2


def test_an_inner_block_knows_what_an_outer_one_does_and_not_the_reverse(code, n):
    outer = n * 5
    with code.loop(0, n) as i, code.when(i < 7):
        assert n * 5 is outer
        inner = n * 6
        with code.repeat() as again:
            assert n * 6 is inner
            again.append((i * 2) < n)
        assert ((i * 2) < n) is again[0]
    behind = n * 6
    with code.when(n < 9):
        assert n * 6 is behind

    assert behind is not inner
    text_of(code)


def test_behind_a_loop_that_repeats_what_it_computed_is_known(code, n):
    with code.repeat() as again:
        inside = n * 6
        again.append(inside < n)

    assert n * 6 is inside
    text_of(code)


def test_a_label_forgets_what_was_computed_between_its_jumps(code, n):
    with code.when(n < 9):
        outer = n * 2
        with code.when(n < 4):
            code.branch(n < 3, "here", "there")
            code.label("here")
            first = n * 7
            code.jump("there")
            code.label("there")
            second = n * 7
            assert n * 2 is outer

    assert first is not second
    text_of(code)


def test_kept_lines_know_what_came_before_and_keep_theirs(code, n):
    before = n * 2
    with code.captured() as captured:
        assert n * 2 is before
        kept = n * 7
    code.branch(n < 3, captured.label, "end")
    code.replay(captured)
    code.jump("end")
    code.label("end")

    assert n * 7 is not kept
    text_of(code)


def test_what_memory_or_a_hidden_value_says_is_asked_each_time(code, n):
    pointer = code.argument("p", PTR)

    assert code.load(pointer, F32) is not code.load(pointer, F32)
    assert code.opaque(pointer) is not code.opaque(pointer)
    assert code.arrive(pointer) is not code.arrive(pointer)
    assert code.load(pointer, F32).intrinsic("fabs") is not code.load(pointer, F32).intrinsic("fabs")
    one = code.load(pointer, F32)
    assert one.intrinsic("fabs") is one.intrinsic("fabs")
    text_of(code)


@pytest.mark.parametrize(
    ("first", "last", "step", "labels"), [(0, 1, 1, 0), (2, 6, 4, 0), (2, 6, 3, 2), (3, 3, 1, 2), (4, 2, 1, 2)]
)
def test_a_loop_of_one_known_step_is_no_loop(code, n, first, last, step, labels):
    with code.loop(first, last, step) as i:
        n * i

    assert text_of(code).count(":\n") - 1 == labels
    assert (i.text == str(first)) == (labels == 0)


def test_numbers_that_are_known_are_folded(code, n):
    def number(k: int) -> Value:
        return code.integer(k)

    found = [number(17).integer_op("udiv", 5), number(17).integer_op("urem", 5), code.minimum(number(3), -4)]
    pointer = code.argument("p", PTR)

    assert [v.text for v in found] == ["3", "2", "-4"]
    assert code.gep(pointer, 0, "float") is pointer
    assert number(-17).integer_op("udiv", 5).text.startswith("%")  # as a number without sign it is a large one
    assert number(17).integer_op("urem", 0).text.startswith("%")
    assert code.minimum(n, 4).text.startswith("%")


@pytest.mark.parametrize("seed", range(40))
def test_values_are_used_only_where_they_are_defined(code, n, seed):
    """Random blocks in blocks, with the same few instructions everywhere."""
    draw, pointer = random.Random(seed), code.argument("p", PTR)

    def compute(values: list[Value]) -> None:
        for _ in range(draw.randint(1, 4)):
            a, b = draw.choice(values[-3:]), draw.choice(values[:3])
            values.append(draw.choice([a + b, a * b, code.minimum(a, b), code.select(a < b, a, 3)]))
        code.store(values[-1], code.gep(pointer, draw.randint(0, 2), "i64"))

    def block(depth: int, values: list[Value]) -> None:
        for _ in range(draw.randint(1, 4)):
            compute(values)
            kind = draw.choice(["loop", "when", "repeat", "label", "captured"]) if depth < 4 else "none"
            inner = [*values]
            if kind == "loop":
                with code.loop(draw.randint(0, 1), draw.choice([n, 1, 2, 5])) as i:
                    block(depth + 1, [*inner, i])
            elif kind == "when":
                with code.when(n < draw.randint(0, 9)):
                    block(depth + 1, inner)
            elif kind == "repeat":
                with code.repeat() as again:
                    block(depth + 1, inner)
                    again.append(inner[-1] < n)
            elif kind == "label":
                name = code._name("x")
                code.branch(n < 5, f"{name}.a", f"{name}.b")
                for part in "ab":
                    code.label(f"{name}.{part}")
                    block(depth + 1, [*inner])
                    code.jump(f"{name}.end" if part == "b" else f"{name}.b")
                code.label(f"{name}.end")
            elif kind == "captured":
                end = code._name("e")
                with code.captured() as captured:
                    block(depth + 1, inner)
                code.branch(values[-1] < n, captured.label, end)
                code.replay(captured)
                code.jump(end)
                code.label(end)

    block(0, [n])
    text_of(code)
