"""A model whose sizes each run decides: for every set of sizes an executable of its own, made when it is first needed."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from gpucomp.artifact.open_model import OpenModel
from gpucomp.artifact.open_plan import Place
from gpucomp.errors import InputError, UsageError, quote, several
from gpucomp.ir import traces
from gpucomp.ir.dim import Dim
from gpucomp.ir.dims import OpenShapes
from gpucomp.ir.size import Size
from gpucomp.ir.state import State
from gpucomp.refusal import Refusal
from gpucomp.runtime.artifact import Contents
from gpucomp.runtime.calls import takes_a_feed
from gpucomp.runtime.ceilings import Ceilings, Span
from gpucomp.runtime.executable import Executable
from gpucomp.runtime.inputs import TensorSpec, as_they_are, checked_inputs
from gpucomp.runtime.kernel_info import KernelInfo
from gpucomp.runtime.open_program import OpenProgram
from gpucomp.runtime.options import Options
from gpucomp.runtime.specialise import Specialisation, Specialiser
from gpucomp.runtime.specialise import run as specialised_run
from gpucomp.runtime.states import States, begun_with, held_by, refuse_full
from gpucomp.stages import Progress

if TYPE_CHECKING:
    from gpucomp.runtime.moving import MovingPrograms

KEPT = 32  # executables; the least recently used is dropped
Make = Callable[..., Executable]  # with the shapes, and ``progress=``
Fixed = Sequence[tuple[Mapping[str, int], Executable]]


class AnyShapeExecutable(Executable):
    """A model compiled for a range of shapes. Make one with ``gpucomp.compile`` and a ``Dim`` in ``shapes``.

    Where no program is for the sizes of a run, the first run at them compiles the model for them; later ones do not. The last
    ``KEPT`` executables are kept, and equal weights are in memory once. A plan, kernels and a file belong to one set of sizes:
    see ``at``.

    ``program`` runs at all sizes that its conditions allow, or is the reason why there is none. ``make`` compiles the model
    for the concrete shapes of other sizes; a file alone has no such thing.
    """

    any_shape = True

    def __init__(
        self,
        target: str,
        shapes: OpenShapes,
        inputs: tuple[TensorSpec, ...],
        outputs: tuple[TensorSpec, ...],
        make: Make | None,
        program: OpenProgram | Refusal,
        fixed: Fixed = (),
    ) -> None:
        self._target, self._shapes, self._make = target, shapes, make
        self._kind = target.partition(":")[0]
        self.program = program
        states = program.open_plan.plan.states if isinstance(program, OpenProgram) else ()
        kept = {name for one in states for name in (one.input, one.output)}
        self._states = {one.input: one for one in states}
        self._all_inputs, self._all_outputs = inputs, outputs
        self._inputs = tuple(spec for spec in inputs if spec.name not in kept)
        self._outputs = tuple(spec for spec in outputs if spec.name not in kept)
        self._made: OrderedDict[tuple[int, ...], Executable] = OrderedDict()
        # by the inputs' shapes, those of them that a run may use at once
        self._ready: dict[tuple[tuple[int, ...], ...], Executable] = {}
        self._of_program: dict[bytes, np.ndarray] = {}  # weights of the program by their digests
        self._shared: WeakValueDictionary[bytes, np.ndarray] = WeakValueDictionary()
        self._digests: WeakKeyDictionary[Executable, dict[str, bytes]] = WeakKeyDictionary()  # of those that never ran
        self._moving: MovingPrograms | None = None  # for sizes that come and go
        self._fixed = tuple(fixed)
        self._threads_of_a_run = 0
        self._specialiser: Specialiser | None = None
        self.reset()
        self.specialise(background=False)
        self._remember()

    def reset(self) -> None:
        """Make fresh locks, for a process that was forked."""
        self._kept, self._compiling = threading.Lock(), threading.Lock()
        if self._specialiser is not None:
            self._specialiser.reset()

    def specialise(self, *, background: bool) -> None:
        """Whether sizes that are run often get an executable of their own, which a thread compiles."""
        self._ready = {}
        declared = {tuple(sizes[name] for name in self.dims): (sizes, exe) for sizes, exe in self._fixed}
        make = self._make_at if background and self._make is not None else None
        wanted = isinstance(self.program, OpenProgram) and (declared or make is not None)
        self._specialiser = Specialiser(make, self._prepare, declared) if wanted else None

    def use_threads(self, count: int) -> None:
        self._threads_of_a_run = count
        if isinstance(self.program, OpenProgram):
            self.program.lanes.threads = count
        for _, exe in self._fixed:
            exe.use_threads(count)

    def report(self) -> tuple[Specialisation, ...]:
        """What became of each set of sizes that has, or was to get, an executable of its own."""
        return self._specialiser.report() if self._specialiser is not None else ()

    def _make_at(self, sizes: Mapping[str, int], progress: Progress | None = None) -> Executable:
        assert self._make is not None
        shapes = self._shapes.at(sizes)
        made = self._make(shapes) if progress is None else self._make(shapes, progress=progress)
        made.use_threads(self._threads_of_a_run)
        return made

    def _prepare(self, exe: Executable) -> None:
        """Open an executable for single sizes, which shares the weights that others have. No request waits for that."""
        digests = _digests_of(exe.weights)
        if not self._of_program and isinstance(self.program, OpenProgram):
            own = self.program.weights
            self._of_program = {digest: own[name] for name, digest in _digests_of(own).items()}
        with self._compiling:
            self._take_known(exe, digests)
        exe.open()
        with self._compiling:
            self._offer(exe, digests)

    def __repr__(self) -> str:
        return (
            f"<Executable for {self._target} and any {', '.join(self.dims)}: {len(self._made)} sets of sizes compiled>"
        )

    @property
    def dims(self) -> dict[str, Dim]:
        """The dimensions whose size each run decides, by their names."""
        return self._shapes.dims

    @property
    def target(self) -> str:
        return self._target

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return self._inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Names, element types and shapes as the model declares them; a size that only a run decides is a ``Dim``."""
        return self._outputs

    @property
    def kept(self) -> tuple[State, ...]:
        return tuple(self._states.values())

    @property
    def plan(self) -> NoReturn:
        self._refuse("no plan of its own")

    def contents(self) -> Contents:
        """What a file holds: the program for any size. Raises ``UsageError`` (GPC2017) if there is none."""
        program = self.program
        if isinstance(program, Refusal):
            self._refuse("no file", program.reason)
        plan = program.open_plan
        specs = {spec.name: spec for spec in self._all_outputs}

        def shown(declared: Sequence[Any], own: Sequence[Any]) -> tuple[Any, ...]:
            """An output's shape as declared, by formulas of the plan where it is computed or not declared at all."""
            if len(declared) != len(own):
                return tuple(own)
            return tuple(place if isinstance(n, Size) else n for n, place in zip(declared, own, strict=True))

        outputs = tuple(
            shown(specs[name].shape, plan.plan.buffers[position].shape)
            for name, position in zip(plan.plan.output_names, plan.plan.outputs, strict=True)
        )
        opened = OpenModel(self._shapes, plan, outputs, program.example)
        fixed = tuple((sizes, exe.contents()) for sizes, exe in self._fixed)
        return Contents(plan.plan, program.sources, program.binaries, program.weights, open=opened, fixed=fixed)

    def _refuse(self, what: str, why: str = "") -> NoReturn:
        sizes = ", ".join(f"{name}={size}" for name, size in self._shapes.smallest().items())
        told = f"a model for any {', '.join(map(quote, self.dims))} has {what}{f' ({why})' if why else ''}"
        raise UsageError(
            f"{told}; each set of sizes has: exe.at({sizes})",
            code="GPC2017",
            in_shell=f"{told}; give a number for each in --shapes",
        )

    def at(self, **sizes: int) -> Executable:
        """The executable for one size of each dimension, compiled now unless it was before. Raises ``InputError``."""
        return self._at(self._shapes.checked(sizes))

    def sizes_in(self, given: Mapping[str, traces.Given | None]) -> list[dict[str, int]]:
        """As ``gpucomp.ir.traces.sizes_in``."""
        return traces.sizes_in(given, self._shapes)

    def of_inputs(self, inputs: Mapping[str, object]) -> tuple[Executable, dict[str, int]]:
        """The executable for the sizes of ``inputs``, and these sizes. Raises ``InputError``."""
        sizes, _ = self._sized(inputs)
        return self._at(sizes), sizes

    def check_sizes(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Raise ``InputError`` (GPC2111, GPC2112) unless a run can have inputs of these ``shapes``, whose ranks fit."""
        self._shapes.sizes(shapes)

    def said(self, dim: str) -> str:
        """Who declared a dimension."""
        return self._shapes.said[dim]

    def _run(self, inputs: Mapping[str, object], how: Options) -> dict[str, Any]:
        """As ``Executable._run``. Sizes must be in their ranges, and one dimension must have one size: else ``InputError``."""
        if self._states:
            return held_by(self, how).run(self, inputs, how)
        known = as_they_are(inputs, self._expected[0])
        if known is not None and (exe := self._ready.get(known[1])) is not None:
            exe.used = True
            return exe.run_checked(known[0], how)
        opened = self.program if self._kind == "cpu" and self._specialiser is None else None
        if known is not None and isinstance(opened, OpenProgram):
            moving = self._moving or self._new_moving(opened)
            if (found := moving.run(*known, how)) is not None:
                return found
        sizes, arrays = self._sized(inputs, how.stream)
        specialiser = self._specialiser
        entry = specialiser.entry(tuple(sizes.values()), sizes) if specialiser is not None else None

        def run(exe: Executable) -> dict[str, Any]:
            if self._shapes.unlisted:
                return exe._run(arrays, how)
            return exe.run_checked(arrays, how)

        if specialiser is None or entry is None:
            exe = self._opened_at(sizes)
            if specialiser is None and known is not None and not self._shapes.unlisted:
                with self._kept:
                    if self._made.get(tuple(sizes.values())) is exe:
                        self._ready[known[1]] = exe
            return run(exe)
        return specialised_run(entry, specialiser, lambda: self._opened_at(sizes), run)

    def _new_moving(self, program: OpenProgram) -> MovingPrograms:
        from gpucomp.runtime.moving import MovingPrograms  # which imports a processor's program

        self._moving = MovingPrograms(program, self._shapes, self._inputs)
        return self._moving

    @takes_a_feed
    def profile(self, inputs: Mapping[str, object]) -> list[tuple[KernelInfo, float]]:
        exe, arrays = self._for(inputs)
        return exe.profile(arrays)

    @takes_a_feed
    def timeline(self, inputs: Mapping[str, object]) -> tuple[list[float], list[Span]]:
        exe, arrays = self._for(inputs)
        return exe.timeline(arrays)

    def ceilings(self) -> Ceilings | None:
        return self._at(self._shapes.smallest()).ceilings()

    def with_states(
        self, inputs: Mapping[str, object], held: States, stream: Any = None
    ) -> tuple[Executable, dict[str, Any], tuple[int, ...]]:
        arrays = checked_inputs(inputs, self._inputs, kind=self._kind, stream=stream)
        given = {name: array.shape for name, array in arrays.items()}
        found = self._shapes.sizes(given)
        # only growing dimensions have other sizes than before?
        if not self._grow_alone or tuple(found[name] for name in self._others) != held.numbers:
            found = self._shapes.sizes({**given, **held.shapes()})
        for state in self._growing:
            rows, dim = held.rows[state.input], self.dims[state.dim]
            if (known := found.setdefault(state.dim, rows)) != rows:
                raise InputError(
                    f"state {quote(state.input)} has {several(rows, 'row')}, but {quote(state.dim)} is {known} in this run",
                    code="GPC2112",
                )
            if rows not in dim:
                raise InputError(
                    f"state {quote(state.input)} has {several(rows, 'row')}, {dim.range} expected, as "
                    f"{self.said(dim.name)} says; context.restore(...) gives it others",
                    code="GPC2111",
                )
        sizes = {name: found[name] if name in found else dim.nearest(dim.low) for name, dim in self.dims.items()}
        return self._opened_at(sizes), arrays, tuple(sizes[name] for name in self._others)

    @cached_property
    def _growing(self) -> list[State]:
        return [state for state in self._states.values() if state.grows]

    @cached_property
    def _others(self) -> list[str]:
        """The dimensions that decide the shapes of the states' memory: all but those that grow in place alone."""
        grown = {state.dim for state in self._growing}
        whole = {name for name, state in self._states.items() if not state.grows}
        shapes = (shape for name, shape in self._shapes.shapes.items() if name in whole)
        kept = {dim.name for shape in shapes for dim in shape if isinstance(dim, Dim)}
        return [name for name in self.dims if name in kept or name not in grown]

    @cached_property
    def _grow_alone(self) -> bool:
        """Whether the inputs have the sizes of all dimensions that do not grow in place."""
        names = {spec.name for spec in self._inputs}
        shapes = (shape for name, shape in self._shapes.shapes.items() if name in names)
        return set(self._others) <= {dim.name for shape in shapes for dim in shape if isinstance(dim, Dim)}

    def _refuse_full(self, sizes: Mapping[str, int]) -> None:
        """Raise ``InputError`` (GPC2118) if ``sizes`` are too many rows for a state."""
        assert isinstance(self.program, OpenProgram)
        numbers = self.program.open_plan.formulas.at(sizes)
        for spec in self.states:
            state = self._states[spec.name]
            if spec.grows:
                more = numbers[state.rows.number] if isinstance(state.rows, Place) else state.rows
                if sizes[state.dim] + more > spec.capacity:
                    refuse_full(spec, sizes[state.dim], more, state.dim)

    def _for(self, inputs: Mapping[str, object]) -> tuple[Executable, dict[str, object]]:
        """The executable for the sizes of ``inputs``, and its inputs."""
        if self._states:
            held, others = begun_with(self.states, inputs)
            exe, arrays, _ = self.with_states(others, held)
            return exe, {**arrays, **held.given}
        sizes, arrays = self._sized(inputs)
        return self._opened_at(sizes), arrays

    def _sized(self, inputs: Mapping[str, object], stream: Any = None) -> tuple[dict[str, int], dict[str, object]]:
        """The sizes of ``inputs``, in the order of ``dims``, and the inputs as arrays."""
        others: dict[str, object] = {}
        given = inputs
        if self._shapes.unlisted:
            others = {name: value for name, value in inputs.items() if self._is_of_container(name)}
            given = {name: value for name, value in inputs.items() if name not in others}
        arrays = checked_inputs(given, self._inputs, kind=self._kind, stream=stream)
        sizes = self._shapes.sizes({name: array.shape for name, array in arrays.items()})
        return {name: sizes[name] for name in self.dims}, {**arrays, **others}

    def _opened_at(self, sizes: Mapping[str, int]) -> Executable:
        exe = self._at(sizes)
        self._open(exe)
        return exe

    def _is_of_container(self, name: str) -> bool:
        return name in self._shapes.unlisted or name.partition("[")[0] in self._shapes.unlisted

    def _at(self, sizes: Mapping[str, int]) -> Executable:
        key = tuple(sizes[name] for name in self.dims)
        if (found := self._find(key)) is not None:
            return found
        # sizes that the program is for wait for no compilation of others
        made = self.program.at(sizes) if isinstance(self.program, OpenProgram) else None
        if made is not None:
            return self._keep(key, made)
        if self._states:
            self._refuse_full(sizes)
        with self._compiling:
            if (found := self._find(key)) is not None:  # another thread compiled it in the meantime
                return found
            made = next((exe for declared, exe in self._fixed if declared == sizes), None)
            if made is None and self._make is None:
                self._refuse_sizes(sizes)
            made = made or self._make_at(sizes)
            self._digests[made] = _digests_of(made.weights)
            self._take_known(made, self._digests[made])
            return self._keep(key, made)

    def _keep(self, key: tuple[int, ...], made: Executable) -> Executable:
        with self._kept:
            made = self._made.setdefault(key, made)
            while len(self._made) > KEPT:
                old, oldest = self._made.popitem(last=False)
                if oldest is made or oldest.used:  # by runs that did not look for it here
                    oldest.used = False
                    self._made[old] = oldest
                else:
                    self._ready = {shapes: exe for shapes, exe in self._ready.items() if exe is not oldest}
        return made

    def open(self) -> None:
        """Open the device now rather than on the first run. Raises ``UsageError`` (GPC2017) if no program is for any size."""
        if isinstance(self.program, Refusal):
            self._refuse("nothing to open before its sizes are known", self.program.reason)
        self._at(self.program.example).open()

    @property
    def queue(self) -> Any:
        """As ``Executable.queue``. Raises ``UsageError`` (GPC2017) if no program is for any size."""
        if isinstance(self.program, Refusal):
            self._refuse("no queue before its sizes are known", self.program.reason)
        return self._at(self.program.example).queue

    @property
    def dynamic_operators(self) -> tuple[tuple[str, str], ...]:
        """None: a model whose shapes depend on values has no program for any size."""
        if isinstance(self.program, Refusal):
            self._refuse("no host operators of its own", self.program.reason)
        return ()

    def _refuse_sizes(self, sizes: Mapping[str, int]) -> NoReturn:
        """Say which condition the ``sizes`` do not meet, where nothing can be compiled for them."""
        assert isinstance(self.program, OpenProgram)
        found = self.program.open_plan.objection(sizes)
        condition, names = found or ("", tuple(sizes))
        given = ", ".join(f"{quote(name)} is {sizes[name]}" for name in names)
        told = f"{given}: this file is for {condition}"
        shapes = self._shapes.at(sizes)
        texts = (f"{name}:{'x'.join(map(str, shapes[name]))}" for name in self._shapes.shapes)  # type: ignore[call-overload]
        wanted = {name: shapes[name] for name in self._shapes.shapes}
        raise InputError(
            f"{told}; compile the model for such sizes: shapes={wanted}",
            code="GPC2113",
            in_shell=f"{told}; compile the model for such sizes: --shapes {','.join(texts)}",
        )

    def compile_with(self, make: Make | None) -> None:
        """Let ``make`` compile the model for sizes that the program is not for; without it these are refused (GPC2113)."""
        self._make = make

    def _find(self, key: tuple[int, ...]) -> Executable | None:
        with self._kept:
            if key in self._made:
                self._made.move_to_end(key)
            return self._made.get(key)

    def _take_known(self, exe: Executable, digests: Mapping[str, bytes]) -> None:
        """Replace the weights of ``exe`` by equal ones of the program and of others, in the memory where these keep them."""
        for name, digest in digests.items():
            other = self._of_program.get(digest, self._shared.get(digest))
            exe.weights[name] = exe.weights[name] if other is None else other

    def _offer(self, exe: Executable, digests: Mapping[str, bytes]) -> None:
        """Let later executables use the weights of ``exe``, which is open."""
        for name, digest in digests.items():
            self._shared.setdefault(digest, exe.weights[name])

    def _open(self, exe: Executable) -> None:
        """Open the device, and note the weights where the program keeps them from now on."""
        if exe not in self._digests:  # no run at known sizes waits for a compilation
            return
        with self._compiling:
            digests = self._digests.pop(exe, {})
            exe.open()
            self._offer(exe, digests)


def loaded(contents: Contents, make: Make | None = None) -> AnyShapeExecutable:
    """The executable of a file for any sizes."""
    opened = contents.open
    assert opened is not None
    plan, shapes = contents.plan, opened.shapes
    types = {plan.buffers[p].name: plan.buffers[p].dtype for p in plan.inputs}
    ins = tuple(TensorSpec(name, types[name], shape) for name, shape in shapes.shapes.items())
    outs = tuple(
        TensorSpec(name, plan.buffers[position].dtype, opened.shape(shape))
        for name, position, shape in zip(plan.output_names, plan.outputs, opened.outputs, strict=True)
    )
    program = OpenProgram(opened.plan, contents.sources, contents.binaries, contents.weights, opened.example)
    fixed = [(sizes, Executable(c.plan, c.sources, c.binaries, c.weights)) for sizes, c in contents.fixed]
    return AnyShapeExecutable(plan.target, shapes, ins, outs, make, program, fixed)


def _digests_of(weights: Mapping[str, np.ndarray]) -> dict[str, bytes]:
    return {name: _digest(array) for name, array in weights.items() if not array.dtype.hasobject}


def _digest(array: np.ndarray) -> bytes:
    about = hashlib.sha256(f"{array.dtype.str} {array.shape}".encode())
    about.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return about.digest()
