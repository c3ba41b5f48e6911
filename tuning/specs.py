"""Parses one kernel from text, for research and benchmarks: ``conv2d n=1 c=64 h=56 w=56 oc=64 k=3 pad=1`` as a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gpucomp.errors import quote, wrong_argument

if TYPE_CHECKING:
    from onnx import ModelProto

Sizes = dict[str, int]
MOST = 1 << 20  # the largest size
# defaults, and the meaning of the letters; a size with default 0 is required
SIZES: Mapping[str, tuple[Sizes, str]] = {
    "conv2d": (
        {"n": 1, "c": 0, "h": 0, "w": 0, "oc": 0, "k": 3, "r": 0, "s": 0}
        | {"stride": 1, "pad": 0, "dilation": 1, "groups": 1, "relu": 0},
        "images, channels, height, width, output channels, window, its height and width, stride, padding, dilation, groups, relu",
    ),
    "matmul": ({"batch": 1, "m": 0, "n": 0, "k": 0, "relu": 0}, "batch, rows, columns, depth, whether a relu follows"),
    "softmax": ({"rows": 0, "cols": 0}, "rows, and elements of a row"),
    "layernorm": ({"rows": 0, "cols": 0}, "rows, and elements of a row"),
    "maxpool": (
        {"n": 1, "c": 0, "h": 0, "w": 0, "k": 2, "stride": 2, "pad": 0},
        "images, channels, height, width, window, stride, padding",
    ),
    "add": ({"rows": 0, "cols": 0}, "rows, and elements of a row"),
}
OPTIONAL = {"w": "h", "oc": "c", "r": "k", "s": "k"}  # a size that is not given is copied from another


def parse(text: str) -> tuple[str, Sizes]:
    """Parse the operator and all its sizes. Raises ``UsageError`` that says what is expected."""
    name, *words = text.split()[:64] or [""]
    if name not in SIZES:
        raise wrong_argument(
            f"kernel {quote(text)}: one of {', '.join(SIZES)} expected, then its sizes, such as m=64 n=64",
            code="GPC2021",
        )
    defaults, meaning = SIZES[name]
    takes = f"{name} takes {' '.join(defaults)} ({meaning}), each as NAME=NUMBER"
    given: Sizes = {}
    for word in words:
        key, equals, value = word.partition("=")
        if key not in defaults or not equals or not value.isdecimal() or not int(value) <= MOST or key in given:
            raise wrong_argument(
                f"kernel {quote(text)}: {quote(word)} is not one of its sizes, or is given twice; {takes}",
                code="GPC2021",
            )
        given[key] = int(value)
    sizes = {**defaults, **given}
    for key, other in OPTIONAL.items():
        if key in sizes and key not in given:
            sizes[key] = sizes[other]
    may_be_zero = {"pad", "relu"}
    copied = OPTIONAL.keys() - given.keys()  # missing only as the size that they are copied from is
    if missing := [key for key, value in sizes.items() if value == 0 and key not in may_be_zero | copied]:
        raise wrong_argument(
            f"kernel {quote(text)}: {', '.join(missing)} must be given and be at least 1; {takes}", code="GPC2021"
        )
    return name, sizes


def model(text: str) -> ModelProto:
    """A model with this one operator and random weights."""
    from onnx import TensorProto, checker, helper, numpy_helper

    name, sizes = parse(text)
    nodes, weights, shape = BUILDERS[name](sizes)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    given = [numpy_helper.from_array(array, key) for key, array in weights.items() if array is not None]
    inputs += [
        helper.make_tensor_value_info(key, TensorProto.FLOAT, shape) for key, array in weights.items() if array is None
    ]
    made = [helper.make_node(op, inputs, outputs, **attributes) for op, inputs, outputs, attributes in nodes]
    if sizes.get("relu"):
        made[-1].output[0] = "sum"
        made.append(helper.make_node("Relu", ["sum"], ["y"]))
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * len(shape))]
    graph = helper.make_graph(made, name, inputs, outputs, given)
    found = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(found)
    return found


Made = tuple[list[tuple[str, list[str], list[str], dict[str, Any]]], dict[str, "np.ndarray | None"], tuple[int, ...]]


def _drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape, np.float32)


def _conv2d(z: Sizes) -> Made:
    attributes: dict[str, Any] = {
        "kernel_shape": [z["r"], z["s"]],
        "strides": [z["stride"]] * 2,
        "pads": [z["pad"]] * 4,
        "dilations": [z["dilation"]] * 2,
        "group": z["groups"],
    }
    if z["c"] % z["groups"] or z["oc"] % z["groups"]:
        raise wrong_argument("kernel conv2d: groups must divide c and oc", code="GPC2021")
    weights: dict[str, np.ndarray | None] = {
        "w": _drawn(z["oc"], z["c"] // z["groups"], z["r"], z["s"]),
        "b": _drawn(z["oc"]),
    }
    return [("Conv", ["x", "w", "b"], ["y"], attributes)], weights, (z["n"], z["c"], z["h"], z["w"])


def _matmul(z: Sizes) -> Made:
    batch = (z["batch"],) if z["batch"] > 1 else ()
    return [("MatMul", ["x", "w"], ["y"], {})], {"w": _drawn(z["k"], z["n"])}, (*batch, z["m"], z["k"])


def _softmax(z: Sizes) -> Made:
    return [("Softmax", ["x"], ["y"], {"axis": -1})], {}, (z["rows"], z["cols"])


def _layernorm(z: Sizes) -> Made:
    weights: dict[str, np.ndarray | None] = {"g": _drawn(z["cols"]), "b": _drawn(z["cols"])}
    return [("LayerNormalization", ["x", "g", "b"], ["y"], {"axis": -1})], weights, (z["rows"], z["cols"])


def _maxpool(z: Sizes) -> Made:
    attributes: dict[str, Any] = {"kernel_shape": [z["k"]] * 2, "strides": [z["stride"]] * 2, "pads": [z["pad"]] * 4}
    return [("MaxPool", ["x"], ["y"], attributes)], {}, (z["n"], z["c"], z["h"], z["w"])


def _add(z: Sizes) -> Made:
    return [("Add", ["x", "w"], ["y"], {})], {"w": None}, (z["rows"], z["cols"])


BUILDERS: Mapping[str, Callable[[Sizes], Made]] = {
    "conv2d": _conv2d,
    "matmul": _matmul,
    "softmax": _softmax,
    "layernorm": _layernorm,
    "maxpool": _maxpool,
    "add": _add,
}
