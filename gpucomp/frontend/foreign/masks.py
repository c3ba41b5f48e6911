"""Attention with a mask: a query that may see no key has a result of zeros in torch, and another one in ONNX."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

aten = torch.ops.aten
ATTENTION = aten.scaled_dot_product_attention.default


def has_masks(graph: fx.Graph) -> bool:
    return any(_mask(node) is not None for node in graph.find_nodes(op="call_function", target=ATTENTION))


def fill_with_zeros(graph: fx.Graph) -> None:
    """Fill the results of attention with zeros where a mask hides every key."""
    if not has_masks(graph):
        return
    for node in graph.find_nodes(op="call_function", target=ATTENTION):
        if (mask := _mask(node)) is not None:
            _fill(graph, node, mask)
    for node in graph.find_nodes(op="call_function", target=aten.view.default):
        node.target = aten.reshape.default  # what is filled may lie in memory in another way, of which there is no view


def _mask(node: fx.Node) -> fx.Node | None:
    given = node.args[3] if len(node.args) > 3 else node.kwargs.get("attn_mask")
    return given if isinstance(given, fx.Node) else None


def _fill(graph: fx.Graph, node: fx.Node, mask: fx.Node) -> None:
    last = node

    def call(target: Any, *args: Any) -> fx.Node:
        nonlocal last
        with graph.inserting_after(last):
            last = graph.call_function(target, args)
        last.meta["val"] = target(*(one.meta["val"] if isinstance(one, fx.Node) else one for one in args))
        return last

    seen = mask if mask.meta["val"].dtype is torch.bool else call(aten.ne.Scalar, mask, -math.inf)
    none = call(aten.logical_not.default, call(aten.any.dim, seen, -1, True))
    filled = call(aten.masked_fill.Scalar, node, none, 0.0)
    # what eager's attention gives is the filled one: its memory is that of the views which follow
    node.meta["val"], filled.meta["val"] = filled.meta["val"], node.meta["val"]
    node.replace_all_uses_with(filled, delete_user_cb=lambda user: user is not filled)
