"""What the `winograd` contraction template is given besides numbers: names, types, its sums of lines, the epilogue."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from gpucomp.codegen.c_printer import CPrinter
from gpucomp.codegen.convolution import Pixels, packed_filters
from gpucomp.codegen.dialect import Dialect
from gpucomp.codegen.emit import LANE
from gpucomp.codegen.epilogue import epilogue, left_sums, split_scratch
from gpucomp.codegen.tma import loadable_pixels
from gpucomp.expr.core import var
from gpucomp.ir.types import F32
from gpucomp.kernel import Contraction, Kernel
from gpucomp.winograd import ALGORITHMS, Algorithm, Matrix, floats, linear

COLUMN_ACCESS = 4  # output channels that one access takes


def transform_of(outputs: int) -> str:
    """The one of ``gpucomp.packing.TRANSFORMS`` by which F(``outputs``, 3) has its filters."""
    return f"winograd{outputs}3"


def algorithm_of(outputs: int) -> Algorithm:
    return ALGORITHMS[transform_of(outputs)]


def winograd_hooks(
    kernel: Kernel, printer: CPrinter, s: SimpleNamespace, p: SimpleNamespace, derived: SimpleNamespace
) -> Mapping[str, Any]:
    """See ``kernels_templates/contraction/winograd.j2`` for what each hook is."""
    body, form = kernel.body, loadable_pixels(kernel)
    assert isinstance(body, Contraction)
    assert isinstance(form, Pixels), form
    algorithm = algorithm_of(s.outputs)
    acc = ("sums[y]" if derived.in_lines else "sums") if derived.out_vector > 1 or derived.in_lines else "sum"
    found = epilogue(kernel, printer, var("batch", 1), derived.out_vector, acc + f"[{LANE}]" * (derived.out_vector > 1))
    acc_type = printer.dialect.value_type(F32)
    filters = packed_filters(kernel, (derived.products, p.depth, derived.padded_n), "contraction/winograd")
    largest = max(t.size for t in kernel.params) + derived.all_blocks + s.blocks + p.depth + s.channels
    return {
        "scratch": split_scratch(printer, acc_type, s.splits),
        **left_sums(printer, F32, s.splits, derived.out_vector),
        "image": printer.params[form.source][0],
        "filters": printer.params[filters][0],
        "row_lines": found.row_lines,
        "store": found.store,
        "index": printer.dialect.index_type(largest),
        "acc_type": acc_type,
        "copy": lambda to, source, width, guard="": printer.dialect.copy(to, source, F32, width, guard),
        "array": lambda name, size: printer.dialect.aligned_array(acc_type, name, size),
        "of_data": _lines(printer.dialect, algorithm.data),
        "of_products": _lines(printer.dialect, algorithm.result),
    }


@dataclass(frozen=True)
class _Text:
    """A value as C text. One that is computed with is named first, in ``lines``: no sum is computed twice."""

    dialect: Dialect
    lines: list[str]
    text: str
    name: list[str] = field(default_factory=list)  # empty until it is named

    def _named(self) -> str:
        if not self.name:
            self.name.append(f"t{len(self.lines)}")
            self.lines.append(f"const {self.dialect.value_type(F32)} {self.name[0]} = {self.text};")
        return self.name[0]

    def _of(self, text: str) -> _Text:
        return _Text(self.dialect, self.lines, text)

    def __add__(self, other: _Text) -> _Text:
        return self._of(f"{self._named()} + {other._named()}")

    def __sub__(self, other: _Text) -> _Text:
        return self._of(f"{self._named()} - {other._named()}")

    def __mul__(self, factor: float) -> _Text:
        return self._of(f"{self.dialect.literal(factor, F32)} * {self._named()}")

    def muladd(self, factor: float, addend: _Text) -> _Text:
        scaled = f"{self.dialect.literal(abs(factor), F32)} * {self._named()}"
        return self._of(f"{addend._named()} {'-' if factor < 0 else '+'} {scaled}")


def _lines(dialect: Dialect, matrix: Matrix) -> Callable[[Sequence[str], Sequence[str]], list[str]]:
    """``(values, targets)`` to the statements that set ``targets`` to ``matrix @ values``, which are names.

    All that several targets share is computed before the first is set: they may be the values themselves.
    """

    def lines(values: Sequence[str], targets: Sequence[str]) -> list[str]:
        begun: list[str] = []
        found = linear(floats(matrix), [_Text(dialect, begun, v, [v]) for v in values])
        return [*begun, *(f"{to} = {value.text};" for to, value in zip(targets, found, strict=True))]

    return lines
