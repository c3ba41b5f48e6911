"""The graph IR: identity, traversal, printing and the verifier."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gpucomp import ops
from gpucomp.errors import ShapeError, VerifyError
from gpucomp.ir import F32, I64, Graph, Namer, Node, TensorType, constant, format_graph, input_value, verify


def tensor(name, *shape, dtype=F32):
    return input_value(name, TensorType(dtype, shape))


def test_a_graph_prints_as_ssa_with_one_line_a_node():
    x = tensor("x", 2, 3)
    graph = Graph((x,), (ops.Relu(ops.Transpose(x, perm=(1, 0))),))

    assert format_graph(graph) == (
        "graph(%x: f32[2,3]) {\n"
        "  %1 = Transpose(%x, perm=(1, 0)) : f32[3,2]\n"
        "  %2 = Relu(%1) : f32[3,2]\n"
        "  return %2\n"
        "}\n"
    )


def test_one_namer_gives_two_graphs_the_names_of_what_they_share():
    x = tensor("x", 2, 3)
    shared = ops.Relu(x)
    namer = Namer()

    before = format_graph(Graph((x,), (ops.Add(shared, shared),)), namer)
    after = format_graph(Graph((x,), (shared,)), namer)

    assert "%1 = Relu(%x)" in before
    assert "%1 = Relu(%x)" in after


def test_hostile_labels_stay_on_their_line():
    x = tensor('x"\n  %9 = evil()', 2)

    text = format_graph(Graph((x,), (ops.Relu(x),)))

    assert len(text.splitlines()) == 4


def test_a_chain_of_twenty_thousand_nodes_is_walked_without_recursion():
    value = x = tensor("x", 3)
    for _ in range(20_000):
        value = ops.Relu(value)
    graph = Graph((x,), (value,))

    assert len(graph.nodes()) == 20_001
    verify(graph)


def test_nodes_come_after_their_operands():
    x = tensor("x", 2, 2)
    a = ops.Relu(x)
    b = ops.Add(a, ops.MatMul(a, x))

    nodes = Graph((x,), (b,)).nodes()

    assert all(nodes.index(v.node) < i for i, node in enumerate(nodes) for v in node.inputs)


def test_uses_count_graph_outputs_and_repeated_operands():
    x = tensor("x", 2)
    a = ops.Relu(x)
    graph = Graph((x,), (a, ops.Add(a, a)))

    assert graph.uses()[a] == 3


def test_a_type_error_names_operator_operands_and_node():
    a, b = tensor("a", 4, 8), tensor("b", 4, 8)

    with pytest.raises(
        ShapeError, match=r"MatMul\(f32\[4,8\], f32\[4,8\]\) at node '/fc': inner sizes differ: 8 and 4"
    ):
        ops.MatMul(a, b, name="/fc")


def test_a_result_of_absurd_size_is_refused_before_memory_is_asked_for():
    a, b = tensor("a", 1 << 31, 1), tensor("b", 1, 1 << 31)

    with pytest.raises(ShapeError, match=r"more than 2\*\*48 elements"):
        ops.Add(a, b)


def test_verify_finds_a_wrong_type():
    x = tensor("x", 2, 3)
    good = ops.Relu(x).node
    bad = Node(good.op, good.inputs, good.attrs, (TensorType(I64, (2, 3)),), "relu")

    with pytest.raises(VerifyError, match="its type rule gives f32"):
        verify(Graph((x,), (bad[0],)))


def test_verify_finds_an_undeclared_input():
    x = tensor("x", 2)

    with pytest.raises(VerifyError, match="not declared"):
        verify(Graph((), (ops.Relu(x),)))


def test_with_inputs_returns_the_same_node_when_nothing_changed():
    x, y = tensor("x", 2), tensor("y", 2)
    node = ops.Add(x, y).node

    assert node.with_inputs((x, y)) is node
    assert node.with_inputs((y, x)) is not node


def test_constants_are_read_only():
    array = np.zeros(3, np.float32)

    constant(array)

    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_nodes_are_frozen():
    node = ops.Relu(tensor("x", 2)).node

    with pytest.raises(dataclasses.FrozenInstanceError):
        node.name = "y"
