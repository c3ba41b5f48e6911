"""What depends on constants alone is computed while a model is imported: shapes above all. Bounded by the model's own size.

A few bytes of a model may ask for gigabytes of constants, or for hours of arithmetic on them. What goes beyond these
bounds is left in the graph: kernels compute it, when and if the model runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpucomp import config, ops
from gpucomp.errors import UnsupportedError
from gpucomp.frontend.onnx.external import ExternalFiles
from gpucomp.ir import Constant, Input, Node, Value, constant, topological
from gpucomp.ir.types import I8, STRING, U8
from gpucomp.ops.interpreter import evaluate, work
from gpucomp.ops.random import RANDOM

ONE = 32 << 20  # bytes of one value, besides twice what the model has
ALL = 64 << 20  # bytes of all values, besides twice what the model has
WORK = 1 << 25  # elements computed, besides four for each byte that the model has
ALWAYS = 4096  # bytes: shapes and other small things are computed whatever came before
TEXT_BYTES = 64  # of a string of any length, besides its letters
NOT_FOLDED = (*RANDOM, ops.RegexFullMatch)  # drawn anew in every run; or longer than the sizes tell


class Folding:
    """The constants of one model and what was computed of them. ``files`` knows how many bytes the model brought.

    ``own`` bytes of the model and a ``limit`` of one value hold instead where several translations must fold the same.
    """

    def __init__(self, files: ExternalFiles, own: int | None = None, limit: int | None = None) -> None:
        self.files = files
        self.own = own
        self.limit = limit
        self.bytes = 0
        self.work = 0
        self.kept: set[Node] = set()  # nodes that depend on an input or are too large: what reads them is kept too

    def made(self, arrays: Sequence[np.ndarray]) -> None:
        """Count constants that a translator made of nothing. Raises ``UnsupportedError`` when they are too many."""
        new = {id(array): _nbytes(array) for array in arrays}
        self.bytes += sum(nbytes for nbytes in new.values() if nbytes > ALWAYS)
        if self.bytes > 2 * self._allowed(ALL):
            raise UnsupportedError(f"the model's constants would take {self.bytes} bytes", code="GPC4006")

    def results(self, results: Sequence[Any]) -> list[Any]:
        """``results``, those that depend on constants alone computed if that stays inside the limits."""
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
        """Whether ``node`` reads an input, chance or what is kept. What was asked before is remembered: the walks stay short."""
        seen: set[Node] = set()
        pending = [node]
        while pending:
            other = pending.pop()
            if other.op is Input or other.op in NOT_FOLDED or other in self.kept or _is_dequantized(other):
                self.kept.add(node)
                return True
            if other not in seen and other.op is not Constant:
                seen.add(other)
                pending.extend(v.node for v in other.inputs)
        return False


def _nbytes(array: np.ndarray) -> int:
    """Bytes of a constant; of strings about what they take at most: two elements may be the same text."""
    return (
        array.nbytes
        if array.dtype != object
        else TEXT_BYTES * array.size + sum(len(str(text)) for text in array.reshape(-1))
    )


def _is_dequantized(node: Node) -> bool:
    """Whether ``node`` is the last one of a matrix or filter made of bytes and their scale: a pass may want those apart."""
    if node.op is not ops.Mul or node.types[0].rank < 2:
        return False
    centred = node.inputs[0]
    wide = centred.inputs[0] if centred.op is ops.Sub else centred
    return wide.op is ops.Cast and wide.inputs[0].op is Constant and wide.inputs[0].type.dtype in (I8, U8)
