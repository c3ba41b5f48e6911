"""Small models for tests of ``gpucomp.ort``, and the two modules that are compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = [helper.make_opsetid("", 17)]


def bytes_of(nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: dict[str, Any] | None = None) -> bytes:
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, tensors)
    model = helper.make_model(graph, opset_imports=OPSET, ir_version=9, producer_name="maker", doc_string="what it is")
    model.model_version, model.domain = 5, "org.example"
    model.metadata_props.add(key="author", value="somebody")
    onnx.checker.check_model(model)
    return model.SerializeToString()


def tensor(name: str, shape: Any, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def affine() -> bytes:
    """y = relu(x + w), z = sum of rows; any number of rows of three."""
    nodes = [
        helper.make_node("Add", ["x", "w"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["y"]),
        helper.make_node("ReduceSum", ["y", "axis"], ["z"], keepdims=0),
    ]
    weights = {"w": np.array([-1, 2, 0.5], np.float32), "axis": np.array([1], np.int64)}
    return bytes_of(nodes, [tensor("x", ["rows", 3])], [tensor("y", ["rows", 3]), tensor("z", ["rows"])], weights)


def two_inputs(first: Any, second: Any) -> bytes:
    """y = x + 2 * u, of these declared shapes."""
    nodes = [helper.make_node("Mul", ["u", "two"], ["v"]), helper.make_node("Add", ["x", "v"], ["y"])]
    weights = {"two": np.array(2, np.float32)}
    return bytes_of(nodes, [tensor("x", first), tensor("u", second)], [tensor("y", [None, 3])], weights)


def branching() -> bytes:
    """y = x + 1 if ``rate`` is 7, else x * 3."""
    one, three = (numpy_helper.from_array(np.array(n, np.float32), "c") for n in (1, 3))

    def branch(op: str, constant: Any) -> Any:
        node = helper.make_node(op, ["x", "c"], ["r"])
        return helper.make_graph([node], op, [], [tensor("r", ["n"])], [constant])

    nodes = [
        helper.make_node("Equal", ["rate", "seven"], ["is_seven"]),
        helper.make_node("If", ["is_seven"], ["y"], then_branch=branch("Add", one), else_branch=branch("Mul", three)),
    ]
    inputs = [tensor("x", ["n"]), tensor("rate", [], TensorProto.INT64)]
    return bytes_of(nodes, inputs, [tensor("y", ["n"])], {"seven": np.array(7, np.int64)})


def reshaped() -> bytes:
    """y = x in the shape that an input says."""
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    inputs = [tensor("x", ["a", "b"]), tensor("shape", [2], TensorProto.INT64)]
    return bytes_of(nodes, inputs, [tensor("y", [None, None])])


def of_words() -> bytes:
    """The sequence of two tensors of integers, and the same texts."""
    nodes = [
        helper.make_node("SequenceConstruct", ["k", "k"], ["s"]),
        helper.make_node("Identity", ["t"], ["u"]),
    ]
    sequence = helper.make_tensor_sequence_value_info("s", TensorProto.INT64, None)
    inputs = [tensor("k", [2], TensorProto.INT64), tensor("t", [3], TensorProto.STRING)]
    return bytes_of(nodes, inputs, [sequence, tensor("u", [3], TensorProto.STRING)])


def of_pair() -> bytes:
    """The sequence of two tensors of integers."""
    sequence = helper.make_tensor_sequence_value_info("s", TensorProto.INT64, None)
    return bytes_of(
        [helper.make_node("SequenceConstruct", ["k", "k"], ["s"])], [tensor("k", [2], TensorProto.INT64)], [sequence]
    )


def of_texts() -> bytes:
    """u = t, any number of texts."""
    node = helper.make_node("Identity", ["t"], ["u"])
    return bytes_of([node], [tensor("t", ["n"], TensorProto.STRING)], [tensor("u", ["n"], TensorProto.STRING)])


def of_blocks() -> bytes:
    """y = x in rows of 28 numbers, which only some sizes have: no size that is tried first fits."""
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    shape = np.array([-1, 7 * 13], np.int64)
    return bytes_of(nodes, [tensor("x", ["n", 13])], [tensor("y", ["m", 7 * 13])], {"shape": shape})


def of_thousands() -> bytes:
    """y = x in rows of 1001 numbers: no size that is tried has as many."""
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    return bytes_of(nodes, [tensor("x", ["n", "m"])], [tensor("y", [None, None])], {"shape": np.array([-1, 1001])})


def joined() -> bytes:
    """y = the tensors of a sequence, one behind the other."""
    node = helper.make_node("ConcatFromSequence", ["parts"], ["y"], axis=0)
    parts = helper.make_tensor_sequence_value_info("parts", TensorProto.FLOAT, None)
    return bytes_of([node], [parts], [tensor("y", ["n", 3])])
