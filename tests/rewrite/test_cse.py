import numpy as np

from gpucomp import ops
from gpucomp.ir import constant, format_graph
from gpucomp.rewrite.cse import share_common_subexpressions
from tests.builders import chain, graph_of, ops_of, tensor, weights


def test_equal_computations_are_done_once_and_the_first_name_stays():
    x = tensor("x", 3, 5)
    first, second = ops.Exp(x, name="first"), ops.Exp(x, name="second")

    after = share_common_subexpressions(graph_of(ops.Add(ops.Relu(first), ops.Relu(second))))

    assert format_graph(after) == (
        "graph(%x: f32[3,5]) {\n"
        "  %1 = Exp(%x) : f32[3,5]\n"
        "  %2 = Relu(%1) : f32[3,5]\n"
        "  %3 = Add(%2, %2) : f32[3,5]\n"
        "  return %3\n"
        "}\n"
    )
    assert after.outputs[0].inputs[0].inputs[0].node.name == "first"


def test_a_graph_without_repetition_is_returned_itself():
    x = tensor("x", 3, 5)
    graph = graph_of(ops.Add(ops.Exp(x), ops.Neg(x)))

    assert share_common_subexpressions(graph) is graph


def test_other_attributes_are_another_computation():
    x = tensor("x", 3, 5)
    graph = graph_of(
        ops.Concat(ops.Softmax(x, axis=0), ops.Softmax(x, axis=1), axis=0),
        ops.Add(ops.LeakyRelu(x, alpha=0.0), ops.LeakyRelu(x, alpha=-0.0)),
    )

    assert share_common_subexpressions(graph) is graph


def test_operands_in_another_order_are_another_computation():
    x, y = tensor("x", 3), tensor("y", 3)
    graph = graph_of(ops.Add(ops.Sub(x, y), ops.Sub(y, x)))

    assert share_common_subexpressions(graph) is graph


def test_equal_constants_are_one_and_a_difference_in_one_element_counts():
    x = tensor("x", 100, 100)
    other = weights(100, 100).attrs["value"].copy()
    other[50, 51] += 1  # not among the elements that are looked at first
    graph = graph_of(*(ops.MatMul(x, w) for w in (weights(100, 100), weights(100, 100), constant(other))))

    after = share_common_subexpressions(graph)

    assert ops_of(after) == ["MatMul", "MatMul"]
    assert after.outputs[0] is after.outputs[1] is not after.outputs[2]


def test_the_sign_of_zero_and_the_element_type_make_other_constants():
    values = [np.float32(0.0), np.float32(-0.0), np.int32(0), np.float64(0.0), np.zeros(1, np.float32)]
    graph = graph_of(*map(constant, values))

    assert share_common_subexpressions(graph) is graph


def test_nan_equals_the_same_nan():
    x = tensor("x", 3)
    nan = [constant(np.full(3, np.nan, np.float32)) for _ in range(2)]

    after = share_common_subexpressions(graph_of(*(ops.Max(x, c) for c in nan)))

    assert after.outputs[0] is after.outputs[1]


def test_a_constant_in_another_order_in_memory_is_compared_by_value():
    array = weights(7, 5).attrs["value"]
    same = constant(np.asfortranarray(array))

    after = share_common_subexpressions(graph_of(constant(array.copy()), same))

    assert after.outputs[0] is after.outputs[1]


def test_two_chains_of_ten_thousand_nodes_become_one():
    x = tensor("x", 3)
    ends = [chain(x, 10_000, lambda v, i: ops.Exp(v) if i % 2 else ops.Neg(v)) for _ in range(2)]

    after = share_common_subexpressions(graph_of(*ends))

    assert len(ops_of(after)) == 10_000
