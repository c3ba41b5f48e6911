"""Merges contractions of one operand by several constants into one contraction and Slices of its result.

Examples are QKV projections and the branches of Inception. A bias and an activation after each contraction are merged
too, so that they are still fused. Contractions are not merged if different operators follow them, or if a Concat reads
them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import numpy as np

from gpucomp import ops
from gpucomp.ir.graph import Graph, Node, Value, constant
from gpucomp.lazy_dataclass import dataclass
from gpucomp.rewrite.match import UNARY, along_axis, is_constant
from gpucomp.rewrite.rule import substitute

MOVES = (ops.Reshape, ops.Transpose, ops.Slice)


@dataclass(frozen=True, slots=True, eq=False)
class _Branch:
    """A contraction by a constant, with the bias and the activation after it if nothing else reads what they read."""

    contraction: Node
    bias: np.ndarray | None  # one number per result channel
    activation: Node | None
    end: Value


def merge_siblings(graph: Graph) -> Graph:
    """matmul(x, c1), matmul(x, c2), ...  ->  slices of matmul(x, [c1 c2 ...]); the same for convolutions"""
    replaced: dict[Value, Value] = {}
    for branches in _families(graph):
        replaced.update(_merged(branches))
    return substitute(graph, replaced) if replaced else graph


def _families(graph: Graph) -> list[list[_Branch]]:
    """Groups of two or more branches that can be one contraction."""
    readers = graph.consumers()
    outputs = set(graph.outputs)
    families: dict[Hashable, list[_Branch]] = {}
    for node in graph.nodes():
        if node.op in (ops.MatMul, ops.Conv) and is_constant(node.inputs[1]):
            branch = _branch(node, readers, outputs)
            if branch is not None:
                families.setdefault(_key(branch), []).append(branch)
    return [f for f in families.values() if len(f) > 1]


def _branch(node: Node, readers: Mapping[Value, list[Node]], outputs: set[Value]) -> _Branch | None:
    if node.attrs.get("group", 1) != 1 or (node.inputs[1].type.rank != 2 and node.op is ops.MatMul):
        return None
    end, bias, activation = node[0], None, None

    def only_reader() -> Node | None:
        consumers = readers.get(end, [])
        return consumers[0] if len(consumers) == 1 and end not in outputs else None

    channel = _channel(node)
    follower = only_reader()
    if follower is not None and follower.op is ops.Add and is_constant(follower.inputs[1]):
        bias = along_axis(follower.inputs[1].attrs["value"], end.shape, channel)
        if bias is not None and follower.types[0] == end.type:
            end = follower[0]
            follower = only_reader()
        else:
            bias = None
    if follower is not None and follower.op in UNARY and follower.op is not ops.Cast:
        activation, end = follower, follower[0]
    last = readers.get(end, [])
    if end in outputs or any(r.op is ops.Concat for r in last):
        return None
    if node.op is ops.MatMul and activation is None and not all(r.op in MOVES or r.op is ops.MatMul for r in last):
        return None  # another operator follows, and would not be fused after a Slice
    if node.op is ops.Conv and activation is None and not all(r.op in (ops.Conv, *MOVES) for r in last):
        return None
    return _Branch(node, bias, activation, end)


def _channel(node: Node) -> int:
    last = node.op is ops.MatMul or node.attrs.get("layout", "NCHW") == "NHWC"
    return node.types[0].rank - 1 if last else 1


def _columns(node: Node) -> int:
    """The axis of the weights that runs over result channels."""
    w = node.inputs[1]
    return w.type.rank - 1 if _channel(node) == node.types[0].rank - 1 else 0


def _key(branch: _Branch) -> Hashable:
    node, activation = branch.contraction, branch.activation
    kernel = tuple(n for d, n in enumerate(node.inputs[1].shape) if d != _columns(node))
    after = None if activation is None else (activation.op, repr(sorted(activation.attrs.items())))
    return node.op, node.inputs[0], kernel, repr(sorted(node.attrs.items())), branch.bias is None, after


def _merged(branches: list[_Branch]) -> dict[Value, Value]:
    first = branches[0].contraction
    channel = _channel(first)
    w = np.concatenate([b.contraction.inputs[1].attrs["value"] for b in branches], axis=_columns(first))
    merged = first.op(first.inputs[0], constant(w), name=first.name, **first.attrs)
    if branches[0].bias is not None:
        bias = np.concatenate([b.bias for b in branches if b.bias is not None])
        shape = (-1, *[1] * (merged.type.rank - 1 - channel))
        merged = ops.Add(merged, constant(bias.reshape(shape)), name=first.name)
    activation = branches[0].activation
    if activation is not None:
        merged = activation.op(merged, name=activation.name, **activation.attrs)
    replaced, start = {}, 0
    rank = merged.type.rank
    for branch in branches:
        replaced[branch.end] = ops.Slice(
            merged,
            starts=tuple(start if d == channel else 0 for d in range(rank)),
            steps=(1,) * rank,
            sizes=branch.end.shape,
            name=branch.end.node.name,
        )
        start += branch.end.shape[channel]
    return replaced
