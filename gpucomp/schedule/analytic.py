"""Counts a kernel's operations and bytes, and computes from them the least time that any schedule needs.

``floor_us`` needs only the kernel: multiply-adds at the device's best rate, or every byte moved once, from the cache what the
cache may have kept. ``gpucomp.schedule.model`` adds the effects of the schedule: work-groups per unit, whole waves, repeated
reads, and iterations that wait for memory.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from gpucomp.artifact.plan import FEWER_OPERATIONS
from gpucomp.device.device import Device
from gpucomp.expr.core import Call, Cast, Expr, Load, Reduce, Select, loads, walk
from gpucomp.kernel import (
    Attention,
    Contraction,
    FusedLayers,
    Kernel,
    Rowwise,
    Scan,
    Scatter,
    TileTransform,
    Window,
)
from gpucomp.kernel.passes.narrow_integers import as_byte
from gpucomp.lazy_dataclass import dataclass

Number = Any  # a float, or an array with an entry for each kernel
# kernels like this one for whose constants a cache must have room, or it keeps none. It describes how aiconfigurator's runs
# rotate weights (bench/results/measured.md) and is a guess for networks, which read those of all their layers in turn
WEIGHTS = 10


def operations(kernel: Kernel) -> float:
    """Floating-point operations of ``kernel``. A multiply-add counts as two, any other function as one."""
    memo: dict[Expr, float] = {}

    def count(*exprs: Expr) -> float:
        """Operations of ``exprs``. Shared subexpressions are computed once and count once."""
        seen: set[Expr] = set()
        total, stack = 0.0, list(exprs)
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if isinstance(node, Reduce):
                if node not in memo:
                    memo[node] = math.prod(a.extent for a in node.axes) * (count(node.body) + 1)
                total += memo[node]
                continue
            total += isinstance(node, Call) and node.dtype.is_float
            stack.extend(node.operands)
        return total

    return kernel.operations(count)


def traffic(kernel: Kernel) -> float:
    """Bytes that must move at least once: every result, and the elements of each operand that its loads can read."""
    body = kernel.body
    if isinstance(body, FusedLayers):
        return _traffic_of_layers(body)
    return _result_bytes(kernel) + sum(_read_bytes(kernel).values())


def _read_bytes(kernel: Kernel) -> dict[int, float]:
    """The bytes that loads can read of each operand."""
    body = kernel.body
    times = math.prod(v.extent for v in {*body.domain, *itertools.chain(*body.reduced())})
    count: dict[int, float] = {}
    for expr in kernel.expressions():
        for source, reads in _reads(expr).items():
            if source >= kernel.inputs:
                continue  # results that it has just written are in a cache
            count[source] = count.get(source, 0) + reads
    sizes = {source: kernel.params[source] for source in count}
    return {s: float(min(o.nbytes, times * count[s] * max(1, o.dtype.nbytes))) for s, o in sizes.items()}


def _traffic_of_layers(body: FusedLayers) -> float:
    """Bytes that the layers move, except for the images between them, which stay in a cache."""
    handed = [layer.kernel.params[-1].nbytes for layer in body.layers[:-1]]
    return sum(traffic(layer.kernel) for layer in body.layers) - 2.0 * sum(handed)


def arithmetic(kernel: Kernel) -> str:
    """The type in which ``kernel`` computes: that of its accumulator, else its widest float; "" if it has no floats."""
    body = kernel.body
    if isinstance(body, FusedLayers):
        return arithmetic(body.layers[-1].kernel)
    if isinstance(body, (Contraction, Attention, Window, Scan, Scatter, TileTransform)):
        return body.acc.dtype.name
    nodes = {node for expr in kernel.expressions() for node in walk(expr) if isinstance(node, (Call, Reduce, Select))}
    floats = {node.dtype for node in nodes if node.dtype.is_float}
    if isinstance(body, Rowwise):
        floats |= {s.hole.dtype for s in body.statistics if s.hole.dtype.is_float}
    return max(floats, key=lambda dtype: dtype.bits).name if floats else ""


def _reads(expr: Expr) -> dict[int, float]:
    """Loads of each parameter for one point of the domain."""
    found: dict[int, float] = {}
    for ld, times in load_times(expr).items():
        found[ld.source] = found.get(ld.source, 0) + times
    return found


def load_times(expr: Expr) -> dict[Load, float]:
    """How often each load of ``expr`` is executed for one point of the domain. Reductions repeat their loads."""
    if isinstance(expr, Reduce):
        extent = math.prod(a.extent for a in expr.axes)
        return {ld: extent * n for ld, n in load_times(expr.body).items()}
    inner = _parts(expr)
    found: dict[Load, float] = {}
    for part in inner:
        for ld, n in load_times(part).items():
            found[ld] = found.get(ld, 0) + n
    inside = {ld for part in inner for ld in loads(part)}
    return found | {ld: found.get(ld, 0) + 1 for ld in loads(expr) if ld not in inside}


def _parts(expr: Expr) -> list[Reduce]:
    """The outermost reductions within ``expr``."""
    found: list[Reduce] = []
    stack, seen = [expr], set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, Reduce):
            found.append(node)
        else:
            stack.extend(node.operands)
    return found


def math_of(kernel: Kernel, device: Device) -> str:
    """The fastest arithmetic on the device that the kernel's semantics allow."""
    body = kernel.body
    if not isinstance(body, (Contraction, Attention)):
        return "fma"
    name = body.acc.dtype.name
    operands = (body.a, body.b) if isinstance(body, Contraction) else (body.q, body.k, body.v)
    if name == "f32":
        name = _operand_type(*operands) or ("f32" if body.math == "strict" else body.math)
    elif name == "i32" and all(as_byte(value) is not None for value in operands):
        name = "s8" if device.matrix.get("s8") else "dp4a"
    if name == "f16" and not device.matrix.get(name):
        name = "dot2"
    return name if device.matrix.get(name) else "fma"


def _operand_type(*operands: Expr) -> str:
    """``f16`` or ``bf16`` if both operands are widened from that type, else ""."""
    names = set()
    for operand in operands:
        stack: list[Expr] = [operand]
        while stack:
            match stack.pop():
                case Select(then=then, otherwise=otherwise):
                    stack += [then, otherwise]
                case Cast(value=value):
                    names.add(value.dtype.name)
                case Load(dtype=dtype) | Call(dtype=dtype):
                    names.add(dtype.name)
    return names.pop() if len(names) == 1 and names <= {"f16", "bf16"} else ""


def bytes_us(nbytes: Number, constant_bytes: Number, device: Device, *, cold: bool = False) -> Number:
    """The least microseconds to move ``nbytes`` once, of which ``constant_bytes`` are weights.

    What earlier kernels left in the cache, and what fits there, moves at the cache's speed; nothing does if the caches are
    ``cold``. All of a kernel's data but constants is there if it takes at most half of the cache, and nothing if it takes all of
    it. Constants are, if the cache has room for those of ``WEIGHTS`` kernels like this one.
    """
    passing = nbytes - constant_bytes
    kept = passing * np.clip(2 - 2 * passing / device.l2_bytes, 0, 1)
    kept = kept + constant_bytes * np.clip(2 - WEIGHTS * constant_bytes / device.l2_bytes, 0, 1)
    kept = kept * (not cold)
    return (nbytes - kept) / (device.dram_gbs * 1e3) + kept / (device.l2_gbs * 1e3)


def floor_us(kernel: Kernel, device: Device, engine: str = "", *, cold: bool = False) -> float:
    """A lower bound for the time of any schedule, in microseconds: arithmetic at its peak, or every byte moved once.

    Bytes take the time of ``bytes_us``, which the model's predictions have too: it is a bound for a kernel whose data a cache
    may have kept, or for one with ``cold`` caches. For an ``engine`` that does fewer operations than are counted, it is that of
    the bytes alone.
    """
    macs = 0.0 if engine in FEWER_OPERATIONS else operations(kernel) / 2
    moving = float(bytes_us(traffic(kernel), _constant_bytes(kernel), device, cold=cold))
    return max(macs / device.rate(math_of(kernel, device)), moving)


@dataclass(frozen=True)
class Demand:
    """A kernel's demand on a device under any schedule: operations, bytes, and the least time for them.

    ``constant_bytes`` are those of the bytes that no other kernel has just written or read: weights. ``result_bytes`` are those
    of the results; infinite if they are not known.
    """

    flops: float
    bytes: float
    floor_us: float
    constant_bytes: float = 0.0
    result_bytes: float = math.inf


def demand(kernel: Kernel, device: Device) -> Demand:
    floor, constants = floor_us(kernel, device), _constant_bytes(kernel)
    return Demand(operations(kernel), traffic(kernel), floor, constants, _result_bytes(kernel))


def _constant_bytes(kernel: Kernel) -> float:
    """The bytes of weights that loads can read; none of fused layers, which are not told apart."""
    if isinstance(kernel.body, FusedLayers):
        return 0.0
    return sum(nbytes for source, nbytes in _read_bytes(kernel).items() if source in kernel.constants)


def _result_bytes(kernel: Kernel) -> float:
    return float(sum(t.nbytes for t in kernel.params[kernel.inputs :]))
