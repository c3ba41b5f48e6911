"""Host operators: launches that run an operator's numpy reference between two kernels. Every device's program uses it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpucomp.errors import DeviceError, quote
from gpucomp.ir.types import DTYPES
from gpucomp.runtime.plan import Launch, Plan


def run_host(plan: Plan, launch: Launch, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of a host launch, contiguous and of the plan's types.

    Raises ``DeviceError`` when the operator is unknown here or gives another shape than the plan has room for.
    """
    from gpucomp.ops.registry import OPS  # a model without host operators loads without the operators

    operator = OPS.get(launch.host)
    if operator is None or operator.reference is None:
        raise DeviceError(f"{launch.name}: no host operator {launch.host!r} in this version", code="GPC5011")
    try:
        found = operator.reference(*operands, **launch.attributes)
    except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, MemoryError) as error:
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
        if array.dtype != DTYPES[buffer.dtype].numpy:
            raise DeviceError(
                f"{launch.name}: {launch.host} gave {array.dtype}, the plan has {buffer.dtype}", code="GPC5012"
            )
        arrays.append(np.ascontiguousarray(array))
    return arrays
