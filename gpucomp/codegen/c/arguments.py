"""Sizes that each run decides, as arguments of a kernel: their names in its text, and what divides by them.

Every argument is a 64-bit integer. At its start a kernel narrows each to the type that the range of the size allows.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

from gpucomp.codegen.c.dialect import INT32, Dialect
from gpucomp.ir.size import Size, bounds, divides, same
from gpucomp.ir.types import I32, I64, U32, U64
from gpucomp.kernel.run_sizes import MAGIC, SHIFT, SIZE, RunSize
from gpucomp.kernel.sizes import Sizes

MARK = "@sizes@"  # in a signature, where the arguments are to stand


class Arguments:
    """The arguments of one kernel, in the order of their first use."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._helpers: dict[str, str] = {}
        self._names: dict[RunSize, str] = {}
        self._numbers: dict[Size, int] = {}

    @property
    def sizes(self) -> tuple[RunSize, ...]:
        """What a run has to give, in the order of the arguments."""
        return tuple(self._names)

    def name(self, size: Size, kind: str = SIZE) -> str:
        """The argument that holds a size of the run, or a number of its ``kind``."""
        wanted = RunSize(size, kind)
        if wanted not in self._names:
            number = next((n for other, n in self._numbers.items() if same(other, size)), len(self._numbers))
            self._numbers.setdefault(size, number)
            self._names[wanted] = f"{kind}{number}"
        return self._names[wanted]

    def ctype(self, one: RunSize) -> str:
        if one.kind == SIZE:
            return self._dialect.values[I32 if fits(one.size) else I64]
        return self._dialect.values[U32 if one.kind == MAGIC else I32]

    def divided(self, text: str, size: Size) -> str:
        """``text / size``, where ``text`` is an ``int`` that is not negative: see ``RunSize``."""
        self._helpers.setdefault("over_size", self._over())
        return f"over_size({text}, {self.name(size, MAGIC)}, {self.name(size, SHIFT)})"

    def rest(self, text: str, size: Size) -> str:
        """``text % size``, likewise."""
        self._helpers.setdefault("over_size", self._over())
        values, qualifier = self._dialect.values, self._dialect.qualifier
        body = "return a - over_size(a, magic, shift) * size;"
        head = f"{qualifier}int modulo_size(int a, int size, {values[U32]} magic, int shift)"
        self._helpers.setdefault("modulo_size", f"{head} {{\n  {body}\n}}\n")
        return f"modulo_size({text}, {self.name(size)}, {self.name(size, MAGIC)}, {self.name(size, SHIFT)})"

    def _over(self) -> str:
        uint, ulong = self._dialect.values[U32], self._dialect.values[U64]
        head = f"{self._dialect.qualifier}int over_size(int a, {uint} magic, int shift)"
        return f"{head} {{\n  return (int)(({ulong})({uint})a * magic >> shift);\n}}\n"

    def placed(self, text: str) -> str:
        """``text`` with the arguments in place of ``MARK``, their narrow copies at the start of the kernel, and the functions
        that divide."""
        wide = self._dialect.values[I64]
        given = ", ".join(f"{wide} run_{name}" for name in self._names.values())
        copies = [
            f"  const {self.ctype(one)} {name} = ({self.ctype(one)})run_{name};" for one, name in self._names.items()
        ]
        before = f"    {MARK}) {{\n"
        if given:
            after = f"    {given}) {{\n" + "".join(f"{line}\n" for line in copies)
            return "\n".join([*self._helpers.values(), text.replace(before, after)])
        return re.sub(rf",\n +{MARK}", "", text)


def fits(size: Any) -> bool:
    """Whether a size, or a number, is an ``int`` of C in every run."""
    low, high = bounds(size)
    return INT32[0] <= low and high <= INT32[1]


class Argument:
    """A size where text is made: printed, it is the argument that holds it.

    Text is for all runs. So ``a > b``, ``a != b`` and ``bool(a)`` say whether that may be so in some run, and ``a == b``
    whether it is so in all of them. Other comparisons raise ``TypeError``.
    """

    __slots__ = ("arguments", "size")
    __hash__ = object.__hash__

    def __init__(self, arguments: Arguments, size: Size) -> None:
        self.arguments, self.size = arguments, size

    def __str__(self) -> str:
        return self.arguments.name(self.size)

    def __format__(self, spec: str) -> str:
        return str(self)

    def __neg__(self) -> Any:
        return self._made(-self.size)

    def __eq__(self, other: object) -> bool:
        return same(self.size, plain(other))

    def __gt__(self, other: object) -> bool:
        return bounds(self.size - plain(other))[1] > 0

    def __bool__(self) -> bool:
        return True

    def _made(self, size: Any) -> Any:
        return told(self.arguments, size)


def _binary(function: Callable[[Any, Any], Any], swapped: bool) -> Callable[[Argument, Any], Any]:
    def computed(one: Argument, other: Any) -> Any:
        a, b = one.size, plain(other)
        return one._made(function(b, a) if swapped else function(a, b))

    return computed


for _name in ("add", "sub", "mul", "floordiv", "mod"):
    setattr(Argument, f"__{_name}__", _binary(getattr(operator, _name), swapped=False))
    setattr(Argument, f"__r{_name}__", _binary(getattr(operator, _name), swapped=True))


def told(arguments: Arguments, size: Any) -> Any:
    """``size`` for texts; a number that is the same in every run stays one."""
    return Argument(arguments, size) if isinstance(size, Size) else size


def plain(number: Any) -> Any:
    """The size of an ``Argument``; others as they are."""
    return number.size if isinstance(number, Argument) else number


def in_texts(arguments: Arguments, sizes: Sizes) -> Sizes:
    """``sizes`` with an ``Argument`` for each size that each run decides."""
    return sizes.replace(**{name: told(arguments, number) for name, number in sizes.numbers.items()})


def highest(*sizes: Any) -> int:
    """The greatest of ``sizes`` in any run, or a number above it."""
    return int(max(bounds(plain(size))[1] for size in sizes))


def is_whole(size: Any, divisor: int) -> bool:
    """Whether ``divisor`` divides ``size`` in every run."""
    return divides(divisor, plain(size)) if isinstance(size, Argument) else not size % divisor
