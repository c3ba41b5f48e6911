"""States of a model in a context: tensors that the next run gets from this one, and that stay in the device's memory.

One that grows is stored in place, in memory with room for as many rows as its dimension allows, and one that a run updates is
changed in place. One that each run makes as a whole has two arrays, which take turns. So no run copies a state. A run that
stops halfway leaves them as they were, unless it updates one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from gpucomp.errors import InputError, UsageError, quote, several
from gpucomp.ir.state import State
from gpucomp.ir.types import BF16, F16, NAMED
from gpucomp.lazy_dataclass import dataclass
from gpucomp.runtime.inputs import TensorSpec, fits

if TYPE_CHECKING:
    from gpucomp.runtime.executable import Executable
    from gpucomp.runtime.options import Options


@dataclass(frozen=True)
class StateSpec:
    """A state: the input ``name``, which after a run is what the model calls ``output``.

    ``shape`` has a ``Dim`` where the context or a run decides. ``in_place``: a run changes the state's own memory; else ``why``
    not. One that grows has an ``axis`` of 0 or more, along which rows are appended, and room for ``capacity`` of them.
    """

    name: str
    output: str
    dtype: str
    shape: tuple[Any, ...]
    axis: int = -1
    capacity: int = 0
    why: str = ""

    @property
    def in_place(self) -> bool:
        return not self.why

    @property
    def grows(self) -> bool:
        return self.axis >= 0


def state_spec(spec: TensorSpec, state: State) -> StateSpec:
    """``spec`` is that of the input as the plan has it."""
    return StateSpec(spec.name, state.output, spec.dtype, spec.shape, state.axis, state.capacity, state.why)


class States:
    """What one context holds. Used by one run at a time.

    ``arrays`` are in the device's memory, as the plan's inputs have them, ``spare`` those that results of the next run are
    written into. ``given`` are arrays on the host that the next run begins with.
    """

    def __init__(self, states: Sequence[StateSpec]) -> None:
        self.specs = {spec.name: spec for spec in states}
        # of those that a run leaves changed if it ends early
        self._updated = next((spec.name for spec in states if spec.in_place and not spec.grows), "")
        self.reset()

    def reset(self) -> None:
        """Begin anew: no rows, and zeros in what does not grow."""
        self.rows = {name: 0 for name, spec in self.specs.items() if spec.grows}
        self.arrays: dict[str, Any] = {}
        self.spare: dict[str, Any] = {}
        self.given: dict[str, np.ndarray] = {}
        self.lost = ""  # the name of a state that is neither what it was nor what it was to become
        self.numbers: tuple[int, ...] | None = None  # see ``Executable.with_states``

    def save(self) -> dict[str, np.ndarray]:
        """Copies of the valid part of each state on the host. Nothing if no run has begun since ``reset``."""
        return self.given | {name: self._valid(name, _on_host(array)).copy() for name, array in self.arrays.items()}

    def restore(self, saved: Mapping[str, object]) -> None:
        """Begin with what ``save`` gave, here or in another context. Raises ``InputError`` (GPC2117) for what does not fit.

        Numbers of f32 are rounded where the state is kept in 16 bits.
        """
        found = {}
        for name in saved:
            if name not in self.specs:
                raise _wrong(name, f"no state; the states are {', '.join(map(quote, self.specs))}")
        for name, spec in self.specs.items() if saved else ():
            if name not in saved:
                raise _wrong(name, "all states expected, this one is missing")
            array = np.ascontiguousarray(saved[name])
            wanted = NAMED[spec.dtype].numpy
            if array.dtype == np.float32 and NAMED[spec.dtype] in (F16, BF16):
                array = array.astype(wanted)
            if array.dtype != wanted or not _holds(spec, array.shape):
                shape = ", ".join(map(str, spec.shape))
                at_most = f", at most so many along axis {spec.axis}" if spec.grows else ""
                raise _wrong(
                    name, f"{wanted} of shape [{shape}]{at_most} expected, found {array.dtype} of {list(array.shape)}"
                )
            found[name] = array.copy()
        self.reset()
        self.given = found
        self.rows |= {name: found[name].shape[self.specs[name].axis] for name in self.rows if name in found}

    def rewind(self, rows: int) -> None:
        """Forget the rows behind the first ``rows``. Raises ``UsageError`` (GPC2041) if that is not possible."""
        whole = next((name for name, spec in self.specs.items() if not spec.grows), None)
        if whole is not None:
            raise UsageError(f"rewind: state {quote(whole)} does not grow, so what it was is not known", code="GPC2041")
        if len(set(self.rows.values())) > 1:
            raise UsageError("rewind: the states have different numbers of rows", code="GPC2041")
        most = min(self.rows.values(), default=0)
        if isinstance(rows, bool) or not isinstance(rows, int) or not 0 <= rows <= most:
            raise UsageError(f"rewind: 0 to {several(most, 'row')} expected, found {quote(rows)}", code="GPC2041")
        self.rows = dict.fromkeys(self.rows, rows)
        self.given = {name: self._valid(name, array) for name, array in self.given.items()}

    def run(self, whole: Executable, inputs: Mapping[str, object], how: Options) -> dict[str, Any]:
        """One run of ``whole`` on ``inputs`` and these states, which then are those after it. Returns the other outputs."""
        for name in inputs:
            if name in self.specs:
                raise InputError(
                    f"input {quote(name)} is a state, which the context has; to begin with another: context.restore(...)",
                    code="GPC2117",
                )
        if self.lost:
            raise UsageError(
                f"a run ended while it updated state {quote(self.lost)}, which is lost: reset() or restore() the context",
                code="GPC2041",
            )
        exe, arrays, numbers = whole.with_states(inputs, self, how.stream)
        if numbers == self.numbers:
            now, made = self.arrays, self.spare
        else:
            now = {name: self._array(exe, name, how) for name in self.specs}
            made = {name: self._other(exe, name, how) for name, spec in self.specs.items() if not spec.in_place}
        written = {self.specs[name].output: array for name, array in made.items()}
        self.lost = self._updated if self._updated in self.arrays else ""
        try:
            results = exe.run_checked({**arrays, **now}, how._replace(states=written))
        except (InputError, UsageError):  # before anything ran
            self.lost = ""
            raise
        self.lost = ""
        self.spare, self.arrays = {name: now[name] for name in made}, now | made
        self.given = {}
        self.numbers = numbers
        for name, rows in exe.appended().items():
            self.rows[name] += rows
        kept = {spec.output for spec in self.specs.values()}
        return {name: array for name, array in results.items() if name not in kept}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the valid parts, of those states that have any."""
        held = {name: array.shape for name, array in (self.arrays | self.given).items()}
        found = {}
        for name, shape in held.items():
            spec = self.specs[name]
            if not spec.grows:
                found[name] = tuple(shape)
            elif self.rows[name]:
                found[name] = (*shape[: spec.axis], self.rows[name], *shape[spec.axis + 1 :])
        return found

    def _valid(self, name: str, array: np.ndarray) -> np.ndarray:
        spec = self.specs[name]
        return array[(slice(None),) * spec.axis + (slice(self.rows[name]),)] if spec.grows else array

    def _array(self, exe: Executable, name: str, how: Options) -> Any:
        """The state before the run, in the device's memory and of the shape that ``exe`` takes."""
        shape, dtype = exe.shape_of(name)
        found = self.arrays.get(name)
        if found is not None and found.shape == shape:
            return found
        array = exe.zeros(shape, dtype, how)
        if name in self.given:
            _put(array, self.on_host(name, shape, dtype))
        return array

    def on_host(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """The state that a run begins with, as far as it is on the host."""
        full = np.zeros(shape, dtype)
        if name in self.given:
            self._valid(name, full)[...] = self.given[name]
        return full

    def _other(self, exe: Executable, name: str, how: Options) -> Any:
        """Where the state after the run goes."""
        shape, dtype = exe.shape_of(self.specs[name].output)
        found = self.spare.get(name)
        return found if found is not None and found.shape == shape else exe.zeros(shape, dtype, how)


def _holds(spec: StateSpec, shape: tuple[int, ...]) -> bool:
    """Whether an array of this ``shape`` can be the valid part of the state."""
    axis = spec.axis
    if not spec.grows or len(shape) != len(spec.shape):
        return fits(shape, spec.shape)
    rest = spec.shape[:axis] + spec.shape[axis + 1 :]
    return fits(shape[:axis] + shape[axis + 1 :], rest) and shape[axis] <= spec.capacity


def begun_with(states: Sequence[StateSpec], inputs: Mapping[str, object]) -> tuple[States, dict[str, object]]:
    """The states among ``inputs``, which are all or none, as those that a run begins with, and the other inputs."""
    held = States(states)
    held.restore({name: inputs[name] for name in held.specs if name in inputs})
    return held, {name: value for name, value in inputs.items() if name not in held.specs}


def held_by(exe: Executable, how: Options) -> States:
    """The states of the context of a run. Raises ``UsageError`` (GPC2041) if it has none."""
    if how.context is None:
        raise UsageError(
            "this model keeps states from run to run, which a context holds: context = exe.context(); context.run({...})",
            code="GPC2041",
        )
    return how.context.states


def refuse_one_size(states: Sequence[StateSpec]) -> None:
    """Raise ``UsageError`` (GPC2041) if a state grows: a program for one size always has as many rows before a run."""
    if growing := next((state.name for state in states if state.grows), None):
        raise UsageError(
            f"state {quote(growing)} grows, and this executable is for one number of rows: run a context of the whole model",
            code="GPC2041",
        )


def refuse_full(state: StateSpec, rows: int, more: int, dim: str) -> NoReturn:
    """Raise ``InputError`` (GPC2118) for a run that would append ``more`` rows to a state that has ``rows``."""
    raise InputError(
        f"state {quote(state.name)} has room for {several(state.capacity, 'row')}, {rows} are in it and this run appends {more}: "
        f"reset() or rewind() the context, or declare a larger {quote(dim)}",
        code="GPC2118",
    )


def _on_host(array: Any) -> np.ndarray:
    if isinstance(array, np.ndarray):
        return array
    _wait_for(array)  # a run in a stream of the caller's may not be over
    return np.asarray(array.get())


def _put(array: Any, values: np.ndarray) -> None:
    if isinstance(array, np.ndarray):
        array[...] = values
    else:
        array.set(values)
        _wait_for(array)


def _wait_for(array: Any) -> None:
    """Wait for all that is done to a cupy array's device. What is done to an array of pyopencl is complete after each run."""
    if hasattr(array, "__cuda_array_interface__"):
        array.device.synchronize()


def _wrong(name: str, why: str) -> InputError:
    return InputError(f"state {quote(name)}: {why}", code="GPC2117")
