"""Dimensions whose size each run decides, as users declare them."""

from __future__ import annotations

from dataclasses import dataclass

from gpucomp.errors import UsageError, quote

MOST = 8192  # the largest size of a dimension that is declared without one
ANY = (1 << 31) - 1
# a dimension's name on the command line, as ONNX has them: batch_size, seq-len, encoder.length
NAME = r"[^\W\d][\w./-]{0,79}"


@dataclass(frozen=True, slots=True)
class Dim:
    """A dimension whose size each run decides: ``low`` to ``high``, both included, in steps of ``multiple`` from 0 on.

    Dimensions of one name have one size in a run. Raises ``UsageError`` for a name or a range that no size fits.
    """

    name: str
    low: int = 1
    high: int = MOST
    multiple: int = 1

    def __post_init__(self) -> None:
        numbers = (self.low, self.high, self.multiple)
        if not isinstance(self.name, str) or not self.name:
            raise UsageError(f"Dim: a name expected, {quote(self.name)} given", code="GPC2018")
        if any(isinstance(n, bool) or not isinstance(n, int) for n in numbers):
            raise UsageError(f"Dim {quote(self.name)}: whole numbers expected, {quote(numbers)} given", code="GPC2018")
        if self.low < 0 or self.multiple < 1 or self.high > ANY or self.nearest(self.low) > self.high:
            raise UsageError(
                f"Dim {quote(self.name)}: there is no size that is {self.range}; 0 <= low <= high < 2**31 and a multiple "
                "of at least 1 expected",
                code="GPC2018",
            )

    def __str__(self) -> str:
        return self.name

    @property
    def range(self) -> str:
        """The sizes for people: ``32 to 1536, a multiple of 32``."""
        return f"{self.low} to {self.high}" + (f", a multiple of {self.multiple}" if self.multiple > 1 else "")

    def __contains__(self, size: int) -> bool:
        return self.low <= size <= self.high and size % self.multiple == 0

    def nearest(self, size: int) -> int:
        """The smallest size of at least ``size``, or the largest there is."""
        most = self.high // self.multiple * self.multiple
        return max(-(-self.low // self.multiple) * self.multiple, min(-(-size // self.multiple) * self.multiple, most))
