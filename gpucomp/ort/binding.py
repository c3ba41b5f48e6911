"""Inputs and outputs that are bound once, and run many times without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpucomp.ort.model import numpy_type
from gpucomp.ort.values import OrtValue, array_at

if TYPE_CHECKING:
    from gpucomp.ort.session import Session


class IOBinding:
    """The inputs and outputs of runs by ``session.run_with_iobinding``.

    An output that is bound to memory is written there. One that is bound to ``cuda`` alone stays in the GPU's memory if all are.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.inputs: dict[str, Any] = {}
        self.outputs: dict[str, tuple[str, Any]] = {}  # the device, and the memory if there is any
        self.results: dict[str, Any] = {}

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Bind an input to a numpy array. Raises ``RuntimeError`` for a name that is no input."""
        self._require(name, self.session.get_inputs())
        self.inputs[name] = arr_on_cpu

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Bind an input to memory at an address. ``element_type`` is a numpy type or a number of ONNX."""
        self._require(name, self.session.get_inputs())
        self.inputs[name] = array_at(buffer_ptr, device_type, shape, _dtype(element_type))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        self._require(name, self.session.get_inputs())
        self.inputs[name] = ortvalue.value

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Bind an output to memory at an address, or to a device, where each run makes an array. Raises ``ValueError``."""
        if buffer_ptr is None:
            self._bind(name, device_type, None)
            return
        if element_type is None or shape is None:
            raise ValueError("`element_type` and `shape` are to be provided if pre-allocated memory is provided")
        self._bind(name, device_type, array_at(buffer_ptr, device_type, shape, _dtype(element_type)))

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        self._bind(name, ortvalue.device_name(), ortvalue.value)

    def _bind(self, name: str, device: str, memory: Any) -> None:
        self.outputs[name] = device, memory
        self.results.pop(name, None)

    def synchronize_inputs(self) -> None:
        """Without effect: a run waits for its inputs."""

    def synchronize_outputs(self) -> None:
        """Without effect: results are complete when a run returns."""

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the last run, in the order in which they were bound; those that no run gave yet as they were bound."""
        return [OrtValue(self.results.get(name, memory)) for name, (_, memory) in self.outputs.items()]

    def get_outputs_as_ortvaluevector(self) -> list[OrtValue]:
        return self.get_outputs()

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Copies of the outputs of the last run as numpy arrays, or as lists and dicts of them. No later run writes to them."""
        return [np.array(one.numpy()) if one.is_tensor() else one.value for one in self.get_outputs()]

    def clear_binding_inputs(self) -> None:
        self.inputs.clear()

    def clear_binding_outputs(self) -> None:
        self.outputs.clear()
        self.results = {}

    def _require(self, name: str, known: Sequence[Any]) -> None:
        if all(arg.name != name for arg in known):
            raise RuntimeError(f"Failed to find NodeArg with name: {name} in the def list")


def _dtype(element_type: Any) -> np.dtype:
    return numpy_type(element_type) if isinstance(element_type, int) else np.dtype(element_type)
