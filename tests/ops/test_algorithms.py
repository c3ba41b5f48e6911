"""Every operator's algorithm computes what its reference does."""

import numpy as np
import pytest
from op_cases import CASE_LIST, CASES
from tolerance import assert_identical, assert_matches

from gpucomp.expr.evaluate import evaluate_algorithm
from gpucomp.ir.graph import infer
from gpucomp.ir.types import type_of
from gpucomp.ops.registry import OPS


def as_tuple(result):
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("name", sorted(OPS))
def test_every_operator_has_a_reference_and_cases(name):
    assert "reference" in OPS[name].meaning
    assert CASES.get(name), f"no cases for {name} in tests/op_cases.py"


def test_every_case_names_an_operator():
    assert set(CASES) <= set(OPS)


@pytest.mark.parametrize(("name", "case"), CASE_LIST, ids=[f"{n}-{c}"[:120] for n, c in CASE_LIST])
def test_algorithm_computes_what_the_reference_does(name, case):
    op = OPS[name]
    types = [type_of(a) for a in case.operands]

    expected = as_tuple(op.reference(*case.operands, **case.attrs))
    results = infer(op, types, case.attrs)

    assert [type_of(np.asarray(e)) for e in expected] == list(results), "the reference breaks the type rule"
    if op.algorithm is None:
        return
    algorithms = as_tuple(op.algorithm(*types, **case.attrs))
    assert len(algorithms) == len(results)
    for algorithm, wanted in zip(algorithms, expected, strict=True):
        actual = evaluate_algorithm(algorithm, case.operands)
        if case.exact:
            assert_identical(actual, wanted)
        else:
            assert_matches(actual, wanted, terms=case.terms)
