"""TopK is one operator if that is cheap; otherwise the elements are ranked first."""

import numpy as np
import onnx
import pytest
from onnx import helper

from gpucomp import ops
from gpucomp.frontend.onnx import load
from gpucomp.ops.interpreter import interpret


def model(rows, n, k):
    nodes = [helper.make_node("TopK", ["x", "k"], ["values", "indices"], axis=1)]
    kinds = {"values": onnx.TensorProto.FLOAT, "indices": onnx.TensorProto.INT64}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (rows, n))],
        [helper.make_tensor_value_info(name, kind, (rows, k)) for name, kind in kinds.items()],
        [helper.make_tensor("k", onnx.TensorProto.INT64, (1,), [k])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


@pytest.mark.parametrize(("n", "k", "expected"), [(37, 5, ops.TopK), (1009, 5, ops.Rank)])
def test_top_k_ranks_first_where_rows_are_long(n, k, expected):
    x = np.random.default_rng(0).standard_normal((3, n)).astype(np.float32)

    graph = load(model(3, n, k))

    assert {node.op for node in graph.nodes()} & {ops.TopK, ops.Rank} == {expected}
    values, indices = interpret(graph, {"x": x})
    order = np.argsort(-x, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))
