"""``push`` gives the place of an operand's element in the result: storing there computes what the reference does."""

import numpy as np
import pytest

from gpucomp.expr.core import axes_of
from gpucomp.expr.evaluate import evaluate, grid_of
from gpucomp.ir.types import type_of
from gpucomp.ops.registry import OPS
from testing.tolerance import assert_identical
from tests.op_cases import CASE_LIST

PUSHED = [(name, case) for name, case in CASE_LIST if OPS[name].push is not None]


@pytest.mark.parametrize(("name", "case"), PUSHED, ids=[f"{n}-{c}" for n, c in PUSHED])
def test_pushing_every_element_gives_the_result(name, case):
    op, types = OPS[name], [type_of(a) for a in case.operands]
    expected = op.reference(*case.operands, **case.attrs)
    result, written = np.zeros_like(expected), np.zeros(expected.shape, np.int64)

    for position, array in enumerate(case.operands):
        if array.size == 0:
            continue
        axes = axes_of(array.shape)
        places = op.push(position, axes, *types, **case.attrs)
        at = tuple(np.broadcast_to(evaluate(p, (), grid_of(axes)), array.shape) for p in places)
        result[at] = array if at else array.reshape(())
        np.add.at(written, at, 1)

    assert_identical(result, expected)
    assert (written == 1).all(), "a pure movement stores every element once"


def test_movements_that_are_no_function_have_no_push():
    assert {name for name, op in OPS.items() if op.push is not None} == {"Reshape", "Transpose", "Concat"}
