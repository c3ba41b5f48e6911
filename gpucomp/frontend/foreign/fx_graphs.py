"""What several modules ask of FX graphs."""

from __future__ import annotations

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true


def copied(module: fx.GraphModule) -> fx.GraphModule:
    """The same graph in a module of its own, with the attributes of ``module``."""
    graph = fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    return fx.GraphModule(module, graph)


def is_tensor(node: object) -> bool:
    return isinstance(node, fx.Node) and isinstance(node.meta.get("val"), torch.Tensor)


def memory_of(node: fx.Node) -> int:
    """What is equal for tensors of the same memory."""
    return int(node.meta["val"].untyped_storage()._cdata)


def is_whole(value: torch.Tensor) -> bool:
    """Whether a tensor of a graph certainly begins with its memory, and has as many elements."""
    nbytes = value.numel() * value.itemsize
    return statically_known_true(value.storage_offset() == 0) and statically_known_true(
        nbytes == value.untyped_storage().nbytes()
    )
