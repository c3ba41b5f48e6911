"""A compiled model, which a user runs, inspects and saves. The devices' programs are in the modules beside this one."""

from __future__ import annotations

import importlib
import os
import threading
import weakref
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar, cast

import numpy as np

from gpucomp.artifact.open_plan import Sized
from gpucomp.artifact.plan import TEMP, Plan
from gpucomp.errors import DeviceError, UsageError, quote, several
from gpucomp.runtime import artifact
from gpucomp.runtime.artifact import Contents
from gpucomp.runtime.ceilings import Ceilings, Span
from gpucomp.runtime.inputs import TensorSpec, checked_inputs, flattened, gathered

PROGRAMS = {
    "cpu": ("gpucomp.runtime.cpu", "CpuProgram"),
    "opencl": ("gpucomp.runtime.opencl", "OpenCLProgram"),
    "cuda": ("gpucomp.runtime.cuda", "CudaProgram"),
}


_with_locks: weakref.WeakSet[Executable | Shared] = weakref.WeakSet()


def _after_fork() -> None:
    for one in _with_locks:
        one.reset()


os.register_at_fork(after_in_child=_after_fork)


# what other libraries call it, and what it is here
ELSEWHERE = {
    "get_inputs": "exe.inputs has the name, type and shape of each input",
    "get_outputs": "exe.outputs has the name, type and shape of each output",
    "get_providers": "exe.target is what the model is compiled for",
    "forward": "run the model by exe.run({name: array})",
    "infer": "run the model by exe.run({name: array})",
    "predict": "run the model by exe.run({name: array})",
    "run_with_iobinding": "exe.run({name: array}) takes arrays on a GPU, and gives numpy arrays",
    "run_async": "exe.run({name: array}) may be called from a thread of yours",
}
Method = TypeVar("Method", bound=Callable[..., Any])


def takes_a_feed(method: Method) -> Method:
    """Say how ``method`` is called if it is called in another library's way: with outputs' names, or inputs as keywords."""

    @wraps(method)
    def called(self: Executable, *given: object, **named: object) -> Any:
        if (len(given), list(named)) not in ((1, []), (0, ["inputs"])):
            self._refuse_call(method.__name__)
        return method(self, *given, **named)

    return cast("Method", called)


class DynamicRunner(Protocol):
    """Runs the dynamic part of a model on the outputs of the compiled part."""

    @property
    def operators(self) -> tuple[tuple[str, str], ...]: ...

    @property
    def outputs(self) -> tuple[TensorSpec, ...]: ...

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]: ...


class Program(Protocol):
    """A plan on an open device. Made with ``(plan, sources, binaries, weights)``; it may replace arrays in ``weights``."""

    def resized(self, sized: Sized) -> Program:
        """A program for other sizes, which shares what this one has opened."""
        ...

    def run(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The outputs, in fresh arrays. ``inputs`` must be complete, of the right type and contiguous.

        They are numpy arrays; for a CUDA program they can be cupy arrays.
        """
        ...

    def profile(self, inputs: Mapping[str, Any]) -> list[float]:
        """Seconds of each launch in one run; 0 for a launch that the device cannot time."""
        ...

    def timeline(self, inputs: Mapping[str, Any]) -> tuple[list[float], list[Span]]:
        """The seconds of ``profile``, and when each thread of the device worked on each launch of that run."""
        ...

    def ceilings(self) -> Ceilings | None:
        """Measured peaks of the device; ``None`` if they cannot be measured."""
        ...


@dataclass(frozen=True)
class KernelInfo:
    """One launch, in a loop with all its steps (``x128`` in its label): its kernel and the operators in it.

    ``family`` is the kernel's family, or ``host`` for a host operator. ``tier`` says who chose the schedule, and ``why``
    says why the kernel ends where it does. ``entry`` is the function's name; equal layers share one.

    ``operations`` are on numbers of type ``arithmetic``, with a multiply-add counted as two. ``traffic`` is the bytes that
    must move at least once. Both are ``None`` for a host operator, and for a kernel whose sizes each run decides. In a loop,
    what every step uses anew counts once if it stays in the target's cache, and ``held`` is its size if it does not.
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
    held: int = 0


def kernels_of(plan: Plan, varying: Container[str] = ()) -> tuple[KernelInfo, ...]:
    """Every launch of a plan, in order. What kernels named in ``varying`` do, and move, is known for other sizes only."""
    infos = []
    held = _held(plan)
    for number, (launch, count) in enumerate(zip(plan.launches, plan.counts(), strict=True)):
        if launch.kernel < 0:
            name = launch.name or launch.host
            infos.append(KernelInfo(name, "host", launch.ops, launch.nodes, label=launch.host, why=launch.why))
            continue
        kernel = plan.kernels[launch.kernel]
        own, whole = held.get(number, (0, 0))
        cached = whole <= plan.cache_bytes
        again = min(own, kernel.traffic) if cached else 0  # bytes of a step that are in the cache after the first one
        infos.append(
            KernelInfo(
                launch.name or kernel.name,
                kernel.family,
                launch.ops,
                launch.nodes,
                kernel.schedule,
                kernel.tier,
                kernel.label if count == 1 else f"{kernel.label or kernel.name} x{count}",
                launch.why,
                kernel.name,
                None if kernel.name in varying else kernel.operations * count,
                None if kernel.name in varying else kernel.traffic * count - again * max(count - 1, 0),
                kernel.arithmetic,
                0 if cached else whole,
            )
        )
    return tuple(infos)


def _held(plan: Plan) -> dict[int, tuple[int, int]]:
    """For each launch in a loop: the bytes of its buffers that do not advance, and of those of the whole loop."""
    found: dict[int, tuple[int, int]] = {}
    for repeat in plan.repeats:
        launches = range(repeat.first, repeat.last)
        each = [
            {place for place, advance in zip(plan.launches[number].args, advances, strict=True) if not advance}
            for number, advances in zip(launches, repeat.advances, strict=True)
        ]
        sizes = {place: plan.buffers[place].nbytes for place in set().union(*each)}
        for number, places in zip(launches, each, strict=True):
            found[number] = sum(sizes[place] for place in places), sum(sizes.values())
    return found


class Shared:
    """What the executables of one model at several sizes share: its weights, and the first program that was opened."""

    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        self.weights = dict(weights)  # a copy, as a program may replace arrays in it
        self.program: Program | None = None
        self.reset()
        _with_locks.add(self)

    def reset(self) -> None:
        """Make a fresh lock, for a process that was forked."""
        self.lock = threading.Lock()  # only one opens the first


class Executable:
    """A compiled model. ``run`` opens the device on its first call and may be called from several threads.

    Make one with ``gpucomp.compile`` or ``gpucomp.load``.

    ``dynamic_model`` is the dynamic part of the model as an ONNX model, or empty. ``open_dynamic`` makes its runner, which
    computes it on the host from the outputs of the compiled part; ``dynamic_operators`` lists its operators. Kernels,
    profiles and byte counts are those of the compiled part.
    """

    def __init__(
        self,
        plan: Plan | Sized,
        sources: Mapping[str, str],
        binaries: Mapping[str, bytes],
        weights: Mapping[str, np.ndarray],
        dynamic_model: bytes = b"",
        open_dynamic: Callable[[Plan, bytes], DynamicRunner] | None = None,
        shared: Shared | None = None,
    ) -> None:
        """``shared`` is what executables of the same model for other sizes use too; its weights replace ``weights``."""
        self._plan, self._common = plan, shared
        self._form = plan if isinstance(plan, Plan) else plan.form  # right where all sizes are alike
        self.sources = sources
        self.binaries = binaries
        # a copy, as a program may replace arrays in it
        self.weights: dict[str, np.ndarray] = dict(weights) if shared is None else shared.weights
        self.dynamic_model = dynamic_model
        self._open_dynamic = open_dynamic
        self._program: Program | None = None
        self.reset()
        self._remember()

    def reset(self) -> None:
        """Make fresh locks, for a process that was forked: one may be held by a thread that the child does not have."""
        self._lock = threading.Lock()  # one arena: runs take turns
        vars(self).pop("_dynamic", None)

    def _remember(self) -> None:
        _with_locks.add(self)

    @property
    def plan(self) -> Plan:
        """Buffers, kernels and launches."""
        return self._plan if isinstance(self._plan, Plan) else self._plan.plan

    def __repr__(self) -> str:
        model = f"{self._form.model!r} " if self._form.model else ""
        return f"<Executable {model}for {self._form.target}: {several(len(self._form.launches), 'kernel')}>"

    if not TYPE_CHECKING:  # a type checker has to find names that do not exist

        def __getattr__(self, name: str) -> NoReturn:
            if name in ELSEWHERE:
                told = f"an Executable has no attribute {name!r}: {ELSEWHERE[name]}"
                raise AttributeError(told, name=name, obj=self)
            object.__getattribute__(self, name)  # raises what is usual, also the error of a property

    def __call__(self, *given: object, **named: object) -> NoReturn:
        """Not how a model is run: raises ``UsageError`` that says how."""
        self._refuse_call("run")

    def _refuse_call(self, method: str) -> NoReturn:
        feed = ", ".join(f"{spec.name!r}: array" for spec in self.inputs[:4]) + (", ..." if self.inputs[4:] else "")
        raise UsageError(
            f"one dict of the inputs expected: exe.{method}({{{feed}}}); exe.inputs has names, types and shapes",
            code="GPC2016",
        )

    @property
    def target(self) -> str:
        """The target's name, such as ``cpu`` or ``cuda:sm_90a``."""
        return self._form.target

    @cached_property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Names, element types and shapes of the inputs of ``run``."""
        found = (self.plan.buffers[p] for p in self.plan.inputs)
        return tuple(TensorSpec(b.name, b.dtype, b.shape) for b in found)

    @cached_property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Names, element types and shapes of the outputs of ``run``; an extent that only a run decides is a ``Dim``."""
        if self.dynamic_model:
            return self._dynamic.outputs
        found = zip(self.plan.output_names, (self.plan.buffers[p] for p in self.plan.outputs), strict=True)
        return tuple(TensorSpec(name, b.dtype, b.shape) for name, b in found)

    @property
    def dynamic_operators(self) -> tuple[tuple[str, str], ...]:
        """Operator and name of the ONNX nodes that run on the host: their shapes depend on values, or they are behind such."""
        return self._dynamic.operators if self.dynamic_model else ()

    @cached_property
    def _dynamic(self) -> DynamicRunner:
        assert self._open_dynamic is not None, "an executable with a dynamic model needs open_dynamic"
        return self._open_dynamic(self.plan, self.dynamic_model)

    @property
    def kernels(self) -> tuple[KernelInfo, ...]:
        """Every launch of a run, in order, host operators included."""
        return kernels_of(self.plan, () if isinstance(self._plan, Plan) else self._plan.varying)

    @property
    def peak_bytes(self) -> int:
        """Bytes of tensors in memory during a run: arena, weights, inputs and outputs."""
        return self.plan.arena_bytes + sum(b.nbytes for b in self.plan.buffers if b.kind != TEMP)

    @takes_a_feed
    def run(self, inputs: Mapping[str, object]) -> dict[str, Any]:
        """Run the model once: ``{input name: array}`` to ``{output name: numpy array}``.

        A sequence is a list of arrays, or a list of dicts if its elements are maps. An optional that holds nothing is ``None``.
        An array is a numpy array, or has ``__dlpack__`` or ``__cuda_array_interface__``. Element types and shapes must be the
        model's. Raises ``InputError`` for a wrong input, and ``DeviceError`` if the device cannot run the model. In a model
        with a dynamic part, values that lead to something invalid or unsupported raise ``ModelError`` or
        ``UnsupportedError``.
        """
        return self.run_checked(self._checked(inputs))

    def run_checked(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """As ``run``, on arrays that were checked: complete, contiguous and of the right types and shapes."""
        with self._lock:
            try:
                results = self._opened().run(arrays)
            except MemoryError:
                raise self._no_memory() from None
        found = gathered(results, self._form.output_containers)
        return self._dynamic.run(found) if self.dynamic_model else found

    def _checked(self, inputs: Mapping[str, object]) -> dict[str, Any]:
        flat = flattened(inputs, self.plan.input_containers)
        return checked_inputs(flat, self.inputs, on_gpu=self.plan.kind == "cuda")  # type: ignore[arg-type]

    @takes_a_feed
    def profile(self, inputs: Mapping[str, object]) -> list[tuple[KernelInfo, float]]:
        """Seconds of each kernel in one run; 0 for host operators on a GPU. Raises the same errors as ``run``."""
        arrays = self._checked(inputs)
        with self._lock:
            return list(zip(self.kernels, self._opened().profile(arrays), strict=True))

    @takes_a_feed
    def timeline(self, inputs: Mapping[str, object]) -> tuple[list[float], list[Span]]:
        """Seconds of each launch in one run, and when each thread was busy with which launch. Raises the errors of ``run``."""
        arrays = self._checked(inputs)
        with self._lock:
            return self._opened().timeline(arrays)

    def ceilings(self) -> Ceilings | None:
        """Peak arithmetic and bandwidth of the device's threads, measured now; ``None`` if that is not possible."""
        with self._lock:
            return self._opened().ceilings()

    def save(self, path: str | Path) -> None:
        """Write the model as one file, completely or not at all; ``gpucomp.load`` reads it.

        Its name must end in ``.gpuc``, by which the command line knows a compiled model: else ``UsageError``.
        """
        if Path(path).suffix != ".gpuc":
            raise UsageError(f"{quote(path)}: a name that ends in .gpuc expected", code="GPC2008")
        artifact.save(path, self.contents())

    def contents(self) -> Contents:
        """What a file holds."""
        return Contents(self.plan, self.sources, self.binaries, self.weights, self.dynamic_model)

    def open(self) -> None:
        """Open the device now rather than on the first run. Raises ``DeviceError`` if it cannot run the model."""
        with self._lock:
            self._opened()

    def _no_memory(self) -> DeviceError:
        return DeviceError(
            f"{self.plan.target}: the model needs {self.peak_bytes} bytes of memory, which are not available",
            code="GPC5013",
        )

    def _opened(self) -> Program:
        if self._program is None:
            try:
                self._program = self._new_program() if self._common is None else self._open_shared(self._common)
            except MemoryError:
                raise self._no_memory() from None
        return self._program

    def _open_shared(self, shared: Shared) -> Program:
        """A program that uses what the first has opened. One that could not be opened is no first."""
        with shared.lock:
            if shared.program is None:
                shared.program = self._new_program()
                return shared.program
        assert isinstance(self._plan, Sized), "executables that share are of one open plan"
        return shared.program.resized(self._plan)

    def _new_program(self) -> Program:
        module, name = PROGRAMS[self._form.kind]
        program: Program = getattr(importlib.import_module(module), name)(
            self.plan, self.sources, self.binaries, self.weights
        )
        return program
