"""Lowering computes nothing twice, hoists invariants, and never reads in branches not taken. A tiny interpreter runs it."""

from __future__ import annotations

import numpy as np
import pytest

from gpucomp.expr.core import Cast, Const, Expr, Load, call, cast, literal, load, reduce, select, var
from gpucomp.expr.evaluate import convert, evaluate
from gpucomp.expr.functions import FUNCTIONS
from gpucomp.expr.lower import Accumulate, Block, If, Let, Loop, Lowering, Start, is_short, lower_all
from gpucomp.ir.types import F32, F64, I32, I64


class Machine:
    """Runs a block on scalars. Reads outside an array raise, as they would fault on a device."""

    def __init__(self, sources, names):
        self.sources, self.names, self.reads = sources, dict(names), 0

    def value(self, operand):
        return (
            np.asarray(operand.value, operand.dtype.numpy) if isinstance(operand, Const) else self.names[operand.name]
        )

    def run(self, block: Block):
        for s in block:
            match s:
                case Let(target, expr, operands):
                    self.names[target.name] = self.compute(expr, [self.value(o) for o in operands])
                case If():
                    branch, result = (
                        (s.then, s.then_value) if self.value(s.condition) else (s.otherwise, s.otherwise_value)
                    )
                    self.run(branch)
                    self.names[s.target.name] = self.value(result)
                case Start(target, initial):
                    self.names[target.name] = self.value(initial)
                case Loop():
                    for i in range(s.axis.extent):
                        self.names[s.axis_name] = np.int64(i)
                        self.run(s.body)
                case Accumulate(target, op, value):
                    fn = {"sum": "add", "prod": "mul"}.get(op, op)
                    self.names[target.name] = FUNCTIONS[fn].numpy(self.names[target.name], self.value(value))

    def compute(self, expr: Expr, operands):
        if isinstance(expr, Load):
            self.reads += 1
            at = tuple(int(o) for o in operands)
            assert all(0 <= i < n for i, n in zip(at, self.sources[expr.source].shape, strict=True)), "read outside"
            return self.sources[expr.source][at]
        if isinstance(expr, Cast):
            return convert(operands[0], expr.dtype)
        if hasattr(expr, "condition"):
            return operands[1] if operands[0] else operands[2]
        return FUNCTIONS[expr.fn].numpy(*operands)


def run(exprs, bindings, sources, values):
    block, results = lower_all(exprs, bindings)
    machine = Machine(sources, values)
    machine.run(block)
    return [machine.value(r) for r in results], machine, block


I = var("i", 7)  # noqa: E741
X = np.arange(35, dtype=np.float32).reshape(7, 5) - 11


def test_a_guard_protects_the_load_behind_it():
    expr = select(call("lt", I, 6), load(0, (I + 1, literal(2, I64)), F32), -1.0)

    (inside,), _, _ = run([expr], {I: "i"}, [X], {"i": np.int64(3)})
    (outside,), machine, _ = run([expr], {I: "i"}, [X], {"i": np.int64(6)})

    assert inside == X[4, 2]
    assert outside == -1.0
    assert machine.reads == 0


def chain_of_choices(length):
    """``value = conditions[k] ? value : -value``, repeated."""
    value = load(0, (I, literal(0, I64)), F32)
    for k in range(1, length + 1):
        value = select(call("lt", load(k, (I, literal(0, I64)), F32), 0.0), value, -value)
    return value


def test_what_both_branches_read_is_read_in_front_of_the_choice():
    (value,), machine, block = run([chain_of_choices(41)], {I: "i"}, [X] * 42, {"i": np.int64(3)})

    assert value == X[3, 0] * (-1) ** (41 if X[3, 0] >= 0 else 0)
    assert machine.reads == 42
    assert len(block.statements) <= 42 * 5
    assert not any(isinstance(s, If) for s in block)


def test_a_choice_that_both_branches_read_is_written_once():
    guarded = select(call("lt", I, 6), load(0, (I + 1, literal(2, I64)), F32), 1.0)
    expr = select(call("lt", load(0, (I, literal(0, I64)), F32), 0.0), guarded, -guarded)

    for i in (2, 6):
        (value,), machine, block = run([expr], {I: "i"}, [X], {"i": np.int64(i)})

        assert value == (X[3, 2] if i == 2 else 1) * (1 if X[i, 0] < 0 else -1)
        assert machine.reads == (2 if i == 2 else 1)
        assert sum(isinstance(s, If) for s in block) == 1


def test_what_one_branch_reads_under_a_condition_stays_behind_it():
    inner = load(0, (I + 1, literal(2, I64)), F32)
    expr = select(call("lt", I, 3), inner, select(call("lt", I, 6), -inner, 5.0))

    (value,), machine, _ = run([expr], {I: "i"}, [X], {"i": np.int64(6)})

    assert (value, machine.reads) == (5.0, 0)


def test_expressions_are_short_as_far_as_their_statements_are_few():
    assert is_short([chain_of_choices(41)], 42 * 5)
    assert not is_short([chain_of_choices(41)], 41)


def test_a_shared_expression_is_computed_once():
    x = load(0, (I, literal(0, I64)), F32)
    silu = x / (call("exp", -x) + 1.0)

    (value,), machine, _ = (
        run([silu, x], {I: "i"}, [X], {"i": np.int64(5)})[0][:1],
        *run([silu, x], {I: "i"}, [X], {"i": np.int64(5)})[1:],
    )

    assert value == pytest.approx(X[5, 0] / (1 + np.exp(-X[5, 0])))
    assert machine.reads == 1


def test_a_reduction_inside_a_reduction_leaves_the_loop_it_does_not_depend_on():
    j, k = var("j", 5), var("k", 5)
    peak = reduce("max", (j,), load(0, (I, j), F32))
    total = reduce("sum", (k,), call("exp", load(0, (I, k), F32) - peak))

    (value,), machine, block = run([total], {I: "i"}, [X], {"i": np.int64(2)})

    assert value == pytest.approx(np.exp(X[2] - X[2].max()).sum())
    assert machine.reads == 10  # five for each reduction, not five times five
    assert [type(s) for s in block].count(Loop) == 2


def test_nested_axes_keep_what_only_the_outer_one_needs_in_front_of_the_inner_loop():
    j, k = var("j", 5), var("k", 3)
    total = reduce("sum", (j, k), load(0, (I, j), F32) * cast(j + k, F32))

    (value,), machine, _ = run([total], {I: "i"}, [X], {"i": np.int64(2)})

    assert value == sum(X[2, a] * (a + b) for a in range(5) for b in range(3))
    assert machine.reads == 5


def test_a_guarded_reduction_reads_nothing_when_it_is_not_taken():
    j = var("j", 5)
    expr = select(call("eq", I, 0), reduce("sum", (j,), load(0, (I, j), F32)), 0.0)

    _, machine, _ = run([expr], {I: "i"}, [X], {"i": np.int64(4)})

    assert machine.reads == 0


def test_an_empty_reduction_is_its_identity():
    j = var("j", 0)

    (zero, low), _, block = run(
        [reduce("sum", (j,), load(0, (I, j), F32)), reduce("max", (j,), load(0, (I, j), F32))],
        {I: "i"},
        [X],
        {"i": np.int64(0)},
    )

    assert (zero, low) == (0.0, -np.inf)
    assert block.statements == []


def test_an_unbound_variable_is_an_error():
    with pytest.raises(KeyError, match="not bound"):
        Lowering({}).lower(I + 1)


@pytest.mark.parametrize("i", range(7))
def test_lowering_agrees_with_the_evaluator(i):
    j = var("j", 5)
    x = load(0, (I, j), F32)
    inner = reduce("sum", (j,), select(call("lt", j, I), cast(x, F64) * 2.0, 1.0))
    outer = cast(inner, I32) // 3 + cast(I, I32)

    (value,), _, _ = run([outer], {I: "i"}, [X], {"i": np.int64(i)})

    assert value == evaluate(outer, [X], {I: np.asarray(i)})


def test_a_branch_that_reads_what_its_condition_read_is_no_branch():
    x = load(0, (I, literal(0, I64)), F32)

    (value,), machine, block = run([select(x + 1.0 < 0.0, 0.0, x + 1.0)], {I: "i"}, [X], {"i": np.int64(6)})

    assert value == X[6, 0] + 1
    assert machine.reads == 1
    assert all(isinstance(s, Let) for s in block)


def test_both_branches_keep_their_own_statements():
    x = load(0, (I, literal(0, I64)), F32)
    expr = select(call("lt", I, 3), x + 1.0, load(0, (I, literal(1, I64)), F32))

    _, _, block = run([expr], {I: "i"}, [X], {"i": np.int64(1)})

    assert any(isinstance(s, If) and s.then.statements and s.otherwise.statements for s in block)
    assert not any(isinstance(s, Accumulate | Start) for s in block)
