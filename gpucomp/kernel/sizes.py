"""Typed integers of an engine: sizes of the problem, parameters of the schedule, and numbers derived from both."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, ClassVar, Self, dataclass_transform

from gpucomp.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Param:
    """One tunable parameter: its values, from the safest to the most aggressive, and its meaning."""

    name: str
    choices: tuple[int, ...]
    meaning: str


def tunable(choices: tuple[int, ...], meaning: str) -> Any:
    """A field of a ``Tunables``: the values that a search may choose from, from the safest to the most aggressive."""
    return Param("", choices, meaning)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(tunable,))
class Sizes:
    """Base class of an engine's named integers. A subclass annotates them; its constructor takes them by name.

    Subclasses behave like frozen dataclasses, also for a type checker. They are not ``dataclasses.dataclass`` because
    that is slower: defining a dataclass takes 1.3 ms at import and creating an object of 12 fields takes 4.3 us; here
    it is 20 us and 1.3 us. There are about 90 such classes, and choosing the schedule of one kernel creates thousands
    of objects.

    Code for all engines (records, tuning, templates) reads ``numbers``, a mapping by name. It leaves out fields that
    were not passed and have their default.

    In ``lockstep`` each number is a column with one entry per schedule. The formulas are the same.
    """

    _fields: ClassVar[frozenset[str]] = frozenset()
    _required: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = [name for name, kind in inspect.get_annotations(cls).items() if not str(kind).startswith("ClassVar")]
        required = [name for name in own if name not in vars(cls)]
        inherited = [base for base in cls.__bases__ if issubclass(base, Sizes)]
        cls._fields = frozenset(own).union(*(base._fields for base in inherited))
        cls._required = frozenset(required).union(*(base._required for base in inherited))

    def __init__(self, **numbers: Any) -> None:
        given = numbers.keys()
        if given != self._fields and not self._required <= given <= self._fields:
            missing, unknown = sorted(self._required - given), sorted(given - self._fields)
            raise TypeError(f"{type(self).__name__}: missing {missing}, unknown {unknown}")
        self.__dict__.update(numbers)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: use replace({name}=...)")

    def replace(self, **changes: Any) -> Self:
        """The same numbers, except for ``changes``."""
        if not changes.keys() <= self._fields:
            raise TypeError(f"{type(self).__name__}: unknown {sorted(changes.keys() - self._fields)}")
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__, **changes)
        return made

    @property
    def numbers(self) -> Mapping[str, Any]:
        """The numbers by name, in the order in which they were given."""
        return self.__dict__

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__.items()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={number!r}' for name, number in self.__dict__.items())})"


class Tunables(Sizes):
    """Base class of an engine's schedules. Each field is ``tunable``; together they are the search space, ``params``.

    The parameters of base classes come first, in the order of the bases.
    """

    params: ClassVar[tuple[Param, ...]] = ()

    def __init_subclass__(cls) -> None:
        own = {name: value for name, value in vars(cls).items() if isinstance(value, Param)}
        for name in own:
            delattr(cls, name)  # a parameter has choices but no default
        super().__init_subclass__()
        inherited = [param for base in cls.__bases__ if issubclass(base, Tunables) for param in base.params]
        cls.params = (*inherited, *(Param(name, value.choices, value.meaning) for name, value in own.items()))

    @classmethod
    def choices(cls, name: str) -> tuple[int, ...]:
        """The values of one parameter."""
        return next(param.choices for param in cls.params if param.name == name)
