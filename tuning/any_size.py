"""Tunes a model for any size: at the sizes that schedules are chosen for, one after the other, into the same records."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gpucomp.errors import UsageError
from gpucomp.frontend.onnx.loader import Source, load_open, read
from gpucomp.frontend.onnx.open_shapes import open_shapes
from gpucomp.ir.dims import has_dims
from gpucomp.ir.traces import given_sizes, no_open_sizes, sizes_in
from gpucomp.lazy_dataclass import dataclass
from gpucomp.runtime.executable import Executable

if TYPE_CHECKING:
    from onnx import ModelProto

    from gpucomp.tuning.tuner import Tuned, TuneOptions

Sizes = Mapping[str, int]
Searched = TypeVar("Searched")


@dataclass(frozen=True)
class Part:
    """The model for one set of ``sizes``, which are none if no run decides any. ``shapes`` are those of its inputs."""

    sizes: Sizes
    shapes: Mapping[str, Any]


@dataclass(frozen=True)
class TunedSizes:
    """The result of tuning a model for any size: an ``executable`` with all picks, and what was found at each of some sizes."""

    executable: Executable
    parts: tuple[tuple[Sizes, Tuned], ...]
    records: Path


def parts_of(
    model: str | Path | bytes | ModelProto,
    shapes: Mapping[str, Any],
    constants: Mapping[str, Any] | None = None,
    shapes_from: str | Path | Sequence[Mapping[str, Any]] = (),
) -> list[Part]:
    """The model at the sizes that ``gpucomp.compile`` chooses schedules for, given the same arguments. Raises the same errors."""
    if not has_dims(shapes):
        if shapes_from:
            raise no_open_sizes()
        return [Part({}, shapes)]
    proto, files = read(model)
    found = open_shapes(proto, shapes, constants or {})
    if shapes_from:
        found = found.with_usual(sizes_in(given_sizes(shapes_from), found))
    opened = load_open(Source(proto, files), found, constants)
    sizes = {tuple(one.items()): one for one in found.spread(opened.example) if opened.conditions.hold_at(one)}
    return [Part(one, found.at(one)) for one in sizes.values()]


def affordable(parts: Sequence[Searched], options: TuneOptions) -> Sequence[Searched]:
    """The first of ``parts``, which have a search each: as many as have a trial."""
    return parts if options.trials is None else parts[: options.trials]


class Shares:
    """Divides the budget and the trials of ``options`` among ``count`` searches in turn: each has its share of what is left.

    Each continues from the records of those before it.
    """

    def __init__(self, options: TuneOptions, count: int) -> None:
        """Raises ``UsageError`` (GPC2028) for options that cannot be divided."""
        if count > 1 and options.fleet is not None:  # workers end with the first search
            raise UsageError(
                f"a fleet measures one set of sizes, here are {count}: tune each with a call of its own, without a Dim in shapes",
                code="GPC2028",
                in_shell=f"--fleet measures one set of sizes, here are {count}: give a number for each size in --shapes",
            )
        self._options, self._left, self._trials = options, count, 0
        self._begin = time.monotonic()

    def next(self) -> TuneOptions:
        options, spent = self._options, time.monotonic() - self._begin
        budget = options.budget and max(options.budget - spent, 1.0) / self._left
        trials = options.trials and max((options.trials - self._trials) // self._left, 1)
        self._left -= 1
        self._options = replace(self._options, resume=True)
        return replace(options, budget=budget, trials=trials)

    def note(self, tuned: Tuned) -> None:
        """Count the trials of a search that has ended."""
        self._trials += tuned.state.trials


def tune(
    search: Callable[[Part, TuneOptions], Tuned],
    compiled: Callable[[], Executable],
    parts: Sequence[Part],
    options: TuneOptions,
    place: Path,
) -> TunedSizes:
    """Search at the sizes of each of ``parts``; ``compiled`` then makes the model for any size, with the records."""
    some = affordable(parts, options)
    shares, found = Shares(options, len(some)), []
    for part in some:
        found.append((part.sizes, search(part, shares.next())))
        shares.note(found[-1][1])
    return TunedSizes(compiled(), tuple(found), place)
