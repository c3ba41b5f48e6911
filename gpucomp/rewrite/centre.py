"""Sums of which only norms read the rows, freed of their rows' means when the model is compiled.

    layer_norm(a w + b + table[i] + c)  ->  rms_norm(a w' + b' + table'[i] + c')

where a prime takes the mean of every row away. A layer_norm does not see it, for it takes the mean away itself; so where
all that is summed is made of constants along the columns and all that reads any of the sums is norms and further sums,
the rows have no mean from the start, up to rounding. These are the residual streams of networks with the norm in front
(GPT-2, ViT; Jiang et al. 2023 have the proof), and not those of BERT, where a residual reads the norm itself.

The stream's numbers become smaller, by sqrt(1 + (mean / std)^2), and so do the errors of rounding them; and products that
read it without its norm (``norm_products.py``) round no more than they would have rounded the norm's result.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gpucomp import ops
from gpucomp.ir.graph import Graph, Node, Value, constant
from gpucomp.rewrite.match import is_constant, splat
from gpucomp.rewrite.norm_products import BLOCK, LEVELS, Rounding, Surroundings, is_kept
from gpucomp.rewrite.rule import substitute

SUMS = (ops.Add, ops.Sub)


@dataclass(eq=False)
class _Stream:
    """Values whose rows lose their means together, what makes them, and the norms that read them."""

    values: set[Value] = field(default_factory=set)
    sources: list[Node] = field(default_factory=list)  # products and tables
    norms: dict[Node, None] = field(default_factory=dict)

    def nodes(self) -> list[Node]:
        return [*(v.node for v in self.values), *self.norms]


def centre_streams(graph: Graph, rounding: Rounding) -> Graph:
    """``graph`` with the streams centred of which a norm can be folded into the products that read it."""
    if rounding.precision not in LEVELS:
        return graph
    around = Surroundings(graph, rounding)
    replaced: dict[Value, Value] = {}
    seen: set[Value] = set()
    for norm in around.kernels:
        if norm.op is not ops.LayerNorm or norm.inputs[0] in seen or not around.products(norm):
            continue
        stream = _Stream()
        if _closes(norm.inputs[0], stream, around) and not any(is_kept(n, rounding.keep_fp32) for n in stream.nodes()):
            replaced |= _centred(stream)
        seen |= stream.values
    return substitute(graph, replaced) if replaced else graph


def _closes(start: Value, stream: _Stream, around: Surroundings) -> bool:
    """Fill ``stream`` with all that ``start`` is summed with, before and after; False where something else reads or makes it."""
    width, stack = start.shape[-1], [start]
    while stack:
        value = stack.pop()
        if value in stream.values:
            continue
        stream.values.add(value)
        if value in around.outputs or value.shape[-1:] != (width,):
            return False
        if _is_source(value.node):
            stream.sources.append(value.node)
            if not around.may_copy(_weights(value.node)):
                return False
        elif _passes(value.node):
            stack += [v for v in value.inputs if not is_constant(v)]
        else:
            return False
        for reader in around.readers.get(value, []):
            if reader.op is ops.LayerNorm and reader.attrs["axis"] == value.type.rank - 1:
                stream.norms[reader] = None
            elif _passes(reader):
                stack.append(reader[0])
            else:
                return False
    return True


def _is_source(node: Node) -> bool:
    """Whether the columns of its result are those of constant weights."""
    match node.op:
        case ops.MatMul:
            return is_constant(node.inputs[1])
        case ops.Conv:
            last = node.attrs.get("layout", "NCHW") == "NHWC"
            return last and node.attrs.get("group", 1) == 1 and is_constant(node.inputs[1])
        case ops.Gather:
            return is_constant(node.inputs[0]) and node.attrs["axis"] != node.inputs[0].type.rank - 1
    return False


def _weights(source: Node) -> Value:
    return source.inputs[0 if source.op is ops.Gather else 1]


def _passes(node: Node) -> bool:
    """Whether rows without means give rows without means, if they stay whole: it adds rows, scales them as a whole or moves them.

    Columns may change places, all rows' alike.
    """
    match node.op:
        case ops.Mul:
            return splat(node.inputs[1]) is not None
        case ops.Transpose:
            return bool(node.attrs["perm"][-1] == node.types[0].rank - 1)
    return node.op in (*SUMS, ops.Reshape, ops.Concat, ops.Slice)


def _centred(stream: _Stream) -> dict[Value, Value]:
    """What stands for the values of ``stream`` that constants make, and for the norms; nothing where a constant is no number."""
    replaced: dict[Value, Value] = {}
    made = {source: [_weights(source)] for source in stream.sources}
    for node in (v.node for v in stream.values):
        if node.op in (*SUMS, ops.Concat) and any(map(is_constant, node.inputs)):
            made[node] = [v for v in node.inputs if is_constant(v)]
    for node, constants in made.items():
        centred = {v: _less_means(v) for v in constants}
        if not all(np.isfinite(v.attrs["value"]).all() for v in centred.values()):
            return {}
        replaced[node[0]] = node.op(*(centred.get(v, v) for v in node.inputs), name=node.name, **node.attrs)
    for norm in stream.norms:
        replaced[norm[0]] = ops.RMSNorm(norm.inputs[0], name=norm.name, **norm.attrs)
    return replaced


def _less_means(value: Value) -> Value:
    """A constant less the mean along its last axis; one number for all columns is their mean."""
    array = value.attrs["value"]
    rows = array.reshape(-1, array.shape[-1] if array.ndim else 1)
    result = np.empty(rows.shape, array.dtype)
    for first in range(0, len(rows), BLOCK):
        with np.errstate(all="ignore"):
            wide = rows[first : first + BLOCK].astype(np.float64)
            result[first : first + BLOCK] = wide - wide.mean(axis=1, keepdims=True)
    return constant(result.reshape(array.shape))
