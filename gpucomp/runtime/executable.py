"""A compiled model, which a user runs, inspects and saves. The devices' programs are in the modules beside this one."""

from __future__ import annotations

import importlib
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol

import numpy as np

from gpucomp.artifact.open_plan import Sized
from gpucomp.artifact.plan import TEMP, Buffer, Plan
from gpucomp.errors import DeviceError, InputError, UsageError, quote, several
from gpucomp.ir.state import State
from gpucomp.runtime import artifact, self_test
from gpucomp.runtime import outputs as results
from gpucomp.runtime.artifact import Contents
from gpucomp.runtime.calls import ELSEWHERE, takes_a_feed
from gpucomp.runtime.ceilings import Ceilings, Span
from gpucomp.runtime.copies import counted
from gpucomp.runtime.inputs import TensorSpec, as_they_are, checked_inputs, flattened, gathered
from gpucomp.runtime.kernel_info import KernelInfo, kernels_of
from gpucomp.runtime.lanes import MOST_ON_A_GPU, Lane, Lanes
from gpucomp.runtime.options import NONE, PLAIN, Options, kept
from gpucomp.runtime.states import States, StateSpec, begun_with, held_by, refuse_one_size, state_spec
from gpucomp.runtime.stopping import Stop, stop_after
from gpucomp.runtime.workers import available_threads

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from gpucomp.runtime.context import Context
    from gpucomp.runtime.pending import Pending

PROGRAMS = {
    "cpu": ("gpucomp.runtime.cpu", "CpuProgram"),
    "opencl": ("gpucomp.runtime.opencl", "OpenCLProgram"),
    "cuda": ("gpucomp.runtime.cuda", "CudaProgram"),
    "hip": ("gpucomp.runtime.hip", "HipProgram"),
}


NO_SIZES: Mapping[str, int] = {}
_with_locks: weakref.WeakSet[Executable] = weakref.WeakSet()


def _after_fork() -> None:
    for one in _with_locks:
        one.reset()


os.register_at_fork(after_in_child=_after_fork)


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
        """A program for other sizes, which shares what this one has opened, its memory too: runs of both take turns."""
        ...

    def beside(self) -> Program:
        """The same program in memory of its own. It may run at the same time, and shares what no run changes."""
        ...

    def run(self, inputs: Mapping[str, Any], how: Options) -> dict[str, Any]:
        """The outputs: in fresh arrays, or written into those of ``how.outputs``, by name, which need not be complete.

        Raises ``RunStoppedError`` if ``how.stop`` says so before the end.

        ``inputs`` must be complete. All arrays must be of the right type and contiguous. Those of ``how.outputs`` must be aligned
        and share no memory with another. They are numpy arrays; they can be cupy arrays for a CUDA program, and pyopencl's for an
        OpenCL program, which raises ``InputError`` for one in another context.
        """
        ...

    def profile(self, inputs: Mapping[str, Any]) -> list[float]:
        """Seconds of each launch in one run; 0 for a launch that the device cannot time."""
        ...

    def timeline(self, inputs: Mapping[str, Any]) -> tuple[list[float], list[Span]]:
        """The seconds of ``profile``, and when each thread of the device worked on each launch of that run."""
        ...

    def zeros(self, shape: Sequence[int], dtype: Any) -> Any:
        """A fresh array of zeros in the device's memory, complete, which ``run`` reads and writes without a copy.

        It is numpy's on a processor, pyopencl's or cupy's on these devices, ``hip_arrays.Array`` for HIP. ``shape`` is in
        elements, ``dtype`` any that numpy takes, of numbers. Raises ``DeviceError`` if memory is exhausted, or the library has
        no arrays of that type.
        """
        ...

    def ceilings(self) -> Ceilings | None:
        """Measured peaks of the device; ``None`` if they cannot be measured."""
        ...


class Executable:
    """A compiled model. ``run`` opens the device on its first call and may be called from several threads.

    Make one with ``gpucomp.compile`` or ``gpucomp.load``.

    ``dynamic_model`` is the dynamic part of the model as an ONNX model, or empty. ``open_dynamic`` makes its runner, which
    computes it on the host from the outputs of the compiled part; ``dynamic_operators`` lists its operators. Kernels,
    profiles and byte counts are those of the compiled part.
    """

    any_shape: ClassVar[bool] = False  # whether it is an ``AnyShapeExecutable``

    def __init__(
        self,
        plan: Plan | Sized,
        sources: Mapping[str, str],
        binaries: Mapping[str, bytes],
        weights: Mapping[str, np.ndarray],
        dynamic_model: bytes = b"",
        open_dynamic: Callable[[Plan, bytes], DynamicRunner] | None = None,
        lanes: Lanes | None = None,
        example: Mapping[str, int] = NO_SIZES,
    ) -> None:
        """``lanes`` are those of executables of the same model for other sizes too; their weights replace ``weights``.
        ``example`` has the sizes at which the kernels of such a model are tested.
        """
        self._plan = plan
        self._form = plan if isinstance(plan, Plan) else plan.form  # right where all sizes are alike
        self.sources = sources
        self.binaries = binaries
        self._example = example
        self.lanes = Lanes(weights, self._form.kind) if lanes is None else lanes
        self.weights = self.lanes.weights
        self._token = object()  # by which lanes know its programs
        if lanes is not None:
            weakref.finalize(self, lanes.forget, self._token).atexit = False
        self.used = False  # since whoever keeps it asked last
        self.dynamic_model = dynamic_model
        self._open_dynamic = open_dynamic
        self._remember()

    def reset(self) -> None:
        """Make fresh locks, for a process that was forked: one may be held by a thread that the child does not have."""
        vars(self).pop("_dynamic", None)
        vars(self).pop("_threads", None)

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
        """Names, element types and shapes of the inputs of ``run``, without states."""
        kept = {state.input for state in self._form.states}
        return tuple(spec for spec in self._all_inputs if spec.name not in kept)

    @cached_property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Names, element types and shapes of the outputs of ``run``; an extent that only a run decides is a ``Dim``."""
        kept = {state.output for state in self._form.states}
        return tuple(spec for spec in self._all_outputs if spec.name not in kept)

    @property
    def states(self) -> tuple[StateSpec, ...]:
        """What a context keeps from run to run, see ``compile``."""
        return tuple(state_spec(self._by_name[one.input], one) for one in self.kept)

    @property
    def kept(self) -> tuple[State, ...]:
        """The states as the plan has them."""
        return self._form.states

    @cached_property
    def _all_inputs(self) -> tuple[TensorSpec, ...]:
        found = map(self._buffer, self._form.inputs)
        return tuple(TensorSpec(b.name, b.dtype, b.shape) for b in found)

    @cached_property
    def _all_outputs(self) -> tuple[TensorSpec, ...]:
        if self.dynamic_model:
            return self._dynamic.outputs
        found = zip(self._form.output_names, map(self._buffer, self._form.outputs), strict=True)
        return tuple(TensorSpec(name, b.dtype, b.shape) for name, b in found)

    def _buffer(self, position: int) -> Buffer:
        return self._plan.buffers[position] if isinstance(self._plan, Plan) else self._plan.buffer(position)

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
    def run(
        self,
        inputs: Mapping[str, object],
        *,
        outputs: Mapping[str, object] | str = NONE,
        timeout: float | None = None,
        stream: Any = None,
    ) -> dict[str, Any]:
        """Run the model once: ``{input name: array}`` to ``{output name: numpy array}``.

        A sequence is a list of arrays, or a list of dicts if its elements are maps. An optional that holds nothing is ``None``.
        An array is one of numpy or of pyopencl, or has ``__dlpack__`` or ``__cuda_array_interface__``. Element types and shapes
        must be the model's.

        ``outputs`` are arrays to write results into, for some or all outputs; they are returned in the place of fresh ones.
        One that is contiguous, aligned and in no memory of another array of this run is written where it lies; else the result
        is copied into it at the end. For CUDA and OpenCL they may be in the device's memory.

        ``outputs="device"`` leaves results in the device's memory: as cupy arrays for CUDA (``hip_arrays.Array`` for HIP), which
        other libraries take by DLPack without a copy; as arrays of pyopencl for OpenCL; on a processor they are numpy arrays.
        Inputs in the device's memory are then all that a run reads of them. pyopencl's must be in the context of ``queue``.

        ``stream`` is CUDA's or HIP's (a number, cupy's, torch's, or what has ``__cuda_stream__``). The run comes after what that
        stream was given before, and what it is given later comes after the run. If all results are on the device, the call
        returns without waiting. Without a stream, the results are complete when the call returns. On OpenCL they always are, and
        a run comes after what the queues of the given arrays were given before.

        ``timeout`` is in seconds. A run that waits longer for its turn, or takes longer, is given up between two kernels and
        raises ``RunStoppedError`` (GPC1102); what ``outputs`` then hold is undefined. On a GPU, what was enqueued still runs.

        Runs from several threads happen side by side, as far as there are processor threads for them, or two on a GPU; others
        wait. Raises ``InputError`` for a wrong input or output, and ``DeviceError`` if the device cannot run the model. In a
        model with a dynamic part, values that lead to something invalid or unsupported raise ``ModelError`` or
        ``UnsupportedError``.
        """
        if timeout is None and stream is None:  # usual runs are of microseconds
            if outputs is NONE:
                return self._run(inputs, PLAIN)
            if type(outputs) is dict:
                return self._run(inputs, Options({**outputs}))
        return self._run(inputs, self._wanted(outputs, None, stop_after(timeout), stream))

    def _wanted(
        self, outputs: Mapping[str, object] | str, context: Context | None, stop: Stop | None, stream: Any = None
    ) -> Options:
        """The caller's wishes. Raises ``UsageError`` (GPC2038) for what this device does not have."""
        if stream is not None and self.target.partition(":")[0] not in ("cuda", "hip"):
            raise UsageError(f"stream: {self.target} has none of CUDA's or HIP's", code="GPC2038")
        if not isinstance(outputs, str):
            if type(outputs) is not dict and not isinstance(outputs, Mapping):
                found = type(outputs).__name__
                raise InputError(f"outputs: a mapping of names to arrays expected, found {found}", code="GPC2114")
            # a copy: the caller may change it while the run waits for its turn, after it was checked
            return Options({**outputs}, context, stop, False, stream)
        if outputs != "device":
            raise UsageError(f"outputs: arrays by name, or 'device', expected, found {quote(outputs)}", code="GPC2038")
        return Options(NONE, context, stop, True, stream)

    @takes_a_feed
    def run_async(
        self,
        inputs: Mapping[str, object],
        *,
        outputs: Mapping[str, object] | str = NONE,
        timeout: float | None = None,
        stream: Any = None,
    ) -> Pending:
        """As ``run``, but returns at once: ``result()`` or ``await`` gives the outputs, and ``cancel()`` ends the run.

        Runs begin in the order of the calls, as many side by side as ``run`` has. The arrays of ``inputs`` must not change before
        the end, and those on a GPU must be complete, or be so in the order of ``stream``. The run comes after what ``stream`` was
        given before this call, and what it is given after ``result()`` comes after the run. Errors of the inputs are the
        result's too.
        """
        from gpucomp.runtime.pending import begin  # imports half as much as the rest here

        inputs, outputs = kept(inputs), kept(outputs)
        return begin(self._threads, timeout, lambda stop: self._run(inputs, self._wanted(outputs, None, stop, stream)))

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        from concurrent.futures import ThreadPoolExecutor  # takes longer to import than a small model to load

        return ThreadPoolExecutor(max(available_threads(), MOST_ON_A_GPU), "gpucomp-run")

    def _run(self, inputs: Mapping[str, object], how: Options) -> dict[str, Any]:
        if self._form.states:
            refuse_one_size(self.states)
            return held_by(self, how).run(self, inputs, how)
        if self._is_plain and (found := self._run_plain(inputs, how)) is not None:
            return found
        known = None if self._form.input_containers else as_they_are(inputs, self._expected[0])
        fits = known is not None and known[1] == self._expected[1]
        return self.run_checked(known[0] if known is not None and fits else self._checked(inputs, how.stream), how)

    @cached_property
    def _is_plain(self) -> bool:
        """Whether all inputs and outputs are tensors, and a program on the processor does all that a run is."""
        form = self._form
        others = form.states or form.input_containers or form.output_containers or self.dynamic_model
        return form.kind == "cpu" and not others

    def _run_plain(self, inputs: Mapping[str, object], how: Options) -> dict[str, Any] | None:
        """A usual run, with few steps in Python; ``None`` if arrays must be converted or refused, or nothing is open yet."""
        context = how.context
        lane = self.lanes.take(how.stop) if context is None else context.lane(self.lanes)
        try:
            program = lane.programs.get(self._token)
            bound = None if program is None else program.bound(inputs, how.outputs)
            return None if program is None or bound is None else program.run(NONE, how, bound)
        except MemoryError:
            raise self._no_memory() from None
        finally:
            if context is None:
                self.lanes.give(lane)

    def with_states(
        self, inputs: Mapping[str, object], held: States, stream: Any = None
    ) -> tuple[Executable, dict[str, Any], tuple[int, ...]]:
        """The executable for these ``inputs``, which are all but states, and these as arrays.

        The numbers decide the shapes of the states' memory. Raises ``InputError`` for sizes that do not fit the states.
        """
        return self, checked_inputs(inputs, self.inputs, kind=self._form.kind, stream=stream), ()

    def shape_of(self, name: str) -> tuple[tuple[int, ...], np.dtype]:
        """Shape and element type of an input or output of this program, states included."""
        spec = self._by_name[name]
        return spec.shape, spec.type.dtype.numpy

    @cached_property
    def _by_name(self) -> dict[str, TensorSpec]:
        return {spec.name: spec for spec in (*self._all_outputs, *self._all_inputs)}

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype, how: Options) -> Any:
        """A fresh array in the device's memory, for a run in the context of ``how``."""
        assert how.context is not None
        return self._opened(how.context.lane(self.lanes)).zeros(shape, dtype)

    def appended(self) -> dict[str, int]:
        """How many rows a run appends to each state that grows."""
        if isinstance(self._plan, Sized):
            return self._plan.appended()
        return {state.input: state.rows for state in self._plan.states if state.grows}

    @cached_property
    def _expected(self) -> tuple[list[tuple[str, np.dtype | None]], tuple[Any, ...]]:
        """Names and types of the inputs, and their shapes."""
        return [(spec.name, spec.plain) for spec in self._all_inputs], tuple(spec.shape for spec in self._all_inputs)

    def run_checked(self, arrays: Mapping[str, Any], how: Options) -> dict[str, Any]:
        """As ``run``, on arrays that were checked: complete, contiguous and of the right types and shapes."""
        if self._is_plain and (plain := self._run_plain(arrays, how)) is not None:
            return plain
        if how.on_device and self.dynamic_model and self._form.kind != "cpu":
            raise UsageError(
                "outputs='device': a part of this model runs on the host, and so are its results", code="GPC2038"
            )
        if how.outputs:
            return self._run_into(arrays, how)
        found = self._execute(arrays, how)
        if self._form.output_containers:
            found = gathered(found, self._form.output_containers)
        if not self.dynamic_model:
            return found
        if how.stop is not None:
            how.stop.check()
        return self._dynamic.run(found)

    def _run_into(self, arrays: Mapping[str, Any], how: Options) -> dict[str, Any]:
        """As ``run_checked``, with arrays for results."""
        specs, simple = self._tensor_outputs
        if simple and results.fit_as_they_are(how.outputs, specs, arrays):
            return self._execute(arrays, how)
        given = results.checked_outputs(how.outputs, specs, arrays, kind=self._form.kind)
        if self.dynamic_model:
            return given.returned(self.run_checked(arrays, how._replace(outputs=NONE)), {})
        found = gathered(self._execute(arrays, how._replace(outputs=given.direct)), self._form.output_containers)
        return given.returned(found, given.direct)

    def _execute(self, arrays: Mapping[str, Any], how: Options) -> dict[str, Any]:
        """One run of the program, in a lane that no other run uses meanwhile."""
        context = how.context
        if how.states:
            how = how._replace(outputs={**how.outputs, **how.states})
        lane = self.lanes.take(how.stop) if context is None else context.lane(self.lanes)
        try:
            return (lane.programs.get(self._token) or self._opened(lane)).run(arrays, how)
        except MemoryError:
            raise self._no_memory() from None
        finally:
            if context is None:
                self.lanes.give(lane)

    def context(self) -> Context:
        """Runs with memory of their own, beside those of other contexts and of ``run``. Weights and machine code are shared.

        A context is made in microseconds, and its memory on its first run.
        """
        from gpucomp.runtime.context import Context  # which imports this

        return Context(self)

    def _checked(self, inputs: Mapping[str, object], stream: Any = None) -> dict[str, Any]:
        if self._form.input_containers:
            inputs = flattened(inputs, self._form.input_containers)  # type: ignore[assignment]
        return checked_inputs(inputs, self.inputs, kind=self._form.kind, stream=stream)

    @cached_property
    def _tensor_outputs(self) -> tuple[dict[str, TensorSpec], bool]:
        """The outputs that are tensors, by name, and whether a program writes all of them, and nothing else is an output."""
        containers = self._form.output_containers
        specs = {spec.name: spec for spec in self._all_outputs if spec.name not in containers}
        return specs, not containers and not self.dynamic_model

    @contextmanager
    def _program(self) -> Iterator[Program]:
        """The open program in a lane that no run uses meanwhile."""
        lane = self.lanes.take()
        try:
            yield self._opened(lane)
        finally:
            self.lanes.give(lane)

    def _begun(self, inputs: Mapping[str, object]) -> dict[str, Any]:
        """All inputs as arrays. States that are not given are those that a context begins with."""
        if not self._form.states:
            return self._checked(inputs)
        held, others = begun_with(self.states, inputs)
        _, arrays, _ = self.with_states(others, held)
        return arrays | {name: held.on_host(name, *self.shape_of(name)) for name in held.specs}

    @takes_a_feed
    def profile(self, inputs: Mapping[str, object]) -> list[tuple[KernelInfo, float]]:
        """Seconds of each kernel in one run; 0 for host operators on a GPU. Raises the same errors as ``run``.

        ``inputs`` may have states, all of them or none.
        """
        arrays = self._begun(inputs)
        with self._program() as program:
            return list(zip(self.kernels, program.profile(arrays), strict=True))

    @takes_a_feed
    def timeline(self, inputs: Mapping[str, object]) -> tuple[list[float], list[Span]]:
        """Seconds of each launch in one run, and when each thread was busy with which launch. Raises the errors of ``run``."""
        arrays = self._begun(inputs)
        with self._program() as program:
            return program.timeline(arrays)

    def ceilings(self) -> Ceilings | None:
        """Peak arithmetic and bandwidth of the device's threads, measured now; ``None`` if that is not possible."""
        with self._program() as program:
            return program.ceilings()

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
        with self._program():
            pass

    @property
    def queue(self) -> Any:
        """The ``pyopencl.CommandQueue`` of results on the device; arrays in its context are read and written without a copy.

        All models on one device have one context. Opens the device. Raises ``UsageError`` (GPC2038) unless it is OpenCL's.
        """
        if self._form.kind != "opencl":
            raise UsageError(f"queue: {self.target} has none of OpenCL's", code="GPC2038")
        with self._program() as program:
            return program.queue  # type: ignore[attr-defined]

    def _no_memory(self) -> DeviceError:
        return DeviceError(
            f"{self.plan.target}: the model needs {self.peak_bytes} bytes of memory, which are not available",
            code="GPC5013",
        )

    def _opened(self, lane: Lane) -> Program:
        program: Program | None = lane.programs.get(self._token)
        if program is None:
            try:
                with counted():  # apart: the weights that are copied now are no part of a run
                    program, own = self.lanes.first_in(lane, self._new_program)
                    if not own and isinstance(self._plan, Sized):
                        program = program.resized(self._plan)
            except MemoryError:
                raise self._no_memory() from None
            lane.programs[self._token] = program
        return program

    def _new_program(self) -> Program:
        module, name = PROGRAMS[self._form.kind]
        threads = {"threads": self.lanes.threads} if self._form.kind == "cpu" and self.lanes.threads else {}
        made: Callable[..., Any] = getattr(importlib.import_module(module), name)
        program = made(self.plan, self.sources, self.binaries, self.weights, **threads)
        if self._form.kind != "cpu":
            self_test.require_right(program, self.sources, self.binaries, self._at_example)
        return program  # type: ignore[no-any-return]

    def _at_example(self, program: Any) -> Any:
        """``program``, or of a model for any sizes the one whose kernels are tested."""
        sized = self._plan.at(self._example) if isinstance(self._plan, Sized) else None
        return program if sized is None else program.resized(sized)

    def use_threads(self, count: int) -> None:
        """Let runs use at most ``count`` processor threads, 0 for all. Call it before the first run or context."""
        self.lanes.threads = count
