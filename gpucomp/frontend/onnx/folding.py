"""Constant folding during import, mainly of shapes. The limits depend on the model's own size.

A few bytes of a model can ask for gigabytes of constants or for hours of arithmetic. Nodes beyond the limits stay in
the graph: kernels compute them when the model runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpucomp import config, ops
from gpucomp.errors import UnsupportedError
from gpucomp.frontend.onnx.external import ExternalFiles
from gpucomp.frontend.onnx.symbolic import with_sizes
from gpucomp.ir import Constant, Input, Node, Sizes, Value, constant, topological
from gpucomp.ir.size import Size
from gpucomp.ir.types import I8, STRING, U8
from gpucomp.ops.interpreter import evaluate, work
from gpucomp.ops.random import RANDOM

ONE = 32 << 20  # bytes of one value, plus twice the bytes of the model
ALL = 64 << 20  # bytes of all values, plus twice the bytes of the model
WORK = 1 << 25  # computed elements, plus four per byte of the model
ALWAYS = 4096  # bytes: shapes and other small values are always computed
TEXT_BYTES = 64  # overhead of a string, besides its characters
NOT_FOLDED = (*RANDOM, ops.RegexFullMatch)  # drawn again in every run; or slower than the sizes of operands suggest


class Folding:
    """The folded constants of one model and their limits. ``files`` counts the bytes of the model.

    ``own`` (bytes of the model) and ``limit`` (bytes of one value) replace the current numbers if several translations
    of a model must fold the same nodes.
    """

    def __init__(self, files: ExternalFiles, own: int | None = None, limit: int | None = None) -> None:
        self.files = files
        self.own = own
        self.limit = limit
        self.bytes = 0
        self.work = 0
        self.kept: set[Node] = set()  # nodes that depend on an input or are too large, and nodes that read them

    def made(self, arrays: Sequence[np.ndarray]) -> None:
        """Count the bytes of constants that a translator generated. Raises ``UnsupportedError`` if they are too many."""
        new = {id(array): _nbytes(array) for array in arrays}
        self.bytes += sum(nbytes for nbytes in new.values() if nbytes > ALWAYS)
        if self.bytes > 2 * self._allowed(ALL):
            raise UnsupportedError(f"the model's constants would take {self.bytes} bytes", code="GPC4006")

    def results(self, results: Sequence[Any]) -> list[Any]:
        """``results``, with values that depend only on constants replaced by constants, within the limits."""
        results = [with_sizes(v) if isinstance(v, Value) else v for v in results]
        values = [v for v in results if isinstance(v, Value) and v.op is not Constant and not self._stays(v.node)]
        order = [n for n in topological(v.node for v in values) if n.op is not Constant]
        if not order:
            return list(results)
        largest = max(sum(type.nbytes for type in n.types) for n in order)
        total = sum(v.type.nbytes for v in values)
        effort = sum(work(n) for n in order)
        limit = min(self._allowed(ONE), config.current().fold_limit if self.limit is None else self.limit)
        small = largest <= min(ALWAYS, limit) and effort <= ALWAYS
        within = (
            largest <= limit
            and self.bytes + total <= self._allowed(ALL)
            and self.work + effort <= WORK + 4 * self._brought
        )
        if not small and not within:
            self.kept.update(order)
            return list(results)
        if not small:
            self.bytes += total
            self.work += effort
        computed = dict(zip(values, (constant(np.array(a)) for a in evaluate(values, {})), strict=True))
        self.bytes += sum(_nbytes(v.attrs["value"]) for v in computed.values() if v.type.dtype is STRING)
        return [computed.get(v, v) for v in results]

    def _allowed(self, base: int) -> int:
        return base + 2 * self._brought

    @property
    def _brought(self) -> int:
        return self.files.nbytes if self.own is None else self.own

    def _stays(self, node: Node) -> bool:
        """Whether ``node`` depends on an input, random numbers or a kept node. Caches answers, so that walks stay short."""
        seen: set[Node] = set()
        pending = [node]
        while pending:
            other = pending.pop()
            if (
                other.op in (Input, Sizes)
                or other.op in NOT_FOLDED
                or _has_sizes(other)
                or other in self.kept
                or _is_dequantized(other)
            ):
                self.kept.add(node)
                return True
            if other not in seen and other.op is not Constant:
                seen.add(other)
                pending.extend(v.node for v in other.inputs)
        return False


def _has_sizes(node: Node) -> bool:
    """Whether the number of elements differs from run to run."""
    return any(isinstance(extent, Size) for type in node.types for extent in type.shape)


def _nbytes(array: np.ndarray) -> int:
    """Bytes of a constant. For strings, an upper bound: elements can share one string object."""
    return (
        array.nbytes
        if array.dtype != object
        else TEXT_BYTES * array.size + sum(len(str(text)) for text in array.reshape(-1))
    )


def _is_dequantized(node: Node) -> bool:
    """Whether ``node`` is a dequantized weight of rank 2 or more, bytes times a scale, which passes need separately."""
    if node.op is not ops.Mul or node.types[0].rank < 2:
        return False
    centred = node.inputs[0]
    wide = centred.inputs[0] if centred.op is ops.Sub else centred
    return wide.op is ops.Cast and wide.inputs[0].op is Constant and wide.inputs[0].type.dtype in (I8, U8)
