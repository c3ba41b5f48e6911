"""The structure of a model: its opsets, and the order of its nodes. Nothing is translated here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import onnx

from gpucomp.errors import ModelError, UnsupportedError, quote
from gpucomp.frontend.onnx import functions
from gpucomp.frontend.onnx.translate import OLDEST_OPSET


def opsets_of(imports: Sequence[onnx.OperatorSetIdProto], where: str) -> dict[str, int]:
    """Domain -> version. Raises for a version that is invalid or not supported."""
    opsets: dict[str, int] = {}
    newest = onnx.defs.onnx_opset_version()
    for entry in imports:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        if domain in opsets and opsets[domain] != entry.version:
            raise ModelError(f"{where} imports opset domain {quote(domain)} twice", code="GPC3016")
        if entry.version < 1:
            raise ModelError(f"{where} imports opset {entry.version} of domain {quote(domain)}", code="GPC3016")
        if domain == "" and not OLDEST_OPSET <= entry.version <= newest:
            raise UnsupportedError(
                f"{where} uses opset {entry.version}; supported are {OLDEST_OPSET} to {newest}", code="GPC4004"
            )
        opsets[domain] = min(entry.version, 1 << 30)
    if not opsets:
        raise ModelError(f"{where} imports no opset", code="GPC3016")
    return opsets


def in_order(nodes: Sequence[onnx.NodeProto], path: str, reads: functions.Reads) -> list[onnx.NodeProto]:
    """The nodes, operands first. Raises ``ModelError`` for a name that two nodes define, and for a cycle."""
    producer: dict[str, int] = {}
    for position, node in enumerate(nodes):
        for name in node.output:
            if name and name in producer:
                raise ModelError(f"{quote(path + name)} is defined twice", code="GPC3011")
            if name:
                producer[name] = position
    needs = [{producer[name] for name in reads.of(node) if name in producer} for node in nodes]
    if all(not before or max(before) < position for position, before in enumerate(needs)):
        return list(nodes)
    users: dict[int, list[int]] = {}
    for position, before in enumerate(needs):
        for other in before:
            users.setdefault(other, []).append(position)
    waiting = [len(before) for before in needs]
    ready = [position for position, count in enumerate(waiting) if not count]
    done = 0
    order = []
    while done < len(ready):
        position = ready[done]
        done += 1
        order.append(nodes[position])
        for user in users.get(position, ()):
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    if len(order) < len(nodes):
        stuck = next(node for node, count in zip(nodes, waiting, strict=True) if count)
        name = stuck.name or next((o for o in stuck.output if o), "")
        raise ModelError(f"the graph has a cycle through node {quote(path + name)}", code="GPC3018")
    return order


def repeated(names: Sequence[str]) -> str:
    return next(name for name, count in Counter(names).items() if count > 1)
