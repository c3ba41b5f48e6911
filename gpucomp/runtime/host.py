"""Host operators: launches that run an operator's numpy reference between two kernels. Every device's program uses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gpucomp.errors import DeviceError, quote
from gpucomp.ir.types import NAMED, STRING
from gpucomp.runtime.plan import WEIGHT, Launch, Plan


class Strings:
    """The string tensors of a program, by the position of their buffer: they have no bytes on a device.

    ``arrays`` holds those that there are at this point of a run, constants always.
    """

    def __init__(self, plan: Plan, weights: Mapping[str, np.ndarray]) -> None:
        self.positions = frozenset(k for k, b in enumerate(plan.buffers) if b.dtype == STRING.name)
        self.arrays = {k: weights[plan.buffers[k].name] for k in self.positions if plan.buffers[k].kind == WEIGHT}

    def __contains__(self, position: int) -> bool:
        return position in self.positions

    def bind(self, plan: Plan, inputs: Mapping[str, np.ndarray]) -> None:
        """Take the inputs of a run."""
        for position in plan.inputs:
            if position in self.positions:
                self.arrays[position] = inputs[plan.buffers[position].name]


def run_host(plan: Plan, launch: Launch, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of a host launch, contiguous and of the plan's types.

    Raises ``DeviceError`` when the operator is unknown here, refuses the values, or gives another shape than the plan has
    room for.
    """
    from gpucomp.ops import OPS  # a model without host operators loads without the operators

    operator = OPS.get(launch.host)
    if operator is None or operator.reference is None:
        raise DeviceError(f"{launch.name}: no host operator {launch.host!r} in this version", code="GPC5011")
    try:
        with np.errstate(all="ignore"):
            found = operator.reference(*operands, **launch.attributes)
    except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, MemoryError, RuntimeError) as error:
        # a plan from a file may hold any operands and attributes
        raise DeviceError(
            f"{launch.name}: {launch.host} failed: {type(error).__name__}: {quote(error)}", code="GPC5012"
        ) from error
    results = list(found) if isinstance(found, tuple) else [found]
    expected = [plan.buffers[a] for a in launch.args[launch.inputs :]]
    if len(results) != len(expected):
        raise DeviceError(
            f"{launch.name}: {launch.host} gave {len(results)} results, the plan has {len(expected)}", code="GPC5012"
        )
    arrays = []
    for array, buffer in zip(results, expected, strict=True):
        if tuple(array.shape) != buffer.shape:
            raise DeviceError(
                f"{launch.name}: {launch.host} gave shape {list(array.shape)}, the plan has {list(buffer.shape)}",
                code="GPC5012",
            )
        if array.dtype != NAMED[buffer.dtype].numpy:
            raise DeviceError(
                f"{launch.name}: {launch.host} gave {array.dtype}, the plan has {buffer.dtype}", code="GPC5012"
            )
        arrays.append(np.ascontiguousarray(array).reshape(buffer.shape))
    return arrays
