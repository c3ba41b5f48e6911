"""Host operators: launches that run an operator's numpy reference between two kernels. Used for every device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from gpucomp.artifact.plan import WEIGHT, Buffer, Launch, Plan
from gpucomp.errors import DeviceError, ShapeError, quote
from gpucomp.ir.types import NAMED, STRING, TensorType

if TYPE_CHECKING:
    from gpucomp.ir.graph import Op

# what numpy and operators raise for operands and attributes that do not fit: a plan from a file may have any
UNFIT = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
)


class Strings:
    """The string tensors of a program, by buffer position. They have no bytes on a device.

    ``arrays`` holds the constants and those that exist at this point of a run.
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


def bytes_of(array: np.ndarray) -> np.ndarray:
    """The bytes of an array of numbers in the order of C: of the same memory if it is in that order."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def check_host(plan: Plan) -> None:
    """Raise ``DeviceError`` unless every host operator of the plan is known and its results match the plan's buffers.

    Only type rules are evaluated, and nothing runs: attributes in a file may ask for any amount of time or memory.
    """
    for launch in plan.launches:
        if launch.kernel >= 0:
            continue
        from gpucomp.ir.graph import infer

        operator = _operator(launch)
        types = [_type(plan.buffers[a]) for a in launch.args]
        try:
            found = infer(operator, types[: launch.inputs], launch.attributes)
        except (ShapeError, *UNFIT) as error:
            raise DeviceError(f"{launch.name}: {launch.host} failed: {quote(error)}", code="GPC5018") from error
        if list(found) != types[launch.inputs :]:
            raise DeviceError(
                f"{launch.name}: {launch.host} gives {', '.join(map(str, found))}, the plan has "
                f"{', '.join(map(str, types[launch.inputs :]))}",
                code="GPC5018",
            )


def numbers_of(buffer: Buffer) -> np.ndarray:
    """The contents of a buffer of numbers, which each run decides."""
    return np.array(buffer.numbers, NAMED[buffer.dtype].numpy).reshape(buffer.shape)


def _type(buffer: Buffer) -> TensorType:
    return TensorType(NAMED[buffer.dtype], buffer.shape)


def _operator(launch: Launch) -> Op:
    from gpucomp.ops import OPS  # imported late: a model without host operators does not need the operators

    operator = OPS.get(launch.host)
    if operator is None or "reference" not in operator.meaning:
        raise DeviceError(f"{launch.name}: no host operator {launch.host!r} in this version", code="GPC5017")
    return operator


def run_host(plan: Plan, launch: Launch, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Run a host launch; return its results, contiguous and of the plan's types.

    Raises ``DeviceError`` if this version does not know the operator, if the operator refuses the values, or if a result has
    another type or shape than the plan.
    """
    operator = _operator(launch)
    try:
        with np.errstate(all="ignore"):
            found = operator.reference(*operands, **launch.attributes)
    except UNFIT as error:
        raise DeviceError(
            f"{launch.name}: {launch.host} failed: {type(error).__name__}: {quote(error)}", code="GPC5012"
        ) from error
    results = list(found) if isinstance(found, tuple) else [found]
    expected = [plan.buffers[a] for a in launch.args[launch.inputs :]]
    if len(results) != len(expected):
        raise DeviceError(
            f"{launch.name}: {launch.host} gave {len(results)} results, the plan has {len(expected)}", code="GPC5018"
        )
    arrays = []
    for array, buffer in zip(results, expected, strict=True):
        if tuple(array.shape) != buffer.shape:
            raise DeviceError(
                f"{launch.name}: {launch.host} gave shape {list(array.shape)}, the plan has {list(buffer.shape)}",
                code="GPC5018",
            )
        if array.dtype != NAMED[buffer.dtype].numpy:
            raise DeviceError(
                f"{launch.name}: {launch.host} gave {array.dtype}, the plan has {buffer.dtype}", code="GPC5018"
            )
        arrays.append(np.ascontiguousarray(array).reshape(buffer.shape))
    return arrays
