"""gpucomp as an ONNX backend (``onnx.backend.base``), so that ONNX's own conformance suite can run on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend as OnnxBackend
from onnx.backend.base import BackendRep

from gpucomp.errors import UsageError
from gpucomp.frontend.onnx import deciding_inputs

Run = Callable[[Mapping[str, Any]], Mapping[str, Any]]
TARGETS = {"CPU": "cpu", "CUDA": "cuda", "OPENCL": "opencl"}


def compiled(model: onnx.ModelProto, target: str, shapes: Mapping[str, Any], constants: Mapping[str, Any]) -> Run:
    """``model`` compiled for ``target`` with these input shapes; the inputs in ``constants`` are fixed."""
    from gpucomp import compiler  # the compiler and its targets load only when something is compiled

    return compiler.compile(model, target=target, shapes=shapes, constants=constants).run


class Prepared(BackendRep):
    """A model that can be run. ONNX models leave shapes open; it is compiled once for each set of input shapes."""

    def __init__(self, model: onnx.ModelProto, target: str, compile: Callable[..., Run]) -> None:
        self.model = model
        self.target = target
        self.compile = compile
        initialised = {t.name for t in model.graph.initializer}
        self.input_names = [i.name for i in model.graph.input if i.name not in initialised]
        self.made_up = {i.name for i in model.graph.input if not i.type.HasField("tensor_type")}
        self.output_names = [o.name for o in model.graph.output]
        self._compiled: dict[Any, tuple[Run, frozenset[str]]] = {}

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs, in the model's order. ``inputs`` is a mapping, one array, or values in the model's order.

        A sequence is a list of arrays; an optional that holds nothing is ``None``.
        """
        feed, run, left_out = self._ready(inputs)
        outputs = run({name: a for name, a in feed.items() if name not in left_out})
        return tuple(outputs[name] for name in self.output_names)

    def executable(self, inputs: Any) -> Run:
        """The compiled model that ``run`` would use for ``inputs``."""
        return self._ready(inputs)[1]

    def _ready(self, inputs: Any) -> tuple[dict[str, Any], Run, frozenset[str]]:
        feed = self._named(inputs)
        shapes = {name: _shape(a) for name, a in feed.items()}
        fixed = deciding_inputs(self.model, shapes=shapes, values=feed)
        key = (
            tuple((name, shapes[name]) for name in sorted(shapes)),
            tuple((name, _content(fixed[name])) for name in sorted(fixed)),
        )
        if key not in self._compiled:
            self._compiled[key] = self.compile(self.model, self.target, shapes, fixed), frozenset(fixed)
        return feed, *self._compiled[key]

    def _named(self, inputs: Any) -> dict[str, Any]:
        if isinstance(inputs, Mapping):
            return {name: self._value(name, a) for name, a in inputs.items()}
        arrays = list(inputs) if isinstance(inputs, Sequence) and not isinstance(inputs, np.ndarray) else [inputs]
        if len(arrays) > len(self.input_names):
            raise UsageError(f"{len(arrays)} inputs given, the model has {len(self.input_names)}")
        return {name: self._value(name, a) for name, a in zip(self.input_names, arrays, strict=False)}

    def _value(self, name: str, value: Any) -> Any:
        if name not in self.made_up:
            return np.asarray(value)
        return [np.asarray(v) for v in value] if isinstance(value, (list, tuple)) else value


def _shape(value: Any) -> Any:
    """The shape of an array, of each array of a list, or ``None``."""
    if isinstance(value, list):
        return tuple(a.shape for a in value)
    return None if value is None else value.shape


def _content(value: Any) -> Any:
    """A key that is equal for equal values only."""
    if isinstance(value, list):
        return tuple(_content(a) for a in value)
    if value is None:
        return None
    return value.dtype.str, tuple(value.reshape(-1).tolist()) if value.dtype == object else value.tobytes()


class Backend(OnnxBackend):
    """``prepare`` and ``run_model`` as ``onnx.backend.base`` describes them; devices are CPU, CUDA and OPENCL."""

    compile = staticmethod(compiled)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Prepared:
        if not cls.supports_device(device):
            raise UsageError(f"device {device!r}: one of {', '.join(TARGETS)} expected", code="GPC2103")
        return Prepared(model, TARGETS[device.partition(":")[0].upper()], cls.compile)

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.partition(":")[0].upper() in TARGETS


prepare = Backend.prepare
run_model = Backend.run_model
supports_device = Backend.supports_device
