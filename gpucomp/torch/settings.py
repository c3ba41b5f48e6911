"""The ``options`` of ``torch.compile(..., backend="gpucomp", options={...})``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpucomp import targets
from gpucomp.errors import UsageError, quote
from gpucomp.ir.precision import PRECISIONS
from gpucomp.kernel.passes import precision
from gpucomp.runtime.specialise import require_specialise


@dataclass(frozen=True)
class Settings:
    """How graphs are compiled: as the arguments of ``gpucomp.compile``, and

    target  "" is the device of the tensors: ``cpu`` or ``cuda``
    strict  a graph that cannot be compiled raises, where it would run in eager otherwise
    verify  the first call of each graph is computed in eager too; a graph with other results stays in eager
    least   parts of fewer operators than this stay in eager, if a graph must be cut
    """

    target: str = ""
    precision: str = "fp32"
    keep_fp32: Sequence[str] = ()
    records: Any = None
    specialise: str = "never"
    strict: bool = False
    verify: bool = False
    least: int = 4

    @staticmethod
    def of(options: Mapping[str, Any] | None) -> Settings:
        """Raises ``UsageError`` (GPC2053) for an option that does not exist, or a value of another type; for values that
        ``gpucomp.compile`` does not take, what it raises.
        """
        given = {} if options is None else options
        if not isinstance(given, Mapping):
            raise UsageError(f"options: a dict expected, found {type(given).__name__}", code="GPC2053")
        fields = {field.name: field.default for field in dataclasses.fields(Settings)}
        if unknown := [name for name in given if name not in fields]:
            raise UsageError(
                f"options: there is no option {quote(unknown[0])}; options are {', '.join(fields)}", code="GPC2053"
            )
        for name, value in given.items():
            usual = fields[name]
            if isinstance(usual, str | bool | int) and type(value) is not type(usual):
                raise UsageError(
                    f"options: {name}: {type(usual).__name__} expected, found {quote(value)}", code="GPC2053"
                )
        found = Settings(**given)
        require_specialise(found.specialise, (), True)
        if found.target:
            device = targets.resolve(found.target)
            precision.require(found.precision, device.features, device.name)
        elif found.precision not in PRECISIONS:
            precision.require(found.precision, frozenset(), "cpu")
        return found

    def arguments(self, any_size: bool) -> dict[str, Any]:
        """Those of ``gpucomp.compile``; only a graph of any size has others to specialise for."""
        found = {"precision": self.precision, "keep_fp32": self.keep_fp32, "records": self.records}
        return found | ({"specialise": self.specialise} if any_size else {})
