"""Shapes of which each run decides some sizes: what they may be, and which sizes a run has. No model is read here."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import cycle

from gpucomp.errors import InputError, UsageError, plain, quote, several
from gpucomp.ir.dim import Dim
from gpucomp.lazy_dataclass import dataclass

Extent = int | Dim
Sizes = Mapping[str, int]  # of a run, by the names of the dimensions
APART = (11, 13, 17, 19, 23, 29)  # sizes that are neither each other's nor a model's own
USUAL = (0, 16, 224)  # the smallest, a short text, a small image


@dataclass(frozen=True)
class OpenShapes:
    """What the shapes of a model's inputs may be.

    ``said`` tells for each dimension who declared it. ``unlisted`` has the given shapes of inputs that are not tensors.
    ``usual`` has the sizes that runs are expected to have, by the product of each, for what decides only speed.
    """

    shapes: Mapping[str, tuple[Extent, ...]]
    said: Mapping[str, str]
    unlisted: Mapping[str, object]
    usual: tuple[Sizes, ...] = field(default=(), compare=False)

    @cached_property
    def dims(self) -> dict[str, Dim]:
        """The dimensions by their names, in the order of the inputs."""
        found = (dim for shape in self.shapes.values() for dim in shape)
        return {dim.name: dim for dim in found if isinstance(dim, Dim)}

    def sizes(self, given: Mapping[str, Sequence[int]]) -> dict[str, int]:
        """The size of each dimension in the shapes ``given``, whose ranks fit; all but states are given.

        Raises ``InputError``: GPC2111 for a size outside its range, GPC2112 for two sizes of one dimension.
        """
        found: dict[str, int] = {}
        for name, axis, dim in self._places:
            if name not in given:
                continue
            size = given[name][axis]
            if size not in dim:
                raise InputError(
                    f"{_place(name, axis)}: {quote(dim.name)} is {size}, {dim.range} expected, as {self.said[dim.name]} says",
                    code="GPC2111",
                )
            if found.setdefault(dim.name, size) != size:
                before = next(_place(n, a) for n, a, d in self._places if d.name == dim.name)
                raise InputError(
                    f"{_place(name, axis)}: {quote(dim.name)} is {size}, but {found[dim.name]} in {before}; one size expected, "
                    f"as {self.said[dim.name]} says",
                    code="GPC2112",
                )
        return found

    @cached_property
    def _places(self) -> list[tuple[str, int, Dim]]:
        """Where the dimensions stand: the input, the axis, and the dimension."""
        return [
            (name, axis, dim)
            for name, shape in self.shapes.items()
            for axis, dim in enumerate(shape)
            if isinstance(dim, Dim)
        ]

    def checked(self, sizes: Sizes) -> dict[str, int]:
        """``sizes`` in the order of ``dims``. Raises ``InputError`` for an unknown, missing or wrong one."""
        dims = self.dims
        if unknown := [name for name in sizes if name not in dims]:
            raise InputError(
                f"the model has no dimension {quote(unknown[0])}; its dimensions are {', '.join(map(quote, dims))}",
                code="GPC2111",
            )
        for name, dim in dims.items():
            if name not in sizes or not _is_size(sizes[name]) or sizes[name] not in dim:
                found = f"is {plain(sizes[name])}" if name in sizes else "has no size"
                raise InputError(
                    f"dimension {quote(name)} {found}, {dim.range} expected, as {self.said[name]} says", code="GPC2111"
                )
        return {name: int(sizes[name]) for name in dims}

    def sizes_from(self, given: object, where: str) -> dict[str, int]:
        """The sizes in a mapping of dimensions to sizes (``{"n": 3}``), or of inputs to shapes (``{"x": (3, 80)}``).

        Raises ``UsageError`` (GPC2035) for anything else, and as ``sizes`` and ``checked``. ``where`` is said first.
        """
        if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
            names = ", ".join(map(quote, self.dims))
            raise UsageError(
                f"{where}: an object with a size for each of {names} expected, found {quote(given)}", code="GPC2035"
            )
        if all(map(_is_size, given.values())):
            return self.checked(given)
        for name, shape in self.shapes.items():
            one, rank = given.get(name), len(shape)
            if not isinstance(one, list | tuple) or len(one) != rank or not all(map(_is_size, one)):
                raise UsageError(
                    f"{where}: a list of {several(rank, 'size')} for input {quote(name)} expected", code="GPC2035"
                )
            for axis, (wanted, size) in enumerate(zip(shape, one, strict=True)):
                if not isinstance(wanted, Dim) and wanted != size:
                    raise UsageError(
                        f"{where}: dimension {axis} of input {quote(name)} is {wanted}, found {size}", code="GPC2035"
                    )
        found = self.sizes({name: [int(size) for size in given[name]] for name in self.shapes})
        return {name: found[name] for name in self.dims}

    def with_empty(self, states: Collection[str]) -> OpenShapes:
        """These shapes, in which a dimension that only ``states`` have can be 0, unless its range was declared."""
        elsewhere = {dim.name for name, _, dim in self._places if name not in states}
        wider = {
            name: replace(dim, low=0) for name, dim in self.dims.items() if name not in elsewhere and dim == Dim(name)
        }
        shapes = {
            name: tuple(wider.get(n.name, n) if isinstance(n, Dim) else n for n in shape)
            for name, shape in self.shapes.items()
        }
        return replace(self, shapes=shapes) if wider else self

    def with_usual(self, usual: Sequence[Sizes]) -> OpenShapes:
        """These shapes, of which runs are expected to have ``usual`` ones, each as often as it comes."""
        return replace(self, usual=tuple(sorted(usual, key=lambda sizes: math.prod(sizes.values()))))

    def at(self, sizes: Mapping[str, object]) -> dict[str, object]:
        """The shapes of all inputs at ``sizes``, as ``compile`` takes them."""
        fixed = {
            name: tuple(sizes[dim.name] if isinstance(dim, Dim) else dim for dim in shape)
            for name, shape in self.shapes.items()
        }
        return {**fixed, **self.unlisted}

    def smallest(self) -> dict[str, int]:
        return {name: dim.nearest(0) for name, dim in self.dims.items()}

    def spread(self, example: Sizes) -> Iterator[dict[str, int]]:
        """Sizes to choose schedules for: ``example``, then the least and the greatest: usual ones, or of all dimensions."""
        found = [dict(example)]
        if self.usual:
            found += [dict(self.usual[0]), dict(self.usual[-1])]
        else:
            found.append({name: dim.nearest(max(dim.low, 1)) for name, dim in self.dims.items()})
            found.append({name: dim.nearest(dim.high) for name, dim in self.dims.items()})
        yield from {tuple(sizes.items()): sizes for sizes in found}.values()

    def examples(self) -> Iterator[dict[str, int]]:
        """Sizes to try a model with: the middle of those that are usual, those of the ranges, then small ones that no other size
        is equal to, then common ones.

        Not all fit every model. What decides only speed is decided for the first that does.
        """
        if self.usual:
            yield dict(self.usual[len(self.usual) // 2])
        middles: dict[str, int] = {}
        for name, dim in self.dims.items():
            middle = dim.nearest(math.isqrt(max(dim.low, 1) * dim.high))
            while middle in middles.values() and middle + dim.multiple in dim:
                middle += dim.multiple
            middles[name] = middle
        yield middles
        for step in (1, 16, 32):
            yield {name: dim.nearest(size * step) for (name, dim), size in zip(self.dims.items(), cycle(APART))}
        for size in USUAL:
            yield {name: dim.nearest(size) for name, dim in self.dims.items()}


def _place(name: str, axis: int) -> str:
    return f"dimension {axis} of input {quote(name)}"


def has_dims(shapes: object) -> bool:
    """Whether ``shapes`` declare a dimension whose size each run decides: a ``Dim``, or its name."""
    return isinstance(shapes, Mapping) and any(
        isinstance(size, Dim | str) for shape in shapes.values() if isinstance(shape, tuple | list) for size in shape
    )


def _is_size(size: object) -> bool:
    """Whether ``size`` is a whole number, also one of numpy's."""
    return hasattr(size, "__index__") and not isinstance(size, bool)
