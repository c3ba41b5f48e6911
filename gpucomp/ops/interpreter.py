"""Runs any graph with the numpy references of its operators. Rewrites and kernels are tested against it. It is slow."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from gpucomp import ops
from gpucomp.errors import InputError, VerifyError, quote
from gpucomp.ir.graph import Constant, Graph, Input, Node, Value, topological
from gpucomp.ir.types import STRING, TensorType, dtype_of
from gpucomp.ops.regex import Pattern


def interpret(graph: Graph, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of ``graph``, in order. ``inputs`` has an array of the declared type for every graph input.

    Raises ``InputError`` for a missing, surplus or ill-typed input.
    """
    missing = [name for name in graph.input_names if name not in inputs]
    surplus = [name for name in inputs if name not in graph.input_names]
    if missing or surplus:
        what = f"input {quote(missing[0])} is missing" if missing else f"the model has no input {quote(surplus[0])}"
        known, code = ", ".join(map(quote, graph.input_names)), "GPC2109" if missing else "GPC2101"
        raise InputError(f"{what}; its inputs are {known}", code=code)
    given = {}
    for value in graph.inputs:
        label = value.attrs["label"]
        given[value] = _checked_input(np.asarray(inputs[label]), value.type, label)
    return evaluate(graph.outputs, given)


def _checked_input(array: np.ndarray, type: TensorType, label: str) -> np.ndarray:
    try:
        dtype = dtype_of(array.dtype)
    except TypeError as error:
        raise InputError(f"input {quote(label)}: {error}") from None
    if dtype is not type.dtype or array.shape != type.shape:
        actual = f"{dtype}[{','.join(map(str, array.shape))}]"
        raise InputError(f"input {quote(label)}: {type} expected, {actual} given")
    return array


def work(node: Node) -> int:
    """Approximate number of elements computed for a node's results. Sixteen multiply-adds of a contraction count as one."""
    size = sum(t.size for t in node.types)
    match node.op:
        case ops.MatMul:
            return size * node.inputs[0].shape[-1] // 16
        case ops.Conv | ops.ConvTranspose:
            return size * node.inputs[1].type.size // max(1, 16 * node.inputs[1].shape[0])
        case ops.Einsum:
            return math.prod(v.type.size for v in node.inputs)
        case ops.RegexFullMatch if node.inputs[0].op is Constant:  # updates a set of states per character, in Python
            texts = node.inputs[0].attrs["value"].reshape(-1)
            return 1000 * sum(map(len, texts)) * len(Pattern(node.attrs["pattern"]).tests)
        case ops.Repeat:
            inside = (n for n in node.attrs["body"].nodes() if n.op not in (Constant, Input))
            return int(node.attrs["count"]) * sum(1000 + work(n) for n in inside)
        case ops.AdaptiveRoiAlign:
            return _region_work(node)
        case ops.TfIdfVectorizer:
            return _gram_work(node) + size
    letters = sum(_letters(v, size) for v in node.inputs if v.op is Constant and v.type.dtype is STRING)
    window: tuple[int, ...] = node.attrs.get("kernel", ())
    return size * math.prod(window) + sum(v.type.size for v in node.inputs) + letters


def _region_work(node: Node) -> int:
    """Upper bound of the elements of all samples of all regions, along one axis and then the other, plus numpy's calls."""
    _, channels, height, width = node.inputs[0].shape
    regions, _, *bins = node.types[0].shape
    down, across = (count + 2 * extent + 3 for count, extent in zip(bins, (height, width), strict=True))
    if node.attrs["mode"] == "max":
        return regions * down * (20_000 + 8 * channels * across)
    places = 16 * (down + across)  # positions and weights of the samples
    return regions * (20_000 + places + channels * (down * (width + bins[1]) + across * (height + bins[0])))


def _letters(texts: Value, size: int) -> int:
    """Approximate number of letters that are read if ``texts`` broadcast to ``size`` elements."""
    array = texts.attrs["value"].reshape(-1)
    return sum(map(len, array)) * max(1, size // max(1, len(array)))


def _gram_work(node: Node) -> int:
    """Number of elements that are read to count the n-grams of every length with every number of skips."""
    columns = node.inputs[0].shape[-1]
    lengths = {len(gram) for gram in node.attrs["grams"]}
    skips: int = node.attrs["skips"]
    strides = sum(min(skips + 1, columns // max(1, k - 1)) * k for k in lengths if k <= columns)
    return node.inputs[0].type.size * max(1, strides)


def evaluate(outputs: Sequence[Value], given: Mapping[Value, np.ndarray]) -> list[np.ndarray]:
    """The arrays of ``outputs``; ``given`` has the arrays of graph inputs. Values are freed after their last use."""
    order = topological(v.node for v in outputs)
    remaining: Counter[Value] = Counter(outputs)
    for node in order:
        remaining.update(node.inputs)
    arrays: dict[Value, np.ndarray] = {}
    for node in order:
        for value, array in zip(node.values, _results(node, arrays, given), strict=True):
            if remaining[value]:
                arrays[value] = array
        for value in node.inputs:
            remaining[value] -= 1
            if not remaining[value]:
                del arrays[value]
    return [arrays[v] for v in outputs]


def _results(
    node: Node, arrays: Mapping[Value, np.ndarray], given: Mapping[Value, np.ndarray]
) -> tuple[np.ndarray, ...]:
    if node.op is Input:
        return (given[node[0]],)
    if node.op is Constant:
        return (node.attrs["value"],)
    with np.errstate(all="ignore"):
        result = node.op.reference(*(arrays[v] for v in node.inputs), **node.attrs)
    results = result if isinstance(result, tuple) else (result,)
    checked = tuple(np.asarray(r) for r in results)
    for array, type in zip(checked, node.types, strict=True):
        if array.dtype != type.dtype.numpy or array.shape != type.shape:
            actual = f"{array.dtype}[{','.join(map(str, array.shape))}]"
            raise VerifyError(f"{node!r}: the reference gives {actual}")
    return checked
