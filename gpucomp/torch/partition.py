"""Cuts a graph of ATen operators where one cannot be compiled, so that the rest can be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import create_op_support

from gpucomp.errors import UnsupportedError
from gpucomp.frontend.foreign.fx_graphs import is_tensor, memory_of
from gpucomp.torch.operators import Missing, missing
from gpucomp.torch.region import Region
from gpucomp.torch.reports import Graph, Part
from gpucomp.torch.settings import Settings


def compiled_parts(
    module: fx.GraphModule, weights: Mapping[int, torch.Tensor], settings: Settings, graph: Graph
) -> Callable[..., Any]:
    """A function of the arguments of ``module``. ``weights`` are some of them, by position.

    Raises ``UnsupportedError`` (GPC4021) if nothing of it can be compiled, or not all of it with ``strict``.
    """
    calls = [node for node in module.graph.nodes if node.op.startswith("call_")]
    out = {node: why for node in module.graph.nodes if (why := missing(node)) is not None}
    if not out:
        part = Part(len(calls))
        region = Region(module, weights, settings, part)
        graph.parts.append(part)
        return region
    for node, why in out.items():
        if settings.strict or node.op == "placeholder":
            raise UnsupportedError(str(why), problems=tuple(map(str, out.values())), code="GPC4021")
    return _cut(module, weights, settings, graph, out)


def _cut(
    module: fx.GraphModule,
    weights: Mapping[int, torch.Tensor],
    settings: Settings,
    graph: Graph,
    out: Mapping[fx.Node, Missing],
) -> Callable[..., Any]:
    """The module, in which the parts between the operators of ``out`` are regions."""
    (output,) = module.graph.find_nodes(op="output")
    results = {node for node in output.all_input_nodes if is_tensor(node)}
    if len({memory_of(node) for node in results}) < len(results):
        raise UnsupportedError(
            f"{next(iter(out.values()))}; results share memory, so the graph is not cut", code="GPC4021"
        )
    graph.eager += out.values()
    finder = CapabilityBasedPartitioner(
        module,
        create_op_support(lambda _, node: node.op == "call_function" and node not in out),
        allows_single_node_partition=True,
    )
    found = finder.propose_partitions()
    large = [one for one in found if len(one.nodes) >= settings.least]
    for one in found:
        if one not in large:
            graph.eager += [Missing.of(node, "its part of the graph is small") for node in one.nodes]
    held = {node.name: weights[n] for n, node in enumerate(module.graph.find_nodes(op="placeholder")) if n in weights}
    fused = finder.fuse_partitions(large)
    for node in list(fused.graph.find_nodes(op="call_module")):
        inner = fused.get_submodule(str(node.target))
        assert isinstance(inner, fx.GraphModule)
        part = Part(sum(one.op.startswith("call_") for one in inner.graph.nodes))
        own = {
            n: held[source.name]
            for n, source in enumerate(node.args)
            if isinstance(source, fx.Node) and source.name in held
        }
        region = Region(inner, own, settings, part)
        inner.forward = region
        graph.parts.append(part)
    if not graph.parts:
        raise UnsupportedError(str(next(iter(out.values()))), code="GPC4021")
    fused.recompile()
    forward: Callable[..., Any] = fused.forward
    return forward
