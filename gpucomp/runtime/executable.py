"""A compiled model: what a user runs, inspects and saves. The devices' programs are in the modules beside this one."""

from __future__ import annotations

import importlib
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gpucomp.artifact.plan import TEMP, Plan
from gpucomp.errors import DeviceError
from gpucomp.runtime import artifact
from gpucomp.runtime.artifact import Contents
from gpucomp.runtime.ceilings import Ceilings, Span
from gpucomp.runtime.inputs import TensorSpec, checked_inputs, flattened, gathered

PROGRAMS = {
    "cpu": ("gpucomp.runtime.cpu", "CpuProgram"),
    "opencl": ("gpucomp.runtime.opencl", "OpenCLProgram"),
    "cuda": ("gpucomp.runtime.cuda", "CudaProgram"),
}


_executables: weakref.WeakSet[Executable] = weakref.WeakSet()


def _after_fork() -> None:
    for executable in _executables:  # the thread that held a lock exists in the parent only
        executable._lock = threading.Lock()
        vars(executable).pop("_dynamic", None)


os.register_at_fork(after_in_child=_after_fork)


class DynamicRunner(Protocol):
    """What of a model waits for values, and runs on what the compiled part gives."""

    @property
    def operators(self) -> tuple[tuple[str, str], ...]: ...

    @property
    def outputs(self) -> tuple[TensorSpec, ...]: ...

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]: ...


class Program(Protocol):
    """A plan on an open device. Made with ``(plan, sources, binaries, weights)``; it may replace arrays by its own copies."""

    def run(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The outputs, in fresh arrays. ``inputs`` are complete, of the right type and contiguous.

        They are numpy arrays; for a CUDA program they may be cupy's.
        """
        ...

    def profile(self, inputs: Mapping[str, Any]) -> list[float]:
        """Seconds of each launch in one run; 0 for what the device cannot time."""
        ...

    def timeline(self, inputs: Mapping[str, Any]) -> tuple[list[float], list[Span]]:
        """What ``profile`` gives, and when each thread of the device worked on each launch of that run."""
        ...

    def ceilings(self) -> Ceilings | None:
        """What the device can do, where it can be measured."""
        ...


@dataclass(frozen=True)
class KernelInfo:
    """One launch: what was compiled and what it swallowed.

    ``family`` is the template's; of a host operator it is ``host``. ``tier`` says who chose the schedule, ``why``
    why the kernel ends where it does. ``entry`` is the function's name: equal layers share one.

    ``operations`` are on numbers of type ``arithmetic``, a multiply-add counted as two; ``traffic`` is the bytes that
    must move at least once. A host operator's are not known: ``None``.
    """

    name: str
    family: str
    ops: tuple[str, ...]
    nodes: tuple[str, ...]
    schedule: Mapping[str, int] = field(default_factory=dict)
    tier: str = ""
    label: str = ""
    why: str = ""
    entry: str = ""
    operations: int | None = None
    traffic: int | None = None
    arithmetic: str = ""


class Executable:
    """A compiled model. ``run`` opens the device on its first call and may be called from several threads.

    Make one with ``gpucomp.compile`` or ``gpucomp.load``.

    ``rest`` is what of the model waits for values, as an ONNX model, where there is such a thing: numpy runs it on the
    host, on what the compiled part gives. ``waiting`` makes what runs it, and the property of that name lists its
    operators; kernels, profiles and bytes are the compiled part's.
    """

    def __init__(
        self,
        plan: Plan,
        sources: Mapping[str, str],
        binaries: Mapping[str, bytes],
        weights: Mapping[str, np.ndarray],
        dynamic_model: bytes = b"",
        open_dynamic: Callable[[Plan, bytes], DynamicRunner] | None = None,
    ) -> None:
        self.plan = plan
        self.sources = sources
        self.binaries = binaries
        self.weights = dict(weights)  # a program may move them
        self.dynamic_model = dynamic_model
        self._open_dynamic = open_dynamic
        self._program: Program | None = None
        self._lock = threading.Lock()  # one arena: runs take turns
        _executables.add(self)

    def __repr__(self) -> str:
        model = f"{self.plan.model!r} " if self.plan.model else ""
        return f"<Executable {model}for {self.plan.target}: {len(self.plan.launches)} kernels>"

    @property
    def target(self) -> str:
        """The target's name, such as ``cpu`` or ``cuda:sm_90a``."""
        return self.plan.target

    @cached_property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Names, element types and shapes that ``run`` takes."""
        found = (self.plan.buffers[p] for p in self.plan.inputs)
        return tuple(TensorSpec(b.name, b.dtype, b.shape) for b in found)

    @cached_property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Names, element types and shapes that ``run`` gives back; an extent that only a run tells is a ``Dim``."""
        if self.dynamic_model:
            return self._dynamic.outputs
        found = zip(self.plan.output_names, (self.plan.buffers[p] for p in self.plan.outputs), strict=True)
        return tuple(TensorSpec(name, b.dtype, b.shape) for name, b in found)

    @property
    def dynamic_operators(self) -> tuple[tuple[str, str], ...]:
        """Operator and name of each ONNX node whose shapes values decide, and of those behind: they run on the host."""
        return self._dynamic.operators if self.dynamic_model else ()

    @cached_property
    def _dynamic(self) -> DynamicRunner:
        assert self._open_dynamic is not None, "who makes an executable with a rest hands it what runs the rest"
        return self._open_dynamic(self.plan, self.dynamic_model)

    @property
    def kernels(self) -> tuple[KernelInfo, ...]:
        """Every launch of a run, in order; operators that run on the host are among them."""
        infos = []
        for launch in self.plan.launches:
            if launch.kernel < 0:
                infos.append(
                    KernelInfo(
                        launch.name or launch.host, "host", launch.ops, launch.nodes, label=launch.host, why=launch.why
                    )
                )
                continue
            kernel = self.plan.kernels[launch.kernel]
            infos.append(
                KernelInfo(
                    launch.name or kernel.name,
                    kernel.family,
                    launch.ops,
                    launch.nodes,
                    kernel.schedule,
                    kernel.tier,
                    kernel.label,
                    launch.why,
                    kernel.name,
                    kernel.operations,
                    kernel.traffic,
                    kernel.arithmetic,
                )
            )
        return tuple(infos)

    @property
    def peak_bytes(self) -> int:
        """Bytes of tensors in memory while it runs: arena, weights, inputs and outputs."""
        return self.plan.arena_bytes + sum(b.nbytes for b in self.plan.buffers if b.kind != TEMP)

    def run(self, inputs: Mapping[str, object]) -> dict[str, Any]:
        """Run the model once: ``{input name: array}`` to ``{output name: numpy array}``.

        A sequence is a list of arrays, or of dicts where it is one of maps, an optional that holds nothing ``None``. An array is
        numpy's, or has ``__dlpack__`` or ``__cuda_array_interface__``. Element types and shapes must be the model's. Raises
        ``InputError`` for a wrong input and ``DeviceError`` when the device cannot run it; where values decide shapes,
        ``ModelError`` and ``UnsupportedError`` for values that lead to what cannot be computed.
        """
        arrays = self._checked(inputs)
        with self._lock:
            results = self._opened().run(arrays)
        found = gathered(results, self.plan.output_containers)
        return self._dynamic.run(found) if self.dynamic_model else found

    def _checked(self, inputs: Mapping[str, object]) -> dict[str, Any]:
        flat = flattened(inputs, self.plan.input_containers)
        return checked_inputs(flat, self.inputs, on_gpu=self.plan.kind == "cuda")  # type: ignore[arg-type]

    def profile(self, inputs: Mapping[str, object]) -> list[tuple[KernelInfo, float]]:
        """Seconds that each kernel took in one run; 0 for operators on the host of a device. Raises as ``run``."""
        arrays = self._checked(inputs)
        with self._lock:
            return list(zip(self.kernels, self._opened().profile(arrays), strict=True))

    def timeline(self, inputs: Mapping[str, object]) -> tuple[list[float], list[Span]]:
        """Seconds of every launch of one run, and when each thread was busy with which launch. Raises as ``run``."""
        arrays = self._checked(inputs)
        with self._lock:
            return self._opened().timeline(arrays)

    def ceilings(self) -> Ceilings | None:
        """Peak arithmetic and bandwidth of the device's threads, measured now; ``None`` where that is not possible."""
        with self._lock:
            return self._opened().ceilings()

    def save(self, path: str | Path) -> None:
        """Write the model as one ``.gpuc`` file, whole or not at all; ``gpucomp.load`` reads it."""
        artifact.save(path, Contents(self.plan, self.sources, self.binaries, self.weights, self.dynamic_model))

    def _opened(self) -> Program:
        if self._program is None:
            module, name = PROGRAMS[self.plan.kind]
            program = getattr(importlib.import_module(module), name)
            try:
                self._program = program(self.plan, self.sources, self.binaries, self.weights)
            except MemoryError:
                raise DeviceError(
                    f"{self.plan.target}: the model needs {self.peak_bytes} bytes, which are not there", code="GPC5013"
                ) from None
        assert self._program is not None
        return self._program
