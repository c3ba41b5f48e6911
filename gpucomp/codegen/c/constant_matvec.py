"""Products of a constant matrix and a vector as C statements. Terms that ``linear`` shares get a name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from gpucomp.codegen.c.dialect import Dialect
from gpucomp.ir.types import F32
from gpucomp.kernel.winograd_matrices import linear

Rows = Sequence[Sequence[float]]


@dataclass(frozen=True)
class _Text:
    """A value as C text. It is named, in ``named``, when it becomes an operand, so that no sum is computed twice."""

    dialect: Dialect
    named: dict[str, str]
    prefix: str
    text: str
    name: list[str] = field(default_factory=list)  # empty until it is named

    def _named(self) -> str:
        if not self.name:
            self.name.append(f"{self.prefix}{len(self.named)}")
            self.named[self.name[0]] = self.text
        return self.name[0]

    def _of(self, text: str) -> _Text:
        return _Text(self.dialect, self.named, self.prefix, text)

    def __add__(self, other: _Text) -> _Text:
        return self._of(f"{self._named()} + {other._named()}")

    def __sub__(self, other: _Text) -> _Text:
        return self._of(f"{self._named()} - {other._named()}")

    def __mul__(self, factor: float) -> _Text:
        return self._of(f"{self.dialect.literal(factor, F32)} * {self._named()}")

    def muladd(self, factor: float, addend: _Text) -> _Text:
        scaled = f"{self.dialect.literal(abs(factor), F32)} * {self._named()}"
        return self._of(f"{addend._named()} {'-' if factor < 0 else '+'} {scaled}")


def parts_and_sums(
    dialect: Dialect, matrix: Rows, values: Sequence[str], prefix: str
) -> tuple[dict[str, str], list[str]]:
    """The product ``matrix @ values`` as C text; ``values`` are names.

    Returns the text of each shared part by its name, in order of computation, and the text of each element of the
    result.
    """
    named: dict[str, str] = {}
    found = linear(matrix, [_Text(dialect, named, prefix, v, [v]) for v in values])
    return named, [value.text for value in found]


def sums_of(dialect: Dialect, ctype: str, matrix: Rows) -> Callable[[Sequence[str], Sequence[str]], list[str]]:
    """A function of (values, targets), both names: the statements that set ``targets`` to ``matrix @ values``.

    All shared parts are computed before the first target is set, so the targets may be the values themselves.
    """

    def lines(values: Sequence[str], targets: Sequence[str]) -> list[str]:
        named, texts = parts_and_sums(dialect, matrix, values, "t")
        begun = [f"const {ctype} {name} = {text};" for name, text in named.items()]
        return [*begun, *(f"{to} = {text};" for to, text in zip(targets, texts, strict=True))]

    return lines


def one_by_one(ctype: str, named: Mapping[str, str], texts: Sequence[str]) -> list[list[str]]:
    """For each of ``texts``, declarations of the parts that it needs and no earlier text needed.

    Declared this late, few parts are alive at once.
    """
    written: set[str] = set()

    def needed(text: str) -> list[str]:
        lines: list[str] = []
        for name in re.findall(r"[A-Za-z_]\w*", text):
            if name in named and name not in written:
                written.add(name)
                lines += [*needed(named[name]), f"const {ctype} {name} = {named[name]};"]
        return lines

    return [needed(text) for text in texts]
