"""Typed names for the whole numbers of an engine: the problem's sizes, the schedule's parameters, what follows from both."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Self, dataclass_transform


@dataclass(frozen=True, slots=True)
class Param:
    """One tunable: its values in rising order of ambition, and what it means."""

    name: str
    choices: tuple[int, ...]
    meaning: str


def tunable(choices: tuple[int, ...], meaning: str) -> Any:
    """A field of a ``Tunables``: the values that a search may choose from, in rising order of ambition."""
    return Param("", choices, meaning)


def _plain(names: Iterable[str]) -> list[str]:
    """The numbers' names of fields."""
    return [name.removesuffix("_") for name in names]


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(tunable,))
class Sizes(Mapping[str, Any]):
    """Base of an engine's named numbers. A subclass annotates them; its constructor takes them by name.

    Subclasses behave like frozen dataclasses, also for a type checker. They are not ``dataclasses.dataclass``: defining
    one of those takes 1.3 ms at import and an object of 12 fields takes 4.3 us, here 20 us and 1.3 us. There are about 90
    such classes, and choosing the schedule of one kernel makes thousands of objects.

    A ``Sizes`` is also a mapping from names to numbers, for code that serves all engines: records, tuning, templates. The
    mapping leaves out fields that have their default. A field may be called ``items`` or ``values``: it hides the mapping's
    method of that name, so code that serves all engines calls these on ``dict(sizes)``. ``dict`` itself calls ``keys``: a
    number of that name is the field ``keys_``.

    In ``lockstep`` the numbers are columns, one place for each schedule; formulas are the same.
    """

    if TYPE_CHECKING:  # fields of subclasses may hide these

        @property
        def items(self) -> Any: ...
        @property
        def values(self) -> Any: ...

    else:

        @property
        def keys(self) -> Callable[[], KeysView[str]]:  # a property: no number of an object hides it
            return lambda: KeysView(self)

    _fields: ClassVar[frozenset[str]] = frozenset()
    _required: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = [name for name, kind in inspect.get_annotations(cls).items() if not str(kind).startswith("ClassVar")]
        required = [name for name in own if name not in vars(cls)]
        for name in own:
            if name.endswith("_"):
                setattr(cls, name, property(itemgetter(name[:-1])))
        inherited = [base for base in cls.__bases__ if issubclass(base, Sizes)]
        cls._fields = frozenset(_plain(own)).union(*(base._fields for base in inherited))
        cls._required = frozenset(_plain(required)).union(*(base._required for base in inherited))

    def __init__(self, **numbers: Any) -> None:
        given = numbers.keys()
        if given != self._fields and not self._required <= given <= self._fields:
            numbers = dict(zip(_plain(numbers), numbers.values(), strict=True))
            given = numbers.keys()
        if given != self._fields and not self._required <= given <= self._fields:
            missing, unknown = sorted(self._required - given), sorted(given - self._fields)
            raise TypeError(f"{type(self).__name__}: missing {missing}, unknown {unknown}")
        self.__dict__.update(numbers)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: use replace({name}=...)")

    def replace(self, **changes: Any) -> Self:
        """The same numbers but for ``changes``."""
        return type(self)(**{**self.__dict__, **changes})

    def __getitem__(self, name: str) -> Any:
        return self.__dict__[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.__dict__)

    def __len__(self) -> int:
        return len(self.__dict__)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and self.__dict__ == dict(other)

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__.items()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={number!r}' for name, number in self.__dict__.items())})"


class Tunables(Sizes):
    """Base of an engine's schedules: each field is ``tunable``, and together they are the search space, ``params``.

    The parameters of several bases come in the order of the bases, before a class's own.
    """

    if TYPE_CHECKING:  # mypy compares a parameter with what its immediate base has of that name

        @property
        def items(self) -> Any: ...

    params: ClassVar[tuple[Param, ...]] = ()

    def __init_subclass__(cls) -> None:
        own = {name: value for name, value in vars(cls).items() if isinstance(value, Param)}
        for name in own:
            delattr(cls, name)  # a class has no value of it, only choices
        super().__init_subclass__()
        inherited = [param for base in cls.__bases__ if issubclass(base, Tunables) for param in base.params]
        named = zip(_plain(own), own.values(), strict=True)
        cls.params = (*inherited, *(Param(name, value.choices, value.meaning) for name, value in named))

    @classmethod
    def choices(cls, name: str) -> tuple[int, ...]:
        """The values of one parameter."""
        return next(param.choices for param in cls.params if param.name == name)
