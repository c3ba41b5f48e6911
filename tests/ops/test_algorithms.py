"""Every operator's algorithm computes what its reference does."""

import numpy as np
import pytest

from gpucomp.expr.core import Algorithm, Load, Reduce, Select, axes_of, load, select
from gpucomp.expr.evaluate import evaluate, evaluate_algorithm, grid_of
from gpucomp.expr.simplify import simplify
from gpucomp.ir.graph import infer
from gpucomp.ir.types import F32, type_of
from gpucomp.ops.registry import OPS
from testing.tolerance import assert_identical, assert_matches
from tests.op_cases import CASE_LIST, CASES, HOST_CASES


def as_tuple(result):
    return result if isinstance(result, tuple) else (result,)


def assert_reads_inside(expr, sources, bindings, taken):
    """Every load of ``expr`` is in range wherever ``taken`` holds, which is where no ``Select`` hides it."""
    match expr:
        case Load():
            for i, extent in zip(expr.index, sources[expr.source].shape, strict=True):
                at = evaluate(i, sources, bindings)
                assert (((at >= 0) & (at < extent)) | ~taken).all(), f"{expr} reads outside {extent}"
        case Select():
            condition = evaluate(expr.condition, sources, bindings)
            assert_reads_inside(expr.condition, sources, bindings, taken)
            assert_reads_inside(expr.then, sources, bindings, taken & condition)
            assert_reads_inside(expr.otherwise, sources, bindings, taken & ~condition)
            return
        case Reduce():
            if 0 in (a.extent for a in expr.axes):
                return
            inner = (..., *(None,) * len(expr.axes))
            bindings = {v: b[inner] for v, b in bindings.items()} | grid_of(expr.axes)
            taken = np.asarray(taken)[inner]
    for operand in expr.operands:
        assert_reads_inside(operand, sources, bindings, taken)


@pytest.mark.parametrize("name", sorted(OPS))
def test_every_operator_has_a_reference_and_cases(name):
    assert "reference" in OPS[name].meaning
    assert CASES.get(name) or HOST_CASES.get(name), f"no cases for {name} in tests/op_cases.py"


def test_every_case_names_an_operator():
    assert set(CASES) | set(HOST_CASES) <= set(OPS)
    assert {name for name, op in OPS.items() if op.algorithm is None} == set(HOST_CASES)


@pytest.mark.parametrize("name", HOST_CASES)
def test_a_host_operator_gives_what_its_type_rule_says(name):
    for case in HOST_CASES[name]:
        result = OPS[name].reference(*case.operands, **case.attrs)

        found = tuple(type_of(np.asarray(r)) for r in as_tuple(result))
        assert infer(OPS[name], [type_of(a) for a in case.operands], case.attrs) == found


@pytest.mark.parametrize(("name", "case"), CASE_LIST, ids=[f"{n}-{c}"[:120] for n, c in CASE_LIST])
def test_algorithm_computes_what_the_reference_does(name, case):
    op = OPS[name]
    types = [type_of(a) for a in case.operands]

    expected = as_tuple(op.reference(*case.operands, **case.attrs))
    results = infer(op, types, case.attrs)

    assert [type_of(np.asarray(e)) for e in expected] == list(results), "the reference breaks the type rule"
    algorithms = as_tuple(op.algorithm(*types, **case.attrs))
    assert len(algorithms) == len(results)
    for algorithm, wanted in zip(algorithms, expected, strict=True):
        actual = evaluate_algorithm(algorithm, case.operands)
        if case.exact:
            assert_identical(actual, wanted)
        else:
            assert_matches(actual, wanted, terms=case.terms)


@pytest.mark.parametrize(("name", "case"), CASE_LIST, ids=[f"{n}-{c}"[:120] for n, c in CASE_LIST])
def test_simplifying_an_algorithm_changes_no_number(name, case):
    for algorithm in as_tuple(OPS[name].algorithm(*map(type_of, case.operands), **case.attrs)):
        simpler = Algorithm(algorithm.axes, simplify(algorithm.body))

        actual, expected = (evaluate_algorithm(a, case.operands) for a in (simpler, algorithm))
        assert actual.dtype == expected.dtype
        if actual.dtype.kind not in "iub":
            actual, expected = actual.astype(np.float64), expected.astype(np.float64)
        np.testing.assert_array_equal(actual, expected)  # except for the sign of zero: a sum over one -0.0 can keep it


@pytest.mark.parametrize(("name", "case"), CASE_LIST, ids=[f"{n}-{c}"[:120] for n, c in CASE_LIST])
def test_algorithm_reads_only_inside_its_operands(name, case):
    for algorithm in as_tuple(OPS[name].algorithm(*map(type_of, case.operands), **case.attrs)):
        if 0 not in (a.extent for a in algorithm.axes):
            assert_reads_inside(algorithm.body, case.operands, grid_of(algorithm.axes), np.True_)


def test_a_read_outside_is_noticed():
    (i,) = axes_of((5,))
    unguarded, guarded = load(0, (i + 1,), F32), select(i < 4, load(0, (i + 1,), F32), 0)

    assert_reads_inside(guarded, [np.zeros(5)], grid_of((i,)), np.True_)
    with pytest.raises(AssertionError, match="reads outside 5"):
        assert_reads_inside(unguarded, [np.zeros(5)], grid_of((i,)), np.True_)
