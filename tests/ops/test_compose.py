import numpy as np
import pytest

from gpucomp.ir.graph import Graph, constant_value, input_value
from gpucomp.ir.types import type_of
from gpucomp.ops.compose import top_k
from gpucomp.ops.registry import OPS
from testing.tolerance import assert_identical
from tests.op_cases import CASES


def interpret(graph, arrays):
    known = dict(zip(graph.inputs, arrays, strict=True))
    for node in graph.nodes():
        if node.values[0] in known:
            continue
        value = constant_value(node[0])
        known[node[0]] = node.op.reference(*(known[v] for v in node.inputs), **node.attrs) if value is None else value
    return [known[v] for v in graph.outputs]


@pytest.mark.parametrize("case", CASES["TopK"], ids=str)
def test_top_k_gives_what_the_operator_gives(case):
    x = input_value("x", type_of(case.operands[0]))

    graph = Graph((x,), top_k(x, **case.attrs))

    values, indices = interpret(graph, case.operands)
    expected_values, expected_indices = OPS["TopK"].reference(*case.operands, **case.attrs)
    assert_identical(np.asarray(values), expected_values)
    assert_identical(indices, expected_indices)
