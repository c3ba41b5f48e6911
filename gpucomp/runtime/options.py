"""How one run of a model is done, from ``Executable.run`` to the device's program."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from gpucomp.runtime.stopping import Stop

if TYPE_CHECKING:
    from gpucomp.runtime.context import Context

NONE: Mapping[str, Any] = MappingProxyType({})


class Options(NamedTuple):
    """What a caller of ``run`` wants, besides the results.

    outputs    arrays to write results into
    context    whose memory the run uses, or that of a free lane
    stop       who may end the run
    on_device  results that nobody gave an array for stay in the device's memory
    stream     a CUDA stream of the caller's, in the order of which the run happens
    states     arrays in the device's memory for results that become states
    """

    outputs: Mapping[str, Any] = NONE
    context: Context | None = None
    stop: Stop | None = None
    on_device: bool = False
    stream: Any = None
    states: Mapping[str, Any] = NONE


PLAIN = Options()


def kept(given: Any) -> Any:
    """``given``, or a copy if it is a mapping: the caller may change that while a run waits for its turn."""
    return {**given} if isinstance(given, Mapping) else given
